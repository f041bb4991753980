/* librdkafka's mock cluster (one broker, no jars): flow and error injection. Its limits: look-ups
 * by time always answer -1, no static members, no transactions, 5 MiB a partition, and a first join
 * takes 3 s. Thread rule: one thread. */
#ifndef FCAP_LAB_MOCK_KAFKA_H
#define FCAP_LAB_MOCK_KAFKA_H

struct mock_kafka;

struct mock_kafka *mock_kafka_start(void);
void mock_kafka_stop(struct mock_kafka *mock);
const char *mock_kafka_address(const struct mock_kafka *mock);
void mock_kafka_create_topic(struct mock_kafka *mock, const char *topic, int partitions);
/* The next `count` answers to requests of this kind (Kafka's API number) are this error. */
void mock_kafka_fail(struct mock_kafka *mock, int api, int error, int count);
/* The broker hangs up on everybody and is back when `up`. */
void mock_kafka_set_up(struct mock_kafka *mock, int up);

#endif
