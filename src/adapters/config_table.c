/* One line for each key. Order is the order of the sample and of the reference; the keys of a
 * section stand together. */
#include "config_internal.h"

#include <stddef.h>

#define AT(member)  offsetof(struct fcap_config, member)
#define KIB         INT64_C(1024)
#define MIB         (1024 * KIB)
#define GIB         (1024 * MIB)
#define TIB         (1024 * GIB)
#define SECOND      INT64_C(1000)
#define MINUTE      (60 * SECOND)
#define HOUR        (60 * MINUTE)
#define DAY         (24 * HOUR)
#define PATH_BYTES  4000
#define COMPRESSION "none|lz4|zstd"

#define RESTART   FCAP_CONFIG_RESTART
#define NEW_STATE FCAP_CONFIG_NEW_STATE
#define FIRST     FCAP_CONFIG_FIRST
#define MANDATORY FCAP_CONFIG_MANDATORY
#define OPTIONAL  FCAP_CONFIG_OPTIONAL
#define COMPUTED  FCAP_CONFIG_COMPUTED
#define SECRET    FCAP_CONFIG_SECRET

/* clang-format off */
#define NUMBER(name, type, member, min, max, value, doc) \
    {name, FCAP_CONFIG_##type, AT(member), min, max, NULL, value, 0, RESTART, NULL, doc}
#define AUTO(name, type, member, min, max, effect, doc) \
    {name, FCAP_CONFIG_##type, AT(member), min, max, "auto", "auto", 0, effect, NULL, doc}
#define BOOLEAN(name, member, value, doc) \
    {name, FCAP_CONFIG_BOOLEAN, AT(member), 0, 0, NULL, value, 0, RESTART, NULL, doc}
#define CHOICE(name, member, words, value, doc) \
    {name, FCAP_CONFIG_CHOICE, AT(member), 0, 0, words, value, 0, RESTART, NULL, doc}
#define TEXT(name, member, max, value, flags, format, doc) \
    {name, FCAP_CONFIG_TEXT, AT(member), 1, max, NULL, value, flags, RESTART, \
     fcap_config_format_##format, doc}
#define ANYTEXT(name, member, max, value, flags, doc) \
    {name, FCAP_CONFIG_TEXT, AT(member), 1, max, NULL, value, flags, RESTART, NULL, doc}
#define LIST(name, member, items, bytes, doc) \
    {name, FCAP_CONFIG_LIST, AT(member), items, bytes, NULL, NULL, OPTIONAL, RESTART, NULL, doc}

/* The options of one group of column families. */
#define FAMILY(name, member, buffer, buffers, merge, block, bloom, parts, file, level, packed, raw)\
    NUMBER("rocksdb." name ".write_buffer_size", SIZE, rocksdb.member.write_buffer_size,          \
           64 * KIB, 4 * GIB, buffer,                                                             \
           "Size at which one write buffer is flushed to an SST file."),                          \
    NUMBER("rocksdb." name ".max_write_buffer_number", INTEGER,                                   \
           rocksdb.member.max_write_buffer_number, 2, 32, buffers,                                \
           "Write buffers, full ones included, before writes stall."),                            \
    NUMBER("rocksdb." name ".min_write_buffer_number_to_merge", INTEGER,                          \
           rocksdb.member.min_write_buffer_number_to_merge, 1, 16, merge,                         \
           "Full write buffers that are merged into one flush."),                                 \
    NUMBER("rocksdb." name ".block_size", SIZE, rocksdb.member.block_size, KIB, 4 * MIB, block,   \
           "Size of a data block, the unit of a read."),                                          \
    NUMBER("rocksdb." name ".bloom_bits", INTEGER, rocksdb.member.bloom_bits, 0, 32, bloom,       \
           "Bits a key of the Bloom filter; 0: no filter."),                                      \
    BOOLEAN("rocksdb." name ".partition_filters", rocksdb.member.partition_filters, parts,        \
            "Cut index and filter into blocks, so that a miss reads kilobytes, not the whole."),  \
    NUMBER("rocksdb." name ".target_file_size_base", SIZE, rocksdb.member.target_file_size_base,  \
           64 * KIB, 16 * GIB, file,                                                              \
           "Size of an SST file."),                                                               \
    NUMBER("rocksdb." name ".max_bytes_for_level_base", SIZE,                                     \
           rocksdb.member.max_bytes_for_level_base, 64 * KIB, TIB, level,                         \
           "Size of the first level; each further factor of 10 in state adds a level."),          \
    BOOLEAN("rocksdb." name ".level_compaction_dynamic_level_bytes",                              \
            rocksdb.member.level_compaction_dynamic_level_bytes, "true",                          \
            "Size the levels from the last one upwards, so that small ones are not used."),       \
    CHOICE("rocksdb." name ".compression", rocksdb.member.compression, COMPRESSION, packed,       \
           "Compression of SST files."),                                                          \
    ANYTEXT("rocksdb." name ".options", rocksdb.member.options, 4096, NULL, OPTIONAL,             \
            "Further options of " raw " as a RocksDB option string; applied last.")

const struct fcap_config_key fcap_config_keys[] = {
    TEXT("profile", profile, 64, "default", 0, name,
         "Name of this deployment; stands in Redis keys, group ids and connection names."),
    TEXT("instance", instance, 64, "host name", COMPUTED, name,
         "Name of this process among those of the profile; must be unique."),
    NUMBER("workers", INTEGER, workers, 1, 64, "1",
           "Worker threads: each one member of the consumer group with its own Redis connection."),
    {"windows", FCAP_CONFIG_WINDOWS, AT(windows), 1, FCAP_CONFIG_WINDOWS_MAX, NULL,
     "[1d, 3d, 7d]", MANDATORY, RESTART, NULL,
     "Sliding windows, 1s to 365d each: lengths, or entries {name: day, length: 1d}. The name "
     "(default: the length as written) stands in the Redis key."},
    CHOICE("windows_incomplete", windows_incomplete, "hold|serve", "hold",
           "A window without its whole history: hold its keys back, or serve them; ready in fc:meta tells."),
    CHOICE("on_gap", on_gap, "degrade|stop", "degrade",
           "When records are gone that were never read: go on and say so, or stop."),

    TEXT("kafka.brokers", kafka.brokers, 4096, "localhost:9092", MANDATORY, brokers,
         "Brokers to ask first: host:port, separated by commas."),
    {"kafka.topic", FCAP_CONFIG_TEXT, AT(kafka.topic), 1, 249, NULL, "impressions", MANDATORY,
     NEW_STATE, fcap_config_format_topic,
     "The one topic of impressions, keyed by user."},
    ANYTEXT("kafka.group", kafka.group, 249, "fcapd-<profile>", COMPUTED,
            "Consumer group; all instances of a profile share it."),
    ANYTEXT("kafka.progress_group", kafka.progress_group, 249, "<kafka.group>-progress", COMPUTED,
            "Group under which offsets are published for lag dashboards; never the consuming one."),
    TEXT("kafka.instance_id", kafka.instance_id, 200, NULL, OPTIONAL, name,
         "Prefix of the static member ids <prefix>-<worker>; absent: dynamic membership."),
    {"kafka.start", FCAP_CONFIG_CHOICE, AT(kafka.start), 0, 0, "lookback|earliest|latest",
     "lookback", 0, FIRST, NULL,
     "Where an empty state begins: now minus the longest window, the log's start, or its end."},
    CHOICE("kafka.keyed", kafka.keyed, "check|assume", "check",
           "Refuse a topic that is found not to be keyed by user, or assume that it is."),
    NUMBER("kafka.session_timeout", DURATION, kafka.session_timeout_ms, SECOND, 5 * MINUTE, "45s",
           "After this silence the group gives a member's partitions away; also bounds sending."),
    NUMBER("kafka.stall_timeout", DURATION, kafka.stall_timeout_ms, SECOND, HOUR, "30s",
           "A partition whose end is ahead and which is not fetched for so long is assigned anew."),
    NUMBER("kafka.producer_refresh", DURATION, kafka.producer_refresh_ms, SECOND, DAY, "5m",
           "Within this time all producers know of added partitions (their metadata.max.age.ms)."),
    TEXT("kafka.dead_letter.topic", kafka.dead_letter_topic, 249, NULL, OPTIONAL, topic,
         "Topic for refused records, with reason and origin in headers; absent: only counted."),
    CHOICE("kafka.dead_letter.policy", kafka.dead_letter_policy, "stall|drop-counted", "stall",
           "When the dead-letter topic cannot be written: wait for it, or drop and count."),
    {"kafka.librdkafka", FCAP_CONFIG_MAP, AT(kafka.librdkafka), 0, 256, NULL, NULL, OPTIONAL,
     RESTART, NULL,
     "Further librdkafka properties by their own names (security.protocol, sasl.username, ...)."},

    TEXT("event.user", event.user, 512, "user_id", 0, user_path,
         "Field of the user id: keys joined by dots, a backslash before a dot that is part of a "
         "key; @key: the record's key."),
    TEXT("event.ad", event.ad, 512, "ad_id", 0, path, "Field of the ad id."),
    TEXT("event.time", event.time, 512, "ts", 0, time_path,
         "Field of the event time; @timestamp: the record's timestamp."),
    CHOICE("event.time_unit", event.time_unit, "s|ms|us|ns|iso8601", "ms",
           "How the event time is written; means nothing with @timestamp."),
    CHOICE("event.framing", event.framing, "none|schema-registry", "none",
           "What stands before the JSON: nothing, or 00 and a schema id of 4 bytes, as the "
           "serializers of a schema registry write it; plain values count in both cases."),
    TEXT("event.id", event.id, 512, NULL, OPTIONAL, path,
         "Field of the event id; with it an event sent twice counts once."),
    TEXT("event.filter.field", event.filter_field, 512, NULL, OPTIONAL, path,
         "Only records whose field equals one of event.filter.any_of are events."),
    LIST("event.filter.any_of", event.filter_values, 64, 1024, "The values that pass the filter."),
    LIST("event.ignore_users", event.ignore_users, 1000, 4096,
         "User ids that stand for nobody (the id of zeros, say); their events are only counted."),

    TEXT("redis.host", redis.host, 255, "127.0.0.1", 0, host, "Redis server, 6.2 or newer."),
    NUMBER("redis.port", INTEGER, redis.port, 1, 65535, "6379", "Its TCP port."),
    TEXT("redis.socket", redis.socket, 107, NULL, OPTIONAL, socket,
         "Path of a unix socket, instead of host and port."),
    NUMBER("redis.db", INTEGER, redis.db, 0, 65535, "0", "Database number."),
    ANYTEXT("redis.user", redis.user, 512, NULL, OPTIONAL, "ACL user; needs redis.password."),
    ANYTEXT("redis.password", redis.password, 4096, NULL, OPTIONAL | SECRET,
            "Password; write ${NAME} or ${file:/path} rather than the password itself."),
    TEXT("redis.key", redis.key, 512, "fc:{%u}:%w", 0, redis_key,
         "Pattern of the keys: %u user, %w window, %p profile. The hash tag {%u} keeps the windows "
         "of one user in one cluster slot."),
    NUMBER("redis.connect_timeout", DURATION, redis.connect_timeout_ms, 10, 5 * MINUTE, "2s",
           "How long one attempt to connect may take."),
    NUMBER("redis.command_timeout", DURATION, redis.command_timeout_ms, 10, 5 * MINUTE, "5s",
           "A connection that is silent for so long while answers are due is given up."),
    NUMBER("redis.send_buffer", SIZE, redis.send_buffer_bytes, 64 * KIB, GIB, "4MiB",
           "Commands of one worker on their way; more wait in the pipeline."),
    CHOICE("redis.degraded", redis.degraded, "refuse|allow", "refuse",
           "When account or server lack a command that a promise needs: wait for it, or go on."),

    ANYTEXT("state.directory", state.directory, PATH_BYTES, "/var/lib/fcapd", 0,
            "Directory of the RocksDB state; belongs to one process."),

    CHOICE("durability.wal", durability.wal, "off|on", "on",
           "Write-ahead log. Off writes half the bytes, and a crash reads more of Kafka again."),
    CHOICE("durability.sync", durability.sync, "never|interval|commit", "interval",
           "When the log is forced to disk; only a power failure makes the difference."),
    NUMBER("durability.sync_interval", DURATION, durability.sync_interval_ms, 10, 10 * MINUTE,
           "1s",
           "Time between two syncs with durability.sync: interval."),
    ANYTEXT("checkpoint.directory", checkpoint.directory, PATH_BYTES, NULL, OPTIONAL,
            "Where checkpoints are kept, on a volume that outlives the machine; mount it before fcapd starts. Instances may share it. Absent: there are none."),
    BOOLEAN("checkpoint.must_exist", checkpoint.must_exist, "false",
            "True: the directory is never made, so that a volume which is not mounted is not taken for an empty one; set it when the first start has made it."),
    NUMBER("checkpoint.interval", DURATION, checkpoint.interval_ms, SECOND, DAY, "2m",
           "From one checkpoint to the next; what changed since the last one is written."),
    NUMBER("checkpoint.min_pause", DURATION, checkpoint.min_pause_ms, 0, DAY, "30s",
           "Between the end of a checkpoint and the next one, however long it took."),
    NUMBER("checkpoint.retain", INTEGER, checkpoint.retain, 1, 100, "2",
           "Snapshots that are kept, with all changes since the oldest of them."),
    AUTO("checkpoint.queue", SIZE, checkpoint.queue_bytes, MIB, 16 * GIB, RESTART,
         "Changes that may wait for a slow volume, within memory.budget; more are mended by a snapshot; auto: 64MiB, at most a 16th of memory.budget."),
    NUMBER("checkpoint.scrub_interval", DURATION, checkpoint.scrub_interval_ms, 0, 365 * DAY, "7d",
           "Each kept object is read back and compared once in so long; a damaged one is replaced. 0s: never."),
    NUMBER("checkpoint.scrub_rate_limit", SIZE, checkpoint.scrub_rate_limit_bytes, KIB, TIB, "8MiB",
           "Bytes a second that are read back at most."),
    NUMBER("checkpoint.restore_rate_limit", SIZE, checkpoint.restore_rate_limit_bytes, 0, TIB, "0",
           "Bytes a second that a restore reads of a snapshot, with materialization.transfer_threads; 0: no limit."),
    NUMBER("materialization.interval", DURATION, materialization.interval_ms, 10 * SECOND, 7 * DAY, "10m",
           "From one snapshot of the state's files to the next; only new files are sent."),
    NUMBER("materialization.transfer_threads", INTEGER, materialization.transfer_threads, 1, 64, "2",
           "Files that are sent at a time."),
    NUMBER("materialization.rate_limit", SIZE, materialization.rate_limit_bytes, 0, TIB, "0",
           "Bytes a second of all of them together; 0: no limit."),
    NUMBER("commit.interval", DURATION, commit.interval_ms, 10, 5 * MINUTE, "1s",
           "Longest time between two commits; longer costs less and repeats more after a crash."),
    NUMBER("commit.events", INTEGER, commit.events, 1, 10000000, "100000",
           "Events after which a commit is made earlier."),
    AUTO("timers.bucket", DURATION, timers.bucket_ms, 1, DAY, FIRST,
         "Event time that shares one bucket of timers, at most a 16th of the shortest window; "
         "auto: that, or the commit interval if it is less."),

    NUMBER("memory.budget", SIZE, memory.budget_bytes, 64 * MIB, 4 * TIB, "1GiB",
           "Memory of the process; the parts below take nine tenths; 48MiB (of less than 96MiB: half) stay as working room."),
    AUTO("memory.record_cache", SIZE, memory.record_cache_bytes, MIB, 4 * TIB, RESTART,
         "Decoded user records of all workers; auto: 7 parts of 18."),
    AUTO("memory.block_cache", SIZE, memory.block_cache_bytes, MIB, 4 * TIB, RESTART,
         "RocksDB's blocks, indexes and filters; auto: 5 parts of 18."),
    AUTO("memory.write_buffers", SIZE, memory.write_buffers_bytes, MIB, 4 * TIB, RESTART,
         "RocksDB's write buffers of all families (db_write_buffer_size); auto: 4 parts of 18."),
    AUTO("memory.kafka_queues", SIZE, memory.kafka_queues_bytes, MIB, 4 * TIB, RESTART,
         "Records fetched but not read yet, of all partitions; auto: 2 parts of 18."),

    NUMBER("rocksdb.max_background_jobs", INTEGER, rocksdb.max_background_jobs, 1, 64, "2",
           "Threads for flushes and compactions."),
    NUMBER("rocksdb.max_open_files", INTEGER, rocksdb.max_open_files, -1, 1000000, "-1",
           "SST files kept open; -1: as many as the process's limit on open files allows."),
    BOOLEAN("rocksdb.use_direct_reads", rocksdb.use_direct_reads, "false",
            "Read past the page cache, so that memory under a container's limit is predictable."),
    BOOLEAN("rocksdb.use_direct_io_for_flush_and_compaction",
            rocksdb.use_direct_io_for_flush_and_compaction, "false",
            "The same for flushes and compactions; set both or none."),
    NUMBER("rocksdb.max_total_wal_size", SIZE, rocksdb.max_total_wal_size, MIB, TIB, "512MiB",
           "Bound on all log files; beyond it the oldest write buffers are flushed."),
    ANYTEXT("rocksdb.options", rocksdb.options, 4096, NULL, OPTIONAL,
            "Further database options as a RocksDB option string; applied last."),
    FAMILY("users", users, "64MiB", "4", "1", "8KiB", "10", "true", "64MiB", "256MiB", "lz4",
           "the user records"),
    FAMILY("timers", timers, "32MiB", "4", "1", "32KiB", "0", "false", "32MiB", "256MiB", "lz4",
           "the timers"),
    FAMILY("other", other, "4MiB", "4", "1", "8KiB", "10", "true", "64MiB", "256MiB", "lz4",
           "the ad numbers and the bookkeeping"),

    NUMBER("limits.user_id_bytes", INTEGER, limits.user_id_bytes, 1, 4096, "256",
           "Longest user id; a longer one is a malformed record."),
    NUMBER("limits.ad_id_bytes", INTEGER, limits.ad_id_bytes, 1, 4096, "256",
           "Longest ad id; a longer one is a malformed record."),
    NUMBER("limits.ads_per_user", INTEGER, limits.ads_per_user, 1, 100000, "1000",
           "Ads counted for one user at a time; events of further ads are refused and counted."),
    NUMBER("limits.value_bytes", SIZE, limits.value_bytes, KIB, 16 * MIB, "64KiB",
           "Largest Redis value; a longer one is cut and says so."),
    NUMBER("limits.record_bytes", SIZE, limits.record_bytes, KIB, 64 * MIB, "1MiB",
           "Largest Kafka record; a longer one is a malformed record."),
    NUMBER("limits.max_future_skew", DURATION, limits.max_future_skew_ms, 0, HOUR, "5m",
           "How far an event time may lie ahead of Redis TIME and the wall clock."),

    {"http.listen", FCAP_CONFIG_TEXT, AT(http.listen), 1, 300, "off", "127.0.0.1:9187", 0, RESTART,
     fcap_config_format_listen,
     "Address and port of /livez, /readyz, /metrics and /status; off: none."},
    ANYTEXT("http.token_file", http.token_file, PATH_BYTES, NULL, OPTIONAL,
            "File with the bearer token for what changes something or shows a user; absent: these "
            "are off."),
    CHOICE("log.format", log.format, "text|json", "text", "One line of text, or one JSON object."),
    CHOICE("log.level", log.level, "error|warn|info|debug", "info", "Least important line shown."),
    NUMBER("shutdown.deadline", DURATION, shutdown.deadline_ms, SECOND, 10 * MINUTE, "20s",
           "How long draining, committing and leaving may take; then the process ends anyway."),
};
/* clang-format on */

const size_t fcap_config_keys_count = sizeof fcap_config_keys / sizeof fcap_config_keys[0];
