/* Which checkpoint is taken. */
#include "restore_internal.h"

#include "fcap/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void tell(struct restore *restore, const struct candidate *candidate,
                 const struct fcap_error *why)
{
    char text[1400];
    restore->not_taken++;
    if (restore->settings->tell == NULL) {
        return;
    }
    (void)snprintf(text, sizeof text,
                   "checkpoint %" PRIu64 " from the snapshot of %" PRIu64 " is not taken: %s",
                   candidate->log->number, candidate->snapshot->number, why->text); /* May cut. */
    restore->settings->tell(restore->settings->context, text);
}

/* What the listing says of one object, and what is known of it already. */
enum fcap_status restore_look_at(const struct restore *restore, const char *object, uint64_t size,
                                 struct fcap_error *error)
{
    const struct object_entry *entry = object_list_find(&restore->listed, object);
    if (entry == NULL) {
        return fcap_error_set(error, FCAP_CORRUPT, "%s is missing", object);
    }
    if (entry->size != size) {
        return fcap_error_set(error, FCAP_CORRUPT, "%s: %" PRIu64 " bytes instead of %" PRIu64,
                              object, entry->size, size);
    }
    if (object_list_find(&restore->bad, object) != NULL) {
        return fcap_error_set(error, FCAP_CORRUPT, "%s is damaged", object);
    }
    return FCAP_OK;
}

/* Its checksum is right, but of what was damaged. */
static bool is_the_damaged(const struct restore *restore, const struct fcap_checkpoint_file *file)
{
    const struct fcap_restore_settings *settings = restore->settings;
    return settings->damaged_size > 0 && file->size == settings->damaged_size &&
           file->hash == settings->damaged_hash;
}

static enum fcap_status look(const struct restore *restore, const struct candidate *candidate,
                             struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    for (size_t i = 0; i < candidate->snapshot->file_count && status == FCAP_OK; i++) {
        const struct fcap_checkpoint_file *file = &candidate->snapshot->files[i];
        status = restore_look_at(restore, file->object, file->size, error);
        if (status == FCAP_OK && is_the_damaged(restore, file)) {
            status =
                fcap_error_set(error, FCAP_CORRUPT, "%s (%s) was damaged already when it was sent",
                               file->object, file->name);
        }
    }
    for (size_t i = candidate->first; i < candidate->log->segment_count && status == FCAP_OK; i++) {
        const struct fcap_checkpoint_segment *segment = &candidate->log->segments[i];
        status = restore_look_at(restore, segment->object, segment->size, error);
    }
    return status;
}

static void remember(struct restore *restore, const char *object, enum fcap_status status)
{
    if (status == FCAP_OK) {
        object_list_add(&restore->good, object, 0);
        object_list_sort(&restore->good);
    }
    if (status == FCAP_CORRUPT) {
        object_list_add(&restore->bad, object, 0);
        object_list_sort(&restore->bad);
    }
}

static enum fcap_status read_segments(struct restore *restore, const struct candidate *candidate,
                                      struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    for (size_t i = candidate->first; i < candidate->log->segment_count && status == FCAP_OK; i++) {
        const struct fcap_checkpoint_segment *segment = &candidate->log->segments[i];
        if (object_list_find(&restore->good, segment->object) == NULL) {
            status =
                restore_read_segment(restore, segment, &candidate->log->lineage, NULL, NULL, error);
            remember(restore, segment->object, status);
        }
    }
    return status;
}

static void describe(const struct candidate *candidate, struct fcap_restore_report *report)
{
    const struct fcap_checkpoint *log = candidate->log;
    *report = (struct fcap_restore_report){
        .number = log->number,
        .sequence = log->sequence,
        .snapshot_sequence = candidate->snapshot->snapshot_sequence,
        .written_ms = log->written_ms,
        .files = candidate->snapshot->file_count,
        .segments = log->segment_count - candidate->first,
        .batches = log->sequence - candidate->snapshot->snapshot_sequence,
        .partition_count = log->partition_count,
    };
    for (size_t i = 0; i < candidate->snapshot->file_count; i++) {
        report->file_bytes += candidate->snapshot->files[i].size;
    }
    for (size_t i = candidate->first; i < log->segment_count; i++) {
        report->segment_bytes += log->segments[i].size;
    }
}

/* CORRUPT: the candidate is damaged. */
static enum fcap_status try_one(struct restore *restore, const struct candidate *candidate,
                                struct fcap_restore_report *report, struct fcap_error *error)
{
    const bool is_real = restore->settings->place != NULL;
    describe(candidate, report);
    enum fcap_status status = look(restore, candidate, error);
    if (status != FCAP_OK) {
        return status;
    }
    restore->bytes = 0;
    restore->bytes_all = report->file_bytes + report->segment_bytes * (is_real ? 2 : 1);
    status = read_segments(restore, candidate, error); /* Before files, which are far more. */
    if (status == FCAP_OK && is_real && restore->lock < 0) {
        restore->release(restore->context);
        status = restore_take_place(restore, error);
    }
    if (status == FCAP_OK) {
        status = is_real ? restore_make(restore, candidate, report, error)
                         : restore_copy_files(restore, candidate->snapshot, NULL, error);
    }
    return status;
}

/* One checkpoint: by what is open already, from its own snapshot, else from older ones with a
 * longer changelog. */
static enum fcap_status try_checkpoint(struct restore *restore, size_t index,
                                       struct fcap_restore_report *report, struct fcap_error *error)
{
    const struct fcap_checkpoint *checkpoints = restore->checkpoints;
    uint64_t tried = UINT64_MAX; /* the snapshot that was tried last */
    if (restore->forward != NULL) {
        enum fcap_status status =
            restore->forward(restore->context, restore, &checkpoints[index], report, error);
        if (status != FCAP_CORRUPT) {
            return status;
        }
    }
    for (size_t i = index; i < restore->checkpoint_count; i++) {
        struct candidate candidate = {.snapshot = &checkpoints[i], .log = &checkpoints[index]};
        if (!fcap_checkpoint_continues(candidate.log, candidate.snapshot, &candidate.first) ||
            checkpoints[i].snapshot_sequence == tried) {
            continue;
        }
        tried = checkpoints[i].snapshot_sequence;
        enum fcap_status status = try_one(restore, &candidate, report, error);
        if (status != FCAP_CORRUPT) {
            return status;
        }
        tell(restore, &candidate, error);
    }
    return FCAP_CORRUPT;
}

/* The newest that is whole, of what is listed. REFUSED: none is. */
static enum fcap_status try_all(struct restore *restore, struct fcap_restore_report *report,
                                struct fcap_error *error)
{
    const struct fcap_restore_settings *settings = restore->settings;
    for (size_t i = 0; i < restore->checkpoint_count; i++) {
        if (restore->wants != NULL && !restore->wants(restore->context, &restore->checkpoints[i])) {
            continue;
        }
        enum fcap_status status = try_checkpoint(restore, i, report, error);
        if (status != FCAP_CORRUPT) {
            return status;
        }
    }
    struct fcap_error last =
        restore->not_taken > 0 && error != NULL ? *error : (struct fcap_error){""};
    return fcap_error_set(error, FCAP_REFUSED,
                          "there is no %scheckpoint of profile %s, instance %s%s%s",
                          restore->not_taken > 0 ? "whole " : "", settings->profile,
                          settings->instance, last.text[0] != '\0' ? ": " : "", last.text);
}

enum fcap_status restore_run(struct restore *restore, struct fcap_restore_report *report,
                             struct fcap_error *error)
{
    uint64_t newest = 0;
    uint64_t before = 0;
    bool is_taken = restore->settings->place != NULL && !restore->is_late;
    enum fcap_status status = is_taken ? restore_take_place(restore, error) : FCAP_OK;
    if (status == FCAP_OK) {
        status = restore_list(restore, &newest, error);
    }
    if (status == FCAP_OK) {
        status = try_all(restore, report, error);
    }
    /* Somebody who still writes there may have cut what was to be read: then there is a newer one.
     */
    for (bool is_newer = true; status == FCAP_REFUSED && is_newer;) {
        before = newest;
        status = restore_list(restore, &newest, error);
        is_newer = status == FCAP_OK && newest > before;
        status = status == FCAP_OK ? try_all(restore, report, error) : status;
    }
    if (status == FCAP_REFUSED && restore->lock >= 0) {
        /* A state may begin here now: nothing of an interrupted restore must stay beside it. */
        struct fcap_error why = {""};
        enum fcap_status cleared = restore_clear(restore, &why);
        if (cleared != FCAP_OK) {
            status = fcap_error_set(error, cleared, "%s", why.text);
        }
    }
    restore_leave_place(restore);
    report->not_taken = restore->not_taken;
    return status;
}

void restore_done(struct restore *restore)
{
    restore_list_done(restore);
    object_list_done(&restore->good);
    object_list_done(&restore->bad);
}

enum fcap_status fcap_restore(const struct fcap_restore_settings *settings,
                              struct fcap_objects *objects, struct fcap_restore_report *ret_report,
                              struct fcap_error *error)
{
    struct restore restore = {.settings = settings, .objects = objects, .lock = -1};
    struct fcap_restore_report report = {0};
    struct fcap_error own = {""};
    FCAP_ASSERT((settings->place == NULL) == (settings->directory == NULL));
    enum fcap_status status = restore_run(&restore, &report, &own);
    restore_done(&restore);
    if (status != FCAP_OK) {
        return fcap_error_set(error, status, "%s", own.text);
    }
    *ret_report = report;
    return FCAP_OK;
}
