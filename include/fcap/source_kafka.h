/* The Kafka source: one member of a consumer group, read on its worker's thread.
 *
 * What always holds: a record reaches the handler only after started() of its partition, in offset
 * order, never twice under one assignment, and none is skipped; nothing is ever committed under the
 * consuming group (a commit from a live member during a rebalance would cost it its partitions);
 * nothing is paused: back-pressure is not reading. Look-ups that can block for long run on a helper
 * thread with a second client, which also publishes progress offsets under a group of its own.
 *
 * After a gap at run time started() is called again for that partition: its start is new.
 *
 * Thread rule: open, the port's calls and close belong to the worker's thread. What is marked
 * "any thread" may be called from everywhere between open and close. */
#ifndef FCAP_SOURCE_KAFKA_H
#define FCAP_SOURCE_KAFKA_H

#include "fcap/ports.h"

/* One librdkafka property. Borrowed during open. */
struct fcap_source_kafka_property {
    const char *name;
    const char *value;
};

/* Everything is borrowed during open and copied where needed. 0 or NULL takes the default, where
 * one is named. */
struct fcap_source_kafka_settings {
    const char *brokers;        /* "host:port,host:port" */
    const char *topic;          /* exactly one; a list or a regex is refused */
    const char *group;          /* the consuming group */
    const char *progress_group; /* default "<group>-progress"; must differ from the group */
    const char *instance_id;    /* static membership; NULL: dynamic */
    const struct fcap_source_kafka_property *properties; /* kafka.librdkafka.* */
    size_t property_count;
    int64_t queues_bytes;      /* memory of all partition queues of this member; default 64 MiB */
    int32_t partitions_max;    /* how many partitions it may own; shares queues_bytes; default 8 */
    int fetch_wait_ms;         /* how long the broker may hold a fetch for more; default 10 */
    int session_timeout_ms;    /* default 45000 */
    int heartbeat_interval_ms; /* default session timeout / 15, at most 3000 */
    int max_poll_interval_ms;  /* default 300000; at least the session timeout */
    int metadata_refresh_ms;   /* how soon new partitions are seen; default 5000 */
    int publish_interval_ms;   /* default 5000 */
    int close_timeout_ms;      /* default 10000 */
    int stall_timeout_ms;      /* a partition that stands still with its end ahead is assigned anew
                                  after so long; default 30000 */
    /* Says whether records that a start by time leaves out hold events that count. Borrowed until
     * close() gives true; called on the helper thread alone, so it is shared with nobody. NULL:
     * nothing is known of events, and any timestamp from 2001 on is believed. */
    struct fcap_decoder *decoder;
    bool read_by_events; /* the fall-back way to read partition queues; see read_queue() */
    /* Lines that librdkafka would print. Called from its threads, which wait meanwhile; must not
     * call the source. NULL: dropped. */
    void (*log)(void *context, int level, const char *text);
    void *log_context;
    /* Tests only: called on the helper thread between a look-up and its hand-over. */
    void (*looked_up)(void *context, int32_t partition);
    void *looked_up_context;
};

/* What can be seen from outside. Counters only grow. */
struct fcap_source_kafka_snapshot {
    uint64_t records;
    uint64_t bytes;          /* keys and values */
    uint64_t dropped;        /* records below the own next offset: delivered twice by the library */
    uint64_t rebalances;     /* rebalance callbacks, empty ones too */
    uint64_t lost;           /* partitions taken away without our consent */
    uint64_t gaps;           /* calls of handler->gap */
    uint64_t stalls;         /* times that a partition stood still and was assigned anew */
    uint64_t rejoins;        /* times that it left and joined again for partitions without owner */
    uint64_t errors;         /* errors reported by librdkafka or a look-up; most are temporary */
    uint64_t published;      /* progress offsets the broker took */
    uint64_t publish_errors; /* progress offsets it did not take */
    uint32_t assigned;       /* partitions owned now */
    uint32_t waiting;        /* of these: their start is still being looked up */
    int32_t topic_partitions; /* partitions of the topic as last seen; 0: not known yet */
    int64_t polled_ms;        /* CLOCK_MONOTONIC of the last main-queue poll; for a watchdog */
    int64_t error_ms;         /* CLOCK_MONOTONIC of the newest error; 0: none ever */
    int64_t error_since_ms;   /* of the first error since the last good sign; 0: all is well */
    bool fenced;              /* another member with our instance id has taken over */
    char error[512];          /* the newest error's text; kept when it is over */
};

/* How far behind one partition is. */
struct fcap_source_kafka_lag {
    int32_t partition;
    int64_t next;  /* next offset to deliver */
    int64_t end;   /* end of the log as the last fetch or look-up saw it; -1: not known */
    int64_t lag;   /* end - next, at least 0; -1: not known */
    bool is_stuck; /* it has stood still for stall_timeout although its end is ahead */
};

struct fcap_source_kafka;

/* Checks the settings as open would; waits for no broker. CONFIG: `error` names the setting or the
 * property and the reason. */
enum fcap_status fcap_source_kafka_check(const struct fcap_source_kafka_settings *settings,
                                         struct fcap_error *error);

/* The value of queued.max.messages.kbytes that the settings give: each partition holds up to this
 * much plus one fetch response of `*ret_fetch_bytes`; both times partitions_max fit queues_bytes
 * unless the floors (256 KiB and 64 KiB) are reached. */
int64_t fcap_source_kafka_queue_kbytes(const struct fcap_source_kafka_settings *settings,
                                       int64_t *ret_fetch_bytes);

/* Creates the member and subscribes; connects in the background and retries for ever. CONFIG: as
 * check; NO_MEMORY or IO: the client cannot be created. Gives the source; close it. */
enum fcap_status fcap_source_kafka_open(const struct fcap_source_kafka_settings *settings,
                                        struct fcap_source_kafka **ret_source,
                                        struct fcap_error *error);

/* The port. Valid until close. poll() gives LOCKED when another member with the same instance id
 * has taken over and IO when the client is dead; the snapshot's error says more, and all
 * partitions have been revoked as lost before. */
struct fcap_source *fcap_source_kafka_port(struct fcap_source_kafka *source);

/* What happened so far. Any thread. */
void fcap_source_kafka_snapshot(struct fcap_source_kafka *source,
                                struct fcap_source_kafka_snapshot *ret_snapshot);

/* Lags of the owned partitions, refreshed about once a second by poll(). Fills up to `capacity`
 * entries and returns how many partitions there are. Any thread. */
size_t fcap_source_kafka_lags(struct fcap_source_kafka *source,
                              struct fcap_source_kafka_lag *ret_lags, size_t capacity);

/* Leaves the group (a static member only goes away) and frees everything. `handler` gets revoked()
 * for what is still owned, on this thread; NULL: nobody does. NULL source is fine. Never takes much
 * longer than the close timeout, although librdkafka can hang (a hanging broker in close, a deleted
 * topic in destroy, for ever on 2.0.2): true when all is freed; false when threads of the client
 * are still at work, so that the process should end by _exit() soon. That is also the answer before
 * librdkafka 2.3 for a member that never got an assignment, for destroy could abort there. The
 * source is gone in all cases. */
bool fcap_source_kafka_close(struct fcap_source_kafka *source,
                             const struct fcap_source_handler *handler);

#endif
