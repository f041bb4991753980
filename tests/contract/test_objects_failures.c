/* What a directory of objects says and does when a call of the system fails, whichever and however:
 * the class, the place, the words and the cure; no half object; and with the same handle all is
 * well again when the cause is gone. */
#include "fcap/objects.h"

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
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum call { OPEN, OPENAT, MKDIRAT, RENAMEAT2, LINKAT, UNLINKAT, WRITE, PREAD, FSYNC, FLOCK, CALLS };

/* The call after so many more fails once. */
static struct {
    long after; /* -1: none */
    int code;
} faults[CALLS];
static long made[CALLS];
static char order[64]; /* of what makes an object durable: f file, d folder synced, n named */

static void note(enum call call, int file)
{
    struct stat info;
    size_t size = strlen(order);
    if (size < sizeof order - 1 && (call == RENAMEAT2 || call == LINKAT || call == FSYNC)) {
        bool is_folder = call == FSYNC && fstat(file, &info) == 0 && S_ISDIR(info.st_mode);
        order[size] = call != FSYNC ? 'n' : is_folder ? 'd' : 'f';
        order[size + 1] = '\0';
    }
}

static bool fails(enum call call, int file)
{
    made[call]++;
    note(call, file);
    if (faults[call].after < 0 || faults[call].after-- > 0) {
        return false;
    }
    errno = faults[call].code;
    return true;
}

#define WRAP(call, result, name, file, parameters, arguments)                                      \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        return fails(call, file) ? -1 : __real_##name arguments;                                   \
    }

WRAP(MKDIRAT, int, mkdirat, folder, (int folder, const char *path, mode_t mode),
     (folder, path, mode))
WRAP(RENAMEAT2, int, renameat2, from,
     (int from, const char *name, int to, const char *new_name, unsigned int flags),
     (from, name, to, new_name, flags))
WRAP(LINKAT, int, linkat, from,
     (int from, const char *name, int to, const char *new_name, int flags),
     (from, name, to, new_name, flags))
WRAP(UNLINKAT, int, unlinkat, folder, (int folder, const char *path, int flags),
     (folder, path, flags))
WRAP(WRITE, ssize_t, write, file, (int file, const void *data, size_t size), (file, data, size))
WRAP(PREAD, ssize_t, pread, file, (int file, void *data, size_t size, off_t offset),
     (file, data, size, offset))
WRAP(FLOCK, int, flock, file, (int file, int operation), (file, operation))

int __wrap_fsync(int file);

/* Nothing here survives the machine, so nothing waits for a disk. */
int __wrap_fsync(int file)
{
    return fails(FSYNC, file) ? -1 : 0;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);

static mode_t mode_of(int flags, va_list arguments)
{
    return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return fails(OPEN, -1) ? -1 : __real_open(path, flags, mode);
}

int __wrap_openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return fails(OPENAT, folder) ? -1 : __real_openat(folder, path, flags, mode);
}

/* --- the place --- */

static char base[256];
static char place[300];
static struct fcap_objects *objects;
static struct fcap_error error;

static void no_faults(void)
{
    for (size_t i = 0; i < CALLS; i++) {
        faults[i].after = -1;
    }
}

static int set_up(void **state)
{
    (void)state;
    no_faults();
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(base, sizeof base, "%s/fcap-objects-XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(base));
    (void)snprintf(place, sizeof place, "%s/place", base);
    assert_int_equal(fcap_objects_directory_open(place, false, &objects, &error), FCAP_OK);
    return 0;
}

static int tear_down(void **state)
{
    char command[300];
    (void)state;
    no_faults();
    fcap_objects_directory_close(objects);
    (void)snprintf(command, sizeof command, "chmod -R u+rwx %s; rm -rf %s", base, base);
    return system(command);
}

static enum fcap_status put(const char *name)
{
    struct fcap_object_writer *writer = NULL;
    enum fcap_status status = objects->ops->begin(objects, name, &writer, &error);
    if (status != FCAP_OK) {
        return status;
    }
    for (int i = 0; i < 2 && status == FCAP_OK; i++) {
        status = objects->ops->write(objects, writer, fcap_bytes_of("half "), &error);
    }
    if (status != FCAP_OK) {
        objects->ops->abandon(objects, writer);
        return status;
    }
    return objects->ops->finish(objects, writer, &error);
}

struct seen {
    size_t objects;
    bool is_whole; /* each of them */
};

static bool see(void *context, const char *name, uint64_t size)
{
    struct seen *seen = context;
    (void)name;
    seen->objects++;
    seen->is_whole = seen->is_whole && size == 10;
    return true;
}

static struct seen look(void)
{
    struct seen seen = {.is_whole = true};
    if (objects->ops->list(objects, "", see, &seen, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return seen;
}

static size_t litter(const char *folder_name)
{
    size_t count = 0;
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", place, folder_name);
    DIR *folder = opendir(path);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL;
         entry = readdir(folder)) {
        count += strncmp(entry->d_name, ".new-", 5) == 0;
    }
    if (folder != NULL) {
        (void)closedir(folder); /* Only read. */
    }
    return count;
}

/* --- words --- */

/* clang-format off */
static const struct {
    int code;
    enum fcap_status status;
    const char *words; /* the system's, in part */
    const char *cure;
} causes[] = {
    {ENOSPC,       FCAP_NO_SPACE,    "No space left",     "free space"},
    {EDQUOT,       FCAP_NO_SPACE,    "quota exceeded",    "quota"},
    {EROFS,        FCAP_IO,          "Read-only",         "mount it for writing"},
    {EIO,          FCAP_IO,          "Input/output",      "kernel's log"},
    {EACCES,       FCAP_IO,          "Permission denied", "user the right"},
    {ENAMETOOLONG, FCAP_IO,          "too long",          "shorter"},
    {EMFILE,       FCAP_IO,          "open files",        "ulimit -n"},
    {ENOTCONN,     FCAP_UNAVAILABLE, "not connected",     "mount it"},
    {ESTALE,       FCAP_UNAVAILABLE, "Stale",             "mount it"},
    {ENODEV,       FCAP_UNAVAILABLE, "No such device",    "mount it"},
    {ETIMEDOUT,    FCAP_UNAVAILABLE, "timed out",         "server is away"},
    {EXDEV,        FCAP_IO,          "cross-device",      "check the volume"},
};
/* clang-format on */

enum { CAUSES = sizeof causes / sizeof causes[0] };

static void told(size_t cause, const char *where)
{
    if (strstr(error.text, place) == NULL || strstr(error.text, causes[cause].words) == NULL ||
        strstr(error.text, causes[cause].cure) == NULL) {
        fail_msg("%s: \"%s\"", where, error.text);
    }
}

static void every_cause_is_told(void **state)
{
    static const enum call calls[] = {OPEN, WRITE, FSYNC, MKDIRAT, RENAMEAT2};
    (void)state;
    for (size_t k = 0; k < CAUSES; k++) {
        for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "a/%zu/%zu/b", k, i);
            faults[calls[i]].after = 0;
            faults[calls[i]].code = causes[k].code;
            assert_int_equal(put(name), causes[k].status);
            assert_int_equal(faults[calls[i]].after, -1); /* It was met. */
            told(k, name);
            assert_int_equal(put(name), FCAP_OK);
        }
    }
    assert_int_equal(look().objects, CAUSES * sizeof calls / sizeof calls[0]);
}

/* Each single call of the system on the way fails, with each of some causes. */
static void every_call_may_fail(void **state)
{
    static const int codes[] = {ENOSPC, EIO, ESTALE, EROFS};
    static const char *const names[] = {"open",     "openat", "mkdirat", "renameat2", "linkat",
                                        "unlinkat", "write",  "pread",   "fsync",     "flock"};
    size_t failures = 0;
    size_t rounds = 0; /* an object of each is there in the end, and the good one */
    long needed[CALLS];
    (void)state;
    memset(made, 0, sizeof made);
    assert_int_equal(put("x/good/b"), FCAP_OK);
    memcpy(needed, made, sizeof made);
    for (size_t call = 0; call < CALLS; call++) {
        for (long nth = 0; nth < needed[call]; nth++) {
            for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++) {
                char name[64];
                (void)snprintf(name, sizeof name, "x/%zu-%ld-%zu/b", call, nth, c);
                faults[call].after = nth;
                faults[call].code = codes[c];
                enum fcap_status status = put(name);
                assert_int_equal(faults[call].after, -1); /* It was met. */
                no_faults();
                struct seen seen = look();
                if (!seen.is_whole || (status == FCAP_OK && seen.objects != rounds + 2)) {
                    fail_msg("%s %ld: %s", names[call], nth, error.text);
                }
                failures += status != FCAP_OK;
                if (seen.objects == rounds + 1) { /* Not visible: it can be made now. */
                    assert_true(status != FCAP_OK);
                    assert_int_equal(put(name), FCAP_OK);
                } else { /* Visible, whole, and nobody makes it again. */
                    assert_int_equal(put(name), FCAP_LOCKED);
                }
                name[strlen(name) - 2] = '\0';
                assert_true(litter(name) <= (call == UNLINKAT));
                rounds++;
            }
        }
    }
    assert_int_equal(failures, rounds); /* None is passed over. */
    assert_true(rounds > 40);
    print_message("result: %zu single calls of the system failed, %zu of them were told, "
                  "none left half of it\n",
                  rounds, failures);
}

/* On a file system that renames only with replacing. */
static void every_call_may_fail_with_links(void **state)
{
    static const int codes[] = {ENOSPC, EIO, EMLINK};
    (void)state;
    for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++) {
        char name[64];
        (void)snprintf(name, sizeof name, "x/%zu", c);
        faults[RENAMEAT2].after = 0;
        faults[RENAMEAT2].code = EINVAL;
        faults[LINKAT].after = 0;
        faults[LINKAT].code = codes[c];
        assert_true(put(name) != FCAP_OK);
        assert_int_equal(faults[LINKAT].after, -1);
        assert_int_equal(look().objects, c);
        faults[RENAMEAT2].after = 0;
        assert_int_equal(put(name), FCAP_OK);
        assert_int_equal(litter("x"), 0);
    }
}

/* The server did it, and its answer was lost: the second request finds the name. */
static int __attribute__((noinline)) make_by_hand(const char *name)
{
    char command[900];
    (void)snprintf(command, sizeof command, "cd %s/x && ln .new-* %s", place, name);
    return system(command);
}

static void an_answer_that_was_lost(void **state)
{
    struct fcap_object_writer *writer = NULL;
    (void)state;
    assert_int_equal(objects->ops->begin(objects, "x/a", &writer, &error), FCAP_OK);
    assert_int_equal(objects->ops->write(objects, writer, fcap_bytes_of("half half "), &error),
                     FCAP_OK);
    assert_int_equal(make_by_hand("a"), 0);
    assert_int_equal(objects->ops->finish(objects, writer, &error), FCAP_OK);
    assert_int_equal(look().objects, 1);
    assert_int_equal(litter("x"), 0);
}

/* First the bytes, then the name, then the folders that lead to it: a kill shows nothing of this,
 * only the end of the machine would. */
static void names_come_after_bytes(void **state)
{
    struct fcap_objects *other = NULL;
    char path[400];
    (void)state;
    order[0] = '\0';
    assert_int_equal(put("a/b/c"), FCAP_OK);
    assert_string_equal(order, "fnddd");
    order[0] = '\0';
    faults[RENAMEAT2].after = 0;
    faults[RENAMEAT2].code = EINVAL;
    assert_int_equal(put("a/b/d"), FCAP_OK);
    assert_string_equal(order, "fnnddd"); /* The first could not name it. */
    order[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/n/o", base);
    assert_int_equal(fcap_objects_directory_open(path, false, &other, &error), FCAP_OK);
    assert_string_equal(order, "ddfndd"); /* Two folders are made, and a mark in the second. */
    fcap_objects_directory_close(other);
}

/* Other calls than those that write. */
static void reading_and_locking_fail(void **state)
{
    uint8_t bytes[16];
    size_t size;
    struct fcap_object_lock *lock = NULL;
    struct seen seen = {0};
    (void)state;
    assert_int_equal(put("x/a"), FCAP_OK);
    for (size_t k = 0; k < CAUSES; k++) {
        faults[OPEN].code = faults[FLOCK].code = faults[PREAD].code = causes[k].code;
        faults[OPEN].after = 0;
        assert_int_equal(objects->ops->list(objects, "", see, &seen, &error), causes[k].status);
        told(k, "list");
        faults[OPEN].after = 0;
        assert_int_equal(objects->ops->remove(objects, "x/b", &error), causes[k].status);
        faults[PREAD].after = 1; /* The first reads the mark. */
        assert_int_equal(objects->ops->read(objects, "x/a", 0, bytes, 16, &size, &error),
                         causes[k].status);
        told(k, "read");
        faults[FLOCK].after = 0;
        assert_int_equal(objects->ops->lock(objects, "x/", "me", &lock, &error), causes[k].status);
        told(k, "lock");
        assert_null(lock);
        faults[OPENAT].after = 1; /* As above. */
        faults[OPENAT].code = causes[k].code;
        assert_int_equal(objects->ops->sweep(objects, "x/", &error), causes[k].status);
    }
    assert_int_equal(objects->ops->lock(objects, "x/", "me", &lock, &error), FCAP_OK);
    objects->ops->unlock(objects, lock);
    assert_int_equal(objects->ops->read(objects, "x/a", 0, bytes, 16, &size, &error), FCAP_OK);
    assert_int_equal(size, 10);
    faults[FLOCK].after = 0;
    faults[FLOCK].code = ENOLCK;
    assert_int_equal(objects->ops->lock(objects, "x/", "me", &lock, &error), FCAP_IO);
    assert_non_null(strstr(error.text, "NFS"));
}

/* The server of an NFS volume has given the lock to somebody else, and nobody told. */
static void a_lock_that_a_server_took(void **state)
{
    struct fcap_object_lock *lock = NULL;
    (void)state;
    assert_int_equal(objects->ops->lock(objects, "x/", "me", &lock, &error), FCAP_OK);
    assert_int_equal(put("x/a"), FCAP_OK);
    faults[FLOCK].after = 0;
    faults[FLOCK].code = EWOULDBLOCK;
    assert_int_equal(put("x/b"), FCAP_LOCKED);
    assert_non_null(strstr(error.text, "held by"));
    faults[FLOCK].after = 0;
    faults[FLOCK].code = EIO;
    assert_int_equal(put("x/b"), FCAP_IO);
    assert_non_null(strstr(error.text, "kernel's log"));
    assert_int_equal(put("x/b"), FCAP_OK); /* It was given back. */
    objects->ops->unlock(objects, lock);
}

/* --- limits without a fault of our own --- */

static void a_file_may_not_grow(void **state)
{
    struct rlimit before;
    struct fcap_object_writer *writer = NULL;
    char kilobyte[1025];
    (void)state;
    memset(kilobyte, 'k', sizeof kilobyte - 1);
    kilobyte[sizeof kilobyte - 1] = '\0';
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 1500, .rlim_max = before.rlim_max};
    assert_int_equal(objects->ops->begin(objects, "x/a", &writer, &error), FCAP_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    enum fcap_status status = FCAP_OK;
    for (int i = 0; i < 3 && status == FCAP_OK; i++) {
        status = objects->ops->write(objects, writer, fcap_bytes_of(kilobyte), &error);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(status, FCAP_NO_SPACE);
    assert_non_null(strstr(error.text, "ulimit -f"));
    objects->ops->abandon(objects, writer);
    assert_int_equal(look().objects, 0);
    assert_int_equal(litter("x"), 0);
}

static void a_place_with_too_long_a_name(void **state)
{
    char path[PATH_MAX + 100];
    struct fcap_objects *other = NULL;
    (void)state;
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[300] = '\0';
    assert_int_equal(fcap_objects_directory_open(path, false, &other, &error), FCAP_IO);
    assert_non_null(strstr(error.text, "too long"));
    path[300] = 'a';
    path[sizeof path - 1] = '\0';
    assert_int_equal(fcap_objects_directory_open(path, false, &other, &error), FCAP_IO);
    assert_null(other);
}

/* Opening a new place fails at each of its calls; what is left of it is no mark. */
static void a_place_that_cannot_be_made(void **state)
{
    char path[400];
    size_t failed = 0;
    (void)state;
    for (size_t call = 0; call < CALLS; call++) {
        for (long nth = 0; nth < 4; nth++) {
            struct fcap_objects *other = NULL;
            (void)snprintf(path, sizeof path, "%s/new-%zu-%ld", base, call, nth);
            faults[call].after = nth;
            faults[call].code = ENOSPC;
            enum fcap_status status = fcap_objects_directory_open(path, false, &other, &error);
            no_faults();
            if (status != FCAP_OK) {
                failed++;
                assert_int_equal(status, FCAP_NO_SPACE);
                assert_non_null(strstr(error.text, path));
                assert_int_equal(fcap_objects_directory_open(path, false, &other, &error), FCAP_OK);
            }
            fcap_objects_directory_close(other);
        }
    }
    assert_true(failed >= 5);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_cause_is_told),
        TEST(every_call_may_fail),
        TEST(every_call_may_fail_with_links),
        TEST(an_answer_that_was_lost),
        TEST(names_come_after_bytes),
        TEST(reading_and_locking_fail),
        TEST(a_lock_that_a_server_took),
        TEST(a_file_may_not_grow),
        TEST(a_place_with_too_long_a_name),
        TEST(a_place_that_cannot_be_made),
    };
#undef TEST
    return cmocka_run_group_tests_name("objects_failures", tests, NULL, NULL);
}
