/* Answers to the sink's own commands that carry something: who else is connected, which Redis this
 * is, and what time it is there. */
#include <stdlib.h>
#include <string.h>

#include "sink_redis_internal.h"

/* Other connections of exactly our name. A line is "id=7 addr=... name=fcapd:a:b:0 age=...". */
static void list_arrived(struct sink_redis *sink)
{
    fcap_buffer_clear(&sink->kill_ids);
    char *rest = NULL;
    size_t name_size = strlen(sink->name);
    for (char *line = strtok_r((char *)sink->reply.text.data, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        const char *name = strstr(line, " name=");
        if (name == NULL || strncmp(line, "id=", 3) != 0 ||
            strncmp(name + 6, sink->name, name_size) != 0 ||
            (name[6 + name_size] != ' ' && name[6 + name_size] != '\0')) {
            continue;
        }
        long long id = strtoll(line + 3, NULL, 10);
        /* When our own id is unknown, SKIPME (the default) keeps us from killing ourselves. */
        if (id > 0 && id != sink->own_id) {
            fcap_buffer_put_be64(&sink->kill_ids, (uint64_t)id);
        }
    }
}

/* "<name>:<value>\r\n" of INFO's text (NUL-terminated) into `ret_value`; "" when missing. */
static void info_field(const char *info, const char *name, char *ret_value, size_t capacity)
{
    size_t size = strlen(name);
    ret_value[0] = '\0';
    for (const char *at = strstr(info, name); at != NULL; at = strstr(at + 1, name)) {
        if ((at == info || at[-1] == '\n') && at[size] == ':') {
            size_t length = strcspn(at + size + 1, "\r\n");
            length = length < capacity - 1 ? length : capacity - 1;
            memcpy(ret_value, at + size + 1, length);
            ret_value[length] = '\0';
            return;
        }
    }
}

static void info_arrived(struct sink_redis *sink)
{
    const char *info = (const char *)sink->reply.text.data;
    char value[32];
    info_field(info, "role", value, sizeof value);
    if (strcmp(value, "slave") == 0) {
        sink_break(sink, FCAP_SINK_REDIS_ERROR_READONLY, "INFO says role:slave");
    }
    info_field(info, "run_id", sink->run_id, sizeof sink->run_id);
    if (sink->run_id[0] == '\0') {
        sink_refuse(sink, FCAP_SINK_REDIS_NEED_INFO, "INFO shows no run_id");
    }
    struct fcap_sink_redis_status *now = &sink->now;
    info_field(info, "redis_mode", value, sizeof value);
    now->is_cluster = strcmp(value, "cluster") == 0;
    info_field(info, "redis_version", now->version, sizeof now->version);
    info_field(info, "maxmemory_policy", now->maxmemory_policy, sizeof now->maxmemory_policy);
    now->evicts =
        now->maxmemory_policy[0] != '\0' && strcmp(now->maxmemory_policy, "noeviction") != 0;
}

/* The server read its clock somewhere between sending and now, so its offset to our monotonic clock
 * lies between low and high. The lower end can never run ahead of the server; an earlier estimate
 * that lies inside is at least as good and just as safe. */
static void time_arrived(struct sink_redis *sink)
{
    int64_t now_us = sink_monotonic_us();
    char *end[2] = {NULL, NULL};
    long long seconds = strtoll(sink->reply.elements[0], &end[0], 10);
    long long microseconds = strtoll(sink->reply.elements[1], &end[1], 10);
    if (sink->reply.type != REDIS_REPLY_ARRAY || end[0] == sink->reply.elements[0] ||
        end[1] == sink->reply.elements[1] || seconds < 0 || seconds > INT64_MAX / 2000000) {
        sink_break(sink, FCAP_SINK_REDIS_ERROR_PROTOCOL, "the answer to TIME is no time");
        return;
    }
    int64_t server_us = (int64_t)seconds * 1000000 + (int64_t)microseconds;
    int64_t low = server_us - now_us;
    int64_t high = server_us - sink->time_sent_us;
    if (!sink->time_fresh || sink->time_offset_us < low || sink->time_offset_us > high) {
        sink->time_offset_us = low;
    }
    sink->time_fresh = true;
    sink->now.state.time_known = true;
}

void fcap_sink_redis_identity(const char *run_id, struct fcap_bytes sentinel,
                              struct fcap_sink_identity *ret_identity)
{
    struct fcap_buffer text = {0};
    fcap_buffer_put_text(&text, run_id);
    fcap_buffer_put_u8(&text, '\n');
    fcap_buffer_put_bytes(&text, sentinel);
    uint64_t halves[2] = {fcap_hash64(fcap_buffer_bytes(&text), 1),
                          fcap_hash64(fcap_buffer_bytes(&text), 2) | 1}; /* never all zero */
    fcap_buffer_done(&text);
    for (size_t i = 0; i < sizeof ret_identity->bytes; i++) {
        ret_identity->bytes[i] = (uint8_t)(halves[i / 8] >> (56 - 8 * (i % 8)));
    }
}

static void identity_arrived(struct sink_redis *sink)
{
    struct fcap_sink_identity identity = {{0}};
    if (sink->reply.type == REDIS_REPLY_STRING) {
        fcap_sink_redis_identity(sink->run_id, fcap_buffer_bytes(&sink->reply.text), &identity);
    }
    static const struct fcap_sink_identity unknown;
    struct fcap_sink_identity *known = &sink->now.state.identity;
    if (memcmp(known, &identity, sizeof identity) != 0) {
        if (memcmp(known, &unknown, sizeof unknown) != 0) {
            sink->now.counters.identity_changes++;
        }
        *known = identity;
    }
}

void sink_answer_arrived(struct sink_redis *sink, enum sink_op op)
{
    switch (op) {
    case SINK_OP_CLIENT_ID:
        sink->own_id = sink->reply.integer;
        break;
    case SINK_OP_CLIENT_LIST:
        list_arrived(sink);
        break;
    case SINK_OP_CLIENT_KILL:
        sink->now.counters.connections_killed +=
            sink->reply.type == REDIS_REPLY_INTEGER && sink->reply.integer > 0;
        break;
    case SINK_OP_INFO:
        info_arrived(sink);
        break;
    case SINK_OP_TIME:
        time_arrived(sink);
        break;
    case SINK_OP_SENTINEL_GET:
        identity_arrived(sink);
        break;
    default:
        break;
    }
}
