/* fcapd and a broker that hangs (B16) or dies: it stops in time, says so while it waits, and goes
 * on. The broker is a private one, because it is stopped. */
#include "run_fixture.h"
#include "lab/lab.h"
#include "lib/fault.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define START_MS   20000
#define APPLIED_MS 20000
#define STOP_MS    12000
#define LAG_MS     1500

static const struct run_window hours[] = {{"1h", 3600000}, {NULL, 0}};
static struct run_fixture fixture;
static struct kafka_broker *broker;

static int setup(void **unused)
{
    (void)unused;
    if (broker == NULL) {
        broker = kafka_broker_start(); /* Stopped when the process ends. */
    }
    assert_int_equal(setenv("FCAP_TEST_BROKERS", kafka_broker_address(broker), 1), 0);
    run_fixture_init(&fixture, "[1h]", hours, "shutdown:\n  deadline: 10s\n");
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    if (broker != NULL) {
        (void)kill(kafka_broker_pid(broker), SIGCONT);
    }
    run_fixture_done(&fixture);
    return 0;
}

static void test_B16_a_stop_while_the_broker_hangs_ends_in_time_and_reopens_clean(void **unused)
{
    struct run_fixture *f = &fixture;
    struct oracle_tally tally = {0};
    (void)unused;
    daemon_process_start(&f->process, NULL);
    daemon_process_await(&f->process, "/readyz", 200, START_MS);
    run_fixture_produce(f, 1000);
    run_fixture_await_applied(f, APPLIED_MS);
    assert_int_equal(kill(kafka_broker_pid(broker), SIGSTOP), 0);
    lab_pause_ms(1000);
    daemon_process_signal(&f->process, SIGTERM);
    int64_t begun_ms = lab_monotonic_ms();
    int code = daemon_process_wait(&f->process, STOP_MS);
    if (code != 0 || lab_monotonic_ms() - begun_ms > 10500) {
        fail_msg("exit code %d:\n%s", code, daemon_process_log(&f->process));
    }
    assert_int_equal(daemon_process_command(&f->process, "inspect", NULL, NULL), 0);

    /* It starts while the broker still hangs, is alive, says why it is not ready, and goes on. */
    daemon_process_start(&f->process, NULL);
    daemon_process_await_text(&f->process, "/readyz", "no partition is assigned yet", START_MS);
    assert_int_equal(daemon_process_get(&f->process, "/livez", NULL), 200);
    assert_int_equal(kill(kafka_broker_pid(broker), SIGCONT), 0);
    run_fixture_produce(f, 100);
    daemon_process_await(&f->process, "/readyz", 200, START_MS);
    run_fixture_await_applied(f, APPLIED_MS);
    run_fixture_compare(f, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){100, 100, 0});
    assert_true(daemon_process_metric(&f->process, "fcapd_full_projections_total") == 0);
    daemon_process_signal(&f->process, SIGTERM);
    assert_int_equal(daemon_process_wait(&f->process, STOP_MS), 0);
    fault_is_proved(&(const struct fault){
        .id = "kafka-hangs",
        .fault = "the brokers stand still without closing their connections",
        .sees =
            "no record comes; a start meanwhile: `/readyz` 503: `no partition is assigned yet`, "
            "`/livez` 200; a stop ends in time, with 0",
        .lost = "nothing: each key equals the definition",
        .recovers = "by itself",
    });
}

static void test_a_broker_that_dies_and_comes_back(void **unused)
{
    struct run_fixture *f = &fixture;
    struct oracle_tally tally = {0};
    (void)unused;
    run_fixture_start(f, START_MS);
    run_fixture_produce(f, 1000);
    run_fixture_await_applied(f, APPLIED_MS);
    kafka_broker_kill(broker);
    daemon_process_await_text(&f->process, "/readyz", ": Kafka: ", START_MS);
    assert_int_equal(daemon_process_get(&f->process, "/readyz", NULL), 503);
    assert_int_equal(daemon_process_get(&f->process, "/livez", NULL), 200);
    run_fixture_compare(f, LAG_MS, &tally); /* Expiries go on. */
    kafka_broker_restart(broker);
    run_fixture_produce(f, 100);
    daemon_process_await(&f->process, "/readyz", 200, START_MS);
    run_fixture_await_applied(f, APPLIED_MS);
    run_fixture_compare(f, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){200, 200, 0});
    assert_true(daemon_process_metric(&f->process, "fcapd_gaps_total") == 0);
    run_fixture_stop(f, STOP_MS);
    fault_is_proved(&(const struct fault){
        .id = "kafka-gone",
        .fault = "the brokers are away, and come back with what they held",
        .sees = "`/readyz` 503: `Kafka: ...` after some seconds, `/livez` 200; expiries go on",
        .lost = "nothing: each key equals the definition",
        .recovers = "by itself",
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_B16_a_stop_while_the_broker_hangs_ends_in_time_and_reopens_clean, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_broker_that_dies_and_comes_back, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
