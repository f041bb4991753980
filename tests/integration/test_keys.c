/* B28: keys made from users' ids. No two users share a key; all windows of a user lie in one slot,
 * the one that a real server computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/value.h"
#include "lab/redis_server.h"
#include "unit/config_fixture.h"
#include "lab/lab.h"

enum { LONG_BYTES = 500, KEY_BYTES = 1700 };

static char long_id[LONG_BYTES + 1];
static char long_braces[LONG_BYTES + 1];

static const char *const users[] = {
    "{",
    "}",
    "a}b{c",
    "{}",
    "%7B",
    "%",
    "a:b",
    long_id,
    long_braces,
    "\xC3\xA9t\xC3\xA9",
    "\xE6\x97\xA5\xE6\x9C\xAC",
    "\xF0\x9F\x98\x80",
    /* What would meet one of them if the encoding were sloppy. */
    "%7D",
    "%25",
    "%257B",
    "%7b",
    "}{",
    "{{",
    "}}",
    "a%7Db%7Bc",
    "a",
    "b",
    "a:b:1d",
    "1d",
    " ",
    "a}:1d",
    "{a}",
    "%7Ba%7D",
    "u",
    "%u",
    "%w",
    "\"",
    "\\",
    "a\nb",
};
enum { USERS = sizeof users / sizeof users[0], WINDOWS = 3 };

static const char *const windows[WINDOWS] = {"1m", "1d", "7-days_x"};

static struct redis_server server;

static int start_server(void **state)
{
    static char bus[8]; /* as shipped: the port + 10000, which may be no port */
    static const char *const options[] = {"--cluster-enabled", "yes", "--cluster-port", bus, NULL};
    (void)state;
    (void)snprintf(bus, sizeof bus, "%u", lab_free_port()); /* Fits. */
    memset(long_id, 'u', LONG_BYTES);
    for (size_t i = 0; i < LONG_BYTES; i++) {
        long_braces[i] = "{}%"[i % 3];
    }
    redis_server_start(&server, options);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    redis_server_stop(&server);
    return 0;
}

static void build(const char *pattern, const char *user, const char *window, char key[KEY_BYTES])
{
    struct fcap_key_template template;
    struct fcap_error error = {""};
    struct fcap_buffer buffer = {0};
    if (fcap_key_template_init(&template, pattern, "days", &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    fcap_key_build(&template, fcap_bytes_of(user), window, &buffer);
    assert_in_range(buffer.size, 1, KEY_BYTES - 1);
    memcpy(key, buffer.data, buffer.size);
    key[buffer.size] = '\0';
    fcap_buffer_done(&buffer);
    fcap_key_template_done(&template);
}

static long slot_of(const char *key)
{
    const char *answer = redis_server_ask(&server, "CLUSTER KEYSLOT %s", key);
    assert_non_null(answer);
    assert_true(answer[0] >= '0' && answer[0] <= '9');
    return strtol(answer, NULL, 10);
}

/* CRC-16/XMODEM, as the cluster specification has it; written here, so that the expected slot does
 * not come from the server that is asked. */
static long slot_by_specification(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open == NULL ? NULL : strchr(open, '}');
    const char *from = key;
    size_t size = strlen(key);
    if (close != NULL && close > open + 1) {
        from = open + 1;
        size = (size_t)(close - from);
    }
    unsigned crc = 0;
    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned)(unsigned char)from[i] << 8;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1;
        }
        crc &= 0xFFFF;
    }
    return (long)(crc % 16384);
}

static void test_no_two_share_a_key(void **state)
{
    static const char *const patterns[] = {"fc:{%u}:%w", "fc:%u:%w", "%p/%w/{%u}", "%u:%w"};
    static char keys[USERS * WINDOWS][KEY_BYTES];
    (void)state;
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        for (size_t i = 0; i < USERS * WINDOWS; i++) {
            build(patterns[p], users[i / WINDOWS], windows[i % WINDOWS], keys[i]);
            for (size_t k = 0; k < i; k++) {
                assert_string_not_equal(keys[i], keys[k]);
            }
        }
    }
}

static void test_one_slot_for_a_user(void **state)
{
    size_t distinct = 0;
    long seen[USERS];
    (void)state;
    for (size_t i = 0; i < USERS; i++) {
        char key[KEY_BYTES];
        char tag[KEY_BYTES];
        build("%u%w", users[i], "", tag);
        long slot = slot_of(tag); /* the encoded id alone: it has no braces of its own */
        bool is_new = true;
        for (size_t w = 0; w < WINDOWS; w++) {
            build("fc:{%u}:%w", users[i], windows[w], key);
            assert_int_equal(slot_of(key), slot);
            assert_int_equal(slot_by_specification(key), slot);
        }
        for (size_t k = 0; k < i; k++) {
            is_new = is_new && seen[k] != slot;
        }
        seen[i] = slot;
        distinct += is_new;
    }
    assert_true(distinct > USERS - 5); /* The users spread. */
}

/* The server takes such keys and gives each user its own value back. */
static void test_values_stay_apart(void **state)
{
    (void)state;
    redis_server_ask(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
    int64_t give_up_ms = lab_monotonic_ms() + 30000;
    char key[KEY_BYTES];
    char value[16];
    while (strcmp(redis_server_ask(&server, "SET warm 1"), "OK") != 0) {
        assert_true(lab_monotonic_ms() < give_up_ms);
        lab_pause_ms(20);
    }
    for (size_t i = 0; i < USERS; i++) {
        build("fc:{%u}:%w", users[i], windows[0], key);
        (void)snprintf(value, sizeof value, "%zu", i); /* Fits. */
        assert_string_equal(redis_server_ask(&server, "SET %s %s", key, value), "OK");
    }
    for (size_t i = 0; i < USERS; i++) {
        build("fc:{%u}:%w", users[i], windows[0], key);
        (void)snprintf(value, sizeof value, "%zu", i); /* Fits. */
        assert_string_equal(redis_server_ask(&server, "GET %s", key), value);
    }
}

/* What the two patterns do, and that the configuration's check says so. */
static void check_warning(const char *pattern, const char *text)
{
    char line[64];
    (void)snprintf(line, sizeof line, "redis: {key: '%s'}", pattern); /* Fits. */
    struct loaded loaded = load_with(line);
    char *report = printed(&loaded.report);
    assert_int_equal(loaded.status, FCAP_OK);
    if (strstr(report, text) == NULL) {
        fail_msg("%s: %s", pattern, report);
    }
    free(report);
    unload(&loaded);
}

static void test_bad_patterns(void **state)
{
    char key[KEY_BYTES];
    char other[KEY_BYTES];
    (void)state;
    build("fc:{%p}:{%u}:%w", "u1", "1d", key);
    build("fc:{%p}:{%u}:%w", "u2", "1d", other);
    assert_int_equal(slot_of(key), slot_of(other)); /* the first tag wins: one slot for all */
    check_warning("fc:{%p}:{%u}:%w", "all users fall into one slot");
    build("fc:%u:%w", "u1", "1d", key);
    build("fc:%u:%w", "u1", "1m", other);
    assert_int_not_equal(slot_of(key), slot_of(other)); /* an MGET of both would cross slots */
    check_warning("fc:%u:%w", "crosses the slots");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_two_share_a_key),
        cmocka_unit_test(test_one_slot_for_a_user),
        cmocka_unit_test(test_values_stay_apart),
        cmocka_unit_test(test_bad_patterns),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
