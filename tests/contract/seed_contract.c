#include "contract/seed_contract.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { PARTITIONS = 4, TRIES = 200, HOUR_MS = 3600 * 1000 };

static const struct seed_world *world;
static struct fcap_seed *seed;
static bool open[PARTITIONS];
static struct fcap_seed_time seen;

static struct fcap_seed_key key_of(const char *key, const char *value)
{
    return (struct fcap_seed_key){.key = fcap_bytes_of(key),
                                  .value = fcap_bytes_of(value),
                                  .expire_at_ms = world->now_ms() + HOUR_MS};
}

/* RETRY is made again, for a while. */
static enum fcap_status look(void)
{
    enum fcap_status status = FCAP_UNAVAILABLE;
    for (int i = 0; i < TRIES && fcap_status_class(status) == FCAP_CLASS_RETRY; i++) {
        status = seed->ops->look(seed, PARTITIONS, open, &seen);
    }
    return status;
}

static enum fcap_status claim(int32_t partition, uint64_t *ret_epoch)
{
    enum fcap_status status = FCAP_UNAVAILABLE;
    for (int i = 0; i < TRIES && fcap_status_class(status) == FCAP_CLASS_RETRY; i++) {
        status = seed->ops->claim(seed, partition, ret_epoch);
    }
    return status;
}

static enum fcap_status write_keys(int32_t partition, uint64_t epoch,
                                   const struct fcap_seed_key *keys, size_t count,
                                   size_t *ret_written, bool *ret_fenced)
{
    enum fcap_status status = FCAP_UNAVAILABLE;
    for (int i = 0; i < TRIES && fcap_status_class(status) == FCAP_CLASS_RETRY; i++) {
        status = seed->ops->write(seed, partition, epoch, keys, count, ret_written, ret_fenced);
    }
    return status;
}

static void key_is(const char *key, const char *value)
{
    int64_t expire_at_ms;
    const char *found = world->get(key, &expire_at_ms);
    if (value == NULL) {
        assert_null(found);
    } else {
        assert_non_null(found);
        assert_string_equal(found, value);
    }
}

static void test_a_look_sees_who_is_shown(void **unused)
{
    (void)unused;
    assert_int_equal(look(), FCAP_OK);
    for (int i = 0; i < PARTITIONS; i++) {
        assert_false(open[i]);
    }
    int64_t offset_ms = seen.time_ms - world->now_ms();
    assert_true(offset_ms > -5000 && offset_ms < 5000);
    world->show(1, true);
    world->show(3, true);
    assert_int_equal(look(), FCAP_OK);
    assert_false(open[0]);
    assert_true(open[1]);
    assert_false(open[2]);
    assert_true(open[3]);
    world->show(1, false);
    assert_int_equal(look(), FCAP_OK);
    assert_false(open[1]);
    assert_true(open[3]);
}

static void test_a_claim_is_an_increment(void **unused)
{
    (void)unused;
    uint64_t epoch;
    assert_int_equal(look(), FCAP_OK);
    assert_int_equal(claim(2, &epoch), FCAP_OK);
    assert_int_equal(epoch, 1);
    assert_int_equal(world->increment(2), 2);
    assert_int_equal(claim(2, &epoch), FCAP_OK);
    assert_int_equal(epoch, 3);
    assert_int_equal(claim(0, &epoch), FCAP_OK);
    assert_int_equal(epoch, 1); /* Each partition has its own. */
}

static void test_what_is_there_is_kept(void **unused)
{
    (void)unused;
    uint64_t epoch;
    size_t written;
    bool is_fenced;
    int64_t expire_at_ms;
    assert_int_equal(look(), FCAP_OK);
    assert_int_equal(claim(1, &epoch), FCAP_OK);
    world->set("fc:{b}:1d", "live");
    const struct fcap_seed_key keys[] = {key_of("fc:{a}:1d", "one"), key_of("fc:{b}:1d", "two"),
                                         key_of("fc:{c}:1d", "three")};
    assert_int_equal(write_keys(1, epoch, keys, 3, &written, &is_fenced), FCAP_OK);
    assert_false(is_fenced);
    assert_int_equal(written, 2);
    key_is("fc:{a}:1d", "one");
    key_is("fc:{b}:1d", "live");
    assert_non_null(world->get("fc:{c}:1d", &expire_at_ms));
    assert_int_equal(expire_at_ms, keys[2].expire_at_ms);
    assert_int_equal(write_keys(1, epoch, keys, 3, &written, &is_fenced), FCAP_OK);
    assert_int_equal(written, 0); /* It knows that the first one was done. */
}

/* As many keys as a transaction may have, some of them with odd bytes. */
static void test_a_large_transaction(void **unused)
{
    (void)unused;
    enum { KEYS = 508 };
    static char names[KEYS][24];
    static char value[3000];
    struct fcap_seed_key keys[KEYS];
    uint64_t epoch;
    size_t written;
    bool is_fenced;
    memset(value, '"', sizeof value - 1);
    value[7] = '\n';
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(names[i], sizeof names[i], "fc:{u%d}:1d", i);
        keys[i] = key_of(names[i], value);
    }
    assert_int_equal(look(), FCAP_OK);
    assert_int_equal(claim(1, &epoch), FCAP_OK);
    assert_int_equal(write_keys(1, epoch, keys, KEYS, &written, &is_fenced), FCAP_OK);
    assert_int_equal(written, KEYS);
    key_is("fc:{u0}:1d", value);
    key_is("fc:{u507}:1d", value);
}

static void test_another_epoch_fences(void **unused)
{
    (void)unused;
    uint64_t epoch;
    size_t written;
    bool is_fenced;
    const struct fcap_seed_key key = key_of("fc:{a}:1d", "one");
    assert_int_equal(look(), FCAP_OK);
    assert_int_equal(claim(1, &epoch), FCAP_OK);
    (void)world->increment(1);
    assert_int_equal(write_keys(1, epoch, &key, 1, &written, &is_fenced), FCAP_OK);
    assert_true(is_fenced);
    assert_int_equal(written, 0);
    key_is("fc:{a}:1d", NULL);
    assert_int_equal(claim(2, &epoch), FCAP_OK); /* The others go on. */
    assert_int_equal(write_keys(2, epoch, &key, 1, &written, &is_fenced), FCAP_OK);
    assert_false(is_fenced);
    assert_int_equal(written, 1);
}

static void everything_is_foreign(uint64_t epoch)
{
    uint64_t other;
    size_t written;
    bool is_fenced;
    const struct fcap_seed_key key = key_of("fc:{a}:1d", "one");
    assert_int_equal(write_keys(1, epoch, &key, 1, &written, &is_fenced), FCAP_FOREIGN);
    assert_int_equal(claim(2, &other), FCAP_FOREIGN);
    assert_int_equal(look(), FCAP_FOREIGN);
    key_is("fc:{a}:1d", NULL);
    key_is("fc:epoch:p:2", NULL);
}

static void test_an_emptied_redis_is_foreign(void **unused)
{
    (void)unused;
    uint64_t epoch;
    assert_int_equal(look(), FCAP_OK);
    assert_int_equal(claim(1, &epoch), FCAP_OK);
    world->flush();
    everything_is_foreign(epoch);
}

static void test_a_redis_without_its_sentinel_is_foreign(void **unused)
{
    (void)unused;
    uint64_t epoch;
    assert_int_equal(look(), FCAP_OK);
    assert_int_equal(claim(1, &epoch), FCAP_OK);
    world->delete_sentinel();
    everything_is_foreign(epoch);
}

/* Another process, though with the same data: what it had not saved may be missing. */
static void test_a_restarted_redis_is_foreign(void **unused)
{
    (void)unused;
    for (int keep = 0; keep < 2; keep++) {
        uint64_t epoch;
        assert_int_equal(look(), FCAP_OK);
        assert_int_equal(claim(1, &epoch), FCAP_OK);
        world->restart(keep == 1);
        everything_is_foreign(epoch);
        if (keep == 0) {
            world->stop();
            seed = world->start();
        }
    }
}

static void test_a_redis_that_is_away_is_waited_for(void **unused)
{
    (void)unused;
    assert_int_equal(look(), FCAP_OK);
    world->down(true);
    assert_int_equal(fcap_status_class(seed->ops->look(seed, PARTITIONS, open, &seen)),
                     FCAP_CLASS_RETRY);
    world->down(false);
    assert_int_equal(look(), FCAP_OK);
}

static int start(void **unused)
{
    (void)unused;
    seed = world->start();
    return 0;
}

static int stop(void **unused)
{
    (void)unused;
    world->stop();
    return 0;
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, start, stop)

int seed_contract_run(const struct seed_world *given)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_look_sees_who_is_shown),
        CASE(test_a_claim_is_an_increment),
        CASE(test_what_is_there_is_kept),
        CASE(test_a_large_transaction),
        CASE(test_another_epoch_fences),
        CASE(test_an_emptied_redis_is_foreign),
        CASE(test_a_redis_without_its_sentinel_is_foreign),
        CASE(test_a_restarted_redis_is_foreign),
        CASE(test_a_redis_that_is_away_is_waited_for),
    };
    world = given;
    return cmocka_run_group_tests_name(given->name, tests, NULL, NULL);
}
