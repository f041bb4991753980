#include "integration/virtual_world.h"

#include "integration/store_rocksdb_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { TOKENS_MAX = 65536, STEPS_MAX = 1000000, NAME_MAX_BYTES = 600 };

/* --- clock and decoder --------------------------------------------------------------------- */

static int64_t clock_now(struct fcap_clock *clock)
{
    return ((struct virtual_clock *)clock)->world->now_ms;
}

static int64_t clock_monotonic(struct fcap_clock *clock)
{
    return ((struct virtual_clock *)clock)->world->monotonic_ms;
}

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    struct virtual_world *world = ((struct virtual_decoder *)decoder)->world;
    const struct virtual_event *event = world->at_hand;
    if (world->retention_ms > 0) {
        struct fcap_reader reader = fcap_reader_of(record->value);
        event = &world->events[fcap_reader_be64(&reader)];
    }
    *ret_event = (struct fcap_event){.user = fcap_bytes_of(event->user),
                                     .ad = fcap_bytes_of(event->ad),
                                     .time_ms = event->time_ms};
    return FCAP_REJECT_NONE;
}

/* --- source -------------------------------------------------------------------------------- */

static int64_t wall_ms(struct virtual_world *world)
{
    return world->clock != NULL ? world->clock->wall_ms(world->clock) : world->now_ms;
}

/* The end of a partition now: offsets below it have arrived. */
static int64_t arrived_end(struct virtual_world *world, int32_t partition)
{
    int64_t end = world->next[partition];
    int64_t now_ms = wall_ms(world);
    if (world->retention_ms > 0) {
        return end;
    }
    while ((size_t)end < world->counts[partition] &&
           world->events[world->by_partition[partition][end]].arrival_ms <= now_ms) {
        end++;
    }
    return end;
}

static void assign_all(struct virtual_world *world, const struct fcap_source_handler *handler)
{
    for (int32_t i = 0; i < world->partition_count; i++) {
        int32_t partition = world->first_partition + i;
        uint64_t assignment = world->starts * VIRTUAL_PARTITIONS_MAX + (uint64_t)i + 1;
        struct fcap_start start;
        handler->assigned(handler->context, &partition, &assignment, 1, &start);
        world->next[partition] = start.kind == FCAP_START_OFFSET ? start.offset : 0;
        struct fcap_started started = {.partition = partition,
                                       .offset = world->next[partition],
                                       .end = arrived_end(world, partition)};
        handler->started(handler->context, &started);
    }
    world->assigned = true;
}

static enum fcap_status source_poll(struct fcap_source *source,
                                    const struct fcap_source_handler *handler,
                                    struct fcap_source_budget budget)
{
    struct virtual_world *world = ((struct virtual_source *)source)->world;
    if (!world->assigned) {
        assign_all(world, handler);
    }
    bool more = budget.records_max > 0;
    for (int32_t i = 0; i < world->partition_count && more; i++) {
        int32_t partition = world->first_partition + i;
        int64_t end = arrived_end(world, partition);
        while (more && world->next[partition] < end) {
            int64_t offset = world->next[partition]++;
            world->at_hand = &world->events[world->by_partition[partition][offset]];
            struct fcap_record record = {.partition = partition,
                                         .offset = offset,
                                         .timestamp_ms = world->at_hand->arrival_ms,
                                         .timestamp_type = FCAP_TIMESTAMP_CREATE,
                                         .key = fcap_bytes_of(world->at_hand->user),
                                         .value = fcap_bytes_of(world->at_hand->ad)};
            more = handler->record(handler->context, &record);
        }
    }
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

/* --- a topic that forgets ------------------------------------------------------------------ */

/* What has arrived by now is in it, and what is too old is not any more. */
static void move_topic(struct virtual_world *world)
{
    int64_t now_ms = wall_ms(world);
    struct fcap_buffer value = {0};
    if (!world->has_topic) {
        fake_topic_init(&world->topic, world->first_partition + world->partition_count);
        world->has_topic = true;
    }
    while (world->arrived < world->event_count &&
           world->events[world->arrived].arrival_ms <= now_ms) {
        const struct virtual_event *event = &world->events[world->arrived];
        fcap_buffer_clear(&value);
        fcap_buffer_put_be64(&value, world->arrived++); /* decode() */
        world->next[event->partition] =
            1 + fake_topic_append(&world->topic, event->partition, fcap_bytes_of(event->user),
                                  fcap_buffer_bytes(&value), event->arrival_ms,
                                  FCAP_TIMESTAMP_CREATE);
    }
    for (int32_t i = 0; i < world->topic.partition_count; i++) {
        int64_t start = world->topic.logs[i].log_start;
        struct fcap_record record;
        while (fake_topic_read(&world->topic, i, start, &record) &&
               record.timestamp_ms < now_ms - world->retention_ms) {
            fake_topic_trim(&world->topic, i, ++start);
        }
    }
    fcap_buffer_done(&value);
}

static struct fcap_source *join_topic(struct virtual_world *world)
{
    move_topic(world);
    fake_source_init(&world->member, &world->topic);
    world->member.decoder = &world->decoder_port.port;
    for (int32_t i = 0; i < world->partition_count; i++) {
        fake_source_assign(&world->member, world->first_partition + i);
    }
    return &world->member.port;
}

/* --- a Redis in memory --------------------------------------------------------------------- */

static struct virtual_key **slot_of(const struct virtual_world *world, struct fcap_bytes name)
{
    size_t mask = world->slot_count - 1;
    size_t at = fcap_hash64(name, 0) & mask;
    while (world->slots[at] != NULL &&
           !fcap_bytes_equal(fcap_bytes_of(world->slots[at]->name), name)) {
        at = (at + 1) & mask;
    }
    return &world->slots[at];
}

static void grow_slots(struct virtual_world *world)
{
    struct virtual_key **old = world->slots;
    size_t old_count = world->slot_count;
    world->slot_count = old_count == 0 ? 1024 : old_count * 2;
    world->slots = calloc(world->slot_count, sizeof(struct virtual_key *));
    assert_non_null(world->slots);
    for (size_t i = 0; i < old_count; i++) {
        if (old[i] != NULL) {
            *slot_of(world, fcap_bytes_of(old[i]->name)) = old[i];
        }
    }
    free(old);
}

static void put_value(struct virtual_world *world, struct fcap_bytes name, struct fcap_bytes value,
                      int64_t expire_at_ms)
{
    if (world->key_count * 2 >= world->slot_count) {
        grow_slots(world);
    }
    struct virtual_key **slot = slot_of(world, name);
    if (*slot == NULL) {
        *slot = calloc(1, sizeof **slot);
        assert_non_null(*slot);
        (*slot)->name = strndup((const char *)name.data, name.size);
        world->key_count++;
    }
    free((*slot)->value);
    (*slot)->value = value.data == NULL ? NULL : strndup((const char *)value.data, value.size);
    (*slot)->expire_at_ms = expire_at_ms;
}

static bool is_live(const struct virtual_world *world, const struct virtual_key *key)
{
    return key != NULL && key->value != NULL && key->expire_at_ms >= world->now_ms;
}

static enum fcap_status sink_push(struct fcap_sink *sink, const struct fcap_push *push)
{
    struct virtual_world *world = ((struct virtual_sink *)sink)->world;
    if (world->token_count == TOKENS_MAX) {
        return FCAP_BUSY;
    }
    world->tokens[world->token_count++] = push->token;
    world->pushes += push->kind != FCAP_PUSH_INCREMENT;
    if (push->kind == FCAP_PUSH_INCREMENT || world->forget_values) {
        return FCAP_OK;
    }
    put_value(world, push->key, push->kind == FCAP_PUSH_SET ? push->value : FCAP_BYTES_NONE,
              push->expire_at_ms);
    return FCAP_OK;
}

static enum fcap_status sink_poll(struct fcap_sink *sink, const struct fcap_sink_handler *handler,
                                  int timeout_ms)
{
    struct virtual_world *world = ((struct virtual_sink *)sink)->world;
    (void)timeout_ms;
    for (size_t i = 0; i < world->token_count; i++) {
        handler->acked(handler->context, world->tokens[i], FCAP_PUSH_DONE, (int64_t)world->starts);
    }
    world->token_count = 0;
    return FCAP_OK;
}

static void sink_state(struct fcap_sink *sink, struct fcap_sink_state *ret_state)
{
    struct virtual_world *world = ((struct virtual_sink *)sink)->world;
    *ret_state = (struct fcap_sink_state){
        .ready = true, .connection = 1, .time_known = true, .time_ms = world->now_ms};
    ret_state->identity.bytes[0] = (uint8_t)(1 + world->redis);
}

static const struct fcap_source_ops source_ops = {source_poll, source_may_send, source_publish};
static const struct fcap_sink_ops sink_ops = {sink_push, sink_poll, sink_state};

/* --- life ---------------------------------------------------------------------------------- */

static char leftover[64]; /* the directory of the world that is open */

/* A test that failed has freed nothing. */
static void remove_leftover(void)
{
    char command[80];
    if (leftover[0] != '\0') {
        (void)snprintf(command, sizeof command, "rm -rf '%s'", leftover); /* Fits. */
        if (system(command) != 0) {
            print_error("%s: not removed\n", leftover);
        }
    }
}

struct virtual_world *virtual_world_make(void)
{
    static bool is_registered;
    if (!is_registered) {
        is_registered = atexit(remove_leftover) == 0;
    }
    remove_leftover();
    struct virtual_world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    help_make(world->directory);
    memcpy(leftover, world->directory, sizeof leftover);
    (void)snprintf(world->state, sizeof world->state, "%s/state", world->directory); /* Fits. */
    world->store = help_settings(world->state);
    fcap_settings_default(&world->settings);
    world->settings.profile = "test";
    world->settings.key_pattern = "fc:{%u}:%w";
    world->settings.expiry_hold_ms = 0; /* Time stands still until all is settled. */
    world->partition_count = 1;
    world->tokens = calloc(TOKENS_MAX, sizeof *world->tokens);
    world->clock_port = (struct virtual_clock){{clock_now, clock_monotonic}, world};
    world->source_port = (struct virtual_source){{&source_ops}, world};
    world->sink_port = (struct virtual_sink){{&sink_ops}, world};
    world->decoder_port = (struct virtual_decoder){{decode}, world};
    grow_slots(world);
    return world;
}

static void free_events(struct virtual_world *world)
{
    for (size_t i = 0; i < VIRTUAL_PARTITIONS_MAX; i++) {
        free(world->by_partition[i]);
        world->by_partition[i] = NULL;
        world->counts[i] = 0;
        world->next[i] = 0;
    }
}

static void free_keys(struct virtual_world *world)
{
    for (size_t i = 0; i < world->slot_count; i++) {
        if (world->slots[i] != NULL) {
            free(world->slots[i]->name);
            free(world->slots[i]->value);
            free(world->slots[i]);
            world->slots[i] = NULL;
        }
    }
    world->key_count = 0;
}

void virtual_world_lose_redis(struct virtual_world *world)
{
    assert_null(world->pipeline);
    free_keys(world);
    world->redis++;
}

void virtual_world_free(struct virtual_world *world)
{
    if (world == NULL) {
        return;
    }
    virtual_world_stop(world, false);
    free_keys(world);
    free_events(world);
    fake_topic_done(&world->topic);
    free(world->slots);
    free(world->tokens);
    help_remove(world->directory);
    leftover[0] = '\0';
    free(world);
}

void virtual_world_window(struct virtual_world *world, const char *name, int64_t length_ms)
{
    struct fcap_window *window = &world->settings.windows[world->settings.window_count++];
    (void)snprintf(window->name, sizeof window->name, "%s", name); /* Fits: ours. */
    window->length_ms = length_ms;
}

void virtual_world_events(struct virtual_world *world, const struct virtual_event *events,
                          size_t count)
{
    free_events(world);
    world->events = events;
    world->event_count = count;
    for (size_t i = 0; i < count; i++) {
        assert_in_range(events[i].partition, 0, VIRTUAL_PARTITIONS_MAX - 1);
        assert_true(i == 0 || events[i].arrival_ms >= events[i - 1].arrival_ms);
        world->counts[events[i].partition]++;
    }
    for (size_t i = 0; i < VIRTUAL_PARTITIONS_MAX; i++) {
        world->by_partition[i] = calloc(world->counts[i] + 1, sizeof(uint32_t));
        world->counts[i] = 0;
    }
    for (size_t i = 0; i < count; i++) {
        int32_t partition = events[i].partition;
        world->by_partition[partition][world->counts[partition]++] = (uint32_t)i;
    }
}

void virtual_world_start(struct virtual_world *world)
{
    struct fcap_error error = {""};
    world->starts++;
    world->assigned = false;
    world->token_count = 0;
    world->db = help_open(&world->store);
    struct fcap_ports ports = {
        .clock = world->clock != NULL ? world->clock : &world->clock_port.port,
        .decoder = &world->decoder_port.port,
        .source = world->retention_ms > 0 ? join_topic(world) : &world->source_port.port,
        .store = fcap_store_rocksdb_handle(world->db),
        .sink = world->sink != NULL ? world->sink : &world->sink_port.port};
    if (fcap_pipeline_open(&world->settings, &ports, &world->pipeline, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

void virtual_world_stop(struct virtual_world *world, bool drain)
{
    if (world->pipeline != NULL && drain) {
        virtual_world_commit(world);
    }
    fcap_pipeline_close(world->pipeline);
    world->pipeline = NULL;
    fake_source_done(&world->member);
    fcap_store_rocksdb_close(world->db);
    world->db = NULL;
}

/* --- running ------------------------------------------------------------------------------- */

void virtual_world_step(struct virtual_world *world)
{
    struct fcap_pipeline_sizes sizes;
    if (world->retention_ms > 0) {
        move_topic(world);
    }
    world->monotonic_ms++; /* What waits for time to pass gets there while the wall stands. */
    if (fcap_pipeline_step(world->pipeline, 0) != FCAP_OK) {
        struct fcap_error error;
        fcap_store_rocksdb_last_error(world->db, &error);
        fail_msg("%s; the store's last error: %s", fcap_pipeline_error(world->pipeline),
                 error.text);
    }
    fcap_pipeline_sizes(world->pipeline, &sizes);
    if (sizes.backpressure) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); /* The writer is behind. */
    }
}

struct looking {
    struct virtual_world *world;
    int64_t now_ms;
    bool settled;
};

static void look_at_task(void *context, const struct fcap_task_report *report)
{
    struct looking *looking = context;
    looking->settled = looking->settled && report->clock_ms >= looking->now_ms &&
                       report->gate_open && !report->projecting &&
                       report->next_offset == arrived_end(looking->world, report->partition);
}

static void print_task(void *context, const struct fcap_task_report *report)
{
    (void)context;
    print_message("partition %d: T %lld, gate %d, projecting %d, next %lld, end %lld\n",
                  report->partition, (long long)report->clock_ms, report->gate_open,
                  report->projecting, (long long)report->next_offset,
                  (long long)report->end_offset);
}

bool virtual_world_is_settled(struct virtual_world *world)
{
    struct fcap_pipeline_sizes sizes;
    struct looking looking = {world, wall_ms(world), true};
    fcap_pipeline_sizes(world->pipeline, &sizes);
    fcap_pipeline_report(world->pipeline, look_at_task, &looking);
    return looking.settled && sizes.tasks == (size_t)world->partition_count &&
           sizes.push_backlog == 0 && sizes.flights == 0;
}

void virtual_world_run_to(struct virtual_world *world, int64_t now_ms)
{
    assert_true(now_ms >= world->now_ms);
    world->monotonic_ms += now_ms - world->now_ms;
    world->now_ms = now_ms;
    for (int step = 0; step < STEPS_MAX; step++) {
        virtual_world_step(world);
        if (virtual_world_is_settled(world)) {
            return;
        }
    }
    struct fcap_pipeline_sizes sizes;
    fcap_pipeline_sizes(world->pipeline, &sizes);
    fcap_pipeline_report(world->pipeline, print_task, NULL);
    fail_msg("not settled at %lld: backlog %zu, flights %zu, tasks %zu, stall %s",
             (long long)now_ms, sizes.push_backlog, sizes.flights, sizes.tasks,
             sizes.stall == NULL ? "none" : sizes.stall);
}

void virtual_world_commit(struct virtual_world *world)
{
    /* Virtual time stands still, so the deadline of a real clock is all that ends a fault. */
    if (fcap_pipeline_drain(world->pipeline, INT64_MAX) != FCAP_OK) {
        fail_msg("%s", fcap_pipeline_error(world->pipeline));
    }
}

/* --- looking ------------------------------------------------------------------------------- */

static struct fcap_bytes name_of(const char *user, const char *window, char name[NAME_MAX_BYTES])
{
    int size = snprintf(name, NAME_MAX_BYTES, "fc:{%s}:%s", user, window);
    assert_in_range(size, 1, NAME_MAX_BYTES - 1);
    return fcap_bytes_of(name);
}

const struct virtual_key *virtual_world_key(struct virtual_world *world, const char *user,
                                            const char *window)
{
    char name[NAME_MAX_BYTES];
    const struct virtual_key *key = *slot_of(world, name_of(user, window, name));
    return is_live(world, key) ? key : NULL;
}

size_t virtual_world_live_keys(const struct virtual_world *world)
{
    size_t count = 0;
    for (size_t i = 0; i < world->slot_count; i++) {
        count += is_live(world, world->slots[i]);
    }
    return count;
}

void virtual_world_plant(struct virtual_world *world, const char *user, const char *window,
                         const char *value)
{
    char name[NAME_MAX_BYTES];
    put_value(world, name_of(user, window, name),
              value == NULL ? FCAP_BYTES_NONE : fcap_bytes_of(value), INT64_MAX);
}
