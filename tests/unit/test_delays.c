/* How late values reach Redis: the buckets, and what the pipeline counts as a delay. On the core,
 * with a store, a topic and a Redis in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "unit/pipeline_world.h"

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    *ret_event = (struct fcap_event){
        .user = record->key, .ad = record->value, .time_ms = record->timestamp_ms};
    return FCAP_REJECT_NONE;
}

static int64_t cpu_ns(void)
{
    static int64_t now_ns = 1;
    return now_ns += 1000; /* Each stage takes a microsecond. */
}

static void start_holding(int64_t hold_ms)
{
    static struct fcap_decoder decoder = {decode};
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    settings.commit_interval_ms = 20;
    settings.cpu_ns = cpu_ns;
    settings.expiry_hold_ms = hold_ms;
    pipeline_world_start(&settings, &decoder);
}

static void start(void)
{
    start_holding(0);
}

static void step(int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
    }
}

static const struct fcap_delay_histogram *freshness(void)
{
    return &fcap_pipeline_delays(world.pipeline)->freshness_seconds;
}

static const struct fcap_delay_histogram *lateness(void)
{
    return &fcap_pipeline_delays(world.pipeline)->expiry_lateness_seconds;
}

static uint64_t count_of(const struct fcap_delay_histogram *histogram)
{
    uint64_t count = 0;
    for (size_t i = 0; i <= FCAP_DELAY_BUCKETS; i++) {
        count += histogram->counts[i];
    }
    return count;
}

static void puts_every_delay_into_its_bucket(void **state)
{
    (void)state;
    int64_t before_ms = -1;
    for (size_t i = 0; i < FCAP_DELAY_BUCKETS; i++) {
        struct fcap_delay_histogram histogram = {0};
        int64_t bound_ms = fcap_delay_bound_ms(i);
        assert_true(bound_ms > before_ms);
        assert_true((bound_ms - before_ms) * FCAP_DELAY_PARTS <= before_ms + 1 ||
                    bound_ms - before_ms == 1);
        fcap_delay_observe(&histogram, before_ms + 1);
        fcap_delay_observe(&histogram, bound_ms);
        assert_int_equal(histogram.counts[i], 2);
        assert_int_equal(histogram.sum_ms, before_ms + 1 + bound_ms);
        before_ms = bound_ms;
    }
    assert_int_equal(before_ms, 131071);
    struct fcap_delay_histogram odd = {0};
    fcap_delay_observe(&odd, -5);
    fcap_delay_observe(&odd, before_ms + 1);
    fcap_delay_observe(&odd, INT64_MAX);
    assert_int_equal(odd.counts[0], 1);
    assert_int_equal(odd.counts[FCAP_DELAY_BUCKETS], 2);
}

static void counts_from_the_timestamp_to_the_answer(void **state)
{
    (void)state;
    pipeline_world_add(0, "before", "a", world.now_ms - 30);
    start();
    step(20); /* The gate opens. */
    assert_true(world.redis.commands_done > 0);
    assert_int_equal(count_of(freshness()), 0); /* What came before says nothing. */
    pipeline_world_add(0, "u", "a", world.now_ms - 40);
    pipeline_world_add(0, "u", "a", world.now_ms - 10);
    step(3);
    assert_int_equal(count_of(freshness()), 1); /* One value, the older of two records. */
    assert_int_equal(freshness()->sum_ms, 40);
    pipeline_world_add(0, "u", "a", 5); /* A timestamp of no meaning. */
    step(3);
    assert_int_equal(count_of(freshness()), 1);
    assert_int_equal(count_of(lateness()), 0);
}

static void counts_on_when_redis_refuses(void **state)
{
    (void)state;
    start();
    step(20);
    world.redis.full = true;
    pipeline_world_add(0, "u", "a", world.now_ms - 40);
    step(3);
    world.now_ms += 100;
    step(3);
    assert_int_equal(count_of(freshness()), 0);
    world.redis.full = false;
    world.now_ms += 200;
    step(3);
    assert_int_equal(count_of(freshness()), 1);
    assert_int_equal(freshness()->sum_ms, 340);
}

static void counts_from_the_end_of_the_window(void **state)
{
    (void)state;
    start();
    step(20);
    int64_t event_ms = world.now_ms;
    pipeline_world_add(0, "u", "a", event_ms);
    pipeline_world_add(0, "u", "b", event_ms + 5000);
    step(3);
    for (int64_t late_ms = -1000; late_ms <= 7; late_ms += 1007) {
        world.now_ms = event_ms + PIPELINE_WORLD_HOUR_MS + late_ms;
        step(5000); /* T moves in slices. */
        assert_int_equal(count_of(lateness()), late_ms < 0 ? 0 : 1);
    }
    assert_int_equal(lateness()->sum_ms, 7);
    assert_int_equal(count_of(freshness()), 1);
}

static uint64_t pushes(void)
{
    return fcap_pipeline_counters(world.pipeline)->pushes_set;
}

/* Four events whose window is over one after the other. */
static int64_t send_four(void)
{
    int64_t event_ms = world.now_ms;
    for (int i = 0; i < 4; i++) {
        pipeline_world_add(0, "u", "a", event_ms + (int64_t)i * 10);
    }
    pipeline_world_add(0, "u", "b", event_ms + 5000);
    world.now_ms += 5000;
    step(200);
    world.now_ms = event_ms + PIPELINE_WORLD_HOUR_MS - 1;
    step(5000); /* T moves in slices. */
    return event_ms + PIPELINE_WORLD_HOUR_MS;
}

static void an_expiry_waits_a_little_for_the_next(void **state)
{
    (void)state;
    start_holding(100);
    step(20);
    int64_t due_ms = send_four();
    uint64_t before = pushes();
    for (world.now_ms = due_ms; world.now_ms < due_ms + 100; world.now_ms++) {
        step(3);
    }
    assert_int_equal(pushes(), before);
    step(3);
    assert_int_equal(pushes(), before + 1);
    assert_int_equal(lateness()->sum_ms, 100);
}

static void an_expiry_goes_with_what_is_seen_meanwhile(void **state)
{
    (void)state;
    start_holding(100);
    step(20);
    world.now_ms = send_four() + 50;
    uint64_t before = pushes();
    step(3);
    assert_int_equal(pushes(), before);
    pipeline_world_add(0, "u", "c", world.now_ms);
    step(3);
    assert_int_equal(pushes(), before + 1);
    assert_int_equal(lateness()->sum_ms, 50);
}

static void neither_a_drain_nor_a_clock_set_back_waits(void **state)
{
    (void)state;
    start_holding(100);
    step(20);
    world.now_ms = send_four();
    uint64_t before = pushes();
    step(3);
    assert_int_equal(pushes(), before);
    assert_int_equal(fcap_pipeline_drain(world.pipeline, world.now_ms + 1), FCAP_OK);
    assert_int_equal(pushes(), before + 1);
    world.now_ms += 10;
    step(3);
    world.now_ms -= PIPELINE_WORLD_HOUR_MS;
    step(3);
    assert_int_equal(pushes(), before + 2);
}

static void measures_one_step_of_sixteen_for_all(void **state)
{
    (void)state;
    start();
    step(2 * FCAP_STAGE_EVERY);
    for (int i = 0; i < FCAP_STAGE_COUNT; i++) {
        assert_int_equal(fcap_pipeline_delays(world.pipeline)->stage_cpu_ns[i],
                         2 * FCAP_STAGE_EVERY * 1000);
        assert_true(fcap_stage_name((enum fcap_stage)i)[0] != '\0');
    }
}

#define WORLD_TEST(function)                                                                       \
    cmocka_unit_test_setup_teardown(function, pipeline_world_setup, pipeline_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_every_delay_into_its_bucket),
        WORLD_TEST(counts_from_the_timestamp_to_the_answer),
        WORLD_TEST(counts_on_when_redis_refuses),
        WORLD_TEST(counts_from_the_end_of_the_window),
        WORLD_TEST(an_expiry_waits_a_little_for_the_next),
        WORLD_TEST(an_expiry_goes_with_what_is_seen_meanwhile),
        WORLD_TEST(neither_a_drain_nor_a_clock_set_back_waits),
        WORLD_TEST(measures_one_step_of_sixteen_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
