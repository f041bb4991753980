/* Makes the state in a hidden directory of its place, so that neither the place's parent nor
 * another file system is needed, and moves it up, CURRENT last: without that there is no state. */
#include "restore_internal.h"

#include "fcap/point.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum fcap_status sync_directory(const char *path, struct fcap_error *error)
{
    int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool failed = file < 0 || fsync(file) != 0;
    int why = errno;
    if (file >= 0) {
        (void)close(file); /* Only read. */
    }
    return failed ? fcap_error_set(error, FCAP_IO, "%s: %s", path, strerror(why)) : FCAP_OK;
}

static enum fcap_status copy_files(struct restore *restore, const struct candidate *candidate,
                                   struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    if (mkdir(restore->restoring, 0750) != 0) {
        return fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_IO, "%s: %s",
                              restore->restoring, strerror(errno));
    }
    for (size_t i = 0; i < candidate->snapshot->file_count && status == FCAP_OK; i++) {
        const struct fcap_checkpoint_file *file = &candidate->snapshot->files[i];
        char path[sizeof restore->restoring + sizeof file->name + 1];
        (void)snprintf(path, sizeof path, "%s/%s", restore->restoring, file->name); /* It fits. */
        status = restore_read_file(restore, file, path, error);
        if (status == FCAP_CORRUPT) {
            object_list_add(&restore->bad, file->object, 0);
            object_list_sort(&restore->bad);
        }
    }
    return status == FCAP_OK ? sync_directory(restore->restoring, error) : status;
}

struct applying {
    struct fcap_checkpoint_place *place;
    uint64_t after; /* the snapshot holds the batches up to this one */
    uint64_t batches;
};

static enum fcap_status apply(void *context, const struct fcap_changelog_frame *frame,
                              struct fcap_error *error)
{
    struct applying *applying = context;
    if (frame->sequence <= applying->after) {
        return FCAP_OK;
    }
    applying->batches++;
    return applying->place->ops->apply(applying->place, frame->sequence, &frame->batch, error);
}

/* The files are there. Makes them the state at the candidate's end. */
static enum fcap_status bring_up(struct restore *restore, const struct candidate *candidate,
                                 uint64_t *ret_batches, struct fcap_error *error)
{
    struct fcap_checkpoint_place *place = restore->settings->place;
    const struct fcap_checkpoint *log = candidate->log;
    struct applying applying = {place, candidate->snapshot->snapshot_sequence, 0};
    struct fcap_store_position position = {0};
    enum fcap_status status = place->ops->open(place, restore->restoring, error);
    if (status == FCAP_OK) {
        place->ops->position(place, &position);
        if (position.sequence != candidate->snapshot->snapshot_sequence ||
            memcmp(&position.lineage, &log->lineage, sizeof position.lineage) != 0) {
            status = fcap_error_set(error, FCAP_CORRUPT,
                                    "the snapshot holds another state than its manifest tells");
        }
    }
    for (size_t i = candidate->first; i < log->segment_count && status == FCAP_OK; i++) {
        status = restore_read_segment(restore, &log->segments[i], &log->lineage, apply, &applying,
                                      error);
    }
    if (status == FCAP_OK) {
        status = place->ops->fork(place, error);
    }
    place->ops->close(place);
    *ret_batches = applying.batches;
    return status;
}

static enum fcap_status move_up(const struct restore *restore, const char *name,
                                struct fcap_error *error)
{
    char from[sizeof restore->restoring + 256];
    char to[sizeof restore->restoring + 256];
    (void)snprintf(from, sizeof from, "%s/%s", restore->restoring, name); /* Names have 255. */
    (void)snprintf(to, sizeof to, "%s/%s", restore->settings->directory, name);
    return rename(from, to) == 0
               ? FCAP_OK
               : fcap_error_set(error, FCAP_IO, "rename %s to %s: %s", from, to, strerror(errno));
}

static enum fcap_status put_into_place(struct restore *restore, struct fcap_error *error)
{
    const char *place = restore->settings->directory;
    DIR *directory = opendir(restore->restoring);
    if (directory == NULL) {
        return fcap_error_set(error, FCAP_IO, "%s: %s", restore->restoring, strerror(errno));
    }
    enum fcap_status status = FCAP_OK;
    for (struct dirent *entry = readdir(directory); entry != NULL && status == FCAP_OK;
         entry = readdir(directory)) {
        /* The lock that we hold must not be replaced by another one. */
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "CURRENT") != 0 &&
            strcmp(entry->d_name, RESTORE_LOCK) != 0) {
            FCAP_POINT(restore_moving);
            status = move_up(restore, entry->d_name, error);
        }
    }
    (void)closedir(directory); /* Only read. */
    if (status == FCAP_OK) {
        status = sync_directory(place, error);
    }
    FCAP_POINT(restore_moving);
    if (status == FCAP_OK) {
        status = move_up(restore, "CURRENT", error);
    }
    if (status == FCAP_OK) {
        status = sync_directory(place, error);
    }
    struct fcap_error unused;
    if (status == FCAP_OK &&
        fcap_checkpoint_remove_directory(restore->restoring, &unused) != FCAP_OK) {
        return FCAP_OK; /* The state is there. What is left is hidden, and empty. */
    }
    return status;
}

enum fcap_status restore_make(struct restore *restore, const struct candidate *candidate,
                              struct fcap_restore_report *report, struct fcap_error *error)
{
    enum fcap_status status = restore_clear(restore, error);
    if (status == FCAP_OK) {
        status = copy_files(restore, candidate, error);
    }
    if (status == FCAP_OK) {
        status = bring_up(restore, candidate, &report->batches, error);
    }
    if (status == FCAP_OK) {
        status = sync_directory(restore->restoring, error);
    }
    if (status == FCAP_OK) {
        return put_into_place(restore, error);
    }
    struct fcap_error unused;
    if (restore_clear(restore, &unused) != FCAP_OK) {
        return status; /* The next try does it first. */
    }
    return status;
}
