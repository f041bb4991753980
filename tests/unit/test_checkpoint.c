/* The manifest: its bytes, and that no other bytes are taken for one; names and checksums. */
#include "fcap/checkpoint.h"

#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LINEAGE "000102030405060708090a0b0c0d0e0f"
#define PREFIX  "days/pod-0/"
static const char *const manifest[] = {
    "fcap-checkpoint 1\n",
    "number 7\n",
    "made 1700000120000\n",
    "profile days\n",
    "instance pod-0\n",
    "lineage " LINEAGE "\n",
    "snapshot 41 1700000000000\n",
    "sequence 44 1700000119000\n",
    "file 000012.sst 67108864 00000000000000ff " PREFIX "file-" LINEAGE
    "-00000000000000000003-000012.sst\n",
    "file CURRENT 16 0123456789abcdef " PREFIX "file-" LINEAGE "-00000000000000000003-CURRENT\n",
    "segment 40 43 4096 1111111111111111 " PREFIX "changelog-" LINEAGE
    "-00000000000000000040-00000000000000000000\n",
    "segment 44 44 128 2222222222222222 " PREFIX "changelog-" LINEAGE
    "-00000000000000000044-00000000000000000001\n",
    "partition 0 9 1200 1700000118950\n",
    "partition 5 3 0 -1\n",
    "end 99eb1a7dbd3221aa\n",
};
enum { LINES = sizeof manifest / sizeof manifest[0], HASH_DIGITS = 16 };

static const struct fcap_lineage lineage = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

static void fill(struct fcap_checkpoint *checkpoint)
{
    struct fcap_checkpoint_file file = {.size = 67108864, .hash = 0xff};
    struct fcap_checkpoint_segment segment = {
        .first = 40, .last = 43, .size = 4096, .hash = 0x1111111111111111};
    *checkpoint = (struct fcap_checkpoint){
        .number = 7,
        .made_ms = 1700000120000,
        .profile = "days",
        .instance = "pod-0",
        .lineage = lineage,
        .snapshot_sequence = 41,
        .snapshot_ms = 1700000000000,
        .sequence = 44,
        .written_ms = 1700000119000,
    };
    (void)snprintf(file.name, sizeof file.name, "000012.sst");
    (void)fcap_checkpoint_file_name(PREFIX, file.name, &lineage, 3, file.object);
    fcap_checkpoint_add_file(checkpoint, &file);
    (void)snprintf(file.name, sizeof file.name, "CURRENT");
    (void)fcap_checkpoint_file_name(PREFIX, file.name, &lineage, 3, file.object);
    file.size = 16;
    file.hash = 0x0123456789abcdef;
    fcap_checkpoint_add_file(checkpoint, &file);
    (void)fcap_checkpoint_segment_name(PREFIX, 40, &lineage, 0, segment.object);
    fcap_checkpoint_add_segment(checkpoint, &segment);
    segment = (struct fcap_checkpoint_segment){
        .first = 44, .last = 44, .size = 128, .hash = 0x2222222222222222};
    (void)fcap_checkpoint_segment_name(PREFIX, 44, &lineage, 1, segment.object);
    fcap_checkpoint_add_segment(checkpoint, &segment);
    fcap_checkpoint_set_partition(checkpoint, &(struct fcap_checkpoint_partition){5, 2, 9, 9});
    fcap_checkpoint_set_partition(checkpoint,
                                  &(struct fcap_checkpoint_partition){0, 9, 1200, 1700000118950});
    fcap_checkpoint_set_partition(checkpoint, &(struct fcap_checkpoint_partition){5, 3, 0, -1});
}

/* The lines, one of them replaced (`line` LINES: none; "": left out), with the right checksum. */
static void put_lines(struct fcap_buffer *buffer, size_t line, const char *text)
{
    char end[32];
    for (size_t i = 0; i < LINES - 1; i++) {
        fcap_buffer_put_text(buffer, i == line ? text : manifest[i]);
    }
    (void)snprintf(end, sizeof end, "end %016llx\n",
                   (unsigned long long)fcap_hash64(fcap_buffer_bytes(buffer), 0));
    fcap_buffer_put_text(buffer, end);
}

static enum fcap_status decode(struct fcap_bytes bytes, struct fcap_error *error)
{
    struct fcap_checkpoint checkpoint;
    uint8_t *copy = golden_copy(bytes, bytes.size);
    enum fcap_status status =
        fcap_checkpoint_decode((struct fcap_bytes){copy, bytes.size}, &checkpoint, error);
    free(copy);
    if (status == FCAP_OK) {
        struct fcap_buffer again = {0};
        fcap_checkpoint_encode(&checkpoint, &again);
        assert_true(fcap_bytes_equal(bytes, fcap_buffer_bytes(&again)));
        fcap_buffer_done(&again);
        fcap_checkpoint_done(&checkpoint);
    }
    return status;
}

static void test_bytes(void **state)
{
    struct fcap_buffer wanted = {0};
    struct fcap_buffer buffer = {0};
    struct fcap_checkpoint checkpoint;
    (void)state;
    fill(&checkpoint);
    fcap_checkpoint_encode(&checkpoint, &buffer);
    for (size_t i = 0; i < LINES; i++) {
        char line[512];
        fcap_buffer_put_text(&wanted, manifest[i]);
        (void)snprintf(line, sizeof line, "    %s", manifest[i]);
        golden_documented(line);
    }
    if (!fcap_bytes_equal(fcap_buffer_bytes(&buffer), fcap_buffer_bytes(&wanted))) {
        fail_msg("got %.*s", (int)buffer.size, (const char *)buffer.data);
    }
    fcap_buffer_done(&buffer);
    fcap_buffer_done(&wanted);
    fcap_checkpoint_done(&checkpoint);
}

static void test_read_back(void **state)
{
    struct fcap_buffer buffer = {0};
    struct fcap_checkpoint checkpoint;
    struct fcap_error error;
    (void)state;
    put_lines(&buffer, LINES, NULL);
    assert_int_equal(fcap_checkpoint_decode(fcap_buffer_bytes(&buffer), &checkpoint, &error),
                     FCAP_OK);
    assert_int_equal(checkpoint.number, 7);
    assert_string_equal(checkpoint.profile, "days");
    assert_string_equal(checkpoint.instance, "pod-0");
    assert_memory_equal(&checkpoint.lineage, &lineage, sizeof lineage);
    assert_int_equal(checkpoint.snapshot_sequence, 41);
    assert_int_equal(checkpoint.sequence, 44);
    assert_int_equal(checkpoint.written_ms, 1700000119000);
    assert_int_equal(checkpoint.file_count, 2);
    assert_string_equal(checkpoint.files[1].name, "CURRENT");
    assert_int_equal(checkpoint.files[1].size, 16);
    assert_int_equal(checkpoint.segment_count, 2);
    assert_int_equal(checkpoint.segments[1].hash, 0x2222222222222222);
    assert_int_equal(checkpoint.partition_count, 2);
    assert_int_equal(checkpoint.partitions[1].partition, 5);
    assert_int_equal(checkpoint.partitions[1].clock_ms, -1);
    fcap_checkpoint_done(&checkpoint);
    fcap_buffer_done(&buffer);
}

static void test_every_bit_counts(void **state)
{
    struct fcap_buffer buffer = {0};
    struct fcap_error error;
    (void)state;
    put_lines(&buffer, LINES, NULL);
    assert_int_equal(decode(fcap_buffer_bytes(&buffer), &error), FCAP_OK);
    for (size_t bit = 0; bit < buffer.size * 8; bit++) {
        buffer.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(decode(fcap_buffer_bytes(&buffer), &error), FCAP_CORRUPT);
        buffer.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    fcap_buffer_done(&buffer);
}

static void test_every_cut_is_seen(void **state)
{
    struct fcap_buffer buffer = {0};
    struct fcap_error error;
    (void)state;
    put_lines(&buffer, LINES, NULL);
    for (size_t size = 0; size < buffer.size; size++) {
        assert_int_equal(decode((struct fcap_bytes){buffer.data, size}, &error), FCAP_CORRUPT);
        struct fcap_bytes tail = {buffer.data + size + 1, buffer.size - size - 1};
        assert_int_equal(decode(tail, &error), FCAP_CORRUPT);
    }
    fcap_buffer_put_u8(&buffer, '\n');
    assert_int_equal(decode(fcap_buffer_bytes(&buffer), &error), FCAP_CORRUPT);
    fcap_buffer_done(&buffer);
}

/* Lines with the right checksum that no fcapd of this version writes. */
static void test_wrong_lines(void **state)
{
    static const struct {
        size_t line; /* from 0 */
        const char *text;
        const char *told;
    } cases[] = {
        {0, "fcap-checkpint 1\n", "line 1 is not"},
        {1, "", "line 2 "},
        {1, "number 07\n", "line 2 "},
        {1, "number 18446744073709551616\n", "line 2 "},
        {1, "number -1\n", "line 2 "},
        {1, "number  7\n", "line 2 "},
        {1, "number 7 \n", "line 2 "},
        {1, "number 7 8\n", "line 2 "},
        {1, "number\n", "line 2 "},
        {1, "number 7\nnumber 7\n", "line 3 "},
        {2, "made -0\n", "line 3 "},
        {2, "made 9223372036854775808\n", "line 3 "},
        {3, "profile \n", "line 4 "},
        {3, "profile a/b\n", "line 4 "},
        {3, "profile 1234567890123456789012345678901234567890123456789012345678901234x\n",
         "line 4 "},
        {4, "instance b\xc3\xa4r\n", "line 5 "},
        {5, "lineage 00010203\n", "line 6 "},
        {5, "lineage 000102030405060708090A0B0C0D0E0F\n", "line 6 "},
        {7, "sequence 40 1\n", "line 8 "},  /* before the snapshot */
        {7, "sequence 45 1\n", "line 15 "}, /* segments end before it */
        {8, "file ../../etc/passwd 1 00000000000000ff a\n", "line 9 "},
        {8, "file a/b 1 00000000000000ff a\n", "line 9 "},
        {8, "file .. 1 00000000000000ff a\n", "line 9 "},
        {8, "file a 1 00000000000000ff ../a\n", "line 9 "},
        {8, "file a 1 00000000000000ff /a\n", "line 9 "},
        {8, "file a 1 00000000000000ff a//b\n", "line 9 "},
        {8, "file a 1 ff a\n", "line 9 "},
        {8, "end 0000000000000000\n", "line 9 "},
        {10, "", "line 11 "},                                     /* a hole at the beginning, */
        {10, "segment 43 43 1 1111111111111111 a\n", "line 11 "}, /* behind the snapshot, */
        {10, "segment 40 42 1 1111111111111111 a\n", "line 12 "}, /* in the middle, */
        {11, "", "line 14 "},                                     /* and at the end */
        {11, "segment 43 44 1 1111111111111111 a\n", "line 12 "}, /* doubled */
        {11, "segment 44 43 1 1111111111111111 a\n", "line 12 "},
        {10, "segment 0 43 1 1111111111111111 a\n", "line 11 "},
        {12, "partition 5 9 1200 1\n", "line 14 "}, /* not by number */
        {12, "partition 65535 9 1200 1\n", "line 13 "},
        {12, "partition -1 9 1200 1\n", "line 13 "},
        {13, "partition 5 3 0 -1\nfile a 1 00000000000000ff a\n", "line 15 "},
        {13, "partition 5 3 0 -1", "the last line "}, /* its end is missing */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_buffer buffer = {0};
        struct fcap_error error = {{0}};
        put_lines(&buffer, cases[i].line, cases[i].text);
        enum fcap_status status = decode(fcap_buffer_bytes(&buffer), &error);
        if (status != FCAP_CORRUPT || strstr(error.text, cases[i].told) == NULL) {
            fail_msg("%s: %d, %s", cases[i].text, status, error.text);
        }
        fcap_buffer_done(&buffer);
    }
}

static void test_other_versions(void **state)
{
    static const char *const lines[] = {"fcap-checkpoint 2\n", "fcap-checkpoint 10\n"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fcap_buffer buffer = {0};
        struct fcap_error error = {{0}};
        put_lines(&buffer, 0, lines[i]);
        assert_int_equal(decode(fcap_buffer_bytes(&buffer), &error), FCAP_FORMAT);
        assert_non_null(strstr(error.text, "version"));
        fcap_buffer_done(&buffer);
    }
}

/* What is not there: no file, no segment, no partition; and what is at its limits. */
static void test_small_and_large(void **state)
{
    struct fcap_buffer buffer = {0};
    struct fcap_checkpoint checkpoint = {.number = 1, .profile = ".", .instance = "_"};
    (void)state;
    fcap_checkpoint_encode(&checkpoint, &buffer);
    assert_int_equal(decode(fcap_buffer_bytes(&buffer), NULL), FCAP_OK);
    fcap_buffer_clear(&buffer);
    checkpoint.number = UINT64_MAX;
    checkpoint.made_ms = INT64_MIN;
    checkpoint.snapshot_ms = INT64_MAX;
    memset(checkpoint.profile, 'p', FCAP_CHECKPOINT_NAME_MAX);
    memset(checkpoint.instance, 'i', FCAP_CHECKPOINT_NAME_MAX);
    struct fcap_checkpoint_file file = {.size = UINT64_MAX, .hash = UINT64_MAX};
    memset(file.name, 'f', sizeof file.name - 1);
    memset(file.object, 'o', FCAP_OBJECT_NAME_MAX);
    for (size_t i = 0; i < 100; i++) {
        file.name[61] = (char)('0' + i / 10);
        file.name[62] = (char)('0' + i % 10);
        fcap_checkpoint_add_file(&checkpoint, &file);
    }
    struct fcap_checkpoint_segment segment = {.size = 1};
    memset(segment.object, 'o', FCAP_OBJECT_NAME_MAX);
    for (uint64_t i = 0; i < 100; i++) {
        segment.first = 1 + i * 10;
        segment.last = 10 + i * 10;
        fcap_checkpoint_add_segment(&checkpoint, &segment);
    }
    checkpoint.sequence = 1000;
    for (int32_t i = 99; i >= 0; i--) {
        fcap_checkpoint_set_partition(&checkpoint,
                                      &(struct fcap_checkpoint_partition){i * 7 % 100, 1, 1, 1});
    }
    assert_int_equal(checkpoint.partition_count, 100);
    fcap_checkpoint_encode(&checkpoint, &buffer);
    assert_int_equal(decode(fcap_buffer_bytes(&buffer), NULL), FCAP_OK);
    fcap_buffer_clear(&buffer);
    fcap_checkpoint_add_file(&checkpoint, &file); /* A name twice. */
    fcap_checkpoint_encode(&checkpoint, &buffer);
    assert_int_equal(decode(fcap_buffer_bytes(&buffer), NULL), FCAP_CORRUPT);
    fcap_buffer_done(&buffer);
    fcap_checkpoint_done(&checkpoint);
}

static void test_names(void **state)
{
    char a[FCAP_OBJECT_NAME_MAX + 1];
    char b[FCAP_OBJECT_NAME_MAX + 1];
    char owner[FCAP_CHECKPOINT_NAME_MAX + 1];
    char file[64];
    (void)state;
    assert_string_equal(fcap_checkpoint_prefix("days", "pod-0", a), PREFIX);
    assert_string_equal(fcap_checkpoint_manifest_name(PREFIX, 7, b),
                        "days/pod-0/manifest-00000000000000000007");
    /* No two owners share a prefix, and no prefix has a part that begins with '.'. */
    static const char *const owners[] = {".", "_", "_.", "__", "..", "a", "_a", ".a", "a.", "._"};
    enum { OWNERS = sizeof owners / sizeof owners[0] };
    for (size_t i = 0; i < OWNERS; i++) {
        (void)snprintf(a, sizeof a, "%sx", fcap_checkpoint_prefix(owners[i], owners[i], b));
        assert_true(fcap_object_name_is_valid(a));
        for (size_t k = 0; k < OWNERS; k++) {
            (void)fcap_checkpoint_prefix(owners[k], owners[k], a);
            assert_int_equal(strcmp(a, b) == 0, i == k);
        }
    }
    /* The longest of everything has room. */
    memset(owner, '_', FCAP_CHECKPOINT_NAME_MAX);
    memset(file, 'f', sizeof file - 1);
    owner[FCAP_CHECKPOINT_NAME_MAX] = '\0';
    file[sizeof file - 1] = '\0';
    (void)fcap_checkpoint_prefix(owner, owner, a);
    assert_true(
        fcap_object_name_is_valid(fcap_checkpoint_file_name(a, file, &lineage, UINT64_MAX, b)));
    assert_true(fcap_object_name_is_valid(
        fcap_checkpoint_segment_name(a, UINT64_MAX, &lineage, UINT64_MAX, b)));
}

static void test_manifest_names(void **state)
{
    static const struct {
        const char *name;
        bool is_one;
        size_t prefix_size;
        uint64_t number;
    } cases[] = {
        {"days/pod-0/manifest-00000000000000000007", true, 11, 7},
        {"manifest-18446744073709551615", true, 0, UINT64_MAX},
        {"manifest-18446744073709551616", false, 0, 0},
        {"a/manifest-99999999999999999999", false, 0, 0},
        {"a/manifest-0000000000000000000", false, 0, 0},
        {"a/manifest-000000000000000000007", false, 0, 0},
        {"a/manifest-0000000000000000000x", false, 0, 0},
        {"manifest-00000000000000000007/x", false, 0, 0},
        {"a/xmanifest-00000000000000000007", false, 0, 0},
        {"", false, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size = 0;
        uint64_t number = 0;
        assert_int_equal(fcap_checkpoint_is_manifest(cases[i].name, &size, &number),
                         cases[i].is_one);
        assert_int_equal(size, cases[i].prefix_size);
        assert_true(number == cases[i].number);
    }
}

static void test_object_names(void **state)
{
    char long_one[FCAP_OBJECT_NAME_MAX + 2];
    static const char *const bad[] = {"",    "/",        "/a",  "a/",   "a//b", ".",
                                      "..",  "a/.",      ".a",  "a/.b", "a b",  "a\\b",
                                      "a\n", "\xc3\xa4", "a:b", "~a/"};
    static const char *const good[] = {"a", "A-_.9", "a/b/c", "-", "a..", "a/b.c", "_/_"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(fcap_object_name_is_valid(bad[i]));
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(fcap_object_name_is_valid(good[i]));
    }
    memset(long_one, 'a', sizeof long_one);
    long_one[FCAP_OBJECT_NAME_MAX + 1] = '\0';
    assert_false(fcap_object_name_is_valid(long_one));
    long_one[FCAP_OBJECT_NAME_MAX] = '\0';
    assert_true(fcap_object_name_is_valid(long_one));
}

/* However the bytes come, the checksum is that of the definition. */
static void test_hash(void **state)
{
    enum { SIZE = 2 * (1 << 20) + 12345 };
    static const size_t sizes[] = {0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 2 << 20, SIZE};
    static const size_t pieces[] = {7919, 1 << 16, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, SIZE};
    uint8_t *data = malloc(SIZE);
    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < SIZE; i++) {
        data[i] = (uint8_t)(i * i >> 7);
    }
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint64_t wanted = 0;
        for (size_t at = 0; at < sizes[s]; at += FCAP_CHECKPOINT_PIECE) {
            size_t left = sizes[s] - at;
            size_t size = left < FCAP_CHECKPOINT_PIECE ? left : FCAP_CHECKPOINT_PIECE;
            wanted = fcap_hash64((struct fcap_bytes){data + at, size}, wanted);
        }
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            struct fcap_checkpoint_hash hash = {0};
            for (size_t at = 0; at < sizes[s]; at += pieces[p]) {
                size_t left = sizes[s] - at;
                fcap_checkpoint_hash_add(
                    &hash, (struct fcap_bytes){data + at, left < pieces[p] ? left : pieces[p]});
            }
            assert_true(fcap_checkpoint_hash_end(&hash) == wanted);
            assert_null(hash.piece.data);
        }
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_read_back),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_every_cut_is_seen),
        cmocka_unit_test(test_wrong_lines),
        cmocka_unit_test(test_other_versions),
        cmocka_unit_test(test_small_and_large),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_manifest_names),
        cmocka_unit_test(test_object_names),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
