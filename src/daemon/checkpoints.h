/* The daemon's checkpoints, when checkpoint.directory is set: where a start takes its state from,
 * and what keeps it outside the machine from then on.
 *
 * Thread rule: main only, but for what the checkpointer's own header says. */
#ifndef FCAP_DAEMON_CHECKPOINTS_H
#define FCAP_DAEMON_CHECKPOINTS_H

#include "fcap/checkpointer.h"
#include "fcap/config.h"

struct fcap_checkpoints;

/* Before the state is opened: makes one from the newest checkpoint that is whole when there is none
 * in its place; one log line says what the state comes from. NULL when checkpoint.directory is not
 * set. A volume that is away is an error only when there is no state here: what Kafka holds may be
 * less. Borrows all of it. */
enum fcap_status fcap_checkpoints_open(const struct fcap_config *config,
                                       const struct fcap_store_settings *store,
                                       struct fcap_checkpoints **ret_checkpoints,
                                       struct fcap_error *error) FCAP_MUST_USE;

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
