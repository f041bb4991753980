/* Is the topic keyed by user? Users that stand in two partitions are looked for before anything of
 * a new task is shown, and as long as it is read. */
#include "core.h"

#define HANDOVER_MS  5000  /* a partition goes between workers for so long */
#define LOOK_RECORDS 10000 /* of one partition show whether it is keyed by user */
#define LOOK_WAIT_MS 10000 /* so long a gate waits for that of others */
/* Partitions are counted every 2 s: if none was added by then, a user in two is a fault. */
#define DOUBT_MS 5000

/* Whoever asks for less time than another one has asked for changes nothing. */
static void hold(const struct fcap_pipeline *pipeline, int64_t until_ms)
{
    struct fcap_keyed_look *look = pipeline->settings.keyed_look;
    int64_t held_ms =
        look == NULL ? until_ms : __atomic_load_n(&look->handover_ms, __ATOMIC_ACQUIRE);
    while (held_ms < until_ms &&
           !__atomic_compare_exchange_n(&look->handover_ms, &held_ms, until_ms, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
}

/* Two partitions with the same user would be two clocks and one key. */
void keyed_look_at(struct fcap_task *task, struct fcap_bytes user)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    if (pipeline->settings.keyed_slots == NULL) {
        return;
    }
    /* Hash, how many partitions there were then (users move when that changes), partition. */
    uint64_t hash = fcap_hash64(user, 1);
    uint64_t mine = (hash & ~(uint64_t)0xFFFFFF) |
                    (uint64_t)(task->meta.partition_count & 0xFF) << 16 |
                    (uint64_t)(task->partition + 1);
    uint64_t *slot = &pipeline->settings.keyed_slots[hash & (FCAP_KEYED_SLOTS - 1)];
    uint64_t seen = __atomic_exchange_n(slot, mine, __ATOMIC_RELAXED);
    if (seen != 0 && seen >> 16 == mine >> 16 && seen != mine && pipeline->doubt_until_ms == 0) {
        /* Or partitions have just been added, and a producer knows it sooner than we do. */
        pipeline->doubt_until_ms = pipeline->monotonic_ms + DOUBT_MS;
        hold(pipeline, pipeline->doubt_until_ms + 1000); /* Nobody opens one meanwhile. */
    }
}

enum fcap_status keyed_doubt(struct fcap_pipeline *pipeline)
{
    if (pipeline->doubt_until_ms == 0 || pipeline->monotonic_ms < pipeline->doubt_until_ms) {
        return FCAP_OK;
    }
    return core_fail(pipeline, FCAP_STOPPED,
                     "the topic is not keyed by user: the same user stands in two partitions "
                     "(key the topic by user, or set kafka.keyed: assume)");
}

bool keyed_check(struct fcap_task *task, const struct fcap_record *record,
                 const struct fcap_event *event)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    if (!pipeline->settings.check_keyed) {
        return true;
    }
    if (record->key.data == NULL && !pipeline->settings.user_from_key) {
        (void)core_fail(pipeline, FCAP_STOPPED,
                        "the topic is not keyed by user: a record without a key names a user in "
                        "its body (key the topic by user, or set kafka.keyed: assume)");
        return false;
    }
    bool may_tell = event->is_tombstone ? growth_may_tell(task, record->timestamp_ms)
                                        : growth_may_tell(task, event->time_ms);
    if (may_tell) {
        keyed_look_at(task, event->user);
    }
    return true;
}

/* --- the first look --- */

static bool look_at_user(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct fcap_task *task = context;
    int32_t partition;
    struct fcap_bytes user;
    (void)value;
    core_alive(task->pipeline);
    if (!fcap_key_read_user(key, &partition, &user)) {
        return false;
    }
    keyed_look_at(task, user);
    return true;
}

/* What the state holds was read in a run that ended before it had shown a window, perhaps because
 * it had found that the topic is not keyed: its users are looked at again. Some are in the cache
 * only: redo has just brought them up. */
static enum fcap_status look_at_state(struct fcap_task *task)
{
    struct fcap_store *store = task->pipeline->ports.store;
    const struct fcap_cache *cache = &task->pipeline->cache;
    for (size_t i = 0; i < cache->slot_count; i++) {
        const struct fcap_user *user = cache->slots[i].user;
        if (user != NULL && user->task == task) {
            keyed_look_at(task, fcap_user_id(user));
        }
    }
    struct fcap_buffer keys = {0};
    fcap_key_user(&keys, task->partition, FCAP_BYTES_NONE);
    size_t size = keys.size;
    fcap_key_user(&keys, task->partition + 1, FCAP_BYTES_NONE);
    enum fcap_status status = store->ops->scan(
        store, FCAP_FAMILY_USERS, (struct fcap_bytes){keys.data, size},
        (struct fcap_bytes){keys.data + size, keys.size - size}, look_at_user, task);
    fcap_buffer_done(&keys);
    return status == FCAP_OK ? task->pipeline->failure
                             : core_fail(task->pipeline, status, "look at users");
}

enum fcap_status keyed_begin(struct fcap_task *task)
{
    const struct fcap_settings *settings = &task->pipeline->settings;
    if (!settings->check_keyed || task->looked_at) {
        return FCAP_OK;
    }
    if (settings->keyed_look != NULL) {
        __atomic_add_fetch(&settings->keyed_look->waiting, 1, __ATOMIC_ACQ_REL);
        task->keyed_waits = true;
    }
    /* Of users that have moved since, a state tells nothing. */
    bool may_tell = growth_may_tell(task, task->meta.history_ms);
    return task->has_state && may_tell && settings->keyed_slots != NULL ? look_at_state(task)
                                                                        : FCAP_OK;
}

static void end_look(struct fcap_task *task)
{
    if (task->keyed_waits) {
        __atomic_sub_fetch(&task->pipeline->settings.keyed_look->waiting, 1, __ATOMIC_ACQ_REL);
        task->keyed_waits = false;
    }
}

/* A task that goes unread is perhaps on its way to another worker, which will wait for it. */
void keyed_drop(struct fcap_task *task)
{
    if (task->keyed_waits) {
        hold(task->pipeline, task->pipeline->monotonic_ms + HANDOVER_MS);
    }
    end_look(task);
}

/* A task has been looked at when much of its partition, or all of it, has been read. */
void keyed_look_on(struct fcap_task *task)
{
    if (task->started && (task->reached || task->look_records >= LOOK_RECORDS)) {
        end_look(task);
    }
}

/* Two partitions with one user are found by whoever reads the second one; until then the first
 * would show half of a count. A task that could open waits for the others, but not long: one that
 * is slow or has no leader says nothing about the rest, and what it shows later still ends the
 * process. */
bool keyed_others_are_looked_at(struct fcap_task *task)
{
    const struct fcap_settings *settings = &task->pipeline->settings;
    const struct fcap_keyed_look *look = settings->keyed_look;
    int64_t now_ms = task->pipeline->monotonic_ms;
    if (task->looked_at || !settings->check_keyed || look == NULL) {
        return true;
    }
    if (task->look_until_ms == 0) {
        task->look_until_ms = now_ms + LOOK_WAIT_MS;
    }
    return now_ms >= task->look_until_ms ||
           (__atomic_load_n(&look->waiting, __ATOMIC_ACQUIRE) == 0 &&
            now_ms >= __atomic_load_n(&look->handover_ms, __ATOMIC_ACQUIRE));
}
