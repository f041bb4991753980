/* What a healthy Redis 7 cannot show: old and hidden versions (B25), LOADING, every kind of error,
 * torn replies, silence, and things that are no Redis. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fake_redis.h"
#include "lab/redis_server.h"
#include "lib/sink_driver.h"
#include "lab/lab.h"

static struct fixture {
    struct fake_redis fake;
    struct sink_driver driver;
} fixture;

static int setup(void **unused)
{
    (void)unused;
    fake_redis_start(&fixture.fake);
    sink_driver_init(&fixture.driver, fixture.fake.port);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    sink_driver_close(&fixture.driver);
    fake_redis_stop(&fixture.fake);
    return 0;
}

static bool refuses(const struct fcap_sink_redis_status *status, enum fcap_sink_redis_need need)
{
    return (status->refused_needs & 1u << need) != 0;
}

static void test_B25_an_old_redis_is_refused_and_an_upgrade_heals(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    atomic_store(&f->fake.version, "6.0.16");
    atomic_store(&f->fake.knows_pxat, false);
    sink_driver_open(&f->driver);
    sink_driver_poll_for(&f->driver, 1000);
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_false(sink_driver_state(&f->driver).ready);
    assert_int_equal(status.error, FCAP_SINK_REDIS_ERROR_PROBE);
    assert_int_equal(status.refused_needs, 1u << FCAP_SINK_REDIS_NEED_SET_PXAT);
    const char *text = status.refused_text[FCAP_SINK_REDIS_NEED_SET_PXAT];
    assert_non_null(strstr(text, "syntax error"));
    assert_non_null(strstr(text, "6.2"));
    assert_non_null(strstr(text, "6.0.16"));
    assert_string_equal(status.version, "6.0.16");
    assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_BUSY);
    /* No busy loop: pauses of 50 .. 100 ms after the first few. */
    assert_in_range(atomic_load(&f->fake.connections), 3, 30);
    assert_int_equal(atomic_load(&f->fake.sets), 0);

    atomic_store(&f->fake.version, "7.0.15");
    atomic_store(&f->fake.knows_pxat, true);
    assert_true(sink_driver_until_ready(&f->driver));
    status = sink_driver_status(&f->driver);
    assert_int_equal(status.refused_needs, 0);
    assert_int_equal(status.error, FCAP_SINK_REDIS_ERROR_NONE);
    assert_string_equal(status.version, "7.0.15");
    sink_driver_set(&f->driver, "k", "v");
}

static void test_B25_a_hidden_version_is_probed_by_behaviour(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    atomic_store(&f->fake.version, NULL);
    atomic_store(&f->fake.knows_pxat, false);
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_PROBE));
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_int_equal(status.refused_needs, 1u << FCAP_SINK_REDIS_NEED_SET_PXAT);
    assert_string_equal(status.version, "");
    atomic_store(&f->fake.knows_pxat, true);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "k", "v");
}

static void test_PXAT_cannot_be_degraded_away(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    atomic_store(&f->fake.knows_pxat, false);
    f->driver.settings.degraded_allowed = true;
    sink_driver_open(&f->driver);
    sink_driver_poll_for(&f->driver, 300);
    assert_false(sink_driver_state(&f->driver).ready);
}

static void test_a_server_without_a_run_id_is_degraded(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    atomic_store(&f->fake.run_id, NULL);
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_PROBE));
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_int_equal(status.refused_needs, 1u << FCAP_SINK_REDIS_NEED_INFO);
    sink_driver_close(&f->driver);
    f->driver.settings.degraded_allowed = true;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_poll(&f->driver);
    status = sink_driver_status(&f->driver);
    assert_true(refuses(&status, FCAP_SINK_REDIS_NEED_INFO)); /* Said, not hidden. */
    sink_driver_set(&f->driver, "k", "v");
}

static void test_loading_is_waited_for(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    atomic_store(&f->fake.loading, true);
    sink_driver_open(&f->driver);
    sink_driver_poll_for(&f->driver, 500);
    struct fcap_sink_redis_status status = sink_driver_status(&f->driver);
    assert_false(sink_driver_state(&f->driver).ready);
    assert_int_equal(status.error, FCAP_SINK_REDIS_ERROR_LOADING);
    assert_in_range(atomic_load(&f->fake.connections), 2, 20);
    atomic_store(&f->fake.loading, false);
    assert_true(sink_driver_until_ready(&f->driver));
    sink_driver_set(&f->driver, "k", "v");
    /* And on a living connection, by heartbeat. */
    atomic_store(&f->fake.loading, true);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_LOADING));
    assert_false(sink_driver_state(&f->driver).ready);
    atomic_store(&f->fake.loading, false);
    assert_true(sink_driver_until_ready(&f->driver));
}

static void test_replies_may_be_torn_anywhere(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    atomic_store(&f->fake.split, true);
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    for (int i = 0; i < 300; i++) {
        enum fcap_push_kind kind = (enum fcap_push_kind)(i % 3);
        assert_int_equal(sink_driver_push(&f->driver, kind, "k", "v"), FCAP_OK);
    }
    assert_true(sink_driver_until_all_acked(&f->driver));
    assert_int_equal(f->driver.results[FCAP_PUSH_DONE], 300);
    sink_driver_poll_for(&f->driver, 300); /* Some heartbeats. */
    assert_int_equal(sink_driver_status(&f->driver).counters.connections_ready, 1);
}

static void test_what_is_no_redis_is_named(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    atomic_store(&f->fake.garbage, true);
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_PROTOCOL));
    sink_driver_poll_for(&f->driver, 300);
    assert_in_range(atomic_load(&f->fake.connections), 2, 20);
    atomic_store(&f->fake.garbage, false);
    assert_true(sink_driver_until_ready(&f->driver));
}

static void test_a_silent_server_is_given_up_and_tried_again(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.connect_timeout_ms = 100;
    atomic_store(&f->fake.silent, true);
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_TIMEOUT));
    atomic_store(&f->fake.silent, false);
    assert_true(sink_driver_until_ready(&f->driver));
}

static void test_a_greeting_that_turns_us_away_is_understood(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    atomic_store(&f->fake.greeting, "DENIED Redis is running in protected mode because ...");
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_DENIED));
    atomic_store(&f->fake.greeting, "ERR max number of clients reached");
    assert_true(sink_driver_until_error(&f->driver, FCAP_SINK_REDIS_ERROR_MAX_CLIENTS));
    atomic_store(&f->fake.greeting, NULL);
    assert_true(sink_driver_until_ready(&f->driver));
}

static const struct error_case {
    const char *text;
    enum fcap_sink_redis_error error;
    bool reconnects;
} error_cases[] = {
    {"OOM command not allowed when used memory > 'maxmemory'.", FCAP_SINK_REDIS_ERROR_OOM, false},
    {"NOPERM this user has no permissions", FCAP_SINK_REDIS_ERROR_NOPERM, false},
    {"READONLY You can't write against a read only replica.", FCAP_SINK_REDIS_ERROR_READONLY, true},
    {"LOADING Redis is loading the dataset in memory", FCAP_SINK_REDIS_ERROR_LOADING, true},
    {"NOAUTH Authentication required.", FCAP_SINK_REDIS_ERROR_NOAUTH, true},
    {"WRONGPASS invalid username-password pair", FCAP_SINK_REDIS_ERROR_WRONGPASS, true},
    {"MISCONF Redis is configured to save RDB snapshots", FCAP_SINK_REDIS_ERROR_MISCONF, false},
    {"BUSY Redis is busy running a script.", FCAP_SINK_REDIS_ERROR_BUSY, false},
    {"MOVED 3999 127.0.0.1:6381", FCAP_SINK_REDIS_ERROR_MOVED, true},
    {"ASK 3999 127.0.0.1:6381", FCAP_SINK_REDIS_ERROR_ASK, true},
    {"CLUSTERDOWN The cluster is down", FCAP_SINK_REDIS_ERROR_CLUSTERDOWN, true},
    {"CROSSSLOT Keys in request don't hash", FCAP_SINK_REDIS_ERROR_CROSSSLOT, false},
    {"TRYAGAIN Multiple keys request during rehashing", FCAP_SINK_REDIS_ERROR_TRYAGAIN, false},
    {"MASTERDOWN Link with MASTER is down", FCAP_SINK_REDIS_ERROR_MASTERDOWN, true},
    {"NOREPLICAS Not enough good replicas to write.", FCAP_SINK_REDIS_ERROR_NOREPLICAS, false},
    {"NOSCRIPT No matching script.", FCAP_SINK_REDIS_ERROR_NOSCRIPT, false},
    {"WRONGTYPE Operation against a key", FCAP_SINK_REDIS_ERROR_WRONGTYPE, false},
    {"ERR unknown command 'SET', with args beginning", FCAP_SINK_REDIS_ERROR_UNKNOWN_COMMAND,
     false},
    {"ERR syntax error", FCAP_SINK_REDIS_ERROR_SYNTAX, false},
    {"ERR something new", FCAP_SINK_REDIS_ERROR_OTHER, false},
    {"BUSYGROUP is another word", FCAP_SINK_REDIS_ERROR_OTHER, false},
    {"", FCAP_SINK_REDIS_ERROR_OTHER, false},
};

static void test_every_error_is_told_apart_and_healed(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    sink_driver_open(&f->driver);
    for (size_t i = 0; i < sizeof error_cases / sizeof error_cases[0]; i++) {
        const struct error_case *one = &error_cases[i];
        assert_true(sink_driver_until_ready(&f->driver));
        sink_driver_set(&f->driver, "k", "v"); /* Any pause is over. */
        struct fcap_sink_redis_status before = sink_driver_status(&f->driver);
        uint64_t refused = f->driver.results[FCAP_PUSH_REFUSED];
        unsigned sets = atomic_load(&f->fake.sets);
        atomic_store(&f->fake.error, one->text);
        assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_OK);
        assert_true(sink_driver_until_all_acked(&f->driver));
        struct fcap_sink_redis_status after = sink_driver_status(&f->driver);
        assert_int_equal(f->driver.results[FCAP_PUSH_REFUSED], refused + 1);
        assert_int_equal(after.error, one->error);
        assert_string_equal(after.error_text, one->text);
        assert_int_equal(after.counters.errors[one->error], before.counters.errors[one->error] + 1);
        assert_true(after.error_since_ms > 0);
        assert_int_equal(sink_driver_state(&f->driver).ready, !one->reconnects);
        if (one->reconnects) { /* Otherwise a pause of some ms, which may be over by now. */
            assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_BUSY);
        }
        atomic_store(&f->fake.error, NULL);
        assert_true(sink_driver_until_ready(&f->driver));
        sink_driver_set(&f->driver, "k", "v");
        after = sink_driver_status(&f->driver);
        assert_int_equal(after.error, FCAP_SINK_REDIS_ERROR_NONE);
        assert_int_equal(after.error_since_ms, 0);
        assert_int_equal(after.counters.connections_ready,
                         before.counters.connections_ready + one->reconnects);
        /* Nothing was sent again by the sink itself. */
        assert_int_equal(atomic_load(&f->fake.sets), sets + 2);
    }
}

/* While a server refuses everything, pushes are let through one at a time and ever more rarely. */
static void test_repeated_refusals_do_not_spin(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    atomic_store(&f->fake.error, error_cases[0].text);
    for (int i = 0; i < 50; i++) {
        (void)sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v");
    }
    /* Until the first refusal everything is let through, and it may come late on a busy machine. */
    assert_true(sink_driver_until_all_acked(&f->driver));
    int64_t end_ms = lab_monotonic_ms() + 1000;
    while (lab_monotonic_ms() < end_ms) {
        for (int i = 0; i < 50; i++) {
            (void)sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v");
        }
        sink_driver_poll(&f->driver);
    }
    assert_true(sink_driver_until_all_acked(&f->driver));
    /* The first burst, then single ones after 20, 40, 80, 100, 100 ... ms. */
    assert_in_range(f->driver.results[FCAP_PUSH_REFUSED], 50 + 3, 50 + 20);
    assert_int_equal(f->driver.results[FCAP_PUSH_DONE], 0);
    assert_int_equal(sink_driver_status(&f->driver).counters.connections_ready, 1);
}

/* UNLINK passes also when memory is full, so it ends no pause. */
static void test_freeing_memory_does_not_prove_that_it_is_enough(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.identity_interval_ms = 100000;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    atomic_store(&f->fake.error, error_cases[0].text);
    assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_OK);
    assert_true(sink_driver_until_all_acked(&f->driver));
    int64_t end_ms = lab_monotonic_ms() + 10000;
    while (sink_driver_push(&f->driver, FCAP_PUSH_UNLINK, "k", NULL) != FCAP_OK &&
           lab_monotonic_ms() < end_ms) {
        sink_driver_poll(&f->driver);
    }
    assert_true(sink_driver_until_all_acked(&f->driver));
    assert_int_equal(f->driver.results[FCAP_PUSH_DONE], 1);
    assert_int_equal(sink_driver_status(&f->driver).error, FCAP_SINK_REDIS_ERROR_OOM);
}

/* A thousand refusals in one pipeline are one step of the pause, not a thousand. */
static void test_one_wave_of_refusals_is_one_pause(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->driver.settings.backoff_max_ms = 60000;
    sink_driver_open(&f->driver);
    assert_true(sink_driver_until_ready(&f->driver));
    atomic_store(&f->fake.error, error_cases[0].text);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(sink_driver_push(&f->driver, FCAP_PUSH_SET, "k", "v"), FCAP_OK);
    }
    assert_true(sink_driver_until_all_acked(&f->driver));
    assert_int_equal(f->driver.results[FCAP_PUSH_REFUSED], 1000);
    atomic_store(&f->fake.error, NULL);
    int64_t start_ms = lab_monotonic_ms();
    sink_driver_set(&f->driver, "k", "v");
    assert_true(lab_monotonic_ms() - start_ms < 5000);
}

static void test_errors_are_classified_by_their_whole_word(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof error_cases / sizeof error_cases[0]; i++) {
        const char *text = error_cases[i].text;
        assert_int_equal(fcap_sink_redis_error_of(text, strlen(text)), error_cases[i].error);
    }
    assert_int_equal(fcap_sink_redis_error_of("OOM", 3), FCAP_SINK_REDIS_ERROR_OOM);
    assert_int_equal(fcap_sink_redis_error_of("OOM", 2), FCAP_SINK_REDIS_ERROR_OTHER);
    for (unsigned i = 0; i < FCAP_SINK_REDIS_ERROR_COUNT; i++) {
        assert_true(strlen(fcap_sink_redis_error_name((enum fcap_sink_redis_error)i)) > 0);
        assert_true(strlen(fcap_sink_redis_error_cure((enum fcap_sink_redis_error)i)) > 0);
    }
    for (unsigned i = 0; i < FCAP_SINK_REDIS_NEED_COUNT; i++) {
        assert_true(strlen(fcap_sink_redis_need_command((enum fcap_sink_redis_need)i)) > 0);
        assert_true(strlen(fcap_sink_redis_need_promise((enum fcap_sink_redis_need)i)) > 0);
    }
}

static void test_settings_that_cannot_work_are_refused(void **unused)
{
    (void)unused;
    struct fcap_sink *sink = NULL;
    struct fcap_error error;
    struct sink_driver driver;
    sink_driver_init(&driver, 1);
    driver.settings.user = "u";
    assert_int_equal(fcap_sink_redis_open(&driver.settings, &error, &sink), FCAP_CONFIG);
    assert_non_null(strstr(error.text, "redis.password"));
    sink_driver_init(&driver, 0);
    assert_int_equal(fcap_sink_redis_open(&driver.settings, &error, &sink), FCAP_CONFIG);
    assert_non_null(strstr(error.text, "redis.port"));
    sink_driver_init(&driver, 1);
    driver.settings.backoff_max_ms = driver.settings.backoff_min_ms - 1;
    assert_int_equal(fcap_sink_redis_open(&driver.settings, &error, &sink), FCAP_CONFIG);
    assert_null(sink);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_B25_an_old_redis_is_refused_and_an_upgrade_heals),
        CASE(test_B25_a_hidden_version_is_probed_by_behaviour),
        CASE(test_PXAT_cannot_be_degraded_away),
        CASE(test_a_server_without_a_run_id_is_degraded),
        CASE(test_loading_is_waited_for),
        CASE(test_replies_may_be_torn_anywhere),
        CASE(test_what_is_no_redis_is_named),
        CASE(test_a_silent_server_is_given_up_and_tried_again),
        CASE(test_a_greeting_that_turns_us_away_is_understood),
        CASE(test_every_error_is_told_apart_and_healed),
        CASE(test_repeated_refusals_do_not_spin),
        CASE(test_freeing_memory_does_not_prove_that_it_is_enough),
        CASE(test_one_wave_of_refusals_is_one_pause),
        cmocka_unit_test(test_errors_are_classified_by_their_whole_word),
        cmocka_unit_test(test_settings_that_cannot_work_are_refused),
    };
    return cmocka_run_group_tests_name("Redis sink on a scripted server", tests, NULL, NULL);
}
