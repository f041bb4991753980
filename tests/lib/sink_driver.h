/* Drives one Redis sink in a test: pushes, polls with deadlines, and checks that each accepted push
 * is acked exactly once and in order. Thread rule: one thread. */
#ifndef FCAP_TESTS_SINK_DRIVER_H
#define FCAP_TESTS_SINK_DRIVER_H

#include "fcap/sink_redis.h"

struct sink_driver {
    struct fcap_sink_redis_settings settings; /* change before opening */
    struct fcap_sink *sink;
    uint64_t pushed; /* accepted; the tokens are 0, 1, 2, ... */
    uint64_t acked;
    uint64_t results[3]; /* by enum fcap_push_result */
};

/* Settings for tests: short intervals and backoffs. */
void sink_driver_init(struct sink_driver *driver, uint16_t port);
void sink_driver_open(struct sink_driver *driver);
/* NULL sink is fine. */
void sink_driver_close(struct sink_driver *driver);
/* SET with an expiry in ten minutes, or INCR or UNLINK; once, BUSY or OK. */
enum fcap_status sink_driver_push(struct sink_driver *driver, enum fcap_push_kind kind,
                                  const char *key, const char *value);
/* One poll; sleeps 1 ms when the sink is not ready. */
void sink_driver_poll(struct sink_driver *driver);
void sink_driver_poll_for(struct sink_driver *driver, int64_t ms);
/* True when it came true within ten seconds. */
bool sink_driver_until_ready(struct sink_driver *driver);
bool sink_driver_until_all_acked(struct sink_driver *driver);
bool sink_driver_until_error(struct sink_driver *driver, enum fcap_sink_redis_error error);
/* Pushes until it is accepted, then polls until all is acked; the test fails unless it is DONE. */
void sink_driver_set(struct sink_driver *driver, const char *key, const char *value);
struct fcap_sink_redis_status sink_driver_status(struct sink_driver *driver);
struct fcap_sink_state sink_driver_state(struct sink_driver *driver);

#endif
