/* Encoding a task's part of a commit: meta, changed records, timer chunks, redo, ads. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define PART_BYTES 65536 /* a larger chunk is divided */

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

static void encode_meta(struct fcap_task *task, struct commit *commit, struct commit_task *part)
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
        meta->look_due = true; /* Whoever opens the gate may know nothing of these users. */
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
    part->meta_entry = commit->batch.entry_count;
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

void encode_unprojected(struct commit *commit, size_t entry)
{
    struct fcap_meta meta;
    struct fcap_buffer buffer = {0};
    struct fcap_bytes value = fcap_batch_value(&commit->batch, entry);
    FCAP_ASSERT(fcap_meta_decode(value, &meta) == FCAP_OK);
    for (size_t i = 0; i < meta.window_count; i++) {
        meta.windows[i].projected_to = (struct fcap_sink_identity){0};
    }
    fcap_meta_encode(&meta, &buffer);
    FCAP_ASSERT(buffer.size == value.size);
    memcpy(commit->batch.bytes.data + commit->batch.entries[entry].value_offset, buffer.data,
           buffer.size);
    fcap_buffer_done(&buffer);
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
    fcap_buffer_put_i64(&pipeline->value, task->meta.clock_ms);
    fcap_buffer_put_i64(&pipeline->value, task->meta.history_ms);
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

void encode_task(struct fcap_task *task, struct commit *commit, size_t *user)
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
    encode_meta(task, commit, part);
    log_encode(task, commit);
    if (task->open_commit == task->first_commit) {
        begin_encode_floor(task, commit);
    }
    FCAP_POINT(commit_meta);
    part->history_ms = task->meta.redo_history_ms; /* Redo reads timers back to there. */
    for (; *user < commit->user_count && commit->users[*user]->task == task; ++*user) {
        encode_user(task, commit, commit->users[*user]);
    }
    release_closed(task);
    FCAP_POINT(commit_users);
    encode_chunks(task, commit, part);
    FCAP_POINT(commit_chunks);
    encode_redo(task, commit, part);
    encode_ads(task, commit);
    FCAP_POINT_IF(!task->gate_open && task->open_count > 0, history_encoded);
    pipeline->open_count -= task->open_count;
    task->open_count = 0;
    task->open_commit++;
}
