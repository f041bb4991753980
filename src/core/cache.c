#include "fcap/user.h"

#include "fcap/assert.h"
#include "fcap/mutant.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_MIN 1024

void fcap_cache_init(struct fcap_cache *cache, size_t bytes_max, size_t windows)
{
    *cache = (struct fcap_cache){.bytes_max = bytes_max, .windows = windows};
    cache->slot_count = SLOTS_MIN;
    cache->slots = calloc(cache->slot_count, sizeof *cache->slots);
    FCAP_ASSERT(cache->slots != NULL);
    cache->bytes = cache->slot_count * sizeof *cache->slots;
}

void fcap_cache_done(struct fcap_cache *cache)
{
    for (size_t i = 0; i < cache->slot_count; i++) {
        if (cache->slots[i].user != NULL) {
            free(cache->slots[i].user->rows);
            free(cache->slots[i].user);
        }
    }
    free(cache->slots);
    *cache = (struct fcap_cache){0};
}

uint64_t fcap_cache_hash(int32_t partition, struct fcap_bytes id)
{
    return fcap_hash64(id, (uint64_t)partition);
}

/* What malloc takes for it: a size field of its own, rounded up to 16. Of small records that is a
 * seventh, too much to be left out of a budget. */
static size_t allocated(size_t size)
{
    size_t taken = (size + sizeof(size_t) + 15) / 16 * 16;
    return size == 0 ? 0 : taken < 32 ? 32 : taken;
}

size_t fcap_user_bytes(const struct fcap_user *user, size_t windows)
{
    return allocated(sizeof *user + user->size) +
           allocated(user->row_capacity * (1 + windows) * sizeof *user->rows);
}

void fcap_cache_account(struct fcap_cache *cache, size_t bytes_before, size_t bytes_after)
{
    cache->bytes = cache->bytes - bytes_before + bytes_after;
}

struct fcap_user *fcap_cache_find(struct fcap_cache *cache, const struct fcap_task *task,
                                  uint64_t hash, struct fcap_bytes id)
{
    size_t mask = cache->slot_count - 1;
    for (size_t at = hash & mask; cache->slots[at].user != NULL; at = (at + 1) & mask) {
        struct fcap_user *user = cache->slots[at].user;
        if (cache->slots[at].hash == hash && user->task == task && user->size == id.size &&
            memcmp(user->bytes, id.data, id.size) == 0) {
            user->referenced = true;
            return user;
        }
    }
    return NULL;
}

static void place(struct fcap_cache *cache, struct fcap_user *user)
{
    size_t mask = cache->slot_count - 1;
    size_t at = user->hash & mask;
    while (cache->slots[at].user != NULL) {
        at = (at + 1) & mask;
    }
    cache->slots[at] = (struct fcap_cache_slot){user->hash, user};
}

static void grow(struct fcap_cache *cache)
{
    struct fcap_cache_slot *old = cache->slots;
    size_t old_count = cache->slot_count;
    cache->slot_count *= 2;
    cache->slots = calloc(cache->slot_count, sizeof *cache->slots);
    FCAP_ASSERT(cache->slots != NULL);
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].user != NULL) {
            place(cache, old[i].user);
        }
    }
    free(old);
    cache->bytes += (cache->slot_count - old_count) * sizeof *old;
    cache->hand = 0;
}

struct fcap_user *fcap_cache_insert(struct fcap_cache *cache, struct fcap_task *task, uint64_t hash,
                                    struct fcap_bytes id)
{
    FCAP_ASSERT(id.size <= UINT16_MAX);
    if ((cache->count + 1) * 4 > cache->slot_count * 3) {
        grow(cache);
    }
    struct fcap_user *user = malloc(sizeof *user + id.size);
    FCAP_ASSERT(user != NULL);
    *user = (struct fcap_user){
        .hash = hash,
        .task = task,
        .newest_ms = FCAP_TIME_NONE,
        .erased_until_ms = FCAP_TIME_NONE,
        .partial_newest_ms = FCAP_TIME_NONE,
        .referenced = true,
        .size = (uint16_t)id.size,
    };
    memcpy(user->bytes, id.data, id.size);
    place(cache, user);
    cache->count++;
    cache->bytes += fcap_user_bytes(user, cache->windows);
    return user;
}

/* Backward-shift deletion keeps probe chains whole without tombstones. */
static void free_slot(struct fcap_cache *cache, size_t at)
{
    size_t mask = cache->slot_count - 1;
    size_t next = (at + 1) & mask;
    while (cache->slots[next].user != NULL) {
        size_t home = cache->slots[next].hash & mask;
        if (((next - home) & mask) >= ((next - at) & mask)) {
            cache->slots[at] = cache->slots[next];
            at = next;
        }
        next = (next + 1) & mask;
    }
    cache->slots[at].user = NULL;
}

static void remove_at(struct fcap_cache *cache, size_t at)
{
    struct fcap_user *user = cache->slots[at].user;
    cache->bytes -= fcap_user_bytes(user, cache->windows);
    cache->count--;
    free_slot(cache, at);
    free(user->rows);
    free(user);
}

void fcap_cache_remove(struct fcap_cache *cache, struct fcap_user *user)
{
    size_t mask = cache->slot_count - 1;
    size_t at = user->hash & mask;
    while (cache->slots[at].user != user) {
        FCAP_ASSERT(cache->slots[at].user != NULL);
        at = (at + 1) & mask;
    }
    remove_at(cache, at);
}

bool fcap_user_may_go(const struct fcap_user *user)
{
    return user->dirty_round == 0 && (user->encoded_round == 0 || FCAP_MUTANT(EVICT)) &&
           user->push_mask == 0 && user->flights == 0 && user->keep == 0;
}

void fcap_cache_evict(struct fcap_cache *cache, size_t steps_max)
{
    size_t mask = cache->slot_count - 1;
    if (steps_max > cache->slot_count * 2) {
        steps_max = cache->slot_count * 2; /* Two rounds say all: nobody else may go. */
    }
    for (size_t steps = 0; cache->bytes > cache->bytes_max && steps < steps_max; steps++) {
        struct fcap_user *user = cache->slots[cache->hand].user;
        if (user != NULL && !user->referenced && fcap_user_may_go(user)) {
            remove_at(cache, cache->hand); /* Another user may have moved here: look again. */
            cache->evictions++;
            continue;
        }
        if (user != NULL) {
            user->referenced = false;
        }
        cache->hand = (cache->hand + 1) & mask;
    }
}
