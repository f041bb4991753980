/* The real fcapd against a real broker and a real Redis: counts, restarts, health, refusals. */
#include "run_fixture.h"
#include "lab/lab.h"
#include "lib/fault.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define START_MS   20000
#define APPLIED_MS 20000
#define STOP_MS    20000
#define LAG_MS     1500

static struct run_fixture fixture;

static const struct run_window seconds[] = {{"2s", 2000}, {"5s", 5000}, {"20s", 20000}, {NULL, 0}};
static const struct run_window hours[] = {{"1h", 3600000}, {"2h", 7200000}, {NULL, 0}};

static int setup_seconds(void **unused)
{
    (void)unused;
    run_fixture_init(&fixture, "[2s, 5s, 20s]", seconds, "shutdown:\n  deadline: 10s\n");
    return 0;
}

static int setup_hours(void **unused)
{
    (void)unused;
    run_fixture_init(&fixture, "[1h, 2h]", hours, "shutdown:\n  deadline: 10s\n");
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    run_fixture_done(&fixture);
    return 0;
}

static void start(struct run_fixture *f)
{
    daemon_process_start(&f->process, NULL);
    daemon_process_await(&f->process, "/readyz", 200, START_MS);
}

static void stop(struct run_fixture *f)
{
    daemon_process_signal(&f->process, SIGTERM);
    int code = daemon_process_wait(&f->process, STOP_MS);
    if (code != 0) {
        fail_msg("exit code %d:\n%s", code, daemon_process_log(&f->process));
    }
}

/* Some numbers are refreshed once a second only. */
static void await_metric(struct run_fixture *f, const char *name, double wanted)
{
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    double seen;
    while ((seen = daemon_process_metric(&f->process, name)) != wanted) {
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("%s is %f, not %f", name, seen, wanted);
        }
        lab_pause_ms(50);
    }
}

static void test_every_key_equals_the_definition_and_goes_by_itself(void **unused)
{
    struct run_fixture *f = &fixture;
    struct oracle_tally tally = {0};
    (void)unused;
    start(f);
    run_fixture_produce_bad(f);
    for (int i = 0; i < 6; i++) {
        run_fixture_produce(f, 500);
        run_fixture_await_applied(f, APPLIED_MS);
        run_fixture_compare(f, LAG_MS, &tally);
    }
    assert_true(daemon_process_metric(&f->process, "fcapd_records_rejected_total") >= 1);
    assert_true(daemon_process_metric(&f->process, "fcapd_underflows_total") == 0);
    int64_t gone_ms = lab_wall_ms() + 20000 + LAG_MS;
    while (lab_wall_ms() < gone_ms && run_fixture_count_keys(f) > 0) {
        run_fixture_compare(f, LAG_MS, &tally);
        lab_pause_ms(300);
    }
    assert_int_equal(run_fixture_count_keys(f), 0);
    run_fixture_passes(&tally, (struct oracle_minimum){5000, 2000, 300});
    int64_t low = 0;
    int64_t end = 0;
    kafka_ends(kafka_test_brokers(), f->letters, 0, &low, &end);
    assert_int_equal(end, 1);
    stop(f);
}

static void test_a_restart_goes_on_without_projecting_everything(void **unused)
{
    struct run_fixture *f = &fixture;
    struct oracle_tally tally = {0};
    (void)unused;
    start(f);
    run_fixture_produce(f, 2000);
    run_fixture_await_applied(f, APPLIED_MS);
    run_fixture_compare(f, LAG_MS, &tally);
    stop(f);
    assert_true(strstr(daemon_process_log(&f->process), "stopped, exit code 0") != NULL);
    run_fixture_compare(f, LAG_MS, &tally); /* Values stay when the daemon is gone. */
    run_fixture_produce(f, 40);
    start(f);
    run_fixture_await_applied(f, APPLIED_MS);
    run_fixture_compare(f, LAG_MS, &tally);
    assert_true(daemon_process_metric(&f->process, "fcapd_full_projections_total") == 0);
    assert_true(daemon_process_metric(&f->process, "fcapd_records_total") == 40);
    double sets = daemon_process_metric(&f->process, "fcapd_pushes_set_total");
    if (sets < 1 || sets > 2 * 40 * 3) {
        fail_msg("%.0f SETs after the restart", sets);
    }
    run_fixture_passes(&tally, (struct oracle_minimum){900, 900, 0});
    stop(f);
}

static void test_kill_9_and_restart_stays_exact(void **unused)
{
    struct run_fixture *f = &fixture;
    struct oracle_tally tally = {0};
    (void)unused;
    start(f);
    for (int i = 0; i < 3; i++) {
        run_fixture_produce(f, 700);
        lab_pause_ms(i * 130);
        daemon_process_signal(&f->process, SIGKILL);
        assert_int_equal(daemon_process_wait(&f->process, STOP_MS), 128 + SIGKILL);
        assert_int_equal(daemon_process_get(&f->process, "/livez", NULL), 0);
        run_fixture_produce(f, 100);
        start(f);
        run_fixture_await_applied(f, APPLIED_MS);
        run_fixture_compare(f, LAG_MS, &tally);
    }
    run_fixture_passes(&tally, (struct oracle_minimum){900, 900, 0});
    stop(f);
    fault_is_proved(&(const struct fault){
        .id = "process-killed",
        .fault = "kill -9, out of memory, a crash",
        .sees = "exit code 137; nobody answers `/livez`",
        .lost = "nothing: each key equals the definition",
        .recovers = "by a start: what was not committed is read from Kafka again",
    });
}

/* Each family of `text`, a page or the document, must stand in the other one; gives their number.
 */
static size_t check_names(const char *text, const char *other, bool is_page)
{
    size_t count = 0;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        char name[128];
        char type[32];
        char wanted[256];
        line += *line == '\n';
        if (sscanf(line, is_page ? "# TYPE %127s %31s" : "| `%127[a-z0-9_]` | %31[a-z] |", name,
                   type) != 2 ||
            strstr(" counter gauge histogram ", type) == NULL) { /* another table */
            continue;
        }
        (void)snprintf(wanted, sizeof wanted, is_page ? "\n| `%s` | %s |" : "\n# TYPE %s %s\n",
                       name, type);
        if (strstr(other, wanted) == NULL) {
            fail_msg("%s (%s) stands only %s", name, type,
                     is_page ? "on the page" : "in docs/METRICS.md");
        }
        count++;
    }
    return count;
}

static void test_every_metric_is_documented_and_the_other_way_round(void **unused)
{
    struct run_fixture *f = &fixture;
    static char document[1 << 16];
    (void)unused;
    start(f);
    run_fixture_produce(f, 100);
    run_fixture_await_applied(f, APPLIED_MS);
    assert_int_equal(daemon_process_get(&f->process, "/metrics", NULL), 200);
    FILE *file = fopen(FCAP_SOURCE_DIR "/docs/METRICS.md", "r");
    assert_non_null(file);
    document[fread(document, 1, sizeof document - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    size_t shown = check_names(f->process.text, document, true);
    assert_int_equal(check_names(document, f->process.text, false), shown);
    assert_true(shown > 100);
    print_message("result: %zu metrics on the page and in docs/METRICS.md\n", shown);
    stop(f);
}

static void test_pages_and_a_redis_that_goes_and_comes_back_empty(void **unused)
{
    struct run_fixture *f = &fixture;
    struct oracle_tally tally = {0};
    (void)unused;
    start(f);
    run_fixture_produce(f, 1000);
    run_fixture_await_applied(f, APPLIED_MS);
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    assert_int_equal(daemon_process_get(&f->process, "/livez", NULL), 200);
    assert_int_equal(daemon_process_get(&f->process, "/status", NULL), 200);
    assert_non_null(strstr(f->process.text, "\"1h\":\"complete\""));
    assert_true(daemon_process_metric(&f->process, "fcapd_records_total") == 1000);
    await_metric(f, "fcapd_partition_lag_records", 0);
    assert_true(daemon_process_metric(&f->process, "fcapd_partition_gate_open") == RUN_PARTITIONS);
    assert_true(daemon_process_metric(&f->process, "fcapd_redis_ready") == 2);
    assert_true(daemon_process_metric(&f->process, "process_resident_memory_bytes") > 1e6);
    assert_null(strstr(f->process.text, "user-")); /* No user in any metric. */
    while (daemon_process_metric(&f->process, "fcapd_store_commits_total") < 1) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(50);
    }

    redis_server_kill(&f->redis);
    daemon_process_await(&f->process, "/readyz", 503, START_MS);
    assert_non_null(strstr(f->process.text, "Redis is away"));
    assert_non_null(strstr(f->process.text, "redis.host"));
    assert_int_equal(daemon_process_get(&f->process, "/livez", NULL), 200);
    run_fixture_produce(f, 100);
    redis_server_restart(&f->redis, false);
    daemon_process_await(&f->process, "/readyz", 200, START_MS);
    run_fixture_await_applied(f, APPLIED_MS);
    deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    while (run_fixture_count_keys(f) < 2 * (long)oracle_user_count(f->oracle)) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(50);
    }
    run_fixture_compare(f, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){250, 250, 0});
    const char *log = daemon_process_log(&f->process);
    assert_non_null(strstr(log, "Redis is away"));
    assert_non_null(strstr(log, "Redis answers"));
    assert_null(strstr(log, "user-"));
    stop(f);
    fault_is_proved(&(const struct fault){
        .id = "redis-gone",
        .fault = "Redis is killed, and comes back with nothing later",
        .sees =
            "`/readyz` 503: `Redis is away`, `/livez` 200; the log says it, and when Redis answers",
        .lost = "nothing: each key equals the definition",
        .recovers = "by itself: consumption waits, then everything is written once more",
    });
}

static void test_inspect_needs_the_token_and_says_the_same_stopped(void **unused)
{
    struct run_fixture *f = &fixture;
    static const char *const arguments[] = {"--user", "user-9", NULL};
    char running[1024];
    (void)unused;
    start(f);
    run_fixture_produce(f, 1000);
    run_fixture_await_applied(f, APPLIED_MS);
    assert_int_equal(daemon_process_get(&f->process, "/inspect?user=user-9", NULL), 401);
    assert_int_equal(daemon_process_get(&f->process, "/hot-users", "wrong"), 401);
    assert_int_equal(daemon_process_get(&f->process, "/hot-users", "secret-token"), 200);
    assert_non_null(strstr(f->process.text, "\"user\":\"user-"));
    assert_int_equal(daemon_process_get(&f->process, "/inspect?user=user-9", "secret-token"), 200);
    const char *counts = strstr(f->process.text, "\"counts\":{\"");
    assert_non_null(counts);
    (void)snprintf(running, sizeof running, "%.*s", (int)strcspn(counts, "}"), counts);
    assert_int_equal(daemon_process_command(&f->process, "inspect", arguments, NULL), 0);
    assert_non_null(strstr(f->process.text, running));

    daemon_process_signal(&f->process, SIGKILL);
    assert_int_equal(daemon_process_wait(&f->process, STOP_MS), 128 + SIGKILL);
    assert_int_equal(daemon_process_command(&f->process, "inspect", arguments, NULL), 0);
    assert_non_null(strstr(f->process.text, "\"running\":false"));
    if (strstr(f->process.text, running) == NULL) {
        fail_msg("%s is not in %s", running, f->process.text);
    }
    assert_int_equal(daemon_process_command(&f->process, "check", NULL, NULL), 0);
    assert_non_null(strstr(f->process.text, "4 partitions"));
    assert_non_null(strstr(f->process.text, "0 failures"));
}

static void test_check_names_what_is_wrong_with_a_topic(void **unused)
{
    struct run_fixture *f = &fixture;
    static const char *const compact[] = {"cleanup.policy", "compact", NULL};
    static const char *const brief[] = {"retention.ms", "60000", "message.timestamp.type",
                                        "LogAppendTime", NULL};
    char topic[2][260];
    (void)unused;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(topic[i], sizeof topic[i], "kafka.topic=%s", kafka_unique("checked"));
        kafka_create_topic(kafka_test_brokers(), strchr(topic[i], '=') + 1, 1,
                           i == 0 ? compact : brief);
    }
    const char *const first[] = {"--set", topic[0], "--set",
                                 "kafka.dead_letter.topic=nowhere-to-be-found", NULL};
    assert_int_equal(daemon_process_command(&f->process, "check", first, NULL), 78);
    assert_non_null(strstr(f->process.text, "cleanup.policy holds compact"));
    assert_non_null(strstr(f->process.text, "FAIL  kafka.dead_letter.topic nowhere-to-be-found"));
    assert_non_null(strstr(f->process.text, "warn  workers: 2"));
    assert_non_null(strstr(f->process.text, "LogAppendTime"));
    assert_non_null(strstr(f->process.text, "2 failures"));

    assert_string_equal(redis_server_ask(&f->redis, "CONFIG SET maxmemory-policy allkeys-lru"),
                        "OK");
    const char *const second[] = {"--set", topic[1], NULL};
    assert_int_equal(daemon_process_command(&f->process, "check", second, NULL), 0);
    assert_non_null(strstr(f->process.text, "retention.ms is 60000"));
    assert_non_null(strstr(f->process.text, "maxmemory-policy is allkeys-lru"));
    assert_null(strstr(f->process.text, "LogAppendTime"));
    assert_non_null(strstr(f->process.text, "0 failures"));

    const char *const third[] = {"--set", "kafka.topic=nowhere-to-be-found", NULL};
    assert_int_equal(daemon_process_command(&f->process, "check", third, NULL), 78);
    assert_non_null(strstr(f->process.text, "FAIL  kafka.topic nowhere-to-be-found"));
}

static void test_a_member_with_the_same_id_ends_the_older_one(void **unused)
{
    struct run_fixture *f = &fixture;
    struct daemon_process second;
    char yaml[4096];
    (void)unused;
    run_fixture_yaml(f, "two", "[1h, 2h]", "", yaml, sizeof yaml);
    daemon_process_init(&second, FCAPD_PROGRAM, yaml);
    start(f);
    daemon_process_start(&second, NULL);
    int code = daemon_process_wait(&f->process, START_MS);
    daemon_process_done(&second);
    assert_int_equal(code, 75);
    assert_non_null(strstr(daemon_process_log(&f->process), "instance"));
}

static void test_a_stop_while_redis_hangs_ends_in_time_and_a_second_signal_at_once(void **unused)
{
    struct run_fixture *f = &fixture;
    (void)unused;
    start(f);
    run_fixture_produce(f, 500);
    run_fixture_await_applied(f, APPLIED_MS);
    redis_server_freeze(&f->redis);
    run_fixture_produce(f, 500);
    daemon_process_signal(&f->process, SIGTERM);
    int code = daemon_process_wait(&f->process, STOP_MS); /* shutdown.deadline is 10 s. */
    assert_int_equal(code, 75);

    daemon_process_start(&f->process, NULL);
    daemon_process_await(&f->process, "/livez", 200, START_MS);
    daemon_process_await(&f->process, "/readyz", 503, START_MS);
    redis_server_thaw(&f->redis);
    daemon_process_await(&f->process, "/readyz", 200, START_MS);
    run_fixture_await_applied(f, APPLIED_MS);
    redis_server_freeze(&f->redis);
    run_fixture_produce(f, 500);
    daemon_process_signal(&f->process, SIGTERM);
    lab_pause_ms(300);
    int64_t begun_ms = lab_monotonic_ms();
    daemon_process_signal(&f->process, SIGTERM);
    assert_int_equal(daemon_process_wait(&f->process, STOP_MS), 75);
    assert_in_range(lab_monotonic_ms() - begun_ms, 0, 5000); /* Not the deadline. */
    redis_server_thaw(&f->redis);
    start(f);
    run_fixture_await_applied(f, APPLIED_MS);
    struct oracle_tally tally = {0};
    run_fixture_compare(f, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){250, 250, 0});
    stop(f);
    fault_is_proved(&(const struct fault){
        .id = "redis-hangs",
        .fault = "Redis stands still without closing its connections",
        .sees = "`/readyz` 503, `/livez` 200; a stop meanwhile ends after `shutdown.deadline` with "
                "exit code 75, a second signal ends it at once",
        .lost = "nothing: each key equals the definition",
        .recovers = "by itself when Redis goes on",
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_key_equals_the_definition_and_goes_by_itself,
                                        setup_seconds, teardown),
        cmocka_unit_test_setup_teardown(test_a_restart_goes_on_without_projecting_everything,
                                        setup_hours, teardown),
        cmocka_unit_test_setup_teardown(test_kill_9_and_restart_stays_exact, setup_hours, teardown),
        cmocka_unit_test_setup_teardown(test_every_metric_is_documented_and_the_other_way_round,
                                        setup_hours, teardown),
        cmocka_unit_test_setup_teardown(test_pages_and_a_redis_that_goes_and_comes_back_empty,
                                        setup_hours, teardown),
        cmocka_unit_test_setup_teardown(test_inspect_needs_the_token_and_says_the_same_stopped,
                                        setup_hours, teardown),
        cmocka_unit_test_setup_teardown(test_check_names_what_is_wrong_with_a_topic, setup_hours,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_member_with_the_same_id_ends_the_older_one,
                                        setup_hours, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_stop_while_redis_hangs_ends_in_time_and_a_second_signal_at_once, setup_hours,
            teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
