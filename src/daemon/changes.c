#include "changes.h"

#include "fcap/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fcap_changes_stall(const struct fcap_worker_view *view)
{
    return view->stall != NULL && view->published_ms - view->stall_since_ms >= FCAP_STALL_MS
               ? view->stall
               : NULL;
}

bool fcap_changes_kafka_away(const struct fcap_worker_view *view)
{
    return view->source.error_since_ms != 0 &&
           view->published_ms - view->source.error_since_ms >= FCAP_KAFKA_AWAY_MS;
}

bool fcap_changes_clock_off(const struct fcap_worker_view *view)
{
    return view->time_known && llabs(view->clock_offset_ms) > FCAP_CLOCK_OFFSET_MS;
}

static void log_redis(const struct fcap_worker_view *before, const struct fcap_worker_view *now)
{
    bool is_up = now->phase < FCAP_WORKER_ENDED;
    if (now->sink.state.ready && !before->sink.state.ready) {
        FCAP_INFO("Redis answers (version %s, connection %llu)",
                  now->sink.version[0] == '\0' ? "hidden" : now->sink.version,
                  (unsigned long long)now->sink.state.connection);
        if (now->sink.evicts) {
            FCAP_WARN("Redis evicts (maxmemory-policy %s): counts can vanish; set noeviction",
                      now->sink.maxmemory_policy);
        }
    } else if (is_up && !now->sink.state.ready &&
               (before->sink.state.ready || now->sink.error != before->sink.error)) {
        FCAP_WARN("Redis is away, nothing is lost: %s (%s)",
                  now->sink.error_text[0] == '\0' ? "no connection" : now->sink.error_text,
                  fcap_sink_redis_error_cure(now->sink.error));
    }
    for (size_t i = 0; i < FCAP_SINK_REDIS_NEED_COUNT; i++) {
        if (((now->sink.refused_needs & ~before->sink.refused_needs) >> i & 1) != 0) {
            FCAP_WARN("Redis refuses %s: %s; the promise it carries: %s",
                      fcap_sink_redis_need_command((enum fcap_sink_redis_need)i),
                      now->sink.refused_text[i],
                      fcap_sink_redis_need_promise((enum fcap_sink_redis_need)i));
        }
    }
}

static const struct fcap_board_task *find_task(const struct fcap_worker_view *view,
                                               int32_t partition)
{
    for (size_t i = 0; i < view->task_count; i++) {
        if (view->tasks[i].report.partition == partition) {
            return &view->tasks[i];
        }
    }
    return NULL;
}

static void log_windows(const struct fcap_config *config, const struct fcap_task_report *before,
                        const struct fcap_task_report *now)
{
    uint32_t shown = now->ready_mask & now->projected_mask;
    uint32_t known = before->ready_mask & before->projected_mask;
    for (size_t i = 0; i < config->windows_count; i++) {
        if ((shown >> i & 1) != 0 && (known >> i & 1) == 0) {
            FCAP_INFO("partition %d: window %s is complete in Redis", now->partition,
                      config->windows[i].name);
        } else if ((known >> i & 1) != 0 && (shown >> i & 1) == 0) {
            FCAP_INFO("partition %d: window %s is no longer complete in Redis%s", now->partition,
                      config->windows[i].name,
                      (now->ready_mask >> i & 1) != 0 ? "; it is projected again" : "");
        }
    }
}

static void log_gap(const struct fcap_gap *gap)
{
    if (gap->kind == FCAP_GAP_GROWN) {
        FCAP_WARN("partition %d: gap: %s; only users that are heard of from now on are written",
                  gap->partition, fcap_gap_kind_text(gap->kind));
        return;
    }
    FCAP_WARN("partition %d: gap: %s: offset %lld was next, the log holds %lld to %lld; reading "
              "goes on at %lld",
              gap->partition, fcap_gap_kind_text(gap->kind), (long long)gap->wanted,
              (long long)gap->log_start, (long long)gap->end, (long long)gap->next);
}

static const struct fcap_lost_span *find_span(const struct fcap_gaps *lost,
                                              const struct fcap_lost_span *wanted)
{
    for (size_t i = 0; i < lost->count; i++) {
        const struct fcap_lost_span *span = &lost->spans[i];
        if (span->kind == wanted->kind && span->first == wanted->first &&
            span->next == wanted->next && span->noticed_ms == wanted->noticed_ms) {
            return span;
        }
    }
    return NULL;
}

/* "not known" where a number would say nothing. */
static const char *or_unknown(int64_t value, char text[24])
{
    (void)snprintf(text, 24, "%lld", (long long)value); /* It fits. */
    return value < 0 ? "not known" : text;
}

/* Each span when it is met, and once more when the record behind it has told its time. */
static void log_lost(const struct fcap_task_report *before, const struct fcap_task_report *now)
{
    for (size_t i = 0; i < now->lost.count; i++) {
        const struct fcap_lost_span *span = &now->lost.spans[i];
        const struct fcap_lost_span *known = find_span(&before->lost, span);
        char first[24], last[24], from[24], to[24];
        if (known != NULL && known->to_ms == span->to_ms) {
            continue;
        }
        FCAP_WARN("partition %d: lost (%s): offsets %s to %s, between records of %s and %s; a "
                  "window is complete again when it begins at %lld or later",
                  now->partition, fcap_gap_kind_name(span->kind), or_unknown(span->first, first),
                  or_unknown(span->last, last), or_unknown(span->from_ms, from),
                  or_unknown(span->to_ms > 0 ? span->to_ms : -1, to), (long long)span->since_ms);
    }
}

static void log_stuck(const struct fcap_board_task *known, const struct fcap_board_task *task)
{
    bool was_stuck = known != NULL && known->is_stuck != 0;
    if (task->is_stuck != 0 && !was_stuck) {
        FCAP_WARN("partition %d: it is not fetched although %lld records wait behind offset %lld; "
                  "it is assigned anew each kafka.stall_timeout",
                  task->report.partition, (long long)task->lag,
                  (long long)task->report.next_offset);
    } else if (task->is_stuck == 0 && was_stuck) {
        FCAP_INFO("partition %d: it is fetched again", task->report.partition);
    }
}

static void log_tasks(const struct fcap_config *config, const struct fcap_worker_view *before,
                      const struct fcap_worker_view *now)
{
    const struct fcap_task_report none = {0};
    for (size_t i = 0; i < now->task_count; i++) {
        const struct fcap_task_report *report = &now->tasks[i].report;
        const struct fcap_board_task *known = find_task(before, report->partition);
        const struct fcap_task_report *old = known == NULL ? &none : &known->report;
        if (known == NULL) {
            FCAP_INFO("partition %d: assigned, next offset %lld", report->partition,
                      (long long)report->next_offset);
        }
        if (report->replayed && !old->replayed) {
            FCAP_INFO("partition %d: --replay-from-kafka: read anew for a longer window; Redis "
                      "keeps what it holds until the gate opens",
                      report->partition);
        }
        if (report->start_untrusted && !old->start_untrusted) {
            FCAP_WARN("partition %d: record timestamps cannot be believed (they are no times, or "
                      "far from the events' own), so it is read from the start of its log, not "
                      "from the longest window's; LogAppendTime makes them true",
                      report->partition);
        }
        if (report->gate_open && !old->gate_open) {
            FCAP_INFO("partition %d: caught up, the gate to Redis is open (epoch %lld)",
                      report->partition, (long long)report->epoch);
        } else if (!report->gate_open && old->gate_open) {
            FCAP_INFO("partition %d: the gate to Redis is closed", report->partition);
        }
        log_stuck(known, &now->tasks[i]);
        if (report->gaps > (known == NULL ? 0 : old->gaps)) {
            log_gap(&report->last_gap);
        }
        log_lost(old, report);
        log_windows(config, old, report);
    }
    for (size_t i = 0; i < before->task_count; i++) {
        int32_t partition = before->tasks[i].report.partition;
        if (find_task(now, partition) == NULL) {
            FCAP_INFO("partition %d: given up", partition);
        }
    }
}

static void log_clock(const struct fcap_worker_view *before, const struct fcap_worker_view *now)
{
    bool is_off = fcap_changes_clock_off(now);
    if (is_off && !fcap_changes_clock_off(before)) {
        FCAP_WARN("the wall clock is %lld ms off Redis TIME (synchronise both; nothing expires "
                  "early meanwhile)",
                  (long long)now->clock_offset_ms);
    } else if (!is_off && fcap_changes_clock_off(before) && now->time_known) {
        FCAP_INFO("the wall clock agrees with Redis TIME again");
    }
}

static void log_kafka(const struct fcap_worker_view *before, const struct fcap_worker_view *now)
{
    bool is_away = fcap_changes_kafka_away(now);
    if (is_away && !fcap_changes_kafka_away(before)) {
        FCAP_WARN("Kafka is in trouble, retried for ever: %s", now->source.error);
    } else if (!is_away && fcap_changes_kafka_away(before)) {
        FCAP_INFO("Kafka answers again");
    }
    if (now->source.fenced && !before->source.fenced) {
        FCAP_ERROR("another member with our instance id has taken over: give each instance its own "
                   "kafka.instance_id");
    }
    if (now->source.lost != before->source.lost) {
        FCAP_WARN("partitions were taken away without our consent (session timeout or poll "
                  "deadline passed): %llu so far",
                  (unsigned long long)now->source.lost);
    }
    if (now->letters.stuck_since_ms != 0 && before->letters.stuck_since_ms == 0) {
        FCAP_WARN("the dead-letter topic takes nothing: %s", now->letters.error);
    } else if (now->letters.stuck_since_ms == 0 && before->letters.stuck_since_ms != 0) {
        FCAP_INFO("the dead-letter topic takes letters again");
    }
}

/* A line for each reason, the first time; how many is a metric. */
static void log_rejects(const struct fcap_worker_view *before, const struct fcap_worker_view *now)
{
    for (int i = 0; i < FCAP_REJECT_COUNT; i++) {
        enum fcap_reject reason = (enum fcap_reject)i;
        if (before->counters.rejects[i] == 0 && now->counters.rejects[i] > 0 &&
            fcap_reject_is_dead(reason)) {
            FCAP_WARN("records are refused (%s): %s; fcapd_records_rejected_total counts them, and "
                      "kafka.dead_letter.topic keeps them",
                      fcap_reject_label(reason), fcap_reject_text(reason));
        }
    }
}

static void log_stall(const struct fcap_worker_view *before, const struct fcap_worker_view *now)
{
    const char *stall = fcap_changes_stall(now);
    const char *known = fcap_changes_stall(before);
    if (stall != NULL && (known == NULL || strcmp(stall, known) != 0)) {
        FCAP_WARN("no records are taken: %s", stall);
    } else if (stall == NULL && known != NULL) {
        FCAP_INFO("records are taken again (before: %s)", known);
    }
    if (now->commit_failing_since_ms != 0 && before->commit_failing_since_ms == 0) {
        FCAP_WARN("a commit could not be written, it is tried again: %s", now->store_error.text);
    } else if (now->commit_failing_since_ms == 0 && before->commit_failing_since_ms != 0) {
        FCAP_INFO("commits are written again");
    }
}

void fcap_changes_log(const struct fcap_config *config, const struct fcap_worker_view *before,
                      const struct fcap_worker_view *now)
{
    log_redis(before, now);
    log_clock(before, now);
    log_kafka(before, now);
    log_stall(before, now);
    log_rejects(before, now);
    if (now->phase <= FCAP_WORKER_DRAINING) {
        log_tasks(config, before, now);
    }
}
