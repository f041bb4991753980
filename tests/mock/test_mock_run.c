/* The real fcapd on the mock cluster and a real Redis, for the builds with sanitizers: load, pages
 * read all the while, a second instance that comes and goes, Redis that loses everything, a machine
 * that is lost and comes back from its checkpoints, savepoints all the while, SIGTERM. Right at the
 * end means every key equals the definition, exit code 0, and not a word of a sanitizer in a log.
 * Needs no broker and no jars. */
#include "lab/claims.h"
#include "lab/daemon_process.h"
#include "lab/kafka_broker.h"
#include "lab/lab.h"
#include "lab/mock_kafka.h"
#include "lab/oracle.h"
#include "lab/oracle_check.h"
#include "lab/redis_server.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOPIC         "impressions"
#define LETTERS       "letters"
#define PARTITIONS    4
#define USERS         120
#define ADS           11
#define REBUILD_EVERY 50 /* pages */
#define READERS       2

/* Generous: a sanitizer is slow, and the machine may be busy. */
#define READY_MS 120000
#define STOP_MS  60000
#define LAG_MS   10000

static const struct {
    const char *name;
    int64_t length_ms;
} windows[] = {{"3s", 3000}, {"1h", 3600000}};

struct reader {
    const char *savepoints;
    size_t number;
    size_t savepoints_taken; /* seen to be */
    pthread_t thread;
    struct daemon_process process; /* only port and text: a copy of its own for each thread */
    int is_stopped;                /* atomic */
    unsigned long good;
};

struct world {
    struct mock_kafka *mock;
    struct redis_server redis;
    struct daemon_process one;
    struct daemon_process two;
    struct reader readers[READERS];
    struct oracle *oracle;
    struct kafka_producer *producer;
    int64_t next[PARTITIONS];
    unsigned serial;
    char checkpoints[64]; /* checkpoint.directory of both */
    char savepoints[64];  /* where those of the first are made */
};

/* --- the world ------------------------------------------------------------------------------- */

static void init_daemon(struct world *world, const char *instance, struct daemon_process *process)
{
    char yaml[2048];
    int size =
        snprintf(yaml, sizeof yaml,
                 "profile: test\n"
                 "instance: %s\n"
                 "workers: 2\n"
                 "windows: [3s, 1h]\n"
                 "windows_incomplete: serve\n"
                 "kafka:\n"
                 "  brokers: %s\n"
                 "  topic: " TOPIC "\n"
                 "  start: earliest\n"
                 "  session_timeout: 6s\n"
                 "  dead_letter:\n"
                 "    topic: " LETTERS "\n"
                 "redis:\n"
                 "  host: 127.0.0.1\n"
                 "  port: %u\n"
                 "commit:\n"
                 "  interval: 200ms\n"
                 "memory:\n"
                 "  budget: 256MiB\n"
                 "shutdown:\n"
                 "  deadline: 30s\n"
                 "checkpoint:\n"
                 "  directory: %s\n"
                 "  interval: 1s\n"
                 "  min_pause: 0s\n"
                 "materialization:\n"
                 "  interval: 10s\n",
                 instance, mock_kafka_address(world->mock), world->redis.port, world->checkpoints);
    assert_in_range(size, 1, (int)sizeof yaml - 1);
    daemon_process_init(process, FCAPD_PROGRAM, yaml);
}

static int setup(void **state)
{
    static struct world world;
    world = (struct world){.mock = mock_kafka_start()};
    mock_kafka_create_topic(world.mock, TOPIC, PARTITIONS);
    mock_kafka_create_topic(world.mock, LETTERS, 1);
    redis_server_start(&world.redis, NULL);
    lab_folder_make("checkpoints", world.checkpoints, sizeof world.checkpoints);
    lab_folder_make("savepoints", world.savepoints, sizeof world.savepoints);
    init_daemon(&world, "one", &world.one);
    init_daemon(&world, "two", &world.two);
    world.oracle = oracle_open();
    world.producer = kafka_producer_open(mock_kafka_address(world.mock), TOPIC, NULL, NULL);
    *state = &world;
    return 0;
}

static void stop_readers(struct world *world)
{
    for (size_t i = 0; i < READERS; i++) {
        struct reader *reader = &world->readers[i];
        if (reader->process.http_port != 0) {
            __atomic_store_n(&reader->is_stopped, 1, __ATOMIC_RELAXED);
            assert_int_equal(pthread_join(reader->thread, NULL), 0);
            free(reader->process.text);
            reader->process = (struct daemon_process){0};
        }
    }
}

static int teardown(void **state)
{
    struct world *world = *state;
    stop_readers(world);
    daemon_process_done(&world->one);
    daemon_process_done(&world->two);
    redis_server_stop(&world->redis);
    kafka_producer_close(world->producer);
    mock_kafka_stop(world->mock);
    oracle_close(world->oracle);
    lab_folder_remove(world->checkpoints);
    lab_folder_remove(world->savepoints);
    return 0;
}

/* --- load ------------------------------------------------------------------------------------ */

static void produce_one(struct world *world)
{
    char user[32];
    char ad[32];
    char value[160];
    unsigned number = world->serial++;
    unsigned index = (number * 2654435761u >> 11) % USERS;
    int32_t partition = (int32_t)(index % PARTITIONS);
    bool is_bad = number % 199 == 198;
    int64_t now_ms = lab_wall_ms();
    (void)snprintf(user, sizeof user, "user-%u", index);
    (void)snprintf(ad, sizeof ad, "ad-%u", number % ADS);
    (void)snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ad_id\":\"%s\",\"ts\":%lld%s", user,
                   ad, (long long)now_ms, is_bad ? "" : "}");
    kafka_producer_send(world->producer, &(struct kafka_produce){.partition = partition,
                                                                 .key = user,
                                                                 .key_size = strlen(user),
                                                                 .value = value,
                                                                 .value_size = strlen(value)});
    int64_t offset = world->next[partition]++;
    struct oracle_event event = {partition, offset, user, ad, now_ms, NULL};
    enum oracle_verdict verdict =
        is_bad ? oracle_skip(world->oracle, partition, offset) : oracle_add(world->oracle, &event);
    assert_int_equal(verdict, ORACLE_ACCEPTED);
}

static void produce(struct world *world, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        produce_one(world);
    }
    (void)kafka_producer_flush(world->producer);
}

/* --- pages ----------------------------------------------------------------------------------- */

/* At any moment; often another one is being taken, or the state is not open. */
static void order_savepoint(struct reader *reader, size_t number)
{
    char order[160];
    (void)snprintf(order, sizeof order, "/savepoint?to=%s/%zu-%zu", reader->savepoints,
                   reader->number, number);
    (void)daemon_process_post(&reader->process, order, "secret-token");
}

static void *read_pages(void *context)
{
    static const char *const pages[] = {"/metrics",
                                        "/readyz",
                                        "/inspect?user=user-1",
                                        "/status",
                                        "/livez",
                                        "/hot-users",
                                        "/rebuild",
                                        "/savepoint",
                                        "/values",
                                        "/values?partition=1",
                                        "/values?users=0006757365722d31"};
    static const char *const orders[] = {"/rebuild?user=user-1", "/rebuild?partition=1"};
    struct reader *reader = context;
    for (size_t i = 0; __atomic_load_n(&reader->is_stopped, __ATOMIC_RELAXED) == 0; i++) {
        const char *page = pages[i % (sizeof pages / sizeof pages[0])];
        reader->good += daemon_process_get(&reader->process, page, "secret-token") == 200;
        reader->savepoints_taken += reader->process.text != NULL &&
                                    strstr(reader->process.text, "{\"savepoint\":\"done\"") != NULL;
        if (i % REBUILD_EVERY == 0) {
            (void)daemon_process_post(&reader->process, orders[i / REBUILD_EVERY % 2],
                                      "secret-token"); /* The partition may be elsewhere. */
            order_savepoint(reader, i);
        }
        lab_pause_ms(5);
    }
    return NULL;
}

static void start_readers(struct world *world)
{
    for (size_t i = 0; i < READERS; i++) {
        struct reader *reader = &world->readers[i];
        reader->process.http_port = world->one.http_port;
        reader->savepoints = world->savepoints;
        reader->number = i;
        assert_int_equal(pthread_create(&reader->thread, NULL, read_pages, reader), 0);
    }
}

/* --- waiting and comparing -------------------------------------------------------------------- */

/* The highest claim of both instances: partitions move. */
static int64_t claimed(struct world *world, int32_t partition)
{
    static const char *const keys[] = {"fc:meta:test:one", "fc:meta:test:two"};
    int64_t highest = -1;
    for (size_t i = 0; i < 2; i++) {
        struct claim claim;
        if (claim_read(redis_server_ask(&world->redis, "GET %s", keys[i]), partition, &claim) &&
            claim.next > highest) {
            highest = claim.next;
        }
    }
    return highest;
}

static void await_applied(struct world *world)
{
    int64_t deadline_ms = lab_monotonic_ms() + READY_MS;
    for (int32_t i = 0; i < PARTITIONS;) {
        int64_t seen = claimed(world, i);
        if (seen >= world->next[i]) {
            i++;
        } else if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("partition %d: %lld of %lld\n--- log:\n%s", i, (long long)seen,
                     (long long)world->next[i], daemon_process_log(&world->one));
        } else {
            lab_pause_ms(20);
        }
    }
}

static void compare(struct world *world, const char *when)
{
    char text[4096];
    struct oracle_tally tally = {0};
    for (size_t i = 0; i < oracle_user_count(world->oracle); i++) {
        for (size_t k = 0; k < sizeof windows / sizeof windows[0]; k++) {
            const char *user = oracle_user(world->oracle, i);
            int64_t before_ms = lab_wall_ms();
            const char *value =
                redis_server_ask(&world->redis, "GET fc:{%s}:%s", user, windows[k].name);
            struct oracle_expectation expectation = {.user = user,
                                                     .window_ms = windows[k].length_ms,
                                                     .at_min_ms = before_ms - LAG_MS,
                                                     .at_max_ms = lab_wall_ms()};
            (void)oracle_check_value(world->oracle, &expectation, value,
                                     value == NULL ? 0 : strlen(value), &tally);
        }
    }
    struct oracle_minimum minimum = {2 * (uint64_t)USERS, USERS, 0};
    if (!oracle_passes(&tally, &minimum, text, sizeof text)) {
        (void)fprintf(stderr, "%s--- log:\n%s", text, daemon_process_log(&world->one));
        fail_msg("%s", when);
    }
}

static void step(struct world *world, size_t count, const char *when)
{
    produce(world, count);
    await_applied(world);
    compare(world, when);
}

/* --- the daemons ------------------------------------------------------------------------------ */

static void start(struct daemon_process *process)
{
    daemon_process_start(process, NULL);
    daemon_process_await(process, "/readyz", 200, READY_MS);
}

/* A report ends the process with a code of its own, or stands in the log. */
static void stop(struct daemon_process *process)
{
    static const char *const words[] = {"Sanitizer", "runtime error:"};
    daemon_process_signal(process, SIGTERM);
    int code = daemon_process_wait(process, STOP_MS);
    const char *log = daemon_process_log(process);
    for (size_t i = 0; i < 2 && code == 0; i++) {
        code = strstr(log, words[i]) == NULL ? 0 : -2;
    }
    if (code != 0) {
        (void)fprintf(stderr, "--- log:\n%s", log); /* cmocka cuts. */
        fail_msg("exit code %d", code);
    }
}

/* kill -9, and its state is gone. */
static void lose_machine(struct world *world, struct daemon_process *process)
{
    char state[96];
    int64_t deadline_ms = lab_monotonic_ms() + READY_MS;
    while (daemon_process_metric(process, "fcapd_checkpoint_completed_total") < 2) {
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("no checkpoints\n--- log:\n%s", daemon_process_log(process));
        }
        produce(world, 10);
        lab_pause_ms(100);
    }
    daemon_process_signal(process, SIGKILL);
    assert_int_equal(daemon_process_wait(process, STOP_MS), 128 + SIGKILL);
    (void)snprintf(state, sizeof state, "%s/state", process->directory);
    lab_folder_remove(state);
}

static void test_all_that_happens_to_a_daemon(void **state)
{
    struct world *world = *state;
    start(&world->one);
    start_readers(world);
    step(world, 3000, "at the start");

    start(&world->two); /* Two more members of the group: partitions move... */
    step(world, 2000, "with two instances");
    stop(&world->two); /* ... and come back. */
    step(world, 1000, "after the second has gone");

    redis_server_kill(&world->redis);
    produce(world, 500);
    redis_server_restart(&world->redis, false);
    step(world, 500, "after Redis has lost everything");

    lose_machine(world, &world->one);
    produce(world, 500);
    start(&world->one);
    assert_non_null(strstr(daemon_process_log(&world->one), "was restored in"));
    step(world, 500, "after the machine was lost");

    daemon_process_await(&world->one, "/readyz", 200, READY_MS);
    assert_true(daemon_process_metric(&world->one, "fcapd_records_rejected_total") > 0);
    stop_readers(world);
    for (size_t i = 0; i < READERS; i++) {
        assert_true(world->readers[i].good > 20);
        assert_true(world->readers[i].savepoints_taken > 0);
    }
    stop(&world->one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_that_happens_to_a_daemon, setup, teardown),
    };
    return cmocka_run_group_tests_name("a daemon on the mock cluster", tests, NULL, NULL);
}
