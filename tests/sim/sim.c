/* See sim.h: chance, time, processes, and who owns which partition. */
#include "sim.h"

#include "fcap/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Clocks stand still in a step, but for one that reads them again and again: it waits. */
#define READS_MAX 40

uint64_t sim_draw(struct sim_world *world, uint64_t bound)
{
    /* SplitMix64 (Steele, Lea, Flood, 2014). */
    uint64_t mixed = world->random += 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
    mixed ^= mixed >> 31;
    return bound == 0 ? 0 : mixed % bound;
}

bool sim_chance(struct sim_world *world, unsigned per_10000)
{
    return per_10000 > 0 && sim_draw(world, 10000) < per_10000;
}

int64_t sim_between(struct sim_world *world, int64_t low, int64_t high)
{
    return high <= low ? low : low + (int64_t)sim_draw(world, (uint64_t)(high - low) + 1);
}

void sim_fail(struct sim_world *world, const char *format, ...)
{
    if (world->failed) {
        return; /* The first reason says most. */
    }
    world->failed = true;
    size_t used = (size_t)snprintf(world->reason, sizeof world->reason, "step %zu: ", world->step);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(world->reason + used, sizeof world->reason - used, format, arguments);
    va_end(arguments);
    sim_note(world, "FAILED: %s", world->reason);
}

void sim_note(struct sim_world *world, const char *format, ...)
{
    if (!world->trace) {
        return;
    }
    (void)printf("%5zu +%lld ", world->step, (long long)(world->true_ms - world->plan.start_ms));
    va_list arguments;
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    (void)printf("\n");
    (void)fflush(stdout); /* An assertion may come next. */
}

void sim_count(struct sim_world *world, enum sim_event event, uint64_t amount)
{
    world->score->events[event] += amount;
}

int64_t sim_longest(const struct sim_world *world)
{
    int64_t longest = 0;
    for (size_t i = 0; i < world->settings.window_count; i++) {
        int64_t length = world->settings.windows[i].length_ms;
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* --- time --- */

static void note_read(struct sim_clock *clock)
{
    if (++clock->reads > READS_MAX) {
        int64_t ms = clock->world->settings.session_timeout_ms / 64 + 1;
        sim_pass_time(clock->world, ms);
        clock->passed_ms += ms;
    }
}

static int64_t wall_ms(struct fcap_clock *base)
{
    struct sim_clock *clock = (struct sim_clock *)base;
    note_read(clock);
    clock->told_ms = clock->world->true_ms + clock->offset_ms;
    return clock->told_ms;
}

static int64_t monotonic_ms(struct fcap_clock *base)
{
    struct sim_clock *clock = (struct sim_clock *)base;
    note_read(clock);
    return clock->world->monotonic_ms;
}

/* The server's own clock: reading it never lets time pass. */
static int64_t redis_wall_ms(struct fcap_clock *base)
{
    struct sim_clock *clock = (struct sim_clock *)base;
    int64_t now = clock->world->true_ms + clock->offset_ms;
    if (now > clock->world->redis_latest_ms) {
        clock->world->redis_latest_ms = now; /* What has expired then does not come back. */
    }
    return now;
}

void sim_pass_time(struct sim_world *world, int64_t ms)
{
    world->true_ms += ms;
    world->monotonic_ms += ms;
}

static uint32_t draw_for_redis(void *context, uint32_t bound)
{
    return (uint32_t)sim_draw(context, bound);
}

/* --- life --- */

static void init_clocks(struct sim_world *world)
{
    int64_t error = world->plan.wall_error_ms;
    world->true_ms = world->plan.start_ms;
    world->monotonic_ms = 1000000;
    world->redis_clock = (struct sim_clock){{redis_wall_ms, redis_wall_ms}, world};
    world->redis_clock.offset_ms = sim_between(world, -error, error);
    for (int i = 0; i < SIM_PROCESSES_MAX; i++) {
        struct sim_process *process = &world->processes[i];
        process->clock = (struct sim_clock){{wall_ms, monotonic_ms}, world};
        process->clock.offset_ms = sim_between(world, -error, error);
        if (process->clock.offset_ms != world->processes[0].clock.offset_ms) {
            world->stepped_back = true; /* A partition that moves meets another clock. */
        }
    }
}

void sim_open(struct sim_world *world, uint64_t seed, const struct sim_plan *plan,
              struct sim_score *score)
{
    bool trace = world->trace;
    *world = (struct sim_world){.seed = seed, .random = seed, .trace = trace, .score = score};
    sim_settings_draw(world);
    if (plan != NULL) {
        world->plan = *plan;
    }
    sim_choose_windows(world);
    init_clocks(world);
    sim_note(world, "%d partitions, %d x %d workers, %d users; defer %llu, bucket %lld, slice %lld",
             world->plan.partitions, world->plan.processes, world->plan.workers_each,
             world->plan.users, (unsigned long long)world->settings.commit_defer,
             (long long)world->settings.bucket_ms, (long long)world->settings.slice_ms);
    fake_topic_init(&world->topic, world->plan.partitions);
    fcap_fake_redis_init(&world->redis, &world->redis_clock.clock);
    world->redis.draw = draw_for_redis;
    world->redis.draw_context = world;
    world->redis.zombies = world->plan.rates[SIM_FAULT_ABANDONED] > 0;
    score->faults[SIM_FAULT_TIGHT_CACHE] += world->plan.rates[SIM_FAULT_TIGHT_CACHE] > 0;
    world->worker_count = world->plan.processes * world->plan.workers_each;
    for (int p = 0; p < SIM_PARTITIONS_MAX; p++) {
        world->owner[p] = -1;
        world->wanted[p] = -1;
    }
    for (int i = 0; i < world->worker_count; i++) {
        world->workers[i].world = world;
        world->workers[i].index = i;
        world->workers[i].process = i / world->plan.workers_each;
    }
    for (int i = 0; i < world->plan.processes; i++) {
        sim_hooks_init(world, i);
        world->processes[i].store = fake_store_open(&world->processes[i].hooks);
        for (int p = 0; p < SIM_PARTITIONS_MAX; p++) {
            world->processes[i].lineages[p].partition = p;
        }
    }
}

void sim_close(struct sim_world *world)
{
    for (int i = 0; i < world->plan.processes; i++) {
        if (world->processes[i].up) {
            sim_crash(world, i, 0);
        }
        fake_store_close(world->processes[i].store);
        for (int p = 0; p < SIM_PARTITIONS_MAX; p++) {
            sim_life_forget(&world->processes[i].lineages[p]);
            free(world->processes[i].lineages[p].decisions);
        }
    }
    fcap_fake_redis_done(&world->redis);
    fake_topic_done(&world->topic);
    for (int p = 0; p < SIM_PARTITIONS_MAX; p++) {
        free(world->logs[p].records);
    }
    sim_life_done(world);
    for (int p = 0; p < SIM_PARTITIONS_MAX; p++) {
        for (int i = 0; i < SIM_USERS_MAX; i++) {
            free(world->by_user[p][i].offsets);
        }
    }
}

static void name_window(struct sim_world *world, size_t index, size_t slot, unsigned style)
{
    struct fcap_window *window = &world->settings.windows[index];
    static const char *const styles[] = {"w%zu", "x%zu", "slot%zu"};
    (void)snprintf(window->name, sizeof window->name, styles[style], style == 2 ? index : slot);
}

/* One to three windows of the pool, in any order; names follow the length, or the place. */
void sim_choose_windows(struct sim_world *world)
{
    size_t count = 1 + sim_draw(world, 3);
    unsigned style = sim_draw(world, 5) < 3 ? 0 : 1 + (unsigned)sim_draw(world, 2);
    size_t slots[SIM_POOL_MAX] = {0, 1, 2, 3, 4};
    for (size_t i = 0; i < count; i++) {
        size_t other = i + sim_draw(world, SIM_POOL_MAX - i);
        size_t slot = slots[other];
        slots[other] = slots[i];
        slots[i] = slot;
        world->settings.windows[i].length_ms = world->plan.pool_ms[slot];
        name_window(world, i, slot, style);
        sim_note(world, "window %s of %lld ms", world->settings.windows[i].name,
                 (long long)world->plan.pool_ms[slot]);
    }
    world->settings.window_count = count;
    /* In some worlds somebody wants longer windows at once; no draw, which would change worlds. */
    world->settings.replay_from_kafka =
        world->seed % 4 == 1 && world->settings.start != FCAP_START_LATEST;
    for (size_t user = 0; user < SIM_USERS_MAX; user++) {
        for (size_t i = 0; i < FCAP_WINDOWS_MAX; i++) {
            world->shown_as_of_ms[user][i] = SIM_NEVER;
        }
    }
}

static void start_worker(struct sim_world *world, struct sim_worker *worker)
{
    struct sim_process *process = &world->processes[worker->process];
    char name[64];
    (void)snprintf(name, sizeof name, "fcapd:p:host%d:%d", worker->process, worker->index);
    fake_source_init(&worker->source, &world->topic);
    worker->source.decoder = sim_decoder();
    worker->source.turn_records = (size_t)sim_between(world, 1, 5);
    fcap_fake_sink_open(&worker->sink, &world->redis, &process->clock.clock, name);
    sim_sink_faults(world, worker);
    sim_ports_init(worker);
    struct fcap_ports ports = {
        .clock = &process->clock.clock,
        .decoder = sim_decoder(),
        .source = &worker->source_port,
        .dead_letters = &worker->letters.letters,
        .store = fake_store_handle(process->store),
        .sink = &worker->sink_port.port,
    };
    struct fcap_error error = {0};
    enum fcap_status status =
        fcap_pipeline_open(&world->settings, &ports, &worker->pipeline, &error);
    if (status != FCAP_OK) {
        sim_fail(world, "a pipeline does not open: %s", error.text);
        return;
    }
    worker->open = true;
    worker->paused = false;
    worker->left = false;
    worker->counted = 0;
    worker->silent_until_ms = 0;
    worker->seen = (struct fcap_counters){0};
    worker->users_seen = 0;
    memset(worker->tasks, 0, sizeof worker->tasks);
}

void sim_start_process(struct sim_world *world, int index)
{
    sim_note(world, "process %d starts", index);
    world->processes[index].up = true;
    world->processes[index].closing = false;
    world->processes[index].clock.reads = 0;
    for (int i = 0; i < world->worker_count; i++) {
        if (world->workers[i].process == index) {
            start_worker(world, &world->workers[i]);
        }
    }
}

static void end_worker(struct sim_world *world, struct sim_worker *worker)
{
    struct fcap_pipeline_sizes sizes;
    if (!worker->open) {
        return;
    }
    fcap_pipeline_sizes(worker->pipeline, &sizes);
    sim_count(world, SIM_EVENT_CRASH_BEFORE_COMMIT,
              sizes.commits_in_flight > 0 && sizes.flights == 0 && sizes.push_backlog == 0);
    fcap_pipeline_close(worker->pipeline);
    fcap_fake_sink_close(&worker->sink);
    fake_source_done(&worker->source);
    worker->pipeline = NULL;
    worker->open = false;
    for (int p = 0; p < world->plan.partitions; p++) {
        world->owner[p] = world->owner[p] == worker->index ? -1 : world->owner[p];
    }
}

void sim_crash(struct sim_world *world, int index, size_t lose)
{
    struct sim_process *process = &world->processes[index];
    sim_note(world, "process %d ends, %zu commits lost", index, lose);
    process->closing = true;
    for (int i = 0; i < world->worker_count; i++) {
        if (world->workers[i].process == index) {
            end_worker(world, &world->workers[i]);
        }
    }
    fake_store_crash(process->store, lose);
    process->up = false;
    process->up_at_ms = world->monotonic_ms;
}

/* --- who owns what --- */

static bool is_idle(const struct sim_world *world, int worker)
{
    return worker >= 0 && world->workers[worker].open && !world->workers[worker].paused;
}

static int choose_worker(struct sim_world *world)
{
    int first = (int)sim_draw(world, (uint64_t)world->worker_count);
    for (int i = 0; i < world->worker_count; i++) {
        int worker = (first + i) % world->worker_count;
        if (is_idle(world, worker)) {
            return worker;
        }
    }
    return -1;
}

void sim_coordinate(struct sim_world *world)
{
    for (int p = 0; p < world->plan.partitions; p++) {
        int owner = world->owner[p];
        if (owner >= 0) {
            continue;
        }
        /* A cooperative move waits until the old owner has given the partition back. */
        bool held = false;
        for (int i = 0; i < world->worker_count; i++) {
            const struct sim_worker *worker = &world->workers[i];
            bool lost = false;
            for (size_t r = 0; worker->open && r < worker->source.revoking_count; r++) {
                lost = lost || (worker->source.revoking[r] == p && worker->source.revoking_lost[r]);
            }
            held = held || (worker->open && !lost && fake_source_owns(&worker->source, p));
        }
        if (held) {
            continue;
        }
        int next = is_idle(world, world->wanted[p]) ? world->wanted[p] : choose_worker(world);
        if (next >= 0) {
            sim_note(world, "partition %d goes to worker %d", p, next);
            world->owner[p] = next;
            world->wanted[p] = -1;
            world->workers[next].source.lookup_polls =
                sim_chance(world, world->plan.rates[SIM_FAULT_SLOW_LOOKUP] * 10) ? 3 : 0;
            world->score->faults[SIM_FAULT_SLOW_LOOKUP] +=
                world->workers[next].source.lookup_polls > 0;
            fake_source_assign(&world->workers[next].source, p);
        }
    }
}

/* --- one step --- */

static void sum_counters(struct sim_world *world, struct sim_worker *worker)
{
    const struct fcap_counters *now = fcap_pipeline_counters(worker->pipeline);
    struct fcap_counters *seen = &worker->seen;
    static const enum fcap_reject rejects[] = {FCAP_REJECT_LATE,        FCAP_REJECT_DUPLICATE,
                                               FCAP_REJECT_REDELIVERED, FCAP_REJECT_FUTURE,
                                               FCAP_REJECT_JSON,        FCAP_REJECT_ADS_LIMIT};
    static const enum sim_event events[] = {SIM_EVENT_LATE,        SIM_EVENT_DUPLICATE,
                                            SIM_EVENT_REDELIVERED, SIM_EVENT_FUTURE,
                                            SIM_EVENT_MALFORMED,   SIM_EVENT_ADS_LIMIT};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        sim_count(world, events[i], now->rejects[rejects[i]] - seen->rejects[rejects[i]]);
    }
    sim_count(world, SIM_EVENT_UNKNOWN_ACK, now->acks_unknown - seen->acks_unknown);
    sim_count(world, SIM_EVENT_REFUSED_ACK, now->acks_refused - seen->acks_refused);
    sim_count(world, SIM_EVENT_BACKPRESSURE, now->backpressure_steps - seen->backpressure_steps);
    sim_count(world, SIM_EVENT_FULL_PROJECTION, now->full_projections - seen->full_projections);
    sim_count(world, SIM_EVENT_BUILT, now->built - seen->built);
    sim_count(world, SIM_EVENT_REDO, now->redo_events - seen->redo_events);
    sim_count(world, SIM_EVENT_TOMBSTONE, now->tombstones - seen->tombstones);
    for (int kind = 0; kind < FCAP_GAP_SHORT_HISTORY; kind++) {
        sim_count(world, SIM_EVENT_GAP, now->gaps[kind] - seen->gaps[kind]);
    }
    if (now->underflows != 0) {
        sim_fail(world, "an expiry found nothing to subtract");
    }
    *seen = *now;
    struct fcap_pipeline_sizes sizes;
    fcap_pipeline_sizes(worker->pipeline, &sizes);
    sim_count(world, SIM_EVENT_EVICTION,
              sizes.cache_users < worker->users_seen ? worker->users_seen - sizes.cache_users : 0);
    worker->users_seen = sizes.cache_users;
}

static void watch_tasks(struct sim_world *world, struct sim_worker *worker)
{
    for (int p = 0; p < world->plan.partitions; p++) {
        struct sim_task *task = &worker->tasks[p];
        struct fcap_task_report report;
        if (!task->known || !sim_report(worker, p, &report)) {
            continue;
        }
        sim_count(world, SIM_EVENT_CLOCK_HELD, report.clock_held);
        if (report.gate_open) {
            sim_note_gate(worker, p);
        }
        if (task->gate_open && !task->second_seen &&
            world->monotonic_ms >= task->gate_opened_ms + world->settings.session_timeout_ms) {
            task->second_seen = true;
            sim_count(world, SIM_EVENT_SECOND_LOOK, 1);
        }
    }
}

static void sum_store(struct sim_world *world, struct sim_process *process)
{
    struct fake_store_counts now = fake_store_counts(process->store);
    sim_count(world, SIM_EVENT_REFUSED_SECTIONS,
              now.sections_refused - process->seen.sections_refused);
    sim_count(world, SIM_EVENT_DROPPED, now.timers_dropped - process->seen.timers_dropped);
    sim_count(world, SIM_EVENT_LOST_COMMITS, now.lost_at_crash - process->seen.lost_at_crash);
    process->seen = now;
}

void sim_step_worker(struct sim_world *world, struct sim_worker *worker)
{
    struct sim_process *process = &world->processes[worker->process];
    if (!worker->open || worker->paused || world->failed) {
        return;
    }
    process->clock.reads = 0;
    process->clock.passed_ms = 0;
    sim_note_sleep(worker);
    worker->source.send_allowed = world->monotonic_ms >= worker->silent_until_ms;
    struct fcap_sink_state state;
    worker->sink.sink.ops->state(&worker->sink.sink, &state);
    sim_count(world, SIM_EVENT_TIME_UNKNOWN, !state.time_known);
    enum fcap_status status = fcap_pipeline_step(worker->pipeline, 0);
    world->score->steps++;
    if (status == FCAP_CONFIG) {
        sim_note(world, "%s", fcap_pipeline_error(worker->pipeline));
        sim_count(world, SIM_EVENT_AGAIN_REFUSED, 1);
        world->settings.replay_from_kafka = false; /* Somebody reads that, and starts it so. */
        sim_crash(world, worker->process, 0);
        return;
    }
    if (fcap_status_class(status) == FCAP_CLASS_FATAL) {
        sim_fail(world, "worker %d failed: %s", worker->index,
                 fcap_pipeline_error(worker->pipeline));
    }
    sum_counters(world, worker);
    sum_store(world, process);
    watch_tasks(world, worker);
}
