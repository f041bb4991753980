/* libmicrohttpd in our own loop. We accept ourselves: its accept busy-waits when the process has
 * no free file descriptor and no connection is open, and its timeout only sees silence, not a
 * client that sends a byte now and then. */
#include "http_internal.h"

#include "fcap/assert.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* How long nothing is accepted after the process ran out of descriptors or memory. */
#define ACCEPT_PAUSE_MS 200
/* The longest wait of the loop: deadlines are looked at at least so often. */
#define LOOP_MS 1000

/* More than we let in: the library counts a closed connection for a while. */
enum { LIBRARY_CONNECTIONS_MAX = 2 * FCAP_HTTP_CONNECTIONS_MAX };

enum { THREAD_STACK_BYTES = 512 * 1024 };

/* A connection and when its present request began, at the latest. */
struct connection {
    struct MHD_Connection *handle; /* NULL: free */
    int64_t since_ms;
    bool is_ending; /* its socket is shut, the library has not seen it yet */
    bool is_parked; /* suspended: its request is at the desk */
};

struct fcap_http {
    struct MHD_Daemon *daemon;
    struct connection connections[FCAP_HTTP_CONNECTIONS_MAX];
    const struct fcap_http_route *routes;
    size_t routes_count;
    char *token_file;
    int listener;
    int port;
    int stopper; /* an eventfd: written once, when the thread shall end */
    struct fcap_http_desk *desk;
    int bell; /* the desk's */
    pthread_t thread;
    bool has_thread;
    int64_t accept_after_ms;
    int request_ms;
    int wait_ms;
};

static int64_t monotonic_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* Always there on Linux. */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool fcap_http_query_bytes(const struct fcap_http_request *request, const char *name,
                           struct fcap_bytes *ret_value)
{
    const char *value = NULL;
    size_t size = 0;
    enum MHD_Result found = MHD_lookup_connection_value_n(
        request->connection, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value, &size);
    if (found != MHD_YES) {
        return false;
    }
    *ret_value =
        value == NULL ? fcap_bytes_of("") : (struct fcap_bytes){(const uint8_t *)value, size};
    return true;
}

const char *fcap_http_query(const struct fcap_http_request *request, const char *name)
{
    struct fcap_bytes value; /* A NUL follows it, as the library promises. */
    return fcap_http_query_bytes(request, name, &value) ? (const char *)value.data : NULL;
}

static struct connection *find_connection(struct fcap_http *http, struct MHD_Connection *handle)
{
    for (size_t i = 0; i < FCAP_HTTP_CONNECTIONS_MAX; i++) {
        if (http->connections[i].handle == handle) {
            return &http->connections[i];
        }
    }
    return NULL;
}

/* --- answers -------------------------------------------------------------------------------- */

void fcap_http_say(struct fcap_http_response *response, int status, const char *text)
{
    response->status = status;
    fcap_buffer_put_text(&response->body, text);
}

/* Hands the response over; the body's memory goes with it. */
static enum MHD_Result send_response(struct MHD_Connection *connection,
                                     struct fcap_http_response *response, const char *extra_name,
                                     const char *extra_value)
{
    /* Never NULL, so that the library need not tell "no body" from "no memory". */
    (void)fcap_buffer_reserve(&response->body, 1);
    struct MHD_Response *answer = MHD_create_response_from_buffer(
        response->body.size, response->body.data, MHD_RESPMEM_MUST_FREE);
    if (answer == NULL) {
        fcap_buffer_done(&response->body);
        return MHD_NO;
    }
    bool is_made =
        MHD_add_response_header(answer, "Content-Type", response->content_type) == MHD_YES &&
        MHD_add_response_header(answer, "Cache-Control", "no-store") == MHD_YES &&
        MHD_add_response_header(answer, "X-Content-Type-Options", "nosniff") == MHD_YES &&
        (extra_name == NULL || MHD_add_response_header(answer, extra_name, extra_value) == MHD_YES);
    enum MHD_Result result =
        is_made ? MHD_queue_response(connection, (unsigned)response->status, answer) : MHD_NO;
    MHD_destroy_response(answer); /* The connection holds its own reference. */
    return result;
}

static enum MHD_Result refuse_token(struct MHD_Connection *connection, enum fcap_http_token token,
                                    struct fcap_http_response *response)
{
    if (token == FCAP_HTTP_TOKEN_OFF) {
        fcap_http_say(response, 403, "off: http.token_file is not set\n");
    } else if (token == FCAP_HTTP_TOKEN_UNREADABLE) {
        fcap_http_say(response, 403, "off: the file of http.token_file holds no readable token\n");
    } else {
        fcap_http_say(response, 401,
                      "needs \"Authorization: Bearer\" and the token of http.token_file\n");
        return send_response(connection, response, "WWW-Authenticate", "Bearer");
    }
    return send_response(connection, response, NULL, NULL);
}

/* Hands the request to the desk and suspends its connection meanwhile. */
static enum MHD_Result park(struct fcap_http *http, struct MHD_Connection *handle,
                            const struct fcap_http_route *route,
                            struct fcap_http_response *response)
{
    struct connection *connection = find_connection(http, handle);
    if (connection == NULL ||
        !fcap_http_desk_put(http->desk, handle, route, response, monotonic_ms())) {
        fcap_http_say(response, 503, FCAP_HTTP_CROWDED);
        return send_response(handle, response, NULL, NULL);
    }
    /* Before the desk can call it: that is done by this thread. */
    MHD_suspend_connection(handle);
    connection->is_parked = true;
    return MHD_YES;
}

/* Adds the route's method to a value of Allow. */
static void allow(const struct fcap_http_route *route, char *text, size_t size)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, size - used, used == 0 ? "%s" : ", %s",
                   route->method); /* A path has few methods. */
}

static enum MHD_Result answer_request(struct fcap_http *http, struct MHD_Connection *connection,
                                      const char *path, const char *method)
{
    struct fcap_http_response response = {.status = 200,
                                          .content_type = "text/plain; charset=utf-8"};
    char allowed[64] = "";
    if (fcap_http_desk_take(http->desk, connection, &response)) {
        return send_response(connection, &response, NULL, NULL);
    }
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t i = 0; i < http->routes_count; i++) {
        const struct fcap_http_route *route = &http->routes[i];
        if (strcmp(route->path, path) != 0) {
            continue;
        }
        if (strcmp(route->method, wanted) != 0) {
            allow(route, allowed, sizeof allowed);
            continue;
        }
        if (route->needs_token) {
            const char *header =
                MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
            enum fcap_http_token token = fcap_http_check_token(http->token_file, header);
            if (token != FCAP_HTTP_TOKEN_RIGHT) {
                return refuse_token(connection, token, &response);
            }
        }
        if (route->waits) {
            return park(http, connection, route, &response);
        }
        struct fcap_http_request request = {connection};
        route->handler(route->context, &request, &response);
        return send_response(connection, &response, NULL, NULL);
    }
    if (allowed[0] != '\0') {
        fcap_http_say(&response, 405, "another method is needed here\n");
        return send_response(connection, &response, "Allow", allowed);
    }
    fcap_http_say(&response, 404, "nothing here\n");
    return send_response(connection, &response, NULL, NULL);
}

/* Called with the head, with each piece of a body, and when the request is complete. *state counts
 * the body's bytes plus one, so it needs no memory. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
                                  const char *path, const char *method, const char *version,
                                  const char *body, size_t *body_size, void **state)
{
    (void)version;
    (void)body; /* No command takes one. */
    size_t seen = (size_t)(uintptr_t)*state;
    if (seen == 0) {
        *state = (void *)(uintptr_t)1;
        return MHD_YES;
    }
    if (*body_size > 0) {
        seen += *body_size;
        *body_size = 0;
        *state = (void *)(uintptr_t)seen;
        return seen - 1 > FCAP_HTTP_BODY_BYTES ? MHD_NO : MHD_YES;
    }
    return answer_request(context, connection, path, method);
}

/* --- connections ---------------------------------------------------------------------------- */

static void on_connection(void *context, struct MHD_Connection *handle, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    (void)socket_context;
    bool begins = code == MHD_CONNECTION_NOTIFY_STARTED;
    struct connection *connection = find_connection(context, begins ? NULL : handle);
    if (connection != NULL) {
        *connection = (struct connection){begins ? handle : NULL, monotonic_ms(), false, false};
    }
}

static void on_completed(void *context, struct MHD_Connection *handle, void **state,
                         enum MHD_RequestTerminationCode code)
{
    (void)code;
    struct fcap_http *http = context;
    struct connection *connection = find_connection(http, handle);
    struct fcap_http_response unsent = {0};
    if (fcap_http_desk_take(http->desk, handle, &unsent)) {
        fcap_buffer_done(&unsent.body); /* The peer went while it was made. */
    }
    if (connection != NULL) {
        connection->since_ms = monotonic_ms(); /* A new request may take its time again. */
    }
    *state = NULL;
}

/* Shuts the connection's socket; the library then sees its end and closes it. */
static void end_connection(struct connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection->handle, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != NULL) {
        (void)shutdown(info->connect_fd, SHUT_RDWR); /* Perhaps closed by the peer already. */
    }
    connection->is_ending = true;
}

static void end_slow_connections(struct fcap_http *http, int64_t now_ms)
{
    for (size_t i = 0; i < FCAP_HTTP_CONNECTIONS_MAX; i++) {
        struct connection *connection = &http->connections[i];
        if (connection->handle != NULL && !connection->is_ending && !connection->is_parked &&
            now_ms - connection->since_ms >= http->request_ms) {
            end_connection(connection);
        }
    }
}

/* True when one more connection may be accepted. When all are in use, the one that has been at its
 * request for longest ends: a probe must not fail because others hold connections open. (With
 * epoll the library overlooks an end that came together with the last data, so some of them may
 * be dead.) */
static bool make_room(struct fcap_http *http)
{
    struct connection *oldest = NULL;
    bool is_one_ending = false;
    for (size_t i = 0; i < FCAP_HTTP_CONNECTIONS_MAX; i++) {
        struct connection *connection = &http->connections[i];
        if (connection->handle == NULL) {
            return true;
        }
        is_one_ending |= connection->is_ending;
        if (!connection->is_parked && (oldest == NULL || connection->since_ms < oldest->since_ms)) {
            oldest = connection; /* There is one: fewer than all can be parked. */
        }
    }
    if (!is_one_ending && oldest != NULL) {
        end_connection(oldest);
    }
    return false;
}

/* Takes one connection, as poll() has promised one; only then may another be ended for it. Without
 * descriptors or memory it is left in the queue for a while: poll() would report it again at once,
 * for ever. */
static void accept_connection(struct fcap_http *http, int64_t now_ms)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (!make_room(http)) {
        return;
    }
    int number =
        accept4(http->listener, (struct sockaddr *)&address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (number < 0) {
        if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) {
            http->accept_after_ms = now_ms + ACCEPT_PAUSE_MS;
        }
        return;
    }
    /* When it fails, for want of memory, the library has closed the socket. */
    if (MHD_add_connection(http->daemon, number, (struct sockaddr *)&address, size) != MHD_YES) {
        http->accept_after_ms = now_ms + ACCEPT_PAUSE_MS;
    }
}

/* Gives the connections back to the library whose answers the desk has made. */
static void unpark(struct fcap_http *http, int64_t now_ms)
{
    struct MHD_Connection *handle;
    fcap_http_desk_refuse_late(http->desk, now_ms - http->wait_ms);
    while ((handle = fcap_http_desk_call(http->desk)) != NULL) {
        struct connection *connection = find_connection(http, handle);
        FCAP_ASSERT(connection != NULL); /* A suspended one does not end. */
        connection->is_parked = false;
        connection->since_ms = now_ms; /* The time at the desk was not the client's. */
        MHD_resume_connection(handle);
    }
}

static int wait_ms(const struct fcap_http *http, int64_t now_ms)
{
    int64_t wait = LOOP_MS;
    MHD_UNSIGNED_LONG_LONG library_ms;
    if (MHD_get_timeout(http->daemon, &library_ms) == MHD_YES && library_ms < (uint64_t)wait) {
        wait = (int64_t)library_ms;
    }
    if (http->accept_after_ms > now_ms && http->accept_after_ms - now_ms < wait) {
        wait = http->accept_after_ms - now_ms;
    }
    return (int)wait;
}

static void *serve(void *context)
{
    struct fcap_http *http = context;
    (void)pthread_setname_np(pthread_self(), "http");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    FCAP_ASSERT(info != NULL);
    for (;;) {
        int64_t now_ms = monotonic_ms();
        bool may_accept = now_ms >= http->accept_after_ms;
        struct pollfd waits[4] = {{.fd = http->stopper, .events = POLLIN},
                                  {.fd = info->epoll_fd, .events = POLLIN},
                                  {.fd = may_accept ? http->listener : -1, .events = POLLIN},
                                  {.fd = http->bell, .events = POLLIN}};
        if (poll(waits, 4, wait_ms(http, now_ms)) < 0 && errno != EINTR) {
            http->accept_after_ms = now_ms + ACCEPT_PAUSE_MS; /* ENOMEM: no busier than that */
        }
        if (waits[0].revents != 0) {
            return NULL;
        }
        now_ms = monotonic_ms();
        if (waits[2].revents != 0) {
            accept_connection(http, now_ms);
        }
        unpark(http, now_ms);
        end_slow_connections(http, now_ms);
        (void)MHD_run(http->daemon); /* Fails only for a daemon that was made otherwise. */
    }
}

/* --- open and close ------------------------------------------------------------------------- */

int fcap_http_start_thread(pthread_t *ret_thread, void *(*run)(void *context), void *context)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    (void)sigfillset(&all); /* Cannot fail. */
    int failure = pthread_attr_init(&attributes);
    if (failure != 0) {
        return failure;
    }
    failure = pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    if (failure == 0) {
        failure = pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    if (failure == 0) {
        failure = pthread_create(ret_thread, &attributes, run, context);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* It worked a moment ago. */
    }
    (void)pthread_attr_destroy(&attributes); /* Frees nothing on Linux. */
    return failure;
}

enum fcap_status fcap_http_open(const struct fcap_http_settings *settings,
                                struct fcap_http **ret_http, struct fcap_error *error)
{
    struct fcap_http *http = calloc(1, sizeof *http);
    FCAP_ASSERT(http != NULL);
    http->stopper = -1;
    http->listener = -1;
    http->routes = settings->routes;
    http->routes_count = settings->routes_count;
    http->request_ms = settings->request_ms > 0 ? settings->request_ms : FCAP_HTTP_REQUEST_MS;
    http->wait_ms = settings->wait_ms > 0 ? settings->wait_ms : FCAP_HTTP_WAIT_MS;
    int idle_ms = settings->idle_ms > 0 ? settings->idle_ms : FCAP_HTTP_IDLE_MS;
    if (settings->token_file != NULL) {
        http->token_file = strdup(settings->token_file);
        FCAP_ASSERT(http->token_file != NULL);
    }
    enum fcap_status status =
        fcap_http_listen(settings->listen, &http->listener, &http->port, error);
    if (status != FCAP_OK) {
        goto out;
    }
    http->stopper = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->stopper < 0) {
        status = fcap_error_set(error, FCAP_IO, "http: eventfd: %s", strerror(errno));
        goto out;
    }
    http->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0,
                         NULL, NULL, on_request, http, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)LIBRARY_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)(idle_ms / 1000), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         (size_t)FCAP_HTTP_HEAD_BYTES, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
                         http, MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_END);
    if (http->daemon == NULL) {
        status = fcap_error_set(error, FCAP_IO, "http: libmicrohttpd does not start: %s",
                                strerror(errno));
        goto out;
    }
    int failure = fcap_http_desk_open(&http->desk, &http->bell);
    if (failure == 0) {
        failure = fcap_http_start_thread(&http->thread, serve, http);
        http->has_thread = failure == 0;
    }
    if (failure != 0) {
        status = fcap_error_set(error, FCAP_IO, "http: no thread: %s", strerror(failure));
        goto out;
    }
    *ret_http = http;
    http = NULL; /* The caller's now. */
out:
    fcap_http_close(http);
    return status;
}

void fcap_http_close(struct fcap_http *http)
{
    if (http == NULL) {
        return;
    }
    if (http->has_thread) {
        const uint64_t one = 1;
        ssize_t written = write(http->stopper, &one, sizeof one);
        FCAP_ASSERT(written == sizeof one);     /* The counter is empty, so it takes it. */
        (void)pthread_join(http->thread, NULL); /* Fails only for a thread that is none. */
    }
    if (http->desk != NULL) {
        fcap_http_desk_stop(http->desk);
        unpark(http, monotonic_ms()); /* The library ends none that is suspended. */
    }
    if (http->daemon != NULL) {
        MHD_stop_daemon(http->daemon);
    }
    if (http->desk != NULL) {
        fcap_http_desk_close(http->desk);
    }
    if (http->stopper >= 0) {
        (void)close(http->stopper); /* Holds nothing. */
    }
    if (http->listener >= 0) {
        (void)close(http->listener); /* Holds nothing. */
    }
    free(http->token_file);
    free(http);
}

int fcap_http_port(const struct fcap_http *http)
{
    return http->port;
}
