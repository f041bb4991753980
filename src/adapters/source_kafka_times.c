/* Whether a start by time can be believed. The broker finds the first record whose timestamp is
 * late enough, and everything below it is left out. Timestamps are the word of whoever wrote the
 * record: where a producer's clock is wrong, or an importing tool writes zeroes, events that count
 * lie below. A log is written in the order of time, so then some lie right below: the last records
 * that are left out are looked at (docs/decisions/0018). */
#include "source_kafka_internal.h"

#include <inttypes.h>

/* Time for the records of one round. What did not come in that time is asked for in smaller pieces,
 * for records can be large. */
#define READ_MS 5000
#define SMALLER 4

/* Where none of the offsets looked at holds a record (markers and aborted records take some, too)
 * so many times more are. */
#define FURTHER 64

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct kafka_lookup *find_looking(struct kafka_lookup *lookups, size_t count,
                                         const rd_kafka_message_t *message)
{
    for (size_t i = 0; i < count && message->rkt != NULL; i++) {
        if (lookups[i].looking && lookups[i].partition == message->partition) {
            return &lookups[i];
        }
    }
    return NULL;
}

/* True when it was the last one to look at. */
static bool look_at(struct kafka_lookup *lookup, const struct kafka_config *config,
                    const rd_kafka_message_t *message)
{
    if (message->offset >= lookup->by_time) {
        return true;
    }
    struct fcap_record record;
    kafka_record_of(message, &record);
    lookup->looked_at++;
    lookup->timestamps_unusable =
        fcap_start_misses(&lookup->start, config->decoder, &record,
                          max_of(fcap_kafka_now_ms() - lookup->asked_ms, 0));
    lookup->told = lookup->told || fcap_start_tells(&lookup->start, config->decoder, &record);
    return lookup->timestamps_unusable || message->offset == lookup->by_time - 1;
}

static void read_records(rd_kafka_t *client, const struct kafka_config *config,
                         struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count,
                         int left)
{
    int64_t until_ms = fcap_kafka_now_ms() + READ_MS;
    while (left > 0 && fcap_kafka_now_ms() < until_ms) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, 50);
        if (message == NULL) {
            continue;
        }
        struct kafka_lookup *lookup = find_looking(lookups, count, message);
        bool is_end = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR && !is_end) {
            kafka_shared_error(shared, "records before the start: %s",
                               rd_kafka_message_errstr(message));
        } else if (lookup != NULL && (is_end || look_at(lookup, config, message))) {
            lookup->looking = false;
            left--;
        }
        rd_kafka_message_destroy(message);
    }
}

/* What became of one look; true when another one, further back, is due. */
static bool judge(struct kafka_shared *shared, struct kafka_lookup *lookup)
{
    if (lookup->looking) {
        kafka_shared_error(shared, "records before the start: partition %" PRId32 ": not in time",
                           lookup->partition);
        lookup->looking = false;
        lookup->failed = true;
        lookup->left_out = max_of(lookup->left_out / SMALLER, 1);
        return false;
    }
    if (lookup->timestamps_unusable) {
        lookup->by_time = lookup->log_start;
        return false;
    }
    bool is_all = lookup->left_out >= lookup->by_time - lookup->log_start;
    bool is_blank = lookup->looked_at == 0 && lookup->left_out <= FCAP_START_LEFT_OUT && !is_all;
    lookup->left_out *= is_blank ? FURTHER : 1;
    if (is_all && !lookup->told) {
        lookup->by_time = lookup->log_start;
    }
    return is_blank;
}

/* One look at all that are due; false when none is. */
static bool look_once(rd_kafka_t *client, const struct kafka_config *config,
                      struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    for (size_t i = 0; i < count; i++) {
        lookups[i].looking = lookups[i].look_is_due;
        if (lookups[i].looking) {
            lookups[i].looked_at = 0;
            lookups[i].told = lookups[i].log_start == 0; /* Then nothing was taken. */
            rd_kafka_topic_partition_list_add(list, config->topic, lookups[i].partition)->offset =
                max_of(lookups[i].by_time - lookups[i].left_out, lookups[i].log_start);
        }
    }
    bool any = list->cnt > 0;
    if (any) {
        rd_kafka_resp_err_t error = rd_kafka_assign(client, list);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
            kafka_shared_error(shared, "records before the start: %s", rd_kafka_err2str(error));
        }
        read_records(client, config, shared, lookups, count,
                     error == RD_KAFKA_RESP_ERR_NO_ERROR ? list->cnt : 0);
        (void)rd_kafka_assign(client, NULL); /* Fails only when the client is ending. */
    }
    for (size_t i = 0; i < count; i++) {
        lookups[i].look_is_due = lookups[i].look_is_due && judge(shared, &lookups[i]);
    }
    rd_kafka_topic_partition_list_destroy(list);
    return any;
}

void kafka_times_check(rd_kafka_t *client, const struct kafka_config *config,
                       struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct kafka_lookup *lookup = &lookups[i];
        bool is_by_time =
            lookup->start.kind == FCAP_START_TIME || lookup->start.kind == FCAP_START_AGAIN;
        lookup->look_is_due = is_by_time && !lookup->failed && lookup->by_time > lookup->log_start;
        lookup->left_out = lookup->left_out == 0 ? FCAP_START_LEFT_OUT : lookup->left_out;
    }
    while (look_once(client, config, shared, lookups, count)) {
    }
}
