/* What the files of the broker harness share. */
#ifndef FCAP_LAB_KAFKA_CLIENT_H
#define FCAP_LAB_KAFKA_CLIENT_H

#include <librdkafka/rdkafka.h>

/* A quiet client; destroy it. */
rd_kafka_t *kafka_client_open(const char *brokers, rd_kafka_type_t type);
rd_kafka_conf_t *kafka_client_conf(const char *brokers);

#endif
