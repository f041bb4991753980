/* The seed port on a real Redis, over the connection of the Redis sink: the same settings, names,
 * time-outs, probe and errors.
 *
 * Each call waits for its answers, for a second at most while Redis is away. A transaction is
 * WATCH of the epoch and of fc:id, a look at both, then MULTI, SET ... PXAT ... NX, EXEC: it is
 * done as a whole or not at all, also when the process is killed in the middle. The two watched
 * keys lie in different slots, so a Redis Cluster is refused. Thread rule: one thread. */
#ifndef FCAP_SEED_REDIS_H
#define FCAP_SEED_REDIS_H

#include "fcap/seed.h"
#include "fcap/sink_redis.h"

/* Copied by open, except the callback's context. */
struct fcap_seed_redis_settings {
    struct fcap_sink_redis_settings redis; /* `profile` names fc:epoch; `instance` must
                                              be no daemon's: connections of one name close each
                                              other. Intervals and bounds are ours */
    bool (*must_stop)(void *context);      /* asked while an answer is awaited; NULL: never */
    void *context;
};

struct fcap_seed_redis;

/* Makes a seed; it connects in its calls. The caller gives it back to fcap_seed_redis_close().
 * CONFIG: a setting cannot be used. */
enum fcap_status fcap_seed_redis_open(const struct fcap_seed_redis_settings *settings,
                                      struct fcap_seed_redis **ret_seed,
                                      struct fcap_error *error) FCAP_MUST_USE;

/* Closes the connection and frees. NULL is fine. */
void fcap_seed_redis_close(struct fcap_seed_redis *seed);

/* The port; valid until close. Beside what seed.h says its calls give CONFIG when Redis refuses
 * what backfill needs (the error says what), or is a Redis Cluster; and UNAVAILABLE soon after
 * must_stop said so. A write that is made again after RETRY counts as written what it finds to be
 * its own. */
struct fcap_seed *fcap_seed_redis_port(struct fcap_seed_redis *seed);

/* Why the last call failed, with the cure. Valid until the next call. */
const char *fcap_seed_redis_error(const struct fcap_seed_redis *seed);

/* The connection's status: version, eviction policy, refusals. */
void fcap_seed_redis_status(struct fcap_seed_redis *seed,
                            struct fcap_sink_redis_status *ret_status);

#endif
