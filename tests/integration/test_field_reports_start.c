/* Field report B19, where an empty state starts: the real source with its hook between look-up and
 * assignment, the real core, RocksDB and Redis, in this process. */
#include "live.h"

#include "fcap/clock_os.h"
#include "fcap/decode.h"
#include "fcap/pipeline.h"
#include "fcap/sink_redis.h"
#include "fcap/source_kafka.h"
#include "fcap/store_rocksdb.h"
#include "lab/kafka_client.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PARTITIONS 3
#define HOUR_MS    INT64_C(3600000)

static struct live live;

static const struct live_window windows[] = {{"1h", HOUR_MS}, {NULL, 0}};

/* One worker's parts, as the daemon puts them together. */
struct worker {
    struct fcap_decoder *decoder;
    struct fcap_sink *sink;
    struct fcap_source_kafka *source;
    struct fcap_store_rocksdb *db;
    struct fcap_pipeline *pipeline;
};
static struct worker worker;
static _Atomic int looked_up; /* partitions whose look-up was followed by an event */

static int setup(void **unused)
{
    static const struct live_options options = {
        .partitions = PARTITIONS, .workers = 1, .windows = "[1h]", .lengths = windows};
    (void)unused;
    live_init(&live, &options);
    atomic_store(&looked_up, 0);
    return 0;
}

static void close_worker(void)
{
    const struct fcap_source_handler *handler =
        worker.pipeline == NULL ? NULL : fcap_pipeline_handler(worker.pipeline);
    (void)fcap_source_kafka_close(worker.source, handler);
    fcap_pipeline_close(worker.pipeline);
    fcap_decode_json_close(worker.decoder);
    fcap_sink_redis_close(worker.sink);
    fcap_store_rocksdb_close(worker.db);
    worker = (struct worker){0};
}

static int teardown(void **unused)
{
    (void)unused;
    close_worker();
    live_done(&live);
    return 0;
}

/* A user of each partition. */
static const char *user_of(int32_t partition)
{
    static char user[PARTITIONS][16];
    for (unsigned i = 0; user[partition][0] == '\0'; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "b19-%u", i % 1000);
        if (live_partition(&live, name) == partition) {
            memcpy(user[partition], name, sizeof name);
        }
    }
    return user[partition];
}

/* On the helper's thread, when a look-up has its answer and nobody has acted on it yet; so the
 * producer is one of its own. Only the first look-up of each partition. */
static void produce_between(void *context, int32_t partition)
{
    struct kafka_producer *producer = context;
    char value[128];
    int bit = 1 << partition;
    if ((atomic_fetch_or(&looked_up, bit) & bit) != 0) {
        return;
    }
    int size = snprintf(value, sizeof value,
                        "{\"user_id\":\"%s\",\"ad_id\":\"between\",\"ts\":%" PRId64 "}",
                        user_of(partition), lab_wall_ms());
    kafka_producer_send(producer, &(struct kafka_produce){.partition = partition,
                                                          .key = user_of(partition),
                                                          .key_size = strlen(user_of(partition)),
                                                          .value = value,
                                                          .value_size = (size_t)size});
    (void)kafka_producer_flush(producer);
}

static void open_adapters(struct kafka_producer *between, const char *state)
{
    struct fcap_error error = {""};
    char group[256];
    struct fcap_sink_redis_settings sink;
    struct fcap_store_settings store;
    (void)snprintf(group, sizeof group, "%s-group", live.topic);
    const struct fcap_decode_settings decoder = {.user_path = "user_id",
                                                 .ad_path = "ad_id",
                                                 .time_path = "ts",
                                                 .time_format = FCAP_TIME_MILLISECONDS,
                                                 .user_id_bytes_max = 256,
                                                 .ad_id_bytes_max = 256,
                                                 .record_bytes_max = 1 << 20};
    const struct fcap_source_kafka_settings source = {.brokers = kafka_test_brokers(),
                                                      .topic = live.topic,
                                                      .group = group,
                                                      .session_timeout_ms = 6000,
                                                      .publish_interval_ms = 200,
                                                      .looked_up = produce_between,
                                                      .looked_up_context = between};
    fcap_sink_redis_settings_default(&sink);
    sink.host = "127.0.0.1";
    sink.port = live.redis.port;
    sink.profile = "test";
    sink.instance = "one";
    sink.probe_key = "fc:probe";
    fcap_store_settings_default(&store);
    store.directory = state;
    assert_int_equal(fcap_decode_json_open(&decoder, &worker.decoder, &error), FCAP_OK);
    assert_int_equal(fcap_sink_redis_open(&sink, &error, &worker.sink), FCAP_OK);
    assert_int_equal(fcap_store_rocksdb_open(&store, &worker.db, &error), FCAP_OK);
    assert_int_equal(fcap_source_kafka_open(&source, &worker.source, &error), FCAP_OK);
}

static void open_worker(struct kafka_producer *between)
{
    struct fcap_error error = {""};
    struct fcap_settings settings;
    char state[128];
    (void)snprintf(state, sizeof state, "%s/state", live.process.directory);
    open_adapters(between, state);
    fcap_settings_default(&settings);
    settings.windows[0] = (struct fcap_window){.name = "1h", .length_ms = HOUR_MS};
    settings.window_count = 1;
    settings.profile = "test";
    settings.key_pattern = "fc:{%u}:%w";
    settings.session_timeout_ms = 6000;
    settings.commit_interval_ms = 200;
    const struct fcap_ports ports = {.clock = fcap_clock_os(),
                                     .decoder = worker.decoder,
                                     .source = fcap_source_kafka_port(worker.source),
                                     .store = fcap_store_rocksdb_handle(worker.db),
                                     .sink = worker.sink};
    assert_int_equal(fcap_pipeline_open(&settings, &ports, &worker.pipeline, &error), FCAP_OK);
}

/* What the tasks say. */
struct seen {
    int gates_open;
    int64_t committed; /* the sum of their offsets */
};

static void look(void *context, const struct fcap_task_report *report)
{
    struct seen *seen = context;
    seen->gates_open += report->gate_open;
    seen->committed += report->committed_offset > 0 ? report->committed_offset : 0;
}

/* Steps until all gates are open and the commits hold `records`. */
static void step_until(int64_t records)
{
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    struct seen seen;
    do {
        enum fcap_status status = fcap_pipeline_step(worker.pipeline, 10);
        if (status != FCAP_OK) {
            fail_msg("step: %s", fcap_pipeline_error(worker.pipeline));
        }
        seen = (struct seen){0};
        fcap_pipeline_report(worker.pipeline, look, &seen);
        if (lab_monotonic_ms() > deadline_ms) {
            fail_msg("%d gates are open, %" PRId64 " of %" PRId64 " records committed",
                     seen.gates_open, seen.committed, records);
        }
    } while (seen.gates_open < PARTITIONS || seen.committed < records);
}

static void stop_worker(void)
{
    assert_int_equal(fcap_pipeline_drain(worker.pipeline, lab_monotonic_ms() + LIVE_WAIT_MS),
                     FCAP_OK);
    close_worker();
}

static void send_each(const char *ad)
{
    for (int32_t i = 0; i < PARTITIONS; i++) {
        live_send(&live, user_of(i), ad, lab_wall_ms(), NULL);
    }
    live_flush(&live);
}

static void counts_one(const char *value, int32_t partition, const char *ad)
{
    char text[64];
    (void)snprintf(text, sizeof text, "\"%s\":1", ad);
    if (value == NULL || strstr(value, text) == NULL) {
        fail_msg("partition %d: %s lacks %s", partition, value == NULL ? "no key" : value, text);
    }
}

/* Every key against the definition, and these ads count 1 in each partition; so does the young
 * record of p2, which was there before. `third` may be NULL. */
static void count_once(const char *first, const char *second, const char *third)
{
    struct oracle_tally tally = {0};
    live_read(&live);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        const char *value = redis_server_ask(&live.redis, "GET fc:{%s}:1h", user_of(i));
        struct oracle_expectation expectation = {.user = user_of(i),
                                                 .window_ms = HOUR_MS,
                                                 .at_min_ms = lab_wall_ms() - LIVE_LAG_MS,
                                                 .at_max_ms = lab_wall_ms()};
        (void)oracle_check_value(live.oracle, &expectation, value,
                                 value == NULL ? 0 : strlen(value), &tally);
        counts_one(value, i, first);
        counts_one(value, i, second);
        counts_one(value, i, third == NULL ? first : third);
        counts_one(value, i, i == 2 ? "old" : first);
    }
    live_passes(&tally, (struct oracle_minimum){PARTITIONS, PARTITIONS, 0});
    assert_int_equal(live_key_count(&live), PARTITIONS);
}

static void send_old(int32_t partition, int64_t time_ms)
{
    char value[128];
    int size =
        snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ad_id\":\"old\",\"ts\":%" PRId64 "}",
                 user_of(partition), time_ms);
    kafka_producer_send(live.producer,
                        &(struct kafka_produce){.partition = partition,
                                                .key = user_of(partition),
                                                .key_size = strlen(user_of(partition)),
                                                .value = value,
                                                .value_size = (size_t)size,
                                                .timestamp_ms = time_ms});
}

/* As somebody's housekeeping would do it. */
static void delete_offsets(const char *group)
{
    rd_kafka_t *client = kafka_client_open(kafka_test_brokers(), RD_KAFKA_PRODUCER);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DeleteGroup_t *request = rd_kafka_DeleteGroup_new(group);
    rd_kafka_DeleteGroups(client, &request, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 30000);
    assert_non_null(event); /* The group may not exist (any more): that is what is wanted. */
    rd_kafka_event_destroy(event);
    rd_kafka_DeleteGroup_destroy(request);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        assert_int_equal(kafka_committed(kafka_test_brokers(), group, live.topic, i), -1);
    }
}

static void test_B19_nothing_is_skipped_between_look_up_and_assignment(void **unused)
{
    char group[256];
    int64_t now_ms = lab_wall_ms();
    (void)unused;
    struct kafka_producer *between =
        kafka_producer_open(kafka_test_brokers(), live.topic, NULL, NULL);
    /* p0 is empty, p1 has only old records, p2 is normal. */
    send_old(1, now_ms - 4 * HOUR_MS);
    send_old(1, now_ms - 3 * HOUR_MS);
    send_old(2, now_ms - 3 * HOUR_MS);
    send_old(2, now_ms - 60000);
    live_flush(&live);
    open_worker(between);
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    while (atomic_load(&looked_up) != (1 << PARTITIONS) - 1) {
        assert_int_equal(fcap_pipeline_step(worker.pipeline, 10), FCAP_OK);
        assert_true(lab_monotonic_ms() < deadline_ms);
    }
    send_each("after");
    step_until(4 + 3 + 3);
    count_once("between", "after", NULL);

    /* Without any offset in Kafka the state's offsets rule. */
    stop_worker();
    (void)snprintf(group, sizeof group, "%s-group-progress", live.topic);
    assert_true(kafka_committed(kafka_test_brokers(), group, live.topic, 1) > 0);
    delete_offsets(group);
    (void)snprintf(group, sizeof group, "%s-group", live.topic);
    delete_offsets(group);
    send_each("later");
    open_worker(between);
    step_until(4 + 3 + 3 + 3);
    assert_true(fcap_counter_read(&fcap_pipeline_counters(worker.pipeline)->records) <=
                2 * PARTITIONS); /* The new ones, and perhaps the one before each. */
    count_once("between", "after", "later");
    stop_worker();
    kafka_producer_close(between);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_B19_nothing_is_skipped_between_look_up_and_assignment,
                                        setup, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
