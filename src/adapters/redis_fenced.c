/* The fenced sink: pushes are gathered and go out in transactions, each behind a look at the
 * partition's epoch and at fc:id, which WATCH keeps true until EXEC. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "redis_client_internal.h"

#define OPS_MAX    512 /* of one transaction */
#define BYTES_MAX  ((size_t)1 << 20)
#define CHANGES    10 /* a watched key changed in between: looked at again so often */
#define TIME_MS    500
#define EPOCH_SIZE 512

struct op {
    struct fcap_push push;
    size_t key_offset;
    size_t key_size;
    size_t value_size; /* the value follows the key */
};

struct fenced {
    struct fcap_sink port; /* first */
    struct fcap_redis_client *client;
    uint64_t epoch;
    uint64_t found; /* what Redis holds until the first transaction sets it to `epoch` */
    bool is_set;
    char epoch_key[EPOCH_SIZE];
    struct fcap_sink_identity identity;
    struct fcap_buffer sentinel; /* what fc:id held at the beginning */
    int64_t time_ms;             /* Redis TIME, */
    int64_t time_at_ms;          /* and the monotonic clock then */
    struct op ops[OPS_MAX];
    size_t count;
    struct fcap_buffer bytes;
    enum fcap_status status; /* OK: works */
    struct fcap_error error;
};

static enum fcap_status fenced_push(struct fcap_sink *port, const struct fcap_push *push)
{
    struct fenced *sink = (struct fenced *)port;
    if (sink->status != FCAP_OK || sink->count == OPS_MAX || sink->bytes.size >= BYTES_MAX) {
        return FCAP_BUSY;
    }
    struct op *op = &sink->ops[sink->count++];
    *op = (struct op){.push = *push,
                      .key_offset = sink->bytes.size,
                      .key_size = push->key.size,
                      .value_size = push->value.size};
    fcap_buffer_put_bytes(&sink->bytes, push->key);
    fcap_buffer_put_bytes(&sink->bytes, push->value);
    return FCAP_OK;
}

/* Whether the fence stands. The two keys are watched from here to the next EXEC. */
static enum fcap_status look(struct fenced *sink)
{
    struct fcap_redis_client *client = sink->client;
    client_queue_words(client, "WATCH", sink->epoch_key, CLIENT_SENTINEL, NULL);
    client_queue_words(client, "GET", sink->epoch_key, NULL, NULL);
    client_queue_words(client, "GET", CLIENT_SENTINEL, NULL, NULL);
    enum fcap_status status = client_run(client, &sink->error);
    for (size_t i = 0; i < 3 && status == FCAP_OK; i++) {
        status = client_check(client, i, &sink->error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_bytes text = client_text(client->replies[1]);
    uint64_t epoch = text.data == NULL ? 0 : strtoull((const char *)text.data, NULL, 10);
    if (!fcap_bytes_equal(client_text(client->replies[2]), fcap_buffer_bytes(&sink->sentinel))) {
        return fcap_error_set(&sink->error, FCAP_FOREIGN,
                              "Redis was emptied or replaced meanwhile");
    }
    if (epoch != (sink->is_set ? sink->epoch : sink->found)) {
        return fcap_error_set(&sink->error, FCAP_FENCED,
                              "another owner has it now (epoch %" PRIu64 ")", epoch);
    }
    return FCAP_OK;
}

static void queue_op(struct fenced *sink, const struct op *op)
{
    char time[24];
    const uint8_t *key = sink->bytes.data + op->key_offset;
    (void)snprintf(time, sizeof time, "%" PRId64, op->push.expire_at_ms); /* It fits. */
    struct fcap_bytes words[] = {fcap_bytes_of("SET"),
                                 {key, op->key_size},
                                 {key + op->key_size, op->value_size},
                                 fcap_bytes_of("PXAT"),
                                 fcap_bytes_of(time)};
    if (op->push.kind == FCAP_PUSH_SET) {
        client_queue(sink->client, "SET", 5, words);
    } else {
        words[0] = fcap_bytes_of("UNLINK");
        client_queue(sink->client, "UNLINK", 2, words);
    }
}

/* One attempt; *ret_changed: somebody changed a watched key, and nothing was done. */
static enum fcap_status execute(struct fenced *sink, bool *ret_changed)
{
    struct fcap_redis_client *client = sink->client;
    size_t queued = 0;
    client_queue_words(client, "MULTI", NULL, NULL, NULL);
    if (!sink->is_set) {
        char text[24];
        (void)snprintf(text, sizeof text, "%" PRIu64, sink->epoch); /* It fits. */
        client_queue_words(client, "SET", sink->epoch_key, text, NULL);
        queued++;
    }
    for (size_t i = 0; i < sink->count; i++) {
        if (sink->ops[i].push.kind != FCAP_PUSH_INCREMENT) {
            queue_op(sink, &sink->ops[i]);
            queued++;
        }
    }
    client_queue_words(client, "EXEC", NULL, NULL, NULL);
    enum fcap_status status = client_run(client, &sink->error);
    for (size_t i = 0; i < queued + 2 && status == FCAP_OK; i++) {
        status = client_check(client, i, &sink->error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    const redisReply *exec = client->replies[queued + 1];
    *ret_changed = exec->type == REDIS_REPLY_NIL;
    if (*ret_changed) {
        return FCAP_OK;
    }
    for (size_t i = 0; i < exec->elements; i++) {
        if (exec->element[i]->type == REDIS_REPLY_ERROR) {
            return fcap_error_set(&sink->error, FCAP_REFUSED, "Redis refuses: %s",
                                  exec->element[i]->str);
        }
    }
    sink->is_set = true;
    return FCAP_OK;
}

static enum fcap_status flush(struct fenced *sink)
{
    bool is_changed = true;
    enum fcap_status status = FCAP_OK;
    for (int i = 0; i < CHANGES && is_changed && status == FCAP_OK; i++) {
        status = look(sink);
        if (status == FCAP_OK) {
            status = execute(sink, &is_changed);
        }
    }
    return status == FCAP_OK && is_changed
               ? fcap_error_set(&sink->error, FCAP_UNAVAILABLE,
                                "Redis: the partition's epoch changes all the time")
               : status;
}

static void refresh_time(struct fenced *sink)
{
    int64_t now_ms = fcap_clock_os_monotonic_ms();
    if (sink->status == FCAP_OK && now_ms - sink->time_at_ms >= TIME_MS) {
        sink->status = fcap_redis_client_time(sink->client, &sink->time_ms, &sink->error);
        sink->time_at_ms = now_ms; /* From before the question: never ahead of the server. */
    }
}

static enum fcap_status fenced_poll(struct fcap_sink *port, const struct fcap_sink_handler *handler,
                                    int timeout_ms)
{
    struct fenced *sink = (struct fenced *)port;
    (void)timeout_ms; /* Each transaction is waited for. */
    refresh_time(sink);
    if (sink->count == 0) {
        return sink->status;
    }
    sink->status = sink->status == FCAP_OK ? flush(sink) : sink->status;
    enum fcap_push_result result = sink->status == FCAP_OK ? FCAP_PUSH_DONE : FCAP_PUSH_UNKNOWN;
    size_t count = sink->count;
    sink->count = 0;
    fcap_buffer_clear(&sink->bytes);
    for (size_t i = 0; i < count; i++) {
        handler->acked(handler->context, sink->ops[i].push.token, result, (int64_t)sink->epoch);
    }
    return sink->status;
}

static void fenced_state(struct fcap_sink *port, struct fcap_sink_state *ret_state)
{
    const struct fenced *sink = (const struct fenced *)port;
    *ret_state = (struct fcap_sink_state){
        .ready = sink->status == FCAP_OK,
        .connection = 1,
        .identity = sink->identity,
        .time_known = true,
        .time_ms = sink->time_ms + (fcap_clock_os_monotonic_ms() - sink->time_at_ms),
    };
}

enum fcap_status fcap_redis_fenced_open(struct fcap_redis_client *client,
                                        const struct fcap_redis_fence *fence,
                                        struct fcap_sink **ret_sink, struct fcap_error *error)
{
    static const struct fcap_sink_ops ops = {fenced_push, fenced_poll, fenced_state};
    struct fenced *sink = calloc(1, sizeof *sink);
    FCAP_ASSERT(sink != NULL && fence->epoch > 0);
    sink->port.ops = &ops;
    sink->client = client;
    sink->epoch = fence->epoch;
    sink->found = fence->found;
    sink->is_set = fence->found == fence->epoch;
    (void)snprintf(sink->epoch_key, sizeof sink->epoch_key, "fc:epoch:%s:%d", fence->profile,
                   fence->partition);
    enum fcap_status status = fcap_redis_client_identity(client, true, &sink->identity, error);
    if (status == FCAP_OK) {
        fcap_buffer_put_bytes(&sink->sentinel, client_text(client->replies[1]));
        int64_t now_ms = fcap_clock_os_monotonic_ms();
        status = fcap_redis_client_time(client, &sink->time_ms, error);
        sink->time_at_ms = now_ms;
    }
    if (status != FCAP_OK) {
        fcap_redis_fenced_close(&sink->port);
        return status;
    }
    *ret_sink = &sink->port;
    return FCAP_OK;
}

void fcap_redis_fenced_close(struct fcap_sink *port)
{
    struct fenced *sink = (struct fenced *)port;
    if (sink != NULL) {
        fcap_buffer_done(&sink->sentinel);
        fcap_buffer_done(&sink->bytes);
        free(sink);
    }
}

enum fcap_status fcap_redis_fenced_status(const struct fcap_sink *port, struct fcap_error *error)
{
    const struct fenced *sink = (const struct fenced *)port;
    if (error != NULL && sink->status != FCAP_OK) {
        *error = sink->error;
    }
    return sink->status;
}
