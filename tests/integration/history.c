/* See history.h. */
#include "history.h"

#include "stop.h"

#include "lab/lab.h"
#include "lab/redis_reader.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TICK_MS       10
#define LOOK_MS       50
#define ADS           40
#define EDGE_SHARE    30 /* a thirtieth of the history stands at each edge */
#define KEYS_PER_USER LIVE_WINDOWS_MAX

uint32_t history_draw(struct history *history, uint32_t below)
{
    history->random += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t mixed = history->random;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(((mixed ^ (mixed >> 31)) >> 32) * below >> 32);
}

/* --- life ------------------------------------------------------------------------------------ */

static int32_t partition_of(const void *context, const char *user)
{
    return live_partition(context, user);
}

void history_init(struct history *history, const struct history_options *options)
{
    memset(history, 0, sizeof *history);
    history->options = *options;
    history->random = options->seed;
    live_init(&history->live, &options->live);
    history->live.process.program = FCAPD_POINTS_PROGRAM;
    for (size_t i = 0; i < history->live.window_count; i++) {
        int64_t length_ms = options->live.lengths[i].length_ms;
        history->longest_ms = length_ms > history->longest_ms ? length_ms : history->longest_ms;
    }
    history->watch =
        redis_watch_open(&history->live.redis, &(struct redis_ledger_options){
                                                   .profile = "test",
                                                   .partitions = options->live.partitions,
                                                   .partition_of = partition_of,
                                                   .context = &history->live,
                                                   .keys_max = options->users * KEYS_PER_USER,
                                               });
    history->impressions = impressions_open(&(struct impressions_options){
        .seed = options->seed,
        .users = options->users,
        .user_exponent = 0.6,
        .ads = ADS,
        .ad_exponent = 0.8,
        .sessions = options->users / 50 + 1,
        .session_length = 4,
        .jitter_ms = 50,
        .late_permille = 30,
        .late_ms_max = history->longest_ms + 5000,
        .duplicate_permille = 30,
    });
}

void history_done(struct history *history)
{
    history_calm(history);
    redis_watch_close(history->watch);
    live_done(&history->live);
    impressions_close(history->impressions);
    free(history->log);
    memset(history, 0, sizeof *history);
}

/* --- records --------------------------------------------------------------------------------- */

/* Of a user whose partition takes it. */
static void draw_impression(struct history *history, int64_t now_ms, struct impression *ret_next,
                            int32_t *ret_partition)
{
    const struct history_options *options = &history->options;
    do {
        impressions_next(history->impressions, now_ms, ret_next);
        *ret_partition = live_partition(&history->live, ret_next->user);
    } while (*ret_partition == options->empty ||
             (*ret_partition == options->slow && history_draw(history, 10) != 0));
}

/* A record of `now_ms`: mostly an event, at times ahead of the clock, late, sent again; few erase
 * their user. */
static int32_t send_one(struct history *history, int64_t now_ms)
{
    struct impression impression;
    int32_t partition;
    draw_impression(history, now_ms, &impression, &partition);
    uint32_t kind = history_draw(history, 1000);
    if (kind < 2) {
        live_send_tombstone_at(&history->live, impression.user, now_ms);
        return partition;
    }
    if (kind < 12 && impression.kind == IMPRESSION_GOOD) {
        impression.time_ms += history_draw(history, 3000);
    }
    live_send_event(&history->live, &(struct live_event){
                                        .user = impression.user,
                                        .ad = impression.ad,
                                        .time_ms = impression.time_ms,
                                        .id = impression.id,
                                        .timestamp_ms = now_ms,
                                    });
    return partition;
}

/* The crowd behind now - L, for each window whose edge lies in [from, to). */
static void send_edges(struct history *history, int64_t end_ms, int64_t from_ms, int64_t to_ms)
{
    const struct history_options *options = &history->options;
    uint64_t count = options->edge_ms == 0 ? 0 : options->events / EDGE_SHARE;
    for (size_t i = 0; i < history->live.window_count; i++) {
        int64_t edge_ms = end_ms - options->live.lengths[i].length_ms;
        bool is_there =
            edge_ms + options->edge_ms < end_ms && edge_ms >= from_ms && edge_ms < to_ms;
        for (uint64_t k = 0; k < count && is_there; k++) {
            (void)send_one(history, edge_ms + options->edge_ms * (int64_t)k / (int64_t)count);
        }
    }
}

void history_produce(struct history *history)
{
    const struct history_options *options = &history->options;
    int64_t end_ms = lab_wall_ms();
    int64_t last_ms = end_ms - options->span_ms;
    for (uint64_t i = 1; i <= options->events; i++) {
        int64_t at_ms = end_ms - options->span_ms +
                        (int64_t)((double)options->span_ms * (double)i / (double)options->events);
        send_edges(history, end_ms, last_ms, at_ms);
        (void)send_one(history, at_ms);
        last_ms = at_ms;
    }
    live_flush(&history->live);
    for (int32_t i = 0; i < options->live.partitions; i++) {
        int64_t low;
        kafka_ends(kafka_test_brokers(), history->live.topic, i, &low, &history->ends[i]);
    }
    history->ticked_ms = lab_monotonic_ms();
}

/* --- live ------------------------------------------------------------------------------------ */

static void log_sent(struct history *history, int64_t at_ms, int32_t partition)
{
    if (history->log_count == history->log_capacity) {
        history->log_capacity = history->log_capacity * 2 + 4096;
        history->log = realloc(history->log, history->log_capacity * sizeof *history->log);
        assert_non_null(history->log);
    }
    history->log[history->log_count++] = (struct history_sent){at_ms, partition};
}

/* Claims come every 2 s: what they say is needed to compare a value at its as_of. */
static void look(struct history *history)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    history->looked_ms = lab_monotonic_ms();
    (void)live_claims(&history->live, next, as_of_ms);
}

static void send_due(struct history *history)
{
    int64_t now_ms = lab_monotonic_ms();
    int64_t passed_ms = now_ms - history->ticked_ms;
    passed_ms = passed_ms > 1000 ? 1000 : passed_ms;
    history->ticked_ms = now_ms;
    history->owed += (double)passed_ms * history->options.rate / 1000;
    for (; history->owed >= 1; history->owed--) {
        int64_t at_ms = lab_wall_ms();
        int32_t partition = send_one(history, at_ms);
        history->sent++;
        if (history->logs) {
            log_sent(history, at_ms, partition);
        }
    }
}

void history_tick(struct history *history)
{
    if (!history->sends_beside) {
        send_due(history);
    }
    if (lab_monotonic_ms() - history->looked_ms >= LOOK_MS) {
        look(history);
    }
    lab_pause_ms(TICK_MS);
}

static void *send_beside(void *context)
{
    struct history *history = context;
    while (!atomic_load(&history->is_calm)) {
        send_due(history);
        lab_pause_ms(TICK_MS);
    }
    return NULL;
}

void history_send_beside(struct history *history)
{
    assert_false(history->logs || history->sends_beside);
    history->sends_beside = true;
    history->ticked_ms = lab_monotonic_ms();
    atomic_store(&history->is_calm, false);
    assert_int_equal(pthread_create(&history->sender, NULL, send_beside, history), 0);
}

void history_calm(struct history *history)
{
    if (history->sends_beside) {
        atomic_store(&history->is_calm, true);
        assert_int_equal(pthread_join(history->sender, NULL), 0);
        history->sends_beside = false;
    }
}

void history_go_on(struct history *history, int64_t ms)
{
    int64_t until_ms = lab_monotonic_ms() + ms;
    while (lab_monotonic_ms() < until_ms) {
        history_tick(history);
    }
}

/* --- the load -------------------------------------------------------------------------------- */

static bool all_open(struct history *history, int64_t since_ms)
{
    const struct live *live = &history->live;
    for (int32_t i = 0; i < live->options.partitions; i++) {
        if (live->last[i].next < history->ends[i] || live->last[i].as_of_ms < since_ms) {
            return false;
        }
    }
    return true;
}

static void count_produced(struct history *history)
{
    const struct redis_ledger_report *report =
        redis_ledger_report(redis_watch_hold(history->watch));
    for (size_t i = 0; i < history->log_count; i++) {
        const struct history_sent *sent = &history->log[i];
        const struct redis_ledger_partition *account = &report->partitions[sent->partition];
        history->behind += sent->at_ms * 1000 < account->last_increment_us;
    }
    redis_watch_release(history->watch);
}

void history_await_gates(struct history *history)
{
    struct daemon_process *process = &history->live.process;
    int64_t since_ms = lab_wall_ms();
    int64_t until_ms = lab_monotonic_ms() + HISTORY_WAIT_MS;
    while (!all_open(history, since_ms)) {
        int code = daemon_process_wait(process, 0);
        if (code != -1 || lab_monotonic_ms() > until_ms) {
            (void)daemon_process_get(process, "/readyz", NULL);
            print_error("/readyz: %s\n", process->text == NULL ? "" : process->text);
            fail_msg("gates stay closed (exit code %d):\n%s", code, daemon_process_log(process));
        }
        history_tick(history);
    }
    daemon_process_await(process, "/readyz", 200, LIVE_WAIT_MS);
    if (history->logs) {
        count_produced(history);
    }
    history->logs = false;
}

void history_start(struct history *history)
{
    history->logs = true;
    daemon_process_start(&history->live.process, NULL);
    history_await_gates(history);
}

static void meanwhile(void *context)
{
    history_tick(context);
}

void history_start_slowly(struct history *history, int64_t pause_ms, unsigned expiries)
{
    struct stop stop;
    char points[128];
    (void)snprintf(points, sizeof points, "history_counted:%" PRIu64 ",history_expired:%u",
                   history->options.events / 2, expiries);
    history->logs = true;
    stop_start(&stop, &history->live.process, "run", points);
    stop_await(&stop, meanwhile, history);
    history_go_on(history, pause_ms);
    stop_continue(&stop);
    stop_await(&stop, meanwhile, history);
    stop_continue(&stop);
    history_await_gates(history);
}

/* --- backfill -------------------------------------------------------------------------------- */

int64_t history_await_backfill(struct history *history)
{
    static const char before[] = " users as of ";
    struct daemon_process *process = &history->live.process;
    int64_t until_ms = lab_monotonic_ms() + HISTORY_WAIT_MS;
    int code;
    while ((code = daemon_process_wait(process, 0)) == -1 && lab_monotonic_ms() < until_ms) {
        history_tick(history);
    }
    const char *at = NULL;
    for (const char *next = daemon_process_log(process); (next = strstr(next, before)) != NULL;
         next = at) {
        at = next + strlen(before); /* The newest summary comes last. */
    }
    if (code != 0 || at == NULL) {
        fail_msg("backfill: exit code %d:\n%s", code, process->text);
    }
    return at == NULL ? 0 : strtoll(at, NULL, 10);
}

static void compare_user(struct history *history, struct redis_reader *reader, const char *user,
                         int64_t at_ms, struct oracle_tally *tally)
{
    struct live *live = &history->live;
    char names[LIVE_WINDOWS_MAX][160];
    const char *keys[LIVE_WINDOWS_MAX];
    struct redis_seen seen[LIVE_WINDOWS_MAX];
    for (size_t i = 0; i < live->window_count; i++) {
        (void)snprintf(names[i], sizeof names[i], "fc:{%s}:%s", user,
                       live->options.lengths[i].name);
        keys[i] = names[i];
    }
    redis_reader_get(reader, keys, live->window_count, seen);
    for (size_t i = 0; i < live->window_count; i++) {
        struct oracle_expectation expectation = {
            .user = user,
            .window_ms = live->options.lengths[i].length_ms,
            .at_min_ms = at_ms,
            .at_max_ms = lab_wall_ms(),
            .next_min = history->ends,
            .next_max = live->read,
            .next_count = (size_t)live->options.partitions,
            .strict_as_of = true,
        };
        (void)oracle_check_value(live->oracle, &expectation, seen[i].value, seen[i].size, tally);
    }
    redis_reader_drop(seen, live->window_count);
}

void history_compare_backfilled(struct history *history, int64_t at_ms, struct oracle_tally *tally)
{
    char error[256];
    struct live *live = &history->live;
    struct redis_reader *reader =
        redis_reader_open("127.0.0.1", live->redis.port, error, sizeof error);
    assert_non_null(reader);
    live_flush(live);
    live_read(live);
    for (size_t i = 0; i < oracle_user_count(live->oracle); i++) {
        compare_user(history, reader, oracle_user(live->oracle, i), at_ms, tally);
    }
    redis_reader_close(reader);
}

/* --- the watch ------------------------------------------------------------------------------- */

struct first_check {
    struct history *history;
    struct oracle_tally *tally;
    int64_t now_ms;
};

static int64_t window_length(const struct live *live, const char *window)
{
    for (size_t i = 0; i < live->window_count; i++) {
        if (strcmp(live->options.lengths[i].name, window) == 0) {
            return live->options.lengths[i].length_ms;
        }
    }
    return live->options.lengths[live->window_count - 1].length_ms;
}

static void check_first(void *context, const char *user, const char *window, const char *value,
                        size_t size_bytes)
{
    struct first_check *check = context;
    struct live *live = &check->history->live;
    struct oracle_expectation expectation = {
        .user = user,
        .window_ms = window_length(live, window),
        .at_max_ms = check->now_ms,
        .next_min = check->history->ends,
        .next_max = live->read,
        .next_count = (size_t)live->options.partitions,
        .strict_as_of = true,
    };
    (void)oracle_check_value(live->oracle, &expectation, value, size_bytes, check->tally);
}

void history_watched(struct history *history, struct history_watched *ret_watched)
{
    *ret_watched = (struct history_watched){0};
    live_flush(&history->live);
    struct redis_ledger *ledger = redis_watch_hold(history->watch);
    ret_watched->report = *redis_ledger_report(ledger);
    live_read(&history->live);
    struct first_check check = {history, &ret_watched->first, lab_wall_ms()};
    redis_ledger_each_first(ledger, check_first, &check);
    redis_watch_release(history->watch);
}

void history_check_watch(struct history *history, struct history_watched *ret_watched)
{
    history_watched(history, ret_watched);
    const struct redis_ledger_report *report = &ret_watched->report;
    if (report->wrong != 0) {
        fail_msg("%" PRIu64 " writes to Redis are wrong:\n%s", report->wrong, report->text);
    }
    live_passes(&ret_watched->first,
                (struct oracle_minimum){report->keys / 2, report->keys / 2, 0});
}
