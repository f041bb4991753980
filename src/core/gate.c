/* When a task may send, and when everything has to be sent: the gate, complete projections, and
 * the second look at users whom an old owner may have written over. */
#include "core.h"

#include "fcap/backfill.h"

#include <string.h>

#define SCAN_USERS        512                  /* users queued by one look at the store */
#define SECOND_LOOK_MAX   4096                 /* users remembered one by one, */
#define SECOND_LOOK_BYTES ((size_t)256 * 1024) /* and room for their ids */

static bool is_known(const struct fcap_sink_identity *identity)
{
    static const struct fcap_sink_identity none;
    return memcmp(identity, &none, sizeof none) != 0;
}

void gate_reached(struct fcap_task *task, int64_t offset)
{
    /* Before the source has answered, the end is not known. */
    bool reached = task->reached || (task->started && offset >= task->end_offset);
    FCAP_POINT_IF(reached && !task->reached, history_reached);
    task->reached = reached;
}

/* --- the gate --- */

/* Keeps a user for the opening of the gate and for the second look; without room for it that look
 * is at everything. */
void gate_remember(struct fcap_task *task, const struct fcap_user *user)
{
    if (task->second.ids.size >= SECOND_LOOK_BYTES) {
        task->second.all = true;
        return;
    }
    fcap_buffer_put_be16(&task->second.ids, user->size);
    fcap_buffer_put_bytes(&task->second.ids, fcap_user_id(user));
}

static enum fcap_status show_remembered(struct fcap_task *task)
{
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&task->second.ids));
    while (fcap_reader_left(&reader) > 0) {
        struct fcap_bytes id = fcap_reader_take(&reader, fcap_reader_be16(&reader));
        struct fcap_user *user;
        enum fcap_status status = task_user(task, id, &user);
        if (status != FCAP_OK) {
            return status;
        }
        push_mark(user, (1u << task->meta.window_count) - 1, QUEUE_SECOND);
    }
    return FCAP_OK;
}

/* No Redis is known to hold all of it any more. */
void gate_forget_projections(struct fcap_task *task)
{
    for (size_t i = 0; i < task->meta.window_count; i++) {
        task->meta.windows[i].projected_to = (struct fcap_sink_identity){0};
    }
    task->pipeline->changed = true;
}

/* The epoch counts assignments in all processes. When another owner was at work since this state's
 * last one, Redis shows what that one made of the records, and it may have judged some otherwise
 * (the future rule asks the wall clock): everything is projected once more. */
static void enter_epoch(struct fcap_task *task)
{
    /* Nor may what another Redis holds stand beside a number of this one. */
    if (!task->epoch_follows || gate_windows_projected(task) == 0) {
        gate_forget_projections(task);
    }
    task->meta.epoch = (uint64_t)task->epoch;
}

static uint32_t windows_missing(const struct fcap_task *task);

static enum fcap_status open_gate(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    FCAP_POINT(gate_opening);
    for (size_t i = 0; i < task->meta.window_count && FCAP_MUTANT(RUN_ID_MEMORY); i++) {
        if (is_known(&task->meta.windows[i].projected_to)) {
            task->meta.windows[i].projected_to = pipeline->sink_state.identity;
        }
    }
    enter_epoch(task);
    task->gate_open = true;
    /* Where a complete projection is due, the old owner may have been in the middle of one. */
    bool may_know_all = windows_missing(task) != 0 && !FCAP_MUTANT(LOOK_NAMED);
    task->second.all = task->second.left || task->closed_lost || may_know_all ||
                       task->closed.count > SECOND_LOOK_MAX;
    task->second.armed = true;
    task->meta.look_due = true;
    task->second.due_ms = pipeline->monotonic_ms + pipeline->settings.session_timeout_ms;
    enum fcap_status status = show_remembered(task); /* Left by commits before the opening. */
    while (task->closed.head != NULL && status == FCAP_OK) {
        struct fcap_user *user = task->closed.head;
        uint32_t windows = user->push_mask;
        if (!task->second.all || user->stamp == 0) {
            gate_remember(task, user);
        }
        push_unqueue(pipeline, user);
        push_mark(user, windows, QUEUE_SECOND);
    }
    pipeline->changed = true;
    FCAP_POINT(gate_opened);
    return status;
}

/* Whoever claims partitions in Redis (backfill, docs/decisions/0012) knows owners by the epochs
 * that they ask for after its claim, and waits a while for those that asked before it: an epoch of
 * long ago, of a connection that has broken since, or of another Redis opens no gate. The clock is
 * read anew: a step may have taken long. */
static bool has_epoch(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    int64_t age_ms = pipeline->ports.clock->monotonic_ms(pipeline->ports.clock) - task->epoch_ms;
    bool is_fresh = age_ms <= FCAP_BACKFILL_OPENING_MS &&
                    task->epoch_connection == pipeline->sink_state.connection &&
                    is_same_redis(&task->epoch_identity, &pipeline->sink_state.identity);
    if (!task->epoch_asked && !is_fresh && !FCAP_MUTANT(EPOCH_OLD)) {
        task->epoch = 0;
    }
    return task->epoch != 0;
}

static enum fcap_status try_to_open(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    const struct fcap_sink_state *sink = &pipeline->sink_state;
    gate_reached(task, task->meta.next_offset);
    keyed_look_on(task);
    if (!task->started || !task->reached || !sink->ready || !is_known(&sink->identity) ||
        pipeline->letter.active || pipeline->doubt_until_ms != 0) {
        task->look_until_ms = 0; /* Meanwhile the others may not be read either. */
        return FCAP_OK;
    }
    if (task->meta.clock_ms < clock_target(task) && !FCAP_MUTANT(GATE_EARLY)) {
        return FCAP_OK;
    }
    if (!keyed_others_are_looked_at(task)) {
        return FCAP_OK;
    }
    if (!has_epoch(task)) {
        if (!task->epoch_asked) {
            (void)push_epoch(task); /* Asked again at the next step when the sink is busy. */
        }
        return FCAP_OK;
    }
    return open_gate(task);
}

enum fcap_status gate_answered(struct fcap_pipeline *pipeline)
{
    enum fcap_status status = FCAP_OK;
    for (struct fcap_task *task = pipeline->tasks; task != NULL && status == FCAP_OK;
         task = task->next) {
        if (!task->gate_open && task->epoch != 0) {
            status = try_to_open(task);
        }
    }
    return status;
}

/* --- complete projections --- */

uint32_t gate_windows_served(const struct fcap_task *task)
{
    uint32_t mask = 0;
    for (size_t i = 0; i < task->meta.window_count; i++) {
        if (task_window_served(task, i)) {
            mask |= 1u << i;
        }
    }
    return mask;
}

uint32_t gate_windows_projected(const struct fcap_task *task)
{
    const struct fcap_sink_identity *identity = &task->pipeline->sink_state.identity;
    uint32_t mask = 0;
    for (size_t i = 0; i < task->meta.window_count && is_known(identity); i++) {
        if (is_same_redis(&task->meta.windows[i].projected_to, identity)) {
            mask |= 1u << i;
        }
    }
    return mask;
}

/* Windows that Redis does not hold completely, and held ones under whose name it may hold keys of
 * another. */
static uint32_t windows_missing(const struct fcap_task *task)
{
    uint32_t taken = 0;
    for (size_t i = 0; i < task->meta.window_count; i++) {
        taken |= task->meta.windows[i].taken ? 1u << i : 0;
    }
    return (gate_windows_served(task) & ~gate_windows_projected(task)) | taken;
}

bool gate_projects(const struct fcap_task *task)
{
    return task->full.active || (task->gate_open && windows_missing(task) != 0);
}

static void begin_full(struct fcap_task *task, uint32_t windows)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct full_projection *full = &task->full;
    full->active = true;
    full->scanned = false;
    full->windows = windows;
    full->users = 0;
    full->served = windows & gate_windows_served(task);
    full->identity = pipeline->sink_state.identity;
    for (size_t i = 0; i < task->meta.window_count; i++) {
        if ((full->served >> i & 1) != 0) {
            task->meta.windows[i].shown = true; /* Also when a gap comes in the middle. */
        }
    }
    fcap_buffer_clear(&full->next_key);
    fcap_key_user(&full->next_key, task->partition, FCAP_BYTES_NONE);
    FCAP_COUNT(pipeline->counters.full_projections, 1);
    for (size_t i = 0; i < pipeline->cache.slot_count; i++) {
        struct fcap_user *user = pipeline->cache.slots[i].user;
        if (user != NULL && user->task == task && (user->stamp == 0 || user->encoded_round != 0)) {
            push_mark(user, windows, QUEUE_SECOND); /* The scan of the store may not meet it. */
            full->users++;
        }
    }
    FCAP_POINT(full_begun);
}

struct scan {
    struct fcap_task *task;
    size_t left;
    enum fcap_status status;
};

static bool scan_user(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct scan *scan = context;
    struct fcap_task *task = scan->task;
    struct fcap_cache *cache = &task->pipeline->cache;
    int32_t partition;
    struct fcap_bytes id;
    if (!fcap_key_read_user(key, &partition, &id)) {
        scan->status = FCAP_CORRUPT;
        return false;
    }
    uint64_t hash = fcap_cache_hash(partition, id);
    struct fcap_user *user = fcap_cache_find(cache, task, hash, id);
    if (user == NULL) {
        /* Not cached, hence in no commit in flight: the stored record is the newest. */
        user = fcap_cache_insert(cache, task, hash, id);
        size_t before = fcap_user_bytes(user, cache->windows);
        scan->status = fcap_user_decode(user, &task->numbers, value);
        fcap_cache_account(cache, before, fcap_user_bytes(user, cache->windows));
        user->referenced = false;
    }
    push_mark(user, task->full.windows, QUEUE_SECOND);
    fcap_buffer_clear(&task->full.next_key);
    fcap_buffer_put_bytes(&task->full.next_key, key);
    fcap_buffer_put_u8(&task->full.next_key, 0); /* The next possible key. */
    scan->left--;
    task->full.users++;
    FCAP_POINT(full_queued);
    return scan->status == FCAP_OK && scan->left > 0;
}

static enum fcap_status scan_on(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct scan scan = {task, SCAN_USERS, FCAP_OK};
    struct fcap_buffer from = {0};
    fcap_buffer_put_bytes(&from, fcap_buffer_bytes(&task->full.next_key));
    size_t size = from.size;
    fcap_key_user(&from, task->partition + 1, FCAP_BYTES_NONE);
    enum fcap_status status = pipeline->ports.store->ops->scan(
        pipeline->ports.store, FCAP_FAMILY_USERS, (struct fcap_bytes){from.data, size},
        (struct fcap_bytes){from.data + size, from.size - size}, scan_user, &scan);
    fcap_buffer_done(&from);
    status = status == FCAP_OK ? scan.status : status;
    if (status != FCAP_OK) {
        return core_fail(pipeline, status, "scan users");
    }
    if (scan.left > 0) {
        task->full.scanned = true;
        task->full.mark = pipeline->mark_open; /* Everything queued is owed to it or earlier. */
    }
    return FCAP_OK;
}

/* What the owner has shown, its epoch and the projection under way are of the Redis that gave the
 * epoch. When another one answers, nothing of that counts, nor will it should that one come back.
 */
void gate_meet_redis(struct fcap_pipeline *pipeline)
{
    const struct fcap_sink_state *sink = &pipeline->sink_state;
    if (!sink->ready || !is_known(&sink->identity)) {
        return;
    }
    for (struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        if (FCAP_MUTANT(EPOCH_KEPT)) {
            task->epoch_identity = sink->identity;
        }
        if (task->gate_open && !is_same_redis(&task->epoch_identity, &sink->identity)) {
            task->full.active = false;
            gate_forget_projections(task);
        }
    }
    commit_meet_redis(pipeline);
}

/* An epoch counts the owners in one Redis. Another one may have come from an older copy, and then
 * gives numbers out again that owners have had: one of them would be taken for the next after ours,
 * and its values for what this state has shown. So the owner asks there, too, before it shows that
 * Redis everything (docs/decisions/0020). False: that is not answered yet. */
static bool follow_redis(struct fcap_task *task)
{
    if (is_same_redis(&task->epoch_identity, &task->pipeline->sink_state.identity)) {
        return !task->epoch_asked;
    }
    if (!task->epoch_asked) {
        (void)push_epoch(task); /* Asked again at the next step when the sink is busy. */
    }
    return false;
}

static enum fcap_status full_step(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct full_projection *full = &task->full;
    if (full->active && !is_same_redis(&full->identity, &pipeline->sink_state.identity)) {
        full->active = false; /* Another Redis meanwhile: begin again. */
    }
    if (!full->active) {
        uint32_t windows = windows_missing(task);
        if (windows == 0 || task->written_commit < task->rebuild_from) {
            return FCAP_OK;
        }
        /* Nobody knows what another Redis holds of the windows that are held back. */
        begin_full(task, gate_windows_projected(task) != 0 ? windows
                                                           : (1u << task->meta.window_count) - 1);
    }
    if (!full->scanned) {
        bool room = push_waiting(pipeline) < SCAN_USERS * 4 && !task->stale;
        return room ? scan_on(task) : FCAP_OK;
    }
    if (pipeline->mark_done >= full->mark) {
        FCAP_POINT(full_acked);
        for (size_t i = 0; i < task->meta.window_count; i++) {
            struct fcap_window_meta *window = &task->meta.windows[i];
            if ((full->windows >> i & 1) != 0) {
                window->taken = false;
            }
            if ((full->served >> i & 1) != 0) {
                window->projected_to = full->identity;
            }
        }
        task->meta.look_due = task->meta.look_due && !task->second.showing;
        task->second.showing = false;
        task->rebuild &= ~full->windows;
        full->active = false;
        pipeline->changed = true;
    }
    return FCAP_OK;
}

/* Another hand may have changed any key. Nothing is begun before the state remembers what was asked
 * for, so that a crash in the middle loses nothing. */
void gate_rebuild(struct fcap_task *task)
{
    gate_forget_projections(task);
    task->rebuild = (1u << task->meta.window_count) - 1;
    task->rebuild_from = task->open_commit;
    if (!FCAP_MUTANT(REBUILD)) {
        task->full.active = false; /* What it has shown may have been changed since. */
    }
    task->pipeline->hurries = true;
}

void gate_rebuild_user(struct fcap_task *task, struct fcap_user *user)
{
    struct second_look *second = &task->second;
    const struct fcap_pipeline *pipeline = task->pipeline;
    push_mark(user, (1u << task->meta.window_count) - 1, QUEUE_SECOND);
    if (task->gate_open) {
        if (!second->armed) {
            second->armed = true;
            second->all = false;
            second->due_ms = pipeline->monotonic_ms + pipeline->settings.session_timeout_ms;
        }
        gate_remember(task, user);
    }
}

/* An old owner may have woken up after the gate opened and sent what lay in its socket: the users
 * that it can have known are shown once more. A task that goes before that leaves it to the next,
 * here or after a restart, by `look_due`; the users are then known no more, so all are shown. */
static enum fcap_status second_look(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct second_look *second = &task->second;
    if (!second->armed || pipeline->monotonic_ms < second->due_ms) {
        return FCAP_OK;
    }
    if (second->all && task->full.active) {
        return FCAP_OK; /* After the one that is under way. */
    }
    second->armed = false;
    second->showing = second->all;
    task->meta.look_due = second->all;
    pipeline->changed = true;
    enum fcap_status status = FCAP_OK;
    if (!FCAP_MUTANT(SECOND_LOOK)) {
        if (second->all) {
            begin_full(task, (1u << task->meta.window_count) - 1);
        }
        status = show_remembered(task);
    }
    fcap_buffer_done(&second->ids);
    return status;
}

enum fcap_status gate_step(struct fcap_task *task)
{
    enum fcap_status status = task->gate_open ? FCAP_OK : try_to_open(task);
    if (status != FCAP_OK || !task->gate_open || !task->pipeline->sink_state.ready ||
        !is_known(&task->pipeline->sink_state.identity)) {
        return status;
    }
    growth_step(task);
    if (!follow_redis(task)) {
        return FCAP_OK;
    }
    status = full_step(task);
    return status == FCAP_OK ? second_look(task) : status;
}
