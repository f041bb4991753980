#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t clock_now(struct fcap_clock *clock)
{
    return ((struct port_clock *)clock)->world->now_ms;
}

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)record; /* The generator's event is at hand. */
    *ret_event = ((struct port_decoder *)decoder)->world->event;
    return FCAP_REJECT_NONE;
}

static void assign_all(struct world *world, const struct fcap_source_handler *handler)
{
    for (uint64_t i = 0; i < world->options.partitions; i++) {
        int32_t partition = (int32_t)i;
        uint64_t assignment = i + 1;
        struct fcap_start start;
        handler->assigned(handler->context, &partition, &assignment, 1, &start);
        struct fcap_started started = {.partition = partition};
        if (world->ends != NULL) {
            started.end = (int64_t)world->ends[i];
        }
        if (start.kind == FCAP_START_OFFSET) {
            started.offset = start.offset;
            started.end = start.offset;
        }
        handler->started(handler->context, &started);
    }
    world->assigned = true;
}

int64_t world_arrival_ms(const struct world *world, uint64_t index)
{
    return START_MS + (int64_t)((double)index * world->event_ms);
}

static void draw_by_zipf(struct world *world, uint64_t *ret_user, uint32_t *ret_ad,
                         int64_t *ret_time_ms)
{
    uint64_t user = zipf_next(&world->zipf);
    *ret_user = user;
    *ret_ad = (uint32_t)(mix(user * 1000003 + random_next() % world->options.ads) % AD_POOL);
    *ret_time_ms = world_arrival_ms(world, world->made);
    if (random_unit() < LATE_SHARE) {
        *ret_time_ms -= (int64_t)(random_unit() * (double)DAY_MS);
    }
}

static bool deliver_one(struct world *world, const struct fcap_source_handler *handler)
{
    uint64_t user = 0;
    uint32_t ad = 0;
    int64_t time_ms = 0;
    world->draw(world, &user, &ad, &time_ms);
    name_user(user, world->user);
    (void)snprintf(world->ad, sizeof world->ad, "a%u", ad); /* At most 5 characters. */
    world->event = (struct fcap_event){.user = {(const uint8_t *)world->user, 16},
                                       .ad = fcap_bytes_of(world->ad),
                                       .time_ms = time_ms};
    int32_t partition = (int32_t)(mix(user) % world->options.partitions);
    struct fcap_record record = {.partition = partition,
                                 .offset = (int64_t)world->offsets[partition]++,
                                 .timestamp_ms = time_ms,
                                 .timestamp_type = FCAP_TIMESTAMP_CREATE,
                                 .key = world->event.user,
                                 .value = world->event.user};
    samples_note(world, user, ad, time_ms);
    world->made++;
    return handler->record(handler->context, &record);
}

static enum fcap_status source_poll(struct fcap_source *source,
                                    const struct fcap_source_handler *handler,
                                    struct fcap_source_budget budget)
{
    struct world *world = ((struct port_source *)source)->world;
    if (!world->assigned) {
        assign_all(world, handler);
    }
    bool more = budget.records_max > 0;
    for (uint64_t i = 0; more && i < world->options.step && world->made < world->total; i++) {
        more = deliver_one(world, handler);
    }
    /* What the next step delivers has arrived by then. */
    uint64_t next = world->made + world->options.step;
    int64_t now_ms = world_arrival_ms(world, next < world->total ? next : world->total);
    world->now_ms = now_ms > world->now_ms ? now_ms : world->now_ms;
    return FCAP_OK;
}

static bool source_may_send(struct fcap_source *source, int32_t partition)
{
    (void)source;
    (void)partition;
    return true;
}

static void source_publish(struct fcap_source *source, int32_t partition, int64_t next_offset)
{
    (void)source;
    (void)partition;
    (void)next_offset; /* Nobody looks at lag here. */
}

static enum fcap_status sink_push(struct fcap_sink *sink, const struct fcap_push *push)
{
    struct world *world = ((struct port_sink *)sink)->world;
    if (world->token_count == sizeof world->tokens / sizeof world->tokens[0]) {
        return FCAP_BUSY;
    }
    world->tokens[world->token_count++] = push->token;
    if (push->kind == FCAP_PUSH_INCREMENT) {
        return FCAP_OK;
    }
    world->pushes++;
    world->push_bytes += push->key.size + push->value.size;
    world->checksum = world->checksum * 31 + fcap_hash64(push->value, world->pushes);
    samples_keep(world, push);
    return FCAP_OK;
}

static enum fcap_status sink_poll(struct fcap_sink *sink, const struct fcap_sink_handler *handler,
                                  int timeout_ms)
{
    struct world *world = ((struct port_sink *)sink)->world;
    (void)timeout_ms;
    for (size_t i = 0; i < world->token_count; i++) {
        handler->acked(handler->context, world->tokens[i], FCAP_PUSH_DONE, 1);
    }
    world->token_count = 0;
    return FCAP_OK;
}

static void sink_state(struct fcap_sink *sink, struct fcap_sink_state *ret_state)
{
    struct world *world = ((struct port_sink *)sink)->world;
    *ret_state = (struct fcap_sink_state){
        .ready = true, .connection = 1, .time_known = true, .time_ms = world->now_ms};
    ret_state->identity.bytes[0] = 1;
}

static const struct fcap_source_ops source_ops = {source_poll, source_may_send, source_publish};
static const struct fcap_sink_ops sink_ops = {sink_push, sink_poll, sink_state};

void world_init_ports(struct world *world)
{
    world->now_ms = world_arrival_ms(world, world->options.step);
    world->offsets = calloc(world->options.partitions, sizeof *world->offsets);
    world->clock = (struct port_clock){{clock_now, clock_now}, world};
    world->source = (struct port_source){{&source_ops}, world};
    world->sink = (struct port_sink){{&sink_ops}, world};
    world->decoder = (struct port_decoder){{decode}, world};
}

void world_init(struct world *world)
{
    random_begin();
    zipf_init(&world->zipf, (double)world->options.users, world->options.zipf);
    world->total = world->options.users * world->options.retained * 2;
    world->event_ms = (double)SPAN_DAYS * DAY_MS / (double)world->total;
    world->draw = draw_by_zipf;
    world_init_ports(world);
    samples_prepare(world);
}

void world_free(struct world *world)
{
    for (size_t i = 0; i < world->sample_count * WINDOWS; i++) {
        free(world->values[i].text);
    }
    free(world->values);
    free(world->sample_filter);
    free(world->events);
    free(world->offsets);
    free(world);
}
