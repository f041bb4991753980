/* Two real fcapd of one profile: one has counted, is gone for good, and so are the records; the
 * other gets its partitions with the state that the first has kept, and every count is right. */
#include "lab/lab.h"
#include "lib/fault.h"
#include "lib/full_size.h"
#include "run_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define START_MS   180000
#define APPLIED_MS 180000
#define STOP_MS    60000
#define LAG_MS     1500

static struct run_fixture fixture; /* its process is the one that goes */
static struct daemon_process heirs[2];
static char checkpoints[64];
static char more[512];
static unsigned groups; /* a new one each time: nobody waits for the session of one that is dead */

static const struct run_window hours[] = {{"1h", 3600000}, {"2h", 7200000}, {NULL, 0}};

/* The fixture's configuration with another group, and without an instance id: who ends leaves. */
static void configure(const char *instance, char *yaml, size_t size)
{
    static const char id[] = "  instance_id: member\n";
    char group[32];
    run_fixture_yaml(&fixture, instance, "[1h, 2h]", more, yaml, size);
    char *at = strstr(yaml, id);
    assert_non_null(at);
    memmove(at, at + strlen(id), strlen(at + strlen(id)) + 1);
    at = strstr(yaml, "-group\n");
    assert_non_null(at);
    (void)snprintf(group, sizeof group, "-group%u", groups % 100);
    assert_true(strlen(yaml) + strlen(group) < size);
    memmove(at + strlen(group), at + strlen("-group"), strlen(at + strlen("-group")) + 1);
    memcpy(at, group, strlen(group));
}

static void make_heir(size_t index, const char *program)
{
    char yaml[4096];
    configure(index == 0 ? "two" : "three", yaml, sizeof yaml);
    if (heirs[index].directory[0] == '\0') {
        daemon_process_init(&heirs[index], program, yaml);
    } else {
        heirs[index].program = program;
        daemon_process_configure(&heirs[index], yaml);
    }
}

static int setup(void **unused)
{
    char yaml[4096];
    (void)unused;
    lab_folder_make("checkpoints", checkpoints, sizeof checkpoints);
    (void)snprintf(more, sizeof more,
                   "shutdown:\n  deadline: 10s\ncheckpoint:\n  directory: %s/kept\n  interval: 1s\n"
                   "  min_pause: 0s\nmaterialization:\n  interval: 10s\n",
                   checkpoints);
    memset(heirs, 0, sizeof heirs);
    groups++;
    run_fixture_init(&fixture, "[1h, 2h]", hours, more);
    configure("one", yaml, sizeof yaml);
    daemon_process_configure(&fixture.process, yaml);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 2; i++) {
        daemon_process_done(&heirs[i]);
    }
    run_fixture_done(&fixture);
    lab_folder_remove(checkpoints);
    return 0;
}

static int64_t produced(void)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        sum += fixture.next[i];
    }
    return sum;
}

/* Until these together have committed all that was produced. */
static void await_committed(struct daemon_process *first, struct daemon_process *second)
{
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    for (;;) {
        double sum = 0;
        double partitions = 0;
        struct daemon_process *all[] = {first, second};
        for (size_t i = 0; i < 2 && all[i] != NULL; i++) {
            double offset = daemon_process_metric(all[i], "fcapd_partition_committed_offset");
            double open = daemon_process_metric(all[i], "fcapd_partition_gate_open");
            sum += offset > 0 ? offset : 0;
            partitions += open > 0 ? open : 0;
        }
        if (partitions == RUN_PARTITIONS && (int64_t)sum == produced()) {
            return;
        }
        if (lab_monotonic_ms() >= deadline_ms) {
            print_error("%.0f of %lld in %.0f partitions\n%s", sum, (long long)produced(),
                        partitions, daemon_process_log(first));
            fail_msg("%s", second == NULL ? "" : daemon_process_log(second));
        }
        lab_pause_ms(20);
    }
}

static void every_key_is_right(void)
{
    struct oracle_tally tally = {0};
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){100, 100, 0});
}

static void lose_records(void)
{
    for (int32_t partition = 0; partition < RUN_PARTITIONS; partition++) {
        kafka_delete_records(kafka_test_brokers(), fixture.topic, partition,
                             fixture.next[partition]);
    }
}

/* Counts some, with a snapshot and changelog behind it. */
static void count_and_end(void)
{
    run_fixture_start(&fixture, START_MS);
    run_fixture_produce(&fixture, 1000);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    while (daemon_process_metric(&fixture.process, "fcapd_checkpoint_number") < 1) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(20);
    }
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    run_fixture_stop(&fixture, STOP_MS); /* With a last checkpoint of everything. */
    groups++;
}

static void end_heir(size_t index)
{
    daemon_process_signal(&heirs[index], SIGTERM);
    int code = daemon_process_wait(&heirs[index], STOP_MS);
    if (code != 0) {
        fail_msg("exit code %d:\n%s", code, daemon_process_log(&heirs[index]));
    }
}

static size_t times(struct daemon_process *process, const char *text)
{
    size_t count = 0;
    for (const char *at = strstr(daemon_process_log(process), text); at != NULL;
         at = strstr(at + 1, text)) {
        count++;
    }
    return count;
}

static void nothing_is_lost(struct daemon_process *process)
{
    if (daemon_process_metric(process, "fcapd_partition_lost_spans") != 0 ||
        daemon_process_metric(process, "fcapd_partition_complete_since_timestamp_seconds") != 0) {
        fail_msg("%s", daemon_process_log(process));
    }
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void test_what_kafka_has_lost_comes_from_the_other_one(void **unused)
{
    (void)unused;
    struct daemon_process *heir = &heirs[0];
    count_and_end();
    lose_records();
    make_heir(0, FCAPD_PROGRAM);
    daemon_process_start(heir, NULL);
    daemon_process_await(heir, "/readyz", 200, START_MS);
    every_key_is_right();
    nothing_is_lost(heir);
    assert_int_equal(times(heir, ": its state is that of checkpoint "), RUN_PARTITIONS);
    assert_int_equal(times(heir, " of instance one, next offset "), RUN_PARTITIONS);
    assert_int_equal(daemon_process_get(heir, "/metrics", NULL), 200);
    assert_true(daemon_process_sample(heir, "fcapd_adoption_partitions_total",
                                      "from=\"checkpoint\"") == RUN_PARTITIONS);
    assert_true(daemon_process_metric(heir, "fcapd_adoption_bytes_total") > 0);
    run_fixture_produce(&fixture, 500);
    await_committed(heir, NULL);
    every_key_is_right();
    /* It has them now, and goes on from there. */
    end_heir(0);
    run_fixture_produce(&fixture, 200);
    daemon_process_start(heir, NULL);
    await_committed(heir, NULL);
    every_key_is_right();
    nothing_is_lost(heir);
    assert_int_equal(times(heir, ", and no checkpoint is far enough ahead"), RUN_PARTITIONS);
    end_heir(0);
    fault_is_proved(&(const struct fault){
        .id = "machine-gone",
        .fault = "a machine is gone for good, and so are the records in Kafka; another instance of "
                 "the profile gets its partitions",
        .sees = "a line for each: `partition P: its state is that of checkpoint N of instance I, "
                "...`; `fcapd_adoption_partitions_total` with `from=\"checkpoint\"` grows",
        .lost = "nothing: each key equals the definition, no gap is told",
        .recovers = "by itself, when the group gives the partitions to another instance",
    });
}

/* The other one is at work, and ends later. */
static void test_partitions_move_between_two(void **unused)
{
    (void)unused;
    struct daemon_process *heir = &heirs[0];
    run_fixture_start(&fixture, START_MS);
    run_fixture_produce(&fixture, 1000);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    while (daemon_process_metric(&fixture.process, "fcapd_checkpoint_number") < 2) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(20);
    }
    make_heir(0, FCAPD_PROGRAM);
    daemon_process_start(heir, NULL);
    daemon_process_await(heir, "/readyz", 200, START_MS);
    run_fixture_produce(&fixture, 300);
    await_committed(heir, &fixture.process);
    every_key_is_right();
    assert_true(times(heir, " of instance one, next offset ") > 0);
    run_fixture_stop(&fixture, STOP_MS);
    run_fixture_produce(&fixture, 300);
    await_committed(heir, NULL);
    every_key_is_right();
    nothing_is_lost(heir);
    assert_true(times(heir, " of instance one, next offset ") >= RUN_PARTITIONS);
    end_heir(0);
}

static bool read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "re");
    bool is_read = file != NULL && fgets(line, size, file) != NULL && strchr(line, '\n') != NULL;
    if (file != NULL) {
        (void)fclose(file); /* Only read. */
    }
    return is_read;
}

/* kill -9 at each named point of it, proven to have been reached. */
static void kill_in_the_middle(void)
{
    static const struct {
        const char *point;
        int passes;
    } stops[] = {
        {"partition_carried", 1},  {"partition_ending", 2},  {"partition_followed", 2},
        {"partition_carried", 2},  {"adoption_over", 1},     {"adoption_chosen", 1},
        {"adoption_opened", 2},    {"partition_carried", 4}, {"partition_followed", 1},
        {"partition_followed", 3}, {"partition_ending", 1},  {"adoption_over", 2},
    };
    const size_t kinds = sizeof stops / sizeof stops[0];
    const size_t kills = is_full_size() ? 36 : 3;
    struct daemon_process *heir = &heirs[0];
    for (size_t i = 0; i < kills; i++) {
        char file[160];
        char at[160];
        char proof[120] = "";
        char path[128];
        const char *const environment[] = {at, file, NULL};
        if (i % 2 == 0 && i > 0) { /* What was taken is fresh enough: from the beginning. */
            (void)snprintf(path, sizeof path, "%s/state", heir->directory);
            lab_folder_remove(path);
        }
        groups++;
        make_heir(0, FCAPD_POINTS_PROGRAM);
        (void)snprintf(path, sizeof path, "%s/stop", heir->directory);
        (void)unlink(path);
        (void)snprintf(file, sizeof file, "FCAP_STOP_FILE=%s", path);
        (void)snprintf(at, sizeof at, "FCAP_STOP_AT=%s:%d", stops[i % kinds].point,
                       stops[i % kinds].passes);
        daemon_process_start(heir, environment);
        int64_t deadline_ms = lab_monotonic_ms() + START_MS;
        while (!read_line(path, proof, sizeof proof)) {
            if (lab_monotonic_ms() >= deadline_ms) {
                fail_msg("%s is not reached\n%s", stops[i % kinds].point, daemon_process_log(heir));
            }
            lab_pause_ms(10);
        }
        daemon_process_signal(heir, SIGKILL);
        assert_int_equal(daemon_process_wait(heir, STOP_MS), 128 + SIGKILL);
        assert_non_null(strstr(proof, stops[i % kinds].point));
    }
    groups++;
    print_message("result: %zu kills while partitions came from a checkpoint\n", kills);
}

/* Then, while it is busy with them once more, a second one joins and gets half of them. */
static void test_kills_and_revocations_in_the_middle(void **unused)
{
    (void)unused;
    static const char *const slow[] = {"FCAP_DELAY_AT=partition_ending:3000", NULL};
    struct daemon_process *heir = &heirs[0];
    count_and_end();
    lose_records();
    kill_in_the_middle();
    make_heir(0, FCAPD_POINTS_PROGRAM);
    make_heir(1, FCAPD_PROGRAM);
    daemon_process_start(heir, slow);
    daemon_process_await_text(heir, "/readyz", "wait for their state", START_MS);
    daemon_process_start(&heirs[1], NULL);
    daemon_process_await(&heirs[1], "/readyz", 200, START_MS);
    daemon_process_await(heir, "/readyz", 200, START_MS);
    run_fixture_produce(&fixture, 300);
    await_committed(heir, &heirs[1]);
    every_key_is_right();
    nothing_is_lost(heir);
    nothing_is_lost(&heirs[1]);
    assert_true(daemon_process_metric(heir, "fcapd_adoption_cancelled_total") > 0);
    end_heir(1);
    end_heir(0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[3] = {
        TEST(test_what_kafka_has_lost_comes_from_the_other_one),
        TEST(test_kills_and_revocations_in_the_middle),
        TEST(test_partitions_move_between_two),
    };
    /* Between two that are at work the torture moves partitions, too. */
    return _cmocka_run_group_tests("adopt_run", tests, is_full_size() ? 3 : 2, NULL, NULL);
}
