/* Keys at rest, compared by the simulator's own definition and by the tests' oracle. */
#include "lab/oracle.h"
#include "lab/oracle_check.h"
#include "sim.h"

#include <stdio.h>
#include <string.h>

/* The topic of one partition as one process has read it, for the oracle. */
static struct oracle *fill_oracle(struct sim_world *world, struct sim_worker *worker, int partition)
{
    struct oracle *oracle = oracle_open();
    const struct sim_lineage *lineage = sim_lineage_of(worker, partition);
    const struct sim_log *log = &world->logs[partition];
    for (size_t offset = 0; offset < log->count; offset++) {
        const struct sim_record *record = &log->records[offset];
        char user[8];
        char ad[8];
        char id[16];
        sim_user_name(record->user, user);
        (void)snprintf(ad, sizeof ad, "a%d", record->ad);
        (void)snprintf(id, sizeof id, "%u", record->id);
        bool unread = (int64_t)offset < lineage->start;
        uint8_t decision = offset < lineage->capacity ? lineage->decisions[offset] : SIM_ACCEPTED;
        bool is_out = unread && decision < SIM_UNREAD ? !sim_is_missed(world, lineage, record)
                                                      : decision != SIM_ACCEPTED;
        struct oracle_event event = {partition, (int64_t)offset, user,
                                     ad,        record->time_ms, world->settings.dedup ? id : NULL};
        if (record->kind == SIM_TOMBSTONE && decision < SIM_UNREAD) {
            (void)oracle_tombstone(oracle, partition, (int64_t)offset, user);
        } else if (record->kind != SIM_EVENT || is_out) {
            (void)oracle_skip(oracle, partition, (int64_t)offset);
        } else {
            (void)oracle_add(oracle, &event);
        }
    }
    return oracle;
}

struct rest {
    struct sim_world *world;
    struct sim_worker *worker;
    struct oracle *oracle;
    const struct sim_lineage *lineage;
    struct oracle_tally tally;
    const struct fcap_task_report *report;
    int64_t hold_ms; /* so long an expiry may be held back now */
};

static void check_one(struct rest *rest, int user, size_t window)
{
    struct sim_world *world = rest->world;
    char key[64];
    char name[8];
    int64_t length = world->settings.windows[window].length_ms;
    size_t size = (size_t)snprintf(key, sizeof key, "fc:{u%d}:%s", user,
                                   world->settings.windows[window].name);
    struct fcap_bytes value = FCAP_BYTES_NONE;
    int64_t pxat = 0;
    bool present = fcap_fake_redis_get(
        &world->redis, (struct fcap_bytes){(const uint8_t *)key, size}, &value, &pxat);
    sim_user_name(user, name);
    struct oracle_query query = {
        .user = name, .window_ms = length, .at_ms = rest->report->clock_ms};
    int64_t newest;
    bool any =
        oracle_newest(rest->oracle, &query, &newest) && newest > rest->report->clock_ms - length;
    if (!present && any && newest + length - 1 < world->redis_latest_ms) {
        return; /* Gone by the server's clock, which is ahead. */
    }
    struct sim_moment now = {rest->report->clock_ms - length, rest->report->next_offset};
    if (present && !any && sim_life_is_stray(world, user, rest->lineage, pxat, &now)) {
        return;
    }
    if (present && !any && pxat < world->redis_latest_ms) {
        return; /* It had been gone by Redis' clock, which was set back since. */
    }
    if (present && !any &&
        (sim_is_refused(rest->worker, user, window, pxat) ||
         sim_is_renamed(world, user, rest->lineage, window, pxat))) {
        return;
    }
    struct oracle_expectation expectation = {
        .user = name,
        .window_ms = length,
        .at_min_ms = rest->report->clock_ms - rest->hold_ms,
        .at_max_ms = rest->report->clock_ms,
    };
    (void)oracle_check_value(rest->oracle, &expectation, present ? (const char *)value.data : NULL,
                             value.size, &rest->tally);
    if (present && any) {
        (void)oracle_check_expiry(rest->oracle, &query, pxat, &rest->tally);
    }
}

/* By definition: settings.expiry_hold_ms, at most a 32nd of the shortest window. */
static int64_t hold_ms(const struct sim_world *world)
{
    int64_t hold_ms = world->settings.expiry_hold_ms;
    for (size_t i = 0; i < world->settings.window_count; i++) {
        int64_t most_ms = world->settings.windows[i].length_ms / 32;
        hold_ms = most_ms < hold_ms ? most_ms : hold_ms;
    }
    return hold_ms;
}

void sim_check_rest(struct sim_world *world, enum sim_check check)
{
    for (int p = 0; p < world->plan.partitions && !world->plan.limit_ads; p++) {
        struct sim_worker *worker = &world->workers[world->owner[p]];
        struct fcap_task_report report;
        if (!sim_report(worker, p, &report)) {
            continue;
        }
        struct rest rest = {.world = world,
                            .worker = worker,
                            .oracle = fill_oracle(world, worker, p),
                            .lineage = sim_lineage_of(worker, p),
                            .report = &report,
                            .hold_ms = check == SIM_CHECK_PROMPT ? hold_ms(world) : 0};
        for (int user = p; user < world->plan.users; user += world->plan.partitions) {
            for (size_t window = 0; window < world->settings.window_count; window++) {
                /* A complete projection ends with what was queued before it, which is perhaps an
                 * expiry that is held back while time stands still. */
                bool is_awaited = rest.hold_ms > 0 && (report.projected_mask >> window & 1) == 0;
                if ((report.ready_mask >> window & 1) != 0 && !is_awaited &&
                    sim_is_certain(world, window)) {
                    sim_count(world, SIM_EVENT_GROWN_KEY,
                              world->grown_from > 0 && user % world->grown_from != p);
                    check_one(&rest, user, window);
                }
            }
            sim_check_state(worker, user);
        }
        world->score->checks[check] += rest.tally.compared;
        if (rest.tally.wrong > 0) {
            sim_fail(world, "%s: %s", check == SIM_CHECK_REST ? "at rest" : "prompt",
                     rest.tally.text);
        }
        oracle_close(rest.oracle);
    }
}
