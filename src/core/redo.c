/* Redo: records that waited for their own writing when the process died are brought up to date
 * from the timers, as a database redoes its log onto pages that were not written (fuzzy
 * checkpoints; after Mohan et al., ARIES, 1992).
 *
 * The store's meta is of commit C; every record in the store holds all changes of commits before
 * R = redo_from, and a record stamped s >= R holds those up to s. So of each event of a commit
 * n in R..C the record lacks the addition iff n > s, and of each expiry between T(R-1) and T(C) it
 * lacks the subtraction iff it holds the event (n <= s, or n < R) and had not passed it at T(s). */
#include "core.h"

#include <stdlib.h>

struct redo {
    struct fcap_task *task;
    uint64_t from;              /* R */
    uint64_t through;           /* C */
    struct clock_point *clocks; /* [n - (R - 1)]: T and H at the end of commit n */
    bool changed;
    enum fcap_status status;
};

static int64_t cursor_at(const struct fcap_task *task, struct clock_point point, size_t window)
{
    int64_t cursor = point.clock_ms - task->meta.windows[window].length_ms;
    return cursor > point.history_ms ? cursor : point.history_ms;
}

static struct clock_point now_of(const struct fcap_task *task)
{
    return (struct clock_point){task->meta.clock_ms, task->meta.history_ms};
}

/* The commit whose changes a record holds completely: its stamp, or what every record holds. */
static uint64_t held_by(const struct redo *redo, const struct fcap_user *user)
{
    if (FCAP_MUTANT(REDO_STAMP)) {
        return redo->from - 1;
    }
    return user->stamp >= redo->from ? user->stamp : redo->from - 1;
}

static bool is_erased(const struct fcap_user *user, uint64_t commit)
{
    return user->erased_until_ms != FCAP_TIME_NONE && commit <= user->erased_commit;
}

static enum fcap_status add_event(struct redo *redo, uint64_t commit,
                                  const struct fcap_timer *timer)
{
    struct fcap_task *task = redo->task;
    struct fcap_user *user;
    enum fcap_status status = task_user(task, timer->user, &user);
    if (status != FCAP_OK || timer->ad == FCAP_AD_VOID || commit <= held_by(redo, user) ||
        is_erased(user, commit) || FCAP_MUTANT(REDO_ARRIVALS)) {
        return status;
    }
    struct fcap_cache *cache = &task->pipeline->cache;
    uint32_t mask = 0;
    for (size_t i = 0; i < task->meta.window_count; i++) {
        if (!task->meta.windows[i].building && timer->time_ms > cursor_at(task, now_of(task), i)) {
            mask |= 1u << i;
        }
    }
    user->newest_ms = timer->time_ms > user->newest_ms ? timer->time_ms : user->newest_ms;
    user_touch(user);
    redo->changed = true;
    if (mask == 0) {
        return FCAP_OK;
    }
    size_t before = fcap_user_bytes(user, cache->windows);
    uint32_t *row = fcap_user_row_add(user, cache->windows, timer->ad);
    for (size_t i = 0; i < cache->windows; i++) {
        row[1 + i] += mask >> i & 1;
    }
    fcap_cache_account(cache, before, fcap_user_bytes(user, cache->windows));
    return FCAP_OK;
}

static bool add_chunk(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct redo *redo = context;
    struct fcap_chunk_reader *reader = &redo->task->pipeline->chunk_reader;
    struct fcap_chunk_key chunk;
    if (!fcap_key_read_chunk(key, &chunk)) {
        redo->status = FCAP_CORRUPT;
        return false;
    }
    redo->status = fcap_chunk_open(reader, value, chunk.bucket_ms);
    bool found = true;
    while (redo->status == FCAP_OK) {
        struct fcap_timer timer;
        redo->status = fcap_chunk_next(reader, &timer, &found);
        if (redo->status != FCAP_OK || !found) {
            break;
        }
        FCAP_COUNT(redo->task->pipeline->counters.redo_events, 1);
        redo->status = add_event(redo, chunk.commit, &timer);
    }
    return redo->status == FCAP_OK;
}

static enum fcap_status add_bucket(struct redo *redo, uint64_t commit, int64_t bucket_ms)
{
    struct fcap_store *store = redo->task->pipeline->ports.store;
    core_alive(redo->task->pipeline);
    struct fcap_chunk_key from = {bucket_ms, redo->task->partition, commit, 0};
    struct fcap_chunk_key to = {bucket_ms, redo->task->partition, commit + 1, 0};
    struct fcap_buffer keys = {0};
    fcap_key_chunk(&keys, from);
    size_t size = keys.size;
    fcap_key_chunk(&keys, to);
    enum fcap_status status =
        store->ops->scan(store, FCAP_FAMILY_TIMERS, (struct fcap_bytes){keys.data, size},
                         (struct fcap_bytes){keys.data + size, size}, add_chunk, redo);
    fcap_buffer_done(&keys);
    return status == FCAP_OK ? redo->status : status;
}

/* Reads one commit's redo record: notes its clock and adds its events. */
static enum fcap_status redo_commit(struct redo *redo, uint64_t commit)
{
    struct fcap_store *store = redo->task->pipeline->ports.store;
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    bool found;
    fcap_key_redo(&key, redo->task->partition, commit);
    enum fcap_status status =
        store->ops->get(store, FCAP_FAMILY_META, fcap_buffer_bytes(&key), &value, &found);
    status = status == FCAP_OK && !found ? FCAP_CORRUPT : status;
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&value));
    struct clock_point point;
    point.clock_ms = fcap_reader_i64(&reader);
    point.history_ms = fcap_reader_i64(&reader);
    redo->clocks[commit - (redo->from - 1)] = point;
    int64_t bucket_ms = 0;
    while (status == FCAP_OK && fcap_reader_left(&reader) > 0) {
        bucket_ms += (int64_t)fcap_reader_varint(&reader) * redo->task->meta.bucket_ms;
        status = add_bucket(redo, commit, bucket_ms);
    }
    status = status == FCAP_OK && reader.failed ? FCAP_CORRUPT : status;
    fcap_buffer_done(&key);
    fcap_buffer_done(&value);
    return status;
}

static enum fcap_status take_off_event(struct redo *redo, size_t window,
                                       const struct timeline *timeline,
                                       const struct timeline_event *event)
{
    struct fcap_task *task = redo->task;
    struct fcap_cache *cache = &task->pipeline->cache;
    struct fcap_user *user;
    FCAP_COUNT(task->pipeline->counters.redo_events, 1);
    if (event->ad == FCAP_AD_VOID || FCAP_MUTANT(REDO_EXPIRIES)) {
        return FCAP_OK;
    }
    enum fcap_status status =
        task_user_hashed(task, timeline_user(timeline, event), event->user_hash, &user);
    if (status != FCAP_OK || user->stamp == 0) {
        return status; /* Never stored, or deleted because everything had left. */
    }
    uint64_t held = held_by(redo, user);
    int64_t passed = cursor_at(task, redo->clocks[held - (redo->from - 1)], window);
    if (event->commit > held || is_erased(user, event->commit) || event->time_ms <= passed) {
        return FCAP_OK;
    }
    uint32_t *row = fcap_user_row(user, cache->windows, event->ad);
    if (row == NULL || row[1 + window] == 0) {
        FCAP_COUNT(task->pipeline->counters.underflows, 1);
        return FCAP_OK;
    }
    row[1 + window]--;
    size_t before = fcap_user_bytes(user, cache->windows);
    fcap_user_row_trim(user, cache->windows, row);
    fcap_cache_account(cache, before, fcap_user_bytes(user, cache->windows));
    user_touch(user);
    redo->changed = true;
    return FCAP_OK;
}

static enum fcap_status redo_expiries(struct redo *redo, size_t window)
{
    struct fcap_task *task = redo->task;
    int64_t from = cursor_at(task, redo->clocks[0], window);
    int64_t to = cursor_at(task, now_of(task), window);
    while (from < to) {
        int64_t bucket_ms = bucket_of(task, from + 1);
        int64_t through = bucket_ms + task->meta.bucket_ms - 1;
        through = through < to ? through : to;
        timeline_clear(&task->build);
        core_alive(task->pipeline);
        enum fcap_status status = timeline_collect(task, bucket_ms, from, through, &task->build);
        for (size_t i = 0; i < task->build.count && status == FCAP_OK; i++) {
            status = take_off_event(redo, window, &task->build, &task->build.events[i]);
        }
        if (status != FCAP_OK) {
            return status;
        }
        from = through;
    }
    return FCAP_OK;
}

/* Called when a task with state has been loaded and before anything else changes it. */
enum fcap_status redo_task(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct redo redo = {.task = task, .from = task->meta.redo_from, .through = task->meta.commit};
    if (redo.from > redo.through) {
        return FCAP_OK;
    }
    if (redo.from == 0 || redo.through - redo.from >= CLOCKS_MAX) {
        return core_fail(pipeline, FCAP_CORRUPT, "read a partition's redo range");
    }
    redo.clocks = calloc(redo.through - redo.from + 2, sizeof *redo.clocks);
    FCAP_ASSERT(redo.clocks != NULL);
    redo.clocks[0] = (struct clock_point){task->meta.redo_clock_ms, task->meta.redo_history_ms};
    enum fcap_status status = FCAP_OK;
    for (uint64_t commit = redo.from; commit <= redo.through && status == FCAP_OK; commit++) {
        status = redo_commit(&redo, commit);
        FCAP_POINT(task_redone);
    }
    for (size_t i = 0; i < task->meta.window_count && status == FCAP_OK; i++) {
        if (!task->meta.windows[i].building) {
            status = redo_expiries(&redo, i);
        }
    }
    free(redo.clocks);
    /* The next commit writes them all: what it says of older commits is then true. */
    pipeline->flush_all = true;
    return status == FCAP_OK ? FCAP_OK : core_fail(pipeline, status, "redo unwritten records");
}
