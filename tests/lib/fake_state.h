/* A state in memory, as checkpoints see one: batches, snapshots in files, a place to restore into.
 *
 * Its snapshots are like RocksDB's: files with numbers that never change, of which each snapshot
 * adds one and now and then a compaction makes one of many; and a description that changes under
 * its name. After a restore the numbers go on from the highest restored one, so that another file
 * may get the name of one that is kept. Thread rule: one thread. */
#ifndef FCAP_TESTS_FAKE_STATE_H
#define FCAP_TESTS_FAKE_STATE_H

#include "fcap/checkpoint_state.h"

#include "lib/fake_map.h"

#define FAKE_STATE_FILES_MAX 256

/* Part of the map: what was written since the file before it. */
struct fake_state_file {
    unsigned number;
    struct fcap_buffer bytes;
};

struct fake_state {
    struct fcap_checkpoint_state state; /* first */
    char directory[256];
    struct fake_map map; /* key: family, key */
    struct fcap_store_position position;
    struct fcap_store_position origin;
    bool has_origin;
    struct fcap_store_follower follower;
    struct fake_state_file files[FAKE_STATE_FILES_MAX];
    size_t file_count;
    unsigned number_next;
    struct fcap_buffer unflushed; /* changes since the newest file */
    uint64_t flushed;             /* sequence number up to which the files hold all */
    size_t compact_at;            /* files; 0: never */
    size_t snapshots;
    size_t snapshot_failures_left;
    int64_t *wall_ms; /* borrowed; of the batches */
    /* Called in the middle of a snapshot: batches are written meanwhile. NULL: not. */
    void (*meanwhile)(void *context);
    void *meanwhile_context;
};

/* An empty state of its own lineage, drawn from `seed`. `directory` is only a name; snapshots are
 * made beside it. */
void fake_state_init(struct fake_state *state, const char *directory, uint64_t seed,
                     int64_t *wall_ms);
/* The state that lies in its directory, after a restore. */
void fake_state_load(struct fake_state *state, const char *directory, int64_t *wall_ms);
/* Writes it into its directory, as a process that ended has left it. */
void fake_state_save(struct fake_state *state);
void fake_state_done(struct fake_state *state);

/* Writes a batch, all of its sections, and tells the follower. */
void fake_state_write(struct fake_state *state, const struct fcap_batch *batch);

/* The same without telling anybody: what a crash makes of the last batches of a state. */
void fake_state_apply(struct fake_state *state, const struct fcap_batch *batch);

/* A crash without a log: what is not in its files is gone. */
void fake_state_lose_unflushed(struct fake_state *state);

/* Where a restore makes a state. */
struct fake_place {
    struct fcap_checkpoint_place place; /* first */
    struct fake_state state;
    bool is_open;
    uint64_t seed; /* of the next lineage */
    size_t applied;
    enum fcap_status refuse; /* what open() gives; OK: it opens */
};
void fake_place_init(struct fake_place *place, uint64_t seed);

#endif
