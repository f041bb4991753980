/* Checkpoints of RocksDB in a directory, with all threads: machines are lost in the middle of it,
 * and what is restored is compared, byte for byte, with what the store's follower was told; and
 * savepoints beside it. */
#include "fcap/checkpointer.h"
#include "fcap/clock_os.h"
#include "fcap/restore.h"
#include "fcap/savepoint.h"
#include "integration/store_rocksdb_frames.h"
#include "integration/store_rocksdb_help.h"
#include "lib/full_size.h"
#include "lib/random_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

/* Both want to be told of batches: the test's frames and the checkpointer. */
static struct fcap_store_follower followers[2];

void __real_fcap_store_rocksdb_follow(struct fcap_store_rocksdb *db,
                                      const struct fcap_store_follower *follower);
void __wrap_fcap_store_rocksdb_follow(struct fcap_store_rocksdb *db,
                                      const struct fcap_store_follower *follower);

static void tell_both(void *context, uint64_t sequence, int64_t written_ms,
                      const struct fcap_batch *batch, const bool *kept)
{
    (void)context;
    for (size_t i = 0; i < 2; i++) {
        if (followers[i].written != NULL) {
            followers[i].written(followers[i].context, sequence, written_ms, batch, kept);
        }
    }
}

void __wrap_fcap_store_rocksdb_follow(struct fcap_store_rocksdb *db,
                                      const struct fcap_store_follower *follower)
{
    const struct fcap_store_follower both = {NULL, tell_both};
    if (follower == NULL) {
        __real_fcap_store_rocksdb_follow(db, NULL);
        return;
    }
    followers[followers[0].written != NULL] = *follower;
    __real_fcap_store_rocksdb_follow(db, &both);
}

/* --- the world ------------------------------------------------------------------------------- */

static struct {
    char directory[64]; /* of everything */
    char state_directory[128];
    struct fcap_objects *objects;
    struct fcap_store_settings settings;
    struct fcap_store_rocksdb *db;
    struct fcap_checkpoint_state_rocksdb state;
    struct fcap_checkpointer *checkpointer;
    struct frames frames;
    struct model model;
    struct frame_writer writer;
    atomic_bool is_copying;
    uint64_t random;
    uint64_t lives;
} world;

static void pause_ms(int64_t ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL); /* How much happens meanwhile matters to nobody. */
}

static void tell(void *context, enum fcap_checkpointer_level level, const char *text)
{
    (void)context;
    if (level == FCAP_CHECKPOINTER_ERROR) {
        fprintf(stderr, "%s\n", text);
    }
}

static int set_up(void **state)
{
    (void)state;
    char place[128];
    struct fcap_error error = {""};
    memset(&world, 0, sizeof world);
    help_make(world.directory);
    (void)snprintf(world.state_directory, sizeof world.state_directory, "%s/state",
                   world.directory);
    (void)snprintf(place, sizeof place, "%s/checkpoints", world.directory);
    world.settings = help_settings(world.state_directory);
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        world.settings.families[i].write_buffer_bytes = 64 << 10;
        world.settings.families[i].target_file_bytes = 32 << 10;
        world.settings.families[i].level_base_bytes = 128 << 10;
    }
    if (fcap_objects_directory_open(place, false, &world.objects, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    world.random = 1;
    return 0;
}

static void open_world(void)
{
    struct fcap_store_position position;
    struct fcap_error error = {""};
    const struct fcap_checkpointer_settings settings = {
        .profile = "days",
        .instance = "pod-0",
        .interval_ms = 40,
        .min_pause_ms = 10,
        .materialization_interval_ms = 250,
        .transfer_threads = 2,
        .retain = 2,
        .queue_bytes_max = 64 << 20,
        .clock = fcap_clock_os(),
        .tell = tell,
    };
    memset(followers, 0, sizeof followers);
    world.db = help_open(&world.settings);
    fcap_checkpoint_state_rocksdb_init(&world.state, world.db, &world.settings);
    if (fcap_checkpointer_open(&settings, world.objects, &world.state.state, &world.checkpointer,
                               &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    fcap_store_rocksdb_position(world.db, &position);
    frames_init(&world.frames, position.sequence + 1);
    struct fcap_store_follower own = followers[0];
    memset(followers, 0, sizeof followers);
    frames_follow(&world.frames, world.db);
    followers[1] = own;
    assert_int_equal(fcap_checkpointer_start(world.checkpointer), FCAP_OK);
    world.writer = (struct frame_writer){.store = fcap_store_rocksdb_handle(world.db),
                                         .partition = 10,
                                         .seed = 20261130 + world.lives++,
                                         .users = 300,
                                         .value_bytes = 300,
                                         .is_copying = &world.is_copying};
    frame_writer_start(&world.writer);
}

/* Ends it; the last batches are in a checkpoint or not. */
static void close_world(void)
{
    frame_writer_stop(&world.writer);
    assert_int_equal(atomic_load(&world.writer.failure), FCAP_OK);
    fcap_checkpointer_close(world.checkpointer);
    world.checkpointer = NULL;
    fcap_checkpoint_state_done(&world.state.state);
    fcap_store_rocksdb_close(world.db);
    world.db = NULL;
}

static int tear_down(void **state)
{
    (void)state;
    fcap_objects_directory_close(world.objects);
    frames_done(&world.frames);
    model_done(&world.model);
    help_remove(world.directory);
    return 0;
}

static struct fcap_checkpoint_metrics metrics_now(void)
{
    struct fcap_checkpoint_metrics metrics;
    fcap_checkpointer_metrics(world.checkpointer, &metrics);
    return metrics;
}

/* Until so many more checkpoints and snapshots are complete. */
static void await(uint64_t checkpoints, uint64_t snapshots)
{
    struct fcap_checkpoint_metrics begin = metrics_now();
    struct fcap_checkpoint_metrics now = begin;
    int64_t deadline_ms = help_now_ms() + 4 * 60 * 1000;
    while (now.checkpoints < begin.checkpoints + checkpoints ||
           now.snapshots < begin.snapshots + snapshots) {
        if (help_now_ms() > deadline_ms) {
            fail_msg("%llu checkpoints, %llu snapshots", (unsigned long long)now.checkpoints,
                     (unsigned long long)now.snapshots);
        }
        pause_ms(5);
        now = metrics_now();
        assert_int_equal(now.stopped, 0);
    }
}

/* Restores into `directory` and compares with the batches that were told. */
static struct fcap_restore_report restore_and_compare(struct fcap_objects *objects,
                                                      size_t *ret_compared)
{
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    struct fcap_checkpoint_place_rocksdb place;
    fcap_checkpoint_place_rocksdb_init(&place, &world.settings);
    const struct fcap_restore_settings settings = {.profile = "days",
                                                   .instance = "pod-0",
                                                   .directory = world.state_directory,
                                                   .place = &place.place};
    if (fcap_restore(&settings, objects, &report, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(report.not_taken, 0);
    model_play(&world.model, &world.frames, report.sequence);
    struct fcap_store_rocksdb *db = help_open(&world.settings);
    struct fcap_store_position position;
    fcap_store_rocksdb_position(db, &position);
    assert_int_equal(position.sequence, report.sequence);
    *ret_compared = model_compare(&world.model, fcap_store_rocksdb_handle(db));
    fcap_store_rocksdb_close(db);
    return report;
}

/* --- tests ----------------------------------------------------------------------------------- */

static void test_machines_are_lost(void **state)
{
    (void)state;
    const int losses = is_full_size() ? 100 : 8;
    size_t compared_all = 0;
    uint64_t batches = 0;
    uint64_t lost = 0;
    uint64_t kept = 0;
    for (int i = 0; i < losses; i++) {
        open_world();
        await(random_below(&world.random, 4), random_below(&world.random, 3));
        await(1, 0);
        pause_ms(random_below(&world.random, 60));
        uint64_t complete = metrics_now().number;
        bool is_clean = random_below(&world.random, 4) == 0;
        frame_writer_stop(&world.writer);
        /* Without time for a last checkpoint it comes or doesn't. */
        enum fcap_status status = fcap_checkpointer_stop(world.checkpointer, is_clean ? 60000 : 0);
        if (status != FCAP_OK) {
            assert_int_equal(fcap_checkpointer_stop(world.checkpointer, 60000), FCAP_OK);
        }
        complete = is_clean ? metrics_now().number : complete;
        kept += metrics_now().files_kept;
        uint64_t written = world.frames.first + world.frames.count - 1;
        close_world();
        help_remove(world.state_directory);
        size_t compared = 0;
        struct fcap_restore_report report = restore_and_compare(world.objects, &compared);
        assert_true(report.number >= complete);
        compared_all += compared;
        batches += report.batches;
        lost += written - report.sequence;
        frames_done(&world.frames);
    }
    printf("result: %d machines lost, %zu pairs equal, %llu batches from changelogs, %llu lost, "
           "%llu files not sent again\n",
           losses, compared_all, (unsigned long long)batches, (unsigned long long)lost,
           (unsigned long long)kept);
    assert_true(compared_all > 1000 && batches > 8 && kept > 8);
}

/* The state goes on after a clean end without a new snapshot. A savepoint that a killed process has
 * left goes: it would keep every file for ever. */
static void test_the_same_state_goes_on(void **state)
{
    (void)state;
    char left[4096];
    uint64_t sequence = 0;
    struct fcap_error error = {""};
    open_world();
    await(2, 1);
    frame_writer_stop(&world.writer);
    assert_int_equal(fcap_checkpointer_stop(world.checkpointer, 60000), FCAP_OK);
    uint64_t number = metrics_now().number;
    assert_int_equal(
        fcap_checkpoint_state_snapshot(&world.state.state, "savepoint", left, &sequence, &error),
        FCAP_OK);
    close_world();
    assert_int_equal(access(left, F_OK), 0);
    model_play(&world.model, &world.frames, world.frames.first + world.frames.count - 1);
    frames_done(&world.frames);
    open_world();
    assert_int_not_equal(access(left, F_OK), 0);
    await(1, 0);
    assert_true(metrics_now().number > number);
    assert_int_equal(metrics_now().holes, 0);
    frame_writer_stop(&world.writer);
    assert_int_equal(fcap_checkpointer_stop(world.checkpointer, 60000), FCAP_OK);
    uint64_t written = world.frames.first + world.frames.count - 1;
    close_world();
    help_remove(world.state_directory);
    size_t compared = 0;
    struct fcap_restore_report report = restore_and_compare(world.objects, &compared);
    assert_int_equal(report.sequence, written); /* Nothing was lost. */
}

static void test_savepoints_beside_it(void **state)
{
    (void)state;
    const struct fcap_savepoint_settings settings = {
        .profile = "days", .instance = "pod-0", .clock = fcap_clock_os()};
    struct fcap_savepoint_report report = {0};
    struct fcap_error error = {""};
    struct fcap_objects *place = NULL;
    char directory[128];
    uint64_t removed = 0;
    uint64_t snapshots = 0;
    const int savepoints = is_full_size() ? 100 : 40;
    open_world();
    await(1, 1);
    for (int i = 0; i < savepoints; i++) {
        (void)snprintf(directory, sizeof directory, "%s/savepoint-%d", world.directory, i);
        assert_int_equal(fcap_objects_directory_open(directory, false, &place, &error), FCAP_OK);
        if (fcap_savepoint_take(&settings, place, &world.state.state, &report, &error) != FCAP_OK) {
            fail_msg("%s", error.text);
        }
        fcap_objects_directory_close(place);
        if (i < savepoints - 1) {
            help_remove(directory);
        }
        if (i % 10 == 9) {
            await(1, 2);                                          /* The regular ones go on, */
            assert_true(metrics_now().objects_removed > removed); /* and so does the cut. */
            removed = metrics_now().objects_removed;
        }
        snapshots = metrics_now().snapshots;
    }
    assert_int_equal(metrics_now().failures_snapshot, 0);
    assert_int_equal(metrics_now().holes, 0);
    printf("result: %d savepoints beside %llu snapshots\n", savepoints,
           (unsigned long long)snapshots);
    frame_writer_stop(&world.writer);
    assert_int_equal(fcap_checkpointer_stop(world.checkpointer, 60000), FCAP_OK);
    close_world();
    help_remove(world.state_directory);
    size_t compared = 0;
    assert_int_equal(fcap_objects_directory_open(directory, true, &place, &error), FCAP_OK);
    assert_int_equal(restore_and_compare(place, &compared).sequence, report.sequence);
    fcap_objects_directory_close(place);
    assert_true(compared > 100);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_machines_are_lost),
        TEST(test_the_same_state_goes_on),
        TEST(test_savepoints_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
