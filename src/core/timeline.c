/* Reading the timers of one bucket: committed chunks, commits in flight and open events alike. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

void timeline_clear(struct timeline *timeline)
{
    timeline->count = 0;
    timeline->next = 0;
    timeline->loaded = false;
    fcap_buffer_clear(&timeline->users);
}

void timeline_done(struct timeline *timeline)
{
    free(timeline->events);
    fcap_buffer_done(&timeline->users);
    *timeline = (struct timeline){0};
}

static struct timeline_event *add_event(struct timeline *timeline, struct fcap_bytes user,
                                        uint64_t user_hash)
{
    if (timeline->count == timeline->capacity) {
        timeline->capacity = timeline->capacity * 2 + 64;
        timeline->events = realloc(timeline->events, timeline->capacity * sizeof *timeline->events);
        FCAP_ASSERT(timeline->events != NULL);
    }
    struct timeline_event *event = &timeline->events[timeline->count++];
    event->user_offset = timeline->users.size;
    event->user_size = (uint32_t)user.size;
    event->user_hash = user_hash;
    fcap_buffer_put_bytes(&timeline->users, user);
    return event;
}

/* A late event joins a bucket that is loaded already, at its place in time. */
void timeline_insert(struct timeline *timeline, const struct timeline_event *event,
                     struct fcap_bytes user)
{
    struct timeline_event added = *add_event(timeline, user, event->user_hash);
    added.time_ms = event->time_ms;
    added.commit = event->commit;
    added.id_hash = event->id_hash;
    added.ad = event->ad;
    size_t at = timeline->count - 1;
    while (at > timeline->next && timeline->events[at - 1].time_ms > added.time_ms) {
        timeline->events[at] = timeline->events[at - 1];
        at--;
    }
    timeline->events[at] = added;
}

struct collect {
    struct fcap_task *task;
    struct timeline *timeline;
    int64_t after_ms;
    int64_t through_ms;
    uint64_t hidden_from; /* stored chunks of these commits are in flight: taken from memory */
    enum fcap_status status;
};

static enum fcap_status collect_chunk(struct collect *collect, struct fcap_bytes chunk,
                                      int64_t bucket_ms, uint64_t commit)
{
    struct fcap_chunk_reader *reader = &collect->task->pipeline->chunk_reader;
    enum fcap_status status = fcap_chunk_open(reader, chunk, bucket_ms);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_timer timer;
    bool found = true;
    while ((status = fcap_chunk_next(reader, &timer, &found)) == FCAP_OK && found) {
        if (timer.time_ms <= collect->after_ms || timer.time_ms > collect->through_ms) {
            continue;
        }
        struct timeline_event *event = add_event(
            collect->timeline, timer.user, fcap_cache_hash(collect->task->partition, timer.user));
        event->time_ms = timer.time_ms;
        event->commit = commit;
        event->id_hash = timer.id_hash;
        event->ad = timer.ad;
    }
    return status;
}

static bool collect_stored(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct collect *collect = context;
    struct fcap_chunk_key chunk;
    if (!fcap_key_read_chunk(key, &chunk)) {
        collect->status = FCAP_CORRUPT;
        return false;
    }
    if (chunk.commit < collect->task->meta.valid_from ||
        (chunk.commit >= collect->hidden_from && !FCAP_MUTANT(DUPLICATE_CHUNK))) {
        return true;
    }
    if (FCAP_MUTANT(CHUNK_SKIPPED) && collect->timeline->count > 0) {
        return false;
    }
    collect->status = collect_chunk(collect, value, chunk.bucket_ms, chunk.commit);
    return collect->status == FCAP_OK;
}

/* Chunks of one commit in flight; they lie in key order. */
static enum fcap_status collect_in_flight(struct collect *collect, const struct commit *commit,
                                          int64_t bucket_ms)
{
    const struct commit_task *part = commit_find(commit, collect->task);
    if (part == NULL) {
        return FCAP_OK;
    }
    size_t low = part->first_chunk;
    size_t end = part->first_chunk + part->chunk_count;
    size_t high = end;
    struct fcap_chunk_key key;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        FCAP_ASSERT(fcap_key_read_chunk(fcap_batch_key(&commit->batch, middle), &key));
        if (key.bucket_ms < bucket_ms) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < end; low++) {
        FCAP_ASSERT(fcap_key_read_chunk(fcap_batch_key(&commit->batch, low), &key));
        if (key.bucket_ms != bucket_ms) {
            break;
        }
        enum fcap_status status =
            collect_chunk(collect, fcap_batch_value(&commit->batch, low), bucket_ms, key.commit);
        if (status != FCAP_OK) {
            return status;
        }
    }
    return FCAP_OK;
}

static void collect_open(struct collect *collect)
{
    const struct fcap_task *task = collect->task;
    for (size_t i = 0; i < task->open_count; i++) {
        const struct open_event *open = &task->open[i];
        if (open->time_ms <= collect->after_ms || open->time_ms > collect->through_ms) {
            continue;
        }
        struct timeline_event *event =
            add_event(collect->timeline, fcap_user_id(open->user), open->user->hash);
        event->time_ms = open->time_ms;
        event->commit = task->open_commit;
        event->id_hash = open->id_hash;
        event->ad = open->ad;
    }
}

static int compare_events(const void *left, const void *right)
{
    const struct timeline_event *a = left;
    const struct timeline_event *b = right;
    return a->time_ms < b->time_ms ? -1 : a->time_ms > b->time_ms;
}

/* Adds the events of one bucket with after < event_time <= through, sorted by time. */
enum fcap_status timeline_collect(struct fcap_task *task, int64_t bucket_ms, int64_t after_ms,
                                  int64_t through_ms, struct timeline *timeline)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct collect collect = {task, timeline, after_ms, through_ms, task->open_commit, FCAP_OK};
    for (size_t i = 0; i < pipeline->commit_count; i++) {
        const struct commit_task *part = commit_find(&pipeline->commits[i], task);
        if (part != NULL && part->number < collect.hidden_from) {
            collect.hidden_from = part->number;
        }
    }
    struct fcap_chunk_key from = {.bucket_ms = bucket_ms, .partition = task->partition};
    struct fcap_chunk_key to = {.bucket_ms = bucket_ms, .partition = task->partition + 1};
    struct fcap_buffer *keys = &pipeline->key;
    fcap_buffer_clear(keys);
    fcap_key_chunk(keys, from);
    size_t size = keys->size;
    fcap_key_chunk(keys, to);
    enum fcap_status status = pipeline->ports.store->ops->scan(
        pipeline->ports.store, FCAP_FAMILY_TIMERS, (struct fcap_bytes){keys->data, size},
        (struct fcap_bytes){keys->data + size, size}, collect_stored, &collect);
    status = status == FCAP_OK ? collect.status : status;
    if (!FCAP_MUTANT(NO_PENDING)) {
        for (size_t i = 0; i < pipeline->commit_count && status == FCAP_OK; i++) {
            status = collect_in_flight(&collect, &pipeline->commits[i], bucket_ms);
        }
        collect_open(&collect);
    }
    if (status != FCAP_OK) {
        return core_fail(pipeline, status, "read timers");
    }
    bool sorted = true;
    for (size_t i = 1; i < timeline->count && sorted; i++) {
        sorted = timeline->events[i - 1].time_ms <= timeline->events[i].time_ms;
    }
    if (!sorted) {
        qsort(timeline->events, timeline->count, sizeof *timeline->events, compare_events);
    }
    return FCAP_OK;
}

struct ahead {
    struct fcap_task *task;
    bool found;
    enum fcap_status status;
};

static bool meet_chunk(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct ahead *ahead = context;
    struct fcap_chunk_key chunk;
    (void)value;
    if (!fcap_key_read_chunk(key, &chunk)) {
        ahead->status = FCAP_CORRUPT;
        return false;
    }
    ahead->found =
        chunk.partition == ahead->task->partition && chunk.commit >= ahead->task->meta.valid_from;
    return !ahead->found;
}

enum fcap_status timeline_any_after(struct fcap_task *task, int64_t after_ms, bool *ret_found)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct ahead ahead = {task, false, FCAP_OK};
    /* `after_ms` is the last of its bucket: whatever lies later has a chunk in a later one. */
    struct fcap_chunk_key from = {.bucket_ms = bucket_of(task, after_ms + 1)};
    for (size_t i = 0; i < task->open_count && !ahead.found; i++) {
        ahead.found = task->open[i].time_ms > after_ms;
    }
    for (size_t i = 0; i < pipeline->commit_count && !ahead.found; i++) {
        const struct commit_task *part = commit_find(&pipeline->commits[i], task);
        if (part != NULL && part->chunk_count > 0) {
            size_t last = part->first_chunk + part->chunk_count - 1; /* In key order. */
            struct fcap_chunk_key key;
            FCAP_ASSERT(
                fcap_key_read_chunk(fcap_batch_key(&pipeline->commits[i].batch, last), &key));
            ahead.found = key.bucket_ms >= from.bucket_ms;
        }
    }
    if (!ahead.found && ahead.status == FCAP_OK) {
        fcap_buffer_clear(&pipeline->key);
        fcap_key_chunk(&pipeline->key, from);
        enum fcap_status status = pipeline->ports.store->ops->scan(
            pipeline->ports.store, FCAP_FAMILY_TIMERS, fcap_buffer_bytes(&pipeline->key),
            FCAP_BYTES_NONE, meet_chunk, &ahead);
        ahead.status = status == FCAP_OK ? ahead.status : status;
    }
    *ret_found = ahead.found;
    return ahead.status == FCAP_OK ? FCAP_OK : core_fail(pipeline, ahead.status, "read timers");
}
