/* `fcapd backfill` on a real broker and real Redis: every key against the definition at T, whoever
 * else is at work, and whatever ends it. */
#include "backfill_job.h"

#include "lab/lab.h"
#include "lab/redis_reader.h"
#include "lib/full_size.h"
#include "lib/kafka_proxy.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOUR_MS     ((int64_t)3600 * 1000)
#define DAY_MS      (24 * HOUR_MS)
#define EMPTY       3 /* the partition that nobody's user lies in */
#define ALL_WINDOWS 7u

static const struct live_window windows[] = {
    {"1h", HOUR_MS}, {"1d", DAY_MS}, {"7d", 7 * DAY_MS}, {NULL, 0}};

static const struct live_options options = {
    .partitions = 4,
    .workers = 1,
    .windows = "[1h, 1d, 7d]",
    .lengths = windows,
    .topic_config = {"retention.ms", "-1", NULL},
    .more = "event:\n  id: id\n",
};

static struct live live;
static unsigned long serial;

static uint32_t draw(uint32_t below)
{
    static uint64_t random = 20240611;
    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random >> 33) % below;
}

/* --- the topic --- */

/* A user of any partition but the empty one. */
static const char *some_user(uint32_t users)
{
    static char name[32];
    do {
        (void)snprintf(name, sizeof name, "u%u", draw(users));
    } while (live_partition(&live, name) == EMPTY);
    return name;
}

static void send_one(const char *user, int64_t time_ms)
{
    char ad[16];
    char id[32];
    (void)snprintf(ad, sizeof ad, "a%u", draw(12));
    (void)snprintf(id, sizeof id, "id%lu", serial++);
    live_send(&live, user, ad, time_ms, id);
    if (draw(40) == 0) {
        live_send(&live, user, ad, time_ms, id); /* The producer sends it twice. */
    }
}

/* Mostly young events, some old, some late for all, some refused; now and then one is erased. */
static void produce(size_t count, uint32_t users)
{
    for (size_t i = 0; i < count; i++) {
        const char *user = some_user(users);
        int64_t now_ms = lab_wall_ms();
        uint32_t kind = draw(200);
        if (kind == 0) {
            live_send_tombstone(&live, user);
        } else if (kind == 1) {
            live_send_text(&live, user, "{\"user_id\":", "dead json");
        } else if (kind == 2) {
            char text[160];
            (void)snprintf(text, sizeof text,
                           "{\"user_id\":\"%s\",\"ad_id\":\"a1\",\"ts\":%" PRId64 ",\"id\":\"f\"}",
                           user, now_ms + 2 * HOUR_MS);
            live_send_text(&live, user, text, "dead future");
        } else {
            int64_t span_ms = kind < 100 ? HOUR_MS : kind < 150 ? 2 * DAY_MS : 8 * DAY_MS;
            send_one(user, now_ms - (int64_t)draw((uint32_t)(span_ms / 1000)) * 1000 - draw(1000));
        }
    }
    live_flush(&live);
}

/* --- comparing --- */

/* What a Redis should hold: users of these partitions, these windows, as of T. */
struct wanted {
    int64_t at_ms;
    unsigned partitions; /* a bit each */
    unsigned windows;
};

static void compare_user(const char *user, const struct redis_seen *seen,
                         const struct wanted *wanted, struct oracle_tally *tally)
{
    for (size_t k = 0; k < live.window_count; k++) {
        if ((wanted->windows >> k & 1) == 0 ||
            (wanted->partitions >> live_partition(&live, user) & 1) == 0) {
            assert_null(seen[k].value);
            continue;
        }
        struct oracle_expectation expected = {.user = user,
                                              .window_ms = windows[k].length_ms,
                                              .at_min_ms = wanted->at_ms,
                                              .at_max_ms = wanted->at_ms,
                                              .next_min = live.read,
                                              .next_count = LIVE_PARTITIONS_MAX};
        struct oracle_query query = {.user = user,
                                     .window_ms = windows[k].length_ms,
                                     .at_ms = wanted->at_ms,
                                     .next = live.read,
                                     .next_count = LIVE_PARTITIONS_MAX};
        (void)oracle_check_value(live.oracle, &expected, seen[k].value, seen[k].size, tally);
        if (seen[k].value != NULL) {
            (void)oracle_check_expiry(live.oracle, &query, seen[k].pxat_ms, tally);
        }
    }
}

/* Reads user x window of the oracle's users; the caller drops them. */
static struct redis_seen *read_all(uint16_t port)
{
    char error[256];
    size_t count = oracle_user_count(live.oracle) * live.window_count;
    struct redis_seen *seen = calloc(count + 1, sizeof *seen);
    char(*keys)[64] = calloc(count + 1, sizeof *keys);
    const char **names = calloc(count + 1, sizeof *names);
    struct redis_reader *reader = redis_reader_open("127.0.0.1", port, error, sizeof error);
    assert_true(seen != NULL && keys != NULL && names != NULL && reader != NULL);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "fc:{%s}:%s",
                       oracle_user(live.oracle, i / live.window_count),
                       windows[i % live.window_count].name);
        names[i] = keys[i];
    }
    redis_reader_get(reader, names, count, seen);
    redis_reader_close(reader);
    free(names);
    free(keys);
    return seen;
}

static void compare(struct backfill_job *job, struct wanted wanted, struct oracle_minimum minimum)
{
    struct oracle_tally tally = {0};
    size_t users = oracle_user_count(live.oracle);
    struct redis_seen *seen = read_all(job->redis.port);
    size_t found = 0;
    for (size_t i = 0; i < users; i++) {
        compare_user(oracle_user(live.oracle, i), &seen[i * live.window_count], &wanted, &tally);
    }
    for (size_t i = 0; i < users * live.window_count; i++) {
        found += seen[i].value != NULL;
    }
    redis_reader_drop(seen, users * live.window_count);
    free(seen);
    live_passes(&tally, minimum);
    assert_int_equal(backfill_job_before(job, " written for "), found);
    print_message("result: backfill: %" PRIu64 " keys and PXAT compared, %" PRIu64
                  " non-empty, %" PRIu64 " wrong\n",
                  tally.compared, tally.non_empty, tally.wrong);
}

/* Keys of users in this Redis, whose windows must be all there or all missing: a user without
 * events in the last hour has two, one with them three. */
static size_t count_whole_users(struct backfill_job *job)
{
    struct oracle_counts counts = {0};
    size_t users = oracle_user_count(live.oracle);
    struct redis_seen *seen = read_all(job->redis.port);
    int64_t at_ms = lab_wall_ms();
    size_t found = 0;
    for (size_t i = 0; i < users; i++) {
        size_t there = 0;
        size_t due = 0;
        for (size_t k = 0; k < live.window_count; k++) {
            struct oracle_query query = {.user = oracle_user(live.oracle, i),
                                         .window_ms = windows[k].length_ms,
                                         .at_ms = at_ms};
            oracle_query(live.oracle, &query, &counts);
            there += seen[i * live.window_count + k].value != NULL;
            due += counts.count > 0;
        }
        /* Within a second one event may have left. */
        assert_true(there == 0 || there >= due);
        found += there;
    }
    redis_reader_drop(seen, users * live.window_count);
    free(seen);
    oracle_counts_done(&counts);
    return found;
}

/* --- one topic, many Redis --- */

enum {
    JOB_WHOLE,
    JOB_ONE_WINDOW,
    JOB_ONE_OWNER,
    JOB_REDIS_AWAY,
    JOB_REDIS_GONE,
    JOB_STOP_CLAIMED,
    JOB_STOP_READING,
    JOB_STOP_WAITING,
    JOB_STOP_CHECKING,
    JOB_STOP_WRITING,
    JOB_STOP_WITHIN,
    JOB_STOP_EXECUTED,
    JOB_FULL_DISK,
    JOB_KAFKA_AWAY,
    JOB_KAFKA_GONE,
    JOB_SHORT_LOG,
    JOBS
};

static struct backfill_job jobs[JOBS];
static struct kafka_proxy *away_proxy;
static struct kafka_proxy *gone_proxy;
static char sets[3][128]; /* arguments of jobs */
static char short_topic[200];

static void stop_one(struct backfill_job *job, int signal, bool may_have_written)
{
    backfill_job_await_stop(job);
    backfill_job_continue(job, signal);
    backfill_job_ends(job, 128 + signal);
    size_t found = count_whole_users(job);
    if (may_have_written) {
        assert_true(found > 0);
        assert_non_null(strstr(job->text, "ended while writing"));
    } else {
        assert_int_equal(found, 0);
        assert_non_null(strstr(job->text, "no key was written"));
    }
}

static void start_jobs(void)
{
    static const struct backfill_job plan[JOBS] = {
        [JOB_WHOLE] = {.stop_at = NULL},
        [JOB_ONE_WINDOW] = {.arguments = {"--windows", "1d,"}},
        [JOB_ONE_OWNER] = {.stop_at = NULL},
        [JOB_REDIS_AWAY] = {.stop_at = "backfill_writing:2",
                            .arguments = {"--set", "redis.command_timeout=200ms"}},
        [JOB_REDIS_GONE] = {.stop_at = "backfill_writing:2", .arguments = {"--patience", "8"}},
        [JOB_STOP_CLAIMED] = {.stop_at = "backfill_claimed:1"},
        [JOB_STOP_READING] = {.stop_at = "backfill_spilled:500"},
        [JOB_STOP_WAITING] = {.stop_at = "backfill_waiting:1"},
        [JOB_STOP_CHECKING] = {.stop_at = "backfill_checking:1"},
        [JOB_STOP_WRITING] = {.stop_at = "backfill_writing:3"},
        [JOB_STOP_WITHIN] = {.stop_at = "backfill_queued:2"},
        [JOB_STOP_EXECUTED] = {.stop_at = "backfill_executed:1"},
        [JOB_FULL_DISK] = {.file_bytes_max = 100000},
        [JOB_KAFKA_AWAY] = {.stop_at = "backfill_claimed:1", .arguments = {"--set", sets[0]}},
        [JOB_KAFKA_GONE] = {.stop_at = "backfill_claimed:1",
                            .arguments = {"--set", sets[1], "--patience", "8"}},
        [JOB_SHORT_LOG] = {.arguments = {"--set", sets[2]}},
    };
    away_proxy = kafka_proxy_start(kafka_test_brokers());
    gone_proxy = kafka_proxy_start(kafka_test_brokers());
    (void)snprintf(sets[0], sizeof sets[0], "kafka.brokers=%s", kafka_proxy_address(away_proxy));
    (void)snprintf(sets[1], sizeof sets[1], "kafka.brokers=%s", kafka_proxy_address(gone_proxy));
    (void)snprintf(sets[2], sizeof sets[2], "kafka.topic=%s", short_topic);
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = plan[i];
        backfill_job_init(&jobs[i]);
    }
    /* Somebody's gate is open for partition 1. */
    (void)redis_server_ask(&jobs[JOB_ONE_OWNER].redis, "SET fc:epoch:test:1:owner %s EX 3600",
                           "1 x");
    for (size_t i = 0; i < JOBS; i++) {
        backfill_job_start(&jobs[i], &live, 0);
    }
}

/* Whatever answers late goes on; whoever is gone is not waited for without an end. */
static void test_redis_away(void)
{
    struct backfill_job *away = &jobs[JOB_REDIS_AWAY];
    struct backfill_job *gone = &jobs[JOB_REDIS_GONE];
    backfill_job_await_stop(away);
    redis_server_freeze(&away->redis);
    backfill_job_continue(away, 0);
    backfill_job_await_stop(gone);
    redis_server_kill(&gone->redis);
    backfill_job_continue(gone, 0);
    backfill_job_await_text(away, "waits at most 300 s");
    redis_server_thaw(&away->redis);
    backfill_job_ends(away, 0);
    assert_non_null(strstr(away->text, "backfill: goes on"));
    compare(away, (struct wanted){backfill_job_behind(away, "users as of "), ~0u, ALL_WINDOWS},
            (struct oracle_minimum){1000, 800, 10});
    backfill_job_ends(gone, 75);
    assert_non_null(strstr(gone->text, "given up after"));
    assert_non_null(strstr(gone->text, "run it again"));
}

/* A broker that comes back, and one that does not. */
static void test_kafka_away(void)
{
    struct backfill_job *away = &jobs[JOB_KAFKA_AWAY];
    struct backfill_job *gone = &jobs[JOB_KAFKA_GONE];
    backfill_job_await_stop(gone);
    kafka_proxy_cut(gone_proxy, true);
    backfill_job_continue(gone, 0);
    backfill_job_await_stop(away);
    kafka_proxy_cut(away_proxy, true);
    backfill_job_continue(away, 0);
    backfill_job_await_text(away, "waits for Kafka: partition");
    kafka_proxy_cut(away_proxy, false);
    backfill_job_ends(gone, 75);
    assert_non_null(strstr(gone->text, "given up: waits for Kafka: partition 0 has not told"));
    assert_int_equal(count_whole_users(gone), 0);
    backfill_job_ends(away, 0);
    compare(away, (struct wanted){backfill_job_behind(away, "users as of "), ~0u, ALL_WINDOWS},
            (struct oracle_minimum){1000, 800, 10});
}

/* Partition 0 has lost what was older than 30 hours, partition 1 holds what is older than can
 * matter, partition 2 has times that are none. */
static void make_short_log(void)
{
    int64_t now_ms = lab_wall_ms();
    (void)snprintf(short_topic, sizeof short_topic, "%s", kafka_unique("short"));
    kafka_create_topic(kafka_test_brokers(), short_topic, 3,
                       (const char *const[]){"retention.ms", "-1", NULL});
    struct kafka_producer *producer =
        kafka_producer_open(kafka_test_brokers(), short_topic, NULL, NULL);
    for (int i = 0; i < 240; i++) {
        char value[128];
        char user[8];
        int32_t partition = i % 3;
        int64_t ages_ms[] = {i < 120 ? 60 * HOUR_MS : 30 * HOUR_MS - 1000,
                             i < 120 ? 20 * DAY_MS : HOUR_MS / 2, HOUR_MS / 2};
        int64_t time_ms = now_ms - ages_ms[partition];
        (void)snprintf(user, sizeof user, "s%d", partition);
        int size =
            snprintf(value, sizeof value,
                     "{\"user_id\":\"%s\",\"ad_id\":\"a\",\"ts\":%" PRId64 ",\"id\":\"i%d\"}", user,
                     time_ms, i);
        kafka_producer_send(producer, &(struct kafka_produce){
                                          .partition = partition,
                                          .key = user,
                                          .key_size = strlen(user),
                                          .value = value,
                                          .value_size = (size_t)size,
                                          .timestamp_ms = partition == 2 ? i + 1 : time_ms,
                                      });
    }
    (void)kafka_producer_flush(producer);
    kafka_producer_close(producer);
    kafka_delete_records(kafka_test_brokers(), short_topic, 0, 40);
}

static void value_is(struct backfill_job *job, const char *key, int count)
{
    char wanted[64];
    const char *value = redis_server_ask(&job->redis, "GET %s", key);
    (void)snprintf(wanted, sizeof wanted, "\"counts\":{\"a\":%d}", count);
    if ((value == NULL) != (count == 0) || (count > 0 && strstr(value, wanted) == NULL)) {
        fail_msg("%s is %s, not %s:\n%s", key, value == NULL ? "absent" : value, wanted, job->text);
    }
}

static void test_short_log(void)
{
    struct backfill_job *job = &jobs[JOB_SHORT_LOG];
    backfill_job_ends(job, 0);
    assert_int_equal(backfill_job_before(job, " read in "), 40 + 40 + 80);
    value_is(job, "fc:{s0}:1h", 0);
    value_is(job, "fc:{s0}:1d", 0);
    value_is(job, "fc:{s0}:7d", 0); /* It has counts, but perhaps not all: held. */
    assert_int_equal(backfill_job_before(job, " are incomplete"), 1);
    assert_non_null(strstr(job->text, "7d (the log does not reach back far enough"));
    assert_null(strstr(job->text, "1d (the log"));
    value_is(job, "fc:{s1}:1h", 40);
    value_is(job, "fc:{s1}:7d", 40);
    value_is(job, "fc:{s2}:1h", 80);
}

static void test_every_key_and_every_end(void **unused)
{
    (void)unused;
    size_t count = is_full_size() ? 300000 : 20000;
    make_short_log();
    produce(count, (uint32_t)count / 20);
    live_read(&live);
    start_jobs();

    struct backfill_job *job = &jobs[JOB_FULL_DISK];
    backfill_job_ends(job, 75);
    assert_non_null(strstr(job->text, "spill: write: File too large"));
    assert_int_equal(count_whole_users(job), 0);
    stop_one(&jobs[JOB_STOP_CLAIMED], SIGINT, false);
    stop_one(&jobs[JOB_STOP_READING], SIGINT, false);
    stop_one(&jobs[JOB_STOP_WAITING], SIGTERM, false);
    stop_one(&jobs[JOB_STOP_CHECKING], SIGINT, false);
    stop_one(&jobs[JOB_STOP_WRITING], SIGTERM, true);
    stop_one(&jobs[JOB_STOP_WITHIN], SIGINT, true);
    stop_one(&jobs[JOB_STOP_EXECUTED], SIGINT, true);
    test_redis_away();
    test_kafka_away();
    test_short_log();

    job = &jobs[JOB_WHOLE];
    backfill_job_ends(job, 0);
    compare(job, (struct wanted){backfill_job_behind(job, "users as of "), ~0u, ALL_WINDOWS},
            (struct oracle_minimum){1000, 800, 10});
    assert_true(backfill_job_behind(job, "duplicate ") > 0);
    assert_true(backfill_job_behind(job, "late ") > 0);
    assert_true(backfill_job_behind(job, "future ") > 0);
    assert_true(backfill_job_before(job, " tombstones") > 0);
    assert_int_equal(backfill_job_before(job, " read in "),
                     live.read[0] + live.read[1] + live.read[2] + live.read[3]);
    print_message("%s", job->text);
    job = &jobs[JOB_ONE_WINDOW];
    backfill_job_ends(job, 0);
    compare(job, (struct wanted){backfill_job_behind(job, "users as of "), ~0u, 2u},
            (struct oracle_minimum){500, 400, 0});
    job = &jobs[JOB_ONE_OWNER];
    backfill_job_ends(job, 0);
    compare(job, (struct wanted){backfill_job_behind(job, "users as of "), ~2u, ALL_WINDOWS},
            (struct oracle_minimum){500, 400, 10});
    assert_int_equal(backfill_job_before(job, " left to a daemon"), 1);
    assert_null(redis_server_ask(&job->redis, "GET fc:epoch:test:1")); /* Not even claimed. */
    assert_int_equal(strtol(redis_server_ask(&job->redis, "GET fc:epoch:test:0"), NULL, 10), 1);
}

/* --- beside a daemon --- */

/* The race: backfill stands still within a transaction, or before one, while a daemon comes, takes
 * the partitions over and goes on, and users are erased. */
static void race(const char *stop_at, bool daemon_lives_on)
{
    char error[256];
    struct live_tally tally = {0};
    struct redis_reader *reader =
        redis_reader_open("127.0.0.1", live.redis.port, error, sizeof error);
    assert_non_null(reader);
    /* Of the round before, if there was one: its keys are gone, and its owner has been forgotten.
     */
    (void)redis_reader_remove(reader, "fc:epoch:*:owner");
    (void)redis_reader_remove(reader, "fc:{*");
    redis_reader_close(reader);
    /* A Redis that is slow today is no part of it. */
    struct backfill_job job = {.stop_at = stop_at,
                               .arguments = {"--set", "redis.command_timeout=60s"}};
    job.redis = (struct redis_server){.pid = 0};
    backfill_job_init(&job);
    backfill_job_start(&job, &live, live.redis.port);
    backfill_job_await_stop(&job);
    backfill_job_await_text(&job, "");
    size_t said = strlen(job.text); /* On a slow machine it waits for its first connection. */
    live_start(&live);
    for (int i = 0; i < 60; i++) {
        live_send_tombstone(&live, some_user(300));
        send_one(some_user(300), lab_wall_ms());
    }
    live_flush(&live);
    live_await_applied(&live);
    if (!daemon_lives_on) {
        live_stop(&live);
    }
    backfill_job_continue(&job, 0);
    backfill_job_ends(&job, 0);
    if (!daemon_lives_on) {
        live_start(&live);
        live_await_applied(&live);
    }
    assert_true(backfill_job_before(&job, " taken over by one") +
                    backfill_job_before(&job, " left to a daemon") >
                0);
    if (strstr(job.text + said, "waits at most") != NULL) {
        fail_msg("a lost race is no trouble:\n%s", job.text);
    }
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){600, 300, 50});
    live_passes(&tally.expiry, (struct oracle_minimum){300, 0, 0});
    live_stop(&live);
    backfill_job_done(&job);
}

/* Waits until the daemon has published that it has applied everything; it does so now and then. */
static void await_published(void)
{
    char progress[300];
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    (void)snprintf(progress, sizeof progress, "%s-group-progress", live.topic);
    for (int32_t i = 0; i < options.partitions;) {
        int64_t published = kafka_committed(kafka_test_brokers(), progress, live.topic, i);
        if (published == live.read[i] || (published == -1 && live.read[i] == 0)) {
            i++;
            continue;
        }
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(100);
    }
}

/* Nothing of a living daemon's is touched: no key, no offset, no member. */
static void test_a_living_daemon_is_left_alone(void **unused)
{
    (void)unused;
    static const char *const points[] = {"backfill_writing:1",  "backfill_queued:1",
                                         "backfill_writing:2",  "backfill_queued:2",
                                         "backfill_executed:1", "backfill_checking:1"};
    struct live_tally tally = {0};
    char group[256];
    produce(4000, 300);
    race("backfill_queued:1", true);
    for (size_t i = 0; i < sizeof points / sizeof points[0] && is_full_size(); i++) {
        produce(2000, 300); /* Instead of what was erased. */
        race(points[i], i % 2 == 0);
    }

    struct backfill_job job = {.pid = 0};
    live_start(&live);
    produce(100, 300);
    live_await_applied(&live);
    await_published();
    (void)snprintf(group, sizeof group, "%s-group", live.topic);
    const char *before = redis_server_ask(&live.redis, "GET fc:epoch:test:0");
    long epoch = strtol(before, NULL, 10);
    double rebalances = daemon_process_metric(&live.process, "fcapd_kafka_rebalances_total");
    backfill_job_init(&job);
    backfill_job_start(&job, &live, live.redis.port);
    backfill_job_ends(&job, 0);
    assert_int_equal(backfill_job_before(&job, " left to a daemon"), 4);
    assert_int_equal(backfill_job_before(&job, " written for "), 0);
    assert_int_equal(strtol(redis_server_ask(&live.redis, "GET fc:epoch:test:0"), NULL, 10), epoch);
    for (int32_t i = 0; i < options.partitions; i++) {
        assert_int_equal(kafka_committed(kafka_test_brokers(), group, live.topic, i), -1);
    }
    await_published(); /* As before. */
    assert_true(daemon_process_metric(&live.process, "fcapd_kafka_rebalances_total") == rebalances);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){600, 300, 50});
    live_stop(&live);
    backfill_job_done(&job);
}

static int setup(void **unused)
{
    (void)unused;
    live_init(&live, &options);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < JOBS; i++) {
        backfill_job_done(&jobs[i]);
    }
    kafka_proxy_stop(away_proxy);
    kafka_proxy_stop(gone_proxy);
    away_proxy = NULL;
    gone_proxy = NULL;
    live_done(&live);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_key_and_every_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_living_daemon_is_left_alone, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
