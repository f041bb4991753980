/* The HTTP server for probes, metrics and admin commands, on libmicrohttpd.
 *
 * Always holds: one thread of its own serves everything but the handlers that wait for other
 * threads; those run on a second one, so that probes are answered at once whatever they wait for.
 * The number of connections, their idle time, the time for one request and the size of its head and
 * body are bounded, so neither slow nor broken clients keep others out for longer than that. A
 * process without free file descriptors waits instead of spinning. Thread rule: open and close
 * belong to one thread; handlers run on the server's two threads and may only read what other
 * threads publish for them, or ask those. */
#ifndef FCAP_HTTP_H
#define FCAP_HTTP_H

#include "fcap/bytes.h"
#include "fcap/status.h"

/* Connections at one time; for a further one the oldest request is ended. */
#define FCAP_HTTP_CONNECTIONS_MAX 64
/* A connection on which nothing moves for so long is closed. */
#define FCAP_HTTP_IDLE_MS 10000
/* So long a connection may take for one request and its answer, however busily it drips. */
#define FCAP_HTTP_REQUEST_MS 20000
/* The head of a request, and what the answer's head needs. */
#define FCAP_HTTP_HEAD_BYTES 32768
/* A body is read and ignored up to here; a longer one ends the connection. */
#define FCAP_HTTP_BODY_BYTES 65536
/* Requests of routes that wait, at one time; a further one gets a 503. */
#define FCAP_HTTP_WAITING_MAX 16
/* One of them that has not begun after so long gets a 503, too. */
#define FCAP_HTTP_WAIT_MS 8000

struct fcap_http_request; /* Valid during the handler. */

/* The decoded value of `?name=value`, "" for a bare name, NULL when absent. Valid during the
 * handler. */
const char *fcap_http_query(const struct fcap_http_request *request, const char *name);

/* The same with its size: a value may hold NUL (%00), where the text above ends. False when absent;
 * a bare name gives no bytes. Valid during the handler. */
bool fcap_http_query_bytes(const struct fcap_http_request *request, const char *name,
                           struct fcap_bytes *ret_value);

struct fcap_http_response {
    int status;               /* 200 before the handler is called */
    const char *content_type; /* "text/plain; charset=utf-8" before; static text */
    struct fcap_buffer body;  /* empty before; the server frees it */
};

/* Fills the response. Should be quick: nothing else is served meanwhile, or, for a route that
 * waits, no other one that does. */
typedef void (*fcap_http_handler)(void *context, const struct fcap_http_request *request,
                                  struct fcap_http_response *response);

struct fcap_http_route {
    const char *method; /* "GET" answers HEAD too */
    const char *path;   /* exactly this, without the query */
    bool needs_token;   /* it changes something or shows a user's data */
    fcap_http_handler handler;
    void *context;
    bool waits; /* the handler may wait for other threads, for a few seconds */
};

struct fcap_http_settings {
    /* "host:port", "[v6]:port", ":port" or "port" (127.0.0.1), port 0: any free one. */
    const char *listen;
    /* The file whose text, without white space at its end, must come as `Authorization: Bearer
     * <text>` where a route needs it. Read again for every such request. NULL, unreadable or
     * empty: those routes are off (403). */
    const char *token_file;
    const struct fcap_http_route *routes; /* borrowed until close */
    size_t routes_count;
    int idle_ms;    /* whole seconds; 0: FCAP_HTTP_IDLE_MS */
    int request_ms; /* 0: FCAP_HTTP_REQUEST_MS */
    int wait_ms;    /* 0: FCAP_HTTP_WAIT_MS */
};

struct fcap_http;

/* Binds and starts to serve. The caller gives it back to fcap_http_close(). FATAL: CONFIG when
 * `listen` cannot be read or resolved, IO when it cannot be bound; `error` (may be NULL) tells. */
enum fcap_status fcap_http_open(const struct fcap_http_settings *settings,
                                struct fcap_http **ret_http,
                                struct fcap_error *error) FCAP_MUST_USE;

/* Stops serving, closes all connections, waits for the thread. NULL is fine. */
void fcap_http_close(struct fcap_http *http);

/* The port in use. */
int fcap_http_port(const struct fcap_http *http);

#endif
