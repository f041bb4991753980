/* The volume on which checkpoints are kept, and which one it is.
 *
 * It is opened with the first call that needs it, and again until that succeeds: a volume that is
 * away at the start is no reason not to count. The state remembers which one it uses under this
 * path: another one, or none, is away from then on, and never made anew. Thread rule: open,
 * remember and close belong to main; the objects are the port's. */
#ifndef FCAP_DAEMON_CHECKPOINT_VOLUME_H
#define FCAP_DAEMON_CHECKPOINT_VOLUME_H

#include "fcap/config.h"
#include "fcap/objects.h"

struct fcap_checkpoint_volume;

/* Of checkpoint.directory, which is set. Borrows the configuration. */
struct fcap_checkpoint_volume *fcap_checkpoint_volume_open(const struct fcap_config *config);

/* Valid until close. */
struct fcap_objects *fcap_checkpoint_volume_objects(struct fcap_checkpoint_volume *volume);

/* The state has its directory now. */
void fcap_checkpoint_volume_remember(struct fcap_checkpoint_volume *volume);

/* NULL is fine. */
void fcap_checkpoint_volume_close(struct fcap_checkpoint_volume *volume);

#endif
