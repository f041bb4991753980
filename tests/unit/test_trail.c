/* The trail: which points stay, what is forgotten, and its bytes. */
#include "fcap/trail.h"

#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define ONE "01 00 00 00 00 00 00 00 04 00 00 01 8b cf e5 68 00 06 e8 41 7d 0f e6 61 3f"

static bool add(struct fcap_trail *trail, int64_t offset)
{
    return fcap_trail_add(trail, &(struct fcap_log_mark){offset, offset * 10, (uint64_t)offset});
}

static void test_rises(void **state)
{
    struct fcap_trail trail = {0};
    (void)state;
    assert_false(add(&trail, 0));
    assert_true(add(&trail, 5));
    assert_false(add(&trail, 5));
    assert_false(add(&trail, 4));
    assert_true(add(&trail, 6));
    assert_int_equal(trail.count, 2);
}

/* However long the log and however even or uneven the commits: for every length that a shorter log
 * can have, some point lies within half of what is missing behind it, or there is none at all. */
static void test_reaches_back(void **state)
{
    (void)state;
    for (int64_t step = 1; step < 100000; step = step * 7 + 3) {
        struct fcap_trail trail = {0};
        int64_t end = 0;
        for (int i = 0; i < 5000; i++) {
            end += i % 13 == 0 ? step * 9 : step;
            assert_true(add(&trail, end));
        }
        assert_int_equal(trail.count, FCAP_TRAIL_POINTS);
        assert_int_equal(trail.points[0].offset, step * 9);
        assert_int_equal(trail.points[trail.count - 1].offset, end);
        for (size_t i = 1; i < trail.count; i++) {
            const struct fcap_log_mark *low = &trail.points[i - 1];
            const struct fcap_log_mark *high = &trail.points[i];
            assert_true(low->offset < high->offset);
            assert_int_equal(high->timestamp_ms, high->offset * 10);
            /* A log cut right below the high point loses no more knowledge than this. */
            int64_t missing = end - high->offset + 10 * step;
            assert_true(high->offset - low->offset <= 4 * missing);
        }
    }
}

static void test_cut(void **state)
{
    struct fcap_trail trail = {0};
    (void)state;
    for (int64_t offset = 10; offset <= 50; offset += 10) {
        (void)add(&trail, offset);
    }
    fcap_trail_cut(&trail, 30);
    assert_int_equal(trail.count, 3);
    assert_int_equal(trail.points[2].offset, 30);
    fcap_trail_cut(&trail, 29);
    assert_int_equal(trail.count, 2);
    fcap_trail_cut(&trail, 0);
    assert_int_equal(trail.count, 0);
}

static void test_start(void **state)
{
    struct fcap_trail trail = {0};
    struct fcap_start start;
    (void)state;
    for (int64_t offset = 10; offset <= 30; offset += 10) {
        (void)add(&trail, offset);
    }
    fcap_trail_start(&trail, 35, &(struct fcap_log_mark){35, 1, 2}, &start);
    assert_int_equal(start.kind, FCAP_START_OFFSET);
    assert_int_equal(start.offset, 35);
    assert_int_equal(start.mark_count, 4);
    assert_int_equal(start.marks[0].offset, 35);
    assert_int_equal(start.marks[1].offset, 30);
    assert_int_equal(start.marks[3].offset, 10);
    fcap_trail_start(&trail, 30, &(struct fcap_log_mark){30, 300, 30}, &start);
    assert_int_equal(start.mark_count, 3); /* Not the same place twice. */
    fcap_trail_start(&trail, 40, &(struct fcap_log_mark){0}, &start);
    assert_int_equal(start.mark_count, 3);
    assert_int_equal(start.marks[0].offset, 30);
}

static void test_bytes(void **state)
{
    struct fcap_trail trail = {0};
    struct fcap_trail again;
    struct fcap_buffer buffer = {0};
    (void)state;
    assert_true(
        fcap_trail_add(&trail, &(struct fcap_log_mark){4, 1700000000000, 0x06e8417d0fe6613f}));
    fcap_trail_encode(&trail, &buffer);
    golden_check(fcap_buffer_bytes(&buffer), ONE);
    golden_documented(ONE);
    for (int64_t offset = 5; offset < 40; offset++) {
        (void)add(&trail, offset);
    }
    fcap_buffer_clear(&buffer);
    fcap_trail_encode(&trail, &buffer);
    assert_int_equal(fcap_trail_decode(fcap_buffer_bytes(&buffer), &again), FCAP_OK);
    assert_int_equal(again.count, FCAP_TRAIL_POINTS);
    assert_memory_equal(again.points, trail.points, sizeof trail.points);
    for (size_t size = 0; size < buffer.size; size++) {
        uint8_t *copy = golden_copy(fcap_buffer_bytes(&buffer), size);
        assert_int_equal(fcap_trail_decode((struct fcap_bytes){copy, size}, &again),
                         size > 0 && (size - 1) % 24 == 0 ? FCAP_OK : FCAP_CORRUPT);
        free(copy);
    }
    fcap_buffer_put_be64(&buffer, 1); /* A 17th point, */
    fcap_buffer_put_be64(&buffer, 1);
    fcap_buffer_put_be64(&buffer, 1);
    assert_int_equal(fcap_trail_decode(fcap_buffer_bytes(&buffer), &again), FCAP_CORRUPT);
    buffer.data[0] = 2; /* and another version. */
    assert_int_equal(fcap_trail_decode(fcap_buffer_bytes(&buffer), &again), FCAP_FORMAT);
    fcap_buffer_done(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rises), cmocka_unit_test(test_reaches_back),
        cmocka_unit_test(test_cut),   cmocka_unit_test(test_start),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
