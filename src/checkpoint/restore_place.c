/* Is the place of a restore free, and what has a try that was interrupted left there? */
#include "restore_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Nothing lies there, or nothing but what a restore into an empty place had begun to move up. */
static bool is_free(const struct switch_place *place, char ret_name[256])
{
    return !switch_is_visible(place, ret_name) || switch_is_given_up(place);
}

bool fcap_restore_is_free(const char *directory)
{
    struct switch_place place;
    char unused[256];
    bool is_so = switch_enter(directory, &place, NULL) == FCAP_OK && is_free(&place, unused);
    switch_leave(&place);
    return is_so;
}

static enum fcap_status check_free(const struct restore *restore, struct fcap_error *error)
{
    struct switch_place place;
    char name[256];
    const char *path = restore->settings->directory;
    if (switch_enter(path, &place, error) != FCAP_OK) {
        fcap_error_prefix(error, "name a directory that is absent or empty");
        return FCAP_CONFIG;
    }
    bool is_so = restore->settings->replaces || is_free(&place, name);
    switch_leave(&place);
    return is_so ? FCAP_OK
                 : fcap_error_set(error, FCAP_CONFIG,
                                  "%s is not empty (%s); move it away, and restore again", path,
                                  name);
}

void restore_leave_place(struct restore *restore)
{
    switch_unlock(&restore->lock);
}

enum fcap_status restore_take_place(struct restore *restore, struct fcap_error *error)
{
    const char *path = restore->settings->directory;
    enum fcap_status status =
        fcap_checkpoint_within(path, &SWITCH_RESTORING[1], restore->restoring, error);
    if (status == FCAP_OK) {
        status = check_free(restore, error);
    }
    if (status == FCAP_OK && mkdir(path, 0750) != 0 && errno != EEXIST) {
        status = fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_CONFIG,
                                "%s: %s; its parent must be there, and this user must be allowed "
                                "to write in it",
                                path, strerror(errno));
    }
    if (status == FCAP_OK) {
        status = switch_lock(path, &restore->lock, error);
    }
    /* Somebody may have been quicker, and be done with it. */
    if (status == FCAP_OK) {
        status = check_free(restore, error);
    }
    return status == FCAP_OK ? switch_clear(path, error) : status;
}

enum fcap_status restore_clear(struct restore *restore, struct fcap_error *error)
{
    return fcap_checkpoint_remove_directory(restore->restoring, error);
}
