/* One state in the place of another, within its directory. Whenever the process ends, what lies
 * there says how far it was, and the next start goes on from there (docs/decisions/0022). */
#include "restore_switch.h"

#include "fcap/damage.h"
#include "fcap/point.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool switch_is_nothing(const char *name)
{
    return name[0] == '.' || strcmp(name, "lost+found") == 0 || strcmp(name, SWITCH_LOCK) == 0;
}

enum fcap_status switch_lock(const char *directory, int *ret_lock, struct fcap_error *error)
{
    char path[4096 + sizeof SWITCH_LOCK];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)snprintf(path, sizeof path, "%s/" SWITCH_LOCK, directory); /* Too long: open fails. */
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) {
        return fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_IO,
                              "%s: %s; make it writable for this user, with free space", path,
                              strerror(errno));
    }
    if (fcntl(file, F_SETLK, &lock) == 0) {
        *ret_lock = file;
        return FCAP_OK;
    }
    int why = errno;
    bool is_held = (why == EAGAIN || why == EACCES) && fcntl(file, F_GETLK, &lock) == 0;
    (void)close(file); /* Nothing was written. */
    return is_held ? fcap_error_set(error, FCAP_LOCKED,
                                    "%s: process %d is at work there; wait for it, or stop it",
                                    directory, (int)lock.l_pid)
                   : fcap_error_set(error, FCAP_IO, "%s: lock it: %s", path, strerror(why));
}

void switch_unlock(int *lock)
{
    if (*lock >= 0) {
        (void)close(*lock); /* Nothing was written; this gives the lock up. */
    }
    *lock = -1;
}

/* --- small steps --- */

static enum fcap_status failed(const struct switch_place *place, const char *name, const char *what,
                               struct fcap_error *error)
{
    int code = errno;
    bool is_full = code == ENOSPC || code == EDQUOT;
    return fcap_error_set(error, is_full ? FCAP_NO_SPACE : FCAP_IO, "%s/%s: %s: %s", place->path,
                          name, what, strerror(code));
}

enum fcap_status switch_enter(const char *directory, struct switch_place *ret_place,
                              struct fcap_error *error)
{
    *ret_place = (struct switch_place){directory, -1};
    ret_place->file = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret_place->file >= 0 || errno == ENOENT) {
        return FCAP_OK;
    }
    return fcap_error_set(error, errno == ENOTDIR ? FCAP_FOREIGN : FCAP_IO, "%s: %s", directory,
                          strerror(errno));
}

void switch_leave(struct switch_place *place)
{
    if (place->file >= 0) {
        (void)close(place->file); /* Only read. */
    }
    place->file = -1;
}

bool switch_has(const struct switch_place *place, const char *name)
{
    struct stat info;
    return place->file >= 0 && fstatat(place->file, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

static enum fcap_status sync_place(const struct switch_place *place, struct fcap_error *error)
{
    return fsync(place->file) == 0 ? FCAP_OK : failed(place, ".", "sync it", error);
}

/* A directory within the place; -1: errno. */
static DIR *open_within(const struct switch_place *place, const char *name)
{
    int file = openat(place->file, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = file >= 0 ? fdopendir(file) : NULL;
    if (directory == NULL && file >= 0) {
        int code = errno;
        (void)close(file); /* Only read. */
        errno = code;
    }
    return directory;
}

static enum fcap_status rename_within(const struct switch_place *place, const char *from,
                                      const char *to, struct fcap_error *error)
{
    if (renameat(place->file, from, place->file, to) != 0) {
        return failed(place, from, "rename it", error);
    }
    return sync_place(place, error);
}

/* A name within a directory within the place. */
static const char *join(char path[600], const char *directory, const char *name)
{
    (void)snprintf(path, 600, "%s/%s", directory, name); /* Names have at most 255 bytes. */
    return path;
}

enum way { ASIDE, AWAY, UP };

static void reach(enum way way)
{
    (void)way; /* Without points nobody looks at it. */
    FCAP_POINT_IF(way == ASIDE, replace_aside);
    FCAP_POINT_IF(way == AWAY, damage_aside);
    FCAP_POINT_IF(way == UP, restore_moving);
}

/* Moves what is visible in `from`, but for CURRENT. */
static enum fcap_status move_others(const struct switch_place *place, const char *from,
                                    const char *to, enum way way, struct fcap_error *error)
{
    DIR *directory = open_within(place, from);
    enum fcap_status status = FCAP_OK;
    if (directory == NULL) {
        return failed(place, from, "open it", error);
    }
    for (struct dirent *entry = readdir(directory); entry != NULL && status == FCAP_OK;
         entry = readdir(directory)) {
        char old[600];
        char new[600];
        if (switch_is_nothing(entry->d_name) || strcmp(entry->d_name, "CURRENT") == 0) {
            continue;
        }
        reach(way);
        if (renameat(place->file, join(old, from, entry->d_name), place->file,
                     join(new, to, entry->d_name)) != 0) {
            status = failed(place, old, "move it", error);
        }
    }
    (void)closedir(directory); /* Only read. */
    return status;
}

/* Without it there is no state: it is the first of a state that goes, and the last of one that
 * comes. */
static enum fcap_status move_current(const struct switch_place *place, const char *from,
                                     const char *to, enum way way, struct fcap_error *error)
{
    char old[600];
    char new[600];
    reach(way);
    if (renameat(place->file, join(old, from, "CURRENT"), place->file, join(new, to, "CURRENT")) !=
            0 &&
        errno != ENOENT) {
        return failed(place, old, "move it", error);
    }
    return sync_place(place, error);
}

static enum fcap_status move_out(const struct switch_place *place, const char *to, enum way way,
                                 struct fcap_error *error)
{
    enum fcap_status status = move_current(place, ".", to, way, error);
    if (status == FCAP_OK) {
        status = move_others(place, ".", to, way, error);
    }
    return status == FCAP_OK ? sync_place(place, error) : status;
}

static enum fcap_status make_within(const struct switch_place *place, const char *name,
                                    struct fcap_error *error)
{
    if (mkdirat(place->file, name, 0750) != 0 && errno != EEXIST) {
        return failed(place, name, "make it", error);
    }
    return sync_place(place, error);
}

static enum fcap_status remove_within(const struct switch_place *place, const char *name,
                                      struct fcap_error *error)
{
    char path[4096];
    enum fcap_status status = fcap_checkpoint_within(place->path, &name[1], path, error);
    return status == FCAP_OK ? fcap_checkpoint_remove_directory(path, error) : status;
}

/* --- the switch --- */

bool switch_is_visible(const struct switch_place *place, char ret_name[256])
{
    DIR *directory = place->file >= 0 ? open_within(place, ".") : NULL;
    bool is_visible = false;
    ret_name[0] = '\0';
    if (directory == NULL) {
        return false;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL && !is_visible;
         entry = readdir(directory)) {
        if (!switch_is_nothing(entry->d_name)) {
            (void)snprintf(ret_name, 256, "%s", entry->d_name); /* It fits. */
            is_visible = true;
        }
    }
    (void)closedir(directory); /* Only read. */
    return is_visible;
}

static enum fcap_status forget_choice(const struct switch_place *place, struct fcap_error *error)
{
    if (unlinkat(place->file, SWITCH_CHOSEN, 0) != 0 && errno != ENOENT) {
        return failed(place, SWITCH_CHOSEN, "remove it", error);
    }
    return FCAP_OK;
}

/* What was said about the state that goes is not said about the one that comes. */
static enum fcap_status forget(const struct switch_place *place, struct fcap_error *error)
{
    enum fcap_status status = forget_choice(place, error);
    if (status != FCAP_OK) {
        return status;
    }
    if (!switch_has(place, FCAP_DAMAGE_MARKER)) {
        return FCAP_OK;
    }
    return rename_within(place, FCAP_DAMAGE_MARKER, FCAP_DAMAGE_BEFORE, error);
}

/* The new state is whole. The old one goes. */
static enum fcap_status begin_moving(const struct switch_place *place, struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    if (switch_has(place, SWITCH_REPLACED)) {
        status = move_out(place, SWITCH_REPLACED, ASIDE, error);
    }
    if (status == FCAP_OK) {
        status = forget(place, error);
    }
    return status == FCAP_OK ? rename_within(place, SWITCH_RESTORED, SWITCH_MOVING, error) : status;
}

/* Nothing of the old state is left; the new one comes. */
static enum fcap_status move_up(const struct switch_place *place, struct fcap_error *error)
{
    struct fcap_error unused;
    enum fcap_status status = move_others(place, SWITCH_MOVING, ".", UP, error);
    if (status == FCAP_OK && switch_has(place, SWITCH_MOVING "/" SWITCH_CHOSEN)) {
        status = rename_within(place, SWITCH_MOVING "/" SWITCH_CHOSEN, SWITCH_CHOSEN, error);
    }
    if (status == FCAP_OK) {
        status = sync_place(place, error);
    }
    if (status == FCAP_OK) {
        status = move_current(place, SWITCH_MOVING, ".", UP, error);
    }
    if (status == FCAP_OK) {
        /* The state is there. What stays is hidden, and empty. */
        (void)remove_within(place, SWITCH_MOVING, &unused);
    }
    return status;
}

/* The damaged state is kept, and the one that was kept before goes. */
static enum fcap_status keep_damaged(const struct switch_place *place, struct fcap_error *error)
{
    enum fcap_status status = move_out(place, SWITCH_DAMAGED_NEW, AWAY, error);
    if (status == FCAP_OK) {
        status = forget(place, error);
    }
    if (status == FCAP_OK) {
        status = remove_within(place, SWITCH_DAMAGED, error);
    }
    return status == FCAP_OK ? rename_within(place, SWITCH_DAMAGED_NEW, SWITCH_DAMAGED, error)
                             : status;
}

static enum fcap_status finish(const struct switch_place *place, struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    struct fcap_error unused;
    if (switch_has(place, SWITCH_DAMAGED_NEW)) {
        status = keep_damaged(place, error);
    }
    if (status == FCAP_OK && switch_has(place, SWITCH_RESTORED)) {
        status = begin_moving(place, error);
    }
    if (status == FCAP_OK && switch_has(place, SWITCH_MOVING)) {
        status = move_up(place, error);
    }
    if (status == FCAP_OK && switch_has(place, SWITCH_REPLACED) && switch_has(place, "CURRENT")) {
        FCAP_POINT(replace_removing);
        (void)remove_within(place, SWITCH_REPLACED, &unused); /* The next start tries it again. */
    }
    return status;
}

enum fcap_status switch_finish(const char *directory, struct fcap_error *error)
{
    static const char *const names[] = {SWITCH_DAMAGED_NEW, SWITCH_RESTORED, SWITCH_MOVING,
                                        SWITCH_REPLACED};
    struct switch_place place;
    char unused[256];
    bool is_interrupted = false;
    int lock = -1;
    enum fcap_status status = switch_enter(directory, &place, error);
    /* What was being made beside a state is of no use; where there is none, it says that there is
     * to be one. */
    bool has_litter = switch_has(&place, SWITCH_RESTORING) && switch_is_visible(&place, unused);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        is_interrupted = is_interrupted || switch_has(&place, names[i]);
    }
    if (status == FCAP_OK && (is_interrupted || has_litter)) {
        status = switch_lock(directory, &lock, error);
    }
    if (status == FCAP_OK && is_interrupted) {
        status = finish(&place, error);
    }
    if (status == FCAP_OK && has_litter) {
        status = remove_within(&place, SWITCH_RESTORING, error);
    }
    switch_unlock(&lock);
    switch_leave(&place);
    return status;
}

enum fcap_status switch_commit(const char *directory, struct fcap_error *error)
{
    struct switch_place place;
    char unused[256];
    enum fcap_status status = switch_enter(directory, &place, error);
    /* Only with such a directory anything is moved aside. */
    if (status == FCAP_OK && switch_is_visible(&place, unused)) {
        status = make_within(&place, SWITCH_REPLACED, error);
    }
    FCAP_POINT(replace_begun);
    if (status == FCAP_OK) {
        status = rename_within(&place, SWITCH_RESTORING, SWITCH_RESTORED, error);
    }
    if (status == FCAP_OK) {
        status = finish(&place, error);
    }
    switch_leave(&place);
    return status;
}

enum fcap_status switch_away(const char *directory, struct fcap_error *error)
{
    struct switch_place place;
    enum fcap_status status = switch_enter(directory, &place, error);
    if (status == FCAP_OK) {
        status = make_within(&place, SWITCH_DAMAGED_NEW, error);
    }
    if (status == FCAP_OK) {
        status = finish(&place, error);
    }
    switch_leave(&place);
    return status;
}

/* --- what is given up --- */

static enum fcap_status remove_visible(const struct switch_place *place, struct fcap_error *error)
{
    if (unlinkat(place->file, "CURRENT", 0) != 0 && errno != ENOENT) {
        return failed(place, "CURRENT", "remove it", error);
    }
    enum fcap_status status = sync_place(place, error);
    DIR *directory = status == FCAP_OK ? open_within(place, ".") : NULL;
    if (status == FCAP_OK && directory == NULL) {
        return failed(place, ".", "open it", error);
    }
    for (struct dirent *entry = directory != NULL ? readdir(directory) : NULL;
         entry != NULL && status == FCAP_OK; entry = readdir(directory)) {
        if (!switch_is_nothing(entry->d_name) && unlinkat(place->file, entry->d_name, 0) != 0) {
            status = failed(place, entry->d_name, "remove it", error);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory); /* Only read. */
    }
    return status;
}

enum fcap_status switch_empty(const char *directory, struct fcap_error *error)
{
    struct switch_place place;
    enum fcap_status status = switch_enter(directory, &place, error);
    if (status == FCAP_OK && place.file >= 0) {
        status = remove_visible(&place, error);
        if (status == FCAP_OK) {
            status = forget(&place, error);
        }
    }
    switch_leave(&place);
    return status;
}

enum fcap_status switch_drop_chosen(const char *directory, struct fcap_error *error)
{
    struct switch_place place;
    enum fcap_status status = switch_enter(directory, &place, error);
    if (status == FCAP_OK && place.file >= 0) {
        status = forget_choice(&place, error);
    }
    switch_leave(&place);
    return status;
}

enum fcap_status switch_drop_kept(const char *directory, bool *ret_dropped,
                                  struct fcap_error *error)
{
    struct switch_place place;
    enum fcap_status status = switch_enter(directory, &place, error);
    *ret_dropped = status == FCAP_OK && switch_has(&place, SWITCH_DAMAGED);
    if (*ret_dropped) {
        status = remove_within(&place, SWITCH_DAMAGED, error);
    }
    switch_leave(&place);
    return status;
}

bool switch_is_given_up(const struct switch_place *place)
{
    return (switch_has(place, SWITCH_RESTORED) || switch_has(place, SWITCH_MOVING)) &&
           !switch_has(place, SWITCH_REPLACED) && !switch_has(place, "CURRENT");
}

enum fcap_status switch_clear(const char *directory, struct fcap_error *error)
{
    struct switch_place place;
    enum fcap_status status = switch_enter(directory, &place, error);
    if (status == FCAP_OK && place.file >= 0 && switch_is_given_up(&place)) {
        if (switch_has(&place, SWITCH_MOVING)) {
            status = remove_visible(&place, error);
        }
        if (status == FCAP_OK) {
            status = remove_within(&place, SWITCH_RESTORED, error);
        }
        if (status == FCAP_OK) {
            status = remove_within(&place, SWITCH_MOVING, error); /* Last: it tells. */
        }
    }
    switch_leave(&place);
    return status;
}
