/* Commands that ask a running daemon, while its workers cannot answer. */
#include "commands/ask.h"

#include "fcap/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static atomic_int busy; /* so many more requests are refused */
static struct fcap_http *http;
static char listen_on[32];
static struct fcap_config config;
static struct fcap_progress progress;
static FILE *file;
static char *text;
static size_t size;

static void serve(void *context, const struct fcap_http_request *request,
                  struct fcap_http_response *response)
{
    (void)context;
    (void)request;
    if (atomic_load(&busy) > 0) {
        atomic_fetch_sub(&busy, 1);
        response->status = 503;
        fcap_buffer_put_text(&response->body, "no worker can answer now\n");
    } else {
        fcap_buffer_put_text(&response->body, "here");
    }
}

static int setup(void **unused)
{
    static const struct fcap_http_route routes[] = {{"GET", "/page", false, serve, NULL, false}};
    const struct fcap_http_settings settings = {
        .listen = "127.0.0.1:0", .routes = routes, .routes_count = 1};
    (void)unused;
    assert_int_equal(fcap_http_open(&settings, &http, NULL), FCAP_OK);
    (void)snprintf(listen_on, sizeof listen_on, "127.0.0.1:%d", fcap_http_port(http));
    config.http.listen = listen_on;
    file = open_memstream(&text, &size);
    assert_non_null(file);
    fcap_progress_init(&progress, "rebuild", file, false);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    fcap_http_close(http);
    (void)fclose(file);
    free(text);
    return 0;
}

static int ask(int refusals, int64_t patience_ms, const char *wanted)
{
    const struct fcap_ask_patience patience = {&progress, patience_ms};
    struct fcap_buffer body = {0};
    struct fcap_error error;
    int code = 0;
    atomic_store(&busy, refusals);
    assert_int_equal(fcap_ask_patiently(&config, "/page", patience, &code, &body, &error), FCAP_OK);
    assert_int_equal(body.size, strlen(wanted));
    assert_memory_equal(body.data, wanted, body.size);
    fcap_buffer_done(&body);
    (void)fflush(file);
    return code;
}

static void test_who_answers_at_once_is_not_waited_for(void **unused)
{
    (void)unused;
    assert_int_equal(ask(0, 60000, "here"), 200);
    assert_string_equal(text, "");
}

static void test_who_is_busy_is_waited_for_and_it_is_said(void **unused)
{
    (void)unused;
    assert_int_equal(ask(3, 60000, "here"), 200);
    assert_string_equal(text, "rebuild: waits at most 60 s: the daemon answers 503: no worker can "
                              "answer now\nrebuild: goes on\n");
}

static void test_patience_ends(void **unused)
{
    (void)unused;
    assert_int_equal(ask(1000000, 1000, "no worker can answer now\n"), 503);
    assert_string_equal(text, "rebuild: waits at most 1 s: the daemon answers 503: no worker can "
                              "answer now\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_who_answers_at_once_is_not_waited_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_who_is_busy_is_waited_for_and_it_is_said, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_patience_ends, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
