/* Users that come and come back, the pipeline over the real store, and a checkpointer on it. */
#include "checkpoint.h"

#include "fcap/assert.h"
#include "fcap/clock_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Events of a step: few while steps are measured, as they are at such a rate. */
#define STEP_MEASURED 40
#define STEP_ELSE     1000
#define DEBT_S        0.05 /* a step that comes later than that is not made good for */
#define PARTITIONS    2
#define LONG_MS       (30ll * DAY_MS) /* nothing leaves this window */

double checkpoint_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* This clock always exists. */
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

uint64_t checkpoint_phase_events(const struct checkpoint_options *options)
{
    return options->users * 6 / 5;
}

uint64_t checkpoint_interval_events(const struct checkpoint_options *options)
{
    return options->rate * CHECKPOINT_INTERVAL_MS / 1000;
}

/* --- the history ----------------------------------------------------------------------------- */

static void draw(struct world *world, uint64_t *ret_user, uint32_t *ret_ad, int64_t *ret_time_ms)
{
    const struct checkpoint_bench *bench = (const struct checkpoint_bench *)world;
    uint64_t user = bench->visits[world->made / bench->options.ads];
    *ret_user = user;
    *ret_ad = (uint32_t)(mix(user * 1000003 + world->made % bench->options.ads) % AD_POOL);
    *ret_time_ms = world_arrival_ms(world, world->made);
}

static void add_visit(struct checkpoint_bench *bench, uint64_t user)
{
    if (bench->visit_count == bench->visit_capacity) {
        bench->visit_capacity = bench->visit_capacity * 2 + 65536;
        bench->visits = realloc(bench->visits, bench->visit_capacity * sizeof bench->visits[0]);
        FCAP_ASSERT(bench->visits != NULL);
    }
    bench->visits[bench->visit_count++] = (uint32_t)user;
    bench->world.total = bench->visit_count * bench->options.ads;
}

void checkpoint_add_new(struct checkpoint_bench *bench, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        add_visit(bench, bench->users++);
    }
}

/* From all of the state alike, and nobody again before everybody else: so what changes in an
 * interval is the same whatever there is. */
void checkpoint_add_returning(struct checkpoint_bench *bench, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        add_visit(bench, bench->cursor++ * 2654435761u % bench->users);
    }
}

void checkpoint_bench_init(struct checkpoint_bench *bench)
{
    bench->world.options = (struct options){.partitions = PARTITIONS, .step = STEP_ELSE};
    bench->world.draw = draw;
    bench->world.event_ms = 1;
    world_init_ports(&bench->world);
    fcap_store_settings_default(&bench->store_settings);
    struct fcap_store_settings *settings = &bench->store_settings;
    settings->directory = bench->state_directory;
    settings->statistics = true;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        /* Small files, and two of level 0 are compacted: there is always something new. */
        settings->families[i].write_buffer_bytes = 8 << 20;
        settings->families[i].target_file_bytes = 4 << 20;
        settings->families[i].level_base_bytes = 16 << 20;
        settings->families[i].level0_files = 2;
    }
}

/* --- opening and closing --------------------------------------------------------------------- */

static struct fcap_settings settings_of(const struct checkpoint_bench *bench)
{
    struct fcap_settings settings;
    fcap_settings_default(&settings);
    settings.window_count = 2;
    /* Events leave it as fast as they come: one comes a millisecond. */
    settings.windows[0] =
        (struct fcap_window){"short", (int64_t)checkpoint_phase_events(&bench->options)};
    settings.windows[1] = (struct fcap_window){"30d", LONG_MS};
    settings.profile = "bench";
    settings.key_pattern = "{%u}:%w";
    settings.commit_interval_ms = INT64_MAX / 4;
    settings.commit_events = CHECKPOINT_COMMIT_EVENTS; /* by events, not by time, and at once: */
    settings.commit_defer = 0; /* so it is exact what an interval has changed */
    settings.bucket_ms = settings.windows[0].length_ms / 16;
    settings.cache_bytes = 64u << 20;
    settings.records_per_step = STEP_ELSE;
    settings.work_per_step = SIZE_MAX / 2;
    settings.push_backlog_max = 1u << 20;
    return settings;
}

static void tell(void *context, enum fcap_checkpointer_level level, const char *text)
{
    (void)context;
    if (level != FCAP_CHECKPOINTER_INFO) {
        (void)fprintf(stderr, "fcapd-bench checkpoint: %s\n", text);
    }
}

static enum fcap_status open_checkpointer(struct checkpoint_bench *bench, struct running *running,
                                          int64_t snapshot_interval_ms)
{
    const struct fcap_checkpointer_settings settings = {
        .profile = "bench",
        .instance = "bench",
        .interval_ms = CHECKPOINT_INTERVAL_MS,
        .materialization_interval_ms = snapshot_interval_ms,
        .transfer_threads = 2,
        .rate_limit_bytes_per_second = bench->options.rate_limit_mib << 20,
        .retain = 2,
        .queue_bytes_max = 256u << 20,
        .clock = fcap_clock_os(),
        .tell = tell,
    };
    fcap_checkpoint_state_rocksdb_init(&running->state, running->db, &bench->store_settings);
    if (!bench->is_timed) {
        watcher_follow(&running->watcher, running);
    }
    enum fcap_status status = fcap_checkpointer_open(
        &settings, bench->objects, &running->state.state, &running->checkpointer, &bench->error);
    if (status != FCAP_OK) {
        fcap_checkpoint_state_done(&running->state.state);
        return status;
    }
    status = fcap_checkpointer_start(running->checkpointer);
    return status == FCAP_OK ? FCAP_OK : fcap_error_set(&bench->error, status, "no threads");
}

enum fcap_status checkpoint_open(struct checkpoint_bench *bench, struct running *running,
                                 int64_t snapshot_interval_ms)
{
    struct world *world = &bench->world;
    *running = (struct running){0};
    watcher_init(&running->watcher);
    enum fcap_status status =
        fcap_store_rocksdb_open(&bench->store_settings, &running->db, &bench->error);
    if (status == FCAP_OK && snapshot_interval_ms > 0) {
        status = open_checkpointer(bench, running, snapshot_interval_ms);
    }
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_settings settings = settings_of(bench);
    struct fcap_ports ports = {.clock = &world->clock.port,
                               .decoder = &world->decoder.port,
                               .source = &world->source.port,
                               .store = fcap_store_rocksdb_handle(running->db),
                               .sink = &world->sink.port};
    world->assigned = false;
    world->token_count = 0;
    world->options.step = STEP_ELSE;
    return fcap_pipeline_open(&settings, &ports, &running->pipeline, &bench->error);
}

enum fcap_status checkpoint_close(struct checkpoint_bench *bench, struct running *running,
                                  enum fcap_status status)
{
    if (running->pipeline != NULL && status == FCAP_OK) {
        status = fcap_pipeline_drain(running->pipeline, INT64_MAX); /* Virtual time stands still. */
        if (status != FCAP_OK) {
            (void)fcap_error_set(&bench->error, status, "%s",
                                 fcap_pipeline_error(running->pipeline));
        }
    }
    fcap_pipeline_close(running->pipeline);
    if (running->checkpointer != NULL) {
        enum fcap_status stopped = fcap_checkpointer_stop(running->checkpointer, 600000);
        if (stopped != FCAP_OK) {
            (void)fputs("fcapd-bench checkpoint: the checkpointer does not end\n", stderr);
            _exit(1); /* Its threads may still need everything. */
        }
        fcap_checkpointer_close(running->checkpointer);
        fcap_checkpoint_state_done(&running->state.state);
    }
    fcap_store_rocksdb_close(running->db);
    watcher_done(&running->watcher);
    return status;
}

/* --- steps ----------------------------------------------------------------------------------- */

/* Steps until some events were taken. */
static enum fcap_status step(struct checkpoint_bench *bench, struct running *running)
{
    uint64_t before = bench->world.made;
    for (;;) {
        enum fcap_status status = fcap_pipeline_step(running->pipeline, 0);
        if (status != FCAP_OK) {
            return fcap_error_set(&bench->error, status, "%s",
                                  fcap_pipeline_error(running->pipeline));
        }
        if (bench->world.made > before) {
            return FCAP_OK;
        }
        (void)usleep(100); /* The store is behind: let it work. */
    }
}

enum fcap_status checkpoint_run_all(struct checkpoint_bench *bench, struct running *running)
{
    enum fcap_status status = FCAP_OK;
    bench->world.options.step = STEP_ELSE;
    while (status == FCAP_OK && bench->world.made < bench->world.total) {
        status = step(bench, running);
    }
    return status;
}

enum fcap_status checkpoint_turn(struct checkpoint_bench *bench, struct running *running,
                                 double *due_s, double *ret_s)
{
    bench->world.options.step = STEP_MEASURED;
    while (bench->world.total < bench->world.made + STEP_MEASURED) {
        checkpoint_add_returning(bench, 100);
    }
    double begin_s = checkpoint_seconds();
    enum fcap_status status = step(bench, running);
    double end_s = checkpoint_seconds();
    *ret_s = end_s - begin_s;
    *due_s += (double)STEP_MEASURED / (double)bench->options.rate;
    if (*due_s < end_s - DEBT_S) {
        *due_s = end_s - DEBT_S;
    }
    if (*due_s > end_s) {
        (void)usleep((unsigned)((*due_s - end_s) * 1e6));
    }
    return status;
}
