/* What several pages take from a request. Thread rule: HTTP threads. */
#ifndef FCAP_DAEMON_REQUESTS_H
#define FCAP_DAEMON_REQUESTS_H

#include "fcap/http.h"

/* Answers `status` with a line of text. */
void fcap_request_refuse(struct fcap_http_response *response, int status, const char *text);

/* How much of the text, from its start, is whole characters of UTF-8. */
size_t fcap_request_utf8_size(struct fcap_bytes text);

/* ?user=: an id that an event may have. False: 400 is answered. Absent: no bytes, unless it
 * `is_due`. Valid during the handler. */
bool fcap_request_user(const struct fcap_http_request *request, bool is_due,
                       struct fcap_http_response *response, struct fcap_bytes *ret_user);

/* ?partition=; absent: -1. False: 400 is answered. */
bool fcap_request_partition(const struct fcap_http_request *request,
                            struct fcap_http_response *response, int32_t *ret_partition);

/* ?name= in hexadecimal digits, appended as bytes; absent: nothing. False: 400 is answered. */
bool fcap_request_hex(const struct fcap_http_request *request, const char *name,
                      struct fcap_http_response *response, struct fcap_buffer *ret_bytes);

#endif
