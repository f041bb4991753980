#include "backfill_run.h"

#include "daemon/signals.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/point.h"

#include <stdio.h>
#include <stdlib.h>

#define START_PATIENCE_MS 10000 /* while nothing has ever answered: a wrong address, mostly */
#define READ_RECORDS      20000 /* between two looks at anything else */
#define CLOCK_RECORDS     64    /* between two looks at the clocks */
#define READ_MS           50
#define PAUSE_MIN_MS      100
#define PAUSE_MAX_MS      2000
#define WAIT_MS           100
#define TICK_PAUSE_MS     5000 /* while Redis is away */
#define STILL_TOLD_MS     3000 /* silence that is worth a word */

struct run {
    const struct fcap_backfill_world *world;
    struct fcap_error *error;
    struct fcap_moment now;
    unsigned clock_left;     /* records until the clocks are read again */
    enum fcap_status record; /* why a record was not taken */
    bool has_begun;
    int64_t tick_at_ms; /* monotonic; no look at owners before, while Kafka is read */
    int64_t trouble_ms; /* monotonic, since when Redis is away; 0: it is not */
    int pause_ms;
    int32_t open_seen;
    uint64_t total; /* records to be read */
};

static struct fcap_moment look_at_clocks(void)
{
    return (struct fcap_moment){.wall_ms = fcap_clock_os_wall_ms(),
                                .monotonic_ms = fcap_clock_os_monotonic_ms()};
}

static bool is_stopping(void)
{
    return fcap_signals_received() != 0;
}

static enum fcap_status stopped(struct run *run)
{
    return fcap_error_set(run->error, FCAP_UNAVAILABLE, "stopped by a signal");
}

static int64_t patience_of(const struct run *run)
{
    bool is_short = !run->has_begun && run->world->patience_ms > START_PATIENCE_MS;
    return is_short ? START_PATIENCE_MS : run->world->patience_ms;
}

static enum fcap_status fail(struct run *run, enum fcap_status status)
{
    const struct fcap_backfill_world *world = run->world;
    const char *text = fcap_backfill_error(world->backfill);
    const char *more = "";
    if (fcap_backfill_failed_in(world->backfill) == FCAP_BACKFILL_IN_SEED) {
        more = fcap_seed_redis_error(world->seed);
    } else if (fcap_backfill_failed_in(world->backfill) == FCAP_BACKFILL_IN_SPILL) {
        more = fcap_spill_file_error(world->spill);
    }
    return fcap_error_set(run->error, status, "%s%s%s", text, more[0] == '\0' ? "" : ": ", more);
}

/* After a call of the backfill. True: it is to be made again, and a pause was made. False: *status
 * is how it ended, OK too. */
static bool try_again(struct run *run, enum fcap_status *status)
{
    const struct fcap_backfill_world *world = run->world;
    if (*status == FCAP_OK) {
        if (run->trouble_ms != 0) {
            fcap_progress_say(world->progress, "goes on");
        }
        run->trouble_ms = 0;
        run->pause_ms = PAUSE_MIN_MS;
        return false;
    }
    if (is_stopping()) {
        *status = stopped(run);
        return false;
    }
    bool may_pass = fcap_status_class(*status) == FCAP_CLASS_RETRY && *status != FCAP_NO_SPACE;
    enum fcap_status told = fail(run, *status);
    int64_t now_ms = fcap_clock_os_monotonic_ms();
    if (!may_pass) {
        return false;
    }
    if (run->trouble_ms == 0) {
        run->trouble_ms = now_ms;
        fcap_progress_say(world->progress, "waits at most %lld s: %s",
                          (long long)(patience_of(run) / 1000), run->error->text);
    }
    if (now_ms - run->trouble_ms >= patience_of(run)) {
        char text[64];
        (void)snprintf(text, sizeof text, "given up after %lld s",
                       (long long)((now_ms - run->trouble_ms) / 1000));
        fcap_error_prefix(run->error, text);
        *status = told;
        return false;
    }
    (void)fcap_signals_wait(run->pause_ms);
    run->pause_ms = run->pause_ms * 2 < PAUSE_MAX_MS ? run->pause_ms * 2 : PAUSE_MAX_MS;
    return true;
}

/* While Kafka is read, Redis may be away: what it is needed for comes later. */
static enum fcap_status tick(struct run *run)
{
    run->now = look_at_clocks();
    if (run->now.monotonic_ms < run->tick_at_ms) {
        return FCAP_OK;
    }
    enum fcap_status status = fcap_backfill_tick(run->world->backfill, run->now);
    if (fcap_status_class(status) == FCAP_CLASS_RETRY) {
        run->tick_at_ms = fcap_clock_os_monotonic_ms() + TICK_PAUSE_MS; /* It waits in vain. */
    }
    return fcap_status_class(status) == FCAP_CLASS_FATAL ? fail(run, status) : FCAP_OK;
}

/* --- Kafka --- */

/* What Kafka is waited for, or NULL. */
static const char *explain_silence(const struct run *run, char *text, size_t size)
{
    struct fcap_kafka_history *history = run->world->history;
    struct fcap_kafka_history_partition partition;
    int32_t stillest = fcap_kafka_history_stillest(history);
    if (stillest < 0) {
        return NULL;
    }
    fcap_kafka_history_partition(history, stillest, &partition);
    if (partition.still_ms < STILL_TOLD_MS) {
        return NULL;
    }
    const char *error = fcap_kafka_history_error(history);
    size_t used = (size_t)snprintf(text, size, "waits for Kafka: partition %d ", stillest);
    used += partition.is_found
                ? (size_t)snprintf(text + used, size - used, "stands at offset %lld of %lld",
                                   (long long)partition.next, (long long)partition.end)
                : (size_t)snprintf(text + used, size - used, "has not told its start");
    (void)snprintf(text + used, size - used, " for %lld s%s%s",
                   (long long)(partition.still_ms / 1000), error[0] == '\0' ? "" : ": ", error);
    return text;
}

static enum fcap_status check_silence(struct run *run)
{
    char text[700];
    struct fcap_kafka_history_partition partition;
    int32_t stillest = fcap_kafka_history_stillest(run->world->history);
    if (stillest < 0) {
        return FCAP_OK;
    }
    fcap_kafka_history_partition(run->world->history, stillest, &partition);
    if (partition.still_ms < patience_of(run)) {
        return FCAP_OK;
    }
    const char *why = explain_silence(run, text, sizeof text);
    return fcap_error_set(run->error, FCAP_UNAVAILABLE, "given up: %s",
                          why == NULL ? "Kafka is silent" : why);
}

/* Until all starts and ends are known. */
static enum fcap_status find(struct run *run, struct fcap_start start)
{
    char text[700];
    const struct fcap_backfill_world *world = run->world;
    fcap_kafka_history_find(world->history, start);
    while (!fcap_kafka_history_found(world->history, &run->total)) {
        enum fcap_status status = check_silence(run);
        if (status == FCAP_OK && run->has_begun) {
            status = tick(run);
        }
        if (status != FCAP_OK) {
            return status;
        }
        const char *why = explain_silence(run, text, sizeof text);
        if (why != NULL) {
            fcap_progress_at(world->progress, "find", fcap_clock_os_monotonic_ms(), 0, 0,
                             "partitions", why);
        }
        if (fcap_signals_wait(10)) {
            return stopped(run);
        }
    }
    return FCAP_OK;
}

static struct fcap_start start_at(const struct run *run, int64_t time_ms)
{
    const struct fcap_settings *settings = &run->world->settings;
    bool is_whole = settings->start == FCAP_START_EARLIEST;
    return (struct fcap_start){
        .kind = is_whole ? FCAP_START_EARLIEST : FCAP_START_TIME,
        .time_ms = time_ms,
        .after_ms = time_ms + settings->future_skew_ms + settings->seek_slack_ms,
        .future_ms = fcap_clock_os_wall_ms() + settings->future_skew_ms,
    };
}

static bool take_record(void *context, const struct fcap_record *record)
{
    struct run *run = context;
    if (run->clock_left == 0) {
        run->now = look_at_clocks();
        run->clock_left = CLOCK_RECORDS;
    }
    run->clock_left--;
    run->record = fcap_backfill_record(run->world->backfill, record, run->now);
    FCAP_POINT(backfill_spilled);
    return run->record == FCAP_OK;
}

static void skip_unwanted(struct run *run)
{
    struct fcap_backfill_report report;
    fcap_backfill_report(run->world->backfill, &report);
    if (report.partitions_open == run->open_seen) {
        return;
    }
    run->open_seen = report.partitions_open;
    for (int32_t i = 0; i < run->world->partitions; i++) {
        if (!fcap_backfill_wants(run->world->backfill, i)) {
            fcap_kafka_history_skip(run->world->history, i);
        }
    }
}

static void show_reading(struct run *run)
{
    char text[700];
    uint64_t done = 0;
    for (int32_t i = 0; i < run->world->partitions; i++) {
        struct fcap_kafka_history_partition partition;
        fcap_kafka_history_partition(run->world->history, i, &partition);
        if (partition.is_found) {
            done += (uint64_t)(partition.next - partition.start);
        }
    }
    fcap_progress_at(run->world->progress, "read", fcap_clock_os_monotonic_ms(), done, run->total,
                     "offsets", explain_silence(run, text, sizeof text));
}

static enum fcap_status read_all(struct run *run)
{
    const struct fcap_kafka_history_handler handler = {run, run->world->decoder, take_record};
    bool is_done = false;
    enum fcap_status status = FCAP_OK;
    while (!is_done && status == FCAP_OK) {
        if (is_stopping()) {
            return stopped(run);
        }
        status = tick(run);
        if (status != FCAP_OK) {
            break;
        }
        skip_unwanted(run);
        run->clock_left = 0;
        status = fcap_kafka_history_read(run->world->history, &handler, READ_RECORDS, READ_MS,
                                         &is_done, run->error);
        if (run->record != FCAP_OK) {
            status = fail(run, run->record);
        }
        status = status == FCAP_OK ? check_silence(run) : status;
        show_reading(run);
    }
    return status;
}

/* Since when nothing is missing, by the rule of `run`: the first record's time, the skew and the
 * slack; what no record tells of is missing from every window. */
static enum fcap_status end_reading(struct run *run)
{
    const struct fcap_backfill_world *world = run->world;
    int32_t now = fcap_kafka_history_topic_partitions(world->history);
    if (now != 0 && now != world->partitions) {
        return fcap_error_set(run->error, FCAP_UNAVAILABLE,
                              "the topic has %d partitions now, and had %d: users have moved; run "
                              "it again",
                              now, world->partitions);
    }
    int64_t *since_ms = calloc((size_t)world->partitions, sizeof *since_ms);
    FCAP_ASSERT(since_ms != NULL);
    for (int32_t i = 0; i < world->partitions; i++) {
        struct fcap_kafka_history_partition partition;
        fcap_kafka_history_partition(world->history, i, &partition);
        since_ms[i] = partition.whole_since_ms;
        if (since_ms[i] != FCAP_TIME_NONE && since_ms[i] != INT64_MAX) {
            since_ms[i] += world->settings.future_skew_ms + world->settings.seek_slack_ms;
        }
    }
    enum fcap_status status = fcap_backfill_read_done(world->backfill, since_ms);
    free(since_ms);
    return status == FCAP_OK ? status : fail(run, status);
}

/* --- the phases --- */

static void warn_of_eviction(const struct fcap_backfill_world *world)
{
    struct fcap_sink_redis_status redis;
    fcap_seed_redis_status(world->seed, &redis);
    if (redis.evicts) {
        fcap_progress_say(world->progress,
                          "warning: redis: maxmemory-policy is %s: counts can vanish; set "
                          "noeviction",
                          redis.maxmemory_policy);
    }
}

/* Looks at owners, claims, and finds what is to be read. The first look-up tells how much it is
 * about; the ends that count are those after the claims. */
static enum fcap_status begin(struct run *run)
{
    const struct fcap_backfill_world *world = run->world;
    const struct fcap_settings *settings = &world->settings;
    int64_t longest_ms = 0;
    for (size_t i = 0; i < settings->window_count; i++) {
        int64_t length_ms = settings->windows[i].length_ms;
        longest_ms = length_ms > longest_ms ? length_ms : longest_ms;
    }
    enum fcap_status status =
        find(run, start_at(run, fcap_clock_os_wall_ms() - longest_ms - settings->future_skew_ms -
                                    settings->seek_slack_ms));
    while (status == FCAP_OK) {
        run->now = look_at_clocks();
        status = fcap_backfill_begin(world->backfill, world->partitions, run->total, run->now);
        if (!try_again(run, &status)) {
            break;
        }
        status = FCAP_OK;
    }
    if (status != FCAP_OK) {
        return status;
    }
    run->has_begun = true;
    warn_of_eviction(world);
    status = tick(run);
    FCAP_POINT(backfill_claimed);
    if (status == FCAP_OK) {
        skip_unwanted(run);
        status = find(run, start_at(run, fcap_backfill_seek_ms(world->backfill)));
    }
    return status;
}

static void show_step(const struct run *run, const struct fcap_backfill_report *report)
{
    char text[128];
    const char *phase = report->phase == FCAP_BACKFILL_CHECKING ? "check" : "write";
    const char *note = NULL;
    uint64_t done = report->done;
    uint64_t total = report->total;
    if (report->phase == FCAP_BACKFILL_WAITING) {
        phase = "wait";
        done = 0;
        total = 0;
        note = text;
        (void)snprintf(text, sizeof text,
                       report->wait_ms == 0 ? "waits for a clock that was set back"
                                            : "about %lld s until every owner has shown itself",
                       (long long)(report->wait_ms + 999) / 1000);
    }
    fcap_progress_at(run->world->progress, phase, fcap_clock_os_monotonic_ms(), done, total,
                     "records", note);
}

static enum fcap_status step_on(struct run *run)
{
    const struct fcap_backfill_world *world = run->world;
    struct fcap_backfill_report report;
    bool is_done = false;
    for (;;) {
        if (is_stopping()) {
            return stopped(run);
        }
        fcap_backfill_report(world->backfill, &report);
        FCAP_POINT_IF(report.phase == FCAP_BACKFILL_WAITING, backfill_waiting);
        FCAP_POINT_IF(report.phase == FCAP_BACKFILL_CHECKING, backfill_checking);
        enum fcap_status status = fcap_backfill_step(world->backfill, look_at_clocks(), &is_done);
        if (!try_again(run, &status) && (status != FCAP_OK || is_done)) {
            return status;
        }
        fcap_backfill_report(world->backfill, &report);
        if (!is_done) {
            show_step(run, &report);
        }
        if (report.phase == FCAP_BACKFILL_WAITING) {
            (void)fcap_signals_wait(WAIT_MS);
        }
    }
}

enum fcap_status fcap_backfill_run(const struct fcap_backfill_world *world,
                                   struct fcap_backfill_times *ret_times, struct fcap_error *error)
{
    struct run run = {.world = world, .error = error, .pause_ms = PAUSE_MIN_MS};
    ret_times->begun_ms = fcap_clock_os_monotonic_ms();
    enum fcap_status status = begin(&run);
    int64_t reading_ms = fcap_clock_os_monotonic_ms();
    if (status == FCAP_OK) {
        status = read_all(&run);
        ret_times->read_ms = fcap_clock_os_monotonic_ms() - reading_ms;
    }
    status = status == FCAP_OK ? end_reading(&run) : status;
    if (status == FCAP_OK) {
        fcap_kafka_history_close(world->history);
        ret_times->is_read = true;
        status = step_on(&run);
    }
    FCAP_POINT_IF(status == FCAP_OK, backfill_written);
    fcap_progress_done(world->progress);
    return status;
}
