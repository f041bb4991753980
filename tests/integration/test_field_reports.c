/* Field reports through the whole daemon: what stands in the records. Real broker, real Redis;
 * after each, what follows counts and every key equals the definition. */
#include "live.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DAY_MS         INT64_C(86400000)
#define ZEROS_MS       1 /* the client library takes 0 for "now" */
#define HANDFUL        10
#define LONG_BYTES     921600
#define NESTING        100000
#define ANY_TIMESTAMPS "9223372036854775807"

static struct live live;
static int64_t now_ms;

static const struct live_window windows[] = {
    {"10s", 10000}, {"1m", 60000}, {"1h", 3600000}, {NULL, 0}};

static struct live_options usual(void)
{
    return (struct live_options){
        .partitions = 2,
        .workers = 1,
        .windows = "[10s, 1m, 1h]",
        .lengths = windows,
        .topic_config = {"max.message.bytes", "4000000", "message.timestamp.before.max.ms",
                         ANY_TIMESTAMPS, "message.timestamp.after.max.ms", ANY_TIMESTAMPS},
    };
}

static void begin(const struct live_options *options)
{
    live_init(&live, options);
    now_ms = lab_wall_ms();
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    return 0;
}

/* --- helpers ---------------------------------------------------------------------------------- */

/* A sample of one label; -1: there is none. */
static double metric(const char *name, const char *label)
{
    double sum = -1;
    assert_int_equal(daemon_process_get(&live.process, "/metrics", NULL), 200);
    for (const char *line = live.process.text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t size = strcspn(line, "\n");
        const char *value = memchr(line, '}', size);
        const char *found = strstr(line, label);
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == '{' && value != NULL &&
            found != NULL && found < value) {
            sum = (sum < 0 ? 0 : sum) + strtod(value + 1, NULL);
        }
    }
    return sum;
}

static double refused_for(const char *reason)
{
    char label[64];
    (void)snprintf(label, sizeof label, "reason=\"%s\"", reason);
    return metric("fcapd_records_rejected_total", label);
}

static size_t log_lines(void)
{
    size_t lines = 0;
    for (const char *at = daemon_process_log(&live.process); *at != '\0'; at++) {
        lines += *at == '\n';
    }
    return lines;
}

/* The page is made of what workers published last: it may be a moment old. */
static void await_records(double records)
{
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    while (daemon_process_metric(&live.process, "fcapd_records_total") < records) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(50);
    }
}

/* A plain event follows and counts, every key equals the definition, each refused record is
 * dead-lettered and counted under its reason. */
static void ends_well(uint64_t keys_min)
{
    struct live_tally tally = {0};
    live_send(&live, "intact", "a1", lab_wall_ms(), NULL);
    live_await_applied(&live);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){keys_min, 1, 0});
    live_passes(&tally.as_of, (struct oracle_minimum){1, 1, 0});
    live_passes(&tally.expiry, (struct oracle_minimum){1, 1, 0});
    const char *value = redis_server_ask(&live.redis, "GET fc:{intact}:1h");
    assert_non_null(value);
    assert_non_null(strstr(value, "\"counts\":{\"a1\":1}"));
    live_check_letters(&live, true);
    for (size_t i = 0; i < live.dead_count; i++) {
        double count = 0;
        for (size_t k = 0; k < live.dead_count; k++) {
            count += strcmp(live.dead[i].reason, live.dead[k].reason) == 0;
        }
        if (refused_for(live.dead[i].reason) != count) {
            fail_msg("%s: %.0f, not %.0f", live.dead[i].reason, refused_for(live.dead[i].reason),
                     count);
        }
    }
    live_stop(&live);
}

/* An event with `fields` in front of ad and time; `expect` NULL: it counts for `user`. */
static void send_fields(const char *user, const char *fields, const char *expect)
{
    char value[1024];
    char count[256];
    (void)snprintf(value, sizeof value, "{%s,\"ad_id\":\"a1\",\"ts\":%" PRId64 "}", fields, now_ms);
    (void)snprintf(count, sizeof count, "count %s a1 %" PRId64, user, now_ms);
    live_send_text(&live, user, value, expect == NULL ? count : expect);
}

static void counts_in_hour(const char *user, const char *counts)
{
    const char *value = redis_server_ask(&live.redis, "GET fc:{%s}:1h", user);
    if (counts == NULL) {
        assert_null(value);
    } else if (value == NULL || strstr(value, counts) == NULL) {
        fail_msg("%s: %s, not %s", user, value == NULL ? "no key" : value, counts);
    }
}

/* --- ids -------------------------------------------------------------------------------------- */

static void test_B01_numbers_beyond_64_bits(void **unused)
{
    struct live_options options = usual();
    (void)unused;
    begin(&options);
    live_start(&live);
    send_fields("b01", "\"user_id\":\"b01\",\"seq\":340282366920938463463374607431768211456", NULL);
    send_fields("9007199254740993", "\"user_id\":9007199254740993", NULL);
    send_fields("18446744073709551617", "\"user_id\":18446744073709551617", NULL);
    live_await_applied(&live);
    counts_in_hour("b01", "{\"a1\":1}");
    counts_in_hour("9007199254740993", "{\"a1\":1}");
    counts_in_hour("9007199254740992", NULL);
    counts_in_hour("18446744073709551617", "{\"a1\":1}");
    counts_in_hour("9223372036854775807", NULL);
    ends_well(12);
}

static void test_B02_ids_are_never_rounded(void **unused)
{
    struct live_options options = usual();
    (void)unused;
    begin(&options);
    live_start(&live);
    send_fields("228930314431312345", "\"user_id\":228930314431312345", NULL);
    send_fields("228930314431312345", "\"user_id\":\"228930314431312345\"", NULL);
    send_fields("228930314431312345", "\"user_id\":2.28930314431312345e17", "dead bad_id");
    send_fields("228930314431312345", "\"user_id\":228930314431312345.0", "dead bad_id");
    send_fields("007", "\"user_id\":\"007\"", NULL);
    send_fields("7", "\"user_id\":7", NULL);
    send_fields("7", "\"user_id\":true", "dead wrong_type");
    send_fields("7", "\"user_id\":null", "dead wrong_type");
    send_fields("7", "\"user_id\":{}", "dead wrong_type");
    live_await_applied(&live);
    counts_in_hour("228930314431312345", "{\"a1\":2}");
    counts_in_hour("007", "{\"a1\":1}");
    counts_in_hour("7", "{\"a1\":1}");
    ends_well(12);
}

/* --- the shape of values ------------------------------------------------------------------------
 */

static void send_framed(void)
{
    char value[256];
    int size = snprintf(value, sizeof value,
                        "%c%c%c%c%c{\"user_id\":\"b04\",\"ad_id\":\"a1\",\"ts\":%" PRId64 "}", 0, 0,
                        0, 0, 7, now_ms);
    live_send_odd(&live,
                  &(struct kafka_produce){.partition = live_partition(&live, "b04"),
                                          .key = "b04",
                                          .key_size = 3,
                                          .value = value,
                                          .value_size = (size_t)size},
                  "dead framing");
}

static void test_B04_a_schema_registry_frames_every_value(void **unused)
{
    struct live_options options = usual();
    (void)unused;
    begin(&options);
    live_start(&live);
    size_t lines = log_lines();
    for (int i = 0; i < 1000; i++) {
        send_framed();
    }
    live_await_applied(&live);
    await_records(1000);
    /* What an alert sees: all that came was refused, and why. */
    assert_true(refused_for("framing") == 1000);
    assert_true(daemon_process_metric(&live.process, "fcapd_records_total") == 1000);
    assert_true(daemon_process_metric(&live.process, "fcapd_events_total") == 0);
    assert_in_range(log_lines() - lines, 1, HANDFUL);
    assert_non_null(strstr(daemon_process_log(&live.process), "records are refused (framing)"));
    assert_int_equal(live.dead_count, 1000);
    assert_int_equal(live.dead[0].value_size > 5 ? ((const char *)live.dead[0].value)[4] : 0, 7);
    live_send(&live, "b04", "a1", now_ms, NULL);
    live_await_applied(&live);
    counts_in_hour("b04", "{\"a1\":1}");
    ends_well(6);
}

static void test_B05_one_value_is_one_document(void **unused)
{
    struct live_options options = usual();
    char event[128];
    char value[512];
    char count[64];
    (void)unused;
    begin(&options);
    live_start(&live);
    (void)snprintf(event, sizeof event, "{\"user_id\":\"b05\",\"ad_id\":\"a1\",\"ts\":%" PRId64 "}",
                   now_ms);
    (void)snprintf(count, sizeof count, "count b05 a1 %" PRId64, now_ms);
    for (int i = 0; i < 3; i++) {
        live_send(&live, "three", "a1", now_ms, NULL);
    }
    (void)snprintf(value, sizeof value, "\xEF\xBB\xBF%s", event);
    live_send_text(&live, "b05", value, "dead encoding");
    (void)snprintf(value, sizeof value,
                   "{\r\n  \"user_id\": \"b05\",\r\n  \"ad_id\": \"a1\",\r\n  \"ts\": %" PRId64
                   "\r\n}\r\n",
                   now_ms);
    live_send_text(&live, "b05", value, count);
    (void)snprintf(value, sizeof value, "%s\n%s", event, event);
    live_send_text(&live, "b05", value, "dead json");
    (void)snprintf(value, sizeof value, "[%s,%s]", event, event);
    live_send_text(&live, "b05", value, "dead not_object");
    (void)snprintf(value, sizeof value, "%s}", event);
    live_send_text(&live, "b05", value, "dead json");
    live_send_text(&live, "three", "", "dead empty"); /* No tombstone: the user keeps 3. */
    live_send_text(&live, "three", "null", "dead not_object");
    live_await_applied(&live);
    counts_in_hour("b05", "{\"a1\":1}");
    counts_in_hour("three", "{\"a1\":3}");
    ends_well(9);
}

static void test_B07_a_key_that_is_read_stands_twice(void **unused)
{
    struct live_options options = usual();
    (void)unused;
    begin(&options);
    live_start(&live);
    send_fields("x", "\"user_id\":\"x\",\"user_id\":\"y\"", "dead repeated_key");
    send_fields("x", "\"user_id\":\"x\",\"user\\u005fid\":\"y\"", "dead repeated_key");
    send_fields("z", "\"user_id\":\"z\",\"ctx\":{\"k\":1,\"k\":2}", NULL);
    live_await_applied(&live);
    counts_in_hour("x", NULL);
    counts_in_hour("y", NULL);
    counts_in_hour("z", "{\"a1\":1}");
    ends_well(6);
}

static void test_B07_nested(void **unused)
{
    struct live_options options = usual();
    struct live_tally tally = {0};
    options.more = "event:\n  user: u.id\n";
    (void)unused;
    begin(&options);
    live_start(&live);
    send_fields("x", "\"u\":{\"id\":\"x\"},\"u\":{\"id\":\"y\"}", "dead repeated_key");
    send_fields("z", "\"u\":{\"id\":\"z\"}", NULL);
    live_await_applied(&live);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){3, 3, 0});
    counts_in_hour("z", "{\"a1\":1}");
    live_check_letters(&live, true);
    live_stop(&live);
}

static char *repeat(const char *before, const char *open, const char *close, size_t times,
                    const char *after)
{
    size_t capacity = strlen(before) + times * (strlen(open) + strlen(close)) + strlen(after) + 1;
    char *text = malloc(capacity);
    assert_non_null(text);
    char *at = stpcpy(text, before);
    for (size_t i = 0; i < times; i++) {
        at = stpcpy(at, open);
    }
    for (size_t i = 0; i < times; i++) {
        at = stpcpy(at, close);
    }
    (void)stpcpy(at, after);
    return text;
}

static void send_repeated(const char *open, const char *close, size_t times, const char *before,
                          const char *expect)
{
    char after[128];
    (void)snprintf(after, sizeof after, ",\"user_id\":\"b08\",\"ad_id\":\"a1\",\"ts\":%" PRId64 "}",
                   now_ms);
    char *value = repeat(before, open, close, times, after);
    live_send_text(&live, "b08", value, expect);
    free(value);
}

static void test_B08_deep_and_long_values(void **unused)
{
    struct live_options options = usual();
    char count[64];
    (void)unused;
    begin(&options);
    live_start(&live);
    (void)snprintf(count, sizeof count, "count b08 a1 %" PRId64, now_ms);
    send_repeated("[", "]", NESTING, "{\"x\":", "dead depth");
    send_repeated("{\"a\":", "}", NESTING, "{\"x\":", "dead depth");
    send_repeated("x", "", LONG_BYTES, "{\"x\":\"", "dead json"); /* The text never ends. */
    char *value =
        repeat("{\"user_id\":\"b08\",\"ad_id\":\"a1\",\"x\":\"", "y", "", LONG_BYTES, "\",\"ts\":");
    size_t room = strlen(value) + 32;
    char *whole = malloc(room);
    assert_non_null(whole);
    (void)snprintf(whole, room, "%s%" PRId64 "}", value, now_ms);
    live_send_text(&live, "b08", whole, count);
    free(value);
    free(whole);
    live_await_applied(&live);
    counts_in_hour("b08", "{\"a1\":1}");
    live_stop(&live); /* And no crash loop on the same offset. */
    live_start(&live);
    live_await_applied(&live);
    counts_in_hour("b08", "{\"a1\":1}");
    live_check_letters(&live, true);
    assert_int_equal(live.dead_count, 3);
    live_stop(&live);
}

static void send_bytes(const char *key, size_t key_size, const char *value, size_t value_size,
                       const char *expect)
{
    live_send_odd(&live,
                  &(struct kafka_produce){.partition = 1,
                                          .key = key,
                                          .key_size = key_size,
                                          .value = value,
                                          .value_size = value_size},
                  expect);
}

static void test_bad_records_of_every_kind_disturb_nobody(void **unused)
{
    static const struct {
        const char *value;
        const char *expect;
    } kinds[] = {
        {"{", "dead json"},
        {"\x01\x02\x03", "dead json"},
        {"12", "dead not_object"},
        {"\"text\"", "dead not_object"},
        {"{\"user_id\":\"\xff\",\"ad_id\":\"a\",\"ts\":1}", "dead encoding"},
        {"{\"user_id\":\"\\ud800\",\"ad_id\":\"a\",\"ts\":1}", "dead encoding"},
        {"{\"ad_id\":\"a\",\"ts\":1}", "dead missing_field"},
        {"{\"user_id\":\"u\",\"ts\":1}", "dead missing_field"},
        {"{\"user_id\":\"u\",\"ad_id\":\"a\"}", "dead missing_field"},
        {"{\"user_id\":[],\"ad_id\":\"a\",\"ts\":1}", "dead wrong_type"},
        {"{\"user_id\":\"u\",\"ad_id\":{\"a\":1},\"ts\":1}", "dead wrong_type"},
        {"{\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":false}", "dead wrong_type"},
        {"{\"user_id\":\"\",\"ad_id\":\"a\",\"ts\":1}", "dead bad_id"},
        {"{\"user_id\":\"a\\u0000b\",\"ad_id\":\"a\",\"ts\":1}", "dead bad_id"},
        {"{\"user_id\":\"u\",\"ad_id\":1.5,\"ts\":1}", "dead bad_id"},
        {"{\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":-1}", "dead bad_time"},
        {"{\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":1e3}", "dead bad_time"},
        {"{\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":\"soon\"}", "dead bad_time"},
        {"{\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":253402300799999}", "dead future"},
        {"{\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":1}", "skip"}, /* late: counted, no letter */
    };
    struct live_options options = usual();
    const size_t huge_bytes = 1500000;
    (void)unused;
    begin(&options);
    live_start(&live);
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            live_send_text(&live, "u", kinds[i].value, kinds[i].expect);
            char user[32];
            (void)snprintf(user, sizeof user, "good-%zu", i);
            live_send(&live, user, "a1", now_ms, NULL);
        }
    }
    /* Keys are bytes: none, empty, not UTF-8, with a NUL. */
    send_bytes(NULL, 0, "{", 1, "dead json");
    send_bytes("", 0, "{", 1, "dead json");
    send_bytes("\xff\0\x01", 3, "{\0}", 3, "dead json");
    send_bytes(NULL, 0, NULL, 0, "dead no_key");
    send_bytes("\xff", 1, NULL, 0, "dead bad_id");
    char *huge = repeat("{\"x\":\"", "h", "", huge_bytes, "\"}");
    live_send_text(&live, "u", huge, "dead size");
    free(huge);
    live_await_applied(&live);
    assert_true(refused_for("late") == 3);
    ends_well(63);
    assert_int_equal(live.dead_count, 3 * (sizeof kinds / sizeof kinds[0] - 1) + 6);
}

/* --- a topic that is not keyed by user ----------------------------------------------------------
 */

/* It ends by itself and says what is wrong. */
static void is_refused(const char *words)
{
    daemon_process_start(&live.process, NULL);
    int code = daemon_process_wait(&live.process, LIVE_START_MS);
    if (code <= 0 || code >= 128) {
        fail_msg("exit code %d:\n%s", code, daemon_process_log(&live.process));
    }
    const char *log = daemon_process_log(&live.process);
    assert_non_null(strstr(log, "not keyed by user"));
    assert_non_null(strstr(log, words));
    assert_non_null(strstr(log, "kafka.keyed"));
}

static void test_a_topic_without_keys_is_refused_before_anything_is_projected(void **unused)
{
    struct live_options options = usual();
    char value[128];
    (void)unused;
    begin(&options);
    for (int i = 0; i < 50; i++) {
        live_send(&live, "keyed", "a1", now_ms, NULL);
    }
    (void)snprintf(value, sizeof value, "{\"user_id\":\"u\",\"ad_id\":\"a1\",\"ts\":%" PRId64 "}",
                   now_ms);
    send_bytes(NULL, 0, value, strlen(value), "skip");
    live_flush(&live);
    is_refused("a record without a key");
    assert_int_equal(live_key_count(&live), 0);
}

static void send_to_two_partitions(void)
{
    char value[128];
    (void)snprintf(value, sizeof value, "{\"user_id\":\"u\",\"ad_id\":\"a1\",\"ts\":%" PRId64 "}",
                   now_ms);
    for (int32_t i = 0; i < 2; i++) {
        live_send_odd(&live,
                      &(struct kafka_produce){.partition = i,
                                              .key = "session",
                                              .key_size = 7,
                                              .value = value,
                                              .value_size = strlen(value)},
                      "skip");
    }
    live_flush(&live);
}

static void test_a_user_in_two_partitions_is_refused_before_anything_is_projected(void **unused)
{
    struct live_options options = usual();
    (void)unused;
    begin(&options);
    send_to_two_partitions();
    is_refused("the same user stands in two partitions");
    assert_int_equal(live_key_count(&live), 0);
}

/* Each worker sees one of the two, or the group hands one over before it has been read. */
static void test_a_user_in_partitions_of_two_workers_is_refused_just_so(void **unused)
{
    struct live_options options = usual();
    (void)unused;
    options.workers = 2;
    begin(&options);
    send_to_two_partitions();
    is_refused("the same user stands in two partitions");
    assert_int_equal(live_key_count(&live), 0);
}

/* --- record timestamps -------------------------------------------------------------------------
 */

static void send_at(const char *user, int64_t timestamp_ms, const char *expect)
{
    char value[128];
    (void)snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ad_id\":\"a1\",\"ts\":%" PRId64 "}",
                   user, now_ms);
    live_send_odd(&live,
                  &(struct kafka_produce){.partition = live_partition(&live, user),
                                          .key = user,
                                          .key_size = strlen(user),
                                          .value = value,
                                          .value_size = strlen(value),
                                          .timestamp_ms = timestamp_ms},
                  expect);
}

static void test_B10_a_create_time_bounds_nothing(void **unused)
{
    struct live_options options = usual();
    char count[64];
    (void)unused;
    begin(&options);
    live_start(&live);
    (void)snprintf(count, sizeof count, "count b10 a1 %" PRId64, now_ms);
    send_at("b10", now_ms / 1000, count);
    send_at("b10", -1, count);
    send_at("b10", ZEROS_MS, count);
    send_at("b10", now_ms + 10 * DAY_MS, count);
    send_at("b10", now_ms, count);
    live_await_applied(&live);
    await_records(5);
    counts_in_hour("b10", "{\"a1\":5}");
    assert_true(daemon_process_metric(&live.process, "fcapd_untrusted_times_total") == 4);
    assert_int_equal(daemon_process_command(&live.process, "check", NULL, NULL), 0);
    assert_non_null(strstr(live.process.text, "LogAppendTime"));
    ends_well(6);
}

static void test_B10_the_record_timestamp_as_event_time(void **unused)
{
    struct live_options options = usual();
    struct live_tally tally = {0};
    char count[64];
    (void)unused;
    options.more = "event:\n  time: \"@timestamp\"\n";
    begin(&options);
    live_start(&live);
    (void)snprintf(count, sizeof count, "count b10 a1 %" PRId64, now_ms);
    send_at("b10", now_ms, count);
    send_at("b10", -1, "dead bad_time");
    send_at("b10", now_ms / 1000, "skip"); /* 1970: late for every window */
    send_at("b10", now_ms + 10 * DAY_MS, "dead future");
    send_at("b10", now_ms, count);
    live_await_applied(&live);
    counts_in_hour("b10", "{\"a1\":2}");
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){3, 3, 0});
    live_check_letters(&live, true);
    assert_true(refused_for("late") == 1);
    live_stop(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_B01_numbers_beyond_64_bits, teardown),
        cmocka_unit_test_teardown(test_B02_ids_are_never_rounded, teardown),
        cmocka_unit_test_teardown(test_B04_a_schema_registry_frames_every_value, teardown),
        cmocka_unit_test_teardown(test_B05_one_value_is_one_document, teardown),
        cmocka_unit_test_teardown(test_B07_a_key_that_is_read_stands_twice, teardown),
        cmocka_unit_test_teardown(test_B07_nested, teardown),
        cmocka_unit_test_teardown(test_B08_deep_and_long_values, teardown),
        cmocka_unit_test_teardown(test_bad_records_of_every_kind_disturb_nobody, teardown),
        cmocka_unit_test_teardown(test_a_topic_without_keys_is_refused_before_anything_is_projected,
                                  teardown),
        cmocka_unit_test_teardown(
            test_a_user_in_two_partitions_is_refused_before_anything_is_projected, teardown),
        cmocka_unit_test_teardown(test_a_user_in_partitions_of_two_workers_is_refused_just_so,
                                  teardown),
        cmocka_unit_test_teardown(test_B10_a_create_time_bounds_nothing, teardown),
        cmocka_unit_test_teardown(test_B10_the_record_timestamp_as_event_time, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
