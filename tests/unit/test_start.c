/* Where an empty state starts when timestamps are not what they should be (docs/decisions/0018). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/pipeline_world.h"

#define NOW_MS  PIPELINE_WORLD_NOW_MS
#define HOUR_MS PIPELINE_WORLD_HOUR_MS
#define LONG_MS (720 * HOUR_MS)

/* "<ms>" is an event of the ad "a" at that time; "x" is none. */
static enum fcap_reject decode(struct fcap_decoder *of, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    char text[32] = "";
    (void)of;
    if (record->value.data == NULL) {
        *ret_event = (struct fcap_event){.is_tombstone = true, .user = record->key};
        return FCAP_REJECT_NONE;
    }
    memcpy(text, record->value.data, record->value.size);
    if (text[0] == 'x') {
        return FCAP_REJECT_JSON;
    }
    *ret_event = (struct fcap_event){
        .user = record->key, .ad = fcap_bytes_of("a"), .time_ms = strtoll(text, NULL, 10)};
    return FCAP_REJECT_NONE;
}

static struct fcap_decoder decoder = {decode};

static void test_what_a_start_would_miss(void **unused)
{
    static const struct {
        int64_t timestamp_ms;
        enum fcap_timestamp_type type;
        const char *value; /* NULL: a tombstone */
        int64_t waited_ms;
        bool is_missed;
    } cases[] = {
        {NOW_MS - LONG_MS, FCAP_TIMESTAMP_CREATE, "1000", 0, false},
        {NOW_MS - LONG_MS, FCAP_TIMESTAMP_CREATE, "1001", 0, true},
        {NOW_MS - LONG_MS, FCAP_TIMESTAMP_CREATE, "2000", 0, true},
        {NOW_MS - LONG_MS, FCAP_TIMESTAMP_CREATE, "2001", 0, false},
        {NOW_MS - LONG_MS, FCAP_TIMESTAMP_CREATE, "2001", 1, true},
        {NOW_MS - LONG_MS, FCAP_TIMESTAMP_CREATE, "x", 0, false},
        {NOW_MS - LONG_MS, FCAP_TIMESTAMP_CREATE, NULL, 0, false},
        {NOW_MS - LONG_MS, FCAP_TIMESTAMP_APPEND, "1001", 0, false},
        {-1, FCAP_TIMESTAMP_NONE, "1000", 0, true},
        {0, FCAP_TIMESTAMP_CREATE, "x", 0, true},
        {0, FCAP_TIMESTAMP_APPEND, "x", 0, true},
        {FCAP_TIMESTAMP_USABLE_MS - 1, FCAP_TIMESTAMP_CREATE, NULL, 0, true},
        {FCAP_TIMESTAMP_USABLE_MS, FCAP_TIMESTAMP_CREATE, NULL, 0, false},
    };
    const struct fcap_start start = {.kind = FCAP_START_TIME, .after_ms = 1000, .future_ms = 2000};
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_record record = {
            .timestamp_ms = cases[i].timestamp_ms,
            .timestamp_type = cases[i].type,
            .key = fcap_bytes_of("u"),
            .value = cases[i].value == NULL ? FCAP_BYTES_NONE : fcap_bytes_of(cases[i].value)};
        bool is_missed = fcap_start_misses(&start, &decoder, &record, cases[i].waited_ms);
        if (is_missed != cases[i].is_missed) {
            fail_msg("case %zu: %d", i, is_missed);
        }
        assert_int_equal(fcap_start_misses(&start, NULL, &record, 0),
                         cases[i].timestamp_ms < FCAP_TIMESTAMP_USABLE_MS);
    }
}

static void test_what_tells_when_it_was_written(void **unused)
{
    static const struct {
        int64_t timestamp_ms;
        enum fcap_timestamp_type type;
        const char *value; /* NULL: a tombstone */
        bool is_told;
    } cases[] = {
        {NOW_MS, FCAP_TIMESTAMP_CREATE, "1700003600000", true},
        {NOW_MS, FCAP_TIMESTAMP_CREATE, "1700003600001", false},
        {NOW_MS, FCAP_TIMESTAMP_APPEND, "1700003600001", true},
        {NOW_MS, FCAP_TIMESTAMP_CREATE, "x", false},
        {NOW_MS, FCAP_TIMESTAMP_CREATE, NULL, false},
        {NOW_MS, FCAP_TIMESTAMP_APPEND, NULL, true},
        {0, FCAP_TIMESTAMP_CREATE, "0", false},
        {-1, FCAP_TIMESTAMP_NONE, "0", false},
        {NOW_MS + 2000, FCAP_TIMESTAMP_CREATE, "1700000002000", true},
        {NOW_MS + 2001, FCAP_TIMESTAMP_CREATE, "1700000002000", false},
        {INT64_MAX - 1, FCAP_TIMESTAMP_CREATE, "1700000000000", false},
        {NOW_MS + 2001, FCAP_TIMESTAMP_APPEND, "1700000002000", true},
    };
    const struct fcap_start start = {.kind = FCAP_START_TIME,
                                     .time_ms = 1000,
                                     .after_ms = 1000 + HOUR_MS,
                                     .future_ms = NOW_MS + 2000};
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_record record = {
            .timestamp_ms = cases[i].timestamp_ms,
            .timestamp_type = cases[i].type,
            .key = fcap_bytes_of("u"),
            .value = cases[i].value == NULL ? FCAP_BYTES_NONE : fcap_bytes_of(cases[i].value)};
        if (fcap_start_tells(&start, &decoder, &record) != cases[i].is_told) {
            fail_msg("case %zu: %d", i, !cases[i].is_told);
        }
        assert_true(fcap_start_tells(&start, NULL, &record));
    }
}

static void add(int64_t timestamp_ms, int64_t event_ms)
{
    char value[32];
    (void)snprintf(value, sizeof value, "%lld", (long long)event_ms);
    (void)fake_topic_append(&world.topic, 0, fcap_bytes_of("u"), fcap_bytes_of(value), timestamp_ms,
                            FCAP_TIMESTAMP_CREATE);
}

static void start(void)
{
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    pipeline_world_start(&settings, &decoder);
    assert_int_equal(pipeline_world_rest(2000), FCAP_OK);
}

static struct fcap_task_report report;

static void take_report(void *context, const struct fcap_task_report *of)
{
    (void)context;
    report = *of;
}

/* What the pipeline holds of the user, and says of its start. */
static void check(const char *counts, bool is_untrusted, uint64_t untrusted_times)
{
    struct fcap_buffer buffer = {0};
    char expected[64];
    (void)snprintf(expected, sizeof expected, "\"counts\":%s", counts);
    fcap_pipeline_report(world.pipeline, take_report, NULL);
    assert_true(fcap_pipeline_inspect(world.pipeline, 0, fcap_bytes_of("u"), 0, &buffer));
    fcap_buffer_put_u8(&buffer, 0);
    if (strstr((const char *)buffer.data, expected) == NULL) {
        fail_msg("%s", (const char *)buffer.data);
    }
    fcap_buffer_done(&buffer);
    const struct fcap_counters *counters = fcap_pipeline_counters(world.pipeline);
    assert_int_equal(report.start_untrusted, is_untrusted);
    assert_int_equal(counters->untrusted_starts, is_untrusted);
    assert_int_equal(counters->untrusted_times, untrusted_times);
    assert_true(report.gate_open);
}

static void test_stamps_that_are_too_old(void **unused)
{
    (void)unused;
    add(NOW_MS - 2 * LONG_MS, NOW_MS - LONG_MS);
    add(NOW_MS - LONG_MS, NOW_MS - 1000);
    add(NOW_MS - LONG_MS, NOW_MS - 500);
    start();
    check("{\"a\":2}", true, 3); /* The first one, too: it is late, but its stamp lies. */
    assert_true((report.ready_mask & 1) != 0); /* The log has lost nothing. */
}

static void test_stamps_that_are_right(void **unused)
{
    (void)unused;
    add(NOW_MS - LONG_MS, NOW_MS - LONG_MS);
    add(NOW_MS - 1000, NOW_MS - 1000);
    start();
    check("{\"a\":1}", false, 0);
    assert_int_equal(report.next_offset, 2);
}

/* Of a log that has lost its begin, a stamp that lies must not say what is complete. */
static void test_a_cut_log_with_stamps_that_are_too_old(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        add(NOW_MS - HOUR_MS, NOW_MS - 1000 + i); /* Not too old to be found by a start by time. */
    }
    add(NOW_MS - 200, NOW_MS - 200);
    fake_topic_trim(&world.topic, 0, 2);
    start();
    check("{\"a\":3}", false, 2);
    assert_true((report.ready_mask & 1) == 0);
    assert_true(report.complete_since_ms > NOW_MS - 200);
}

/* Nothing contradicts the stamp of a record without an event: it tells nothing either way. */
static void test_a_cut_log_with_a_tombstone_whose_stamp_is_too_old(void **unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++) {
        (void)fake_topic_append(&world.topic, 0, fcap_bytes_of("v"), FCAP_BYTES_NONE,
                                NOW_MS - HOUR_MS, FCAP_TIMESTAMP_CREATE);
    }
    add(NOW_MS - HOUR_MS / 2, NOW_MS - HOUR_MS / 2);
    fake_topic_trim(&world.topic, 0, 2);
    start();
    check("{\"a\":1}", false, 0);
    assert_true((report.ready_mask & 1) == 0);
    assert_true(report.complete_since_ms > NOW_MS - HOUR_MS / 2);
    assert_true(report.complete_since_ms < NOW_MS - HOUR_MS / 3);
}

/* What stood before it is gone. Where it does not tell when it was written, nobody knows how late
 * that was. */
static void cut_below_the_start(int64_t timestamp_ms)
{
    add(NOW_MS - 2 * LONG_MS, NOW_MS - 1000);
    add(timestamp_ms, NOW_MS - LONG_MS);
    add(NOW_MS - 200, NOW_MS - 200);
    fake_topic_trim(&world.topic, 0, 1);
    start();
}

static void test_a_cut_log_that_tells_nothing_below_the_start(void **unused)
{
    (void)unused;
    cut_below_the_start(NOW_MS - 2 * LONG_MS);
    check("{\"a\":1}", false, 1);
    assert_true((report.ready_mask & 1) == 0);
    assert_true(report.complete_since_ms > NOW_MS - 200);
}

static void test_a_cut_log_that_tells_when_it_was_written(void **unused)
{
    (void)unused;
    cut_below_the_start(NOW_MS - LONG_MS);
    check("{\"a\":1}", false, 0);
    assert_true((report.ready_mask & 1) != 0);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, pipeline_world_setup, pipeline_world_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_start_would_miss),
        cmocka_unit_test(test_what_tells_when_it_was_written),
        CASE(test_stamps_that_are_too_old),
        CASE(test_stamps_that_are_right),
        CASE(test_a_cut_log_with_stamps_that_are_too_old),
        CASE(test_a_cut_log_with_a_tombstone_whose_stamp_is_too_old),
        CASE(test_a_cut_log_that_tells_nothing_below_the_start),
        CASE(test_a_cut_log_that_tells_when_it_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
