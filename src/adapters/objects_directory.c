/* Objects as files below a directory. An object is written under a hidden name beside its final
 * one, synced, renamed without replacing, and the folders are synced. Every call starts from the
 * path: nothing but objects being written and locks keeps the volume busy, and a volume that was
 * away and came back is simply used again. */
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
#include <sys/stat.h>
#include <unistd.h>

struct fcap_object_writer {
    int file;
    char temporary[OBJECTS_TEMPORARY_MAX];
    char name[FCAP_OBJECT_NAME_MAX + 1];
};

/* --- what is left of writers --- */

/* False: the place is away, or does not let it go. */
static bool unlink_temporary(int root, const char *name, const char *temporary)
{
    const char *last;
    int folder = objects_folder(root, name, OBJECTS_FOLDER_FIND, &last);
    if (folder < 0) {
        return errno == ENOENT;
    }
    bool is_gone = unlinkat(folder, temporary, 0) == 0 || errno == ENOENT;
    (void)close(folder); /* Only read. */
    return is_gone;
}

static void remember_litter(struct objects_directory *directory,
                            const struct fcap_object_writer *writer)
{
    struct objects_litter *litter = calloc(1, sizeof *litter);
    FCAP_ASSERT(litter != NULL);
    memcpy(litter->name, writer->name, sizeof litter->name);
    memcpy(litter->temporary, writer->temporary, sizeof litter->temporary);
    (void)pthread_mutex_lock(&directory->mutex); /* Cannot fail: a plain mutex. */
    litter->next = directory->litter;
    directory->litter = litter;
    (void)pthread_mutex_unlock(&directory->mutex); /* As above. */
}

/* The place is there: what writers have left goes. It is not for sweep() alone, which comes with
 * the next process: a volume that comes and goes would fill. */
static void remove_litter(struct objects_directory *directory, int root)
{
    (void)pthread_mutex_lock(&directory->mutex); /* Cannot fail: a plain mutex. */
    struct objects_litter **at = &directory->litter;
    while (*at != NULL) {
        struct objects_litter *litter = *at;
        if (unlink_temporary(root, litter->name, litter->temporary)) {
            *at = litter->next;
            free(litter);
        } else {
            at = &litter->next;
        }
    }
    (void)pthread_mutex_unlock(&directory->mutex); /* As above. */
}

/* --- writing --- */

static enum fcap_status begin_in(struct objects_directory *directory, int root, const char *name,
                                 struct fcap_object_writer *writer, struct fcap_error *error)
{
    const char *last;
    enum fcap_status status = objects_locks_stand(directory, root, name, error);
    if (status != FCAP_OK) {
        return status;
    }
    remove_litter(directory, root);
    int folder = objects_folder(root, name, OBJECTS_FOLDER_MAKE, &last);
    if (folder < 0) {
        return objects_fail(directory, name, "make its folder", errno, error);
    }
    writer->file = objects_make_temporary(folder, OBJECTS_NEW, writer->temporary);
    if (writer->file < 0) {
        status = objects_fail(directory, name, "begin it", errno, error);
    }
    (void)close(folder); /* Only read. */
    return status;
}

static enum fcap_status begin(struct fcap_objects *port, const char *name,
                              struct fcap_object_writer **ret_writer, struct fcap_error *error)
{
    struct objects_directory *directory = objects_directory_of(port);
    int root;
    FCAP_ASSERT(fcap_object_name_is_valid(name));
    enum fcap_status status = objects_root(directory, &root, error);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_object_writer *writer = calloc(1, sizeof *writer);
    FCAP_ASSERT(writer != NULL);
    memcpy(writer->name, name, strlen(name) + 1);
    status = begin_in(directory, root, name, writer, error);
    (void)close(root); /* Only read. */
    if (status != FCAP_OK) {
        free(writer);
        return status;
    }
    FCAP_POINT(object_begun);
    *ret_writer = writer;
    return FCAP_OK;
}

static enum fcap_status write_bytes(struct fcap_objects *port, struct fcap_object_writer *writer,
                                    struct fcap_bytes bytes, struct fcap_error *error)
{
    while (bytes.size > 0) {
        ssize_t written = write(writer->file, bytes.data, bytes.size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return objects_fail(objects_directory_of(port), writer->name, "write it",
                                written < 0 ? errno : ENOSPC, error);
        }
        FCAP_POINT(object_writing);
        bytes.data += written;
        bytes.size -= (size_t)written;
    }
    return FCAP_OK;
}

/* Its name under which nobody sees it goes, if the place is there. */
static void drop_temporary(struct objects_directory *directory, struct fcap_object_writer *writer)
{
    int root;
    if (objects_root(directory, &root, NULL) != FCAP_OK) {
        remember_litter(directory, writer);
        return;
    }
    if (!unlink_temporary(root, writer->name, writer->temporary)) {
        remember_litter(directory, writer);
    }
    (void)close(root); /* Only read. */
}

static enum fcap_status finish_in(struct objects_directory *directory, int root,
                                  struct fcap_object_writer *writer, struct fcap_error *error)
{
    const char *last;
    enum fcap_status status = objects_locks_stand(directory, root, writer->name, error);
    if (status != FCAP_OK) {
        return status;
    }
    int folder = objects_folder(root, writer->name, OBJECTS_FOLDER_FIND, &last);
    if (folder < 0) {
        return objects_fail(directory, writer->name, "open its folder", errno, error);
    }
    int code = objects_appear(folder, writer->file, writer->temporary, last);
    (void)close(folder); /* Only read. */
    if (code == EEXIST) {
        return fcap_error_set(error, FCAP_LOCKED,
                              "%s/%s exists already; another process writes there, too",
                              directory->path, writer->name);
    }
    if (code != 0) {
        return objects_fail(directory, writer->name, "show it", code, error);
    }
    FCAP_POINT(object_shown);
    folder = objects_folder(root, writer->name, OBJECTS_FOLDER_SYNC, &last);
    if (folder < 0) {
        return objects_fail(directory, writer->name, "sync its folder", errno, error);
    }
    (void)close(folder); /* Only read. */
    return FCAP_OK;
}

static enum fcap_status finish(struct fcap_objects *port, struct fcap_object_writer *writer,
                               struct fcap_error *error)
{
    struct objects_directory *directory = objects_directory_of(port);
    enum fcap_status status = FCAP_OK;
    int root;
    if (fsync(writer->file) != 0) {
        status = objects_fail(directory, writer->name, "sync it", errno, error);
    }
    FCAP_POINT(object_synced);
    if (status == FCAP_OK) {
        status = objects_root(directory, &root, error);
    }
    if (status == FCAP_OK) {
        status = finish_in(directory, root, writer, error);
        (void)close(root); /* Only read. */
    }
    if (status != FCAP_OK) {
        drop_temporary(directory, writer);
    }
    (void)close(writer->file); /* Synced, or given up. */
    free(writer);
    FCAP_POINT(object_finished);
    return status;
}

static void abandon(struct fcap_objects *port, struct fcap_object_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    drop_temporary(objects_directory_of(port), writer);
    (void)close(writer->file); /* Given up. */
    free(writer);
}

/* --- reading --- */

static bool is_absent(int code)
{
    return code == ENOENT || code == ENOTDIR || code == ELOOP || code == EISDIR;
}

static enum fcap_status read_file(struct objects_directory *directory, const char *name, int file,
                                  uint64_t offset, uint8_t *data, size_t size, size_t *ret_size,
                                  struct fcap_error *error)
{
    size_t done = 0;
    while (done < size) {
        ssize_t part = pread(file, data + done, size - done, (off_t)(offset + done));
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part < 0) {
            return objects_fail(directory, name, "read it", errno, error);
        }
        if (part == 0) {
            break;
        }
        done += (size_t)part;
    }
    *ret_size = done;
    return FCAP_OK;
}

static enum fcap_status read_bytes(struct fcap_objects *port, const char *name, uint64_t offset,
                                   uint8_t *data, size_t size, size_t *ret_size,
                                   struct fcap_error *error)
{
    struct objects_directory *directory = objects_directory_of(port);
    const char *last;
    struct stat info;
    int root;
    int file = -1;
    FCAP_ASSERT(fcap_object_name_is_valid(name));
    enum fcap_status status = objects_root(directory, &root, error);
    if (status != FCAP_OK) {
        return status;
    }
    int folder = objects_folder(root, name, OBJECTS_FOLDER_FIND, &last);
    if (folder >= 0) {
        file = openat(folder, last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    }
    int code = file >= 0 ? 0 : errno;
    if (file >= 0 && fstat(file, &info) == 0 && !S_ISREG(info.st_mode)) {
        code = EISDIR;
    }
    if (is_absent(code)) {
        status = fcap_error_set(error, FCAP_REFUSED, "%s/%s does not exist", directory->path, name);
    } else if (code != 0) {
        status = objects_fail(directory, name, "open it", code, error);
    } else {
        status = read_file(directory, name, file, offset, data, size, ret_size, error);
    }
    if (file >= 0) {
        (void)close(file); /* Only read. */
    }
    if (folder >= 0) {
        (void)close(folder); /* Only read. */
    }
    (void)close(root); /* Only read. */
    return status;
}

static enum fcap_status remove_object(struct fcap_objects *port, const char *name,
                                      struct fcap_error *error)
{
    struct objects_directory *directory = objects_directory_of(port);
    const char *last;
    int root;
    FCAP_ASSERT(fcap_object_name_is_valid(name));
    enum fcap_status status = objects_root(directory, &root, error);
    if (status != FCAP_OK) {
        return status;
    }
    status = objects_locks_stand(directory, root, name, error);
    if (status == FCAP_OK) {
        int folder = objects_folder(root, name, OBJECTS_FOLDER_FIND, &last);
        int code = folder >= 0 && unlinkat(folder, last, 0) == 0 ? 0 : errno;
        if (code != 0 && !is_absent(code)) {
            status = objects_fail(directory, name, "remove it", code, error);
        }
        if (folder >= 0) {
            (void)close(folder); /* Only read. */
        }
    }
    (void)close(root); /* Only read. */
    return status;
}

/* --- walking --- */

struct found {
    char name[FCAP_OBJECT_NAME_MAX + 1];
    uint64_t size;
};

struct walk {
    struct objects_directory *directory;
    const char *prefix;
    bool is_sweep;
    struct found *found;
    size_t count;
    size_t capacity;
    struct fcap_error *error;
};

static void add(struct walk *walk, const char *name, uint64_t size)
{
    if (walk->count == walk->capacity) {
        walk->capacity = walk->capacity * 2 + 64;
        walk->found = realloc(walk->found, walk->capacity * sizeof *walk->found);
        FCAP_ASSERT(walk->found != NULL);
    }
    struct found *found = &walk->found[walk->count++];
    memcpy(found->name, name, strlen(name) + 1);
    found->size = size;
}

static bool begins(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

static enum fcap_status walk_folder(struct walk *walk, int folder, const char *path);

/* One entry of a folder; `path` is that folder's name with a '/' behind it, or "". */
static enum fcap_status visit_entry(struct walk *walk, int folder, const char *path,
                                    const char *entry)
{
    char name[FCAP_OBJECT_NAME_MAX + 2]; /* With a '/' behind a folder. */
    struct stat info;
    bool is_litter = (begins(entry, OBJECTS_NEW) && begins(path, walk->prefix)) ||
                     (begins(entry, OBJECTS_NEW_MARK) && path[0] == '\0');
    if (walk->is_sweep && is_litter) {
        return unlinkat(folder, entry, 0) == 0 || errno == ENOENT
                   ? FCAP_OK
                   : objects_fail(walk->directory, path, "sweep it", errno, walk->error);
    }
    int size = snprintf(name, sizeof name - 1, "%s%s", path, entry);
    if (size < 0 || (size_t)size >= sizeof name - 1 || !fcap_object_name_is_valid(name)) {
        return FCAP_OK; /* Hidden, or nobody's object. */
    }
    bool is_below = begins(name, walk->prefix);
    if (!is_below && !begins(walk->prefix, name)) {
        return FCAP_OK; /* Nor a folder on the way. */
    }
    if (fstatat(folder, entry, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT /* It has just been removed. */
                   ? FCAP_OK
                   : objects_fail(walk->directory, name, "look at it", errno, walk->error);
    }
    if (S_ISREG(info.st_mode) && !walk->is_sweep && is_below) {
        add(walk, name, (uint64_t)info.st_size);
    }
    name[size] = '/';
    name[size + 1] = '\0';
    if (!S_ISDIR(info.st_mode) || (!is_below && !begins(walk->prefix, name))) {
        return FCAP_OK;
    }
    int next = openat(folder, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0) {
        return errno == ENOENT ? FCAP_OK
                               : objects_fail(walk->directory, name, "open it", errno, walk->error);
    }
    return walk_folder(walk, next, name);
}

/* Takes the descriptor. */
static enum fcap_status walk_folder(struct walk *walk, int folder, const char *path)
{
    DIR *entries = fdopendir(folder);
    enum fcap_status status = FCAP_OK;
    if (entries == NULL) {
        status = objects_fail(walk->directory, path, "look into it", errno, walk->error);
        (void)close(folder); /* Only read. */
        return status;
    }
    while (status == FCAP_OK) {
        errno = 0;
        const struct dirent *entry = readdir(entries);
        if (entry == NULL) {
            status = errno == 0
                         ? FCAP_OK
                         : objects_fail(walk->directory, path, "look into it", errno, walk->error);
            break;
        }
        status = visit_entry(walk, folder, path, entry->d_name);
    }
    (void)closedir(entries); /* Only read. */
    return status;
}

static enum fcap_status walk_all(struct walk *walk)
{
    int root;
    enum fcap_status status = objects_root(walk->directory, &root, walk->error);
    if (status == FCAP_OK && walk->is_sweep) {
        status = objects_locks_stand(walk->directory, root, walk->prefix, walk->error);
        if (status != FCAP_OK) {
            (void)close(root); /* Only read. */
        }
    }
    return status == FCAP_OK ? walk_folder(walk, root, "") : status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct found *)a)->name, ((const struct found *)b)->name);
}

static enum fcap_status list(struct fcap_objects *port, const char *prefix,
                             fcap_object_visitor visitor, void *context, struct fcap_error *error)
{
    struct walk walk = {.directory = objects_directory_of(port), .prefix = prefix, .error = error};
    enum fcap_status status = walk_all(&walk);
    if (status == FCAP_OK && walk.count > 0) {
        qsort(walk.found, walk.count, sizeof *walk.found, by_name);
        for (size_t i = 0; i < walk.count; i++) {
            if (!visitor(context, walk.found[i].name, walk.found[i].size)) {
                break;
            }
        }
    }
    free(walk.found);
    return status;
}

static enum fcap_status sweep(struct fcap_objects *port, const char *prefix,
                              struct fcap_error *error)
{
    struct walk walk = {.directory = objects_directory_of(port),
                        .prefix = prefix,
                        .is_sweep = true,
                        .error = error};
    return walk_all(&walk);
}

static bool locate(struct fcap_objects *port, const char *name, char ret_path[FCAP_OBJECT_PATH_MAX])
{
    struct objects_directory *directory = objects_directory_of(port);
    char whole[PATH_MAX];
    int root;
    FCAP_ASSERT(fcap_object_name_is_valid(name));
    if (objects_root(directory, &root, NULL) != FCAP_OK) {
        return false;
    }
    (void)close(root); /* Only read. */
    if (realpath(directory->path, whole) == NULL) {
        return false;
    }
    int size = snprintf(ret_path, FCAP_OBJECT_PATH_MAX, "%s/%s", whole, name);
    return size > 0 && size < FCAP_OBJECT_PATH_MAX;
}

/* --- opening --- */

enum fcap_status fcap_objects_directory_open(const char *path, bool must_exist,
                                             struct fcap_objects **ret_objects,
                                             struct fcap_error *error)
{
    static const struct fcap_objects_ops ops = {.begin = begin,
                                                .write = write_bytes,
                                                .finish = finish,
                                                .abandon = abandon,
                                                .read = read_bytes,
                                                .list = list,
                                                .remove = remove_object,
                                                .sweep = sweep,
                                                .lock = objects_lock,
                                                .unlock = objects_unlock,
                                                .locate = locate};
    struct objects_directory *directory = calloc(1, sizeof *directory);
    FCAP_ASSERT(directory != NULL);
    directory->port.ops = &ops;
    FCAP_ASSERT(pthread_mutex_init(&directory->mutex, NULL) == 0);
    directory->path = strdup(path);
    FCAP_ASSERT(directory->path != NULL);
    enum fcap_status status = objects_open_mark(directory, must_exist, error);
    if (status != FCAP_OK) {
        fcap_objects_directory_close(&directory->port);
        return status;
    }
    *ret_objects = &directory->port;
    return FCAP_OK;
}

enum fcap_status fcap_objects_directory_open_known(const char *path, const char *id,
                                                   struct fcap_objects **ret_objects,
                                                   struct fcap_error *error)
{
    struct fcap_objects *objects = NULL;
    enum fcap_status status = fcap_objects_directory_open(path, true, &objects, error);
    if (status == FCAP_OK && strcmp(fcap_objects_directory_id(objects), id) != 0) {
        fcap_objects_directory_close(objects);
        return fcap_error_set(error, FCAP_UNAVAILABLE,
                              "%s: another volume is mounted than the one that was used before; "
                              "mount the right one",
                              path);
    }
    if (status == FCAP_OK) {
        *ret_objects = objects;
    }
    return status;
}

const char *fcap_objects_directory_id(const struct fcap_objects *objects)
{
    return ((const struct objects_directory *)objects)->id;
}

void fcap_objects_directory_close(struct fcap_objects *port)
{
    if (port == NULL) {
        return;
    }
    struct objects_directory *directory = objects_directory_of(port);
    FCAP_ASSERT(directory->locks == NULL);
    while (directory->litter != NULL) { /* The next process sweeps. */
        struct objects_litter *litter = directory->litter;
        directory->litter = litter->next;
        free(litter);
    }
    (void)pthread_mutex_destroy(&directory->mutex); /* Nobody holds it. */
    free(directory->path);
    free(directory);
}
