/* Records of a topic by chance, with everything that a count must get right: events late for some
 * windows or for all, ahead of time and too far ahead, duplicates, tombstones, users with many ads.
 *
 * What must hold: the same seed gives the same records. A user stands in one partition. Thread
 * rule: one thread. */
#ifndef FCAP_TESTS_RANDOM_LOG_H
#define FCAP_TESTS_RANDOM_LOG_H

#include "fcap/ports.h"

#include "lib/fake_source.h"

/* A repeatable number from 0 to bound - 1; the state is any number. */
uint32_t random_below(uint64_t *state, uint32_t bound);

struct random_log_options {
    uint64_t seed;
    size_t records;
    int32_t partitions;
    uint32_t users;       /* of all partitions */
    uint32_t ads;         /* of all users */
    int64_t now_ms;       /* Unix epoch */
    int64_t span_ms;      /* event times reach back from now to twice this */
    int64_t skew_ms;      /* the future rule's */
    uint32_t tombstones;  /* in 1000 */
    uint32_t duplicates;  /* in 1000: repeats user, time and id, at times with another ad */
    uint32_t futures;     /* in 1000: refused by the future rule, or just not */
    uint32_t with_id;     /* in 1000: of the events */
    uint32_t edge_events; /* in 1000: exactly at, and 1 ms around, an edge of `edges` before now */
    const int64_t *edges; /* window lengths */
    size_t edge_count;
};

struct random_record {
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms;
    enum fcap_timestamp_type timestamp_type;
    bool is_tombstone;
    bool is_future; /* refused when now is its clock */
    int64_t time_ms;
    char user[24];
    char ad[24];
    char id[24]; /* "": none */
};

/* Gives `options->records` records in order of arrival; the caller frees them. */
struct random_record *random_log(const struct random_log_options *options);

/* Appends one to the topic, whose next offset must be the record's. */
void random_log_append(struct fake_topic *topic, const struct random_record *record);

/* Reads what random_log_append wrote. */
struct fcap_decoder *random_log_decoder(void);

#endif
