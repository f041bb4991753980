/* Counts at one moment: compared with the definition, which shares no code with them, and byte for
 * byte with what the pipeline makes of the same records while its clock stands at that moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/fold.h"
#include "lab/oracle.h"
#include "lab/oracle_check.h"
#include "lib/random_log.h"
#include "unit/pipeline_world.h"

#define NOW_MS PIPELINE_WORLD_NOW_MS

enum { MINUTE_MS = 60000, HOUR_MS = 3600000, DAY_MS = 86400000, STREAMS = 100, STEPS_MAX = 3000 };

static const struct fcap_window windows[] = {{"1m", MINUTE_MS}, {"1h", HOUR_MS}, {"1d", DAY_MS}};
static const int64_t edges[] = {MINUTE_MS, HOUR_MS, DAY_MS};
enum { WINDOWS = sizeof windows / sizeof windows[0] };

static struct fcap_fold_ads *ads;
static struct fcap_fold *fold;
static int64_t next_offset;

static struct fcap_fold_settings usual(void)
{
    return (struct fcap_fold_settings){.windows = windows,
                                       .window_count = WINDOWS,
                                       .at_ms = NOW_MS,
                                       .ads_per_user = 1000,
                                       .value_bytes = 65536,
                                       .bytes_max = 64 << 20,
                                       .dedup = true,
                                       .check_keyed = true,
                                       .ads = ads};
}

static int setup(void **state)
{
    (void)state;
    ads = fcap_fold_ads_open();
    next_offset = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fcap_fold_close(fold);
    fold = NULL;
    fcap_fold_ads_close(ads);
    ads = NULL;
    return 0;
}

static void open_fold(const struct fcap_fold_settings *settings)
{
    fcap_fold_close(fold);
    fold = fcap_fold_open(settings);
}

static enum fcap_status add_full(int32_t partition, const struct fcap_event *event,
                                 enum fcap_reject *ret_reject)
{
    struct fcap_fold_place place = {partition, next_offset++};
    return fcap_fold_add(fold, place, event, ret_reject);
}

static enum fcap_reject add(const char *user, const char *ad, int64_t time_ms, const char *id)
{
    struct fcap_event event = {
        .user = fcap_bytes_of(user), .ad = fcap_bytes_of(ad), .time_ms = time_ms};
    if (id != NULL) {
        event.has_id = true;
        event.id_hash = fcap_hash64(fcap_bytes_of(id), 0);
    }
    enum fcap_reject reject;
    assert_int_equal(add_full(0, &event, &reject), FCAP_OK);
    return reject;
}

static void erase(const char *user)
{
    struct fcap_event event = {.user = fcap_bytes_of(user), .is_tombstone = true};
    enum fcap_reject reject;
    assert_int_equal(add_full(0, &event, &reject), FCAP_OK);
    assert_int_equal(reject, FCAP_REJECT_NONE);
}

/* The value of a user in a window, or NULL; valid until the next call. */
static const char *value_of(const char *user, size_t window, int64_t *ret_expire_at_ms)
{
    static struct fcap_buffer buffer;
    fcap_buffer_clear(&buffer);
    for (size_t i = 0; i < fcap_fold_users(fold); i++) {
        int32_t partition;
        struct fcap_bytes id;
        struct fcap_fold_value value;
        fcap_fold_user(fold, i, &partition, &id);
        if (fcap_bytes_equal(id, fcap_bytes_of(user))) {
            if (!fcap_fold_value(fold, i, window, &buffer, &value)) {
                assert_int_equal(buffer.size, 0);
                return NULL;
            }
            *ret_expire_at_ms = value.expire_at_ms;
            fcap_buffer_put_u8(&buffer, 0);
            return (const char *)buffer.data;
        }
    }
    return NULL;
}

static void check(const char *user, size_t window, const char *counts, int64_t newest_ms)
{
    int64_t expire_at_ms = 0;
    const char *value = value_of(user, window, &expire_at_ms);
    if (counts == NULL) {
        assert_null(value);
        return;
    }
    char wanted[200];
    (void)snprintf(wanted, sizeof wanted, "{\"v\":1,\"as_of\":%lld,\"counts\":%s}",
                   (long long)NOW_MS, counts);
    assert_non_null(value);
    assert_string_equal(value, wanted);
    assert_int_equal(expire_at_ms, newest_ms + windows[window].length_ms - 1);
}

/* --- one rule after the other --- */

static void test_an_event_leaves_at_its_time_plus_the_length(void **state)
{
    (void)state;
    static const struct {
        int64_t age_ms;
        bool counts[WINDOWS];
    } cases[] = {
        {-1, {true, true, true}},
        {0, {true, true, true}},
        {MINUTE_MS - 1, {true, true, true}},
        {MINUTE_MS, {false, true, true}},
        {MINUTE_MS + 1, {false, true, true}},
        {HOUR_MS - 1, {false, true, true}},
        {HOUR_MS, {false, false, true}},
        {DAY_MS - 1, {false, false, true}},
        {DAY_MS, {false, false, false}},
        {DAY_MS + 1, {false, false, false}},
    };
    struct fcap_fold_settings settings = usual();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_fold(&settings);
        bool is_late = !cases[i].counts[WINDOWS - 1];
        assert_int_equal(add("u", "a", NOW_MS - cases[i].age_ms, NULL),
                         is_late ? FCAP_REJECT_LATE : FCAP_REJECT_NONE);
        for (size_t window = 0; window < WINDOWS; window++) {
            check("u", window, cases[i].counts[window] ? "{\"a\":1}" : NULL,
                  NOW_MS - cases[i].age_ms);
        }
    }
}

static void test_a_tombstone_erases_and_ids_stay_known(void **state)
{
    (void)state;
    struct fcap_fold_settings settings = usual();
    open_fold(&settings);
    assert_int_equal(add("u", "a", NOW_MS - 10, "1"), FCAP_REJECT_NONE);
    assert_int_equal(add("v", "a", NOW_MS - 10, "1"), FCAP_REJECT_NONE);
    erase("u");
    erase("w"); /* Of nobody. */
    assert_int_equal(add("u", "a", NOW_MS - 10, "1"), FCAP_REJECT_DUPLICATE);
    assert_int_equal(add("u", "b", NOW_MS - 20, "2"), FCAP_REJECT_NONE);
    assert_int_equal(add("u", "b", NOW_MS - 20, "2"), FCAP_REJECT_DUPLICATE);
    assert_int_equal(add("u", "b", NOW_MS - 21, "2"), FCAP_REJECT_NONE); /* Another event. */
    check("u", 0, "{\"b\":2}", NOW_MS - 20);
    check("v", 0, "{\"a\":1}", NOW_MS - 10);
    check("w", 0, NULL, 0);
}

static void test_without_ids_everything_counts(void **state)
{
    (void)state;
    struct fcap_fold_settings settings = usual();
    open_fold(&settings);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(add("u", "a", NOW_MS - 10, NULL), FCAP_REJECT_NONE);
    }
    check("u", 0, "{\"a\":3}", NOW_MS - 10);
    settings.dedup = false;
    open_fold(&settings);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(add("u", "a", NOW_MS - 10, "1"), FCAP_REJECT_NONE);
    }
    check("u", 0, "{\"a\":3}", NOW_MS - 10);
}

/* What the limit leaves out is told by each window that it is in, for as long as it would be. */
static void test_more_ads_than_the_limit(void **state)
{
    (void)state;
    struct fcap_fold_settings settings = usual();
    settings.ads_per_user = 1;
    open_fold(&settings);
    assert_int_equal(add("u", "a", NOW_MS - HOUR_MS, NULL), FCAP_REJECT_NONE);
    assert_int_equal(add("u", "b", NOW_MS - 10, "1"), FCAP_REJECT_ADS_LIMIT);
    assert_int_equal(add("u", "b", NOW_MS - 10, "1"), FCAP_REJECT_ADS_LIMIT); /* Not known. */
    assert_int_equal(add("u", "a", NOW_MS - HOUR_MS, NULL), FCAP_REJECT_NONE);
    check("u", 0, "{},\"partial\":true", NOW_MS - 10);
    check("u", 1, "{},\"partial\":true", NOW_MS - 10);
    check("u", 2, "{\"a\":2},\"partial\":true", NOW_MS - 10);
    open_fold(&settings);
    assert_int_equal(add("u", "a", NOW_MS - 10, NULL), FCAP_REJECT_NONE);
    assert_int_equal(add("u", "b", NOW_MS - HOUR_MS, NULL), FCAP_REJECT_ADS_LIMIT);
    check("u", 1, "{\"a\":1}", NOW_MS - 10); /* It has left this one. */
    check("u", 2, "{\"a\":1},\"partial\":true", NOW_MS - 10);
    open_fold(&settings);
    assert_int_equal(add("u", "a", NOW_MS - 10, NULL), FCAP_REJECT_NONE);
    assert_int_equal(add("u", "b", NOW_MS - 10, NULL), FCAP_REJECT_ADS_LIMIT);
    erase("u");
    assert_int_equal(add("u", "b", NOW_MS - 10, NULL), FCAP_REJECT_NONE);
    check("u", 2, "{\"b\":1}", NOW_MS - 10);
}

static void test_a_user_of_two_partitions(void **state)
{
    (void)state;
    struct fcap_fold_settings settings = usual();
    struct fcap_event event = {
        .user = fcap_bytes_of("u"), .ad = fcap_bytes_of("a"), .time_ms = NOW_MS - 1};
    struct fcap_event gone = {.user = fcap_bytes_of("u"), .is_tombstone = true};
    enum fcap_reject reject;
    open_fold(&settings);
    assert_int_equal(add_full(1, &event, &reject), FCAP_OK);
    assert_int_equal(add_full(0, &event, &reject), FCAP_STOPPED);
    assert_int_equal(add_full(0, &gone, &reject), FCAP_STOPPED);
    check("u", 0, "{\"a\":1}", NOW_MS - 1);
    settings.check_keyed = false;
    open_fold(&settings);
    assert_int_equal(add_full(1, &event, &reject), FCAP_OK);
    assert_int_equal(add_full(0, &event, &reject), FCAP_OK);
    assert_int_equal(fcap_fold_users(fold), 2);
    for (int32_t i = 0; i < 2; i++) { /* In order of partitions. */
        int32_t partition;
        struct fcap_bytes user;
        fcap_fold_user(fold, (size_t)i, &partition, &user);
        assert_int_equal(partition, i);
    }
}

/* --- memory --- */

static void test_memory_stays_below_the_bound(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct fcap_fold_settings settings = usual();
        settings.bytes_max = (size_t)(40 + 10 * seed) << 10;
        open_fold(&settings);
        uint64_t chance = seed;
        enum fcap_status status = FCAP_OK;
        size_t added = 0;
        while (status == FCAP_OK && added < 100000) {
            char user[16];
            char ad[16];
            (void)snprintf(user, sizeof user, "u%u", random_below(&chance, 3000));
            (void)snprintf(ad, sizeof ad, "ad%u", random_below(&chance, 50));
            struct fcap_event event = {.user = fcap_bytes_of(user),
                                       .ad = fcap_bytes_of(ad),
                                       .time_ms = NOW_MS - random_below(&chance, 1000),
                                       .has_id = true,
                                       .id_hash = (uint64_t)added << 32 | seed};
            enum fcap_reject reject;
            size_t users = fcap_fold_users(fold);
            status = add_full(0, &event, &reject);
            added += status == FCAP_OK;
            assert_true(fcap_fold_bytes(fold) <= settings.bytes_max);
            assert_true(status == FCAP_OK || users == fcap_fold_users(fold));
        }
        assert_int_equal(status, FCAP_LIMIT);
        assert_true(added > 20);
    }
}

/* --- random streams --- */

static struct random_log_options stream_of(uint64_t seed)
{
    return (struct random_log_options){
        .seed = seed,
        .records = 400,
        .partitions = 1 + (int32_t)(seed % 3),
        .users = 2 + (uint32_t)(seed % 17),
        .ads = 3 + (uint32_t)(seed % 11),
        .now_ms = NOW_MS,
        .span_ms = DAY_MS,
        .skew_ms = 300000,
        .tombstones = seed % 4 == 0 ? 0 : 30,
        .duplicates = 100,
        .futures = 40,
        .with_id = seed % 5 == 0 ? 0 : 800,
        .edge_events = 100,
        .edges = edges,
        .edge_count = WINDOWS,
    };
}

/* Adds those of the records that backfill would spill, of users whose number has this remainder. */
static void add_records(const struct random_record *records, size_t count, unsigned remainder,
                        unsigned modulus)
{
    for (size_t i = 0; i < count; i++) {
        const struct random_record *record = &records[i];
        if (record->is_future && !record->is_tombstone) {
            continue;
        }
        if (strtoul(record->user + 1, NULL, 10) % modulus != remainder) {
            continue;
        }
        struct fcap_event event = {.is_tombstone = record->is_tombstone,
                                   .user = fcap_bytes_of(record->user),
                                   .ad = fcap_bytes_of(record->ad),
                                   .time_ms = record->time_ms,
                                   .has_id = record->id[0] != '\0',
                                   .id_hash = fcap_hash64(fcap_bytes_of(record->id), 0)};
        enum fcap_reject reject;
        assert_int_equal(fcap_fold_add(fold,
                                       (struct fcap_fold_place){record->partition, record->offset},
                                       &event, &reject),
                         FCAP_OK);
    }
}

static void fill_oracle(struct oracle *oracle, const struct random_record *records, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct random_record *record = &records[i];
        if (record->is_tombstone) {
            (void)oracle_tombstone(oracle, record->partition, record->offset, record->user);
            continue;
        }
        struct oracle_event event = {.partition = record->partition,
                                     .offset = record->offset,
                                     .user = record->user,
                                     .ad = record->ad,
                                     .time_ms = record->time_ms,
                                     .id = record->id[0] != '\0' ? record->id : NULL};
        bool is_append = record->timestamp_type == FCAP_TIMESTAMP_APPEND;
        (void)oracle_add_bounded(oracle, &event, is_append ? record->timestamp_ms : NOW_MS, 300000);
    }
}

static void compare_with_oracle(struct oracle *oracle, struct oracle_tally *tally)
{
    for (size_t i = 0; i < oracle_user_count(oracle); i++) {
        const char *user = oracle_user(oracle, i);
        for (size_t window = 0; window < WINDOWS; window++) {
            struct oracle_expectation expectation = {.user = user,
                                                     .window_ms = windows[window].length_ms,
                                                     .history_ms = NOW_MS - DAY_MS,
                                                     .at_min_ms = NOW_MS,
                                                     .at_max_ms = NOW_MS,
                                                     .strict_as_of = true};
            int64_t expire_at_ms;
            const char *value = value_of(user, window, &expire_at_ms);
            (void)oracle_check_value(oracle, &expectation, value, value == NULL ? 0 : strlen(value),
                                     tally);
            struct oracle_query query = {.user = user,
                                         .window_ms = windows[window].length_ms,
                                         .at_ms = NOW_MS,
                                         .history_ms = NOW_MS - DAY_MS};
            if (value != NULL) {
                (void)oracle_check_expiry(oracle, &query, expire_at_ms, tally);
            }
        }
    }
}

static void test_equals_the_definition(void **state)
{
    (void)state;
    struct oracle_tally tally = {0};
    for (uint64_t seed = 1; seed <= STREAMS; seed++) {
        struct random_log_options options = stream_of(seed);
        struct random_record *records = random_log(&options);
        struct oracle *oracle = oracle_open();
        struct fcap_fold_settings settings = usual();
        settings.ads = fcap_fold_ads_open();
        fill_oracle(oracle, records, options.records);
        open_fold(&settings);
        add_records(records, options.records, 0, 1);
        compare_with_oracle(oracle, &tally);
        fcap_fold_close(fold);
        fold = NULL;
        fcap_fold_ads_close(settings.ads);
        oracle_close(oracle);
        free(records);
    }
    char text[4096];
    struct oracle_minimum minimum = {.compared = 2000, .non_empty = 1000, .absent = 100};
    if (!oracle_passes(&tally, &minimum, text, sizeof text)) {
        fail_msg("%s", text);
    }
    printf("result: %llu values compared with the definition, %llu of them not empty\n",
           (unsigned long long)tally.compared, (unsigned long long)tally.non_empty);
}

/* --- the pipeline --- */

static void run_pipeline(const struct fcap_settings *settings)
{
    pipeline_world_start(settings, random_log_decoder());
    enum fcap_status status = pipeline_world_rest(STEPS_MAX);
    if (status != FCAP_OK) {
        fail_msg("%s: %s", fcap_status_text(status), fcap_pipeline_error(world.pipeline));
    }
}

struct score {
    size_t keys;    /* of the pipeline */
    size_t equal;   /* of the fold, found there with the same bytes and the same PXAT */
    size_t partial; /* of these */
};

static void count_key(void *context, struct fcap_bytes key, struct fcap_bytes value,
                      int64_t expire_at_ms)
{
    (void)expire_at_ms;
    (void)value;
    size_t *count = context;
    *count += memcmp(key.data, "fc:{", 4) == 0;
}

/* Looks for everything that the fold shows in the pipeline's Redis. */
static void compare_with_pipeline(struct score *score)
{
    struct fcap_buffer buffer = {0};
    for (size_t i = 0; i < fcap_fold_users(fold); i++) {
        for (size_t window = 0; window < WINDOWS; window++) {
            int32_t partition;
            struct fcap_bytes user;
            struct fcap_fold_value value;
            fcap_fold_user(fold, i, &partition, &user);
            fcap_buffer_clear(&buffer);
            if (!fcap_fold_value(fold, i, window, &buffer, &value)) {
                continue;
            }
            char key[64];
            (void)snprintf(key, sizeof key, "fc:{%.*s}:%s", (int)user.size, (const char *)user.data,
                           windows[window].name);
            struct fcap_bytes shown;
            int64_t expire_at_ms;
            if (!fcap_fake_redis_get(&world.redis, fcap_bytes_of(key), &shown, &expire_at_ms)) {
                fail_msg("the pipeline does not show %s", key);
            }
            if (!fcap_bytes_equal(shown, fcap_buffer_bytes(&buffer))) {
                fail_msg("%s: pipeline %.*s, fold %.*s", key, (int)shown.size,
                         (const char *)shown.data, (int)buffer.size, (const char *)buffer.data);
            }
            assert_int_equal(expire_at_ms, value.expire_at_ms);
            score->partial += memmem(shown.data, shown.size, "partial", 7) != NULL;
            score->equal++;
        }
    }
    fcap_buffer_done(&buffer);
}

/* The same records in the pipeline and, in several files of users as backfill has them, in folds:
 * with a sealed table of ads all bytes are the same. */
static void compare_stream(uint64_t seed, unsigned files, struct score *score)
{
    struct random_log_options options = stream_of(seed);
    options.records = 600;
    struct random_record *records = random_log(&options);
    pipeline_world_init(options.partitions);
    for (size_t i = 0; i < options.records; i++) {
        random_log_append(&world.topic, &records[i]);
    }
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    settings.window_count = WINDOWS;
    memcpy(settings.windows, windows, sizeof windows);
    settings.dedup = true;
    settings.ads_per_user = seed % 3 == 0 ? 3 : 1000;
    settings.value_bytes = seed % 2 == 0 ? 100 : 65536;
    run_pipeline(&settings);
    fcap_fake_redis_visit(&world.redis, count_key, &score->keys);

    struct fcap_fold_settings own = usual();
    own.ads = fcap_fold_ads_open();
    own.ads_per_user = settings.ads_per_user;
    own.value_bytes = settings.value_bytes;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned file = files; file > 0; file--) { /* Not in the order of arrival. */
            open_fold(&own);
            add_records(records, options.records, file - 1, files);
            if (pass == 1) {
                compare_with_pipeline(score);
            }
            fcap_fold_close(fold);
            fold = NULL;
        }
        fcap_fold_ads_seal(own.ads);
    }
    fcap_fold_ads_close(own.ads);
    pipeline_world_done();
    free(records);
}

static void test_bytes_are_the_pipelines(void **state)
{
    (void)state;
    struct score score = {0};
    for (uint64_t seed = 1; seed <= STREAMS; seed++) {
        size_t equal = score.equal;
        size_t keys = score.keys;
        compare_stream(seed, 1 + (unsigned)(seed % 5), &score);
        assert_int_equal(score.equal - equal, score.keys - keys); /* And nothing else. */
        assert_true(score.equal > equal);
    }
    assert_true(score.partial > 100);
    printf("result: %zu values of the pipeline, %zu of them partial, equal byte for byte\n",
           score.equal, score.partial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_event_leaves_at_its_time_plus_the_length, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_tombstone_erases_and_ids_stay_known, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_without_ids_everything_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_ads_than_the_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_user_of_two_partitions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_stays_below_the_bound, setup, teardown),
        cmocka_unit_test_setup_teardown(test_equals_the_definition, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bytes_are_the_pipelines, setup, teardown),
    };
    return cmocka_run_group_tests_name("fold", tests, NULL, NULL);
}
