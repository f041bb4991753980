#include "lab/redis_reader.h"

#include "lab/lab.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT  2000
#define PATIENCE_S  30
#define REMOVE_STEP 512

struct redis_reader {
    redisContext *context;
    char *text;
};

static redisReply *reply_of(struct redis_reader *reader)
{
    void *reply = NULL;
    if (redisGetReply(reader->context, &reply) != REDIS_OK || reply == NULL) {
        lab_die("Redis does not answer: %s", reader->context->errstr);
    }
    return reply;
}

static void queue(struct redis_reader *reader, int count, const char **words)
{
    if (redisAppendCommandArgv(reader->context, count, words, NULL) != REDIS_OK) {
        lab_die("Redis: %s", reader->context->errstr);
    }
}

struct redis_reader *redis_reader_open(const char *host, uint16_t port, char *error,
                                       size_t error_size)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    const struct timeval brief = {.tv_sec = 5};
    const char *ping[] = {"PING"};
    redisContext *context = redisConnectWithTimeout(host, port, brief);
    if (context == NULL || context->err != 0) {
        (void)snprintf(error, error_size, "%s", context == NULL ? "no memory" : context->errstr);
        redisFree(context);
        return NULL;
    }
    (void)redisSetTimeout(context, patience);
    struct redis_reader *reader = calloc(1, sizeof *reader);
    lab_check(reader != NULL);
    reader->context = context;
    queue(reader, 1, ping);
    redisReply *reply = reply_of(reader);
    bool is_fine = reply->type == REDIS_REPLY_STATUS;
    if (!is_fine) {
        (void)snprintf(error, error_size, "%s", reply->str);
    }
    freeReplyObject(reply);
    if (!is_fine) {
        redis_reader_close(reader);
        return NULL;
    }
    return reader;
}

void redis_reader_close(struct redis_reader *reader)
{
    if (reader != NULL) {
        redisFree(reader->context);
        free(reader->text);
        free(reader);
    }
}

const char *redis_reader_text(struct redis_reader *reader, const char *key)
{
    const char *words[] = {"GET", key};
    queue(reader, 2, words);
    redisReply *reply = reply_of(reader);
    free(reader->text);
    reader->text = reply->type == REDIS_REPLY_STRING ? strdup(reply->str) : NULL;
    freeReplyObject(reply);
    return reader->text;
}

static void take(struct redis_reader *reader, struct redis_seen *seen)
{
    redisReply *value = reply_of(reader);
    redisReply *pxat = reply_of(reader);
    *seen = (struct redis_seen){.pxat_ms = pxat->type == REDIS_REPLY_INTEGER ? pxat->integer
                                                                             : REDIS_PXAT_UNKNOWN};
    if (value->type == REDIS_REPLY_STRING) {
        seen->size = (size_t)value->len;
        seen->value = malloc(seen->size + 1);
        lab_check(seen->value != NULL);
        memcpy(seen->value, value->str, seen->size + 1);
    }
    seen->is_other = value->type == REDIS_REPLY_ERROR;
    freeReplyObject(value);
    freeReplyObject(pxat);
}

void redis_reader_get(struct redis_reader *reader, const char *const *keys, size_t count,
                      struct redis_seen *ret_seen)
{
    for (size_t i = 0; i < count; i++) {
        const char *get[] = {"GET", keys[i]};
        const char *expiry[] = {"PEXPIRETIME", keys[i]};
        queue(reader, 2, get);
        queue(reader, 2, expiry);
    }
    for (size_t i = 0; i < count; i++) {
        take(reader, &ret_seen[i]);
    }
}

void redis_reader_drop(struct redis_seen *seen, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(seen[i].value);
        seen[i].value = NULL;
    }
}

void redis_reader_scan(struct redis_reader *reader, const char *pattern,
                       void (*each)(void *context, const char *key), void *context)
{
    char cursor[32] = "0";
    char step[16];
    (void)snprintf(step, sizeof step, "%d", SCAN_COUNT);
    do {
        const char *words[] = {"SCAN", cursor, "MATCH", pattern, "COUNT", step};
        queue(reader, 6, words);
        redisReply *reply = reply_of(reader);
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
            lab_die("SCAN: %s", reply->type == REDIS_REPLY_ERROR ? reply->str : "a strange answer");
        }
        (void)snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
        for (size_t i = 0; i < reply->element[1]->elements; i++) {
            each(context, reply->element[1]->element[i]->str);
        }
        freeReplyObject(reply);
    } while (strcmp(cursor, "0") != 0);
}

void redis_reader_unlink(struct redis_reader *reader, const char *key)
{
    const char *words[] = {"UNLINK", key};
    queue(reader, 2, words);
    freeReplyObject(reply_of(reader));
}

struct found {
    char **keys;
    size_t count;
    size_t capacity;
};

static void remember(void *context, const char *key)
{
    struct found *found = context;
    if (found->count == found->capacity) {
        found->capacity = found->capacity * 2 + 1024;
        found->keys = realloc(found->keys, found->capacity * sizeof *found->keys);
        lab_check(found->keys != NULL);
    }
    found->keys[found->count] = strdup(key);
    lab_check(found->keys[found->count] != NULL);
    found->count++;
}

size_t redis_reader_remove(struct redis_reader *reader, const char *pattern)
{
    struct found found = {0};
    size_t removed = 0;
    redis_reader_scan(reader, pattern, remember, &found);
    for (size_t from = 0; from < found.count; from += REMOVE_STEP) {
        size_t to = from + REMOVE_STEP < found.count ? from + REMOVE_STEP : found.count;
        for (size_t i = from; i < to; i++) {
            const char *words[] = {"UNLINK", found.keys[i]};
            queue(reader, 2, words);
        }
        for (size_t i = from; i < to; i++) {
            redisReply *reply = reply_of(reader);
            removed += reply->type == REDIS_REPLY_INTEGER && reply->integer > 0;
            freeReplyObject(reply);
            free(found.keys[i]);
        }
    }
    free(found.keys);
    return removed;
}
