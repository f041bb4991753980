/* Shared by redis_client.c, redis_client_keys.c and redis_fenced.c only. */
#ifndef FCAP_REDIS_CLIENT_INTERNAL_H
#define FCAP_REDIS_CLIENT_INTERNAL_H

#include <hiredis/hiredis.h>

#include "fcap/redis_client.h"

#define CLIENT_REPLIES_MAX 4096 /* of one pipeline */
#define CLIENT_SENTINEL    "fc:id"

struct fcap_redis_client {
    redisContext *context;
    char run_id[48];        /* "": hidden */
    bool has_no_expiretime; /* PEXPIRETIME came with Redis 7 */
    /* The answers of the last pipeline; freed with the next one. */
    redisReply *replies[CLIENT_REPLIES_MAX];
    const char *commands[CLIENT_REPLIES_MAX]; /* what was asked: literals */
    size_t reply_count;
    size_t queued;
};

/* Adds a command to the pipeline; copies. `name` is a literal: the first word, for errors. */
void client_queue(struct fcap_redis_client *client, const char *name, size_t count,
                  const struct fcap_bytes *words);
void client_queue_words(struct fcap_redis_client *client, const char *name, const char *a,
                        const char *b, const char *c);

/* Sends the pipeline and takes all its answers. UNAVAILABLE: the connection broke. */
enum fcap_status client_run(struct fcap_redis_client *client,
                            struct fcap_error *error) FCAP_MUST_USE;

/* REFUSED when the answer is an error. */
enum fcap_status client_check(const struct fcap_redis_client *client, size_t index,
                              struct fcap_error *error) FCAP_MUST_USE;

/* The answer to TIME, in ms. */
enum fcap_status client_take_time(const struct fcap_redis_client *client, size_t index,
                                  int64_t *ret_time_ms, struct fcap_error *error) FCAP_MUST_USE;

/* The bytes of a string; absent for anything else. */
struct fcap_bytes client_text(const redisReply *reply);

#endif
