/* The version of a state's format: one that is not ours is refused and left as it is; the one
 * before is taken, once. */
#include "integration/store_rocksdb_help.h"

#include <rocksdb/c.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct fixture {
    char directory[64];
    struct fcap_store_settings settings;
} fixture;

static int set_up(void **state)
{
    (void)state;
    struct fcap_batch batch = {0};
    int64_t dropped_ms = 0;
    help_make(fixture.directory);
    fixture.settings = help_settings(fixture.directory);
    struct fcap_store_rocksdb *db = help_open(&fixture.settings);
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    assert_int_equal(store->ops->claim(store, 1, 1, &dropped_ms), FCAP_OK);
    for (uint64_t number = 1; number <= 5; number++) {
        help_number(&batch, number, 0);
        assert_int_equal(help_commit(store, &batch), FCAP_OK);
    }
    fcap_batch_done(&batch);
    fcap_store_rocksdb_close(db);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    help_remove(fixture.directory);
    return 0;
}

/* Golden: docs/DATA.md, "Keys of the store itself". */
static const char key[] = {'\xff', '\xff', 'f', 'o', 'r', 'm', 'a', 't'};

/* Opens with RocksDB itself, the first `count` families. Writes `version`, if that is not NULL, and
 * gives what stands there then. */
static void with_rocksdb(int count, const char *version, char ret_version[4])
{
    static const char *const names[] = {"default", "users", "timers", "ads", "tomorrow"};
    char *text = NULL;
    size_t size = 0;
    rocksdb_options_t *options = rocksdb_options_create();
    const rocksdb_options_t *all[] = {options, options, options, options, options};
    rocksdb_column_family_handle_t *handles[5];
    rocksdb_writeoptions_t *writing = rocksdb_writeoptions_create();
    rocksdb_readoptions_t *reading = rocksdb_readoptions_create();
    rocksdb_options_set_create_missing_column_families(options, 1);
    rocksdb_t *db =
        rocksdb_open_column_families(options, fixture.directory, count, names, all, handles, &text);
    assert_null(text);
    if (version != NULL) {
        rocksdb_put_cf(db, writing, handles[0], key, sizeof key, version, 4, &text);
        assert_null(text);
    }
    char *found = rocksdb_get_cf(db, reading, handles[0], key, sizeof key, &size, &text);
    assert_null(text);
    assert_int_equal(size, 4);
    memcpy(ret_version, found, 4);
    rocksdb_free(found);
    for (int i = 0; i < count; i++) {
        rocksdb_column_family_handle_destroy(handles[i]);
    }
    rocksdb_close(db);
    rocksdb_writeoptions_destroy(writing);
    rocksdb_readoptions_destroy(reading);
    rocksdb_options_destroy(options);
}

static void newer_formats_are_refused(void **state)
{
    (void)state;
    char version[4];
    with_rocksdb(4, "\0\0\0\3", version);
    help_refused(&fixture.settings, FCAP_FORMAT, "format 3", "knows format 2");
    with_rocksdb(5, NULL, version); /* One that has another family, too. */
    assert_memory_equal(version, "\0\0\0\3", 4);
    help_refused(&fixture.settings, FCAP_FORMAT, "format 3", NULL);
    with_rocksdb(5, "\0\0\0\2", version);
    help_refused(&fixture.settings, FCAP_FORMAT, "column family", NULL);
}

static void position_of(struct fcap_store_position *ret_position,
                        struct fcap_store_position *ret_origin, bool *ret_has_origin)
{
    struct fcap_store_rocksdb *db = help_open(&fixture.settings);
    fcap_store_rocksdb_position(db, ret_position);
    *ret_has_origin = fcap_store_rocksdb_origin(db, ret_origin);
    fcap_store_rocksdb_close(db);
}

/* A build that numbers no batches may have written to a state of format 1: what it has is taken,
 * its number is not believed. Only once: the state says then that it is of format 2, and that build
 * refuses it. */
static void an_earlier_format_is_taken_and_left(void **state)
{
    (void)state;
    struct fcap_store_position before = {0};
    struct fcap_store_position after = {0};
    struct fcap_store_position origin = {0};
    bool has_origin = true;
    char version[4];
    position_of(&before, &origin, &has_origin);
    assert_int_equal(before.sequence, 5);
    assert_false(has_origin);
    for (int keeps = 0; keeps < 2; keeps++) {
        with_rocksdb(4, "\0\0\0\1", version);
        fixture.settings.keeps_lineage = keeps != 0; /* As a snapshot is opened. */
        position_of(&after, &origin, &has_origin);
        fixture.settings.keeps_lineage = false;
        assert_int_equal(after.sequence, before.sequence);
        bool is_same = memcmp(&after.lineage, &before.lineage, sizeof after.lineage) == 0;
        assert_int_equal(is_same, keeps);
        assert_true(has_origin && origin.sequence == before.sequence);
        with_rocksdb(4, NULL, version);
        assert_memory_equal(version, "\0\0\0\2", 4);
        before = after;
        position_of(&after, &origin, &has_origin); /* It is of today's format. */
        assert_memory_equal(&after.lineage, &before.lineage, sizeof after.lineage);
    }
}

/* For reading it is taken as it is, and nothing is changed. */
static void an_earlier_format_is_read_as_it_is(void **state)
{
    (void)state;
    char version[4];
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *db = NULL;
    with_rocksdb(4, "\0\0\0\1", version);
    assert_int_equal(fcap_store_rocksdb_open_read_only(&fixture.settings, &db, &error), FCAP_OK);
    fcap_store_rocksdb_close(db);
    with_rocksdb(4, NULL, version);
    assert_memory_equal(version, "\0\0\0\1", 4);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(newer_formats_are_refused),
        TEST(an_earlier_format_is_taken_and_left),
        TEST(an_earlier_format_is_read_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
