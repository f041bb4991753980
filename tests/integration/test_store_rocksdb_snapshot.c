/* What checkpoints are made of: numbers of batches, copies of a database that is being written all
 * the time, and states made of a copy and the batches since. Each is compared with what the
 * follower was told. Writes fail by a wrapper that the linker puts around rocksdb_write. */
#include "integration/store_rocksdb_frames.h"
#include "integration/store_rocksdb_help.h"

#include <rocksdb/c.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "integration/store_rocksdb_world.h"
#include "lib/full_size.h"

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

/* --- numbers -------------------------------------------------------------------------------------
 */

static void batches_are_numbered_without_a_hole(void **state)
{
    (void)state;
    struct frames frames;
    struct fcap_batch view;
    struct fcap_batch refused = {0};
    frames_init(&frames, 1);
    frames_follow(&frames, fixture.db);
    assert_int_equal(position_now().sequence, 0);
    help_number(&fixture.batch, 1, 0);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    assert_int_equal(position_now().sequence, 1);
    /* Nothing of it is kept: no number. */
    fcap_batch_section(&refused, 1, 99, 1);
    fcap_batch_add(&refused, FCAP_FAMILY_META, FCAP_CHANGE_PUT, fcap_bytes_of("x"),
                   fcap_bytes_of("y"));
    fcap_batch_section(&refused, 1, 1, 1); /* Kept, and empty. */
    assert_int_equal(help_commit(fixture.store, &refused), FCAP_OK);
    assert_int_equal(position_now().sequence, 1);
    /* One that failed: whoever is written next gets its number. */
    atomic_store(&failures, 2);
    help_number(&fixture.batch, 2, 0);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_UNAVAILABLE);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_UNAVAILABLE);
    assert_int_equal(position_now().sequence, 1);
    assert_false(frames_get(&frames, 2, &view));
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    assert_int_equal(position_now().sequence, 2);
    assert_true(frames_get(&frames, 2, &view));
    assert_int_equal(view.entry_count, FCAP_FAMILY_COUNT);
    frames_done(&frames);
    fcap_batch_done(&refused);
}

static void a_state_keeps_its_numbers(void **state)
{
    (void)state;
    struct fcap_error error = {""};
    for (size_t i = 0; i < 2; i++) {
        fixture.settings.wal = i == 0;
        struct fcap_store_position before = position_now();
        help_number(&fixture.batch, i + 1, 0);
        assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
        reopen();
        assert_int_equal(position_now().sequence, before.sequence + 1);
        assert_true(is_same(position_now().lineage, before.lineage));
        assert_false(is_none(before.lineage));
    }
    struct fcap_store_rocksdb *reader = NULL;
    struct fcap_store_position position;
    struct fcap_store_position origin;
    assert_int_equal(fcap_store_rocksdb_open_read_only(&fixture.settings, &reader, &error),
                     FCAP_OK);
    fcap_store_rocksdb_position(reader, &position);
    assert_false(fcap_store_rocksdb_origin(reader, &origin));
    /* A reader writes nothing. */
    uint64_t sequence = 0;
    assert_int_equal(fcap_store_rocksdb_snapshot(reader, "/tmp/none", &sequence, &error),
                     FCAP_STOPPED);
    assert_int_equal(fcap_store_rocksdb_apply(reader, 3, &fixture.batch, &error), FCAP_STOPPED);
    assert_int_equal(fcap_store_rocksdb_fork(reader, &error), FCAP_STOPPED);
    fcap_store_rocksdb_close(reader);
    assert_int_equal(position.sequence, 2);
    assert_true(is_same(position.lineage, position_now().lineage));
    /* Another state has another lineage. */
    char other[64];
    help_make(other);
    struct fcap_store_settings settings = help_settings(other);
    struct fcap_store_rocksdb *db = help_open(&settings);
    fcap_store_rocksdb_position(db, &position);
    fcap_store_rocksdb_close(db);
    help_remove(other);
    assert_false(is_same(position.lineage, position_now().lineage));
}

/* Changes the store's own keys with RocksDB itself; value NULL deletes. */
static void change_own_key(const char *key, const char *value, size_t size)
{
    static const char *const families[FCAP_FAMILY_COUNT] = {"default", "users", "timers", "ads"};
    rocksdb_options_t *options = rocksdb_options_create();
    const rocksdb_options_t *all[FCAP_FAMILY_COUNT] = {options, options, options, options};
    rocksdb_column_family_handle_t *handles[FCAP_FAMILY_COUNT];
    rocksdb_writeoptions_t *write_options = rocksdb_writeoptions_create();
    char *text = NULL;
    fcap_store_rocksdb_close(fixture.db);
    fixture.db = NULL;
    rocksdb_t *db = rocksdb_open_column_families(options, fixture.directory, FCAP_FAMILY_COUNT,
                                                 families, all, handles, &text);
    assert_null(text);
    if (value == NULL) {
        rocksdb_delete_cf(db, write_options, handles[0], key, strlen(key), &text);
    } else {
        rocksdb_put_cf(db, write_options, handles[0], key, strlen(key), value, size, &text);
    }
    assert_null(text);
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        rocksdb_column_family_handle_destroy(handles[i]);
    }
    rocksdb_close(db);
    rocksdb_writeoptions_destroy(write_options);
    rocksdb_options_destroy(options);
}

static void a_state_from_before_gets_a_lineage(void **state)
{
    (void)state;
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *reader = NULL;
    struct fcap_store_position position;
    help_number(&fixture.batch, 7, 0);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    change_own_key("\xff\xff"
                   "lineage",
                   NULL, 0);
    change_own_key("\xff\xff"
                   "sequence",
                   NULL, 0);
    assert_int_equal(fcap_store_rocksdb_open_read_only(&fixture.settings, &reader, &error),
                     FCAP_OK);
    fcap_store_rocksdb_position(reader, &position);
    fcap_store_rocksdb_close(reader);
    assert_int_equal(position.sequence, 0);
    assert_true(is_none(position.lineage));
    reopen();
    position = position_now();
    assert_false(is_none(position.lineage));
    assert_int_equal(position.sequence, 0);
    assert_int_equal(help_agreed(fixture.store), 7);
    reopen();
    assert_true(is_same(position.lineage, position_now().lineage));
    change_own_key("\xff\xff"
                   "lineage",
                   "short", 5);
    help_refused(&fixture.settings, FCAP_CORRUPT, "lineage", "move the directory away");
}

/* --- snapshots -----------------------------------------------------------------------------------
 */

enum { KEPT_SNAPSHOTS = 3 };

static void report_holding_back(bool wal)
{
    uint64_t us_max[2] = {0};
    uint64_t us_sum[2] = {0};
    uint64_t counts[2] = {0};
    for (size_t i = 0; i < WRITERS; i++) {
        for (size_t j = 0; j < 2; j++) {
            const struct frame_writer *writer = &world.writers[i];
            us_max[j] = writer->us_max[j] > us_max[j] ? writer->us_max[j] : us_max[j];
            us_sum[j] += writer->us_sum[j];
            counts[j] += writer->counts[j];
        }
    }
    print_message("wal %s: commits take %llu us, at most %llu us; beside a snapshot %llu us, at "
                  "most %llu us\n",
                  wal ? "on" : "off", (unsigned long long)(us_sum[0] / (counts[0] + 1)),
                  (unsigned long long)us_max[0], (unsigned long long)(us_sum[1] / (counts[1] + 1)),
                  (unsigned long long)us_max[1]);
}

/* Taken while everything is written, compacted and dropped; some are looked at again at the end. */
static void no_snapshot_has_a_hole(bool wal)
{
    const size_t snapshots = is_full_size() ? 250 : 100;
    char kept[KEPT_SNAPSHOTS][160];
    uint64_t kept_sequences[KEPT_SNAPSHOTS];
    struct model kept_models[KEPT_SNAPSHOTS] = {{.sequence = 0}};
    size_t compared = 0;
    size_t grew = 0;
    uint64_t last = 0;
    begin_world(wal, 200);
    for (size_t i = 0; i < snapshots; i++) {
        bool keep = i > 0 && i % 10 == 0 && i / 10 <= KEPT_SNAPSHOTS;
        size_t slot = keep ? i / 10 - 1 : 0;
        if (keep) {
            (void)snprintf(kept[slot], sizeof kept[slot], "%s-%zu", world.place, slot);
        }
        const char *place = keep ? kept[slot] : world.place; /* The others replace each other. */
        uint64_t sequence = take_snapshot(place);
        grew += sequence > last;
        assert_true(sequence >= last);
        last = sequence;
        model_play(&world.model, &world.frames, sequence);
        compared += compare_snapshot(place, sequence, &world.model);
        if (keep) {
            kept_sequences[slot] = sequence;
            model_play(&kept_models[slot], &world.frames, sequence);
        }
    }
    stop_writers();
    report_holding_back(wal);
    model_play(&world.model, &world.frames, position_now().sequence);
    compared += model_compare(&world.model, fixture.store);
    struct fcap_store_metrics metrics = metrics_now();
    for (size_t i = 0; i < KEPT_SNAPSHOTS; i++) {
        (void)compare_snapshot(kept[i], kept_sequences[i], &kept_models[i]);
        assert_int_equal(fcap_store_rocksdb_discard(kept[i], NULL), FCAP_OK);
        assert_int_equal(access(kept[i], F_OK), -1);
        model_done(&kept_models[i]);
    }
    assert_int_equal(fcap_store_rocksdb_discard(world.place, NULL), FCAP_OK);
    print_message("result: wal %s: %zu snapshots of a state being written, %llu batches, %zu pairs "
                  "compared, %llu drops\n",
                  wal ? "on" : "off", snapshots, (unsigned long long)position_now().sequence,
                  compared, (unsigned long long)metrics.drops);
    assert_true(grew > snapshots / 2);
    assert_true(metrics.drops > 0);
    assert_true(compared > snapshots * 100);
}

static void no_snapshot_has_a_hole_with_log(void **state)
{
    (void)state;
    no_snapshot_has_a_hole(true);
}

static void no_snapshot_has_a_hole_without_log(void **state)
{
    (void)state;
    no_snapshot_has_a_hole(false);
}

int main(int argc, char **argv)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, end_world)
    const struct CMUnitTest store_rocksdb_snapshot[] = {
        TEST(batches_are_numbered_without_a_hole), TEST(a_state_keeps_its_numbers),
        TEST(a_state_from_before_gets_a_lineage),  TEST(no_snapshot_has_a_hole_with_log),
        TEST(no_snapshot_has_a_hole_without_log),
    };
#undef TEST
    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(store_rocksdb_snapshot, NULL, NULL);
}
