/* A Redis in memory and sinks that talk to it: the same port as src/adapters/sink_redis, with
 * switches for faults. Deterministic: time comes from the given clocks, chance from `draw`.
 *
 * Model of a connection: pushed commands wait in flight; a poll lets the server do some of them in
 * order, and gives acks for some of those done. When the connection breaks every command without
 * an ack becomes UNKNOWN: done already, done now, never done, or (redis->zombies) left with the
 * server as an abandoned socket, which fcap_fake_redis_step() works off until a new connection of
 * the same name kills it. Without `draw` what the server has not done yet is never done. Not
 * modelled: replies out of order, commands done twice.
 *
 * Thread rule: one thread. */
#ifndef FCAP_TESTS_FAKE_SINK_H
#define FCAP_TESTS_FAKE_SINK_H

#include "fcap/ports.h"

/* A number from 0 to bound - 1. */
typedef uint32_t (*fcap_fake_draw)(void *context, uint32_t bound);

struct fcap_fake_key; /* one key, private */
struct fcap_fake_keys {
    struct fcap_fake_key **slots;
    size_t slot_count;
    size_t count; /* also keys that have expired and were not looked at since */
};

struct fcap_fake_socket; /* what an abandoned connection left with the server, private */

/* The server. Fields above the line may be changed at any time. */
struct fcap_fake_redis {
    struct fcap_clock *clock; /* borrowed; the server's own: expiry and TIME follow its wall_ms */
    fcap_fake_draw draw;      /* NULL: no faults by chance, everything is done at the next poll */
    void *draw_context;
    bool down;         /* connections break and new ones fail */
    bool full;         /* SET and INCREMENT are refused (OOM); UNLINK passes */
    bool zombies;      /* a broken connection may leave commands with the server */
    bool spares_older; /* the fault: older connections of a name are not killed on connect */
    /* ---- */
    struct fcap_fake_keys keys;
    struct fcap_fake_keys saved; /* as of the last save */
    uint64_t saved_sentinel;
    uint64_t run_id;
    uint64_t sentinel; /* fc:id; 0: not there */
    uint64_t serial;   /* source of run ids and sentinels */
    uint64_t commands_done;
    uint64_t commands_done_late; /* by abandoned connections, after the break */
    uint64_t connections_killed;
    struct fcap_fake_socket *abandoned;
    struct fcap_fake_sink *sinks;
};

/* Chances in 1/1000; 0: never. Need redis->draw. */
struct fcap_fake_sink_faults {
    unsigned break_per_poll;     /* the connection breaks */
    unsigned no_connect;         /* a connect fails */
    unsigned busy_per_push;      /* push answers BUSY */
    unsigned refuse_per_command; /* the server answers with an error and does nothing */
    unsigned slow_per_command;   /* the server does no more commands in this poll */
    unsigned late_per_ack;       /* no more acks in this poll */
};

struct fcap_fake_command; /* private */

struct fcap_fake_sink {
    struct fcap_sink sink;               /* the port; first */
    struct fcap_fake_sink_faults faults; /* may be changed at any time */
    size_t in_flight_max;                /* push is BUSY beyond; may be changed at any time */
    int64_t identity_interval_ms;        /* between two looks at the identity; 2000 */
    int64_t time_interval_ms;            /* between two TIME; 1000 */
    /* Counted for coverage. */
    uint64_t breaks;
    uint64_t acks[3]; /* by enum fcap_push_result */
    /* ---- private */
    struct fcap_fake_redis *redis;
    struct fcap_clock *clock;
    char name[64];
    bool connected;
    bool killed;
    struct fcap_fake_command *first;
    struct fcap_fake_command *last;
    size_t in_flight;
    struct fcap_sink_state state;
    int64_t time_sample_ms;
    int64_t monotonic_sample_ms;
    int64_t time_due_ms;
    int64_t identity_due_ms;
    struct fcap_fake_sink *next;
};

/* An empty server. `clock` is borrowed. */
void fcap_fake_redis_init(struct fcap_fake_redis *redis, struct fcap_clock *clock);
/* Frees; its sinks must be closed before. */
void fcap_fake_redis_done(struct fcap_fake_redis *redis);

/* FLUSHALL on living connections: keys and fc:id are gone, the run id stays. */
void fcap_fake_redis_flush(struct fcap_fake_redis *redis);
/* DEL fc:id. */
void fcap_fake_redis_delete_sentinel(struct fcap_fake_redis *redis);
/* Saves everything for a later restart. */
void fcap_fake_redis_save(struct fcap_fake_redis *redis);

enum fcap_fake_restart {
    FCAP_FAKE_RESTART_EMPTY, /* no persistence */
    FCAP_FAKE_RESTART_SAVED, /* with the last save, however old */
    FCAP_FAKE_RESTART_ALL,   /* nothing is lost */
};
/* Kills and starts the server: another run id, every connection breaks, abandoned ones too. */
void fcap_fake_redis_restart(struct fcap_fake_redis *redis, enum fcap_fake_restart kind);
/* Lets the server work off some commands of abandoned connections (all, without draw). */
void fcap_fake_redis_step(struct fcap_fake_redis *redis);
/* Commands that abandoned connections have left. */
size_t fcap_fake_redis_abandoned(const struct fcap_fake_redis *redis);

/* A key as a client sees it now. *ret_expire_at_ms is -1 without expiry. The value is valid until
 * the server's next change. */
bool fcap_fake_redis_get(struct fcap_fake_redis *redis, struct fcap_bytes key,
                         struct fcap_bytes *ret_value, int64_t *ret_expire_at_ms);
/* Another hand: replaces the value and leaves the expiry, or deletes the key (value absent). False:
 * it is not there. */
bool fcap_fake_redis_spoil(struct fcap_fake_redis *redis, struct fcap_bytes key,
                           struct fcap_bytes value);
/* Every key that a client sees now, each once, in no meant but a repeatable order. */
void fcap_fake_redis_visit(struct fcap_fake_redis *redis,
                           void (*visit)(void *context, struct fcap_bytes key,
                                         struct fcap_bytes value, int64_t expire_at_ms),
                           void *context);

/* A client named `name` (copied, cut at 63 bytes). `clock` is borrowed and is the client's own:
 * TIME is extrapolated by its monotonic_ms. Connects at its first poll. */
void fcap_fake_sink_open(struct fcap_fake_sink *sink, struct fcap_fake_redis *redis,
                         struct fcap_clock *clock, const char *name);
/* The process is gone: what is in flight has the fate of a broken connection, without acks. */
void fcap_fake_sink_close(struct fcap_fake_sink *sink);
/* The connection breaks now; the next poll gives the acks. */
void fcap_fake_sink_break(struct fcap_fake_sink *sink);

#endif
