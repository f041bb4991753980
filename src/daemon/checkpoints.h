/* The daemon's checkpoints, when checkpoint.directory is set: where a start takes its state from,
 * and what keeps it outside the machine from then on.
 *
 * Thread rule: main only, but for what the checkpointer's own header says. */
#ifndef FCAP_DAEMON_CHECKPOINTS_H
#define FCAP_DAEMON_CHECKPOINTS_H

#include "fcap/checkpointer.h"
#include "fcap/choose.h"
#include "fcap/config.h"

struct fcap_checkpoints;

/* Who looks on while a state is restored, on the thread that restores. */
struct fcap_checkpoints_watch {
    void (*progress)(void *context, uint64_t bytes, uint64_t bytes_all); /* as of a restore */
    bool (*is_cancelled)(void *context);                                 /* the same */
    void *context;
};

/* What a start begins with. */
struct fcap_beginning {
    enum fcap_state_source source;
    bool distrusts; /* checkpoints: they may hold the damage of the state that was here */
    struct fcap_store_rocksdb *db; /* open already; NULL: it is to be opened. The caller's */
};

/* Before the state is opened: takes what lies in its place, a checkpoint, or nothing, whichever is
 * freshest and valid (fcap/choose.h); one log line says what, and why. *ret_checkpoints is NULL
 * when checkpoint.directory is not set. A volume that is away is an error only when there is no
 * valid state here: what Kafka holds may be less. CORRUPT: the state here is damaged, and there is
 * no other. STOPPED: cancelled. Borrows all of it. */
enum fcap_status fcap_checkpoints_open(const struct fcap_config *config,
                                       const struct fcap_store_settings *store,
                                       const struct fcap_checkpoints_watch *watch,
                                       struct fcap_checkpoints **ret_checkpoints,
                                       struct fcap_beginning *ret_beginning,
                                       struct fcap_error *error) FCAP_MUST_USE;

/* The state was found damaged while it was read, as `text` says: the next start must know. */
void fcap_checkpoints_damaged(const struct fcap_config *config, const char *text);

/* With the state open, before workers are. Borrows it. NULL checkpoints are fine. */
enum fcap_status fcap_checkpoints_follow(struct fcap_checkpoints *checkpoints,
                                         struct fcap_checkpoint_state *state,
                                         struct fcap_error *error) FCAP_MUST_USE;

/* NULL: there is none. */
struct fcap_checkpointer *fcap_checkpoints_keeper(struct fcap_checkpoints *checkpoints);

/* Writes a line of the checkpointer or the adopter to the log. */
void fcap_checkpoints_tell(void *context, enum fcap_checkpointer_level level, const char *text);

/* The place where they are kept; opened by the first call that needs it. NULL: there is none. */
struct fcap_objects *fcap_checkpoints_objects(struct fcap_checkpoints *checkpoints);

/* When workers have ended, before the state is closed: a last checkpoint. False: the volume hangs,
 * and threads still run; the process must end by _exit(). A NULL one is fine. */
bool fcap_checkpoints_close(struct fcap_checkpoints *checkpoints, int64_t deadline_ms);

#endif
