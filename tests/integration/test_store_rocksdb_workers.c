/* Several workers on one RocksDB store. */
#include "integration/store_rocksdb_help.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "integration/store_rocksdb_fixture.h"

enum { WORKERS = 3, COMMITS = 300 };

static void *work(void *context)
{
    int32_t partition = *(const int32_t *)context;
    struct fcap_store *store = fcap_store_rocksdb_handle(fixture.db);
    struct fcap_batch batch = {0};
    struct fcap_buffer value = {0};
    int64_t dropped_ms = 0;
    char key[16];
    bool ok = store->ops->claim(store, partition, 1, &dropped_ms) == FCAP_OK;
    (void)snprintf(key, sizeof key, "worker%d", (int)partition);
    for (uint64_t number = 1; ok && number <= COMMITS; number++) {
        const struct fcap_batch *done = NULL;
        enum fcap_status result = FCAP_OK;
        bool found = false;
        fcap_batch_clear(&batch);
        fcap_batch_section(&batch, partition, 1, number);
        fcap_buffer_clear(&value);
        fcap_buffer_put_be64(&value, number);
        fcap_batch_add(&batch, FCAP_FAMILY_USERS, FCAP_CHANGE_PUT, fcap_bytes_of(key),
                       fcap_buffer_bytes(&value));
        ok = store->ops->submit(store, &batch) == FCAP_OK &&
             store->ops->completed(store, HELP_DEADLINE_S * 1000, &done, &result) == FCAP_OK &&
             done == &batch && result == FCAP_OK;
        ok = ok && store->ops->get(store, FCAP_FAMILY_USERS, fcap_bytes_of(key), &value, &found) ==
                       FCAP_OK;
        struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&value));
        ok = ok && found && fcap_reader_be64(&reader) == number; /* Sees its own commit. */
        store->ops->release(store, partition, (int64_t)number);
    }
    fcap_buffer_done(&value);
    fcap_batch_done(&batch);
    return ok ? context : NULL;
}

static void workers_share_one_database(void **state)
{
    (void)state;
    static int32_t partitions[WORKERS] = {11, 12, 13};
    pthread_t threads[WORKERS];
    for (size_t i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, &partitions[i]), 0);
    }
    for (size_t i = 0; i < WORKERS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_non_null(result);
    }
    assert_int_equal(metrics_now().commits, WORKERS * COMMITS);
}

int main(void)
{
    const struct CMUnitTest store_rocksdb_workers[] = {
        cmocka_unit_test_setup_teardown(workers_share_one_database, set_up, tear_down),
    };
    return cmocka_run_group_tests(store_rocksdb_workers, NULL, NULL);
}
