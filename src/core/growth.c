/* Partitions added to the topic: users move to other partitions, and what an old partition knows of
 * one that has moved must neither be shown over what the new one shows, nor revive somebody who was
 * erased there (docs/decisions/0015).
 *
 * Producers learn of new partitions one after the other, within a stated time. So three times are
 * told apart: until `grown_ms` everybody wrote to the old place; until producers have learned,
 * whoever was heard of since may be shown; from `moved_until_ms` on only those heard of after it,
 * for these have certainly not moved away. */
#include "core.h"

#include <stdio.h>
#include <string.h>

/* A partition whose users may have moved away; those of an added one are its own. */
static bool is_left(const struct fcap_task *task)
{
    return task->meta.moved_until_ms != FCAP_TIME_NONE &&
           (uint32_t)task->partition < task->meta.grown_from;
}

/* From the moment when all producers have learned until an event tells where its user is: clocks of
 * producers are ahead by the skew, and whoever has not noticed the growth for a session does not
 * own the partition any more. */
static int64_t doubt_ms(const struct fcap_pipeline *pipeline)
{
    return pipeline->settings.future_skew_ms + pipeline->settings.session_timeout_ms;
}

static int64_t latest_ms(const struct fcap_task *task)
{
    int64_t latest = core_latest_ms(task->pipeline);
    return task->meta.clock_ms > latest ? task->meta.clock_ms : latest;
}

/* By then all producers know, as today's settings say: they are the operator's newest word. */
static int64_t learned_ms(const struct fcap_task *task)
{
    int64_t learned = task->meta.grown_ms + task->pipeline->settings.producer_refresh_ms;
    return learned < task->meta.moved_until_ms ? learned : task->meta.moved_until_ms;
}

bool growth_owns(const struct fcap_task *task, const struct fcap_user *user)
{
    const struct fcap_meta *meta = &task->meta;
    if (!is_left(task) || FCAP_MUTANT(GROWN_OWNERS)) {
        return true;
    }
    int64_t newest =
        user->partial_newest_ms > user->newest_ms ? user->partial_newest_ms : user->newest_ms;
    bool may_guess = latest_ms(task) <= learned_ms(task) || FCAP_MUTANT(GROWN_LATE);
    return newest > (may_guess ? meta->grown_ms : meta->moved_until_ms);
}

/* By T: a wall clock that is ahead does not end a key. */
bool growth_erased(const struct fcap_task *task, const struct fcap_user *user, int64_t length_ms)
{
    return user->erased_until_ms > task->meta.counted_ms &&
           user->erased_until_ms + length_ms > task->meta.clock_ms && !FCAP_MUTANT(GROWN_ERASED);
}

/* With a handover or a rebuild that happens again long after the erasure, and the user may have
 * come back in its new place; the key of a name that was another window's may be one that the new
 * place has written since. What was shown there by now is gone until it changes, and may have been
 * accepted under the settings of then. */
void growth_take_away(struct fcap_task *task, const struct fcap_user *user, size_t window)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    const struct fcap_meta *meta = &task->meta;
    int64_t *since_ms = &task->meta.windows[window].complete_since_ms;
    int64_t doubt_then_ms = meta->moved_until_ms - meta->grown_ms;
    int64_t doubt_now_ms = doubt_ms(pipeline);
    int64_t shown_ms =
        core_latest_ms(pipeline) + (doubt_then_ms > doubt_now_ms ? doubt_then_ms : doubt_now_ms);
    if (user->erased_until_ms <= meta->moved_until_ms && shown_ms > *since_ms &&
        !FCAP_MUTANT(GROWN_TAKEN)) {
        *since_ms = shown_ms;
        pipeline->changed = true;
    }
}

/* One that is read long after it was sent, from a place that its user may have left, says nothing
 * about what the user did elsewhere since. T tells nothing of when it was sent: it may lag. */
int64_t growth_erased_at(const struct fcap_task *task, int64_t sent_ms)
{
    if (!is_left(task) || FCAP_MUTANT(ERASED_LAG)) {
        return task->meta.clock_ms;
    }
    return sent_ms > task->meta.history_ms ? sent_ms : task->meta.history_ms + 1;
}

bool growth_may_tell(const struct fcap_task *task, int64_t time_ms)
{
    const struct fcap_meta *meta = &task->meta;
    if (meta->moved_until_ms == FCAP_TIME_NONE) {
        return true;
    }
    if (time_ms > latest_ms(task)) {
        time_ms = latest_ms(task); /* The word of a clock that is ahead: it is sent now. */
    }
    /* Twice as long as stated: a producer that learns late is no reason to stop. */
    return time_ms > meta->moved_until_ms + (meta->moved_until_ms - meta->grown_ms);
}

void growth_raise(struct fcap_task *task)
{
    struct fcap_meta *meta = &task->meta;
    if (!is_left(task) || FCAP_MUTANT(GROWN_READY)) {
        return;
    }
    if (meta->complete_since_ms < meta->moved_until_ms) {
        meta->complete_since_ms = meta->moved_until_ms;
    }
    if (task->lost_before_ms < meta->moved_until_ms) {
        task->lost_before_ms = meta->moved_until_ms;
    }
}

/* Settings of today may ask for more time than those of then: a producer whose clock is further
 * ahead may count, or learn later. What they ask for less is not taken back. */
void growth_load(struct fcap_task *task)
{
    struct fcap_meta *meta = &task->meta;
    int64_t before_ms = meta->moved_until_ms;
    int64_t until_ms =
        meta->grown_ms + task->pipeline->settings.producer_refresh_ms + doubt_ms(task->pipeline);
    if (!meta->settle_due || until_ms <= before_ms) {
        return;
    }
    meta->moved_until_ms = until_ms;
    for (size_t i = 0; i < task->lost.count; i++) {
        struct fcap_lost_span *span = &task->lost.spans[i];
        if (span->kind == FCAP_GAP_GROWN && span->since_ms == before_ms) {
            span->since_ms = until_ms;
            task->lost_changed = true;
        }
    }
    growth_raise(task);
    task->pipeline->changed = true;
}

/* The clock that told when partitions had been added was ahead, and is not any more: they were
 * there by now, which is sooner. Windows stay incomplete for as long as they were said to be. */
static void correct_moment(struct fcap_task *task)
{
    struct fcap_meta *meta = &task->meta;
    int64_t ahead_ms = meta->grown_ms - latest_ms(task);
    if (ahead_ms > 0) {
        meta->grown_ms -= ahead_ms;
        meta->moved_until_ms -= ahead_ms;
        task->pipeline->changed = true;
    }
}

/* --- what was known before --- */

struct known {
    uint32_t count; /* of partitions, the most that any state here has seen; 0: none */
    struct fcap_meta newest;
    enum fcap_status status;
};

static bool look_at_meta(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct known *known = context;
    struct fcap_meta meta;
    size_t size = strlen(FCAP_META_NAME);
    if (key.size != 2 + size || memcmp(key.data + 2, FCAP_META_NAME, size) != 0) {
        return true;
    }
    known->status = fcap_meta_decode(value, &meta);
    if (known->status != FCAP_OK) {
        return false;
    }
    known->count = meta.partition_count > known->count ? meta.partition_count : known->count;
    if (meta.moved_until_ms > known->newest.moved_until_ms) {
        known->newest = meta;
    }
    return true;
}

static void take_over(struct fcap_task *task, const struct fcap_meta *from)
{
    struct fcap_meta *meta = &task->meta;
    if (from->moved_until_ms <= meta->moved_until_ms) {
        return;
    }
    meta->grown_ms = from->grown_ms;
    meta->moved_until_ms = from->moved_until_ms;
    meta->grown_from = from->grown_from;
    /* A task that runs learns it within a session; one that was just loaded may have slept. By T,
     * which is no later than it is: an erasure that was sent since must not look like an older one.
     */
    meta->counted_ms = task->gate_open ? meta->clock_ms : task->loaded_ms;
    meta->counted_ms = FCAP_MUTANT(ERASED_LAG) ? meta->grown_ms : meta->counted_ms;
    meta->counted_ms -= task->pipeline->settings.session_timeout_ms;
    meta->settle_due = true;
    task->pipeline->changed = true;
    if (is_left(task) && !FCAP_MUTANT(GROWN_READY)) {
        log_lose(task, &(struct fcap_lost_span){.kind = FCAP_GAP_GROWN,
                                                .first = -1,
                                                .last = -1,
                                                .next = meta->next_offset,
                                                .from_ms = -1,
                                                .since_ms = meta->moved_until_ms});
    }
}

static void note_moment(const struct fcap_pipeline *pipeline, uint32_t before,
                        struct fcap_meta *growth)
{
    growth->grown_ms = core_latest_ms(pipeline);
    growth->moved_until_ms =
        growth->grown_ms + pipeline->settings.producer_refresh_ms + doubt_ms(pipeline);
    growth->grown_from = before > growth->grown_from ? before : growth->grown_from;
}

enum fcap_status growth_begin(struct fcap_task *task, struct fcap_start *start)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct known known = {.newest = pipeline->growth};
    uint32_t partition = (uint32_t)task->partition;
    struct fcap_buffer keys = {0};
    fcap_key_meta(&keys, 0, "");
    size_t size = keys.size;
    fcap_key_meta(&keys, FCAP_PARTITION_MAX + 1, "");
    enum fcap_status status = pipeline->ports.store->ops->scan(
        pipeline->ports.store, FCAP_FAMILY_META, (struct fcap_bytes){keys.data, size},
        (struct fcap_bytes){keys.data + size, keys.size - size}, look_at_meta, &known);
    fcap_buffer_done(&keys);
    status = status == FCAP_OK ? known.status : status;
    if (status != FCAP_OK) {
        return core_fail(pipeline, status, "look for partitions that were added");
    }
    for (const struct fcap_task *other = pipeline->tasks; other != NULL; other = other->next) {
        if (other->meta.moved_until_ms > known.newest.moved_until_ms) {
            known.newest = other->meta;
        }
        known.count = other != task && other->meta.partition_count > known.count
                          ? other->meta.partition_count
                          : known.count;
    }
    /* The count may have been told before anything of this partition was: states know better. */
    uint32_t told = pipeline->partition_count;
    uint32_t before = known.count > 0 && partition >= known.count ? known.count : 0;
    before = before == 0 && told > 0 && partition >= told ? told : before;
    bool is_met = known.newest.moved_until_ms > task->meta.history_ms;
    if (before > 0 && (!is_met || known.newest.grown_from < before)) {
        known.newest = (struct fcap_meta){0}; /* Of an earlier growth. */
        note_moment(pipeline, before, &known.newest);
    }
    bool is_recent = known.newest.moved_until_ms > task->meta.history_ms;
    if (is_recent) {
        take_over(task, &known.newest);
    }
    if (before > 0 || (is_recent && partition >= known.newest.grown_from)) {
        *start = (struct fcap_start){.kind = FCAP_START_EARLIEST}; /* It begins with the growth. */
    }
    return FCAP_OK;
}

/* --- what has happened --- */

static void stop(struct fcap_task *task, uint32_t count)
{
    char text[320];
    (void)snprintf(text, sizeof text,
                   "the topic had %u partitions when the state was written and has %u now: users "
                   "have moved (on_gap: degrade goes on, and a window is complete again when it "
                   "has passed the change; or start with an empty state.directory)",
                   task->meta.partition_count, count);
    FCAP_COUNT(task->pipeline->counters.gaps[FCAP_GAP_GROWN], 1);
    (void)core_fail(task->pipeline, FCAP_STOPPED, text);
}

static void note_gap(struct fcap_task *task)
{
    task->gaps++;
    task->last_gap = (struct fcap_gap){.partition = task->partition,
                                       .kind = FCAP_GAP_GROWN,
                                       .wanted = task->meta.next_offset,
                                       .log_start = task->log_start,
                                       .end = task->end_offset,
                                       .next = task->meta.next_offset};
}

static void grow(struct fcap_task *task, const struct fcap_meta *growth, uint32_t count)
{
    take_over(task, growth);
    task->meta.partition_count = count;
    task->pipeline->changed = true;
    if (is_left(task)) {
        note_gap(task);
    }
}

/* How a change is told of; false: it ends the process. */
static bool note_change(struct fcap_task *task, uint32_t count, struct fcap_meta *growth)
{
    if (task->pipeline->settings.stop_on_gap) {
        stop(task, count);
        return false;
    }
    note_moment(task->pipeline, task->meta.partition_count, growth);
    return true;
}

void growth_see(struct fcap_pipeline *pipeline, int32_t partition_count)
{
    uint32_t count = (uint32_t)partition_count;
    struct fcap_meta growth = {.moved_until_ms = FCAP_TIME_NONE};
    for (struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        uint32_t before = task->meta.partition_count;
        if (before > 0 && before < count && !note_change(task, count, &growth)) {
            return;
        }
    }
    if (pipeline->partition_count > 0 && pipeline->partition_count < count) {
        note_moment(pipeline, pipeline->partition_count, &growth); /* For tasks to come. */
    }
    pipeline->partition_count = count;
    pipeline->doubt_until_ms = growth.grown_from > 0 ? 0 : pipeline->doubt_until_ms;
    pipeline->growth = growth.grown_from > 0 ? growth : pipeline->growth;
    for (struct fcap_task *task = pipeline->tasks; task != NULL && growth.grown_from > 0;
         task = task->next) {
        if (task->meta.partition_count < count) {
            grow(task, &growth, count);
        }
    }
}

void growth_started(struct fcap_task *task, int32_t partition_count)
{
    uint32_t count = (uint32_t)partition_count;
    uint32_t before = task->meta.partition_count;
    struct fcap_meta growth = {.moved_until_ms = FCAP_TIME_NONE};
    if (partition_count <= 0 || before == count) {
        return;
    }
    if (before < count) {
        growth_see(task->pipeline, partition_count);
        task->meta.partition_count = count; /* Where it is the first that is known. */
    } else if (note_change(task, count, &growth)) {
        grow(task, &growth, count); /* Created anew with fewer: what is left of it is to be seen. */
    }
}

void growth_step(struct fcap_task *task)
{
    struct fcap_meta *meta = &task->meta;
    if (!meta->settle_due) {
        return;
    }
    correct_moment(task);
    /* By T, which no wall clock that leaps ahead moves. */
    if (meta->clock_ms <= meta->moved_until_ms) {
        return;
    }
    /* Until now others may have written over what is ours: show it once more. */
    meta->settle_due = false;
    if (FCAP_MUTANT(GROWN_LAST)) {
        return;
    }
    task->full.active = false;
    gate_forget_projections(task);
}
