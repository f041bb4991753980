/* One seed: safety, liveness, rest, promptness. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define ROUNDS_MAX 20000 /* without being settled: stuck */
#define MOMENTS    5     /* due moments looked at */

/* --- safety --- */

static void act(struct sim_world *world)
{
    uint64_t kind = sim_draw(world, 100);
    if (kind < 22) {
        for (uint64_t i = 1 + sim_draw(world, 4); i > 0; i--) {
            sim_produce(world);
        }
    } else if (kind < 38) {
        sim_pass_time(world, sim_between(world, 0, world->plan.step_ms));
    } else if (kind < 40) {
        sim_pass_time(world, sim_between(world, 0, world->plan.jump_ms));
    } else {
        sim_step_worker(world, &world->workers[sim_draw(world, (uint64_t)world->worker_count)]);
    }
}

static void check_now_and_then(struct sim_world *world)
{
    struct sim_worker *worker = &world->workers[sim_draw(world, (uint64_t)world->worker_count)];
    if (!worker->open || worker->paused) {
        return;
    }
    if (sim_draw(world, 4) == 0) {
        sim_check_state(worker, (int)sim_draw(world, (uint64_t)world->plan.users));
    }
    if (sim_draw(world, 6) == 0) {
        sim_check_claims(worker);
    }
}

static void be_safe(struct sim_world *world)
{
    for (world->step = 1; world->step <= world->plan.actions && !world->failed; world->step++) {
        sim_time_faults(world);
        sim_coordinate(world);
        sim_fault(world);
        sim_rebuild(world);
        act(world);
        check_now_and_then(world);
    }
}

/* --- liveness --- */

/* Offsets without a record (transaction markers) are no reason to wait. */
static bool is_unread(const struct sim_world *world, int partition, int64_t next)
{
    for (size_t offset = (size_t)next; offset < world->logs[partition].count; offset++) {
        if (world->logs[partition].records[offset].kind != SIM_SKIP) {
            return true;
        }
    }
    return false;
}

static const char *why_not_settled(struct sim_world *world, struct sim_worker *worker)
{
    struct fcap_pipeline_sizes sizes;
    fcap_pipeline_sizes(worker->pipeline, &sizes);
    if (sizes.push_backlog > 0 || sizes.flights > 0) {
        return "values are not sent";
    }
    if (sizes.open_events > 0) {
        return "commits are not made";
    }
    struct fcap_sink_state state;
    worker->sink.sink.ops->state(&worker->sink.sink, &state);
    for (int p = 0; p < world->plan.partitions; p++) {
        struct fcap_task_report report;
        const struct sim_task *task = &worker->tasks[p];
        if (world->owner[p] != worker->index) {
            continue;
        }
        if (!task->started || !sim_report(worker, p, &report)) {
            return "a partition has no task";
        }
        if (is_unread(world, p, report.next_offset)) {
            return "records are not read";
        }
        if (report.committed_offset < report.next_offset) {
            return "commits are not written";
        }
        if (!report.gate_open) {
            return "a gate is closed";
        }
        int64_t wall = world->true_ms + world->processes[worker->process].clock.offset_ms;
        int64_t target = wall < state.time_ms + 1000 ? wall : state.time_ms + 1000;
        if (report.clock_ms < target) {
            return "T lags";
        }
        if (report.projecting || (report.ready_mask & ~report.projected_mask) != 0) {
            return "a complete projection is due";
        }
        if (!task->second_seen) {
            return "the second look is due";
        }
    }
    return NULL;
}

static const char *why_not(struct sim_world *world)
{
    for (int p = 0; p < world->plan.partitions; p++) {
        if (world->owner[p] < 0) {
            return "a partition has no owner";
        }
        if (world->spoilt[p]) {
            return "a rebuild is not done";
        }
    }
    for (int i = 0; i < world->worker_count; i++) {
        const char *why = why_not_settled(world, &world->workers[i]);
        if (why != NULL) {
            return why;
        }
    }
    return NULL;
}

static void step_all(struct sim_world *world)
{
    sim_time_faults(world);
    sim_coordinate(world);
    sim_rebuild(world);
    for (int i = 0; i < world->worker_count; i++) {
        sim_step_worker(world, &world->workers[i]);
    }
}

void sim_settle(struct sim_world *world)
{
    const char *why = "";
    sim_end_faults(world);
    for (int round = 0; round < ROUNDS_MAX && !world->failed; round++) {
        world->step++;
        step_all(world);
        why = world->failed ? "" : why_not(world);
        if (!world->failed && why == NULL && round > 3) {
            return;
        }
        sim_pass_time(world, world->settings.session_timeout_ms / 12 + 1);
    }
    for (int i = 0; i < world->worker_count && !world->failed; i++) {
        struct fcap_pipeline_sizes sizes;
        fcap_pipeline_sizes(world->workers[i].pipeline, &sizes);
        sim_note(world, "worker %d: stall %s, backlog %zu, cache %zu of %zu", i,
                 sizes.stall == NULL ? "none" : sizes.stall, sizes.push_backlog, sizes.cache_bytes,
                 world->settings.cache_bytes);
    }
    sim_fail(world, "stuck: %s", why);
}

/* --- promptness --- */

/* The soonest moment after all clocks at which some event is due in some window. */
static int64_t next_due(struct sim_world *world)
{
    int64_t due = INT64_MAX;
    for (int p = 0; p < world->plan.partitions; p++) {
        struct fcap_task_report report;
        if (!sim_report(&world->workers[world->owner[p]], p, &report)) {
            continue;
        }
        for (size_t i = 0; i < world->logs[p].count; i++) {
            const struct sim_record *record = &world->logs[p].records[i];
            for (size_t w = 0; w < world->settings.window_count; w++) {
                int64_t moment = record->time_ms + world->settings.windows[w].length_ms;
                bool ahead = record->kind == SIM_EVENT && moment > report.clock_ms + 1 &&
                             moment > world->true_ms + 1;
                due = ahead && moment < due ? moment : due;
            }
        }
    }
    return due;
}

/* A cache full of changed records makes T wait for the next commit. */
static bool is_full(struct sim_world *world)
{
    for (int i = 0; i < world->worker_count; i++) {
        struct fcap_pipeline_sizes sizes;
        fcap_pipeline_sizes(world->workers[i].pipeline, &sizes);
        if (sizes.cache_bytes > world->settings.cache_bytes + 16384) { /* Slots apart. */
            return true;
        }
    }
    return false;
}

/* False: it cannot be judged. */
static bool go_to(struct sim_world *world, int64_t moment)
{
    sim_pass_time(world, moment - world->true_ms);
    /* Time stands still, so an expiry that is held back stays open. */
    int steps = world->settings.expiry_hold_ms > 0 ? 100 : 400;
    for (int i = 0; i < steps && !world->failed; i++) {
        step_all(world);
        if (i >= 3 && why_not(world) == NULL) {
            break;
        }
    }
    if (is_full(world)) {
        return false;
    }
    for (int p = 0; p < world->plan.partitions && !world->failed; p++) {
        struct fcap_task_report report;
        if (sim_report(&world->workers[world->owner[p]], p, &report) && report.clock_ms != moment) {
            sim_fail(world, "prompt: T of %d is +%lld, the clocks say +%lld", p,
                     (long long)(report.clock_ms - world->plan.start_ms),
                     (long long)(moment - world->plan.start_ms));
        }
    }
    return true;
}

/* All clocks agree now; T of every task must have been passed by them. */
static void align_clocks(struct sim_world *world)
{
    int64_t latest = world->true_ms;
    for (int p = 0; p < world->plan.partitions; p++) {
        struct fcap_task_report report;
        if (sim_report(&world->workers[world->owner[p]], p, &report) && report.clock_ms > latest) {
            latest = report.clock_ms;
        }
    }
    for (int i = 0; i < SIM_PROCESSES_MAX; i++) {
        world->processes[i].clock.offset_ms = 0;
    }
    world->redis_clock.offset_ms = 0;
    sim_pass_time(world, latest - world->true_ms + world->settings.session_timeout_ms);
    sim_settle(world);
}

static void be_prompt(struct sim_world *world)
{
    align_clocks(world);
    if (world->failed) {
        return;
    }
    sim_check_rest(world, SIM_CHECK_REST);
    sim_check_erased(world);
    bool waited = false;
    int64_t judged_from_ms = SIM_NEVER;
    for (int i = 0; i < MOMENTS && !world->failed; i++) {
        int64_t due = next_due(world);
        if (due == INT64_MAX) {
            return;
        }
        for (int64_t moment = due - 1; moment <= due + 1 && !world->failed; moment++) {
            world->step++;
            sim_note(world, "moment +%lld", (long long)(moment - world->plan.start_ms));
            if (!go_to(world, moment)) {
                waited = true;
                continue;
            }
            /* What T passes late is held back from then on. */
            judged_from_ms = waited ? moment + world->settings.expiry_hold_ms : judged_from_ms;
            waited = false;
            if (moment >= judged_from_ms) {
                sim_check_rest(world, SIM_CHECK_PROMPT);
            }
        }
    }
}

/* --- all of it --- */

/* After a restart the same must be there again, without help from memory. */
static void restart_and_settle(struct sim_world *world)
{
    for (int i = 0; i < world->plan.processes; i++) {
        sim_crash(world, i, 0);
    }
    sim_settle(world);
    if (!world->failed) {
        sim_check_rest(world, SIM_CHECK_REST);
    }
}

bool sim_run(struct sim_world *world)
{
    be_safe(world);
    if (!world->failed) {
        sim_settle(world);
    }
    if (!world->failed) {
        sim_check_rest(world, SIM_CHECK_REST);
    }
    if (!world->failed) {
        be_prompt(world);
    }
    if (!world->failed) {
        restart_and_settle(world);
    }
    world->score->seeds++;
    return !world->failed;
}
