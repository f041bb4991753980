/* Another log comes under a reader that holds something of the old one: records fetched ahead, or
 * the answer to a question that was asked before. On a real broker. */
#include "../../src/adapters/source_kafka_internal.h"
#include "source_kafka_fixture.h"
#include "lab/lab.h"
#include "lib/kafka_proxy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define BASE_MS  INT64_C(1764460800000)
#define READ     100 /* records that are read of the old log; a mark stands at each 16th */
#define AHEAD    130 /* records that it holds: the rest is fetched ahead */
#define NEW_LOG  150
#define STALL_MS 1000

static uint64_t old_records; /* at or above READ, from either log */
static uint64_t new_records;

static void note(void *context, const struct fcap_record *record)
{
    (void)context;
    if (record->offset >= READ) {
        old_records += record->value.data[0] == 'a' ? 1 : 0;
        new_records += record->value.data[0] == 'b' ? 1 : 0;
    }
}

/* Records from..to-1 of a kind: the same in two logs when kind and number are. */
static void append(int32_t partition, const char *kind, int from, int to)
{
    struct kafka_producer *producer = kafka_producer_open(f.brokers, f.topic, NULL, NULL);
    for (int i = from; i < to; i++) {
        char key[16];
        int size = snprintf(key, sizeof key, "%s%d", kind, i);
        kafka_producer_send(producer, &(struct kafka_produce){.partition = partition,
                                                              .key = key,
                                                              .key_size = (size_t)size,
                                                              .value = kind,
                                                              .value_size = strlen(kind),
                                                              .timestamp_ms = BASE_MS + i});
    }
    assert_int_equal(kafka_producer_flush(producer), to - from);
    kafka_producer_close(producer);
}

/* Without a pause, so that the group does not see the topic go. */
static void recreate(int partitions)
{
    kafka_delete_topic(f.brokers, f.topic);
    kafka_create_topic(f.brokers, f.topic, partitions, NULL);
}

/* As the client tells it; here at a moment of the test's choice. */
static void tell_unknown(struct fcap_source_kafka *source)
{
    kafka_watch_error(source, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
}

/* The new log has the first `same` records of the old one. What was fetched ahead of the old one
 * is gone: it must not count, and what stands there now must. */
static void check_fetched_ahead(int same)
{
    static const struct fcap_source_budget first = {.records_max = READ, .timeout_ms = 50};
    old_records = 0;
    new_records = 0;
    set_up(1);
    f.settings.metadata_refresh_ms = 30000;
    f.recorder.on_record = note;
    append(0, "a", 0, AHEAD);
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    while (f.recorder.records < READ) {
        struct fcap_source_budget budget = first;
        budget.records_max -= f.recorder.records;
        assert_int_equal(port->ops->poll(port, &f.recorder.handler, budget), FCAP_OK);
    }
    assert_int_equal(f.recorder.records, READ);
    recreate(1);
    append(0, "a", 0, same);
    append(0, "b", same, NEW_LOG);
    tell_unknown(source);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, none, DEADLINE_MS,
                                    f.recorder.partitions[0].started_count == 2));
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    f.recorder.partitions[0].ended >= NEW_LOG));
    assert_int_equal(f.recorder.partitions[0].gap_count, same < READ ? 1 : 0);
    if (same < READ) {
        assert_int_equal(f.recorder.partitions[0].last_gap.kind, FCAP_GAP_TRUNCATED);
        assert_int_equal(f.recorder.partitions[0].last_gap.next, READ);
    }
    assert_int_equal(old_records, 0);
    assert_int_equal(new_records, NEW_LOG - READ);
    close_clean(source, &f.recorder);
}

/* Only the newest mark differs, so reading goes on where it stood. */
static void test_fetched_ahead_of_the_last_mark(void **state)
{
    (void)state;
    check_fetched_ahead(READ - 1);
}

/* Everything that was read is still there. */
static void test_fetched_ahead_of_the_same_log(void **state)
{
    (void)state;
    check_fetched_ahead(READ);
}

static atomic_bool held;
static atomic_uint holding;

static void hold(void *context, int32_t partition)
{
    (void)context;
    (void)partition;
    while (atomic_load(&held)) {
        atomic_store(&holding, 1);
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* A partition is not fetched, and its question is answered for the old log, when the topic is
 * created anew and filled beyond the position: the new log's first records must be read. */
static void test_doubt_outlasts_a_question(void **state)
{
    (void)state;
    set_up(1);
    struct kafka_proxy *proxy = kafka_proxy_start(f.brokers);
    f.settings.brokers = kafka_proxy_address(proxy);
    f.settings.metadata_refresh_ms = 30000;
    f.settings.stall_timeout_ms = STALL_MS;
    f.settings.looked_up = hold;
    append(0, "a", 0, READ);
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    struct recorder_partition *partition = &f.recorder.partitions[0];
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, partition->ended >= READ));
    kafka_proxy_starve(proxy, f.topic, 0);
    assert_false(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, 500, partition->records > READ));
    atomic_store(&held, true);
    append(0, "a", READ, READ + 5);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    snapshot_of(source).stalls > 0 && atomic_load(&holding) > 0));
    recreate(1);
    append(0, "b", 0, NEW_LOG);
    tell_unknown(source);
    /* Longer than doubt waits before it looks. */
    assert_false(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, 2000, partition->records > READ));
    kafka_proxy_starve(proxy, NULL, 0);
    atomic_store(&held, false);
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, partition->ended >= NEW_LOG));
    assert_int_equal(partition->gap_count, 1);
    assert_int_equal(partition->last_gap.kind, FCAP_GAP_RECREATED);
    assert_int_equal(partition->records, READ + NEW_LOG);
    close_clean(source, &f.recorder);
    kafka_proxy_stop(proxy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetched_ahead_of_the_last_mark),
        cmocka_unit_test(test_fetched_ahead_of_the_same_log),
        cmocka_unit_test(test_doubt_outlasts_a_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
