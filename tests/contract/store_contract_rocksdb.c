/* The store contract on RocksDB, in each of its modes. Writes fail by a wrapper that the linker
 * puts around rocksdb_write. */
#include "contract/store_contract.h"
#include "fcap/store_rocksdb.h"
#include "lab/lab.h"

#include <rocksdb/c.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct fixture {
    char directory[64];
    struct fcap_store_settings settings;
    struct fcap_store_rocksdb *db;
} fixture;

static atomic_size_t failures;

void __real_rocksdb_write(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                          rocksdb_writebatch_t *batch, char **errptr);
void __wrap_rocksdb_write(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                          rocksdb_writebatch_t *batch, char **errptr);

void __wrap_rocksdb_write(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                          rocksdb_writebatch_t *batch, char **errptr)
{
    if (atomic_load(&failures) > 0) {
        (void)atomic_fetch_sub(&failures, 1);
        *errptr = strdup("Resource busy: planted");
        return;
    }
    __real_rocksdb_write(db, options, batch, errptr);
}

static void open_again(void)
{
    struct fcap_error error = {""};
    if (fcap_store_rocksdb_open(&fixture.settings, &fixture.db, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

static void open_rocksdb(void)
{
    lab_folder_make("fcap-contract", fixture.directory, sizeof fixture.directory);
    fixture.settings.directory = fixture.directory;
    fixture.settings.release_step_ms = 1;
    fixture.settings.release_pause_ms = 0;
    atomic_store(&failures, 0);
    open_again();
}

static struct fcap_store *handle(void)
{
    return fcap_store_rocksdb_handle(fixture.db);
}

static void reopen(void)
{
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    open_again();
}

static void fail_next(size_t count)
{
    atomic_store(&failures, count);
}

static void close_rocksdb(void)
{
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    lab_folder_remove(fixture.directory);
}

int main(void)
{
    const struct store_contract_subject subject = {
        .open = open_rocksdb,
        .handle = handle,
        .reopen = reopen,
        .fail_next = fail_next,
        .close = close_rocksdb,
    };
    fcap_store_settings_default(&fixture.settings);
    int failed = store_contract_run("store contract: RocksDB", &subject);
    fixture.settings.sync = FCAP_STORE_SYNC_COMMIT;
    failed += store_contract_run("store contract: RocksDB, sync at each commit", &subject);
    fixture.settings.sync = FCAP_STORE_SYNC_INTERVAL;
    fixture.settings.sync_interval_ms = 5;
    fixture.settings.wal = false;
    failed += store_contract_run("store contract: RocksDB without log", &subject);
    return failed;
}
