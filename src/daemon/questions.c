#include "questions.h"

#include "fcap/assert.h"
#include "fcap/rebuild.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VALUES_USERS 512 /* in one block: a few milliseconds of the worker's time */

struct fcap_questions {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    size_t workers;
    struct fcap_question question; /* its bytes lie in the next two */
    struct fcap_buffer user;
    struct fcap_buffer argument;
    struct fcap_buffer parts; /* the answers */
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
    fcap_buffer_done(&questions->argument);
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
static bool put_question(struct fcap_questions *questions, const struct fcap_question *question)
{
    questions->question = *question;
    fcap_buffer_clear(&questions->user);
    fcap_buffer_put_bytes(&questions->user, question->user);
    fcap_buffer_clear(&questions->argument);
    fcap_buffer_put_bytes(&questions->argument, question->argument);
    questions->question.user = fcap_buffer_bytes(&questions->user);
    questions->question.argument = fcap_buffer_bytes(&questions->argument);
    fcap_buffer_clear(&questions->parts);
    questions->due = 0;
    for (size_t i = 0; i < questions->workers; i++) {
        bool asked = questions->seats[i].joined;
        __atomic_store_n(&questions->seats[i].asked, asked, __ATOMIC_RELAXED);
        questions->due += asked;
    }
    return questions->due > 0;
}

bool fcap_questions_ask(struct fcap_questions *questions, const struct fcap_question *question,
                        int timeout_ms, struct fcap_buffer *answer)
{
    struct timespec deadline;
    (void)clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += timeout_ms / 1000;
    deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
    deadline.tv_sec += deadline.tv_nsec / 1000000000L;
    deadline.tv_nsec %= 1000000000L;

    (void)pthread_mutex_lock(&questions->lock);
    bool good = put_question(questions, question);
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
        fcap_buffer_put_bytes(answer, fcap_buffer_bytes(&questions->parts));
    }
    (void)pthread_mutex_unlock(&questions->lock);
    return good;
}

/* --- the workers' answers --- */

struct asked {
    struct fcap_pipeline *pipeline;
    const struct fcap_settings *settings;
    const struct fcap_question *question;
    const struct fcap_task_report *report;
};

/* One partition's counts; of many, only of those that count something. */
static void put_counts(const struct asked *asked, struct fcap_buffer *parts)
{
    static const char no_counts[] = "\"counts\":{}";
    const struct fcap_settings *settings = asked->settings;
    size_t start = parts->size;
    bool counts = false;
    fcap_buffer_put_text(parts, "{\"partition\":");
    fcap_buffer_put_decimal(parts, asked->report->partition);
    fcap_buffer_put_text(parts, ",\"windows\":{");
    for (size_t i = 0; i < settings->window_count; i++) {
        fcap_buffer_put_text(parts, i == 0 ? "\"" : ",\"");
        fcap_buffer_put_text(parts, settings->windows[i].name);
        fcap_buffer_put_text(parts, "\":");
        size_t before = parts->size;
        if (!fcap_pipeline_inspect(asked->pipeline, asked->report->partition, asked->question->user,
                                   i, parts)) {
            fcap_buffer_put_text(parts, "null");
        } else if (memmem(parts->data + before, parts->size - before, no_counts,
                          sizeof no_counts - 1) == NULL) {
            counts = true;
        }
    }
    fcap_buffer_put_text(parts, "}},");
    if (!counts && asked->question->partition < 0) {
        parts->size = start;
    }
}

/* What of a rebuild, or of one user's, is still to come. */
static bool find_rest(const struct asked *asked, struct fcap_rebuild_progress *ret_rest)
{
    int32_t partition = asked->report->partition;
    const struct fcap_bytes user = asked->question->user;
    if (!fcap_pipeline_rebuild_progress(asked->pipeline, partition, ret_rest)) {
        return false;
    }
    if (user.size > 0) {
        ret_rest->users = fcap_pipeline_user_waits(asked->pipeline, partition, user);
        ret_rest->windows = ret_rest->users > 0 ? (1u << asked->settings->window_count) - 1 : 0;
    }
    return true;
}

static void put_rest(const struct asked *asked, const struct fcap_rebuild_progress *rest,
                     struct fcap_buffer *parts)
{
    const char *comma = "";
    const struct fcap_settings *settings = asked->settings;
    fcap_buffer_put_text(parts, "{\"partition\":");
    fcap_buffer_put_decimal(parts, asked->report->partition);
    fcap_buffer_put_text(parts, rest->gate_open ? ",\"gate\":\"open\",\"windows\":["
                                                : ",\"gate\":\"closed\",\"windows\":[");
    for (size_t i = 0; i < settings->window_count; i++) {
        if ((rest->windows >> i & 1) != 0) {
            fcap_buffer_put_text(parts, comma);
            fcap_buffer_put_text(parts, "\"");
            fcap_buffer_put_text(parts, settings->windows[i].name);
            fcap_buffer_put_text(parts, "\"");
            comma = ",";
        }
    }
    fcap_buffer_put_text(parts, "],\"users\":");
    fcap_buffer_put_decimal(parts, (int64_t)rest->users);
    fcap_buffer_put_text(parts, "},");
}

static void begin_rebuild(const struct asked *asked, struct fcap_buffer *parts)
{
    struct fcap_rebuild_progress rest;
    const struct fcap_bytes user = asked->question->user;
    int32_t partition = asked->report->partition;
    bool is_begun = user.size > 0 ? fcap_pipeline_rebuild_user(asked->pipeline, partition, user)
                                  : fcap_pipeline_rebuild(asked->pipeline, partition);
    if (is_begun && find_rest(asked, &rest)) {
        put_rest(asked, &rest, parts);
    }
}

static void put_users(const struct asked *asked, struct fcap_buffer *parts)
{
    struct fcap_reader reader = fcap_reader_of(asked->question->argument);
    if (fcap_reader_left(&reader) == 0) { /* Which partitions are here? */
        (void)fcap_pipeline_values_user(asked->pipeline, asked->report->partition, FCAP_BYTES_NONE,
                                        parts);
    }
    while (fcap_reader_left(&reader) > 0) {
        struct fcap_bytes user = fcap_reader_take(&reader, fcap_reader_be16(&reader));
        if (!reader.failed) {
            (void)fcap_pipeline_values_user(asked->pipeline, asked->report->partition, user,
                                            parts); /* Perhaps another partition's. */
        }
    }
}

static void put_answer(const struct asked *asked, struct fcap_buffer *parts)
{
    struct fcap_rebuild_progress rest;
    switch (asked->question->kind) {
    case FCAP_ASK_INSPECT:
        put_counts(asked, parts);
        break;
    case FCAP_ASK_REBUILD:
        begin_rebuild(asked, parts);
        break;
    case FCAP_ASK_PROGRESS:
        if (find_rest(asked, &rest) && rest.windows != 0) {
            put_rest(asked, &rest, parts);
        }
        break;
    case FCAP_ASK_VALUES:
        (void)fcap_pipeline_values(asked->pipeline, asked->report->partition,
                                   asked->question->argument, VALUES_USERS, parts);
        break;
    case FCAP_ASK_USERS:
        put_users(asked, parts);
        break;
    }
}

void fcap_questions_answer(struct fcap_questions *questions, size_t worker,
                           struct fcap_pipeline *pipeline, const struct fcap_settings *settings,
                           const struct fcap_worker_view *view)
{
    if (!__atomic_load_n(&questions->seats[worker].asked, __ATOMIC_RELAXED)) {
        return;
    }
    (void)pthread_mutex_lock(&questions->lock);
    for (size_t i = 0; i < view->task_count && questions->seats[worker].asked; i++) {
        struct asked asked = {pipeline, settings, &questions->question, &view->tasks[i].report};
        if (questions->question.partition < 0 ||
            questions->question.partition == asked.report->partition) {
            put_answer(&asked, &questions->parts);
        }
    }
    settle(questions, worker);
    (void)pthread_mutex_unlock(&questions->lock);
}
