#include "fcap/fold.h"

#include "fcap/ads.h"
#include "fcap/assert.h"
#include "fcap/chunk.h"
#include "fcap/key.h"
#include "fcap/user.h"
#include "fcap/value.h"

#include "id_set.h"

#include <stdlib.h>
#include <string.h>

/* --- ads --- */

struct partition_ads {
    struct fcap_ads ads; /* without slots: no ad yet */
    int64_t *first;      /* by number: the lowest offset that counted it; NULL once sealed */
    size_t capacity;
};

struct fcap_fold_ads {
    struct partition_ads *partitions;
    size_t count;
    bool is_sealed;
};

struct fcap_fold_ads *fcap_fold_ads_open(void)
{
    struct fcap_fold_ads *ads = calloc(1, sizeof *ads);
    FCAP_ASSERT(ads != NULL);
    return ads;
}

void fcap_fold_ads_close(struct fcap_fold_ads *ads)
{
    if (ads == NULL) {
        return;
    }
    for (size_t i = 0; i < ads->count; i++) {
        fcap_ads_done(&ads->partitions[i].ads);
        free(ads->partitions[i].first);
    }
    free(ads->partitions);
    free(ads);
}

size_t fcap_fold_ads_bytes(const struct fcap_fold_ads *ads)
{
    size_t bytes = sizeof *ads + ads->count * sizeof *ads->partitions;
    for (size_t i = 0; i < ads->count; i++) {
        bytes += ads->partitions[i].ads.bytes;
        bytes += ads->partitions[i].capacity * sizeof *ads->partitions[i].first;
    }
    return bytes;
}

static struct partition_ads *ads_of(struct fcap_fold_ads *ads, int32_t partition)
{
    size_t wanted = (size_t)partition + 1;
    if (wanted > ads->count) {
        ads->partitions = realloc(ads->partitions, wanted * sizeof *ads->partitions);
        FCAP_ASSERT(ads->partitions != NULL);
        memset(ads->partitions + ads->count, 0, (wanted - ads->count) * sizeof *ads->partitions);
        ads->count = wanted;
    }
    struct partition_ads *own = &ads->partitions[partition];
    if (own->ads.slots == NULL) {
        fcap_ads_init(&own->ads, 0);
    }
    return own;
}

/* The ad of a counted event; NULL: the table is sealed and lacks it. */
static struct fcap_ad *take_ad(struct fcap_fold_ads *ads, struct partition_ads *own,
                               struct fcap_bytes id, int64_t offset)
{
    struct fcap_ad *ad = fcap_ads_find(&own->ads, id);
    if (ads->is_sealed) {
        return ad;
    }
    if (ad == NULL) {
        FCAP_ASSERT(own->ads.span < FCAP_AD_VOID);
        ad = fcap_ads_add(&own->ads, (uint32_t)own->ads.span, id, 0);
        if (own->ads.span > own->capacity) {
            own->capacity = own->capacity * 2 + 64;
            own->first = realloc(own->first, own->capacity * sizeof *own->first);
            FCAP_ASSERT(own->first != NULL);
        }
        own->first[ad->number] = offset;
    } else if (offset < own->first[ad->number]) {
        own->first[ad->number] = offset; /* Another file of users counted it earlier. */
    }
    return ad;
}

struct first_use {
    int64_t offset;
    uint32_t number;
};

static int compare_first(const void *left, const void *right)
{
    const struct first_use *a = left;
    const struct first_use *b = right;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* The same ads, numbered by their first counted events. */
static void number_again(struct partition_ads *own)
{
    size_t count = own->ads.span;
    struct first_use *order = malloc((count + 1) * sizeof *order);
    FCAP_ASSERT(order != NULL);
    for (size_t i = 0; i < count; i++) {
        order[i] = (struct first_use){own->first[i], (uint32_t)i};
    }
    qsort(order, count, sizeof *order, compare_first);
    struct fcap_ads sorted;
    fcap_ads_init(&sorted, 0);
    for (size_t i = 0; i < count; i++) {
        const struct fcap_ad *ad = fcap_ads_get(&own->ads, order[i].number);
        (void)fcap_ads_add(&sorted, (uint32_t)i, fcap_ad_id(ad), 0); /* It is found by its id. */
    }
    free(order);
    fcap_ads_done(&own->ads);
    own->ads = sorted;
}

void fcap_fold_ads_seal(struct fcap_fold_ads *ads)
{
    for (size_t i = 0; i < ads->count && !ads->is_sealed; i++) {
        struct partition_ads *own = &ads->partitions[i];
        if (own->ads.slots != NULL) {
            number_again(own);
        }
        free(own->first);
        own->first = NULL;
        own->capacity = 0;
    }
    ads->is_sealed = true;
}

/* --- ids known for duplicates --- */

static uint64_t fingerprint(int32_t partition, const struct fcap_event *event)
{
    uint64_t mixed = event->id_hash ^ ((uint64_t)event->time_ms * 0x9E3779B97F4A7C15ull) ^
                     ((uint64_t)partition << 48);
    return fcap_hash64(event->user, mixed);
}

/* --- the fold --- */

struct fcap_fold {
    struct fcap_fold_settings settings;
    struct fcap_window windows[FCAP_WINDOWS_MAX];
    struct fcap_cache cache; /* of no task, and never evicted from */
    struct id_set known;
    struct fcap_user **users; /* by partition; NULL until they are put in order */
};

/* The records of a fold are never stored: where others keep the number of a commit, theirs keep the
 * partition. */
static int32_t partition_of(const struct fcap_user *user)
{
    return (int32_t)user->stamp;
}

struct fcap_fold *fcap_fold_open(const struct fcap_fold_settings *settings)
{
    FCAP_ASSERT(settings->window_count > 0 && settings->window_count <= FCAP_WINDOWS_MAX);
    struct fcap_fold *fold = calloc(1, sizeof *fold);
    FCAP_ASSERT(fold != NULL);
    fold->settings = *settings;
    memcpy(fold->windows, settings->windows, settings->window_count * sizeof *fold->windows);
    fold->settings.windows = fold->windows;
    fcap_cache_init(&fold->cache, settings->bytes_max, settings->window_count);
    return fold;
}

void fcap_fold_close(struct fcap_fold *fold)
{
    if (fold == NULL) {
        return;
    }
    fcap_cache_done(&fold->cache);
    id_set_done(&fold->known);
    free(fold->users);
    free(fold);
}

size_t fcap_fold_users(const struct fcap_fold *fold)
{
    return fold->cache.count;
}

/* With the room to put the users in order, which takes a second list for a moment. */
size_t fcap_fold_bytes(const struct fcap_fold *fold)
{
    return fold->cache.bytes + 2 * fold->cache.count * sizeof *fold->users +
           id_set_bytes(&fold->known);
}

/* The most that one event can add, with what is held twice while a table grows. */
static size_t room_for(const struct fcap_fold *fold, const struct fcap_user *user,
                       const struct fcap_event *event)
{
    size_t bytes = 0;
    const struct fcap_cache *cache = &fold->cache;
    if (user == NULL) {
        bytes += sizeof *user + event->user.size + 32 + 2 * sizeof *fold->users;
        bool grows = (cache->count + 1) * 4 > cache->slot_count * 3;
        bytes += grows ? 2 * cache->slot_count * sizeof *cache->slots : 0;
    }
    if (user == NULL || user->row_count == user->row_capacity) {
        size_t rows = user == NULL ? 0 : user->row_capacity;
        bytes += (rows + rows / 2 + 2) * (1 + cache->windows) * sizeof(uint32_t) + 32;
    }
    if (fold->settings.dedup && event->has_id) {
        bytes += id_set_growth_bytes(&fold->known);
    }
    return bytes;
}

static enum fcap_status user_of(struct fcap_fold *fold, int32_t partition,
                                const struct fcap_event *event, struct fcap_user **ret_user)
{
    /* With the check one id is one record, whatever partition it comes from. */
    uint64_t hash = fcap_cache_hash(fold->settings.check_keyed ? 0 : partition, event->user);
    struct fcap_user *user = fcap_cache_find(&fold->cache, NULL, hash, event->user);
    if (user != NULL && partition_of(user) != partition) {
        return FCAP_STOPPED;
    }
    if (fcap_fold_bytes(fold) + room_for(fold, user, event) > fold->settings.bytes_max) {
        return FCAP_LIMIT;
    }
    if (user == NULL) {
        user = fcap_cache_insert(&fold->cache, NULL, hash, event->user);
        user->stamp = (uint64_t)partition;
    }
    *ret_user = user;
    return FCAP_OK;
}

static void erase(struct fcap_fold *fold, struct fcap_user *user)
{
    size_t before = fcap_user_bytes(user, fold->settings.window_count);
    fcap_user_clear(user);
    fcap_cache_account(&fold->cache, before, fcap_user_bytes(user, fold->settings.window_count));
    user->newest_ms = FCAP_TIME_NONE;
    user->partial_newest_ms = FCAP_TIME_NONE;
}

/* Windows that an event of this time is in. */
static uint32_t windows_for(const struct fcap_fold *fold, int64_t time_ms)
{
    uint32_t mask = 0;
    for (size_t i = 0; i < fold->settings.window_count; i++) {
        if (time_ms > fold->settings.at_ms - fold->windows[i].length_ms) {
            mask |= 1u << i;
        }
    }
    return mask;
}

/* As the pipeline's: an event that the limit leaves out numbers no ad and makes no id known. */
static enum fcap_status count(struct fcap_fold *fold, struct fcap_user *user,
                              struct fcap_fold_place place, const struct fcap_event *event,
                              uint32_t mask, enum fcap_reject *ret_reject)
{
    size_t windows = fold->settings.window_count;
    struct partition_ads *own = ads_of(fold->settings.ads, place.partition);
    if (user->row_count >= fold->settings.ads_per_user) {
        const struct fcap_ad *held = fcap_ads_find(&own->ads, event->ad);
        if (held == NULL || fcap_user_row(user, windows, held->number) == NULL) {
            if (event->time_ms > user->partial_newest_ms) {
                user->partial_newest_ms = event->time_ms;
            }
            *ret_reject = FCAP_REJECT_ADS_LIMIT;
            return FCAP_OK;
        }
    }
    const struct fcap_ad *ad = take_ad(fold->settings.ads, own, event->ad, place.offset);
    if (ad == NULL) {
        return FCAP_CORRUPT;
    }
    size_t before = fcap_user_bytes(user, windows);
    uint32_t *row = fcap_user_row_add(user, windows, ad->number);
    for (size_t i = 0; i < windows; i++) {
        row[1 + i] += mask >> i & 1;
    }
    fcap_cache_account(&fold->cache, before, fcap_user_bytes(user, windows));
    if (event->time_ms > user->newest_ms) {
        user->newest_ms = event->time_ms;
    }
    if (fold->settings.dedup && event->has_id) {
        id_set_add(&fold->known, fingerprint(place.partition, event));
    }
    return FCAP_OK;
}

enum fcap_status fcap_fold_add(struct fcap_fold *fold, struct fcap_fold_place place,
                               const struct fcap_event *event, enum fcap_reject *ret_reject)
{
    FCAP_ASSERT(fold->users == NULL && place.partition >= 0);
    FCAP_ASSERT(place.partition <= FCAP_PARTITION_MAX);
    struct fcap_user *user;
    enum fcap_status status = user_of(fold, place.partition, event, &user);
    if (status != FCAP_OK) {
        return status;
    }
    *ret_reject = FCAP_REJECT_NONE;
    if (event->is_tombstone) {
        erase(fold, user);
        return FCAP_OK;
    }
    uint32_t mask = windows_for(fold, event->time_ms);
    if (mask == 0) {
        *ret_reject = FCAP_REJECT_LATE;
        return FCAP_OK;
    }
    if (fold->settings.dedup && event->has_id &&
        id_set_has(&fold->known, fingerprint(place.partition, event))) {
        *ret_reject = FCAP_REJECT_DUPLICATE;
        return FCAP_OK;
    }
    return count(fold, user, place, event, mask, ret_reject);
}

/* --- values --- */

static int compare_users(const void *left, const void *right)
{
    const struct fcap_user *a = *(struct fcap_user *const *)left;
    const struct fcap_user *b = *(struct fcap_user *const *)right;
    if (partition_of(a) != partition_of(b)) {
        return partition_of(a) < partition_of(b) ? -1 : 1;
    }
    return fcap_bytes_compare(fcap_user_id(a), fcap_user_id(b));
}

static struct fcap_user *user_at(struct fcap_fold *fold, size_t index)
{
    FCAP_ASSERT(index < fold->cache.count);
    if (fold->users == NULL) {
        fold->users = malloc(fold->cache.count * sizeof(struct fcap_user *));
        FCAP_ASSERT(fold->users != NULL);
        size_t count_of = 0;
        for (size_t i = 0; i < fold->cache.slot_count; i++) {
            if (fold->cache.slots[i].user != NULL) {
                fold->users[count_of++] = fold->cache.slots[i].user;
            }
        }
        qsort(fold->users, count_of, sizeof(struct fcap_user *), compare_users);
    }
    return fold->users[index];
}

void fcap_fold_user(struct fcap_fold *fold, size_t index, int32_t *ret_partition,
                    struct fcap_bytes *ret_user)
{
    const struct fcap_user *user = user_at(fold, index);
    *ret_partition = partition_of(user);
    *ret_user = fcap_user_id(user);
}

bool fcap_fold_value(struct fcap_fold *fold, size_t index, size_t window,
                     struct fcap_buffer *buffer, struct fcap_fold_value *ret_value)
{
    const struct fcap_user *user = user_at(fold, index);
    const struct fcap_fold_settings *settings = &fold->settings;
    FCAP_ASSERT(window < settings->window_count);
    int64_t length_ms = fold->windows[window].length_ms;
    bool is_partial = user->partial_newest_ms > settings->at_ms - length_ms;
    if (!is_partial && user->row_count == 0) {
        return false;
    }
    size_t begin = buffer->size;
    const struct fcap_ads *ads = &ads_of(settings->ads, partition_of(user))->ads;
    bool is_cut;
    bool any = fcap_value_build(user, settings->window_count, window, ads, settings->at_ms,
                                is_partial, settings->value_bytes, buffer, &is_cut);
    if (!any && !is_partial) {
        buffer->size = begin;
        return false;
    }
    int64_t newest_ms = user->newest_ms;
    if (is_partial && user->partial_newest_ms > newest_ms) {
        newest_ms = user->partial_newest_ms;
    }
    *ret_value = (struct fcap_fold_value){newest_ms + length_ms - 1, is_cut};
    return true;
}
