/* Windows change on existing state, one restart after the other, on a real broker and a real Redis:
 * a shorter one is added, one is removed, one renamed, the longest lengthened, at once by
 * --replay-from-kafka or in its time. Impressions come meanwhile, the daemon is killed with kill -9
 * at a named point of each change (fcap/point.h), and every key is compared with the definition.
 *
 * FCAP_TEST_FULL=1: each change quiet, under load, and killed at each of its points. */
#include "lab/lab.h"
#include "live.h"

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
#define USERS      50
#define ADS        5
#define RATE       250   /* events a second, under load */
#define LATE_MS    28000 /* the oldest events that are sent: some come too late for everything */
#define TICK_MS    10
#define NOWHERE    FCAP_POINT_COUNT
#define POINTS_MAX 5

static const char *const point_names[] = {
#define X(name, phase, lead, passes, text) #name,
    FCAP_POINT_LIST(X)
#undef X
};

static struct live live;
static uint32_t random_state = 6;
static double owed;
static int64_t ticked_ms;
static bool is_loaded;
static struct live_tally tally;
static unsigned kills;
static char stop_at[64];
static char stop_file[128];

static uint32_t draw(uint32_t bound)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(random_state >> 8) * bound >> 24);
}

static bool is_full(void)
{
    const char *full = getenv("FCAP_TEST_FULL");
    return full != NULL && strcmp(full, "1") == 0;
}

/* --- traffic --------------------------------------------------------------------------------- */

/* Mostly of now, often late; now and then a tombstone. */
static void send_one(void)
{
    char user[16];
    char ad[16];
    uint32_t kind = draw(100);
    (void)snprintf(user, sizeof user, "user-%u", draw(USERS));
    (void)snprintf(ad, sizeof ad, "ad-%u", draw(ADS));
    if (kind == 0 && draw(4) == 0) {
        live_send_tombstone(&live, user);
    } else {
        live_send(&live, user, ad, lab_wall_ms() - (kind < 50 ? draw(50) : draw(LATE_MS)), NULL);
    }
}

static void tick(void)
{
    int64_t now_ms = lab_monotonic_ms();
    int64_t passed_ms = now_ms - ticked_ms;
    ticked_ms = now_ms;
    owed += is_loaded ? (double)(passed_ms > 500 ? 500 : passed_ms) * RATE / 1000 : 0;
    for (; owed >= 1; owed--) {
        send_one();
    }
    lab_pause_ms(TICK_MS);
}

static void go_on(int64_t ms)
{
    int64_t until_ms = lab_monotonic_ms() + ms;
    while (lab_monotonic_ms() < until_ms) {
        tick();
    }
}

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
        tick();
    }
    if (!WIFSTOPPED(status)) {
        live.process.pid = 0;
        fail_msg("ended (%x) before %s:\n%s", (unsigned)status, stop_at,
                 daemon_process_log(&live.process));
    }
    assert_int_equal(access(strchr(stop_file, '=') + 1, F_OK), 0);
    go_on(100);
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
        tick();
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
        tick();
        (void)live_claims(&live, next, as_of_ms);
        ready = 0;
        for (int i = 0; i < PARTITIONS; i++) {
            ready += next[i] >= 0 && live.last[i].is_ready;
        }
    }
}

/* --- comparing ------------------------------------------------------------------------------- */

static void passes(struct live_tally *now, uint64_t non_empty)
{
    live_passes(&now->now, (struct oracle_minimum){USERS, non_empty, 0});
    live_passes(&now->as_of, (struct oracle_minimum){0, non_empty, 0});
    tally.now.compared += now->now.compared + now->as_of.compared + now->expiry.compared;
    tally.now.non_empty += now->now.non_empty;
}

/* At rest every key, absent ones and expiries too. Under load, each at some prefix of the topic
 * first. */
static void compare(void)
{
    struct live_tally now = {0};
    if (is_loaded) {
        live_compare(&live, false, &now);
        passes(&now, USERS / 2);
    }
    now = (struct live_tally){0};
    live_await_applied(&live);
    live_compare(&live, true, &now);
    passes(&now, USERS / 2);
    live_passes(&now.expiry, (struct oracle_minimum){USERS / 2, 0, 0});
    ticked_ms = lab_monotonic_ms(); /* Nothing was sent meanwhile. */
}

static size_t count_keys(const char *window, int64_t *ret_last_ms)
{
    size_t count = 0;
    *ret_last_ms = 0;
    for (unsigned i = 0; i < USERS; i++) {
        const char *text = redis_server_ask(&live.redis, "PEXPIRETIME fc:{user-%u}:%s", i, window);
        int64_t pxat_ms = text == NULL ? -2 : strtoll(text, NULL, 10);
        assert_true(pxat_ms != -1); /* None without an end. */
        count += pxat_ms > 0;
        *ret_last_ms = pxat_ms > *ret_last_ms ? pxat_ms : *ret_last_ms;
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
    const char *waits_for;              /* a window that is held back at first; NULL: none */
    const struct live_window *ready;    /* the windows once it is ready */
};

#define POINT(name) FCAP_POINT_AT_##name

static const struct live_window two[] = {{"5s", 5000}, {"9s", 9000}, {NULL, 0}};
static const struct live_window shorter[] = {{"2s", 2000}, {"5s", 5000}, {"9s", 9000}, {NULL, 0}};
static const struct live_window renamed[] = {{"2s", 2000}, {"nine", 9000}, {NULL, 0}};
static const struct live_window longer[] = {
    {"2s", 2000}, {"nine", 9000}, {"15s", 15000}, {NULL, 0}};
static const struct live_window longest[] = {
    {"2s", 2000}, {"nine", 9000}, {"15s", 15000}, {"24s", 24000}, {NULL, 0}};
static const struct live_window of_before[] = {{"5s", 5000}, {"9s", 9000}, {NULL, 0}};

#define NINE "{name: nine, length: 9s}"

static const struct change changes[] = {
    {.name = "a shorter window is added",
     .live = {.windows = "[2s, 5s, 9s]", .lengths = shorter},
     .points = {POINT(window_building), POINT(window_built), POINT(full_acked), NOWHERE}},
    {.name = "one is removed, one renamed",
     .live = {.windows = "[2s, " NINE "]", .lengths = renamed, .gone = of_before},
     .points = {POINT(full_queued), POINT(task_loaded), POINT(gate_opened), NOWHERE}},
    {.name = "the longest is lengthened, in its time",
     .live = {.windows = "[2s, " NINE ", 15s]", .lengths = renamed, .gone = of_before},
     .points = {POINT(task_loaded), POINT(expire_moved), POINT(gate_opened), NOWHERE},
     .waits_for = "15s",
     .ready = longer},
    {.name = "it is lengthened, from Kafka",
     .live = {.windows = "[2s, " NINE ", 15s, 24s]", .lengths = longest, .gone = of_before},
     .argument = "--replay-from-kafka",
     .points = {POINT(commit_written), POINT(replay_begun), POINT(replay_judged),
                POINT(gate_opening), NOWHERE}},
};
#define CHANGES (sizeof changes / sizeof changes[0])

static void wait_for_window(const struct change *change)
{
    int64_t last_ms;
    assert_int_equal(count_keys(change->waits_for, &last_ms), 0); /* Held back. */
    live.options.lengths = change->ready; /* What is compared from now on. */
    live.window_count++;
    await_ready();
    compare();
}

/* Ends the life before, and those that end in the middle of the change, and compares in the last
 * one. */
static void apply(const struct change *change, enum fcap_point point, unsigned nth)
{
    if (live.process.pid != 0) {
        stop();
    }
    live_configure(&live, &change->live);
    live.process.argument = change->argument;
    if (point != NOWHERE) {
        start(point, nth);
        kill_there();
    }
    start(NOWHERE, 0);
    await_ready();
    go_on(200);
    compare();
    if (change->waits_for != NULL) {
        wait_for_window(change);
    }
    assert_int_equal((int)metric("fcapd_underflows_total"), 0);
    assert_int_equal((int)metric("fcapd_gaps_total"), 0);
    print_message("%s%s%s%s: right\n", change->name, is_loaded ? ", under load" : "",
                  point == NOWHERE ? "" : ", killed at ",
                  point == NOWHERE ? "" : point_names[point]);
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
    for (unsigned i = 0; i < RATE * 4; i++) {
        send_one();
    }
    live_flush(&live);
    ticked_ms = lab_monotonic_ms();
    live.process.argument = NULL;
    start(NOWHERE, 0);
    await_ready();
    go_on(500);
    compare();
}

/* --- what becomes of the keys of before ------------------------------------------------------ */

struct old_keys {
    const char *window;
    size_t count;
    int64_t last_ms; /* their latest PXAT */
};

static void note_old_keys(struct old_keys old[2])
{
    for (size_t i = 0; i < 2; i++) {
        old[i].window = of_before[i].name;
        old[i].count = count_keys(old[i].window, &old[i].last_ms);
    }
    assert_true(old[0].count + old[1].count > 0);
}

/* None is written any more, and each goes by itself. */
static void check_old_keys(const struct old_keys old[2])
{
    for (size_t i = 0; i < 2; i++) {
        int64_t last_ms = 0;
        size_t count = count_keys(old[i].window, &last_ms);
        assert_true(count <= old[i].count && last_ms <= old[i].last_ms);
        while (lab_wall_ms() <= old[i].last_ms + 1) {
            tick();
        }
        assert_int_equal(count_keys(old[i].window, &last_ms), 0);
    }
}

/* --- the tests ------------------------------------------------------------------------------- */

/* The chain of changes; `which`: the point of each at which it is killed; NULL: not killed. */
static void run_chain(const size_t *which)
{
    struct old_keys old[2];
    begin();
    for (size_t i = 0; i < CHANGES; i++) {
        enum fcap_point point = which == NULL ? NOWHERE : changes[i].points[which[i]];
        if (i == 1) {
            stop();
            note_old_keys(old);
        }
        apply(&changes[i], point, 1);
    }
    check_old_keys(old);
}

/* The option does nothing more; and a longer window that the topic cannot fill is refused. */
static void refuse_what_would_lose_history(void)
{
    static const struct live_window too_long[] = {{"1m", 60000}, {NULL, 0}};
    const struct live_change change = {
        .windows = "[1m]", .lengths = too_long, .gone = live.options.lengths};
    const struct live_change back = {
        .windows = "[2s, " NINE ", 15s, 24s]", .lengths = longest, .gone = of_before};
    stop();
    live.process.argument = "--replay-from-kafka";
    start(NOWHERE, 0);
    await_ready();
    compare();
    assert_int_equal((int)metric("fcapd_replays_total"), 0);
    stop();
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
    stop();
}

/* Incomplete values are shown at once, if somebody wants them. */
static void serve_incomplete(void)
{
    static const struct live_window none[] = {{"2s", 2000}, {NULL, 0}};
    const struct live_change change = {
        .windows = "[2s, 3m]", .lengths = none, .more = "windows_incomplete: serve\n"};
    int64_t last_ms;
    live_configure(&live, &change);
    live.process.argument = NULL;
    start(NOWHERE, 0);
    await_ready(); /* One window is. */
    int64_t until_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    while (count_keys("3m", &last_ms) == 0) {
        assert_true(lab_monotonic_ms() < until_ms);
        tick();
    }
    const char *meta = redis_server_ask(&live.redis, "GET fc:meta:test:one");
    assert_true(meta != NULL && strstr(meta, "\"ready\":[\"2s\"]") != NULL);
    stop();
}

static void end(void)
{
    live_done(&live);
    owed = 0;
    is_loaded = false;
}

static void test_changes_killed_in_the_middle_under_load(void **unused)
{
    size_t which[CHANGES] = {0};
    (void)unused;
    for (size_t round = 0; round < (is_full() ? POINTS_MAX : 1u); round++) {
        is_loaded = true;
        run_chain(which);
        is_loaded = false;
        refuse_what_would_lose_history();
        serve_incomplete();
        end();
        for (size_t i = 0; i < CHANGES; i++) {
            which[i] += changes[i].points[which[i] + 1] != NOWHERE;
        }
    }
}

static void test_changes_quiet_and_under_load(void **unused)
{
    (void)unused;
    for (int load = 0; load < 2; load++) {
        is_loaded = load == 1;
        run_chain(NULL);
        stop();
        end();
    }
}

static int teardown(void **unused)
{
    (void)unused;
    if (live.topic[0] != '\0') {
        live_done(&live);
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
    int code = _cmocka_run_group_tests("windows", tests, is_full() ? 2 : 1, NULL, NULL);
    print_message("result: %zu changes of windows, %u kills in the middle: %" PRIu64
                  " keys and PXAT compared, %" PRIu64 " non-empty\n",
                  CHANGES, kills, tally.now.compared, tally.now.non_empty);
    return code;
}
