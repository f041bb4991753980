/* The decoder's contract: one suite of tables, run on every parser of the build. The same bytes
 * must give the same answer on each. B.. names a field report. */
#include "decode_cases.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
/* cmocka needs the first of these. */
#include <cmocka.h>

static const struct fcap_decode_settings plain = {
    .user_path = "user_id",
    .ad_path = "ad_id",
    .time_path = "ts",
    .time_format = FCAP_TIME_MILLISECONDS,
    .user_id_bytes_max = 64,
    .ad_id_bytes_max = 32,
    .record_bytes_max = 1000000,
};

static struct fcap_decoder *open_decoder(struct fcap_decode_settings settings, const char *parser)
{
    struct fcap_decoder *decoder = NULL;
    struct fcap_error error = {0};
    settings.parser = parser;
    if (fcap_decode_json_open(&settings, &decoder, &error) != FCAP_OK) {
        fail_msg("open: %s", error.text);
    }
    return decoder;
}

static enum fcap_reject decode_value(struct fcap_decoder *decoder, struct fcap_bytes value,
                                     struct fcap_event *event)
{
    /* A copy of exactly the value's size, so that ASan sees a read beyond its end. */
    uint8_t *copy = malloc(value.size + (value.size == 0));
    assert_non_null(copy);
    memcpy(copy, value.data, value.size);
    struct fcap_record record = {
        .partition = 3,
        .offset = 7,
        .timestamp_ms = NOW_MS + 1,
        .timestamp_type = FCAP_TIMESTAMP_CREATE,
        .key = fcap_bytes_of("record-key"),
        .value = {copy, value.size},
    };
    enum fcap_reject reject = decoder->decode(decoder, &record, event);
    /* The event may borrow from the record: look at its texts before the copy goes. */
    static uint8_t texts[2][4096];
    if (reject == FCAP_REJECT_NONE) {
        struct fcap_bytes *views[2] = {&event->user, &event->ad};
        for (int i = 0; i < 2; i++) {
            assert_true(views[i]->size <= sizeof texts[i]);
            memcpy(texts[i], views[i]->data, views[i]->size);
            views[i]->data = texts[i];
        }
    }
    free(copy);
    return reject;
}

static void assert_text(const char *name, struct fcap_bytes text, const char *wanted)
{
    if (!fcap_bytes_equal(text, fcap_bytes_of(wanted))) {
        fail_msg("%s: \"%.*s\" instead of \"%s\"", name, (int)text.size, (const char *)text.data,
                 wanted);
    }
}

static void assert_reject(const char *name, enum fcap_reject reject, enum fcap_reject wanted)
{
    if (reject != wanted) {
        fail_msg("%s: %s instead of %s", name, fcap_reject_label(reject),
                 fcap_reject_label(wanted));
    }
}

/* After every case the plain event must still be read: nothing was left behind. */
static void assert_intact(struct fcap_decoder *decoder, const char *name, struct fcap_bytes good)
{
    struct fcap_event event = {0};
    assert_reject(name, decode_value(decoder, good, &event), FCAP_REJECT_NONE);
}

static void run_case(struct fcap_decoder *decoder, const struct decode_case *test)
{
    struct fcap_event untouched;
    memset(&untouched, 0x5A, sizeof untouched);
    struct fcap_event event = untouched;
    enum fcap_reject reject = decode_value(decoder, test->value, &event);
    assert_reject(test->name, reject, test->reject);
    if (reject != FCAP_REJECT_NONE) {
        assert_memory_equal(&event, &untouched, sizeof event);
        return;
    }
    assert_false(event.is_tombstone);
    assert_text(test->name, event.user, test->user);
    assert_text(test->name, event.ad, test->ad);
    int64_t wanted_ms = test->time_ms == 0 ? NOW_MS : test->time_ms == -1 ? 0 : test->time_ms;
    if (event.time_ms != wanted_ms) {
        fail_msg("%s: time %lld instead of %lld", test->name, (long long)event.time_ms,
                 (long long)wanted_ms);
    }
    assert_false(event.has_id);
}

static void run_cases(const struct fcap_decode_settings *settings, const struct decode_case *cases,
                      size_t count, struct fcap_bytes good)
{
    assert_non_null(fcap_decode_json_parser(0));
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        struct fcap_decoder *decoder = open_decoder(*settings, fcap_decode_json_parser(p));
        for (size_t i = 0; i < count; i++) {
            run_case(decoder, &cases[i]);
            assert_intact(decoder, cases[i].name, good);
        }
        fcap_decode_json_close(decoder);
    }
}

#define RUN(settings, cases, good)                                                                 \
    run_cases(&(settings), cases, sizeof(cases) / sizeof((cases)[0]), (struct fcap_bytes)TEXT(good))

/* --- tables on the plain settings, and on other times --------------------------------------- */

static void reads_ids(void **state)
{
    (void)state;
    RUN(plain, id_cases, GOOD);
}

static void refuses_what_is_not_one_json_object(void **state)
{
    (void)state;
    RUN(plain, text_cases, GOOD);
}

static void gives_the_first_of_several_reasons(void **state)
{
    (void)state;
    RUN(plain, priority_cases, GOOD);
}

static void reads_times(void **state)
{
    (void)state;
    struct fcap_decode_settings settings = plain;
    RUN(settings, millisecond_cases, GOOD);
    settings.time_format = FCAP_TIME_SECONDS;
    RUN(settings, second_cases, "{\"user_id\":1,\"ad_id\":2,\"ts\":1}");
    settings.time_format = FCAP_TIME_MICROSECONDS;
    RUN(settings, microsecond_cases, GOOD);
    settings.time_format = FCAP_TIME_NANOSECONDS;
    RUN(settings, nanosecond_cases, GOOD);
    settings.time_format = FCAP_TIME_ISO8601;
    RUN(settings, iso_cases, "{\"user_id\":1,\"ad_id\":2,\"ts\":\"2025-11-30T00:00:00Z\"}");
}

/* Each of the 24 * 366 hours of a leap year and its neighbours, against the C library's calendar.
 */
static void reads_every_hour_of_three_years(void **state)
{
    (void)state;
    for (int64_t hour = 0; hour < 3 * 366 * 24; hour++) {
        time_t seconds = (time_t)(1672531200 + hour * 3600); /* from 2023-01-01 */
        struct tm parts;
        char text[64];
        assert_non_null(gmtime_r(&seconds, &parts));
        size_t size = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S.042Z", &parts);
        int64_t ms = -1;
        assert_true(fcap_decode_iso8601((struct fcap_bytes){(uint8_t *)text, size}, &ms));
        assert_true(ms == (int64_t)seconds * 1000 + 42);
    }
}

static void walks_paths(void **state)
{
    (void)state;
    struct fcap_decode_settings settings = plain;
    settings.user_path = "u.id";
    settings.ad_path = "u.ad.n";
    settings.time_path = "a\\.b";
    RUN(settings, path_cases, "{\"u\":{\"id\":1,\"ad\":{\"n\":2}},\"a.b\":3}");
    settings = plain;
    settings.user_path = "\\@key";
    settings.ad_path = "a\\\\b";
    settings.time_path = "\xC3\xA9";
    RUN(settings, odd_key_cases, "{\"@key\":1,\"a\\\\b\":2,\"\\u00e9\":3}");
}

static void filters(void **state)
{
    (void)state;
    static const char *const values[] = {"impression", "7", "true", "-0", "1e3", "\xC3\xA9"};
    struct fcap_decode_settings settings = plain;
    settings.filter_path = "e.type";
    settings.filter_values = values;
    settings.filter_values_count = sizeof values / sizeof values[0];
    RUN(settings, filter_cases,
        "{\"user_id\":1,\"ad_id\":2,\"ts\":3,\"e\":{\"type\":\"impression\"}}");
}

static void ignores_users(void **state)
{
    (void)state;
    static const char *const users[] = {"zzz", "00000000-0000-0000-0000-000000000000", "0", "b"};
    struct fcap_decode_settings settings = plain;
    settings.ignore_users = users;
    settings.ignore_users_count = sizeof users / sizeof users[0];
    RUN(settings, ignore_cases, GOOD);
}

/* --- keys, tombstones, timestamps ----------------------------------------------------------- */

static void run_key_cases(struct fcap_decoder *decoder, struct fcap_bytes value)
{
    for (size_t i = 0; i < sizeof key_cases / sizeof key_cases[0]; i++) {
        const struct key_case *test = &key_cases[i];
        struct fcap_record record = {.key = test->key, .value = value};
        struct fcap_event event = {0};
        enum fcap_reject reject = decoder->decode(decoder, &record, &event);
        assert_reject(test->name, reject, test->reject);
        if (reject == FCAP_REJECT_NONE) {
            assert_true(fcap_bytes_equal(event.user, test->key));
            assert_int_equal(event.is_tombstone, value.data == NULL);
        }
    }
}

static void takes_the_key_as_user(void **state)
{
    (void)state;
    struct fcap_decode_settings settings = plain;
    struct fcap_bytes body = TEXT("{\"user_id\":\"other\",\"ad_id\":\"a\",\"ts\":1}");
    struct fcap_bytes broken = TEXT("{\"ad_id\":{},\"ts\":1}");
    settings.user_path = "@key";
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        struct fcap_decoder *decoder = open_decoder(settings, fcap_decode_json_parser(p));
        run_key_cases(decoder, body);
        run_key_cases(decoder, FCAP_BYTES_NONE);
        /* The user comes before the ad. */
        struct fcap_record record = {.key = FCAP_BYTES_NONE, .value = broken};
        struct fcap_event event = {0};
        assert_reject("no key", decoder->decode(decoder, &record, &event), FCAP_REJECT_NO_KEY);
        fcap_decode_json_close(decoder);
    }
}

/* A null value erases the user of the key, also when events have their user in the body, and also
 * for an ignored user: it may have been counted before it was put on the list. */
static void takes_null_values_for_tombstones(void **state)
{
    (void)state;
    static const char *const users[] = {"u1"};
    struct fcap_decode_settings settings = plain;
    settings.ignore_users = users;
    settings.ignore_users_count = 1;
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        struct fcap_decoder *decoder = open_decoder(settings, fcap_decode_json_parser(p));
        run_key_cases(decoder, FCAP_BYTES_NONE);
        fcap_decode_json_close(decoder);
    }
}

/* B10: a timestamp is the event's time only when it is configured as such. */
static void takes_the_timestamp_as_time(void **state)
{
    (void)state;
    struct fcap_decode_settings settings = plain;
    settings.time_path = "@timestamp";
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        struct fcap_decoder *by_record = open_decoder(settings, fcap_decode_json_parser(p));
        struct fcap_decoder *by_body = open_decoder(plain, fcap_decode_json_parser(p));
        for (size_t i = 0; i < sizeof timestamp_cases / sizeof timestamp_cases[0]; i++) {
            struct fcap_record record = {.timestamp_ms = timestamp_cases[i].timestamp_ms,
                                         .timestamp_type = timestamp_cases[i].type,
                                         .value = TEXT(GOOD)};
            struct fcap_event event = {0};
            assert_reject("B10", by_record->decode(by_record, &record, &event),
                          timestamp_cases[i].reject);
            if (timestamp_cases[i].reject == FCAP_REJECT_NONE) {
                assert_true(event.time_ms == timestamp_cases[i].timestamp_ms);
            }
            assert_reject("B10", by_body->decode(by_body, &record, &event), FCAP_REJECT_NONE);
            assert_true(event.time_ms == NOW_MS);
        }
        fcap_decode_json_close(by_record);
        fcap_decode_json_close(by_body);
    }
}

/* --- event ids ------------------------------------------------------------------------------ */

static void hashes_event_ids(void **state)
{
    (void)state;
    struct fcap_decode_settings settings = plain;
    settings.id_path = "id";
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        struct fcap_decoder *decoder = open_decoder(settings, fcap_decode_json_parser(p));
        struct fcap_event event = {0};
        struct fcap_bytes without = TEXT(GOOD);
        assert_reject("no id", decode_value(decoder, without, &event), FCAP_REJECT_MISSING_FIELD);
        for (size_t i = 0; i < sizeof event_id_cases / sizeof event_id_cases[0]; i++) {
            char text[2048];
            int size =
                snprintf(text, sizeof text, "{\"user_id\":1,\"ad_id\":2,\"id\":%.*s,\"ts\":3}",
                         (int)event_id_cases[i].id.size, (const char *)event_id_cases[i].id.data);
            struct fcap_bytes value = {(uint8_t *)text, (size_t)size};
            assert_reject(text, decode_value(decoder, value, &event), event_id_cases[i].reject);
            if (event_id_cases[i].reject == FCAP_REJECT_NONE) {
                assert_true(event.has_id);
                assert_true(event.id_hash == fcap_hash64(fcap_bytes_of(event_id_cases[i].text), 0));
            }
        }
        fcap_decode_json_close(decoder);
    }
}

/* --- size, depth and stack ------------------------------------------------------------------ */

/* `open` * levels, `middle`, `close` * levels, between a head and a tail. */
static void nested(struct fcap_buffer *buffer, const char *open, size_t levels, const char *close)
{
    fcap_buffer_clear(buffer);
    fcap_buffer_put_text(buffer, "{\"x\":");
    for (size_t i = 0; i < levels; i++) {
        fcap_buffer_put_text(buffer, open);
    }
    fcap_buffer_put_text(buffer, *open == '{' ? "1" : "");
    for (size_t i = 0; i < levels; i++) {
        fcap_buffer_put_text(buffer, close);
    }
    fcap_buffer_put_text(buffer,
                         ",\"y\":[{}],\"user_id\":\"b08\",\"ad_id\":\"a1\",\"ts\":" NOW "}");
}

/* What the thread with the small stack decodes, and what it got: assertions belong to the main
 * thread. */
struct deep_case {
    const char *name;
    struct fcap_buffer value;
    enum fcap_reject wanted;
    enum fcap_reject reject;
    bool is_b08; /* the user is read right */
};

enum { DEEP_CASES_COUNT = 9 };

struct deep_run {
    const char *parser;
    struct deep_case cases[DEEP_CASES_COUNT];
};

static void make_deep_cases(struct deep_case *cases)
{
    static const char *const opens[2] = {"[", "{\"a\":"};
    static const char *const closes[2] = {"]", "}"};
    static const char tail[] = "\"user_id\":\"b08\",\"ad_id\":\"a1\",\"ts\":1}";
    for (int i = 0; i < 2; i++) {
        struct deep_case *three = &cases[i * 3];
        three[0].name = "B08: 100,000 levels";
        three[0].wanted = FCAP_REJECT_DEPTH;
        nested(&three[0].value, opens[i], 100000, closes[i]);
        three[1].name = "one level too deep";
        three[1].wanted = FCAP_REJECT_DEPTH;
        nested(&three[1].value, opens[i], FCAP_DECODE_DEPTH_MAX, closes[i]);
        three[2].name = "at the limit";
        nested(&three[2].value, opens[i], FCAP_DECODE_DEPTH_MAX - 1, closes[i]);
    }
    /* Brackets in strings nest nothing, also after an escaped quote; nor do siblings. */
    cases[6].name = "brackets in strings, siblings";
    fcap_buffer_put_text(&cases[6].value, "{\"x\":\"\\\\\\\"" HUNDRED("[[[{{{"));
    fcap_buffer_put_text(&cases[6].value, "\",\"y\":[" HUNDRED("[],{},[],{},") "0],");
    fcap_buffer_put_text(&cases[6].value, tail);
    for (int escaped = 0; escaped < 2; escaped++) {
        struct deep_case *huge = &cases[7 + escaped];
        huge->name = "B08: 900 kB of text";
        fcap_buffer_put_text(&huge->value, "{\"x\":\"");
        for (int i = 0; i < 75000; i++) {
            fcap_buffer_put_text(&huge->value, escaped ? "\\ud83d\\ude00" : "twelve bytes");
        }
        fcap_buffer_put_text(&huge->value, "\",");
        fcap_buffer_put_text(&huge->value, tail);
    }
}

static void *run_deep(void *context)
{
    struct deep_run *run = context;
    struct fcap_decoder *decoder = NULL;
    struct fcap_decode_settings settings = plain;
    settings.parser = run->parser;
    if (fcap_decode_json_open(&settings, &decoder, NULL) != FCAP_OK) {
        return NULL;
    }
    for (int i = 0; i < DEEP_CASES_COUNT; i++) {
        struct fcap_record record = {.value = fcap_buffer_bytes(&run->cases[i].value)};
        struct fcap_event event = {0};
        run->cases[i].reject = decoder->decode(decoder, &record, &event);
        run->cases[i].is_b08 = fcap_bytes_equal(event.user, fcap_bytes_of("b08"));
    }
    fcap_decode_json_close(decoder);
    return run;
}

/* B08, on a stack as small as a worker's may be. */
static void survives_deep_nesting(void **state)
{
    (void)state;
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        static struct deep_run run;
        pthread_attr_t attributes;
        pthread_t thread;
        void *result = NULL;
        run = (struct deep_run){.parser = fcap_decode_json_parser(p)};
        make_deep_cases(run.cases);
        assert_int_equal(pthread_attr_init(&attributes), 0);
        assert_int_equal(pthread_attr_setstacksize(&attributes, (size_t)256 * 1024), 0);
        assert_int_equal(pthread_create(&thread, &attributes, run_deep, &run), 0);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_int_equal(pthread_attr_destroy(&attributes), 0);
        assert_ptr_equal(result, &run);
        for (int i = 0; i < DEEP_CASES_COUNT; i++) {
            struct deep_case *test = &run.cases[i];
            assert_reject(test->name, test->reject, test->wanted);
            assert_int_equal(test->is_b08, test->wanted == FCAP_REJECT_NONE);
            fcap_buffer_done(&test->value);
        }
    }
}

static void limits_the_record(void **state)
{
    (void)state;
    struct fcap_decode_settings settings = plain;
    settings.record_bytes_max = sizeof GOOD - 1;
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        struct fcap_decoder *decoder = open_decoder(settings, fcap_decode_json_parser(p));
        struct fcap_event event = {0};
        struct fcap_bytes at_limit = TEXT(GOOD);
        struct fcap_bytes over = TEXT(GOOD " ");
        struct fcap_bytes framed = TEXT("\0\0\0\0\7" GOOD);
        assert_reject("at the limit", decode_value(decoder, at_limit, &event), FCAP_REJECT_NONE);
        assert_reject("one over", decode_value(decoder, over, &event), FCAP_REJECT_SIZE);
        assert_reject("size first", decode_value(decoder, framed, &event), FCAP_REJECT_SIZE);
        fcap_decode_json_close(decoder);
    }
}

/* Every prefix of a good event, and it with each byte changed to each other value: the parsers
 * must agree, and nothing may read beyond the record. */
static void parsers_agree_on_damaged_events(void **state)
{
    (void)state;
    static const char good[] =
        "{\"user_id\":\"\\u00e9\",\"x\":[-1.5e3,null,{\"k\":\"sixteen letters!\"}],"
        "\"ad_id\":12,\"ts\":" NOW "}";
    struct fcap_decoder *decoders[2] = {0};
    size_t count = 0;
    for (; count < 2 && fcap_decode_json_parser(count) != NULL; count++) {
        decoders[count] = open_decoder(plain, fcap_decode_json_parser(count));
    }
    uint8_t text[sizeof good];
    size_t rejects[FCAP_REJECT_COUNT] = {0};
    for (size_t at = 0; at < sizeof good - 1; at++) {
        for (int byte = 0; byte < 257; byte++) {
            memcpy(text, good, sizeof good);
            text[at] = (uint8_t)byte;
            struct fcap_bytes value = {text, byte == 256 ? at : sizeof good - 1};
            struct fcap_event events[2] = {0};
            enum fcap_reject first = decode_value(decoders[0], value, &events[0]);
            rejects[first]++;
            for (size_t i = 1; i < count; i++) {
                enum fcap_reject other = decode_value(decoders[i], value, &events[i]);
                assert_reject((const char *)text, other, first);
                assert_true(events[0].time_ms == events[i].time_ms);
                assert_true(events[0].user.size == events[i].user.size);
            }
        }
    }
    assert_true(rejects[FCAP_REJECT_NONE] > 1000); /* in the unread number, ids, ... */
    assert_true(rejects[FCAP_REJECT_JSON] > 1000);
    assert_true(rejects[FCAP_REJECT_ENCODING] > 1000);
    for (size_t i = 0; i < count; i++) {
        fcap_decode_json_close(decoders[i]);
    }
}

/* --- settings ------------------------------------------------------------------------------- */

static void assert_refused(struct fcap_decode_settings settings, const char *wanted)
{
    struct fcap_decoder *decoder = NULL;
    struct fcap_error error = {0};
    assert_int_equal(fcap_decode_json_open(&settings, &decoder, &error), FCAP_CONFIG);
    assert_null(decoder);
    if (strstr(error.text, wanted) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", error.text, wanted);
    }
}

static void refuses_paths_that_mean_nothing(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "",
        ".",
        ".id",
        "u.",
        "u..id",
        "u\\",
        "@key",
        "@timestamp",
        "@",
        "ad_id.x",
        "\xFF",
        "1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18.19.20.21.22.23.24.25.26.27.28.29.30.31.32",
    };
    struct fcap_decode_settings settings = plain;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        settings.id_path = paths[i];
        assert_refused(settings, "event.");
    }
    settings = plain;
    settings.user_path = "@timestamp";
    assert_refused(settings, "event.user: \"@timestamp\"");
    settings = plain;
    settings.time_path = "@key";
    assert_refused(settings, "event.time: \"@key\"");
    settings = plain;
    settings.user_path = NULL;
    assert_refused(settings, "event.user: no path");
    settings = plain;
    settings.user_path = "u";
    settings.ad_path = "u.ad";
    assert_refused(settings, "event.user: \"u\" has another field inside");
}

static void refuses_other_settings(void **state)
{
    (void)state;
    static const char *const bad[] = {"good", "\xC3"};
    struct fcap_decode_settings settings = plain;
    settings.parser = "jansson";
    assert_refused(settings, "jansson");
    settings = plain;
    settings.filter_path = "type";
    assert_refused(settings, "event.filter: no values");
    settings.filter_values = bad;
    settings.filter_values_count = 2;
    assert_refused(settings, "event.filter: item 2");
    settings = plain;
    settings.ignore_users = bad;
    settings.ignore_users_count = 2;
    assert_refused(settings, "event.ignore_users: item 2");
    settings = plain;
    settings.ad_id_bytes_max = 0;
    assert_refused(settings, "limit");
    fcap_decode_json_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_ids),
        cmocka_unit_test(refuses_what_is_not_one_json_object),
        cmocka_unit_test(gives_the_first_of_several_reasons),
        cmocka_unit_test(reads_times),
        cmocka_unit_test(reads_every_hour_of_three_years),
        cmocka_unit_test(walks_paths),
        cmocka_unit_test(filters),
        cmocka_unit_test(ignores_users),
        cmocka_unit_test(takes_the_key_as_user),
        cmocka_unit_test(takes_null_values_for_tombstones),
        cmocka_unit_test(takes_the_timestamp_as_time),
        cmocka_unit_test(hashes_event_ids),
        cmocka_unit_test(survives_deep_nesting),
        cmocka_unit_test(limits_the_record),
        cmocka_unit_test(parsers_agree_on_damaged_events),
        cmocka_unit_test(refuses_paths_that_mean_nothing),
        cmocka_unit_test(refuses_other_settings),
    };
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        print_message("result: every case by %s\n", fcap_decode_json_parser(p));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
