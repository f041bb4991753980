#include "fcap/meta.h"

#include <string.h>

#define VERSION     2
#define VERSION_MIN 1 /* before partitions could be added */

/* Flags of a task. */
#define SETTLE_DUE 1
#define LOOK_DUE   2

/* Flags of a window. */
#define BUILDING 1
#define SHOWN    2
#define TAKEN    4

int64_t fcap_meta_ready_at(const struct fcap_meta *meta, const struct fcap_window_meta *window)
{
    int64_t since = window->complete_since_ms > meta->complete_since_ms ? window->complete_since_ms
                                                                        : meta->complete_since_ms;
    return since == FCAP_TIME_NONE ? FCAP_TIME_NONE : since + window->length_ms;
}

static void encode_window(const struct fcap_window_meta *window, struct fcap_buffer *buffer)
{
    fcap_buffer_put_be16(buffer, window->number);
    fcap_buffer_put_i64(buffer, window->length_ms);
    fcap_buffer_put_u8(buffer, (uint8_t)strlen(window->name));
    fcap_buffer_put_text(buffer, window->name);
    fcap_buffer_put_u8(buffer,
                       (uint8_t)((window->building ? BUILDING : 0) | (window->shown ? SHOWN : 0) |
                                 (window->taken ? TAKEN : 0)));
    fcap_buffer_put_i64(buffer, window->head_ms);
    fcap_buffer_put_i64(buffer, window->complete_since_ms);
    fcap_buffer_put(buffer, window->projected_to.bytes, sizeof window->projected_to.bytes);
}

void fcap_meta_encode(const struct fcap_meta *meta, struct fcap_buffer *buffer)
{
    fcap_buffer_put_u8(buffer, VERSION);
    fcap_buffer_put_i64(buffer, meta->next_offset);
    fcap_buffer_put_i64(buffer, meta->last_timestamp_ms);
    fcap_buffer_put_be64(buffer, meta->last_key_hash);
    fcap_buffer_put_i64(buffer, meta->clock_ms);
    fcap_buffer_put_i64(buffer, meta->history_ms);
    fcap_buffer_put_i64(buffer, meta->complete_since_ms);
    fcap_buffer_put_be64(buffer, meta->commit);
    fcap_buffer_put_be64(buffer, meta->valid_from);
    fcap_buffer_put_be64(buffer, meta->redo_from);
    fcap_buffer_put_i64(buffer, meta->redo_clock_ms);
    fcap_buffer_put_i64(buffer, meta->redo_history_ms);
    fcap_buffer_put_be32(buffer, meta->next_window);
    fcap_buffer_put_be32(buffer, meta->next_ad);
    fcap_buffer_put_i64(buffer, meta->bucket_ms);
    fcap_buffer_put_be32(buffer, meta->partition_count);
    fcap_buffer_put_be64(buffer, meta->epoch);
    fcap_buffer_put_i64(buffer, meta->grown_ms);
    fcap_buffer_put_i64(buffer, meta->moved_until_ms);
    fcap_buffer_put_i64(buffer, meta->counted_ms);
    fcap_buffer_put_be32(buffer, meta->grown_from);
    fcap_buffer_put_u8(
        buffer, (uint8_t)((meta->settle_due ? SETTLE_DUE : 0) | (meta->look_due ? LOOK_DUE : 0)));
    fcap_buffer_put_u8(buffer, (uint8_t)meta->window_count);
    for (size_t i = 0; i < meta->window_count; i++) {
        encode_window(&meta->windows[i], buffer);
    }
}

static bool decode_window(struct fcap_reader *reader, struct fcap_window_meta *window)
{
    window->number = fcap_reader_be16(reader);
    window->length_ms = fcap_reader_i64(reader);
    struct fcap_bytes name = fcap_reader_take(reader, fcap_reader_u8(reader));
    if (reader->failed || name.size == 0 || name.size > FCAP_WINDOW_NAME_MAX ||
        memchr(name.data, '\0', name.size) != NULL) {
        return false;
    }
    memcpy(window->name, name.data, name.size);
    window->name[name.size] = '\0';
    uint8_t flags = fcap_reader_u8(reader);
    window->building = (flags & BUILDING) != 0;
    window->shown = (flags & SHOWN) != 0;
    window->taken = (flags & TAKEN) != 0;
    window->head_ms = fcap_reader_i64(reader);
    window->complete_since_ms = fcap_reader_i64(reader);
    struct fcap_bytes identity = fcap_reader_take(reader, sizeof window->projected_to.bytes);
    if (reader->failed || window->length_ms <= 0 || (flags & ~(BUILDING | SHOWN | TAKEN)) != 0) {
        return false;
    }
    memcpy(window->projected_to.bytes, identity.data, identity.size);
    return true;
}

static bool decode_growth(struct fcap_reader *reader, uint8_t version, struct fcap_meta *meta)
{
    meta->grown_ms = FCAP_TIME_NONE;
    meta->moved_until_ms = FCAP_TIME_NONE;
    meta->counted_ms = FCAP_TIME_NONE;
    if (version == VERSION_MIN) {
        return true;
    }
    meta->grown_ms = fcap_reader_i64(reader);
    meta->moved_until_ms = fcap_reader_i64(reader);
    meta->counted_ms = fcap_reader_i64(reader);
    meta->grown_from = fcap_reader_be32(reader);
    uint8_t flags = fcap_reader_u8(reader);
    meta->settle_due = (flags & SETTLE_DUE) != 0;
    meta->look_due = (flags & LOOK_DUE) != 0;
    return (flags & ~(SETTLE_DUE | LOOK_DUE)) == 0;
}

enum fcap_status fcap_meta_decode(struct fcap_bytes bytes, struct fcap_meta *ret_meta)
{
    struct fcap_reader reader = fcap_reader_of(bytes);
    struct fcap_meta meta = {0};
    uint8_t version;
    enum fcap_status status = fcap_reader_version(&reader, VERSION_MIN, VERSION, &version);
    if (status != FCAP_OK) {
        return status;
    }
    meta.next_offset = fcap_reader_i64(&reader);
    meta.last_timestamp_ms = fcap_reader_i64(&reader);
    meta.last_key_hash = fcap_reader_be64(&reader);
    meta.clock_ms = fcap_reader_i64(&reader);
    meta.history_ms = fcap_reader_i64(&reader);
    meta.complete_since_ms = fcap_reader_i64(&reader);
    meta.commit = fcap_reader_be64(&reader);
    meta.valid_from = fcap_reader_be64(&reader);
    meta.redo_from = fcap_reader_be64(&reader);
    meta.redo_clock_ms = fcap_reader_i64(&reader);
    meta.redo_history_ms = fcap_reader_i64(&reader);
    meta.next_window = fcap_reader_be32(&reader);
    meta.next_ad = fcap_reader_be32(&reader);
    meta.bucket_ms = fcap_reader_i64(&reader);
    meta.partition_count = fcap_reader_be32(&reader);
    meta.epoch = fcap_reader_be64(&reader);
    if (!decode_growth(&reader, version, &meta)) {
        return FCAP_CORRUPT;
    }
    meta.window_count = fcap_reader_u8(&reader);
    if (reader.failed || meta.window_count > FCAP_WINDOWS_MAX || meta.bucket_ms <= 0) {
        return FCAP_CORRUPT;
    }
    for (size_t i = 0; i < meta.window_count; i++) {
        if (!decode_window(&reader, &meta.windows[i])) {
            return FCAP_CORRUPT;
        }
    }
    if (fcap_reader_left(&reader) != 0) {
        return FCAP_CORRUPT;
    }
    *ret_meta = meta;
    return FCAP_OK;
}
