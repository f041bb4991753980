#include "lib/fake_store.h"

#include "fcap/assert.h"
#include "lib/fake_map.h"

#include <stdlib.h>
#include <string.h>

enum { PARTITION_MAX = 0xFFFE, SCRIBBLE = 0xA5, SYNCS_MAX = 256 };

/* How to take one change back. */
struct undo {
    enum fcap_family family;
    struct fcap_buffer key;
    struct fcap_buffer value;
    bool existed;
};

/* One applied batch. */
struct version {
    uint64_t number;
    struct undo *undos;
    size_t count;
    size_t capacity;
};

struct fake_handle;

struct waiting {
    const struct fcap_batch *batch;
    struct fake_handle *handle;
    uint64_t serial; /* order of submission over all handles */
    bool is_done;
    bool is_consequence;
    enum fcap_status result;
};

struct fake_handle {
    struct fcap_store store; /* must be first */
    struct fake_store *fake;
    struct fake_handle *next;
    struct waiting ring[FAKE_STORE_IN_FLIGHT_MAX];
    size_t first;
    size_t count;
    enum fcap_status poison; /* not OK until a failure has been handed out */
    struct sync_request {
        uint64_t ticket;
        uint64_t covers; /* the newest version when it was asked for */
    } syncs[SYNCS_MAX];  /* by ticket % SYNCS_MAX */
};

struct claim {
    struct fake_handle *owner;
    uint64_t assignment;
    bool was_claimed;
    bool is_released;
    int64_t history_ms;
};

struct fake_store {
    const struct fake_store_hooks *hooks;
    struct fake_map maps[FCAP_FAMILY_COUNT];
    struct version *versions; /* those not known to be durable, oldest first */
    size_t version_count;
    size_t version_capacity;
    uint64_t newest_version;
    struct fake_handle *handles;
    uint64_t next_serial;
    struct claim *claims;
    size_t claim_count;
    uint64_t next_ticket;
    uint64_t durable_version;
    int64_t dropped_through_ms; /* durable at once, before anything is dropped */
    bool may_drop_again;        /* up to there: nobody has claimed anything since */
    struct fake_store_counts counts;
};

static const struct fake_store_hooks no_hooks;

/* --- versions -------------------------------------------------------------------------------- */

static struct version *version_begin(struct fake_store *fake)
{
    if (fake->version_count == fake->version_capacity) {
        fake->version_capacity = fake->version_capacity * 2 + 16;
        fake->versions = realloc(fake->versions, fake->version_capacity * sizeof *fake->versions);
        FCAP_ASSERT(fake->versions != NULL);
    }
    struct version *version = &fake->versions[fake->version_count++];
    *version = (struct version){.number = ++fake->newest_version};
    return version;
}

static void version_done(struct version *version)
{
    for (size_t i = 0; i < version->count; i++) {
        fcap_buffer_done(&version->undos[i].key);
        fcap_buffer_done(&version->undos[i].value);
    }
    free(version->undos);
}

/* Remembers what the key holds now. */
static void remember(struct fake_store *fake, struct version *version, enum fcap_family family,
                     struct fcap_bytes key)
{
    const struct fake_map *map = &fake->maps[family];
    size_t at = fake_map_find(map, key);
    if (version->count == version->capacity) {
        version->capacity = version->capacity * 2 + 16;
        version->undos = realloc(version->undos, version->capacity * sizeof *version->undos);
        FCAP_ASSERT(version->undos != NULL);
    }
    struct undo *undo = &version->undos[version->count++];
    *undo = (struct undo){.family = family, .existed = fake_map_holds(map, at, key)};
    fcap_buffer_put_bytes(&undo->key, key);
    if (undo->existed) {
        fcap_buffer_put_bytes(&undo->value, fcap_buffer_bytes(&map->pairs[at].value));
    }
}

static void undo_newest(struct fake_store *fake)
{
    struct version *version = &fake->versions[--fake->version_count];
    for (size_t i = version->count; i-- > 0;) {
        const struct undo *undo = &version->undos[i];
        struct fake_map *map = &fake->maps[undo->family];
        struct fcap_bytes key = fcap_buffer_bytes(&undo->key);
        if (undo->existed) {
            fake_map_put(map, key, fcap_buffer_bytes(&undo->value));
            continue;
        }
        size_t at = fake_map_find(map, key);
        if (fake_map_holds(map, at, key)) {
            fake_map_remove(map, at);
        }
    }
    version_done(version);
}

/* Versions up to this one cannot be lost any more. */
static void make_durable(struct fake_store *fake, uint64_t number)
{
    size_t durable = 0;
    while (durable < fake->version_count && fake->versions[durable].number <= number) {
        version_done(&fake->versions[durable++]);
    }
    fake->version_count -= durable;
    if (durable > 0) {
        memmove(fake->versions, fake->versions + durable,
                fake->version_count * sizeof *fake->versions);
    }
    fake->durable_version = number > fake->durable_version ? number : fake->durable_version;
}

/* --- commits --------------------------------------------------------------------------------- */

static void apply_entry(struct fake_store *fake, struct version *version,
                        const struct fcap_batch *batch, size_t index)
{
    const struct fcap_batch_entry *entry = &batch->entries[index];
    struct fake_map *map = &fake->maps[entry->family];
    struct fcap_bytes key = fcap_batch_key(batch, index);
    size_t at = fake_map_find(map, key);
    switch (entry->change) {
    case FCAP_CHANGE_PUT:
        remember(fake, version, entry->family, key);
        fake_map_put(map, key, fcap_batch_value(batch, index));
        break;
    case FCAP_CHANGE_DELETE:
        if (fake_map_holds(map, at, key)) {
            remember(fake, version, entry->family, key);
            fake_map_remove(map, at);
        }
        break;
    case FCAP_CHANGE_DELETE_RANGE:
        while (at < map->count && fcap_bytes_compare(fcap_buffer_bytes(&map->pairs[at].key),
                                                     fcap_batch_value(batch, index)) < 0) {
            remember(fake, version, entry->family, fcap_buffer_bytes(&map->pairs[at].key));
            fake_map_remove(map, at);
        }
        break;
    }
}

static bool is_current(const struct fake_store *fake, const struct fcap_batch_section *section)
{
    size_t partition = (size_t)section->partition;
    return section->partition >= 0 && partition < fake->claim_count &&
           fake->claims[partition].owner != NULL &&
           fake->claims[partition].assignment == section->assignment;
}

static void apply(struct fake_store *fake, const struct fcap_batch *batch)
{
    struct version *version = version_begin(fake);
    for (size_t i = 0; i < batch->section_count; i++) {
        const struct fcap_batch_section *section = &batch->sections[i];
        if (!is_current(fake, section)) {
            fake->counts.sections_refused++;
            continue;
        }
        for (size_t j = 0; j < section->count; j++) {
            apply_entry(fake, version, batch, section->first + j);
        }
    }
    fake->counts.applied++;
}

static struct waiting *oldest_waiting(struct fake_store *fake)
{
    struct waiting *oldest = NULL;
    for (struct fake_handle *handle = fake->handles; handle != NULL; handle = handle->next) {
        for (size_t i = 0; i < handle->count; i++) {
            struct waiting *at = &handle->ring[(handle->first + i) % FAKE_STORE_IN_FLIGHT_MAX];
            if (!at->is_done && (oldest == NULL || at->serial < oldest->serial)) {
                oldest = at;
            }
        }
    }
    return oldest;
}

/* What is queued behind a failed batch of the same handle must not overtake it. */
static void poison_followers(struct fake_handle *handle, enum fcap_status status)
{
    handle->poison = status;
    for (size_t i = 0; i < handle->count; i++) {
        struct waiting *at = &handle->ring[(handle->first + i) % FAKE_STORE_IN_FLIGHT_MAX];
        if (!at->is_done && at->result == FCAP_OK) {
            at->result = status;
            at->is_consequence = true;
        }
    }
}

/* Finishes the oldest waiting batch; false: none, or delayed. */
static bool run_one(struct fake_store *fake)
{
    const struct fake_store_hooks *hooks = fake->hooks;
    struct waiting *waiting = oldest_waiting(fake);
    if (waiting == NULL) {
        return false;
    }
    if (waiting->result != FCAP_OK) {
        waiting->is_done = true;
        return true;
    }
    enum fake_store_fate fate =
        hooks->commit == NULL ? FAKE_STORE_APPLY : hooks->commit(hooks->context, waiting->batch);
    if (fate == FAKE_STORE_DELAY) {
        return false;
    }
    if (fate != FAKE_STORE_FAIL) {
        apply(fake, waiting->batch);
    }
    waiting->is_done = true;
    if (fate != FAKE_STORE_APPLY) {
        enum fcap_status failure = hooks->failure == FCAP_OK ? FCAP_UNAVAILABLE : hooks->failure;
        waiting->result = failure;
        poison_followers(waiting->handle, failure);
        fake->counts.failed += fate == FAKE_STORE_FAIL;
        fake->counts.applied_but_failed += fate == FAKE_STORE_APPLY_AND_FAIL;
    }
    return true;
}

size_t fake_store_run(struct fake_store *fake, size_t count)
{
    size_t finished = 0;
    while (finished < count && run_one(fake)) {
        finished++;
    }
    return finished;
}

/* --- dropping timers ---------------------------------------------------------------------------
 */

static uint64_t bucket_of(struct fcap_bytes key)
{
    struct fcap_reader reader = fcap_reader_of(key);
    return fcap_reader_be64(&reader);
}

static int64_t release_bound(const struct fake_store *fake)
{
    int64_t bound_ms = INT64_MAX;
    for (size_t i = 0; i < fake->claim_count; i++) {
        const struct claim *claim = &fake->claims[i];
        if (claim->owner == NULL) {
            continue;
        }
        int64_t history_ms = claim->is_released ? claim->history_ms : 0;
        bound_ms = history_ms < bound_ms ? history_ms : bound_ms;
    }
    return bound_ms == INT64_MAX || bound_ms < 0 ? 0 : bound_ms;
}

static void forget_bucket(struct fake_store *fake, uint64_t bucket)
{
    for (size_t i = 0; i < fake->version_count; i++) {
        for (size_t j = 0; j < fake->versions[i].count; j++) {
            struct undo *undo = &fake->versions[i].undos[j];
            if (undo->family == FCAP_FAMILY_TIMERS && undo->existed &&
                bucket_of(fcap_buffer_bytes(&undo->key)) == bucket) {
                undo->existed = false;
                fcap_buffer_done(&undo->value);
            }
        }
    }
}

static void drop(struct fake_store *fake, int64_t bound_ms)
{
    struct fake_map *timers = &fake->maps[FCAP_FAMILY_TIMERS];
    size_t at = 0;
    if (bound_ms < fake->dropped_through_ms + (fake->may_drop_again ? 0 : 1)) {
        return; /* A state may have begun below it since. */
    }
    while (at < timers->count) {
        uint64_t bucket = bucket_of(fcap_buffer_bytes(&timers->pairs[at].key));
        size_t end = at;
        while (end < timers->count &&
               bucket_of(fcap_buffer_bytes(&timers->pairs[end].key)) == bucket) {
            end++;
        }
        if (bucket >= (uint64_t)bound_ms) {
            return;
        }
        if (fake->hooks->lingers != NULL && fake->hooks->lingers(fake->hooks->context, bucket)) {
            at = end;
            continue;
        }
        fake->dropped_through_ms = bound_ms;
        fake->may_drop_again = true;
        fake->counts.timers_dropped += end - at;
        while (end-- > at) {
            fake_map_remove(timers, at);
        }
        forget_bucket(fake, bucket);
    }
}

/* --- the port ----------------------------------------------------------------------------------
 */

static enum fcap_status fake_get(struct fcap_store *store, enum fcap_family family,
                                 struct fcap_bytes key, struct fcap_buffer *value, bool *ret_found)
{
    const struct fake_map *map = &((struct fake_handle *)store)->fake->maps[family];
    size_t at = fake_map_find(map, key);
    fcap_buffer_clear(value);
    *ret_found = fake_map_holds(map, at, key);
    if (*ret_found) {
        fcap_buffer_put_bytes(value, fcap_buffer_bytes(&map->pairs[at].value));
    }
    return FCAP_OK;
}

static void scribble(struct fcap_buffer *buffer)
{
    if (buffer->size > 0) {
        memset(buffer->data, SCRIBBLE, buffer->size);
    }
}

static enum fcap_status fake_scan(struct fcap_store *store, enum fcap_family family,
                                  struct fcap_bytes from, struct fcap_bytes to,
                                  fcap_store_visitor visitor, void *context)
{
    const struct fake_map *map = &((struct fake_handle *)store)->fake->maps[family];
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    bool goes_on = true;
    for (size_t at = fake_map_find(map, from); goes_on && at < map->count; at++) {
        struct fcap_bytes here = fcap_buffer_bytes(&map->pairs[at].key);
        if (to.size > 0 && fcap_bytes_compare(here, to) >= 0) {
            break;
        }
        fcap_buffer_clear(&key);
        fcap_buffer_clear(&value);
        fcap_buffer_put_bytes(&key, here);
        fcap_buffer_put_bytes(&value, fcap_buffer_bytes(&map->pairs[at].value));
        goes_on = visitor(context, fcap_buffer_bytes(&key), fcap_buffer_bytes(&value));
        /* A view kept beyond the call must not look right. */
        scribble(&key);
        scribble(&value);
    }
    fcap_buffer_done(&key);
    fcap_buffer_done(&value);
    return FCAP_OK;
}

static enum fcap_status fake_claim(struct fcap_store *store, int32_t partition, uint64_t assignment,
                                   int64_t *ret_dropped_through_ms)
{
    struct fake_handle *handle = (struct fake_handle *)store;
    struct fake_store *fake = handle->fake;
    if (partition < 0 || partition > PARTITION_MAX) {
        return FCAP_LIMIT;
    }
    size_t index = (size_t)partition;
    if (index >= fake->claim_count) {
        fake->claims = realloc(fake->claims, (index + 1) * sizeof *fake->claims);
        FCAP_ASSERT(fake->claims != NULL);
        memset(fake->claims + fake->claim_count, 0,
               (index + 1 - fake->claim_count) * sizeof *fake->claims);
        fake->claim_count = index + 1;
    }
    struct claim *claim = &fake->claims[index];
    if (claim->was_claimed && assignment <= claim->assignment) {
        return FCAP_FENCED;
    }
    *claim = (struct claim){.owner = handle, .assignment = assignment, .was_claimed = true};
    fake->may_drop_again = false;
    *ret_dropped_through_ms = fake->dropped_through_ms;
    return FCAP_OK;
}

static void fake_disclaim(struct fcap_store *store, int32_t partition)
{
    struct fake_handle *handle = (struct fake_handle *)store;
    struct fake_store *fake = handle->fake;
    if ((size_t)partition < fake->claim_count && fake->claims[partition].owner == handle) {
        fake->claims[partition].owner = NULL;
    }
}

static enum fcap_status fake_submit(struct fcap_store *store, const struct fcap_batch *batch)
{
    struct fake_handle *handle = (struct fake_handle *)store;
    if (handle->count == FAKE_STORE_IN_FLIGHT_MAX) {
        return FCAP_BUSY;
    }
    size_t at = (handle->first + handle->count++) % FAKE_STORE_IN_FLIGHT_MAX;
    handle->ring[at] = (struct waiting){
        .batch = batch,
        .handle = handle,
        .serial = handle->fake->next_serial++,
        .result = handle->poison,
        .is_consequence = handle->poison != FCAP_OK,
    };
    return FCAP_OK;
}

static enum fcap_status fake_completed(struct fcap_store *store, int wait_ms,
                                       const struct fcap_batch **ret_batch,
                                       enum fcap_status *ret_result)
{
    struct fake_handle *handle = (struct fake_handle *)store;
    (void)wait_ms; /* Time does not pass here; a delayed batch stays delayed. */
    *ret_batch = NULL;
    *ret_result = FCAP_OK;
    struct waiting *oldest = &handle->ring[handle->first];
    if (handle->count == 0) {
        return FCAP_OK;
    }
    while (!oldest->is_done) {
        if (!run_one(handle->fake)) {
            return FCAP_OK;
        }
    }
    *ret_batch = oldest->batch;
    *ret_result = oldest->result;
    if (oldest->result != FCAP_OK && !oldest->is_consequence) {
        handle->poison = FCAP_OK;
    }
    handle->first = (handle->first + 1) % FAKE_STORE_IN_FLIGHT_MAX;
    handle->count--;
    return FCAP_OK;
}

static enum fcap_status fake_sync(struct fcap_store *store, uint64_t *ticket, bool *ret_done)
{
    struct fake_handle *handle = (struct fake_handle *)store;
    struct fake_store *fake = handle->fake;
    *ret_done = false;
    if (*ticket == 0) {
        *ticket = ++fake->next_ticket;
        handle->syncs[*ticket % SYNCS_MAX] = (struct sync_request){*ticket, fake->newest_version};
        return FCAP_OK;
    }
    const struct sync_request *request = &handle->syncs[*ticket % SYNCS_MAX];
    FCAP_ASSERT(request->ticket == *ticket); /* Given out by this handle, and not for long. */
    enum fcap_status status =
        fake->hooks->sync == NULL ? FCAP_OK : fake->hooks->sync(fake->hooks->context);
    if (status == FCAP_BUSY) {
        return FCAP_OK;
    }
    if (status != FCAP_OK) {
        return status;
    }
    make_durable(fake, request->covers);
    fake->counts.syncs++;
    *ret_done = true;
    return FCAP_OK;
}

static void fake_release(struct fcap_store *store, int32_t partition, int64_t history_ms)
{
    struct fake_handle *handle = (struct fake_handle *)store;
    struct fake_store *fake = handle->fake;
    if ((size_t)partition >= fake->claim_count || fake->claims[partition].owner != handle) {
        return;
    }
    struct claim *claim = &fake->claims[partition];
    if (!claim->is_released || history_ms > claim->history_ms) {
        claim->history_ms = history_ms;
        claim->is_released = true;
    }
    drop(fake, release_bound(fake));
}

static const struct fcap_store_ops fake_ops = {fake_get,      fake_scan,   fake_claim,
                                               fake_disclaim, fake_submit, fake_completed,
                                               fake_sync,     fake_release};

/* --- life ------------------------------------------------------------------------------------- */

struct fake_store *fake_store_open(const struct fake_store_hooks *hooks)
{
    struct fake_store *fake = calloc(1, sizeof *fake);
    FCAP_ASSERT(fake != NULL);
    fake->hooks = hooks == NULL ? &no_hooks : hooks;
    return fake;
}

struct fcap_store *fake_store_handle(struct fake_store *fake)
{
    struct fake_handle *handle = calloc(1, sizeof *handle);
    FCAP_ASSERT(handle != NULL);
    handle->store.ops = &fake_ops;
    handle->fake = fake;
    handle->next = fake->handles;
    fake->handles = handle;
    return &handle->store;
}

size_t fake_store_unsynced(const struct fake_store *fake)
{
    return fake->version_count;
}

static void forget_process(struct fake_store *fake)
{
    while (fake->handles != NULL) {
        struct fake_handle *handle = fake->handles;
        fake->handles = handle->next;
        free(handle);
    }
    free(fake->claims);
    fake->claims = NULL;
    fake->claim_count = 0;
}

void fake_store_crash(struct fake_store *fake, size_t lose)
{
    FCAP_ASSERT(lose <= fake->version_count);
    forget_process(fake);
    for (size_t i = 0; i < lose; i++) {
        undo_newest(fake);
    }
    fake->counts.lost_at_crash += lose;
    if (lose > 0) {
        make_durable(fake, fake->newest_version); /* What a reopened machine shows is on disk. */
    }
}

void fake_store_close(struct fake_store *fake)
{
    if (fake == NULL) {
        return;
    }
    forget_process(fake);
    make_durable(fake, fake->newest_version);
    free(fake->versions);
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        fake_map_done(&fake->maps[i]);
    }
    free(fake);
}

size_t fake_store_pairs(const struct fake_store *fake, enum fcap_family family)
{
    return fake->maps[family].count;
}

bool fake_store_holds(const struct fake_store *fake, int32_t partition)
{
    uint8_t key[2] = {(uint8_t)(partition >> 8), (uint8_t)partition};
    return fake_map_begins(&fake->maps[FCAP_FAMILY_META], (struct fcap_bytes){key, sizeof key});
}

struct fake_store_counts fake_store_counts(const struct fake_store *fake)
{
    return fake->counts;
}
