/* Dead letters to a Kafka topic: refused records with their reason and origin in headers.
 *
 * A letter holds key and value of the record unchanged (null stays null) and the headers
 * fcap.reason, fcap.topic, fcap.partition, fcap.offset and fcap.timestamp (decimal; -1: none). It
 * is durable when all in-sync replicas have it. A letter may arrive twice, and in another order.
 *
 * Thread rule: everything belongs to the worker's thread, except where "any thread" is said. */
#ifndef FCAP_DEAD_LETTERS_KAFKA_H
#define FCAP_DEAD_LETTERS_KAFKA_H

#include "fcap/ports.h"
#include "fcap/source_kafka.h"

enum fcap_dead_letters_policy {
    FCAP_DEAD_LETTERS_STALL, /* a letter that cannot be written is tried for ever; BUSY when full */
    FCAP_DEAD_LETTERS_DROP,  /* it is dropped and counted */
};

/* Borrowed during open. 0 or NULL takes the default, where one is named. */
struct fcap_dead_letters_kafka_settings {
    const char *brokers;
    const char *topic;        /* where letters go; must exist or be created by the broker */
    const char *source_topic; /* goes into fcap.topic */
    const struct fcap_source_kafka_property *properties; /* kafka.librdkafka.* */
    size_t property_count;
    enum fcap_dead_letters_policy policy;
    size_t letters_max;   /* not yet durable; default 10000 */
    size_t bytes_max;     /* their keys and values; default 16 MiB; one letter always fits */
    int retry_ms;         /* pause before a refused letter is tried again; default 1000 */
    int give_up_ms;       /* policy drop: how long one letter is tried; default 30000 */
    int close_timeout_ms; /* how long close waits for letters under way; default 5000 */
    void (*log)(void *context, int level, const char *text); /* as fcap_source_kafka_settings */
    void *log_context;
};

/* Counters only grow. */
struct fcap_dead_letters_kafka_snapshot {
    uint64_t written;       /* letters that are durable */
    uint64_t dropped;       /* letters lost by policy */
    uint64_t retried;       /* tries that failed and are made again */
    uint64_t busy;          /* write() calls answered with BUSY */
    uint64_t errors;        /* errors reported by librdkafka */
    size_t pending;         /* letters not yet durable */
    bool idempotent;        /* false: the broker did not allow it */
    int64_t stuck_since_ms; /* CLOCK_MONOTONIC since when letters fail; 0: they do not */
    char error[512];        /* the newest error's text; kept when it is over */
};

struct fcap_dead_letters_kafka;

/* Creates the producer; connects in the background. CONFIG: `error` names the setting or property.
 * Gives the port's owner; close it. */
enum fcap_status
fcap_dead_letters_kafka_open(const struct fcap_dead_letters_kafka_settings *settings,
                             struct fcap_dead_letters_kafka **ret_letters,
                             struct fcap_error *error);

/* The port. Valid until close. done() must be called now and then: it also drives retries. */
struct fcap_dead_letters *fcap_dead_letters_kafka_port(struct fcap_dead_letters_kafka *letters);

/* What happened so far. Any thread. */
void fcap_dead_letters_kafka_snapshot(struct fcap_dead_letters_kafka *letters,
                                      struct fcap_dead_letters_kafka_snapshot *ret_snapshot);

/* Waits for letters under way up to the close timeout, then frees everything. Letters that are not
 * durable by then were never reported by done(), so their records are read again. NULL is fine. */
void fcap_dead_letters_kafka_close(struct fcap_dead_letters_kafka *letters);

#endif
