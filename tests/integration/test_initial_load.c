/* The initial load on a real broker: a topic that keeps everything, seven days of it, and `fcapd
 * run` from nothing while live traffic goes on. What Redis is made to do is watched, command by
 * command: no count key is written before its partition's gate opens, each key's first value is
 * complete, no as_of falls; then every key equals the definition, at the opening and at 20 instants
 * after it. The same when `fcapd backfill` comes first.
 *
 * FCAP_TEST_FULL=1: 5,000,000 events instead of 300,000. */
#include "history.h"

#include "lab/lab.h"
#include "lib/full_size.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DAY_MS         INT64_C(86400000)
#define PARTITIONS     12
#define EMPTY          4
#define SLOW           7
#define INSTANTS       20
#define INSTANTS_SHORT 4
#define QUIET_ALL      4 /* every 4th instant is a quiet one */

static struct history history;

static const struct live_window days[] = {
    {"1d", DAY_MS}, {"3d", 3 * DAY_MS}, {"7d", 7 * DAY_MS}, {NULL, 0}};
static const struct live_window seconds[] = {{"1s", 1000}, {"4s", 4000}, {"5m", 300000}, {NULL, 0}};

static struct history_options options_of_days(void)
{
    return (struct history_options){
        .live =
            {
                .partitions = PARTITIONS,
                .workers = 3,
                .windows = "[1d, 3d, 7d]",
                .lengths = days,
                .topic_config = {"retention.ms", "-1"},
                .more_kafka = "  keyed: assume\n",
                .more = "event:\n  id: id\nshutdown:\n  deadline: 20s\n",
            },
        .events = is_full_size() ? 5000000 : 300000,
        .users = is_full_size() ? 50000 : 1000,
        .rate = is_full_size() ? 3000 : 500,
        .span_ms = 7 * DAY_MS + DAY_MS / 4, /* What is older than the longest window is not read. */
        .edge_ms = is_full_size() ? 300000 : 120000,
        .empty = EMPTY,
        .slow = SLOW,
        .seed = 20240611,
    };
}

static int setup_days(void **unused)
{
    (void)unused;
    struct history_options options = options_of_days();
    history_init(&history, &options);
    history_produce(&history);
    return 0;
}

/* The gates open after so many records that much leaves the short windows meanwhile. */
static int setup_seconds(void **unused)
{
    (void)unused;
    struct history_options options = options_of_days();
    options.live.windows = "[1s, 4s, 5m]";
    options.live.lengths = seconds;
    options.live.more_kafka = NULL;
    options.events = is_full_size() ? 1000000 : 40000;
    options.users = is_full_size() ? 20000 : 600;
    options.span_ms = 360000;
    options.edge_ms = 100000;
    history_init(&history, &options);
    history_produce(&history);
    return 0;
}

static int setup_backfill(void **unused)
{
    (void)unused;
    struct history_options options = options_of_days();
    options.events = is_full_size() ? 1000000 : 40000;
    options.users = is_full_size() ? 20000 : 600;
    history_init(&history, &options);
    history_produce(&history);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    history_done(&history);
    return 0;
}

struct tallies {
    struct live_tally moving;
    struct live_tally quiet;
};

static void compare_at_instants(int instants, int64_t between_ms, struct tallies *tallies)
{
    live_compare(&history.live, false, &tallies->moving); /* The opening. */
    for (int i = 1; i <= instants; i++) {
        bool is_quiet = i % QUIET_ALL == 0;
        history_go_on(&history, between_ms);
        if (is_quiet) {
            live_await_applied(&history.live);
        }
        live_compare(&history.live, is_quiet, is_quiet ? &tallies->quiet : &tallies->moving);
        history.ticked_ms = lab_monotonic_ms(); /* Nothing was sent meanwhile. */
    }
}

/* At each instant enough keys, with and without counts; values and expiries at rest. */
static void check_tallies(const struct tallies *tallies, int instants)
{
    uint64_t keys = history.options.users * history.live.window_count;
    uint64_t quiet = (uint64_t)instants / QUIET_ALL;
    uint64_t moving = (uint64_t)instants + 1 - quiet;
    uint64_t some = keys / 10;
    live_passes(&tallies->moving.now, (struct oracle_minimum){keys / 2 * moving, some * moving, 1});
    live_passes(&tallies->moving.as_of, (struct oracle_minimum){some * moving, some * moving, 0});
    live_passes(&tallies->moving.expiry, (struct oracle_minimum){0});
    live_passes(&tallies->quiet.now, (struct oracle_minimum){keys / 2 * quiet, some * quiet, 1});
    live_passes(&tallies->quiet.as_of, (struct oracle_minimum){some * quiet, some * quiet, 0});
    live_passes(&tallies->quiet.expiry, (struct oracle_minimum){some * quiet, some * quiet, 0});
}

static void print_result(const char *name, const struct tallies *tallies,
                         const struct history_watched *watched)
{
    print_message(
        "result: %s: %" PRIu64 " records of history, %" PRIu64 " live (%" PRIu64
        " behind closed gates); %" PRIu64 " writes watched, %" PRIu64 " wrong; compared: %" PRIu64
        " first values, %" PRIu64 " keys moving, %" PRIu64 " quiet, %" PRIu64
        " at their as_of, %" PRIu64 " PXAT; %" PRIu64 " wrong\n",
        name, history.options.events, history.sent, history.behind,
        watched->report.sets + watched->report.unlinks, watched->report.wrong,
        watched->first.compared, tallies->moving.now.compared, tallies->quiet.now.compared,
        tallies->moving.as_of.compared + tallies->quiet.as_of.compared,
        tallies->quiet.expiry.compared,
        watched->first.wrong + tallies->moving.now.wrong + tallies->moving.as_of.wrong +
            tallies->quiet.now.wrong + tallies->quiet.as_of.wrong + tallies->quiet.expiry.wrong);
}

/* A gate each, opened once, and nothing written before. */
static void check_gates(const struct redis_ledger_report *report)
{
    for (int32_t i = 0; i < PARTITIONS; i++) {
        const struct redis_ledger_partition *account = &report->partitions[i];
        assert_true(account->increments >= 1);
        assert_true(i == EMPTY ? account->writes == 0 : account->writes > 0);
        assert_true(i == EMPTY || account->first_write > account->first_increment);
    }
    assert_true(report->claims > 0);
}

/* What was found right must be able to be found wrong: a write by somebody who has not taken the
 * partition, an as_of that falls, and a first value without all of its counts. */
static void plant_and_find(void)
{
    static struct history_watched watched;
    struct live *live = &history.live;
    const char *user = oracle_user(live->oracle, 0);
    assert_string_equal(redis_server_ask(&live->redis, "SET fc:{%s}:planted %s PXAT 9999999999999",
                                         user, "{\"v\":1,\"as_of\":2,\"counts\":{}}"),
                        "OK");
    assert_string_equal(redis_server_ask(&live->redis, "SET fc:{%s}:planted %s PXAT 9999999999999",
                                         user, "{\"v\":1,\"as_of\":1,\"counts\":{}}"),
                        "OK");
    history_watched(&history, &watched);
    assert_int_equal(watched.report.wrong, 3);
    assert_non_null(strstr(watched.report.text, "before it took partition"));
    assert_non_null(strstr(watched.report.text, "as_of falls from 2 to 1"));
    assert_int_equal(watched.first.wrong, 1);
    assert_non_null(strstr(watched.first.text, user));
}

static void test_seven_days_from_nothing(void **unused)
{
    static struct tallies tallies;
    static struct history_watched watched;
    (void)unused;
    assert_int_equal(history.ends[EMPTY], 0);
    assert_true(history.ends[SLOW] > 0 && history.ends[SLOW] < history.ends[SLOW + 1] / 4);
    history_start_slowly(&history, 1500, 50);
    compare_at_instants(INSTANTS, is_full_size() ? 2000 : 150, &tallies);
    history_check_watch(&history, &watched);
    print_result("days", &tallies, &watched);
    check_tallies(&tallies, INSTANTS);
    check_gates(&watched.report);
    /* Nobody had to wait for the others. */
    const struct redis_ledger_partition *accounts = watched.report.partitions;
    assert_true(accounts[EMPTY].first_increment < accounts[0].first_increment);
    assert_true(history.behind > 500);
    assert_true(daemon_process_metric(&history.live.process, "fcapd_underflows_total") == 0);
    live_stop(&history.live);
    plant_and_find();
}

static void test_expiries_during_the_load(void **unused)
{
    static struct tallies tallies;
    static struct history_watched watched;
    (void)unused;
    history_start_slowly(&history, 1500, 50);
    compare_at_instants(INSTANTS_SHORT, is_full_size() ? 2000 : 250, &tallies);
    history_check_watch(&history, &watched);
    print_result("seconds", &tallies, &watched);
    check_tallies(&tallies, INSTANTS_SHORT);
    check_gates(&watched.report);
    assert_true(history.behind > 500);
    assert_true(daemon_process_metric(&history.live.process, "fcapd_underflows_total") == 0);
    live_stop(&history.live);
}

/* Values early, by a backfill, and then the daemon, which reads the same events again. */
static void test_backfill_first_then_run(void **unused)
{
    static struct tallies tallies;
    static struct history_watched watched;
    struct oracle_tally backfilled = {0};
    uint64_t keys = history.options.users * history.live.window_count;
    (void)unused;
    daemon_process_start_command(&history.live.process, "backfill", NULL);
    int64_t at_ms = history_await_backfill(&history);
    history_compare_backfilled(&history, at_ms, &backfilled);
    live_passes(&backfilled, (struct oracle_minimum){keys / 2, keys / 2, 1});
    struct redis_ledger_report early = *redis_ledger_report(redis_watch_hold(history.watch));
    redis_watch_release(history.watch);
    assert_true(early.sets > keys / 2);
    assert_int_equal(early.unlinks, 0);
    history_start(&history);
    compare_at_instants(INSTANTS_SHORT, is_full_size() ? 2000 : 150, &tallies);
    history_check_watch(&history, &watched);
    print_message("result: backfill first: %" PRIu64 " keys compared at T, %" PRIu64 " wrong\n",
                  backfilled.compared, backfilled.wrong);
    print_result("run after it", &tallies, &watched);
    check_tallies(&tallies, INSTANTS_SHORT);
    check_gates(&watched.report);
    assert_true(watched.report.partitions[0].increments >= 2); /* One each. */
    assert_true(watched.report.sets > early.sets);
    live_stop(&history.live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_seven_days_from_nothing, setup_days, teardown),
        cmocka_unit_test_setup_teardown(test_expiries_during_the_load, setup_seconds, teardown),
        cmocka_unit_test_setup_teardown(test_backfill_first_then_run, setup_backfill, teardown),
    };
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
