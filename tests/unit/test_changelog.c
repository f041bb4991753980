/* The changelog: its bytes, and that nothing but what was written is ever read from it. */
#include "fcap/changelog.h"

#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD                                                                                       \
    "66 63 61 70 6c 6f 67 01 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n"                    \
    "    00 00 00 00 00 00 00 2a d2 6b 58 f9 6b 14 e8 9f"
#define FRAME                                                                                      \
    "00 00 00 1f 00 00 00 00 00 00 00 2a 00 00 01 8b cf e5 68 00 12 de 7f d2 9a 6c 12 5c\n"        \
    "    02 05 09 02 00 06 00 05 74 61 73 6b 02 aa bb 11 04 00 05 75 31 06 03 01 23 02 00 06 02 "  \
    "00 07\n"                                                                                      \
    "    86 4b b8 53 e6 53 a7 0b"

enum { FIRST = 42, FRAMES = 5, WRITTEN_MS = 1000 };

static const struct fcap_lineage lineage = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

static struct fcap_bytes of(const char *text, size_t size)
{
    return (struct fcap_bytes){(const uint8_t *)text, size};
}

/* Partition 5: its meta record, a user who goes; partition 6: its ads. */
static void fill_golden(struct fcap_batch *batch)
{
    fcap_batch_section(batch, 5, 77, 9);
    fcap_batch_add(batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, of("\0\5task", 6), of("\xaa\xbb", 2));
    fcap_batch_add(batch, FCAP_FAMILY_USERS, FCAP_CHANGE_DELETE, of("\0\5u1", 4), FCAP_BYTES_NONE);
    fcap_batch_section(batch, 6, 78, 3);
    fcap_batch_add(batch, FCAP_FAMILY_ADS, FCAP_CHANGE_DELETE_RANGE, of("\0\6", 2), of("\0\7", 2));
}

/* Different for each number: sections, entries, sizes. */
static void fill(struct fcap_batch *batch, uint64_t number)
{
    fcap_batch_clear(batch);
    for (uint64_t s = 0; s < number % 3 + 1; s++) {
        fcap_batch_section(batch, (int32_t)(number * 7 % 300 + s), 1, number * 1000 + s);
        for (uint64_t e = 0; e < (number + s) % 4; e++) {
            char key[8];
            char value[300];
            memset(key, (int)(number + e), sizeof key);
            memset(value, (int)(number * e), sizeof value);
            fcap_batch_add(batch, (enum fcap_family)(e % FCAP_FAMILY_COUNT),
                           (enum fcap_change)((number + e) % 3), of(key, 1 + e * 2),
                           of(value, number * e * 9 % sizeof value));
        }
    }
}

static bool equal(const struct fcap_batch *a, const struct fcap_batch *b)
{
    bool same = a->section_count == b->section_count && a->entry_count == b->entry_count;
    for (size_t i = 0; same && i < a->section_count; i++) {
        same = a->sections[i].partition == b->sections[i].partition &&
               a->sections[i].commit == b->sections[i].commit &&
               a->sections[i].first == b->sections[i].first &&
               a->sections[i].count == b->sections[i].count && b->sections[i].assignment == 0;
    }
    for (size_t i = 0; same && i < a->entry_count; i++) {
        same = a->entries[i].family == b->entries[i].family &&
               a->entries[i].change == b->entries[i].change &&
               fcap_bytes_equal(fcap_batch_key(a, i), fcap_batch_key(b, i)) &&
               (a->entries[i].change == FCAP_CHANGE_DELETE ||
                fcap_bytes_equal(fcap_batch_value(a, i), fcap_batch_value(b, i)));
    }
    return same;
}

/* A segment of frames FIRST, ...; ends[i]: where frame i ends, ends[0] the head. */
static void make_segment(struct fcap_buffer *segment, size_t frames, size_t *ends)
{
    struct fcap_batch batch = {0};
    fcap_changelog_put_head(segment, &(struct fcap_changelog_head){lineage, FIRST});
    ends[0] = segment->size;
    for (size_t i = 0; i < frames; i++) {
        fill(&batch, FIRST + i);
        assert_true(
            fcap_changelog_put_frame(segment, FIRST + i, WRITTEN_MS + (int64_t)i, &batch, NULL));
        ends[i + 1] = segment->size;
    }
    fcap_batch_done(&batch);
}

/* As a restore reads it: `whole` when it is the segment that a manifest speaks of. Every frame that
 * is given must be the one that was written, also when the next one is none. */
static bool read_whole(struct fcap_bytes bytes, size_t frames, enum fcap_changelog_result *ret_last)
{
    static struct fcap_batch wanted;
    static struct fcap_changelog_frame frame;
    struct fcap_changelog_reader reader = {0};
    size_t at = 0;
    size_t used;
    uint64_t number = FIRST;
    for (;;) {
        struct fcap_bytes rest = {bytes.data + at, bytes.size - at};
        *ret_last = fcap_changelog_read(&reader, rest, &used, &frame);
        at += used;
        assert_true(at <= bytes.size);
        if (*ret_last != FCAP_CHANGELOG_FRAME) {
            break;
        }
        assert_int_equal(frame.sequence, number);
        assert_int_equal(frame.written_ms, WRITTEN_MS + (int64_t)(number - FIRST));
        fill(&wanted, number);
        assert_true(equal(&wanted, &frame.batch));
        number++;
    }
    return *ret_last == FCAP_CHANGELOG_MORE && at == bytes.size && reader.has_head &&
           memcmp(&reader.lineage, &lineage, sizeof lineage) == 0 && reader.next == FIRST + frames;
}

static bool is_whole(struct fcap_bytes bytes)
{
    enum fcap_changelog_result last;
    uint8_t *copy = golden_copy(bytes, bytes.size);
    bool whole = read_whole((struct fcap_bytes){copy, bytes.size}, FRAMES, &last);
    free(copy);
    return whole;
}

static void test_bytes(void **state)
{
    struct fcap_buffer buffer = {0};
    struct fcap_batch batch = {0};
    (void)state;
    fcap_changelog_put_head(&buffer, &(struct fcap_changelog_head){lineage, FIRST});
    golden_check(fcap_buffer_bytes(&buffer), HEAD);
    fcap_buffer_clear(&buffer);
    fill_golden(&batch);
    assert_true(fcap_changelog_put_frame(&buffer, FIRST, 1700000000000, &batch, NULL));
    golden_check(fcap_buffer_bytes(&buffer), FRAME);
    fcap_buffer_done(&buffer);
    fcap_batch_done(&batch);
}

static void test_bytes_are_documented(void **state)
{
    (void)state;
    static const char *const lines[] = {HEAD, FRAME};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        golden_documented(lines[i]);
    }
}

static void test_kept_sections(void **state)
{
    static const struct {
        bool kept[2];
        size_t sections;
        size_t entries;
        int32_t first;
    } cases[] = {{{true, true}, 2, 3, 5},
                 {{true, false}, 1, 2, 5},
                 {{false, true}, 1, 1, 6},
                 {{0}, 0, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_buffer buffer = {0};
        struct fcap_batch batch = {0};
        struct fcap_changelog_frame frame = {0};
        struct fcap_changelog_reader reader = {.has_head = true, .next = 1};
        size_t used;
        fill_golden(&batch);
        assert_true(fcap_changelog_put_frame(&buffer, 1, -1, &batch, cases[i].kept));
        assert_int_equal(fcap_changelog_read(&reader, fcap_buffer_bytes(&buffer), &used, &frame),
                         FCAP_CHANGELOG_FRAME);
        assert_int_equal(used, buffer.size);
        assert_int_equal(frame.written_ms, -1);
        assert_int_equal(frame.batch.section_count, cases[i].sections);
        assert_int_equal(frame.batch.entry_count, cases[i].entries);
        if (cases[i].sections > 0) {
            assert_int_equal(frame.batch.sections[0].partition, cases[i].first);
        }
        fcap_buffer_done(&buffer);
        fcap_batch_done(&batch);
        fcap_batch_done(&frame.batch);
    }
}

/* Byte by byte: MORE until a frame is whole, and nothing of what was used is needed again. */
static void test_in_pieces(void **state)
{
    struct fcap_buffer segment = {0};
    struct fcap_batch wanted = {0};
    struct fcap_changelog_frame frame = {0};
    struct fcap_changelog_reader reader = {0};
    size_t ends[FRAMES + 1];
    size_t at = 0;
    size_t frames = 0;
    (void)state;
    make_segment(&segment, FRAMES, ends);
    for (size_t end = 0; end <= segment.size; end++) {
        size_t used;
        uint8_t *copy = golden_copy((struct fcap_bytes){segment.data + at, end - at}, end - at);
        enum fcap_changelog_result result =
            fcap_changelog_read(&reader, (struct fcap_bytes){copy, end - at}, &used, &frame);
        free(copy);
        at += used;
        assert_int_equal(reader.has_head, end >= ends[0]);
        assert_int_equal(result, frames < FRAMES && end == ends[frames + 1] ? FCAP_CHANGELOG_FRAME
                                                                            : FCAP_CHANGELOG_MORE);
        if (result == FCAP_CHANGELOG_FRAME) {
            fill(&wanted, FIRST + frames++);
            assert_true(equal(&wanted, &frame.batch));
        }
    }
    assert_int_equal(frames, FRAMES);
    assert_int_equal(at, segment.size);
    fcap_buffer_done(&segment);
    fcap_batch_done(&wanted);
    fcap_batch_done(&frame.batch);
}

static void test_every_bit_counts(void **state)
{
    struct fcap_buffer segment = {0};
    size_t ends[FRAMES + 1];
    (void)state;
    make_segment(&segment, FRAMES, ends);
    assert_true(is_whole(fcap_buffer_bytes(&segment)));
    for (size_t bit = 0; bit < segment.size * 8; bit++) {
        segment.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        enum fcap_changelog_result last;
        assert_false(read_whole(fcap_buffer_bytes(&segment), FRAMES, &last));
        /* At once, not after a wait for bytes that never come. */
        assert_int_equal(last, bit < 64 ? FCAP_CHANGELOG_FOREIGN : FCAP_CHANGELOG_DAMAGED);
        segment.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    fcap_buffer_done(&segment);
}

static void test_every_cut_is_seen(void **state)
{
    struct fcap_buffer segment = {0};
    size_t ends[FRAMES + 1];
    (void)state;
    make_segment(&segment, FRAMES, ends);
    for (size_t size = 0; size < segment.size; size++) {
        assert_false(is_whole((struct fcap_bytes){segment.data, size}));
        assert_false(
            is_whole((struct fcap_bytes){segment.data + size + 1, segment.size - size - 1}));
    }
    fcap_buffer_put_u8(&segment, 0); /* And one byte too many. */
    assert_false(is_whole(fcap_buffer_bytes(&segment)));
    fcap_buffer_done(&segment);
}

/* Frames of the segment in this order behind its head. */
static bool is_whole_as(const struct fcap_buffer *segment, const size_t *ends, const size_t *order,
                        size_t count)
{
    struct fcap_buffer other = {0};
    fcap_buffer_put(&other, segment->data, ends[0]);
    for (size_t i = 0; i < count; i++) {
        fcap_buffer_put(&other, segment->data + ends[order[i]],
                        ends[order[i] + 1] - ends[order[i]]);
    }
    bool whole = is_whole(fcap_buffer_bytes(&other));
    fcap_buffer_done(&other);
    return whole;
}

static void test_order_counts(void **state)
{
    struct fcap_buffer segment = {0};
    size_t ends[FRAMES + 1];
    size_t order[FRAMES + 1] = {0, 1, 2, 3, 4};
    (void)state;
    make_segment(&segment, FRAMES, ends);
    assert_true(is_whole_as(&segment, ends, order, FRAMES));
    for (size_t i = 0; i < FRAMES; i++) {
        for (size_t k = i + 1; k < FRAMES; k++) { /* Two that changed places. */
            order[i] = k;
            order[k] = i;
            assert_false(is_whole_as(&segment, ends, order, FRAMES));
            order[i] = i;
            order[k] = k;
        }
        size_t missing[FRAMES - 1];
        size_t doubled[FRAMES + 1];
        for (size_t k = 0; k <= FRAMES; k++) {
            doubled[k] = k <= i ? k : k - 1;
            if (k < FRAMES - 1) {
                missing[k] = k < i ? k : k + 1;
            }
        }
        assert_false(is_whole_as(&segment, ends, missing, FRAMES - 1));
        assert_false(is_whole_as(&segment, ends, doubled, FRAMES + 1));
    }
    fcap_buffer_done(&segment);
}

/* A head with the body of another frame, each whole in itself. */
static void test_no_body_fits_another_head(void **state)
{
    enum { FRAME_HEAD_BYTES = 28 };
    struct fcap_buffer frames[2] = {{0}};
    struct fcap_batch batch = {0};
    struct fcap_changelog_frame frame = {0};
    (void)state;
    fill_golden(&batch);
    for (size_t i = 0; i < 2; i++) {
        assert_true(fcap_changelog_put_frame(&frames[i], 1 + i, 5, &batch, NULL));
    }
    assert_int_equal(frames[0].size, frames[1].size);
    memcpy(frames[0].data, frames[1].data, FRAME_HEAD_BYTES);
    struct fcap_changelog_reader reader = {.has_head = true, .next = 2};
    size_t used;
    assert_int_equal(fcap_changelog_read(&reader, fcap_buffer_bytes(&frames[0]), &used, &frame),
                     FCAP_CHANGELOG_DAMAGED);
    assert_int_equal(fcap_changelog_read(&reader, fcap_buffer_bytes(&frames[1]), &used, &frame),
                     FCAP_CHANGELOG_FRAME);
    fcap_buffer_done(&frames[0]);
    fcap_buffer_done(&frames[1]);
    fcap_batch_done(&batch);
    fcap_batch_done(&frame.batch);
}

/* Parts cut out, doubled, moved, zeroed or overwritten, as a fixed generator draws them. */
static void test_edits_are_seen(void **state)
{
    struct fcap_buffer segment = {0};
    size_t ends[FRAMES + 1];
    uint64_t random = 20261130;
    size_t seen = 0;
    (void)state;
    make_segment(&segment, FRAMES, ends);
    for (int round = 0; round < 20000; round++) {
        struct fcap_buffer other = {0};
        size_t cuts[3];
        for (size_t i = 0; i < 3; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            cuts[i] = (size_t)(random >> 33) % (segment.size + 1);
        }
        size_t low = cuts[0] < cuts[1] ? cuts[0] : cuts[1];
        size_t high = cuts[0] < cuts[1] ? cuts[1] : cuts[0];
        fcap_buffer_put_bytes(&other, (struct fcap_bytes){segment.data, low});
        switch (round % 4) {
        case 0: /* [low, high) is missing */
            break;
        case 1: /* stands there twice */
            fcap_buffer_put(&other, segment.data + low, high - low);
            fcap_buffer_put(&other, segment.data + low, high - low);
            break;
        case 2: /* is zero, as after a crash of the machine */
            for (size_t i = low; i < high; i++) {
                fcap_buffer_put_u8(&other, 0);
            }
            break;
        default: { /* comes from another place */
            size_t from = cuts[2] < segment.size - (high - low) ? cuts[2] : 0;
            fcap_buffer_put(&other, segment.data + from, high - low);
            break;
        }
        }
        fcap_buffer_put(&other, segment.data + high, segment.size - high);
        bool is_changed = !fcap_bytes_equal(fcap_buffer_bytes(&other), fcap_buffer_bytes(&segment));
        assert_int_equal(is_whole(fcap_buffer_bytes(&other)), !is_changed);
        seen += is_changed;
        fcap_buffer_done(&other);
    }
    assert_true(seen > 15000);
    fcap_buffer_done(&segment);
}

static void test_foreign_bytes(void **state)
{
    static const char *const texts[] = {"x", "fcapl0g", "fcaplog\2", "SQLite format 3"};
    struct fcap_changelog_frame frame = {0};
    size_t used;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct fcap_changelog_reader reader = {0};
        assert_int_equal(fcap_changelog_read(&reader, fcap_bytes_of(texts[i]), &used, &frame),
                         FCAP_CHANGELOG_FOREIGN);
        assert_int_equal(used, 0);
    }
    struct fcap_changelog_reader reader = {0};
    assert_int_equal(fcap_changelog_read(&reader, FCAP_BYTES_NONE, &used, &frame),
                     FCAP_CHANGELOG_MORE);
}

/* One that nobody could read again is not written; its bytes are not even looked at. */
static void test_too_large(void **state)
{
    struct fcap_buffer buffer = {0};
    struct fcap_batch batch = {0};
    (void)state;
    fill_golden(&batch);
    batch.entries[0].value_size = FCAP_CHANGELOG_FRAME_MAX;
    assert_false(fcap_changelog_put_frame(&buffer, 1, 1, &batch, NULL));
    assert_int_equal(buffer.size, 0);
    assert_true(fcap_changelog_put_frame(&buffer, 1, 1, &batch, (bool[2]){false, true}));
    fcap_buffer_done(&buffer);
    fcap_batch_done(&batch);
}

static void test_filter_of_nothing(void **state)
{
    struct fcap_changelog_frame frame = {0};
    (void)state;
    fcap_changelog_filter(&frame, 8);
    fcap_batch_section(&frame.batch, 8, 0, 1);
    fcap_changelog_filter(&frame, 8);
    assert_int_equal(frame.batch.section_count, 1);
    assert_int_equal(frame.batch.entry_count, 0);
    fcap_batch_done(&frame.batch);
}

static void test_filter(void **state)
{
    struct fcap_changelog_frame frame = {0};
    struct fcap_batch *batch = &frame.batch;
    (void)state;
    for (int32_t i = 0; i < 4; i++) { /* 7, 8, 7, 8 with 1 to 4 entries */
        fcap_batch_section(batch, 7 + i % 2, 0, (uint64_t)i);
        for (int32_t k = 0; k <= i; k++) {
            char key[2] = {(char)('0' + i), (char)('0' + k)};
            fcap_batch_add(batch, FCAP_FAMILY_USERS, FCAP_CHANGE_DELETE, of(key, 2),
                           FCAP_BYTES_NONE);
        }
    }
    fcap_changelog_filter(&frame, 8);
    assert_int_equal(batch->section_count, 2);
    assert_int_equal(batch->entry_count, 6);
    assert_int_equal(batch->sections[1].commit, 3);
    assert_int_equal(batch->sections[1].first, 2);
    assert_int_equal(batch->sections[1].count, 4);
    assert_true(fcap_bytes_equal(fcap_batch_key(batch, 0), fcap_bytes_of("10")));
    assert_true(fcap_bytes_equal(fcap_batch_key(batch, 2), fcap_bytes_of("30")));
    assert_true(fcap_bytes_equal(fcap_batch_key(batch, 5), fcap_bytes_of("33")));
    fcap_changelog_filter(&frame, 9);
    assert_int_equal(batch->section_count, 0);
    assert_int_equal(batch->entry_count, 0);
    fcap_batch_done(batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_bytes_are_documented),
        cmocka_unit_test(test_kept_sections),
        cmocka_unit_test(test_in_pieces),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_every_cut_is_seen),
        cmocka_unit_test(test_order_counts),
        cmocka_unit_test(test_no_body_fits_another_head),
        cmocka_unit_test(test_edits_are_seen),
        cmocka_unit_test(test_foreign_bytes),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_filter_of_nothing),
    };
    return cmocka_run_group_tests_name("changelog", tests, NULL, NULL);
}
