/* Logs as input of the demo: CSV and JSON lines, columns, times; and what the demo makes of them.
 */
#include "demo/feed.h"
#include "demo/input.h"
#include "lab/claims.h"
#include "lab/daemon_process.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];
static char path[96];
static struct demo_input input;
static char error[1200];

static int setup(void **unused)
{
    (void)unused;
    lab_folder_make("demo-input", folder, sizeof folder);
    (void)snprintf(path, sizeof path, "%s/log", folder);
    error[0] = '\0';
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    demo_input_close(&input);
    lab_folder_remove(folder);
    return 0;
}

static bool read_log(const char *text, const char *map, uint64_t rows_max)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return demo_input_open(path, map, rows_max, &input, error, sizeof error);
}

static void assert_row(size_t index, const char *user, const char *ad, int64_t time_ms)
{
    assert_true(index < input.count);
    assert_string_equal(input.rows[index].user, user);
    assert_string_equal(input.rows[index].ad, ad);
    if (input.rows[index].time_ms != time_ms) {
        fail_msg("row %zu: time %" PRId64 ", not %" PRId64, index, input.rows[index].time_ms,
                 time_ms);
    }
}

static void assert_refused(const char *text, const char *map, const char *reason)
{
    assert_false(read_log(text, map, 0));
    if (strstr(error, reason) == NULL) {
        fail_msg("\"%s\" says nothing of \"%s\"", error, reason);
    }
}

/* --- CSV ------------------------------------------------------------------------------------- */

static void test_csv_is_sorted_by_time_and_keeps_quotes(void **unused)
{
    (void)unused;
    assert_true(read_log("\xEF\xBB\xBFtime,user,ad\r\n"
                         "3,u1,\"a \"\"x\"\", y\"\r\n"
                         "1,\"u,2\",b\r\n"
                         "1,u3,\"\"\"\"\r\n"
                         "\r\n"
                         "2,u4,c",
                         NULL, 0));
    assert_int_equal(input.count, 4);
    assert_int_equal(input.skipped, 0);
    assert_row(0, "u,2", "b", 1000);
    assert_row(1, "u3", "\"", 1000); /* The file's order within a moment. */
    assert_row(2, "u4", "c", 2000);
    assert_row(3, "u1", "a \"x\", y", 3000);
}

static void test_columns_are_mapped_and_joined(void **unused)
{
    (void)unused;
    assert_true(read_log("a;b;c;d\n1;x;y;9\n", "user=b+c,ad=d,time=a", 0));
    assert_row(0, "x|y", "9", 1000);
    demo_input_close(&input);
    assert_true(read_log("TIMESTAMP\tItem_ID\tuserid\n7\t8\t9\n", NULL, 0)); /* The usual names. */
    assert_row(0, "9", "8", 7000);
}

static void test_rows_that_cannot_be_used_are_counted_with_the_first_reason(void **unused)
{
    (void)unused;
    assert_true(read_log("ts,user,ad\n"
                         "1,u1,a1\n"
                         "soon,u1,a1\n"
                         "2,,a1\n"
                         "3,u1\n"
                         "4,u1,\"open\n"
                         "5,u\xFF,a1\n"
                         "6,u2,a2\n",
                         NULL, 0));
    assert_int_equal(input.count, 2);
    assert_int_equal(input.skipped, 5);
    assert_string_equal(input.reason, "line 3: neither ISO 8601 nor a Unix epoch: \"soon\"");
    assert_row(1, "u2", "a2", 6000);
}

static void test_no_more_rows_than_asked_for(void **unused)
{
    (void)unused;
    assert_true(read_log("ts,user,ad\n1,u,a\n2,u,a\n3,u,a\n", NULL, 2));
    assert_int_equal(input.count, 2);
}

static void test_a_log_that_cannot_be_read_is_told(void **unused)
{
    (void)unused;
    assert_refused("", NULL, "an empty file");
    assert_refused("ts,user,ad\n", NULL, "there is only a header");
    assert_refused("ts,user,ad\nx,u,a\n", NULL, "line 2: neither ISO 8601");
    assert_refused("when,who,ad\n1,2,3\n", NULL, "which column is the user?");
    assert_refused("when,user,ad\n1,2,3\n", NULL, "which column is the time?");
    assert_refused("ts,user,ad\n1,2,3\n", "user=who,ad=ad,time=ts",
                   "no column \"who\"; it has \"ts\", \"user\", \"ad\"");
    assert_refused("ts,user,ad\n1,2,3\n", "user=user", "user, ad and one time are wanted");
    assert_refused("ts,user,ad\n1,2,3\n", "user=user,user=ad", "once each");
    assert_refused("ts,user,ad\n1,2,3\n", "user=user+,ad=ad,time=ts", "one to 8 columns");
    assert_refused("ts,user,ad\n1,2,3\n", "user=user,ad=ad,time=ts+ad", "one time");
    assert_refused("{\"session\":1}\n", "user=session,ad=e[].a,time=f[].t", "more than one array");
    assert_refused("{\"session\":1}\n", "user=session,ad=e[].a,time=e[].t", "no row of it");
}

/* --- JSON lines ------------------------------------------------------------------------------ */

static void test_json_lines_flat_and_nested(void **unused)
{
    (void)unused;
    assert_true(
        read_log("{\"ts\":5,\"user_id\":\"\\u00e9\\ud83d\\ude00\\n\\\"\",\"ad_id\":17}\n"
                 "\n"
                 "{\"ad_id\":\"a\",\"x\":[{}],\"user_id\":3,\"ts\":\"1970-01-01T00:00:01Z\"}",
                 NULL, 0));
    assert_int_equal(input.count, 2);
    assert_row(0, "3", "a", 1000);
    assert_row(1, "\xC3\xA9\xF0\x9F\x98\x80\n\"", "17", 5000);
    demo_input_close(&input);
    assert_true(read_log("{\"a\":{\"b.c\":0,\"b\":{\"c\":\"u\"}},\"d\":\"x\",\"e\":9}\n",
                         "user=a.b.c+e,ad=d,time=e", 0));
    assert_row(0, "u|9", "x", 9000);
}

static void test_an_array_gives_a_row_for_each_item(void **unused)
{
    (void)unused;
    assert_true(read_log("{\"session\":1,\"events\":[{\"aid\":7,\"ts\":2000000000000},"
                         "{\"aid\":8,\"ts\":1999999999999},{\"ts\":1}]}\n"
                         "{\"session\":2,\"events\":[]}\n"
                         "{\"session\":3,\"events\":[{\"ts\":2000000000001,\"aid\":7}]}\n"
                         "{\"session\":4}\n",
                         "user=session,ad=events[].aid,time=events[].ts", 0));
    assert_int_equal(input.count, 3);
    assert_int_equal(input.skipped, 2);
    assert_row(0, "1", "8", INT64_C(1999999999999));
    assert_row(1, "1", "7", INT64_C(2000000000000));
    assert_row(2, "3", "7", INT64_C(2000000000001));
}

static void test_broken_json_is_skipped(void **unused)
{
    static const char *const lines[] = {
        "{\"ts\":1,\"user\":\"u\",\"ad\":\"a\"",    "{\"ts\":1,\"user\":\"u\",\"ad\":\"a\"} x",
        "{\"ts\":1,\"user\":\"u\",\"ad\":\"a\",}",  "{\"ts\":1 \"user\":\"u\",\"ad\":\"a\"}",
        "{\"ts\":01x,\"user\":\"u\",\"ad\":\"a\"}", "{\"ts\":1,\"user\":\"u\\q\",\"ad\":\"a\"}",
        "{\"ts\":1,\"user\":\"\\u0000\",\"ad\":1}", "{\"ts\":1,\"user\":null,\"ad\":\"a\"}",
        "{\"ts\":1,\"user\":{},\"ad\":\"a\"}",      "{\"ts\":1,\"user\":\"u\",\"ad\":\"a\\",
        "{\"ts\":1,\"user\":tru,\"ad\":\"a\"}",
    };
    (void)unused;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "{\"ts\":7,\"user\":\"u\",\"ad\":\"a\"}\n%s\n", lines[i]);
        if (!read_log(text, NULL, 0) || input.count != 1 || input.skipped != 1) {
            fail_msg("%s: %zu rows, %s", lines[i], input.count, error);
        }
        demo_input_close(&input);
    }
}

/* --- times ----------------------------------------------------------------------------------- */

static void test_times(void **unused)
{
    static const struct {
        const char *text;
        int64_t time_ms; /* -1: none */
    } cases[] = {
        {"0", 0},
        {"1764460800", INT64_C(1764460800000)},
        {"1764460800.25", INT64_C(1764460800250)},
        {"1764460800123", INT64_C(1764460800123)},
        {"1764460800123456", INT64_C(1764460800123)},
        {"1764460800123456789", INT64_C(1764460800123)},
        {"1970-01-01", 0},
        {"2000-02-29 12:00", INT64_C(951825600000)},
        {"2019-11-24 00:03:13.442536+00:00", INT64_C(1574553793442)},
        {"2019-11-24T01:03:13,442+0100", INT64_C(1574553793442)},
        {"2019-11-23T18:33:13.442-05:30", INT64_C(1574553793442)},
        {"2019-11-24T00:03:13Z", INT64_C(1574553793000)},
        {"2017-05-06 00:00:02", INT64_C(1494028802000)},
        {"", -1},
        {"-5", -1},
        {"+5", -1},
        {" 5", -1},
        {"5 ", -1},
        {"12345678901234567890", -1},
        {"2019-13-01", -1},
        {"2019-1-1", -1},
        {"2019-11-24 25:00:00", -1},
        {"2019-11-24 00:03:13 noon", -1},
        {"2019-11-24 00:03:13+1", -1},
        {"24/11/2019", -1},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t time_ms = -1;
        bool is_time = demo_time_parse(cases[i].text, &time_ms);
        if (is_time != (cases[i].time_ms >= 0) || time_ms != cases[i].time_ms) {
            fail_msg("\"%s\": %" PRId64 ", not %" PRId64, cases[i].text, time_ms, cases[i].time_ms);
        }
    }
}

/* --- what is produced ------------------------------------------------------------------------ */

static void test_two_waves_make_the_whole(void **unused)
{
    (void)unused;
    assert_true(demo_feed_wave(-1) == 0 && demo_feed_wave(0) == 0);
    assert_true(demo_feed_wave(1) == 1 && demo_feed_wave(2) == 1);
    double before = 0;
    double steepest = 0;
    for (int i = 1; i <= 1000; i++) {
        double now = demo_feed_wave(i / 1000.0);
        assert_true(now >= before);
        steepest = now - before > steepest ? now - before : steepest;
        before = now;
    }
    assert_true(demo_feed_wave(0.5) > 0.499 && demo_feed_wave(0.5) < 0.501);
    assert_true(steepest > 0.0019 && steepest < 0.0021); /* Twice the mean at a peak. */
    assert_true(demo_feed_wave(0.51) - demo_feed_wave(0.49) < 0.001); /* Still in the middle. */
}

static void test_json_is_escaped(void **unused)
{
    char value[128];
    (void)unused;
    assert_true(demo_feed_json("u\"\\\n\xC3\xA9", "a\x01", 17, "row1", value, sizeof value) > 0);
    assert_string_equal(value, "{\"user_id\":\"u\\\"\\\\\\u000a\xC3\xA9\",\"ad_id\":\"a\\u0001\","
                               "\"ts\":17,\"id\":\"row1\"}");
    assert_int_equal(demo_feed_json("u", "a", 17, "row1", value, 40), 0);
}

/* --- the laboratory -------------------------------------------------------------------------- */

static void test_claims_of_a_partition_are_its_own(void **unused)
{
    static const char meta[] = "{\"v\":1,\"at\":9,\"partitions\":12,\"tasks\":{"
                               "\"1\":{\"epoch\":1,\"as_of\":11,\"next\":12,\"ready\":[\"1d\"]},"
                               "\"11\":{\"epoch\":1},"
                               "\"2\":{\"next\":22,\"as_of\":21}}}";
    struct claim claim = {0};
    (void)unused;
    assert_true(claim_read(meta, 1, &claim));
    assert_true(claim.as_of_ms == 11 && claim.next == 12);
    assert_true(claim_read(meta, 2, &claim));
    assert_true(claim.as_of_ms == 21 && claim.next == 22);
    assert_false(claim_read(meta, 11, &claim)); /* Not those of the next one. */
    assert_false(claim_read(meta, 3, &claim));
    assert_false(claim_read(NULL, 1, &claim));
}

static void test_samples_of_a_page_by_name_and_label(void **unused)
{
    char page[] = "# HELP x_total not x_total 5\n"
                  "x_total{worker=\"0\",reason=\"late\"} 3\n"
                  "x_total{worker=\"1\",reason=\"late\"} 4\n"
                  "x_total{worker=\"1\",reason=\"json\"} 0.5\n"
                  "x_total_more 100\n"
                  "y 7\n"
                  "p{partition=\"1\"} 1\n"
                  "p{partition=\"11\"} 11\n";
    struct daemon_process process = {.text = page};
    struct daemon_process none = {0};
    (void)unused;
    assert_true(daemon_process_sample(&process, "x_total", NULL) == 7.5);
    assert_true(daemon_process_sample(&process, "x_total", "reason=\"late\"") == 7);
    assert_true(daemon_process_sample(&process, "x_total", "reason=\"none\"") == -1);
    assert_true(daemon_process_sample(&process, "y", NULL) == 7);
    assert_true(daemon_process_sample(&process, "y", "a=\"b\"") == -1);
    assert_true(daemon_process_sample(&process, "p", "partition=\"1\"") == 1);
    assert_true(daemon_process_sample(&process, "z", NULL) == -1);
    assert_true(daemon_process_sample(&none, "y", NULL) == -1);
}

static void test_standing_still_is_measured(void **unused)
{
    static const struct {
        int64_t read, waiting, now_ms, still_ms;
    } looks[] = {
        {5, 9, 100, 0},     /* reads */
        {5, 9, 300, 200},   /* does not */
        {5, 3, 9300, 9200}, /* fewer wait, but none was read */
        {6, 9, 9400, 0},    /* reads on */
        {6, 0, 99400, 0},   /* nothing to read is no fault, */
        {6, 1, 99401, 1},   /* and time counts from when there is something */
        {6, 1, 159400, 60000},
    };
    struct demo_progress progress = {.since_ms = 50};
    (void)unused;
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        assert_int_equal(
            demo_progress_look(&progress, looks[i].read, looks[i].waiting, looks[i].now_ms),
            looks[i].still_ms);
    }
}

#define LOG_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOG_TEST(test_csv_is_sorted_by_time_and_keeps_quotes),
        LOG_TEST(test_columns_are_mapped_and_joined),
        LOG_TEST(test_rows_that_cannot_be_used_are_counted_with_the_first_reason),
        LOG_TEST(test_no_more_rows_than_asked_for),
        LOG_TEST(test_a_log_that_cannot_be_read_is_told),
        LOG_TEST(test_json_lines_flat_and_nested),
        LOG_TEST(test_an_array_gives_a_row_for_each_item),
        LOG_TEST(test_broken_json_is_skipped),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_two_waves_make_the_whole),
        cmocka_unit_test(test_json_is_escaped),
        cmocka_unit_test(test_claims_of_a_partition_are_its_own),
        cmocka_unit_test(test_standing_still_is_measured),
        cmocka_unit_test(test_samples_of_a_page_by_name_and_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
