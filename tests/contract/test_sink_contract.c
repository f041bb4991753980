/* The sink's contract on the fake of the simulator, and on the adapter with a real redis-server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract/sink_contract.h"
#include "fcap/sink_redis.h"
#include "lib/fake_sink.h"
#include "lib/redis_server.h"

enum { SINKS_MAX = 4 };

/* --- the fake ----------------------------------------------------------------------------- */

static struct {
    struct fcap_clock clock;
    int64_t now_ms;
    struct fcap_fake_redis redis;
    struct fcap_fake_sink sinks[SINKS_MAX];
    bool used[SINKS_MAX];
} fake;

static int64_t fake_wall_ms(struct fcap_clock *clock)
{
    (void)clock;
    return 1700000000000 + fake.now_ms;
}

static int64_t fake_monotonic_ms(struct fcap_clock *clock)
{
    (void)clock;
    return fake.now_ms;
}

/* Whatever may happen does. */
static uint32_t draw_lowest(void *context, uint32_t bound)
{
    (void)context;
    (void)bound;
    return 0;
}

static void fake_start(void)
{
    memset(&fake, 0, sizeof fake);
    fake.clock = (struct fcap_clock){.wall_ms = fake_wall_ms, .monotonic_ms = fake_monotonic_ms};
    fcap_fake_redis_init(&fake.redis, &fake.clock);
    fake.redis.draw = draw_lowest;
}

static void fake_stop(void)
{
    fcap_fake_redis_done(&fake.redis);
}

static struct fcap_sink *fake_open(unsigned worker, size_t in_flight_max)
{
    for (size_t i = 0; i < SINKS_MAX; i++) {
        if (!fake.used[i]) {
            char name[32];
            (void)snprintf(name, sizeof name, "fcapd:p:i:%u", worker);
            fake.used[i] = true;
            fcap_fake_sink_open(&fake.sinks[i], &fake.redis, &fake.clock, name);
            fake.sinks[i].in_flight_max = in_flight_max;
            return &fake.sinks[i].sink;
        }
    }
    fail_msg("too many sinks");
    return NULL;
}

static void fake_close(struct fcap_sink *sink)
{
    for (size_t i = 0; i < SINKS_MAX; i++) {
        if (sink == &fake.sinks[i].sink) {
            fcap_fake_sink_close(&fake.sinks[i]);
            fake.used[i] = false;
        }
    }
}

static bool fake_get(const char *key, struct fcap_buffer *ret_value)
{
    struct fcap_bytes value;
    int64_t expire_at_ms;
    if (!fcap_fake_redis_get(&fake.redis, fcap_bytes_of(key), &value, &expire_at_ms)) {
        return false;
    }
    fcap_buffer_put_bytes(ret_value, value);
    return true;
}

static void fake_down(bool down)
{
    fake.redis.down = down;
}

static void fake_hold(bool hold)
{
    for (size_t i = 0; i < SINKS_MAX; i++) {
        fake.sinks[i].faults.slow_per_command = hold ? 1000 : 0;
    }
}

static void fake_full(bool full)
{
    fake.redis.full = full;
}

static void fake_flush(void)
{
    fcap_fake_redis_flush(&fake.redis);
}

static void fake_delete_sentinel(void)
{
    fcap_fake_redis_delete_sentinel(&fake.redis);
}

static void fake_restart(bool keep_data)
{
    fcap_fake_redis_restart(&fake.redis,
                            keep_data ? FCAP_FAKE_RESTART_ALL : FCAP_FAKE_RESTART_EMPTY);
}

static int64_t fake_now_ms(void)
{
    return fake_wall_ms(NULL);
}

static void fake_wait_ms(int64_t ms)
{
    fake.now_ms += ms;
}

/* --- the adapter -------------------------------------------------------------------------- */

static struct redis_server server;

static void real_start(void)
{
    redis_server_start(&server, NULL);
}

static void real_stop(void)
{
    redis_server_stop(&server);
}

static struct fcap_sink *real_open(unsigned worker, size_t in_flight_max)
{
    struct fcap_sink_redis_settings settings;
    struct fcap_sink *sink = NULL;
    struct fcap_error error;
    fcap_sink_redis_settings_default(&settings);
    settings.port = server.port;
    settings.worker = worker;
    settings.commands_in_flight_max = in_flight_max;
    settings.backoff_min_ms = 5;
    settings.backoff_max_ms = 50;
    settings.time_interval_ms = 100;
    settings.identity_interval_ms = 200;
    assert_int_equal(fcap_sink_redis_open(&settings, &error, &sink), FCAP_OK);
    return sink;
}

static bool real_get(const char *key, struct fcap_buffer *ret_value)
{
    /* The size is asked too, since the text may hold NUL. */
    const char *size = redis_server_ask(&server, "STRLEN %s", key);
    assert_non_null(size);
    long bytes = atol(size);
    const char *value = redis_server_ask(&server, "GET %s", key);
    if (value == NULL) {
        return false;
    }
    fcap_buffer_put(ret_value, value, (size_t)bytes);
    return true;
}

static void real_down(bool down)
{
    if (!down) {
        redis_server_restart(&server, true);
        return;
    }
    if (!redis_server_is_frozen(&server)) {
        assert_string_equal(redis_server_ask(&server, "SAVE"), "OK");
    }
    redis_server_kill(&server);
}

static void real_hold(bool hold)
{
    if (hold) {
        assert_string_equal(redis_server_ask(&server, "SAVE"), "OK");
        redis_server_freeze(&server);
    } else if (server.pid > 0) {
        redis_server_thaw(&server);
    }
}

static void real_full(bool full)
{
    assert_string_equal(redis_server_ask(&server, "CONFIG SET maxmemory %s", full ? "1" : "0"),
                        "OK");
}

static void real_flush(void)
{
    assert_string_equal(redis_server_ask(&server, "FLUSHALL"), "OK");
}

static void real_delete_sentinel(void)
{
    assert_string_equal(redis_server_ask(&server, "DEL fc:id"), "1");
}

static void real_restart(bool keep_data)
{
    if (keep_data) {
        assert_string_equal(redis_server_ask(&server, "SAVE"), "OK");
    }
    redis_server_kill(&server);
    redis_server_restart(&server, keep_data);
}

int main(void)
{
    const struct sink_world fake_world = {
        .name = "sink contract: fake",
        .start = fake_start,
        .stop = fake_stop,
        .open = fake_open,
        .close = fake_close,
        .get = fake_get,
        .down = fake_down,
        .hold = fake_hold,
        .full = fake_full,
        .flush = fake_flush,
        .delete_sentinel = fake_delete_sentinel,
        .restart = fake_restart,
        .now_ms = fake_now_ms,
        .wait_ms = fake_wait_ms,
    };
    const struct sink_world real_world = {
        .name = "sink contract: Redis",
        .start = real_start,
        .stop = real_stop,
        .open = real_open,
        .close = fcap_sink_redis_close,
        .get = real_get,
        .down = real_down,
        .hold = real_hold,
        .full = real_full,
        .flush = real_flush,
        .delete_sentinel = real_delete_sentinel,
        .restart = real_restart,
        .now_ms = redis_server_wall_ms,
        .wait_ms = redis_server_pause_ms,
    };
    int failed = sink_contract_run(&fake_world);
    return failed + sink_contract_run(&real_world);
}
