/* Commits: encoded at a point into an immutable batch, written when the sink has acknowledged
 * everything that they cover, in order, off this thread. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_MS 200 /* before a failed commit is written again */

const struct commit_task *commit_find(const struct commit *commit, const struct fcap_task *task)
{
    for (size_t i = 0; i < commit->task_count; i++) {
        if (commit->tasks[i].partition == task->partition &&
            commit->tasks[i].assignment == task->assignment) {
            return &commit->tasks[i];
        }
    }
    return NULL;
}

void commit_done(struct commit *commit)
{
    fcap_batch_done(&commit->batch);
    free(commit->users);
    free(commit->tasks);
    *commit = (struct commit){0};
}

/* --- which records are written --- */

static int compare_users(const void *left, const void *right)
{
    const struct fcap_user *a = *(struct fcap_user *const *)left;
    const struct fcap_user *b = *(struct fcap_user *const *)right;
    if (a->task != b->task) {
        return a->task->partition < b->task->partition ? -1 : 1;
    }
    return fcap_bytes_compare(fcap_user_id(a), fcap_user_id(b));
}

static void take_user(struct commit *commit, struct fcap_user *user)
{
    if (commit->user_count == commit->user_capacity) {
        commit->user_capacity = commit->user_capacity * 2 + 1024;
        commit->users = realloc(commit->users, commit->user_capacity * sizeof(struct fcap_user *));
        FCAP_ASSERT(commit->users != NULL);
    }
    commit->users[commit->user_count++] = user;
    if (!FCAP_MUTANT(DIRTY_FLAG)) {
        user_clean(user); /* Encoded: clean, unless touched again. */
    }
}

static bool any_building(const struct fcap_pipeline *pipeline)
{
    for (const struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        for (size_t i = 0; i < task->meta.window_count; i++) {
            if (task->meta.windows[i].building) {
                return true;
            }
        }
    }
    return false;
}

/* Changed records may wait some commits for their own writing, since the timers hold the same
 * events; redo brings them up to date after a crash. Urgent ones cannot wait, and neither can
 * any while a window is being built or when the cache is full of them. */
static void choose_users(struct fcap_pipeline *pipeline, struct commit *commit)
{
    uint64_t defer = pipeline->settings.commit_defer;
    if (pipeline->flush_all || any_building(pipeline)) {
        defer = 0;
    }
    size_t pressure = 0;
    size_t cached = pipeline->cache.count;
    if (fcap_cache_user_bytes(&pipeline->cache) > pipeline->cache.bytes_max / 8 * 7 &&
        pipeline->dirty_count > cached / 2) {
        pressure = pipeline->dirty_count - cached / 4; /* Room for what has to be read. */
    }
    commit->user_count = 0;
    struct fcap_user *next;
    for (struct fcap_user *user = pipeline->dirty_head; user != NULL; user = next) {
        next = user->dirty_next;
        bool old = user->dirty_round + defer <= pipeline->round;
        if (!old && !user->urgent && commit->user_count >= pressure) {
            break; /* Urgent ones stand first, then the oldest: no later one is due. */
        }
        take_user(commit, user);
    }
    if (commit->user_count > 1) { /* The list of an empty commit may be NULL. */
        qsort(commit->users, commit->user_count, sizeof(struct fcap_user *), compare_users);
    }
}

static void begin(struct fcap_pipeline *pipeline)
{
    struct commit *commit = &pipeline->commits[pipeline->commit_count];
    fcap_batch_clear(&commit->batch);
    commit->task_count = 0;
    commit->submitted = false;
    commit->round = pipeline->round;
    commit->ticket = pipeline->letter_ticket;
    commit->identity = pipeline->sink_state.identity;
    push_close_mark(pipeline);
    commit->mark = pipeline->mark_open - 1;
    choose_users(pipeline, commit);
    size_t user = 0;
    for (struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        if ((!task->started && !task->has_state) || task->replay.is_open) {
            /* It knows no offset to store yet, or not whether the old state may go. */
            task->first_round = pipeline->round + 1;
            continue;
        }
        encode_task(task, commit, &user);
    }
    FCAP_ASSERT(user == commit->user_count);
    pipeline->commit_count++;
    pipeline->round++;
    pipeline->changed = false;
    pipeline->flush_all = false;
    pipeline->hurries = false;
    pipeline->commit_begun_ms = pipeline->monotonic_ms;
    FCAP_COUNT(pipeline->counters.commit_bytes, commit->batch.bytes.size);
    FCAP_POINT(commit_encoded);
}

static bool is_due(const struct fcap_pipeline *pipeline)
{
    if (pipeline->commit_count == COMMITS_MAX || pipeline->letter.active ||
        pipeline->task_count == 0 || pipeline->mark_open - pipeline->mark_done > MARKS_MAX - 8) {
        return false;
    }
    if (pipeline->open_count >= pipeline->settings.commit_events || pipeline->flush_all ||
        pipeline->hurries) {
        return true;
    }
    /* A cache full of deferred records stops everything that would be a change. */
    bool is_full = pipeline->dirty_count > 0 &&
                   fcap_cache_user_bytes(&pipeline->cache) > pipeline->cache.bytes_max;
    int64_t age_ms = pipeline->monotonic_ms - pipeline->commit_begun_ms;
    return (pipeline->changed || is_full) && age_ms >= pipeline->settings.commit_interval_ms;
}

/* --- writing --- */

/* The mutant lets a commit of an ended assignment pass for one of the task that came after. */
static void renumber_sections(struct fcap_pipeline *pipeline, struct commit *commit)
{
    for (size_t i = 0; i < commit->task_count && FCAP_MUTANT(OLD_COMMIT); i++) {
        const struct fcap_task *task = task_find(pipeline, commit->tasks[i].partition);
        if (task != NULL) {
            commit->batch.sections[i].assignment = task->assignment;
        }
    }
}

/* One at a time: a commit that failed is still the plan, and nothing newer may overtake it. */
static enum fcap_status submit_ready(struct fcap_pipeline *pipeline)
{
    struct fcap_dead_letters *letters = pipeline->ports.dead_letters;
    struct commit *commit = &pipeline->commits[0];
    if (pipeline->commit_count == 0 || commit->submitted ||
        pipeline->monotonic_ms < pipeline->retry_at_ms || commit->mark > pipeline->mark_done ||
        (letters != NULL && letters->ops->done(letters) < commit->ticket)) {
        return FCAP_OK;
    }
    renumber_sections(pipeline, commit);
    FCAP_POINT(commit_acked);
    enum fcap_status status =
        pipeline->ports.store->ops->submit(pipeline->ports.store, &commit->batch);
    if (fcap_status_class(status) == FCAP_CLASS_FATAL) {
        return core_fail(pipeline, status, "write a commit");
    }
    commit->submitted = status == FCAP_OK;
    return FCAP_OK;
}

/* The state of the store is as it was, or the commit is in it: writing it again is right either
 * way. The mutant plans its expiries a second time. */
static void fail_commit(struct fcap_pipeline *pipeline, struct commit *commit)
{
    FCAP_COUNT(pipeline->counters.commits_failed, 1);
    pipeline->retry_at_ms = pipeline->monotonic_ms + RETRY_MS;
    for (size_t i = 0; i < commit->task_count && FCAP_MUTANT(EXPIRE_AGAIN); i++) {
        struct fcap_task *task = task_find(pipeline, commit->tasks[i].partition);
        if (task != NULL && task->assignment == commit->tasks[i].assignment) {
            task->meta.clock_ms = commit->tasks[i].clock_before_ms;
            for (size_t w = 0; w < task->meta.window_count; w++) {
                timeline_clear(&task->timelines[w]);
            }
        }
    }
}

static void publish(struct fcap_pipeline *pipeline, const struct commit *commit)
{
    struct fcap_source *source = pipeline->ports.source;
    for (size_t i = 0; i < commit->task_count; i++) {
        const struct commit_task *part = &commit->tasks[i];
        struct fcap_task *task = task_find(pipeline, part->partition);
        if (task == NULL || task->assignment != part->assignment) {
            continue;
        }
        task->stale = false; /* The first commit has deleted it. */
        task->committed_offset = part->next_offset;
        task->written_commit = part->number;
        task->release_history_ms = part->history_ms;
        if (source->ops->may_send(source, part->partition)) {
            source->ops->publish(source, part->partition, part->next_offset);
        }
    }
}

static void finish(struct fcap_pipeline *pipeline)
{
    struct commit *commit = &pipeline->commits[0];
    for (size_t i = 0; i < commit->user_count; i++) {
        struct fcap_user *user = commit->users[i];
        if (user == NULL) {
            continue;
        }
        if (user->encoded_round == commit->round) {
            user->encoded_round = 0;
        }
        if (FCAP_MUTANT(DIRTY_FLAG)) {
            user_clean(user); /* Changes since the encoding are lost. */
        }
    }
    publish(pipeline, commit);
    struct commit first = *commit;
    first.user_count = 0;
    memmove(&pipeline->commits[0], &pipeline->commits[1],
            (COMMITS_MAX - 1) * sizeof pipeline->commits[0]);
    pipeline->commits[COMMITS_MAX - 1] = first; /* Its memory is used again. */
    pipeline->commit_count--;
    FCAP_COUNT(pipeline->counters.commits, 1);
    FCAP_POINT(commit_finished);
}

static enum fcap_status take_results(struct fcap_pipeline *pipeline, int wait_ms)
{
    struct fcap_store *store = pipeline->ports.store;
    while (pipeline->commit_count > 0 && pipeline->commits[0].submitted) {
        const struct fcap_batch *batch;
        enum fcap_status result;
        enum fcap_status status = store->ops->completed(store, wait_ms, &batch, &result);
        if (batch != NULL) {
            FCAP_ASSERT(batch == &pipeline->commits[0].batch);
            pipeline->commits[0].submitted = false; /* It is ours again, whatever became of it. */
        }
        if (status != FCAP_OK || fcap_status_class(result) == FCAP_CLASS_FATAL) {
            return core_fail(pipeline, status != FCAP_OK ? status : result, "write a commit");
        }
        if (batch == NULL) {
            return FCAP_OK;
        }
        wait_ms = 0;
        if (result == FCAP_OK) {
            finish(pipeline);
            continue;
        }
        fail_commit(pipeline, &pipeline->commits[0]);
        return FCAP_OK;
    }
    return FCAP_OK;
}

/* Each release costs a sync: an eighth of the longest window may lie behind H. */
static int64_t release_step(const struct fcap_task *task)
{
    int64_t step = longest_window(&task->meta) / 8;
    return step > task->meta.bucket_ms ? step : task->meta.bucket_ms;
}

/* Timers behind H are released once the commit that moved H there is durable. */
static enum fcap_status release_history(struct fcap_pipeline *pipeline, struct fcap_task *task)
{
    struct fcap_store *store = pipeline->ports.store;
    int64_t width = task->meta.bucket_ms;
    if (task->release_history_ms < 0) {
        return FCAP_OK;
    }
    if (!task->sync_wanted) {
        int64_t bound = (task->release_history_ms + 1) / width * width;
        if (task->synced_history_ms >= 0 && bound - task->synced_history_ms < release_step(task)) {
            return FCAP_OK;
        }
        task->synced_history_ms = bound;
        task->sync_wanted = true;
        task->sync_ticket = 0;
    }
    bool done = false;
    if (!FCAP_MUTANT(DROP_SYNC)) {
        enum fcap_status status = store->ops->sync(store, &task->sync_ticket, &done);
        if (fcap_status_class(status) == FCAP_CLASS_FATAL) {
            return core_fail(pipeline, status, "sync the store");
        }
    }
    if (done || FCAP_MUTANT(DROP_SYNC)) {
        store->ops->release(store, task->partition, task->synced_history_ms);
        task->sync_wanted = false;
    }
    return FCAP_OK;
}

enum fcap_status commit_step(struct fcap_pipeline *pipeline, int wait_ms)
{
    enum fcap_status status = take_results(pipeline, wait_ms);
    if (status == FCAP_OK && is_due(pipeline)) {
        begin(pipeline);
        push_settle_marks(pipeline);
    }
    if (status == FCAP_OK) {
        status = submit_ready(pipeline);
    }
    for (struct fcap_task *task = pipeline->tasks; task != NULL && status == FCAP_OK;
         task = task->next) {
        status = release_history(pipeline, task);
    }
    return status;
}

/* Another Redis is about to acknowledge what commits wait for: none of them may say that the one of
 * before holds all of it. */
void commit_meet_redis(struct fcap_pipeline *pipeline)
{
    const struct fcap_sink_identity *identity = &pipeline->sink_state.identity;
    for (size_t i = 0; i < pipeline->commit_count; i++) {
        struct commit *commit = &pipeline->commits[i];
        if (commit->submitted || is_same_redis(&commit->identity, identity)) {
            continue;
        }
        commit->identity = *identity;
        for (size_t at = 0; at < commit->task_count; at++) {
            encode_unprojected(commit, commit->tasks[at].meta_entry);
        }
    }
}

/* The users of a task that goes leave the lists of commits in flight. */
void commit_forget(struct fcap_pipeline *pipeline, struct fcap_task *task)
{
    for (size_t i = 0; i < pipeline->commit_count; i++) {
        struct commit *commit = &pipeline->commits[i];
        for (size_t at = 0; at < commit->user_count; at++) {
            if (commit->users[at] != NULL && commit->users[at]->task == task) {
                commit->users[at] = NULL;
            }
        }
    }
}
