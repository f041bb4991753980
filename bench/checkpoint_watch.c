/* What batches change, and how long steps take. */
#include "checkpoint.h"

#include "fcap/assert.h"

#include <stdlib.h>

/* --- the follower ---------------------------------------------------------------------------- */

static void note(struct watcher *watcher, uint64_t sequence, const struct fcap_batch *batch,
                 const struct fcap_batch_section *section)
{
    for (size_t i = section->first; i < section->first + section->count; i++) {
        const struct fcap_bytes key = fcap_batch_key(batch, i);
        if (watcher->count == watcher->capacity) {
            watcher->capacity = watcher->capacity * 2 + 65536;
            watcher->changes =
                realloc(watcher->changes, watcher->capacity * sizeof watcher->changes[0]);
            FCAP_ASSERT(watcher->changes != NULL);
        }
        watcher->changes[watcher->count++] = (struct checkpoint_change){
            .key = fcap_hash64(key, batch->entries[i].family),
            .sequence = sequence,
            .size = key.size + fcap_batch_value(batch, i).size,
        };
    }
}

static void written(void *context, uint64_t sequence, int64_t written_ms,
                    const struct fcap_batch *batch, const bool *kept)
{
    struct watcher *watcher = context;
    (void)pthread_mutex_lock(&watcher->lock);
    for (size_t i = 0; i < batch->section_count && watcher->next.written != NULL; i++) {
        if (kept == NULL || kept[i]) {
            note(watcher, sequence, batch, &batch->sections[i]);
        }
    }
    (void)pthread_mutex_unlock(&watcher->lock);
    if (watcher->next.written != NULL) {
        watcher->next.written(watcher->next.context, sequence, written_ms, batch, kept);
    }
}

static void follow(struct fcap_checkpoint_state *state, const struct fcap_store_follower *follower)
{
    struct running *running = (struct running *)((char *)state - offsetof(struct running, state));
    running->watcher.next = follower != NULL ? *follower : (struct fcap_store_follower){0};
    const struct fcap_store_follower own = {&running->watcher, written};
    fcap_store_rocksdb_follow(running->db, &own);
}

void watcher_init(struct watcher *watcher)
{
    *watcher = (struct watcher){0};
    FCAP_ASSERT(pthread_mutex_init(&watcher->lock, NULL) == 0);
}

void watcher_done(struct watcher *watcher)
{
    free(watcher->changes);
    (void)pthread_mutex_destroy(&watcher->lock); /* Nobody holds it. */
}

void watcher_follow(struct watcher *watcher, struct running *running)
{
    watcher->ops = *running->state.state.ops;
    watcher->ops.follow = follow;
    running->state.state.ops = &watcher->ops;
}

static int compare_changes(const void *left, const void *right)
{
    const struct checkpoint_change *a = left;
    const struct checkpoint_change *b = right;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

void watcher_changed(struct watcher *watcher, uint64_t from, uint64_t through, double *ret_keys,
                     double *ret_bytes)
{
    size_t count = 0;
    (void)pthread_mutex_lock(&watcher->lock);
    struct checkpoint_change *chosen = malloc((watcher->count + 1) * sizeof *chosen);
    FCAP_ASSERT(chosen != NULL);
    for (size_t i = 0; i < watcher->count; i++) {
        if (watcher->changes[i].sequence > from && watcher->changes[i].sequence <= through) {
            chosen[count++] = watcher->changes[i];
        }
    }
    (void)pthread_mutex_unlock(&watcher->lock);
    qsort(chosen, count, sizeof *chosen, compare_changes);
    *ret_keys = 0;
    *ret_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count || chosen[i + 1].key != chosen[i].key;
        *ret_keys += is_last;
        *ret_bytes += is_last ? (double)chosen[i].size : 0;
    }
    free(chosen);
}

/* --- step times ------------------------------------------------------------------------------ */

void step_times_add(struct step_times *times, double seconds)
{
    if (times->count == times->capacity) {
        times->capacity = times->capacity * 2 + 4096;
        times->us = realloc(times->us, times->capacity * sizeof times->us[0]);
        FCAP_ASSERT(times->us != NULL);
    }
    times->us[times->count++] = (uint32_t)(seconds * 1e6);
}

static int compare_times(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static double quantile(const struct step_times *times, double share)
{
    return times->us[(size_t)((double)(times->count - 1) * share)];
}

struct step_quantiles step_times_quantiles(struct step_times *times)
{
    struct step_quantiles quantiles = {.count = times->count};
    if (quantiles.count > 0) {
        qsort(times->us, quantiles.count, sizeof times->us[0], compare_times);
        quantiles.p50_us = quantile(times, 0.5);
        quantiles.p99_us = quantile(times, 0.99);
        quantiles.p999_us = quantile(times, 0.999);
        quantiles.max_us = quantile(times, 1);
    }
    return quantiles;
}

void step_times_done(struct step_times *times)
{
    free(times->us);
    *times = (struct step_times){0};
}
