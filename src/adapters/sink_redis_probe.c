/* What is asked on each connect, one command after the other, and at each heartbeat.
 *
 * The order matters: the connection is named first, then older ones of that name are killed, and
 * only then comes the first write. The other way round an abandoned socket that the server still
 * works off could overwrite what the new connection has written:
 *   old connection: ... SET k 1 | (broken for us; the server still reads its buffer)
 *   new connection: SET k 2, answered
 *   old connection: the server reaches SET k 1. Now k is 1, and nobody will ever mend it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "fcap/assert.h"
#include "fcap/mutant.h"
#include "sink_redis_internal.h"

#define SENTINEL_KEY "fc:id"

enum {
    PROBE_KEY_TTL_MS = 60 * 1000, /* it is unlinked at once; this is for a probe that dies */
};

/* Which need an operation of the probe shows; COUNT: none (AUTH). */
static enum fcap_sink_redis_need need_of(enum sink_op op)
{
    switch (op) {
    case SINK_OP_SELECT:
        return FCAP_SINK_REDIS_NEED_SELECT;
    case SINK_OP_CLIENT_SETNAME:
        return FCAP_SINK_REDIS_NEED_CLIENT_SETNAME;
    case SINK_OP_CLIENT_ID:
        return FCAP_SINK_REDIS_NEED_CLIENT_ID;
    case SINK_OP_CLIENT_LIST:
        return FCAP_SINK_REDIS_NEED_CLIENT_LIST;
    case SINK_OP_CLIENT_KILL:
        return FCAP_SINK_REDIS_NEED_CLIENT_KILL;
    case SINK_OP_INFO:
        return FCAP_SINK_REDIS_NEED_INFO;
    case SINK_OP_TIME:
        return FCAP_SINK_REDIS_NEED_TIME;
    case SINK_OP_SENTINEL_SET:
        return FCAP_SINK_REDIS_NEED_SENTINEL_SET;
    case SINK_OP_SENTINEL_GET:
        return FCAP_SINK_REDIS_NEED_SENTINEL_GET;
    case SINK_OP_SET_PXAT:
        return FCAP_SINK_REDIS_NEED_SET_PXAT;
    case SINK_OP_INCR:
        return FCAP_SINK_REDIS_NEED_INCR;
    case SINK_OP_UNLINK:
        return FCAP_SINK_REDIS_NEED_UNLINK;
    case SINK_OP_META_KEY:
        return FCAP_SINK_REDIS_NEED_META_KEY;
    case SINK_OP_EPOCH_KEY:
        return FCAP_SINK_REDIS_NEED_EPOCH_KEY;
    default:
        return FCAP_SINK_REDIS_NEED_COUNT;
    }
}

static bool is_degradable(enum fcap_sink_redis_need need)
{
    static const bool rows[FCAP_SINK_REDIS_NEED_COUNT] = {
#define X(name, command, degradable, promise) degradable,
        FCAP_SINK_REDIS_NEED_LIST(X)
#undef X
    };
    return rows[need];
}

void sink_refuse(struct sink_redis *sink, enum fcap_sink_redis_need need, const char *text)
{
    sink->refused |= 1u << need;
    sink_copy_text(sink->now.refused_text[need], sizeof sink->now.refused_text[need], text,
                   strlen(text));
}

static int64_t wall_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* Cannot fail for this clock. */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* --- asking ------------------------------------------------------------------------------- */

static void ask(struct sink_redis *sink, enum sink_op op, const char *first, const char *second,
                const char *third, const char *fourth, const char *fifth)
{
    const char *texts[] = {first, second, third, fourth, fifth};
    struct fcap_bytes arguments[5];
    size_t count = 0;
    while (count < 5 && texts[count] != NULL) {
        arguments[count] = fcap_bytes_of(texts[count]);
        count++;
    }
    sink_command(sink, op, count, arguments);
}

static void ask_auth(struct sink_redis *sink)
{
    const char *user = sink->settings.user;
    const char *password = sink->settings.password;
    if (user != NULL && user[0] != '\0') {
        ask(sink, SINK_OP_AUTH, "AUTH", user, password, NULL, NULL);
    } else {
        ask(sink, SINK_OP_AUTH, "AUTH", password, NULL, NULL, NULL);
    }
}

static void ask_kill(struct sink_redis *sink)
{
    /* The last id is nobody's: it shows that we may kill when it is needed. */
    unsigned long long id = INT64_MAX;
    if (sink->kill_next * 8 < sink->kill_ids.size) {
        struct fcap_reader reader =
            fcap_reader_of((struct fcap_bytes){sink->kill_ids.data + sink->kill_next * 8, 8});
        id = fcap_reader_be64(&reader);
    }
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", id); /* It fits. */
    ask(sink, SINK_OP_CLIENT_KILL, "CLIENT", "KILL", "ID", text, NULL);
}

static void ask_sentinel_set(struct sink_redis *sink)
{
    uint8_t random[16];
    char hex[33];
    /* 16 bytes are never cut short; the pool is ready long before this process. */
    FCAP_ASSERT(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random);
    for (size_t i = 0; i < sizeof random; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", random[i]); /* It fits. */
    }
    ask(sink, SINK_OP_SENTINEL_SET, "SET", SENTINEL_KEY, hex, "NX", NULL);
}

static void ask_pxat(struct sink_redis *sink)
{
    int64_t now_ms =
        sink->time_fresh ? (sink_monotonic_us() + sink->time_offset_us) / 1000 : wall_ms();
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)(now_ms + PROBE_KEY_TTL_MS));
    ask(sink, SINK_OP_SET_PXAT, "SET", sink->probe_key, "0", "PXAT", text);
}

static void ask_time(struct sink_redis *sink)
{
    sink->time_sent_us = sink_monotonic_us();
    ask(sink, SINK_OP_TIME, "TIME", NULL, NULL, NULL, NULL);
}

static void ask_op(struct sink_redis *sink, enum sink_op op)
{
    char number[16];
    switch (op) {
    case SINK_OP_AUTH:
        ask_auth(sink);
        break;
    case SINK_OP_SELECT:
        (void)snprintf(number, sizeof number, "%d", sink->settings.database); /* It fits. */
        ask(sink, op, "SELECT", number, NULL, NULL, NULL);
        break;
    case SINK_OP_CLIENT_SETNAME:
        ask(sink, op, "CLIENT", "SETNAME", sink->name, NULL, NULL);
        break;
    case SINK_OP_CLIENT_ID:
        ask(sink, op, "CLIENT", "ID", NULL, NULL, NULL);
        break;
    case SINK_OP_CLIENT_LIST:
        ask(sink, op, "CLIENT", "LIST", NULL, NULL, NULL);
        break;
    case SINK_OP_CLIENT_KILL:
        ask_kill(sink);
        break;
    case SINK_OP_INFO:
        ask(sink, op, "INFO", NULL, NULL, NULL, NULL);
        break;
    case SINK_OP_TIME:
        ask_time(sink);
        break;
    case SINK_OP_SENTINEL_SET:
        ask_sentinel_set(sink);
        break;
    case SINK_OP_SENTINEL_GET:
        ask(sink, op, "GET", SENTINEL_KEY, NULL, NULL, NULL);
        break;
    case SINK_OP_SET_PXAT:
        ask_pxat(sink);
        break;
    case SINK_OP_INCR:
        ask(sink, op, "INCR", sink->probe_key, NULL, NULL, NULL);
        break;
    case SINK_OP_UNLINK:
        ask(sink, op, "UNLINK", sink->probe_key, NULL, NULL, NULL);
        break;
    case SINK_OP_META_KEY:
        ask(sink, op, "UNLINK", sink->meta_key, NULL, NULL, NULL);
        break;
    case SINK_OP_EPOCH_KEY:
        ask(sink, op, "UNLINK", sink->epoch_key, NULL, NULL, NULL);
        break;
    default:
        FCAP_ASSERT(false); /* Not an operation of the probe. */
    }
}

/* The probe is over: the connection is ready, or what is refused is reported and tried again. */
static void probe_end(struct sink_redis *sink)
{
    sink->now.refused_needs = sink->refused;
    for (unsigned i = 0; i < FCAP_SINK_REDIS_NEED_COUNT; i++) {
        enum fcap_sink_redis_need need = (enum fcap_sink_redis_need)i;
        bool refused = (sink->refused & 1u << i) != 0;
        if (refused && !(is_degradable(need) && sink->settings.degraded_allowed)) {
            char text[160];
            (void)snprintf(text, sizeof text, "%s: %s", fcap_sink_redis_need_command(need),
                           sink->now.refused_text[i]); /* Cut when too long. */
            sink_break(sink, FCAP_SINK_REDIS_ERROR_PROBE, text);
            return;
        }
    }
    sink->phase = SINK_READY;
    sink->ready_at_ms = sink_monotonic_ms();
    sink->time_due_ms = sink->ready_at_ms + sink->settings.time_interval_ms;
    sink->identity_due_ms = sink->ready_at_ms + sink->settings.identity_interval_ms;
    sink->now.state.connection++;
    sink->now.counters.connections_ready++;
    sink->pause_ms = 0;
    sink_error_over(sink);
}

static void ask_from(struct sink_redis *sink, enum sink_op op)
{
    bool has_password = sink->settings.password != NULL && sink->settings.password[0] != '\0';
    if (op == SINK_OP_AUTH && !has_password) {
        op++;
    }
    if (op == SINK_OP_SELECT && sink->settings.database == 0) {
        op++;
    }
    if (op == SINK_OP_CLIENT_KILL && FCAP_MUTANT(ZOMBIE)) {
        op++;
    }
    if (op == SINK_OP_END) {
        probe_end(sink);
    } else {
        ask_op(sink, op);
    }
}

void sink_probe_start(struct sink_redis *sink)
{
    sink->refused = 0;
    sink->own_id = -1;
    sink->run_id[0] = '\0';
    sink->kill_next = 0;
    fcap_buffer_clear(&sink->kill_ids);
    ask_from(sink, SINK_OP_AUTH);
}

/* --- answers ------------------------------------------------------------------------------ */

/* True when the server refuses this very command to this account or in this version; false when
 * something else is in the way, and the same command may pass later. */
static bool is_refusal(enum fcap_sink_redis_error error)
{
    return error == FCAP_SINK_REDIS_ERROR_NOPERM || error == FCAP_SINK_REDIS_ERROR_SYNTAX ||
           error == FCAP_SINK_REDIS_ERROR_UNKNOWN_COMMAND ||
           error == FCAP_SINK_REDIS_ERROR_WRONGTYPE || error == FCAP_SINK_REDIS_ERROR_NOSCRIPT ||
           error == FCAP_SINK_REDIS_ERROR_CROSSSLOT || error == FCAP_SINK_REDIS_ERROR_OTHER;
}

static void probe_error(struct sink_redis *sink, enum sink_op op, enum fcap_sink_redis_error error,
                        const char *text)
{
    enum fcap_sink_redis_need need = need_of(op);
    if (need == FCAP_SINK_REDIS_NEED_COUNT || !is_refusal(error)) {
        sink_break(sink, error, text);
        return;
    }
    if (op == SINK_OP_CLIENT_KILL && error == FCAP_SINK_REDIS_ERROR_OTHER) {
        return; /* "No such client": gone by itself, and we may kill. */
    }
    sink->now.counters.errors[error]++;
    char why[160];
    const char *version = sink->now.version;
    if (op == SINK_OP_SET_PXAT && error == FCAP_SINK_REDIS_ERROR_SYNTAX) {
        (void)snprintf(why, sizeof why, "%.64s (needs Redis 6.2 or newer; this one says %s)", text,
                       version[0] == '\0' ? "nothing" : version); /* Cut when too long. */
        text = why;
    }
    sink_refuse(sink, need, text);
}

/* A heartbeat was refused. What may pass later is only noted; else the connection is replaced, and
 * its probe names what is missing. */
static void heartbeat_error(struct sink_redis *sink, enum fcap_sink_redis_error error,
                            const char *text)
{
    sink_error(sink, error, text, strlen(text));
    if ((is_refusal(error) || sink_error_action(error) == SINK_ACTION_RECONNECT) &&
        sink->phase == SINK_READY) {
        sink->phase = SINK_RETIRING;
    }
}

/* SET fc:id NX is refused like any other write when memory is full or the disk fails; when it
 * passes again that is over, also while the core has nothing to push. */
static void heartbeat_wrote(struct sink_redis *sink)
{
    enum fcap_sink_redis_error error = sink->now.error;
    if (sink->pause_ms == 0 && error != FCAP_SINK_REDIS_ERROR_NONE && !is_refusal(error)) {
        sink_error_over(sink);
    }
}

void sink_probe_reply(struct sink_redis *sink, enum sink_op op)
{
    bool failed = sink->reply.type == REDIS_REPLY_ERROR;
    if (failed) {
        char text[128];
        enum fcap_sink_redis_error error =
            fcap_sink_redis_error_of((const char *)sink->reply.text.data, sink->reply.text.size);
        sink_copy_text(text, sizeof text, (const char *)sink->reply.text.data,
                       sink->reply.text.size);
        if (sink->phase == SINK_PROBING) {
            probe_error(sink, op, error, text);
        } else {
            heartbeat_error(sink, error, text);
        }
    } else {
        sink_answer_arrived(sink, op);
    }
    if (sink->phase != SINK_PROBING) {
        sink->time_asked = sink->time_asked && op != SINK_OP_TIME;
        sink->identity_asked = sink->identity_asked && op != SINK_OP_SENTINEL_GET;
        if (op == SINK_OP_SENTINEL_SET && !failed) {
            heartbeat_wrote(sink);
        }
        return;
    }
    if (sink->broken != FCAP_SINK_REDIS_ERROR_NONE) {
        return;
    }
    if (op == SINK_OP_CLIENT_KILL && sink->kill_next * 8 < sink->kill_ids.size) {
        sink->kill_next++;
        ask_from(sink, op);
    } else {
        ask_from(sink, op + 1);
    }
}

void sink_heartbeat(struct sink_redis *sink)
{
    if (sink->phase != SINK_READY) {
        return;
    }
    int64_t now_ms = sink_monotonic_ms();
    if (now_ms >= sink->time_due_ms && !sink->time_asked) {
        sink->time_due_ms = now_ms + sink->settings.time_interval_ms;
        sink->time_asked = true;
        ask_time(sink);
    }
    if (now_ms >= sink->identity_due_ms && !sink->identity_asked) {
        sink->identity_due_ms = now_ms + sink->settings.identity_interval_ms;
        sink->identity_asked = true;
        if ((sink->refused & 1u << FCAP_SINK_REDIS_NEED_INFO) == 0) {
            ask_op(sink, SINK_OP_INFO);
        }
        ask_sentinel_set(sink);
        ask_op(sink, SINK_OP_SENTINEL_GET);
    }
}
