/* Opening: what is in the directory, whether it is ours, and clear words when it is not. */
#include "store_rocksdb_internal.h"

#include "fcap/assert.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char created_key[] = "\xff\xff"
                                  "created_by";
static const char dropped_key[] = "\xff\xff"
                                  "dropped_through";

/* A database that must not be changed, or not yet, gets no log of RocksDB's: nothing may be written
 * beside it, and there may be no other place. RocksDB's read-only mode does without one when its
 * directory cannot be made, and this one never can. */
const char store_no_log_directory[] = "/dev/null/log";

/* What the database says about itself. */
struct identity {
    bool has_format;
    uint32_t format;
    bool is_empty; /* the meta family holds nothing at all */
};

static enum fcap_status read_identity(rocksdb_t *db, rocksdb_column_family_handle_t *meta,
                                      const char *directory, struct identity *ret_identity,
                                      struct fcap_error *error)
{
    char *text = NULL;
    size_t size = 0;
    struct identity identity = {0};
    rocksdb_readoptions_t *options = rocksdb_readoptions_create();
    char *value =
        rocksdb_get_cf(db, options, meta, store_format_key, strlen(store_format_key), &size, &text);
    if (text == NULL && value != NULL) {
        struct fcap_reader reader = fcap_reader_of((struct fcap_bytes){(uint8_t *)value, size});
        identity.format = fcap_reader_be32(&reader);
        identity.has_format = !reader.failed;
    }
    if (text == NULL) {
        rocksdb_iterator_t *iterator = rocksdb_create_iterator_cf(db, options, meta);
        rocksdb_iter_seek_to_first(iterator);
        identity.is_empty = !rocksdb_iter_valid(iterator);
        rocksdb_iter_get_error(iterator, &text);
        rocksdb_iter_destroy(iterator);
    }
    rocksdb_free(value);
    rocksdb_readoptions_destroy(options);
    if (text != NULL) {
        return store_explain(directory, text, error);
    }
    *ret_identity = identity;
    return FCAP_OK;
}

static enum fcap_status judge_identity(const struct identity *identity, const char *directory,
                                       struct fcap_error *error)
{
    if (!identity->has_format && !identity->is_empty) {
        return fcap_error_set(error, FCAP_FOREIGN,
                              "%s holds a RocksDB database that fcapd did not make; give fcapd a "
                              "directory of its own",
                              directory);
    }
    if (identity->has_format && identity->format != FCAP_STORE_FORMAT_VERSION &&
        identity->format != FCAP_STORE_FORMAT_UNNUMBERED) {
        return fcap_error_set(error, FCAP_FORMAT,
                              "%s was written in format %u, this fcapd knows format %u; use the "
                              "fcapd that wrote it, or move the directory away to rebuild the "
                              "state",
                              directory, identity->format, FCAP_STORE_FORMAT_VERSION);
    }
    return FCAP_OK;
}

/* A database whose families are not exactly ours is opened read-only first, its meta family alone:
 * nothing may be changed in what belongs to somebody else or to a newer fcapd. */
static enum fcap_status probe(const char *directory, const rocksdb_options_t *options,
                              bool has_unknown, bool lacks_family, struct fcap_error *error)
{
    const char *names[1] = {fcap_family_name(FCAP_FAMILY_META)};
    const rocksdb_options_t *family_options[1];
    rocksdb_column_family_handle_t *family = NULL;
    char *text = NULL;
    struct identity identity = {0};
    enum fcap_status status = FCAP_OK;
    rocksdb_options_t *copy = rocksdb_options_create_copy((rocksdb_options_t *)(uintptr_t)options);
    rocksdb_options_set_db_log_dir(copy, store_no_log_directory);
    family_options[0] = copy;
    rocksdb_t *db = rocksdb_open_for_read_only_column_families(copy, directory, 1, names,
                                                               family_options, &family, 0, &text);
    rocksdb_options_destroy(copy);
    if (text != NULL) {
        return store_explain(directory, text, error);
    }
    status = read_identity(db, family, directory, &identity, error);
    rocksdb_column_family_handle_destroy(family);
    rocksdb_close(db);
    if (status != FCAP_OK) {
        return status;
    }
    if (has_unknown && identity.is_empty) {
        identity.is_empty = false; /* Other families hold somebody's data. */
    }
    status = judge_identity(&identity, directory, error);
    if (status == FCAP_OK && lacks_family && identity.has_format) {
        /* The format is written when all families are there. RocksDB takes a manifest that was cut
         * off as it is, would make the families anew, and skip their part of the log: offsets
         * without the effects of their records. */
        return fcap_error_set(error, FCAP_CORRUPT,
                              "%s: the manifest does not name all of its column families any more; "
                              "%s",
                              directory, STORE_CURE_CORRUPT);
    }
    return status;
}

/* Checks the families in the manifest; *ret_is_new: not all of ours are there yet. */
static enum fcap_status check_families(const char *directory, const rocksdb_options_t *options,
                                       bool *ret_is_new, struct fcap_error *error)
{
    char *text = NULL;
    size_t count = 0;
    char **names = rocksdb_list_column_families(options, directory, &count, &text);
    if (text != NULL) {
        rocksdb_list_column_families_destroy(names, 0); /* An empty list is given all the same. */
        return store_explain(directory, text, error);
    }
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < FCAP_FAMILY_COUNT; j++) {
            known += strcmp(names[i], fcap_family_name((enum fcap_family)j)) == 0;
        }
    }
    rocksdb_list_column_families_destroy(names, count);
    *ret_is_new = known < FCAP_FAMILY_COUNT;
    if (known == count && known == FCAP_FAMILY_COUNT) {
        return FCAP_OK;
    }
    enum fcap_status status = probe(directory, options, known < count, *ret_is_new, error);
    if (status == FCAP_OK && known < count) {
        return fcap_error_set(error, FCAP_FORMAT,
                              "%s has a column family that this fcapd does not know; use the fcapd "
                              "that wrote it",
                              directory);
    }
    return status;
}

/* Everything that can be known before RocksDB may change anything. */
static enum fcap_status inspect(const struct fcap_store_rocksdb *db,
                                const rocksdb_options_t *options, struct fcap_error *error)
{
    bool exists = false;
    bool is_new = false;
    enum fcap_status status =
        store_directory_check(db->directory, db->is_read_only, &exists, error);
    if (status == FCAP_OK && !db->is_read_only) {
        status = store_directory_space(db->directory, error);
    }
    if (status == FCAP_OK && exists) {
        status = check_families(db->directory, options, &is_new, error);
    }
    if (status == FCAP_OK && !db->is_read_only) {
        status = store_directory_try(db->directory, error);
    }
    if (status == FCAP_OK && db->is_read_only && is_new) {
        return fcap_error_set(error, FCAP_IO, "%s: there is no state yet", db->directory);
    }
    return status;
}

/* The format of a new database. Not durable yet: the lineage that is written next is. */
static enum fcap_status stamp(struct fcap_store_rocksdb *db, struct fcap_error *error)
{
    static const char by[] = "fcapd " FCAP_VERSION;
    rocksdb_column_family_handle_t *meta = db->families[FCAP_FAMILY_META];
    struct fcap_buffer version = {0};
    char *text = NULL;
    fcap_buffer_put_be32(&version, FCAP_STORE_FORMAT_VERSION);
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    rocksdb_writebatch_put_cf(batch, meta, store_format_key, strlen(store_format_key),
                              (const char *)version.data, version.size);
    rocksdb_writebatch_put_cf(batch, meta, created_key, sizeof created_key - 1, by, sizeof by - 1);
    rocksdb_write(db->db, db->write_options, batch, &text);
    rocksdb_writebatch_destroy(batch);
    fcap_buffer_done(&version);
    return text == NULL ? FCAP_OK : store_explain(db->directory, text, error);
}

/* Stamps a new database; checks an old one; reads what the store itself must know. */
static enum fcap_status enter(struct fcap_store_rocksdb *db, struct fcap_error *error)
{
    struct identity identity = {0};
    struct fcap_buffer value = {0};
    bool found = false;
    rocksdb_column_family_handle_t *meta = db->families[FCAP_FAMILY_META];
    enum fcap_status status = read_identity(db->db, meta, db->directory, &identity, error);
    if (status == FCAP_OK) {
        status = judge_identity(&identity, db->directory, error);
    }
    if (status == FCAP_OK && !identity.has_format && !db->is_read_only) {
        status = stamp(db, error);
    }
    if (status == FCAP_OK) {
        status = store_own_get(db, dropped_key, sizeof(int64_t), &value, &found, error);
    }
    if (status == FCAP_OK && found) {
        struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&value));
        db->dropped_through_ms = fcap_reader_i64(&reader);
        db->bound_stored_ms = db->dropped_through_ms;
    }
    fcap_buffer_done(&value);
    bool is_earlier = identity.has_format && identity.format != FCAP_STORE_FORMAT_VERSION;
    return status == FCAP_OK ? store_lineage_enter(db, is_earlier, error) : status;
}

static struct fcap_store_rocksdb *make(const struct fcap_store_settings *settings,
                                       bool is_read_only)
{
    struct fcap_store_rocksdb *db = calloc(1, sizeof *db);
    FCAP_ASSERT(db != NULL);
    db->directory = strdup(settings->directory);
    FCAP_ASSERT(db->directory != NULL);
    db->is_read_only = is_read_only;
    db->keeps_lineage = settings->keeps_lineage;
    db->wal = settings->wal;
    db->sync = settings->sync;
    db->sync_interval_ms = settings->sync_interval_ms;
    db->release_step_ms = settings->release_step_ms;
    db->release_pause_ms = settings->release_pause_ms;
    db->release_sweep_ms = settings->release_sweep_ms;
    db->looked_at_us = store_monotonic_us() - settings->release_pause_ms * 1000;
    db->swept_at_us = store_monotonic_us();
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        size_t bytes = settings->families[i].write_buffer_bytes;
        db->write_buffer_bytes_max =
            bytes > db->write_buffer_bytes_max ? bytes : db->write_buffer_bytes_max;
    }
    db->write_options = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(db->write_options, !settings->wal);
    rocksdb_writeoptions_set_sync(db->write_options, settings->sync == FCAP_STORE_SYNC_COMMIT);
    db->durable_options = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(db->durable_options, !settings->wal);
    rocksdb_writeoptions_set_sync(db->durable_options, settings->wal);
    db->read_options = rocksdb_readoptions_create();
    pthread_condattr_t attributes;
    FCAP_ASSERT(pthread_mutex_init(&db->lock, NULL) == 0);
    FCAP_ASSERT(pthread_mutex_init(&db->write_gate, NULL) == 0);
    FCAP_ASSERT(pthread_condattr_init(&attributes) == 0);
    FCAP_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    FCAP_ASSERT(pthread_cond_init(&db->writer_wakes, &attributes) == 0);
    FCAP_ASSERT(pthread_cond_init(&db->keeper_wakes, &attributes) == 0);
    FCAP_ASSERT(pthread_cond_init(&db->write_ended, &attributes) == 0);
    (void)pthread_condattr_destroy(&attributes); /* Cannot fail on an initialised one. */
    return db;
}

static enum fcap_status open_database(struct fcap_store_rocksdb *db, struct store_options *options,
                                      struct fcap_error *error)
{
    const char *names[FCAP_FAMILY_COUNT];
    const rocksdb_options_t *family_options[FCAP_FAMILY_COUNT];
    char *text = NULL;
    struct stat info;
    if (stat(db->directory, &info) != 0) {
        return fcap_error_set(error, FCAP_IO, "%s: %s", db->directory, strerror(errno));
    }
    db->device = info.st_dev;
    db->inode = info.st_ino;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        names[i] = fcap_family_name((enum fcap_family)i);
        family_options[i] = options->families[i];
    }
    if (db->is_read_only) {
        rocksdb_options_set_db_log_dir(options->database, store_no_log_directory);
        db->db = rocksdb_open_for_read_only_column_families(options->database, db->directory,
                                                            FCAP_FAMILY_COUNT, names,
                                                            family_options, db->families, 0, &text);
    } else {
        db->db = rocksdb_open_column_families(options->database, db->directory, FCAP_FAMILY_COUNT,
                                              names, family_options, db->families, &text);
    }
    if (text != NULL) {
        return store_explain(db->directory, text, error);
    }
    db->options = options->database; /* Holds the statistics. */
    options->database = NULL;
    db->cache = options->cache;
    options->cache = NULL;
    db->open_files_max = options->open_files_max;
    return FCAP_OK;
}

static enum fcap_status open_store(const struct fcap_store_settings *settings, bool is_read_only,
                                   struct fcap_store_rocksdb **ret_db, struct fcap_error *error)
{
    struct store_options options = {0};
    struct fcap_store_rocksdb *db = make(settings, is_read_only);
    enum fcap_status status = store_options_make(settings, is_read_only, &options, error);
    if (status == FCAP_OK) {
        status = inspect(db, options.database, error);
    }
    if (status == FCAP_OK) {
        status = open_database(db, &options, error);
    }
    if (status == FCAP_OK) {
        status = enter(db, error);
    }
    if (status == FCAP_OK && !is_read_only) {
        status = store_options_check(settings, db->open_files_max, error);
    }
    if (status == FCAP_OK && !is_read_only) {
        status = store_threads_start(db);
    }
    if (status == FCAP_OK) {
        *ret_db = db;
        db = NULL;
    }
    store_options_done(&options);
    fcap_store_rocksdb_close(db);
    if (status != FCAP_OK) {
        fcap_error_prefix(error, "open store");
    }
    return status;
}

enum fcap_status fcap_store_rocksdb_open(const struct fcap_store_settings *settings,
                                         struct fcap_store_rocksdb **ret_db,
                                         struct fcap_error *error)
{
    return open_store(settings, false, ret_db, error);
}

enum fcap_status fcap_store_rocksdb_open_read_only(const struct fcap_store_settings *settings,
                                                   struct fcap_store_rocksdb **ret_db,
                                                   struct fcap_error *error)
{
    /* A running daemon can delete a file between the reading of its manifest and the opening of its
     * tables; the next try reads a newer manifest. */
    enum { TRIES = 5 };
    enum fcap_status status = FCAP_IO;
    for (int i = 0; i < TRIES && status != FCAP_OK; i++) {
        status = open_store(settings, true, ret_db, error);
        if (status != FCAP_OK && status != FCAP_CORRUPT && status != FCAP_IO) {
            break;
        }
    }
    return status;
}
