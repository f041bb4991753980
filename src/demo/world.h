/* The demo's world: Redis, Kafka, the daemon as a child, and the list of all that Kafka has
 * acknowledged, from which everything is recounted.
 *
 * What must hold: the recount knows exactly the records that the broker has, each at its offset,
 * and nothing of the daemon. A private Kafka keeps 5 MiB a partition, so no more is produced ahead
 * of the daemon than fits. Thread rule: one thread. */
#ifndef FCAP_DEMO_WORLD_H
#define FCAP_DEMO_WORLD_H

#include "demo/options.h"
#include "demo/supervisor.h"
#include "lab/daemon_process.h"
#include "lab/kafka_broker.h"
#include "lab/mock_kafka.h"
#include "lab/oracle.h"
#include "lab/redis_reader.h"
#include "lab/redis_server.h"

#define DEMO_PARTITIONS_MAX 64
#define DEMO_WINDOWS        3

struct demo_window {
    const char *name;
    int64_t length_ms;
};

/* Shortest first. */
extern const struct demo_window demo_windows[DEMO_WINDOWS];

struct demo_partition {
    uint64_t sent;      /* records given to the producer */
    int64_t acked_next; /* offset after the last acknowledged record */
    int64_t read_next;  /* where the daemon reads, by its /metrics */
};

struct demo_world {
    const struct demo_options *options;
    const struct demo_run *run;
    struct redis_server redis; /* not running with a real one */
    struct demo_address redis_address;
    struct redis_reader *reader;
    struct mock_kafka *mock; /* NULL with a real one */
    const char *brokers;
    struct kafka_producer *producer;
    struct daemon_process daemon;
    struct oracle *oracle;
    const char *profile;
    const char *topic;
    char key_prefix[80]; /* before the user: "fc:{" */
    int32_t partition_count;
    struct demo_partition partitions[DEMO_PARTITIONS_MAX];
    uint64_t sent; /* records */
    uint64_t acked;
    uint64_t sent_bytes;
};

/* Whether the daemon gets on, while it is looked at again and again. */
struct demo_progress {
    int64_t read;     /* records, at the last look */
    int64_t since_ms; /* monotonic; when it last read one, or had none to read */
};

/* A record to produce. Texts are borrowed for the call. */
struct demo_record {
    const char *user; /* also the record's key */
    const char *ad;
    const char *id; /* of the event, for duplicates */
    int64_t time_ms;
    bool counts; /* false: malformed, no event at all */
    const char *value;
    size_t value_size;
};

/* Starts all of it and waits until the daemon is ready; says on standard output what is where.
 * False: a line on standard error says what could not be had. */
bool demo_world_open(struct demo_world *world, const struct demo_options *options,
                     const struct demo_run *run);
/* Stops the daemon in order and the rest. False: the daemon did not stop with 0. */
bool demo_world_close(struct demo_world *world);

/* False while the user's partition is too far ahead of the daemon. */
bool demo_world_has_room(const struct demo_world *world, const char *user);
void demo_world_send(struct demo_world *world, const struct demo_record *record);
/* Learns what has been acknowledged meanwhile. */
void demo_world_poll(struct demo_world *world);
/* Waits until all is acknowledged. */
void demo_world_flush(struct demo_world *world);

/* Reads the daemon's /metrics into world->daemon.text, and how far each partition is read. False:
 * it does not answer (now). */
bool demo_world_look(struct demo_world *world);
/* False when the daemon has died; what it said last is on standard error then. */
bool demo_world_is_alive(struct demo_world *world);
/* False when the daemon has read nothing for a minute although records wait; that is said then.
 * `progress` starts with since_ms = now_ms (monotonic). */
bool demo_world_gets_on(struct demo_world *world, struct demo_progress *progress, int64_t now_ms);
/* How long it has stood still, in ms; 0 when it has read on or `waiting` (records) is 0. Pure. */
int64_t demo_progress_look(struct demo_progress *progress, int64_t read, int64_t waiting,
                           int64_t now_ms);
/* Says `what` on standard error, with the daemon's /readyz and the end of its log. */
void demo_world_say(struct demo_world *world, const char *what);

/* The text of fc:meta, NULL: absent. Valid until the next question to Redis. */
const char *demo_world_meta(struct demo_world *world);
/* Whether Redis holds the effect of every acknowledged record, as the daemon claims. */
bool demo_world_is_applied(struct demo_world *world);
/* Writes the key of a user's window. */
void demo_world_key(const struct demo_world *world, const char *user, size_t window, char *key,
                    size_t key_size);

#endif
