/* The tables of the decoder's contract: bytes in, answer out. B.. names the field report that a
 * case comes from. Included by decode_contract.c alone. */
#ifndef FCAP_TESTS_DECODE_CASES_H
#define FCAP_TESTS_DECODE_CASES_H

#include "fcap/decode.h"

/* Bytes of a literal that may hold NUL. */
#define TEXT(literal)                                                                              \
    {                                                                                              \
        (const uint8_t *)(literal), sizeof(literal) - 1                                            \
    }
#define NULL_BYTES                                                                                 \
    {                                                                                              \
        NULL, 0                                                                                    \
    }

#define NOW_MS INT64_C(1764460800123) /* 2025-11-30T00:00:00.123Z */
#define NOW    "1764460800123"

struct decode_case {
    const char *name;
    struct fcap_bytes value;
    enum fcap_reject reject;
    /* When accepted: */
    const char *user;
    const char *ad;
    int64_t time_ms; /* 0: NOW_MS; -1: the epoch */
};

#define GOOD "{\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":" NOW "}"

/* An event whose user or ad is written as given. */
#define USER(text) TEXT("{\"user_id\":" text ",\"ad_id\":\"a\",\"ts\":" NOW "}")
#define AD(text)   TEXT("{\"user_id\":\"u\",\"ad_id\":" text ",\"ts\":" NOW "}")
#define TIME(text) TEXT("{\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":" text "}")
/* A good event with one more member, which is not read. */
#define WITH(text) TEXT("{\"user_id\":\"u\",\"x\":" text ",\"ad_id\":\"a\",\"ts\":" NOW "}")

/* clang-format off */
#define OK(u, a) FCAP_REJECT_NONE, u, a
#define BAD(r)   FCAP_REJECT_##r, NULL, NULL

#define TEN(x)     x x x x x x x x x x
#define HUNDRED(x) TEN(TEN(x))
#define CHARS_32   "0123456789abcdef0123456789abcdef"
#define DIGITS_64  "1234567890123456789012345678901234567890123456789012345678901234"

static const struct decode_case id_cases[] = {
    {"plain",                     TEXT(GOOD),                       OK("u", "a")},
    {"B01 big number, not read",  WITH("340282366920938463463374607431768211456"), OK("u", "a")},
    {"B01 huge exponent, not read", WITH("1e999999999"),            OK("u", "a")},
    {"B01 beyond 2^53",           USER("9007199254740993"),         OK("9007199254740993", "a")},
    {"B01 beyond 2^64",           USER("18446744073709551617"),     OK("18446744073709551617", "a")},
    {"B01 below -2^63",           USER("-9223372036854775809"),     OK("-9223372036854775809", "a")},
    {"64 digits",                 USER(DIGITS_64),                  OK(DIGITS_64, "a")},
    {"65 digits",                 USER(DIGITS_64 "5"),              BAD(BAD_ID)},
    {"B02 number",                USER("228930314431312345"),       OK("228930314431312345", "a")},
    {"B02 text",                  USER("\"228930314431312345\""),   OK("228930314431312345", "a")},
    {"B02 exponent",              USER("2.28930314431312345e17"),   BAD(BAD_ID)},
    {"B02 exponent alone",        USER("2E17"),                     BAD(BAD_ID)},
    {"B02 fraction",              USER("228930314431312345.0"),     BAD(BAD_ID)},
    {"B02 \"007\"",               USER("\"007\""),                  OK("007", "a")},
    {"B02 7",                     USER("7"),                        OK("7", "a")},
    {"B02 \"7\"",                 USER("\"7\""),                    OK("7", "a")},
    {"B02 true",                  USER("true"),                     BAD(WRONG_TYPE)},
    {"B02 false",                 USER("false"),                    BAD(WRONG_TYPE)},
    {"B02 null",                  USER("null"),                     BAD(WRONG_TYPE)},
    {"B02 {}",                    USER("{}"),                       BAD(WRONG_TYPE)},
    {"B02 []",                    USER("[]"),                       BAD(WRONG_TYPE)},
    {"array of an id",            USER("[\"u\"]"),                  BAD(WRONG_TYPE)},
    {"0",                         USER("0"),                        OK("0", "a")},
    {"-0 keeps its spelling",     USER("-0"),                       OK("-0", "a")},
    {"0.0",                       USER("0.0"),                      BAD(BAD_ID)},
    {"empty",                     USER("\"\""),                     BAD(BAD_ID)},
    {"NUL",                       USER("\"a\\u0000b\""),            BAD(BAD_ID)},
    {"NUL alone",                 USER("\"\\u0000\""),              BAD(BAD_ID)},
    {"a space is an id",          USER("\" \""),                    OK(" ", "a")},
    {"escapes",                   USER("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\""), OK("\"\\/\b\f\n\r\tA", "a")},
    {"UTF-8",                     USER("\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\""), OK("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "a")},
    {"the same by escapes",       USER("\"\\u00e9\\u20AC\\uD83D\\ude00\""), OK("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "a")},
    {"escaped FFFF, last of 3 bytes", USER("\"\\uffff\""),          OK("\xEF\xBF\xBF", "a")},
    {"escaped 07FF, last of 2 bytes", USER("\"\\u07ff\""),          OK("\xDF\xBF", "a")},
    {"escaped 10FFFF, the last one", USER("\"\\udbff\\udfff\""),    OK("\xF4\x8F\xBF\xBF", "a")},
    {"two escaped ids",           TEXT("{\"user_id\":\"\\u0041\",\"z\":\"\\u0043\",\"ad_id\":\"\\u0042\",\"ts\":" NOW "}"), OK("A", "B")},
    {"limit counts unescaped bytes", AD("\"\\u0030" "123456789abcdef0123456789abcdef\""), OK("u", CHARS_32)},
    {"ad at the limit",           AD("\"" CHARS_32 "\""),           OK("u", CHARS_32)},
    {"ad one over",               AD("\"" CHARS_32 "g\""),          BAD(BAD_ID)},
    {"ad a number",               AD("42"),                         OK("u", "42")},
    {"ad null",                   AD("null"),                       BAD(WRONG_TYPE)},
    {"ad 1.5",                    AD("1.5"),                        BAD(BAD_ID)},
    {"no user",                   TEXT("{\"ad_id\":\"a\",\"ts\":1}"), BAD(MISSING_FIELD)},
    {"no ad",                     TEXT("{\"user_id\":\"u\",\"ts\":1}"), BAD(MISSING_FIELD)},
    {"no time",                   TEXT("{\"user_id\":\"u\",\"ad_id\":\"a\"}"), BAD(MISSING_FIELD)},
    {"keys are case-sensitive",   TEXT("{\"User_id\":\"u\",\"ad_id\":\"a\",\"ts\":1}"), BAD(MISSING_FIELD)},
    {"a key that is longer",      TEXT("{\"user_id \":\"u\",\"ad_id\":\"a\",\"ts\":1}"), BAD(MISSING_FIELD)},
    {"a key with NUL behind",     TEXT("{\"user_id\\u0000\":\"u\",\"ad_id\":\"a\",\"ts\":1}"), BAD(MISSING_FIELD)},
    {"an escaped key",            TEXT("{\"user\\u005fid\":\"u\",\"ad_id\":\"a\",\"ts\":" NOW "}"), OK("u", "a")},
    {"the field one level down",  TEXT("{\"x\":{\"user_id\":\"u\"},\"ad_id\":\"a\",\"ts\":1}"), BAD(MISSING_FIELD)},
    {"same names in unread places", WITH("[{\"user_id\":1,\"user_id\":2},{\"ts\":{\"ad_id\":[]}}]"), OK("u", "a")},
};

static const struct decode_case text_cases[] = {
    {"B04 framed",                TEXT("\0\0\0\0\7" GOOD),          BAD(FRAMING)},
    {"B04 six bytes",             TEXT("\0\0\0\0\7{"),              BAD(FRAMING)},
    {"B04 five bytes frame nothing", TEXT("\0\0\0\0\7"),            BAD(JSON)},
    {"B05a UTF-8 byte order mark", TEXT("\xEF\xBB\xBF" GOOD),       BAD(ENCODING)},
    {"B05a the mark alone",       TEXT("\xEF\xBB\xBF"),             BAD(ENCODING)},
    {"B05a UTF-16",               TEXT("\xFF\xFE{\0}\0"),           BAD(ENCODING)},
    {"the mark inside a string",  USER("\"\xEF\xBB\xBF\""),         OK("\xEF\xBB\xBF", "a")},
    {"B05b five lines, CRLF",     TEXT("{\r\n  \"user_id\": \"u\",\r\n\t\"ad_id\": \"a\",\n  \"ts\": " NOW "\r\n}\r\n"), OK("u", "a")},
    {"B05c two documents",        TEXT(GOOD "\n" GOOD),             BAD(JSON)},
    {"B05c without a newline",    TEXT(GOOD GOOD),                  BAD(JSON)},
    {"B05d array",                TEXT("[" GOOD "," GOOD "]"),      BAD(NOT_OBJECT)},
    {"B05e trailing brace",       TEXT(GOOD "}"),                   BAD(JSON)},
    {"B05f zero bytes",           TEXT(""),                         BAD(EMPTY)},
    {"B05g the word null",        TEXT("null"),                     BAD(NOT_OBJECT)},
    {"true",                      TEXT("true"),                     BAD(NOT_OBJECT)},
    {"a number",                  TEXT("12"),                       BAD(NOT_OBJECT)},
    {"a big number",              TEXT("1e5"),                      BAD(NOT_OBJECT)},
    {"a string",                  TEXT("\"user_id\""),              BAD(NOT_OBJECT)},
    {"empty array",               TEXT(" [ ] "),                    BAD(NOT_OBJECT)},
    {"empty object",              TEXT("{}"),                       BAD(MISSING_FIELD)},
    {"white space only",          TEXT(" \n "),                     BAD(JSON)},
    {"trailing NUL",              TEXT(GOOD "\0"),                  BAD(JSON)},
    {"leading NUL, short",        TEXT("\0{}"),                     BAD(JSON)},
    {"cut short",                 TEXT("{\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":1"), BAD(JSON)},
    {"B05e trailing quote",       TEXT(GOOD "\""),                  BAD(JSON)},
    {"B05e trailing open string", TEXT(GOOD " \"a\\"),              BAD(JSON)},
    {"B05e trailing words",       TEXT(GOOD " tru"),                BAD(JSON)},
    {"B05e trailing minus",       TEXT(GOOD "-"),                   BAD(JSON)},
    {"a number, then a quote",    TEXT("1\""),                      BAD(JSON)},
    {"a number, then space",      TEXT(" 1 "),                      BAD(NOT_OBJECT)},
    {"cut in a string",           TEXT("{\"user_id\":\"u"),         BAD(JSON)},
    {"cut after a backslash",     TEXT("{\"user_id\":\"u\\"),       BAD(JSON)},
    {"a word",                    TEXT("nul"),                      BAD(JSON)},
    {"comment",                   TEXT("/**/" GOOD),                BAD(JSON)},
    {"line comment",              TEXT(GOOD "//"),                  BAD(JSON)},
    {"trailing comma",            WITH("[1,]"),                     BAD(JSON)},
    {"trailing comma in object",  WITH("{\"a\":1,}"),               BAD(JSON)},
    {"missing comma",             WITH("[1 2]"),                    BAD(JSON)},
    {"missing colon",             WITH("{\"a\" 1}"),                BAD(JSON)},
    {"single quotes",             WITH("'a'"),                      BAD(JSON)},
    {"bare key",                  WITH("{a:1}"),                    BAD(JSON)},
    {"number as key",             WITH("{1:1}"),                    BAD(JSON)},
    {"mixed brackets",            WITH("[}"),                       BAD(JSON)},
    {"NaN",                       WITH("NaN"),                      BAD(JSON)},
    {"Infinity",                  WITH("-Infinity"),                BAD(JSON)},
    {"nan",                       WITH("nan"),                      BAD(JSON)},
    {"True",                      WITH("True"),                     BAD(JSON)},
    {"01",                        WITH("01"),                       BAD(JSON)},
    {"-01",                       WITH("-01"),                      BAD(JSON)},
    {"+1",                        WITH("+1"),                       BAD(JSON)},
    {".5",                        WITH(".5"),                       BAD(JSON)},
    {"1.",                        WITH("1."),                       BAD(JSON)},
    {"1.e5",                      WITH("1.e5"),                     BAD(JSON)},
    {"1e",                        WITH("1e"),                       BAD(JSON)},
    {"1e+",                       WITH("1e+"),                      BAD(JSON)},
    {"-",                         WITH("-"),                        BAD(JSON)},
    {"0x10",                      WITH("0x10"),                     BAD(JSON)},
    {"-0.0E-0",                   WITH("-0.0E-0"),                  OK("u", "a")},
    {"\\x41",                     WITH("\"\\x41\""),                BAD(JSON)},
    {"\\u12",                     WITH("\"\\u12\""),                BAD(JSON)},
    {"\\u12G4",                   WITH("\"\\u12G4\""),              BAD(JSON)},
    {"\\U0041",                   WITH("\"\\U0041\""),              BAD(JSON)},
    {"raw newline in a string",   WITH("\"a\nb\""),                 BAD(JSON)},
    {"raw tab in a string",       WITH("\"a\tb\""),                 BAD(JSON)},
    {"raw NUL in a string",       WITH("\"a\0b\""),                 BAD(JSON)},
    {"raw 1F in a string",        WITH("\"a\x1F" "b\""),            BAD(JSON)},
    {"raw 7F in a string",        WITH("\"a\x7F" "b\""),            OK("u", "a")},
    {"NUL escape, not read",      WITH("\"\\u0000\""),              OK("u", "a")},
    {"NUL escape in an unread key", WITH("{\"\\u0000\":1}"),        OK("u", "a")},
    {"vertical tab as space",     TEXT("\v" GOOD),                  BAD(JSON)},
    {"form feed as space",        TEXT(GOOD "\f"),                  BAD(JSON)},
    {"vertical tab in a string",  WITH("\"a\vb\""),                 BAD(JSON)},
    {"no-break space as space",   TEXT("\xC2\xA0" GOOD),            BAD(JSON)},
    {"UTF-8: C0 AF",              WITH("\"\xC0\xAF\""),             BAD(ENCODING)},
    {"UTF-8: C1 BF",              WITH("\"\xC1\xBF\""),             BAD(ENCODING)},
    {"UTF-8: E0 9F BF",           WITH("\"\xE0\x9F\xBF\""),         BAD(ENCODING)},
    {"UTF-8: ED A0 80",           WITH("\"\xED\xA0\x80\""),         BAD(ENCODING)},
    {"UTF-8: ED 9F BF",           WITH("\"\xED\x9F\xBF\""),         OK("u", "a")},
    {"UTF-8: F0 8F BF BF",        WITH("\"\xF0\x8F\xBF\xBF\""),     BAD(ENCODING)},
    {"UTF-8: F4 90 80 80",        WITH("\"\xF4\x90\x80\x80\""),     BAD(ENCODING)},
    {"UTF-8: F5",                 WITH("\"\xF5\x80\x80\x80\""),     BAD(ENCODING)},
    {"UTF-8: FF",                 WITH("\"\xFF\""),                 BAD(ENCODING)},
    {"UTF-8: 80 alone",           WITH("\"\x80\""),                 BAD(ENCODING)},
    {"UTF-8: E2 82, then a quote", WITH("\"\xE2\x82\""),            BAD(ENCODING)},
    {"UTF-8: E2 at the end",      TEXT(GOOD "\xE2"),                BAD(ENCODING)},
    {"UTF-8: F0 9F 98 at the end", TEXT(GOOD "\xF0\x9F\x98"),       BAD(ENCODING)},
    {"UTF-8 in a key",            TEXT("{\"\xC3\x28\":1}"),         BAD(ENCODING)},
    {"lone high surrogate",       WITH("\"\\uD83D\""),              BAD(ENCODING)},
    {"lone low surrogate",        WITH("\"\\uDE00\""),              BAD(ENCODING)},
    {"low, then high",            WITH("\"\\uDE00\\uD83D\""),       BAD(ENCODING)},
    {"high, high",                WITH("\"\\uD83D\\uD83D\""),       BAD(ENCODING)},
    {"high, then another escape", WITH("\"\\uD83D\\n\""),           BAD(ENCODING)},
    {"high, then text",           WITH("\"\\uD83DDE00\""),          BAD(ENCODING)},
    {"high at the end",           TEXT("{\"\\uD83D"),               BAD(ENCODING)},
    {"pair, then a lone low",     WITH("\"\\uD83D\\uDE00\\uDE00\""), BAD(ENCODING)},
    {"escaped backslash before u", WITH("\"\\\\uD83D\""),           OK("u", "a")},
    {"two backslashes, then a lone one", WITH("\"\\\\\\uD83D\""),   BAD(ENCODING)},
    {"a lone one in a key",       TEXT("{\"\\udfff\":1}"),          BAD(ENCODING)},
};

static const struct decode_case priority_cases[] = {
    {"B07a user twice",           TEXT("{\"user_id\":\"x\",\"user_id\":\"y\",\"ad_id\":\"a\",\"ts\":" NOW "}"), BAD(REPEATED_KEY)},
    {"B07a with the same value",  TEXT("{\"user_id\":\"x\",\"user_id\":\"x\",\"ad_id\":\"a\",\"ts\":" NOW "}"), BAD(REPEATED_KEY)},
    {"B07b equal after unescaping", TEXT("{\"user_id\":\"x\",\"user\\u005fid\":\"y\",\"ad_id\":\"a\",\"ts\":" NOW "}"), BAD(REPEATED_KEY)},
    {"B07c repeated, not read",   WITH("{\"k\":1,\"k\":2}"),        OK("u", "a")},
    {"B07c on the top level",     TEXT("{\"k\":1,\"user_id\":\"u\",\"k\":2,\"ad_id\":\"a\",\"ts\":" NOW "}"), OK("u", "a")},
    {"time twice",                TEXT("{\"user_id\":\"x\",\"ts\":1,\"ad_id\":\"a\",\"ts\":" NOW "}"), BAD(REPEATED_KEY)},
    {"null, then a value",        TEXT("{\"user_id\":null,\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":" NOW "}"), BAD(REPEATED_KEY)},
    {"object, then a value",      TEXT("{\"user_id\":{\"ad_id\":1},\"user_id\":\"u\",\"ad_id\":\"a\",\"ts\":" NOW "}"), BAD(REPEATED_KEY)},
    {"repeated before missing",   TEXT("{\"ts\":1,\"ts\":2}"),      BAD(REPEATED_KEY)},
    {"JSON before repeated",      TEXT("{\"ts\":1,\"ts\":2"),       BAD(JSON)},
    {"encoding before JSON",      TEXT("{\"user_id\":\xFF"),        BAD(ENCODING)},
    {"encoding before depth",     TEXT("\xFF" HUNDRED("[[[")),      BAD(ENCODING)},
    {"depth before JSON",         TEXT(HUNDRED("[[[") "!"),         BAD(DEPTH)},
    {"framing before encoding",   TEXT("\0\0\0\0\7\xFF"),           BAD(FRAMING)},
    {"user before ad",            TEXT("{\"user_id\":1.5,\"ts\":true}"), BAD(BAD_ID)},
    {"ad before time",            TEXT("{\"user_id\":1,\"ad_id\":[],\"ts\":-1}"), BAD(WRONG_TYPE)},
};

static const struct decode_case millisecond_cases[] = {
    {"0",                         TIME("0"),                        OK("u", "a"), -1},
    {"1",                         TIME("1"),                        OK("u", "a"), 1},
    {"the last one",              TIME("253402300799999"),          OK("u", "a"), 253402300799999},
    {"year 10000",                TIME("253402300800000"),          BAD(BAD_TIME)},
    {"2^63",                      TIME("9223372036854775808"),      BAD(BAD_TIME)},
    {"2^64 + 1",                  TIME("18446744073709551617"),     BAD(BAD_TIME)},
    {"100 digits",                TIME(HUNDRED("1")),               BAD(BAD_TIME)},
    {"-1",                        TIME("-1"),                       BAD(BAD_TIME)},
    {"-0",                        TIME("-0"),                       BAD(BAD_TIME)},
    {"fraction",                  TIME(NOW ".0"),                   BAD(BAD_TIME)},
    {"exponent",                  TIME("1764460800123e0"),          BAD(BAD_TIME)},
    {"text",                      TIME("\"" NOW "\""),              OK("u", "a")},
    {"text with a sign",          TIME("\"+1\""),                   BAD(BAD_TIME)},
    {"text with a space",         TIME("\" 1\""),                   BAD(BAD_TIME)},
    {"text with NUL",             TIME("\"1\\u0000\""),             BAD(BAD_TIME)},
    {"empty text",                TIME("\"\""),                     BAD(BAD_TIME)},
    {"words",                     TIME("\"2025-11-30T00:00:00Z\""), BAD(BAD_TIME)},
    {"null",                      TIME("null"),                     BAD(WRONG_TYPE)},
    {"true",                      TIME("true"),                     BAD(WRONG_TYPE)},
    {"object",                    TIME("{}"),                       BAD(WRONG_TYPE)},
    {"array",                     TIME("[1]"),                      BAD(WRONG_TYPE)},
};

static const struct decode_case second_cases[] = {
    {"plain",                     TIME("1764460800"),               OK("u", "a"), 1764460800000},
    {"the last one",              TIME("253402300799"),             OK("u", "a"), 253402300799000},
    {"year 10000",                TIME("253402300800"),             BAD(BAD_TIME)},
    {"milliseconds by mistake",   TIME(NOW),                        BAD(BAD_TIME)},
    {"2^64 / 1000 + 1",           TIME("18446744073709552"),        BAD(BAD_TIME)},
    {"fraction",                  TIME("1764460800.5"),             BAD(BAD_TIME)},
};

static const struct decode_case microsecond_cases[] = {
    {"cut",                       TIME(NOW "999"),                  OK("u", "a")},
    {"exact",                     TIME(NOW "000"),                  OK("u", "a")},
    {"below a millisecond",       TIME("999"),                      OK("u", "a"), -1},
    {"one",                       TIME("1000"),                     OK("u", "a"), 1},
    {"the last one",              TIME("253402300799999999"),       OK("u", "a"), 253402300799999},
    {"year 10000",                TIME("253402300800000000"),       BAD(BAD_TIME)},
    {"junk where it is cut",      TIME("\"" NOW "9x9\""),           BAD(BAD_TIME)},
};

static const struct decode_case nanosecond_cases[] = {
    {"cut",                       TIME(NOW "999999"),               OK("u", "a")},
    {"one",                       TIME("1"),                        OK("u", "a"), -1},
    {"beyond 2^63",               TIME("9223372036854775808"),      OK("u", "a"), 9223372036854},
    {"beyond 2^64",               TIME("18446744073709551616"),     OK("u", "a"), 18446744073709},
    {"the last one",              TIME("253402300799999999999"),    OK("u", "a"), 253402300799999},
    {"year 10000",                TIME("253402300800000000000"),    BAD(BAD_TIME)},
};

#define ISO(text) TIME("\"" text "\"")
static const struct decode_case iso_cases[] = {
    {"UTC",                       ISO("2025-11-30T00:00:00.123Z"),  OK("u", "a")},
    {"the epoch",                 ISO("1970-01-01T00:00:00Z"),      OK("u", "a"), -1},
    {"the last one",              ISO("9999-12-31T23:59:59.999999Z"), OK("u", "a"), 253402300799999},
    {"beyond it by its offset",   ISO("9999-12-31T23:59:59-00:01"), BAD(BAD_TIME)},
    {"before 1970",               ISO("1969-12-31T23:59:59.999Z"),  BAD(BAD_TIME)},
    {"before 1970 by its offset", ISO("1970-01-01T00:59:59+01:00"), BAD(BAD_TIME)},
    {"1970 by its offset",        ISO("1969-12-31T23:00:00.001-01:00"), OK("u", "a"), 1},
    {"year 0",                    ISO("0000-01-01T00:00:00Z"),      BAD(BAD_TIME)},
    {"east",                      ISO("2025-11-30T05:30:00.123+05:30"), OK("u", "a")},
    {"west",                      ISO("2025-11-29T16:00:00.123-0800"), OK("u", "a")},
    {"hours only",                ISO("2025-11-30T01:00:00.123+01"), OK("u", "a")},
    {"-00:00",                    ISO("2025-11-30T00:00:00.123-00:00"), OK("u", "a")},
    {"escaped",                   ISO("2025-11-30T00:00:00.123\\u002B00:00"), OK("u", "a")},
    {"lower case",                ISO("2025-11-30t00:00:00.123z"),  OK("u", "a")},
    {"a space between",           ISO("2025-11-30 00:00:00.123Z"),  OK("u", "a")},
    {"a comma",                   ISO("2025-11-30T00:00:00,123Z"),  OK("u", "a")},
    {"nanoseconds are cut",       ISO("2025-11-30T00:00:00.123999999Z"), OK("u", "a")},
    {"one digit",                 ISO("2025-11-30T00:00:00.1Z"),    OK("u", "a"), NOW_MS - 23},
    {"60 digits",                 ISO("2025-11-30T00:00:00.123" DIGITS_64 "Z"), OK("u", "a")},
    {"no fraction",               ISO("2025-11-30T00:00:00Z"),      OK("u", "a"), NOW_MS - 123},
    {"no seconds",                ISO("2025-11-30T00:01Z"),         OK("u", "a"), NOW_MS - 123 + 60000},
    {"leap day",                  ISO("2024-02-29T00:00:00Z"),      OK("u", "a"), 1709164800000},
    {"the day after",             ISO("2024-03-01T00:00:00Z"),      OK("u", "a"), 1709251200000},
    {"leap day of 2000",          ISO("2000-02-29T12:00:00Z"),      OK("u", "a"), 951825600000},
    {"no leap day in 2100",       ISO("2100-02-29T00:00:00Z"),      BAD(BAD_TIME)},
    {"after it",                  ISO("2100-03-01T00:00:00Z"),      OK("u", "a"), 4107542400000},
    {"no leap day in 2025",       ISO("2025-02-29T00:00:00Z"),      BAD(BAD_TIME)},
    {"31 April",                  ISO("2025-04-31T00:00:00Z"),      BAD(BAD_TIME)},
    {"day 0",                     ISO("2025-04-00T00:00:00Z"),      BAD(BAD_TIME)},
    {"month 0",                   ISO("2025-00-01T00:00:00Z"),      BAD(BAD_TIME)},
    {"month 13",                  ISO("2025-13-01T00:00:00Z"),      BAD(BAD_TIME)},
    {"24:00",                     ISO("2025-11-30T24:00:00Z"),      BAD(BAD_TIME)},
    {"minute 60",                 ISO("2025-11-30T00:60:00Z"),      BAD(BAD_TIME)},
    {"leap second",               ISO("2016-12-31T23:59:60Z"),      BAD(BAD_TIME)},
    {"no offset",                 ISO("2025-11-30T00:00:00"),       BAD(BAD_TIME)},
    {"a dot, no fraction",        ISO("2025-11-30T00:00:00.Z"),     BAD(BAD_TIME)},
    {"date only",                 ISO("2025-11-30"),                BAD(BAD_TIME)},
    {"date and offset",           ISO("2025-11-30Z"),               BAD(BAD_TIME)},
    {"basic format",              ISO("20251130T000000Z"),          BAD(BAD_TIME)},
    {"offset with a bare colon",  ISO("2025-11-30T00:00:00+01:"),   BAD(BAD_TIME)},
    {"offset of three digits",    ISO("2025-11-30T00:00:00+013"),   BAD(BAD_TIME)},
    {"offset of 24 hours",        ISO("2025-11-30T00:00:00+24:00"), BAD(BAD_TIME)},
    {"offset minute 60",          ISO("2025-11-30T00:00:00+01:60"), BAD(BAD_TIME)},
    {"a typographic minus",       ISO("2025-11-30T00:00:00\xE2\x88\x92" "01:00"), BAD(BAD_TIME)},
    {"something behind",          ISO("2025-11-30T00:00:00Z "),     BAD(BAD_TIME)},
    {"NUL behind",                ISO("2025-11-30T00:00:00Z\\u0000"), BAD(BAD_TIME)},
    {"a zone by name",            ISO("2025-11-30T00:00:00Z[UTC]"), BAD(BAD_TIME)},
    {"two-digit year",            ISO("25-11-30T00:00:00Z"),        BAD(BAD_TIME)},
    {"empty",                     ISO(""),                          BAD(BAD_TIME)},
    {"digits",                    ISO(NOW),                         BAD(BAD_TIME)},
    {"a number",                  TIME(NOW),                        BAD(WRONG_TYPE)},
    {"null",                      TIME("null"),                     BAD(WRONG_TYPE)},
};

/* user u.id, ad u.ad.n, time "a.b" */
#define REST ",\"a.b\":" NOW "}"
static const struct decode_case path_cases[] = {
    {"plain",                     TEXT("{\"u\":{\"id\":\"x\",\"ad\":{\"n\":\"y\"}}" REST), OK("x", "y")},
    {"any order, unread around",  TEXT("{\"q\":{\"id\":1,\"u\":{\"id\":2}},\"u\":{\"p\":[{\"id\":3}],\"ad\":{\"m\":{\"n\":4},\"n\":\"y\"},\"z\":{},\"id\":\"x\"},\"n\":5" REST), OK("x", "y")},
    {"escaped keys",              TEXT("{\"\\u0075\":{\"i\\u0064\":\"x\",\"ad\":{\"n\":\"y\"}}" REST), OK("x", "y")},
    {"after a nested unread object of the same name", TEXT("{\"u\":{\"x\":{\"id\":1,\"id\":2},\"id\":\"x\",\"ad\":{\"n\":\"y\"}}" REST), OK("x", "y")},
    {"B07d parent twice",         TEXT("{\"u\":{\"id\":\"x\"},\"u\":{\"id\":\"y\",\"ad\":{\"n\":1}}" REST), BAD(REPEATED_KEY)},
    {"B07d parent twice, once a number", TEXT("{\"u\":1,\"u\":{\"id\":\"y\",\"ad\":{\"n\":1}}" REST), BAD(REPEATED_KEY)},
    {"B07d middle twice",         TEXT("{\"u\":{\"id\":\"x\",\"ad\":{\"n\":1},\"ad\":{}}" REST), BAD(REPEATED_KEY)},
    {"B07d leaf twice",           TEXT("{\"u\":{\"id\":\"x\",\"ad\":{\"n\":1,\"n\":1}}" REST), BAD(REPEATED_KEY)},
    {"parent absent",             TEXT("{\"v\":1" REST),             BAD(MISSING_FIELD)},
    {"parent null",               TEXT("{\"u\":null" REST),          BAD(MISSING_FIELD)},
    {"parent a number",           TEXT("{\"u\":7" REST),             BAD(MISSING_FIELD)},
    {"parent an array of objects", TEXT("{\"u\":[{\"id\":\"x\",\"ad\":{\"n\":1}}]" REST), BAD(MISSING_FIELD)},
    {"a flat key with a dot",     TEXT("{\"u.id\":\"x\",\"u\":{\"ad\":{\"n\":1}}" REST), BAD(MISSING_FIELD)},
    {"a nested a, b",             TEXT("{\"u\":{\"id\":1,\"ad\":{\"n\":1}},\"a\":{\"b\":1}}"), BAD(MISSING_FIELD)},
    {"the leaf is an object",     TEXT("{\"u\":{\"id\":{\"id\":1},\"ad\":{\"n\":1}}" REST), BAD(WRONG_TYPE)},
};

/* user "@key", ad "a\b", time "é" */
static const struct decode_case odd_key_cases[] = {
    {"plain",                     TEXT("{\"@key\":\"x\",\"a\\\\b\":\"y\",\"\xC3\xA9\":" NOW "}"), OK("x", "y")},
    {"escaped",                   TEXT("{\"\\u0040key\":\"x\",\"a\\u005cb\":\"y\",\"\\u00E9\":" NOW "}"), OK("x", "y")},
    {"another e",                 TEXT("{\"@key\":\"x\",\"a\\\\b\":\"y\",\"e\":" NOW "}"), BAD(MISSING_FIELD)},
};

/* e.type is one of: impression 7 true -0 1e3 é */
#define TYPE(text) TEXT("{\"user_id\":\"u\",\"e\":{\"type\":" text "},\"ad_id\":\"a\",\"ts\":" NOW "}")
static const struct decode_case filter_cases[] = {
    {"text",                      TYPE("\"impression\""),          OK("u", "a")},
    {"escaped text",              TYPE("\"\\u0069mpression\""),    OK("u", "a")},
    {"UTF-8",                     TYPE("\"\\u00e9\""),             OK("u", "a")},
    {"number",                    TYPE("7"),                       OK("u", "a")},
    {"number as text",            TYPE("\"7\""),                   OK("u", "a")},
    {"true",                      TYPE("true"),                    OK("u", "a")},
    {"the word true",             TYPE("\"true\""),                OK("u", "a")},
    {"-0 by its text",            TYPE("-0"),                      OK("u", "a")},
    {"1e3 by its text",           TYPE("1e3"),                     OK("u", "a")},
    {"1000 is another text",      TYPE("1000"),                    BAD(FILTERED)},
    {"7.0 is another text",       TYPE("7.0"),                     BAD(FILTERED)},
    {"other text",                TYPE("\"click\""),               BAD(FILTERED)},
    {"longer text",               TYPE("\"impressions\""),         BAD(FILTERED)},
    {"NUL behind",                TYPE("\"impression\\u0000\""),   BAD(FILTERED)},
    {"empty text",                TYPE("\"\""),                    BAD(FILTERED)},
    {"false",                     TYPE("false"),                   BAD(FILTERED)},
    {"null",                      TYPE("null"),                    BAD(FILTERED)},
    {"object",                    TYPE("{\"type\":7}"),            BAD(FILTERED)},
    {"array",                     TYPE("[7]"),                     BAD(FILTERED)},
    {"absent",                    TEXT(GOOD),                      BAD(FILTERED)},
    {"parent a number",           TEXT("{\"e\":7}"),               BAD(FILTERED)},
    {"filtered, the rest absent", TEXT("{\"e\":{\"type\":8}}"),    BAD(FILTERED)},
    {"filtered, the rest broken", TEXT("{\"e\":{\"type\":8},\"user_id\":{},\"user_id\":[],\"ts\":-1}"), BAD(FILTERED)},
    {"passes, the rest repeated", TEXT("{\"e\":{\"type\":7},\"user_id\":1,\"user_id\":1}"), BAD(REPEATED_KEY)},
    {"filter field repeated",     TEXT("{\"e\":{\"type\":8,\"type\":8}}"), BAD(REPEATED_KEY)},
    {"its parent repeated",       TEXT("{\"e\":{\"type\":8},\"e\":{}}"), BAD(REPEATED_KEY)},
    {"filtered, but not JSON",    TEXT("{\"e\":{\"type\":8}"),     BAD(JSON)},
};

/* zzz, the id of zeros, 0 and b are ignored */
static const struct decode_case ignore_cases[] = {
    {"B32 zeros",                 USER("\"00000000-0000-0000-0000-000000000000\""), BAD(IGNORED_USER)},
    {"zeros, one less",           USER("\"00000000-0000-0000-0000-00000000000\""), OK("00000000-0000-0000-0000-00000000000", "a")},
    {"the number 0",              USER("0"),                       BAD(IGNORED_USER)},
    {"the text 0",                USER("\"0\""),                   BAD(IGNORED_USER)},
    {"-0 is another id",          USER("-0"),                      OK("-0", "a")},
    {"escaped",                   USER("\"\\u0062\""),             BAD(IGNORED_USER)},
    {"case matters",              USER("\"B\""),                   OK("B", "a")},
    {"zzz",                       USER("\"zzz\""),                 BAD(IGNORED_USER)},
    {"zz",                        USER("\"zz\""),                  OK("zz", "a")},
    {"ignored, the rest broken",  TEXT("{\"user_id\":\"b\",\"ts\":[]}"), BAD(IGNORED_USER)},
    {"ignored, but repeated",     TEXT("{\"user_id\":\"b\",\"user_id\":\"b\"}"), BAD(REPEATED_KEY)},
};

/* Keys of records, as users. */
struct key_case {
    const char *name;
    struct fcap_bytes key;
    enum fcap_reject reject;
};

static const struct key_case key_cases[] = {
    {"plain",          TEXT("u1"),            FCAP_REJECT_NONE},
    {"digits",         TEXT("0017"),          FCAP_REJECT_NONE},
    {"UTF-8",          TEXT("\xE2\x82\xAC"),  FCAP_REJECT_NONE},
    {"quotes stay",    TEXT("\"u\""),         FCAP_REJECT_NONE},
    {"64 bytes",       TEXT(DIGITS_64),       FCAP_REJECT_NONE},
    {"65 bytes",       TEXT(DIGITS_64 "5"),   FCAP_REJECT_BAD_ID},
    {"empty",          TEXT(""),              FCAP_REJECT_BAD_ID},
    {"NUL",            TEXT("u\0"),           FCAP_REJECT_BAD_ID},
    {"invalid UTF-8",  TEXT("12345678\xFF"),  FCAP_REJECT_BAD_ID},
    {"cut UTF-8",      TEXT("\xE2\x82"),      FCAP_REJECT_BAD_ID},
    {"null",           NULL_BYTES,            FCAP_REJECT_NO_KEY},
};

struct timestamp_case {
    int64_t timestamp_ms;
    enum fcap_timestamp_type type;
    enum fcap_reject reject; /* with @timestamp */
};

static const struct timestamp_case timestamp_cases[] = {
    {NOW_MS,                      FCAP_TIMESTAMP_CREATE, FCAP_REJECT_NONE},
    {NOW_MS,                      FCAP_TIMESTAMP_APPEND, FCAP_REJECT_NONE},
    {NOW_MS / 1000,               FCAP_TIMESTAMP_CREATE, FCAP_REJECT_NONE},
    {0,                           FCAP_TIMESTAMP_CREATE, FCAP_REJECT_NONE},
    {NOW_MS + 864000000,          FCAP_TIMESTAMP_CREATE, FCAP_REJECT_NONE},
    {FCAP_DECODE_TIME_MS_MAX,     FCAP_TIMESTAMP_CREATE, FCAP_REJECT_NONE},
    {FCAP_DECODE_TIME_MS_MAX + 1, FCAP_TIMESTAMP_CREATE, FCAP_REJECT_BAD_TIME},
    {-1,                          FCAP_TIMESTAMP_CREATE, FCAP_REJECT_BAD_TIME},
    {-1,                          FCAP_TIMESTAMP_NONE,   FCAP_REJECT_BAD_TIME},
    {NOW_MS,                      FCAP_TIMESTAMP_NONE,   FCAP_REJECT_BAD_TIME},
    {INT64_MIN,                   FCAP_TIMESTAMP_CREATE, FCAP_REJECT_BAD_TIME},
};

struct event_id_case {
    struct fcap_bytes id; /* JSON */
    enum fcap_reject reject;
    const char *text; /* what is hashed */
};

static const struct event_id_case event_id_cases[] = {
    {TEXT("\"e-1\""),     FCAP_REJECT_NONE,       "e-1"},
    {TEXT("\"\\u0065-1\""), FCAP_REJECT_NONE,     "e-1"},
    {TEXT("12"),          FCAP_REJECT_NONE,       "12"},
    {TEXT("\"12\""),      FCAP_REJECT_NONE,       "12"},
    {TEXT("\"" HUNDRED("0123456789") "\""), FCAP_REJECT_NONE, HUNDRED("0123456789")},
    {TEXT("1.5"),         FCAP_REJECT_BAD_ID,     NULL},
    {TEXT("\"\""),        FCAP_REJECT_BAD_ID,     NULL},
    {TEXT("\"\\u0000\""), FCAP_REJECT_BAD_ID,     NULL},
    {TEXT("null"),        FCAP_REJECT_WRONG_TYPE, NULL},
};
/* clang-format on */

#endif
