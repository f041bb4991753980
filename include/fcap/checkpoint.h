/* A checkpoint's manifest: which objects make up a state, to which batch, and how fresh each
 * partition is in it (docs/DATA.md, "Checkpoints"; docs/decisions/0021).
 *
 * A checkpoint is a snapshot (the files of a RocksDB database that hold every batch up to
 * `snapshot_sequence`) and the changelog's segments that follow on it without a hole up to
 * `sequence`. The manifest is an object of its own, written last: who reads one finds all of its
 * objects, unless they were damaged or lost since. Thread rule: plain data. */
#ifndef FCAP_CHECKPOINT_H
#define FCAP_CHECKPOINT_H

#include "fcap/changelog.h"
#include "fcap/objects.h"

/* One file of the snapshot. */
struct fcap_checkpoint_file {
    char name[64];                         /* in the database's directory: "000123.sst"; the bytes
                                              of an object's name, and no '/' */
    char object[FCAP_OBJECT_NAME_MAX + 1]; /* where its bytes are kept */
    uint64_t size;
    uint64_t hash; /* fcap_checkpoint_hash() over all of it */
};

/* One segment of the changelog. */
struct fcap_checkpoint_segment {
    char object[FCAP_OBJECT_NAME_MAX + 1];
    uint64_t first; /* sequence numbers of its frames */
    uint64_t last;
    uint64_t size;
    uint64_t hash;
};

/* How far a partition is at the checkpoint's end. */
struct fcap_checkpoint_partition {
    int32_t partition;
    uint64_t commit;
    int64_t next_offset;
    int64_t clock_ms; /* T */
};

/* Of a profile and of an instance: what the configuration allows, [A-Za-z0-9._-] and not empty. */
#define FCAP_CHECKPOINT_NAME_MAX 64

/* A zero-initialised one is empty; the arrays are owned. */
struct fcap_checkpoint {
    uint64_t number; /* 1, 2, ... of this instance */
    int64_t made_ms; /* wall clock, Unix epoch */
    char profile[FCAP_CHECKPOINT_NAME_MAX + 1];
    char instance[FCAP_CHECKPOINT_NAME_MAX + 1];
    struct fcap_lineage lineage;
    uint64_t snapshot_sequence;
    int64_t snapshot_ms; /* when the snapshot was taken */
    uint64_t sequence;   /* of the newest batch in it; >= snapshot_sequence */
    int64_t written_ms;  /* when the store wrote that batch */
    struct fcap_checkpoint_file *files;
    size_t file_count;
    struct fcap_checkpoint_segment *segments; /* by number, without a hole */
    size_t segment_count;
    struct fcap_checkpoint_partition *partitions; /* by number */
    size_t partition_count;
};

/* Frees and zeroes. */
void fcap_checkpoint_done(struct fcap_checkpoint *checkpoint);

/* Each appends one (copied). */
void fcap_checkpoint_add_file(struct fcap_checkpoint *checkpoint,
                              const struct fcap_checkpoint_file *file);
void fcap_checkpoint_add_segment(struct fcap_checkpoint *checkpoint,
                                 const struct fcap_checkpoint_segment *segment);
/* Replaces the entry of the same partition. */
void fcap_checkpoint_set_partition(struct fcap_checkpoint *checkpoint,
                                   const struct fcap_checkpoint_partition *partition);

/* Does the changelog of `log` go on from the snapshot of `snapshot`, in one lineage and without a
 * hole? *ret_first is the first segment that is needed then. */
bool fcap_checkpoint_continues(const struct fcap_checkpoint *log,
                               const struct fcap_checkpoint *snapshot, size_t *ret_first);

/* Appends the stored form: lines of text, the last of which is the checksum of the others. */
void fcap_checkpoint_encode(const struct fcap_checkpoint *checkpoint, struct fcap_buffer *buffer);

/* FORMAT: of another version; CORRUPT: damaged, or its segments leave a hole. The error names the
 * line. */
enum fcap_status fcap_checkpoint_decode(struct fcap_bytes bytes,
                                        struct fcap_checkpoint *ret_checkpoint,
                                        struct fcap_error *error) FCAP_MUST_USE;

/* Checksum of a stream: XXH64 of each FCAP_CHECKPOINT_PIECE bytes (the last piece may be shorter),
 * seeded with the one before; the first with 0. A zero-initialised one is empty. */
#define FCAP_CHECKPOINT_PIECE ((size_t)1 << 20)
struct fcap_checkpoint_hash {
    uint64_t hash;
    struct fcap_buffer piece;
};
void fcap_checkpoint_hash_add(struct fcap_checkpoint_hash *hash, struct fcap_bytes bytes);
/* The checksum; frees and zeroes. */
uint64_t fcap_checkpoint_hash_end(struct fcap_checkpoint_hash *hash);

/* The names of an instance's objects (docs/DATA.md, "Checkpoints"). Each is written into `name`,
 * which is given back. The prefix is "<profile>/<instance>/" and no other instance's; the others
 * begin with it. `unique` keeps two attempts apart: any number that was not used for this before.
 */
const char *fcap_checkpoint_prefix(const char *profile, const char *instance,
                                   char name[FCAP_OBJECT_NAME_MAX + 1]);
/* Two writers that both believe they are the only one meet here: one number, one name. */
const char *fcap_checkpoint_manifest_name(const char *prefix, uint64_t number,
                                          char name[FCAP_OBJECT_NAME_MAX + 1]);
const char *fcap_checkpoint_segment_name(const char *prefix, uint64_t first,
                                         const struct fcap_lineage *lineage, uint64_t unique,
                                         char name[FCAP_OBJECT_NAME_MAX + 1]);
/* `file`: its name in the database's directory. */
const char *fcap_checkpoint_file_name(const char *prefix, const char *file,
                                      const struct fcap_lineage *lineage, uint64_t unique,
                                      char name[FCAP_OBJECT_NAME_MAX + 1]);

/* True for names that an instance gives, now or in another version of this layout. Whatever else
 * lies below its prefix (a state, a copy, a note) is somebody else's. */
bool fcap_checkpoint_is_own(const char *prefix, const char *name);

/* True when it is a manifest's name, of any instance; the prefix is its first bytes. */
bool fcap_checkpoint_is_manifest(const char *name, size_t *ret_prefix_size, uint64_t *ret_number);

#endif
