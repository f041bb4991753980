/* Savepoints that fail, are given up, or are asked for in a bad place; and every piece of what is
 * kept, damaged one after the other. */
#include "checkpoint_world.h"

#include "fcap/savepoint.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MINUTE_MS 60000

static struct fake_objects place;
static int asked;        /* how often somebody asked whether it is to be given up */
static int give_up_at;   /* which time it was; 0: never */
static bool is_held;     /* the state is in use */
static bool refuse_hold; /* the process ends before it is */
static uint64_t bytes_told;

static bool is_cancelled(void *context)
{
    (void)context;
    return ++asked == give_up_at || (give_up_at > 0 && asked > give_up_at);
}

static bool hold(void *context, bool holds)
{
    (void)context;
    assert_true(holds != is_held);
    is_held = holds && !refuse_hold;
    return !refuse_hold;
}

static void progress(void *context, uint64_t bytes, uint64_t bytes_all)
{
    (void)context;
    assert_false(is_held); /* What follows needs the place alone. */
    assert_true(bytes >= bytes_told && bytes <= bytes_all);
    bytes_told = bytes;
}

static enum fcap_status take(struct fcap_savepoint_report *ret_report, struct fcap_error *error)
{
    const struct fcap_savepoint_settings settings = {.profile = "days",
                                                     .instance = "pod-0",
                                                     .clock = &world.clock,
                                                     .progress = progress,
                                                     .is_cancelled = is_cancelled,
                                                     .hold = hold};
    asked = 0;
    bytes_told = 0;
    enum fcap_status status =
        fcap_savepoint_take(&settings, &place.port, &world.state.state, ret_report, error);
    assert_false(is_held);
    return status;
}

static void nothing_is_left(void)
{
    char path[256];
    struct stat info;
    assert_int_equal(fake_objects_bytes(&place), 0);
    assert_int_equal(fake_objects_litter(&place), 0);
    (void)snprintf(path, sizeof path, "%s/.savepoint", world.state_directory);
    assert_int_equal(stat(path, &info), -1);
}

static void make_state(void)
{
    give_up_at = 0;
    refuse_hold = false;
    fake_objects_init(&place);
    world_open();
    for (int i = 0; i < 8; i++) {
        world_write(20, 300, 50);
    }
}

/* Whichever call fails, and however: the place is as before, and takes the next one. */
static void test_one_that_failed_leaves_nothing(void **state)
{
    (void)state;
    static const enum fake_objects_call calls[] = {FAKE_OBJECTS_BEGIN, FAKE_OBJECTS_WRITE,
                                                   FAKE_OBJECTS_FINISH, FAKE_OBJECTS_READ,
                                                   FAKE_OBJECTS_LIST};
    static const enum fcap_status statuses[] = {FCAP_IO, FCAP_NO_SPACE, FCAP_UNAVAILABLE};
    struct fcap_savepoint_report report;
    struct fcap_error error = {""};
    int failed = 0;
    make_state();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        enum fcap_status status = FCAP_IO;
        for (uint64_t n = 1; status != FCAP_OK; n++) {
            fake_objects_done(&place);
            fake_objects_init(&place);
            fake_objects_fail(&place, calls[i], n, statuses[n % 3]);
            status = take(&report, &error);
            if (status != FCAP_OK) {
                failed++;
                nothing_is_left();
                fake_objects_fail(&place, calls[i], 1000000, FCAP_IO); /* Never. */
                assert_int_equal(take(&report, &error), FCAP_OK);
            }
        }
    }
    assert_true(failed > 15);
    fake_objects_done(&place);
    fake_objects_init(&place);
    fake_objects_fail_late(&place, FCAP_IO); /* It seems to fail, and is visible all the same. */
    assert_int_equal(take(&report, &error), FCAP_IO);
    nothing_is_left();
    fake_objects_done(&place);
}

/* What somebody else has made there stays. */
static void test_what_others_make_is_left_alone(void **state)
{
    (void)state;
    struct fcap_savepoint_report report;
    struct fcap_error error = {""};
    make_state();
    fake_objects_fail(&place, FAKE_OBJECTS_FINISH, 3, FCAP_LOCKED);
    assert_int_equal(take(&report, &error), FCAP_LOCKED);
    assert_true(fake_objects_bytes(&place) > 0);
    uint64_t bytes = fake_objects_bytes(&place);
    assert_int_equal(take(&report, &error), FCAP_CONFIG);
    assert_non_null(strstr(error.text, "a killed savepoint")); /* It has no manifest. */
    assert_int_equal(fake_objects_bytes(&place), bytes);
    fake_objects_done(&place);
}

static void test_it_is_given_up_at_any_moment(void **state)
{
    (void)state;
    struct fcap_savepoint_report report;
    struct fcap_error error = {""};
    int given_up = 0;
    bool was_read_back = false;
    make_state();
    refuse_hold = true;
    assert_int_equal(take(&report, &error), FCAP_STOPPED);
    nothing_is_left();
    refuse_hold = false;
    enum fcap_status status = FCAP_STOPPED;
    for (give_up_at = 1; status != FCAP_OK; give_up_at++) {
        status = take(&report, &error);
        if (status != FCAP_OK) {
            assert_int_equal(status, FCAP_STOPPED);
            assert_non_null(strstr(error.text, "given up"));
            was_read_back = was_read_back || fake_objects_calls(&place, FAKE_OBJECTS_READ) > 0;
            given_up++;
            nothing_is_left();
        }
    }
    assert_true(given_up > 10);
    assert_true(was_read_back);
    fake_objects_done(&place);
}

/* --- places ---------------------------------------------------------------------------------- */

static char folder[128];

static const char *path_of(const char *name)
{
    static char paths[4][256];
    static size_t next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void make_directory(const char *name)
{
    assert_int_equal(mkdir(path_of(name), 0700), 0);
}

static void make_file(const char *name)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static const struct {
    const char *name;
    const char *why; /* NULL: it is none */
} cases[] = {
    {"free", NULL},
    {"free/deep/down", NULL},
    {"empty", NULL},
    {"empty/", NULL},
    {"link-to-empty", NULL},
    {"savepoint", NULL}, /* It is found not to be empty when it is opened. */
    {"file", NULL},      /* As above, that it is no directory. */
    {"file/below", NULL},
    {"db", "within the state"},
    {"db/", "within the state"},
    {"db/.savepoint", "within the state"},
    {"db/.savepoint/deep", "within the state"},
    {"empty/../db", "within the state"},
    {"empty/../free", "without \"..\""},
    {"free/../db/x", "without \"..\""},
    {"free/..", "without \"..\""},
    {"free..", NULL},
    {"empty/CURRENT", NULL}, /* Of that name alone. */
    {"link-to-db/x", "within the state"},
    {"checkpoints", "checkpoint.directory"},
    {"checkpoints/", "checkpoint.directory"},
    {"link-to-checkpoints", "checkpoint.directory"},
    {"checkpoints/days/pod-0/mine", "holds checkpoints or a savepoint"},
    {"savepoint/second", "holds checkpoints or a savepoint"},
    {"dangling", "symbolic link"},
};

static void test_bad_places(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%s/fcap-places-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
    make_directory("empty");
    make_directory("db");
    FILE *current = fopen(path_of("db/CURRENT"), "w");
    assert_non_null(current);
    assert_true(fputs("MANIFEST-000005\n", current) > 0);
    assert_int_equal(fclose(current), 0);
    make_file("empty/CURRENT");
    make_directory("checkpoints");
    make_file("checkpoints/.fcap-objects");
    make_directory("savepoint");
    make_file("savepoint/.fcap-objects");
    make_file("file");
    assert_int_equal(symlink("empty", path_of("link-to-empty")), 0);
    assert_int_equal(symlink("db", path_of("link-to-db")), 0);
    assert_int_equal(symlink("checkpoints", path_of("link-to-checkpoints")), 0);
    assert_int_equal(symlink("nowhere", path_of("dangling")), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_error error = {""};
        enum fcap_status status =
            fcap_savepoint_check_place(path_of(cases[i].name), path_of("checkpoints"), &error);
        assert_int_equal(status, cases[i].why == NULL ? FCAP_OK : FCAP_CONFIG);
        assert_true(cases[i].why == NULL || strstr(error.text, cases[i].why) != NULL);
    }
    assert_int_equal(fcap_savepoint_check_place(path_of("free"), path_of("nowhere"), NULL),
                     FCAP_OK);
    assert_int_equal(fcap_savepoint_check_place("/", NULL, NULL), FCAP_OK);
    static const char *const made[] = {"db/CURRENT",
                                       "empty/CURRENT",
                                       "db",
                                       "checkpoints/.fcap-objects",
                                       "checkpoints",
                                       "savepoint/.fcap-objects",
                                       "savepoint",
                                       "empty",
                                       "file",
                                       "dangling",
                                       "link-to-empty",
                                       "link-to-db",
                                       "link-to-checkpoints"};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        assert_int_equal(remove(path_of(made[i])), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* A mark that was made for nothing would keep everything below the directory from being a place. */
static void test_an_empty_place_is_none(void **state)
{
    (void)state;
    struct fcap_error error = {""};
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%s/fcap-places-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
    assert_false(fcap_savepoint_place_is_made(folder));
    make_file(".fcap-objects");
    make_directory("days");
    make_directory("days/_.a");
    make_file("days/_.a/file-x");
    assert_true(fcap_savepoint_place_is_made(folder));
    fcap_savepoint_unmake_place(folder, "days", ".a"); /* Something is there. */
    assert_true(fcap_savepoint_place_is_made(folder));
    assert_int_equal(fcap_savepoint_check_place(path_of("below"), NULL, &error), FCAP_CONFIG);
    assert_int_equal(remove(path_of("days/_.a/file-x")), 0);
    make_directory("other");
    fcap_savepoint_unmake_place(folder, "days", ".a"); /* Somebody else is. */
    assert_true(fcap_savepoint_place_is_made(folder));
    assert_int_equal(rmdir(path_of("other")), 0);
    fcap_savepoint_unmake_place(folder, "days", ".a");
    assert_false(fcap_savepoint_place_is_made(folder));
    assert_int_equal(fcap_savepoint_check_place(path_of("below"), NULL, &error), FCAP_OK);
    assert_int_equal(rmdir(folder), 0);
}

/* --- whoever works in the place of a restore ------------------------------------------------- */

/* A process that has the lock, until its end. */
static pid_t lock_elsewhere(const char *path)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (file < 0 || fcntl(file, F_SETLK, &lock) != 0 || write(ready[1], "x", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    assert_int_equal(close(ready[1]), 0);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(close(ready[0]), 0);
    return child;
}

static void test_nobody_else_is_at_work_there(void **state)
{
    (void)state;
    char path[256];
    char left[256];
    struct stat info;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    int status;
    world_open();
    world_write(20, 300, 50);
    world_pass(MINUTE_MS);
    world_stop();
    world_lose_state();
    assert_int_equal(mkdir(world.state_directory, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/LOCK", world.state_directory);
    (void)snprintf(left, sizeof left, "%s/.restoring", world.state_directory);
    assert_int_equal(mkdir(left, 0700), 0); /* What the other one makes. */
    pid_t other = lock_elsewhere(path);
    assert_int_equal(world_try_restore(&report, &error), FCAP_LOCKED);
    assert_non_null(strstr(error.text, "is at work there"));
    assert_int_equal(stat(left, &info), 0);
    assert_int_equal(kill(other, SIGKILL), 0);
    assert_int_equal(waitpid(other, &status, 0), other);
    world_restore();
    assert_int_equal(stat(left, &info), -1);
}

/* Where nothing can be restored a state may begin: with nothing of a restore beside it. */
static void test_remains_go_when_nothing_is_there(void **state)
{
    (void)state;
    char left[256];
    struct stat info;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    world_lose_state();
    assert_int_equal(mkdir(world.state_directory, 0700), 0);
    (void)snprintf(left, sizeof left, "%s/.restoring", world.state_directory);
    assert_int_equal(mkdir(left, 0700), 0);
    assert_int_equal(world_try_restore(&report, &error), FCAP_REFUSED);
    assert_int_equal(stat(left, &info), -1);
}

/* --- every piece, damaged -------------------------------------------------------------------- */

static bool is_needed(const struct fcap_checkpoint *newest, const char *name)
{
    for (size_t i = 0; i < newest->file_count; i++) {
        if (strcmp(newest->files[i].object, name) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < newest->segment_count; i++) {
        if (newest->segments[i].last > newest->snapshot_sequence &&
            strcmp(newest->segments[i].object, name) == 0) {
            return true;
        }
    }
    size_t prefix_size;
    uint64_t number;
    return fcap_checkpoint_is_manifest(name, &prefix_size, &number) && number == newest->number;
}

/* Verifies with one object damaged, and mends it. Gives whether that was found. */
static bool is_found(const char *name, enum world_damage_kind kind, uint64_t sequence)
{
    struct fcap_buffer bytes = world_read(name);
    kind = bytes.size > 0 ? kind : WORLD_LOST; /* Nothing else can happen to no bytes. */
    struct fcap_restore_report report = {0};
    struct fcap_error error = {""};
    world_damage(name, kind);
    enum fcap_status status = world_verify(&report, &error);
    assert_true(status == FCAP_OK || status == FCAP_REFUSED);
    /* Of a manifest that is gone nobody can know. */
    assert_true(status != FCAP_OK || report.not_taken > 0 || report.sequence == sequence ||
                kind == WORLD_LOST);
    if (kind != WORLD_LOST) {
        fake_objects_lose(&world.objects, name);
    }
    world_make(name, fcap_buffer_bytes(&bytes));
    fcap_buffer_done(&bytes);
    return status == FCAP_REFUSED || report.not_taken > 0 || report.sequence != sequence;
}

/* Of each object any byte may be another, any number of bytes gone, or all of it. */
static size_t damage_everything(const struct fcap_checkpoint *newest, int rounds)
{
    size_t needed = 0;
    for (size_t i = 0; world_find("days/pod-0/", i) != NULL; i++) {
        char name[FCAP_OBJECT_NAME_MAX + 1];
        (void)snprintf(name, sizeof name, "%s", world_find("days/pod-0/", i));
        bool must_be_found = is_needed(newest, name);
        needed += must_be_found;
        for (int round = 0; round < rounds; round++) {
            for (int kind = WORLD_FLIPPED; kind < WORLD_DAMAGES; kind++) {
                bool found = is_found(name, (enum world_damage_kind)kind, newest->sequence);
                if (must_be_found && !found) {
                    fail_msg("%s: damage of kind %d was not found", name, kind);
                }
            }
        }
    }
    return needed;
}

static void test_every_damage_of_a_checkpoint_is_found(void **state)
{
    (void)state;
    world_open();
    for (int minute = 0; minute < 16; minute++) {
        world_write(20, 300, 50);
        world_pass(MINUTE_MS);
    }
    world_stop();
    struct fcap_checkpoint newest = world_newest();
    assert_true(newest.segment_count > 0);
    assert_true(damage_everything(&newest, 10) > 4);
    fcap_checkpoint_done(&newest);
}

static void test_every_damage_of_a_savepoint_is_found(void **state)
{
    (void)state;
    struct fcap_savepoint_report report;
    struct fcap_error error = {""};
    make_state();
    assert_int_equal(take(&report, &error), FCAP_OK);
    world_kill();
    fake_objects_done(&world.objects);
    world.objects = place;
    place = (struct fake_objects){0};
    struct fcap_checkpoint newest = world_newest();
    assert_int_equal(damage_everything(&newest, 50), world_count(""));
    fcap_checkpoint_done(&newest);
}

/* A state, or what somebody has copied there, is no litter: it may be the only one. */
static void test_what_is_not_its_own_stays(void **state)
{
    (void)state;
    static const char *const others[] = {
        "days/pod-0/state/000001.sst",
        "days/pod-0/state/CURRENT",
        "days/pod-0/notes.txt",
        "days/pod-0/MANIFEST-000005",
        "days/pod-0/mine/days/pod-0/file-x",
        "days/pod-0/manifest-1/x",
        "days/pod-0/sp/days/pod-0/manifest-00000000000000000001",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        world_make(others[i], fcap_bytes_of("x"));
    }
    world_open();
    for (int minute = 0; minute < 60; minute++) {
        world_write(20, 300, 50);
        world_pass(MINUTE_MS);
    }
    assert_true(world_metrics().objects_removed > 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(world_count(others[i]), 1);
    }
    world_stop();
    world_lose_state();
    world_restore();
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, checkpoint_world_setup, checkpoint_world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_one_that_failed_leaves_nothing),
        TEST(test_what_others_make_is_left_alone),
        TEST(test_it_is_given_up_at_any_moment),
        TEST(test_bad_places),
        TEST(test_an_empty_place_is_none),
        TEST(test_nobody_else_is_at_work_there),
        TEST(test_remains_go_when_nothing_is_there),
        TEST(test_every_damage_of_a_checkpoint_is_found),
        TEST(test_every_damage_of_a_savepoint_is_found),
        TEST(test_what_is_not_its_own_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
