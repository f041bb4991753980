/* Settings to RocksDB options. */
#include "store_rocksdb_internal.h"

#include "fcap/assert.h"

#include <string.h>
#include <sys/resource.h>

/* Descriptors for sockets, logs and RocksDB's own log and manifest files. */
enum { OPEN_FILES_RESERVE = 256, OPEN_FILES_MIN = 64, LOG_HEADERS_ONLY = 5 };

void fcap_store_settings_default(struct fcap_store_settings *ret_settings)
{
    const size_t mib = 1024 * 1024;
    *ret_settings = (struct fcap_store_settings){
        .block_cache_bytes = 512 * mib,
        .write_buffers_bytes = 256 * mib,
        .wal = true,
        .sync = FCAP_STORE_SYNC_INTERVAL,
        .sync_interval_ms = 1000,
        .wal_bytes_max = 512 * mib,
        .background_jobs = 2,
        .open_files_max = -1,
        .bytes_per_sync = mib,
        .wal_bytes_per_sync = mib,
        .info_log_level = 1,
        .info_log_bytes_max = 16 * mib,
        .info_log_files_max = 4,
        .statistics = true,
        .release_step_ms = 60000,
        .release_pause_ms = 1000,
        .release_sweep_ms = 600000,
    };
    struct fcap_store_family_settings common = {
        .write_buffer_bytes = 4 * mib,
        .write_buffers_max = 4,
        .write_buffers_merge = 1,
        .filter_bits_per_key = 10,
        .block_bytes = 8 * 1024,
        .partitioned_filters = true,
        .cache_index_and_filters = true,
        .compression = FCAP_STORE_COMPRESSION_LZ4,
        .target_file_bytes = 64 * mib,
        .level_base_bytes = 256 * mib,
        .dynamic_levels = true,
        .level0_files = 4,
    };
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        ret_settings->families[i] = common;
    }
    ret_settings->families[FCAP_FAMILY_USERS].write_buffer_bytes = 64 * mib;
    /* Timers are written once, read by range, and dropped by files: small files, large blocks, no
     * filter. */
    struct fcap_store_family_settings *timers = &ret_settings->families[FCAP_FAMILY_TIMERS];
    timers->write_buffer_bytes = 32 * mib;
    timers->filter_bits_per_key = 0;
    timers->partitioned_filters = false;
    timers->block_bytes = 32 * 1024;
    timers->target_file_bytes = 32 * mib;
}

/* What RocksDB may keep open: the setting, bounded by what the process may. */
static int bounded_open_files(int wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > 1000000) {
        return wanted;
    }
    int allowed = (int)limit.rlim_cur - OPEN_FILES_RESERVE;
    if (allowed < (int)limit.rlim_cur / 4) {
        allowed = (int)limit.rlim_cur / 4;
    }
    allowed = allowed < OPEN_FILES_MIN ? OPEN_FILES_MIN : allowed;
    return wanted < 0 || wanted > allowed ? allowed : wanted;
}

/* RocksDB takes less without a word, and would be told of as a setting that is not in force. */
static enum fcap_status check_open_files(struct fcap_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < OPEN_FILES_MIN) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "this process may open %llu files, which is less than the %d that "
                              "RocksDB needs; raise the limit of open files (ulimit -n)",
                              (unsigned long long)limit.rlim_cur, OPEN_FILES_MIN);
    }
    return FCAP_OK;
}

static void set_table(rocksdb_options_t *options, const struct fcap_store_family_settings *family,
                      rocksdb_cache_t *cache)
{
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(table, cache);
    rocksdb_block_based_options_set_block_size(table, family->block_bytes);
    rocksdb_block_based_options_set_format_version(table, 5);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table,
                                                                  family->cache_index_and_filters);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table, 1);
    rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(table, 1);
    if (family->partitioned_filters) {
        rocksdb_block_based_options_set_index_type(
            table, rocksdb_block_based_table_index_type_two_level_index_search);
        rocksdb_block_based_options_set_partition_filters(table, 1);
    }
    if (family->filter_bits_per_key > 0) {
        /* The table options own the policy. */
        rocksdb_block_based_options_set_filter_policy(
            table, family->ribbon_filter
                       ? rocksdb_filterpolicy_create_ribbon(family->filter_bits_per_key)
                       : rocksdb_filterpolicy_create_bloom_full(family->filter_bits_per_key));
    }
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_block_based_options_destroy(table);
}

static void set_family(rocksdb_options_t *options, const struct fcap_store_family_settings *family,
                       rocksdb_cache_t *cache)
{
    static const int compressions[] = {
        [FCAP_STORE_COMPRESSION_NONE] = rocksdb_no_compression,
        [FCAP_STORE_COMPRESSION_LZ4] = rocksdb_lz4_compression,
        [FCAP_STORE_COMPRESSION_ZSTD] = rocksdb_zstd_compression,
    };
    rocksdb_options_set_write_buffer_size(options, family->write_buffer_bytes);
    rocksdb_options_set_max_write_buffer_number(options, family->write_buffers_max);
    rocksdb_options_set_min_write_buffer_number_to_merge(options, family->write_buffers_merge);
    rocksdb_options_set_compression(options, compressions[family->compression]);
    rocksdb_options_set_target_file_size_base(options, family->target_file_bytes);
    rocksdb_options_set_max_bytes_for_level_base(options, family->level_base_bytes);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, family->dynamic_levels);
    rocksdb_options_set_level0_file_num_compaction_trigger(options, family->level0_files);
    /* Blocks of RocksDB's default size (1 MB) count in full for a memtable that holds one key: with
     * a common bound near (families x 1 MB) it flushes without end. */
    size_t arena = family->write_buffer_bytes / 64;
    arena = arena < 16 * 1024 ? 16 * 1024 : arena;
    rocksdb_options_set_arena_block_size(options, arena > 1024 * 1024 ? 1024 * 1024 : arena);
    set_table(options, family, cache);
}

/* RocksDB 7.8 asserts in its own log's writer on the second line after a full disk: the process
 * would die where it should wait (9.10 is well). Only header lines, written while opening, remain.
 */
static int info_log_level(const struct fcap_store_settings *settings)
{
#ifdef FCAP_ROCKSDB_LOG_OUTLIVES_FULL_DISK
    return settings->info_log_level;
#else
    (void)settings;
    return LOG_HEADERS_ONLY;
#endif
}

static void set_database(rocksdb_options_t *options, const struct fcap_store_settings *settings,
                         int open_files_max)
{
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_create_missing_column_families(options, 1);
    rocksdb_options_set_db_write_buffer_size(options, settings->write_buffers_bytes);
    rocksdb_options_set_atomic_flush(options, !settings->wal);
    rocksdb_options_set_max_total_wal_size(options, settings->wal_bytes_max);
    rocksdb_options_set_max_background_jobs(options, settings->background_jobs);
    rocksdb_options_set_max_open_files(options, open_files_max);
    rocksdb_options_set_use_direct_reads(options, settings->direct_reads);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(
        options, settings->direct_flush_and_compaction);
    rocksdb_options_set_bytes_per_sync(options, settings->bytes_per_sync);
    rocksdb_options_set_wal_bytes_per_sync(options, settings->wal_bytes_per_sync);
    rocksdb_options_set_info_log_level(options, info_log_level(settings));
    rocksdb_options_set_max_log_file_size(options, settings->info_log_bytes_max);
    rocksdb_options_set_keep_log_file_num(options, (size_t)settings->info_log_files_max);
    rocksdb_options_set_is_fd_close_on_exec(options, 1);
    /* One writer thread: the concurrent memtable only costs. */
    rocksdb_options_set_allow_concurrent_memtable_write(options, 0);
    if (settings->statistics) {
        rocksdb_options_enable_statistics(options);
    }
    if (settings->rate_limit_bytes_per_second > 0) {
        rocksdb_ratelimiter_t *limiter = rocksdb_ratelimiter_create(
            (int64_t)settings->rate_limit_bytes_per_second, 100 * 1000, 10);
        rocksdb_options_set_ratelimiter(options, limiter);
        rocksdb_ratelimiter_destroy(limiter); /* The options share it. */
    }
}

/* Applies options as text on top; replaces *options. */
static enum fcap_status apply_text(rocksdb_options_t **options, const char *raw, const char *name,
                                   struct fcap_error *error)
{
    char *text = NULL;
    rocksdb_options_t *changed = rocksdb_options_create();
    rocksdb_get_options_from_string(*options, raw, changed, &text);
    if (text != NULL) {
        enum fcap_status status =
            fcap_error_set(error, FCAP_CONFIG, "%s: RocksDB refuses it: %s", name, text);
        rocksdb_free(text);
        rocksdb_options_destroy(changed);
        return status;
    }
    rocksdb_options_destroy(*options);
    *options = changed;
    return FCAP_OK;
}

/* The same for raw options of the configuration. */
static enum fcap_status apply_raw(rocksdb_options_t **options, const char *raw, const char *name,
                                  struct fcap_error *error)
{
    if (raw == NULL || raw[0] == '\0') {
        return FCAP_OK;
    }
    enum fcap_status status = store_raw_options_check(raw, error);
    if (status != FCAP_OK) {
        fcap_error_prefix(error, name);
        return status;
    }
    return apply_text(options, raw, name, error);
}

/* What may not be set while the log is off, unless to the value at which it does nothing. */
static enum fcap_status check_raw_without_log(const char *raw, struct fcap_error *error)
{
    static const struct {
        const char *name;
        const char *idle;
        const char *why;
    } refused[] = {
        {"avoid_flush_during_shutdown", "false",
         "every stop would lose the commits since the last flush"},
        {"recycle_log_file_num", "0", "RocksDB ignores it, or takes no commit"},
    };
    struct fcap_bytes name;
    struct fcap_bytes value;
    while (raw != NULL && store_raw_options_next(&raw, &name, &value)) {
        for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
            if (fcap_bytes_equal(name, fcap_bytes_of(refused[i].name)) &&
                !fcap_bytes_equal(value, fcap_bytes_of(refused[i].idle))) {
                return fcap_error_set(error, FCAP_CONFIG,
                                      "rocksdb.options: %s: with wal: off %s; remove it",
                                      refused[i].name, refused[i].why);
            }
        }
    }
    return FCAP_OK;
}

static enum fcap_status check_settings(const struct fcap_store_settings *settings,
                                       struct fcap_error *error)
{
    enum fcap_status status =
        settings->wal ? FCAP_OK : check_raw_without_log(settings->options, error);
    if (status != FCAP_OK) {
        return status;
    }
    if (!settings->wal && settings->sync == FCAP_STORE_SYNC_COMMIT) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "sync: commit needs wal: on (without the log a sync is a flush of "
                              "everything); use wal: on, or sync: interval");
    }
    if (settings->sync == FCAP_STORE_SYNC_INTERVAL && settings->sync_interval_ms <= 0) {
        return fcap_error_set(error, FCAP_CONFIG, "sync interval: must be at least 1 ms");
    }
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        const struct fcap_store_family_settings *family = &settings->families[i];
        if (!settings->wal && family->write_buffers_merge > 1) {
            return fcap_error_set(error, FCAP_CONFIG,
                                  "family %s: write buffers to merge: with wal: off RocksDB merges "
                                  "none; set 1",
                                  fcap_family_name((enum fcap_family)i));
        }
        if (family->write_buffers_merge >= family->write_buffers_max) {
            return fcap_error_set(error, FCAP_CONFIG,
                                  "family %s: write buffers to merge must be less than the write "
                                  "buffers (%d)",
                                  fcap_family_name((enum fcap_family)i), family->write_buffers_max);
        }
    }
    return FCAP_OK;
}

/* Memtables that RocksDB asserts about (Debian's builds have asserts on) or enlarges in silence. */
static enum fcap_status check_memtable(rocksdb_options_t *options, const char *name,
                                       struct fcap_error *error)
{
    size_t buffer = rocksdb_options_get_write_buffer_size(options);
    size_t arena = rocksdb_options_get_arena_block_size(options);
    if (buffer < 64 * 1024) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "family %s: write_buffer_size is %zu, RocksDB needs at least 64 KiB",
                              name, buffer);
    }
    if (arena > buffer / 4 || (arena > 0 && arena < 4096)) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "family %s: arena_block_size is %zu, it must be from 4096 to a "
                              "quarter of write_buffer_size (%zu)",
                              name, arena, buffer);
    }
    return FCAP_OK;
}

enum fcap_status store_options_make(const struct fcap_store_settings *settings, bool is_read_only,
                                    struct store_options *ret_options, struct fcap_error *error)
{
    struct store_options options = {
        .open_files_max = is_read_only ? -1 : bounded_open_files(settings->open_files_max)};
    enum fcap_status status = check_settings(settings, error);
    if (status == FCAP_OK && !is_read_only) {
        status = check_open_files(error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    options.cache = rocksdb_cache_create_lru(settings->block_cache_bytes);
    options.database = rocksdb_options_create();
    set_database(options.database, settings, options.open_files_max);
    status = apply_raw(&options.database, settings->options, "rocksdb.options", error);
    for (size_t i = 0; status == FCAP_OK && i < FCAP_FAMILY_COUNT; i++) {
        const char *name = fcap_family_name((enum fcap_family)i);
        options.families[i] = rocksdb_options_create();
        set_family(options.families[i], &settings->families[i], options.cache);
        if (i == FCAP_FAMILY_USERS || i == FCAP_FAMILY_ADS) {
            status = apply_text(&options.families[i], STORE_INSERT_HINT, name, error);
        }
        if (status == FCAP_OK) {
            status = apply_raw(&options.families[i], settings->options, "rocksdb.options", error);
        }
        if (status == FCAP_OK) {
            status = apply_raw(&options.families[i], settings->families[i].options, name, error);
        }
        if (status == FCAP_OK) {
            status = check_memtable(options.families[i], name, error);
        }
    }
    if (status == FCAP_OK) {
        /* The database's own object carries family options that nobody uses; it must pass too. */
        status = check_memtable(options.database, "default", error);
    }
    if (status != FCAP_OK) {
        store_options_done(&options);
        return status;
    }
    *ret_options = options;
    return FCAP_OK;
}

void store_options_done(struct store_options *options)
{
    if (options->database != NULL) {
        rocksdb_options_destroy(options->database);
    }
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        if (options->families[i] != NULL) {
            rocksdb_options_destroy(options->families[i]);
        }
    }
    if (options->cache != NULL) {
        rocksdb_cache_destroy(options->cache);
    }
    *options = (struct store_options){0};
}
