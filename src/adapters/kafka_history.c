/* The simple consumer of librdkafka: partitions are fetched into one queue, without a group. All
 * partitions share its bound, so that a topic of unequal ones is read as fast as an equal one. */
#include "fcap/kafka_history.h"

#include "fcap/assert.h"
#include "kafka_whole.h"
#include "source_kafka_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FETCH_BYTES_MIN  ((int64_t)64 * 1024)
#define FETCH_BYTES_MAX  ((int64_t)1024 * 1024)
#define QUEUE_BYTES_MIN  ((int64_t)1024 * 1024)
#define QUEUE_KBYTES_MAX ((int64_t)2097151) /* librdkafka's own */
#define STILL_STEP_MS    1000 /* a caller that was away longer does not count as silence */
#define ERROR_MS         10000

/* READ: to its end; whether all of it was of one log is being asked. */
enum state { ASKED, FOUND, READING, ASKED_AGAIN, READ, DONE, SKIPPED };

struct part {
    enum state state;
    bool is_fetched; /* the client has it */
    bool has_moved;  /* in this call */
    bool is_refetched;
    bool timestamps_unusable;
    int64_t start;
    int64_t next;
    int64_t end;
    struct kafka_whole whole;
    int64_t still_ms;
    struct fcap_log_mark marks[FCAP_LOG_MARKS_MAX]; /* of records that were given, about equally far
                                                       apart, the lowest first */
    size_t mark_count;
    size_t mark; /* READ: being compared */
};

struct fcap_kafka_history {
    struct kafka_config config;
    struct kafka_shared shared;
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    rd_kafka_queue_t *queue;
    struct kafka_helper *helper;
    struct part *parts;
    int32_t count;
    uint64_t round; /* of asking: the answers' assignment */
    struct fcap_start asked;
    int64_t read_ms;
    char error[512];

    /* Of the call under way. */
    const struct fcap_kafka_history_handler *handler;
    size_t records_left;
    bool is_stopped;
    bool any;
    rd_kafka_resp_err_t fatal;
    int32_t other_log; /* a partition whose log is not the one that was read; -1: none */
};

/* --- whether it was one log --- */

/* Keeps the first record, and then one of each piece of the way. */
static void keep_mark(struct part *part, const struct fcap_record *record)
{
    int64_t piece = (part->end - part->start) / (FCAP_LOG_MARKS_MAX - 1) + 1;
    int64_t due = part->mark_count == 0 ? 0 : part->marks[part->mark_count - 1].offset + piece;
    if (part->mark_count < FCAP_LOG_MARKS_MAX && record->offset >= due) {
        part->marks[part->mark_count++] =
            (struct fcap_log_mark){.offset = record->offset + 1,
                                   .timestamp_ms = record->timestamp_ms,
                                   .key_hash = fcap_hash64(record->key, 0)};
    }
}

/* All below the end was given, or never will be. A topic that was created anew in the middle of it,
 * and is as long as we had come, was read on as if nothing had happened: the lowest record that was
 * given and is still there tells. */
static void ask_whether_same(struct fcap_kafka_history *history, int32_t partition)
{
    struct part *part = &history->parts[partition];
    if (part->mark == part->mark_count) {
        part->state = DONE; /* Nothing was read, or retention has taken all of it since. */
        return;
    }
    struct kafka_lookup lookup = {.partition = partition,
                                  .assignment = history->round,
                                  .start = {.kind = FCAP_START_OFFSET,
                                            .offset = part->end,
                                            .mark_count = 1,
                                            .marks = {part->marks[part->mark]}}};
    part->state = READ;
    kafka_helper_ask(history->helper, &lookup);
}

static void take_comparison(struct fcap_kafka_history *history, const struct kafka_lookup *answer)
{
    struct part *part = &history->parts[answer->partition];
    if (answer->is_gap && answer->gap != FCAP_GAP_BELOW_START) {
        history->other_log = answer->partition;
    } else if (answer->same >= 0) {
        part->state = DONE;
    } else {
        while (part->mark < part->mark_count &&
               part->marks[part->mark].offset <= answer->log_start) {
            part->mark++;
        }
        ask_whether_same(history, answer->partition);
    }
}

/* --- messages --- */

static void give(struct fcap_kafka_history *history, struct part *part,
                 const rd_kafka_message_t *message)
{
    struct fcap_record record;
    kafka_record_of(message, &record);
    if (!part->timestamps_unusable) {
        kafka_whole_record(&part->whole, &history->asked, history->handler->decoder, &record);
    }
    keep_mark(part, &record);
    part->next = message->offset + 1;
    history->records_left -= history->records_left > 0;
    if (!history->handler->record(history->handler->context, &record)) {
        history->is_stopped = true;
    }
}

/* Retention has taken what was to come, or the log is another one: where does it begin now? */
static void ask_again(struct fcap_kafka_history *history, struct part *part, int32_t partition)
{
    struct kafka_lookup lookup = {.partition = partition,
                                  .assignment = history->round,
                                  .start = {.kind = FCAP_START_EARLIEST}};
    part->state = ASKED_AGAIN;
    kafka_helper_ask(history->helper, &lookup);
}

static void on_message(rd_kafka_message_t *message, void *opaque)
{
    struct fcap_kafka_history *history = opaque;
    bool is_ours = message->partition >= 0 && message->partition < history->count;
    struct part *part = is_ours ? &history->parts[message->partition] : NULL;
    history->any = true;
    if (part == NULL || part->state != READING) {
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            kafka_shared_error(&history->shared, "%s", rd_kafka_message_errstr(message));
        }
    } else if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        part->has_moved = true;
        if (message->offset >= part->next && message->offset < part->end) {
            give(history, part, message);
        }
        if (message->offset + 1 >= part->end) {
            ask_whether_same(history, message->partition);
        }
    } else if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        /* Markers and aborted records may be the last before the end. */
        if (message->offset >= part->end) {
            ask_whether_same(history, message->partition);
        }
    } else if (message->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET) {
        ask_again(history, part, message->partition);
    } else {
        history->fatal = message->err == RD_KAFKA_RESP_ERR__FATAL ? message->err : history->fatal;
        kafka_shared_error(&history->shared, "%s [%" PRId32 "]: %s", history->config.topic,
                           message->partition, rd_kafka_message_errstr(message));
    }
    if (history->is_stopped || history->records_left == 0) {
        rd_kafka_yield(history->client); /* The rest stays in the queue, in order. */
    }
}

/* --- fetching --- */

static void fetch(struct fcap_kafka_history *history, int32_t partition)
{
    struct part *part = &history->parts[partition];
    part->is_fetched =
        rd_kafka_consume_start_queue(history->topic, partition, part->next, history->queue) == 0;
    if (!part->is_fetched) {
        kafka_shared_error(&history->shared, "%s [%" PRId32 "]: %s", history->config.topic,
                           partition, rd_kafka_err2str(rd_kafka_last_error()));
    }
}

/* What it has queued is dropped. */
static void unfetch(struct fcap_kafka_history *history, int32_t partition)
{
    if (history->parts[partition].is_fetched) {
        (void)rd_kafka_consume_stop(history->topic, partition); /* Fails only for strangers. */
        history->parts[partition].is_fetched = false;
    }
}

static void take_answer(struct fcap_kafka_history *history, const struct kafka_lookup *answer)
{
    struct part *part = &history->parts[answer->partition];
    if (part->state == ASKED) {
        part->state = FOUND;
        part->start = answer->offset;
        part->next = answer->offset;
        part->end = answer->end;
        part->timestamps_unusable = answer->timestamps_unusable;
        /* A log that begins where reading does may have held more. */
        if (answer->offset > 0 && answer->offset == answer->log_start) {
            kafka_whole_short(&part->whole);
        }
    } else if (part->state == ASKED_AGAIN) {
        unfetch(history, answer->partition);
        part->state = FOUND;
        /* Else a new leader had not heard of all yet: the same once more. */
        if (answer->log_start > part->next || answer->end < part->next) {
            kafka_whole_cut(&part->whole);
            part->next = answer->log_start > part->next ? answer->log_start : part->end;
        }
    } else if (part->state == READ) {
        take_comparison(history, answer);
    }
}

static void take_answers(struct fcap_kafka_history *history)
{
    struct kafka_lookup answer;
    while (kafka_helper_answer(history->helper, &answer)) {
        if (answer.assignment == history->round) {
            take_answer(history, &answer);
        }
    }
}

/* Nothing comes of it although something is there: once in a while it is fetched anew, for clients
 * are known that forget a partition. */
static void note_silence(struct fcap_kafka_history *history, int32_t partition, int64_t still_ms)
{
    struct part *part = &history->parts[partition];
    part->still_ms = part->has_moved ? 0 : part->still_ms + still_ms;
    part->is_refetched = part->is_refetched && !part->has_moved;
    part->has_moved = false;
    if (part->state == READING && !part->is_refetched &&
        part->still_ms >= history->config.stall_timeout_ms) {
        part->is_refetched = true;
        unfetch(history, partition);
        fetch(history, partition);
    }
}

static bool settle(struct fcap_kafka_history *history, int64_t still_ms)
{
    bool is_done = true;
    take_answers(history);
    for (int32_t i = 0; i < history->count; i++) {
        struct part *part = &history->parts[i];
        if (part->state == FOUND) {
            if (part->next < part->end) {
                part->state = READING;
            } else {
                ask_whether_same(history, i);
            }
        }
        if (part->state == READING && !part->is_fetched) {
            fetch(history, i);
        } else if (part->state == READ || part->state == DONE || part->state == SKIPPED) {
            unfetch(history, i);
        }
        if (part->state == DONE || part->state == SKIPPED) {
            continue;
        }
        note_silence(history, i, still_ms);
        is_done = false;
    }
    return is_done;
}

enum fcap_status fcap_kafka_history_read(struct fcap_kafka_history *history,
                                         const struct fcap_kafka_history_handler *handler,
                                         size_t records_max, int timeout_ms, bool *ret_done,
                                         struct fcap_error *error)
{
    int64_t now_ms = fcap_kafka_now_ms();
    int64_t away_ms = history->read_ms == 0 ? 0 : now_ms - history->read_ms;
    history->read_ms = now_ms;
    history->handler = handler;
    history->records_left = records_max;
    history->is_stopped = false;
    *ret_done = settle(history, away_ms < STILL_STEP_MS ? away_ms : STILL_STEP_MS);
    if (history->other_log >= 0) {
        return fcap_error_set(error, FCAP_UNAVAILABLE,
                              "kafka.topic %s: partition %" PRId32 " is another log than the one "
                              "that was read: the topic was created anew, or has lost records; run "
                              "it again",
                              history->config.topic, history->other_log);
    }
    if (*ret_done) {
        return FCAP_OK;
    }
    (void)rd_kafka_poll(history->client, 0); /* Errors and logs. */
    do {
        history->any = false;
        (void)rd_kafka_consume_callback_queue(history->queue, timeout_ms, on_message, history);
        timeout_ms = 0;
    } while (history->any && !history->is_stopped && history->records_left > 0);
    if (history->records_left == 0 || history->is_stopped) {
        history->read_ms = 0; /* More is there: nobody can be said to be silent. */
    }
    if (history->fatal != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return fcap_error_set(error, FCAP_IO, "kafka: %s", fcap_kafka_history_error(history));
    }
    return FCAP_OK;
}

/* --- asking --- */

void fcap_kafka_history_find(struct fcap_kafka_history *history, struct fcap_start start)
{
    FCAP_ASSERT(start.kind == FCAP_START_EARLIEST || start.kind == FCAP_START_TIME);
    for (int32_t i = 0; i < history->count; i++) {
        struct part *part = &history->parts[i];
        FCAP_ASSERT(!part->is_fetched);
        kafka_helper_cancel(history->helper, i, history->round);
        if (part->state == SKIPPED) {
            continue;
        }
        *part = (struct part){.state = ASKED, .whole = KAFKA_WHOLE};
        struct kafka_lookup lookup = {.partition = i,
                                      .assignment = history->round + 1,
                                      .asked_ms = fcap_kafka_now_ms(),
                                      .start = start};
        kafka_helper_ask(history->helper, &lookup);
    }
    history->round++;
    history->asked = start;
    history->read_ms = 0;
}

bool fcap_kafka_history_found(struct fcap_kafka_history *history, uint64_t *ret_records)
{
    bool all = true;
    uint64_t records = 0;
    int64_t now_ms = fcap_kafka_now_ms();
    int64_t away_ms = history->read_ms == 0 ? 0 : now_ms - history->read_ms;
    history->read_ms = now_ms;
    take_answers(history);
    for (int32_t i = 0; i < history->count; i++) {
        struct part *part = &history->parts[i];
        if (part->state == ASKED) {
            part->still_ms += away_ms < STILL_STEP_MS ? away_ms : STILL_STEP_MS;
            all = false;
        } else if (part->state == FOUND) {
            part->still_ms = 0;
            records += (uint64_t)(part->end > part->start ? part->end - part->start : 0);
        }
    }
    if (ret_records != NULL) {
        *ret_records = records;
    }
    return all;
}

void fcap_kafka_history_skip(struct fcap_kafka_history *history, int32_t partition)
{
    FCAP_ASSERT(partition >= 0 && partition < history->count);
    history->parts[partition].state = SKIPPED;
}

/* --- what is known --- */

void fcap_kafka_history_partition(const struct fcap_kafka_history *history, int32_t partition,
                                  struct fcap_kafka_history_partition *ret_partition)
{
    FCAP_ASSERT(partition >= 0 && partition < history->count);
    const struct part *part = &history->parts[partition];
    *ret_partition = (struct fcap_kafka_history_partition){
        .is_found = part->state != ASKED,
        .is_skipped = part->state == SKIPPED,
        .is_done = part->state == DONE,
        .timestamps_unusable = part->timestamps_unusable,
        .start = part->start,
        .next = part->state == READ || part->state == DONE ? part->end : part->next,
        .end = part->end,
        .whole_since_ms = part->whole.since_ms,
        .still_ms = part->still_ms,
    };
}

int32_t fcap_kafka_history_stillest(const struct fcap_kafka_history *history)
{
    int32_t found = -1;
    for (int32_t i = 0; i < history->count; i++) {
        const struct part *part = &history->parts[i];
        bool is_awaited = part->state != DONE && part->state != SKIPPED && part->state != FOUND;
        if (is_awaited && (found < 0 || part->still_ms > history->parts[found].still_ms)) {
            found = i;
        }
    }
    return found;
}

int32_t fcap_kafka_history_topic_partitions(struct fcap_kafka_history *history)
{
    return kafka_shared_partitions(&history->shared);
}

const char *fcap_kafka_history_error(struct fcap_kafka_history *history)
{
    struct kafka_shared *shared = &history->shared;
    pthread_mutex_lock(&shared->lock);
    bool is_new = shared->snapshot.error_ms != 0 &&
                  fcap_kafka_now_ms() - shared->snapshot.error_ms < ERROR_MS;
    (void)memcpy(history->error, is_new ? shared->snapshot.error : "",
                 is_new ? sizeof history->error : 1);
    pthread_mutex_unlock(&shared->lock);
    return history->error;
}

/* --- open and close --- */

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque)
{
    struct fcap_kafka_history *history = opaque;
    (void)client;
    if (error == RD_KAFKA_RESP_ERR__FATAL) {
        history->fatal = RD_KAFKA_RESP_ERR__FATAL;
    }
    kafka_shared_error(&history->shared, "%s: %s", rd_kafka_err2str((rd_kafka_resp_err_t)error),
                       reason);
}

static void be_quiet(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client; /* What matters comes as an error, too. */
    (void)level;
    (void)facility;
    (void)text;
}

/* Two thirds of the memory may wait in the queue; the rest is for the answers on their way, one for
 * each partition, which come on top. */
static enum fcap_status size_fetches(rd_kafka_conf_t *conf, int64_t budget, int32_t partitions,
                                     struct fcap_error *error)
{
    int64_t fetch_bytes = budget / 3 / partitions;
    fetch_bytes = fetch_bytes < FETCH_BYTES_MIN ? FETCH_BYTES_MIN : fetch_bytes;
    fetch_bytes = fetch_bytes > FETCH_BYTES_MAX ? FETCH_BYTES_MAX : fetch_bytes;
    int64_t queue_bytes = budget - fetch_bytes * partitions;
    queue_bytes = queue_bytes < QUEUE_BYTES_MIN ? QUEUE_BYTES_MIN : queue_bytes;
    int64_t kbytes = queue_bytes / 1024;
    enum fcap_status status = fcap_kafka_set(conf, "group.id", NULL, error);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"fetch.message.max.bytes", fetch_bytes},
        {"fetch.min.bytes", fetch_bytes / 2},
        {"queued.max.messages.kbytes", kbytes > QUEUE_KBYTES_MAX ? QUEUE_KBYTES_MAX : kbytes},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == FCAP_OK; i++) {
        status = fcap_kafka_set_number(conf, numbers[i].name, numbers[i].value, error);
    }
    return status;
}

static enum fcap_status open_client(struct fcap_kafka_history *history, rd_kafka_conf_t *conf,
                                    struct fcap_error *error)
{
    char text[512];
    rd_kafka_conf_set_opaque(conf, history);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, be_quiet);
    history->client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (history->client == NULL) {
        rd_kafka_conf_destroy(conf);
        return fcap_error_set(error, FCAP_CONFIG, "kafka.librdkafka: %s", text);
    }
    history->topic = rd_kafka_topic_new(history->client, history->config.topic, NULL);
    history->queue = rd_kafka_queue_new(history->client);
    if (history->topic == NULL) {
        return fcap_error_set(error, FCAP_IO, "kafka: %s", rd_kafka_err2str(rd_kafka_last_error()));
    }
    return FCAP_OK;
}

enum fcap_status fcap_kafka_history_open(const struct fcap_source_kafka_settings *settings,
                                         int32_t partitions,
                                         struct fcap_kafka_history **ret_history,
                                         struct fcap_error *error)
{
    struct fcap_source_kafka_settings own = *settings;
    rd_kafka_conf_t *confs[2] = {NULL, NULL};
    FCAP_ASSERT(partitions > 0);
    own.instance_id = NULL;
    struct fcap_kafka_history *history = calloc(1, sizeof *history);
    FCAP_ASSERT(history != NULL);
    kafka_shared_init(&history->shared);
    history->count = partitions;
    history->other_log = -1;
    history->parts = calloc((size_t)partitions, sizeof *history->parts);
    FCAP_ASSERT(history->parts != NULL);
    enum fcap_status status =
        kafka_config_make(&own, &history->config, &confs[0], &confs[1], error);
    if (status != FCAP_OK) {
        goto out;
    }
    free(history->config.group); /* Nobody's: the helper is not to look at the members. */
    history->config.group = NULL;
    status = size_fetches(confs[0], own.queues_bytes, partitions, error);
    if (status == FCAP_OK) {
        status = open_client(history, confs[0], error);
        confs[0] = NULL;
    }
    if (status == FCAP_OK) {
        status = kafka_helper_open(confs[1], &history->config, &history->shared, &history->helper,
                                   error);
        confs[1] = NULL;
    }
    if (status == FCAP_OK) {
        *ret_history = history;
        history = NULL;
    }
out:
    for (size_t i = 0; i < 2; i++) {
        if (confs[i] != NULL) {
            rd_kafka_conf_destroy(confs[i]);
        }
    }
    fcap_kafka_history_close(history);
    return status;
}

void fcap_kafka_history_close(struct fcap_kafka_history *history)
{
    if (history == NULL) {
        return;
    }
    kafka_helper_close(history->helper);
    for (int32_t i = 0; i < history->count; i++) {
        unfetch(history, i);
    }
    if (history->queue != NULL) {
        rd_kafka_queue_destroy(history->queue);
    }
    if (history->topic != NULL) {
        rd_kafka_topic_destroy(history->topic);
    }
    if (history->client != NULL) {
        rd_kafka_destroy(history->client);
    }
    kafka_shared_done(&history->shared);
    kafka_config_done(&history->config);
    free(history->parts);
    free(history);
}
