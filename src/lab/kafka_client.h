/* What the files of the broker harness share. */
#ifndef FCAP_LAB_KAFKA_CLIENT_H
#define FCAP_LAB_KAFKA_CLIENT_H

#include <librdkafka/rdkafka.h>
#include <stdint.h>

/* A quiet client; destroy it. */
rd_kafka_t *kafka_client_open(const char *brokers, rd_kafka_type_t type);
rd_kafka_conf_t *kafka_client_conf(const char *brokers);

/* Low watermark and end (LSO) by a client that is there. A leader that has just come or moved is
 * waited for; any other failure ends the process. */
void kafka_client_ends(rd_kafka_t *client, const char *topic, int32_t partition, int64_t *ret_low,
                       int64_t *ret_end);

#endif
