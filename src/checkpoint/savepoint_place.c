/* Where a savepoint must not be: wherever somebody else's files come and go. */
#include "fcap/savepoint.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK ".fcap-objects"

/* Cuts the last part off. False: there is none. */
static bool cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL || path[1] == '\0') {
        return false;
    }
    if (slash == path) {
        slash++; /* The root stays. */
    }
    *slash = '\0';
    return true;
}

/* The part of a path that is there, without links; *ret_is_whole: all of it is. */
static bool find_real(const char *directory, char real[PATH_MAX], bool *ret_is_whole)
{
    char path[PATH_MAX];
    int size = snprintf(path, sizeof path, "%s", directory);
    *ret_is_whole = true;
    if (size <= 0 || (size_t)size >= sizeof path) {
        return false;
    }
    while (size > 1 && path[size - 1] == '/') {
        path[--size] = '\0';
    }
    while (realpath(path, real) == NULL) {
        *ret_is_whole = false;
        if (errno != ENOENT || !cut_last(path)) {
            return false;
        }
    }
    return true;
}

static bool has(const char *directory, const char *name)
{
    char path[PATH_MAX + 32];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s/%s", directory, name); /* Fits. */
    return lstat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* A database's CURRENT, not just any file of that name. */
static bool is_state(const char *directory)
{
    char path[PATH_MAX + 32];
    char text[sizeof "MANIFEST-"] = "";
    (void)snprintf(path, sizeof path, "%s/CURRENT", directory); /* Fits. */
    FILE *file = has(directory, "CURRENT") ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return false;
    }
    size_t size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file); /* Only read. */
    return size == sizeof text - 1 && strcmp(text, "MANIFEST-") == 0;
}

/* What is behind a ".." is known only when all before it is there. */
static bool goes_up(const char *directory)
{
    const char *at = directory;
    while ((at = strstr(at, "/..")) != NULL) {
        at += 3;
        if (*at == '/' || *at == '\0') {
            return true;
        }
    }
    return false;
}

static bool is_same(const char *real, const char *directory)
{
    char other[PATH_MAX];
    return realpath(directory, other) != NULL && strcmp(real, other) == 0;
}

enum fcap_status fcap_savepoint_check_place(const char *directory, const char *checkpoints,
                                            struct fcap_error *error)
{
    char real[PATH_MAX];
    struct stat info;
    bool is_whole;
    if (!find_real(directory, real, &is_whole)) {
        return FCAP_OK;
    }
    if (!is_whole && lstat(directory, &info) == 0 && S_ISLNK(info.st_mode)) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "%s is a symbolic link to what is not there; make that, or name "
                              "another directory",
                              directory);
    }
    if (!is_whole && goes_up(directory)) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "%s is not there; make it, or name it without \"..\"", directory);
    }
    if (is_whole && checkpoints != NULL && is_same(real, checkpoints)) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "%s is checkpoint.directory; name a directory of its own", directory);
    }
    bool is_itself = is_whole;
    do {
        if (is_state(real)) {
            return fcap_error_set(error, FCAP_CONFIG,
                                  "%s lies within the state in %s; name a directory outside of it",
                                  directory, real);
        }
        if (!is_itself && has(real, MARK)) {
            return fcap_error_set(error, FCAP_CONFIG,
                                  "%s lies within %s, which holds checkpoints or a savepoint; name "
                                  "a directory outside of it",
                                  directory, real);
        }
        is_itself = false;
    } while (cut_last(real));
    return FCAP_OK;
}

bool fcap_savepoint_place_is_made(const char *directory)
{
    return strlen(directory) < PATH_MAX && has(directory, MARK);
}

static bool is_empty(const char *directory)
{
    DIR *entries = opendir(directory);
    bool is_empty = entries != NULL;
    for (struct dirent *entry = NULL; is_empty && (entry = readdir(entries)) != NULL;) {
        is_empty = entry->d_name[0] == '.' || strcmp(entry->d_name, "lost+found") == 0;
    }
    if (entries != NULL) {
        (void)closedir(entries); /* Only read. */
    }
    return is_empty;
}

void fcap_savepoint_unmake_place(const char *directory, const char *profile, const char *instance)
{
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    char path[PATH_MAX + sizeof prefix + 1];
    (void)fcap_checkpoint_prefix(profile, instance, prefix); /* Gives its argument. */
    if (strlen(directory) >= PATH_MAX) {
        return;
    }
    /* Only empty folders go. What cannot be removed stays. */
    (void)snprintf(path, sizeof path, "%s/%s", directory, prefix); /* Fits. */
    (void)rmdir(path);
    *strchr(prefix, '/') = '\0';
    (void)snprintf(path, sizeof path, "%s/%s", directory, prefix); /* Fits. */
    (void)rmdir(path);
    if (is_empty(directory)) {
        (void)snprintf(path, sizeof path, "%s/" MARK, directory); /* Fits. */
        (void)unlink(path);
    }
}
