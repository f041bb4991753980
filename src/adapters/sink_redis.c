/* The port: push, poll, state; and the stream of commands and replies under them. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "fcap/assert.h"
#include "fcap/point.h"
#include "sink_redis_internal.h"

enum {
    READS_PER_STEP = 16,     /* so that a fast server cannot hold poll() for ever */
    WRITE_EARLY = 64 * 1024, /* push() writes by itself from here on: the server works meanwhile */
    COMMAND_OVERHEAD = 128,  /* RESP around key and value, at most */
};

int64_t sink_monotonic_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* Cannot fail for this clock. */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t sink_monotonic_ms(void)
{
    return sink_monotonic_us() / 1000;
}

void sink_copy_text(char *to, size_t capacity, const char *text, size_t size)
{
    size_t kept = size < capacity - 1 ? size : capacity - 1;
    memcpy(to, text, kept);
    to[kept] = '\0';
}

void sink_error(struct sink_redis *sink, enum fcap_sink_redis_error error, const char *text,
                size_t size)
{
    struct fcap_sink_redis_status *now = &sink->now;
    now->counters.errors[error]++;
    if (now->error == FCAP_SINK_REDIS_ERROR_NONE) {
        now->error_since_ms = sink_monotonic_ms();
    }
    now->error = error;
    sink_copy_text(now->error_text, sizeof now->error_text, text, size);
}

void sink_error_over(struct sink_redis *sink)
{
    sink->now.error = FCAP_SINK_REDIS_ERROR_NONE;
    sink->now.error_since_ms = 0;
    sink->now.error_text[0] = '\0';
}

void sink_break(struct sink_redis *sink, enum fcap_sink_redis_error error, const char *text)
{
    if (sink->broken == FCAP_SINK_REDIS_ERROR_NONE) { /* The first cause is the cause. */
        sink->broken = error;
        sink_copy_text(sink->broken_text, sizeof sink->broken_text, text, strlen(text));
    }
}

/* --- writing ------------------------------------------------------------------------------ */

static void enqueue(struct sink_redis *sink, enum sink_op op, uint64_t token)
{
    FCAP_ASSERT(sink->pushed - sink->answered <= sink->ring_mask);
    if (sink->pushed == sink->answered) {
        sink->progress_ms = sink_monotonic_ms();
    }
    sink->ring[sink->pushed & sink->ring_mask] = (struct sink_entry){.token = token, .op = op};
    sink->pushed++;
}

/* "$<size>\r\n<bytes>\r\n" */
static uint8_t *put_bulk(uint8_t *at, struct fcap_bytes bytes)
{
    char digits[24];
    size_t count = 0;
    for (size_t left = bytes.size; left > 0 || count == 0; left /= 10) {
        digits[count++] = (char)('0' + left % 10);
    }
    *at++ = '$';
    while (count > 0) {
        *at++ = (uint8_t)digits[--count];
    }
    *at++ = '\r';
    *at++ = '\n';
    if (bytes.size > 0) {
        memcpy(at, bytes.data, bytes.size);
        at += bytes.size;
    }
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

static uint8_t *put_text(uint8_t *at, const char *text, size_t size)
{
    memcpy(at, text, size);
    return at + size;
}

#define PUT_LITERAL(at, text) put_text(at, text, sizeof(text) - 1)

static void put_push(struct fcap_buffer *out, const struct fcap_push *push)
{
    uint8_t *start = fcap_buffer_reserve(out, COMMAND_OVERHEAD + push->key.size + push->value.size);
    uint8_t *at = start;
    char time[24];
    switch (push->kind) {
    case FCAP_PUSH_SET:
        at = PUT_LITERAL(at, "*5\r\n$3\r\nSET\r\n");
        at = put_bulk(at, push->key);
        at = put_bulk(at, push->value);
        at = PUT_LITERAL(at, "$4\r\nPXAT\r\n");
        (void)snprintf(time, sizeof time, "%lld", (long long)push->expire_at_ms); /* It fits. */
        at = put_bulk(at, fcap_bytes_of(time));
        break;
    case FCAP_PUSH_UNLINK:
        at = PUT_LITERAL(at, "*2\r\n$6\r\nUNLINK\r\n");
        at = put_bulk(at, push->key);
        break;
    case FCAP_PUSH_INCREMENT:
        at = PUT_LITERAL(at, "*2\r\n$4\r\nINCR\r\n");
        at = put_bulk(at, push->key);
        break;
    }
    FCAP_ASSERT(at > start);
    out->size += (size_t)(at - start);
}

void sink_command(struct sink_redis *sink, enum sink_op op, size_t count,
                  const struct fcap_bytes *arguments)
{
    char head[24];
    int size = snprintf(head, sizeof head, "*%zu\r\n", count);
    fcap_buffer_put(&sink->out, head, (size_t)size);
    for (size_t i = 0; i < count; i++) {
        uint8_t *start = fcap_buffer_reserve(&sink->out, arguments[i].size + 32);
        sink->out.size += (size_t)(put_bulk(start, arguments[i]) - start);
    }
    enqueue(sink, op, 0);
}

static size_t unsent_bytes(const struct sink_redis *sink)
{
    return sink->out.size - sink->out_sent;
}

void sink_write_out(struct sink_redis *sink)
{
    while (unsent_bytes(sink) > 0) {
        /* MSG_NOSIGNAL: hiredis would write() and raise SIGPIPE. */
        ssize_t sent = send(sink->context->fd, sink->out.data + sink->out_sent, unsent_bytes(sink),
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            sink->write_blocked = true;
            break;
        }
        if (sent < 0) {
            sink_break(sink, FCAP_SINK_REDIS_ERROR_CLOSED, strerror(errno));
            return;
        }
        sink->out_sent += (size_t)sent;
        sink->now.counters.bytes_written += (uint64_t)sent;
    }
    /* The front is cut off only when that is at least half, so each byte moves once at most. */
    if (sink->out_sent > 0 && sink->out_sent >= sink->out.size / 2) {
        size_t left = unsent_bytes(sink);
        memmove(sink->out.data, sink->out.data + sink->out_sent, left);
        sink->out.size = left;
        sink->out_sent = 0;
    }
}

static enum fcap_status redis_push(struct fcap_sink *base, const struct fcap_push *push)
{
    struct sink_redis *sink = (struct sink_redis *)base;
    bool full = sink->pushes_in_flight >= sink->settings.commands_in_flight_max;
    /* After a refusal one command goes ahead alone; the others follow when it was done. */
    bool pausing = sink->pause_ms > 0 &&
                   (sink->pushes_in_flight > 0 || sink_monotonic_ms() < sink->pause_until_ms);
    size_t unsent = unsent_bytes(sink);
    size_t size = COMMAND_OVERHEAD + push->key.size + push->value.size;
    /* A command larger than the whole buffer may pass when it is alone. */
    full = full || (unsent > 0 && unsent + size > sink->settings.send_buffer_bytes);
    if (sink->phase != SINK_READY || sink->broken != FCAP_SINK_REDIS_ERROR_NONE || full ||
        pausing) {
        sink->now.counters.pushes_busy++;
        return FCAP_BUSY;
    }
    put_push(&sink->out, push);
    enqueue(sink, (enum sink_op)push->kind, push->token);
    sink->pushes_in_flight++;
    sink->now.counters.pushes++;
    if (unsent_bytes(sink) >= WRITE_EARLY && !sink->write_blocked) {
        sink_write_out(sink); /* When it fails, poll() finds `broken` and gives the acks. */
    }
    return FCAP_OK;
}

/* --- reading ------------------------------------------------------------------------------ */

static void refused(struct sink_redis *sink, enum sink_op op, uint64_t number)
{
    const char *text = (const char *)sink->reply.text.data;
    enum fcap_sink_redis_error error = fcap_sink_redis_error_of(text, sink->reply.text.size);
    sink_error(sink, error, text, sink->reply.text.size);
    if (sink_error_action(error) == SINK_ACTION_RECONNECT && sink->phase == SINK_READY) {
        sink->phase = SINK_RETIRING;
    }
    sink->pause_op = op;
    if (sink->pause_ms > 0 && number < sink->pause_wave) {
        return;
    }
    int longer = sink->pause_ms > 0 ? sink->pause_ms * 2 : sink->settings.backoff_min_ms;
    sink->pause_ms =
        longer < sink->settings.backoff_max_ms ? longer : sink->settings.backoff_max_ms;
    sink->pause_until_ms = sink_monotonic_ms() + sink->pause_ms;
    sink->pause_wave = sink->pushed;
}

static void push_answered(struct sink_redis *sink, const struct fcap_sink_handler *handler,
                          struct sink_entry entry, uint64_t number)
{
    enum fcap_push_result result = FCAP_PUSH_DONE;
    sink->pushes_in_flight--;
    if (sink->reply.type == REDIS_REPLY_ERROR) {
        refused(sink, entry.op, number);
        sink->now.counters.acks_refused++;
        result = FCAP_PUSH_REFUSED;
    } else {
        sink->now.counters.acks_done++;
        /* UNLINK proves nothing about others: it passes also when memory is full. */
        bool is_proof = entry.op != SINK_OP_PUSH_UNLINK || sink->pause_op == SINK_OP_PUSH_UNLINK;
        if (sink->pause_ms > 0 && number >= sink->pause_wave && is_proof) {
            sink->pause_ms = 0;
            sink_error_over(sink);
        }
    }
    sink->acked = true;
    int64_t integer = sink->reply.type == REDIS_REPLY_INTEGER ? sink->reply.integer : 0;
    handler->acked(handler->context, entry.token, result, integer);
}

static void reply_arrived(struct sink_redis *sink, const struct fcap_sink_handler *handler)
{
    if (sink->answered == sink->pushed) {
        /* Nobody asked. An error is the server's reason for closing (maxclients, protected). */
        const struct fcap_buffer *text = &sink->reply.text;
        enum fcap_sink_redis_error error = FCAP_SINK_REDIS_ERROR_PROTOCOL;
        char copy[128] = "a reply without a command";
        if (sink->reply.type == REDIS_REPLY_ERROR) {
            error = fcap_sink_redis_error_of((const char *)text->data, text->size);
            sink_copy_text(copy, sizeof copy, (const char *)text->data, text->size);
        }
        sink_break(sink, error, copy);
        return;
    }
    uint64_t number = sink->answered;
    struct sink_entry entry = sink->ring[number & sink->ring_mask];
    sink->answered++;
    if (entry.op <= SINK_OP_PUSH_INCREMENT) {
        push_answered(sink, handler, entry, number);
    } else if (entry.op == SINK_OP_ASK) {
        sink->asks_in_flight--; /* Its pieces have been kept. */
    } else {
        sink_probe_reply(sink, entry.op);
    }
}

static void read_in(struct sink_redis *sink, const struct fcap_sink_handler *handler)
{
    redisReader *reader = sink->context->reader;
    for (int i = 0; i < READS_PER_STEP; i++) {
        ssize_t size = recv(sink->context->fd, sink->read_buffer, SINK_READ_BYTES, MSG_DONTWAIT);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (size <= 0) {
            sink_break(sink, FCAP_SINK_REDIS_ERROR_CLOSED,
                       size < 0 ? strerror(errno) : "closed by the other side");
            return;
        }
        sink->progress_ms = sink_monotonic_ms();
        sink->spared = false;
        int failed = redisReaderFeed(reader, (const char *)sink->read_buffer, (size_t)size);
        void *object = NULL;
        do {
            object = NULL;
            failed = failed != REDIS_OK ? failed : redisReaderGetReply(reader, &object);
            if (failed != REDIS_OK) {
                sink_break(sink, FCAP_SINK_REDIS_ERROR_PROTOCOL, reader->errstr);
                return;
            }
            if (object != NULL) {
                reply_arrived(sink, handler);
            }
        } while (object != NULL);
        if (size < SINK_READ_BYTES) {
            return;
        }
    }
}

/* --- poll --------------------------------------------------------------------------------- */

/* The connection ends: whatever is in flight may have been done or not. */
static void drop(struct sink_redis *sink, const struct fcap_sink_handler *handler)
{
    uint64_t end = sink->pushed;
    sink_disconnect(sink); /* First, so that a handler that pushes finds it BUSY. */
    sink->pushes_in_flight = 0;
    sink->asks_lost = sink->asks_lost || sink->asks_in_flight > 0;
    sink->asks_in_flight = 0;
    while (sink->answered < end) {
        struct sink_entry entry = sink->ring[sink->answered & sink->ring_mask];
        sink->answered++;
        if (entry.op <= SINK_OP_PUSH_INCREMENT) {
            sink->now.counters.acks_unknown++;
            sink->acked = true;
            handler->acked(handler->context, entry.token, FCAP_PUSH_UNKNOWN, 0);
        }
    }
}

static void check_timeouts(struct sink_redis *sink)
{
    int64_t now_ms = sink_monotonic_ms();
    if (sink->phase >= SINK_RESOLVING && sink->phase <= SINK_PROBING &&
        now_ms >= sink->attempt_deadline_ms) {
        static const char *const texts[] = {
            [SINK_RESOLVING] = "resolving the host took too long",
            [SINK_CONNECTING] = "connecting took too long",
            [SINK_PROBING] = "the probe of a new connection was not answered in time",
        };
        sink_break(sink, FCAP_SINK_REDIS_ERROR_TIMEOUT, texts[sink->phase]);
    }
    if (sink->phase >= SINK_READY && sink->answered != sink->pushed &&
        now_ms - sink->progress_ms >= sink->settings.command_timeout_ms) {
        /* When the worker itself was away, the commands may have left only just now. Once. */
        if (sink->away_ms >= sink->settings.command_timeout_ms / 2 && !sink->spared) {
            sink->progress_ms = now_ms - sink->settings.command_timeout_ms / 2;
            sink->spared = true;
            return;
        }
        sink_break(sink, FCAP_SINK_REDIS_ERROR_TIMEOUT, "no answer for redis.command_timeout");
    }
}

/* Everything that can be done without waiting. */
static void step(struct sink_redis *sink, const struct fcap_sink_handler *handler)
{
    sink_connect_step(sink);
    if (sink->phase >= SINK_PROBING) {
        sink_heartbeat(sink);
        sink_write_out(sink);
        FCAP_POINT_IF(sink->pushes_in_flight > 0 && unsent_bytes(sink) == 0, push_written);
        /* Also after a failed write: answers that came before it are certain. */
        read_in(sink, handler);
        if (sink->broken == FCAP_SINK_REDIS_ERROR_NONE) {
            sink_write_out(sink); /* The probe's next command. */
        }
    }
    check_timeouts(sink);
    if (sink->broken != FCAP_SINK_REDIS_ERROR_NONE) {
        sink_error(sink, sink->broken, sink->broken_text, strlen(sink->broken_text));
        drop(sink, handler);
    } else if (sink->phase == SINK_RETIRING && sink->answered == sink->pushed) {
        drop(sink, handler); /* Its error is known already. */
    }
}

static bool answers_are_due(const struct sink_redis *sink)
{
    return sink->pushes_in_flight > 0 || sink->asks_in_flight > 0 || sink->phase == SINK_RETIRING ||
           (sink->phase >= SINK_RESOLVING && sink->phase <= SINK_PROBING);
}

static void wait_for_event(struct sink_redis *sink, int64_t wait_ms)
{
    int64_t now_ms = sink_monotonic_ms();
    int64_t limit_ms = sink->phase >= SINK_READY
                           ? sink->progress_ms + sink->settings.command_timeout_ms - now_ms
                           : sink->attempt_deadline_ms - now_ms;
    if (limit_ms < 1) {
        limit_ms = 1;
    }
    struct pollfd watched = {.fd = -1};
    watched.fd = sink_connect_descriptor(sink, &watched.events);
    if (sink->phase >= SINK_PROBING && unsent_bytes(sink) > 0) {
        watched.events |= POLLOUT;
    }
    int ready = poll(&watched, 1, (int)(wait_ms < limit_ms ? wait_ms : limit_ms));
    if (ready > 0) {
        sink->write_blocked = false;
    }
}

static void publish(struct sink_redis *sink)
{
    sink->sink.ops->state(&sink->sink, &sink->now.state);
    sink->now.in_flight = sink->pushes_in_flight;
    sink->now.unsent_bytes = unsent_bytes(sink);
    (void)pthread_mutex_lock(&sink->lock); /* A plain mutex: fails only when misused. */
    sink->shared = sink->now;
    (void)pthread_mutex_unlock(&sink->lock);
}

static enum fcap_status redis_poll(struct fcap_sink *base, const struct fcap_sink_handler *handler,
                                   int timeout_ms)
{
    struct sink_redis *sink = (struct sink_redis *)base;
    int64_t now_ms = sink_monotonic_ms();
    int64_t deadline_ms = now_ms + timeout_ms;
    sink->away_ms = now_ms - sink->polled_ms;
    sink->acked = false;
    sink->write_blocked = false;
    step(sink, handler);
    while (!sink->acked && answers_are_due(sink)) {
        int64_t left_ms = deadline_ms - sink_monotonic_ms();
        if (left_ms <= 0) {
            break;
        }
        wait_for_event(sink, left_ms);
        step(sink, handler);
    }
    sink->polled_ms = sink_monotonic_ms();
    publish(sink);
    return sink->phase == SINK_READY ? FCAP_OK : FCAP_UNAVAILABLE;
}

static void redis_state(struct fcap_sink *base, struct fcap_sink_state *ret_state)
{
    struct sink_redis *sink = (struct sink_redis *)base;
    *ret_state = sink->now.state;
    ret_state->ready = sink->phase == SINK_READY && sink->broken == FCAP_SINK_REDIS_ERROR_NONE;
    if (ret_state->time_known) {
        ret_state->time_ms = (sink_monotonic_us() + sink->time_offset_us) / 1000;
    }
}

const struct fcap_sink_ops sink_redis_ops = {
    .push = redis_push,
    .poll = redis_poll,
    .state = redis_state,
};
