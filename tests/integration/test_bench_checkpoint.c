/* fcapd-bench checkpoint at reduced size: every number is there and what it promises holds; and
 * bytes that are not those of the changed keys are found. No time is asserted. */
#include "integration/bench_output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define STEPS 200

static char output[65536];

/* Runs it to its end; gives the exit code. */
static int run_bench(const char *arguments)
{
    char command[512];
    (void)snprintf(command, sizeof command, "%s checkpoint --json %s", FCAPD_BENCH_PROGRAM,
                   arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t size = fread(output, 1, sizeof output - 1, pipe);
    output[size] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void steps_are_there(const char *object)
{
    static const char *const parts[] = {"steps_off", "steps_changelog", "steps_snapshots"};
    static const char *const positive[] = {"rate",    "p50_us", "p99_us",
                                           "p999_us", "max_us", "p99_ratio"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *part = strstr(object, parts[i]);
        assert_non_null(part);
        assert_true(bench_number(part, "count") == 2 * STEPS);
        for (size_t k = 0; k < sizeof positive / sizeof positive[0]; k++) {
            assert_true(bench_number(part, positive[k]) > 0);
        }
    }
    assert_true(bench_number(object, "snapshots_timed") > 0);
}

static void tells_every_number(void **state)
{
    static const char *const positive[] = {
        "live_bytes",     "compaction_bytes", "changelog_bytes", "manifest_bytes",
        "changed_keys",   "changed_bytes",    "first_files",     "first_bytes",
        "snapshot_files", "snapshot_bytes",   "restored_bytes",  "restore_s",
    };
    (void)state;
    int code = run_bench("--users 10000 --growth 4 --rate 10000 --rounds 2 --steps 200");
    if (code != 0) {
        fail_msg("exit code %d: %s", code, output);
    }
    const char *object = bench_object(output);
    size_t stages = 0;
    for (const char *at = strstr(object, "{\"users\""); at != NULL;
         at = strstr(at + 1, "{\"users\"")) {
        for (size_t i = 0; i < sizeof positive / sizeof positive[0]; i++) {
            assert_true(bench_number(at, positive[i]) > 0);
        }
        assert_true(bench_number(at, "checkpoints") >= 3);
        assert_true(bench_number(at, "snapshots") >= 3);
        assert_true(bench_number(at, "restored_is_equal") == 1);
        double shipped = bench_number(at, "changelog_bytes") + bench_number(at, "manifest_bytes");
        double changed = bench_number(at, "changed_bytes");
        assert_true(shipped < 1.2 * changed && changed < 1.2 * shipped);
        stages++;
    }
    assert_int_equal(stages, 3);
    assert_true(bench_number(object, "flatness") <= 1.2);
    assert_true(bench_number(object, "growth") >= 2);
    assert_true(bench_number(object, "replay_s") > 0);
    steps_are_there(object);
    print_message("result: bytes shipped for a checkpoint differ by %.2f while the state grows "
                  "%.1f times\n",
                  bench_number(object, "flatness"), bench_number(object, "growth"));
}

/* The same few users come so often that batch after batch writes the same keys. */
static void finds_bytes_that_are_not_those_of_the_changed_keys(void **state)
{
    (void)state;
    int code = run_bench("--users 1000 --growth 2 --rate 50000 --rounds 1 --steps 100 2>/dev/null");
    const char *object = bench_object(output);
    assert_int_equal(code, 1);
    assert_true(bench_number(object, "changelog_bytes") >
                1.2 * bench_number(object, "changed_bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_every_number),
        cmocka_unit_test(finds_bytes_that_are_not_those_of_the_changed_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
