/* A partition without a leader, on the mock cluster: with an empty state and kafka.keyed: check the
 * others are shown all the same, after a while; it follows when it has a leader. */
#include "lab/daemon_process.h"
#include "lab/kafka_broker.h"
#include "lab/lab.h"
#include "lab/mock_kafka.h"
#include "lab/redis_server.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TOPIC      "impressions"
#define PARTITIONS 3
#define WAIT_MS    120000

static void start(struct daemon_process *process, struct mock_kafka *mock,
                  const struct redis_server *redis)
{
    char yaml[1024];
    int size = snprintf(yaml, sizeof yaml,
                        "profile: test\n"
                        "instance: one\n"
                        "windows: [1h]\n"
                        "kafka:\n"
                        "  brokers: %s\n"
                        "  topic: " TOPIC "\n"
                        "  start: earliest\n"
                        "  session_timeout: 6s\n"
                        "redis:\n"
                        "  port: %u\n"
                        "memory:\n"
                        "  budget: 256MiB\n",
                        mock_kafka_address(mock), redis->port);
    assert_in_range(size, 1, (int)sizeof yaml - 1);
    daemon_process_init(process, FCAPD_PROGRAM, yaml);
    daemon_process_start(process, NULL);
}

static void produce(struct mock_kafka *mock)
{
    struct kafka_producer *producer =
        kafka_producer_open(mock_kafka_address(mock), TOPIC, NULL, NULL);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        char user[16];
        char value[128];
        (void)snprintf(user, sizeof user, "u%d", i);
        (void)snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ad_id\":\"a\",\"ts\":%lld}",
                       user, (long long)lab_wall_ms());
        kafka_producer_send(producer, &(struct kafka_produce){.partition = i,
                                                              .key = user,
                                                              .key_size = strlen(user),
                                                              .value = value,
                                                              .value_size = strlen(value)});
    }
    (void)kafka_producer_flush(producer);
    kafka_producer_close(producer);
}

static void await_key(struct redis_server *redis, struct daemon_process *process, int user)
{
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    while (redis_server_ask(redis, "GET fc:{u%d}:1h", user) == NULL) {
        if (lab_monotonic_ms() > until_ms) {
            (void)fprintf(stderr, "--- log:\n%s", daemon_process_log(process));
            fail_msg("u%d is not shown", user);
        }
        lab_pause_ms(50);
    }
}

static void test_the_others_are_shown(void **state)
{
    (void)state;
    static struct daemon_process process;
    static struct redis_server redis;
    struct mock_kafka *mock = mock_kafka_start();
    mock_kafka_create_topic(mock, TOPIC, PARTITIONS);
    redis_server_start(&redis, NULL);
    produce(mock);
    mock_kafka_set_leader(mock, TOPIC, PARTITIONS - 1, -1);
    start(&process, mock, &redis);
    for (int user = 0; user < PARTITIONS - 1; user++) {
        await_key(&redis, &process, user);
    }
    assert_null(redis_server_ask(&redis, "GET fc:{u%d}:1h", PARTITIONS - 1));
    mock_kafka_set_leader(mock, TOPIC, PARTITIONS - 1, 1);
    await_key(&redis, &process, PARTITIONS - 1);
    daemon_process_signal(&process, SIGTERM);
    assert_int_equal(daemon_process_wait(&process, WAIT_MS), 0);
    daemon_process_done(&process);
    redis_server_stop(&redis);
    mock_kafka_stop(mock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_others_are_shown)};
    return cmocka_run_group_tests_name("a partition without a leader", tests, NULL, NULL);
}
