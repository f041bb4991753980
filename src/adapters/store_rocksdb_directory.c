/* A store's directory as the file system shows it, and words for what RocksDB says about it. */
#include "store_rocksdb_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Manifest, options and log headers of an opening take some 70 KiB. */
enum { OPEN_BYTES_MIN = 256 << 10 };

/* What lies in the directory before RocksDB touches it. */
struct found {
    bool has_current;
    bool has_data;     /* a table, or a log with something in it */
    bool is_restoring; /* a restore has not come to its end */
    bool is_moving;    /* it has, but for the moving of its files */
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
        ret_found->is_restoring = ret_found->is_restoring || strcmp(name, ".restoring") == 0;
        ret_found->is_moving =
            ret_found->is_moving || strcmp(name, ".restored") == 0 || strcmp(name, ".moving") == 0;
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
        return fcap_error_set(error, FCAP_CORRUPT,
                              "%s does not name a manifest; " STORE_CURE_CORRUPT, name);
    }
    manifest[line] = '\0';
    (void)snprintf(name, sizeof name, "%s/%s", path, manifest); /* As above. */
    if (access(name, F_OK) != 0) {
        return fcap_error_set(error, FCAP_CORRUPT,
                              "%s, which CURRENT names, is missing; " STORE_CURE_CORRUPT, name);
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

enum fcap_status store_directory_check(const char *directory, bool is_read_only, bool *ret_exists,
                                       struct fcap_error *error)
{
    struct found found;
    struct stat info;
    *ret_exists = false;
    if (stat(directory, &info) != 0 && errno == ENOENT && !is_read_only) {
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
    if (!found.has_current && found.is_moving) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "%s: a restore was interrupted at its end; fcapd run goes on with it",
                              directory);
    }
    if (!found.has_current && !found.has_data && found.is_restoring) {
        return fcap_error_set(
            error, FCAP_CONFIG,
            "%s: a restore was interrupted there; start it again (fcapd restore), "
            "or empty the directory",
            directory);
    }
    if (!found.has_current && found.has_data) {
        return fcap_error_set(error, FCAP_CORRUPT,
                              "%s/CURRENT is missing beside data files; " STORE_CURE_CORRUPT,
                              directory);
    }
    if (!found.has_current) {
        return is_read_only ? fcap_error_set(error, FCAP_IO, "%s: there is no state yet", directory)
                            : FCAP_OK;
    }
    *ret_exists = true;
    return check_current(directory, error);
}

static const char *cure_of(int code)
{
    return code == EROFS                      ? "the file system is mounted read-only"
           : code == EACCES || code == EPERM  ? "make it writable for the user of this process"
           : code == ENOSPC || code == EDQUOT ? "free space on its file system"
           : code == EMFILE || code == ENFILE ? "raise the limit of open files (ulimit -n)"
                                              : "check the disk and the kernel's log";
}

enum fcap_status store_directory_try(const char *directory, struct fcap_error *error)
{
    static const char bytes[4096];
    char name[4200];
    (void)snprintf(name, sizeof name, "%s/.try", directory); /* Too long: open fails. */
    errno = 0;
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    bool done = file >= 0 && write(file, bytes, sizeof bytes) == (ssize_t)sizeof bytes &&
                fdatasync(file) == 0;
    int code = done || errno != 0 ? errno : ENOSPC; /* Written in part. */
    if (file >= 0) {
        (void)close(file);  /* Synced, or of no use. */
        (void)unlink(name); /* A hidden file is nobody's. */
    }
    if (done) {
        return FCAP_OK;
    }
    enum fcap_status status = code == ENOSPC || code == EDQUOT ? FCAP_NO_SPACE : FCAP_IO;
    return fcap_error_set(error, status, "%s: it cannot be written: %s; %s", directory,
                          strerror(code), cure_of(code));
}

enum fcap_status store_directory_stays(struct fcap_store_rocksdb *db)
{
    struct stat info;
    bool is_there = stat(db->directory, &info) == 0;
    if (is_there ? info.st_dev == db->device && info.st_ino == db->inode
                 : errno != ENOENT && errno != ENOTDIR) {
        return FCAP_OK; /* When it cannot be asked, RocksDB meets what is wrong. */
    }
    (void)pthread_mutex_lock(&db->lock); /* Fails only when misused. */
    db->is_broken = true;
    enum fcap_status status =
        fcap_error_set(&db->last_error, FCAP_IO,
                       "%s is not the directory that was opened; was the volume unmounted? Mount "
                       "it, then restart",
                       db->directory);
    (void)pthread_mutex_unlock(&db->lock);
    return status;
}

/* Only what RocksDB makes may be removed, and no database that somebody writes to. */
static enum fcap_status check_removable(DIR *directory, const char *path, struct fcap_error *error)
{
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (strcmp(entry->d_name, "LOCK") == 0) {
            return fcap_error_set(error, FCAP_FOREIGN,
                                  "%s is a database of its own, no snapshot; name another place",
                                  path);
        }
        if (!is_rocksdb_name(entry->d_name)) {
            return fcap_error_set(error, FCAP_FOREIGN,
                                  "%s holds something else (%s); name another place", path,
                                  entry->d_name);
        }
    }
    return FCAP_OK;
}

enum fcap_status store_directory_remove(const char *path, struct fcap_error *error)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return errno == ENOENT ? FCAP_OK
                               : fcap_error_set(error, errno == ENOTDIR ? FCAP_FOREIGN : FCAP_IO,
                                                "%s: %s", path, strerror(errno));
    }
    enum fcap_status status = check_removable(directory, path, error);
    rewinddir(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL && status == FCAP_OK;
         entry = readdir(directory)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(directory), entry->d_name, 0) != 0) {
            status =
                fcap_error_set(error, FCAP_IO, "%s/%s: %s", path, entry->d_name, strerror(errno));
        }
    }
    (void)closedir(directory); /* Only read. */
    if (status == FCAP_OK && rmdir(path) != 0) {
        status = fcap_error_set(error, FCAP_IO, "%s: %s", path, strerror(errno));
    }
    return status;
}

enum fcap_status store_directory_space(const char *directory, struct fcap_error *error)
{
    struct statvfs info;
    if (statvfs(directory, &info) != 0) {
        return FCAP_OK; /* Opening tells what is wrong. */
    }
    uint64_t free_bytes = (uint64_t)(geteuid() == 0 ? info.f_bfree : info.f_bavail) * info.f_frsize;
    if (free_bytes >= OPEN_BYTES_MIN) {
        return FCAP_OK;
    }
    return fcap_error_set(error, FCAP_NO_SPACE,
                          "%s: %llu bytes are free, opening needs %d; free space on its file "
                          "system",
                          directory, (unsigned long long)free_bytes, OPEN_BYTES_MIN);
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

/* A table file ends with RocksDB's magic number; 7.8 blames the manifest when one does not. Gives
 * the name of such a file in `ret_name`, or "". */
static void find_damaged_table(const char *directory_path, char ret_name[64])
{
    static const uint8_t magic[8] = {0xf7, 0xcf, 0xf4, 0x85, 0xb7, 0x41, 0xe2, 0x88};
    DIR *directory = opendir(directory_path);
    ret_name[0] = '\0';
    if (directory == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL && ret_name[0] == '\0';
         entry = readdir(directory)) {
        uint8_t tail[sizeof magic] = {0};
        int file = has_suffix(entry->d_name, ".sst")
                       ? openat(dirfd(directory), entry->d_name, O_RDONLY | O_CLOEXEC)
                       : -1;
        if (file < 0) {
            continue;
        }
        off_t size = lseek(file, 0, SEEK_END);
        if (pread(file, tail, sizeof tail, size < 8 ? 0 : size - 8) != (ssize_t)sizeof tail ||
            memcmp(tail, magic, sizeof magic) != 0) {
            (void)snprintf(ret_name, 64, "table %.40s is damaged: ", entry->d_name); /* Fits. */
        }
        (void)close(file); /* Only read. */
    }
    (void)closedir(directory); /* Only read. */
}

/* RocksDB's text, with what to do. Frees the text. */
enum fcap_status store_explain(const char *directory, char *text, struct fcap_error *error)
{
    enum fcap_status status = fcap_store_rocksdb_status(text);
    const char *cure = "";
    char who[96] = "";
    bool is_missing_file = strstr(text, "No such file or directory") != NULL;
    if (status == FCAP_IO && is_missing_file &&
        (strstr(text, ".sst") != NULL || strstr(text, "MANIFEST") != NULL)) {
        status = FCAP_CORRUPT; /* The manifest names a file that is gone. */
    }
    char *legacy = strstr(text, ".ldb");
    if (legacy != NULL) {
        memcpy(legacy, ".sst", 4); /* RocksDB tries LevelDB's name last, and tells that one. */
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
        find_damaged_table(directory, who);
        cure = STORE_CURE_CORRUPT;
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
