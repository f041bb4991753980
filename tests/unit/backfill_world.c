#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/backfill_world.h"
#include "unit/pipeline_world.h"

const struct fcap_window backfill_windows[BACKFILL_WINDOWS] = {
    {"1m", BACKFILL_MINUTE_MS}, {"1h", BACKFILL_HOUR_MS}, {"1d", BACKFILL_DAY_MS}};

struct backfill_world own;

static int64_t wall_ms(struct fcap_clock *clock)
{
    (void)clock;
    return own.now.wall_ms;
}

static int64_t monotonic_ms(struct fcap_clock *clock)
{
    (void)clock;
    return own.now.monotonic_ms;
}

int backfill_world_setup(void **state)
{
    (void)state;
    memset(&own, 0, sizeof own);
    own.clock = (struct fcap_clock){wall_ms, monotonic_ms};
    own.now = (struct fcap_moment){BACKFILL_NOW_MS, 1000};
    fcap_fake_redis_init(&own.redis, &own.clock);
    fake_seed_init(&own.seed, &own.redis, &own.clock, "test");
    fake_spill_init(&own.spill);
    pipeline_world_settings(&own.settings);
    own.settings.window_count = BACKFILL_WINDOWS;
    memcpy(own.settings.windows, backfill_windows, sizeof backfill_windows);
    own.settings.dedup = true;
    own.settings.future_skew_ms = BACKFILL_SKEW_MS;
    return 0;
}

int backfill_world_teardown(void **state)
{
    (void)state;
    fcap_backfill_close(own.backfill);
    fake_spill_done(&own.spill);
    fake_seed_done(&own.seed);
    fcap_fake_redis_done(&own.redis);
    free(own.records);
    return 0;
}

/* --- running it --- */

static void open_backfill(void)
{
    struct fcap_backfill_ports ports = {
        .decoder = random_log_decoder(), .seed = &own.seed.port, .spill = &own.spill.port};
    struct fcap_error error;
    assert_int_equal(fcap_backfill_open(&own.settings, &ports, &own.backfill, &error), FCAP_OK);
}

void backfill_world_begin(int32_t partitions)
{
    enum fcap_status status = FCAP_UNAVAILABLE;
    open_backfill();
    for (int i = 0; i < BACKFILL_STEPS_MAX && fcap_status_class(status) == FCAP_CLASS_RETRY; i++) {
        status = fcap_backfill_begin(own.backfill, partitions, own.record_count, own.now);
    }
    assert_int_equal(status, FCAP_OK);
}

static enum fcap_status give(const struct random_record *record)
{
    char value[80];
    (void)snprintf(value, sizeof value, "%lld|%s|%s", (long long)record->time_ms, record->ad,
                   record->id);
    struct fcap_record given = {
        .partition = record->partition,
        .offset = record->offset,
        .timestamp_ms = record->timestamp_ms,
        .timestamp_type = record->timestamp_type,
        .key = fcap_bytes_of(record->user),
        .value = record->is_tombstone ? FCAP_BYTES_NONE : fcap_bytes_of(value),
    };
    return fcap_backfill_record(own.backfill, &given, own.now);
}

enum fcap_status backfill_world_read(void)
{
    enum fcap_status status = FCAP_OK;
    for (size_t i = 0; i < own.record_count && status == FCAP_OK; i++) {
        status = give(&own.records[i]);
    }
    return status;
}

enum fcap_status backfill_world_finish(void)
{
    bool is_done = false;
    enum fcap_status status = FCAP_OK;
    int failures = 0;
    uint64_t written = 0; /* never goes back */
    for (int i = 0; i < BACKFILL_STEPS_MAX && !is_done; i++) {
        status = fcap_backfill_step(own.backfill, own.now, &is_done);
        fcap_backfill_report(own.backfill, &own.report);
        assert_true(own.report.phase < FCAP_BACKFILL_CHECKING ||
                    own.report.done <= own.report.total);
        if (own.report.phase == FCAP_BACKFILL_WRITING) {
            assert_true(own.report.done >= written);
            written = own.report.done;
        }
        failures = status == FCAP_OK ? 0 : failures + 1;
        if (fcap_status_class(status) == FCAP_CLASS_FATAL || failures == 100) {
            return status;
        }
        own.now.monotonic_ms += own.report.phase == FCAP_BACKFILL_WAITING ? 1000 : 0;
    }
    assert_true(is_done);
    return FCAP_OK;
}

enum fcap_status backfill_world_run(int32_t partitions)
{
    backfill_world_begin(partitions);
    enum fcap_status status = backfill_world_read();
    if (status == FCAP_OK) {
        status = fcap_backfill_read_done(own.backfill, NULL);
    }
    return status == FCAP_OK ? backfill_world_finish() : status;
}

static void count_key(void *context, struct fcap_bytes key, struct fcap_bytes value,
                      int64_t expire_at_ms)
{
    (void)expire_at_ms;
    (void)value;
    *(size_t *)context += memcmp(key.data, "fc:{", 4) == 0;
}

size_t backfill_world_keys(struct fcap_fake_redis *redis)
{
    size_t count = 0;
    fcap_fake_redis_visit(redis, count_key, &count);
    return count;
}

void backfill_world_check_untouched(void)
{
    assert_int_equal(backfill_world_keys(&own.redis), 0);
    assert_int_equal(own.seed.transactions, 0);
}

bool backfill_world_has(const char *key)
{
    struct fcap_bytes value;
    int64_t expire_at_ms;
    return fcap_fake_redis_get(&own.redis, fcap_bytes_of(key), &value, &expire_at_ms);
}

/* --- records by hand --- */

void backfill_world_add(int32_t partition, const char *user, const char *ad, int64_t time_ms)
{
    if (own.record_count == own.record_capacity) {
        own.record_capacity = own.record_capacity * 2 + 64;
        own.records = realloc(own.records, own.record_capacity * sizeof *own.records);
        assert_non_null(own.records);
    }
    struct random_record *record = &own.records[own.record_count];
    *record = (struct random_record){.partition = partition,
                                     .offset = (int64_t)own.record_count,
                                     .timestamp_ms = BACKFILL_NOW_MS,
                                     .timestamp_type = FCAP_TIMESTAMP_CREATE,
                                     .is_tombstone = ad == NULL,
                                     .time_ms = time_ms};
    (void)snprintf(record->user, sizeof record->user, "%s", user);
    (void)snprintf(record->ad, sizeof record->ad, "%s", ad == NULL ? "" : ad);
    own.record_count++;
}

void backfill_world_add_many(int32_t partitions, size_t users, size_t events)
{
    for (size_t i = 0; i < users * events; i++) {
        char user[16];
        (void)snprintf(user, sizeof user, "u%zu", i % users);
        backfill_world_add((int32_t)(i % users) % partitions, user, i % 2 == 0 ? "a" : "b",
                           BACKFILL_NOW_MS - 1 - (int64_t)i);
    }
}
