/* Kept objects that rot are found and replaced before a restore needs them. */
#include "checkpoint_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MINUTE_MS   60000
#define HOUR_MS     (60 * MINUTE_MS)
#define INTERVAL_MS (24 * HOUR_MS)

/* Two snapshots with a changelog over both, and then nothing that changes. */
static struct fcap_checkpoint make(void)
{
    world_open();
    for (int minute = 0; minute < 16; minute++) {
        world_write(20, 300, 50);
        world_pass(MINUTE_MS);
    }
    world_pass(3 * MINUTE_MS);
    return world_newest();
}

static void set(int64_t interval_ms, uint64_t bytes_per_second)
{
    world.settings.scrub_interval_ms = interval_ms;
    world.settings.scrub_bytes_per_second = bytes_per_second;
}

static void test_each_object_is_read_once_in_an_interval(void **state)
{
    (void)state;
    set(INTERVAL_MS, 1 << 20);
    struct fcap_checkpoint newest = make();
    world_pass(20 * MINUTE_MS); /* The last snapshot is behind it. */
    uint64_t objects = world_metrics().scrub_objects;
    uint64_t bytes = world_metrics().scrub_bytes;
    world_pass(INTERVAL_MS);
    fcap_checkpoint_done(&newest);
    newest = world_newest();
    uint64_t all = 0;
    for (size_t i = 0; i < newest.file_count; i++) {
        all += newest.files[i].size;
    }
    /* Two snapshots that have files in common, segments, and two manifests. */
    uint64_t once = world_metrics().scrub_objects - objects;
    assert_in_range(once, newest.file_count + newest.segment_count + 2,
                    2 * newest.file_count + newest.segment_count + 2);
    assert_true(world_metrics().scrub_bytes - bytes >= all);
    objects = world_metrics().scrub_objects;
    world_pass(INTERVAL_MS);
    assert_int_equal(world_metrics().scrub_objects - objects, once); /* And again. */
    assert_int_equal(world_metrics().scrub_damaged, 0);
    fcap_checkpoint_done(&newest);
}

/* When an object is due follows from its name, so that a process that never lives long does as
 * much. */
static void test_it_goes_on_from_one_process_to_the_next(void **state)
{
    (void)state;
    set(INTERVAL_MS, 1 << 20);
    struct fcap_checkpoint newest = make();
    uint64_t objects = 0;
    for (int hour = 0; hour < 24; hour++) {
        world_stop();
        world_open();
        world_pass(HOUR_MS);
        objects += world_metrics().scrub_objects;
    }
    assert_in_range(objects, newest.file_count + newest.segment_count, 1000);
    assert_int_equal(world_metrics().scrub_damaged, 0);
    fcap_checkpoint_done(&newest);
}

/* What was damaged is replaced by itself: the newest checkpoint is whole again. */
static void heals(const char *object, enum world_damage_kind kind)
{
    char name[FCAP_OBJECT_NAME_MAX + 1];
    struct fcap_restore_report report = {0};
    struct fcap_error error = {""};
    const uint64_t sequence = world.state.position.sequence;
    (void)snprintf(name, sizeof name, "%s", object);
    world_damage(name, kind);
    if (world_verify(&report, &error) == FCAP_OK) {
        assert_true(report.not_taken > 0);
    }
    world_pass(INTERVAL_MS + HOUR_MS);
    assert_int_equal(world_metrics().scrub_damaged, 1);
    assert_true(world_was_told("a kept object is damaged"));
    assert_true(world_was_told(name));
    struct fcap_checkpoint newest = world_newest(); /* Fails the test unless it is whole. */
    for (size_t i = 0; i < newest.file_count; i++) {
        assert_string_not_equal(newest.files[i].object, name);
    }
    assert_int_equal(newest.sequence, sequence);
    fcap_checkpoint_done(&newest);
    world_stop();
    world_lose_state();
    report = world_restore();
    assert_int_equal(report.sequence, sequence);
    assert_int_equal(report.not_taken, 0);
}

static const char *own_file(const struct fcap_checkpoint *newest)
{
    const char *found = NULL;
    for (size_t i = 0; i < newest->file_count; i++) {
        found = strstr(newest->files[i].name, ".sst") != NULL ? newest->files[i].object : found;
    }
    assert_non_null(found);
    return found;
}

static void test_a_damaged_file_heals(void **state)
{
    (void)state;
    for (int kind = WORLD_FLIPPED; kind < WORLD_DAMAGES; kind++) {
        checkpoint_world_done();
        checkpoint_world_init((uint64_t)kind + 30);
        set(INTERVAL_MS, 1 << 20);
        struct fcap_checkpoint newest = make();
        heals(own_file(&newest), (enum world_damage_kind)kind);
        fcap_checkpoint_done(&newest);
    }
}

/* A file of the first snapshot, which the newest one only names. */
static void test_a_damaged_file_of_old_heals(void **state)
{
    (void)state;
    set(INTERVAL_MS, 1 << 20);
    struct fcap_checkpoint newest = make();
    const char *first = NULL;
    for (size_t i = newest.file_count; i > 0; i--) {
        const struct fcap_checkpoint_file *file = &newest.files[i - 1];
        first = strstr(file->name, ".sst") != NULL ? file->object : first;
    }
    heals(first, WORLD_FLIPPED);
    fcap_checkpoint_done(&newest);
}

static void test_a_damaged_segment_heals(void **state)
{
    (void)state;
    for (int kind = WORLD_FLIPPED; kind < WORLD_DAMAGES; kind++) {
        checkpoint_world_done();
        checkpoint_world_init((uint64_t)kind + 40);
        set(INTERVAL_MS, 1 << 20);
        struct fcap_checkpoint newest = make();
        world_pass(2 * MINUTE_MS);
        world_write(20, 300, 50); /* Behind the newest snapshot. */
        world_pass(4 * MINUTE_MS);
        fcap_checkpoint_done(&newest);
        newest = world_newest();
        heals(newest.segments[newest.segment_count - 1].object, (enum world_damage_kind)kind);
        fcap_checkpoint_done(&newest);
    }
}

static void test_a_damaged_manifest_heals(void **state)
{
    (void)state;
    char name[FCAP_OBJECT_NAME_MAX + 1];
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    set(INTERVAL_MS, 1 << 20);
    struct fcap_checkpoint newest = make();
    (void)fcap_checkpoint_prefix("days", "pod-0", prefix);
    (void)fcap_checkpoint_manifest_name(prefix, newest.number, name);
    heals(name, WORLD_FLIPPED);
    fcap_checkpoint_done(&newest);
}

/* One read that fails, or gives other bytes, is none of the object's fault. */
static size_t reads;
static size_t bad_read;

static void fail_once(void *context, enum fake_objects_call call, const char *name)
{
    (void)context;
    if (call == FAKE_OBJECTS_READ && strstr(name, ".sst") != NULL && ++reads == bad_read) {
        fake_objects_fail(&world.objects, FAKE_OBJECTS_READ, 1, FCAP_IO);
    }
}

static void test_one_failure_is_no_damage(void **state)
{
    (void)state;
    set(INTERVAL_MS, 1 << 20);
    struct fcap_checkpoint newest = make();
    uint64_t objects = world_metrics().scrub_objects;
    reads = 0;
    bad_read = 1;
    fake_objects_watch(&world.objects, fail_once, NULL);
    world_pass(INTERVAL_MS);
    assert_in_range(reads, 2, 1000);
    assert_int_equal(world_metrics().scrub_damaged, 0);
    assert_true(world_metrics().scrub_objects > objects);
    fcap_checkpoint_done(&newest);
}

static void test_a_volume_that_is_away_is_no_damage(void **state)
{
    (void)state;
    set(INTERVAL_MS, 1 << 20);
    struct fcap_checkpoint newest = make();
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    world_pass(INTERVAL_MS);
    uint64_t objects = world_metrics().scrub_objects;
    fake_objects_away(&world.objects, FCAP_OK);
    world_pass(INTERVAL_MS);
    assert_int_equal(world_metrics().scrub_damaged, 0);
    assert_true(world_metrics().scrub_objects >= objects + newest.file_count);
    fcap_checkpoint_done(&newest);
}

/* When much is due at once it is still read slowly. */
static void test_no_more_than_the_limit_is_read(void **state)
{
    (void)state;
    const uint64_t limit = 100;
    set(2 * MINUTE_MS, limit);
    struct fcap_checkpoint newest = make();
    uint64_t bytes = world_metrics().scrub_bytes;
    world_pass(10 * HOUR_MS);
    uint64_t read = world_metrics().scrub_bytes - bytes;
    assert_in_range(read, 1, 10 * 3600 * limit + 100000); /* One object may be ahead of it. */
    assert_true(read >= 10 * 3600 * limit / 2);           /* There is always something due. */
    assert_int_equal(world_metrics().scrub_damaged, 0);
    fcap_checkpoint_done(&newest);
}

/* Files that come and go, and reads that fail now and then: nothing whole is ever condemned. */
static void test_nothing_whole_is_condemned(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        checkpoint_world_done();
        checkpoint_world_init(seed + 60);
        set(HOUR_MS, 1 << 16);
        world.state.compact_at = 5;
        world_open();
        for (int i = 0; i < 100; i++) {
            world_write(10, 300, 50);
            world_pass(world_random(10 * MINUTE_MS));
        }
        assert_int_equal(world_metrics().scrub_damaged, 0);
        assert_true(world_metrics().scrub_objects > 50);
        world_stop();
        world_lose_state();
        assert_int_equal(world_restore().not_taken, 0);
    }
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, checkpoint_world_setup, checkpoint_world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_each_object_is_read_once_in_an_interval),
        TEST(test_it_goes_on_from_one_process_to_the_next),
        TEST(test_a_damaged_file_heals),
        TEST(test_a_damaged_file_of_old_heals),
        TEST(test_a_damaged_segment_heals),
        TEST(test_a_damaged_manifest_heals),
        TEST(test_one_failure_is_no_damage),
        TEST(test_a_volume_that_is_away_is_no_damage),
        TEST(test_no_more_than_the_limit_is_read),
        TEST(test_nothing_whole_is_condemned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
