/* Durability on demand, and dropping timers that nobody needs any more.
 *
 * Timers lie in the order of their buckets, so expired ones fill whole files, and deleting a file
 * costs nothing. What lingers is the file across the bound, and level-0 files, which RocksDB never
 * deletes this way. A range tombstone would clear them, but a level-0 file with one reaches from
 * the first key to the newest, so its compaction rewrites the whole family: 240 MB of timers, a
 * third of them needed, cost 162 MB of compaction with a tombstone every 50 commits and none
 * without. Instead a sweep compacts level 0 up to the bound now and then: it moves those files down
 * one level, where the next drop takes them whole. */
#include "store_rocksdb_internal.h"

#include "fcap/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char dropped_key[] = "\xff\xff"
                                  "dropped_through";
static const char synced_key[] = "\xff\xff"
                                 "synced_at";

#ifdef FCAP_HAVE_ROCKSDB_FLUSH_CFS
static enum fcap_status flush_everything(struct fcap_store_rocksdb *db)
{
    char *text = NULL;
    rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(options, 1);
    rocksdb_flush_cfs(db->db, options, db->families, FCAP_FAMILY_COUNT, &text);
    rocksdb_flushoptions_destroy(options);
    return store_take_error(db, text);
}
#else
/* 7.8 has no call that flushes several families as one, and flushing them one by one breaks the
 * atomicity. A copy of the database flushes all of it first thing; the copy itself is hard links
 * and thrown away. */
static enum fcap_status flush_everything(struct fcap_store_rocksdb *db)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/flush.tmp", db->directory);
    FCAP_ASSERT(length > 0 && (size_t)length < sizeof path);
    (void)store_directory_remove(path, NULL); /* Left by a crash; else the copy tells. */
    enum fcap_status status = store_copy(db, path);
    (void)store_directory_remove(path, NULL); /* Litter is harmless: see above. */
    return status;
}
#endif

/* A synced write makes everything written before it durable too. (rocksdb_flush_wal would do so
 * beside running writes, but dies on an assertion of 7.8 after a full disk.) */
static enum fcap_status put_durably(struct fcap_store_rocksdb *db, const char *key, size_t key_size,
                                    uint64_t number)
{
    char *text = NULL;
    struct fcap_buffer value = {0};
    enum fcap_status status = store_directory_stays(db);
    if (status != FCAP_OK) {
        return status;
    }
    fcap_buffer_put_be64(&value, number);
    (void)pthread_mutex_lock(&db->write_gate);
    rocksdb_put_cf(db->db, db->durable_options, db->families[FCAP_FAMILY_META], key, key_size,
                   (const char *)value.data, value.size, &text);
    (void)pthread_mutex_unlock(&db->write_gate);
    fcap_buffer_done(&value);
    status = store_take_error(db, text);
    return status == FCAP_OK && !db->wal ? flush_everything(db) : status;
}

enum fcap_status store_make_durable(struct fcap_store_rocksdb *db)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* Cannot fail for this clock. */
    return put_durably(db, synced_key, sizeof synced_key - 1, (uint64_t)now.tv_sec);
}

/* Durable before the first file goes: after a crash the bound must cover everything that is gone.
 */
static enum fcap_status store_bound(struct fcap_store_rocksdb *db, int64_t bound_ms)
{
    enum fcap_status status =
        put_durably(db, dropped_key, sizeof dropped_key - 1, (uint64_t)bound_ms);
    if (status == FCAP_OK) {
        db->bound_stored_ms = bound_ms;
    }
    return status;
}

struct expired {
    bool can_drop; /* a file below level 0 lies wholly below the bound */
    bool lingers;  /* one in level 0 does */
};

static struct expired find_expired(struct fcap_store_rocksdb *db, struct fcap_bytes end)
{
    struct expired expired = {0};
    const rocksdb_livefiles_t *files = rocksdb_livefiles(db->db);
    int count = rocksdb_livefiles_count(files);
    for (int i = 0; i < count; i++) {
        if (strcmp(rocksdb_livefiles_column_family_name(files, i),
                   fcap_family_name(FCAP_FAMILY_TIMERS)) != 0) {
            continue;
        }
        struct fcap_bytes largest;
        largest.data = (const uint8_t *)rocksdb_livefiles_largestkey(files, i, &largest.size);
        if (fcap_bytes_compare(largest, end) > 0) {
            continue;
        }
        bool in_level0 = rocksdb_livefiles_level(files, i) == 0;
        expired.can_drop = expired.can_drop || !in_level0;
        expired.lingers = expired.lingers || in_level0;
    }
    rocksdb_livefiles_destroy(files);
    return expired;
}

/* True when it is time, and something is or may be in level 0 or in memory below the bound. */
static bool sweep_is_due(struct fcap_store_rocksdb *db, bool lingers)
{
    int64_t now_us = store_monotonic_us();
    (void)pthread_mutex_lock(&db->lock);
    /* A memtable shows no keys; but when no timers come any more, what it holds is old. */
    bool is_idle = db->timers_written == db->timers_swept;
    bool is_time = now_us - db->swept_at_us >= db->release_sweep_ms * 1000;
    bool due = is_time && (lingers || (is_idle && db->timers_written > 0));
    if (is_time) {
        db->swept_at_us = now_us;
        db->timers_swept = db->timers_written;
        db->sweeps += due;
    }
    (void)pthread_mutex_unlock(&db->lock);
    return due;
}

/* Compacts what lies below `end`. When something of that is in memory RocksDB flushes first,
 * and 7.8 without log can then leave out a family that was empty a moment before (#11148): offsets
 * without their effects, once the process is killed. So everything is flushed before, with the
 * writer held; timers below the bound are not written any more. */
static void sweep(struct fcap_store_rocksdb *db, struct fcap_bytes end)
{
    if (STORE_FLUSH_IS_DOUBTFUL(db) && flush_everything(db) != FCAP_OK) {
        return; /* The next commit or sync meets it, too. */
    }
    rocksdb_compact_range_cf(db->db, db->families[FCAP_FAMILY_TIMERS], NULL, 0,
                             (const char *)end.data, end.size);
}

static enum fcap_status drop_files(struct fcap_store_rocksdb *db, struct fcap_bytes end)
{
    char *text = NULL;
    rocksdb_delete_file_in_range_cf(db->db, db->families[FCAP_FAMILY_TIMERS], "", 0,
                                    (const char *)end.data, end.size, &text);
    return store_take_error(db, text);
}

/* A state may begin below what was dropped before (fcap/ports.h: claim). What is dropped after it
 * has begun must show in the number that its next claim is told, so nothing is dropped below it,
 * and once more up to it only while no state can have begun since. Call with the lock held. */
static bool is_ahead(const struct fcap_store_rocksdb *db, int64_t bound_ms)
{
    return bound_ms > db->dropped_through_ms ||
           (bound_ms == db->dropped_through_ms && db->may_drop_again);
}

void store_drop_timers(struct fcap_store_rocksdb *db)
{
    (void)pthread_mutex_lock(&db->lock);
    int64_t bound_ms = store_release_bound(db);
    db->looked_through_ms = bound_ms;
    bool is_of_use = bound_ms > 0 && is_ahead(db, bound_ms);
    (void)pthread_mutex_unlock(&db->lock);
    if (!is_of_use) {
        return;
    }
    /* RocksDB's end is inclusive: the last possible key of the bucket before the bound (partition,
     * commit and part are 12 bytes). */
    enum { TIMER_KEY_REST = 12 };
    struct fcap_buffer end = {0};
    fcap_buffer_put_be64(&end, (uint64_t)bound_ms - 1);
    memset(fcap_buffer_reserve(&end, TIMER_KEY_REST), 0xff, TIMER_KEY_REST);
    end.size += TIMER_KEY_REST;

    enum fcap_status status = FCAP_OK;
    struct expired expired = find_expired(db, fcap_buffer_bytes(&end));
    if (sweep_is_due(db, expired.lingers)) {
        sweep(db, fcap_buffer_bytes(&end));
        expired = find_expired(db, fcap_buffer_bytes(&end));
    }
    if (!expired.can_drop) {
        goto out;
    }
    /* A claim from now on is told the bound; one that came since it was computed may need what it
     * covers, so the bound is taken again under the same lock. */
    (void)pthread_mutex_lock(&db->lock);
    bool is_current = store_release_bound(db) >= bound_ms && is_ahead(db, bound_ms);
    if (is_current) {
        db->dropped_through_ms = bound_ms;
        db->may_drop_again = true;
    }
    (void)pthread_mutex_unlock(&db->lock);
    if (!is_current) {
        goto out;
    }
    if (bound_ms > db->bound_stored_ms) {
        status = store_bound(db, bound_ms);
    }
    if (status == FCAP_OK) {
        status = drop_files(db, fcap_buffer_bytes(&end));
    }
    (void)pthread_mutex_lock(&db->lock);
    db->drops += status == FCAP_OK;
    db->drops_failed += status != FCAP_OK;
    (void)pthread_mutex_unlock(&db->lock);
out:
    fcap_buffer_done(&end);
}
