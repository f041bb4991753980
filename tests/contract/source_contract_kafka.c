/* The contract on librdkafka: `mock` or `broker` as the first argument, `events` as the second for
 * the fall-back way of reading. */
#include "source_contract.h"

#include "fcap/source_kafka.h"
#include "lab/kafka_broker.h"
#include "lab/mock_kafka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kafka_world {
    struct source_world world;
    struct mock_kafka *mock; /* or NULL: a real broker */
    const char *brokers;
    bool by_events;
    char topic[200];
    char group[200];
    struct kafka_producer *producer;
    struct fcap_source_kafka *source;
};

static void create(struct source_world *world, int32_t partitions)
{
    struct kafka_world *kafka = (struct kafka_world *)world;
    (void)snprintf(kafka->topic, sizeof kafka->topic, "%s", kafka_unique("contract"));
    if (kafka->mock != NULL) {
        mock_kafka_create_topic(kafka->mock, kafka->topic, partitions);
    } else {
        kafka_create_topic(kafka->brokers, kafka->topic, partitions, NULL);
    }
    kafka->producer = kafka_producer_open(kafka->brokers, kafka->topic, NULL, NULL);
}

static void append(struct source_world *world, int32_t partition, struct fcap_bytes key,
                   struct fcap_bytes value, int64_t timestamp_ms)
{
    struct kafka_world *kafka = (struct kafka_world *)world;
    kafka_producer_send(kafka->producer, &(struct kafka_produce){.partition = partition,
                                                                 .key = key.data,
                                                                 .key_size = key.size,
                                                                 .value = value.data,
                                                                 .value_size = value.size,
                                                                 .timestamp_ms = timestamp_ms});
}

static void settle(struct source_world *world)
{
    struct kafka_world *kafka = (struct kafka_world *)world;
    (void)kafka_producer_flush(kafka->producer);
}

static void append_aborted(struct source_world *world, int32_t partition, int count)
{
    const struct kafka_world *kafka = (const struct kafka_world *)world;
    struct kafka_producer *producer =
        kafka_producer_open(kafka->brokers, kafka->topic, NULL, kafka_unique("aborted"));
    kafka_producer_begin(producer);
    for (int i = 0; i < count; i++) {
        kafka_producer_send(producer, &(struct kafka_produce){.partition = partition,
                                                              .key = "never",
                                                              .key_size = 5,
                                                              .value = "v",
                                                              .value_size = 1,
                                                              .timestamp_ms = 1});
    }
    (void)kafka_producer_flush(producer); /* What was not sent yet would take no offset. */
    kafka_producer_abort(producer);
    kafka_producer_close(producer);
}

static void trim(struct source_world *world, int32_t partition, int64_t log_start)
{
    struct kafka_world *kafka = (struct kafka_world *)world;
    kafka_delete_records(kafka->brokers, kafka->topic, partition, log_start);
}

static void recreate(struct source_world *world, int32_t partitions)
{
    struct kafka_world *kafka = (struct kafka_world *)world;
    kafka_producer_close(kafka->producer); /* It would remember the old one's leaders. */
    kafka_delete_topic(kafka->brokers, kafka->topic);
    kafka_create_topic(kafka->brokers, kafka->topic, partitions, NULL);
    kafka->producer = kafka_producer_open(kafka->brokers, kafka->topic, NULL, NULL);
}

static struct fcap_source *open_source(struct source_world *world)
{
    struct kafka_world *kafka = (struct kafka_world *)world;
    struct fcap_error error;
    (void)snprintf(kafka->group, sizeof kafka->group, "%s", kafka_unique("group"));
    struct fcap_source_kafka_settings settings = {.brokers = kafka->brokers,
                                                  .topic = kafka->topic,
                                                  .group = kafka->group,
                                                  .session_timeout_ms = 6000,
                                                  .heartbeat_interval_ms = 300,
                                                  .decoder = world->decoder,
                                                  .read_by_events = kafka->by_events};
    if (fcap_source_kafka_open(&settings, &kafka->source, &error) != FCAP_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    return fcap_source_kafka_port(kafka->source);
}

static void close_source(struct source_world *world, const struct fcap_source_handler *handler)
{
    struct kafka_world *kafka = (struct kafka_world *)world;
    if (!fcap_source_kafka_close(kafka->source, handler)) {
        (void)fprintf(stderr, "close did not end in time\n");
        exit(1);
    }
    kafka->source = NULL;
}

static void destroy(struct source_world *world)
{
    struct kafka_world *kafka = (struct kafka_world *)world;
    kafka_producer_close(kafka->producer);
    kafka->producer = NULL;
}

int main(int argc, char **argv)
{
    static char name[64];
    struct kafka_world kafka = {.world = {.create = create,
                                          .append = append,
                                          .settle = settle,
                                          .append_aborted = append_aborted,
                                          .trim = trim,
                                          .recreate = recreate,
                                          .open = open_source,
                                          .close = close_source,
                                          .destroy = destroy}};
    bool is_mock = argc > 1 && strcmp(argv[1], "mock") == 0;
    kafka.by_events = argc > 2 && strcmp(argv[2], "events") == 0;
    if (is_mock) {
        kafka.mock = mock_kafka_start();
        kafka.brokers = mock_kafka_address(kafka.mock);
    } else {
        kafka.brokers = kafka_test_brokers();
        kafka.world.has_times = true;
        kafka.world.can_trim = true;
    }
    (void)snprintf(name, sizeof name, "%s%s", is_mock ? "the mock cluster" : "a real broker",
                   kafka.by_events ? ", by events" : "");
    kafka.world.name = name;
    int failed = source_contract_run(&kafka.world);
    mock_kafka_stop(kafka.mock);
    return failed;
}
