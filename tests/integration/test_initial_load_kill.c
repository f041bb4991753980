/* `fcapd run` is killed again and again before its first gates are open: while it reads history,
 * while events leave behind closed gates, as commits are made there, as a gate opens, in the middle
 * of the first projection. So is a `fcapd backfill` before it, from its claims to its summary. Each
 * time it has stopped itself at that very place. Some loads begin with an empty Redis, some with
 * what the one before has left there. In the end every key equals the definition, and nothing that
 * was written on the way was wrong.
 *
 * FCAP_TEST_FULL=1: 30 deaths instead of 5. */
#include "history.h"
#include "lib/full_size.h"
#include "stop.h"

#include "fcap/point.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DAY_MS INT64_C(86400000)

static const struct live_window windows[] = {
    {"1d", DAY_MS}, {"3d", 3 * DAY_MS}, {"7d", 7 * DAY_MS}, {NULL, 0}};

/* In the order in which a load gets there. `passes` are drawn up to so many. */
enum stage { READING, OPENING, PROJECTING, BACKFILLING, STAGES };

static const struct place {
    enum stage stage;
    const char *name;
    uint32_t passes;
    bool pauses; /* with a quarter of the history read, it is held for a while: T falls behind */
} places[] = {
    {READING, "history_expired", 8, true},          {READING, "history_encoded", 2, false},
    {READING, "history_counted", 4000, false},      {OPENING, "gate_opening", 3, false},
    {OPENING, "history_reached", 3, false},         {OPENING, "epoch_asked", 3, false},
    {PROJECTING, "full_pushed", 40, false},         {PROJECTING, "gate_opened", 3, false},
    {PROJECTING, "full_begun", 2, false},           {PROJECTING, "full_acked", 2, false},
    {PROJECTING, "push_acked", 40, false},          {BACKFILLING, "backfill_executed", 3, false},
    {BACKFILLING, "backfill_queued", 3, false},     {BACKFILLING, "backfill_writing", 3, false},
    {BACKFILLING, "backfill_checking", 1, false},   {BACKFILLING, "backfill_waiting", 3, false},
    {BACKFILLING, "backfill_spilled", 2000, false}, {BACKFILLING, "backfill_claimed", 1, false},
    {BACKFILLING, "backfill_written", 1, false},
};
#define PLACES (sizeof places / sizeof places[0])

static struct history history;
static unsigned kills[PLACES];
static size_t next_place[STAGES]; /* which comes next, round and round */

static int setup(void **unused)
{
    const struct history_options options = {
        .live =
            {
                .partitions = 6,
                .workers = 2,
                .windows = "[1d, 3d, 7d]",
                .lengths = windows,
                .topic_config = {"retention.ms", "-1"},
                .more_commit = "  events: 1000\n",
                .more = "event:\n  id: id\nshutdown:\n  deadline: 20s\n"
                        "durability:\n  sync_interval: 1s\n",
            },
        .events = is_full_size() ? 300000 : 40000,
        .users = is_full_size() ? 5000 : 800,
        .rate = 500,
        .span_ms = 7 * DAY_MS + DAY_MS / 4,
        .edge_ms = is_full_size() ? 1200000 : 120000,
        .empty = 2,
        .slow = 3,
        .seed = 20240612,
    };
    (void)unused;
    history_init(&history, &options);
    history_produce(&history);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    history_done(&history);
    return 0;
}

static void meanwhile(void *context)
{
    history_tick(context);
}

/* The next place of a stage, so that each comes in turn. */
static const struct place *choose(enum stage stage)
{
    for (;;) {
        const struct place *place = &places[next_place[stage]++ % PLACES];
        if (place->stage == stage) {
            return place;
        }
    }
}

/* A life that ends there. */
static void die_at(const struct place *place)
{
    struct stop stop;
    char points[128] = "";
    if (place->pauses) {
        (void)snprintf(points, sizeof points, "history_counted:%" PRIu64 ",",
                       history.options.events / 4);
    }
    size_t used = strlen(points);
    (void)snprintf(points + used, sizeof points - used, "%s:%u", place->name,
                   1 + history_draw(&history, place->passes));
    stop_start(&stop, &history.live.process, place->stage == BACKFILLING ? "backfill" : "run",
               points);
    if (place->pauses) {
        stop_await(&stop, meanwhile, &history);
        history_go_on(&history, 2000); /* What T has to catch up with, and events leave. */
        stop_continue(&stop);
    }
    stop_await(&stop, meanwhile, &history);
    assert_string_equal(stop_point(&stop), place->name);
    history_go_on(&history, history_draw(&history, 300)); /* The world goes on around it. */
    print_message("it dies at %s\n", points);
    stop_kill(&stop);
    kills[place - places]++;
}

/* The load begins without a state, in a Redis that is empty or not. */
static void forget(bool redis_too)
{
    struct live *live = &history.live;
    char path[128];
    if (live->process.pid != 0) {
        live_stop(live);
    }
    (void)snprintf(path, sizeof path, "%s/state", live->process.directory);
    lab_folder_remove(path);
    if (redis_too) {
        assert_string_equal(redis_server_ask(&live->redis, "FLUSHALL"), "OK");
    }
}

/* A backfill that is killed; perhaps another one, which finds half of its work. */
static void backfill(bool again, struct oracle_tally *tally)
{
    die_at(choose(BACKFILLING));
    if (again) {
        daemon_process_start_command(&history.live.process, "backfill", NULL);
        int64_t at_ms = history_await_backfill(&history);
        history_compare_backfilled(&history, at_ms, tally);
        live_passes(tally, (struct oracle_minimum){1, 1, 0});
    }
}

static void load(bool is_long, struct live_tally *tally)
{
    if (is_long) {
        die_at(choose(READING));
        die_at(choose(OPENING));
    }
    die_at(choose(PROJECTING));
    daemon_process_start(&history.live.process, NULL);
    history_await_gates(&history);
    live_await_applied(&history.live);
    live_compare(&history.live, true, tally);
    live_passes(&tally->now, (struct oracle_minimum){1, 1, 0});
    live_passes(&tally->as_of, (struct oracle_minimum){1, 1, 0});
    live_passes(&tally->expiry, (struct oracle_minimum){1, 1, 0});
    assert_true(daemon_process_metric(&history.live.process, "fcapd_underflows_total") == 0);
}

static void report(const struct live_tally *tally, const struct history_watched *watched)
{
    static const char *const names[] = {"reading", "opening", "projecting", "backfill"};
    char text[128] = "";
    unsigned all = 0;
    for (size_t stage = 0; stage < STAGES; stage++) {
        unsigned count = 0;
        for (size_t i = 0; i < PLACES; i++) {
            count += places[i].stage == (enum stage)stage ? kills[i] : 0;
            assert_true(!is_full_size() || kills[i] > 0);
        }
        assert_true(count > 0);
        all += count;
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%s %u", used == 0 ? "" : ", ",
                       names[stage], count);
    }
    assert_true(all >= (is_full_size() ? 30 : 5));
    print_message("result: killed in the initial load: %" PRIu64 " records, %u kills (%s), %" PRIu64
                  " writes watched, %" PRIu64 " wrong, %" PRIu64 " first values and %" PRIu64
                  " keys compared, %" PRIu64 " wrong\n",
                  history.options.events + history.sent, all, text,
                  watched->report.sets + watched->report.unlinks, watched->report.wrong,
                  watched->first.compared, tally->now.compared,
                  watched->first.wrong + tally->now.wrong + tally->as_of.wrong);
}

static void test_killed_before_the_gates_are_open(void **unused)
{
    static struct live_tally tally;
    static struct oracle_tally backfilled;
    static struct history_watched watched;
    unsigned loads = is_full_size() ? 13 : 2;
    (void)unused;
    for (unsigned i = 0; i < loads; i++) {
        if (i > 0) {
            forget(i % 3 != 2);
            if (i % 3 != 2) {
                backfill(is_full_size() && i % 2 == 0, &backfilled);
            }
        }
        load(i % 2 == 0, &tally);
    }
    history_check_watch(&history, &watched);
    live_stop(&history.live);
    report(&tally, &watched);
    uint64_t keys = (uint64_t)history.options.users * history.live.window_count * loads;
    live_passes(&tally.now, (struct oracle_minimum){keys / 2, keys / 4, 1});
    live_passes(&tally.expiry, (struct oracle_minimum){keys / 4, keys / 4, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed_before_the_gates_are_open, setup, teardown),
    };
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
