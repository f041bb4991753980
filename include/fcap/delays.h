/* How late values reach Redis, and where a worker's CPU time goes.
 *
 * Delays are counted in log-linear buckets as HdrHistogram's (G. Tene, hdrhistogram.org): exact to
 * the millisecond below 16 ms, and every power of two above in 8 equal parts, so that a bucket is
 * at most an eighth wider than its lower end. Counts only grow; the difference of two readings is
 * the histogram of what came between. Thread rule: one writer; the buckets may be read by any
 * thread with fcap_counter_read(). */
#ifndef FCAP_DELAYS_H
#define FCAP_DELAYS_H

#include <stddef.h>
#include <stdint.h>

#define FCAP_DELAY_LINEAR  16 /* buckets of 1 ms */
#define FCAP_DELAY_PARTS   8  /* of each power of two above */
#define FCAP_DELAY_OCTAVES 13 /* up to 2^17 ms, about two minutes */
#define FCAP_DELAY_BUCKETS (FCAP_DELAY_LINEAR + FCAP_DELAY_PARTS * FCAP_DELAY_OCTAVES)

struct fcap_delay_histogram {
    uint64_t counts[FCAP_DELAY_BUCKETS + 1]; /* each bucket alone; the last: whatever is longer */
    uint64_t sum_ms;
};

/* The largest delay of a bucket, ms. */
int64_t fcap_delay_bound_ms(size_t bucket);

/* Counts one delay; below 0 counts as 0. Only the owning thread may. */
void fcap_delay_observe(struct fcap_delay_histogram *histogram, int64_t delay_ms);

/* Shown as histograms of seconds. One observation for each user x push that Redis acknowledged and
 * that was queued with the gate open; of several records (or expiries) in it the oldest is taken.
 */
/* clang-format off */
#define FCAP_DELAY_LIST(X)                                                                       \
    X(freshness_seconds,       "from a record's timestamp to the moment when Redis has all values that it changed") \
    X(expiry_lateness_seconds, "from the moment when an event leaves a window to the moment when Redis says so")

/* Of one pipeline step, in this order. */
#define FCAP_STAGE_LIST(X)                                                                       \
    X(read,   "reading, decoding and counting records")                                          \
    X(expire, "taking off what leaves the windows, building windows, opening gates")             \
    X(push,   "building values and queueing them")                                               \
    X(redis,  "writing commands and taking answers")                                             \
    X(commit, "choosing and encoding what is committed, letting records go")
/* clang-format on */

#define FCAP_STAGE_EVERY 16 /* asking for a thread's CPU time costs a system call */

enum fcap_stage {
#define X(name, text) FCAP_STAGE_##name,
    FCAP_STAGE_LIST(X)
#undef X
        FCAP_STAGE_COUNT
};

struct fcap_delays {
#define X(name, text) struct fcap_delay_histogram name;
    FCAP_DELAY_LIST(X)
#undef X
    /* CPU time of the pipeline's thread: one step of FCAP_STAGE_EVERY is measured, for all. */
    uint64_t stage_cpu_ns[FCAP_STAGE_COUNT];
};

/* The name of a stage, "read". Never NULL. */
const char *fcap_stage_name(enum fcap_stage stage);

#endif
