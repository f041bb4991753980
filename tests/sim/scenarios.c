/* Scenarios with a purpose: each checker must notice one planted wrong key or record, or the
 * simulator would prove nothing. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

/* Only what is ready is compared in full. */
static bool is_ready(struct sim_world *world, int user)
{
    int partition = sim_partition_of(world, user);
    struct fcap_task_report report;
    return sim_report(&world->workers[world->owner[partition]], partition, &report) &&
           (report.ready_mask & 1) != 0;
}

/* A world that has run through all its phases and is at rest, with a key to spoil. */
static bool open_settled(struct sim_world *world, struct sim_score *score, int *ret_user)
{
    for (uint64_t seed = 1; seed < 60; seed++) {
        memset(world, 0, sizeof *world);
        sim_open(world, seed, NULL, score);
        bool usable = sim_run(world) && !world->plan.limit_ads;
        for (int user = 0; usable && user < world->plan.users; user++) {
            char key[64];
            struct fcap_bytes value;
            int64_t pxat;
            (void)snprintf(key, sizeof key, "fc:{u%d}:%s", user, world->settings.windows[0].name);
            if (fcap_fake_redis_get(&world->redis, fcap_bytes_of(key), &value, &pxat) &&
                is_ready(world, user)) {
                *ret_user = user;
                return true;
            }
        }
        sim_close(world);
    }
    return false;
}

static void ignore_ack(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    (void)context;
    (void)token;
    (void)result;
    (void)integer;
}

/* Another client writes over the key of the first window. */
static void spoil_key(struct sim_world *world, int user)
{
    struct fcap_fake_sink sink;
    struct fcap_sink_handler handler = {NULL, ignore_ack};
    char key[64];
    (void)snprintf(key, sizeof key, "fc:{u%d}:%s", user, world->settings.windows[0].name);
    fcap_fake_sink_open(&sink, &world->redis, &world->redis_clock.clock, "somebody else");
    (void)sink.sink.ops->poll(&sink.sink, &handler, 0); /* Connects. */
    struct fcap_push push = {
        .kind = FCAP_PUSH_SET,
        .key = fcap_bytes_of(key),
        .value = fcap_bytes_of("{\"v\":1,\"as_of\":1,\"counts\":{\"a63\":99}}"),
        .expire_at_ms = world->true_ms + world->plan.jump_ms,
    };
    (void)sink.sink.ops->push(&sink.sink, &push);
    (void)sink.sink.ops->poll(&sink.sink, &handler, 0); /* Is done. */
    fcap_fake_sink_close(&sink);
}

static void spoil_for_rest(struct sim_world *world, int user)
{
    spoil_key(world, user);
    sim_check_rest(world, SIM_CHECK_REST);
}

static void spoil_for_claims(struct sim_world *world, int user)
{
    spoil_key(world, user);
    for (int i = 0; i < world->worker_count; i++) {
        sim_check_claims(&world->workers[i]);
    }
}

/* The definition's own list loses an event that the engine has counted. */
static void spoil_record(struct sim_world *world, int user)
{
    int partition = sim_partition_of(world, user);
    struct sim_worker *worker = &world->workers[world->owner[partition]];
    const struct sim_offsets *mine = &world->by_user[partition][user];
    for (size_t i = 0; i < mine->count; i++) {
        sim_decide(sim_lineage_of(worker, partition), mine->offsets[i], SIM_REFUSED);
    }
    sim_check_state(worker, user);
}

static const struct {
    const char *name;
    void (*spoil)(struct sim_world *world, int user);
} scenarios[] = {
    {"a wrong key at rest is noticed", spoil_for_rest},
    {"a wrong key against the claims is noticed", spoil_for_claims},
    {"a wrong record is noticed", spoil_record},
};

size_t sim_scenario_count(void)
{
    return sizeof scenarios / sizeof scenarios[0];
}

const char *sim_scenario_name(size_t index)
{
    return scenarios[index].name;
}

bool sim_scenario_run(size_t index, bool trace, struct sim_score *score, char reason[1024])
{
    static struct sim_world world;
    struct sim_score own = {0}; /* Worlds that are spoilt on purpose do not count. */
    int user = 0;
    (void)trace;
    (void)score;
    if (!open_settled(&world, &own, &user)) {
        (void)snprintf(reason, 1024, "no world at rest has a key");
        return false;
    }
    scenarios[index].spoil(&world, user);
    bool noticed = world.failed;
    (void)snprintf(reason, 1024, "%s", noticed ? world.reason : "nobody noticed");
    sim_close(&world);
    return noticed;
}
