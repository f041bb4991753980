/* The core on a store, a topic and a Redis in memory, in one partition and one window: what a gap
 * and a tombstone leave behind, and a crash. */
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

enum { STEPS_MAX = 10000, QUIET_STEPS = 100 };

static struct fcap_task_report report;
static uint64_t alive_calls;

/* The key is the user, the timestamp the event's time; every ad is "a"; null erases. */
static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    *ret_event = (struct fcap_event){
        .user = record->key,
        .ad = fcap_bytes_of("a"),
        .time_ms = record->timestamp_ms,
        .is_tombstone = record->value.data == NULL,
    };
    return FCAP_REJECT_NONE;
}

static void alive(void *context)
{
    (void)context;
    alive_calls++;
}

static void open_pipeline(void)
{
    static struct fcap_decoder decoder = {decode};
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    settings.session_timeout_ms = 1000;
    settings.alive = alive;
    pipeline_world_start(&settings, &decoder);
}

static void close_pipeline(void)
{
    assert_int_equal(fcap_pipeline_drain(world.pipeline, world.now_ms + 1000), FCAP_OK);
    pipeline_world_kill();
}

static void add_event(int64_t time_ms)
{
    pipeline_world_add(0, "u", "v", time_ms);
}

static void add_tombstone(void)
{
    pipeline_world_add(0, "u", NULL, world.now_ms);
}

static void take_report(void *context, const struct fcap_task_report *now)
{
    (void)context;
    report = *now;
}

/* Steps until everything is read, shown and committed; time passes meanwhile. */
static void settle(void)
{
    struct fcap_pipeline_sizes sizes = {0};
    int64_t end = fake_topic_end(&world.topic, 0);
    int quiet = 0;
    report = (struct fcap_task_report){0};
    for (int i = 0; i < STEPS_MAX; i++) {
        if (fcap_pipeline_step(world.pipeline, 0) != FCAP_OK) {
            fail_msg("%s", fcap_pipeline_error(world.pipeline));
        }
        fcap_pipeline_report(world.pipeline, take_report, NULL);
        fcap_pipeline_sizes(world.pipeline, &sizes);
        bool is_quiet = report.gate_open && !report.projecting && report.committed_offset == end &&
                        sizes.push_backlog == 0 && sizes.flights == 0;
        quiet = is_quiet ? quiet + 1 : 0;
        if (quiet == QUIET_STEPS) {
            return;
        }
        world.now_ms += 10;
    }
    fail_msg("nothing settles: next offset %lld, gate %d", (long long)report.next_offset,
             report.gate_open);
}

/* The counts that Redis shows; NULL: no key. */
static void check_counts(const char *counts)
{
    struct fcap_bytes value;
    int64_t expire_at_ms;
    bool is_there =
        fcap_fake_redis_get(&world.redis, fcap_bytes_of("fc:{u}:1h"), &value, &expire_at_ms);
    if (counts == NULL) {
        assert_false(is_there);
        return;
    }
    assert_true(is_there);
    assert_non_null(memmem(value.data, value.size, counts, strlen(counts)));
}

static enum fake_store_fate fail_all(void *context, const struct fcap_batch *batch)
{
    (void)context;
    (void)batch;
    return FAKE_STORE_FAIL;
}

/* A disk that fails ends the process: it must come to an end, and the next one goes on. */
static void test_a_store_that_fails_for_good(void **state)
{
    enum fcap_status status = FCAP_OK;
    (void)state;
    add_event(NOW_MS - HOUR_MS / 2);
    open_pipeline();
    settle();
    add_event(NOW_MS);
    world.store_hooks.commit = fail_all;
    world.store_hooks.failure = FCAP_IO;
    for (int i = 0; i < STEPS_MAX && status == FCAP_OK; i++) {
        status = fcap_pipeline_step(world.pipeline, 0);
        world.now_ms += 10;
    }
    assert_int_equal(status, FCAP_IO);
    assert_string_equal(fcap_pipeline_error(world.pipeline),
                        "write a commit: input or output failed");
    assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_IO);
    pipeline_world_kill(); /* Closes it. */
    world.store_hooks.commit = NULL;
    open_pipeline();
    settle();
    check_counts("{\"a\":2}");
}

static void test_a_shown_window_is_kept_up_after_a_gap(void **state)
{
    (void)state;
    add_event(NOW_MS - HOUR_MS / 2);
    open_pipeline();
    settle();
    check_counts("{\"a\":1}");
    assert_int_equal(report.ready_mask, 1);
    close_pipeline();

    add_event(world.now_ms); /* Lost: retention takes it before it is read. */
    add_event(world.now_ms);
    add_event(world.now_ms);
    fake_topic_trim(&world.topic, 0, 2);
    open_pipeline();
    settle();
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->gaps[FCAP_GAP_BELOW_START], 1);
    assert_int_equal(report.ready_mask, 0);
    check_counts("{\"a\":3}");

    /* It goes on living: events come, and events leave. */
    add_event(world.now_ms);
    settle();
    check_counts("{\"a\":4}");
    world.now_ms = NOW_MS + HOUR_MS / 2 + 10;
    settle();
    assert_int_equal(report.ready_mask, 0);
    check_counts("{\"a\":3}");

    /* Also in a Redis that was emptied meanwhile. */
    fcap_fake_redis_flush(&world.redis);
    check_counts(NULL);
    world.now_ms += 5000;
    settle();
    world.now_ms += 5000;
    settle();
    check_counts("{\"a\":3}");
    close_pipeline();
}

static void test_a_window_that_was_never_shown_is_held_back(void **state)
{
    (void)state;
    add_event(NOW_MS - 3000);
    add_event(NOW_MS - 2000);
    fake_topic_trim(&world.topic, 0, 1);
    open_pipeline();
    settle();
    assert_int_equal(report.ready_mask, 0);
    check_counts(NULL);
    add_event(world.now_ms + HOUR_MS);
    world.now_ms += HOUR_MS + 360000; /* Stamps may be off by the skew and the slack. */
    settle();
    assert_int_equal(report.ready_mask, 1);
    check_counts("{\"a\":1}");
    close_pipeline();
}

/* The mark of a tombstone, the last that is known of the user, goes when nothing needs it. */
static void test_nothing_stays_of_an_erased_user(void **state)
{
    (void)state;
    add_event(NOW_MS - HOUR_MS / 2);
    open_pipeline();
    settle();
    add_tombstone();
    settle();
    check_counts(NULL);
    int64_t erased_ms = world.now_ms;
    close_pipeline();
    assert_int_equal(fake_store_pairs(world.store, FCAP_FAMILY_USERS), 1);

    /* The events from before stay erased while their timers are there. */
    open_pipeline();
    world.now_ms = NOW_MS + HOUR_MS / 2 + 1000;
    settle();
    check_counts(NULL);
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->underflows, 0);
    close_pipeline();
    assert_int_equal(fake_store_pairs(world.store, FCAP_FAMILY_USERS), 1);

    open_pipeline();
    world.now_ms = erased_ms + HOUR_MS + 2000;
    settle();
    close_pipeline();
    assert_int_equal(fake_store_pairs(world.store, FCAP_FAMILY_USERS), 0);
}

/* One that comes back counts from then on. */
static void test_an_erased_user_may_come_back(void **state)
{
    (void)state;
    add_event(NOW_MS - 1000);
    open_pipeline();
    settle();
    add_tombstone();
    add_event(world.now_ms);
    int64_t back_ms = world.now_ms;
    settle();
    check_counts("{\"a\":1}");
    world.now_ms = back_ms + HOUR_MS - 5000;
    add_event(world.now_ms);
    settle();
    check_counts("{\"a\":2}");
    world.now_ms = back_ms + HOUR_MS + 5000;
    settle();
    check_counts("{\"a\":1}");
    close_pipeline();
    assert_int_equal(fake_store_pairs(world.store, FCAP_FAMILY_USERS), 1);
    open_pipeline();
    world.now_ms = back_ms + 2 * HOUR_MS + 5000;
    settle();
    check_counts(NULL);
    close_pipeline();
    assert_int_equal(fake_store_pairs(world.store, FCAP_FAMILY_USERS), 0);
}

/* After a crash a partition may have much to catch up on inside of one step. */
static void test_redo_shows_that_it_lives(void **state)
{
    (void)state;
    open_pipeline();
    for (int i = 0; i < 5; i++) {
        add_event(world.now_ms);
        settle();
    }
    check_counts("{\"a\":5}");
    pipeline_world_kill();
    alive_calls = 0;
    open_pipeline();
    settle();
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->redo_events, 5);
    assert_true(alive_calls >= 5); /* Each event lies in a bucket of its own. */
    check_counts("{\"a\":5}");
    close_pipeline();
}

/* The patience of a stop is spent once: leaving the group after it takes no more of it. */
static void test_a_revoke_after_a_vain_drain_does_not_wait(void **state)
{
    (void)state;
    const int32_t partition = 0;
    open_pipeline();
    settle();
    world.redis.down = true;
    add_event(world.now_ms);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
    }
    world.tick_ms = 1;
    assert_int_equal(fcap_pipeline_drain(world.pipeline, world.now_ms + 100), FCAP_TIMEOUT);
    int64_t begun_ms = world.now_ms;
    const struct fcap_source_handler *handler = fcap_pipeline_handler(world.pipeline);
    handler->revoked(handler->context, &partition, 1, false);
    assert_in_range(world.now_ms - begun_ms, 0, 20);
}

static int setup_two(void **state)
{
    (void)state;
    pipeline_world_init(2);
    return 0;
}

static void step_many(void)
{
    for (int i = 0; i < STEPS_MAX / 2; i++) {
        assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
        world.now_ms += 10;
    }
}

static bool is_shown(const char *key)
{
    struct fcap_bytes value;
    int64_t expire_at_ms;
    return fcap_fake_redis_get(&world.redis, fcap_bytes_of(key), &value, &expire_at_ms);
}

/* A look at every partition for a user must not leave an empty user behind in those that know none
 * of that name: with the next full projection it took the keys away. */
static void test_a_look_leaves_no_trace(void **state)
{
    static const char *const users[] = {"u", "w"}; /* one in each partition */
    struct fcap_buffer text = {0};
    struct fcap_pipeline_sizes before, after;
    (void)state;
    pipeline_world_add(0, "u", "v", NOW_MS - 1000);
    pipeline_world_add(1, "w", "v", NOW_MS - 1000);
    open_pipeline();
    step_many();
    assert_true(is_shown("fc:{u}:1h") && is_shown("fc:{w}:1h"));
    fcap_pipeline_sizes(world.pipeline, &before);
    for (int32_t partition = 0; partition < 2; partition++) {
        for (size_t i = 0; i < 2; i++) {
            fcap_buffer_clear(&text);
            assert_true(fcap_pipeline_inspect(world.pipeline, partition, fcap_bytes_of(users[i]), 0,
                                              &text));
            bool is_there = memmem(text.data, text.size, "\"a\":1", 5) != NULL;
            assert_int_equal(is_there, (size_t)partition == i);
        }
    }
    fcap_pipeline_sizes(world.pipeline, &after);
    fcap_fake_redis_flush(&world.redis);
    step_many();
    assert_true(is_shown("fc:{u}:1h") && is_shown("fc:{w}:1h"));
    assert_int_equal(after.cache_users, before.cache_users);
    fcap_buffer_done(&text);
    close_pipeline();
}

#define WORLD_TEST(function)                                                                       \
    cmocka_unit_test_setup_teardown(function, pipeline_world_setup, pipeline_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_look_leaves_no_trace, setup_two,
                                        pipeline_world_teardown),
        WORLD_TEST(test_a_store_that_fails_for_good),
        WORLD_TEST(test_a_shown_window_is_kept_up_after_a_gap),
        WORLD_TEST(test_a_window_that_was_never_shown_is_held_back),
        WORLD_TEST(test_nothing_stays_of_an_erased_user),
        WORLD_TEST(test_an_erased_user_may_come_back),
        WORLD_TEST(test_redo_shows_that_it_lives),
        WORLD_TEST(test_a_revoke_after_a_vain_drain_does_not_wait),
    };
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
