/* The RocksDB store at work: kill -9, claims against writes under way, syncs, dropping
 * of timers, reading beside a daemon. The linker puts wrappers around four calls of RocksDB. */
#include "integration/store_rocksdb_help.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rocksdb/c.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "integration/store_rocksdb_fixture.h"

/* --- wrappers -------------------------------------------------------------------------------- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: writes block */
static atomic_bool write_waits;
static atomic_bool syncs_fail;
static atomic_bool puts_synced;
static _Atomic int64_t unstored_bound = -1; /* a drop whose bound was not stored before it */
static atomic_size_t drops_seen;
static atomic_size_t compactions;         /* by hand */
static atomic_size_t compactions_flushed; /* of them with nothing in memory */

void __real_rocksdb_write(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                          rocksdb_writebatch_t *batch, char **errptr);
void __wrap_rocksdb_write(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                          rocksdb_writebatch_t *batch, char **errptr);
void __real_rocksdb_put_cf(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                           rocksdb_column_family_handle_t *family, const char *key, size_t keylen,
                           const char *val, size_t vallen, char **errptr);
void __wrap_rocksdb_put_cf(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                           rocksdb_column_family_handle_t *family, const char *key, size_t keylen,
                           const char *val, size_t vallen, char **errptr);
void __real_rocksdb_delete_file_in_range_cf(rocksdb_t *db, rocksdb_column_family_handle_t *family,
                                            const char *start_key, size_t start_key_len,
                                            const char *limit_key, size_t limit_key_len,
                                            char **errptr);
void __wrap_rocksdb_delete_file_in_range_cf(rocksdb_t *db, rocksdb_column_family_handle_t *family,
                                            const char *start_key, size_t start_key_len,
                                            const char *limit_key, size_t limit_key_len,
                                            char **errptr);

void __real_rocksdb_compact_range_cf(rocksdb_t *db, rocksdb_column_family_handle_t *family,
                                     const char *start_key, size_t start_key_len,
                                     const char *limit_key, size_t limit_key_len);
void __wrap_rocksdb_compact_range_cf(rocksdb_t *db, rocksdb_column_family_handle_t *family,
                                     const char *start_key, size_t start_key_len,
                                     const char *limit_key, size_t limit_key_len);

void __wrap_rocksdb_compact_range_cf(rocksdb_t *db, rocksdb_column_family_handle_t *family,
                                     const char *start_key, size_t start_key_len,
                                     const char *limit_key, size_t limit_key_len)
{
    uint64_t entries = 1;
    (void)rocksdb_property_int_cf(db, family, "rocksdb.num-entries-active-mem-table",
                                  &entries); /* Not known: not flushed. */
    (void)atomic_fetch_add(&compactions, 1);
    (void)atomic_fetch_add(&compactions_flushed, entries == 0);
    __real_rocksdb_compact_range_cf(db, family, start_key, start_key_len, limit_key, limit_key_len);
}

void __wrap_rocksdb_write(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                          rocksdb_writebatch_t *batch, char **errptr)
{
    atomic_store(&write_waits, true);
    (void)pthread_mutex_lock(&gate);
    (void)pthread_mutex_unlock(&gate);
    atomic_store(&write_waits, false);
    __real_rocksdb_write(db, options, batch, errptr);
}

/* Syncs and bounds go through here, batches do not. */
void __wrap_rocksdb_put_cf(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                           rocksdb_column_family_handle_t *family, const char *key, size_t keylen,
                           const char *val, size_t vallen, char **errptr)
{
    if (atomic_load(&syncs_fail)) {
        *errptr = strdup("IO error: No space left on device: While fsync: planted");
        return;
    }
    atomic_store(&puts_synced,
                 rocksdb_writeoptions_get_sync((rocksdb_writeoptions_t *)(uintptr_t)options) != 0);
    __real_rocksdb_put_cf(db, options, family, key, keylen, val, vallen, errptr);
}

void __wrap_rocksdb_delete_file_in_range_cf(rocksdb_t *db, rocksdb_column_family_handle_t *family,
                                            const char *start_key, size_t start_key_len,
                                            const char *limit_key, size_t limit_key_len,
                                            char **errptr)
{
    char *text = NULL;
    size_t size = 0;
    uint8_t end[8];
    rocksdb_readoptions_t *options = rocksdb_readoptions_create();
    char *value = rocksdb_get(db, options,
                              "\xff\xff"
                              "dropped_through",
                              17, &size, &text);
    struct fcap_reader reader = fcap_reader_of((struct fcap_bytes){(uint8_t *)value, size});
    uint64_t stored = value == NULL ? 0 : fcap_reader_be64(&reader);
    memcpy(end, limit_key, sizeof end);
    reader = fcap_reader_of((struct fcap_bytes){end, sizeof end});
    uint64_t last_bucket = fcap_reader_be64(&reader);
    if (stored <= last_bucket) {
        atomic_store(&unstored_bound, (int64_t)last_bucket);
    }
    (void)atomic_fetch_add(&drops_seen, 1);
    rocksdb_free(value);
    rocksdb_readoptions_destroy(options);
    __real_rocksdb_delete_file_in_range_cf(db, family, start_key, start_key_len, limit_key,
                                           limit_key_len, errptr);
}

/* --- kill -9 --------------------------------------------------------------------------------- */

enum { KILLS = 25 };

/* Child: numbered commits without end; says each acknowledged number (with "sync": each number
 * known to be durable) on standard output. */
static int commit_for_ever(const char *directory, bool wal)
{
    struct fcap_store_settings settings = help_settings(directory);
    struct fcap_store_rocksdb *db = NULL;
    struct fcap_batch batch = {0};
    int64_t dropped_ms = 0;
    settings.wal = wal;
    settings.sync = FCAP_STORE_SYNC_NEVER;
    settings.write_buffers_bytes = 2 << 20; /* Flushes now and then. */
    settings.release_sweep_ms = 20; /* Single-family compactions must not break atomicity. */
    if (fcap_store_rocksdb_open(&settings, &db, NULL) != FCAP_OK) {
        return 1;
    }
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    if (store->ops->claim(store, 1, 1, &dropped_ms) != FCAP_OK) {
        return 1;
    }
    uint64_t number = help_agreed(store);
    uint64_t ticket = 0;
    uint64_t covered = 0;
    for (;;) {
        help_number(&batch, ++number, 3000);
        struct fcap_buffer key = {0};
        fcap_batch_add(&batch, FCAP_FAMILY_TIMERS, FCAP_CHANGE_PUT, help_timer(&key, number, 1),
                       fcap_bytes_of("chunk"));
        fcap_buffer_done(&key);
        if (help_commit(store, &batch) != FCAP_OK) {
            return 1;
        }
        store->ops->release(store, 1, (int64_t)number - 5);
        if (wal) {
            (void)!write(STDOUT_FILENO, &number, sizeof number); /* Lost: checked less. */
            continue;
        }
        bool done = false;
        covered = ticket == 0 ? number : covered;
        if (store->ops->sync(store, &ticket, &done) != FCAP_OK) {
            return 1;
        }
        if (done) {
            (void)!write(STDOUT_FILENO, &covered, sizeof covered); /* As above. */
            ticket = 0;
        }
    }
}

static void kill_many_times(const char *mode, bool wal)
{
    uint64_t acknowledged = 0;
    uint64_t total = 0;
    unsigned seed = 20261130;
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    fixture.settings.wal = wal;
    for (size_t i = 0; i < KILLS; i++) {
        int output = -1;
        uint64_t number = 0;
        pid_t child = help_spawn(mode, fixture.directory, &output);
        /* Killed at a random moment after a first sign of life. */
        uint64_t enough = 1 + (uint64_t)rand_r(&seed) % (wal ? 400 : 8);
        for (uint64_t got = 0; got < enough; got++) {
            if (read(output, &number, sizeof number) != (ssize_t)sizeof number) {
                break;
            }
            acknowledged = number > acknowledged ? number : acknowledged;
        }
        struct timespec pause = {0, (long)(rand_r(&seed) % 4000000)};
        (void)nanosleep(&pause, NULL); /* So that the kill hits any place of the loop. */
        help_kill(child, false);
        while (read(output, &number, sizeof number) == (ssize_t)sizeof number) {
            acknowledged = number > acknowledged ? number : acknowledged;
        }
        (void)close(output);
        reopen();
        uint64_t agreed = help_agreed(fixture.store);
        fcap_store_rocksdb_close(fixture.db);
        fixture.db = NULL;
        if (agreed < acknowledged) {
            fail_msg("kill %zu: commit %llu was acknowledged, the state is at %llu", i,
                     (unsigned long long)acknowledged, (unsigned long long)agreed);
        }
        total = agreed;
    }
    print_message("result: %d kills, %llu commits, none lost\n", KILLS, (unsigned long long)total);
    assert_true(total > KILLS);
    assert_true(acknowledged > KILLS);
}

static void no_acknowledged_commit_is_lost_by_kill(void **state)
{
    (void)state;
    kill_many_times("commit", true);
}

static void without_log_families_agree_and_syncs_hold(void **state)
{
    (void)state;
    kill_many_times("commit-without-log", false);
}

/* --- claims -------------------------------------------------------------------------------------
 */

struct claimer {
    struct fcap_store *store;
    int32_t partition;
    atomic_bool done;
};

static void *claim_it(void *context)
{
    struct claimer *claimer = context;
    int64_t dropped_ms = 0;
    (void)claimer->store->ops->claim(claimer->store, claimer->partition, 2, &dropped_ms);
    atomic_store(&claimer->done, true);
    return NULL;
}

static void claims_wait_for_the_write_under_way(void **state)
{
    (void)state;
    struct claimer same = {.store = fcap_store_rocksdb_handle(fixture.db), .partition = 1};
    struct claimer other = {.store = same.store, .partition = 2};
    struct fcap_batch second = {0};
    const struct fcap_batch *done = NULL;
    enum fcap_status result = FCAP_IO;
    pthread_t threads[2];
    help_number(&fixture.batch, 1, 0);
    help_number(&second, 2, 0);
    (void)pthread_mutex_lock(&gate);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &fixture.batch), FCAP_OK);
    assert_int_equal(fixture.store->ops->submit(fixture.store, &second), FCAP_OK);
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    while (!atomic_load(&write_waits) && help_now_ms() < deadline_ms) {
        brief_pause();
    }
    assert_int_equal(pthread_create(&threads[0], NULL, claim_it, &other), 0);
    assert_int_equal(pthread_join(threads[0], NULL), 0); /* Another partition need not wait. */
    assert_int_equal(pthread_create(&threads[1], NULL, claim_it, &same), 0);
    for (size_t i = 0; i < 50; i++) {
        brief_pause();
        assert_false(atomic_load(&same.done));
    }
    assert_int_equal(fixture.store->ops->completed(fixture.store, 1, &done, &result), FCAP_OK);
    assert_null(done);
    (void)pthread_mutex_unlock(&gate);
    assert_int_equal(pthread_join(threads[1], NULL), 0);
    /* The first was under way and stands; the second came too late for its number. */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(fixture.store->ops->completed(fixture.store, 10000, &done, &result),
                         FCAP_OK);
        assert_ptr_equal(done, i == 0 ? &fixture.batch : &second);
        assert_int_equal(result, FCAP_OK);
    }
    assert_int_equal(help_agreed(fixture.store), 1);
    assert_int_equal(metrics_now().sections_refused, 1);
    fcap_batch_done(&second);
}

/* --- sync ----------------------------------------------------------------------------------------
 */

static void a_failed_sync_is_told_and_tried_again(void **state)
{
    (void)state;
    uint64_t ticket = 0;
    bool done = false;
    enum fcap_status status = FCAP_OK;
    help_number(&fixture.batch, 1, 0);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    assert_int_equal(metrics_now().sync_failing, 0);
    atomic_store(&syncs_fail, true);
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    while (status == FCAP_OK && !done && help_now_ms() < deadline_ms) {
        status = fixture.store->ops->sync(fixture.store, &ticket, &done);
    }
    assert_int_equal(status, FCAP_NO_SPACE);
    assert_false(done);
    assert_int_equal(metrics_now().sync_failing, 1);
    atomic_store(&syncs_fail, false);
    while (!done && help_now_ms() < deadline_ms) {
        (void)fixture.store->ops->sync(fixture.store, &ticket, &done); /* May tell once more. */
    }
    assert_true(done);
    assert_true(atomic_load(&puts_synced));
    assert_true(metrics_now().syncs_failed > 0);
    assert_int_equal(metrics_now().sync_failing, 0);
}

static void policies_sync_by_themselves(void **state)
{
    (void)state;
    fixture.settings.sync = FCAP_STORE_SYNC_INTERVAL;
    fixture.settings.sync_interval_ms = 10;
    reopen();
    help_number(&fixture.batch, 1, 0);
    uint64_t before = metrics_now().syncs;
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    while (metrics_now().syncs == before && help_now_ms() < deadline_ms) {
        brief_pause();
    }
    assert_true(metrics_now().syncs > before);
    before = metrics_now().syncs;
    for (size_t i = 0; i < 50; i++) {
        brief_pause();
    }
    assert_int_equal(metrics_now().syncs, before); /* Nothing was written, nothing is synced. */
}

/* --- dropping timers -------------------------------------------------------------------------- */

static uint64_t timer_bytes(void)
{
    return metrics_now().live_bytes[FCAP_FAMILY_TIMERS];
}

struct lowest {
    uint64_t bucket;
    size_t count;
};

static bool see_timer(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct lowest *lowest = context;
    struct fcap_reader reader = fcap_reader_of(key);
    uint64_t bucket = fcap_reader_be64(&reader);
    (void)value;
    lowest->bucket = lowest->count == 0 || bucket < lowest->bucket ? bucket : lowest->bucket;
    lowest->count++;
    return true;
}

static struct lowest timers_from(uint64_t bucket_ms)
{
    struct lowest lowest = {0};
    struct fcap_buffer from = {0};
    fcap_buffer_put_be64(&from, bucket_ms);
    assert_int_equal(fixture.store->ops->scan(fixture.store, FCAP_FAMILY_TIMERS,
                                              fcap_buffer_bytes(&from), FCAP_BYTES_NONE, see_timer,
                                              &lowest),
                     FCAP_OK);
    fcap_buffer_done(&from);
    return lowest;
}

static void released_files_are_dropped_and_nothing_else(void **state)
{
    (void)state;
    enum { TIMERS = 20000, BYTES = 1000, BOUND = 15000 };
    struct fcap_store_family_settings *timers = &fixture.settings.families[FCAP_FAMILY_TIMERS];
    int64_t dropped_ms = -1;
    timers->write_buffer_bytes = 1 << 20;
    timers->target_file_bytes = 1 << 20;
    atomic_store(&unstored_bound, -1);
    reopen();
    help_timers(fixture.store, 0, TIMERS, 1, BYTES);
    uint64_t before = timer_bytes();
    assert_true(before > 15 << 20);
    fixture.store->ops->release(fixture.store, 1, BOUND);
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    /* Down to what is needed, two files across the bound, and four more in level 0. */
    uint64_t wanted = (uint64_t)(TIMERS - BOUND) * BYTES + (6 << 20);
    while (timer_bytes() > wanted && help_now_ms() < deadline_ms) {
        brief_pause();
        /* Compactions may have been in the way of the first drop; a daemon's bound moves on. */
        fixture.store->ops->release(fixture.store, 1, BOUND);
    }
    print_message("timers: %llu bytes, %llu after release\n", (unsigned long long)before,
                  (unsigned long long)timer_bytes());
    assert_true(timer_bytes() <= wanted);
    assert_true(atomic_load(&drops_seen) > 0);
    assert_int_equal(atomic_load(&unstored_bound), -1); /* The bound was always stored first. */
    struct lowest left = timers_from(BOUND);
    assert_int_equal(left.count, TIMERS - BOUND);
    assert_int_equal(left.bucket, BOUND);
    assert_true(timers_from(0).count < TIMERS);
    while (metrics_now().drops == 0 && help_now_ms() < deadline_ms) {
        brief_pause(); /* Counted just after the files have gone. */
    }
    assert_true(metrics_now().drops > 0);
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = help_open(&fixture.settings);
    fixture.store = fcap_store_rocksdb_handle(fixture.db);
    assert_int_equal(fixture.store->ops->claim(fixture.store, 9, 1, &dropped_ms), FCAP_OK);
    assert_int_equal(dropped_ms, BOUND);
    assert_int_equal(timers_from(BOUND).count, TIMERS - BOUND);
}

static void sweep_what_lingers(bool wal)
{
    fixture.settings.release_sweep_ms = 1;
    fixture.settings.wal = wal;
    atomic_store(&compactions, 0);
    atomic_store(&compactions_flushed, 0);
    reopen();
    help_timers(fixture.store, 0, 500, 1, 1000); /* All of it in the memtable. */
    int64_t history_ms = 500;
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    while (timers_from(0).count > 0 && help_now_ms() < deadline_ms) {
        fixture.store->ops->release(fixture.store, 1, history_ms++); /* T moves on. */
        brief_pause();
    }
    assert_int_equal(timers_from(0).count, 0);
    assert_int_equal(timer_bytes(), 0);
    assert_true(metrics_now().sweeps > 0);
    assert_true(atomic_load(&compactions) > 0);
}

static void what_lingers_is_swept(void **state)
{
    (void)state;
    sweep_what_lingers(true);
}

/* RocksDB 7.8 must not flush on its own then. */
static void what_lingers_is_swept_without_log(void **state)
{
    (void)state;
    sweep_what_lingers(false);
#ifndef FCAP_HAVE_ROCKSDB_FLUSH_CFS
    assert_int_equal(atomic_load(&compactions_flushed), atomic_load(&compactions));
#endif
}

/* --- logs, metrics, reading beside a daemon ----------------------------------------------------
 */

static void idle_families_do_not_pin_the_log(void **state)
{
    (void)state;
    enum { BOUND = 8 << 20, BUFFER = 1 << 20 };
    fixture.settings.wal_bytes_max = BOUND;
    fixture.settings.families[FCAP_FAMILY_USERS].write_buffer_bytes = BUFFER;
    reopen();
    help_number(&fixture.batch, 1, 0); /* Meta and ads: once, then never again. */
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    uint64_t most = 0;
    for (uint64_t number = 0; number < 400; number++) {
        help_timers(fixture.store, number * 100, number * 100 + 100, 1, 1000);
        uint64_t bytes = metrics_now().log_files_bytes;
        most = bytes > most ? bytes : most;
    }
    print_message("40 MB written, at most %llu bytes of log\n", (unsigned long long)most);
    /* Writes do not wait for the flush that frees a log, so the bound holds once it could end. */
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    uint64_t bytes = most;
    for (uint64_t bucket = 100000; bytes > BOUND + 2 * BUFFER && help_now_ms() < deadline_ms;
         bucket++) {
        help_timers(fixture.store, bucket, bucket + 1, 1, 1000);
        brief_pause();
        bytes = metrics_now().log_files_bytes;
    }
    assert_true(bytes <= BOUND + 2 * BUFFER);
    assert_true(metrics_now().wal_bytes > 40000000);
    int64_t started_ms = help_now_ms();
    reopen();
    print_message("opened in %lld ms\n", (long long)(help_now_ms() - started_ms));
    assert_int_equal(help_agreed(fixture.store), 1);
}

static void metrics_tell_what_happens(void **state)
{
    (void)state;
    fixture.settings.options = "max_subcompactions=2"; /* Raw options keep the statistics. */
    reopen();
    help_number(&fixture.batch, 1, 100000);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    struct fcap_store_metrics metrics = metrics_now();
    assert_int_equal(metrics.commits, 1);
    assert_int_equal(metrics.entries_written, 5);
    assert_true(metrics.wal_bytes > 100000);
    assert_true(metrics.memtable_bytes > 100000);
    assert_true(metrics.log_files_bytes > 100000);
    assert_int_equal(metrics.write_stopped, 0);
    assert_int_equal(metrics.background_errors, 0);
    assert_true(metrics.write_us_max > 0 && metrics.write_us_total >= metrics.write_us_max);
    fixture.settings.wal = false; /* The next opening flushes the log into tables. */
    reopen();
    help_sync(fixture.store);
    assert_true(metrics_now().live_bytes[FCAP_FAMILY_USERS] > 100000);
}

static size_t files_in(const char *directory)
{
    size_t count = 0;
    DIR *opened = opendir(directory);
    assert_non_null(opened);
    while (readdir(opened) != NULL) {
        count++;
    }
    (void)closedir(opened);
    return count;
}

static void reading_beside_a_daemon(void **state)
{
    (void)state;
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *reader = NULL;
    for (uint64_t number = 1; number <= 30; number++) {
        help_number(&fixture.batch, number, 1000);
        assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
        size_t files = files_in(fixture.directory);
        if (fcap_store_rocksdb_open_read_only(&fixture.settings, &reader, &error) != FCAP_OK) {
            fail_msg("%s", error.text);
        }
        struct fcap_store *store = fcap_store_rocksdb_handle(reader);
        assert_int_equal(help_agreed(store), number);
        assert_int_equal(store->ops->submit(store, &fixture.batch), FCAP_STOPPED);
        fcap_store_rocksdb_close(reader);
        assert_int_equal(files_in(fixture.directory), files); /* Not even a log was left. */
    }
    help_refused(&fixture.settings, FCAP_LOCKED, NULL, NULL); /* The daemon kept its lock. */
    fixture.settings.directory = "/tmp/fcap-not-there";
    assert_int_equal(fcap_store_rocksdb_open_read_only(&fixture.settings, &reader, &error),
                     FCAP_IO);
    fixture.settings.directory = fixture.directory;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        return commit_for_ever(argv[2], strcmp(argv[1], "commit") == 0);
    }
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest store_rocksdb[] = {
        TEST(no_acknowledged_commit_is_lost_by_kill),
        TEST(without_log_families_agree_and_syncs_hold),
        TEST(claims_wait_for_the_write_under_way),
        TEST(a_failed_sync_is_told_and_tried_again),
        TEST(policies_sync_by_themselves),
        TEST(released_files_are_dropped_and_nothing_else),
        TEST(what_lingers_is_swept),
        TEST(what_lingers_is_swept_without_log),
        TEST(idle_families_do_not_pin_the_log),
        TEST(metrics_tell_what_happens),
        TEST(reading_beside_a_daemon),
    };
#undef TEST
    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(store_rocksdb, NULL, NULL);
}
