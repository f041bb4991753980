/* What http.c, http_listen.c and http_desk.c share. Private to them. */
#ifndef FCAP_HTTP_INTERNAL_H
#define FCAP_HTTP_INTERNAL_H

#include "fcap/http.h"

#include <microhttpd.h>
#include <pthread.h>

struct fcap_http_request {
    struct MHD_Connection *connection;
};

/* Sets the status and appends a text. */
void fcap_http_say(struct fcap_http_response *response, int status, const char *text);

/* Starts a thread with a small stack and with every signal blocked: signals are the main thread's
 * business, and SIGPIPE nobody's. Gives 0 or an errno. */
int fcap_http_start_thread(pthread_t *ret_thread, void *(*run)(void *context), void *context);

/* Opens a non-blocking listening socket for "host:port" as fcap_http_settings says. */
enum fcap_status fcap_http_listen(const char *listen, int *ret_socket, int *ret_port,
                                  struct fcap_error *error) FCAP_MUST_USE;

/* How a token compares. */
enum fcap_http_token {
    FCAP_HTTP_TOKEN_RIGHT,
    FCAP_HTTP_TOKEN_WRONG,      /* or absent */
    FCAP_HTTP_TOKEN_OFF,        /* no file is configured */
    FCAP_HTTP_TOKEN_UNREADABLE, /* or empty, or longer than a token may be */
};

/* Compares an Authorization header (NULL: none) with the file's token, in a time that depends on
 * neither's content. */
enum fcap_http_token fcap_http_check_token(const char *token_file, const char *authorization);

/* Requests whose handlers wait for other threads (fcap_http_route.waits). Thread rule: all calls
 * from the server's thread; the handlers run on the desk's own, one at a time, in the order in
 * which they came. */
struct fcap_http_desk;

/* The answer when too many wait, or one has waited too long. */
#define FCAP_HTTP_CROWDED "too many requests wait for the workers; try again, and see /readyz\n"

/* *ret_bell becomes readable when a request is done. Gives 0 or an errno. */
int fcap_http_desk_open(struct fcap_http_desk **ret_desk, int *ret_bell);

/* Waits for the handler that runs; those behind it never run, and can be called like it. */
void fcap_http_desk_stop(struct fcap_http_desk *desk);

/* After stop, when no connection is left. */
void fcap_http_desk_close(struct fcap_http_desk *desk);

/* Hands a request over: its connection must be suspended now, and may not go before it has been
 * called. False: no place is free. */
bool fcap_http_desk_put(struct fcap_http_desk *desk, struct MHD_Connection *connection,
                        const struct fcap_http_route *route,
                        const struct fcap_http_response *response, int64_t now_ms) FCAP_MUST_USE;

/* The next connection whose answer is there and which must be resumed; NULL: no more. */
struct MHD_Connection *fcap_http_desk_call(struct fcap_http_desk *desk);

/* Takes the answer of a connection that was called; false: none was. The caller's then. */
bool fcap_http_desk_take(struct fcap_http_desk *desk, const struct MHD_Connection *connection,
                         struct fcap_http_response *ret_response);

/* Refuses those that came before a time and have not begun. */
void fcap_http_desk_refuse_late(struct fcap_http_desk *desk, int64_t before_ms);

#endif
