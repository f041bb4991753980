/* The real fcapd with checkpoints: its machine is lost, and the records behind them, too; every
 * count comes back all the same. */
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

#define START_MS   180000
#define APPLIED_MS 180000
#define STOP_MS    60000
#define LAG_MS     1500

static struct run_fixture fixture;
static char checkpoints[64];

static const struct run_window hours[] = {{"1h", 3600000}, {"2h", 7200000}, {NULL, 0}};

/* `keys`: further ones of checkpoint, each on a line of its own. */
static void make_yaml(char more[640], const char *keys)
{
    (void)snprintf(more, 640,
                   "shutdown:\n  deadline: 10s\ncheckpoint:\n  directory: %s/kept\n  interval: 1s\n"
                   "  min_pause: 0s\n%smaterialization:\n  interval: 10s\n",
                   checkpoints, keys);
}

static int setup(void **unused)
{
    (void)unused;
    char more[640];
    lab_folder_make("checkpoints", checkpoints, sizeof checkpoints);
    make_yaml(more, "");
    run_fixture_init(&fixture, "[1h, 2h]", hours, more);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    run_fixture_done(&fixture);
    lab_folder_remove(checkpoints);
    return 0;
}

static void start(void)
{
    run_fixture_start(&fixture, START_MS);
}

static void stop(void)
{
    run_fixture_stop(&fixture, STOP_MS);
}

static void await_more_than(const char *name, double below)
{
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    while (daemon_process_metric(&fixture.process, name) <= below) {
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("%s is still %f\n%s", name, below, daemon_process_log(&fixture.process));
        }
        lab_pause_ms(50);
    }
}

/* The machine and all that Kafka held of what is counted. */
static void lose_machine(void)
{
    char state[96];
    (void)snprintf(state, sizeof state, "%s/state", fixture.process.directory);
    lab_folder_remove(state);
    for (int32_t partition = 0; partition < RUN_PARTITIONS; partition++) {
        kafka_delete_records(kafka_test_brokers(), fixture.topic, partition,
                             fixture.next[partition]);
    }
}

static void every_key_is_right(void)
{
    struct oracle_tally tally = {0};
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){100, 100, 0});
}

static void log_holds(const char *text)
{
    const char *log = daemon_process_log(&fixture.process);
    if (strstr(log, text) == NULL) {
        fail_msg("no \"%s\" in\n%s", text, log);
    }
}

static void test_a_lost_machine_comes_back(void **unused)
{
    (void)unused;
    start();
    log_holds("state: it is read from Kafka, for there is none in");
    run_fixture_produce(&fixture, 1000);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    await_more_than("fcapd_checkpoint_number", 1);
    daemon_process_await_text(&fixture.process, "/status", "\"checkpoints\":\"checkpoint ",
                              APPLIED_MS);
    assert_true(daemon_process_metric(&fixture.process, "fcapd_checkpoint_enabled") == 1);
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    stop(); /* With a last checkpoint of everything. */
    lose_machine();
    start();
    log_holds("was restored in");
    every_key_is_right();
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    every_key_is_right();
    await_more_than("fcapd_checkpoint_completed_total", 0);
    /* Another loss, in the middle; what no checkpoint has is read from Kafka again. */
    daemon_process_signal(&fixture.process, SIGKILL);
    assert_int_equal(daemon_process_wait(&fixture.process, STOP_MS), 128 + SIGKILL);
    start();
    log_holds("as it was left");
    every_key_is_right();
    stop();
}

static void test_restore_by_command(void **unused)
{
    (void)unused;
    static const char *const verify[] = {"--from", "latest", "--verify-only", NULL};
    static const char *const latest[] = {"--from", "latest", NULL};
    const char *const other[] = {"--from", fixture.process.directory, NULL};
    static const char *const nothing[] = {NULL};
    struct daemon_process *process = &fixture.process;
    start();
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    assert_int_equal(daemon_process_command(process, "restore", latest, NULL), 78);
    assert_non_null(strstr(process->text, "is not empty"));
    stop();
    assert_int_equal(daemon_process_command(process, "restore", verify, NULL), 0);
    assert_non_null(strstr(process->text, "is whole"));
    lose_machine();
    assert_int_equal(daemon_process_command(process, "restore", nothing, NULL), 64);
    assert_int_not_equal(daemon_process_command(process, "restore", other, NULL), 0);
    assert_int_equal(daemon_process_command(process, "restore", verify, NULL), 0);
    assert_int_equal(daemon_process_command(process, "restore", latest, NULL), 0);
    assert_non_null(strstr(process->text, "is restored into"));
    start();
    log_holds("as it was left");
    every_key_is_right();
    stop();
}

static void configure(const char *keys)
{
    char more[640];
    char yaml[4096];
    make_yaml(more, keys);
    run_fixture_yaml(&fixture, "one", "[1h, 2h]", more, yaml, sizeof yaml);
    daemon_process_configure(&fixture.process, yaml);
}

/* While a state is restored, which may take long, probes are answered; it can be stopped, and the
 * next start does it again. */
static void test_a_start_that_restores_slowly(void **unused)
{
    (void)unused;
    static const char *const latest[] = {"--from", "latest", NULL};
    static const char *const offline[] = {"--offline", NULL};
    struct daemon_process *process = &fixture.process;
    start();
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    await_more_than("fcapd_checkpoint_number", 1);
    stop();
    assert_int_equal(daemon_process_command(process, "check", offline, NULL), 0);
    assert_non_null(strstr(process->text, "s old"));
    assert_non_null(strstr(process->text, "on the file system of state.directory"));
    assert_non_null(strstr(process->text, "room for checkpoint.retain + 1 snapshots"));
    assert_non_null(strstr(process->text, "checkpoint.queue "));
    lose_machine();
    configure("  restore_rate_limit: 1KiB\n");
    daemon_process_start(process, NULL);
    daemon_process_await_text(process, "/readyz", "is being restored from checkpoint.directory",
                              START_MS);
    assert_int_equal(daemon_process_get(process, "/readyz", NULL), 503);
    assert_int_equal(daemon_process_get(process, "/livez", NULL), 200);
    assert_int_equal(daemon_process_get(process, "/metrics", NULL), 200);
    stop(); /* With 0, within shutdown.deadline and what the test gives it. */
    log_holds("stopped before the state was there");
    daemon_process_start(process, NULL);
    daemon_process_await_text(process, "/readyz", "is being restored from checkpoint.directory",
                              START_MS);
    daemon_process_signal(process, SIGKILL);
    assert_int_equal(daemon_process_wait(process, STOP_MS), 128 + SIGKILL);
    configure("");
    assert_int_equal(daemon_process_command(process, "restore", latest, NULL), 0);
    start();
    log_holds("as it was left");
    every_key_is_right();
    stop();
}

/* A volume that is away is no reason not to count. */
static void test_counting_goes_on_without_the_volume(void **unused)
{
    (void)unused;
    struct daemon_process *process = &fixture.process;
    char kept[96];
    char moved[96];
    (void)snprintf(kept, sizeof kept, "%s/kept", checkpoints);
    (void)snprintf(moved, sizeof moved, "%s/moved", checkpoints);
    start();
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    await_more_than("fcapd_checkpoint_number", 1);
    assert_int_equal(rename(kept, moved), 0);
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    await_more_than("fcapd_checkpoint_failing", 0);
    assert_int_equal(daemon_process_get(process, "/readyz", NULL), 200);
    every_key_is_right();
    double completed = daemon_process_metric(process, "fcapd_checkpoint_completed_total");
    assert_int_equal(rename(moved, kept), 0);
    await_more_than("fcapd_checkpoint_completed_total", completed);
    stop();
    lose_machine();
    start();
    every_key_is_right();
    stop();
}

/* Of the running daemon and of a stopped one. */
static void test_savepoints(void **unused)
{
    (void)unused;
    struct daemon_process *process = &fixture.process;
    char running[96];
    char stopped[96];
    (void)snprintf(running, sizeof running, "%s/a savepoint", checkpoints);
    (void)snprintf(stopped, sizeof stopped, "%s/stopped", checkpoints);
    const char *const of_running[] = {"--to", running, NULL};
    const char *const of_stopped[] = {"--to", stopped, NULL};
    const char *const from_running[] = {"--from", running, "--verify-only", NULL};
    const char *const from_stopped[] = {"--from", stopped, NULL};
    static const char *const nowhere[] = {NULL};
    assert_int_equal(daemon_process_command(process, "savepoint", nowhere, NULL), 64);
    assert_int_equal(daemon_process_command(process, "savepoint", of_stopped, NULL), 78);
    start();
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    assert_int_equal(daemon_process_post(process, "/savepoint?to=/x", NULL), 401);
    assert_int_equal(daemon_process_post(process, "/savepoint?to=x", "secret-token"), 400);
    if (daemon_process_command(process, "savepoint", of_running, NULL) != 0) {
        fail_msg("%s", process->text);
    }
    assert_non_null(strstr(process->text, "was read back"));
    assert_int_equal(daemon_process_get(process, "/savepoint", "secret-token"), 200);
    assert_non_null(strstr(process->text, "{\"savepoint\":\"done\""));
    /* It is not empty any more. */
    assert_int_equal(daemon_process_command(process, "savepoint", of_running, NULL), 78);
    assert_non_null(strstr(process->text, "not empty"));
    stop();
    assert_int_equal(daemon_process_command(process, "restore", from_running, NULL), 0);
    assert_int_equal(daemon_process_command(process, "savepoint", of_stopped, NULL), 0);
    lose_machine();
    assert_int_equal(daemon_process_command(process, "restore", from_stopped, NULL), 0);
    start();
    every_key_is_right();
    stop();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_lost_machine_comes_back),
        TEST(test_restore_by_command),
        TEST(test_savepoints),
        TEST(test_a_start_that_restores_slowly),
        TEST(test_counting_goes_on_without_the_volume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
