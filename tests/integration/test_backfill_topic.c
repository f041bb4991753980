/* What may happen to a topic while `fcapd backfill` reads it: it is created anew, gets partitions,
 * loses its begin, or a partition falls silent or has no leader. Each job has a topic and a Redis
 * of its own. */
#include "backfill_job.h"

#include "lab/lab.h"
#include "lab/mock_kafka.h"
#include "lib/kafka_proxy.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PARTITIONS 3
#define RECORDS    60000 /* more than the client fetches ahead */
#define FEW        10000 /* a partition of the mock cluster has room for 5 MiB */
#define LARGE      "\"pad\":\"%0400d\","
#define HOUR_MS    ((int64_t)3600 * 1000)

static const struct live_window windows[] = {{"1h", HOUR_MS}, {"1d", 24 * HOUR_MS}, {NULL, 0}};
static const struct live_options options = {
    .partitions = 1,
    .workers = 1,
    .windows = "[1h, 1d]",
    .lengths = windows,
};
static const char *const for_ever[] = {"retention.ms", "-1", NULL};

enum { JOB_SHORTER, JOB_LONGER, JOB_GROWN, JOB_TRIMMED, JOB_SILENT, JOB_MUTE, JOBS };

static struct live live;
static struct backfill_job jobs[JOBS];
static char topics[JOBS][200];
static char sets[JOBS][2][256];
static struct kafka_proxy *proxies[JOBS];

/* Users r0, r1, ... of partition 0, 1, ...: each event is of the last half hour. */
static void produce(const char *brokers, const char *topic, int count, const char *ad)
{
    struct kafka_producer *producer = kafka_producer_open(brokers, topic, NULL, NULL);
    int64_t now_ms = lab_wall_ms();
    for (int i = 0; i < count; i++) {
        char value[600];
        char user[8];
        int64_t time_ms = now_ms - HOUR_MS / 2 + i % 1000;
        (void)snprintf(user, sizeof user, "r%d", i % PARTITIONS);
        int size = snprintf(value, sizeof value,
                            "{" LARGE "\"user_id\":\"%s\",\"ad_id\":\"%s\",\"ts\":%" PRId64 "}", i,
                            user, ad, time_ms);
        kafka_producer_send(producer, &(struct kafka_produce){
                                          .partition = i % PARTITIONS,
                                          .key = user,
                                          .key_size = strlen(user),
                                          .value = value,
                                          .value_size = (size_t)size,
                                          .timestamp_ms = time_ms,
                                      });
    }
    assert_int_equal(kafka_producer_flush(producer), count);
    kafka_producer_close(producer);
}

static void make_topic(const char *topic)
{
    kafka_create_topic(kafka_test_brokers(), topic, PARTITIONS, for_ever);
}

static void create_anew(const char *topic, int count)
{
    kafka_delete_topic(kafka_test_brokers(), topic);
    int64_t deadline_ms = lab_monotonic_ms() + 60000;
    while (kafka_has_topic(kafka_test_brokers(), topic)) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(50);
    }
    make_topic(topic);
    produce(kafka_test_brokers(), topic, count, "other");
}

/* Starts them all, each on RECORDS events; they stand still when some have been read. */
static void start_jobs(void)
{
    for (size_t i = 0; i < JOBS; i++) {
        (void)snprintf(topics[i], sizeof topics[i], "%s", kafka_unique("backfilled"));
        make_topic(topics[i]);
        produce(kafka_test_brokers(), topics[i], RECORDS, "ad");
        proxies[i] = i < JOB_SILENT ? NULL : kafka_proxy_start(kafka_test_brokers());
        (void)snprintf(sets[i][0], sizeof sets[i][0], "kafka.topic=%s", topics[i]);
        (void)snprintf(sets[i][1], sizeof sets[i][1], "kafka.brokers=%s",
                       proxies[i] == NULL ? kafka_test_brokers() : kafka_proxy_address(proxies[i]));
        jobs[i] = (struct backfill_job){.stop_at = "backfill_spilled:500",
                                        .arguments = {"--set", sets[i][0], "--set", sets[i][1],
                                                      "--set", "memory.kafka_queues=1MiB", "--set",
                                                      "memory.block_cache=8MiB", "--patience",
                                                      i == JOB_MUTE ? "8" : "60"}};
        backfill_job_init(&jobs[i]);
        backfill_job_start(&jobs[i], &live, 0);
    }
    for (size_t i = 0; i < JOBS; i++) {
        backfill_job_await_stop(&jobs[i]);
    }
}

static void value_is(struct backfill_job *job, const char *key, int count)
{
    char wanted[64];
    const char *value = redis_server_ask(&job->redis, "GET %s", key);
    (void)snprintf(wanted, sizeof wanted, "\"counts\":{\"ad\":%d}", count);
    if ((value == NULL) != (count == 0) || (count > 0 && strstr(value, wanted) == NULL)) {
        fail_msg("%s is %s, not %s:\n%s", key, value == NULL ? "absent" : value, wanted, job->text);
    }
}

static void says(const struct backfill_job *job, const char *text)
{
    if (strstr(job->text, text) == NULL) {
        fail_msg("no \"%s\" in:\n%s", text, job->text);
    }
}

/* Nothing was written, and it says why. */
static void refuses(struct backfill_job *job, const char *text)
{
    backfill_job_ends(job, 75);
    says(job, text);
    says(job, "ended while reading: no key was written");
    value_is(job, "fc:{r0}:1h", 0);
    value_is(job, "fc:{r1}:1d", 0);
    value_is(job, "fc:{r2}:1d", 0);
}

static void test_a_topic_that_changes_while_it_is_read(void **unused)
{
    (void)unused;
    start_jobs();
    kafka_proxy_mute(proxies[JOB_MUTE], topics[JOB_MUTE], 1);
    backfill_job_continue(&jobs[JOB_MUTE], 0);
    kafka_proxy_mute(proxies[JOB_SILENT], topics[JOB_SILENT], 1);
    backfill_job_continue(&jobs[JOB_SILENT], 0);
    create_anew(topics[JOB_SHORTER], 300);
    backfill_job_continue(&jobs[JOB_SHORTER], 0);
    create_anew(topics[JOB_LONGER], RECORDS * 3 / 2);
    backfill_job_continue(&jobs[JOB_LONGER], 0);
    kafka_add_partitions(kafka_test_brokers(), topics[JOB_GROWN], PARTITIONS + 1);
    backfill_job_continue(&jobs[JOB_GROWN], 0);
    kafka_delete_records(kafka_test_brokers(), topics[JOB_TRIMMED], 1, RECORDS / PARTITIONS - 10);
    backfill_job_continue(&jobs[JOB_TRIMMED], 0);

    refuses(&jobs[JOB_SHORTER], "is another log than the one that was read");
    refuses(&jobs[JOB_LONGER], "is another log than the one that was read");
    refuses(&jobs[JOB_GROWN], "the topic has 4 partitions now, and had 3: users have moved");
    refuses(&jobs[JOB_MUTE], "given up: waits for Kafka: partition 1 stands at offset ");

    /* What retention has taken of one partition is no reason to leave the others out. */
    struct backfill_job *job = &jobs[JOB_TRIMMED];
    backfill_job_ends(job, 0);
    value_is(job, "fc:{r0}:1h", RECORDS / PARTITIONS);
    value_is(job, "fc:{r1}:1h", 0);
    says(job, "1h (the log does not reach back far enough");

    job = &jobs[JOB_SILENT];
    backfill_job_await_text(job, "waits for Kafka: partition 1 stands at offset ");
    kafka_proxy_mute(proxies[JOB_SILENT], NULL, 0);
    backfill_job_ends(job, 0);
    for (int i = 0; i < PARTITIONS; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "fc:{r%d}:1d", i);
        value_is(job, key, RECORDS / PARTITIONS);
    }
    print_message("result: backfill: %d topics changed while they were read\n", JOBS);
}

/* The mock cluster: one broker leads every partition, or nobody does. */
static void test_a_partition_without_a_leader_is_waited_for(void **unused)
{
    (void)unused;
    struct mock_kafka *mock = mock_kafka_start();
    struct backfill_job *job = &jobs[0];
    mock_kafka_create_topic(mock, "led", PARTITIONS);
    produce(mock_kafka_address(mock), "led", PARTITIONS * FEW, "ad");
    (void)snprintf(sets[0][0], sizeof sets[0][0], "kafka.brokers=%s", mock_kafka_address(mock));
    *job = (struct backfill_job){.stop_at = "backfill_spilled:1", /* Little has been fetched. */
                                 .arguments = {"--set", sets[0][0], "--set", "kafka.topic=led",
                                               "--set", "kafka.start=earliest", "--set",
                                               "memory.kafka_queues=1MiB", "--set",
                                               "memory.block_cache=8MiB"}};
    backfill_job_init(job);
    backfill_job_start(job, &live, 0);
    backfill_job_await_stop(job);
    mock_kafka_set_leader(mock, "led", 1, -1);
    backfill_job_continue(job, 0);
    backfill_job_await_text(job, "waits for Kafka: partition 1 stands at offset ");
    mock_kafka_set_leader(mock, "led", 1, 1);
    backfill_job_ends(job, 0);
    value_is(job, "fc:{r0}:1h", FEW);
    value_is(job, "fc:{r1}:1h", FEW);
    value_is(job, "fc:{r2}:1d", FEW);
    mock_kafka_stop(mock);
}

static int setup(void **unused)
{
    (void)unused;
    live_init(&live, &options);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < JOBS; i++) {
        backfill_job_done(&jobs[i]);
        jobs[i] = (struct backfill_job){.pid = 0};
        kafka_proxy_stop(proxies[i]);
        proxies[i] = NULL;
    }
    live_done(&live);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_topic_that_changes_while_it_is_read, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_partition_without_a_leader_is_waited_for, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
