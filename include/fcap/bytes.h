/* Borrowed byte strings, growable buffers, and the integer encodings of the stored formats.
 *
 * `struct fcap_bytes` never owns; `struct fcap_buffer` always owns. Thread rule: no shared state.
 */
#ifndef FCAP_BYTES_H
#define FCAP_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fcap/status.h"

/* Borrowed bytes. data == NULL means "absent" (a Kafka null), which differs from empty. */
struct fcap_bytes {
    const uint8_t *data;
    size_t size; /* bytes */
};

#define FCAP_BYTES_NONE ((struct fcap_bytes){NULL, 0})

/* A view of a NUL-terminated string, without the NUL. Borrows. */
struct fcap_bytes fcap_bytes_of(const char *text);

/* True when both hold the same bytes (absent equals empty here). */
bool fcap_bytes_equal(struct fcap_bytes a, struct fcap_bytes b);

/* memcmp order, shorter first on a tie: RocksDB's order. Returns <0, 0, >0. */
int fcap_bytes_compare(struct fcap_bytes a, struct fcap_bytes b);

/* Growable bytes. Zero-initialised is a valid empty buffer. */
struct fcap_buffer {
    uint8_t *data;
    size_t size;     /* bytes in use */
    size_t capacity; /* bytes allocated */
};

/* Frees and zeroes. NULL is fine. */
void fcap_buffer_done(struct fcap_buffer *buffer);

/* Size 0; the memory stays. */
void fcap_buffer_clear(struct fcap_buffer *buffer);

/* Makes room for `size` more bytes and returns where they start; the caller adds to `size` itself.
 * The process ends when memory is exhausted. Valid until the next call on the buffer. */
uint8_t *fcap_buffer_reserve(struct fcap_buffer *buffer, size_t size);

/* Appends. */
void fcap_buffer_put(struct fcap_buffer *buffer, const void *data, size_t size);
void fcap_buffer_put_bytes(struct fcap_buffer *buffer, struct fcap_bytes bytes);
void fcap_buffer_put_text(struct fcap_buffer *buffer, const char *text);
void fcap_buffer_put_u8(struct fcap_buffer *buffer, uint8_t value);
void fcap_buffer_put_be16(struct fcap_buffer *buffer, uint16_t value);
void fcap_buffer_put_be32(struct fcap_buffer *buffer, uint32_t value);
void fcap_buffer_put_be64(struct fcap_buffer *buffer, uint64_t value);
/* be64 of the two's complement: times and offsets. */
void fcap_buffer_put_i64(struct fcap_buffer *buffer, int64_t value);
/* LEB128: 7 bits a byte, low bits first. At most FCAP_VARINT_MAX bytes. */
void fcap_buffer_put_varint(struct fcap_buffer *buffer, uint64_t value);
#define FCAP_VARINT_MAX 10
/* The same into a caller's bytes; gives how many it took. */
size_t fcap_varint_write(uint8_t bytes[FCAP_VARINT_MAX], uint64_t value);
/* Decimal digits. */
void fcap_buffer_put_decimal(struct fcap_buffer *buffer, int64_t value);

/* The buffer's bytes. Valid until the next change of the buffer. */
struct fcap_bytes fcap_buffer_bytes(const struct fcap_buffer *buffer);

/* A cursor over stored bytes. A read beyond the end sets `failed` and gives zeroes, so that a
 * decoder checks once at the end. */
struct fcap_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

struct fcap_reader fcap_reader_of(struct fcap_bytes bytes);
uint8_t fcap_reader_u8(struct fcap_reader *reader);
uint16_t fcap_reader_be16(struct fcap_reader *reader);
uint32_t fcap_reader_be32(struct fcap_reader *reader);
uint64_t fcap_reader_be64(struct fcap_reader *reader);
int64_t fcap_reader_i64(struct fcap_reader *reader);
uint64_t fcap_reader_varint(struct fcap_reader *reader);
/* `size` borrowed bytes; valid as long as the bytes under the reader. */
struct fcap_bytes fcap_reader_take(struct fcap_reader *reader, size_t size);
/* The version byte with which a stored record begins. CORRUPT: there is none; FORMAT: it is not
 * one of `oldest` to `newest`. */
enum fcap_status fcap_reader_version(struct fcap_reader *reader, uint8_t oldest, uint8_t newest,
                                     uint8_t *ret_version) FCAP_MUST_USE;
/* Bytes not read yet. */
size_t fcap_reader_left(const struct fcap_reader *reader);

/* XXH64 (Yann Collet's xxHash, 64-bit variant, written from its specification; test vectors in
 * tests/unit). Part of the stored format: ids for dedup. */
uint64_t fcap_hash64(struct fcap_bytes bytes, uint64_t seed);

#endif
