/* One worker's pipeline: records and the passing of time in, Redis values and commits out.
 *
 * It owns the tasks (partitions) that the source assigns to it. The order of one step: serve the
 * source, move each task's clock, project changed users, take the sink's answers, commit what is
 * acknowledged. Effects and offsets are always in one batch, and a batch is written only when the
 * sink has acknowledged everything that it covers. Thread rule: one thread. */
#ifndef FCAP_PIPELINE_H
#define FCAP_PIPELINE_H

#include "fcap/counters.h"
#include "fcap/delays.h"
#include "fcap/gaps.h"
#include "fcap/meta.h"
#include "fcap/ports.h"
#include "fcap/status.h"

#define FCAP_KEYED_SLOTS 65536

struct fcap_window {
    char name[FCAP_WINDOW_NAME_MAX + 1];
    int64_t length_ms;
};

/* The first look at a topic: a new task that could open its gate waits until all of the process
 * have read 10,000 records or what the topic held, so that "not keyed by user" is found before
 * anything is shown; for 10 s at most, since one that is slow or has no leader must not hold the
 * others back. Start with zeroes; the pipelines that share it use it atomically. */
struct fcap_keyed_look {
    uint32_t waiting;    /* new tasks that have not read that much yet */
    int64_t handover_ms; /* until then (monotonic) one of them may be between two workers, or a user
                            that was seen twice be explained */
};

/* Everything that the core takes from the configuration. Copied at open. */
struct fcap_settings {
    struct fcap_window windows[FCAP_WINDOWS_MAX];
    size_t window_count;
    const char *profile;         /* borrowed; outlives the pipeline */
    const char *key_pattern;     /* redis.key; borrowed */
    int64_t future_skew_ms;      /* limits.max_future_skew */
    int64_t seek_slack_ms;       /* further room before the initial seek */
    int64_t producer_refresh_ms; /* kafka.producer_refresh: so soon all know of new partitions */
    enum fcap_start_kind start;  /* kafka.start: TIME means lookback */
    bool check_keyed;            /* kafka.keyed: check */
    uint64_t *keyed_slots;       /* FCAP_KEYED_SLOTS zeroes shared by all workers, or NULL: users
                                    seen in two partitions are found by it; borrowed */
    struct fcap_keyed_look *keyed_look; /* shared by all workers, or NULL; borrowed */
    bool user_from_key;                 /* event.user is @key */
    bool serve_incomplete;              /* windows_incomplete: serve */
    bool stop_on_gap;                   /* on_gap: stop */
    /* run --replay-from-kafka: a partition whose state was made for shorter windows only is read
     * anew, once (docs/decisions/0017) */
    bool replay_from_kafka;
    bool dedup; /* event.id is configured */
    int64_t commit_interval_ms;
    size_t commit_events;  /* a commit is begun after this many events */
    uint64_t commit_defer; /* commits that a changed record may wait for its own writing */
    int64_t bucket_ms;     /* 0: chosen from the shortest window and the commit interval */
    size_t cache_bytes;
    size_t ads_per_user;
    size_t value_bytes;
    int64_t slice_ms;           /* how far T moves at most between two looks at the records */
    int64_t session_timeout_ms; /* users touched before the gate opened go out again after this */
    size_t records_per_step;
    size_t work_per_step;    /* timer events handled in one step */
    int64_t expiry_hold_ms;  /* how long an expiry may wait for a change to be written with it; at
                                most a 32nd of the shortest window */
    size_t push_backlog_max; /* users waiting to be sent before records are no longer taken */
    /* Called now and then while one step takes long, so that a watchdog knows it from a hang; on
     * the pipeline's thread; NULL: not wanted. */
    void (*alive)(void *context);
    void *alive_context; /* borrowed */
    /* CPU time of the calling thread; NULL: the stages of a step are not measured. */
    int64_t (*cpu_ns)(void);
    /* Milliseconds that never go back, read in the middle of a step for which all other time
     * stands still: a step that moves T far ends soon, however slow the store is. NULL: only the
     * work in it is bounded. */
    int64_t (*step_clock_ms)(void);
};

/* The defaults of every field but windows, profile and key_pattern. */
void fcap_settings_default(struct fcap_settings *settings);

/* The ports of one pipeline; all borrowed. dead_letters may be NULL. */
struct fcap_ports {
    struct fcap_clock *clock;
    struct fcap_decoder *decoder;
    struct fcap_source *source;
    struct fcap_dead_letters *dead_letters;
    struct fcap_store *store;
    struct fcap_sink *sink;
};

struct fcap_pipeline;

/* Gives a pipeline; CONFIG when the key pattern or the windows cannot be used. */
enum fcap_status fcap_pipeline_open(const struct fcap_settings *settings,
                                    const struct fcap_ports *ports,
                                    struct fcap_pipeline **ret_pipeline,
                                    struct fcap_error *ret_error) FCAP_MUST_USE;

/* Frees; NULL is fine. Nothing is written any more. */
void fcap_pipeline_close(struct fcap_pipeline *pipeline);

/* One step; waits at most `wait_ms` for something to do. FATAL: the worker must end, and
 * fcap_pipeline_error says why. */
enum fcap_status fcap_pipeline_step(struct fcap_pipeline *pipeline, int wait_ms) FCAP_MUST_USE;

/* Whether the next step may wait a little for the sake of merging: the last one did much, left
 * nothing over, and every gate is open. What comes meanwhile is then written once for each user
 * instead of once for each event. */
bool fcap_pipeline_may_linger(const struct fcap_pipeline *pipeline);

/* Between two steps: takes the sink's answers and lets it write what it holds, without waiting. */
void fcap_pipeline_settle(struct fcap_pipeline *pipeline);

/* Steps without taking records until everything is projected and committed, all changed records
 * written, or until `deadline_ms` on the monotonic clock. TIMEOUT: something is left; a restart
 * reads it again, and a revoke before the next step waits for nothing. */
enum fcap_status fcap_pipeline_drain(struct fcap_pipeline *pipeline,
                                     int64_t deadline_ms) FCAP_MUST_USE;

/* The handler to be used where a source is served outside of step (a consumer's close). */
const struct fcap_source_handler *fcap_pipeline_handler(struct fcap_pipeline *pipeline);

/* Why the pipeline failed. Valid as long as the pipeline. */
const char *fcap_pipeline_error(const struct fcap_pipeline *pipeline);

/* Read by any thread. */
const struct fcap_counters *fcap_pipeline_counters(const struct fcap_pipeline *pipeline);
const struct fcap_delays *fcap_pipeline_delays(const struct fcap_pipeline *pipeline);

/* What a task may claim to readers (fc:meta), for metrics and /readyz. */
struct fcap_task_report {
    int32_t partition;
    bool gate_open;
    bool projecting;      /* a complete projection is under way or due */
    bool replayed;        /* under this assignment: read anew for a longer window */
    int64_t epoch;        /* 0: not known yet */
    int64_t claimed_next; /* everything below is in Redis, in projected windows; -1: no claim */
    int64_t claimed_as_of_ms;
    int64_t next_offset; /* in memory */
    int64_t committed_offset;
    int64_t end_offset;   /* seen at assignment */
    int64_t clock_ms;     /* T */
    int64_t clock_lag_ms; /* the wall clock - T */
    bool clock_held;      /* T waits for Redis TIME: the wall clock is ahead of it */
    int64_t history_ms;
    int64_t complete_since_ms;
    uint32_t ready_mask;                   /* windows that are ready, by configured index */
    int64_t ready_at_ms[FCAP_WINDOWS_MAX]; /* when each is, if nothing else is lost; NONE: always */
    uint32_t projected_mask;               /* windows that the connected Redis holds completely */
    size_t ads;
    size_t open_events;
    uint64_t commit;          /* number of the newest encoded commit */
    bool start_untrusted;     /* read from the log start: timestamps would have hidden events */
    uint64_t gaps;            /* met under this assignment */
    struct fcap_gap last_gap; /* the newest of them */
    struct fcap_gaps lost;    /* what windows have not passed yet, from earlier assignments too */
};

/* Reports each task; call on the worker's thread. */
void fcap_pipeline_report(struct fcap_pipeline *pipeline,
                          void (*visitor)(void *context, const struct fcap_task_report *report),
                          void *context);

/* Sizes now, for metrics and the memory budget. */
struct fcap_pipeline_sizes {
    size_t cache_bytes;
    size_t cache_users;
    size_t dirty_users;
    size_t push_backlog;
    size_t flights;
    size_t commits_in_flight;
    size_t open_events;
    size_t tasks;
    size_t ads_bytes;
    bool backpressure; /* the last step took no records */
    const char *stall; /* why, or NULL; a literal */
};
void fcap_pipeline_sizes(const struct fcap_pipeline *pipeline,
                         struct fcap_pipeline_sizes *ret_sizes);

/* The counts of one user as the engine has them now, for inspect and for tests: JSON text of one
 * window as it would be pushed. False when the partition is not assigned here. */
bool fcap_pipeline_inspect(struct fcap_pipeline *pipeline, int32_t partition,
                           struct fcap_bytes user, size_t window, struct fcap_buffer *buffer);

#endif
