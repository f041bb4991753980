#include "source_contract.h"

#include "lib/fake_source.h"

static struct fake_topic topic;
static struct fake_source source;

static void create(struct source_world *world, int32_t partitions)
{
    (void)world;
    fake_topic_init(&topic, partitions);
}

static void append(struct source_world *world, int32_t partition, struct fcap_bytes key,
                   struct fcap_bytes value, int64_t timestamp_ms)
{
    (void)world;
    (void)fake_topic_append(&topic, partition, key, value, timestamp_ms, FCAP_TIMESTAMP_CREATE);
}

static void settle(struct source_world *world)
{
    (void)world; /* Everything is there at once. */
}

static void append_aborted(struct source_world *world, int32_t partition, int count)
{
    (void)world;
    for (int i = 0; i <= count; i++) {
        fake_topic_skip(&topic, partition);
    }
}

static void trim(struct source_world *world, int32_t partition, int64_t log_start)
{
    (void)world;
    fake_topic_trim(&topic, partition, log_start);
}

static void recreate(struct source_world *world, int32_t partitions)
{
    (void)world;
    for (int32_t i = 0; i < partitions; i++) {
        fake_topic_recreate(&topic, i);
    }
}

static struct fcap_source *open_source(struct source_world *world)
{
    fake_source_init(&source, &topic);
    source.decoder = world->decoder;
    source.lookup_polls = 2;
    for (int32_t i = 0; i < topic.partition_count; i++) {
        fake_source_assign(&source, i);
    }
    return &source.port;
}

static void close_source(struct source_world *world, const struct fcap_source_handler *handler)
{
    (void)world;
    for (int32_t i = 0; i < topic.partition_count; i++) {
        fake_source_revoke(&source, i, false);
    }
    (void)source.port.ops->poll(&source.port, handler, (struct fcap_source_budget){0});
    fake_source_done(&source);
}

static void destroy(struct source_world *world)
{
    (void)world;
    fake_topic_done(&topic);
}

int main(void)
{
    struct source_world world = {.name = "the fake",
                                 .has_times = true,
                                 .can_trim = true,
                                 .create = create,
                                 .append = append,
                                 .settle = settle,
                                 .append_aborted = append_aborted,
                                 .trim = trim,
                                 .recreate = recreate,
                                 .open = open_source,
                                 .close = close_source,
                                 .destroy = destroy};
    return source_contract_run(&world);
}
