/* Every checker against a planted wrong key: a checker that cannot fail proves nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lab/oracle.h"
#include "lab/oracle_check.h"
#include "lab/oracle_value.h"

#define MINUTE_MS 60000

struct fixture {
    struct oracle *oracle;
    struct oracle_tally tally;
};

static struct fixture fixture;

static int set_up(void **state)
{
    fixture = (struct fixture){.oracle = oracle_open()};
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    oracle_close(f->oracle);
    return 0;
}

static void add(struct fixture *f, int64_t offset, const char *user, const char *ad,
                int64_t time_ms)
{
    struct oracle_event event = {.offset = offset, .user = user, .ad = ad, .time_ms = time_ms};
    assert_int_equal(oracle_add(f->oracle, &event), ORACLE_ACCEPTED);
}

/* --- values -------------------------------------------------------------------------------------
 */

static void test_value_parse(void **state)
{
    /* clang-format off */
    static const struct {
        const char *text;
        const char *reason; /* NULL: good */
    } rows[] = {
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1}}", NULL},
        {" { \"counts\" : { \"b\" : 2 , \"a\" : 1 } , \"as_of\" : 17 , \"v\" : 1 } ", NULL},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1},\"partial\":true}", NULL},
        {"{\"v\":1,\"as_of\":-5,\"counts\":{}}", NULL},
        {"{\"v\":2,\"as_of\":17,\"counts\":{\"a\":1}}", "v is not 1"},
        {"{\"as_of\":17,\"counts\":{\"a\":1}}", "v, as_of or counts is missing"},
        {"{\"v\":1,\"counts\":{\"a\":1}}", "v, as_of or counts is missing"},
        {"{\"v\":1,\"as_of\":17}", "v, as_of or counts is missing"},
        {"{\"v\":1,\"v\":1,\"as_of\":17,\"counts\":{\"a\":1}}", "a member stands twice"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1},\"x\":1}", "an unknown member"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1,\"a\":1}}", "an ad stands twice"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1,\"\\u0061\":1}}", "an ad stands twice"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":0}}", "a count that is not positive"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":-1}}", "a count that is not positive"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":01}}", "no integer where one belongs"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":\"1\"}}", "no integer where one belongs"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1.5}}", "no '}' after the counts"},
        {"{\"v\":1,\"as_of\":99999999999999999999,\"counts\":{}}", "a number beyond 64 bits"},
        {"{\"v\":1,\"as_of\":17,\"counts\":[]}", "counts is no object"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1}} x", "something after the end"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1}", "no '}' at the end"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1},\"partial\":false}", "partial is not true"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"\\ud800\":1}}", "half a surrogate pair"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"\\u00zz\":1}}", "a bad \\u escape"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"\\q\":1}}", "an unknown escape"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\n\":1}}", "a control character in a text"},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a", "a text without end"},
        {"[]", "not an object"},
        {"", "not an object"},
    };
    /* clang-format on */
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct oracle_value value;
        const char *reason = NULL;
        bool good = oracle_value_parse(rows[i].text, strlen(rows[i].text), &value, &reason);
        if (good != (rows[i].reason == NULL)) {
            print_error("%s: %s\n", rows[i].text, reason == NULL ? "good" : reason);
        }
        assert_int_equal(good, rows[i].reason == NULL);
        if (rows[i].reason != NULL) {
            assert_string_equal(reason, rows[i].reason);
        }
        oracle_value_done(&value);
    }
}

static void test_value_texts(void **state)
{
    static const char text[] = "{\"v\":1,\"as_of\":17,\"counts\":{\"z\\\"\\\\\\/\\n\":3,"
                               "\"\\u00e9\":2,\"\\ud83d\\ude00\":1,\"plain\":4}}";
    struct oracle_value value;
    const char *reason = NULL;
    (void)state;
    assert_true(oracle_value_parse(text, sizeof text - 1, &value, &reason));
    assert_int_equal(value.as_of_ms, 17);
    assert_false(value.partial);
    assert_int_equal(value.counts.count, 4);
    assert_string_equal(value.counts.rows[0].ad, "plain");
    assert_string_equal(value.counts.rows[1].ad, "z\"\\/\n");
    assert_string_equal(value.counts.rows[2].ad, "\xc3\xa9");
    assert_string_equal(value.counts.rows[3].ad, "\xf0\x9f\x98\x80");
    assert_int_equal(value.counts.rows[3].count, 1);
    oracle_value_done(&value);
}

/* --- checkers, each with a planted wrong key ---------------------------------------------------
 */

static bool check(struct fixture *f, const struct oracle_expectation *expectation,
                  const char *value)
{
    return oracle_check_value(f->oracle, expectation, value, value == NULL ? 0 : strlen(value),
                              &f->tally);
}

static void test_check_value_at_rest(void **state)
{
    struct fixture *f = *state;
    struct oracle_expectation rest = {
        .user = "u", .window_ms = 1000, .at_min_ms = 1600, .at_max_ms = 1600};
    /* clang-format off */
    static const struct {
        const char *value;
        bool right;
        const char *says;
    } rows[] = {
        {"{\"v\":1,\"as_of\":1500,\"counts\":{\"a\":2,\"b\":1}}", true, NULL},
        {"{\"v\":1,\"as_of\":1600,\"counts\":{\"a\":2,\"b\":1}}", true, NULL},
        {"{\"v\":1,\"as_of\":1500,\"counts\":{\"a\":3,\"b\":1}}", false, "ad \"a\": definition 2, found 3"},
        {"{\"v\":1,\"as_of\":1500,\"counts\":{\"a\":1,\"b\":1}}", false, "ad \"a\": definition 2, found 1"},
        {"{\"v\":1,\"as_of\":1500,\"counts\":{\"a\":2}}", false, "ad \"b\": definition 1, found 0"},
        {"{\"v\":1,\"as_of\":1500,\"counts\":{\"a\":2,\"b\":1,\"c\":1}}", false, "ad \"c\": definition 0, found 1"},
        {"{\"v\":1,\"as_of\":1601,\"counts\":{\"a\":2,\"b\":1}}", false, "as_of is ahead"},
        {"{\"v\":1,\"as_of\":1500,\"counts\":{}}", false, "without counts"},
        {"{\"v\":1,\"as_of\":1500,\"counts\":{\"a\":2,\"b\":1},\"partial\":true}", false, "no limit is set"},
        {"{\"v\":3,\"as_of\":1500,\"counts\":{\"a\":2,\"b\":1}}", false, "v is not 1"},
        {"OK", false, "not an object"},
        {NULL, false, "absent"},
    };
    /* clang-format on */
    add(f, 0, "u", "gone", 500);
    add(f, 1, "u", "a", 1000);
    add(f, 2, "u", "a", 1100);
    add(f, 3, "u", "b", 1200);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        f->tally = (struct oracle_tally){0};
        assert_int_equal(check(f, &rest, rows[i].value), rows[i].right);
        assert_int_equal(f->tally.compared, 1);
        assert_int_equal(f->tally.non_empty, rows[i].value != NULL);
        assert_int_equal(f->tally.absent, rows[i].value == NULL);
        assert_int_equal(f->tally.wrong, !rows[i].right);
        if (!rows[i].right) {
            assert_non_null(strstr(f->tally.text, "user \"u\" window 1000 ms"));
            assert_non_null(strstr(f->tally.text, rows[i].says));
        }
    }
    /* Keys that should not exist: a window that is empty, and a user that nobody saw. */
    f->tally = (struct oracle_tally){0};
    rest.at_min_ms = rest.at_max_ms = 2200;
    assert_true(check(f, &rest, NULL));
    assert_false(check(f, &rest, "{\"v\":1,\"as_of\":1500,\"counts\":{\"b\":1}}"));
    rest.user = "nobody";
    assert_true(check(f, &rest, NULL));
    assert_false(check(f, &rest, "{\"v\":1,\"as_of\":2200,\"counts\":{\"b\":1}}"));
    assert_int_equal(f->tally.compared, 4);
    assert_int_equal(f->tally.wrong, 2);
}

static void test_check_partial_value(void **state)
{
    struct fixture *f = *state;
    struct oracle_expectation rest = {.user = "u",
                                      .window_ms = 1000,
                                      .at_min_ms = 1000,
                                      .at_max_ms = 1000,
                                      .allow_partial = true};
    add(f, 0, "u", "a", 500);
    add(f, 1, "u", "b", 500);
    add(f, 2, "u", "c", 500);
    assert_true(check(f, &rest, "{\"v\":1,\"as_of\":1,\"counts\":{\"b\":1},\"partial\":true}"));
    assert_true(
        check(f, &rest, "{\"v\":1,\"as_of\":1,\"counts\":{\"a\":1,\"c\":1},\"partial\":true}"));
    assert_int_equal(f->tally.partial, 2);
    assert_false(check(f, &rest, "{\"v\":1,\"as_of\":1,\"counts\":{\"b\":2},\"partial\":true}"));
    assert_false(check(f, &rest, "{\"v\":1,\"as_of\":1,\"counts\":{\"d\":1},\"partial\":true}"));
    assert_false(check(f, &rest, "{\"v\":1,\"as_of\":1,\"counts\":{\"b\":1}}"));
    assert_int_equal(f->tally.wrong, 3);
}

/* Between two readings of `next` and of the clock, the value of any state in between is right. */
static void test_check_value_on_a_living_system(void **state)
{
    struct fixture *f = *state;
    int64_t next_min[1] = {1};
    int64_t next_max[1] = {3};
    struct oracle_expectation live = {.user = "u",
                                      .window_ms = 1000,
                                      .at_min_ms = 1700,
                                      .at_max_ms = 1900,
                                      .next_min = next_min,
                                      .next_max = next_max,
                                      .next_count = 1};
    /* clang-format off */
    static const struct {
        const char *value;
        bool right;
    } rows[] = {
        {"{\"v\":1,\"as_of\":900,\"counts\":{\"a\":1}}", true},           /* next 1, T < 1800 */
        {"{\"v\":1,\"as_of\":1750,\"counts\":{\"a\":1,\"b\":1}}", true},  /* next 2, T < 1800 */
        {"{\"v\":1,\"as_of\":1800,\"counts\":{\"b\":1}}", true},          /* next 2, a has left */
        {"{\"v\":1,\"as_of\":1800,\"counts\":{\"b\":1,\"c\":1}}", true},  /* next 3 */
        {"{\"v\":1,\"as_of\":1800,\"counts\":{\"c\":1}}", false},         /* c without b: no prefix */
        {"{\"v\":1,\"as_of\":1800,\"counts\":{\"a\":1}}", false},         /* its own as_of says no */
        {"{\"v\":1,\"as_of\":1800,\"counts\":{\"b\":1,\"c\":1,\"d\":1}}", false}, /* beyond next_max */
        {NULL, true},                                                     /* next 1, a has left */
    };
    /* clang-format on */
    add(f, 0, "u", "a", 800);
    add(f, 1, "u", "b", 1600);
    add(f, 2, "u", "c", 1600);
    add(f, 3, "u", "d", 1600);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(check(f, &live, rows[i].value), rows[i].right);
    }
    assert_int_equal(f->tally.wrong, 3);
    next_min[0] = 2; /* Now b was applied before the key was read: an absent key is wrong. */
    assert_false(check(f, &live, NULL));
    assert_false(check(f, &live, "{\"v\":1,\"as_of\":900,\"counts\":{\"a\":1}}"));
    /* A change that is overdue: a left at 1800, and the clock has passed the allowed lag. */
    live.at_min_ms = 1850;
    assert_false(check(f, &live, "{\"v\":1,\"as_of\":1750,\"counts\":{\"a\":1,\"b\":1}}"));
}

/* An event that arrives after it has left the window changes no value: as_of stays older than the
 * event's leaving, and the value is still the right one. */
static void test_check_event_that_came_too_late(void **state)
{
    struct fixture *f = *state;
    struct oracle_expectation rest = {
        .user = "u", .window_ms = 1000, .at_min_ms = 1000, .at_max_ms = 1950};
    static const char value[] = "{\"v\":1,\"as_of\":1000,\"counts\":{\"a\":1}}";
    add(f, 0, "u", "a", 1000);
    assert_true(check(f, &rest, value));
    add(f, 1, "u", "late", 900); /* Applied at T >= 1900. */
    assert_true(check(f, &rest, value));
    rest.at_max_ms = 1899; /* Before that moment it would have been counted. */
    assert_false(check(f, &rest, value));
}

static void test_check_strict_as_of(void **state)
{
    struct fixture *f = *state;
    struct oracle_expectation strict = {
        .user = "u", .window_ms = 1000, .at_min_ms = 5000, .at_max_ms = 5000, .strict_as_of = true};
    add(f, 0, "u", "a", 800);
    add(f, 1, "u", "b", 900);
    assert_true(check(f, &strict, "{\"v\":1,\"as_of\":1799,\"counts\":{\"a\":1,\"b\":1}}"));
    assert_false(check(f, &strict, "{\"v\":1,\"as_of\":1800,\"counts\":{\"a\":1,\"b\":1}}"));
    assert_true(check(f, &strict, "{\"v\":1,\"as_of\":1800,\"counts\":{\"b\":1}}"));
    assert_false(check(f, &strict, "{\"v\":1,\"as_of\":1900,\"counts\":{\"b\":1}}"));
    assert_int_equal(f->tally.wrong, 2);
}

static void test_check_expiry(void **state)
{
    struct fixture *f = *state;
    struct oracle_query query = {.user = "u", .window_ms = MINUTE_MS};
    add(f, 0, "u", "a", 1000001);
    add(f, 1, "u", "b", 1000000);
    assert_true(oracle_check_expiry(f->oracle, &query, 1060000, &f->tally));
    assert_int_equal(f->tally.wrong, 0);
    assert_false(oracle_check_expiry(f->oracle, &query, 1060001, &f->tally));
    assert_false(oracle_check_expiry(f->oracle, &query, -1, &f->tally)); /* no PXAT at all */
    query.user = "nobody";
    assert_false(oracle_check_expiry(f->oracle, &query, 1060000, &f->tally));
    assert_int_equal(f->tally.compared, 4);
    assert_int_equal(f->tally.wrong, 3);
    assert_non_null(strstr(f->tally.text, "PXAT 1060001, definition 1060000"));
}

static void test_check_counts(void **state)
{
    struct fixture *f = *state;
    struct oracle_query query = {.user = "u", .window_ms = 1000, .at_ms = 1000};
    struct oracle_count rows[] = {{"a", 2}, {"b", 1}};
    add(f, 0, "u", "a", 500);
    add(f, 1, "u", "b", 500);
    add(f, 2, "u", "a", 600);
    assert_true(oracle_check_counts(f->oracle, &query, rows, 2, "state", &f->tally));
    rows[0].count = 3;
    assert_false(oracle_check_counts(f->oracle, &query, rows, 2, "state", &f->tally));
    assert_false(oracle_check_counts(f->oracle, &query, rows + 1, 1, "state", &f->tally));
    assert_false(oracle_check_counts(f->oracle, &query, NULL, 0, "state", &f->tally));
    assert_int_equal(f->tally.compared, 4);
    assert_int_equal(f->tally.wrong, 3);
    assert_non_null(strstr(f->tally.text, "state: user \"u\""));
    query.at_ms = 1600;
    assert_true(oracle_check_counts(f->oracle, &query, NULL, 0, "state", &f->tally));
}

static void test_too_few_comparisons_fail(void **state)
{
    struct oracle_tally tally = {.compared = 10, .non_empty = 7, .absent = 3};
    struct oracle_minimum minimum = {.compared = 10, .non_empty = 7, .absent = 3};
    char text[512];
    (void)state;
    assert_true(oracle_passes(&tally, &minimum, text, sizeof text));
    assert_non_null(strstr(text, "compared 10 (7 non-empty, 3 absent), wrong 0"));
    minimum.compared = 11;
    assert_false(oracle_passes(&tally, &minimum, text, sizeof text));
    assert_non_null(strstr(text, "too few"));
    minimum.compared = 10;
    minimum.non_empty = 8;
    assert_false(oracle_passes(&tally, &minimum, text, sizeof text));
    minimum.non_empty = 7;
    minimum.absent = 4;
    assert_false(oracle_passes(&tally, &minimum, NULL, 0));
    minimum.absent = 3;
    tally.wrong = 1;
    assert_false(oracle_passes(&tally, &minimum, text, sizeof text));
    assert_null(strstr(text, "too few"));
}

/* Many wrong keys: the text is cut, the count is not. */
static void test_many_differences(void **state)
{
    struct fixture *f = *state;
    struct oracle_expectation rest = {
        .user = "u", .window_ms = 1000, .at_min_ms = 1000, .at_max_ms = 1000};
    for (int i = 0; i < 500; i++) {
        assert_false(check(f, &rest, "{\"v\":1,\"as_of\":1,\"counts\":{\"b\":1}}"));
    }
    assert_int_equal(f->tally.wrong, 500);
    assert_true(strlen(f->tally.text) < sizeof f->tally.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value_parse),
        cmocka_unit_test(test_value_texts),
        cmocka_unit_test_setup_teardown(test_check_value_at_rest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_partial_value, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_value_on_a_living_system, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_event_that_came_too_late, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_strict_as_of, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_expiry, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_counts, set_up, tear_down),
        cmocka_unit_test(test_too_few_comparisons_fail),
        cmocka_unit_test_setup_teardown(test_many_differences, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
