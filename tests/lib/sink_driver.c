/* See sink_driver.h. */
#include "lib/sink_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lab/redis_server.h"
#include "lab/lab.h"

enum { PATIENCE_MS = 10000, TTL_MS = 600000 };

void sink_driver_init(struct sink_driver *driver, uint16_t port)
{
    memset(driver, 0, sizeof *driver);
    fcap_sink_redis_settings_default(&driver->settings);
    driver->settings.port = port;
    driver->settings.profile = "test";
    driver->settings.instance = "here";
    driver->settings.connect_timeout_ms = 2000;
    driver->settings.command_timeout_ms = 2000;
    driver->settings.time_interval_ms = 50;
    driver->settings.identity_interval_ms = 50;
    driver->settings.backoff_min_ms = 20;
    driver->settings.backoff_max_ms = 100;
}

void sink_driver_open(struct sink_driver *driver)
{
    struct fcap_error error = {0};
    assert_int_equal(fcap_sink_redis_open(&driver->settings, &error, &driver->sink), FCAP_OK);
}

void sink_driver_close(struct sink_driver *driver)
{
    fcap_sink_redis_close(driver->sink);
    driver->sink = NULL;
}

enum fcap_status sink_driver_push(struct sink_driver *driver, enum fcap_push_kind kind,
                                  const char *key, const char *value)
{
    struct fcap_push push = {
        .kind = kind,
        .key = fcap_bytes_of(key),
        .value = value == NULL ? FCAP_BYTES_NONE : fcap_bytes_of(value),
        .expire_at_ms = lab_wall_ms() + TTL_MS,
        .token = driver->pushed,
    };
    enum fcap_status status = driver->sink->ops->push(driver->sink, &push);
    driver->pushed += status == FCAP_OK;
    return status;
}

static void acked(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    struct sink_driver *driver = context;
    (void)integer;
    assert_int_equal(token, driver->acked); /* Each once, in push order. */
    driver->acked++;
    driver->results[result]++;
}

void sink_driver_poll(struct sink_driver *driver)
{
    struct fcap_sink_handler handler = {.context = driver, .acked = acked};
    enum fcap_status status = driver->sink->ops->poll(driver->sink, &handler, 10);
    assert_int_not_equal(fcap_status_class(status), FCAP_CLASS_FATAL);
    if (status != FCAP_OK || driver->pushed == driver->acked) {
        lab_pause_ms(1); /* Nothing was due, so poll() did not wait. */
    }
}

void sink_driver_poll_for(struct sink_driver *driver, int64_t ms)
{
    int64_t end_ms = lab_monotonic_ms() + ms;
    while (lab_monotonic_ms() < end_ms) {
        sink_driver_poll(driver);
    }
}

struct fcap_sink_state sink_driver_state(struct sink_driver *driver)
{
    struct fcap_sink_state state;
    driver->sink->ops->state(driver->sink, &state);
    return state;
}

struct fcap_sink_redis_status sink_driver_status(struct sink_driver *driver)
{
    struct fcap_sink_redis_status status;
    fcap_sink_redis_status(driver->sink, &status);
    return status;
}

bool sink_driver_until_ready(struct sink_driver *driver)
{
    int64_t end_ms = lab_monotonic_ms() + PATIENCE_MS;
    while (!sink_driver_state(driver).ready && lab_monotonic_ms() < end_ms) {
        sink_driver_poll(driver);
    }
    return sink_driver_state(driver).ready;
}

bool sink_driver_until_all_acked(struct sink_driver *driver)
{
    int64_t end_ms = lab_monotonic_ms() + PATIENCE_MS;
    while (driver->acked < driver->pushed && lab_monotonic_ms() < end_ms) {
        sink_driver_poll(driver);
    }
    return driver->acked == driver->pushed;
}

bool sink_driver_until_error(struct sink_driver *driver, enum fcap_sink_redis_error error)
{
    int64_t end_ms = lab_monotonic_ms() + PATIENCE_MS;
    while (sink_driver_status(driver).error != error && lab_monotonic_ms() < end_ms) {
        sink_driver_poll(driver);
    }
    return sink_driver_status(driver).error == error;
}

void sink_driver_set(struct sink_driver *driver, const char *key, const char *value)
{
    int64_t end_ms = lab_monotonic_ms() + PATIENCE_MS;
    enum fcap_status status = FCAP_BUSY;
    while ((status = sink_driver_push(driver, FCAP_PUSH_SET, key, value)) == FCAP_BUSY &&
           lab_monotonic_ms() < end_ms) {
        sink_driver_poll(driver);
    }
    assert_int_equal(status, FCAP_OK);
    uint64_t done = driver->results[FCAP_PUSH_DONE];
    assert_true(sink_driver_until_all_acked(driver));
    assert_true(driver->results[FCAP_PUSH_DONE] > done);
}
