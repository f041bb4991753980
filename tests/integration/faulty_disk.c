#include "faulty_disk.h"

#include "lab/lab.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

void faulty_disk_open(struct faulty_disk *disk, const char *shim)
{
    char path[96];
    lab_folder_make("disk", disk->folder, sizeof disk->folder);
    (void)snprintf(path, sizeof path, "%s/shared", disk->folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, sizeof *disk->shared), 0);
    void *bytes = mmap(NULL, sizeof *disk->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(bytes != MAP_FAILED);
    (void)close(file); /* The mapping stays. */
    disk->shared = bytes;
    (void)snprintf(disk->preload, sizeof disk->preload, "LD_PRELOAD=%s", shim);
    (void)snprintf(disk->variable, sizeof disk->variable, "FCAP_TEST_DISK=%s", path);
    disk->environment[0] = disk->preload;
    disk->environment[1] = disk->variable;
    disk->environment[2] = NULL;
}

void faulty_disk_close(struct faulty_disk *disk)
{
    if (disk->shared != NULL) {
        (void)munmap(disk->shared, sizeof *disk->shared);
        disk->shared = NULL;
    }
    lab_folder_remove(disk->folder);
}

/* The kernel names files by where they really are. */
static void name_files(struct faulty_disk *disk, const char *folder, const char *ending)
{
    char path[4096];
    assert_non_null(realpath(folder, path));
    assert_true(strlen(path) < sizeof disk->shared->below);
    assert_true(strlen(ending) < sizeof disk->shared->ending);
    (void)snprintf(disk->shared->below, sizeof disk->shared->below, "%s", path);
    (void)snprintf(disk->shared->ending, sizeof disk->shared->ending, "%s", ending);
}

void faulty_disk_fail(struct faulty_disk *disk, const char *folder, const char *ending,
                      struct disk_codes codes)
{
    const int all[DISK_CALLS] = {
        [DISK_WRITE] = codes.write,
        [DISK_SYNC] = codes.sync,
        [DISK_READ] = codes.read,
        [DISK_MAKE] = codes.make,
    };
    name_files(disk, folder, ending);
    for (size_t i = 0; i < DISK_CALLS; i++) {
        __atomic_store_n(&disk->shared->code[i], all[i], __ATOMIC_RELEASE);
    }
}

void faulty_disk_hang(struct faulty_disk *disk, const char *folder)
{
    name_files(disk, folder, "");
    __atomic_store_n(&disk->shared->is_hanging, 1, __ATOMIC_RELEASE);
}

void faulty_disk_heal(struct faulty_disk *disk)
{
    for (size_t i = 0; i < DISK_CALLS; i++) {
        __atomic_store_n(&disk->shared->code[i], 0, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&disk->shared->is_hanging, 0, __ATOMIC_RELEASE);
}

uint64_t faulty_disk_hits(const struct faulty_disk *disk, enum disk_call call)
{
    return __atomic_load_n(&disk->shared->hits[call], __ATOMIC_ACQUIRE);
}

/* --- power -------------------------------------------------------------------------------------
 */

static const struct disk_fault *cutting; /* nftw() has no context */
static uint64_t taken;

static uint64_t synced_bytes(uint64_t id)
{
    for (size_t i = 0; i < DISK_FILES_MAX; i++) {
        const struct disk_file *at = &cutting->files[(id + i) % DISK_FILES_MAX];
        if (at->id == id) {
            return at->synced;
        }
        if (at->id == 0) {
            break;
        }
    }
    return 0; /* The shim has never seen it. */
}

static int cut(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)place;
    uint64_t synced = kind == FTW_F ? synced_bytes(disk_file_id(info->st_dev, info->st_ino)) : 0;
    if (kind != FTW_F || (uint64_t)info->st_size <= synced) {
        return 0;
    }
    taken += (uint64_t)info->st_size - synced;
    return truncate(path, (off_t)synced);
}

uint64_t faulty_disk_power_fails(const struct faulty_disk *disk, const char *folder)
{
    cutting = disk->shared;
    taken = 0;
    if (nftw(folder, cut, 16, FTW_PHYS) != 0) {
        fail_msg("%s: %s", folder, strerror(errno));
    }
    return taken;
}
