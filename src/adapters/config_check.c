/* Computed defaults, and the rules that hold between keys. */
#include "config_internal.h"

#include "fcap/assert.h"

#include <string.h>
#include <unistd.h>

static struct fcap_config_origin *origin_of(struct fcap_config_loader *loader, const char *name)
{
    size_t index = fcap_config_key_find(name);
    FCAP_ASSERT(index < fcap_config_keys_count); /* Names here are the table's. */
    return &loader->config.origins[index];
}

/* Given by the file or the command line, and usable. */
static bool is_given(struct fcap_config_loader *loader, const char *name)
{
    enum fcap_config_from from = origin_of(loader, name)->from;
    return from == FCAP_CONFIG_FROM_FILE || from == FCAP_CONFIG_FROM_SET;
}

/* Its value can be used in a rule: given, or a default that exists. */
static bool is_usable(struct fcap_config_loader *loader, const char *name)
{
    unsigned flags = fcap_config_keys[fcap_config_key_find(name)].flags;
    return is_given(loader, name) || (origin_of(loader, name)->from == FCAP_CONFIG_FROM_DEFAULT &&
                                      (flags & FCAP_CONFIG_MANDATORY) == 0);
}

static struct fcap_config_place place_of(struct fcap_config_loader *loader, const char *name)
{
    const struct fcap_config_origin *origin = origin_of(loader, name);
    bool is_set = origin->from == FCAP_CONFIG_FROM_SET;
    return (struct fcap_config_place){origin->line, origin->column, is_set ? name : NULL};
}

static void tell(struct fcap_config_loader *loader, enum fcap_config_severity severity,
                 const char *name, const char *text)
{
    fcap_config_problem(loader, severity, place_of(loader, name), "%s: %s", name, text);
}

/* --- computed defaults ---------------------------------------------------------------------- */

static const char *print_text(struct fcap_config_loader *loader, const char *format,
                              const char *argument)
{
    char text[512];
    (void)snprintf(text, sizeof text, format, argument); /* Both parts are far shorter. */
    return fcap_config_copy(loader->config.owned, text, strlen(text));
}

static void compute_names(struct fcap_config_loader *loader)
{
    struct fcap_config *config = &loader->config;
    if (origin_of(loader, "instance")->from == FCAP_CONFIG_FROM_DEFAULT) {
        char host[65] = "";
        if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0' ||
            fcap_config_format_name(host) != NULL) {
            tell(loader, FCAP_CONFIG_ERROR, "instance", "the host name is no name to use; set it");
        }
        config->instance = fcap_config_copy(config->owned, host, strlen(host));
    }
    if (!is_usable(loader, "profile") || !is_usable(loader, "kafka.group")) {
        return;
    }
    if (config->kafka.group == NULL) {
        config->kafka.group = print_text(loader, "fcapd-%s", config->profile);
    }
    if (config->kafka.progress_group == NULL) {
        config->kafka.progress_group = print_text(loader, "%s-progress", config->kafka.group);
    }
    if (strcmp(config->kafka.group, config->kafka.progress_group) == 0) {
        tell(loader, FCAP_CONFIG_ERROR, "kafka.progress_group",
             "is the consuming group; offsets published there would cost members their partitions");
    }
}

static const struct part {
    const char *name;
    int64_t parts; /* of 18 */
} memory_parts[] = {
    {"memory.record_cache", 7},
    {"memory.block_cache", 5},
    {"memory.write_buffers", 4},
    {"memory.kafka_queues", 2},
};
#define PARTS (sizeof memory_parts / sizeof memory_parts[0])

/* What the parts may take together. A process without any state takes about 30 MiB, which a tenth
 * of a small budget would not cover. */
static int64_t shared_bytes(int64_t budget_bytes)
{
    const int64_t room_least = INT64_C(48) * 1024 * 1024;
    int64_t room = budget_bytes / 10 > room_least ? budget_bytes / 10 : room_least;
    return budget_bytes - (room < budget_bytes / 2 ? room : budget_bytes / 2);
}

static void tell_too_little(struct fcap_config_loader *loader, int64_t rest, int64_t checkpoints)
{
    char left[32];
    char taken[32];
    char why[128] = "";
    fcap_config_write_number(FCAP_CONFIG_SIZE, rest, left);
    if (checkpoints > 0) {
        fcap_config_write_number(FCAP_CONFIG_SIZE, checkpoints, taken);
        (void)snprintf(why, sizeof why,
                       ", beside %s of checkpoint.queue and materialization.transfer_threads",
                       taken); /* It fits. */
    }
    fcap_config_problem(loader, FCAP_CONFIG_ERROR, place_of(loader, "memory.budget"),
                        "memory.budget: record_cache, block_cache, write_buffers and "
                        "kafka_queues may take %s together%s; raise the budget or lower them",
                        left, why);
}

/* What checkpoints take of the budget before it is shared. */
static int64_t compute_checkpoints(struct fcap_config_loader *loader)
{
    const int64_t queue_most = INT64_C(64) << 20;
    struct fcap_config *config = &loader->config;
    if (config->checkpoint.queue_bytes == 0) {
        int64_t share = config->memory.budget_bytes / 16;
        config->checkpoint.queue_bytes = share < queue_most ? share : queue_most;
    }
    return config->checkpoint.directory == NULL
               ? 0
               : config->checkpoint.queue_bytes +
                     config->materialization.transfer_threads * FCAP_CONFIG_TRANSFER_BYTES;
}

/* What was given counts; the rest goes to the `auto` ones in proportion. */
static void compute_memory(struct fcap_config_loader *loader)
{
    int64_t *members[PARTS];
    int64_t given = 0;
    int64_t parts = 0;
    if (!is_usable(loader, "memory.budget") || !is_usable(loader, "checkpoint.queue") ||
        !is_usable(loader, "materialization.transfer_threads")) {
        return;
    }
    const int64_t checkpoints = compute_checkpoints(loader);
    const int64_t all = shared_bytes(loader->config.memory.budget_bytes) - checkpoints;
    for (size_t i = 0; i < PARTS; i++) {
        if (!is_usable(loader, memory_parts[i].name)) {
            return;
        }
        members[i] = FCAP_CONFIG_MEMBER(
            &loader->config, &fcap_config_keys[fcap_config_key_find(memory_parts[i].name)],
            int64_t);
        given += *members[i];
        parts += *members[i] == 0 ? memory_parts[i].parts : 0;
    }
    const int64_t least = INT64_C(1024) * 1024;
    if (given > all || (parts != 0 && (all - given) / parts < least)) {
        tell_too_little(loader, all > 0 ? all / least * least : 0, checkpoints);
        return;
    }
    for (size_t i = 0; i < PARTS; i++) {
        if (*members[i] == 0) {
            *members[i] = (all - given) / parts * memory_parts[i].parts / least * least;
        }
    }
}

static void compute_bucket(struct fcap_config_loader *loader)
{
    struct fcap_config *config = &loader->config;
    if (!is_usable(loader, "windows") || !is_usable(loader, "commit.interval") ||
        !is_usable(loader, "timers.bucket")) {
        return;
    }
    int64_t shortest_ms = config->windows[0].length_ms;
    for (size_t i = 1; i < config->windows_count; i++) {
        if (config->windows[i].length_ms < shortest_ms) {
            shortest_ms = config->windows[i].length_ms;
        }
    }
    int64_t most_ms = shortest_ms / 16;
    if (config->timers.bucket_ms == 0) {
        config->timers.bucket_ms =
            config->commit.interval_ms < most_ms ? config->commit.interval_ms : most_ms;
    } else if (config->timers.bucket_ms > most_ms) {
        char most[32];
        fcap_config_write_number(FCAP_CONFIG_DURATION, most_ms, most);
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place_of(loader, "timers.bucket"),
                            "timers.bucket: may be at most a 16th of the shortest window: %s",
                            most);
    }
}

/* --- rules ---------------------------------------------------------------------------------- */

static void check_durability(struct fcap_config_loader *loader)
{
    struct fcap_config *config = &loader->config;
    if (!is_usable(loader, "durability.wal") || !is_usable(loader, "durability.sync")) {
        return;
    }
    if (config->durability.wal == 0) {
        if (is_given(loader, "durability.sync") &&
            config->durability.sync != FCAP_CONFIG_SYNC_NEVER) {
            tell(loader, FCAP_CONFIG_ERROR, "durability.sync",
                 "without the write-ahead log there is nothing to sync; write never");
        }
        config->durability.sync = FCAP_CONFIG_SYNC_NEVER;
    }
    if (is_given(loader, "durability.sync_interval") &&
        config->durability.sync != FCAP_CONFIG_SYNC_INTERVAL) {
        tell(loader, FCAP_CONFIG_WARNING, "durability.sync_interval",
             "has no effect unless durability.sync is interval");
    }
}

static void check_event(struct fcap_config_loader *loader)
{
    const struct fcap_config *config = &loader->config;
    bool has_field = is_given(loader, "event.filter.field");
    bool has_values = is_given(loader, "event.filter.any_of");
    if (has_field && is_usable(loader, "event.filter.any_of") &&
        config->event.filter_values.count == 0) {
        tell(loader, FCAP_CONFIG_ERROR, "event.filter.field",
             "needs at least one value in event.filter.any_of");
    }
    if (has_values && !has_field && is_usable(loader, "event.filter.field") &&
        config->event.filter_values.count != 0) {
        tell(loader, FCAP_CONFIG_ERROR, "event.filter.any_of", "needs event.filter.field");
    }
    if (is_usable(loader, "event.user") && is_usable(loader, "event.ad") &&
        strcmp(config->event.user, config->event.ad) == 0) {
        tell(loader, FCAP_CONFIG_WARNING, "event.ad", "is the same field as event.user");
    }
    if (is_usable(loader, "event.time") && is_given(loader, "event.time_unit") &&
        strcmp(config->event.time, "@timestamp") == 0) {
        tell(loader, FCAP_CONFIG_WARNING, "event.time_unit",
             "has no effect with event.time: \"@timestamp\", which is in milliseconds");
    }
}

static void check_kafka(struct fcap_config_loader *loader)
{
    const struct fcap_config *config = &loader->config;
    const char *letters = config->kafka.dead_letter_topic;
    if (letters != NULL && is_given(loader, "kafka.topic") &&
        strcmp(letters, config->kafka.topic) == 0) {
        tell(loader, FCAP_CONFIG_ERROR, "kafka.dead_letter.topic",
             "is the topic that is read: refused records would come back for ever");
    }
    if (letters == NULL && config->kafka.dead_letter_policy != FCAP_CONFIG_LETTERS_STALL) {
        tell(loader, FCAP_CONFIG_WARNING, "kafka.dead_letter.policy",
             "has no effect without kafka.dead_letter.topic");
    }
}

static void check_redis(struct fcap_config_loader *loader)
{
    const struct fcap_config *config = &loader->config;
    if (config->redis.socket != NULL) {
        static const char *const others[] = {"redis.host", "redis.port"};
        for (size_t i = 0; i < 2; i++) {
            if (is_given(loader, others[i])) {
                tell(loader, FCAP_CONFIG_ERROR, others[i],
                     "stands beside redis.socket; only one of the two can be meant");
            }
        }
    }
    if (config->redis.user != NULL && config->redis.password == NULL &&
        is_usable(loader, "redis.password")) {
        tell(loader, FCAP_CONFIG_ERROR, "redis.user", "needs redis.password");
    }
    if (is_usable(loader, "redis.key")) {
        fcap_config_check_redis_key(loader, config->redis.key, place_of(loader, "redis.key"));
    }
    if (is_usable(loader, "redis.send_buffer") && is_usable(loader, "limits.value_bytes") &&
        config->limits.value_bytes > config->redis.send_buffer_bytes / 2) {
        const char *name =
            is_given(loader, "redis.send_buffer") ? "redis.send_buffer" : "limits.value_bytes";
        tell(loader, FCAP_CONFIG_ERROR, name,
             "redis.send_buffer must hold at least twice limits.value_bytes");
    }
}

/* Another number than the default: a file that names every key as it is wants nothing. */
static bool is_changed(struct fcap_config_loader *loader, const struct fcap_config_key *key)
{
    char text[32];
    if (!is_given(loader, key->name) || strcmp(key->value, "auto") == 0) {
        return false;
    }
    const int64_t value = *FCAP_CONFIG_MEMBER(&loader->config, key, int64_t);
    fcap_config_write_number(key->type, value, text);
    return strcmp(text, key->value) != 0 && (value != 0 || strcmp(key->value, "0") != 0);
}

/* Keys that do nothing without a place for checkpoints. */
static void check_place(struct fcap_config_loader *loader)
{
    if (loader->config.checkpoint.directory != NULL || !is_usable(loader, "checkpoint.directory")) {
        return;
    }
    for (size_t i = 0; i < fcap_config_keys_count; i++) {
        const struct fcap_config_key *key = &fcap_config_keys[i];
        bool is_number = key->type == FCAP_CONFIG_INTEGER || key->type == FCAP_CONFIG_DURATION ||
                         key->type == FCAP_CONFIG_SIZE;
        bool is_ours = strncmp(key->name, "checkpoint.", 11) == 0 ||
                       strncmp(key->name, "materialization.", 16) == 0;
        if (is_ours && is_number && is_changed(loader, key)) {
            tell(loader, FCAP_CONFIG_WARNING, key->name,
                 "has no effect without checkpoint.directory");
        }
    }
}

static void check_checkpoint(struct fcap_config_loader *loader)
{
    const struct fcap_config *config = &loader->config;
    check_place(loader);
    if (config->checkpoint.directory == NULL) {
        return;
    }
    if (is_usable(loader, "checkpoint.min_pause") && is_usable(loader, "checkpoint.interval") &&
        config->checkpoint.min_pause_ms > config->checkpoint.interval_ms) {
        tell(loader, FCAP_CONFIG_WARNING, "checkpoint.min_pause",
             "is longer than checkpoint.interval, so it alone decides how old a checkpoint gets; "
             "lower it");
    }
    if (is_usable(loader, "materialization.interval") && is_usable(loader, "checkpoint.interval") &&
        config->materialization.interval_ms < config->checkpoint.interval_ms) {
        tell(loader, FCAP_CONFIG_WARNING, "materialization.interval",
             "is shorter than checkpoint.interval, so every checkpoint sends files and none sends "
             "changes alone; raise it");
    }
    if (is_usable(loader, "checkpoint.retain") && config->checkpoint.retain == 1) {
        tell(loader, FCAP_CONFIG_WARNING, "checkpoint.retain",
             "with 1 a damaged file of the only snapshot leaves no checkpoint; write 2");
    }
    if (is_usable(loader, "checkpoint.scrub_interval") &&
        config->checkpoint.scrub_interval_ms == 0) {
        tell(loader, FCAP_CONFIG_WARNING, "checkpoint.scrub_interval",
             "with 0 a kept object that rots is found only when a restore needs it; write 7d");
    }
    if (is_usable(loader, "checkpoint.directory") && is_usable(loader, "state.directory") &&
        strcmp(config->checkpoint.directory, config->state.directory) == 0) {
        tell(loader, FCAP_CONFIG_ERROR, "checkpoint.directory",
             "is state.directory; checkpoints need a volume that outlives the machine");
    }
}

static void check_family(struct fcap_config_loader *loader, const char *name,
                         const struct fcap_config_family *family)
{
    char key[FCAP_CONFIG_PATH_MAX];
    (void)snprintf(key, sizeof key, "rocksdb.%s.min_write_buffer_number_to_merge", name);
    if (family->max_write_buffer_number != 0 &&
        family->min_write_buffer_number_to_merge >= family->max_write_buffer_number) {
        tell(loader, FCAP_CONFIG_ERROR, key,
             "must be less than max_write_buffer_number, or writes stall before a flush begins");
    }
    if (family->min_write_buffer_number_to_merge > 1 && is_usable(loader, "durability.wal") &&
        loader->config.durability.wal == 0) {
        tell(loader, FCAP_CONFIG_ERROR, key,
             "must be 1 without the write-ahead log: RocksDB ignores it in atomic flushes");
    }
    (void)snprintf(key, sizeof key, "rocksdb.%s.partition_filters", name);
    if (loader->config.rocksdb.use_direct_reads && is_given(loader, key) &&
        !family->partition_filters) {
        tell(loader, FCAP_CONFIG_WARNING, key,
             "with direct reads a cache miss reads the whole filter of a file; write true");
    }
}

static void check_rocksdb(struct fcap_config_loader *loader)
{
    const struct fcap_config *config = &loader->config;
    check_family(loader, "users", &config->rocksdb.users);
    check_family(loader, "timers", &config->rocksdb.timers);
    check_family(loader, "other", &config->rocksdb.other);
    if (config->rocksdb.use_direct_reads !=
        config->rocksdb.use_direct_io_for_flush_and_compaction) {
        const char *name = is_given(loader, "rocksdb.use_direct_reads")
                               ? "rocksdb.use_direct_reads"
                               : "rocksdb.use_direct_io_for_flush_and_compaction";
        tell(loader, FCAP_CONFIG_WARNING, name,
             "set use_direct_reads and use_direct_io_for_flush_and_compaction both or none");
    }
    /* The stall loop of the reference: a budget below the buffers forces flushes of half-full
     * ones, level 0 fills with small files, and compaction falls behind. Only the budget cures. */
    int64_t wanted = config->rocksdb.users.write_buffer_size +
                     config->rocksdb.timers.write_buffer_size +
                     2 * config->rocksdb.other.write_buffer_size;
    if (config->memory.write_buffers_bytes != 0 && config->memory.write_buffers_bytes < wanted) {
        char needed[32];
        char had[32];
        fcap_config_write_number(FCAP_CONFIG_SIZE, (wanted >> 20) << 20, needed);
        fcap_config_write_number(FCAP_CONFIG_SIZE, (config->memory.write_buffers_bytes >> 20) << 20,
                                 had);
        const char *name =
            is_given(loader, "memory.write_buffers") ? "memory.write_buffers" : "memory.budget";
        fcap_config_problem(loader, FCAP_CONFIG_WARNING, place_of(loader, name),
                            "%s: %s for all write buffers is less than one of each family (%s), so "
                            "they are flushed before they are full; raise it, or lower "
                            "rocksdb.*.write_buffer_size",
                            name, had, needed);
    }
}

void fcap_config_check(struct fcap_config_loader *loader)
{
    compute_names(loader);
    compute_memory(loader);
    compute_bucket(loader);
    check_durability(loader);
    check_event(loader);
    check_kafka(loader);
    check_redis(loader);
    check_rocksdb(loader);
    check_checkpoint(loader);
}
