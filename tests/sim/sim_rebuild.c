/* Another hand changes keys, and an operator asks for a rebuild until one is done.
 *
 * It has a source of chance of its own, so that seeds that were kept go on meaning what they did;
 * one world in four has such hands. Keys keep their expiry: what the state has forgotten by the
 * time of the rebuild goes by itself. */
#include "sim.h"

#include "fcap/rebuild.h"

#include <stdio.h>
#include <string.h>

#define RARELY 150 /* one action in so many */

static uint64_t draw(struct sim_world *world, uint64_t bound)
{
    uint64_t mixed = world->hand_random += 0x9E3779B97F4A7C15ull; /* As in sim_draw(). */
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
    return (mixed ^ (mixed >> 31)) % bound;
}

static struct sim_worker *owner_of(struct sim_world *world, int partition)
{
    int owner = world->owner[partition];
    struct sim_worker *worker = owner < 0 ? NULL : &world->workers[owner];
    return worker != NULL && worker->open && !worker->paused && worker->tasks[partition].known
               ? worker
               : NULL;
}

/* What readers are told is there: a key of a window that is not shown yet may be anything. */
static void spoil(struct sim_world *world, int partition)
{
    struct fcap_task_report report;
    struct sim_worker *worker = owner_of(world, partition);
    size_t spoilt = 0;
    if (worker == NULL || !sim_report(worker, partition, &report) || !report.gate_open) {
        return;
    }
    for (int user = partition; user < world->plan.users; user += world->plan.partitions) {
        for (size_t i = 0; i < world->settings.window_count; i++) {
            static const char wrong[] = "{\"v\":1,\"as_of\":1,\"counts\":{\"a0\":99}}";
            char key[64];
            int size =
                snprintf(key, sizeof key, "fc:{u%d}:%s", user, world->settings.windows[i].name);
            if ((report.projected_mask >> i & 1) == 0 || draw(world, 2) == 0) {
                continue;
            }
            spoilt += fcap_fake_redis_spoil(
                &world->redis, (struct fcap_bytes){(const uint8_t *)key, (size_t)size},
                draw(world, 2) == 0 ? FCAP_BYTES_NONE : fcap_bytes_of(wrong));
        }
    }
    if (spoilt > 0) {
        sim_note(world, "another hand changes %zu keys of %d", spoilt, partition);
        world->spoilt[partition] = true;
        world->asked[partition] = 0;
    }
}

/* Asks anew whoever owns the partition: a crash may have come before the request was remembered. */
static void operate(struct sim_world *world, int partition)
{
    struct fcap_rebuild_progress progress;
    struct sim_worker *worker = owner_of(world, partition);
    if (worker == NULL || !worker->tasks[partition].started) {
        return;
    }
    uint64_t assignment = worker->tasks[partition].assignment;
    if (world->asked[partition] != assignment) {
        world->asked[partition] =
            fcap_pipeline_rebuild(worker->pipeline, partition) ? assignment : 0;
        sim_note(world, "a rebuild of %d is asked for", partition);
        return;
    }
    if (fcap_pipeline_rebuild_progress(worker->pipeline, partition, &progress) &&
        progress.gate_open && progress.windows == 0) {
        sim_note(world, "the rebuild of %d is done", partition);
        sim_count(world, SIM_EVENT_REBUILT, 1);
        world->spoilt[partition] = false;
    }
}

void sim_rebuild(struct sim_world *world)
{
    if (world->seed % 4 != 1) {
        return;
    }
    if (world->hand_random == 0) {
        world->hand_random = world->seed;
    }
    for (int p = 0; p < world->plan.partitions; p++) {
        if (!world->quiet && draw(world, RARELY) == 0) {
            spoil(world, p);
        }
        if (world->spoilt[p]) {
            operate(world, p);
        }
    }
}
