/* A pipeline on a store, a topic and a Redis in memory, with time that the test moves.
 * Thread rule: one thread, one world. */
#ifndef FCAP_TESTS_PIPELINE_WORLD_H
#define FCAP_TESTS_PIPELINE_WORLD_H

#include "fcap/pipeline.h"

#include "lib/fake_sink.h"
#include "lib/fake_source.h"
#include "lib/fake_store.h"

#define PIPELINE_WORLD_NOW_MS  1700000000000ll
#define PIPELINE_WORLD_HOUR_MS 3600000ll

struct pipeline_world {
    struct fcap_clock clock;
    struct fcap_clock server_clock; /* Redis' */
    int64_t now_ms;                 /* wall clock and monotonic clock of everybody, */
    int64_t wall_ahead_ms;          /* but the process' wall clock is ahead by this */
    int64_t tick_ms;                /* passes with each look at a clock; usually 0 */
    struct fake_topic topic;
    struct fake_source source;
    struct fake_store *store;
    struct fake_store_hooks store_hooks; /* nothing fails at first */
    struct fcap_fake_redis redis;
    struct fcap_fake_sink sink;
    struct fcap_pipeline *pipeline; /* NULL: no process runs */
};

extern struct pipeline_world world;

/* An empty topic, store and Redis; no process runs. */
void pipeline_world_init(int32_t partitions);
/* Ends the process, if one runs, and everything else. */
void pipeline_world_done(void);
/* The same as a test's setup, with one partition, and its teardown. */
int pipeline_world_setup(void **unused);
int pipeline_world_teardown(void **unused);
/* Settings of a process with one window of an hour, named 1h. */
void pipeline_world_settings(struct fcap_settings *settings);
/* The key is the user, the value the ad, the timestamp the time; without a value it is a tombstone.
 */
extern struct fcap_decoder pipeline_world_decoder;
/* Starts a process that is given every partition. `decoder` is borrowed. */
void pipeline_world_start(const struct fcap_settings *settings, struct fcap_decoder *decoder);
/* Steps, while time stands still, until nothing has waited to be sent or acknowledged for 50 steps.
 * Gives why the pipeline failed, or TIMEOUT after so many steps. */
enum fcap_status pipeline_world_rest(int steps_max);
/* Kills the process; what was written stays. Does nothing when none runs. */
void pipeline_world_kill(void);
/* Appends a record with the time of its event as append time; value NULL: a tombstone. */
void pipeline_world_add(int32_t partition, const char *key, const char *value, int64_t time_ms);

#endif
