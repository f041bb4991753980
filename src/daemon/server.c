#include "server.h"

#include "fcap/ads.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/http.h"
#include "fcap/log.h"
#include "health.h"
#include "page.h"
#include "rebuild_pages.h"
#include "requests.h"

#include <stdlib.h>
#include <string.h>

#define ROUTES 11
#define JSON   "application/json; charset=utf-8"

struct fcap_server {
    struct fcap_server_settings settings;
    struct fcap_worker_view *views; /* the HTTP thread's copy */
    struct fcap_http_route routes[ROUTES];
    struct fcap_http *http;
    int64_t start_ms;                       /* wall clock */
    struct fcap_store_rocksdb *db;          /* atomic; NULL: not open yet */
    int64_t retention_ms;                   /* of the topic, atomic; 0: not known */
    struct fcap_checkpointer *checkpointer; /* atomic; NULL: none */
    struct fcap_adopter *adopter;           /* atomic; NULL: none */
    unsigned source;                        /* of the state, atomic; FCAP_STATE_SOURCES: unknown */
    uint64_t restored_bytes;                /* atomic, both */
    uint64_t restore_bytes;
};

static size_t workers_of(const struct fcap_server *server)
{
    return fcap_board_workers(server->settings.board);
}

static enum fcap_state_source source_of(const struct fcap_server *server)
{
    return (enum fcap_state_source)__atomic_load_n(&server->source, __ATOMIC_RELAXED);
}

static void serve_live(void *context, const struct fcap_http_request *request,
                       struct fcap_http_response *response)
{
    struct fcap_server *server = context;
    (void)request;
    fcap_board_read(server->settings.board, server->views);
    if (!fcap_health_live(server->settings.board, server->views, fcap_clock_os_monotonic_ms(),
                          &response->body)) {
        response->status = 503;
    }
}

static bool put_readiness(struct fcap_server *server, struct fcap_store_metrics *ret_metrics,
                          struct fcap_buffer *body)
{
    struct fcap_store_rocksdb *db = __atomic_load_n(&server->db, __ATOMIC_ACQUIRE);
    struct fcap_error last = {""};
    *ret_metrics = (struct fcap_store_metrics){0};
    if (db != NULL) {
        fcap_store_rocksdb_metrics(db, ret_metrics);
        fcap_store_rocksdb_last_error(db, &last);
    }
    struct fcap_checkpointer *checkpointer =
        __atomic_load_n(&server->checkpointer, __ATOMIC_ACQUIRE);
    struct fcap_error checkpoints = {""};
    if (checkpointer != NULL) {
        fcap_checkpointer_describe(checkpointer, &checkpoints);
    }
    struct fcap_sink_redis_status reporter;
    fcap_board_read(server->settings.board, server->views);
    fcap_board_read_reporter(server->settings.board, &reporter);
    struct fcap_health_facts facts = {
        .now_ms = fcap_clock_os_monotonic_ms(),
        .is_state_open = db != NULL,
        .restored_bytes = __atomic_load_n(&server->restored_bytes, __ATOMIC_RELAXED),
        .restore_bytes = __atomic_load_n(&server->restore_bytes, __ATOMIC_RELAXED),
        .write_stopped = ret_metrics->write_stopped != 0,
        .sync_failing = ret_metrics->sync_failing != 0,
        .write_waits_ms = (int64_t)(ret_metrics->write_waits_us / 1000),
        .last_store_error = last.text,
        .checkpoints = checkpointer != NULL ? checkpoints.text : NULL,
        .source = source_of(server),
        .retention_ms = __atomic_load_n(&server->retention_ms, __ATOMIC_RELAXED),
        .reporter = &reporter,
    };
    return fcap_health_ready(server->settings.config, server->views, workers_of(server), &facts,
                             body);
}

static void serve_ready(void *context, const struct fcap_http_request *request,
                        struct fcap_http_response *response)
{
    struct fcap_store_metrics metrics;
    (void)request;
    response->content_type = JSON;
    if (!put_readiness(context, &metrics, &response->body)) {
        response->status = 503;
    }
}

/* The same body for people; always 200. */
static void serve_status(void *context, const struct fcap_http_request *request,
                         struct fcap_http_response *response)
{
    struct fcap_store_metrics metrics;
    (void)request;
    response->content_type = JSON;
    (void)put_readiness(context, &metrics, &response->body); /* The body says it. */
}

static void serve_metrics(void *context, const struct fcap_http_request *request,
                          struct fcap_http_response *response)
{
    struct fcap_server *server = context;
    struct fcap_store_metrics store;
    struct fcap_checkpoint_metrics checkpoint = {0};
    struct fcap_checkpointer *checkpointer =
        __atomic_load_n(&server->checkpointer, __ATOMIC_ACQUIRE);
    struct fcap_adopter_metrics adoption = {0};
    struct fcap_adopter *adopter = __atomic_load_n(&server->adopter, __ATOMIC_ACQUIRE);
    struct fcap_buffer unused = {0};
    (void)request;
    if (checkpointer != NULL) {
        fcap_checkpointer_metrics(checkpointer, &checkpoint);
    }
    if (adopter != NULL) {
        fcap_adopter_metrics(adopter, &adoption);
    }
    bool is_ready = put_readiness(server, &store, &unused);
    struct fcap_page_settings page = {
        .config = server->settings.config,
        .views = server->views,
        .view_count = workers_of(server),
        .store = &store,
        .checkpoint = &checkpoint,
        .adoption = &adoption,
        .has_checkpoints = checkpointer != NULL,
        .source = source_of(server),
        .start_ms = server->start_ms,
        .is_ready = is_ready,
        .retention_ms = __atomic_load_n(&server->retention_ms, __ATOMIC_RELAXED),
    };
    fcap_buffer_done(&unused);
    response->content_type = FCAP_METRICS_CONTENT_TYPE;
    fcap_page_build(&page, &response->body);
}

static void serve_inspect(void *context, const struct fcap_http_request *request,
                          struct fcap_http_response *response)
{
    struct fcap_server *server = context;
    struct fcap_question question = {.kind = FCAP_ASK_INSPECT};
    struct fcap_buffer parts = {0};
    if (!fcap_request_user(request, true, response, &question.user) ||
        !fcap_request_partition(request, response, &question.partition)) {
        return;
    }
    if (fcap_questions_ask(server->settings.questions, &question, FCAP_INSPECT_TIMEOUT_MS,
                           &parts)) {
        response->content_type = JSON;
        fcap_buffer_put_text(&response->body, "{\"user\":\"");
        fcap_json_escape(&response->body, question.user);
        fcap_buffer_put_text(&response->body, "\",\"partitions\":[");
        fcap_buffer_put(&response->body, parts.data, parts.size > 0 ? parts.size - 1 : 0);
        fcap_buffer_put_text(&response->body, "]}\n");
    } else {
        fcap_request_refuse(response, 503, "inspect: no worker can answer now; see /readyz\n");
    }
    fcap_buffer_done(&parts);
}

static void put_hot_user(size_t worker, const struct fcap_hot_user *user, struct fcap_buffer *body)
{
    bool is_cut = user->size > FCAP_HOT_USER_BYTES;
    struct fcap_bytes id = {user->bytes, is_cut ? FCAP_HOT_USER_BYTES : user->size};
    id.size = fcap_request_utf8_size(id); /* The cut may be within a character. */
    fcap_buffer_put_text(body, "{\"worker\":");
    fcap_buffer_put_decimal(body, (int64_t)worker);
    fcap_buffer_put_text(body, ",\"partition\":");
    fcap_buffer_put_decimal(body, user->partition);
    fcap_buffer_put_text(body, ",\"user\":\"");
    fcap_json_escape(body, id);
    fcap_buffer_put_text(body, is_cut ? "\",\"cut\":true,\"records\":" : "\",\"records\":");
    fcap_buffer_put_decimal(body, (int64_t)user->count);
    fcap_buffer_put_text(body, ",\"error\":");
    fcap_buffer_put_decimal(body, (int64_t)user->error);
    fcap_buffer_put_text(body, "}");
}

static int by_count(const void *a, const void *b)
{
    const struct fcap_hot_user *left = a;
    const struct fcap_hot_user *right = b;
    return (left->count < right->count) - (left->count > right->count);
}

static void serve_hot_users(void *context, const struct fcap_http_request *request,
                            struct fcap_http_response *response)
{
    struct fcap_server *server = context;
    const char *comma = "\n ";
    (void)request;
    response->content_type = JSON;
    fcap_board_read(server->settings.board, server->views);
    fcap_buffer_put_text(&response->body, "{\"halved_every_ms\":");
    fcap_buffer_put_decimal(&response->body, FCAP_HOT_USERS_HALVE_MS);
    fcap_buffer_put_text(&response->body, ",\"users\":[");
    for (size_t i = 0; i < workers_of(server); i++) {
        struct fcap_worker_view *view = &server->views[i];
        qsort(view->hot, view->hot_count, sizeof view->hot[0], by_count);
        for (size_t k = 0; k < view->hot_count; k++) {
            fcap_buffer_put_text(&response->body, comma);
            put_hot_user(i, &view->hot[k], &response->body);
            comma = ",\n ";
        }
    }
    fcap_buffer_put_text(&response->body, "]}\n");
}

enum fcap_status fcap_server_open(const struct fcap_server_settings *settings,
                                  struct fcap_server **ret_server, struct fcap_error *error)
{
    *ret_server = NULL;
    if (settings->config->http.listen == NULL) {
        return FCAP_OK;
    }
    struct fcap_server *server = calloc(1, sizeof *server);
    FCAP_ASSERT(server != NULL);
    server->settings = *settings;
    server->start_ms = fcap_clock_os_wall_ms();
    server->source = FCAP_STATE_SOURCES;
    server->views = fcap_board_views_open(settings->board);
    const struct fcap_http_route routes[ROUTES] = {
        {"GET", "/livez", false, serve_live, server, false},
        {"GET", "/readyz", false, serve_ready, server, false},
        {"GET", "/status", false, serve_status, server, false},
        {"GET", "/metrics", false, serve_metrics, server, false},
        {"GET", "/inspect", true, serve_inspect, server, true},
        {"GET", "/hot-users", true, serve_hot_users, server, false},
        {"GET", "/rebuild", true, fcap_serve_rebuild_progress, settings->questions, true},
        {"POST", "/rebuild", true, fcap_serve_rebuild, settings->questions, true},
        {"GET", "/savepoint", true, fcap_serve_savepoint_progress, settings->savepoints, false},
        {"POST", "/savepoint", true, fcap_serve_savepoint, settings->savepoints, false},
        {"GET", "/values", true, fcap_serve_values, settings->questions, true},
    };
    memcpy(server->routes, routes, sizeof routes);
    struct fcap_http_settings http = {settings->config->http.listen,
                                      settings->config->http.token_file, server->routes, ROUTES};
    enum fcap_status status = fcap_http_open(&http, &server->http, error);
    if (status != FCAP_OK) {
        fcap_server_close(server);
        return status;
    }
    FCAP_INFO("HTTP on %s (port %d)", settings->config->http.listen, fcap_http_port(server->http));
    *ret_server = server;
    return FCAP_OK;
}

void fcap_server_attach(struct fcap_server *server, struct fcap_store_rocksdb *db)
{
    if (server != NULL) {
        __atomic_store_n(&server->db, db, __ATOMIC_RELEASE);
    }
}

void fcap_server_attach_checkpointer(struct fcap_server *server,
                                     struct fcap_checkpointer *checkpointer)
{
    if (server != NULL) {
        __atomic_store_n(&server->checkpointer, checkpointer, __ATOMIC_RELEASE);
    }
}

void fcap_server_attach_adopter(struct fcap_server *server, struct fcap_adopter *adopter)
{
    if (server != NULL) {
        __atomic_store_n(&server->adopter, adopter, __ATOMIC_RELEASE);
    }
}

void fcap_server_tell_source(struct fcap_server *server, enum fcap_state_source source)
{
    if (server != NULL) {
        __atomic_store_n(&server->source, (unsigned)source, __ATOMIC_RELAXED);
    }
}

void fcap_server_tell_restore(struct fcap_server *server, uint64_t bytes, uint64_t bytes_all)
{
    if (server != NULL) {
        __atomic_store_n(&server->restored_bytes, bytes, __ATOMIC_RELAXED);
        __atomic_store_n(&server->restore_bytes, bytes_all, __ATOMIC_RELAXED);
    }
}

void fcap_server_tell_retention(struct fcap_server *server, int64_t retention_ms)
{
    if (server != NULL) {
        __atomic_store_n(&server->retention_ms, retention_ms, __ATOMIC_RELAXED);
    }
}

void fcap_server_close(struct fcap_server *server)
{
    if (server == NULL) {
        return;
    }
    fcap_http_close(server->http);
    fcap_board_views_close(server->settings.board, server->views);
    free(server);
}
