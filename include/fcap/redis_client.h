/* A blocking client of one Redis, for commands that do nothing else meanwhile: it reads keys with
 * their expiry, asks who owns partitions, and gives a sink whose writes are fenced.
 *
 * It does nothing that it was not asked for. The sink's connection (fcap/seed_redis.h lends it)
 * tries every command on keys of its own, makes fc:id and closes connections of its name, before it
 * is ready: `rebuild --verify` is to change nothing, and may read a replica.
 *
 * Each call waits at most redis.command_timeout for each answer. UNAVAILABLE: no answer, the
 * connection is dead. REFUSED: the server says no, in its own words; for each the error names the
 * command. Thread rule: one thread. */
#ifndef FCAP_REDIS_CLIENT_H
#define FCAP_REDIS_CLIENT_H

#include "fcap/sink_redis.h"

struct fcap_redis_client;

/* Connects and asks which Redis this is. Of the settings it takes the address, account, database
 * and timeouts, nothing is kept. UNAVAILABLE also: the host is not to be reached. */
enum fcap_status fcap_redis_client_open(const struct fcap_sink_redis_settings *settings,
                                        struct fcap_redis_client **ret_client,
                                        struct fcap_error *error) FCAP_MUST_USE;
/* NULL is fine. */
void fcap_redis_client_close(struct fcap_redis_client *client);

/* Redis TIME. */
enum fcap_status fcap_redis_client_time(struct fcap_redis_client *client, int64_t *ret_time_ms,
                                        struct fcap_error *error) FCAP_MUST_USE;

/* As struct fcap_sink_state has it. When fc:id is not there it is made if `may_write`, else the
 * identity is all zero: not known. */
enum fcap_status fcap_redis_client_identity(struct fcap_redis_client *client, bool may_write,
                                            struct fcap_sink_identity *ret_identity,
                                            struct fcap_error *error) FCAP_MUST_USE;

#define FCAP_REDIS_FOREVER INT64_MAX /* the key never expires */

/* A key as it is there. */
struct fcap_redis_seen {
    bool is_there;
    bool is_other;           /* it is no string */
    struct fcap_bytes value; /* valid until the next call */
    /* PXAT lies between them; both are equal where the server knows PEXPIRETIME (Redis 7). */
    int64_t expire_at_min_ms;
    int64_t expire_at_max_ms;
};

/* Reads keys in one pipeline; *ret_time_ms is Redis TIME after them. */
enum fcap_status fcap_redis_client_read(struct fcap_redis_client *client,
                                        const struct fcap_bytes *keys, size_t count,
                                        struct fcap_redis_seen *ret_seen, int64_t *ret_time_ms,
                                        struct fcap_error *error) FCAP_MUST_USE;

/* One step of SCAN over the keys that match the pattern (KEYS' syntax). Start with *cursor = 0; it
 * is 0 again when the last step is done. A key may come twice. `visit` must not use the client. */
enum fcap_status fcap_redis_client_scan(struct fcap_redis_client *client, struct fcap_bytes pattern,
                                        uint64_t *cursor,
                                        void (*visit)(void *context, struct fcap_bytes key),
                                        void *context, struct fcap_error *error) FCAP_MUST_USE;

/* fc:epoch:<profile>:<partition>; 0: it is not there. */
enum fcap_status fcap_redis_client_epoch(struct fcap_redis_client *client, const char *profile,
                                         int32_t partition, uint64_t *ret_epoch,
                                         struct fcap_error *error) FCAP_MUST_USE;

/* Whose gate is open, by fc:epoch:<profile>:<partition>:owner, and under which epoch. The instance
 * is valid until the next call; absent: nobody's. */
enum fcap_status fcap_redis_client_owner(struct fcap_redis_client *client, const char *profile,
                                         int32_t partition, uint64_t *ret_epoch,
                                         struct fcap_bytes *ret_instance,
                                         struct fcap_error *error) FCAP_MUST_USE;

/* --- a fenced sink --- */

/* Where fenced writes end. */
struct fcap_redis_fence {
    const char *profile; /* borrowed */
    int32_t partition;
    uint64_t found; /* fc:epoch as it was found; 0: not there */
    uint64_t epoch; /* what the first transaction sets it to; above 0 */
};

/* A sink for a task whose state is projected without reading on: what is pushed goes out in
 * transactions, and each is refused unless the partition's epoch is still that of the fence, in the
 * same Redis. FCAP_PUSH_INCREMENT is not sent: it is answered with `epoch`. Borrows client and
 * fence. Freed by fcap_redis_fenced_close(). */
enum fcap_status fcap_redis_fenced_open(struct fcap_redis_client *client,
                                        const struct fcap_redis_fence *fence,
                                        struct fcap_sink **ret_sink,
                                        struct fcap_error *error) FCAP_MUST_USE;
void fcap_redis_fenced_close(struct fcap_sink *sink);

/* OK while it works; anything else is final, and `error` (may be NULL) tells more. FENCED: another
 * owner has the partition. FOREIGN: Redis was emptied or replaced. UNAVAILABLE, REFUSED: as above.
 * Of the last transaction nothing was done, except perhaps after UNAVAILABLE. */
enum fcap_status fcap_redis_fenced_status(const struct fcap_sink *sink, struct fcap_error *error);

#endif
