/* fcapd-bench load: one topic with seven days of events, loaded from nothing by `fcapd run` and by
 * `fcapd backfill`, in turn, on the same machine in one run. Before each, state and keys are
 * forgotten; after each, every key is compared with the definition.
 *
 * Counted is the process as a whole: from its start until everything is in Redis (run: every gate
 * open and every value acknowledged; backfill: its end). Idle is the time in which it used next to
 * no CPU: joining the group, or waiting for owners that might show themselves. */
#include "pipeline.h"

#include "lab/lab.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define DAY_S      INT64_C(86400)
#define HOUR_MS    INT64_C(3600000)
#define TICK_MS    50
#define IDLE_SHARE 0.1 /* of a tick's CPU */
#define LOAD_MS    INT64_C(3600000)
#define ROUNDS_MAX 100

struct loaded {
    const char *command;
    double wall_s;
    double idle_s;
    double cpu_s;
    double events;
    double redis_cpu_s;
    double broker_cpu_s;
};

struct results {
    struct loaded rows[2 * ROUNDS_MAX];
    size_t count;
    struct check_result check;
};

/* A process while it loads. */
struct watch {
    struct world *world;
    struct loaded *loaded;
    int64_t begun_ms;
    int64_t last_ms;
    double last_cpu_s;
    double redis_cpu_s;
    double broker_cpu_s;
};

static double cpu_of(pid_t pid)
{
    clockid_t id;
    struct timespec time;
    if (pid <= 0 || clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &time) != 0) {
        return 0;
    }
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Of children that have ended, each counted when it was waited for. */
static double children_cpu_s(void)
{
    struct rusage usage;
    lab_check(getrusage(RUSAGE_CHILDREN, &usage) == 0);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 +
           (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
}

static double broker_cpu_s(const struct world *world)
{
    return world->broker == NULL ? 0 : cpu_of(kafka_broker_pid(world->broker));
}

/* --- one load -------------------------------------------------------------------------------- */

static void begin(struct watch *watch, struct world *world, const char *command,
                  struct loaded *loaded)
{
    (void)fprintf(stderr, "fcapd-bench load: %s\n", command);
    world_forget(world);
    *loaded = (struct loaded){.command = command, .events = (double)feed_count(world->feed)};
    *watch = (struct watch){.world = world,
                            .loaded = loaded,
                            .begun_ms = lab_monotonic_ms(),
                            .redis_cpu_s = cpu_of(world->redis.pid),
                            .broker_cpu_s = broker_cpu_s(world)};
    watch->last_ms = watch->begun_ms;
    daemon_process_start_command(&world->daemon, command, NULL);
}

/* Passes a tick, and knows whether it was an idle one. */
static void tick(struct watch *watch)
{
    lab_pause_ms(TICK_MS);
    int64_t now_ms = lab_monotonic_ms();
    double passed_s = (double)(now_ms - watch->last_ms) / 1000;
    double cpu_s = cpu_of(watch->world->daemon.pid);
    if (cpu_s - watch->last_cpu_s < passed_s * IDLE_SHARE) {
        watch->loaded->idle_s += passed_s;
    }
    watch->last_ms = now_ms;
    watch->last_cpu_s = cpu_s;
    if (now_ms - watch->begun_ms > LOAD_MS) {
        lab_die("%s does not get done\n%s", watch->loaded->command,
                daemon_process_log(&watch->world->daemon));
    }
}

static void end(struct watch *watch, double cpu_s)
{
    struct loaded *loaded = watch->loaded;
    loaded->wall_s = (double)(lab_monotonic_ms() - watch->begun_ms) / 1000;
    loaded->idle_s = loaded->idle_s < loaded->wall_s ? loaded->idle_s : loaded->wall_s;
    loaded->cpu_s = cpu_s;
    loaded->redis_cpu_s = cpu_of(watch->world->redis.pid) - watch->redis_cpu_s;
    loaded->broker_cpu_s = broker_cpu_s(watch->world) - watch->broker_cpu_s;
}

/* Old events go on leaving each of the three windows, and a value that only an expiry has changed
 * waits up to 100 ms for company (docs/decisions/0010): that the backlog is empty at the moment of
 * a look may not happen for minutes. Users of half a second are as good as none. */
static double backlog_at_rest(double events)
{
    return 3 * events / (7 * (double)DAY_S) / 2 + 1;
}

static bool is_loaded(struct world *world, double events)
{
    struct reading now;
    if (!reading_take(world, &now)) {
        int code = daemon_process_wait(&world->daemon, 0);
        if (code != -1) {
            lab_die("the daemon ended with %d\n%s", code, daemon_process_log(&world->daemon));
        }
        return false;
    }
    return now.gates_open >= world->options.partitions && now.projections == 0 &&
           now.records >= events && now.push_backlog <= backlog_at_rest(events);
}

static void load_by_run(struct world *world, struct results *results)
{
    struct watch watch;
    struct loaded *loaded = &results->rows[results->count++];
    begin(&watch, world, "run", loaded);
    do {
        tick(&watch);
    } while (!is_loaded(world, loaded->events));
    end(&watch, cpu_of(world->daemon.pid));
    world_await_applied(world);
    check_all(world, 0, &results->check);
    world_stop(world);
}

/* T, as the summary says it. */
static int64_t moment_of(struct world *world)
{
    static const char before[] = " users as of ";
    const char *at = strstr(daemon_process_log(&world->daemon), before);
    const char *last = NULL;
    for (; at != NULL; at = strstr(at, before)) {
        at += strlen(before); /* Every round's summary stands there. */
        last = at;
    }
    if (last == NULL) {
        lab_die("backfill does not say its moment:\n%s", daemon_process_log(&world->daemon));
    }
    return strtoll(last, NULL, 10);
}

static void load_by_backfill(struct world *world, struct results *results)
{
    struct watch watch;
    int code;
    struct loaded *loaded = &results->rows[results->count++];
    double before_s = children_cpu_s();
    begin(&watch, world, "backfill", loaded);
    do {
        tick(&watch);
    } while ((code = daemon_process_wait(&world->daemon, 0)) == -1);
    if (code != 0) {
        lab_die("backfill ended with %d\n%s", code, daemon_process_log(&world->daemon));
    }
    end(&watch, children_cpu_s() - before_s);
    check_at(world, moment_of(world), &results->check);
}

/* --- the report ------------------------------------------------------------------------------ */

/* All loads of a command in one. */
static struct loaded sum_of(const struct results *results, const char *command)
{
    struct loaded sum = {.command = command};
    for (size_t i = 0; i < results->count; i++) {
        const struct loaded *row = &results->rows[i];
        if (strcmp(row->command, command) == 0) {
            sum.wall_s += row->wall_s;
            sum.idle_s += row->idle_s;
            sum.cpu_s += row->cpu_s;
            sum.events += row->events;
            sum.redis_cpu_s += row->redis_cpu_s;
            sum.broker_cpu_s += row->broker_cpu_s;
        }
    }
    return sum;
}

static double ratio(double dividend, double divisor)
{
    return divisor > 0 ? dividend / divisor : 0;
}

static double busy_rate(const struct loaded *row)
{
    return ratio(row->events, row->wall_s - row->idle_s);
}

static double cpu_us(const struct loaded *row)
{
    return ratio(row->cpu_s * 1e6, row->events);
}

static void print_row(const struct loaded *row)
{
    (void)printf("%-10s %9.1f %9.1f %12.0f %12.0f %9.2f %9.2f %9.2f\n", row->command, row->wall_s,
                 row->idle_s, ratio(row->events, row->wall_s), busy_rate(row), cpu_us(row),
                 ratio(row->redis_cpu_s * 1e6, row->events),
                 ratio(row->broker_cpu_s * 1e6, row->events));
}

static void print_table(const struct results *results)
{
    struct loaded run = sum_of(results, "run");
    struct loaded backfill = sum_of(results, "backfill");
    (void)printf("%-10s %9s %9s %12s %12s %9s %9s %9s\n", "", "", "of it", "events/s", "events/s",
                 "us CPU/ev", "Redis", "broker");
    (void)printf("%-10s %9s %9s %12s %12s %9s %9s %9s\n", "", "seconds", "idle", "all of it",
                 "busy", "process", "us/ev", "us/ev");
    for (size_t i = 0; i < results->count; i++) {
        print_row(&results->rows[i]);
    }
    (void)printf("backfill : run  %.2f of the busy rate, %.2f of the whole, %.2f of the CPU\n",
                 ratio(busy_rate(&backfill), busy_rate(&run)),
                 ratio(ratio(backfill.events, backfill.wall_s), ratio(run.events, run.wall_s)),
                 ratio(cpu_us(&backfill), cpu_us(&run)));
    (void)printf("keys compared: %" PRIu64 " there, %" PRIu64 " absent, %" PRIu64 " differ\n%s",
                 results->check.compared, results->check.absent, results->check.mismatches,
                 results->check.text);
}

static void json_row(const struct loaded *row, const char *name)
{
    (void)printf("\"%s_events_per_second\":%.0f,\"%s_events_per_second_busy\":%.0f,"
                 "\"%s_cpu_us_per_event\":%.3f,\"%s_seconds\":%.2f,\"%s_seconds_idle\":%.2f,"
                 "\"%s_redis_cpu_us_per_event\":%.3f,\"%s_broker_cpu_us_per_event\":%.3f,",
                 name, ratio(row->events, row->wall_s), name, busy_rate(row), name, cpu_us(row),
                 name, row->wall_s, name, row->idle_s, name,
                 ratio(row->redis_cpu_s * 1e6, row->events), name,
                 ratio(row->broker_cpu_s * 1e6, row->events));
}

static void print_json(const struct world *world, const struct results *results)
{
    struct loaded run = sum_of(results, "run");
    struct loaded backfill = sum_of(results, "backfill");
    (void)printf("{");
    json_row(&run, "run");
    json_row(&backfill, "backfill");
    (void)printf(
        "\"busy_rate_ratio\":%.3f,\"cpu_ratio\":%.3f,\"rounds\":%" PRId64
        ",\"users\":%u,\"events\":%" PRIu64 ",\"workers\":%u,\"partitions\":%" PRId32
        ",\"keys_compared\":%" PRIu64 ",\"keys_absent\":%" PRIu64 ",\"mismatches\":%" PRIu64 "}\n",
        ratio(busy_rate(&backfill), busy_rate(&run)), ratio(cpu_us(&backfill), cpu_us(&run)),
        world->options.rounds, world->options.users, feed_count(world->feed),
        world->options.workers, world->options.partitions, results->check.compared,
        results->check.absent, results->check.mismatches);
}

/* --- the run --------------------------------------------------------------------------------- */

static int verdict(const struct world *world, const struct results *results)
{
    const struct check_result *check = &results->check;
    (void)fflush(stdout);
    if (check->mismatches == 0 && check->compared >= world->options.keys_min) {
        return 0;
    }
    (void)fprintf(stderr,
                  "fcapd-bench load: the comparison failed: %" PRIu64
                  " keys compared (at least %" PRIu64 "), %" PRIu64 " differ\n",
                  check->compared, world->options.keys_min, check->mismatches);
    return 1;
}

static void run(struct world *world, struct results *results)
{
    int64_t longest_ms = world->options.windows_ms[PIPELINE_WINDOWS - 1];
    int64_t span_ms = longest_ms > 2 * HOUR_MS ? longest_ms - HOUR_MS : longest_ms / 2;
    (void)fprintf(stderr, "fcapd-bench load: %" PRIu64 " events are produced\n",
                  world->options.events);
    feed_history(world->feed, world->options.events, span_ms);
    for (int64_t i = 0; i < world->options.rounds; i++) {
        load_by_run(world, results);
        load_by_backfill(world, results);
    }
}

static int run_and_tell(struct world *world)
{
    struct results *results = calloc(1, sizeof *results);
    lab_check(results != NULL);
    run(world, results);
    print_table(results);
    if (world->options.json) {
        print_json(world, results);
    }
    int code = verdict(world, results);
    free(results);
    return code;
}

/* clang-format off */
static const struct pipeline_command command = {
    .name = "load",
    .run = run_and_tell,
    .usage =
        "usage: fcapd-bench load [options]\n"
        "  --users N            distinct users (200000)\n"
        "  --ads N              distinct ads (500)\n"
        "  --events N           events of the topic, evenly over the longest window (5000000)\n"
        "  --rounds N           how often each command loads it (2)\n"
        "  --windows A,B,C      three lengths in seconds (86400,259200,604800)\n"
        "  --partitions N       of the topic (12)\n"
        "  --workers N          of the daemon (1)\n"
        "  --value-bytes N      of an event (150)\n"
        "  --zipf S             exponent of the users (0.9)\n"
        "  --min-keys N         keys that must be there to be compared (10000)\n"
        "  --fcapd FILE         the daemon (fcapd beside this program)\n"
        "  --brokers H:P        a Kafka that runs; its topic is made and deleted (one of its own)\n"
        "  --redis H:P          a Redis that runs; its keys are removed (one of its own)\n"
        "  --dir DIR            where folders are made (TMPDIR or /tmp)\n"
        "  --json               one object on the last line\n",
    .defaults = {
        .users = 200000,
        .ads = 500,
        .events = 5000000,
        .rates = {50},
        .rate_count = 1,
        .seconds = 1,
        .rounds = 2,
        .windows_ms = {DAY_S * 1000, 3 * DAY_S * 1000, 7 * DAY_S * 1000},
        .partitions = 12,
        .workers = 1,
        .value_bytes = 150,
        .exponent = 0.9,
        .keys_min = 10000,
    },
};
/* clang-format on */

int bench_load(int argc, char **argv)
{
    return pipeline_main(&command, argc, argv);
}
