/* librdkafka properties for the Kafka adapters: setting them, and refusing by name what would break
 * our rules. Thread rule: no shared state. */
#ifndef FCAP_KAFKA_PROPERTIES_H
#define FCAP_KAFKA_PROPERTIES_H

#include "fcap/source_kafka.h"

#include <librdkafka/rdkafka.h>

/* A property that the configuration may not set, and why. */
struct fcap_kafka_refusal {
    const char *name;
    const char *reason;
};

/* Sets one property of ours. CONFIG: `error` holds librdkafka's text. */
enum fcap_status fcap_kafka_set(rd_kafka_conf_t *conf, const char *name, const char *value,
                                struct fcap_error *error);

/* The same for an integer. */
enum fcap_status fcap_kafka_set_number(rd_kafka_conf_t *conf, const char *name, int64_t value,
                                       struct fcap_error *error);

/* Sets the user's properties. CONFIG: `error` names kafka.librdkafka.<name> with the reason of the
 * refusal or librdkafka's own text. */
enum fcap_status fcap_kafka_set_properties(rd_kafka_conf_t *conf,
                                           const struct fcap_source_kafka_property *properties,
                                           size_t property_count,
                                           const struct fcap_kafka_refusal *refusals,
                                           size_t refusal_count, struct fcap_error *error);

/* CONFIG unless `topic` names exactly one topic that Kafka allows; `key` names the setting. */
enum fcap_status fcap_kafka_check_topic(const char *key, const char *topic,
                                        struct fcap_error *error);

/* Milliseconds of CLOCK_MONOTONIC. */
int64_t fcap_kafka_now_ms(void);

#endif
