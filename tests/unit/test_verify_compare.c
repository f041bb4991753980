/* What `rebuild --verify` calls a difference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "commands/verify_compare.h"

#define T_MS    1700000000000LL
#define PXAT_MS (T_MS + 1000)

static const char wanted_text[] =
    "{\"v\":1,\"as_of\":1700000000000,\"counts\":{\"a\":1,\"b,\\\"}\":22,\"c\":3}}";

/* Redis holds this text; NULL: nothing. */
static enum fcap_difference look(const char *text, int64_t pxat_ms, int64_t redis_ms)
{
    int64_t as_of_ms;
    struct fcap_values_window wanted = {.value = fcap_bytes_of(wanted_text),
                                        .expire_at_ms = PXAT_MS};
    struct fcap_redis_seen seen = {.is_there = text != NULL,
                                   .value = text == NULL ? FCAP_BYTES_NONE : fcap_bytes_of(text),
                                   .expire_at_min_ms = pxat_ms,
                                   .expire_at_max_ms = pxat_ms};
    return fcap_difference_find(&wanted, T_MS, &seen, redis_ms, &as_of_ms);
}

static void test_values(void **unused)
{
    static const struct {
        const char *text;
        enum fcap_difference difference;
    } cases[] = {
        {wanted_text, FCAP_DIFFERENCE_NONE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1,\"b,\\\"}\":22,\"c\":3}}",
         FCAP_DIFFERENCE_NONE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"c\":3,\"b,\\\"}\":22,\"a\":1}}",
         FCAP_DIFFERENCE_NONE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"c\":3,\"b,\\\"}\":22,\"a\":2}}",
         FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1,\"b,\\\"}\":22}}", FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1,\"a\":1,\"b,\\\"}\":22,\"c\":3}}",
         FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1,\"b,\\\"}\":22,\"c\":3},\"partial\":true}",
         FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{}}", FCAP_DIFFERENCE_VALUE},
        {"{\"v\":2,\"as_of\":17,\"counts\":{\"a\":1,\"b,\\\"}\":22,\"c\":3}}",
         FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":,\"counts\":{\"a\":1,\"b,\\\"}\":22,\"c\":3}}", FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1,\"b,\\\"}\":22,\"c\":}}",
         FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\":1", FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a", FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":17,\"counts\":{\"a\\", FCAP_DIFFERENCE_VALUE},
        {"nonsense", FCAP_DIFFERENCE_VALUE},
        {"", FCAP_DIFFERENCE_VALUE},
        {"{\"v\":1,\"as_of\":1700000000001,\"counts\":{\"a\":1,\"b,\\\"}\":22,\"c\":3}}",
         FCAP_DIFFERENCE_LATER},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum fcap_difference found = look(cases[i].text, PXAT_MS, T_MS);
        if (found != cases[i].difference) {
            fail_msg("%s: %s", cases[i].text, fcap_difference_text(found));
        }
    }
}

static void test_expiry_and_absence(void **unused)
{
    struct fcap_values_window none = {.key = fcap_bytes_of("k")};
    struct fcap_redis_seen seen = {.is_there = true, .is_other = true};
    struct fcap_values_window wanted = {.value = fcap_bytes_of(wanted_text),
                                        .expire_at_ms = PXAT_MS};
    int64_t as_of_ms;
    (void)unused;
    assert_int_equal(look(wanted_text, PXAT_MS - 1, T_MS), FCAP_DIFFERENCE_EXPIRY);
    assert_int_equal(look(wanted_text, PXAT_MS + 1, T_MS), FCAP_DIFFERENCE_EXPIRY);
    assert_int_equal(look(wanted_text, FCAP_REDIS_FOREVER, T_MS), FCAP_DIFFERENCE_EXPIRY);
    assert_int_equal(look(NULL, 0, PXAT_MS), FCAP_DIFFERENCE_ABSENT);
    assert_int_equal(look(NULL, 0, PXAT_MS + 1), FCAP_DIFFERENCE_NONE); /* Gone by itself. */
    assert_int_equal(fcap_difference_find(&wanted, T_MS, &seen, T_MS, &as_of_ms),
                     FCAP_DIFFERENCE_TYPE);
    assert_int_equal(fcap_difference_find(&none, T_MS, &seen, T_MS, &as_of_ms),
                     FCAP_DIFFERENCE_UNEXPECTED);
    seen = (struct fcap_redis_seen){0};
    assert_int_equal(fcap_difference_find(&none, T_MS, &seen, T_MS, &as_of_ms),
                     FCAP_DIFFERENCE_NONE);
    /* An older server tells the expiry nearly. */
    seen = (struct fcap_redis_seen){.is_there = true,
                                    .value = fcap_bytes_of(wanted_text),
                                    .expire_at_min_ms = PXAT_MS - 2,
                                    .expire_at_max_ms = PXAT_MS};
    assert_int_equal(fcap_difference_find(&wanted, T_MS, &seen, T_MS, &as_of_ms),
                     FCAP_DIFFERENCE_NONE);
}

static void test_what_is_wanted_is_the_same_at_another_time(void **unused)
{
    struct fcap_values_window first = {
        .key = fcap_bytes_of("k"), .value = fcap_bytes_of(wanted_text), .expire_at_ms = PXAT_MS};
    struct fcap_values_window second = first;
    struct fcap_buffer a = {0};
    struct fcap_buffer b = {0};
    (void)unused;
    second.value = fcap_bytes_of(
        "{\"v\":1,\"as_of\":1700000000999,\"counts\":{\"a\":1,\"b,\\\"}\":22,\"c\":3}}");
    fcap_difference_put_wanted(&first, &a);
    fcap_difference_put_wanted(&second, &b);
    assert_true(fcap_bytes_equal(fcap_buffer_bytes(&a), fcap_buffer_bytes(&b)));
    second.expire_at_ms++;
    fcap_buffer_clear(&b);
    fcap_difference_put_wanted(&second, &b);
    assert_false(fcap_bytes_equal(fcap_buffer_bytes(&a), fcap_buffer_bytes(&b)));
    fcap_buffer_done(&a);
    fcap_buffer_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_expiry_and_absence),
        cmocka_unit_test(test_what_is_wanted_is_the_same_at_another_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
