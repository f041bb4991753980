/* The two threads behind the port: the writer, and the keeper, which syncs and drops. */
#include "store_rocksdb_internal.h"

#include "fcap/assert.h"
#include "fcap/point.h"

#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>

/* What the writer keeps from batch to batch. */
struct writer {
    struct fcap_store_rocksdb *db;
    rocksdb_writebatch_t *changes;
    bool *kept; /* for each section */
    size_t kept_capacity;
};

static void add_entry(const struct fcap_store_rocksdb *db, rocksdb_writebatch_t *changes,
                      const struct fcap_batch *batch, size_t index)
{
    const struct fcap_batch_entry *entry = &batch->entries[index];
    rocksdb_column_family_handle_t *family = db->families[entry->family];
    const char *key = (const char *)batch->bytes.data + entry->key_offset;
    const char *value = (const char *)batch->bytes.data + entry->value_offset;
    switch (entry->change) {
    case FCAP_CHANGE_PUT:
        rocksdb_writebatch_put_cf(changes, family, key, entry->key_size, value, entry->value_size);
        break;
    case FCAP_CHANGE_DELETE:
        rocksdb_writebatch_delete_cf(changes, family, key, entry->key_size);
        break;
    case FCAP_CHANGE_DELETE_RANGE:
        FCAP_ASSERT(entry->key_size < STORE_INSERT_HINT_BYTES); /* Or RocksDB writes astray. */
        rocksdb_writebatch_delete_range_cf(changes, family, key, entry->key_size, value,
                                           entry->value_size);
        break;
    }
}

size_t store_changes_make(const struct fcap_store_rocksdb *db, rocksdb_writebatch_t *changes,
                          const struct fcap_batch *batch, const bool *kept, uint64_t sequence,
                          size_t *ret_timers)
{
    size_t entries = 0;
    size_t timers = 0;
    rocksdb_writebatch_clear(changes);
    for (size_t i = 0; i < batch->section_count; i++) {
        const struct fcap_batch_section *section = &batch->sections[i];
        for (size_t j = 0; (kept == NULL || kept[i]) && j < section->count; j++) {
            add_entry(db, changes, batch, section->first + j);
            timers += batch->entries[section->first + j].family == FCAP_FAMILY_TIMERS;
            entries++;
        }
    }
    if (entries > 0) {
        store_put_sequence(db, changes, sequence);
    }
    *ret_timers = timers;
    return entries;
}

/* Marks the sections whose assignment is current. Call with the lock held. Gives how many are not.
 */
static size_t choose_sections(struct writer *writer, const struct fcap_batch *batch)
{
    const struct fcap_store_rocksdb *db = writer->db;
    if (batch->section_count > writer->kept_capacity) {
        writer->kept = realloc(writer->kept, batch->section_count * sizeof *writer->kept);
        FCAP_ASSERT(writer->kept != NULL);
        writer->kept_capacity = batch->section_count;
    }
    size_t refused = 0;
    for (size_t i = 0; i < batch->section_count; i++) {
        const struct fcap_batch_section *section = &batch->sections[i];
        size_t partition = (size_t)section->partition;
        writer->kept[i] = section->partition >= 0 && partition < db->claim_count &&
                          db->claims[partition].owner != NULL &&
                          db->claims[partition].assignment == section->assignment;
        refused += !writer->kept[i];
    }
    return refused;
}

/* Builds and writes the kept sections. Without the lock. */
static enum fcap_status write_sections(struct writer *writer, const struct fcap_batch *batch,
                                       size_t *ret_entries, size_t *ret_timers)
{
    struct fcap_store_rocksdb *db = writer->db;
    *ret_entries = store_changes_make(db, writer->changes, batch, writer->kept,
                                      db->position.sequence + 1, ret_timers);
    if (*ret_entries == 0) {
        return FCAP_OK; /* Everything was refused, or nothing was there. */
    }
    char *text = NULL;
    enum fcap_status status = store_directory_stays(db);
    if (status != FCAP_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&db->write_gate);
    FCAP_POINT(commit_writing);
    rocksdb_write(db->db, db->write_options, writer->changes, &text);
    FCAP_POINT(commit_written);
    (void)pthread_mutex_unlock(&db->write_gate);
    return store_take_error(db, text);
}

/* A full disk is worth waiting for; but some states RocksDB does not leave when space is back (7.8
 * without log, after a failed flush of all families). Then only a restart helps. */
static enum fcap_status give_up_in_time(struct fcap_store_rocksdb *db, enum fcap_status status)
{
    enum { GRACE_US = 15000000 };
    struct statvfs info;
    if (status == FCAP_NO_SPACE) {
        (void)pthread_mutex_lock(&db->lock);
        db->was_full = true;
        (void)pthread_mutex_unlock(&db->lock);
    }
    if (status == FCAP_OK && db->was_full && STORE_FLUSH_IS_DOUBTFUL(db)) {
        status = FCAP_NO_SPACE; /* Written, but what a sync says from now on cannot be trusted. */
    }
    if (status != FCAP_NO_SPACE || statvfs(db->directory, &info) != 0 ||
        info.f_bavail * info.f_frsize < 2 * db->write_buffer_bytes_max) {
        db->space_since_us = 0;
        return status;
    }
    int64_t now_us = store_monotonic_us();
    if (db->space_since_us == 0) {
        db->space_since_us = now_us;
    }
    if (!STORE_FLUSH_IS_DOUBTFUL(db) && now_us - db->space_since_us < GRACE_US) {
        return status;
    }
    (void)pthread_mutex_lock(&db->lock);
    db->is_broken = true;
    status = fcap_error_set(&db->last_error, FCAP_IO,
                            "%s: there is space again, but RocksDB has not recovered; restart",
                            db->directory);
    (void)pthread_mutex_unlock(&db->lock);
    return status;
}

/* A failed batch must be written before anything newer of its handle, so what is queued behind it
 * fails with it. Call with the lock held. */
static void poison_followers(struct fcap_store_rocksdb *db, struct store_handle *handle,
                             enum fcap_status status)
{
    handle->poison = status;
    for (struct submission *at = db->queue_first; at != NULL; at = at->next) {
        if (at->handle == handle && at->result == FCAP_OK) {
            at->result = status;
            at->is_consequence = true;
        }
    }
}

static void tell_follower(const struct writer *writer, const struct fcap_batch *batch)
{
    const struct fcap_store_follower *follower = &writer->db->follower;
    struct timespec now;
    if (follower->written == NULL) {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now); /* Cannot fail for this clock. */
    follower->written(follower->context, writer->db->position.sequence + 1,
                      (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, batch, writer->kept);
}

/* Takes the oldest submission through. Call with the lock held; it is given up in between. */
static void serve(struct writer *writer)
{
    struct fcap_store_rocksdb *db = writer->db;
    struct submission *submission = db->queue_first;
    db->queue_first = submission->next;
    if (db->queue_first == NULL) {
        db->queue_last = NULL;
    }
    if (submission->result == FCAP_OK) {
        size_t refused = choose_sections(writer, submission->batch);
        size_t entries = 0;
        size_t timers = 0;
        db->writing = submission->batch;
        db->writing_kept = writer->kept;
        db->write_serial++;
        int64_t started_us = store_monotonic_us();
        db->writing_since_us = started_us;
        (void)pthread_mutex_unlock(&db->lock);
        enum fcap_status status =
            give_up_in_time(db, write_sections(writer, submission->batch, &entries, &timers));
        uint64_t spent_us = (uint64_t)(store_monotonic_us() - started_us);
        if (status == FCAP_OK && entries > 0) {
            tell_follower(writer, submission->batch);
        }
        (void)pthread_mutex_lock(&db->lock);
        db->writing = NULL;
        db->writing_kept = NULL;
        (void)pthread_cond_broadcast(&db->write_ended);
        submission->result = status;
        if (status == FCAP_OK) {
            db->commits++;
            db->position.sequence += entries > 0;
            db->sections_refused += refused;
            db->entries_written += entries;
            db->timers_written += timers;
            db->is_unsynced = db->is_unsynced || entries > 0;
            db->write_us_total += spent_us;
            db->write_us_max = spent_us > db->write_us_max ? spent_us : db->write_us_max;
        } else {
            db->commits_failed++;
            poison_followers(db, submission->handle, status);
        }
    }
    submission->is_done = true;
    (void)pthread_cond_signal(&submission->handle->completed);
}

static void *writer_run(void *context)
{
    struct writer writer = {.db = context, .changes = rocksdb_writebatch_create()};
    (void)pthread_setname_np(pthread_self(), "store-writer");
    struct fcap_store_rocksdb *db = writer.db;
    (void)pthread_mutex_lock(&db->lock);
    while (!db->stopping || db->queue_first != NULL) {
        if (db->queue_first == NULL) {
            (void)pthread_cond_wait(&db->writer_wakes, &db->lock);
            continue;
        }
        serve(&writer);
    }
    (void)pthread_mutex_unlock(&db->lock);
    rocksdb_writebatch_destroy(writer.changes);
    free(writer.kept);
    return NULL;
}

/* Call with the lock held; it is given up in between. */
static void sync_once(struct fcap_store_rocksdb *db)
{
    uint64_t serial = ++db->sync_started;
    db->sync_running = true;
    db->is_unsynced = false;
    (void)pthread_mutex_unlock(&db->lock);
    enum fcap_status status = store_make_durable(db);
    FCAP_POINT(state_synced);
    (void)pthread_mutex_lock(&db->lock);
    db->sync_running = false;
    db->sync_result = status;
    if (status == FCAP_OK) {
        db->sync_done = serial;
        db->syncs++;
    } else {
        db->is_unsynced = true;
        db->syncs_failed++;
    }
}

/* When the keeper must look again by itself, monotonic; INT64_MAX: only when woken. */
static int64_t keeper_deadline_us(const struct fcap_store_rocksdb *db, int64_t synced_at_us)
{
    int64_t deadline_us = INT64_MAX;
    if (db->sync == FCAP_STORE_SYNC_INTERVAL) {
        deadline_us = synced_at_us + db->sync_interval_ms * 1000;
    }
    int64_t drop_us = db->looked_at_us + db->release_pause_ms * 1000;
    if (db->wants_drop && drop_us < deadline_us) {
        deadline_us = drop_us;
    }
    return deadline_us;
}

static void keeper_wait(struct fcap_store_rocksdb *db, int64_t deadline_us)
{
    if (deadline_us == INT64_MAX) {
        (void)pthread_cond_wait(&db->keeper_wakes, &db->lock);
        return;
    }
    struct timespec deadline = {.tv_sec = deadline_us / 1000000,
                                .tv_nsec = deadline_us % 1000000 * 1000};
    (void)pthread_cond_timedwait(&db->keeper_wakes, &db->lock, &deadline); /* Timing out is fine. */
}

static void *keeper_run(void *context)
{
    struct fcap_store_rocksdb *db = context;
    (void)pthread_setname_np(pthread_self(), "store-keeper");
    int64_t synced_at_us = store_monotonic_us();
    (void)pthread_mutex_lock(&db->lock);
    while (!db->stopping) {
        int64_t now_us = store_monotonic_us();
        bool interval_over = db->sync == FCAP_STORE_SYNC_INTERVAL &&
                             now_us - synced_at_us >= db->sync_interval_ms * 1000;
        if (db->sync_wanted > db->sync_started || (interval_over && db->is_unsynced)) {
            sync_once(db);
            synced_at_us = now_us;
            continue;
        }
        if (interval_over) {
            synced_at_us = now_us; /* Nothing was written; look again an interval later. */
        }
        if (db->wants_drop && now_us - db->looked_at_us >= db->release_pause_ms * 1000) {
            db->wants_drop = false;
            db->looked_at_us = now_us;
            (void)pthread_mutex_unlock(&db->lock);
            store_drop_timers(db);
            (void)pthread_mutex_lock(&db->lock);
            continue;
        }
        keeper_wait(db, keeper_deadline_us(db, synced_at_us));
    }
    (void)pthread_mutex_unlock(&db->lock);
    return NULL;
}

enum fcap_status store_threads_start(struct fcap_store_rocksdb *db)
{
    if (pthread_create(&db->writer, NULL, writer_run, db) != 0) {
        return FCAP_NO_MEMORY;
    }
    if (pthread_create(&db->keeper, NULL, keeper_run, db) != 0) {
        (void)pthread_mutex_lock(&db->lock);
        db->stopping = true;
        (void)pthread_cond_signal(&db->writer_wakes);
        (void)pthread_mutex_unlock(&db->lock);
        (void)pthread_join(db->writer, NULL); /* It ends: nothing is queued yet. */
        return FCAP_NO_MEMORY;
    }
    db->has_threads = true;
    return FCAP_OK;
}

void store_threads_stop(struct fcap_store_rocksdb *db)
{
    if (!db->has_threads) {
        return;
    }
    (void)pthread_mutex_lock(&db->lock);
    db->stopping = true;
    (void)pthread_cond_signal(&db->writer_wakes);
    (void)pthread_cond_signal(&db->keeper_wakes);
    (void)pthread_mutex_unlock(&db->lock);
    rocksdb_disable_manual_compaction(db->db); /* A sweep under way need not be waited for. */
    (void)pthread_join(db->writer, NULL);      /* Both end by `stopping`. */
    (void)pthread_join(db->keeper, NULL);
    db->has_threads = false;
}
