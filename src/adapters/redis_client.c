/* Connecting, pipelines, and which Redis this is. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "fcap/assert.h"
#include "redis_client_internal.h"

#define WORDS_MAX 8

struct fcap_bytes client_text(const redisReply *reply)
{
    bool is_text = reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS;
    return is_text ? (struct fcap_bytes){(const uint8_t *)reply->str, (size_t)reply->len}
                   : FCAP_BYTES_NONE;
}

static void drop_replies(struct fcap_redis_client *client)
{
    for (size_t i = 0; i < client->reply_count; i++) {
        freeReplyObject(client->replies[i]);
    }
    client->reply_count = 0;
}

void client_queue(struct fcap_redis_client *client, const char *name, size_t count,
                  const struct fcap_bytes *words)
{
    const char *texts[WORDS_MAX];
    size_t sizes[WORDS_MAX];
    FCAP_ASSERT(count <= WORDS_MAX && client->queued < CLIENT_REPLIES_MAX);
    if (client->queued == 0) {
        drop_replies(client);
    }
    for (size_t i = 0; i < count; i++) {
        texts[i] = words[i].data == NULL ? "" : (const char *)words[i].data;
        sizes[i] = words[i].size;
    }
    /* Fails for want of memory, or on a dead connection, which client_run() finds. */
    (void)redisAppendCommandArgv(client->context, (int)count, texts, sizes);
    client->commands[client->queued++] = name;
}

void client_queue_words(struct fcap_redis_client *client, const char *name, const char *a,
                        const char *b, const char *c)
{
    const char *texts[] = {name, a, b, c};
    struct fcap_bytes words[4];
    size_t count = 0;
    while (count < 4 && texts[count] != NULL) {
        words[count] = fcap_bytes_of(texts[count]);
        count++;
    }
    client_queue(client, name, count, words);
}

enum fcap_status client_run(struct fcap_redis_client *client, struct fcap_error *error)
{
    size_t due = client->queued;
    client->queued = 0;
    while (client->reply_count < due) {
        void *reply = NULL;
        if (redisGetReply(client->context, &reply) != REDIS_OK || reply == NULL) {
            /* hiredis has no error of its own for a time-out. */
            bool is_late = client->context->err == REDIS_ERR_IO && errno == EAGAIN;
            return fcap_error_set(
                error, FCAP_UNAVAILABLE, "Redis: %s: %s", client->commands[client->reply_count],
                is_late ? "no answer within redis.command_timeout" : client->context->errstr);
        }
        client->replies[client->reply_count++] = reply;
    }
    return FCAP_OK;
}

enum fcap_status client_check(const struct fcap_redis_client *client, size_t index,
                              struct fcap_error *error)
{
    const redisReply *reply = client->replies[index];
    if (reply->type == REDIS_REPLY_ERROR) {
        enum fcap_sink_redis_error kind = fcap_sink_redis_error_of(reply->str, (size_t)reply->len);
        return fcap_error_set(error, FCAP_REFUSED, "Redis refuses %s: %s (%s)",
                              client->commands[index], reply->str,
                              fcap_sink_redis_error_cure(kind));
    }
    return FCAP_OK;
}

enum fcap_status client_take_time(const struct fcap_redis_client *client, size_t index,
                                  int64_t *ret_time_ms, struct fcap_error *error)
{
    const redisReply *reply = client->replies[index];
    enum fcap_status status = client_check(client, index, error);
    if (status != FCAP_OK) {
        return status;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        client_text(reply->element[0]).data == NULL ||
        client_text(reply->element[1]).data == NULL) {
        return fcap_error_set(error, FCAP_REFUSED, "Redis: the answer to TIME is no time");
    }
    *ret_time_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                   strtoll(reply->element[1]->str, NULL, 10) / 1000;
    return FCAP_OK;
}

enum fcap_status fcap_redis_client_time(struct fcap_redis_client *client, int64_t *ret_time_ms,
                                        struct fcap_error *error)
{
    client_queue_words(client, "TIME", NULL, NULL, NULL);
    enum fcap_status status = client_run(client, error);
    return status == FCAP_OK ? client_take_time(client, 0, ret_time_ms, error) : status;
}

/* --- which Redis this is --- */

/* INFO may be refused (redis.degraded: allow): then the sentinel alone tells. */
static enum fcap_status read_run_id(struct fcap_redis_client *client, struct fcap_error *error)
{
    static const char name[] = "\nrun_id:";
    client_queue_words(client, "INFO", "server", NULL, NULL);
    enum fcap_status status = client_run(client, error);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_bytes info = client_text(client->replies[0]);
    const char *at = info.data == NULL ? NULL : strstr((const char *)info.data, name);
    if (at != NULL) {
        at += sizeof name - 1;
        (void)snprintf(client->run_id, sizeof client->run_id, "%.*s", (int)strcspn(at, "\r\n"),
                       at); /* 40 digits */
    }
    return FCAP_OK;
}

enum fcap_status fcap_redis_client_identity(struct fcap_redis_client *client, bool may_write,
                                            struct fcap_sink_identity *ret_identity,
                                            struct fcap_error *error)
{
    uint8_t random[16];
    char hex[2 * sizeof random + 1];
    FCAP_ASSERT(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random);
    for (size_t i = 0; i < sizeof random; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", random[i]); /* It fits. */
    }
    if (may_write) {
        client_queue_words(client, "SET", CLIENT_SENTINEL, hex, "NX");
    }
    client_queue_words(client, "GET", CLIENT_SENTINEL, NULL, NULL);
    enum fcap_status status = client_run(client, error);
    for (size_t i = 0; i < client->reply_count && status == FCAP_OK; i++) {
        status = client_check(client, i, error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_bytes sentinel = client_text(client->replies[client->reply_count - 1]);
    *ret_identity = (struct fcap_sink_identity){0};
    if (sentinel.data != NULL) {
        fcap_sink_redis_identity(client->run_id, sentinel, ret_identity);
    }
    return FCAP_OK;
}

/* --- connecting --- */

static struct timeval timeout_of(int ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

static enum fcap_status log_in(struct fcap_redis_client *client,
                               const struct fcap_sink_redis_settings *settings,
                               struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    if (settings->password != NULL && settings->password[0] != '\0') {
        bool has_user = settings->user != NULL && settings->user[0] != '\0';
        client_queue_words(client, "AUTH", has_user ? settings->user : settings->password,
                           has_user ? settings->password : NULL, NULL);
        status = client_run(client, error);
        status = status == FCAP_OK ? client_check(client, 0, error) : status;
    }
    if (status == FCAP_OK && settings->database != 0) {
        char number[16];
        (void)snprintf(number, sizeof number, "%d", settings->database); /* It fits. */
        client_queue_words(client, "SELECT", number, NULL, NULL);
        status = client_run(client, error);
        status = status == FCAP_OK ? client_check(client, 0, error) : status;
    }
    return status == FCAP_OK ? read_run_id(client, error) : status;
}

enum fcap_status fcap_redis_client_open(const struct fcap_sink_redis_settings *settings,
                                        struct fcap_redis_client **ret_client,
                                        struct fcap_error *error)
{
    struct timeval patience = timeout_of(settings->connect_timeout_ms);
    (void)signal(SIGPIPE, SIG_IGN); /* hiredis writes without MSG_NOSIGNAL. */
    redisContext *context = settings->unix_socket != NULL
                                ? redisConnectUnixWithTimeout(settings->unix_socket, patience)
                                : redisConnectWithTimeout(settings->host, settings->port, patience);
    if (context == NULL || context->err != 0) {
        enum fcap_status status =
            fcap_error_set(error, FCAP_UNAVAILABLE, "%s %s: %s",
                           settings->unix_socket != NULL ? "redis.socket" : "redis.host",
                           settings->unix_socket != NULL ? settings->unix_socket : settings->host,
                           context == NULL ? "no memory" : context->errstr);
        redisFree(context);
        return status;
    }
    (void)redisSetTimeout(context, timeout_of(settings->command_timeout_ms)); /* Of a socket. */
    struct fcap_redis_client *client = calloc(1, sizeof *client);
    FCAP_ASSERT(client != NULL);
    client->context = context;
    enum fcap_status status = log_in(client, settings, error);
    if (status != FCAP_OK) {
        fcap_redis_client_close(client);
        return status;
    }
    *ret_client = client;
    return FCAP_OK;
}

void fcap_redis_client_close(struct fcap_redis_client *client)
{
    if (client != NULL) {
        drop_replies(client);
        redisFree(client->context);
        free(client);
    }
}
