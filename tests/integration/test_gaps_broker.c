/* Records that are gone before they were read, on a real broker: what exactly is lost stands in the
 * log, /status, the metrics, fc:meta and inspect; counts are the definition over the rest; windows
 * are ready when they have passed it, and those that were shown go on being shown.
 * FCAP_TEST_FULL=1: each kind with degrade and stop; B20 has more of a topic that was recreated. */
#include "gaps_fixture.h"
#include "lab/lab.h"
#include "lib/full_size.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int setup(void **unused)
{
    (void)unused;
    return gaps_setup("");
}

static int setup_serve(void **unused)
{
    (void)unused;
    return gaps_setup("windows_incomplete: serve\n");
}

static void begin_with_ten(void)
{
    gaps_start();
    gaps_produce_all(10);
    gaps_await_read();
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        const char *text = gaps_meta(i);
        assert_true(gaps_is_ready(text, "4s") &&
                    gaps_is_ready(text, "1h")); /* It never lost anything. */
        assert_null(strstr(text, "lost"));
    }
    gaps_expect_counted("below_start", 0);
    gaps_compare();
}

static void test_retention_while_it_is_down(void **unused)
{
    (void)unused;
    begin_with_ten();
    gaps_stop();
    gaps_produce(0, 5, true);
    gaps_produce(0, 10, false);
    gaps_produce(1, 5, false);
    gaps_delete_below(0, 15);
    int64_t before_ms = lab_wall_ms();

    daemon_process_start(&gaps.fixture.process, gaps_stopping);
    gaps_expect_stop(
        "partition 0: retention has taken records that were never read: offset 10 is "
        "wanted, the log holds 15 to 25 (on_gap: degrade goes on at 15; offsets 10 to 14 "
        "are lost)");
    assert_int_equal(daemon_process_command(&gaps.fixture.process, "inspect", NULL, gaps_degrading),
                     0);
    assert_non_null(strstr(gaps.fixture.process.text, "{\"partition\":0,\"next\":10,"));
    assert_null(strstr(gaps.fixture.process.text, "lost")); /* It has changed nothing. */

    gaps_start();
    gaps_await_read();
    const struct gaps_lost lost = {"below_start",      10,  14, 15, gaps.stamps[0][9],
                                   gaps.stamps[0][15], true};
    int64_t since_ms = gaps_expect_lost(0, &lost, before_ms);
    gaps_expect_counted("below_start", 1);
    const char *log = daemon_process_log(&gaps.fixture.process);
    assert_non_null(strstr(log, "partition 0: gap: retention has taken records that were never "
                                "read: offset 10 was next, the log holds 15 to 25; reading goes on "
                                "at 15"));
    assert_true(gaps_is_ready(gaps_meta(1), "1h")); /* The others have lost nothing. */
    assert_true(gaps_is_shown(0, "1h"));
    gaps_compare();
    gaps_produce(0, 5, false);
    gaps_await_read();
    gaps_compare();
    gaps_watch_readiness(0, since_ms);
    gaps_stop();

    char wanted[320];
    gaps_put_lost(&lost, wanted);
    assert_int_equal(daemon_process_command(&gaps.fixture.process, "inspect", NULL, gaps_degrading),
                     0);
    assert_non_null(strstr(gaps.fixture.process.text, wanted));
    gaps_start(); /* It is known after a restart, and not met again. */
    assert_true(gaps_expect_lost(0, &lost, before_ms) == since_ms);
    gaps_expect_counted("below_start", 0);
    gaps_compare();
}

static void test_retention_while_it_runs(void **unused)
{
    (void)unused;
    begin_with_ten();
    int64_t before_ms = lab_wall_ms();
    daemon_process_signal(&gaps.fixture.process, SIGSTOP);
    lab_pause_ms(200); /* The fetch that is under way comes back empty. */
    gaps_produce(2, 7, true);
    gaps_produce(2, 3, false);
    gaps_delete_below(2, 17);
    daemon_process_signal(&gaps.fixture.process, SIGCONT);
    gaps_await_read();
    const struct gaps_lost lost = {"below_start",      10,  16, 17, gaps.stamps[2][9],
                                   gaps.stamps[2][17], true};
    (void)gaps_expect_lost(2, &lost, before_ms);
    gaps_expect_counted("below_start", 1);
    assert_true(gaps_is_shown(2, "1h"));
    gaps_compare();
}

/* Nothing tells how late the lost ones are, until a record comes. */
static void test_retention_took_everything(void **unused)
{
    (void)unused;
    begin_with_ten();
    gaps_stop();
    gaps_produce(3, 6, true);
    gaps_delete_below(3, 16);
    int64_t before_ms = lab_wall_ms();
    gaps_start();
    struct gaps_lost lost = {"below_start", 10, 15, 16, gaps.stamps[3][9], -1, true};
    int64_t since_ms = gaps_expect_lost(3, &lost, before_ms);
    gaps_produce(3, 1, false);
    gaps_await_read();
    lost.to_ms = gaps.stamps[3][16];
    assert_true(gaps_expect_lost(3, &lost, before_ms) == since_ms);
    gaps_compare();
    gaps_watch_readiness(3, since_ms);
}

static void check_short_history(bool serve)
{
    gaps_produce(0, 5, true);
    gaps_produce(0, 5, false);
    gaps_produce(1, 5, false);
    gaps_delete_below(0, 5);
    int64_t before_ms = lab_wall_ms();
    daemon_process_start(&gaps.fixture.process,
                         gaps_stopping); /* No gap: nothing was to be read. */
    daemon_process_await(&gaps.fixture.process, "/readyz", 200, GAPS_WAIT_MS);
    gaps_await_read();
    const struct gaps_lost lost = {"short_history", -1, 4, 5, -1, gaps.stamps[0][5], true};
    int64_t since_ms = gaps_expect_lost(0, &lost, before_ms);
    gaps_expect_counted("short_history", 1);
    gaps_watch_readiness(0, since_ms);
    assert_true(gaps_is_shown(1, "1h"));
    assert_int_equal(gaps_is_shown(0, "1h"), serve);
}

/* And whose retention is shorter than the longest window, which is told once. */
static void test_a_topic_that_begins_late(void **unused)
{
    static const char *const brief[] = {"retention.ms", "60000", NULL};
    static const char line[] = "retention.ms is 60000, less than the longest window and "
                               "limits.max_future_skew (3600500)";
    (void)unused;
    gaps_recreate(brief);
    check_short_history(false);
    assert_int_equal(daemon_process_get(&gaps.fixture.process, "/readyz", NULL), 200);
    assert_non_null(strstr(gaps.fixture.process.text,
                           "\n \"retention\":{\"topic_ms\":60000,\"needed_ms\":3600500},"));
    assert_true(daemon_process_metric(&gaps.fixture.process, "fcapd_kafka_retention_seconds") ==
                60);
    const char *found = strstr(daemon_process_log(&gaps.fixture.process), line);
    assert_non_null(found);
    assert_null(strstr(found + 1, line));
    /* Whether that matters depends on the checkpoints. */
    static const char *const with[] = {"--set", "checkpoint.directory=/nowhere", NULL};
    (void)daemon_process_command(&gaps.fixture.process, "check", NULL, gaps_degrading);
    assert_non_null(strstr(gaps.fixture.process.text, "cannot be read again completely"));
    assert_non_null(strstr(gaps.fixture.process.text, line));
    (void)daemon_process_command(&gaps.fixture.process, "check", with, gaps_degrading);
    assert_null(strstr(gaps.fixture.process.text, "cannot be read again completely"));
    assert_non_null(strstr(gaps.fixture.process.text, "comes back from its newest checkpoint"));
    gaps_produce(0, 5, false);
    gaps_await_read();
    assert_true(gaps_is_shown(0, "4s")); /* Ready, hence shown. */
    assert_false(gaps_is_shown(0, "1h"));
}

static void test_a_topic_that_begins_late_is_served(void **unused)
{
    (void)unused;
    check_short_history(true);
    gaps_compare();
}

static void test_another_topic_while_it_runs(void **unused)
{
    (void)unused;
    begin_with_ten();
    int64_t before_ms = lab_wall_ms();
    gaps_recreate(NULL);
    gaps_produce_all(15);
    gaps_await_read();
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        const struct gaps_lost lost = {"recreated",       10,   -1, 0, gaps.last_stamps[i],
                                       gaps.stamps[i][0], false};
        (void)gaps_expect_lost(i, &lost, before_ms);
    }
    gaps_expect_counted("recreated", RUN_PARTITIONS);
    gaps_compare();
}

static void test_another_topic_while_it_runs_stops_it(void **unused)
{
    (void)unused;
    daemon_process_start(&gaps.fixture.process, gaps_stopping);
    daemon_process_await(&gaps.fixture.process, "/readyz", 200, GAPS_WAIT_MS);
    gaps_produce_all(10);
    gaps_await_read();
    gaps_recreate(NULL);
    gaps_produce_all(15);
    gaps_expect_stop("the topic was created anew: offset 10 is wanted, the log holds 0 to ");
    assert_non_null(strstr(gaps.fixture.process.text,
                           "(on_gap: degrade goes on at 0; offsets 10 to the end are lost)"));
}

/* The same log, shorter: of the ten that were read the last five are others now, and more came. */
static void test_a_log_that_lost_its_end(void **unused)
{
    (void)unused;
    gaps_start();
    gaps_produce_all(5);
    gaps_await_read();
    lab_pause_ms(400); /* A commit leaves a mark. */
    gaps_produce_all(5);
    gaps_await_read();
    gaps_stop();
    gaps_recreate(NULL);
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        gaps_produce_again(i, 5);
        gaps_produce(i, 5, true);
        gaps_produce(i, 3, false);
    }
    int64_t before_ms = lab_wall_ms();
    daemon_process_start(&gaps.fixture.process, gaps_stopping);
    gaps_expect_stop(
        "the log has lost records that had been read: offset 10 is wanted, the log holds 0 "
        "to 13 (on_gap: degrade goes on at 10; offsets 5 to 9 are lost)");
    gaps_start();
    gaps_await_read();
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        const struct gaps_lost lost = {"truncated",        5,    9, 10, gaps.stamps[i][4],
                                       gaps.stamps[i][10], false};
        (void)gaps_expect_lost(i, &lost, before_ms);
        assert_true(gaps_is_shown(i, "1h"));
    }
    gaps_expect_counted("truncated", RUN_PARTITIONS);
    gaps_compare();
}

static void check_emptied(bool stops)
{
    begin_with_ten();
    gaps_stop();
    gaps_recreate(NULL); /* And nobody writes: after 5 s it is believed. */
    int64_t before_ms = lab_wall_ms();
    if (stops) {
        daemon_process_start(&gaps.fixture.process, gaps_stopping);
        gaps_expect_stop(
            "the log ends before what was read of it: offset 10 is wanted, the log holds "
            "0 to 0 (on_gap: degrade goes on at 0; offsets 10 to the end are lost)");
        return;
    }
    gaps_start();
    gaps_expect_counted("beyond_end", RUN_PARTITIONS);
    gaps_produce_all(3);
    gaps_await_read();
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        const struct gaps_lost lost = {"beyond_end",      10,   -1, 0, gaps.last_stamps[i],
                                       gaps.stamps[i][0], false};
        (void)gaps_expect_lost(i, &lost, before_ms);
    }
    gaps_compare();
}

static void test_an_empty_topic_in_its_place(void **unused)
{
    (void)unused;
    check_emptied(false);
}

static void test_an_empty_topic_in_its_place_stops_it(void **unused)
{
    (void)unused;
    check_emptied(true);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, gaps_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_retention_while_it_is_down),
        CASE(test_retention_while_it_runs),
        CASE(test_a_topic_that_begins_late),
        CASE(test_another_topic_while_it_runs),
    };
    const struct CMUnitTest rest[] = {
        CASE(test_retention_took_everything),
        cmocka_unit_test_setup_teardown(test_a_topic_that_begins_late_is_served, setup_serve,
                                        gaps_teardown),
        CASE(test_another_topic_while_it_runs_stops_it),
        CASE(test_a_log_that_lost_its_end),
        CASE(test_an_empty_topic_in_its_place),
        CASE(test_an_empty_topic_in_its_place_stops_it),
    };
    int failed = cmocka_run_group_tests_name("gaps", tests, NULL, NULL);
    if (is_full_size()) {
        failed += cmocka_run_group_tests_name("gaps, the rest", rest, NULL, NULL);
    }
    return failed;
}
