/* The real core on the real RocksDB store in virtual time: a topic of given events, a clock that
 * moves only when a test says so, and a Redis in memory that expires keys by PXAT on that clock.
 *
 * What must hold: virtual_world_run_to(t) returns when every event that has arrived by t is
 * counted, T of every partition is t, and every value is acknowledged; so each key must then equal
 * the definition at t. Thread rule: one thread. */
#ifndef FCAP_TESTS_VIRTUAL_WORLD_H
#define FCAP_TESTS_VIRTUAL_WORLD_H

#include "fcap/pipeline.h"
#include "fcap/store_rocksdb.h"
#include "lib/fake_source.h"

enum { VIRTUAL_PARTITIONS_MAX = 512 };

/* In order of arrival. Texts are borrowed. */
struct virtual_event {
    int64_t arrival_ms;
    int64_t time_ms;
    const char *user;
    const char *ad;
    int32_t partition;
};

struct virtual_key {
    char *name;
    char *value; /* NULL: deleted */
    int64_t expire_at_ms;
};

struct virtual_world {
    /* Set by the test before virtual_world_start(). */
    struct fcap_settings settings;
    struct fcap_store_settings store;
    const struct virtual_event *events;
    size_t event_count;
    int32_t first_partition; /* assigned: first_partition .. + partition_count - 1 */
    int32_t partition_count;
    int64_t now_ms;
    int64_t retention_ms;     /* records that arrived before now less this are gone; 0: none is */
    bool forget_values;       /* the sink takes values and keeps none */
    struct fcap_clock *clock; /* used instead of now_ms; borrowed; NULL: virtual */
    struct fcap_sink *sink;   /* used instead of the one in memory; borrowed; NULL: virtual */
    /* Read by the test. */
    struct fcap_store_rocksdb *db;
    struct fcap_pipeline *pipeline;
    int64_t next[VIRTUAL_PARTITIONS_MAX]; /* offsets delivered, by partition; with retention the
                                             topic's ends */
    uint64_t pushes;
    uint64_t starts;
    /* Private. */
    int64_t monotonic_ms;
    char directory[64];
    char state[80];                                 /* the store's, in it */
    uint32_t *by_partition[VIRTUAL_PARTITIONS_MAX]; /* event indexes in offset order */
    size_t counts[VIRTUAL_PARTITIONS_MAX];
    bool assigned;
    struct virtual_key **slots;
    size_t slot_count;
    size_t key_count;
    uint64_t *tokens;
    size_t token_count;
    const struct virtual_event *at_hand;
    uint8_t redis; /* so many were lost */
    /* With retention: a topic that forgets, and the source on it. */
    struct fake_topic topic;
    struct fake_source member;
    bool has_topic;
    size_t arrived; /* events that are in the topic, or were */
    struct virtual_clock {
        struct fcap_clock port;
        struct virtual_world *world;
    } clock_port;
    struct virtual_source {
        struct fcap_source port;
        struct virtual_world *world;
    } source_port;
    struct virtual_sink {
        struct fcap_sink port;
        struct virtual_world *world;
    } sink_port;
    struct virtual_decoder {
        struct fcap_decoder port;
        struct virtual_world *world;
    } decoder_port;
};

/* Default settings in a new directory, one partition, no windows yet. */
struct virtual_world *virtual_world_make(void);
/* Ends everything and removes the directory. NULL is fine. */
void virtual_world_free(struct virtual_world *world);

/* Adds a window. */
void virtual_world_window(struct virtual_world *world, const char *name, int64_t length_ms);
/* Gives the topic its events; after a call of this, offsets start at 0. */
void virtual_world_events(struct virtual_world *world, const struct virtual_event *events,
                          size_t count);

/* Opens store and pipeline on what is in the directory. */
void virtual_world_start(struct virtual_world *world);
/* Ends them: with `drain` everything is written first, without it is a crash. */
void virtual_world_stop(struct virtual_world *world, bool drain);
/* The clock stands at now_ms (never back); steps until all is settled, see above. */
void virtual_world_run_to(struct virtual_world *world, int64_t now_ms);
/* One step of the pipeline. */
void virtual_world_step(struct virtual_world *world);
/* True when all that has arrived is counted, T is now, and nothing waits to be sent. */
bool virtual_world_is_settled(struct virtual_world *world);
/* Everything counted is in the store when it returns. */
void virtual_world_commit(struct virtual_world *world);

/* The key as Redis shows it now; NULL: not there. */
const struct virtual_key *virtual_world_key(struct virtual_world *world, const char *user,
                                            const char *window);
/* Redis is another one from now on, and empty. Between stop and start. */
void virtual_world_lose_redis(struct virtual_world *world);
/* Keys that Redis shows now. */
size_t virtual_world_live_keys(const struct virtual_world *world);
/* Puts a wrong value under a key, or takes the key away (NULL). */
void virtual_world_plant(struct virtual_world *world, const char *user, const char *window,
                         const char *value);

#endif
