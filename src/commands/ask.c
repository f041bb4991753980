#include "ask.h"

#include "fcap/clock_os.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_S     15
#define AGAIN_MS     200                         /* between two requests while workers are busy */
#define ANSWER_BYTES ((size_t)512 * 1024 * 1024) /* one user of 16 windows may have half of it */

void fcap_ask_escape(struct fcap_buffer *buffer, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (isalnum(*at) != 0 || strchr("-._~", *at) != NULL) {
            fcap_buffer_put_u8(buffer, *at);
        } else {
            char code[4];
            (void)snprintf(code, sizeof code, "%%%02X", *at);
            fcap_buffer_put_text(buffer, code);
        }
    }
}

/* "host:port", "[v6]:port", ":port" or "port"; a wildcard is reached by loopback. */
static bool split_address(const char *listen, char *host, size_t host_size, const char **ret_port)
{
    const char *colon = strrchr(listen, ':');
    const char *end = colon;
    const char *start = listen;
    *ret_port = colon == NULL ? listen : colon + 1;
    if (colon == NULL || colon == listen) {
        start = "127.0.0.1";
        end = start + strlen(start);
    } else if (*start == '[') {
        start++;
        end--;
    }
    size_t size = (size_t)(end - start);
    if (size >= host_size) {
        return false;
    }
    memcpy(host, start, size);
    host[size] = '\0';
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) {
        (void)snprintf(host, host_size, "%s", host[0] == '0' ? "127.0.0.1" : "::1");
    }
    return true;
}

static int connect_to(const char *listen)
{
    char host[300];
    const char *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int connection = -1;
    if (!split_address(listen, host, sizeof host, &port) ||
        getaddrinfo(host, port, &hints, &found) != 0) {
        return -1;
    }
    for (const struct addrinfo *at = found; at != NULL && connection < 0; at = at->ai_next) {
        const struct timeval patience = {.tv_sec = ANSWER_S};
        connection = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (connection >= 0) {
            /* Without them a daemon that hangs would hang us too; Linux always takes them. */
            (void)setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
            (void)setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        }
        if (connection >= 0 && connect(connection, at->ai_addr, at->ai_addrlen) != 0) {
            (void)close(connection);
            connection = -1;
        }
    }
    freeaddrinfo(found);
    return connection;
}

static bool read_token(const struct fcap_config *config, char *token, size_t size)
{
    token[0] = '\0';
    FILE *file = config->http.token_file == NULL ? NULL : fopen(config->http.token_file, "re");
    if (file == NULL) {
        return false;
    }
    size_t used = fread(token, 1, size - 1, file);
    (void)fclose(file); /* Only read. */
    while (used > 0 && isspace((unsigned char)token[used - 1]) != 0) {
        used--;
    }
    token[used] = '\0';
    return used > 0;
}

static bool exchange(int connection, const struct fcap_buffer *request, struct fcap_buffer *answer)
{
    for (size_t sent = 0; sent < request->size;) {
        ssize_t size = send(connection, request->data + sent, request->size - sent, MSG_NOSIGNAL);
        if (size <= 0) {
            return false;
        }
        sent += (size_t)size;
    }
    while (answer->size < ANSWER_BYTES) {
        uint8_t *room = fcap_buffer_reserve(answer, 65536);
        ssize_t size = recv(connection, room, 65536, 0);
        if (size <= 0) {
            return size == 0;
        }
        answer->size += (size_t)size;
    }
    return false;
}

static enum fcap_status take_answer(struct fcap_buffer *answer, int *ret_code,
                                    struct fcap_buffer *ret_body, struct fcap_error *error)
{
    static const char length_name[] = "\r\nContent-Length: ";
    size_t size = answer->size;
    fcap_buffer_put_u8(answer, 0);
    char *text = (char *)answer->data;
    char *body = strstr(text, "\r\n\r\n");
    if (strncmp(text, "HTTP/1.", 7) != 0 || size < 12 || body == NULL) {
        return fcap_error_set(error, FCAP_UNAVAILABLE, "http.listen: no HTTP answer");
    }
    *ret_code = (int)strtol(text + 9, NULL, 10);
    body += 4;
    size -= (size_t)(body - text);
    const char *length = strstr(text, length_name);
    if (length != NULL && length < body &&
        strtoull(length + sizeof length_name - 1, NULL, 10) != size) {
        return fcap_error_set(error, FCAP_UNAVAILABLE, "http.listen: the answer was cut short");
    }
    fcap_buffer_put(ret_body, body, size);
    return FCAP_OK;
}

static enum fcap_status ask_by(const struct fcap_config *config, const char *method,
                               const char *path, int *ret_code, struct fcap_buffer *ret_body,
                               struct fcap_error *error)
{
    char token[4096];
    struct fcap_buffer request = {0};
    struct fcap_buffer answer = {0};
    if (config->http.listen == NULL) {
        return fcap_error_set(error, FCAP_CONFIG, "http.listen is off");
    }
    bool has_token = read_token(config, token, sizeof token);
    int connection = connect_to(config->http.listen);
    if (connection < 0) {
        return fcap_error_set(error, FCAP_UNAVAILABLE, "http.listen %s: no connection: %s",
                              config->http.listen, strerror(errno));
    }
    /* HTTP/1.0: the end of the connection is the end of the body. */
    fcap_buffer_put_text(&request, method);
    fcap_buffer_put_text(&request, path);
    fcap_buffer_put_text(&request, " HTTP/1.0\r\n");
    if (has_token) {
        fcap_buffer_put_text(&request, "Authorization: Bearer ");
        fcap_buffer_put_text(&request, token);
        fcap_buffer_put_text(&request, "\r\n");
    }
    fcap_buffer_put_text(&request, "\r\n");
    enum fcap_status status;
    if (exchange(connection, &request, &answer)) {
        status = take_answer(&answer, ret_code, ret_body, error);
    } else {
        status = fcap_error_set(error, FCAP_UNAVAILABLE, "http.listen %s: no answer",
                                config->http.listen);
    }
    (void)close(connection);
    fcap_buffer_done(&request);
    fcap_buffer_done(&answer);
    return status;
}

enum fcap_status fcap_ask(const struct fcap_config *config, const char *path, int *ret_code,
                          struct fcap_buffer *ret_body, struct fcap_error *error)
{
    return ask_by(config, "GET ", path, ret_code, ret_body, error);
}

static void say_busy(const struct fcap_ask_patience *patience, const struct fcap_buffer *body)
{
    const char *text = body->size == 0 ? "" : (const char *)body->data;
    const char *end = memchr(text, '\n', body->size);
    fcap_progress_say(patience->progress, "waits at most %lld s: the daemon answers 503: %.*s",
                      (long long)(patience->patience_ms / 1000),
                      (int)(end == NULL ? body->size : (size_t)(end - text)), text);
}

enum fcap_status fcap_ask_patiently(const struct fcap_config *config, const char *path,
                                    struct fcap_ask_patience patience, int *ret_code,
                                    struct fcap_buffer *ret_body, struct fcap_error *error)
{
    int64_t since_ms = 0;
    for (;;) {
        fcap_buffer_clear(ret_body);
        enum fcap_status status = fcap_ask(config, path, ret_code, ret_body, error);
        int64_t now_ms = fcap_clock_os_monotonic_ms();
        bool is_busy = status == FCAP_OK && *ret_code == 503;
        if (is_busy && since_ms == 0) {
            since_ms = now_ms;
            say_busy(&patience, ret_body);
        } else if (status == FCAP_OK && !is_busy && since_ms != 0) {
            fcap_progress_say(patience.progress, "goes on");
        }
        if (!is_busy || now_ms - since_ms >= patience.patience_ms) {
            return status;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L},
                        NULL); /* Short: fine. */
    }
}

enum fcap_status fcap_ask_post(const struct fcap_config *config, const char *path, int *ret_code,
                               struct fcap_buffer *ret_body, struct fcap_error *error)
{
    return ask_by(config, "POST ", path, ret_code, ret_body, error);
}
