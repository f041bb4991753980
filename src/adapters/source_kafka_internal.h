/* What the files of the Kafka source share; see fcap/source_kafka.h for what it is.
 *
 * source_kafka.c         open, poll, close
 * source_kafka_group.c   rebalances, starts and gaps
 * source_kafka_read.c    records from partition queues
 * source_kafka_helper.c  the helper thread with the second client
 * source_kafka_lookup.c  what it looks up
 * source_kafka_times.c   whether a start by time can be believed
 * source_kafka_compare.c whether the log is the one that was read
 * source_kafka_watch.c   partitions that stand still, and topics that went away
 * source_kafka_orphans.c partitions that nobody owns
 * source_kafka_publish.c what it publishes
 * source_kafka_config.c  settings to librdkafka's properties
 * source_kafka_gate.c    may anything be sent?
 *
 * kafka_history.c, which reads a topic once, shares settings, helper and records with it.
 *
 * Thread rule: struct fcap_source_kafka belongs to the worker's thread, except `shared`, which has
 * its lock. */
#ifndef FCAP_SOURCE_KAFKA_INTERNAL_H
#define FCAP_SOURCE_KAFKA_INTERNAL_H

#include "fcap/source_kafka.h"
#include "kafka_properties.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>

/* --- settings, source_kafka_config.c ------------------------------------------------------ */

/* Copies of the settings, with the defaults filled in. */
struct kafka_config {
    char *topic;
    char *group;       /* NULL: of nobody's (kafka_history.c) */
    char *instance_id; /* or NULL */
    int session_timeout_ms;
    int heartbeat_interval_ms;
    int metadata_refresh_ms;
    int publish_interval_ms;
    int close_timeout_ms;
    int stall_timeout_ms;
    struct fcap_decoder *decoder; /* of the helper's thread, or NULL */
    bool read_by_events;
    void (*looked_up)(void *context, int32_t partition);
    void *looked_up_context;
};

/* Checks everything and gives two client configurations: the member's and the helper's. On failure
 * nothing is given. */
enum fcap_status kafka_config_make(const struct fcap_source_kafka_settings *settings,
                                   struct kafka_config *ret_config, rd_kafka_conf_t **ret_member,
                                   rd_kafka_conf_t **ret_helper, struct fcap_error *error);
void kafka_config_done(struct kafka_config *config);

/* --- the gate, source_kafka_gate.c -------------------------------------------------------- */

/* Whether the member can still believe that its partitions are its own. Pure; time comes in. */
struct kafka_gate {
    int64_t session_ms;
    int64_t heartbeat_ms;
    int64_t polled_ms;  /* when the main queue was last polled; -1: never */
    int64_t trusted_ms; /* a poll at or after this moment opens the gate again */
};

void kafka_gate_init(struct kafka_gate *gate, int64_t session_ms, int64_t heartbeat_ms);
/* The main queue is about to be polled at `now_ms`. */
void kafka_gate_polled(struct kafka_gate *gate, int64_t now_ms);
bool kafka_gate_open(const struct kafka_gate *gate, int64_t now_ms);

/* --- what other threads may see ----------------------------------------------------------- */

#define KAFKA_MEMBER_ID_MAX 320 /* an instance or client id and a UUID */

struct kafka_shared {
    pthread_mutex_t lock;
    struct fcap_source_kafka_snapshot snapshot;
    struct fcap_source_kafka_lag *lags;
    size_t lag_count;
    size_t lag_capacity;
    void (*log)(void *context, int level, const char *text);
    void *log_context;
    char rejoin_id[KAFKA_MEMBER_ID_MAX]; /* a member that should join again; "": none */
};

void kafka_shared_init(struct kafka_shared *shared);
void kafka_shared_done(struct kafka_shared *shared);
/* Keeps the newest error and counts it. */
void kafka_shared_error(struct kafka_shared *shared, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Something worked: the error is over. */
void kafka_shared_good(struct kafka_shared *shared);
/* Partitions of the topic as last seen; 0: not known yet. */
int32_t kafka_shared_partitions(struct kafka_shared *shared);
void kafka_shared_log(struct kafka_shared *shared, int level, const char *text);

/* --- the helper, source_kafka_helper.c ---------------------------------------------------- */

/* Where to start one partition, and the answer. */
struct kafka_lookup {
    int32_t partition;
    uint64_t assignment;
    struct fcap_start start;
    int64_t asked_ms; /* monotonic */
    bool is_trusted;  /* the log is compared only when it ends before `offset` */

    /* Of believing that `offset` lies beyond the end. */
    int64_t beyond_since_ms; /* monotonic; 0: the last look-up did not find it so */
    int64_t settled_ms;      /* since when the end has been `settled_end` */
    int64_t settled_end;

    /* Of comparing the log with the start's marks. */
    bool compared;
    size_t mark;   /* being compared */
    int64_t span;  /* offsets before the mark that are looked at */
    int64_t same;  /* the highest mark with the record that was counted; -1: none */
    int64_t other; /* the lowest mark with another one; INT64_MAX: none */
    bool reading;  /* the record is awaited */
    bool found;    /* it is there: */
    struct fcap_log_mark record;

    /* Of a start by time. */
    int64_t left_out; /* offsets before it that are looked at; 0: not chosen yet */
    bool look_is_due;
    bool looking; /* records of this look are awaited */
    size_t looked_at;
    bool told; /* one of them tells when it was written */

    /* The answer. */
    bool failed; /* this time; tried again */
    bool answered;
    bool is_gap;
    enum fcap_gap_kind gap;
    int64_t gap_next;
    bool timestamps_unusable;
    int64_t by_time; /* where TIME and AGAIN begin */
    int64_t offset;
    int64_t log_start;
    int64_t end;
};

/* A newest value to publish. */
struct kafka_progress {
    int32_t partition;
    int64_t next;
    bool is_new;
};

/* A partition whose end is asked for again and again. */
struct kafka_end {
    int32_t partition;
    uint64_t assignment;
    int64_t next;        /* where reading stands */
    int64_t asked_next;  /* where it stood when `end` was asked for */
    int64_t end;         /* -1: not known */
    int64_t answered_ms; /* monotonic; 0: never */
};

struct kafka_helper;

/* Takes `conf` (also on failure) and starts the thread. Borrows config and shared. */
enum fcap_status kafka_helper_open(rd_kafka_conf_t *conf, const struct kafka_config *config,
                                   struct kafka_shared *shared, struct kafka_helper **ret_helper,
                                   struct fcap_error *error);
/* Asks the thread to end, soon; does not wait. NULL is fine. */
void kafka_helper_stop(struct kafka_helper *helper);
/* Waits for the thread, for as long as librdkafka takes, and frees. NULL is fine. */
void kafka_helper_close(struct kafka_helper *helper);

/* Asks where to start; tried until it is answered or cancelled. Copies. */
void kafka_helper_ask(struct kafka_helper *helper, const struct kafka_lookup *lookup);
/* The question is void; its answer, if one comes, is dropped. */
void kafka_helper_cancel(struct kafka_helper *helper, int32_t partition, uint64_t assignment);
/* Replaces the list of partitions whose ends are polled, and fills in what is known of them. */
void kafka_helper_ends(struct kafka_helper *helper, struct kafka_end *ends, size_t count);
/* Takes one answer; false when there is none. */
bool kafka_helper_answer(struct kafka_helper *helper, struct kafka_lookup *ret_lookup);
/* Keeps the newest value of a partition for the next publication. */
void kafka_helper_publish(struct kafka_helper *helper, int32_t partition, int64_t next);

/* --- source_kafka_lookup.c: on the helper's thread ---------------------------------------- */

/* Answers what can be answered of `lookups`; errors are noted. */
void kafka_lookup_run(rd_kafka_t *client, const struct kafka_config *config,
                      struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count);
/* Of asking for ends again and again. */
struct kafka_ends_poll {
    size_t turn;                       /* whose turn it is when all are asked one by one */
    bool (*must_yield)(void *context); /* something more urgent waits */
    void *context;
};

/* The ends of all, in one call for each broker; what is not answered stays as it was. One broker
 * that is away, or one partition with an error, fails that call for all: then they are asked one by
 * one, for some seconds at most, the next time from where that ended. */
void kafka_lookup_ends(rd_kafka_t *client, const struct kafka_config *config,
                       struct kafka_ends_poll *poll, struct kafka_end *ends, size_t count);
/* How many partitions the topic has, into the snapshot; false: not found out. */
bool kafka_lookup_partitions(rd_kafka_t *client, const struct kafka_config *config,
                             struct kafka_shared *shared);

/* --- source_kafka_times.c: on the helper's thread ------------------------------------------- */

/* Looks at the last records that starts by time leave out, where `by_time` is known; sets
 * `timestamps_unusable` and the log start as `by_time` where something would be missed, the
 * latter alone where a cut log does not tell whether there was something, or `failed`. */
void kafka_times_check(rd_kafka_t *client, const struct kafka_config *config,
                       struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count);

/* --- source_kafka_compare.c: on the helper's thread ---------------------------------------- */

/* Compares the log with the marks of all lookups that have some and whose ends are known; sets
 * `same` and `other`, or `failed`. */
void kafka_compare_run(rd_kafka_t *client, const struct kafka_config *config,
                       struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count);

/* --- source_kafka_orphans.c: on the helper's thread ----------------------------------------- */

/* Of looking at the group again and again. */
struct kafka_orphans {
    uint64_t mark;         /* of the group as seen last */
    int looks;             /* how often in a row it was just so, with a hole */
    int64_t wait_ms;       /* between the last choice and the next; 0: none since it was whole */
    int64_t not_before_ms; /* no choice before; monotonic */
};

/* What one look can tell. */
enum kafka_group_sight {
    KAFKA_GROUP_UNKNOWN, /* no answer, or it is moving */
    KAFKA_GROUP_WHOLE,   /* every partition has an owner */
    KAFKA_GROUP_HOLE,
};

/* Notes a look; `mark` is that of the members and their shares. True when the hole has been there
 * for long enough: then a member is to join again, and the wait until the next one doubles, for
 * there are holes that this does not close. Pure; time comes in. */
bool kafka_orphans_note(struct kafka_orphans *orphans, const struct kafka_config *config,
                        enum kafka_group_sight sight, uint64_t mark, int64_t now_ms);
/* How often to look. */
int64_t kafka_orphans_look_ms(const struct kafka_config *config);
/* Looks once; chooses a member to join again when a hole stays. */
void kafka_orphans_look(rd_kafka_t *client, const struct kafka_config *config,
                        struct kafka_shared *shared, struct kafka_orphans *orphans);

/* --- source_kafka_publish.c: on the helper's thread ----------------------------------------- */

/* Sends the new values, which become old; false when there are none. Answers are counted by the
 * commit callback. */
bool kafka_publish_send(rd_kafka_t *client, const struct kafka_config *config,
                        struct kafka_shared *shared, struct kafka_progress *progress, size_t count);
void kafka_publish_answered(struct kafka_shared *shared, rd_kafka_resp_err_t error,
                            const rd_kafka_topic_partition_list_t *offsets);

/* --- the source ----------------------------------------------------------------------------- */

struct kafka_partition {
    int32_t id;
    uint64_t assignment;
    rd_kafka_queue_t *queue; /* not NULL exactly when the client fetches it */
    int64_t fetched_from;    /* where that fetching was told to start */
    int64_t next;            /* nothing below is delivered */
    bool parked;             /* the client gave up on this queue: it must be assigned anew */
    bool held;               /* the handler does not know yet where to start */
    bool started;            /* the handler knows its start: records may flow */
    bool doubt;              /* its answer may be that of another log: it is asked for again */
    bool visited;            /* its queue was read since the last look of the watch */
    bool stuck;              /* its end is ahead and it has stood still for too long */
    int64_t seen_next;       /* `next` at the last look */
    int64_t still_ms;        /* how long it has stood still with its end ahead */
    int64_t end;             /* as polled last; -1: not known */
    struct kafka_lookup answer;
};

struct fcap_source_kafka {
    struct fcap_source port;
    struct kafka_config config;
    struct kafka_shared shared;
    rd_kafka_t *client;
    struct kafka_helper *helper;
    struct kafka_gate gate;

    struct kafka_partition *partitions;
    size_t partition_count;
    size_t partition_capacity;
    size_t turn; /* whose turn it is in the round-robin */

    bool closing;
    bool lost;    /* the client says that the assignment is lost; until the next callback */
    bool suspect; /* an assign call outside a callback may have wiped "lost" away */
    enum fcap_status dead; /* FATAL class when the client is */

    /* Of the poll() under way. */
    const struct fcap_source_handler *handler;
    size_t records_left;
    bool stopped;  /* the handler takes no more */
    bool happened; /* something was given to the handler */
    bool read_any; /* of the read under way: a record was delivered or dropped */

    /* Copied into the snapshot once a round. */
    uint64_t records;
    uint64_t bytes;
    uint64_t dropped;
    uint64_t rebalances;
    uint64_t lost_count;
    uint64_t gaps;
    uint64_t stalls;
    uint64_t rejoins;
    bool good; /* a record or an end came since the last round */
    int64_t lagged_ms;

    int32_t told_count; /* of partitions, by counted() or started() */
    bool doubt;         /* the topic was not there for a moment: is it another one now? */
    int64_t watched_ms;
    int64_t doubted_ms;
    struct kafka_end *ends; /* scratch of the watch */
    size_t end_capacity;
};

/* source_kafka_group.c */
struct kafka_partition *kafka_partition_find(struct fcap_source_kafka *source, int32_t id);
void kafka_group_rebalance(rd_kafka_t *client, rd_kafka_resp_err_t error,
                           rd_kafka_topic_partition_list_t *list, void *opaque);
/* Everything is taken away as lost: the client is dead. */
void kafka_group_abandon(struct fcap_source_kafka *source);
/* Starts partitions whose answers have come. */
void kafka_group_start(struct fcap_source_kafka *source);
/* The client gave up on this partition's offset: ask what is there, then start anew. */
void kafka_group_restart(struct fcap_source_kafka *source, struct kafka_partition *partition);

/* The client does not fetch this partition although there is something: assigned anew. The log is
 * not compared, for what is not fetched may not be readable for the helper either; unless it has
 * got too short meanwhile. */
void kafka_group_refetch(struct fcap_source_kafka *source, struct kafka_partition *partition);
/* Looks whether the log is still the one that was read, from where it stands; nothing is delivered
 * until then, and what was fetched ahead is fetched anew. */
void kafka_group_recheck(struct fcap_source_kafka *source, struct kafka_partition *partition);

/* source_kafka_watch.c: once a round; cheap when nothing is due */
void kafka_watch(struct fcap_source_kafka *source);
/* How often ends are polled. */
int64_t kafka_watch_poll_ms(const struct kafka_config *config);
/* Notes errors that say that the topic is not there. Inside of poll() only. */
void kafka_watch_error(struct fcap_source_kafka *source, rd_kafka_resp_err_t error);

/* source_kafka_read.c */
/* A message without an error as the core's record; borrows from it. */
void kafka_record_of(const rd_kafka_message_t *message, struct fcap_record *ret_record);
/* One turn over all started partitions; true when at least one record was delivered or dropped. */
bool kafka_read_round(struct fcap_source_kafka *source);
/* A message of a partition, from whichever queue. */
void kafka_read_message(struct fcap_source_kafka *source, struct kafka_partition *partition,
                        const rd_kafka_message_t *message);

/* source_kafka_orphans.c: leaves and joins again when this member was chosen to. */
void kafka_orphans_serve(struct fcap_source_kafka *source);

/* source_kafka.c: serves the main queue; false when the client is dead. */
bool kafka_serve(struct fcap_source_kafka *source);
rd_kafka_resp_err_t kafka_subscribe(struct fcap_source_kafka *source);

#endif
