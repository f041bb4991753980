/* Reads replies without allocating one each, and tells the server's errors apart. */
#include <stdlib.h>
#include <string.h>

#include "fcap/assert.h"
#include "sink_redis_internal.h"

static void add_piece(struct sink_reply *reply, struct sink_piece piece, const char *text)
{
    struct sink_pieces *pieces = reply->pieces;
    if (pieces == NULL) {
        return;
    }
    if (pieces->count == pieces->capacity) {
        pieces->capacity = pieces->capacity * 2 + 64;
        pieces->pieces = reallocarray(pieces->pieces, pieces->capacity, sizeof *pieces->pieces);
        FCAP_ASSERT(pieces->pieces != NULL);
    }
    piece.offset = pieces->text.size;
    if (text != NULL) {
        fcap_buffer_put(&pieces->text, text, piece.size);
        fcap_buffer_put_u8(&pieces->text, 0);
    }
    pieces->pieces[pieces->count++] = piece;
}

/* hiredis builds a reply by these calls. Only the last one matters to us, so it goes into the
 * sink's own struct; a non-NULL pointer is all that hiredis wants back. */
static void *reply_string(const redisReadTask *task, char *text, size_t size)
{
    struct sink_reply *reply = task->privdata;
    add_piece(reply, (struct sink_piece){.type = task->type, .size = size}, text);
    if (task->parent != NULL) {
        if (task->parent->parent == NULL && task->idx < 2 && size < sizeof reply->elements[0]) {
            memcpy(reply->elements[task->idx], text, size);
            reply->elements[task->idx][size] = '\0';
        }
        return reply;
    }
    reply->type = task->type;
    fcap_buffer_clear(&reply->text);
    if (task->type != REDIS_REPLY_STATUS) {
        fcap_buffer_put(&reply->text, text, size); /* "+OK" needs no look. */
    }
    *fcap_buffer_reserve(&reply->text, 1) = '\0'; /* A text for C, beyond its size. */
    return reply;
}

#if HIREDIS_MAJOR >= 1
static void *reply_array(const redisReadTask *task, size_t count)
#else
static void *reply_array(const redisReadTask *task, int count)
#endif
{
    struct sink_reply *reply = task->privdata;
    add_piece(reply, (struct sink_piece){.type = task->type, .integer = (long long)count}, NULL);
    if (task->parent == NULL) {
        reply->type = task->type;
        memset(reply->elements, 0, sizeof reply->elements);
    }
    return reply;
}

static void *reply_integer(const redisReadTask *task, long long value)
{
    struct sink_reply *reply = task->privdata;
    add_piece(reply, (struct sink_piece){.type = task->type, .integer = value}, NULL);
    if (task->parent == NULL) {
        reply->type = task->type;
        reply->integer = value;
    }
    return reply;
}

/* The task's own type is that of what is not there: a string, or the array of an EXEC. */
static void *reply_nil(const redisReadTask *task)
{
    struct sink_reply *reply = task->privdata;
    add_piece(reply, (struct sink_piece){.type = REDIS_REPLY_NIL}, NULL);
    if (task->parent == NULL) {
        reply->type = REDIS_REPLY_NIL;
    }
    return reply;
}

static void reply_free(void *object)
{
    (void)object; /* Never allocated. */
}

/* RESP3 types stay NULL: we never say HELLO, so none arrives. */
redisReplyObjectFunctions sink_reply_functions = {
    .createString = reply_string,
    .createArray = reply_array,
    .createInteger = reply_integer,
    .createNil = reply_nil,
    .freeObject = reply_free,
};

struct error_row {
    const char *label;
    enum sink_action action;
    const char *word;
    const char *cure;
};

static const struct error_row error_rows[FCAP_SINK_REDIS_ERROR_COUNT] = {
#define X(name, label, action, word, text) {label, SINK_ACTION_##action, word, text},
    FCAP_SINK_REDIS_ERROR_LIST(X)
#undef X
};

/* Errors that share the word ERR and are told by how they go on. */
static const struct {
    const char *text;
    enum fcap_sink_redis_error error;
} err_rows[] = {
    {"ERR syntax error", FCAP_SINK_REDIS_ERROR_SYNTAX},
    {"ERR unknown command", FCAP_SINK_REDIS_ERROR_UNKNOWN_COMMAND},
    {"ERR Unknown subcommand", FCAP_SINK_REDIS_ERROR_UNKNOWN_COMMAND},
    {"ERR unknown subcommand", FCAP_SINK_REDIS_ERROR_UNKNOWN_COMMAND},
    {"ERR max number of clients", FCAP_SINK_REDIS_ERROR_MAX_CLIENTS},
    {"ERR invalid DB index", FCAP_SINK_REDIS_ERROR_DATABASE},
    {"ERR DB index is out of range", FCAP_SINK_REDIS_ERROR_DATABASE},
    {"ERR invalid password", FCAP_SINK_REDIS_ERROR_WRONGPASS},
    {"ERR Client sent AUTH, but no password", FCAP_SINK_REDIS_ERROR_AUTH_UNEXPECTED},
    {"ERR AUTH <password> called without any", FCAP_SINK_REDIS_ERROR_AUTH_UNEXPECTED},
};

static bool starts_with(const char *text, size_t size, const char *start)
{
    size_t length = strlen(start);
    return size >= length && memcmp(text, start, length) == 0;
}

enum fcap_sink_redis_error fcap_sink_redis_error_of(const char *text, size_t size)
{
    for (size_t i = 0; i < sizeof err_rows / sizeof err_rows[0]; i++) {
        if (starts_with(text, size, err_rows[i].text)) {
            return err_rows[i].error;
        }
    }
    const char *space = size == 0 ? NULL : memchr(text, ' ', size);
    size_t word = space == NULL ? size : (size_t)(space - text);
    for (size_t i = 1; i < FCAP_SINK_REDIS_ERROR_COUNT; i++) {
        size_t length = strlen(error_rows[i].word);
        if (length > 0 && length == word && memcmp(text, error_rows[i].word, length) == 0) {
            return (enum fcap_sink_redis_error)i;
        }
    }
    return FCAP_SINK_REDIS_ERROR_OTHER;
}

enum sink_action sink_error_action(enum fcap_sink_redis_error error)
{
    return error_rows[error].action;
}

const char *fcap_sink_redis_error_name(enum fcap_sink_redis_error error)
{
    FCAP_ASSERT((unsigned)error < FCAP_SINK_REDIS_ERROR_COUNT);
    return error_rows[error].label;
}

const char *fcap_sink_redis_error_cure(enum fcap_sink_redis_error error)
{
    FCAP_ASSERT((unsigned)error < FCAP_SINK_REDIS_ERROR_COUNT);
    return error_rows[error].cure;
}

const char *fcap_sink_redis_need_command(enum fcap_sink_redis_need need)
{
    static const char *const commands[FCAP_SINK_REDIS_NEED_COUNT] = {
#define X(name, command, degradable, promise) command,
        FCAP_SINK_REDIS_NEED_LIST(X)
#undef X
    };
    FCAP_ASSERT((unsigned)need < FCAP_SINK_REDIS_NEED_COUNT);
    return commands[need];
}

const char *fcap_sink_redis_need_promise(enum fcap_sink_redis_need need)
{
    static const char *const promises[FCAP_SINK_REDIS_NEED_COUNT] = {
#define X(name, command, degradable, promise) promise,
        FCAP_SINK_REDIS_NEED_LIST(X)
#undef X
    };
    FCAP_ASSERT((unsigned)need < FCAP_SINK_REDIS_NEED_COUNT);
    return promises[need];
}
