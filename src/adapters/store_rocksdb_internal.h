/* What the files of the RocksDB store share among themselves; nobody else includes it.
 *
 * Lock rule: `lock` guards everything below its line in struct fcap_store_rocksdb and is never
 * held during a call into RocksDB that can write or wait. Lock order: `write_gate`, then `lock`. */
#ifndef STORE_ROCKSDB_INTERNAL_H
#define STORE_ROCKSDB_INTERNAL_H

#include "fcap/store_rocksdb.h"

#include <pthread.h>
#include <rocksdb/c.h>
#include <sys/types.h>

/* A batch on its way. */
struct submission {
    const struct fcap_batch *batch;
    struct store_handle *handle;
    struct submission *next; /* the database's queue */
    bool is_done;
    bool is_consequence; /* fails because an older batch of the handle failed */
    enum fcap_status result;
};

/* One worker's view. The ring holds its submissions, oldest at `first`; completions leave in order
 * because the writer works in order. */
struct store_handle {
    struct fcap_store store; /* must be first */
    struct fcap_store_rocksdb *db;
    struct store_handle *next;
    pthread_cond_t completed;
    struct submission ring[FCAP_STORE_IN_FLIGHT_MAX];
    size_t first;
    size_t count;
    /* Not OK from a failed write until completed() has told the worker: a batch submitted in
     * between must not overtake the failed one, so it fails with the same status. */
    enum fcap_status poison;
};

/* Who owns a partition here. */
struct claim {
    struct store_handle *owner; /* NULL: nobody */
    uint64_t assignment;        /* current, or the last one */
    bool was_claimed;
    bool is_released; /* history_ms is set; until then the claim holds everything back */
    int64_t history_ms;
};

struct fcap_store_rocksdb {
    rocksdb_t *db;
    rocksdb_column_family_handle_t *families[FCAP_FAMILY_COUNT];
    rocksdb_options_t *options; /* of the database; holds the statistics */
    rocksdb_cache_t *cache;
    rocksdb_writeoptions_t *write_options;
    rocksdb_writeoptions_t *durable_options;
    rocksdb_readoptions_t *read_options;
    char *directory;
    dev_t device; /* where `directory` was when it was opened */
    ino_t inode;
    bool is_read_only;
    bool wal;
    enum fcap_store_sync sync;
    int64_t sync_interval_ms;
    int64_t release_step_ms;
    int64_t release_pause_ms;
    int64_t release_sweep_ms;
    int open_files_max;
    size_t write_buffer_bytes_max; /* the largest family's: what RocksDB needs to recover */
    bool was_full;                 /* a write failed for want of space */
    int64_t space_since_us; /* the writer's own: space is back since; 0: it is not, or well */
    pthread_t writer;
    pthread_t keeper;
    bool has_threads;
    int64_t bound_stored_ms;             /* the durable dropped_through; the keeper's own */
    struct fcap_store_follower follower; /* set before the first submit; the writer's own then */
    pthread_mutex_t write_gate;          /* held during a write; the fall-back flush holds it too */
    pthread_mutex_t lock;
    /* --- guarded by `lock` --- */
    pthread_cond_t writer_wakes;
    pthread_cond_t keeper_wakes;
    pthread_cond_t write_ended;
    bool stopping;
    struct store_handle *handles;
    struct submission *queue_first;
    struct submission *queue_last;
    const struct fcap_batch *writing; /* sections of it are being written now */
    const bool *writing_kept;         /* for each section of `writing`: not refused */
    uint64_t write_serial;            /* counts writes as they start */
    int64_t writing_since_us;         /* monotonic; of `writing` */
    struct claim *claims;             /* by partition */
    size_t claim_count;
    uint64_t sync_wanted;  /* the highest ticket given out */
    uint64_t sync_started; /* the sync under way or last ended */
    bool sync_running;
    uint64_t sync_done; /* everything completed before this sync started is durable */
    enum fcap_status sync_result;
    bool is_unsynced; /* something was written since the last sync started */
    bool wants_drop;
    int64_t dropped_through_ms;
    bool may_drop_again;       /* up to there: nobody has claimed anything since */
    int64_t looked_through_ms; /* the bound when files were last looked for */
    int64_t looked_at_us;      /* monotonic */
    int64_t swept_at_us;       /* monotonic */
    /* Changed by the writer alone (before there is a handle: by apply and fork), which may read it
     * without the lock. */
    struct fcap_store_position position;
    struct fcap_store_position origin; /* when has_origin */
    bool has_origin;
    bool keeps_lineage;
    bool is_broken;          /* takes no writes though there is space */
    uint64_t timers_written; /* changes of the timers family */
    uint64_t timers_swept;   /* timers_written at the last sweep */
    uint64_t commits;
    uint64_t commits_failed;
    uint64_t sections_refused;
    uint64_t entries_written;
    uint64_t write_us_total;
    uint64_t write_us_max;
    uint64_t syncs;
    uint64_t syncs_failed;
    uint64_t drops;
    uint64_t drops_failed;
    uint64_t sweeps;
    struct fcap_error last_error;
};

/* Without log, RocksDB older than 8.1 cannot be trusted after a failed flush: it may hang, or lose
 * a commit that a later flush has covered. A restart from the last good flush is safe. */
#ifdef FCAP_HAVE_ROCKSDB_FLUSH_CFS
#define STORE_FLUSH_IS_DOUBTFUL(db) false
#else
#define STORE_FLUSH_IS_DOUBTFUL(db) (!(db)->wal)
#endif

/* Sizes of what bounds this store. */
enum { STORE_PARTITION_MAX = 0xFFFE };

/* store_rocksdb.c */
int64_t store_monotonic_us(void);
/* Takes RocksDB's error text: frees it, remembers it as last error, gives its status. */
enum fcap_status store_take_error(struct fcap_store_rocksdb *db, char *text);

/* Ends a handle that has nothing submitted. */
void store_handle_free(struct fcap_store *store);

/* store_rocksdb_partition.c: removes a partition that is half there; the caller has claimed it. */
enum fcap_status store_partition_settle(struct fcap_store_rocksdb *db, int32_t partition,
                                        uint64_t assignment);

/* store_rocksdb_directory.c */
/* Looks without changing; makes the directory when it is not there and not read-only.
 * *ret_exists: there is a database with a manifest in it. */
enum fcap_status store_directory_check(const char *directory, bool is_read_only, bool *ret_exists,
                                       struct fcap_error *error);
/* FCAP_NO_SPACE when the disk is too full to open a database for writing: RocksDB 7.8 dies on an
 * assertion of its log's writer then. */
enum fcap_status store_directory_space(const char *directory, struct fcap_error *error);
/* Writes a file, syncs it and removes it. IO or NO_SPACE when one of these fails: RocksDB 7.8 dies
 * on the same assertion then. */
enum fcap_status store_directory_try(const char *directory, struct fcap_error *error);
/* Before whatever may make RocksDB write a new file. IO: the name leads elsewhere by now, or
 * nowhere: the volume was unmounted, or the directory removed or replaced. The files that RocksDB
 * has open are on the old one, new ones would not be; from then on it is not even closed. */
enum fcap_status store_directory_stays(struct fcap_store_rocksdb *db);
/* Removes a copy of a database, whole or half made. OK when nothing is there; FOREIGN: something
 * else is, or a database that was opened for writing. */
enum fcap_status store_directory_remove(const char *path, struct fcap_error *error);
/* RocksDB's text from opening, with what to do. Frees the text. */
enum fcap_status store_explain(const char *directory, char *text, struct fcap_error *error);

/* store_rocksdb_open.c */
extern const char store_no_log_directory[];

/* store_rocksdb_snapshot.c */
/* `path`, which must not exist, becomes a copy of the database; all of it is flushed first, as one
 * with the log off. Writes wait meanwhile when the flush is doubtful. */
enum fcap_status store_copy(struct fcap_store_rocksdb *db, const char *path);

/* store_rocksdb_lineage.c */
extern const char store_sequence_key[];
extern const char store_format_key[];
/* `error` may be NULL. */
void store_tell_last_error(struct fcap_store_rocksdb *db, struct fcap_error *error);
/* Reads where the state stands. Unless it is read-only, a state without a lineage gets one, and one
 * of an earlier format gets another and today's format, in one write. */
enum fcap_status store_lineage_enter(struct fcap_store_rocksdb *db, bool is_earlier_format,
                                     struct fcap_error *error);
/* One of the store's own keys; CORRUPT when its value is not of `size` bytes. */
enum fcap_status store_own_get(const struct fcap_store_rocksdb *db, const char *key, size_t size,
                               struct fcap_buffer *value, bool *ret_found,
                               struct fcap_error *error);
void store_put_sequence(const struct fcap_store_rocksdb *db, rocksdb_writebatch_t *changes,
                        uint64_t sequence);

/* store_rocksdb_writer.c: the two threads. */
/* Makes `changes` of the kept sections (NULL: of all), and the batch's number when there is any;
 * gives how many entries there are. */
size_t store_changes_make(const struct fcap_store_rocksdb *db, rocksdb_writebatch_t *changes,
                          const struct fcap_batch *batch, const bool *kept, uint64_t sequence,
                          size_t *ret_timers);
enum fcap_status store_threads_start(struct fcap_store_rocksdb *db);
void store_threads_stop(struct fcap_store_rocksdb *db);

/* store_rocksdb_release.c: called by the keeper, without the lock. */
enum fcap_status store_make_durable(struct fcap_store_rocksdb *db);
void store_drop_timers(struct fcap_store_rocksdb *db);
/* The bound that all claims allow; 0: nothing. Call with the lock held. */
int64_t store_release_bound(const struct fcap_store_rocksdb *db);

/* store_rocksdb_options.c */
struct store_options {
    rocksdb_options_t *database;
    rocksdb_options_t *families[FCAP_FAMILY_COUNT];
    rocksdb_cache_t *cache;
    int open_files_max;
};
enum fcap_status store_options_make(const struct fcap_store_settings *settings, bool is_read_only,
                                    struct store_options *ret_options, struct fcap_error *error);
void store_options_done(struct store_options *options);

/* A batch comes sorted, partition by partition: each insert starts from where the last one of its
 * partition ended, not from the top of the skip list. Measured with 100,000 pairs of 60 bytes a
 * batch: 2.1 instead of 3.4 us of CPU a pair. Needs memtables that are not concurrent; the C API
 * has no setter. For users and ads.
 *
 * Three bytes, one more than the partition: up to 7.8 at least, RocksDB keeps one hint for the keys
 * and the deleted ranges of a prefix although they lie in two lists, and writes through the wrong
 * one. A range begins with a partition's two bytes, which is too short to have a prefix. */
#define STORE_INSERT_HINT       "memtable_insert_with_hint_prefix_extractor=fixed:3"
#define STORE_INSERT_HINT_BYTES 3

#define STORE_CURE_CORRUPT                                                                         \
    "move the directory away and start again: the state comes back from the newest checkpoint "    \
    "or by replay"

/* store_rocksdb_check.c: compares with the OPTIONS file that RocksDB has written. */
enum fcap_status store_options_check(const struct fcap_store_settings *settings, int open_files_max,
                                     struct fcap_error *error);
/* Refuses raw options that RocksDB takes and ignores, or that would break this store. */
enum fcap_status store_raw_options_check(const char *text, struct fcap_error *error);
/* Finds the next "name=value" (braces nest) from *at on; false at the end. Views into the text. */
bool store_raw_options_next(const char **at, struct fcap_bytes *ret_name,
                            struct fcap_bytes *ret_value);

#endif
