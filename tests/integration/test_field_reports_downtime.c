/* Field report B14: the daemon was away for 70 minutes, and comes back to slow storage: each slice
 * of its clock's way takes long. It says that it lives and how far it is, is killed in the middle,
 * and ends equal to the definition. The 70 minutes pass in the daemon's wall clock alone, which
 * lags behind before the stop (clock_offset.c); the delay is in fcapd-points. */
#include "lab/lab.h"
#include "lib/draw.h"
#include "lib/full_size.h"
#include "live.h"
#include "moved_clock.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PARTITIONS 2
#define MINUTE_MS  INT64_C(60000)
#define AWAY_MS    (70 * MINUTE_MS)
#define ADS        5

static const struct live_window windows[] = {
    {"1m", MINUTE_MS}, {"1h", 60 * MINUTE_MS}, {"3h", 180 * MINUTE_MS}, {NULL, 0}};

static struct live live;
static struct moved_clock wall;
static char delay_variable[64];
static uint32_t random_state = 14;

static void make_clock(void)
{
    moved_clock_open(&wall, "fcapd-downtime");
    /* The report's 50 ms, or what CI has time for: 4,200 slices each. */
    (void)snprintf(delay_variable, sizeof delay_variable, "FCAP_DELAY_AT=expire_slice:%d",
                   is_full_size() ? 50 : 1);
}

static int setup(void **unused)
{
    static const struct live_options options = {
        .partitions = PARTITIONS,
        .workers = 2,
        .windows = "[1m, 1h, 3h]",
        .lengths = windows,
        .more = "shutdown:\n  deadline: 20s\n", /* It stops with all users' values to write. */
    };
    (void)unused;
    make_clock();
    live_init(&live, &options);
    live.process.program = FCAPD_POINTS_PROGRAM;
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    moved_clock_close(&wall);
    return 0;
}

static void start_daemon(bool is_slow)
{
    const char *const environment[] = {wall.variable, is_slow ? delay_variable : NULL, NULL};
    daemon_process_start(&live.process, environment);
}

/* An event for each of `count` users, at some moment of the span. */
static void send_events(unsigned count, unsigned users, int64_t from_ms, int64_t to_ms)
{
    for (unsigned i = 0; i < count; i++) {
        char user[32];
        char ad[32];
        (void)snprintf(user, sizeof user, "user-%u",
                       count == users ? i : draw_below(&random_state, users));
        (void)snprintf(ad, sizeof ad, "ad-%u", draw_below(&random_state, ADS));
        live_send(&live, user, ad,
                  from_ms + (int64_t)draw_below(&random_state, (uint32_t)(to_ms - from_ms)), NULL);
    }
    live_flush(&live);
}

/* The distance between a partition's clock and the wall clock that /readyz tells while its gate is
 * closed; -1: it tells none. */
static int64_t told_behind_ms(int32_t partition)
{
    char gate[64];
    (void)snprintf(gate, sizeof gate, "partition %d: the gate to Redis is closed: ", partition);
    const char *at = strstr(live.process.text, gate);
    const char *clock = at == NULL ? NULL : strstr(at, ", clock ");
    const char *end = at == NULL ? NULL : strchr(at, ')');
    bool is_told =
        clock != NULL && end != NULL && clock < end && strstr(clock, " ms behind)") != NULL;
    return is_told ? strtoll(clock + 8, NULL, 10) : -1;
}

/* What a partition has told last, and when it was asked. */
struct told {
    int64_t behind_ms;
    int64_t asked_ms; /* 0: never */
};

/* Takes what was told; true when the clock has come closer. */
static bool has_moved(struct told *told, int64_t behind_ms, int64_t asked_ms)
{
    bool is_first = told->asked_ms == 0;
    if (!is_first) {
        /* Between two slices the wall clock runs on; what is told is some steps old. */
        assert_in_range(behind_ms, 0,
                        told->behind_ms + lab_monotonic_ms() - told->asked_ms + 10 * 1000);
    }
    bool is_closer = !is_first && behind_ms < told->behind_ms;
    *told = (struct told){behind_ms, asked_ms};
    return is_closer;
}

/* Probes until no partition is more behind than that, or (-1) until it is ready. Gives how often
 * /readyz told a shorter distance. */
static unsigned probe(int64_t until_behind_ms)
{
    int64_t deadline_ms = lab_monotonic_ms() + (is_full_size() ? 15 * MINUTE_MS : 2 * MINUTE_MS);
    struct told told[PARTITIONS] = {{0}};
    bool is_up = false;
    unsigned moves = 0;
    for (;;) {
        int64_t asked_ms = lab_monotonic_ms();
        int64_t most_ms = -1;
        assert_true(asked_ms < deadline_ms);
        int live_status = daemon_process_get(&live.process, "/livez", NULL);
        if (live_status == 0 && !is_up) {
            lab_pause_ms(50); /* It does not listen yet. */
            continue;
        }
        is_up = true;
        if (live_status != 200) {
            fail_msg("/livez: %d %s", live_status, live.process.text);
        }
        int status = daemon_process_get(&live.process, "/readyz", NULL);
        if (status == 200) {
            assert_true(until_behind_ms < 0);
            return moves;
        }
        assert_int_equal(status, 503);
        for (int32_t i = 0; i < PARTITIONS; i++) {
            int64_t behind_ms = told_behind_ms(i);
            moves += behind_ms >= 0 && has_moved(&told[i], behind_ms, asked_ms);
            most_ms = behind_ms > most_ms ? behind_ms : most_ms;
        }
        if (most_ms >= 0 && most_ms <= until_behind_ms) {
            return moves;
        }
        lab_pause_ms(is_full_size() ? 1000 : 100);
    }
}

/* Everything that was read while the gate was closed is in Redis: the projection after that is
 * paced. */
static void await_projected(void)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    for (int ready = 0; ready < PARTITIONS;) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(100);
        ready = 0;
        for (int i = 0; i < PARTITIONS && live_claims(&live, next, as_of_ms); i++) {
            ready += next[i] == live.read[i] && live.last[i].is_ready;
        }
    }
}

/* Keys whose time passed while the daemon was away. */
static char **dead_keys;
static size_t dead_count;

static void find_dead_keys(int64_t now_ms)
{
    dead_keys = calloc(oracle_user_count(live.oracle) * live.window_count + 1, sizeof *dead_keys);
    assert_non_null(dead_keys);
    for (size_t i = 0; i < oracle_user_count(live.oracle); i++) {
        const char *user = oracle_user(live.oracle, i);
        for (size_t k = 0; k < live.window_count; k++) {
            struct oracle_query query = {.user = user, .window_ms = windows[k].length_ms};
            int64_t newest_ms = 0;
            if (oracle_newest(live.oracle, &query, &newest_ms) &&
                newest_ms + windows[k].length_ms - 1 < now_ms) {
                assert_true(
                    asprintf(&dead_keys[dead_count++], "fc:{%s}:%s", user, windows[k].name) > 0);
            }
        }
    }
}

static void none_was_written_again(void)
{
    for (size_t i = 0; i < dead_count; i++) {
        const char *pxat = redis_server_ask(&live.redis, "PEXPIRETIME %s", dead_keys[i]);
        if (pxat == NULL || strtoll(pxat, NULL, 10) != -2) {
            fail_msg("%s is there again: %s", dead_keys[i], pxat == NULL ? "?" : pxat);
        }
        free(dead_keys[i]);
    }
    free(dead_keys);
    dead_keys = NULL;
    dead_count = 0;
}

static double metric_of(const char *name)
{
    return daemon_process_metric(&live.process, name);
}

/* How often a gate was about to open, in all partitions and processes. */
static unsigned epochs(void)
{
    unsigned sum = 0;
    for (int32_t i = 0; i < PARTITIONS; i++) {
        const char *epoch = redis_server_ask(&live.redis, "GET fc:epoch:test:%d", i);
        sum += epoch == NULL ? 0 : (unsigned)strtoul(epoch, NULL, 10);
    }
    return sum;
}

static void test_B14_back_after_70_minutes_on_slow_storage(void **unused)
{
    const unsigned users = is_full_size() ? 100000 : 2000;
    const unsigned more = is_full_size() ? 5000 : 500;
    struct live_tally tally = {0};
    (void)unused;
    moved_clock_set(&wall, -AWAY_MS);
    start_daemon(false);
    int64_t then_ms = lab_wall_ms() - AWAY_MS;
    send_events(users, users, then_ms - 50 * MINUTE_MS, then_ms);
    live_await_applied(&live);
    live_stop(&live);
    moved_clock_set(&wall, 0);
    send_events(more, users, then_ms, lab_wall_ms());
    live_read(&live);
    find_dead_keys(lab_wall_ms());
    assert_true(dead_count > users);

    start_daemon(true);
    assert_true(probe(AWAY_MS / 2) > 3); /* It moves, and an operator sees it. */
    daemon_process_signal(&live.process, SIGKILL);
    assert_int_equal(daemon_process_wait(&live.process, LIVE_STOP_MS), 128 + SIGKILL);
    unsigned epochs_before = epochs();
    start_daemon(true);
    assert_true(probe(-1) > 3);
    live_await_applied(&live);
    await_projected();
    live.claim_count = 0; /* They are of another run. */
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){users, users / 2, 0});
    live_passes(&tally.expiry, (struct oracle_minimum){users / 2, 1, 0});
    none_was_written_again();
    /* A SET in the past leaves no key: so none was sent. Each projection of a partition shows each
     * of its keys once; of a gate that opens there may be two, the second when an old owner can
     * have written no more. */
    double sets = metric_of("fcapd_pushes_set_total");
    unsigned projections = (unsigned)metric_of("fcapd_full_projections_total");
    unsigned rounds = (projections + PARTITIONS - 1) / PARTITIONS;
    if (projections < PARTITIONS || projections > 2 * (epochs() - epochs_before)) {
        fail_msg("%u complete projections, %u epochs:\n%s", projections, epochs() - epochs_before,
                 daemon_process_log(&live.process));
    }
    assert_true(sets > 0 && sets <= (double)rounds * (double)live_key_count(&live) + more);
    /* The group saw nothing of it. */
    assert_true(metric_of("fcapd_kafka_partitions_lost_total") == 0);
    assert_int_equal(daemon_process_get(&live.process, "/livez", NULL), 200);
    live_stop(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_B14_back_after_70_minutes_on_slow_storage, setup,
                                        teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
