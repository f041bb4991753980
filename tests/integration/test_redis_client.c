/* The blocking client and its fenced sink, on a real Redis. */
#include "fcap/redis_client.h"
#include "lab/lab.h"
#include "lab/redis_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FAR_MS 4000000000000LL

static struct redis_server server;
static struct fcap_redis_client *client;
static struct fcap_error error;

static struct fcap_sink_redis_settings settings_of(void)
{
    struct fcap_sink_redis_settings settings;
    fcap_sink_redis_settings_default(&settings);
    settings.host = "127.0.0.1";
    settings.port = server.port;
    settings.profile = "p";
    settings.instance = "i";
    settings.command_timeout_ms = 2000;
    return settings;
}

static void open_client(void)
{
    struct fcap_sink_redis_settings settings = settings_of();
    if (fcap_redis_client_open(&settings, &client, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

static int setup(void **unused)
{
    (void)unused;
    redis_server_start(&server, NULL);
    open_client();
    return 0;
}

static int setup_old(void **unused)
{
    static const char *const options[] = {"--rename-command", "PEXPIRETIME", "", NULL};
    (void)unused;
    redis_server_start(&server, options);
    open_client();
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    fcap_redis_client_close(client);
    client = NULL;
    redis_server_stop(&server);
    return 0;
}

static void do_redis(const char *text)
{
    const char *answer = redis_server_ask(&server, text);
    if (answer != NULL && answer[0] == '-') {
        fail_msg("%s: %s", text, answer);
    }
}

static void check(enum fcap_status status)
{
    if (status != FCAP_OK) {
        fail_msg("%s: %s", fcap_status_text(status), error.text);
    }
}

static void read_all(struct fcap_redis_seen *seen, int64_t *time_ms)
{
    struct fcap_bytes keys[] = {fcap_bytes_of("a"), fcap_bytes_of("b"), fcap_bytes_of("c"),
                                fcap_bytes_of("d")};
    do_redis("SET a one PXAT 4000000000000");
    do_redis("SET b two");
    do_redis("LPUSH c three");
    check(fcap_redis_client_read(client, keys, 4, seen, time_ms, &error));
    assert_true(seen[0].is_there && !seen[0].is_other);
    assert_true(fcap_bytes_equal(seen[0].value, fcap_bytes_of("one")));
    assert_true(seen[0].expire_at_min_ms <= FAR_MS && FAR_MS <= seen[0].expire_at_max_ms);
    assert_true(seen[1].is_there && seen[1].expire_at_min_ms == FCAP_REDIS_FOREVER);
    assert_true(seen[2].is_there && seen[2].is_other);
    assert_false(seen[3].is_there);
}

static void test_keys_and_their_expiry(void **unused)
{
    struct fcap_redis_seen seen[4];
    int64_t time_ms;
    int64_t before_ms = lab_wall_ms();
    (void)unused;
    read_all(seen, &time_ms);
    assert_true(time_ms >= before_ms && time_ms <= lab_wall_ms());
    assert_true(seen[0].expire_at_min_ms == FAR_MS && seen[0].expire_at_max_ms == FAR_MS);
}

static void test_an_older_server_tells_the_expiry_nearly(void **unused)
{
    struct fcap_redis_seen seen[4];
    int64_t time_ms;
    (void)unused;
    for (int i = 0; i < 2; i++) { /* The second time it is known to be old. */
        do_redis("FLUSHALL");
        read_all(seen, &time_ms);
        assert_true(seen[0].expire_at_max_ms - seen[0].expire_at_min_ms < 1000);
    }
}

static size_t visited;

static void count_key(void *context, struct fcap_bytes key)
{
    (void)context;
    assert_true(key.size > 2 && memcmp(key.data, "k:", 2) == 0);
    visited++;
}

static void test_keys_are_walked_over_and_owners_found(void **unused)
{
    uint64_t cursor = 0;
    uint64_t epoch;
    struct fcap_bytes instance;
    char text[64];
    (void)unused;
    for (int i = 0; i < 2500; i++) {
        (void)snprintf(text, sizeof text, "SET k:%d x", i);
        do_redis(text);
    }
    do_redis("SET other x");
    visited = 0;
    do {
        check(
            fcap_redis_client_scan(client, fcap_bytes_of("k:*"), &cursor, count_key, NULL, &error));
    } while (cursor != 0);
    assert_true(visited >= 2500);
    assert_string_equal(redis_server_ask(&server, "SET fc:epoch:p:3:owner %s", "31 two:x"), "OK");
    check(fcap_redis_client_owner(client, "p", 3, &epoch, &instance, &error));
    assert_true(epoch == 31 && fcap_bytes_equal(instance, fcap_bytes_of("two:x")));
    check(fcap_redis_client_owner(client, "p", 4, &epoch, &instance, &error));
    assert_true(epoch == 0 && instance.data == NULL);
    check(fcap_redis_client_owner(client, "q", 3, &epoch, &instance, &error));
    assert_null(instance.data);
    check(fcap_redis_client_epoch(client, "p", 3, &epoch, &error));
    assert_true(epoch == 0);
    do_redis("SET fc:epoch:p:3 77");
    check(fcap_redis_client_epoch(client, "p", 3, &epoch, &error));
    assert_true(epoch == 77);
}

static void test_it_is_the_same_redis_to_the_sink(void **unused)
{
    struct fcap_sink_redis_settings settings = settings_of();
    struct fcap_sink_identity identity;
    struct fcap_sink_identity again;
    struct fcap_sink_state state = {0};
    struct fcap_sink *sink;
    struct fcap_sink_handler handler = {0};
    (void)unused;
    static const struct fcap_sink_identity unknown;
    check(fcap_redis_client_identity(client, false, &identity, &error));
    assert_memory_equal(&identity, &unknown, sizeof identity);
    assert_null(redis_server_ask(&server, "GET fc:id")); /* Only looked at. */
    check(fcap_redis_client_identity(client, true, &identity, &error));
    check(fcap_sink_redis_open(&settings, &error, &sink));
    int64_t deadline_ms = lab_monotonic_ms() + 10000;
    while (!state.ready && lab_monotonic_ms() < deadline_ms) {
        (void)sink->ops->poll(sink, &handler, 10);
        sink->ops->state(sink, &state);
    }
    assert_memory_equal(&state.identity, &identity, sizeof identity);
    fcap_sink_redis_close(sink);
    do_redis("FLUSHALL");
    check(fcap_redis_client_identity(client, true, &again, &error));
    assert_memory_not_equal(&again, &identity, sizeof identity);
}

/* --- the fence --- */

static int done;
static int not_done;
static int64_t last_integer;

static void on_ack(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    (void)context;
    (void)token;
    done += result == FCAP_PUSH_DONE;
    not_done += result != FCAP_PUSH_DONE;
    last_integer = integer;
}

static struct fcap_sink *open_fence(uint64_t found, uint64_t epoch)
{
    static struct fcap_redis_fence fence;
    struct fcap_sink *sink;
    fence = (struct fcap_redis_fence){"p", 5, found, epoch};
    check(fcap_redis_fenced_open(client, &fence, &sink, &error));
    done = 0;
    not_done = 0;
    return sink;
}

/* SET k v, UNLINK old. */
static enum fcap_status write_once(struct fcap_sink *sink)
{
    const struct fcap_sink_handler handler = {NULL, on_ack};
    struct fcap_push set = {.kind = FCAP_PUSH_SET,
                            .key = fcap_bytes_of("k"),
                            .value = fcap_bytes_of("v"),
                            .expire_at_ms = FAR_MS};
    struct fcap_push unlink = {.kind = FCAP_PUSH_UNLINK, .key = fcap_bytes_of("old")};
    assert_int_equal(sink->ops->push(sink, &set), FCAP_OK);
    assert_int_equal(sink->ops->push(sink, &unlink), FCAP_OK);
    enum fcap_status status = sink->ops->poll(sink, &handler, 0);
    assert_int_equal(done + not_done, 2);
    return status;
}

static void assert_redis(const char *question, const char *wanted)
{
    const char *answer = redis_server_ask(&server, question);
    if ((answer == NULL) != (wanted == NULL) || (answer != NULL && strcmp(answer, wanted) != 0)) {
        fail_msg("%s: %s, not %s", question, answer == NULL ? "nil" : answer,
                 wanted == NULL ? "nil" : wanted);
    }
}

static void test_a_fenced_sink_writes_while_the_epoch_stands(void **unused)
{
    const struct fcap_sink_handler handler = {NULL, on_ack};
    struct fcap_push increment = {.kind = FCAP_PUSH_INCREMENT,
                                  .key = fcap_bytes_of("fc:epoch:p:5")};
    struct fcap_sink_state state;
    (void)unused;
    do_redis("SET fc:epoch:p:5 7");
    do_redis("SET old x");
    struct fcap_sink *sink = open_fence(7, 7);
    sink->ops->state(sink, &state);
    assert_true(state.ready && state.time_known);
    assert_true(lab_wall_ms() - state.time_ms < 2000);
    assert_int_equal(sink->ops->push(sink, &increment), FCAP_OK);
    assert_int_equal(sink->ops->poll(sink, &handler, 0), FCAP_OK);
    assert_int_equal(last_integer, 7);
    assert_redis("GET fc:epoch:p:5", "7"); /* Answered, not sent. */
    done = 0;
    assert_int_equal(write_once(sink), FCAP_OK);
    assert_int_equal(done, 2);
    assert_redis("GET k", "v");
    assert_redis("PEXPIRETIME k", "4000000000000");
    assert_redis("GET old", NULL);

    do_redis("INCR fc:epoch:p:5"); /* Another owner opens its gate. */
    do_redis("SET k newer");
    do_redis("SET old newer");
    done = 0;
    assert_int_equal(write_once(sink), FCAP_FENCED);
    assert_int_equal(not_done, 2);
    assert_redis("GET k", "newer");
    assert_redis("GET old", "newer");
    assert_int_equal(fcap_redis_fenced_status(sink, &error), FCAP_FENCED);
    assert_non_null(strstr(error.text, "epoch 8"));
    sink->ops->state(sink, &state);
    assert_false(state.ready);
    fcap_redis_fenced_close(sink);
}

static void test_an_epoch_that_is_behind_is_set(void **unused)
{
    (void)unused;
    struct fcap_sink *sink = open_fence(0, 7); /* Redis was emptied. */
    assert_int_equal(write_once(sink), FCAP_OK);
    assert_redis("GET fc:epoch:p:5", "7");
    done = 0;
    assert_int_equal(write_once(sink), FCAP_OK);
    fcap_redis_fenced_close(sink);

    sink = open_fence(7, 8); /* As a new owner would. */
    assert_int_equal(write_once(sink), FCAP_OK);
    assert_redis("GET fc:epoch:p:5", "8");
    fcap_redis_fenced_close(sink);

    sink = open_fence(8, 9); /* Somebody else has taken that number. */
    do_redis("SET fc:epoch:p:5 9");
    assert_int_equal(write_once(sink), FCAP_FENCED);
    fcap_redis_fenced_close(sink);
}

static void test_a_redis_that_is_emptied_or_goes_away_ends_it(void **unused)
{
    (void)unused;
    do_redis("SET fc:epoch:p:5 7");
    struct fcap_sink *sink = open_fence(7, 7);
    do_redis("FLUSHALL");
    do_redis("SET fc:epoch:p:5 7");
    assert_int_equal(write_once(sink), FCAP_FOREIGN);
    assert_redis("GET k", NULL);
    fcap_redis_fenced_close(sink);

    sink = open_fence(7, 7);
    redis_server_kill(&server);
    assert_int_equal(write_once(sink), FCAP_UNAVAILABLE);
    fcap_redis_fenced_close(sink);
    redis_server_restart(&server, false);
}

static void test_what_the_account_may_not_do_is_named(void **unused)
{
    struct fcap_sink_redis_settings settings = settings_of();
    struct fcap_redis_client *other;
    struct fcap_redis_seen seen;
    struct fcap_bytes key = fcap_bytes_of("fc:x");
    int64_t time_ms;
    (void)unused;
    do_redis("ACL SETUSER few on >pw resetkeys ~fc:* -@all +get +set +info +time");
    settings.user = "few";
    settings.password = "pw";
    check(fcap_redis_client_open(&settings, &other, &error));
    assert_int_equal(fcap_redis_client_read(other, &key, 1, &seen, &time_ms, &error), FCAP_REFUSED);
    assert_non_null(strstr(error.text, "PEXPIRETIME"));
    assert_non_null(strstr(error.text, "NOPERM"));
    fcap_redis_client_close(other);
    settings.password = "wrong";
    assert_int_equal(fcap_redis_client_open(&settings, &other, &error), FCAP_REFUSED);
    assert_non_null(strstr(error.text, "AUTH"));
    settings.port = lab_free_port();
    assert_int_equal(fcap_redis_client_open(&settings, &other, &error), FCAP_UNAVAILABLE);
}

static void test_a_refusal_names_its_cure(void **unused)
{
    int64_t now_ms = 0;
    (void)unused;
    do_redis("CONFIG SET requirepass secret");
    fcap_redis_client_close(client);
    open_client();
    assert_int_equal(fcap_redis_client_time(client, &now_ms, &error), FCAP_REFUSED);
    assert_non_null(strstr(error.text, "NOAUTH"));
    assert_non_null(strstr(error.text, "redis.password"));
}

static void test_a_redis_that_stands_still_is_not_waited_for_long(void **unused)
{
    int64_t now_ms = 0;
    (void)unused;
    redis_server_freeze(&server);
    enum fcap_status status = fcap_redis_client_time(client, &now_ms, &error);
    redis_server_thaw(&server);
    assert_int_equal(status, FCAP_UNAVAILABLE);
    assert_string_equal(error.text, "Redis: TIME: no answer within redis.command_timeout");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys_and_their_expiry, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_older_server_tells_the_expiry_nearly, setup_old,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_keys_are_walked_over_and_owners_found, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_it_is_the_same_redis_to_the_sink, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_fenced_sink_writes_while_the_epoch_stands, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_epoch_that_is_behind_is_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_redis_that_is_emptied_or_goes_away_ends_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_the_account_may_not_do_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_refusal_names_its_cure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_redis_that_stands_still_is_not_waited_for_long,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
