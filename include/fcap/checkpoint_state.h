/* The state as checkpoints see it: what a snapshot and a changelog are taken from, and the place
 * where a restore makes one. RocksDB in production (src/checkpoint/state_rocksdb.c), a map in
 * tests.
 *
 * Thread rule: any thread, but for what is said below. */
#ifndef FCAP_CHECKPOINT_STATE_H
#define FCAP_CHECKPOINT_STATE_H

#include "fcap/checkpoint.h"
#include "fcap/store_rocksdb.h"

#include <pthread.h>

/* Gets how far one partition is. Valid during the call. */
typedef void (*fcap_checkpoint_partition_visitor)(
    void *context, const struct fcap_checkpoint_partition *partition);

struct fcap_checkpoint_state;
struct fcap_checkpoint_state_ops {
    /* As fcap_store_rocksdb_position(). */
    void (*position)(struct fcap_checkpoint_state *state, struct fcap_store_position *ret_position);
    /* As fcap_store_rocksdb_origin(). */
    bool (*origin)(struct fcap_checkpoint_state *state, struct fcap_store_position *ret_origin);
    /* As fcap_store_rocksdb_fork(); before the first batch is submitted. */
    enum fcap_status (*fork)(struct fcap_checkpoint_state *state, struct fcap_error *error);
    /* As fcap_store_rocksdb_follow(): before the first batch, or after the last one. */
    void (*follow)(struct fcap_checkpoint_state *state, const struct fcap_store_follower *follower);
    /* Every partition that the state holds; before the first batch is submitted. */
    enum fcap_status (*partitions)(struct fcap_checkpoint_state *state,
                                   fcap_checkpoint_partition_visitor visitor, void *context,
                                   struct fcap_error *error);
    /* Every partition that a snapshot holds, which is only read. */
    enum fcap_status (*partitions_of)(struct fcap_checkpoint_state *state, const char *directory,
                                      fcap_checkpoint_partition_visitor visitor, void *context,
                                      struct fcap_error *error);
    /* As fcap_store_rocksdb_snapshot(). Called by fcap_checkpoint_state_snapshot() alone. */
    enum fcap_status (*snapshot)(struct fcap_checkpoint_state *state, const char *directory,
                                 uint64_t *ret_sequence, struct fcap_error *error);
};
struct fcap_checkpoint_state {
    const struct fcap_checkpoint_state_ops *ops;
    const char *directory; /* of the state; snapshots are made within it. Borrowed */
    pthread_mutex_t lock;  /* the store makes one snapshot at a time */
};

/* Fills the part of every state. done() undoes it. */
void fcap_checkpoint_state_init(struct fcap_checkpoint_state *state,
                                const struct fcap_checkpoint_state_ops *ops, const char *directory);
void fcap_checkpoint_state_done(struct fcap_checkpoint_state *state);

/* Takes a snapshot in "<directory of the state>/.<name>", after what a crash left there is removed;
 * waits while somebody else takes one. `ret_directory` gets the place, which the caller removes
 * (fcap_checkpoint_remove_directory). A `name` belongs to one caller at a time. */
FCAP_MUST_USE enum fcap_status fcap_checkpoint_state_snapshot(struct fcap_checkpoint_state *state,
                                                              const char *name,
                                                              char ret_directory[4096],
                                                              uint64_t *ret_sequence,
                                                              struct fcap_error *error);

/* "<directory>/.<name>": a place within it that is no part of the state, in its file system.
 * CONFIG: too long. */
FCAP_MUST_USE enum fcap_status fcap_checkpoint_within(const char *directory, const char *name,
                                                      char ret_directory[4096],
                                                      struct fcap_error *error);

/* Removes a directory of files and itself; OK when there is none. */
FCAP_MUST_USE enum fcap_status fcap_checkpoint_remove_directory(const char *directory,
                                                                struct fcap_error *error);

/* RocksDB's. Borrows both; the settings are those with which it was opened, for writing: snapshots
 * that are there are what a killed process has left, and go. */
struct fcap_checkpoint_state_rocksdb {
    struct fcap_checkpoint_state state; /* first */
    struct fcap_store_rocksdb *db;
    const struct fcap_store_settings *settings;
};
void fcap_checkpoint_state_rocksdb_init(struct fcap_checkpoint_state_rocksdb *state,
                                        struct fcap_store_rocksdb *db,
                                        const struct fcap_store_settings *settings);

/* --- where a restore makes a state; one thread ------------------------------------------------ */

struct fcap_checkpoint_place;
struct fcap_checkpoint_place_ops {
    /* Opens the database that lies in `directory`. */
    enum fcap_status (*open)(struct fcap_checkpoint_place *place, const char *directory,
                             struct fcap_error *error);
    void (*position)(struct fcap_checkpoint_place *place, struct fcap_store_position *ret_position);
    /* Every partition that the state holds. */
    enum fcap_status (*partitions)(struct fcap_checkpoint_place *place,
                                   fcap_checkpoint_partition_visitor visitor, void *context,
                                   struct fcap_error *error);
    /* As fcap_store_rocksdb_apply() and fcap_store_rocksdb_fork(). */
    enum fcap_status (*apply)(struct fcap_checkpoint_place *place, uint64_t sequence,
                              const struct fcap_batch *batch, struct fcap_error *error);
    enum fcap_status (*fork)(struct fcap_checkpoint_place *place, struct fcap_error *error);
    /* Fine when it is not open. */
    void (*close)(struct fcap_checkpoint_place *place);
};
struct fcap_checkpoint_place {
    const struct fcap_checkpoint_place_ops *ops;
};

/* RocksDB's. Borrows the settings, whose directory means nothing. */
struct fcap_checkpoint_place_rocksdb {
    struct fcap_checkpoint_place place; /* first */
    const struct fcap_store_settings *settings;
    struct fcap_store_rocksdb *db;
};
void fcap_checkpoint_place_rocksdb_init(struct fcap_checkpoint_place_rocksdb *place,
                                        const struct fcap_store_settings *settings);

#endif
