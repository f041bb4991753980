/* Field report B10, initial load: record timestamps that are no times, or wrong ones, while the
 * events' own times are right. The history lies in the topic before the daemon starts from nothing.
 * Real broker, real Redis; every key equals the definition. */
#include "live.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HOUR_MS        INT64_C(3600000)
#define DAY_MS         (24 * HOUR_MS)
#define ZERO_MS        1 /* the client library takes 0 for "now" */
#define ANY_TIMESTAMPS "9223372036854775807"
#define EVENTS         20
#define SINCE_MS       600000 /* ago, the first event of a window */

static struct live live;
static int64_t now_ms;

static const struct live_window windows[] = {
    {"10s", 10000}, {"1m", 60000}, {"1h", HOUR_MS}, {NULL, 0}};

/* A partition each: what the timestamps of its events are, given the time at which they were
 * written. Before them stand events with honest timestamps, too old for every window. */
enum stamps { HONEST, SECONDS, NONE, ZERO, AHEAD, BEHIND, REPAIRED, STAMPS };

static int64_t stamp(enum stamps stamps, int64_t time_ms, int number)
{
    switch (stamps) {
    case SECONDS:
        return time_ms / 1000;
    case NONE:
        return -1;
    case ZERO:
        return ZERO_MS;
    case AHEAD:
        return time_ms + 10 * DAY_MS;
    case BEHIND:
        return time_ms - 3 * DAY_MS;
    case REPAIRED: /* Behind for a while. */
        return time_ms - (number < EVENTS / 2 ? 3 * DAY_MS : 0);
    default:
        return time_ms;
    }
}

/* A start by time would leave out events of these. */
static const bool is_hidden[STAMPS] = {
    [SECONDS] = true, [NONE] = true, [ZERO] = true, [BEHIND] = true, [REPAIRED] = true};

static const char *user_of(int32_t partition)
{
    static char user[STAMPS][16];
    for (unsigned i = 0; user[partition][0] == '\0'; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "b10-%u", i % 10000);
        if (live_partition(&live, name) == partition) {
            memcpy(user[partition], name, sizeof name);
        }
    }
    return user[partition];
}

static void send_at(int32_t partition, int64_t event_ms, int64_t timestamp_ms, const char *expect)
{
    char value[128];
    const char *user = user_of(partition);
    (void)snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ad_id\":\"a1\",\"ts\":%" PRId64 "}",
                   user, event_ms);
    live_send_odd(&live,
                  &(struct kafka_produce){.partition = partition,
                                          .key = user,
                                          .key_size = strlen(user),
                                          .value = value,
                                          .value_size = strlen(value),
                                          .timestamp_ms = timestamp_ms},
                  expect);
}

static void begin(const char *more)
{
    const struct live_options options = {
        .partitions = STAMPS,
        .workers = 1,
        .windows = "[10s, 1m, 1h]",
        .lengths = windows,
        .topic_config = {"retention.ms", "-1", "message.timestamp.before.max.ms", ANY_TIMESTAMPS,
                         "message.timestamp.after.max.ms", ANY_TIMESTAMPS},
        .more = more,
    };
    live_init(&live, &options);
    now_ms = lab_wall_ms();
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    return 0;
}

static size_t lines_with(const char *text)
{
    size_t count = 0;
    for (const char *at = strstr(daemon_process_log(&live.process), text); at != NULL;
         at = strstr(at + 1, text)) {
        count++;
    }
    return count;
}

static void all_count_20(void)
{
    for (int32_t p = 0; p < STAMPS; p++) {
        char key[64];
        (void)snprintf(key, sizeof key, "GET fc:{%s}:1h", user_of(p));
        const char *value = redis_server_ask(&live.redis, key);
        if (value == NULL || strstr(value, "\"counts\":{\"a1\":20}") == NULL) {
            fail_msg("partition %d: %s", p, value == NULL ? "no key" : value);
        }
    }
}

static void test_B10_an_initial_load_does_not_trust_create_times(void **unused)
{
    struct live_tally tally = {0};
    char count[64];
    size_t hidden = 0;
    (void)unused;
    begin(NULL);
    for (int32_t p = 0; p < STAMPS; p++) {
        (void)snprintf(count, sizeof count, "count %s a1 %" PRId64, user_of(p),
                       now_ms - 3 * HOUR_MS);
        for (int i = 0; i < EVENTS; i++) {
            send_at(p, now_ms - 3 * HOUR_MS, now_ms - 3 * HOUR_MS, count);
        }
        for (int i = 0; i < EVENTS; i++) {
            int64_t time_ms = now_ms - SINCE_MS + i * SINCE_MS / EVENTS;
            (void)snprintf(count, sizeof count, "count %s a1 %" PRId64, user_of(p), time_ms);
            send_at(p, time_ms, stamp((enum stamps)p, time_ms, i), count);
        }
        hidden += is_hidden[p];
    }
    live_flush(&live);
    assert_int_equal(daemon_process_command(&live.process, "backfill", NULL, NULL), 0);
    all_count_20();
    live_start(&live);
    live_await_applied(&live);
    all_count_20();
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){STAMPS, STAMPS, 0});
    live_passes(&tally.expiry, (struct oracle_minimum){STAMPS, 1, 0});
    assert_int_equal(lines_with("record timestamps cannot be believed"), hidden);
    assert_true(daemon_process_metric(&live.process, "fcapd_untrusted_starts_total") ==
                (double)hidden);
    assert_true(daemon_process_metric(&live.process, "fcapd_untrusted_times_total") >=
                5 * EVENTS + EVENTS / 2);
    assert_int_equal(daemon_process_command(&live.process, "check", NULL, NULL), 0);
    assert_non_null(strstr(live.process.text, "LogAppendTime"));
    live_stop(&live);
}

/* Then a timestamp is the event's time, whatever it says, and a look-up by it is right. */
static void test_B10_an_initial_load_by_record_timestamps(void **unused)
{
    struct live_tally tally = {0};
    char count[64];
    (void)unused;
    begin("event:\n  time: \"@timestamp\"\n");
    for (int32_t p = 0; p < STAMPS; p++) {
        for (int i = 0; i < EVENTS; i++) {
            int64_t time_ms = now_ms - SINCE_MS + i * SINCE_MS / EVENTS;
            int64_t timestamp_ms = stamp((enum stamps)p, time_ms, i);
            (void)snprintf(count, sizeof count, "count %s a1 %" PRId64, user_of(p), timestamp_ms);
            send_at(p, time_ms, timestamp_ms,
                    p == NONE    ? "dead bad_time"
                    : p == AHEAD ? "dead future"
                                 : count);
        }
    }
    live_flush(&live);
    live_start(&live);
    live_await_applied(&live);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){STAMPS, 2, 0});
    live_check_letters(&live, true);
    live_stop(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_B10_an_initial_load_does_not_trust_create_times, teardown),
        cmocka_unit_test_teardown(test_B10_an_initial_load_by_record_timestamps, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
