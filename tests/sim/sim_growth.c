/* Partitions added to the topic: where records go then, and what may be said about keys. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

/* The last producer learns of it within less than the skew: so whoever notices the growth later
 * than that from when it happened meets no more records in old places. */
void sim_grow(struct sim_world *world)
{
    int64_t most_ms = world->settings.future_skew_ms - 4;
    int64_t learned_ms = world->true_ms + sim_between(world, 0, most_ms);
    int count = world->plan.partitions;
    count += 1 + (int)sim_draw(world, (uint64_t)(SIM_PARTITIONS_MAX - count));
    sim_grow_to(world, count, learned_ms);
}

void sim_grow_to(struct sim_world *world, int count, int64_t learned_ms)
{
    world->grown_from = world->plan.partitions;
    world->learned_ms = learned_ms;
    sim_note(world, "the topic grows from %d to %d partitions", world->plan.partitions, count);
    fake_topic_grow(&world->topic, count);
    world->plan.partitions = count;
    for (int user = 0; user < SIM_USERS_MAX; user++) {
        for (size_t i = 0; i < FCAP_WINDOWS_MAX; i++) {
            world->shown_as_of_ms[user][i] = SIM_NEVER; /* Two clocks, for a while. */
        }
    }
}

int sim_place(struct sim_world *world, int user)
{
    bool is_stale =
        world->grown_from > 0 && world->true_ms <= world->learned_ms && sim_draw(world, 2) == 0;
    sim_count(world, SIM_EVENT_STALE_PRODUCER, is_stale);
    return is_stale ? user % world->grown_from : sim_partition_of(world, user);
}

/* Every partition says that the window is ready, and its owner has counted as many partitions as
 * there are: what fc:meta asks of a reader. */
bool sim_is_certain(struct sim_world *world, size_t window)
{
    for (int p = 0; p < world->plan.partitions && world->grown_from > 0; p++) {
        struct fcap_task_report report;
        if (world->is_blind || world->owner[p] < 0 ||
            world->workers[world->owner[p]].counted < world->plan.partitions ||
            !world->workers[world->owner[p]].tasks[p].started || /* It may turn out to be blind. */
            !sim_report(&world->workers[world->owner[p]], p, &report) ||
            (report.ready_mask >> window & 1) == 0) {
            return false;
        }
    }
    return true;
}

void sim_note_blind(struct sim_worker *worker, int partition)
{
    struct sim_world *world = worker->world;
    struct fcap_task_report report;
    if (world->grown_from == 0 || partition >= world->grown_from ||
        !sim_report(worker, partition, &report)) {
        return;
    }
    for (size_t i = 0; i < report.lost.count; i++) {
        if (report.lost.spans[i].kind == FCAP_GAP_GROWN) {
            return;
        }
    }
    sim_note(world, "partition %d comes to a process that knows nothing", partition);
    world->is_blind = true;
}

/* SIM_NEVER: it is not the worker's, or knows of no growth. */
static int64_t moved_until_ms(struct sim_worker *worker, int partition)
{
    struct fcap_task_report report;
    int64_t until_ms = SIM_NEVER;
    if (sim_report(worker, partition, &report)) {
        for (size_t i = 0; i < report.lost.count; i++) {
            const struct fcap_lost_span *span = &report.lost.spans[i];
            until_ms = span->kind == FCAP_GAP_GROWN ? span->since_ms : until_ms;
        }
    }
    return until_ms;
}

/* Commands that wait for so long are done when the users' new partitions have been shown once more.
 * A real connection does not wait: redis.command_timeout ends it, and with it what it was sent. */
void sim_note_sleep(struct sim_worker *worker)
{
    struct sim_world *world = worker->world;
    const struct fcap_settings *settings = &world->settings;
    int64_t doubt_ms = settings->future_skew_ms + settings->session_timeout_ms;
    int64_t slept_ms = world->monotonic_ms - worker->stepped_ms;
    struct fcap_pipeline_sizes sizes;
    worker->stepped_ms = world->monotonic_ms;
    fcap_pipeline_sizes(worker->pipeline, &sizes);
    for (int p = 0; p < world->grown_from && slept_ms > doubt_ms && sizes.flights > 0; p++) {
        bool may_guess = world->true_ms - slept_ms + doubt_ms <= moved_until_ms(worker, p);
        world->is_blind = world->is_blind || may_guess;
    }
}

/* --- erasures --- */

/* All that is to be shown once more when producers have learned has been shown. */
static bool is_settled(struct sim_world *world)
{
    for (int p = 0; p < world->plan.partitions; p++) {
        struct fcap_task_report report;
        if (!sim_report(&world->workers[world->owner[p]], p, &report) || report.projecting ||
            report.clock_ms <= report.complete_since_ms || world->life_count[p] > 1 ||
            world->topic.logs[p].log_start > 0) {
            return false; /* Or its log may have taken the tombstone with it. */
        }
    }
    return true;
}

/* What is held back is not taken away either. */
static bool is_shown(struct sim_world *world, int user, size_t window)
{
    int partition = sim_partition_of(world, user);
    struct fcap_task_report report;
    return sim_report(&world->workers[world->owner[partition]], partition, &report) &&
           (report.projected_mask >> window & 1) != 0;
}

/* It was heard of in its new partition, which knows nothing of a tombstone that a producer sent to
 * the old one afterwards: until the windows have passed these events, it may show them. */
static bool is_met_elsewhere(const struct sim_world *world, int user)
{
    int partition = sim_partition_of(world, user);
    const struct sim_offsets *mine = &world->by_user[partition][user];
    const struct sim_record *last =
        mine->count > 0 ? &world->logs[partition].records[mine->offsets[mine->count - 1]] : NULL;
    return last != NULL && last->kind == SIM_EVENT;
}

static const struct sim_record *last_record(const struct sim_world *world, int user)
{
    const struct sim_record *last = NULL;
    for (int p = 0; p < world->plan.partitions; p++) {
        const struct sim_offsets *mine = &world->by_user[p][user];
        for (size_t i = 0; i < mine->count; i++) {
            const struct sim_record *record = &world->logs[p].records[mine->offsets[i]];
            last = last == NULL || record->serial > last->serial ? record : last;
        }
    }
    return last;
}

void sim_check_erased(struct sim_world *world)
{
    if (world->grown_from == 0 || world->is_blind || world->failed || !is_settled(world) ||
        world->settings.start == FCAP_START_LATEST) {
        return;
    }
    for (int user = 0; user < world->plan.users; user++) {
        const struct sim_record *last = last_record(world, user);
        bool is_met = is_met_elsewhere(world, user);
        for (size_t window = 0; window < world->settings.window_count; window++) {
            char key[64];
            struct fcap_bytes value;
            int64_t pxat;
            size_t size = (size_t)snprintf(key, sizeof key, "fc:{u%d}:%s", user,
                                           world->settings.windows[window].name);
            if (last != NULL && last->kind == SIM_TOMBSTONE && is_shown(world, user, window) &&
                (!is_met || sim_is_certain(world, window)) &&
                fcap_fake_redis_get(&world->redis, (struct fcap_bytes){(const uint8_t *)key, size},
                                    &value, &pxat)) {
                sim_fail(world, "erased: u%d is back in %s: %.*s", user,
                         world->settings.windows[window].name, (int)value.size,
                         (const char *)value.data);
            }
        }
    }
}
