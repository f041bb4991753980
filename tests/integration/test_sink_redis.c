/* The Redis sink on a real redis-server: accounts, addresses, restarts, memory, replicas, silence.
 * What holds for every sink is in tests/contract; scripted servers are in test_sink_redis_fake.c.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "lab/redis_server.h"
#include "lib/sink_driver.h"
#include "lab/lab.h"

static struct fixture {
    struct redis_server server;
    struct sink_driver driver;
} fixture;

static int setup(void **unused)
{
    (void)unused;
    memset(&fixture, 0, sizeof fixture);
    redis_server_start(&fixture.server, NULL);
    sink_driver_init(&fixture.driver, fixture.server.port);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    sink_driver_close(&fixture.driver);
    redis_server_stop(&fixture.server);
    return 0;
}

/* Starts the server again with options of its own. */
static void start_with(struct fixture *f, const char *const *options)
{
    redis_server_stop(&f->server);
    redis_server_start(&f->server, options);
    f->driver.settings.port = f->server.port;
}

#define ASSERT_ASK(expected, ...)                                                                  \
    assert_string_equal(redis_server_ask(&fixture.server, __VA_ARGS__), expected)

static uint32_t bit(enum fcap_sink_redis_need need)
{
    return 1u << need;
}

/* --- accounts ----------------------------------------------------------------------------- */

static void use_account(struct fixture *f, const char *rules)
{
    char command[256];
    (void)snprintf(command, sizeof command, "ACL SETUSER app reset on >pw %s", rules);
    ASSERT_ASK("OK", command);
    f->driver.settings.user = "app";
    f->driver.settings.password = "pw";
}

static void test_B23_an_account_without_dangerous_commands_is_named(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    use_account(f, "~* +@all -@dangerous");
    sink_driver_open(&f->driver);
    sink_driver_poll_for(&f->driver, 500);
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_false(sink_driver_state(&f->driver).ready);
    assert_int_equal(status.error, FCAP_SINK_REDIS_ERROR_PROBE);
    assert_int_equal(status.refused_needs, bit(FCAP_SINK_REDIS_NEED_INFO) |
                                               bit(FCAP_SINK_REDIS_NEED_CLIENT_LIST) |
                                               bit(FCAP_SINK_REDIS_NEED_CLIENT_KILL));
    assert_non_null(strstr(status.refused_text[FCAP_SINK_REDIS_NEED_INFO], "NOPERM"));
    assert_in_range(status.counters.connects, 2, 20); /* No busy loop. */

    /* Allowed by the operator: it goes on, says so, and still sees an emptied Redis. */
    struct sink_driver degraded = {0};
    sink_driver_init(&degraded, f->server.port);
    degraded.settings.user = "app";
    degraded.settings.password = "pw";
    degraded.settings.worker = 1;
    degraded.settings.degraded_allowed = true;
    sink_driver_open(&degraded);
    assert_true(sink_driver_until_ready(&degraded));
    sink_driver_set(&degraded, "k", "v");
    status = sink_driver_status(&degraded);
    assert_int_not_equal(status.refused_needs, 0);
    struct fcap_sink_identity before = sink_driver_state(&degraded).identity;
    ASSERT_ASK("OK", "FLUSHALL");
    sink_driver_poll_for(&degraded, 300);
    struct fcap_sink_identity after = sink_driver_state(&degraded).identity;
    assert_memory_not_equal(&before, &after, sizeof before);
    assert_int_equal(sink_driver_status(&degraded).counters.connections_ready, 1);
    sink_driver_close(&degraded);

    /* The account is mended: no restart of ours. */
    ASSERT_ASK("OK", "ACL SETUSER app +@all");
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_poll(&f->driver);
    assert_int_equal(sink_driver_status(&f->driver).refused_needs, 0);
}

static void test_B23_an_account_for_other_keys_is_named(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    use_account(f, "~other:* +@all");
    f->driver.settings.degraded_allowed = true; /* Makes no difference here. */
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_PROBE));
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_int_equal(status.refused_needs,
                     bit(FCAP_SINK_REDIS_NEED_SENTINEL_SET) |
                         bit(FCAP_SINK_REDIS_NEED_SENTINEL_GET) |
                         bit(FCAP_SINK_REDIS_NEED_SET_PXAT) | bit(FCAP_SINK_REDIS_NEED_INCR) |
                         bit(FCAP_SINK_REDIS_NEED_UNLINK) | bit(FCAP_SINK_REDIS_NEED_META_KEY) |
                         bit(FCAP_SINK_REDIS_NEED_EPOCH_KEY));
    assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_BUSY);
    ASSERT_ASK("OK", "ACL SETUSER app ~fc:*");
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "fc:{u}:1d", "v");
}

static void test_B23_rights_taken_while_running_are_named_and_heal(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    use_account(f, "~* +@all");
    f->driver.settings.identity_interval_ms = 100000; /* Let the push find out. */
    f->driver.settings.time_interval_ms = 100000;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    ASSERT_ASK("OK", "ACL SETUSER app resetkeys ~other:*");
    assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "fc:{u}:1d", "v"), FCAP_OK);
    assert_true(sink_driver_until_all_acked(&f->driver));
    assert_int_equal(f->driver.results[FCAP_PUSH_REFUSED], 1);
    assert_int_equal(sink_driver_status(&f->driver).error, FCAP_SINK_REDIS_ERROR_NOPERM);
    ASSERT_ASK("OK", "ACL SETUSER app ~fc:*");
    sink_driver_set(&f->driver, "fc:{u}:1d", "v");
    assert_int_equal(sink_driver_status(&f->driver).error, FCAP_SINK_REDIS_ERROR_NONE);
}

static void test_a_right_that_a_heartbeat_misses_is_named(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    use_account(f, "~* +@all");
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    ASSERT_ASK("OK", "ACL SETUSER app -info");
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_PROBE));
    assert_int_equal(sink_driver_status(&f->driver).refused_needs, bit(FCAP_SINK_REDIS_NEED_INFO));
    ASSERT_ASK("OK", "ACL SETUSER app +info");
    assert_true(sink_driver_until_ready(&f->driver));
}

static void test_B23_renamed_commands(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    /* CONFIG is not needed at all: the policy comes from INFO. */
    static const char *const no_config[] = {"--rename-command", "CONFIG", "", NULL};
    start_with(f, no_config);
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_poll(&f->driver);
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_int_equal(status.refused_needs, 0);
    assert_string_equal(status.maxmemory_policy, "noeviction");
    assert_false(status.evicts);
    sink_driver_close(&f->driver);

    static const char *const no_client[] = {
        "--rename-command", "CLIENT", "", "--rename-command", "INFO", "xyz", NULL};
    start_with(f, no_client);
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_PROBE));
    status = sink_driver_status(&f->driver);
    assert_int_equal(status.refused_needs, bit(FCAP_SINK_REDIS_NEED_CLIENT_SETNAME) |
                                               bit(FCAP_SINK_REDIS_NEED_CLIENT_ID) |
                                               bit(FCAP_SINK_REDIS_NEED_CLIENT_LIST) |
                                               bit(FCAP_SINK_REDIS_NEED_CLIENT_KILL) |
                                               bit(FCAP_SINK_REDIS_NEED_INFO));
    sink_driver_close(&f->driver);
    f->driver.settings.degraded_allowed = true;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "k", "v");
}

static void test_passwords(void **unused)
{
    struct fixture *f = &fixture;
    static const char odd[] = "p w\"'\r\n$7 %{}\\ \xc3\xbc:@";
    (void)unused;
    /* A password where none is asked for. */
    f->driver.settings.password = odd;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_AUTH_UNEXPECTED));
    /* The server gets it: that heals. */
    ASSERT_ASK("OK", "CONFIG SET requirepass %s", odd);
    f->server.password = odd;
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "k", "v");
    sink_driver_close(&f->driver);

    f->driver.settings.password = NULL;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_NOAUTH));
    sink_driver_close(&f->driver);

    f->driver.settings.password = "wrong";
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_WRONGPASS));
    assert_null(strstr(sink_driver_status(&f->driver).error_text, "wrong"));
    sink_driver_close(&f->driver);

    ASSERT_ASK("OK", "ACL SETUSER a%%b on >%s ~* +@all", odd);
    f->driver.settings.user = "a%b";
    f->driver.settings.password = odd;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "k", "v2");
}

/* --- addresses ---------------------------------------------------------------------------- */

static void test_a_unix_socket_and_a_database(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.unix_socket = f->server.socket;
    f->driver.settings.host = NULL;
    f->driver.settings.port = 0;
    f->driver.settings.database = 3;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "k", "in three");
    assert_null(redis_server_ask(&f->server, "GET k"));
    ASSERT_ASK("OK", "SELECT 3");
    ASSERT_ASK("in three", "GET k");
    assert_non_null(redis_server_ask(&f->server, "GET fc:id"));
    sink_driver_close(&f->driver);

    f->driver.settings.database = 99;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_DATABASE));
    sink_driver_close(&f->driver);
    f->driver.settings.unix_socket = "/nowhere/redis.sock";
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_CONNECT));
}

static void test_host_names(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.host = "localhost"; /* May be ::1 first, where nobody listens. */
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_close(&f->driver);

    f->driver.settings.host = "no-such-host.invalid";
    f->driver.settings.connect_timeout_ms = 1000;
    sink_driver_open(&f->driver);
    int64_t end_ms = lab_monotonic_ms() + 1500;
    while (lab_monotonic_ms() < end_ms) {
        int64_t before_ms = lab_monotonic_ms();
        sink_driver_poll(&f->driver);
        assert_true(lab_monotonic_ms() - before_ms < 500); /* poll() never waits for DNS. */
    }
    enum fcap_sink_redis_error error = sink_driver_status(&f->driver).error;
    /* Where the resolver itself hangs it is a timeout. */
    assert_true(error == FCAP_SINK_REDIS_ERROR_RESOLVE || error == FCAP_SINK_REDIS_ERROR_TIMEOUT);
    sink_driver_close(&f->driver);
    sink_driver_open(&f->driver);
    sink_driver_poll(&f->driver);
    sink_driver_close(&f->driver); /* While it is being looked up. */
}

static void test_nobody_listens_and_then_somebody_does(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    redis_server_kill(&f->server);
    sink_driver_open(&f->driver);
    int64_t start_ms = lab_monotonic_ms();
    sink_driver_poll_for(&f->driver, 500);
    while (sink_driver_status(&f->driver).counters.connects < 3) {
        sink_driver_poll(&f->driver);
    }
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_int_equal(status.error, FCAP_SINK_REDIS_ERROR_CONNECT);
    /* Pauses of 10 .. 100 ms. */
    assert_in_range(status.counters.connects, 3, 20 + (lab_monotonic_ms() - start_ms - 500) / 50);
    redis_server_restart(&f->server, false);
    assert_true(sink_driver_until_ready(&f->driver));
}

static void test_names_that_redis_would_refuse(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.profile = "a b";
    f->driver.settings.instance = "\xc3\xbc:%\n";
    f->driver.settings.worker = 12;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    assert_non_null(strstr(redis_server_ask(&f->server, "CLIENT LIST"),
                           " name=fcapd:a%20b:%C3%BC%3A%25%0A:12 "));
}

static void test_the_probe_leaves_nothing_behind(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    ASSERT_ASK("1", "DBSIZE"); /* fc:id */
    assert_int_equal(strlen(redis_server_ask(&f->server, "GET fc:id")), 32);
    ASSERT_ASK("-1", "TTL fc:id");
}

/* --- faults ------------------------------------------------------------------------------- */

static void test_a_full_redis_heals_also_when_nothing_is_pushed(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    ASSERT_ASK("OK", "CONFIG SET maxmemory 1");
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_OOM));
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_true(status.error_since_ms > 0);
    assert_true(status.state.ready);
    ASSERT_ASK("OK", "CONFIG SET maxmemory 0");
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_NONE));
    sink_driver_set(&f->driver, "k", "v");
}

static void test_an_eviction_policy_is_a_warning(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    assert_false(sink_driver_status(&f->driver).evicts);
    ASSERT_ASK("OK", "CONFIG SET maxmemory-policy allkeys-lru");
    sink_driver_poll_for(&f->driver, 300);
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_true(status.evicts);
    assert_string_equal(status.maxmemory_policy, "allkeys-lru");
    assert_true(status.state.ready);
}

static void test_a_primary_that_becomes_a_replica(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.identity_interval_ms = 100000; /* Let the push find out. */
    f->driver.settings.time_interval_ms = 100000;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    ASSERT_ASK("OK", "REPLICAOF 127.0.0.1 %d", (int)lab_free_port());
    assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_OK);
    assert_true(sink_driver_until_all_acked(&f->driver));
    assert_int_equal(f->driver.results[FCAP_PUSH_REFUSED], 1);
    assert_int_equal(sink_driver_status(&f->driver).error, FCAP_SINK_REDIS_ERROR_READONLY);
    sink_driver_poll_for(&f->driver, 300);
    assert_false(sink_driver_state(&f->driver).ready);
    assert_int_equal(sink_driver_status(&f->driver).error, FCAP_SINK_REDIS_ERROR_READONLY);
    ASSERT_ASK("OK", "REPLICAOF NO ONE");
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "k", "v");
}

static void test_a_replica_is_noticed_by_heartbeat(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    ASSERT_ASK("OK", "REPLICAOF 127.0.0.1 %d", (int)lab_free_port());
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_READONLY));
    assert_false(sink_driver_state(&f->driver).ready);
}

/* It takes writes, and loses them when it follows its primary again. */
static void test_a_writable_replica_is_no_place_for_counts(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    ASSERT_ASK("OK", "CONFIG SET replica-read-only no");
    ASSERT_ASK("OK", "REPLICAOF 127.0.0.1 %d", (int)lab_free_port());
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_READONLY));
    assert_false(sink_driver_state(&f->driver).ready);
    ASSERT_ASK("OK", "REPLICAOF NO ONE");
    assert_true(sink_driver_until_ready(&f->driver));
}

static void test_a_frozen_server_is_a_broken_connection(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.command_timeout_ms = 300;
    f->driver.settings.connect_timeout_ms = 300;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    redis_server_freeze(&f->server);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "frozen"), FCAP_OK);
    }
    int64_t start_ms = lab_monotonic_ms();
    assert_true(sink_driver_until_all_acked(&f->driver));
    assert_true(lab_monotonic_ms() - start_ms >= 200);
    assert_int_equal(f->driver.results[FCAP_PUSH_UNKNOWN], 100);
    assert_int_equal(sink_driver_status(&f->driver).error, FCAP_SINK_REDIS_ERROR_TIMEOUT);
    assert_false(sink_driver_state(&f->driver).ready);
    sink_driver_poll_for(&f->driver, 1000); /* Further attempts time out as well. */
    assert_false(sink_driver_state(&f->driver).ready);
    redis_server_thaw(&f->server);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "k", "thawed");
    ASSERT_ASK("thawed", "GET k");
}

static void test_a_heartbeat_alone_finds_a_frozen_server(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.command_timeout_ms = 200;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    redis_server_freeze(&f->server);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_TIMEOUT));
    redis_server_thaw(&f->server);
    assert_true(sink_driver_until_ready(&f->driver));
}

static void test_maxclients(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    ASSERT_ASK("OK", "CONFIG SET maxclients 1");
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_MAX_CLIENTS));
    ASSERT_ASK("OK", "CONFIG SET maxclients 100");
    assert_true(sink_driver_until_ready(&f->driver));
}

/* A closed peer while we write raises no SIGPIPE: its action is still the default, which kills. */
static void test_being_killed_again_and_again(void **unused)
{
    struct fixture *f = &fixture;
    struct sigaction action;
    (void)unused;
    assert_int_equal(sigaction(SIGPIPE, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
    char value[1001] = {0};
    memset(value, 'x', sizeof value - 1);
    sink_driver_open(&f->driver);
    for (int round = 0; round < 20; round++) {
        assert_true(sink_driver_until_ready(&f->driver));
        ASSERT_ASK("1", "CLIENT KILL TYPE normal SKIPME yes");
        for (int i = 0; i < 500; i++) { /* Several writes: the first meets a reset. */
            (void)sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", value);
        }
        sink_driver_poll(&f->driver);
        assert_true(sink_driver_until_all_acked(&f->driver));
    }
    assert_true(f->driver.results[FCAP_PUSH_UNKNOWN] > 0);
    assert_int_equal(f->driver.pushed, f->driver.acked);
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_int_equal(status.counters.acks_unknown, f->driver.results[FCAP_PUSH_UNKNOWN]);
    assert_int_equal(status.counters.pushes, f->driver.pushed);
}

static void test_B26_an_old_dump_with_the_sentinel_is_another_redis(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "k", "old");
    ASSERT_ASK("OK", "SAVE");
    sink_driver_set(&f->driver, "k", "new");
    struct fcap_sink_identity before = sink_driver_state(&f->driver).identity;
    char sentinel[64];
    (void)snprintf(sentinel, sizeof sentinel, "%s", redis_server_ask(&f->server, "GET fc:id"));
    redis_server_kill(&f->server);
    redis_server_restart(&f->server, true);
    ASSERT_ASK("old", "GET k");
    ASSERT_ASK(sentinel, "GET fc:id");
    sink_driver_poll(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    struct fcap_sink_identity after = sink_driver_state(&f->driver).identity;
    assert_memory_not_equal(&before, &after, sizeof before);
    assert_int_equal(sink_driver_status(&f->driver).counters.identity_changes, 1);
}

/* --- volume ------------------------------------------------------------------------------- */

static int64_t cpu_us(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static void test_a_hundred_thousand_pipelined(void **unused)
{
    enum { COUNT = 100000 };
    struct fixture *f = &fixture;
    char value[300];
    size_t busy = 0;
    (void)unused;
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    f->driver.settings.commands_in_flight_max = 4096;
    f->driver.settings.send_buffer_bytes = 512 * 1024;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    struct fcap_sink_redis_status before = sink_driver_status(&f->driver);
    int64_t start_ms = lab_monotonic_ms();
    int64_t start_us = cpu_us();
    while (f->driver.pushed < COUNT) {
        char key[32];
        (void)snprintf(key, sizeof key, "fc:{%llu}:1d", (unsigned long long)f->driver.pushed);
        enum fcap_status status = sink_driver_push(&f->driver, FCAP_PUSH_SET, key, value);
        if (status != FCAP_OK) {
            assert_int_equal(status, FCAP_BUSY);
            struct fcap_sink_redis_status now = sink_driver_status(&f->driver);
            assert_true(now.in_flight <= 4096);
            assert_true(now.unsent_bytes <= 512 * 1024 + 1024);
            busy++;
            sink_driver_poll(&f->driver);
        }
    }
    assert_true(sink_driver_until_all_acked(&f->driver));
    int64_t spent_us = cpu_us() - start_us;
    int64_t took_ms = lab_monotonic_ms() - start_ms;
    assert_int_equal(f->driver.results[FCAP_PUSH_DONE], COUNT);
    assert_true(busy > 0);
    char expected[32];
    (void)snprintf(expected, sizeof expected, "%d", COUNT + 1);
    ASSERT_ASK(expected, "DBSIZE");
    ASSERT_ASK(value, "GET fc:{99999}:1d");
    struct fcap_sink_redis_status after = sink_driver_status(&f->driver);
    assert_int_equal(after.counters.acks_done - before.counters.acks_done, COUNT);
    print_message("%d SET of 300 B: %lld ms, client %.2f us each (with this test's own work), "
                  "%zu times BUSY\n",
                  COUNT, (long long)took_ms, (double)spent_us / COUNT, busy);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_B23_an_account_without_dangerous_commands_is_named),
        CASE(test_B23_an_account_for_other_keys_is_named),
        CASE(test_B23_rights_taken_while_running_are_named_and_heal),
        CASE(test_a_right_that_a_heartbeat_misses_is_named),
        CASE(test_B23_renamed_commands),
        CASE(test_passwords),
        CASE(test_a_unix_socket_and_a_database),
        CASE(test_host_names),
        CASE(test_nobody_listens_and_then_somebody_does),
        CASE(test_names_that_redis_would_refuse),
        CASE(test_the_probe_leaves_nothing_behind),
        CASE(test_a_full_redis_heals_also_when_nothing_is_pushed),
        CASE(test_an_eviction_policy_is_a_warning),
        CASE(test_a_primary_that_becomes_a_replica),
        CASE(test_a_replica_is_noticed_by_heartbeat),
        CASE(test_a_writable_replica_is_no_place_for_counts),
        CASE(test_a_frozen_server_is_a_broken_connection),
        CASE(test_a_heartbeat_alone_finds_a_frozen_server),
        CASE(test_maxclients),
        CASE(test_being_killed_again_and_again),
        CASE(test_B26_an_old_dump_with_the_sentinel_is_another_redis),
        CASE(test_a_hundred_thousand_pipelined),
    };
    return cmocka_run_group_tests_name("Redis sink on a real server", tests, NULL, NULL);
}
