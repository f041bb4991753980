/* A snapshot of the store's and RocksDB's counters. */
#include "store_rocksdb_internal.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* From "rocksdb.wal.bytes COUNT : 123"; 0 when it is not there. 7.8 gives tickers as text only. */
static uint64_t ticker(const char *text, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = text; at != NULL && *at != '\0'; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, size) == 0 && strncmp(at + size, " COUNT : ", 9) == 0) {
            return strtoull(at + size + 9, NULL, 10);
        }
    }
    return 0;
}

static void read_tickers(struct fcap_store_rocksdb *db, struct fcap_store_metrics *metrics)
{
    char *text = rocksdb_options_statistics_get_string(db->options);
    if (text == NULL) {
        return; /* Switched off. */
    }
    metrics->wal_bytes = ticker(text, "rocksdb.wal.bytes");
    metrics->flush_bytes = ticker(text, "rocksdb.flush.write.bytes");
    metrics->compaction_read_bytes = ticker(text, "rocksdb.compact.read.bytes");
    metrics->compaction_write_bytes = ticker(text, "rocksdb.compact.write.bytes");
    metrics->stall_us = ticker(text, "rocksdb.stall.micros");
    metrics->block_cache_hits = ticker(text, "rocksdb.block.cache.hit");
    metrics->block_cache_misses = ticker(text, "rocksdb.block.cache.miss");
    rocksdb_free(text);
}

static uint64_t database_number(struct fcap_store_rocksdb *db, const char *name)
{
    uint64_t value = 0;
    (void)rocksdb_property_int(db->db, name, &value); /* Unknown to a version: 0. */
    return value;
}

static uint64_t family_number(struct fcap_store_rocksdb *db, size_t family, const char *name)
{
    uint64_t value = 0;
    (void)rocksdb_property_int_cf(db->db, db->families[family], name, &value); /* As above. */
    return value;
}

static uint64_t level0_files(struct fcap_store_rocksdb *db, size_t family)
{
    char *text =
        rocksdb_property_value_cf(db->db, db->families[family], "rocksdb.num-files-at-level0");
    uint64_t count = text == NULL ? 0 : strtoull(text, NULL, 10);
    rocksdb_free(text);
    return count;
}

static uint64_t log_files_bytes(const char *path)
{
    uint64_t bytes = 0;
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return 0;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        struct stat info;
        size_t size = strlen(entry->d_name);
        if (size > 4 && strcmp(entry->d_name + size - 4, ".log") == 0 &&
            fstatat(dirfd(directory), entry->d_name, &info, 0) == 0) {
            bytes += (uint64_t)info.st_size;
        }
    }
    (void)closedir(directory); /* Only read. */
    return bytes;
}

void fcap_store_rocksdb_metrics(struct fcap_store_rocksdb *db,
                                struct fcap_store_metrics *ret_metrics)
{
    struct fcap_store_metrics metrics = {0};
    (void)pthread_mutex_lock(&db->lock);
    metrics.commits = db->commits;
    metrics.commits_failed = db->commits_failed;
    metrics.sections_refused = db->sections_refused;
    metrics.entries_written = db->entries_written;
    metrics.write_us_total = db->write_us_total;
    metrics.write_us_max = db->write_us_max;
    metrics.syncs = db->syncs;
    metrics.syncs_failed = db->syncs_failed;
    if (db->writing != NULL) {
        metrics.write_waits_us = (uint64_t)(store_monotonic_us() - db->writing_since_us);
    }
    metrics.sync_failing = db->sync_result != FCAP_OK;
    metrics.drops = db->drops;
    metrics.drops_failed = db->drops_failed;
    metrics.sweeps = db->sweeps;
    metrics.dropped_through_ms = (uint64_t)db->dropped_through_ms;
    (void)pthread_mutex_unlock(&db->lock);
    metrics.open_files_max = db->open_files_max < 0 ? 0 : (uint64_t)db->open_files_max;
    read_tickers(db, &metrics);
    metrics.write_stopped = database_number(db, "rocksdb.is-write-stopped");
    metrics.delayed_write_rate = database_number(db, "rocksdb.actual-delayed-write-rate");
    metrics.background_errors = database_number(db, "rocksdb.background-errors");
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        metrics.level0_files += level0_files(db, i);
        metrics.pending_compaction_bytes +=
            family_number(db, i, "rocksdb.estimate-pending-compaction-bytes");
        metrics.memtable_bytes += family_number(db, i, "rocksdb.cur-size-all-mem-tables");
        metrics.table_reader_bytes += family_number(db, i, "rocksdb.estimate-table-readers-mem");
        metrics.live_bytes[i] = family_number(db, i, "rocksdb.live-sst-files-size");
    }
    metrics.block_cache_bytes = rocksdb_cache_get_usage(db->cache);
    metrics.block_cache_pinned_bytes = rocksdb_cache_get_pinned_usage(db->cache);
    metrics.log_files_bytes = log_files_bytes(db->directory);
    *ret_metrics = metrics;
}
