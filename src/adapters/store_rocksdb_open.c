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

static const char format_key[] = "\xff\xff"
                                 "format";
static const char created_key[] = "\xff\xff"
                                  "created_by";
static const char dropped_key[] = "\xff\xff"
                                  "dropped_through";

#define CURE_CORRUPT                                                                               \
    "move the directory away and start again: the state comes back from the newest checkpoint "    \
    "or by replay"

/* What lies in the directory before RocksDB touches it. */
struct found {
    bool has_current;
    bool has_data;     /* a table, or a log with something in it */
    char foreign[256]; /* a name that no RocksDB directory has; "" if none */
};

static bool has_suffix(const char *name, const char *suffix)
{
    size_t size = strlen(name);
    size_t suffix_size = strlen(suffix);
    return size >= suffix_size && strcmp(name + size - suffix_size, suffix) == 0;
}

static bool is_rocksdb_name(const char *name)
{
    static const char *const starts[] = {"CURRENT",  "IDENTITY", "LOCK",      "LOG",    "MANIFEST-",
                                         "OPTIONS-", "METADB-",  "flush.tmp", "archive"};
    static const char *const ends[] = {".sst", ".log", ".blob", ".dbtmp", ".ldb", ".trash"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (has_suffix(name, ends[i]) && strspn(name, "0123456789") > 0) {
            return true;
        }
    }
    /* A volume's root has lost+found; hidden files belong to the file system (.nfs...). */
    return name[0] == '.' || strcmp(name, "lost+found") == 0;
}

static enum fcap_status look_into(const char *path, struct found *ret_found,
                                  struct fcap_error *error)
{
    *ret_found = (struct found){0};
    DIR *directory = opendir(path);
    if (directory == NULL) {
        enum fcap_status status = errno == ENOTDIR ? FCAP_FOREIGN : FCAP_IO;
        return fcap_error_set(error, status, "%s: %s; name a directory that this user may read",
                              path, strerror(errno));
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        const char *name = entry->d_name;
        struct stat info;
        if (!is_rocksdb_name(name)) {
            (void)snprintf(ret_found->foreign, sizeof ret_found->foreign, "%s", name);
        }
        ret_found->has_current = ret_found->has_current || strcmp(name, "CURRENT") == 0;
        bool has_bytes = fstatat(dirfd(directory), name, &info, 0) == 0 && info.st_size > 0;
        ret_found->has_data =
            ret_found->has_data || (has_bytes && (has_suffix(name, ".sst") ||
                                                  (has_suffix(name, ".log") && name[0] != '.')));
    }
    (void)closedir(directory); /* Only read. */
    return FCAP_OK;
}

/* CURRENT must name a manifest that is there. RocksDB's own words for this name no cure, and with
 * CURRENT missing it would start an empty database over the old files. */
static enum fcap_status check_current(const char *path, struct fcap_error *error)
{
    char name[4200];
    char manifest[128] = "";
    (void)snprintf(name, sizeof name, "%s/CURRENT", path); /* Too long: fopen fails. */
    FILE *file = fopen(name, "re");
    if (file == NULL) {
        return fcap_error_set(error, FCAP_IO, "%s: %s", name, strerror(errno));
    }
    size_t size = fread(manifest, 1, sizeof manifest - 1, file);
    (void)fclose(file); /* Only read. */
    size_t line = strcspn(manifest, "\n");
    if (size == 0 || strncmp(manifest, "MANIFEST-", 9) != 0 || manifest[line] != '\n' ||
        manifest[line + 1] != '\0' || strspn(manifest + 9, "0123456789") != line - 9) {
        return fcap_error_set(error, FCAP_CORRUPT, "%s does not name a manifest; " CURE_CORRUPT,
                              name);
    }
    manifest[line] = '\0';
    (void)snprintf(name, sizeof name, "%s/%s", path, manifest); /* As above. */
    if (access(name, F_OK) != 0) {
        return fcap_error_set(error, FCAP_CORRUPT,
                              "%s, which CURRENT names, is missing; " CURE_CORRUPT, name);
    }
    return FCAP_OK;
}

static enum fcap_status make_directory(const char *path, struct fcap_error *error)
{
    if (mkdir(path, 0750) == 0) {
        return FCAP_OK;
    }
    if (errno == ENOENT) {
        return fcap_error_set(error, FCAP_IO,
                              "%s: its parent directory does not exist; create it, or mount the "
                              "volume",
                              path);
    }
    if (errno == ENOSPC || errno == EDQUOT) {
        return fcap_error_set(error, FCAP_NO_SPACE, "%s: %s", path, strerror(errno));
    }
    return fcap_error_set(error, FCAP_IO,
                          "%s: cannot create it: %s; make its parent writable for "
                          "user id %u",
                          path, strerror(errno), (unsigned)geteuid());
}

/* Who holds the lock. Asking must not happen in a process that holds it itself: closing the file
 * would give the lock up. The caller makes sure by RocksDB's text. */
static pid_t lock_owner(const char *directory)
{
    char name[4200];
    (void)snprintf(name, sizeof name, "%s/LOCK", directory); /* Too long: open fails. */
    int file = open(name, O_RDWR | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    pid_t owner = 0;
    if (file >= 0 && fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
        owner = lock.l_pid;
    }
    if (file >= 0) {
        (void)close(file); /* Nothing was written. */
    }
    return owner;
}

/* RocksDB's text, with what to do. Frees the text. */
static enum fcap_status explain(const char *directory, char *text, struct fcap_error *error)
{
    enum fcap_status status = fcap_store_rocksdb_status(text);
    const char *cure = "";
    char who[96] = "";
    bool is_missing_file = strstr(text, "No such file or directory") != NULL;
    if (status == FCAP_IO && is_missing_file &&
        (strstr(text, ".sst") != NULL || strstr(text, "MANIFEST") != NULL)) {
        status = FCAP_CORRUPT; /* The manifest names a file that is gone. */
    }
    switch (status) {
    case FCAP_LOCKED: {
        bool is_self = strstr(text, "current process") != NULL;
        pid_t owner = is_self ? getpid() : lock_owner(directory);
        if (owner > 0) {
            (void)snprintf(who, sizeof who, "process %d uses it: ", (int)owner);
        }
        cure = "stop the other fcapd, or give this one a directory of its own";
        break;
    }
    case FCAP_CORRUPT:
        cure = CURE_CORRUPT;
        break;
    case FCAP_NO_SPACE:
        cure = "free space on its file system";
        break;
    case FCAP_IO:
        cure = strstr(text, "Read-only") != NULL ? "the file system is mounted read-only"
               : strstr(text, "Permission denied") != NULL
                   ? "make it writable for the user of this process"
               : strstr(text, "Too many open files") != NULL
                   ? "raise the limit of open files (ulimit -n)"
                   : "check the disk and the kernel's log";
        break;
    default:
        cure = "see RocksDB's words";
        break;
    }
    (void)fcap_error_set(error, status, "%s: %s%s; %s", directory, who, text, cure);
    rocksdb_free(text);
    return status;
}

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
        rocksdb_get_cf(db, options, meta, format_key, sizeof format_key - 1, &size, &text);
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
        return explain(directory, text, error);
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
    if (identity->has_format && identity->format != FCAP_STORE_FORMAT_VERSION) {
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
                              const char *log_directory, bool has_unknown, struct fcap_error *error)
{
    const char *names[1] = {fcap_family_name(FCAP_FAMILY_META)};
    const rocksdb_options_t *family_options[1];
    rocksdb_column_family_handle_t *family = NULL;
    char *text = NULL;
    struct identity identity = {0};
    enum fcap_status status = FCAP_OK;
    rocksdb_options_t *copy = rocksdb_options_create_copy((rocksdb_options_t *)(uintptr_t)options);
    rocksdb_options_set_db_log_dir(copy, log_directory);
    family_options[0] = copy;
    rocksdb_t *db = rocksdb_open_for_read_only_column_families(copy, directory, 1, names,
                                                               family_options, &family, 0, &text);
    rocksdb_options_destroy(copy);
    if (text != NULL) {
        return explain(directory, text, error);
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
    return judge_identity(&identity, directory, error);
}

/* Checks the families in the manifest; *ret_is_new: not all of ours are there yet. */
static enum fcap_status check_families(const char *directory, const rocksdb_options_t *options,
                                       const char *log_directory, bool *ret_is_new,
                                       struct fcap_error *error)
{
    char *text = NULL;
    size_t count = 0;
    char **names = rocksdb_list_column_families(options, directory, &count, &text);
    if (text != NULL) {
        return explain(directory, text, error);
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
    return probe(directory, options, log_directory, known < count, error);
}

/* Everything that can be known before RocksDB may change anything. */
static enum fcap_status inspect_directory(const char *directory, bool is_read_only,
                                          const rocksdb_options_t *options,
                                          const char *log_directory, struct fcap_error *error)
{
    struct found found;
    struct stat info;
    bool is_new = false;
    if (stat(directory, &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        if (is_read_only) {
            return fcap_error_set(error, FCAP_IO, "%s: there is no state yet", directory);
        }
        return make_directory(directory, error);
    }
    enum fcap_status status = look_into(directory, &found, error);
    if (status != FCAP_OK) {
        return status;
    }
    if (!found.has_current && found.foreign[0] != '\0') {
        return fcap_error_set(error, FCAP_FOREIGN,
                              "%s holds something else (%s); give fcapd a directory of its own",
                              directory, found.foreign);
    }
    if (!found.has_current && found.has_data) {
        return fcap_error_set(error, FCAP_CORRUPT,
                              "%s/CURRENT is missing beside data files; " CURE_CORRUPT, directory);
    }
    if (!found.has_current) {
        return is_read_only ? fcap_error_set(error, FCAP_IO, "%s: there is no state yet", directory)
                            : FCAP_OK;
    }
    status = check_current(directory, error);
    if (status == FCAP_OK) {
        status = check_families(directory, options, log_directory, &is_new, error);
    }
    if (status == FCAP_OK && is_read_only && is_new) {
        return fcap_error_set(error, FCAP_IO, "%s: there is no state yet", directory);
    }
    return status;
}

/* Stamps a new database; checks an old one; reads what the store itself must know. */
static enum fcap_status enter(struct fcap_store_rocksdb *db, struct fcap_error *error)
{
    struct identity identity = {0};
    rocksdb_column_family_handle_t *meta = db->families[FCAP_FAMILY_META];
    enum fcap_status status = read_identity(db->db, meta, db->directory, &identity, error);
    if (status == FCAP_OK) {
        status = judge_identity(&identity, db->directory, error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    char *text = NULL;
    if (!identity.has_format && !db->is_read_only) {
        struct fcap_buffer version = {0};
        static const char by[] = "fcapd " FCAP_VERSION;
        fcap_buffer_put_be32(&version, FCAP_STORE_FORMAT_VERSION);
        rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
        rocksdb_writebatch_put_cf(batch, meta, format_key, sizeof format_key - 1,
                                  (const char *)version.data, version.size);
        rocksdb_writebatch_put_cf(batch, meta, created_key, sizeof created_key - 1, by,
                                  sizeof by - 1);
        rocksdb_write(db->db, db->durable_options, batch, &text);
        rocksdb_writebatch_destroy(batch);
        fcap_buffer_done(&version);
        if (text != NULL) {
            return explain(db->directory, text, error);
        }
        return db->wal ? FCAP_OK : store_make_durable(db);
    }
    size_t size = 0;
    char *value = rocksdb_get_cf(db->db, db->read_options, meta, dropped_key,
                                 sizeof dropped_key - 1, &size, &text);
    if (text != NULL) {
        return explain(db->directory, text, error);
    }
    if (value != NULL) {
        struct fcap_reader reader = fcap_reader_of((struct fcap_bytes){(uint8_t *)value, size});
        db->dropped_through_ms = (int64_t)fcap_reader_be64(&reader);
        db->bound_stored_ms = db->dropped_through_ms;
        rocksdb_free(value);
    }
    return FCAP_OK;
}

static struct fcap_store_rocksdb *make(const struct fcap_store_settings *settings,
                                       bool is_read_only)
{
    struct fcap_store_rocksdb *db = calloc(1, sizeof *db);
    FCAP_ASSERT(db != NULL);
    db->directory = strdup(settings->directory);
    FCAP_ASSERT(db->directory != NULL);
    db->is_read_only = is_read_only;
    db->wal = settings->wal;
    db->sync = settings->sync;
    db->sync_interval_ms = settings->sync_interval_ms;
    db->release_step_ms = settings->release_step_ms;
    db->release_pause_ms = settings->release_pause_ms;
    db->release_sweep_ms = settings->release_sweep_ms;
    db->looked_at_us = store_monotonic_us() - settings->release_pause_ms * 1000;
    db->swept_at_us = store_monotonic_us();
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

/* RocksDB's log of a database that must not be changed goes to a directory of its own. */
static enum fcap_status make_log_directory(struct fcap_store_rocksdb *db, struct fcap_error *error)
{
    const char *parent = getenv("TMPDIR");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/fcapd-XXXXXX", /* Too long: mkdtemp fails. */
                   parent == NULL || parent[0] == '\0' ? "/tmp" : parent);
    if (mkdtemp(path) == NULL) {
        return fcap_error_set(error, FCAP_IO, "%s: %s; set TMPDIR to a writable directory", path,
                              strerror(errno));
    }
    db->log_directory = strdup(path);
    FCAP_ASSERT(db->log_directory != NULL);
    return FCAP_OK;
}

static enum fcap_status open_database(struct fcap_store_rocksdb *db, struct store_options *options,
                                      struct fcap_error *error)
{
    const char *names[FCAP_FAMILY_COUNT];
    const rocksdb_options_t *family_options[FCAP_FAMILY_COUNT];
    char *text = NULL;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        names[i] = fcap_family_name((enum fcap_family)i);
        family_options[i] = options->families[i];
    }
    if (db->is_read_only) {
        rocksdb_options_set_db_log_dir(options->database, db->log_directory);
        db->db = rocksdb_open_for_read_only_column_families(options->database, db->directory,
                                                            FCAP_FAMILY_COUNT, names,
                                                            family_options, db->families, 0, &text);
    } else {
        db->db = rocksdb_open_column_families(options->database, db->directory, FCAP_FAMILY_COUNT,
                                              names, family_options, db->families, &text);
    }
    if (text != NULL) {
        return explain(db->directory, text, error);
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
        status = make_log_directory(db, error);
    }
    if (status == FCAP_OK) {
        status = inspect_directory(db->directory, is_read_only, options.database, db->log_directory,
                                   error);
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
