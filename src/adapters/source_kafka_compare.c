#include "source_kafka_internal.h"

#include <inttypes.h>

/* Time for the records of one round. */
#define READ_MS 5000

/* Markers and aborted records take offsets, too: how far before a mark its record is searched when
 * it does not stand right before it. */
#define SPAN 64

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Goes on to a mark that the log still holds a record for. */
static void choose_mark(struct kafka_lookup *lookup, size_t from)
{
    lookup->mark = from;
    lookup->span = 1;
    while (lookup->mark < lookup->start.mark_count &&
           lookup->start.marks[lookup->mark].offset > lookup->end) {
        lookup->mark++;
    }
    /* They fall: when this one is gone with the log's start, so are the rest. */
    lookup->compared = lookup->mark == lookup->start.mark_count ||
                       lookup->start.marks[lookup->mark].offset <= lookup->log_start;
}

static void begin(struct kafka_lookup *lookup)
{
    lookup->same = -1;
    lookup->other = INT64_MAX;
    lookup->compared = true;
    bool has_offset =
        lookup->start.kind == FCAP_START_OFFSET || lookup->start.kind == FCAP_START_AGAIN;
    if (has_offset && !lookup->failed && lookup->start.offset >= lookup->log_start &&
        !(lookup->is_trusted && lookup->start.offset <= lookup->end)) {
        choose_mark(lookup, 0);
    }
}

static void judge(struct kafka_lookup *lookup)
{
    const struct fcap_log_mark *mark = &lookup->start.marks[lookup->mark];
    if (!lookup->found && lookup->span == 1) {
        lookup->span = SPAN;
    } else if (lookup->found && lookup->record.timestamp_ms == mark->timestamp_ms &&
               lookup->record.key_hash == mark->key_hash) {
        lookup->same = mark->offset;
        lookup->compared = true;
    } else {
        /* The same log would hold the mark's record somewhere: one that has lost nothing at its
         * start and has no record below the mark is another one. */
        bool is_blank = !lookup->found && lookup->log_start == 0 && mark->offset <= SPAN;
        lookup->other = lookup->found || is_blank ? mark->offset : lookup->other;
        choose_mark(lookup, lookup->mark + 1);
    }
}

/* The last record below the mark is the one; true when no later one can be. */
static bool take(struct kafka_lookup *lookup, const rd_kafka_message_t *message)
{
    int64_t below = lookup->start.marks[lookup->mark].offset;
    if (message->offset < below) {
        rd_kafka_timestamp_type_t type;
        int64_t time_ms = rd_kafka_message_timestamp(message, &type);
        struct fcap_bytes key = {.data = message->key, .size = message->key_len};
        lookup->found = true;
        lookup->record = (struct fcap_log_mark){
            .offset = message->offset,
            .timestamp_ms = time_ms < 0 || type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ? -1 : time_ms,
            .key_hash = fcap_hash64(message->key == NULL ? FCAP_BYTES_NONE : key, 0),
        };
    }
    return message->offset >= below - 1;
}

static struct kafka_lookup *find_reading(struct kafka_lookup *lookups, size_t count,
                                         const rd_kafka_message_t *message)
{
    for (size_t i = 0; i < count && message->rkt != NULL; i++) {
        if (lookups[i].reading && lookups[i].partition == message->partition) {
            return &lookups[i];
        }
    }
    return NULL;
}

/* Reads until every awaited record is there or is known not to be; what is left fails. */
static void read_records(rd_kafka_t *client, struct kafka_shared *shared,
                         struct kafka_lookup *lookups, size_t count, int left)
{
    int64_t until_ms = fcap_kafka_now_ms() + READ_MS;
    while (left > 0 && fcap_kafka_now_ms() < until_ms) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, 50);
        if (message == NULL) {
            continue;
        }
        struct kafka_lookup *lookup = find_reading(lookups, count, message);
        bool is_end = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR && !is_end) {
            kafka_shared_error(shared, "comparing the log: %s", rd_kafka_message_errstr(message));
        } else if (lookup != NULL && (is_end || take(lookup, message))) {
            lookup->reading = false;
            left--;
        }
        rd_kafka_message_destroy(message);
    }
    for (size_t i = 0; i < count; i++) {
        if (lookups[i].reading) {
            kafka_shared_error(shared,
                               "comparing the log: partition %" PRId32 ": no record came in time",
                               lookups[i].partition);
        }
        lookups[i].failed = lookups[i].failed || lookups[i].reading;
        lookups[i].reading = false;
    }
}

/* One record of each lookup that is not through; false when all are. */
static bool compare_once(rd_kafka_t *client, const struct kafka_config *config,
                         struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    for (size_t i = 0; i < count; i++) {
        struct kafka_lookup *lookup = &lookups[i];
        lookup->found = false;
        lookup->reading = !lookup->compared && !lookup->failed;
        if (lookup->reading) {
            int64_t from = lookup->start.marks[lookup->mark].offset - lookup->span;
            rd_kafka_topic_partition_list_add(list, config->topic, lookup->partition)->offset =
                max_of(from, lookup->log_start);
        }
    }
    bool any = list->cnt > 0;
    if (any) {
        rd_kafka_resp_err_t error = rd_kafka_assign(client, list);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
            kafka_shared_error(shared, "comparing the log: %s", rd_kafka_err2str(error));
        }
        read_records(client, shared, lookups, count,
                     error == RD_KAFKA_RESP_ERR_NO_ERROR ? list->cnt : 0);
        (void)rd_kafka_assign(client, NULL); /* Fails only when the client is ending. */
    }
    for (size_t i = 0; i < count; i++) {
        if (!lookups[i].compared && !lookups[i].failed) {
            judge(&lookups[i]);
        }
    }
    rd_kafka_topic_partition_list_destroy(list);
    return any;
}

void kafka_compare_run(rd_kafka_t *client, const struct kafka_config *config,
                       struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        begin(&lookups[i]);
    }
    /* Mostly one round: each takes a wider look or another mark. */
    for (int i = 0; i <= 2 * FCAP_LOG_MARKS_MAX; i++) {
        if (!compare_once(client, config, shared, lookups, count)) {
            break;
        }
    }
}
