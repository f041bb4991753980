#include "page.h"

#include "compose.h"
#include "fcap/assert.h"
#include "fcap/log.h"
#include "readiness.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

enum scale {
    AS_IS,
    MILLISECONDS, /* printed as seconds */
    MICROSECONDS, /* printed as seconds */
};

/* One family whose number is a 64-bit member of some struct. */
struct family {
    const char *name;
    const char *type;
    const char *help;
    size_t offset;
    enum scale scale;
};

/* clang-format off */
#define VIEW(member) offsetof(struct fcap_worker_view, member)
static const struct family worker_families[] = {
#define X(name, text) {"fcapd_redis_" #name "_total", "counter", text, VIEW(sink.counters.name), AS_IS},
    FCAP_SINK_REDIS_COUNTER_LIST(X)
#undef X
    {"fcapd_redis_commands_in_flight", "gauge", "commands sent or queued without an answer", VIEW(sink.in_flight), AS_IS},
    {"fcapd_redis_unsent_bytes", "gauge", "bytes queued for Redis and not yet written", VIEW(sink.unsent_bytes), AS_IS},
    {"fcapd_clock_offset_seconds", "gauge", "wall clock minus Redis TIME", VIEW(clock_offset_ms), MILLISECONDS},
    {"fcapd_kafka_records_total", "counter", "records delivered by the client library", VIEW(source.records), AS_IS},
    {"fcapd_kafka_bytes_total", "counter", "bytes of their keys and values", VIEW(source.bytes), AS_IS},
    {"fcapd_kafka_dropped_total", "counter", "records delivered twice by the client library and dropped", VIEW(source.dropped), AS_IS},
    {"fcapd_kafka_rebalances_total", "counter", "rebalances of the group, empty ones too", VIEW(source.rebalances), AS_IS},
    {"fcapd_kafka_partitions_lost_total", "counter", "partitions taken away without consent", VIEW(source.lost), AS_IS},
    {"fcapd_kafka_stalls_total", "counter", "times that a partition was not fetched for kafka.stall_timeout and was assigned anew", VIEW(source.stalls), AS_IS},
    {"fcapd_kafka_rejoins_total", "counter", "times that the member left the group and joined again because partitions had no owner", VIEW(source.rejoins), AS_IS},
    {"fcapd_kafka_errors_total", "counter", "errors reported by the client library; most are temporary", VIEW(source.errors), AS_IS},
    {"fcapd_kafka_offsets_published_total", "counter", "progress offsets that the broker took", VIEW(source.published), AS_IS},
    {"fcapd_kafka_offsets_failed_total", "counter", "progress offsets that it did not take", VIEW(source.publish_errors), AS_IS},
    {"fcapd_dead_letters_written_total", "counter", "dead letters that are durable", VIEW(letters.written), AS_IS},
    {"fcapd_dead_letters_dropped_total", "counter", "dead letters lost by policy", VIEW(letters.dropped), AS_IS},
    {"fcapd_dead_letters_retried_total", "counter", "tries that failed and are made again", VIEW(letters.retried), AS_IS},
    {"fcapd_dead_letters_pending", "gauge", "dead letters that are not durable yet", VIEW(letters.pending), AS_IS},
};

#define STORE(member, name, type, scale, help) \
    {"fcapd_store_" name, type, help, offsetof(struct fcap_store_metrics, member), scale}
static const struct family store_families[] = {
    STORE(commits, "commits_total", "counter", AS_IS, "batches written"),
    STORE(commits_failed, "commits_failed_total", "counter", AS_IS, "batches whose write failed"),
    STORE(sections_refused, "sections_refused_total", "counter", AS_IS, "sections skipped because their assignment had ended"),
    STORE(entries_written, "entries_written_total", "counter", AS_IS, "changes written"),
    STORE(write_us_total, "write_seconds_total", "counter", MICROSECONDS, "time spent writing batches"),
    STORE(write_us_max, "write_seconds_max", "gauge", MICROSECONDS, "slowest batch"),
    STORE(syncs, "syncs_total", "counter", AS_IS, "times that commits were made durable"),
    STORE(syncs_failed, "syncs_failed_total", "counter", AS_IS, "times that this failed"),
    STORE(drops, "drops_total", "counter", AS_IS, "times that files of expired timers were dropped"),
    STORE(drops_failed, "drops_failed_total", "counter", AS_IS, "times that this failed"),
    STORE(sweeps, "sweeps_total", "counter", AS_IS, "compactions of expired timers that lingered in level 0"),
    STORE(dropped_through_ms, "dropped_through_seconds", "gauge", MILLISECONDS, "timers of buckets below this time are gone"),
    STORE(wal_bytes, "wal_bytes_total", "counter", AS_IS, "bytes written to the log"),
    STORE(flush_bytes, "flush_bytes_total", "counter", AS_IS, "bytes written by flushes"),
    STORE(compaction_read_bytes, "compaction_read_bytes_total", "counter", AS_IS, "bytes read by compactions"),
    STORE(compaction_write_bytes, "compaction_write_bytes_total", "counter", AS_IS, "bytes written by compactions"),
    STORE(stall_us, "stall_seconds_total", "counter", MICROSECONDS, "time that writes were held back"),
    STORE(block_cache_hits, "block_cache_hits_total", "counter", AS_IS, "blocks found in the cache"),
    STORE(block_cache_misses, "block_cache_misses_total", "counter", AS_IS, "blocks not found in the cache"),
    STORE(write_stopped, "write_stopped", "gauge", AS_IS, "1 while RocksDB takes no writes"),
    STORE(write_waits_us, "write_waits_seconds", "gauge", MICROSECONDS, "time that the write under way has taken"),
    STORE(sync_failing, "sync_failing", "gauge", AS_IS, "1 when commits could not be made durable the last time"),
    STORE(delayed_write_rate, "delayed_write_rate_bytes", "gauge", AS_IS, "bytes a second to which writes are slowed down; 0: not"),
    STORE(level0_files, "level0_files", "gauge", AS_IS, "level-0 files of all families"),
    STORE(pending_compaction_bytes, "pending_compaction_bytes", "gauge", AS_IS, "bytes that compaction is behind"),
    STORE(memtable_bytes, "memtable_bytes", "gauge", AS_IS, "memory in memtables"),
    STORE(table_reader_bytes, "table_reader_bytes", "gauge", AS_IS, "memory in open tables outside the block cache"),
    STORE(block_cache_bytes, "block_cache_bytes", "gauge", AS_IS, "memory in the block cache"),
    STORE(block_cache_pinned_bytes, "block_cache_pinned_bytes", "gauge", AS_IS, "of it pinned"),
    STORE(background_errors, "background_errors_total", "counter", AS_IS, "failed flushes and compactions"),
    STORE(log_files_bytes, "log_files_bytes", "gauge", AS_IS, "size of the log files on disk"),
    STORE(open_files_max, "open_files_max", "gauge", AS_IS, "bound on open files in force"),
};
#define X(name, text) +1
_Static_assert(COUNT(store_families) == 0 FCAP_STORE_METRIC_LIST(X), "every metric of the store");
#undef X

#define TASK(member) offsetof(struct fcap_board_task, member)
static const struct family partition_families[] = {
    {"fcapd_partition_lag_records", "gauge", "records in the log that are not read yet; -1: not known", TASK(lag), AS_IS},
    {"fcapd_partition_next_offset", "gauge", "next offset to be read", TASK(report.next_offset), AS_IS},
    {"fcapd_partition_committed_offset", "gauge", "next offset of the newest written commit", TASK(report.committed_offset), AS_IS},
    {"fcapd_partition_clock_lag_seconds", "gauge", "wall clock minus the partition's clock T", TASK(report.clock_lag_ms), MILLISECONDS},
    {"fcapd_partition_epoch", "gauge", "number of the assignment among all owners", TASK(report.epoch), AS_IS},
    {"fcapd_partition_stuck", "gauge", "1 while the partition is not fetched although its end is ahead", TASK(is_stuck), AS_IS},
    {"fcapd_partition_gaps", "gauge", "gaps in its log met since it was assigned", TASK(report.gaps), AS_IS},
};
/* clang-format on */

/* clang-format off */
#define CHECKPOINT(member, name, type, scale, help) \
    {"fcapd_checkpoint_" name, type, help, offsetof(struct fcap_checkpoint_metrics, member), scale}
static const struct family checkpoint_families[] = {
    CHECKPOINT(checkpoints, "completed_total", "counter", AS_IS, "checkpoints completed"),
    CHECKPOINT(number, "number", "gauge", AS_IS, "number of the newest complete checkpoint; 0: none yet"),
    CHECKPOINT(duration_ms, "duration_seconds", "gauge", MILLISECONDS, "how long the newest one took to complete"),
    CHECKPOINT(bytes, "bytes", "gauge", AS_IS, "changelog and manifest bytes written for it"),
    CHECKPOINT(bytes_total, "bytes_total", "counter", AS_IS, "changelog and manifest bytes written"),
    CHECKPOINT(age_ms, "age_seconds", "gauge", MILLISECONDS, "how old the state is that a restore would give; since the start while there is none"),
    CHECKPOINT(snapshots, "snapshots_total", "counter", AS_IS, "snapshots completed"),
    CHECKPOINT(snapshot_duration_ms, "snapshot_duration_seconds", "gauge", MILLISECONDS, "how long the newest one took to complete"),
    CHECKPOINT(snapshot_bytes, "snapshot_bytes", "gauge", AS_IS, "bytes of files sent for it"),
    CHECKPOINT(snapshot_bytes_total, "snapshot_bytes_total", "counter", AS_IS, "bytes of files sent for snapshots"),
    CHECKPOINT(snapshot_age_ms, "snapshot_age_seconds", "gauge", MILLISECONDS, "age of the newest complete snapshot; since the start while there is none"),
    CHECKPOINT(snapshot_running, "snapshot_running", "gauge", AS_IS, "1 while a snapshot is taken or sent"),
    CHECKPOINT(materialization_behind, "materialization_behind", "gauge", AS_IS, "1 while the newest snapshot is older than two times materialization.interval"),
    CHECKPOINT(files_sent, "files_sent_total", "counter", AS_IS, "files of snapshots sent"),
    CHECKPOINT(files_kept, "files_kept_total", "counter", AS_IS, "files of snapshots that were kept already"),
    CHECKPOINT(segments, "segments", "gauge", AS_IS, "segments of the changelog that are kept"),
    CHECKPOINT(changelog_bytes, "changelog_bytes", "gauge", AS_IS, "bytes of them"),
    CHECKPOINT(holes, "holes_total", "counter", AS_IS, "times that changes went past the changelog, so that a snapshot had to mend it"),
    CHECKPOINT(queue_bytes, "queue_bytes", "gauge", AS_IS, "changes that wait to be written to the changelog"),
    CHECKPOINT(failing, "failing", "gauge", AS_IS, "1 while tries fail"),
    CHECKPOINT(objects_removed, "objects_removed_total", "counter", AS_IS, "objects removed because no checkpoint needs them"),
    CHECKPOINT(scrub_objects, "scrub_objects_total", "counter", AS_IS, "kept objects that were read back and are whole"),
    CHECKPOINT(scrub_bytes, "scrub_bytes_total", "counter", AS_IS, "bytes of kept objects that were read back"),
    CHECKPOINT(scrub_damaged, "scrub_damaged_total", "counter", AS_IS, "kept objects that were found damaged or missing; a snapshot replaces them"),
    CHECKPOINT(stopped, "stopped", "gauge", AS_IS, "1 when checkpoints have ended until the next start: another writer, or another version's checkpoints"),
};
/* clang-format on */

/* clang-format off */
#define ADOPTION(member, name, type, scale, help) \
    {"fcapd_adoption_" name, type, help, offsetof(struct fcap_adopter_metrics, member), scale}
static const struct family adoption_families[] = {
    ADOPTION(cancelled, "cancelled_total", "counter", AS_IS, "partitions that left, or were waited for in vain, while their state was looked for"),
    ADOPTION(not_taken, "not_taken_total", "counter", AS_IS, "checkpoints that were damaged, or held no state of the partition that could go on"),
    ADOPTION(waiting, "waiting", "gauge", AS_IS, "partitions whose state is being looked for in checkpoint.directory"),
    ADOPTION(duration_ms, "duration_seconds", "gauge", MILLISECONDS, "how long the newest state of a partition took to come from a checkpoint"),
    ADOPTION(bytes_total, "bytes_total", "counter", AS_IS, "bytes of partitions that came from checkpoints"),
};
/* clang-format on */

static void put_sample(struct fcap_buffer *page, const struct family *family, const void *base,
                       const struct fcap_metrics_label *labels, size_t count)
{
    int64_t value;
    memcpy(&value, (const char *)base + family->offset, sizeof value);
    if (family->scale == AS_IS && value >= 0) {
        fcap_metrics_sample(page, family->name, labels, count, (uint64_t)value);
    } else if (family->scale == AS_IS) {
        /* A sample below zero only says "not known": -1000 ms are -1. */
        fcap_metrics_sample_ms(page, family->name, labels, count, value * 1000);
    } else {
        int64_t value_ms = family->scale == MICROSECONDS ? value / 1000 : value;
        fcap_metrics_sample_ms(page, family->name, labels, count, value_ms);
    }
}

static void put_workers(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    for (size_t i = 0; i < COUNT(worker_families); i++) {
        const struct family *family = &worker_families[i];
        fcap_metrics_family(page, family->name, family->type, family->help);
        for (size_t k = 0; k < settings->view_count; k++) {
            char worker[24];
            (void)snprintf(worker, sizeof worker, "%zu", k); /* Always fits. */
            struct fcap_metrics_label label = {"worker", worker};
            put_sample(page, family, &settings->views[k], &label, 1);
        }
    }
}

/* Promises that are not kept, for alerts: also when redis.degraded: allow goes on without them. */
static void put_redis_promises(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    fcap_metrics_family(page, "fcapd_redis_refused", "gauge",
                        "1 when account or server refuse a command that a promise needs");
    for (size_t k = 0; k < settings->view_count; k++) {
        char worker[24];
        (void)snprintf(worker, sizeof worker, "%zu", k);
        for (unsigned i = 0; i < FCAP_SINK_REDIS_NEED_COUNT; i++) {
            struct fcap_metrics_label labels[] = {
                {"worker", worker},
                {"command", fcap_sink_redis_need_command((enum fcap_sink_redis_need)i)},
            };
            fcap_metrics_sample(page, "fcapd_redis_refused", labels, 2,
                                settings->views[k].sink.refused_needs >> i & 1);
        }
    }
    fcap_metrics_family(page, "fcapd_redis_evicts", "gauge",
                        "1 when maxmemory-policy is known and not noeviction: counts can vanish");
    for (size_t k = 0; k < settings->view_count; k++) {
        char worker[24];
        (void)snprintf(worker, sizeof worker, "%zu", k);
        struct fcap_metrics_label label = {"worker", worker};
        fcap_metrics_sample(page, "fcapd_redis_evicts", &label, 1, settings->views[k].sink.evicts);
    }
}

static void put_redis(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    fcap_metrics_family(page, "fcapd_redis_ready", "gauge", "1 while Redis takes commands");
    for (size_t k = 0; k < settings->view_count; k++) {
        char worker[24];
        (void)snprintf(worker, sizeof worker, "%zu", k);
        struct fcap_metrics_label label = {"worker", worker};
        fcap_metrics_sample(page, "fcapd_redis_ready", &label, 1,
                            settings->views[k].sink.state.ready);
    }
    fcap_metrics_family(page, "fcapd_redis_errors_total", "counter",
                        "errors of Redis by kind; docs/OPERATING.md has their cures");
    for (size_t k = 0; k < settings->view_count; k++) {
        char worker[24];
        (void)snprintf(worker, sizeof worker, "%zu", k);
        for (size_t i = 1; i < FCAP_SINK_REDIS_ERROR_COUNT; i++) {
            struct fcap_metrics_label labels[] = {
                {"worker", worker},
                {"kind", fcap_sink_redis_error_name((enum fcap_sink_redis_error)i)},
            };
            fcap_metrics_sample(page, "fcapd_redis_errors_total", labels, 2,
                                settings->views[k].sink.counters.errors[i]);
        }
    }
}

/* Visits each task of each worker. */
static void for_tasks(const struct fcap_page_settings *settings, struct fcap_buffer *page,
                      void (*put)(const struct fcap_page_settings *settings,
                                  const struct fcap_board_task *task, const void *argument,
                                  struct fcap_buffer *page),
                      const void *argument)
{
    for (size_t k = 0; k < settings->view_count; k++) {
        for (size_t i = 0; i < settings->views[k].task_count; i++) {
            put(settings, &settings->views[k].tasks[i], argument, page);
        }
    }
}

static void put_task_number(const struct fcap_page_settings *settings,
                            const struct fcap_board_task *task, const void *argument,
                            struct fcap_buffer *page)
{
    char partition[16];
    (void)settings;
    (void)snprintf(partition, sizeof partition, "%d", task->report.partition);
    struct fcap_metrics_label label = {"partition", partition};
    put_sample(page, argument, task, &label, 1);
}

static void put_task_gate(const struct fcap_page_settings *settings,
                          const struct fcap_board_task *task, const void *argument,
                          struct fcap_buffer *page)
{
    char partition[16];
    (void)settings;
    (void)argument;
    (void)snprintf(partition, sizeof partition, "%d", task->report.partition);
    struct fcap_metrics_label label = {"partition", partition};
    fcap_metrics_sample(page, "fcapd_partition_gate_open", &label, 1, task->report.gate_open);
}

static void put_task_windows(const struct fcap_page_settings *settings,
                             const struct fcap_board_task *task, const void *argument,
                             struct fcap_buffer *page)
{
    char partition[16];
    uint32_t complete = task->report.ready_mask & task->report.projected_mask;
    (void)argument;
    (void)snprintf(partition, sizeof partition, "%d", task->report.partition);
    for (size_t i = 0; i < settings->config->windows_count; i++) {
        struct fcap_metrics_label labels[] = {
            {"partition", partition},
            {"window", settings->config->windows[i].name},
        };
        fcap_metrics_sample(page, "fcapd_partition_window_complete", labels, 2, complete >> i & 1);
    }
}

/* Events up to then may be missing. */
static void put_task_since(const struct fcap_page_settings *settings,
                           const struct fcap_board_task *task, const void *argument,
                           struct fcap_buffer *page)
{
    char partition[16];
    int64_t since_ms = task->report.complete_since_ms;
    (void)settings;
    (void)snprintf(partition, sizeof partition, "%d", task->report.partition);
    struct fcap_metrics_label label = {"partition", partition};
    fcap_metrics_sample_ms(page, argument, &label, 1, since_ms == FCAP_TIME_NONE ? 0 : since_ms);
}

static void put_task_lost(const struct fcap_page_settings *settings,
                          const struct fcap_board_task *task, const void *argument,
                          struct fcap_buffer *page)
{
    char partition[16];
    (void)settings;
    (void)snprintf(partition, sizeof partition, "%d", task->report.partition);
    struct fcap_metrics_label label = {"partition", partition};
    fcap_metrics_sample(page, argument, &label, 1, task->report.lost.count);
}

static void put_windows(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    static const char complete[] = "fcapd_window_complete";
    static const char ready_at[] = "fcapd_window_ready_timestamp_seconds";
    fcap_metrics_family(page, complete, "gauge",
                        "1 when the window is complete in all partitions of the process");
    for (size_t i = 0; i < settings->config->windows_count; i++) {
        struct fcap_metrics_label label = {"window", settings->config->windows[i].name};
        fcap_metrics_sample(
            page, complete, &label, 1,
            fcap_readiness_of(settings->views, settings->view_count, i).is_complete);
    }
    fcap_metrics_family(page, ready_at, "gauge",
                        "when the last partition's history of the window is complete, if nothing "
                        "else is lost; 0: nothing was ever missing");
    for (size_t i = 0; i < settings->config->windows_count; i++) {
        struct fcap_metrics_label label = {"window", settings->config->windows[i].name};
        fcap_metrics_sample_ms(
            page, ready_at, &label, 1,
            fcap_readiness_of(settings->views, settings->view_count, i).ready_at_ms);
    }
}

static void put_partitions(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    for (size_t i = 0; i < COUNT(partition_families); i++) {
        const struct family *family = &partition_families[i];
        fcap_metrics_family(page, family->name, family->type, family->help);
        for_tasks(settings, page, put_task_number, family);
    }
    fcap_metrics_family(page, "fcapd_partition_gate_open", "gauge",
                        "1 when the partition's values may go to Redis");
    for_tasks(settings, page, put_task_gate, NULL);
    fcap_metrics_family(page, "fcapd_partition_window_complete", "gauge",
                        "1 when Redis holds the window and its history is complete");
    for_tasks(settings, page, put_task_windows, NULL);
    static const char since[] = "fcapd_partition_complete_since_timestamp_seconds";
    fcap_metrics_family(page, since, "gauge",
                        "events of up to then may be missing; 0: nothing was ever lost");
    for_tasks(settings, page, put_task_since, since);
    static const char lost[] = "fcapd_partition_lost_spans";
    fcap_metrics_family(page, lost, "gauge",
                        "lost spans of its log that the longest window still reaches back to");
    for_tasks(settings, page, put_task_lost, lost);
}

static void put_retention(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    static const char topic[] = "fcapd_kafka_retention_seconds";
    static const char needed[] = "fcapd_kafka_retention_needed_seconds";
    fcap_metrics_family(page, topic, "gauge",
                        "retention.ms of the topic when the process started; -1: for ever; 0: not "
                        "known");
    fcap_metrics_sample_ms(page, topic, NULL, 0,
                           settings->retention_ms < 0 ? -1000 : settings->retention_ms);
    fcap_metrics_family(page, needed, "gauge",
                        "what a lost state needs to be read again completely: the longest window "
                        "and limits.max_future_skew");
    fcap_metrics_sample_ms(page, needed, NULL, 0, fcap_compose_retention_ms(settings->config));
}

static void put_store(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    for (size_t i = 0; i < COUNT(store_families); i++) {
        const struct family *family = &store_families[i];
        fcap_metrics_family(page, family->name, family->type, family->help);
        put_sample(page, family, settings->store, NULL, 0);
    }
    fcap_metrics_family(page, "fcapd_store_live_bytes", "gauge", "SST files of each family");
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        struct fcap_metrics_label label = {"family", fcap_family_name((enum fcap_family)i)};
        fcap_metrics_sample(page, "fcapd_store_live_bytes", &label, 1,
                            settings->store->live_bytes[i]);
    }
}

static void put_source(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    static const char name[] = "fcapd_state_source";
    fcap_metrics_family(page, name, "gauge",
                        "1 for where the start took the state from: what lay there, that brought "
                        "forward by a changelog, a checkpoint, Kafka");
    for (int i = 0; i < FCAP_STATE_SOURCES; i++) {
        const struct fcap_metrics_label label = {"source",
                                                 fcap_state_source_name((enum fcap_state_source)i)};
        fcap_metrics_sample(page, name, &label, 1, settings->source == (enum fcap_state_source)i);
    }
}

static void put_checkpoints(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    static const char on[] = "fcapd_checkpoint_enabled";
    static const char failures[] = "fcapd_checkpoint_failures_total";
    const struct fcap_checkpoint_metrics *metrics = settings->checkpoint;
    const struct {
        const char *kind;
        uint64_t count;
    } kinds[] = {
        {"unavailable", metrics->failures_unavailable},
        {"no_space", metrics->failures_no_space},
        {"snapshot", metrics->failures_snapshot},
        {"other", metrics->failures_other},
    };
    fcap_metrics_family(page, on, "gauge",
                        "1 when checkpoint.directory is set; else the others mean nothing");
    fcap_metrics_sample(page, on, NULL, 0, settings->has_checkpoints);
    for (size_t i = 0; i < COUNT(checkpoint_families); i++) {
        const struct family *family = &checkpoint_families[i];
        fcap_metrics_family(page, family->name, family->type, family->help);
        put_sample(page, family, metrics, NULL, 0);
    }
    fcap_metrics_family(page, failures, "counter",
                        "failed tries: the volume was away, full, the state could not be copied, "
                        "anything else");
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const struct fcap_metrics_label label = {"kind", kinds[i].kind};
        fcap_metrics_sample(page, failures, &label, 1, kinds[i].count);
    }
}

static void put_adoptions(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    static const char partitions[] = "fcapd_adoption_partitions_total";
    const struct fcap_adopter_metrics *metrics = settings->adoption;
    const struct {
        const char *from;
        uint64_t count;
    } sources[] = {
        {"checkpoint", metrics->from_checkpoint},
        {"here", metrics->from_here},
        {"kafka", metrics->from_kafka},
    };
    fcap_metrics_family(page, partitions, "counter",
                        "partitions assigned while checkpoint.directory is set, by what their "
                        "state came from: a checkpoint, the state here, or nothing but Kafka");
    for (size_t i = 0; i < COUNT(sources); i++) {
        const struct fcap_metrics_label label = {"from", sources[i].from};
        fcap_metrics_sample(page, partitions, &label, 1, sources[i].count);
    }
    for (size_t i = 0; i < COUNT(adoption_families); i++) {
        const struct family *family = &adoption_families[i];
        fcap_metrics_family(page, family->name, family->type, family->help);
        put_sample(page, family, metrics, NULL, 0);
    }
}

/* The names that every Prometheus dashboard knows. Absent when /proc cannot be read. */
static void put_process(struct fcap_buffer *page)
{
    struct rusage usage;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        bool is_read = fscanf(file, "%*d %ld", &pages) == 1;
        (void)fclose(file); /* Only read. */
        if (is_read) {
            fcap_metrics_family(page, "process_resident_memory_bytes", "gauge",
                                "memory in use, to be compared with memory.budget");
            fcap_metrics_sample(page, "process_resident_memory_bytes", NULL, 0,
                                (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE));
        }
    }
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        int64_t cpu_ms = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
                         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
        fcap_metrics_family(page, "process_cpu_seconds_total", "counter",
                            "CPU time of all threads, user and system");
        fcap_metrics_sample_ms(page, "process_cpu_seconds_total", NULL, 0, cpu_ms);
    }
}

void fcap_page_build(const struct fcap_page_settings *settings, struct fcap_buffer *page)
{
    struct fcap_worker_metrics *metrics = calloc(settings->view_count, sizeof *metrics);
    const struct fcap_worker_metrics **pointers = calloc(settings->view_count, sizeof *pointers);
    FCAP_ASSERT(metrics != NULL && pointers != NULL);
    for (size_t k = 0; k < settings->view_count; k++) {
        const struct fcap_worker_view *view = &settings->views[k];
        metrics[k].counters = view->counters;
        metrics[k].step_seconds = view->step_seconds;
        metrics[k].delays = view->delays;
        fcap_gauges_set_sizes(&metrics[k].gauges, &view->sizes);
        for (size_t i = 0; i < view->task_count; i++) {
            fcap_gauges_add_task(&metrics[k].gauges, &view->tasks[i].report);
        }
        pointers[k] = &metrics[k];
    }
    struct fcap_metrics_process process = {
        .version = FCAP_VERSION,
        .profile = settings->config->profile,
        .start_ms = settings->start_ms,
        .ready = settings->is_ready,
        .log_lines_dropped = fcap_log_dropped(),
    };
    fcap_metrics_page(&process, pointers, settings->view_count, page);
    free(pointers);
    free(metrics);
    put_process(page);
    put_redis(settings, page);
    put_redis_promises(settings, page);
    put_workers(settings, page);
    put_partitions(settings, page);
    put_windows(settings, page);
    put_retention(settings, page);
    put_store(settings, page);
    put_source(settings, page);
    put_checkpoints(settings, page);
    put_adoptions(settings, page);
}
