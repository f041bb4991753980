/* The Kafka source on a real broker: what the contract suite (tests/contract) does not reach. */
#include "../../src/adapters/source_kafka_internal.h"
#include "source_kafka_fixture.h"
#include "lab/lab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* --- what a log can hold ------------------------------------------------------------------ */

static void test_transactions(void **state)
{
    (void)state;
    set_up(1);
    struct kafka_producer *writer = kafka_producer_open(f.brokers, f.topic, NULL, f.topic);
    kafka_producer_begin(writer);
    for (int i = 0; i < 10; i++) {
        kafka_producer_text(writer, 0, "committed");
    }
    kafka_producer_commit(writer); /* 0..9, marker 10 */
    kafka_producer_begin(writer);
    for (int i = 0; i < 5; i++) {
        kafka_producer_text(writer, 0, "aborted");
    }
    (void)kafka_producer_flush(writer);
    kafka_producer_abort(writer); /* 11..15, marker 16 */
    kafka_producer_begin(writer);
    for (int i = 0; i < 3; i++) {
        kafka_producer_text(writer, 0, "open");
    }
    (void)kafka_producer_flush(writer); /* 17..19, still open */
    produce(0, 4);                      /* 20..23, not visible yet */

    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    struct recorder_partition *partition = &f.recorder.partitions[0];
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, partition->ended >= 17));
    assert_int_equal(partition->last_start.end, 17); /* The LSO, not 24. */
    assert_int_equal(partition->records, 10);
    assert_int_equal(partition->ended, 17);
    kafka_producer_commit(writer); /* marker 24 */
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, partition->ended >= 25));
    assert_int_equal(partition->records, 17);
    close_clean(source, &f.recorder);
    kafka_producer_close(writer);

    /* Starting at the end that was told is no gap, though the last record lies before a marker. */
    recorder_init(&f.recorder, (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = 25});
    source = open_with(&f.settings);
    assert_true(RECORDER_POLL_UNTIL(fcap_source_kafka_port(source), &f.recorder, plenty,
                                    DEADLINE_MS, partition->ended >= 25));
    assert_int_equal(partition->records + partition->gap_count, 0);
    close_clean(source, &f.recorder);
}

static void test_codecs(void **state)
{
    (void)state;
    static const char *const codecs[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    set_up(5);
    for (int32_t i = 0; i < 5; i++) {
        struct kafka_producer *producer = kafka_producer_open(f.brokers, f.topic, codecs[i], NULL);
        for (int k = 0; k < 2000; k++) {
            kafka_producer_text(producer, i, "{\"user\":\"u\",\"ad\":\"a\",\"time\":1}");
        }
        kafka_producer_close(producer);
    }
    struct fcap_source_kafka *source = open_with(&f.settings);
    assert_true(RECORDER_POLL_UNTIL(fcap_source_kafka_port(source), &f.recorder, plenty,
                                    DEADLINE_MS, f.recorder.records >= 10000));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(f.recorder.partitions[i].records, 2000);
    }
    struct fcap_source_kafka_snapshot snapshot = snapshot_of(source);
    assert_int_equal(snapshot.records, 10000);
    assert_int_equal(snapshot.bytes, 10000 * strlen("{\"user\":\"u\",\"ad\":\"a\",\"time\":1}"));
    assert_int_equal(snapshot.assigned, 5);
    assert_int_equal(snapshot.waiting, 0);
    assert_int_equal(snapshot.topic_partitions, 5);
    close_clean(source, &f.recorder);
}

/* --- starts --------------------------------------------------------------------------------- */

/* On the helper's thread: the gap between a look-up and the assignment, made visible. */
static void produce_behind(void *context, int32_t partition)
{
    struct kafka_producer *producer = context;
    kafka_producer_text(producer, partition, "E");
    (void)kafka_producer_flush(producer);
}

/* Field report B19: -1 for "no record that young" must not become "wherever the end is later". */
static void test_look_up_then_append(void **state)
{
    (void)state;
    set_up(3);
    int64_t now_ms = lab_wall_ms();
    struct kafka_producer *producer = kafka_producer_open(f.brokers, f.topic, NULL, NULL);
    kafka_producer_send(producer, &(struct kafka_produce){.partition = 1,
                                                          .value = "old",
                                                          .value_size = 3,
                                                          .timestamp_ms = now_ms - 3 * 3600000});
    kafka_producer_send(producer, &(struct kafka_produce){.partition = 2,
                                                          .value = "old",
                                                          .value_size = 3,
                                                          .timestamp_ms = now_ms - 3 * 3600000});
    kafka_producer_text(producer, 2, "young");
    (void)kafka_producer_flush(producer);
    recorder_init(&f.recorder,
                  (struct fcap_start){.kind = FCAP_START_TIME, .time_ms = now_ms - 3600000});
    f.settings.looked_up = produce_behind;
    f.settings.looked_up_context = producer;
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    f.recorder.partitions[0].ended >= 1 &&
                                        f.recorder.partitions[1].ended >= 2 &&
                                        f.recorder.partitions[2].ended >= 3));
    static const int64_t offsets[] = {0, 1, 1};
    static const int64_t ends[] = {0, 1, 2};
    static const int64_t records[] = {1, 1, 2};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(f.recorder.partitions[i].last_start.offset, offsets[i]);
        assert_int_equal(f.recorder.partitions[i].last_start.end, ends[i]);
        assert_int_equal(f.recorder.partitions[i].records, records[i]);
    }
    for (int32_t i = 0; i < 3; i++) {
        produce(i, 1);
    }
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 7));
    close_clean(source, &f.recorder);
    kafka_producer_close(producer);
}

static atomic_bool held;

static void hold(void *context, int32_t partition)
{
    (void)context;
    (void)partition;
    while (atomic_load(&held)) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* A partition that is revoked while its start is still being looked up: dropped cleanly here,
 * whole at its new owner. */
static void test_revoked_while_looked_up(void **state)
{
    (void)state;
    set_up(4);
    for (int32_t i = 0; i < 4; i++) {
        produce(i, 100);
    }
    struct recorder other;
    recorder_init(&other, earliest);
    atomic_store(&held, true);
    struct fcap_source_kafka_settings slow = f.settings;
    slow.looked_up = hold;
    struct fcap_source_kafka *first = open_with(&slow);
    struct fcap_source *port = fcap_source_kafka_port(first);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    recorder_owned(&f.recorder) == 4));
    struct fcap_source_kafka *second = open_with(&f.settings);
    struct fcap_source *other_port = fcap_source_kafka_port(second);
    int64_t until_ms = lab_monotonic_ms() + DEADLINE_MS;
    while (other.records < 200 && lab_monotonic_ms() < until_ms) {
        assert_int_equal(port->ops->poll(port, &f.recorder.handler, none), FCAP_OK);
        assert_int_equal(other_port->ops->poll(other_port, &other.handler, plenty), FCAP_OK);
    }
    assert_int_equal(other.records, 200);
    assert_int_equal(recorder_owned(&f.recorder), 2);
    assert_int_equal(recorder_started(&f.recorder), 0);
    assert_int_equal(f.recorder.records, 0);
    assert_int_equal(snapshot_of(first).waiting, 2);
    atomic_store(&held, false);
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 200));
    assert_int_equal(f.recorder.records, 200);
    assert_int_equal(snapshot_of(first).lost + snapshot_of(second).lost, 0);
    close_clean(first, &f.recorder);
    close_clean(second, &other);
}

static void test_topic_created_later(void **state)
{
    (void)state;
    set_up(0);
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    snapshot_of(source).errors > 0));
    assert_true(snapshot_of(source).error_since_ms > 0);
    assert_non_null(strstr(snapshot_of(source).error, "nknown topic"));
    kafka_create_topic(f.brokers, f.topic, 2, NULL);
    produce(0, 5);
    produce(1, 5);
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 10));
    assert_int_equal(snapshot_of(source).error_since_ms, 0);
    close_clean(source, &f.recorder);
}

static void test_partitions_added(void **state)
{
    (void)state;
    set_up(2);
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    produce(0, 3);
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 3));
    kafka_add_partitions(f.brokers, f.topic, 4);
    produce(3, 7);
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 10));
    assert_int_equal(recorder_owned(&f.recorder), 4);
    assert_int_equal(f.recorder.partitions[3].last_start.partition_count, 4);
    assert_int_equal(f.recorder.partitions[0].revoked_count, 0);
    close_clean(source, &f.recorder);
}

/* Partitions that nobody owns: the member does not see new ones for minutes, and its helper, which
 * looks with each look-up, finds that the group, though stable, leaves them out. */
static void test_partitions_without_owner(void **state)
{
    (void)state;
    set_up(2);
    f.settings.metadata_refresh_ms = 600000;
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    recorder_started(&f.recorder) == 2));
    kafka_add_partitions(f.brokers, f.topic, 4);
    kafka_watch_error(source, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART); /* A reason for one. */
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    snapshot_of(source).topic_partitions == 4));
    assert_int_equal(recorder_owned(&f.recorder), 2);
    assert_int_equal(snapshot_of(source).rejoins, 0);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    recorder_started(&f.recorder) == 4));
    assert_int_equal(snapshot_of(source).rejoins, 1);
    assert_int_equal(snapshot_of(source).lost, 0);
    close_clean(source, &f.recorder);
}

/* --- gaps at run time ----------------------------------------------------------------------- */

static void test_retention_overtakes(void **state)
{
    (void)state;
    static char big[20000];
    set_up(2);
    f.settings.queues_bytes = 1; /* The floors: far less than the topic holds. */
    memset(big, 'x', sizeof big);
    struct kafka_producer *producer = kafka_producer_open(f.brokers, f.topic, NULL, NULL);
    for (int i = 0; i < 1000; i++) {
        kafka_producer_send(producer, &(struct kafka_produce){
                                          .partition = 0, .value = big, .value_size = sizeof big});
        kafka_producer_text(producer, 1, "small");
        if (i % 50 == 0) {
            (void)kafka_producer_flush(producer);
        }
    }
    kafka_producer_close(producer);
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    f.recorder.stop_after = 1;
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    f.recorder.partitions[0].records >= 5));
    kafka_delete_records(f.brokers, f.topic, 0, 900);
    f.recorder.stop_after = 0;
    struct recorder_partition *partition = &f.recorder.partitions[0];
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                            partition->ended >= 1000 && f.recorder.partitions[1].ended >= 1000));
    assert_int_equal(partition->gap_count, 1);
    assert_int_equal(partition->last_gap.kind, FCAP_GAP_BELOW_START);
    assert_int_equal(partition->last_gap.log_start, 900);
    assert_true(partition->last_gap.wanted >= 5 && partition->last_gap.wanted < 900);
    /* Everything that was not in the gap came. */
    assert_int_equal(partition->records, partition->last_gap.wanted + 100);
    assert_int_equal(partition->started_count, 2);
    assert_int_equal(f.recorder.partitions[1].records, 1000);
    assert_int_equal(f.recorder.partitions[1].gap_count, 0);
    close_clean(source, &f.recorder);
}

/* --- the group ------------------------------------------------------------------------------ */

static struct fcap_source *last_words;
static void (*revoke_as_usual)(void *context, const int32_t *partitions, size_t count, bool lost);

static void publish_when_revoked(void *context, const int32_t *partitions, size_t count, bool lost)
{
    last_words->ops->publish(last_words, 0, 50);
    revoke_as_usual(context, partitions, count, lost);
}

static void test_progress_group(void **state)
{
    (void)state;
    char progress[300];
    set_up(2);
    (void)snprintf(progress, sizeof progress, "%s-progress", f.group);
    produce(0, 50);
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    port->ops->publish(port, 0, 1); /* Not ours yet: dropped. */
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    f.recorder.partitions[0].ended >= 50));
    port->ops->publish(port, 0, 20);
    port->ops->publish(port, 0, 42); /* Only the newest matters. */
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS,
                                    snapshot_of(source).published >= 1));
    assert_int_equal(kafka_committed(f.brokers, progress, f.topic, 0), 42);
    assert_int_equal(kafka_committed(f.brokers, progress, f.topic, 1), -1);
    struct fcap_source_kafka_lag lags[2];
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, none, DEADLINE_MS,
                                    fcap_source_kafka_lags(source, lags, 2) == 2 &&
                                        lags[0].lag == 0 && lags[1].lag == 0));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lags[i].next, lags[i].partition == 0 ? 50 : 0);
        assert_int_equal(lags[i].end, lags[i].next);
    }
    produce(1, 5);
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, none, DEADLINE_MS,
                                    fcap_source_kafka_lags(source, lags, 2) == 2 &&
                                        lags[0].lag + lags[1].lag == 5));
    /* The last commit of a task is known only when it is revoked. */
    last_words = port;
    revoke_as_usual = f.recorder.handler.revoked;
    f.recorder.handler.revoked = publish_when_revoked;
    close_clean(source, &f.recorder);
    assert_int_equal(kafka_committed(f.brokers, progress, f.topic, 0), 50);
    assert_int_equal(kafka_committed(f.brokers, f.group, f.topic, 0), -1);
    assert_int_equal(kafka_committed(f.brokers, f.group, f.topic, 1), -1);
}

/* Both partitions hold far more than is read: neither may wait for the other's end. */
static void test_fairness(void **state)
{
    (void)state;
    struct fcap_source_kafka_lag lags[2];
    set_up(2);
    produce(0, 20000);
    produce(1, 20000);
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    /* An end is known when the first fetch of that partition has come. */
    assert_true(RECORDER_POLL_UNTIL(port, &f.recorder, none, DEADLINE_MS,
                                    fcap_source_kafka_lags(source, lags, 2) == 2 &&
                                        lags[0].end == 20000 && lags[1].end == 20000));
    assert_int_equal(f.recorder.records, 0);
    struct fcap_source_budget some = {.records_max = 500, .timeout_ms = 50};
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, some, DEADLINE_MS, f.recorder.records >= 10000));
    assert_true(f.recorder.partitions[0].records >= 3000);
    assert_true(f.recorder.partitions[1].records >= 3000);
    close_clean(source, &f.recorder);
}

static void test_back_pressure(void **state)
{
    (void)state;
    set_up(2);
    f.settings.session_timeout_ms = 3000;
    f.settings.max_poll_interval_ms = 3000;
    produce(0, 1000);
    struct fcap_source_kafka *source = open_with(&f.settings);
    struct fcap_source *port = fcap_source_kafka_port(source);
    f.recorder.stop_after = 100;
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 100));
    uint64_t before = f.recorder.records;
    /* Twice the deadline; both timers would have fired. */
    assert_false(
        RECORDER_POLL_UNTIL(port, &f.recorder, none, 6500, recorder_owned(&f.recorder) < 2));
    assert_int_equal(f.recorder.records, before);
    assert_true(port->ops->may_send(port, 0));
    produce(1, 1000);
    assert_true(
        RECORDER_POLL_UNTIL(port, &f.recorder, plenty, DEADLINE_MS, f.recorder.records >= 2000));
    assert_int_equal(f.recorder.partitions[0].records, 1000);
    assert_int_equal(f.recorder.partitions[1].records, 1000);
    assert_int_equal(f.recorder.partitions[0].revoked_count, 0);
    close_clean(source, &f.recorder);
}

/* Two members polled in turn; until the condition holds. */
#define POLL_BOTH_UNTIL(a, ra, b, rb, condition)                                                   \
    do {                                                                                           \
        int64_t until_ = lab_monotonic_ms() + DEADLINE_MS;                                         \
        while (!(condition) && lab_monotonic_ms() < until_) {                                      \
            (void)(a)->ops->poll((a), &(ra)->handler, plenty);                                     \
            (void)(b)->ops->poll((b), &(rb)->handler, plenty);                                     \
        }                                                                                          \
        assert_true(condition);                                                                    \
    } while (0)

static void test_static_restart(void **state)
{
    (void)state;
    set_up(4);
    struct recorder other;
    recorder_init(&other, earliest);
    struct fcap_source_kafka_settings settings[2] = {f.settings, f.settings};
    settings[0].instance_id = "pod-0";
    settings[1].instance_id = "pod-1";
    struct fcap_source_kafka *first = open_with(&settings[0]);
    struct fcap_source_kafka *second = open_with(&settings[1]);
    struct fcap_source *a = fcap_source_kafka_port(first);
    struct fcap_source *b = fcap_source_kafka_port(second);
    POLL_BOTH_UNTIL(a, &f.recorder, b, &other,
                    recorder_started(&f.recorder) == 2 && recorder_started(&other) == 2);
    bool mine[4];
    for (int i = 0; i < 4; i++) {
        mine[i] = f.recorder.partitions[i].owned;
        produce(i, 10);
    }
    POLL_BOTH_UNTIL(a, &f.recorder, b, &other, f.recorder.records + other.records == 40);
    uint64_t rebalances = snapshot_of(second).rebalances;
    close_clean(first, &f.recorder);
    first = open_with(&settings[0]);
    a = fcap_source_kafka_port(first);
    POLL_BOTH_UNTIL(a, &f.recorder, b, &other, recorder_started(&f.recorder) == 2);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(f.recorder.partitions[i].owned, mine[i]);
    }
    assert_int_equal(snapshot_of(second).rebalances, rebalances); /* Nobody noticed. */
    assert_int_equal(f.recorder.records + other.records, 40);
    close_clean(first, &f.recorder);
    close_clean(second, &other);
}

static void test_fenced(void **state)
{
    (void)state;
    set_up(2);
    struct recorder other;
    recorder_init(&other, earliest);
    f.settings.instance_id = "the-same";
    struct fcap_source_kafka *first = open_with(&f.settings);
    struct fcap_source *a = fcap_source_kafka_port(first);
    assert_true(RECORDER_POLL_UNTIL(a, &f.recorder, plenty, DEADLINE_MS,
                                    recorder_started(&f.recorder) == 2));
    struct fcap_source_kafka *second = open_with(&f.settings);
    struct fcap_source *b = fcap_source_kafka_port(second);
    enum fcap_status status = FCAP_OK;
    int64_t until_ms = lab_monotonic_ms() + DEADLINE_MS;
    while ((status == FCAP_OK || recorder_started(&other) < 2) && lab_monotonic_ms() < until_ms) {
        status = a->ops->poll(a, &f.recorder.handler, plenty);
        assert_int_equal(b->ops->poll(b, &other.handler, plenty), FCAP_OK);
    }
    assert_int_equal(status, FCAP_LOCKED);
    assert_int_equal(fcap_status_class(status), FCAP_CLASS_FATAL);
    assert_int_equal(recorder_owned(&f.recorder), 0);
    assert_int_equal(f.recorder.partitions[0].lost_count, 1);
    assert_int_equal(f.recorder.partitions[1].lost_count, 1);
    assert_false(a->ops->may_send(a, 0));
    assert_true(snapshot_of(first).fenced);
    assert_non_null(strstr(snapshot_of(first).error, "\"the-same\""));
    assert_int_equal(a->ops->poll(a, &f.recorder.handler, plenty), FCAP_LOCKED); /* For good. */
    close_clean(first, &f.recorder);
    close_clean(second, &other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transactions),
        cmocka_unit_test(test_codecs),
        cmocka_unit_test(test_look_up_then_append),
        cmocka_unit_test(test_revoked_while_looked_up),
        cmocka_unit_test(test_topic_created_later),
        cmocka_unit_test(test_partitions_added),
        cmocka_unit_test(test_partitions_without_owner),
        cmocka_unit_test(test_retention_overtakes),
        cmocka_unit_test(test_progress_group),
        cmocka_unit_test(test_fairness),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_static_restart),
        cmocka_unit_test(test_fenced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
