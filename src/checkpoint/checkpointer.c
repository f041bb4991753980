/* Opening and closing, threads, metrics. */
#include "checkpointer_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define PAUSE_MS_MIN 1000 /* before the second try */
#define PAUSE_MS_MAX 60000

int64_t checkpointer_now_ms(const struct fcap_checkpointer *checkpointer)
{
    return checkpointer->settings.clock->monotonic_ms(checkpointer->settings.clock);
}

void checkpointer_tell(struct fcap_checkpointer *checkpointer, enum fcap_checkpointer_level level,
                       const char *format, ...)
{
    char text[1400];
    va_list arguments;
    if (checkpointer->settings.tell == NULL) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments); /* Cutting is meant. */
    va_end(arguments);
    checkpointer->settings.tell(checkpointer->settings.tell_context, level, text);
}

bool checkpointer_is_final(enum fcap_status status)
{
    return status == FCAP_LOCKED || status == FCAP_FORMAT || status == FCAP_FOREIGN;
}

bool checkpointer_is_final_at_begin(const struct fcap_checkpointer *checkpointer,
                                    enum fcap_status status)
{
    return checkpointer_is_final(status) &&
           !(status == FCAP_LOCKED && checkpointer->object_lock == NULL);
}

void checkpointer_failed(struct fcap_checkpointer *checkpointer, struct checkpointer_tries *tries,
                         bool is_local, enum fcap_status status, const struct fcap_error *error)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    struct fcap_checkpoint_metrics *metrics = &checkpointer->metrics;
    bool is_away = status == FCAP_UNAVAILABLE || status == FCAP_TIMEOUT;
    metrics->failures_snapshot += is_local;
    metrics->failures_unavailable += !is_local && is_away;
    metrics->failures_no_space += !is_local && status == FCAP_NO_SPACE;
    metrics->failures_other += !is_local && !is_away && status != FCAP_NO_SPACE;
    bool is_new = !tries->is_failing || tries->status != status;
    tries->is_failing = true;
    tries->status = status;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    tries->pause_ms = tries->pause_ms == 0 ? PAUSE_MS_MIN : tries->pause_ms * 2;
    if (tries->pause_ms > tries->pause_ms_max) {
        tries->pause_ms = tries->pause_ms_max;
    }
    tries->retry_at_ms = checkpointer_now_ms(checkpointer) + tries->pause_ms;
    if (is_new) {
        checkpointer_tell(checkpointer, FCAP_CHECKPOINTER_WARN,
                          "checkpoints: %s: %s; counting goes on, and this is tried again",
                          fcap_status_text(status), error->text);
    }
}

void checkpointer_succeeded(struct fcap_checkpointer *checkpointer,
                            struct checkpointer_tries *tries)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    bool was_failing = tries->is_failing;
    tries->is_failing = false;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    tries->pause_ms = 0;
    tries->retry_at_ms = 0;
    if (was_failing) {
        checkpointer_tell(checkpointer, FCAP_CHECKPOINTER_INFO, "checkpoints: all is well again");
    }
}

void checkpointer_give_up(struct fcap_checkpointer *checkpointer, const struct fcap_error *error)
{
    checkpointer_abandon_segment(checkpointer);
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->has_given_up = true;
    checkpointer->is_alive = false;
    checkpointer->metrics.stopped = 1;
    checkpointer_drop_queue(checkpointer);
    checkpointer_wake_materialize(checkpointer);
    (void)pthread_cond_broadcast(&checkpointer->wake_transfer);
    (void)pthread_mutex_unlock(&checkpointer->lock);
    transfer_cancel(&checkpointer->transfer);
    checkpointer_tell(checkpointer, FCAP_CHECKPOINTER_ERROR,
                      "checkpoints have ended until the next start, counting goes on: %s",
                      error->text);
}

void checkpointer_wake_ship(struct fcap_checkpointer *checkpointer)
{
    checkpointer->ship_is_woken = true;
    (void)pthread_cond_signal(&checkpointer->wake_ship);
}

void checkpointer_wake_materialize(struct fcap_checkpointer *checkpointer)
{
    checkpointer->materialize_is_woken = true;
    (void)pthread_cond_signal(&checkpointer->wake_materialize);
}

void checkpointer_copy_partitions(struct fcap_checkpoint *to, const struct fcap_checkpoint *from)
{
    to->partition_count = 0;
    for (size_t i = 0; i < from->partition_count; i++) {
        fcap_checkpoint_set_partition(to, &from->partitions[i]);
    }
}

void checkpointer_copy(struct fcap_checkpoint *to, const struct fcap_checkpoint *from)
{
    *to = *from;
    to->files = NULL;
    to->segments = NULL;
    to->partitions = NULL;
    to->file_count = to->segment_count = to->partition_count = 0;
    for (size_t i = 0; i < from->segment_count; i++) {
        fcap_checkpoint_add_segment(to, &from->segments[i]);
    }
    checkpointer_copy_partitions(to, from);
}

/* --- opening --------------------------------------------------------------------------------- */

static void visit_partition(void *context, const struct fcap_checkpoint_partition *partition)
{
    fcap_checkpoint_set_partition(context, partition);
}

static void init_locks(struct fcap_checkpointer *checkpointer)
{
    pthread_condattr_t monotonic;
    FCAP_ASSERT(pthread_condattr_init(&monotonic) == 0);
    FCAP_ASSERT(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
    FCAP_ASSERT(pthread_mutex_init(&checkpointer->lock, NULL) == 0);
    FCAP_ASSERT(pthread_cond_init(&checkpointer->wake_ship, &monotonic) == 0);
    FCAP_ASSERT(pthread_cond_init(&checkpointer->wake_materialize, &monotonic) == 0);
    FCAP_ASSERT(pthread_cond_init(&checkpointer->wake_transfer, &monotonic) == 0);
    FCAP_ASSERT(pthread_cond_init(&checkpointer->thread_ended, &monotonic) == 0);
    (void)pthread_condattr_destroy(&monotonic);
}

/* The first look at what is kept, before any batch: only now may the state become another lineage.
 * Not fatal: the shipper looks again. */
static enum fcap_status look_first(struct fcap_checkpointer *checkpointer, struct fcap_error *error)
{
    struct fcap_error why = {""};
    enum fcap_status status = checkpointer_begin(checkpointer, &why);
    checkpointer->may_fork = false;
    if (status == FCAP_STOPPED) {
        *error = why; /* The state itself failed. */
        return status;
    }
    if (checkpointer_is_final_at_begin(checkpointer, status)) {
        checkpointer_give_up(checkpointer, &why);
    } else if (status != FCAP_OK) {
        checkpointer_failed(checkpointer, &checkpointer->ship, false, status, &why);
    }
    return FCAP_OK;
}

enum fcap_status fcap_checkpointer_open(const struct fcap_checkpointer_settings *settings,
                                        struct fcap_objects *objects,
                                        struct fcap_checkpoint_state *state,
                                        struct fcap_checkpointer **ret_checkpointer,
                                        struct fcap_error *error)
{
    FCAP_ASSERT(settings->retain > 0 && settings->transfer_threads > 0 &&
                settings->interval_ms > 0 && settings->materialization_interval_ms > 0 &&
                (settings->scrub_interval_ms == 0 || settings->scrub_bytes_per_second > 0));
    struct fcap_checkpointer *checkpointer = calloc(1, sizeof *checkpointer);
    FCAP_ASSERT(checkpointer != NULL);
    checkpointer->settings = *settings;
    checkpointer->objects = objects;
    checkpointer->state = state;
    checkpointer->may_fork = true;
    (void)fcap_checkpoint_prefix(settings->profile, settings->instance, checkpointer->prefix);
    if (getrandom(&checkpointer->unique, sizeof checkpointer->unique, 0) < 0) {
        checkpointer->unique = (uint64_t)settings->clock->wall_ms(settings->clock) << 20;
    }
    checkpointer->unique >>= 1; /* Counting never comes round. */
    init_locks(checkpointer);
    checkpointer->scrub.rate.bytes_per_second = settings->scrub_bytes_per_second;
    transfer_init(&checkpointer->transfer, objects, settings->rate_limit_bytes_per_second);
    checkpointer->senders = calloc(settings->transfer_threads, sizeof checkpointer->senders[0]);
    FCAP_ASSERT(checkpointer->senders != NULL);
    int64_t now_ms = checkpointer_now_ms(checkpointer);
    checkpointer->opened_ms = now_ms;
    checkpointer->complete_ms = now_ms;
    checkpointer->snapshot_ms = now_ms;
    checkpointer->due_ms = now_ms + settings->interval_ms;
    checkpointer->snapshot_due_ms = now_ms + settings->materialization_interval_ms;
    checkpointer->ship.pause_ms_max = PAUSE_MS_MAX;
    checkpointer->materialize.pause_ms_max = settings->materialization_interval_ms;
    checkpointer->cut.pause_ms_max = settings->materialization_interval_ms;
    checkpointer->is_alive = true;
    state->ops->position(state, &checkpointer->start);
    enum fcap_status status = look_first(checkpointer, error);
    if (status == FCAP_OK) {
        status = state->ops->partitions(state, visit_partition, &checkpointer->told, error);
    }
    if (status != FCAP_OK) {
        fcap_checkpointer_close(checkpointer);
        return status;
    }
    checkpointer->last_told = checkpointer->last_queued = checkpointer->start.sequence;
    checkpointer->told.sequence = checkpointer->start.sequence;
    checkpointer->told.written_ms = settings->clock->wall_ms(settings->clock); /* Or before. */
    checkpointer_copy(&checkpointer->shipped, &checkpointer->told);
    const struct fcap_store_follower follower = {checkpointer, checkpointer_told};
    state->ops->follow(state, &follower);
    *ret_checkpointer = checkpointer;
    return FCAP_OK;
}

void fcap_checkpointer_close(struct fcap_checkpointer *checkpointer)
{
    if (checkpointer == NULL) {
        return;
    }
    FCAP_ASSERT(checkpointer->running == 0);
    checkpointer->state->ops->follow(checkpointer->state, NULL);
    checkpointer_abandon_segment(checkpointer);
    transfer_cancel(&checkpointer->transfer);
    for (size_t i = 0; i < checkpointer->settings.transfer_threads; i++) {
        transfer_sender_done(&checkpointer->transfer, &checkpointer->senders[i]);
    }
    free(checkpointer->senders);
    checkpointer_drop_snapshot(checkpointer);
    checkpointer->objects->ops->unlock(checkpointer->objects, checkpointer->object_lock);
    checkpointer_drop_queue(checkpointer);
    checkpointer_end_record(checkpointer, 0, NULL);
    checkpointer_generations_done(checkpointer);
    fcap_checkpoint_done(&checkpointer->sent);
    fcap_checkpoint_done(&checkpointer->told);
    fcap_checkpoint_done(&checkpointer->shipped);
    fcap_checkpoint_done(&checkpointer->tip);
    fcap_checkpoint_done(&checkpointer->pending);
    object_list_done(&checkpointer->doomed);
    checkpointer_scrub_done(checkpointer);
    transfer_done(&checkpointer->transfer);
    (void)pthread_cond_destroy(&checkpointer->wake_ship);
    (void)pthread_cond_destroy(&checkpointer->wake_materialize);
    (void)pthread_cond_destroy(&checkpointer->wake_transfer);
    (void)pthread_cond_destroy(&checkpointer->thread_ended);
    (void)pthread_mutex_destroy(&checkpointer->lock); /* Nobody holds it. */
    free(checkpointer);
}

/* --- metrics --------------------------------------------------------------------------------- */

static uint64_t since(int64_t now_ms, int64_t then_ms)
{
    return now_ms > then_ms ? (uint64_t)(now_ms - then_ms) : 0;
}

void fcap_checkpointer_metrics(struct fcap_checkpointer *checkpointer,
                               struct fcap_checkpoint_metrics *ret_metrics)
{
    int64_t now_ms = checkpointer_now_ms(checkpointer);
    (void)pthread_mutex_lock(&checkpointer->lock);
    *ret_metrics = checkpointer->metrics;
    ret_metrics->age_ms = since(now_ms, checkpointer->complete_ms);
    ret_metrics->snapshot_age_ms = since(now_ms, checkpointer->snapshot_ms);
    ret_metrics->snapshot_running = checkpointer->in_snapshot ||
                                    checkpointer->phase == CHECKPOINTER_SENDING ||
                                    checkpointer->phase == CHECKPOINTER_SWITCHING;
    ret_metrics->materialization_behind =
        ret_metrics->snapshot_age_ms >
        2 * (uint64_t)checkpointer->settings.materialization_interval_ms;
    ret_metrics->segments = checkpointer->tip.segment_count;
    ret_metrics->changelog_bytes = checkpointer->segment.size;
    for (size_t i = 0; i < checkpointer->tip.segment_count; i++) {
        ret_metrics->changelog_bytes += checkpointer->tip.segments[i].size;
    }
    ret_metrics->queue_bytes = checkpointer->queue_bytes;
    ret_metrics->failing = checkpointer->ship.is_failing || checkpointer->materialize.is_failing ||
                           checkpointer->cut.is_failing;
    (void)pthread_mutex_unlock(&checkpointer->lock);
}

void fcap_checkpointer_describe(struct fcap_checkpointer *checkpointer, struct fcap_error *ret_text)
{
    struct fcap_checkpoint_metrics metrics;
    fcap_checkpointer_metrics(checkpointer, &metrics);
    char newest[64] = "no checkpoint yet";
    if (metrics.number > 0) {
        (void)snprintf(newest, sizeof newest, "checkpoint %" PRIu64 ", %" PRIu64 " s old",
                       metrics.number, metrics.age_ms / 1000); /* It fits. */
    }
    (void)fcap_error_set(ret_text, FCAP_OK, "%s; snapshot %" PRIu64 " s old%s%s%s", newest,
                         metrics.snapshot_age_ms / 1000,
                         metrics.materialization_behind ? ", behind" : "",
                         metrics.failing ? "; tries fail" : "",
                         metrics.stopped ? "; checkpoints have ended until the next start" : "");
}
