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
    /* The state is used from a call with true, where false gives up as above, to one with false;
     * before and after that only the place is. NULL: nobody wants to know. */
    bool (*hold)(void *context, bool is_held);
    void *context;
};

struct fcap_savepoint_report {
    uint64_t sequence; /* the newest batch in it */
    uint64_t files;
    uint64_t bytes;
    size_t partition_count;
};

/* Whether a directory may be the place of a savepoint: CONFIG when it lies within a state, within
 * another place of objects, or is that of the checkpoints (`checkpoints`; NULL: there is none),
 * where it would disturb or be removed. What cannot be looked at is left to who opens it. */
FCAP_MUST_USE enum fcap_status fcap_savepoint_check_place(const char *directory,
                                                          const char *checkpoints,
                                                          struct fcap_error *error);

/* Whether the directory is a place of objects already. */
bool fcap_savepoint_place_is_made(const char *directory);

/* After a failure in a place that was made for this: a directory that holds nothing is none any
 * more, so that another one may be made below it. */
void fcap_savepoint_unmake_place(const char *directory, const char *profile, const char *instance);

/* Takes one. `objects` must be empty (CONFIG otherwise, with the cure). After a failure it is empty
 * again; when the process ends, or the place is away, a part may stay, which no restore takes. */
FCAP_MUST_USE enum fcap_status fcap_savepoint_take(const struct fcap_savepoint_settings *settings,
                                                   struct fcap_objects *objects,
                                                   struct fcap_checkpoint_state *state,
                                                   struct fcap_savepoint_report *ret_report,
                                                   struct fcap_error *error);

#endif
