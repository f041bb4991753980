/* The real fcapd on a volume for its state that is full, read-only, unmounted, or fails: counting
 * stops, it is said why, and every count is right when the cause is gone. */
#include "disk_world.h"
#include "lab/lab.h"
#include "lib/fault.h"
#include "lib/mounts.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <dirent.h>
#include <sys/stat.h>

#include <cmocka.h>

#define NOTHING "nothing: each key equals the definition"
#define AFTER_START                                                                                \
    "by a start once the cause is gone: what was not committed is read from Kafka again"
#define ROOM_BYTES (1u << 30)

static struct disk_world world;

static int setup(void **unused)
{
    (void)unused;
    disk_world_open(&world, "", false);
    return 0;
}

/* Memtables that are full soon. */
static int setup_small(void **unused)
{
    (void)unused;
    disk_world_open(&world, "  write_buffers: 1MiB\n", false);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    disk_world_close(&world);
    return 0;
}

/* --- full --------------------------------------------------------------------------------------
 */

static void begin_full(void)
{
    disk_world_must_mount();
    mounts_tmpfs(world.state, "size=1g");
    disk_world_start(&world);
    disk_world_count(&world, 500);
    disk_world_mark(&world);
    mounts_tmpfs_room(world.state, 0);
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    do { /* RocksDB has taken room for its log in advance. */
        assert_true(lab_monotonic_ms() < deadline_ms);
        run_fixture_produce(&world.run, 2000);
        lab_pause_ms(200);
        (void)daemon_process_get(&world.run.process, "/readyz", NULL);
    } while (strstr(world.run.process.text, "the state takes no commits: ") == NULL);
}

static void test_a_full_volume(void **unused)
{
    (void)unused;
    begin_full();
    disk_world_await_ready(&world, 503, "the state takes no commits: ");
    disk_world_await_ready(&world, 503, "No space left on device");
    assert_int_equal(daemon_process_get(&world.run.process, "/livez", NULL), 200);
    disk_world_await_more(&world, "fcapd_commits_failed_total", 0);
    disk_world_log_says(&world, "a commit could not be written, it is tried again: ");
    disk_world_log_says(&world, "No space left on device");
    mounts_tmpfs_room(world.state, ROOM_BYTES);
    disk_world_await_ready(&world, 200, "");
    disk_world_log_says(&world, "commits are written again");
    disk_world_count(&world, 500);
    disk_world_every_key_is_right(&world);
    disk_world_kill(&world);
    disk_world_start(&world);
    disk_world_count(&world, 100);
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
    fault_is_proved(&(const struct fault){
        .id = "state-volume-full",
        .fault = "the volume of `state.directory` is full",
        .sees =
            "`/readyz` 503: `the state takes no commits: ... No space left on device`, `/livez` "
            "200; `fcapd_commits_failed_total` grows; records are taken until the commits that "
            "wait stall them",
        .lost = NOTHING,
        .recovers = "by itself, some seconds after there is space",
    });
}

static void test_a_start_on_a_full_volume(void **unused)
{
    (void)unused;
    begin_full();
    disk_world_kill(&world);
    mounts_tmpfs_room(world.state, 0); /* Files that it has removed meanwhile were room. */
    disk_world_mark(&world);
    disk_world_begin(&world);
    disk_world_ends(&world, 75);
    disk_world_log_says(&world, "bytes are free, opening needs");
    mounts_tmpfs_room(world.state, ROOM_BYTES);
    disk_world_start(&world);
    disk_world_count(&world, 100);
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
    fault_is_proved(&(const struct fault){
        .id = "state-volume-full-start",
        .fault = "killed while the volume of `state.directory` is full, and started on it",
        .sees = "exit code 75: `N bytes are free, opening needs M`",
        .lost = NOTHING,
        .recovers = AFTER_START,
    });
}

/* --- calls that fail ---------------------------------------------------------------------------
 */

struct failure {
    const char *ending; /* of the files */
    struct disk_codes codes;
    const char *says; /* in the log, beside the folder */
    struct fault fault;
};

/* From now on the disk fails; counting goes on until that is met. */
static void fail_and_end(const struct failure *failure)
{
    disk_world_mark(&world);
    faulty_disk_fail(&world.disk, world.state, failure->ending, failure->codes);
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    int code = -1;
    while (code < 0 && lab_monotonic_ms() < deadline_ms) {
        run_fixture_produce(&world.run, 1000);
        code = daemon_process_wait(&world.run.process, 200);
    }
    if (code != 70) {
        fail_msg("%s: exit code %d\n%s", failure->fault.id, code,
                 daemon_process_log(&world.run.process));
    }
    disk_world_log_says(&world, " failed: ");
    disk_world_log_says(&world, world.state);
    disk_world_log_says(&world, failure->says);
}

static void check_failure(const struct failure *failure)
{
    uint64_t hits = 0;
    uint64_t now = 0;
    for (int i = 0; i < DISK_CALLS; i++) {
        hits += faulty_disk_hits(&world.disk, (enum disk_call)i);
    }
    disk_world_start(&world);
    if (failure->codes.read == 0) { /* Else what is read by then would be in memory. */
        disk_world_count(&world, 100);
    }
    fail_and_end(failure);
    /* A start on the same disk ends, too, and harms nothing. */
    disk_world_begin(&world);
    int code = daemon_process_wait(&world.run.process, 2000);
    if (code < 0) { /* What failed is not needed for a start. */
        faulty_disk_heal(&world.disk);
        disk_world_kill(&world);
    } else if (code != 70) {
        (void)fprintf(stderr, "%s\n", daemon_process_log(&world.run.process));
        fail_msg("%s: a start on the same disk: %d", failure->fault.id, code);
    }
    faulty_disk_heal(&world.disk);
    for (int i = 0; i < DISK_CALLS; i++) {
        now += faulty_disk_hits(&world.disk, (enum disk_call)i);
    }
    assert_true(now > hits);
    disk_world_start(&world);
    disk_world_count(&world, 100);
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
    fault_is_proved(&failure->fault);
}

static void test_calls_that_fail(void **unused)
{
    static const struct failure failures[] = {
        {"",
         {.write = EIO},
         "Input/output error",
         {"state-write-error", "writing to the volume of `state.directory` fails",
          "exit code 70; the last line of the log: `worker N failed: write a commit: ... "
          "Input/output error`",
          NOTHING, AFTER_START}},
        {"",
         {.sync = EIO},
         "Input/output error",
         {"state-sync-error", "syncing files of `state.directory` fails",
          "exit code 70; the last line of the log: `worker N failed: ... Input/output error`",
          NOTHING, AFTER_START}},
        {"",
         {.write = EROFS, .sync = EROFS, .make = EROFS},
         "Read-only file system",
         {"state-turns-read-only",
          "the kernel makes the file system of `state.directory` read-only (`errors=remount-ro`)",
          "exit code 70; the last line of the log: `worker N failed: write a commit: ... Read-only "
          "file system`",
          NOTHING, AFTER_START}},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        check_failure(&failures[i]);
    }
}

/* The log takes every commit, and a flush cannot make a table of them. */
static void test_a_flush_that_fails(void **unused)
{
    static const struct failure failure = {
        ".sst",
        {.write = EIO},
        "Input/output error",
        {"state-flush-error", "RocksDB's flushes and compactions fail (a background error)",
         "exit code 70; the last line of the log: `worker N failed: write a commit: ... "
         "Input/output error`",
         NOTHING, AFTER_START}};
    (void)unused;
    check_failure(&failure);
}

static void test_tables_that_cannot_be_read(void **unused)
{
    static const struct failure failure = {
        ".sst",
        {.read = EIO},
        "Input/output error",
        {"state-read-error", "reading from the volume of `state.directory` fails",
         "exit code 70; the last line of the log: `worker N failed: ... Input/output error`",
         NOTHING, AFTER_START}};
    (void)unused;
    disk_world_start(&world);
    disk_world_count(&world, 500);
    disk_world_stop(&world); /* Leaves tables; the next process has nothing of them in memory. */
    check_failure(&failure);
}

#define HANGS "the state takes no commits: a write has not come back for"

/* A file system of the network whose server is silent. */
static void test_a_volume_that_hangs(void **unused)
{
    (void)unused;
    disk_world_start(&world);
    disk_world_count(&world, 500);
    disk_world_mark(&world);
    faulty_disk_hang(&world.disk, world.state);
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    do {
        assert_true(lab_monotonic_ms() < deadline_ms);
        run_fixture_produce(&world.run, 100);
        lab_pause_ms(200);
        (void)daemon_process_get(&world.run.process, "/readyz", NULL);
    } while (strstr(world.run.process.text, HANGS) == NULL);
    assert_true(disk_world_metric(&world, "fcapd_store_write_waits_seconds") > 1);
    disk_world_every_key_is_right(&world);
    assert_int_equal(daemon_process_get(&world.run.process, "/readyz", NULL), 503);
    assert_int_equal(daemon_process_get(&world.run.process, "/livez", NULL), 200);
    faulty_disk_heal(&world.disk);
    disk_world_await_ready(&world, 200, "");
    disk_world_count(&world, 100);
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
    fault_is_proved(&(const struct fault){
        .id = "state-volume-hangs",
        .fault = "writes to the volume of `state.directory` do not come back",
        .sees = "`/readyz` 503: `" HANGS " N ms`, `/livez` 200; `fcapd_store_write_waits_seconds` "
                "grows; counting goes on until the commits that wait stall it",
        .lost = NOTHING,
        .recovers = "by itself when they come back",
    });
}

/* --- read-only and gone ------------------------------------------------------------------------
 */

static void test_a_start_on_a_read_only_volume(void **unused)
{
    (void)unused;
    disk_world_must_mount();
    mounts_bind(world.state, world.state);
    disk_world_start(&world);
    disk_world_count(&world, 500);
    disk_world_stop(&world);
    assert_true(mounts_read_only(world.state, true));
    run_fixture_produce(&world.run, 500);
    disk_world_mark(&world);
    disk_world_begin(&world);
    disk_world_ends(&world, 70);
    disk_world_log_says(&world, "the file system is mounted read-only");
    assert_true(mounts_read_only(world.state, false));
    disk_world_start(&world);
    disk_world_count(&world, 100);
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
    fault_is_proved(&(const struct fault){
        .id = "state-volume-read-only",
        .fault = "started while `state.directory` is mounted read-only",
        .sees = "exit code 70: `the file system is mounted read-only`",
        .lost = NOTHING,
        .recovers = AFTER_START,
    });
}

static bool is_empty(const char *path)
{
    size_t count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    assert_int_equal(closedir(folder), 0);
    return count == 2; /* "." and ".." */
}

static void test_a_volume_that_is_unmounted(void **unused)
{
    char place[128];
    (void)unused;
    disk_world_must_mount();
    (void)snprintf(place, sizeof place, "%s/disk", world.volume);
    assert_int_equal(mkdir(place, 0700), 0);
    mounts_bind(place, world.state);
    disk_world_start(&world);
    disk_world_count(&world, 500);
    disk_world_mark(&world);
    mounts_detach(world.state);
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    int code = -1;
    while (code < 0 && lab_monotonic_ms() < deadline_ms) {
        run_fixture_produce(&world.run, 2000);
        code = daemon_process_wait(&world.run.process, 50);
    }
    assert_int_equal(code, 70);
    disk_world_log_says(&world, "is not the directory that was opened; was the volume unmounted?");
    assert_true(is_empty(world.state)); /* Nothing went to where the volume should be. */
    mounts_bind(place, world.state);
    int64_t stored = disk_world_stored(&world);
    assert_in_range(stored, 500, disk_world_produced(&world));
    disk_world_start(&world);
    disk_world_count(&world, 100);
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
    fault_is_proved(&(const struct fault){
        .id = "state-volume-unmounted",
        .fault = "the volume of `state.directory` is unmounted while files in it are open "
                 "(`umount -l`)",
        .sees =
            "at the next commit exit code 70: `worker N failed: ... is not the directory that was "
            "opened; was the volume unmounted?`; nothing is written below the mount point",
        .lost = NOTHING,
        .recovers = "by a start when the volume is mounted again; without it the state begins anew",
    });
}

int main(int argc, char **argv)
{
#define TEST(name)       cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_SMALL(name) cmocka_unit_test_setup_teardown(name, setup_small, teardown)
    const struct CMUnitTest tests[] = {
        TEST_SMALL(test_a_full_volume),
        TEST_SMALL(test_a_start_on_a_full_volume),
        TEST(test_calls_that_fail),
        TEST_SMALL(test_a_flush_that_fails),
        TEST(test_tables_that_cannot_be_read),
        TEST(test_a_volume_that_hangs),
        TEST(test_a_start_on_a_read_only_volume),
        TEST_SMALL(test_a_volume_that_is_unmounted),
    };
    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    disk_world_enter();
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests_name("disk_faults", tests, NULL, NULL);
}
