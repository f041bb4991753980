/* Reading keys, and who owns partitions. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fcap/assert.h"
#include "redis_client_internal.h"

#define SCAN_COUNT "1000"
#define NO_KEY     (-2) /* PEXPIRETIME's and PTTL's answers */
#define NO_EXPIRY  (-1)

/* --- keys --- */

static bool is_unknown_command(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR &&
           fcap_sink_redis_error_of(reply->str, (size_t)reply->len) ==
               FCAP_SINK_REDIS_ERROR_UNKNOWN_COMMAND;
}

/* TIME, then GET and the expiry of each key, then TIME. */
static void queue_reads(struct fcap_redis_client *client, const struct fcap_bytes *keys,
                        size_t count)
{
    const char *expiry = client->has_no_expiretime ? "PTTL" : "PEXPIRETIME";
    FCAP_ASSERT(2 * count + 2 <= CLIENT_REPLIES_MAX);
    client_queue_words(client, "TIME", NULL, NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        const struct fcap_bytes get[] = {fcap_bytes_of("GET"), keys[i]};
        const struct fcap_bytes expires[] = {fcap_bytes_of(expiry), keys[i]};
        client_queue(client, "GET", 2, get);
        client_queue(client, expiry, 2, expires);
    }
    client_queue_words(client, "TIME", NULL, NULL, NULL);
}

static enum fcap_status take_read(const struct fcap_redis_client *client, size_t at,
                                  int64_t first_ms, int64_t last_ms,
                                  struct fcap_redis_seen *ret_seen, struct fcap_error *error)
{
    const redisReply *value = client->replies[at];
    const redisReply *expiry = client->replies[at + 1];
    struct fcap_redis_seen seen = {.value = client_text(value)};
    bool is_other = value->type == REDIS_REPLY_ERROR && strncmp(value->str, "WRONGTYPE", 9) == 0;
    enum fcap_status status = is_other ? FCAP_OK : client_check(client, at, error);
    status = status == FCAP_OK ? client_check(client, at + 1, error) : status;
    if (status != FCAP_OK) {
        return status;
    }
    seen.is_other = is_other;
    seen.is_there = is_other || seen.value.data != NULL;
    if (expiry->integer == NO_KEY) {
        seen.is_there = false; /* It went between the two. */
    } else if (expiry->integer == NO_EXPIRY) {
        seen.expire_at_min_ms = FCAP_REDIS_FOREVER;
        seen.expire_at_max_ms = FCAP_REDIS_FOREVER;
    } else if (client->has_no_expiretime) {
        seen.expire_at_min_ms = first_ms + expiry->integer;
        seen.expire_at_max_ms = last_ms + expiry->integer + 1;
    } else {
        seen.expire_at_min_ms = expiry->integer;
        seen.expire_at_max_ms = expiry->integer;
    }
    *ret_seen = seen;
    return FCAP_OK;
}

enum fcap_status fcap_redis_client_read(struct fcap_redis_client *client,
                                        const struct fcap_bytes *keys, size_t count,
                                        struct fcap_redis_seen *ret_seen, int64_t *ret_time_ms,
                                        struct fcap_error *error)
{
    int64_t first_ms = 0;
    queue_reads(client, keys, count);
    enum fcap_status status = client_run(client, error);
    if (status == FCAP_OK && count > 0 && !client->has_no_expiretime &&
        is_unknown_command(client->replies[2])) {
        client->has_no_expiretime = true;
        queue_reads(client, keys, count);
        status = client_run(client, error);
    }
    status = status == FCAP_OK ? client_take_time(client, 0, &first_ms, error) : status;
    if (status == FCAP_OK) {
        status = client_take_time(client, 2 * count + 1, ret_time_ms, error);
    }
    for (size_t i = 0; i < count && status == FCAP_OK; i++) {
        status = take_read(client, 2 * i + 1, first_ms, *ret_time_ms, &ret_seen[i], error);
    }
    return status;
}

enum fcap_status fcap_redis_client_scan(struct fcap_redis_client *client, struct fcap_bytes pattern,
                                        uint64_t *cursor,
                                        void (*visit)(void *context, struct fcap_bytes key),
                                        void *context, struct fcap_error *error)
{
    char number[24];
    (void)snprintf(number, sizeof number, "%" PRIu64, *cursor); /* It fits. */
    const struct fcap_bytes words[] = {fcap_bytes_of("SCAN"),  fcap_bytes_of(number),
                                       fcap_bytes_of("MATCH"), pattern,
                                       fcap_bytes_of("COUNT"), fcap_bytes_of(SCAN_COUNT)};
    client_queue(client, "SCAN", sizeof words / sizeof words[0], words);
    enum fcap_status status = client_run(client, error);
    status = status == FCAP_OK ? client_check(client, 0, error) : status;
    if (status != FCAP_OK) {
        return status;
    }
    const redisReply *reply = client->replies[0];
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        client_text(reply->element[0]).data == NULL ||
        reply->element[1]->type != REDIS_REPLY_ARRAY) {
        return fcap_error_set(error, FCAP_REFUSED, "Redis: a strange answer to SCAN");
    }
    *cursor = strtoull(reply->element[0]->str, NULL, 10);
    for (size_t i = 0; i < reply->element[1]->elements; i++) {
        visit(context, client_text(reply->element[1]->element[i]));
    }
    return FCAP_OK;
}

/* --- owners --- */

enum fcap_status fcap_redis_client_epoch(struct fcap_redis_client *client, const char *profile,
                                         int32_t partition, uint64_t *ret_epoch,
                                         struct fcap_error *error)
{
    char key[512];
    (void)snprintf(key, sizeof key, "fc:epoch:%s:%d", profile, partition); /* Bounded there. */
    client_queue_words(client, "GET", key, NULL, NULL);
    enum fcap_status status = client_run(client, error);
    status = status == FCAP_OK ? client_check(client, 0, error) : status;
    if (status == FCAP_OK) {
        struct fcap_bytes text = client_text(client->replies[0]);
        *ret_epoch = text.data == NULL ? 0 : strtoull((const char *)text.data, NULL, 10);
    }
    return status;
}

enum fcap_status fcap_redis_client_owner(struct fcap_redis_client *client, const char *profile,
                                         int32_t partition, uint64_t *ret_epoch,
                                         struct fcap_bytes *ret_instance, struct fcap_error *error)
{
    char key[512];
    char *end = NULL;
    (void)snprintf(key, sizeof key, "fc:epoch:%s:%d:owner", profile,
                   partition); /* Bounded there. */
    client_queue_words(client, "GET", key, NULL, NULL);
    enum fcap_status status = client_run(client, error);
    status = status == FCAP_OK ? client_check(client, 0, error) : status;
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_bytes text = client_text(client->replies[0]);
    *ret_epoch = 0;
    *ret_instance = FCAP_BYTES_NONE;
    if (text.data != NULL) {
        *ret_epoch = strtoull((const char *)text.data, &end, 10);
        *ret_instance = fcap_bytes_of(*end == ' ' ? end + 1 : end);
    }
    return FCAP_OK;
}
