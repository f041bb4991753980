/* The server under test and a client of it by raw sockets, for the tests of HTTP. A failure ends
 * the test. Thread rule: one thread. */
#ifndef FCAP_TEST_HTTP_CLIENT_H
#define FCAP_TEST_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "fcap/http.h"

#define HTTP_ANSWER_MAX (4 * 1024 * 1024 + 4096)

/* The test opens and closes it. */
extern struct fcap_http *http;
/* The newest answer, with a NUL behind it. */
extern char answer[HTTP_ANSWER_MAX];

int64_t clock_ms(clockid_t clock);
/* A socket that is not connected; it is the caller's to close, like that of open_client(). */
int make_socket(void);
/* Connects to the server's port on `host`; what connect() gives. */
int connect_to(int number, const char *host);
int open_client(void);
/* Ends early when the server has closed: what it answers is looked at later. */
void send_bytes(int number, const void *data, size_t size);
void send_text(int number, const char *text);
/* Reads until `until` stands in the answer, the server closes, or the deadline passes. *ret_closed
 * (may be NULL): it closed. */
const char *read_answer(int number, const char *until, int wait_ms, bool *ret_closed);
/* One request on a connection of its own, up to the server's close. */
const char *ask(const char *method, const char *path, const char *headers);
/* The text begins with `status` and has `wanted` in it. */
void assert_answer(const char *text, const char *status, const char *wanted);
/* /livez answers. */
void assert_alive(void);

#endif
