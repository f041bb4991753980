/* fcapd-bench pipeline and load at reduced size: every number is there, every key is right, nothing
 * stays behind; and a wrong key is found. No time is asserted. */
#include "integration/bench_output.h"
#include "lab/kafka_broker.h"
#include "lab/lab.h"
#include "lab/redis_server.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct redis_server redis;

struct run {
    pid_t pid;
    char output[65536];
    int code;
};

static void become_load(uint16_t redis_port)
{
    char address[32];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", redis_port);
    const char *const arguments[] = {
        "fcapd-bench",  "load",  "--users",  "2000",        "--ads",      "100",
        "--events",     "20000", "--rounds", "1",           "--min-keys", "2000",
        "--partitions", "4",     "--fcapd",  FCAPD_PROGRAM, "--brokers",  kafka_test_brokers(),
        "--redis",      address, "--json",   NULL};
    (void)execv(FCAPD_BENCH_PROGRAM, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

static void become_pipeline(uint16_t redis_port, const char *windows)
{
    char address[32];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", redis_port);
    const char *const arguments[] = {
        "fcapd-bench", "pipeline", "--users",     "2000",      "--ads",
        "100",         "--events", "20000",       "--seconds", "2",
        "--rates",     "50",       "--windows",   windows,     "--min-keys",
        "500",         "--fcapd",  FCAPD_PROGRAM, "--brokers", kafka_test_brokers(),
        "--redis",     address,    "--json",      NULL};
    (void)execv(FCAPD_BENCH_PROGRAM, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

/* Runs it to its end. `plant`: a key of nobody is there all the time; its window, NULL: none. */
static void run_bench(struct run *run, bool is_load, const char *plant)
{
    int channel[2];
    size_t size = 0;
    int status;
    (void)kafka_test_brokers();
    assert_int_equal(pipe2(channel, O_CLOEXEC), 0);
    run->pid = fork();
    assert_true(run->pid >= 0);
    if (run->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(channel[1], STDOUT_FILENO);
        if (is_load) {
            become_load(redis.port);
        }
        become_pipeline(redis.port, plant != NULL ? "1,2,4" : "1,3,10");
    }
    (void)close(channel[1]);
    struct pollfd watched = {.fd = channel[0], .events = POLLIN};
    for (;;) {
        if (plant != NULL) {
            (void)redis_server_ask(&redis, "SET b%d:{nobody}:%s {} PX 60000", (int)run->pid, plant);
        }
        if (poll(&watched, 1, 100) == 0) {
            continue;
        }
        ssize_t got = read(channel[0], run->output + size, sizeof run->output - size - 1);
        if (got <= 0) {
            break;
        }
        size += (size_t)got;
    }
    run->output[size] = '\0';
    (void)close(channel[0]);
    assert_int_equal(waitpid(run->pid, &status, 0), run->pid);
    run->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void tells_every_number_and_leaves_nothing(void **state)
{
    static const char *const positive[] = {
        "daemon_cpu_us_per_event", "events_per_second", "redis_writes_per_event",
        "freshness_ms_p99",        "keys_compared",     "expiries_per_event",
    };
    static const char *const rows[] = {"backlog", "rate 50%", "gates closed"};
    static struct run run;
    (void)state;
    run_bench(&run, false, NULL);
    const char *object = bench_object(run.output);
    if (run.code != 0) {
        fail_msg("exit code %d: %s", run.code, run.output);
    }
    for (size_t i = 0; i < sizeof positive / sizeof positive[0]; i++) {
        assert_true(bench_number(object, positive[i]) > 0);
    }
    assert_true(bench_number(object, "expiry_lateness_ms_p99") >= 0);
    assert_true(bench_number(object, "mismatches") == 0);
    assert_true(bench_number(object, "keys_compared") >= 500);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "{\"name\":\"%s\"", rows[i]);
        const char *row = strstr(object, name);
        assert_non_null(row);
        /* Few records behind closed gates may all have been read at the first look. */
        bool may_be_none = strcmp(rows[i], "gates closed") == 0;
        assert_true(bench_number(row, "cpu_us_worker") > (may_be_none ? -1 : 0));
        assert_true(bench_number(row, "stage_us_read") >= 0);
    }
    const char *left = redis_server_ask(&redis, "EVAL %s 0",
                                        "return #redis.call('KEYS', 'b*') + "
                                        "#redis.call('KEYS', 'fc:*bench*')");
    assert_string_equal(left, "0");
    print_message("result: %.0f keys compared, %.0f differ\n",
                  bench_number(object, "keys_compared"), bench_number(object, "mismatches"));
}

static void finds_a_wrong_key(void **state)
{
    static struct run run;
    (void)state;
    run_bench(&run, false, "4s");
    const char *object = bench_object(run.output);
    assert_int_equal(run.code, 1);
    assert_true(bench_number(object, "mismatches") >= 1);
}

/* The key of nobody is found after each of both loads, and nothing else is wrong. */
static void loads_a_topic_in_both_ways(void **state)
{
    static const char *const positive[] = {
        "run_events_per_second",
        "run_events_per_second_busy",
        "run_cpu_us_per_event",
        "run_seconds",
        "backfill_events_per_second",
        "backfill_events_per_second_busy",
        "backfill_cpu_us_per_event",
        "backfill_seconds",
        "busy_rate_ratio",
        "cpu_ratio",
    };
    static struct run run;
    (void)state;
    run_bench(&run, true, "86400s");
    const char *object = bench_object(run.output);
    assert_int_equal(run.code, 1);
    for (size_t i = 0; i < sizeof positive / sizeof positive[0]; i++) {
        assert_true(bench_number(object, positive[i]) > 0);
    }
    assert_true(bench_number(object, "events") == 20000);
    assert_true(bench_number(object, "keys_compared") >= 2000);
    assert_true(bench_number(object, "mismatches") == 2);
    print_message("result: %.0f keys compared after run and after backfill, only the planted ones "
                  "differ\n",
                  bench_number(object, "keys_compared"));
}

static int setup(void **state)
{
    (void)state;
    redis_server_start(&redis, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    redis_server_stop(&redis);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_every_number_and_leaves_nothing),
        cmocka_unit_test(finds_a_wrong_key),
        cmocka_unit_test(loads_a_topic_in_both_ways),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, setup, teardown);
}
