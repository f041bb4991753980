/* The store port's calls, claims, handles and closing. */
#include "store_rocksdb_internal.h"

#include "fcap/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A scan's iterator pins files and memtables; an old one is replaced by one on the same snapshot.
 */
enum { SCAN_PAIRS_PER_CHECK = 256, SCAN_ITERATOR_US_MAX = 2000000 };

int64_t store_monotonic_us(void)
{
    struct timespec now;
    FCAP_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

enum fcap_status fcap_store_rocksdb_status(const char *text)
{
    /* The first match decides: "IO error: No space left ..." is about space. */
    static const struct {
        const char *part;
        enum fcap_status status;
    } texts[] = {
        {"No space left", FCAP_NO_SPACE},
        {"Disk quota exceeded", FCAP_NO_SPACE},
        {"Space limit", FCAP_NO_SPACE},
        {"Corruption", FCAP_CORRUPT},
        {"While lock file", FCAP_LOCKED},
        {"lock hold by current process", FCAP_LOCKED},
        {"Cannot allocate memory", FCAP_NO_MEMORY},
        {"Memory limit", FCAP_NO_MEMORY},
        {"IO error", FCAP_IO},
        {"Invalid argument", FCAP_CONFIG},
        {"Not implemented", FCAP_CONFIG},
        {"timed out", FCAP_TIMEOUT},
        {"Resource busy", FCAP_UNAVAILABLE},
        {"Operation failed. Try again", FCAP_UNAVAILABLE},
        {"Result incomplete", FCAP_UNAVAILABLE},
        {"Operation aborted", FCAP_UNAVAILABLE},
    };
    if (text == NULL) {
        return FCAP_OK;
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strstr(text, texts[i].part) != NULL) {
            return texts[i].status;
        }
    }
    return FCAP_IO;
}

enum fcap_status store_take_error(struct fcap_store_rocksdb *db, char *text)
{
    if (text == NULL) {
        return FCAP_OK;
    }
    enum fcap_status status = fcap_store_rocksdb_status(text);
    (void)pthread_mutex_lock(&db->lock); /* Fails only when misused, here and below. */
    (void)fcap_error_set(&db->last_error, status, "%s: %s", db->directory, text);
    (void)pthread_mutex_unlock(&db->lock);
    rocksdb_free(text);
    return status;
}

void fcap_store_rocksdb_last_error(struct fcap_store_rocksdb *db, struct fcap_error *ret_error)
{
    (void)pthread_mutex_lock(&db->lock);
    *ret_error = db->last_error;
    (void)pthread_mutex_unlock(&db->lock);
}

static enum fcap_status store_get(struct fcap_store *store, enum fcap_family family,
                                  struct fcap_bytes key, struct fcap_buffer *value, bool *ret_found)
{
    struct fcap_store_rocksdb *db = ((struct store_handle *)store)->db;
    char *text = NULL;
    fcap_buffer_clear(value);
    rocksdb_pinnableslice_t *slice = rocksdb_get_pinned_cf(
        db->db, db->read_options, db->families[family], (const char *)key.data, key.size, &text);
    if (text != NULL) {
        FCAP_ASSERT(slice == NULL);
        return store_take_error(db, text);
    }
    *ret_found = slice != NULL;
    if (slice != NULL) {
        size_t size = 0;
        const char *data = rocksdb_pinnableslice_value(slice, &size);
        fcap_buffer_put(value, data, size);
        rocksdb_pinnableslice_destroy(slice);
    }
    return FCAP_OK;
}

/* Visits pairs until the range or the visitor ends, or the iterator has become old: then *resume
 * holds the next key and *ret_ended is false. */
static enum fcap_status scan_with_one_iterator(struct fcap_store_rocksdb *db,
                                               rocksdb_iterator_t *iterator,
                                               struct fcap_buffer *resume,
                                               fcap_store_visitor visitor, void *context,
                                               bool *ret_ended)
{
    int64_t started_us = store_monotonic_us();
    size_t visited = 0;
    rocksdb_iter_seek(iterator, (const char *)resume->data, resume->size);
    while (rocksdb_iter_valid(iterator)) {
        struct fcap_bytes key;
        struct fcap_bytes value;
        key.data = (const uint8_t *)rocksdb_iter_key(iterator, &key.size);
        if (++visited % SCAN_PAIRS_PER_CHECK == 0 &&
            store_monotonic_us() - started_us > SCAN_ITERATOR_US_MAX) {
            fcap_buffer_clear(resume);
            fcap_buffer_put_bytes(resume, key);
            *ret_ended = false;
            return FCAP_OK;
        }
        value.data = (const uint8_t *)rocksdb_iter_value(iterator, &value.size);
        if (!visitor(context, key, value)) {
            break;
        }
        rocksdb_iter_next(iterator);
    }
    *ret_ended = true;
    char *text = NULL;
    rocksdb_iter_get_error(iterator, &text);
    return store_take_error(db, text);
}

static enum fcap_status store_scan(struct fcap_store *store, enum fcap_family family,
                                   struct fcap_bytes from, struct fcap_bytes to,
                                   fcap_store_visitor visitor, void *context)
{
    struct fcap_store_rocksdb *db = ((struct store_handle *)store)->db;
    enum fcap_status status = FCAP_OK;
    struct fcap_buffer resume = {0};
    rocksdb_readoptions_t *options = rocksdb_readoptions_create();
    /* One moment for the whole scan, however often the iterator is replaced. */
    const rocksdb_snapshot_t *snapshot = rocksdb_create_snapshot(db->db);
    rocksdb_readoptions_set_snapshot(options, snapshot);
    if (to.size > 0) {
        rocksdb_readoptions_set_iterate_upper_bound(options, (const char *)to.data, to.size);
    }
    (void)fcap_buffer_reserve(&resume, 1); /* `from` may be empty; RocksDB wants a pointer. */
    fcap_buffer_put_bytes(&resume, from);
    bool ended = false;
    while (!ended && status == FCAP_OK) {
        rocksdb_iterator_t *iterator =
            rocksdb_create_iterator_cf(db->db, options, db->families[family]);
        status = scan_with_one_iterator(db, iterator, &resume, visitor, context, &ended);
        rocksdb_iter_destroy(iterator);
    }
    rocksdb_release_snapshot(db->db, snapshot);
    rocksdb_readoptions_destroy(options);
    fcap_buffer_done(&resume);
    return status;
}

/* Sections of the partition are being written right now. */
static bool is_being_written(const struct fcap_store_rocksdb *db, int32_t partition)
{
    if (db->writing == NULL) {
        return false;
    }
    for (size_t i = 0; i < db->writing->section_count; i++) {
        if (db->writing->sections[i].partition == partition && db->writing_kept[i]) {
            return true;
        }
    }
    return false;
}

/* The table first, then the wait: a batch that starts later sees the new table, so what is waited
 * for is at most the one write under way. */
static void wait_for_write(struct fcap_store_rocksdb *db, int32_t partition)
{
    uint64_t serial = db->write_serial;
    while (db->write_serial == serial && is_being_written(db, partition)) {
        (void)pthread_cond_wait(&db->write_ended, &db->lock);
    }
}

static struct claim *claim_of(struct fcap_store_rocksdb *db, int32_t partition)
{
    size_t index = (size_t)partition;
    if (index >= db->claim_count) {
        size_t count = index + 1 > db->claim_count * 2 ? index + 1 : db->claim_count * 2;
        struct claim *claims = realloc(db->claims, count * sizeof *claims);
        FCAP_ASSERT(claims != NULL);
        memset(claims + db->claim_count, 0, (count - db->claim_count) * sizeof *claims);
        db->claims = claims;
        db->claim_count = count;
    }
    return &db->claims[index];
}

static enum fcap_status store_claim(struct fcap_store *store, int32_t partition,
                                    uint64_t assignment, int64_t *ret_dropped_through_ms)
{
    struct store_handle *handle = (struct store_handle *)store;
    struct fcap_store_rocksdb *db = handle->db;
    if (partition < 0 || partition > STORE_PARTITION_MAX) {
        return FCAP_LIMIT;
    }
    enum fcap_status status = FCAP_OK;
    (void)pthread_mutex_lock(&db->lock);
    struct claim *claim = claim_of(db, partition);
    if (claim->was_claimed && assignment <= claim->assignment) {
        status = FCAP_FENCED; /* A newer owner came first; it wins. */
        goto out;
    }
    *claim = (struct claim){.owner = handle, .assignment = assignment, .was_claimed = true};
    wait_for_write(db, partition);
    db->may_drop_again = false;
    *ret_dropped_through_ms = db->dropped_through_ms;
out:
    (void)pthread_mutex_unlock(&db->lock);
    return status == FCAP_OK && !db->is_read_only
               ? store_partition_settle(db, partition, assignment)
               : status;
}

static void store_disclaim(struct fcap_store *store, int32_t partition)
{
    struct store_handle *handle = (struct store_handle *)store;
    struct fcap_store_rocksdb *db = handle->db;
    FCAP_ASSERT(partition >= 0);
    (void)pthread_mutex_lock(&db->lock);
    if ((size_t)partition < db->claim_count && db->claims[partition].owner == handle) {
        db->claims[partition].owner = NULL;
        wait_for_write(db, partition);
    }
    (void)pthread_mutex_unlock(&db->lock);
}

static enum fcap_status store_submit(struct fcap_store *store, const struct fcap_batch *batch)
{
    struct store_handle *handle = (struct store_handle *)store;
    struct fcap_store_rocksdb *db = handle->db;
    if (db->is_read_only) {
        return FCAP_STOPPED;
    }
    enum fcap_status status = FCAP_OK;
    (void)pthread_mutex_lock(&db->lock);
    if (handle->count == FCAP_STORE_IN_FLIGHT_MAX) {
        status = FCAP_BUSY;
        goto out;
    }
    size_t at = (handle->first + handle->count++) % FCAP_STORE_IN_FLIGHT_MAX;
    struct submission *submission = &handle->ring[at];
    *submission = (struct submission){
        .batch = batch,
        .handle = handle,
        .result = handle->poison,
        .is_consequence = handle->poison != FCAP_OK,
    };
    if (db->queue_last == NULL) {
        db->queue_first = submission;
    } else {
        db->queue_last->next = submission;
    }
    db->queue_last = submission;
    (void)pthread_cond_signal(&db->writer_wakes);
out:
    (void)pthread_mutex_unlock(&db->lock);
    return status;
}

static enum fcap_status store_completed(struct fcap_store *store, int wait_ms,
                                        const struct fcap_batch **ret_batch,
                                        enum fcap_status *ret_result)
{
    struct store_handle *handle = (struct store_handle *)store;
    struct fcap_store_rocksdb *db = handle->db;
    *ret_batch = NULL;
    *ret_result = FCAP_OK;
    int64_t deadline_us = store_monotonic_us() + (int64_t)wait_ms * 1000;
    struct timespec deadline = {.tv_sec = deadline_us / 1000000,
                                .tv_nsec = deadline_us % 1000000 * 1000};
    (void)pthread_mutex_lock(&db->lock);
    int waited = 0;
    while (handle->count > 0 && !handle->ring[handle->first].is_done && wait_ms > 0 &&
           waited != ETIMEDOUT) {
        waited = pthread_cond_timedwait(&handle->completed, &db->lock, &deadline);
    }
    struct submission *oldest = &handle->ring[handle->first];
    if (handle->count > 0 && oldest->is_done) {
        *ret_batch = oldest->batch;
        *ret_result = oldest->result;
        if (oldest->result != FCAP_OK && !oldest->is_consequence) {
            handle->poison = FCAP_OK; /* From now on the worker knows. */
        }
        handle->first = (handle->first + 1) % FCAP_STORE_IN_FLIGHT_MAX;
        handle->count--;
    }
    (void)pthread_mutex_unlock(&db->lock);
    return FCAP_OK;
}

static enum fcap_status store_sync(struct fcap_store *store, uint64_t *ticket, bool *ret_done)
{
    struct fcap_store_rocksdb *db = ((struct store_handle *)store)->db;
    enum fcap_status status = FCAP_OK;
    if (db->is_read_only) {
        return FCAP_STOPPED;
    }
    (void)pthread_mutex_lock(&db->lock);
    if (*ticket == 0) {
        /* A sync under way may have looked before the newest commit: take the one after it. */
        *ticket = db->sync_started + 1;
    }
    *ret_done = db->sync_done >= *ticket;
    bool idle = !db->sync_running && db->sync_wanted <= db->sync_started;
    if (!*ret_done && idle && db->sync_started >= *ticket) {
        status = db->sync_result; /* Tried and failed; this call starts another try. */
        db->sync_wanted = db->sync_started + 1;
    }
    if (!*ret_done && db->sync_wanted < *ticket) {
        db->sync_wanted = *ticket;
    }
    if (db->sync_wanted > db->sync_started) {
        (void)pthread_cond_signal(&db->keeper_wakes);
    }
    (void)pthread_mutex_unlock(&db->lock);
    return status;
}

int64_t store_release_bound(const struct fcap_store_rocksdb *db)
{
    int64_t bound_ms = INT64_MAX;
    for (size_t i = 0; i < db->claim_count; i++) {
        const struct claim *claim = &db->claims[i];
        if (claim->owner == NULL) {
            continue;
        }
        int64_t history_ms = claim->is_released ? claim->history_ms : 0;
        bound_ms = history_ms < bound_ms ? history_ms : bound_ms;
    }
    return bound_ms == INT64_MAX || bound_ms < 0 ? 0 : bound_ms;
}

static void store_release(struct fcap_store *store, int32_t partition, int64_t history_ms)
{
    struct store_handle *handle = (struct store_handle *)store;
    struct fcap_store_rocksdb *db = handle->db;
    FCAP_ASSERT(partition >= 0);
    (void)pthread_mutex_lock(&db->lock);
    if ((size_t)partition < db->claim_count && db->claims[partition].owner == handle) {
        struct claim *claim = &db->claims[partition];
        if (!claim->is_released || history_ms > claim->history_ms) {
            claim->history_ms = history_ms;
            claim->is_released = true;
        }
        if (store_release_bound(db) - db->looked_through_ms >= db->release_step_ms) {
            db->wants_drop = true;
            (void)pthread_cond_signal(&db->keeper_wakes);
        }
    }
    (void)pthread_mutex_unlock(&db->lock);
}

static const struct fcap_store_ops store_ops = {
    .get = store_get,
    .scan = store_scan,
    .claim = store_claim,
    .disclaim = store_disclaim,
    .submit = store_submit,
    .completed = store_completed,
    .sync = store_sync,
    .release = store_release,
};

struct fcap_store *fcap_store_rocksdb_handle(struct fcap_store_rocksdb *db)
{
    struct store_handle *handle = calloc(1, sizeof *handle);
    FCAP_ASSERT(handle != NULL);
    handle->store.ops = &store_ops;
    handle->db = db;
    pthread_condattr_t attributes;
    FCAP_ASSERT(pthread_condattr_init(&attributes) == 0);
    FCAP_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    FCAP_ASSERT(pthread_cond_init(&handle->completed, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes); /* Cannot fail on an initialised one. */
    (void)pthread_mutex_lock(&db->lock);
    handle->next = db->handles;
    db->handles = handle;
    (void)pthread_mutex_unlock(&db->lock);
    return &handle->store;
}

void store_handle_free(struct fcap_store *store)
{
    struct store_handle *handle = (struct store_handle *)store;
    struct fcap_store_rocksdb *db = handle->db;
    (void)pthread_mutex_lock(&db->lock);
    FCAP_ASSERT(handle->count == 0);
    struct store_handle **at = &db->handles;
    while (*at != handle) {
        at = &(*at)->next;
    }
    *at = handle->next;
    (void)pthread_mutex_unlock(&db->lock);
    (void)pthread_cond_destroy(&handle->completed); /* Nobody waits any more. */
    free(handle);
}

/* A database that cannot be closed; kept so that it does not look like a leak. */
static struct fcap_store_rocksdb abandoned;

void fcap_store_rocksdb_close(struct fcap_store_rocksdb *db)
{
    if (db == NULL) {
        return;
    }
    store_threads_stop(db);
    while (db->handles != NULL) {
        db->handles->count = 0; /* Every batch belongs to its caller again. */
        store_handle_free(&db->handles->store);
    }
    if (db->is_broken) {
        /* 7.8's recovery waits for a flush that will not come, and closing waits for it for ever.
         * The process is about to end anyway; until then the lock stays. */
        abandoned = *db;
        db->db = NULL;
        memset(db->families, 0, sizeof db->families);
    }
    /* Families before the database: RocksDB asserts that it holds their last reference. */
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        if (db->families[i] != NULL) {
            rocksdb_column_family_handle_destroy(db->families[i]);
        }
    }
    if (db->db != NULL) {
        rocksdb_close(db->db);
    }
    if (db->options != NULL) {
        rocksdb_options_destroy(db->options);
    }
    if (db->cache != NULL) {
        rocksdb_cache_destroy(db->cache);
    }
    if (db->write_options != NULL) {
        rocksdb_writeoptions_destroy(db->write_options);
        rocksdb_writeoptions_destroy(db->durable_options);
        rocksdb_readoptions_destroy(db->read_options);
    }
    (void)pthread_cond_destroy(&db->writer_wakes); /* As above. */
    (void)pthread_cond_destroy(&db->keeper_wakes);
    (void)pthread_cond_destroy(&db->write_ended);
    (void)pthread_mutex_destroy(&db->lock);
    (void)pthread_mutex_destroy(&db->write_gate);
    free(db->claims);
    free(db->directory);
    free(db);
}
