#include "fcap/metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum unit { COUNT, BYTES, MS };

/* The tables of the headers, as data. */
struct family {
    const char *name;
    const char *type;
    const char *help;
    enum unit unit;
    size_t offset; /* in the struct that holds it */
};

static const struct family counter_families[] = {
#define X(name, text)                                                                              \
    {"fcapd_" #name "_total", "counter", text, COUNT, offsetof(struct fcap_counters, name)},
    FCAP_COUNTER_LIST(X)
#undef X
};

static const struct family gauge_families[] = {
#define X(name, unit, text)                                                                        \
    {"fcapd_" #name, "gauge", text, unit, offsetof(struct fcap_gauges, name)},
    FCAP_GAUGE_LIST(X)
#undef X
};

static const struct family histogram_families[] = {
#define X(name, text)                                                                              \
    {"fcapd_" #name, "histogram", text, MS, offsetof(struct fcap_worker_metrics, name)},
    FCAP_HISTOGRAM_LIST(X)
#undef X
};

static const struct family delay_families[] = {
#define X(name, text) {"fcapd_" #name, "histogram", text, MS, offsetof(struct fcap_delays, name)},
    FCAP_DELAY_LIST(X)
#undef X
};

static const struct family stages = {
    "fcapd_stage_cpu_seconds_total", "counter",
    "CPU time of the worker's thread by stage of its steps; one step of 16 is measured, for all",
    MS, 0};

/* Those of the process have no worker; the page fills them by hand. */
enum process_family { BUILD, START, READY, DROPPED };
static const struct family process_families[] = {
    [BUILD] = {"fcapd_build_info", "gauge", "1; the labels tell version and profile", COUNT, 0},
    [START] = {"fcapd_start_time_seconds", "gauge", "Unix time of the process's start", MS, 0},
    [READY] = {"fcapd_ready", "gauge", "1 when /readyz answers 200", COUNT, 0},
    [DROPPED] = {"fcapd_log_lines_dropped_total", "counter",
                 "log lines that standard error did not take", COUNT, 0},
};

static const struct family rejected = {"fcapd_records_rejected_total", "counter",
                                       "records that changed no count, by reason", COUNT, 0};

static const struct family gaps = {"fcapd_gaps_total", "counter",
                                   "spans of the log that were lost, by kind", COUNT, 0};

#define COUNT_OF(table) (sizeof(table) / sizeof((table)[0]))

/* --- what workers write --------------------------------------------------------------------- */

void fcap_gauges_add_task(struct fcap_gauges *gauges, const struct fcap_task_report *report)
{
    gauges->partitions++;
    gauges->gates_open += report->gate_open;
    gauges->projections += report->projecting;
    gauges->clocks_held += report->clock_held;
    if (report->clock_lag_ms > gauges->clock_lag_seconds) {
        gauges->clock_lag_seconds = report->clock_lag_ms;
    }
    if (report->end_offset > report->next_offset) {
        gauges->records_to_gate += report->end_offset - report->next_offset;
    }
    gauges->ads += (int64_t)report->ads;
}

void fcap_gauges_set_sizes(struct fcap_gauges *gauges, const struct fcap_pipeline_sizes *sizes)
{
    gauges->open_events = (int64_t)sizes->open_events;
    gauges->ads_bytes = (int64_t)sizes->ads_bytes;
    gauges->cache_bytes = (int64_t)sizes->cache_bytes;
    gauges->cache_users = (int64_t)sizes->cache_users;
    gauges->dirty_users = (int64_t)sizes->dirty_users;
    gauges->push_backlog = (int64_t)sizes->push_backlog;
    gauges->pushes_in_flight = (int64_t)sizes->flights;
    gauges->commits_in_flight = (int64_t)sizes->commits_in_flight;
    gauges->backpressure = sizes->backpressure;
    gauges->stalled = sizes->stall != NULL;
}

void fcap_worker_metrics_publish(struct fcap_worker_metrics *metrics,
                                 const struct fcap_counters *counters,
                                 const struct fcap_gauges *gauges)
{
#define X(name, text) __atomic_store_n(&metrics->counters.name, counters->name, __ATOMIC_RELAXED);
    FCAP_COUNTER_LIST(X)
#undef X
    for (int reason = 0; reason < FCAP_REJECT_COUNT; reason++) {
        __atomic_store_n(&metrics->counters.rejects[reason], counters->rejects[reason],
                         __ATOMIC_RELAXED);
    }
    for (int kind = 0; kind < FCAP_GAP_KIND_COUNT; kind++) {
        __atomic_store_n(&metrics->counters.gaps[kind], counters->gaps[kind], __ATOMIC_RELAXED);
    }
#define X(name, unit, text) __atomic_store_n(&metrics->gauges.name, gauges->name, __ATOMIC_RELAXED);
    FCAP_GAUGE_LIST(X)
#undef X
}

static const int64_t bounds_us[] = {
#define X(bound_us, text) bound_us,
    FCAP_HISTOGRAM_BOUNDS(X)
#undef X
};

static const char *const bound_texts[] = {
#define X(bound_us, text) text,
    FCAP_HISTOGRAM_BOUNDS(X)
#undef X
};

void fcap_histogram_observe(struct fcap_histogram *histogram, int64_t value_us)
{
    size_t bucket = 0;
    while (bucket < FCAP_HISTOGRAM_BOUNDS_COUNT && value_us > bounds_us[bucket]) {
        bucket++;
    }
    FCAP_COUNT(histogram->counts[bucket], 1);
    FCAP_COUNT(histogram->sum_us, value_us > 0 ? value_us : 0);
}

/* --- the text format ------------------------------------------------------------------------ */

/* Backslash and line feed are escaped, in label values the quote too. */
static void put_escaped(struct fcap_buffer *page, const char *text, bool is_label)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\') {
            fcap_buffer_put_text(page, "\\\\");
        } else if (*text == '\n') {
            fcap_buffer_put_text(page, "\\n");
        } else if (*text == '"' && is_label) {
            fcap_buffer_put_text(page, "\\\"");
        } else {
            fcap_buffer_put_u8(page, (uint8_t)*text);
        }
    }
}

void fcap_metrics_family(struct fcap_buffer *page, const char *name, const char *type,
                         const char *help)
{
    fcap_buffer_put_text(page, "# HELP ");
    fcap_buffer_put_text(page, name);
    fcap_buffer_put_text(page, " ");
    put_escaped(page, help, false);
    fcap_buffer_put_text(page, "\n# TYPE ");
    fcap_buffer_put_text(page, name);
    fcap_buffer_put_text(page, " ");
    fcap_buffer_put_text(page, type);
    fcap_buffer_put_text(page, "\n");
}

static void put_name(struct fcap_buffer *page, const char *name, const char *suffix,
                     const struct fcap_metrics_label *labels, size_t labels_count)
{
    fcap_buffer_put_text(page, name);
    fcap_buffer_put_text(page, suffix);
    for (size_t i = 0; i < labels_count; i++) {
        fcap_buffer_put_text(page, i == 0 ? "{" : ",");
        fcap_buffer_put_text(page, labels[i].name);
        fcap_buffer_put_text(page, "=\"");
        put_escaped(page, labels[i].value, true);
        fcap_buffer_put_text(page, labels_count == i + 1 ? "\"}" : "\"");
    }
    fcap_buffer_put_text(page, " ");
}

static void put_unsigned(struct fcap_buffer *page, uint64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64 "\n", value); /* It fits. */
    fcap_buffer_put_text(page, text);
}

/* `value` / 10^digits, exactly. */
static void put_decimal(struct fcap_buffer *page, int64_t value, uint64_t unit, int digits)
{
    char text[48];
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    (void)snprintf(text, sizeof text, "%s%" PRIu64 ".%0*" PRIu64 "\n", value < 0 ? "-" : "",
                   size / unit, digits, size % unit); /* It fits. */
    fcap_buffer_put_text(page, text);
}

void fcap_metrics_sample(struct fcap_buffer *page, const char *name,
                         const struct fcap_metrics_label *labels, size_t labels_count,
                         uint64_t value)
{
    put_name(page, name, "", labels, labels_count);
    put_unsigned(page, value);
}

void fcap_metrics_sample_ms(struct fcap_buffer *page, const char *name,
                            const struct fcap_metrics_label *labels, size_t labels_count,
                            int64_t value_ms)
{
    put_name(page, name, "", labels, labels_count);
    put_decimal(page, value_ms, 1000, 3);
}

/* --- the page ------------------------------------------------------------------------------- */

static struct fcap_metrics_label label_of_worker(size_t worker, char *text, size_t room)
{
    (void)snprintf(text, room, "%zu", worker); /* It fits. */
    return (struct fcap_metrics_label){"worker", text};
}

static void head_of(struct fcap_buffer *page, const struct family *family)
{
    fcap_metrics_family(page, family->name, family->type, family->help);
}

static void put_process(struct fcap_buffer *page, const struct fcap_metrics_process *process)
{
    const struct fcap_metrics_label labels[2] = {{"version", process->version},
                                                 {"profile", process->profile}};
    head_of(page, &process_families[BUILD]);
    fcap_metrics_sample(page, process_families[BUILD].name, labels, 2, 1);
    head_of(page, &process_families[START]);
    fcap_metrics_sample_ms(page, process_families[START].name, NULL, 0, process->start_ms);
    head_of(page, &process_families[READY]);
    fcap_metrics_sample(page, process_families[READY].name, NULL, 0, process->ready);
    head_of(page, &process_families[DROPPED]);
    fcap_metrics_sample(page, process_families[DROPPED].name, NULL, 0, process->log_lines_dropped);
}

static void put_rejected(struct fcap_buffer *page, const struct fcap_counters *values,
                         struct fcap_metrics_label worker)
{
    for (int reason = FCAP_REJECT_NONE + 1; reason < FCAP_REJECT_COUNT; reason++) {
        const struct fcap_metrics_label labels[2] = {
            worker, {"reason", fcap_reject_label((enum fcap_reject)reason)}};
        fcap_metrics_sample(page, rejected.name, labels, 2,
                            fcap_counter_read(&values->rejects[reason]));
    }
}

static void put_gaps(struct fcap_buffer *page, const struct fcap_counters *values,
                     struct fcap_metrics_label worker)
{
    for (int kind = 0; kind < FCAP_GAP_KIND_COUNT; kind++) {
        const struct fcap_metrics_label labels[2] = {
            worker, {"kind", fcap_gap_kind_name((enum fcap_gap_kind)kind)}};
        fcap_metrics_sample(page, gaps.name, labels, 2, fcap_counter_read(&values->gaps[kind]));
    }
}

/* The two kinds of histograms: how many bounds, their texts, and the unit of the sum. */
struct buckets {
    size_t bounds_count;
    void (*text_of)(size_t bucket, char *text, size_t room);
    uint64_t unit;
    int digits;
};

static void text_of_bound(size_t bucket, char *text, size_t room)
{
    (void)snprintf(text, room, "%s", bound_texts[bucket]); /* It fits. */
}

static void text_of_delay_bound(size_t bucket, char *text, size_t room)
{
    int64_t bound_ms = fcap_delay_bound_ms(bucket);
    (void)snprintf(text, room, "%" PRId64 ".%03" PRId64, bound_ms / 1000,
                   bound_ms % 1000); /* It fits. */
}

static const struct buckets histogram_buckets = {FCAP_HISTOGRAM_BOUNDS_COUNT, text_of_bound,
                                                 1000000, 6};
static const struct buckets delay_buckets = {FCAP_DELAY_BUCKETS, text_of_delay_bound, 1000, 3};

/* `counts` holds one more than there are bounds. */
static void put_histogram(struct fcap_buffer *page, const char *name, const struct buckets *buckets,
                          const uint64_t *counts, const uint64_t *sum,
                          struct fcap_metrics_label worker)
{
    /* The worker may add meanwhile: sum and buckets are then a few values apart. */
    uint64_t sum_now = fcap_counter_read(sum);
    uint64_t count = 0;
    for (size_t i = 0; i <= buckets->bounds_count; i++) {
        char bound[24] = "+Inf";
        if (i < buckets->bounds_count) {
            buckets->text_of(i, bound, sizeof bound);
        }
        const struct fcap_metrics_label labels[2] = {worker, {"le", bound}};
        count += fcap_counter_read(&counts[i]);
        put_name(page, name, "_bucket", labels, 2);
        put_unsigned(page, count);
    }
    put_name(page, name, "_sum", &worker, 1);
    put_decimal(page, (int64_t)sum_now, buckets->unit, buckets->digits);
    put_name(page, name, "_count", &worker, 1);
    put_unsigned(page, count);
}

/* Delays, and the stages' CPU time. */
static void put_all_delays(struct fcap_buffer *page,
                           const struct fcap_worker_metrics *const *workers, size_t count)
{
    char text[24];
    for (size_t i = 0; i < COUNT_OF(delay_families); i++) {
        head_of(page, &delay_families[i]);
        for (size_t k = 0; k < count; k++) {
            const char *place = (const char *)&workers[k]->delays + delay_families[i].offset;
            const struct fcap_delay_histogram *delays = (const void *)place;
            put_histogram(page, delay_families[i].name, &delay_buckets, delays->counts,
                          &delays->sum_ms, label_of_worker(k, text, sizeof text));
        }
    }
    head_of(page, &stages);
    for (size_t k = 0; k < count; k++) {
        for (int stage = 0; stage < FCAP_STAGE_COUNT; stage++) {
            const struct fcap_metrics_label labels[2] = {
                label_of_worker(k, text, sizeof text),
                {"stage", fcap_stage_name((enum fcap_stage)stage)}};
            uint64_t cpu_ns = fcap_counter_read(&workers[k]->delays.stage_cpu_ns[stage]);
            put_name(page, stages.name, "", labels, 2);
            put_decimal(page, (int64_t)(cpu_ns / 1000), 1000000, 6);
        }
    }
}

/* One sample of a family for one worker. */
static void put_worker(struct fcap_buffer *page, const struct family *family,
                       const struct fcap_worker_metrics *metrics, struct fcap_metrics_label worker)
{
    if (strcmp(family->type, "histogram") == 0) {
        const char *place = (const char *)metrics + family->offset;
        const struct fcap_histogram *histogram = (const void *)place;
        put_histogram(page, family->name, &histogram_buckets, histogram->counts, &histogram->sum_us,
                      worker);
    } else if (strcmp(family->type, "gauge") == 0) {
        const char *place = (const char *)&metrics->gauges + family->offset;
        int64_t value = __atomic_load_n((const int64_t *)(const void *)place, __ATOMIC_RELAXED);
        if (family->unit == MS) {
            fcap_metrics_sample_ms(page, family->name, &worker, 1, value);
        } else {
            fcap_metrics_sample(page, family->name, &worker, 1, (uint64_t)value);
        }
    } else if (family == &rejected) {
        put_rejected(page, &metrics->counters, worker);
    } else if (family == &gaps) {
        put_gaps(page, &metrics->counters, worker);
    } else {
        const char *place = (const char *)&metrics->counters + family->offset;
        fcap_metrics_sample(page, family->name, &worker, 1,
                            fcap_counter_read((const uint64_t *)(const void *)place));
    }
}

/* The format wants all samples of a family together, so workers are the inner loop. */
static void put_families(struct fcap_buffer *page, const struct family *families, size_t count,
                         const struct fcap_worker_metrics *const *workers, size_t workers_count)
{
    for (size_t i = 0; i < count; i++) {
        head_of(page, &families[i]);
        for (size_t worker = 0; worker < workers_count; worker++) {
            char text[24];
            put_worker(page, &families[i], workers[worker],
                       label_of_worker(worker, text, sizeof text));
        }
    }
}

void fcap_metrics_page(const struct fcap_metrics_process *process,
                       const struct fcap_worker_metrics *const *workers, size_t workers_count,
                       struct fcap_buffer *page)
{
    put_process(page, process);
    put_families(page, counter_families, COUNT_OF(counter_families), workers, workers_count);
    put_families(page, &rejected, 1, workers, workers_count);
    put_families(page, &gaps, 1, workers, workers_count);
    put_families(page, gauge_families, COUNT_OF(gauge_families), workers, workers_count);
    put_families(page, histogram_families, COUNT_OF(histogram_families), workers, workers_count);
    put_all_delays(page, workers, workers_count);
}
