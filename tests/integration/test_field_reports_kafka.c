/* Field report B16, the group's bad moments: two members with one static id, a restart with the
 * same id, and stops while the broker's port is dead or the group is being rearranged. */
#include "run_fixture.h"
#include "lab/lab.h"
#include "lib/kafka_proxy.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define START_MS    40000
#define APPLIED_MS  40000
#define DEADLINE_MS 10000
#define LAG_MS      5000

static const struct run_window hours[] = {{"1h", 3600000}, {NULL, 0}};
static const char more[] = "shutdown:\n  deadline: 10s\n";
static struct run_fixture fixture;
static struct daemon_process other; /* a second fcapd with a state of its own */
static struct kafka_proxy *proxy;

static int setup(void **unused)
{
    (void)unused;
    proxy = kafka_proxy_insert();
    run_fixture_init(&fixture, "[1h]", hours, more);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    kafka_proxy_swallow(proxy, false);
    kafka_proxy_cut(proxy, false);
    daemon_process_done(&other);
    other = (struct daemon_process){0};
    run_fixture_done(&fixture);
    kafka_proxy_remove(proxy);
    proxy = NULL;
    return 0;
}

static void start(struct daemon_process *process)
{
    daemon_process_start(process, NULL);
    daemon_process_await(process, "/readyz", 200, START_MS);
}

static void init_other(const char *id)
{
    char yaml[4096];
    char wanted[64];
    run_fixture_yaml(&fixture, "two", "[1h]", more, yaml, sizeof yaml);
    char *at = strstr(yaml, "instance_id: member\n");
    assert_non_null(at);
    (void)snprintf(wanted, sizeof wanted, "instance_id: %s\n", id);
    assert_int_equal(strlen(wanted), strlen("instance_id: member\n")); /* In its place. */
    memcpy(at, wanted, strlen(wanted));
    daemon_process_init(&other, FCAPD_PROGRAM, yaml);
}

static void produce_and_compare(size_t count)
{
    struct oracle_tally tally = {0};
    run_fixture_produce(&fixture, count);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){100, 100, 0});
}

/* Exit code 0 before the deadline, and a state that opens and holds every produced offset. */
static void stop_clean(bool all)
{
    struct daemon_process *process = &fixture.process;
    int64_t begun_ms = lab_monotonic_ms();
    daemon_process_signal(process, SIGTERM);
    int code = daemon_process_wait(process, DEADLINE_MS + 1000);
    if (code != 0) {
        fail_msg("exit code %d after %lld ms:\n%s", code,
                 (long long)(lab_monotonic_ms() - begun_ms), daemon_process_log(process));
    }
    print_message("stopped after %lld ms\n", (long long)(lab_monotonic_ms() - begun_ms));
    assert_int_equal(daemon_process_command(process, "inspect", NULL, NULL), 0);
    for (int i = 0; i < RUN_PARTITIONS && all; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "%lld", (long long)fixture.next[i]);
        assert_non_null(strstr(process->text, text));
    }
}

/* What /readyz says while it says 200: never without a partition. Gives the exit code, -1: none. */
static int never_ready_with_nothing(struct daemon_process *process)
{
    if (daemon_process_get(process, "/readyz", NULL) == 200) {
        assert_non_null(strstr(process->text, "\"partition\":"));
    }
    return daemon_process_wait(process, 0);
}

static void test_B16a_two_with_one_id(void **unused)
{
    (void)unused;
    init_other("member");
    start(&other);
    run_fixture_produce(&fixture, 500);
    daemon_process_start(&fixture.process, NULL); /* The younger one takes over. */
    int64_t until_ms = lab_monotonic_ms() + START_MS;
    int code = -1;
    while ((code = never_ready_with_nothing(&other)) < 0) {
        assert_true(lab_monotonic_ms() < until_ms);
        lab_pause_ms(10);
    }
    assert_int_equal(code, 75);
    const char *log = daemon_process_log(&other);
    assert_non_null(strstr(log, "uses the instance id \"member-"));
    assert_non_null(strstr(log, "ids must be unique"));
    const char *clients = redis_server_ask(&fixture.redis, "CLIENT LIST");
    assert_null(strstr(clients, "fcapd:test:two:")); /* Nothing of it is left to be written. */
    daemon_process_await(&fixture.process, "/readyz", 200, START_MS);
    produce_and_compare(500);
    stop_clean(true);
}

static void test_B16b_killed_and_started_at_once(void **unused)
{
    (void)unused;
    start(&fixture.process);
    for (int i = 0; i < 2; i++) {
        run_fixture_produce(&fixture, 500);
        daemon_process_signal(&fixture.process, SIGKILL);
        assert_int_equal(daemon_process_wait(&fixture.process, 5000), 128 + SIGKILL);
        start(&fixture.process);
        produce_and_compare(100);
    }
    assert_true(daemon_process_metric(&fixture.process, "fcapd_kafka_partitions_lost_total") == 0);
}

/* In all of these everything produced had been sent: the state holds it, and is clean. */
static void check_dead_port(void (*port)(struct kafka_proxy *proxy, bool on), int64_t wait_ms)
{
    start(&fixture.process);
    produce_and_compare(500);
    port(proxy, true);
    lab_pause_ms(wait_ms);
    stop_clean(true);
    port(proxy, false);
    start(&fixture.process);
    produce_and_compare(100);
    assert_true(daemon_process_metric(&fixture.process, "fcapd_full_projections_total") == 0);
    stop_clean(true);
}

static void test_B16c_a_port_that_swallows(void **unused)
{
    (void)unused;
    check_dead_port(kafka_proxy_swallow, 500);
}

static void test_B16c_a_port_that_is_closed(void **unused)
{
    (void)unused;
    check_dead_port(kafka_proxy_cut, 500);
}

static void test_B16c_longer_than_the_session(void **unused)
{
    (void)unused;
    check_dead_port(kafka_proxy_swallow, 7000);
}

/* Another member joins, and at once the first is told to stop: at several moments of the round. */
static void test_B16c_in_the_middle_of_a_rebalance(void **unused)
{
    static const int waits_ms[] = {150, 600};
    (void)unused;
    init_other("second");
    for (size_t i = 0; i < sizeof waits_ms / sizeof waits_ms[0]; i++) {
        start(&fixture.process);
        produce_and_compare(300);
        daemon_process_start(&other, NULL);
        lab_pause_ms(waits_ms[i]);
        stop_clean(false);
        daemon_process_signal(&other, SIGTERM);
        int code = daemon_process_wait(&other, DEADLINE_MS + 1000);
        if (code != 0) {
            fail_msg("the other: exit code %d:\n%s", code, daemon_process_log(&other));
        }
        lab_pause_ms(6500); /* Static members are remembered for a session. */
    }
    start(&fixture.process);
    produce_and_compare(300);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_B16a_two_with_one_id),         CASE(test_B16b_killed_and_started_at_once),
        CASE(test_B16c_a_port_that_swallows),    CASE(test_B16c_a_port_that_is_closed),
        CASE(test_B16c_longer_than_the_session), CASE(test_B16c_in_the_middle_of_a_rebalance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
