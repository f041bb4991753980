/* fcapd-bench pipeline: see pipeline.h.
 *
 * 1. The daemon starts on an empty topic and opens its gates. Then events are produced as fast as
 *    they go, up to a backlog that is kept until the end. When that has gone on for the longest
 *    window, events leave every window as fast as they come; the drained rate is what is counted a
 *    second from then on, producer, broker and Redis at work on the same cores. CPU and writes are
 *    counted from the first event until the last has left the last window.
 * 2. Fixed rates, shares of the drained one. Before half of it is measured, it has gone on for as
 *    long as the longest window, so that expiries come as fast as events.
 * 3. Every key is compared with the definition.
 * 4. The daemon is stopped, a backlog is produced, and it starts again: catch-up of closed gates,
 *    until everything has been shown. Every key is compared again. */
#include "pipeline.h"

#include "lab/lab.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_MS    50
#define DRAIN_MS   600000
#define SETTLE_MS  2000
#define WARM_MS    10000
#define BACKLOG    10      /* so much of the events the producer may be ahead: less than a window */
#define PARTS      100     /* looks at the backlog while the events are produced */
#define CLOSED_MAX 1000000 /* events of the backlog behind closed gates, at most */
#define STEP_USERS 4000    /* so many users may still wait for their push: the last step's */

/* What happened between two readings. */
struct span {
    struct reading before;
    struct reading after;
};

struct rate_row {
    uint32_t percent;
    uint64_t per_second;
    struct span span;
};

struct results {
    struct span drain; /* until everything has left */
    double drained;    /* events a second, while as many leave each window */
    struct rate_row rates[PIPELINE_RATES_MAX];
    struct span catch_up;
    double catch_up_s;
    struct check_result check;
};

static void say(const char *text)
{
    (void)fprintf(stderr, "fcapd-bench pipeline: %s\n", text);
}

static void take(struct world *world, struct reading *reading)
{
    if (!reading_take(world, reading)) {
        lab_die("the daemon is gone\n%s", daemon_process_log(&world->daemon));
    }
}

/* Since everything started; events that were counted in no window have been handled, too. */
static void await_records(struct world *world, double records, double users_waiting,
                          struct reading *reading)
{
    int64_t until_ms = lab_monotonic_ms() + DRAIN_MS;
    take(world, reading);
    while (reading->records < records || reading->push_backlog > users_waiting) {
        if (lab_monotonic_ms() > until_ms) {
            lab_die("%.0f of %.0f records after %d s\n%s", reading->records, records,
                    DRAIN_MS / 1000, daemon_process_log(&world->daemon));
        }
        lab_pause_ms(POLL_MS);
        take(world, reading);
    }
}

static void await_wall(int64_t until_ms)
{
    int64_t left_ms = until_ms - lab_wall_ms();
    if (left_ms > 0) {
        lab_pause_ms(left_ms);
    }
}

/* Adds to the backlog, and waits until there is room for more. */
static void add_backlog(struct world *world, struct reading *reading)
{
    uint64_t backlog = world->options.events / BACKLOG;
    feed_burst(world->feed, world->options.events / PARTS);
    await_records(world, (double)feed_count(world->feed) - (double)backlog, UINT32_MAX, reading);
}

static void run_drain(struct world *world, struct results *results)
{
    struct reading full;
    struct reading last;
    take(world, &results->drain.before);
    int64_t full_ms = lab_monotonic_ms() + world->options.windows_ms[PIPELINE_WINDOWS - 1];
    do {
        add_backlog(world, &full);
    } while (lab_monotonic_ms() < full_ms);
    for (int i = 0; i < PARTS; i++) {
        add_backlog(world, &last);
    }
    if (last.records >
        (double)feed_count(world->feed) - (double)world->options.events / BACKLOG / 2) {
        say("the producer was the limit: the drained rate is its own");
    }
    results->drained = (last.records - full.records) / (last.wall_s - full.wall_s);
    await_records(world, (double)feed_count(world->feed), STEP_USERS, &last);
    await_wall(feed_newest_ms(world->feed) + world->options.windows_ms[PIPELINE_WINDOWS - 1] +
               SETTLE_MS);
    take(world, &results->drain.after);
}

static void run_rate(struct world *world, struct rate_row *row, double drained)
{
    int64_t seconds_ms = world->options.seconds * 1000;
    int64_t warm_ms = row->percent == 50 ? world->options.windows_ms[PIPELINE_WINDOWS - 1] + 1000
                      : seconds_ms < WARM_MS ? seconds_ms
                                             : WARM_MS;
    row->per_second = (uint64_t)(drained * row->percent / 100);
    feed_paced(world->feed, row->per_second, warm_ms);
    take(world, &row->span.before);
    feed_paced(world->feed, row->per_second, seconds_ms);
    take(world, &row->span.after);
}

/* The longest delay of an event since the daemon started, ms. */
static int64_t longest_delay_ms(struct world *world)
{
    struct reading now;
    const struct delays none = {.count = 0};
    take(world, &now);
    return (int64_t)reading_quantile_ms(&none, &now.freshness, 1) + 1000;
}

static void run_catch_up(struct world *world, struct results *results)
{
    uint64_t events = world->options.events < CLOSED_MAX ? world->options.events : CLOSED_MAX;
    world_stop(world);
    feed_burst(world->feed, events);
    daemon_process_start(&world->daemon, NULL);
    int64_t until_ms = lab_monotonic_ms() + DRAIN_MS;
    struct reading now;
    bool begun = false;
    do {
        if (lab_monotonic_ms() > until_ms) {
            lab_die("the gates stay closed\n%s", daemon_process_log(&world->daemon));
        }
        lab_pause_ms(POLL_MS);
        if (!reading_take(world, &now)) {
            continue;
        }
        if (!begun && now.records > 0) {
            begun = true; /* Joining the group and reading the state are over. */
            results->catch_up.before = now;
        }
    } while (!begun || now.gates_open < world->options.partitions || now.projections > 0 ||
             now.records < (double)events || now.push_backlog > STEP_USERS);
    results->catch_up.after = now;
    results->catch_up_s = now.wall_s - results->catch_up.before.wall_s;
}

/* --- the report ------------------------------------------------------------------------------ */

static double us_per(double seconds, double events)
{
    return events > 0 ? seconds * 1e6 / events : 0;
}

static double events_of(const struct span *span)
{
    return span->after.records - span->before.records;
}

static double cpu_us(const struct span *span)
{
    return us_per(span->after.cpu_s - span->before.cpu_s, events_of(span));
}

static double writes_per_event(const struct span *span)
{
    return (span->after.writes - span->before.writes) / events_of(span);
}

static double expiries_per_event(const struct span *span)
{
    return (span->after.expiries - span->before.expiries) / events_of(span);
}

static const struct rate_row *half(const struct world *world, const struct results *results)
{
    size_t at = 0;
    while (at + 1 < world->options.rate_count && results->rates[at].percent != 50) {
        at++;
    }
    return &results->rates[at];
}

static void print_span(const char *name, const struct span *span, double per_second)
{
    const struct reading *a = &span->before;
    const struct reading *b = &span->after;
    (void)printf(
        "%-14s %8.0f %7.2f %6.2f %6.2f %6.2f %6.2f %7.2f %7.2f", name, per_second, cpu_us(span),
        us_per(b->threads_s[THREADS_WORKER] - a->threads_s[THREADS_WORKER], events_of(span)),
        us_per(b->threads_s[THREADS_KAFKA] - a->threads_s[THREADS_KAFKA], events_of(span)),
        us_per(b->threads_s[THREADS_STORE] - a->threads_s[THREADS_STORE], events_of(span)),
        us_per(b->threads_s[THREADS_OTHER] - a->threads_s[THREADS_OTHER], events_of(span)),
        writes_per_event(span), expiries_per_event(span));
    const struct delays *delays[2][2] = {{&a->freshness, &b->freshness},
                                         {&a->lateness, &b->lateness}};
    for (size_t i = 0; i < 2; i++) {
        (void)printf("  %5.0f %5.0f %5.0f", reading_quantile_ms(delays[i][0], delays[i][1], 0.5),
                     reading_quantile_ms(delays[i][0], delays[i][1], 0.99),
                     reading_quantile_ms(delays[i][0], delays[i][1], 0.999));
    }
    (void)printf("  %6.2f %6.2f %8.2f\n", us_per(b->redis_cpu_s - a->redis_cpu_s, events_of(span)),
                 us_per(b->broker_cpu_s - a->broker_cpu_s, events_of(span)),
                 us_per(b->feed_cpu_s - a->feed_cpu_s, events_of(span)));
}

static void print_stages(const struct span *span)
{
    for (size_t i = 0; i < span->after.stage_count; i++) {
        double before_s = i < span->before.stage_count ? span->before.stages_s[i] : 0;
        (void)printf("  worker, %-8s %6.2f us an event\n", span->after.stage_names[i],
                     us_per(span->after.stages_s[i] - before_s, events_of(span)));
    }
}

static void print_table(const struct world *world, const struct results *results)
{
    (void)printf("%-14s %8s %7s %6s %6s %6s %6s %7s %7s  %-17s  %-17s  %s\n", "", "events",
                 "daemon", "worker", "kafka", "store", "other", "writes", "expiry", "freshness ms",
                 "lateness ms", "us CPU an event");
    (void)printf("%-14s %8s %7s %27s %7s %7s  %5s %5s %5s  %5s %5s %5s  %6s %6s %8s\n", "",
                 "a second", "us/ev", "us CPU an event", "/ev", "/ev", "p50", "p99", "p99.9", "p50",
                 "p99", "p99.9", "redis", "broker", "producer");
    print_span("backlog", &results->drain, results->drained);
    for (size_t i = 0; i < world->options.rate_count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "rate %u %%", results->rates[i].percent);
        print_span(name, &results->rates[i].span, (double)results->rates[i].per_second);
    }
    print_span("gates closed", &results->catch_up,
               events_of(&results->catch_up) / results->catch_up_s);
    (void)printf("backlog:\n");
    print_stages(&results->drain);
    (void)printf("half of the drained rate:\n");
    print_stages(&half(world, results)->span);
    (void)printf("keys compared: %" PRIu64 " there, %" PRIu64 " absent, %" PRIu64 " differ\n%s",
                 results->check.compared, results->check.absent, results->check.mismatches,
                 results->check.text);
}

static void json_delays(const char *name, const struct delays *before, const struct delays *after)
{
    (void)printf(",\"%s_ms_p50\":%.0f,\"%s_ms_p99\":%.0f,\"%s_ms_p999\":%.0f", name,
                 reading_quantile_ms(before, after, 0.5), name,
                 reading_quantile_ms(before, after, 0.99), name,
                 reading_quantile_ms(before, after, 0.999));
}

static void json_span(const char *name, const struct span *span, double per_second)
{
    static const char *const groups[] = {"worker", "kafka", "store", "other"};
    (void)printf("{\"name\":\"%s\",\"events_per_second\":%.0f,\"events\":%.0f,"
                 "\"daemon_cpu_us_per_event\":%.2f,\"redis_writes_per_event\":%.3f,"
                 "\"redis_sets_per_event\":%.3f,\"expiries_per_event\":%.3f,"
                 "\"redis_cpu_us_per_event\":%.2f,\"broker_cpu_us_per_event\":%.2f,"
                 "\"producer_cpu_us_per_event\":%.2f",
                 name, per_second, events_of(span), cpu_us(span), writes_per_event(span),
                 (span->after.sets - span->before.sets) / events_of(span), expiries_per_event(span),
                 us_per(span->after.redis_cpu_s - span->before.redis_cpu_s, events_of(span)),
                 us_per(span->after.broker_cpu_s - span->before.broker_cpu_s, events_of(span)),
                 us_per(span->after.feed_cpu_s - span->before.feed_cpu_s, events_of(span)));
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        (void)printf(",\"cpu_us_%s\":%.2f", groups[i],
                     us_per(span->after.threads_s[i] - span->before.threads_s[i], events_of(span)));
    }
    for (size_t i = 0; i < span->after.stage_count; i++) {
        double before_s = i < span->before.stage_count ? span->before.stages_s[i] : 0;
        (void)printf(",\"stage_us_%s\":%.2f", span->after.stage_names[i],
                     us_per(span->after.stages_s[i] - before_s, events_of(span)));
    }
    json_delays("freshness", &span->before.freshness, &span->after.freshness);
    json_delays("expiry_lateness", &span->before.lateness, &span->after.lateness);
    (void)printf("}");
}

static void print_json(const struct world *world, const struct results *results)
{
    const struct rate_row *row = half(world, results);
    (void)printf("{\"daemon_cpu_us_per_event\":%.2f,\"events_per_second\":%.0f,"
                 "\"redis_writes_per_event\":%.3f,\"expiries_per_event\":%.3f",
                 cpu_us(&results->drain), results->drained, writes_per_event(&results->drain),
                 expiries_per_event(&results->drain));
    json_delays("freshness", &row->span.before.freshness, &row->span.after.freshness);
    json_delays("expiry_lateness", &row->span.before.lateness, &row->span.after.lateness);
    (void)printf(",\"keys_compared\":%" PRIu64 ",\"keys_absent\":%" PRIu64
                 ",\"mismatches\":%" PRIu64 ",\"users\":%u,\"events\":%" PRIu64
                 ",\"value_bytes\":%zu,\"rows\":[",
                 results->check.compared, results->check.absent, results->check.mismatches,
                 world->options.users, feed_count(world->feed), world->options.value_bytes);
    json_span("backlog", &results->drain, results->drained);
    for (size_t i = 0; i < world->options.rate_count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "rate %u%%", results->rates[i].percent);
        (void)printf(",");
        json_span(name, &results->rates[i].span, (double)results->rates[i].per_second);
    }
    (void)printf(",");
    json_span("gates closed", &results->catch_up,
              events_of(&results->catch_up) / results->catch_up_s);
    (void)printf("]}\n");
}

/* --- the run --------------------------------------------------------------------------------- */

static int verdict(const struct world *world, const struct results *results)
{
    const struct check_result *check = &results->check;
    (void)fflush(stdout);
    if (check->mismatches > 0 || check->compared < world->options.keys_min) {
        (void)fprintf(stderr,
                      "fcapd-bench pipeline: the comparison failed: %" PRIu64
                      " keys compared (at least %" PRIu64 "), %" PRIu64 " differ\n",
                      check->compared, world->options.keys_min, check->mismatches);
        return 1;
    }
    if (results->catch_up.after.underflows > 0 || half(world, results)->span.after.underflows > 0) {
        say("an expiry found nothing to subtract");
        return 1;
    }
    return 0;
}

/* Half of the drained rate comes first, while the machine is as fast as it was just now. */
static void run_rates(struct world *world, struct results *results)
{
    for (size_t i = 0; i < 2 * world->options.rate_count; i++) {
        size_t at = i % world->options.rate_count;
        if ((world->options.rates[at] == 50) == (i < world->options.rate_count)) {
            (void)fprintf(stderr, "fcapd-bench pipeline: %u %% of %.0f events a second\n",
                          world->options.rates[at], results->drained);
            results->rates[at].percent = world->options.rates[at];
            run_rate(world, &results->rates[at], results->drained);
        }
    }
}

static void run(struct world *world, struct results *results)
{
    say("the daemon starts on an empty topic");
    world_start(world);
    say("a backlog, and until all of it has left the windows");
    run_drain(world, results);
    run_rates(world, results);
    say("every key is compared");
    world_await_applied(world);
    check_all(world, longest_delay_ms(world), &results->check);
    say("a backlog behind closed gates");
    run_catch_up(world, results);
    world_await_applied(world);
    check_all(world, INT64_MAX, &results->check);
    world_stop(world);
}

static int run_and_tell(struct world *world)
{
    struct results *results = calloc(1, sizeof *results);
    lab_check(results != NULL);
    run(world, results);
    print_table(world, results);
    if (world->options.json) {
        print_json(world, results);
    }
    int code = verdict(world, results);
    free(results);
    return code;
}

static const struct pipeline_command command = {
    .name = "pipeline",
    .run = run_and_tell,
    .usage =
        "usage: fcapd-bench pipeline [options]\n"
        "  --users N            distinct users (200000)\n"
        "  --ads N              distinct ads (500)\n"
        "  --events N           events of the backlog (5000000; from 1000000 on a rate)\n"
        "  --rates P,P,...      rates, percent of the drained one; 50 is always there (25,50,75)\n"
        "  --seconds N          how long each rate is measured (30)\n"
        "  --windows A,B,C      three lengths in seconds (10,30,60)\n"
        "  --partitions N       of the topic (4)\n"
        "  --workers N          of the daemon (1)\n"
        "  --value-bytes N      of an event (150)\n"
        "  --zipf S             exponent of the users (0.9)\n"
        "  --min-keys N         keys that must be there to be compared (10000)\n"
        "  --fcapd FILE         the daemon (fcapd beside this program)\n"
        "  --brokers H:P        a Kafka that runs; its topic is made and deleted (one of its own)\n"
        "  --redis H:P          a Redis that runs; its keys are removed (one of its own)\n"
        "  --dir DIR            where folders are made (TMPDIR or /tmp)\n"
        "  --json               one object on the last line\n",
    .defaults =
        {
            .users = 200000,
            .ads = 500,
            .events = 5000000,
            .rates = {25, 50, 75},
            .rate_count = 3,
            .seconds = 30,
            .windows_ms = {10000, 30000, 60000},
            .partitions = 4,
            .workers = 1,
            .value_bytes = 150,
            .exponent = 0.9,
            .keys_min = 10000,
        },
};

int bench_pipeline(int argc, char **argv)
{
    return pipeline_main(&command, argc, argv);
}
