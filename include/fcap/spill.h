/* The port to records that wait on disk: many files of byte strings, written once, read in the
 * order of writing, as often as wanted.
 *
 * What must hold: a read gives exactly what was put, or says CORRUPT before it gives a byte of what
 * is damaged. Nothing is left on the disk when the process ends, however it ends. Thread rule: one
 * thread. */
#ifndef FCAP_SPILL_H
#define FCAP_SPILL_H

#include "fcap/bytes.h"
#include "fcap/status.h"

/* Gets one record, valid during the call; returns false to stop after it. The visitor may put
 * records into other files, and calls nothing else of the spill. */
typedef bool (*fcap_spill_visitor)(void *context, struct fcap_bytes record);

struct fcap_spill;
struct fcap_spill_ops {
    /* Makes `count` empty files, numbered from *ret_first on. */
    enum fcap_status (*add)(struct fcap_spill *spill, size_t count, size_t *ret_first);
    /* Appends a record (copied) to a file that is not sealed. NO_SPACE or FATAL: it may be there or
     * not, and nothing more can be put anywhere. */
    enum fcap_status (*put)(struct fcap_spill *spill, size_t file, struct fcap_bytes record);
    /* No more is put into this file: its buffer goes. As put. */
    enum fcap_status (*seal)(struct fcap_spill *spill, size_t file);
    /* Visits the records of a sealed file from *position on, 0 being the first; then *position is
     * behind the last one that was visited, and *ret_end tells that none is left. Positions mean
     * nothing else. CORRUPT: the disk gave other bytes than it was given. */
    enum fcap_status (*read)(struct fcap_spill *spill, size_t file, fcap_spill_visitor visitor,
                             void *context, uint64_t *position, bool *ret_end);
    /* The file is needed no more: its room is used again. */
    void (*drop)(struct fcap_spill *spill, size_t file);
    /* Room taken on the disk: now, bytes. It never shrinks: what is dropped is used again. */
    uint64_t (*disk_bytes)(struct fcap_spill *spill);
};
struct fcap_spill {
    const struct fcap_spill_ops *ops;
};

/* Records on disk in one file without a name in `directory` (which must exist), so that there is
 * nothing to be removed, not even after kill -9. It is cut in blocks of `block_bytes` (512 to
 * 16 MiB); a file that is being written, and one that is being read, hold a block in memory each;
 * 16 bytes of memory for each block on disk carry its checksum. The caller gives it back to
 * fcap_spill_file_close(). NO_SPACE; IO, FATAL: `error` (may be NULL) says what cannot be done. */
enum fcap_status fcap_spill_file_open(const char *directory, size_t block_bytes,
                                      struct fcap_spill **ret_spill,
                                      struct fcap_error *error) FCAP_MUST_USE;

/* Frees it and the room on disk; NULL is fine. */
void fcap_spill_file_close(struct fcap_spill *spill);

/* Why its last call failed: the system's words and what was done. Valid until the next call. */
const char *fcap_spill_file_error(const struct fcap_spill *spill);

#endif
