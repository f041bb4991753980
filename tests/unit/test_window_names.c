/* What becomes of the keys when a window gets another name, or a name another window. On the core,
 * with a store, a topic and a Redis in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/pipeline_world.h"

#define NOW_MS    PIPELINE_WORLD_NOW_MS
#define HOUR_MS   PIPELINE_WORLD_HOUR_MS
#define MINUTE_MS 60000ll

enum { STEPS_MAX = 5000 };

/* A process with these windows; a length of 0 ends them. */
static void start(const struct fcap_window windows[3])
{
    struct fcap_settings settings;
    pipeline_world_kill();
    pipeline_world_settings(&settings);
    settings.commit_interval_ms = 0;
    settings.bucket_ms = MINUTE_MS;
    settings.expiry_hold_ms = 0; /* Time stands still while it settles. */
    settings.window_count = 0;
    while (settings.window_count < 3 && windows[settings.window_count].length_ms > 0) {
        settings.windows[settings.window_count] = windows[settings.window_count];
        settings.window_count++;
    }
    pipeline_world_start(&settings, &pipeline_world_decoder);
}

static void settle(void)
{
    if (pipeline_world_rest(STEPS_MAX) != FCAP_OK) {
        fail_msg("%s", fcap_pipeline_error(world.pipeline));
    }
}

static void run(const struct fcap_window windows[3])
{
    start(windows);
    settle();
}

static void add(int64_t time_ms)
{
    pipeline_world_add(0, "u", "a", time_ms);
}

/* 0: not there. */
static void check(const char *key, unsigned count, int64_t wanted_expire_at_ms)
{
    char wanted[32];
    struct fcap_bytes value = FCAP_BYTES_NONE;
    int64_t expire_at_ms = 0;
    bool is_there = fcap_fake_redis_get(&world.redis, fcap_bytes_of(key), &value, &expire_at_ms);
    (void)snprintf(wanted, sizeof wanted, "\"counts\":{\"a\":%u}", count);
    if (is_there != (count > 0) ||
        (is_there && memmem(value.data, value.size, wanted, strlen(wanted)) == NULL)) {
        fail_msg("%s: %u wanted, found %.*s", key, count, (int)value.size,
                 is_there ? (const char *)value.data : "");
    }
    if (is_there) {
        assert_int_equal(expire_at_ms, wanted_expire_at_ms);
    }
}

static const struct fcap_window hour[3] = {{"hour", HOUR_MS}};
static const struct fcap_window stunde[3] = {{"stunde", HOUR_MS}};

/* The new keys are there at once; the old ones stay as they are and go by their PXAT. */
static void renamed(void **unused)
{
    int64_t event_ms = NOW_MS - 30 * MINUTE_MS;
    (void)unused;
    add(event_ms);
    run(hour);
    check("fc:{u}:hour", 1, event_ms + HOUR_MS - 1);
    run(stunde);
    check("fc:{u}:stunde", 1, event_ms + HOUR_MS - 1);
    add(world.now_ms);
    settle();
    check("fc:{u}:stunde", 2, world.now_ms + HOUR_MS - 1);
    check("fc:{u}:hour", 1, event_ms + HOUR_MS - 1);
    world.now_ms = event_ms + HOUR_MS - 1;
    check("fc:{u}:hour", 1, event_ms + HOUR_MS - 1);
    world.now_ms++;
    check("fc:{u}:hour", 0, 0);
    settle();
    check("fc:{u}:stunde", 1, NOW_MS + HOUR_MS - 1);
}

/* Incomplete, but shown under its old name: the new one shows the same. */
static void renamed_after_a_gap(void **unused)
{
    (void)unused;
    add(NOW_MS - 30 * MINUTE_MS);
    run(hour);
    pipeline_world_kill();
    add(NOW_MS); /* Lost. */
    add(NOW_MS);
    fake_topic_trim(&world.topic, 0, 2);
    run(stunde);
    check("fc:{u}:stunde", 2, NOW_MS + HOUR_MS - 1);
}

static void names_exchanged(void **unused)
{
    static const struct fcap_window before[3] = {{"a", HOUR_MS}, {"b", 3 * HOUR_MS}};
    static const struct fcap_window after[3] = {{"b", HOUR_MS}, {"a", 3 * HOUR_MS}};
    (void)unused;
    add(NOW_MS - 2 * HOUR_MS);
    add(NOW_MS - 2 * HOUR_MS);
    run(before);
    check("fc:{u}:a", 0, 0);
    check("fc:{u}:b", 2, NOW_MS + HOUR_MS - 1);
    run(after);
    check("fc:{u}:a", 2, NOW_MS + HOUR_MS - 1);
    check("fc:{u}:b", 0, 0);
    add(NOW_MS);
    settle();
    check("fc:{u}:a", 3, NOW_MS + 3 * HOUR_MS - 1);
    check("fc:{u}:b", 1, NOW_MS + HOUR_MS - 1);
}

/* A longer window of the same name is held back until it is complete, and what Redis holds under
 * that name is of the shorter one: it goes, whenever the process dies. */
static void name_of_a_window_that_is_held_back(void **unused)
{
    static const struct fcap_window longer[3] = {{"hour", 3 * HOUR_MS}};
    (void)unused;
    for (int steps = 0; steps < 12; steps++) {
        pipeline_world_done();
        pipeline_world_init(1);
        add(NOW_MS - 30 * MINUTE_MS);
        world.now_ms = NOW_MS - 29 * MINUTE_MS;
        run(hour);
        check("fc:{u}:hour", 1, NOW_MS + 30 * MINUTE_MS - 1);
        world.now_ms = NOW_MS;
        start(longer);
        for (int i = 0; i < steps; i++) {
            assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
        }
        run(longer);
        check("fc:{u}:hour", 0, 0);
        add(NOW_MS);
        settle();
        check("fc:{u}:hour", 0, 0);
        world.now_ms = NOW_MS + 100 * MINUTE_MS; /* Three hours since the first was complete. */
        settle();
        check("fc:{u}:hour", 2, NOW_MS + 3 * HOUR_MS - 1);
        run(longer);
        check("fc:{u}:hour", 2, NOW_MS + 3 * HOUR_MS - 1);
    }
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, pipeline_world_setup, pipeline_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(renamed),
        TEST(renamed_after_a_gap),
        TEST(names_exchanged),
        TEST(name_of_a_window_that_is_held_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
