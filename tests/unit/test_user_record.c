/* The stored user record, byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/user.h"

#include "unit/golden.h"

#define NONE FCAP_TIME_NONE

struct row {
    uint32_t ad;
    uint32_t counts[FCAP_WINDOWS_MAX];
};

struct example {
    const char *hex;
    struct fcap_window_numbers windows;
    uint64_t stamp;
    int64_t newest_ms;
    uint64_t erased_commit;
    int64_t erased_until_ms;
    int64_t partial_newest_ms;
    size_t row_count;
    struct row rows[4];
    bool documented;
};

#define THREE                                                                                      \
    {                                                                                              \
        3,                                                                                         \
        {                                                                                          \
            0, 1, 2                                                                                \
        }                                                                                          \
    }

/* clang-format off */
static const struct example examples[] = {
    /* version 1, stamp 5, newest 1000, windows 0 to 2, ad 7: 1, 2 and 3 */
    {"10 05 e9 07 00 07 0e 39", THREE, 5, 1000, 0, NONE, NONE, 1, {{7, {1, 2, 3}}}, true},
    /* wide: a count above 3; then a step of 3 to ad 10, packed */
    {"10 05 e9 07 00 07 0f 04 00 01 06 03", THREE, 5, 1000, 0, NONE, NONE,
     2, {{7, {4, 0, 1}}, {10, {3, 0, 0}}}, true},
    /* nothing left but an erase mark: commit 4, until 999 */
    {"11 05 00 00 07 04 e8 07", THREE, 5, NONE, 4, 999, NONE, 0, {{0}}, true},
    /* partial: the newest event left out at 2000 */
    {"12 05 e9 07 00 07 d1 0f 00 01", THREE, 5, 1000, 0, NONE, 2000, 1, {{0, {1, 0, 0}}}, true},
    {"13 05 e9 07 00 07 04 e8 07 d1 0f 00 01", THREE, 5, 1000, 4, 999, 2000,
     1, {{0, {1, 0, 0}}}, false},
    /* every field at its edge */
    {"10 ff ff ff ff ff ff ff ff ff 01 ff ff ff ff ff ff ff ff 3f 00 01 fd ff ff ff 1f ff ff ff ff 0f",
     {1, {0}}, UINT64_MAX, ((int64_t)1 << 62) - 2, 0, NONE, NONE,
     1, {{UINT32_MAX - 1, {UINT32_MAX}}}, false},
    /* gaps between the numbers: 3, 5 and 40 */
    {"10 01 01 03 85 80 80 80 80 04 02 24", {3, {3, 5, 40}}, 1, 0, 0, NONE, NONE,
     1, {{1, {0, 1, 2}}}, true},
    /* configured as 5, 3: stored in order of number */
    {"10 01 01 03 05 02 06", {2, {5, 3}}, 1, 0, 0, NONE, NONE, 1, {{1, {1, 2}}}, false},
    /* the largest base and the widest span */
    {"10 01 01 bf ff 03 81 80 80 80 80 80 80 80 80 01 02 05", {2, {65471, 65534}}, 1, 0, 0, NONE,
     NONE, 1, {{1, {1, 1}}}, false},
    /* 3 and 4: the border between packed and wide */
    {"10 01 01 00 01 02 03 03 04", {1, {0}}, 1, 0, 0, NONE, NONE, 2, {{1, {3}}, {2, {4}}}, false},
};
/* clang-format on */

static struct fcap_user *make(const struct example *example)
{
    struct fcap_user *user = calloc(1, sizeof *user);
    assert_non_null(user);
    user->newest_ms = example->newest_ms;
    user->erased_commit = example->erased_commit;
    user->erased_until_ms = example->erased_until_ms;
    user->partial_newest_ms = example->partial_newest_ms;
    for (size_t i = 0; i < example->row_count; i++) {
        uint32_t *row = fcap_user_row_add(user, example->windows.count, example->rows[i].ad);
        memcpy(row + 1, example->rows[i].counts, example->windows.count * sizeof *row);
    }
    return user;
}

static void release(struct fcap_user *user)
{
    fcap_user_clear(user);
    free(user);
}

static void check_same(const struct fcap_user *user, const struct example *example)
{
    assert_int_equal(user->stamp, example->stamp);
    assert_int_equal(user->newest_ms, example->newest_ms);
    assert_int_equal(user->erased_until_ms, example->erased_until_ms);
    assert_int_equal(user->erased_commit, example->erased_commit);
    assert_int_equal(user->partial_newest_ms, example->partial_newest_ms);
    assert_int_equal(user->row_count, example->row_count);
    size_t stride = 1 + example->windows.count;
    for (size_t i = 0; i < example->row_count; i++) {
        assert_int_equal(user->rows[i * stride], example->rows[i].ad);
        assert_memory_equal(&user->rows[i * stride + 1], example->rows[i].counts,
                            example->windows.count * sizeof(uint32_t));
    }
}

static enum fcap_status decode(const struct fcap_window_numbers *windows, struct fcap_bytes bytes,
                               struct fcap_user *user)
{
    uint8_t *copy = golden_copy(bytes, bytes.size);
    enum fcap_status status =
        fcap_user_decode(user, windows, (struct fcap_bytes){copy, bytes.size});
    free(copy);
    return status;
}

static void test_golden(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        const struct example *example = &examples[i];
        struct fcap_buffer buffer = {0};
        struct fcap_user *user = make(example);
        struct fcap_user *back = calloc(1, sizeof *back);
        fcap_user_encode(user, &example->windows, example->stamp, &buffer);
        golden_check(fcap_buffer_bytes(&buffer), example->hex);
        if (example->documented) {
            golden_documented(example->hex);
        }
        assert_int_equal(decode(&example->windows, fcap_buffer_bytes(&buffer), back), FCAP_OK);
        check_same(back, example);
        release(user);
        release(back);
        fcap_buffer_done(&buffer);
    }
}

/* Cut anywhere: damaged, or whole rows from the start. */
static void test_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        const struct example *example = &examples[i];
        struct fcap_buffer buffer = {0};
        size_t good = 0;
        golden_put(&buffer, example->hex);
        for (size_t size = 0; size < buffer.size; size++) {
            struct fcap_user *back = calloc(1, sizeof *back);
            enum fcap_status status =
                decode(&example->windows, (struct fcap_bytes){buffer.data, size}, back);
            assert_true(status == FCAP_OK || status == FCAP_CORRUPT);
            good += status == FCAP_OK;
            if (status == FCAP_OK) {
                assert_true(back->row_count < example->row_count);
                assert_int_equal(back->newest_ms, example->newest_ms);
            }
            release(back);
        }
        assert_int_equal(good, example->row_count); /* ahead of each row */
        fcap_buffer_done(&buffer);
    }
}

static void test_damaged(void **state)
{
    /* clang-format off */
    static const struct {
        const char *hex;
        enum fcap_status status;
    } rows[] = {
        {"",                                     FCAP_CORRUPT},
        {"20 05 e9 07 00 07 0e 39",              FCAP_FORMAT},  /* a newer version */
        {"00 05 e9 07 00 07 0e 39",              FCAP_FORMAT},
        {"14 05 e9 07 00 07 0e 39",              FCAP_FORMAT},  /* kept for further dimensions */
        {"18 05 e9 07 00 07 0e 39",              FCAP_FORMAT},  /* kept for weights */
        {"10 05 e9 07 00 07",                    FCAP_OK},
        {"10 05 e9 07 00 00 0e 39",              FCAP_CORRUPT}, /* no windows */
        {"10 05 e9 07 80 80 04 07 0e 39",        FCAP_CORRUPT}, /* window number beyond 16 bits */
        {"10 05 e9 07 00 07 0e 39 00 39",        FCAP_CORRUPT}, /* the same ad again */
        {"10 05 e9 07 00 07 fe ff ff ff 1f 39",  FCAP_CORRUPT}, /* the void ad */
        {"10 05 e9 07 00 07 80 80 80 80 40 39",  FCAP_CORRUPT}, /* a step beyond 32 bits */
        {"10 05 e9 07 00 07 fc ff ff ff 1f 39 02 39", FCAP_CORRUPT}, /* a sum beyond */
        {"10 05 e9 07 00 07 0f 80 80 80 80 10 00 01", FCAP_CORRUPT}, /* a count beyond 32 bits */
        {"10 05 ff ff ff ff ff ff ff ff ff 01 00 07 0e 39", FCAP_CORRUPT}, /* a time beyond */
        {"11 05 e9 07 00 07 04 ff ff ff ff ff ff ff ff ff 01", FCAP_CORRUPT},
        {"12 05 e9 07 00 07 ff ff ff ff ff ff ff ff ff 01", FCAP_CORRUPT},
    };
    /* clang-format on */
    const struct fcap_window_numbers windows = THREE;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fcap_buffer bytes = {0};
        struct fcap_user *back = calloc(1, sizeof *back);
        golden_put(&bytes, rows[i].hex);
        enum fcap_status status = decode(&windows, fcap_buffer_bytes(&bytes), back);
        if (status != rows[i].status) {
            fail_msg("%s: %s", rows[i].hex, fcap_status_text(status));
        }
        release(back);
        fcap_buffer_done(&bytes);
    }
}

/* A window that went leaves columns that nobody reads; one that came has none yet. */
static void test_other_windows(void **state)
{
    const struct fcap_window_numbers now = {3, {1, 0, 9}};
    struct fcap_buffer bytes = {0};
    struct fcap_user *back = calloc(1, sizeof *back);
    (void)state;
    golden_put(&bytes, "10 05 e9 07 00 07 0e 39"); /* ad 7: 1, 2, 3 */
    golden_put(&bytes, "04 10");                   /* ad 9: only number 2 counts */
    golden_put(&bytes, "03 00 05 09");             /* ad 10: wide */
    assert_int_equal(decode(&now, fcap_buffer_bytes(&bytes), back), FCAP_OK);
    assert_int_equal(back->row_count, 2);
    static const uint32_t wanted[] = {7, 2, 1, 0, 10, 5, 0, 0};
    assert_memory_equal(back->rows, wanted, sizeof wanted);
    release(back);
    fcap_buffer_done(&bytes);
}

/* 1 to 16 windows, packed and wide: two bits a count, four counts a byte. */
static void test_window_counts(void **state)
{
    static const char *const tails[] = {"01",          "09",          "39",          "39",
                                        "39 01",       "39 09",       "39 39",       "39 39",
                                        "39 39 01",    "39 39 09",    "39 39 39",    "39 39 39",
                                        "39 39 39 01", "39 39 39 09", "39 39 39 39", "39 39 39 39"};
    (void)state;
    for (size_t count = 1; count <= FCAP_WINDOWS_MAX; count++) {
        struct example example = {.windows = {count, {0}},
                                  .stamp = 1,
                                  .erased_until_ms = NONE,
                                  .partial_newest_ms = NONE,
                                  .row_count = 2,
                                  .rows = {{3, {0}}, {4, {0}}}};
        struct fcap_buffer wanted = {0};
        struct fcap_buffer buffer = {0};
        for (size_t i = 0; i < count; i++) {
            example.windows.numbers[i] = (uint16_t)i;
            example.rows[0].counts[i] = (uint32_t)((i + 1) % 4);
            example.rows[1].counts[i] = (uint32_t)(i == 0 ? 300 : i);
        }
        golden_put(&wanted, "10 01 01 00");
        fcap_buffer_put_varint(&wanted, (1u << count) - 1);
        golden_put(&wanted, "06");
        golden_put(&wanted, tails[count - 1]);
        golden_put(&wanted, "03 ac 02");
        for (size_t i = 1; i < count; i++) {
            fcap_buffer_put_u8(&wanted, (uint8_t)i);
        }
        struct fcap_user *user = make(&example);
        struct fcap_user *back = calloc(1, sizeof *back);
        fcap_user_encode(user, &example.windows, 1, &buffer);
        assert_int_equal(buffer.size, wanted.size);
        assert_memory_equal(buffer.data, wanted.data, wanted.size);
        assert_int_equal(decode(&example.windows, fcap_buffer_bytes(&buffer), back), FCAP_OK);
        check_same(back, &example);
        release(user);
        release(back);
        fcap_buffer_done(&buffer);
        fcap_buffer_done(&wanted);
    }
}

/* --- rows ---------------------------------------------------------------------------------- */

/* Rows against an array indexed by ad, through random additions and removals. */
static void test_rows(void **state)
{
    enum { ADS = 200, WINDOWS = 2 };
    static uint32_t model[ADS][WINDOWS];
    struct fcap_user *user = calloc(1, sizeof *user);
    uint64_t random = 88172645463325252u;
    (void)state;
    memset(model, 0, sizeof model);
    for (int step = 0; step < 100000; step++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint32_t ad = (uint32_t)(random % ADS);
        size_t window = random >> 20 & 1;
        uint32_t *row = fcap_user_row(user, WINDOWS, ad);
        assert_int_equal(row != NULL, model[ad][0] + model[ad][1] > 0);
        if ((random >> 30) % 2 == 0) {
            fcap_user_row_add(user, WINDOWS, ad)[1 + window]++;
            model[ad][window]++;
        } else if (row != NULL && row[1 + window] > 0) {
            row[1 + window]--;
            model[ad][window]--;
            fcap_user_row_trim(user, WINDOWS, row);
        }
    }
    uint32_t at = 0;
    for (uint32_t ad = 0; ad < ADS; ad++) {
        if (model[ad][0] + model[ad][1] > 0) {
            assert_int_equal(user->rows[at * (1 + WINDOWS)], ad);
            assert_memory_equal(&user->rows[at * (1 + WINDOWS) + 1], model[ad], sizeof model[ad]);
            at++;
        }
    }
    assert_int_equal(user->row_count, at);
    assert_true(at > 20);
    release(user);
}

static void test_is_empty(void **state)
{
    struct fcap_user user = {.newest_ms = 50, .erased_until_ms = NONE, .partial_newest_ms = NONE};
    (void)state;
    assert_true(fcap_user_is_empty(&user, 100));
    user.erased_until_ms = 100; /* every chunk that it hides is out of reach at H = 100 */
    assert_true(fcap_user_is_empty(&user, 100));
    assert_false(fcap_user_is_empty(&user, 99));
    user.erased_until_ms = NONE;
    user.partial_newest_ms = 101;
    assert_false(fcap_user_is_empty(&user, 100));
    user.partial_newest_ms = NONE;
    fcap_user_row_add(&user, 1, 0)[1] = 1;
    assert_false(fcap_user_is_empty(&user, 100));
    fcap_user_clear(&user);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_damaged),       cmocka_unit_test(test_other_windows),
        cmocka_unit_test(test_window_counts), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
