#include "savepoints.h"

#include "fcap/ads.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/log.h"
#include "fcap/savepoint.h"
#include "requests.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum phase {
    NONE, /* none was asked for */
    RUNNING,
    DONE,
    FAILED,
};

struct fcap_savepoints {
    const struct fcap_config *config;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct fcap_checkpoint_state *state; /* NULL: not open yet */
    enum phase phase;
    bool has_begun_to_send; /* the store is needed no more */
    bool is_cancelled;
    char to[4096];
    uint64_t bytes;
    uint64_t bytes_all;
    struct fcap_savepoint_report report;
    struct fcap_error error;
};

struct fcap_savepoints *fcap_savepoints_open(const struct fcap_config *config)
{
    pthread_condattr_t monotonic;
    struct fcap_savepoints *savepoints = calloc(1, sizeof *savepoints);
    FCAP_ASSERT(savepoints != NULL);
    savepoints->config = config;
    FCAP_ASSERT(pthread_condattr_init(&monotonic) == 0);
    FCAP_ASSERT(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
    FCAP_ASSERT(pthread_mutex_init(&savepoints->lock, NULL) == 0);
    FCAP_ASSERT(pthread_cond_init(&savepoints->changed, &monotonic) == 0);
    (void)pthread_condattr_destroy(&monotonic);
    return savepoints;
}

void fcap_savepoints_attach(struct fcap_savepoints *savepoints, struct fcap_checkpoint_state *state)
{
    (void)pthread_mutex_lock(&savepoints->lock);
    savepoints->state = state;
    (void)pthread_mutex_unlock(&savepoints->lock);
}

bool fcap_savepoints_close(struct fcap_savepoints *savepoints, int64_t deadline_ms)
{
    if (savepoints == NULL) {
        return true;
    }
    int64_t end_ms = fcap_clock_os_monotonic_ms() + deadline_ms;
    const struct timespec end = {.tv_sec = end_ms / 1000, .tv_nsec = end_ms % 1000 * 1000000};
    (void)pthread_mutex_lock(&savepoints->lock);
    savepoints->is_cancelled = true;
    /* While the store copies the state it must stay open, however long that takes. */
    while (savepoints->phase == RUNNING && !savepoints->has_begun_to_send) {
        (void)pthread_cond_wait(&savepoints->changed, &savepoints->lock);
    }
    while (savepoints->phase == RUNNING && fcap_clock_os_monotonic_ms() < end_ms) {
        (void)pthread_cond_timedwait(&savepoints->changed, &savepoints->lock, &end);
    }
    bool has_ended = savepoints->phase != RUNNING;
    (void)pthread_mutex_unlock(&savepoints->lock);
    if (has_ended) {
        (void)pthread_cond_destroy(&savepoints->changed);
        (void)pthread_mutex_destroy(&savepoints->lock); /* Nobody holds it. */
        free(savepoints);
    }
    return has_ended;
}

/* --- the thread ------------------------------------------------------------------------------ */

static void on_progress(void *context, uint64_t bytes, uint64_t bytes_all)
{
    struct fcap_savepoints *savepoints = context;
    (void)pthread_mutex_lock(&savepoints->lock);
    savepoints->bytes = bytes;
    savepoints->bytes_all = bytes_all;
    savepoints->has_begun_to_send = true;
    (void)pthread_cond_broadcast(&savepoints->changed);
    (void)pthread_mutex_unlock(&savepoints->lock);
}

static bool is_cancelled(void *context)
{
    struct fcap_savepoints *savepoints = context;
    (void)pthread_mutex_lock(&savepoints->lock);
    bool is_cancelled = savepoints->is_cancelled;
    (void)pthread_mutex_unlock(&savepoints->lock);
    return is_cancelled;
}

static void *run(void *context)
{
    struct fcap_savepoints *savepoints = context;
    struct fcap_objects *objects = NULL;
    struct fcap_savepoint_report report = {0};
    struct fcap_error error = {""};
    fcap_log_thread("savepoint");
    const struct fcap_savepoint_settings settings = {
        .profile = savepoints->config->profile,
        .instance = savepoints->config->instance,
        .rate_limit_bytes_per_second =
            (uint64_t)savepoints->config->materialization.rate_limit_bytes,
        .clock = fcap_clock_os(),
        .progress = on_progress,
        .is_cancelled = is_cancelled,
        .context = savepoints,
    };
    enum fcap_status status = fcap_objects_directory_open(savepoints->to, false, &objects, &error);
    if (status == FCAP_OK) {
        status = fcap_savepoint_take(&settings, objects, savepoints->state, &report, &error);
    }
    fcap_objects_directory_close(objects);
    if (status == FCAP_OK) {
        FCAP_INFO("savepoint: %s holds the state and was read back: %" PRIu64 " files, %" PRIu64
                  " bytes, %zu partitions",
                  savepoints->to, report.files, report.bytes, report.partition_count);
    } else {
        FCAP_WARN("savepoint: %s: %s", savepoints->to, error.text);
    }
    (void)pthread_mutex_lock(&savepoints->lock);
    savepoints->report = report;
    savepoints->error = error;
    savepoints->phase = status == FCAP_OK ? DONE : FAILED;
    (void)pthread_cond_broadcast(&savepoints->changed);
    (void)pthread_mutex_unlock(&savepoints->lock);
    return NULL;
}

/* With the lock held. */
static bool begin(struct fcap_savepoints *savepoints, const char *to)
{
    pthread_t thread;
    (void)snprintf(savepoints->to, sizeof savepoints->to, "%s", to); /* Its size was looked at. */
    savepoints->phase = RUNNING;
    savepoints->has_begun_to_send = false;
    savepoints->bytes = savepoints->bytes_all = 0;
    if (pthread_create(&thread, NULL, run, savepoints) != 0) {
        savepoints->phase = NONE;
        return false;
    }
    (void)pthread_detach(thread); /* Its end is told by `phase`. */
    return true;
}

/* --- pages ----------------------------------------------------------------------------------- */

void fcap_serve_savepoint(void *context, const struct fcap_http_request *request,
                          struct fcap_http_response *response)
{
    struct fcap_savepoints *savepoints = context;
    const char *to = fcap_http_query(request, "to");
    if (to == NULL || to[0] != '/' || strlen(to) >= sizeof savepoints->to) {
        fcap_request_refuse(response, 400, "?to= is due, with the path of a directory\n");
        return;
    }
    (void)pthread_mutex_lock(&savepoints->lock);
    bool is_open = savepoints->state != NULL;
    bool is_busy = savepoints->phase == RUNNING;
    bool has_begun = is_open && !is_busy && begin(savepoints, to);
    (void)pthread_mutex_unlock(&savepoints->lock);
    if (has_begun) {
        response->status = 202;
        fcap_buffer_put_text(&response->body, "begun; GET /savepoint says how far it is\n");
    } else if (is_busy) {
        fcap_request_refuse(response, 409, "another savepoint is being taken\n");
    } else {
        fcap_request_refuse(response, 503, "the state is not open yet; see /readyz\n");
    }
}

static void put_number(struct fcap_buffer *body, const char *name, uint64_t number)
{
    fcap_buffer_put_text(body, name);
    fcap_buffer_put_decimal(body, (int64_t)number);
}

static void put_text(struct fcap_buffer *body, const char *name, const char *text)
{
    fcap_buffer_put_text(body, name);
    fcap_buffer_put_text(body, "\"");
    fcap_json_escape(body, fcap_bytes_of(text));
    fcap_buffer_put_text(body, "\"");
}

void fcap_serve_savepoint_progress(void *context, const struct fcap_http_request *request,
                                   struct fcap_http_response *response)
{
    static const char *const names[] = {"none", "running", "done", "failed"};
    struct fcap_savepoints *savepoints = context;
    struct fcap_buffer *body = &response->body;
    (void)request;
    response->content_type = "application/json; charset=utf-8";
    (void)pthread_mutex_lock(&savepoints->lock);
    put_text(body, "{\"savepoint\":", names[savepoints->phase]);
    if (savepoints->phase != NONE) {
        put_text(body, ",\"to\":", savepoints->to);
        put_number(body, ",\"bytes_done\":", savepoints->bytes);
        put_number(body, ",\"bytes_all\":", savepoints->bytes_all);
    }
    if (savepoints->phase == DONE) {
        put_number(body, ",\"sequence\":", savepoints->report.sequence);
        put_number(body, ",\"files\":", savepoints->report.files);
        put_number(body, ",\"bytes\":", savepoints->report.bytes);
        put_number(body, ",\"partitions\":", savepoints->report.partition_count);
    }
    if (savepoints->phase == FAILED) {
        put_text(body, ",\"error\":", savepoints->error.text);
    }
    (void)pthread_mutex_unlock(&savepoints->lock);
    fcap_buffer_put_text(body, "}\n");
}
