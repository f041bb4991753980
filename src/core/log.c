/* Which log a task was read from, and what to do when there is another one or when some of it is
 * gone (docs/decisions/0007). */
#include "core.h"

#include <stdio.h>

/* What is known of the record before the next offset; offset 0: nothing. */
static struct fcap_log_mark last_mark(const struct fcap_task *task)
{
    const struct fcap_meta *meta = &task->meta;
    bool is_known = meta->last_timestamp_ms != -1 || meta->last_key_hash != 0;
    return (struct fcap_log_mark){.offset = is_known ? meta->next_offset : 0,
                                  .timestamp_ms = meta->last_timestamp_ms,
                                  .key_hash = meta->last_key_hash};
}

static enum fcap_status load_lost(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    bool found = false;
    fcap_buffer_clear(&pipeline->key);
    fcap_key_meta(&pipeline->key, task->partition, FCAP_GAPS_NAME);
    enum fcap_status status = pipeline->ports.store->ops->get(
        pipeline->ports.store, FCAP_FAMILY_META, fcap_buffer_bytes(&pipeline->key),
        &pipeline->value, &found);
    if (status == FCAP_OK && found) {
        status = fcap_gaps_decode(fcap_buffer_bytes(&pipeline->value), &task->lost);
    }
    task->lost_before_ms = task->meta.complete_since_ms;
    for (size_t i = 0; i < task->lost.count; i++) {
        task->lost_is_open = task->lost_is_open || task->lost.spans[i].to_ms < 0;
    }
    return status == FCAP_OK ? FCAP_OK : core_fail(pipeline, status, "read a partition's gaps");
}

enum fcap_status log_load(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    bool found = false;
    fcap_buffer_clear(&pipeline->key);
    fcap_key_meta(&pipeline->key, task->partition, FCAP_TRAIL_NAME);
    enum fcap_status status = pipeline->ports.store->ops->get(
        pipeline->ports.store, FCAP_FAMILY_META, fcap_buffer_bytes(&pipeline->key),
        &pipeline->value, &found);
    if (status == FCAP_OK && found) {
        status = fcap_trail_decode(fcap_buffer_bytes(&pipeline->value), &task->trail);
    }
    return status == FCAP_OK ? load_lost(task)
                             : core_fail(pipeline, status, "read a partition's trail");
}

/* What every window has passed is missing no more. */
static bool forget_passed(struct fcap_task *task)
{
    return fcap_gaps_forget(&task->lost, task->meta.clock_ms - longest_window(&task->meta));
}

static void encode_lost(struct fcap_task *task, struct commit *commit)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    if (!forget_passed(task) && !task->lost_changed) {
        return;
    }
    task->lost_changed = false;
    fcap_buffer_clear(&pipeline->key);
    fcap_buffer_clear(&pipeline->value);
    fcap_key_meta(&pipeline->key, task->partition, FCAP_GAPS_NAME);
    fcap_gaps_encode(&task->lost, &pipeline->value);
    bool is_empty = task->lost.count == 0;
    fcap_batch_add(&commit->batch, FCAP_FAMILY_META,
                   is_empty ? FCAP_CHANGE_DELETE : FCAP_CHANGE_PUT,
                   fcap_buffer_bytes(&pipeline->key),
                   is_empty ? FCAP_BYTES_NONE : fcap_buffer_bytes(&pipeline->value));
}

/* A point for each commit that has read records. */
void log_encode(struct fcap_task *task, struct commit *commit)
{
    encode_lost(task, commit);
    struct fcap_pipeline *pipeline = task->pipeline;
    struct fcap_log_mark mark = last_mark(task);
    if (!fcap_trail_add(&task->trail, &mark) && !task->trail_changed) {
        return;
    }
    task->trail_changed = false;
    fcap_buffer_clear(&pipeline->key);
    fcap_buffer_clear(&pipeline->value);
    fcap_key_meta(&pipeline->key, task->partition, FCAP_TRAIL_NAME);
    fcap_trail_encode(&task->trail, &pipeline->value);
    fcap_batch_add(&commit->batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT,
                   fcap_buffer_bytes(&pipeline->key), fcap_buffer_bytes(&pipeline->value));
}

void log_position(const struct fcap_task *task, struct fcap_start *ret_start)
{
    struct fcap_log_mark last = last_mark(task);
    fcap_trail_start(&task->trail, task->meta.next_offset, &last, ret_start);
    for (size_t i = 0; i < ret_start->mark_count && FCAP_MUTANT(SAME_LOG); i++) {
        ret_start->marks[i].offset = INT64_MAX; /* No log covers it. */
    }
}

/* No record that exists by now may be later than this: what is lost lies before it. */
int64_t log_latest_event_ms(const struct fcap_pipeline *pipeline)
{
    return core_latest_ms(pipeline) + pipeline->settings.future_skew_ms;
}

static void raise_complete_since(struct fcap_task *task, int64_t since_ms)
{
    if (since_ms > task->meta.complete_since_ms) {
        task->meta.complete_since_ms = since_ms;
    }
}

void log_lose(struct fcap_task *task, const struct fcap_lost_span *span)
{
    struct fcap_lost_span lost = *span;
    lost.noticed_ms = task->pipeline->wall_ms;
    if (lost.kind != FCAP_GAP_GROWN) {
        lost.since_ms =
            FCAP_MUTANT(LOST_SINCE) ? task->meta.history_ms : log_latest_event_ms(task->pipeline);
    }
    if (!task->lost_is_open) {
        task->lost_before_ms = task->meta.complete_since_ms;
    }
    task->lost_is_open = task->lost_is_open || lost.to_ms < 0;
    FCAP_COUNT(task->pipeline->counters.gaps[lost.kind], 1);
    int64_t forgotten_ms = fcap_gaps_add(&task->lost, &lost);
    if (lost.to_ms >= 0 && lost.since_ms > forgotten_ms) {
        forgotten_ms = lost.since_ms; /* The next record changes nothing about it. */
    }
    if (forgotten_ms > task->lost_before_ms) {
        task->lost_before_ms = forgotten_ms;
    }
    raise_complete_since(task, lost.since_ms);
    task->lost_changed = true;
    task->pipeline->changed = true;
}

/* How late an event of the span may be, now that the record behind it is known. In the same log
 * everything that is missing was appended before that record: the broker's clock says when that
 * was, and a producer's word only in an initial load, which sought by it; the slack is that of the
 * seek. Another log may begin with old records: it tells nothing. */
static int64_t settled_since(const struct fcap_task *task, const struct fcap_lost_span *span,
                             const struct fcap_record *record)
{
    const struct fcap_settings *settings = &task->pipeline->settings;
    int64_t since_ms = record->timestamp_ms + settings->future_skew_ms + settings->seek_slack_ms;
    bool is_append = record->timestamp_type == FCAP_TIMESTAMP_APPEND;
    bool is_bound = span->kind == FCAP_GAP_SHORT_HISTORY ||
                    (is_append && span->kind == FCAP_GAP_BELOW_START) || FCAP_MUTANT(LOST_OTHER);
    if (!is_bound || since_ms > span->since_ms) {
        return span->since_ms;
    }
    return since_ms > task->meta.history_ms ? since_ms : task->meta.history_ms;
}

void log_settle(struct fcap_task *task, const struct fcap_record *record)
{
    task->meta.complete_since_ms = task->lost_before_ms;
    for (size_t i = 0; i < task->lost.count; i++) {
        struct fcap_lost_span *span = &task->lost.spans[i];
        if (span->to_ms < 0) {
            span->to_ms = record->timestamp_ms;
            span->since_ms = settled_since(task, span, record);
            raise_complete_since(task, span->since_ms);
        }
    }
    task->lost_is_open = false;
    task->lost_changed = true;
    (void)forget_passed(task); /* It is written in any case. */
}

void log_begin(struct fcap_task *task, const struct fcap_started *started)
{
    struct fcap_lost_span lost = {
        .kind = FCAP_GAP_SHORT_HISTORY,
        .first = -1,
        .last = started->offset - 1,
        .next = started->offset,
        .from_ms = -1,
        .to_ms = -1,
    };
    bool is_latest = task->pipeline->settings.start == FCAP_START_LATEST;
    task->meta.next_offset = started->offset;
    task->start_untrusted = started->timestamps_unusable;
    FCAP_COUNT(task->pipeline->counters.untrusted_starts, started->timestamps_unusable);
    if (started->offset == 0) {
        return; /* The topic never lost anything. */
    }
    if (started->offset > started->log_start && !is_latest) {
        task->meta.complete_since_ms = task->meta.history_ms; /* It was found by its time. */
        return;
    }
    if (is_latest || started->timestamps_unusable) {
        lost.to_ms = 0;
    }
    log_lose(task, &lost);
}

/* What has happened, for whoever must decide what to do about it. */
static void describe_gap(const struct fcap_gap *gap, char *text, size_t size)
{
    struct fcap_lost_span lost;
    char last[24] = "the end";
    fcap_gap_offsets(gap, &lost);
    if (lost.last >= 0) {
        (void)snprintf(last, sizeof last, "%lld", (long long)lost.last); /* It fits. */
    }
    (void)snprintf(text, size,
                   "partition %d: %s: offset %lld is wanted, the log holds %lld to %lld "
                   "(on_gap: degrade goes on at %lld; offsets %lld to %s are lost)",
                   gap->partition, fcap_gap_kind_text(gap->kind), (long long)gap->wanted,
                   (long long)gap->log_start, (long long)gap->end, (long long)gap->next,
                   (long long)lost.first, last);
}

/* Of the last record that was read before what is missing. */
static int64_t time_before(const struct fcap_task *task, const struct fcap_gap *gap)
{
    for (size_t i = 0; i < task->trail.count && gap->kind == FCAP_GAP_TRUNCATED; i++) {
        if (task->trail.points[i].offset == gap->same) {
            return task->trail.points[i].timestamp_ms;
        }
    }
    return task->meta.last_timestamp_ms;
}

static struct fcap_start go_on(struct fcap_task *task, const struct fcap_gap *gap)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct fcap_meta *meta = &task->meta;
    struct fcap_lost_span lost = {.from_ms = time_before(task, gap), .to_ms = -1};
    struct fcap_start start = {.kind = FCAP_START_OFFSET, .offset = gap->next};
    if (FCAP_MUTANT(TRUNCATED) && gap->kind == FCAP_GAP_TRUNCATED) {
        start.offset = gap->log_start;
    }
    fcap_gap_offsets(gap, &lost);
    log_lose(task, &lost);
    meta->next_offset = start.offset;
    meta->last_timestamp_ms = -1; /* Nothing was read before the new place. */
    meta->last_key_hash = 0;
    fcap_trail_cut(&task->trail, gap->same);
    task->trail_changed = true;
    if (start.offset < gap->wanted) {
        task->claimed_next = NO_OFFSET; /* It was an offset of another log. */
        task->claim_mark = pipeline->mark_open;
    }
    task->gaps++;
    task->last_gap = *gap;
    pipeline->changed = true;
    return start;
}

struct fcap_start log_gap(struct fcap_pipeline *pipeline, const struct fcap_gap *gap)
{
    struct fcap_task *task = task_find(pipeline, gap->partition);
    if (task != NULL && pipeline->settings.stop_on_gap) {
        char text[240];
        describe_gap(gap, text, sizeof text);
        FCAP_COUNT(pipeline->counters.gaps[gap->kind], 1);
        (void)core_fail(pipeline, FCAP_STOPPED, text);
        task = NULL;
    }
    if (task == NULL) {
        return (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = gap->next};
    }
    if (task->replay.is_open) {
        return begin_replay_gap(task, gap);
    }
    return go_on(task, gap);
}
