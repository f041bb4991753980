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
#include "lib/fake_world.h"
#include "lab/lab.h"
#include "lab/redis_server.h"

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
    long bytes = strtol(size, NULL, 10);
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
        .now_ms = lab_wall_ms,
        .wait_ms = lab_pause_ms,
    };
    int failed = sink_contract_run(&fake_world);
    return failed + sink_contract_run(&real_world);
}
