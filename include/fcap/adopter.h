/* One partition's state from a checkpoint, at its assignment (docs/decisions/0023): looks at what
 * the state here and the newest checkpoints of all instances of the profile hold of it, and puts
 * the freshest that is valid into the state here.
 *
 * What must hold: the partition is all there or counts as empty, whenever anything ends; what is
 * damaged or missing costs time alone; a worker never waits for it. A thread of its own; without
 * fcap_adopter_start() there is none, and fcap_adopter_step() does what is due: tests own the time
 * then.
 *
 * Thread rule: open, start, step, stop and close belong to one thread; the rest to any. */
#ifndef FCAP_ADOPTER_H
#define FCAP_ADOPTER_H

#include "fcap/checkpoint_state.h"
#include "fcap/checkpointer.h"
#include "fcap/objects.h"
#include "fcap/ports.h"

/* A checkpoint as a partition's source: the snapshot may be of an older one than the changelog. */
struct fcap_adopt_candidate {
    const struct fcap_checkpoint *snapshot;
    const struct fcap_checkpoint *log;
    size_t first;                               /* the first segment that is needed */
    struct fcap_checkpoint_partition partition; /* as it is at the end of `log` */
};

struct fcap_adopt_taken {
    uint64_t users;
    uint64_t chunks;
    uint64_t bytes;   /* keys and values */
    uint64_t batches; /* of the changelog */
};

/* --- where it comes from and goes to ---------------------------------------------------------- */

/* What is to be done with a candidate. */
struct fcap_adopt_order {
    struct fcap_store_claimed claimed; /* all but `follow` */
    bool keeps; /* what is here is worth something: all that can be read is read before it goes */
    void (*changes)(void *context); /* called right before it does, with the claim's context */
};

struct fcap_adopt_state;
struct fcap_adopt_state_ops {
    /* What the state here holds of a partition. */
    enum fcap_status (*look)(struct fcap_adopt_state *state, int32_t partition,
                             struct fcap_store_partition *ret_here, struct fcap_error *error);
    /* Puts the candidate's partition in place of what is here. CORRUPT: a piece is damaged or
     * missing; REFUSED: it holds no state that could go on; STOPPED, FENCED: go_on() said no, or
     * the claim has ended; what objects and store say otherwise. */
    enum fcap_status (*take)(struct fcap_adopt_state *state,
                             const struct fcap_adopt_candidate *candidate,
                             const struct fcap_adopt_order *order,
                             struct fcap_adopt_taken *ret_taken, struct fcap_error *error);
    /* What take() keeps open for the next partition goes. */
    void (*rest)(struct fcap_adopt_state *state);
};
struct fcap_adopt_state {
    const struct fcap_adopt_state_ops *ops;
};

/* RocksDB's: opens snapshots read-only in "<directory of the state>/.adopting". Borrows all; the
 * settings are those with which `db` was opened. */
struct fcap_adopt_state *fcap_adopt_rocksdb_open(struct fcap_store_rocksdb *db,
                                                 const struct fcap_store_settings *settings,
                                                 struct fcap_objects *objects);
void fcap_adopt_rocksdb_close(struct fcap_adopt_state *state);

/* --- the adopter ------------------------------------------------------------------------------ */

/* A checkpoint must be ahead of the state here by more than
 *   FCAP_ADOPT_RECORDS + (bytes of its snapshot / its partitions) / FCAP_ADOPT_RECORD_BYTES
 * records, for reading those from Kafka is quicker than fetching the partition; or by any, when its
 * clock is ahead by FCAP_ADOPT_AGE_MS: then Kafka may have lost what lies between. */
#define FCAP_ADOPT_RECORDS      10000
#define FCAP_ADOPT_RECORD_BYTES 1024
#define FCAP_ADOPT_AGE_MS       600000

/* How long a partition waits for an adopter that does nothing: while the state here is untouched,
 * and once it is gone. And for a place that is away, when there is no state here. */
#define FCAP_ADOPT_PATIENCE_MS      60000
#define FCAP_ADOPT_LONG_PATIENCE_MS 600000
#define FCAP_ADOPT_AWAY_MS          60000

struct fcap_adopter_settings {
    const char *profile; /* borrowed until close */
    struct fcap_clock *clock;
    /* When the state here was restored by command, wall clock: what was kept up to then does not
     * win over it. 0: it was not. */
    int64_t chosen_ms;
    /* One line for each partition, and one for each checkpoint that is not taken. Any thread. */
    void (*tell)(void *context, enum fcap_checkpointer_level level, const char *text);
    void *tell_context;
};

/* clang-format off */
#define FCAP_ADOPTER_METRIC_LIST(X)                                                              \
    X(from_checkpoint, "partitions whose state came from a checkpoint")                          \
    X(from_here,       "partitions that went on with the state that was here")                   \
    X(from_kafka,      "partitions that had no state anywhere")                                  \
    X(cancelled,       "partitions that left, or were waited for in vain, before it was over")   \
    X(not_taken,       "checkpoints that were damaged, or held no state that could go on")       \
    X(waiting,         "partitions that wait for their state now")                               \
    X(duration_ms,     "how long the newest one that came from a checkpoint took, milliseconds") \
    X(bytes_total,     "bytes of partitions that came from checkpoints")
/* clang-format on */

struct fcap_adopter_metrics {
#define X(name, text) uint64_t name;
    FCAP_ADOPTER_METRIC_LIST(X)
#undef X
};

struct fcap_adopter;

/* Borrows state and objects. */
struct fcap_adopter *fcap_adopter_open(const struct fcap_adopter_settings *settings,
                                       struct fcap_adopt_state *state,
                                       struct fcap_objects *objects);

/* Starts the thread. NO_MEMORY: there is none. */
FCAP_MUST_USE enum fcap_status fcap_adopter_start(struct fcap_adopter *adopter);

/* Without a thread: does one partition, if one waits; false: none does now. */
bool fcap_adopter_step(struct fcap_adopter *adopter);

/* Cancels everything and ends the thread. TIMEOUT: it hangs in a call for longer than
 * `deadline_ms` from now; then close() must not be called, nor anything that it borrows closed. */
FCAP_MUST_USE enum fcap_status fcap_adopter_stop(struct fcap_adopter *adopter, int64_t deadline_ms);

/* After stop(). Every adoption was given back. NULL is fine. */
void fcap_adopter_close(struct fcap_adopter *adopter);

void fcap_adopter_metrics(struct fcap_adopter *adopter, struct fcap_adopter_metrics *ret_metrics);

/* One partition on its way. */
struct fcap_adoption;

/* Asks for a partition that the caller has claimed in the state under `claimed->assignment`;
 * its callbacks are not used. Give it to fcap_adoption_end(). */
struct fcap_adoption *fcap_adopter_ask(struct fcap_adopter *adopter,
                                       const struct fcap_store_claimed *claimed);

/* True when the partition's state can be loaded, after another claim: it is what could be had, or
 * the adopter has been waited for long enough. */
bool fcap_adoption_is_over(struct fcap_adoption *adoption);

/* Gives it back; one that is not over is cancelled. When the caller claims the partition again, or
 * disclaims it, nothing of it is written any more. Does not wait. */
void fcap_adoption_end(struct fcap_adoption *adoption);

/* --- between source and pipeline ---------------------------------------------------------------
 */

/* A source port around another one: holds partitions back while they are adopted. */
struct fcap_adopting;

/* Borrows all; `store` is the pipeline's own handle. Give it to fcap_adopting_close(). */
struct fcap_adopting *fcap_adopting_open(struct fcap_source *inner, struct fcap_store *store,
                                         struct fcap_adopter *adopter);
struct fcap_source *fcap_adopting_port(struct fcap_adopting *adopting);
/* The handler for closing the inner source, in front of `handler`, which must outlive that. */
const struct fcap_source_handler *fcap_adopting_handler(struct fcap_adopting *adopting,
                                                        const struct fcap_source_handler *handler);
/* Partitions that are held back. */
size_t fcap_adopting_count(const struct fcap_adopting *adopting);
/* Without any partition left. NULL is fine. */
void fcap_adopting_close(struct fcap_adopting *adopting);

#endif
