/* The Redis contract's bytes: keys by template, values as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/value.h"

#include "unit/golden.h"

enum { WINDOWS = 2 };

/* --- keys ---------------------------------------------------------------------------------- */

static void check_build(const char *pattern, struct fcap_bytes user, const char *window,
                        const char *wanted)
{
    struct fcap_key_template template;
    struct fcap_error error = {""};
    struct fcap_buffer key = {0};
    assert_int_equal(fcap_key_template_init(&template, pattern, "days", &error), FCAP_OK);
    fcap_key_build(&template, user, window, &key);
    if (!fcap_bytes_equal(fcap_buffer_bytes(&key), fcap_bytes_of(wanted))) {
        fail_msg("%.*s is not %s", (int)key.size, (const char *)key.data, wanted);
    }
    fcap_buffer_done(&key);
    fcap_key_template_done(&template);
}

static void test_keys(void **state)
{
    /* clang-format off */
    static const struct {
        const char *pattern;
        const char *user;
        const char *wanted;
    } rows[] = {
        {"fc:{%u}:%w",     "u1",         "fc:{u1}:1d"},
        {"fc:%p:{%u}:%w",  "u1",         "fc:days:{u1}:1d"},
        {"%w/%u",          "u1",         "1d/u1"},
        {"%%%u%%%w%%",     "u1",         "%u1%1d%"},
        {"fc:{%u}:%w",     "{",          "fc:{%7B}:1d"},
        {"fc:{%u}:%w",     "}",          "fc:{%7D}:1d"},
        {"fc:{%u}:%w",     "%",          "fc:{%25}:1d"},
        {"fc:{%u}:%w",     "%7B",        "fc:{%257B}:1d"},
        {"fc:{%u}:%w",     "{}",         "fc:{%7B%7D}:1d"},
        {"fc:{%u}:%w",     "a}b{c",      "fc:{a%7Db%7Bc}:1d"},
        {"fc:{%u}:%w",     "a:b c\"\\\n", "fc:{a:b c\"\\\n}:1d"}, /* nothing else is encoded */
        {"fc:{%u}:%w",     "\xC3\xA9\xF0\x9F\x98\x80", "fc:{\xC3\xA9\xF0\x9F\x98\x80}:1d"},
    };
    /* clang-format on */
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_build(rows[i].pattern, fcap_bytes_of(rows[i].user), "1d", rows[i].wanted);
    }
}

static void test_key_errors(void **state)
{
    static const struct {
        const char *pattern;
        const char *text;
    } rows[] = {
        {"", "%u must stand in it"},
        {"fc:%w", "%u must stand in it"},
        {"fc:{%u}", "%w must stand in it"},
        {"fc:%%u:%w", "%u must stand in it"},
        {"fc:%x:%u:%w", "'%x' is unknown"},
        {"fc:%u:%w:%", "'% ' is unknown"},
        {"%u%w%u%w%u%w%u%w%u%w%u%w%u%w%u%w%u", "more than 16 parts"},
        {"%u1%u2%u3%u4%u5%u6%u7%u8%w", "more than 16 parts"},
        {"%u%w%u%w%u%w%u%w%u%w%u%w%u%w%u%wx", "more than 16 parts"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fcap_key_template template;
        struct fcap_error error = {""};
        assert_int_equal(fcap_key_template_init(&template, rows[i].pattern, "days", &error),
                         FCAP_CONFIG);
        if (strstr(error.text, rows[i].text) == NULL) {
            fail_msg("%s: %s", rows[i].pattern, error.text);
        }
        fcap_key_template_done(&template);
    }
}

/* --- values -------------------------------------------------------------------------------- */

struct fixture {
    struct fcap_ads ads;
    struct fcap_user *user;
};

static struct fixture fixture;

static int set_up(void **state)
{
    fixture = (struct fixture){.user = calloc(1, sizeof *fixture.user)};
    assert_non_null(fixture.user);
    fcap_ads_init(&fixture.ads, 0);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fcap_ads_done(&fixture.ads);
    fcap_user_clear(fixture.user);
    free(fixture.user);
    return 0;
}

static void count(uint32_t number, const char *id, uint32_t first, uint32_t second)
{
    (void)fcap_ads_add(&fixture.ads, number, fcap_bytes_of(id), 0);
    uint32_t *row = fcap_user_row_add(fixture.user, WINDOWS, number);
    row[1] = first;
    row[2] = second;
}

/* The value of a window in a buffer that holds something already. */
static void check_value(size_t window, bool partial, size_t bytes_max, bool any, bool cut,
                        const char *wanted)
{
    struct fcap_buffer buffer = {0};
    bool is_cut;
    fcap_buffer_put_text(&buffer, "before");
    assert_int_equal(fcap_value_build(fixture.user, WINDOWS, window, &fixture.ads, 1700000001000,
                                      partial, bytes_max, &buffer, &is_cut),
                     any);
    assert_int_equal(is_cut, cut);
    assert_memory_equal(buffer.data, "before", 6);
    fcap_buffer_put_u8(&buffer, 0);
    assert_string_equal((const char *)buffer.data + 6, wanted);
    fcap_buffer_done(&buffer);
}

#define HEAD "{\"v\":1,\"as_of\":1700000001000,\"counts\":{"

static void test_values(void **state)
{
    (void)state;
    check_value(0, false, 1000, false, false, HEAD "}}");
    check_value(0, true, 1000, false, false, HEAD "},\"partial\":true}");
    count(3, "a1", 3, 0);
    count(5, "a2", 1, UINT32_MAX);
    count(4, "7", 10, 0);
    check_value(0, false, 1000, true, false, HEAD "\"a1\":3,\"7\":10,\"a2\":1}}");
    check_value(1, false, 1000, true, false, HEAD "\"a2\":4294967295}}");
    check_value(1, true, 1000, true, false, HEAD "\"a2\":4294967295},\"partial\":true}");
}

/* The example of docs/DATA.md. */
static void test_documented(void **state)
{
    static const char example[] =
        "{\"v\":1,\"as_of\":1700000001000,\"counts\":{\"a1\":3,\"a2\":1}}";
    (void)state;
    count(0, "a1", 3, 0);
    count(1, "a2", 1, 0);
    check_value(0, false, 1000, true, false, example);
    golden_documented(example);
}

static void test_escapes(void **state)
{
    (void)state;
    count(0, "q\"b\\s/", 1, 0);
    count(1, "\x01\x1f\n\x7f", 2, 0);
    count(2, "\xC3\xA9\xF0\x9F\x98\x80", 3, 0);
    count(3, "partial", 4, 0);
    check_value(0, false, 1000, true, false,
                HEAD "\"q\\\"b\\\\s/\":1,\"\\u0001\\u001f\\u000a\x7f\":2,"
                     "\"\xC3\xA9\xF0\x9F\x98\x80\":3,\"partial\":4}}");
}

/* Ids on both sides of what fits the short text (31 bytes with quotes and colon). */
static void test_long_ids(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 300; size++) {
        struct fcap_buffer wanted = {0};
        char id[301] = "";
        memset(id, 'a' + (int)(size % 26), size);
        count(size, id, 1, size * 1000003);
        uint32_t *row = fcap_user_row(fixture.user, WINDOWS, size);
        fcap_buffer_put_text(&wanted, HEAD "\"");
        fcap_buffer_put_text(&wanted, id);
        fcap_buffer_put_text(&wanted, "\":");
        fcap_buffer_put_decimal(&wanted, size * 1000003);
        fcap_buffer_put_text(&wanted, "}}");
        fcap_buffer_put_u8(&wanted, 0);
        check_value(1, false, 1000, true, false, (const char *)wanted.data);
        memset(row + 1, 0, 2 * sizeof *row);
        fcap_user_row_trim(fixture.user, WINDOWS, row);
        fcap_buffer_done(&wanted);
    }
}

/* Every limit from nothing to room for all: never a byte more, and what is cut keeps the highest
 * counts, the earlier ad first among equals. */
static void test_cut(void **state)
{
    static const uint32_t counts[] = {5, 1, 9, 5, 100, 2};
    static const char *const by_rank[] = {"\"ad-4\":100", "\"ad-2\":9", "\"ad-0\":5",
                                          "\"ad-3\":5",   "\"ad-5\":2", "\"ad-1\":1"};
    struct fcap_buffer full = {0};
    bool cut;
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        char id[8];
        (void)snprintf(id, sizeof id, "ad-%u", i); /* Fits. */
        count(i, id, counts[i], 0);
    }
    assert_true(fcap_value_build(fixture.user, WINDOWS, 0, &fixture.ads, 1700000001000, false, 1000,
                                 &full, &cut));
    assert_false(cut);
    size_t least = strlen(HEAD "},\"partial\":true}");
    size_t kept_before = 0;
    for (size_t limit = least; limit <= full.size + 20; limit++) {
        struct fcap_buffer value = {0};
        size_t kept = 0;
        assert_true(fcap_value_build(fixture.user, WINDOWS, 0, &fixture.ads, 1700000001000, false,
                                     limit, &value, &cut));
        assert_true(value.size <= limit);
        assert_int_equal(cut, limit < full.size); /* What fits is not cut. */
        fcap_buffer_put_u8(&value, 0);
        const char *text = (const char *)value.data;
        assert_int_equal(strstr(text, "\"partial\":true}") != NULL, cut);
        while (kept < 6 && strstr(text, by_rank[kept]) != NULL) {
            kept++;
        }
        for (size_t i = kept; i < 6; i++) {
            assert_null(strstr(text, by_rank[i]));
        }
        assert_true(kept >= kept_before); /* More room, no less shown. */
        assert_true(kept == 6 || value.size - 1 + strlen(by_rank[kept]) + 1 > limit - (kept == 0));
        kept_before = kept;
        fcap_buffer_done(&value);
    }
    assert_int_equal(kept_before, 6);
    fcap_buffer_done(&full);
}

static void test_a_key_tells_whose_it_is(void **state)
{
    static const char *const ids[] = {"u1", "a{b}", "100%", "x:1h", "{", "\xc3\xa9", "a\nb"};
    static const char *const foreign[] = {
        "fc:{u1}:2h",  "fc:{}:1h",     "fc:{a%zz}:1h", "fc:{a%7}:1h",
        "fc:{a}b}:1h", "fc:{a%41}:1h", "other",        ""};
    struct fcap_key_template template;
    struct fcap_buffer key = {0};
    struct fcap_buffer user = {0};
    (void)state;
    assert_int_equal(fcap_key_template_init(&template, "fc:{%u}:%w", "p", NULL), FCAP_OK);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        fcap_buffer_clear(&key);
        fcap_key_build(&template, fcap_bytes_of(ids[i]), "1h", &key);
        assert_true(fcap_key_parse(&template, fcap_buffer_bytes(&key), "1h", &user));
        assert_true(fcap_bytes_equal(fcap_buffer_bytes(&user), fcap_bytes_of(ids[i])));
        assert_false(fcap_key_parse(&template, fcap_buffer_bytes(&key), "h", &user));
    }
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        assert_false(fcap_key_parse(&template, fcap_bytes_of(foreign[i]), "1h", &user));
    }
    fcap_key_template_done(&template);
    assert_int_equal(fcap_key_template_init(&template, "%p*[%w]?%u", "p", NULL), FCAP_OK);
    fcap_buffer_clear(&key);
    fcap_key_match(&template, &key);
    assert_true(fcap_bytes_equal(fcap_buffer_bytes(&key), fcap_bytes_of("p\\*\\[*\\]\\?*")));
    fcap_key_template_done(&template);
    fcap_buffer_done(&key);
    fcap_buffer_done(&user);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_a_key_tells_whose_it_is),
        cmocka_unit_test(test_key_errors),
        cmocka_unit_test_setup_teardown(test_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_documented, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_escapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_ids, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cut, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
