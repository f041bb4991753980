#include "integration/http_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
/* cmocka needs some of these first. */
#include <cmocka.h>

struct fcap_http *http;
char answer[HTTP_ANSWER_MAX];

int64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    assert_int_equal(clock_gettime(clock, &now), 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int make_socket(void)
{
    int number = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(number >= 0);
    return number;
}

int connect_to(int number, const char *host)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)fcap_http_port(http))};
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    return connect(number, (struct sockaddr *)&address, sizeof address);
}

int open_client(void)
{
    int number = make_socket();
    assert_int_equal(connect_to(number, "127.0.0.1"), 0);
    return number;
}

void send_bytes(int number, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t sent = send(number, at, size, MSG_NOSIGNAL);
        if (sent <= 0) {
            return; /* The server closed: what it answers is looked at later. */
        }
        at += sent;
        size -= (size_t)sent;
    }
}

void send_text(int number, const char *text)
{
    send_bytes(number, text, strlen(text));
}

const char *read_answer(int number, const char *until, int wait_ms, bool *ret_closed)
{
    size_t size = 0;
    int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + wait_ms;
    bool is_closed = false;
    answer[0] = '\0';
    while (!is_closed && (until == NULL || strstr(answer, until) == NULL)) {
        int64_t left_ms = deadline_ms - clock_ms(CLOCK_MONOTONIC);
        struct pollfd wait = {.fd = number, .events = POLLIN};
        if (left_ms <= 0 || poll(&wait, 1, (int)left_ms) <= 0) {
            break;
        }
        ssize_t got = recv(number, answer + size, sizeof answer - 1 - size, 0);
        is_closed = got <= 0;
        size += got > 0 ? (size_t)got : 0;
        answer[size] = '\0';
    }
    if (ret_closed != NULL) {
        *ret_closed = is_closed;
    }
    return answer;
}

const char *ask(const char *method, const char *path, const char *headers)
{
    char request[2048];
    int number = open_client();
    bool is_closed;
    (void)snprintf(request, sizeof request,
                   "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", method, path,
                   headers);
    send_text(number, request);
    (void)read_answer(number, NULL, 5000, &is_closed);
    (void)close(number);
    assert_true(is_closed);
    return answer;
}

void assert_answer(const char *text, const char *status, const char *wanted)
{
    if (strncmp(text, status, strlen(status)) != 0 || strstr(text, wanted) == NULL) {
        fail_msg("\"%.200s\" is not \"%s\" with \"%s\"", text, status, wanted);
    }
}

void assert_alive(void)
{
    assert_answer(ask("GET", "/livez", ""), "HTTP/1.1 200 ", "\r\n\r\nalive\n");
}
