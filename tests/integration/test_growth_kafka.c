/* Partitions are added to a topic on a real broker, under load, while the daemon runs and while it
 * is stopped. Producers learn of it one after the other; some users are erased meanwhile. */
#include "lib/full_size.h"
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

enum {
    WAIT_MS = 90000,
    LAG_MS = 5000,
    OLD = RUN_PARTITIONS,
    NEW = 7, /* Every old partition loses users, to new ones and to old ones. */
    USERS = 84,
    ERASED = 14,     /* the last ones; gone from the growth on */
    LEARN_MS = 1500, /* so long some producers go on in old places */
};

static const struct run_window windows[] = {{"3s", 3000}, {"1h", 3600000}, {NULL, 0}};
static struct run_fixture fixture;
static int64_t next_offset[NEW];
static unsigned serial;

static void init(const char *more)
{
    char yaml[512];
    (void)snprintf(yaml, sizeof yaml,
                   "windows_incomplete: serve\n"
                   "limits:\n"
                   "  max_future_skew: 1s\n"
                   "%s",
                   more);
    run_fixture_init(&fixture, "[3s, 1h]", windows, yaml);
    memset(next_offset, 0, sizeof next_offset);
    serial = 0;
}

static int setup(void **unused)
{
    (void)unused;
    init("");
    return 0;
}

static int setup_stop(void **unused)
{
    (void)unused;
    init("on_gap: stop\n");
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    run_fixture_done(&fixture);
    return 0;
}

static void send(int user, int partitions, bool is_tombstone)
{
    char name[32];
    char ad[32];
    char value[160];
    int32_t partition = user % partitions;
    int64_t now_ms = lab_wall_ms();
    (void)snprintf(name, sizeof name, "user-%d", user);
    (void)snprintf(ad, sizeof ad, "ad-%u", serial++ % 5);
    (void)snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ad_id\":\"%s\",\"ts\":%lld}", name,
                   ad, (long long)now_ms);
    kafka_producer_send(fixture.producer,
                        &(struct kafka_produce){.partition = partition,
                                                .key = name,
                                                .key_size = strlen(name),
                                                .value = is_tombstone ? NULL : value,
                                                .value_size = is_tombstone ? 0 : strlen(value)});
    int64_t offset = next_offset[partition]++;
    struct oracle_event event = {partition, offset, name, ad, now_ms, NULL};
    enum oracle_verdict verdict = is_tombstone
                                      ? oracle_tombstone(fixture.oracle, partition, offset, name)
                                      : oracle_add(fixture.oracle, &event);
    assert_int_equal(verdict, ORACLE_ACCEPTED);
}

/* One event of every user, but for the first `from` ones and those from `to` on. */
static void send_all(int from, int to, int partitions)
{
    for (int user = from; user < to; user++) {
        send(user, partitions, false);
    }
    (void)kafka_producer_flush(fixture.producer);
}

static const char *task_of(const char *meta, int32_t partition)
{
    char name[24];
    (void)snprintf(name, sizeof name, "\"%d\":{", partition);
    return meta == NULL ? NULL : strstr(meta, name);
}

static bool is_applied(int count)
{
    const char *meta = run_fixture_meta(&fixture);
    int done = 0;
    for (int32_t i = 0; i < count; i++) {
        const char *at = task_of(meta, i);
        at = at == NULL ? NULL : strstr(at, "\"next\":");
        done += at != NULL && strtoll(at + strlen("\"next\":"), NULL, 10) >= next_offset[i];
    }
    return done == count;
}

static bool is_ready(const char *window)
{
    const char *meta = run_fixture_meta(&fixture);
    char text[16];
    int done = 0;
    (void)snprintf(text, sizeof text, "\"%s\"", window);
    for (int32_t i = 0; i < NEW; i++) {
        const char *at = task_of(meta, i);
        at = at == NULL ? NULL : strstr(at, "\"ready\":[");
        const char *end = at == NULL ? NULL : strchr(at, ']');
        const char *found = at == NULL ? NULL : strstr(at, text);
        done += found != NULL && found < end;
    }
    return done == NEW;
}

static void fail_late(const char *what)
{
    const char *meta = run_fixture_meta(&fixture);
    (void)fprintf(stderr, "fc:meta: %s\n--- log:\n%s", meta == NULL ? "absent" : meta,
                  daemon_process_log(&fixture.process));
    fail_msg("%s", what);
}

static void await_applied(int count)
{
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    while (!is_applied(count)) {
        if (lab_monotonic_ms() > until_ms) {
            fail_late("not everything is read");
        }
        lab_pause_ms(20);
    }
}

static void start(void)
{
    daemon_process_start(&fixture.process, NULL);
    daemon_process_await(&fixture.process, "/readyz", 200, WAIT_MS);
}

static void add_partitions(void)
{
    kafka_add_partitions(kafka_test_brokers(), fixture.topic, NEW);
    kafka_producer_close(fixture.producer); /* The next one knows them from its start. */
    fixture.producer = kafka_producer_open(kafka_test_brokers(), fixture.topic, NULL, NULL);
}

/* Users are sent again and again, and those to be erased are, until the window has passed the
 * growth in every partition. */
static void live_through(void)
{
    int64_t begin_ms = lab_monotonic_ms();
    int64_t until_ms = begin_ms + WAIT_MS;
    for (int user = USERS - ERASED; user < USERS; user++) {
        send(user, NEW, true);
    }
    while (!is_ready("3s")) {
        bool is_learning = lab_monotonic_ms() - begin_ms < LEARN_MS;
        send_all(0, USERS / 2, is_learning ? OLD : NEW);
        send_all(USERS / 2, USERS - ERASED, NEW);
        if (lab_monotonic_ms() > until_ms) {
            fail_late("the window is not ready");
        }
        lab_pause_ms(100);
    }
}

static void check_after(void)
{
    await_applied(NEW);
    struct oracle_tally tally = {0};
    fixture.window_count = 1; /* The hour has not passed yet. */
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){USERS, USERS - ERASED, 0});
    for (int user = USERS - ERASED; user < USERS; user++) {
        for (size_t i = 0; windows[i].name != NULL; i++) {
            const char *value =
                redis_server_ask(&fixture.redis, "GET fc:{user-%d}:%s", user, windows[i].name);
            if (value != NULL) {
                fail_msg("user-%d is back in %s: %s", user, windows[i].name, value);
            }
        }
    }
    assert_false(is_ready("1h"));
    const char *log = daemon_process_log(&fixture.process);
    if (strstr(log, "the number of partitions has changed: users have moved") == NULL ||
        strstr(log, "not keyed") != NULL) {
        fail_msg("%s", log);
    }
    (void)daemon_process_get(&fixture.process, "/metrics", NULL);
    assert_true(daemon_process_metric(&fixture.process, "fcapd_gaps_total") == OLD);
}

static void begin(void)
{
    start();
    for (int i = 0; i < 5; i++) {
        send_all(0, USERS, OLD);
        lab_pause_ms(100);
    }
    await_applied(OLD);
    struct oracle_tally tally = {0};
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){2 * USERS, USERS, 0});
}

static void test_added_while_it_runs(void **unused)
{
    (void)unused;
    begin();
    add_partitions();
    live_through();
    check_after();
}

static void test_added_while_it_is_stopped(void **unused)
{
    (void)unused;
    begin();
    daemon_process_signal(&fixture.process, SIGTERM);
    assert_int_equal(daemon_process_wait(&fixture.process, WAIT_MS), 0);
    add_partitions();
    send_all(0, USERS - ERASED, OLD);
    start();
    live_through();
    check_after();
}

static void test_on_gap_stop(void **unused)
{
    (void)unused;
    begin();
    add_partitions();
    assert_int_equal(daemon_process_wait(&fixture.process, WAIT_MS), 70);
    const char *log = daemon_process_log(&fixture.process);
    if (strstr(log, "the topic had 4 partitions when the state was written and has 7 now") ==
            NULL ||
        strstr(log, "on_gap: degrade goes on") == NULL) {
        fail_msg("%s", log);
    }
    daemon_process_start(&fixture.process, NULL); /* Nor does it start. */
    assert_int_equal(daemon_process_wait(&fixture.process, WAIT_MS), 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_added_while_it_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_on_gap_stop, setup_stop, teardown),
    };
    const struct CMUnitTest more[] = {
        cmocka_unit_test_setup_teardown(test_added_while_it_is_stopped, setup, teardown),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (is_full_size()) {
        failed += cmocka_run_group_tests(more, NULL, NULL);
    }
    return failed;
}
