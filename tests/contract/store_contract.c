#include "contract/store_contract.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { IN_FLIGHT_MAX = 8, DEADLINE_S = 60 };

static struct fixture {
    const struct store_contract_subject *subject;
    struct fcap_store *store;
    struct fcap_buffer value;
} fixture;

static int set_up(void **state)
{
    fixture.subject->open();
    fixture.store = fixture.subject->handle();
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture.subject->close();
    fcap_buffer_done(&fixture.value);
    return 0;
}

static struct fcap_bytes text(const char *t)
{
    return fcap_bytes_of(t);
}

static void put(struct fcap_batch *batch, enum fcap_family family, const char *key,
                const char *value)
{
    fcap_batch_add(batch, family, FCAP_CHANGE_PUT, text(key), text(value));
}

/* The oldest result of a handle; waits for it. */
static enum fcap_status await(struct fcap_store *store, const struct fcap_batch *expected)
{
    const struct fcap_batch *batch = NULL;
    enum fcap_status result = FCAP_OK;
    time_t deadline = time(NULL) + DEADLINE_S;
    while (batch == NULL && time(NULL) < deadline) {
        assert_int_equal(store->ops->completed(store, 100, &batch, &result), FCAP_OK);
    }
    assert_ptr_equal(batch, expected);
    return result;
}

static enum fcap_status commit(struct fcap_store *store, const struct fcap_batch *batch)
{
    assert_int_equal(store->ops->submit(store, batch), FCAP_OK);
    return await(store, batch);
}

static int64_t claim(struct fcap_store *store, int32_t partition, uint64_t assignment)
{
    int64_t dropped_ms = -1;
    assert_int_equal(store->ops->claim(store, partition, assignment, &dropped_ms), FCAP_OK);
    return dropped_ms;
}

static void expect(struct fcap_store *store, enum fcap_family family, const char *key,
                   const char *value)
{
    bool found = value == NULL;
    fcap_buffer_put_text(&fixture.value, "left over from the last call");
    assert_int_equal(store->ops->get(store, family, text(key), &fixture.value, &found), FCAP_OK);
    assert_int_equal(found, value != NULL);
    assert_int_equal(fixture.value.size, value == NULL ? 0 : strlen(value));
    if (value != NULL && value[0] != '\0') {
        assert_memory_equal(fixture.value.data, value, strlen(value));
    }
}

static void durable(struct fcap_store *store)
{
    uint64_t ticket = 0;
    bool done = false;
    time_t deadline = time(NULL) + DEADLINE_S;
    while (!done && time(NULL) < deadline) {
        assert_int_equal(store->ops->sync(store, &ticket, &done), FCAP_OK);
    }
    assert_true(done);
    assert_true(ticket > 0);
}

/* Collects keys as "a,b,". */
struct collected {
    char keys[1024];
    size_t stop_after;
    size_t count;
};

static bool collect(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct collected *collected = context;
    size_t used = strlen(collected->keys);
    (void)value;
    (void)snprintf(collected->keys + used, sizeof collected->keys - used, "%.*s,", (int)key.size,
                   (const char *)key.data); /* Big enough for these tests. */
    return ++collected->count != collected->stop_after;
}

static void expect_scan(enum fcap_family family, const char *from, const char *to,
                        size_t stop_after, const char *keys)
{
    struct collected collected = {.stop_after = stop_after};
    assert_int_equal(
        fixture.store->ops->scan(fixture.store, family, text(from), text(to), collect, &collected),
        FCAP_OK);
    assert_string_equal(collected.keys, keys);
}

static void get_tells_absent_from_empty(void **state)
{
    (void)state;
    struct fcap_batch batch = {0};
    claim(fixture.store, 3, 1);
    fcap_batch_section(&batch, 3, 1, 1);
    put(&batch, FCAP_FAMILY_USERS, "empty", "");
    put(&batch, FCAP_FAMILY_USERS, "full", "some");
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    expect(fixture.store, FCAP_FAMILY_USERS, "none", NULL);
    expect(fixture.store, FCAP_FAMILY_USERS, "empty", "");
    expect(fixture.store, FCAP_FAMILY_USERS, "full", "some");
    expect(fixture.store, FCAP_FAMILY_ADS, "full", NULL); /* Families are apart. */
    fcap_batch_done(&batch);
}

static void scan_keeps_order_and_bounds(void **state)
{
    (void)state;
    struct fcap_batch batch = {0};
    claim(fixture.store, 3, 1);
    fcap_batch_section(&batch, 3, 1, 1);
    put(&batch, FCAP_FAMILY_TIMERS, "b", "2");
    put(&batch, FCAP_FAMILY_TIMERS, "a", "1");
    put(&batch, FCAP_FAMILY_TIMERS, "ba", "3");
    put(&batch, FCAP_FAMILY_TIMERS, "b\x01", "x");
    put(&batch, FCAP_FAMILY_TIMERS, "\xff\xff", "last");
    put(&batch, FCAP_FAMILY_TIMERS, "c", "4");
    put(&batch, FCAP_FAMILY_USERS, "bb", "elsewhere");
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    expect_scan(FCAP_FAMILY_TIMERS, "", "", 0, "a,b,b\x01,ba,c,\xff\xff,");
    expect_scan(FCAP_FAMILY_TIMERS, "b", "c", 0, "b,b\x01,ba,"); /* from <= key < to */
    expect_scan(FCAP_FAMILY_TIMERS, "b\x01\x01", "", 0, "ba,c,\xff\xff,");
    expect_scan(FCAP_FAMILY_TIMERS, "", "b", 0, "a,");
    expect_scan(FCAP_FAMILY_TIMERS, "b", "b", 0, "");
    expect_scan(FCAP_FAMILY_TIMERS, "d", "e", 0, "");
    expect_scan(FCAP_FAMILY_TIMERS, "", "", 2, "a,b,");
    expect_scan(FCAP_FAMILY_META, "", "\xff", 0, "");
    fcap_batch_done(&batch);
}

static bool count_key(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    (void)key;
    (void)value;
    ++*(size_t *)context;
    return true;
}

static size_t count_keys(enum fcap_family family)
{
    size_t count = 0;
    assert_int_equal(
        fixture.store->ops->scan(fixture.store, family, text(""), text("\x01"), count_key, &count),
        FCAP_OK);
    return count;
}

static void changes_of_a_batch_apply_in_order(void **state)
{
    (void)state;
    struct fcap_batch batch = {0};
    claim(fixture.store, 3, 1);
    fcap_batch_section(&batch, 3, 1, 1);
    put(&batch, FCAP_FAMILY_ADS, "a", "1");
    put(&batch, FCAP_FAMILY_ADS, "b", "1");
    put(&batch, FCAP_FAMILY_ADS, "c", "1");
    put(&batch, FCAP_FAMILY_ADS, "d", "1");
    fcap_batch_add(&batch, FCAP_FAMILY_ADS, FCAP_CHANGE_DELETE, text("a"), FCAP_BYTES_NONE);
    put(&batch, FCAP_FAMILY_ADS, "a", "2");
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    fcap_batch_clear(&batch);
    fcap_batch_section(&batch, 3, 1, 2);
    fcap_batch_add(&batch, FCAP_FAMILY_ADS, FCAP_CHANGE_DELETE_RANGE, text("b"), text("d"));
    put(&batch, FCAP_FAMILY_ADS, "c", "3");
    fcap_batch_add(&batch, FCAP_FAMILY_ADS, FCAP_CHANGE_DELETE, text("none"), FCAP_BYTES_NONE);
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    expect(fixture.store, FCAP_FAMILY_ADS, "a", "2");
    expect(fixture.store, FCAP_FAMILY_ADS, "b", NULL);
    expect(fixture.store, FCAP_FAMILY_ADS, "c", "3");
    expect(fixture.store, FCAP_FAMILY_ADS, "d", "1"); /* The end is exclusive. */
    expect_scan(FCAP_FAMILY_ADS, "", "", 0, "a,c,d,");
    fcap_batch_done(&batch);
}

/* As the first commit of a partition whose old state is worth nothing: RocksDB 7.8 mixed up where
 * to insert keys and where ranges when both began with the same bytes. */
static void a_partition_is_deleted_and_filled_again(void **state)
{
    enum { ROUNDS = 4, KEYS = 200, PARTITIONS = 2 };
    static const enum fcap_family families[] = {FCAP_FAMILY_META, FCAP_FAMILY_USERS,
                                                FCAP_FAMILY_ADS};
    (void)state;
    struct fcap_batch batch = {0};
    claim(fixture.store, 1, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        fcap_batch_clear(&batch);
        fcap_batch_section(&batch, 1, 1, round + 1);
        for (size_t i = 0; i < 3 * PARTITIONS * KEYS; i++) {
            char key[] = {'\0', (char)('1' + i / KEYS % PARTITIONS), (char)('a' + i % KEYS / 20),
                          (char)('a' + i % KEYS % 20), (char)('0' + round)};
            char next[] = {'\0', (char)(key[1] + 1)};
            enum fcap_family family = families[i / KEYS / PARTITIONS];
            if (i % KEYS == 0) {
                fcap_batch_add(&batch, family, FCAP_CHANGE_DELETE_RANGE,
                               (struct fcap_bytes){(const uint8_t *)key, 2},
                               (struct fcap_bytes){(const uint8_t *)next, 2});
            }
            fcap_batch_add(&batch, family, FCAP_CHANGE_PUT,
                           (struct fcap_bytes){(const uint8_t *)key, sizeof key}, text("x"));
        }
        assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(count_keys(families[i]), PARTITIONS * KEYS);
        }
    }
    fcap_batch_done(&batch);
}

static void sections_of_ended_assignments_are_refused(void **state)
{
    (void)state;
    struct fcap_batch batch = {0};
    claim(fixture.store, 1, 10);
    claim(fixture.store, 2, 11);
    fcap_batch_section(&batch, 1, 10, 1);
    put(&batch, FCAP_FAMILY_USERS, "current", "1");
    put(&batch, FCAP_FAMILY_META, "current", "1");
    fcap_batch_section(&batch, 2, 10, 1);
    put(&batch, FCAP_FAMILY_USERS, "old number", "1");
    fcap_batch_section(&batch, 2, 12, 1);
    put(&batch, FCAP_FAMILY_USERS, "future number", "1");
    fcap_batch_section(&batch, 7, 10, 1);
    put(&batch, FCAP_FAMILY_USERS, "never claimed", "1");
    fcap_batch_section(&batch, 2, 11, 1);
    put(&batch, FCAP_FAMILY_USERS, "current too", "1");
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    expect_scan(FCAP_FAMILY_USERS, "", "", 0, "current,current too,");

    fixture.store->ops->disclaim(fixture.store, 2);
    fcap_batch_clear(&batch);
    fcap_batch_section(&batch, 2, 11, 2);
    put(&batch, FCAP_FAMILY_USERS, "disclaimed", "1");
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    expect(fixture.store, FCAP_FAMILY_USERS, "disclaimed", NULL);
    fcap_batch_done(&batch);
}

static void a_claim_counts_for_batches_already_waiting(void **state)
{
    (void)state;
    struct fcap_batch first = {0};
    struct fcap_batch second = {0};
    claim(fixture.store, 1, 10);
    fcap_batch_section(&first, 1, 10, 1);
    put(&first, FCAP_FAMILY_USERS, "a", "1");
    fcap_batch_section(&second, 1, 10, 2);
    put(&second, FCAP_FAMILY_USERS, "a", "2");
    assert_int_equal(fixture.store->ops->submit(fixture.store, &first), FCAP_OK);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &second), FCAP_OK);
    struct fcap_store *other = fixture.subject->handle();
    claim(other, 1, 11);
    /* What got through before the claim may stand, but nothing changes after it. */
    bool found = false;
    struct fcap_buffer before = {0};
    assert_int_equal(other->ops->get(other, FCAP_FAMILY_USERS, text("a"), &before, &found),
                     FCAP_OK);
    assert_int_equal(await(fixture.store, &first), FCAP_OK);
    assert_int_equal(await(fixture.store, &second), FCAP_OK);
    fcap_buffer_put_u8(&before, 0);
    expect(other, FCAP_FAMILY_USERS, "a", found ? (const char *)before.data : NULL);
    fcap_buffer_done(&before);
    fcap_batch_done(&first);
    fcap_batch_done(&second);
}

static void the_newer_claim_wins(void **state)
{
    (void)state;
    struct fcap_store *other = fixture.subject->handle();
    struct fcap_batch batch = {0};
    int64_t dropped_ms = 0;
    claim(fixture.store, 1, 10);
    claim(other, 1, 11);
    assert_int_equal(fixture.store->ops->claim(fixture.store, 1, 9, &dropped_ms), FCAP_FENCED);
    assert_int_equal(fixture.store->ops->claim(fixture.store, 1, 11, &dropped_ms), FCAP_FENCED);
    assert_int_equal(fcap_status_class(FCAP_FENCED), FCAP_CLASS_RETRY);
    fixture.store->ops->disclaim(fixture.store, 1); /* Not its own any more: changes nothing. */
    fcap_batch_section(&batch, 1, 11, 1);
    put(&batch, FCAP_FAMILY_USERS, "new", "1");
    fcap_batch_section(&batch, 1, 10, 1);
    put(&batch, FCAP_FAMILY_USERS, "old", "1");
    assert_int_equal(commit(other, &batch), FCAP_OK);
    expect_scan(FCAP_FAMILY_USERS, "", "", 0, "new,");
    /* An older number does not come back after the newer one has gone. */
    other->ops->disclaim(other, 1);
    assert_int_equal(fixture.store->ops->claim(fixture.store, 1, 10, &dropped_ms), FCAP_FENCED);
    claim(fixture.store, 1, 12);
    fcap_batch_done(&batch);
}

static void partitions_have_a_limit(void **state)
{
    (void)state;
    int64_t dropped_ms = 0;
    claim(fixture.store, 0xFFFE, 1);
    assert_int_equal(fixture.store->ops->claim(fixture.store, 0xFFFF, 1, &dropped_ms), FCAP_LIMIT);
    assert_int_equal(fixture.store->ops->claim(fixture.store, -1, 1, &dropped_ms), FCAP_LIMIT);
}

static void completions_come_in_order(void **state)
{
    (void)state;
    struct fcap_store *other = fixture.subject->handle();
    struct fcap_batch mine[IN_FLIGHT_MAX] = {0};
    struct fcap_batch others[IN_FLIGHT_MAX] = {0};
    const struct fcap_batch *batch = &mine[0];
    enum fcap_status result = FCAP_IO;
    assert_int_equal(other->ops->completed(other, 0, &batch, &result), FCAP_OK);
    assert_null(batch); /* Nothing was submitted. */
    claim(fixture.store, 1, 10);
    claim(other, 2, 11);
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        char value[2] = {(char)('0' + i), '\0'};
        fcap_batch_section(&mine[i], 1, 10, i + 1);
        put(&mine[i], FCAP_FAMILY_META, "mine", value);
        fcap_batch_section(&others[i], 2, 11, i + 1);
        put(&others[i], FCAP_FAMILY_META, "others", value);
        assert_int_equal(fixture.store->ops->submit(fixture.store, &mine[i]), FCAP_OK);
        assert_int_equal(other->ops->submit(other, &others[i]), FCAP_OK);
    }
    assert_int_equal(fixture.store->ops->submit(fixture.store, &mine[0]), FCAP_BUSY);
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        assert_int_equal(await(other, &others[i]), FCAP_OK);
    }
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        assert_int_equal(await(fixture.store, &mine[i]), FCAP_OK);
    }
    expect(other, FCAP_FAMILY_META, "mine", "7"); /* Each handle sees what others committed. */
    expect(fixture.store, FCAP_FAMILY_META, "others", "7");
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        fcap_batch_done(&mine[i]);
        fcap_batch_done(&others[i]);
    }
}

static void an_empty_batch_completes(void **state)
{
    (void)state;
    struct fcap_batch batch = {0};
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    claim(fixture.store, 1, 1);
    fcap_batch_section(&batch, 1, 1, 1);
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    fcap_batch_done(&batch);
}

static void a_failed_batch_is_not_overtaken(void **state)
{
    (void)state;
    struct fcap_store *other = fixture.subject->handle();
    struct fcap_batch first = {0};
    struct fcap_batch second = {0};
    struct fcap_batch foreign = {0};
    claim(fixture.store, 1, 10);
    claim(other, 2, 11);
    fcap_batch_section(&first, 1, 10, 1);
    put(&first, FCAP_FAMILY_META, "offset", "1");
    put(&first, FCAP_FAMILY_USERS, "first", "1");
    fcap_batch_section(&second, 1, 10, 2);
    put(&second, FCAP_FAMILY_META, "offset", "2");
    fcap_batch_section(&foreign, 2, 11, 1);
    put(&foreign, FCAP_FAMILY_META, "foreign", "1");

    fixture.subject->fail_next(1);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &first), FCAP_OK);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &second), FCAP_OK);
    assert_int_equal(other->ops->submit(other, &foreign), FCAP_OK);
    assert_int_equal(fcap_status_class(await(fixture.store, &first)), FCAP_CLASS_RETRY);
    assert_int_equal(fcap_status_class(await(fixture.store, &second)), FCAP_CLASS_RETRY);
    assert_int_equal(await(other, &foreign), FCAP_OK); /* Another worker is not disturbed. */
    expect(other, FCAP_FAMILY_META, "offset", NULL);
    expect(other, FCAP_FAMILY_USERS, "first", NULL);

    assert_int_equal(fixture.store->ops->submit(fixture.store, &first), FCAP_OK);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &second), FCAP_OK);
    assert_int_equal(await(fixture.store, &first), FCAP_OK);
    assert_int_equal(await(fixture.store, &second), FCAP_OK);
    expect(other, FCAP_FAMILY_META, "offset", "2");
    expect(other, FCAP_FAMILY_USERS, "first", "1");
    fcap_batch_done(&first);
    fcap_batch_done(&second);
    fcap_batch_done(&foreign);
}

static void what_fails_again_stays_in_order(void **state)
{
    (void)state;
    struct fcap_batch batches[3] = {0};
    claim(fixture.store, 1, 10);
    for (size_t i = 0; i < 3; i++) {
        char value[2] = {(char)('1' + i), '\0'};
        fcap_batch_section(&batches[i], 1, 10, i + 1);
        put(&batches[i], FCAP_FAMILY_META, "offset", value);
        put(&batches[i], FCAP_FAMILY_USERS, value, value);
    }
    /* The second follows while the first has failed already, unknown to the worker. */
    fixture.subject->fail_next(2);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &batches[0]), FCAP_OK);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &batches[1]), FCAP_OK);
    assert_int_not_equal(await(fixture.store, &batches[0]), FCAP_OK);
    assert_int_not_equal(await(fixture.store, &batches[1]), FCAP_OK);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &batches[0]), FCAP_OK);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &batches[1]), FCAP_OK);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &batches[2]), FCAP_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_not_equal(await(fixture.store, &batches[i]), FCAP_OK); /* Fails once more. */
    }
    expect_scan(FCAP_FAMILY_USERS, "", "", 0, "");
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(commit(fixture.store, &batches[i]), FCAP_OK);
        fcap_batch_done(&batches[i]);
    }
    expect(fixture.store, FCAP_FAMILY_META, "offset", "3");
    expect_scan(FCAP_FAMILY_USERS, "", "", 0, "1,2,3,");
}

static void sync_ends(void **state)
{
    (void)state;
    struct fcap_batch batch = {0};
    durable(fixture.store); /* With nothing written. */
    claim(fixture.store, 1, 1);
    fcap_batch_section(&batch, 1, 1, 1);
    put(&batch, FCAP_FAMILY_META, "a", "1");
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    durable(fixture.store);
    durable(fixture.store);
    expect(fixture.store, FCAP_FAMILY_META, "a", "1");
    fcap_batch_done(&batch);
}

static struct fcap_bytes timer_key(struct fcap_buffer *key, uint64_t bucket_ms, uint16_t partition)
{
    fcap_buffer_clear(key);
    fcap_buffer_put_be64(key, bucket_ms);
    fcap_buffer_put_be16(key, partition);
    fcap_buffer_put_be64(key, 1);
    fcap_buffer_put_be16(key, 0);
    return fcap_buffer_bytes(key);
}

static bool has_timer(uint64_t bucket_ms, uint16_t partition)
{
    struct fcap_buffer key = {0};
    bool found = false;
    assert_int_equal(fixture.store->ops->get(fixture.store, FCAP_FAMILY_TIMERS,
                                             timer_key(&key, bucket_ms, partition), &fixture.value,
                                             &found),
                     FCAP_OK);
    fcap_buffer_done(&key);
    return found;
}

static void release_never_takes_what_is_needed(void **state)
{
    (void)state;
    struct fcap_batch batch = {0};
    struct fcap_buffer key = {0};
    struct fcap_store *other = fixture.subject->handle();
    assert_int_equal(claim(fixture.store, 1, 10), 0); /* Nothing was dropped yet. */
    claim(other, 2, 11);
    fcap_batch_section(&batch, 1, 10, 1);
    for (uint64_t bucket = 0; bucket < 100; bucket++) {
        fcap_batch_add(&batch, FCAP_FAMILY_TIMERS, FCAP_CHANGE_PUT,
                       timer_key(&key, bucket * 1000, 1), text("chunk"));
    }
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    durable(fixture.store);

    fixture.store->ops->release(fixture.store, 1, 50000);
    assert_true(has_timer(0, 1)); /* The other partition has not said anything: all stays. */
    fixture.store->ops->release(other, 2, 10); /* Not the owner's handle: no effect. */
    other->ops->release(other, 2, 20000);
    other->ops->release(other, 2, 30000);
    other->ops->release(other, 2, 25000); /* Never backwards, but not wrong either. */
    int64_t dropped_ms = claim(fixture.store, 3, 12);
    assert_true(dropped_ms >= 0 && dropped_ms <= 30000);
    for (uint64_t bucket = 0; bucket < 100; bucket++) {
        if ((int64_t)bucket * 1000 >= 30000) {
            assert_true(has_timer(bucket * 1000, 1));
        }
    }
    /* The newly claimed partition needs everything from now on. */
    fixture.store->ops->release(fixture.store, 1, 99000);
    other->ops->release(other, 2, 99000);
    assert_true(claim(fixture.store, 4, 13) <= 30000);
    for (uint64_t bucket = 30; bucket < 100; bucket++) {
        assert_true(has_timer(bucket * 1000, 1));
    }
    fcap_buffer_done(&key);
    fcap_batch_done(&batch);
}

static void state_survives_reopening_and_claims_do_not(void **state)
{
    (void)state;
    struct fcap_batch batch = {0};
    claim(fixture.store, 1, 10);
    fcap_batch_section(&batch, 1, 10, 1);
    put(&batch, FCAP_FAMILY_META, "m", "1");
    put(&batch, FCAP_FAMILY_USERS, "u", "1");
    put(&batch, FCAP_FAMILY_TIMERS, "t", "1");
    put(&batch, FCAP_FAMILY_ADS, "a", "1");
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    fixture.subject->reopen();
    fixture.store = fixture.subject->handle();
    expect(fixture.store, FCAP_FAMILY_META, "m", "1");
    expect(fixture.store, FCAP_FAMILY_USERS, "u", "1");
    expect(fixture.store, FCAP_FAMILY_TIMERS, "t", "1");
    expect(fixture.store, FCAP_FAMILY_ADS, "a", "1");
    fcap_batch_clear(&batch);
    fcap_batch_section(&batch, 1, 10, 2);
    put(&batch, FCAP_FAMILY_META, "m", "2");
    assert_int_equal(commit(fixture.store, &batch), FCAP_OK);
    expect(fixture.store, FCAP_FAMILY_META, "m", "1"); /* Claimed by nobody in this process. */
    claim(fixture.store, 1, 1); /* Assignment numbers start again with the process. */
    fcap_batch_done(&batch);
}

int store_contract_run(const char *name, const struct store_contract_subject *subject)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest store_contract[] = {
        TEST(get_tells_absent_from_empty),
        TEST(scan_keeps_order_and_bounds),
        TEST(changes_of_a_batch_apply_in_order),
        TEST(a_partition_is_deleted_and_filled_again),
        TEST(sections_of_ended_assignments_are_refused),
        TEST(a_claim_counts_for_batches_already_waiting),
        TEST(the_newer_claim_wins),
        TEST(partitions_have_a_limit),
        TEST(completions_come_in_order),
        TEST(an_empty_batch_completes),
        TEST(a_failed_batch_is_not_overtaken),
        TEST(what_fails_again_stays_in_order),
        TEST(sync_ends),
        TEST(release_never_takes_what_is_needed),
        TEST(state_survives_reopening_and_claims_do_not),
    };
#undef TEST
    fixture.subject = subject;
    return cmocka_run_group_tests_name(name, store_contract, NULL, NULL);
}
