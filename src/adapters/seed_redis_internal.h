/* Shared by the seed_redis*.c files only: seed_redis.c holds the connection and the transactions,
 * seed_redis_look.c looks at owners. Thread rule: one thread. */
#ifndef FCAP_SEED_REDIS_INTERNAL_H
#define FCAP_SEED_REDIS_INTERNAL_H

#include "fcap/seed_redis.h"
#include "sink_redis_internal.h"

enum { SEED_KEY_BYTES = 320 /* of fc:epoch */ };

struct fcap_seed_redis {
    struct fcap_seed port; /* first */
    struct sink_redis *sink;
    bool (*must_stop)(void *context);
    void *context;
    struct fcap_error error;
    bool was_ready;  /* once: what goes wrong from then on may pass */
    bool is_allowed; /* the transaction's commands have been tried */

    bool has_looked;
    struct fcap_sink_identity identity; /* of the first look */
    struct fcap_buffer sentinel;        /* fc:id of that look */

    bool is_watching;
    bool is_unknown; /* a transaction whose fate is not known */
    struct sink_pieces pieces;
    bool *ours; /* scratch: by key, it held our value before */
    size_t ours_capacity;
};

struct fcap_seed_redis *seed_redis_of(struct fcap_seed *port);
/* Adds a command of up to three texts to the batch. */
void seed_ask(struct fcap_seed_redis *seed, const char *first, const char *second,
              const char *third);
/* The bytes of a string, NUL-terminated. */
const char *seed_text(const struct fcap_seed_redis *seed, const struct sink_piece *piece);
/* Waits for the batch. OK: all answers are in `pieces`, none of them is an error. */
enum fcap_status seed_answered(struct fcap_seed_redis *seed);
/* An answer of another shape than the command has: somebody else speaks there. */
enum fcap_status seed_strange(struct fcap_seed_redis *seed, const char *command);
/* What every call begins with: a connection to the Redis of the first look. */
enum fcap_status seed_reach(struct fcap_seed_redis *seed);
/* The piece is fc:id; the first look's is kept, and all others must be the same. */
enum fcap_status seed_check_sentinel(struct fcap_seed_redis *seed, const struct sink_piece *piece);

/* seed_redis_look.c: the port's look. */
enum fcap_status seed_look(struct fcap_seed *port, int32_t count, bool *ret_open,
                           struct fcap_seed_time *ret_time);

#endif
