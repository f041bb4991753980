/* What the parts of the checkpointer share.
 *
 * Three actors: the follower (the store's writer thread) queues batches, the shipper writes them
 * and every manifest, the materialiser takes snapshots, has their files sent, and removes what is
 * needed no more. Each is a function that does one step and tells when it wants to be called again.
 *
 * A *run* of batches is one without a hole. Its *tip* is what of it is kept, in finished segments.
 * A manifest is the newest snapshot and the tip, if the one joins on the other. Thread rule:
 * members below `lock` are guarded by it; the others belong to the actor that they are named for.
 */
#ifndef CHECKPOINTER_INTERNAL_H
#define CHECKPOINTER_INTERNAL_H

#include "kept.h"
#include "transfer.h"

#include "fcap/assert.h"
#include "fcap/checkpointer.h"

/* Manifests that are kept of one snapshot; the newest ones. So many more may wait to be removed. */
#define CHECKPOINTER_MANIFESTS_MAX 64

/* A manifest names every segment, so without snapshots it grows. From one to the next there is at
 * least so much time for each: a checkpoint goes on to cost what changed. */
#define CHECKPOINTER_SEGMENT_PAUSE_MS 1

/* What a batch says about one partition. */
struct checkpointer_change {
    struct fcap_checkpoint_partition partition;
    bool is_removed;
};

/* A batch that waits. */
struct checkpointer_frame {
    struct checkpointer_frame *next;
    uint64_t sequence;
    int64_t written_ms;
    struct fcap_buffer bytes;
    struct checkpointer_change *changes;
    size_t change_count;
};

/* What a batch changed while a snapshot was taken. */
struct checkpointer_record {
    uint64_t sequence;
    int64_t written_ms;
    struct checkpointer_change *changes;
    size_t change_count;
};

/* A snapshot that is kept. */
struct checkpointer_generation {
    struct fcap_checkpoint newest;                /* its newest manifest */
    uint64_t numbers[CHECKPOINTER_MANIFESTS_MAX]; /* its manifests, oldest first */
    size_t number_count;
};

/* How an actor's tries go. */
struct checkpointer_tries {
    enum fcap_status status; /* of the last failure that was told */
    int64_t retry_at_ms;     /* nothing is tried before; 0: now */
    int64_t pause_ms;        /* before the next try after a failure */
    int64_t pause_ms_max;
    bool is_failing;
};

enum checkpointer_phase {
    CHECKPOINTER_IDLE,
    CHECKPOINTER_SENDING,
    CHECKPOINTER_SWITCHING, /* all files are sent; the shipper makes the manifest */
    CHECKPOINTER_CUTTING,
};

/* The object that is being read back. */
struct checkpointer_scrub {
    char object[FCAP_OBJECT_NAME_MAX + 1]; /* "": none is in hand */
    bool is_manifest;                      /* it holds its own checksum */
    bool is_again;                         /* it seemed damaged, and is looked at once more */
    uint64_t size;
    uint64_t hash;
    uint64_t offset; /* of what is to be read next */
    struct fcap_checkpoint_hash sum;
    uint8_t *piece;
    struct transfer_rate rate;
    int64_t look_at_ms; /* monotonic: nothing is to be done before */
    int64_t done_ms;    /* wall clock: what was due before has been read; 0: not begun */
    char done[FCAP_OBJECT_NAME_MAX + 1]; /* of those due at that moment: up to this name */
    int64_t due_ms;                      /* of the one in hand */
};

struct fcap_checkpointer {
    struct fcap_checkpointer_settings settings;
    struct fcap_objects *objects;
    struct fcap_checkpoint_state *state;
    char prefix[FCAP_OBJECT_NAME_MAX + 1]; /* "<profile>/<instance>/" */
    int64_t opened_ms;

    /* The shipper. */
    struct fcap_object_lock *object_lock;
    struct fcap_object_writer *writer; /* the open segment */
    struct fcap_checkpoint_hash hash;
    struct checkpointer_tries ship;
    int64_t due_ms;     /* the next checkpoint */
    int64_t started_ms; /* this checkpoint */
    uint64_t limit;     /* it covers the batches up to this one, if none of them was lost */
    bool is_making;
    uint64_t number_next;
    uint64_t bytes_shipped;     /* since the last manifest */
    bool may_fork;              /* no batch can have been submitted yet */
    unsigned manifest_failures; /* a manifest could not be read, though its place is there */
    bool is_stopping;           /* `stopping`, as this step found it */
    bool is_final_done;

    /* The materialiser. */
    struct checkpointer_tries materialize;
    enum checkpointer_phase phase;
    int64_t snapshot_due_ms;
    int64_t rested_at_ms; /* a hole is mended no sooner: not one snapshot after the other */
    char snapshot_directory[4096];
    bool has_snapshot_directory;
    struct transfer transfer;
    struct transfer_sender *senders; /* settings.transfer_threads of them, one a thread */
    struct fcap_checkpoint sent;     /* files that were sent and stand in no manifest yet */
    struct object_list doomed;       /* to be removed */
    size_t doomed_next;
    struct checkpointer_tries cut;
    bool has_list;           /* `doomed` has been found out for the cut that goes on */
    uint64_t snapshot_bytes; /* sent for the pending one */
    struct checkpointer_scrub scrub;
    struct object_list
        rotten;       /* objects that are damaged, as far as they are still there; sorted */
    bool wants_fresh; /* a snapshot is to replace one of them */

    pthread_mutex_t lock;
    pthread_cond_t wake_ship;
    pthread_cond_t wake_materialize;
    pthread_cond_t wake_transfer;
    pthread_cond_t thread_ended;
    bool ship_is_woken;
    bool materialize_is_woken;
    bool has_threads;
    size_t running;
    bool stopping;
    int64_t stop_deadline_ms;
    bool in_snapshot;        /* the store is in use */
    bool wants_cut;          /* there may be something that nobody needs */
    bool has_unread;         /* not all manifests could be read: what they need is not known */
    uint64_t sending_serial; /* which snapshot is being sent */
    bool is_begun;           /* what is kept has been looked at */
    bool has_given_up;
    uint64_t unique; /* in the names of what this process makes; counts up from a random number */
    struct fcap_store_position start; /* where the state stood at open */

    struct checkpointer_frame *queue_first;
    struct checkpointer_frame *queue_last;
    size_t queue_bytes;
    uint64_t last_queued;                /* 0: any batch may come next */
    uint64_t last_told;                  /* newest batch */
    struct fcap_checkpoint told;         /* the partitions as of that batch */
    bool is_alive;                       /* the run goes on with the next batch */
    bool is_recording;                   /* a snapshot is being taken: changes are recorded, too */
    struct checkpointer_record *records; /* by number */
    size_t record_count;
    size_t record_capacity;

    struct fcap_checkpoint_segment segment; /* the open one; first 0: none */
    struct fcap_checkpoint shipped; /* partitions, and sequence, as of what left the queue */
    struct fcap_checkpoint tip;     /* segments, sequence and partitions */
    uint64_t rotten_through;        /* the newest batch in a segment that is damaged; 0: none is */
    struct fcap_checkpoint pending; /* a snapshot whose files are all kept */
    bool is_pending;
    struct checkpointer_generation *generations; /* oldest first */
    size_t generation_count;
    const struct fcap_checkpoint *trying; /* whose manifest is being written; NULL: none is */
    int64_t complete_ms;                  /* monotonic: what a restore would give is as of then */
    int64_t snapshot_ms;       /* monotonic: when the newest complete snapshot was taken */
    int64_t snapshot_taken_ms; /* the same of the pending one */
    size_t manifests_needless; /* that are there still, of those that are not kept any more */
    struct fcap_checkpoint_metrics metrics;
};

/* --- checkpointer.c --- */

int64_t checkpointer_now_ms(const struct fcap_checkpointer *checkpointer);
void checkpointer_tell(struct fcap_checkpointer *checkpointer, enum fcap_checkpointer_level level,
                       const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Counts a failure of the objects (or, `is_local`, of a snapshot), says so when it is the first,
 * and sets when to try again. */
void checkpointer_failed(struct fcap_checkpointer *checkpointer, struct checkpointer_tries *tries,
                         bool is_local, enum fcap_status status, const struct fcap_error *error);
void checkpointer_succeeded(struct fcap_checkpointer *checkpointer,
                            struct checkpointer_tries *tries);
/* No more checkpoints by this process; counting goes on. */
void checkpointer_give_up(struct fcap_checkpointer *checkpointer, const struct fcap_error *error);
/* LOCKED, FORMAT and FOREIGN do not heal. */
bool checkpointer_is_final(enum fcap_status status);
/* The same of the first look. Whose lock could not be had may be gone soon: a server of files keeps
 * it for a while for a machine that is lost. So it is tried again. */
bool checkpointer_is_final_at_begin(const struct fcap_checkpointer *checkpointer,
                                    enum fcap_status status);
void checkpointer_wake_ship(struct fcap_checkpointer *checkpointer);
void checkpointer_wake_materialize(struct fcap_checkpointer *checkpointer);
void checkpointer_copy_partitions(struct fcap_checkpoint *to, const struct fcap_checkpoint *from);
/* Copies all of it but the files. */
void checkpointer_copy(struct fcap_checkpoint *to, const struct fcap_checkpoint *from);

/* --- queue.c --- */

void checkpointer_told(void *context, uint64_t sequence, int64_t written_ms,
                       const struct fcap_batch *batch, const bool *kept);
/* The rest with the lock held. */
void checkpointer_apply(struct fcap_checkpoint *to, const struct checkpointer_frame *frame);
struct checkpointer_frame *checkpointer_take(struct fcap_checkpointer *checkpointer);
void checkpointer_frame_free(struct checkpointer_frame *frame);
void checkpointer_drop_queue(struct fcap_checkpointer *checkpointer);
/* A hole: nothing joins on what is kept until a snapshot has been taken. */
void checkpointer_break(struct fcap_checkpointer *checkpointer);
/* True when a run that ended with a hole is all shipped, or lost: another one may begin. */
bool checkpointer_is_closed(const struct fcap_checkpointer *checkpointer);
/* From now on batches are queued again; none was since the hole. It is closed. */
void checkpointer_revive(struct fcap_checkpointer *checkpointer);
/* From now on changes are recorded; `ret_checkpoint` gets how far the partitions are. */
void checkpointer_record(struct fcap_checkpointer *checkpointer,
                         struct fcap_checkpoint *ret_checkpoint);
/* Applies what was recorded up to this batch, and ends it. */
void checkpointer_end_record(struct fcap_checkpointer *checkpointer, uint64_t sequence,
                             struct fcap_checkpoint *checkpoint);
/* True when the newest snapshot and the run make up the state. */
bool checkpointer_is_joined(const struct fcap_checkpointer *checkpointer);

/* --- ship.c --- */

int64_t checkpointer_ship(struct fcap_checkpointer *checkpointer);
/* Gives up the open segment, if any. */
void checkpointer_abandon_segment(struct fcap_checkpointer *checkpointer);

/* --- begin.c --- */

/* Takes the lock of the objects and looks at what is kept. */
enum fcap_status checkpointer_begin(struct fcap_checkpointer *checkpointer,
                                    struct fcap_error *error);

/* --- materialize.c --- */

int64_t checkpointer_materialize(struct fcap_checkpointer *checkpointer);
/* Removes a snapshot's directory, if there is one. */
void checkpointer_drop_snapshot(struct fcap_checkpointer *checkpointer);

/* --- generations.c --- */

struct checkpointer_generation *
checkpointer_newest(const struct fcap_checkpointer *checkpointer); /* NULL: none */
/* A complete manifest; takes it, also the files that it borrows from the newest generation. A
 * snapshot that is new pushes the oldest out. Until then a generation's files stay where they are:
 * the materialiser, which makes new ones, may read them without the lock. */
void checkpointer_add(struct fcap_checkpointer *checkpointer, struct fcap_checkpoint *checkpoint);
/* True when the checkpoint being made can have the pending snapshot: it covers its batches. */
bool checkpointer_is_pending(const struct fcap_checkpointer *checkpointer);
/* The manifest that can be made now; false: none that says more than the newest. It borrows its
 * files, from the pending snapshot or the newest generation: checkpointer_add() takes them over, or
 * checkpointer_drop_composed() gives the rest up. */
bool checkpointer_compose(struct fcap_checkpointer *checkpointer,
                          struct fcap_checkpoint *ret_checkpoint);
void checkpointer_drop_composed(struct fcap_checkpoint *checkpoint);
void checkpointer_generations_done(struct fcap_checkpointer *checkpointer);

/* The files of a generation. */
struct checkpointer_held {
    struct fcap_lineage lineage;
    const struct fcap_checkpoint_file *files;
    size_t count;
};
/* Those of all of them, oldest first; gives how many. For the materialiser, without the lock, while
 * it has nothing pending. The caller frees the array. */
size_t checkpointer_hold(struct fcap_checkpointer *checkpointer,
                         struct checkpointer_held **ret_held);

/* What is kept and need not be sent again, of what `listed` still has. */
struct checkpointer_kept {
    struct kept_files own;    /* of the state's lineage */
    struct kept_files origin; /* of the one that it was restored from */
};
/* The same rules as for hold(). */
void checkpointer_kept_open(struct fcap_checkpointer *checkpointer,
                            const struct object_list *listed, struct checkpointer_kept *ret_kept);
void checkpointer_kept_close(struct checkpointer_kept *kept);
/* The file that is kept under this name and size; NULL: none. In another lineage than the state's:
 * *ret_is_origin, and only its hash tells whether it is the same. */
const struct fcap_checkpoint_file *checkpointer_kept_find(struct checkpointer_kept *kept,
                                                          const char *name, uint64_t size,
                                                          bool *ret_is_origin);

/* --- scrub.c --- */

/* Reads a piece of what is due to be read back. Gives when it wants to be called again; INT64_MAX:
 * never. A damaged object makes the next step of the materialiser take a snapshot. */
int64_t checkpointer_scrub(struct fcap_checkpointer *checkpointer, int64_t now_ms);
/* Of what is known to be damaged, keeps in mind what is still there. */
void checkpointer_scrub_listed(struct fcap_checkpointer *checkpointer,
                               const struct object_list *listed);
void checkpointer_scrub_done(struct fcap_checkpointer *checkpointer);

/* --- cut.c --- */

/* False: what is needed is not known yet. With the lock held. */
bool checkpointer_may_cut(const struct fcap_checkpointer *checkpointer);
/* Finds out what is needed no more, into `doomed`. */
enum fcap_status checkpointer_cut_list(struct fcap_checkpointer *checkpointer,
                                       struct fcap_error *error);

#endif
