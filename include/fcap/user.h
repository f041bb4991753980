/* A user's decoded record: counts for each ad and window, and what cache, commit and projection
 * remember about it.
 *
 * Rows are sorted by ad number and hold one count for each configured window, in configuration
 * order; a row whose counts are all zero is removed. Thread rule: belongs to its worker. */
#ifndef FCAP_USER_H
#define FCAP_USER_H

#include "fcap/bytes.h"
#include "fcap/status.h"

#define FCAP_WINDOWS_MAX 16
/* "No such time": before every cursor. */
#define FCAP_TIME_NONE INT64_MIN

struct fcap_task;

/* What every change touches stands first, in one cache line. */
struct fcap_user {
    struct fcap_task *task;
    /* The record. */
    uint32_t *rows; /* row_count x (1 + windows): ad number, counts */
    uint32_t row_count;
    uint32_t row_capacity;
    int64_t newest_ms;       /* newest counted event_time, or FCAP_TIME_NONE */
    int64_t erased_until_ms; /* the erase mark stays while this is > H; FCAP_TIME_NONE: no mark */
    uint64_t dirty_round;    /* the round of the first change that is not encoded; 0: clean */
    uint64_t push_mark;      /* the oldest mark that waits for this user's values */
    uint16_t push_mask;      /* windows to be sent */
    uint8_t push_queue;      /* enum push_queue_kind */
    bool referenced;         /* used since the clock hand passed */
    bool urgent;             /* the open commit must write it: an erase mark is nowhere else */
    uint16_t size;           /* of the id, bytes */
    /* Projection. */
    struct fcap_user *push_previous;
    struct fcap_user *push_next;
    /* Write-back. */
    struct fcap_user *dirty_previous;
    struct fcap_user *dirty_next;
    uint64_t encoded_round; /* the newest commit in flight that holds it; 0: none */
    uint64_t stamp;         /* commit number of the stored version; 0: never stored */
    uint32_t flights;       /* pushes without an answer */
    uint32_t keep;          /* reasons outside of these fields not to evict it */
    uint64_t erased_commit; /* chunks numbered <= this do not exist for the user */
    uint64_t hash;
    int64_t partial_newest_ms; /* newest event left out by limits.ads_per_user, or NONE */
    /* Of what waits to be sent, for the delays: 0: nothing. */
    int64_t fresh_ms; /* timestamp of the oldest record */
    int64_t due_ms;   /* when the first event left its window */
    /* Encoding a chunk. */
    uint64_t chunk_part;
    uint32_t chunk_reference;
    uint8_t bytes[]; /* the id */
};

/* The window numbers of a partition, by configured window. */
struct fcap_window_numbers {
    size_t count;
    uint16_t numbers[FCAP_WINDOWS_MAX];
};

/* The id. Valid as long as the user. */
static inline struct fcap_bytes fcap_user_id(const struct fcap_user *user)
{
    return (struct fcap_bytes){user->bytes, user->size};
}

/* The row of an ad, or NULL. Valid until rows change. */
uint32_t *fcap_user_row(struct fcap_user *user, size_t windows, uint32_t ad);

/* The row of an ad, added with zero counts when absent. */
uint32_t *fcap_user_row_add(struct fcap_user *user, size_t windows, uint32_t ad);

/* Removes the row when all its counts are zero. */
void fcap_user_row_trim(struct fcap_user *user, size_t windows, uint32_t *row);

/* Removes all rows. */
void fcap_user_clear(struct fcap_user *user);

/* True when the record says nothing: no counts, and no mark that is still needed at `history_ms`.
 */
bool fcap_user_is_empty(const struct fcap_user *user, int64_t history_ms);

/* Appends the stored form (docs/DATA.md). `stamp` is the commit it goes into. */
void fcap_user_encode(const struct fcap_user *user, const struct fcap_window_numbers *windows,
                      uint64_t stamp, struct fcap_buffer *buffer);

/* Reads the stored form into a user without rows. Columns of unknown windows are ignored, windows
 * that the record does not hold count zero. FORMAT: another version; CORRUPT: damaged. */
enum fcap_status fcap_user_decode(struct fcap_user *user, const struct fcap_window_numbers *windows,
                                  struct fcap_bytes bytes) FCAP_MUST_USE;

/* --- the cache ----------------------------------------------------------------------------- */

struct fcap_cache_slot {
    uint64_t hash;
    struct fcap_user *user; /* NULL: free */
};

/* All decoded records of a worker; open addressing with a clock hand. */
struct fcap_cache {
    struct fcap_cache_slot *slots;
    size_t slot_count; /* a power of two */
    size_t count;
    size_t bytes;     /* entries, rows and slots */
    size_t bytes_max; /* eviction keeps below, as far as records may go */
    size_t hand;
    size_t windows;
    uint64_t evictions;
};

void fcap_cache_init(struct fcap_cache *cache, size_t bytes_max, size_t windows);

/* Frees everything. */
void fcap_cache_done(struct fcap_cache *cache);

/* The hash under which a user of a partition is found. */
uint64_t fcap_cache_hash(int32_t partition, struct fcap_bytes id);

/* A cached user, or NULL. */
struct fcap_user *fcap_cache_find(struct fcap_cache *cache, const struct fcap_task *task,
                                  uint64_t hash, struct fcap_bytes id);

/* Hints that a user will be looked up soon: its slot first, later what the slot points to. */
static inline void fcap_cache_prefetch_slot(const struct fcap_cache *cache, uint64_t hash)
{
    __builtin_prefetch(&cache->slots[hash & (cache->slot_count - 1)]);
}

static inline void fcap_cache_prefetch_user(const struct fcap_cache *cache, uint64_t hash)
{
    const struct fcap_user *user = cache->slots[hash & (cache->slot_count - 1)].user;
    if (user != NULL) {
        __builtin_prefetch(user, 1);
        __builtin_prefetch((const char *)user + 64, 1);
        __builtin_prefetch((const char *)user + 128, 1);
    }
}

/* A new user without counts; it must not be cached already. */
struct fcap_user *fcap_cache_insert(struct fcap_cache *cache, struct fcap_task *task, uint64_t hash,
                                    struct fcap_bytes id);

/* Frees one user. */
void fcap_cache_remove(struct fcap_cache *cache, struct fcap_user *user);

/* Called after rows were added or removed: keeps the byte count right. */
void fcap_cache_account(struct fcap_cache *cache, size_t bytes_before, size_t bytes_after);

/* Bytes of all users, without the table that finds them. */
static inline size_t fcap_cache_user_bytes(const struct fcap_cache *cache)
{
    return cache->bytes - cache->slot_count * sizeof *cache->slots;
}

/* Bytes that a user takes. */
size_t fcap_user_bytes(const struct fcap_user *user, size_t windows);

/* Evicts users that may go until `bytes_max` holds or the hand has passed `steps_max` slots. */
void fcap_cache_evict(struct fcap_cache *cache, size_t steps_max);

/* True when nothing holds the user in memory. */
bool fcap_user_may_go(const struct fcap_user *user);

#endif
