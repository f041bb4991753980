/* What a seed's world looks like: sizes, scales of time, settings, and which faults it has. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

static const unsigned usual_rates[SIM_FAULT_COUNT] = {
#define X(name, rate, text) rate,
    SIM_FAULT_LIST(X)
#undef X
};

#define SECOND 1000ll
#define MINUTE 60000ll
#define HOUR   3600000ll
#define DAY    86400000ll

/* Scales at which windows, buckets, skew, days of ads and Redis TIME + 1 s meet differently. */
static const struct scale {
    int64_t pool_ms[SIM_POOL_MAX];
    int64_t step_ms;
    int64_t jump_ms;
    int64_t skew_ms;
    int64_t slice_ms;
    int64_t session_ms;
} scales[] = {
    {{6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 3 * DAY}, 400, 5 * HOUR, 5 * MINUTE, 30 * MINUTE, 20000},
    {{HOUR, 3 * HOUR, 12 * HOUR, 30 * HOUR, 2 * DAY}, 5000, 2 * HOUR, HOUR, 10 * MINUTE, 45000},
    {{2 * SECOND, 5 * SECOND, 20 * SECOND, MINUTE, 2 * MINUTE}, 120, 8000, 700, 500, 2000},
    {{12, 40, 90, 160, 400}, 3, 60, 15, 7, 60},
};

static int64_t between(struct sim_world *world, int64_t low, int64_t high)
{
    return sim_between(world, low, high);
}

static void draw_rates(struct sim_world *world, unsigned rates[SIM_FAULT_COUNT])
{
    static const unsigned factors[] = {0, 0, 1, 1, 3};
    bool calm = sim_draw(world, 12) == 0;
    for (size_t i = 0; i < SIM_FAULT_COUNT; i++) {
        if (i != SIM_FAULT_GROW) {
            rates[i] = calm ? 0 : usual_rates[i] * factors[sim_draw(world, 5)];
        }
    }
    /* Not drawn, so that seeds from before there was this fault stay what they were; and not where
     * another hand changes keys (sim_rebuild.c). */
    rates[SIM_FAULT_GROW] =
        calm || world->seed % 5 > 1 || world->seed % 4 == 1 ? 0 : usual_rates[SIM_FAULT_GROW];
}

static void draw_settings(struct sim_world *world, const struct scale *scale)
{
    struct fcap_settings *settings = &world->settings;
    fcap_settings_default(settings);
    settings->profile = "p";
    settings->key_pattern = "fc:{%u}:%w";
    settings->future_skew_ms = scale->skew_ms;
    settings->seek_slack_ms = scale->skew_ms / 5;
    settings->producer_refresh_ms = scale->skew_ms + 4;
    static const enum fcap_start_kind starts[] = {FCAP_START_TIME,     FCAP_START_TIME,
                                                  FCAP_START_TIME,     FCAP_START_TIME,
                                                  FCAP_START_EARLIEST, FCAP_START_LATEST};
    settings->start = starts[sim_draw(world, 6)];
    settings->serve_incomplete = sim_draw(world, 4) == 0;
    settings->dedup = sim_draw(world, 4) != 0;
    settings->commit_interval_ms = between(world, 0, scale->step_ms * 12);
    settings->commit_events = (size_t)between(world, 3, 60);
    settings->commit_defer = sim_draw(world, 3) == 0 ? 0 : sim_draw(world, 11);
    int64_t shortest = scale->pool_ms[0];
    settings->bucket_ms = sim_draw(world, 3) == 0 ? between(world, 1, shortest / 16 + 1)
                                                  : between(world, shortest / 24, shortest / 4);
    settings->bucket_ms = settings->bucket_ms < 1 ? 1 : settings->bucket_ms;
    if (settings->bucket_ms * 400 < scale->jump_ms) {
        settings->bucket_ms = scale->jump_ms / 400; /* For the sake of speed only. */
    }
    settings->cache_bytes = 1 << 20;
    if (world->plan.rates[SIM_FAULT_TIGHT_CACHE] > 0) {
        settings->cache_bytes = (size_t)between(world, 800, 2500);
    }
    if (world->seed % 3 != 0) {
        settings->expiry_hold_ms = 0; /* Promptness is exact, and soon judged. */
    }
    settings->slice_ms = between(world, scale->slice_ms / 8 + 1, scale->slice_ms * 2);
    settings->session_timeout_ms = scale->session_ms;
    settings->records_per_step = (size_t)between(world, 1, 30);
    settings->work_per_step = (size_t)between(world, 600, 20000);
    settings->push_backlog_max = (size_t)between(world, 3, 100);
    if (world->plan.limit_ads) {
        settings->ads_per_user = 2;
    }
}

void sim_settings_draw(struct sim_world *world)
{
    struct sim_plan *plan = &world->plan;
    const struct scale *scale = &scales[sim_draw(world, sizeof scales / sizeof scales[0])];
    *plan = (struct sim_plan){0};
    memcpy(plan->pool_ms, scale->pool_ms, sizeof plan->pool_ms);
    plan->step_ms = scale->step_ms;
    plan->jump_ms = scale->jump_ms;
    plan->partitions = (int)between(world, 1, SIM_PARTITIONS_MAX);
    plan->processes = (int)between(world, 1, SIM_PROCESSES_MAX);
    plan->workers_each = (int)between(world, 1, SIM_WORKERS_MAX / plan->processes);
    plan->users = (int)between(world, 2, SIM_USERS_MAX);
    plan->ads = (int)between(world, 1, 5);
    plan->timestamps = sim_draw(world, 2) == 0 ? FCAP_TIMESTAMP_APPEND : FCAP_TIMESTAMP_CREATE;
    plan->timestamps_lie = plan->timestamps == FCAP_TIMESTAMP_CREATE && sim_draw(world, 3) == 0;
    plan->limit_ads = sim_draw(world, 20) == 0;
    /* Close to midnight, so that days of ads end at every scale. */
    plan->start_ms = 1700006400000ll + 20 * DAY - sim_between(world, 0, scale->jump_ms);
    plan->wall_error_ms = sim_draw(world, 2) == 0 ? 0 : 3000;
    if (plan->wall_error_ms > 0 && scale->pool_ms[0] < SECOND) {
        plan->wall_error_ms = 12;
    }
    plan->actions = (size_t)between(world, 60, 500);
    draw_rates(world, plan->rates);
    draw_settings(world, scale);
}
