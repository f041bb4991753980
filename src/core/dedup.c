/* Duplicates: same user, event time and id hash. The timer chunks are the index; the buckets met
 * lately are held as sets of fingerprints, older ones are read when they are needed. */
#include "core.h"

static uint64_t fingerprint(struct fcap_bytes user, int64_t time_ms, uint64_t id_hash)
{
    return fcap_hash64(user, id_hash ^ ((uint64_t)time_ms * 0x9E3779B97F4A7C15ull));
}

/* The entry to fill: a free one, or the one not used for longest. */
static struct dedup_bucket *take_slot(struct dedup *dedup)
{
    if (dedup->count < DEDUP_BUCKETS_MAX) {
        return &dedup->buckets[dedup->count++];
    }
    struct dedup_bucket *oldest = &dedup->buckets[0];
    for (size_t i = 1; i < dedup->count; i++) {
        if (dedup->buckets[i].used < oldest->used) {
            oldest = &dedup->buckets[i];
        }
    }
    id_set_done(&oldest->known);
    *oldest = (struct dedup_bucket){0};
    return oldest;
}

static enum fcap_status load(struct fcap_task *task, int64_t bucket_ms,
                             struct dedup_bucket **ret_bucket)
{
    struct timeline *timeline = &task->pipeline->scratch;
    timeline_clear(timeline);
    enum fcap_status status = timeline_collect(task, bucket_ms, bucket_ms - 1,
                                               bucket_ms + task->meta.bucket_ms - 1, timeline);
    if (status != FCAP_OK) {
        return status;
    }
    struct dedup_bucket *bucket = take_slot(&task->dedup);
    bucket->bucket_ms = bucket_ms;
    for (size_t i = 0; i < timeline->count; i++) {
        const struct timeline_event *event = &timeline->events[i];
        id_set_add(&bucket->known,
                   fingerprint(timeline_user(timeline, event), event->time_ms, event->id_hash));
    }
    *ret_bucket = bucket;
    return FCAP_OK;
}

/* Tells whether the event is known. A new one becomes known only if it gets a timer: the caller
 * calls dedup_add then. */
enum fcap_status dedup_check(struct fcap_task *task, struct fcap_bytes user, int64_t time_ms,
                             uint64_t id_hash, bool *ret_duplicate)
{
    int64_t bucket_ms = bucket_of(task, time_ms);
    struct dedup_bucket *bucket = NULL;
    for (size_t i = 0; i < task->dedup.count && bucket == NULL; i++) {
        if (task->dedup.buckets[i].bucket_ms == bucket_ms) {
            bucket = &task->dedup.buckets[i];
        }
    }
    if (bucket == NULL) {
        enum fcap_status status = load(task, bucket_ms, &bucket);
        if (status != FCAP_OK) {
            return status;
        }
    }
    bucket->used = ++task->dedup.tick;
    *ret_duplicate = id_set_has(&bucket->known, fingerprint(user, time_ms, id_hash));
    return FCAP_OK;
}

void dedup_add(struct fcap_task *task, struct fcap_bytes user, int64_t time_ms, uint64_t id_hash)
{
    int64_t bucket_ms = bucket_of(task, time_ms);
    for (size_t i = 0; i < task->dedup.count; i++) {
        if (task->dedup.buckets[i].bucket_ms == bucket_ms) {
            id_set_add(&task->dedup.buckets[i].known, fingerprint(user, time_ms, id_hash));
            return;
        }
    }
}

void dedup_done(struct dedup *dedup)
{
    for (size_t i = 0; i < dedup->count; i++) {
        id_set_done(&dedup->buckets[i].known);
    }
    *dedup = (struct dedup){0};
}
