/* The program's commands and refusals that need neither Kafka nor Redis. */
#include "lab/daemon_process.h"
#include "lab/redis_server.h"
#include "lab/lab.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 15000

static const char good_yaml[] = "profile: test\n"
                                "instance: one\n"
                                "windows: [1h]\n"
                                "kafka:\n"
                                "  brokers: 127.0.0.1:1\n"
                                "  topic: impressions\n"
                                "redis:\n"
                                "  port: 1\n";

static struct daemon_process process;

static int setup(void **unused)
{
    (void)unused;
    daemon_process_init(&process, FCAPD_PROGRAM, good_yaml);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    daemon_process_done(&process);
    return 0;
}

static void assert_says(const char *text)
{
    if (strstr(process.text, text) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", text, process.text);
    }
}

static void test_every_error_of_the_file_is_told_at_once(void **unused)
{
    static const char *const sets[] = {
        "--set", "workers=0",        "--set", "kafka.grop=x", "--set", "commit.interval=never",
        "--set", "redis.port=99999", NULL};
    (void)unused;
    assert_int_equal(daemon_process_command(&process, "run", sets, NULL), 78);
    assert_says("workers");
    assert_says("kafka.grop");
    assert_says("kafka.group"); /* The nearest valid key. */
    assert_says("commit.interval");
    assert_says("redis.port");
}

static void test_a_property_that_the_client_refuses_is_an_error_before_redis_answers(void **unused)
{
    static const char *const sets[] = {"--set", "kafka.librdkafka.no.such.property=1", NULL};
    (void)unused;
    assert_int_equal(daemon_process_command(&process, "run", sets, NULL), 78);
    assert_says("kafka.librdkafka.no.such.property");
    assert_int_equal(daemon_process_command(&process, "check", sets, NULL), 78);
    assert_says("kafka.librdkafka.no.such.property");
}

static void test_a_command_explains_itself(void **unused)
{
    static const char *const help[] = {"--help", NULL};
    static const char *const user[] = {"--user", "--help", "--frobnicate", NULL};
    (void)unused;
    assert_int_equal(daemon_process_command(&process, "backfill", help, NULL), 0);
    assert_says("usage: fcapd backfill [-c FILE]");
    assert_says("[--spill DIR]");
    assert_int_equal(daemon_process_command(&process, "rebuild", user, NULL), 64);
    assert_says("--frobnicate");
}

static void test_unknown_commands_and_arguments_are_refused_with_the_list(void **unused)
{
    static const char *const wrong[] = {"--frobnicate", NULL};
    static const char *const missing[] = {"--set", NULL};
    (void)unused;
    assert_int_equal(daemon_process_command(&process, "frobnicate", NULL, NULL), 64);
    assert_says("no such command");
    assert_says("  run ");
    assert_says("  check ");
    assert_says("  inspect ");
    assert_says("  version ");
    assert_int_equal(daemon_process_command(&process, "run", wrong, NULL), 64);
    assert_says("--frobnicate");
    assert_int_equal(daemon_process_command(&process, "run", missing, NULL), 64);
    assert_int_equal(daemon_process_command(&process, "version", NULL, NULL), 64); /* -c */
}

/* B35: a Service called fcapd puts such variables into every pod. */
static void test_B35_environment_variables_change_nothing(void **unused)
{
    static const char *const arguments[] = {"--offline", "--effective", NULL};
    static const char *const links[] = {"FCAPD_PORT=tcp://10.0.0.9:8080",
                                        "FCAPD_METRICS_PORT=tcp://10.0.0.9:9187",
                                        "FCAPD_SERVICE_HOST=10.0.0.9",
                                        "FCAPD_KAFKA_BROKERS=10.0.0.9:9092",
                                        "FCAPD_WORKERS=7",
                                        "REDIS_PORT=tcp://10.0.0.9:6379",
                                        "REDIS_HOST=10.0.0.9",
                                        NULL};
    (void)unused;
    assert_int_equal(daemon_process_command(&process, "check", arguments, NULL), 0);
    assert_says("brokers");
    char *before = strdup(process.text);
    assert_int_equal(daemon_process_command(&process, "check", arguments, links), 0);
    assert_string_equal(process.text, before);
    free(before);
}

static void test_no_secret_is_printed(void **unused)
{
    static const char *const arguments[] = {"--offline", "--effective", "--set",
                                            "redis.password=${PW}", NULL};
    static const char *const environment[] = {"PW=a: #b\"c'$d{e}\\", NULL};
    (void)unused;
    assert_int_equal(daemon_process_command(&process, "check", arguments, environment), 0);
    assert_says("***");
    assert_null(strstr(process.text, "c'$d"));
    assert_null(strstr(process.text, "secret-token"));
}

static void test_check_says_what_cannot_be_reached(void **unused)
{
    (void)unused;
    assert_int_equal(daemon_process_command(&process, "check", NULL, NULL), 78);
    assert_says("FAIL  kafka.brokers 127.0.0.1:1");
    assert_says("FAIL  redis");
    assert_says("memory.budget");
}

static void test_inspect_without_a_state_says_so(void **unused)
{
    (void)unused;
    assert_int_equal(daemon_process_command(&process, "inspect", NULL, NULL), 78);
    assert_says("there is no state");
}

/* Neither Kafka nor Redis: alive, not ready, says why, and stops at once. */
static void test_alone_it_waits_and_says_why(void **unused)
{
    (void)unused;
    daemon_process_start(&process, NULL);
    daemon_process_await(&process, "/livez", 200, WAIT_MS);
    daemon_process_await_text(&process, "/readyz", "Redis is away", WAIT_MS);
    assert_int_equal(daemon_process_get(&process, "/readyz", NULL), 503);
    assert_says("redis.host");
    assert_says("no partition is assigned yet");
    assert_int_equal(daemon_process_get(&process, "/metrics", NULL), 200);
    assert_says("fcapd_redis_ready{worker=\"0\"} 0");
    assert_int_equal(daemon_process_get(&process, "/nothing", NULL), 404);
    assert_int_equal(daemon_process_get(&process, "/inspect?user=u", "secret-token"), 503);

    /* A second process on the same state. */
    static const char *const other[] = {"--set", "http.listen=off", NULL};
    assert_int_equal(daemon_process_command(&process, "run", other, NULL), 75);
    assert_says("state.directory");

    int64_t begun_ms = lab_monotonic_ms();
    daemon_process_signal(&process, SIGINT);
    assert_int_equal(daemon_process_wait(&process, WAIT_MS), 0);
    assert_in_range(lab_monotonic_ms() - begun_ms, 0, 5000);
}

static void test_without_a_token_file_the_users_pages_are_off(void **unused)
{
    char yaml[128];
    (void)unused;
    (void)snprintf(yaml, sizeof yaml, "%s/token", process.directory);
    assert_int_equal(remove(yaml), 0);
    daemon_process_start(&process, NULL);
    daemon_process_await(&process, "/livez", 200, WAIT_MS);
    assert_int_equal(daemon_process_get(&process, "/inspect?user=u", "secret-token"), 403);
    assert_says("http.token_file");
    assert_int_equal(daemon_process_get(&process, "/hot-users", NULL), 403);
    daemon_process_signal(&process, SIGTERM);
    assert_int_equal(daemon_process_wait(&process, WAIT_MS), 0);
}

/* Runs the program with standard output on `path` (NULL: closed); the exit code. */
static int run_on(const char *path, const char *const *arguments)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int output = path == NULL ? -1 : open(path, O_WRONLY | O_CLOEXEC);
        if (output >= 0) {
            (void)dup2(output, STDOUT_FILENO);
        } else {
            (void)close(STDOUT_FILENO);
        }
        (void)execv(FCAPD_PROGRAM, (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_what_cannot_be_printed_is_no_success(void **unused)
{
    static const char *const version[] = {"fcapd", "version", NULL};
    static const char *const help[] = {"fcapd", "--help", NULL};
    static const char *const command_help[] = {"fcapd", "rebuild", "--help", NULL};
    static const char *const *const all[] = {version, help, command_help};
    (void)unused;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(run_on("/dev/null", all[i]), 0);
        assert_int_equal(run_on("/dev/full", all[i]), 75);
        assert_int_equal(run_on(NULL, all[i]), 75);
    }
}

/* The log lines went into whatever was opened first: files of the state, connections. */
static void test_closed_streams_are_nobody_elses(void **unused)
{
    char config[128];
    char path[64];
    char target[64];
    (void)unused;
    (void)snprintf(config, sizeof config, "%s/fcapd.yaml", process.directory);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) {
            (void)close(i);
        }
        (void)execl(FCAPD_PROGRAM, "fcapd", "run", "-c", config, (char *)NULL);
        _exit(127);
    }
    int64_t deadline_ms = lab_monotonic_ms() + WAIT_MS;
    while (daemon_process_get(&process, "/livez", NULL) != 200) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(20);
    }
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) {
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, i);
        ssize_t size = readlink(path, target, sizeof target - 1);
        target[size < 0 ? 0 : size] = '\0';
        assert_string_equal(target, "/dev/null");
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_cannot_be_printed_is_no_success),
        cmocka_unit_test_setup_teardown(test_closed_streams_are_nobody_elses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_error_of_the_file_is_told_at_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_a_property_that_the_client_refuses_is_an_error_before_redis_answers, setup,
            teardown),
        cmocka_unit_test_setup_teardown(test_a_command_explains_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_unknown_commands_and_arguments_are_refused_with_the_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_B35_environment_variables_change_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_no_secret_is_printed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_check_says_what_cannot_be_reached, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inspect_without_a_state_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(test_alone_it_waits_and_says_why, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_a_token_file_the_users_pages_are_off, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
