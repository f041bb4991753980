/* Partitions were added, and until users are known to be where they are much is in doubt
 * (docs/decisions/0015): that stays so when the settings are changed meanwhile, when the wall clock
 * leaped as they were added, and when a window takes another one's name. On the core, with a store,
 * a topic and a Redis in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fcap/rebuild.h"
#include "unit/growth_world.h"

#define HOUR_MS PIPELINE_WORLD_HOUR_MS

/* A user that has moved, and was heard of in its old place after the growth, too. */
static void move_a_user(void)
{
    world_start();
    world_add(0, "moved", "a");
    world_pass(MINUTE_MS);
    world_grow();
    world_add(0, "moved", "b"); /* From a producer that has not learned yet. */
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"a\":1,\"b\":1}");
}

/* All producers have learned: that the skew is smaller now makes nobody unlearn it. */
static void test_a_smaller_skew(void **state)
{
    (void)state;
    move_a_user();
    world_pass(5 * MINUTE_MS);
    world_add(2, "moved", "c");
    world_pass(MINUTE_MS / 2);
    world_expect("moved", "{\"c\":1}");
    pipeline_world_kill();
    growth_settings.future_skew_ms = 0;
    world_start();
    world_pass(MINUTE_MS / 2);
    assert_true(fcap_pipeline_rebuild(world.pipeline, 0)); /* Or a handover of the partition. */
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"c\":1}");
}

/* What was refused so far may count from now on, and says less about where its user is. */
static void test_a_larger_skew(void **state)
{
    (void)state;
    growth_settings.future_skew_ms = 0;
    move_a_user();
    struct fcap_task_report before = world_report(0);
    pipeline_world_kill();
    pipeline_world_add(0, "moved", "d", world.now_ms + 8 * MINUTE_MS);
    growth_settings.future_skew_ms = 10 * MINUTE_MS;
    growth_settings.producer_refresh_ms += MINUTE_MS;
    world_start();
    world_pass(MINUTE_MS);
    for (int run = 0; run < 2; run++) {
        struct fcap_task_report after = world_report(0);
        assert_int_equal(after.complete_since_ms, before.complete_since_ms + 11 * MINUTE_MS);
        assert_int_equal(after.lost.count, 1);
        assert_int_equal(after.lost.spans[0].since_ms, after.complete_since_ms);
        assert_int_equal(after.gaps, 0);
        pipeline_world_kill();
        growth_settings.future_skew_ms = 0; /* It is not taken back. */
        growth_settings.producer_refresh_ms = 0;
        world_start();
        world_pass(MINUTE_MS);
    }
    world_add(2, "moved", "c");
    world_pass(20 * MINUTE_MS);
    world_expect("moved", "{\"c\":1}");
}

/* What everything beyond the moment settles is settled: later settings do not open it again. */
static void test_settings_of_later(void **state)
{
    (void)state;
    move_a_user();
    world_pass(12 * MINUTE_MS);
    struct fcap_task_report before = world_report(0);
    pipeline_world_kill();
    growth_settings.producer_refresh_ms = 30 * MINUTE_MS;
    world_start();
    world_pass(MINUTE_MS);
    assert_int_equal(world_report(0).complete_since_ms, before.complete_since_ms);
}

/* The growth was noticed while the wall clock was an hour ahead. */
static void grow_in_a_leap(void)
{
    world_start();
    world_add(0, "stays", "a");
    world_add(0, "erased", "a");
    world_pass(MINUTE_MS);
    world.wall_ahead_ms = HOUR_MS;
    world_grow();
    world.wall_ahead_ms = 0;
    world_pass(MINUTE_MS);
}

static void test_an_erasure_after_a_leap(void **state)
{
    (void)state;
    grow_in_a_leap();
    world_expect("erased", "{\"a\":1}");
    world_add(0, "erased", NULL);
    world_pass(MINUTE_MS);
    world_expect("erased", NULL);
}

static void test_an_erasure_during_a_leap(void **state)
{
    (void)state;
    world_start();
    world_add(0, "erased", "a");
    world_pass(MINUTE_MS);
    world.wall_ahead_ms = HOUR_MS;
    world_grow();
    world_add(0, "erased", NULL);
    world_pass(MINUTE_MS);
    world_expect("erased", NULL);
}

static void test_a_user_that_stays_after_a_leap(void **state)
{
    (void)state;
    grow_in_a_leap();
    world_add(0, "stays", "b");
    world_pass(MINUTE_MS);
    world_expect("stays", "{\"a\":1,\"b\":1}"); /* As far as can be known. */
    world_pass(12 * MINUTE_MS);
    world_add(0, "stays", "c");
    world_pass(MINUTE_MS);
    world_expect("stays", "{\"a\":1,\"b\":1,\"c\":1}"); /* For certain. */
}

/* Of windows named `1h` and `3h`; then `3h` becomes the name of a shorter one. */
static void run_with_two_windows(void)
{
    growth_settings.window_count = 2;
    growth_settings.windows[1] = (struct fcap_window){"3h", 3 * HOUR_MS};
    world_start();
    world_add(0, "silent", "a");
    world_add(0, "moved", "a");
    world_pass(MINUTE_MS);
    world_grow();
    world_add(2, "moved", "b");
    world_pass(90 * MINUTE_MS);
    world_expect_in("silent", "3h", "{\"a\":1}");
    world_expect_in("moved", "3h", "{\"b\":1}");
    assert_int_equal(world_report(0).ready_mask, 1);
    pipeline_world_kill();
}

/* Nobody knows where a silent user is: its key, which is of a longer window, goes with the name. */
static void test_a_name_that_was_another_windows(void **state)
{
    (void)state;
    run_with_two_windows();
    growth_settings.window_count = 1;
    growth_settings.windows[0] = (struct fcap_window){"3h", HOUR_MS};
    world_start();
    world_pass(MINUTE_MS);
    world_expect_in("silent", "3h", NULL);
    world_expect_in("moved", "3h", NULL);
}

/* The first window, as fc:meta would tell it. */
static bool is_ready(int32_t partition)
{
    struct fcap_task_report report = world_report(partition);
    return report.gate_open && (report.ready_mask & report.projected_mask & 1) != 0;
}

/* Its new place may have shown the user under that name by then: what is taken away with the old
 * key is missing from a window that says so. */
static void test_a_name_that_the_new_place_has_taken(void **state)
{
    (void)state;
    run_with_two_windows();
    growth_settings.windows[0] = (struct fcap_window){"3h", HOUR_MS / 2};
    growth_settings.windows[1] = (struct fcap_window){"long", 3 * HOUR_MS};
    world_start();
    fake_source_revoke(&world.source, 0, false);
    fake_source_revoke(&world.source, 1, false);
    world_pass(MINUTE_MS);
    world_add(2, "moved", "c");
    world_pass(MINUTE_MS);
    world_expect_in("moved", "3h", "{\"c\":1}");
    fake_source_assign(&world.source, 0);
    fake_source_assign(&world.source, 1);
    for (int i = 0; i < 120; i++) {
        world_pass(MINUTE_MS / 2);
        if (is_ready(0) && is_ready(2)) {
            world_expect_in("moved", "3h", i < 57 ? "{\"c\":1}" : NULL);
            world_expect_in("silent", "3h", NULL);
        }
    }
    assert_true(is_ready(0) && is_ready(1) && is_ready(2));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, growth_setup, growth_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_a_smaller_skew),
        CASE(test_a_larger_skew),
        CASE(test_settings_of_later),
        CASE(test_an_erasure_after_a_leap),
        CASE(test_an_erasure_during_a_leap),
        CASE(test_a_user_that_stays_after_a_leap),
        CASE(test_a_name_that_was_another_windows),
        CASE(test_a_name_that_the_new_place_has_taken),
    };
    return cmocka_run_group_tests_name("growth in doubt", tests, NULL, NULL);
}
