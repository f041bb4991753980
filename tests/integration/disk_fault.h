/* What a test and the shim in the daemon (disk_fault_shim.c) share: a file of this layout, mapped
 * by both. Thread rule: every member is read and written as a whole, with the GCC atomics. */
#ifndef FCAP_TESTS_DISK_FAULT_H
#define FCAP_TESTS_DISK_FAULT_H

#include <stdint.h>

/* The kinds of calls that can be made to fail. */
enum disk_call {
    DISK_WRITE, /* write, pwrite, ftruncate, fallocate */
    DISK_SYNC,  /* fsync, fdatasync */
    DISK_READ,  /* pread: RocksDB's tables */
    DISK_MAKE,  /* open with O_CREAT, mkdir, rename, link, unlink */
    DISK_CALLS
};

enum { DISK_PATH_BYTES = 256, DISK_FILES_MAX = 16384 };

/* How much of a file a power failure leaves. */
struct disk_file {
    uint64_t id;     /* device and inode; 0: nothing here */
    uint64_t synced; /* bytes from the start that a sync has covered */
};

struct disk_fault {
    char below[DISK_PATH_BYTES]; /* calls on files in this folder; set while nothing else is */
    char ending[16];             /* of their names; "": all */
    int32_t code[DISK_CALLS];    /* errno that the calls give; 0: they work */
    uint32_t is_hanging;         /* 1: the calls of every kind wait, reads of DISK_READ too */
    uint64_t hits[DISK_CALLS];   /* calls that failed or waited */
    struct disk_file files[DISK_FILES_MAX];
};

static inline uint64_t disk_file_id(uint64_t device, uint64_t inode)
{
    return device << 44 ^ inode;
}

#endif
