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

#include "fcap/pipeline.h"

#include "lib/fake_sink.h"
#include "lib/fake_source.h"
#include "lib/fake_store.h"

#define NOW_MS  1700000000000ll
#define HOUR_MS 3600000ll

enum { STEPS_MAX = 10000, QUIET_STEPS = 100 };

struct world {
    struct fcap_clock clock;
    struct fcap_decoder decoder;
    int64_t now_ms;
    struct fake_topic topic;
    struct fake_source source;
    struct fake_store *store;
    struct fcap_fake_redis redis;
    struct fcap_fake_sink sink;
    struct fcap_pipeline *pipeline;
    struct fcap_task_report report;
    uint64_t alive;
};

static struct world world;

static int64_t now_ms(struct fcap_clock *clock)
{
    (void)clock;
    return world.now_ms;
}

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
    world.alive++;
}

static void open_pipeline(void)
{
    struct fcap_settings settings;
    struct fcap_error error;
    fcap_settings_default(&settings);
    settings.profile = "test";
    settings.key_pattern = "fc:{%u}:%w";
    settings.session_timeout_ms = 1000;
    settings.alive = alive;
    settings.window_count = 1;
    settings.windows[0] = (struct fcap_window){"1h", HOUR_MS};
    fake_source_init(&world.source, &world.topic);
    fcap_fake_sink_open(&world.sink, &world.redis, &world.clock, "fcapd:test:i:0");
    struct fcap_ports ports = {.clock = &world.clock,
                               .decoder = &world.decoder,
                               .source = &world.source.port,
                               .store = fake_store_handle(world.store),
                               .sink = &world.sink.sink};
    assert_int_equal(fcap_pipeline_open(&settings, &ports, &world.pipeline, &error), FCAP_OK);
    fake_source_assign(&world.source, 0);
}

static void end_process(void)
{
    if (world.pipeline != NULL) {
        fcap_pipeline_close(world.pipeline);
        world.pipeline = NULL;
        fcap_fake_sink_close(&world.sink);
        fake_source_done(&world.source);
        fake_store_crash(world.store, 0);
    }
}

static void close_pipeline(void)
{
    assert_int_equal(fcap_pipeline_drain(world.pipeline, world.now_ms + 1000), FCAP_OK);
    end_process();
}

static int setup(void **state)
{
    (void)state;
    world = (struct world){.clock = {now_ms, now_ms}, .decoder = {decode}, .now_ms = NOW_MS};
    fake_topic_init(&world.topic, 1);
    world.store = fake_store_open(NULL);
    fcap_fake_redis_init(&world.redis, &world.clock);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    end_process();
    fcap_fake_redis_done(&world.redis);
    fake_store_close(world.store);
    fake_topic_done(&world.topic);
    return 0;
}

static void add_event(int64_t time_ms)
{
    (void)fake_topic_append(&world.topic, 0, fcap_bytes_of("u"), fcap_bytes_of("v"), time_ms,
                            FCAP_TIMESTAMP_APPEND);
}

static void add_tombstone(void)
{
    (void)fake_topic_append(&world.topic, 0, fcap_bytes_of("u"), FCAP_BYTES_NONE, world.now_ms,
                            FCAP_TIMESTAMP_APPEND);
}

static void take_report(void *context, const struct fcap_task_report *report)
{
    (void)context;
    world.report = *report;
}

/* Steps until everything is read, shown and committed; time passes meanwhile. */
static void settle(void)
{
    struct fcap_pipeline_sizes sizes = {0};
    int64_t end = fake_topic_end(&world.topic, 0);
    int quiet = 0;
    world.report = (struct fcap_task_report){0};
    for (int i = 0; i < STEPS_MAX; i++) {
        if (fcap_pipeline_step(world.pipeline, 0) != FCAP_OK) {
            fail_msg("%s", fcap_pipeline_error(world.pipeline));
        }
        fcap_pipeline_report(world.pipeline, take_report, NULL);
        fcap_pipeline_sizes(world.pipeline, &sizes);
        bool is_quiet = world.report.gate_open && !world.report.projecting &&
                        world.report.committed_offset == end && sizes.push_backlog == 0 &&
                        sizes.flights == 0;
        quiet = is_quiet ? quiet + 1 : 0;
        if (quiet == QUIET_STEPS) {
            return;
        }
        world.now_ms += 10;
    }
    fail_msg("nothing settles: next offset %lld, gate %d", (long long)world.report.next_offset,
             world.report.gate_open);
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

static void test_a_shown_window_is_kept_up_after_a_gap(void **state)
{
    (void)state;
    add_event(NOW_MS - HOUR_MS / 2);
    open_pipeline();
    settle();
    check_counts("{\"a\":1}");
    assert_int_equal(world.report.ready_mask, 1);
    close_pipeline();

    add_event(world.now_ms); /* Lost: retention takes it before it is read. */
    add_event(world.now_ms);
    add_event(world.now_ms);
    fake_topic_trim(&world.topic, 0, 2);
    open_pipeline();
    settle();
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->gaps, 1);
    assert_int_equal(world.report.ready_mask, 0);
    check_counts("{\"a\":3}");

    /* It goes on living: events come, and events leave. */
    add_event(world.now_ms);
    settle();
    check_counts("{\"a\":4}");
    world.now_ms = NOW_MS + HOUR_MS / 2 + 10;
    settle();
    assert_int_equal(world.report.ready_mask, 0);
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
    assert_int_equal(world.report.ready_mask, 0);
    check_counts(NULL);
    add_event(world.now_ms + HOUR_MS);
    world.now_ms += HOUR_MS + 300000; /* The stamp may be that much ahead of the event. */
    settle();
    assert_int_equal(world.report.ready_mask, 1);
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
    end_process();
    world.alive = 0;
    open_pipeline();
    settle();
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->redo_events, 5);
    assert_true(world.alive >= 5); /* Each event lies in a bucket of its own. */
    check_counts("{\"a\":5}");
    close_pipeline();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_shown_window_is_kept_up_after_a_gap, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_window_that_was_never_shown_is_held_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_nothing_stays_of_an_erased_user, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_erased_user_may_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_redo_shows_that_it_lives, setup, teardown),
    };
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
