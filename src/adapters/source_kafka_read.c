#include "source_kafka_internal.h"

#include <inttypes.h>

/* So many records of one partition before it is the next one's turn. */
#define TURN_RECORDS 1000

/* What one call on a partition's queue works with. */
struct reading {
    struct fcap_source_kafka *source;
    int32_t partition;
    size_t records_left; /* of this turn */
};

static struct fcap_bytes view(const void *data, size_t size)
{
    if (data == NULL) {
        return FCAP_BYTES_NONE;
    }
    return (struct fcap_bytes){.data = data, .size = size};
}

void kafka_record_of(const rd_kafka_message_t *message, struct fcap_record *ret_record)
{
    rd_kafka_timestamp_type_t type;
    int64_t timestamp_ms = rd_kafka_message_timestamp(message, &type);
    *ret_record = (struct fcap_record){
        .partition = message->partition,
        .offset = message->offset,
        .timestamp_ms = timestamp_ms,
        .timestamp_type = type == RD_KAFKA_TIMESTAMP_CREATE_TIME       ? FCAP_TIMESTAMP_CREATE
                          : type == RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME ? FCAP_TIMESTAMP_APPEND
                                                                       : FCAP_TIMESTAMP_NONE,
        .key = view(message->key, message->key_len),
        .value = view(message->payload, message->len),
    };
    if (timestamp_ms < 0 || ret_record->timestamp_type == FCAP_TIMESTAMP_NONE) {
        ret_record->timestamp_ms = -1;
        ret_record->timestamp_type = FCAP_TIMESTAMP_NONE;
    }
}

static void deliver(struct fcap_source_kafka *source, struct kafka_partition *partition,
                    const rd_kafka_message_t *message)
{
    struct fcap_record record;
    kafka_record_of(message, &record);
    /* Every message of a started partition is taken: one after "no more" would be a hole. */
    partition->next = message->offset + 1;
    source->records++;
    source->bytes += record.key.size + record.value.size;
    source->happened = true;
    source->good = true;
    source->records_left -= source->records_left > 0 ? 1 : 0;
    if (!source->handler->record(source->handler->context, &record)) {
        source->stopped = true;
    }
}

void kafka_read_message(struct fcap_source_kafka *source, struct kafka_partition *partition,
                        const rd_kafka_message_t *message)
{
    switch (message->err) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
        if (!partition->started) {
            break; /* Parked meanwhile: it is read again from `next`. */
        }
        source->read_any = true;
        if (message->offset < partition->next) {
            source->dropped++; /* Seen on both versions at rebalances, now and then. */
        } else {
            deliver(source, partition, message);
        }
        break;
    case RD_KAFKA_RESP_ERR__PARTITION_EOF:
        if (partition->started && message->offset >= partition->next) {
            /* Beyond `next` when markers or aborted records came last. */
            partition->next = message->offset;
            source->happened = true;
            source->good = true;
            source->handler->reached_end(source->handler->context, partition->id, message->offset);
        }
        break;
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
        if (partition->started) {
            kafka_group_restart(source, partition);
        }
        break;
    default:
        kafka_watch_error(source, message->err);
        kafka_shared_error(&source->shared, "%s [%" PRId32 "]: %s", source->config.topic,
                           partition->id, rd_kafka_message_errstr(message));
        break;
    }
}

/* --- the two ways to read a queue --------------------------------------------------------- */

static bool turn_is_over(const struct reading *reading)
{
    return reading->source->stopped || reading->source->records_left == 0 ||
           reading->records_left == 0;
}

static void on_message(rd_kafka_message_t *message, void *opaque)
{
    struct reading *reading = opaque;
    struct fcap_source_kafka *source = reading->source;
    /* Looked up anew each time: nothing here may outlive what the handler does. */
    struct kafka_partition *partition = kafka_partition_find(source, reading->partition);
    if (partition == NULL) {
        return;
    }
    kafka_read_message(source, partition, message);
    reading->records_left -= reading->records_left > 0 ? 1 : 0;
    if (turn_is_over(reading)) {
        rd_kafka_yield(source->client); /* The rest stays in the queue, in order. */
    }
}

/* Events carry one message each, errors and ends come as error events. */
static void read_events(rd_kafka_queue_t *queue, struct reading *reading)
{
    rd_kafka_event_t *event = NULL;
    while (!turn_is_over(reading) && (event = rd_kafka_queue_poll(queue, 0)) != NULL) {
        struct kafka_partition *partition =
            kafka_partition_find(reading->source, reading->partition);
        if (partition == NULL) {
            rd_kafka_event_destroy(event);
            return;
        }
        if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_FETCH) {
            const rd_kafka_message_t *message = NULL;
            while ((message = rd_kafka_event_message_next(event)) != NULL) {
                kafka_read_message(reading->source, partition, message);
                reading->records_left -= reading->records_left > 0 ? 1 : 0;
            }
        } else if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_ERROR) {
            rd_kafka_topic_partition_t *at = rd_kafka_event_topic_partition(event);
            rd_kafka_message_t message = {.err = rd_kafka_event_error(event),
                                          .offset = at != NULL ? at->offset : -1,
                                          .partition = reading->partition};
            kafka_read_message(reading->source, partition, &message);
            if (at != NULL) {
                rd_kafka_topic_partition_destroy(at);
            }
        }
        rd_kafka_event_destroy(event);
    }
}

/* The one place that chooses how a queue is read. librdkafka calls the callback way deprecated,
 * but batch calls lose records at rebalances (2.0.2) or at ends of partitions (2.8.0), and events,
 * which lose none, cost twice as much on this thread. Were the call removed, events are the
 * fall-back. */
static void read_queue(rd_kafka_queue_t *queue, struct reading *reading)
{
    if (reading->source->config.read_by_events) {
        read_events(queue, reading);
    } else {
        (void)rd_kafka_consume_callback_queue(queue, 0, on_message, reading); /* Counts errors. */
    }
}

bool kafka_read_round(struct fcap_source_kafka *source)
{
    source->read_any = false;
    size_t count = source->partition_count;
    for (size_t i = 0; i < count && !source->stopped && source->records_left > 0; i++) {
        source->turn = (source->turn + 1) % count;
        struct kafka_partition *partition = &source->partitions[source->turn];
        if (!partition->started) {
            continue;
        }
        struct reading reading = {
            .source = source, .partition = partition->id, .records_left = TURN_RECORDS};
        partition->visited = true;
        read_queue(partition->queue, &reading);
    }
    return source->read_any;
}
