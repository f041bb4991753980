/* An in-memory topic and deterministic sources (members) on it, for the simulator and for unit
 * tests: nothing happens by itself, nothing waits, time does not exist.
 *
 * The contract suite (tests/contract/source_contract.h) holds for it as for the real source. It is
 * harsher in one thing: a record's bytes are overwritten and freed as soon as the handler returns.
 * Thread rule: one thread. */
#ifndef FCAP_TESTS_FAKE_SOURCE_H
#define FCAP_TESTS_FAKE_SOURCE_H

#include "fcap/ports.h"

/* --- the topic ------------------------------------------------------------------------------ */

struct fake_record {
    bool present; /* false: an offset without a record (a transaction marker, compaction) */
    int64_t timestamp_ms;
    enum fcap_timestamp_type timestamp_type;
    bool has_key;
    bool has_value;
    struct fcap_buffer key;
    struct fcap_buffer value;
};

struct fake_log {
    struct fake_record *records; /* index: offset */
    int64_t end;                 /* next offset to be written */
    int64_t capacity;
    int64_t log_start;
    uint64_t changes; /* times that it was recreated or truncated: readers notice it at once */
    int64_t held_at;  /* readers see nothing at or above (an open transaction); -1: no such */
};

struct fake_topic {
    struct fake_log *logs; /* index: partition */
    int32_t partition_count;
    uint64_t assignments; /* assignment numbers given so far */
};

void fake_topic_init(struct fake_topic *topic, int32_t partition_count);
void fake_topic_done(struct fake_topic *topic);
/* More partitions, empty. */
void fake_topic_grow(struct fake_topic *topic, int32_t partition_count);
/* Appends a copy; data == NULL is a null key or value. Returns the offset. */
int64_t fake_topic_append(struct fake_topic *topic, int32_t partition, struct fcap_bytes key,
                          struct fcap_bytes value, int64_t timestamp_ms,
                          enum fcap_timestamp_type type);
/* Takes one offset without a record. */
void fake_topic_skip(struct fake_topic *topic, int32_t partition);
/* Retention: records below `log_start` are gone. */
void fake_topic_trim(struct fake_topic *topic, int32_t partition, int64_t log_start);
/* The partition is empty and starts at 0 again. */
void fake_topic_recreate(struct fake_topic *topic, int32_t partition);
/* The records from `end` on are lost. */
void fake_topic_truncate(struct fake_topic *topic, int32_t partition, int64_t end);
/* Readers see only what is below `offset`; -1: everything. */
void fake_topic_hold(struct fake_topic *topic, int32_t partition, int64_t offset);
/* The end that readers see. */
int64_t fake_topic_end(const struct fake_topic *topic, int32_t partition);
/* A view of a record, valid until the log changes; false: none there. For oracles. */
bool fake_topic_read(const struct fake_topic *topic, int32_t partition, int64_t offset,
                     struct fcap_record *ret_record);

/* --- a member ------------------------------------------------------------------------------- */

struct fake_partition {
    int32_t id;
    uint64_t assignment;
    struct fcap_start start;
    int polls_until_started;
    bool started;
    bool end_told;    /* since the last record */
    uint64_t changes; /* of its log, as known at the start */
    int64_t next;
    int64_t read_next; /* the highest that `next` has been: redelivery takes it back */
};

struct fake_source {
    struct fcap_source port;
    struct fake_topic *topic;

    struct fake_partition *owned;
    size_t owned_count;
    int32_t *assigning; /* given by the next poll */
    size_t assigning_count;
    int32_t *revoking; /* taken by the next poll, before anything is given */
    bool *revoking_lost;
    size_t revoking_count;
    size_t turn;
    int32_t told_count; /* of partitions, by counted() */

    /* Knobs; change them at any time. */
    struct fcap_decoder *decoder; /* default NULL: nothing is known of events; borrowed */
    bool send_allowed;            /* default true: what may_send() says for owned partitions */
    int lookup_polls;             /* default 0: polls between assigned() and started() */
    size_t turn_records;   /* default 1: records of one partition before the next one's turn */
    enum fcap_status fail; /* default OK: what poll() returns instead of doing anything */

    int64_t *published; /* index: partition; -1: never */
    int32_t published_count;
    uint64_t records; /* delivered */
};

/* Borrows the topic. */
void fake_source_init(struct fake_source *source, struct fake_topic *topic);
/* Forgets everything, as a crash does. */
void fake_source_done(struct fake_source *source);

/* The next poll gives this partition to the member. It must not be owned or being given, unless a
 * revoke of it is queued. */
void fake_source_assign(struct fake_source *source, int32_t partition);
/* The next poll takes it away. From now on may_send() is false for it when `lost`. No effect when
 * it is not owned; a queued assign of it is dropped. */
void fake_source_revoke(struct fake_source *source, int32_t partition, bool lost);
/* The last `count` offsets of an owned partition are delivered again: as a broken library would. */
void fake_source_redeliver(struct fake_source *source, int32_t partition, int64_t count);
bool fake_source_owns(const struct fake_source *source, int32_t partition);

#endif
