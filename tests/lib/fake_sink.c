/* See fake_sink.h. */
#include "lib/fake_sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fcap/assert.h"

struct fcap_fake_key {
    struct fcap_fake_key *next;
    struct fcap_buffer key;
    struct fcap_buffer value;
    int64_t expire_at_ms; /* -1: never */
};

struct fcap_fake_command {
    struct fcap_fake_command *next;
    enum fcap_push_kind kind;
    struct fcap_buffer key;
    struct fcap_buffer value;
    int64_t expire_at_ms;
    uint64_t token;
    bool answered; /* `result` is on its way to the client */
    enum fcap_push_result result;
    int64_t integer;
};

struct fcap_fake_socket {
    struct fcap_fake_socket *next;
    char name[64];
    struct fcap_fake_command *first;
};

static void *allocate(size_t size)
{
    void *memory = calloc(1, size);
    FCAP_ASSERT(memory != NULL);
    return memory;
}

static bool happens(struct fcap_fake_redis *redis, unsigned per_mille)
{
    return per_mille > 0 && redis->draw != NULL &&
           redis->draw(redis->draw_context, 1000) < per_mille;
}

static void free_command(struct fcap_fake_command *command)
{
    fcap_buffer_done(&command->key);
    fcap_buffer_done(&command->value);
    free(command);
}

/* --- keys --------------------------------------------------------------------------------- */

static void free_key(struct fcap_fake_key *key)
{
    fcap_buffer_done(&key->key);
    fcap_buffer_done(&key->value);
    free(key);
}

static void clear_keys(struct fcap_fake_keys *keys)
{
    for (size_t i = 0; i < keys->slot_count; i++) {
        for (struct fcap_fake_key *at = keys->slots[i]; at != NULL;) {
            struct fcap_fake_key *next = at->next;
            free_key(at);
            at = next;
        }
    }
    free(keys->slots);
    *keys = (struct fcap_fake_keys){0};
}

static size_t slot_of(const struct fcap_fake_keys *keys, struct fcap_bytes key)
{
    return (size_t)(fcap_hash64(key, 0) & (keys->slot_count - 1));
}

/* Twice the slots when every slot has a key on average. */
static void grow_keys(struct fcap_fake_keys *keys)
{
    if (keys->count < keys->slot_count) {
        return;
    }
    struct fcap_fake_keys larger = {.slot_count = keys->slot_count == 0 ? 64 : keys->slot_count * 2,
                                    .count = keys->count};
    larger.slots = allocate(larger.slot_count * sizeof *larger.slots);
    for (size_t i = 0; i < keys->slot_count; i++) {
        for (struct fcap_fake_key *at = keys->slots[i]; at != NULL;) {
            struct fcap_fake_key *next = at->next;
            size_t slot = slot_of(&larger, fcap_buffer_bytes(&at->key));
            at->next = larger.slots[slot];
            larger.slots[slot] = at;
            at = next;
        }
    }
    free(keys->slots);
    *keys = larger;
}

/* The place that points to the key, or to NULL. Redis shows a key until now > PXAT. */
static struct fcap_fake_key **find_key(struct fcap_fake_keys *keys, struct fcap_bytes key,
                                       int64_t now_ms)
{
    static struct fcap_fake_key *nothing;
    if (keys->slot_count == 0) {
        nothing = NULL;
        return &nothing;
    }
    struct fcap_fake_key **at = &keys->slots[slot_of(keys, key)];
    while (*at != NULL && !fcap_bytes_equal(fcap_buffer_bytes(&(*at)->key), key)) {
        at = &(*at)->next;
    }
    if (*at != NULL && (*at)->expire_at_ms >= 0 && now_ms > (*at)->expire_at_ms) {
        struct fcap_fake_key *expired = *at;
        *at = expired->next;
        free_key(expired);
        keys->count--;
        nothing = NULL;
        return &nothing;
    }
    return at;
}

static struct fcap_fake_key *make_key(struct fcap_fake_keys *keys, struct fcap_bytes key)
{
    grow_keys(keys);
    struct fcap_fake_key *made = allocate(sizeof *made);
    fcap_buffer_put_bytes(&made->key, key);
    made->expire_at_ms = -1;
    size_t slot = slot_of(keys, key);
    made->next = keys->slots[slot];
    keys->slots[slot] = made;
    keys->count++;
    return made;
}

static void copy_keys(const struct fcap_fake_keys *from, struct fcap_fake_keys *to)
{
    clear_keys(to);
    for (size_t i = 0; i < from->slot_count; i++) {
        for (const struct fcap_fake_key *at = from->slots[i]; at != NULL; at = at->next) {
            struct fcap_fake_key *copy = make_key(to, fcap_buffer_bytes(&at->key));
            fcap_buffer_put_bytes(&copy->value, fcap_buffer_bytes(&at->value));
            copy->expire_at_ms = at->expire_at_ms;
        }
    }
}

/* --- the server --------------------------------------------------------------------------- */

static int64_t server_ms(struct fcap_fake_redis *redis)
{
    return redis->clock->wall_ms(redis->clock);
}

void fcap_fake_redis_init(struct fcap_fake_redis *redis, struct fcap_clock *clock)
{
    *redis = (struct fcap_fake_redis){.clock = clock};
    redis->run_id = ++redis->serial;
}

static void forget_abandoned(struct fcap_fake_redis *redis, const char *name)
{
    struct fcap_fake_socket **at = &redis->abandoned;
    while (*at != NULL) {
        struct fcap_fake_socket *socket = *at;
        if (name != NULL && strcmp(socket->name, name) != 0) {
            at = &socket->next;
            continue;
        }
        *at = socket->next;
        redis->connections_killed += name != NULL;
        while (socket->first != NULL) {
            struct fcap_fake_command *command = socket->first;
            socket->first = command->next;
            free_command(command);
        }
        free(socket);
    }
}

void fcap_fake_redis_done(struct fcap_fake_redis *redis)
{
    FCAP_ASSERT(redis->sinks == NULL);
    forget_abandoned(redis, NULL);
    clear_keys(&redis->keys);
    clear_keys(&redis->saved);
}

void fcap_fake_redis_flush(struct fcap_fake_redis *redis)
{
    clear_keys(&redis->keys);
    redis->sentinel = 0;
}

void fcap_fake_redis_delete_sentinel(struct fcap_fake_redis *redis)
{
    redis->sentinel = 0;
}

void fcap_fake_redis_save(struct fcap_fake_redis *redis)
{
    copy_keys(&redis->keys, &redis->saved);
    redis->saved_sentinel = redis->sentinel;
}

void fcap_fake_redis_restart(struct fcap_fake_redis *redis, enum fcap_fake_restart kind)
{
    /* Sinks see the other run id at their next push or poll; what they have in flight is lost. */
    for (struct fcap_fake_sink *sink = redis->sinks; sink != NULL; sink = sink->next) {
        sink->killed = true;
    }
    forget_abandoned(redis, NULL);
    redis->run_id = ++redis->serial;
    if (kind == FCAP_FAKE_RESTART_EMPTY) {
        fcap_fake_redis_flush(redis);
    } else if (kind == FCAP_FAKE_RESTART_SAVED) {
        copy_keys(&redis->saved, &redis->keys);
        redis->sentinel = redis->saved_sentinel;
    }
}

/* INCR: a decimal integer without expiry of its own; a key that is there keeps its expiry. */
static enum fcap_push_result increment(struct fcap_fake_redis *redis, struct fcap_bytes name,
                                       int64_t *ret_integer)
{
    struct fcap_fake_key *key = *find_key(&redis->keys, name, server_ms(redis));
    long long value = 0;
    if (key != NULL) {
        char text[24] = {0};
        char *end = NULL;
        if (key->value.size == 0 || key->value.size >= sizeof text) {
            return FCAP_PUSH_REFUSED;
        }
        memcpy(text, key->value.data, key->value.size);
        value = strtoll(text, &end, 10);
        if (*end != '\0') {
            return FCAP_PUSH_REFUSED;
        }
    } else {
        key = make_key(&redis->keys, name);
    }
    value++;
    fcap_buffer_clear(&key->value);
    fcap_buffer_put_decimal(&key->value, value);
    *ret_integer = value;
    return FCAP_PUSH_DONE;
}

static enum fcap_push_result execute(struct fcap_fake_redis *redis,
                                     const struct fcap_fake_command *command, int64_t *ret_integer)
{
    struct fcap_bytes name = fcap_buffer_bytes(&command->key);
    struct fcap_fake_key **at = find_key(&redis->keys, name, server_ms(redis));
    *ret_integer = 0;
    if (redis->full && command->kind != FCAP_PUSH_UNLINK) {
        return FCAP_PUSH_REFUSED;
    }
    redis->commands_done++;
    if (command->kind == FCAP_PUSH_INCREMENT) {
        return increment(redis, name, ret_integer);
    }
    if (*at != NULL) {
        struct fcap_fake_key *old = *at;
        *at = old->next;
        free_key(old);
        redis->keys.count--;
        *ret_integer = command->kind == FCAP_PUSH_UNLINK;
    }
    if (command->kind == FCAP_PUSH_SET) {
        struct fcap_fake_key *key = make_key(&redis->keys, name);
        fcap_buffer_put_bytes(&key->value, fcap_buffer_bytes(&command->value));
        key->expire_at_ms = command->expire_at_ms;
    }
    return FCAP_PUSH_DONE;
}

void fcap_fake_redis_step(struct fcap_fake_redis *redis)
{
    struct fcap_fake_socket **at = &redis->abandoned;
    while (*at != NULL) {
        struct fcap_fake_socket *socket = *at;
        while (socket->first != NULL && !happens(redis, 500)) {
            struct fcap_fake_command *command = socket->first;
            int64_t integer = 0;
            (void)execute(redis, command, &integer); /* Nobody hears the answer. */
            redis->commands_done_late++;
            socket->first = command->next;
            free_command(command);
        }
        if (socket->first != NULL) {
            at = &socket->next;
            continue;
        }
        *at = socket->next;
        free(socket);
    }
}

size_t fcap_fake_redis_abandoned(const struct fcap_fake_redis *redis)
{
    size_t count = 0;
    for (const struct fcap_fake_socket *at = redis->abandoned; at != NULL; at = at->next) {
        for (const struct fcap_fake_command *c = at->first; c != NULL; c = c->next) {
            count++;
        }
    }
    return count;
}

bool fcap_fake_redis_get(struct fcap_fake_redis *redis, struct fcap_bytes key,
                         struct fcap_bytes *ret_value, int64_t *ret_expire_at_ms)
{
    const struct fcap_fake_key *found = *find_key(&redis->keys, key, server_ms(redis));
    if (found == NULL) {
        return false;
    }
    *ret_value = fcap_buffer_bytes(&found->value);
    *ret_expire_at_ms = found->expire_at_ms;
    return true;
}

bool fcap_fake_redis_spoil(struct fcap_fake_redis *redis, struct fcap_bytes key,
                           struct fcap_bytes value)
{
    struct fcap_fake_key **at = find_key(&redis->keys, key, server_ms(redis));
    struct fcap_fake_key *found = *at;
    if (found != NULL && value.data == NULL) {
        *at = found->next;
        free_key(found);
        redis->keys.count--;
    } else if (found != NULL) {
        fcap_buffer_clear(&found->value);
        fcap_buffer_put_bytes(&found->value, value);
    }
    return found != NULL;
}

void fcap_fake_redis_visit(struct fcap_fake_redis *redis,
                           void (*visit)(void *context, struct fcap_bytes key,
                                         struct fcap_bytes value, int64_t expire_at_ms),
                           void *context)
{
    int64_t now_ms = server_ms(redis);
    for (size_t i = 0; i < redis->keys.slot_count; i++) {
        for (const struct fcap_fake_key *at = redis->keys.slots[i]; at != NULL; at = at->next) {
            if (at->expire_at_ms < 0 || now_ms <= at->expire_at_ms) {
                visit(context, fcap_buffer_bytes(&at->key), fcap_buffer_bytes(&at->value),
                      at->expire_at_ms);
            }
        }
    }
}

/* --- the client --------------------------------------------------------------------------- */

static struct fcap_fake_command *take_first(struct fcap_fake_sink *sink)
{
    struct fcap_fake_command *command = sink->first;
    sink->first = command->next;
    if (sink->first == NULL) {
        sink->last = NULL;
    }
    command->next = NULL;
    sink->in_flight--;
    return command;
}

/* The fate of what a broken connection had in flight: done already, done now, never, or left with
 * the server. Once one was left, the later ones cannot be done before it. */
static void decide_fates(struct fcap_fake_sink *sink)
{
    struct fcap_fake_redis *redis = sink->redis;
    struct fcap_fake_socket *socket = NULL;
    struct fcap_fake_command **end = NULL;
    for (struct fcap_fake_command *command = sink->first; command != NULL;
         command = command->next) {
        if (command->answered || sink->killed || redis->draw == NULL) {
            continue;
        }
        uint32_t fate = redis->draw(redis->draw_context, redis->zombies ? 3 : 2);
        if (fate == 1 && socket == NULL) {
            (void)execute(redis, command, &command->integer); /* The answer is lost. */
        } else if (fate == 2) {
            if (socket == NULL) {
                socket = allocate(sizeof *socket);
                memcpy(socket->name, sink->name, sizeof socket->name);
                end = &socket->first;
            }
            struct fcap_fake_command *copy = allocate(sizeof *copy);
            copy->kind = command->kind;
            copy->expire_at_ms = command->expire_at_ms;
            fcap_buffer_put_bytes(&copy->key, fcap_buffer_bytes(&command->key));
            fcap_buffer_put_bytes(&copy->value, fcap_buffer_bytes(&command->value));
            *end = copy;
            end = &copy->next;
        }
    }
    if (socket != NULL) {
        socket->next = redis->abandoned;
        redis->abandoned = socket;
    }
}

void fcap_fake_sink_break(struct fcap_fake_sink *sink)
{
    if (!sink->connected) {
        return;
    }
    sink->breaks++;
    decide_fates(sink);
    sink->connected = false;
    sink->killed = false;
    sink->state.ready = false;
}

static void notice_break(struct fcap_fake_sink *sink)
{
    if (sink->killed || sink->redis->down) {
        fcap_fake_sink_break(sink);
    }
    sink->killed = false;
}

static void refresh_time(struct fcap_fake_sink *sink)
{
    sink->monotonic_sample_ms = sink->clock->monotonic_ms(sink->clock);
    sink->time_sample_ms = server_ms(sink->redis);
    sink->state.time_known = true;
    sink->time_due_ms = sink->monotonic_sample_ms + sink->time_interval_ms;
}

static void refresh_identity(struct fcap_fake_sink *sink)
{
    struct fcap_fake_redis *redis = sink->redis;
    if (redis->sentinel == 0) {
        redis->sentinel = ++redis->serial; /* SET fc:id NX */
    }
    struct fcap_buffer bytes = {0};
    fcap_buffer_put_be64(&bytes, redis->run_id);
    fcap_buffer_put_be64(&bytes, redis->sentinel);
    memcpy(sink->state.identity.bytes, bytes.data, sizeof sink->state.identity.bytes);
    fcap_buffer_done(&bytes);
    sink->identity_due_ms = sink->clock->monotonic_ms(sink->clock) + sink->identity_interval_ms;
}

static void connect_sink(struct fcap_fake_sink *sink)
{
    struct fcap_fake_redis *redis = sink->redis;
    if (redis->down || happens(redis, sink->faults.no_connect)) {
        return;
    }
    if (!redis->spares_older) {
        forget_abandoned(redis, sink->name);
        for (struct fcap_fake_sink *other = redis->sinks; other != NULL; other = other->next) {
            if (other != sink && other->connected && strcmp(other->name, sink->name) == 0) {
                other->killed = true;
                redis->connections_killed++;
            }
        }
    }
    sink->connected = true;
    sink->state.ready = true;
    sink->state.connection++;
    refresh_time(sink);
    refresh_identity(sink);
}

static enum fcap_status fake_push(struct fcap_sink *base, const struct fcap_push *push)
{
    struct fcap_fake_sink *sink = (struct fcap_fake_sink *)base;
    if (!sink->connected || sink->in_flight >= sink->in_flight_max ||
        happens(sink->redis, sink->faults.busy_per_push)) {
        return FCAP_BUSY;
    }
    struct fcap_fake_command *command = allocate(sizeof *command);
    command->kind = push->kind;
    command->expire_at_ms = push->expire_at_ms;
    command->token = push->token;
    fcap_buffer_put_bytes(&command->key, push->key);
    fcap_buffer_put_bytes(&command->value, push->value);
    if (sink->last == NULL) {
        sink->first = command;
    } else {
        sink->last->next = command;
    }
    sink->last = command;
    sink->in_flight++;
    return FCAP_OK;
}

static void give_ack(struct fcap_fake_sink *sink, const struct fcap_sink_handler *handler,
                     enum fcap_push_result result)
{
    struct fcap_fake_command *command = take_first(sink);
    sink->acks[result]++;
    int64_t integer = result == FCAP_PUSH_DONE ? command->integer : 0;
    handler->acked(handler->context, command->token, result, integer);
    free_command(command);
}

static void serve(struct fcap_fake_sink *sink)
{
    for (struct fcap_fake_command *command = sink->first; command != NULL;
         command = command->next) {
        if (command->answered) {
            continue;
        }
        if (happens(sink->redis, sink->faults.slow_per_command)) {
            return;
        }
        command->answered = true;
        command->result = happens(sink->redis, sink->faults.refuse_per_command)
                              ? FCAP_PUSH_REFUSED
                              : execute(sink->redis, command, &command->integer);
    }
}

static enum fcap_status fake_poll(struct fcap_sink *base, const struct fcap_sink_handler *handler,
                                  int timeout_ms)
{
    struct fcap_fake_sink *sink = (struct fcap_fake_sink *)base;
    (void)timeout_ms; /* Simulated time never waits. */
    notice_break(sink);
    if (happens(sink->redis, sink->faults.break_per_poll)) {
        fcap_fake_sink_break(sink);
    }
    if (!sink->connected) {
        /* Only what was pushed before the break: a handler that pushes meets BUSY. */
        while (sink->first != NULL) {
            give_ack(sink, handler, FCAP_PUSH_UNKNOWN);
        }
        connect_sink(sink);
        return sink->connected ? FCAP_OK : FCAP_UNAVAILABLE;
    }
    int64_t now_ms = sink->clock->monotonic_ms(sink->clock);
    if (now_ms >= sink->time_due_ms) {
        refresh_time(sink);
    }
    if (now_ms >= sink->identity_due_ms) {
        refresh_identity(sink);
    }
    serve(sink);
    while (sink->first != NULL && sink->first->answered &&
           !happens(sink->redis, sink->faults.late_per_ack)) {
        give_ack(sink, handler, sink->first->result);
    }
    return FCAP_OK;
}

static void fake_state(struct fcap_sink *base, struct fcap_sink_state *ret_state)
{
    struct fcap_fake_sink *sink = (struct fcap_fake_sink *)base;
    *ret_state = sink->state;
    if (sink->state.time_known) {
        ret_state->time_ms = sink->time_sample_ms + sink->clock->monotonic_ms(sink->clock) -
                             sink->monotonic_sample_ms;
    }
}

static const struct fcap_sink_ops fake_ops = {
    .push = fake_push,
    .poll = fake_poll,
    .state = fake_state,
};

void fcap_fake_sink_open(struct fcap_fake_sink *sink, struct fcap_fake_redis *redis,
                         struct fcap_clock *clock, const char *name)
{
    *sink = (struct fcap_fake_sink){
        .sink.ops = &fake_ops,
        .in_flight_max = 1000,
        .identity_interval_ms = 2000,
        .time_interval_ms = 1000,
        .redis = redis,
        .clock = clock,
        .next = redis->sinks,
    };
    (void)snprintf(sink->name, sizeof sink->name, "%s", name); /* Cut when too long. */
    redis->sinks = sink;
}

void fcap_fake_sink_close(struct fcap_fake_sink *sink)
{
    fcap_fake_sink_break(sink);
    while (sink->first != NULL) {
        free_command(take_first(sink));
    }
    struct fcap_fake_sink **at = &sink->redis->sinks;
    while (*at != sink) {
        at = &(*at)->next;
    }
    *at = sink->next;
}
