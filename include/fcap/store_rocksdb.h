/* The store port on RocksDB: one database for a process, one handle (`struct fcap_store`) for each
 * worker.
 *
 * What must always hold: a batch is written in one atomic unit over all families or not at all; a
 * section whose assignment number is not current is never written; timers are dropped only after
 * the bound that says so is durable. One writer thread writes the batches of all handles in order
 * of submission; a keeper thread syncs and drops. RocksDB 7.8 and newer.
 *
 * Thread rule: a handle belongs to one worker's thread; functions on the database may be called by
 * any thread between open and close. The caller ends its workers before fcap_store_rocksdb_close.
 *
 * Keys of its own in the meta family, under the partition number 0xFFFF that no partition has
 * (docs/DATA.md): FF FF "format" = be32 version; FF FF "created_by" = text; FF FF
 * "dropped_through" = be64 ms; and those of a checkpoint, below. */
#ifndef FCAP_STORE_ROCKSDB_H
#define FCAP_STORE_ROCKSDB_H

#include "fcap/changelog.h"
#include "fcap/ports.h"

#define FCAP_STORE_FORMAT_VERSION 2u

/* The format before: builds that knew it did not all number batches, and went on in a state of
 * today without a word. Such a state is taken; its numbers are not believed. */
#define FCAP_STORE_FORMAT_UNNUMBERED 1u

/* Batches that one handle may have submitted and not yet got back; submit gives BUSY beyond. */
#define FCAP_STORE_IN_FLIGHT_MAX 8

enum fcap_store_compression {
    FCAP_STORE_COMPRESSION_NONE,
    FCAP_STORE_COMPRESSION_LZ4,
    FCAP_STORE_COMPRESSION_ZSTD,
};

/* When commits become durable against power loss (kill -9 loses none with the WAL on). */
enum fcap_store_sync {
    FCAP_STORE_SYNC_NEVER,    /* only when sync() asks, and before timers are dropped */
    FCAP_STORE_SYNC_INTERVAL, /* every sync_interval_ms when something was written */
    FCAP_STORE_SYNC_COMMIT,   /* each commit, before it completes; needs the WAL */
};

struct fcap_store_family_settings {
    size_t
        write_buffer_bytes; /* one memtable; the database's write_buffers_bytes may flush sooner */
    int write_buffers_max;
    int write_buffers_merge;    /* memtables merged by one flush; 1 when the WAL is off */
    double filter_bits_per_key; /* 0: no filter */
    bool ribbon_filter;         /* a third smaller than Bloom, costs CPU when files are written */
    size_t block_bytes;
    bool partitioned_filters;     /* two-level index and filters, top level pinned */
    bool cache_index_and_filters; /* they live in the block cache, so the cache bounds them */
    enum fcap_store_compression compression;
    uint64_t target_file_bytes;
    uint64_t level_base_bytes;
    bool dynamic_levels;
    int level0_files; /* level-0 files that start a compaction */
    /* RocksDB options for this family alone, "name=value;name={a=b}"; NULL: none. */
    const char *options;
};

struct fcap_store_settings {
    const char *directory;      /* borrowed until open returns; its parent must exist */
    size_t block_cache_bytes;   /* one cache for all families */
    size_t write_buffers_bytes; /* all memtables together; 0: no common bound */
    struct fcap_store_family_settings families[FCAP_FAMILY_COUNT];
    bool wal; /* false: atomic flush over all families; kill -9 goes back to the last flush */
    enum fcap_store_sync sync;
    int64_t sync_interval_ms;
    /* All log files: beyond it the oldest memtables are flushed; more while that runs. */
    uint64_t wal_bytes_max;
    int background_jobs;
    int open_files_max; /* -1: as many as RLIMIT_NOFILE allows; always bounded by it */
    bool direct_reads;
    bool direct_flush_and_compaction;
    uint64_t bytes_per_sync; /* 0: off */
    uint64_t wal_bytes_per_sync;
    uint64_t rate_limit_bytes_per_second; /* flush and compaction; 0: none */
    /* 0 debug, 1 info, 2 warn, 3 error, 4 fatal, 5 headers. RocksDB older than 9 gets 5 whatever is
     * set: its log's writer dies on an assertion when the disk is full. */
    int info_log_level;
    size_t info_log_bytes_max; /* one file */
    int info_log_files_max;
    bool statistics;          /* byte and stall counters; costs about 1 % CPU */
    int64_t release_step_ms;  /* timers are dropped when the bound has moved by this much */
    int64_t release_pause_ms; /* and this long after the last drop, on the monotonic clock */
    int64_t release_sweep_ms; /* what lingers in level 0 is compacted at most this often */
    const char *options;      /* RocksDB options for the database and all families, applied last */
    /* A state of format 1 keeps its lineage: nobody has written to it since it was numbered. For
     * snapshots, whose checksums say so. */
    bool keeps_lineage;
};

/* Defaults, chosen by measurement for the days profile; the directory is NULL. */
void fcap_store_settings_default(struct fcap_store_settings *ret_settings);

struct fcap_store_rocksdb;

/* Opens or creates. On a full disk commits fail with NO_SPACE; they succeed again by themselves
 * some seconds after twice the largest write_buffer_bytes has become free, or else become IO
 * (FATAL). Every setting is read back from RocksDB and compared: one that is not in force is
 * refused (CONFIG, names it). A state of format 1 becomes one of format 2, with a lineage of its
 * own, and no build that knows only format 1 opens it again. Other failures: LOCKED (another
 * process, named when known), FOREIGN, FORMAT, CORRUPT (names the file and the cure), IO, NO_SPACE.
 * Gives *ret_db; close it. */
FCAP_MUST_USE enum fcap_status fcap_store_rocksdb_open(const struct fcap_store_settings *settings,
                                                       struct fcap_store_rocksdb **ret_db,
                                                       struct fcap_error *error);

/* Opens what is there at this moment without locking or changing anything in the directory; works
 * beside a running daemon, whose later commits do not show (RocksDB's read-only mode: it reads the
 * log, so every commit completed before the call is seen). Handles serve get and scan; submit gives
 * STOPPED. Writes nothing anywhere. */
FCAP_MUST_USE enum fcap_status
fcap_store_rocksdb_open_read_only(const struct fcap_store_settings *settings,
                                  struct fcap_store_rocksdb **ret_db, struct fcap_error *error);

/* Writes what was submitted, ends the threads, closes. Every batch belongs to its caller again.
 * After commits have failed with IO although there was space, RocksDB may be unable to close: then
 * it stays open and locked until the process ends, which must be by _exit (its exit handlers wait).
 * NULL is fine. */
void fcap_store_rocksdb_close(struct fcap_store_rocksdb *db);

/* A handle for one worker; freed by fcap_store_rocksdb_close. */
struct fcap_store *fcap_store_rocksdb_handle(struct fcap_store_rocksdb *db);

/* The status that one of RocksDB's error texts stands for; NULL is OK. */
enum fcap_status fcap_store_rocksdb_status(const char *text);

/* The text of the newest failed read, write, sync or drop; empty when none failed yet. */
void fcap_store_rocksdb_last_error(struct fcap_store_rocksdb *db, struct fcap_error *ret_error);

/* clang-format off */
#define FCAP_STORE_METRIC_LIST(X)                                                               \
    X(commits,                  "batches written")                                              \
    X(commits_failed,           "batches whose write failed")                                   \
    X(sections_refused,         "sections skipped because their assignment had ended")          \
    X(entries_written,          "changes written")                                              \
    X(write_us_total,           "time spent writing batches, microseconds")                     \
    X(write_us_max,             "slowest batch, microseconds")                                  \
    X(syncs,                    "times that commits were made durable")                         \
    X(syncs_failed,             "times that this failed")                                       \
    X(drops,                    "times that files of expired timers were dropped")              \
    X(drops_failed,             "times that this failed")                                       \
    X(sweeps,                   "compactions of expired timers that lingered in level 0")       \
    X(dropped_through_ms,       "timers of buckets below this are gone")                        \
    X(wal_bytes,                "bytes written to the log (0 without statistics)")              \
    X(flush_bytes,              "bytes written by flushes (0 without statistics)")              \
    X(compaction_read_bytes,    "bytes read by compactions (0 without statistics)")             \
    X(compaction_write_bytes,   "bytes written by compactions (0 without statistics)")          \
    X(stall_us,                 "time that writes were held back, microseconds (statistics)")   \
    X(block_cache_hits,         "blocks found in the cache (statistics)")                       \
    X(block_cache_misses,       "blocks not found in the cache (statistics)")                   \
    X(write_stopped,            "1 while RocksDB takes no writes")                              \
    X(write_waits_us,           "time that the write under way has taken, microseconds")        \
    X(sync_failing,             "1 when commits could not be made durable the last time")       \
    X(delayed_write_rate,       "bytes a second to which writes are slowed down; 0: not")       \
    X(level0_files,             "level-0 files of all families")                                \
    X(pending_compaction_bytes, "bytes that compaction is behind")                              \
    X(memtable_bytes,           "memory in memtables")                                          \
    X(table_reader_bytes,       "memory in open tables outside the block cache")                \
    X(block_cache_bytes,        "memory in the block cache")                                    \
    X(block_cache_pinned_bytes, "of it pinned")                                                 \
    X(background_errors,        "failed flushes and compactions")                               \
    X(log_files_bytes,          "size of the log files on disk")                                \
    X(open_files_max,           "bound on open files in force")
/* clang-format on */

struct fcap_store_metrics {
#define X(name, text) uint64_t name;
    FCAP_STORE_METRIC_LIST(X)
#undef X
    uint64_t live_bytes[FCAP_FAMILY_COUNT]; /* SST files of each family */
};

/* A snapshot for metrics pages; costs about a millisecond. Any thread. */
void fcap_store_rocksdb_metrics(struct fcap_store_rocksdb *db,
                                struct fcap_store_metrics *ret_metrics);

/* --- what checkpoints are made of (docs/decisions/0021) --- */

/* Batches are numbered as they are written: FF FF "sequence" holds the newest one's number, in the
 * same atomic unit. FF FF "lineage" tells which history the numbers belong to. A state from before
 * there were such keys gets them when it is opened. */
struct fcap_store_position {
    struct fcap_lineage lineage;
    uint64_t sequence; /* 0: no batch yet */
};

/* Where the state stands: the newest batch that is written and was told to the follower. A state
 * from before there were lineages that is opened read-only has one of zeroes. Any thread. */
void fcap_store_rocksdb_position(struct fcap_store_rocksdb *db,
                                 struct fcap_store_position *ret_position);

/* Is told of each batch that has been written, in order, on the store's writer thread, before the
 * worker is: it must not wait. `written_ms`: wall clock, Unix epoch. `kept[i]`: section i was
 * written. Batches of which nothing was kept have no number and are not told. Set before the first
 * submit; NULL: nobody. */
struct fcap_store_follower {
    void *context;
    void (*written)(void *context, uint64_t sequence, int64_t written_ms,
                    const struct fcap_batch *batch, const bool *kept);
};
void fcap_store_rocksdb_follow(struct fcap_store_rocksdb *db,
                               const struct fcap_store_follower *follower);

/* Flushes, and makes `directory` (in the same file system as the state: hard links) a database of
 * its own that holds exactly the batches up to *ret_sequence; the follower has been told of all of
 * them then. An earlier snapshot there, or what a crash left of one, is removed first. Batches are
 * written meanwhile; without the log RocksDB 7.8 lets them wait for the flush. For one thread at a
 * time, any. On failure nothing is left, and the state goes on: NO_SPACE (asked before the flush,
 * whose failure would stop the commits), UNAVAILABLE (a commit failed meanwhile; try again later),
 * CONFIG (another file system), FOREIGN (something else is there), IO (also: RocksDB takes no
 * writes until a restart). */
FCAP_MUST_USE enum fcap_status fcap_store_rocksdb_snapshot(struct fcap_store_rocksdb *db,
                                                           const char *directory,
                                                           uint64_t *ret_sequence,
                                                           struct fcap_error *error);

/* Removes a snapshot, whole or half made, that nobody has opened for writing; nothing there is
 * fine. Needs no database. FOREIGN: something else is there. */
FCAP_MUST_USE enum fcap_status fcap_store_rocksdb_discard(const char *directory,
                                                          struct fcap_error *error);

/* Before any handle is made: writes one frame of a changelog, for a restore, or because a crash
 * took this state back behind its own changelog. CORRUPT: its number does not follow on the
 * position, or no store has written it. Durable with the next fork() or sync. */
FCAP_MUST_USE enum fcap_status fcap_store_rocksdb_apply(struct fcap_store_rocksdb *db,
                                                        uint64_t sequence,
                                                        const struct fcap_batch *batch,
                                                        struct fcap_error *error);

/* Before any handle is made, at a restore's end, or when a crash took this state back behind its
 * changelog and the frames are gone (their numbers must not be given to other batches): draws
 * another lineage, remembers the old one under FF FF "origin" (lineage, sequence), and makes
 * everything durable. The numbers go on. After a failure the database is to be closed. */
FCAP_MUST_USE enum fcap_status fcap_store_rocksdb_fork(struct fcap_store_rocksdb *db,
                                                       struct fcap_error *error);

/* A partition as a store holds it. */
struct fcap_store_partition {
    bool found;          /* there is a meta record, */
    bool is_half;        /* and the partition is being carried in, so that it counts as empty */
    int64_t next_offset; /* of the meta record, as all that follows */
    int64_t clock_ms;
    int64_t needed_ms;          /* the oldest bucket that it may need */
    int64_t floor_ms;           /* 0: none */
    int64_t dropped_through_ms; /* of the store */
};

/* Looks it up, as of the newest batch. Any thread. */
FCAP_MUST_USE enum fcap_status fcap_store_rocksdb_look(struct fcap_store_rocksdb *db,
                                                       int32_t partition,
                                                       struct fcap_store_partition *ret_partition,
                                                       struct fcap_error *error);

/* True when the store has dropped timers that the partition needs. */
static inline bool fcap_store_partition_lacks(const struct fcap_store_partition *partition)
{
    return partition->dropped_through_ms > partition->needed_ms &&
           partition->dropped_through_ms > partition->floor_ms;
}

/* What a value of a meta record says of it; the rest stays. CORRUPT, FORMAT. */
FCAP_MUST_USE enum fcap_status fcap_store_partition_set(struct fcap_store_partition *partition,
                                                        struct fcap_bytes meta);

/* The partition that is being carried over. */
struct fcap_store_carry;

/* A partition's claim in the store that it is to come into. */
struct fcap_store_claimed {
    int32_t partition;
    uint64_t assignment;
    int64_t dropped_through_ms; /* as claim() told */
    /* Asked before each batch, and while it is read, on the caller's thread: false ends it with
     * STOPPED. NULL: never. */
    bool (*go_on)(void *context);
    /* Called when all of `from` is written: hands over what came after it, batch by batch, by
     * fcap_store_rocksdb_carry(). The caller has judged what will be there at the end. NULL:
     * nothing came. */
    enum fcap_status (*follow)(void *context, struct fcap_store_carry *carry,
                               struct fcap_error *error);
    void *context;
    /* What is half there when go_on() says no is left to the next claim. */
    bool leaves_half;
};

struct fcap_store_copied {
    uint64_t users;
    uint64_t ads;
    uint64_t chunks;
    uint64_t bytes; /* of all these, keys and values; and of what was carried behind them */
    uint64_t
        chunks_seen; /* chunks that were looked at, of all partitions: about two a bucket more */
};

/* Puts one partition in place of what `to` holds of it, between its claim there and the loading of
 * its state. Batches like any others, numbered and told. From the first of them on the old state is
 * gone; until the last the partition counts as empty, whatever ends the process: what is half there
 * is removed by the next claim of it, and by this call when it fails. REFUSED, before anything is
 * changed: `from` holds no state of it, or its timers were dropped there. FENCED: the assignment
 * has ended. Any thread; `from` is usually a snapshot opened read-only. */
FCAP_MUST_USE enum fcap_status
fcap_store_rocksdb_copy_partition(struct fcap_store_rocksdb *from, struct fcap_store_rocksdb *to,
                                  const struct fcap_store_claimed *claimed,
                                  struct fcap_store_copied *ret_copied, struct fcap_error *error);

/* Within claimed.follow: the partition's part of one batch that its store wrote after what was
 * copied. STOPPED, FENCED, and what the store says. */
FCAP_MUST_USE enum fcap_status fcap_store_rocksdb_carry(struct fcap_store_carry *carry,
                                                        const struct fcap_batch *batch);

/* Reads all that copy_partition() would read, and writes nothing: what is damaged is found while
 * the old state is still there. Only `partition`, `go_on` and `context` of the claim are used. */
FCAP_MUST_USE enum fcap_status
fcap_store_rocksdb_read_partition(struct fcap_store_rocksdb *from,
                                  const struct fcap_store_claimed *claimed,
                                  struct fcap_store_copied *ret_copied, struct fcap_error *error);

/* What fork() remembered; false: never restored. */
bool fcap_store_rocksdb_origin(struct fcap_store_rocksdb *db,
                               struct fcap_store_position *ret_origin);

#endif
