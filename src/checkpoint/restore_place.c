/* Is the place of a restore free, and what has a try that was interrupted left there? */
#include "restore_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESTORING ".restoring"

/* A volume's root has lost+found; hidden files belong to the file system, or are ours; whoever has
 * the place locks a file that holds nothing. */
static bool is_nothing(const char *name)
{
    return name[0] == '.' || strcmp(name, "lost+found") == 0 || strcmp(name, RESTORE_LOCK) == 0;
}

/* What lies in a place. */
struct place {
    char first[256];     /* a name that is part of something; "": there is none */
    bool has_current;    /* it is a state */
    bool is_interrupted; /* a restore was at work here */
};

static enum fcap_status look(const char *path, struct place *ret_place, struct fcap_error *error)
{
    *ret_place = (struct place){0};
    DIR *directory = opendir(path);
    if (directory == NULL && errno == ENOENT) {
        return FCAP_OK;
    }
    if (directory == NULL) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "%s: %s; name a directory that is absent or empty", path,
                              strerror(errno));
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        const char *name = entry->d_name;
        if (!is_nothing(name)) {
            (void)snprintf(ret_place->first, sizeof ret_place->first, "%s", name); /* It fits. */
        }
        ret_place->has_current = ret_place->has_current || strcmp(name, "CURRENT") == 0;
        ret_place->is_interrupted = ret_place->is_interrupted || strcmp(name, RESTORING) == 0;
    }
    (void)closedir(directory); /* Only read. */
    return FCAP_OK;
}

static bool is_free(const struct place *place)
{
    return place->first[0] == '\0' || (place->is_interrupted && !place->has_current);
}

bool fcap_restore_is_free(const char *directory)
{
    struct place place;
    return look(directory, &place, NULL) == FCAP_OK && is_free(&place);
}

static enum fcap_status check_free(const char *path, struct fcap_error *error)
{
    struct place place;
    enum fcap_status status = look(path, &place, error);
    if (status == FCAP_OK && !is_free(&place)) {
        status = fcap_error_set(error, FCAP_CONFIG,
                                "%s is not empty (%s); move it away, and restore again", path,
                                place.first);
    }
    return status;
}

/* The lock is RocksDB's own, by its own means: neither another restore nor a daemon that begins
 * anew uses the place meanwhile. RocksDB itself is at work in a directory below. */
static enum fcap_status lock(struct restore *restore, struct fcap_error *error)
{
    char path[sizeof restore->restoring + sizeof RESTORE_LOCK];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)snprintf(path, sizeof path, "%s/" RESTORE_LOCK, restore->settings->directory); /* Fits. */
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) {
        return fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_IO,
                              "%s: %s; make it writable for this user, with free space", path,
                              strerror(errno));
    }
    if (fcntl(file, F_SETLK, &lock) == 0) {
        restore->lock = file;
        return FCAP_OK;
    }
    int why = errno;
    bool is_held = (why == EAGAIN || why == EACCES) && fcntl(file, F_GETLK, &lock) == 0;
    (void)close(file); /* Nothing was written. */
    return is_held ? fcap_error_set(error, FCAP_LOCKED,
                                    "%s: process %d is at work there; wait for it, or stop it",
                                    restore->settings->directory, (int)lock.l_pid)
                   : fcap_error_set(error, FCAP_IO, "%s: lock it: %s", path, strerror(why));
}

void restore_leave_place(struct restore *restore)
{
    if (restore->lock >= 0) {
        (void)close(restore->lock); /* Nothing was written; this gives the lock up. */
        restore->lock = -1;
    }
}

enum fcap_status restore_take_place(struct restore *restore, struct fcap_error *error)
{
    const char *path = restore->settings->directory;
    enum fcap_status status =
        fcap_checkpoint_within(path, &RESTORING[1], restore->restoring, error);
    if (status == FCAP_OK) {
        status = check_free(path, error);
    }
    if (status == FCAP_OK && mkdir(path, 0750) != 0 && errno != EEXIST) {
        status = fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_CONFIG,
                                "%s: %s; its parent must be there, and this user must be allowed "
                                "to write in it",
                                path, strerror(errno));
    }
    if (status == FCAP_OK) {
        status = lock(restore, error);
    }
    /* Somebody may have been quicker, and be done with it. */
    return status == FCAP_OK ? check_free(path, error) : status;
}

enum fcap_status restore_clear(struct restore *restore, struct fcap_error *error)
{
    const char *path = restore->settings->directory;
    struct stat info;
    if (stat(restore->restoring, &info) != 0) {
        return FCAP_OK; /* Nobody was at work here. */
    }
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return fcap_error_set(error, FCAP_IO, "%s: %s", path, strerror(errno));
    }
    int failed = 0;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (!is_nothing(entry->d_name) && unlinkat(dirfd(directory), entry->d_name, 0) != 0) {
            failed = errno; /* What was moved up already; CURRENT is not among it. */
        }
    }
    (void)closedir(directory); /* Only read. */
    if (failed != 0) {
        return fcap_error_set(error, FCAP_IO, "%s: %s", path, strerror(failed));
    }
    return fcap_checkpoint_remove_directory(restore->restoring, error); /* Last: it tells. */
}
