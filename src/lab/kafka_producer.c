#include "lab/kafka_broker.h"
#include "lab/kafka_client.h"
#include "lab/lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define CALL_MS 60000

struct kafka_producer {
    rd_kafka_t *client;
    char topic[256];
    uint64_t acknowledged;
    kafka_acknowledged *listener; /* NULL: none */
    void *context;
};

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    struct kafka_producer *producer = opaque;
    (void)client;
    /* Aborting a transaction purges what was not sent yet. */
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR &&
        message->err != RD_KAFKA_RESP_ERR__PURGE_QUEUE) {
        lab_die("produce: %s", rd_kafka_err2str(message->err));
    }
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        producer->acknowledged++;
        if (producer->listener != NULL) {
            producer->listener(producer->context, message->_private, message->partition,
                               message->offset);
        }
    }
}

static void check(const char *what, rd_kafka_error_t *error)
{
    if (error != NULL) {
        lab_die("%s: %s", what, rd_kafka_error_string(error));
    }
}

static struct kafka_producer *open_producer(const char *brokers, const char *topic,
                                            const char *codec, const char *transactional_id,
                                            int linger_ms)
{
    char text[512];
    char linger[16];
    (void)snprintf(linger, sizeof linger, "%d", linger_ms);
    struct kafka_producer *producer = calloc(1, sizeof *producer);
    if (producer == NULL) {
        lab_die("no memory");
    }
    strncpy(producer->topic, topic, sizeof producer->topic - 1);
    rd_kafka_conf_t *conf = kafka_client_conf(brokers);
    const char *const pairs[][2] = {
        {"enable.idempotence", "true"},
        {"linger.ms", linger},
        {"compression.codec", codec != NULL ? codec : "none"},
        {"message.max.bytes", "10000000"},
        {"transactional.id", transactional_id},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (pairs[i][1] != NULL && rd_kafka_conf_set(conf, pairs[i][0], pairs[i][1], text,
                                                     sizeof text) != RD_KAFKA_CONF_OK) {
            lab_die("%s", text);
        }
    }
    rd_kafka_conf_set_opaque(conf, producer);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    producer->client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (producer->client == NULL) {
        lab_die("%s", text);
    }
    if (transactional_id != NULL) {
        check("init_transactions", rd_kafka_init_transactions(producer->client, CALL_MS));
    }
    return producer;
}

struct kafka_producer *kafka_producer_open(const char *brokers, const char *topic,
                                           const char *codec, const char *transactional_id)
{
    return open_producer(brokers, topic, codec, transactional_id, 5);
}

struct kafka_producer *kafka_producer_open_linger(const char *brokers, const char *topic,
                                                  int linger_ms)
{
    return open_producer(brokers, topic, NULL, NULL, linger_ms);
}

static rd_kafka_error_t *try_send(struct kafka_producer *producer,
                                  const struct kafka_produce *record)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(record->header_count + 1);
    for (size_t i = 0; i < record->header_count; i++) {
        (void)rd_kafka_header_add(headers, record->headers[i].name, -1, record->headers[i].value,
                                  (ssize_t)strlen(record->headers[i].value));
    }
    rd_kafka_vu_t parts[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = producer->topic},
        {.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = record->partition},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
        {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {(void *)(uintptr_t)record->key, record->key_size}},
        {.vtype = RD_KAFKA_VTYPE_VALUE,
         .u.mem = {(void *)(uintptr_t)record->value, record->value_size}},
        {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = record->tag},
        {.vtype = RD_KAFKA_VTYPE_TIMESTAMP, .u.i64 = record->timestamp_ms},
        {.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers},
    };
    rd_kafka_error_t *error =
        rd_kafka_produceva(producer->client, parts, sizeof parts / sizeof parts[0]);
    if (error != NULL) {
        rd_kafka_headers_destroy(headers);
    }
    return error;
}

void kafka_producer_send(struct kafka_producer *producer, const struct kafka_produce *record)
{
    rd_kafka_error_t *error = NULL;
    while ((error = try_send(producer, record)) != NULL) {
        if (rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            lab_die("produce: %s", rd_kafka_error_string(error));
        }
        rd_kafka_error_destroy(error);
        (void)rd_kafka_poll(producer->client, 10);
    }
    (void)rd_kafka_poll(producer->client, 0);
}

void kafka_producer_text(struct kafka_producer *producer, int32_t partition, const char *value)
{
    kafka_producer_send(producer, &(struct kafka_produce){.partition = partition,
                                                          .value = value,
                                                          .value_size = strlen(value)});
}

uint64_t kafka_producer_flush(struct kafka_producer *producer)
{
    if (rd_kafka_flush(producer->client, CALL_MS) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        lab_die("flush: timeout");
    }
    return producer->acknowledged;
}

void kafka_producer_listen(struct kafka_producer *producer, kafka_acknowledged *acknowledged,
                           void *context)
{
    producer->listener = acknowledged;
    producer->context = context;
}

void kafka_producer_poll(struct kafka_producer *producer)
{
    (void)rd_kafka_poll(producer->client, 0);
}

void kafka_producer_begin(struct kafka_producer *producer)
{
    check("begin_transaction", rd_kafka_begin_transaction(producer->client));
}

void kafka_producer_commit(struct kafka_producer *producer)
{
    check("commit_transaction", rd_kafka_commit_transaction(producer->client, CALL_MS));
}

void kafka_producer_abort(struct kafka_producer *producer)
{
    check("abort_transaction", rd_kafka_abort_transaction(producer->client, CALL_MS));
}

void kafka_producer_close(struct kafka_producer *producer)
{
    if (producer != NULL) {
        (void)kafka_producer_flush(producer);
        rd_kafka_destroy(producer->client);
        free(producer);
    }
}
