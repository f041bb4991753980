/* What the end-to-end tests and the field reports share: a topic that the oracle reads back from
 * Kafka, a private Redis whose every key is compared, the real fcapd in between.
 *
 * What must hold: the oracle knows only what the topic holds. A record without the header
 * "test.expect" is an event in the strict form of live_send(), or a tombstone; with it, the header
 * says what the record must come to: "count <user> <ad> <ms>", "dead <reason>" or "skip"; or
 * "judge <skew ms> <user> <ad> <ms>": dead by the reason "future" when its event is more than the
 * skew ahead of the record's timestamp, which the broker gave it, else it counts. The daemon never
 * looks at headers. Thread rule: one thread. */
#ifndef FCAP_TESTS_LIVE_H
#define FCAP_TESTS_LIVE_H

#include "lab/daemon_process.h"
#include "lab/kafka_broker.h"
#include "lab/oracle.h"
#include "lab/oracle_check.h"
#include "lab/redis_server.h"

#include <librdkafka/rdkafka.h>

#define LIVE_PARTITIONS_MAX 12
#define LIVE_WINDOWS_MAX    4

/* Deadlines and bounds, generous: two cores may be shared with a build. */
#define LIVE_START_MS 60000
#define LIVE_WAIT_MS  60000
#define LIVE_STOP_MS  30000
#define LIVE_LAG_MS   5000

struct live_window {
    const char *name; /* NULL ends a list */
    int64_t length_ms;
    bool waits; /* held back until it is complete: a key may be absent; what is there is right */
};

struct live_options {
    int partitions;
    int workers;
    const char *windows; /* YAML: "[2s, 5s, 20s]" */
    const struct live_window *lengths;
    const struct live_window *gone; /* windows of before: keys of theirs may still be there */
    const char *topic_config[9];    /* name, value, ..., NULL */
    const char *more_kafka;         /* YAML lines under kafka:, indented by two; NULL: none */
    const char *more_redis;         /* the same under redis: */
    const char *more_commit;        /* the same under commit: */
    const char *session_timeout;    /* NULL: "6s" */
    const char *more;               /* YAML at the top level; NULL: none */
    uint16_t redis_port;            /* somebody else's Redis; 0: start one */
    const char *other_instance;     /* another daemon whose fc:meta speaks as well; NULL: none */
};

/* A claim of fc:meta: when T of the partition was as_of_ms, everything below next had been
 * applied. */
struct live_claim {
    int32_t partition;
    int64_t as_of_ms;
    int64_t next;
    int64_t epoch;
    bool is_ready; /* as many windows are as do not wait */
};

/* A record that must be dead-lettered. Owns its bytes. */
struct live_dead {
    int32_t partition;
    int64_t offset;
    char reason[32];
    void *key; /* NULL: null key */
    size_t key_size;
    void *value;
    size_t value_size;
    unsigned seen; /* letters met so far */
};

struct live {
    struct live_options options;
    char topic[200];
    char letters[200];
    struct redis_server redis;
    void *redis_reader; /* our own connection for many keys */
    struct daemon_process process;
    struct kafka_producer *producer;
    rd_kafka_t *tail; /* reads the topic for the oracle */
    struct oracle *oracle;
    int64_t read[LIVE_PARTITIONS_MAX]; /* next offset that the oracle does not know */
    struct live_dead *dead;
    size_t dead_count;
    size_t dead_capacity;
    struct live_claim last[LIVE_PARTITIONS_MAX]; /* the newest of each partition */
    struct live_claim *claims;                   /* all different ones */
    size_t claim_count;
    size_t claim_capacity;
    size_t window_count;
    size_t waiting_count; /* of these windows, how many may wait */
};

/* Starts Redis, makes both topics, opens producer and tail, writes the configuration. Does not
 * start the daemon. */
void live_init(struct live *live, const struct live_options *options);
void live_done(struct live *live);

/* Other windows, for the next start; the rest of the configuration stays, `more` apart. */
struct live_change {
    const char *windows; /* as in the options */
    const struct live_window *lengths;
    const struct live_window *gone;
    const char *more;
};
void live_configure(struct live *live, const struct live_change *change);
/* Compares these windows from now on; the configuration stays. */
void live_expect_windows(struct live *live, const struct live_window *lengths);

/* The configuration of a further daemon on the same topic and Redis, a dynamic member of the
 * group. */
void live_member_init(struct live *live, struct daemon_process *process, const char *instance);

/* Starts the daemon and waits until /readyz says 200 and fc:meta speaks for every partition. */
void live_start(struct live *live);
/* SIGTERM; it must end with 0. */
void live_stop(struct live *live);

/* Where a user's records go. */
int32_t live_partition(const struct live *live, const char *user);

/* An event as live_send_event() queues it, keyed by its user. */
struct live_event {
    const char *user;
    const char *ad;
    int64_t time_ms;      /* event time */
    const char *id;       /* NULL: none */
    int64_t timestamp_ms; /* the record's; 0: now */
};
void live_send_event(struct live *live, const struct live_event *event);
/* The same with the record's time of now. */
void live_send(struct live *live, const char *user, const char *ad, int64_t time_ms,
               const char *id);
/* Queues any record, with the header test.expect. `record`: partition, key, value, time. */
void live_send_odd(struct live *live, const struct kafka_produce *record, const char *expect);
/* The same for a text value, keyed by `user`. */
void live_send_text(struct live *live, const char *user, const char *value, const char *expect);
/* Queues a null value; timestamp_ms of the record, 0: now. */
void live_send_tombstone_at(struct live *live, const char *user, int64_t timestamp_ms);
void live_send_tombstone(struct live *live, const char *user);
void live_flush(struct live *live);

/* Reads the topic to its end of now into the oracle. */
void live_read(struct live *live);

/* Reads fc:meta and remembers what it claims, of several owners the one with the highest epoch;
 * false when it is absent. ret_next[p] is -1 for a partition without a claim. */
bool live_claims(struct live *live, int64_t *ret_next, int64_t *ret_as_of_ms);
/* Waits until fc:meta claims something for every partition. */
void live_await_claims(struct live *live);
/* Waits until fc:meta claims all that the topic holds; reads it into the oracle, too. */
void live_await_applied(struct live *live);

/* --- comparing (live_check.c) ---------------------------------------------------------------- */

struct live_tally {
    struct oracle_tally now;    /* each key at some moment of the last LIVE_LAG_MS, or since the
                                   clock that fc:meta claims for its partition */
    struct oracle_tally as_of;  /* each value at its own as_of, over what was applied then */
    struct oracle_tally expiry; /* each key's PXAT */
    int64_t lag_ms_max;         /* now - as_of of a partition's claim */
};

/* Reads every key of Redis once and compares each user x window, absent ones too, and the keys
 * that should not be there. Producing may go on meanwhile: between the claim read before and the
 * end of the topic read after, each prefix of a user's records is allowed. `quiet`: all is
 * applied, so just one state is, and PXAT is compared as well. Adds to the tally; never fails. */
void live_compare(struct live *live, bool quiet, struct live_tally *tally);

/* Compares a value that a key has or once had with the definition at the value's own as_of. The
 * topic has been read since (live_read()). */
void live_compare_at_as_of(struct live *live, const char *user, int64_t window_ms,
                           const char *value, struct oracle_tally *tally);

/* For a daemon that has stopped, so that counts stand still: each key is there until its newest
 * event leaves the window, and gone from then on. */
void live_compare_stopped(struct live *live, struct oracle_tally *tally);

/* Fails with the differences unless all is right and enough was compared. */
void live_passes(const struct oracle_tally *tally, struct oracle_minimum minimum);
/* How many keys of users there are. */
size_t live_key_count(struct live *live);
/* Waits until no key of a user is left; each must go by the time given. */
void live_await_no_key(struct live *live, int64_t timeout_ms);

/* Fails unless the dead-letter topic holds a letter for each record that must have one, with
 * reason, origin, key and value unchanged, and no other; `once`: exactly one each (no replay). */
void live_check_letters(struct live *live, bool once);

#endif
