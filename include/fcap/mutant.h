/* Planted faults: each names one rule that the code must keep, and a test that catches it.
 *
 * FCAP_MUTANT(NAME) is 0 in every program. In libraries built with -DFCAP_MUTANTS it is true when
 * a test has chosen that mutant. Thread rule: set it before anything else runs. */
#ifndef FCAP_MUTANT_H
#define FCAP_MUTANT_H

/* clang-format off */
#define FCAP_MUTANT_LIST(X)                                                                     \
    X(LATE_T,          "lateness judged by T - L instead of the cursor")                        \
    X(LAG_CURSOR,      "a slice bounds single windows instead of T")                            \
    X(CHUNK_FIRST,     "a chunk lies in the bucket of its first event only")                    \
    X(ERASE,           "a tombstone leaves no mark")                                            \
    X(ERASE_OPEN,      "a tombstone removes open events instead of voiding them")               \
    X(MARK_LOST,       "a record without counts is deleted although it holds an erase mark")    \
    X(NO_PENDING,      "timers of encoded and open commits are not seen")                       \
    X(DUPLICATE_CHUNK, "a chunk in flight does not hide the stored one of the same key")        \
    X(DIRTY_FLAG,      "the dirty flag is cleared when the commit completes, not when encoded") \
    X(EVICT,           "a record in a commit in flight may leave the cache")                    \
    X(OLD_COMMIT,      "a batch of an ended assignment is not refused")                         \
    X(DROP_SYNC,       "timers are dropped before the commit that moved H is durable")          \
    X(WINDOW_REUSE,    "a window's number is used again")                                       \
    X(LONGER,          "a longer window starts at T - L instead of max(H, T - L)")              \
    X(BUILD_NEWEST,    "building a window does not raise newest")                               \
    X(AD_REUSE,        "an ad's number is used again")                                          \
    X(SEEK,            "the initial seek leaves no room for early event times")                 \
    X(STAMPS,          "a start by time believes whatever the timestamps say")                  \
    X(STAMPS_UNTOLD,   "a start by time needs no record below it that tells when it was written") \
    X(FUTURE_WALL,     "the future bound ignores the append time")                              \
    X(FUTURE_ALONE,    "the future bound asks the wall clock alone")                            \
    X(NO_FLAG,         "a commit with the gate closed keeps projected_to")                      \
    X(RUN_ID_MEMORY,   "projected_to is compared with memory, not with state")                  \
    X(WAIT,            "a partition waits for others' timers however far it is behind")         \
    X(HOLD,            "an expiry is held until its key changes for another reason")           \
    X(QUEUE_VALUE,     "values are encoded when queued")                                        \
    X(ZOMBIE,          "older connections of our name are not killed")                          \
    X(GATE_EARLY,      "the gate opens before T has caught up")                                 \
    X(GROWN_OWNERS,    "users that may have moved to a new partition are written as ever")      \
    X(GROWN_LATE,      "who was heard of before all producers had learned stays an own user")   \
    X(GROWN_ERASED,    "an erasure of a user that may have moved is not shown")                 \
    X(GROWN_READY,     "windows stay ready when partitions are added")                          \
    X(EPOCH_OLD,       "an epoch that was answered long ago opens a gate")                      \
    X(EPOCH_KEPT,      "an owner that meets another Redis keeps its epoch")                     \
    X(REDIRTY,         "users named by replayed records are not projected again")               \
    X(PXAT_ONLY,       "zero counts ahead of their time are not unlinked")                      \
    X(DUE_EARLY,       "an event leaves 1 ms early")                                            \
    X(DUE_LATE,        "an event leaves 1 ms late")                                             \
    X(PXAT_PLUS_ONE,   "PXAT is newest + L")                                                    \
    X(OFFSET_OUTSIDE,  "the offset is committed ahead of its effects")                          \
    X(CHUNK_SKIPPED,   "the second chunk of a bucket is skipped")                               \
    X(EXPIRE_AGAIN,    "after a failed commit its expiries are planned again")                  \
    X(SECOND_LOOK,     "users touched before the gate opened are projected once only")          \
    X(REBUILD,         "a rebuild lets the complete projection under way be enough")            \
    X(REDO_ARRIVALS,   "redo forgets arrivals")                                                 \
    X(REDO_EXPIRIES,   "redo forgets expiries")                                                 \
    X(REDO_STAMP,      "redo ignores a record's stamp")                                        \
    X(STALE,           "what the store still holds of a discarded state is read")               \
    X(FLOOR,           "timers dropped after a state began below older drops are not missed")   \
    X(SAME_LOG,        "a log is not compared with the one that was read")                      \
    X(TRUNCATED,       "a log that has lost its end is read from its start")                    \
    X(LOST_SINCE,      "windows are ready although a gap took events of them")                  \
    X(LOST_OTHER,      "another log's first record tells how late the lost ones are")           \
    X(LOST_UNTOLD,     "a record without an event tells how late the lost ones are")            \
    X(LOOK_FORGOTTEN,  "a second look that is due goes with its task")                          \
    X(LOOK_NAMED,      "an old owner is thought to know only users that records name")          \
    X(ERASED_CLOCK,    "an erased user's keys are left to the server's clock")                  \
    X(HELD_LEFT,       "what an earlier owner left of a window that is held back outlasts changes") \
    X(ERASED_LAG,      "an erasure holds up to T, also where T lags and users may have moved")  \
    X(GROWN_TAKEN,     "windows stay ready when an erasure is shown again after a growth")      \
    X(GROWN_LAST,      "what old owners wrote last after a growth is not put right")
/* clang-format on */

enum fcap_mutant {
    FCAP_MUTANT_NONE,
#define X(name, text) FCAP_MUTANT_##name,
    FCAP_MUTANT_LIST(X)
#undef X
        FCAP_MUTANT_COUNT
};

#ifdef FCAP_MUTANTS
extern enum fcap_mutant fcap_mutant;
#define FCAP_MUTANT(name) (fcap_mutant == FCAP_MUTANT_##name)
#else
#define FCAP_MUTANT(name) (0)
#endif

#endif
