/* The checkpointer when something happens while one of its threads waits for the place of the
 * checkpoints or for the store; and what must not pile up when tries fail for long. */
#include "checkpoint_world.h"

#include "../../src/checkpoint/checkpointer_internal.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define MINUTE_MS 60000

static struct fcap_checkpoint newest;
static int left; /* of what a hook still does */

static void look_at_newest(void)
{
    fcap_checkpoint_done(&newest);
    newest = world_newest();
}

static int teardown(void **state)
{
    fcap_checkpoint_done(&newest);
    left = 0;
    return checkpoint_world_teardown(state);
}

/* All that was written can be restored. */
static void all_is_there(void)
{
    uint64_t sequence = world.state.position.sequence;
    look_at_newest();
    assert_int_equal(newest.sequence, sequence);
    world_kill();
    world_lose_state();
    assert_int_equal(world_restore().sequence, sequence);
}

static void write_more_than_fits(void)
{
    for (int i = 0; i < 100; i++) {
        world_write(50, 1000, 1000);
    }
}

/* --- holes ----------------------------------------------------------------------------------- */

static void overflow_in_list(enum fake_objects_call call, const char *name)
{
    (void)name;
    if (call == FAKE_OBJECTS_LIST && left == 1) {
        left = 0;
        write_more_than_fits();
    }
}

/* A snapshot was decided upon; before it is taken, the queue runs over. */
static void test_a_hole_comes_while_the_place_is_listed(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world_pass(9 * MINUTE_MS);
    left = 1;
    world.during = overflow_in_list;
    world_pass(2 * MINUTE_MS);
    assert_int_equal(left, 0);
    assert_int_equal(world_metrics().holes, 1);
    world_write(5, 10, 10);
    world_pass(3 * MINUTE_MS);
    all_is_there();
}

static void overflow_and_ship_in_list(enum fake_objects_call call, const char *name)
{
    bool is_now = call == FAKE_OBJECTS_LIST && left == 1;
    overflow_in_list(call, name);
    if (is_now) {
        left = -1;
        while (world.checkpointer->queue_first != NULL) {
            world_let(WORLD_SHIPPER);
        }
        assert_true(world.checkpointer->segment.first > 0);
        assert_false(world.checkpointer->is_alive);
    }
}

static void write_one(void *context)
{
    (void)context;
    world_write(5, 10, 10);
}

/* The same, and the last segment before the hole is still open: what comes behind the hole must not
 * go into it, or beside it. */
static void test_a_hole_comes_and_its_segment_is_open(void **state)
{
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    (void)state;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world_pass(9 * MINUTE_MS);
    left = 1;
    world.during = overflow_and_ship_in_list;
    world.state.meanwhile = write_one;
    world_pass(MINUTE_MS + 1000);
    assert_int_equal(left, -1);
    for (int i = 0; i < 5; i++) {
        world_write(5, 10, 10);
        world_pass(2 * MINUTE_MS);
        look_at_newest();
        assert_int_equal(world_verify(&report, &error), FCAP_OK);
        assert_int_equal(report.number, newest.number);
    }
    world.state.meanwhile = NULL;
    all_is_there();
}

static void write_more_than_fits_once(void *context)
{
    (void)context;
    if (left == 1) {
        left = 0;
        write_more_than_fits();
    }
}

/* How far the partitions are is told exactly, also of batches that went past the queue. */
static void test_partitions_are_told_behind_a_hole(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world_pass(9 * MINUTE_MS);
    left = 1;
    world.state.meanwhile = write_more_than_fits_once;
    world_pass(MINUTE_MS);
    assert_true(world_metrics().holes == 1);
    look_at_newest();
    assert_int_equal(newest.snapshot_sequence, 101);
    world.state.meanwhile = NULL;
}

static void write_and_ship(void *context)
{
    (void)context;
    for (int i = 0; i < 100; i++) {
        world_write(50, 1000, 1000);
        world_let(WORLD_SHIPPER);
    }
    assert_int_equal(world_metrics().queue_bytes, 0);
}

/* A snapshot may take the store as long as it wants: batches are shipped meanwhile. */
static void test_a_snapshot_holds_no_batch_up(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world.state.meanwhile = write_and_ship;
    world_pass(10 * MINUTE_MS);
    world.state.meanwhile = NULL;
    assert_int_equal(world_metrics().holes, 0);
    world_pass(2 * MINUTE_MS);
    all_is_there();
}

/* The smallest hole there is, and it cannot be mended: nothing is told complete that joins over it,
 * and the snapshot is tried again and again. */
static void test_a_hole_of_one_batch(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_pass(40000);
    world.state.snapshot_failures_left = 8; /* 255 s of pauses. */
    fake_objects_fail(&world.objects, FAKE_OBJECTS_WRITE, 1, FCAP_IO);
    world_write(5, 10, 10);
    world_pass(1000);
    assert_int_equal(world_metrics().holes, 1);
    world_write(5, 10, 10);
    for (int second = 0; second < 240; second++) {
        world_pass(1000);
        look_at_newest();
        assert_int_equal(newest.sequence, 0);
    }
    assert_true(world_metrics().failures_snapshot > 4);
    assert_true(world_metrics().age_ms > 4 * MINUTE_MS);
    world_pass(2 * MINUTE_MS);
    look_at_newest();
    assert_int_equal(newest.sequence, 2);
    assert_int_equal(newest.snapshot_sequence, 2);
    all_is_there();
}

/* A checkpoint of what came before the hole is complete; what came behind it is as old as ever. */
static void test_age_behind_a_hole(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_pass(40000);
    world.state.snapshot_failures_left = SIZE_MAX;
    write_more_than_fits();
    world_pass(MINUTE_MS);
    assert_int_equal(world_metrics().number, 2);
    assert_int_equal(world_metrics().age_ms, 100000);
    look_at_newest();
    assert_true(newest.sequence > 0 && newest.sequence < 100);
}

/* While a manifest is written its run ends, another begins, and what a failed snapshot has sent is
 * cut: not what that manifest names. */
static void cut_in_manifest(enum fake_objects_call call, const char *name)
{
    struct fcap_checkpointer *checkpointer = world.checkpointer;
    if (call != FAKE_OBJECTS_WRITE || left == 0 || strstr(name, "/manifest-") == NULL) {
        return;
    }
    left = 0;
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer_break(checkpointer);
    (void)pthread_mutex_unlock(&checkpointer->lock);
    world.now_ms += MINUTE_MS; /* It is slow. */
    fake_objects_fail(&world.objects, FAKE_OBJECTS_BEGIN, 1, FCAP_IO);
    for (int i = 0; i < 100 && !checkpointer->wants_cut; i++) {
        world_let(WORLD_MATERIALISER);
    }
    assert_true(checkpointer->wants_cut);
    world.state.snapshot_failures_left = 1;
    world.now_ms += 2000;
    for (int i = 0; i < 100; i++) {
        world_let(WORLD_MATERIALISER);
    }
    assert_false(checkpointer->wants_cut);
}

static void test_a_cut_comes_while_a_manifest_is_written(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_pass(40000);
    world_write(5, 10, 10);
    world.during = cut_in_manifest;
    left = 1;
    world_pass(80000); /* The checkpoint's time has come. */
    assert_int_equal(left, 0);
    assert_true(world_metrics().number >= 2);
    look_at_newest();
    assert_int_equal(newest.segment_count, 1);
    world_pass(5 * MINUTE_MS);
    all_is_there();
}

static void break_once(void *context)
{
    struct fcap_checkpointer *checkpointer = world.checkpointer;
    (void)context;
    if (left == 1) {
        left = 0;
        (void)pthread_mutex_lock(&checkpointer->lock);
        checkpointer_break(checkpointer);
        (void)pthread_mutex_unlock(&checkpointer->lock);
    }
}

/* A run ends while a snapshot is taken, and nothing new comes: two snapshots hold the same batches,
 * and what the cut leaves of both is whole. */
static void test_two_snapshots_of_one_batch(void **state)
{
    struct fcap_checkpoint checkpoint;
    struct fcap_error error = {""};
    (void)state;
    world.state.meanwhile = break_once;
    world_open();
    world_rest();
    left = 1;
    world_write(5, 10, 10);
    world_pass(15 * MINUTE_MS);
    assert_int_equal(left, 0);
    assert_int_equal(world_metrics().snapshots, 3);
    for (size_t i = 0; i < world_count("/manifest-"); i++) {
        struct fcap_buffer bytes = world_read(world_find("/manifest-", i));
        assert_int_equal(fcap_checkpoint_decode(fcap_buffer_bytes(&bytes), &checkpoint, &error),
                         FCAP_OK);
        for (size_t k = 0; k < checkpoint.file_count; k++) {
            assert_non_null(world_find(checkpoint.files[k].object, 0));
        }
        fcap_checkpoint_done(&checkpoint);
        fcap_buffer_done(&bytes);
    }
    world.state.meanwhile = NULL;
    all_is_there();
}

/* --- what is left ---------------------------------------------------------------------------- */

static void fail_to_send_the_last(enum fake_objects_call call, const char *name)
{
    if (call == FAKE_OBJECTS_BEGIN && left > 0 && strstr(name, "-MANIFEST-") != NULL) {
        left--;
        fake_objects_fail(&world.objects, call, 1, FCAP_IO);
    }
}

/* Files that were sent, and left the state before a snapshot was complete, must not fill the place
 * for good. */
static void test_what_failed_makes_room(void **state)
{
    (void)state;
    world.settings.retain = 1;
    world.settings.queue_bytes_max = 1 << 24;
    world.state.compact_at = 2;
    world_open();
    world_rest();
    world.during = fail_to_send_the_last;
    left = 20;
    while (left > 0) { /* Each time a compaction has made another file of all. */
        for (int i = 0; i < 20; i++) {
            world_write(20, 200, 500);
        }
        world_pass(10 * MINUTE_MS);
    }
    look_at_newest();
    fake_objects_limit(&world.objects, world_metrics().changelog_bytes + (1 << 20));
    world_pass(30 * MINUTE_MS);
    assert_int_equal(world_metrics().failing, 0);
    assert_true(world_metrics().snapshots >= 2);
    assert_true(fake_objects_bytes(&world.objects) < 1 << 20);
    all_is_there();
}

/* Nothing new comes, so no snapshot does, either: what could not be removed goes all the same. */
static void test_a_cut_that_fails_comes_again(void **state)
{
    (void)state;
    world.settings.retain = 1;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world_pass(9 * MINUTE_MS);
    assert_int_equal(world_metrics().number, 2); /* What is complete is not made once more. */
    fake_objects_fail(&world.objects, FAKE_OBJECTS_REMOVE, 1, FCAP_IO);
    world_write(5, 10, 10);
    world_pass(MINUTE_MS);
    assert_int_equal(world_metrics().failing, 1);
    size_t count = world_count("");
    world_pass(5000);
    assert_int_equal(world_metrics().failing, 0);
    assert_true(world_count("") < count);
    world_pass(60 * MINUTE_MS);
    assert_int_equal(world_metrics().failing, 0);
    look_at_newest();
    assert_int_equal(world_count(""),
                     newest.file_count + newest.segment_count + world_count("/manifest-"));
}

/* A place in which nothing can be removed is used all the same. */
static void refuse_to_remove(enum fake_objects_call call, const char *name)
{
    (void)name;
    if (call == FAKE_OBJECTS_REMOVE) {
        fake_objects_fail(&world.objects, call, 1, FCAP_IO);
    }
}

static void test_nothing_can_be_removed(void **state)
{
    (void)state;
    world.during = refuse_to_remove;
    world_open();
    for (int minute = 0; minute < 60; minute++) {
        world_write(5, 100, 20);
        world_pass(MINUTE_MS);
    }
    assert_int_equal(world_metrics().failing, 1);
    assert_true(world_metrics().snapshots >= 6);
    assert_true(world_metrics().failures_other < 200);
    world.during = NULL;
    world_pass(20 * MINUTE_MS);
    assert_int_equal(world_metrics().failing, 0);
    all_is_there();
}

/* No snapshot can be taken for days: manifests do not pile up, and none of those that are kept
 * lacks anything. */
static void test_manifests_do_not_pile_up(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world.state.snapshot_failures_left = SIZE_MAX;
    for (int i = 0; i < 800; i++) {
        world_write(2, 100, 20);
        world_pass(2 * MINUTE_MS);
        assert_true(world_count("/manifest-") <= 3 * CHECKPOINTER_MANIFESTS_MAX);
    }
    look_at_newest();
    assert_int_equal(newest.segment_count, 800);
    assert_int_equal(world_metrics().materialization_behind, 1);
    assert_true(world_metrics().age_ms <= 2 * MINUTE_MS);
    world.state.snapshot_failures_left = 0;
    world_pass(21 * MINUTE_MS);
    world_write(2, 100, 20);
    world_pass(11 * MINUTE_MS);
    look_at_newest();
    assert_true(newest.segment_count < 20);
    all_is_there();
}

/* ... and are not rewritten for ever at the shortest interval, each longer than the one before. */
static void test_many_segments_slow_checkpoints_down(void **state)
{
    (void)state;
    world.settings.interval_ms = 1000;
    world.settings.min_pause_ms = 0;
    world_open();
    world_rest();
    world.state.snapshot_failures_left = SIZE_MAX;
    for (int second = 0; second < 3000; second++) {
        world_write(1, 100, 20);
        world_pass(1000);
    }
    /* The thousandth comes after 1000 s; the n-th n ms after the one before. */
    assert_in_range(world_metrics().segments, 2150, 2300);
    assert_true(world_metrics().age_ms <= 4000);
    look_at_newest();
}

/* --- who else is there ----------------------------------------------------------------------- */

/* The lock of a machine that is lost may stand for a while: it is waited for. */
static void test_a_lock_is_waited_for(void **state)
{
    (void)state;
    struct fcap_objects *port = &world.objects.port;
    struct fcap_object_lock *lock = NULL;
    assert_int_equal(port->ops->lock(port, "days/pod-0/", "fcapd elsewhere", &lock, NULL), FCAP_OK);
    world_open();
    for (int i = 0; i < 30; i++) {
        world_write(5, 10, 10);
        world_pass(MINUTE_MS);
    }
    assert_true(world_was_told("held by fcapd elsewhere"));
    assert_int_equal(world_metrics().stopped, 0);
    assert_int_equal(world_metrics().failing, 1);
    assert_true(world.told_count < 5);
    assert_int_equal(world_count(""), 0); /* Nothing was written, */
    port->ops->unlock(port, lock);
    world_pass(2 * MINUTE_MS);
    assert_int_equal(world_metrics().failing, 0);
    all_is_there(); /* and all of it is there soon. */
}

static bool has_snapshot(void)
{
    char path[256];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s/.snapshot", world.state_directory);
    return stat(path, &info) == 0;
}

/* A snapshot keeps files that the state drops: it goes when nobody sends it any more. */
static void test_no_snapshot_is_left_behind(void **state)
{
    (void)state;
    world.settings.rate_limit_bytes_per_second = 1000;
    world_open();
    world_rest();
    for (int i = 0; i < 60; i++) {
        world_write(50, 100000, 1000);
        world_rest();
    }
    world_pass(11 * MINUTE_MS);
    assert_true(has_snapshot());
    char name[FCAP_OBJECT_NAME_MAX + 1];
    (void)fcap_checkpoint_manifest_name("days/pod-0/", world_metrics().number + 1, name);
    world_make(name, FCAP_BYTES_NONE);
    world_write(5, 10, 10);
    world_pass(3 * MINUTE_MS);
    assert_int_equal(world_metrics().stopped, 1);
    assert_false(has_snapshot());
}

/* --- what is told ---------------------------------------------------------------------------- */

static size_t told(const char *text)
{
    size_t count = 0;
    for (size_t i = 0; i < world.told_count; i++) {
        count += strstr(world.told[i], text) != NULL;
    }
    return count;
}

/* Another failure than before is told, once. */
static void test_another_failure_is_told(void **state)
{
    (void)state;
    world_open();
    world_rest();
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    world_write(50, 1000, 1000);
    world_pass(60 * MINUTE_MS);
    size_t before = told("counting goes on");
    assert_true(before >= 1);
    fake_objects_away(&world.objects, FCAP_NO_SPACE);
    world_pass(60 * MINUTE_MS);
    assert_int_equal(told("counting goes on"), before + 1);
    assert_true(world_was_told(fcap_status_text(FCAP_NO_SPACE)));
}

/* Clocks on the wall go wrong; nothing that the checkpointer does depends on them. */
static void test_the_wall_clock_leaps(void **state)
{
    (void)state;
    world_open();
    world_rest();
    for (uint64_t number = 2; number < 20; number++) {
        world_write(5, 100, 20);
        world.wall_ms += number % 2 == 0 ? -3600000 : 7200000;
        world_pass(2 * MINUTE_MS);
        assert_true(world_metrics().age_ms <= 2 * MINUTE_MS);
        assert_true(world_metrics().snapshot_age_ms <= 10 * MINUTE_MS);
        look_at_newest();
        assert_int_equal(newest.sequence, number - 1);
    }
    world_stop();
    world.wall_ms -= 86400000;
    world_open();
    assert_int_equal(world_metrics().age_ms, 0);
    world_write(5, 100, 20);
    world_pass(12 * MINUTE_MS);
    assert_true(world_metrics().snapshots >= 1);
    all_is_there();
}

/* --- files ----------------------------------------------------------------------------------- */

/* A sender that was asleep looks for work while the next snapshot's files are being looked up. */
static void test_a_late_sender_finds_nothing(void **state)
{
    (void)state;
    struct transfer transfer;
    struct transfer_sender sender = {0};
    transfer_init(&transfer, &world.objects.port, 0);
    transfer_clear(&transfer, world.directory);
    struct transfer_job *job = transfer_add(&transfer);
    (void)snprintf(job->file.name, sizeof job->file.name, "000001.sst");
    assert_true(transfer_step(&transfer, &sender, world.now_ms) == INT64_MAX);
    transfer_begin(&transfer);
    (void)snprintf(job->file.object, sizeof job->file.object, "days/pod-0/file");
    assert_true(transfer_step(&transfer, &sender, world.now_ms) != INT64_MAX);
    assert_int_equal(transfer.status, FCAP_IO); /* There is no such file. */
    assert_true(transfer.is_local);
    assert_non_null(transfer_find(&transfer, "000001.sst"));
    assert_null(transfer_find(&transfer, "000002.sst"));
    transfer_sender_done(&transfer, &sender);
    transfer_done(&transfer);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, checkpoint_world_setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_hole_comes_while_the_place_is_listed),
        TEST(test_a_hole_comes_and_its_segment_is_open),
        TEST(test_partitions_are_told_behind_a_hole),
        TEST(test_a_snapshot_holds_no_batch_up),
        TEST(test_a_hole_of_one_batch),
        TEST(test_age_behind_a_hole),
        TEST(test_a_cut_comes_while_a_manifest_is_written),
        TEST(test_two_snapshots_of_one_batch),
        TEST(test_what_failed_makes_room),
        TEST(test_a_cut_that_fails_comes_again),
        TEST(test_nothing_can_be_removed),
        TEST(test_manifests_do_not_pile_up),
        TEST(test_many_segments_slow_checkpoints_down),
        TEST(test_a_lock_is_waited_for),
        TEST(test_no_snapshot_is_left_behind),
        TEST(test_another_failure_is_told),
        TEST(test_the_wall_clock_leaps),
        TEST(test_a_late_sender_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
