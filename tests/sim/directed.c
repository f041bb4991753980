/* Directed worlds: one story each, told step by step, in which one rule of the core decides whether
 * what a reader sees is right. Without that rule the world fails, so its mutant is caught at once
 * and not by the seed that happens to tell the same story.
 *
 * They are clean on the core as it ships. Windows, clocks and owners are chosen, nothing is drawn
 * but what an unlucky command's fate asks for. */
#include "sim.h"

#include "fcap/rebuild.h"

#include <stdio.h>
#include <string.h>

#define TICK_MS    50
#define SKEW_MS    1000
#define SESSION_MS 2000
#define LENGTH_MS  60000

/* --- telling --- */

static void open_plain(struct sim_world *world, int partitions, struct sim_score *score)
{
    struct sim_plan plan = {
        .partitions = partitions,
        .processes = 2,
        .workers_each = 1,
        .users = 2,
        .ads = 5,
        .pool_ms = {LENGTH_MS, LENGTH_MS, LENGTH_MS, LENGTH_MS, LENGTH_MS},
        .step_ms = TICK_MS,
        .jump_ms = TICK_MS,
        .timestamps = FCAP_TIMESTAMP_CREATE,
        .start_ms = 1700006400000ll,
    };
    sim_open(world, 2, &plan, score);
    struct fcap_settings *settings = &world->settings;
    fcap_settings_default(settings);
    settings->profile = "p";
    settings->key_pattern = "fc:{%u}:%w";
    settings->windows[0] = (struct fcap_window){.length_ms = LENGTH_MS, .name = "w0"};
    settings->window_count = 1;
    settings->future_skew_ms = SKEW_MS;
    settings->seek_slack_ms = SKEW_MS / 5;
    settings->producer_refresh_ms = SKEW_MS + 4;
    settings->session_timeout_ms = SESSION_MS;
    settings->commit_interval_ms = 2 * TICK_MS;
    settings->commit_defer = 0;
    settings->bucket_ms = LENGTH_MS / 100;
    settings->slice_ms = LENGTH_MS;
    settings->expiry_hold_ms = 0;
    world->true_ms += LENGTH_MS; /* Nothing lies before the topic's begin. */
}

/* Every worker takes its turn again and again, for so long. */
static void serve(struct sim_world *world, int64_t ms)
{
    for (int64_t end_ms = world->true_ms + ms; world->true_ms < end_ms && !world->failed;) {
        world->step++;
        sim_coordinate(world);
        for (int i = 0; i < world->worker_count; i++) {
            sim_step_worker(world, &world->workers[i]);
        }
        sim_pass_time(world, TICK_MS);
    }
}

static void start(struct sim_world *world)
{
    for (int i = 0; i < world->plan.processes; i++) {
        sim_start_process(world, i);
    }
}

static void move(struct sim_world *world, int partition, int worker)
{
    sim_take(world, partition, false);
    world->wanted[partition] = worker;
}

/* Long enough for commits, and for the second look. */
static void rest(struct sim_world *world)
{
    serve(world, 2 * SESSION_MS);
}

static void add(struct sim_world *world, enum sim_kind kind, int user, int ad, int64_t after_ms)
{
    struct sim_record record = {.kind = kind,
                                .user = user,
                                .ad = ad,
                                .time_ms = world->true_ms + after_ms,
                                .id = ++world->next_id,
                                .timestamp_ms = world->true_ms};
    (void)sim_append(world, &record);
}

/* The same with a timestamp that lies. */
static void add_stamped(struct sim_world *world, enum sim_kind kind, int ad, int64_t after_ms,
                        int64_t stamp_ms)
{
    struct sim_record record = {.kind = kind,
                                .ad = ad,
                                .time_ms = world->true_ms + after_ms,
                                .id = ++world->next_id,
                                .timestamp_ms = world->true_ms + stamp_ms};
    (void)sim_append(world, &record);
}

static void expect_gate(struct sim_world *world, int worker, int partition)
{
    struct fcap_task_report report;
    if (world->failed || !sim_report(&world->workers[worker], partition, &report) ||
        !report.gate_open) {
        sim_fail(world, "the story goes otherwise: worker %d has not opened %d", worker, partition);
    }
}

/* All commands under way stay with the server. */
static uint32_t leave(void *context, uint32_t bound)
{
    (void)context;
    return bound - 1;
}

/* The worker is stopped in the middle of what it sends, and another one gets the partition. */
static void stop_sending(struct sim_world *world, struct sim_worker *worker, int partition)
{
    struct fcap_task_report report = {0};
    for (int i = 0; i < 100 && worker->sink.in_flight == 0 && !world->failed; i++) {
        if (sim_report(worker, partition, &report) && report.gate_open) {
            worker->sink.faults.slow_per_command = 1000; /* Nothing is done from now on. */
        }
        sim_coordinate(world);
        sim_step_worker(world, worker);
        sim_pass_time(world, TICK_MS);
    }
    worker->sink.faults.slow_per_command = 0;
    fcap_fake_draw draw = world->redis.draw;
    world->redis.draw = leave;
    world->redis.zombies = true;
    worker->paused = true;
    worker->paused_until_ms = INT64_MAX;
    fcap_fake_sink_break(&worker->sink);
    world->redis.draw = draw;
    sim_take(world, partition, true);
    if (fcap_fake_redis_abandoned(&world->redis) == 0) {
        sim_fail(world, "the story goes otherwise: nothing was under way");
    }
}

/* And the server does at last what the stopped worker had sent. */
static void work_late(struct sim_world *world)
{
    world->redis.draw = NULL; /* All of it. */
    fcap_fake_redis_step(&world->redis);
    world->redis.draw = leave;
    world->late_ms = world->monotonic_ms;
}

/* --- owners --- */

/* The counter of epochs goes back with Redis, and the next owner gets the number that the first one
 * has had. */
static void go_back_with_redis(struct sim_world *world)
{
    world->wanted[0] = 1;
    start(world);
    fcap_fake_redis_save(&world->redis);
    add(world, SIM_EVENT, 0, 0, 0);
    add(world, SIM_EVENT, 0, 1, SKEW_MS + 500); /* Refused now; not by whoever reads it later. */
    rest(world);
    expect_gate(world, 1, 0);
    fcap_fake_redis_restart(&world->redis, FCAP_FAKE_RESTART_SAVED);
    rest(world);
    move(world, 0, 0);
    rest(world);
    expect_gate(world, 0, 0);
    move(world, 0, 1);
    rest(world);
}

/* Worker 1 sleeps on a command that it has sent; worker 0 owns the partition and has shown more. */
static void take_over_from_a_sleeper(struct sim_world *world)
{
    world->wanted[0] = 1;
    start(world);
    add(world, SIM_EVENT, 0, 0, 0);
    rest(world);
    add(world, SIM_EVENT, 0, 1, 0);
    stop_sending(world, &world->workers[1], 0);
    add(world, SIM_EVENT, 0, 2, 0);
    world->wanted[0] = 0;
    serve(world, SESSION_MS / 2);
    expect_gate(world, 0, 0);
}

/* What an old owner had sent is done when the new one has shown something newer. */
static void wake_up(struct sim_world *world)
{
    take_over_from_a_sleeper(world);
    work_late(world);
}

/* The same, and the new owner is restarted before it has looked again. */
static void wake_up_after_restart(struct sim_world *world)
{
    take_over_from_a_sleeper(world);
    sim_crash(world, 0, 0);
    sim_start_process(world, 0);
    world->wanted[0] = 0;
    serve(world, SESSION_MS / 4);
    expect_gate(world, 0, 0);
    work_late(world);
}

/* The old owner was showing everything, so what it had sent is of users whom no record names. */
static void wake_up_showing_all(struct sim_world *world)
{
    world->wanted[0] = 0;
    start(world);
    add(world, SIM_EVENT, 0, 0, 0);
    serve(world, SESSION_MS);
    sim_pass_time(world, LENGTH_MS / 2);
    add(world, SIM_EVENT, 0, 1, 0);
    rest(world);
    sim_pass_time(world, LENGTH_MS / 2 - 3 * SESSION_MS - 900);
    move(world, 0, 1);
    sim_step_worker(world, &world->workers[0]); /* Gives it back. */
    stop_sending(world, &world->workers[1], 0);
    world->wanted[0] = 0;
    serve(world, SESSION_MS / 2); /* Meanwhile the first event leaves. */
    expect_gate(world, 0, 0);
    work_late(world);
}

/* Redis comes back from a copy that knows the owner's epoch, but not what was shown since, while
 * the owner is away: only its state tells that it is another one. */
static void come_back_to_another_redis(struct sim_world *world)
{
    world->wanted[0] = 0;
    start(world);
    rest(world);
    expect_gate(world, 0, 0);
    fcap_fake_redis_save(&world->redis);
    add(world, SIM_EVENT, 0, 0, 0);
    rest(world);
    sim_crash(world, 0, 0);
    fcap_fake_redis_restart(&world->redis, FCAP_FAKE_RESTART_SAVED);
    sim_start_process(world, 0);
    world->wanted[0] = 0;
    rest(world);
    expect_gate(world, 0, 0);
}

/* A clock that was ahead let a run count, and show, what the next one refuses. */
static void judge_again(struct sim_world *world)
{
    world->wanted[0] = 0;
    world->processes[0].clock.offset_ms = SKEW_MS - 100;
    world->stepped_back = true;
    start(world);
    add(world, SIM_EVENT, 0, 0, 0);
    rest(world);
    expect_gate(world, 0, 0);
    world->processes[0].closing = true; /* No commit is written any more. */
    add(world, SIM_EVENT, 0, 1, SKEW_MS + 500);
    serve(world, 3 * TICK_MS);
    sim_crash(world, 0, 0);
    world->processes[0].clock.offset_ms = 0;
    sim_start_process(world, 0);
    world->wanted[0] = 0;
    serve(world, 4 * TICK_MS); /* Soon enough to refuse it. */
}

/* A machine loses its newest commits just after timers were dropped, and retention has taken what
 * they could be made of again. */
static void lose_commits(struct sim_world *world)
{
    struct fake_store *store = world->processes[0].store;
    struct fcap_task_report report;
    world->wanted[0] = 0;
    start(world);
    add(world, SIM_EVENT, 0, 0, 2 * SESSION_MS - LENGTH_MS);
    add(world, SIM_EVENT, 0, 1, 0);
    add(world, SIM_EVENT, 1, 0, 0);
    rest(world);
    fake_topic_trim(&world->topic, 0, 2);
    for (int i = 0; i < 500 && fake_store_counts(store).timers_dropped == 0; i++) {
        serve(world, TICK_MS);
    }
    if (fake_store_counts(store).timers_dropped == 0) {
        sim_fail(world, "the story goes otherwise: nothing was dropped");
    }
    size_t unsynced = fake_store_unsynced(store);
    sim_crash(world, 0, unsynced < 5 ? unsynced : 5);
    sim_start_process(world, 0);
    world->wanted[0] = 0;
    serve(world, SESSION_MS / 2);
    expect_gate(world, 0, 0);
    if (sim_report(&world->workers[0], 0, &report) && (report.ready_mask & 1) == 0) {
        sim_fail(world, "a state was discarded that nothing can replace");
    }
}

/* --- logs --- */

/* Retention took an event that counts, and left nothing that tells when. */
static void cut_log(struct sim_world *world)
{
    world->plan.timestamps_lie = true;
    add_stamped(world, SIM_EVENT, 0, 0, -4 * LENGTH_MS);
    add_stamped(world, SIM_EVENT, 1, -2 * LENGTH_MS, -4 * LENGTH_MS);
    add(world, SIM_EVENT, 0, 2, 0);
    fake_topic_trim(&world->topic, 0, 1);
    start(world);
}

/* The same, where what is left holds no event. */
static void cut_log_to_junk(struct sim_world *world)
{
    world->plan.timestamps_lie = true;
    add_stamped(world, SIM_EVENT, 0, 0, -4 * LENGTH_MS);
    add_stamped(world, SIM_MALFORMED, 0, 0, -4 * LENGTH_MS);
    add(world, SIM_EVENT, 0, 2, 0);
    fake_topic_trim(&world->topic, 0, 1);
    start(world);
}

/* --- what goes --- */

static void expect_gone(struct sim_world *world, int user)
{
    char key[32];
    struct fcap_bytes value;
    int64_t pxat;
    (void)snprintf(key, sizeof key, "fc:{u%d}:w0", user);
    if (fcap_fake_redis_get(&world->redis, fcap_bytes_of(key), &value, &pxat)) {
        sim_fail(world, "u%d is shown, and must not be: %.*s", user, (int)value.size,
                 (const char *)value.data);
    }
}

/* The new owner holds the window back, as it knows only what is new; the old one was complete. */
static void hold_back(struct sim_world *world)
{
    world->wanted[0] = 1;
    start(world);
    add(world, SIM_EVENT, 0, 0, 0);
    rest(world);
    expect_gate(world, 1, 0);
    sim_crash(world, 0, 0);
    world->settings.start = FCAP_START_LATEST;
    sim_start_process(world, 0);
    move(world, 0, 0);
    rest(world);
    expect_gate(world, 0, 0);
}

/* What the old one has left lacks what comes, and nobody adds it. */
static void change_held_back(struct sim_world *world)
{
    hold_back(world);
    add(world, SIM_EVENT, 0, 1, 0);
    rest(world);
    expect_gone(world, 0);
}

static void erase_held_back(struct sim_world *world)
{
    hold_back(world);
    add(world, SIM_TOMBSTONE, 0, 0, 0);
    rest(world);
    expect_gone(world, 0);
}

/* By what Redis' clock told last the key has gone by itself; it is set back before it has. */
static void erase_by_clock(struct sim_world *world)
{
    world->wanted[0] = 0;
    start(world);
    add(world, SIM_EVENT, 0, 0, 0);
    rest(world);
    expect_gate(world, 0, 0);
    world->stepped_back = true;
    world->redis_clock.offset_ms -= LENGTH_MS + SESSION_MS;
    sim_pass_time(world, LENGTH_MS + SESSION_MS);
    add(world, SIM_TOMBSTONE, 0, 0, 0); /* It is read before T has moved. */
    rest(world);
    expect_gone(world, 0);
}

/* --- growth: of one partition two are made, and u1 moves to the new one --- */

static void grow(struct sim_world *world)
{
    sim_grow_to(world, 2, world->true_ms + SKEW_MS - 100);
    world->wanted[1] = 1;
}

/* The producer has learned of the new partition, or not. */
static void add_to(struct sim_world *world, int partition, enum sim_kind kind, int ad)
{
    uint64_t random;
    do {
        random = world->random;
    } while (sim_place(world, 1) != partition);
    world->random = random; /* The same once more. */
    add(world, kind, 1, ad, 0);
}

/* Where T lags as they are added, an erasure is not older than its tombstone. */
static void erase_lagging(struct sim_world *world)
{
    world->wanted[0] = 0;
    start(world);
    add(world, SIM_EVENT, 1, 0, 0);
    rest(world);
    expect_gate(world, 0, 0);
    sim_pass_time(world, 4 * SESSION_MS);
    grow(world);
    add_to(world, 0, SIM_TOMBSTONE, 0);
    rest(world);
}

/* The old partition takes away what the new one shows of a user who was erased in the old one. */
static void take_away(struct sim_world *world)
{
    world->wanted[0] = 0;
    start(world);
    add(world, SIM_EVENT, 1, 0, 0);
    rest(world);
    grow(world);
    serve(world, 2 * TICK_MS);
    add_to(world, 0, SIM_TOMBSTONE, 0);
    rest(world);
    serve(world, 2 * SESSION_MS);
    sim_pass_time(world, LENGTH_MS / 4);
    add(world, SIM_EVENT, 1, 1, 0);
    rest(world);
    (void)fcap_pipeline_rebuild(world->workers[0].pipeline, 0);
    rest(world);
    sim_pass_time(world, LENGTH_MS * 3 / 4 - 2 * SESSION_MS);
}

/* What a producer wrote that had not learned is read late, and shows a user in the old place who
 * was erased since in the new one, where the second look is over by then. */
static void settle_growth(struct sim_world *world)
{
    world->settings.session_timeout_ms = SESSION_MS / 4;
    world->wanted[0] = 0;
    start(world);
    rest(world);
    grow(world);
    serve(world, 2 * TICK_MS);
    fake_topic_hold(&world->topic, 0, 0);
    add_to(world, 0, SIM_EVENT, 0);
    add_to(world, 1, SIM_TOMBSTONE, 0);
    serve(world, SESSION_MS / 4 + 2 * TICK_MS);
    fake_topic_hold(&world->topic, 0, -1);
    rest(world);
}

/* --- all of them --- */

static const struct {
    const char *name;
    void (*tell)(struct sim_world *world);
} worlds[] = {
    {"an epoch of a Redis that went back", go_back_with_redis},
    {"an old owner's commands are done late", wake_up},
    {"and its successor was restarted", wake_up_after_restart},
    {"an old owner was showing everything", wake_up_showing_all},
    {"another Redis that continues the epochs", come_back_to_another_redis},
    {"a record is judged again", judge_again},
    {"commits lost behind timers that were dropped", lose_commits},
    {"a cut log whose timestamps lie", cut_log},
    {"a cut log that begins without an event", cut_log_to_junk},
    {"a change where the window is held back", change_held_back},
    {"an erasure where the window is held back", erase_held_back},
    {"an erasure as the clock of Redis is set back", erase_by_clock},
    {"an erasure while T lags behind a growth", erase_lagging},
    {"an erasure in the place that a user has left", take_away},
    {"an erasure that an old partition undoes", settle_growth},
};

size_t sim_directed_count(void)
{
    return sizeof worlds / sizeof worlds[0];
}

const char *sim_directed_name(size_t index)
{
    return worlds[index].name;
}

bool sim_directed_run(size_t index, bool trace, struct sim_score *score, char reason[1024])
{
    static struct sim_world world;
    memset(&world, 0, sizeof world);
    world.trace = trace;
    open_plain(&world, 1, score);
    worlds[index].tell(&world);
    if (!world.failed) {
        sim_settle(&world);
    }
    if (!world.failed) {
        sim_check_rest(&world, SIM_CHECK_REST);
        sim_check_erased(&world);
    }
    (void)snprintf(reason, 1024, "%s", world.reason);
    sim_close(&world);
    return !world.failed;
}
