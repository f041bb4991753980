/* The desk: requests whose handlers wait for other threads. Each is run here, in the order of
 * arrival, while its connection is suspended and the server's thread goes on with all others. */
#include "http_internal.h"

#include "fcap/assert.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum job_state {
    JOB_FREE,
    JOB_WAITING,
    JOB_RUNNING,
    JOB_DONE,   /* its response is there */
    JOB_CALLED, /* and its connection has been told */
};

struct job {
    enum job_state state;
    uint64_t number; /* in order of arrival */
    int64_t since_ms;
    const struct fcap_http_route *route;
    struct fcap_http_request request;
    struct fcap_http_response response;
};

struct fcap_http_desk {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    pthread_t thread;
    bool is_ending;
    int bell; /* an eventfd: written when a job is done */
    uint64_t next_number;
    struct job jobs[FCAP_HTTP_WAITING_MAX];
};

/* With the lock held: the first to come of those in a state, or NULL. */
static struct job *first_of(struct fcap_http_desk *desk, enum job_state state)
{
    struct job *first = NULL;
    for (size_t i = 0; i < FCAP_HTTP_WAITING_MAX; i++) {
        struct job *job = &desk->jobs[i];
        if (job->state == state && (first == NULL || job->number < first->number)) {
            first = job;
        }
    }
    return first;
}

/* With the lock held. */
static void end_job(struct fcap_http_desk *desk, struct job *job)
{
    const uint64_t one = 1;
    job->state = JOB_DONE;
    ssize_t written = write(desk->bell, &one, sizeof one);
    FCAP_ASSERT(written == sizeof one); /* The counter is far from full. */
}

static void *serve(void *context)
{
    struct fcap_http_desk *desk = context;
    (void)pthread_setname_np(pthread_self(), "http-desk");
    (void)pthread_mutex_lock(&desk->lock);
    while (!desk->is_ending) {
        struct job *job = first_of(desk, JOB_WAITING);
        if (job == NULL) {
            (void)pthread_cond_wait(&desk->arrived, &desk->lock);
            continue;
        }
        job->state = JOB_RUNNING;
        (void)pthread_mutex_unlock(&desk->lock);
        job->route->handler(job->route->context, &job->request, &job->response);
        (void)pthread_mutex_lock(&desk->lock);
        end_job(desk, job);
    }
    (void)pthread_mutex_unlock(&desk->lock);
    return NULL;
}

int fcap_http_desk_open(struct fcap_http_desk **ret_desk, int *ret_bell)
{
    struct fcap_http_desk *desk = calloc(1, sizeof *desk);
    FCAP_ASSERT(desk != NULL && pthread_mutex_init(&desk->lock, NULL) == 0);
    FCAP_ASSERT(pthread_cond_init(&desk->arrived, NULL) == 0);
    desk->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failure = desk->bell < 0 ? errno : fcap_http_start_thread(&desk->thread, serve, desk);
    if (failure != 0) {
        if (desk->bell >= 0) {
            (void)close(desk->bell); /* Holds nothing. */
        }
        (void)pthread_cond_destroy(&desk->arrived); /* Nobody waits. */
        (void)pthread_mutex_destroy(&desk->lock);
        free(desk);
        return failure;
    }
    *ret_desk = desk;
    *ret_bell = desk->bell;
    return 0;
}

void fcap_http_desk_stop(struct fcap_http_desk *desk)
{
    (void)pthread_mutex_lock(&desk->lock);
    desk->is_ending = true;
    (void)pthread_cond_signal(&desk->arrived);
    (void)pthread_mutex_unlock(&desk->lock);
    (void)pthread_join(desk->thread, NULL); /* Fails only for a thread that is none. */
    for (size_t i = 0; i < FCAP_HTTP_WAITING_MAX; i++) {
        if (desk->jobs[i].state == JOB_WAITING) {
            end_job(desk, &desk->jobs[i]);
        }
    }
}

void fcap_http_desk_close(struct fcap_http_desk *desk)
{
    for (size_t i = 0; i < FCAP_HTTP_WAITING_MAX; i++) {
        fcap_buffer_done(&desk->jobs[i].response.body);
    }
    (void)close(desk->bell); /* Holds nothing. */
    (void)pthread_cond_destroy(&desk->arrived);
    (void)pthread_mutex_destroy(&desk->lock);
    free(desk);
}

bool fcap_http_desk_put(struct fcap_http_desk *desk, struct MHD_Connection *connection,
                        const struct fcap_http_route *route,
                        const struct fcap_http_response *response, int64_t now_ms)
{
    (void)pthread_mutex_lock(&desk->lock);
    struct job *job = first_of(desk, JOB_FREE);
    if (job != NULL) {
        *job =
            (struct job){JOB_WAITING, desk->next_number++, now_ms, route, {connection}, *response};
        (void)pthread_cond_signal(&desk->arrived);
    }
    (void)pthread_mutex_unlock(&desk->lock);
    return job != NULL;
}

struct MHD_Connection *fcap_http_desk_call(struct fcap_http_desk *desk)
{
    struct MHD_Connection *connection = NULL;
    uint64_t rings;
    (void)pthread_mutex_lock(&desk->lock);
    struct job *job = first_of(desk, JOB_DONE);
    if (job != NULL) {
        job->state = JOB_CALLED;
        connection = job->request.connection;
    } else {
        ssize_t size = read(desk->bell, &rings, sizeof rings);
        (void)size; /* Nothing to read: it has not rung. */
    }
    (void)pthread_mutex_unlock(&desk->lock);
    return connection;
}

bool fcap_http_desk_take(struct fcap_http_desk *desk, const struct MHD_Connection *connection,
                         struct fcap_http_response *ret_response)
{
    bool is_there = false;
    (void)pthread_mutex_lock(&desk->lock);
    for (size_t i = 0; i < FCAP_HTTP_WAITING_MAX && !is_there; i++) {
        struct job *job = &desk->jobs[i];
        if (job->state == JOB_CALLED && job->request.connection == connection) {
            *ret_response = job->response;
            *job = (struct job){.state = JOB_FREE};
            is_there = true;
        }
    }
    (void)pthread_mutex_unlock(&desk->lock);
    return is_there;
}

void fcap_http_desk_refuse_late(struct fcap_http_desk *desk, int64_t before_ms)
{
    (void)pthread_mutex_lock(&desk->lock);
    for (size_t i = 0; i < FCAP_HTTP_WAITING_MAX; i++) {
        struct job *job = &desk->jobs[i];
        if (job->state == JOB_WAITING && job->since_ms < before_ms) {
            fcap_http_say(&job->response, 503, FCAP_HTTP_CROWDED);
            end_job(desk, job);
        }
    }
    (void)pthread_mutex_unlock(&desk->lock);
}
