/* Any bytes as a segment of the changelog, and as the body of a frame whose checksums are right: no
 * crash, nothing is read beyond the end, and what is accepted is written and read again as the same
 * batch. */
#include "fcap/changelog.h"

#include "fuzz_main.h"

static void check_same(const struct fcap_batch *a, const struct fcap_batch *b)
{
    FCAP_ASSERT(a->section_count == b->section_count && a->entry_count == b->entry_count);
    for (size_t i = 0; i < a->section_count; i++) {
        FCAP_ASSERT(a->sections[i].partition == b->sections[i].partition);
        FCAP_ASSERT(a->sections[i].commit == b->sections[i].commit);
        FCAP_ASSERT(a->sections[i].first == b->sections[i].first);
        FCAP_ASSERT(a->sections[i].count == b->sections[i].count);
    }
    for (size_t i = 0; i < a->entry_count; i++) {
        FCAP_ASSERT(a->entries[i].family == b->entries[i].family);
        FCAP_ASSERT(a->entries[i].change == b->entries[i].change);
        FCAP_ASSERT(fcap_bytes_equal(fcap_batch_key(a, i), fcap_batch_key(b, i)));
        FCAP_ASSERT(a->entries[i].value_size == b->entries[i].value_size);
        FCAP_ASSERT(fcap_bytes_equal(fcap_batch_value(a, i), fcap_batch_value(b, i)));
    }
}

/* One partition of it alone holds what that partition had, and no other. */
static void check_filter(struct fcap_changelog_frame *frame)
{
    size_t sections = 0;
    size_t entries = 0;
    int32_t partition = frame->batch.section_count > 0 ? frame->batch.sections[0].partition : 5;
    for (size_t i = 0; i < frame->batch.section_count; i++) {
        bool is_kept = frame->batch.sections[i].partition == partition;
        sections += is_kept;
        entries += is_kept ? frame->batch.sections[i].count : 0;
    }
    fcap_changelog_filter(frame, partition);
    FCAP_ASSERT(frame->batch.section_count == sections && frame->batch.entry_count == entries);
    for (size_t i = 0; i < sections; i++) {
        FCAP_ASSERT(frame->batch.sections[i].partition == partition);
    }
}

static void check_frame(struct fcap_changelog_frame *frame)
{
    struct fcap_buffer buffer = {0};
    struct fcap_changelog_frame again = {0};
    struct fcap_changelog_reader reader = {.has_head = true, .next = frame->sequence};
    size_t used;
    FCAP_ASSERT(
        fcap_changelog_put_frame(&buffer, frame->sequence, frame->written_ms, &frame->batch, NULL));
    FCAP_ASSERT(fcap_changelog_read(&reader, fcap_buffer_bytes(&buffer), &used, &again) ==
                FCAP_CHANGELOG_FRAME);
    FCAP_ASSERT(used == buffer.size && again.written_ms == frame->written_ms);
    check_same(&frame->batch, &again.batch);
    check_filter(&again);
    fcap_buffer_done(&buffer);
    fcap_batch_done(&again.batch);
}

static void check_segment(struct fcap_bytes bytes, struct fcap_changelog_reader reader)
{
    struct fcap_changelog_frame frame = {0};
    enum fcap_changelog_result result = FCAP_CHANGELOG_FRAME;
    while (result == FCAP_CHANGELOG_FRAME) {
        uint64_t next = reader.next;
        bool had_head = reader.has_head;
        size_t used;
        result = fcap_changelog_read(&reader, bytes, &used, &frame);
        FCAP_ASSERT(used <= bytes.size);
        bytes.data += used;
        bytes.size -= used;
        if (result == FCAP_CHANGELOG_FRAME) {
            FCAP_ASSERT(used > 0 && (!had_head || frame.sequence == next));
            check_frame(&frame);
        }
    }
    fcap_batch_done(&frame.batch);
}

/* The layout is that of docs/DATA.md, written here once more. */
static void check_body(struct fcap_bytes body)
{
    struct fcap_buffer frame = {0};
    fcap_buffer_put_be32(&frame, (uint32_t)body.size);
    fcap_buffer_put_be64(&frame, 42);
    fcap_buffer_put_be64(&frame, 1700000000000);
    uint64_t hash = fcap_hash64(fcap_buffer_bytes(&frame), 0);
    fcap_buffer_put_be64(&frame, hash);
    fcap_buffer_put_bytes(&frame, body);
    fcap_buffer_put_be64(&frame, fcap_hash64(body, hash));
    check_segment(fcap_buffer_bytes(&frame),
                  (struct fcap_changelog_reader){.has_head = true, .next = 42});
    fcap_buffer_done(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fcap_bytes bytes = {data, size};
    check_segment(bytes, (struct fcap_changelog_reader){0});
    check_segment(bytes, (struct fcap_changelog_reader){.has_head = true, .next = 42});
    check_body(bytes);
    return 0;
}
