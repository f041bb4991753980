#include "watchdog.h"

#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/log.h"
#include "signals.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 200

struct fcap_watchdog {
    struct fcap_board *board;
    int64_t still_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_closing;
    bool is_watching;  /* the workers */
    int64_t signal_ms; /* what a signal leaves; -1: none is expected */
    int64_t left_ms;   /* until the process must have ended; -1: no end is expected */
    struct watched {
        bool is_forgotten;
        bool is_settled;
        uint64_t beats;
        int64_t still_ms;
    } workers[];
};

/* Ends the process even when standard error takes no line: the alarm's default is to kill. */
static void prepare_to_end(void)
{
    (void)alarm(2);
}

static void look_at_workers(struct fcap_watchdog *watchdog, int64_t passed_ms)
{
    for (size_t i = 0; i < fcap_board_workers(watchdog->board); i++) {
        struct watched *worker = &watchdog->workers[i];
        uint64_t beats = fcap_board_beats(watchdog->board, i);
        bool is_still = watchdog->is_watching && beats == worker->beats;
        worker->still_ms = is_still ? worker->still_ms + passed_ms : 0;
        worker->beats = beats;
        if (!worker->is_forgotten && worker->still_ms >= watchdog->still_ms) {
            prepare_to_end();
            FCAP_ERROR("watchdog: worker %zu has stood still for %lld ms (a disk or a library "
                       "hangs); the process ends, a restart goes on from the state",
                       i, (long long)worker->still_ms);
            _exit(FCAP_WATCHDOG_EXIT_STILL);
        }
    }
}

static bool is_settled(const struct fcap_watchdog *watchdog)
{
    for (size_t i = 0; i < fcap_board_workers(watchdog->board); i++) {
        if (!watchdog->workers[i].is_settled) {
            return false;
        }
    }
    return true;
}

static void look_at_signal(struct fcap_watchdog *watchdog)
{
    if (watchdog->left_ms < 0 && watchdog->signal_ms >= 0 && fcap_signals_received() != 0) {
        watchdog->left_ms = watchdog->signal_ms;
    }
}

static void look_at_deadline(struct fcap_watchdog *watchdog, int64_t passed_ms)
{
    if (watchdog->left_ms < 0) {
        return;
    }
    watchdog->left_ms -= passed_ms < watchdog->left_ms ? passed_ms : watchdog->left_ms;
    if (watchdog->left_ms == 0) {
        prepare_to_end();
        if (is_settled(watchdog)) {
            FCAP_WARN("watchdog: a library does not let go within shutdown.deadline; everything is "
                      "committed, the process ends");
            _exit(0);
        }
        FCAP_ERROR("watchdog: not stopped within shutdown.deadline; the process ends, a restart "
                   "goes on from the state");
        _exit(FCAP_WATCHDOG_EXIT_DEADLINE);
    }
}

static void wait_a_tick(struct fcap_watchdog *watchdog)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    (void)pthread_cond_timedwait(&watchdog->changed, &watchdog->lock, &until);
}

static void *watch(void *context)
{
    struct fcap_watchdog *watchdog = context;
    fcap_log_thread("watchdog");
    (void)pthread_mutex_lock(&watchdog->lock);
    int64_t seen_ms = fcap_clock_os_monotonic_ms();
    while (!watchdog->is_closing) {
        wait_a_tick(watchdog);
        int64_t now_ms = fcap_clock_os_monotonic_ms();
        int64_t passed_ms = now_ms - seen_ms < 2 * TICK_MS ? now_ms - seen_ms : 2 * TICK_MS;
        seen_ms = now_ms;
        look_at_workers(watchdog, passed_ms);
        look_at_signal(watchdog);
        look_at_deadline(watchdog, passed_ms);
    }
    (void)pthread_mutex_unlock(&watchdog->lock);
    return NULL;
}

struct fcap_watchdog *fcap_watchdog_open(struct fcap_board *board, int64_t still_ms)
{
    pthread_condattr_t attributes;
    size_t workers = fcap_board_workers(board);
    struct fcap_watchdog *watchdog =
        calloc(1, sizeof *watchdog + workers * sizeof watchdog->workers[0]);
    FCAP_ASSERT(watchdog != NULL && pthread_mutex_init(&watchdog->lock, NULL) == 0);
    FCAP_ASSERT(pthread_condattr_init(&attributes) == 0);
    FCAP_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    FCAP_ASSERT(pthread_cond_init(&watchdog->changed, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes);
    watchdog->board = board;
    watchdog->still_ms = still_ms;
    watchdog->signal_ms = -1;
    watchdog->left_ms = -1;
    FCAP_ASSERT(pthread_create(&watchdog->thread, NULL, watch, watchdog) == 0);
    return watchdog;
}

void fcap_watchdog_expect_end(struct fcap_watchdog *watchdog, int64_t left_ms)
{
    (void)pthread_mutex_lock(&watchdog->lock);
    if (watchdog->left_ms < 0) {
        watchdog->left_ms = left_ms;
    }
    (void)pthread_mutex_unlock(&watchdog->lock);
}

void fcap_watchdog_expect_signal(struct fcap_watchdog *watchdog, int64_t left_ms)
{
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->signal_ms = left_ms;
    (void)pthread_mutex_unlock(&watchdog->lock);
}

void fcap_watchdog_watch(struct fcap_watchdog *watchdog)
{
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->is_watching = true;
    (void)pthread_mutex_unlock(&watchdog->lock);
}

void fcap_watchdog_forget(struct fcap_watchdog *watchdog, size_t worker)
{
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->workers[worker].is_forgotten = true;
    (void)pthread_mutex_unlock(&watchdog->lock);
}

void fcap_watchdog_settle(struct fcap_watchdog *watchdog, size_t worker)
{
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->workers[worker].is_settled = true;
    (void)pthread_mutex_unlock(&watchdog->lock);
}

void fcap_watchdog_close(struct fcap_watchdog *watchdog)
{
    if (watchdog == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&watchdog->lock);
    watchdog->is_closing = true;
    (void)pthread_cond_signal(&watchdog->changed);
    (void)pthread_mutex_unlock(&watchdog->lock);
    (void)pthread_join(watchdog->thread, NULL); /* Joinable and not ourselves. */
    (void)pthread_cond_destroy(&watchdog->changed);
    (void)pthread_mutex_destroy(&watchdog->lock);
    free(watchdog);
}
