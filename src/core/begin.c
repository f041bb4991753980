/* What a partition begins with: its state, or nothing because there is none, because it can never
 * be exact again (docs/decisions/0003), or because --replay-from-kafka reads it anew for a longer
 * window (docs/decisions/0017). */
#include "core.h"

#include <stdio.h>

static int64_t later_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t longest_configured(const struct fcap_settings *settings)
{
    int64_t longest = 0;
    for (size_t i = 0; i < settings->window_count; i++) {
        longest = later_of(settings->windows[i].length_ms, longest);
    }
    return longest;
}

static int64_t choose_bucket(const struct fcap_settings *settings)
{
    if (settings->bucket_ms > 0) {
        return settings->bucket_ms;
    }
    int64_t shortest = shortest_configured(settings);
    int64_t bucket = settings->commit_interval_ms * 4;
    bucket = bucket > shortest / 16 ? shortest / 16 : bucket;
    return bucket < 1 ? 1 : bucket;
}

/* --- timers that were dropped --- */

/* What this store had dropped before the state began says nothing of its timers. */
static enum fcap_status load_floor(struct fcap_task *task, int64_t *ret_floor_ms)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    bool found = false;
    *ret_floor_ms = 0;
    fcap_buffer_clear(&pipeline->key);
    fcap_key_meta(&pipeline->key, task->partition, FCAP_FLOOR_NAME);
    enum fcap_status status = pipeline->ports.store->ops->get(
        pipeline->ports.store, FCAP_FAMILY_META, fcap_buffer_bytes(&pipeline->key),
        &pipeline->value, &found);
    if (status == FCAP_OK && found) {
        struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&pipeline->value));
        *ret_floor_ms = fcap_reader_i64(&reader);
        status = reader.failed || fcap_reader_left(&reader) > 0 ? FCAP_CORRUPT : FCAP_OK;
    }
    return status == FCAP_OK ? FCAP_OK : core_fail(pipeline, status, "read a partition's floor");
}

void begin_encode_floor(struct fcap_task *task, struct commit *commit)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    if (task->floor_ms <= bucket_of(task, task->meta.redo_history_ms + 1)) {
        return; /* Nothing that it may need was gone. */
    }
    fcap_buffer_clear(&pipeline->key);
    fcap_buffer_clear(&pipeline->value);
    fcap_key_meta(&pipeline->key, task->partition, FCAP_FLOOR_NAME);
    fcap_buffer_put_i64(&pipeline->value, task->floor_ms);
    fcap_batch_add(&commit->batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT,
                   fcap_buffer_bytes(&pipeline->key), fcap_buffer_bytes(&pipeline->value));
}

/* Timers that the state still needs were dropped while it was kept here unassigned. */
static enum fcap_status lacks_timers(struct fcap_task *task, int64_t dropped_ms, bool *ret_lacks)
{
    int64_t floor_ms = 0;
    *ret_lacks = dropped_ms > bucket_of(task, task->meta.redo_history_ms + 1);
    if (!*ret_lacks) {
        return FCAP_OK;
    }
    enum fcap_status status = load_floor(task, &floor_ms);
    *ret_lacks = dropped_ms > floor_ms && !(floor_ms > 0 && FCAP_MUTANT(FLOOR));
    return status;
}

/* --- nothing --- */

/* Where its history starts, and what may be missing from it. What is in task->meta is of a state
 * that goes, or zero: its numbers go on, and T never goes back. */
static enum fcap_status begin_empty(struct fcap_task *task, struct fcap_start *ret_start)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    const struct fcap_settings *settings = &pipeline->settings;
    struct fcap_meta *meta = &task->meta;
    const struct fcap_meta old = *meta;
    *meta = (struct fcap_meta){.last_timestamp_ms = -1,
                               .complete_since_ms = FCAP_TIME_NONE,
                               .grown_ms = FCAP_TIME_NONE,
                               .moved_until_ms = FCAP_TIME_NONE,
                               .counted_ms = FCAP_TIME_NONE};
    meta->commit = old.commit;
    meta->valid_from = old.commit + 1;
    meta->redo_from = old.commit + 1;
    meta->next_window = old.next_window;
    meta->next_ad = old.next_ad;
    meta->clock_ms = task->stale ? old.clock_ms : FCAP_TIME_NONE / 2;
    meta->clock_ms = clock_target(task);
    meta->history_ms = meta->clock_ms - longest_configured(settings);
    meta->bucket_ms = choose_bucket(settings);
    task->sought_ms = meta->history_ms - settings->seek_slack_ms;
    *ret_start = (struct fcap_start){.kind = settings->start};
    ret_start->time_ms = task->sought_ms - (FCAP_MUTANT(SEEK) ? 0 : settings->future_skew_ms);
    ret_start->after_ms = meta->history_ms;
    ret_start->future_ms = core_latest_ms(pipeline) + settings->future_skew_ms;
    return growth_begin(task, ret_start);
}

static void discard_state(struct fcap_task *task)
{
    task->stale = true;
    task->has_state = false;
}

/* --- --replay-from-kafka --- */

/* The longest window is longer than what the state was made for, or was lengthened before and has
 * not been read long enough since. */
static bool replay_is_due(struct fcap_task *task)
{
    const struct fcap_settings *settings = &task->pipeline->settings;
    int64_t longest = longest_configured(settings);
    if (!settings->replay_from_kafka || settings->start == FCAP_START_LATEST) {
        return false;
    }
    for (size_t i = 0; i < task->meta.window_count; i++) {
        const struct fcap_window_meta *window = &task->meta.windows[i];
        if (window->length_ms == longest) {
            return window->complete_since_ms > clock_target(task) - longest;
        }
    }
    return longest > longest_window(&task->meta);
}

/* Windows that keep their length and name and were shown stay shown. */
static void keep_shown(struct fcap_meta *meta, const struct fcap_meta *old)
{
    for (size_t i = 0; i < old->window_count; i++) {
        struct fcap_window_meta *window = &meta->windows[i];
        *window = old->windows[i];
        window->building = false;
        window->head_ms = meta->history_ms;
        window->complete_since_ms = FCAP_TIME_NONE;
        window->projected_to = (struct fcap_sink_identity){0};
    }
    meta->window_count = old->window_count;
}

static enum fcap_status begin_replay(struct fcap_task *task, struct fcap_start *ret_start)
{
    const struct fcap_meta old = task->meta;
    struct fcap_start by_time;
    int64_t since = later_of(old.history_ms, old.complete_since_ms);
    enum fcap_status status = log_load(task);
    log_position(task, ret_start);
    task->trail = (struct fcap_trail){0}; /* Of what is to be read, nothing has been yet, */
    task->lost = (struct fcap_gaps){0};   /* nor is anything known to be missing from it. */
    task->lost_is_open = false;
    task->replay = (struct replay){
        .is_open = true,
        .since_ms = later_of(since, clock_target(task) - longest_window(&old)),
        .next_offset = old.next_offset,
        .last_timestamp_ms = old.last_timestamp_ms,
    };
    discard_state(task);
    status = status == FCAP_OK ? begin_empty(task, &by_time) : status;
    if (status != FCAP_OK) {
        return status;
    }
    keep_shown(&task->meta, &old);
    task->replay.by_time = by_time;
    ret_start->kind = FCAP_START_AGAIN;
    ret_start->time_ms = by_time.kind == FCAP_START_EARLIEST ? 0 : by_time.time_ms;
    ret_start->after_ms = by_time.after_ms;
    ret_start->future_ms = by_time.future_ms;
    FCAP_COUNT(task->pipeline->counters.replays, 1);
    FCAP_POINT(replay_begun);
    return status;
}

static void refuse(struct fcap_task *task, const char *why)
{
    char text[640];
    (void)snprintf(text, sizeof text,
                   "partition %d: --replay-from-kafka would lose history: %s. Start without it: "
                   "the longer window fills from now on, and fc:meta tells when it is ready",
                   task->partition, why);
    (void)core_fail(task->pipeline, FCAP_CONFIG, text);
}

static void replay_judge(struct fcap_task *task)
{
    struct replay *replay = &task->replay;
    char why[200];
    if (task->meta.complete_since_ms > replay->since_ms) {
        (void)snprintf(why, sizeof why,
                       "the log holds everything since %lld only, the state since %lld (ms since "
                       "1970)",
                       (long long)task->meta.complete_since_ms, (long long)replay->since_ms);
        refuse(task, why);
        return;
    }
    replay->is_open = false;
    FCAP_POINT(replay_judged);
}

/* The log holds nothing to begin with. If the state had read all of it, then no record is later
 * than the last one that it read. */
static void replay_nothing(struct fcap_task *task)
{
    const struct replay *replay = &task->replay;
    if (task->lost_is_open && replay->next_offset >= task->end_offset &&
        replay->last_timestamp_ms >= FCAP_TIMESTAMP_USABLE_MS) {
        log_settle(task, &(struct fcap_record){.timestamp_ms = replay->last_timestamp_ms});
    }
    replay_judge(task);
}

void begin_replay_started(struct fcap_task *task)
{
    if (!task->replay.is_open) {
        return;
    }
    if (task->start_offset >= task->end_offset) {
        replay_nothing(task);
    } else if (!task->lost_is_open) {
        replay_judge(task);
    }
}

void begin_replay_end(struct fcap_task *task)
{
    if (task->replay.is_open) {
        replay_nothing(task);
    }
}

/* Where the record tells of no time that could be believed, the span is open: that is a loss, too.
 * Nothing of a task may be changed and unjudged when the next commit is encoded. */
void begin_replay_record(struct fcap_task *task)
{
    if (task->replay.is_open) {
        replay_judge(task);
    }
}

struct fcap_start begin_replay_gap(struct fcap_task *task, const struct fcap_gap *gap)
{
    if (gap->kind != FCAP_GAP_BELOW_START) {
        refuse(task, "the log is not the one that the state was read from, or has lost its end");
    }
    return task->replay.by_time; /* What retention took, the state had not read either. */
}

/* --- all of it --- */

enum fcap_status begin_task(struct fcap_task *task, int64_t dropped_ms,
                            struct fcap_start *ret_start)
{
    bool lacks = false;
    enum fcap_status status = task->has_state ? lacks_timers(task, dropped_ms, &lacks) : FCAP_OK;
    if (status == FCAP_OK && task->has_state && !lacks) {
        if (replay_is_due(task)) {
            status = begin_replay(task, ret_start);
        } else {
            status = log_load(task);
            log_position(task, ret_start);
        }
    } else if (status == FCAP_OK) {
        if (lacks) {
            discard_state(task); /* It can never be exact again. */
            task->looked_at = false;
        }
        status = begin_empty(task, ret_start);
    }
    task->floor_ms = task->has_state ? 0 : dropped_ms;
    return status;
}
