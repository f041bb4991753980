/* The HTTP server's pages that wait for other threads: nobody else waits for them. */
#include "integration/http_client.h"

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

#define WAIT_MS 3000

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
