/* The metrics page: Prometheus text format 0.0.4, made from tables.
 *
 * Always holds: every family is one line of a table (here, and FCAP_COUNTER_LIST in counters.h),
 * from which the page comes, and docs/METRICS.md from the page; names start with fcapd_, units are
 * base units, and no label carries a user. Thread rule: one writer for each worker's metrics (its
 * thread); the page may be made by any thread at any time, and each number in it is whole. */
#ifndef FCAP_METRICS_H
#define FCAP_METRICS_H

#include "fcap/bytes.h"
#include "fcap/counters.h"
#include "fcap/delays.h"
#include "fcap/pipeline.h"

#define FCAP_METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* --- gauges of one worker -------------------------------------------------------------------- */

/* COUNT and BYTES are printed as they are and never below 0; MS is printed as seconds. */
/* clang-format off */
#define FCAP_GAUGE_LIST(X)                                                                       \
    X(partitions,              COUNT, "partitions assigned to the worker")                       \
    X(gates_open,              COUNT, "of them, those whose values may go to Redis")             \
    X(projections,             COUNT, "of them, those with a complete projection under way or due") \
    X(clocks_held,             COUNT, "of them, those whose clock waits for Redis TIME")         \
    X(clock_lag_seconds,       MS,    "wall clock minus the partition's clock T; the largest")   \
    X(records_to_gate,         COUNT, "records up to the end offset seen at assignment that are not read yet") \
    X(open_events,             COUNT, "events of the commit that is being filled")               \
    X(ads,                     COUNT, "interned ads")                                            \
    X(ads_bytes,               BYTES, "memory of interned ads")                                  \
    X(cache_bytes,             BYTES, "memory of decoded user records")                          \
    X(cache_users,             COUNT, "decoded user records")                                    \
    X(dirty_users,             COUNT, "of them, those with a change that is not written yet")    \
    X(push_backlog,            COUNT, "users with values that wait to be sent to Redis")         \
    X(pushes_in_flight,        COUNT, "commands sent to Redis and not answered")                 \
    X(commits_in_flight,       COUNT, "commits encoded and not written")                         \
    X(backpressure,            COUNT, "1 when the last step took no records")                    \
    X(stalled,                 COUNT, "1 when a dependency holds the worker up")
/* clang-format on */

struct fcap_gauges {
#define X(name, unit, text) int64_t name;
    FCAP_GAUGE_LIST(X)
#undef X
};

/* Adds what one task reports; start from zeroes. */
void fcap_gauges_add_task(struct fcap_gauges *gauges, const struct fcap_task_report *report);

/* Sets what the pipeline's sizes tell. */
void fcap_gauges_set_sizes(struct fcap_gauges *gauges, const struct fcap_pipeline_sizes *sizes);

/* --- histograms of one worker ---------------------------------------------------------------- */

/* clang-format off */
#define FCAP_HISTOGRAM_LIST(X)                                                                   \
    X(step_seconds, "time of one pipeline step, the wait for records included")

/* Upper bounds in microseconds and as they are printed, in seconds; +Inf follows. */
#define FCAP_HISTOGRAM_BOUNDS(X)                                                                 \
    X(100, "0.0001") X(500, "0.0005") X(1000, "0.001") X(5000, "0.005") X(10000, "0.01")         \
    X(50000, "0.05") X(100000, "0.1") X(500000, "0.5") X(1000000, "1") X(5000000, "5")           \
    X(10000000, "10") X(60000000, "60")
/* clang-format on */

enum {
#define X(bound_us, text) +1
    FCAP_HISTOGRAM_BOUNDS_COUNT = 0 FCAP_HISTOGRAM_BOUNDS(X)
#undef X
};

struct fcap_histogram {
    uint64_t counts[FCAP_HISTOGRAM_BOUNDS_COUNT + 1]; /* each bucket alone; the last is +Inf */
    uint64_t sum_us;
};

/* Counts one value; only the owning thread may. Below 0 counts as 0. */
void fcap_histogram_observe(struct fcap_histogram *histogram, int64_t value_us);

/* --- one worker ------------------------------------------------------------------------------ */

struct fcap_worker_metrics {
    struct fcap_counters counters; /* a copy of its pipeline's */
    struct fcap_gauges gauges;
#define X(name, text) struct fcap_histogram name;
    FCAP_HISTOGRAM_LIST(X)
#undef X
    struct fcap_delays delays; /* FCAP_DELAY_LIST, as histograms in seconds, and the stages */
};

/* Copies counters and gauges; called by the worker about once a second, so that the page never
 * looks into a pipeline. Zero-initialised metrics are fine before. */
void fcap_worker_metrics_publish(struct fcap_worker_metrics *metrics,
                                 const struct fcap_counters *counters,
                                 const struct fcap_gauges *gauges);

/* --- the page -------------------------------------------------------------------------------- */

struct fcap_metrics_process {
    const char *version;
    const char *profile;
    int64_t start_ms; /* wall clock */
    bool ready;
    uint64_t log_lines_dropped;
};

/* Appends the page: the process, then every family of the tables with one sample a worker. */
void fcap_metrics_page(const struct fcap_metrics_process *process,
                       const struct fcap_worker_metrics *const *workers, size_t workers_count,
                       struct fcap_buffer *page);

/* For families that others add to the page. */
struct fcap_metrics_label {
    const char *name;
    const char *value; /* any text; escaped here */
};

/* Appends HELP and TYPE; once for each family, before its samples. */
void fcap_metrics_family(struct fcap_buffer *page, const char *name, const char *type,
                         const char *help);

/* Appends one sample of a whole number, or of milliseconds as seconds. */
void fcap_metrics_sample(struct fcap_buffer *page, const char *name,
                         const struct fcap_metrics_label *labels, size_t labels_count,
                         uint64_t value);
void fcap_metrics_sample_ms(struct fcap_buffer *page, const char *name,
                            const struct fcap_metrics_label *labels, size_t labels_count,
                            int64_t value_ms);

#endif
