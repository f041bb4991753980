#include "fcap/savepoint.h"

#include "transfer.h"

#include "fcap/point.h"
#include "fcap/restore.h"

#include <string.h>
#include <time.h>

struct savepoint {
    const struct fcap_savepoint_settings *settings;
    struct fcap_objects *objects;
    struct fcap_checkpoint checkpoint;
    char directory[4096]; /* of the snapshot */
    uint64_t bytes;       /* of its files */
    bool has_manifest;
};

static bool is_cancelled(const struct savepoint *savepoint)
{
    return savepoint->settings->is_cancelled != NULL &&
           savepoint->settings->is_cancelled(savepoint->settings->context);
}

static void tell_progress(const struct savepoint *savepoint, uint64_t bytes)
{
    if (savepoint->settings->progress != NULL) {
        savepoint->settings->progress(savepoint->settings->context, bytes, 2 * savepoint->bytes);
    }
}

/* What lies in a place. */
struct found {
    char name[FCAP_OBJECT_NAME_MAX + 1]; /* one of the objects; "": there is none */
    bool has_manifest;
};

static bool visit_object(void *context, const char *name, uint64_t size)
{
    struct found *found = context;
    size_t prefix_size;
    uint64_t number;
    (void)size;
    (void)snprintf(found->name, sizeof found->name, "%s", name); /* It fits. */
    found->has_manifest =
        found->has_manifest || fcap_checkpoint_is_manifest(name, &prefix_size, &number);
    return true;
}

static enum fcap_status check_empty(struct fcap_objects *objects, struct fcap_error *error)
{
    struct found found = {.has_manifest = false};
    enum fcap_status status = objects->ops->list(objects, "", visit_object, &found, error);
    if (status == FCAP_OK && found.name[0] != '\0') {
        status = fcap_error_set(error, FCAP_CONFIG, "the place is not empty (%s); %s", found.name,
                                found.has_manifest
                                    ? "name an empty directory"
                                    : "what a killed savepoint has left may be removed; else "
                                      "name an empty directory");
    }
    return status;
}

static void visit_partition(void *context, const struct fcap_checkpoint_partition *partition)
{
    fcap_checkpoint_set_partition(context, partition);
}

static enum fcap_status cancelled(struct fcap_error *error)
{
    return fcap_error_set(error, FCAP_STOPPED, "given up, because fcapd stops");
}

static enum fcap_status take_snapshot(struct savepoint *savepoint,
                                      struct fcap_checkpoint_state *state, struct fcap_error *error)
{
    const struct fcap_savepoint_settings *settings = savepoint->settings;
    struct fcap_checkpoint *checkpoint = &savepoint->checkpoint;
    struct fcap_store_position position;
    if (settings->hold != NULL && !settings->hold(settings->context, true)) {
        return cancelled(error);
    }
    enum fcap_status status = fcap_checkpoint_state_snapshot(
        state, "savepoint", savepoint->directory, &checkpoint->sequence, error);
    state->ops->position(state, &position);
    if (settings->hold != NULL) {
        (void)settings->hold(settings->context, false); /* It cannot refuse that. */
    }
    if (status != FCAP_OK) {
        savepoint->directory[0] = '\0';
        return status;
    }
    checkpoint->number = 1;
    checkpoint->lineage = position.lineage;
    checkpoint->snapshot_sequence = checkpoint->sequence;
    checkpoint->snapshot_ms = settings->clock->wall_ms(settings->clock);
    checkpoint->written_ms = checkpoint->snapshot_ms; /* Or shortly before. */
    checkpoint->made_ms = checkpoint->snapshot_ms;
    (void)snprintf(checkpoint->profile, sizeof checkpoint->profile, "%s", settings->profile);
    (void)snprintf(checkpoint->instance, sizeof checkpoint->instance, "%s", settings->instance);
    return state->ops->partitions_of(state, savepoint->directory, visit_partition, checkpoint,
                                     error);
}

static void wait_until(struct fcap_clock *clock, int64_t due_ms)
{
    int64_t wait_ms = due_ms - clock->monotonic_ms(clock);
    if (wait_ms > 0) {
        wait_ms = wait_ms < 200 ? wait_ms : 200; /* The rate limit waits; so does a cancel. */
        const struct timespec wait = {.tv_sec = wait_ms / 1000,
                                      .tv_nsec = wait_ms % 1000 * 1000000};
        (void)nanosleep(&wait, NULL); /* Shorter is fine. */
    }
}

/* Sends what transfer has been given. */
static enum fcap_status send_all(struct savepoint *savepoint, struct transfer *transfer,
                                 struct fcap_error *error)
{
    struct transfer_sender sender = {0};
    struct fcap_clock *clock = savepoint->settings->clock;
    uint64_t bytes = 0;
    while (!transfer_is_over(transfer)) {
        if (is_cancelled(savepoint)) {
            transfer_cancel(transfer);
        }
        int64_t due_ms = transfer_step(transfer, &sender, clock->monotonic_ms(clock));
        FCAP_POINT(savepoint_copying);
        uint64_t now = transfer->bytes_sent + sender.offset;
        if (now > bytes) {
            bytes = now;
            tell_progress(savepoint, bytes);
        }
        if (due_ms != INT64_MAX) {
            wait_until(clock, due_ms);
        }
    }
    transfer_sender_done(transfer, &sender);
    if (transfer->status == FCAP_STOPPED) {
        return cancelled(error);
    }
    return transfer->status == FCAP_OK
               ? FCAP_OK
               : fcap_error_set(error, transfer->status, "%s", transfer->error.text);
}

static enum fcap_status send_files(struct savepoint *savepoint, struct fcap_error *error)
{
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    const struct fcap_savepoint_settings *settings = savepoint->settings;
    struct transfer transfer;
    (void)fcap_checkpoint_prefix(settings->profile, settings->instance, prefix);
    transfer_init(&transfer, savepoint->objects, settings->rate_limit_bytes_per_second);
    transfer_clear(&transfer, savepoint->directory);
    enum fcap_status status = transfer_read_directory(&transfer, error);
    for (size_t i = 0; i < transfer.job_count && status == FCAP_OK; i++) {
        struct transfer_job *job = &transfer.jobs[i];
        savepoint->bytes += job->file.size;
        (void)fcap_checkpoint_file_name(prefix, job->file.name, &savepoint->checkpoint.lineage, i,
                                        job->file.object); /* Gives its argument. */
    }
    if (status == FCAP_OK) {
        transfer_begin(&transfer);
        status = send_all(savepoint, &transfer, error);
    }
    for (size_t i = 0; i < transfer.job_count; i++) { /* What was made is known, well or not. */
        fcap_checkpoint_add_file(&savepoint->checkpoint, &transfer.jobs[i].file);
    }
    transfer_done(&transfer);
    return status;
}

static enum fcap_status write_manifest(struct savepoint *savepoint, struct fcap_error *error)
{
    struct fcap_objects *objects = savepoint->objects;
    const struct fcap_checkpoint *checkpoint = &savepoint->checkpoint;
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    char name[FCAP_OBJECT_NAME_MAX + 1];
    struct fcap_object_writer *writer = NULL;
    struct fcap_buffer bytes = {0};
    (void)fcap_checkpoint_prefix(checkpoint->profile, checkpoint->instance, prefix);
    (void)fcap_checkpoint_manifest_name(prefix, checkpoint->number, name);
    fcap_checkpoint_encode(checkpoint, &bytes);
    enum fcap_status status = objects->ops->begin(objects, name, &writer, error);
    if (status == FCAP_OK) {
        savepoint->has_manifest = true; /* Or may have. */
        status = objects->ops->write(objects, writer, fcap_buffer_bytes(&bytes), error);
        if (status == FCAP_OK) {
            status = objects->ops->finish(objects, writer, error);
        } else {
            objects->ops->abandon(objects, writer);
        }
    }
    fcap_buffer_done(&bytes);
    FCAP_POINT(savepoint_made);
    return status;
}

/* --- reading back ---------------------------------------------------------------------------- */

static void read_progress(void *context, uint64_t bytes, uint64_t bytes_all)
{
    const struct savepoint *savepoint = context;
    (void)bytes_all;
    tell_progress(savepoint, savepoint->bytes + bytes);
}

static bool is_given_up(void *context)
{
    return is_cancelled(context);
}

static enum fcap_status read_back(struct savepoint *savepoint, struct fcap_error *error)
{
    const struct fcap_savepoint_settings *taking = savepoint->settings;
    const struct fcap_restore_settings settings = {.profile = taking->profile,
                                                   .instance = taking->instance,
                                                   .progress = read_progress,
                                                   .is_cancelled = is_given_up,
                                                   .context = savepoint,
                                                   .rate_limit_bytes_per_second =
                                                       taking->rate_limit_bytes_per_second,
                                                   .clock = taking->clock};
    struct fcap_restore_report report;
    enum fcap_status status = fcap_restore(&settings, savepoint->objects, &report, error);
    if (status == FCAP_STOPPED) {
        return cancelled(error);
    }
    if (status != FCAP_OK) {
        fcap_error_prefix(error, "read the savepoint back");
    }
    return status == FCAP_REFUSED ? FCAP_CORRUPT : status;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Takes away what was made, so that the place is free for the next try; the manifest first, for
 * without it nothing of the rest is taken for a savepoint. What cannot be removed stays. */
static void clear_up(const struct savepoint *savepoint)
{
    struct fcap_objects *objects = savepoint->objects;
    const struct fcap_checkpoint *checkpoint = &savepoint->checkpoint;
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    char name[FCAP_OBJECT_NAME_MAX + 1];
    enum fcap_status status = FCAP_OK;
    (void)fcap_checkpoint_prefix(savepoint->settings->profile, savepoint->settings->instance,
                                 prefix); /* Gives its argument; so does the next. */
    (void)fcap_checkpoint_manifest_name(prefix, 1, name);
    if (savepoint->has_manifest) {
        status = objects->ops->remove(objects, name, NULL);
    }
    for (size_t i = 0; i < checkpoint->file_count && status == FCAP_OK; i++) {
        if (checkpoint->files[i].object[0] != '\0') {
            status = objects->ops->remove(objects, checkpoint->files[i].object, NULL);
        }
    }
}

enum fcap_status fcap_savepoint_take(const struct fcap_savepoint_settings *settings,
                                     struct fcap_objects *objects,
                                     struct fcap_checkpoint_state *state,
                                     struct fcap_savepoint_report *ret_report,
                                     struct fcap_error *error)
{
    struct savepoint savepoint = {.settings = settings, .objects = objects};
    enum fcap_status status = check_empty(objects, error);
    if (status == FCAP_OK) {
        status = take_snapshot(&savepoint, state, error);
    }
    if (status == FCAP_OK) {
        status = send_files(&savepoint, error);
    }
    if (savepoint.directory[0] != '\0') {
        struct fcap_error unused;
        /* What cannot be removed is removed before the next one is taken. */
        (void)!fcap_checkpoint_remove_directory(savepoint.directory, &unused);
    }
    if (status == FCAP_OK) {
        status = write_manifest(&savepoint, error);
    }
    if (status == FCAP_OK) {
        status = read_back(&savepoint, error);
    }
    if (status != FCAP_OK && status != FCAP_LOCKED) { /* Else somebody else writes there, too. */
        clear_up(&savepoint);
    }
    if (status == FCAP_OK) {
        *ret_report = (struct fcap_savepoint_report){
            .sequence = savepoint.checkpoint.sequence,
            .files = savepoint.checkpoint.file_count,
            .bytes = savepoint.bytes,
            .partition_count = savepoint.checkpoint.partition_count,
        };
    }
    fcap_checkpoint_done(&savepoint.checkpoint);
    return status;
}
