/* Places where a test may stop the whole process, to kill it exactly there.
 *
 * FCAP_POINT(name) is nothing in every program that ships. In fcapd-points, which only the tests
 * build (FCAP_POINTS), it calls fcap_point_reached() of tests/lib/point.c. A new place is one line
 * in this list and one FCAP_POINT() in the code; the crash torture draws from the list.
 *
 * X(name, phase, lead, passes, what is true there). `lead` says how a test brings a daemon there,
 * a sum of FCAP_LEAD_*; `passes` is the largest number of passes that a test draws at 2,000 users
 * (those from 100 on count users and events and grow with them). Thread rule: any thread. */
#ifndef FCAP_POINT_H
#define FCAP_POINT_H

/* clang-format off */
#define FCAP_POINT_LIST(X)                                                                                \
    X(push_queued,       SEND,       FCAP_LEAD_LOAD,  2000, "a value is handed over, perhaps unsent")     \
    X(push_written,      SEND,       FCAP_LEAD_LOAD,    40, "values are in the socket, no answer is read")\
    X(push_acked,        SEND,       FCAP_LEAD_LOAD,  2000, "a value is acknowledged, in no commit yet")  \
    X(expire_moved,      EXPIRY,     FCAP_LEAD_LOAD,   200, "T has moved, what left is not sent")         \
    X(expire_slice,      EXPIRY,     FCAP_LEAD_START,    2, "between two slices of a catch-up of T")      \
    X(commit_meta,       COMMIT,     FCAP_LEAD_LOAD,    12, "meta is encoded, records are not")           \
    X(commit_users,      COMMIT,     FCAP_LEAD_LOAD,    12, "records are encoded, timers are not")        \
    X(commit_chunks,     COMMIT,     FCAP_LEAD_LOAD,    12, "timers are encoded, redo and ads are not")   \
    X(commit_encoded,    COMMIT,     FCAP_LEAD_LOAD,     3, "a batch is encoded and waits for answers")   \
    X(commit_acked,      COMMIT,     FCAP_LEAD_LOAD,     3, "all that it covers is acknowledged")         \
    X(commit_writing,    COMMIT,     FCAP_LEAD_LOAD,     3, "right before RocksDB's write")               \
    X(commit_written,    COMMIT,     FCAP_LEAD_LOAD,     3, "right after it, nobody knows")               \
    X(commit_finished,   COMMIT,     FCAP_LEAD_LOAD,     3, "its result is known to the worker")          \
    X(state_synced,      COMMIT,     FCAP_LEAD_LOAD,     1, "the state is durable, nobody knows")         \
    X(offsets_sending,   PUBLISH,    FCAP_LEAD_LOAD,     3, "right before progress offsets are sent")     \
    X(offsets_sent,      PUBLISH,    FCAP_LEAD_LOAD,     3, "they are on their way")                      \
    X(partition_coming,  REBALANCE,  FCAP_LEAD_LEAVE,    2, "a partition is assigned, not claimed")       \
    X(partition_claimed, REBALANCE,  FCAP_LEAD_LEAVE,    2, "it is claimed, its state is not loaded")     \
    X(partition_leaving, REBALANCE,  FCAP_LEAD_JOIN,     1, "revoked, nothing is drained")                \
    X(partition_drained, REBALANCE,  FCAP_LEAD_JOIN,     1, "drained, nothing is dropped")                \
    X(partition_dropped, REBALANCE,  FCAP_LEAD_JOIN,     1, "dropped, the group has no answer yet")       \
    X(full_begun,        PROJECTION, FCAP_LEAD_EMPTY | FCAP_LEAD_HISTORY,   1, "a complete projection begins")    \
    X(full_queued,       PROJECTION, FCAP_LEAD_EMPTY | FCAP_LEAD_HISTORY, 150, "so many users are queued for it") \
    X(full_pushed,       PROJECTION, FCAP_LEAD_EMPTY | FCAP_LEAD_HISTORY, 150, "so many of its values are handed over") \
    X(full_acked,        PROJECTION, FCAP_LEAD_EMPTY | FCAP_LEAD_HISTORY,   2, "all is acknowledged, the state doesn't say") \
    X(history_counted,   LOAD,       FCAP_LEAD_HISTORY, 9000, "a record is counted, its gate is closed")   \
    X(history_expired,   LOAD,       FCAP_LEAD_HISTORY,  100, "an event has left, its gate is closed")    \
    X(history_encoded,   LOAD,       FCAP_LEAD_HISTORY,    3, "events are encoded, their gate is closed") \
    X(history_reached,   LOAD,       FCAP_LEAD_HISTORY,    6, "the end is reached, the gate is closed")   \
    X(epoch_asked,       LOAD,       FCAP_LEAD_HISTORY,    6, "an epoch is asked for, there is no answer") \
    X(state_opened,      START,      FCAP_LEAD_START,    1, "the store is open, no worker runs")          \
    X(task_redone,       START,      FCAP_LEAD_CRASH,    2, "between two commits of redo")                \
    X(task_loaded,       START,      FCAP_LEAD_START | FCAP_LEAD_LEAVE, 2, "a partition's state is loaded") \
    X(gate_opening,      START,      FCAP_LEAD_START | FCAP_LEAD_HISTORY, 2, "the next step would open a gate") \
    X(gate_opened,       START,      FCAP_LEAD_START | FCAP_LEAD_HISTORY, 2, "a gate is open, nothing has passed it") \
    X(window_building,   START,      FCAP_LEAD_CHANGE,  20, "a bucket is added to a window being built")  \
    X(window_built,      START,      FCAP_LEAD_CHANGE,   2, "a window is built, the state doesn't say")   \
    X(replay_begun,      START,      FCAP_LEAD_CHANGE,   2, "a state is to be read anew, not judged yet") \
    X(replay_judged,     START,      FCAP_LEAD_CHANGE,   2, "it may be; the old one is still there")      \
    X(backfill_claimed,  BACKFILL,   FCAP_LEAD_BACKFILL, 1, "partitions are claimed, nothing is read")    \
    X(backfill_spilled,  BACKFILL,   FCAP_LEAD_BACKFILL, 2000, "a record is spilled, others are to come") \
    X(backfill_waiting,  BACKFILL,   FCAP_LEAD_BACKFILL, 1, "all is read, owners may still show themselves")\
    X(backfill_checking, BACKFILL,   FCAP_LEAD_BACKFILL, 1, "records are folded for nothing")             \
    X(backfill_writing,  BACKFILL,   FCAP_LEAD_BACKFILL, 4, "between two transactions, or before the first")\
    X(backfill_queued,   BACKFILL,   FCAP_LEAD_BACKFILL, 4, "within one: its SETs are sent, EXEC is not") \
    X(backfill_executed, BACKFILL,   FCAP_LEAD_BACKFILL, 4, "it is done and answered, nobody knows")      \
    X(backfill_written,  BACKFILL,   FCAP_LEAD_BACKFILL, 1, "everything is written, no summary yet")      \
    X(snapshot_begun,    CHECKPOINT, FCAP_LEAD_CHECKPOINT, 3, "nothing is left of an earlier one, nothing is copied") \
    X(snapshot_copied,   CHECKPOINT, FCAP_LEAD_CHECKPOINT, 3, "the copy is whole, nobody knows its number") \
    X(frame_applied,     CHECKPOINT, FCAP_LEAD_CHECKPOINT, 9, "a frame of a changelog is written, not durable") \
    X(lineage_drawn,     CHECKPOINT, FCAP_LEAD_CHECKPOINT, 1, "a new lineage is written, without the log not durable") \
    X(objects_marking,   OBJECT,     FCAP_LEAD_OBJECTS,  1, "a directory of objects has no mark yet, its text is written") \
    X(object_begun,      OBJECT,     FCAP_LEAD_OBJECTS, 20, "an object is begun, nothing of it is written") \
    X(object_writing,    OBJECT,     FCAP_LEAD_OBJECTS, 60, "some of it is written")                      \
    X(object_synced,     OBJECT,     FCAP_LEAD_OBJECTS, 20, "it is durable, nobody sees it")              \
    X(object_linked,     OBJECT,     FCAP_LEAD_OBJECTS, 20, "it has two names: that of an object, and the hidden one") \
    X(object_shown,      OBJECT,     FCAP_LEAD_OBJECTS, 20, "it is seen, its name is not durable")        \
    X(object_finished,   OBJECT,     FCAP_LEAD_OBJECTS, 20, "it is durable, nobody knows")          \
    X(checkpoint_frame,     CHECKPOINT, FCAP_LEAD_CHECKPOINT, 20, "a batch is written to an open segment") \
    X(checkpoint_segment,   CHECKPOINT, FCAP_LEAD_CHECKPOINT, 3, "a segment is written, not finished")    \
    X(checkpoint_segment_finished, CHECKPOINT, FCAP_LEAD_CHECKPOINT, 3, "it is finished, no manifest names it") \
    X(checkpoint_manifest,  CHECKPOINT, FCAP_LEAD_CHECKPOINT, 3, "a manifest is written, not finished")   \
    X(checkpoint_manifest_made, CHECKPOINT, FCAP_LEAD_CHECKPOINT, 3, "it is finished, nobody knows")      \
    X(checkpoint_snapshot,  CHECKPOINT, FCAP_LEAD_CHECKPOINT, 2, "a snapshot is taken, nothing is sent")  \
    X(checkpoint_file_sending, CHECKPOINT, FCAP_LEAD_CHECKPOINT, 6, "a piece of a file is sent")          \
    X(checkpoint_file_sent, CHECKPOINT, FCAP_LEAD_CHECKPOINT, 6, "all of a file is sent, not finished")   \
    X(checkpoint_files_sent, CHECKPOINT, FCAP_LEAD_CHECKPOINT, 2, "all files are sent, no manifest names them") \
    X(checkpoint_cut,       CHECKPOINT, FCAP_LEAD_CHECKPOINT, 6, "between two removals of what nobody needs") \
    X(savepoint_copying,    CHECKPOINT, FCAP_LEAD_CHECKPOINT, 6, "a piece of a savepoint is copied")      \
    X(savepoint_made,       CHECKPOINT, FCAP_LEAD_CHECKPOINT, 1, "its manifest is made, nothing is read back") \
    X(restore_copying,      CHECKPOINT, FCAP_LEAD_CHECKPOINT, 6, "a piece of a file is read")             \
    X(restore_moving,       CHECKPOINT, FCAP_LEAD_CHECKPOINT, 9, "a state is made, and not all of it in its place") \
    X(replace_begun,        CHECKPOINT, FCAP_LEAD_CHECKPOINT, 1, "a state is made, the one in its place is whole") \
    X(replace_aside,        CHECKPOINT, FCAP_LEAD_CHECKPOINT, 9, "it is made, and the old one moves aside") \
    X(replace_removing,     CHECKPOINT, FCAP_LEAD_CHECKPOINT, 1, "it is in its place, the old one lies beside it") \
    X(damage_aside,         CHECKPOINT, FCAP_LEAD_CHECKPOINT, 9, "a damaged state moves aside, and nothing replaces it") \
    X(forward_applied,      CHECKPOINT, FCAP_LEAD_CHECKPOINT, 9, "a state that is behind has got one more batch") \
    X(adoption_chosen,      ADOPTION,   FCAP_LEAD_ADOPT, 2, "a checkpoint is chosen for a partition, nothing is opened") \
    X(adoption_opened,      ADOPTION,   FCAP_LEAD_ADOPT, 2, "it is open and its changelog is checked, the old state is there") \
    X(partition_carried,    ADOPTION,   FCAP_LEAD_ADOPT, 3, "a batch of the partition is written, others are to come") \
    X(partition_followed,   ADOPTION,   FCAP_LEAD_ADOPT, 9, "its files are copied, a batch of the changelog comes") \
    X(partition_ending,     ADOPTION,   FCAP_LEAD_ADOPT, 2, "all of it is there, and it still counts as empty") \
    X(adoption_over,        ADOPTION,   FCAP_LEAD_ADOPT, 2, "it is whole, no worker knows")
/* clang-format on */

#define FCAP_LEAD_LOAD   1  /* records arrive; any running daemon gets there */
#define FCAP_LEAD_START  2  /* the daemon starts with a state, after a clean end or a crash */
#define FCAP_LEAD_CRASH  4  /* it starts after a crash */
#define FCAP_LEAD_JOIN   8  /* another member joins the group */
#define FCAP_LEAD_LEAVE  16 /* another member leaves it */
#define FCAP_LEAD_EMPTY  32 /* Redis comes back empty or old */
#define FCAP_LEAD_DAEMON 63 /* any of these: what test_torture.c does */
/* None of a daemon's: `fcapd backfill` gets there. */
#define FCAP_LEAD_BACKFILL 64
/* It starts with nothing and reads a long history. */
#define FCAP_LEAD_HISTORY 128
/* It starts with other windows: test_windows.c. */
#define FCAP_LEAD_CHANGE 256
/* It takes snapshots, or comes back from one. */
#define FCAP_LEAD_CHECKPOINT 512
/* Objects are written into a directory: test_objects_directory.c. */
#define FCAP_LEAD_OBJECTS 1024
/* It gets a partition that another instance has kept. */
#define FCAP_LEAD_ADOPT 2048

enum fcap_point_phase {
    FCAP_POINT_SEND,
    FCAP_POINT_EXPIRY,
    FCAP_POINT_COMMIT,
    FCAP_POINT_PUBLISH,
    FCAP_POINT_REBALANCE,
    FCAP_POINT_PROJECTION,
    FCAP_POINT_LOAD,
    FCAP_POINT_START,
    FCAP_POINT_BACKFILL,
    FCAP_POINT_CHECKPOINT,
    FCAP_POINT_OBJECT,
    FCAP_POINT_ADOPTION,
    FCAP_POINT_PHASES
};

enum fcap_point {
#define X(name, phase, lead, passes, text) FCAP_POINT_AT_##name,
    FCAP_POINT_LIST(X)
#undef X
        FCAP_POINT_COUNT
};

#ifdef FCAP_POINTS
/* Stops the process with SIGSTOP when this is the pass that the environment asks for; it goes on
 * with SIGCONT. Test builds only. */
void fcap_point_reached(enum fcap_point point);
#define FCAP_POINT(name)               fcap_point_reached(FCAP_POINT_AT_##name)
#define FCAP_POINT_IF(condition, name) ((condition) ? FCAP_POINT(name) : (void)0)
#else
#define FCAP_POINT(name)               ((void)FCAP_POINT_AT_##name)
#define FCAP_POINT_IF(condition, name) ((void)FCAP_POINT_AT_##name)
#endif

#endif
