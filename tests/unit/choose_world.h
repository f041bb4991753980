/* A start in the world of checkpoints: the state lies on disk, and a choice makes it the world's.
 *
 * Thread rule: as checkpoint_world.h. */
#ifndef FCAP_TESTS_CHOOSE_WORLD_H
#define FCAP_TESTS_CHOOSE_WORLD_H

#include "checkpoint_world.h"

#include "fcap/choose.h"

/* Of the newest choice. */
extern struct fake_place choose_place;
extern struct fcap_choice choose_choice;
extern struct fcap_error choose_error;

/* "<directory of everything>/<name>", "<state>/<name>". */
void choose_path(char path[256], const char *name);
void choose_path_in_state(char path[256], const char *name);
bool choose_exists(const char *name); /* in the state's directory */
void choose_copy_file(const char *from, const char *to);
/* Files of the state that are visible, but for the lock. */
size_t choose_count_files(void);
void choose_unlink(const char *name);

/* The process has ended in good order: the state lies on disk. */
void choose_save(void);
/* What choose_run() has copied is the state again. */
void choose_put_copy_back(void);

/* `minutes` of a batch each, with a checkpointer, and an end in good order; the state as it was
 * after `copied_at` of them is kept (0: not). Gives where it ended. */
struct fcap_store_position choose_run(int minutes, int copied_at);
void choose_write_minutes(int minutes);

/* Only the call. `ops` NULL: those of the fake; `refuse`: what opening a state gives. */
enum fcap_status choose_try(const struct fcap_checkpoint_place_ops *ops, enum fcap_status refuse);
/* Chooses. Fails the test unless it is that, for that reason, nothing is left over, and the state
 * is what the history makes of the batches up to its sequence; then it is the world's. */
void choose_now(enum fcap_state_source source, const char *text);

bool choose_is_lineage_of(const struct fcap_store_position *position);
/* Fails the test unless the state can be kept and restored from here on. */
void choose_goes_on(void);

int choose_teardown(void **unused);

#endif
