/* Commits: encoded at a point into an immutable batch, written when the sink has acknowledged
 * everything that they cover, in order, off this thread. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define PART_BYTES 65536 /* a larger chunk is divided */
#define RETRY_MS   200   /* before a failed commit is written again */

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
        if (old || user->urgent || commit->user_count < pressure) {
            take_user(commit, user);
        }
    }
    if (commit->user_count > 1) { /* The list of an empty commit may be NULL. */
        qsort(commit->users, commit->user_count, sizeof(struct fcap_user *), compare_users);
    }
}

/* --- encoding --- */

static uint64_t commit_of_round(const struct fcap_task *task, uint64_t round)
{
    return round <= task->first_round ? task->first_commit
                                      : task->first_commit + (round - task->first_round);
}

/* The oldest round with a change that no record in the store holds after this commit. */
static uint64_t oldest_round(const struct fcap_pipeline *pipeline)
{
    return pipeline->dirty_head == NULL ? pipeline->round + 1 : pipeline->dirty_head->dirty_round;
}

static void add_delete_range(struct fcap_pipeline *pipeline, struct commit *commit,
                             enum fcap_family family, int32_t partition)
{
    struct fcap_buffer *key = &pipeline->key;
    fcap_buffer_clear(key);
    fcap_buffer_put_be16(key, (uint16_t)partition);
    fcap_buffer_put_be16(key, (uint16_t)(partition + 1));
    fcap_batch_add(&commit->batch, family, FCAP_CHANGE_DELETE_RANGE,
                   (struct fcap_bytes){key->data, 2}, (struct fcap_bytes){key->data + 2, 2});
}

static void encode_meta(struct fcap_task *task, struct commit *commit)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct fcap_meta *meta = &task->meta;
    uint64_t redo_before = meta->redo_from;
    meta->commit = task->open_commit;
    meta->redo_from = commit_of_round(task, oldest_round(pipeline));
    FCAP_ASSERT(meta->commit + 1 - meta->redo_from < CLOCKS_MAX);
    task->clocks[meta->commit % CLOCKS_MAX] =
        (struct clock_point){meta->clock_ms, meta->history_ms};
    struct clock_point redo = task->clocks[(meta->redo_from - 1) % CLOCKS_MAX];
    meta->redo_clock_ms = redo.clock_ms;
    meta->redo_history_ms = redo.history_ms;
    if (task->closed.count > 0 && !FCAP_MUTANT(NO_FLAG)) {
        for (size_t i = 0; i < meta->window_count; i++) {
            meta->windows[i].projected_to = (struct fcap_sink_identity){0};
        }
    }
    struct fcap_meta stored = *meta;
    stored.next_offset += FCAP_MUTANT(OFFSET_OUTSIDE) && stored.next_offset < task->end_offset;
    fcap_buffer_clear(&pipeline->key);
    fcap_buffer_clear(&pipeline->value);
    for (uint64_t number = redo_before; number < meta->redo_from && number > 0; number++) {
        fcap_buffer_clear(&pipeline->key);
        fcap_key_redo(&pipeline->key, task->partition, number);
        fcap_batch_add(&commit->batch, FCAP_FAMILY_META, FCAP_CHANGE_DELETE,
                       fcap_buffer_bytes(&pipeline->key), FCAP_BYTES_NONE);
    }
    fcap_buffer_clear(&pipeline->key);
    fcap_key_meta(&pipeline->key, task->partition, FCAP_META_NAME);
    fcap_meta_encode(&stored, &pipeline->value);
    fcap_batch_add(&commit->batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT,
                   fcap_buffer_bytes(&pipeline->key), fcap_buffer_bytes(&pipeline->value));
}

static void encode_user(struct fcap_task *task, struct commit *commit, struct fcap_user *user)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    bool empty = FCAP_MUTANT(MARK_LOST) ? user->row_count == 0
                                        : fcap_user_is_empty(user, task->meta.history_ms);
    user->encoded_round = pipeline->round;
    fcap_buffer_clear(&pipeline->key);
    fcap_key_user(&pipeline->key, task->partition, fcap_user_id(user));
    if (empty) {
        /* Also when no version is known to be stored: one may be in flight. */
        user->stamp = 0;
        fcap_batch_add(&commit->batch, FCAP_FAMILY_USERS, FCAP_CHANGE_DELETE,
                       fcap_buffer_bytes(&pipeline->key), FCAP_BYTES_NONE);
        if (task->full.active) {
            push_mark(user, task->full.windows, QUEUE_SECOND); /* The scan will not meet it. */
        }
        return;
    }
    if (user->erased_until_ms <= task->meta.history_ms) {
        user->erased_until_ms = FCAP_TIME_NONE; /* Every chunk that it hides is out of reach. */
    }
    if (user->partial_newest_ms <= task->meta.history_ms) {
        user->partial_newest_ms = FCAP_TIME_NONE;
    }
    user->stamp = task->open_commit;
    fcap_buffer_clear(&pipeline->value);
    fcap_user_encode(user, &task->numbers, user->stamp, &pipeline->value);
    fcap_batch_add(&commit->batch, FCAP_FAMILY_USERS, FCAP_CHANGE_PUT,
                   fcap_buffer_bytes(&pipeline->key), fcap_buffer_bytes(&pipeline->value));
    FCAP_COUNT(pipeline->counters.commit_users, 1);
}

/* A complete projection follows, which meets every user that the store or the cache holds: they
 * leave the queue, so that the cache may let them go. Users without a record are remembered by
 * their ids: Redis may hold a key of theirs that an earlier run or other windows have set. */
static void release_closed(struct fcap_task *task)
{
    while (task->closed.head != NULL) {
        struct fcap_user *user = task->closed.head;
        if (user->stamp == 0 && user->dirty_round == 0) {
            gate_remember(task, user);
        }
        push_unqueue(task->pipeline, user);
        task->closed_lost = true;
    }
}

static int compare_open(const void *left, const void *right)
{
    const struct open_event *a = left;
    const struct open_event *b = right;
    return a->time_ms < b->time_ms ? -1 : a->time_ms > b->time_ms;
}

static void add_chunk(struct fcap_task *task, struct commit *commit, int64_t bucket_ms,
                      uint16_t part)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    fcap_buffer_clear(&pipeline->key);
    fcap_key_chunk(&pipeline->key,
                   (struct fcap_chunk_key){bucket_ms, task->partition, task->open_commit, part});
    fcap_batch_add(&commit->batch, FCAP_FAMILY_TIMERS, FCAP_CHANGE_PUT,
                   fcap_buffer_bytes(&pipeline->key), fcap_buffer_bytes(&pipeline->value));
}

/* Writes the open events from `first` on that lie in one bucket; gives the index behind them. */
static size_t encode_bucket(struct fcap_task *task, struct commit *commit, size_t first)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    int64_t bucket_ms = bucket_of(task, task->open[first].time_ms);
    int64_t end_ms = FCAP_MUTANT(CHUNK_FIRST) ? INT64_MAX : bucket_ms + task->meta.bucket_ms;
    uint16_t part = 0;
    size_t at = first;
    while (at < task->open_count && task->open[at].time_ms < end_ms) {
        struct fcap_chunk_writer writer;
        fcap_buffer_clear(&pipeline->value);
        fcap_chunk_begin(&writer, &pipeline->value, bucket_ms, pipeline->settings.dedup);
        pipeline->part_serial++;
        for (; at < task->open_count && task->open[at].time_ms < end_ms &&
               pipeline->value.size < PART_BYTES;
             at++) {
            const struct open_event *open = &task->open[at];
            struct fcap_user *user = open->user;
            if (user->chunk_part != pipeline->part_serial) {
                user->chunk_part = pipeline->part_serial;
                user->chunk_reference = 0;
            }
            struct fcap_timer timer = {open->time_ms, fcap_user_id(user), open->ad, open->id_hash};
            fcap_chunk_add(&writer, &timer, &user->chunk_reference);
        }
        add_chunk(task, commit, bucket_ms, part);
        part++;
    }
    return at;
}

static void encode_chunks(struct fcap_task *task, struct commit *commit, struct commit_task *part)
{
    part->first_chunk = commit->batch.entry_count;
    bool sorted = true;
    for (size_t i = 1; i < task->open_count && sorted; i++) {
        sorted = task->open[i - 1].time_ms <= task->open[i].time_ms;
    }
    if (!sorted) {
        qsort(task->open, task->open_count, sizeof *task->open, compare_open);
    }
    for (size_t at = 0; at < task->open_count;) {
        at = encode_bucket(task, commit, at);
    }
    part->chunk_count = commit->batch.entry_count - part->first_chunk;
}

/* What redo needs of this commit: T and H at its end, and the buckets that its chunks lie in, so
 * that late ones are found without a search. */
static void encode_redo(struct fcap_task *task, struct commit *commit,
                        const struct commit_task *part)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    if (task->meta.redo_from > task->open_commit) {
        return; /* Every record is written: nothing to redo. */
    }
    fcap_buffer_clear(&pipeline->value);
    fcap_buffer_put_be64(&pipeline->value, (uint64_t)task->meta.clock_ms);
    fcap_buffer_put_be64(&pipeline->value, (uint64_t)task->meta.history_ms);
    int64_t previous_ms = 0;
    for (size_t i = 0; i < part->chunk_count; i++) {
        struct fcap_chunk_key key;
        FCAP_ASSERT(
            fcap_key_read_chunk(fcap_batch_key(&commit->batch, part->first_chunk + i), &key));
        if (key.part > 0) {
            continue;
        }
        fcap_buffer_put_varint(&pipeline->value,
                               (uint64_t)((key.bucket_ms - previous_ms) / task->meta.bucket_ms));
        previous_ms = key.bucket_ms;
    }
    fcap_buffer_clear(&pipeline->key);
    fcap_key_redo(&pipeline->key, task->partition, task->open_commit);
    fcap_batch_add(&commit->batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT,
                   fcap_buffer_bytes(&pipeline->key), fcap_buffer_bytes(&pipeline->value));
}

struct sweep {
    struct fcap_task *task;
    struct commit *commit;
};

static void delete_ad(void *context, uint32_t number)
{
    struct sweep *sweep = context;
    struct fcap_pipeline *pipeline = sweep->task->pipeline;
    fcap_buffer_clear(&pipeline->key);
    fcap_key_ad(&pipeline->key, sweep->task->partition, number);
    fcap_batch_add(&sweep->commit->batch, FCAP_FAMILY_ADS, FCAP_CHANGE_DELETE,
                   fcap_buffer_bytes(&pipeline->key), FCAP_BYTES_NONE);
}

static void encode_ads(struct fcap_task *task, struct commit *commit)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    int64_t history_ms = FCAP_MUTANT(AD_REUSE) ? task->meta.clock_ms : task->meta.history_ms;
    int64_t day = history_ms > 0 ? fcap_ads_day(history_ms) : 0;
    if (day > task->swept_day) {
        struct sweep sweep = {task, commit};
        fcap_ads_sweep(&task->ads, history_ms, delete_ad, &sweep);
        task->swept_day = day;
    }
    for (size_t i = 0; i < task->ads.dirty_count; i++) {
        struct fcap_ad *ad = fcap_ads_get(&task->ads, task->ads.dirty[i]);
        if (ad == NULL) {
            continue; /* Swept. */
        }
        ad->dirty = false;
        fcap_buffer_clear(&pipeline->key);
        fcap_buffer_clear(&pipeline->value);
        fcap_key_ad(&pipeline->key, task->partition, ad->number);
        fcap_ad_encode(ad, &pipeline->value);
        fcap_batch_add(&commit->batch, FCAP_FAMILY_ADS, FCAP_CHANGE_PUT,
                       fcap_buffer_bytes(&pipeline->key), fcap_buffer_bytes(&pipeline->value));
    }
    task->ads.dirty_count = 0;
}

static struct commit_task *add_part(struct commit *commit)
{
    if (commit->task_count == commit->task_capacity) {
        commit->task_capacity = commit->task_capacity * 2 + 8;
        commit->tasks = realloc(commit->tasks, commit->task_capacity * sizeof *commit->tasks);
        FCAP_ASSERT(commit->tasks != NULL);
    }
    return &commit->tasks[commit->task_count++];
}

static void encode_task(struct fcap_task *task, struct commit *commit, size_t *user)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct commit_task *part = add_part(commit);
    *part = (struct commit_task){
        .partition = task->partition,
        .assignment = task->assignment,
        .number = task->open_commit,
        .next_offset = task->meta.next_offset,
        .clock_before_ms = task->clocks[(task->open_commit - 1) % CLOCKS_MAX].clock_ms,
    };
    fcap_batch_section(&commit->batch, task->partition, task->assignment, task->open_commit);
    if (task->stale && task->open_commit == task->first_commit) {
        add_delete_range(pipeline, commit, FCAP_FAMILY_META, task->partition);
        add_delete_range(pipeline, commit, FCAP_FAMILY_USERS, task->partition);
        add_delete_range(pipeline, commit, FCAP_FAMILY_ADS, task->partition);
    }
    encode_meta(task, commit);
    part->history_ms = task->meta.redo_history_ms; /* Redo reads timers back to there. */
    for (; *user < commit->user_count && commit->users[*user]->task == task; ++*user) {
        encode_user(task, commit, commit->users[*user]);
    }
    release_closed(task);
    encode_chunks(task, commit, part);
    encode_redo(task, commit, part);
    encode_ads(task, commit);
    pipeline->open_count -= task->open_count;
    task->open_count = 0;
    task->open_commit++;
}

static void begin(struct fcap_pipeline *pipeline)
{
    struct commit *commit = &pipeline->commits[pipeline->commit_count];
    fcap_batch_clear(&commit->batch);
    commit->task_count = 0;
    commit->submitted = false;
    commit->round = pipeline->round;
    commit->ticket = pipeline->letter_ticket;
    push_close_mark(pipeline);
    commit->mark = pipeline->mark_open - 1;
    choose_users(pipeline, commit);
    size_t user = 0;
    for (struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        if (!task->started && !task->has_state) {
            task->first_round = pipeline->round + 1; /* It knows no offset to store yet. */
            continue;
        }
        encode_task(task, commit, &user);
    }
    FCAP_ASSERT(user == commit->user_count);
    pipeline->commit_count++;
    pipeline->round++;
    pipeline->changed = false;
    pipeline->flush_all = false;
    pipeline->commit_begun_ms = pipeline->monotonic_ms;
    FCAP_COUNT(pipeline->counters.commit_bytes, commit->batch.bytes.size);
}

static bool is_due(const struct fcap_pipeline *pipeline)
{
    if (pipeline->commit_count == COMMITS_MAX || pipeline->letter.active ||
        pipeline->task_count == 0 || pipeline->mark_open - pipeline->mark_done > MARKS_MAX - 8) {
        return false;
    }
    if (pipeline->open_count >= pipeline->settings.commit_events || pipeline->flush_all) {
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
    commit->submitted = false;
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
}

static enum fcap_status take_results(struct fcap_pipeline *pipeline, int wait_ms)
{
    struct fcap_store *store = pipeline->ports.store;
    while (pipeline->commit_count > 0 && pipeline->commits[0].submitted) {
        const struct fcap_batch *batch;
        enum fcap_status result;
        enum fcap_status status = store->ops->completed(store, wait_ms, &batch, &result);
        if (status != FCAP_OK || fcap_status_class(result) == FCAP_CLASS_FATAL) {
            return core_fail(pipeline, status != FCAP_OK ? status : result, "write a commit");
        }
        if (batch == NULL) {
            return FCAP_OK;
        }
        wait_ms = 0;
        struct commit *commit = &pipeline->commits[0];
        FCAP_ASSERT(batch == &commit->batch);
        if (result == FCAP_OK) {
            finish(pipeline);
            continue;
        }
        fail_commit(pipeline, commit);
        return FCAP_OK;
    }
    return FCAP_OK;
}

/* Each release costs a sync: a 64th of the longest window may lie behind H. */
static int64_t release_step(const struct fcap_task *task)
{
    int64_t longest = 0;
    for (size_t i = 0; i < task->meta.window_count; i++) {
        int64_t length = task->meta.windows[i].length_ms;
        longest = length > longest ? length : longest;
    }
    int64_t step = longest / 64;
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
