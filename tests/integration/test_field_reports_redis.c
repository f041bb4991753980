/* Field reports through the whole daemon: what happens to Redis. */
#include "lab/lab.h"
#include "lib/fake_redis.h"
#include "lib/fault.h"
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

#define USERS      10000
#define PARTITIONS 4
#define ZEROS      "00000000-0000-0000-0000-000000000000"
#define VALUE_MAX  4096
#define ADS_MAX    200
#define PARTS      4
#define PIECES     20
/* The daemon asks Redis for its identity every 2 s; a projection that repeats itself shows. */
#define HEARTBEATS_MS 7000

static struct live live;
static struct fake_redis fake;
static unsigned serial;

static const struct live_window windows[] = {{"1h", 3600000}, {NULL, 0}};

static struct live_options usual(void)
{
    return (struct live_options){
        .partitions = PARTITIONS,
        .workers = 2,
        .windows = "[1h]",
        .lengths = windows,
    };
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    fake_redis_stop(&fake);
    return 0;
}

static void send_user(unsigned index)
{
    char user[32];
    char ad[32];
    (void)snprintf(user, sizeof user, "user-%u", index);
    (void)snprintf(ad, sizeof ad, "ad-%u", serial++ % 7);
    live_send(&live, user, ad, lab_wall_ms(), NULL);
}

/* --- B25 ---------------------------------------------------------------------------------------
 */

static void await_words(const char *path, const char *words)
{
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    do {
        (void)daemon_process_get(&live.process, path, NULL);
        if (live.process.text != NULL && strstr(live.process.text, words) != NULL) {
            return;
        }
        lab_pause_ms(50);
    } while (lab_monotonic_ms() < deadline_ms);
    fail_msg("%s never says \"%s\": %s", path, words, live.process.text);
}

static void an_old_redis_is_refused_until_it_is_new(const char *version)
{
    struct live_options options = usual();
    fake_redis_start(&fake);
    atomic_store(&fake.version, version);
    atomic_store(&fake.knows_pxat, false);
    options.redis_port = fake.port;
    options.more_redis = "  key: \"k:{%u}:%w\"\n";
    live_init(&live, &options);
    for (unsigned i = 0; i < 20; i++) {
        send_user(i);
    }
    live_flush(&live);
    daemon_process_start(&live.process, NULL);
    await_words("/readyz", "PXAT");
    if (version != NULL) {
        await_words("/readyz", "6.2");
        assert_non_null(strstr(live.process.text, version));
    }
    assert_int_equal(daemon_process_get(&live.process, "/readyz", NULL), 503);
    assert_int_equal(daemon_process_get(&live.process, "/livez", NULL), 200);

    /* Nothing is read, nothing is published, and it does not spin. */
    double cpu_s = daemon_process_metric(&live.process, "process_cpu_seconds_total");
    unsigned connections = atomic_load(&fake.connections);
    int64_t begun_ms = lab_monotonic_ms();
    lab_pause_ms(4000);
    double passed_s = (double)(lab_monotonic_ms() - begun_ms) / 1000;
    cpu_s = daemon_process_metric(&live.process, "process_cpu_seconds_total") - cpu_s;
    if (cpu_s > passed_s / 2) {
        fail_msg("%.1f s of CPU in %.1f s of waiting", cpu_s, passed_s);
    }
    assert_in_range(atomic_load(&fake.connections) - connections, 0, (unsigned)(passed_s * 20));
    assert_true(daemon_process_metric(&live.process, "fcapd_kafka_records_total") == 0);
    assert_true(daemon_process_metric(&live.process, "fcapd_records_total") == 0);
    char group[256];
    (void)snprintf(group, sizeof group, "%s-group-progress", live.topic);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        assert_int_equal(kafka_committed(kafka_test_brokers(), group, live.topic, i), -1);
    }

    /* The upgrade, behind the same address. */
    unsigned sets = atomic_load(&fake.sets);
    pid_t pid = live.process.pid;
    atomic_store(&fake.knows_pxat, true);
    atomic_store(&fake.version, "7.0.15");
    daemon_process_await(&live.process, "/readyz", 200, LIVE_START_MS);
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    while (atomic_load(&fake.sets) < sets + 20 ||
           daemon_process_metric(&live.process, "fcapd_records_total") < 20) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(50);
    }
    assert_int_equal(live.process.pid, pid);
    live_stop(&live);
}

static void test_B25_redis_6_0_is_refused_until_it_is_upgraded(void **unused)
{
    (void)unused;
    an_old_redis_is_refused_until_it_is_new("6.0.16");
}

static void test_B25_a_hidden_version_is_found_by_a_probe(void **unused)
{
    (void)unused;
    an_old_redis_is_refused_until_it_is_new(NULL);
}

/* --- B26 ---------------------------------------------------------------------------------------
 */

static double projections(void)
{
    return daemon_process_metric(&live.process, "fcapd_full_projections_total");
}

/* A start on an empty Redis projects everything, and once more a session timeout later. */
static void await_second_look(void)
{
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    while (projections() < 2 * PARTITIONS) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(50);
    }
}

static void project_all(void)
{
    struct live_tally tally = {0};
    struct live_options options = usual();
    options.more_redis = "  send_buffer: 64KiB\n"; /* So that a repair takes its time. */
    options.more = "limits:\n  value_bytes: 4KiB\n";
    live_init(&live, &options);
    live_start(&live);
    for (unsigned i = 0; i < USERS; i++) {
        send_user(i);
    }
    live_await_applied(&live);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){USERS, USERS, 0});
    await_second_look();
}

static bool says_ready(const char *meta)
{
    size_t ready = 0;
    for (const char *at = meta; at != NULL && (at = strstr(at, "\"ready\":[\"1h\"]")) != NULL;
         at++) {
        ready++;
    }
    return ready == PARTITIONS;
}

/* Lets Redis work for a moment only, so that a repair is long enough to be looked at. */
static void slow_motion(void)
{
    redis_server_freeze(&live.redis);
    lab_pause_ms(300);
    (void)daemon_process_get(&live.process, "/readyz", NULL);
    redis_server_thaw(&live.redis);
    lab_pause_ms(15);
}

/* From when the daemon has noticed (a new fc:id, or the old one again in another process) until all
 * keys are back, /readyz says so, and fc:meta names no window as ready. */
static void repair_is_told(const char *was_id, double projections_before)
{
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    bool is_told = false;
    const char *id = NULL;
    do {
        assert_true(lab_monotonic_ms() < deadline_ms);
        id = redis_server_ask(&live.redis, "GET fc:id");
    } while (id == NULL || (was_id != NULL && strcmp(id, was_id) == 0));
    while (!is_told) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        slow_motion();
        is_told = strstr(live.process.text, "being projected") != NULL;
        if (!is_told && projections() >= projections_before + PARTITIONS) {
            fail_msg("repaired without a word:\n%s", daemon_process_log(&live.process));
        }
    }
    while (strstr(live.process.text, "being projected") != NULL) {
        const char *meta = redis_server_ask(&live.redis, "GET fc:meta:test:one");
        if (meta == NULL || !says_ready(meta)) {
            return;
        }
        slow_motion();
    }
    print_message("repaired before the next fc:meta was due\n");
}

/* Waits, with live traffic going on, until fc:meta says that all is ready; then, and not only some
 * time later, every user has its key again. */
static void await_repaired(void)
{
    struct live_tally tally = {0};
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    while (!says_ready(redis_server_ask(&live.redis, "GET fc:meta:test:one"))) {
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("%zu keys are back; fc:meta: %s\n%s", live_key_count(&live),
                     redis_server_ask(&live.redis, "GET fc:meta:test:one"),
                     daemon_process_log(&live.process));
        }
        send_user(serial % USERS);
        live_flush(&live);
        lab_pause_ms(20);
    }
    assert_true(live_key_count(&live) >= oracle_user_count(live.oracle));
    live_await_applied(&live);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){USERS, USERS, 0});
    live_passes(&tally.expiry, (struct oracle_minimum){USERS, USERS, 0});
    assert_int_equal(daemon_process_get(&live.process, "/readyz", NULL), 200);
    assert_null(strstr(live.process.text, "being projected"));
}

static void test_B26a_reborn_empty_within_a_second(void **unused)
{
    (void)unused;
    project_all();
    double before = projections();
    (void)redis_server_ask(&live.redis, "SHUTDOWN NOSAVE");
    redis_server_kill(&live.redis); /* Waits for its end. */
    redis_server_restart(&live.redis, false);
    repair_is_told(NULL, before);
    await_repaired();
    live_stop(&live);
    fault_is_proved(&(const struct fault){
        .id = "redis-restarted-empty",
        .fault = "Redis is restarted without its data, faster than anybody notices",
        .sees = "`being projected` for each window in `/readyz`, which is 200 again by then; "
                "`fc:meta` does not call a window ready meanwhile",
        .lost = "nothing: every key is there again when `fc:meta` says ready",
        .recovers = "by itself: everything is written once more",
    });
}

static void test_B26b_flushed_while_connected(void **unused)
{
    char id[256];
    (void)unused;
    project_all();
    double before = projections();
    double connections =
        daemon_process_metric(&live.process, "fcapd_redis_connections_ready_total");
    (void)snprintf(id, sizeof id, "%s", redis_server_ask(&live.redis, "GET fc:id"));
    assert_string_equal(redis_server_ask(&live.redis, "FLUSHALL"), "OK");
    for (unsigned i = 0; i < 10; i++) {
        send_user(i);
    }
    live_flush(&live);
    repair_is_told(id, before);
    await_repaired();
    assert_true(projections() >= before + PARTITIONS);
    assert_true(daemon_process_metric(&live.process, "fcapd_redis_connections_ready_total") ==
                connections);
    live_stop(&live);
    fault_is_proved(&(const struct fault){
        .id = "redis-emptied",
        .fault = "FLUSHALL while fcapd is connected",
        .sees =
            "`being projected` for each window in `/readyz`; `fcapd_full_projections_total` grows",
        .lost = "nothing: every key is there again when `fc:meta` says ready",
        .recovers = "by itself: everything is written once more",
    });
}

static void test_B26c_an_old_dump_with_the_sentinel_comes_back(void **unused)
{
    char id[256];
    (void)unused;
    project_all();
    (void)snprintf(id, sizeof id, "%s", redis_server_ask(&live.redis, "GET fc:id"));
    assert_string_equal(redis_server_ask(&live.redis, "SAVE"), "OK");
    for (unsigned i = 0; i < USERS; i++) {
        send_user(i);
        send_user(USERS + i); /* Known to no dump. */
    }
    live_await_applied(&live);
    double before = projections();
    redis_server_kill(&live.redis);
    redis_server_restart(&live.redis, true);
    assert_string_equal(redis_server_ask(&live.redis, "GET fc:id"), id);
    repair_is_told(NULL, before);
    await_repaired();
    live_stop(&live);
    fault_is_proved(&(const struct fault){
        .id = "redis-old-data",
        .fault = "Redis comes back with an old RDB file or snapshot",
        .sees =
            "`being projected` for each window in `/readyz`; `fcapd_full_projections_total` grows",
        .lost = "nothing: each key equals the definition when `fc:meta` says ready",
        .recovers = "by itself: everything is written once more",
    });
}

static void test_B26d_only_the_sentinel_is_deleted(void **unused)
{
    char id[256];
    (void)unused;
    project_all();
    double before = projections();
    (void)snprintf(id, sizeof id, "%s", redis_server_ask(&live.redis, "GET fc:id"));
    assert_string_equal(redis_server_ask(&live.redis, "DEL fc:id"), "1");
    repair_is_told(id, before);
    await_repaired();
    lab_pause_ms(HEARTBEATS_MS);
    assert_true(projections() == before + PARTITIONS); /* One each, and not a loop. */
    await_repaired();
    live_stop(&live);
}

/* --- B32 ---------------------------------------------------------------------------------------
 */

struct scale {
    unsigned events; /* of the one id */
    unsigned ads;
};

static struct scale scale_of_run(void)
{
    return is_full_size() ? (struct scale){200000, 30000} : (struct scale){40000, 6000};
}

/* What the limit must make of the masses: the first ADS_MAX ads count, the others are refused. */
static struct {
    bool counts[30000];
    unsigned ads;
    unsigned refused;
} masses;

/* Ads come up all the time: of the first i events there are about ads * i / events. */
static unsigned next_ad(unsigned i, struct scale scale)
{
    unsigned ad = i * 7919u % (1 + i / (1 + scale.events / scale.ads));
    if (!masses.counts[ad] && masses.ads < ADS_MAX) {
        masses.counts[ad] = true;
        masses.ads++;
    }
    masses.refused += !masses.counts[ad];
    return ad;
}

/* Some of the masses, with the normal users among them. */
static void send_masses(unsigned from, unsigned to, struct scale scale)
{
    for (unsigned i = from; i < to; i++) {
        char ad[32];
        (void)snprintf(ad, sizeof ad, "ad-of-many-%u", next_ad(i, scale));
        live_send(&live, ZEROS, ad, lab_wall_ms(), NULL);
        if (i % (scale.events / USERS) == 0) {
            send_user(i / (scale.events / USERS));
        }
    }
    live_flush(&live);
}

/* One of PARTS, piece by piece, so that the one value is pushed many times. Gives how long a normal
 * user's event, sent in the middle, takes to be seen while the masses come. */
static int64_t send_part(unsigned part, struct scale scale)
{
    unsigned piece = scale.events / PARTS / PIECES;
    unsigned first = scale.events / PARTS * part;
    char user[32];
    int64_t sent_ms = 0;
    int64_t seen_ms = 0;
    (void)snprintf(user, sizeof user, "fresh-%u", part);
    for (unsigned i = 0; i < PIECES; i++) {
        if (i == PIECES / 2) {
            live_send(&live, user, "ad-1", lab_wall_ms(), NULL);
            sent_ms = lab_monotonic_ms();
        }
        send_masses(first + piece * i, first + piece * (i + 1), scale);
        lab_pause_ms(20);
        if (sent_ms != 0 && seen_ms == 0 &&
            redis_server_ask(&live.redis, "GET fc:{%s}:1h", user) != NULL) {
            seen_ms = lab_monotonic_ms();
        }
    }
    while (seen_ms == 0) {
        assert_true(lab_monotonic_ms() - sent_ms < LIVE_WAIT_MS);
        lab_pause_ms(5);
        bool is_seen = redis_server_ask(&live.redis, "GET fc:{%s}:1h", user) != NULL;
        seen_ms = is_seen ? lab_monotonic_ms() : 0;
    }
    return seen_ms - sent_ms;
}

static double bytes_sent(void)
{
    return daemon_process_metric(&live.process, "fcapd_push_bytes_total");
}

static double refused_ads(void)
{
    assert_int_equal(daemon_process_get(&live.process, "/metrics", NULL), 200);
    double sum = 0;
    const char *at = live.process.text;
    while ((at = strstr(at, "reason=\"ads_limit\"} ")) != NULL) {
        at += strlen("reason=\"ads_limit\"} ");
        sum += strtod(at, NULL);
    }
    return sum;
}

static void test_B32_everybody_has_the_id_of_zeros(void **unused)
{
    struct live_options options = usual();
    struct scale scale = scale_of_run();
    struct live_tally tally = {0};
    double bytes_of_parts[PARTS];
    int64_t slowest_ms = 0;
    (void)unused;
    options.more = "limits:\n  ads_per_user: 200\n  value_bytes: 4KiB\n";
    live_init(&live, &options);
    live_start(&live);
    await_second_look(); /* What it sends is no event's. */
    for (unsigned part = 0; part < PARTS; part++) {
        double before = bytes_sent();
        int64_t took_ms = send_part(part, scale);
        slowest_ms = took_ms > slowest_ms ? took_ms : slowest_ms;
        live_await_applied(&live);
        lab_pause_ms(300); /* For the page's numbers. */
        bytes_of_parts[part] = (bytes_sent() - before) / (scale.events / PARTS);
        print_message("part %u: %.0f bytes an event, fresh after %" PRId64 " ms\n", part,
                      bytes_of_parts[part], took_ms);
    }
    assert_in_range(slowest_ms, 0, LIVE_LAG_MS);
    /* What an event costs does not grow with the ads, of which the first part has a quarter. */
    for (unsigned part = 1; part < PARTS; part++) {
        assert_true(bytes_of_parts[part] < 2 * bytes_of_parts[0]);
    }
    const char *value = redis_server_ask(&live.redis, "GET fc:{" ZEROS "}:1h");
    assert_non_null(value);
    assert_in_range(strlen(value), VALUE_MAX / 2, VALUE_MAX);
    assert_non_null(strstr(value, "\"partial\":true"));
    assert_true(masses.refused > scale.events / 2);
    assert_true(refused_ads() == masses.refused);
    assert_int_equal(daemon_process_get(&live.process, "/hot-users", "secret-token"), 200);
    const char *zeros = strstr(live.process.text, "\"user\":\"" ZEROS "\"");
    const char *records = zeros == NULL ? NULL : strstr(zeros, "\"records\":");
    assert_non_null(records);
    /* Counts are halved each minute; nobody else comes near. */
    assert_true(strtol(records + strlen("\"records\":"), NULL, 10) > scale.events / 16);
    /* All others are exact, none is cut. */
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){USERS, USERS, 0});
    assert_int_equal(tally.now.partial, 1);
    live_stop(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_B25_redis_6_0_is_refused_until_it_is_upgraded, teardown),
        cmocka_unit_test_teardown(test_B25_a_hidden_version_is_found_by_a_probe, teardown),
        cmocka_unit_test_teardown(test_B26a_reborn_empty_within_a_second, teardown),
        cmocka_unit_test_teardown(test_B26b_flushed_while_connected, teardown),
        cmocka_unit_test_teardown(test_B26c_an_old_dump_with_the_sentinel_comes_back, teardown),
        cmocka_unit_test_teardown(test_B26d_only_the_sentinel_is_deleted, teardown),
        cmocka_unit_test_teardown(test_B32_everybody_has_the_id_of_zeros, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
