/* `fcapd rebuild` on a real broker and a real Redis: what another hand has done to keys is found
 * and mended, with the daemon running, stopped, under load, killed in the middle, and not where
 * another owner is at work. */
#include "lib/full_size.h"
#include "run_fixture.h"
#include "lab/claims.h"
#include "lab/lab.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define START_MS       60000
#define APPLIED_MS     60000
#define STOP_MS        30000
#define LAG_MS         1500
#define SECOND_LOOK_MS 7000 /* a session timeout after a gate has opened, and a second */
#define TOKEN          "secret-token"
#define DIFFERS        1
#define TEMPORARY      75

static struct run_fixture fixture;

static const struct run_window windows[] = {
    {"5s", 5000}, {"1h", 3600000}, {"2h", 7200000}, {NULL, 0}};
static const char *const verify[] = {"--verify", NULL};

static int setup(void **unused)
{
    (void)unused;
    run_fixture_init(&fixture, "[5s, 1h, 2h]", windows, "shutdown:\n  deadline: 10s\n");
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    run_fixture_done(&fixture);
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

static void command(const char *const *arguments, int wanted)
{
    int code = daemon_process_command(&fixture.process, "rebuild", arguments, NULL);
    if (code != wanted) {
        fail_msg("rebuild gives %d, not %d:\n%s", code, wanted, fixture.process.text);
    }
}

static void assert_says(const char *text)
{
    if (strstr(fixture.process.text, text) == NULL) {
        fail_msg("\"%s\" is not in:\n%s", text, fixture.process.text);
    }
}

static void redis(const char *text, const char *wanted)
{
    const char *answer = redis_server_ask(&fixture.redis, text);
    assert_non_null(answer);
    assert_string_equal(answer, wanted);
}

static void load(size_t count)
{
    run_fixture_produce(&fixture, count);
    run_fixture_await_applied(&fixture, APPLIED_MS);
}

/* Everything that a hand can do to keys of the long windows. */
static void spoil(void)
{
    redis("DEL fc:{user-1}:1h", "1");
    redis("SET fc:{user-2}:1h {\"v\":1,\"as_of\":1,\"counts\":{\"ad-1\":999}} KEEPTTL", "OK");
    redis("PERSIST fc:{user-3}:2h", "1");
    redis("PEXPIREAT fc:{user-4}:2h 4000000000000", "1");
    /* At once, or live traffic may come in between. */
    const char *length = redis_server_ask(
        &fixture.redis, "EVAL %s 0",
        "redis.call('DEL', 'fc:{user-5}:2h') return redis.call('LPUSH', 'fc:{user-5}:2h', 'x')");
    assert_non_null(length);
    assert_string_equal(length, "1");
    redis("SET fc:{user-6}:1h nonsense", "OK");
}

static void check_found(void)
{
    command(verify, DIFFERS);
    assert_says("fc:{user-1}:1h is absent; should be {");
    assert_says("fc:{user-2}:1h has another value: there is {\"v\":1,\"as_of\":1,");
    assert_says("fc:{user-3}:2h has another expiry: there is {");
    assert_says(" for ever; should be ");
    assert_says("fc:{user-4}:2h has another expiry: there is {");
    assert_says("fc:{user-5}:2h is no string; should be {");
    assert_says("fc:{user-6}:1h has another value: there is nonsense for ever");
    assert_says(" 6 differ, of them 0 of users that the state does not know; 0 changed");
}

static void compare(size_t least)
{
    struct oracle_tally tally = {0};
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){least, least / 2, 0});
}

static void mend_a_running_daemon(void)
{
    static const char *const one[] = {"--user", "user-1", NULL};
    static const char *const one_verify[] = {"--user", "user-1", "--verify", NULL};
    static const char *const nobody[] = {"--user", "nobody", NULL};
    command(verify, 0);
    spoil();
    check_found();

    command(one_verify, DIFFERS);
    command(one, 0);
    command(one_verify, 0);
    command(verify, DIFFERS);
    assert_says(" 5 differ");
    command(nobody, TEMPORARY);
    assert_says("404: no partition here knows the user");

    command(NULL, 0);
    assert_says("done: Redis has acknowledged every value");
    command(verify, 0);
    compare(400);
    assert_true(daemon_process_metric(&fixture.process, "fcapd_rebuilds_total") == RUN_PARTITIONS);

    redis("SET fc:{nobody}:1h {\"v\":1,\"as_of\":1,\"counts\":{\"ad-1\":999}}", "OK");
    command(verify, DIFFERS);
    assert_says("fc:{nobody}:1h is of a user whom the state does not know: there is {");
    assert_says(" 1 differ, of them 1 of users");
    redis("UNLINK fc:{nobody}:1h", "1");
    command(verify, 0);
}

static void ask_for_pages(void)
{
    static const char *const wrong[] = {"/rebuild?user=", "/rebuild?user=a%00b",
                                        "/rebuild?user=%FF", "/rebuild?partition=x"};
    struct daemon_process *process = &fixture.process;
    double before = daemon_process_metric(process, "fcapd_rebuilds_total");
    assert_int_equal(daemon_process_post(process, "/rebuild", NULL), 401);
    assert_int_equal(daemon_process_post(process, "/rebuild", "wrong"), 401);
    assert_int_equal(daemon_process_get(process, "/rebuild", NULL), 401);
    assert_int_equal(daemon_process_get(process, "/values", NULL), 401);
    assert_true(daemon_process_metric(process, "fcapd_rebuilds_total") == before);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(daemon_process_post(process, wrong[i], TOKEN), 400);
    }
    assert_int_equal(daemon_process_get(process, "/values?partition=0&after=0", TOKEN), 400);
    assert_int_equal(daemon_process_get(process, "/values?users=xx", TOKEN), 400);
    assert_int_equal(daemon_process_get(process, "/values?users=00", TOKEN), 400);
    assert_int_equal(daemon_process_get(process, "/values?users=0000", TOKEN), 400);
    assert_int_equal(daemon_process_get(process, "/values?users=000275", TOKEN), 400);
    assert_int_equal(daemon_process_get(process, "/values?users=000175", TOKEN), 200);
    assert_int_equal(daemon_process_get(process, "/rebuild?partition=x", TOKEN), 400);
    assert_int_equal(daemon_process_get(process, "/rebuild?partition=7", TOKEN), 404);
    assert_int_equal(daemon_process_get(process, "/rebuild?partition=3", TOKEN), 200);
    assert_says("{\"partitions\":[]}");
    /* The NUL used to end the id: the counts of another user were shown. */
    assert_int_equal(daemon_process_get(process, "/inspect?user=user-1%00", TOKEN), 400);
    assert_int_equal(daemon_process_post(process, "/rebuild?partition=7", TOKEN), 404);
    assert_int_equal(daemon_process_post(process, "/rebuild?user=nobody", TOKEN), 404);
    assert_int_equal(daemon_process_post(process, "/values", TOKEN), 405);
    assert_int_equal(daemon_process_post(process, "/rebuild?partition=1", TOKEN), 202);
    assert_says(
        "{\"partitions\":[{\"partition\":1,\"gate\":\"open\",\"windows\":[\"5s\",\"1h\",\"2h\"]");
    assert_int_equal(daemon_process_post(process, "/rebuild", TOKEN), 202); /* Once more. */
    assert_says("\"partition\":3");
}

static atomic_bool loading;

static void *load_on(void *unused)
{
    (void)unused;
    while (atomic_load(&loading)) {
        run_fixture_produce(&fixture, 50);
        lab_pause_ms(5);
    }
    return NULL;
}

static void mend_under_load(void)
{
    pthread_t thread;
    atomic_store(&loading, true);
    assert_int_equal(pthread_create(&thread, NULL, load_on, NULL), 0);
    for (int i = 0; i < 3; i++) {
        spoil();
        command(NULL, 0);
        /* Keys that change all the while are no differences. */
        int code = daemon_process_command(&fixture.process, "rebuild", verify, NULL);
        if (code != 0) {
            fail_msg("%d: %s", code, fixture.process.text);
        }
    }
    atomic_store(&loading, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    command(verify, 0);
    compare(400);
}

static void test_a_running_daemon(void **unused)
{
    (void)unused;
    start();
    load(1500);
    mend_a_running_daemon();
    ask_for_pages();
    mend_under_load();
    stop();
}

/* Nobody has a partition of a topic that is not there. */
static void test_a_daemon_without_partitions(void **unused)
{
    char yaml[4096];
    (void)unused;
    run_fixture_yaml(&fixture, "one", "[5s, 1h, 2h]", "", yaml, sizeof yaml);
    char *topic = strstr(yaml, fixture.topic);
    assert_non_null(topic);
    *topic = 'x';
    daemon_process_configure(&fixture.process, yaml);
    daemon_process_start(&fixture.process, NULL);
    int64_t deadline_ms = lab_monotonic_ms() + START_MS;
    while (daemon_process_get(&fixture.process, "/values", TOKEN) != 200) {
        assert_true(lab_monotonic_ms() < deadline_ms); /* Its workers wait for Redis first. */
        lab_pause_ms(20);
    }
    command(NULL, TEMPORARY);
    assert_says("404: no partition is assigned here now; see /readyz");
    command(verify, TEMPORARY);
    assert_says("no partition is assigned to the daemon now; see /readyz");
    assert_null(strstr(fixture.process.text, " of 0 partitions"));
    stop();
}

/* Starts the command, and waits until it stands still with some of its values written. */
static pid_t stop_the_command(void)
{
    char config[128];
    char file[128];
    int status;
    (void)snprintf(config, sizeof config, "%s/fcapd.yaml", fixture.process.directory);
    (void)snprintf(file, sizeof file, "%s/stopped", fixture.process.directory);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("FCAP_STOP_AT", "full_pushed:150", 1);
        (void)setenv("FCAP_STOP_FILE", file, 1);
        (void)execl(FCAPD_POINTS_PROGRAM, "fcapd", "rebuild", "-c", config, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(unlink(file), 0);
    return pid;
}

static int end_the_command(pid_t pid, int number)
{
    int status;
    assert_int_equal(kill(pid, number), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* As another owner leaves its traces. */
static void meet_another_owner(void)
{
    assert_string_equal(
        redis_server_ask(&fixture.redis, "SET fc:epoch:test:3:owner %s EX 60", "1 two"), "OK");
    redis("INCR fc:epoch:test:2", "2");
    spoil();
    command(NULL, 0);
    assert_says("partition 3 is left alone: instance two has it now");
    assert_says("partition 2 is left alone: its epoch in Redis is 2 and higher than the state's");
    assert_says("done: 2 partitions written, 2 left alone");
    command(verify, 0); /* What is ours is mended. */
    assert_says("partition 3 is not compared: instance two has it now");
    assert_says(" 0 differ");
    redis("DEL fc:epoch:test:3:owner", "1");
    redis("SET fc:epoch:test:2 1", "OK");
    command(NULL, 0);
    command(verify, 0);
}

static void test_a_stopped_daemon(void **unused)
{
    static const char *const one[] = {"--user", "user-1", NULL};
    static const char *const one_verify[] = {"--user", "user-1", "--verify", NULL};
    (void)unused;
    start();
    load(1500);
    stop();
    command(verify, 0);
    meet_another_owner();
    spoil();
    check_found();
    command(one, 0);
    command(one_verify, 0);
    command(verify, DIFFERS);
    assert_says(" 5 differ");
    assert_int_equal(end_the_command(stop_the_command(), SIGKILL), 128 + SIGKILL);
    redis("FLUSHALL", "OK");
    command(NULL, 0);
    assert_says("not be the Redis that the state was last shown to");
    assert_says("done: 4 partitions written, 0 left alone");
    command(verify, 0);
    compare(400);

    /* The daemon goes on from there: its epochs follow, and its Redis holds everything. */
    start();
    load(200);
    assert_true(daemon_process_metric(&fixture.process, "fcapd_full_projections_total") == 0);
    compare(400);
    command(verify, 0);
    stop();
}

/* Starts the command; what it says goes into `output`. */
static pid_t start_the_command(const char *output)
{
    char config[128];
    (void)snprintf(config, sizeof config, "%s/fcapd.yaml", fixture.process.directory);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int file = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(file, STDOUT_FILENO);
        (void)dup2(file, STDERR_FILENO);
        (void)execl(FCAPD_PROGRAM, "fcapd", "rebuild", "-c", config, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static bool has_said(const char *output, const char *text)
{
    char said[8192];
    FILE *file = fopen(output, "r");
    size_t size = file == NULL ? 0 : fread(said, 1, sizeof said - 1, file);
    said[size] = '\0';
    if (file != NULL) {
        (void)fclose(file); /* Only read. */
    }
    return strstr(said, text) != NULL;
}

/* What has gone has nothing left to be written, and was called done. */
static void test_a_daemon_that_stops_in_the_middle(void **unused)
{
    char output[128];
    int status;
    (void)unused;
    (void)snprintf(output, sizeof output, "%s/said", fixture.process.directory);
    start();
    load(500);
    redis("CLIENT PAUSE 600000 WRITE", "OK");
    pid_t pid = start_the_command(output);
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    while (!has_said(output, "begun: ")) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(20);
    }
    daemon_process_signal(&fixture.process, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), TEMPORARY);
    assert_true(has_said(output, " in the middle of it"));
    assert_false(has_said(output, "done: "));
    (void)daemon_process_wait(&fixture.process, STOP_MS); /* Redis did not take everything. */
    redis("CLIENT UNPAUSE", "OK");
    start(); /* Goes on with it. */
    int code;
    do {
        assert_true(lab_monotonic_ms() < deadline_ms + START_MS);
        code = daemon_process_command(&fixture.process, "rebuild", verify, NULL);
    } while (code == TEMPORARY);
    assert_int_equal(code, 0);
    stop();
}

/* Asks for a rebuild until it has stopped itself. A start may have begun to show everything by
 * itself, a second look for instance, and stop in that before it could be asked: then false. */
static bool stops_when_asked(const char *path)
{
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    bool is_asked = false;
    while (access(path, F_OK) != 0) {
        is_asked = is_asked || daemon_process_post(&fixture.process, "/rebuild", TOKEN) == 202;
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("%s never came; log:\n%s", path, daemon_process_log(&fixture.process));
        }
        lab_pause_ms(10);
    }
    return is_asked;
}

static void test_killed_in_the_middle_of_a_rebuild(void **unused)
{
    static const char *const points[] = {"full_pushed:60", "full_begun:1", "full_queued:20",
                                         "full_acked:2"};
    char file[160];
    char at[160];
    char proof[200];
    struct daemon_process *process = &fixture.process;
    (void)unused;
    process->program = FCAPD_POINTS_PROGRAM;
    (void)snprintf(file, sizeof file, "%s/stopped", process->directory);
    (void)snprintf(proof, sizeof proof, "FCAP_STOP_FILE=%s", file);
    start();
    load(1500);
    stop();
    size_t tries = 0;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; tries++) {
        const char *const environment[] = {at, proof, NULL};
        assert_true(tries < 3 * sizeof points / sizeof points[0]);
        (void)snprintf(at, sizeof at, "FCAP_STOP_AT=%s", points[i]);
        spoil();
        daemon_process_start(process, environment);
        i += stops_when_asked(file);
        daemon_process_signal(process, SIGKILL);
        assert_int_equal(daemon_process_wait(process, STOP_MS), 128 + SIGKILL);
        assert_int_equal(unlink(file), 0);
        start();
        command(NULL, 0); /* Waits for what the start has begun by itself. */
        command(verify, 0);
        compare(400);
        if (i < sizeof points / sizeof points[0]) {
            lab_pause_ms(SECOND_LOOK_MS); /* What is due then need not be done by the next start. */
        }
        stop();
    }
}

/* Waits until instance two has applied everything. */
static void await_other(void)
{
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    for (int32_t i = 0; i < RUN_PARTITIONS;) {
        struct claim claim;
        const char *meta = redis_server_ask(&fixture.redis, "GET fc:meta:test:two");
        if (claim_read(meta, i, &claim) && claim.next >= fixture.next[i]) {
            i++;
            continue;
        }
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("fc:meta: %s", meta == NULL ? "absent" : meta);
        }
        lab_pause_ms(50);
    }
}

static void start_other(struct daemon_process *other)
{
    char yaml[4096];
    run_fixture_yaml(&fixture, "two", "[5s, 1h, 2h]", "", yaml, sizeof yaml);
    daemon_process_init(other, FCAPD_PROGRAM, yaml);
    daemon_process_start(other, NULL);
    daemon_process_await(other, "/readyz", 200, START_MS);
    run_fixture_produce(&fixture, 500);
    await_other();
}

/* What the command has in its hands is older than what the owner has shown. */
static void test_another_owner_comes_in_the_middle(void **unused)
{
    struct daemon_process other = {0};
    (void)unused;
    start();
    load(1000);
    stop();
    pid_t pid = stop_the_command();
    start_other(&other);
    assert_int_equal(end_the_command(pid, SIGCONT), 0); /* One partition was written before. */
    compare(400);
    daemon_process_signal(&other, SIGTERM);
    assert_int_equal(daemon_process_wait(&other, STOP_MS), 0);
    daemon_process_done(&other);
}

static void test_another_owner_keeps_its_keys(void **unused)
{
    struct daemon_process other = {0};
    (void)unused;
    start();
    load(1000);
    stop();
    start_other(&other);
    command(NULL, TEMPORARY);
    assert_says("partition 0 is left alone: instance two has it now");
    assert_says("done: 0 partitions written, 4 left alone");
    command(verify, TEMPORARY);
    assert_says("partition 3 is not compared: ");
    daemon_process_signal(&other, SIGKILL);
    assert_int_equal(daemon_process_wait(&other, STOP_MS), 128 + SIGKILL);
    for (int i = 0; i < RUN_PARTITIONS; i++) {
        (void)redis_server_ask(&fixture.redis, "DEL fc:epoch:test:%d:owner", i);
    }
    command(NULL, TEMPORARY); /* It is newer, dead or alive. */
    assert_says("and higher than the state's");
    daemon_process_done(&other);
    start();
    run_fixture_await_applied(&fixture, APPLIED_MS);
    compare(400);
    stop();
}

int main(void)
{
    const struct CMUnitTest reduced[] = {
        cmocka_unit_test_setup_teardown(test_a_running_daemon, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_stopped_daemon, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_daemon_without_partitions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_daemon_that_stops_in_the_middle, setup, teardown),
    };
    const struct CMUnitTest more[] = {
        /* Each takes some starts. */
        cmocka_unit_test_setup_teardown(test_killed_in_the_middle_of_a_rebuild, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_owner_keeps_its_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_owner_comes_in_the_middle, setup, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    int failed = cmocka_run_group_tests_name("rebuild", reduced, NULL, NULL);
    return is_full_size()
               ? failed + cmocka_run_group_tests_name("rebuild, killed", more, NULL, NULL)
               : failed;
}
