/* What a worker's pipeline counts. Written by its thread, read by any other.
 *
 * The struct and the metrics page come from the lists here. Thread rule: one
 * writer; readers use fcap_counter_read. */
#ifndef FCAP_COUNTERS_H
#define FCAP_COUNTERS_H

#include "fcap/event.h"
#include "fcap/ports.h"

/* clang-format off */
#define FCAP_COUNTER_LIST(X)                                                                     \
    X(records,            "records delivered by the source")                                     \
    X(events,             "events counted in at least one window")                               \
    X(untrusted_times,    "records whose own timestamp is absent, before 2001, in the future, or long before their event") \
    X(untrusted_starts,   "partitions read from the log start because timestamps would have hidden events")         \
    X(tombstones,         "users erased")                                                        \
    X(expiries,           "event x window pairs that left a window")                             \
    X(built,              "event x window pairs added to a window that was being built")         \
    X(underflows,         "expiries that found nothing to subtract; must stay 0")                \
    X(cache_hits,         "user records found in memory")                                        \
    X(cache_misses,       "user records looked up in the store")                                 \
    X(pushes_set,         "SET commands handed to the sink")                                     \
    X(pushes_unlink,      "UNLINK commands handed to the sink")                                  \
    X(acks_done,          "pushes that the server answered with success")                        \
    X(acks_refused,       "pushes that the server refused")                                      \
    X(acks_unknown,       "pushes whose connection broke before the answer")                     \
    X(values_cut,         "values cut by limits.value_bytes")                                    \
    X(push_bytes,         "bytes of pushed keys and values")                                     \
    X(commits,            "commits written")                                                     \
    X(commits_failed,     "commits that had to be written again")                                \
    X(commit_bytes,       "bytes of encoded commits")                                            \
    X(commit_users,       "user records encoded")                                                \
    X(full_projections,   "complete projections begun")                                          \
    X(rebuilds,           "partitions projected again by request (POST /rebuild)")               \
    X(replays,            "partitions read anew from Kafka for a longer window")                 \
    X(redo_events,        "timer events read again at start")                                    \
    X(backpressure_steps, "steps in which no records were taken")                                \
    X(steps,              "pipeline steps")
/* clang-format on */

struct fcap_counters {
#define X(name, text) uint64_t name;
    FCAP_COUNTER_LIST(X)
#undef X
    uint64_t rejects[FCAP_REJECT_COUNT];
    uint64_t gaps[FCAP_GAP_KIND_COUNT]; /* spans that were lost, see gaps.h */
};

/* Adds; only the owning thread may. */
#define FCAP_COUNT(counter, amount)                                                                \
    __atomic_store_n(&(counter), (counter) + (uint64_t)(amount), __ATOMIC_RELAXED)

/* Reads from any thread. */
static inline uint64_t fcap_counter_read(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

#endif
