/* The board: what each worker last said about itself, for the reporter of fc:meta, the HTTP pages,
 * the log and the watchdog.
 *
 * A worker publishes a whole view at once; a reader gets a copy, so no page ever mixes two moments
 * of one worker. Thread rule: any thread; a view is published by its worker alone. */
#ifndef FCAP_DAEMON_BOARD_H
#define FCAP_DAEMON_BOARD_H

#include "fcap/dead_letters_kafka.h"
#include "fcap/metrics.h"
#include "fcap/pipeline.h"
#include "fcap/sink_redis.h"
#include "fcap/source_kafka.h"
#include "hot_users.h"

enum fcap_worker_phase {
    FCAP_WORKER_STARTING, /* nothing said yet */
    FCAP_WORKER_WAITING,  /* for Redis: before it has answered nothing may be counted */
    FCAP_WORKER_RUNNING,
    FCAP_WORKER_DRAINING, /* asked to stop */
    FCAP_WORKER_ENDED,
    FCAP_WORKER_FAILED,
};

struct fcap_board_task {
    struct fcap_task_report report;
    int64_t lag;      /* records; -1: not known */
    int64_t is_stuck; /* 1: it is not fetched although its end is ahead */
};

/* What one worker says. Times are CLOCK_MONOTONIC unless they say otherwise. */
struct fcap_worker_view {
    enum fcap_worker_phase phase;
    int64_t published_ms;
    struct fcap_counters counters;
    struct fcap_pipeline_sizes sizes;
    struct fcap_histogram step_seconds;
    struct fcap_delays delays;
    const char *stall; /* no record was taken since `stall_since_ms`, and why; NULL: none */
    int64_t stall_since_ms;
    struct fcap_sink_redis_status sink;
    bool time_known;         /* Redis TIME has been answered */
    int64_t clock_offset_ms; /* the wall clock - Redis TIME */
    struct fcap_source_kafka_snapshot source;
    bool has_letters;
    struct fcap_dead_letters_kafka_snapshot letters;
    uint32_t held;                   /* partitions that wait for their state from a checkpoint */
    int64_t commit_failing_since_ms; /* 0: the last commit was written */
    struct fcap_error store_error;   /* then: the store's own words */
    char error[1024];                /* why it failed */
    size_t hot_count;
    struct fcap_hot_user hot[FCAP_HOT_USERS_MAX];
    struct fcap_board_task *tasks; /* by partition; owned */
    size_t task_count;
    size_t task_capacity;
};

/* Makes room for `count` tasks. */
void fcap_worker_view_reserve(struct fcap_worker_view *view, size_t count);

/* Frees the tasks. */
void fcap_worker_view_done(struct fcap_worker_view *view);

/* Copies all; `copy` keeps its own storage for tasks. */
void fcap_worker_view_copy(struct fcap_worker_view *copy, const struct fcap_worker_view *view);

struct fcap_board;

/* Gives a board for `workers` workers. */
struct fcap_board *fcap_board_open(size_t workers);
void fcap_board_close(struct fcap_board *board);
size_t fcap_board_workers(const struct fcap_board *board);

/* The worker's loop is alive; cheap, once a round. */
void fcap_board_beat(struct fcap_board *board, size_t worker);
/* Counts beats; a worker stands still when it does not change. */
uint64_t fcap_board_beats(const struct fcap_board *board, size_t worker);
/* CLOCK_MONOTONIC of the newest beat. */
int64_t fcap_board_beat_ms(const struct fcap_board *board, size_t worker);

/* What the reporter of fc:meta says about its own connection to Redis; zeroed until it has. */
void fcap_board_publish_reporter(struct fcap_board *board,
                                 const struct fcap_sink_redis_status *status);
void fcap_board_read_reporter(struct fcap_board *board, struct fcap_sink_redis_status *ret_status);

/* Replaces the worker's view. */
void fcap_board_publish(struct fcap_board *board, size_t worker,
                        const struct fcap_worker_view *view);

/* Copies of all views, one after the other; `views` has room for all workers, zero-initialised the
 * first time, and is given to fcap_board_views_done() in the end. */
void fcap_board_read(struct fcap_board *board, struct fcap_worker_view *views);

/* Room for fcap_board_read, and its end. */
struct fcap_worker_view *fcap_board_views_open(const struct fcap_board *board);
void fcap_board_views_close(const struct fcap_board *board, struct fcap_worker_view *views);

/* "running", ...: for pages and logs. Never NULL. */
const char *fcap_worker_phase_name(enum fcap_worker_phase phase);

#endif
