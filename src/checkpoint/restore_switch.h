/* One state in the place of another, within its directory, whatever ends the process meanwhile.
 *
 * A state is made in .restoring. When it is whole it is called .restored: from then on the next
 * start goes on with the switch instead of beginning anew. What is visible moves into .replaced;
 * then the new one is called .moving and moves up, CURRENT last; then .replaced is removed. A
 * damaged state that nothing replaces moves into .damaged.new and is kept as .damaged. Thread rule:
 * one thread. */
#ifndef RESTORE_SWITCH_H
#define RESTORE_SWITCH_H

#include "fcap/checkpoint_state.h"

#define SWITCH_RESTORING   ".restoring"
#define SWITCH_RESTORED    ".restored"
#define SWITCH_MOVING      ".moving"
#define SWITCH_REPLACED    ".replaced"
#define SWITCH_DAMAGED_NEW ".damaged.new"
#define SWITCH_DAMAGED     ".damaged"

/* Beside a state: somebody wanted it, whatever checkpoints there are. In .restoring it is that of
 * the state that is made. */
#define SWITCH_CHOSEN ".chosen"

/* Whoever has the place of a state locks this file in it, as RocksDB does; it is never moved. */
#define SWITCH_LOCK "LOCK"

/* Locks a directory that is there by RocksDB's own means: neither another restore nor a process
 * that opens a state uses the place meanwhile. LOCKED: somebody does, and who. One lock of a
 * directory at a time in a process, and none while it has the state open itself. */
enum fcap_status switch_lock(const char *directory, int *ret_lock, struct fcap_error *error);
void switch_unlock(int *lock);

/* No part of a state: hidden, the lock, or what a volume's root has. */
bool switch_is_nothing(const char *name);

/* The directory of a state, open; file -1: there is none. */
struct switch_place {
    const char *path;
    int file;
};
enum fcap_status switch_enter(const char *directory, struct switch_place *ret_place,
                              struct fcap_error *error);
void switch_leave(struct switch_place *place);
bool switch_has(const struct switch_place *place, const char *name);
/* Something lies there; its name. */
bool switch_is_visible(const struct switch_place *place, char ret_name[256]);
/* A restore into an empty place was interrupted in its last steps: it may be begun again. */
bool switch_is_given_up(const struct switch_place *place);

/* What follows but switch_finish() is called with the lock held. */

/* What .restoring holds is whole: it becomes the state. */
enum fcap_status switch_commit(const char *directory, struct fcap_error *error);
/* Goes on with what was interrupted; fine when nothing was. Takes the lock if it has to. */
enum fcap_status switch_finish(const char *directory, struct fcap_error *error);
/* Keeps the state as .damaged: then there is none. */
enum fcap_status switch_away(const char *directory, struct fcap_error *error);
/* Removes the state. */
enum fcap_status switch_empty(const char *directory, struct fcap_error *error);
/* The mark of a state that was wanted goes. */
enum fcap_status switch_drop_chosen(const char *directory, struct fcap_error *error);
/* Removes .damaged; *ret_dropped: there was one. */
enum fcap_status switch_drop_kept(const char *directory, bool *ret_dropped,
                                  struct fcap_error *error);
/* Removes what a restore into an empty place has left in its last steps. */
enum fcap_status switch_clear(const char *directory, struct fcap_error *error);

#endif
