/* The stored keys and values, byte by byte: what is on disk must be readable by every later
 * version that says so. The examples of docs/DATA.md are the ones checked here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/ads.h"
#include "fcap/chunk.h"
#include "fcap/key.h"
#include "fcap/meta.h"
#include "fcap/user.h"

#include "unit/golden.h"

/* --- keys ---------------------------------------------------------------------------------- */

#define KEY_USER  "00 05 75 31"
#define KEY_CHUNK "00 00 01 8b cf e5 68 00 00 05 00 00 00 00 00 00 00 09 00 01"
#define KEY_AD    "00 05 00 00 00 2a"
#define KEY_META  "00 05 74 61 73 6b"
#define KEY_REDO  "00 05 72 65 64 6f 00 00 00 00 00 00 00 09"

static void test_keys(void **state)
{
    struct fcap_chunk_key chunk = {1700000000000, 5, 9, 1};
    struct fcap_chunk_key read_chunk;
    struct fcap_buffer key = {0};
    struct fcap_bytes user;
    int32_t partition;
    uint32_t number;
    (void)state;
    fcap_key_user(&key, 5, fcap_bytes_of("u1"));
    golden_check(fcap_buffer_bytes(&key), KEY_USER);
    assert_true(fcap_key_read_user(fcap_buffer_bytes(&key), &partition, &user));
    assert_int_equal(partition, 5);
    assert_true(fcap_bytes_equal(user, fcap_bytes_of("u1")));

    fcap_buffer_clear(&key);
    fcap_key_chunk(&key, chunk);
    golden_check(fcap_buffer_bytes(&key), KEY_CHUNK);
    assert_true(fcap_key_read_chunk(fcap_buffer_bytes(&key), &read_chunk));
    assert_int_equal(read_chunk.bucket_ms, 1700000000000);
    assert_int_equal(read_chunk.partition, 5);
    assert_int_equal(read_chunk.commit, 9);
    assert_int_equal(read_chunk.part, 1);

    fcap_buffer_clear(&key);
    fcap_key_ad(&key, 5, 42);
    golden_check(fcap_buffer_bytes(&key), KEY_AD);
    assert_true(fcap_key_read_ad(fcap_buffer_bytes(&key), &partition, &number));
    assert_int_equal(partition, 5);
    assert_int_equal(number, 42);

    fcap_buffer_clear(&key);
    fcap_key_meta(&key, 5, FCAP_META_NAME);
    golden_check(fcap_buffer_bytes(&key), KEY_META);
    fcap_buffer_clear(&key);
    fcap_key_redo(&key, 5, 9);
    golden_check(fcap_buffer_bytes(&key), KEY_REDO);
    fcap_buffer_done(&key);
}

static bool read_key(int kind, struct fcap_bytes key)
{
    struct fcap_chunk_key chunk;
    struct fcap_bytes user;
    int32_t partition;
    uint32_t number;
    return kind == 0   ? fcap_key_read_user(key, &partition, &user)
           : kind == 1 ? fcap_key_read_chunk(key, &chunk)
                       : fcap_key_read_ad(key, &partition, &number);
}

/* A key cut anywhere, or with a byte too many, is no key; a user's may be any length above 2. */
static void test_keys_cut(void **state)
{
    static const char *const keys[] = {KEY_USER, KEY_CHUNK, KEY_AD};
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct fcap_buffer key = {0};
        golden_put(&key, keys[kind]);
        for (size_t size = 0; size < key.size; size++) {
            uint8_t *copy = golden_copy(fcap_buffer_bytes(&key), size);
            assert_int_equal(read_key(kind, (struct fcap_bytes){copy, size}),
                             kind == 0 && size > 2);
            free(copy);
        }
        fcap_buffer_put_u8(&key, 0);
        assert_int_equal(read_key(kind, fcap_buffer_bytes(&key)), kind == 0);
        fcap_buffer_done(&key);
    }
    struct fcap_buffer negative = {0};
    golden_put(&negative, "80 00 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 09 00 01");
    assert_false(read_key(1, fcap_buffer_bytes(&negative)));
    fcap_buffer_done(&negative);
}

/* Byte order is the order of time, then partition, commit and part. */
static void test_key_order(void **state)
{
    static const struct fcap_chunk_key rising[] = {
        {0, 0, 0, 0},   {0, 0, 0, 1},   {0, 0, 1, 0},       {0, 0, 255, 9},
        {0, 0, 256, 0}, {0, 1, 0, 0},   {0, 255, 0, 0},     {0, 256, 0, 0},
        {1, 0, 0, 0},   {255, 0, 0, 0}, {256, 0, 0, 65535}, {INT64_MAX, 0xFFFE, UINT64_MAX, 65535},
    };
    struct fcap_buffer previous = {0};
    struct fcap_buffer key = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rising / sizeof rising[0]; i++) {
        fcap_buffer_clear(&key);
        fcap_key_chunk(&key, rising[i]);
        assert_true(fcap_bytes_compare(fcap_buffer_bytes(&previous), fcap_buffer_bytes(&key)) < 0);
        fcap_buffer_clear(&previous);
        fcap_buffer_put_bytes(&previous, fcap_buffer_bytes(&key));
    }
    fcap_buffer_done(&previous);
    fcap_buffer_done(&key);
}

/* --- chunks -------------------------------------------------------------------------------- */

#define CHUNK "10 00 00 02 75 31 08 05 00 02 75 32 01 ac 02 01 00"
/* with ids; the second event is void */
#define CHUNK_IDS "11 00 00 02 75 31 08 01 02 03 04 05 06 07 08 05 01 00 ff ee dd cc bb aa 99 88"

#define BUCKET_MS 1700000000000

struct reading {
    enum fcap_status status;
    size_t count;
    struct fcap_timer timers[8];
};

static struct reading read_chunk(struct fcap_bytes bytes, int64_t bucket_ms)
{
    struct fcap_chunk_reader reader = {0};
    struct reading reading = {0};
    bool found = true;
    reading.status = fcap_chunk_open(&reader, bytes, bucket_ms);
    while (reading.status == FCAP_OK && found) {
        struct fcap_timer timer;
        reading.status = fcap_chunk_next(&reader, &timer, &found);
        if (reading.status == FCAP_OK && found) {
            assert_true(reading.count < 8);
            reading.timers[reading.count++] = timer;
        }
    }
    fcap_chunk_reader_done(&reader);
    return reading;
}

static void check_chunk(const char *golden, bool has_ids, const struct fcap_timer *timers,
                        size_t count)
{
    struct fcap_buffer buffer = {0};
    struct fcap_chunk_writer writer;
    uint32_t references[2] = {0};
    fcap_chunk_begin(&writer, &buffer, BUCKET_MS, has_ids);
    for (size_t i = 0; i < count; i++) {
        fcap_chunk_add(&writer, &timers[i], &references[timers[i].user.data[1] - '1']);
    }
    golden_check(fcap_buffer_bytes(&buffer), golden);
    golden_documented(golden);
    struct reading reading = read_chunk(fcap_buffer_bytes(&buffer), BUCKET_MS);
    assert_int_equal(reading.status, FCAP_OK);
    assert_int_equal(reading.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(reading.timers[i].time_ms, timers[i].time_ms);
        assert_true(fcap_bytes_equal(reading.timers[i].user, timers[i].user));
        assert_int_equal(reading.timers[i].ad, timers[i].ad);
        assert_int_equal(reading.timers[i].id_hash, has_ids ? timers[i].id_hash : 0);
    }
    /* Cut anywhere: damaged, or whole events from the start. */
    size_t good = 0;
    for (size_t size = 0; size < buffer.size; size++) {
        uint8_t *copy = golden_copy(fcap_buffer_bytes(&buffer), size);
        reading = read_chunk((struct fcap_bytes){copy, size}, BUCKET_MS);
        free(copy);
        assert_true(reading.status == FCAP_OK || reading.status == FCAP_CORRUPT);
        good += reading.status == FCAP_OK;
        assert_true(reading.count < count);
    }
    assert_int_equal(good, count); /* the head alone, and after each event but the last */
    fcap_buffer_done(&buffer);
}

static void test_chunk(void **state)
{
    struct fcap_bytes u1 = fcap_bytes_of("u1");
    struct fcap_bytes u2 = fcap_bytes_of("u2");
    const struct fcap_timer plain[] = {
        {BUCKET_MS, u1, 7, 0}, {BUCKET_MS + 5, u2, 0, 0}, {BUCKET_MS + 305, u1, FCAP_AD_VOID, 0}};
    const struct fcap_timer ids[] = {{BUCKET_MS, u1, 7, 0x0102030405060708},
                                     {BUCKET_MS + 5, u1, FCAP_AD_VOID, 0xFFEEDDCCBBAA9988}};
    (void)state;
    check_chunk(CHUNK, false, plain, 3);
    check_chunk(CHUNK_IDS, true, ids, 2);
}

static void test_chunk_damaged(void **state)
{
    /* clang-format off */
    static const struct {
        const char *hex;
        int64_t bucket_ms;
        enum fcap_status status;
    } rows[] = {
        {"",                                       0, FCAP_CORRUPT},
        {"20",                                     0, FCAP_FORMAT},  /* a newer version */
        {"00",                                     0, FCAP_FORMAT},
        {"12",                                     0, FCAP_FORMAT},  /* weights */
        {"14",                                     0, FCAP_FORMAT},  /* a further dimension */
        {"18",                                     0, FCAP_FORMAT},
        {"10",                                     0, FCAP_OK},      /* no events */
        {"10 00 01 08",                            0, FCAP_CORRUPT}, /* a user not met yet */
        {"10 00 00 00 08",                         0, FCAP_CORRUPT}, /* an empty user */
        {"10 00 00 7f 75 31 08",                   0, FCAP_CORRUPT}, /* a user longer than all */
        {"10 00 00 01 75 80 80 80 80 10",          0, FCAP_CORRUPT}, /* ad beyond 32 bits */
        {"10 00 00 01 75 ff ff ff ff 0f",          0, FCAP_OK},      /* the last ad number */
        {"10 01 00 01 75 08", INT64_MAX,              FCAP_CORRUPT}, /* time beyond 63 bits */
        {"10 ff ff ff ff ff ff ff ff ff 01 00 01 75 08", 0, FCAP_CORRUPT},
    };
    /* clang-format on */
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fcap_buffer bytes = {0};
        golden_put(&bytes, rows[i].hex);
        uint8_t *copy = golden_copy(fcap_buffer_bytes(&bytes), bytes.size);
        struct reading reading =
            read_chunk((struct fcap_bytes){copy, bytes.size}, rows[i].bucket_ms);
        assert_int_equal(reading.status, rows[i].status);
        free(copy);
        fcap_buffer_done(&bytes);
    }
}

/* Many users in one part: a reference of two bytes, and a reader that is used again. */
static void test_chunk_many(void **state)
{
    enum { USERS = 5000, EVENTS = 20000 };
    static uint32_t references[USERS];
    struct fcap_buffer buffer = {0};
    struct fcap_chunk_writer writer;
    struct fcap_chunk_reader reader = {0};
    char name[8];
    (void)state;
    memset(references, 0, sizeof references);
    fcap_chunk_begin(&writer, &buffer, 0, true);
    for (uint32_t i = 0; i < EVENTS; i++) {
        uint32_t user = i * 7919 % USERS;
        (void)snprintf(name, sizeof name, "u%u", user); /* Fits. */
        struct fcap_timer timer = {i / 3, fcap_bytes_of(name), i % 100, i * 31};
        fcap_chunk_add(&writer, &timer, &references[user]);
    }
    for (int round = 0; round < 2; round++) {
        bool found = true;
        assert_int_equal(fcap_chunk_open(&reader, fcap_buffer_bytes(&buffer), 0), FCAP_OK);
        for (uint32_t i = 0; i < EVENTS; i++) {
            struct fcap_timer timer;
            assert_int_equal(fcap_chunk_next(&reader, &timer, &found), FCAP_OK);
            (void)snprintf(name, sizeof name, "u%u", i * 7919 % USERS); /* Fits. */
            assert_true(found && fcap_bytes_equal(timer.user, fcap_bytes_of(name)));
            assert_true(timer.time_ms == i / 3 && timer.ad == i % 100 && timer.id_hash == i * 31);
        }
    }
    fcap_chunk_reader_done(&reader);
    fcap_buffer_done(&buffer);
}

/* --- meta ---------------------------------------------------------------------------------- */

#define META_BODY                                                                                  \
    "00 00 00 00 00 00 00 07 00 00 01 8b cf e5 68 00 01 02 03 04 05 06 07 08 "                     \
    "00 00 01 8b cf e5 6b e8 00 00 01 8b ab d8 e7 e8 80 00 00 00 00 00 00 00 "                     \
    "00 00 00 00 00 00 00 09 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 08 "                     \
    "00 00 01 8b cf e5 6b 84 00 00 01 8b ab d8 e7 84 00 00 00 03 00 00 00 2a "                     \
    "00 00 00 00 00 00 ea 60 00 00 00 0c 00 00 00 00 00 00 00 05 "
/* Grown from 8 partitions. */
#define META_GROWN                                                                                 \
    "00 00 01 8b cf e5 68 00 00 00 01 8b cf ee 8f c0 00 00 01 8b cf e5 40 f0 00 00 00 08 03 "
#define NEVER_GROWN                                                                                \
    "80 00 00 00 00 00 00 00 80 00 00 00 00 00 00 00 80 00 00 00 00 00 00 00 00 00 00 00 00 "
#define META_WINDOW                                                                                \
    "01 00 02 00 00 00 00 05 26 5c 00 02 31 64 01 00 00 01 8b cf e5 68 00 "                        \
    "00 00 01 8b ab d8 e7 e8 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f"

static struct fcap_meta meta_example(void)
{
    struct fcap_meta meta = {
        .next_offset = 7,
        .last_timestamp_ms = 1700000000000,
        .last_key_hash = 0x0102030405060708,
        .clock_ms = 1700000001000,
        .history_ms = 1700000001000 - 7 * 86400000ll,
        .complete_since_ms = FCAP_TIME_NONE,
        .commit = 9,
        .valid_from = 1,
        .redo_from = 8,
        .redo_clock_ms = 1700000000900,
        .redo_history_ms = 1700000000900 - 7 * 86400000ll,
        .next_window = 3,
        .next_ad = 42,
        .bucket_ms = 60000,
        .partition_count = 12,
        .epoch = 5,
        .grown_ms = 1700000000000,
        .moved_until_ms = 1700000600000,
        .counted_ms = 1699999990000,
        .grown_from = 8,
        .settle_due = true,
        .look_due = true,
        .window_count = 1,
        .windows = {{.number = 2,
                     .length_ms = 86400000,
                     .name = "1d",
                     .building = true,
                     .head_ms = 1700000000000,
                     .complete_since_ms = 1700000001000 - 7 * 86400000ll}},
    };
    for (uint8_t i = 0; i < 16; i++) {
        meta.windows[0].projected_to.bytes[i] = i;
    }
    return meta;
}

static void test_meta(void **state)
{
    static struct fcap_meta meta;
    static struct fcap_meta back;
    struct fcap_buffer buffer = {0};
    struct fcap_buffer again = {0};
    (void)state;
    meta = meta_example();
    fcap_meta_encode(&meta, &buffer);
    golden_check(fcap_buffer_bytes(&buffer), "02 " META_BODY META_GROWN META_WINDOW);
    assert_int_equal(fcap_meta_decode(fcap_buffer_bytes(&buffer), &back), FCAP_OK);
    assert_memory_equal(&back, &meta, offsetof(struct fcap_meta, windows));
    fcap_meta_encode(&back, &again);
    assert_true(fcap_bytes_equal(fcap_buffer_bytes(&again), fcap_buffer_bytes(&buffer)));
    for (size_t size = 0; size < buffer.size; size++) {
        uint8_t *copy = golden_copy(fcap_buffer_bytes(&buffer), size);
        assert_int_equal(fcap_meta_decode((struct fcap_bytes){copy, size}, &back), FCAP_CORRUPT);
        free(copy);
    }
    fcap_buffer_put_u8(&buffer, 0);
    assert_int_equal(fcap_meta_decode(fcap_buffer_bytes(&buffer), &back), FCAP_CORRUPT);
    buffer.data[0] = 3;
    assert_int_equal(fcap_meta_decode(fcap_buffer_bytes(&buffer), &back), FCAP_FORMAT);
    fcap_buffer_done(&buffer);
    fcap_buffer_done(&again);
}

/* Of the time before partitions could be added: it is read, and written as it is now. */
static void test_meta_of_version_1(void **state)
{
    static struct fcap_meta meta;
    static struct fcap_meta back;
    struct fcap_buffer buffer = {0};
    (void)state;
    meta = meta_example();
    meta.grown_ms = FCAP_TIME_NONE;
    meta.moved_until_ms = FCAP_TIME_NONE;
    meta.counted_ms = FCAP_TIME_NONE;
    meta.grown_from = 0;
    meta.settle_due = false;
    meta.look_due = false;
    golden_put(&buffer, "01 " META_BODY META_WINDOW);
    assert_int_equal(fcap_meta_decode(fcap_buffer_bytes(&buffer), &back), FCAP_OK);
    assert_memory_equal(&back, &meta, offsetof(struct fcap_meta, windows));
    assert_string_equal(back.windows[0].name, "1d");
    fcap_buffer_clear(&buffer);
    fcap_meta_encode(&back, &buffer);
    golden_check(fcap_buffer_bytes(&buffer), "02 " META_BODY NEVER_GROWN META_WINDOW);
    fcap_buffer_done(&buffer);
}

static void test_meta_windows(void **state)
{
    static struct fcap_meta meta;
    static struct fcap_meta back;
    struct fcap_buffer buffer = {0};
    (void)state;
    meta = meta_example();
    meta.window_count = FCAP_WINDOWS_MAX;
    for (size_t i = 0; i < FCAP_WINDOWS_MAX; i++) {
        meta.windows[i] = meta.windows[0];
        meta.windows[i].number = (uint16_t)(7 * i);
        meta.windows[i].length_ms = 1000 * (int64_t)(i + 1);
        meta.windows[i].building = i % 3 == 0;
        meta.windows[i].shown = i % 2 == 1;
        meta.windows[i].taken = i % 5 == 1;
        memset(meta.windows[i].name, 'a' + (int)i, FCAP_WINDOW_NAME_MAX);
        meta.windows[i].name[2 * i + 1] = '\0';
    }
    fcap_meta_encode(&meta, &buffer);
    assert_int_equal(fcap_meta_decode(fcap_buffer_bytes(&buffer), &back), FCAP_OK);
    for (size_t i = 0; i < FCAP_WINDOWS_MAX; i++) {
        assert_int_equal(back.windows[i].number, 7 * i);
        assert_int_equal(back.windows[i].length_ms, 1000 * (i + 1));
        assert_string_equal(back.windows[i].name, meta.windows[i].name);
        assert_int_equal(back.windows[i].building, i % 3 == 0);
        assert_int_equal(back.windows[i].shown, i % 2 == 1);
        assert_int_equal(back.windows[i].taken, i % 5 == 1);
    }
    buffer.data[159] |= 8; /* the first window's flags: one that nobody knows */
    assert_int_equal(fcap_meta_decode(fcap_buffer_bytes(&buffer), &back), FCAP_CORRUPT);
    buffer.data[159] &= (uint8_t)~8;
    buffer.data[146] = FCAP_WINDOWS_MAX + 1; /* the number of windows */
    assert_int_equal(fcap_meta_decode(fcap_buffer_bytes(&buffer), &back), FCAP_CORRUPT);
    fcap_buffer_done(&buffer);
}

/* --- ads ----------------------------------------------------------------------------------- */

#define AD_VALUE "db 99 01 61 31"

static void test_ad(void **state)
{
    struct fcap_ads ads;
    struct fcap_buffer buffer = {0};
    struct fcap_bytes id;
    int32_t day;
    (void)state;
    fcap_ads_init(&ads, 0);
    struct fcap_ad *ad = fcap_ads_add(&ads, 42, fcap_bytes_of("a1"), fcap_ads_day(1700000000000));
    fcap_ad_encode(ad, &buffer);
    golden_check(fcap_buffer_bytes(&buffer), AD_VALUE);
    assert_true(fcap_ad_decode(fcap_buffer_bytes(&buffer), &day, &id));
    assert_int_equal(day, 19675);
    assert_true(fcap_bytes_equal(id, fcap_bytes_of("a1")));
    for (size_t size = 0; size < buffer.size; size++) {
        uint8_t *copy = golden_copy(fcap_buffer_bytes(&buffer), size);
        assert_int_equal(fcap_ad_decode((struct fcap_bytes){copy, size}, &day, &id), size == 4);
        free(copy);
    }
    fcap_buffer_clear(&buffer);
    golden_put(&buffer, "80 80 80 80 08 61"); /* a day beyond 31 bits */
    assert_false(fcap_ad_decode(fcap_buffer_bytes(&buffer), &day, &id));
    fcap_buffer_clear(&buffer);
    fcap_buffer_put_u8(&buffer, 0);
    memset(fcap_buffer_reserve(&buffer, UINT16_MAX + 1), 'a', UINT16_MAX + 1);
    buffer.size += UINT16_MAX;
    assert_true(fcap_ad_decode(fcap_buffer_bytes(&buffer), &day, &id));
    buffer.size++; /* longer than any id may be */
    assert_false(fcap_ad_decode(fcap_buffer_bytes(&buffer), &day, &id));
    fcap_buffer_done(&buffer);
    fcap_ads_done(&ads);
}

static void test_documented(void **state)
{
    static const char *const shown[] = {KEY_USER, KEY_CHUNK, KEY_AD, KEY_META, KEY_REDO, AD_VALUE};
    (void)state;
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        golden_documented(shown[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),         cmocka_unit_test(test_keys_cut),
        cmocka_unit_test(test_key_order),    cmocka_unit_test(test_chunk),
        cmocka_unit_test(test_chunk_many),   cmocka_unit_test(test_chunk_damaged),
        cmocka_unit_test(test_meta),         cmocka_unit_test(test_meta_of_version_1),
        cmocka_unit_test(test_meta_windows), cmocka_unit_test(test_ad),
        cmocka_unit_test(test_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
