/* The definition against tables worked out by hand, and every checker against a planted wrong
 * key: a checker that cannot fail proves nothing. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/oracle.h"
#include "lib/oracle_check.h"
#include "lib/oracle_value.h"

#define MINUTE_MS 60000

struct fixture {
    struct oracle *oracle;
    struct oracle_counts counts;
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
    oracle_counts_done(&f->counts);
    oracle_close(f->oracle);
    return 0;
}

static void add(struct fixture *f, int64_t offset, const char *user, const char *ad,
                int64_t time_ms)
{
    struct oracle_event event = {.offset = offset, .user = user, .ad = ad, .time_ms = time_ms};
    assert_int_equal(oracle_add(f->oracle, &event), ORACLE_ACCEPTED);
}

/* "ad=count ad=count", in the order in which the oracle gives them. */
static const char *counts_text(struct fixture *f, const struct oracle_query *query)
{
    static char text[512];
    text[0] = '\0';
    oracle_query(f->oracle, query, &f->counts);
    for (size_t i = 0; i < f->counts.count; i++) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%s=%" PRIu64, i > 0 ? " " : "",
                       f->counts.rows[i].ad, f->counts.rows[i].count);
    }
    return text;
}

/* --- the definition --------------------------------------------------------------------------- */

/* Field report B11: an event exactly one window old has just left. */
static void test_b11_boundary(void **state)
{
    static const int64_t times_ms[][4] = {{1000000, 1000000, 1000000, 1000001},
                                          {1000001, 1000000, 1000000, 1000000},
                                          {1000000, 1000001, 1000000, 1000000}};
    static const struct {
        int64_t at_ms;
        const char *counts;
    } moments[] = {{1059999, "a=4"}, {1060000, "a=1"}, {1060001, ""}};
    (void)state;
    for (size_t order = 0; order < 3; order++) {
        struct fixture f = {.oracle = oracle_open()};
        int64_t newest_ms = 0;
        for (int64_t i = 0; i < 4; i++) {
            add(&f, i, "u", "a", times_ms[order][i]);
        }
        for (size_t i = 0; i < 3; i++) {
            struct oracle_query query = {
                .user = "u", .window_ms = MINUTE_MS, .at_ms = moments[i].at_ms};
            assert_string_equal(counts_text(&f, &query), moments[i].counts);
        }
        struct oracle_query query = {.user = "u", .window_ms = MINUTE_MS};
        assert_true(oracle_newest(f.oracle, &query, &newest_ms));
        assert_int_equal(newest_ms + MINUTE_MS - 1, 1060000); /* PXAT */
        oracle_counts_done(&f.counts);
        oracle_close(f.oracle);
    }
}

static void test_table(void **state)
{
    struct fixture *f = *state;
    /* clang-format off */
    static const struct {
        const char *user;
        int64_t window_ms;
        int64_t at_ms;
        const char *counts;
    } rows[] = {
        {"u1",  1000, 1000, "a=3 b=1"},       /* an event later than T counts at once */
        {"u1",  1000, 1999, "a=3 b=1"},       /* cursor 999 */
        {"u1",  1000, 2000, "a=2 b=1"},       /* cursor 1000: a@1000 has left */
        {"u1",  1000, 2499, "a=2 b=1"},
        {"u1",  1000, 2500, "a=2"},           /* cursor 1500: b@1500 has left */
        {"u1",  1000, 2999, "a=2"},
        {"u1",  1000, 3000, ""},              /* cursor 2000 */
        {"u1",  2000, 3000, "a=2 b=1"},       /* the longer window, same moment */
        {"u1",  2000, 4000, ""},
        {"u2",  5000, 5000, "Z=1 a=1 aa=1"},  /* byte order; prefix first */
        {"u3",  5000, 5000, ""},              /* nobody */
    };
    /* clang-format on */
    add(f, 0, "u1", "a", 1000);
    add(f, 1, "u1", "a", 2000);
    add(f, 2, "u2", "aa", 3000);
    add(f, 3, "u1", "b", 1500);
    add(f, 4, "u2", "a", 3000);
    add(f, 5, "u1", "a", 2000);
    add(f, 6, "u2", "Z", 100);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct oracle_query query = {
            .user = rows[i].user, .window_ms = rows[i].window_ms, .at_ms = rows[i].at_ms};
        assert_string_equal(counts_text(f, &query), rows[i].counts);
    }
    assert_int_equal(oracle_user_count(f->oracle), 2);
    assert_string_equal(oracle_user(f->oracle, 1), "u2");
    assert_int_equal(oracle_record_count(f->oracle, "u1"), 4);
    assert_int_equal(oracle_record_count(f->oracle, "u3"), 0);
    assert_int_equal(oracle_record_at(f->oracle, "u1", 2).offset, 3);
    assert_int_equal(oracle_record_at(f->oracle, "u1", 2).time_ms, 1500);
    assert_int_equal(oracle_next_offset(f->oracle, 0), 7);
    assert_int_equal(oracle_next_offset(f->oracle, 1), 0);
}

static void test_future_rule(void **state)
{
    struct fixture *f = *state;
    static const struct {
        int64_t time_ms;
        int64_t bound_ms;
        enum oracle_verdict verdict;
    } rows[] = {{1300, 1000, ORACLE_ACCEPTED},
                {1301, 1000, ORACLE_FUTURE},
                {1301, 1001, ORACLE_ACCEPTED},
                {9000000, INT64_MAX, ORACLE_ACCEPTED}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct oracle_event event = {
            .offset = (int64_t)i, .user = "u", .ad = "a", .time_ms = rows[i].time_ms};
        assert_int_equal(oracle_add_bounded(f->oracle, &event, rows[i].bound_ms, 300),
                         rows[i].verdict);
    }
    struct oracle_query query = {.user = "u", .window_ms = 1000, .at_ms = 1000};
    assert_string_equal(counts_text(f, &query), "a=3");
    assert_int_equal(oracle_next_offset(f->oracle, 0), 4); /* A refused record uses its offset. */
}

static void test_redelivered_offsets_are_ignored(void **state)
{
    struct fixture *f = *state;
    struct oracle_event event = {.partition = 3, .user = "u", .ad = "a", .time_ms = 500};
    struct oracle_query query = {.user = "u", .window_ms = 1000, .at_ms = 1000};
    assert_int_equal(oracle_skip(f->oracle, 3, 4), ORACLE_ACCEPTED);
    event.offset = 4;
    assert_int_equal(oracle_add(f->oracle, &event), ORACLE_REDELIVERED);
    event.offset = 7; /* A hole, as transaction markers leave it. */
    assert_int_equal(oracle_add(f->oracle, &event), ORACLE_ACCEPTED);
    assert_int_equal(oracle_add(f->oracle, &event), ORACLE_REDELIVERED);
    assert_int_equal(oracle_tombstone(f->oracle, 3, 7, "u"), ORACLE_REDELIVERED);
    assert_int_equal(oracle_skip(f->oracle, 3, 6), ORACLE_REDELIVERED);
    assert_string_equal(counts_text(f, &query), "a=1");
    event.partition = 2; /* Offsets belong to their partition. */
    event.offset = 0;
    assert_int_equal(oracle_add(f->oracle, &event), ORACLE_ACCEPTED);
    assert_string_equal(counts_text(f, &query), "a=2");
}

static void test_tombstone_erases_what_stands_before_it(void **state)
{
    struct fixture *f = *state;
    struct oracle_event elsewhere = {.partition = 1, .user = "u", .ad = "c", .time_ms = 500};
    struct oracle_query query = {.user = "u", .window_ms = 1000, .at_ms = 1000};
    int64_t newest_ms = 0;
    add(f, 0, "u", "a", 900);
    add(f, 1, "v", "a", 900);
    assert_int_equal(oracle_add(f->oracle, &elsewhere), ORACLE_ACCEPTED);
    assert_int_equal(oracle_tombstone(f->oracle, 0, 2, "u"), ORACLE_ACCEPTED);
    assert_string_equal(counts_text(f, &query), "c=1"); /* The other partition keeps its event. */
    add(f, 3, "u", "b", 600);                           /* Older than what was erased. */
    assert_string_equal(counts_text(f, &query), "b=1 c=1");
    assert_true(oracle_newest(f->oracle, &query, &newest_ms));
    assert_int_equal(newest_ms, 600); /* Not 900: that one is erased. */
    query.user = "v";
    assert_string_equal(counts_text(f, &query), "a=1");
    assert_int_equal(oracle_tombstone(f->oracle, 0, 4, "v"), ORACLE_ACCEPTED);
    assert_int_equal(oracle_tombstone(f->oracle, 0, 5, "v"), ORACLE_ACCEPTED);
    assert_string_equal(counts_text(f, &query), "");
    assert_false(oracle_newest(f->oracle, &query, &newest_ms));
}

static void test_duplicates(void **state)
{
    struct fixture *f = *state;
    /* clang-format off */
    static const struct oracle_event events[] = {
        {0, 0, "u", "a", 500, "id1"},
        {0, 1, "u", "a", 500, "id1"}, /* duplicate */
        {0, 2, "u", "b", 500, "id1"}, /* duplicate, whatever its ad */
        {0, 3, "u", "a", 501, "id1"}, /* another time: another event */
        {0, 4, "u", "a", 500, "id2"}, /* another id */
        {0, 5, "v", "a", 500, "id1"}, /* another user */
        {0, 6, "u", "a", 500, NULL},  /* no id: never a duplicate */
        {0, 7, "u", "a", 500, NULL},
        {1, 0, "u", "a", 500, "id1"}, /* another partition */
    };
    /* clang-format on */
    struct oracle_query query = {.user = "u", .window_ms = 1000, .at_ms = 1000};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        assert_int_equal(oracle_add(f->oracle, &events[i]), ORACLE_ACCEPTED);
    }
    assert_string_equal(counts_text(f, &query), "a=6");
    query.user = "v";
    assert_string_equal(counts_text(f, &query), "a=1");
}

static void test_duplicate_of_an_erased_event(void **state)
{
    struct fixture *f = *state;
    struct oracle_event event = {.user = "u", .ad = "a", .time_ms = 500, .id = "id1"};
    struct oracle_query query = {.user = "u", .window_ms = 1000, .at_ms = 1000};
    assert_int_equal(oracle_add(f->oracle, &event), ORACLE_ACCEPTED);
    assert_int_equal(oracle_tombstone(f->oracle, 0, 1, "u"), ORACLE_ACCEPTED);
    event.offset = 2; /* Sent twice by the producer, once before the erasure: stays erased. */
    assert_int_equal(oracle_add(f->oracle, &event), ORACLE_ACCEPTED);
    assert_string_equal(counts_text(f, &query), "");
    event.offset = 3;
    event.id = "id2";
    assert_int_equal(oracle_add(f->oracle, &event), ORACLE_ACCEPTED);
    assert_string_equal(counts_text(f, &query), "a=1");
}

/* A refused event is not the first of its id. */
static void test_duplicate_of_a_refused_event(void **state)
{
    struct fixture *f = *state;
    struct oracle_event event = {.user = "u", .ad = "a", .time_ms = 500, .id = "id1"};
    struct oracle_query query = {.user = "u", .window_ms = 1000, .at_ms = 500};
    assert_int_equal(oracle_add_bounded(f->oracle, &event, 100, 50), ORACLE_FUTURE);
    event.offset = 1;
    assert_int_equal(oracle_add_bounded(f->oracle, &event, 450, 50), ORACLE_ACCEPTED);
    assert_string_equal(counts_text(f, &query), "a=1");
}

static void test_history_and_bounds(void **state)
{
    struct fixture *f = *state;
    int64_t next[2] = {2, 0};
    int64_t newest_ms = 0;
    struct oracle_event other = {.partition = 1, .user = "u", .ad = "p1", .time_ms = 100};
    struct oracle_query query = {.user = "u", .window_ms = 1000, .at_ms = 1000};
    add(f, 0, "u", "a", 200);
    add(f, 1, "u", "a", 300);
    assert_int_equal(oracle_tombstone(f->oracle, 0, 2, "u"), ORACLE_ACCEPTED);
    add(f, 3, "u", "b", 250);
    assert_int_equal(oracle_add(f->oracle, &other), ORACLE_ACCEPTED);

    query.next = next;
    query.next_count = 2;
    assert_string_equal(counts_text(f, &query), "a=2");
    next[0] = 3; /* The tombstone has been read. */
    assert_string_equal(counts_text(f, &query), "");
    next[0] = 4;
    assert_string_equal(counts_text(f, &query), "b=1");
    next[1] = 1;
    assert_string_equal(counts_text(f, &query), "b=1 p1=1");
    query.next_count = 1; /* A partition that the caller does not know has no record. */
    assert_string_equal(counts_text(f, &query), "b=1");

    query.next = NULL;
    query.history_ms = 249;
    assert_string_equal(counts_text(f, &query), "b=1");
    assert_true(oracle_newest(f->oracle, &query, &newest_ms));
    query.history_ms = 250; /* At H: gone, whatever the window. */
    assert_string_equal(counts_text(f, &query), "");
    assert_false(oracle_newest(f->oracle, &query, &newest_ms));
}

/* Against a second way to count, on data that nobody worked out by hand. */
static void test_random_against_nested_loops(void **state)
{
    enum { EVENTS = 400, USERS = 3, ADS = 4 };
    struct fixture *f = *state;
    struct {
        int user, ad;
        int64_t time_ms;
    } events[EVENTS];
    uint64_t random = 42;
    char user[32];
    char ad[32];
    for (int i = 0; i < EVENTS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        events[i].user = (int)((random >> 33) % USERS);
        events[i].ad = (int)((random >> 40) % ADS);
        events[i].time_ms = (int64_t)((random >> 20) % 1000);
        (void)snprintf(user, sizeof user, "u%d", events[i].user);
        (void)snprintf(ad, sizeof ad, "a%d", events[i].ad);
        add(f, i, user, ad, events[i].time_ms);
    }
    for (int64_t at_ms = 0; at_ms < 1400; at_ms += 7) {
        for (int u = 0; u < USERS; u++) {
            uint64_t want[ADS] = {0};
            uint64_t sum = 0;
            (void)snprintf(user, sizeof user, "u%d", u);
            struct oracle_query query = {.user = user, .window_ms = 300, .at_ms = at_ms};
            for (int i = 0; i < EVENTS; i++) {
                if (events[i].user == u && events[i].time_ms > at_ms - 300) {
                    want[events[i].ad]++;
                    sum++;
                }
            }
            oracle_query(f->oracle, &query, &f->counts);
            for (size_t i = 0; i < f->counts.count; i++) {
                assert_int_equal(f->counts.rows[i].count, want[f->counts.rows[i].ad[1] - '0']);
                sum -= f->counts.rows[i].count;
            }
            assert_int_equal(sum, 0);
        }
    }
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
        cmocka_unit_test(test_b11_boundary),
        cmocka_unit_test_setup_teardown(test_table, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_future_rule, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_redelivered_offsets_are_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tombstone_erases_what_stands_before_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_duplicates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_duplicate_of_an_erased_event, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_duplicate_of_a_refused_event, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_history_and_bounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_against_nested_loops, set_up, tear_down),
        cmocka_unit_test(test_value_parse),
        cmocka_unit_test(test_value_texts),
        cmocka_unit_test_setup_teardown(test_check_value_at_rest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_partial_value, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_value_on_a_living_system, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_strict_as_of, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_expiry, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_counts, set_up, tear_down),
        cmocka_unit_test(test_too_few_comparisons_fail),
        cmocka_unit_test_setup_teardown(test_many_differences, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
