/* The seed port on the Redis in memory, beside the sinks of daemons: what they write and increment
 * is what it sees. Who has a gate open is told by the test.
 *
 * What must hold: a call is done as a whole or not at all, between two calls of anybody else.
 * Deterministic. Thread rule: one thread. */
#ifndef FCAP_TESTS_FAKE_SEED_H
#define FCAP_TESTS_FAKE_SEED_H

#include "fcap/seed.h"

#include "lib/fake_sink.h"

enum { FAKE_SEED_PARTITIONS_MAX = 16 };

struct fake_seed {
    struct fcap_seed port; /* first */
    /* Knobs; change them at any time. */
    int64_t shown_until_ms[FAKE_SEED_PARTITIONS_MAX]; /* the partition has an owner until then */
    int64_t look_cost_ms;                             /* what a look says that it took */
    uint32_t unavailable; /* in 1000: a call gives RETRY, half of these after it was done */
    /* Planted faults: what the port promises and a careless one would not do. */
    bool ignores_epoch;    /* writes whatever the epoch is */
    bool overwrites;       /* SET without NX */
    bool claims_nothing;   /* reads the epoch instead of incrementing it */
    bool is_blind;         /* sees no owner */
    bool ignores_identity; /* goes on with another Redis */
    /* Told before each transaction that writes. NULL: not wanted. */
    void (*transaction)(void *context, int32_t partition, const struct fcap_seed_key *keys,
                        size_t count);
    void *context;
    /* Counted. */
    uint64_t looks;
    uint64_t claims;
    uint64_t transactions;
    uint64_t fenced;
    uint64_t foreign;
    /* Private. */
    struct fcap_fake_redis *redis;
    struct fcap_fake_sink sink;
    const char *profile;
    uint64_t random;
    bool has_looked;
    uint64_t run_id;
    uint64_t sentinel;
    bool is_acked;
    int64_t integer;
};

/* Borrows everything. `clock` is the client's own. */
void fake_seed_init(struct fake_seed *seed, struct fcap_fake_redis *redis, struct fcap_clock *clock,
                    const char *profile);
void fake_seed_done(struct fake_seed *seed);

/* Another client, a daemon: the command is done when it returns. Gives an INCREMENT's number. */
int64_t fake_seed_do(struct fake_seed *seed, const struct fcap_push *push);
/* INCR of the partition's epoch. */
uint64_t fake_seed_increment(struct fake_seed *seed, int32_t partition);

/* The epoch of a partition as it is now; 0: none. */
uint64_t fake_seed_epoch(struct fake_seed *seed, int32_t partition);

#endif
