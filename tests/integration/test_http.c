/* The HTTP server, by raw sockets: routes, tokens, garbage, slow clients, no descriptors left. */
#include "integration/http_client.h"
#include "lab/lab.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
/* cmocka needs some of these first. */
#include <cmocka.h>

#define BIG_BYTES (4 * 1024 * 1024)

/* --- the server ------------------------------------------------------------------------------ */

static void live(void *context, const struct fcap_http_request *request,
                 struct fcap_http_response *response)
{
    (void)request;
    fcap_buffer_put_text(&response->body, context);
}

static void not_ready(void *context, const struct fcap_http_request *request,
                      struct fcap_http_response *response)
{
    (void)context;
    (void)request;
    response->status = 503;
    response->content_type = "application/json";
    fcap_buffer_put_text(&response->body, "{\"ready\":false}");
}

static void echo(void *context, const struct fcap_http_request *request,
                 struct fcap_http_response *response)
{
    (void)context;
    const char *user = fcap_http_query(request, "user");
    fcap_buffer_put_text(&response->body, user == NULL ? "absent" : user);
}

static void big(void *context, const struct fcap_http_request *request,
                struct fcap_http_response *response)
{
    (void)context;
    (void)request;
    memset(fcap_buffer_reserve(&response->body, BIG_BYTES), 'b', BIG_BYTES);
    response->body.size += BIG_BYTES;
}

static void empty(void *context, const struct fcap_http_request *request,
                  struct fcap_http_response *response)
{
    (void)context;
    (void)request;
    (void)response;
}

static const struct fcap_http_route routes[] = {
    {"GET", "/livez", false, live, "alive\n", false},
    {"GET", "/readyz", false, not_ready, NULL, false},
    {"GET", "/echo", false, echo, NULL, false},
    {"GET", "/big", false, big, NULL, false},
    {"GET", "/empty", false, empty, NULL, false},
    {"GET", "/inspect", true, live, "secret", false},
    {"POST", "/savepoint", true, live, "saved", false},
    {"POST", "/open", false, live, "opened", false},
    {"GET", "/both", false, live, "got", false},
    {"POST", "/both", false, live, "posted", false},
};

static void start(const char *listen, const char *token_file, int request_ms)
{
    struct fcap_error error = {0};
    struct fcap_http_settings settings = {.listen = listen,
                                          .token_file = token_file,
                                          .routes = routes,
                                          .routes_count = sizeof routes / sizeof routes[0],
                                          .request_ms = request_ms};
    if (fcap_http_open(&settings, &http, &error) != FCAP_OK) {
        fail_msg("open: %s", error.text);
    }
}

static int stop(void **state)
{
    (void)state;
    fcap_http_close(http);
    http = NULL;
    return 0;
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void answers_routes(void **state)
{
    (void)state;
    start("127.0.0.1:0", NULL, 0);
    assert_alive();
    assert_answer(answer, "HTTP/1.1 200 ", "Content-Type: text/plain; charset=utf-8\r\n");
    assert_answer(answer, "HTTP/1.1 200 ", "Cache-Control: no-store\r\n");
    assert_answer(ask("GET", "/readyz", ""), "HTTP/1.1 503 ", "\r\n\r\n{\"ready\":false}");
    assert_answer(answer, "HTTP/1.1 503 ", "Content-Type: application/json\r\n");
    assert_answer(ask("HEAD", "/livez", ""), "HTTP/1.1 200 ", "Content-Length: 6\r\n");
    assert_null(strstr(answer, "alive"));
    assert_answer(ask("GET", "/empty", ""), "HTTP/1.1 200 ", "Content-Length: 0\r\n");
    assert_answer(ask("GET", "/", ""), "HTTP/1.1 404 ", "nothing here");
    assert_answer(ask("GET", "/livez/", ""), "HTTP/1.1 404 ", "");
    assert_answer(ask("GET", "/LIVEZ", ""), "HTTP/1.1 404 ", "");
    assert_answer(ask("POST", "/livez", "Content-Length: 0\r\n"), "HTTP/1.1 405 ",
                  "Allow: GET\r\n");
    assert_answer(ask("GET", "/open", ""), "HTTP/1.1 405 ", "Allow: POST\r\n");
    assert_answer(ask("POST", "/open", "Content-Length: 0\r\n"), "HTTP/1.1 200 ", "opened");
    assert_answer(ask("PUT", "/both", "Content-Length: 0\r\n"), "HTTP/1.1 405 ",
                  "Allow: GET, POST\r\n");
    assert_answer(ask("POST", "/both", "Content-Length: 0\r\n"), "HTTP/1.1 200 ", "posted");
    assert_answer(ask("GET", "/livez?x=1", ""), "HTTP/1.1 200 ", "alive");
    assert_answer(ask("GET", "/echo", ""), "HTTP/1.1 200 ", "\r\n\r\nabsent");
    assert_answer(ask("GET", "/echo?a=1&user=%C3%A9%20b+c%26", ""), "HTTP/1.1 200 ",
                  "\r\n\r\n\xC3\xA9 b c&");
    assert_answer(ask("GET", "/echo?user", ""), "HTTP/1.1 200 ", "Content-Length: 0\r\n");
}

static void keeps_connections(void **state)
{
    (void)state;
    start("127.0.0.1:0", NULL, 0);
    int number = open_client();
    for (int i = 0; i < 100; i++) {
        send_text(number, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_answer(read_answer(number, "alive\n", 5000, NULL), "HTTP/1.1 200 ", "alive\n");
    }
    /* Two at once, and one in pieces. */
    send_text(number, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /echo?user=second HTTP/1.1\r\n");
    send_text(number, "Host: x\r\n\r\n");
    assert_answer(read_answer(number, "second", 5000, NULL), "HTTP/1.1 200 ", "alive\n");
    (void)close(number);
    const char *text = ask("GET", "/big", "");
    assert_int_equal(strlen(strstr(text, "\r\n\r\n")), BIG_BYTES + 4);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void asks_for_a_token(void **state)
{
    (void)state;
    start("127.0.0.1:0", NULL, 0);
    assert_answer(ask("GET", "/inspect", ""), "HTTP/1.1 403 ", "http.token_file is not set");
    assert_answer(ask("GET", "/inspect", "Authorization: Bearer \r\n"), "HTTP/1.1 403 ", "");
    assert_null(strstr(answer, "secret"));
    (void)stop(NULL);

    char folder[64];
    char path[80];
    lab_folder_make("fcap-token", folder, sizeof folder);
    (void)snprintf(path, sizeof path, "%s/token", folder);
    write_file(path, "");
    start("127.0.0.1:0", path, 0);
    assert_answer(ask("GET", "/inspect", "Authorization: Bearer \r\n"), "HTTP/1.1 403 ",
                  "http.token_file holds no readable token");
    write_file(path, "s3cret\n");
    assert_answer(ask("GET", "/inspect", "Authorization: Bearer s3cret\r\n"), "HTTP/1.1 200 ",
                  "secret");
    assert_answer(
        ask("POST", "/savepoint", "Content-Length: 0\r\nauthorization: bearer s3cret\r\n"),
        "HTTP/1.1 200 ", "saved");
    static const char *const wrong[] = {
        "",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer s3cre\r\n",
        "Authorization: Bearer s3cret2\r\n",
        "Authorization: Bearer S3cret\r\n",
        "Authorization: Bearer s3crets3cret\r\n",
        "Authorization: Basic s3cret\r\n",
        "X-Authorization: Bearer s3cret\r\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_answer(ask("GET", "/inspect", wrong[i]), "HTTP/1.1 401 ",
                      "WWW-Authenticate: Bearer\r\n");
        assert_null(strstr(answer, "\r\n\r\nsecret"));
    }
    write_file(path, "another");
    assert_answer(ask("GET", "/inspect", "Authorization: Bearer s3cret\r\n"), "HTTP/1.1 401 ", "");
    assert_answer(ask("GET", "/inspect", "Authorization: Bearer another\r\n"), "HTTP/1.1 200 ",
                  "secret");
    lab_folder_remove(folder);
    assert_answer(ask("GET", "/inspect", "Authorization: Bearer another\r\n"), "HTTP/1.1 403 ", "");
    assert_alive();
}

static void survives_garbage(void **state)
{
    (void)state;
    static const char *const garbage[] = {
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET /livez\r\n\r\n",
        "GET /livez HTTP/9.9\r\n\r\n",
        "GET /livez HTTP/1.1\r\n\r\n", /* no Host */
        "GET  /livez  HTTP/1.1 x\r\nHost: x\r\n\r\n",
        "\x16\x03\x01\x02\x01\xFC\x03\x03 TLS",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /%00livez HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /livez%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /echo?user=%zz%1 HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST /open HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /open HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "GET /livez HTTP/1.1\r\nHost x\r\n: y\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: x\r\nCookie: ;;;===\r\n\r\n",
        "\xFF\xFE\xFD\xFC\r\n\r\n",
    };
    /* What the library only waits on is ended by the time limit of a request. */
    start("127.0.0.1:0", NULL, 1000);
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        int number = open_client();
        send_text(number, garbage[i]);
        (void)shutdown(number, SHUT_WR);
        bool is_closed;
        (void)read_answer(number, NULL, 5000, &is_closed);
        (void)close(number);
        if (!is_closed) {
            fail_msg("garbage %zu: still open", i);
        }
        assert_alive();
    }
    /* Random bytes, from a fixed seed, broken off at any point. */
    uint32_t seed = 12345;
    for (int i = 0; i < 300; i++) {
        uint8_t bytes[512];
        size_t size = 0;
        for (; size < sizeof bytes && (size == 0 || seed % 97 != 0); size++) {
            seed = seed * 1664525 + 1013904223;
            bytes[size] = (uint8_t)(seed >> 24);
        }
        int number = open_client();
        send_bytes(number, bytes, size);
        (void)close(number);
    }
    assert_alive();
}

static void bounds_heads_and_bodies(void **state)
{
    (void)state;
    static char filler[4 * FCAP_HTTP_BODY_BYTES];
    memset(filler, 'a', sizeof filler);
    start("127.0.0.1:0", NULL, 0);
    bool is_closed;
    int number = open_client();
    send_text(number, "GET /livez HTTP/1.1\r\nHost: x\r\nX: ");
    send_bytes(number, filler, sizeof filler);
    (void)read_answer(number, NULL, 5000, &is_closed);
    (void)close(number);
    assert_true(is_closed);
    assert_null(strstr(answer, "alive"));
    /* A body below the limit is ignored, one above it ends the connection. */
    number = open_client();
    send_text(number, "POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    send_bytes(number, filler, 60000);
    assert_answer(read_answer(number, "opened", 5000, NULL), "HTTP/1.1 200 ", "opened");
    send_text(number, "POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 250000\r\n\r\n");
    send_bytes(number, filler, 250000);
    assert_null(strstr(read_answer(number, NULL, 5000, &is_closed), "opened"));
    (void)close(number);
    assert_true(is_closed);
    assert_alive();
}

static void limits_connections(void **state)
{
    (void)state;
    int numbers[FCAP_HTTP_CONNECTIONS_MAX];
    start("127.0.0.1:0", NULL, 0);
    for (int i = 0; i < FCAP_HTTP_CONNECTIONS_MAX; i++) {
        numbers[i] = open_client();
        send_text(numbers[i], "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_answer(read_answer(numbers[i], "alive\n", 5000, NULL), "HTTP/1.1 200 ", "");
    }
    /* One more is served; the connection whose request is the oldest, and only that, ends. */
    assert_alive();
    bool is_closed;
    (void)read_answer(numbers[0], NULL, 5000, &is_closed);
    assert_true(is_closed);
    (void)close(numbers[0]);
    for (int i = 1; i < FCAP_HTTP_CONNECTIONS_MAX; i++) {
        send_text(numbers[i], "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_answer(read_answer(numbers[i], "alive\n", 5000, NULL), "HTTP/1.1 200 ", "");
        (void)close(numbers[i]);
    }
    assert_alive();
}

/* Ten times as many clients as there is room for, silent and broken ones: others are served. */
static void serves_beside_a_crowd(void **state)
{
    (void)state;
    enum { CROWD = 10 * FCAP_HTTP_CONNECTIONS_MAX };
    static int numbers[CROWD];
    start("127.0.0.1:0", NULL, 0);
    for (int i = 0; i < CROWD; i++) {
        numbers[i] = open_client();
        if (i % 2 == 0) {
            send_text(numbers[i], "GET /livez HT");
        }
        if (i % 10 == 0) {
            assert_alive();
        }
    }
    assert_alive();
    for (int i = 0; i < CROWD; i++) {
        (void)close(numbers[i]);
    }
    assert_alive();
}

/* A client that sends one byte of its head every 100 ms is never silent, and still is ended. */
static void ends_slow_requests(void **state)
{
    (void)state;
    enum { REQUEST_MS = 1500 };
    start("127.0.0.1:0", NULL, REQUEST_MS);
    int number = open_client();
    int64_t begin_ms = clock_ms(CLOCK_MONOTONIC);
    int64_t took_ms = 0;
    bool is_closed = false;
    send_text(number, "GET /livez HTTP/1.1\r\nHost: x\r\nX: ");
    while (!is_closed && took_ms < 10 * REQUEST_MS) {
        send_text(number, "a");
        (void)read_answer(number, NULL, 100, &is_closed);
        took_ms = clock_ms(CLOCK_MONOTONIC) - begin_ms;
        if (!is_closed) {
            assert_alive(); /* Others are served meanwhile. */
        }
    }
    (void)close(number);
    assert_true(is_closed);
    assert_in_range(took_ms, REQUEST_MS, REQUEST_MS + 3000);
    assert_alive();
}

/* One that does not read its big answer is ended too, and holds up nobody. */
static void ends_slow_readers(void **state)
{
    (void)state;
    start("127.0.0.1:0", NULL, 1500);
    int number = make_socket();
    const int small = 4096;
    assert_int_equal(setsockopt(number, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(connect_to(number, "127.0.0.1"), 0);
    send_text(number, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    int64_t deadline_ms = clock_ms(CLOCK_MONOTONIC) + 3000;
    while (clock_ms(CLOCK_MONOTONIC) < deadline_ms) {
        assert_alive();
    }
    bool is_closed;
    size_t size = strlen(read_answer(number, NULL, 5000, &is_closed));
    (void)close(number);
    assert_true(is_closed);
    assert_true(size < BIG_BYTES);
}

/* B31: no descriptor is left when a client comes and no connection is open. It waits; the server
 * must not spin, and must serve it once there are descriptors again. */
static void waits_without_descriptors(void **state)
{
    (void)state;
    struct rlimit before, none;
    start("127.0.0.1:0", NULL, 0);
    assert_alive();
    int number = make_socket();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)number + 1;
    int fillers[256];
    int count = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    while (count < 256 && (fillers[count] = dup(0)) >= 0) {
        count++; /* gaps below `number` */
    }
    assert_int_equal(errno, EMFILE);
    assert_int_equal(connect_to(number, "127.0.0.1"), 0); /* into the listening queue */
    send_text(number, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    int64_t cpu_ms = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    (void)read_answer(number, "alive", 1500, NULL);
    cpu_ms = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_ms;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    while (count > 0) {
        (void)close(fillers[--count]);
    }
    assert_string_equal(answer, "");
    assert_in_range(cpu_ms, 0, 300);
    assert_answer(read_answer(number, "alive\n", 5000, NULL), "HTTP/1.1 200 ", "alive\n");
    (void)close(number);
}

static void binds_where_it_is_told(void **state)
{
    (void)state;
    static const char *const local[] = {":0", "0", "127.0.0.1:0"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++) {
        start(local[i], NULL, 0);
        int number = make_socket();
        assert_alive();
        assert_int_equal(connect_to(number, "127.0.0.2"), -1);
        assert_int_equal(errno, ECONNREFUSED);
        (void)close(number);
        (void)stop(NULL);
    }
    start("0.0.0.0:0", NULL, 0);
    int number = make_socket();
    assert_int_equal(connect_to(number, "127.0.0.2"), 0);
    (void)close(number);
    assert_alive();
}

static void refuses_bad_addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",        "localhost:", ":",     "x:y",          "127.0.0.1:65536",  "127.0.0.1:-1",
        "::1:80",  "[::1",       "[::1]", "127.0.0.1: 1", "127.0.0.1:123456", "no_such_host!:1",
        "1.2.3:+", "[]x:1",
    };
    struct fcap_http *none = NULL;
    struct fcap_http_settings settings = {.routes = routes, .routes_count = 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct fcap_error error = {0};
        settings.listen = bad[i];
        if (fcap_http_open(&settings, &none, &error) != FCAP_CONFIG) {
            fail_msg("\"%s\" was not refused", bad[i]);
        }
        assert_non_null(strstr(error.text, "http.listen"));
    }
    start("127.0.0.1:0", NULL, 0);
    char taken[32];
    struct fcap_error error = {0};
    (void)snprintf(taken, sizeof taken, "127.0.0.1:%d", fcap_http_port(http));
    settings.listen = taken;
    assert_int_equal(fcap_http_open(&settings, &none, &error), FCAP_IO);
    assert_non_null(strstr(error.text, "Address already in use"));
    assert_null(none);
}

/* Closing does not wait for clients. */
static void closes_with_open_connections(void **state)
{
    (void)state;
    start("127.0.0.1:0", NULL, 0);
    int idle = open_client();
    int half = open_client();
    send_text(half, "GET /livez HTTP/1.1\r\nHo");
    assert_alive();
    int64_t begin_ms = clock_ms(CLOCK_MONOTONIC);
    (void)stop(NULL);
    assert_in_range(clock_ms(CLOCK_MONOTONIC) - begin_ms, 0, 2000);
    (void)close(idle);
    (void)close(half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(answers_routes, stop),
        cmocka_unit_test_teardown(keeps_connections, stop),
        cmocka_unit_test_teardown(asks_for_a_token, stop),
        cmocka_unit_test_teardown(survives_garbage, stop),
        cmocka_unit_test_teardown(bounds_heads_and_bodies, stop),
        cmocka_unit_test_teardown(limits_connections, stop),
        cmocka_unit_test_teardown(serves_beside_a_crowd, stop),
        cmocka_unit_test_teardown(ends_slow_requests, stop),
        cmocka_unit_test_teardown(ends_slow_readers, stop),
        cmocka_unit_test_teardown(waits_without_descriptors, stop),
        cmocka_unit_test_teardown(binds_where_it_is_told, stop),
        cmocka_unit_test_teardown(refuses_bad_addresses, stop),
        cmocka_unit_test_teardown(closes_with_open_connections, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
