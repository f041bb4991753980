/* What every seed must do, as one suite for the fake and the real adapter: the races of backfill
 * are tried on the fake. A world is one Redis, however made, and the seed that talks to it. */
#ifndef FCAP_TESTS_SEED_CONTRACT_H
#define FCAP_TESTS_SEED_CONTRACT_H

#include "fcap/seed.h"

#include <stdbool.h>

/* The profile is "p". */
struct seed_world {
    const char *name;
    /* A new, empty Redis and a seed that has not looked yet; and their end. */
    struct fcap_seed *(*start)(void);
    void (*stop)(void);
    /* The partition has an owner whose gate is open, or none. */
    void (*show)(int32_t partition, bool is_shown);
    /* Another client increments the epoch; what it is now. */
    uint64_t (*increment)(int32_t partition);
    /* Another client's SET and DEL; what it sees at a key: NULL: nothing. */
    void (*set)(const char *key, const char *value);
    const char *(*get)(const char *key, int64_t *ret_expire_at_ms);
    /* FLUSHALL on a living connection; DEL fc:id; a restart that loses all. */
    void (*flush)(void);
    void (*delete_sentinel)(void);
    void (*restart)(bool keep_data);
    /* The server is away, and comes back with its data. */
    void (*down)(bool is_down);
    int64_t (*now_ms)(void); /* the server's clock */
};

/* Runs the suite; returns the number of failed tests. */
int seed_contract_run(const struct seed_world *world);

#endif
