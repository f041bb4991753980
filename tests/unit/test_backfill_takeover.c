/* The real pipeline takes over what backfill has written, on one Redis in memory: from nothing, and
 * from a state that judged a record otherwise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/backfill.h"
#include "lab/oracle.h"
#include "lab/oracle_check.h"
#include "lib/fake_seed.h"
#include "lib/fake_spill.h"
#include "lib/random_log.h"
#include "unit/pipeline_world.h"

enum {
    MINUTE_MS = 60000,
    HOUR_MS = 3600000,
    SKEW_MS = 300000,
    WINDOWS = 2,
    STREAMS = 20,
    USERS = 40,
    PARTITIONS = 2,
    HISTORY = 600,
    LIVE = 400, /* records while the pipeline takes over */
    STEPS_MAX = 20000,
    QUIET_STEPS = 100,
    SESSION_MS = 2000,
};

static const struct fcap_window windows[WINDOWS] = {{"1m", MINUTE_MS}, {"1h", HOUR_MS}};

static struct fake_seed seed;
static struct fake_spill spill;
static struct fcap_settings settings;
static struct fcap_backfill_report report;
static struct oracle *oracle;
static int64_t shown_as_of[USERS][WINDOWS];

static int setup(void **state)
{
    (void)state;
    pipeline_world_init(PARTITIONS);
    fake_seed_init(&seed, &world.redis, &world.clock, "test");
    fake_spill_init(&spill);
    pipeline_world_settings(&settings);
    settings.window_count = WINDOWS;
    memcpy(settings.windows, windows, sizeof windows);
    settings.session_timeout_ms = SESSION_MS;
    settings.future_skew_ms = SKEW_MS;
    oracle = oracle_open();
    memset(shown_as_of, 0, sizeof shown_as_of);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    oracle_close(oracle);
    fake_spill_done(&spill);
    fake_seed_done(&seed);
    pipeline_world_done();
    return 0;
}

/* --- both sides --- */

static struct fcap_moment now(void)
{
    return (struct fcap_moment){world.now_ms, world.now_ms};
}

static void backfill(void)
{
    struct fcap_backfill_ports ports = {random_log_decoder(), &seed.port, &spill.port};
    struct fcap_backfill *own;
    struct fcap_error error;
    bool is_done = false;
    assert_int_equal(fcap_backfill_open(&settings, &ports, &own, &error), FCAP_OK);
    assert_int_equal(fcap_backfill_begin(own, PARTITIONS, 1000, now()), FCAP_OK);
    for (int32_t partition = 0; partition < PARTITIONS; partition++) {
        int64_t end = fake_topic_end(&world.topic, partition);
        for (int64_t offset = 0; offset < end; offset++) {
            struct fcap_record record;
            assert_true(fake_topic_read(&world.topic, partition, offset, &record));
            assert_int_equal(fcap_backfill_record(own, &record, now()), FCAP_OK);
        }
    }
    assert_int_equal(fcap_backfill_read_done(own, NULL), FCAP_OK);
    for (int i = 0; i < STEPS_MAX && !is_done; i++) {
        assert_int_equal(fcap_backfill_step(own, now(), &is_done), FCAP_OK);
        world.now_ms += 100;
    }
    assert_true(is_done);
    fcap_backfill_report(own, &report);
    fcap_backfill_close(own);
}

static bool get(const char *user, size_t window, struct fcap_bytes *ret_value)
{
    char key[64];
    int64_t expire_at_ms;
    (void)snprintf(key, sizeof key, "fc:{%s}:%s", user, windows[window].name);
    return fcap_fake_redis_get(&world.redis, fcap_bytes_of(key), ret_value, &expire_at_ms);
}

/* No value goes back in time. */
static void check_order(void)
{
    for (size_t i = 0; i < USERS; i++) {
        char user[16];
        (void)snprintf(user, sizeof user, "u%zu", i);
        for (size_t window = 0; window < WINDOWS; window++) {
            struct fcap_bytes value;
            if (!get(user, window, &value)) {
                continue;
            }
            static const char start[] = "{\"v\":1,\"as_of\":";
            char text[32] = {0};
            assert_true(value.size > sizeof start + 13);
            memcpy(text, value.data + sizeof start - 1, 13);
            int64_t as_of = strtoll(text, NULL, 10);
            assert_true(as_of >= shown_as_of[i][window]);
            shown_as_of[i][window] = as_of;
        }
    }
}

static void step(void)
{
    if (fcap_pipeline_step(world.pipeline, 0) != FCAP_OK) {
        fail_msg("%s", fcap_pipeline_error(world.pipeline));
    }
}

static bool all_open;

static void see_task(void *context, const struct fcap_task_report *task)
{
    (void)context;
    bool is_read = task->next_offset == fake_topic_end(&world.topic, task->partition);
    all_open = all_open && task->gate_open && !task->projecting && is_read;
}

static void settle(void)
{
    struct fcap_pipeline_sizes sizes;
    int quiet = 0;
    for (int i = 0; i < STEPS_MAX && quiet < QUIET_STEPS; i++) {
        step();
        check_order();
        all_open = true;
        fcap_pipeline_report(world.pipeline, see_task, NULL);
        fcap_pipeline_sizes(world.pipeline, &sizes);
        bool is_quiet = all_open && sizes.push_backlog == 0 && sizes.flights == 0;
        quiet = is_quiet ? quiet + 1 : 0;
        world.now_ms += 20;
    }
    assert_int_equal(quiet, QUIET_STEPS);
}

static void add(const struct random_record *record)
{
    random_log_append(&world.topic, record);
    if (record->is_tombstone) {
        (void)oracle_tombstone(oracle, record->partition, record->offset, record->user);
        return;
    }
    struct oracle_event event = {.partition = record->partition,
                                 .offset = record->offset,
                                 .user = record->user,
                                 .ad = record->ad,
                                 .time_ms = record->time_ms};
    (void)oracle_add(oracle, &event);
}

/* --- cases --- */

static void compare_all(struct oracle_tally *tally)
{
    for (size_t i = 0; i < oracle_user_count(oracle); i++) {
        for (size_t window = 0; window < WINDOWS; window++) {
            struct oracle_expectation expectation = {.user = oracle_user(oracle, i),
                                                     .window_ms = windows[window].length_ms,
                                                     .at_min_ms = world.now_ms - 200,
                                                     .at_max_ms = world.now_ms};
            struct fcap_bytes value;
            bool found = get(expectation.user, window, &value);
            (void)oracle_check_value(oracle, &expectation, found ? (const char *)value.data : NULL,
                                     found ? value.size : 0, tally);
        }
    }
}

static void test_run_takes_over_from_nothing(void **state)
{
    struct oracle_tally tally = {0};
    for (uint64_t number = 1; number <= STREAMS; number++) {
        (void)teardown(state);
        (void)setup(state);
        struct random_log_options options = {
            .seed = number,
            .records = HISTORY + LIVE,
            .partitions = PARTITIONS,
            .users = USERS,
            .ads = 9,
            .now_ms = world.now_ms,
            .span_ms = HOUR_MS / 2,
            .skew_ms = SKEW_MS,
            .tombstones = 40,
        };
        struct random_record *records = random_log(&options);
        for (size_t i = 0; i < HISTORY; i++) {
            add(&records[i]);
        }
        backfill();
        assert_int_equal(report.partitions_open + report.partitions_fenced, 0);
        assert_true(report.keys_written > USERS);
        check_order();
        pipeline_world_start(&settings, random_log_decoder());
        for (size_t i = HISTORY; i < HISTORY + LIVE; i++) {
            add(&records[i]); /* While it reads and opens its gates. */
            step();
            check_order();
            world.now_ms += 10;
        }
        settle();
        compare_all(&tally);
        free(records);
    }
    char text[4096];
    struct oracle_minimum minimum = {.compared = 1000, .non_empty = 500, .absent = 50};
    if (!oracle_passes(&tally, &minimum, text, sizeof text)) {
        fail_msg("%s", text);
    }
    printf("result: %llu keys equal the definition after the pipeline has taken over\n",
           (unsigned long long)tally.compared);
}

/* A daemon refuses an event as too far ahead, and is down while backfill, later, counts it for a
 * user of whom the daemon's state says that he was erased. Only an epoch that is not its next one
 * makes it look at what it has projected before. */
static void run_other_verdict(bool claims_nothing)
{
    struct random_record record = {.timestamp_ms = world.now_ms,
                                   .timestamp_type = FCAP_TIMESTAMP_CREATE,
                                   .time_ms = world.now_ms - 1000,
                                   .user = "u0",
                                   .ad = "a"};
    struct fcap_bytes value;
    add(&record);
    record.offset = 1;
    record.is_tombstone = true;
    add(&record);
    record.offset = 2;
    record.is_tombstone = false;
    record.time_ms = world.now_ms + SKEW_MS + 60000;
    random_log_append(&world.topic, &record);
    pipeline_world_start(&settings, random_log_decoder());
    settle();
    assert_false(get("u0", 1, &value));
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->rejects[FCAP_REJECT_FUTURE], 1);
    assert_int_equal(fcap_pipeline_drain(world.pipeline, world.now_ms + 1000), FCAP_OK);
    pipeline_world_kill();

    world.now_ms += 10 * MINUTE_MS;
    seed.claims_nothing = claims_nothing;
    backfill();
    assert_true(get("u0", 1, &value));
    pipeline_world_start(&settings, random_log_decoder());
    settle();
    assert_int_equal(get("u0", 1, &value), claims_nothing);
}

static void test_an_erased_user_is_not_revived(void **state)
{
    (void)state;
    run_other_verdict(false);
}

static void test_without_a_claim_he_would_be(void **state)
{
    (void)state;
    run_other_verdict(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_run_takes_over_from_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_erased_user_is_not_revived, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_a_claim_he_would_be, setup, teardown),
    };
    return cmocka_run_group_tests_name("backfill_takeover", tests, NULL, NULL);
}
