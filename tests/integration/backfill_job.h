/* `fcapd backfill` as a child beside others: each writes into a Redis of its own, so that many of
 * them can wait for owners at the same time. Thread rule: one thread. */
#ifndef FCAP_TESTS_BACKFILL_JOB_H
#define FCAP_TESTS_BACKFILL_JOB_H

#include "live.h"

#define BACKFILL_JOB_ARGUMENTS 12

struct backfill_job {
    struct redis_server redis;
    const char *stop_at; /* fcap/point.h, "name:passes"; NULL: it goes through */
    const char *arguments[BACKFILL_JOB_ARGUMENTS];
    size_t file_bytes_max; /* RLIMIT_FSIZE; 0: none */
    pid_t pid;             /* 0: not running */
    char directory[64];
    char *text; /* what it said; owned */
};

/* Starts its Redis, unless one runs there already. */
void backfill_job_init(struct backfill_job *job);
/* Kills what runs and removes everything. */
void backfill_job_done(struct backfill_job *job);

/* Starts it with the configuration of `live`, against the job's Redis or that of `port` (0: its
 * own). */
void backfill_job_start(struct backfill_job *job, struct live *live, uint16_t port);
/* Waits until it has stopped itself at its point. */
void backfill_job_await_stop(struct backfill_job *job);
/* Lets it go on, with this signal (0: none). */
void backfill_job_continue(struct backfill_job *job, int signal);
/* Waits until it has said this. */
void backfill_job_await_text(struct backfill_job *job, const char *text);
/* Waits for its end; fails with what it said unless the exit code is this one. */
void backfill_job_ends(struct backfill_job *job, int code);

/* A number of the summary: the one behind or before a text. Fails when the text is not there. */
int64_t backfill_job_behind(const struct backfill_job *job, const char *text);
int64_t backfill_job_before(const struct backfill_job *job, const char *text);

#endif
