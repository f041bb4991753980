/* fcapd-bench engine: generator -> core -> RocksDB, and a sink that takes every value.
 *
 * Virtual time: 14 days of events, windows 1d/3d/7d; the last 7 days are measured. One thread
 * generates and runs the pipeline; RocksDB's own threads write, flush and compact. At the end the
 * database is closed and opened again (so that it is measured and compared as a restart finds it),
 * and sampled users are compared with a recount from the list of their events. */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

const int64_t engine_lengths_ms[WINDOWS] = {DAY_MS, 3 * DAY_MS, 7 * DAY_MS};
static const char *const names[WINDOWS] = {"1d", "3d", "7d"};

/* --- measuring --- */

struct reading {
    double wall_s;
    double process_s;
    double thread_s;
    uint64_t written_bytes;
    uint64_t events;
};

static double seconds_of(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now); /* These clocks always exist. */
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct reading read_now(const struct world *world, struct fcap_store_rocksdb *db,
                               struct fcap_store_metrics *metrics)
{
    fcap_store_rocksdb_metrics(db, metrics);
    return (struct reading){
        .wall_s = seconds_of(CLOCK_MONOTONIC),
        .process_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID),
        .thread_s = seconds_of(CLOCK_THREAD_CPUTIME_ID),
        .written_bytes =
            metrics->wal_bytes + metrics->flush_bytes + metrics->compaction_write_bytes,
        .events = world->made,
    };
}

static uint64_t peak_rss_bytes(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage); /* Cannot fail for the process itself. */
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* --- the run --- */

static struct fcap_settings settings_of(const struct options *options)
{
    struct fcap_settings settings;
    fcap_settings_default(&settings);
    settings.window_count = WINDOWS;
    for (size_t i = 0; i < WINDOWS; i++) {
        settings.windows[i].length_ms = engine_lengths_ms[i];
        memcpy(settings.windows[i].name, names[i], 3);
    }
    settings.profile = "bench";
    settings.key_pattern = "{%u}:%w";
    settings.commit_interval_ms = INT64_MAX / 4;
    settings.commit_events = options->commit_events;
    settings.commit_defer = options->defer;
    settings.bucket_ms = DAY_MS / 16;
    settings.cache_bytes = options->cache_mib << 20;
    settings.records_per_step = options->step;
    settings.work_per_step = SIZE_MAX / 2;
    settings.slice_ms = DAY_MS / 16;
    settings.session_timeout_ms = 60000;
    settings.push_backlog_max = 1u << 20;
    return settings;
}

static enum fcap_status open_all(struct world *world, struct fcap_store_rocksdb **ret_db,
                                 struct fcap_pipeline **ret_pipeline, struct fcap_error *error)
{
    struct fcap_store_settings store_settings;
    fcap_store_settings_default(&store_settings);
    store_settings.directory = world->options.directory;
    store_settings.statistics = true;
    store_settings.wal = world->options.wal;
    bool has_syncs = world->options.wal && world->options.sync_ms > 0; /* As in the daemon. */
    store_settings.sync = has_syncs ? FCAP_STORE_SYNC_INTERVAL : FCAP_STORE_SYNC_NEVER;
    store_settings.sync_interval_ms = (int64_t)world->options.sync_ms;
    enum fcap_status status = fcap_store_rocksdb_open(&store_settings, ret_db, error);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_settings settings = settings_of(&world->options);
    struct fcap_ports ports = {.clock = &world->clock.port,
                               .decoder = &world->decoder.port,
                               .source = &world->source.port,
                               .store = fcap_store_rocksdb_handle(*ret_db),
                               .sink = &world->sink.port};
    world->assigned = false;
    return fcap_pipeline_open(&settings, &ports, ret_pipeline, error);
}

static enum fcap_status run_until(struct world *world, struct fcap_pipeline *pipeline,
                                  uint64_t made)
{
    enum fcap_status status = FCAP_OK;
    while (status == FCAP_OK && world->made < made) {
        status = fcap_pipeline_step(pipeline, 0);
        if (fcap_pipeline_counters(pipeline)->backpressure_steps > 0) {
            struct fcap_pipeline_sizes sizes;
            fcap_pipeline_sizes(pipeline, &sizes);
            if (sizes.backpressure) {
                (void)usleep(200); /* The writer is behind: let it work. */
            }
        }
    }
    return status;
}

struct result {
    struct reading begin;
    struct reading end;
    struct fcap_store_metrics before;
    struct fcap_store_metrics after;
    struct fcap_store_metrics reopened;
    struct verdict verdict;
    struct fcap_counters counters;
    struct fcap_pipeline_sizes sizes;
    uint64_t retained;
    uint64_t rss_bytes;
    double restart_s;
};

static enum fcap_status run_engine(struct world *world, struct result *result,
                                   struct fcap_error *error)
{
    struct fcap_store_rocksdb *db = NULL;
    struct fcap_pipeline *pipeline = NULL;
    enum fcap_status status = open_all(world, &db, &pipeline, error);
    if (status == FCAP_OK) {
        status = run_until(world, pipeline, world->total / 2);
        result->begin = read_now(world, db, &result->before);
    }
    if (status == FCAP_OK) {
        status = run_until(world, pipeline, world->total);
        result->end = read_now(world, db, &result->after);
    }
    if (status == FCAP_OK) {
        status = fcap_pipeline_step(pipeline, 0);
        fcap_pipeline_sizes(pipeline, &result->sizes);
        result->counters = *fcap_pipeline_counters(pipeline);
        result->rss_bytes = peak_rss_bytes();
    }
    if (status != FCAP_OK && pipeline != NULL) {
        (void)fcap_error_set(error, status, "%s", fcap_pipeline_error(pipeline));
    }
    if (status == FCAP_OK) {
        /* Virtual time stands still, so this deadline never comes. */
        status = fcap_pipeline_drain(pipeline, INT64_MAX);
    }
    fcap_pipeline_close(pipeline);
    fcap_store_rocksdb_close(db);
    return status;
}

/* Opens again what the run left and compares. */
static enum fcap_status check_engine(struct world *world, struct result *result,
                                     struct fcap_error *error)
{
    struct fcap_store_rocksdb *db = NULL;
    struct fcap_pipeline *pipeline = NULL;
    double begin_s = seconds_of(CLOCK_MONOTONIC);
    enum fcap_status status = open_all(world, &db, &pipeline, error);
    if (status == FCAP_OK) {
        status = fcap_pipeline_step(pipeline, 0);
        result->restart_s = seconds_of(CLOCK_MONOTONIC) - begin_s;
        fcap_store_rocksdb_metrics(db, &result->reopened);
    }
    if (status == FCAP_OK) {
        result->verdict = samples_compare(world, pipeline);
    }
    if (status != FCAP_OK && pipeline != NULL) {
        (void)fcap_error_set(error, status, "%s", fcap_pipeline_error(pipeline));
    }
    fcap_pipeline_close(pipeline);
    fcap_store_rocksdb_close(db);
    return status;
}

struct line {
    const char *name;
    double value;
    int digits;
};

static void print_lines(const struct line *lines, size_t count, bool json)
{
    for (size_t i = 0; i < count; i++) {
        (void)printf("%-36s %14.*f\n", lines[i].name, lines[i].digits, lines[i].value);
    }
    for (size_t i = 0; json && i < count; i++) {
        (void)printf("%s\"%s\":%.*f%s", i == 0 ? "{" : ",", lines[i].name, lines[i].digits,
                     lines[i].value, i + 1 == count ? "}\n" : "");
    }
}

static void print_result(const struct world *world, const struct result *result)
{
    double events = (double)(result->end.events - result->begin.events);
    double wall_s = result->end.wall_s - result->begin.wall_s;
    uint64_t stored = 0;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        stored += result->reopened.live_bytes[i];
    }
    const struct fcap_store_metrics *a = &result->before;
    const struct fcap_store_metrics *b = &result->after;
    const struct line lines[] = {
        {"users", (double)world->options.users, 0},
        {"events", events, 0},
        {"events_retained", (double)result->retained, 0},
        {"events_per_second", events / wall_s, 0},
        {"cpu_us_per_event", 1e6 * (result->end.process_s - result->begin.process_s) / events, 2},
        {"cpu_us_per_event_engine_thread",
         1e6 * (result->end.thread_s - result->begin.thread_s) / events, 2},
        {"bytes_written_per_event",
         (double)(result->end.written_bytes - result->begin.written_bytes) / events, 1},
        {"bytes_wal_per_event", (double)(b->wal_bytes - a->wal_bytes) / events, 1},
        {"bytes_flush_per_event", (double)(b->flush_bytes - a->flush_bytes) / events, 1},
        {"bytes_compaction_per_event",
         (double)(b->compaction_write_bytes - a->compaction_write_bytes) / events, 1},
        {"bytes_stored_per_retained_event", (double)stored / (double)result->retained, 1},
        {"bytes_stored_users", (double)result->reopened.live_bytes[FCAP_FAMILY_USERS], 0},
        {"bytes_stored_timers", (double)result->reopened.live_bytes[FCAP_FAMILY_TIMERS], 0},
        {"rss_bytes", (double)result->rss_bytes, 0},
        {"cache_bytes", (double)result->sizes.cache_bytes, 0},
        {"cache_users", (double)result->sizes.cache_users, 0},
        {"cache_misses", (double)result->counters.cache_misses, 0},
        {"commits", (double)result->counters.commits, 0},
        {"records_written", (double)result->counters.commit_users, 0},
        {"values_pushed", (double)world->pushes, 0},
        {"value_bytes_pushed", (double)world->push_bytes, 0},
        {"expiries", (double)result->counters.expiries, 0},
        {"underflows", (double)result->counters.underflows, 0},
        {"reopen_seconds", result->restart_s, 2},
        {"users_compared", (double)result->verdict.users_compared, 0},
        {"keys_present", (double)result->verdict.nonempty, 0},
        {"mismatches", (double)result->verdict.mismatches, 0},
    };
    print_lines(lines, sizeof lines / sizeof lines[0], world->options.json);
}

static int run(struct world *world)
{
    struct result result = {0};
    struct fcap_error error = {{0}};
    char directory[] = "/tmp/fcapd-bench-XXXXXX";
    bool own = world->options.directory == NULL;
    if (own) {
        world->options.directory = mkdtemp(directory);
    }
    if (world->options.directory == NULL) {
        (void)fputs("fcapd-bench engine: /tmp: no temporary directory can be made\n", stderr);
        return 1;
    }
    char state[4096];
    (void)snprintf(state, sizeof state, "%s/state", world->options.directory); /* Cut: refused. */
    world->options.directory = state;
    enum fcap_status status = run_engine(world, &result, &error);
    status = status == FCAP_OK ? check_engine(world, &result, &error) : status;
    if (own) {
        bench_remove_tree(directory);
    }
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd-bench engine: %s\n", error.text);
        return 1;
    }
    result.retained = samples_retained(world);
    print_result(world, &result);
    bool enough = result.verdict.users_compared >= 1000 && result.verdict.nonempty >= 1000;
    if (!enough || result.verdict.mismatches > 0 || result.counters.underflows > 0) {
        (void)fputs("fcapd-bench engine: the comparison failed\n", stderr);
        return 1;
    }
    return 0;
}

int bench_engine(int argc, char **argv)
{
    struct world *world = calloc(1, sizeof *world);
    if (!options_parse(argc, argv, &world->options)) {
        free(world);
        return 2;
    }
    world_init(world);
    int code = run(world);
    world_free(world);
    return code;
}
