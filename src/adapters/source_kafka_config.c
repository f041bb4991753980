#include "source_kafka_internal.h"

#include "fcap/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

#define QUEUE_BYTES_MIN  ((int64_t)256 * 1024)
#define FETCH_BYTES_MIN  ((int64_t)64 * 1024)
#define FETCH_BYTES_MAX  ((int64_t)1024 * 1024)
#define QUEUE_KBYTES_MAX ((int64_t)2097151) /* librdkafka's own */

static const char state_owns_offsets[] =
    "offsets live in the state, and a member that commits during a rebalance loses its partitions";
static const char memory_key[] = "follows from the memory budget (memory.kafka_queues)";

/* clang-format off */
static const struct fcap_kafka_refusal refusals[] = {
    {"bootstrap.servers",             "use kafka.brokers"},
    {"metadata.broker.list",          "use kafka.brokers"},
    {"group.id",                      "use kafka.group"},
    {"group.instance.id",             "use kafka.instance_id"},
    {"session.timeout.ms",            "use kafka.session_timeout"},
    {"heartbeat.interval.ms",         "follows from kafka.session_timeout"},
    {"max.poll.interval.ms",          "it bounds how long a redo after a crash may take"},
    {"topic.metadata.refresh.interval.ms", "partitions and topics that change must be seen soon"},
    {"group.protocol",                "the source handles the classic protocol only"},
    {"partition.assignment.strategy", "the source handles cooperative-sticky only"},
    {"enable.auto.commit",            state_owns_offsets},
    {"auto.commit.enable",            state_owns_offsets},
    {"auto.commit.interval.ms",       state_owns_offsets},
    {"enable.auto.offset.store",      state_owns_offsets},
    {"auto.offset.reset",             "a reset skips or rereads silently; see kafka.start, on_gap"},
    {"enable.partition.eof",          "the end of a partition opens its Redis gate"},
    {"isolation.level",               "aborted records must not count: it is read_committed"},
    {"queued.max.messages.kbytes",    memory_key},
    {"fetch.message.max.bytes",       memory_key},
    {"max.partition.fetch.bytes",     memory_key},
    {"consume.callback.max.messages", "the source bounds its reads itself"},
};
/* clang-format on */

static int64_t or_default(int64_t value, int64_t standard)
{
    return value > 0 ? value : standard;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static char *copy_text(const char *text)
{
    if (text == NULL) {
        return NULL;
    }
    char *copy = strdup(text);
    FCAP_ASSERT(copy != NULL);
    return copy;
}

int64_t fcap_source_kafka_queue_kbytes(const struct fcap_source_kafka_settings *settings,
                                       int64_t *ret_fetch_bytes)
{
    int64_t budget = or_default(settings->queues_bytes, (int64_t)64 * 1024 * 1024);
    int64_t share = budget / or_default(settings->partitions_max, 8);
    /* A queue below its limit may still receive one whole response. */
    int64_t above_floor = share - QUEUE_BYTES_MIN;
    *ret_fetch_bytes =
        clamp(above_floor < share / 3 ? above_floor : share / 3, FETCH_BYTES_MIN, FETCH_BYTES_MAX);
    int64_t queue_bytes = share - *ret_fetch_bytes;
    return clamp((queue_bytes < QUEUE_BYTES_MIN ? QUEUE_BYTES_MIN : queue_bytes) / 1024, 1,
                 QUEUE_KBYTES_MAX);
}

static enum fcap_status check(const struct fcap_source_kafka_settings *settings,
                              const struct kafka_config *config, struct fcap_error *error)
{
    if (settings->brokers == NULL || settings->brokers[0] == '\0') {
        return fcap_error_set(error, FCAP_CONFIG, "kafka.brokers: at least one broker is needed");
    }
    enum fcap_status status = fcap_kafka_check_topic("kafka.topic", settings->topic, error);
    if (status != FCAP_OK) {
        return status;
    }
    if (settings->group == NULL || settings->group[0] == '\0') {
        return fcap_error_set(error, FCAP_CONFIG, "kafka.group: a group is needed");
    }
    if (settings->progress_group != NULL &&
        strcmp(settings->progress_group, settings->group) == 0) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "kafka.progress_group: must differ from kafka.group: a member that "
                              "commits during a rebalance loses its partitions");
    }
    if (config->heartbeat_interval_ms >= config->session_timeout_ms) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "kafka.session_timeout: %d ms is not above the heartbeat interval of "
                              "%d ms",
                              config->session_timeout_ms, config->heartbeat_interval_ms);
    }
    return FCAP_OK;
}

static enum fcap_status set_connection(rd_kafka_conf_t *conf,
                                       const struct fcap_source_kafka_settings *settings,
                                       struct fcap_error *error)
{
    static const char *const pairs[][2] = {
        {"client.id", "fcapd"},
        {"isolation.level", "read_committed"},
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
        {"auto.offset.reset", "error"},
        {"enable.partition.eof", "true"},
        {"allow.auto.create.topics", "false"},
        {"socket.nagle.disable", "true"},
        {"socket.keepalive.enable", "true"},
        /* Long back-offs outlast the session when the only broker restarts. */
        {"reconnect.backoff.ms", "100"},
        {"reconnect.backoff.max.ms", "1000"},
        {"log.connection.close", "false"},
    };
    for (size_t i = 0; i < COUNT(pairs); i++) {
        enum fcap_status status = fcap_kafka_set(conf, pairs[i][0], pairs[i][1], error);
        if (status != FCAP_OK) {
            return status;
        }
    }
    return fcap_kafka_set(conf, "bootstrap.servers", settings->brokers, error);
}

static enum fcap_status set_member(rd_kafka_conf_t *conf,
                                   const struct fcap_source_kafka_settings *settings,
                                   const struct kafka_config *config, struct fcap_error *error)
{
    int64_t fetch_bytes = 0;
    int64_t queue_kbytes = fcap_source_kafka_queue_kbytes(settings, &fetch_bytes);
    int64_t max_poll_ms = or_default(settings->max_poll_interval_ms, 300000);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"session.timeout.ms", config->session_timeout_ms},
        {"heartbeat.interval.ms", config->heartbeat_interval_ms},
        {"max.poll.interval.ms",
         max_poll_ms > config->session_timeout_ms ? max_poll_ms : config->session_timeout_ms},
        {"topic.metadata.refresh.interval.ms", config->metadata_refresh_ms},
        /* One answer to each fetch holds what came in a moment, not what one producer sent. Half of
         * what may come at once is always enough, so a backlog is never waited for. */
        {"fetch.wait.max.ms", or_default(settings->fetch_wait_ms, 10)},
        {"fetch.min.bytes", fetch_bytes / 2},
        {"queued.max.messages.kbytes", queue_kbytes},
        {"fetch.message.max.bytes", fetch_bytes},
        /* The limit in bytes is the one that counts: a low limit in messages is a second way to
         * read one queue full a second. */
        {"queued.min.messages", 1000000},
    };
    for (size_t i = 0; i < COUNT(numbers); i++) {
        enum fcap_status status =
            fcap_kafka_set_number(conf, numbers[i].name, numbers[i].value, error);
        if (status != FCAP_OK) {
            return status;
        }
    }
    enum fcap_status status =
        fcap_kafka_set(conf, "partition.assignment.strategy", "cooperative-sticky", error);
    if (status == FCAP_OK) {
        status = fcap_kafka_set(conf, "group.id", config->group, error);
    }
    if (status == FCAP_OK && config->instance_id != NULL) {
        status = fcap_kafka_set(conf, "group.instance.id", config->instance_id, error);
    }
    /* From 2.2 on a full queue is looked at again soon. Before that it waits for a second, so
     * there the queue should hold a second's worth of records. */
    (void)rd_kafka_conf_set(conf, "fetch.queue.backoff.ms", "10", NULL, 0); /* Unknown on 2.0.2. */
    return status;
}

static void fill(const struct fcap_source_kafka_settings *settings, struct kafka_config *config)
{
    int session_ms = (int)or_default(settings->session_timeout_ms, 45000);
    *config = (struct kafka_config){
        .topic = copy_text(settings->topic),
        .group = copy_text(settings->group),
        .instance_id = copy_text(settings->instance_id),
        .session_timeout_ms = session_ms,
        .heartbeat_interval_ms =
            (int)or_default(settings->heartbeat_interval_ms, clamp(session_ms / 15, 100, 3000)),
        .metadata_refresh_ms = (int)or_default(settings->metadata_refresh_ms, 5000),
        .publish_interval_ms = (int)or_default(settings->publish_interval_ms, 5000),
        .close_timeout_ms = (int)or_default(settings->close_timeout_ms, 10000),
        .stall_timeout_ms = (int)or_default(settings->stall_timeout_ms, 30000),
        .decoder = settings->decoder,
        .read_by_events = settings->read_by_events,
        .looked_up = settings->looked_up,
        .looked_up_context = settings->looked_up_context,
    };
}

enum fcap_status kafka_config_make(const struct fcap_source_kafka_settings *settings,
                                   struct kafka_config *ret_config, rd_kafka_conf_t **ret_member,
                                   rd_kafka_conf_t **ret_helper, struct fcap_error *error)
{
    struct kafka_config config;
    rd_kafka_conf_t *confs[2] = {NULL, NULL};
    char progress[512];
    fill(settings, &config);
    enum fcap_status status = check(settings, &config, error);
    if (status != FCAP_OK) {
        goto out;
    }
    for (size_t i = 0; i < COUNT(confs); i++) {
        confs[i] = rd_kafka_conf_new();
        /* Ours first: the user may replace what is only a default; the refusals name the rest. */
        status = set_connection(confs[i], settings, error);
        if (status == FCAP_OK && i == 0) {
            status = set_member(confs[i], settings, &config, error);
        }
        if (status == FCAP_OK) {
            status =
                fcap_kafka_set_properties(confs[i], settings->properties, settings->property_count,
                                          refusals, COUNT(refusals), error);
        }
        if (status != FCAP_OK) {
            goto out;
        }
    }
    int length = settings->progress_group != NULL
                     ? snprintf(progress, sizeof progress, "%s", settings->progress_group)
                     : snprintf(progress, sizeof progress, "%s-progress", settings->group);
    if (length >= (int)sizeof progress) {
        status = fcap_error_set(error, FCAP_CONFIG, "kafka.progress_group: too long");
        goto out;
    }
    status = fcap_kafka_set(confs[1], "group.id", progress, error);
    if (status == FCAP_OK) {
        status = fcap_kafka_set(confs[1], "fetch.wait.max.ms", "10", error);
    }
    if (status == FCAP_OK) {
        /* It reads single records, and is to stop soon after them. */
        status = fcap_kafka_set(confs[1], "fetch.message.max.bytes", "65536", error);
    }
    if (status != FCAP_OK) {
        goto out;
    }
    *ret_config = config;
    *ret_member = confs[0];
    *ret_helper = confs[1];
    memset(&config, 0, sizeof config);
    confs[0] = NULL;
    confs[1] = NULL;
out:
    for (size_t i = 0; i < COUNT(confs); i++) {
        if (confs[i] != NULL) {
            rd_kafka_conf_destroy(confs[i]);
        }
    }
    kafka_config_done(&config);
    return status;
}

void kafka_config_done(struct kafka_config *config)
{
    free(config->topic);
    free(config->group);
    free(config->instance_id);
    *config = (struct kafka_config){0};
}

static void be_quiet(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client;
    (void)level;
    (void)facility;
    (void)text; /* Whether a broker answers is not the question. */
}

enum fcap_status fcap_source_kafka_check(const struct fcap_source_kafka_settings *settings,
                                         struct fcap_error *error)
{
    struct kafka_config config;
    rd_kafka_conf_t *member = NULL;
    rd_kafka_conf_t *helper = NULL;
    enum fcap_status status = kafka_config_make(settings, &config, &member, &helper, error);
    if (status != FCAP_OK) {
        return status;
    }
    /* Some contradictions are found only when a client is made of it. */
    char text[512];
    rd_kafka_conf_set_log_cb(member, be_quiet);
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, member, text, sizeof text);
    if (client == NULL) {
        rd_kafka_conf_destroy(member);
        status = fcap_error_set(error, FCAP_CONFIG, "kafka.librdkafka: %s", text);
    } else {
        rd_kafka_destroy(client); /* Never subscribed: returns at once. */
    }
    rd_kafka_conf_destroy(helper);
    kafka_config_done(&config);
    return status;
}
