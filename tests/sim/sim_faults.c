/* The faults, as data: each has a rate in 1/10000 of the moments at which it may happen. */
#include "sim.h"

#include <string.h>

static unsigned rate(const struct sim_world *world, enum sim_fault fault)
{
    return world->quiet ? 0 : world->plan.rates[fault];
}

static bool happens(struct sim_world *world, enum sim_fault fault)
{
    if (!sim_chance(world, rate(world, fault))) {
        return false;
    }
    world->score->faults[fault]++;
    return true;
}

/* --- the store --- */

struct hook {
    struct sim_world *world;
    int process;
};

static struct hook hooks[SIM_PROCESSES_MAX];

enum fake_store_fate sim_commit_fate(void *context, const struct fcap_batch *batch)
{
    const struct hook *hook = context;
    struct sim_world *world = hook->world;
    if (world->processes[hook->process].closing) {
        return FAKE_STORE_FAIL;
    }
    if (happens(world, SIM_FAULT_COMMIT_DELAY)) {
        return FAKE_STORE_DELAY;
    }
    if (happens(world, SIM_FAULT_COMMIT_FAIL)) {
        sim_note(world, "a commit fails");
        return FAKE_STORE_FAIL;
    }
    sim_check_commit(world, hook->process, batch);
    if (happens(world, SIM_FAULT_COMMIT_LIE)) {
        sim_note(world, "a commit is applied and reported failed");
        return FAKE_STORE_APPLY_AND_FAIL;
    }
    return FAKE_STORE_APPLY;
}

static enum fcap_status sync_fate(void *context)
{
    const struct hook *hook = context;
    return happens(hook->world, SIM_FAULT_SYNC_DELAY) ? FCAP_BUSY : FCAP_OK;
}

static bool lingers(void *context, uint64_t bucket_ms)
{
    const struct hook *hook = context;
    (void)bucket_ms;
    return happens(hook->world, SIM_FAULT_LINGER);
}

void sim_hooks_init(struct sim_world *world, int process)
{
    hooks[process] = (struct hook){world, process};
    world->processes[process].hooks = (struct fake_store_hooks){
        .context = &hooks[process],
        .commit = sim_commit_fate,
        .sync = sync_fate,
        .lingers = lingers,
    };
}

/* --- Redis --- */

void sim_sink_faults(struct sim_world *world, struct sim_worker *worker)
{
    worker->sink.in_flight_max = world->quiet ? 1000 : 30;
    worker->sink.faults = (struct fcap_fake_sink_faults){
        .break_per_poll = rate(world, SIM_FAULT_BREAK) / 10,
        .no_connect = rate(world, SIM_FAULT_BREAK) > 0 ? 100 : 0,
        .busy_per_push = rate(world, SIM_FAULT_SINK_BUSY) / 10,
        .refuse_per_command = rate(world, SIM_FAULT_SINK_REFUSE) / 10,
        .slow_per_command = rate(world, SIM_FAULT_SINK_SLOW) / 4,
        .late_per_ack = rate(world, SIM_FAULT_SINK_SLOW) / 4,
    };
    /* The fakes draw these themselves. */
    world->score->faults[SIM_FAULT_BREAK] += rate(world, SIM_FAULT_BREAK) > 0;
    world->score->faults[SIM_FAULT_SINK_BUSY] += rate(world, SIM_FAULT_SINK_BUSY) > 0;
    world->score->faults[SIM_FAULT_SINK_REFUSE] += rate(world, SIM_FAULT_SINK_REFUSE) > 0;
    world->score->faults[SIM_FAULT_SINK_SLOW] += rate(world, SIM_FAULT_SINK_SLOW) > 0;
    worker->sink.identity_interval_ms = world->settings.session_timeout_ms / 10;
    worker->sink.time_interval_ms = world->settings.session_timeout_ms / 20;
}

static void redis_faults(struct sim_world *world)
{
    if (happens(world, SIM_FAULT_REDIS_EMPTY)) {
        sim_note(world, "Redis restarts empty");
        fcap_fake_redis_restart(&world->redis, FCAP_FAKE_RESTART_EMPTY);
    }
    if (happens(world, SIM_FAULT_REDIS_FLUSH)) {
        sim_note(world, "FLUSHALL");
        fcap_fake_redis_flush(&world->redis);
    }
    if (world->saved_step == 0 || sim_draw(world, 60) == 0) {
        fcap_fake_redis_save(&world->redis);
        world->saved_step = world->step + 1;
    }
    bool is_old = world->step - world->saved_step > 40;
    if (happens(world, is_old ? SIM_FAULT_REDIS_OLD : SIM_FAULT_REDIS_FAILOVER)) {
        sim_note(world, "Redis goes back to a snapshot of step %zu", world->saved_step - 1);
        fcap_fake_redis_restart(&world->redis, FCAP_FAKE_RESTART_SAVED);
    }
    if (happens(world, SIM_FAULT_REDIS_DOWN)) {
        world->redis_up_ms = world->monotonic_ms + sim_between(world, 1, world->plan.step_ms * 30);
    }
    if (happens(world, SIM_FAULT_REDIS_FULL)) {
        world->redis_room_ms =
            world->monotonic_ms + sim_between(world, 1, world->plan.step_ms * 20);
    }
    if (happens(world, SIM_FAULT_REDIS_CLOCK)) {
        int64_t error = world->plan.wall_error_ms > 0 ? world->plan.wall_error_ms : 1;
        int64_t before = world->redis_clock.offset_ms;
        world->redis_clock.offset_ms = sim_between(world, -error, error);
        world->stepped_back = world->stepped_back || world->redis_clock.offset_ms < before;
        sim_note(world, "Redis' clock is off by %lld", (long long)world->redis_clock.offset_ms);
    }
}

/* --- processes --- */

static int any_process(struct sim_world *world)
{
    int process = (int)sim_draw(world, (uint64_t)world->plan.processes);
    return world->processes[process].up ? process : -1;
}

static uint64_t commits_kept(const struct sim_world *world, int process)
{
    struct fake_store_counts counts = fake_store_counts(world->processes[process].store);
    return counts.applied - counts.lost_at_crash;
}

/* Commits that are being written may still be, before the process is gone. Not injected: that the
 * machine loses what was committed before a log lost its end, as in truncate_log(). */
static void crash(struct sim_world *world, int process, bool machine)
{
    (void)fake_store_run(world->processes[process].store, sim_draw(world, 3));
    size_t unsynced = fake_store_unsynced(world->processes[process].store);
    size_t lose = machine ? sim_draw(world, (unsynced < 6 ? unsynced : 6) + 1) : 0;
    if (machine && sim_draw(world, 4) == 0) {
        lose = sim_draw(world, unsynced + 1);
    }
    uint64_t since_cut = commits_kept(world, process) - world->kept_at_cut;
    lose = world->kept_at_cut > 0 && lose > since_cut ? (size_t)since_cut : lose;
    sim_crash(world, process, lose);
    world->processes[process].up_at_ms =
        world->monotonic_ms + sim_between(world, 0, world->plan.step_ms * 20);
}

static void stop(struct sim_world *world, int process)
{
    for (int i = 0; i < world->worker_count; i++) {
        struct sim_worker *worker = &world->workers[i];
        if (worker->open && worker->process == process && !worker->paused) {
            /* What is left behind is read again. */
            enum fcap_status status = fcap_pipeline_drain(
                worker->pipeline, world->monotonic_ms + world->settings.session_timeout_ms);
            (void)status;
        }
    }
    sim_crash(world, process, 0);
}

static void process_faults(struct sim_world *world)
{
    int process = any_process(world);
    if (process >= 0 && happens(world, SIM_FAULT_CRASH)) {
        crash(world, process, false);
    } else if (process >= 0 && happens(world, SIM_FAULT_MACHINE_CRASH)) {
        crash(world, process, true);
    } else if (process >= 0 && happens(world, SIM_FAULT_STOP)) {
        stop(world, process);
    } else if (process >= 0 && happens(world, SIM_FAULT_LONG_DOWNTIME)) {
        crash(world, process, false);
        sim_pass_time(world, sim_between(world, 0, sim_longest(world) * 3 / 2));
    } else if (world->settings.start != FCAP_START_LATEST &&
               happens(world, SIM_FAULT_WINDOW_CHANGE)) {
        /* Not with kafka.start: latest, which forgets users whose keys other windows have set. */
        for (int i = 0; i < world->plan.processes; i++) {
            if (world->processes[i].up) {
                crash(world, i, false);
            }
        }
        sim_choose_windows(world);
    }
}

/* --- the group --- */

void sim_take(struct sim_world *world, int partition, bool lost)
{
    int owner = world->owner[partition];
    if (owner >= 0) {
        world->workers[owner].left = true; /* Commands in flight may be done later. */
        fake_source_revoke(&world->workers[owner].source, partition, lost);
        world->owner[partition] = -1;
    }
}

/* The worker stands still while others go on: its partitions are given away after a while, and
 * what it had in its socket may reach Redis any time until it wakes up. */
static void pause_worker(struct sim_world *world, struct sim_worker *worker)
{
    sim_note(world, "worker %d stands still", worker->index);
    worker->paused = true;
    worker->paused_until_ms =
        world->monotonic_ms + sim_between(world, 1, world->settings.session_timeout_ms * 3);
    fcap_fake_sink_break(&worker->sink);
    world->score->faults[SIM_FAULT_ABANDONED] += fcap_fake_redis_abandoned(&world->redis) > 0;
    for (int p = 0; p < world->plan.partitions; p++) {
        if (world->owner[p] == worker->index) {
            sim_take(world, p, true);
        }
    }
}

static void group_faults(struct sim_world *world)
{
    int partition = (int)sim_draw(world, (uint64_t)world->plan.partitions);
    struct sim_worker *worker = &world->workers[sim_draw(world, (uint64_t)world->worker_count)];
    if (world->owner[partition] >= 0 && happens(world, SIM_FAULT_MOVE)) {
        sim_take(world, partition, false);
    }
    if (world->owner[partition] >= 0 && happens(world, SIM_FAULT_LOSE)) {
        world->wanted[partition] = sim_draw(world, 2) == 0 ? world->owner[partition] : -1;
        sim_take(world, partition, true);
    }
    if (worker->open && !worker->paused && happens(world, SIM_FAULT_PAUSE)) {
        pause_worker(world, worker);
    }
    if (worker->open && happens(world, SIM_FAULT_MAY_NOT_SEND)) {
        worker->silent_until_ms =
            world->monotonic_ms + sim_between(world, 1, world->settings.session_timeout_ms);
    }
    if (worker->open && world->owner[partition] == worker->index &&
        happens(world, SIM_FAULT_REDELIVER)) {
        fake_source_redeliver(&worker->source, partition, sim_between(world, 1, 6));
    }
}

/* --- the topic --- */

/* Not injected: a log that begins with a marker, which hides that it was cut, and one that begins
 * with a record whose timestamp lies further back than the slack allows. */
static bool may_begin_log(const struct sim_world *world, int partition, int64_t start)
{
    const struct sim_record *records = world->logs[partition].records;
    int life = world->life_count[partition] - 1;
    const struct sim_record *first = &records[sim_noted(world, partition, life, start)];
    int64_t newest = SIM_NEVER;
    for (int64_t i = 0; i < start; i++) {
        int64_t stamp = records[sim_noted(world, partition, life, i)].timestamp_ms;
        newest = stamp > newest ? stamp : newest;
    }
    return first->kind != SIM_SKIP && newest <= first->timestamp_ms + world->settings.seek_slack_ms;
}

static void recreate(struct sim_world *world, int partition)
{
    if (sim_life_begin(world, partition, 0)) {
        sim_note(world, "the topic of %d is created anew", partition);
        sim_pass_time(world, 1);
        fake_topic_recreate(&world->topic, partition);
        world->held_until_ms[partition] = 0;
    }
}

/* All that is missing was read by a run that ended before it could commit it: the log is the same
 * below what the state covers, and nobody can tell (docs/decisions/0007). */
static bool is_untold(struct sim_worker *worker, int partition, int64_t cut)
{
    const struct sim_world *world = worker->world;
    struct fcap_task_report report;
    if (!sim_report(worker, partition, &report)) {
        return true;
    }
    int64_t noted = sim_noted(world, partition, world->life_count[partition] - 1, cut);
    return noted >= report.committed_offset && noted < world->read_next[partition];
}

/* Not what was sent to Redis and not committed: that would be two faults at once. */
static void truncate_log(struct sim_world *world, int partition)
{
    struct sim_worker *worker = &world->workers[world->owner[partition]];
    struct fcap_task_report report;
    int64_t start = world->topic.logs[partition].log_start;
    if (!worker->open || worker->paused || !sim_report(worker, partition, &report) ||
        fcap_pipeline_drain(worker->pipeline,
                            world->monotonic_ms + world->settings.session_timeout_ms) != FCAP_OK) {
        return;
    }
    int64_t end = world->topic.logs[partition].end;
    if (start >= end) {
        return;
    }
    int64_t near = end - 12 > start ? end - 12 : start; /* Mostly some commits back. */
    int64_t cut = sim_between(world, sim_draw(world, 4) == 0 ? start : near, end - 1);
    if (!is_untold(worker, partition, cut) && sim_life_begin(world, partition, cut)) {
        sim_note(world, "the log of %d ends at %lld now", partition, (long long)cut);
        sim_pass_time(world, 1);
        fake_topic_truncate(&world->topic, partition, cut);
        world->kept_at_cut = commits_kept(world, worker->process);
        world->held_until_ms[partition] = 0;
        fake_topic_hold(&world->topic, partition, -1);
    }
}

static void topic_faults(struct sim_world *world)
{
    int partition = (int)sim_draw(world, (uint64_t)world->plan.partitions);
    int64_t end = world->topic.logs[partition].end;
    if (world->held_until_ms[partition] == 0 && happens(world, SIM_FAULT_HOLD)) {
        fake_topic_hold(&world->topic, partition, end);
        world->held_until_ms[partition] =
            world->monotonic_ms + sim_between(world, 1, world->plan.step_ms * 40);
    }
    if (end > 2 && happens(world, SIM_FAULT_TRIM)) {
        int64_t start = world->topic.logs[partition].log_start;
        int64_t seen_end = fake_topic_end(&world->topic, partition); /* Never beyond. */
        start = sim_between(world, start, seen_end - 2);
        while (start < seen_end && !may_begin_log(world, partition, start)) {
            start++;
        }
        fake_topic_trim(&world->topic, partition, start);
    }
    /* Without honest times a record of the new log may be just like the old one at its place. */
    bool may_tell = end > 2 && !world->plan.timestamps_lie;
    if (may_tell && happens(world, SIM_FAULT_RECREATE)) {
        recreate(world, partition);
    }
    if (may_tell && world->plan.processes == 1 && world->owner[partition] >= 0 &&
        happens(world, SIM_FAULT_TRUNCATE)) {
        truncate_log(world, partition);
    }
    bool may_grow = world->plan.wall_error_ms == 0 && !world->plan.timestamps_lie &&
                    world->plan.partitions < SIM_PARTITIONS_MAX &&
                    world->true_ms > world->learned_ms;
    if (may_grow && happens(world, SIM_FAULT_GROW)) {
        sim_grow(world);
    }
    if (happens(world, SIM_FAULT_LETTERS_BUSY)) {
        world->letters_busy_ms =
            world->monotonic_ms + sim_between(world, 1, world->plan.step_ms * 20);
    }
}

static void clock_faults(struct sim_world *world)
{
    int64_t error = world->plan.wall_error_ms;
    struct sim_clock *clock =
        &world->processes[sim_draw(world, (uint64_t)world->plan.processes)].clock;
    if (error > 0 && happens(world, SIM_FAULT_WALL_BACK)) {
        clock->offset_ms = sim_between(world, -error, clock->offset_ms);
        world->stepped_back = true;
    }
    if (error > 0 && happens(world, SIM_FAULT_WALL_FORWARD)) {
        int64_t before = clock->offset_ms;
        clock->offset_ms = sim_between(world, before, error);
        /* A partition that moves meets another clock, which is one that was set back. */
        world->stepped_back =
            world->stepped_back || (world->plan.processes > 1 && clock->offset_ms > before);
    }
}

void sim_fault(struct sim_world *world)
{
    redis_faults(world);
    process_faults(world);
    group_faults(world);
    topic_faults(world);
    clock_faults(world);
}

/* --- spells that end --- */

static void work_abandoned(struct sim_world *world)
{
    bool overdue = world->quiet;
    for (int i = 0; i < world->worker_count; i++) {
        for (int p = 0; p < world->plan.partitions && world->workers[i].open; p++) {
            const struct sim_task *task = &world->workers[i].tasks[p];
            overdue = overdue || (task->gate_open && !task->second_seen &&
                                  world->monotonic_ms - task->gate_opened_ms >
                                      world->settings.session_timeout_ms / 2);
        }
    }
    for (int i = 0; i < world->worker_count; i++) {
        struct sim_worker *worker = &world->workers[i];
        if (overdue && worker->left && worker->open) {
            fcap_fake_sink_break(&worker->sink); /* Redis is done with them by then. */
        }
        worker->left = worker->left && worker->open && worker->sink.in_flight > 0;
        world->late_ms = worker->left ? world->monotonic_ms : world->late_ms;
    }
    while (fcap_fake_redis_abandoned(&world->redis) > 0 && (overdue || sim_draw(world, 8) == 0)) {
        fcap_fake_redis_step(&world->redis);
    }
    if (world->redis.commands_done_late > world->late_done) {
        world->late_done = world->redis.commands_done_late;
        world->late_ms = world->monotonic_ms;
        sim_note(world, "an abandoned connection has worked");
    }
}

void sim_time_faults(struct sim_world *world)
{
    world->redis.down = world->monotonic_ms < world->redis_up_ms;
    world->redis.full = world->monotonic_ms < world->redis_room_ms;
    work_abandoned(world);
    for (int i = 0; i < world->plan.processes; i++) {
        if (!world->processes[i].up && world->monotonic_ms >= world->processes[i].up_at_ms) {
            sim_start_process(world, i);
        }
    }
    for (int i = 0; i < world->worker_count; i++) {
        struct sim_worker *worker = &world->workers[i];
        if (worker->paused && world->monotonic_ms >= worker->paused_until_ms) {
            sim_note(world, "worker %d goes on", i);
            worker->paused = false;
        }
    }
    for (int p = 0; p < world->plan.partitions; p++) {
        if (world->held_until_ms[p] != 0 && world->monotonic_ms >= world->held_until_ms[p]) {
            world->held_until_ms[p] = 0;
            fake_topic_hold(&world->topic, p, -1);
        }
    }
}

void sim_end_faults(struct sim_world *world)
{
    world->quiet = true;
    world->redis_up_ms = 0;
    world->redis_room_ms = 0;
    world->letters_busy_ms = 0;
    for (int p = 0; p < world->plan.partitions; p++) {
        world->held_until_ms[p] = world->held_until_ms[p] == 0 ? 0 : 1;
    }
    for (int i = 0; i < world->plan.processes; i++) {
        world->processes[i].up_at_ms = 0;
    }
    for (int i = 0; i < world->worker_count; i++) {
        world->workers[i].paused_until_ms = 0;
        world->workers[i].silent_until_ms = 0;
        if (world->workers[i].open) {
            sim_sink_faults(world, &world->workers[i]);
        }
    }
    sim_time_faults(world);
}
