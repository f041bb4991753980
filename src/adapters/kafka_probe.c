#include "fcap/kafka_probe.h"

#include "fcap/versions.h"
#include "kafka_properties.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const struct fcap_kafka_refusal refusals[] = {
    {"bootstrap.servers", "use kafka.brokers"},
    {"metadata.broker.list", "use kafka.brokers"},
};
/* clang-format on */

static rd_kafka_t *open_client(const struct fcap_kafka_probe_settings *settings,
                               struct fcap_error *error)
{
    char text[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_t *client = NULL;
    enum fcap_status status = fcap_kafka_set(conf, "bootstrap.servers", settings->brokers, error);
    status = status == FCAP_OK ? fcap_kafka_set(conf, "log_level", "0", error) : status;
    status = status == FCAP_OK ? fcap_kafka_set(conf, "client.id", "fcapd-probe", error) : status;
    if (status == FCAP_OK) {
        status = fcap_kafka_set_properties(conf, settings->properties, settings->property_count,
                                           refusals, sizeof refusals / sizeof refusals[0], error);
    }
    if (status == FCAP_OK) {
        client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
        if (client == NULL) {
            (void)fcap_error_set(error, FCAP_CONFIG, "kafka: %s", text);
        }
    }
    if (client == NULL) {
        rd_kafka_conf_destroy(conf);
    }
    return client;
}

/* Asks without creating: a consumer's topic object does not ask the broker to make one. */
static rd_kafka_resp_err_t look_up(rd_kafka_t *client, const char *name, int timeout_ms,
                                   struct fcap_kafka_probe_topic *ret_topic)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    if (topic == NULL) {
        return rd_kafka_last_error();
    }
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, topic, &metadata, timeout_ms);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        const struct rd_kafka_metadata_topic *found =
            metadata->topic_cnt > 0 ? &metadata->topics[0] : NULL;
        ret_topic->exists = found != NULL && found->err == RD_KAFKA_RESP_ERR_NO_ERROR;
        ret_topic->partitions = ret_topic->exists ? found->partition_cnt : 0;
        if (!ret_topic->exists) {
            (void)snprintf(ret_topic->error, sizeof ret_topic->error, "%s",
                           found == NULL ? "no answer" : rd_kafka_err2str(found->err));
        }
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(topic);
    return error;
}

static void read_entry(const rd_kafka_ConfigEntry_t *entry, struct fcap_kafka_probe *probe)
{
    const char *name = rd_kafka_ConfigEntry_name(entry);
    const char *value = rd_kafka_ConfigEntry_value(entry);
    if (value == NULL) {
        return;
    }
    if (strcmp(name, "cleanup.policy") == 0) {
        probe->is_compacted = strstr(value, "compact") != NULL;
    } else if (strcmp(name, "message.timestamp.type") == 0) {
        probe->has_append_time = strcmp(value, "LogAppendTime") == 0;
    } else if (strcmp(name, "retention.ms") == 0) {
        probe->retention_ms = strtoll(value, NULL, 10);
    } else if (strcmp(name, "retention.bytes") == 0) {
        probe->retention_bytes = strtoll(value, NULL, 10);
    }
}

static void read_config(rd_kafka_event_t *event, struct fcap_kafka_probe *probe)
{
    const rd_kafka_DescribeConfigs_result_t *result = rd_kafka_event_DescribeConfigs_result(event);
    size_t count = 0;
    const rd_kafka_ConfigResource_t **resources =
        result == NULL ? NULL : rd_kafka_DescribeConfigs_result_resources(result, &count);
    rd_kafka_resp_err_t error = rd_kafka_event_error(event);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR && count > 0) {
        error = rd_kafka_ConfigResource_error(resources[0]);
    }
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR || count == 0) {
        (void)snprintf(probe->config_error, sizeof probe->config_error, "%s",
                       error != RD_KAFKA_RESP_ERR_NO_ERROR ? rd_kafka_err2str(error) : "no answer");
        return;
    }
    size_t entry_count = 0;
    const rd_kafka_ConfigEntry_t **entries =
        rd_kafka_ConfigResource_configs(resources[0], &entry_count);
    for (size_t i = 0; i < entry_count; i++) {
        read_entry(entries[i], probe);
    }
    probe->config_known = entry_count > 0;
}

static void describe(rd_kafka_t *client, const struct fcap_kafka_probe_settings *settings,
                     struct fcap_kafka_probe *probe)
{
    char text[256];
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_ConfigResource_t *resource =
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, settings->topic);
    /* Refused only outside of 1 ms to an hour; then the library's own time-out holds. */
    (void)rd_kafka_AdminOptions_set_request_timeout(options, settings->timeout_ms, text,
                                                    sizeof text);
    rd_kafka_DescribeConfigs(client, &resource, 1, options, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, settings->timeout_ms + 1000);
    if (event == NULL) {
        (void)snprintf(probe->config_error, sizeof probe->config_error, "no answer in time");
    } else {
        read_config(event, probe);
        rd_kafka_event_destroy(event);
    }
    rd_kafka_ConfigResource_destroy(resource);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(queue);
}

enum fcap_status fcap_kafka_probe(const struct fcap_kafka_probe_settings *settings,
                                  struct fcap_kafka_probe *ret_probe)
{
    struct fcap_error text = {""};
    *ret_probe = (struct fcap_kafka_probe){.retention_ms = -1, .retention_bytes = -1};
    rd_kafka_t *client = open_client(settings, &text);
    if (client == NULL) {
        (void)snprintf(ret_probe->error, sizeof ret_probe->error, "%.*s",
                       (int)sizeof ret_probe->error - 1, text.text);
        return FCAP_CONFIG;
    }
    rd_kafka_resp_err_t error =
        look_up(client, settings->topic, settings->timeout_ms, &ret_probe->topic);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR && settings->dead_letter_topic != NULL) {
        error = look_up(client, settings->dead_letter_topic, settings->timeout_ms,
                        &ret_probe->dead_letters);
    }
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR && settings->with_config && ret_probe->topic.exists) {
        describe(client, settings, ret_probe);
    }
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        (void)snprintf(ret_probe->error, sizeof ret_probe->error, "%s", rd_kafka_err2str(error));
    }
    rd_kafka_destroy(client);
    return error == RD_KAFKA_RESP_ERR_NO_ERROR ? FCAP_OK : FCAP_UNAVAILABLE;
}

struct fcap_library_version fcap_kafka_version(void)
{
    static char built[32];
    (void)snprintf(built, sizeof built, "%d.%d.%d", RD_KAFKA_VERSION >> 24 & 0xFF,
                   RD_KAFKA_VERSION >> 16 & 0xFF, RD_KAFKA_VERSION >> 8 & 0xFF);
    return (struct fcap_library_version){"librdkafka", built, rd_kafka_version_str()};
}
