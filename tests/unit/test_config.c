/* The configuration: values of each type, defaults, --set, rules between keys, and that the
 * printed documents and the shipped profiles are what the table says. */
#include "config_fixture.h"

#include <unistd.h>

#define MIB (INT64_C(1024) * 1024)

/* --- defaults ------------------------------------------------------------------------------- */

static void defaults_are_the_documented_ones(void **state)
{
    (void)state;
    struct loaded loaded = assert_accepted(LEAST);
    const struct fcap_config *config = &loaded.config;
    char host[65] = "";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    assert_string_equal(config->profile, "default");
    assert_string_equal(config->instance, host);
    assert_int_equal(config->workers, 1);
    assert_int_equal(config->windows_count, 1);
    assert_string_equal(config->windows[0].name, "1d");
    assert_int_equal(config->windows[0].length_ms, 86400000);
    assert_string_equal(config->kafka.group, "fcapd-default");
    assert_string_equal(config->kafka.progress_group, "fcapd-default-progress");
    assert_null(config->kafka.instance_id);
    assert_int_equal(config->kafka.start, FCAP_CONFIG_START_LOOKBACK);
    assert_int_equal(config->kafka.session_timeout_ms, 45000);
    assert_int_equal(config->kafka.librdkafka.count, 0);
    assert_string_equal(config->event.user, "user_id");
    assert_string_equal(config->event.ad, "ad_id");
    assert_string_equal(config->event.time, "ts");
    assert_int_equal(config->event.time_unit, FCAP_TIME_MILLISECONDS);
    assert_null(config->event.id);
    assert_string_equal(config->redis.key, "fc:{%u}:%w");
    assert_null(config->redis.password);
    assert_int_equal(config->durability.wal, 1);
    assert_int_equal(config->durability.sync, FCAP_CONFIG_SYNC_INTERVAL);
    assert_int_equal(config->commit.interval_ms, 1000);
    assert_int_equal(config->commit.events, 100000);
    assert_int_equal(config->limits.max_future_skew_ms, 300000);
    assert_string_equal(config->http.listen, "127.0.0.1:9187");
    assert_int_equal(config->shutdown.deadline_ms, 20000);
    assert_int_equal(config->rocksdb.users.bloom_bits, 10);
    assert_int_equal(config->rocksdb.timers.bloom_bits, 0);
    assert_int_equal(config->rocksdb.users.compression, FCAP_CONFIG_COMPRESSION_LZ4);
    unload(&loaded);
}

static void computed_defaults_follow_what_they_come_from(void **state)
{
    (void)state;
    struct loaded loaded = assert_accepted(LEAST "profile: days\ncommit: {interval: 10s}\n");
    assert_string_equal(loaded.config.kafka.group, "fcapd-days");
    assert_string_equal(loaded.config.kafka.progress_group, "fcapd-days-progress");
    assert_int_equal(loaded.config.timers.bucket_ms, 10000);
    unload(&loaded);

    loaded = assert_accepted("kafka: {brokers: a, topic: t, group: g}\nwindows: [1m, 2s, 1h]\n");
    assert_string_equal(loaded.config.kafka.progress_group, "g-progress");
    assert_int_equal(loaded.config.timers.bucket_ms, 2000 / 16);
    unload(&loaded);

    loaded = assert_accepted("kafka: {brokers: a, topic: t}\nwindows: [30d, 365d]\n"
                             "commit: {interval: 1m}\ntimers: {bucket: 24h}\n");
    assert_int_equal(loaded.config.timers.bucket_ms, 86400000);
    assert_int_equal(loaded.config.windows[0].length_ms, INT64_C(2592000000));
    unload(&loaded);

    assert_refused(LEAST "timers: {bucket: 90m1}", /* first: not even a duration */
                   "test.yaml:3:18: timers.bucket: `90m1` is not a duration (500ms, 30s, 5m, 1h, "
                   "7d) or auto\n");
    assert_refused(LEAST "timers: {bucket: 91m}",
                   "test.yaml:3:18: timers.bucket: may be at most a 16th of the shortest window: "
                   "90m\n");
    loaded = assert_accepted(LEAST "timers: {bucket: 90m}");
    assert_int_equal(loaded.config.timers.bucket_ms, 90 * 60000);
    unload(&loaded);
}

static void memory_is_shared_out(void **state)
{
    (void)state;
    struct loaded loaded = assert_accepted(LEAST "memory: {budget: 2000MiB}");
    assert_int_equal(loaded.config.memory.record_cache_bytes, 700 * MIB);
    assert_int_equal(loaded.config.memory.block_cache_bytes, 500 * MIB);
    assert_int_equal(loaded.config.memory.write_buffers_bytes, 400 * MIB);
    assert_int_equal(loaded.config.memory.kafka_queues_bytes, 200 * MIB);
    unload(&loaded);

    /* What is given counts; the others share the rest 7 : 2. */
    loaded = assert_accepted(
        LEAST "memory: {budget: 2000MiB, block_cache: 600MiB, write_buffers: 300MiB}");
    assert_int_equal(loaded.config.memory.block_cache_bytes, 600 * MIB);
    assert_int_equal(loaded.config.memory.write_buffers_bytes, 300 * MIB);
    assert_int_equal(loaded.config.memory.record_cache_bytes, 700 * MIB);
    assert_int_equal(loaded.config.memory.kafka_queues_bytes, 200 * MIB);
    unload(&loaded);

    /* A small budget keeps 48 MiB of working room, a very small one half. */
    loaded = load(LEAST "memory: {budget: 128MiB}"); /* With a warning about write buffers. */
    assert_int_equal(loaded.config.memory.record_cache_bytes, 31 * MIB);
    assert_int_equal(loaded.config.memory.kafka_queues_bytes, 8 * MIB);
    unload(&loaded);
    loaded = load(LEAST "memory: {budget: 64MiB}");
    assert_int_equal(loaded.config.memory.record_cache_bytes, 12 * MIB);
    unload(&loaded);

    assert_refused(LEAST "memory: {budget: 2000MiB, block_cache: 1801MiB}",
                   "test.yaml:3:18: memory.budget: record_cache, block_cache, write_buffers and "
                   "kafka_queues may take 1800MiB together; raise the budget or lower them\n");
}

/* --- types ---------------------------------------------------------------------------------- */

static const struct {
    const char *line;
    bool is_good;
    int64_t value; /* of the key that the case is about */
    size_t offset;
} numbers[] = {
#define CASE(member, line, good, value)                                                            \
    {                                                                                              \
        line, good, value, offsetof(struct fcap_config, member)                                    \
    }
    CASE(workers, "workers: 1", true, 1),
    CASE(workers, "workers: '64'", true, 64), /* quotes change no type */
    CASE(workers, "workers: 65", false, 0),
    CASE(workers, "workers: 0", false, 0),
    CASE(workers, "workers: 010", false, 0),
    CASE(workers, "workers: +1", false, 0),
    CASE(workers, "workers: 1.0", false, 0),
    CASE(workers, "workers: 1e1", false, 0),
    CASE(workers, "workers: 0x10", false, 0),
    CASE(workers, "workers: 1 2", false, 0),
    CASE(workers, "workers: ''", false, 0),
    CASE(workers, "workers: 99999999999999999999", false, 0),
    CASE(workers, "workers: [1]", false, 0),
    CASE(workers, "workers: {}", false, 0),
    CASE(workers, "workers:", false, 0),
    CASE(workers, "workers: ~", false, 0),
    CASE(rocksdb.max_open_files, "rocksdb: {max_open_files: -1}", true, -1),
    CASE(rocksdb.max_open_files, "rocksdb: {max_open_files: -2}", false, 0),
    CASE(rocksdb.max_open_files, "rocksdb: {max_open_files: -0}", false, 0),
    CASE(limits.value_bytes, "limits: {value_bytes: 1024}", true, 1024),
    CASE(limits.value_bytes, "limits: {value_bytes: 64KiB}", true, 65536),
    CASE(limits.value_bytes, "limits: {value_bytes: 1MiB}", true, 1048576),
    CASE(memory.budget_bytes, "memory: {budget: 4GiB}", true, 4096 * MIB),
    CASE(memory.budget_bytes, "memory: {budget: 4TiB}", true, 4096 * 1024 * MIB),
    CASE(memory.budget_bytes, "memory: {budget: 4GB}", false, 0),
    CASE(memory.budget_bytes, "memory: {budget: 4G}", false, 0),
    CASE(memory.budget_bytes, "memory: {budget: 4 GiB}", false, 0),
    CASE(memory.budget_bytes, "memory: {budget: 1.5GiB}", false, 0),
    CASE(memory.budget_bytes, "memory: {budget: -1GiB}", false, 0),
    CASE(memory.budget_bytes, "memory: {budget: 9007199254740992TiB}", false, 0),
    CASE(commit.interval_ms, "commit: {interval: 500ms}", true, 500),
    CASE(commit.interval_ms, "commit: {interval: 30s}", true, 30000),
    CASE(commit.interval_ms, "commit: {interval: 5m}", true, 300000),
    CASE(commit.interval_ms, "commit: {interval: 300001ms}", false, 0),
    CASE(commit.interval_ms, "commit: {interval: 9ms}", false, 0),
    CASE(commit.interval_ms, "commit: {interval: 500}", false, 0),
    CASE(commit.interval_ms, "commit: {interval: 1m30s}", false, 0),
    CASE(commit.interval_ms, "commit: {interval: 1S}", false, 0),
    CASE(limits.max_future_skew_ms, "limits: {max_future_skew: 1h}", true, 3600000),
    CASE(limits.max_future_skew_ms, "limits: {max_future_skew: 0ms}", true, 0),
    CASE(limits.max_future_skew_ms, "limits: {max_future_skew: 1d}", false, 0),
    CASE(limits.max_future_skew_ms, "limits: {max_future_skew: 106751991168d}", false, 0),
#undef CASE
};

static void numbers_have_units_and_ranges(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct loaded loaded = load_with(numbers[i].line);
        if ((loaded.status == FCAP_OK) != numbers[i].is_good) {
            fail_msg("%s: status %d", numbers[i].line, (int)loaded.status);
        }
        if (numbers[i].is_good) {
            int64_t value =
                *(const int64_t *)(const void *)((const char *)&loaded.config + numbers[i].offset);
            assert_int_equal(value, numbers[i].value);
        } else {
            assert_int_equal(loaded.report.errors, 1);
            assert_int_equal(loaded.report.problems[0].line, 3);
        }
        unload(&loaded);
    }
}

static void booleans_are_true_and_false_only(void **state)
{
    (void)state;
    static const char *const wrong[] = {"yes", "no", "on", "off", "True", "FALSE", "1", "0", "''"};
    struct loaded loaded = load_with("rocksdb: {use_direct_reads: true, "
                                     "use_direct_io_for_flush_and_compaction: true}");
    assert_int_equal(loaded.status, FCAP_OK);
    assert_true(loaded.config.rocksdb.use_direct_reads);
    unload(&loaded);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char line[128];
        (void)snprintf(line, sizeof line, "rocksdb: {use_direct_reads: %s}", wrong[i]);
        loaded = load_with(line);
        assert_int_equal(loaded.status, FCAP_CONFIG);
        unload(&loaded);
    }
}

static void choices_keep_the_order_of_their_enums(void **state)
{
    (void)state;
    struct loaded loaded =
        assert_accepted("kafka: {brokers: a, topic: t, start: latest, keyed: assume,\n"
                        "  dead_letter: {topic: d, policy: drop-counted}}\n"
                        "windows: [1d]\nwindows_incomplete: serve\non_gap: stop\n"
                        "event: {time_unit: iso8601}\nredis: {degraded: allow}\n"
                        "durability: {sync: commit}\nlog: {format: json, level: debug}\n"
                        "rocksdb: {users: {compression: zstd}, other: {compression: none}}\n");
    const struct fcap_config *config = &loaded.config;
    assert_int_equal(config->kafka.start, FCAP_CONFIG_START_LATEST);
    assert_int_equal(config->kafka.keyed, FCAP_CONFIG_KEYED_ASSUME);
    assert_int_equal(config->kafka.dead_letter_policy, FCAP_CONFIG_LETTERS_DROP);
    assert_int_equal(config->windows_incomplete, FCAP_CONFIG_INCOMPLETE_SERVE);
    assert_int_equal(config->on_gap, FCAP_CONFIG_GAP_STOP);
    assert_int_equal(config->event.time_unit, FCAP_TIME_ISO8601);
    assert_int_equal(config->redis.degraded, FCAP_CONFIG_DEGRADED_ALLOW);
    assert_int_equal(config->durability.sync, FCAP_CONFIG_SYNC_COMMIT);
    assert_int_equal(config->log.format, FCAP_CONFIG_LOG_JSON);
    assert_int_equal(config->log.level, FCAP_CONFIG_LOG_DEBUG);
    assert_int_equal(config->rocksdb.users.compression, FCAP_CONFIG_COMPRESSION_ZSTD);
    assert_int_equal(config->rocksdb.other.compression, FCAP_CONFIG_COMPRESSION_NONE);
    assert_int_equal(config->rocksdb.timers.compression, FCAP_CONFIG_COMPRESSION_LZ4);
    unload(&loaded);
    assert_refused(LEAST "log: {level: INFO}", "test.yaml:3:14: log.level: `INFO` is not one of "
                                               "error|warn|info|debug\n");
}

static void lists_and_maps_keep_their_texts(void **state)
{
    (void)state;
    struct loaded loaded =
        assert_accepted("windows: [1d]\nkafka:\n  brokers: a\n  topic: t\n  librdkafka:\n"
                        "    security.protocol: SASL_SSL\n    sasl.username: 'a,b: #c'\n"
                        "event:\n  filter: {field: t.k, any_of: [view, 'a,b', 'null']}\n"
                        "  ignore_users:\n  - 00000000-0000-0000-0000-000000000000\n");
    const struct fcap_config *config = &loaded.config;
    assert_int_equal(config->kafka.librdkafka.count, 2);
    assert_string_equal(config->kafka.librdkafka.pairs[0].name, "security.protocol");
    assert_string_equal(config->kafka.librdkafka.pairs[0].value, "SASL_SSL");
    assert_string_equal(config->kafka.librdkafka.pairs[1].value, "a,b: #c");
    assert_int_equal(config->event.filter_values.count, 3);
    assert_string_equal(config->event.filter_values.items[1], "a,b");
    assert_string_equal(config->event.filter_values.items[2], "null");
    assert_int_equal(config->event.ignore_users.count, 1);
    unload(&loaded);
    assert_refused(LEAST "event: {ignore_users: u}",
                   "test.yaml:3:23: event.ignore_users: is a single value, must be a list\n");
    assert_refused(LEAST "event: {ignore_users: [a, '', [b]]}",
                   "test.yaml:3:27: event.ignore_users: is empty\n"
                   "test.yaml:3:31: event.ignore_users: is a list, must be a single value\n");
}

static void windows_have_names_and_lengths(void **state)
{
    (void)state;
    struct loaded loaded = assert_accepted("kafka: {brokers: a, topic: t}\nwindows:\n- 90m\n"
                                           "- {name: Day_1-x, length: 24h}\n- length: 1s\n"
                                           "- 365d\n");
    assert_int_equal(loaded.config.windows_count, 4);
    assert_string_equal(loaded.config.windows[0].name, "90m");
    assert_string_equal(loaded.config.windows[1].name, "Day_1-x");
    assert_int_equal(loaded.config.windows[1].length_ms, 86400000);
    assert_string_equal(loaded.config.windows[2].name, "1s");
    assert_int_equal(loaded.config.windows[3].length_ms, INT64_C(31536000000));
    unload(&loaded);

    assert_refused("kafka: {brokers: a, topic: t}\n"
                   "windows: [999ms, 366d, 5, {name: a.b, length: 1h}, {name: x}, [1d],\n"
                   "  {name: 1h, length: 2h}, 1h, {length: 3h, size: 4}]\n",
                   "test.yaml:2:11: windows: `999ms` is out of range; must be 1s to 365d\n"
                   "test.yaml:2:18: windows: `366d` is out of range; must be 1s to 365d\n"
                   "test.yaml:2:24: windows: `5` is not a duration (30s, 5m, 1h, 7d)\n"
                   "test.yaml:2:27: windows: a name must be 1 to 32 of A-Z a-z 0-9 _ -\n"
                   "test.yaml:2:52: windows: the entry lacks its length\n"
                   "test.yaml:2:63: windows: an entry is a length, or {name: ..., length: ...}\n"
                   "test.yaml:3:27: windows: the name `1h` stands twice (number 1 is the first)\n"
                   "test.yaml:3:44: windows: unknown key `size`; an entry has name and length\n");
    /* The engine knows a window by its length. */
    assert_refused("kafka: {brokers: a, topic: t}\nwindows: [1m, 1h, 60s]\n",
                   "test.yaml:2:19: windows: `60s` and `1m` have one length\n");
    assert_refused("kafka: {brokers: a, topic: t}\nwindows: []\n",
                   "test.yaml:2:10: windows: there must be at least one\n");
    assert_refused(
        "kafka: {brokers: a, topic: t}\nwindows: [1s,2s,3s,4s,5s,6s,7s,8s,9s,10s,11s,12s,"
        "13s,14s,15s,16s,17s]\n",
        "test.yaml:2:66: windows: at most 16 are allowed\n");
}

/* --- rules of single texts ------------------------------------------------------------------ */

static const struct {
    const char *line;
    const char *word; /* in the one error; NULL: fine */
} texts[] = {
    {"profile: a.b_c-9", NULL},
    {"profile: 'a b'", "letters, digits"},
    {"profile: 'a:b'", "letters, digits"},
    {"redis: {host: redis.example}", NULL},
    {"redis: {host: '::1'}", NULL},
    {"redis: {host: 'a:6379'}", "key of its own"},
    {"redis: {host: 'a b'}", "host name"},
    {"redis: {host: ''}", "is empty"},
    {"redis: {socket: /run/redis.sock}", NULL},
    {"redis: {socket: /run/redis.sock, port: 1}", "only one of the two"},
    {"redis: {user: u}", "needs redis.password"},
    {"redis: {user: u, password: p}", NULL},
    {"http: {listen: off}", NULL},
    {"http: {listen: '[::1]:9187'}", NULL},
    {"http: {listen: '0.0.0.0:65535'}", NULL},
    {"http: {listen: '0.0.0.0:65536'}", "address:port"},
    {"http: {listen: '[::x]:1'}", "address:port"},
    {"http: {listen: '9187'}", "address:port"},
    {"event: {user: a.b.c}", NULL},
    {"event: {user: '@key'}", NULL},
    {"event: {user: '@timestamp'}", "is not @key"},
    {"event: {time: '@timestamp'}", NULL},
    {"event: {time: '@key'}", "is not @timestamp"},
    {"event: {ad: '@key'}", "begins with @"},
    {"event: {ad: '\\@key'}", NULL},
    {"event: {ad: 'a\\.b'}", NULL},
    {"event: {ad: a..b}", "empty part"},
    {"event: {ad: .a}", "empty part"},
    {"event: {ad: a.}", "empty part"},
    {"event: {ad: 'a\\'}", "ends in a backslash"},
    {"event: {filter: {field: x}}", "at least one value"},
    {"event: {filter: {any_of: [x]}}", "needs event.filter.field"},
    {"durability: {wal: off}", NULL},
    {"durability: {wal: off, sync: never}", NULL},
    {"durability: {wal: off, sync: interval}", "nothing to sync"},
    {"rocksdb: {users: {min_write_buffer_number_to_merge: 4}}", "max_write_buffer_number"},
    {"limits: {value_bytes: 3MiB}", "redis.send_buffer must hold"},
    {"limits: {value_bytes: 2MiB}", NULL},
};

static void texts_keep_their_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct loaded loaded = load_with(texts[i].line);
        char *report = printed(&loaded.report);
        bool is_good = texts[i].word == NULL
                           ? loaded.status == FCAP_OK && report[0] == '\0'
                           : loaded.report.errors == 1 && strstr(report, texts[i].word) != NULL;
        if (!is_good) {
            fail_msg("%s: %s", texts[i].line, report);
        }
        free(report);
        unload(&loaded);
    }
}

static const struct {
    const char *topic;
    const char *word; /* NULL: fine */
} topics[] = {
    {"impressions.v2_x-y", NULL},
    {"a,b", "several topics"},
    {"'^imp.*'", "looks like a pattern"},
    {"imp.*", "looks like a pattern"},
    {"[a, b]", "is a list"},
    {"..", "not a name that Kafka allows"},
    {"'a b'", "letters, digits"},
};

static void exactly_one_topic_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
        char yaml[256];
        (void)snprintf(yaml, sizeof yaml, "windows: [1d]\nkafka:\n  brokers: a\n  topic: %s\n",
                       topics[i].topic);
        struct loaded loaded = load(yaml);
        char *report = printed(&loaded.report);
        assert_int_equal(loaded.status == FCAP_OK, topics[i].word == NULL);
        if (topics[i].word != NULL) {
            assert_non_null(strstr(report, topics[i].word));
            bool has_reason = strstr(report, "one user two tasks, two clocks and one key") != NULL;
            assert_int_equal(has_reason, i < 5 && i > 0);
        }
        free(report);
        unload(&loaded);
    }
}

static const struct {
    const char *brokers;
    bool is_good;
} brokers[] = {
    {"a", true},           {"a:9092", true},  {"'a:1,b:2, c:3'", true}, {"'[::1]:9092,b'", true},
    {"'a:1,'", false},     {"'a:x'", false},  {"'a:0'", false},         {"'::1:9092'", false},
    {"'a b:9092'", false}, {"',a:1'", false}, {"'kafka://a:1'", false},
};

static void brokers_are_hosts_and_ports(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof brokers / sizeof brokers[0]; i++) {
        char yaml[256];
        (void)snprintf(yaml, sizeof yaml, "windows: [1d]\nkafka: {topic: t, brokers: %s}\n",
                       brokers[i].brokers);
        struct loaded loaded = load(yaml);
        if ((loaded.status == FCAP_OK) != brokers[i].is_good) {
            fail_msg("%s: status %d", brokers[i].brokers, (int)loaded.status);
        }
        unload(&loaded);
    }
}

static const struct {
    const char *pattern;
    enum fcap_status status;
    const char *word; /* in the one problem; NULL: none */
} redis_keys[] = {
    {"fc:{%u}:%w", FCAP_OK, NULL},
    {"x:%p:{%u}/%w", FCAP_OK, NULL},
    {"%w:{%u}", FCAP_OK, NULL},
    {"fc:{%p}:{%u}:%w", FCAP_OK, "all users fall into one slot"}, /* B28 */
    {"x:%u:%w", FCAP_OK, "crosses the slots"},                    /* B28 */
    {"x:{}{%u}:%w", FCAP_OK, "crosses the slots"},
    {"x:{%u:%w}", FCAP_OK, "%w stands in the hash tag"},
    {"x:{%u}:{%p}:%w", FCAP_OK, "only the first hash tag counts"},
    {"fc:{%u}", FCAP_CONFIG, "lacks %w"},
    {"fc:%w", FCAP_CONFIG, "lacks %u"},
    {"{%u}%w%u", FCAP_CONFIG, "twice"},
    {"x:%u%w", FCAP_CONFIG, "two users would share"},
    {"x:%u-%w", FCAP_CONFIG, "two users would share"},
    {"%w%u", FCAP_CONFIG, "two users would share"},
    {"fc:{%u}:%w:%x", FCAP_CONFIG, "none of %u, %w and %p"},
    {"fc:{%u}:%w%%", FCAP_CONFIG, "none of %u, %w and %p"},
    {"fc:meta:{%u}:%w", FCAP_CONFIG, "keys of the daemon itself"},
};

static void redis_keys_tell_users_and_windows_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof redis_keys / sizeof redis_keys[0]; i++) {
        char line[256];
        (void)snprintf(line, sizeof line, "redis: {key: '%s'}", redis_keys[i].pattern);
        struct loaded loaded = load_with(line);
        char *report = printed(&loaded.report);
        if (loaded.status != redis_keys[i].status ||
            loaded.report.count != (redis_keys[i].word != NULL) ||
            (redis_keys[i].word != NULL && strstr(report, redis_keys[i].word) == NULL)) {
            fail_msg("%s: %s", redis_keys[i].pattern, report);
        }
        free(report);
        unload(&loaded);
    }
    /* Two problems at once: no tag, and a user "meta:..." would make a key of ours. */
    struct loaded loaded = load_with("redis: {key: 'fc:%u:%w'}");
    assert_int_equal(loaded.status, FCAP_OK);
    assert_int_equal(loaded.report.warnings, 2);
    unload(&loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_documented_ones),
        cmocka_unit_test(computed_defaults_follow_what_they_come_from),
        cmocka_unit_test(memory_is_shared_out),
        cmocka_unit_test(numbers_have_units_and_ranges),
        cmocka_unit_test(booleans_are_true_and_false_only),
        cmocka_unit_test(choices_keep_the_order_of_their_enums),
        cmocka_unit_test(lists_and_maps_keep_their_texts),
        cmocka_unit_test(windows_have_names_and_lengths),
        cmocka_unit_test(texts_keep_their_rules),
        cmocka_unit_test(exactly_one_topic_is_read),
        cmocka_unit_test(brokers_are_hosts_and_ports),
        cmocka_unit_test(redis_keys_tell_users_and_windows_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
