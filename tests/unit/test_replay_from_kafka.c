/* run --replay-from-kafka (docs/decisions/0017): once, whatever dies in the middle, and never at
 * the price of history that the state has. On the core, with a store, a topic and a Redis in
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/key.h"
#include "unit/pipeline_world.h"

#define NOW_MS    PIPELINE_WORLD_NOW_MS
#define HOUR_MS   PIPELINE_WORLD_HOUR_MS
#define MINUTE_MS 60000ll

enum { STEPS_MAX = 5000 };

static void make_settings(struct fcap_settings *settings, bool is_longer)
{
    pipeline_world_settings(settings);
    settings->commit_interval_ms = 0;
    settings->commit_defer = 0;
    settings->bucket_ms = MINUTE_MS;
    settings->replay_from_kafka = is_longer;
    if (is_longer) {
        settings->windows[settings->window_count++] = (struct fcap_window){"4h", 4 * HOUR_MS};
    }
}

static void start(bool is_longer)
{
    struct fcap_settings settings;
    pipeline_world_kill();
    make_settings(&settings, is_longer);
    pipeline_world_start(&settings, &pipeline_world_decoder);
}

static void run(bool is_longer)
{
    start(is_longer);
    assert_int_equal(pipeline_world_rest(STEPS_MAX), FCAP_OK);
}

static void add(const char *user, int64_t age_ms)
{
    pipeline_world_add(0, user, "a", NOW_MS - age_ms);
}

/* NULL: not there. Valid until the next change. */
static const char *value_of(const char *key)
{
    static char text[256];
    struct fcap_bytes value;
    int64_t expire_at_ms;
    if (!fcap_fake_redis_get(&world.redis, fcap_bytes_of(key), &value, &expire_at_ms)) {
        return NULL;
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)value.size, (const char *)value.data);
    return text;
}

/* 0: not there. */
static void assert_count(const char *key, unsigned count)
{
    char wanted[32];
    const char *value = value_of(key);
    (void)snprintf(wanted, sizeof wanted, "\"counts\":{\"a\":%u}", count);
    if ((count == 0) != (value == NULL) || (value != NULL && strstr(value, wanted) == NULL)) {
        fail_msg("%s: %u wanted, found %s", key, count, value == NULL ? "nothing" : value);
    }
}

static void read_meta(struct fcap_meta *ret_meta)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    bool found = false;
    struct fcap_store *store = fake_store_handle(world.store);
    fcap_key_meta(&key, 0, FCAP_META_NAME);
    assert_int_equal(
        store->ops->get(store, FCAP_FAMILY_META, fcap_buffer_bytes(&key), &value, &found), FCAP_OK);
    assert_true(found);
    assert_int_equal(fcap_meta_decode(fcap_buffer_bytes(&value), ret_meta), FCAP_OK);
    fcap_buffer_done(&key);
    fcap_buffer_done(&value);
}

static uint64_t replays(void)
{
    return fcap_pipeline_counters(world.pipeline)->replays;
}

static enum fcap_start_kind start_kind(void)
{
    return world.source.owned[0].start.kind;
}

static void refused(const char *why)
{
    start(true);
    assert_int_equal(pipeline_world_rest(STEPS_MAX), FCAP_CONFIG);
    if (strstr(fcap_pipeline_error(world.pipeline), why) == NULL) {
        fail_msg("%s", fcap_pipeline_error(world.pipeline));
    }
}

static void reads_back_once(void **unused)
{
    struct fcap_meta meta;
    (void)unused;
    add("u", 3 * HOUR_MS);
    add("u", 30 * MINUTE_MS);
    run(false);
    assert_count("fc:{u}:1h", 1);
    run(true);
    assert_int_equal(replays(), 1);
    assert_int_equal(start_kind(), FCAP_START_AGAIN);
    assert_count("fc:{u}:1h", 1);
    assert_count("fc:{u}:4h", 2);
    run(true);
    assert_int_equal(replays(), 0);
    assert_int_equal(start_kind(), FCAP_START_OFFSET);
    assert_count("fc:{u}:4h", 2);
    pipeline_world_kill();
    read_meta(&meta);
    assert_int_equal(meta.next_ad, 2); /* The first one's number is not used again. */
}

/* Made longer without it, and only then somebody wants it. */
static void comes_late(void **unused)
{
    struct fcap_settings settings;
    (void)unused;
    add("u", 3 * HOUR_MS);
    add("u", 30 * MINUTE_MS);
    run(false);
    pipeline_world_kill();
    make_settings(&settings, true);
    settings.replay_from_kafka = false;
    pipeline_world_start(&settings, &pipeline_world_decoder);
    assert_int_equal(pipeline_world_rest(STEPS_MAX), FCAP_OK);
    assert_count("fc:{u}:4h", 0); /* Held back. */
    run(true);
    assert_int_equal(replays(), 1);
    assert_count("fc:{u}:4h", 2);
    /* When the window has become ready by itself there is nothing to do. */
    settings.replay_from_kafka = false;
    run(true);
    assert_int_equal(replays(), 0);
}

static void would_lose(void **unused)
{
    (void)unused;
    add("u", 3 * HOUR_MS);
    add("u", 50 * MINUTE_MS);
    add("u", 30 * MINUTE_MS);
    add("u", 5 * MINUTE_MS);
    run(false);
    assert_count("fc:{u}:1h", 3);
    pipeline_world_kill();
    fake_topic_trim(&world.topic, 0, 2);
    refused("partition 0: --replay-from-kafka would lose history: the log holds everything since "
            "1699998560000 only, the state since 1699996400000");
    run(false); /* Nothing has happened to it. */
    assert_count("fc:{u}:1h", 3);
}

/* The log is cut, but behind what the state knows. */
static void loses_nothing(void **unused)
{
    (void)unused;
    add("u", 3 * HOUR_MS);
    add("u", 2 * HOUR_MS);
    add("u", 50 * MINUTE_MS);
    run(false);
    pipeline_world_kill();
    fake_topic_trim(&world.topic, 0, 1);
    run(true);
    assert_int_equal(replays(), 1);
    assert_count("fc:{u}:1h", 1);
    assert_count("fc:{u}:4h", 0); /* Held back: two hours are missing. */
    pipeline_world_kill();
    world.now_ms += 3 * HOUR_MS; /* Since the first record, four hours and some minutes. */
    run(true);
    assert_int_equal(replays(), 0);
    assert_count("fc:{u}:4h", 1);
}

/* Retention has taken everything: what the state had read last tells. */
static void idle_partition(void **unused)
{
    (void)unused;
    add("u", 3 * HOUR_MS);
    world.now_ms = NOW_MS - 5 * HOUR_MS / 2;
    run(false);
    assert_count("fc:{u}:1h", 1);
    pipeline_world_kill();
    fake_topic_trim(&world.topic, 0, 1);
    world.now_ms = NOW_MS - 9 * HOUR_MS / 4;
    refused("would lose history"); /* It still counts. */
    world.now_ms = NOW_MS;
    run(true);
    assert_int_equal(replays(), 1);
}

static void another_log(void **unused)
{
    (void)unused;
    add("u", 30 * MINUTE_MS);
    run(false);
    pipeline_world_kill();
    fake_topic_recreate(&world.topic, 0);
    add("v", 20 * MINUTE_MS);
    add("v", 10 * MINUTE_MS);
    refused("not the one that the state was read from");
    run(false);
    assert_count("fc:{u}:1h", 1);
}

/* Retention has taken what was never read, and the state is too old to be of any use. */
static void old_state(void **unused)
{
    (void)unused;
    world.now_ms = NOW_MS - 8 * HOUR_MS;
    add("u", 8 * HOUR_MS + MINUTE_MS);
    run(false);
    pipeline_world_kill();
    add("u", 7 * HOUR_MS);
    add("u", 3 * HOUR_MS);
    add("u", 2 * HOUR_MS);
    world.now_ms = NOW_MS;
    fake_topic_trim(&world.topic, 0, 2);
    run(true);
    assert_int_equal(replays(), 1);
    assert_int_equal(world.source.owned[0].next, 4);
    add("u", 0);
    assert_int_equal(pipeline_world_rest(STEPS_MAX), FCAP_OK);
    assert_count("fc:{u}:1h", 1);
}

static bool gate_is_open;

static void look(void *context, const struct fcap_task_report *report)
{
    (void)context;
    gate_is_open = report->gate_open;
}

/* Killed after each number of steps, from before its first commit to its end: every key stays as
 * it was until the gate opens, and in the end all is right. */
static void killed_in_the_middle(void **unused)
{
    enum { RECORDS = 20 };
    unsigned goes_on = 0;
    unsigned begins_again = 0;
    (void)unused;
    for (int steps = 1; steps < RECORDS + 12; steps++) {
        struct fcap_settings settings;
        pipeline_world_done();
        pipeline_world_init(1);
        for (int i = 0; i < RECORDS; i++) {
            add("u", 3 * HOUR_MS + 1 - i * 10 * MINUTE_MS);
        }
        world.now_ms = NOW_MS + 15 * MINUTE_MS;
        run(false);
        assert_count("fc:{u}:1h", 6);
        pipeline_world_kill();
        make_settings(&settings, true);
        settings.records_per_step = 1;
        pipeline_world_start(&settings, &pipeline_world_decoder);
        gate_is_open = false;
        for (int i = 0; i < steps && !gate_is_open; i++) {
            assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
            fcap_pipeline_report(world.pipeline, look, NULL);
            if (!gate_is_open) {
                assert_count("fc:{u}:1h", 6);
                assert_count("fc:{u}:4h", 0);
            }
        }
        run(true);
        goes_on += replays() == 0;
        begins_again += replays() == 1;
        assert_count("fc:{u}:1h", 6);
        assert_count("fc:{u}:4h", RECORDS);
    }
    assert_true(begins_again > 0 && goes_on > RECORDS / 2);
}

/* The state begins below what the store has dropped before: that is no reason to read it anew at
 * every start. */
static void below_dropped_timers(void **unused)
{
    (void)unused;
    world.now_ms = NOW_MS - 5 * HOUR_MS;
    run(false);
    while (world.now_ms < NOW_MS) {
        world.now_ms += 3 * MINUTE_MS;
        add("u", NOW_MS - world.now_ms);
        assert_int_equal(pipeline_world_rest(STEPS_MAX), FCAP_OK);
    }
    assert_true(fake_store_counts(world.store).timers_dropped > 0);
    assert_count("fc:{u}:1h", 20);
    run(true);
    assert_count("fc:{u}:4h", 80);
    for (int i = 0; i < 3; i++) {
        run(true);
        assert_int_equal(replays(), 0);
        assert_int_equal(start_kind(), FCAP_START_OFFSET);
        world.now_ms += 3 * MINUTE_MS;
    }
    assert_int_equal(pipeline_world_rest(STEPS_MAX), FCAP_OK);
    assert_count("fc:{u}:4h", 77);
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, pipeline_world_setup, pipeline_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_back_once), TEST(comes_late),           TEST(would_lose),
        TEST(loses_nothing),   TEST(idle_partition),       TEST(another_log),
        TEST(old_state),       TEST(killed_in_the_middle), TEST(below_dropped_timers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
