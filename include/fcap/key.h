/* The stored keys (docs/DATA.md), pinned by golden bytes in tests/unit/test_formats.c.
 *
 * Big-endian integers, so that byte order is number order. Thread rule: pure functions. */
#ifndef FCAP_KEY_H
#define FCAP_KEY_H

#include "fcap/bytes.h"

/* Partitions are stored in 16 bits; 0xFFFF is kept for keys of the whole store. */
#define FCAP_PARTITION_MAX 0xFFFE

/* Where a timer chunk lies. */
struct fcap_chunk_key {
    int64_t bucket_ms; /* the bucket's first millisecond; >= 0 */
    int32_t partition;
    uint64_t commit; /* the commit that wrote it */
    uint16_t part;   /* a large chunk has several parts */
};

/* Each appends a key to `buffer`. */
void fcap_key_user(struct fcap_buffer *buffer, int32_t partition, struct fcap_bytes user);
void fcap_key_chunk(struct fcap_buffer *buffer, struct fcap_chunk_key key);
void fcap_key_ad(struct fcap_buffer *buffer, int32_t partition, uint32_t number);
void fcap_key_meta(struct fcap_buffer *buffer, int32_t partition, const char *name);
/* META: "redo" and the commit number be64. */
void fcap_key_redo(struct fcap_buffer *buffer, int32_t partition, uint64_t commit);

/* False when the bytes are no such key. */
bool fcap_key_read_user(struct fcap_bytes key, int32_t *ret_partition, struct fcap_bytes *ret_user);
bool fcap_key_read_chunk(struct fcap_bytes key, struct fcap_chunk_key *ret_key);
bool fcap_key_read_ad(struct fcap_bytes key, int32_t *ret_partition, uint32_t *ret_number);

#endif
