/* What a store's follower is told, kept; what a state must hold after so many batches, by code of
 * its own; and writers that make random batches all the time.
 *
 * Thread rule: frames may be added by the store's writer while others read; the rest is the
 * test's. */
#ifndef STORE_ROCKSDB_FRAMES_H
#define STORE_ROCKSDB_FRAMES_H

#include "fcap/store_rocksdb.h"
#include "lib/fake_map.h"

#include <pthread.h>
#include <stdatomic.h>

/* Batches in the order in which they were told: the kept sections alone. */
struct frames {
    pthread_mutex_t lock;
    struct fcap_batch *batches;
    size_t count;
    size_t capacity;
    uint64_t first;     /* the number of batches[0] */
    size_t misnumbered; /* told with another number than the next */
};

/* `first`: the number that the first batch must have. */
void frames_init(struct frames *frames, uint64_t first);
void frames_done(struct frames *frames);
void frames_follow(struct frames *frames, struct fcap_store_rocksdb *db);
/* A view of the batch of this number, valid until frames_done(); false when it has not been told.
 * Fails the test when one was told with a wrong number. */
bool frames_get(struct frames *frames, uint64_t sequence, struct fcap_batch *ret_view);

/* A state as plain maps. */
struct model {
    struct fake_map families[FCAP_FAMILY_COUNT];
    uint64_t sequence;
};

void model_done(struct model *model);
/* Plays frames up to this number. */
void model_play(struct model *model, struct frames *frames, uint64_t sequence);
/* Fails the test unless the store holds the same, byte for byte, but for the store's own keys and
 * timers of buckets below what it says it has dropped. Gives how many pairs were compared. */
size_t model_compare(const struct model *model, struct fcap_store *store);

/* Commits random batches to its partitions without a pause. */
struct frame_writer {
    struct fcap_store *store;
    int32_t partition; /* this and the next one; that after them is claimed by nobody */
    uint64_t seed;
    size_t users; /* and as many ads; keys come again and again */
    size_t value_bytes;
    atomic_bool stops;
    atomic_bool *is_copying; /* commits are measured apart meanwhile */
    atomic_uint_fast64_t commits;
    atomic_int failure; /* the status of a commit that failed */
    uint64_t bucket_ms; /* of the newest timers */
    uint64_t us_max[2]; /* the slowest commit without, and with a copy under way */
    uint64_t us_sum[2];
    uint64_t counts[2];
    bool runs;
    pthread_t thread;
};

/* Claims its partitions and starts. */
void frame_writer_start(struct frame_writer *writer);
/* Ends it, when it runs. */
void frame_writer_stop(struct frame_writer *writer);
/* Fills one random batch; `number` makes it another one each time. */
void frame_writer_fill(struct frame_writer *writer, struct fcap_batch *batch, uint64_t number);

#endif
