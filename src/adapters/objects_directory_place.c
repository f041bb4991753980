/* The place itself: its mark, its folders, and what the file system says. */
#include "objects_directory_internal.h"

#include "fcap/assert.h"
#include "fcap/point.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK_START "fcap-objects "
#define MARK_FIRST MARK_START "1\n"
#define AWAY       "mount it"

enum {
    MARK_BYTES = sizeof MARK_FIRST - 1 + OBJECTS_ID_DIGITS + 1,
    FOLDER_MODE = 0750,
    FILE_MODE = 0640
};

/* --- words --- */

/* clang-format off */
static const struct {
    int code;
    enum fcap_status status;
    const char *cure;
} failures[] = {
    {ENOSPC,       FCAP_NO_SPACE,    "free space on its file system"},
    {EDQUOT,       FCAP_NO_SPACE,    "free space, or raise the quota of this user"},
    {EFBIG,        FCAP_NO_SPACE,    "raise the limit on the size of files (ulimit -f)"},
    {EROFS,        FCAP_IO,          "mount it for writing; after errors of a disk the kernel itself makes it "
                                     "read-only: see the kernel's log"},
    {EIO,          FCAP_IO,          "check the volume and the kernel's log"},
    {EACCES,       FCAP_IO,          "give this process's user the right to read, write and search there"},
    {EPERM,        FCAP_IO,          "give this process's user the right to read, write and search there"},
    {ENAMETOOLONG, FCAP_IO,          "give it a shorter path, or a file system with longer names"},
    {EMFILE,       FCAP_IO,          "raise the limit of open files (ulimit -n)"},
    {ENFILE,       FCAP_IO,          "raise the system's limit of open files (fs.file-max)"},
    {ENOTDIR,      FCAP_IO,          "something that is no folder stands in the way; move it away"},
    {ELOOP,        FCAP_IO,          "a symbolic link stands in the way; move it away"},
    {ENOLCK,       FCAP_IO,          "its file system gives no locks; on NFS start the lock service, or mount version 4"},
    {ENOENT,       FCAP_UNAVAILABLE, "has the volume been unmounted? " AWAY},
    {ENOTCONN,     FCAP_UNAVAILABLE, "the volume is away; " AWAY},
    {ESTALE,       FCAP_UNAVAILABLE, "the volume was replaced; " AWAY},
    {ENODEV,       FCAP_UNAVAILABLE, "the volume is away; " AWAY},
    {ENXIO,        FCAP_UNAVAILABLE, "the volume is away; " AWAY},
    {ESHUTDOWN,    FCAP_UNAVAILABLE, "the volume is away; " AWAY},
    {ENOMEDIUM,    FCAP_UNAVAILABLE, "the volume is away; " AWAY},
    {EHOSTDOWN,    FCAP_UNAVAILABLE, "the volume's server is away"},
    {EHOSTUNREACH, FCAP_UNAVAILABLE, "the volume's server is away"},
    {ETIMEDOUT,    FCAP_UNAVAILABLE, "the volume's server is away"},
};
/* clang-format on */

enum fcap_status objects_fail(const struct objects_directory *directory, const char *name,
                              const char *what, int code, struct fcap_error *error)
{
    enum fcap_status status = FCAP_IO;
    const char *cure = "check the volume and the kernel's log";
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        if (failures[i].code == code) {
            status = failures[i].status;
            cure = failures[i].cure;
        }
    }
    return fcap_error_set(error, status, "%s%s%s: %s: %s; %s", directory->path,
                          name[0] != '\0' ? "/" : "", name, what, strerror(code), cure);
}

/* --- folders --- */

bool objects_sync_folder(int folder)
{
    return fsync(folder) == 0 || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP;
}

/* Goes from one folder into the next and closes the first. */
static int enter(int folder, const char *part, enum objects_folder_way way)
{
    int next = -1;
    int code = 0;
    bool may_enter = true;
    if (way == OBJECTS_FOLDER_MAKE) {
        may_enter = mkdirat(folder, part, FOLDER_MODE) == 0 || errno == EEXIST;
    } else if (way == OBJECTS_FOLDER_SYNC) {
        may_enter = objects_sync_folder(folder);
    }
    if (may_enter) {
        next = openat(folder, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    code = errno;
    (void)close(folder); /* Only read. */
    errno = code;
    return next;
}

int objects_folder(int root, const char *name, enum objects_folder_way way, const char **ret_last)
{
    int folder = fcntl(root, F_DUPFD_CLOEXEC, 0);
    const char *slash;
    for (; folder >= 0 && (slash = strchr(name, '/')) != NULL; name = slash + 1) {
        char part[FCAP_OBJECT_NAME_MAX + 1];
        size_t size = (size_t)(slash - name);
        FCAP_ASSERT(size < sizeof part);
        memcpy(part, name, size);
        part[size] = '\0';
        folder = enter(folder, part, way);
    }
    if (folder >= 0 && way == OBJECTS_FOLDER_SYNC && !objects_sync_folder(folder)) {
        int code = errno;
        (void)close(folder); /* Only read. */
        errno = code;
        return -1;
    }
    *ret_last = name;
    return folder;
}

int objects_make_temporary(int folder, const char *start, char ret_name[OBJECTS_TEMPORARY_MAX])
{
    uint64_t random;
    FCAP_ASSERT(getrandom(&random, sizeof random, 0) == (ssize_t)sizeof random);
    int size =
        snprintf(ret_name, OBJECTS_TEMPORARY_MAX, "%s%016llx", start, (unsigned long long)random);
    FCAP_ASSERT(size > 0 && size < OBJECTS_TEMPORARY_MAX);
    return openat(folder, ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                  FILE_MODE);
}

/* An answer that was lost on the way (NFS) may have made the name all the same. */
static bool is_ours(int folder, int file, const char *last)
{
    struct stat own;
    struct stat other;
    return fstat(file, &own) == 0 && fstatat(folder, last, &other, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

int objects_appear(int folder, int file, const char *temporary, const char *last)
{
    int code = renameat2(folder, temporary, folder, last, RENAME_NOREPLACE) == 0 ? 0 : errno;
    if (code == 0) {
        return 0;
    }
    if (code == EINVAL || code == ENOSYS || code == EOPNOTSUPP) { /* NFS knows no such renaming. */
        code = linkat(folder, temporary, folder, last, 0) == 0 ? 0 : errno;
        FCAP_POINT(object_linked);
    }
    if (code == 0 || code == EEXIST) {
        code = is_ours(folder, file, last) ? 0 : code;
        (void)unlinkat(folder, temporary, 0); /* What stays is swept. */
    }
    return code;
}

/* --- the mark --- */

/* Its text, without what must not be in one; -1: errno; else its size. */
static ssize_t read_mark(int root, char text[MARK_BYTES + 1])
{
    size_t size = 0;
    int file = openat(root, OBJECTS_MARK, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    ssize_t part = 1;
    while (size < MARK_BYTES && part != 0) {
        part = pread(file, text + size, MARK_BYTES - size, (off_t)size);
        if (part < 0 && errno != EINTR) {
            break;
        }
        size += part > 0 ? (size_t)part : 0;
    }
    int code = errno;
    (void)close(file); /* Only read. */
    errno = code;
    text[size] = '\0';
    return part < 0 ? -1 : (ssize_t)size;
}

static enum fcap_status check_mark(const struct objects_directory *directory, const char *text,
                                   struct fcap_error *error)
{
    static const char start[] = MARK_START;
    static const char first[] = MARK_FIRST;
    const char *id = text + sizeof first - 1;
    if (strncmp(text, first, sizeof first - 1) == 0 && strlen(text) == MARK_BYTES &&
        strspn(id, "0123456789abcdef") == OBJECTS_ID_DIGITS && id[OBJECTS_ID_DIGITS] == '\n') {
        return FCAP_OK;
    }
    if (strncmp(text, start, sizeof start - 1) == 0 &&
        strncmp(text, first, sizeof first - 1) != 0) {
        return fcap_error_set(error, FCAP_FORMAT,
                              "%s: its layout is of another version (" OBJECTS_MARK "); use the "
                              "fcapd that made it, or another directory",
                              directory->path);
    }
    return fcap_error_set(error, FCAP_CORRUPT,
                          "%s/" OBJECTS_MARK " is damaged; restore it, or use another directory",
                          directory->path);
}

static enum fcap_status no_mark(const struct objects_directory *directory, struct fcap_error *error)
{
    return fcap_error_set(error, FCAP_UNAVAILABLE,
                          "%s: there is no " OBJECTS_MARK "; is the volume mounted? If this is a "
                          "copy of another directory, copy that hidden file, too",
                          directory->path);
}

static int open_root(const struct objects_directory *directory)
{
    return open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

enum fcap_status objects_root(const struct objects_directory *directory, int *ret_root,
                              struct fcap_error *error)
{
    char text[MARK_BYTES + 1];
    enum fcap_status status = FCAP_OK;
    int root = open_root(directory);
    if (root < 0) {
        return objects_fail(directory, "", "open it", errno, error);
    }
    if (read_mark(root, text) < 0) {
        status = errno == ENOENT ? no_mark(directory, error)
                                 : objects_fail(directory, OBJECTS_MARK, "read it", errno, error);
    } else {
        status = check_mark(directory, text, error);
    }
    if (status == FCAP_OK &&
        strncmp(text + sizeof MARK_FIRST - 1, directory->id, OBJECTS_ID_DIGITS) != 0) {
        status = fcap_error_set(error, FCAP_UNAVAILABLE,
                                "%s: another volume is mounted than at the start; mount the right "
                                "one, or restart to use this one",
                                directory->path);
    }
    if (status != FCAP_OK) {
        (void)close(root); /* Only read. */
        return status;
    }
    *ret_root = root;
    return FCAP_OK;
}

/* --- making it --- */

/* A directory without a mark may hold hidden files and what a volume's root has. */
static enum fcap_status check_empty(const struct objects_directory *directory, int root,
                                    struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    int copy = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;
    if (folder == NULL) {
        status = objects_fail(directory, "", "look into it", errno, error);
        if (copy >= 0) {
            (void)close(copy); /* Only read. */
        }
        return status;
    }
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "lost+found") != 0) {
            status = fcap_error_set(error, FCAP_FOREIGN,
                                    "%s holds something else (%s); give it a directory of its own",
                                    directory->path, entry->d_name);
        }
    }
    (void)closedir(folder); /* Only read. */
    return status;
}

static bool sync_parent(const char *path)
{
    char parent[PATH_MAX];
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') {
        size--;
    }
    while (size > 0 && path[size - 1] != '/') {
        size--;
    }
    (void)snprintf(parent, sizeof parent, "%.*s", (int)size, size > 0 ? path : ""); /* Fits. */
    int folder = open(size > 0 ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = folder >= 0 && objects_sync_folder(folder);
    if (folder >= 0) {
        int code = errno;
        (void)close(folder); /* Only read. */
        errno = code;
    }
    return done;
}

/* The directory and its parents. What is there already is left as it is. */
static enum fcap_status make_directory(const struct objects_directory *directory,
                                       struct fcap_error *error)
{
    char path[PATH_MAX];
    size_t size = strlen(directory->path);
    if (size >= sizeof path) {
        return objects_fail(directory, "", "make it", ENAMETOOLONG, error);
    }
    for (size_t i = 1; i <= size; i++) {
        if (directory->path[i] != '/' && directory->path[i] != '\0') {
            continue;
        }
        memcpy(path, directory->path, i);
        path[i] = '\0';
        bool is_made = mkdir(path, FOLDER_MODE) == 0;
        if (is_made ? !sync_parent(path) : errno != EEXIST && errno != EISDIR) {
            return objects_fail(directory, "", "make it", errno, error);
        }
    }
    return FCAP_OK;
}

static bool write_mark(int file, const char *id)
{
    char text[MARK_BYTES + 1];
    (void)snprintf(text, sizeof text, MARK_FIRST "%s\n", id); /* Fits. */
    ssize_t written = write(file, text, MARK_BYTES);
    if (written >= 0 && written != MARK_BYTES) {
        errno = ENOSPC;
    }
    return written == MARK_BYTES && fsync(file) == 0;
}

/* Somebody else may make it at the same time: then that one holds. */
static enum fcap_status make_mark(const struct objects_directory *directory, int root,
                                  struct fcap_error *error)
{
    uint64_t random[2];
    char id[OBJECTS_ID_DIGITS + 1];
    char temporary[OBJECTS_TEMPORARY_MAX];
    FCAP_ASSERT(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random);
    (void)snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)random[0],
                   (unsigned long long)random[1]); /* Fits. */
    int file = objects_make_temporary(root, OBJECTS_NEW_MARK, temporary);
    int code = file < 0 ? errno : 0;
    if (code == 0 && !write_mark(file, id)) {
        code = errno;
        (void)unlinkat(root, temporary, 0); /* What stays is swept. */
    }
    if (code == 0) {
        FCAP_POINT(objects_marking);
        code = objects_appear(root, file, temporary, OBJECTS_MARK);
        code = code == EEXIST || code == ENOENT ? 0 : code; /* There is one, and ours is swept. */
    }
    if (code == 0 && (!objects_sync_folder(root) || !sync_parent(directory->path))) {
        code = errno;
    }
    if (file >= 0) {
        (void)close(file); /* Synced. */
    }
    return code == 0 ? FCAP_OK : objects_fail(directory, OBJECTS_MARK, "make it", code, error);
}

enum fcap_status objects_open_mark(struct objects_directory *directory, bool must_exist,
                                   struct fcap_error *error)
{
    char text[MARK_BYTES + 1];
    enum fcap_status status = FCAP_OK;
    int root = open_root(directory);
    if (root < 0 && errno == ENOENT && !must_exist) {
        status = make_directory(directory, error);
        root = status == FCAP_OK ? open_root(directory) : -1;
    }
    if (root < 0) {
        return status != FCAP_OK ? status
               : errno == ENOTDIR
                   ? fcap_error_set(error, FCAP_FOREIGN, "%s is no directory", directory->path)
                   : objects_fail(directory, "", "open it", errno, error);
    }
    ssize_t size = read_mark(root, text);
    int code = size < 0 ? errno : 0;
    if (code == ENOENT) {
        status = must_exist ? no_mark(directory, error) : check_empty(directory, root, error);
        if (status == FCAP_OK) {
            status = make_mark(directory, root, error);
        }
        /* Whatever was found there may be that of somebody who has just made one. */
        size = read_mark(root, text);
        status = size >= 0 ? FCAP_OK : status;
        code = size < 0 ? errno : 0;
    }
    if (code != 0 && status == FCAP_OK) {
        status = objects_fail(directory, OBJECTS_MARK, "read it", code, error);
    }
    if (status == FCAP_OK) {
        status = check_mark(directory, text, error);
    }
    if (status == FCAP_OK) {
        memcpy(directory->id, text + sizeof MARK_FIRST - 1, OBJECTS_ID_DIGITS);
    }
    (void)close(root); /* Only read. */
    return status;
}
