/* Sends files of a directory as objects, several at a time, with one common rate limit, piece by
 * piece: each step of a sender sends at most FCAP_CHECKPOINT_PIECE bytes.
 *
 * Thread rule: transfer_step() from any number of threads, each with a sender of its own; the rest
 * while none is in a step. */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "object_list.h"

#include "fcap/checkpoint.h"

#include <pthread.h>
#include <stdio.h>

/* One file: its name and size are given; what comes of it stands in `file`. */
struct transfer_job {
    struct fcap_checkpoint_file file; /* `object`: where to send it */
    bool has_twin;                    /* is `twin` the same file? Then it need not be sent. */
    struct fcap_checkpoint_file twin;
    bool is_kept; /* nothing needs to be sent */
    bool is_done;
};

/* Bytes a second, of everybody who has the same one. */
struct transfer_rate {
    uint64_t bytes_per_second; /* 0: no limit */
    int64_t free_at_us;        /* when what was sent is paid for */
};

/* Gives when these bytes are paid for (monotonic); nothing more is to be moved before. */
int64_t transfer_rate_pay(struct transfer_rate *rate, size_t size, int64_t now_ms);

struct transfer {
    struct fcap_objects *objects; /* borrowed */
    char directory[4096];
    struct transfer_job *jobs;
    size_t job_count;
    size_t job_capacity;
    struct transfer_rate rate;

    pthread_mutex_t lock; /* guards what follows, and jobs' results */
    bool has_begun;
    size_t next;
    size_t busy; /* senders with a file */
    bool is_cancelled;
    enum fcap_status status; /* of the first failure */
    bool is_local;           /* it was the directory's, not the objects' */
    struct fcap_error error;
    uint64_t bytes_sent;
    uint64_t files_sent;
};

/* One who sends. Zero-initialised is idle. */
struct transfer_sender {
    struct transfer_job *job;
    FILE *local;
    struct fcap_object_writer *writer; /* NULL: it is compared only */
    struct fcap_checkpoint_hash hash;
    uint64_t offset;
    uint8_t *piece;
};

void transfer_init(struct transfer *transfer, struct fcap_objects *objects,
                   uint64_t bytes_per_second);
void transfer_done(struct transfer *transfer);

/* Forgets the jobs; the rate stays. No sender has a file. Until transfer_begin() there is nothing
 * to do for them: the jobs are being made. */
void transfer_clear(struct transfer *transfer, const char *directory);
void transfer_begin(struct transfer *transfer);
struct transfer_job *transfer_add(struct transfer *transfer);

/* Does a step. Gives when the next one is due (monotonic); INT64_MAX: nothing to do. */
int64_t transfer_step(struct transfer *transfer, struct transfer_sender *sender, int64_t now_ms);
/* Nothing more is begun, and what is being sent is given up with its sender's next step. */
void transfer_cancel(struct transfer *transfer);
/* True when no sender has anything to do any more: everything is sent, or it failed. */
bool transfer_is_over(struct transfer *transfer);
void transfer_sender_done(struct transfer *transfer, struct transfer_sender *sender);

/* Reads a directory: a job for each file, with name and size, by name. */
enum fcap_status transfer_read_directory(struct transfer *transfer, struct fcap_error *error);
/* The job of this file; NULL: there is none. */
const struct transfer_job *transfer_find(const struct transfer *transfer, const char *name);

#endif
