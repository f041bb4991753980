/* The contract on a directory, twice: on a file system that renames without replacing, and on one
 * that does not (NFS); and what only a directory can do. */
#include "contract/objects_contract.h"

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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 512 };

static char base[256];
static char place[300];
static struct fcap_objects *handles[2];
static struct fcap_error error;

/* --- a file system without renameat2(RENAME_NOREPLACE) --- */

static int refuse_rename; /* an errno */

int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned int flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned int flags);

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned int flags)
{
    if (refuse_rename != 0) {
        errno = refuse_rename;
        return -1;
    }
    return __real_renameat2(from_folder, from, to_folder, to, flags);
}

int __wrap_fsync(int file);

/* Nothing here survives the machine, so nothing waits for a disk. */
int __wrap_fsync(int file)
{
    (void)file;
    return 0;
}

/* --- the subject --- */

static void must_open(bool must_exist, struct fcap_objects **ret_objects)
{
    if (fcap_objects_directory_open(place, must_exist, ret_objects, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

static void open_directory(void)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(base, sizeof base, "%s/fcap-objects-XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(base));
    (void)snprintf(place, sizeof place, "%s/deep/place", base);
    must_open(false, &handles[0]);
    must_open(true, &handles[1]);
}

static struct fcap_objects *first(void)
{
    return handles[0];
}

static struct fcap_objects *second(void)
{
    return handles[1];
}

static void run_and_die(void (*what)(struct fcap_objects *objects))
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct fcap_objects *objects = NULL;
        if (fcap_objects_directory_open(place, true, &objects, &error) != FCAP_OK) {
            _exit(1);
        }
        what(objects);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void close_directory(void)
{
    char command[300];
    fcap_objects_directory_close(handles[0]);
    fcap_objects_directory_close(handles[1]);
    handles[0] = NULL;
    handles[1] = NULL;
    (void)snprintf(command, sizeof command, "rm -rf %s", base);
    assert_int_equal(system(command), 0);
}

static int set_up(void **state)
{
    (void)state;
    open_directory();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_directory();
    return 0;
}

/* --- small steps --- */

static const char *below(const char *name)
{
    static char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", place, name);
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs(text, file); /* The test reads it. */
    assert_int_equal(fclose(file), 0);
}

static struct fcap_object_writer *begun(struct fcap_objects *objects, const char *name)
{
    struct fcap_object_writer *writer = NULL;
    if (objects->ops->begin(objects, name, &writer, &error) != FCAP_OK ||
        objects->ops->write(objects, writer, fcap_bytes_of("text"), &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return writer;
}

static void put(struct fcap_objects *objects, const char *name)
{
    if (objects->ops->finish(objects, begun(objects, name), &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

static bool count_one(void *context, const char *name, uint64_t size)
{
    (void)name;
    (void)size;
    ++*(int *)context;
    return true;
}

static enum fcap_status count(struct fcap_objects *objects, int *ret_count)
{
    *ret_count = 0;
    return objects->ops->list(objects, "", count_one, ret_count, &error);
}

/* Names in a folder that begin with `start`. */
static int names_in(const char *path, const char *start)
{
    int found = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        found += strncmp(entry->d_name, start, strlen(start)) == 0;
    }
    (void)closedir(folder); /* Only read. */
    return found;
}

static enum fcap_status open_again(bool must_exist)
{
    struct fcap_objects *objects = NULL;
    error.text[0] = '\0';
    enum fcap_status status = fcap_objects_directory_open(place, must_exist, &objects, &error);
    fcap_objects_directory_close(objects);
    return status;
}

static void told(const char *text)
{
    if (strstr(error.text, text) == NULL) {
        fail_msg("\"%s\" does not tell \"%s\"", error.text, text);
    }
}

/* --- the mark --- */

static void what_is_made_new_has_a_mark(void **state)
{
    char text[128] = "";
    (void)state;
    FILE *file = fopen(below(".fcap-objects"), "r");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text, file);
    (void)fclose(file);                  /* Only read. */
    assert_int_equal(size, 15 + 32 + 1); /* As docs/DATA.md shows it. */
    assert_memory_equal(text, "fcap-objects 1\n", 15);
    assert_int_equal(strspn(text + 15, "0123456789abcdef"), 32);
    assert_int_equal(names_in(place, ".mark-"), 0);
}

static void a_volume_that_is_not_mounted(void **state)
{
    int found;
    uint8_t byte;
    size_t size;
    struct fcap_object_lock *lock = NULL;
    struct fcap_object_writer *writer = NULL;
    struct fcap_objects *objects = handles[0];
    char away[310];
    (void)state;
    put(objects, "a/b");
    (void)snprintf(away, sizeof away, "%s-away", place);
    assert_int_equal(rename(place, away), 0);
    for (int round = 0; round < 2; round++) { /* There is nothing; then an empty folder. */
        assert_int_equal(count(objects, &found), FCAP_UNAVAILABLE);
        told(place);
        told("mounted");
        assert_int_equal(objects->ops->read(objects, "a/b", 0, &byte, 1, &size, &error),
                         FCAP_UNAVAILABLE);
        assert_int_equal(objects->ops->remove(objects, "a/b", &error), FCAP_UNAVAILABLE);
        assert_int_equal(objects->ops->sweep(objects, "a/", &error), FCAP_UNAVAILABLE);
        assert_int_equal(objects->ops->begin(objects, "a/c", &writer, &error), FCAP_UNAVAILABLE);
        assert_int_equal(objects->ops->lock(objects, "a/", "x", &lock, &error), FCAP_UNAVAILABLE);
        assert_int_equal(open_again(true), FCAP_UNAVAILABLE);
        told(place);
        if (round == 0) {
            assert_int_equal(mkdir(place, 0700), 0);
        }
    }
    assert_int_equal(names_in(place, ""), 2); /* Nothing was made in it. */
    assert_int_equal(rmdir(place), 0);
    assert_int_equal(rename(away, place), 0);
    assert_int_equal(count(objects, &found), FCAP_OK);
    assert_int_equal(found, 1);
    put(objects, "a/c");
}

static void another_volume_in_its_place(void **state)
{
    int found;
    char away[310];
    struct fcap_objects *other = NULL;
    (void)state;
    put(handles[0], "a");
    struct fcap_object_writer *writer = begun(handles[0], "b");
    (void)snprintf(away, sizeof away, "%s-away", place);
    assert_int_equal(rename(place, away), 0);
    must_open(false, &other);
    assert_int_equal(count(handles[0], &found), FCAP_UNAVAILABLE);
    told("another volume");
    assert_int_equal(handles[0]->ops->finish(handles[0], writer, &error), FCAP_UNAVAILABLE);
    assert_int_equal(count(other, &found), FCAP_OK);
    assert_int_equal(found, 0);
    fcap_objects_directory_close(other);
}

static void what_is_not_ours(void **state)
{
    (void)state;
    write_file(below(".fcap-objects"), "fcap-objects 2\n0123\n");
    assert_int_equal(open_again(false), FCAP_FORMAT);
    told("version");
    write_file(below(".fcap-objects"), "fcap-objects 1\n0123\n");
    assert_int_equal(open_again(false), FCAP_CORRUPT);
    told(".fcap-objects is damaged");
    write_file(below(".fcap-objects"), "");
    assert_int_equal(open_again(true), FCAP_CORRUPT);
    assert_int_equal(unlink(below(".fcap-objects")), 0);
    assert_int_equal(open_again(true), FCAP_UNAVAILABLE);
    write_file(below("holiday.jpg"), "x");
    assert_int_equal(open_again(false), FCAP_FOREIGN);
    told("holiday.jpg");
    assert_int_equal(names_in(place, ".fcap"), 0);
    assert_int_equal(unlink(below("holiday.jpg")), 0);
    assert_int_equal(mkdir(below("lost+found"), 0700), 0); /* The root of a volume has it. */
    write_file(below(".hidden"), "x");
    assert_int_equal(open_again(false), FCAP_OK);
    (void)snprintf(place, sizeof place, "%s/file", base);
    write_file(place, "x");
    assert_int_equal(open_again(false), FCAP_FOREIGN);
    (void)snprintf(place, sizeof place, "%s/file/below", base);
    assert_true(open_again(false) != FCAP_OK);
    told("/file/below");
}

/* All at once find nothing, and agree on one mark. */
static void many_open_a_new_one(void **state)
{
    enum { OPENERS = 6 };
    int found = 0;
    (void)state;
    for (int round = 0; round < 5; round++) {
        pid_t children[OPENERS];
        (void)snprintf(place, sizeof place, "%s/new/%d", base, round);
        for (int i = 0; i < OPENERS; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0) {
                char name[32];
                struct fcap_objects *objects = NULL;
                struct fcap_object_writer *writer = NULL;
                (void)snprintf(name, sizeof name, "own/%d", i);
                bool done = fcap_objects_directory_open(place, false, &objects, NULL) == FCAP_OK &&
                            objects->ops->begin(objects, name, &writer, NULL) == FCAP_OK &&
                            objects->ops->finish(objects, writer, NULL) == FCAP_OK;
                _exit(done ? 0 : 1);
            }
        }
        for (int i = 0; i < OPENERS; i++) {
            int status = 0;
            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
            assert_int_equal(status, 0);
        }
        struct fcap_objects *objects = NULL;
        must_open(true, &objects);
        assert_int_equal(count(objects, &found), FCAP_OK);
        assert_int_equal(found, OPENERS);
        assert_int_equal(names_in(place, ".mark-"), 0);
        fcap_objects_directory_close(objects);
    }
}

/* --- nothing outside, nothing of others --- */

static void links_lead_nowhere(void **state)
{
    uint8_t byte;
    size_t size;
    int found;
    struct fcap_object_writer *writer = NULL;
    struct fcap_objects *objects = handles[0];
    char outside[300];
    (void)state;
    (void)snprintf(outside, sizeof outside, "%s/outside", base);
    assert_int_equal(mkdir(outside, 0700), 0);
    assert_int_equal(symlink(outside, below("a")), 0);
    assert_int_equal(symlink("/etc/passwd", below("p")), 0);
    assert_int_equal(mkfifo(below("f"), 0600), 0);
    assert_int_equal(objects->ops->begin(objects, "a/x", &writer, &error), FCAP_IO);
    assert_int_equal(objects->ops->read(objects, "p", 0, &byte, 1, &size, &error), FCAP_REFUSED);
    assert_int_equal(objects->ops->read(objects, "f", 0, &byte, 1, &size, &error), FCAP_REFUSED);
    assert_int_equal(count(objects, &found), FCAP_OK);
    assert_int_equal(found, 0);
    assert_int_equal(names_in(outside, ""), 2);
}

static void files_of_others_are_no_objects(void **state)
{
    int found;
    (void)state;
    put(handles[0], "a/b");
    write_file(below("a/with blank"), "x");
    write_file(below("a/.hidden"), "x");
    assert_int_equal(mkdir(below("lost+found"), 0700), 0);
    write_file(below("lost+found/x"), "x");
    assert_int_equal(count(handles[0], &found), FCAP_OK);
    assert_int_equal(found, 1);
    assert_int_equal(handles[0]->ops->sweep(handles[0], "", &error), FCAP_OK);
    assert_int_equal(access(below("a/.hidden"), F_OK), 0);
}

static void leave_litter(struct fcap_objects *objects)
{
    (void)begun(objects, "a/x");
    (void)begun(objects, "a/b/x");
    (void)begun(objects, "ab/x");
    (void)begun(objects, "x");
    write_file(below(".mark-0123456789abcdef"), "x");
}

static void litter_is_swept(void **state)
{
    (void)state;
    run_and_die(leave_litter);
    assert_int_equal(names_in(below("a"), ".new-"), 1);
    assert_int_equal(handles[0]->ops->sweep(handles[0], "a/", &error), FCAP_OK);
    assert_int_equal(names_in(below("a"), ".new-"), 0);
    assert_int_equal(names_in(below("a/b"), ".new-"), 0);
    assert_int_equal(names_in(below("ab"), ".new-"), 1);
    assert_int_equal(names_in(place, ".new-"), 1);
    assert_int_equal(names_in(place, ".mark-"), 0);
    assert_int_equal(handles[0]->ops->sweep(handles[0], "", &error), FCAP_OK);
    assert_int_equal(names_in(below("ab"), ".new-"), 0);
    assert_int_equal(names_in(place, ".new-"), 0);
    assert_int_equal(names_in(place, ".fcap-objects"), 1);
}

/* What a writer could not take away with it goes when the volume is back, without a sweep. */
static void litter_of_a_volume_that_was_away(void **state)
{
    char away[310];
    struct fcap_objects *objects = handles[0];
    (void)state;
    struct fcap_object_writer *writers[] = {begun(objects, "a/x"), begun(objects, "a/b/x"),
                                            begun(objects, "x")};
    (void)snprintf(away, sizeof away, "%s-away", place);
    assert_int_equal(rename(place, away), 0);
    objects->ops->abandon(objects, writers[0]);
    assert_int_equal(objects->ops->finish(objects, writers[1], &error), FCAP_UNAVAILABLE);
    assert_int_equal(objects->ops->begin(objects, "a/y", &writers[0], &error), FCAP_UNAVAILABLE);
    assert_int_equal(rename(away, place), 0);
    assert_int_equal(names_in(below("a"), ".new-"), 1);
    assert_int_equal(names_in(below("a/b"), ".new-"), 1);
    put(objects, "b/1"); /* The third one is at work still. */
    assert_int_equal(names_in(below("a"), ".new-"), 0);
    assert_int_equal(names_in(below("a/b"), ".new-"), 0);
    assert_int_equal(names_in(place, ".new-"), 1);
    assert_int_equal(objects->ops->finish(objects, writers[2], &error), FCAP_OK);
}

/* --- a lock whose file is gone --- */

static void a_lost_lock_is_taken_anew(void **state)
{
    struct fcap_object_lock *lock = NULL;
    struct fcap_object_lock *other = NULL;
    struct fcap_object_writer *writer = NULL;
    (void)state;
    assert_int_equal(handles[0]->ops->lock(handles[0], "a/", "first", &lock, &error), FCAP_OK);
    assert_int_equal(unlink(below("a/.lock")), 0);
    put(handles[0], "a/1");
    assert_int_equal(handles[1]->ops->lock(handles[1], "a/", "second", &other, &error),
                     FCAP_LOCKED);
    told("first");
    /* Somebody else is quicker. */
    writer = begun(handles[0], "a/2");
    assert_int_equal(unlink(below("a/.lock")), 0);
    assert_int_equal(handles[1]->ops->lock(handles[1], "a/", "second", &other, &error), FCAP_OK);
    assert_int_equal(handles[0]->ops->finish(handles[0], writer, &error), FCAP_LOCKED);
    told("second");
    assert_int_equal(handles[0]->ops->begin(handles[0], "a/3", &writer, &error), FCAP_LOCKED);
    writer = begun(handles[1], "a/theirs");
    assert_int_equal(handles[0]->ops->remove(handles[0], "a/1", &error), FCAP_LOCKED);
    assert_int_equal(handles[0]->ops->sweep(handles[0], "a/", &error), FCAP_LOCKED);
    assert_int_equal(handles[0]->ops->sweep(handles[0], "", &error), FCAP_LOCKED);
    told("second");
    assert_int_equal(handles[1]->ops->finish(handles[1], writer, &error), FCAP_OK);
    assert_int_equal(access(below("a/1"), F_OK), 0);
    put(handles[0], "b/1"); /* Another prefix. */
    handles[1]->ops->unlock(handles[1], other);
    put(handles[0], "a/3");
    handles[0]->ops->unlock(handles[0], lock);
}

static void die_locked(struct fcap_objects *objects)
{
    struct fcap_object_lock *lock = NULL;
    assert_int_equal(objects->ops->lock(objects, "a/", "a name\nof two lines", &lock, &error),
                     FCAP_OK);
}

static void the_holder_in_the_file(void **state)
{
    struct fcap_object_lock *lock = NULL;
    struct fcap_object_lock *other = NULL;
    struct fcap_objects *objects = handles[0];
    char name[1000];
    (void)state;
    run_and_die(die_locked);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(objects->ops->lock(objects, "a/", name, &lock, &error), FCAP_OK);
    assert_int_equal(objects->ops->lock(objects, "a/", "x", &other, &error), FCAP_LOCKED);
    told("held by nnnnnnnn");
    assert_null(strstr(error.text, "two lines"));
    objects->ops->unlock(objects, lock);
    assert_int_equal(objects->ops->lock(objects, "", "root", &lock, &error), FCAP_OK);
    assert_int_equal(access(below(".lock"), F_OK), 0);
    objects->ops->unlock(objects, lock);
}

int main(void)
{
    static const struct objects_contract_subject subject = {.open = open_directory,
                                                            .first = first,
                                                            .second = second,
                                                            .run_and_die = run_and_die,
                                                            .close = close_directory};
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_made_new_has_a_mark),
        TEST(a_volume_that_is_not_mounted),
        TEST(another_volume_in_its_place),
        TEST(what_is_not_ours),
        TEST(many_open_a_new_one),
        TEST(links_lead_nowhere),
        TEST(files_of_others_are_no_objects),
        TEST(litter_is_swept),
        TEST(litter_of_a_volume_that_was_away),
        TEST(a_lost_lock_is_taken_anew),
        TEST(the_holder_in_the_file),
    };
#undef TEST
    int failures = objects_contract_run("objects: directory", &subject);
    failures += cmocka_run_group_tests_name("objects_directory", tests, NULL, NULL);
    refuse_rename = EINVAL;
    failures += objects_contract_run("objects: directory without RENAME_NOREPLACE", &subject);
    return failures;
}
