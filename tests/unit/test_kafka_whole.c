/* Since when nothing is missing of what backfill reads: which records tell. */
#include "../../src/adapters/kafka_whole.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TIME_MS INT64_C(1764460800000)

static void take(struct kafka_whole *whole, enum fcap_timestamp_type type, int64_t timestamp_ms)
{
    struct fcap_start start = {.kind = FCAP_START_TIME};
    struct fcap_record record = {.timestamp_ms = timestamp_ms, .timestamp_type = type};
    kafka_whole_record(whole, &start, NULL, &record);
}

/* The value's size says of what time the event is; no value: none. */
static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    if (record->value.data == NULL) {
        *ret_event = (struct fcap_event){.is_tombstone = true};
        return FCAP_REJECT_NONE;
    }
    *ret_event = (struct fcap_event){.time_ms = TIME_MS + (int64_t)record->value.size};
    return FCAP_REJECT_NONE;
}

static void take_event(struct kafka_whole *whole, int64_t timestamp_ms, size_t after_ms)
{
    static struct fcap_decoder decoder = {decode};
    static const uint8_t value[1000];
    struct fcap_start start = {
        .kind = FCAP_START_TIME, .time_ms = 0, .after_ms = 600, .future_ms = TIME_MS + 5000};
    struct fcap_record record = {.timestamp_ms = timestamp_ms,
                                 .timestamp_type = FCAP_TIMESTAMP_CREATE,
                                 .value = {after_ms == 0 ? NULL : value, after_ms}};
    kafka_whole_record(whole, &start, &decoder, &record);
}

/* A stamp that its own event contradicts, or without an event, is no word about what is missing. */
static void test_a_record_that_does_not_tell(void **state)
{
    (void)state;
    struct kafka_whole whole = KAFKA_WHOLE;
    kafka_whole_short(&whole);
    take_event(&whole, TIME_MS, 601);
    take_event(&whole, TIME_MS, 0);
    take_event(&whole, TIME_MS + 5001, 600); /* Nor is one from the future. */
    take_event(&whole, INT64_MAX - 1, 600);
    assert_int_equal(whole.since_ms, INT64_MAX);
    take_event(&whole, TIME_MS, 600);
    assert_int_equal(whole.since_ms, TIME_MS);
}

static void test_nothing_is_missing(void **state)
{
    (void)state;
    struct kafka_whole whole = KAFKA_WHOLE;
    take(&whole, FCAP_TIMESTAMP_APPEND, TIME_MS);
    assert_int_equal(whole.since_ms, FCAP_TIME_NONE);
}

/* Where reading begins was sought by timestamps: those of either clock bound it. */
static void test_a_short_history(void **state)
{
    (void)state;
    static const enum fcap_timestamp_type types[] = {FCAP_TIMESTAMP_CREATE, FCAP_TIMESTAMP_APPEND};
    for (size_t i = 0; i < 2; i++) {
        struct kafka_whole whole = KAFKA_WHOLE;
        kafka_whole_short(&whole);
        assert_int_equal(whole.since_ms, INT64_MAX);
        take(&whole, types[i], FCAP_TIMESTAMP_USABLE_MS - 1);
        assert_int_equal(whole.since_ms, INT64_MAX);
        take(&whole, types[i], TIME_MS);
        take(&whole, types[i], TIME_MS + 1);
        assert_int_equal(whole.since_ms, TIME_MS);
    }
}

/* Retention overtakes reading; the record that is left says what happened days ago. */
static void test_a_producers_stamp_bounds_nothing_that_was_taken(void **state)
{
    (void)state;
    struct kafka_whole whole = KAFKA_WHOLE;
    kafka_whole_cut(&whole);
    take(&whole, FCAP_TIMESTAMP_CREATE, TIME_MS);
    assert_int_equal(whole.since_ms, INT64_MAX);
    take(&whole, FCAP_TIMESTAMP_APPEND, TIME_MS + 1); /* Not the first behind it. */
    assert_int_equal(whole.since_ms, INT64_MAX);
}

static void test_the_brokers_stamp_bounds_what_was_taken(void **state)
{
    (void)state;
    struct kafka_whole whole = KAFKA_WHOLE;
    kafka_whole_cut(&whole);
    take(&whole, FCAP_TIMESTAMP_APPEND, TIME_MS);
    assert_int_equal(whole.since_ms, TIME_MS);
}

/* A short history that was bounded, and more is taken later: both count. */
static void test_taken_behind_a_short_history(void **state)
{
    (void)state;
    struct kafka_whole whole = KAFKA_WHOLE;
    kafka_whole_short(&whole);
    take(&whole, FCAP_TIMESTAMP_CREATE, TIME_MS);
    kafka_whole_cut(&whole);
    assert_int_equal(whole.since_ms, INT64_MAX);
    take(&whole, FCAP_TIMESTAMP_CREATE, TIME_MS + 2);
    assert_int_equal(whole.since_ms, INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_missing),
        cmocka_unit_test(test_a_short_history),
        cmocka_unit_test(test_a_record_that_does_not_tell),
        cmocka_unit_test(test_a_producers_stamp_bounds_nothing_that_was_taken),
        cmocka_unit_test(test_the_brokers_stamp_bounds_what_was_taken),
        cmocka_unit_test(test_taken_behind_a_short_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
