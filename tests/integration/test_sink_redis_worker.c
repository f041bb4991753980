/* The Redis sink and what runs beside it: a worker that was away, a second process of the same
 * name, a thread that reads the metrics, a resolver that hangs, an end in the middle. */
#include <netdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lab/redis_server.h"
#include "lib/sink_driver.h"
#include "lab/lab.h"

#define HANG_MS 20000

static struct fixture {
    struct redis_server server;
    struct sink_driver driver;
    struct sink_driver other;
} fixture;

static int setup(void **unused)
{
    (void)unused;
    memset(&fixture, 0, sizeof fixture);
    redis_server_start(&fixture.server, NULL);
    sink_driver_init(&fixture.driver, fixture.server.port);
    sink_driver_init(&fixture.other, fixture.server.port);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    sink_driver_close(&fixture.driver);
    sink_driver_close(&fixture.other);
    redis_server_stop(&fixture.server);
    return 0;
}

/* The program is linked with --wrap=getaddrinfo: "two.test" has two addresses, of which only the
 * second answers; "hang.test" hangs until it may end, and then has none. */
int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_found);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_found);

static atomic_uint hanging_lookups;
static atomic_uint ended_lookups;
static atomic_bool may_end;

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret_found)
{
    if (strcmp(host, "hang.test") == 0) {
        atomic_fetch_add(&hanging_lookups, 1);
        for (int i = 0; i < HANG_MS / 10 && !atomic_load(&may_end); i++) {
            lab_pause_ms(10);
        }
        atomic_fetch_add(&ended_lookups, 1);
        return EAI_AGAIN;
    }
    if (strcmp(host, "two.test") != 0) {
        return __real_getaddrinfo(host, service, hints, ret_found);
    }
    int failed = __real_getaddrinfo("127.0.0.2", service, hints, ret_found);
    return failed != 0 ? failed
                       : __real_getaddrinfo("127.0.0.1", service, hints, &(*ret_found)->ai_next);
}

static void test_the_next_address_is_tried_at_once(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.host = "two.test";
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    assert_int_equal(sink_driver_status(&f->driver).counters.connects, 1);
    sink_driver_set(&f->driver, "k", "v");
}

static void test_a_hanging_resolver_blocks_nobody(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    int64_t end_ms = lab_monotonic_ms() + HANG_MS;
    f->driver.settings.host = "hang.test";
    f->driver.settings.connect_timeout_ms = 100;
    sink_driver_open(&f->driver);
    while (sink_driver_status(&f->driver).counters.connects < 4 && lab_monotonic_ms() < end_ms) {
        sink_driver_poll(&f->driver);
    }
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_int_equal(status.error, FCAP_SINK_REDIS_ERROR_TIMEOUT);
    assert_true(status.counters.connects >= 4);
    assert_int_equal(atomic_load(&ended_lookups), 0);   /* No poll waited for the one. */
    assert_int_equal(atomic_load(&hanging_lookups), 1); /* Never a second thread beside it. */
    atomic_store(&may_end, true);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_RESOLVE));
    sink_driver_close(&f->driver); /* While the next look-up hangs, perhaps. */
    while (atomic_load(&ended_lookups) < atomic_load(&hanging_lookups)) {
        lab_pause_ms(10); /* Its thread ends before the program does. */
    }
    lab_pause_ms(100);
}

/* A rebalance, or SIGSTOP to ourselves: the command was never sent, so its answer is not late. */
static void test_a_worker_that_was_away_blames_nobody(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.command_timeout_ms = 2000;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_OK);
        lab_pause_ms(2500);
        assert_true(sink_driver_until_all_acked(&f->driver));
    }
    assert_int_equal(f->driver.results[FCAP_PUSH_DONE], 2);
    assert_int_equal(sink_driver_status(&f->driver).counters.connects, 1);
}

/* But a server that does not answer is found, however rarely the worker looks. */
static void test_a_worker_that_is_always_away_still_times_out(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.command_timeout_ms = 200;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    redis_server_freeze(&f->server);
    assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_OK);
    for (int i = 0; i < 4 && f->driver.acked == 0; i++) {
        lab_pause_ms(250);
        sink_driver_poll(&f->driver);
    }
    assert_int_equal(f->driver.results[FCAP_PUSH_UNKNOWN], 1);
}

/* A mistake in the configuration. They take the name from each other, slowly, and say so. */
static void test_two_processes_of_one_name_do_not_spin(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    sink_driver_open(&f->driver);
    sink_driver_open(&f->other);
    int64_t end_ms = lab_monotonic_ms() + 1500;
    while (lab_monotonic_ms() < end_ms) {
        (void)sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v");
        (void)sink_driver_push(&f->other, FCAP_PUSH_SET, "k", "v");
        sink_driver_poll(&f->driver);
        sink_driver_poll(&f->other);
    }
    struct fcap_sink_redis_counters counters = sink_driver_status(&f->driver).counters;
    assert_in_range(counters.connects, 3, 60);
    assert_true(counters.connections_killed > 0);
    assert_true(counters.errors[FCAP_SINK_REDIS_ERROR_CLOSED] > 0);
}

static void test_workers_of_one_process_leave_each_other_alone(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.worker = 1;
    f->other.settings.worker = 11; /* Its name starts with the other's. */
    sink_driver_open(&f->other);
    assert_true(sink_driver_until_ready(&f->other));
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->other, "k", "v");
    sink_driver_set(&f->driver, "k", "v");
    sink_driver_poll(&f->other);
    assert_int_equal(sink_driver_status(&f->other).counters.connections_ready, 1);
    assert_int_equal(sink_driver_status(&f->driver).counters.connections_killed, 0);
}

struct reader {
    struct fcap_sink *sink;
    atomic_bool stop;
    atomic_uint_fast64_t looks;
    bool consistent;
};

/* Every snapshot is of one moment: what was pushed is acked or in flight. */
static void *read_status(void *argument)
{
    struct reader *reader = argument;
    while (!atomic_load(&reader->stop)) {
        struct fcap_sink_redis_status status;
        fcap_sink_redis_status(reader->sink, &status);
        const struct fcap_sink_redis_counters *counters = &status.counters;
        atomic_fetch_add(&reader->looks, 1);
        reader->consistent =
            reader->consistent && counters->pushes == counters->acks_done + counters->acks_refused +
                                                          counters->acks_unknown + status.in_flight;
    }
    return NULL;
}

static void test_another_thread_reads_the_status(void **unused)
{
    struct fixture *f = &fixture;
    struct reader reader = {.consistent = true};
    pthread_t thread;
    (void)unused;
    sink_driver_open(&f->driver);
    reader.sink = f->driver.sink;
    assert_int_equal(pthread_create(&thread, NULL, read_status, &reader), 0);
    for (int i = 0; i < 20000 || atomic_load(&reader.looks) == 0; i++) {
        (void)sink_driver_push(&f->driver, FCAP_PUSH_INCREMENT, "n", NULL);
        if (i % 100 == 0) {
            sink_driver_poll(&f->driver);
        }
        if (i == 10000) {
            (void)redis_server_ask(&f->server, "CLIENT KILL TYPE normal SKIPME yes");
        }
    }
    assert_true(sink_driver_until_all_acked(&f->driver));
    atomic_store(&reader.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(reader.consistent);
    assert_true(atomic_load(&reader.looks) > 0);
}

static void test_an_end_in_the_middle_loses_nothing_of_ours(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    sink_driver_open(&f->driver);
    sink_driver_close(&f->driver); /* Before anything. */
    sink_driver_open(&f->driver);
    sink_driver_poll(&f->driver);
    sink_driver_close(&f->driver); /* While connecting or probing. */
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    redis_server_freeze(&f->server);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_OK);
    }
    int64_t start_ms = lab_monotonic_ms();
    sink_driver_close(&f->driver); /* With everything in flight: no answer is waited for. */
    assert_true(lab_monotonic_ms() - start_ms < f->driver.settings.command_timeout_ms);
    redis_server_thaw(&f->server);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_the_next_address_is_tried_at_once),
        CASE(test_a_hanging_resolver_blocks_nobody),
        CASE(test_a_worker_that_was_away_blames_nobody),
        CASE(test_a_worker_that_is_always_away_still_times_out),
        CASE(test_two_processes_of_one_name_do_not_spin),
        CASE(test_workers_of_one_process_leave_each_other_alone),
        CASE(test_another_thread_reads_the_status),
        CASE(test_an_end_in_the_middle_loses_nothing_of_ours),
    };
    return cmocka_run_group_tests_name("Redis sink and its neighbours", tests, NULL, NULL);
}
