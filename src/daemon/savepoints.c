#include "savepoints.h"

#include "daemon.h"
#include "fcap/ads.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/log.h"
#include "fcap/savepoint.h"
#include "fcap/utf8.h"
#include "requests.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* So many are remembered: whoever asked for one gets its result, even when another has been begun
 * since. */
#define KEPT 8

enum phase {
    NONE,
    RUNNING,
    DONE,
    FAILED,
};

struct one {
    enum phase phase;
    int64_t begun_ms; /* wall clock; no two have the same, so it is the name of this one */
    char to[4096];
    uint64_t bytes;
    uint64_t bytes_all;
    struct fcap_savepoint_report report;
    enum fcap_status status;
    struct fcap_error error;
};

struct fcap_savepoints {
    const struct fcap_config *config;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct fcap_checkpoint_state *state; /* NULL: not open yet */
    bool is_state_held;                  /* the store must stay open */
    bool is_cancelled;
    struct one kept[KEPT];
    size_t newest;
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

static struct one *newest_of(struct fcap_savepoints *savepoints)
{
    return &savepoints->kept[savepoints->newest];
}

bool fcap_savepoints_close(struct fcap_savepoints *savepoints, int64_t deadline_ms)
{
    if (savepoints == NULL) {
        return true;
    }
    int64_t end_ms = fcap_clock_os_monotonic_ms() + deadline_ms;
    const struct timespec end = {.tv_sec = end_ms / 1000, .tv_nsec = end_ms % 1000 * 1000000};
    (void)pthread_mutex_lock(&savepoints->lock);
    const struct one *newest = newest_of(savepoints);
    savepoints->is_cancelled = true;
    /* While the store copies the state it must stay open, however long that takes. */
    while (savepoints->is_state_held) {
        (void)pthread_cond_wait(&savepoints->changed, &savepoints->lock);
    }
    while (newest->phase == RUNNING && fcap_clock_os_monotonic_ms() < end_ms) {
        (void)pthread_cond_timedwait(&savepoints->changed, &savepoints->lock, &end);
    }
    bool has_ended = newest->phase != RUNNING;
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
    newest_of(savepoints)->bytes = bytes;
    newest_of(savepoints)->bytes_all = bytes_all;
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

static bool on_hold(void *context, bool is_held)
{
    struct fcap_savepoints *savepoints = context;
    (void)pthread_mutex_lock(&savepoints->lock);
    bool may_go_on = !is_held || !savepoints->is_cancelled;
    savepoints->is_state_held = is_held && may_go_on;
    (void)pthread_cond_broadcast(&savepoints->changed);
    (void)pthread_mutex_unlock(&savepoints->lock);
    return may_go_on;
}

static enum fcap_status take(struct fcap_savepoints *savepoints, const char *to,
                             struct fcap_savepoint_report *ret_report, struct fcap_error *error)
{
    const struct fcap_config *config = savepoints->config;
    struct fcap_objects *objects = NULL;
    const struct fcap_savepoint_settings settings = {
        .profile = config->profile,
        .instance = config->instance,
        .rate_limit_bytes_per_second = (uint64_t)config->materialization.rate_limit_bytes,
        .clock = fcap_clock_os(),
        .progress = on_progress,
        .is_cancelled = is_cancelled,
        .hold = on_hold,
        .context = savepoints,
    };
    bool was_made = fcap_savepoint_place_is_made(to);
    enum fcap_status status = fcap_savepoint_check_place(to, config->checkpoint.directory, error);
    if (status == FCAP_OK) {
        status = fcap_objects_directory_open(to, false, &objects, error);
    }
    if (status == FCAP_OK) {
        status = fcap_savepoint_take(&settings, objects, savepoints->state, ret_report, error);
    }
    fcap_objects_directory_close(objects);
    if (status != FCAP_OK && !was_made) {
        fcap_savepoint_unmake_place(to, config->profile, config->instance);
    }
    return status;
}

static void *run(void *context)
{
    struct fcap_savepoints *savepoints = context;
    struct one *one = newest_of(savepoints); /* Nobody begins another one while this runs. */
    struct fcap_savepoint_report report = {0};
    struct fcap_error error = {""};
    fcap_log_thread("savepoint");
    FCAP_INFO("savepoint: %s: begun", one->to);
    enum fcap_status status = take(savepoints, one->to, &report, &error);
    if (status == FCAP_OK) {
        FCAP_INFO("savepoint: %s holds the state and was read back: %" PRIu64 " files, %" PRIu64
                  " bytes, %zu partitions",
                  one->to, report.files, report.bytes, report.partition_count);
    } else {
        FCAP_WARN("savepoint: %s: %s", one->to, error.text);
    }
    (void)pthread_mutex_lock(&savepoints->lock);
    one->report = report;
    one->status = status;
    one->error = error;
    one->phase = status == FCAP_OK ? DONE : FAILED;
    (void)pthread_cond_broadcast(&savepoints->changed);
    (void)pthread_mutex_unlock(&savepoints->lock);
    return NULL;
}

/* With the lock held, when none runs. */
static bool begin(struct fcap_savepoints *savepoints, const char *to)
{
    pthread_t thread;
    size_t last = savepoints->newest;
    int64_t last_ms = savepoints->kept[last].begun_ms;
    int64_t now_ms = fcap_clock_os_wall_ms();
    savepoints->newest = savepoints->kept[last].phase == NONE ? last : (last + 1) % KEPT;
    struct one *one = newest_of(savepoints);
    *one = (struct one){.phase = RUNNING, .begun_ms = now_ms > last_ms ? now_ms : last_ms + 1};
    (void)snprintf(one->to, sizeof one->to, "%s", to); /* Its size was looked at. */
    if (pthread_create(&thread, NULL, run, savepoints) != 0) {
        one->phase = NONE;
        savepoints->newest = last;
        return false;
    }
    (void)pthread_detach(thread); /* Its end is told by `phase`. */
    return true;
}

/* --- pages ----------------------------------------------------------------------------------- */

static void put_number(struct fcap_buffer *body, const char *name, int64_t number)
{
    fcap_buffer_put_text(body, name);
    fcap_buffer_put_decimal(body, number);
}

/* A path may hold any bytes, JSON only UTF-8. */
static void put_text(struct fcap_buffer *body, const char *name, const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t left = strlen(text);
    fcap_buffer_put_text(body, name);
    fcap_buffer_put_text(body, "\"");
    while (left > 0) {
        size_t size = fcap_utf8_sequence(at, left);
        fcap_json_escape(body, size == 0 ? fcap_bytes_of("\xEF\xBF\xBD") /* U+FFFD */
                                         : (struct fcap_bytes){at, size});
        size = size == 0 ? 1 : size;
        at += size;
        left -= size;
    }
    fcap_buffer_put_text(body, "\"");
}

/* With the lock held. */
static void describe(const struct one *one, struct fcap_http_response *response)
{
    static const char *const names[] = {"none", "running", "done", "failed"};
    struct fcap_buffer *body = &response->body;
    response->content_type = "application/json; charset=utf-8";
    put_text(body, "{\"savepoint\":", names[one->phase]);
    if (one->phase != NONE) {
        put_number(body, ",\"begun\":", one->begun_ms);
        put_number(body, ",\"bytes_done\":", (int64_t)one->bytes);
        put_number(body, ",\"bytes_all\":", (int64_t)one->bytes_all);
    }
    if (one->phase == DONE) {
        put_number(body, ",\"sequence\":", (int64_t)one->report.sequence);
        put_number(body, ",\"files\":", (int64_t)one->report.files);
        put_number(body, ",\"bytes\":", (int64_t)one->report.bytes);
        put_number(body, ",\"partitions\":", (int64_t)one->report.partition_count);
    }
    if (one->phase == FAILED) {
        put_number(body, ",\"exit_code\":", fcap_daemon_exit_code(one->status));
        put_text(body, ",\"error\":", one->error.text);
    }
    if (one->phase != NONE) {
        put_text(body, ",\"to\":", one->to);
    }
    fcap_buffer_put_text(body, "}\n");
}

/* Whoever says whose state is meant must mean this one. */
static bool is_meant(const struct fcap_http_request *request, const char *name, const char *own,
                     struct fcap_http_response *response)
{
    const char *meant = fcap_http_query(request, name);
    if (meant == NULL || strcmp(meant, own) == 0) {
        return true;
    }
    response->status = 421; /* The request has come to the wrong one. */
    fcap_buffer_put_text(&response->body, "this is another daemon: its ");
    fcap_buffer_put_text(&response->body, name);
    fcap_buffer_put_text(&response->body, " is ");
    fcap_buffer_put_text(&response->body, own);
    fcap_buffer_put_text(&response->body, "\n");
    return false;
}

void fcap_serve_savepoint(void *context, const struct fcap_http_request *request,
                          struct fcap_http_response *response)
{
    struct fcap_savepoints *savepoints = context;
    struct fcap_bytes to = FCAP_BYTES_NONE;
    (void)fcap_http_query_bytes(request, "to", &to); /* Absent: no bytes. */
    if (to.size == 0 || to.data[0] != '/' || to.size >= sizeof savepoints->kept[0].to ||
        memchr(to.data, 0, to.size) != NULL) {
        fcap_request_refuse(response, 400, "?to= is due, with the whole path of a directory\n");
        return;
    }
    if (!is_meant(request, "profile", savepoints->config->profile, response) ||
        !is_meant(request, "instance", savepoints->config->instance, response)) {
        return;
    }
    (void)pthread_mutex_lock(&savepoints->lock);
    bool is_open = savepoints->state != NULL;
    bool is_busy = newest_of(savepoints)->phase == RUNNING;
    /* A NUL follows what stands in a query. */
    bool has_begun = is_open && !is_busy && begin(savepoints, (const char *)to.data);
    if (has_begun) {
        response->status = 202;
        describe(newest_of(savepoints), response);
    }
    (void)pthread_mutex_unlock(&savepoints->lock);
    if (is_busy) {
        fcap_request_refuse(
            response, 409, "another savepoint is being taken; GET /savepoint says how far it is\n");
    } else if (!is_open) {
        fcap_request_refuse(response, 503, "the state is not open yet; see /readyz\n");
    } else if (!has_begun) {
        fcap_request_refuse(response, 503, "no thread can be made for it now\n");
    }
}

void fcap_serve_savepoint_progress(void *context, const struct fcap_http_request *request,
                                   struct fcap_http_response *response)
{
    struct fcap_savepoints *savepoints = context;
    const char *begun = fcap_http_query(request, "begun");
    (void)pthread_mutex_lock(&savepoints->lock);
    const struct one *one = begun == NULL ? newest_of(savepoints) : NULL;
    for (size_t i = 0; i < KEPT && begun != NULL; i++) {
        char text[24];
        (void)snprintf(text, sizeof text, "%" PRId64, savepoints->kept[i].begun_ms); /* Fits. */
        if (savepoints->kept[i].phase != NONE && strcmp(text, begun) == 0) {
            one = &savepoints->kept[i];
        }
    }
    if (one != NULL) {
        describe(one, response);
    }
    (void)pthread_mutex_unlock(&savepoints->lock);
    if (one == NULL) {
        fcap_request_refuse(response, 404,
                            "this process knows of no such savepoint; was it restarted since?\n");
    }
}
