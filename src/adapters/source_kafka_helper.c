#include "source_kafka_internal.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How often a failed look-up is tried again, and how long the thread may sleep: the second bounds
 * how late answers to commits are counted. */
#define RETRY_MS 300
#define SLEEP_MS 200
/* How often the partitions are counted: users move when some are added, which is to be known before
 * producers know it. */
#define PARTITIONS_MS  2000
#define RETRY_COUNT_MS 1000

struct kafka_helper {
    rd_kafka_t *client;
    const struct kafka_config *config;
    struct kafka_shared *shared;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock;
    pthread_cond_t wake; /* something to do */
    bool stop;
    bool is_new;                  /* something was asked since the last look at `lookups` */
    struct kafka_lookup *lookups; /* asked and answered ones */
    size_t lookup_count;
    size_t lookup_capacity;
    struct kafka_progress *progress; /* index: partition */
    size_t progress_count;
    struct kafka_end *ends; /* polled again and again */
    size_t end_count;
    size_t end_capacity;

    int64_t retry_at_ms; /* nothing that failed is looked up before */

    /* Of the thread alone. */
    struct kafka_lookup *work;
    size_t work_capacity;
    size_t rotation;
    int64_t publish_at_ms;
    int64_t partitions_at_ms;
    int64_t ends_at_ms;
    struct kafka_ends_poll ends_poll;
    int64_t orphans_at_ms;
    struct kafka_orphans orphans;
};

/* Copies what is asked to `work`; returns how many. Called with the lock held. */
static size_t copy_asked(struct kafka_helper *helper)
{
    if (helper->work_capacity < helper->lookup_count) {
        helper->work = reallocarray(helper->work, helper->lookup_capacity, sizeof *helper->work);
        FCAP_ASSERT(helper->work != NULL);
        helper->work_capacity = helper->lookup_capacity;
    }
    size_t count = 0;
    helper->is_new = false;
    helper->rotation++; /* So that one partition that fails slowly does not starve the others. */
    for (size_t i = 0; i < helper->lookup_count; i++) {
        size_t at = (i + helper->rotation) % helper->lookup_count;
        if (!helper->lookups[at].answered) {
            helper->work[count++] = helper->lookups[at];
        }
    }
    return count;
}

/* Takes over what the look-up found. What was cancelled meanwhile is not there any more. */
static void merge(struct kafka_helper *helper, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!helper->work[i].answered) {
            helper->retry_at_ms = fcap_kafka_now_ms() + RETRY_MS;
        }
        for (size_t k = 0; k < helper->lookup_count; k++) {
            if (helper->lookups[k].partition == helper->work[i].partition &&
                helper->lookups[k].assignment == helper->work[i].assignment) {
                helper->lookups[k] = helper->work[i];
            }
        }
    }
}

static void look_up(struct kafka_helper *helper, size_t count)
{
    const struct kafka_config *config = helper->config;
    kafka_lookup_run(helper->client, config, helper->shared, helper->work, count);
    for (size_t i = 0; i < count; i++) {
        if (config->looked_up != NULL && helper->work[i].answered) {
            config->looked_up(config->looked_up_context, helper->work[i].partition);
        }
    }
}

/* Answers to commits and errors come through the client's own queue. */
static void serve(struct kafka_helper *helper)
{
    rd_kafka_message_t *message = NULL;
    while ((message = rd_kafka_consumer_poll(helper->client, 0)) != NULL) {
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR &&
            message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            kafka_shared_error(helper->shared, "look-ups: %s", rd_kafka_message_errstr(message));
        }
        rd_kafka_message_destroy(message);
    }
}

static void publish(struct kafka_helper *helper)
{
    pthread_mutex_lock(&helper->lock);
    size_t count = helper->progress_count;
    struct kafka_progress *copy = calloc(count + 1, sizeof *copy);
    FCAP_ASSERT(copy != NULL);
    if (count > 0) {
        memcpy(copy, helper->progress, count * sizeof *copy);
    }
    for (size_t i = 0; i < count; i++) {
        helper->progress[i].is_new = false;
    }
    pthread_mutex_unlock(&helper->lock);
    (void)kafka_publish_send(helper->client, helper->config, helper->shared, copy, count);
    free(copy);
}

static struct kafka_end *find_end(struct kafka_helper *helper, const struct kafka_end *like)
{
    for (size_t i = 0; i < helper->end_count; i++) {
        if (helper->ends[i].partition == like->partition &&
            helper->ends[i].assignment == like->assignment) {
            return &helper->ends[i];
        }
    }
    return NULL;
}

/* A partition waits for its start. One whose look-up failed is no reason: it would be one for ever.
 */
static bool must_yield(void *context)
{
    struct kafka_helper *helper = context;
    pthread_mutex_lock(&helper->lock);
    bool is_wanted = helper->is_new || helper->stop;
    pthread_mutex_unlock(&helper->lock);
    return is_wanted;
}

static void poll_ends(struct kafka_helper *helper)
{
    pthread_mutex_lock(&helper->lock);
    size_t count = helper->end_count;
    struct kafka_end *copy = calloc(count + 1, sizeof *copy);
    FCAP_ASSERT(copy != NULL);
    if (count > 0) {
        memcpy(copy, helper->ends, count * sizeof *copy);
    }
    pthread_mutex_unlock(&helper->lock);
    kafka_lookup_ends(helper->client, helper->config, &helper->ends_poll, copy, count);
    pthread_mutex_lock(&helper->lock);
    for (size_t i = 0; i < count; i++) {
        struct kafka_end *end = find_end(helper, &copy[i]);
        if (end != NULL && copy[i].answered_ms != end->answered_ms) {
            end->end = copy[i].end;
            end->asked_next = copy[i].next;
            end->answered_ms = copy[i].answered_ms;
        }
    }
    pthread_mutex_unlock(&helper->lock);
    free(copy);
}

void kafka_helper_ends(struct kafka_helper *helper, struct kafka_end *ends, size_t count)
{
    pthread_mutex_lock(&helper->lock);
    for (size_t i = 0; i < count; i++) {
        const struct kafka_end *known = find_end(helper, &ends[i]);
        ends[i].end = known != NULL ? known->end : -1;
        ends[i].asked_next = known != NULL ? known->asked_next : 0;
        ends[i].answered_ms = known != NULL ? known->answered_ms : 0;
    }
    if (helper->end_capacity < count) {
        helper->end_capacity = count * 2;
        helper->ends = reallocarray(helper->ends, helper->end_capacity, sizeof *helper->ends);
        FCAP_ASSERT(helper->ends != NULL);
    }
    if (count > 0) {
        memcpy(helper->ends, ends, count * sizeof *ends);
    }
    helper->end_count = count;
    pthread_mutex_unlock(&helper->lock);
}

/* One thing that is due; called without the lock. */
static void work(struct kafka_helper *helper, size_t asked)
{
    int64_t now_ms = fcap_kafka_now_ms();
    serve(helper);
    if (asked > 0 || now_ms >= helper->partitions_at_ms) {
        /* Also with each look-up: new partitions come with a rebalance, and that with look-ups. */
        bool known = kafka_lookup_partitions(helper->client, helper->config, helper->shared);
        int64_t refresh_ms = helper->config->metadata_refresh_ms;
        refresh_ms = !known                       ? RETRY_COUNT_MS
                     : refresh_ms > PARTITIONS_MS ? PARTITIONS_MS
                                                  : refresh_ms;
        helper->partitions_at_ms = fcap_kafka_now_ms() + refresh_ms;
    }
    if (asked > 0) {
        look_up(helper, asked);
        pthread_mutex_lock(&helper->lock);
        merge(helper, asked);
        pthread_mutex_unlock(&helper->lock);
    }
    if (now_ms >= helper->ends_at_ms && !must_yield(helper)) {
        poll_ends(helper);
        helper->ends_at_ms = fcap_kafka_now_ms() + kafka_watch_poll_ms(helper->config);
    }
    if (helper->config->group != NULL && now_ms >= helper->orphans_at_ms) {
        kafka_orphans_look(helper->client, helper->config, helper->shared, &helper->orphans);
        helper->orphans_at_ms = fcap_kafka_now_ms() + kafka_orphans_look_ms(helper->config);
    }
    if (now_ms >= helper->publish_at_ms) {
        publish(helper);
        helper->publish_at_ms = fcap_kafka_now_ms() + helper->config->publish_interval_ms;
    }
}

static bool is_asked(const struct kafka_helper *helper)
{
    for (size_t i = 0; i < helper->lookup_count; i++) {
        if (!helper->lookups[i].answered) {
            return true;
        }
    }
    return false;
}

/* Waits for work, at most SLEEP_MS. Called with the lock held. */
static void wait_for_work(struct kafka_helper *helper)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)SLEEP_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&helper->wake, &helper->lock, &until); /* Late is fine. */
}

static void *run(void *context)
{
    struct kafka_helper *helper = context;
    (void)pthread_setname_np(pthread_self(), "kafka-helper");
    pthread_mutex_lock(&helper->lock);
    while (!helper->stop) {
        bool may_ask = helper->is_new || fcap_kafka_now_ms() >= helper->retry_at_ms;
        size_t asked = may_ask ? copy_asked(helper) : 0;
        pthread_mutex_unlock(&helper->lock);
        work(helper, asked);
        pthread_mutex_lock(&helper->lock);
        if (!helper->stop && !helper->is_new &&
            (!is_asked(helper) || fcap_kafka_now_ms() < helper->retry_at_ms)) {
            wait_for_work(helper);
        }
    }
    pthread_mutex_unlock(&helper->lock);
    publish(helper); /* A last word for the dashboards; answers are not waited for long. */
    for (int i = 0; i < 10; i++) {
        serve(helper);
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return NULL;
}

static void on_commit(rd_kafka_t *client, rd_kafka_resp_err_t error,
                      rd_kafka_topic_partition_list_t *offsets, void *opaque)
{
    (void)client;
    struct kafka_helper *helper = opaque;
    kafka_publish_answered(helper->shared, error, offsets);
}

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque)
{
    (void)client;
    struct kafka_helper *helper = opaque;
    kafka_shared_error(helper->shared, "look-ups: %s: %s",
                       rd_kafka_err2str((rd_kafka_resp_err_t)error), reason);
}

static void on_log(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)facility;
    struct kafka_helper *helper = rd_kafka_opaque(client);
    if (helper != NULL) {
        kafka_shared_log(helper->shared, level, text);
    }
}

enum fcap_status kafka_helper_open(rd_kafka_conf_t *conf, const struct kafka_config *config,
                                   struct kafka_shared *shared, struct kafka_helper **ret_helper,
                                   struct fcap_error *error)
{
    char text[512];
    pthread_condattr_t attributes;
    enum fcap_status status = FCAP_OK;
    struct kafka_helper *helper = calloc(1, sizeof *helper);
    FCAP_ASSERT(helper != NULL);
    helper->config = config;
    helper->shared = shared;
    helper->ends_poll = (struct kafka_ends_poll){.must_yield = must_yield, .context = helper};
    helper->publish_at_ms = fcap_kafka_now_ms() + config->publish_interval_ms;
    helper->orphans_at_ms = fcap_kafka_now_ms() + kafka_orphans_look_ms(config);
    (void)pthread_mutex_init(&helper->lock, NULL); /* These four cannot fail on Linux. */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&helper->wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);

    rd_kafka_conf_set_opaque(conf, helper);
    rd_kafka_conf_set_offset_commit_cb(conf, on_commit);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, on_log);
    helper->client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (helper->client == NULL) {
        rd_kafka_conf_destroy(conf);
        status = fcap_error_set(error, FCAP_CONFIG, "kafka: second client: %s", text);
        goto out;
    }
    (void)rd_kafka_poll_set_consumer(helper->client); /* Fails only without a group. */
    if (pthread_create(&helper->thread, NULL, run, helper) != 0) {
        status = fcap_error_set(error, FCAP_NO_MEMORY, "kafka: no thread for look-ups");
        goto out;
    }
    helper->running = true;
    *ret_helper = helper;
    helper = NULL;
out:
    kafka_helper_close(helper);
    return status;
}

void kafka_helper_stop(struct kafka_helper *helper)
{
    if (helper != NULL) {
        pthread_mutex_lock(&helper->lock);
        helper->stop = true;
        pthread_cond_signal(&helper->wake);
        pthread_mutex_unlock(&helper->lock);
    }
}

void kafka_helper_close(struct kafka_helper *helper)
{
    if (helper == NULL) {
        return;
    }
    kafka_helper_stop(helper);
    if (helper->running) {
        (void)pthread_join(helper->thread, NULL);
    }
    if (helper->client != NULL) {
        /* Without the leave of a group that it never joined. */
        rd_kafka_destroy_flags(helper->client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    }
    (void)pthread_cond_destroy(&helper->wake);
    (void)pthread_mutex_destroy(&helper->lock);
    free(helper->lookups);
    free(helper->work);
    free(helper->progress);
    free(helper->ends);
    free(helper);
}

void kafka_helper_ask(struct kafka_helper *helper, const struct kafka_lookup *lookup)
{
    pthread_mutex_lock(&helper->lock);
    if (helper->lookup_count == helper->lookup_capacity) {
        helper->lookup_capacity = helper->lookup_capacity * 2 + 16;
        helper->lookups =
            reallocarray(helper->lookups, helper->lookup_capacity, sizeof *helper->lookups);
        FCAP_ASSERT(helper->lookups != NULL);
    }
    helper->lookups[helper->lookup_count] = *lookup;
    helper->lookups[helper->lookup_count].answered = false;
    helper->lookup_count++;
    helper->is_new = true;
    pthread_cond_signal(&helper->wake);
    pthread_mutex_unlock(&helper->lock);
}

void kafka_helper_cancel(struct kafka_helper *helper, int32_t partition, uint64_t assignment)
{
    pthread_mutex_lock(&helper->lock);
    for (size_t i = 0; i < helper->lookup_count;) {
        if (helper->lookups[i].partition == partition &&
            helper->lookups[i].assignment == assignment) {
            helper->lookups[i] = helper->lookups[--helper->lookup_count];
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&helper->lock);
}

bool kafka_helper_answer(struct kafka_helper *helper, struct kafka_lookup *ret_lookup)
{
    bool found = false;
    pthread_mutex_lock(&helper->lock);
    for (size_t i = 0; i < helper->lookup_count && !found; i++) {
        if (helper->lookups[i].answered) {
            *ret_lookup = helper->lookups[i];
            helper->lookups[i] = helper->lookups[--helper->lookup_count];
            found = true;
        }
    }
    pthread_mutex_unlock(&helper->lock);
    return found;
}

void kafka_helper_publish(struct kafka_helper *helper, int32_t partition, int64_t next)
{
    size_t index = (size_t)partition;
    pthread_mutex_lock(&helper->lock);
    if (index >= helper->progress_count) {
        size_t count = index + 1;
        helper->progress = reallocarray(helper->progress, count, sizeof *helper->progress);
        FCAP_ASSERT(helper->progress != NULL);
        for (size_t i = helper->progress_count; i < count; i++) {
            helper->progress[i] = (struct kafka_progress){.partition = (int32_t)i, .next = -1};
        }
        helper->progress_count = count;
    }
    if (helper->progress[index].next != next) {
        helper->progress[index].next = next;
        helper->progress[index].is_new = true;
    }
    pthread_mutex_unlock(&helper->lock);
}
