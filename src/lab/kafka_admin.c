#include "lab/kafka_broker.h"
#include "lab/kafka_client.h"
#include "lab/lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CALL_MS 30000

static void be_quiet(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client;
    (void)level;
    (void)facility;
    (void)text;
}

static void ignore_error(rd_kafka_t *client, int error, const char *reason, void *opaque)
{
    (void)client;
    (void)error;
    (void)reason;
    (void)opaque;
}

rd_kafka_conf_t *kafka_client_conf(const char *brokers)
{
    char text[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", brokers, text, sizeof text) !=
            RD_KAFKA_CONF_OK ||
        rd_kafka_conf_set(conf, "reconnect.backoff.max.ms", "500", text, sizeof text) !=
            RD_KAFKA_CONF_OK) {
        lab_die("%s", text);
    }
    rd_kafka_conf_set_log_cb(conf, be_quiet);
    rd_kafka_conf_set_error_cb(conf, ignore_error);
    return conf;
}

rd_kafka_t *kafka_client_open(const char *brokers, rd_kafka_type_t type)
{
    char text[512];
    rd_kafka_t *client = rd_kafka_new(type, kafka_client_conf(brokers), text, sizeof text);
    if (client == NULL) {
        lab_die("%s", text);
    }
    return client;
}

const char *kafka_unique(const char *prefix)
{
    static char names[16][200];
    static unsigned next;
    char *name = names[next % 16];
    next++;
    (void)snprintf(name, sizeof names[0], "%s-%d-%u-%lld", prefix, (int)getpid(), next,
                   (long long)(lab_wall_ms() % 1000000000));
    return name;
}

/* Waits for one admin result and ends the program unless it is good. */
static void finish(rd_kafka_t *client, rd_kafka_queue_t *queue, const char *what)
{
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, CALL_MS);
    if (event == NULL || rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        lab_die("%s: %s", what, event != NULL ? rd_kafka_event_error_string(event) : "timeout");
    }
    size_t count = 0;
    const rd_kafka_topic_result_t **results = NULL;
    switch (rd_kafka_event_type(event)) {
    case RD_KAFKA_EVENT_CREATETOPICS_RESULT:
        results =
            rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
        break;
    case RD_KAFKA_EVENT_DELETETOPICS_RESULT:
        results =
            rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
        break;
    case RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT:
        results = rd_kafka_CreatePartitions_result_topics(
            rd_kafka_event_CreatePartitions_result(event), &count);
        break;
    case RD_KAFKA_EVENT_DELETERECORDS_RESULT: {
        const rd_kafka_topic_partition_list_t *offsets =
            rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event));
        for (int i = 0; i < offsets->cnt; i++) {
            if (offsets->elems[i].err != RD_KAFKA_RESP_ERR_NO_ERROR) {
                lab_die("%s: %s", what, rd_kafka_err2str(offsets->elems[i].err));
            }
        }
        break;
    }
    default:
        lab_die("%s: unexpected event", what);
    }
    for (size_t i = 0; i < count; i++) {
        if (rd_kafka_topic_result_error(results[i]) != RD_KAFKA_RESP_ERR_NO_ERROR) {
            lab_die("%s: %s", what, rd_kafka_err2str(rd_kafka_topic_result_error(results[i])));
        }
    }
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
}

static void wait_for_leaders(const char *brokers, const char *topic, int partitions)
{
    rd_kafka_t *client = kafka_client_open(brokers, RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    int64_t until_ms = lab_monotonic_ms() + CALL_MS;
    for (bool ready = false; !ready;) {
        const struct rd_kafka_metadata *metadata = NULL;
        if (rd_kafka_metadata(client, 0, handle, &metadata, 5000) == RD_KAFKA_RESP_ERR_NO_ERROR) {
            ready = metadata->topic_cnt == 1 && metadata->topics[0].partition_cnt == partitions;
            for (int i = 0; ready && i < partitions; i++) {
                ready = metadata->topics[0].partitions[i].leader >= 0;
            }
            rd_kafka_metadata_destroy(metadata);
        }
        if (!ready && lab_monotonic_ms() > until_ms) {
            lab_die("%s: no leaders", topic);
        }
        if (!ready) {
            (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        }
    }
    rd_kafka_topic_destroy(handle);
    rd_kafka_destroy(client);
}

void kafka_create_topic(const char *brokers, const char *topic, int partitions,
                        const char *const *config)
{
    char text[512];
    rd_kafka_t *client = kafka_client_open(brokers, RD_KAFKA_PRODUCER);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_NewTopic_t *request = rd_kafka_NewTopic_new(topic, partitions, 1, text, sizeof text);
    if (request == NULL) {
        lab_die("%s: %s", topic, text);
    }
    for (size_t i = 0; config != NULL && config[i] != NULL; i += 2) {
        (void)rd_kafka_NewTopic_set_config(request, config[i], config[i + 1]);
    }
    rd_kafka_CreateTopics(client, &request, 1, NULL, queue);
    finish(client, queue, topic);
    rd_kafka_NewTopic_destroy(request);
    wait_for_leaders(brokers, topic, partitions);
}

void kafka_delete_topic(const char *brokers, const char *topic)
{
    rd_kafka_t *client = kafka_client_open(brokers, RD_KAFKA_PRODUCER);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DeleteTopic_t *request = rd_kafka_DeleteTopic_new(topic);
    rd_kafka_DeleteTopics(client, &request, 1, NULL, queue);
    finish(client, queue, topic);
    rd_kafka_DeleteTopic_destroy(request);
}

bool kafka_answers(const char *brokers, int timeout_ms)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_t *client = kafka_client_open(brokers, RD_KAFKA_PRODUCER);
    bool answers =
        rd_kafka_metadata(client, 0, NULL, &metadata, timeout_ms) == RD_KAFKA_RESP_ERR_NO_ERROR;
    if (answers) {
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_destroy(client);
    return answers;
}

bool kafka_has_topic(const char *brokers, const char *topic)
{
    const struct rd_kafka_metadata *metadata = NULL;
    bool found = false;
    rd_kafka_t *client = kafka_client_open(brokers, RD_KAFKA_PRODUCER);
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 1, NULL, &metadata, CALL_MS);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        lab_die("topics: %s", rd_kafka_err2str(error));
    }
    for (int i = 0; i < metadata->topic_cnt; i++) {
        found = found || strcmp(metadata->topics[i].topic, topic) == 0;
    }
    rd_kafka_metadata_destroy(metadata);
    rd_kafka_destroy(client);
    return found;
}

bool kafka_try_delete_topic(const char *brokers, const char *topic, char *why, size_t why_size)
{
    rd_kafka_t *client = kafka_client_open(brokers, RD_KAFKA_PRODUCER);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DeleteTopic_t *request = rd_kafka_DeleteTopic_new(topic);
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR__TIMED_OUT;
    rd_kafka_DeleteTopics(client, &request, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, CALL_MS);
    if (event != NULL) {
        size_t count = 0;
        error = rd_kafka_event_error(event);
        const rd_kafka_topic_result_t **results =
            rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR && count > 0) {
            error = rd_kafka_topic_result_error(results[0]);
        }
        rd_kafka_event_destroy(event);
    }
    rd_kafka_DeleteTopic_destroy(request);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
    (void)snprintf(why, why_size, "%s", rd_kafka_err2str(error));
    return error == RD_KAFKA_RESP_ERR_NO_ERROR || error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
}

void kafka_delete_records(const char *brokers, const char *topic, int32_t partition, int64_t before)
{
    rd_kafka_t *client = kafka_client_open(brokers, RD_KAFKA_PRODUCER);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = before;
    rd_kafka_DeleteRecords_t *request = rd_kafka_DeleteRecords_new(list);
    rd_kafka_DeleteRecords(client, &request, 1, NULL, queue);
    finish(client, queue, topic);
    rd_kafka_DeleteRecords_destroy(request);
    rd_kafka_topic_partition_list_destroy(list);
}

void kafka_add_partitions(const char *brokers, const char *topic, int partitions)
{
    char text[512];
    rd_kafka_t *client = kafka_client_open(brokers, RD_KAFKA_PRODUCER);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_NewPartitions_t *request =
        rd_kafka_NewPartitions_new(topic, (size_t)partitions, text, sizeof text);
    if (request == NULL) {
        lab_die("%s: %s", topic, text);
    }
    rd_kafka_CreatePartitions(client, &request, 1, NULL, queue);
    finish(client, queue, topic);
    rd_kafka_NewPartitions_destroy(request);
    wait_for_leaders(brokers, topic, partitions);
}

static rd_kafka_t *open_reader(const char *brokers, const char *group)
{
    char text[512];
    rd_kafka_conf_t *conf = kafka_client_conf(brokers);
    if (rd_kafka_conf_set(conf, "group.id", group, text, sizeof text) != RD_KAFKA_CONF_OK ||
        rd_kafka_conf_set(conf, "isolation.level", "read_committed", text, sizeof text) !=
            RD_KAFKA_CONF_OK) {
        lab_die("%s", text);
    }
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (client == NULL) {
        lab_die("%s", text);
    }
    return client;
}

int64_t kafka_committed(const char *brokers, const char *group, const char *topic,
                        int32_t partition)
{
    rd_kafka_t *client = open_reader(brokers, group);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition);
    rd_kafka_resp_err_t error = rd_kafka_committed(client, list, CALL_MS);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        lab_die("committed offsets of %s: %s", group, rd_kafka_err2str(error));
    }
    int64_t offset = list->elems[0].offset;
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(client);
    return offset < 0 ? -1 : offset;
}

/* On a starved machine the client may know no partition of a topic for a moment. */
static bool is_passing(rd_kafka_resp_err_t error)
{
    return error == RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION ||
           error == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE ||
           error == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION ||
           error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
           error == RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH ||
           error == RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH;
}

void kafka_client_ends(rd_kafka_t *client, const char *topic, int32_t partition, int64_t *ret_low,
                       int64_t *ret_end)
{
    int64_t until_ms = lab_monotonic_ms() + CALL_MS;
    for (;;) {
        rd_kafka_resp_err_t error =
            rd_kafka_query_watermark_offsets(client, topic, partition, ret_low, ret_end, CALL_MS);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
            return;
        }
        if (!is_passing(error) || lab_monotonic_ms() > until_ms) {
            lab_die("ends of %s [%d]: %s", topic, partition, rd_kafka_err2str(error));
        }
        lab_pause_ms(50);
    }
}

void kafka_ends(const char *brokers, const char *topic, int32_t partition, int64_t *ret_low,
                int64_t *ret_end)
{
    rd_kafka_t *client = open_reader(brokers, "harness");
    kafka_client_ends(client, topic, partition, ret_low, ret_end);
    rd_kafka_destroy(client);
}
