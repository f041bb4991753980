/* Field report B04 with the setting: a topic whose producers frame each value by a schema registry.
 * Without it: test_field_reports.c. Real broker, real Redis. */
#include "live.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FRAMED  1000
#define HOUR_MS INT64_C(3600000)

static struct live live;

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    return 0;
}

/* Behind 00 and the schema id 7. */
static void send_framed(const char *user, const char *json, const char *expect)
{
    char value[256] = {0, 0, 0, 0, 7};
    (void)snprintf(value + 5, sizeof value - 5, "%s", json);
    live_send_odd(&live,
                  &(struct kafka_produce){.partition = live_partition(&live, user),
                                          .key = user,
                                          .key_size = strlen(user),
                                          .value = value,
                                          .value_size = 5 + strlen(json)},
                  expect);
}

static void test_B04_framed_values_count_and_plain_ones_too(void **unused)
{
    static const struct live_window windows[] = {{"1h", HOUR_MS}, {NULL, 0}};
    const struct live_options options = {.partitions = 2,
                                         .workers = 1,
                                         .windows = "[1h]",
                                         .lengths = windows,
                                         .more = "event:\n  framing: schema-registry\n"};
    struct live_tally tally = {0};
    char json[128];
    char count[64];
    (void)unused;
    live_init(&live, &options);
    live_start(&live);
    int64_t now_ms = lab_wall_ms();
    (void)snprintf(json, sizeof json, "{\"user_id\":\"b04\",\"ad_id\":\"a1\",\"ts\":%" PRId64 "}",
                   now_ms);
    (void)snprintf(count, sizeof count, "count b04 a1 %" PRId64, now_ms);
    for (int i = 0; i < FRAMED; i++) {
        send_framed("b04", json, count);
    }
    live_send(&live, "b04", "a1", now_ms, NULL);
    send_framed("b04", "Obj", "dead json"); /* Another format of the registry's. */
    send_framed("b04", "", "dead framing");
    live_send(&live, "erased", "a1", now_ms, NULL);
    live_send_tombstone(&live, "erased"); /* No value, no frame. */
    live_await_applied(&live);
    const char *value = redis_server_ask(&live.redis, "GET fc:{b04}:1h");
    assert_non_null(value);
    assert_non_null(strstr(value, "\"counts\":{\"a1\":1001}"));
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){2, 1, 0});
    live_check_letters(&live, true); /* Whole, with the five bytes. */
    live_stop(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_B04_framed_values_count_and_plain_ones_too, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
