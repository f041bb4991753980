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

enum { OTHERS = 60, STEPS_MAX = 5000 };

static struct fcap_keyed_look look;
static uint64_t *slots;

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
    settings.records_per_step = 1;
    settings.keyed_slots = slots;
    settings.keyed_look = &look;
    pipeline_world_start(&settings, &decoder);
}

static int setup(void **state)
{
    (void)state;
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
        world.now_ms += 10;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_found_again_after_a_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_found_though_it_died_in_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_keyed_topic_is_shown_after_a_restart, setup,
                                        teardown),
    };
    return cmocka_run_group_tests_name("keyed", tests, NULL, NULL);
}
