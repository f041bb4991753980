/* Settings, names, open and close. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "fcap/assert.h"
#include "sink_redis_internal.h"

void fcap_sink_redis_settings_default(struct fcap_sink_redis_settings *ret_settings)
{
    *ret_settings = (struct fcap_sink_redis_settings){
        .host = "127.0.0.1",
        .port = 6379,
        .profile = "default",
        .instance = "default",
        .connect_timeout_ms = 5000,
        .command_timeout_ms = 5000,
        .time_interval_ms = 1000,
        .identity_interval_ms = 2000,
        .backoff_min_ms = 50,
        .backoff_max_ms = 5000,
        .send_buffer_bytes = 4 * 1024 * 1024,
        .commands_in_flight_max = 16384,
    };
}

static enum fcap_status check_settings(const struct fcap_sink_redis_settings *settings,
                                       struct fcap_error *error)
{
    const char *wrong = NULL;
    if (settings->unix_socket == NULL && (settings->host == NULL || settings->host[0] == '\0')) {
        wrong = "redis.host is empty";
    } else if (settings->unix_socket == NULL && settings->port == 0) {
        wrong = "redis.port is 0";
    } else if (settings->database < 0) {
        wrong = "redis.db is negative";
    } else if (settings->profile == NULL || settings->instance == NULL) {
        wrong = "profile or instance is missing";
    } else if (settings->user != NULL && settings->user[0] != '\0' &&
               (settings->password == NULL || settings->password[0] == '\0')) {
        wrong = "redis.user needs redis.password";
    } else if (settings->connect_timeout_ms < 1 || settings->command_timeout_ms < 1 ||
               settings->time_interval_ms < 1 || settings->identity_interval_ms < 1) {
        wrong = "a redis timeout or interval is below 1 ms";
    } else if (settings->backoff_min_ms < 1 ||
               settings->backoff_max_ms < settings->backoff_min_ms ||
               settings->backoff_max_ms > 3600 * 1000) {
        wrong = "the redis backoff is not 1 ms <= min <= max <= 1 h";
    } else if (settings->send_buffer_bytes < 1 || settings->commands_in_flight_max < 1 ||
               settings->commands_in_flight_max > 1u << 24) {
        wrong = "redis.send_buffer or the bound on commands in flight is out of range";
    }
    return wrong == NULL ? FCAP_OK : fcap_error_set(error, FCAP_CONFIG, "%s", wrong);
}

/* Part of the connection's name: Redis refuses what is not '!' .. '~', and ':' divides our parts,
 * so both are written as %XX; different names stay different. */
static void put_name_part(struct fcap_buffer *name, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (*at > ' ' && *at < 0x7f && *at != ':' && *at != '%') {
            fcap_buffer_put(name, at, 1);
        } else {
            char code[4];
            (void)snprintf(code, sizeof code, "%%%02X", (unsigned)(unsigned char)*at);
            fcap_buffer_put_text(name, code);
        }
    }
}

/* The buffer's text, NUL-terminated; the caller frees. */
static char *take_text(struct fcap_buffer *buffer)
{
    fcap_buffer_put_u8(buffer, 0);
    char *text = (char *)buffer->data;
    *buffer = (struct fcap_buffer){0};
    return text;
}

static void make_names(struct sink_redis *sink)
{
    const struct fcap_sink_redis_settings *settings = &sink->settings;
    struct fcap_buffer text = {0};
    fcap_buffer_put_text(&text, "fcapd:");
    put_name_part(&text, settings->profile);
    fcap_buffer_put_text(&text, ":");
    put_name_part(&text, settings->instance);
    fcap_buffer_put_text(&text, ":");
    fcap_buffer_put_decimal(&text, settings->worker);
    sink->name = take_text(&text);

    if (settings->probe_key != NULL) {
        fcap_buffer_put_text(&text, settings->probe_key);
    } else {
        /* No user has such a key: '%' inside a user id is written %25. */
        fcap_buffer_put_text(&text, "fc:{%probe:");
        fcap_buffer_put_text(&text, sink->name);
        fcap_buffer_put_text(&text, "}");
    }
    sink->probe_key = take_text(&text);

    fcap_buffer_put_text(&text, "fc:meta:");
    fcap_buffer_put_text(&text, settings->profile);
    fcap_buffer_put_text(&text, ":");
    fcap_buffer_put_text(&text, settings->instance);
    fcap_buffer_put_text(&text, ":probe");
    sink->meta_key = take_text(&text);

    fcap_buffer_put_text(&text, "fc:epoch:");
    fcap_buffer_put_text(&text, settings->profile);
    fcap_buffer_put_text(&text, ":probe");
    sink->epoch_key = take_text(&text);
}

static char *copy_of(const char *text)
{
    if (text == NULL) {
        return NULL;
    }
    struct fcap_buffer copy = {0};
    fcap_buffer_put_text(&copy, text);
    return take_text(&copy);
}

enum fcap_status fcap_sink_redis_open(const struct fcap_sink_redis_settings *settings,
                                      struct fcap_error *error, struct fcap_sink **ret_sink)
{
    enum fcap_status status = check_settings(settings, error);
    if (status != FCAP_OK) {
        fcap_error_prefix(error, "open Redis sink");
        return status;
    }
    struct sink_redis *sink = calloc(1, sizeof *sink);
    FCAP_ASSERT(sink != NULL);
    sink->sink.ops = &sink_redis_ops;
    sink->settings = *settings;
    sink->settings.host = copy_of(settings->host);
    sink->settings.unix_socket = copy_of(settings->unix_socket);
    sink->settings.user = copy_of(settings->user);
    sink->settings.password = copy_of(settings->password);
    sink->settings.profile = copy_of(settings->profile);
    sink->settings.instance = copy_of(settings->instance);
    sink->settings.probe_key = copy_of(settings->probe_key);
    make_names(sink);
    size_t capacity = 1;
    while (capacity < settings->commands_in_flight_max + SINK_OWN_COMMANDS_MAX) {
        capacity *= 2;
    }
    sink->ring = calloc(capacity, sizeof *sink->ring);
    sink->read_buffer = malloc(SINK_READ_BYTES);
    FCAP_ASSERT(sink->ring != NULL && sink->read_buffer != NULL);
    sink->ring_mask = capacity - 1;
    if (getrandom(&sink->random, sizeof sink->random, GRND_NONBLOCK) !=
        (ssize_t)sizeof sink->random) {
        sink->random = (uint64_t)sink_monotonic_us(); /* Jitter needs no more. */
    }
    sink->phase = SINK_WAITING;
    FCAP_ASSERT(pthread_mutex_init(&sink->lock, NULL) == 0);
    *ret_sink = &sink->sink;
    return FCAP_OK;
}

void fcap_sink_redis_close(struct fcap_sink *base)
{
    struct sink_redis *sink = (struct sink_redis *)base;
    if (sink == NULL) {
        return;
    }
    if (sink->context != NULL) {
        redisFree(sink->context);
    }
    sink_resolver_release(sink->resolver);
    (void)pthread_mutex_destroy(&sink->lock); /* Nobody may hold it now. */
    fcap_buffer_done(&sink->out);
    fcap_buffer_done(&sink->reply.text);
    fcap_buffer_done(&sink->kill_ids);
    char *texts[] = {
        sink->name,
        sink->probe_key,
        sink->meta_key,
        sink->epoch_key,
        (char *)sink->settings.host,
        (char *)sink->settings.unix_socket,
        (char *)sink->settings.user,
        (char *)sink->settings.password,
        (char *)sink->settings.profile,
        (char *)sink->settings.instance,
        (char *)sink->settings.probe_key,
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        free(texts[i]);
    }
    free(sink->ring);
    free(sink->read_buffer);
    free(sink);
}

void fcap_sink_redis_status(struct fcap_sink *base, struct fcap_sink_redis_status *ret_status)
{
    struct sink_redis *sink = (struct sink_redis *)base;
    (void)pthread_mutex_lock(&sink->lock); /* A plain mutex: fails only when misused. */
    *ret_status = sink->shared;
    (void)pthread_mutex_unlock(&sink->lock);
}
