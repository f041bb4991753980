/* librdkafka's mock cluster (no jars): flow and error injection. Its limits: look-ups
 * by time always answer -1, no static members, no transactions, 5 MiB a partition, and a first join
 * takes 3 s. Thread rule: one thread. */
#ifndef FCAP_LAB_MOCK_KAFKA_H
#define FCAP_LAB_MOCK_KAFKA_H

struct mock_kafka;

/* One broker. */
struct mock_kafka *mock_kafka_start(void);
/* Brokers 1..count. */
struct mock_kafka *mock_kafka_start_brokers(int count);
void mock_kafka_stop(struct mock_kafka *mock);
const char *mock_kafka_address(const struct mock_kafka *mock);
void mock_kafka_create_topic(struct mock_kafka *mock, const char *topic, int partitions);
/* This broker leads the partition from now on. */
void mock_kafka_set_leader(struct mock_kafka *mock, const char *topic, int partition, int broker);
/* The next `count` answers to requests of this kind (Kafka's API number) are this error. */
void mock_kafka_fail(struct mock_kafka *mock, int api, int error, int count);
/* Broker 1 hangs up on everybody and is back when `up`. */
void mock_kafka_set_up(struct mock_kafka *mock, int up);
/* The same of any broker. */
void mock_kafka_set_broker_up(struct mock_kafka *mock, int broker, int up);

#endif
