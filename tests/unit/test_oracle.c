/* The definition against tables worked out by hand. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lab/oracle.h"

#define MINUTE_MS 60000

struct fixture {
    struct oracle *oracle;
    struct oracle_counts counts;
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

/* The same id at another time, or in another partition, with nothing in between. */
static void test_neighbours_are_no_duplicates(void **state)
{
    struct fixture *f = *state;
    static const struct oracle_event events[] = {
        {0, 0, "u", "a", 500, "id1"}, {0, 1, "u", "a", 501, "id1"}, /* another time */
        {0, 2, "v", "a", 500, "id1"}, {1, 0, "v", "a", 500, "id1"}, /* another partition */
        {0, 3, "w", "a", 500, "id1"}, {0, 4, "w", "a", 500, "id1"}, /* duplicate */
    };
    struct oracle_query query = {.user = "u", .window_ms = 1000, .at_ms = 1000};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        assert_int_equal(oracle_add(f->oracle, &events[i]), ORACLE_ACCEPTED);
    }
    assert_string_equal(counts_text(f, &query), "a=2");
    query.user = "v";
    assert_string_equal(counts_text(f, &query), "a=2");
    query.user = "w";
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
        cmocka_unit_test_setup_teardown(test_neighbours_are_no_duplicates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_duplicate_of_an_erased_event, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_duplicate_of_a_refused_event, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_history_and_bounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_against_nested_loops, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
