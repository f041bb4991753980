/* See run_fixture.h. */
#include "run_fixture.h"

#include "lab/lab.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void run_fixture_yaml(const struct run_fixture *fixture, const char *instance, const char *windows,
                      const char *more, char *text, size_t size)
{
    int used = snprintf(text, size,
                        "profile: test\n"
                        "instance: %s\n"
                        "workers: 2\n"
                        "windows: %s\n"
                        "kafka:\n"
                        "  brokers: %s\n"
                        "  topic: %s\n"
                        "  group: %s-group\n"
                        "  session_timeout: 6s\n"
                        "  stall_timeout: 2s\n"
                        "  producer_refresh: 2s\n"
                        "  instance_id: member\n"
                        "  dead_letter:\n"
                        "    topic: %s\n"
                        "redis:\n"
                        "  host: 127.0.0.1\n"
                        "  port: %u\n"
                        "commit:\n"
                        "  interval: 200ms\n"
                        "memory:\n"
                        "  budget: 256MiB\n"
                        "%s",
                        instance, windows, kafka_test_brokers(), fixture->topic, fixture->topic,
                        fixture->letters, fixture->redis.port, more);
    assert_true(used > 0 && (size_t)used < size);
}

void run_fixture_init(struct run_fixture *fixture, const char *windows,
                      const struct run_window *lengths, const char *more)
{
    char yaml[4096];
    const char *brokers = kafka_test_brokers();
    *fixture = (struct run_fixture){0};
    (void)snprintf(fixture->topic, sizeof fixture->topic, "%s", kafka_unique("run"));
    (void)snprintf(fixture->letters, sizeof fixture->letters, "%s", kafka_unique("letters"));
    kafka_create_topic(brokers, fixture->topic, RUN_PARTITIONS, NULL);
    kafka_create_topic(brokers, fixture->letters, 1, NULL);
    redis_server_start(&fixture->redis, NULL);
    run_fixture_yaml(fixture, "one", windows, more, yaml, sizeof yaml);
    daemon_process_init(&fixture->process, FCAPD_PROGRAM, yaml);
    fixture->oracle = oracle_open();
    fixture->producer = kafka_producer_open(brokers, fixture->topic, NULL, NULL);
    while (lengths[fixture->window_count].name != NULL) {
        fixture->windows[fixture->window_count] = lengths[fixture->window_count];
        fixture->window_count++;
    }
}

void run_fixture_done(struct run_fixture *fixture)
{
    daemon_process_done(&fixture->process);
    redis_server_stop(&fixture->redis);
    if (fixture->producer != NULL) {
        kafka_producer_close(fixture->producer);
    }
    oracle_close(fixture->oracle);
    fixture->producer = NULL;
    fixture->oracle = NULL;
}

static void produce_one(struct run_fixture *fixture, unsigned number)
{
    char user[32];
    char ad[32];
    char value[160];
    unsigned index = (number * 2654435761u >> 11) % RUN_USERS;
    int32_t partition = (int32_t)(index % RUN_PARTITIONS);
    int64_t now_ms = lab_wall_ms();
    (void)snprintf(user, sizeof user, "user-%u", index);
    (void)snprintf(ad, sizeof ad, "ad-%u", number % 11);
    (void)snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ad_id\":\"%s\",\"ts\":%lld}", user,
                   ad, (long long)now_ms);
    kafka_producer_send(fixture->producer, &(struct kafka_produce){.partition = partition,
                                                                   .key = user,
                                                                   .key_size = strlen(user),
                                                                   .value = value,
                                                                   .value_size = strlen(value)});
    struct oracle_event event = {partition, fixture->next[partition]++, user, ad, now_ms, NULL};
    assert_int_equal(oracle_add(fixture->oracle, &event), ORACLE_ACCEPTED);
}

void run_fixture_start(struct run_fixture *fixture, int64_t timeout_ms)
{
    daemon_process_start(&fixture->process, NULL);
    daemon_process_await(&fixture->process, "/readyz", 200, timeout_ms);
}

void run_fixture_stop(struct run_fixture *fixture, int64_t timeout_ms)
{
    daemon_process_signal(&fixture->process, SIGTERM);
    int code = daemon_process_wait(&fixture->process, timeout_ms);
    if (code != 0) {
        fail_msg("exit code %d:\n%s", code, daemon_process_log(&fixture->process));
    }
}

void run_fixture_produce(struct run_fixture *fixture, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        produce_one(fixture, fixture->serial++);
    }
    (void)kafka_producer_flush(fixture->producer);
}

void run_fixture_produce_bad(struct run_fixture *fixture)
{
    static const char value[] = "{\"user_id\":";
    kafka_producer_send(fixture->producer, &(struct kafka_produce){.partition = 0,
                                                                   .key = "user-0",
                                                                   .key_size = 6,
                                                                   .value = value,
                                                                   .value_size = strlen(value)});
    assert_int_equal(oracle_skip(fixture->oracle, 0, fixture->next[0]++), ORACLE_ACCEPTED);
    (void)kafka_producer_flush(fixture->producer);
}

const char *run_fixture_meta(struct run_fixture *fixture)
{
    return redis_server_ask(&fixture->redis, "GET fc:meta:test:one");
}

/* The claimed next offset of a partition; -1: none. */
static int64_t claimed(const char *meta, int32_t partition)
{
    char name[24];
    (void)snprintf(name, sizeof name, "\"%d\":{", partition);
    const char *at = meta == NULL ? NULL : strstr(meta, name);
    at = at == NULL ? NULL : strstr(at, "\"next\":");
    return at == NULL ? -1 : strtoll(at + strlen("\"next\":"), NULL, 10);
}

void run_fixture_await_applied(struct run_fixture *fixture, int64_t timeout_ms)
{
    int64_t deadline_ms = lab_monotonic_ms() + timeout_ms;
    for (;;) {
        const char *meta = run_fixture_meta(fixture);
        int done = 0;
        for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
            done += claimed(meta, i) >= fixture->next[i];
        }
        if (done == RUN_PARTITIONS) {
            return;
        }
        if (lab_monotonic_ms() >= deadline_ms) {
            print_error("fc:meta: %s\n", meta == NULL ? "absent" : meta);
            (void)daemon_process_get(&fixture->process, "/readyz", NULL);
            print_error("/readyz: %s\n", fixture->process.text);
            print_error("--- log:\n%s", daemon_process_log(&fixture->process));
            fail();
        }
        lab_pause_ms(20);
    }
}

void run_fixture_compare(struct run_fixture *fixture, int64_t lag_ms, struct oracle_tally *tally)
{
    for (size_t i = 0; i < oracle_user_count(fixture->oracle); i++) {
        const char *user = oracle_user(fixture->oracle, i);
        for (size_t k = 0; k < fixture->window_count; k++) {
            int64_t before_ms = lab_wall_ms();
            const char *value =
                redis_server_ask(&fixture->redis, "GET fc:{%s}:%s", user, fixture->windows[k].name);
            struct oracle_expectation expectation = {
                .user = user,
                .window_ms = fixture->windows[k].length_ms,
                .at_min_ms = before_ms - lag_ms,
                .at_max_ms = lab_wall_ms(),
            };
            if (!oracle_check_value(fixture->oracle, &expectation, value,
                                    value == NULL ? 0 : strlen(value), tally)) {
                print_error("%s\n--- log:\n%s", tally->text, daemon_process_log(&fixture->process));
                fail();
            }
        }
    }
}

void run_fixture_passes(const struct oracle_tally *tally, struct oracle_minimum minimum)
{
    char text[4096];
    if (!oracle_passes(tally, &minimum, text, sizeof text)) {
        fail_msg("%s", text);
    }
}

long run_fixture_count_keys(struct run_fixture *fixture)
{
    const char *count =
        redis_server_ask(&fixture->redis, "EVAL %s 0", "return #redis.call('KEYS', 'fc:{*')");
    assert_non_null(count);
    return strtol(count, NULL, 10);
}
