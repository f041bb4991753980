/* The threads around the steps. */
#include "checkpointer_internal.h"

#include <stdlib.h>
#include <time.h>

#define END_MS 1000 /* of a thread that was waited for */

/* Waits until `due_ms` or until woken. With the lock held. */
static void wait_until(struct fcap_checkpointer *checkpointer, pthread_cond_t *wake, int64_t due_ms)
{
    if (due_ms == INT64_MAX) {
        (void)pthread_cond_wait(wake, &checkpointer->lock);
        return;
    }
    const struct timespec deadline = {.tv_sec = due_ms / 1000, .tv_nsec = due_ms % 1000 * 1000000};
    (void)pthread_cond_timedwait(wake, &checkpointer->lock, &deadline); /* Timing out is fine. */
}

static void thread_ends(struct fcap_checkpointer *checkpointer)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->running--;
    (void)pthread_cond_broadcast(&checkpointer->thread_ended);
    (void)pthread_mutex_unlock(&checkpointer->lock);
}

static void *run_ship(void *context)
{
    struct fcap_checkpointer *checkpointer = context;
    (void)pthread_setname_np(pthread_self(), "ckpt-ship");
    for (;;) {
        int64_t due_ms = checkpointer_ship(checkpointer);
        if (checkpointer->is_final_done) {
            break;
        }
        (void)pthread_mutex_lock(&checkpointer->lock);
        while (!checkpointer->ship_is_woken && checkpointer_now_ms(checkpointer) < due_ms) {
            wait_until(checkpointer, &checkpointer->wake_ship, due_ms);
        }
        checkpointer->ship_is_woken = false;
        (void)pthread_mutex_unlock(&checkpointer->lock);
    }
    thread_ends(checkpointer);
    return NULL;
}

static bool is_ending(struct fcap_checkpointer *checkpointer)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    bool is_ending = checkpointer->stopping || checkpointer->has_given_up;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return is_ending;
}

static void *run_materialize(void *context)
{
    struct fcap_checkpointer *checkpointer = context;
    (void)pthread_setname_np(pthread_self(), "ckpt-snapshot");
    while (!is_ending(checkpointer)) {
        int64_t due_ms = checkpointer_materialize(checkpointer);
        (void)pthread_mutex_lock(&checkpointer->lock);
        while (!checkpointer->materialize_is_woken && !checkpointer->stopping &&
               checkpointer_now_ms(checkpointer) < due_ms) {
            wait_until(checkpointer, &checkpointer->wake_materialize, due_ms);
        }
        checkpointer->materialize_is_woken = false;
        (void)pthread_mutex_unlock(&checkpointer->lock);
    }
    checkpointer_drop_snapshot(checkpointer); /* Its links keep what the state has dropped. */
    thread_ends(checkpointer);
    return NULL;
}

/* Which of the senders a thread is. */
struct sender_thread {
    struct fcap_checkpointer *checkpointer;
    struct transfer_sender *sender;
};

static void *run_transfer(void *context)
{
    struct sender_thread self = *(struct sender_thread *)context;
    struct fcap_checkpointer *checkpointer = self.checkpointer;
    free(context);
    (void)pthread_setname_np(pthread_self(), "ckpt-send");
    uint64_t over = 0; /* the snapshot of which there is nothing left to send */
    while (!is_ending(checkpointer)) {
        (void)pthread_mutex_lock(&checkpointer->lock);
        uint64_t serial = checkpointer->sending_serial;
        bool has_work = checkpointer->phase == CHECKPOINTER_SENDING && serial != over;
        if (!has_work && !checkpointer->stopping) {
            (void)pthread_cond_wait(&checkpointer->wake_transfer, &checkpointer->lock);
        }
        (void)pthread_mutex_unlock(&checkpointer->lock);
        if (!has_work) {
            continue;
        }
        int64_t due_ms =
            transfer_step(&checkpointer->transfer, self.sender, checkpointer_now_ms(checkpointer));
        (void)pthread_mutex_lock(&checkpointer->lock);
        if (due_ms == INT64_MAX) {
            over = serial;
            checkpointer_wake_materialize(checkpointer); /* It may be over for all. */
        } else if (!checkpointer->stopping && checkpointer_now_ms(checkpointer) < due_ms) {
            wait_until(checkpointer, &checkpointer->wake_transfer, due_ms);
        }
        (void)pthread_mutex_unlock(&checkpointer->lock);
    }
    transfer_sender_done(&checkpointer->transfer, self.sender);
    thread_ends(checkpointer);
    return NULL;
}

/* --- starting and stopping ------------------------------------------------------------------- */

static bool start_thread(struct fcap_checkpointer *checkpointer, void *(*run)(void *),
                         void *context)
{
    pthread_t thread;
    (void)pthread_mutex_lock(&checkpointer->lock);
    bool started = pthread_create(&thread, NULL, run, context) == 0;
    checkpointer->running += started;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    if (started) {
        (void)pthread_detach(thread); /* Its end is told by `running`. */
    }
    return started;
}

/* True when all threads have ended; false when that would take longer. */
static bool end_threads(struct fcap_checkpointer *checkpointer, int64_t end_ms)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->stopping = true;
    checkpointer->stop_deadline_ms = end_ms;
    checkpointer_wake_ship(checkpointer);
    checkpointer_wake_materialize(checkpointer);
    (void)pthread_cond_broadcast(&checkpointer->wake_transfer);
    (void)pthread_mutex_unlock(&checkpointer->lock);
    transfer_cancel(&checkpointer->transfer);
    (void)pthread_mutex_lock(&checkpointer->lock);
    /* A snapshot is the store's business, not the objects': it is always waited for, and its thread
     * then gets the time to end. */
    while (checkpointer->running > 0 &&
           (checkpointer->in_snapshot || checkpointer_now_ms(checkpointer) < end_ms)) {
        bool was_in_snapshot = checkpointer->in_snapshot;
        wait_until(checkpointer, &checkpointer->thread_ended, was_in_snapshot ? INT64_MAX : end_ms);
        int64_t least_ms = checkpointer_now_ms(checkpointer) + END_MS;
        end_ms = was_in_snapshot && end_ms < least_ms ? least_ms : end_ms;
    }
    bool have_ended = checkpointer->running == 0;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return have_ended;
}

enum fcap_status fcap_checkpointer_start(struct fcap_checkpointer *checkpointer)
{
    checkpointer->has_threads = true;
    bool started = start_thread(checkpointer, run_ship, checkpointer) &&
                   start_thread(checkpointer, run_materialize, checkpointer);
    for (size_t i = 0; i < checkpointer->settings.transfer_threads && started; i++) {
        struct sender_thread *self = malloc(sizeof *self);
        FCAP_ASSERT(self != NULL);
        *self = (struct sender_thread){checkpointer, &checkpointer->senders[i]};
        started = start_thread(checkpointer, run_transfer, self);
        if (!started) {
            free(self);
        }
    }
    if (started) {
        return FCAP_OK;
    }
    (void)end_threads(checkpointer, INT64_MAX); /* They have done nothing yet. */
    checkpointer->has_threads = false;
    return FCAP_NO_MEMORY;
}

int64_t fcap_checkpointer_step(struct fcap_checkpointer *checkpointer)
{
    FCAP_ASSERT(!checkpointer->has_threads);
    int64_t ship_ms = checkpointer_ship(checkpointer);
    if (checkpointer->has_given_up) {
        checkpointer_drop_snapshot(checkpointer);
        return ship_ms;
    }
    int64_t materialize_ms = checkpointer_materialize(checkpointer);
    return ship_ms < materialize_ms ? ship_ms : materialize_ms;
}

static void stop_without_threads(struct fcap_checkpointer *checkpointer)
{
    int64_t now_ms = checkpointer_now_ms(checkpointer);
    while (!checkpointer->is_final_done && checkpointer_ship(checkpointer) <= now_ms) {
    }
}

enum fcap_status fcap_checkpointer_stop(struct fcap_checkpointer *checkpointer, int64_t deadline_ms)
{
    bool have_ended = end_threads(checkpointer, checkpointer_now_ms(checkpointer) + deadline_ms);
    if (!checkpointer->has_threads) {
        stop_without_threads(checkpointer);
    }
    return have_ended ? FCAP_OK : FCAP_TIMEOUT;
}
