/* The readers of the real logs, and the definition against the largest counts that are known of the
 * log of impressions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lab/lab.h"
#include "lab/oracle.h"
#include "lib/replay_logs.h"

/* Opens a log of the shared folder. Without the folder the test is skipped, but not in CI, where
 * it must be there. */
static struct replay_log open_log(enum replay_kind kind)
{
    struct replay_log log = {0};
    char error[4200] = "";
    const char *ci = getenv("CI");
    const char *folder = replay_folder();
    if (folder == NULL) {
        print_message("skipped: FCAP_SHARED_DATA names no folder with the real logs\n");
        assert_false(ci != NULL && strcmp(ci, "true") == 0);
        skip();
    }
    if (!replay_log_open(kind, folder, &log, error, sizeof error)) {
        fail_msg("%s", error);
    }
    return log;
}

static void test_csv_split(void **state)
{
    static const struct {
        const char *line;
        size_t count;
        const char *fields[4];
    } rows[] = {
        {"a,b,c", 3, {"a", "b", "c"}},
        {"", 1, {""}},
        {",", 2, {"", ""}},
        {"\"a,b\",c", 2, {"a,b", "c"}},
        {"\"say \"\"hi\"\"\",\"\"", 2, {"say \"hi\"", ""}},
        {"a,\"b", 0, {NULL}},     /* no closing quote */
        {"\"a\"b,c", 0, {NULL}},  /* text after the closing quote */
        {"1,2,3,4,5", 0, {NULL}}, /* more fields than room */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[64];
        char *fields[4];
        (void)snprintf(line, sizeof line, "%s", rows[i].line);
        assert_int_equal(replay_csv_split(line, fields, 4), rows[i].count);
        for (size_t k = 0; k < rows[i].count; k++) {
            assert_string_equal(fields[k], rows[i].fields[k]);
        }
    }
}

static void test_time_parse(void **state)
{
    static const struct {
        const char *text;
        int64_t time_ms; /* -1: refused */
    } rows[] = {
        {"1970-01-01 00:00:00", 0},
        {"2019-11-24 00:03:13.442536+00:00", 1574553793443},
        {"2019-11-24 00:03:13.442499+00:00", 1574553793442},
        {"2019-11-24 00:03:13+00:00", 1574553793000},
        {"2019-11-24 00:03:13.442500+00:00", 1574553793442}, /* half: to the even one */
        {"2019-11-24 00:03:13.443500+00:00", 1574553793444},
        {"2019-11-24 00:03:13.442501+00:00", 1574553793443},
        {"2017-05-06 00:00:02", 1494028802000},
        {"2000-02-29 23:59:59.999500+00:00", 951868800000}, /* rounds into the next day */
        {"2024-03-01 00:00:00", 1709251200000},
        {"2019-11-24 00:03:13+01:00", -1},
        {"2019-13-24 00:03:13", -1},
        {"2019-11-24", -1},
        {"", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t time_ms = -1;
        assert_int_equal(replay_time_parse(rows[i].text, &time_ms), rows[i].time_ms != -1);
        assert_int_equal(time_ms, rows[i].time_ms);
    }
}

static void assert_sorted(const struct replay_log *log)
{
    for (size_t i = 1; i < log->count; i++) {
        assert_true(log->events[i - 1].time_ms <= log->events[i].time_ms);
    }
}

static size_t user_count(const struct replay_log *log)
{
    struct oracle *oracle = oracle_open();
    for (size_t i = 0; i < log->count; i++) {
        struct oracle_event event = {.offset = (int64_t)i,
                                     .user = log->events[i].user,
                                     .ad = log->events[i].ad,
                                     .time_ms = log->events[i].time_ms};
        assert_int_equal(oracle_add(oracle, &event), ORACLE_ACCEPTED);
    }
    size_t count = oracle_user_count(oracle);
    oracle_close(oracle);
    return count;
}

static void test_otto(void **state)
{
    struct replay_log log = open_log(REPLAY_OTTO);
    (void)state;
    assert_int_equal(log.count, 862);
    assert_int_equal(user_count(&log), 20);
    assert_sorted(&log);
    assert_int_equal(log.events[0].time_ms, 1659304800025);
    assert_string_equal(log.events[0].user, "0");
    assert_string_equal(log.events[0].ad, "1517085");
    replay_log_close(&log);
}

static void test_taobao(void **state)
{
    struct replay_log log = open_log(REPLAY_TAOBAO);
    (void)state;
    assert_int_equal(log.count, 100);
    assert_int_equal(user_count(&log), 24);
    assert_sorted(&log);
    assert_int_equal(log.events[0].time_ms, 1494028800000);
    assert_int_equal(log.events[99].time_ms, 1494028802000);
    assert_string_equal(log.events[0].user, "874257");
    assert_string_equal(log.events[0].ad, "172298");
    replay_log_close(&log);
}

/* The largest counts of any user and ad, and of any user, at the moment of each event. */
struct largest {
    uint64_t pair;
    uint64_t user;
};

static struct largest largest_counts(struct oracle *oracle, const struct replay_log *log,
                                     int64_t window_ms, uint64_t *pairs)
{
    struct oracle_counts counts = {0};
    struct largest largest = {0};
    int64_t next = 0;
    for (size_t i = 0; i < log->count; i++) {
        /* What stands in the log up to this millisecond, and nothing later. */
        while ((size_t)next < log->count && log->events[next].time_ms <= log->events[i].time_ms) {
            next++;
        }
        struct oracle_query query = {.user = log->events[i].user,
                                     .window_ms = window_ms,
                                     .at_ms = log->events[i].time_ms,
                                     .next = &next,
                                     .next_count = 1};
        uint64_t sum = 0;
        oracle_query(oracle, &query, &counts);
        for (size_t k = 0; k < counts.count; k++) {
            sum += counts.rows[k].count;
            largest.pair =
                counts.rows[k].count > largest.pair ? counts.rows[k].count : largest.pair;
        }
        largest.user = sum > largest.user ? sum : largest.user;
    }
    *pairs = 0;
    for (size_t u = 0; u < oracle_user_count(oracle); u++) {
        struct oracle_query all = {.user = oracle_user(oracle, u), .window_ms = INT64_MAX / 2};
        oracle_query(oracle, &all, &counts);
        *pairs += counts.count;
    }
    oracle_counts_done(&counts);
    return largest;
}

static void test_obd_largest_counts(void **state)
{
    static const struct {
        int64_t window_ms;
        struct largest largest;
    } rows[] = {
        {60000, {3, 4}},      {1800000, {3, 10}},          {3600000, {4, 14}},
        {86400000, {9, 121}}, {7 * 86400000LL, {27, 567}},
    };
    struct replay_log log = open_log(REPLAY_OBD);
    struct oracle *oracle = oracle_open();
    size_t shared = 0;
    (void)state;
    assert_int_equal(log.count, 10000);
    assert_sorted(&log);
    for (size_t i = 0; i < log.count; i++) {
        struct oracle_event event = {.offset = (int64_t)i,
                                     .user = log.events[i].user,
                                     .ad = log.events[i].ad,
                                     .time_ms = log.events[i].time_ms};
        assert_int_equal(oracle_add(oracle, &event), ORACLE_ACCEPTED);
        shared += i > 0 && log.events[i - 1].time_ms == event.time_ms ? 1 : 0;
    }
    assert_int_equal(shared, 156); /* events in the millisecond of the one before */
    assert_int_equal(oracle_user_count(oracle), 230);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t pairs = 0;
        struct largest largest = largest_counts(oracle, &log, rows[i].window_ms, &pairs);
        assert_int_equal(largest.pair, rows[i].largest.pair);
        assert_int_equal(largest.user, rows[i].largest.user);
        assert_int_equal(pairs, 2929);
    }
    oracle_close(oracle);
    replay_log_close(&log);
}

/* A broken line is named, never skipped. */
static void test_broken_line_is_an_error(void **state)
{
    static const struct {
        enum replay_kind kind;
        const char *name;
        const char *text;
    } files[] = {
        {REPLAY_OTTO, "otto_sessions.jsonl",
         "{\"session\":1,\"events\":[{\"aid\":2,\"ts\":3,\"type\":\"carts\"}]}\n{\"session\":1}\n"},
        {REPLAY_OBD, "obd_random_men.csv", "header\n0,yesterday,1,1,0,0.1,a,b,c,d\n"},
        {REPLAY_TAOBAO, "taobao_ad_train_sample.csv", "header\n0,2017-05-06 00:00:00,1\n"},
    };
    char folder[64];
    (void)state;
    lab_folder_make("fcap-replay", folder, sizeof folder);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[128];
        char error[4200] = "";
        struct replay_log log = {0};
        assert_false(replay_log_open(files[i].kind, folder, &log, error, sizeof error));
        assert_non_null(strstr(error, "cannot be opened"));
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(files[i].text, file) >= 0);
        assert_int_equal(fclose(file), 0);
        assert_false(replay_log_open(files[i].kind, folder, &log, error, sizeof error));
        assert_non_null(strstr(error, ":2: not of the known form"));
        assert_int_equal(log.count, 0);
        assert_int_equal(unlink(path), 0);
    }
    lab_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv_split),
        cmocka_unit_test(test_time_parse),
        cmocka_unit_test(test_otto),
        cmocka_unit_test(test_taobao),
        cmocka_unit_test(test_obd_largest_counts),
        cmocka_unit_test(test_broken_line_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
