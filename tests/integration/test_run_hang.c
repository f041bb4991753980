/* fcapd and a broker that hangs (B16): it stops in time, and says so while it waits. The broker is
 * a private one, because it is stopped. */
#include "run_fixture.h"
#include "lab/lab.h"

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
    broker = kafka_broker_start();
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
    kafka_broker_stop(broker);
    broker = NULL;
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_B16_a_stop_while_the_broker_hangs_ends_in_time_and_reopens_clean, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
