/* Restoring in memory: what is taken when something is damaged, and what is left when it fails; and
 * savepoints. */
#include "checkpoint_world.h"

#include "fcap/savepoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MINUTE_MS 60000

/* Two snapshots with a changelog over both: batch `ret_sequence` is the newest one. */
static uint64_t make_two_snapshots(void)
{
    world_open();
    for (int minute = 0; minute < 16; minute++) {
        world_write(20, 300, 50);
        world_pass(MINUTE_MS);
    }
    world_stop();
    return world.state.position.sequence;
}

static struct fcap_checkpoint newest_and_lose(void)
{
    struct fcap_checkpoint newest = world_newest();
    world_lose_state();
    return newest;
}

static void test_the_newest_is_restored(void **state)
{
    (void)state;
    uint64_t sequence = make_two_snapshots();
    world_lose_state();
    struct fcap_restore_report report = world_restore();
    assert_int_equal(report.sequence, sequence);
    assert_true(report.snapshot_sequence > 0 &&
                report.batches == sequence - report.snapshot_sequence);
    assert_int_equal(report.not_taken, 0);
    assert_true(report.files > 0 && report.segments > 0);
    assert_true(world.state.has_origin);
}

/* After a restore another lineage begins; its files are found to be kept already. */
static void test_what_was_restored_goes_on(void **state)
{
    (void)state;
    make_two_snapshots();
    struct fcap_checkpoint before = newest_and_lose();
    world_restore();
    world_open();
    world_rest();
    struct fcap_checkpoint after = world_newest();
    assert_true(after.number > before.number);
    assert_int_equal(after.sequence, before.sequence);
    assert_memory_not_equal(&after.lineage, &before.lineage, sizeof after.lineage);
    /* Three small files and what was written since the snapshot; nothing else was sent. */
    assert_int_equal(world_metrics().files_sent, 4);
    assert_true(world_metrics().files_kept >= 1);
    world_write(20, 300, 50);
    world_pass(2 * MINUTE_MS);
    world_stop();
    world_lose_state();
    assert_int_equal(world_restore().sequence, before.sequence + 1);
    fcap_checkpoint_done(&before);
    fcap_checkpoint_done(&after);
}

/* A file of the same name and size that is another one is not taken for it. */
static void test_a_name_within_the_origin_is_not_trusted(void **state)
{
    (void)state;
    make_two_snapshots();
    struct fcap_checkpoint newest = newest_and_lose();
    world_restore();
    /* As large as before, with other bytes. */
    struct fake_state_file *file = &world.state.files[0];
    file->bytes.data[file->bytes.size - 1] ^= 1;
    world_open();
    world_rest();
    world_stop();
    struct fcap_checkpoint after = world_newest();
    for (size_t i = 0; i < after.file_count; i++) {
        for (size_t k = 0; k < newest.file_count; k++) {
            bool is_same = strcmp(after.files[i].object, newest.files[k].object) == 0;
            assert_true(!is_same || after.files[i].hash == newest.files[k].hash);
        }
    }
    fcap_checkpoint_done(&newest);
    fcap_checkpoint_done(&after);
}

/* The file that only the newest snapshot has. */
static const struct fcap_checkpoint_file *file_of(const struct fcap_checkpoint *checkpoint,
                                                  const char *name)
{
    for (size_t i = 0; i < checkpoint->file_count; i++) {
        if (strcmp(checkpoint->files[i].name, name) == 0) {
            return &checkpoint->files[i];
        }
    }
    fail_msg("%s is not there", name);
    return NULL;
}

/* A batch whose file has the same size each time, and other bytes. */
static void write_alike(void)
{
    world.random = 42;
    world.wall_ms += 12345;
    world_write(0, 1, 0);
}

/* The same, and even the size is the same: the older of two snapshots was restored, and the state
 * makes another file of the name that the newer one has. */
static void test_a_name_and_a_size_are_not_trusted(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world_pass(11 * 60000);
    write_alike();
    world_pass(11 * 60000);
    world_stop();
    struct fcap_checkpoint newest = world_newest();
    assert_int_equal(newest.snapshot_sequence, 2);
    struct fcap_checkpoint_file before = *file_of(&newest, "000002.sst");
    world_damage(file_of(&newest, "MANIFEST-000001")->object, WORLD_FLIPPED);
    fcap_checkpoint_done(&newest);
    while (world_count("/changelog-") > 0) {
        fake_objects_lose(&world.objects, world_find("/changelog-", 0));
    }
    world_lose_state();
    assert_int_equal(world_restore().sequence, 1);
    world_open();
    write_alike();
    world_rest();
    newest = world_newest();
    const struct fcap_checkpoint_file *after = file_of(&newest, "000002.sst");
    assert_int_equal(after->size, before.size);
    assert_true(after->hash != before.hash);
    assert_string_not_equal(after->object, before.object);
    fcap_checkpoint_done(&newest);
    world_kill();
    world_lose_state();
    assert_int_equal(world_restore().sequence, 2); /* It compares. */
}

static const char *own_file(const struct fcap_checkpoint *newest)
{
    const char *found = NULL;
    for (size_t i = 0; i < newest->file_count; i++) {
        if (strstr(newest->files[i].name, ".sst") != NULL) {
            found = newest->files[i].object; /* By number: the last one is the newest. */
        }
    }
    assert_non_null(found);
    return found;
}

/* A damaged file costs nothing: an older snapshot and a longer changelog give the same. */
static void test_a_damaged_file_costs_nothing(void **state)
{
    (void)state;
    for (int kind = WORLD_FLIPPED; kind < WORLD_DAMAGES; kind++) {
        checkpoint_world_done();
        checkpoint_world_init((uint64_t)kind + 10);
        uint64_t sequence = make_two_snapshots();
        struct fcap_checkpoint newest = newest_and_lose();
        world_damage(own_file(&newest), (enum world_damage_kind)kind);
        struct fcap_restore_report report = world_restore();
        assert_int_equal(report.number, newest.number);
        assert_int_equal(report.sequence, sequence);
        assert_true(report.snapshot_sequence < newest.snapshot_sequence);
        assert_int_equal(report.not_taken, 1);
        assert_true(world_was_told("is not taken"));
        fcap_checkpoint_done(&newest);
    }
}

static void test_a_damaged_segment_costs_what_came_after_it(void **state)
{
    (void)state;
    for (int kind = WORLD_FLIPPED; kind < WORLD_DAMAGES; kind++) {
        checkpoint_world_done();
        checkpoint_world_init((uint64_t)kind + 20);
        make_two_snapshots();
        struct fcap_checkpoint newest = newest_and_lose();
        const struct fcap_checkpoint_segment *last = &newest.segments[newest.segment_count - 1];
        world_damage(last->object, (enum world_damage_kind)kind);
        struct fcap_restore_report report = world_restore();
        assert_int_equal(report.sequence, last->first - 1);
        assert_true(report.number < newest.number);
        fcap_checkpoint_done(&newest);
    }
}

static void test_a_damaged_manifest_is_passed_over(void **state)
{
    (void)state;
    for (int kind = WORLD_FLIPPED; kind < WORLD_DAMAGES; kind++) {
        checkpoint_world_done();
        checkpoint_world_init((uint64_t)kind + 30);
        make_two_snapshots();
        struct fcap_checkpoint newest = newest_and_lose();
        char name[FCAP_OBJECT_NAME_MAX + 1];
        world_damage(fcap_checkpoint_manifest_name("days/pod-0/", newest.number, name),
                     (enum world_damage_kind)kind);
        struct fcap_restore_report report = world_restore();
        assert_int_equal(report.number, newest.number - 1);
        assert_int_equal(report.not_taken, kind == WORLD_LOST ? 0 : 1);
        fcap_checkpoint_done(&newest);
    }
}

static void test_nothing_whole_is_refused(void **state)
{
    (void)state;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    assert_int_equal(world_try_restore(&report, &error), FCAP_REFUSED);
    assert_non_null(strstr(error.text, "there is no checkpoint of profile days, instance pod-0"));
    make_two_snapshots();
    world_lose_state();
    while (world_count("CURRENT") > 0) {
        fake_objects_lose(&world.objects, world_find("CURRENT", 0));
    }
    assert_int_equal(world_try_restore(&report, &error), FCAP_REFUSED);
    assert_non_null(strstr(error.text, "no whole checkpoint"));
    assert_non_null(strstr(error.text, "CURRENT"));
    assert_true(fcap_restore_is_free(world.state_directory));
}

static void test_a_place_that_is_away_is_no_damage(void **state)
{
    (void)state;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    make_two_snapshots();
    world_lose_state();
    for (uint64_t call = 1; call < 12; call++) {
        fake_objects_fail(&world.objects, FAKE_OBJECTS_READ, call, FCAP_UNAVAILABLE);
        assert_int_equal(world_try_restore(&report, &error), FCAP_UNAVAILABLE);
        assert_true(fcap_restore_is_free(world.state_directory));
    }
    fake_objects_fail(&world.objects, FAKE_OBJECTS_READ, 0, FCAP_OK);
    world_restore();
}

/* --- the place ------------------------------------------------------------------------------- */

static void test_a_state_is_never_overwritten(void **state)
{
    (void)state;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    char path[200];
    struct stat info;
    make_two_snapshots();
    world_lose_state();
    assert_int_equal(mkdir(world.state_directory, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/CURRENT", world.state_directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(world_try_restore(&report, &error), FCAP_CONFIG);
    assert_non_null(strstr(error.text, "move it away"));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(unlink(path), 0);
    world_restore(); /* An empty directory is a place. */
}

static void make_file(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", world.state_directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

/* Some of its files are in their place already, CURRENT is not. */
static void test_what_a_crash_left_is_removed(void **state)
{
    (void)state;
    char path[256];
    struct stat info;
    make_two_snapshots();
    world_lose_state();
    (void)snprintf(path, sizeof path, "%s/.moving", world.state_directory);
    assert_true(fcap_restore_is_free(world.state_directory));
    assert_int_equal(mkdir(world.state_directory, 0700), 0);
    assert_true(fcap_restore_is_free(world.state_directory));
    make_file("999999.sst");
    assert_false(fcap_restore_is_free(world.state_directory));
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(fcap_restore_is_free(world.state_directory));
    make_file(".moving/CURRENT");
    make_file(".moving/000001.sst");
    world_restore();
    assert_int_equal(stat(path, &info), -1);
    (void)snprintf(path, sizeof path, "%s/999999.sst", world.state_directory);
    assert_int_equal(stat(path, &info), -1);
    assert_false(fcap_restore_is_free(world.state_directory));
}

static void test_verifying_writes_nothing(void **state)
{
    (void)state;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    struct stat info;
    uint64_t sequence = make_two_snapshots();
    struct fcap_checkpoint newest = newest_and_lose();
    assert_int_equal(world_verify(&report, &error), FCAP_OK);
    assert_int_equal(report.sequence, sequence);
    assert_int_equal(stat(world.state_directory, &info), -1);
    world_damage(own_file(&newest), WORLD_FLIPPED);
    assert_int_equal(world_verify(&report, &error), FCAP_OK);
    assert_int_equal(report.not_taken, 1);
    assert_int_equal(report.sequence, sequence);
    fcap_checkpoint_done(&newest);
}

static bool count_checkpoints(void *context, const struct fcap_checkpoint *checkpoint)
{
    uint64_t *last = context;
    assert_true(checkpoint->number < *last);
    *last = checkpoint->number;
    return true;
}

static void test_they_are_listed(void **state)
{
    (void)state;
    struct fcap_error error = {""};
    uint64_t last = UINT64_MAX;
    make_two_snapshots();
    assert_int_equal(
        fcap_restore_list(&world.objects.port, "days", "pod-0", count_checkpoints, &last, &error),
        FCAP_OK);
    assert_int_equal(last, 1);
}

/* --- savepoints ------------------------------------------------------------------------------ */

static struct fake_objects elsewhere;

static enum fcap_status take_savepoint(struct fcap_savepoint_report *ret_report,
                                       struct fcap_error *error)
{
    const struct fcap_savepoint_settings settings = {
        .profile = "days", .instance = "pod-0", .clock = &world.clock};
    return fcap_savepoint_take(&settings, &elsewhere.port, &world.state.state, ret_report, error);
}

static void test_a_savepoint_is_complete(void **state)
{
    (void)state;
    struct fcap_savepoint_report report;
    struct fcap_error error = {""};
    fake_objects_init(&elsewhere);
    world_open();
    world_rest();
    for (int i = 0; i < 20; i++) {
        world_write(20, 300, 50);
    }
    assert_int_equal(take_savepoint(&report, &error), FCAP_OK);
    assert_int_equal(report.sequence, 20);
    assert_int_equal(take_savepoint(&report, &error), FCAP_CONFIG); /* It is not empty now. */
    assert_non_null(strstr(error.text, "empty directory"));
    world_kill();
    world_lose_state();
    fake_objects_done(&world.objects);
    world.objects = elsewhere;
    elsewhere = (struct fake_objects){0};
    struct fcap_restore_report restored = world_restore();
    assert_int_equal(restored.sequence, 20);
    assert_int_equal(restored.segments, 0);
    assert_int_equal(restored.partition_count, report.partition_count);
}

static void damage_written(void *context, enum fake_objects_call call, const char *name)
{
    (void)context;
    static bool is_done;
    if (call == FAKE_OBJECTS_READ && strstr(name, ".sst") != NULL && !is_done) {
        is_done = true;
        fake_objects_flip(&elsewhere, name, 77);
    }
}

static void test_a_savepoint_is_read_back(void **state)
{
    (void)state;
    struct fcap_savepoint_report report;
    struct fcap_error error = {""};
    char path[256];
    struct stat info;
    fake_objects_init(&elsewhere);
    world_open();
    world_write(20, 300, 50);
    fake_objects_watch(&elsewhere, damage_written, NULL);
    assert_int_equal(take_savepoint(&report, &error), FCAP_CORRUPT);
    assert_non_null(strstr(error.text, "read the savepoint back"));
    (void)snprintf(path, sizeof path, "%s/.savepoint", world.state_directory);
    assert_int_equal(stat(path, &info), -1);
    fake_objects_done(&elsewhere);
}

/* Savepoints at any moment hold up neither snapshots nor what is removed after them. */
static void test_savepoints_stop_nothing(void **state)
{
    (void)state;
    struct fcap_savepoint_report report;
    struct fcap_error error = {""};
    world.state.compact_at = 8;
    world_open();
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < 20; k++) {
            world_write(5, 300, 50);
            world_pass(world_random(MINUTE_MS)); /* Ten minutes, more or less. */
        }
        uint64_t snapshots = world_metrics().snapshots;
        uint64_t removed = world_metrics().objects_removed;
        fake_objects_init(&elsewhere);
        assert_int_equal(take_savepoint(&report, &error), FCAP_OK);
        assert_int_equal(report.sequence, world.state.position.sequence);
        fake_objects_done(&elsewhere);
        world_write(5, 300, 50);
        world_pass(10 * MINUTE_MS);
        assert_true(world_metrics().snapshots > snapshots);
        assert_true(i < 2 || world_metrics().objects_removed > removed);
        assert_in_range(world_metrics().segments, 1, 20);
    }
    assert_int_equal(world_metrics().holes, 0);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, checkpoint_world_setup, checkpoint_world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_the_newest_is_restored),
        TEST(test_what_was_restored_goes_on),
        TEST(test_a_name_within_the_origin_is_not_trusted),
        TEST(test_a_name_and_a_size_are_not_trusted),
        TEST(test_a_damaged_file_costs_nothing),
        TEST(test_a_damaged_segment_costs_what_came_after_it),
        TEST(test_a_damaged_manifest_is_passed_over),
        TEST(test_nothing_whole_is_refused),
        TEST(test_a_place_that_is_away_is_no_damage),
        TEST(test_a_state_is_never_overwritten),
        TEST(test_what_a_crash_left_is_removed),
        TEST(test_verifying_writes_nothing),
        TEST(test_they_are_listed),
        TEST(test_a_savepoint_is_complete),
        TEST(test_a_savepoint_is_read_back),
        TEST(test_savepoints_stop_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
