/* A timer chunk: one commit's events of one bucket of event time, sorted by time (docs/DATA.md).
 *
 * A user's bytes stand once in a part; later events of the user refer to them. Thread rule: a
 * writer or reader belongs to one thread. */
#ifndef FCAP_CHUNK_H
#define FCAP_CHUNK_H

#include "fcap/bytes.h"
#include "fcap/status.h"

/* The ad number of an event that a tombstone voided: it stays known for dedup, and counts nothing.
 */
#define FCAP_AD_VOID UINT32_MAX

/* One event of a chunk. `user` is borrowed from the chunk's bytes. */
struct fcap_timer {
    int64_t time_ms;
    struct fcap_bytes user;
    uint32_t ad;      /* FCAP_AD_VOID: void */
    uint64_t id_hash; /* 0 without ids */
};

struct fcap_chunk_writer {
    struct fcap_buffer *buffer; /* Borrowed; the chunk is appended. */
    int64_t last_ms;
    uint32_t user_count; /* distinct users so far */
    bool has_ids;
};

/* Starts a part. `bucket_ms` is the bucket's first millisecond. */
void fcap_chunk_begin(struct fcap_chunk_writer *writer, struct fcap_buffer *buffer,
                      int64_t bucket_ms, bool has_ids);

/* Adds an event; times must not decrease. *reference is the caller's memory of this user in this
 * part: 0 the first time (then set), else what an earlier call set. */
void fcap_chunk_add(struct fcap_chunk_writer *writer, const struct fcap_timer *timer,
                    uint32_t *reference);

struct fcap_chunk_reader {
    struct fcap_reader reader;
    int64_t last_ms;
    bool has_ids;
    struct fcap_bytes *users; /* Owned: the dictionary met so far. */
    size_t user_count;
    size_t user_capacity;
};

/* Starts reading; the reader may be zero-initialised or used before (its memory is kept). FORMAT:
 * another version or unknown flags; CORRUPT: too short. */
enum fcap_status fcap_chunk_open(struct fcap_chunk_reader *reader, struct fcap_bytes chunk,
                                 int64_t bucket_ms) FCAP_MUST_USE;

/* The next event; *ret_found is false at the end. CORRUPT: damaged bytes. */
enum fcap_status fcap_chunk_next(struct fcap_chunk_reader *reader, struct fcap_timer *ret_timer,
                                 bool *ret_found) FCAP_MUST_USE;

/* Frees the dictionary. */
void fcap_chunk_reader_done(struct fcap_chunk_reader *reader);

#endif
