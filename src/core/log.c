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
    return status == FCAP_OK ? FCAP_OK : core_fail(pipeline, status, "read a partition's trail");
}

/* A point for each commit that has read records. */
void log_encode(struct fcap_task *task, struct commit *commit)
{
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

/* What has happened, for whoever must decide what to do about it. */
static void describe_gap(const struct fcap_gap *gap, char *text, size_t size)
{
    static const char *const what[] = {
        [FCAP_GAP_BELOW_START] = "retention has taken records that were never read",
        [FCAP_GAP_BEYOND_END] = "the log ends before what was read of it",
        [FCAP_GAP_RECREATED] = "the topic was created anew",
        [FCAP_GAP_TRUNCATED] = "the log has lost records that had been read",
    };
    (void)snprintf(text, size,
                   "partition %d: %s: offset %lld is wanted, the log holds %lld to %lld "
                   "(on_gap: degrade goes on at %lld)",
                   gap->partition, what[gap->kind], (long long)gap->wanted,
                   (long long)gap->log_start, (long long)gap->end, (long long)gap->next);
}

static struct fcap_start go_on(struct fcap_task *task, const struct fcap_gap *gap)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct fcap_meta *meta = &task->meta;
    int64_t since = log_latest_event_ms(pipeline);
    struct fcap_start start = {.kind = FCAP_START_OFFSET, .offset = gap->next};
    if (FCAP_MUTANT(TRUNCATED) && gap->kind == FCAP_GAP_TRUNCATED) {
        start.offset = gap->log_start;
    }
    meta->complete_since_ms = since > meta->complete_since_ms ? since : meta->complete_since_ms;
    meta->next_offset = start.offset;
    meta->last_timestamp_ms = -1; /* Nothing was read before the new place. */
    meta->last_key_hash = 0;
    fcap_trail_cut(&task->trail, gap->same);
    task->trail_changed = true;
    task->after_gap = true;
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
    FCAP_COUNT(pipeline->counters.gaps, 1);
    if (task != NULL && pipeline->settings.stop_on_gap) {
        char text[240];
        describe_gap(gap, text, sizeof text);
        (void)core_fail(pipeline, FCAP_STOPPED, text);
        task = NULL;
    }
    if (task == NULL) {
        return (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = gap->next};
    }
    return go_on(task, gap);
}
