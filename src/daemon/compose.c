#include "compose.h"

#include "fcap/clock_os.h"

#include <stdio.h>
#include <string.h>

int64_t fcap_compose_retention_ms(const struct fcap_config *config)
{
    int64_t longest_ms = 0;
    for (size_t i = 0; i < config->windows_count; i++) {
        int64_t length_ms = config->windows[i].length_ms;
        longest_ms = length_ms > longest_ms ? length_ms : longest_ms;
    }
    return longest_ms + config->limits.max_future_skew_ms;
}

void fcap_compose_core(const struct fcap_config *config, const struct fcap_memory_plan *plan,
                       struct fcap_settings *ret_settings)
{
    static const enum fcap_start_kind starts[] = {
        [FCAP_CONFIG_START_LOOKBACK] = FCAP_START_TIME,
        [FCAP_CONFIG_START_EARLIEST] = FCAP_START_EARLIEST,
        [FCAP_CONFIG_START_LATEST] = FCAP_START_LATEST,
    };
    fcap_settings_default(ret_settings);
    for (size_t i = 0; i < config->windows_count; i++) {
        memcpy(ret_settings->windows[i].name, config->windows[i].name,
               sizeof ret_settings->windows[i].name);
        ret_settings->windows[i].length_ms = config->windows[i].length_ms;
    }
    ret_settings->window_count = config->windows_count;
    ret_settings->profile = config->profile;
    ret_settings->key_pattern = config->redis.key;
    ret_settings->future_skew_ms = config->limits.max_future_skew_ms;
    ret_settings->producer_refresh_ms = config->kafka.producer_refresh_ms;
    ret_settings->start = starts[config->kafka.start];
    ret_settings->check_keyed = config->kafka.keyed == FCAP_CONFIG_KEYED_CHECK;
    ret_settings->user_from_key = strcmp(config->event.user, "@key") == 0;
    ret_settings->serve_incomplete = config->windows_incomplete == FCAP_CONFIG_INCOMPLETE_SERVE;
    ret_settings->stop_on_gap = config->on_gap == FCAP_CONFIG_GAP_STOP;
    ret_settings->dedup = config->event.id != NULL;
    ret_settings->commit_interval_ms = config->commit.interval_ms;
    ret_settings->commit_events = (size_t)config->commit.events;
    ret_settings->bucket_ms = config->timers.bucket_ms;
    ret_settings->cache_bytes = (size_t)plan->worker_cache_bytes;
    ret_settings->ads_per_user = (size_t)config->limits.ads_per_user;
    ret_settings->value_bytes = (size_t)config->limits.value_bytes;
    ret_settings->session_timeout_ms = config->kafka.session_timeout_ms;
}

static void compose_family(const struct fcap_config_family *config,
                           struct fcap_store_family_settings *ret_family)
{
    static const enum fcap_store_compression compressions[] = {
        [FCAP_CONFIG_COMPRESSION_NONE] = FCAP_STORE_COMPRESSION_NONE,
        [FCAP_CONFIG_COMPRESSION_LZ4] = FCAP_STORE_COMPRESSION_LZ4,
        [FCAP_CONFIG_COMPRESSION_ZSTD] = FCAP_STORE_COMPRESSION_ZSTD,
    };
    ret_family->write_buffer_bytes = (size_t)config->write_buffer_size;
    ret_family->write_buffers_max = (int)config->max_write_buffer_number;
    ret_family->write_buffers_merge = (int)config->min_write_buffer_number_to_merge;
    ret_family->filter_bits_per_key = (double)config->bloom_bits;
    ret_family->block_bytes = (size_t)config->block_size;
    ret_family->partitioned_filters = config->partition_filters;
    ret_family->compression = compressions[config->compression];
    ret_family->target_file_bytes = (uint64_t)config->target_file_size_base;
    ret_family->level_base_bytes = (uint64_t)config->max_bytes_for_level_base;
    ret_family->dynamic_levels = config->level_compaction_dynamic_level_bytes;
    ret_family->options = config->options;
}

void fcap_compose_store(const struct fcap_config *config, const struct fcap_memory_plan *plan,
                        struct fcap_store_settings *ret_settings)
{
    static const enum fcap_store_sync syncs[] = {
        [FCAP_CONFIG_SYNC_NEVER] = FCAP_STORE_SYNC_NEVER,
        [FCAP_CONFIG_SYNC_INTERVAL] = FCAP_STORE_SYNC_INTERVAL,
        [FCAP_CONFIG_SYNC_COMMIT] = FCAP_STORE_SYNC_COMMIT,
    };
    fcap_store_settings_default(ret_settings);
    ret_settings->directory = config->state.directory;
    ret_settings->block_cache_bytes = (size_t)plan->block_cache_bytes;
    ret_settings->write_buffers_bytes = (size_t)plan->write_buffers_bytes;
    compose_family(&config->rocksdb.users, &ret_settings->families[FCAP_FAMILY_USERS]);
    compose_family(&config->rocksdb.timers, &ret_settings->families[FCAP_FAMILY_TIMERS]);
    compose_family(&config->rocksdb.other, &ret_settings->families[FCAP_FAMILY_ADS]);
    compose_family(&config->rocksdb.other, &ret_settings->families[FCAP_FAMILY_META]);
    ret_settings->wal = config->durability.wal != 0;
    ret_settings->sync = syncs[config->durability.sync];
    ret_settings->sync_interval_ms = config->durability.sync_interval_ms;
    ret_settings->wal_bytes_max = (uint64_t)config->rocksdb.max_total_wal_size;
    ret_settings->background_jobs = (int)config->rocksdb.max_background_jobs;
    ret_settings->open_files_max = (int)config->rocksdb.max_open_files;
    ret_settings->direct_reads = config->rocksdb.use_direct_reads;
    ret_settings->direct_flush_and_compaction =
        config->rocksdb.use_direct_io_for_flush_and_compaction;
    ret_settings->options = config->rocksdb.options;
}

void fcap_compose_checkpointer(const struct fcap_config *config,
                               struct fcap_checkpointer_settings *ret_settings)
{
    *ret_settings = (struct fcap_checkpointer_settings){
        .profile = config->profile,
        .instance = config->instance,
        .interval_ms = config->checkpoint.interval_ms,
        .min_pause_ms = config->checkpoint.min_pause_ms,
        .retain = (size_t)config->checkpoint.retain,
        .queue_bytes_max = (size_t)config->checkpoint.queue_bytes,
        .materialization_interval_ms = config->materialization.interval_ms,
        .transfer_threads = (size_t)config->materialization.transfer_threads,
        .rate_limit_bytes_per_second = (uint64_t)config->materialization.rate_limit_bytes,
        .scrub_interval_ms = config->checkpoint.scrub_interval_ms,
        .scrub_bytes_per_second = (uint64_t)config->checkpoint.scrub_rate_limit_bytes,
    };
}

void fcap_compose_restore(const struct fcap_config *config,
                          struct fcap_restore_settings *ret_settings)
{
    *ret_settings = (struct fcap_restore_settings){
        .profile = config->profile,
        .instance = config->instance,
        .threads = (size_t)config->materialization.transfer_threads,
        .rate_limit_bytes_per_second = (uint64_t)config->checkpoint.restore_rate_limit_bytes,
        .clock = fcap_clock_os(),
    };
}

void fcap_compose_decoder(const struct fcap_config *config,
                          struct fcap_decode_settings *ret_settings)
{
    *ret_settings = (struct fcap_decode_settings){
        .user_path = config->event.user,
        .ad_path = config->event.ad,
        .time_path = config->event.time,
        .time_format = (enum fcap_time_format)config->event.time_unit,
        .is_framed = config->event.framing == FCAP_CONFIG_FRAMING_REGISTRY,
        .id_path = config->event.id,
        .filter_path = config->event.filter_field,
        .filter_values = config->event.filter_values.items,
        .filter_values_count = config->event.filter_values.count,
        .ignore_users = config->event.ignore_users.items,
        .ignore_users_count = config->event.ignore_users.count,
        .user_id_bytes_max = (size_t)config->limits.user_id_bytes,
        .ad_id_bytes_max = (size_t)config->limits.ad_id_bytes,
        .record_bytes_max = (size_t)config->limits.record_bytes,
    };
}

/* A key of redis.key's pattern that no user has: '%' inside a user id is written %25, and never
 * stands before a 'p'. */
static void make_probe_key(const struct fcap_config *config, unsigned worker, char *text,
                           size_t size)
{
    size_t used = 0;
    for (const char *at = config->redis.key; *at != '\0' && used < size; at++) {
        int added;
        if (at[0] != '%' || at[1] == '\0') {
            added = snprintf(text + used, size - used, "%c", *at);
        } else {
            at++;
            added = *at == 'u'   ? snprintf(text + used, size - used, "%%probe:%s:%u",
                                            config->instance, worker)
                    : *at == 'w' ? snprintf(text + used, size - used, "%s", config->windows[0].name)
                    : *at == 'p' ? snprintf(text + used, size - used, "%s", config->profile)
                                 : snprintf(text + used, size - used, "%c", *at);
        }
        used += (size_t)added;
    }
}

void fcap_compose_sink(const struct fcap_config *config, unsigned worker,
                       struct fcap_compose_room *room,
                       struct fcap_sink_redis_settings *ret_settings)
{
    make_probe_key(config, worker, room->probe_key, sizeof room->probe_key);
    fcap_sink_redis_settings_default(ret_settings);
    ret_settings->host = config->redis.host;
    ret_settings->port = (uint16_t)config->redis.port;
    ret_settings->unix_socket = config->redis.socket;
    ret_settings->database = (int)config->redis.db;
    ret_settings->user = config->redis.user;
    ret_settings->password = config->redis.password;
    ret_settings->profile = config->profile;
    ret_settings->instance = config->instance;
    ret_settings->worker = worker;
    ret_settings->probe_key = room->probe_key;
    ret_settings->degraded_allowed = config->redis.degraded == FCAP_CONFIG_DEGRADED_ALLOW;
    ret_settings->connect_timeout_ms = (int)config->redis.connect_timeout_ms;
    ret_settings->command_timeout_ms = (int)config->redis.command_timeout_ms;
    ret_settings->send_buffer_bytes = (size_t)config->redis.send_buffer_bytes;
}

static size_t compose_properties(const struct fcap_config *config, struct fcap_compose_room *room)
{
    const size_t room_count = sizeof room->properties / sizeof room->properties[0];
    size_t count = 0;
    while (count < config->kafka.librdkafka.count && count < room_count) {
        const struct fcap_config_pair *pair = &config->kafka.librdkafka.pairs[count];
        room->properties[count++] = (struct fcap_source_kafka_property){pair->name, pair->value};
    }
    return count;
}

/* A share of shutdown.deadline, at most the usual time. */
static int share_of_deadline(const struct fcap_config *config, int64_t parts, int64_t most_ms)
{
    int64_t share_ms = config->shutdown.deadline_ms / parts;
    return (int)(share_ms < most_ms ? share_ms : most_ms);
}

void fcap_compose_source(const struct fcap_config *config, const struct fcap_memory_plan *plan,
                         unsigned worker, struct fcap_compose_room *room,
                         struct fcap_source_kafka_settings *ret_settings)
{
    const int64_t usual_poll_interval_ms = 300000;
    int64_t session_ms = config->kafka.session_timeout_ms;
    *ret_settings = (struct fcap_source_kafka_settings){
        .brokers = config->kafka.brokers,
        .topic = config->kafka.topic,
        .group = config->kafka.group,
        .progress_group = config->kafka.progress_group,
        .properties = room->properties,
        .property_count = compose_properties(config, room),
        .queues_bytes = plan->worker_queues_bytes,
        .partitions_max = plan->worker_partitions,
        .session_timeout_ms = (int)session_ms,
        .stall_timeout_ms = (int)config->kafka.stall_timeout_ms,
        .max_poll_interval_ms =
            (int)(session_ms > usual_poll_interval_ms ? session_ms : usual_poll_interval_ms),
        .close_timeout_ms = share_of_deadline(config, 4, 10000),
    };
    if (config->kafka.instance_id != NULL) {
        (void)snprintf(room->instance_id, sizeof room->instance_id, "%s-%u",
                       config->kafka.instance_id, worker); /* The table bounds the prefix. */
        ret_settings->instance_id = room->instance_id;
    }
}

void fcap_compose_letters(const struct fcap_config *config, struct fcap_compose_room *room,
                          struct fcap_dead_letters_kafka_settings *ret_settings)
{
    *ret_settings = (struct fcap_dead_letters_kafka_settings){
        .brokers = config->kafka.brokers,
        .topic = config->kafka.dead_letter_topic,
        .source_topic = config->kafka.topic,
        .properties = room->properties,
        .property_count = compose_properties(config, room),
        .policy = config->kafka.dead_letter_policy == FCAP_CONFIG_LETTERS_DROP
                      ? FCAP_DEAD_LETTERS_DROP
                      : FCAP_DEAD_LETTERS_STALL,
        .close_timeout_ms = share_of_deadline(config, 8, 5000),
    };
}
