/* What the tests of the Kafka source on a real broker share. */
#ifndef FCAP_TESTS_SOURCE_KAFKA_FIXTURE_H
#define FCAP_TESTS_SOURCE_KAFKA_FIXTURE_H

#include "fcap/source_kafka.h"
#include "lab/kafka_broker.h"
#include "lib/source_recorder.h"

#define DEADLINE_MS 60000

static const struct fcap_source_budget plenty = {.records_max = 10000, .timeout_ms = 50};
static const struct fcap_source_budget none = {.records_max = 0, .timeout_ms = 20};
static const struct fcap_start earliest = {.kind = FCAP_START_EARLIEST};

struct fixture {
    const char *brokers;
    char topic[200];
    char group[200];
    struct fcap_source_kafka_settings settings;
    struct recorder recorder;
};

extern struct fixture f;

/* Names, settings and recorder; the topic unless `partitions` is 0. */
void set_up(int partitions);
struct fcap_source_kafka *open_with(const struct fcap_source_kafka_settings *settings);
/* So many small records, acknowledged. */
void produce(int32_t partition, int count);
void assert_clean(const struct recorder *recorder);
/* Closes; everything must be freed in time and nothing be owned. */
void close_clean(struct fcap_source_kafka *source, struct recorder *recorder);
struct fcap_source_kafka_snapshot snapshot_of(struct fcap_source_kafka *source);

#endif
