/* The watch of a real Redis: it misses nothing, finds what is planted, and says when it is blind.
 */
#include "lab/lab.h"
#include "lab/redis_watch.h"

#include <hiredis/hiredis.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEYS 20000

static struct redis_server redis;
static struct redis_watch *watch;

static int32_t only_one(const void *context, const char *user)
{
    (void)context;
    (void)user;
    return 0;
}

static int setup(void **state)
{
    const struct redis_ledger_options options = {
        .profile = "test", .partitions = 1, .partition_of = only_one, .keys_max = KEYS + 10};
    (void)state;
    redis_server_start(&redis, NULL);
    watch = redis_watch_open(&redis, &options);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    redis_watch_close(watch);
    redis_server_stop(&redis);
    return 0;
}

static const struct redis_ledger_report *hold(void)
{
    return redis_ledger_report(redis_watch_hold(watch));
}

static void test_nothing_is_missed(void **state)
{
    (void)state;
    redisContext *context = redisConnect("127.0.0.1", redis.port);
    assert_true(context != NULL && context->err == 0);
    assert_int_equal(redisAppendCommand(context, "INCR fc:epoch:test:0"), REDIS_OK);
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(
            redisAppendCommand(context,
                               "SET fc:{u%d}:1d {\"v\":1,\"as_of\":%d,\"counts\":{}} PXAT %lld", i,
                               i, (long long)lab_wall_ms() + 60000),
            REDIS_OK);
    }
    for (int i = 0; i <= KEYS; i++) {
        void *reply;
        assert_int_equal(redisGetReply(context, &reply), REDIS_OK);
        freeReplyObject(reply);
    }
    redisFree(context);
    const struct redis_ledger_report *report = hold();
    assert_string_equal(report->text, "");
    assert_int_equal(report->sets, KEYS);
    assert_int_equal(report->keys, KEYS);
    assert_true(report->partitions[0].first_write > report->partitions[0].first_increment);
    redis_watch_release(watch);
}

/* Bytes as they are, values longer than the watch's first buffer, and a key that is gone again
 * before anybody could look. */
static void test_odd_bytes_and_long_values(void **state)
{
    const size_t size = 3000000;
    char *value = malloc(size + 1);
    assert_non_null(value);
    (void)state;
    assert_string_equal(redis_server_ask(&redis, "INCR fc:epoch:test:0"), "1");
    memset(value, '\x01', size); /* Each is four bytes of MONITOR. */
    memcpy(value, "{\"as_of\":7,", 11);
    value[size] = '\0';
    assert_string_equal(redis_server_ask(&redis, "SET %b %s PXAT %lld", "fc:{a\"\n\xc3\xa9 b}:1d",
                                         (size_t)15, value, (long long)lab_wall_ms() + 60000),
                        "OK");
    assert_string_equal(
        redis_server_ask(&redis, "UNLINK %b", "fc:{a\"\n\xc3\xa9 b}:1d", (size_t)15), "1");
    const struct redis_ledger_report *report = hold();
    assert_string_equal(report->text, "");
    assert_int_equal(report->sets, 1);
    assert_int_equal(report->unlinks, 1);
    assert_int_equal(report->keys, 1);
    redis_watch_release(watch);
    free(value);
}

static void test_what_is_planted_is_found(void **state)
{
    (void)state;
    assert_string_equal(
        redis_server_ask(&redis, "SET fc:{u}:1d {\"v\":1,\"as_of\":5,\"counts\":{}} PX 60000"),
        "OK");
    assert_string_equal(redis_server_ask(&redis, "DEL fc:{u}:1d"), "1");
    const struct redis_ledger_report *report = hold();
    assert_int_equal(report->wrong, 3); /* Written and removed too early, and without PXAT. */
    assert_non_null(strstr(report->text, "before it took partition 0"));
    redis_watch_release(watch);
}

static void test_a_script_is_whoever_calls_it(void **state)
{
    (void)state;
    assert_string_equal(redis_server_ask(&redis, "INCR fc:epoch:test:0"), "1");
    assert_string_equal(
        redis_server_ask(&redis, "EVAL %s 0",
                         "return redis.call('SET', 'fc:{u}:1d', '{\"as_of\":5}', 'PXAT', "
                         "'9999999999999', 'NX')"),
        "OK");
    const struct redis_ledger_report *report = hold();
    assert_string_equal(report->text, "");
    assert_int_equal(report->sets, 1);
    redis_watch_release(watch);
}

static void test_a_blind_watch_does_not_pass(void **state)
{
    (void)state;
    redis_server_kill(&redis);
    redis_server_restart(&redis, false);
    const struct redis_ledger_report *report = hold();
    assert_int_equal(report->wrong, 1);
    assert_non_null(strstr(report->text, "lost its connection"));
    redis_watch_release(watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_missed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_odd_bytes_and_long_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_planted_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_script_is_whoever_calls_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_blind_watch_does_not_pass, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
