/* The HTTP server's pages that wait for other threads: nobody else waits for them. */
#include "fcap/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
/* cmocka needs some of these first. */
#include <cmocka.h>

#define ANSWER_BYTES 65536
#define WAIT_MS      3000

static int64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    assert_int_equal(clock_gettime(clock, &now), 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* --- the server ------------------------------------------------------------------------------ */

static void live(void *context, const struct fcap_http_request *request,
                 struct fcap_http_response *response)
{
    (void)request;
    fcap_buffer_put_text(&response->body, context);
}

static void echo(void *context, const struct fcap_http_request *request,
                 struct fcap_http_response *response)
{
    (void)context;
    const char *user = fcap_http_query(request, "user");
    fcap_buffer_put_text(&response->body, user == NULL ? "absent" : user);
}

/* Handlers of /hold are in here until they are let go. */
static struct hold {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int begun;
    bool is_open;
} hold = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void held(void *context, const struct fcap_http_request *request,
                 struct fcap_http_response *response)
{
    (void)pthread_mutex_lock(&hold.lock);
    hold.begun++;
    (void)pthread_cond_broadcast(&hold.changed);
    while (!hold.is_open) {
        (void)pthread_cond_wait(&hold.changed, &hold.lock);
    }
    (void)pthread_mutex_unlock(&hold.lock);
    echo(context, request, response);
}

static void wait_until_held(void)
{
    (void)pthread_mutex_lock(&hold.lock);
    while (hold.begun == 0) {
        (void)pthread_cond_wait(&hold.changed, &hold.lock);
    }
    (void)pthread_mutex_unlock(&hold.lock);
}

static void let_go(void)
{
    (void)pthread_mutex_lock(&hold.lock);
    hold.is_open = true;
    (void)pthread_cond_broadcast(&hold.changed);
    (void)pthread_mutex_unlock(&hold.lock);
}

static const struct fcap_http_route routes[] = {
    {"GET", "/livez", false, live, "alive\n", false},
    {"GET", "/hold", false, held, NULL, true},
    {"POST", "/hold", true, held, NULL, true},
};

static struct fcap_http *http;

static void start(int request_ms)
{
    struct fcap_error error = {0};
    struct fcap_http_settings settings = {.listen = "127.0.0.1:0",
                                          .routes = routes,
                                          .routes_count = sizeof routes / sizeof routes[0],
                                          .request_ms = request_ms,
                                          .wait_ms = WAIT_MS};
    if (fcap_http_open(&settings, &http, &error) != FCAP_OK) {
        fail_msg("open: %s", error.text);
    }
}

static int stop(void **state)
{
    (void)state;
    let_go(); /* Of a test that failed. */
    fcap_http_close(http);
    http = NULL;
    hold.begun = 0;
    hold.is_open = false;
    return 0;
}

/* --- a client ----------------------------------------------------------------------------------
 */

static int make_socket(void)
{
    int number = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(number >= 0);
    return number;
}

static int connect_to(int number, const char *host)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)fcap_http_port(http))};
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    return connect(number, (struct sockaddr *)&address, sizeof address);
}

static int open_client(void)
{
    int number = make_socket();
    assert_int_equal(connect_to(number, "127.0.0.1"), 0);
    return number;
}

static void send_bytes(int number, const void *data, size_t size)
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

static void send_text(int number, const char *text)
{
    send_bytes(number, text, strlen(text));
}

static char answer[ANSWER_BYTES + 4096];

/* Reads until `until` stands in the answer, the server closes, or the deadline passes. *ret_closed
 * (may be NULL): it closed. */
static const char *read_answer(int number, const char *until, int wait_ms, bool *ret_closed)
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

/* One request on a connection of its own, up to the server's close. */
static const char *ask(const char *method, const char *path, const char *headers)
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

static void assert_answer(const char *text, const char *status, const char *wanted)
{
    if (strncmp(text, status, strlen(status)) != 0 || strstr(text, wanted) == NULL) {
        fail_msg("\"%.200s\" is not \"%s\" with \"%s\"", text, status, wanted);
    }
}

static void assert_alive(void)
{
    assert_answer(ask("GET", "/livez", ""), "HTTP/1.1 200 ", "\r\n\r\nalive\n");
}

/* --- tests -------------------------------------------------------------------------------------
 */

/* A page that waits for others keeps no probe waiting; the pages behind it come in their turn, and
 * a crowd of them is refused. */
static void serves_beside_pages_that_wait(void **state)
{
    (void)state;
    int numbers[FCAP_HTTP_WAITING_MAX];
    start(0);
    for (int i = 0; i < FCAP_HTTP_WAITING_MAX; i++) {
        numbers[i] = open_client();
        char text[80];
        (void)snprintf(text, sizeof text, "GET /hold?user=u%02d HTTP/1.1\r\nHost: x\r\n\r\n", i);
        send_text(numbers[i], text);
        wait_until_held();
        assert_alive();
    }
    assert_answer(ask("GET", "/hold", ""), "HTTP/1.1 503 ", "try again");
    assert_answer(ask("POST", "/hold", "Content-Length: 0\r\n"), "HTTP/1.1 403 ", "token_file");
    (void)close(numbers[1]); /* Its handler runs all the same, for nobody. */
    let_go();
    for (int i = 0; i < FCAP_HTTP_WAITING_MAX; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "\r\n\r\nu%02d", i);
        if (i != 1) {
            assert_answer(read_answer(numbers[i], text, 5000, NULL), "HTTP/1.1 200 ", text);
            send_text(numbers[i], "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_answer(read_answer(numbers[i], "alive\n", 5000, NULL), "HTTP/1.1 200 ", "");
            (void)close(numbers[i]);
        }
    }
    for (int i = 0; i < 3 * FCAP_HTTP_WAITING_MAX; i++) {
        assert_answer(ask("GET", "/hold?user=b", ""), "HTTP/1.1 200 ", "\r\n\r\nb");
    }
}

/* One that has waited for long behind others is refused; those that run are never ended for others,
 * nor for their time. */
static void refuses_who_waits_long(void **state)
{
    (void)state;
    int crowd[2 * FCAP_HTTP_CONNECTIONS_MAX];
    start(500);
    int first = open_client();
    send_text(first, "GET /hold?user=first HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_until_held();
    int second = open_client();
    send_text(second, "GET /hold?user=second HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_alive();
    for (int i = 0; i < 2 * FCAP_HTTP_CONNECTIONS_MAX; i++) {
        crowd[i] = open_client();
        if (i % 16 == 0) {
            assert_alive();
        }
    }
    assert_answer(read_answer(second, "/readyz\n", 30000, NULL), "HTTP/1.1 503 ", "try again");
    let_go();
    assert_answer(read_answer(first, "first", 5000, NULL), "HTTP/1.1 200 ", "first");
    for (int i = 0; i < 2 * FCAP_HTTP_CONNECTIONS_MAX; i++) {
        (void)close(crowd[i]);
    }
    (void)close(first);
    (void)close(second);
}

static void *let_go_later(void *unused)
{
    (void)unused;
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    let_go();
    return NULL;
}

/* Closing waits for the page that is being made, and for none behind it. */
static void closes_with_waiting_pages(void **state)
{
    (void)state;
    pthread_t helper;
    int numbers[3];
    start(0);
    for (int i = 0; i < 3; i++) {
        numbers[i] = open_client();
        send_text(numbers[i], "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
        wait_until_held();
        assert_alive();
    }
    assert_int_equal(pthread_create(&helper, NULL, let_go_later, NULL), 0);
    fcap_http_close(http);
    http = NULL;
    assert_int_equal(hold.begun, 1);
    assert_int_equal(pthread_join(helper, NULL), 0);
    for (int i = 0; i < 3; i++) {
        (void)close(numbers[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(serves_beside_pages_that_wait, stop),
        cmocka_unit_test_teardown(refuses_who_waits_long, stop),
        cmocka_unit_test_teardown(closes_with_waiting_pages, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
