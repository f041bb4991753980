/* The store port in memory, for the simulator and the contract suite: deterministic, and ready to
 * fail on demand.
 *
 * What must always hold: it keeps every promise of include/fcap/ports.h and no more than it must:
 * a sync covers only what was completed when it was asked for, a crash may lose everything newer,
 * and dropped timers are gone from every older state too, so that a missing sync shows. Thread
 * rule: one thread. */
#ifndef FAKE_STORE_H
#define FAKE_STORE_H

#include "fcap/ports.h"

#define FAKE_STORE_IN_FLIGHT_MAX 8

enum fake_store_fate {
    FAKE_STORE_APPLY,
    FAKE_STORE_FAIL,           /* nothing is written, failure is reported */
    FAKE_STORE_APPLY_AND_FAIL, /* it is written, yet failure is reported */
    FAKE_STORE_DELAY,          /* not finished yet; asked again at the next call */
};

/* Any of them may be NULL: no faults of that kind. */
struct fake_store_hooks {
    void *context;
    /* What becomes of the oldest waiting batch. Not asked for one that fails because an older one
     * of its handle did. */
    enum fake_store_fate (*commit)(void *context, const struct fcap_batch *batch);
    /* What a sync comes to when it is polled: OK done, BUSY not yet, else a failure. Without the
     * hook it is done at the second call. */
    enum fcap_status (*sync)(void *context);
    /* True: this bucket may be dropped but stays for now. */
    bool (*lingers)(void *context, uint64_t bucket_ms);
    enum fcap_status failure; /* what failed commits report; OK (zero): UNAVAILABLE */
};

struct fake_store; /* one machine's disk */

/* Gives an empty store. `hooks` is borrowed and may be changed at any time; NULL: no faults. */
struct fake_store *fake_store_open(const struct fake_store_hooks *hooks);
void fake_store_close(struct fake_store *fake);

/* A handle for one worker; valid until the next crash or close. */
struct fcap_store *fake_store_handle(struct fake_store *fake);

/* Works on up to `count` waiting batches (until one is delayed) without reporting them. Gives how
 * many were finished. */
size_t fake_store_run(struct fake_store *fake, size_t count);

/* States newer than the last one known to be durable. */
size_t fake_store_unsynced(const struct fake_store *fake);

/* The process dies: handles, claims and waiting batches are gone. `lose` 0: kill -9, every write
 * stays. Up to fake_store_unsynced(): the machine dies, the newest `lose` writes are gone too. */
void fake_store_crash(struct fake_store *fake, size_t lose);

/* Pairs in a family now. */
size_t fake_store_pairs(const struct fake_store *fake, enum fcap_family family);

/* True when some commit of the partition is in the store now. */
bool fake_store_holds(const struct fake_store *fake, int32_t partition);

/* Timers that were dropped since the store was opened; batches applied; refused sections. */
struct fake_store_counts {
    uint64_t timers_dropped;
    uint64_t applied;
    uint64_t failed;
    uint64_t applied_but_failed;
    uint64_t sections_refused;
    uint64_t syncs;
    uint64_t lost_at_crash;
};
struct fake_store_counts fake_store_counts(const struct fake_store *fake);

#endif
