/* Disks that fail, for LD_PRELOAD: calls on files below a folder fail as the shared file that
 * FCAP_TEST_DISK names says (disk_fault.h), or wait; and it is remembered how much of each file has
 * been synced, so that a test can take from it what a power failure would. What is not modelled: a
 * folder's entries count as durable at once, and so does what was written over synced bytes. */
#include "disk_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct disk_fault *shared;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map_shared(void)
{
    const char *path = getenv("FCAP_TEST_DISK");
    int file = path == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    void *bytes = file < 0
                      ? MAP_FAILED
                      : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) {
        (void)fprintf(stderr, "FCAP_TEST_DISK names no file of the shim\n");
        _exit(1);
    }
    (void)close(file); /* The mapping stays. */
    shared = bytes;
}

static struct disk_fault *fault(void)
{
    (void)pthread_once(&once, map_shared); /* Fails only when misused. */
    return shared;
}

/* --- failing --------------------------------------------------------------------------------- */

static bool is_meant(const char *path)
{
    size_t below = strlen(shared->below);
    size_t size = strlen(path);
    size_t ending = strlen(shared->ending);
    return below > 0 && strncmp(path, shared->below, below) == 0 &&
           (path[below] == '/' || path[below] == '\0') && size >= ending &&
           strcmp(path + size - ending, shared->ending) == 0;
}

static bool is_armed(enum disk_call call)
{
    return __atomic_load_n(&fault()->code[call], __ATOMIC_ACQUIRE) != 0 ||
           __atomic_load_n(&shared->is_hanging, __ATOMIC_ACQUIRE) != 0;
}

/* True when the call is to fail; errno is set. */
static bool fails(enum disk_call call, const char *path)
{
    if (!is_meant(path)) {
        return false;
    }
    (void)__atomic_add_fetch(&shared->hits[call], 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&shared->is_hanging, __ATOMIC_ACQUIRE) != 0) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* Any time is fine. */
    }
    int code = __atomic_load_n(&shared->code[call], __ATOMIC_ACQUIRE);
    errno = code != 0 ? code : errno;
    return code != 0;
}

static bool file_fails(enum disk_call call, int file)
{
    char link[64];
    char path[PATH_MAX];
    if (!is_armed(call)) {
        return false;
    }
    int kept = errno;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    errno = kept;
    if (size <= 0) {
        return false;
    }
    path[size] = '\0';
    return fails(call, path);
}

static bool path_fails(enum disk_call call, int folder, const char *path)
{
    char link[64] = "/proc/self/cwd";
    char full[2 * PATH_MAX];
    if (!is_armed(call)) {
        return false;
    }
    if (path[0] == '/') {
        return fails(call, path);
    }
    if (folder != AT_FDCWD) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    }
    int kept = errno;
    ssize_t size = readlink(link, full, PATH_MAX - 1);
    errno = kept;
    if (size <= 0) {
        return false;
    }
    (void)snprintf(full + size, sizeof full - (size_t)size, "/%s", path); /* Cut: not meant. */
    return fails(call, full);
}

/* --- what is synced ----------------------------------------------------------------------------
 */

static void remember(uint64_t id, uint64_t synced)
{
    for (size_t i = 0; i < DISK_FILES_MAX; i++) {
        struct disk_file *at = &fault()->files[(id + i) % DISK_FILES_MAX];
        uint64_t found = 0;
        if (__atomic_compare_exchange_n(&at->id, &found, id, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            found == id) {
            __atomic_store_n(&at->synced, synced, __ATOMIC_RELEASE);
            return;
        }
    }
    (void)fprintf(stderr, "the shim has no room for so many files\n");
    _exit(1);
}

static long sync_file(int file, long number)
{
    struct stat info;
    if (file_fails(DISK_SYNC, file)) {
        return -1;
    }
    bool is_file = fstat(file, &info) == 0 && S_ISREG(info.st_mode); /* Before: not too much. */
    long result = syscall(number, file);
    if (result == 0 && is_file) {
        remember(disk_file_id(info.st_dev, info.st_ino), (uint64_t)info.st_size);
    }
    return result;
}

/* A new file may have the number of one that is gone. */
static void begin_file(int file)
{
    struct stat info;
    if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0) {
        remember(disk_file_id(info.st_dev, info.st_ino), 0);
    }
}

/* --- the calls ---------------------------------------------------------------------------------
 */

static int open_file(int folder, const char *path, int flags, mode_t mode)
{
    if ((flags & O_CREAT) != 0 && path_fails(DISK_MAKE, folder, path)) {
        return -1;
    }
    int file = (int)syscall(SYS_openat, folder, path, flags, mode);
    if ((flags & (O_CREAT | O_TRUNC)) != 0) {
        begin_file(file);
    }
    return file;
}

static mode_t mode_of(int flags, va_list arguments)
{
    return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = mode_of(flags, arguments);                                                   \
        va_end(arguments);                                                                         \
        return open_file(AT_FDCWD, path, flags, mode);                                             \
    }
#define OPENAT(name)                                                                               \
    int name(int folder, const char *path, int flags, ...)                                         \
    {                                                                                              \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = mode_of(flags, arguments);                                                   \
        va_end(arguments);                                                                         \
        return open_file(folder, path, flags, mode);                                               \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size)
{
    return file_fails(DISK_WRITE, file) ? -1 : syscall(SYS_write, file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset)
{
    return file_fails(DISK_WRITE, file) ? -1 : syscall(SYS_pwrite64, file, data, size, offset);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset)
{
    return pwrite(file, data, size, offset);
}

ssize_t pread(int file, void *data, size_t size, off_t offset)
{
    return file_fails(DISK_READ, file) ? -1 : syscall(SYS_pread64, file, data, size, offset);
}

ssize_t pread64(int file, void *data, size_t size, off64_t offset)
{
    return pread(file, data, size, offset);
}

int ftruncate(int file, off_t size)
{
    return file_fails(DISK_WRITE, file) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}

int fallocate(int file, int mode, off_t from, off_t size)
{
    return file_fails(DISK_WRITE, file) ? -1 : (int)syscall(SYS_fallocate, file, mode, from, size);
}

int fsync(int file)
{
    return (int)sync_file(file, SYS_fsync);
}

int fdatasync(int file)
{
    return (int)sync_file(file, SYS_fdatasync);
}

int mkdir(const char *path, mode_t mode)
{
    return path_fails(DISK_MAKE, AT_FDCWD, path) ? -1 : (int)syscall(SYS_mkdir, path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    return path_fails(DISK_MAKE, folder, path) ? -1 : (int)syscall(SYS_mkdirat, folder, path, mode);
}

int renameat2(int folder, const char *path, int to_folder, const char *to, unsigned flags)
{
    return path_fails(DISK_MAKE, to_folder, to)
               ? -1
               : (int)syscall(SYS_renameat2, folder, path, to_folder, to, flags);
}

int rename(const char *path, const char *to)
{
    return renameat2(AT_FDCWD, path, AT_FDCWD, to, 0);
}

int linkat(int folder, const char *path, int to_folder, const char *to, int flags)
{
    return path_fails(DISK_MAKE, to_folder, to)
               ? -1
               : (int)syscall(SYS_linkat, folder, path, to_folder, to, flags);
}

int link(const char *path, const char *to)
{
    return linkat(AT_FDCWD, path, AT_FDCWD, to, 0);
}

int unlinkat(int folder, const char *path, int flags)
{
    return path_fails(DISK_MAKE, folder, path) ? -1
                                               : (int)syscall(SYS_unlinkat, folder, path, flags);
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}
