/* What every state has: snapshots one at a time, within it. */
#include "fcap/assert.h"
#include "fcap/checkpoint_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void fcap_checkpoint_state_init(struct fcap_checkpoint_state *state,
                                const struct fcap_checkpoint_state_ops *ops, const char *directory)
{
    *state = (struct fcap_checkpoint_state){.ops = ops, .directory = directory};
    FCAP_ASSERT(pthread_mutex_init(&state->lock, NULL) == 0);
}

void fcap_checkpoint_state_done(struct fcap_checkpoint_state *state)
{
    (void)pthread_mutex_destroy(&state->lock); /* Nobody holds it. */
}

enum fcap_status fcap_checkpoint_within(const char *directory, const char *name,
                                        char ret_directory[4096], struct fcap_error *error)
{
    int size = snprintf(ret_directory, 4096, "%s/.%s", directory, name);
    return size > 0 && size < 4096
               ? FCAP_OK
               : fcap_error_set(error, FCAP_CONFIG, "%.200s...: too long", directory);
}

enum fcap_status fcap_checkpoint_remove_directory(const char *path, struct fcap_error *error)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return errno == ENOENT ? FCAP_OK
                               : fcap_error_set(error, FCAP_IO, "%s: %s", path, strerror(errno));
    }
    int failed = 0;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(directory), entry->d_name, 0) != 0) {
            failed = errno;
        }
    }
    (void)closedir(directory); /* Only read. */
    if (failed == 0 && rmdir(path) != 0) {
        failed = errno;
    }
    return failed == 0 ? FCAP_OK : fcap_error_set(error, FCAP_IO, "%s: %s", path, strerror(failed));
}

enum fcap_status fcap_checkpoint_state_snapshot(struct fcap_checkpoint_state *state,
                                                const char *name, char ret_directory[4096],
                                                uint64_t *ret_sequence, struct fcap_error *error)
{
    enum fcap_status status = fcap_checkpoint_within(state->directory, name, ret_directory, error);
    if (status == FCAP_OK) {
        status = fcap_checkpoint_remove_directory(ret_directory, error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&state->lock);
    status = state->ops->snapshot(state, ret_directory, ret_sequence, error);
    (void)pthread_mutex_unlock(&state->lock);
    return status;
}
