/* What was lost: which offsets a gap took, what is kept of the last few, and its bytes. */
#include "fcap/gaps.h"

#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define OFFSETS "01 00 00 00 00 00 00 00 00 19 00 00 00 00 00 00 00 63 00 00 00 00 00 00 00 64"
#define TIMES                                                                                      \
    "00 00 01 8b cf e5 68 00 00 00 01 8b cf e5 73 b8 00 00 01 8b cf e6 52 60 "                     \
    "00 00 01 8b cf eb 84 58"

static const struct fcap_lost_span one = {
    .kind = FCAP_GAP_BELOW_START,
    .first = 25,
    .last = 99,
    .next = 100,
    .from_ms = 1700000000000,
    .to_ms = 1700000003000,
    .noticed_ms = 1700000060000,
    .since_ms = 1700000400472,
};

static void test_kinds(void **state)
{
    static const char *const names[] = {"below_start", "beyond_end",    "recreated",
                                        "truncated",   "short_history", "grown"};
    (void)state;
    /* The numbers are stored: they stay what they are. */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_string_equal(fcap_gap_kind_name((enum fcap_gap_kind)i), names[i]);
    }
    for (size_t i = 0; i < FCAP_GAP_KIND_COUNT; i++) {
        assert_true(fcap_gap_kind_text((enum fcap_gap_kind)i)[0] != '\0');
    }
}

static void test_offsets(void **state)
{
    /* clang-format off */
    static const struct {
        struct fcap_gap gap;
        int64_t first;
        int64_t last;
    } cases[] = {
        {{.kind = FCAP_GAP_BELOW_START, .wanted = 5, .log_start = 12, .end = 20, .next = 12}, 5, 11},
        {{.kind = FCAP_GAP_BEYOND_END, .wanted = 100, .end = 20},                           100, -1},
        {{.kind = FCAP_GAP_RECREATED, .wanted = 100, .end = 150},                           100, -1},
        {{.kind = FCAP_GAP_TRUNCATED, .wanted = 100, .end = 90, .next = 80, .same = 64},     64, 79},
        {{.kind = FCAP_GAP_TRUNCATED, .wanted = 100, .end = 64, .next = 64, .same = 64},     64, -1},
    };
    /* clang-format on */
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_lost_span span = {0};
        fcap_gap_offsets(&cases[i].gap, &span);
        assert_int_equal(span.kind, cases[i].gap.kind);
        assert_int_equal(span.first, cases[i].first);
        assert_int_equal(span.last, cases[i].last);
        assert_int_equal(span.next, cases[i].gap.next);
    }
}

static int64_t add(struct fcap_gaps *gaps, int64_t since_ms)
{
    return fcap_gaps_add(gaps, &(struct fcap_lost_span){.next = since_ms, .since_ms = since_ms});
}

/* Of too many the one goes that windows pass first, whenever it came. */
static void test_bounded(void **state)
{
    static const int64_t kept[] = {70, 60, 80, 90};
    struct fcap_gaps gaps = {0};
    (void)state;
    assert_true(add(&gaps, 70) == FCAP_TIME_NONE);
    assert_true(add(&gaps, 50) == FCAP_TIME_NONE);
    assert_true(add(&gaps, 60) == FCAP_TIME_NONE);
    assert_true(add(&gaps, 80) == FCAP_TIME_NONE);
    assert_true(add(&gaps, 90) == 50);
    assert_int_equal(gaps.count, FCAP_GAPS_MAX);
    for (size_t i = 0; i < FCAP_GAPS_MAX; i++) {
        assert_int_equal(gaps.spans[i].next, kept[i]);
    }
}

static void test_forgotten_when_passed(void **state)
{
    struct fcap_gaps gaps = {0};
    (void)state;
    (void)add(&gaps, 50);
    (void)add(&gaps, 70);
    (void)add(&gaps, 60);
    assert_false(fcap_gaps_forget(&gaps, 49));
    assert_true(fcap_gaps_forget(&gaps, 60));
    assert_int_equal(gaps.count, 1);
    assert_int_equal(gaps.spans[0].since_ms, 70);
    assert_false(fcap_gaps_forget(&gaps, 69));
    assert_true(fcap_gaps_forget(&gaps, 70));
    assert_int_equal(gaps.count, 0);
    assert_false(fcap_gaps_forget(&gaps, INT64_MAX));
}

static void test_bytes(void **state)
{
    struct fcap_gaps gaps = {0};
    struct fcap_gaps again;
    struct fcap_buffer buffer = {0};
    (void)state;
    (void)fcap_gaps_add(&gaps, &one);
    fcap_gaps_encode(&gaps, &buffer);
    golden_check(fcap_buffer_bytes(&buffer), OFFSETS " " TIMES);
    golden_documented(OFFSETS);
    golden_documented(TIMES);
    for (size_t i = 1; i < FCAP_GAPS_MAX; i++) {
        struct fcap_lost_span span = one;
        span.kind = (enum fcap_gap_kind)i;
        span.last = -1;
        span.to_ms = -1;
        (void)fcap_gaps_add(&gaps, &span);
    }
    fcap_buffer_clear(&buffer);
    fcap_gaps_encode(&gaps, &buffer);
    assert_int_equal(fcap_gaps_decode(fcap_buffer_bytes(&buffer), &again), FCAP_OK);
    assert_int_equal(again.count, FCAP_GAPS_MAX);
    for (size_t i = 0; i < FCAP_GAPS_MAX; i++) {
        assert_int_equal(again.spans[i].kind, i);
        assert_int_equal(again.spans[i].last, gaps.spans[i].last);
        assert_int_equal(again.spans[i].to_ms, gaps.spans[i].to_ms);
        assert_int_equal(again.spans[i].since_ms, gaps.spans[i].since_ms);
    }
    for (size_t size = 0; size < buffer.size; size++) {
        uint8_t *copy = golden_copy(fcap_buffer_bytes(&buffer), size);
        assert_int_equal(fcap_gaps_decode((struct fcap_bytes){copy, size}, &again),
                         size > 0 && (size - 1) % 57 == 0 ? FCAP_OK : FCAP_CORRUPT);
        free(copy);
    }
    size_t size = buffer.size;
    uint8_t *first = golden_copy(fcap_buffer_bytes(&buffer), 58);
    fcap_buffer_put(&buffer, first + 1, 57); /* One too many, */
    free(first);
    assert_int_equal(fcap_gaps_decode(fcap_buffer_bytes(&buffer), &again), FCAP_CORRUPT);
    buffer.size = size;
    buffer.data[1] = FCAP_GAP_KIND_COUNT; /* a kind that nobody knows yet, */
    assert_int_equal(fcap_gaps_decode(fcap_buffer_bytes(&buffer), &again), FCAP_FORMAT);
    buffer.data[0] = 2; /* and another version. */
    assert_int_equal(fcap_gaps_decode(fcap_buffer_bytes(&buffer), &again), FCAP_FORMAT);
    fcap_buffer_done(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),   cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_bounded), cmocka_unit_test(test_forgotten_when_passed),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
