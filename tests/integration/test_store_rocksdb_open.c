/* Opening the RocksDB store on every kind of wrong directory and wrong setting: a clear error each
 * time, never a crash, and nothing changed in what is not ours. */
#include "integration/store_rocksdb_help.h"

#include <dirent.h>
#include <fcntl.h>
#include <rocksdb/c.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static struct fixture {
    char directory[64];
    char path[256];
    struct fcap_store_settings settings;
} fixture;

static int set_up(void **state)
{
    (void)state;
    help_make(fixture.directory);
    fixture.settings = help_settings(fixture.directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    help_remove(fixture.directory);
    return 0;
}

/* <directory>/<name> */
static const char *in(const char *name)
{
    (void)snprintf(fixture.path, sizeof fixture.path, "%s/%s", fixture.directory, name);
    return fixture.path;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A store with some numbered commits, closed. */
static void make_state(size_t filler_bytes)
{
    struct fcap_batch batch = {0};
    int64_t dropped_ms = 0;
    struct fcap_store_rocksdb *db = help_open(&fixture.settings);
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    assert_int_equal(store->ops->claim(store, 1, 1, &dropped_ms), FCAP_OK);
    for (uint64_t number = 1; number <= 50; number++) {
        help_number(&batch, number, filler_bytes);
        assert_int_equal(help_commit(store, &batch), FCAP_OK);
    }
    fcap_batch_done(&batch);
    fcap_store_rocksdb_close(db);
}

/* The first file that ends so; its name goes to ret_name. */
static bool find_file(const char *suffix, char ret_name[128])
{
    DIR *directory = opendir(fixture.directory);
    assert_non_null(directory);
    bool found = false;
    for (struct dirent *entry = readdir(directory); entry != NULL && !found;
         entry = readdir(directory)) {
        size_t size = strlen(entry->d_name);
        bool is_start = strncmp(entry->d_name, suffix, strlen(suffix)) == 0;
        bool is_end =
            size > strlen(suffix) && strcmp(entry->d_name + size - strlen(suffix), suffix) == 0;
        if ((is_start || is_end) && size < 128) {
            (void)snprintf(ret_name, 128, "%s", entry->d_name);
            found = true;
        }
    }
    (void)closedir(directory);
    return found;
}

/* Overwrites `size` bytes at `offset` (negative: from the end). */
static void damage(const char *path, off_t offset, size_t size)
{
    struct stat info;
    int file = open(path, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &info), 0);
    off_t at = offset < 0 ? info.st_size + offset : offset;
    for (size_t i = 0; i < size && at + (off_t)i < info.st_size; i++) {
        assert_int_equal(pwrite(file, "\x5a", 1, at + (off_t)i), 1);
    }
    assert_int_equal(close(file), 0);
}

/* Opens with RocksDB itself, families as given, and writes one pair into the first. */
static void with_rocksdb(const char *const *families, int count, const char *key, size_t key_size,
                         const char *value, size_t value_size)
{
    char *text = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    const rocksdb_options_t *all[8] = {options, options, options, options,
                                       options, options, options, options};
    rocksdb_column_family_handle_t *handles[8];
    rocksdb_writeoptions_t *write_options = rocksdb_writeoptions_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_create_missing_column_families(options, 1);
    rocksdb_t *db = rocksdb_open_column_families(options, fixture.directory, count, families, all,
                                                 handles, &text);
    assert_null(text);
    if (key != NULL) {
        rocksdb_put_cf(db, write_options, handles[0], key, key_size, value, value_size, &text);
        assert_null(text);
    }
    for (int i = 0; i < count; i++) {
        rocksdb_column_family_handle_destroy(handles[i]);
    }
    rocksdb_close(db);
    rocksdb_writeoptions_destroy(write_options);
    rocksdb_options_destroy(options);
}

static const char *const ours[] = {"default"};

static void another_process_holds_the_lock(void **state)
{
    (void)state;
    int output = -1;
    char ready = 0;
    char pid[32];
    pid_t child = help_spawn("hold", fixture.directory, &output);
    ssize_t got = read(output, &ready, 1);
    (void)snprintf(pid, sizeof pid, "process %d uses it", (int)child);
    if (got == 1) {
        help_refused(&fixture.settings, FCAP_LOCKED, pid, "stop the other fcapd");
        help_refused(&fixture.settings, FCAP_LOCKED, pid, "LOCK");
    }
    help_kill(child, false);
    (void)close(output);
    assert_int_equal(got, 1);
    fcap_store_rocksdb_close(help_open(&fixture.settings)); /* The lock went with its owner. */
}

static void this_process_holds_the_lock(void **state)
{
    (void)state;
    struct fcap_store_rocksdb *db = help_open(&fixture.settings);
    help_refused(&fixture.settings, FCAP_LOCKED, "stop the other fcapd", fixture.directory);
    /* Asking for the owner must not have given the lock up. */
    int output = -1;
    char ready = 0;
    pid_t child = help_spawn("hold", fixture.directory, &output);
    ssize_t got = read(output, &ready, 1);
    help_kill(child, got != 1);
    (void)close(output);
    fcap_store_rocksdb_close(db);
    assert_int_equal(got, 0); /* It could not open and ended. */
}

static void foreign_directories_are_left_alone(void **state)
{
    (void)state;
    char name[128];
    write_file(in("photo.jpg"), "x");
    help_refused(&fixture.settings, FCAP_FOREIGN, "photo.jpg", "directory of its own");
    assert_false(find_file("CURRENT", name));
    assert_false(find_file("LOG", name));
    assert_int_equal(unlink(in("photo.jpg")), 0);

    const char *const other[] = {"default", "mails"};
    with_rocksdb(other, 2, NULL, 0, NULL, 0);
    help_refused(&fixture.settings, FCAP_FOREIGN, "fcapd did not make", NULL);
    help_remove(fixture.directory);
    assert_int_equal(mkdir(fixture.directory, 0700), 0);

    with_rocksdb(other, 1, "key", 3, "value", 5);
    help_refused(&fixture.settings, FCAP_FOREIGN, "fcapd did not make", NULL);
    with_rocksdb(other, 1, NULL, 0, NULL, 0); /* No family of ours came in: it still opens so. */

    fixture.settings.directory = in("LOG");
    help_refused(&fixture.settings, FCAP_FOREIGN, "LOG", NULL); /* A file. */
}

static void an_interrupted_creation_goes_on(void **state)
{
    (void)state;
    with_rocksdb(ours, 1, NULL, 0, NULL, 0); /* An empty database without our families. */
    assert_int_equal(mkdir(in("lost+found"), 0700), 0);
    fcap_store_rocksdb_close(help_open(&fixture.settings));
    fcap_store_rocksdb_close(help_open(&fixture.settings));
}

static void damaged_names_are_told(void **state)
{
    (void)state;
    char name[128];
    make_state(0);
    write_file(in("CURRENT"), "rubbish\n");
    help_refused(&fixture.settings, FCAP_CORRUPT, "CURRENT", "move the directory away");
    write_file(in("CURRENT"), "");
    help_refused(&fixture.settings, FCAP_CORRUPT, "CURRENT", NULL);
    write_file(in("CURRENT"), "MANIFEST-999999\n");
    help_refused(&fixture.settings, FCAP_CORRUPT, "MANIFEST-999999", "missing");
    assert_int_equal(unlink(in("CURRENT")), 0);
    help_refused(&fixture.settings, FCAP_CORRUPT, "CURRENT is missing", NULL);
    assert_true(find_file("MANIFEST-", name)); /* Nothing was created over it. */
    assert_false(find_file("CURRENT", name));
}

static void a_damaged_manifest_is_told(void **state)
{
    (void)state;
    char name[128];
    make_state(0);
    assert_true(find_file("MANIFEST-", name));
    damage(in(name), 20, 100);
    help_refused(&fixture.settings, FCAP_CORRUPT, "move the directory away", "orruption");
}

/* RocksDB opens what a manifest says up to the place where it was cut off. At each length the
 * state must be refused or be one that was once committed, in all families. */
static void a_manifest_cut_off_anywhere_never_parts_the_families(void **state)
{
    enum { STEP = 5 };
    (void)state;
    char name[128];
    char command[256];
    char path[256];
    struct stat info;
    size_t refused_families = 0;
    const struct fcap_store_settings cut_settings = fixture.settings;
    make_state(0);
    assert_true(find_file("MANIFEST-", name));
    assert_int_equal(stat(in(name), &info), 0);
    char copy[64];
    help_make(copy);
    (void)snprintf(command, sizeof command, "rm -rf %s && cp -a %s %s", copy, fixture.directory,
                   copy);
    (void)snprintf(path, sizeof path, "%s/%s", copy, name);
    for (off_t cut = info.st_size - 1; cut >= 0; cut -= STEP) {
        struct fcap_error error = {0};
        struct fcap_store_rocksdb *db = NULL;
        struct fcap_store_settings settings = cut_settings;
        settings.directory = copy;
        assert_int_equal(system(command), 0);
        assert_int_equal(truncate(path, cut), 0);
        enum fcap_status status = fcap_store_rocksdb_open(&settings, &db, &error);
        if (status == FCAP_OK) {
            (void)help_agreed(fcap_store_rocksdb_handle(db));
            fcap_store_rocksdb_close(db);
        } else {
            assert_int_equal(status, FCAP_CORRUPT);
            refused_families += strstr(error.text, "column families") != NULL;
        }
    }
    help_remove(copy);
    assert_true(refused_families > 0);
}

static void a_missing_table_is_told(void **state)
{
    (void)state;
    char name[128];
    make_state(20000);
    make_state(20000); /* Opening again flushes the log into tables. */
    assert_true(find_file(".sst", name));
    assert_int_equal(unlink(in(name)), 0);
    help_refused(&fixture.settings, FCAP_CORRUPT, name, "move the directory away");
}

static void a_damaged_table_is_told(void **state)
{
    (void)state;
    char name[128];
    make_state(20000);
    make_state(20000);
    assert_true(find_file(".sst", name));
    damage(in(name), -48, 48);
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *db = NULL;
    enum fcap_status status = fcap_store_rocksdb_open(&fixture.settings, &db, &error);
    fcap_store_rocksdb_close(db);
    assert_int_equal(status, FCAP_CORRUPT);
    if (strstr(error.text, name) == NULL) {
        fail_msg("\"%s\" does not name %s", error.text, name);
    }
}

static bool count_pair(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    (void)key;
    (void)value;
    ++*(size_t *)context;
    return true;
}

static void damaged_blocks_are_told_when_read(void **state)
{
    (void)state;
    char name[128];
    struct fcap_error error = {""};
    make_state(20000);
    make_state(20000);
    /* The users family's tables hold the bulk; damage them all. */
    DIR *directory = opendir(fixture.directory);
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        struct stat info;
        (void)snprintf(name, sizeof name, "%.100s", entry->d_name);
        if (strstr(name, ".sst") != NULL && stat(in(name), &info) == 0 && info.st_size > 100000) {
            damage(in(name), 1000, 5000);
        }
    }
    (void)closedir(directory);
    struct fcap_store_rocksdb *db = help_open(&fixture.settings);
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    size_t count = 0;
    enum fcap_status status = store->ops->scan(store, FCAP_FAMILY_USERS, FCAP_BYTES_NONE,
                                               FCAP_BYTES_NONE, count_pair, &count);
    fcap_store_rocksdb_last_error(db, &error);
    fcap_store_rocksdb_close(db);
    assert_int_equal(status, FCAP_CORRUPT);
    assert_int_equal(fcap_status_class(status), FCAP_CLASS_FATAL);
    assert_non_null(strstr(error.text, ".sst"));
}

static void places_that_cannot_be_written_are_told(void **state)
{
    (void)state;
    fixture.settings.directory = "/tmp/fcap-no-such-parent/state";
    help_refused(&fixture.settings, FCAP_IO, "parent directory does not exist", NULL);
    fixture.settings.directory = fixture.directory;
    make_state(0);
    if (geteuid() != 0 || mount(fixture.directory, fixture.directory, NULL, MS_BIND, NULL) != 0) {
        print_message("skipped: a read-only file system needs root and CAP_SYS_ADMIN\n");
        skip();
    }
    int mounted = mount(NULL, fixture.directory, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *db = NULL;
    enum fcap_status status = fcap_store_rocksdb_open(&fixture.settings, &db, &error);
    enum fcap_status read_only = fcap_store_rocksdb_open_read_only(&fixture.settings, &db, NULL);
    fcap_store_rocksdb_close(db);
    assert_int_equal(umount2(fixture.directory, MNT_DETACH), 0);
    assert_int_equal(mounted, 0);
    assert_int_equal(status, FCAP_IO);
    assert_non_null(strstr(error.text, "mounted read-only"));
    assert_int_equal(read_only, FCAP_OK); /* Looking is possible. */
}

static void options_are_in_force_or_refused(void **state)
{
    (void)state;
    struct fcap_store_settings *settings = &fixture.settings;
    settings->options = "max_background_jobs=4; wal_recovery_mode=kAbsoluteConsistency;ttl=90000;"
                        "block_based_table_factory={block_restart_interval=8;block_size=16K};"
                        "compression_opts={level=3;}";
    settings->families[FCAP_FAMILY_TIMERS].options = "compression=kZSTD;write_buffer_size=3M";
    fcap_store_rocksdb_close(help_open(settings));
    static const char *const lines[] = {"max_background_jobs=4",
                                        "ttl=90000",
                                        "block_size=16384",
                                        "wal_recovery_mode=kAbsoluteConsistency",
                                        "compression=kZSTD",
                                        "  write_buffer_size=3145728",
                                        "level=3"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char command[256];
        (void)snprintf(command, sizeof command, "cat %s/OPTIONS-* | grep -q -e '%s'",
                       fixture.directory, lines[i]);
        assert_int_equal(system(command), 0);
    }

    static const struct {
        const char *options;
        const char *says;
    } refused[] = {
        {"statistics=x", "statistics"},
        {"max_open_files=100;listeners={a}", "listeners"},
        {"write_buffer_manager=1", "write_buffer_manager"},
        {"compaction_filter_factory=f", "compaction_filter_factory"},
        {"block_based_table_factory={block_cache=8M}", "block_cache"},
        {"block_based_table_factory={no_such=1}", "block_based_table_factory"},
        {"no_such_option=1", "no_such_option"},
        {"atomic_flush=true", "atomic_flush"},
        {"max_background_jobs", "name=value"},
        {"write_buffer_size=1", "write_buffer_size"}, /* RocksDB makes it 64 KB, silently. */
        {"arena_block_size=3", "arena_block_size"},
        {"persist_stats_to_disk=true", "family"},
        {"inplace_update_support=true", "one moment"},
        {"wal_recovery_mode=kSkipAnyCorruptedRecords", "leaves commits out"},
        {"wal_recovery_mode=kTolerateCorruptedTailRecords", "leaves commits out"},
    };
    settings->families[FCAP_FAMILY_TIMERS].options = NULL;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        settings->options = refused[i].options;
        help_refused(settings, FCAP_CONFIG, refused[i].says, NULL);
    }
    settings->options = NULL;
    settings->families[FCAP_FAMILY_ADS].options = "max_background_jobs=2"; /* Not a family's. */
    help_refused(settings, FCAP_CONFIG, "max_background_jobs", NULL);
    settings->families[FCAP_FAMILY_ADS].options = NULL;
    settings->families[FCAP_FAMILY_ADS].write_buffer_bytes = 1000;
    help_refused(settings, FCAP_CONFIG, "write_buffer_size", "1000");
    settings->families[FCAP_FAMILY_ADS].write_buffer_bytes = 1 << 20;
}

/* What RocksDB changes or forbids without the log, or what would lose commits then. */
static void options_are_refused_without_log(void **state)
{
    (void)state;
    struct fcap_store_settings *settings = &fixture.settings;
    static const struct {
        const char *options;
        const char *says;
    } refused_without_log[] = {
        {"min_write_buffer_number_to_merge=2", "min_write_buffer_number_to_merge"},
        {"recycle_log_file_num=4", "recycle_log_file_num"},
        {"enable_pipelined_write=true", "enable_pipelined_write"},
        {"avoid_flush_during_shutdown=true", "avoid_flush_during_shutdown"},
        {"ttl=90000; avoid_flush_during_shutdown = 1", "lose the commits"},
    };
    settings->options = "avoid_flush_during_shutdown=true"; /* The log keeps them. */
    fcap_store_rocksdb_close(help_open(settings));
    settings->wal = false;
    for (size_t i = 0; i < sizeof refused_without_log / sizeof refused_without_log[0]; i++) {
        settings->options = refused_without_log[i].options;
        help_refused(settings, FCAP_CONFIG, refused_without_log[i].says, NULL);
    }
    settings->options = "avoid_flush_during_shutdown=false;recycle_log_file_num=0";
    fcap_store_rocksdb_close(help_open(settings));
    settings->options = NULL;
    settings->families[FCAP_FAMILY_ADS].write_buffers_merge = 2;
    help_refused(settings, FCAP_CONFIG, "ads", "wal: off");
    settings->families[FCAP_FAMILY_ADS].write_buffers_merge = 1;
    settings->sync = FCAP_STORE_SYNC_COMMIT;
    help_refused(settings, FCAP_CONFIG, "wal: on", NULL);
}

static void every_setting_reaches_rocksdb(void **state)
{
    (void)state;
    struct fcap_store_settings *settings = &fixture.settings;
    settings->write_buffers_bytes = 32 << 20;
    settings->wal_bytes_max = 48 << 20;
    settings->background_jobs = 3;
    settings->open_files_max = 200;
    settings->direct_reads = true;
    settings->direct_flush_and_compaction = true;
    settings->bytes_per_sync = 2 << 20;
    settings->wal_bytes_per_sync = 3 << 20;
    settings->rate_limit_bytes_per_second = 100 << 20;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        struct fcap_store_family_settings *family = &settings->families[i];
        family->ribbon_filter = true;
        family->filter_bits_per_key = 12;
        family->partitioned_filters = i % 2 == 0;
        family->cache_index_and_filters = i % 2 == 1;
        family->compression = (enum fcap_store_compression)(i % 3);
        family->dynamic_levels = i % 2 == 0;
        family->write_buffers_max = 5;
        family->write_buffers_merge = 2;
        family->level0_files = 6;
    }
    make_state(1000);
    struct fcap_store_rocksdb *db = help_open(settings);
    struct fcap_store_metrics metrics;
    fcap_store_rocksdb_metrics(db, &metrics);
    assert_int_equal(metrics.open_files_max, 200);
    assert_int_equal(help_agreed(fcap_store_rocksdb_handle(db)), 50);
    fcap_store_rocksdb_close(db);
}

static void open_files_stay_below_the_process_limit(void **state)
{
    (void)state;
    struct rlimit old;
    struct fcap_store_metrics metrics;
    struct fcap_store_settings *settings = &fixture.settings;
    struct fcap_store_family_settings *users = &settings->families[FCAP_FAMILY_USERS];
    users->target_file_bytes = 32 << 10;
    users->write_buffer_bytes = 1 << 20;
    users->compression = FCAP_STORE_COMPRESSION_NONE;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    struct rlimit least = {.rlim_cur = 40, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &least), 0);
    help_refused(settings, FCAP_CONFIG, "may open 40 files", "ulimit -n");
    struct rlimit low = {.rlim_cur = 256, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (size_t i = 0; i < 3; i++) {
        make_state(400000); /* 20 MB a round: 600 tables in all */
    }
    struct fcap_store_rocksdb *db = help_open(settings);
    size_t count = 0;
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    enum fcap_status status = store->ops->scan(store, FCAP_FAMILY_USERS, FCAP_BYTES_NONE,
                                               FCAP_BYTES_NONE, count_pair, &count);
    fcap_store_rocksdb_metrics(db, &metrics);
    fcap_store_rocksdb_close(db);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(status, FCAP_OK);
    assert_int_equal(count, 51);
    assert_in_range(metrics.open_files_max, 20, 255);
}

/* Child: opens, says so, waits to be killed. */
static int hold(const char *directory)
{
    struct fcap_store_settings settings = help_settings(directory);
    struct fcap_store_rocksdb *db = NULL;
    if (fcap_store_rocksdb_open(&settings, &db, NULL) != FCAP_OK) {
        return 1;
    }
    (void)!write(STDOUT_FILENO, "r", 1); /* Lost: the parent fails. */
    for (;;) {
        (void)pause();
    }
}

/* No temporary directory can be made: with a file system mounted read-only there is none. */
static void nothing_is_written_but_the_state(void **state)
{
    (void)state;
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *db = NULL;
    const char *before = getenv("TMPDIR");
    char *kept = before == NULL ? NULL : strdup(before);
    assert_int_equal(setenv("TMPDIR", "/dev/null/none", 1), 0);
    make_state(100);
    enum fcap_status again = fcap_store_rocksdb_open(&fixture.settings, &db, &error);
    fcap_store_rocksdb_close(db);
    db = NULL;
    enum fcap_status looked = fcap_store_rocksdb_open_read_only(&fixture.settings, &db, &error);
    fcap_store_rocksdb_close(db);
    assert_int_equal(kept == NULL ? unsetenv("TMPDIR") : setenv("TMPDIR", kept, 1), 0);
    free(kept);
    if (again != FCAP_OK || looked != FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "hold") == 0) {
        return hold(argv[2]);
    }
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest store_rocksdb_open[] = {
        TEST(another_process_holds_the_lock),
        TEST(this_process_holds_the_lock),
        TEST(foreign_directories_are_left_alone),
        TEST(an_interrupted_creation_goes_on),
        TEST(damaged_names_are_told),
        TEST(a_damaged_manifest_is_told),
        TEST(a_manifest_cut_off_anywhere_never_parts_the_families),
        TEST(a_missing_table_is_told),
        TEST(a_damaged_table_is_told),
        TEST(damaged_blocks_are_told_when_read),
        TEST(places_that_cannot_be_written_are_told),
        TEST(options_are_in_force_or_refused),
        TEST(options_are_refused_without_log),
        TEST(every_setting_reaches_rocksdb),
        TEST(open_files_stay_below_the_process_limit),
        TEST(nothing_is_written_but_the_state),
    };
#undef TEST
    return cmocka_run_group_tests(store_rocksdb_open, NULL, NULL);
}
