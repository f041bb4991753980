/* The plan of backfill on a Redis and a disk in memory: what it writes is, byte for byte, what a
 * pipeline shows that has read the same records at the same moment; whatever goes wrong before is
 * found while Redis is untouched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lab/oracle.h"
#include "lab/oracle_check.h"
#include "unit/backfill_world.h"
#include "unit/pipeline_world.h"

enum { STREAMS = 60 };

static const int64_t edges[] = {BACKFILL_MINUTE_MS, BACKFILL_HOUR_MS, BACKFILL_DAY_MS};

/* --- the same as the pipeline --- */

static struct random_log_options stream_of(uint64_t seed)
{
    return (struct random_log_options){
        .seed = 1000 + seed,
        .records = 3000,
        .partitions = 1 + (int32_t)(seed % 4),
        .users = 20 + (uint32_t)(seed % 7) * 60,
        .ads = 3 + (uint32_t)(seed % 11),
        .now_ms = BACKFILL_NOW_MS,
        .span_ms = BACKFILL_DAY_MS,
        .skew_ms = BACKFILL_SKEW_MS,
        .tombstones = seed % 4 == 0 ? 0 : 30,
        .duplicates = 100,
        .futures = 40,
        .with_id = seed % 5 == 0 ? 0 : 700,
        .edge_events = 100,
        .edges = edges,
        .edge_count = BACKFILL_WINDOWS,
    };
}

static void run_pipeline(void)
{
    struct fcap_settings settings = own.settings;
    settings.cache_bytes = 64 << 20;
    for (size_t i = 0; i < own.record_count; i++) {
        random_log_append(&world.topic, &own.records[i]);
    }
    pipeline_world_start(&settings, random_log_decoder());
    enum fcap_status status = pipeline_world_rest(BACKFILL_STEPS_MAX);
    if (status != FCAP_OK) {
        fail_msg("%s: %s", fcap_status_text(status), fcap_pipeline_error(world.pipeline));
    }
}

static size_t partial_keys;

static void compare_key(void *context, struct fcap_bytes key, struct fcap_bytes value,
                        int64_t expire_at_ms)
{
    struct fcap_bytes shown;
    int64_t shown_until_ms;
    if (memcmp(key.data, "fc:{", 4) != 0) {
        return;
    }
    if (!fcap_fake_redis_get(&own.redis, key, &shown, &shown_until_ms)) {
        fail_msg("backfill has not written %.*s", (int)key.size, (const char *)key.data);
    }
    if (!fcap_bytes_equal(shown, value)) {
        fail_msg("%.*s: pipeline %.*s, backfill %.*s", (int)key.size, (const char *)key.data,
                 (int)value.size, (const char *)value.data, (int)shown.size,
                 (const char *)shown.data);
    }
    assert_int_equal(shown_until_ms, expire_at_ms);
    partial_keys += memmem(value.data, value.size, "partial", 7) != NULL;
    ++*(size_t *)context;
}

static void test_bytes_are_the_pipelines(void **state)
{
    size_t equal = 0;
    uint64_t splits = 0;
    uint64_t cut = 0;
    uint64_t rejects[FCAP_REJECT_COUNT] = {0};
    uint64_t tombstones = 0;
    partial_keys = 0;
    for (uint64_t seed = 1; seed <= STREAMS; seed++) {
        (void)backfill_world_setup(state);
        struct random_log_options options = stream_of(seed);
        own.records = random_log(&options);
        own.record_count = options.records;
        own.settings.cache_bytes = seed % 3 == 0 ? 64 << 20 : BACKFILL_SMALL_BYTES;
        own.settings.ads_per_user = seed % 3 == 1 ? 3 : 1000;
        own.settings.value_bytes = seed % 2 == 0 ? 100 : 65536;
        own.seed.unavailable = seed % 2 == 0 ? 100 : 0;
        pipeline_world_init(options.partitions);
        run_pipeline();
        assert_int_equal(backfill_world_run(options.partitions), FCAP_OK);
        size_t before = equal;
        fcap_fake_redis_visit(&world.redis, compare_key, &equal);
        assert_true(equal > before);
        assert_int_equal(backfill_world_keys(&own.redis), equal - before); /* And nothing else. */
        assert_int_equal(own.report.at_ms, BACKFILL_NOW_MS);
        assert_true(own.report.fold_bytes <= own.settings.cache_bytes);
        if (own.seed.unavailable == 0) {
            assert_int_equal(own.report.keys_written, equal - before);
        }
        const struct fcap_counters *counters = fcap_pipeline_counters(world.pipeline);
        for (size_t i = 0; i < FCAP_REJECT_COUNT; i++) { /* Every record was judged alike. */
            assert_int_equal(own.report.rejects[i], counters->rejects[i]);
            rejects[i] += own.report.rejects[i];
        }
        assert_int_equal(own.report.events, counters->events);
        assert_int_equal(own.spill.bytes, 0);
        splits += own.report.splits;
        cut += own.report.values_cut;
        tombstones += own.report.tombstones;
        pipeline_world_done();
        (void)backfill_world_teardown(state);
    }
    assert_true(splits > 20);
    assert_true(partial_keys > 200 && cut > 100);
    (void)backfill_world_setup(state);
    printf(
        "result: %zu values equal to the pipeline's byte for byte, %zu of them partial, %llu cut; "
        "%llu files split\n",
        equal, partial_keys, (unsigned long long)cut, (unsigned long long)splits);
    printf("result: %llu late, %llu duplicate, %llu future, %llu beyond ads_per_user, %llu "
           "tombstones\n",
           (unsigned long long)rejects[FCAP_REJECT_LATE],
           (unsigned long long)rejects[FCAP_REJECT_DUPLICATE],
           (unsigned long long)rejects[FCAP_REJECT_FUTURE],
           (unsigned long long)rejects[FCAP_REJECT_ADS_LIMIT], (unsigned long long)tombstones);
    assert_true(rejects[FCAP_REJECT_LATE] > 1000 && rejects[FCAP_REJECT_DUPLICATE] > 1000);
    assert_true(rejects[FCAP_REJECT_FUTURE] > 1000 && rejects[FCAP_REJECT_ADS_LIMIT] > 1000);
    assert_true(tombstones > 1000);
}

/* --- the definition --- */

static void test_equals_the_definition(void **state)
{
    (void)state;
    struct random_log_options options = stream_of(1);
    options.records = 20000;
    options.users = 4000;
    own.records = random_log(&options);
    own.record_count = options.records;
    own.settings.cache_bytes = 300 << 10; /* One of the users has 6,000 events with ids. */
    assert_int_equal(backfill_world_run(options.partitions), FCAP_OK);
    assert_true(own.report.splits > 0);
    struct oracle *oracle = oracle_open();
    for (size_t i = 0; i < own.record_count; i++) {
        const struct random_record *record = &own.records[i];
        struct oracle_event event = {.partition = record->partition,
                                     .offset = record->offset,
                                     .user = record->user,
                                     .ad = record->ad,
                                     .time_ms = record->time_ms,
                                     .id = record->id[0] != '\0' ? record->id : NULL};
        bool is_append = record->timestamp_type == FCAP_TIMESTAMP_APPEND;
        if (record->is_tombstone) {
            (void)oracle_tombstone(oracle, record->partition, record->offset, record->user);
        } else {
            (void)oracle_add_bounded(oracle, &event,
                                     is_append ? record->timestamp_ms : BACKFILL_NOW_MS,
                                     BACKFILL_SKEW_MS);
        }
    }
    struct oracle_tally tally = {0};
    for (size_t i = 0; i < oracle_user_count(oracle); i++) {
        for (size_t window = 0; window < BACKFILL_WINDOWS; window++) {
            struct oracle_expectation expectation = {
                .user = oracle_user(oracle, i),
                .window_ms = backfill_windows[window].length_ms,
                .history_ms = BACKFILL_NOW_MS - BACKFILL_DAY_MS,
                .at_min_ms = BACKFILL_NOW_MS,
                .at_max_ms = BACKFILL_NOW_MS,
                .strict_as_of = true};
            struct fcap_bytes value = FCAP_BYTES_NONE;
            int64_t expire_at_ms;
            char key[64];
            (void)snprintf(key, sizeof key, "fc:{%s}:%s", expectation.user,
                           backfill_windows[window].name);
            if (!fcap_fake_redis_get(&own.redis, fcap_bytes_of(key), &value, &expire_at_ms)) {
                value = FCAP_BYTES_NONE;
            }
            (void)oracle_check_value(oracle, &expectation, (const char *)value.data, value.size,
                                     &tally);
        }
    }
    oracle_close(oracle);
    char text[4096];
    struct oracle_minimum minimum = {.compared = 2000, .non_empty = 1000, .absent = 100};
    if (!oracle_passes(&tally, &minimum, text, sizeof text)) {
        fail_msg("%s", text);
    }
    printf("result: %llu keys compared with the definition, %llu of them there\n",
           (unsigned long long)tally.compared, (unsigned long long)tally.non_empty);
}

/* A history of 60 times the memory of a fold: as much is held as for a short one. */
static void test_a_long_history_takes_no_more_memory(void **state)
{
    (void)state;
    backfill_world_add_many(3, 2000, 60);
    own.settings.cache_bytes = BACKFILL_SMALL_BYTES;
    assert_int_equal(backfill_world_run(3), FCAP_OK);
    assert_true(own.report.fold_bytes <= BACKFILL_SMALL_BYTES);
    assert_true(own.spill.bytes_top > 60 * BACKFILL_SMALL_BYTES);
    assert_int_equal(own.report.events, own.record_count);
    assert_int_equal(own.report.total, own.record_count);
    assert_int_equal(own.report.done, own.report.total);
    assert_int_equal(own.report.users, 2000);
    assert_int_equal(backfill_world_keys(&own.redis), own.report.keys_written);
}

/* A reader that lost its connection may give records again. */
static void test_a_record_that_is_given_again(void **state)
{
    (void)state;
    backfill_world_add_many(2, 10, 3);
    backfill_world_begin(2);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    assert_int_equal(backfill_world_finish(), FCAP_OK);
    assert_int_equal(own.report.records, 60);
    assert_int_equal(own.report.rejects[FCAP_REJECT_REDELIVERED], 30);
    assert_int_equal(own.report.events, 30);
}

/* --- what is wrong is found before Redis is touched --- */

static void test_a_user_of_two_partitions(void **state)
{
    (void)state;
    backfill_world_add_many(2, 100, 3);
    backfill_world_add(1, "u0", "a", BACKFILL_NOW_MS - 1);
    assert_int_equal(backfill_world_run(2), FCAP_STOPPED);
    assert_non_null(strstr(fcap_backfill_error(own.backfill), "not keyed by user"));
    backfill_world_check_untouched();
}

static void test_a_record_without_a_key(void **state)
{
    (void)state;
    backfill_world_begin(1);
    struct fcap_record record = {.timestamp_ms = -1, .value = fcap_bytes_of("1|a|")};
    assert_int_equal(fcap_backfill_record(own.backfill, &record, own.now), FCAP_STOPPED);
    assert_non_null(strstr(fcap_backfill_error(own.backfill), "not keyed by user"));
    backfill_world_check_untouched();
}

static void test_too_many_partitions(void **state)
{
    (void)state;
    struct fcap_backfill_ports ports = {random_log_decoder(), &own.seed.port, &own.spill.port};
    struct fcap_error error;
    assert_int_equal(fcap_backfill_open(&own.settings, &ports, &own.backfill, &error), FCAP_OK);
    assert_int_equal(fcap_backfill_begin(own.backfill, 65536, 1, own.now), FCAP_LIMIT);
    backfill_world_check_untouched();
}

static void test_a_user_larger_than_memory(void **state)
{
    (void)state;
    backfill_world_add_many(1, 30, 3);
    for (int i = 0; i < 5000; i++) {
        char ad[16];
        (void)snprintf(ad, sizeof ad, "ad%d", i);
        backfill_world_add(0, "whale", ad, BACKFILL_NOW_MS - 1);
    }
    own.settings.cache_bytes = BACKFILL_SMALL_BYTES;
    own.settings.ads_per_user = 100000;
    assert_int_equal(backfill_world_run(1), FCAP_LIMIT);
    assert_non_null(strstr(fcap_backfill_error(own.backfill), "memory.record_cache"));
    backfill_world_check_untouched();
}

static void test_a_full_disk(void **state)
{
    (void)state;
    backfill_world_add_many(1, 2000, 3);
    own.settings.cache_bytes = BACKFILL_SMALL_BYTES;
    own.spill.bytes_max = 10000;
    assert_int_equal(backfill_world_run(1), FCAP_NO_SPACE);
    backfill_world_check_untouched();
    fcap_backfill_close(own.backfill);
    fake_spill_done(&own.spill);
    fake_spill_init(&own.spill);
    backfill_world_begin(1);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    own.spill.bytes_max = own.spill.bytes + 5000; /* Full while a file is split. */
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    assert_int_equal(backfill_world_finish(), FCAP_NO_SPACE);
    backfill_world_check_untouched();
}

static void test_a_damaged_disk(void **state)
{
    (void)state;
    backfill_world_add_many(1, 10, 3);
    backfill_world_begin(1);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    own.spill.damaged = true;
    assert_int_equal(backfill_world_finish(), FCAP_CORRUPT);
    backfill_world_check_untouched();
}

static void test_redis_that_stays_away(void **state)
{
    (void)state;
    backfill_world_add_many(1, 10, 3);
    backfill_world_begin(1);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    own.redis.down = true;
    assert_int_equal(backfill_world_finish(), FCAP_UNAVAILABLE);
    assert_non_null(strstr(fcap_backfill_error(own.backfill), "look for owners"));
    own.redis.down = false; /* Nothing was lost by it. */
    assert_int_equal(backfill_world_finish(), FCAP_OK);
    assert_int_equal(own.report.users, 10);
}

static void test_redis_that_was_emptied(void **state)
{
    (void)state;
    backfill_world_add_many(1, 10, 3);
    backfill_world_begin(1);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    fcap_fake_redis_flush(&own.redis);
    assert_int_equal(backfill_world_finish(), FCAP_FOREIGN);
    backfill_world_check_untouched();
}

#define CASE(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, backfill_world_setup, backfill_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_bytes_are_the_pipelines),
        CASE(test_equals_the_definition),
        CASE(test_a_long_history_takes_no_more_memory),
        CASE(test_a_record_that_is_given_again),
        CASE(test_a_user_of_two_partitions),
        CASE(test_a_record_without_a_key),
        CASE(test_too_many_partitions),
        CASE(test_a_user_larger_than_memory),
        CASE(test_a_full_disk),
        CASE(test_a_damaged_disk),
        CASE(test_redis_that_stays_away),
        CASE(test_redis_that_was_emptied),
    };
    return cmocka_run_group_tests_name("backfill", tests, NULL, NULL);
}
