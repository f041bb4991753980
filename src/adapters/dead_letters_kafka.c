#include "fcap/dead_letters_kafka.h"

#include "fcap/assert.h"
#include "dead_letters_kafka_internal.h"
#include "kafka_properties.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

enum letter_state {
    LETTER_EMPTY,
    LETTER_WAITING, /* to be handed to the client at due_ms */
    LETTER_SENT,    /* the client has it */
    LETTER_DONE,    /* durable or dropped; earlier ones may not be */
};

/* Lives in a ring at number % capacity until every earlier one is done. The client borrows the
 * bytes, so they stay until its report. */
struct letter {
    enum letter_state state;
    uint64_t number;
    uint64_t ticket; /* numbers count letters in the ring, tickets also those dropped before it */
    uint8_t *bytes;  /* key, then value; NULL when both are absent or empty */
    size_t key_size;
    size_t value_size;
    bool has_key;
    bool has_value;
    enum fcap_reject reason;
    bool alone; /* the broker refused a batch with it; see fail() */
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms;
    int64_t due_ms;
    int64_t give_up_ms; /* policy drop */
};

struct fcap_dead_letters_kafka {
    struct fcap_dead_letters port;
    rd_kafka_t *client;
    rd_kafka_conf_t *conf; /* to make another client of */
    char *topic;
    char *source_topic;
    enum fcap_dead_letters_policy policy;
    int retry_ms;
    int give_up_ms;
    int close_timeout_ms;
    void (*log)(void *context, int level, const char *text);
    void *log_context;

    struct letter *ring;
    size_t capacity;
    uint64_t first; /* number of the oldest letter that is not done; all below are */
    uint64_t next;  /* number of the next letter */
    uint64_t last_ticket;
    size_t bytes;
    size_t bytes_max;
    size_t waiting; /* letters in state WAITING */
    size_t alone;   /* letters in state SENT that are tried alone */
    bool must_rebuild;

    pthread_mutex_t lock; /* of the snapshot */
    struct fcap_dead_letters_kafka_snapshot snapshot;
};

static void note_error(struct fcap_dead_letters_kafka *letters, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note_error(struct fcap_dead_letters_kafka *letters, const char *format, ...)
{
    va_list arguments;
    pthread_mutex_lock(&letters->lock);
    va_start(arguments, format);
    (void)vsnprintf(letters->snapshot.error, sizeof letters->snapshot.error, format,
                    arguments); /* Cut is fine. */
    va_end(arguments);
    letters->snapshot.errors++;
    pthread_mutex_unlock(&letters->lock);
}

static struct letter *letter_of(struct fcap_dead_letters_kafka *letters, uint64_t number)
{
    return &letters->ring[number % letters->capacity];
}

/* --- one letter's way --------------------------------------------------------------------- */

static void finish(struct fcap_dead_letters_kafka *letters, struct letter *letter, bool written)
{
    letters->bytes -= letter->key_size + letter->value_size;
    free(letter->bytes);
    letter->bytes = NULL;
    letter->state = LETTER_DONE;
    pthread_mutex_lock(&letters->lock);
    letters->snapshot.written += written ? 1 : 0;
    letters->snapshot.dropped += written ? 0 : 1;
    letters->snapshot.pending--;
    if (written) {
        letters->snapshot.stuck_since_ms = 0;
    }
    pthread_mutex_unlock(&letters->lock);
    while (letters->first < letters->next &&
           letter_of(letters, letters->first)->state == LETTER_DONE) {
        letter_of(letters, letters->first)->state = LETTER_EMPTY;
        letters->first++;
    }
}

/* The letter could not be written this time. One bad record (too large, say) makes the broker
 * refuse its whole batch, so what was refused is tried again one by one, or the good would wait for
 * ever. */
static void fail(struct fcap_dead_letters_kafka *letters, struct letter *letter, bool refused)
{
    int64_t now_ms = fcap_kafka_now_ms();
    pthread_mutex_lock(&letters->lock);
    letters->snapshot.retried++;
    if (letters->snapshot.stuck_since_ms == 0) {
        letters->snapshot.stuck_since_ms = now_ms;
    }
    pthread_mutex_unlock(&letters->lock);
    letter->state = LETTER_WAITING;
    letter->alone = letter->alone || refused;
    letter->due_ms = now_ms + letters->retry_ms;
    letters->waiting++;
}

static void add_header(rd_kafka_headers_t *headers, const char *name, const char *value)
{
    /* Fails only for a list that is not ours. */
    (void)rd_kafka_header_add(headers, name, -1, value, (ssize_t)strlen(value));
}

static rd_kafka_headers_t *make_headers(const struct fcap_dead_letters_kafka *letters,
                                        const struct letter *letter)
{
    char number[32];
    rd_kafka_headers_t *headers = rd_kafka_headers_new(5);
    add_header(headers, "fcap.reason", fcap_reject_label(letter->reason));
    add_header(headers, "fcap.topic", letters->source_topic);
    (void)snprintf(number, sizeof number, "%" PRId32, letter->partition); /* These always fit. */
    add_header(headers, "fcap.partition", number);
    (void)snprintf(number, sizeof number, "%" PRId64, letter->offset);
    add_header(headers, "fcap.offset", number);
    (void)snprintf(number, sizeof number, "%" PRId64, letter->timestamp_ms);
    add_header(headers, "fcap.timestamp", number);
    return headers;
}

static void hand_over(struct fcap_dead_letters_kafka *letters, struct letter *letter)
{
    static uint8_t nothing; /* Empty is not null: it needs an address. Only read. */
    uint8_t *bytes = letter->bytes != NULL ? letter->bytes : &nothing;
    rd_kafka_headers_t *headers = make_headers(letters, letter);
    void *key = letter->has_key ? bytes : NULL;
    void *value = letter->has_value ? bytes + letter->key_size : NULL;
    if (letter->state == LETTER_WAITING) {
        letters->waiting--;
    }
    letter->state = LETTER_SENT;
    rd_kafka_vu_t parts[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = letters->topic},
        {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {key, letter->key_size}},
        {.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {value, letter->value_size}},
        {.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers},
        {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = (void *)(uintptr_t)letter->number},
    };
    rd_kafka_error_t *error = rd_kafka_produceva(letters->client, parts, COUNT(parts));
    if (error != NULL) {
        rd_kafka_headers_destroy(headers); /* The client's only when it took the letter. */
        note_error(letters, "%s: %s", letters->topic, rd_kafka_error_string(error));
        letters->must_rebuild =
            letters->must_rebuild || rd_kafka_error_code(error) == RD_KAFKA_RESP_ERR__FATAL;
        rd_kafka_error_destroy(error);
        fail(letters, letter, false);
        return;
    }
    letters->alone += letter->alone ? 1 : 0;
}

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    struct fcap_dead_letters_kafka *letters = opaque;
    (void)client;
    uint64_t number = (uint64_t)(uintptr_t)message->_private;
    struct letter *letter = letter_of(letters, number);
    FCAP_ASSERT(letter->number == number && letter->state == LETTER_SENT);
    letters->alone -= letter->alone ? 1 : 0;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        finish(letters, letter, true);
        return;
    }
    note_error(letters, "%s: %s%s", letters->topic, rd_kafka_err2str(message->err),
               message->err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
                   ? " (the topic's max.message.bytes must be above that of the topic read)"
                   : "");
    /* Errors below zero are the client's own: no broker has seen the letter. */
    fail(letters, letter, message->err > RD_KAFKA_RESP_ERR_NO_ERROR);
}

/* --- the client ----------------------------------------------------------------------------- */

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque)
{
    struct fcap_dead_letters_kafka *letters = opaque;
    char text[256];
    if (error == RD_KAFKA_RESP_ERR__FATAL) {
        /* An idempotent producer is dead for good: not allowed by the broker, or out of sequence
         * for ever. A plain one may write letters twice, which is allowed. */
        rd_kafka_resp_err_t code = rd_kafka_fatal_error(client, text, sizeof text);
        note_error(letters, "idempotent producer: %s: %s", rd_kafka_err2name(code), text);
        letters->must_rebuild = true;
        return;
    }
    note_error(letters, "%s: %s", rd_kafka_err2str((rd_kafka_resp_err_t)error), reason);
}

static void on_log(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    struct fcap_dead_letters_kafka *letters = rd_kafka_opaque(client);
    (void)facility;
    if (letters != NULL && letters->log != NULL) {
        letters->log(letters->log_context, level, text);
    }
}

static enum fcap_status make_client(struct fcap_dead_letters_kafka *letters, bool idempotent,
                                    struct fcap_error *error)
{
    char text[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_dup(letters->conf);
    rd_kafka_conf_set_opaque(conf, letters);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, on_log);
    enum fcap_status status =
        fcap_kafka_set(conf, "enable.idempotence", idempotent ? "true" : "false", error);
    if (status != FCAP_OK) {
        rd_kafka_conf_destroy(conf);
        return status;
    }
    letters->client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (letters->client == NULL) {
        rd_kafka_conf_destroy(conf);
        return fcap_error_set(error, FCAP_CONFIG, "kafka.librdkafka: dead letters: %s", text);
    }
    pthread_mutex_lock(&letters->lock);
    letters->snapshot.idempotent = idempotent;
    pthread_mutex_unlock(&letters->lock);
    return FCAP_OK;
}

/* Gives up what is in the client; every letter in it is reported as failed by the purge. */
static void drop_client(struct fcap_dead_letters_kafka *letters)
{
    if (letters->client == NULL) {
        return;
    }
    (void)rd_kafka_purge(letters->client, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT |
                                              RD_KAFKA_PURGE_F_NON_BLOCKING);
    (void)rd_kafka_flush(letters->client, 1000); /* Takes the reports of the purge. */
    rd_kafka_destroy(letters->client);
    letters->client = NULL;
}

static void rebuild(struct fcap_dead_letters_kafka *letters)
{
    struct fcap_error error;
    letters->must_rebuild = false;
    drop_client(letters);
    for (uint64_t number = letters->first; number < letters->next; number++) {
        struct letter *letter = letter_of(letters, number);
        if (letter->state == LETTER_SENT) {
            fail(letters, letter, false);
        }
    }
    letters->alone = 0;
    if (make_client(letters, false, &error) != FCAP_OK) {
        note_error(letters, "%s", error.text);
        letters->must_rebuild = true;
    }
}

/* Takes reports and hands over what is due again. */
static void serve(struct fcap_dead_letters_kafka *letters)
{
    if (letters->client != NULL) {
        (void)rd_kafka_poll(letters->client, 0);
    }
    if (letters->must_rebuild) {
        rebuild(letters);
    }
    if (letters->waiting == 0 || letters->client == NULL) {
        return;
    }
    int64_t now_ms = fcap_kafka_now_ms();
    for (uint64_t number = letters->first; number < letters->next; number++) {
        struct letter *letter = letter_of(letters, number);
        if (letter->state != LETTER_WAITING) {
            continue;
        }
        if (letters->policy == FCAP_DEAD_LETTERS_DROP && now_ms >= letter->give_up_ms) {
            letters->waiting--;
            finish(letters, letter, false);
        } else if (now_ms >= letter->due_ms && (!letter->alone || letters->alone == 0)) {
            hand_over(letters, letter);
        }
    }
}

/* --- the port ----------------------------------------------------------------------------- */

static bool is_full(const struct fcap_dead_letters_kafka *letters, size_t size)
{
    return letters->next - letters->first >= letters->capacity ||
           (letters->bytes > 0 && letters->bytes + size > letters->bytes_max);
}

static void keep(struct fcap_dead_letters_kafka *letters, struct letter *letter,
                 const struct fcap_record *record, enum fcap_reject reason)
{
    size_t size = record->key.size + record->value.size;
    *letter = (struct letter){
        .state = LETTER_WAITING,
        .number = letters->next,
        .ticket = ++letters->last_ticket,
        .key_size = record->key.size,
        .value_size = record->value.size,
        .has_key = record->key.data != NULL,
        .has_value = record->value.data != NULL,
        .reason = reason,
        .partition = record->partition,
        .offset = record->offset,
        .timestamp_ms = record->timestamp_ms,
        .give_up_ms = fcap_kafka_now_ms() + letters->give_up_ms,
    };
    if (size > 0) {
        letter->bytes = malloc(size);
        FCAP_ASSERT(letter->bytes != NULL);
    }
    if (record->key.size > 0) {
        memcpy(letter->bytes, record->key.data, record->key.size);
    }
    if (record->value.size > 0) {
        memcpy(letter->bytes + record->key.size, record->value.data, record->value.size);
    }
    letters->next++;
    letters->bytes += size;
    letters->waiting++;
    pthread_mutex_lock(&letters->lock);
    letters->snapshot.pending++;
    pthread_mutex_unlock(&letters->lock);
}

static enum fcap_status write_letter(struct fcap_dead_letters *port,
                                     const struct fcap_record *record, enum fcap_reject reason,
                                     uint64_t *ret_ticket)
{
    struct fcap_dead_letters_kafka *letters = (struct fcap_dead_letters_kafka *)port;
    size_t size = record->key.size + record->value.size;
    if (is_full(letters, size)) {
        serve(letters);
    }
    if (is_full(letters, size)) {
        bool drop = letters->policy == FCAP_DEAD_LETTERS_DROP;
        pthread_mutex_lock(&letters->lock);
        letters->snapshot.dropped += drop ? 1 : 0;
        letters->snapshot.busy += drop ? 0 : 1;
        pthread_mutex_unlock(&letters->lock);
        if (!drop) {
            return FCAP_BUSY;
        }
        *ret_ticket = ++letters->last_ticket; /* Done as soon as the letters before it are. */
        return FCAP_OK;
    }
    struct letter *letter = letter_of(letters, letters->next);
    keep(letters, letter, record, reason);
    *ret_ticket = letter->ticket;
    if (letters->client != NULL) {
        hand_over(letters, letter);
    }
    return FCAP_OK;
}

static uint64_t done(struct fcap_dead_letters *port)
{
    struct fcap_dead_letters_kafka *letters = (struct fcap_dead_letters_kafka *)port;
    serve(letters);
    if (letters->first == letters->next) {
        return letters->last_ticket;
    }
    return letter_of(letters, letters->first)->ticket - 1;
}

static const struct fcap_dead_letters_ops ops = {.write = write_letter, .done = done};

struct fcap_dead_letters *fcap_dead_letters_kafka_port(struct fcap_dead_letters_kafka *letters)
{
    return &letters->port;
}

void fcap_dead_letters_kafka_snapshot(struct fcap_dead_letters_kafka *letters,
                                      struct fcap_dead_letters_kafka_snapshot *ret_snapshot)
{
    pthread_mutex_lock(&letters->lock);
    *ret_snapshot = letters->snapshot;
    pthread_mutex_unlock(&letters->lock);
}

/* --- open and close ----------------------------------------------------------------------- */

static char *copy_text(const char *text)
{
    char *copy = strdup(text != NULL ? text : "");
    FCAP_ASSERT(copy != NULL);
    return copy;
}

enum fcap_status
fcap_dead_letters_kafka_open(const struct fcap_dead_letters_kafka_settings *settings,
                             struct fcap_dead_letters_kafka **ret_letters, struct fcap_error *error)
{
    struct fcap_dead_letters_kafka *letters = calloc(1, sizeof *letters);
    FCAP_ASSERT(letters != NULL);
    letters->port.ops = &ops;
    (void)pthread_mutex_init(&letters->lock, NULL); /* Cannot fail on Linux. */
    letters->policy = settings->policy;
    letters->topic = copy_text(settings->topic);
    letters->source_topic = copy_text(settings->source_topic);
    letters->capacity = settings->letters_max > 0 ? settings->letters_max : 10000;
    letters->bytes_max = settings->bytes_max > 0 ? settings->bytes_max : (size_t)16 << 20;
    letters->retry_ms = settings->retry_ms > 0 ? settings->retry_ms : 1000;
    letters->give_up_ms = settings->give_up_ms > 0 ? settings->give_up_ms : 30000;
    letters->close_timeout_ms = settings->close_timeout_ms > 0 ? settings->close_timeout_ms : 5000;
    letters->log = settings->log;
    letters->log_context = settings->log_context;
    letters->ring = calloc(letters->capacity, sizeof *letters->ring);
    FCAP_ASSERT(letters->ring != NULL);
    letters->conf = rd_kafka_conf_new();
    enum fcap_status status = kafka_letters_configure(letters->conf, settings, letters->capacity,
                                                      letters->give_up_ms, error);
    if (status == FCAP_OK) {
        status = make_client(letters, true, error);
    }
    if (status != FCAP_OK) {
        goto out;
    }
    *ret_letters = letters;
    letters = NULL;
out:
    fcap_dead_letters_kafka_close(letters);
    return status;
}

void fcap_dead_letters_kafka_close(struct fcap_dead_letters_kafka *letters)
{
    if (letters == NULL) {
        return;
    }
    int64_t until_ms = fcap_kafka_now_ms() + letters->close_timeout_ms;
    while (letters->first < letters->next && fcap_kafka_now_ms() < until_ms) {
        serve(letters);
        if (letters->client != NULL) {
            (void)rd_kafka_poll(letters->client, 20);
        }
    }
    drop_client(letters);
    for (uint64_t number = letters->first; number < letters->next; number++) {
        free(letter_of(letters, number)->bytes);
    }
    rd_kafka_conf_destroy(letters->conf);
    free(letters->ring);
    free(letters->topic);
    free(letters->source_topic);
    (void)pthread_mutex_destroy(&letters->lock);
    free(letters);
}
