/* One commit: an immutable list of changes for all tasks of a worker, made by the core, written by
 * the store in one atomic unit.
 *
 * Filled by the core's commit code, then sealed; after that nobody changes it. It is divided into
 * sections, one a task; a store skips the sections whose assignment number is no longer current.
 * Thread rule: owned by one thread at a time; sealed, it may be read by the store's writer. */
#ifndef FCAP_BATCH_H
#define FCAP_BATCH_H

#include "fcap/bytes.h"
#include "fcap/status.h"

/* The column families (docs/DATA.md). */
enum fcap_family {
    FCAP_FAMILY_META,   /* "default" in RocksDB */
    FCAP_FAMILY_USERS,  /* partition be16 . user */
    FCAP_FAMILY_TIMERS, /* bucket be64 . partition be16 . commit be64 . part be16 */
    FCAP_FAMILY_ADS,    /* partition be16 . ad number be32 */
    FCAP_FAMILY_COUNT
};

/* The family's name in RocksDB: "default", "users", "timers", "ads". */
const char *fcap_family_name(enum fcap_family family);

enum fcap_change {
    FCAP_CHANGE_PUT,
    FCAP_CHANGE_DELETE,
    FCAP_CHANGE_DELETE_RANGE, /* key .. value (exclusive) */
};

struct fcap_batch_entry {
    enum fcap_family family;
    enum fcap_change change;
    size_t key_offset; /* into the batch's bytes */
    size_t key_size;
    size_t value_offset;
    size_t value_size;
};

struct fcap_batch_section {
    int32_t partition;
    uint64_t assignment; /* the assignment number under which it was made */
    uint64_t commit;     /* the partition's commit number */
    size_t first;        /* index of its first entry */
    size_t count;        /* its entries: META, USERS, TIMERS, ADS, each in key order; a redo record
                            (META) stands behind the TIMERS that it names */
};

struct fcap_batch {
    struct fcap_buffer bytes;
    struct fcap_batch_entry *entries;
    size_t entry_count;
    size_t entry_capacity;
    struct fcap_batch_section *sections;
    size_t section_count;
    size_t section_capacity;
};

/* Frees and zeroes. Zero-initialised is an empty batch. */
void fcap_batch_done(struct fcap_batch *batch);

/* Empty again; the memory stays. */
void fcap_batch_clear(struct fcap_batch *batch);

/* Opens a section; entries added from now on belong to it. */
void fcap_batch_section(struct fcap_batch *batch, int32_t partition, uint64_t assignment,
                        uint64_t commit);

/* Adds a change to the open section; copies the bytes. For DELETE the value is ignored. */
void fcap_batch_add(struct fcap_batch *batch, enum fcap_family family, enum fcap_change change,
                    struct fcap_bytes key, struct fcap_bytes value);

/* Views of an entry's bytes; valid until the batch changes. */
struct fcap_bytes fcap_batch_key(const struct fcap_batch *batch, size_t index);
struct fcap_bytes fcap_batch_value(const struct fcap_batch *batch, size_t index);

#endif
