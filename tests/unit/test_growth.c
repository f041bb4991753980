/* Partitions are added to the topic: where users are, what is written meanwhile, and what is ready
 * (docs/decisions/0015). On the core, with a store, a topic and a Redis in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/rebuild.h"
#include "unit/growth_world.h"

/* What an old partition knows of a user that has moved is neither shown nor taken away. */
static void test_a_moved_user_is_left_to_its_new_partition(void **state)
{
    (void)state;
    world_start();
    world_add(0, "moved", "a");
    world_add(0, "silent", "a");
    world_pass(20 * MINUTE_MS);
    world_add(0, "moved", "b");
    world_add(0, "silent", "b");
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"a\":1,\"b\":1}");
    world_grow();
    world_add(2, "moved", "c");
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"c\":1}");
    world_pass(39 * MINUTE_MS); /* Its first event leaves the old partition's window, */
    world_expect("moved", "{\"c\":1}");
    world_expect("silent", "{\"a\":1,\"b\":1}"); /* (this one may be anywhere) */
    world_pass(19 * MINUTE_MS + MINUTE_MS / 3);  /* and its second one. */
    world_expect("moved", "{\"c\":1}");
    world_expect("silent", NULL); /* By its PXAT. */
}

static void test_an_erased_user_stays_erased(void **state)
{
    (void)state;
    world_start();
    world_add(0, "moved", "a");
    world_pass(20 * MINUTE_MS);
    world_add(0, "moved", "b");
    world_pass(MINUTE_MS);
    world_grow();
    world_add(2, "moved", NULL);
    world_pass(MINUTE_MS);
    world_expect("moved", NULL);
    for (int i = 0; i < 40; i++) {
        world_pass(MINUTE_MS);
        world_expect("moved", NULL);
    }
    fcap_fake_redis_flush(&world.redis); /* Everything is projected. */
    world_pass(MINUTE_MS);
    world_expect("moved", NULL);
}

/* The tombstone may come to the old partition, from a producer that has not learned yet. */
static void test_an_erasure_in_the_old_partition_is_shown(void **state)
{
    (void)state;
    world_start();
    world_add(0, "erased", "a");
    world_pass(MINUTE_MS);
    world_grow();
    world_expect("erased", "{\"a\":1}");
    world_add(0, "erased", NULL);
    world_pass(MINUTE_MS);
    world_expect("erased", NULL);
}

/* It was sent while nobody was there to see the growth. */
static void test_an_erasure_while_stopped_is_shown(void **state)
{
    (void)state;
    world_start();
    world_add(0, "moved", "a");
    world_pass(MINUTE_MS);
    pipeline_world_kill();
    fake_topic_grow(&world.topic, NEW);
    world.now_ms += MINUTE_MS;
    world_add(1, "moved", NULL);
    world.now_ms += 20 * MINUTE_MS;
    world_start();
    world_pass(2 * MINUTE_MS);
    world_expect("moved", NULL);
}

static void test_a_user_that_stays_is_written(void **state)
{
    (void)state;
    world_start();
    world_add(0, "stays", "a");
    world_add(0, "rare", "a");
    world_pass(MINUTE_MS);
    world_grow();
    world_add(0, "stays", "b");
    world_add(0, "rare", "b");
    world_pass(MINUTE_MS);
    world_expect("stays", "{\"a\":1,\"b\":1}"); /* As far as can be known. */
    world_pass(12 * MINUTE_MS);
    world_add(0, "stays", "c");
    world_pass(MINUTE_MS);
    world_expect("stays", "{\"a\":1,\"b\":1,\"c\":1}"); /* For certain. */
    world_pass(45 * MINUTE_MS + MINUTE_MS / 2);
    world_expect("stays", "{\"b\":1,\"c\":1}");
    world_expect("rare", "{\"a\":1,\"b\":1}"); /* Left to its PXAT. */
    world_pass(2 * MINUTE_MS);
    world_expect("rare", NULL);
}

static void test_windows_are_ready_when_they_have_passed_it(void **state)
{
    (void)state;
    world_start();
    world_add(0, "u", "a");
    world_pass(MINUTE_MS);
    assert_int_equal(world_report(0).ready_mask, 1);
    world_grow();
    int64_t grown_ms = world.now_ms - 5000;
    world_add(2, "v", "a");
    world_pass(MINUTE_MS);
    for (int32_t i = 0; i < OLD; i++) {
        struct fcap_task_report report = world_report(i);
        assert_int_equal(report.ready_mask, 0);
        assert_int_equal(report.gaps, 1);
        assert_int_equal(report.last_gap.kind, FCAP_GAP_GROWN);
        assert_int_equal(report.lost.count, 1);
        assert_int_equal(report.lost.spans[0].kind, FCAP_GAP_GROWN);
        assert_int_equal(report.complete_since_ms, report.lost.spans[0].since_ms);
        /* Producers learn within 5 minutes, and their clocks are 5 minutes off at most. */
        assert_in_range(report.complete_since_ms - grown_ms - 10 * MINUTE_MS,
                        growth_settings.session_timeout_ms,
                        growth_settings.session_timeout_ms + 1000);
    }
    assert_int_equal(world_report(2).ready_mask, 1);
    assert_int_equal(world_report(2).gaps, 0);
    world_pass(68 * MINUTE_MS);
    assert_int_equal(world_report(0).ready_mask, 0);
    world_pass(2 * MINUTE_MS);
    assert_int_equal(world_report(0).ready_mask, 1);
    assert_int_equal(world_report(0).lost.count, 0);
}

/* What old owners wrote last is put right when all have learned. */
static void test_everything_is_shown_once_more(void **state)
{
    (void)state;
    world_start();
    world_add(0, "moved", "a");
    world_pass(MINUTE_MS);
    world_grow();
    world_add(2, "moved", "b");
    world_pass(MINUTE_MS);
    world_add(0, "moved", "c"); /* From a producer that has not learned yet. */
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"a\":1,\"c\":1}");
    world_pass(9 * MINUTE_MS);
    world_expect("moved", "{\"b\":1}");
}

static void test_on_gap_stop(void **state)
{
    (void)state;
    growth_settings.stop_on_gap = true;
    world_start();
    world_add(0, "u", "a");
    world_pass(MINUTE_MS);
    fake_topic_grow(&world.topic, NEW);
    assert_int_equal(world_try_to_pass(MINUTE_MS), FCAP_STOPPED);
    const char *text = fcap_pipeline_error(world.pipeline);
    assert_non_null(strstr(text, "the topic had 2 partitions"));
    assert_non_null(strstr(text, "has 3 now"));
    assert_non_null(strstr(text, "on_gap: degrade goes on"));
    pipeline_world_kill();
    world_start(); /* It stops again, */
    assert_int_equal(world_try_to_pass(MINUTE_MS), FCAP_STOPPED);
    pipeline_world_kill();
    growth_settings.stop_on_gap = false;
    world_start(); /* until it is told to go on. */
    world_pass(MINUTE_MS);
    assert_int_equal(world_report(0).gaps, 1);
    assert_true(world_report(0).gate_open);
}

static void test_grown_while_stopped(void **state)
{
    (void)state;
    growth_settings.start = FCAP_START_LATEST;
    world_start();
    world_pass(MINUTE_MS);
    world_add(0, "moved", "a");
    world_add(1, "other", "a");
    world_pass(MINUTE_MS);
    pipeline_world_kill();
    fake_topic_grow(&world.topic, NEW);
    world_add(2, "moved", "b"); /* Read, though `latest` is said: the partition is new. */
    world_start();
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"b\":1}");
    assert_int_equal(world_report(0).gaps, 1);
    assert_int_equal(world_report(2).gaps, 0);
    assert_int_equal(world_report(0).ready_mask, 0);
    assert_int_equal(world_report(2).ready_mask, 1);
    int64_t since_ms = world_report(0).complete_since_ms;
    pipeline_world_kill();
    world_start(); /* It is not met again, and not forgotten. */
    world_pass(MINUTE_MS);
    assert_int_equal(world_report(0).gaps, 0);
    assert_int_equal(world_report(0).complete_since_ms, since_ms);
    assert_int_equal(world_report(0).lost.count, 1);
    world_expect("moved", "{\"b\":1}");
    world_pass(12 * MINUTE_MS);
    world_expect("moved", "{\"b\":1}");
}

/* The topic's partitions are counted as soon as a broker answers, and the group takes its time. */
static void test_the_count_is_told_before_anything_is_assigned(void **state)
{
    (void)state;
    growth_settings.start = FCAP_START_LATEST;
    world_start();
    world_add(0, "moved", "a");
    world_pass(MINUTE_MS);
    pipeline_world_kill();
    fake_topic_grow(&world.topic, NEW);
    world_add(2, "moved", "b");
    world_start();
    for (int32_t i = 0; i < NEW; i++) {
        fake_source_revoke(&world.source, i, false);
    }
    world_pass(MINUTE_MS);
    for (int32_t i = 0; i < NEW; i++) {
        fake_source_assign(&world.source, i);
    }
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"b\":1}");
    assert_int_equal(world_report(2).ready_mask, 1);
}

/* The new partition comes first, or to another worker: it shows everything once more, too. */
static void test_the_added_partition_comes_first(void **state)
{
    (void)state;
    world_start();
    world_add(0, "moved", "a");
    world_pass(MINUTE_MS);
    pipeline_world_kill();
    fake_topic_grow(&world.topic, NEW);
    world_start();
    fake_source_revoke(&world.source, 0, false);
    fake_source_revoke(&world.source, 1, false);
    world_pass(5000);
    fake_source_assign(&world.source, 0);
    fake_source_assign(&world.source, 1);
    world_pass(MINUTE_MS);
    world_add(2, "moved", NULL);
    world_pass(MINUTE_MS);
    world_expect("moved", NULL);
    world_add(0, "moved", "c"); /* From a producer that has not learned yet. */
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"a\":1,\"c\":1}");
    assert_int_equal(world_report(2).gaps, 0);
    world_pass(12 * MINUTE_MS);
    world_expect("moved", NULL);
}

/* One that comes without a state learns it from what the process has seen. */
static void test_an_old_partition_without_a_state(void **state)
{
    (void)state;
    world_add(0, "moved", "a");
    world_start();
    fake_source_revoke(&world.source, 0, false); /* Somebody else has it, so far. */
    world_pass(MINUTE_MS);
    world_grow();
    world_add(2, "moved", "b");
    world_pass(MINUTE_MS);
    fake_source_assign(&world.source, 0);
    world_pass(MINUTE_MS);
    assert_true(world_report(0).gate_open);
    assert_int_equal(world_report(0).ready_mask, 0);
    world_expect("moved", "{\"b\":1}");
}

static void test_moved_users_do_not_look_like_a_topic_without_keys(void **state)
{
    (void)state;
    world_start();
    world_add(0, "moved", "a");
    world_pass(MINUTE_MS);
    world_grow();
    world_add(2, "moved", "b");
    world_pass(MINUTE_MS);
    world_add(0, "moved", "c");
    world_pass(30 * MINUTE_MS);
    world_add(0, "both", "a"); /* By now everybody knows. */
    world_pass(MINUTE_MS);
    world_add(2, "both", "a");
    assert_int_equal(world_try_to_pass(MINUTE_MS), FCAP_STOPPED);
    assert_non_null(strstr(fcap_pipeline_error(world.pipeline), "not keyed by user"));
}

/* Its events are refused, and prove nothing about where its users are now. */
static void test_a_producer_whose_clock_is_ahead(void **state)
{
    (void)state;
    world_start();
    world_pass(MINUTE_MS);
    world_grow();
    pipeline_world_add(0, "moved", "a", world.now_ms + 60 * MINUTE_MS);
    world_pass(MINUTE_MS);
    pipeline_world_add(2, "moved", "b", world.now_ms + 60 * MINUTE_MS); /* It has learned. */
    world_pass(MINUTE_MS);
    world_add(2, "moved", "c");
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"c\":1}");
}

struct walked {
    size_t compared;
    size_t elsewhere;
};

static void walk_block(const struct fcap_buffer *block, struct walked *walked,
                       struct fcap_buffer *after)
{
    struct fcap_values values;
    struct fcap_values_entry entry;
    struct fcap_values_window window;
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(block));
    assert_true(fcap_values_read(&reader, &values));
    while (fcap_values_next(&values, &entry)) {
        if (entry.is_elsewhere) {
            walked->elsewhere++;
            continue;
        }
        fcap_values_next_window(&values, &window);
        assert_true(window.key.size > 3 && memcmp(window.key.data, "fc:", 3) == 0);
        walked->compared++;
    }
    assert_false(values.entries.failed);
    fcap_buffer_clear(after);
    fcap_buffer_put_bytes(after, values.next);
}

static struct walked walk(int32_t partition)
{
    struct walked walked = {0};
    struct fcap_buffer after = {0};
    struct fcap_buffer block = {0};
    do {
        fcap_buffer_clear(&block);
        assert_true(
            fcap_pipeline_values(world.pipeline, partition, fcap_buffer_bytes(&after), 10, &block));
        walk_block(&block, &walked, &after);
    } while (after.size > 0);
    fcap_buffer_done(&after);
    fcap_buffer_done(&block);
    return walked;
}

/* What Redis should hold can be read while some users may be elsewhere. */
static void test_blocks_tell_who_may_have_moved(void **state)
{
    (void)state;
    world_start();
    world_add(0, "a-moved", "a");
    world_add(0, "b-stays", "a");
    world_add(0, "c-silent", "a");
    world_pass(MINUTE_MS);
    world_grow();
    world_add(2, "a-moved", "b");
    world_add(0, "b-stays", "b");
    world_pass(MINUTE_MS);
    assert_int_equal(walk(0).compared, 1);
    assert_int_equal(walk(0).elsewhere, 2);
    assert_int_equal(walk(2).compared, 1);
}

/* A user that was erased in its old place comes back in its new one. The old partition takes the
 * keys away once more: then the window is not ready before it has passed that. */
static void test_one_that_comes_back_elsewhere(void **state)
{
    (void)state;
    world_start();
    world_add(0, "moved", "a");
    world_pass(MINUTE_MS);
    world_grow();
    world_add(0, "moved", NULL); /* From a producer that has not learned yet. */
    world_pass(20 * MINUTE_MS);
    world_expect("moved", NULL);
    world_add(2, "moved", "b");
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"b\":1}");
    assert_true(fcap_pipeline_rebuild(world.pipeline, 0)); /* Or a handover of the partition. */
    world_pass(MINUTE_MS);
    bool is_ready = false;
    for (int i = 0; i < 90 && !is_ready; i++) {
        bool is_counted = i < 57; /* Then the event leaves. */
        is_ready = world_report(0).ready_mask != 0 && world_report(1).ready_mask != 0;
        if (is_ready && is_counted) {
            world_expect("moved", "{\"b\":1}");
        }
        world_pass(MINUTE_MS);
    }
    assert_true(is_ready);
}

/* A producer may know of new partitions before the daemon does. */
static void test_a_producer_that_knows_sooner(void **state)
{
    (void)state;
    world_start();
    world_add(0, "moved", "a");
    world_pass(MINUTE_MS);
    world_add(1, "moved", "b");
    world_pass(2000);
    world_expect("moved", "{\"a\":1}"); /* It waits for an explanation, */
    fake_topic_grow(&world.topic, NEW);
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"a\":1}"); /* and after that it does not know yet whose the user is. */
    world_pass(11 * MINUTE_MS);
    world_add(1, "moved", "c");
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"b\":1,\"c\":1}");
}

static void test_two_growths(void **state)
{
    (void)state;
    world_start();
    world_add(0, "u", "a");
    world_pass(MINUTE_MS);
    world_grow();
    world_add(2, "moved", "a");
    world_pass(30 * MINUTE_MS);
    int64_t since_ms = world_report(0).complete_since_ms;
    fake_topic_grow(&world.topic, NEW + 1);
    world_pass(STEP_MS);
    fake_source_assign(&world.source, NEW);
    world_add(3, "moved", "b");
    world_pass(MINUTE_MS);
    world_expect("moved", "{\"b\":1}");
    assert_true(world_report(0).complete_since_ms > since_ms + 29 * MINUTE_MS);
    assert_int_equal(world_report(0).gaps, 2);
    assert_int_equal(world_report(2).gaps, 1);
    assert_int_equal(world_report(2).ready_mask, 0);
    assert_int_equal(world_report(3).ready_mask, 1);
    world_pass(30 * MINUTE_MS); /* What partition 2 knew has left its window. */
    world_expect("moved", "{\"b\":1}");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, growth_setup, growth_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_a_moved_user_is_left_to_its_new_partition),
        CASE(test_an_erased_user_stays_erased),
        CASE(test_an_erasure_in_the_old_partition_is_shown),
        CASE(test_an_erasure_while_stopped_is_shown),
        CASE(test_a_user_that_stays_is_written),
        CASE(test_windows_are_ready_when_they_have_passed_it),
        CASE(test_everything_is_shown_once_more),
        CASE(test_on_gap_stop),
        CASE(test_grown_while_stopped),
        CASE(test_the_count_is_told_before_anything_is_assigned),
        CASE(test_the_added_partition_comes_first),
        CASE(test_an_old_partition_without_a_state),
        CASE(test_moved_users_do_not_look_like_a_topic_without_keys),
        CASE(test_a_producer_whose_clock_is_ahead),
        CASE(test_blocks_tell_who_may_have_moved),
        CASE(test_one_that_comes_back_elsewhere),
        CASE(test_a_producer_that_knows_sooner),
        CASE(test_two_growths),
    };
    return cmocka_run_group_tests_name("growth", tests, NULL, NULL);
}
