/* The directory of objects on real file systems: one that is full, read-only, unmounted and mounted
 * again; and a writer that is killed, at each of its named points and at any time. */
#include "fcap/objects.h"
#include "fcap/point.h"
#include "integration/objects_writer.h"
#include "lib/mounts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 400, COMMAND_BYTES = 1000, NUMBERS_MAX = 4096 };

static char base[256];
static char place[300];
static struct fcap_objects *objects;
static struct fcap_error error;
static char unmountable[128]; /* why nothing can be mounted; "": it can */

/* --- small steps --- */

static void must_be_mountable(void)
{
    if (unmountable[0] != '\0') {
        print_message("skipped: %s\n", unmountable);
        skip();
    }
}

static int set_up(void **state)
{
    static int number;
    (void)state;
    (void)snprintf(place, sizeof place, "%s/%d", base, ++number);
    assert_int_equal(mkdir(place, 0700), 0);
    objects = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fcap_objects_directory_close(objects);
    objects = NULL;
    while (umount2(place, MNT_DETACH) == 0) { /* Whatever a test that failed has left. */
    }
    return 0;
}

static void must(enum fcap_status status)
{
    if (status != FCAP_OK) {
        fail_msg("%s: %s", fcap_status_text(status), error.text);
    }
}

static void must_mount(const char *options)
{
    if (mount("none", place, "tmpfs", 0, options) != 0) {
        fail_msg("mount: %s", strerror(errno));
    }
}

static void told(const char *first, const char *second)
{
    if (strstr(error.text, place) == NULL || strstr(error.text, first) == NULL ||
        strstr(error.text, second) == NULL) {
        fail_msg("\"%s\" does not tell \"%s\" and \"%s\"", error.text, first, second);
    }
}

/* 16 KiB of text. */
static enum fcap_status put(const char *name)
{
    static char text[16385];
    struct fcap_object_writer *writer = NULL;
    memset(text, 't', sizeof text - 1);
    enum fcap_status status = objects->ops->begin(objects, name, &writer, &error);
    if (status != FCAP_OK) {
        return status;
    }
    status = objects->ops->write(objects, writer, fcap_bytes_of(text), &error);
    if (status != FCAP_OK) {
        objects->ops->abandon(objects, writer);
        return status;
    }
    return objects->ops->finish(objects, writer, &error);
}

static bool count_whole(void *context, const char *name, uint64_t size)
{
    (void)name;
    assert_int_equal(size, 16384);
    ++*(unsigned *)context;
    return true;
}

static unsigned whole_ones(void)
{
    unsigned count = 0;
    must(objects->ops->list(objects, "", count_whole, &count, &error));
    return count;
}

/* Hidden names of objects and marks that are being written, in a folder and all below it. */
static unsigned litter(const char *path)
{
    unsigned count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL;
         entry = readdir(folder)) {
        const char *name = entry->d_name;
        count += strncmp(name, ".new-", 5) == 0 || strncmp(name, ".mark-", 6) == 0;
        if (name[0] != '.') {
            char below[PATH_BYTES + 300];
            (void)snprintf(below, sizeof below, "%s/%s", path, name);
            count += litter(below); /* Of a file: nothing. */
        }
    }
    if (folder != NULL) {
        (void)closedir(folder); /* Only read. */
    }
    return count;
}

/* --- mounted --- */

static void a_full_volume(void **state)
{
    struct fcap_object_lock *lock = NULL;
    char name[32];
    unsigned made = 0;
    (void)state;
    must_be_mountable();
    must_mount("size=256k");
    must(fcap_objects_directory_open(place, false, &objects, &error));
    must(objects->ops->lock(objects, "a/", "the first", &lock, &error));
    objects->ops->unlock(objects, lock);
    enum fcap_status status = FCAP_OK;
    while (status == FCAP_OK && made < 100) {
        (void)snprintf(name, sizeof name, "a/%u", ++made);
        status = put(name);
    }
    assert_int_equal(status, FCAP_NO_SPACE);
    told("No space left", "free space on its file system");
    told(name, "write it");
    assert_in_range(made, 10, 16);
    assert_int_equal(whole_ones(), made - 1);
    assert_int_equal(litter(place), 0);
    must(objects->ops->lock(objects, "a/", "the second", &lock, &error)); /* Needs no space. */
    assert_int_equal(put(name), FCAP_NO_SPACE);
    must(objects->ops->remove(objects, "a/1", &error));
    must(put(name));
    assert_int_equal(whole_ones(), made - 1);
    objects->ops->unlock(objects, lock);
}

static void no_more_files(void **state)
{
    char name[32];
    unsigned made = 0;
    (void)state;
    must_be_mountable();
    must_mount("nr_inodes=12");
    must(fcap_objects_directory_open(place, false, &objects, &error));
    enum fcap_status status = FCAP_OK;
    while (status == FCAP_OK && made < 100) {
        (void)snprintf(name, sizeof name, "a/%u", ++made);
        status = put(name);
    }
    assert_int_equal(status, FCAP_NO_SPACE);
    told("No space left", "free space on its file system");
    assert_in_range(made, 5, 12);
    must(objects->ops->remove(objects, "a/1", &error));
    must(put(name));
    assert_int_equal(whole_ones(), made - 1);
}

static void a_read_only_mount(void **state)
{
    struct fcap_object_lock *lock = NULL;
    struct fcap_objects *reader = NULL;
    (void)state;
    must_be_mountable();
    must_mount("size=1m");
    must(fcap_objects_directory_open(place, false, &objects, &error));
    must(put("a/1"));
    assert_int_equal(mount(NULL, place, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(put("a/2"), FCAP_IO);
    told("Read-only", "mount it for writing");
    assert_int_equal(put("b/2"), FCAP_IO);
    told("Read-only", "mount it for writing");
    assert_int_equal(objects->ops->remove(objects, "a/1", &error), FCAP_IO);
    told("Read-only", "a/1");
    assert_int_equal(objects->ops->lock(objects, "a/", "x", &lock, &error), FCAP_IO);
    told("Read-only", "a/");
    must(fcap_objects_directory_open(place, true, &reader, &error)); /* A restore needs no more. */
    fcap_objects_directory_close(reader);
    assert_int_equal(whole_ones(), 1);
    assert_int_equal(mount(NULL, place, NULL, MS_REMOUNT, NULL), 0);
    must(put("a/2"));
    must(objects->ops->lock(objects, "a/", "x", &lock, &error));
    objects->ops->unlock(objects, lock);
    assert_int_equal(whole_ones(), 2);
}

static void must_bind(const char *disk)
{
    if (mount(disk, place, NULL, MS_BIND, NULL) != 0) {
        fail_msg("bind: %s", strerror(errno));
    }
}

static void must_be_away(void)
{
    struct fcap_objects *other = NULL;
    unsigned count = 0;
    assert_int_equal(put("a/2"), FCAP_UNAVAILABLE);
    told(".fcap-objects", "mounted?");
    assert_int_equal(objects->ops->list(objects, "", count_whole, &count, &error),
                     FCAP_UNAVAILABLE);
    assert_int_equal(fcap_objects_directory_open(place, true, &other, &error), FCAP_UNAVAILABLE);
    told(".fcap-objects", "mounted?");
    assert_int_equal(rmdir(place), 0); /* Nothing was made in it. */
    assert_int_equal(put("a/2"), FCAP_UNAVAILABLE);
    told("No such file", "mount it");
    assert_int_equal(mkdir(place, 0700), 0);
}

static void a_volume_comes_and_goes(void **state)
{
    char disk[PATH_BYTES];
    struct fcap_objects *second = NULL;
    struct fcap_object_lock *lock = NULL;
    struct fcap_object_lock *none = NULL;
    struct fcap_object_writer *writers[2] = {NULL, NULL};
    (void)state;
    must_be_mountable();
    (void)snprintf(disk, sizeof disk, "%s-disk", place);
    assert_int_equal(mkdir(disk, 0700), 0);
    must_bind(disk);
    must(fcap_objects_directory_open(place, false, &objects, &error));
    must(put("a/1"));
    assert_int_equal(umount2(place, 0), 0); /* Nothing of it is held. */
    must_be_away();
    must_bind(disk);
    must(put("a/2"));
    assert_int_equal(whole_ones(), 2);

    /* With a lock and two objects that are being written. */
    must(objects->ops->lock(objects, "a/", "the first", &lock, &error));
    for (int i = 0; i < 2; i++) {
        must(objects->ops->begin(objects, i == 0 ? "a/3" : "a/4", &writers[i], &error));
    }
    assert_int_equal(umount2(place, 0), -1);
    assert_int_equal(errno, EBUSY);
    assert_int_equal(umount2(place, MNT_DETACH), 0);
    must_be_away();
    assert_int_equal(objects->ops->finish(objects, writers[0], &error), FCAP_UNAVAILABLE);
    must_bind(disk);
    must(fcap_objects_directory_open(place, true, &second, &error));
    assert_int_equal(second->ops->lock(second, "a/", "x", &none, &error), FCAP_LOCKED);
    told("the first", "a/.lock");
    objects->ops->abandon(objects, writers[1]);
    must(put("a/3"));
    assert_int_equal(litter(disk), 0); /* That of the one that could not be finished has gone. */
    must(objects->ops->sweep(objects, "a/", &error));
    assert_int_equal(whole_ones(), 3);
    objects->ops->unlock(objects, lock);
    fcap_objects_directory_close(second);
    assert_int_equal(umount2(place, 0), 0);
}

/* The volume was away for long enough that its locks are gone, as after a restart of its server:
 * what is mounted has the same mark and nobody's lock. */
static void a_lock_is_lost_with_the_mount(void **state)
{
    char disk[PATH_BYTES];
    char command[COMMAND_BYTES];
    struct fcap_objects *second = NULL;
    struct fcap_object_lock *lock = NULL;
    struct fcap_object_lock *none = NULL;
    (void)state;
    must_be_mountable();
    (void)snprintf(disk, sizeof disk, "%s-disk", place);
    assert_int_equal(mkdir(disk, 0700), 0);
    must_bind(disk);
    must(fcap_objects_directory_open(place, false, &objects, &error));
    must(objects->ops->lock(objects, "a/", "the first", &lock, &error));
    assert_int_equal(umount2(place, MNT_DETACH), 0);
    (void)snprintf(command, sizeof command, "cp -r %s %s-copy && rm -f %s-copy/a/.lock", disk, disk,
                   disk);
    assert_int_equal(system(command), 0);
    (void)snprintf(command, sizeof command, "%s-copy", disk);
    must_bind(command);
    must(put("a/1"));
    must(fcap_objects_directory_open(place, true, &second, &error));
    assert_int_equal(second->ops->lock(second, "a/", "x", &none, &error), FCAP_LOCKED);
    told("the first", "a/.lock");
    objects->ops->unlock(objects, lock);
    must(second->ops->lock(second, "a/", "x", &none, &error));
    assert_int_equal(put("a/2"), FCAP_OK); /* Whoever holds no lock is not asked for one. */
    second->ops->unlock(second, none);
    fcap_objects_directory_close(second);
}

/* --- killed --- */

static char done_file[PATH_BYTES];
static char proof_file[PATH_BYTES];

static pid_t start_writer(const char *mode, const char *stop_at)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* A test that fails leaves nobody behind. */
        if (stop_at != NULL) {
            (void)setenv("FCAP_STOP_AT", stop_at, 1);
            (void)setenv("FCAP_STOP_FILE", proof_file, 1);
        }
        (void)execl(OBJECTS_WRITER_PROGRAM, OBJECTS_WRITER_PROGRAM, place, done_file, mode, "1000",
                    (char *)NULL);
        _exit(127);
    }
    return child;
}

/* SIGKILL; it must have been alive. */
static void kill_writer(pid_t child)
{
    int status = 0;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Numbers that the writer says it has finished. */
static unsigned read_done(bool done[NUMBERS_MAX])
{
    unsigned count = 0;
    unsigned number;
    FILE *file = fopen(done_file, "r");
    while (file != NULL && fscanf(file, "%u", &number) == 1) {
        assert_true(number < NUMBERS_MAX && !done[number]);
        done[number] = true;
        count++;
    }
    if (file != NULL) {
        (void)fclose(file); /* Only read. */
    }
    return count;
}

struct sight {
    bool seen[NUMBERS_MAX];
    unsigned count;
};

/* Every object that is seen is whole. */
static bool look_at(void *context, const char *name, uint64_t size)
{
    static uint8_t bytes[OBJECTS_WRITER_BYTES_MAX + 1];
    static uint8_t wanted[OBJECTS_WRITER_BYTES_MAX];
    struct sight *sight = context;
    unsigned number = 0;
    size_t read_size = 0;
    assert_int_equal(sscanf(name, OBJECTS_WRITER_FORMAT, &number), 1);
    assert_true(number < NUMBERS_MAX);
    assert_int_equal(size, objects_writer_size(number));
    must(objects->ops->read(objects, name, 0, bytes, sizeof bytes, &read_size, &error));
    objects_writer_fill(number, wanted);
    assert_int_equal(read_size, size);
    assert_true(size == 0 || memcmp(bytes, wanted, (size_t)size) == 0);
    sight->seen[number] = true;
    sight->count++;
    return true;
}

/* After so many kills: nothing that was finished is missing, nothing is half, at most one for each
 * kill was finished and nobody said so. */
static unsigned check_after(unsigned kills, bool is_swept)
{
    static bool done[NUMBERS_MAX];
    static struct sight sight;
    struct fcap_object_lock *lock = NULL;
    memset(done, 0, sizeof done);
    memset(&sight, 0, sizeof sight);
    unsigned said = read_done(done);
    must(objects->ops->list(objects, "", look_at, &sight, &error));
    for (unsigned i = 0; i < NUMBERS_MAX; i++) {
        assert_true(!done[i] || sight.seen[i]);
    }
    assert_in_range(sight.count, said, said + kills);
    assert_true(litter(place) <= 1); /* The writer before was swept away. */
    must(objects->ops->lock(objects, OBJECTS_WRITER_PREFIX, "the test", &lock, &error));
    if (is_swept) {
        must(objects->ops->sweep(objects, OBJECTS_WRITER_PREFIX, &error));
        assert_int_equal(litter(place), 0);
    }
    objects->ops->unlock(objects, lock);
    return sight.count;
}

static void begin_kills(void)
{
    (void)snprintf(done_file, sizeof done_file, "%s-done", place);
    (void)snprintf(proof_file, sizeof proof_file, "%s-proof", place);
}

static void stop_and_kill(const char *mode, const char *point, long passes)
{
    char stop_at[64];
    char line[64] = "";
    char wanted[64];
    int status = 0;
    (void)unlink(proof_file); /* Of the stop before. */
    (void)snprintf(stop_at, sizeof stop_at, "%s:%ld", point, passes);
    (void)snprintf(wanted, sizeof wanted, "%s %ld\n", point, passes);
    pid_t child = start_writer(mode, stop_at);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (!WIFSTOPPED(status)) {
        fail_msg("%s %s: it ended (%d)", mode, stop_at, status);
    }
    FILE *file = fopen(proof_file, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    (void)fclose(file); /* Only read. */
    assert_string_equal(line, wanted);
    kill_writer(child);
}

static const struct {
    const char *name;
    enum fcap_point_phase phase;
    long passes;
} points[] = {
#define X(name, phase, lead, passes, text) {#name, FCAP_POINT_##phase, passes},
    FCAP_POINT_LIST(X)
#undef X
};

static void killed_at_every_point(void **state)
{
    enum { ROUNDS = 30 }; /* of each point */
    unsigned kills = 0;
    unsigned count = 0;
    (void)state;
    if (unmountable[0] == '\0') {
        must_mount("size=64m"); /* So many are done sooner without a disk. */
    }
    begin_kills();
    /* Before the mark is there: the next one makes it. */
    for (int i = 0; i < ROUNDS; i++) {
        stop_and_kill(i % 2 == 0 ? "rename" : "link", "objects_marking", 1);
        assert_true(access(place, F_OK) == 0 && litter(place) == (unsigned)i + 1);
        kills++;
    }
    must(fcap_objects_directory_open(place, false, &objects, &error));
    must(objects->ops->sweep(objects, "nobody/", &error));
    assert_int_equal(litter(place), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (size_t p = 0; p < FCAP_POINT_COUNT; p++) {
            if (points[p].phase != FCAP_POINT_OBJECT || p == FCAP_POINT_AT_objects_marking) {
                continue;
            }
            bool is_link = i % 2 == 1 || p == FCAP_POINT_AT_object_linked;
            long passes = 1 + (long)(kills * 7919) % (points[p].passes / 4);
            stop_and_kill(is_link ? "link" : "rename", points[p].name, passes);
            kills++;
            count = check_after(kills, kills % 2 == 0);
        }
    }
    print_message("result: %u kills, %d at each point of a writer, %u objects whole, none half\n",
                  kills, ROUNDS, count);
}

/* On the disk of $TMPDIR. */
static void killed_at_any_time(void **state)
{
    enum { KILLS = 30 };
    unsigned count = 0;
    unsigned random = 4711;
    (void)state;
    begin_kills();
    must(fcap_objects_directory_open(place, false, &objects, &error));
    for (unsigned i = 1; i <= KILLS; i++) {
        static bool done[NUMBERS_MAX];
        memset(done, 0, sizeof done);
        unsigned before = read_done(done);
        unsigned now = before;
        pid_t child = start_writer(i % 2 == 0 ? "rename" : "link", NULL);
        random = random * 1103515245 + 12345;
        while (now < before + 1 + (random >> 16) % 5) { /* Until it has finished some more. */
            int status = 0;
            assert_int_equal(waitpid(child, &status, WNOHANG), 0);
            memset(done, 0, sizeof done);
            now = read_done(done);
        }
        (void)nanosleep(&(struct timespec){0, (long)(random >> 20) * 500}, NULL); /* Any is fine. */
        kill_writer(child);
        count = check_after(i, i % 3 == 0);
    }
    print_message("result: %d kills at any time, %u objects whole, none half\n", KILLS, count);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_full_volume),
        TEST(no_more_files),
        TEST(a_read_only_mount),
        TEST(a_volume_comes_and_goes),
        TEST(a_lock_is_lost_with_the_mount),
        TEST(killed_at_every_point),
        TEST(killed_at_any_time),
    };
#undef TEST
    const char *tmp = getenv("TMPDIR");
    char command[COMMAND_BYTES];
    (void)snprintf(base, sizeof base, "%s/fcap-objects-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(base) == NULL) {
        perror(base);
        return 1;
    }
    (void)snprintf(place, sizeof place, "%s/try", base);
    (void)mounts_enter(unmountable, sizeof unmountable); /* It says why not. */
    int failures = cmocka_run_group_tests_name("objects_directory", tests, NULL, NULL);
    (void)snprintf(command, sizeof command, "rm -rf %s", base);
    return failures + (system(command) != 0);
}
