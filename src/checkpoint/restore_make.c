/* Makes the state in a hidden directory of its place, so that neither the place's parent nor
 * another file system is needed. When it is whole it becomes the state (restore_switch.h). */
#include "restore_internal.h"

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
    if (mkdir(restore->restoring, 0750) != 0) {
        return fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_IO, "%s: %s",
                              restore->restoring, strerror(errno));
    }
    enum fcap_status status =
        restore_copy_files(restore, candidate->snapshot, restore->restoring, error);
    return status == FCAP_OK ? sync_directory(restore->restoring, error) : status;
}

struct applying {
    const struct restore *restore;
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
    if (restore_is_cancelled(applying->restore, error)) {
        return FCAP_STOPPED;
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
    struct applying applying = {restore, place, candidate->snapshot->snapshot_sequence, 0};
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

/* Durable with the directory. */
static enum fcap_status mark_chosen(const struct restore *restore, struct fcap_error *error)
{
    char path[sizeof restore->restoring + sizeof SWITCH_CHOSEN];
    (void)snprintf(path, sizeof path, "%s/" SWITCH_CHOSEN, restore->restoring); /* Fits. */
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    if (file < 0) {
        return fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_IO, "%s: %s", path,
                              strerror(errno));
    }
    (void)close(file); /* Nothing was written. */
    return FCAP_OK;
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
    if (status == FCAP_OK && restore->settings->is_chosen) {
        status = mark_chosen(restore, error);
    }
    if (status == FCAP_OK) {
        status = sync_directory(restore->restoring, error);
    }
    if (status == FCAP_OK) {
        return switch_commit(restore->settings->directory, error);
    }
    struct fcap_error unused;
    if (restore_clear(restore, &unused) != FCAP_OK) {
        return status; /* The next try does it first. */
    }
    return status;
}
