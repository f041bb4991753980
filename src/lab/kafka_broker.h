/* A real Apache Kafka broker (one KRaft node on free loopback ports, data in a temporary
 * folder), admin calls, and a producer with every knob that the tests turn.
 *
 * Failures end the process with a message. Thread rule: one thread. */
#ifndef FCAP_LAB_KAFKA_BROKER_H
#define FCAP_LAB_KAFKA_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KAFKA_BROKER_SKIP 77

struct kafka_broker;

/* The folder with the broker's jars, or NULL with the reason in `why`. */
const char *kafka_broker_lib(char *why, size_t why_size);

/* Starts a broker and waits until it answers. When there are no jars: prints why and exits with
 * KAFKA_BROKER_SKIP, or with 1 when CI=true or FCAP_NO_SKIP=1. Stopped at exit() of this process,
 * and by the kernel when the process dies. */
struct kafka_broker *kafka_broker_start(void);
/* The same for a broker that works for minutes: slower at first, with the second compiler. */
struct kafka_broker *kafka_broker_start_long(void);

/* Stops it and removes its data. NULL is fine. */
void kafka_broker_stop(struct kafka_broker *broker);

/* "127.0.0.1:port" of this broker. */
const char *kafka_broker_address(const struct kafka_broker *broker);
pid_t kafka_broker_pid(const struct kafka_broker *broker);

/* SIGKILL; the data stay. */
void kafka_broker_kill(struct kafka_broker *broker);
/* Starts it again on the same ports and data, and waits until it answers. */
void kafka_broker_restart(struct kafka_broker *broker);

/* Brokers that a test may share: FCAP_TEST_BROKERS, else one broker started for this process. */
const char *kafka_test_brokers(void);

/* --- admin ---------------------------------------------------------------------------------- */

/* A name that no other test of this run uses. Valid until 16 calls later. */
const char *kafka_unique(const char *prefix);

/* `config` is name, value, name, value, ..., NULL; or NULL. Waits until all leaders are known. */
void kafka_create_topic(const char *brokers, const char *topic, int partitions,
                        const char *const *config);
void kafka_delete_topic(const char *brokers, const char *topic);
/* Whether a broker answers within timeout_ms. */
bool kafka_answers(const char *brokers, int timeout_ms);
/* Whether the brokers know a topic of this name. */
bool kafka_has_topic(const char *brokers, const char *topic);
/* Deletes a topic that may not be there. False: no answer, or refused; `why` says it. */
bool kafka_try_delete_topic(const char *brokers, const char *topic, char *why, size_t why_size);
/* Drops the records below `before`. */
void kafka_delete_records(const char *brokers, const char *topic, int32_t partition,
                          int64_t before);
/* `partitions` is the new total. */
void kafka_add_partitions(const char *brokers, const char *topic, int partitions);
/* The committed offset of a group; -1: none. */
int64_t kafka_committed(const char *brokers, const char *group, const char *topic,
                        int32_t partition);
/* Low watermark and end (LSO). */
void kafka_ends(const char *brokers, const char *topic, int32_t partition, int64_t *ret_low,
                int64_t *ret_end);

/* --- producer ------------------------------------------------------------------------------- */

struct kafka_header {
    const char *name;
    const char *value;
};

struct kafka_produce {
    int32_t partition;
    const void *key; /* NULL: null key */
    size_t key_size;
    const void *value; /* NULL: null value */
    size_t value_size;
    int64_t timestamp_ms; /* 0: now */
    const struct kafka_header *headers;
    size_t header_count;
    void *tag; /* given back with the acknowledgement */
};

struct kafka_producer;

/* `codec`: none, gzip, snappy, lz4, zstd (NULL: none). `transactional_id`: NULL for none. */
struct kafka_producer *kafka_producer_open(const char *brokers, const char *topic,
                                           const char *codec, const char *transactional_id);
/* The same without codec and transactions, and with its own linger.ms (else 5). */
struct kafka_producer *kafka_producer_open_linger(const char *brokers, const char *topic,
                                                  int linger_ms);
/* Queues one record; kafka_producer_flush() waits until all are acknowledged and returns how many
 * were since the open. */
void kafka_producer_send(struct kafka_producer *producer, const struct kafka_produce *record);
/* The same with a text value, no key, time now. */
void kafka_producer_text(struct kafka_producer *producer, int32_t partition, const char *value);
uint64_t kafka_producer_flush(struct kafka_producer *producer);
/* From now on `acknowledged` is called, in this thread, for each record that the broker has; of one
 * partition in the order of offsets. `context` is borrowed until the close. */
typedef void kafka_acknowledged(void *context, void *tag, int32_t partition, int64_t offset);
void kafka_producer_listen(struct kafka_producer *producer, kafka_acknowledged *acknowledged,
                           void *context);
/* Serves what has been acknowledged by now, without waiting. */
void kafka_producer_poll(struct kafka_producer *producer);
void kafka_producer_begin(struct kafka_producer *producer);
void kafka_producer_commit(struct kafka_producer *producer);
void kafka_producer_abort(struct kafka_producer *producer);
void kafka_producer_close(struct kafka_producer *producer);

#endif
