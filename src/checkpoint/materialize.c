/* The materialiser: snapshots, their files, and what is needed no more afterwards. */
#include "checkpointer_internal.h"

#include "fcap/point.h"

#include <string.h>

/* --- taking ---------------------------------------------------------------------------------- */

void checkpointer_drop_snapshot(struct fcap_checkpointer *checkpointer)
{
    if (checkpointer->has_snapshot_directory) {
        /* What cannot be removed is removed before the next one is taken. */
        struct fcap_error unused;
        (void)!fcap_checkpoint_remove_directory(checkpointer->snapshot_directory, &unused);
        checkpointer->has_snapshot_directory = false;
    }
}

/* Nothing can come of what was begun; another try follows. */
static void start_over(struct fcap_checkpointer *checkpointer, enum fcap_status status,
                       bool is_local, const struct fcap_error *error)
{
    checkpointer_drop_snapshot(checkpointer);
    (void)pthread_mutex_lock(&checkpointer->lock);
    /* What was sent and has left the state since would fill the place for good. */
    checkpointer->wants_cut =
        checkpointer->wants_cut || checkpointer->phase == CHECKPOINTER_SENDING;
    checkpointer->phase = CHECKPOINTER_IDLE;
    if (!checkpointer->is_pending) {
        fcap_checkpoint_done(&checkpointer->pending);
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    if (status != FCAP_STOPPED) { /* Else it is ending. */
        checkpointer_failed(checkpointer, &checkpointer->materialize, is_local, status, error);
    }
}

enum need {
    NEED_NOTHING,
    NEED_TO_WAIT, /* the shipper has to close the run that ended with a hole */
    NEED_A_PAUSE, /* it would be the second one in a short time */
    NEED_SNAPSHOT,
};

static enum need look(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    enum need need = NEED_NOTHING;
    (void)pthread_mutex_lock(&checkpointer->lock);
    const struct checkpointer_generation *newest = checkpointer_newest(checkpointer);
    if (!checkpointer->is_begun || checkpointer->has_given_up) {
        need = NEED_TO_WAIT;
    } else if (!checkpointer_is_joined(checkpointer)) {
        bool may_begin = checkpointer->is_alive || checkpointer_is_closed(checkpointer);
        need = !may_begin                            ? NEED_TO_WAIT
               : now_ms < checkpointer->rested_at_ms ? NEED_A_PAUSE
                                                     : NEED_SNAPSHOT;
    } else if (checkpointer->wants_fresh) {
        need = now_ms < checkpointer->rested_at_ms ? NEED_A_PAUSE : NEED_SNAPSHOT;
    } else if (now_ms >= checkpointer->snapshot_due_ms) {
        need = NEED_SNAPSHOT;
        if (newest->newest.snapshot_sequence == checkpointer->last_told) {
            need = NEED_NOTHING; /* Nothing has changed since. */
            checkpointer->snapshot_ms = now_ms;
            checkpointer->snapshot_due_ms =
                now_ms + checkpointer->settings.materialization_interval_ms;
        }
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return need;
}

/* The snapshot's manifest, but for its files. With the lock held. */
static void describe(struct fcap_checkpointer *checkpointer, uint64_t sequence)
{
    struct fcap_checkpoint *pending = &checkpointer->pending;
    struct fcap_clock *clock = checkpointer->settings.clock;
    pending->sequence = sequence;
    pending->lineage = checkpointer->start.lineage;
    pending->snapshot_sequence = sequence;
    pending->snapshot_ms = clock->wall_ms(clock);
    (void)snprintf(pending->profile, sizeof pending->profile, "%s",
                   checkpointer->settings.profile); /* Their lengths are checked. */
    (void)snprintf(pending->instance, sizeof pending->instance, "%s",
                   checkpointer->settings.instance);
}

/* STOPPED: it is ending. BUSY: a hole came since it was decided, and its run is not closed yet. */
static enum fcap_status begin_taking(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    enum fcap_status status = FCAP_OK;
    (void)pthread_mutex_lock(&checkpointer->lock);
    if (checkpointer->stopping || checkpointer->has_given_up) {
        status = FCAP_STOPPED;
    } else if (!checkpointer->is_alive && !checkpointer_is_closed(checkpointer)) {
        status = FCAP_BUSY;
    } else {
        if (!checkpointer->is_alive) {
            checkpointer_revive(checkpointer);
        }
        checkpointer->in_snapshot = true;
        checkpointer->snapshot_taken_ms = now_ms;
        checkpointer_record(checkpointer, &checkpointer->pending);
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return status;
}

/* Takes the snapshot. What batches say about partitions meanwhile is recorded, so that it can be
 * told what these are like at its last batch, whatever becomes of the batches. */
static enum fcap_status take(struct fcap_checkpointer *checkpointer, struct fcap_error *error)
{
    uint64_t sequence = 0;
    enum fcap_status status = begin_taking(checkpointer, checkpointer_now_ms(checkpointer));
    if (status != FCAP_OK) {
        return status;
    }
    status = fcap_checkpoint_state_snapshot(checkpointer->state, "snapshot",
                                            checkpointer->snapshot_directory, &sequence, error);
    FCAP_POINT(checkpoint_snapshot);
    checkpointer->has_snapshot_directory = status == FCAP_OK;
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer_end_record(checkpointer, sequence, &checkpointer->pending);
    describe(checkpointer, sequence);
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return status;
}

/* The store is needed no more. */
static void leave_store(struct fcap_checkpointer *checkpointer)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->in_snapshot = false;
    (void)pthread_cond_broadcast(&checkpointer->thread_ended); /* stop() may wait for it. */
    (void)pthread_mutex_unlock(&checkpointer->lock);
}

/* --- sending --------------------------------------------------------------------------------- */

/* Only these never change and never come again under their name. */
static bool may_be_kept(const char *name)
{
    const char *end = strrchr(name, '.');
    return end != NULL && (strcmp(end, ".sst") == 0 || strcmp(end, ".blob") == 0);
}

/* What was sent and is not in the state any more is needed no more. */
static void forget_sent(struct fcap_checkpointer *checkpointer)
{
    struct fcap_checkpoint *sent = &checkpointer->sent;
    size_t left = 0;
    for (size_t i = 0; i < sent->file_count; i++) {
        if (transfer_find(&checkpointer->transfer, sent->files[i].name) != NULL) {
            sent->files[left++] = sent->files[i];
        }
    }
    sent->file_count = left;
}

static enum fcap_status plan(struct fcap_checkpointer *checkpointer,
                             const struct object_list *listed, struct fcap_error *error)
{
    struct transfer *transfer = &checkpointer->transfer;
    struct checkpointer_kept all;
    transfer_clear(transfer, checkpointer->snapshot_directory);
    enum fcap_status status = transfer_read_directory(transfer, error);
    if (status != FCAP_OK) {
        return status;
    }
    forget_sent(checkpointer);
    /* Thousands of files, so without the lock: the follower would wait for it. */
    checkpointer_scrub_listed(checkpointer, listed);
    checkpointer_kept_open(checkpointer, listed, &all);
    (void)pthread_mutex_lock(&checkpointer->lock);
    uint64_t unique = checkpointer->unique;
    checkpointer->unique += transfer->job_count;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    for (size_t i = 0; i < transfer->job_count; i++) {
        struct transfer_job *job = &transfer->jobs[i];
        bool is_origin = false;
        const struct fcap_checkpoint_file *kept =
            may_be_kept(job->file.name)
                ? checkpointer_kept_find(&all, job->file.name, job->file.size, &is_origin)
                : NULL;
        if (kept != NULL && !is_origin) {
            job->file = *kept;
            job->is_kept = true;
            continue;
        }
        job->has_twin = kept != NULL;
        job->twin = kept != NULL ? *kept : (struct fcap_checkpoint_file){0};
        (void)fcap_checkpoint_file_name(checkpointer->prefix, job->file.name,
                                        &checkpointer->start.lineage, unique + i,
                                        job->file.object); /* Gives its argument. */
    }
    checkpointer_kept_close(&all);
    (void)pthread_mutex_lock(&checkpointer->lock);
    transfer_begin(transfer);
    checkpointer->phase = CHECKPOINTER_SENDING;
    checkpointer->sending_serial++;
    (void)pthread_cond_broadcast(&checkpointer->wake_transfer);
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return FCAP_OK;
}

static void begin_snapshot(struct fcap_checkpointer *checkpointer)
{
    struct object_list listed = {0};
    struct fcap_error error = {""};
    /* First of all: is the place there? A snapshot flushes, and is for nothing otherwise. */
    enum fcap_status status =
        object_list_fill(&listed, checkpointer->objects, checkpointer->prefix, &error);
    bool is_local = status == FCAP_OK;
    if (status == FCAP_OK) {
        status = take(checkpointer, &error);
    }
    if (status == FCAP_OK) {
        status = plan(checkpointer, &listed, &error);
    }
    leave_store(checkpointer);
    object_list_done(&listed);
    if (status != FCAP_OK && status != FCAP_BUSY) {
        start_over(checkpointer, status, is_local, &error);
    }
}

/* Everything is sent, or it failed. */
static void end_sending(struct fcap_checkpointer *checkpointer)
{
    struct transfer *transfer = &checkpointer->transfer;
    FCAP_POINT(checkpoint_files_sent);
    for (size_t i = 0; i < transfer->job_count; i++) {
        struct transfer_job *job = &transfer->jobs[i];
        if (job->is_done && !job->is_kept && may_be_kept(job->file.name)) {
            fcap_checkpoint_add_file(&checkpointer->sent, &job->file);
        }
    }
    (void)pthread_mutex_lock(&checkpointer->lock);
    struct fcap_checkpoint_metrics *metrics = &checkpointer->metrics;
    metrics->files_sent += transfer->files_sent;
    metrics->snapshot_bytes_total += transfer->bytes_sent;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    (void)pthread_mutex_lock(&transfer->lock); /* A stop may cancel it now. */
    const enum fcap_status status = transfer->status;
    (void)pthread_mutex_unlock(&transfer->lock);
    if (status != FCAP_OK) {
        start_over(checkpointer, status, transfer->is_local, &transfer->error);
        return;
    }
    checkpointer_drop_snapshot(checkpointer);
    for (size_t i = 0; i < transfer->job_count; i++) { /* Nobody looks at it yet. */
        fcap_checkpoint_add_file(&checkpointer->pending, &transfer->jobs[i].file);
    }
    (void)pthread_mutex_lock(&checkpointer->lock);
    metrics->files_kept += transfer->job_count - transfer->files_sent;
    checkpointer->snapshot_bytes = transfer->bytes_sent;
    checkpointer->is_pending = true;
    checkpointer->phase = CHECKPOINTER_SWITCHING;
    checkpointer_wake_ship(checkpointer);
    (void)pthread_mutex_unlock(&checkpointer->lock);
}

static int64_t send(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    struct transfer *transfer = &checkpointer->transfer;
    int64_t due_ms = INT64_MAX;
    for (size_t i = 0; i < checkpointer->settings.transfer_threads && !checkpointer->has_threads;
         i++) {
        int64_t next_ms = transfer_step(transfer, &checkpointer->senders[i], now_ms);
        due_ms = next_ms < due_ms ? next_ms : due_ms;
    }
    if (transfer_is_over(transfer)) {
        end_sending(checkpointer);
        return now_ms;
    }
    return due_ms; /* With threads: they wake when it is over. */
}

/* --- after the switch ------------------------------------------------------------------------ */

static int64_t await_switch(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    bool is_done = !checkpointer->is_pending;
    if (is_done) {
        struct fcap_checkpoint_metrics *metrics = &checkpointer->metrics;
        int64_t taken_ms = checkpointer->snapshot_taken_ms;
        metrics->snapshots++;
        metrics->snapshot_duration_ms = (uint64_t)(now_ms - taken_ms);
        metrics->snapshot_bytes = checkpointer->snapshot_bytes;
        checkpointer->phase = CHECKPOINTER_CUTTING;
        checkpointer->wants_cut = true;
        checkpointer->snapshot_due_ms =
            taken_ms + checkpointer->settings.materialization_interval_ms;
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    if (!is_done) {
        return INT64_MAX; /* The shipper wakes. */
    }
    fcap_checkpoint_done(&checkpointer->sent); /* The manifest names them, or nobody. */
    checkpointer->wants_fresh = false;
    checkpointer->rested_at_ms = now_ms + checkpointer->settings.min_pause_ms;
    checkpointer_succeeded(checkpointer, &checkpointer->materialize);
    return now_ms;
}

/* A step of a cut: finds out what goes, or removes one object. One that fails comes again. */
static int64_t cut(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    struct fcap_objects *objects = checkpointer->objects;
    struct object_list *doomed = &checkpointer->doomed;
    struct fcap_error error = {""};
    enum fcap_status status = FCAP_OK;
    bool removed = false;
    if (!checkpointer->has_list) {
        status = checkpointer_cut_list(checkpointer, &error);
        checkpointer->has_list = status == FCAP_OK;
        checkpointer->doomed_next = 0;
    } else if (checkpointer->doomed_next < doomed->count) {
        const char *name = doomed->entries[checkpointer->doomed_next].name;
        status = objects->ops->remove(objects, name, &error);
        FCAP_POINT(checkpoint_cut);
        removed = status == FCAP_OK;
        checkpointer->doomed_next += removed;
    }
    bool is_over = status == FCAP_OK && checkpointer->doomed_next == doomed->count;
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->metrics.objects_removed += removed;
    if (is_over || status != FCAP_OK) {
        checkpointer->phase = CHECKPOINTER_IDLE;
        checkpointer->wants_cut = !is_over;
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    if (status != FCAP_OK) {
        checkpointer->has_list = false;
        checkpointer_failed(checkpointer, &checkpointer->cut, false, status, &error);
    } else if (is_over) {
        checkpointer->has_list = false;
        checkpointer_succeeded(checkpointer, &checkpointer->cut);
    }
    return now_ms;
}

/* Does a cut come now? It makes room, so it comes before a snapshot; but a place in which nothing
 * can be removed is used all the same. Else *ret_due_ms tells when; INT64_MAX: when somebody wants
 * it. */
static bool begins_cut(struct fcap_checkpointer *checkpointer, int64_t now_ms, int64_t *ret_due_ms)
{
    *ret_due_ms = INT64_MAX;
    (void)pthread_mutex_lock(&checkpointer->lock);
    bool is_wanted = checkpointer->wants_cut && checkpointer->is_begun &&
                     !checkpointer->has_given_up && checkpointer_may_cut(checkpointer);
    bool begins = is_wanted && now_ms >= checkpointer->cut.retry_at_ms;
    if (begins) {
        checkpointer->phase = CHECKPOINTER_CUTTING;
    } else if (is_wanted) {
        *ret_due_ms = checkpointer->cut.retry_at_ms;
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return begins;
}

static int64_t idle(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    int64_t cut_due_ms;
    enum need need = look(checkpointer, now_ms);
    if (begins_cut(checkpointer, now_ms, &cut_due_ms)) {
        return now_ms;
    }
    if (need == NEED_SNAPSHOT) {
        begin_snapshot(checkpointer);
        return now_ms;
    }
    int64_t due_ms = need == NEED_TO_WAIT   ? INT64_MAX
                     : need == NEED_A_PAUSE ? checkpointer->rested_at_ms
                                            : checkpointer->snapshot_due_ms;
    int64_t scrub_ms = need == NEED_NOTHING ? checkpointer_scrub(checkpointer, now_ms) : INT64_MAX;
    due_ms = cut_due_ms < due_ms ? cut_due_ms : due_ms;
    return scrub_ms < due_ms ? scrub_ms : due_ms;
}

int64_t checkpointer_materialize(struct fcap_checkpointer *checkpointer)
{
    int64_t now_ms = checkpointer_now_ms(checkpointer);
    if (now_ms < checkpointer->materialize.retry_at_ms) {
        return checkpointer->materialize.retry_at_ms;
    }
    switch (checkpointer->phase) {
    case CHECKPOINTER_IDLE:
        return idle(checkpointer, now_ms);
    case CHECKPOINTER_SENDING:
        return send(checkpointer, now_ms);
    case CHECKPOINTER_SWITCHING:
        return await_switch(checkpointer, now_ms);
    case CHECKPOINTER_CUTTING:
        return cut(checkpointer, now_ms);
    }
    return INT64_MAX;
}
