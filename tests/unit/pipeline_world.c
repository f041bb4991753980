#include "unit/pipeline_world.h"

#include "fcap/assert.h"

struct pipeline_world world;

static int64_t now_ms(struct fcap_clock *clock)
{
    (void)clock;
    world.now_ms += world.tick_ms;
    return world.now_ms;
}

static int64_t wall_ms(struct fcap_clock *clock)
{
    return now_ms(clock) + world.wall_ahead_ms;
}

void pipeline_world_init(int32_t partitions)
{
    world = (struct pipeline_world){.clock = {wall_ms, now_ms},
                                    .server_clock = {now_ms, now_ms},
                                    .now_ms = PIPELINE_WORLD_NOW_MS};
    fake_topic_init(&world.topic, partitions);
    world.store = fake_store_open(&world.store_hooks);
    fcap_fake_redis_init(&world.redis, &world.server_clock);
}

void pipeline_world_done(void)
{
    pipeline_world_kill();
    fcap_fake_redis_done(&world.redis);
    fake_store_close(world.store);
    fake_topic_done(&world.topic);
}

int pipeline_world_setup(void **unused)
{
    (void)unused;
    pipeline_world_init(1);
    return 0;
}

int pipeline_world_teardown(void **unused)
{
    (void)unused;
    pipeline_world_done();
    return 0;
}

void pipeline_world_settings(struct fcap_settings *settings)
{
    fcap_settings_default(settings);
    settings->profile = "test";
    settings->key_pattern = "fc:{%u}:%w";
    settings->window_count = 1;
    settings->windows[0] = (struct fcap_window){"1h", PIPELINE_WORLD_HOUR_MS};
}

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    *ret_event = (struct fcap_event){.user = record->key,
                                     .ad = record->value,
                                     .is_tombstone = record->value.data == NULL,
                                     .time_ms = record->timestamp_ms};
    return FCAP_REJECT_NONE;
}

struct fcap_decoder pipeline_world_decoder = {decode};

void pipeline_world_start(const struct fcap_settings *settings, struct fcap_decoder *decoder)
{
    struct fcap_error error;
    fake_source_init(&world.source, &world.topic);
    world.source.decoder = decoder;
    fcap_fake_sink_open(&world.sink, &world.redis, &world.clock, "fcapd:test:i:0");
    struct fcap_ports ports = {.clock = &world.clock,
                               .decoder = decoder,
                               .source = &world.source.port,
                               .store = fake_store_handle(world.store),
                               .sink = &world.sink.sink};
    FCAP_ASSERT(fcap_pipeline_open(settings, &ports, &world.pipeline, &error) == FCAP_OK);
    for (int32_t i = 0; i < world.topic.partition_count; i++) {
        fake_source_assign(&world.source, i);
    }
}

enum fcap_status pipeline_world_rest(int steps_max)
{
    struct fcap_pipeline_sizes sizes;
    int quiet = 0;
    for (int i = 0; i < steps_max && quiet < 50; i++) {
        enum fcap_status status = fcap_pipeline_step(world.pipeline, 0);
        if (status != FCAP_OK) {
            return status;
        }
        fcap_pipeline_sizes(world.pipeline, &sizes);
        quiet = sizes.push_backlog == 0 && sizes.flights == 0 ? quiet + 1 : 0;
    }
    return quiet == 50 ? FCAP_OK : FCAP_TIMEOUT;
}

void pipeline_world_kill(void)
{
    if (world.pipeline != NULL) {
        fcap_pipeline_close(world.pipeline);
        world.pipeline = NULL;
        fcap_fake_sink_close(&world.sink);
        fake_source_done(&world.source);
        fake_store_crash(world.store, 0);
    }
}

void pipeline_world_add(int32_t partition, const char *key, const char *value, int64_t time_ms)
{
    (void)fake_topic_append(&world.topic, partition, fcap_bytes_of(key),
                            value == NULL ? FCAP_BYTES_NONE : fcap_bytes_of(value), time_ms,
                            FCAP_TIMESTAMP_APPEND);
}
