/* The store contract on the simulator's store, and what only the fake can show. */
#include "contract/store_contract.h"
#include "lib/fake_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static struct fixture {
    struct fake_store *fake;
    struct fake_store_hooks hooks;
    size_t failures;
    enum fake_store_fate fate;
    bool lingers;
} fixture;

static enum fake_store_fate fail_some(void *context, const struct fcap_batch *batch)
{
    (void)context;
    (void)batch;
    if (fixture.failures == 0) {
        return FAKE_STORE_APPLY;
    }
    fixture.failures--;
    return fixture.fate;
}

static bool even_buckets_linger(void *context, uint64_t bucket_ms)
{
    (void)context;
    return fixture.lingers && bucket_ms % 2 == 0;
}

static void open_fake(void)
{
    fixture = (struct fixture){.fate = FAKE_STORE_FAIL};
    fixture.hooks.commit = fail_some;
    fixture.hooks.lingers = even_buckets_linger;
    fixture.fake = fake_store_open(&fixture.hooks);
}

static struct fcap_store *handle(void)
{
    return fake_store_handle(fixture.fake);
}

static void reopen(void)
{
    fake_store_crash(fixture.fake, 0);
}

static void fail_next(size_t count)
{
    fixture.failures = count;
}

static void close_fake(void)
{
    fake_store_close(fixture.fake);
}

static int set_up(void **state)
{
    (void)state;
    open_fake();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_fake();
    return 0;
}

/* One commit of partition 1 that sets meta "n" and adds a timer in bucket n. */
static void commit_number(struct fcap_store *store, uint64_t number)
{
    struct fcap_batch batch = {0};
    struct fcap_buffer key = {0};
    const struct fcap_batch *done = NULL;
    enum fcap_status result = FCAP_IO;
    uint8_t digit = (uint8_t)('0' + number);
    fcap_batch_section(&batch, 1, 1, number);
    fcap_batch_add(&batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, fcap_bytes_of("n"),
                   (struct fcap_bytes){&digit, 1});
    fcap_buffer_put_be64(&key, number);
    fcap_batch_add(&batch, FCAP_FAMILY_TIMERS, FCAP_CHANGE_PUT, fcap_buffer_bytes(&key),
                   fcap_bytes_of("chunk"));
    assert_int_equal(store->ops->submit(store, &batch), FCAP_OK);
    assert_int_equal(store->ops->completed(store, 0, &done, &result), FCAP_OK);
    assert_ptr_equal(done, &batch);
    assert_int_equal(result, FCAP_OK);
    fcap_buffer_done(&key);
    fcap_batch_done(&batch);
}

static char number_now(void)
{
    struct fcap_store *store = handle();
    struct fcap_buffer value = {0};
    bool found = false;
    assert_int_equal(store->ops->get(store, FCAP_FAMILY_META, fcap_bytes_of("n"), &value, &found),
                     FCAP_OK);
    char number = found ? (char)value.data[0] : '-';
    fcap_buffer_done(&value);
    return number;
}

static void machine_crash_loses_what_no_sync_covers(void **state)
{
    (void)state;
    struct fcap_store *store = handle();
    uint64_t ticket = 0;
    bool done = true;
    int64_t dropped_ms = 0;
    assert_int_equal(store->ops->claim(store, 1, 1, &dropped_ms), FCAP_OK);
    commit_number(store, 1);
    commit_number(store, 2);
    assert_int_equal(store->ops->sync(store, &ticket, &done), FCAP_OK);
    assert_false(done);
    commit_number(store, 3); /* After the sync was asked for: not covered by it. */
    assert_int_equal(store->ops->sync(store, &ticket, &done), FCAP_OK);
    assert_true(done);
    commit_number(store, 4);
    assert_int_equal(fake_store_unsynced(fixture.fake), 2);
    fake_store_crash(fixture.fake, 0);
    assert_int_equal(number_now(), '4'); /* kill -9 loses nothing. */
    fake_store_crash(fixture.fake, 1);
    assert_int_equal(number_now(), '3');
    assert_int_equal(fake_store_pairs(fixture.fake, FCAP_FAMILY_TIMERS), 3);
    assert_int_equal(fake_store_unsynced(fixture.fake), 0); /* What it came back with is on disk. */
}

static void machine_crash_can_go_back_to_the_last_sync(void **state)
{
    (void)state;
    struct fcap_store *store = handle();
    int64_t dropped_ms = 0;
    assert_int_equal(store->ops->claim(store, 1, 1, &dropped_ms), FCAP_OK);
    for (uint64_t i = 1; i <= 5; i++) {
        commit_number(store, i);
    }
    fake_store_crash(fixture.fake, 5);
    assert_int_equal(number_now(), '-');
    assert_int_equal(fake_store_pairs(fixture.fake, FCAP_FAMILY_TIMERS), 0);
}

static void dropped_timers_are_gone_from_older_states_too(void **state)
{
    (void)state;
    struct fcap_store *store = handle();
    struct fcap_batch batch = {0};
    const struct fcap_batch *done = NULL;
    enum fcap_status result = FCAP_IO;
    int64_t dropped_ms = -1;
    assert_int_equal(store->ops->claim(store, 1, 1, &dropped_ms), FCAP_OK);
    assert_int_equal(dropped_ms, 0);
    for (uint64_t i = 1; i <= 6; i++) {
        commit_number(store, i);
    }
    /* Bucket 3 changes once more, so an older state holds another value of it. */
    uint8_t key[8] = {0, 0, 0, 0, 0, 0, 0, 3};
    fcap_batch_section(&batch, 1, 1, 7);
    fcap_batch_add(&batch, FCAP_FAMILY_TIMERS, FCAP_CHANGE_PUT, (struct fcap_bytes){key, 8},
                   fcap_bytes_of("other"));
    assert_int_equal(store->ops->submit(store, &batch), FCAP_OK);
    assert_int_equal(store->ops->completed(store, 0, &done, &result), FCAP_OK);
    assert_ptr_equal(done, &batch);
    fixture.lingers = true;
    store->ops->release(store, 1, 5);
    assert_int_equal(fake_store_pairs(fixture.fake, FCAP_FAMILY_TIMERS), 4); /* 2 4 and 5 6 */
    assert_int_equal(fake_store_counts(fixture.fake).timers_dropped, 2);
    fake_store_crash(fixture.fake, 1);
    assert_int_equal(number_now(), '6');
    assert_int_equal(fake_store_pairs(fixture.fake, FCAP_FAMILY_TIMERS), 4); /* 3 is not back. */
    store = handle();
    assert_int_equal(store->ops->claim(store, 1, 1, &dropped_ms), FCAP_OK);
    assert_int_equal(dropped_ms, 5); /* Survives the crash. */
    fixture.lingers = false;
    store->ops->release(store, 1, 5); /* A state may have begun there since: nothing goes. */
    assert_int_equal(fake_store_pairs(fixture.fake, FCAP_FAMILY_TIMERS), 4);
    store->ops->release(store, 1, 6);
    assert_int_equal(fake_store_pairs(fixture.fake, FCAP_FAMILY_TIMERS), 1);
    fcap_batch_done(&batch);
}

static void applied_but_failed_and_delayed(void **state)
{
    (void)state;
    struct fcap_store *store = handle();
    struct fcap_batch batch = {0};
    const struct fcap_batch *done = NULL;
    enum fcap_status result = FCAP_OK;
    int64_t dropped_ms = 0;
    assert_int_equal(store->ops->claim(store, 1, 1, &dropped_ms), FCAP_OK);
    fcap_batch_section(&batch, 1, 1, 1);
    fcap_batch_add(&batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, fcap_bytes_of("n"),
                   fcap_bytes_of("1"));
    fixture.failures = 1;
    fixture.fate = FAKE_STORE_APPLY_AND_FAIL;
    assert_int_equal(store->ops->submit(store, &batch), FCAP_OK);
    assert_int_equal(store->ops->completed(store, 0, &done, &result), FCAP_OK);
    assert_ptr_equal(done, &batch);
    assert_int_equal(fcap_status_class(result), FCAP_CLASS_RETRY);
    assert_int_equal(number_now(), '1');
    fixture.failures = 1;
    fixture.fate = FAKE_STORE_DELAY;
    assert_int_equal(store->ops->submit(store, &batch), FCAP_OK);
    assert_int_equal(store->ops->completed(store, 1000, &done, &result), FCAP_OK);
    assert_null(done);
    assert_int_equal(fake_store_run(fixture.fake, 10), 1); /* Finished, not reported. */
    fake_store_crash(fixture.fake, 0);
    store = handle();
    assert_int_equal(store->ops->completed(store, 0, &done, &result), FCAP_OK);
    assert_null(done); /* The crash took the report. */
    assert_int_equal(fake_store_counts(fixture.fake).applied, 2);
    fcap_batch_done(&batch);
}

int main(void)
{
    const struct store_contract_subject subject = {
        .open = open_fake,
        .handle = handle,
        .reopen = reopen,
        .fail_next = fail_next,
        .close = close_fake,
    };
    const struct CMUnitTest fake_store[] = {
        cmocka_unit_test_setup_teardown(machine_crash_loses_what_no_sync_covers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(machine_crash_can_go_back_to_the_last_sync, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(dropped_timers_are_gone_from_older_states_too, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(applied_but_failed_and_delayed, set_up, tear_down),
    };
    int failures = store_contract_run("store contract: fake", &subject);
    return failures + cmocka_run_group_tests(fake_store, NULL, NULL);
}
