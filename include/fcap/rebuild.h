/* Showing everything once more by request, and what Redis should hold, to be compared with what it
 * does hold.
 *
 * What is asked for reaches Redis after the request, whatever was sent before it: another hand may
 * have changed any key. Thread rule: the pipeline's thread; fcap_values_read() is pure. */
#ifndef FCAP_REBUILD_H
#define FCAP_REBUILD_H

#include "fcap/pipeline.h"

/* Every value of a partition goes to Redis once more, paced, while live traffic goes on; one that
 * is under way begins again. The state remembers it with its next commit, which is begun at once.
 * With a closed gate, or without Redis, it waits. False: the partition is not assigned here. */
bool fcap_pipeline_rebuild(struct fcap_pipeline *pipeline, int32_t partition);

/* The same for one user's windows, which no state remembers. False: the partition is not assigned
 * here, or knows nothing of the user. */
bool fcap_pipeline_rebuild_user(struct fcap_pipeline *pipeline, int32_t partition,
                                struct fcap_bytes user);

/* What is still to come of it. */
struct fcap_rebuild_progress {
    uint32_t windows; /* that are not all in Redis yet, by configured index */
    uint64_t users;   /* queued by the pass under way so far */
    bool gate_open;
};

/* False: the partition is not assigned here. */
bool fcap_pipeline_rebuild_progress(struct fcap_pipeline *pipeline, int32_t partition,
                                    struct fcap_rebuild_progress *ret_progress);

/* True while some value of the user waits to be sent or acknowledged. */
bool fcap_pipeline_user_waits(struct fcap_pipeline *pipeline, int32_t partition,
                              struct fcap_bytes user);

/* --- what Redis should hold --- */

/* Appends a block (docs/DATA.md): what Redis should hold of about `users_max` users of a partition,
 * from `after` on, which is empty at first and then the block's `next`. When a block's `next` is
 * empty, every user known at the first call has been given; one may be given twice. False: the
 * partition is not assigned here; nothing is appended. A failure of the store fails the pipeline.
 */
bool fcap_pipeline_values(struct fcap_pipeline *pipeline, int32_t partition,
                          struct fcap_bytes after, size_t users_max, struct fcap_buffer *buffer);

/* Appends a block with one user's entry, or with none for a user of size 0. False: the partition is
 * not assigned here, or knows nothing of the user; nothing is appended. */
bool fcap_pipeline_values_user(struct fcap_pipeline *pipeline, int32_t partition,
                               struct fcap_bytes user, struct fcap_buffer *buffer);

/* A block; its views live as long as its bytes. */
struct fcap_values {
    int32_t partition;
    uint32_t partition_count; /* of the topic; 0: not known */
    bool gate_open;
    int64_t clock_ms;   /* T: what the counts are exact at */
    uint32_t served;    /* windows whose values belong into Redis, by configured index */
    uint32_t projected; /* those that the connected Redis is said to hold completely */
    struct fcap_bytes next;
    struct fcap_reader entries;
};

/* One user; its values follow, by fcap_values_next_window(), for each window in `served`, lowest
 * first; none for a user that is elsewhere. */
struct fcap_values_entry {
    bool waits;        /* changed, and not acknowledged yet */
    bool is_elsewhere; /* it may have moved to a partition that was added: its keys may be that
                          one's, or stay as they are until they expire */
    struct fcap_bytes user;
};

struct fcap_values_window {
    struct fcap_bytes key;
    struct fcap_bytes value; /* data NULL: no key should be there */
    int64_t expire_at_ms;    /* PXAT, Unix epoch */
};

/* Takes the next block off `reader`. False: none is left, or `reader->failed`: they are damaged. */
bool fcap_values_read(struct fcap_reader *reader, struct fcap_values *ret_values);
/* The next user of a block; false at its end, or entries.failed. */
bool fcap_values_next(struct fcap_values *values, struct fcap_values_entry *ret_entry);
/* The next window of the user. */
void fcap_values_next_window(struct fcap_values *values, struct fcap_values_window *ret_window);

#endif
