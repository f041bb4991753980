/* Layout (docs/DATA.md, "Checkpoints"). Head: magic with the version, lineage, first sequence
 * number, XXH64 of these. Frame: size of the body, sequence number, time, XXH64 of these; the body;
 * XXH64 of the body, seeded with the checksum of the head, so that no body fits another head. The
 * head has a checksum of its own: a damaged size must not make a reader wait for a gigabyte. */
#include "fcap/changelog.h"

#include "fcap/assert.h"
#include "fcap/key.h"

#include <stdio.h>
#include <string.h>

enum { MAGIC_BYTES = 8, HEAD_BYTES = 40, HASH_BYTES = 8, FRAME_HEAD_BYTES = 28 };

static const uint8_t magic[MAGIC_BYTES] = {'f', 'c', 'a', 'p', 'l', 'o', 'g', 1};

const char *fcap_lineage_text(const struct fcap_lineage *lineage,
                              char text[FCAP_LINEAGE_TEXT_BYTES])
{
    for (size_t i = 0; i < FCAP_LINEAGE_BYTES; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", lineage->bytes[i]); /* Two digits. */
    }
    return text;
}

/* --- writing --- */

void fcap_changelog_put_head(struct fcap_buffer *buffer, const struct fcap_changelog_head *head)
{
    size_t start = buffer->size;
    fcap_buffer_put(buffer, magic, sizeof magic);
    fcap_buffer_put(buffer, head->lineage.bytes, sizeof head->lineage.bytes);
    fcap_buffer_put_be64(buffer, head->first);
    struct fcap_bytes bytes = {buffer->data + start, HEAD_BYTES - HASH_BYTES};
    fcap_buffer_put_be64(buffer, fcap_hash64(bytes, 0));
}

static size_t varint_bytes(uint64_t value)
{
    size_t size = 1;
    for (; value >= 0x80; value >>= 7) {
        size++;
    }
    return size;
}

static size_t entry_bytes(const struct fcap_batch_entry *entry)
{
    size_t size = 1 + varint_bytes(entry->key_size) + entry->key_size;
    if (entry->change != FCAP_CHANGE_DELETE) {
        size += varint_bytes(entry->value_size) + entry->value_size;
    }
    return size;
}

/* Of the body. Also how many sections are kept. */
static size_t body_bytes(const struct fcap_batch *batch, const bool *kept, size_t *ret_count)
{
    size_t size = 0;
    size_t count = 0;
    for (size_t i = 0; i < batch->section_count; i++) {
        const struct fcap_batch_section *section = &batch->sections[i];
        if (kept != NULL && !kept[i]) {
            continue;
        }
        count++;
        size += varint_bytes((uint64_t)section->partition) + varint_bytes(section->commit) +
                varint_bytes(section->count);
        for (size_t k = section->first; k < section->first + section->count; k++) {
            size += entry_bytes(&batch->entries[k]);
        }
    }
    *ret_count = count;
    return varint_bytes(count) + size;
}

static void put_section(struct fcap_buffer *buffer, const struct fcap_batch *batch,
                        const struct fcap_batch_section *section)
{
    fcap_buffer_put_varint(buffer, (uint64_t)section->partition);
    fcap_buffer_put_varint(buffer, section->commit);
    fcap_buffer_put_varint(buffer, section->count);
    for (size_t i = section->first; i < section->first + section->count; i++) {
        const struct fcap_batch_entry *entry = &batch->entries[i];
        fcap_buffer_put_u8(buffer, (uint8_t)((unsigned)entry->change << 4 | entry->family));
        fcap_buffer_put_varint(buffer, entry->key_size);
        fcap_buffer_put_bytes(buffer, fcap_batch_key(batch, i));
        if (entry->change != FCAP_CHANGE_DELETE) {
            fcap_buffer_put_varint(buffer, entry->value_size);
            fcap_buffer_put_bytes(buffer, fcap_batch_value(batch, i));
        }
    }
}

bool fcap_changelog_put_frame(struct fcap_buffer *buffer, uint64_t sequence, int64_t written_ms,
                              const struct fcap_batch *batch, const bool *kept)
{
    size_t start = buffer->size;
    size_t count;
    size_t size = body_bytes(batch, kept, &count);
    if (size > FCAP_CHANGELOG_FRAME_MAX - FRAME_HEAD_BYTES - HASH_BYTES) {
        return false;
    }
    (void)fcap_buffer_reserve(buffer, FRAME_HEAD_BYTES + size + HASH_BYTES); /* Once. */
    fcap_buffer_put_be32(buffer, (uint32_t)size);
    fcap_buffer_put_be64(buffer, sequence);
    fcap_buffer_put_be64(buffer, (uint64_t)written_ms);
    struct fcap_bytes head = {buffer->data + start, FRAME_HEAD_BYTES - HASH_BYTES};
    uint64_t hash = fcap_hash64(head, 0);
    fcap_buffer_put_be64(buffer, hash);
    fcap_buffer_put_varint(buffer, count);
    for (size_t i = 0; i < batch->section_count; i++) {
        if (kept == NULL || kept[i]) {
            put_section(buffer, batch, &batch->sections[i]);
        }
    }
    FCAP_ASSERT(buffer->size == start + FRAME_HEAD_BYTES + size);
    struct fcap_bytes body = {buffer->data + start + FRAME_HEAD_BYTES, size};
    fcap_buffer_put_be64(buffer, fcap_hash64(body, hash));
    return true;
}

/* --- reading --- */

static enum fcap_changelog_result read_head(struct fcap_changelog_reader *reader,
                                            struct fcap_bytes bytes, size_t *ret_used)
{
    size_t known = bytes.size < MAGIC_BYTES ? bytes.size : MAGIC_BYTES;
    if (memcmp(bytes.data, magic, known) != 0) {
        return FCAP_CHANGELOG_FOREIGN;
    }
    if (bytes.size < HEAD_BYTES) {
        return FCAP_CHANGELOG_MORE;
    }
    struct fcap_reader cursor = fcap_reader_of(bytes);
    (void)fcap_reader_take(&cursor, MAGIC_BYTES); /* Compared above. */
    struct fcap_bytes lineage = fcap_reader_take(&cursor, FCAP_LINEAGE_BYTES);
    uint64_t first = fcap_reader_be64(&cursor);
    bytes.size = HEAD_BYTES - HASH_BYTES;
    if (fcap_reader_be64(&cursor) != fcap_hash64(bytes, 0)) {
        return FCAP_CHANGELOG_DAMAGED;
    }
    memcpy(reader->lineage.bytes, lineage.data, lineage.size);
    reader->next = first;
    reader->has_head = true;
    *ret_used = HEAD_BYTES;
    return FCAP_CHANGELOG_FRAME;
}

static bool read_entry(struct fcap_reader *cursor, struct fcap_batch *batch)
{
    uint8_t kind = fcap_reader_u8(cursor);
    struct fcap_bytes key = fcap_reader_take(cursor, fcap_reader_varint(cursor));
    struct fcap_bytes value = FCAP_BYTES_NONE;
    if ((kind >> 4) != FCAP_CHANGE_DELETE) {
        value = fcap_reader_take(cursor, fcap_reader_varint(cursor));
    }
    if (cursor->failed || key.size == 0 || (kind & 0x0F) >= FCAP_FAMILY_COUNT ||
        (kind >> 4) > FCAP_CHANGE_DELETE_RANGE) {
        return false;
    }
    fcap_batch_add(batch, (enum fcap_family)(kind & 0x0F), (enum fcap_change)(kind >> 4), key,
                   value);
    return true;
}

static bool read_body(struct fcap_bytes body, struct fcap_batch *batch)
{
    struct fcap_reader cursor = fcap_reader_of(body);
    fcap_batch_clear(batch);
    for (uint64_t sections = fcap_reader_varint(&cursor); sections > 0; sections--) {
        uint64_t partition = fcap_reader_varint(&cursor);
        uint64_t commit = fcap_reader_varint(&cursor);
        uint64_t entries = fcap_reader_varint(&cursor);
        if (cursor.failed || partition > FCAP_PARTITION_MAX) {
            return false;
        }
        fcap_batch_section(batch, (int32_t)partition, 0, commit);
        for (; entries > 0; entries--) {
            if (!read_entry(&cursor, batch)) {
                return false;
            }
        }
    }
    return !cursor.failed && fcap_reader_left(&cursor) == 0;
}

static enum fcap_changelog_result read_frame(struct fcap_changelog_reader *reader,
                                             struct fcap_bytes bytes, size_t *ret_used,
                                             struct fcap_changelog_frame *ret_frame)
{
    if (bytes.size < FRAME_HEAD_BYTES) {
        return FCAP_CHANGELOG_MORE;
    }
    struct fcap_reader cursor = fcap_reader_of(bytes);
    size_t size = fcap_reader_be32(&cursor);
    uint64_t sequence = fcap_reader_be64(&cursor);
    int64_t written_ms = (int64_t)fcap_reader_be64(&cursor);
    uint64_t hash = fcap_reader_be64(&cursor);
    struct fcap_bytes head = {bytes.data, FRAME_HEAD_BYTES - HASH_BYTES};
    if (hash != fcap_hash64(head, 0) || sequence != reader->next ||
        size > FCAP_CHANGELOG_FRAME_MAX - FRAME_HEAD_BYTES - HASH_BYTES) {
        return FCAP_CHANGELOG_DAMAGED;
    }
    if (fcap_reader_left(&cursor) < size + HASH_BYTES) {
        return FCAP_CHANGELOG_MORE;
    }
    struct fcap_bytes body = fcap_reader_take(&cursor, size);
    if (fcap_reader_be64(&cursor) != fcap_hash64(body, hash) ||
        !read_body(body, &ret_frame->batch)) {
        return FCAP_CHANGELOG_DAMAGED;
    }
    ret_frame->sequence = sequence;
    ret_frame->written_ms = written_ms;
    reader->next = sequence + 1;
    *ret_used = FRAME_HEAD_BYTES + size + HASH_BYTES;
    return FCAP_CHANGELOG_FRAME;
}

enum fcap_changelog_result fcap_changelog_read(struct fcap_changelog_reader *reader,
                                               struct fcap_bytes bytes, size_t *ret_used,
                                               struct fcap_changelog_frame *ret_frame)
{
    size_t head = 0;
    size_t frame = 0;
    *ret_used = 0;
    if (bytes.size == 0) {
        return FCAP_CHANGELOG_MORE;
    }
    if (!reader->has_head) {
        enum fcap_changelog_result result = read_head(reader, bytes, &head);
        if (result != FCAP_CHANGELOG_FRAME) {
            return result;
        }
    }
    struct fcap_bytes rest = {bytes.data + head, bytes.size - head};
    enum fcap_changelog_result result = read_frame(reader, rest, &frame, ret_frame);
    *ret_used = head + frame;
    return result;
}

/* --- one partition --- */

void fcap_changelog_filter(struct fcap_changelog_frame *frame, int32_t partition)
{
    struct fcap_batch *batch = &frame->batch;
    size_t sections = 0;
    size_t entries = 0;
    for (size_t i = 0; i < batch->section_count; i++) {
        struct fcap_batch_section section = batch->sections[i];
        if (section.partition != partition) {
            continue;
        }
        if (section.count > 0) {
            memmove(batch->entries + entries, batch->entries + section.first,
                    section.count * sizeof *batch->entries);
        }
        section.first = entries;
        entries += section.count;
        batch->sections[sections++] = section;
    }
    batch->section_count = sections;
    batch->entry_count = entries;
}
