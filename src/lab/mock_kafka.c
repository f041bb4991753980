#include "lab/mock_kafka.h"

#include "lab/kafka_client.h"
#include "lab/lab.h"

#include <librdkafka/rdkafka_mock.h>
#include <stdlib.h>

struct mock_kafka {
    rd_kafka_t *client;
    rd_kafka_mock_cluster_t *cluster;
};

struct mock_kafka *mock_kafka_start(void)
{
    return mock_kafka_start_brokers(1);
}

struct mock_kafka *mock_kafka_start_brokers(int count)
{
    struct mock_kafka *mock = calloc(1, sizeof *mock);
    if (mock == NULL) {
        lab_die("no memory");
    }
    mock->client = kafka_client_open("127.0.0.1:1", RD_KAFKA_PRODUCER);
    mock->cluster = rd_kafka_mock_cluster_new(mock->client, count);
    if (mock->cluster == NULL) {
        lab_die("no mock cluster");
    }
    return mock;
}

void mock_kafka_stop(struct mock_kafka *mock)
{
    if (mock != NULL) {
        rd_kafka_mock_cluster_destroy(mock->cluster);
        rd_kafka_destroy(mock->client);
        free(mock);
    }
}

const char *mock_kafka_address(const struct mock_kafka *mock)
{
    return rd_kafka_mock_cluster_bootstraps(mock->cluster);
}

void mock_kafka_create_topic(struct mock_kafka *mock, const char *topic, int partitions)
{
    rd_kafka_resp_err_t error = rd_kafka_mock_topic_create(mock->cluster, topic, partitions, 1);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        lab_die("mock topic: %s", rd_kafka_err2str(error));
    }
}

void mock_kafka_set_leader(struct mock_kafka *mock, const char *topic, int partition, int broker)
{
    rd_kafka_resp_err_t error =
        rd_kafka_mock_partition_set_leader(mock->cluster, topic, partition, broker);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        lab_die("mock leader: %s", rd_kafka_err2str(error));
    }
}

void mock_kafka_fail(struct mock_kafka *mock, int api, int error, int count)
{
    for (int i = 0; i < count; i++) {
        rd_kafka_mock_push_request_errors(mock->cluster, (int16_t)api, 1,
                                          (rd_kafka_resp_err_t)error);
    }
}

void mock_kafka_set_up(struct mock_kafka *mock, int up)
{
    mock_kafka_set_broker_up(mock, 1, up);
}

void mock_kafka_set_broker_up(struct mock_kafka *mock, int broker, int up)
{
    if (up != 0) {
        (void)rd_kafka_mock_broker_set_up(mock->cluster, broker);
    } else {
        (void)rd_kafka_mock_broker_set_down(mock->cluster, broker);
    }
}
