/* Everything once more by request, and what Redis should hold. */
#include "fcap/rebuild.h"

#include "core.h"

#define BLOCK_VERSION 1
#define BLOCK_BYTES   ((size_t)1 << 20) /* a block takes no further user from here on */
#define HAS_GATE      1
#define WAITS         1
#define ELSEWHERE     2
#define HAS_VALUE     1

/* What a block's `after` begins with. */
enum cursor_kind {
    CURSOR_CACHED = 1, /* be64 hash: users that the store may not hold yet, by hash */
    CURSOR_STORED = 2, /* a key: users in the store */
};

bool fcap_pipeline_rebuild(struct fcap_pipeline *pipeline, int32_t partition)
{
    struct fcap_task *task = task_find(pipeline, partition);
    if (task != NULL) {
        FCAP_COUNT(pipeline->counters.rebuilds, 1);
        gate_rebuild(task);
    }
    return task != NULL;
}

bool fcap_pipeline_rebuild_user(struct fcap_pipeline *pipeline, int32_t partition,
                                struct fcap_bytes id)
{
    struct fcap_user stored = {0};
    struct fcap_task *task = task_find(pipeline, partition);
    bool is_known = false;
    if (task != NULL) {
        const struct fcap_user *user = inspect_user(task, id, &stored, &is_known);
        /* An empty record may be of a user who belongs to another partition. */
        is_known = user != NULL && is_known && !fcap_user_is_empty(user, task->meta.history_ms);
        fcap_user_clear(&stored);
    }
    struct fcap_user *user;
    if (!is_known || task_user(task, id, &user) != FCAP_OK) {
        return false;
    }
    gate_rebuild_user(task, user);
    return true;
}

bool fcap_pipeline_rebuild_progress(struct fcap_pipeline *pipeline, int32_t partition,
                                    struct fcap_rebuild_progress *ret_progress)
{
    const struct fcap_task *task = task_find(pipeline, partition);
    if (task == NULL) {
        return false;
    }
    *ret_progress = (struct fcap_rebuild_progress){
        .windows = task->rebuild & gate_windows_served(task),
        .users = task->full.active ? task->full.users : 0,
        .gate_open = task->gate_open,
    };
    return true;
}

static bool waits(const struct fcap_user *user)
{
    return user->push_queue != QUEUE_NONE || user->flights > 0;
}

bool fcap_pipeline_user_waits(struct fcap_pipeline *pipeline, int32_t partition,
                              struct fcap_bytes id)
{
    const struct fcap_task *task = task_find(pipeline, partition);
    const struct fcap_user *user =
        task == NULL ? NULL
                     : fcap_cache_find(&pipeline->cache, task, fcap_cache_hash(partition, id), id);
    return user != NULL && waits(user);
}

/* --- blocks --- */

static size_t begin_block(struct fcap_task *task, struct fcap_bytes next,
                          struct fcap_buffer *buffer)
{
    size_t start = buffer->size;
    fcap_buffer_put_be32(buffer, 0); /* The size, at the end. */
    fcap_buffer_put_u8(buffer, BLOCK_VERSION);
    fcap_buffer_put_u8(buffer, task->gate_open ? HAS_GATE : 0);
    fcap_buffer_put_be16(buffer, (uint16_t)task->partition);
    fcap_buffer_put_be32(buffer, task->meta.partition_count);
    fcap_buffer_put_i64(buffer, task->meta.clock_ms);
    fcap_buffer_put_be16(buffer, (uint16_t)gate_windows_served(task));
    fcap_buffer_put_be16(buffer, (uint16_t)gate_windows_projected(task));
    fcap_buffer_put_be16(buffer, (uint16_t)next.size);
    fcap_buffer_put_bytes(buffer, next);
    return start;
}

static void end_block(struct fcap_buffer *buffer, size_t start, struct fcap_bytes entries)
{
    fcap_buffer_put_bytes(buffer, entries);
    uint32_t size = (uint32_t)(buffer->size - start - 4);
    for (int i = 0; i < 4; i++) {
        buffer->data[start + (size_t)i] = (uint8_t)(size >> (24 - 8 * i));
    }
}

static void put_entry(struct fcap_task *task, const struct fcap_user *user, struct fcap_bytes id,
                      struct fcap_buffer *entries)
{
    uint32_t served = gate_windows_served(task);
    bool is_owner = growth_owns(task, user);
    fcap_buffer_put_u8(entries, (uint8_t)((waits(user) ? WAITS : 0) | (is_owner ? 0 : ELSEWHERE)));
    fcap_buffer_put_be16(entries, (uint16_t)id.size);
    fcap_buffer_put_bytes(entries, id);
    for (size_t i = 0; i < task->meta.window_count && is_owner; i++) {
        struct fcap_push push;
        int64_t newest;
        bool cut;
        if ((served >> i & 1) == 0) {
            continue; /* Not shown. */
        }
        push_build(task, user, id, i, &push, &newest, &cut);
        bool has_value = push.kind == FCAP_PUSH_SET;
        fcap_buffer_put_u8(entries, has_value ? HAS_VALUE : 0);
        fcap_buffer_put_be16(entries, (uint16_t)push.key.size);
        fcap_buffer_put_bytes(entries, push.key);
        if (has_value) {
            fcap_buffer_put_i64(entries, push.expire_at_ms);
            fcap_buffer_put_be32(entries, (uint32_t)push.value.size);
            fcap_buffer_put_bytes(entries, push.value);
        }
    }
}

/* The users whose hash lies from `from` to `to`. False: they are more than a block takes, and not
 * all were put. */
static bool put_range(struct fcap_task *task, uint64_t from, uint64_t to,
                      struct fcap_buffer *entries)
{
    const struct fcap_cache *cache = &task->pipeline->cache;
    for (size_t i = 0; i < cache->slot_count; i++) {
        const struct fcap_user *user = cache->slots[i].user;
        uint64_t hash = cache->slots[i].hash;
        if (user != NULL && user->task == task && hash >= from && hash <= to &&
            ((user->stamp == 0 && user->dirty_round != 0) || user->encoded_round != 0)) {
            if (entries->size >= BLOCK_BYTES && to > from) {
                return false;
            }
            put_entry(task, user, fcap_user_id(user), entries);
        }
    }
    return true;
}

/* The users whose hash lies in a range wide enough for some times `users_max` of them (each block
 * looks at the whole cache), as far as a scan of the store may not meet them. */
static void put_cached(struct fcap_task *task, uint64_t from, size_t users_max,
                       struct fcap_buffer *next, struct fcap_buffer *entries)
{
    uint64_t width = UINT64_MAX / (task->pipeline->dirty_count / (users_max * 4) + 1);
    uint64_t to = UINT64_MAX - from < width ? UINT64_MAX : from + width;
    while (!put_range(task, from, to, entries)) {
        to = from + (to - from) / 4; /* Large users: the others come in the next block. */
        fcap_buffer_clear(entries);
    }
    if (to < UINT64_MAX) {
        fcap_buffer_put_u8(next, CURSOR_CACHED);
        fcap_buffer_put_be64(next, to + 1);
    } else {
        fcap_buffer_put_u8(next, CURSOR_STORED);
        fcap_key_user(next, task->partition, FCAP_BYTES_NONE);
    }
}

struct values_scan {
    struct fcap_task *task;
    struct fcap_buffer *next;
    struct fcap_buffer *entries;
    size_t left;
    enum fcap_status status;
};

static bool scan_values(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct values_scan *scan = context;
    struct fcap_task *task = scan->task;
    int32_t partition;
    struct fcap_bytes id;
    if (!fcap_key_read_user(key, &partition, &id)) {
        scan->status = FCAP_CORRUPT;
        return false;
    }
    const struct fcap_user *user =
        fcap_cache_find(&task->pipeline->cache, task, fcap_cache_hash(partition, id), id);
    if (user != NULL) {
        put_entry(task, user, id, scan->entries);
    } else {
        struct fcap_user stored = {.task = task,
                                   .newest_ms = FCAP_TIME_NONE,
                                   .erased_until_ms = FCAP_TIME_NONE,
                                   .partial_newest_ms = FCAP_TIME_NONE};
        scan->status = fcap_user_decode(&stored, &task->numbers, value);
        if (scan->status == FCAP_OK) {
            put_entry(task, &stored, id, scan->entries);
        }
        fcap_user_clear(&stored);
    }
    scan->left--;
    bool is_full = scan->left == 0 || scan->entries->size >= BLOCK_BYTES;
    if (is_full) {
        fcap_buffer_put_u8(scan->next, CURSOR_STORED);
        fcap_buffer_put_bytes(scan->next, key);
        fcap_buffer_put_u8(scan->next, 0); /* The next possible key. */
    }
    return scan->status == FCAP_OK && !is_full;
}

static void put_stored(struct fcap_task *task, struct fcap_bytes from, size_t users_max,
                       struct fcap_buffer *next, struct fcap_buffer *entries)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct values_scan scan = {task, next, entries, users_max, FCAP_OK};
    struct fcap_buffer to = {0};
    fcap_key_user(&to, task->partition + 1, FCAP_BYTES_NONE);
    enum fcap_status status =
        task->stale
            ? FCAP_OK
            : pipeline->ports.store->ops->scan(pipeline->ports.store, FCAP_FAMILY_USERS, from,
                                               fcap_buffer_bytes(&to), scan_values, &scan);
    fcap_buffer_done(&to);
    status = status == FCAP_OK ? scan.status : status;
    if (status != FCAP_OK) {
        (void)core_fail(pipeline, status, "look at users"); /* Ends the worker at its next step. */
    }
}

bool fcap_pipeline_values(struct fcap_pipeline *pipeline, int32_t partition,
                          struct fcap_bytes after, size_t users_max, struct fcap_buffer *buffer)
{
    struct fcap_buffer next = {0};
    struct fcap_buffer entries = {0};
    struct fcap_task *task = task_find(pipeline, partition);
    struct fcap_reader reader = fcap_reader_of(after);
    uint8_t kind = after.size == 0 ? CURSOR_CACHED : fcap_reader_u8(&reader);
    if (task == NULL) {
        return false;
    }
    if (kind == CURSOR_CACHED) {
        uint64_t from = after.size == 0 ? 0 : fcap_reader_be64(&reader);
        put_cached(task, from, users_max, &next, &entries);
    } else {
        struct fcap_bytes key = {reader.at, fcap_reader_left(&reader)};
        int32_t there = -1;
        struct fcap_reader start = fcap_reader_of(key);
        there = fcap_reader_be16(&start);
        if (!start.failed && there == partition) { /* Never beyond the partition. */
            put_stored(task, key, users_max, &next, &entries);
        }
    }
    size_t start = begin_block(task, fcap_buffer_bytes(&next), buffer);
    end_block(buffer, start, fcap_buffer_bytes(&entries));
    fcap_buffer_done(&next);
    fcap_buffer_done(&entries);
    return true;
}

bool fcap_pipeline_values_user(struct fcap_pipeline *pipeline, int32_t partition,
                               struct fcap_bytes id, struct fcap_buffer *buffer)
{
    struct fcap_user stored = {0};
    struct fcap_buffer entries = {0};
    struct fcap_task *task = task_find(pipeline, partition);
    bool is_known = false;
    if (task == NULL) {
        return false;
    }
    if (id.size > 0) {
        const struct fcap_user *user = inspect_user(task, id, &stored, &is_known);
        /* An empty record may be of a user who belongs to another partition, unless it has just
         * become empty and Redis has not acknowledged that yet. */
        is_known = user != NULL && is_known &&
                   (!fcap_user_is_empty(user, task->meta.history_ms) || waits(user));
        if (is_known) {
            put_entry(task, user, id, &entries);
        }
        fcap_user_clear(&stored);
    }
    if (is_known || id.size == 0) {
        size_t start = begin_block(task, FCAP_BYTES_NONE, buffer);
        end_block(buffer, start, fcap_buffer_bytes(&entries));
    }
    fcap_buffer_done(&entries);
    return is_known || id.size == 0;
}

/* --- reading them --- */

bool fcap_values_read(struct fcap_reader *reader, struct fcap_values *ret_values)
{
    if (reader->failed || fcap_reader_left(reader) == 0) {
        return false;
    }
    struct fcap_reader block = fcap_reader_of(fcap_reader_take(reader, fcap_reader_be32(reader)));
    struct fcap_values values = {0};
    uint8_t version = fcap_reader_u8(&block);
    values.gate_open = (fcap_reader_u8(&block) & HAS_GATE) != 0;
    values.partition = fcap_reader_be16(&block);
    values.partition_count = fcap_reader_be32(&block);
    values.clock_ms = fcap_reader_i64(&block);
    values.served = fcap_reader_be16(&block);
    values.projected = fcap_reader_be16(&block);
    values.next = fcap_reader_take(&block, fcap_reader_be16(&block));
    if (reader->failed || block.failed || version != BLOCK_VERSION) {
        reader->failed = true;
        return false;
    }
    values.entries = block;
    *ret_values = values;
    return true;
}

bool fcap_values_next(struct fcap_values *values, struct fcap_values_entry *ret_entry)
{
    struct fcap_reader *reader = &values->entries;
    if (reader->failed || fcap_reader_left(reader) == 0) {
        return false;
    }
    uint8_t flags = fcap_reader_u8(reader);
    ret_entry->waits = (flags & WAITS) != 0;
    ret_entry->is_elsewhere = (flags & ELSEWHERE) != 0;
    ret_entry->user = fcap_reader_take(reader, fcap_reader_be16(reader));
    return !reader->failed;
}

void fcap_values_next_window(struct fcap_values *values, struct fcap_values_window *ret_window)
{
    struct fcap_reader *reader = &values->entries;
    bool has_value = (fcap_reader_u8(reader) & HAS_VALUE) != 0;
    *ret_window = (struct fcap_values_window){0};
    ret_window->key = fcap_reader_take(reader, fcap_reader_be16(reader));
    if (has_value) {
        ret_window->expire_at_ms = fcap_reader_i64(reader);
        ret_window->value = fcap_reader_take(reader, fcap_reader_be32(reader));
    }
}
