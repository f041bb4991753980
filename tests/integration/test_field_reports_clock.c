/* B13: the wall clock of the machine steps an hour back, and an hour ahead; the daemon is killed in
 * the middle of each. The daemon is the real one but for its clock, which reads an offset from a
 * file (clock_offset.c): Kafka, Redis and this test live in the right time. */
#include "lab/lab.h"
#include "lib/draw.h"
#include "lib/fault.h"
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

#define PARTITIONS 3
#define USERS      50
#define ADS        5
#define EVENTS     1000
#define STEP_MS    3600000
/* T follows the wall clock as far as Redis TIME and this. */
#define BOUND_MS 1000
#define POLL_MS  50

static struct live live;
static struct moved_clock wall;
static uint32_t random_state = 13;
static uint64_t keys_compared; /* while the clock was wrong */
static uint64_t keys_right;    /* and after it was right again */

/* How long each step lasts: at full size the 30 s of the report. */
static int64_t phase_ms(void)
{
    return is_full_size() ? 30000 : 8000;
}

static int64_t shortest_ms(void)
{
    return live.options.lengths[0].length_ms;
}

static void start_daemon(void)
{
    const char *const environment[] = {wall.variable, NULL};
    live.process.program = FCAPD_CLOCK_PROGRAM;
    daemon_process_start(&live.process, environment);
}

static int setup(void **unused)
{
    static const struct live_window quick[] = {{"12s", 12000}, {"1m", 60000}, {NULL, 0}};
    static const struct live_window full[] = {{"1m", 60000}, {"5m", 300000}, {NULL, 0}};
    struct live_options options = {
        .partitions = PARTITIONS,
        .workers = 2,
        .windows = is_full_size() ? "[1m, 5m]" : "[12s, 1m]",
        .lengths = is_full_size() ? full : quick,
    };
    (void)unused;
    moved_clock_open(&wall, "fcapd-clock");
    live_init(&live, &options);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    moved_clock_close(&wall);
    return 0;
}

/* --- events ---------------------------------------------------------------------------------- */

static void send_event(unsigned user_index, int64_t time_ms)
{
    char user[32];
    char ad[32];
    (void)snprintf(user, sizeof user, "user-%u", user_index);
    (void)snprintf(ad, sizeof ad, "ad-%u", draw_below(&random_state, ADS));
    live_send(&live, user, ad, time_ms, NULL);
}

/* One event of now for each user, in the right time. */
static void send_round(void)
{
    for (unsigned i = 0; i < USERS; i++) {
        send_event(i, lab_wall_ms() - (int64_t)draw_below(&random_state, 20));
    }
    live_flush(&live);
}

/* --- what the daemon says -------------------------------------------------------------------- */

/* T of each partition, as fc:meta says it, once two reports have had their time. */
static void read_clocks(int64_t *ret_as_of_ms)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    live_await_claims(&live);
    (void)live_claims(&live, next, ret_as_of_ms);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        assert_true(next[i] >= 0);
    }
}

static int64_t number_of(const char *at, const char *name)
{
    const char *found = at == NULL ? NULL : strstr(at, name);
    return found == NULL ? -1 : strtoll(found + strlen(name), NULL, 10);
}

/* Waits until everything read has been committed, and with it the T of now. */
static void await_committed(void)
{
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    for (int done = 0; done < PARTITIONS;) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(POLL_MS);
        (void)daemon_process_get(&live.process, "/status", NULL);
        done = 0;
        for (int32_t i = 0; i < PARTITIONS; i++) {
            char name[32];
            (void)snprintf(name, sizeof name, "\"partition\":%d,", i);
            const char *at = strstr(live.process.text, name);
            int64_t next = number_of(at, "\"next\":");
            done += next == live.read[i] && number_of(at, "\"committed\":") == next;
        }
    }
}

static void assert_says_clock(void)
{
    live_await_claims(&live);
    const char *meta = redis_server_ask(&live.redis, "GET fc:meta:test:one");
    int64_t off_ms = lab_wall_ms() - number_of(meta, "\"at\":");
    if (meta == NULL || off_ms < -BOUND_MS || off_ms > STEP_MS / 2) {
        fail_msg("fc:meta was written %" PRId64 " ms ago: %s", off_ms, meta);
    }
    assert_int_equal(daemon_process_get(&live.process, "/readyz", NULL), 503);
    if (strstr(live.process.text, "the wall clock is") == NULL) {
        fail_msg("/readyz does not name the clock: %s", live.process.text);
    }
    assert_int_equal(daemon_process_get(&live.process, "/livez", NULL), 200);
}

/* Waits until /readyz names the clock and fc:meta has come twice since: what it says then was said
 * in the step's time. */
static void await_step(void)
{
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    int64_t since_ms = INT64_MAX;
    for (int reports = 0; reports < 2;) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(POLL_MS);
        (void)daemon_process_get(&live.process, "/readyz", NULL);
        int64_t at_ms = number_of(redis_server_ask(&live.redis, "GET fc:meta:test:one"), "\"at\":");
        if (since_ms == INT64_MAX && strstr(live.process.text, "the wall clock is") != NULL) {
            since_ms = at_ms;
        }
        if (at_ms > since_ms) {
            since_ms = at_ms;
            reports++;
        }
    }
}

static void kill_and_restart(void)
{
    daemon_process_signal(&live.process, SIGKILL);
    assert_int_equal(daemon_process_wait(&live.process, LIVE_STOP_MS), 128 + SIGKILL);
    (void)redis_server_ask(&live.redis,
                           "DEL fc:meta:test:one"); /* What it said is not the new's. */
    start_daemon();
    live_await_claims(&live);
    assert_says_clock();
}

/* --- comparing ------------------------------------------------------------------------------- */

/* Between which moments T of a partition lies. */
struct span {
    int64_t from_ms;
    int64_t to_ms;
};

static uint64_t sum_of_counts(const char *user, int64_t window_ms, int64_t at_ms)
{
    uint64_t sum = 0;
    struct oracle_counts counts = {0};
    struct oracle_query query = {.user = user, .window_ms = window_ms, .at_ms = at_ms};
    oracle_query(live.oracle, &query, &counts);
    for (size_t i = 0; i < counts.count; i++) {
        sum += counts.rows[i].count;
    }
    oracle_counts_done(&counts);
    return sum;
}

/* One key: the definition at T, or gone because the time of its newest event has passed, by Redis'
 * own clock. */
static void compare_key(const char *user, size_t window, struct span span,
                        struct oracle_tally *tally)
{
    const struct live_window *length = &live.options.lengths[window];
    struct oracle_query query = {.user = user, .window_ms = length->length_ms};
    int64_t newest_ms = 0;
    int64_t pxat_ms =
        number_of(redis_server_ask(&live.redis, "PEXPIRETIME fc:{%s}:%s", user, length->name), "");
    const char *value = redis_server_ask(&live.redis, "GET fc:{%s}:%s", user, length->name);
    assert_true(oracle_newest(live.oracle, &query, &newest_ms));
    bool has_passed = newest_ms + length->length_ms - 1 < lab_wall_ms();
    if (value == NULL && has_passed) {
        tally->compared++;
        tally->absent++;
        return;
    }
    struct oracle_expectation expectation = {
        .user = user,
        .window_ms = length->length_ms,
        .at_min_ms = span.from_ms,
        .at_max_ms = span.to_ms,
    };
    (void)oracle_check_value(live.oracle, &expectation, value, value == NULL ? 0 : strlen(value),
                             tally);
    if (value != NULL && pxat_ms > 0) {
        (void)oracle_check_expiry(live.oracle, &query, pxat_ms, tally);
    }
}

/* Everything that was sent is applied. T stands at `held_ms`; or (NULL) it moves with Redis TIME,
 * ahead of it by no more than it may: an hour later no key would have counts. */
static void compare_all(const int64_t *held_ms)
{
    struct oracle_tally tally = {0};
    live_await_applied(&live);
    for (size_t i = 0; i < oracle_user_count(live.oracle); i++) {
        const char *user = oracle_user(live.oracle, i);
        for (size_t k = 0; k < live.window_count; k++) {
            int64_t now_ms = lab_wall_ms();
            struct span span = {now_ms - LIVE_LAG_MS, now_ms + BOUND_MS + POLL_MS};
            if (held_ms != NULL) {
                int64_t at_ms = held_ms[live_partition(&live, user)];
                span = (struct span){at_ms, at_ms};
            }
            compare_key(user, k, span, &tally);
        }
    }
    live_passes(&tally, (struct oracle_minimum){2 * USERS, USERS, 0});
    keys_compared += tally.compared;
}

/* How many events have left the shortest window since T was held, if time went on: what a clock
 * that followed the step would have lost, and what must not leave early. */
static uint64_t due_since(const int64_t *held_ms)
{
    uint64_t due = 0;
    int64_t now_ms = lab_wall_ms();
    for (size_t i = 0; i < oracle_user_count(live.oracle); i++) {
        const char *user = oracle_user(live.oracle, i);
        due += sum_of_counts(user, shortest_ms(), held_ms[live_partition(&live, user)]) -
               sum_of_counts(user, shortest_ms(), now_ms);
    }
    return due;
}

static void compare_in_right_time(void)
{
    struct live_tally tally = {0};
    daemon_process_await(&live.process, "/readyz", 200, LIVE_WAIT_MS);
    send_round();
    live_await_applied(&live);
    lab_pause_ms(BOUND_MS); /* A value may be as of a second ahead until then. */
    live.claim_count = 0;   /* They are of another run. */
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){2 * USERS, USERS, 0});
    live_passes(&tally.as_of, (struct oracle_minimum){USERS, USERS, 0});
    live_passes(&tally.expiry, (struct oracle_minimum){USERS, USERS, 0});
    keys_right += tally.now.compared + tally.as_of.compared + tally.expiry.compared;
}

/* --- the steps ------------------------------------------------------------------------------- */

static void assert_held(const int64_t *held_ms)
{
    int64_t now_ms[LIVE_PARTITIONS_MAX];
    read_clocks(now_ms);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        if (now_ms[i] != held_ms[i]) {
            fail_msg("partition %d: T moved from %" PRId64 " by %" PRId64 " ms", i, held_ms[i],
                     now_ms[i] - held_ms[i]);
        }
    }
}

static void an_hour_back(void)
{
    int64_t held_ms[LIVE_PARTITIONS_MAX];
    int64_t begun_ms = lab_monotonic_ms();
    moved_clock_set(&wall, -STEP_MS);
    int64_t stepped_ms = lab_wall_ms();
    await_step();
    read_clocks(held_ms);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        assert_in_range(held_ms[i], stepped_ms - LIVE_LAG_MS, stepped_ms);
    }
    assert_says_clock();
    send_round(); /* Of now, which that clock calls the future. */
    compare_all(held_ms);
    assert_held(held_ms);

    await_committed();
    kill_and_restart();
    send_round();
    compare_all(held_ms);
    while (lab_monotonic_ms() - begun_ms < phase_ms()) {
        send_round();
        lab_pause_ms(1000);
    }
    compare_all(held_ms);
    assert_held(held_ms);
    assert_says_clock();
    print_message("back: T held; %" PRIu64 " events were due meanwhile\n", due_since(held_ms));
    assert_true(due_since(held_ms) > EVENTS / 10);
    moved_clock_set(&wall, 0);
}

/* T goes on with Redis TIME. */
static void assert_bounded(void)
{
    int64_t now_ms[LIVE_PARTITIONS_MAX];
    int64_t before_ms = lab_wall_ms();
    read_clocks(now_ms);
    int64_t after_ms = lab_wall_ms();
    for (int32_t i = 0; i < PARTITIONS; i++) {
        if (now_ms[i] > after_ms + BOUND_MS || now_ms[i] < before_ms - LIVE_LAG_MS) {
            fail_msg("partition %d: T is %" PRId64 " ms ahead of Redis TIME", i,
                     now_ms[i] - after_ms);
        }
    }
}

static void an_hour_ahead(void)
{
    int64_t begun_ms = lab_monotonic_ms();
    moved_clock_set(&wall, STEP_MS);
    send_round();
    await_step();
    assert_says_clock();
    assert_bounded();
    send_round();
    compare_all(NULL);

    kill_and_restart();
    assert_bounded();
    send_round();
    compare_all(NULL);
    while (lab_monotonic_ms() - begun_ms < phase_ms()) {
        send_round();
        assert_bounded();
        lab_pause_ms(1000);
    }
    send_round();
    compare_all(NULL);
    assert_says_clock();
    moved_clock_set(&wall, 0);
}

static void test_B13_the_wall_clock_steps_an_hour_back_and_an_hour_ahead(void **unused)
{
    (void)unused;
    start_daemon();
    daemon_process_await(&live.process, "/readyz", 200, LIVE_START_MS);
    live_await_claims(&live);
    for (unsigned i = 0; i < EVENTS; i++) {
        send_event(draw_below(&random_state, USERS),
                   lab_wall_ms() -
                       (int64_t)draw_below(&random_state, (uint32_t)shortest_ms() * 3 / 4));
    }
    compare_in_right_time();
    an_hour_back();
    compare_in_right_time();
    an_hour_ahead();
    compare_in_right_time();
    live_check_letters(&live, true); /* There is none. */
    assert_true(daemon_process_metric(&live.process, "fcapd_underflows_total") == 0);
    live_stop(&live);
    fault_is_proved(&(const struct fault){
        .id = "clock-back",
        .fault = "the wall clock steps back by an hour, also over a kill -9",
        .sees = "`/readyz` 503: `the wall clock is N ms off Redis TIME`, `/livez` 200",
        .lost = "nothing: counts are exact at the clock of each value, which waits; nothing counts "
                "twice",
        .recovers = "by itself when the clock is right",
    });
    fault_is_proved(&(const struct fault){
        .id = "clock-ahead",
        .fault = "the wall clock leaps ahead by an hour, also over a kill -9",
        .sees = "`/readyz` 503: `the wall clock is N ms off Redis TIME`, `/livez` 200",
        .lost = "nothing: nothing expires before Redis TIME + 1 s says so",
        .recovers = "by itself when the clock is right",
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_B13_the_wall_clock_steps_an_hour_back_and_an_hour_ahead, setup, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("result: steps of an hour, a kill -9 in each: %" PRIu64
                  " keys and PXAT compared meanwhile, %" PRIu64 " in the right time\n",
                  keys_compared, keys_right);
    return code;
}
