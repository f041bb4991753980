#include "kafka_properties.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Kafka's own limit. */
#define TOPIC_LENGTH_MAX 249

enum fcap_status fcap_kafka_set(rd_kafka_conf_t *conf, const char *name, const char *value,
                                struct fcap_error *error)
{
    char text[512];
    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) != RD_KAFKA_CONF_OK) {
        return fcap_error_set(error, FCAP_CONFIG, "kafka: %s = %s: %s", name, value, text);
    }
    return FCAP_OK;
}

enum fcap_status fcap_kafka_set_number(rd_kafka_conf_t *conf, const char *name, int64_t value,
                                       struct fcap_error *error)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64, value); /* Always fits. */
    return fcap_kafka_set(conf, name, text, error);
}

enum fcap_status fcap_kafka_set_properties(rd_kafka_conf_t *conf,
                                           const struct fcap_source_kafka_property *properties,
                                           size_t property_count,
                                           const struct fcap_kafka_refusal *refusals,
                                           size_t refusal_count, struct fcap_error *error)
{
    for (size_t i = 0; i < property_count; i++) {
        const struct fcap_source_kafka_property *property = &properties[i];
        for (size_t k = 0; k < refusal_count; k++) {
            if (strcmp(property->name, refusals[k].name) == 0) {
                return fcap_error_set(error, FCAP_CONFIG, "kafka.librdkafka.%s: %s", property->name,
                                      refusals[k].reason);
            }
        }
        char text[512];
        rd_kafka_conf_res_t result =
            rd_kafka_conf_set(conf, property->name, property->value, text, sizeof text);
        if (result != RD_KAFKA_CONF_OK) {
            return fcap_error_set(error, FCAP_CONFIG, "kafka.librdkafka.%s: %s", property->name,
                                  text);
        }
    }
    return FCAP_OK;
}

enum fcap_status fcap_kafka_check_topic(const char *key, const char *topic,
                                        struct fcap_error *error)
{
    if (topic == NULL || topic[0] == '\0') {
        return fcap_error_set(error, FCAP_CONFIG, "%s: a topic is needed", key);
    }
    if (topic[0] == '^') {
        return fcap_error_set(error, FCAP_CONFIG,
                              "%s: \"%s\" is a regular expression; exactly one topic is read, for "
                              "two would give one user two tasks, two clocks and one Redis key",
                              key, topic);
    }
    if (strpbrk(topic, ", \t\n") != NULL) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "%s: \"%s\" looks like a list; exactly one topic is read, for two "
                              "would give one user two tasks, two clocks and one Redis key",
                              key, topic);
    }
    size_t length = strlen(topic);
    if (length > TOPIC_LENGTH_MAX || strcmp(topic, ".") == 0 || strcmp(topic, "..") == 0 ||
        strspn(topic, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
            length) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "%s: \"%s\" is no topic name: letters, digits, '.', '_' and '-' are "
                              "allowed, at most %d of them",
                              key, topic, TOPIC_LENGTH_MAX);
    }
    return FCAP_OK;
}

int64_t fcap_kafka_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* Cannot fail for this clock. */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
