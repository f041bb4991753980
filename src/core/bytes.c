#include "fcap/bytes.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

struct fcap_bytes fcap_bytes_of(const char *text)
{
    return (struct fcap_bytes){(const uint8_t *)text, strlen(text)};
}

bool fcap_bytes_equal(struct fcap_bytes a, struct fcap_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

int fcap_bytes_compare(struct fcap_bytes a, struct fcap_bytes b)
{
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size == 0 ? 0 : memcmp(a.data, b.data, size);
    if (order != 0) {
        return order;
    }
    return a.size < b.size ? -1 : a.size > b.size;
}

void fcap_buffer_done(struct fcap_buffer *buffer)
{
    if (buffer == NULL) {
        return;
    }
    free(buffer->data);
    *buffer = (struct fcap_buffer){0};
}

void fcap_buffer_clear(struct fcap_buffer *buffer)
{
    buffer->size = 0;
}

uint8_t *fcap_buffer_reserve(struct fcap_buffer *buffer, size_t size)
{
    size_t wanted = buffer->size + size;
    if (wanted > buffer->capacity) {
        size_t capacity = buffer->capacity * 2 > 64 ? buffer->capacity * 2 : 64;
        if (capacity < wanted) {
            capacity = wanted;
        }
        buffer->data = realloc(buffer->data, capacity);
        FCAP_ASSERT(buffer->data != NULL);
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->size;
}

void fcap_buffer_put(struct fcap_buffer *buffer, const void *data, size_t size)
{
    if (size == 0) {
        return;
    }
    memcpy(fcap_buffer_reserve(buffer, size), data, size);
    buffer->size += size;
}

void fcap_buffer_put_bytes(struct fcap_buffer *buffer, struct fcap_bytes bytes)
{
    fcap_buffer_put(buffer, bytes.data, bytes.size);
}

void fcap_buffer_put_text(struct fcap_buffer *buffer, const char *text)
{
    fcap_buffer_put(buffer, text, strlen(text));
}

void fcap_buffer_put_u8(struct fcap_buffer *buffer, uint8_t value)
{
    *fcap_buffer_reserve(buffer, 1) = value;
    buffer->size++;
}

static void put_big_endian(struct fcap_buffer *buffer, uint64_t value, size_t size)
{
    uint8_t *at = fcap_buffer_reserve(buffer, size);
    for (size_t i = 0; i < size; i++) {
        at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
    }
    buffer->size += size;
}

void fcap_buffer_put_be16(struct fcap_buffer *buffer, uint16_t value)
{
    put_big_endian(buffer, value, 2);
}

void fcap_buffer_put_be32(struct fcap_buffer *buffer, uint32_t value)
{
    put_big_endian(buffer, value, 4);
}

void fcap_buffer_put_be64(struct fcap_buffer *buffer, uint64_t value)
{
    put_big_endian(buffer, value, 8);
}

void fcap_buffer_put_i64(struct fcap_buffer *buffer, int64_t value)
{
    put_big_endian(buffer, (uint64_t)value, 8);
}

size_t fcap_varint_write(uint8_t bytes[FCAP_VARINT_MAX], uint64_t value)
{
    size_t size = 0;
    while (value >= 0x80) {
        bytes[size++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    bytes[size++] = (uint8_t)value;
    return size;
}

void fcap_buffer_put_varint(struct fcap_buffer *buffer, uint64_t value)
{
    buffer->size += fcap_varint_write(fcap_buffer_reserve(buffer, FCAP_VARINT_MAX), value);
}

void fcap_buffer_put_decimal(struct fcap_buffer *buffer, int64_t value)
{
    uint8_t digits[20];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (uint8_t)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (value < 0) {
        fcap_buffer_put_u8(buffer, '-');
    }
    fcap_buffer_put(buffer, digits + at, sizeof digits - at);
}

struct fcap_bytes fcap_buffer_bytes(const struct fcap_buffer *buffer)
{
    return (struct fcap_bytes){buffer->data, buffer->size};
}

struct fcap_reader fcap_reader_of(struct fcap_bytes bytes)
{
    static const uint8_t nothing[1];
    const uint8_t *at = bytes.data != NULL ? bytes.data : nothing;
    return (struct fcap_reader){at, at + bytes.size, false};
}

size_t fcap_reader_left(const struct fcap_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

static uint64_t take_big_endian(struct fcap_reader *reader, size_t size)
{
    if (fcap_reader_left(reader) < size) {
        reader->failed = true;
        reader->at = reader->end;
        return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | reader->at[i];
    }
    reader->at += size;
    return value;
}

uint8_t fcap_reader_u8(struct fcap_reader *reader)
{
    return (uint8_t)take_big_endian(reader, 1);
}

uint16_t fcap_reader_be16(struct fcap_reader *reader)
{
    return (uint16_t)take_big_endian(reader, 2);
}

uint32_t fcap_reader_be32(struct fcap_reader *reader)
{
    return (uint32_t)take_big_endian(reader, 4);
}

uint64_t fcap_reader_be64(struct fcap_reader *reader)
{
    return take_big_endian(reader, 8);
}

int64_t fcap_reader_i64(struct fcap_reader *reader)
{
    return (int64_t)take_big_endian(reader, 8);
}

enum fcap_status fcap_reader_version(struct fcap_reader *reader, uint8_t oldest, uint8_t newest,
                                     uint8_t *ret_version)
{
    uint8_t version = fcap_reader_u8(reader);
    if (reader->failed) {
        return FCAP_CORRUPT;
    }
    if (version < oldest || version > newest) {
        return FCAP_FORMAT;
    }
    *ret_version = version;
    return FCAP_OK;
}

uint64_t fcap_reader_varint(struct fcap_reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (reader->at == reader->end) {
            break;
        }
        uint8_t byte = *reader->at++;
        if (shift == 63 && byte > 1) {
            break; /* Beyond 64 bits. */
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
    reader->failed = true;
    reader->at = reader->end;
    return 0;
}

struct fcap_bytes fcap_reader_take(struct fcap_reader *reader, size_t size)
{
    if (fcap_reader_left(reader) < size) {
        reader->failed = true;
        reader->at = reader->end;
        return FCAP_BYTES_NONE;
    }
    struct fcap_bytes bytes = {reader->at, size};
    reader->at += size;
    return bytes;
}
