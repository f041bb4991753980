/* Closing the Kafka source at bad moments, and brokers and topics that go away under it. */
#include "source_kafka_fixture.h"
#include "lab/lab.h"

#include <librdkafka/rdkafka.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Closing at every early moment: 2.0.2 has had crashes and hangs there. */
static void test_close_early(void **state)
{
    (void)state;
    set_up(3);
    produce(0, 10);
    int freed = 0;
    for (int i = 0; i < 30; i++) {
        recorder_init(&f.recorder, earliest);
        struct fcap_source_kafka *source = open_with(&f.settings);
        struct fcap_source *port = fcap_source_kafka_port(source);
        (void)RECORDER_POLL_UNTIL(port, &f.recorder, plenty, i * 7, false);
        /* What never got an assignment cannot be freed there. */
        bool may_free = rd_kafka_version() >= 0x02030000 || snapshot_of(source).rebalances > 0;
        freed += may_free ? 1 : 0;
        assert_int_equal(fcap_source_kafka_close(source, &f.recorder.handler), may_free);
        assert_int_equal(recorder_owned(&f.recorder), 0);
        assert_clean(&f.recorder);
    }
    assert_true(freed > 0);
}

/* Closing while the group waits for this very member. */
static void test_close_in_rebalance(void **state)
{
    (void)state;
    set_up(4);
    struct recorder other;
    recorder_init(&other, earliest);
    produce(0, 100);
    struct fcap_source_kafka *first = open_with(&f.settings);
    struct fcap_source *a = fcap_source_kafka_port(first);
    assert_true(
        RECORDER_POLL_UNTIL(a, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 100));
    struct fcap_source_kafka *second = open_with(&f.settings);
    struct fcap_source *b = fcap_source_kafka_port(second);
    /* The first is not polled: its REVOKE waits in the main queue. */
    assert_false(RECORDER_POLL_UNTIL(b, &other, plenty, 1500, recorder_owned(&other) == 4));
    int64_t before_ms = lab_monotonic_ms();
    close_clean(first, &f.recorder);
    assert_true(lab_monotonic_ms() - before_ms < 5000);
    assert_int_equal(snapshot_of(second).lost, 0);
    assert_true(RECORDER_POLL_UNTIL(b, &other, plenty, DEADLINE_MS, other.records >= 100));
    assert_int_equal(recorder_owned(&other), 4);
    close_clean(second, &other);
}

/* --- the broker goes away ----------------------------------------------------------------- */

static void test_broker_killed(void **state)
{
    (void)state;
    set_up(0);
    struct kafka_broker *broker = kafka_broker_start();
    f.brokers = kafka_broker_address(broker);
    f.settings.brokers = f.brokers;
    f.settings.session_timeout_ms = 45000;
    kafka_create_topic(f.brokers, f.topic, 3, NULL);
    for (int32_t i = 0; i < 3; i++) {
        produce(i, 2000);
    }
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    f.recorder.stop_after = 100;
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 1000));
    kafka_broker_kill(broker);
    f.recorder.stop_after = 0;
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, none, DEADLINE_MS,
                                    snapshot_of(source).error_since_ms > 0));
    int64_t before_ms = lab_monotonic_ms();
    port->ops->publish(port, 0, 1);
    assert_int_equal(port->ops->poll(port, &f.recorder.handler, none), FCAP_OK);
    assert_true(lab_monotonic_ms() - before_ms < 1000); /* The worker never waits for a broker. */
    kafka_broker_restart(broker);
    for (int32_t i = 0; i < 3; i++) {
        produce(i, 1000);
    }
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 9000));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(f.recorder.partitions[i].records, 3000);
        assert_int_equal(f.recorder.partitions[i].gap_count, 0);
        assert_int_equal(f.recorder.partitions[i].revoked_count, 0);
    }
    assert_int_equal(snapshot_of(source).error_since_ms, 0);

    close_clean(source, &f.recorder);

    /* No broker at the start: tried for ever, seen, and no wait for the worker. */
    kafka_broker_kill(broker);
    recorder_init(&f.recorder, (struct fcap_start){.kind = FCAP_START_TIME, .time_ms = 1});
    source = open_with(&f.settings);
    port = fcap_source_kafka_port(source);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    snapshot_of(source).error_since_ms > 0));
    int64_t asked_ms = lab_monotonic_ms();
    assert_int_equal(port->ops->poll(port, &f.recorder.handler, none), FCAP_OK);
    assert_true(snapshot_of(source).polled_ms >= asked_ms);
    assert_true(lab_monotonic_ms() - asked_ms < 5000); /* The worker never waits for a broker. */
    kafka_broker_restart(broker);
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 9000));
    close_clean(source, &f.recorder);

    /* A broker that hangs: close() keeps its own deadline. */
    f.settings.close_timeout_ms = 1500;
    recorder_init(&f.recorder, earliest);
    source = open_with(&f.settings);
    port = fcap_source_kafka_port(source);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    recorder_started(&f.recorder) == 3));
    (void)kill(kafka_broker_pid(broker), SIGSTOP);
    before_ms = lab_monotonic_ms();
    (void)fcap_source_kafka_close(source, &f.recorder.handler);
    int64_t took_ms = lab_monotonic_ms() - before_ms;
    (void)kill(kafka_broker_pid(broker), SIGCONT);
    print_message("close with a hanging broker took %lld ms\n", (long long)took_ms);
    assert_true(took_ms < 3000);
    assert_int_equal(recorder_owned(&f.recorder), 0);
    kafka_broker_stop(broker);
}

/* On 2.0.2 destroy never returns after this; close must. */
static void test_topic_deleted(void **state)
{
    (void)state;
    set_up(2);
    produce(0, 10);
    f.settings.close_timeout_ms = 3000;
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 10));
    kafka_delete_topic(f.brokers, f.topic);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    snapshot_of(source).error_since_ms > 0));
    int64_t before_ms = lab_monotonic_ms();
    bool freed = fcap_source_kafka_close(source, &f.recorder.handler);
    int64_t took_ms = lab_monotonic_ms() - before_ms;
    print_message("close after the topic was deleted took %lld ms, all freed: %s\n",
                  (long long)took_ms, freed ? "yes" : "no");
    assert_true(took_ms < 5000);
    assert_int_equal(recorder_owned(&f.recorder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_early), cmocka_unit_test(test_close_in_rebalance),
        cmocka_unit_test(test_broker_killed),
        cmocka_unit_test(test_topic_deleted), /* Last: may leave threads of the client behind. */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
