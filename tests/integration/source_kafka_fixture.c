#include "source_kafka_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

struct fixture f;

void set_up(int partitions)
{
    f.brokers = kafka_test_brokers();
    (void)snprintf(f.topic, sizeof f.topic, "%s", kafka_unique("source"));
    (void)snprintf(f.group, sizeof f.group, "%s", kafka_unique("group"));
    f.settings = (struct fcap_source_kafka_settings){.brokers = f.brokers,
                                                     .topic = f.topic,
                                                     .group = f.group,
                                                     .session_timeout_ms = 6000,
                                                     .heartbeat_interval_ms = 300,
                                                     .metadata_refresh_ms = 1000,
                                                     .publish_interval_ms = 200};
    recorder_init(&f.recorder, earliest);
    if (partitions > 0) {
        kafka_create_topic(f.brokers, f.topic, partitions, NULL);
    }
}

struct fcap_source_kafka *open_with(const struct fcap_source_kafka_settings *settings)
{
    struct fcap_error error;
    struct fcap_source_kafka *source = NULL;
    if (fcap_source_kafka_open(settings, &source, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return source;
}

void produce(int32_t partition, int count)
{
    struct kafka_producer *producer = kafka_producer_open(f.brokers, f.topic, NULL, NULL);
    for (int i = 0; i < count; i++) {
        kafka_producer_text(producer, partition, "value");
    }
    assert_int_equal(kafka_producer_flush(producer), count);
    kafka_producer_close(producer);
}

void assert_clean(const struct recorder *recorder)
{
    if (recorder->violations > 0) {
        fail_msg("%u violations, first: %s", recorder->violations, recorder->violation);
    }
}

void close_clean(struct fcap_source_kafka *source, struct recorder *recorder)
{
    assert_true(fcap_source_kafka_close(source, &recorder->handler));
    assert_int_equal(recorder_owned(recorder), 0);
    assert_clean(recorder);
}

struct fcap_source_kafka_snapshot snapshot_of(struct fcap_source_kafka *source)
{
    struct fcap_source_kafka_snapshot snapshot;
    fcap_source_kafka_snapshot(source, &snapshot);
    return snapshot;
}
