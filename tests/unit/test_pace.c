/* The pace of steps: when the next one may wait, and who waits for others' timers to be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "unit/pipeline_world.h"

enum { FULL_STEP = 300 };

static void start(size_t work_per_step)
{
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    settings.records_per_step = FULL_STEP;
    settings.work_per_step = work_per_step;
    pipeline_world_start(&settings, &pipeline_world_decoder);
}

static void step(void)
{
    if (fcap_pipeline_step(world.pipeline, 0) != FCAP_OK) {
        fail_msg("%s", fcap_pipeline_error(world.pipeline));
    }
}

static void pass(int steps)
{
    for (int i = 0; i < steps; i++) {
        world.now_ms += 10;
        step();
    }
}

static void add_users(int count)
{
    for (int i = 0; i < count; i++) {
        char user[16];
        (void)snprintf(user, sizeof user, "u%d", i);
        pipeline_world_add(0, user, "ad", world.now_ms);
    }
}

static uint32_t draw_lowest(void *context, uint32_t bound)
{
    (void)context;
    (void)bound;
    return 0;
}

static int64_t clocks[2];
static bool gate_open;

static void take_report(void *context, const struct fcap_task_report *report)
{
    (void)context;
    clocks[report->partition] = report->clock_ms;
    gate_open = report->gate_open;
}

static void test_a_step_that_did_much_lets_the_next_one_wait(void **state)
{
    (void)state;
    start(20000);
    world.redis.draw = draw_lowest;
    world.sink.faults.slow_per_command = 1000; /* No epoch, no open gate. */
    pass(100);
    add_users(FULL_STEP - 1);
    uint64_t records = fcap_pipeline_counters(world.pipeline)->records;
    step();
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->records - records, FULL_STEP - 1);
    fcap_pipeline_report(world.pipeline, take_report, NULL);
    assert_false(gate_open);
    assert_false(fcap_pipeline_may_linger(world.pipeline));
    world.sink.faults.slow_per_command = 0;
    pass(100);
    fcap_pipeline_report(world.pipeline, take_report, NULL);
    assert_true(gate_open);
    assert_false(fcap_pipeline_may_linger(world.pipeline)); /* Nothing was done. */
    add_users(20);
    step();
    assert_false(fcap_pipeline_may_linger(world.pipeline)); /* Little was. */
    pass(1);
    add_users(FULL_STEP - 1);
    step();
    assert_true(fcap_pipeline_may_linger(world.pipeline));
}

static void test_what_was_left_over_is_not_kept_waiting(void **state)
{
    (void)state;
    start(20000);
    pass(100);
    add_users(2 * FULL_STEP - 1);
    step();
    assert_false(fcap_pipeline_may_linger(world.pipeline)); /* More records are there. */
    step();
    assert_true(fcap_pipeline_may_linger(world.pipeline));
    pass(100);
    world.redis.down = true;
    add_users(FULL_STEP - 1);
    step();
    assert_false(fcap_pipeline_may_linger(world.pipeline));
}

static void test_answers_are_taken_between_two_steps(void **state)
{
    struct fcap_pipeline_sizes sizes;
    (void)state;
    start(20000);
    pass(100);
    world.redis.draw = draw_lowest;
    world.sink.faults.slow_per_command = 1000; /* Redis does nothing, */
    add_users(FULL_STEP - 1);
    step();
    world.sink.faults.slow_per_command = 0; /* and then all of it. */
    fcap_pipeline_sizes(world.pipeline, &sizes);
    assert_true(sizes.flights > 0);
    for (int i = 0; i < FULL_STEP && sizes.flights > 0; i++) {
        fcap_pipeline_settle(world.pipeline);
        fcap_pipeline_sizes(world.pipeline, &sizes);
    }
    assert_int_equal(sizes.flights, 0);
}

/* --- timers --- */

static int setup_two(void **state)
{
    (void)state;
    pipeline_world_init(2);
    return 0;
}

/* Reading one bucket is more than a step may do: the other partition's turn comes one step later,
 * and no later than that. */
static void test_timers_are_read_for_one_partition_in_a_step(void **state)
{
    int waited = 0;
    (void)state;
    start(100);
    pass(200);
    fcap_pipeline_report(world.pipeline, take_report, NULL);
    assert_int_equal(clocks[0], clocks[1]);
    for (int64_t i = 0; i < 2 * PIPELINE_WORLD_HOUR_MS / 100; i++) {
        world.now_ms += 100;
        step();
        fcap_pipeline_report(world.pipeline, take_report, NULL);
        assert_int_equal(clocks[0], world.now_ms);
        if (clocks[1] != world.now_ms) {
            waited++;
            assert_false(fcap_pipeline_may_linger(world.pipeline));
            assert_in_range(clocks[1], world.now_ms - 100, world.now_ms - 1);
            step();
            fcap_pipeline_report(world.pipeline, take_report, NULL);
        }
        assert_int_equal(clocks[1], world.now_ms);
    }
    assert_true(waited > 10);
}

/* One that is far behind reads a lot in every step: that keeps nobody waiting. */
static void test_nobody_waits_for_a_partition_that_is_behind(void **state)
{
    (void)state;
    start(100);
    pass(200);
    fake_source_revoke(&world.source, 0, false);
    for (int i = 0; i < 100; i++) {
        world.now_ms += PIPELINE_WORLD_HOUR_MS / 10;
        pass(200);
    }
    fake_source_assign(&world.source, 0);
    pass(2);
    for (int i = 0; i < 100; i++) {
        world.now_ms += 90;
        pass(1);
        fcap_pipeline_report(world.pipeline, take_report, NULL);
        assert_in_range(clocks[0], 1, world.now_ms - PIPELINE_WORLD_HOUR_MS);
        assert_int_equal(clocks[1], world.now_ms);
    }
}

/* Nor for a window that is being built from an hour of timers. */
static void test_the_clock_moves_while_a_window_is_built(void **state)
{
    struct fcap_settings settings;
    (void)state;
    start(20000);
    add_users(1);
    pass(200);
    assert_int_equal(fcap_pipeline_drain(world.pipeline, world.now_ms + 1000), FCAP_OK);
    pipeline_world_kill();
    pipeline_world_settings(&settings);
    settings.windows[settings.window_count++] =
        (struct fcap_window){"2h", 2 * PIPELINE_WORLD_HOUR_MS};
    settings.work_per_step = 64;
    pipeline_world_start(&settings, &pipeline_world_decoder);
    pass(50);
    fcap_pipeline_report(world.pipeline, take_report, NULL);
    assert_int_equal(clocks[0], world.now_ms);
    assert_true(gate_open);
}

#define WORLD_TEST(function)                                                                       \
    cmocka_unit_test_setup_teardown(function, pipeline_world_setup, pipeline_world_teardown)
#define TWO_TEST(function)                                                                         \
    cmocka_unit_test_setup_teardown(function, setup_two, pipeline_world_teardown)

/* A look for each slice. */
static int64_t slice_clock_ms;

static int64_t slow_clock_ms(void)
{
    slice_clock_ms += 50;
    return slice_clock_ms;
}

static void start_slow(void)
{
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    settings.step_clock_ms = slow_clock_ms;
    pipeline_world_start(&settings, &pipeline_world_decoder);
}

/* B14: after hours without a daemon T has a long way, and each slice takes as long as slow storage
 * makes it: no step may go the whole way. */
static void test_a_long_way_on_slow_storage_is_gone_in_short_steps(void **state)
{
    (void)state;
    const int64_t away_ms = 70 * 60000;
    const int64_t slice_ms = 1000;
    start(20000);
    pass(100);
    pipeline_world_kill();
    world.now_ms += away_ms;
    int64_t begun_ms = world.now_ms;
    start_slow();
    for (int i = 0; i < 5; i++) {
        step(); /* It is assigned, and its state is read. */
    }
    fcap_pipeline_report(world.pipeline, take_report, NULL);
    int steps = 0;
    for (; clocks[0] < begun_ms && steps < 10000; steps++) {
        int64_t before_ms = clocks[0];
        int64_t at_ms = slice_clock_ms;
        step();
        fcap_pipeline_report(world.pipeline, take_report, NULL);
        if (clocks[0] - before_ms > 3 * slice_ms || clocks[0] < before_ms) {
            fail_msg("step %d: by %lld ms", steps, (long long)(clocks[0] - before_ms));
        }
        assert_true(slice_clock_ms - at_ms <= 200);
    }
    assert_true(steps > away_ms / slice_ms / 3 && steps < 10000);
    pass(300);
    fcap_pipeline_report(world.pipeline, take_report, NULL);
    assert_true(gate_open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_a_step_that_did_much_lets_the_next_one_wait),
        WORLD_TEST(test_what_was_left_over_is_not_kept_waiting),
        WORLD_TEST(test_answers_are_taken_between_two_steps),
        WORLD_TEST(test_the_clock_moves_while_a_window_is_built),
        WORLD_TEST(test_a_long_way_on_slow_storage_is_gone_in_short_steps),
        TWO_TEST(test_timers_are_read_for_one_partition_in_a_step),
        TWO_TEST(test_nobody_waits_for_a_partition_that_is_behind),
    };
    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
