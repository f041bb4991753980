/* A savepoint: a complete copy of the state in a place of its own, which nothing else needs and
 * nothing removes; read back before it is told to be there. fcap_restore() takes it as it takes
 * checkpoints.
 *
 * It shares nothing with the checkpointer but that the store takes one snapshot at a time. Thread
 * rule: one savepoint at a time, on any thread. */
#ifndef FCAP_SAVEPOINT_H
#define FCAP_SAVEPOINT_H

#include "fcap/checkpoint_state.h"
#include "fcap/objects.h"
#include "fcap/ports.h"

struct fcap_savepoint_settings {
    const char *profile; /* borrowed during the call, as all of it */
    const char *instance;
    uint64_t rate_limit_bytes_per_second; /* 0: none */
    struct fcap_clock *clock;
    /* Bytes that were sent or read back, of those that will be. NULL: nobody is told. */
    void (*progress)(void *context, uint64_t bytes, uint64_t bytes_all);
    /* True: give up now; the call ends with STOPPED. NULL: never. */
    bool (*is_cancelled)(void *context);
    void *context;
};

struct fcap_savepoint_report {
    uint64_t sequence; /* the newest batch in it */
    uint64_t files;
    uint64_t bytes;
    size_t partition_count;
};

/* Takes one. `objects` must be empty (REFUSED otherwise, with the cure). After a failure its place
 * may hold a part, which no restore takes and the caller removes. */
FCAP_MUST_USE enum fcap_status fcap_savepoint_take(const struct fcap_savepoint_settings *settings,
                                                   struct fcap_objects *objects,
                                                   struct fcap_checkpoint_state *state,
                                                   struct fcap_savepoint_report *ret_report,
                                                   struct fcap_error *error);

#endif
