/* Backfill beside owners, and its clocks: whom it leaves alone, how long it waits, and what it
 * writes in one piece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/backfill_world.h"

/* --- owners and time --- */

static void test_an_open_partition_is_left_alone(void **state)
{
    (void)state;
    backfill_world_add_many(3, 30, 3);
    own.seed.shown_until_ms[1] = INT64_MAX;
    assert_int_equal(backfill_world_run(3), FCAP_OK);
    assert_int_equal(own.report.partitions_open, 1);
    assert_int_equal(fcap_backfill_fate(own.backfill, 1), FCAP_BACKFILL_OPEN);
    assert_int_equal(fake_seed_epoch(&own.seed, 1), 0); /* Not even claimed. */
    assert_int_equal(own.report.users, 20);
    assert_true(backfill_world_has("fc:{u0}:1m"));
    assert_false(backfill_world_has("fc:{u1}:1m"));
    assert_true(backfill_world_has("fc:{u2}:1m"));
}

static void test_an_owner_that_comes_is_left_alone(void **state)
{
    (void)state;
    backfill_world_add_many(2, 30, 3);
    backfill_world_begin(2);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    own.seed.shown_until_ms[0] = INT64_MAX; /* Seen by a later look. */
    own.now.monotonic_ms += FCAP_BACKFILL_LOOK_MS;
    assert_int_equal(fcap_backfill_tick(own.backfill, own.now), FCAP_OK);
    assert_false(fcap_backfill_wants(own.backfill, 0));
    own.seed.shown_until_ms[0] = 0; /* It goes again: that changes nothing. */
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    uint64_t epoch;
    assert_int_equal(own.seed.port.ops->claim(&own.seed.port, 1, &epoch), FCAP_OK);
    assert_int_equal(backfill_world_finish(), FCAP_OK);
    assert_int_equal(own.report.partitions_open, 1);
    assert_int_equal(own.report.partitions_fenced, 1);
    backfill_world_check_untouched();
}

/* How long it waits: not at all for nobody, a session where there was an owner. */
static void test_the_wait_is_as_long_as_it_must(void **state)
{
    (void)state;
    static const struct {
        int claims_before;
        int64_t wait_ms;
    } cases[] = {{0, 5000}, {1, 5000 + 45000 + 4000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (i > 0) {
            (void)backfill_world_teardown(state);
            (void)backfill_world_setup(state);
        }
        uint64_t epoch;
        backfill_world_add_many(1, 5, 2);
        for (int k = 0; k < cases[i].claims_before; k++) {
            assert_int_equal(own.seed.port.ops->claim(&own.seed.port, 0, &epoch), FCAP_OK);
        }
        backfill_world_begin(1);
        assert_int_equal(backfill_world_read(), FCAP_OK);
        assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
        own.now.monotonic_ms += 3000; /* The claims took so long. */
        int64_t begun_ms = own.now.monotonic_ms;
        bool is_done;
        while (own.report.phase < FCAP_BACKFILL_CHECKING) {
            assert_int_equal(fcap_backfill_step(own.backfill, own.now, &is_done), FCAP_OK);
            fcap_backfill_report(own.backfill, &own.report);
            assert_true(own.now.monotonic_ms - begun_ms <= cases[i].wait_ms + 1000);
            own.now.monotonic_ms += 10;
        }
        assert_true(own.now.monotonic_ms - begun_ms >= cases[i].wait_ms);
    }
}

/* A look that walks over many keys is made less often, but the one that ends the wait is not late.
 */
static void test_a_dear_look_is_rare(void **state)
{
    bool is_done;
    backfill_world_add_many(1, 5, 2);
    own.seed.look_cost_ms = 3000;
    backfill_world_begin(1);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    uint64_t looks = own.seed.looks;
    for (int i = 0; i < 600; i++) {
        own.now.monotonic_ms += 100;
        assert_int_equal(fcap_backfill_tick(own.backfill, own.now), FCAP_OK);
    }
    assert_int_equal(own.seed.looks - looks, 2); /* In a minute. */

    (void)backfill_world_teardown(state);
    (void)backfill_world_setup(state);
    backfill_world_add_many(1, 5, 2);
    own.seed.look_cost_ms = 3000;
    backfill_world_begin(1);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    int64_t begun_ms = own.now.monotonic_ms;
    while (own.report.phase < FCAP_BACKFILL_CHECKING) {
        assert_int_equal(fcap_backfill_step(own.backfill, own.now, &is_done), FCAP_OK);
        fcap_backfill_report(own.backfill, &own.report);
        own.now.monotonic_ms += 10;
    }
    assert_in_range(own.now.monotonic_ms - begun_ms, 5000, 5100);
}

static void test_a_clock_that_was_set_back(void **state)
{
    (void)state;
    backfill_world_add_many(1, 5, 2);
    backfill_world_begin(1);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    bool is_done;
    own.now.wall_ms =
        BACKFILL_NOW_MS - 3000; /* Waited for: nothing is shown for a moment before T0. */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(fcap_backfill_step(own.backfill, own.now, &is_done), FCAP_OK);
        own.now.monotonic_ms += 100;
    }
    fcap_backfill_report(own.backfill, &own.report);
    assert_int_equal(own.report.phase, FCAP_BACKFILL_WAITING);
    own.now.wall_ms = BACKFILL_NOW_MS - 3600000; /* No use. */
    own.now.monotonic_ms += 1000;
    assert_int_equal(fcap_backfill_step(own.backfill, own.now, &is_done), FCAP_UNAVAILABLE);
    own.now.wall_ms = BACKFILL_NOW_MS + 1;
    assert_int_equal(backfill_world_finish(), FCAP_OK);
    assert_int_equal(own.report.at_ms, BACKFILL_NOW_MS + 1);
}

/* Time goes on while it folds: what has passed by then is not written. */
static void test_what_has_passed_is_not_written(void **state)
{
    (void)state;
    backfill_world_add(0, "old", "a", BACKFILL_NOW_MS - BACKFILL_MINUTE_MS + 2000);
    backfill_world_add(0, "new", "a", BACKFILL_NOW_MS - 1);
    backfill_world_begin(1);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    bool is_done = false;
    while (own.report.phase < FCAP_BACKFILL_WRITING) {
        assert_int_equal(fcap_backfill_step(own.backfill, own.now, &is_done), FCAP_OK);
        fcap_backfill_report(own.backfill, &own.report);
        own.now.monotonic_ms += 100;
    }
    own.now.wall_ms += 2000;
    own.now.monotonic_ms += 2000;
    assert_int_equal(backfill_world_finish(), FCAP_OK);
    assert_int_equal(own.report.keys_passed, 1);
    assert_int_equal(own.report.keys_written, 5);
    assert_false(backfill_world_has("fc:{old}:1m"));
    assert_true(backfill_world_has("fc:{old}:1h"));
    assert_true(backfill_world_has("fc:{new}:1m"));
}

/* A log that begins late: backfill_windows that reach back beyond it, by partition. */
static void test_windows_that_the_log_cannot_fill(void **state)
{
    static const struct {
        int64_t since_ms; /* of partition 0 */
        bool hour;
        bool day;
    } cases[] = {{FCAP_TIME_NONE, true, true},
                 {BACKFILL_NOW_MS - BACKFILL_DAY_MS, true, true},
                 {BACKFILL_NOW_MS - BACKFILL_DAY_MS + 1, true, false},
                 {BACKFILL_NOW_MS - BACKFILL_HOUR_MS, true, false},
                 {BACKFILL_NOW_MS - BACKFILL_HOUR_MS + 1, false, false}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        (void)backfill_world_teardown(state);
        (void)backfill_world_setup(state);
        bool serves = i % 2 == 1;
        int64_t since_ms[2] = {cases[i / 2].since_ms, FCAP_TIME_NONE};
        own.settings.serve_incomplete = serves;
        backfill_world_add(0, "u", "a", BACKFILL_NOW_MS - 1);
        backfill_world_add(1, "v", "a", BACKFILL_NOW_MS - 1);
        backfill_world_begin(2);
        assert_int_equal(backfill_world_read(), FCAP_OK);
        assert_int_equal(fcap_backfill_read_done(own.backfill, since_ms), FCAP_OK);
        assert_int_equal(backfill_world_finish(), FCAP_OK);
        bool hour = cases[i / 2].hour;
        bool day = cases[i / 2].day;
        assert_true(backfill_world_has("fc:{u}:1m"));
        assert_int_equal(backfill_world_has("fc:{u}:1h"), hour || serves);
        assert_int_equal(backfill_world_has("fc:{u}:1d"), day || serves);
        assert_true(backfill_world_has("fc:{v}:1m") && backfill_world_has("fc:{v}:1h") &&
                    backfill_world_has("fc:{v}:1d"));
        assert_int_equal(own.report.incomplete_mask, (hour ? 0 : 2) | (day ? 0 : 4));
        assert_int_equal(own.report.keys_incomplete, serves ? 0 : !hour + !day);
    }
}

/* The pending keys of a partition whose owner shows itself while Redis is away. */
static void test_what_waits_to_be_sent_is_given_up(void **state)
{
    (void)state;
    bool is_done = false;
    backfill_world_add_many(1, 10, 2);
    backfill_world_begin(1);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    while (own.report.phase < FCAP_BACKFILL_WRITING) {
        assert_int_equal(fcap_backfill_step(own.backfill, own.now, &is_done), FCAP_OK);
        fcap_backfill_report(own.backfill, &own.report);
        own.now.monotonic_ms += 1000;
    }
    assert_int_equal(fcap_backfill_step(own.backfill, own.now, &is_done), FCAP_OK); /* Folds. */
    own.redis.down = true;
    assert_int_equal(fcap_backfill_step(own.backfill, own.now, &is_done), FCAP_UNAVAILABLE);
    own.redis.down = false;
    own.seed.shown_until_ms[0] = INT64_MAX;
    own.now.monotonic_ms += FCAP_BACKFILL_LOOK_MS;
    assert_int_equal(backfill_world_finish(), FCAP_OK);
    assert_int_equal(own.report.partitions_open, 1);
    backfill_world_check_untouched();
}

/* The same beside another partition, which is written. */
static void test_an_owner_that_comes_late_is_left_alone(void **state)
{
    (void)state;
    int64_t since_ms[2] = {BACKFILL_NOW_MS, FCAP_TIME_NONE};
    backfill_world_add_many(2, 10, 2);
    backfill_world_begin(2);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    own.seed.shown_until_ms[0] = INT64_MAX;
    assert_int_equal(fcap_backfill_read_done(own.backfill, since_ms), FCAP_OK);
    assert_int_equal(backfill_world_finish(), FCAP_OK);
    assert_int_equal(own.report.partitions_open, 1);
    assert_int_equal(own.report.users, 5);
    assert_int_equal(own.report.keys_written, 15);
    assert_int_equal(own.report.keys_incomplete, 0); /* Nobody asked for them. */
    assert_int_equal(backfill_world_keys(&own.redis), 15);
}

/* Once is enough: a partition with other owners is not tried again and again. */
static void test_a_fenced_partition_is_given_up(void **state)
{
    (void)state;
    uint64_t epoch;
    backfill_world_add_many(2, 4000, 1);
    backfill_world_begin(2);
    assert_int_equal(backfill_world_read(), FCAP_OK);
    assert_int_equal(fcap_backfill_read_done(own.backfill, NULL), FCAP_OK);
    assert_int_equal(own.seed.port.ops->claim(&own.seed.port, 0, &epoch), FCAP_OK);
    assert_int_equal(backfill_world_finish(), FCAP_OK);
    assert_int_equal(own.seed.fenced, 1);
    assert_int_equal(own.report.partitions_fenced, 1);
    assert_int_equal(fcap_backfill_fate(own.backfill, 0), FCAP_BACKFILL_FENCED);
    assert_int_equal(own.report.keys_written, 6000);
    assert_int_equal(backfill_world_keys(&own.redis), 6000);
}

static int64_t redis_ahead_ms;

static int64_t other_wall_ms(struct fcap_clock *clock)
{
    (void)clock;
    return own.now.wall_ms + redis_ahead_ms;
}

/* T is the earlier clock, so that no daemon is behind it; what is in the future, the later one
 * says, as in `run`. */
static void test_two_clocks_that_differ(void **state)
{
    static const int64_t ahead_ms[] = {-5000, 5000};
    for (size_t i = 0; i < sizeof ahead_ms / sizeof ahead_ms[0]; i++) {
        (void)backfill_world_teardown(state);
        (void)backfill_world_setup(state);
        struct fcap_clock other = {other_wall_ms, own.clock.monotonic_ms};
        own.redis.clock = &other;
        redis_ahead_ms = ahead_ms[i];
        int64_t later_ms = BACKFILL_NOW_MS + (ahead_ms[i] > 0 ? ahead_ms[i] : 0);
        backfill_world_add(0, "u", "a", later_ms + BACKFILL_SKEW_MS);
        backfill_world_add(0, "v", "a", later_ms + BACKFILL_SKEW_MS + 1);
        assert_int_equal(backfill_world_run(1), FCAP_OK);
        assert_int_equal(own.report.rejects[FCAP_REJECT_FUTURE], 1);
        assert_int_equal(own.report.at_ms, BACKFILL_NOW_MS - (ahead_ms[i] < 0 ? 5000 : 0));
        assert_true(backfill_world_has("fc:{u}:1m"));
        assert_false(backfill_world_has("fc:{v}:1m"));
        own.redis.clock = &own.clock;
    }
}

/* --- transactions --- */

static size_t users_torn;
static size_t keys_most;

static void check_transaction(void *context, int32_t partition, const struct fcap_seed_key *keys,
                              size_t count)
{
    (void)context;
    keys_most = count > keys_most ? count : keys_most;
    assert_true(count > 0 && count < FCAP_BACKFILL_KEYS_MAX + BACKFILL_WINDOWS);
    assert_int_equal(fcap_backfill_fate(own.backfill, partition), FCAP_BACKFILL_CLAIMED);
    /* Every user here has all backfill_windows, one after the other. */
    for (size_t i = 0; i < count; i++) {
        size_t name = keys[i].key.size - 2;
        const char *wanted = backfill_windows[i % BACKFILL_WINDOWS].name;
        users_torn += memcmp(keys[i].key.data + name, wanted, 2) != 0;
        users_torn +=
            i % BACKFILL_WINDOWS > 0 && memcmp(keys[i].key.data, keys[i - 1].key.data, name) != 0;
    }
    users_torn += count % BACKFILL_WINDOWS != 0;
}

static void test_a_users_windows_are_written_together(void **state)
{
    (void)state;
    users_torn = 0;
    keys_most = 0;
    own.seed.transaction = check_transaction;
    backfill_world_add_many(3, 2000, 1);
    assert_int_equal(backfill_world_run(3), FCAP_OK);
    assert_int_equal(users_torn, 0);
    assert_true(keys_most >= FCAP_BACKFILL_KEYS_MAX);
    assert_int_equal(own.report.keys_written, 6000);
    assert_true(own.seed.transactions <= 3 + 6000 / FCAP_BACKFILL_KEYS_MAX);
}

static void test_what_is_there_stays(void **state)
{
    (void)state;
    backfill_world_add_many(1, 10, 2);
    assert_int_equal(backfill_world_run(1), FCAP_OK);
    fcap_backfill_close(own.backfill);
    struct fcap_bytes value;
    int64_t expire_at_ms;
    backfill_world_add(0, "u3", "c", BACKFILL_NOW_MS - 1);
    own.now.wall_ms += 10;
    assert_int_equal(backfill_world_run(1), FCAP_OK);
    assert_int_equal(own.report.keys_kept, 30);
    assert_int_equal(own.report.keys_written, 0);
    assert_true(
        fcap_fake_redis_get(&own.redis, fcap_bytes_of("fc:{u3}:1m"), &value, &expire_at_ms));
    assert_null(memmem(value.data, value.size, "\"c\"", 3));
}

#define CASE(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, backfill_world_setup, backfill_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_an_open_partition_is_left_alone),
        CASE(test_an_owner_that_comes_is_left_alone),
        CASE(test_the_wait_is_as_long_as_it_must),
        CASE(test_a_dear_look_is_rare),
        CASE(test_a_clock_that_was_set_back),
        CASE(test_what_has_passed_is_not_written),
        CASE(test_windows_that_the_log_cannot_fill),
        CASE(test_what_waits_to_be_sent_is_given_up),
        CASE(test_an_owner_that_comes_late_is_left_alone),
        CASE(test_a_fenced_partition_is_given_up),
        CASE(test_two_clocks_that_differ),
        CASE(test_a_users_windows_are_written_together),
        CASE(test_what_is_there_stays),
    };
    return cmocka_run_group_tests_name("backfill_owners", tests, NULL, NULL);
}
