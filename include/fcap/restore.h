/* Makes a state from the objects of its checkpoints, or from a savepoint; or only looks whether one
 * could be made.
 *
 * What must hold: the state that is made is exactly that at the end of a complete checkpoint, every
 * byte of which was checked; its place holds all of it or nothing, whenever the process ends. The
 * newest checkpoint that is whole wins: when something of it is damaged or missing, an older
 * snapshot with a longer changelog is taken, then older checkpoints, and why is told. Thread rule:
 * one thread, on which all is told and asked; those that it starts have ended when it returns. */
#ifndef FCAP_RESTORE_H
#define FCAP_RESTORE_H

#include "fcap/checkpoint_state.h"
#include "fcap/objects.h"
#include "fcap/ports.h"

/* Gets one checkpoint that is kept, newest first; false: stop. Valid during the call. */
typedef bool (*fcap_restore_visitor)(void *context, const struct fcap_checkpoint *checkpoint);

/* Visits the checkpoints of an instance without looking at their files and segments. Manifests that
 * cannot be read are left out. */
FCAP_MUST_USE enum fcap_status fcap_restore_list(struct fcap_objects *objects, const char *profile,
                                                 const char *instance, fcap_restore_visitor visitor,
                                                 void *context, struct fcap_error *error);

/* True when a state could be restored there: it is absent or empty, or a restore ended there before
 * it was done. */
bool fcap_restore_is_free(const char *directory);

struct fcap_restore_settings {
    const char *profile; /* whose checkpoints; borrowed during the call, as all of it */
    const char *instance;
    const char *directory; /* where the state is to be: absent, or empty. NULL: only verify */
    struct fcap_checkpoint_place *place; /* NULL: only verify */
    /* A state that lies there stays until the new one is whole and in its place; nobody has it open
     * and nobody may open it. */
    bool replaces;
    /* Somebody wants this state, whatever checkpoints there are: starts keep it until one of its
     * own lineage is kept (fcap/choose.h). */
    bool is_chosen;
    /* A file of the state was found damaged: a kept one that is the same byte for byte was damaged
     * when it was sent. Size 0: there is none. */
    uint64_t damaged_size;
    uint64_t damaged_hash;
    /* Why something newer was not taken; one line. NULL: nobody is told. */
    void (*tell)(void *context, const char *text);
    /* Bytes that were read, of those that the checkpoint in hand has. It starts again with the next
     * one. NULL: nobody is told. */
    void (*progress)(void *context, uint64_t bytes, uint64_t bytes_all);
    /* True: give up now; the call ends with STOPPED, and its place is free. NULL: never. */
    bool (*is_cancelled)(void *context);
    void *context;
    size_t threads; /* that read files of a snapshot at a time, each with FCAP_CHECKPOINT_PIECE
                       bytes of its own; 0 and 1: none beside the calling one */
    uint64_t rate_limit_bytes_per_second; /* of all of them together; 0: none */
    struct fcap_clock *clock;             /* for the limit; NULL: there is none */
};

struct fcap_restore_report {
    uint64_t number;            /* the checkpoint whose state it is */
    uint64_t sequence;          /* its newest batch */
    uint64_t snapshot_sequence; /* of the snapshot that was taken */
    int64_t written_ms;         /* wall clock, when that batch was written */
    uint64_t files;
    uint64_t file_bytes;
    uint64_t segments;
    uint64_t segment_bytes;
    uint64_t batches;       /* from the changelog */
    uint64_t not_taken;     /* newer possibilities that were damaged */
    size_t partition_count; /* in the state */
};

/* Restores, or verifies: reads every byte as a restore would, and writes nothing. REFUSED: there is
 * no checkpoint, or none is whole; CONFIG: the place is not empty, with the cure; STOPPED:
 * cancelled; what place and objects say otherwise. */
FCAP_MUST_USE enum fcap_status fcap_restore(const struct fcap_restore_settings *settings,
                                            struct fcap_objects *objects,
                                            struct fcap_restore_report *ret_report,
                                            struct fcap_error *error);

#endif
