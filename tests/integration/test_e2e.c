/* The whole way: generated impressions -> real Kafka -> fcapd with three workers -> real Redis,
 * while time passes and checkpoints are kept; every key against the definition over what the topic
 * holds. */
#include "lab/lab.h"
#include "lib/full_size.h"
#include "live.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define USERS     2000
#define ADS       40
#define RECENT    256
#define TICK_MS   50
#define INSTANTS  20
#define QUIET_ALL 4 /* every 4th instant is a quiet one */

/* Reduced unless FCAP_TEST_FULL=1. */
struct scale {
    size_t events;
    int64_t duration_ms;
};

struct sent {
    char user[24];
    char ad[24];
    char id[24];
    int64_t time_ms;
};

static struct live live;
static char checkpoints[64];
static char more[512];
static struct generator {
    uint64_t state;
    uint64_t serial;
    struct sent recent[RECENT];
    struct sent last;
} generator;

static const struct live_window windows[] = {{"2s", 2000}, {"5s", 5000}, {"20s", 20000}, {NULL, 0}};

static struct scale scale_of_run(void)
{
    return is_full_size() ? (struct scale){300000, 40000} : (struct scale){60000, 15000};
}

static int setup(void **unused)
{
    static const struct live_options options = {
        .partitions = 12,
        .workers = 3,
        .windows = "[2s, 5s, 20s]",
        .lengths = windows,
        .more = more,
    };
    (void)unused;
    lab_folder_make("checkpoints", checkpoints, sizeof checkpoints);
    (void)snprintf(more, sizeof more,
                   "event:\n  id: id\nshutdown:\n  deadline: 15s\ncheckpoint:\n  directory: %s\n"
                   "  interval: 1s\n  min_pause: 0s\nmaterialization:\n  interval: 10s\n",
                   checkpoints);
    generator = (struct generator){.state = 20240611};
    print_message("seed %" PRIu64 "\n", generator.state);
    live_init(&live, &options);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    lab_folder_remove(checkpoints);
    return 0;
}

/* --- the generator --------------------------------------------------------------------------- */

static uint32_t draw(uint32_t below)
{
    generator.state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t mixed = generator.state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(((mixed ^ (mixed >> 31)) >> 32) * below >> 32);
}

/* The square of a uniform number: the first user gets some 2 % of all. */
static uint32_t skewed(uint32_t below)
{
    uint64_t one = draw(1000000);
    return (uint32_t)(one * one / 1000000 * below / 1000000);
}

/* Mostly now; some a little late, some late for the short windows, a few late for all of them or
 * ahead of the clock. */
static int64_t time_of_event(int64_t now_ms)
{
    uint32_t kind = draw(1000);
    return kind < 800   ? now_ms - draw(50)
           : kind < 940 ? now_ms - draw(2500)
           : kind < 985 ? now_ms - draw(20000)
           : kind < 992 ? now_ms - 20000 - draw(5000)
                        : now_ms + draw(3000);
}

static void send_event(int64_t now_ms)
{
    struct sent *event = &generator.recent[generator.serial % RECENT];
    if (draw(100) >= 30 || generator.serial == 0) { /* Else the session goes on. */
        (void)snprintf(generator.last.user, sizeof generator.last.user, "user-%u", skewed(USERS));
    }
    (void)snprintf(generator.last.ad, sizeof generator.last.ad, "ad-%u", skewed(ADS));
    (void)snprintf(generator.last.id, sizeof generator.last.id, "id-%" PRIu64, generator.serial);
    generator.last.time_ms = time_of_event(now_ms);
    *event = generator.last;
    generator.serial++;
    live_send(&live, event->user, event->ad, event->time_ms, event->id);
}

static void send_bad(const char *user, int64_t now_ms)
{
    char value[256];
    char key[16];
    (void)snprintf(key, sizeof key, "%u", draw(10));
    switch (draw(5)) {
    case 0:
        live_send_text(&live, user, "{\"user_id\":", "dead json");
        break;
    case 1:
        (void)snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ts\":%" PRId64 ",\"id\":\"x\"}",
                       user, now_ms);
        live_send_text(&live, user, value, "dead missing_field");
        break;
    case 2:
        (void)snprintf(value, sizeof value,
                       "{\"user_id\":\"%s\",\"ad_id\":\"ad-1\",\"ts\":true,\"id\":\"x\"}", user);
        live_send_text(&live, user, value, "dead wrong_type");
        break;
    case 3:
        (void)snprintf(value, sizeof value,
                       "{\"user_id\":\"%s\",\"ad_id\":\"ad-1\",\"ts\":%" PRId64 ",\"id\":\"x%s\"}",
                       user, now_ms + 3600000, key);
        live_send_text(&live, user, value, "dead future");
        break;
    default:
        live_send_text(&live, user, "[1,2,3]", "dead not_object");
        break;
    }
}

static void send_one(int64_t now_ms)
{
    uint32_t kind = draw(1000);
    const struct sent *again =
        &generator
             .recent[draw(generator.serial < RECENT ? (uint32_t)generator.serial + 1 : RECENT)];
    if (kind < 30 && again->user[0] != '\0') {
        live_send(&live, again->user, again->ad, again->time_ms, again->id);
    } else if (kind < 33 && again->user[0] != '\0') {
        live_send_tombstone(&live, again->user);
    } else if (kind < 38 && again->user[0] != '\0') {
        send_bad(again->user, now_ms);
    } else {
        send_event(now_ms);
    }
}

/* Produces for `duration_ms`, evenly; remembers claims meanwhile. */
static void produce(size_t count, int64_t duration_ms)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    int64_t begun_ms = lab_monotonic_ms();
    size_t sent = 0;
    while (sent < count) {
        int64_t passed_ms = lab_monotonic_ms() - begun_ms;
        size_t due = duration_ms == 0 || passed_ms >= duration_ms
                         ? count
                         : count * (size_t)passed_ms / (size_t)duration_ms + 1;
        for (; sent < due && sent < count; sent++) {
            send_one(lab_wall_ms());
        }
        (void)live_claims(&live, next, as_of_ms);
        lab_pause_ms(TICK_MS);
    }
}

/* --- the run --------------------------------------------------------------------------------- */

static void kill_and_restart(size_t events)
{
    daemon_process_signal(&live.process, SIGKILL);
    assert_int_equal(daemon_process_wait(&live.process, LIVE_STOP_MS), 128 + SIGKILL);
    produce(events, 1000);
    live_start(&live);
}

/* One wrong key of each kind, planted by hand on users of their own, must be found; otherwise all
 * that went before proves nothing. */
static void plant_and_find(void)
{
    static const struct {
        const char *user;
        const char *window;
        const char *value; /* NULL: the key is deleted */
    } plants[] = {
        {"nobody", "20s", "{\"v\":1,\"as_of\":1,\"counts\":{\"ad-1\":1}}"},
        {"plant-1", "20s", "{\"v\":1,\"as_of\":1,\"counts\":{\"ad-3\":2}}"},
        {"plant-2", "20s", "{\"v\":1,\"as_of\":1,\"counts\":{\"ad-3\":1,\"ad-4\":1}}"},
        {"plant-3", "20s", "broken"},
        {"plant-4", "7d", "{\"v\":1,\"as_of\":1,\"counts\":{\"ad-3\":1}}"},
        {"plant-5", "20s", NULL},
    };
    const size_t count = sizeof plants / sizeof plants[0];
    for (size_t i = 1; i < count; i++) {
        live_send(&live, plants[i].user, "ad-3", lab_wall_ms(), "planted");
    }
    live_await_applied(&live);
    for (size_t i = 0; i < count; i++) {
        struct live_tally tally = {0};
        char key[64];
        (void)snprintf(key, sizeof key, "fc:{%s}:%s", plants[i].user, plants[i].window);
        const char *answer =
            plants[i].value == NULL
                ? redis_server_ask(&live.redis, "DEL %s", key)
                : redis_server_ask(&live.redis, "SET %s %s PX 60000", key, plants[i].value);
        assert_true(answer != NULL && answer[0] != '-');
        live_compare(&live, true, &tally);
        if (tally.now.wrong != i + 1) { /* Those before are still there. */
            fail_msg("plant %zu: %" PRIu64 " wrong keys found:\n%s", i, tally.now.wrong,
                     tally.now.text);
        }
    }
    for (size_t i = 0; i < count; i++) {
        (void)redis_server_ask(&live.redis, "DEL fc:{%s}:%s", plants[i].user, plants[i].window);
    }
}

static void test_every_key_at_twenty_instants_and_at_rest(void **unused)
{
    const struct scale scale = scale_of_run();
    static struct live_tally moving;
    static struct live_tally quiet;
    static struct live_tally rest;
    size_t share = scale.events / INSTANTS;
    int64_t share_ms = scale.duration_ms / INSTANTS;
    (void)unused;
    live_start(&live);
    for (int i = 1; i <= INSTANTS; i++) {
        bool is_quiet = i % QUIET_ALL == 0;
        if (i == INSTANTS / 2 + 1) {
            kill_and_restart(share);
        }
        produce(share, share_ms);
        if (is_quiet || i == INSTANTS / 2 + 1) {
            live_await_applied(&live);
        }
        live_compare(&live, is_quiet, is_quiet ? &quiet : &moving);
    }
    live_await_applied(&live);
    live_compare(&live, true, &rest);
    live_passes(&moving.now, (struct oracle_minimum){30000, 15000, 3000});
    live_passes(&moving.as_of, (struct oracle_minimum){15000, 15000, 0});
    live_passes(&moving.expiry, (struct oracle_minimum){0});
    live_passes(&quiet.now, (struct oracle_minimum){15000, 6000, 1000});
    live_passes(&quiet.as_of, (struct oracle_minimum){6000, 6000, 0});
    live_passes(&quiet.expiry, (struct oracle_minimum){6000, 6000, 0});
    live_passes(&rest.now, (struct oracle_minimum){3000, 1000, 100});
    live_passes(&rest.as_of, (struct oracle_minimum){1000, 1000, 0});
    live_passes(&rest.expiry, (struct oracle_minimum){1000, 1000, 0});
    int64_t lag_ms = moving.lag_ms_max > quiet.lag_ms_max ? moving.lag_ms_max : quiet.lag_ms_max;
    print_message("result: %zu records; keys compared: %" PRIu64 " moving, %" PRIu64
                  " quiet, %" PRIu64 " at their own as_of, %" PRIu64 " PXAT; %" PRIu64
                  " wrong; now - as_of at most %" PRId64 " ms\n",
                  scale.events, moving.now.compared, quiet.now.compared,
                  moving.as_of.compared + quiet.as_of.compared, quiet.expiry.compared,
                  moving.now.wrong + moving.as_of.wrong + quiet.now.wrong + quiet.as_of.wrong +
                      quiet.expiry.wrong,
                  lag_ms);
    assert_in_range(lag_ms, 0, LIVE_LAG_MS + 2000); /* fc:meta comes every 2 s. */
    assert_true(daemon_process_metric(&live.process, "fcapd_underflows_total") == 0);
    assert_true(daemon_process_metric(&live.process, "fcapd_acks_refused_total") == 0);
    assert_true(daemon_process_metric(&live.process, "fcapd_checkpoint_completed_total") >= 2);
    assert_true(daemon_process_metric(&live.process, "fcapd_checkpoint_failures_total") == 0);
    live_check_letters(&live, false);
    plant_and_find();
    char text[256];
    assert_false(oracle_passes(&rest.now, &(struct oracle_minimum){rest.now.compared + 1, 0, 0},
                               text, sizeof text));

    /* Everything leaves, with the daemon at work, and all agree that nothing is left. */
    struct live_tally gone = {0};
    live_await_no_key(&live, 23000 + LIVE_LAG_MS);
    live_compare(&live, true, &gone);
    live_passes(&gone.now, (struct oracle_minimum){3000, 0, 3000});
    assert_int_equal(gone.now.non_empty, 0);
    live_stop(&live);
}

static void test_keys_vanish_by_themselves_when_the_daemon_is_stopped(void **unused)
{
    struct live_tally tally = {0};
    static struct oracle_tally stopped;
    (void)unused;
    live_start(&live);
    produce(scale_of_run().events / 15, 2000);
    live_await_applied(&live);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){1000, 1000, 0});
    live_stop(&live);
    assert_true(live_key_count(&live) > 500);
    int64_t until_ms = lab_monotonic_ms() + 23000 + LIVE_LAG_MS;
    while (live_key_count(&live) > 0) {
        live_compare_stopped(&live, &stopped);
        assert_true(lab_monotonic_ms() < until_ms);
        lab_pause_ms(200);
    }
    print_message("result: daemon stopped: %" PRIu64 " keys compared while they vanished, %" PRIu64
                  " with counts, %" PRIu64 " wrong\n",
                  stopped.compared, stopped.non_empty, stopped.wrong);
    live_passes(&stopped, (struct oracle_minimum){50000, 10000, 10000});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_key_at_twenty_instants_and_at_rest, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_keys_vanish_by_themselves_when_the_daemon_is_stopped,
                                        setup, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
