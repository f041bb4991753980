/* Field report B04: values framed by a schema registry (event.framing), by every parser. */
#include "fcap/decode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define EVENT "{\"user_id\":\"b04\",\"ad_id\":\"a1\",\"ts\":1700000000000}"
#define TEXT(text)                                                                                 \
    {                                                                                              \
        (const unsigned char *)(text), sizeof(text) - 1                                            \
    }
#define BYTES(text)  ((struct fcap_bytes)TEXT(text))
#define RECORD_BYTES (sizeof EVENT - 1 + 5)

/* What a value comes to without the setting, and with it. */
static const struct {
    const char *name;
    struct fcap_bytes value;
    enum fcap_reject plain;
    enum fcap_reject framed;
} cases[] = {
    {"plain", TEXT(EVENT), FCAP_REJECT_NONE, FCAP_REJECT_NONE},
    {"framed", TEXT("\0\0\0\0\7" EVENT), FCAP_REJECT_FRAMING, FCAP_REJECT_NONE},
    {"any schema id", TEXT("\0\xff\xff\xff\xff" EVENT), FCAP_REJECT_FRAMING, FCAP_REJECT_NONE},
    {"an id that looks like JSON", TEXT("\0{\"a\"" EVENT), FCAP_REJECT_FRAMING, FCAP_REJECT_NONE},
    {"too long with its frame", TEXT("\0\0\0\0\7 \r\n\t" EVENT), FCAP_REJECT_SIZE,
     FCAP_REJECT_SIZE},
    {"framed twice", TEXT("\0\0\0\0\7\0\0\0\0\7{}"), FCAP_REJECT_FRAMING, FCAP_REJECT_JSON},
    {"another magic byte", TEXT("\1\0\0\0\7" EVENT), FCAP_REJECT_JSON, FCAP_REJECT_JSON},
    {"not JSON in the frame", TEXT("\0\0\0\0\7Obj\1\2"), FCAP_REJECT_FRAMING, FCAP_REJECT_JSON},
    {"not UTF-8 in the frame", TEXT("\0\0\0\0\7{\"user_id\":\"\xff\"}"), FCAP_REJECT_FRAMING,
     FCAP_REJECT_ENCODING},
    {"a byte order mark in the frame", TEXT("\0\0\0\0\7\xEF\xBB\xBF{}"), FCAP_REJECT_FRAMING,
     FCAP_REJECT_ENCODING},
    {"a frame in front of a space", TEXT(" \0\0\0\0\7{}"), FCAP_REJECT_JSON, FCAP_REJECT_JSON},
    {"a cut event in the frame", TEXT("\0\0\0\0\7{"), FCAP_REJECT_FRAMING, FCAP_REJECT_JSON},
    {"no object in the frame", TEXT("\0\0\0\0\7null"), FCAP_REJECT_FRAMING, FCAP_REJECT_NOT_OBJECT},
    {"nothing in the frame", TEXT("\0\0\0\0\7"), FCAP_REJECT_JSON, FCAP_REJECT_FRAMING},
    {"a cut frame", TEXT("\0\0"), FCAP_REJECT_JSON, FCAP_REJECT_FRAMING},
    {"one byte", TEXT("\0"), FCAP_REJECT_JSON, FCAP_REJECT_FRAMING},
    {"zero bytes", TEXT(""), FCAP_REJECT_EMPTY, FCAP_REJECT_EMPTY},
};

static struct fcap_decoder *open_decoder(size_t parser, bool is_framed, const char *user_path)
{
    struct fcap_decoder *decoder = NULL;
    struct fcap_decode_settings settings = {
        .user_path = user_path,
        .ad_path = "ad_id",
        .time_path = "ts",
        .time_format = FCAP_TIME_MILLISECONDS,
        .is_framed = is_framed,
        .user_id_bytes_max = 64,
        .ad_id_bytes_max = 64,
        .record_bytes_max = RECORD_BYTES,
        .parser = fcap_decode_json_parser(parser),
    };
    assert_int_equal(fcap_decode_json_open(&settings, &decoder, NULL), FCAP_OK);
    return decoder;
}

static void test_B04_every_value(void **unused)
{
    (void)unused;
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        for (int framed = 0; framed < 2; framed++) {
            struct fcap_decoder *decoder = open_decoder(p, framed != 0, "user_id");
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct fcap_record record = {.value = cases[i].value};
                struct fcap_event event = {0};
                enum fcap_reject reject = decoder->decode(decoder, &record, &event);
                enum fcap_reject wanted = framed != 0 ? cases[i].framed : cases[i].plain;
                if (reject != wanted) {
                    fail_msg("%s by %s: %s, not %s", cases[i].name, fcap_decode_json_parser(p),
                             fcap_reject_label(reject), fcap_reject_label(wanted));
                }
                if (reject == FCAP_REJECT_NONE) {
                    assert_true(fcap_bytes_equal(event.user, fcap_bytes_of("b04")));
                    assert_true(fcap_bytes_equal(event.ad, fcap_bytes_of("a1")));
                    assert_true(event.time_ms == INT64_C(1700000000000));
                }
            }
            fcap_decode_json_close(decoder);
        }
    }
}

/* A key is no value: its bytes are the user's as they are. */
static void test_keys_are_left_alone(void **unused)
{
    (void)unused;
    for (size_t p = 0; fcap_decode_json_parser(p) != NULL; p++) {
        struct fcap_decoder *decoder = open_decoder(p, true, "@key");
        struct fcap_event event = {0};
        struct fcap_record record = {.key = BYTES("u1"), .value = BYTES("\0\0\0\0\7" EVENT)};
        assert_int_equal(decoder->decode(decoder, &record, &event), FCAP_REJECT_NONE);
        assert_true(fcap_bytes_equal(event.user, record.key));
        record.value = FCAP_BYTES_NONE;
        assert_int_equal(decoder->decode(decoder, &record, &event), FCAP_REJECT_NONE);
        assert_true(event.is_tombstone && fcap_bytes_equal(event.user, record.key));
        record.key = BYTES("\0\0\0\0\7u1");
        assert_int_equal(decoder->decode(decoder, &record, &event), FCAP_REJECT_BAD_ID);
        fcap_decode_json_close(decoder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B04_every_value),
        cmocka_unit_test(test_keys_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
