/* A gate opens on an epoch that was answered a moment ago, on the connection that still stands: the
 * fence of backfill rests on it (docs/decisions/0012). In another Redis an owner asks for another
 * one (0020). On the core, with a store, a topic and a Redis in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/backfill.h"
#include "unit/pipeline_world.h"

enum { STEP_MS = 10, STEPS_MAX = 2000, LAG_MS = 5000 };

static struct fcap_task_report seen;

static void start(void)
{
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    settings.commit_interval_ms = STEP_MS;
    settings.work_per_step = 1; /* One slice of a second for T in a step. */
    pipeline_world_start(&settings, &pipeline_world_decoder);
}

static void look(void *context, const struct fcap_task_report *report)
{
    (void)context;
    seen = *report;
}

static void step(void)
{
    if (fcap_pipeline_step(world.pipeline, 0) != FCAP_OK) {
        fail_msg("%s", fcap_pipeline_error(world.pipeline));
    }
    world.now_ms += STEP_MS;
    seen = (struct fcap_task_report){0};
    fcap_pipeline_report(world.pipeline, look, NULL);
}

static uint32_t draw_lowest(void *context, uint32_t bound)
{
    (void)context;
    (void)bound;
    return 0;
}

/* The epoch is answered when T has to catch up again: the gate could open some steps later. */
static void run_to_answer(void)
{
    world.redis.draw = draw_lowest;
    world.sink.faults.slow_per_command = 1000; /* No answer. */
    for (int i = 0; i < 100; i++) {
        step();
    }
    world.now_ms += LAG_MS;
    world.sink.faults.slow_per_command = 0;
    step();
    assert_true(seen.epoch != 0 && !seen.gate_open);
}

static void run_to_open(void)
{
    for (int i = 0; i < STEPS_MAX && !seen.gate_open; i++) {
        step();
    }
    assert_true(seen.gate_open);
}

static int64_t epoch_in_redis(void)
{
    struct fcap_bytes value;
    int64_t expire_at_ms;
    int64_t epoch = 0;
    if (fcap_fake_redis_get(&world.redis, fcap_bytes_of("fc:epoch:test:0"), &value,
                            &expire_at_ms)) {
        for (size_t i = 0; i < value.size; i++) {
            epoch = epoch * 10 + (value.data[i] - '0');
        }
    }
    return epoch;
}

/* A process that has shown everything and is gone. */
static void live_once(void)
{
    pipeline_world_add(0, "u", "a", world.now_ms);
    start();
    run_to_open();
    for (int i = 0; i < 500; i++) {
        step();
    }
    assert_int_equal(epoch_in_redis(), 1);
    pipeline_world_kill();
    seen = (struct fcap_task_report){0};
}

static void test_an_epoch_of_a_moment_ago_opens_the_gate(void **state)
{
    (void)state;
    live_once();
    start();
    run_to_answer();
    run_to_open();
    assert_int_equal(seen.epoch, 2);
    assert_int_equal(epoch_in_redis(), 2);
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->full_projections, 0);
}

/* T has to catch up once more, and meanwhile somebody may have claimed the partition. */
static void test_an_epoch_of_long_ago_is_asked_for_again(void **state)
{
    (void)state;
    live_once();
    start();
    run_to_answer();
    world.now_ms += FCAP_BACKFILL_OPENING_MS + 1;
    run_to_open();
    assert_int_equal(seen.epoch, 3);
    assert_int_equal(epoch_in_redis(), 3);
    /* Nobody else was at work: what Redis holds is what this state has shown. */
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->full_projections, 0);
}

static void test_an_epoch_of_another_connection_is_asked_for_again(void **state)
{
    (void)state;
    live_once();
    start();
    run_to_answer();
    fcap_fake_sink_break(&world.sink);
    run_to_open();
    assert_int_equal(seen.epoch, 3);
}

static void ignore(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    (void)context;
    (void)token;
    (void)result;
    (void)integer;
}

static void claim(void)
{
    struct fcap_fake_sink sink;
    struct fcap_sink_handler handler = {NULL, ignore};
    struct fcap_push push = {.kind = FCAP_PUSH_INCREMENT, .key = fcap_bytes_of("fc:epoch:test:0")};
    fcap_fake_sink_open(&sink, &world.redis, &world.clock, "somebody else");
    (void)sink.sink.ops->poll(&sink.sink, &handler, 0); /* Connects. */
    assert_int_equal(sink.sink.ops->push(&sink.sink, &push), FCAP_OK);
    (void)sink.sink.ops->poll(&sink.sink, &handler, 0); /* Is done. */
    fcap_fake_sink_close(&sink);
}

/* Whoever it was may have written: everything is projected once more. */
static void test_a_claim_between_two_epochs_is_noticed(void **state)
{
    (void)state;
    live_once();
    start();
    run_to_answer();
    claim();
    world.now_ms += FCAP_BACKFILL_OPENING_MS + 1;
    run_to_open();
    assert_int_equal(seen.epoch, 4);
    for (int i = 0; i < 10; i++) {
        step();
    }
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->full_projections, 1);
}

static void run(int steps)
{
    for (int i = 0; i < steps; i++) {
        step();
    }
}

static uint64_t projections(void)
{
    return fcap_pipeline_counters(world.pipeline)->full_projections;
}

/* All numbers that were given out are still known there, or only some. */
static void test_another_redis_is_asked_again(void **state)
{
    static const enum fcap_fake_restart kinds[] = {FCAP_FAKE_RESTART_ALL, FCAP_FAKE_RESTART_SAVED,
                                                   FCAP_FAKE_RESTART_EMPTY};
    static const int64_t epochs[] = {3, 2, 1};
    (void)state;
    live_once();
    fcap_fake_redis_save(&world.redis);
    start();
    run_to_open();
    run(10);
    assert_int_equal(seen.epoch, 2);
    assert_int_equal(projections(), 0);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        fcap_fake_redis_restart(&world.redis, kinds[i]);
        run(500);
        assert_true(seen.gate_open);
        assert_int_equal(seen.epoch, epochs[i]);
        assert_int_equal(epoch_in_redis(), epochs[i]);
        assert_int_equal(projections(), i + 1);
        assert_true((seen.projected_mask & 1) != 0);
    }
}

/* Until that is answered nothing counts as shown, and readers know the old one. */
static void test_another_redis_that_gives_no_epoch_holds_nothing(void **state)
{
    (void)state;
    live_once();
    start();
    run_to_open();
    run(10);
    fcap_fake_redis_restart(&world.redis, FCAP_FAKE_RESTART_ALL);
    world.redis.full = true;
    run(500);
    assert_true(seen.gate_open);
    assert_int_equal(seen.epoch, 2);
    assert_int_equal(projections(), 0);
    assert_int_equal(seen.projected_mask & 1, 0);
    world.redis.full = false;
    run(500);
    assert_int_equal(seen.epoch, 3);
    assert_int_equal(projections(), 1);
    assert_true((seen.projected_mask & 1) != 0);
}

static int setup(void **state);
static int teardown(void **state);

/* --- two servers between which the connection flips --- */

static struct fcap_fake_redis other; /* the one that nobody sees now */

static void flip(void)
{
    struct fcap_fake_redis now = world.redis;
    if (world.pipeline != NULL) {
        fcap_fake_sink_break(&world.sink);
    }
    world.redis = other;
    world.redis.sinks = now.sinks;
    now.sinks = NULL;
    other = now;
}

/* Everything of the first life has been shown, twice. */
static void live_long(void)
{
    pipeline_world_add(0, "u", "a", world.now_ms);
    start();
    run_to_open();
    run(6000);
}

static bool is_shown(const char *text)
{
    struct fcap_bytes value;
    int64_t expire_at_ms;
    return fcap_fake_redis_get(&world.redis, fcap_bytes_of("fc:{u}:1h"), &value, &expire_at_ms) &&
           memmem(value.data, value.size, text, strlen(text)) != NULL;
}

/* Its numbers are those of one server, not of the other one that was asked in between. */
static void test_epochs_of_two_servers_are_not_counted_together(void **state)
{
    (void)state;
    live_once();
    claim(); /* 2: somebody was at work. */
    flip();
    claim();
    start();
    run_to_answer();
    assert_int_equal(seen.epoch, 2);
    flip();
    run_to_open();
    run(10);
    assert_int_equal(seen.epoch, 3);
    assert_int_equal(projections(), 1);
}

/* The number of one server and what the other one holds never stand together in the state, at
 * whatever moment the process dies. */
static void test_a_gate_that_opens_elsewhere_leaves_nothing_to_be_believed(void **state)
{
    for (int steps = 0; steps < 40; steps++) {
        live_once();
        claim();
        flip();
        claim();
        start();
        run_to_open();
        run(steps);
        pipeline_world_kill();
        flip();
        start();
        run_to_open();
        run(10);
        assert_int_equal(seen.epoch, 3);
        assert_int_equal(projections(), 1);
        teardown(state);
        (void)setup(state);
    }
}

/* What was shown in between went to the other one alone. */
static void test_a_projection_does_not_go_on_after_a_visit_elsewhere(void **state)
{
    (void)state;
    live_long();
    uint64_t before = projections();
    fcap_fake_redis_restart(&world.redis, FCAP_FAKE_RESTART_ALL);
    for (int i = 0; i < 100 && projections() == before; i++) {
        step();
    }
    assert_int_equal(projections(), before + 1);
    flip();
    step();
    pipeline_world_add(0, "u", "b", world.now_ms);
    step();
    assert_true(is_shown("\"b\""));
    flip();
    run(500);
    assert_true((seen.projected_mask & 1) != 0);
    assert_true(is_shown("\"b\""));
}

/* What a commit covers may be acknowledged by another server than the one that it names. */
static void test_a_commit_says_nothing_of_a_server_that_did_not_acknowledge_it(void **state)
{
    for (int steps = 0; steps < 40; steps++) {
        live_long();
        pipeline_world_add(0, "u", "b", world.now_ms);
        world.redis.draw = draw_lowest;
        world.sink.faults.slow_per_command = 1000; /* No answer. */
        run(5);
        world.redis.draw = NULL;
        world.sink.faults.slow_per_command = 0;
        flip();
        run(steps);
        pipeline_world_kill();
        flip();
        start();
        run_to_open();
        run(100);
        assert_true(is_shown("\"b\""));
        teardown(state);
        (void)setup(state);
    }
}

/* Nothing is begun there before it was asked. */
static void test_another_redis_that_takes_nothing_is_asked_first(void **state)
{
    (void)state;
    live_long();
    uint64_t before = projections();
    fcap_fake_redis_restart(&world.redis, FCAP_FAKE_RESTART_ALL);
    world.sink.in_flight_max = 0;
    run(500);
    assert_int_equal(projections(), before);
    world.sink.in_flight_max = 1000;
    run(500);
    assert_int_equal(seen.epoch, 2);
    assert_int_equal(projections(), before + 1);
}

static int setup(void **state)
{
    seen = (struct fcap_task_report){0};
    fcap_fake_redis_init(&other, &world.server_clock);
    other.run_id += 1000;
    other.serial += 1000;
    return pipeline_world_setup(state);
}

static int teardown(void **state)
{
    fcap_fake_redis_done(&other);
    return pipeline_world_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_epoch_of_a_moment_ago_opens_the_gate, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_epoch_of_long_ago_is_asked_for_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_epoch_of_another_connection_is_asked_for_again,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_claim_between_two_epochs_is_noticed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_another_redis_is_asked_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_redis_that_gives_no_epoch_holds_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_epochs_of_two_servers_are_not_counted_together, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_a_gate_that_opens_elsewhere_leaves_nothing_to_be_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_projection_does_not_go_on_after_a_visit_elsewhere,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_commit_says_nothing_of_a_server_that_did_not_acknowledge_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_redis_that_takes_nothing_is_asked_first, setup,
                                        teardown),
    };
    return cmocka_run_group_tests_name("epoch", tests, NULL, NULL);
}
