/* Crash torture on a real broker and a real Redis: the daemon is killed at every named point
 * (fcap/point.h), where it has stopped itself; Redis is killed and comes back full, empty and old,
 * the broker is killed. Checkpoints are kept all the while, and the machines of some of those who
 * died are lost: they come back from there. Every key is compared with the definition on the way,
 * at the end, and when everything has left its windows.
 *
 * FCAP_TEST_FULL=1: every point, 50 deaths, a million events. FCAP_TORTURE_SEED: another order. */
#include "lib/full_size.h"
#include "torture.h"

#include "lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CYCLES_MAX 256

struct cycle {
    enum fcap_point point;
    unsigned lead;
};

static const struct {
    enum fcap_point_phase phase;
    unsigned leads;
} points[] = {
#define X(name, phase, lead, passes, text) {FCAP_POINT_##phase, lead},
    FCAP_POINT_LIST(X)
#undef X
};

static const char *const phases[] = {"send",      "expiry",     "commit", "publish",
                                     "rebalance", "projection", "load",   "start"};

static const struct live_window short_windows[] = {
    {"2s", 2000}, {"5s", 5000}, {"15s", 15000}, {NULL, 0}};
static const struct live_window long_windows[] = {
    {"20s", 20000}, {"60s", 60000}, {"5m", 300000}, {NULL, 0}};

static const struct torture_scale reduced = {
    .events = 60000,
    .users = 2000,
    .rate = 1000,
    .partitions = 6,
    .windows = "[2s, 5s, 15s]",
    .lengths = short_windows,
    .kills = 12,
};
static const struct torture_scale full = {
    .events = 1000000,
    .users = 50000,
    .rate = 1500,
    .partitions = 12,
    .windows = "[20s, 60s, 5m]",
    .lengths = long_windows,
    .kills = 50,
    .is_full = true,
};

static struct torture torture;
static struct cycle cycles[CYCLES_MAX];
static size_t cycle_count;
static unsigned redis_kind;
static unsigned may_lose;

/* --- the plan -------------------------------------------------------------------------------- */

static void add_cycle(enum fcap_point point, unsigned lead)
{
    assert_true(cycle_count < CYCLES_MAX);
    cycles[cycle_count++] = (struct cycle){point, lead};
}

/* Some of a phase that a lead reaches, no point twice. */
static void add_some(enum fcap_point_phase phase, unsigned lead, unsigned count)
{
    enum fcap_point found[FCAP_POINT_COUNT];
    uint32_t left = 0;
    for (size_t i = 0; i < FCAP_POINT_COUNT; i++) {
        if (points[i].phase == phase && (points[i].leads & lead) != 0) {
            found[left++] = (enum fcap_point)i;
        }
    }
    assert_true(left >= count);
    for (; count > 0; count--) {
        uint32_t at = torture_draw(&torture, left);
        add_cycle(found[at], lead);
        found[at] = found[--left];
    }
}

static void shuffle(void)
{
    for (size_t i = cycle_count; i > 1; i--) {
        size_t at = torture_draw(&torture, (uint32_t)i);
        struct cycle cycle = cycles[at];
        cycles[at] = cycles[i - 1];
        cycles[i - 1] = cycle;
    }
}

static void plan_reduced(void)
{
    add_some(FCAP_POINT_SEND, FCAP_LEAD_LOAD, 2);
    add_some(FCAP_POINT_EXPIRY, FCAP_LEAD_LOAD, 1);
    add_some(FCAP_POINT_COMMIT, FCAP_LEAD_LOAD, 2); /* And one before the crash in a row. */
    add_some(FCAP_POINT_PUBLISH, FCAP_LEAD_LOAD, 1);
    add_some(FCAP_POINT_REBALANCE, FCAP_LEAD_JOIN, 1);
    add_some(FCAP_POINT_REBALANCE, FCAP_LEAD_LEAVE, 1);
    add_some(FCAP_POINT_PROJECTION, FCAP_LEAD_EMPTY, 3); /* One for each kind of Redis. */
    add_some(FCAP_POINT_START, FCAP_LEAD_START, 1);
    add_some(FCAP_POINT_START, FCAP_LEAD_CRASH, 1);
    shuffle();
}

/* Every point by every way that leads there, and some more. */
static void plan_full(void)
{
    for (size_t i = 0; i < FCAP_POINT_COUNT; i++) {
        for (unsigned lead = 1; lead <= FCAP_LEAD_DAEMON; lead *= 2) {
            if ((points[i].leads & lead) != 0) {
                add_cycle((enum fcap_point)i, lead);
            }
        }
    }
    size_t each = cycle_count;
    while (cycle_count < torture.scale->kills + 5) {
        cycles[cycle_count++] = cycles[torture_draw(&torture, (uint32_t)each)];
    }
    shuffle();
}

/* --- cycles: a life is led to its point ------------------------------------------------------- */

static void restart(struct torture_member *member, enum fcap_point point)
{
    torture_stop(&torture, member);
    torture_start(&torture, member, point, true);
}

/* Every other death under load or beside another Redis takes the machine, too. */
static void lose_some(struct torture_member *victim)
{
    if (may_lose++ % 2 == 0) {
        torture_lose(&torture, victim);
    }
}

static void under_load(struct torture_member *victim, enum fcap_point point)
{
    restart(victim, point);
    if (torture_draw(&torture, 2) == 0) {
        torture_await_ready(&torture); /* Else it may die while it still catches up. */
    }
    torture_await_commit(&torture);
    if (victim == &torture.two) {
        torture_await_partition(&torture, victim);
    }
    torture_arm(&torture, victim);
    torture_kill(&torture, victim, true);
}

/* After a clean end, which a commit goes before. */
static void at_start(enum fcap_point point)
{
    struct torture_member *victim = &torture.one;
    if (victim->process->pid == 0) {
        torture_start(&torture, victim, TORTURE_NOWHERE, false);
    }
    torture_await_ready(&torture);
    torture_await_commit(&torture);
    torture_stop(&torture, victim);
    torture_go_on(&torture, 1500 + torture_draw(&torture, 1000)); /* T has to catch up. */
    torture_start(&torture, victim, point, false);
    torture_kill(&torture, victim, true);
}

/* A death, and another one before anything was committed. */
static void after_a_crash(enum fcap_point point)
{
    under_load(&torture.one, FCAP_POINT_AT_commit_written);
    torture_start(&torture, &torture.one, point, false);
    torture_kill(&torture, &torture.one, false);
}

static void as_another_joins(enum fcap_point point)
{
    torture_stop(&torture, &torture.two);
    restart(&torture.one, point);
    torture_await_ready(&torture);
    torture_await_commit(&torture);
    torture_arm(&torture, &torture.one);
    torture_start(&torture, &torture.two, TORTURE_NOWHERE, false);
    torture_kill(&torture, &torture.one, true);
    /* It is back before the group has missed it, so what it was to give up has no owner until
     * somebody notices. */
    torture_start(&torture, &torture.one, TORTURE_NOWHERE, false);
    torture_await_ready(&torture);
}

static void as_another_leaves(enum fcap_point point)
{
    restart(&torture.one, point);
    if (torture.two.process->pid == 0) {
        torture_start(&torture, &torture.two, TORTURE_NOWHERE, false);
    }
    torture_await_partition(&torture, &torture.two);
    torture_await_ready(&torture);
    torture_await_commit(&torture);
    torture_arm(&torture, &torture.one);
    torture_stop(&torture, &torture.two);
    torture_kill(&torture, &torture.one, true);
}

static void as_redis_comes_back(enum fcap_point point)
{
    enum torture_redis kind = (enum torture_redis)(redis_kind++ % 3);
    if (kind == TORTURE_REDIS_OLD) {
        torture_redis_save(&torture);
    }
    restart(&torture.one, point);
    torture_await_ready(&torture);
    torture_await_commit(&torture);
    torture_arm(&torture, &torture.one);
    torture_redis(&torture, kind);
    torture_kill(&torture, &torture.one, true);
}

static void run_cycle(const struct cycle *cycle)
{
    switch (cycle->lead) {
    case FCAP_LEAD_LOAD: {
        bool is_two = torture.two.process->pid != 0 && torture_draw(&torture, 4) == 0;
        struct torture_member *victim = is_two ? &torture.two : &torture.one;
        under_load(victim, cycle->point);
        lose_some(victim);
        break;
    }
    case FCAP_LEAD_START:
        at_start(cycle->point);
        break;
    case FCAP_LEAD_CRASH:
        after_a_crash(cycle->point);
        break;
    case FCAP_LEAD_JOIN:
        as_another_joins(cycle->point);
        break;
    case FCAP_LEAD_LEAVE:
        as_another_leaves(cycle->point);
        break;
    case FCAP_LEAD_EMPTY:
        as_redis_comes_back(cycle->point);
        lose_some(&torture.one);
        break;
    default:
        fail_msg("nobody knows how to get to point %d", (int)cycle->point);
    }
}

/* --- the run --------------------------------------------------------------------------------- */

static void start_missing(void)
{
    struct torture_member *members[] = {&torture.one, &torture.two};
    for (size_t i = 0; i < 2; i++) {
        if (members[i]->process->pid == 0) {
            torture_start(&torture, members[i], TORTURE_NOWHERE, false);
        }
    }
}

static void run_plan(void)
{
    size_t every = torture.scale->is_full ? 10 : (cycle_count + 2) / 3;
    torture_start(&torture, &torture.one, TORTURE_NOWHERE, false);
    torture_await_ready(&torture);
    torture_go_on(&torture, (int64_t)torture.longest_ms / 5);
    for (size_t i = 0; i < cycle_count; i++) {
        run_cycle(&cycles[i]);
        if (i % every == every / 2 && (torture.scale->is_full || i < every)) {
            torture_broker(&torture); /* Somebody is dead then. */
        }
        if (i % every == every - 1) {
            start_missing();
            torture_await_ready(&torture);
            torture_compare(&torture);
        }
    }
}

static void plant(const char *user, const char *ad)
{
    const char *answer = redis_server_ask(
        &torture.live.redis, "SET fc:{%s}:%s {\"v\":1,\"as_of\":1,\"counts\":{\"%s\":1}} PX 60000",
        user, torture.scale->lengths[0].name, ad);
    assert_true(answer != NULL && strcmp(answer, "OK") == 0);
}

/* A comparison that finds no wrong key proves nothing unless it finds those that are planted: one
 * of nobody, and one of a user whose only event is too late for every window. The daemon repairs
 * the second one when it projects that user once more, as it does some seconds after a gate has
 * opened.
 */
static void plant_and_find(void)
{
    struct live_tally tally = {0};
    live_send(&torture.live, "planted", "ad", lab_wall_ms() - 2 * (int64_t)torture.longest_ms,
              "id");
    torture_compare(&torture);
    for (int i = 0; i < 20 && tally.now.wrong != 2; i++) {
        tally = (struct live_tally){0};
        plant("nobody", "ad");
        plant("planted", "ad");
        live_compare(&torture.live, true, &tally);
    }
    assert_int_equal(tally.now.wrong, 2);
    assert_non_null(strstr(tally.now.text, "fc:{nobody}"));
    assert_non_null(strstr(tally.now.text, "user \"planted\""));
    (void)redis_server_ask(&torture.live.redis, "DEL fc:{nobody}:%s fc:{planted}:%s",
                           torture.scale->lengths[0].name, torture.scale->lengths[0].name);
}

static void report(void)
{
    char text[256] = "";
    unsigned all = 0;
    for (size_t phase = 0; phase < FCAP_POINT_PHASES; phase++) {
        unsigned kills = 0;
        unsigned leads = 0;
        for (size_t i = 0; i < FCAP_POINT_COUNT; i++) {
            bool is_in = points[i].phase == (enum fcap_point_phase)phase;
            kills += is_in ? torture.kills[i] : 0;
            leads |= is_in ? points[i].leads : 0;
        }
        if ((leads & FCAP_LEAD_DAEMON) == 0) {
            continue; /* Other tests get there. */
        }
        assert_true(kills > 0); /* Every phase. */
        all += kills;
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%s %u", used == 0 ? "" : ", ",
                       phases[phase], kills);
    }
    assert_true(all >= torture.scale->kills);
    assert_true(torture.lost >= torture.scale->kills / 6);
    assert_int_equal(torture.restored, torture.lost);
    const struct oracle_tally *tally = &torture.tally.now;
    print_message("result: torture: %" PRIu64 " records, %u kills (%s), %u more in a row, "
                  "%u machines lost and restored from checkpoints, %" PRIu64
                  " keys compared, %" PRIu64 " non-empty, %" PRIu64 " expired, %" PRIu64
                  " PXAT, %" PRIu64 " wrong\n",
                  torture.sent, all, text, torture.in_a_row, torture.restored, tally->compared,
                  tally->non_empty, tally->absent, torture.tally.expiry.compared, tally->wrong);
}

static void test_every_key_after_every_death(void **unused)
{
    (void)unused;
    run_plan();
    start_missing();
    torture.fast = true;
    while (torture.sent < torture.scale->events) {
        torture_tick(&torture);
    }
    torture_await_ready(&torture);
    torture_compare(&torture);
    plant_and_find();
    live_check_letters(&torture.live, false);

    /* Everything leaves, and all agree that nothing is left. */
    uint64_t non_empty = torture.tally.now.non_empty;
    live_await_no_key(&torture.live, (int64_t)torture.longest_ms + LIVE_WAIT_MS);
    torture_compare(&torture);
    assert_int_equal(torture.tally.now.non_empty, non_empty);
    uint64_t users = torture.scale->users;
    live_passes(&torture.tally.now, (struct oracle_minimum){users * 3 * 4, users, users * 3});
    live_passes(&torture.tally.as_of, (struct oracle_minimum){users, users, 0});
    live_passes(&torture.tally.expiry, (struct oracle_minimum){users, users, 0});
    torture_stop(&torture, &torture.two);
    torture_stop(&torture, &torture.one);
    report();
}

static int setup(void **unused)
{
    (void)unused;
    const char *given = getenv("FCAP_TORTURE_SEED");
    uint64_t seed = given == NULL ? 20240611 : strtoull(given, NULL, 10);
    print_message("seed %" PRIu64 "\n", seed);
    torture_init(&torture, is_full_size() ? &full : &reduced, seed);
    if (is_full_size()) {
        plan_full();
    } else {
        plan_reduced();
    }
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    torture_done(&torture);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_key_after_every_death, setup, teardown),
    };
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* So that a log shows how far it is. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
