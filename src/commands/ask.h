/* One request to a running daemon on this machine. Thread rule: main only. */
#ifndef FCAP_COMMANDS_ASK_H
#define FCAP_COMMANDS_ASK_H

#include "fcap/config.h"
#include "progress.h"

/* GETs `path` from http.listen, with the token of http.token_file when it can be read; the body is
 * appended to `ret_body` and the HTTP status is given (the server says when a token is due).
 * UNAVAILABLE: nobody answers; CONFIG: http.listen is off. */
enum fcap_status fcap_ask(const struct fcap_config *config, const char *path, int *ret_code,
                          struct fcap_buffer *ret_body, struct fcap_error *error) FCAP_MUST_USE;

/* The same by GET into an empty body, again and again while the daemon answers 503: its workers are
 * in a long task, or not at work. Says so, and gives 503 when that has lasted for patience_ms. */
struct fcap_ask_patience {
    struct fcap_progress *progress;
    int64_t patience_ms;
};
enum fcap_status fcap_ask_patiently(const struct fcap_config *config, const char *path,
                                    struct fcap_ask_patience patience, int *ret_code,
                                    struct fcap_buffer *ret_body,
                                    struct fcap_error *error) FCAP_MUST_USE;

/* The same by POST, without a body, once. */
enum fcap_status fcap_ask_post(const struct fcap_config *config, const char *path, int *ret_code,
                               struct fcap_buffer *ret_body,
                               struct fcap_error *error) FCAP_MUST_USE;

/* Appends `text` so that it may stand in a query. */
void fcap_ask_escape(struct fcap_buffer *buffer, const char *text);

#endif
