/* Compares what Redis holds with the definition, and keeps score.
 *
 * What must hold: a run of comparisons ends with oracle_passes(), which fails on one wrong key and
 * also when fewer keys were compared than the test says it needs. Thread rule: as the oracle. */
#ifndef FCAP_LAB_ORACLE_CHECK_H
#define FCAP_LAB_ORACLE_CHECK_H

#include "lab/oracle.h"

/* The score of a run. Start with {0}. */
struct oracle_tally {
    uint64_t compared;
    uint64_t non_empty; /* of those compared: a value was there */
    uint64_t absent;    /* of those compared: no key was there */
    uint64_t partial;   /* of those compared: the value was cut by limits.* and allowed to be */
    uint64_t wrong;
    char text[4096]; /* the first wrong ones, a line each */
};

/* How much a run must have compared to mean anything. */
struct oracle_minimum {
    uint64_t compared;
    uint64_t non_empty;
    uint64_t absent;
};

/* One key, and the states in which it may be seen. A value is right when its counts equal the
 * definition at some T in [max(as_of, at_min_ms), at_max_ms] over the records below some offset
 * between next_min and next_max. At rest both ends are equal, and only one answer is right. On a
 * living system the caller reads `next` (fc:meta) and the time before and after the key; at_min_ms
 * is then the time before, less the lag that the test allows. A key that is absent is a value
 * without counts. */
struct oracle_expectation {
    const char *user;
    int64_t window_ms;
    int64_t history_ms; /* as in struct oracle_query */
    int64_t at_min_ms;
    int64_t at_max_ms;       /* also the largest as_of that may be seen */
    const int64_t *next_min; /* by partition, next_count entries; NULL: every record was applied */
    const int64_t *next_max; /* NULL: as next_min */
    size_t next_count;
    bool strict_as_of;  /* T is the value's own as_of and nothing else (at_min_ms: absent keys);
                           wrong for streams with events that arrive after they left a window:
                           they change no value, yet the definition at an older as_of has them */
    bool allow_partial; /* a value with "partial":true may lack ads, never show wrong counts */
};

/* Compares one value, the JSON text of size_bytes at `value`; NULL: the key is absent. A wrong one
 * is counted, its difference written to the tally's text. True when right. */
bool oracle_check_value(struct oracle *oracle, const struct oracle_expectation *expectation,
                        const char *value, size_t size_bytes, struct oracle_tally *tally);

/* Compares a key's PXAT (PEXPIRETIME) with newest event time + L - 1. True when right. */
bool oracle_check_expiry(struct oracle *oracle, const struct oracle_query *query, int64_t pxat_ms,
                         struct oracle_tally *tally);

/* Compares counts that came by another way than Redis (the state, a bench): rows sorted by ad.
 * `where` names the place in the difference. True when right. */
bool oracle_check_counts(struct oracle *oracle, const struct oracle_query *query,
                         const struct oracle_count *rows, size_t count, const char *where,
                         struct oracle_tally *tally);

/* True when nothing was wrong and at least the minimum was compared. Otherwise ret_text (of
 * text_bytes, may be NULL) says why. */
bool oracle_passes(const struct oracle_tally *tally, const struct oracle_minimum *minimum,
                   char *ret_text, size_t text_bytes);

#endif
