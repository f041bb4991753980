#include "board.h"

#include "fcap/assert.h"
#include "fcap/clock_os.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct place {
    uint64_t beats;
    int64_t beat_ms;
    struct fcap_worker_view view;
};

struct fcap_board {
    pthread_mutex_t lock; /* guards the views and reporter; beats are atomic */
    size_t workers;
    struct fcap_sink_redis_status reporter; /* under the lock */
    struct place places[];
};

struct fcap_board *fcap_board_open(size_t workers)
{
    struct fcap_board *board = calloc(1, sizeof *board + workers * sizeof board->places[0]);
    FCAP_ASSERT(board != NULL && pthread_mutex_init(&board->lock, NULL) == 0);
    board->workers = workers;
    for (size_t i = 0; i < workers; i++) {
        board->places[i].beat_ms = fcap_clock_os_monotonic_ms();
    }
    return board;
}

void fcap_board_close(struct fcap_board *board)
{
    if (board == NULL) {
        return;
    }
    for (size_t i = 0; i < board->workers; i++) {
        fcap_worker_view_done(&board->places[i].view);
    }
    (void)pthread_mutex_destroy(&board->lock); /* Nobody may hold it now. */
    free(board);
}

size_t fcap_board_workers(const struct fcap_board *board)
{
    return board->workers;
}

void fcap_board_beat(struct fcap_board *board, size_t worker)
{
    struct place *place = &board->places[worker];
    __atomic_store_n(&place->beats, place->beats + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&place->beat_ms, fcap_clock_os_monotonic_ms(), __ATOMIC_RELAXED);
}

uint64_t fcap_board_beats(const struct fcap_board *board, size_t worker)
{
    return __atomic_load_n(&board->places[worker].beats, __ATOMIC_RELAXED);
}

int64_t fcap_board_beat_ms(const struct fcap_board *board, size_t worker)
{
    return __atomic_load_n(&board->places[worker].beat_ms, __ATOMIC_RELAXED);
}

void fcap_worker_view_reserve(struct fcap_worker_view *view, size_t count)
{
    if (count > view->task_capacity) {
        view->tasks = realloc(view->tasks, count * 2 * sizeof *view->tasks);
        FCAP_ASSERT(view->tasks != NULL);
        view->task_capacity = count * 2;
    }
}

void fcap_worker_view_done(struct fcap_worker_view *view)
{
    free(view->tasks);
    view->tasks = NULL;
    view->task_count = 0;
    view->task_capacity = 0;
}

void fcap_worker_view_copy(struct fcap_worker_view *copy, const struct fcap_worker_view *view)
{
    fcap_worker_view_reserve(copy, view->task_count);
    struct fcap_board_task *tasks = copy->tasks;
    size_t capacity = copy->task_capacity;
    *copy = *view;
    copy->tasks = tasks;
    copy->task_capacity = capacity;
    if (view->task_count > 0) {
        memcpy(tasks, view->tasks, view->task_count * sizeof *tasks);
    }
}

void fcap_board_publish(struct fcap_board *board, size_t worker,
                        const struct fcap_worker_view *view)
{
    (void)pthread_mutex_lock(&board->lock); /* A plain mutex: fails only when misused. */
    fcap_worker_view_copy(&board->places[worker].view, view);
    (void)pthread_mutex_unlock(&board->lock);
}

void fcap_board_publish_reporter(struct fcap_board *board,
                                 const struct fcap_sink_redis_status *status)
{
    (void)pthread_mutex_lock(&board->lock);
    board->reporter = *status;
    (void)pthread_mutex_unlock(&board->lock);
}

void fcap_board_read_reporter(struct fcap_board *board, struct fcap_sink_redis_status *ret_status)
{
    (void)pthread_mutex_lock(&board->lock);
    *ret_status = board->reporter;
    (void)pthread_mutex_unlock(&board->lock);
}

void fcap_board_read(struct fcap_board *board, struct fcap_worker_view *views)
{
    (void)pthread_mutex_lock(&board->lock);
    for (size_t i = 0; i < board->workers; i++) {
        fcap_worker_view_copy(&views[i], &board->places[i].view);
    }
    (void)pthread_mutex_unlock(&board->lock);
}

struct fcap_worker_view *fcap_board_views_open(const struct fcap_board *board)
{
    struct fcap_worker_view *views = calloc(board->workers, sizeof *views);
    FCAP_ASSERT(views != NULL);
    return views;
}

void fcap_board_views_close(const struct fcap_board *board, struct fcap_worker_view *views)
{
    for (size_t i = 0; views != NULL && i < board->workers; i++) {
        fcap_worker_view_done(&views[i]);
    }
    free(views);
}

const char *fcap_worker_phase_name(enum fcap_worker_phase phase)
{
    static const char *const names[] = {
        "starting", "waiting for Redis", "running", "draining", "ended", "failed"};
    return names[phase];
}
