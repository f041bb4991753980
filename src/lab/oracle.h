/* The definition of every count, by brute force from the list of events (docs: "What a count
 * means"). It shares no code with the engine: libc only, no header of include/fcap.
 *
 *     count(u, a, L, T) = number of accepted events of u and a with event_time > T - L
 *
 * What must hold: the records of one partition are added in offset order, as they stand in the
 * topic. Thread rule: one thread at a time; a query uses scratch memory of the oracle. Out of
 * memory ends the process. The limit on ads a user (limits.ads_per_user) is not part of it: a
 * value that was cut says so, see oracle_check.h. */
#ifndef FCAP_LAB_ORACLE_H
#define FCAP_LAB_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oracle;

/* An event as the topic holds it. Texts are borrowed and NUL-terminated (ids hold no NUL). */
struct oracle_event {
    int32_t partition;
    int64_t offset;
    const char *user;
    const char *ad;
    int64_t time_ms; /* event time, Unix epoch */
    const char *id;  /* event.id; NULL: no duplicates are looked for */
};

enum oracle_verdict {
    ORACLE_ACCEPTED,    /* counts, unless it is a duplicate or gets erased */
    ORACLE_FUTURE,      /* refused by the future rule; only its offset is used up */
    ORACLE_REDELIVERED, /* an offset of the partition that was passed already: ignored */
};

/* Gives an empty oracle. */
struct oracle *oracle_open(void);

/* Frees it and every text that it gave. NULL is fine. */
void oracle_close(struct oracle *oracle);

/* Adds an event that was accepted. Of several with the same partition, user, time and id only the
 * one with the lowest offset counts, also when that one has been erased since. */
enum oracle_verdict oracle_add(struct oracle *oracle, const struct oracle_event *event);

/* The same behind the future rule: refused iff time_ms > bound_ms + skew_ms. `bound_ms` is what
 * the caller knows for this record: the wall clock, or with LogAppendTime the earlier of both. */
enum oracle_verdict oracle_add_bounded(struct oracle *oracle, const struct oracle_event *event,
                                       int64_t bound_ms, int64_t skew_ms);

/* A null value with key `user`: erases every event of the user in this partition before it. */
enum oracle_verdict oracle_tombstone(struct oracle *oracle, int32_t partition, int64_t offset,
                                     const char *user);

/* A record that counts nothing (malformed, filtered): its offset is used up. */
enum oracle_verdict oracle_skip(struct oracle *oracle, int32_t partition, int64_t offset);

/* What is asked: one user, one window, at one moment, over the records known then. */
struct oracle_query {
    const char *user;
    int64_t window_ms;   /* L */
    int64_t at_ms;       /* T */
    int64_t history_ms;  /* H: events at or before it never count; 0: no such limit */
    const int64_t *next; /* by partition: records at or beyond it do not exist yet; NULL: all do */
    size_t next_count;   /* partitions in `next`; a partition beyond them has no record yet */
};

struct oracle_count {
    const char *ad; /* valid until oracle_close() */
    uint64_t count; /* never 0 */
};

/* Counts sorted by ad, in byte order. Start with {0}; one struct serves many queries. */
struct oracle_counts {
    struct oracle_count *rows;
    size_t count;
    size_t capacity;
};

/* Frees the rows. */
void oracle_counts_done(struct oracle_counts *counts);

/* The definition. An unknown user has no counts. */
void oracle_query(struct oracle *oracle, const struct oracle_query *query,
                  struct oracle_counts *ret_counts);

/* The newest event time among the user's events that are neither erased nor at or before H;
 * window_ms and at_ms are not looked at. False if there is none. A key's PXAT is this + L - 1. */
bool oracle_newest(struct oracle *oracle, const struct oracle_query *query, int64_t *ret_newest_ms);

/* Users in order of first appearance, for loops over every key. */
size_t oracle_user_count(const struct oracle *oracle);
const char *oracle_user(const struct oracle *oracle, size_t index);

/* The user's records (events and tombstones) in order of arrival. */
struct oracle_record {
    int32_t partition;
    int64_t offset;
    bool is_tombstone;
    int64_t time_ms; /* of an event */
};
size_t oracle_record_count(const struct oracle *oracle, const char *user);
struct oracle_record oracle_record_at(const struct oracle *oracle, const char *user, size_t index);

/* The next offset of a partition: one more than the largest that was added; 0 if none. */
int64_t oracle_next_offset(const struct oracle *oracle, int32_t partition);

#endif
