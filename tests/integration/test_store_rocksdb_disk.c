/* The RocksDB store on a full disk: what fails, and what comes back by itself. */
#include "integration/store_rocksdb_help.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "integration/store_rocksdb_fixture.h"

static bool left_open; /* a store that could not be closed */

/* A small file system in the store's place, half of it taken by a file that can be removed. */
static bool mount_small(const char *ballast, bool *ret_has_ballast)
{
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    if (geteuid() != 0 || mount("none", fixture.directory, "tmpfs", 0, "size=40m") != 0) {
        print_message("skipped: a full disk needs root and CAP_SYS_ADMIN\n");
        return false;
    }
    int file = open(ballast, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    *ret_has_ballast = file >= 0 && posix_fallocate(file, 0, 20 << 20) == 0;
    (void)close(file);
    return true;
}

/* A store that may not close: its files are opened elsewhere, as after a crash. */
static void copy_files(const char *copy, int64_t deadline_ms)
{
    char command[256];
    int code = 1;
    (void)snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s 2>/dev/null", copy,
                   fixture.directory, copy);
    while (code != 0 && help_now_ms() < deadline_ms) {
        code = system(command); /* RocksDB may delete a file meanwhile. */
    }
    assert_int_equal(code, 0);
}

static void fill_and_recover(bool wal)
{
    char ballast[128];
    (void)snprintf(ballast, sizeof ballast, "%s/.ballast", fixture.directory);
    bool has_ballast;
    if (!mount_small(ballast, &has_ballast)) {
        skip();
    }
    fixture.settings.wal = wal;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        /* RocksDB comes back when the largest of them fits on the disk again. */
        fixture.settings.families[i].write_buffer_bytes = 2 << 20;
    }
    enum fcap_status status = FCAP_OK;
    uint64_t number = 0;
    reopen();
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    while (status == FCAP_OK && help_now_ms() < deadline_ms) {
        help_number(&fixture.batch, ++number, 100000);
        status = help_commit(fixture.store, &fixture.batch);
    }
    struct fcap_error error;
    fcap_store_rocksdb_last_error(fixture.db, &error);
    uint64_t at_failure = help_agreed(fixture.store); /* Reading goes on. */
    enum fcap_status again = help_commit(fixture.store, &fixture.batch);
    (void)unlink(ballast);
    int64_t freed_ms = help_now_ms();
    while (fcap_status_class(again) == FCAP_CLASS_RETRY && help_now_ms() < deadline_ms) {
        brief_pause();
        again = help_commit(fixture.store, &fixture.batch);
    }
    print_message("result: wal %s: full after %llu commits, %s %lld ms after space was there\n",
                  wal ? "on" : "off", (unsigned long long)number, fcap_status_text(again),
                  (long long)(help_now_ms() - freed_ms));
    uint64_t recovered = help_agreed(fixture.store);
    char copy[64];
    help_make(copy);
    if (again == FCAP_OK) {
        help_sync(fixture.store);
    } else {
        copy_files(copy, deadline_ms);
        fixture.settings.directory = copy;
    }
    reopen();
    uint64_t reopened = help_agreed(fixture.store);
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    assert_int_equal(umount2(fixture.directory, MNT_DETACH), 0);
    help_remove(copy);
    assert_true(has_ballast);
    if (wal || status != FCAP_IO) { /* 7.8 without log may end it at once. */
        assert_int_equal(status, FCAP_NO_SPACE);
        assert_int_equal(fcap_status_class(status), FCAP_CLASS_RETRY);
        assert_non_null(strstr(error.text, "No space left"));
    }
    assert_in_range(at_failure, number - 1, number);
    if (wal || again == FCAP_OK) {
        assert_int_equal(again, FCAP_OK);
        assert_int_equal(recovered, number);
        assert_int_equal(reopened, number);
        return;
    }
    /* RocksDB 7.8 without log: a restart from the last flush, all families alike. */
    left_open = true;
    assert_int_equal(fcap_status_class(again), FCAP_CLASS_FATAL);
    assert_in_range(reopened, 1, number);
}

static void a_full_disk_heals(void **state)
{
    (void)state;
    fill_and_recover(true);
}

static void a_full_disk_heals_without_log(void **state)
{
    (void)state;
    fill_and_recover(false);
}

/* A start on a full disk says so and ends; with space again it goes on. */
static void a_full_disk_at_the_opening_is_told(void **state)
{
    (void)state;
    char ballast[128];
    char filler[128];
    char byte[4096] = {0};
    bool has_ballast;
    (void)snprintf(ballast, sizeof ballast, "%s/.ballast", fixture.directory);
    (void)snprintf(filler, sizeof filler, "%s/.filler", fixture.directory);
    if (!mount_small(ballast, &has_ballast)) {
        skip();
    }
    reopen();
    help_number(&fixture.batch, 7, 1000);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    int file = open(filler, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    while (write(file, byte, sizeof byte) > 0) {
    }
    help_refused(&fixture.settings, FCAP_NO_SPACE, "free space", NULL);
    assert_int_equal(ftruncate(file, 0), 0);
    (void)close(file);
    reopen();
    uint64_t reopened = help_agreed(fixture.store);
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    assert_int_equal(umount2(fixture.directory, MNT_DETACH), 0);
    assert_true(has_ballast);
    assert_int_equal(reopened, 7);
}

static enum fcap_status snapshot(struct fcap_error *error)
{
    char place[128];
    char staging[160];
    uint64_t sequence = 0;
    struct fcap_store_position position;
    (void)snprintf(place, sizeof place, "%s/copy", fixture.directory);
    (void)snprintf(staging, sizeof staging, "%s.tmp", place);
    enum fcap_status status = fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, error);
    assert_int_equal(access(staging, F_OK), -1);
    if (status == FCAP_OK) {
        fcap_store_rocksdb_position(fixture.db, &position);
        assert_int_equal(sequence, position.sequence);
        assert_int_equal(fcap_store_rocksdb_discard(place, NULL), FCAP_OK);
    }
    assert_int_equal(access(place, F_OK), -1);
    return status;
}

/* The flush of a snapshot that does not fit would stop the commits, so it is not begun. */
static void a_snapshot_without_room_stops_nothing(bool wal)
{
    char ballast[128];
    char filler[128];
    bool has_ballast;
    struct fcap_error error = {""};
    (void)snprintf(ballast, sizeof ballast, "%s/.ballast", fixture.directory);
    (void)snprintf(filler, sizeof filler, "%s/.filler", fixture.directory);
    if (!mount_small(ballast, &has_ballast)) {
        skip();
    }
    fixture.settings.wal = wal;
    fixture.settings.sync = FCAP_STORE_SYNC_NEVER;
    reopen();
    for (uint64_t number = 1; number <= 20; number++) {
        help_number(&fixture.batch, number, 100000);
        assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    }
    int file = open(filler, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    struct statvfs info;
    assert_int_equal(statvfs(fixture.directory, &info), 0);
    off_t free_bytes = (off_t)(info.f_bavail * info.f_frsize);
    int grown = posix_fallocate(file, 0, free_bytes - (5 << 18));
    enum fcap_status full = snapshot(&error);
    help_number(&fixture.batch, 21, 1000);
    enum fcap_status commit = help_commit(fixture.store, &fixture.batch);
    (void)unlink(filler);
    (void)close(file); /* Its space goes with it. */
    enum fcap_status again = snapshot(NULL);
    reopen();
    uint64_t agreed = help_agreed(fixture.store);
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    assert_int_equal(umount2(fixture.directory, MNT_DETACH), 0);
    assert_true(has_ballast);
    assert_int_equal(grown, 0);
    assert_int_equal(full, FCAP_NO_SPACE);
    assert_non_null(strstr(error.text, "a snapshot may need"));
    assert_int_equal(commit, FCAP_OK);
    assert_int_equal(again, FCAP_OK);
    assert_int_equal(agreed, 21);
}

static void a_snapshot_without_room_stops_nothing_with_log(void **state)
{
    (void)state;
    a_snapshot_without_room_stops_nothing(true);
}

static void a_snapshot_without_room_stops_nothing_without_log(void **state)
{
    (void)state;
    a_snapshot_without_room_stops_nothing(false);
}

/* Commits fail for want of space: no snapshot, no litter; with space again both go on. */
static void a_snapshot_on_a_full_disk_is_refused(void **state)
{
    (void)state;
    char ballast[128];
    bool has_ballast;
    struct fcap_error error = {""};
    enum fcap_status status = FCAP_OK;
    uint64_t number = 0;
    (void)snprintf(ballast, sizeof ballast, "%s/.ballast", fixture.directory);
    if (!mount_small(ballast, &has_ballast)) {
        skip();
    }
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        fixture.settings.families[i].write_buffer_bytes = 2 << 20;
    }
    reopen();
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    while (status == FCAP_OK && help_now_ms() < deadline_ms) {
        help_number(&fixture.batch, ++number, 100000);
        status = help_commit(fixture.store, &fixture.batch);
    }
    enum fcap_status full = snapshot(&error);
    (void)unlink(ballast);
    while (fcap_status_class(status) == FCAP_CLASS_RETRY && help_now_ms() < deadline_ms) {
        brief_pause();
        status = help_commit(fixture.store, &fixture.batch);
    }
    enum fcap_status again = snapshot(NULL);
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    assert_int_equal(umount2(fixture.directory, MNT_DETACH), 0);
    assert_true(has_ballast);
    assert_int_equal(full, FCAP_NO_SPACE);
    assert_int_equal(status, FCAP_OK);
    assert_int_equal(again, FCAP_OK);
}

/* The place for it is read-only; the state beside it is not. */
static void a_snapshot_on_a_read_only_place_is_told(void **state)
{
    (void)state;
    char place[128];
    char below[160];
    uint64_t sequence = 0;
    struct fcap_error error = {""};
    (void)snprintf(place, sizeof place, "%s/place", fixture.directory);
    (void)snprintf(below, sizeof below, "%s/copy", place);
    assert_int_equal(mkdir(place, 0700), 0);
    if (geteuid() != 0 || mount(place, place, NULL, MS_BIND, NULL) != 0) {
        print_message("skipped: a read-only file system needs root and CAP_SYS_ADMIN\n");
        skip();
    }
    help_number(&fixture.batch, 1, 1000);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    int mounted = mount(NULL, place, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
    enum fcap_status status = fcap_store_rocksdb_snapshot(fixture.db, below, &sequence, &error);
    help_number(&fixture.batch, 2, 1000);
    enum fcap_status commit = help_commit(fixture.store, &fixture.batch);
    assert_int_equal(umount2(place, MNT_DETACH), 0);
    assert_int_equal(mounted, 0);
    assert_int_equal(status, FCAP_IO);
    assert_non_null(strstr(error.text, "Read-only"));
    assert_int_equal(commit, FCAP_OK);
    assert_int_equal(snapshot(NULL), FCAP_OK);
}

/* Links need one file system; the whole state would be copied without a word. */
static void a_snapshot_in_another_file_system_is_refused(void **state)
{
    (void)state;
    char place[128];
    char below[160];
    uint64_t sequence = 0;
    struct fcap_error error = {""};
    (void)snprintf(place, sizeof place, "%s/place", fixture.directory);
    (void)snprintf(below, sizeof below, "%s/copy", place);
    assert_int_equal(mkdir(place, 0700), 0);
    if (geteuid() != 0 || mount("none", place, "tmpfs", 0, "size=40m") != 0) {
        print_message("skipped: another file system needs root and CAP_SYS_ADMIN\n");
        skip();
    }
    enum fcap_status status = fcap_store_rocksdb_snapshot(fixture.db, below, &sequence, &error);
    assert_int_equal(umount2(place, MNT_DETACH), 0);
    assert_int_equal(status, FCAP_CONFIG);
    assert_non_null(strstr(error.text, "hard links"));
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest store_rocksdb_disk[] = {
        TEST(a_full_disk_at_the_opening_is_told),
        TEST(a_full_disk_heals),
        TEST(a_full_disk_heals_without_log),
        TEST(a_snapshot_without_room_stops_nothing_with_log),
        TEST(a_snapshot_without_room_stops_nothing_without_log),
        TEST(a_snapshot_on_a_full_disk_is_refused),
        TEST(a_snapshot_on_a_read_only_place_is_told),
        TEST(a_snapshot_in_another_file_system_is_refused),
    };
#undef TEST
    int failures = cmocka_run_group_tests(store_rocksdb_disk, NULL, NULL);
    if (left_open) {
        (void)fflush(NULL); /* Output only. */
        _exit(failures);    /* RocksDB's exit handlers would wait for its stuck thread. */
    }
    return failures;
}
