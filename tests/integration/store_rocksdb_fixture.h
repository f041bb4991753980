/* A RocksDB store in a directory of its own with partition 1 claimed, for each test anew. Included
 * by one file of a program, behind cmocka. Thread rule: the test's thread. */
#ifndef STORE_ROCKSDB_FIXTURE_H
#define STORE_ROCKSDB_FIXTURE_H

#include "integration/store_rocksdb_help.h"

#include <time.h>

static struct fixture {
    char directory[64];
    struct fcap_store_settings settings;
    struct fcap_store_rocksdb *db;
    struct fcap_store *store;
    struct fcap_batch batch;
} fixture;

static void reopen(void)
{
    int64_t dropped_ms = 0;
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = help_open(&fixture.settings);
    fixture.store = fcap_store_rocksdb_handle(fixture.db);
    assert_int_equal(fixture.store->ops->claim(fixture.store, 1, 1, &dropped_ms), FCAP_OK);
}

static int set_up(void **state)
{
    (void)state;
    fixture = (struct fixture){.db = NULL};
    help_make(fixture.directory);
    fixture.settings = help_settings(fixture.directory);
    reopen();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fcap_store_rocksdb_close(fixture.db);
    fcap_batch_done(&fixture.batch);
    help_remove(fixture.directory);
    return 0;
}

static inline void brief_pause(void)
{
    struct timespec pause = {0, 2000000};
    (void)nanosleep(&pause, NULL); /* Polling; cut short is fine. */
}

static inline struct fcap_store_metrics metrics_now(void)
{
    struct fcap_store_metrics metrics;
    fcap_store_rocksdb_metrics(fixture.db, &metrics);
    return metrics;
}

#endif
