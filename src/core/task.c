/* A task: one partition's state in memory, loaded at assignment and dropped at revocation. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

struct fcap_task *task_find(struct fcap_pipeline *pipeline, int32_t partition)
{
    struct fcap_task *task = pipeline->tasks;
    while (task != NULL && task->partition != partition) {
        task = task->next;
    }
    return task;
}

void user_touch(struct fcap_user *user)
{
    struct fcap_pipeline *pipeline = user->task->pipeline;
    pipeline->changed = true;
    if (user->dirty_round != 0) {
        return;
    }
    user->dirty_round = pipeline->round;
    user->dirty_next = NULL;
    user->dirty_previous = pipeline->dirty_tail;
    *(pipeline->dirty_tail != NULL ? &pipeline->dirty_tail->dirty_next : &pipeline->dirty_head) =
        user;
    pipeline->dirty_tail = user;
    pipeline->dirty_count++;
}

static void dirty_unlink(struct fcap_pipeline *pipeline, struct fcap_user *user)
{
    *(user->dirty_previous != NULL ? &user->dirty_previous->dirty_next : &pipeline->dirty_head) =
        user->dirty_next;
    *(user->dirty_next != NULL ? &user->dirty_next->dirty_previous : &pipeline->dirty_tail) =
        user->dirty_previous;
}

void user_urge(struct fcap_user *user)
{
    struct fcap_pipeline *pipeline = user->task->pipeline;
    user_touch(user);
    if (user->urgent) {
        return;
    }
    user->urgent = true;
    if (pipeline->dirty_head == user) {
        return;
    }
    dirty_unlink(pipeline, user);
    user->dirty_previous = NULL;
    user->dirty_next = pipeline->dirty_head;
    pipeline->dirty_head->dirty_previous = user;
    pipeline->dirty_head = user;
}

void user_clean(struct fcap_user *user)
{
    struct fcap_pipeline *pipeline = user->task->pipeline;
    if (user->dirty_round == 0) {
        return;
    }
    dirty_unlink(pipeline, user);
    user->dirty_round = 0;
    user->dirty_next = NULL;
    user->dirty_previous = NULL;
    user->urgent = false;
    pipeline->dirty_count--;
}

enum fcap_status task_user(struct fcap_task *task, struct fcap_bytes id,
                           struct fcap_user **ret_user)
{
    return task_user_hashed(task, id, fcap_cache_hash(task->partition, id), ret_user);
}

enum fcap_status task_user_hashed(struct fcap_task *task, struct fcap_bytes id, uint64_t hash,
                                  struct fcap_user **ret_user)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct fcap_user *user = fcap_cache_find(&pipeline->cache, task, hash, id);
    if (user != NULL) {
        FCAP_COUNT(pipeline->counters.cache_hits, 1);
        *ret_user = user;
        return FCAP_OK;
    }
    FCAP_COUNT(pipeline->counters.cache_misses, 1);
    fcap_buffer_clear(&pipeline->key);
    fcap_key_user(&pipeline->key, task->partition, id);
    bool found = false;
    enum fcap_status status = FCAP_OK;
    if (!task->stale || FCAP_MUTANT(STALE)) {
        status = pipeline->ports.store->ops->get(pipeline->ports.store, FCAP_FAMILY_USERS,
                                                 fcap_buffer_bytes(&pipeline->key),
                                                 &pipeline->value, &found);
    }
    if (status != FCAP_OK) {
        return core_fail(pipeline, status, "read a user");
    }
    user = fcap_cache_insert(&pipeline->cache, task, hash, id);
    if (found) {
        size_t before = fcap_user_bytes(user, pipeline->cache.windows);
        status = fcap_user_decode(user, &task->numbers, fcap_buffer_bytes(&pipeline->value));
        fcap_cache_account(&pipeline->cache, before,
                           fcap_user_bytes(user, pipeline->cache.windows));
        if (status != FCAP_OK) {
            return core_fail(pipeline, status, "read a user");
        }
    }
    *ret_user = user;
    return FCAP_OK;
}

int64_t task_window_ready_at(const struct fcap_task *task, size_t index)
{
    return fcap_meta_ready_at(&task->meta, &task->meta.windows[index]);
}

bool task_window_ready(const struct fcap_task *task, size_t index)
{
    return !task->meta.windows[index].building &&
           task_window_ready_at(task, index) <= task->meta.clock_ms;
}

bool task_window_served(const struct fcap_task *task, size_t index)
{
    const struct fcap_window_meta *window = &task->meta.windows[index];
    return !window->building && (window->shown || task->pipeline->settings.serve_incomplete ||
                                 task_window_ready(task, index));
}

/* --- loading --- */

struct load {
    struct fcap_task *task;
    enum fcap_status status;
};

static bool load_ad(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct load *load = context;
    int32_t partition;
    uint32_t number;
    int32_t day;
    struct fcap_bytes id;
    if (!fcap_key_read_ad(key, &partition, &number) || !fcap_ad_decode(value, &day, &id) ||
        fcap_ads_get(&load->task->ads, number) != NULL ||
        (number >= load->task->meta.next_ad && !FCAP_MUTANT(AD_REUSE))) {
        load->status = FCAP_CORRUPT;
        return false;
    }
    if (load->task->ads.count == 0 && number < load->task->ads.base) {
        load->task->ads.base = number; /* The lowest: they come in order. */
    }
    (void)fcap_ads_add(&load->task->ads, number, id, day);
    return true;
}

static enum fcap_status load_ads(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct load load = {task, FCAP_OK};
    struct fcap_buffer keys = {0};
    fcap_key_ad(&keys, task->partition, 0);
    size_t size = keys.size;
    fcap_key_ad(&keys, task->partition + 1, 0);
    enum fcap_status status = pipeline->ports.store->ops->scan(
        pipeline->ports.store, FCAP_FAMILY_ADS, (struct fcap_bytes){keys.data, size},
        (struct fcap_bytes){keys.data + size, size}, load_ad, &load);
    fcap_buffer_done(&keys);
    status = status == FCAP_OK ? load.status : status;
    return status == FCAP_OK ? FCAP_OK : core_fail(pipeline, status, "read ads");
}

static uint16_t take_window_number(struct fcap_meta *meta, const struct fcap_window_meta *old,
                                   size_t old_count)
{
    if (FCAP_MUTANT(WINDOW_REUSE) && old_count > 0) {
        return old[old_count - 1].number;
    }
    return (uint16_t)meta->next_window++;
}

/* What was late for the longest of the stored windows was not kept, though T may not have moved
 * since they were configured: no longer window may start before it. */
static void raise_history(struct fcap_meta *meta)
{
    int64_t longest = longest_window(meta);
    if (longest > 0 && meta->clock_ms - longest > meta->history_ms) {
        meta->history_ms = meta->clock_ms - longest;
    }
}

/* The name was another window's: readers take what Redis holds under it for this one's. */
static bool is_taken(const struct fcap_window *wanted, const struct fcap_window_meta *old,
                     size_t old_count)
{
    for (size_t i = 0; i < old_count; i++) {
        if (strcmp(old[i].name, wanted->name) == 0) {
            return old[i].length_ms != wanted->length_ms || old[i].taken;
        }
    }
    return false;
}

/* Brings the stored windows in line with the configured ones: same length, same number. */
static enum fcap_status configure_windows(struct fcap_task *task)
{
    const struct fcap_settings *settings = &task->pipeline->settings;
    struct fcap_meta *meta = &task->meta;
    struct fcap_window_meta old[FCAP_WINDOWS_MAX];
    size_t old_count = meta->window_count;
    memcpy(old, meta->windows, sizeof old);
    if (task->has_state) {
        raise_history(meta);
    }
    uint32_t lowest = UINT32_MAX;
    uint32_t highest = 0;
    for (size_t i = 0; i < settings->window_count; i++) {
        const struct fcap_window *wanted = &settings->windows[i];
        struct fcap_window_meta *window = &meta->windows[i];
        size_t at = 0;
        while (at < old_count && old[at].length_ms != wanted->length_ms) {
            at++;
        }
        if (at < old_count) {
            *window = old[at];
            if (strcmp(window->name, wanted->name) != 0) {
                window->projected_to = (struct fcap_sink_identity){0}; /* Its keys are new. */
            }
        } else {
            *window = (struct fcap_window_meta){
                .number = take_window_number(meta, old, old_count),
                .length_ms = wanted->length_ms,
                .building = task->has_state,
                .complete_since_ms = task->has_state ? meta->history_ms : FCAP_TIME_NONE,
            };
            int64_t cursor = meta->clock_ms - wanted->length_ms;
            window->head_ms =
                cursor > meta->history_ms || FCAP_MUTANT(LONGER) ? cursor : meta->history_ms;
        }
        memcpy(window->name, wanted->name, sizeof window->name);
        window->taken = is_taken(wanted, old, old_count);
        lowest = window->number < lowest ? window->number : lowest;
        highest = window->number > highest ? window->number : highest;
        task->numbers.numbers[i] = window->number;
    }
    meta->window_count = settings->window_count;
    task->numbers.count = settings->window_count;
    if (highest - lowest >= 64 || highest > UINT16_MAX - 64) {
        return core_fail(task->pipeline, FCAP_LIMIT,
                         "number a window: the numbers in use lie 64 apart; rebuild the state");
    }
    return FCAP_OK;
}

static enum fcap_status load_meta(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    fcap_buffer_clear(&pipeline->key);
    fcap_key_meta(&pipeline->key, task->partition, FCAP_META_NAME);
    enum fcap_status status = pipeline->ports.store->ops->get(
        pipeline->ports.store, FCAP_FAMILY_META, fcap_buffer_bytes(&pipeline->key),
        &pipeline->value, &task->has_state);
    if (status == FCAP_OK && task->has_state) {
        status = fcap_meta_decode(fcap_buffer_bytes(&pipeline->value), &task->meta);
    }
    for (size_t i = 0; i < task->meta.window_count; i++) {
        task->looked_at = task->looked_at || task->meta.windows[i].shown;
    }
    return status == FCAP_OK ? FCAP_OK : core_fail(pipeline, status, "read a partition's meta");
}

static void link_task(struct fcap_pipeline *pipeline, struct fcap_task *task)
{
    struct fcap_task **at = &pipeline->tasks;
    while (*at != NULL && (*at)->partition < task->partition) {
        at = &(*at)->next;
    }
    task->next = *at;
    *at = task;
    pipeline->task_count++;
}

static enum fcap_status load_state(struct fcap_task *task, int64_t dropped_ms,
                                   struct fcap_start *ret_start)
{
    enum fcap_status status = load_meta(task);
    if (status != FCAP_OK) {
        return status;
    }
    status = begin_task(task, dropped_ms, ret_start);
    growth_load(task);
    task->loaded_ms = task->meta.clock_ms;
    task->second.left = task->meta.look_due && !FCAP_MUTANT(LOOK_FORGOTTEN);
    task->open_commit = task->meta.commit + 1;
    task->first_commit = task->open_commit;
    task->first_round = task->pipeline->round;
    task->clocks[task->meta.commit % CLOCKS_MAX] =
        (struct clock_point){task->meta.clock_ms, task->meta.history_ms};
    status = status == FCAP_OK ? configure_windows(task) : status;
    fcap_ads_init(&task->ads, FCAP_MUTANT(AD_REUSE) ? 0 : task->meta.next_ad);
    if (status == FCAP_OK && task->has_state) {
        status = load_ads(task);
    }
    if (status == FCAP_OK && task->has_state) {
        status = redo_task(task);
    }
    return status;
}

enum fcap_status task_open(struct fcap_pipeline *pipeline, int32_t partition, uint64_t assignment,
                           struct fcap_start *ret_start)
{
    struct fcap_task *task = calloc(1, sizeof *task);
    FCAP_ASSERT(task != NULL);
    task->pipeline = pipeline;
    task->partition = partition;
    task->assignment = assignment;
    task->claimed_next = NO_OFFSET;
    task->committed_offset = NO_OFFSET;
    task->synced_history_ms = FCAP_TIME_NONE;
    task->release_history_ms = FCAP_TIME_NONE;
    link_task(pipeline, task);
    FCAP_POINT(partition_coming);
    int64_t dropped_ms = 0;
    enum fcap_status status = pipeline->ports.store->ops->claim(pipeline->ports.store, partition,
                                                                task->assignment, &dropped_ms);
    if (status != FCAP_OK) {
        return core_fail(pipeline, status, "claim a partition");
    }
    FCAP_POINT(partition_claimed);
    status = load_state(task, dropped_ms, ret_start);
    FCAP_POINT(task_loaded);
    status = status == FCAP_OK ? keyed_begin(task) : status;
    task->committed_offset = task->has_state ? task->meta.next_offset : NO_OFFSET;
    return status;
}

/* --- dropping --- */

static void drop_users(struct fcap_pipeline *pipeline, struct fcap_task *task)
{
    struct fcap_cache *cache = &pipeline->cache;
    for (size_t at = 0; at < cache->slot_count;) {
        struct fcap_user *user = cache->slots[at].user;
        if (user == NULL || user->task != task) {
            at++;
            continue;
        }
        user_clean(user);
        push_unqueue(pipeline, user);
        fcap_cache_remove(cache, user); /* Another user may have moved to `at`: look again. */
    }
}

void task_drop(struct fcap_pipeline *pipeline, struct fcap_task *task)
{
    keyed_drop(task);
    commit_forget(pipeline, task);
    push_forget(pipeline, task);
    drop_users(pipeline, task);
    pipeline->ports.store->ops->disclaim(pipeline->ports.store, task->partition);
    struct fcap_task **at = &pipeline->tasks;
    while (*at != task) {
        at = &(*at)->next;
    }
    *at = task->next;
    pipeline->task_count--;
    pipeline->open_count -= task->open_count;
    for (size_t i = 0; i < FCAP_WINDOWS_MAX; i++) {
        timeline_done(&task->timelines[i]);
    }
    timeline_done(&task->build);
    fcap_ads_done(&task->ads);
    dedup_done(&task->dedup);
    fcap_buffer_done(&task->second.ids);
    fcap_buffer_done(&task->full.next_key);
    free(task->open);
    free(task);
}
