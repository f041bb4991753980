#include "questions.h"

#include "fcap/ads.h"
#include "fcap/assert.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fcap_questions {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    size_t workers;
    int32_t partition;
    struct fcap_buffer user;
    struct fcap_buffer parts; /* answers, each followed by a comma */
    size_t due;               /* workers that have not answered */
    struct seat {
        bool joined;
        bool asked; /* read by the worker without the lock */
    } seats[];
};

struct fcap_questions *fcap_questions_open(size_t workers)
{
    pthread_condattr_t attributes;
    struct fcap_questions *questions =
        calloc(1, sizeof *questions + workers * sizeof questions->seats[0]);
    FCAP_ASSERT(questions != NULL && pthread_mutex_init(&questions->lock, NULL) == 0);
    FCAP_ASSERT(pthread_condattr_init(&attributes) == 0);
    FCAP_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    FCAP_ASSERT(pthread_cond_init(&questions->answered, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes);
    questions->workers = workers;
    return questions;
}

void fcap_questions_close(struct fcap_questions *questions)
{
    if (questions == NULL) {
        return;
    }
    fcap_buffer_done(&questions->user);
    fcap_buffer_done(&questions->parts);
    (void)pthread_cond_destroy(&questions->answered); /* Nobody may wait now. */
    (void)pthread_mutex_destroy(&questions->lock);
    free(questions);
}

void fcap_questions_join(struct fcap_questions *questions, size_t worker)
{
    (void)pthread_mutex_lock(&questions->lock);
    questions->seats[worker].joined = true;
    (void)pthread_mutex_unlock(&questions->lock);
}

/* With the lock held. */
static void settle(struct fcap_questions *questions, size_t worker)
{
    if (questions->seats[worker].asked) {
        __atomic_store_n(&questions->seats[worker].asked, false, __ATOMIC_RELAXED);
        questions->due--;
        (void)pthread_cond_signal(&questions->answered);
    }
}

void fcap_questions_leave(struct fcap_questions *questions, size_t worker)
{
    (void)pthread_mutex_lock(&questions->lock);
    questions->seats[worker].joined = false;
    settle(questions, worker);
    (void)pthread_mutex_unlock(&questions->lock);
}

/* With the lock held. Gives false when nobody can answer. */
static bool put_question(struct fcap_questions *questions, int32_t partition,
                         struct fcap_bytes user)
{
    questions->partition = partition;
    fcap_buffer_clear(&questions->user);
    fcap_buffer_put_bytes(&questions->user, user);
    fcap_buffer_clear(&questions->parts);
    questions->due = 0;
    for (size_t i = 0; i < questions->workers; i++) {
        bool asked = questions->seats[i].joined;
        __atomic_store_n(&questions->seats[i].asked, asked, __ATOMIC_RELAXED);
        questions->due += asked;
    }
    return questions->due > 0;
}

bool fcap_questions_ask(struct fcap_questions *questions, int32_t partition, struct fcap_bytes user,
                        int timeout_ms, struct fcap_buffer *answer)
{
    struct timespec deadline;
    (void)clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += timeout_ms / 1000;
    deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
    deadline.tv_sec += deadline.tv_nsec / 1000000000L;
    deadline.tv_nsec %= 1000000000L;

    (void)pthread_mutex_lock(&questions->lock);
    bool good = put_question(questions, partition, user);
    while (good && questions->due > 0) {
        if (pthread_cond_timedwait(&questions->answered, &questions->lock, &deadline) != 0) {
            good = false;
        }
    }
    for (size_t i = 0; i < questions->workers; i++) {
        __atomic_store_n(&questions->seats[i].asked, false, __ATOMIC_RELAXED);
    }
    questions->due = 0;
    if (good) {
        size_t size = questions->parts.size;
        fcap_buffer_put_text(answer, "{\"user\":\"");
        fcap_json_escape(answer, user);
        fcap_buffer_put_text(answer, "\",\"partitions\":[");
        fcap_buffer_put(answer, questions->parts.data, size > 0 ? size - 1 : 0);
        fcap_buffer_put_text(answer, "]}\n");
    }
    (void)pthread_mutex_unlock(&questions->lock);
    return good;
}

/* One partition's part with its comma. True when a window counts something. */
static bool put_part(struct fcap_pipeline *pipeline, const struct fcap_settings *settings,
                     int32_t partition, struct fcap_bytes user, struct fcap_buffer *part)
{
    static const char no_counts[] = "\"counts\":{}";
    bool counts = false;
    fcap_buffer_put_text(part, "{\"partition\":");
    fcap_buffer_put_decimal(part, partition);
    fcap_buffer_put_text(part, ",\"windows\":{");
    for (size_t i = 0; i < settings->window_count; i++) {
        fcap_buffer_put_text(part, i == 0 ? "\"" : ",\"");
        fcap_buffer_put_text(part, settings->windows[i].name);
        fcap_buffer_put_text(part, "\":");
        size_t before = part->size;
        if (!fcap_pipeline_inspect(pipeline, partition, user, i, part)) {
            fcap_buffer_put_text(part, "null");
        } else if (memmem(part->data + before, part->size - before, no_counts,
                          sizeof no_counts - 1) == NULL) {
            counts = true;
        }
    }
    fcap_buffer_put_text(part, "}},");
    return counts;
}

void fcap_questions_answer(struct fcap_questions *questions, size_t worker,
                           struct fcap_pipeline *pipeline, const struct fcap_settings *settings,
                           const struct fcap_worker_view *view)
{
    if (!__atomic_load_n(&questions->seats[worker].asked, __ATOMIC_RELAXED)) {
        return;
    }
    struct fcap_buffer part = {0};
    (void)pthread_mutex_lock(&questions->lock);
    struct fcap_bytes user = fcap_buffer_bytes(&questions->user);
    for (size_t i = 0; i < view->task_count && questions->seats[worker].asked; i++) {
        int32_t partition = view->tasks[i].report.partition;
        bool is_meant = partition == questions->partition;
        fcap_buffer_clear(&part);
        if ((is_meant || questions->partition < 0) &&
            (put_part(pipeline, settings, partition, user, &part) || is_meant)) {
            fcap_buffer_put_bytes(&questions->parts, fcap_buffer_bytes(&part));
        }
    }
    settle(questions, worker);
    (void)pthread_mutex_unlock(&questions->lock);
    fcap_buffer_done(&part);
}
