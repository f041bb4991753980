#include "commands.h"

#include "daemon/compose.h"
#include "fcap/clock_os.h"
#include "fcap/kafka_probe.h"
#include "findings.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROBE_MS      5000
#define REDIS_MS      5000
#define REDIS_TICK_MS 20

/* --- Kafka --- */

/* Who has no checkpoint must find all that the longest window holds in the topic. */
static void judge_retention(struct fcap_findings *findings, const struct fcap_config *config,
                            const struct fcap_kafka_probe *probe)
{
    int64_t needed_ms = fcap_compose_retention_ms(config);
    if (probe->retention_ms < 0 || probe->retention_ms >= needed_ms) {
        fcap_findings_good(
            "kafka.topic %s: retention covers the longest window%s", config->kafka.topic,
            probe->retention_bytes >= 0 ? " by time; retention.bytes may cut it" : "");
    } else if (config->checkpoint.directory != NULL) {
        fcap_findings_good(
            "kafka.topic %s: retention.ms is %lld, less than the longest window and "
            "limits.max_future_skew (%lld): a lost state comes back from its newest checkpoint, "
            "whose age and the time away together must be less than that",
            config->kafka.topic, (long long)probe->retention_ms, (long long)needed_ms);
    } else {
        fcap_findings_warn(
            findings,
            "kafka.topic %s: retention.ms is %lld, less than the longest window and "
            "limits.max_future_skew (%lld): a lost state cannot be read again completely; raise "
            "retention.ms, or set checkpoint.directory",
            config->kafka.topic, (long long)probe->retention_ms, (long long)needed_ms);
    }
}

static void judge_topic_config(struct fcap_findings *findings, const struct fcap_config *config,
                               const struct fcap_kafka_probe *probe)
{
    if (!probe->config_known) {
        fcap_findings_warn(
            findings,
            "kafka.topic %s: its configuration cannot be read (%s); compaction and retention are "
            "not checked",
            config->kafka.topic, probe->config_error);
        return;
    }
    if (probe->is_compacted) {
        fcap_findings_fail(
            findings,
            "kafka.topic %s: cleanup.policy holds compact, which drops impressions of the same "
            "user; set it to delete",
            config->kafka.topic);
    }
    if (!probe->has_append_time) {
        fcap_findings_warn(
            findings,
            "kafka.topic %s: message.timestamp.type is CreateTime, the producers' word; with "
            "LogAppendTime an empty state starts at the right record, and the answer to events "
            "from the future is the same for every replay",
            config->kafka.topic);
    }
    judge_retention(findings, config, probe);
}

static void check_source_settings(struct fcap_findings *findings, const struct fcap_config *config,
                                  struct fcap_compose_room *room)
{
    struct fcap_error error;
    struct fcap_source_kafka_settings source;
    struct fcap_memory_plan plan = fcap_memory_plan_make(config, 0);
    fcap_compose_source(config, &plan, 0, room, &source);
    if (fcap_source_kafka_check(&source, &error) != FCAP_OK) {
        fcap_findings_fail(findings, "%s", error.text);
    }
}

/* Gives the topic's partitions; 0: not known. The same of *ret_retention_ms; -1: for ever. */
static int32_t check_kafka(struct fcap_findings *findings, const struct fcap_config *config,
                           struct fcap_compose_room *room, int64_t *ret_retention_ms)
{
    struct fcap_kafka_probe probe;
    struct fcap_dead_letters_kafka_settings letters;
    fcap_compose_letters(config, room, &letters);
    struct fcap_kafka_probe_settings settings = {
        .brokers = config->kafka.brokers,
        .topic = config->kafka.topic,
        .dead_letter_topic = config->kafka.dead_letter_topic,
        .properties = letters.properties,
        .property_count = letters.property_count,
        .with_config = true,
        .timeout_ms = PROBE_MS,
    };
    if (fcap_kafka_probe(&settings, &probe) != FCAP_OK) {
        fcap_findings_fail(findings, "kafka.brokers %s: %s", config->kafka.brokers, probe.error);
        return 0;
    }
    if (!probe.topic.exists) {
        fcap_findings_fail(findings, "kafka.topic %s: %s", config->kafka.topic, probe.topic.error);
        return 0;
    }
    fcap_findings_good("kafka.topic %s: %d partitions", config->kafka.topic,
                       probe.topic.partitions);
    if (probe.topic.partitions < config->workers) {
        fcap_findings_warn(
            findings, "workers: %lld, but kafka.topic has %d partitions; the others have no work",
            (long long)config->workers, probe.topic.partitions);
    }
    judge_topic_config(findings, config, &probe);
    *ret_retention_ms = probe.config_known ? probe.retention_ms : 0;
    if (config->kafka.dead_letter_topic == NULL) {
        fcap_findings_warn(findings,
                           "kafka.dead_letter.topic: not set; refused records are only counted");
    } else if (!probe.dead_letters.exists) {
        fcap_findings_fail(findings, "kafka.dead_letter.topic %s: %s",
                           config->kafka.dead_letter_topic, probe.dead_letters.error);
    } else {
        fcap_findings_good("kafka.dead_letter.topic %s: %d partitions",
                           config->kafka.dead_letter_topic, probe.dead_letters.partitions);
    }
    return probe.topic.partitions;
}

/* --- Redis --- */

static void ignore_ack(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    (void)context; /* Nothing is pushed. */
    (void)token;
    (void)result;
    (void)integer;
}

static void judge_redis(struct fcap_findings *findings, const struct fcap_sink_redis_status *status)
{
    if (!status->state.ready) {
        fcap_findings_fail(findings, "redis: %s; %s",
                           status->error_text[0] == '\0' ? "no answer" : status->error_text,
                           fcap_sink_redis_error_cure(status->error));
    }
    for (size_t i = 0; i < FCAP_SINK_REDIS_NEED_COUNT; i++) {
        if ((status->refused_needs >> i & 1) != 0) {
            enum fcap_sink_redis_need need = (enum fcap_sink_redis_need)i;
            /* Ready without it: redis.degraded: allow. */
            void (*note)(struct fcap_findings *, const char *, ...) =
                status->state.ready ? fcap_findings_warn : fcap_findings_fail;
            note(findings, "redis: %s is refused (%s); the promise it carries: %s",
                 fcap_sink_redis_need_command(need), status->refused_text[i],
                 fcap_sink_redis_need_promise(need));
        }
    }
    if (!status->state.ready) {
        return;
    }
    fcap_findings_good("redis: version %s, every command that the promises need%s",
                       status->version[0] == '\0' ? "hidden" : status->version,
                       status->refused_needs == 0 ? "" : " but the ones above");
    if (status->evicts) {
        fcap_findings_warn(findings,
                           "redis: maxmemory-policy is %s: counts can vanish; set noeviction",
                           status->maxmemory_policy);
    } else if (status->maxmemory_policy[0] == '\0') {
        fcap_findings_warn(findings,
                           "redis: maxmemory-policy is hidden; make sure that it is noeviction");
    } else {
        fcap_findings_good("redis: maxmemory-policy is noeviction");
    }
    int64_t offset_ms = fcap_clock_os_wall_ms() - status->state.time_ms;
    if (llabs(offset_ms) > 1000) {
        fcap_findings_warn(findings,
                           "redis: the wall clock is %lld ms off Redis TIME; synchronise both",
                           (long long)offset_ms);
    }
}

static void check_redis(struct fcap_findings *findings, const struct fcap_config *config,
                        struct fcap_compose_room *room)
{
    const struct fcap_sink_handler handler = {NULL, ignore_ack};
    struct fcap_sink_redis_settings settings;
    struct fcap_sink_redis_status status;
    struct fcap_error error;
    struct fcap_sink *sink = NULL;
    char instance[128];
    fcap_compose_sink(config, 0, room, &settings);
    /* Another name than the daemon's: connections of one name close each other. */
    (void)snprintf(instance, sizeof instance, "%s-check-%d", config->instance, (int)getpid());
    settings.instance = instance;
    if (fcap_sink_redis_open(&settings, &error, &sink) != FCAP_OK) {
        fcap_findings_fail(findings, "%s", error.text);
        return;
    }
    int64_t deadline_ms = fcap_clock_os_monotonic_ms() + REDIS_MS;
    do {
        (void)sink->ops->poll(sink, &handler, REDIS_TICK_MS); /* The status tells. */
        nanosleep(&(struct timespec){.tv_nsec = REDIS_TICK_MS * 1000000L}, NULL);
        fcap_sink_redis_status(sink, &status);
    } while (!status.state.ready && status.refused_needs == 0 &&
             fcap_clock_os_monotonic_ms() < deadline_ms);
    sink->ops->state(sink, &status.state);
    judge_redis(findings, &status);
    fcap_sink_redis_close(sink);
}

/* --- the state --- */

static void check_state(struct fcap_findings *findings, const struct fcap_config *config)
{
    struct fcap_state state;
    struct fcap_error error;
    enum fcap_state_presence presence = fcap_state_look(config);
    if (presence == FCAP_STATE_ABSENT) {
        fcap_findings_good("state.directory %s: no state yet; run begins with one",
                           config->state.directory);
        return;
    }
    if (fcap_state_open(config, &state, &error) != FCAP_OK) {
        fcap_findings_fail(findings, "state.directory: %s", error.text);
        return;
    }
    fcap_findings_good("state.directory %s: format %u, %zu partitions%s", config->state.directory,
                       FCAP_STORE_FORMAT_VERSION, state.count,
                       presence == FCAP_STATE_LOCKED ? ", in use by a running daemon" : "");
    for (size_t i = 0; i < config->windows_count; i++) {
        size_t holding = fcap_state_count_window(&state, config->windows[i].length_ms);
        if (state.count > 0 && holding < state.count) {
            fcap_findings_warn(
                findings,
                "windows: %s stands in the state of %zu of %zu partitions; it is built from the "
                "timers that are there",
                config->windows[i].name, holding, state.count);
        }
    }
    fcap_state_close(&state);
}

struct fcap_daemon_result fcap_command_check(const struct fcap_arguments *arguments)
{
    static struct fcap_compose_room room;
    struct fcap_daemon_result result = {FCAP_EXIT_CONFIG, true};
    struct fcap_findings findings = {0};
    struct fcap_config config;
    int32_t partitions = 0;
    int64_t retention_ms = 0;
    if (!fcap_arguments_load(arguments, &config)) {
        return result;
    }
    if (arguments->is_effective) {
        fcap_config_print_effective(stdout, &config);
    }
    check_source_settings(&findings, &config, &room);
    check_state(&findings, &config);
    if (!arguments->is_offline) {
        partitions = check_kafka(&findings, &config, &room, &retention_ms);
        check_redis(&findings, &config, &room);
    }
    fcap_check_checkpoints(&findings, &config, retention_ms);
    struct fcap_memory_plan plan = fcap_memory_plan_make(&config, partitions);
    fcap_memory_plan_print(stdout, &plan);
    (void)printf("check: %d failures, %d warnings\n", findings.failures, findings.warnings);
    fcap_config_done(&config);
    result.exit_code = findings.failures == 0 ? FCAP_EXIT_OK : FCAP_EXIT_CONFIG;
    return result;
}
