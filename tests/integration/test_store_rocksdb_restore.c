/* A state made of a snapshot and the batches since is the living one; and what a snapshot must not
 * be made of, or over. Writes fail by wrappers that the linker puts around two calls of RocksDB. */
#include "integration/store_rocksdb_frames.h"
#include "integration/store_rocksdb_help.h"

#include <fcntl.h>
#include <rocksdb/c.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "integration/store_rocksdb_world.h"
#include "lib/full_size.h"

/* --- wrappers ------------------------------------------------------------------------------------
 */

static atomic_size_t failures;  /* writes that fail, and are in the database all the same */
static void (*meanwhile)(void); /* happens once, when the next copy has just been made */

void __real_rocksdb_write(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                          rocksdb_writebatch_t *batch, char **errptr);
void __wrap_rocksdb_write(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                          rocksdb_writebatch_t *batch, char **errptr);
void __real_rocksdb_checkpoint_create(rocksdb_checkpoint_t *checkpoint, const char *directory,
                                      uint64_t log_size_for_flush, char **errptr);
void __wrap_rocksdb_checkpoint_create(rocksdb_checkpoint_t *checkpoint, const char *directory,
                                      uint64_t log_size_for_flush, char **errptr);

void __wrap_rocksdb_write(rocksdb_t *db, const rocksdb_writeoptions_t *options,
                          rocksdb_writebatch_t *batch, char **errptr)
{
    __real_rocksdb_write(db, options, batch, errptr);
    if (atomic_load(&failures) > 0) {
        (void)atomic_fetch_sub(&failures, 1);
        *errptr = strdup("Resource busy: While fsync: planted");
    }
}

void __wrap_rocksdb_checkpoint_create(rocksdb_checkpoint_t *checkpoint, const char *directory,
                                      uint64_t log_size_for_flush, char **errptr)
{
    __real_rocksdb_checkpoint_create(checkpoint, directory, log_size_for_flush, errptr);
    void (*now)(void) = meanwhile;
    meanwhile = NULL;
    if (now != NULL) {
        now();
    }
}

/* --- a snapshot and the batches since ------------------------------------------------------------
 */

static struct fcap_store_settings at(const char *directory)
{
    struct fcap_store_settings settings = fixture.settings;
    settings.directory = directory;
    return settings;
}

/* Applies what the follower was told after the copy's own batch, with some that do not belong. */
static void catch_up(struct fcap_store_rocksdb *db, uint64_t last)
{
    struct fcap_error error = {""};
    struct fcap_store_position position;
    struct fcap_batch view;
    fcap_store_rocksdb_position(db, &position);
    for (uint64_t sequence = position.sequence + 1; sequence <= last; sequence++) {
        assert_true(frames_get(&world.frames, sequence, &view));
        if (sequence % 16 == 0) {
            assert_int_equal(fcap_store_rocksdb_apply(db, sequence + 1, &view, &error),
                             FCAP_CORRUPT);
            assert_non_null(strstr(error.text, "does not follow"));
            assert_int_equal(fcap_store_rocksdb_apply(db, sequence - 1, &view, NULL), FCAP_CORRUPT);
        }
        if (fcap_store_rocksdb_apply(db, sequence, &view, &error) != FCAP_OK) {
            fail_msg("%s", error.text);
        }
    }
}

/* Forks, and goes on under the new lineage; the old one is remembered, also after a reopening. */
static void fork_and_go_on(const char *directory, struct fcap_store_rocksdb **db)
{
    struct fcap_store_settings settings = at(directory);
    struct fcap_store_position before;
    struct fcap_store_position after;
    struct fcap_store_position origin;
    int64_t dropped_ms = 0;
    fcap_store_rocksdb_position(*db, &before);
    assert_int_equal(fcap_store_rocksdb_fork(*db, NULL), FCAP_OK);
    for (size_t i = 0; i < 2; i++) {
        fcap_store_rocksdb_position(*db, &after);
        assert_false(is_same(after.lineage, before.lineage));
        assert_int_equal(after.sequence, before.sequence + i);
        assert_true(fcap_store_rocksdb_origin(*db, &origin));
        assert_true(is_same(origin.lineage, before.lineage));
        assert_int_equal(origin.sequence, before.sequence);
        if (i == 0) {
            struct fcap_store *store = fcap_store_rocksdb_handle(*db);
            assert_int_equal(store->ops->claim(store, 1, 1, &dropped_ms), FCAP_OK);
            help_number(&fixture.batch, 5, 0);
            assert_int_equal(help_commit(store, &fixture.batch), FCAP_OK);
        }
        fcap_store_rocksdb_close(*db);
        *db = help_open(&settings);
    }
    assert_int_equal(help_agreed(fcap_store_rocksdb_handle(*db)), 5);
}

static void wait_for_commits(unsigned count)
{
    uint64_t wanted = atomic_load(&world.writers[0].commits) + count;
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    while (atomic_load(&world.writers[0].commits) < wanted && help_now_ms() < deadline_ms) {
        brief_pause();
    }
}

static void restored_states_are_the_living_one(bool wal)
{
    const unsigned rounds = is_full_size() ? 25 : 6;
    char copies[32][160];
    uint64_t sequences[32];
    unsigned seed = 20261130;
    size_t compared = 0;
    size_t applied = 0;
    begin_world(wal, 300);
    for (unsigned i = 0; i < rounds; i++) {
        (void)snprintf(copies[i], sizeof copies[i], "%s-%u", world.place, i);
        wait_for_commits((unsigned)rand_r(&seed) % 200);
        sequences[i] = take_snapshot(copies[i]);
    }
    wait_for_commits(100);
    stop_writers();
    uint64_t last = position_now().sequence;
    model_play(&world.model, &world.frames, last);
    compared += model_compare(&world.model, fixture.store);
    for (unsigned i = 0; i < rounds; i++) {
        struct fcap_store_settings settings = at(copies[i]);
        struct fcap_store_rocksdb *db = help_open(&settings);
        struct fcap_store_position position;
        fcap_store_rocksdb_position(db, &position);
        assert_int_equal(position.sequence, sequences[i]);
        catch_up(db, last);
        applied += last - sequences[i];
        compared += model_compare(&world.model, fcap_store_rocksdb_handle(db));
        if (i % 2 == 0) {
            fcap_store_rocksdb_close(db); /* As a restart would find it. */
            db = help_open(&settings);
            compared += model_compare(&world.model, fcap_store_rocksdb_handle(db));
            fcap_store_rocksdb_close(db);
            db = help_open(&settings);
        }
        fork_and_go_on(copies[i], &db);
        fcap_store_rocksdb_close(db);
        assert_int_equal(fcap_store_rocksdb_discard(copies[i], NULL), FCAP_FOREIGN); /* In use. */
    }
    print_message("result: wal %s: %u states made of a snapshot and the batches since (%zu), %zu "
                  "pairs compared\n",
                  wal ? "on" : "off", rounds, applied, compared);
    assert_true(applied > rounds * 100);
}

static void restored_states_are_the_living_one_with_log(void **state)
{
    (void)state;
    restored_states_are_the_living_one(true);
}

static void restored_states_are_the_living_one_without_log(void **state)
{
    (void)state;
    restored_states_are_the_living_one(false);
}

static void a_restored_state_passes_its_origin_on(void **state)
{
    (void)state;
    char copy[128];
    uint64_t sequence = 0;
    struct fcap_store_rocksdb *reader = NULL;
    struct fcap_store_position origin;
    struct fcap_store_position before = position_now();
    assert_int_equal(fcap_store_rocksdb_fork(fixture.db, NULL), FCAP_OK);
    (void)snprintf(copy, sizeof copy, "%s/copy", fixture.directory);
    assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, copy, &sequence, NULL), FCAP_OK);
    struct fcap_store_settings settings = at(copy);
    assert_int_equal(fcap_store_rocksdb_open_read_only(&settings, &reader, NULL), FCAP_OK);
    assert_true(fcap_store_rocksdb_origin(reader, &origin));
    assert_true(is_same(origin.lineage, before.lineage));
    fcap_store_rocksdb_close(reader);
}

/* A frame that no store has written is refused: nothing of it is written, nothing ends. */
static void unsound_frames_are_refused(void **state)
{
    (void)state;
    struct fcap_batch *batch = &fixture.batch;
    for (size_t i = 0; i < 7; i++) {
        fcap_batch_clear(batch);
        if (i > 0) {
            fcap_batch_section(batch, i == 1 ? -1 : i == 2 ? 0xFFFF : 5, 0, 1);
        }
        if (i > 0 && i < 6) {
            fcap_batch_add(batch, FCAP_FAMILY_USERS,
                           i == 3 ? FCAP_CHANGE_DELETE_RANGE : FCAP_CHANGE_PUT,
                           fcap_bytes_of("long"), fcap_bytes_of("value"));
        }
        if (i == 4) {
            batch->entries[0].family = FCAP_FAMILY_COUNT;
        }
        if (i == 5) {
            batch->sections[0].count = 2;
        }
        struct fcap_error error = {""};
        assert_int_equal(fcap_store_rocksdb_apply(fixture.db, 1, batch, &error), FCAP_CORRUPT);
        assert_non_null(strstr(error.text, "batch 1"));
        assert_int_equal(position_now().sequence, 0);
    }
}

/* --- commits that fail ---------------------------------------------------------------------------
 */

static void expect_no_snapshot(enum fcap_status status, const char *text)
{
    struct fcap_error error = {""};
    char place[128];
    char staging[160];
    uint64_t sequence = 77;
    (void)snprintf(place, sizeof place, "%s/copy", fixture.directory);
    (void)snprintf(staging, sizeof staging, "%s.tmp", place);
    assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, &error), status);
    if (strstr(error.text, text) == NULL || strstr(error.text, "snapshot: ") == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    }
    assert_int_equal(sequence, 77);
    assert_int_equal(access(place, F_OK), -1);
    assert_int_equal(access(staging, F_OK), -1);
}

/* Its bytes are there, but its number is given to another one. */
static void no_copy_holds_a_batch_that_failed(void **state)
{
    (void)state;
    char place[128];
    uint64_t sequence = 0;
    (void)snprintf(place, sizeof place, "%s/copy", fixture.directory);
    help_number(&fixture.batch, 1, 0);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    help_number(&fixture.batch, 2, 0);
    atomic_store(&failures, 1);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_UNAVAILABLE);
    expect_no_snapshot(FCAP_UNAVAILABLE, "a commit has failed");
    assert_int_equal(position_now().sequence, 1);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, NULL), FCAP_OK);
    assert_int_equal(sequence, 2);
    assert_int_equal(fcap_store_rocksdb_discard(place, NULL), FCAP_OK);
}

static void fail_once(void)
{
    atomic_store(&failures, 1);
    help_number(&fixture.batch, 2, 0);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_UNAVAILABLE);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
}

static void a_commit_that_fails_meanwhile_spoils_the_copy(void **state)
{
    (void)state;
    meanwhile = fail_once;
    help_number(&fixture.batch, 1, 0);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    expect_no_snapshot(FCAP_UNAVAILABLE, "a commit has failed");
    assert_null(meanwhile);
    assert_int_equal(position_now().sequence, 2);
}

/* --- places --------------------------------------------------------------------------------------
 */

static void make_file(const char *directory, const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, "x", 1), 1);
    assert_int_equal(close(file), 0);
}

static void what_a_crash_left_is_replaced(void **state)
{
    (void)state;
    char place[128];
    char staging[160];
    uint64_t sequence = 0;
    (void)snprintf(place, sizeof place, "%s/copy", fixture.directory);
    (void)snprintf(staging, sizeof staging, "%s.tmp", place);
    help_number(&fixture.batch, 1, 1000);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(mkdir(staging, 0700), 0);
        make_file(staging, "000123.sst");
        make_file(staging, "MANIFEST-000005.tmp");
        assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, NULL), FCAP_OK);
        assert_int_equal(access(staging, F_OK), -1);
    }
    reopen(); /* A state with a copy in it is opened as ever. */
    assert_int_equal(help_agreed(fixture.store), 1);
    assert_int_equal(mkdir(staging, 0700), 0);
    make_file(staging, "000123.sst");
    assert_int_equal(fcap_store_rocksdb_discard(place, NULL), FCAP_OK);
    assert_int_equal(access(place, F_OK), -1);
    assert_int_equal(access(staging, F_OK), -1);
    assert_int_equal(fcap_store_rocksdb_discard(place, NULL), FCAP_OK);
}

static void other_things_are_left_alone(void **state)
{
    (void)state;
    char other[64];
    char path[160];
    struct fcap_error error = {""};
    uint64_t sequence = 0;
    help_make(other);
    make_file(other, "photo.jpg");
    assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, other, &sequence, &error),
                     FCAP_FOREIGN);
    assert_non_null(strstr(error.text, "photo.jpg"));
    assert_int_equal(fcap_store_rocksdb_discard(other, NULL), FCAP_FOREIGN);
    (void)snprintf(path, sizeof path, "%s/photo.jpg", other);
    assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, path, &sequence, &error),
                     FCAP_FOREIGN);
    assert_int_equal(access(path, F_OK), 0);
    /* Nor the state itself. */
    assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, fixture.directory, &sequence, &error),
                     FCAP_FOREIGN);
    assert_int_equal(fcap_store_rocksdb_discard(fixture.directory, NULL), FCAP_FOREIGN);
    (void)snprintf(path, sizeof path, "%s/none/copy", other);
    assert_int_equal(fcap_store_rocksdb_snapshot(fixture.db, path, &sequence, &error), FCAP_IO);
    assert_non_null(strstr(error.text, "No such file"));
    help_remove(other);
    help_number(&fixture.batch, 1, 0);
    assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
    reopen();
    assert_int_equal(help_agreed(fixture.store), 1);
}

int main(int argc, char **argv)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, end_world)
    const struct CMUnitTest store_rocksdb_restore[] = {
        TEST(restored_states_are_the_living_one_with_log),
        TEST(restored_states_are_the_living_one_without_log),
        TEST(a_restored_state_passes_its_origin_on),
        TEST(unsound_frames_are_refused),
        TEST(no_copy_holds_a_batch_that_failed),
        TEST(a_commit_that_fails_meanwhile_spoils_the_copy),
        TEST(what_a_crash_left_is_replaced),
        TEST(other_things_are_left_alone),
    };
#undef TEST
    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(store_rocksdb_restore, NULL, NULL);
}
