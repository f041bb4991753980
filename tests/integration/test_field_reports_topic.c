/* Field report B20: a topic is deleted and created again, with fewer records, as many, more, or the
 * very same ones; while fcapd is down and while it runs. */
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

#define WAIT_MS 40000
#define LAG_MS  5000
#define USERS   20

static const struct run_window hours[] = {{"1h", 3600000}, {NULL, 0}};
static struct run_fixture fixture;
static int64_t base_ms;                 /* of record 0 */
static int64_t written[RUN_PARTITIONS]; /* offsets of the topic as it is now */
static int64_t ever[RUN_PARTITIONS];    /* records ever: the oracle knows one endless log */

static int setup_with(const char *more)
{
    run_fixture_init(&fixture, "[1h]", hours, more);
    base_ms = lab_wall_ms() - 60000;
    memset(written, 0, sizeof written);
    memset(ever, 0, sizeof ever);
    return 0;
}

static int setup(void **unused)
{
    (void)unused;
    return setup_with("");
}

static int setup_stop(void **unused)
{
    (void)unused;
    return setup_with("on_gap: stop\n");
}

static int teardown(void **unused)
{
    (void)unused;
    run_fixture_done(&fixture);
    return 0;
}

/* Records from..to-1 of a kind: the same number and kind give the same bytes and the same time.
 * `again`: the oracle has them already. */
static void produce(const char *kind, int from, int to, bool again)
{
    for (int i = from; i < to; i++) {
        char user[32];
        char value[160];
        int32_t partition = i % RUN_PARTITIONS;
        int64_t time_ms = base_ms + i;
        (void)snprintf(user, sizeof user, "%s-%d", kind, i % USERS);
        (void)snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ad_id\":\"ad\",\"ts\":%lld}",
                       user, (long long)time_ms);
        kafka_producer_send(fixture.producer, &(struct kafka_produce){.partition = partition,
                                                                      .key = user,
                                                                      .key_size = strlen(user),
                                                                      .value = value,
                                                                      .value_size = strlen(value),
                                                                      .timestamp_ms = time_ms});
        written[partition]++;
        if (!again) {
            struct oracle_event event = {partition, ever[partition]++, user, "ad", time_ms, NULL};
            assert_int_equal(oracle_add(fixture.oracle, &event), ORACLE_ACCEPTED);
        }
    }
    (void)kafka_producer_flush(fixture.producer);
}

static void delete_topic(void)
{
    kafka_producer_close(fixture.producer);
    fixture.producer = NULL;
    kafka_delete_topic(kafka_test_brokers(), fixture.topic);
}

static void create_topic(void)
{
    kafka_create_topic(kafka_test_brokers(), fixture.topic, RUN_PARTITIONS, NULL);
    fixture.producer = kafka_producer_open(kafka_test_brokers(), fixture.topic, NULL, NULL);
    memset(written, 0, sizeof written);
}

/* Everything that the topic holds now is claimed, exactly: not an offset of the old one. */
static void await_read(void)
{
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    int done = 0;
    while (done < RUN_PARTITIONS) {
        const char *meta = run_fixture_meta(&fixture);
        done = 0;
        for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
            char name[24];
            (void)snprintf(name, sizeof name, "\"%d\":{", i);
            const char *at = meta == NULL ? NULL : strstr(meta, name);
            at = at == NULL ? NULL : strstr(at, "\"next\":");
            done += at != NULL && strtoll(at + strlen("\"next\":"), NULL, 10) == written[i];
        }
        if (lab_monotonic_ms() > until_ms) {
            fail_msg("fc:meta: %s\n%s", meta == NULL ? "absent" : meta,
                     daemon_process_log(&fixture.process));
        }
        lab_pause_ms(20);
    }
}

/* Offsets alone do not tell a log from one that is as long. */
static void await_events(int count)
{
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    while (daemon_process_metric(&fixture.process, "fcapd_events_total") < count) {
        if (lab_monotonic_ms() > until_ms) {
            fail_msg("fewer than %d events:\n%s", count, daemon_process_log(&fixture.process));
        }
        lab_pause_ms(20);
    }
}

static void start(void)
{
    daemon_process_start(&fixture.process, NULL);
    daemon_process_await(&fixture.process, "/readyz", 200, WAIT_MS);
}

static void stop(void)
{
    daemon_process_signal(&fixture.process, SIGTERM);
    int code = daemon_process_wait(&fixture.process, WAIT_MS);
    if (code != 0) {
        fail_msg("exit code %d:\n%s", code, daemon_process_log(&fixture.process));
    }
}

static void compare(size_t users)
{
    struct oracle_tally tally = {0};
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){users, users, 0});
}

/* 100 records are counted and the daemon is stopped. */
static void count_100(void)
{
    start();
    produce("old", 0, 100, false);
    await_read();
    compare(USERS);
    stop();
}

/* What the metric says of this run, and the log of all runs; NULL: whatever. */
static void expect_gaps(int count, const char *text)
{
    assert_true(daemon_process_metric(&fixture.process, "fcapd_gaps_total") == count);
    const char *log = daemon_process_log(&fixture.process);
    if (text != NULL && (strstr(log, text) != NULL) != (count > 0)) {
        fail_msg("\"%s\" in:\n%s", text, log);
    }
}

/* What partition 0 has lost, as it stands in fc:meta. */
static void expect_lost(const char *lost)
{
    const char *meta = run_fixture_meta(&fixture);
    const char *at = meta == NULL ? NULL : strstr(meta, "\"0\":{");
    const char *other = at == NULL ? NULL : strstr(at, "\"1\":{");
    const char *found = at == NULL ? NULL : strstr(at, lost);
    if (found == NULL || (other != NULL && found > other)) {
        fail_msg("no %s in fc:meta: %s", lost, meta == NULL ? "absent" : meta);
    }
}

static void check_recreated(int records, const char *text)
{
    count_100();
    delete_topic();
    create_topic();
    produce("new", 0, records, false);
    start();
    await_read();
    expect_gaps(RUN_PARTITIONS, text);
    expect_lost("\"first\":25,\"last\":-1,\"next\":0,"); /* A shorter one may have no mark. */
    compare((size_t)(records < USERS ? records : USERS) + USERS);
    stop();
    start(); /* The gap is over: it is not met again. */
    await_read();
    expect_gaps(0, NULL);
    compare(USERS);
    stop();
}

static void test_B20_more_records_than_before(void **unused)
{
    (void)unused;
    check_recreated(150,
                    "partition 0: gap: the topic was created anew: offset 25 was next, the log "
                    "holds 0 to 38; reading goes on at 0");
}

static void test_B20_exactly_as_many(void **unused)
{
    (void)unused;
    check_recreated(100,
                    "partition 1: gap: the topic was created anew: offset 25 was next, the log "
                    "holds 0 to 25; reading goes on at 0");
}

static void test_B20_fewer(void **unused)
{
    (void)unused;
    check_recreated(60, "was next, the log holds 0 to 15; reading goes on at 0");
}

/* By content it is the same log; what it holds beyond is read. */
static void test_B20_begins_with_the_very_same(void **unused)
{
    (void)unused;
    count_100();
    delete_topic();
    create_topic();
    produce("old", 0, 100, true);
    produce("new", 100, 150, false);
    start();
    await_read();
    expect_gaps(0, "gap:");
    compare(2 * USERS);
    stop();
}

/* The log has lost its end, as after an unclean election: nothing counts twice. */
static void test_B20_lost_its_end(void **unused)
{
    (void)unused;
    start();
    for (int i = 0; i < 100; i += 20) { /* Commits in between leave their marks. */
        produce("old", i, i + 20, false);
        await_read();
        lab_pause_ms(400);
    }
    compare(USERS);
    stop();
    delete_topic();
    create_topic();
    produce("old", 0, 60, true);
    start();
    await_read();
    expect_gaps(RUN_PARTITIONS, "gap: the log has lost records that had been read: offset 25 was "
                                "next, the log holds 0 to 15; reading goes on at 15");
    expect_lost("\"lost\":[{\"kind\":\"truncated\",\"first\":15,\"last\":-1,\"next\":15,");
    produce("new", 60, 120, false);
    await_read();
    compare(2 * USERS);
    stop();
}

/* 100 records are counted, and the topic goes and comes back under the daemon. */
static void recreate_while_running(void)
{
    start();
    produce("old", 0, 100, false);
    await_read();
    compare(USERS);
    delete_topic();
    lab_pause_ms(1500);
    create_topic();
}

/* What follows is read where it stands, and claimed at an offset that the old topic never had. */
static void check_read_on(size_t users)
{
    produce("more", 0, 40, false);
    await_read();
    compare(users + USERS);
}

static void test_B20_while_running(void **unused)
{
    (void)unused;
    recreate_while_running();
    produce("new", 0, 150, false); /* At once, and beyond the old position. */
    await_read();
    expect_gaps(RUN_PARTITIONS, "gap: the topic was created anew: offset 25 was next");
    compare(2 * USERS);
    check_read_on(2 * USERS);
    fault_is_proved(&(const struct fault){
        .id = "kafka-topic-recreated",
        .fault = "the topic is deleted and created anew",
        .sees = "`gap: the topic was created anew` in the log, `fcapd_gaps_total`, `lost` in "
                "`/readyz` and `fc:meta`; with `on_gap: stop` exit code 70 instead",
        .lost = "nothing that was read, and nothing of the new topic; records of the old one that "
                "nobody had read went with it",
        .recovers = "by itself: every record of the new topic counts once; see [Gaps](#gaps)",
    });
}

/* The new log ends where the old one did: by its offsets nothing has happened. */
static void test_B20_exactly_as_many_while_running(void **unused)
{
    (void)unused;
    recreate_while_running();
    produce("new", 0, 100, false);
    await_events(200);
    expect_gaps(RUN_PARTITIONS, "gap: the topic was created anew: offset 25 was next");
    check_read_on(2 * USERS);
    expect_lost("\"first\":25,\"last\":-1,\"next\":0,");
}

/* By content it is the same log: what it begins with counts once, and what follows is read. */
static void test_B20_begins_with_the_very_same_while_running(void **unused)
{
    (void)unused;
    recreate_while_running();
    produce("old", 0, 100, true);
    produce("new", 100, 150, false);
    await_read();
    expect_gaps(0, "gap:");
    assert_true(daemon_process_metric(&fixture.process, "fcapd_events_total") == 150);
    compare(2 * USERS);
    check_read_on(2 * USERS);
}

static void test_B20_on_gap_stop(void **unused)
{
    (void)unused;
    count_100();
    delete_topic();
    create_topic();
    produce("new", 0, 150, false);
    daemon_process_start(&fixture.process, NULL);
    assert_int_equal(daemon_process_wait(&fixture.process, WAIT_MS), 70);
    const char *log = daemon_process_log(&fixture.process);
    if (strstr(log, "the topic was created anew: offset 25 is wanted, the log holds 0 to 3") ==
        NULL) {
        fail_msg("%s", log);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_B20_more_records_than_before),
        CASE(test_B20_exactly_as_many),
        CASE(test_B20_fewer),
        CASE(test_B20_begins_with_the_very_same),
        CASE(test_B20_lost_its_end),
        CASE(test_B20_while_running),
        CASE(test_B20_exactly_as_many_while_running),
        CASE(test_B20_begins_with_the_very_same_while_running),
        cmocka_unit_test_setup_teardown(test_B20_on_gap_stop, setup_stop, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
