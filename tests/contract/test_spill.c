/* The spill's contract, for the fake and for the file on disk; and what only a disk can do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fcap/spill.h"
#include "lib/fake_spill.h"

enum { BLOCK_BYTES = 512, FILES = 7, RECORDS = 3000, RECORD_MAX = 1500 };

static char directory[256];
static struct fake_spill fake;
static struct fcap_spill *spill;

static int open_fake(void **state)
{
    (void)state;
    fake_spill_init(&fake);
    spill = &fake.port;
    return 0;
}

static int close_fake(void **state)
{
    (void)state;
    fake_spill_done(&fake);
    return 0;
}

/* --- a file system that knows no files without a name (NFS, some overlays) --- */

static int refuse_nameless; /* an errno */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (refuse_nameless != 0 && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = refuse_nameless;
        return -1;
    }
    return __real_open(path, flags, mode);
}

static int open_file(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    (void)snprintf(directory, sizeof directory, "%s/fcapd-spill-test-XXXXXX", base);
    assert_non_null(mkdtemp(directory));
    struct fcap_error error = {{0}};
    if (fcap_spill_file_open(directory, BLOCK_BYTES, &spill, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return 0;
}

static int open_old_file(void **state)
{
    refuse_nameless = EOPNOTSUPP;
    int result = open_file(state);
    refuse_nameless = 0;
    return result;
}

static int close_file(void **state)
{
    (void)state;
    fcap_spill_file_close(spill);
    return rmdir(directory); /* It is empty. */
}

/* --- records that tell their place --- */

static size_t size_of(size_t file, size_t index)
{
    return index % 11 == 0 ? 0 : (index * 131 + file * 17) % (index % 5 == 0 ? RECORD_MAX : 60);
}

static void fill(size_t file, size_t index, uint8_t bytes[RECORD_MAX])
{
    for (size_t i = 0; i < size_of(file, index); i++) {
        bytes[i] = (uint8_t)(file * 31 + index * 7 + i);
    }
}

static enum fcap_status put(size_t file, size_t index)
{
    uint8_t bytes[RECORD_MAX];
    fill(file, index, bytes);
    return spill->ops->put(spill, file, (struct fcap_bytes){bytes, size_of(file, index)});
}

struct reading {
    size_t file;
    size_t next;  /* record expected */
    size_t stop;  /* after so many in one call; 0: never */
    size_t taken; /* in this call */
};

static bool visit(void *context, struct fcap_bytes record)
{
    struct reading *reading = context;
    uint8_t wanted[RECORD_MAX];
    fill(reading->file, reading->next, wanted);
    assert_int_equal(record.size, size_of(reading->file, reading->next));
    assert_true(record.size == 0 || memcmp(record.data, wanted, record.size) == 0);
    reading->next++;
    reading->taken++;
    return reading->taken != reading->stop;
}

/* Reads a whole file in pieces of `piece` records; gives how many there were. */
static size_t read_in_pieces(size_t file, size_t index_of_file, size_t piece)
{
    struct reading reading = {.file = index_of_file, .stop = piece};
    uint64_t position = 0;
    bool is_end = false;
    while (!is_end) {
        reading.taken = 0;
        assert_int_equal(spill->ops->read(spill, file, visit, &reading, &position, &is_end),
                         FCAP_OK);
        assert_true(piece == 0 || reading.taken <= piece);
        assert_true(is_end || reading.taken == piece);
    }
    return reading.next;
}

static void test_what_was_put_is_read_in_order(void **state)
{
    (void)state;
    size_t first;
    assert_int_equal(spill->ops->add(spill, FILES, &first), FCAP_OK);
    for (size_t i = 0; i < RECORDS; i++) {
        for (size_t file = 0; file < FILES - 1; file++) { /* The last one stays empty. */
            assert_int_equal(put(first + file, i), FCAP_OK);
        }
    }
    for (size_t file = 0; file < FILES; file++) {
        assert_int_equal(spill->ops->seal(spill, first + file), FCAP_OK);
    }
    static const size_t pieces[] = {0, 1, 3, 1000, RECORDS, RECORDS + 1};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        for (size_t file = 0; file < FILES; file++) {
            assert_int_equal(read_in_pieces(first + file, file, pieces[i]),
                             file < FILES - 1 ? RECORDS : 0);
        }
    }
    assert_true(spill->ops->disk_bytes(spill) > 0);
}

/* As a file that does not fit in memory is split: its records go on into others while it is read.
 */
static size_t split_first;

static bool move(void *context, struct fcap_bytes record)
{
    size_t *index = context;
    assert_int_equal(spill->ops->put(spill, split_first + *index % 2, record), FCAP_OK);
    ++*index;
    return true;
}

struct parity {
    struct reading reading;
    size_t remainder;
};

static bool visit_half(void *context, struct fcap_bytes record)
{
    struct parity *parity = context;
    parity->reading.next = parity->reading.taken * 2 + parity->remainder;
    (void)visit(&parity->reading, record);
    return true;
}

static void test_a_visitor_may_put(void **state)
{
    (void)state;
    size_t parent;
    size_t moved = 0;
    uint64_t position = 0;
    bool is_end;
    assert_int_equal(spill->ops->add(spill, 1, &parent), FCAP_OK);
    for (size_t i = 0; i < RECORDS; i++) {
        assert_int_equal(put(parent, i), FCAP_OK);
    }
    assert_int_equal(spill->ops->seal(spill, parent), FCAP_OK);
    assert_int_equal(spill->ops->add(spill, 2, &split_first), FCAP_OK);
    assert_int_equal(spill->ops->read(spill, parent, move, &moved, &position, &is_end), FCAP_OK);
    assert_true(is_end);
    assert_int_equal(moved, RECORDS);
    spill->ops->drop(spill, parent);
    for (size_t half = 0; half < 2; half++) {
        struct parity parity = {{.file = parent}, half};
        position = 0;
        assert_int_equal(spill->ops->seal(spill, split_first + half), FCAP_OK);
        assert_int_equal(
            spill->ops->read(spill, split_first + half, visit_half, &parity, &position, &is_end),
            FCAP_OK);
        assert_int_equal(parity.reading.taken, RECORDS / 2);
    }
}

/* Rounds of one file each: without using the room again the disk would hold all of them. */
static void test_dropped_room_is_used_again(void **state)
{
    (void)state;
    uint64_t after_one = 0;
    for (size_t round = 0; round < 20; round++) {
        size_t file;
        assert_int_equal(spill->ops->add(spill, 1, &file), FCAP_OK);
        for (size_t i = 0; i < 500; i++) {
            assert_int_equal(put(file, i), FCAP_OK);
        }
        assert_int_equal(spill->ops->seal(spill, file), FCAP_OK);
        assert_int_equal(read_in_pieces(file, file, 7), 500);
        spill->ops->drop(spill, file);
        after_one = round == 0 ? spill->ops->disk_bytes(spill) : after_one;
    }
    assert_true(spill->ops->disk_bytes(spill) <= after_one + after_one / 4);
}

/* --- only a disk --- */

/* The descriptor of the file without a name. */
static int nameless(void)
{
    struct stat status;
    for (int descriptor = 3; descriptor < 256; descriptor++) {
        char link[64];
        char path[512];
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t size = readlink(link, path, sizeof path - 1);
        if (size > 0 && fstat(descriptor, &status) == 0 && status.st_nlink == 0) {
            path[size] = '\0';
            if (strncmp(path, directory, strlen(directory)) == 0) {
                return descriptor;
            }
        }
    }
    fail_msg("no file without a name");
    return -1;
}

static size_t fill_one(void)
{
    size_t file;
    assert_int_equal(spill->ops->add(spill, 1, &file), FCAP_OK);
    for (size_t i = 0; i < RECORDS; i++) {
        assert_int_equal(put(file, i), FCAP_OK);
    }
    assert_int_equal(spill->ops->seal(spill, file), FCAP_OK);
    return file;
}

static enum fcap_status read_all(size_t file, size_t *ret_records)
{
    struct reading reading = {.file = file};
    uint64_t position = 0;
    bool is_end = false;
    enum fcap_status status = spill->ops->read(spill, file, visit, &reading, &position, &is_end);
    *ret_records = reading.next;
    return status;
}

static void test_no_name_stands_in_the_folder(void **state)
{
    (void)state;
    (void)fill_one();
    DIR *folder = opendir(directory);
    assert_non_null(folder);
    size_t names = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        names += entry->d_name[0] != '.';
    }
    (void)closedir(folder);
    assert_int_equal(names, 0);
}

/* One bit anywhere: what is read before it is right, and nothing of the block itself is given. */
static void test_a_damaged_block_is_found(void **state)
{
    (void)state;
    size_t file = fill_one();
    int descriptor = nameless();
    struct stat status;
    size_t records;
    assert_int_equal(fstat(descriptor, &status), 0);
    for (off_t at = 5; at < status.st_size; at += status.st_size / 50) {
        uint8_t byte;
        assert_int_equal(pread(descriptor, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(descriptor, &byte, 1, at), 1);
        assert_int_equal(read_all(file, &records), FCAP_CORRUPT);
        assert_non_null(strstr(fcap_spill_file_error(spill), "other bytes"));
        byte ^= 0x10;
        assert_int_equal(pwrite(descriptor, &byte, 1, at), 1);
    }
    assert_int_equal(read_all(file, &records), FCAP_OK);
    assert_int_equal(records, RECORDS);
}

/* Two blocks with each other's bytes, both whole. */
static void test_swapped_blocks_are_found(void **state)
{
    (void)state;
    size_t file = fill_one();
    int descriptor = nameless();
    uint8_t first[BLOCK_BYTES];
    uint8_t second[BLOCK_BYTES];
    size_t records;
    assert_int_equal(pread(descriptor, first, BLOCK_BYTES, 0), BLOCK_BYTES);
    assert_int_equal(pread(descriptor, second, BLOCK_BYTES, BLOCK_BYTES), BLOCK_BYTES);
    assert_int_equal(pwrite(descriptor, second, BLOCK_BYTES, 0), BLOCK_BYTES);
    assert_int_equal(pwrite(descriptor, first, BLOCK_BYTES, BLOCK_BYTES), BLOCK_BYTES);
    assert_int_equal(read_all(file, &records), FCAP_CORRUPT);
    assert_int_equal(records, 0);
}

static void test_a_torn_end_is_found(void **state)
{
    (void)state;
    size_t file = fill_one();
    int descriptor = nameless();
    struct stat status;
    size_t records;
    assert_int_equal(fstat(descriptor, &status), 0);
    assert_int_equal(ftruncate(descriptor, status.st_size - 1), 0);
    assert_int_equal(read_all(file, &records), FCAP_CORRUPT);
    assert_true(records < RECORDS);
}

/* The limit on a file's size stands for a full disk: the same call fails, in the same way. */
static void test_a_full_disk_is_told(void **state)
{
    (void)state;
    size_t file;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit limit = {.rlim_cur = 100 * BLOCK_BYTES + 7, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(spill->ops->add(spill, 1, &file), FCAP_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    enum fcap_status status = FCAP_OK;
    for (size_t i = 0; i < RECORDS && status == FCAP_OK; i++) {
        status = put(file, i);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(status, FCAP_NO_SPACE);
    assert_int_equal(fcap_status_class(status), FCAP_CLASS_RETRY);
    assert_true(strlen(fcap_spill_file_error(spill)) > 0);
}

static void test_a_folder_that_is_not_there(void **state)
{
    (void)state;
    struct fcap_spill *other = NULL;
    struct fcap_error error = {{0}};
    assert_int_equal(fcap_spill_file_open("/nowhere/at/all", BLOCK_BYTES, &other, &error), FCAP_IO);
    assert_null(other);
    assert_non_null(strstr(error.text, "/nowhere/at/all"));
    fcap_spill_file_close(other);
}

#define BOTH(test)                                                                                 \
    {"fake: " #test, test, open_fake, close_fake, NULL},                                           \
    {                                                                                              \
        "file: " #test, test, open_file, close_file, NULL                                          \
    }
#define DISK(test) cmocka_unit_test_setup_teardown(test, open_file, close_file)
#define OLD_DISK(test)                                                                             \
    {                                                                                              \
        "without O_TMPFILE: " #test, test, open_old_file, close_file, NULL                         \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_what_was_put_is_read_in_order),
        BOTH(test_a_visitor_may_put),
        BOTH(test_dropped_room_is_used_again),
        DISK(test_no_name_stands_in_the_folder),
        OLD_DISK(test_no_name_stands_in_the_folder),
        OLD_DISK(test_what_was_put_is_read_in_order),
        DISK(test_a_damaged_block_is_found),
        DISK(test_swapped_blocks_are_found),
        DISK(test_a_torn_end_is_found),
        DISK(test_a_full_disk_is_told),
        DISK(test_a_folder_that_is_not_there),
    };
    return cmocka_run_group_tests_name("spill", tests, NULL, NULL);
}
