/* One look at the cluster: does the topic exist, how many partitions has it, how is it configured.
 *
 * Thread rule: blocks the caller up to the timeout; never call it on a worker. */
#ifndef FCAP_KAFKA_PROBE_H
#define FCAP_KAFKA_PROBE_H

#include "fcap/source_kafka.h"

#include <stdbool.h>
#include <stdint.h>

struct fcap_kafka_probe_settings {
    const char *brokers;
    const char *topic;
    const char *dead_letter_topic; /* NULL: not asked for */
    const struct fcap_source_kafka_property *properties;
    size_t property_count;
    bool with_config; /* ask for the topic's configuration too (needs DESCRIBE_CONFIGS) */
    int timeout_ms;   /* of each question */
};

struct fcap_kafka_probe_topic {
    bool exists;
    int32_t partitions;
    char error[256]; /* why it is not there; "" when it exists */
};

struct fcap_kafka_probe {
    struct fcap_kafka_probe_topic topic;
    struct fcap_kafka_probe_topic dead_letters;
    bool config_known;
    bool is_compacted;       /* cleanup.policy holds "compact" */
    bool has_append_time;    /* message.timestamp.type is LogAppendTime */
    int64_t retention_ms;    /* -1: for ever */
    int64_t retention_bytes; /* a partition; -1: no bound */
    char config_error[256];  /* why the configuration is not known */
    char error[512];         /* why nothing is known */
};

/* OK: *ret_probe is filled as far as the cluster answered. CONFIG: a property is refused;
 * UNAVAILABLE: no broker answered in time; `error` in the probe says it. *ret_probe is always
 * written. */
enum fcap_status fcap_kafka_probe(const struct fcap_kafka_probe_settings *settings,
                                  struct fcap_kafka_probe *ret_probe) FCAP_MUST_USE;

#endif
