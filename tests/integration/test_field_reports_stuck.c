/* Field report B22: one partition is not fetched any more while the consumer is healthy. A proxy
 * answers its fetches with empty sets and an old end, so the client even says "end". */
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

#define START_MS   40000
#define APPLIED_MS 40000
#define STUCK      3 /* the partition */
#define LAG_MS     5000
#define ROUNDS     20 /* looks at the others meanwhile */

static const struct run_window hours[] = {{"1h", 3600000}, {NULL, 0}};
static struct run_fixture fixture;
static struct kafka_proxy *proxy;

static int setup(void **unused)
{
    (void)unused;
    proxy = kafka_proxy_insert();
    run_fixture_init(&fixture, "[1h]", hours, "");
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    run_fixture_done(&fixture);
    kafka_proxy_remove(proxy);
    return 0;
}

static int64_t claimed(int32_t partition)
{
    char name[24];
    (void)snprintf(name, sizeof name, "\"%d\":{", partition);
    const char *meta = run_fixture_meta(&fixture);
    const char *at = meta == NULL ? NULL : strstr(meta, name);
    at = at == NULL ? NULL : strstr(at, "\"next\":");
    return at == NULL ? -1 : strtoll(at + strlen("\"next\":"), NULL, 10);
}

static void await_others(void)
{
    int64_t until_ms = lab_monotonic_ms() + APPLIED_MS;
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        while (i != STUCK && claimed(i) < fixture.next[i]) {
            assert_true(lab_monotonic_ms() < until_ms);
            lab_pause_ms(20);
        }
    }
}

static void start(void)
{
    daemon_process_start(&fixture.process, NULL);
    daemon_process_await(&fixture.process, "/readyz", 200, START_MS);
}

static void test_B22_one_partition_stands_still(void **unused)
{
    struct oracle_tally tally = {0};
    struct daemon_process *process = &fixture.process;
    (void)unused;
    start();
    run_fixture_produce(&fixture, 400);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    assert_true(daemon_process_metric(process, "fcapd_partition_stuck") == 0);
    double rebalances = daemon_process_metric(process, "fcapd_kafka_rebalances_total");

    int64_t stood = fixture.next[STUCK];
    kafka_proxy_starve(proxy, fixture.topic, STUCK);
    lab_pause_ms(500); /* It begins at the partition's end. */
    run_fixture_produce(&fixture, 1000);
    await_others();
    daemon_process_await_text(process, "/readyz", "partition 3: it is not fetched", START_MS);
    assert_int_equal(daemon_process_get(process, "/readyz", NULL), 503);
    assert_true(daemon_process_metric(process, "fcapd_partition_stuck") == 1);
    assert_true(daemon_process_metric(process, "fcapd_kafka_stalls_total") >= 1);
    assert_true(daemon_process_metric(process, "fcapd_partition_lag_records") > 0);
    /* The others go on, through the new assignments of this one, too. */
    double stalls = daemon_process_metric(process, "fcapd_kafka_stalls_total");
    for (int i = 0; i < ROUNDS; i++) {
        run_fixture_produce(&fixture, 40);
        await_others();
        lab_pause_ms(100);
    }
    assert_true(daemon_process_metric(process, "fcapd_kafka_stalls_total") > stalls);
    int64_t until_ms = lab_monotonic_ms() + APPLIED_MS;
    while (claimed(STUCK) < 0 && lab_monotonic_ms() < until_ms) {
        lab_pause_ms(100); /* fc:meta expires on a very busy machine. */
    }
    assert_int_equal(claimed(STUCK), stood);
    assert_true(kafka_proxy_starved(proxy) > 0);
    assert_true(daemon_process_metric(process, "fcapd_kafka_rebalances_total") == rebalances);
    assert_true(daemon_process_metric(process, "fcapd_gaps_total") == 0);

    kafka_proxy_starve(proxy, NULL, 0);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    daemon_process_await(process, "/readyz", 200, START_MS);
    assert_true(daemon_process_metric(process, "fcapd_partition_stuck") == 0);
    assert_non_null(strstr(daemon_process_log(process), "partition 3: it is fetched again"));
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){140, 140, 0});
}

/* The gate of a partition that is starved from its assignment on stays closed: the "end" that its
 * queue says is not the end that was looked up. */
static void test_B22_an_end_that_is_none_opens_no_gate(void **unused)
{
    struct oracle_tally tally = {0};
    struct daemon_process *process = &fixture.process;
    (void)unused;
    start();
    run_fixture_produce(&fixture, 400);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    kafka_proxy_starve(proxy, fixture.topic, STUCK);
    lab_pause_ms(500);
    daemon_process_signal(process, SIGTERM);
    assert_int_equal(daemon_process_wait(process, START_MS), 0);
    run_fixture_produce(&fixture, 400);
    daemon_process_start(process, NULL);
    daemon_process_await_text(process, "/readyz", "partition 3: it is not fetched", START_MS);
    await_others();
    assert_non_null(strstr(process->text, "partition 3: the gate to Redis is closed"));
    kafka_proxy_starve(proxy, NULL, 0);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    daemon_process_await(process, "/readyz", 200, START_MS);
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){140, 140, 0});
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_B22_one_partition_stands_still),
        CASE(test_B22_an_end_that_is_none_opens_no_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
