#include "fcap/source_kafka.h"

#include "fcap/assert.h"
#include "source_kafka_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The longest sleep between two looks at the queues. Measured against an eventfd on every queue, a
 * short sleep costs a quarter of the CPU at 20,000 records a second. It is a sleep on the monotonic
 * clock, not a wait in the library: that one uses the wall clock, and a step of it would stall us.
 */
#define NAP_MS                  5
#define MAIN_QUEUE_MESSAGES_MAX 100
#define LAGS_EVERY_MS           1000
#define FIRST_SAFE_DESTROY      0x02030000

/* --- what other threads may see ------------------------------------------------------------- */

void kafka_shared_init(struct kafka_shared *shared)
{
    *shared = (struct kafka_shared){0};
    (void)pthread_mutex_init(&shared->lock, NULL); /* Cannot fail on Linux. */
}

void kafka_shared_done(struct kafka_shared *shared)
{
    free(shared->lags);
    (void)pthread_mutex_destroy(&shared->lock);
}

void kafka_shared_error(struct kafka_shared *shared, const char *format, ...)
{
    va_list arguments;
    int64_t now_ms = fcap_kafka_now_ms();
    pthread_mutex_lock(&shared->lock);
    va_start(arguments, format);
    (void)vsnprintf(shared->snapshot.error, sizeof shared->snapshot.error, format,
                    arguments); /* Cut is fine. */
    va_end(arguments);
    shared->snapshot.errors++;
    shared->snapshot.error_ms = now_ms;
    if (shared->snapshot.error_since_ms == 0) {
        shared->snapshot.error_since_ms = now_ms;
    }
    pthread_mutex_unlock(&shared->lock);
}

void kafka_shared_good(struct kafka_shared *shared)
{
    pthread_mutex_lock(&shared->lock);
    shared->snapshot.error_since_ms = 0;
    pthread_mutex_unlock(&shared->lock);
}

int32_t kafka_shared_partitions(struct kafka_shared *shared)
{
    pthread_mutex_lock(&shared->lock);
    int32_t count = shared->snapshot.topic_partitions;
    pthread_mutex_unlock(&shared->lock);
    return count;
}

void kafka_shared_log(struct kafka_shared *shared, int level, const char *text)
{
    pthread_mutex_lock(&shared->lock);
    if (shared->log != NULL) {
        shared->log(shared->log_context, level, text);
    }
    pthread_mutex_unlock(&shared->lock);
}

void fcap_source_kafka_snapshot(struct fcap_source_kafka *source,
                                struct fcap_source_kafka_snapshot *ret_snapshot)
{
    pthread_mutex_lock(&source->shared.lock);
    *ret_snapshot = source->shared.snapshot;
    pthread_mutex_unlock(&source->shared.lock);
}

size_t fcap_source_kafka_lags(struct fcap_source_kafka *source,
                              struct fcap_source_kafka_lag *ret_lags, size_t capacity)
{
    pthread_mutex_lock(&source->shared.lock);
    size_t count = source->shared.lag_count;
    size_t given = count < capacity ? count : capacity;
    if (given > 0) {
        memcpy(ret_lags, source->shared.lags, given * sizeof *ret_lags);
    }
    pthread_mutex_unlock(&source->shared.lock);
    return count;
}

static void show_lags(struct fcap_source_kafka *source)
{
    struct kafka_shared *shared = &source->shared;
    pthread_mutex_lock(&shared->lock);
    if (shared->lag_capacity < source->partition_count) {
        shared->lag_capacity = source->partition_capacity;
        shared->lags = reallocarray(shared->lags, shared->lag_capacity, sizeof *shared->lags);
        FCAP_ASSERT(shared->lags != NULL);
    }
    shared->lag_count = source->partition_count;
    for (size_t i = 0; i < source->partition_count; i++) {
        const struct kafka_partition *partition = &source->partitions[i];
        struct fcap_source_kafka_lag lag = {
            .partition = partition->id, .next = partition->next, .end = -1, .lag = -1};
        int64_t low = -1;
        int64_t high = -1;
        if (partition->started &&
            rd_kafka_get_watermark_offsets(source->client, source->config.topic, partition->id,
                                           &low, &high) == RD_KAFKA_RESP_ERR_NO_ERROR &&
            high >= 0) {
            lag.end = high;
        }
        if ((partition->started || partition->stuck) && partition->end > lag.end) {
            lag.end = partition->end; /* A partition that is not fetched learns of no end. */
        }
        if (lag.end >= 0) {
            lag.lag = lag.end > partition->next ? lag.end - partition->next : 0;
        }
        lag.is_stuck = partition->stuck;
        shared->lags[i] = lag;
    }
    pthread_mutex_unlock(&shared->lock);
}

static void show(struct fcap_source_kafka *source)
{
    int64_t now_ms = fcap_kafka_now_ms();
    uint32_t waiting = 0;
    for (size_t i = 0; i < source->partition_count; i++) {
        waiting += source->partitions[i].started ? 0 : 1;
    }
    if (source->good) {
        kafka_shared_good(&source->shared);
        source->good = false;
    }
    pthread_mutex_lock(&source->shared.lock);
    struct fcap_source_kafka_snapshot *snapshot = &source->shared.snapshot;
    snapshot->records = source->records;
    snapshot->bytes = source->bytes;
    snapshot->dropped = source->dropped;
    snapshot->rebalances = source->rebalances;
    snapshot->lost = source->lost_count;
    snapshot->gaps = source->gaps;
    snapshot->stalls = source->stalls;
    snapshot->rejoins = source->rejoins;
    snapshot->assigned = (uint32_t)source->partition_count;
    snapshot->waiting = waiting;
    snapshot->polled_ms = source->gate.polled_ms;
    pthread_mutex_unlock(&source->shared.lock);
    if (now_ms - source->lagged_ms >= LAGS_EVERY_MS) {
        show_lags(source);
        source->lagged_ms = now_ms;
    }
}

/* --- poll ----------------------------------------------------------------------------------- */

static void die(struct fcap_source_kafka *source)
{
    char text[512] = "";
    rd_kafka_resp_err_t code = rd_kafka_fatal_error(source->client, text, sizeof text);
    if (code == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID) {
        source->dead = FCAP_LOCKED;
        kafka_shared_error(
            &source->shared,
            "fenced: another member of group \"%s\" uses the instance id \"%s\"; ids "
            "must be unique, and this one has lost its partitions (%s)",
            source->config.group,
            source->config.instance_id != NULL ? source->config.instance_id : "", text);
    } else {
        source->dead = FCAP_IO;
        kafka_shared_error(&source->shared, "the Kafka client is dead: %s: %s",
                           rd_kafka_err2name(code), text);
    }
    pthread_mutex_lock(&source->shared.lock);
    source->shared.snapshot.fenced = source->dead == FCAP_LOCKED;
    pthread_mutex_unlock(&source->shared.lock);
}

bool kafka_serve(struct fcap_source_kafka *source)
{
    kafka_gate_polled(&source->gate, fcap_kafka_now_ms());
    for (int i = 0; i < MAIN_QUEUE_MESSAGES_MAX && source->dead == FCAP_OK; i++) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(source->client, 0);
        if (message == NULL) {
            break;
        }
        struct kafka_partition *partition =
            message->rkt != NULL ? kafka_partition_find(source, message->partition) : NULL;
        if (message->err == RD_KAFKA_RESP_ERR__FATAL) {
            die(source); /* No rebalance callback comes for a fenced member. */
        } else if (partition != NULL && message->err != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) {
            kafka_read_message(source, partition, message);
        } else if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            kafka_watch_error(source, message->err);
            kafka_shared_error(&source->shared, "%s", rd_kafka_message_errstr(message));
        }
        rd_kafka_message_destroy(message);
    }
    /* Noted at once: the library forgets it at the next assign call. */
    source->lost = source->lost || rd_kafka_assignment_lost(source->client) != 0;
    return source->dead == FCAP_OK;
}

static void nap(int64_t until_ms)
{
    int64_t left_ms = until_ms - fcap_kafka_now_ms();
    if (left_ms > NAP_MS) {
        left_ms = NAP_MS;
    }
    if (left_ms > 0) {
        struct timespec time = {.tv_nsec = (long)left_ms * 1000000};
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL); /* Short is fine. */
    }
}

static void read_all(struct fcap_source_kafka *source)
{
    while (kafka_read_round(source) && source->records_left > 0 && !source->stopped) {
        if (!kafka_serve(source)) {
            return;
        }
    }
}

static enum fcap_status poll_source(struct fcap_source *port,
                                    const struct fcap_source_handler *handler,
                                    struct fcap_source_budget budget)
{
    struct fcap_source_kafka *source = (struct fcap_source_kafka *)port;
    int64_t until_ms = fcap_kafka_now_ms() + (budget.timeout_ms > 0 ? budget.timeout_ms : 0);
    source->handler = handler;
    source->records_left = budget.records_max;
    source->stopped = false;
    source->happened = false;
    while (source->dead == FCAP_OK && kafka_serve(source)) {
        kafka_watch(source);
        kafka_orphans_serve(source);
        kafka_group_start(source);
        if (budget.records_max > 0) {
            read_all(source);
        }
        if (source->happened || source->stopped || fcap_kafka_now_ms() >= until_ms) {
            break;
        }
        nap(until_ms);
    }
    if (source->dead != FCAP_OK) {
        kafka_group_abandon(source);
    }
    source->handler = NULL;
    show(source);
    return source->dead;
}

static bool may_send(struct fcap_source *port, int32_t partition)
{
    struct fcap_source_kafka *source = (struct fcap_source_kafka *)port;
    return source->dead == FCAP_OK && !source->lost &&
           kafka_gate_open(&source->gate, fcap_kafka_now_ms()) &&
           rd_kafka_assignment_lost(source->client) == 0 &&
           kafka_partition_find(source, partition) != NULL;
}

static void publish(struct fcap_source *port, int32_t partition, int64_t next_offset)
{
    struct fcap_source_kafka *source = (struct fcap_source_kafka *)port;
    if (may_send(port, partition)) {
        kafka_helper_publish(source->helper, partition, next_offset);
    }
}

static const struct fcap_source_ops ops = {
    .poll = poll_source, .may_send = may_send, .publish = publish};

struct fcap_source *fcap_source_kafka_port(struct fcap_source_kafka *source)
{
    return &source->port;
}

/* --- open and close ------------------------------------------------------------------------- */

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque)
{
    struct fcap_source_kafka *source = opaque;
    (void)client;
    /* Only a fatal error means stop, and that one comes through the queue. Called on the worker's
     * thread, inside of poll. */
    kafka_watch_error(source, (rd_kafka_resp_err_t)error);
    kafka_shared_error(&source->shared, "%s: %s", rd_kafka_err2str((rd_kafka_resp_err_t)error),
                       reason);
}

static void on_log(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)facility;
    struct fcap_source_kafka *source = rd_kafka_opaque(client);
    if (source != NULL) {
        kafka_shared_log(&source->shared, level, text);
    }
}

static void free_source(struct fcap_source_kafka *source)
{
    FCAP_ASSERT(source->partition_count == 0);
    free(source->partitions);
    free(source->ends);
    kafka_shared_done(&source->shared);
    kafka_config_done(&source->config);
    free(source);
}

rd_kafka_resp_err_t kafka_subscribe(struct fcap_source_kafka *source)
{
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, source->config.topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(source->client, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    return code;
}

static enum fcap_status subscribe(struct fcap_source_kafka *source, struct fcap_error *error)
{
    rd_kafka_resp_err_t code = rd_kafka_poll_set_consumer(source->client);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        code = kafka_subscribe(source);
    }
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return fcap_error_set(error, FCAP_IO, "kafka: subscribe: %s", rd_kafka_err2str(code));
    }
    return FCAP_OK;
}

enum fcap_status fcap_source_kafka_open(const struct fcap_source_kafka_settings *settings,
                                        struct fcap_source_kafka **ret_source,
                                        struct fcap_error *error)
{
    char text[512];
    rd_kafka_conf_t *member = NULL;
    rd_kafka_conf_t *second = NULL;
    struct fcap_source_kafka *source = calloc(1, sizeof *source);
    FCAP_ASSERT(source != NULL);
    kafka_shared_init(&source->shared);
    enum fcap_status status = kafka_config_make(settings, &source->config, &member, &second, error);
    if (status != FCAP_OK) {
        goto out;
    }
    source->port.ops = &ops;
    source->shared.log = settings->log;
    source->shared.log_context = settings->log_context;
    kafka_gate_init(&source->gate, source->config.session_timeout_ms,
                    source->config.heartbeat_interval_ms);
    rd_kafka_conf_set_opaque(member, source);
    rd_kafka_conf_set_rebalance_cb(member, kafka_group_rebalance);
    rd_kafka_conf_set_error_cb(member, on_error);
    rd_kafka_conf_set_log_cb(member, on_log);
    source->client = rd_kafka_new(RD_KAFKA_CONSUMER, member, text, sizeof text);
    if (source->client == NULL) {
        status = fcap_error_set(error, FCAP_CONFIG, "kafka.librdkafka: %s", text);
        goto out;
    }
    member = NULL; /* The client's now. */
    status = kafka_helper_open(second, &source->config, &source->shared, &source->helper, error);
    second = NULL;
    if (status == FCAP_OK) {
        status = subscribe(source, error);
    }
    if (status != FCAP_OK) {
        goto out;
    }
    *ret_source = source;
    source = NULL;
out:
    if (member != NULL) {
        rd_kafka_conf_destroy(member);
    }
    if (second != NULL) {
        rd_kafka_conf_destroy(second);
    }
    if (source != NULL) {
        kafka_helper_close(source->helper);
        if (source->client != NULL) {
            rd_kafka_destroy(source->client); /* Not subscribed: returns at once. */
        }
        free_source(source);
    }
    return status;
}

/* Leaves the group with our own deadline; true when the client says that it has left. */
static bool leave(struct fcap_source_kafka *source, int64_t until_ms)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(source->client);
    rd_kafka_error_t *error = rd_kafka_consumer_close_queue(source->client, queue);
    bool closed = error != NULL; /* Fenced or closed already: nothing to wait for. */
    if (error != NULL) {
        rd_kafka_error_destroy(error);
    }
    while (!closed && fcap_kafka_now_ms() < until_ms) {
        (void)rd_kafka_queue_poll_callback(queue, 0); /* Serves the last REVOKE. */
        closed = rd_kafka_consumer_closed(source->client) != 0;
        if (!closed) {
            nap(fcap_kafka_now_ms() + 1);
        }
    }
    rd_kafka_queue_destroy(queue);
    return closed;
}

/* Before 2.3 destroy aborts the process when the member had joined but not got its first assignment
 * yet (an assertion on the assignor's state). Such a client is left to the end of the process. */
static bool may_destroy(const struct fcap_source_kafka *source)
{
    return rd_kafka_version() >= FIRST_SAFE_DESTROY || source->rebalances > 0;
}

/* Destroying a client can take for ever, so a thread of its own does it. */
struct reaper {
    struct fcap_source_kafka *source;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool done;
    bool abandoned; /* nobody waits: the reaper frees itself */
};

static void reaper_done(struct reaper *reaper)
{
    (void)pthread_cond_destroy(&reaper->wake);
    (void)pthread_mutex_destroy(&reaper->lock);
    free(reaper);
}

static void *reap(void *context)
{
    struct reaper *reaper = context;
    kafka_helper_close(reaper->source->helper);
    rd_kafka_destroy_flags(reaper->source->client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    free_source(reaper->source);
    pthread_mutex_lock(&reaper->lock);
    bool abandoned = reaper->abandoned;
    reaper->done = true;
    pthread_cond_signal(&reaper->wake);
    pthread_mutex_unlock(&reaper->lock);
    if (abandoned) {
        reaper_done(reaper);
    }
    return NULL;
}

/* Frees the source on another thread; true when that was done in time. */
static bool destroy(struct fcap_source_kafka *source, int64_t until_ms)
{
    pthread_t thread;
    pthread_condattr_t attributes;
    struct reaper *reaper = calloc(1, sizeof *reaper);
    FCAP_ASSERT(reaper != NULL);
    reaper->source = source;
    (void)pthread_mutex_init(&reaper->lock, NULL); /* These cannot fail on Linux. */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&reaper->wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (pthread_create(&thread, NULL, reap, reaper) != 0) {
        reaper_done(reaper);
        return false; /* The process is about to end anyway. */
    }
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = (until_ms % 1000) * 1000000};
    int late = 0;
    pthread_mutex_lock(&reaper->lock);
    while (!reaper->done && late == 0) {
        late = pthread_cond_timedwait(&reaper->wake, &reaper->lock, &until);
    }
    bool done = reaper->done;
    reaper->abandoned = !done;
    pthread_mutex_unlock(&reaper->lock);
    if (!done) {
        (void)pthread_detach(thread);
        return false;
    }
    (void)pthread_join(thread, NULL);
    reaper_done(reaper);
    return true;
}

bool fcap_source_kafka_close(struct fcap_source_kafka *source,
                             const struct fcap_source_handler *handler)
{
    if (source == NULL) {
        return true;
    }
    int64_t until_ms = fcap_kafka_now_ms() + source->config.close_timeout_ms;
    source->closing = true;
    source->handler = handler;
    /* The helper ends after that: what revoked() publishes still goes out. */
    bool left = leave(source, until_ms);
    /* Usually nothing is left: revoked by the last callback. Else the coordinator did not answer,
     * and another owner may be at work once the session has ended. */
    kafka_group_abandon(source);
    pthread_mutex_lock(&source->shared.lock);
    source->shared.log = NULL; /* Its owner may go now; threads of the client may stay. */
    pthread_mutex_unlock(&source->shared.lock);
    if (!may_destroy(source)) {
        return false;
    }
    bool destroyed = destroy(source, left ? until_ms : fcap_kafka_now_ms());
    return left && destroyed;
}
