/* A copy of the database beside it: hard links of what RocksDB never changes again, copies of the
 * small rest. The copy says by itself which batch it stands at: its number lies in the atomic unit
 * of the batch. */
#include "store_rocksdb_internal.h"

#include "fcap/assert.h"
#include "fcap/point.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Beside what is in memory: the copy's manifest, options and log. */
enum { COPY_BYTES_MIN = 1 << 20 };

/* Where RocksDB makes a copy before it gets its name. */
static const char staging_suffix[] = ".tmp";

enum fcap_status store_copy(struct fcap_store_rocksdb *db, const char *path)
{
    char *text = NULL;
    if (STORE_FLUSH_IS_DOUBTFUL(db)) {
        /* 7.8 can leave out a family that is empty when the flush of all starts and gets data while
         * it waits (RocksDB #11148). With the log on, the log holds it. */
        (void)pthread_mutex_lock(&db->write_gate);
    }
    rocksdb_checkpoint_t *checkpoint = rocksdb_checkpoint_object_create(db->db, &text);
    if (text == NULL) {
        rocksdb_checkpoint_create(checkpoint, path, 0, &text); /* 0: flushes, all as one. */
        rocksdb_checkpoint_object_destroy(checkpoint);
    }
    if (STORE_FLUSH_IS_DOUBTFUL(db)) {
        (void)pthread_mutex_unlock(&db->write_gate);
    }
    uint64_t errors = 0;
    (void)rocksdb_property_int(db->db, "rocksdb.background-errors", &errors); /* Known to all. */
    if (text == NULL && errors > 0 && STORE_FLUSH_IS_DOUBTFUL(db)) {
        /* After a failed atomic flush, 7.8 was seen to lose a commit that a later one had covered.
         */
        (void)pthread_mutex_lock(&db->lock);
        db->is_broken = true;
        (void)fcap_error_set(&db->last_error, FCAP_IO,
                             "%s: a flush has failed, and RocksDB cannot be trusted after it; "
                             "restart",
                             db->directory);
        (void)pthread_mutex_unlock(&db->lock);
        return FCAP_IO;
    }
    return store_take_error(db, text);
}

/* --- before -------------------------------------------------------------------------------------
 */

/* Links need the same file system; RocksDB would copy the whole state without a word. */
static enum fcap_status check_place(const struct fcap_store_rocksdb *db, const char *directory,
                                    struct fcap_error *error)
{
    char parent[4096];
    struct stat state;
    struct stat place;
    int length = snprintf(parent, sizeof parent, "%s", directory);
    if (length < 0 || (size_t)length + sizeof staging_suffix > sizeof parent) {
        return fcap_error_set(error, FCAP_CONFIG, "%.100s...: the name is too long", directory);
    }
    char *slash = strrchr(parent, '/');
    if (slash != NULL) {
        slash[slash == parent] = '\0';
    }
    const char *beside = slash == NULL ? "." : parent;
    if (stat(beside, &place) != 0 || stat(db->directory, &state) != 0) {
        return fcap_error_set(error, FCAP_IO, "%s: %s", beside, strerror(errno));
    }
    if (place.st_dev != state.st_dev) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "%s must lie in the file system of %s: a snapshot is made of hard "
                              "links",
                              directory, db->directory);
    }
    return FCAP_OK;
}

/* A flush that fails for want of space stops the commits. */
static enum fcap_status check_space(struct fcap_store_rocksdb *db, struct fcap_error *error)
{
    struct statvfs info;
    uint64_t needed = COPY_BYTES_MIN;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        uint64_t bytes = 0;
        (void)rocksdb_property_int_cf(db->db, db->families[i], "rocksdb.cur-size-all-mem-tables",
                                      &bytes); /* Known to all. */
        needed += bytes;
    }
    if (statvfs(db->directory, &info) != 0) {
        return fcap_error_set(error, FCAP_IO, "%s: %s", db->directory, strerror(errno));
    }
    uint64_t free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    if (free_bytes >= needed) {
        return FCAP_OK;
    }
    return fcap_error_set(error, FCAP_NO_SPACE,
                          "%s: %llu bytes are free, a snapshot may need %llu; free space on its "
                          "file system",
                          db->directory, (unsigned long long)free_bytes,
                          (unsigned long long)needed);
}

static enum fcap_status check_health(struct fcap_store_rocksdb *db, uint64_t *ret_failed,
                                     struct fcap_error *error)
{
    uint64_t errors = 0;
    if (store_directory_stays(db) != FCAP_OK) {
        store_tell_last_error(db, error);
        return FCAP_IO;
    }
    (void)rocksdb_property_int(db->db, "rocksdb.background-errors", &errors); /* Known to all. */
    (void)pthread_mutex_lock(&db->lock); /* Fails only when misused, here and below. */
    bool is_broken = db->is_broken || (STORE_FLUSH_IS_DOUBTFUL(db) && (db->was_full || errors > 0));
    *ret_failed = db->commits_failed;
    (void)pthread_mutex_unlock(&db->lock);
    if (is_broken) {
        return fcap_error_set(error, FCAP_IO,
                              "%s: RocksDB has not recovered from a failed write; restart",
                              db->directory);
    }
    return FCAP_OK;
}

/* --- the copy ------------------------------------------------------------------------------------
 */

/* The number that a copy holds, as RocksDB finds it there; of its files only the meta family's are
 * read. */
static enum fcap_status read_sequence(const char *directory, uint64_t *ret_sequence,
                                      struct fcap_error *error)
{
    const char *names[1] = {fcap_family_name(FCAP_FAMILY_META)};
    rocksdb_options_t *options = rocksdb_options_create();
    const rocksdb_options_t *family_options[1] = {options};
    struct fcap_store_rocksdb copy = {.directory = (char *)(uintptr_t)directory};
    struct fcap_buffer value = {0};
    bool found = false;
    char *text = NULL;
    enum fcap_status status = FCAP_OK;
    rocksdb_options_set_db_log_dir(options, store_no_log_directory);
    copy.read_options = rocksdb_readoptions_create();
    copy.db = rocksdb_open_for_read_only_column_families(
        options, directory, 1, names, family_options, &copy.families[FCAP_FAMILY_META], 0, &text);
    if (text != NULL) {
        copy.db = NULL;
        status = store_explain(directory, text, error);
        goto out;
    }
    status = store_own_get(&copy, store_sequence_key, sizeof *ret_sequence, &value, &found, error);
    if (status == FCAP_OK && !found) {
        status = fcap_error_set(error, FCAP_CORRUPT, "%s: it has no number", directory);
    }
    if (status == FCAP_OK) {
        struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&value));
        *ret_sequence = fcap_reader_be64(&reader);
    }
out:
    fcap_buffer_done(&value);
    if (copy.db != NULL) {
        rocksdb_column_family_handle_destroy(copy.families[FCAP_FAMILY_META]);
        rocksdb_close(copy.db);
    }
    rocksdb_readoptions_destroy(copy.read_options);
    rocksdb_options_destroy(options);
    return status;
}

/* The writer is through with everything that the copy holds. A batch whose write failed may lie in
 * the log all the same, and its number is given to another: a copy that may hold it is of no use.
 */
static enum fcap_status settle(struct fcap_store_rocksdb *db, uint64_t sequence, uint64_t failed,
                               struct fcap_error *error)
{
    (void)pthread_mutex_lock(&db->lock);
    while (db->writing != NULL && db->position.sequence < sequence) {
        (void)pthread_cond_wait(&db->write_ended, &db->lock);
    }
    bool is_exact = db->position.sequence >= sequence && db->commits_failed == failed;
    (void)pthread_mutex_unlock(&db->lock);
    return is_exact ? FCAP_OK
                    : fcap_error_set(error, FCAP_UNAVAILABLE,
                                     "%s: a commit has failed; its bytes may be in the copy",
                                     db->directory);
}

/* A copy, and what becomes one. */
static enum fcap_status discard(const char *directory, struct fcap_error *error)
{
    char staging[4096];
    (void)snprintf(staging, sizeof staging, "%s%s", directory, staging_suffix); /* Fits. */
    enum fcap_status status = store_directory_remove(staging, error);
    enum fcap_status second = store_directory_remove(directory, error);
    return status == FCAP_OK ? second : status;
}

enum fcap_status fcap_store_rocksdb_snapshot(struct fcap_store_rocksdb *db, const char *directory,
                                             uint64_t *ret_sequence, struct fcap_error *error)
{
    uint64_t sequence = 0;
    uint64_t failed = 0;
    if (db->is_read_only) {
        return fcap_error_set(error, FCAP_STOPPED, "%s is open for reading", db->directory);
    }
    enum fcap_status status = check_place(db, directory, error);
    if (status == FCAP_OK) {
        status = check_health(db, &failed, error);
    }
    if (status == FCAP_OK) {
        status = discard(directory, error);
    }
    if (status == FCAP_OK) {
        status = check_space(db, error);
    }
    if (status != FCAP_OK) {
        fcap_error_prefix(error, "snapshot");
        return status;
    }
    FCAP_POINT(snapshot_begun);
    status = store_copy(db, directory);
    if (status != FCAP_OK) {
        store_tell_last_error(db, error);
    }
    FCAP_POINT(snapshot_copied);
    if (status == FCAP_OK) {
        status = read_sequence(directory, &sequence, error);
    }
    if (status == FCAP_OK) {
        status = settle(db, sequence, failed, error);
    }
    if (status != FCAP_OK) {
        (void)discard(directory, NULL); /* What stays is removed by the next one. */
        fcap_error_prefix(error, "snapshot");
        return status;
    }
    *ret_sequence = sequence;
    return FCAP_OK;
}

enum fcap_status fcap_store_rocksdb_discard(const char *directory, struct fcap_error *error)
{
    return discard(directory, error);
}
