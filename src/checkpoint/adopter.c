/* The adopter's queue, its thread, and what it does for one partition. */
#include "fcap/adopter.h"

#include "adopt_internal.h"
#include "fcap/assert.h"
#include "fcap/point.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRIES_MAX = 8, RETRY_MS = 1000, CATALOG_MS = 2000, WAIT_MS_MAX = 1000 };

struct fcap_adoption {
    struct fcap_adopter *adopter;
    struct fcap_adoption *next;
    struct fcap_adopt_order order;
    int64_t asked_ms; /* monotonic, as all here */
    /* Guarded by the adopter's lock. */
    int64_t retry_at_ms;
    bool is_changing; /* the old state is gone, or about to go */
    bool is_done;
    bool is_ended; /* nobody wants it any more */
};

struct fcap_adopter {
    struct fcap_adopter_settings settings;
    struct fcap_adopt_state *state;
    struct fcap_objects *objects;
    pthread_t thread;
    bool has_thread;

    /* The thread's own. */
    struct adopt_catalog catalog;
    bool has_catalog;
    int64_t catalog_ms;

    pthread_mutex_t lock;
    /* --- guarded by `lock` --- */
    pthread_cond_t wake;
    pthread_cond_t ended;
    bool stopping;
    bool has_ended;
    struct fcap_adoption *first; /* in the order in which they were asked for */
    struct fcap_adoption *working;
    int64_t beat_ms; /* when the thread was last seen at work */
    struct fcap_adopter_metrics metrics;
};

static int64_t now_ms(const struct fcap_adopter *adopter)
{
    return adopter->settings.clock->monotonic_ms(adopter->settings.clock);
}

static void say(const struct fcap_adopter *adopter, enum fcap_checkpointer_level level,
                const char *format, ...) __attribute__((format(printf, 3, 4)));

static void say(const struct fcap_adopter *adopter, enum fcap_checkpointer_level level,
                const char *format, ...)
{
    char text[1400];
    va_list arguments;
    if (adopter->settings.tell == NULL) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments); /* Cutting is meant. */
    va_end(arguments);
    adopter->settings.tell(adopter->settings.tell_context, level, text);
}

/* --- while it works ----------------------------------------------------------------------------
 */

static void beat(void *context)
{
    struct fcap_adopter *adopter = context;
    (void)pthread_mutex_lock(&adopter->lock);
    adopter->beat_ms = now_ms(adopter);
    (void)pthread_mutex_unlock(&adopter->lock);
}

static bool goes_on(void *context)
{
    struct fcap_adoption *adoption = context;
    struct fcap_adopter *adopter = adoption->adopter;
    (void)pthread_mutex_lock(&adopter->lock);
    adopter->beat_ms = now_ms(adopter);
    bool is_wanted = !adoption->is_ended && !adopter->stopping;
    (void)pthread_mutex_unlock(&adopter->lock);
    return is_wanted;
}

static void changes(void *context)
{
    struct fcap_adoption *adoption = context;
    (void)pthread_mutex_lock(&adoption->adopter->lock);
    adoption->is_changing = true;
    (void)pthread_mutex_unlock(&adoption->adopter->lock);
}

/* --- one partition -----------------------------------------------------------------------------
 */

static bool is_away(enum fcap_status status)
{
    return status == FCAP_UNAVAILABLE || status == FCAP_TIMEOUT || status == FCAP_BUSY;
}

/* What is known while one partition is worked on. */
struct work {
    struct fcap_adopter *adopter;
    struct fcap_adoption *adoption;
    int32_t partition;
    struct fcap_store_partition here;
    struct adopt_tried tried[TRIES_MAX];
    size_t tried_count;
    int64_t started_ms;
    struct fcap_error error;
};

static void look(struct work *work)
{
    struct fcap_adopt_state *state = work->adopter->state;
    if (state->ops->look(state, work->partition, &work->here, &work->error) != FCAP_OK) {
        say(work->adopter, FCAP_CHECKPOINTER_WARN, "partition %" PRId32 ": its state here: %s",
            work->partition, work->error.text);
        work->here = (struct fcap_store_partition){.found = false};
    }
}

/* An instance of which something was no good is looked at more closely. */
static size_t wanted(const struct work *work, const struct adopt_instance *instance)
{
    for (size_t i = 0; i < work->tried_count; i++) {
        if (strcmp(work->tried[i].prefix, instance->prefix) == 0) {
            return instance->number_count;
        }
    }
    return 1;
}

static enum fcap_status read_catalog(struct work *work)
{
    struct fcap_adopter *adopter = work->adopter;
    int64_t listed_ms = now_ms(adopter);
    enum fcap_status status = FCAP_OK;
    if (!adopter->has_catalog || listed_ms - adopter->catalog_ms >= CATALOG_MS) {
        status = adopt_catalog_fill(&adopter->catalog, adopter->objects, adopter->settings.profile,
                                    beat, adopter, &work->error);
        adopter->has_catalog = status == FCAP_OK;
        adopter->catalog_ms = listed_ms;
    }
    for (size_t i = 0; i < adopter->catalog.instance_count && status == FCAP_OK; i++) {
        struct adopt_instance *instance = &adopter->catalog.instances[i];
        status =
            adopt_catalog_read(instance, adopter->objects, wanted(work, instance), &work->error);
        beat(adopter);
    }
    return status;
}

static void tell_taken(struct work *work, const struct fcap_adopt_candidate *candidate,
                       const struct fcap_adopt_taken *taken)
{
    struct fcap_adopter *adopter = work->adopter;
    const struct fcap_checkpoint *log = candidate->log;
    int64_t spent_ms = now_ms(adopter) - work->started_ms;
    char before[80] = "there was none here";
    if (adopt_is_state(&work->here)) {
        (void)snprintf(before, sizeof before, "the one here ended at %" PRId64,
                       work->here.next_offset);
    }
    say(adopter, FCAP_CHECKPOINTER_INFO,
        "partition %" PRId32 ": its state is that of checkpoint %" PRIu64
        " of instance %s, next offset %" PRId64 ", as of %" PRId64 " s ago; %s (%" PRIu64
        " users, %" PRIu64 " bytes, %" PRIu64 " batches of the changelog, in %" PRId64 " ms)",
        work->partition, log->number, log->instance, candidate->partition.next_offset,
        (adopter->settings.clock->wall_ms(adopter->settings.clock) - log->written_ms) / 1000,
        before, taken->users, taken->bytes, taken->batches, spent_ms);
    (void)pthread_mutex_lock(&adopter->lock);
    adopter->metrics.from_checkpoint++;
    adopter->metrics.duration_ms = (uint64_t)spent_ms;
    adopter->metrics.bytes_total += taken->bytes;
    (void)pthread_mutex_unlock(&adopter->lock);
}

static void tell_not_taken(struct work *work, const struct fcap_adopt_candidate *candidate)
{
    struct fcap_adopter *adopter = work->adopter;
    say(adopter, FCAP_CHECKPOINTER_WARN,
        "partition %" PRId32 ": checkpoint %" PRIu64
        " of instance %s, from the snapshot of %" PRIu64 ", is not taken: %s",
        work->partition, candidate->log->number, candidate->log->instance,
        candidate->snapshot->number, work->error.text);
    (void)pthread_mutex_lock(&adopter->lock);
    adopter->metrics.not_taken++;
    (void)pthread_mutex_unlock(&adopter->lock);
}

/* Nothing is taken; `why`: what kept it from looking, or NULL. */
static void tell_none(struct work *work, const char *why)
{
    struct fcap_adopter *adopter = work->adopter;
    bool is_here = adopt_is_state(&work->here);
    const char *other = work->tried_count > 0 ? "other " : "";
    char place[64] = "it is read from Kafka, for there is none here";
    char reason[1100];
    if (is_here) {
        (void)snprintf(place, sizeof place, "it is the one here, next offset %" PRId64,
                       work->here.next_offset);
    }
    if (why != NULL) {
        (void)snprintf(reason, sizeof reason, "checkpoints cannot be read: %s", why);
    } else {
        (void)snprintf(reason, sizeof reason, "no %scheckpoint %s", other,
                       is_here ? "is far enough ahead" : "holds it");
    }
    say(adopter, why != NULL ? FCAP_CHECKPOINTER_WARN : FCAP_CHECKPOINTER_INFO,
        "partition %" PRId32 ": its state: %s, and %s", work->partition, place, reason);
    (void)pthread_mutex_lock(&adopter->lock);
    adopter->metrics.from_here += is_here;
    adopter->metrics.from_kafka += !is_here;
    (void)pthread_mutex_unlock(&adopter->lock);
}

/* One try. REFUSED: there is nothing more to try; CORRUPT: this one was no good. */
static enum fcap_status try_next(struct work *work)
{
    struct fcap_adopter *adopter = work->adopter;
    struct fcap_adopt_state *state = adopter->state;
    struct fcap_adopt_candidate candidate = {0};
    struct fcap_adopt_taken taken = {0};
    const char *prefix = NULL;
    enum fcap_status status = read_catalog(work);
    if (status != FCAP_OK) {
        return status;
    }
    const struct adopt_question question = {
        work->partition, &work->here, adopter->settings.chosen_ms, work->tried, work->tried_count};
    if (!adopt_choose(&adopter->catalog, &question, &candidate, &prefix)) {
        return FCAP_REFUSED;
    }
    FCAP_POINT(adoption_chosen);
    struct fcap_adopt_order order = work->adoption->order;
    order.keeps = adopt_is_state(&work->here);
    status = adopt_look_at(&adopter->catalog, &candidate, &work->error);
    if (status == FCAP_OK) {
        status = state->ops->take(state, &candidate, &order, &taken, &work->error);
    }
    if (status == FCAP_OK) {
        FCAP_POINT(adoption_over);
        tell_taken(work, &candidate, &taken);
        return FCAP_OK;
    }
    if (status == FCAP_STOPPED || status == FCAP_FENCED || is_away(status)) {
        return status;
    }
    tell_not_taken(work, &candidate);
    struct adopt_tried *tried = &work->tried[work->tried_count++];
    *tried = (struct adopt_tried){.log = candidate.log->number};
    /* What it comes to in the end is the same from each snapshot. */
    tried->snapshot = status == FCAP_REFUSED ? 0 : candidate.snapshot->number;
    memcpy(tried->prefix, prefix, strlen(prefix) + 1);
    adopter->has_catalog = false; /* Whoever writes there may have cut it. */
    look(work);                   /* What was here may be gone. */
    return FCAP_CORRUPT;
}

/* Gives whether it is over; else it is tried again later. */
static bool adopt(struct fcap_adopter *adopter, struct fcap_adoption *adoption)
{
    struct work work = {.adopter = adopter,
                        .adoption = adoption,
                        .partition = adoption->order.claimed.partition,
                        .started_ms = now_ms(adopter)};
    look(&work);
    enum fcap_status status = FCAP_CORRUPT;
    while (status == FCAP_CORRUPT && work.tried_count < TRIES_MAX && goes_on(adoption)) {
        status = try_next(&work);
    }
    if (status == FCAP_STOPPED || status == FCAP_FENCED || !goes_on(adoption)) {
        return true; /* Nobody asks for the result. */
    }
    if (status == FCAP_OK) {
        return true;
    }
    if (is_away(status)) {
        adopter->has_catalog = false;
        look(&work);
        if (!adopt_is_state(&work.here) &&
            now_ms(adopter) - adoption->asked_ms < FCAP_ADOPT_AWAY_MS) {
            return false;
        }
    }
    bool is_told = status == FCAP_REFUSED || status == FCAP_CORRUPT;
    tell_none(&work, is_told ? NULL : work.error.text);
    return true;
}

/* --- the queue ---------------------------------------------------------------------------------
 */

static void free_adoption(struct fcap_adopter *adopter, struct fcap_adoption *adoption)
{
    struct fcap_adoption **at = &adopter->first;
    while (*at != adoption) {
        at = &(*at)->next;
    }
    *at = adoption->next;
    free(adoption);
}

/* The next one that is due; NULL: none, and *ret_wait_ms says when to look again. */
static struct fcap_adoption *next_due(struct fcap_adopter *adopter, int64_t *ret_wait_ms)
{
    int64_t now = now_ms(adopter);
    bool is_idle = true;
    *ret_wait_ms = WAIT_MS_MAX;
    for (struct fcap_adoption *at = adopter->first; at != NULL; at = at->next) {
        if (at->is_done || at->is_ended) {
            continue;
        }
        if (at->retry_at_ms <= now) {
            return at;
        }
        is_idle = false;
        int64_t left_ms = at->retry_at_ms - now;
        *ret_wait_ms = left_ms < *ret_wait_ms ? left_ms : *ret_wait_ms;
    }
    *ret_wait_ms = is_idle ? 0 : *ret_wait_ms;
    return NULL;
}

/* With the lock held, which is given up meanwhile. */
static void work_on(struct fcap_adopter *adopter, struct fcap_adoption *adoption)
{
    adopter->working = adoption;
    adopter->beat_ms = now_ms(adopter);
    (void)pthread_mutex_unlock(&adopter->lock);
    bool is_over = adopt(adopter, adoption);
    (void)pthread_mutex_lock(&adopter->lock);
    adopter->working = NULL;
    adoption->is_done = is_over;
    adoption->retry_at_ms = now_ms(adopter) + RETRY_MS;
    if (adoption->is_ended) {
        free_adoption(adopter, adoption);
    }
}

/* What was opened and read for the last ones is of no use any more. The same with the lock. */
static void rest(struct fcap_adopter *adopter)
{
    (void)pthread_mutex_unlock(&adopter->lock);
    adopter->state->ops->rest(adopter->state);
    adopt_catalog_done(&adopter->catalog);
    adopter->has_catalog = false;
    (void)pthread_mutex_lock(&adopter->lock);
}

static void wait_for(struct fcap_adopter *adopter, int64_t wait_ms)
{
    struct timespec until;
    if (wait_ms <= 0) {
        (void)pthread_cond_wait(&adopter->wake, &adopter->lock); /* Cannot fail. */
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* Cannot fail for this clock. */
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += wait_ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&adopter->wake, &adopter->lock, &until); /* Late is the reason. */
}

static void *run(void *context)
{
    struct fcap_adopter *adopter = context;
    bool has_worked = false;
    (void)pthread_mutex_lock(&adopter->lock);
    while (!adopter->stopping) {
        int64_t wait_ms = 0;
        struct fcap_adoption *adoption = next_due(adopter, &wait_ms);
        if (adoption != NULL) {
            work_on(adopter, adoption);
            has_worked = true;
        } else if (has_worked && wait_ms == 0) {
            has_worked = false;
            rest(adopter);
        } else {
            wait_for(adopter, wait_ms);
        }
    }
    rest(adopter);
    adopter->has_ended = true;
    (void)pthread_cond_broadcast(&adopter->ended);
    (void)pthread_mutex_unlock(&adopter->lock);
    return NULL;
}

bool fcap_adopter_step(struct fcap_adopter *adopter)
{
    int64_t wait_ms = 0;
    (void)pthread_mutex_lock(&adopter->lock);
    struct fcap_adoption *adoption = next_due(adopter, &wait_ms);
    if (adoption != NULL) {
        work_on(adopter, adoption);
    } else if (wait_ms == 0) {
        rest(adopter);
    }
    (void)pthread_mutex_unlock(&adopter->lock);
    return adoption != NULL;
}

/* --- life --------------------------------------------------------------------------------------
 */

struct fcap_adopter *fcap_adopter_open(const struct fcap_adopter_settings *settings,
                                       struct fcap_adopt_state *state, struct fcap_objects *objects)
{
    pthread_condattr_t attributes;
    struct fcap_adopter *adopter = calloc(1, sizeof *adopter);
    FCAP_ASSERT(adopter != NULL);
    adopter->settings = *settings;
    adopter->state = state;
    adopter->objects = objects;
    FCAP_ASSERT(pthread_mutex_init(&adopter->lock, NULL) == 0);
    FCAP_ASSERT(pthread_condattr_init(&attributes) == 0);
    FCAP_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    FCAP_ASSERT(pthread_cond_init(&adopter->wake, &attributes) == 0);
    FCAP_ASSERT(pthread_cond_init(&adopter->ended, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes); /* Cannot fail on an initialised one. */
    return adopter;
}

enum fcap_status fcap_adopter_start(struct fcap_adopter *adopter)
{
    if (pthread_create(&adopter->thread, NULL, run, adopter) != 0) {
        return FCAP_NO_MEMORY;
    }
    adopter->has_thread = true;
    return FCAP_OK;
}

enum fcap_status fcap_adopter_stop(struct fcap_adopter *adopter, int64_t deadline_ms)
{
    struct timespec until;
    int late = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* Cannot fail for this clock. */
    until.tv_sec += deadline_ms / 1000 + 1;       /* At least some time. */
    (void)pthread_mutex_lock(&adopter->lock);
    adopter->stopping = true;
    (void)pthread_cond_broadcast(&adopter->wake);
    while (adopter->has_thread && !adopter->has_ended && late == 0) {
        late = pthread_cond_timedwait(&adopter->ended, &adopter->lock, &until);
    }
    bool is_over = !adopter->has_thread || adopter->has_ended;
    (void)pthread_mutex_unlock(&adopter->lock);
    if (is_over && adopter->has_thread) {
        (void)pthread_join(adopter->thread, NULL); /* Joinable, and about to end. */
        adopter->has_thread = false;
    }
    return is_over ? FCAP_OK : FCAP_TIMEOUT;
}

void fcap_adopter_close(struct fcap_adopter *adopter)
{
    if (adopter == NULL) {
        return;
    }
    FCAP_ASSERT(adopter->first == NULL && !adopter->has_thread);
    adopter->state->ops->rest(adopter->state);
    adopt_catalog_done(&adopter->catalog);
    (void)pthread_cond_destroy(&adopter->ended); /* Nobody waits. */
    (void)pthread_cond_destroy(&adopter->wake);
    (void)pthread_mutex_destroy(&adopter->lock);
    free(adopter);
}

void fcap_adopter_metrics(struct fcap_adopter *adopter, struct fcap_adopter_metrics *ret_metrics)
{
    (void)pthread_mutex_lock(&adopter->lock);
    *ret_metrics = adopter->metrics;
    for (const struct fcap_adoption *at = adopter->first; at != NULL; at = at->next) {
        ret_metrics->waiting += !at->is_done && !at->is_ended;
    }
    (void)pthread_mutex_unlock(&adopter->lock);
}

/* --- what workers call -------------------------------------------------------------------------
 */

struct fcap_adoption *fcap_adopter_ask(struct fcap_adopter *adopter,
                                       const struct fcap_store_claimed *claimed)
{
    struct fcap_adoption *adoption = calloc(1, sizeof *adoption);
    FCAP_ASSERT(adoption != NULL);
    adoption->adopter = adopter;
    adoption->asked_ms = now_ms(adopter);
    adoption->order.claimed =
        (struct fcap_store_claimed){.partition = claimed->partition,
                                    .assignment = claimed->assignment,
                                    .dropped_through_ms = claimed->dropped_through_ms,
                                    .go_on = goes_on,
                                    .context = adoption,
                                    .leaves_half = true};
    adoption->order.changes = changes;
    (void)pthread_mutex_lock(&adopter->lock);
    struct fcap_adoption **at = &adopter->first;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = adoption;
    (void)pthread_cond_broadcast(&adopter->wake);
    (void)pthread_mutex_unlock(&adopter->lock);
    return adoption;
}

bool fcap_adoption_is_over(struct fcap_adoption *adoption)
{
    struct fcap_adopter *adopter = adoption->adopter;
    (void)pthread_mutex_lock(&adopter->lock);
    int64_t still_ms = adopter->working != NULL ? now_ms(adopter) - adopter->beat_ms : 0;
    int64_t patience_ms =
        adoption->is_changing ? FCAP_ADOPT_LONG_PATIENCE_MS : FCAP_ADOPT_PATIENCE_MS;
    bool is_done = adoption->is_done;
    bool is_stuck = !is_done && (still_ms > patience_ms || adopter->stopping);
    (void)pthread_mutex_unlock(&adopter->lock);
    if (is_stuck && still_ms > patience_ms) {
        say(adopter, FCAP_CHECKPOINTER_WARN,
            "partition %" PRId32 ": checkpoint.directory has not answered for %" PRId64
            " s; it goes on without a checkpoint",
            adoption->order.claimed.partition, still_ms / 1000);
    }
    return is_done || is_stuck;
}

void fcap_adoption_end(struct fcap_adoption *adoption)
{
    struct fcap_adopter *adopter = adoption->adopter;
    (void)pthread_mutex_lock(&adopter->lock);
    adopter->metrics.cancelled += !adoption->is_done;
    adoption->is_ended = true;
    if (adopter->working != adoption) {
        free_adoption(adopter, adoption);
    }
    (void)pthread_mutex_unlock(&adopter->lock);
}
