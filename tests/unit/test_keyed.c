/* A topic that is not keyed by user is found before anything of it is shown, also by a process that
 * was started again meanwhile and reads on from its state. On the core, with a store, a topic of
 * two partitions and a Redis in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/pipeline_world.h"

enum {
    OTHERS = 60,
    STEPS_MAX = 5000,
    FOR_EVER = 1000000, /* polls */
    STEP_MS = 10,
    WAIT_MS = 10000,      /* so long a gate waits for the look at other partitions */
    LOOK_RECORDS = 10000, /* so many of one partition are a look at it */
};

static struct fcap_keyed_look look;
static uint64_t *slots;
static size_t records_per_step;

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder; /* The value is the user, whatever the key is. */
    *ret_event = (struct fcap_event){
        .user = record->value, .ad = fcap_bytes_of("a"), .time_ms = record->timestamp_ms};
    return FCAP_REJECT_NONE;
}

static void stop(void)
{
    pipeline_world_kill();
    free(slots);
    slots = NULL;
}

static void start(void)
{
    static struct fcap_decoder decoder = {decode};
    struct fcap_settings settings;
    look = (struct fcap_keyed_look){0};
    slots = calloc(FCAP_KEYED_SLOTS, sizeof *slots);
    assert_non_null(slots);
    pipeline_world_settings(&settings);
    settings.commit_interval_ms = 20;
    settings.records_per_step = records_per_step;
    settings.keyed_slots = slots;
    settings.keyed_look = &look;
    pipeline_world_start(&settings, &decoder);
}

static int setup(void **state)
{
    (void)state;
    records_per_step = 1;
    pipeline_world_init(2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stop();
    pipeline_world_done();
    return 0;
}

static void add(int32_t partition, const char *user)
{
    pipeline_world_add(partition, "k", user, PIPELINE_WORLD_NOW_MS - 1000);
}

static void add_others(void)
{
    for (int i = 0; i < OTHERS; i++) {
        char user[16];
        (void)snprintf(user, sizeof user, "u%d", i); /* Fits. */
        add(i % 2, user);
    }
}

/* Steps until the pipeline fails, or for a while. */
static enum fcap_status run(int steps)
{
    enum fcap_status status = FCAP_OK;
    for (int i = 0; i < steps && status == FCAP_OK; i++) {
        status = fcap_pipeline_step(world.pipeline, 0);
        world.now_ms += STEP_MS;
    }
    return status;
}

static void count_key(void *context, struct fcap_bytes key, struct fcap_bytes value,
                      int64_t expire_at_ms)
{
    size_t *count = context;
    (void)value;
    (void)expire_at_ms;
    *count += memmem(key.data, key.size, ":1h", 3) != NULL;
}

static size_t shown_keys(void)
{
    size_t count = 0;
    fcap_fake_redis_visit(&world.redis, count_key, &count);
    return count;
}

struct gates {
    int32_t partition;
    bool is_open;
};

static void find_gate(void *context, const struct fcap_task_report *report)
{
    struct gates *gates = context;
    gates->is_open = gates->is_open || (report->partition == gates->partition && report->gate_open);
}

static void test_found_again_after_a_restart(void **state)
{
    (void)state;
    add(0, "both");
    add_others();
    add(1, "both");
    start();
    assert_int_equal(run(STEPS_MAX), FCAP_STOPPED);
    assert_non_null(strstr(fcap_pipeline_error(world.pipeline), "not keyed by user"));
    assert_int_equal(shown_keys(), 0);
    stop();
    assert_true(fake_store_holds(world.store, 0)); /* It reads on from what it has. */
    for (int i = 0; i < 3; i++) {
        start();
        assert_int_equal(run(STEPS_MAX), FCAP_STOPPED);
        assert_int_equal(shown_keys(), 0);
        stop();
    }
}

/* The look was not over when the process died; the second user comes only after it. */
static void test_found_though_it_died_in_between(void **state)
{
    (void)state;
    add(0, "both");
    add_others();
    add(1, "both");
    for (int steps = 6; steps <= OTHERS / 2; steps += 6) {
        start();
        assert_int_equal(run(steps), FCAP_OK);
        stop();
        assert_true(fake_store_holds(world.store, 0));
        start();
        assert_int_equal(run(STEPS_MAX), FCAP_STOPPED);
        assert_int_equal(shown_keys(), 0);
        stop();
        fake_store_close(world.store);
        world.store = fake_store_open(NULL);
    }
}

static void test_a_keyed_topic_is_shown_after_a_restart(void **state)
{
    (void)state;
    add_others();
    start();
    assert_int_equal(run(OTHERS / 2), FCAP_OK);
    assert_int_equal(shown_keys(), 0);
    stop();
    start();
    assert_int_equal(run(STEPS_MAX), FCAP_OK);
    assert_int_equal(shown_keys(), OTHERS);
}

static bool is_gate_open(int32_t partition)
{
    struct gates gates = {.partition = partition};
    fcap_pipeline_report(world.pipeline, find_gate, &gates);
    return gates.is_open;
}

/* Partition 1 is assigned and has no leader: its start is not known before `lead`. */
static void start_without_leader(void)
{
    start();
    world.source.lookup_polls = FOR_EVER;
    while (world.source.owned_count < 2) {
        assert_int_equal(run(1), FCAP_OK); /* First Redis is asked for its time. */
    }
    for (size_t i = 0; i < world.source.owned_count; i++) {
        if (world.source.owned[i].id == 0) {
            world.source.owned[i].polls_until_started = 0;
        }
    }
}

static void lead(void)
{
    for (size_t i = 0; i < world.source.owned_count; i++) {
        world.source.owned[i].polls_until_started = 0;
    }
}

static void test_a_partition_without_a_leader_holds_nobody_back(void **state)
{
    (void)state;
    add_others();
    start_without_leader();
    assert_int_equal(run((WAIT_MS - 1000) / STEP_MS), FCAP_OK);
    assert_false(is_gate_open(0)); /* It might still come. */
    assert_int_equal(run(2000 / STEP_MS), FCAP_OK);
    assert_true(is_gate_open(0));
    assert_false(is_gate_open(1));
    assert_int_equal(shown_keys(), OTHERS / 2);
    lead();
    assert_int_equal(run(500), FCAP_OK);
    assert_int_equal(shown_keys(), OTHERS);
}

/* Too late to be found before anything is shown: it ends the process as ever. */
static void test_what_a_late_leader_shows_ends_the_process(void **state)
{
    (void)state;
    add_others();
    add(0, "both");
    add(1, "both");
    start_without_leader();
    assert_int_equal(run((WAIT_MS + 2000) / STEP_MS), FCAP_OK);
    assert_true(is_gate_open(0));
    lead();
    assert_int_equal(run(STEPS_MAX), FCAP_STOPPED);
    assert_non_null(strstr(fcap_pipeline_error(world.pipeline), "not keyed by user"));
    assert_int_equal(shown_keys(), OTHERS / 2 + 1); /* Nothing of the other partition. */
}

/* Redis that is away keeps the others from being read: that time is no wait for them. */
static void test_redis_away_is_no_look(void **state)
{
    (void)state;
    add_others();
    start_without_leader();
    assert_int_equal(run(WAIT_MS / STEP_MS / 2), FCAP_OK);
    world.redis.down = true;
    assert_int_equal(run(2 * WAIT_MS / STEP_MS), FCAP_OK);
    world.redis.down = false;
    assert_int_equal(run((WAIT_MS - 1000) / STEP_MS), FCAP_OK);
    assert_false(is_gate_open(0));
    assert_int_equal(run(3000 / STEP_MS), FCAP_OK);
    assert_true(is_gate_open(0));
}

static void test_a_long_partition_is_looked_at_in_part(void **state)
{
    (void)state;
    add_others();
    for (int i = 0; i < 2 * LOOK_RECORDS; i++) {
        add(1, "u1");
    }
    records_per_step = 400;
    start();
    int steps = 0;
    while (!is_gate_open(0) && steps < 2 * LOOK_RECORDS / 400) {
        assert_int_equal(run(1), FCAP_OK);
        steps++;
    }
    assert_in_range(steps, LOOK_RECORDS / 400, 2 * LOOK_RECORDS / 400 - 2);
    assert_false(is_gate_open(1));
}

/* While a user that stands in two partitions waits for an explanation, one of them goes to another
 * worker: nobody opens a gate any sooner for that. */
static void test_a_handover_does_not_shorten_a_doubt(void **state)
{
    (void)state;
    add(0, "both");
    add(1, "both");
    add_others();
    start();
    for (int i = 0; i < STEPS_MAX && look.handover_ms == 0; i++) {
        assert_int_equal(run(1), FCAP_OK);
    }
    int64_t until_ms = look.handover_ms;
    assert_in_range(until_ms, world.now_ms, world.now_ms + WAIT_MS);
    assert_int_equal(look.waiting, 2);
    fake_source_revoke(&world.source, 1, false);
    assert_int_equal(run(1), FCAP_OK);
    assert_int_equal(look.waiting, 1);
    assert_in_range(look.handover_ms, until_ms, INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_found_again_after_a_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_found_though_it_died_in_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_keyed_topic_is_shown_after_a_restart, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_partition_without_a_leader_holds_nobody_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_a_late_leader_shows_ends_the_process, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_redis_away_is_no_look, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_long_partition_is_looked_at_in_part, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_handover_does_not_shorten_a_doubt, setup, teardown),
    };
    return cmocka_run_group_tests_name("keyed", tests, NULL, NULL);
}
