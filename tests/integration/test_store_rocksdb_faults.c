/* Snapshots and restores that are killed, at named points and in the middle of RocksDB's own work,
 * and disks that fail under them: the living state is never harmed, and litter goes away. This
 * program's own link(), rename() and fdatasync() stand before those of the C library. */
#include "integration/store_rocksdb_help.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "integration/store_rocksdb_fixture.h"

/* --- faults of the system ------------------------------------------------------------------------
 */

/* The call that the environment names: "link:3" is killed in its third. */
static const char kill_variable[] = "FCAP_TEST_KILL_AT";
static _Atomic(const char *) failing; /* calls of this name fail with EIO */
static atomic_uint failed;

/* Kills, fails, or lets pass. */
static bool is_faulty(const char *name, atomic_uint *calls)
{
    const char *wanted = getenv(kill_variable);
    unsigned call = atomic_fetch_add(calls, 1) + 1;
    if (wanted != NULL && strncmp(wanted, name, strlen(name)) == 0 && wanted[strlen(name)] == ':' &&
        strtoul(wanted + strlen(name) + 1, NULL, 10) == call) {
        (void)raise(SIGKILL);
    }
    const char *fails = atomic_load(&failing);
    if (fails != NULL && strcmp(fails, name) == 0) {
        (void)atomic_fetch_add(&failed, 1);
        errno = EIO;
        return true;
    }
    return false;
}

int link(const char *from, const char *to)
{
    static atomic_uint calls;
    return is_faulty("link", &calls) ? -1 : linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int rename(const char *from, const char *to)
{
    static atomic_uint calls;
    return is_faulty("rename", &calls) ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int fdatasync(int file)
{
    static atomic_uint calls;
    return is_faulty("fdatasync", &calls) ? -1 : fsync(file);
}

/* --- the children --------------------------------------------------------------------------------
 */

enum { FRAMES = 200, FIRST_FRAMES = 100, FILLER = 3000 };

static struct fcap_store_settings settings_of(const char *directory, bool wal)
{
    struct fcap_store_settings settings = help_settings(directory);
    settings.wal = wal;
    settings.sync = FCAP_STORE_SYNC_NEVER;
    settings.write_buffers_bytes = 1 << 20; /* Flushes now and then. */
    return settings;
}

static void say(uint64_t number)
{
    (void)!write(STDOUT_FILENO, &number, sizeof number); /* Lost: the parent knows less. */
}

/* Numbered commits and snapshots without end; says each number that must outlive it. */
static int take_snapshots(const char *directory, bool wal)
{
    char place[256];
    struct fcap_store_settings settings = settings_of(directory, wal);
    struct fcap_store_rocksdb *db = NULL;
    struct fcap_batch batch = {0};
    int64_t dropped_ms = 0;
    (void)snprintf(place, sizeof place, "%s/copy", directory);
    if (fcap_store_rocksdb_open(&settings, &db, NULL) != FCAP_OK) {
        return 1;
    }
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    if (store->ops->claim(store, 1, 1, &dropped_ms) != FCAP_OK) {
        return 1;
    }
    for (uint64_t number = 1;; number++) {
        uint64_t sequence = 0;
        help_number(&batch, number, FILLER);
        if (help_commit(store, &batch) != FCAP_OK) {
            return 1;
        }
        if (wal) {
            say(number);
        }
        if (number % 5 == 0) {
            if (fcap_store_rocksdb_snapshot(db, place, &sequence, NULL) != FCAP_OK ||
                sequence != number) {
                return 1;
            }
            say(number);
        }
    }
}

/* Brings a copy up to the last frame and forks it. */
static enum fcap_status catch_up(struct fcap_store_rocksdb *db)
{
    struct fcap_store_position position;
    struct fcap_store_position origin;
    struct fcap_batch batch = {0};
    enum fcap_status status = FCAP_OK;
    fcap_store_rocksdb_position(db, &position);
    for (uint64_t number = position.sequence + 1; status == FCAP_OK && number <= FRAMES; number++) {
        help_number(&batch, number, FILLER);
        status = fcap_store_rocksdb_apply(db, number, &batch, NULL);
    }
    if (status == FCAP_OK && !fcap_store_rocksdb_origin(db, &origin)) {
        status = fcap_store_rocksdb_fork(db, NULL);
    }
    fcap_batch_done(&batch);
    return status;
}

static int restore(const char *directory, bool wal)
{
    struct fcap_store_settings settings = settings_of(directory, wal);
    struct fcap_store_rocksdb *db = NULL;
    if (fcap_store_rocksdb_open(&settings, &db, NULL) != FCAP_OK || catch_up(db) != FCAP_OK) {
        return 1;
    }
    fcap_store_rocksdb_close(db);
    return 0;
}

/* Without the log RocksDB 7.8 cannot go on after a flush that failed, and may be unable to close.
 */
static int break_without_log(const char *directory)
{
    char place[256];
    struct fcap_store_settings settings = settings_of(directory, false);
    struct fcap_store_rocksdb *db = NULL;
    struct fcap_batch batch = {0};
    struct fcap_error error = {""};
    int64_t dropped_ms = 0;
    uint64_t sequence = 0;
    (void)snprintf(place, sizeof place, "%s/copy", directory);
    if (fcap_store_rocksdb_open(&settings, &db, NULL) != FCAP_OK) {
        return 1;
    }
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    if (store->ops->claim(store, 1, 1, &dropped_ms) != FCAP_OK) {
        return 1;
    }
    help_number(&batch, 1, FILLER);
    if (help_commit(store, &batch) != FCAP_OK ||
        fcap_store_rocksdb_snapshot(db, place, &sequence, NULL) != FCAP_OK) {
        return 2;
    }
    say(1);
    help_number(&batch, 2, FILLER);
    if (help_commit(store, &batch) != FCAP_OK) {
        return 3;
    }
    atomic_store(&failing, "fdatasync");
    if (fcap_store_rocksdb_snapshot(db, place, &sequence, &error) != FCAP_IO ||
        access(place, F_OK) == 0) {
        return 4;
    }
    atomic_store(&failing, NULL);
    /* Whatever it says of commits now, it makes no copy that might lack one. */
    if (fcap_store_rocksdb_snapshot(db, place, &sequence, &error) == FCAP_OK && sequence != 2) {
        return 5;
    }
    return 0;
}

/* --- kills ---------------------------------------------------------------------------------------
 */

static const struct {
    const char *variable;
    const char *mode; /* of the child */
    const char *at;
} kills[] = {
    {"FCAP_STOP_AT", "snapshots", "snapshot_begun:1"},
    {"FCAP_STOP_AT", "snapshots", "snapshot_begun:3"},
    {"FCAP_STOP_AT", "snapshots", "snapshot_copied:1"},
    {"FCAP_STOP_AT", "snapshots", "snapshot_copied:3"},
    {kill_variable, "snapshots", "link:1"},
    {kill_variable, "snapshots", "link:6"},
    {kill_variable, "snapshots", "link:11"},
    {kill_variable, "snapshots", "rename:8"},
    {kill_variable, "snapshots", "rename:9"},
    {kill_variable, "snapshots", "rename:12"},
    {"FCAP_STOP_AT", "restore", "frame_applied:1"},
    {"FCAP_STOP_AT", "restore", "frame_applied:77"},
    {"FCAP_STOP_AT", "restore", "lineage_drawn:1"},
    {kill_variable, "restore", "fdatasync:5"},
    {kill_variable, "restore", "fdatasync:9"},
};

/* Runs the child until it stops or is killed there; gives the last number that it said. */
static uint64_t kill_child(size_t index, bool wal, const char *directory)
{
    char mode[32];
    char proof[128];
    char said[64] = "";
    int output = -1;
    int status = 0;
    uint64_t number = 0;
    uint64_t last = 0;
    bool is_point = strcmp(kills[index].variable, "FCAP_STOP_AT") == 0;
    (void)snprintf(mode, sizeof mode, "%s%s", kills[index].mode, wal ? "" : "-without-log");
    (void)snprintf(proof, sizeof proof, "%s.proof", fixture.directory);
    assert_int_equal(setenv(kills[index].variable, kills[index].at, 1), 0);
    assert_int_equal(setenv("FCAP_STOP_FILE", proof, 1), 0);
    pid_t child = help_spawn(mode, directory, &output);
    assert_int_equal(unsetenv(kills[index].variable), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (WIFSTOPPED(status)) {
        help_kill(child, false);
        int file = open(proof, O_RDONLY | O_CLOEXEC);
        assert_true(file >= 0);
        assert_true(read(file, said, sizeof said - 1) > 0);
        assert_int_equal(close(file), 0);
        assert_int_equal(unlink(proof), 0);
    }
    if (is_point ? !WIFSTOPPED(status) : !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        fail_msg("%s %s: the child was not there (status %x)", mode, kills[index].at, status);
    }
    if (is_point) {
        size_t name = strcspn(kills[index].at, ":");
        assert_memory_equal(said, kills[index].at, name);
    }
    while (read(output, &number, sizeof number) == (ssize_t)sizeof number) {
        last = number;
    }
    (void)close(output);
    return last;
}

static struct fcap_store_position position_of(struct fcap_store_rocksdb *db)
{
    struct fcap_store_position position;
    fcap_store_rocksdb_position(db, &position);
    return position;
}

static void kill_a_snapshot(size_t index, bool wal)
{
    char place[128];
    char staging[160];
    uint64_t sequence = 0;
    uint64_t acknowledged = kill_child(index, wal, fixture.directory);
    (void)snprintf(place, sizeof place, "%s/copy", fixture.directory);
    (void)snprintf(staging, sizeof staging, "%s.tmp", place);
    fixture.settings = settings_of(fixture.directory, wal);
    reopen();
    uint64_t agreed = help_agreed(fixture.store);
    if (agreed < acknowledged) {
        fail_msg("%s: %llu was acknowledged, the state is at %llu", kills[index].at,
                 (unsigned long long)acknowledged, (unsigned long long)agreed);
    }
    assert_int_equal(position_of(fixture.db).sequence, agreed);
    assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, NULL), FCAP_OK);
    assert_int_equal(sequence, agreed);
    assert_int_equal(access(staging, F_OK), -1);
    struct fcap_store_settings settings = settings_of(place, wal);
    struct fcap_store_rocksdb *copy = NULL;
    assert_int_equal(fcap_store_rocksdb_open_read_only(&settings, &copy, NULL), FCAP_OK);
    assert_int_equal(help_agreed(fcap_store_rocksdb_handle(copy)), agreed);
    fcap_store_rocksdb_close(copy);
}

/* The copy shares its files with the living state, which goes on meanwhile. */
static void kill_a_restore(size_t index, bool wal)
{
    char place[128];
    uint64_t sequence = 0;
    struct fcap_store_position origin;
    fixture.settings = settings_of(fixture.directory, wal);
    reopen();
    (void)snprintf(place, sizeof place, "%s/copy", fixture.directory);
    for (uint64_t number = 1; number <= FRAMES; number++) {
        help_number(&fixture.batch, number, FILLER);
        assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
        if (number == FIRST_FRAMES) {
            assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, NULL),
                             FCAP_OK);
        }
    }
    (void)kill_child(index, wal, place);
    struct fcap_store_position living = position_of(fixture.db);
    struct fcap_store_settings settings = settings_of(place, wal);
    for (size_t i = 0; i < 2; i++) {
        struct fcap_store_rocksdb *copy = help_open(&settings);
        uint64_t agreed = help_agreed(fcap_store_rocksdb_handle(copy));
        struct fcap_store_position position = position_of(copy);
        assert_int_equal(position.sequence, agreed);
        assert_in_range(agreed, i == 0 ? FIRST_FRAMES : FRAMES, FRAMES);
        bool is_forked = fcap_store_rocksdb_origin(copy, &origin);
        bool is_same =
            memcmp(position.lineage.bytes, living.lineage.bytes, sizeof living.lineage.bytes) == 0;
        assert_int_equal(is_same, !is_forked);
        if (is_forked) {
            assert_int_equal(origin.sequence, FRAMES);
            assert_memory_equal(origin.lineage.bytes, living.lineage.bytes, FCAP_LINEAGE_BYTES);
        }
        assert_int_equal(catch_up(copy), FCAP_OK);
        fcap_store_rocksdb_close(copy);
    }
    help_number(&fixture.batch, FRAMES + 1, FILLER);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    reopen();
    assert_int_equal(help_agreed(fixture.store), FRAMES + 1);
}

static void kill_everywhere(bool wal)
{
    for (size_t i = 0; i < sizeof kills / sizeof kills[0]; i++) {
        if (strcmp(kills[i].mode, "restore") == 0) {
            kill_a_restore(i, wal);
        } else {
            fcap_store_rocksdb_close(fixture.db);
            fixture.db = NULL;
            kill_a_snapshot(i, wal);
        }
        (void)tear_down(NULL);
        (void)set_up(NULL);
    }
    print_message("result: wal %s: %zu kills of snapshots and restores, no state harmed\n",
                  wal ? "on" : "off", sizeof kills / sizeof kills[0]);
}

static void kills_harm_no_state(void **state)
{
    (void)state;
    kill_everywhere(true);
}

static void kills_harm_no_state_without_log(void **state)
{
    (void)state;
    kill_everywhere(false);
}

/* --- disks that fail -----------------------------------------------------------------------------
 */

static void links_that_fail_are_told(void **state)
{
    (void)state;
    static const char *const calls[] = {"link", "rename"};
    char place[128];
    char staging[160];
    struct fcap_error error = {""};
    uint64_t sequence = 0;
    (void)snprintf(place, sizeof place, "%s/copy", fixture.directory);
    (void)snprintf(staging, sizeof staging, "%s.tmp", place);
    for (size_t i = 0; i < 4; i++) {
        fixture.settings = settings_of(fixture.directory, i < 2);
        reopen();
        help_number(&fixture.batch, i + 1, FILLER);
        assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
        atomic_store(&failed, 0);
        atomic_store(&failing, calls[i % 2]);
        enum fcap_status status = fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, &error);
        atomic_store(&failing, NULL);
        assert_int_equal(status, FCAP_IO);
        assert_true(atomic_load(&failed) > 0);
        assert_non_null(strstr(error.text, "Input/output error"));
        assert_int_equal(access(place, F_OK), -1);
        assert_int_equal(access(staging, F_OK), -1);
        help_number(&fixture.batch, i + 1, FILLER);
        assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
        assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, NULL), FCAP_OK);
        assert_int_equal(sequence, position_of(fixture.db).sequence);
    }
}

/* A flush that fails: told, and no copy; what was acknowledged is in the log. */
static void a_flush_that_fails_is_told(void **state)
{
    (void)state;
    char place[128];
    struct fcap_error error = {""};
    uint64_t sequence = 0;
    (void)snprintf(place, sizeof place, "%s/copy", fixture.directory);
    fixture.settings = settings_of(fixture.directory, true);
    reopen();
    help_number(&fixture.batch, 1, FILLER);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    atomic_store(&failing, "fdatasync");
    enum fcap_status status = fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, &error);
    enum fcap_status again = fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, &error);
    atomic_store(&failing, NULL);
    assert_int_equal(status, FCAP_IO);
    assert_int_equal(again, FCAP_IO);
    assert_int_equal(access(place, F_OK), -1);
    assert_int_equal(help_agreed(fixture.store), 1);
    help_number(&fixture.batch, 2, FILLER);
    enum fcap_status commit = help_commit(fixture.store, &fixture.batch);
    print_message("a commit after it: %s\n", fcap_status_text(commit));
    reopen(); /* A restart heals it. */
    uint64_t agreed = help_agreed(fixture.store);
    assert_in_range(agreed, commit == FCAP_OK ? 2 : 1, 2);
    assert_int_equal(position_of(fixture.db).sequence, agreed);
    assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, NULL), FCAP_OK);
    assert_int_equal(sequence, agreed);
}

static void a_flush_that_fails_without_log_is_told(void **state)
{
    (void)state;
    int output = -1;
    int status = 0;
    uint64_t number = 0;
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    pid_t child = help_spawn("break-without-log", fixture.directory, &output);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(read(output, &number, sizeof number), sizeof number);
    (void)close(output);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    fixture.settings = settings_of(fixture.directory, false);
    reopen();
    assert_in_range(help_agreed(fixture.store), number, 2);
    assert_int_equal(position_of(fixture.db).sequence, help_agreed(fixture.store));
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        bool wal = strstr(argv[1], "-without-log") == NULL;
        int code = strncmp(argv[1], "snapshots", 9) == 0 ? take_snapshots(argv[2], wal)
                   : strncmp(argv[1], "restore", 7) == 0 ? restore(argv[2], wal)
                                                         : break_without_log(argv[2]);
        _exit(code); /* RocksDB's exit handlers may wait for a stuck thread. */
    }
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest store_rocksdb_faults[] = {
        TEST(kills_harm_no_state),
        TEST(kills_harm_no_state_without_log),
        TEST(links_that_fail_are_told),
        TEST(a_flush_that_fails_is_told),
        TEST(a_flush_that_fails_without_log_is_told),
    };
#undef TEST
    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(store_rocksdb_faults, NULL, NULL);
}
