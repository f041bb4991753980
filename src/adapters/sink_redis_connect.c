/* Makes connections, one attempt after another with a growing pause, and drops them. After any
 * error a hiredis context is dead, so a connection is never mended, only replaced. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "sink_redis_internal.h"

/* xorshift64*: jitter only. */
static uint64_t draw(struct sink_redis *sink)
{
    sink->random |= sink->random == 0;
    sink->random ^= sink->random >> 12;
    sink->random ^= sink->random << 25;
    sink->random ^= sink->random >> 27;
    return sink->random * 0x2545F4914F6CDD1Dull >> 33;
}

void sink_disconnect(struct sink_redis *sink)
{
    int64_t now_ms = sink_monotonic_ms();
    const struct fcap_sink_redis_settings *settings = &sink->settings;
    if (sink->phase >= SINK_READY && now_ms - sink->ready_at_ms >= settings->backoff_max_ms) {
        sink->failures = 0; /* It held; a connection that breaks at once keeps its pause. */
    }
    if (sink->context != NULL) {
        redisFree(sink->context);
        sink->context = NULL;
    }
    fcap_buffer_clear(&sink->out);
    sink->out_sent = 0;
    sink->broken = FCAP_SINK_REDIS_ERROR_NONE;
    sink->spared = false;
    sink->time_asked = false;
    sink->identity_asked = false;
    sink->time_fresh = false;

    int64_t pause_ms = settings->backoff_min_ms;
    for (unsigned i = 0; i < sink->failures && pause_ms < settings->backoff_max_ms; i++) {
        pause_ms *= 2;
    }
    if (pause_ms > settings->backoff_max_ms) {
        pause_ms = settings->backoff_max_ms;
    }
    sink->failures += sink->failures < 32;
    /* Between half and the whole, so that many workers do not come back in step. */
    sink->retry_at_ms = now_ms + pause_ms - (int64_t)(draw(sink) % ((uint64_t)pause_ms / 2 + 1));
    sink->phase = SINK_WAITING;
}

static bool is_numeric(const char *host)
{
    unsigned char address[16];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

/* Starts connecting to the next address. False: there is none left, or none works. */
static bool connect_next(struct sink_redis *sink)
{
    const struct fcap_sink_redis_settings *settings = &sink->settings;
    char text[128] = "out of memory";
    while (sink->address_next < sink->addresses.count) {
        const char *address = sink->addresses.text[sink->address_next];
        sink->address_next++;
        redisContext *context = settings->unix_socket != NULL
                                    ? redisConnectUnixNonBlock(settings->unix_socket)
                                    : redisConnectNonBlock(address, settings->port);
        if (context != NULL && context->err == 0) {
            context->reader->fn = &sink_reply_functions;
            context->reader->privdata = &sink->reply;
            context->reader->maxbuf = 0; /* Keeps its buffer. */
            sink->context = context;
            sink->phase = SINK_CONNECTING;
            return true;
        }
        if (context != NULL) {
            (void)snprintf(text, sizeof text, "%s", context->errstr); /* Cut when too long. */
            redisFree(context);
        }
    }
    sink_break(sink, FCAP_SINK_REDIS_ERROR_CONNECT, text);
    return false;
}

static void attempt(struct sink_redis *sink)
{
    const struct fcap_sink_redis_settings *settings = &sink->settings;
    sink->now.counters.connects++;
    sink->attempt_deadline_ms = sink_monotonic_ms() + settings->connect_timeout_ms;
    sink->address_next = 0;
    if (settings->unix_socket != NULL || is_numeric(settings->host)) {
        sink->addresses.count = 1;
        if (settings->unix_socket == NULL) {
            (void)snprintf(sink->addresses.text[0], SINK_ADDRESS_BYTES, "%s", settings->host);
        }
        (void)connect_next(sink); /* A failure is in `broken`. */
        return;
    }
    /* A look-up that outlived the last attempt is waited for, so there is never a second one. */
    if (sink->resolver == NULL) {
        sink->resolver = sink_resolver_start(settings->host);
    }
    sink->phase = SINK_RESOLVING;
    if (sink->resolver == NULL) {
        sink_break(sink, FCAP_SINK_REDIS_ERROR_RESOLVE, "no thread for the look-up");
    }
}

static void check_resolved(struct sink_redis *sink)
{
    if (sink->resolver == NULL || !sink_resolver_done(sink->resolver, &sink->addresses)) {
        return;
    }
    sink_resolver_release(sink->resolver);
    sink->resolver = NULL;
    if (sink->addresses.count == 0) {
        sink_break(sink, FCAP_SINK_REDIS_ERROR_RESOLVE, "the name has no address");
        return;
    }
    (void)connect_next(sink); /* A failure is in `broken`. */
}

static void check_connected(struct sink_redis *sink)
{
    struct pollfd watched = {.fd = sink->context->fd, .events = POLLOUT};
    if (poll(&watched, 1, 0) <= 0) {
        return;
    }
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(sink->context->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    if (error == 0) {
        sink->phase = SINK_PROBING;
        sink_probe_start(sink);
        return;
    }
    redisFree(sink->context);
    sink->context = NULL;
    if (sink->address_next < sink->addresses.count) {
        (void)connect_next(sink); /* localhost may be ::1 first. A failure is in `broken`. */
    } else {
        sink_break(sink, FCAP_SINK_REDIS_ERROR_CONNECT, strerror(error));
    }
}

void sink_connect_step(struct sink_redis *sink)
{
    if (sink->phase == SINK_WAITING && sink_monotonic_ms() >= sink->retry_at_ms) {
        attempt(sink);
    }
    if (sink->phase == SINK_RESOLVING) {
        check_resolved(sink);
    }
    if (sink->phase == SINK_CONNECTING && sink->context != NULL) {
        check_connected(sink);
    }
}

int sink_connect_descriptor(const struct sink_redis *sink, short *ret_events)
{
    if (sink->phase == SINK_RESOLVING) {
        *ret_events = POLLIN;
        return sink_resolver_descriptor(sink->resolver);
    }
    if (sink->context == NULL) {
        return -1;
    }
    *ret_events = sink->phase == SINK_CONNECTING ? POLLOUT : POLLIN;
    return sink->context->fd;
}
