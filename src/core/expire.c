/* The clock T and what leaves the windows as it moves; windows built from the timers. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_COST 16  /* a look into an empty bucket costs about as much as this many events */
#define READ_COST 200 /* beginning to read a bucket, in events read from it */
#define WAIT_MS   200 /* how far behind a partition may be before it waits no longer */

/* Storage can be slow, and a slice take 50 ms where it takes microseconds: a step that moves T far
 * must end soon all the same, for Kafka's deadlines and for whoever asks whether we live. Each task
 * has its share of this time, and one slice in any case. */
#define SLICES_MS 100

static int64_t patience_ends_ms(const struct fcap_pipeline *pipeline)
{
    return pipeline->settings.step_clock_ms == NULL
               ? INT64_MAX
               : pipeline->settings.step_clock_ms() + SLICES_MS / (int64_t)pipeline->task_count;
}

static bool has_passed(const struct fcap_pipeline *pipeline, int64_t until_ms)
{
    return until_ms != INT64_MAX && pipeline->settings.step_clock_ms() >= until_ms;
}

static void spend(struct fcap_pipeline *pipeline, size_t work)
{
    pipeline->work_left -= pipeline->work_left > work ? work : pipeline->work_left;
}

int64_t bucket_of(const struct fcap_task *task, int64_t time_ms)
{
    int64_t width = task->meta.bucket_ms;
    return time_ms < 0 ? 0 : time_ms / width * width;
}

/* T follows the wall clock, but no further than Redis TIME + 1 s, and never goes back. */
int64_t clock_target(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    int64_t target = pipeline->wall_ms;
    int64_t bound = pipeline->sink_state.time_ms + 1000;
    task->clock_held = !pipeline->sink_state.time_known || target > bound;
    if (!pipeline->sink_state.time_known) {
        return task->meta.clock_ms;
    }
    if (target > bound) {
        target = bound;
    }
    return target > task->meta.clock_ms ? target : task->meta.clock_ms;
}

/* A void timer has left: if nothing but the mark of a tombstone is known of its user, the commit
 * looks whether that is still needed. */
static enum fcap_status let_go(struct fcap_task *task, const struct timeline *timeline,
                               const struct timeline_event *event)
{
    struct fcap_user *user;
    enum fcap_status status =
        task_user_hashed(task, timeline_user(timeline, event), event->user_hash, &user);
    if (status == FCAP_OK && user->row_count == 0 && user->erased_until_ms != FCAP_TIME_NONE) {
        user_urge(user); /* Redo would not do it again. */
    }
    return status;
}

static enum fcap_status take_off(struct fcap_task *task, size_t window,
                                 const struct timeline *timeline,
                                 const struct timeline_event *event)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    if (event->ad == FCAP_AD_VOID) {
        return let_go(task, timeline, event);
    }
    struct fcap_user *user;
    enum fcap_status status =
        task_user_hashed(task, timeline_user(timeline, event), event->user_hash, &user);
    if (status != FCAP_OK) {
        return status;
    }
    if (user->erased_until_ms != FCAP_TIME_NONE && event->commit <= user->erased_commit) {
        return FCAP_OK; /* Erased: this chunk does not exist for the user. */
    }
    size_t windows = pipeline->settings.window_count;
    uint32_t *row = fcap_user_row(user, windows, event->ad);
    FCAP_COUNT(pipeline->counters.expiries, 1);
    if (row == NULL || row[1 + window] == 0) {
        FCAP_COUNT(pipeline->counters.underflows, 1);
        return FCAP_OK;
    }
    row[1 + window]--;
    FCAP_POINT_IF(!task->gate_open, history_expired);
    if (row[1 + window] == 0) {
        size_t before = fcap_user_bytes(user, windows);
        fcap_user_row_trim(user, windows, row);
        fcap_cache_account(&pipeline->cache, before, fcap_user_bytes(user, windows));
    }
    user_touch(user);
    push_mark(user, 1u << window, QUEUE_HELD);
    push_note_due(user, event->time_ms + task->meta.windows[window].length_ms);
    return FCAP_OK;
}

/* The records of the events to come are fetched while this one is worked on. */
static void look_ahead(const struct fcap_pipeline *pipeline, const struct timeline *timeline)
{
    if (timeline->next + 12 < timeline->count) {
        fcap_cache_prefetch_slot(&pipeline->cache, timeline->events[timeline->next + 12].user_hash);
    }
    if (timeline->next + 6 < timeline->count) {
        fcap_cache_prefetch_user(&pipeline->cache, timeline->events[timeline->next + 6].user_hash);
    }
}

/* Takes off everything of one window with from < event_time <= to. */
static enum fcap_status advance(struct fcap_task *task, size_t window, int64_t from, int64_t to)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct timeline *timeline = &task->timelines[window];
    int64_t due = FCAP_MUTANT(DUE_EARLY) ? to + 1 : FCAP_MUTANT(DUE_LATE) ? to - 1 : to;
    while (from < to) {
        if (!timeline->loaded) {
            int64_t bucket = bucket_of(task, from + 1);
            timeline_clear(timeline);
            enum fcap_status status =
                timeline_collect(task, bucket, from, bucket + task->meta.bucket_ms - 1, timeline);
            if (status != FCAP_OK) {
                return status;
            }
            timeline->through_ms = bucket + task->meta.bucket_ms - 1;
            timeline->loaded = true;
            pipeline->timers_read += timeline->count + READ_COST;
        }
        while (timeline->next < timeline->count &&
               timeline->events[timeline->next].time_ms <= due) {
            look_ahead(pipeline, timeline);
            enum fcap_status status =
                take_off(task, window, timeline, &timeline->events[timeline->next]);
            if (status != FCAP_OK) {
                return status;
            }
            timeline->next++;
            spend(pipeline, 1);
        }
        if (timeline->through_ms > to) {
            break; /* The rest of the bucket is still to come. */
        }
        from = timeline->through_ms;
        timeline->loaded = false;
    }
    return FCAP_OK;
}

/* Moves T to `clock`; every window is exact at T afterwards. */
static enum fcap_status move_clock(struct fcap_task *task, int64_t clock, int64_t events_through)
{
    struct fcap_meta *meta = &task->meta;
    int64_t lowest = INT64_MAX;
    for (size_t i = 0; i < meta->window_count; i++) {
        struct fcap_window_meta *window = &meta->windows[i];
        int64_t from = cursor_of(task, i);
        int64_t to = events_through - window->length_ms;
        if (to < meta->history_ms) {
            to = meta->history_ms;
        }
        lowest = to < lowest ? to : lowest;
        if (from >= to) {
            continue;
        }
        int64_t counted = to;
        if (window->building) {
            counted = to < window->head_ms ? to : window->head_ms;
            window->head_ms = to > window->head_ms ? to : window->head_ms;
        }
        if (from < counted) {
            enum fcap_status status = advance(task, i, from, counted);
            if (status != FCAP_OK) {
                return status;
            }
        }
        if (window->building && counted < to) {
            task->timelines[i].loaded = false; /* Skipped events were never counted. */
        }
    }
    meta->clock_ms = clock;
    meta->history_ms = lowest > meta->history_ms ? lowest : meta->history_ms;
    return FCAP_OK;
}

/* How far T may move, target at most, before a bucket of timers must be read. */
static int64_t read_through(const struct fcap_task *task, int64_t target)
{
    int64_t through = target;
    for (size_t i = 0; i < task->meta.window_count; i++) {
        const struct timeline *timeline = &task->timelines[i];
        int64_t length_ms = task->meta.windows[i].length_ms;
        if (target - length_ms <= task->meta.history_ms) {
            continue; /* Nothing leaves it. */
        }
        int64_t last = timeline->loaded ? timeline->through_ms + length_ms : task->meta.clock_ms;
        through = last < through ? last : through;
    }
    return through;
}

/* All tasks come to the end of a bucket in the same moment, and reading the next ones takes as
 * long as many steps. When others have read much in this step, a task waits for the next one, so
 * that records and answers are not kept waiting. A task that is behind by WAIT_MS or half a bucket
 * neither waits nor counts. */
enum fcap_status expire_task(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    size_t read = pipeline->timers_read;
    int64_t now_ms = clock_target(task);
    int64_t behind_ms = now_ms - task->meta.clock_ms;
    bool is_behind =
        (behind_ms >= WAIT_MS || behind_ms >= task->meta.bucket_ms / 2) && !FCAP_MUTANT(WAIT);
    bool waits = !is_behind && read > pipeline->settings.work_per_step;
    int64_t target = waits ? read_through(task, now_ms) : now_ms;
    int64_t until_ms =
        behind_ms > pipeline->settings.slice_ms ? patience_ends_ms(pipeline) : INT64_MAX;
    bool is_over = false;
    while (task->meta.clock_ms < target && pipeline->work_left > 0 && !is_over) {
        int64_t step = target - task->meta.clock_ms;
        if (step > pipeline->settings.slice_ms) {
            step = pipeline->settings.slice_ms;
            spend(pipeline, LOOK_COST);
        }
        int64_t clock = task->meta.clock_ms + step;
        enum fcap_status status = move_clock(task, FCAP_MUTANT(LAG_CURSOR) ? target : clock, clock);
        if (status != FCAP_OK) {
            return status;
        }
        pipeline->changed = true;
        FCAP_POINT(expire_moved);
        FCAP_POINT_IF(clock < target, expire_slice);
        is_over = has_passed(pipeline, until_ms);
    }
    if (is_behind) {
        pipeline->timers_read = read;
    }
    pipeline->left_over = pipeline->left_over || task->meta.clock_ms < now_ms;
    return FCAP_OK;
}

/* Adds to a window that is being built what its head passes. */
static enum fcap_status build_event(struct fcap_task *task, size_t window,
                                    const struct timeline *timeline,
                                    const struct timeline_event *event)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct fcap_user *user;
    if (event->ad == FCAP_AD_VOID) {
        return FCAP_OK;
    }
    enum fcap_status status =
        task_user_hashed(task, timeline_user(timeline, event), event->user_hash, &user);
    if (status != FCAP_OK) {
        return status;
    }
    if (user->erased_until_ms != FCAP_TIME_NONE && event->commit <= user->erased_commit) {
        return FCAP_OK;
    }
    size_t windows = pipeline->settings.window_count;
    size_t before = fcap_user_bytes(user, windows);
    fcap_user_row_add(user, windows, event->ad)[1 + window]++;
    fcap_cache_account(&pipeline->cache, before, fcap_user_bytes(user, windows));
    if (event->time_ms > user->newest_ms && !FCAP_MUTANT(BUILD_NEWEST)) {
        user->newest_ms = event->time_ms;
    }
    user_touch(user); /* A complete projection follows. */
    FCAP_COUNT(pipeline->counters.built, 1);
    return FCAP_OK;
}

/* Moves the head over one bucket. */
static enum fcap_status build_bucket(struct fcap_task *task, size_t index)
{
    struct fcap_window_meta *window = &task->meta.windows[index];
    int64_t bucket = bucket_of(task, window->head_ms + 1);
    int64_t through = bucket + task->meta.bucket_ms - 1;
    timeline_clear(&task->build);
    enum fcap_status status =
        timeline_collect(task, bucket, window->head_ms, through, &task->build);
    for (size_t i = 0; i < task->build.count && status == FCAP_OK; i++) {
        status = build_event(task, index, &task->build, &task->build.events[i]);
    }
    if (status != FCAP_OK) {
        return status;
    }
    window->head_ms = through;
    spend(task->pipeline, task->build.count + LOOK_COST);
    task->pipeline->changed = true;
    FCAP_POINT_IF(task->build.count > 0, window_building);
    return FCAP_OK;
}

static enum fcap_status build_window(struct fcap_task *task, size_t index)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct fcap_window_meta *window = &task->meta.windows[index];
    int64_t newest =
        task->meta.clock_ms > pipeline->wall_ms ? task->meta.clock_ms : pipeline->wall_ms;
    int64_t last = newest + pipeline->settings.future_skew_ms + task->meta.bucket_ms;
    int64_t until_ms = patience_ends_ms(pipeline);
    bool is_over = false;
    while (window->head_ms < last && pipeline->work_left > 0 && !is_over) {
        enum fcap_status status = build_bucket(task, index);
        if (status != FCAP_OK) {
            return status;
        }
        is_over = has_passed(pipeline, until_ms);
    }
    if (window->head_ms < last) {
        return FCAP_OK;
    }
    bool found;
    enum fcap_status status = timeline_any_after(task, window->head_ms, &found);
    if (status == FCAP_OK && found) {
        /* Accepted when the wall clock was ahead of now: one bucket more, and another look. */
        return build_bucket(task, index);
    }
    window->building = false;
    pipeline->flush_all = true; /* Redo knows nothing of what was built. */
    FCAP_POINT(window_built);
    return status;
}

enum fcap_status build_task(struct fcap_task *task)
{
    for (size_t i = 0; i < task->meta.window_count; i++) {
        if (!task->meta.windows[i].building) {
            continue;
        }
        enum fcap_status status = build_window(task, i);
        if (status != FCAP_OK) {
            return status;
        }
    }
    return FCAP_OK;
}
