#include "demo/demo.h"

#include "demo/audit.h"
#include "demo/feed.h"
#include "demo/probe.h"
#include "demo/supervisor.h"
#include "demo/view.h"
#include "demo/world.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS    5
#define APPLIED_MS 120000
/* After the last impression: long enough for the two shorter windows to empty, short enough for
 * many keys to be left to compare; less where everything takes longer. */
#define FALL_MS (demo_windows[1].length_ms + 2000)

struct demo {
    struct demo_world world;
    struct demo_feed feed;
    struct demo_probe probe;
    struct demo_view view;
    uint64_t differ; /* in all audits */
};

/* One turn: false when the daemon has died. */
static bool tick(struct demo *demo, const char *phase, bool probes)
{
    demo_world_poll(&demo->world);
    demo_probe_step(&demo->probe, &demo->world, lab_wall_ms(), probes);
    demo_view_step(&demo->view, &demo->world, &demo->feed, &demo->probe, phase);
    lab_pause_ms(TICK_MS);
    return demo_world_is_alive(&demo->world);
}

/* Produces until `share` of the time has passed and all that was due then is sent. */
static bool produce(struct demo *demo, double share, int64_t *passed_ms, const char *phase)
{
    int64_t until_ms = (int64_t)(demo->feed.seconds * 1000 * share);
    int64_t begun_ms = lab_monotonic_ms() - *passed_ms;
    struct demo_progress progress = {.since_ms = lab_monotonic_ms()};
    do {
        *passed_ms = lab_monotonic_ms() - begun_ms;
        demo_feed_step(&demo->feed, &demo->world, *passed_ms, lab_wall_ms());
        if (!tick(demo, phase, true) ||
            !demo_world_gets_on(&demo->world, &progress, lab_monotonic_ms())) {
            return false;
        }
    } while (*passed_ms < until_ms || demo->feed.held ||
             (share >= 1 && demo->feed.sent < demo->feed.total));
    return true;
}

static bool await_applied(struct demo *demo)
{
    int64_t deadline_ms = lab_monotonic_ms() + APPLIED_MS;
    demo_world_flush(&demo->world);
    while (!demo_world_is_applied(&demo->world)) {
        if (lab_monotonic_ms() > deadline_ms) {
            demo_world_say(&demo->world, "not all is in Redis after two minutes");
            return false;
        }
        if (!tick(demo, "settling", false)) {
            return false;
        }
    }
    return true;
}

static bool compare(struct demo *demo, const char *when, struct demo_audit *audit)
{
    if (!await_applied(demo)) {
        return false;
    }
    demo_audit_run(&demo->world, audit);
    demo_probe_pause(&demo->probe);
    demo->differ += audit->differ;
    if (audit->differ > 0) {
        (void)fflush(stdout);
        (void)fprintf(stderr, "%s", audit->text);
    }
    demo_view_say(&demo->view,
                  "compared %s: %" PRIu64 " keys, %" PRIu64 " differ; %" PRIu64
                  " rightly absent; claimed to be at most %" PRId64 " ms old",
                  when, audit->keys, audit->differ, audit->absent, audit->lag_ms_max);
    if (audit->lag_ms_max > DEMO_LAG_MS) {
        (void)fflush(stdout);
        (void)fprintf(stderr,
                      "fcapd demo: partition %" PRId32 " is claimed to be %" PRId64
                      " ms old, more than %d s: its clock stands still\n",
                      audit->lag_partition, audit->lag_ms_max, DEMO_LAG_MS / 1000);
        return false;
    }
    return true;
}

static bool watch_fall(struct demo *demo)
{
    const uint64_t *keys = &demo->view.keys[DEMO_WINDOWS - 1];
    uint64_t enough = *keys / 3 * 2;
    int64_t until_ms = lab_monotonic_ms() + FALL_MS;
    while (lab_monotonic_ms() < until_ms && *keys >= enough) {
        if (!tick(demo, "falling", true)) {
            return false;
        }
    }
    return true;
}

/* A private Kafka drops old records without a word; the daemon counts what it could not read. */
static bool check_gaps(struct demo *demo)
{
    double gaps = demo_world_look(&demo->world)
                      ? daemon_process_sample(&demo->world.daemon, "fcapd_gaps_total", NULL)
                      : -1;
    if (gaps > 0) {
        (void)fprintf(stderr,
                      "fcapd demo: Kafka dropped records before they were read (%.0f gaps); a "
                      "lower --rate helps\n",
                      gaps);
    }
    return gaps == 0;
}

static bool go(struct demo *demo, struct demo_audit *audit)
{
    int64_t passed_ms = 0;
    return produce(demo, 0.5, &passed_ms, "rising") && compare(demo, "after half", audit) &&
           produce(demo, 1, &passed_ms, "rising") && compare(demo, "after the last one", audit) &&
           watch_fall(demo) && compare(demo, "while counts fall", audit) && check_gaps(demo);
}

static void sum_up(struct demo *demo)
{
    const struct demo_probe *probe = &demo->probe;
    demo_view_say(&demo->view,
                  "%" PRIu64 " records acknowledged by Kafka, %zu users; an impression counted "
                  "after %" PRId64 " ms (median; most %" PRId64 "), left %+" PRId64
                  " ms after its end (median; most %" PRId64 ")",
                  demo->world.acked, oracle_user_count(demo->world.oracle),
                  demo_measured_median(&probe->freshness), probe->freshness.max_ms,
                  demo_measured_median(&probe->lateness), probe->lateness.max_ms);
}

/* In the child of demo_supervise(), which stops whatever is left when this gives up. */
static int work(const struct demo_options *options, const struct demo_run *run)
{
    static struct demo demo;
    static struct demo_audit audit;
    if (!demo_feed_open(&demo.feed, options) || !demo_world_open(&demo.world, options, run)) {
        return 1;
    }
    demo_view_open(&demo.view, options->no_tty);
    char key[4096];
    demo_world_key(&demo.world, demo.feed.watched[0], DEMO_WINDOWS - 1, key, sizeof key);
    (void)printf("look    redis-cli -h %s -p %u GET '%s'\n", demo.world.redis_address.host,
                 demo.world.redis_address.port, key);
    (void)fflush(stdout);
    if (!go(&demo, &audit)) {
        return 1;
    }
    sum_up(&demo);
    bool is_clean = demo_world_close(&demo.world);
    demo_feed_close(&demo.feed);
    if (demo.differ > audit.differ) {
        (void)fprintf(stderr, "fcapd demo: keys differed in an earlier comparison, see above\n");
    }
    (void)printf("audit: %" PRIu64 " keys compared, %" PRIu64 " differ\n", audit.keys,
                 audit.differ);
    (void)fflush(stdout);
    return is_clean && demo.differ == 0 && audit.keys > 0 ? 0 : 1;
}

int demo_run(const struct demo_options *options)
{
    return demo_supervise(options, work);
}
