/* The fake Redis and its sinks as a world of the sink's contract (contract/sink_contract.h).
 * Thread rule: one thread. */
#ifndef FCAP_TESTS_FAKE_WORLD_H
#define FCAP_TESTS_FAKE_WORLD_H

#include "contract/sink_contract.h"
#include "lib/fake_sink.h"

enum { FAKE_WORLD_SINKS_MAX = 4 };

extern const struct sink_world fake_world;

/* Its server, between start and stop. */
struct fcap_fake_redis *fake_world_redis(void);

#endif
