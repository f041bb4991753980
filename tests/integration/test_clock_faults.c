/* Clocks of producers that are wrong, and time in which nothing comes, on a real broker and a real
 * Redis: ahead within the skew limit and beyond it, a user's events out of order by the longest
 * window, a record of a far future, a partition that is silent for longer than a window and then
 * has a burst; and what a replay of all that makes of it when the broker stamps the records. Steps
 * of the daemon's own clock: test_field_reports_clock.c; any of it by chance: the simulator. */
#include "lab/lab.h"
#include "live.h"

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
#define USERS      30
#define SKEW_MS    1500
#define SHORT_MS   2000
#define LONG_MS    5000
#define BURST      2000
#define POLL_MS    20

static const struct live_window windows[] = {{"2s", SHORT_MS}, {"5s", LONG_MS}, {NULL, 0}};
static const struct live_window replay_windows[] = {{"2s", SHORT_MS}, {"1m", 60000}, {NULL, 0}};

static struct live live;
static uint32_t random_state = 7;
static uint64_t compared;

static uint32_t draw(uint32_t bound)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(random_state >> 8) * bound >> 24);
}

static void init(const char *timestamps, bool is_replay)
{
    const struct live_options options = {
        .partitions = PARTITIONS,
        .workers = 1,
        .windows = is_replay ? "[2s, 1m]" : "[2s, 5s]",
        .lengths = is_replay ? replay_windows : windows,
        .topic_config = {"message.timestamp.type", timestamps, NULL},
        .more = "limits:\n  max_future_skew: 1500ms\n",
    };
    live_init(&live, &options);
    live_start(&live);
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    return 0;
}

/* --- records --------------------------------------------------------------------------------- */

static void send_event(unsigned user_index, int64_t time_ms)
{
    char user[16];
    char ad[16];
    (void)snprintf(user, sizeof user, "user-%u", user_index);
    (void)snprintf(ad, sizeof ad, "ad-%u", draw(4));
    live_send(&live, user, ad, time_ms, NULL);
}

/* One that must not count, now or ever. */
static void send_future(unsigned user_index, int64_t time_ms)
{
    char user[16];
    char value[128];
    (void)snprintf(user, sizeof user, "user-%u", user_index);
    (void)snprintf(value, sizeof value,
                   "{\"user_id\":\"%s\",\"ad_id\":\"ad-9\",\"ts\":%" PRId64 "}", user, time_ms);
    live_send_text(&live, user, value, "dead future");
}

static void send_round(void)
{
    for (unsigned i = 0; i < USERS; i++) {
        send_event(i, lab_wall_ms() - draw(1000));
    }
}

/* --- comparing ------------------------------------------------------------------------------- */

/* Every key and PXAT, absent ones too: it equals the definition, which knows nothing of clocks. */
static void compare(uint64_t non_empty)
{
    struct live_tally tally = {0};
    live_await_applied(&live);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){1, non_empty, 0});
    live_passes(&tally.as_of, (struct oracle_minimum){0});
    live_passes(&tally.expiry, (struct oracle_minimum){0});
    compared += tally.now.compared + tally.as_of.compared + tally.expiry.compared;
}

/* T of each partition is now, whatever the records say. */
static void check_clocks(void)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    live_await_claims(&live);
    int64_t now_ms = lab_wall_ms();
    assert_true(live_claims(&live, next, as_of_ms));
    for (int i = 0; i < PARTITIONS; i++) {
        if (as_of_ms[i] < now_ms - LIVE_LAG_MS || as_of_ms[i] > now_ms + 1000) {
            fail_msg("partition %d: T is %" PRId64 " ms after now", i, as_of_ms[i] - now_ms);
        }
    }
}

static double refused(void)
{
    assert_int_equal(daemon_process_get(&live.process, "/metrics", NULL), 200);
    return daemon_process_sample(&live.process, "fcapd_records_rejected_total",
                                 "reason=\"future\"");
}

/* --- the faults ------------------------------------------------------------------------------ */

/* Within the skew an event counts at once, and until its own time is over. */
static void ahead_within_the_skew(void)
{
    int64_t time_ms = lab_wall_ms() + SKEW_MS - 300;
    send_round();
    send_event(1, time_ms);
    compare(USERS);
    const char *value = redis_server_ask(&live.redis, "GET fc:{user-1}:2s");
    int64_t pxat_ms =
        strtoll(redis_server_ask(&live.redis, "PEXPIRETIME fc:{user-1}:2s"), NULL, 10);
    assert_non_null(value);
    assert_int_equal(pxat_ms, time_ms + SHORT_MS - 1);
}

/* Beyond it none counts, however far: no other value changes, and nothing expires. */
static void ahead_beyond_the_skew(void)
{
    static const int64_t far_ms[] = {253402300799999, 4102444800000};
    double before = refused();
    send_round();
    for (unsigned i = 0; i < USERS; i++) {
        send_future(i, lab_wall_ms() + SKEW_MS + 4000 + draw(3600000));
    }
    for (size_t i = 0; i < sizeof far_ms / sizeof far_ms[0]; i++) {
        send_future((unsigned)i, far_ms[i]);
    }
    compare(USERS);
    check_clocks();
    assert_true(refused() - (before < 0 ? 0 : before) == USERS + 2);
}

/* Oldest last, across the whole of the longest window and beyond its edge. */
static void out_of_order(void)
{
    int64_t now_ms = lab_wall_ms();
    for (int64_t age_ms = -1000; age_ms < LONG_MS + 500; age_ms += 50) {
        send_event(2, now_ms - age_ms);
    }
    for (unsigned i = 0; i < 200; i++) {
        send_event(3, now_ms - draw(LONG_MS + 500));
    }
    compare(2);
    lab_pause_ms(SHORT_MS / 2); /* Some have left meanwhile. */
    compare(2);
}

/* Its keys go by themselves, its clock goes on, and the burst counts. */
static void silent_then_a_burst(void)
{
    int32_t silent = live_partition(&live, "user-0");
    int64_t until_ms = lab_monotonic_ms() + LONG_MS + SKEW_MS + 500;
    while (lab_monotonic_ms() < until_ms) {
        for (unsigned i = 0; i < USERS; i++) {
            char user[16];
            (void)snprintf(user, sizeof user, "user-%u", i);
            if (live_partition(&live, user) != silent) {
                send_event(i, lab_wall_ms());
            }
        }
        lab_pause_ms(200);
    }
    compare(1);
    check_clocks();
    for (unsigned i = 0; i < USERS; i++) {
        char user[16];
        (void)snprintf(user, sizeof user, "user-%u", i);
        if (live_partition(&live, user) == silent) {
            assert_null(redis_server_ask(&live.redis, "GET fc:{%s}:5s", user));
        }
    }
    for (unsigned i = 0; i < BURST; i++) {
        send_event(draw(2) == 0 ? 0 : draw(USERS), lab_wall_ms() - draw(LONG_MS));
    }
    live_flush(&live);
    compare(USERS);
    check_clocks();
}

static void test_faults_of_producers_clocks(void **unused)
{
    (void)unused;
    init("CreateTime", false);
    ahead_within_the_skew();
    ahead_beyond_the_skew();
    out_of_order();
    silent_then_a_burst();
    live_check_letters(&live, true);
    assert_true(daemon_process_metric(&live.process, "fcapd_underflows_total") == 0);
    live_stop(&live);
}

/* With LogAppendTime what was refused when it came is refused for ever, also by a replay that finds
 * its time in the past; Redis and state are gone meanwhile. */
static void test_a_replay_judges_as_live_did(void **unused)
{
    (void)unused;
    init("LogAppendTime", true);
    send_round();
    for (unsigned i = 0; i < USERS; i++) {
        send_future(i, lab_wall_ms() + SKEW_MS + 2500);
        send_event(i, lab_wall_ms() + SKEW_MS - 1000);
    }
    compare(USERS);
    int64_t sent_ms = lab_wall_ms();
    live_check_letters(&live, true);
    live_stop(&live);
    char state[96];
    (void)snprintf(state, sizeof state, "%s/state", live.process.directory);
    lab_folder_remove(state);
    (void)redis_server_ask(&live.redis, "FLUSHALL");
    while (lab_wall_ms() < sent_ms + 2500 + 200) {
        lab_pause_ms(POLL_MS); /* Until their times, without the skew, are past. */
    }
    live.claim_count = 0; /* Of another run. */
    live_start(&live);
    assert_true(refused() == USERS);
    compare(USERS);
    live_check_letters(&live, false);
    live_stop(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_faults_of_producers_clocks, teardown),
        cmocka_unit_test_teardown(test_a_replay_judges_as_live_did, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    int code = cmocka_run_group_tests_name("clock_faults", tests, NULL, NULL);
    print_message("result: producers' clocks ahead, out of order, far ahead, silent: %" PRIu64
                  " keys and PXAT compared\n",
                  compared);
    return code;
}
