/* Clocks of producers that are wrong, and time in which nothing comes, on a real broker and a real
 * Redis: ahead within the skew limit and beyond it, a user's events out of order by the longest
 * window, a record of a far future, a partition that is silent for longer than a window and then
 * has a burst; and what a replay of all that makes of it when the broker stamps the records. Steps
 * of the daemon's own clock: test_field_reports_clock.c; any of it by chance: the simulator.
 *
 * The windows are of seconds, and a machine may take longer. So the users of all partitions but the
 * silent one have events ahead of the clock, within the skew: they stay, and there is something to
 * compare however late it gets. */
#include "lab/lab.h"
#include "lib/draw.h"
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
#define SKEW_MS    120000 /* of producers whose stamps are their own */
#define STAMPED_MS 1500   /* when the broker stamps */
#define BEYOND_MS  120000 /* Whatever is so far beyond the skew is so when it is read, too. */
#define SHORT_MS   2000
#define LONG_MS    5000
#define BURST      2000
#define POLL_MS    20

static const struct live_window windows[] = {{"2s", SHORT_MS}, {"5s", LONG_MS}, {NULL, 0}};
static const struct live_window replay_windows[] = {{"2s", SHORT_MS}, {"5m", 300000}, {NULL, 0}};

static struct live live;
static uint32_t random_state = 7;
static uint64_t compared;

static void init(const char *timestamps, bool is_replay)
{
    char more[64];
    (void)snprintf(more, sizeof more, "limits:\n  max_future_skew: %dms\n",
                   is_replay ? STAMPED_MS : SKEW_MS);
    const struct live_options options = {
        .partitions = PARTITIONS,
        .workers = 1,
        .windows = is_replay ? "[2s, 5m]" : "[2s, 5s]",
        .lengths = is_replay ? replay_windows : windows,
        .topic_config = {"message.timestamp.type", timestamps, NULL},
        .more = more,
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
    (void)snprintf(ad, sizeof ad, "ad-%u", draw_below(&random_state, 4));
    live_send(&live, user, ad, time_ms, NULL);
}

/* One that comes to what `expect` says. */
static void send_future(unsigned user_index, int64_t time_ms, const char *expect)
{
    char user[16];
    char value[128];
    (void)snprintf(user, sizeof user, "user-%u", user_index);
    (void)snprintf(value, sizeof value,
                   "{\"user_id\":\"%s\",\"ad_id\":\"ad-9\",\"ts\":%" PRId64 "}", user, time_ms);
    live_send_text(&live, user, value, expect);
}

/* Of the partition that is silent at times: nothing of it is ahead of the clock. */
static bool is_silent(unsigned user_index)
{
    char user[16];
    (void)snprintf(user, sizeof user, "user-%u", user_index);
    return live_partition(&live, user) == live_partition(&live, "user-0");
}

static uint64_t count_others(void)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < USERS; i++) {
        count += !is_silent(i);
    }
    assert_in_range(count, USERS / 2, USERS - 1);
    return count;
}

static unsigned first_other(void)
{
    unsigned user_index = 0;
    while (is_silent(user_index)) {
        user_index++;
    }
    return user_index;
}

static void send_round(void)
{
    for (unsigned i = 0; i < USERS; i++) {
        send_event(i, lab_wall_ms() - draw_below(&random_state, 1000));
        if (!is_silent(i)) {
            send_event(i, lab_wall_ms() + SKEW_MS - 10000 - draw_below(&random_state, 10000));
        }
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

/* T of each partition comes to what is now, and is never ahead of the clock, whatever the records
 * say. */
static void check_clocks(void)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    int64_t begin_ms = lab_wall_ms();
    int64_t until_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    for (int there = 0; there < PARTITIONS;) {
        (void)live_claims(&live, next, as_of_ms);
        there = 0;
        for (int i = 0; i < PARTITIONS; i++) {
            int64_t ahead_ms = as_of_ms[i] - lab_wall_ms();
            if (ahead_ms > 1000 || lab_monotonic_ms() > until_ms) {
                fail_msg("partition %d: T is %" PRId64 " ms after now", i, ahead_ms);
            }
            there += as_of_ms[i] >= begin_ms;
        }
        lab_pause_ms(POLL_MS);
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
    unsigned user_index = first_other();
    int64_t time_ms = lab_wall_ms() + SKEW_MS - 300;
    send_round();
    send_event(user_index, time_ms);
    compare(2 * count_others());
    assert_non_null(redis_server_ask(&live.redis, "GET fc:{user-%u}:2s", user_index));
    const char *pxat = redis_server_ask(&live.redis, "PEXPIRETIME fc:{user-%u}:2s", user_index);
    assert_int_equal(strtoll(pxat, NULL, 10), time_ms + SHORT_MS - 1);
}

/* Beyond it none counts, however far: no other value changes, and nothing expires. */
static void ahead_beyond_the_skew(void)
{
    static const int64_t far_ms[] = {253402300799999, 4102444800000};
    double before = refused();
    send_round();
    for (unsigned i = 0; i < USERS; i++) {
        send_future(i, lab_wall_ms() + SKEW_MS + BEYOND_MS + draw_below(&random_state, 3600000),
                    "dead future");
    }
    for (size_t i = 0; i < sizeof far_ms / sizeof far_ms[0]; i++) {
        send_future((unsigned)i, far_ms[i], "dead future");
    }
    compare(2 * count_others());
    check_clocks();
    assert_true(refused() - (before < 0 ? 0 : before) == USERS + 2);
}

/* Oldest last, across the whole of the longest window and beyond its edge, wherever that is when
 * they are read. */
static void out_of_order(void)
{
    int64_t now_ms = lab_wall_ms();
    unsigned user_index = first_other();
    for (int64_t age_ms = -SKEW_MS / 2; age_ms < -1000; age_ms += 500) {
        send_event(user_index, now_ms - age_ms);
    }
    for (int64_t age_ms = -1000; age_ms < LONG_MS + 500; age_ms += 50) {
        send_event(user_index, now_ms - age_ms);
    }
    for (unsigned i = 0; i < 200; i++) {
        send_event(user_index + 1, now_ms - draw_below(&random_state, LONG_MS + 500));
    }
    compare(2);
    lab_pause_ms(SHORT_MS / 2); /* Some have left meanwhile. */
    compare(2);
}

/* Its keys go by themselves, its clock goes on, and the burst counts. */
static void silent_then_a_burst(void)
{
    int64_t until_ms = lab_monotonic_ms() + LONG_MS + 2000;
    while (lab_monotonic_ms() < until_ms) {
        for (unsigned i = 0; i < USERS; i++) {
            if (!is_silent(i)) {
                send_event(i, lab_wall_ms());
            }
        }
        lab_pause_ms(200);
    }
    compare(2 * count_others());
    check_clocks();
    for (unsigned i = 0; i < USERS; i++) {
        if (is_silent(i)) {
            assert_null(redis_server_ask(&live.redis, "GET fc:{user-%u}:5s", i));
        }
    }
    for (unsigned i = 0; i < BURST; i++) {
        send_event(draw_below(&random_state, 2) == 0 ? 0 : draw_below(&random_state, USERS),
                   lab_wall_ms() - draw_below(&random_state, LONG_MS));
    }
    send_event(0, lab_wall_ms() + SKEW_MS - 1000);
    compare(2 * count_others() + 2);
    assert_non_null(redis_server_ask(&live.redis, "GET fc:{user-0}:2s"));
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
 * its time in the past; Redis and state are gone meanwhile. Which ones the broker stamped too early
 * is read back from the topic; of those that are farthest ahead some are, on any machine. */
static void test_a_replay_judges_as_live_did(void **unused)
{
    int64_t last_ms = 0;
    (void)unused;
    init("LogAppendTime", true);
    for (unsigned i = 0; i < USERS; i++) {
        char expect[96];
        last_ms = lab_wall_ms() + STAMPED_MS + 1000 + i * 300;
        (void)snprintf(expect, sizeof expect, "judge %d user-%u ad-9 %" PRId64, STAMPED_MS, i,
                       last_ms);
        send_event(i, lab_wall_ms() - draw_below(&random_state, 1000));
        send_future(i, last_ms, expect);
        send_event(i, lab_wall_ms() + STAMPED_MS - 1000);
    }
    compare(USERS);
    assert_true(live.dead_count > 0);
    live_check_letters(&live, true);
    live_stop(&live);
    char state[96];
    (void)snprintf(state, sizeof state, "%s/state", live.process.directory);
    lab_folder_remove(state);
    (void)redis_server_ask(&live.redis, "FLUSHALL");
    while (lab_wall_ms() < last_ms + 200) {
        lab_pause_ms(POLL_MS); /* Until the times of all are past. */
    }
    live.claim_count = 0; /* Of another run. */
    live_start(&live);
    assert_true(refused() == (double)live.dead_count);
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
