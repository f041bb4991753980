/* Locks: flock() on a file in the folder of the prefix. The kernel gives it up when the process is
 * gone, however it ended. On NFS (Linux, both versions) the server holds it for all clients; a
 * client that was cut off for longer than the lease may lose it without being told, which is why a
 * manifest's number can be made only once. The file is never removed: who waits for a removed one
 * would hold nothing. */
#include "objects_directory_internal.h"

#include "fcap/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HOLDER_BYTES = 200, TRIES = 3, FILE_MODE = 0640 };

struct fcap_object_lock {
    struct fcap_object_lock *next;
    int file;
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    char holder[HOLDER_BYTES];
};

/* Does the name still lead to this file? */
static bool is_same(int folder, int file)
{
    struct stat own;
    struct stat named;
    return fstat(file, &own) == 0 &&
           fstatat(folder, OBJECTS_LOCK, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

/* Why flock() has failed, with `code`. */
static enum fcap_status refuse(const struct objects_directory *directory, const char *prefix,
                               int file, int code, struct fcap_error *error)
{
    if (code != EWOULDBLOCK) {
        code = code == ENOSYS || code == EOPNOTSUPP ? ENOLCK : code;
        return objects_fail(directory, prefix, "lock it", code, error);
    }
    char holder[HOLDER_BYTES] = "";
    ssize_t size = pread(file, holder, sizeof holder - 1, 0);
    holder[size > 0 ? size : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return fcap_error_set(error, FCAP_LOCKED, "%s/%s" OBJECTS_LOCK ": held by %s", directory->path,
                          prefix, holder[0] != '\0' ? holder : "somebody else");
}

/* For whoever is refused. A full volume must not cost the lock. */
static void write_holder(int file, const char *holder)
{
    char text[HOLDER_BYTES + 1];
    (void)snprintf(text, sizeof text, "%s\n", holder); /* Cut is fine. */
    if (ftruncate(file, 0) == 0) {
        (void)!pwrite(file, text, strlen(text), 0);
    }
}

/* Opens and locks the file of a prefix below the root. */
static enum fcap_status acquire(const struct objects_directory *directory, int root,
                                const char *prefix, const char *holder, int *ret_file,
                                struct fcap_error *error)
{
    const char *last;
    int folder = objects_folder(root, prefix, OBJECTS_FOLDER_MAKE, &last);
    if (folder < 0) {
        return objects_fail(directory, prefix, "make its folder", errno, error);
    }
    enum fcap_status status = FCAP_BUSY; /* Not decided. */
    for (int i = 0; status == FCAP_BUSY && i < TRIES; i++) {
        int file =
            openat(folder, OBJECTS_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
        if (file < 0) {
            status = objects_fail(directory, prefix, "open its lock", errno, error);
        } else if (flock(file, LOCK_EX | LOCK_NB) != 0) {
            status = refuse(directory, prefix, file, errno, error);
        } else if (is_same(folder, file)) { /* Else it was removed meanwhile: once more. */
            write_holder(file, holder);
            *ret_file = file;
            file = -1;
            status = FCAP_OK;
        }
        if (file >= 0) {
            (void)close(file); /* Nothing was written. */
        }
    }
    (void)close(folder); /* Only read. */
    return status != FCAP_BUSY ? status
                               : fcap_error_set(error, FCAP_LOCKED,
                                                "%s/%s" OBJECTS_LOCK " is being removed again "
                                                "and again",
                                                directory->path, prefix);
}

enum fcap_status objects_lock(struct fcap_objects *port, const char *prefix, const char *holder,
                              struct fcap_object_lock **ret_lock, struct fcap_error *error)
{
    struct objects_directory *directory = objects_directory_of(port);
    int root;
    int file;
    enum fcap_status status = objects_root(directory, &root, error);
    if (status != FCAP_OK) {
        return status;
    }
    status = acquire(directory, root, prefix, holder, &file, error);
    (void)close(root); /* Only read. */
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_object_lock *lock = calloc(1, sizeof *lock);
    FCAP_ASSERT(lock != NULL);
    lock->file = file;
    (void)snprintf(lock->prefix, sizeof lock->prefix, "%s", prefix); /* Fits. */
    (void)snprintf(lock->holder, sizeof lock->holder, "%s", holder); /* Cut is fine. */
    (void)pthread_mutex_lock(&directory->mutex); /* Cannot fail: a plain mutex. */
    lock->next = directory->locks;
    directory->locks = lock;
    (void)pthread_mutex_unlock(&directory->mutex); /* As above. */
    *ret_lock = lock;
    return FCAP_OK;
}

void objects_unlock(struct fcap_objects *port, struct fcap_object_lock *lock)
{
    struct objects_directory *directory = objects_directory_of(port);
    if (lock == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&directory->mutex); /* Cannot fail: a plain mutex. */
    struct fcap_object_lock **at = &directory->locks;
    while (*at != lock) {
        FCAP_ASSERT(*at != NULL); /* One that was given back before. */
        at = &(*at)->next;
    }
    *at = lock->next;
    (void)pthread_mutex_unlock(&directory->mutex); /* As above. */
    (void)close(lock->file);                       /* Which gives it up. */
    free(lock);
}

/* One lock. When the name leads elsewhere, its file is another volume's or was removed. It is asked
 * for once more all the same: nothing for who has it, but a server of NFS may have given it to
 * somebody else. */
static enum fcap_status stand(const struct objects_directory *directory, int root,
                              struct fcap_object_lock *lock, struct fcap_error *error)
{
    const char *last;
    int folder = objects_folder(root, lock->prefix, OBJECTS_FOLDER_FIND, &last);
    bool stands = folder >= 0 && is_same(folder, lock->file);
    if (folder >= 0) {
        (void)close(folder); /* Only read. */
    }
    if (stands) {
        return flock(lock->file, LOCK_EX | LOCK_NB) == 0
                   ? FCAP_OK
                   : refuse(directory, lock->prefix, lock->file, errno, error);
    }
    int file;
    enum fcap_status status = acquire(directory, root, lock->prefix, lock->holder, &file, error);
    if (status == FCAP_OK) {
        (void)close(lock->file); /* It held nothing any more. */
        lock->file = file;
    }
    return status;
}

enum fcap_status objects_locks_stand(struct objects_directory *directory, int root,
                                     const char *name, struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    (void)pthread_mutex_lock(&directory->mutex); /* Cannot fail: a plain mutex. */
    for (struct fcap_object_lock *lock = directory->locks; lock != NULL && status == FCAP_OK;
         lock = lock->next) {
        size_t size = strlen(lock->prefix) < strlen(name) ? strlen(lock->prefix) : strlen(name);
        if (strncmp(name, lock->prefix, size) == 0) { /* One lies below the other. */
            status = stand(directory, root, lock, error);
        }
    }
    (void)pthread_mutex_unlock(&directory->mutex); /* As above. */
    return status;
}
