/* What the parts of a restore share. Thread rule: one thread; restore_copy.c has more of its own.
 */
#ifndef RESTORE_INTERNAL_H
#define RESTORE_INTERNAL_H

#include "restore_switch.h"
#include "transfer.h"

#include "fcap/restore.h"

/* A restore, or a look whether one could be made. */
struct restore {
    const struct fcap_restore_settings *settings;
    struct fcap_objects *objects;
    struct object_list listed;           /* all objects of the instance */
    struct fcap_checkpoint *checkpoints; /* those whose manifest is whole, newest first */
    size_t checkpoint_count;
    struct object_list good; /* read to the end, all as it should be; sorted */
    struct object_list bad;  /* damaged or missing; sorted */
    uint64_t bytes;          /* read, of the candidate in hand */
    uint64_t bytes_all;
    uint64_t not_taken;
    char restoring[4096]; /* where the state is made */
    int lock;             /* of the place; -1: none is held */
    bool is_late;         /* the place is taken only when a checkpoint is about to be restored */
    bool has_unreadable;  /* a manifest of the newest listing is damaged */
    /* True: this checkpoint may be taken; newest first, in order. NULL: each may. */
    bool (*wants)(void *context, const struct fcap_checkpoint *checkpoint);
    /* Asked before the snapshots of a checkpoint are tried: OK gives its state without them,
     * CORRUPT goes on with them. NULL: nobody is. */
    enum fcap_status (*forward)(void *context, struct restore *restore,
                                const struct fcap_checkpoint *log,
                                struct fcap_restore_report *report, struct fcap_error *error);
    /* With `is_late`: the place is needed now, whatever it is open for. */
    void (*release)(void *context);
    void *context; /* of all three */
};

/* Which snapshot with which changelog: both may be of one checkpoint, or the snapshot is of an
 * older one. */
struct candidate {
    const struct fcap_checkpoint *snapshot;
    const struct fcap_checkpoint *log;
    size_t first; /* the first segment that is needed */
};

/* Gets each batch of a segment in order. */
typedef enum fcap_status (*restore_batch)(void *context, const struct fcap_changelog_frame *frame,
                                          struct fcap_error *error);

/* Reads a segment to its end and compares everything. CORRUPT: it is damaged or missing; RETRY
 * class: the objects are away; STOPPED: cancelled; what `batch` gives (NULL: not called). */
enum fcap_status restore_read_segment(struct restore *restore,
                                      const struct fcap_checkpoint_segment *segment,
                                      const struct fcap_lineage *lineage, restore_batch batch,
                                      void *context, struct fcap_error *error);

/* Reads every file of a snapshot to its end and compares everything, with settings->threads
 * threads; writes them into `directory` and makes them durable there, unless that is NULL: then
 * those that are known to be good are left out. What is found out of each is added to `good` and
 * `bad`. The first failure ends it. CORRUPT as above; STOPPED: cancelled; IO and NO_SPACE:
 * `directory` cannot be written. */
enum fcap_status restore_copy_files(struct restore *restore, const struct fcap_checkpoint *snapshot,
                                    const char *directory, struct fcap_error *error);

/* An object's failure: is it damaged (CORRUPT), or is its place away (as it was given)? */
enum fcap_status restore_judge(const char *name, enum fcap_status status, struct fcap_error *error);

/* Tells restore->bytes. */
void restore_tell_progress(struct restore *restore);
/* True: `error` says so. */
bool restore_is_cancelled(const struct restore *restore, struct fcap_error *error);

/* Restores, or verifies: all of fcap_restore() but its lists, which the caller frees with
 * restore_done(). */
enum fcap_status restore_run(struct restore *restore, struct fcap_restore_report *report,
                             struct fcap_error *error);
void restore_done(struct restore *restore);

/* Brings the open state of the place, which stands at `from` in the lineage of `log`, up to the end
 * of `log` by its segments. CORRUPT: they are not all there, or damaged, and the state is as it
 * was. FOREIGN: it turned out not to be of this history, and is of no use any more. *ret_batches:
 * how many were applied. */
enum fcap_status restore_forward(struct restore *restore, const struct fcap_checkpoint *from,
                                 const struct fcap_checkpoint *log, uint64_t *ret_batches,
                                 struct fcap_error *error);

/* Does the listing have all of an object, as far as is known? CORRUPT: no. */
enum fcap_status restore_look_at(const struct restore *restore, const char *object, uint64_t size,
                                 struct fcap_error *error);

/* Lists and reads the manifests. *ret_newest: the newest one's number, whole or not. */
enum fcap_status restore_list(struct restore *restore, uint64_t *ret_newest,
                              struct fcap_error *error);
void restore_list_done(struct restore *restore);

/* Makes the state of a candidate whose segments are whole: copies its files, opens it, applies its
 * changelog, draws a new lineage, and puts it into its place. CORRUPT: the candidate is damaged. */
enum fcap_status restore_make(struct restore *restore, const struct candidate *candidate,
                              struct fcap_restore_report *report, struct fcap_error *error);

/* The place is absent or empty, or a restore was interrupted there, or what is there is replaced;
 * makes the directory and locks it. LOCKED: somebody is at work there. */
enum fcap_status restore_take_place(struct restore *restore, struct fcap_error *error);
void restore_leave_place(struct restore *restore);
/* Removes what is not whole yet. */
enum fcap_status restore_clear(struct restore *restore, struct fcap_error *error);

#endif
