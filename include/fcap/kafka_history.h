/* What a topic holds between a start and the ends that were seen: read once, by nobody's member.
 *
 * What must hold: of each partition every record from its start to its end is given, in offset
 * order, none twice; nothing is committed and no group is joined. Look-ups run on a thread of their
 * own and go on until they are answered; what is fetched and not yet given stays within
 * queues_bytes. Whoever is away is waited for: how long is the caller's decision. Thread rule: one
 * thread. */
#ifndef FCAP_KAFKA_HISTORY_H
#define FCAP_KAFKA_HISTORY_H

#include "fcap/source_kafka.h"

struct fcap_kafka_history;

/* Takes of the settings of `run`: brokers, topic, properties, queues_bytes, stall_timeout_ms, the
 * decoder, and the progress group, in whose name the look-ups ask. `partitions`: of the topic.
 * Waits for no broker. CONFIG: as fcap_source_kafka_check. The caller gives it back to
 * fcap_kafka_history_close(). */
enum fcap_status fcap_kafka_history_open(const struct fcap_source_kafka_settings *settings,
                                         int32_t partitions,
                                         struct fcap_kafka_history **ret_history,
                                         struct fcap_error *error) FCAP_MUST_USE;

/* Ends the threads and frees; NULL is fine. librdkafka may take long for it, or for ever, while a
 * broker hangs: a process that ends anyway may leave it out, and end by _exit(). */
void fcap_kafka_history_close(struct fcap_kafka_history *history);

/* Asks for the start and the end of each partition, anew; `start` is EARLIEST or TIME. */
void fcap_kafka_history_find(struct fcap_kafka_history *history, struct fcap_start start);

/* True when all are known, but those that are skipped. *ret_records (may be NULL): end - start,
 * summed over what is known. */
bool fcap_kafka_history_found(struct fcap_kafka_history *history, uint64_t *ret_records);

/* This partition is not read, or no further. */
void fcap_kafka_history_skip(struct fcap_kafka_history *history, int32_t partition);

struct fcap_kafka_history_handler {
    void *context;
    struct fcap_decoder *decoder; /* borrowed; of the caller's thread. NULL: events are not known */
    /* A record, borrowed for the call. False: no more for now. */
    bool (*record)(void *context, const struct fcap_record *record);
};

/* Gives about `records_max` records, or those that come within timeout_ms (which is not exceeded by
 * much); *ret_done: nothing is left to be read, and each partition was one log all the while, as
 * far as what is left of it tells. The first call after found() begins to fetch. UNAVAILABLE: the
 * topic was created anew meanwhile, or has lost records that were read. FATAL: the client cannot go
 * on. */
enum fcap_status fcap_kafka_history_read(struct fcap_kafka_history *history,
                                         const struct fcap_kafka_history_handler *handler,
                                         size_t records_max, int timeout_ms, bool *ret_done,
                                         struct fcap_error *error) FCAP_MUST_USE;

struct fcap_kafka_history_partition {
    bool is_found;
    bool is_skipped;
    bool is_done;
    bool timestamps_unusable; /* its start by time is the log's, or it would miss something */
    int64_t start;
    int64_t next; /* nothing below is to come */
    int64_t end;
    /* Since when nothing is missing: FCAP_TIME_NONE: ever; INT64_MAX: no record has told; else the
     * timestamp of the first record behind what is missing. Of what is taken while it is read only
     * LogAppendTime tells: a producer may stamp what happened long ago. */
    int64_t whole_since_ms;
    int64_t still_ms; /* how long nothing has come of it, although something was awaited */
};

void fcap_kafka_history_partition(const struct fcap_kafka_history *history, int32_t partition,
                                  struct fcap_kafka_history_partition *ret_partition);

/* The partition that has stood still for the longest time; -1: none is awaited. Look-ups count. */
int32_t fcap_kafka_history_stillest(const struct fcap_kafka_history *history);

/* How many partitions the topic has, as seen last: each look-up looks, and so does the end of each
 * partition; 0: not seen yet. */
int32_t fcap_kafka_history_topic_partitions(struct fcap_kafka_history *history);

/* The newest trouble that librdkafka or a look-up has told, of the last 10 s; "": none. Valid until
 * the next call. */
const char *fcap_kafka_history_error(struct fcap_kafka_history *history);

#endif
