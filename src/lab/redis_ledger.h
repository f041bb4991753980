/* Keeps account of what daemons and backfills write to Redis, command by command, and of what they
 * must never do (docs/DATA.md): write a count key before they have counted an epoch of its
 * partition up, let a key's as_of fall, name a partition in fc:meta that nobody has taken.
 *
 * What must hold: commands are given in the order in which the server did them, from before the
 * first writer connects. Memory is bounded by keys_max; what is beyond that is an error, never
 * forgotten. A client is who it is from its CLIENT SETNAME on, so an address may come again. Thread
 * rule: one thread at a time. */
#ifndef FCAP_LAB_REDIS_LEDGER_H
#define FCAP_LAB_REDIS_LEDGER_H

#include "lab/redis_monitor.h"

#define REDIS_LEDGER_PARTITIONS_MAX 64

struct redis_ledger_options {
    const char *profile; /* borrowed */
    int32_t partitions;
    int32_t (*partition_of)(const void *context, const char *user); /* pure */
    const void *context;
    size_t keys_max; /* count keys that may appear */
};

/* One partition. Order numbers count the commands from 1; 0: never. */
struct redis_ledger_partition {
    uint64_t increments; /* of its epoch */
    uint64_t first_increment;
    int64_t first_increment_us; /* the server's clock, Unix epoch */
    uint64_t last_increment;
    int64_t last_increment_us;
    uint64_t writes; /* SET and UNLINK of count keys */
    uint64_t first_write;
    int64_t first_write_us;
};

struct redis_ledger_report {
    uint64_t commands;
    uint64_t sets;    /* of count keys, that took effect */
    uint64_t kept;    /* SET ... NX of a key that existed */
    uint64_t unlinks; /* of count keys */
    uint64_t claims;  /* SET of fc:meta:<profile>:* */
    uint64_t keys;    /* different count keys */
    uint64_t names;   /* connections of daemons: CLIENT SETNAME fcapd:<profile>:... */
    uint64_t wrong;   /* of all kinds; the first ones stand in the text, a line each */
    char text[4096];
    struct redis_ledger_partition partitions[REDIS_LEDGER_PARTITIONS_MAX];
};

struct redis_ledger;

/* Gives an empty ledger; out of memory ends the process. */
struct redis_ledger *redis_ledger_open(const struct redis_ledger_options *options);
/* NULL is fine. */
void redis_ledger_close(struct redis_ledger *ledger);

/* The next command. */
void redis_ledger_take(struct redis_ledger *ledger, const struct redis_command *command);
/* What the server did cannot be read: `what` is wrong, once for each call. */
void redis_ledger_unreadable(struct redis_ledger *ledger, const char *what);

/* What is known by now. Valid until the next call. */
const struct redis_ledger_report *redis_ledger_report(const struct redis_ledger *ledger);

/* Calls `each` for every count key with the first value that it ever had (size_bytes at `value`),
 * in the order in which they appeared. A key that was only unlinked is left out. */
typedef void redis_ledger_first(void *context, const char *user, const char *window,
                                const char *value, size_t size_bytes);
void redis_ledger_each_first(const struct redis_ledger *ledger, redis_ledger_first *each,
                             void *context);

#endif
