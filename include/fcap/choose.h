/* Where a start takes its state from: that in its directory, a checkpoint, or Kafka, whichever is
 * freshest and valid (docs/decisions/0022).
 *
 * What must hold: a state that is valid is given up only for a checkpoint that is whole and
 * fresher; one that is damaged never ends the start when there is another; whenever the process
 * ends, the next start finds the one or the other, or goes on. No batch number is given twice: a
 * state that may have given numbers which it does not know becomes a lineage of its own. Thread
 * rule: one thread. */
#ifndef FCAP_CHOOSE_H
#define FCAP_CHOOSE_H

#include "fcap/ports.h"
#include "fcap/restore.h"

enum fcap_state_source {
    FCAP_STATE_LOCAL,      /* what lay there, as it was left */
    FCAP_STATE_FORWARD,    /* what lay there, brought forward by a changelog */
    FCAP_STATE_CHECKPOINT, /* restored */
    FCAP_STATE_KAFKA,      /* there is none */
    FCAP_STATE_SOURCES
};

/* "local", ... */
const char *fcap_state_source_name(enum fcap_state_source source);

struct fcap_choose_settings {
    /* Whose checkpoints, the directory of the state, the place, and whom to tell; borrowed during
     * the call. What belongs to a replacement is set by the call. */
    struct fcap_restore_settings restore;
    struct fcap_clock *clock;
};

struct fcap_choice {
    enum fcap_state_source source;
    bool is_open;           /* the place is open: it is the state */
    bool distrusts;         /* nothing is to be taken from checkpoints: they may hold its damage */
    struct fcap_error text; /* what was chosen, and why, with the numbers of both sides */
    struct fcap_restore_report restored; /* of a checkpoint */
};

/* Chooses, and makes it the state in the directory. UNAVAILABLE and other failures of the objects
 * are failures only when there is no valid state. LOCKED: another process has it. What place and
 * file system say: a state that cannot be opened for another reason than damage is left as it is.
 * CORRUPT: it was found damaged again and again. On failure the place is closed. */
FCAP_MUST_USE enum fcap_status fcap_choose(const struct fcap_choose_settings *settings,
                                           struct fcap_objects *objects,
                                           struct fcap_choice *ret_choice,
                                           struct fcap_error *error);

/* Without checkpoints: goes on with what an earlier start had begun; CORRUPT: the state was found
 * damaged, with the cure. */
FCAP_MUST_USE enum fcap_status fcap_choose_alone(const char *directory, struct fcap_error *error);

/* How two states compare: what each would still have to read of Kafka to be where the other is. */
struct fcap_choose_sides {
    bool is_same_lineage; /* then their batches are compared, and the rest means nothing */
    uint64_t local_lacks; /* records, over the partitions that both have */
    uint64_t checkpoint_lacks;
    size_t local_alone; /* partitions that only this one has */
    size_t checkpoint_alone;
};

/* True: the checkpoint is the fresher one. Of one lineage, the later batch is. Else the one that
 * lacks fewer records; if both lack as many, the one that has more partitions which the other has
 * not; else the local one. Of `local` only lineage, sequence and partitions are looked at. */
bool fcap_choose_is_fresher(const struct fcap_checkpoint *checkpoint,
                            const struct fcap_checkpoint *local,
                            struct fcap_choose_sides *ret_sides);

#endif
