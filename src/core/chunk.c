/* Layout: one byte (version in the high nibble; flags in the low one: 1 ids, 2 and 4 kept for
 * weights and further dimensions), then events until the end: varint time since the previous one
 * (the first: since the bucket's start), varint user reference (0: varint size and bytes follow
 * and get the next reference), varint ad number + 1 (0: void), with ids 8 bytes id hash. */
#include "fcap/chunk.h"

#include "fcap/assert.h"

#include <stdlib.h>

#define VERSION  0x10
#define FLAG_IDS 0x01

void fcap_chunk_begin(struct fcap_chunk_writer *writer, struct fcap_buffer *buffer,
                      int64_t bucket_ms, bool has_ids)
{
    *writer =
        (struct fcap_chunk_writer){.buffer = buffer, .last_ms = bucket_ms, .has_ids = has_ids};
    fcap_buffer_put_u8(buffer, (uint8_t)(VERSION | (has_ids ? FLAG_IDS : 0)));
}

void fcap_chunk_add(struct fcap_chunk_writer *writer, const struct fcap_timer *timer,
                    uint32_t *reference)
{
    FCAP_ASSERT(timer->time_ms >= writer->last_ms);
    struct fcap_buffer *buffer = writer->buffer;
    fcap_buffer_put_varint(buffer, (uint64_t)(timer->time_ms - writer->last_ms));
    writer->last_ms = timer->time_ms;
    fcap_buffer_put_varint(buffer, *reference);
    if (*reference == 0) {
        *reference = ++writer->user_count;
        fcap_buffer_put_varint(buffer, timer->user.size);
        fcap_buffer_put_bytes(buffer, timer->user);
    }
    fcap_buffer_put_varint(buffer, (uint32_t)(timer->ad + 1)); /* Void wraps to 0. */
    if (writer->has_ids) {
        fcap_buffer_put_be64(buffer, timer->id_hash);
    }
}

enum fcap_status fcap_chunk_open(struct fcap_chunk_reader *reader, struct fcap_bytes chunk,
                                 int64_t bucket_ms)
{
    reader->reader = fcap_reader_of(chunk);
    reader->last_ms = bucket_ms;
    reader->user_count = 0;
    uint8_t head = fcap_reader_u8(&reader->reader);
    if (reader->reader.failed) {
        return FCAP_CORRUPT;
    }
    if ((head & 0xF0) != VERSION || (head & 0x0F & ~FLAG_IDS) != 0) {
        return FCAP_FORMAT;
    }
    reader->has_ids = (head & FLAG_IDS) != 0;
    return FCAP_OK;
}

static enum fcap_status read_user(struct fcap_chunk_reader *reader, struct fcap_bytes *ret_user)
{
    uint64_t reference = fcap_reader_varint(&reader->reader);
    if (reference > 0) {
        if (reference > reader->user_count) {
            return FCAP_CORRUPT;
        }
        *ret_user = reader->users[reference - 1];
        return FCAP_OK;
    }
    struct fcap_bytes user = fcap_reader_take(&reader->reader, fcap_reader_varint(&reader->reader));
    if (reader->reader.failed || user.size == 0) {
        return FCAP_CORRUPT;
    }
    if (reader->user_count == reader->user_capacity) {
        reader->user_capacity = reader->user_capacity * 2 + 64;
        reader->users = realloc(reader->users, reader->user_capacity * sizeof *reader->users);
        FCAP_ASSERT(reader->users != NULL);
    }
    reader->users[reader->user_count++] = user;
    *ret_user = user;
    return FCAP_OK;
}

enum fcap_status fcap_chunk_next(struct fcap_chunk_reader *reader, struct fcap_timer *ret_timer,
                                 bool *ret_found)
{
    if (fcap_reader_left(&reader->reader) == 0) {
        *ret_found = false;
        return FCAP_OK;
    }
    struct fcap_timer timer = {0};
    uint64_t since = fcap_reader_varint(&reader->reader);
    if (since > (uint64_t)(INT64_MAX - reader->last_ms)) {
        return FCAP_CORRUPT;
    }
    timer.time_ms = reader->last_ms + (int64_t)since;
    enum fcap_status status = read_user(reader, &timer.user);
    if (status != FCAP_OK) {
        return status;
    }
    uint64_t ad = fcap_reader_varint(&reader->reader);
    if (ad > UINT32_MAX) {
        return FCAP_CORRUPT;
    }
    timer.ad = (uint32_t)ad - 1;
    timer.id_hash = reader->has_ids ? fcap_reader_be64(&reader->reader) : 0;
    if (reader->reader.failed) {
        return FCAP_CORRUPT;
    }
    reader->last_ms = timer.time_ms;
    *ret_timer = timer;
    *ret_found = true;
    return FCAP_OK;
}

void fcap_chunk_reader_done(struct fcap_chunk_reader *reader)
{
    free(reader->users);
    *reader = (struct fcap_chunk_reader){0};
}
