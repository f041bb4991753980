/* The port to the Redis that backfill writes into while daemons may own some of its partitions.
 *
 * What must hold: all calls speak of one Redis, the one of the first look (its run id and fc:id);
 * when another one answers, or the same one emptied, each of them gives FOREIGN and changes
 * nothing. RETRY: nothing is known about what was done; the same call may be made again. Thread
 * rule: one thread. */
#ifndef FCAP_SEED_H
#define FCAP_SEED_H

#include "fcap/bytes.h"
#include "fcap/status.h"

/* SET key value PXAT expire_at_ms NX. Borrowed for the call. */
struct fcap_seed_key {
    struct fcap_bytes key;
    struct fcap_bytes value;
    int64_t expire_at_ms; /* Unix epoch */
};

/* What a look took and gave. */
struct fcap_seed_time {
    int64_t time_ms; /* Redis TIME, Unix epoch, taken after all that was looked at */
    int64_t cost_ms; /* of the server, about */
};

struct fcap_seed;
struct fcap_seed_ops {
    /* Whose gates are open: ret_open[p], for each of `count` partitions, tells whether there is a
     * fc:epoch:<profile>:<p>:owner now. */
    enum fcap_status (*look)(struct fcap_seed *seed, int32_t count, bool *ret_open,
                             struct fcap_seed_time *ret_time);
    /* INCR fc:epoch:<profile>:<partition>, as an owner does; gives the new value. */
    enum fcap_status (*claim)(struct fcap_seed *seed, int32_t partition, uint64_t *ret_epoch);
    /* One transaction: all keys that do not exist are written, unless the partition's epoch is
     * another one than `epoch` at that moment: then *ret_fenced, and nothing was written.
     * *ret_written counts the keys that did not exist. */
    enum fcap_status (*write)(struct fcap_seed *seed, int32_t partition, uint64_t epoch,
                              const struct fcap_seed_key *keys, size_t count, size_t *ret_written,
                              bool *ret_fenced);
};
struct fcap_seed {
    const struct fcap_seed_ops *ops;
};

#endif
