/* The configuration: one YAML file, `--set key=value`, and the defaults of one table of keys.
 *
 * Every key is one line of the table in src/adapters/config_table.c; defaults, validation, the
 * sample (config/fcapd.yaml), the reference (docs/CONFIG.md) and the print of what is in force all
 * come from it. A value is in force exactly when fcap_config_load() gives FCAP_OK; anything that
 * the table does not know is an error, never ignored. Environment variables are read only where
 * the file says `${NAME}`. Thread rule: the configuration never changes after the load, so every
 * thread may read it; loading itself belongs to one thread (it reads the environment). */
#ifndef FCAP_CONFIG_H
#define FCAP_CONFIG_H

#include "fcap/bytes.h"
#include "fcap/decode.h"
#include "fcap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FCAP_CONFIG_WINDOWS_MAX     16
#define FCAP_CONFIG_WINDOW_NAME_MAX 32 /* bytes, without the NUL */
/* Problems kept in a report; further ones are only counted. */
#define FCAP_CONFIG_PROBLEMS_MAX 100

/* --- the values ---------------------------------------------------------------------------- */

struct fcap_config_window {
    char name[FCAP_CONFIG_WINDOW_NAME_MAX + 1]; /* [A-Za-z0-9_-]+, unique */
    int64_t length_ms;
};

struct fcap_config_strings {
    const char *const *items;
    size_t count;
};

struct fcap_config_pair {
    const char *name;
    const char *value;
    bool is_secret; /* never print the value */
};

struct fcap_config_map {
    const struct fcap_config_pair *pairs; /* in the order of the file, then of --set */
    size_t count;
};

enum fcap_config_framing {
    FCAP_CONFIG_FRAMING_NONE,
    FCAP_CONFIG_FRAMING_REGISTRY,
};

enum fcap_config_start {
    FCAP_CONFIG_START_LOOKBACK,
    FCAP_CONFIG_START_EARLIEST,
    FCAP_CONFIG_START_LATEST,
};
enum fcap_config_keyed { FCAP_CONFIG_KEYED_CHECK, FCAP_CONFIG_KEYED_ASSUME };
enum fcap_config_letters { FCAP_CONFIG_LETTERS_STALL, FCAP_CONFIG_LETTERS_DROP };
enum fcap_config_degraded { FCAP_CONFIG_DEGRADED_REFUSE, FCAP_CONFIG_DEGRADED_ALLOW };
enum fcap_config_sync {
    FCAP_CONFIG_SYNC_NEVER,
    FCAP_CONFIG_SYNC_INTERVAL,
    FCAP_CONFIG_SYNC_COMMIT,
};
enum fcap_config_incomplete { FCAP_CONFIG_INCOMPLETE_HOLD, FCAP_CONFIG_INCOMPLETE_SERVE };
enum fcap_config_gap { FCAP_CONFIG_GAP_DEGRADE, FCAP_CONFIG_GAP_STOP };
enum fcap_config_compression {
    FCAP_CONFIG_COMPRESSION_NONE,
    FCAP_CONFIG_COMPRESSION_LZ4,
    FCAP_CONFIG_COMPRESSION_ZSTD,
};
enum fcap_config_log_format { FCAP_CONFIG_LOG_TEXT, FCAP_CONFIG_LOG_JSON };
enum fcap_config_log_level {
    FCAP_CONFIG_LOG_ERROR,
    FCAP_CONFIG_LOG_WARN,
    FCAP_CONFIG_LOG_INFO,
    FCAP_CONFIG_LOG_DEBUG,
};

/* RocksDB options of one column family; the members bear RocksDB's own names. */
struct fcap_config_family {
    int64_t write_buffer_size; /* bytes */
    int64_t max_write_buffer_number;
    int64_t min_write_buffer_number_to_merge;
    int64_t block_size; /* bytes */
    int64_t bloom_bits; /* bits a key; 0: no filter */
    bool partition_filters;
    int64_t target_file_size_base;    /* bytes */
    int64_t max_bytes_for_level_base; /* bytes */
    bool level_compaction_dynamic_level_bytes;
    int compression;     /* enum fcap_config_compression */
    const char *options; /* raw option string, applied last; NULL: none */
};

struct fcap_config_origin;
struct fcap_config_memory;

/* What a thread that sends or reads files of snapshots holds: a piece that it moves, and one that
 * is compared. */
#define FCAP_CONFIG_TRANSFER_BYTES (INT64_C(2) << 20)

/* What is in force. Strings are owned by the configuration and valid until fcap_config_done();
 * "optional" ones are NULL when absent. Every `auto` has been replaced by its value. A choice is
 * an int that holds the enum named beside it. */
struct fcap_config {
    const char *profile;
    const char *instance;
    int64_t workers;
    struct fcap_config_window windows[FCAP_CONFIG_WINDOWS_MAX]; /* in the order of the file */
    size_t windows_count;
    int windows_incomplete; /* enum fcap_config_incomplete */
    int on_gap;             /* enum fcap_config_gap */
    struct {
        const char *brokers;
        const char *topic;
        const char *group;
        const char *progress_group;
        const char *instance_id; /* optional: prefix of the static member ids */
        int start;               /* enum fcap_config_start */
        int keyed;               /* enum fcap_config_keyed */
        int64_t session_timeout_ms;
        int64_t stall_timeout_ms;
        int64_t producer_refresh_ms;
        const char *dead_letter_topic; /* optional */
        int dead_letter_policy;        /* enum fcap_config_letters */
        struct fcap_config_map librdkafka;
    } kafka;
    struct {
        const char *user;
        const char *ad;
        const char *time;
        int time_unit;            /* enum fcap_time_format */
        int framing;              /* enum fcap_config_framing */
        const char *id;           /* optional */
        const char *filter_field; /* optional; present iff filter_values is not empty */
        struct fcap_config_strings filter_values;
        struct fcap_config_strings ignore_users;
    } event;
    struct {
        const char *host; /* means nothing when `socket` is present */
        int64_t port;
        const char *socket; /* optional */
        int64_t db;
        const char *user;     /* optional */
        const char *password; /* optional; secret */
        const char *key;
        int64_t connect_timeout_ms;
        int64_t command_timeout_ms;
        int64_t send_buffer_bytes;
        int degraded; /* enum fcap_config_degraded */
    } redis;
    struct {
        const char *directory;
    } state;
    struct {
        int wal;  /* 0: off, 1: on */
        int sync; /* enum fcap_config_sync */
        int64_t sync_interval_ms;
    } durability;
    struct {
        const char *directory; /* optional; NULL: no checkpoints */
        bool must_exist;
        int64_t interval_ms;
        int64_t min_pause_ms;
        int64_t retain;
        int64_t queue_bytes;
        int64_t scrub_interval_ms;        /* 0: never */
        int64_t scrub_rate_limit_bytes;   /* a second */
        int64_t restore_rate_limit_bytes; /* a second; 0: none */
    } checkpoint;
    struct {
        int64_t interval_ms;
        int64_t transfer_threads;
        int64_t rate_limit_bytes; /* a second; 0: none */
    } materialization;
    struct {
        int64_t interval_ms;
        int64_t events;
    } commit;
    struct {
        int64_t bucket_ms;
    } timers;
    struct {
        int64_t budget_bytes;
        int64_t record_cache_bytes;  /* decoded user records */
        int64_t block_cache_bytes;   /* RocksDB blocks, index and filters */
        int64_t write_buffers_bytes; /* RocksDB db_write_buffer_size */
        int64_t kafka_queues_bytes;  /* librdkafka's queues of all partitions together */
    } memory;
    struct {
        int64_t max_background_jobs;
        int64_t max_open_files; /* -1: as many as allowed */
        bool use_direct_reads;
        bool use_direct_io_for_flush_and_compaction;
        int64_t max_total_wal_size; /* bytes */
        const char *options;        /* raw DB option string, applied last; optional */
        struct fcap_config_family users;
        struct fcap_config_family timers;
        struct fcap_config_family other; /* ads and meta */
    } rocksdb;
    struct {
        int64_t user_id_bytes;
        int64_t ad_id_bytes;
        int64_t ads_per_user;
        int64_t value_bytes;
        int64_t record_bytes;
        int64_t max_future_skew_ms;
    } limits;
    struct {
        const char *listen;     /* "host:port" or "[v6]:port"; NULL: off */
        const char *token_file; /* optional */
    } http;
    struct {
        int format; /* enum fcap_config_log_format */
        int level;  /* enum fcap_config_log_level */
    } log;
    struct {
        int64_t deadline_ms;
    } shutdown;

    const char *path;                   /* as given to load; NULL when there was no file */
    struct fcap_config_origin *origins; /* for print_effective: one for each key of the table */
    struct fcap_config_memory *owned;   /* everything that the pointers above point to */
};

/* --- loading ------------------------------------------------------------------------------- */

/* One `--set key=value` of the command line. Borrowed during the load. A list takes items
 * separated by commas; an entry of a map is `kafka.librdkafka.<property>=<text>`. */
struct fcap_config_set {
    const char *key;
    const char *value;
};

enum fcap_config_severity {
    FCAP_CONFIG_WARNING, /* usable, but probably not what is wanted */
    FCAP_CONFIG_ERROR,   /* the configuration cannot be used */
};

struct fcap_config_problem {
    enum fcap_config_severity severity;
    char where[320]; /* "file:line:column", or "--set key" */
    int line;        /* 1-based; 0 when not in the file */
    int column;      /* 1-based; 0 when not in the file */
    char text[512];  /* one line; names the key; never holds a secret */
};

/* Everything that was found, in the order of the file. Warnings alone leave the load FCAP_OK. */
struct fcap_config_report {
    struct fcap_config_problem *problems; /* owned; free with fcap_config_report_done() */
    size_t count;
    size_t errors;   /* all errors, also those that found no room */
    size_t warnings; /* all warnings, also those that found no room */
};

/* Splits "key=value" at the first '='; false without a key or an '='. The copy of the key goes to
 * `key` (NUL-terminated, cut never: false when it does not fit); ret_set borrows both. */
bool fcap_config_set_parse(const char *argument, char *key, size_t key_size,
                           struct fcap_config_set *ret_set);

/* Reads the file at `path` (a regular file of at most 1 MiB; NULL: no file, defaults and sets
 * only), applies the sets over it, fills what is absent and checks everything; all problems are
 * reported together. *ret_report is always written and is the caller's to free. *ret_config is
 * written only on FCAP_OK and is the caller's to give to fcap_config_done(). FATAL: CONFIG (the
 * process exits with 78). Never blocks on a FIFO; memory is bounded whatever the file holds. */
enum fcap_status fcap_config_load(const char *path, const struct fcap_config_set *sets,
                                  size_t set_count, struct fcap_config *ret_config,
                                  struct fcap_config_report *ret_report) FCAP_MUST_USE;

/* The same for YAML in memory; `name` stands for the file's path in problems. */
enum fcap_status fcap_config_load_bytes(const char *name, struct fcap_bytes yaml,
                                        const struct fcap_config_set *sets, size_t set_count,
                                        struct fcap_config *ret_config,
                                        struct fcap_config_report *ret_report) FCAP_MUST_USE;

/* Frees what the configuration owns and zeroes it (secrets are wiped). NULL is fine. */
void fcap_config_done(struct fcap_config *config);

/* --- printing ------------------------------------------------------------------------------ */

/* One line for each problem: "where: text", warnings as "where: warning: text"; at the end how many
 * found no room. */
void fcap_config_report_print(FILE *file, const struct fcap_config_report *report);

/* Frees and zeroes. NULL is fine. */
void fcap_config_report_done(struct fcap_config_report *report);

/* Every key as YAML would write it, and where its value comes from: default, file:line, --set.
 * Secrets appear as ***, whatever their source. */
void fcap_config_print_effective(FILE *file, const struct fcap_config *config);

/* docs/CONFIG.md and config/fcapd.yaml, from the table. Pure. */
void fcap_config_print_docs(FILE *file);
void fcap_config_print_sample(FILE *file);

#endif
