/* What http.c and http_listen.c share. Private to them. */
#ifndef FCAP_HTTP_INTERNAL_H
#define FCAP_HTTP_INTERNAL_H

#include "fcap/http.h"

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

#endif
