/* Windows change on existing state, one restart after the other, on a real broker and a real Redis:
 * a shorter one is added, one is removed, one renamed, the longest lengthened, at once by
 * --replay-from-kafka, in its time, or by more than anybody waits. Impressions come meanwhile, the
 * daemon is killed with kill -9 at a named point of each change (fcap/point.h), and every key is
 * compared with the definition.
 *
 * The windows are of seconds, and a machine may take longer for a restart. So every other user has
 * events ahead of the clock, within limits.max_future_skew: they count at once and stay, and there
 * is something to compare however late it gets. And what Redis is made to do is watched: the first
 * value that a key ever has is complete, so a window that is held back was, until then.
 *
 * FCAP_TEST_FULL=1: each change quiet, under load, and killed at each of its points. */
#include "lab/lab.h"
#include "lab/redis_watch.h"
#include "lib/full_size.h"
#include "live.h"
#include "windows_traffic.h"

#include "fcap/point.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PARTITIONS 3
#define USERS      WINDOWS_USERS
#define NAMES      8 /* of windows, at most */
#define NOWHERE    FCAP_POINT_COUNT
#define POINTS_MAX 5

static const char *const point_names[] = {
#define X(name, phase, lead, passes, text) #name,
    FCAP_POINT_LIST(X)
#undef X
};

static struct live live;
static struct redis_watch *watch;
static struct windows_traffic traffic = {.live = &live, .random = 6};
static struct live_tally tally;
static unsigned kills;
static uint64_t firsts;
static char stop_at[64];
static char stop_file[128];

/* --- the daemon ------------------------------------------------------------------------------ */

/* What an earlier life said is not the new one's. */
static void forget_meta(void)
{
    (void)redis_server_ask(&live.redis, "DEL fc:meta:test:one");
}

static void start(enum fcap_point point, unsigned passes)
{
    const char *environment[3] = {NULL};
    live.process.program = FCAPD_POINTS_PROGRAM;
    if (point != NOWHERE) {
        (void)snprintf(stop_at, sizeof stop_at, "FCAP_STOP_AT=%s:%u", point_names[point], passes);
        (void)snprintf(stop_file, sizeof stop_file, "FCAP_STOP_FILE=%s/stopped",
                       live.process.directory);
        (void)unlink(strchr(stop_file, '=') + 1);
        environment[0] = stop_at;
        environment[1] = stop_file;
    }
    forget_meta();
    daemon_process_start(&live.process, environment);
}

/* Waits until it has stopped itself where it should, and kills it there. */
static void kill_there(void)
{
    int status = 0;
    int64_t until_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    while (waitpid(live.process.pid, &status, WUNTRACED | WNOHANG) != live.process.pid) {
        if (lab_monotonic_ms() > until_ms) {
            fail_msg("never at %s:\n%s", stop_at, daemon_process_log(&live.process));
        }
        windows_tick(&traffic);
    }
    if (!WIFSTOPPED(status)) {
        live.process.pid = 0;
        fail_msg("ended (%x) before %s:\n%s", (unsigned)status, stop_at,
                 daemon_process_log(&live.process));
    }
    assert_int_equal(access(strchr(stop_file, '=') + 1, F_OK), 0);
    windows_go_on(&traffic, 100);
    daemon_process_signal(&live.process, SIGKILL);
    assert_int_equal(waitpid(live.process.pid, &status, 0), live.process.pid);
    live.process.pid = 0;
    kills++;
}

static void stop(void)
{
    int64_t until_ms = lab_monotonic_ms() + LIVE_STOP_MS;
    int code;
    daemon_process_signal(&live.process, SIGTERM);
    while ((code = daemon_process_wait(&live.process, 0)) == -1) {
        assert_true(lab_monotonic_ms() < until_ms);
        windows_tick(&traffic);
    }
    if (code != 0) {
        fail_msg("exit code %d:\n%s", code, daemon_process_log(&live.process));
    }
}

/* Every window that is compared is ready on every partition, by fc:meta. */
static void await_ready(void)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    int64_t until_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    int ready = 0;
    while (ready < PARTITIONS) {
        if (lab_monotonic_ms() > until_ms) {
            fail_msg("not ready: %s\n%s", redis_server_ask(&live.redis, "GET fc:meta:test:one"),
                     daemon_process_log(&live.process));
        }
        windows_tick(&traffic);
        (void)live_claims(&live, next, as_of_ms);
        ready = 0;
        for (int i = 0; i < PARTITIONS; i++) {
            ready += next[i] >= 0 && live.last[i].is_ready;
        }
    }
}

/* --- comparing ------------------------------------------------------------------------------- */

/* The keys of every other user are there in each window that does not wait. */
static void passes(struct live_tally *now)
{
    uint64_t some = USERS / 2 * (live.window_count - live.waiting_count);
    live_passes(&now->now, (struct oracle_minimum){2 * some, some, 0});
    live_passes(&now->as_of, (struct oracle_minimum){some, some, 0});
    tally.now.compared += now->now.compared + now->as_of.compared + now->expiry.compared;
    tally.now.non_empty += now->now.non_empty;
}

/* At rest every key, absent ones and expiries too. Under load, each at some prefix of the topic
 * first. Without load nobody is heard of since the restart. */
static void compare(void)
{
    struct live_tally now = {0};
    if (traffic.is_loaded) {
        windows_send_to_all(&traffic);
        live_await_applied(&live);
        windows_go_on(&traffic, 200);
        live_compare(&live, false, &now);
        passes(&now);
        windows_send_to_all(&traffic);
    }
    now = (struct live_tally){0};
    live_await_applied(&live);
    live_compare(&live, true, &now);
    passes(&now);
    live_passes(&now.expiry, (struct oracle_minimum){USERS / 2, 0, 0});
    windows_rested(&traffic);
}

/* -2: no key. */
static int64_t pxat_of(unsigned user_index, const char *window)
{
    const char *text =
        redis_server_ask(&live.redis, "PEXPIRETIME fc:{user-%u}:%s", user_index, window);
    int64_t pxat_ms = text == NULL ? -2 : strtoll(text, NULL, 10);
    assert_true(pxat_ms != -1); /* None without an end. */
    return pxat_ms;
}

static size_t count_keys(const char *window)
{
    size_t count = 0;
    for (unsigned i = 0; i < USERS; i++) {
        count += pxat_of(i, window) > 0;
    }
    return count;
}

static double metric(const char *name)
{
    double value = daemon_process_metric(&live.process, name);
    assert_true(value >= 0);
    return value;
}

/* --- the changes ----------------------------------------------------------------------------- */

struct change {
    const char *name;
    struct live_change live;
    const char *argument;
    enum fcap_point points[POINTS_MAX]; /* where a life may end in the middle; NOWHERE ends them */
    const struct live_window *ready;    /* the windows when none waits any more; NULL: none does */
};

#define POINT(name) FCAP_POINT_AT_##name

static const struct live_window two[] = {{"5s", 5000}, {"9s", 9000}, {NULL, 0}};
static const struct live_window shorter[] = {{"2s", 2000}, {"5s", 5000}, {"9s", 9000}, {NULL, 0}};
static const struct live_window renamed[] = {{"2s", 2000}, {"nine", 9000}, {NULL, 0}};
static const struct live_window filling[] = {
    {"2s", 2000}, {"nine", 9000}, {"15s", 15000, true}, {NULL, 0}};
static const struct live_window longer[] = {
    {"2s", 2000}, {"nine", 9000}, {"15s", 15000}, {NULL, 0}};
static const struct live_window longest[] = {
    {"2s", 2000}, {"nine", 9000}, {"15s", 15000}, {"24s", 24000}, {NULL, 0}};
static const struct live_window no_hour[] = {
    {"nine", 9000}, {"15s", 15000}, {"24s", 24000}, {NULL, 0}};
/* All that are shown before serve_incomplete(). */
static const struct live_window names[] = {{"2s", 2000},   {"5s", 5000},   {"9s", 9000},
                                           {"nine", 9000}, {"15s", 15000}, {"24s", 24000}};
static const struct live_window of_before[] = {{"5s", 5000}, {"9s", 9000}, {NULL, 0}};
static const struct live_window all_of_before[] = {
    {"2s", 2000}, {"5s", 5000}, {"9s", 9000}, {NULL, 0}};

#define NINE "{name: nine, length: 9s}"

static const struct change changes[] = {
    {.name = "a shorter window is added",
     .live = {.windows = "[2s, 5s, 9s]", .lengths = shorter},
     .points = {POINT(window_building), POINT(window_built), POINT(full_acked), NOWHERE}},
    {.name = "one is removed, one renamed",
     .live = {.windows = "[2s, " NINE "]", .lengths = renamed, .gone = of_before},
     .points = {POINT(full_queued), POINT(task_loaded), POINT(gate_opened), NOWHERE}},
    {.name = "the longest is lengthened, in its time",
     .live = {.windows = "[2s, " NINE ", 15s]", .lengths = filling, .gone = of_before},
     .points = {POINT(task_loaded), POINT(expire_moved), POINT(gate_opened), NOWHERE},
     .ready = longer},
    {.name = "it is lengthened, from Kafka",
     .live = {.windows = "[2s, " NINE ", 15s, 24s]", .lengths = longest, .gone = of_before},
     .argument = "--replay-from-kafka",
     .points = {POINT(commit_written), POINT(replay_begun), POINT(replay_judged),
                POINT(gate_opening), NOWHERE}},
    {.name = "it is lengthened by more than anybody waits", /* Not a key of it is ever there. */
     .live = {.windows = "[" NINE ", 15s, 24s, 1h]", .lengths = no_hour, .gone = all_of_before},
     .points = {POINT(gate_opened), POINT(expire_moved), POINT(task_loaded), NOWHERE}},
};
#define CHANGES (sizeof changes / sizeof changes[0])

/* What the next life is to show is in the state before it begins. */
static void end_life(void)
{
    windows_send_to_all(&traffic);
    live_await_applied(&live);
    stop();
}

/* Ends the life before, and those that end in the middle of the change, and compares in the last
 * one. */
static void apply(const struct change *change, enum fcap_point point, unsigned nth)
{
    if (live.process.pid != 0) {
        end_life();
    }
    live_configure(&live, &change->live);
    live.process.argument = change->argument;
    if (point != NOWHERE) {
        start(point, nth);
        kill_there();
    }
    start(NOWHERE, 0);
    await_ready();
    windows_go_on(&traffic, 200);
    compare();
    if (change->ready != NULL) {
        live_expect_windows(&live, change->ready);
        await_ready();
        compare();
    }
    assert_int_equal((int)metric("fcapd_underflows_total"), 0);
    assert_int_equal((int)metric("fcapd_gaps_total"), 0);
    print_message("%s%s%s%s: right\n", change->name, traffic.is_loaded ? ", under load" : "",
                  point == NOWHERE ? "" : ", killed at ",
                  point == NOWHERE ? "" : point_names[point]);
}

static int32_t partition_of(const void *context, const char *user)
{
    return live_partition(context, user);
}

/* From a new topic to the windows that stand before the first change. */
static void begin(void)
{
    static const struct live_options options = {
        .partitions = PARTITIONS,
        .workers = 2,
        .windows = "[5s, 9s]",
        .lengths = two,
        .more = "timers:\n  bucket: 100ms\n",
    };
    live_init(&live, &options);
    watch = redis_watch_open(&live.redis,
                             &(struct redis_ledger_options){.profile = "test",
                                                            .partitions = PARTITIONS,
                                                            .partition_of = partition_of,
                                                            .context = &live,
                                                            .keys_max = (size_t)USERS * NAMES});
    windows_send_some(&traffic, 1000);
    windows_send_to_all(&traffic);
    live_flush(&live);
    windows_rested(&traffic);
    live.process.argument = NULL;
    start(NOWHERE, 0);
    await_ready();
    windows_go_on(&traffic, 500);
    compare();
}

/* --- what was shown -------------------------------------------------------------------------- */

struct shown {
    size_t keys[NAMES];
    struct oracle_tally tally;
};

static void check_first(void *context, const char *user, const char *window, const char *value,
                        size_t size_bytes)
{
    struct shown *shown = context;
    size_t at = 0;
    while (at < sizeof names / sizeof names[0] && strcmp(names[at].name, window) != 0) {
        at++;
    }
    if (at == sizeof names / sizeof names[0]) {
        fail_msg("user \"%s\" window %s was shown: %.*s", user, window, (int)size_bytes, value);
    }
    shown->keys[at]++;
    live_compare_at_as_of(&live, user, names[at].length_ms, value, &shown->tally);
}

/* The first value of each key in each window, whenever that was, and that no as_of fell. */
static void check_watch(void)
{
    static struct shown shown;
    shown = (struct shown){0};
    live_flush(&live);
    struct redis_ledger *ledger = redis_watch_hold(watch);
    const struct redis_ledger_report *report = redis_ledger_report(ledger);
    if (report->wrong != 0) {
        fail_msg("%" PRIu64 " writes to Redis are wrong:\n%s", report->wrong, report->text);
    }
    live_read(&live);
    redis_ledger_each_first(ledger, check_first, &shown);
    redis_watch_release(watch);
    live_passes(&shown.tally, (struct oracle_minimum){0});
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(shown.keys[i] >= USERS / 2);
    }
    firsts += shown.tally.compared;
}

/* --- what becomes of the keys of before ------------------------------------------------------ */

struct old_keys {
    int64_t pxat_ms[2][USERS];
    int64_t first_ms; /* the earliest of them */
};

static void note_old_keys(struct old_keys *old)
{
    old->first_ms = INT64_MAX;
    for (size_t i = 0; i < 2; i++) {
        for (unsigned user = 0; user < USERS; user++) {
            int64_t pxat_ms = old->pxat_ms[i][user] = pxat_of(user, of_before[i].name);
            old->first_ms = pxat_ms > 0 && pxat_ms < old->first_ms ? pxat_ms : old->first_ms;
        }
        assert_true(count_keys(of_before[i].name) >= USERS / 2);
    }
}

/* None is written any more, and each goes by itself, in its time. */
static void check_old_keys(const struct old_keys *old)
{
    while (lab_wall_ms() <= old->first_ms + 1) {
        windows_tick(&traffic);
    }
    for (size_t i = 0; i < 2; i++) {
        for (unsigned user = 0; user < USERS; user++) {
            int64_t noted_ms = old->pxat_ms[i][user];
            int64_t before_ms = lab_wall_ms();
            int64_t pxat_ms = pxat_of(user, of_before[i].name);
            if (pxat_ms > 0) {
                assert_true(pxat_ms == noted_ms && before_ms <= noted_ms + 1);
            } else {
                assert_true(noted_ms <= lab_wall_ms());
            }
        }
    }
}

/* --- the tests ------------------------------------------------------------------------------- */

/* The chain of changes; `which`: the point of each at which it is killed; NULL: not killed. */
static void run_chain(const size_t *which)
{
    struct old_keys old = {0};
    begin();
    for (size_t i = 0; i < CHANGES; i++) {
        enum fcap_point point = which == NULL ? NOWHERE : changes[i].points[which[i]];
        if (i == 1) {
            end_life();
            note_old_keys(&old);
        }
        apply(&changes[i], point, 1);
    }
    check_old_keys(&old);
    check_watch();
}

/* The option does nothing more; and a longer window that the topic cannot fill is refused. */
static void refuse_what_would_lose_history(void)
{
    static const struct live_window too_long[] = {{"1m", 60000}, {NULL, 0}};
    const struct live_change change = {
        .windows = "[1m]", .lengths = too_long, .gone = live.options.lengths};
    const struct live_change back = {
        .windows = "[2s, " NINE ", 15s, 24s]", .lengths = longest, .gone = of_before};
    end_life();
    live_configure(&live, &back);
    live.process.argument = "--replay-from-kafka";
    start(NOWHERE, 0);
    await_ready();
    compare();
    assert_int_equal((int)metric("fcapd_replays_total"), 0);
    end_life();
    for (int32_t i = 0; i < PARTITIONS; i++) {
        kafka_delete_records(kafka_test_brokers(), live.topic, i, live.read[i] - 1);
    }
    live_configure(&live, &change);
    start(NOWHERE, 0);
    assert_int_equal(daemon_process_wait(&live.process, LIVE_START_MS), 78);
    assert_non_null(strstr(daemon_process_log(&live.process), "would lose history"));

    /* The state is as it was. */
    live_configure(&live, &back);
    live.process.argument = NULL;
    start(NOWHERE, 0);
    await_ready();
    compare();
    end_life();
}

/* Incomplete values are shown at once, if somebody wants them. */
static void serve_incomplete(void)
{
    static const struct live_window none[] = {{"2s", 2000}, {NULL, 0}};
    const struct live_change change = {
        .windows = "[2s, 1h]", .lengths = none, .more = "windows_incomplete: serve\n"};
    live_configure(&live, &change);
    live.process.argument = NULL;
    start(NOWHERE, 0);
    await_ready(); /* One window is. */
    int64_t until_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    while (count_keys("1h") == 0) {
        assert_true(lab_monotonic_ms() < until_ms);
        windows_tick(&traffic);
    }
    const char *meta = redis_server_ask(&live.redis, "GET fc:meta:test:one");
    assert_true(meta != NULL && strstr(meta, "\"ready\":[\"2s\"]") != NULL);
    stop();
}

static void end(void)
{
    redis_watch_close(watch);
    watch = NULL;
    live_done(&live);
    traffic.is_loaded = false;
}

static void test_changes_killed_in_the_middle_under_load(void **unused)
{
    size_t which[CHANGES] = {0};
    (void)unused;
    for (bool goes_on = true; goes_on;) {
        traffic.is_loaded = true;
        run_chain(which);
        traffic.is_loaded = false;
        refuse_what_would_lose_history();
        serve_incomplete();
        end();
        goes_on = false;
        for (size_t i = 0; i < CHANGES && is_full_size(); i++) {
            bool has_more = changes[i].points[which[i] + 1] != NOWHERE;
            which[i] += has_more;
            goes_on = goes_on || has_more;
        }
    }
}

static void test_changes_quiet_and_under_load(void **unused)
{
    (void)unused;
    for (int load = 0; load < 2; load++) {
        traffic.is_loaded = load == 1;
        run_chain(NULL);
        stop();
        end();
    }
}

static int teardown(void **unused)
{
    (void)unused;
    if (live.topic[0] != '\0') {
        end();
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_changes_killed_in_the_middle_under_load, teardown),
        cmocka_unit_test_teardown(test_changes_quiet_and_under_load, teardown),
    };
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    /* At reduced size the first does all that the second does, and more. */
    int code = _cmocka_run_group_tests("windows", tests, is_full_size() ? 2 : 1, NULL, NULL);
    print_message("result: %zu changes of windows, %u kills in the middle: %" PRIu64
                  " keys and PXAT compared, %" PRIu64 " non-empty, %" PRIu64 " first values\n",
                  CHANGES, kills, tally.now.compared, tally.now.non_empty, firsts);
    return code;
}
