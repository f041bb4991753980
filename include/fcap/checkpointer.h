/* Keeps an instance's checkpoints up to date (docs/decisions/0021): ships the changelog, takes
 * snapshots, sends their new files, and removes what is needed no more.
 *
 * What must hold: it never holds up a commit and never fails one; a checkpoint that it has told to
 * be complete is exactly the state at one batch; failures of the objects are tried again for ever.
 * Two threads of its own and those that send files; without fcap_checkpointer_start() there are
 * none, and fcap_checkpointer_step() does one step of everything: tests own the time then.
 *
 * Thread rule: open, start, step, stop and close belong to one thread; metrics() to any. */
#ifndef FCAP_CHECKPOINTER_H
#define FCAP_CHECKPOINTER_H

#include "fcap/checkpoint_state.h"
#include "fcap/objects.h"
#include "fcap/ports.h"

enum fcap_checkpointer_level {
    FCAP_CHECKPOINTER_ERROR,
    FCAP_CHECKPOINTER_WARN,
    FCAP_CHECKPOINTER_INFO,
};

struct fcap_checkpointer_settings {
    const char *profile; /* borrowed until close, both */
    const char *instance;
    int64_t interval_ms;                  /* from one checkpoint's start to the next one's */
    int64_t min_pause_ms;                 /* at least this from its end to the next one's start; and
                                           after a snapshot to one that mends a hole */
    int64_t materialization_interval_ms;  /* from one snapshot to the next */
    size_t transfer_threads;              /* send files of a snapshot; at least 1 */
    uint64_t rate_limit_bytes_per_second; /* of all of them together; 0: none */
    size_t retain;                        /* snapshots that are kept; at least 1 */
    size_t queue_bytes_max;          /* of batches that wait; one more than that becomes a hole */
    int64_t scrub_interval_ms;       /* each kept object is read back once in so long; 0: never */
    uint64_t scrub_bytes_per_second; /* so much of them at most; above 0 with an interval */
    struct fcap_clock *clock;
    /* Each change for better or worse, one line. From its own threads. */
    void (*tell)(void *context, enum fcap_checkpointer_level level, const char *text);
    void *tell_context;
};

/* clang-format off */
#define FCAP_CHECKPOINT_METRIC_LIST(X)                                                           \
    X(checkpoints,             "checkpoints completed")                                          \
    X(number,                  "number of the newest complete checkpoint; 0: none yet")          \
    X(duration_ms,             "how long the newest one took to complete, milliseconds")         \
    X(bytes,                   "changelog and manifest bytes written for it")                    \
    X(bytes_total,             "changelog and manifest bytes written")                           \
    X(age_ms,                  "how old the state is that a restore would give, milliseconds; since the start while there is none") \
    X(snapshots,               "snapshots completed")                                            \
    X(snapshot_duration_ms,    "how long the newest one took to complete, milliseconds")         \
    X(snapshot_bytes,          "bytes of files sent for it")                                     \
    X(snapshot_bytes_total,    "bytes of files sent for snapshots")                              \
    X(snapshot_age_ms,         "age of the newest complete snapshot, milliseconds; since the start while there is none") \
    X(snapshot_running,        "1 while a snapshot is taken or sent")                            \
    X(materialization_behind,  "1 while the newest snapshot is older than two intervals")        \
    X(files_sent,              "files of snapshots sent")                                        \
    X(files_kept,              "files of snapshots that were kept already")                      \
    X(segments,                "segments of the changelog that are kept")                        \
    X(changelog_bytes,         "bytes of them")                                                  \
    X(holes,                   "times that batches went past the changelog, so that a snapshot had to mend it") \
    X(queue_bytes,             "bytes of batches that wait to be written to the changelog")      \
    X(failures_unavailable,    "failed tries: the place of the checkpoints was away")            \
    X(failures_no_space,       "failed tries: it was full")                                      \
    X(failures_other,          "failed tries: anything else about it")                           \
    X(failures_snapshot,       "snapshots that the store could not take")                        \
    X(failing,                 "1 while tries fail")                                             \
    X(objects_removed,         "objects removed because no checkpoint needs them")               \
    X(scrub_objects,           "kept objects that were read back and are whole")                 \
    X(scrub_bytes,             "bytes of kept objects that were read back")                      \
    X(scrub_damaged,           "kept objects that were found damaged or missing; a snapshot replaces them") \
    X(stopped,                 "1 when it has given up: another writer, or another version's checkpoints")
/* clang-format on */

struct fcap_checkpoint_metrics {
#define X(name, text) uint64_t name;
    FCAP_CHECKPOINT_METRIC_LIST(X)
#undef X
};

struct fcap_checkpointer;

/* Before the first batch is submitted: follows the state from here on. Looks once at what is kept:
 * when that is not possible now, it is tried again later, by itself. A state that is older than
 * what is kept of it becomes a lineage of its own. Borrows objects and state. Fails only when the
 * state does. Gives *ret_checkpointer. */
FCAP_MUST_USE enum fcap_status
fcap_checkpointer_open(const struct fcap_checkpointer_settings *settings,
                       struct fcap_objects *objects, struct fcap_checkpoint_state *state,
                       struct fcap_checkpointer **ret_checkpointer, struct fcap_error *error);

/* Starts the threads. NO_MEMORY: there are none. */
FCAP_MUST_USE enum fcap_status fcap_checkpointer_start(struct fcap_checkpointer *checkpointer);

/* One step of everything, without threads. Gives when the next one is due, on the monotonic clock;
 * the past means now. */
int64_t fcap_checkpointer_step(struct fcap_checkpointer *checkpointer);

/* After the last batch: writes what waits and a last manifest, and ends the threads. TIMEOUT: it
 * took longer than `deadline_ms` from now; then the objects hang, what is theirs must stay as it is
 * until the process ends, and close() must not be called. Without threads it does it at once. */
FCAP_MUST_USE enum fcap_status fcap_checkpointer_stop(struct fcap_checkpointer *checkpointer,
                                                      int64_t deadline_ms);

/* After stop(), or instead of it: then as if the process had ended here. NULL is fine. */
void fcap_checkpointer_close(struct fcap_checkpointer *checkpointer);

void fcap_checkpointer_metrics(struct fcap_checkpointer *checkpointer,
                               struct fcap_checkpoint_metrics *ret_metrics);

/* A line about how it stands, for pages: "checkpoint 12, 40 s old; snapshot 3 min old". */
void fcap_checkpointer_describe(struct fcap_checkpointer *checkpointer,
                                struct fcap_error *ret_text);

#endif
