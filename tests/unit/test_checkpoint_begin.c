/* The checkpointer's first look at what is kept, in memory, when some of it is not as it should be.
 */
#include "checkpoint_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MINUTE_MS 60000

static void run(void)
{
    world_open();
    for (int minute = 0; minute < 5; minute++) {
        world_write(20, 300, 50);
        world_pass(MINUTE_MS);
    }
    world_stop();
}

static const char *manifest(uint64_t number)
{
    static char name[FCAP_OBJECT_NAME_MAX + 1];
    return fcap_checkpoint_manifest_name("days/pod-0/", number, name);
}

/* --- a bad sector under one manifest --- */

static const struct fcap_objects_ops *real_ops;
static char bad[FCAP_OBJECT_NAME_MAX + 1];

static enum fcap_status read_but_one(struct fcap_objects *objects, const char *name,
                                     uint64_t offset, uint8_t *data, size_t size, size_t *ret_size,
                                     struct fcap_error *error)
{
    if (strcmp(name, bad) == 0) {
        return fcap_error_set(error, FCAP_IO, "%s: planted", name);
    }
    return real_ops->read(objects, name, offset, data, size, ret_size, error);
}

static void test_a_manifest_that_cannot_be_read(void **state)
{
    (void)state;
    static struct fcap_objects_ops ops;
    run();
    struct fcap_checkpoint newest = world_newest();
    (void)snprintf(bad, sizeof bad, "%s", manifest(newest.number));
    real_ops = world.objects.port.ops;
    ops = *real_ops;
    ops.read = read_but_one;
    world.objects.port.ops = &ops;
    world_open();
    world_rest();
    assert_false(world_was_told("a manifest is not used")); /* It may pass. */
    world_pass(20 * MINUTE_MS);
    assert_true(world_was_told("a manifest is not used"));
    assert_true(world_metrics().number > newest.number);
    world_write(20, 300, 50);
    world_pass(3 * MINUTE_MS);
    world_stop();
    world.objects.port.ops = real_ops;
    fcap_checkpoint_done(&newest);
    newest = world_newest();
    assert_int_equal(newest.sequence, world.state.position.sequence);
    fcap_checkpoint_done(&newest);
}

/* --- what a manifest says of itself --- */

static void test_a_manifest_of_another_number(void **state)
{
    (void)state;
    run();
    struct fcap_checkpoint newest = world_newest();
    struct fcap_buffer bytes = world_read(manifest(newest.number));
    world_make(manifest(newest.number + 5), fcap_buffer_bytes(&bytes));
    fcap_buffer_done(&bytes);
    world_open();
    world_rest();
    assert_true(world_was_told("it is the manifest of another number"));
    assert_int_equal(world_metrics().number, newest.number);
    world_write(20, 300, 50);
    world_pass(3 * MINUTE_MS);
    assert_int_equal(world_metrics().number, newest.number + 6);
    world_stop();
    fcap_checkpoint_done(&newest);
}

static void test_a_manifest_from_the_far_past(void **state)
{
    (void)state;
    struct fcap_buffer bytes = {0};
    run();
    struct fcap_checkpoint newest = world_newest();
    newest.number++;
    newest.made_ms = INT64_MIN + 1;
    newest.snapshot_ms = INT64_MIN + 1;
    fcap_checkpoint_encode(&newest, &bytes);
    world_make(manifest(newest.number), fcap_buffer_bytes(&bytes));
    fcap_buffer_done(&bytes);
    world_open();
    assert_int_equal(world_metrics().number, newest.number);
    assert_true(world_metrics().snapshot_age_ms >= (uint64_t)WORLD_NOW_MS);
    world_rest();
    world_stop();
    fcap_checkpoint_done(&newest);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, checkpoint_world_setup, checkpoint_world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_manifest_that_cannot_be_read),
        TEST(test_a_manifest_of_another_number),
        TEST(test_a_manifest_from_the_far_past),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
