/* A disk under the daemon that a test makes fail, from one moment to the next (the shim of
 * disk_fault_shim.c), or takes from what a power failure takes. Thread rule: one thread, one disk.
 */
#ifndef FCAP_TESTS_FAULTY_DISK_H
#define FCAP_TESTS_FAULTY_DISK_H

#include "disk_fault.h"

#include <stdbool.h>

struct faulty_disk {
    struct disk_fault *shared;
    char folder[64];
    char preload[400];
    char variable[128];
    const char *environment[3]; /* for daemon_process_start() */
};

/* Makes a disk that works. `shim`: the path of the library. */
void faulty_disk_open(struct faulty_disk *disk, const char *shim);
void faulty_disk_close(struct faulty_disk *disk);

/* From now on calls fail with these codes (0: they work) on files below `folder` whose names end in
 * `ending` ("": all). Nothing may be failing when another folder or ending is named. */
struct disk_codes {
    int write;
    int sync;
    int read;
    int make;
};
void faulty_disk_fail(struct faulty_disk *disk, const char *folder, const char *ending,
                      struct disk_codes codes);
/* The same, but they do not come back until the disk is well. */
void faulty_disk_hang(struct faulty_disk *disk, const char *folder);
/* Everything works, and what hangs comes back. */
void faulty_disk_heal(struct faulty_disk *disk);
/* How many calls of a kind have met a fault since the open. */
uint64_t faulty_disk_hits(const struct faulty_disk *disk, enum disk_call call);

/* Nobody may use the files below `folder`: takes from each the bytes that no sync has covered.
 * Gives how many those were. */
uint64_t faulty_disk_power_fails(const struct faulty_disk *disk, const char *folder);

#endif
