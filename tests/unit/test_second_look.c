/* What an old owner may write after a gate has opened is put right one session timeout later, also
 * when the partition goes and comes back before that; and an erasure takes away what an earlier
 * life left. On the core, with a store, a topic and a Redis in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "unit/pipeline_world.h"

enum { STEP_MS = 500, SESSION_MS = 10000 };

static struct fcap_task_report seen;
static int64_t commit_interval_ms;
static bool has_short_window;

static void start(void)
{
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    settings.commit_interval_ms = commit_interval_ms;
    settings.session_timeout_ms = SESSION_MS;
    settings.expiry_hold_ms = 0;
    if (has_short_window) {
        settings.windows[settings.window_count++] = (struct fcap_window){"1m", 60000};
    }
    pipeline_world_start(&settings, &pipeline_world_decoder);
}

static void look(void *context, const struct fcap_task_report *report)
{
    (void)context;
    seen = *report;
}

static void pass(int64_t ms)
{
    for (int64_t until_ms = world.now_ms + ms; world.now_ms < until_ms;) {
        world.now_ms += STEP_MS;
        if (fcap_pipeline_step(world.pipeline, 0) != FCAP_OK) {
            fail_msg("%s", fcap_pipeline_error(world.pipeline));
        }
    }
    seen = (struct fcap_task_report){0};
    fcap_pipeline_report(world.pipeline, look, NULL);
}

static void ignore(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    (void)context;
    (void)token;
    (void)result;
    (void)integer;
}

/* An owner of before, which shows what it knew. */
static void write_old(const char *key)
{
    struct fcap_fake_sink sink;
    struct fcap_sink_handler handler = {NULL, ignore};
    struct fcap_push push = {
        .kind = FCAP_PUSH_SET,
        .key = fcap_bytes_of(key),
        .value = fcap_bytes_of("{\"v\":1,\"as_of\":1,\"counts\":{\"old\":1}}"),
        .expire_at_ms = world.now_ms + PIPELINE_WORLD_HOUR_MS,
    };
    fcap_fake_sink_open(&sink, &world.redis, &world.clock, "an old owner");
    (void)sink.sink.ops->poll(&sink.sink, &handler, 0); /* Connects. */
    assert_int_equal(sink.sink.ops->push(&sink.sink, &push), FCAP_OK);
    (void)sink.sink.ops->poll(&sink.sink, &handler, 0); /* Is done. */
    fcap_fake_sink_close(&sink);
}

/* NULL: no key. */
static void expect(const char *key, const char *counts)
{
    struct fcap_bytes value;
    int64_t expire_at_ms;
    char text[256] = "";
    bool found = fcap_fake_redis_get(&world.redis, fcap_bytes_of(key), &value, &expire_at_ms);
    if (found) {
        (void)snprintf(text, sizeof text, "%.*s", (int)value.size, (const char *)value.data);
    }
    if (found != (counts != NULL) || (found && strstr(text, counts) == NULL)) {
        fail_msg("%s: \"%s\", not %s, at %lld", key, text, counts == NULL ? "absent" : counts,
                 (long long)(world.now_ms - PIPELINE_WORLD_NOW_MS));
    }
}

/* A user that is counted, shown and written by a task whose gate has just opened. */
static void open_with_a_user(void)
{
    pipeline_world_add(0, "u", "a", world.now_ms);
    start();
    pass(SESSION_MS / 2);
    assert_true(seen.gate_open);
    assert_int_equal(seen.committed_offset, 1);
    expect("fc:{u}:1h", "{\"a\":1}");
}

static void test_an_old_owner_is_put_right(void **state)
{
    (void)state;
    open_with_a_user();
    write_old("fc:{u}:1h");
    pass(SESSION_MS);
    expect("fc:{u}:1h", "{\"a\":1}");
}

static void test_also_when_the_partition_has_gone_and_come_back(void **state)
{
    (void)state;
    open_with_a_user();
    fake_source_revoke(&world.source, 0, false);
    pass(STEP_MS);
    fake_source_assign(&world.source, 0);
    pass(SESSION_MS / 4);
    assert_true(seen.gate_open);
    write_old("fc:{u}:1h");
    pass(SESSION_MS);
    expect("fc:{u}:1h", "{\"a\":1}");
}

static void test_also_after_a_restart(void **state)
{
    (void)state;
    open_with_a_user();
    pipeline_world_kill();
    start();
    pass(SESSION_MS / 4);
    assert_true(seen.gate_open);
    write_old("fc:{u}:1h");
    pass(SESSION_MS);
    expect("fc:{u}:1h", "{\"a\":1}");
}

/* The users' ids need more room than they are given. */
static void test_also_when_the_ids_are_long(void **state)
{
    enum { USERS = 30, ID_SIZE = 10000 };
    static char ids[USERS][ID_SIZE + 1];
    static char last_key[ID_SIZE + 16];
    (void)state;
    commit_interval_ms = SESSION_MS; /* No commit while the gate is closed. */
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < USERS; i++) {
            memset(ids[i], 'A' + i, ID_SIZE);
            pipeline_world_add(0, ids[i], "a", world.now_ms);
        }
        start();
        pass(run == 0 ? 3 * SESSION_MS : SESSION_MS / 4);
        assert_true(seen.gate_open);
        if (run == 0) {
            pipeline_world_kill();
        }
    }
    (void)snprintf(last_key, sizeof last_key, "fc:{%s}:1h", ids[USERS - 1]); /* Fits. */
    expect(last_key, "{\"a\":2}");
    write_old(last_key);
    pass(SESSION_MS);
    expect(last_key, "{\"a\":2}");
}

/* Redis was emptied: the old owner was showing everything, not only what records had changed. */
static void test_also_when_the_old_owner_was_showing_everything(void **state)
{
    (void)state;
    open_with_a_user();
    pass(2 * SESSION_MS);
    pipeline_world_kill();
    fcap_fake_redis_flush(&world.redis);
    start();
    pass(SESSION_MS / 2);
    assert_true(seen.gate_open);
    expect("fc:{u}:1h", "{\"a\":1}");
    write_old("fc:{u}:1h");
    pass(SESSION_MS);
    expect("fc:{u}:1h", "{\"a\":1}");
}

/* One that goes in the middle of what it shows once more leaves that to the next, too. */
static void test_also_when_it_goes_twice(void **state)
{
    (void)state;
    open_with_a_user();
    for (int i = 0; i < 2; i++) {
        pipeline_world_kill();
        start();
        pass(SESSION_MS / 4);
        assert_true(seen.gate_open);
    }
    write_old("fc:{u}:1h");
    pass(SESSION_MS);
    expect("fc:{u}:1h", "{\"a\":1}");
}

/* What was done is not done again: a restart shows nothing that has not changed. */
static void test_a_look_that_was_done_is_not_left(void **state)
{
    (void)state;
    open_with_a_user();
    pass(2 * SESSION_MS);
    pipeline_world_kill();
    start();
    pass(3 * SESSION_MS);
    assert_true(seen.gate_open);
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->full_projections, 0);
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->pushes_set, 0);
}

/* A look that took a complete projection is done with it. */
static void test_a_look_at_all_is_done_once(void **state)
{
    (void)state;
    open_with_a_user();
    for (uint64_t projections = 1; projections != UINT64_MAX; projections--) {
        pipeline_world_kill();
        start();
        pass(3 * SESSION_MS);
        assert_true(seen.gate_open);
        assert_int_equal(fcap_pipeline_counters(world.pipeline)->full_projections, projections);
    }
}

/* --- erasures --- */

/* The window is held back, for what it lacks; the key is of an owner that lacked nothing, and lacks
 * what came since. Nothing is known of a user who is not heard of. */
static void test_a_change_in_a_window_that_is_held_back(void **state)
{
    (void)state;
    write_old("fc:{gone}:1h");
    write_old("fc:{other}:1h");
    write_old("fc:{silent}:1h");
    for (int i = 0; i < 4; i++) {
        pipeline_world_add(0, "other", "a", world.now_ms);
    }
    pipeline_world_add(0, "gone", NULL, world.now_ms);
    fake_topic_trim(&world.topic, 0, 2);
    start();
    pass(SESSION_MS);
    assert_true(seen.gate_open);
    assert_int_equal(seen.ready_mask, 0);
    expect("fc:{other}:1h", NULL);
    expect("fc:{gone}:1h", NULL);
    expect("fc:{silent}:1h", "{\"old\":1}");
    write_old("fc:{other}:1h"); /* It may come late, and the gate is open now. */
    pipeline_world_add(0, "other", "a", world.now_ms);
    pass(SESSION_MS);
    expect("fc:{other}:1h", NULL);
}

/* The state knows of the erasure, but no record names the user any more; one of two windows is held
 * back. */
static void open_with_an_erasure(void)
{
    has_short_window = true;
    for (int i = 0; i < 3; i++) {
        pipeline_world_add(0, "gone", i < 2 ? "a" : NULL, world.now_ms);
    }
    fake_topic_trim(&world.topic, 0, 1);
    start();
    pass(PIPELINE_WORLD_HOUR_MS / 6);
    assert_int_equal(seen.ready_mask, 2);
    expect("fc:{gone}:1h", NULL);
}

static void test_an_old_owner_undoes_an_erasure_in_a_window_that_is_held_back(void **state)
{
    (void)state;
    open_with_an_erasure();
    pipeline_world_kill();
    fcap_fake_redis_flush(&world.redis); /* A complete projection is due. */
    start();
    pass(SESSION_MS / 4);
    assert_true(seen.gate_open);
    write_old("fc:{gone}:1h");
    write_old("fc:{gone}:1m");
    pass(SESSION_MS);
    expect("fc:{gone}:1m", NULL);
    expect("fc:{gone}:1h", NULL);
}

static void test_an_older_copy_of_redis_undoes_one(void **state)
{
    (void)state;
    write_old("fc:{gone}:1h");
    fcap_fake_redis_save(&world.redis);
    open_with_an_erasure();
    fcap_fake_redis_restart(&world.redis, FCAP_FAKE_RESTART_SAVED);
    expect("fc:{gone}:1h", "{\"old\":1}");
    pass(SESSION_MS);
    expect("fc:{gone}:1h", NULL);
}

/* Redis' clock says that the key has gone by itself, and is set back before it has. */
static int64_t set_back_ms;

static int64_t redis_now_ms(struct fcap_clock *clock)
{
    (void)clock;
    return world.now_ms - set_back_ms;
}

static void test_an_erasure_when_the_clock_of_redis_is_set_back(void **state)
{
    static struct fcap_clock clock = {redis_now_ms, redis_now_ms};
    (void)state;
    set_back_ms = 0;
    fcap_fake_redis_done(&world.redis);
    fcap_fake_redis_init(&world.redis, &clock);
    open_with_a_user();
    pass(3 * SESSION_MS);
    set_back_ms = PIPELINE_WORLD_HOUR_MS + SESSION_MS;
    world.now_ms += set_back_ms;                    /* Long enough for it, by what was told last, */
    pipeline_world_add(0, "u", NULL, world.now_ms); /* before T has moved. */
    pass(SESSION_MS);
    expect("fc:{u}:1h", NULL);
}

/* Partitions are added while T lags: it says nothing of when the tombstone was sent. */
static void test_an_erasure_while_t_lags_and_the_topic_grows(void **state)
{
    (void)state;
    open_with_a_user();
    pass(3 * SESSION_MS);
    expect("fc:{u}:1h", "{\"a\":1}");
    world.now_ms += PIPELINE_WORLD_HOUR_MS / 12;
    fake_topic_grow(&world.topic, 2);
    pipeline_world_add(0, "u", NULL, world.now_ms);
    pass(2 * SESSION_MS);
    expect("fc:{u}:1h", NULL);
}

static int setup(void **state)
{
    seen = (struct fcap_task_report){0};
    commit_interval_ms = STEP_MS;
    has_short_window = false;
    return pipeline_world_setup(state);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, pipeline_world_teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_an_old_owner_is_put_right),
        CASE(test_also_when_the_partition_has_gone_and_come_back),
        CASE(test_also_after_a_restart),
        CASE(test_also_when_the_ids_are_long),
        CASE(test_also_when_the_old_owner_was_showing_everything),
        CASE(test_also_when_it_goes_twice),
        CASE(test_a_look_that_was_done_is_not_left),
        CASE(test_a_look_at_all_is_done_once),
        CASE(test_a_change_in_a_window_that_is_held_back),
        CASE(test_an_old_owner_undoes_an_erasure_in_a_window_that_is_held_back),
        CASE(test_an_older_copy_of_redis_undoes_one),
        CASE(test_an_erasure_when_the_clock_of_redis_is_set_back),
        CASE(test_an_erasure_while_t_lags_and_the_topic_grows),
    };
    return cmocka_run_group_tests_name("second look", tests, NULL, NULL);
}
