/* When windows are complete: from what a gap took and the clock, shortest first, to the
 * millisecond, over a crash; and what is kept of the gap until then. In one partition, with three
 * windows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/pipeline_world.h"

#define NOW_MS    PIPELINE_WORLD_NOW_MS
#define MINUTE_MS INT64_C(60000)
#define MARGIN_MS (INT64_C(6) * MINUTE_MS) /* the skew and the slack of the settings */
#define SKEW_MS   (INT64_C(5) * MINUTE_MS)
#define ALL       7u /* a mask of the windows */

enum { STEPS_MAX = 20000, QUIET_STEPS = 60 };

static const int64_t lengths_ms[] = {10 * MINUTE_MS, 30 * MINUTE_MS, 60 * MINUTE_MS};
static struct fcap_task_report report;
static bool serve;
static enum fcap_start_kind start_kind;
static enum fcap_timestamp_type stamps;
static bool is_strict; /* little room for clocks */

/* The key is the user, the timestamp the event's time; every ad is "a". */
static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    *ret_event = (struct fcap_event){
        .user = record->key, .ad = fcap_bytes_of("a"), .time_ms = record->timestamp_ms};
    return FCAP_REJECT_NONE;
}

static int setup(void **unused)
{
    serve = false;
    is_strict = false;
    start_kind = FCAP_START_TIME;
    stamps = FCAP_TIMESTAMP_APPEND;
    return pipeline_world_setup(unused);
}

static void start(void)
{
    static struct fcap_decoder decoder = {decode};
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    settings.window_count = 3;
    settings.windows[0] = (struct fcap_window){"10m", lengths_ms[0]};
    settings.windows[1] = (struct fcap_window){"30m", lengths_ms[1]};
    settings.windows[2] = (struct fcap_window){"60m", lengths_ms[2]};
    settings.session_timeout_ms = 1000;
    settings.serve_incomplete = serve;
    settings.start = start_kind;
    if (is_strict) {
        settings.future_skew_ms = 1000;
        settings.seek_slack_ms = 0;
        settings.commit_defer = 0;
        settings.expiry_hold_ms = 0;
    }
    pipeline_world_start(&settings, &decoder);
}

static void add_event_of(const char *user, int64_t time_ms)
{
    (void)fake_topic_append(&world.topic, 0, fcap_bytes_of(user), fcap_bytes_of("v"), time_ms,
                            stamps);
}

static void add_event(int64_t time_ms)
{
    add_event_of("u", time_ms);
}

static void take_report(void *context, const struct fcap_task_report *now)
{
    (void)context;
    report = *now;
}

/* Until T has reached the time, which stands still. */
static void settle(void)
{
    struct fcap_pipeline_sizes sizes = {0};
    int quiet = 0;
    for (int i = 0; i < STEPS_MAX; i++) {
        if (fcap_pipeline_step(world.pipeline, 0) != FCAP_OK) {
            fail_msg("%s", fcap_pipeline_error(world.pipeline));
        }
        fcap_pipeline_report(world.pipeline, take_report, NULL);
        fcap_pipeline_sizes(world.pipeline, &sizes);
        bool is_quiet = report.gate_open && report.clock_ms == world.now_ms &&
                        sizes.push_backlog == 0 && sizes.flights == 0;
        quiet = is_quiet ? quiet + 1 : 0;
        if (quiet == QUIET_STEPS) {
            return;
        }
    }
    fail_msg("nothing settles: next offset %lld, gate %d", (long long)report.next_offset,
             report.gate_open);
}

/* Enough time for commits and for a complete projection, too. */
static void settle_and_commit(void)
{
    for (int i = 0; i < 10; i++) {
        settle();
        world.now_ms += 500;
    }
    settle();
}

static void stop(void)
{
    assert_int_equal(fcap_pipeline_drain(world.pipeline, world.now_ms + 1000), FCAP_OK);
    pipeline_world_kill();
}

static void begin_with_three(void)
{
    for (int64_t i = 0; i < 3; i++) {
        add_event(NOW_MS - 5000 + i);
    }
    start();
    settle_and_commit();
    assert_int_equal(report.ready_mask, ALL);
    assert_int_equal(report.projected_mask, ALL);
    assert_int_equal(report.lost.count, 0);
    stop();
}

/* Windows that read back before `since_ms` are not ready before T - L has reached it. */
static void check_ready_from(int64_t since_ms)
{
    for (size_t i = 0; i < 3; i++) {
        assert_true(report.ready_at_ms[i] == since_ms + lengths_ms[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        if (world.now_ms >= since_ms + lengths_ms[i]) {
            continue;
        }
        world.now_ms = since_ms + lengths_ms[i] - 1;
        settle();
        assert_int_equal(report.ready_mask, (1u << i) - 1);
        world.now_ms++;
        settle();
        assert_int_equal(report.ready_mask, (1u << (i + 1)) - 1);
    }
    assert_int_equal(report.ready_mask, ALL);
}

static bool is_shown(const char *window)
{
    struct fcap_bytes value;
    int64_t expire_at_ms;
    char key[32];
    (void)snprintf(key, sizeof key, "fc:{u}:%s", window);
    return fcap_fake_redis_get(&world.redis, fcap_bytes_of(key), &value, &expire_at_ms);
}

/* --- until everything is shown --- */

#define CROWD 3000 /* more than a projection queues at once */

static void add_crowd(void)
{
    for (int i = 0; i < CROWD; i++) {
        char user[16];
        (void)snprintf(user, sizeof user, "u%d", i);
        (void)fake_topic_append(&world.topic, 0, fcap_bytes_of(user), fcap_bytes_of("v"),
                                world.now_ms, stamps);
    }
}

/* Of the crowd, whose key shows both events. */
static int count_current(void)
{
    int current = 0;
    for (int i = 0; i < CROWD; i++) {
        struct fcap_bytes value;
        int64_t expire_at_ms;
        char key[32];
        (void)snprintf(key, sizeof key, "fc:{u%d}:60m", i);
        assert_true(fcap_fake_redis_get(&world.redis, fcap_bytes_of(key), &value, &expire_at_ms));
        current += memmem(value.data, value.size, "\"a\":2", 5) != NULL;
    }
    return current;
}

static void step(void)
{
    assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
    fcap_pipeline_report(world.pipeline, take_report, NULL);
    world.now_ms += 10;
}

/* B14: a run read and committed while it could not show, and died. The next one has all to show: it
 * opens its gate and claims what was read, but no window before its last key is current. */
static void test_no_window_before_its_last_key(void **state)
{
    (void)state;
    bool waited = false;
    add_crowd();
    start();
    settle_and_commit();
    assert_int_equal(report.projected_mask, ALL);
    stop();
    add_crowd();
    int64_t end = fake_topic_end(&world.topic, 0);
    world.redis.full = true; /* No epoch, no gate. */
    start();
    for (int i = 0; i < STEPS_MAX && report.committed_offset < end; i++) {
        step();
    }
    assert_true(report.committed_offset == end && !report.gate_open);
    pipeline_world_kill();
    world.redis.full = false;
    start();
    world.sink.in_flight_max = 50;
    for (int i = 0; i < STEPS_MAX && report.projected_mask == 0; i++) {
        step();
        waited = waited || (report.gate_open && report.projected_mask == 0 &&
                            report.claimed_next == end && count_current() < CROWD);
    }
    assert_int_equal(report.projected_mask, ALL);
    assert_int_equal(count_current(), CROWD);
    assert_true(waited);
}

/* --- what never lost anything --- */

static void test_a_topic_that_never_lost_anything(void **state)
{
    (void)state;
    add_event(NOW_MS - 1000);
    start();
    settle_and_commit();
    assert_int_equal(report.ready_mask, ALL);
    for (size_t i = 0; i < 3; i++) {
        assert_true(report.ready_at_ms[i] == FCAP_TIME_NONE);
    }
    assert_int_equal(report.lost.count, 0);
    assert_true(is_shown("10m") && is_shown("60m"));
}

static void test_an_empty_topic(void **state)
{
    (void)state;
    start();
    settle();
    assert_int_equal(report.ready_mask, ALL);
    assert_int_equal(report.lost.count, 0);
}

/* What is older than any window is not missed. */
static void test_a_start_that_was_found_by_its_time(void **state)
{
    (void)state;
    add_event(NOW_MS - 10 * lengths_ms[2]);
    add_event(NOW_MS - 1000);
    start();
    settle();
    assert_int_equal(report.next_offset, 2);
    assert_int_equal(report.ready_mask, ALL);
    assert_int_equal(report.lost.count, 0);
}

/* --- a log that begins late --- */

static void begin_short(void)
{
    add_event(NOW_MS - 40 * MINUTE_MS);
    add_event(NOW_MS - 20 * MINUTE_MS);
    fake_topic_trim(&world.topic, 0, 1);
    start();
    settle();
}

static void test_a_log_that_begins_late(void **state)
{
    const int64_t since_ms = NOW_MS - 20 * MINUTE_MS + MARGIN_MS;
    (void)state;
    begin_short();
    assert_int_equal(report.ready_mask, 1); /* Shortest first. */
    assert_int_equal(report.lost.count, 1);
    const struct fcap_lost_span *span = &report.lost.spans[0];
    assert_int_equal(span->kind, FCAP_GAP_SHORT_HISTORY);
    assert_true(span->first == -1 && span->last == 0 && span->next == 1);
    assert_true(span->from_ms == -1 && span->to_ms == NOW_MS - 20 * MINUTE_MS);
    assert_true(span->noticed_ms == NOW_MS && span->since_ms == since_ms);
    assert_int_equal(report.gaps, 0); /* Nothing that was to be read is gone. */
    assert_true(is_shown("30m") == false);
    check_ready_from(since_ms);
    assert_int_equal(report.lost.count, 1);
    add_event(world.now_ms); /* Something is worth a commit. */
    settle_and_commit();
    assert_int_equal(report.lost.count, 0);
    assert_true(is_shown("60m"));
    stop();
    start();
    settle();
    assert_int_equal(report.ready_mask, ALL);
    assert_int_equal(report.lost.count, 0);
}

static void test_incomplete_windows_are_served_on_demand(void **state)
{
    (void)state;
    serve = true;
    begin_short();
    settle_and_commit();
    assert_int_equal(report.ready_mask, 1);
    assert_int_equal(report.projected_mask, ALL);
    assert_true(is_shown("30m") && is_shown("60m")); /* And not called ready. */
}

static void test_a_log_that_reaches_further_back_than_the_windows(void **state)
{
    (void)state;
    start_kind = FCAP_START_EARLIEST;
    add_event(NOW_MS - 90 * MINUTE_MS);
    add_event(NOW_MS - 80 * MINUTE_MS);
    fake_topic_trim(&world.topic, 0, 1);
    start();
    settle();
    assert_int_equal(report.ready_mask, ALL);
    assert_int_equal(report.lost.count, 0);
}

static void test_a_start_at_the_end(void **state)
{
    (void)state;
    start_kind = FCAP_START_LATEST;
    add_event(NOW_MS - 1000);
    start();
    settle();
    assert_int_equal(report.ready_mask, 0);
    assert_int_equal(report.lost.count, 1);
    assert_int_equal(report.lost.spans[0].kind, FCAP_GAP_SHORT_HISTORY);
    assert_true(report.lost.spans[0].last == 0 && report.lost.spans[0].to_ms == 0);
    add_event(NOW_MS + 1000); /* Its time tells nothing about what was skipped. */
    world.now_ms += 2000;
    settle();
    check_ready_from(NOW_MS + SKEW_MS);
}

/* --- gaps --- */

/* A producer may stamp what happened long ago: the record that is left bounds nothing. */
static void test_producers_stamps_bound_nothing(void **state)
{
    (void)state;
    stamps = FCAP_TIMESTAMP_CREATE;
    begin_with_three();
    int64_t noticed_ms = NOW_MS + 45 * MINUTE_MS;
    world.now_ms = noticed_ms;
    add_event(noticed_ms - MINUTE_MS); /* Lost. */
    add_event(noticed_ms - 26 * MINUTE_MS);
    fake_topic_trim(&world.topic, 0, 4);
    start();
    settle();
    assert_true(report.lost.spans[0].to_ms == noticed_ms - 26 * MINUTE_MS);
    check_ready_from(noticed_ms + SKEW_MS);
}

/* Retention has taken two of four; the first that is left is 8 minutes old. */
static void lose_two(void)
{
    begin_with_three();
    world.now_ms = NOW_MS + 20 * MINUTE_MS;
    add_event(NOW_MS + 10 * MINUTE_MS);
    add_event(NOW_MS + 11 * MINUTE_MS);
    add_event(NOW_MS + 12 * MINUTE_MS);
    add_event(NOW_MS + 19 * MINUTE_MS);
    fake_topic_trim(&world.topic, 0, 5);
    start();
    settle();
}

static void check_lost_two(void)
{
    assert_int_equal(report.lost.count, 1);
    const struct fcap_lost_span *span = &report.lost.spans[0];
    assert_int_equal(span->kind, FCAP_GAP_BELOW_START);
    assert_true(span->first == 3 && span->last == 4 && span->next == 5);
    assert_true(span->from_ms == NOW_MS - 5000 + 2);
    assert_true(span->to_ms == NOW_MS + 12 * MINUTE_MS);
    assert_true(span->noticed_ms == NOW_MS + 20 * MINUTE_MS);
    assert_true(span->since_ms == NOW_MS + 12 * MINUTE_MS + MARGIN_MS);
}

static void test_below_the_start(void **state)
{
    (void)state;
    lose_two();
    assert_int_equal(report.gaps, 1);
    check_lost_two();
    assert_int_equal(report.ready_mask, 0);
    settle_and_commit();
    assert_int_equal(report.projected_mask, ALL); /* Shown windows stay shown. */
    assert_true(is_shown("30m") && is_shown("60m"));
    stop();
    start();
    settle();
    assert_int_equal(report.gaps, 0);
    check_lost_two(); /* It is known after a restart. */
    check_ready_from(NOW_MS + 12 * MINUTE_MS + MARGIN_MS);
    settle_and_commit();
    assert_int_equal(report.lost.count, 0);
}

/* What was taken is older than the shortest window reaches back: that one is complete. */
static void test_what_a_window_has_passed_is_not_missed(void **state)
{
    (void)state;
    begin_with_three();
    world.now_ms = NOW_MS + 45 * MINUTE_MS;
    add_event(NOW_MS + 10 * MINUTE_MS);
    add_event(NOW_MS + 20 * MINUTE_MS);
    fake_topic_trim(&world.topic, 0, 4);
    start();
    settle();
    assert_int_equal(report.ready_mask, 1);
    check_ready_from(NOW_MS + 20 * MINUTE_MS + MARGIN_MS);
}

/* Nothing is left behind the gap: until something comes, what was lost may be as late as now, and
 * the record that comes later does not make it later. */
static void test_below_the_start_of_an_empty_log(void **state)
{
    (void)state;
    begin_with_three();
    int64_t noticed_ms = NOW_MS + 20 * MINUTE_MS;
    world.now_ms = noticed_ms;
    add_event(NOW_MS + 10 * MINUTE_MS);
    fake_topic_trim(&world.topic, 0, 4);
    start();
    settle_and_commit();
    assert_true(report.lost.spans[0].to_ms == -1);
    assert_true(report.lost.spans[0].since_ms == noticed_ms + SKEW_MS);
    pipeline_world_kill();
    start();
    settle();
    world.now_ms = noticed_ms + 12 * MINUTE_MS;
    add_event(world.now_ms);
    settle();
    assert_true(report.lost.spans[0].to_ms == noticed_ms + 12 * MINUTE_MS);
    check_ready_from(noticed_ms + SKEW_MS);
}

/* The new log may begin with old records: they do not tell how late the lost ones were. */
static void test_another_log(void **state)
{
    (void)state;
    begin_with_three();
    world.now_ms = NOW_MS + 20 * MINUTE_MS;
    fake_topic_recreate(&world.topic, 0);
    for (int64_t i = 0; i < 5; i++) {
        add_event(NOW_MS - 3000 + i);
    }
    start();
    settle();
    const struct fcap_lost_span *span = &report.lost.spans[0];
    assert_int_equal(report.lost.count, 1);
    assert_int_equal(span->kind, FCAP_GAP_RECREATED);
    assert_true(span->first == 3 && span->last == -1 && span->next == 0);
    assert_true(span->from_ms == NOW_MS - 5000 + 2 && span->to_ms == NOW_MS - 3000);
    check_ready_from(NOW_MS + 20 * MINUTE_MS + SKEW_MS);
}

static void test_a_log_that_lost_its_end(void **state)
{
    (void)state;
    add_event(NOW_MS - 9000);
    start();
    settle_and_commit(); /* A mark behind the first record. */
    stop();
    begin_with_three();
    world.now_ms = NOW_MS + 20 * MINUTE_MS;
    fake_topic_truncate(&world.topic, 0, 1);
    for (int64_t i = 0; i < 5; i++) {
        add_event(NOW_MS + i);
    }
    start();
    settle();
    const struct fcap_lost_span *span = &report.lost.spans[0];
    assert_int_equal(report.lost.count, 1);
    assert_int_equal(span->kind, FCAP_GAP_TRUNCATED);
    assert_true(span->first == 1 && span->last == 3 && span->next == 4);
    assert_true(span->from_ms == NOW_MS - 9000 && span->to_ms == NOW_MS + 3);
    check_ready_from(NOW_MS + 20 * MINUTE_MS + SKEW_MS);
}

/* However many: the newest are kept, and readiness goes by all. */
static void test_many_gaps(void **state)
{
    (void)state;
    begin_with_three();
    start();
    settle();
    for (int64_t i = 0; i < FCAP_GAPS_MAX + 3; i++) {
        world.now_ms += MINUTE_MS;
        add_event(world.now_ms);
        fake_topic_trim(&world.topic, 0, fake_topic_end(&world.topic, 0)); /* Before it is read. */
        add_event(world.now_ms);
        settle();
    }
    assert_int_equal(report.gaps, FCAP_GAPS_MAX + 3);
    assert_int_equal(report.lost.count, FCAP_GAPS_MAX);
    assert_true(report.lost.spans[FCAP_GAPS_MAX - 1].noticed_ms == world.now_ms);
    check_ready_from(report.lost.spans[FCAP_GAPS_MAX - 1].since_ms);
}

/* Seconds pass, one with each step, until a complete projection is under way. */
static void step_on(bool until_projecting, int seconds)
{
    do {
        world.now_ms += 1000;
        assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
        fcap_pipeline_report(world.pipeline, take_report, NULL);
    } while (--seconds > 0 && !(until_projecting && report.projecting));
}

/* A gap while windows are shown for the first time: what is held back from then on was not shown,
 * and is shown when they are ready. */
static void test_a_gap_in_the_middle_of_the_first_projection(void **state)
{
    (void)state;
    is_strict = true;
    add_event(NOW_MS - 2000);
    add_event(NOW_MS - 1000);
    fake_topic_trim(&world.topic, 0, 1);
    start();
    settle_and_commit();
    assert_int_equal(report.projected_mask, 0);
    world.now_ms = NOW_MS + lengths_ms[0] - MINUTE_MS;
    for (int i = 0; i < 20000; i++) {
        char user[16];
        (void)snprintf(user, sizeof user, "many%d", i);
        add_event_of(user, world.now_ms);
    }
    settle_and_commit();
    step_on(true, 100);
    assert_true(report.projecting);
    add_event(world.now_ms);
    fake_topic_trim(&world.topic, 0, fake_topic_end(&world.topic, 0)); /* Before it is read. */
    add_event(world.now_ms);
    for (int i = 0; i < 10 && report.gaps == 0; i++) {
        step_on(false, 1);
    }
    assert_int_equal(report.gaps, 1);
    int64_t since_ms = report.complete_since_ms;
    step_on(false, 12);
    int64_t late_ms = world.now_ms;
    assert_true(late_ms > since_ms);
    add_event_of("late", late_ms);
    settle_and_commit();
    world.now_ms = since_ms + lengths_ms[0];
    settle_and_commit();
    assert_true(world.now_ms < late_ms + lengths_ms[0]);
    assert_int_equal(report.ready_mask, 1);
    assert_int_equal(report.projected_mask, 1);
    struct fcap_bytes value;
    int64_t expire_at_ms;
    assert_true(
        fcap_fake_redis_get(&world.redis, fcap_bytes_of("fc:{late}:10m"), &value, &expire_at_ms));
}

#define WORLD_TEST(function)                                                                       \
    cmocka_unit_test_setup_teardown(function, setup, pipeline_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_no_window_before_its_last_key),
        WORLD_TEST(test_a_topic_that_never_lost_anything),
        WORLD_TEST(test_an_empty_topic),
        WORLD_TEST(test_a_start_that_was_found_by_its_time),
        WORLD_TEST(test_a_log_that_begins_late),
        WORLD_TEST(test_incomplete_windows_are_served_on_demand),
        WORLD_TEST(test_a_log_that_reaches_further_back_than_the_windows),
        WORLD_TEST(test_a_start_at_the_end),
        WORLD_TEST(test_below_the_start),
        WORLD_TEST(test_producers_stamps_bound_nothing),
        WORLD_TEST(test_what_a_window_has_passed_is_not_missed),
        WORLD_TEST(test_below_the_start_of_an_empty_log),
        WORLD_TEST(test_another_log),
        WORLD_TEST(test_a_log_that_lost_its_end),
        WORLD_TEST(test_many_gaps),
        WORLD_TEST(test_a_gap_in_the_middle_of_the_first_projection),
    };
    return cmocka_run_group_tests_name("readiness", tests, NULL, NULL);
}
