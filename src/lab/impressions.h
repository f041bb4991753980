/* Impressions as an ad server's log has them, from a seed: few users make most of it (Zipf), they
 * come in sessions and see some ads again, and a share arrives late, twice, or broken.
 *
 * What must hold: the same options and the same moments give the same impressions. A duplicate
 * repeats user, ad, time and id of one of the last IMPRESSIONS_RECENT good ones. Drawing is O(1)
 * whatever the number of users. Thread rule: one thread for each generator. */
#ifndef FCAP_LAB_IMPRESSIONS_H
#define FCAP_LAB_IMPRESSIONS_H

#include <stddef.h>
#include <stdint.h>

enum {
    IMPRESSIONS_RECENT = 4096,    /* how far back a duplicate reaches, impressions */
    IMPRESSIONS_VALUE_MAX = 4096, /* bytes of the largest JSON text */
};

struct impressions_options {
    uint64_t seed;
    uint32_t users;          /* distinct users, at least 1 */
    double user_exponent;    /* Zipf: rank r comes in proportion to 1 / r^exponent; 0: all alike */
    uint32_t ads;            /* distinct ads, at least 1 */
    double ad_exponent;      /* the same for ads */
    uint32_t sessions;       /* open at a time; 0: none, each impression is anybody's */
    uint32_t session_length; /* impressions of a session, mean (geometric); at least 1 */
    uint32_t jitter_ms;      /* an impression in time is 0 to this older than now */
    uint32_t late_permille;  /* share that is older by 1 to late_ms_max */
    int64_t late_ms_max;     /* ms */
    uint32_t duplicate_permille; /* share that repeats an earlier one */
    uint32_t malformed_permille; /* share that no daemon can count */
    size_t value_bytes;          /* the JSON is filled up to this size; smaller texts stay */
};

enum impression_kind {
    IMPRESSION_GOOD,
    IMPRESSION_LATE,
    IMPRESSION_DUPLICATE,
    IMPRESSION_MALFORMED, /* user is set, for the record's key; nothing else counts */
};

struct impression {
    enum impression_kind kind;
    int64_t time_ms; /* event time */
    char user[16];
    char ad[16];
    char id[24];
};

struct impressions;

/* Gives a generator. Out of memory or a count of 0 ends the process. */
struct impressions *impressions_open(const struct impressions_options *options);
/* Frees it. NULL is fine. */
void impressions_close(struct impressions *impressions);

/* The next one, as of now_ms (Unix epoch). */
void impressions_next(struct impressions *impressions, int64_t now_ms, struct impression *ret_next);

/* Writes the record's value to `text` (IMPRESSIONS_VALUE_MAX bytes, NUL-terminated) and gives its
 * size in bytes: {"user_id":"u17","ad_id":"a4","ts":1764460800000,"id":"e9"}, filled by a member
 * "page" up to the wanted size. A malformed one is of one of five kinds. */
size_t impressions_json(struct impressions *impressions, const struct impression *impression,
                        char *text);

/* The partition that holds everything of a user, as a producer with a key does it. Pure. */
int32_t impressions_partition(const char *user, int32_t partitions);

#endif
