/* See fake_world.h. */
#include "lib/fake_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct {
    struct fcap_clock clock;
    int64_t now_ms;
    struct fcap_fake_redis redis;
    struct fcap_fake_sink sinks[FAKE_WORLD_SINKS_MAX];
    bool used[FAKE_WORLD_SINKS_MAX];
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
    for (size_t i = 0; i < FAKE_WORLD_SINKS_MAX; i++) {
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
    for (size_t i = 0; i < FAKE_WORLD_SINKS_MAX; i++) {
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
    for (size_t i = 0; i < FAKE_WORLD_SINKS_MAX; i++) {
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

struct fcap_fake_redis *fake_world_redis(void)
{
    return &fake.redis;
}

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
