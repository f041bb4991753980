/* The shipper: batches into segments, segments and snapshots into manifests. */
#include "checkpointer_internal.h"

#include "fcap/point.h"

#include <inttypes.h>

#define STOP_PAUSE_MS 200 /* between the tries of a last checkpoint */

/* --- segments -------------------------------------------------------------------------------- */

static void drop_writer(struct fcap_checkpointer *checkpointer)
{
    struct fcap_objects *objects = checkpointer->objects;
    objects->ops->abandon(objects, checkpointer->writer);
    checkpointer->writer = NULL;
    (void)fcap_checkpoint_hash_end(&checkpointer->hash); /* Frees it. */
}

void checkpointer_abandon_segment(struct fcap_checkpointer *checkpointer)
{
    drop_writer(checkpointer);
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->segment = (struct fcap_checkpoint_segment){0};
    checkpointer_wake_materialize(checkpointer); /* It may wait for that. */
    (void)pthread_mutex_unlock(&checkpointer->lock);
}

static enum fcap_status write_bytes(struct fcap_checkpointer *checkpointer, struct fcap_bytes bytes,
                                    struct fcap_error *error)
{
    struct fcap_objects *objects = checkpointer->objects;
    enum fcap_status status = objects->ops->write(objects, checkpointer->writer, bytes, error);
    if (status == FCAP_OK) {
        fcap_checkpoint_hash_add(&checkpointer->hash, bytes);
        checkpointer->bytes_shipped += bytes.size;
        (void)pthread_mutex_lock(&checkpointer->lock);
        checkpointer->segment.size += bytes.size;
        (void)pthread_mutex_unlock(&checkpointer->lock);
    }
    return status;
}

/* The segment's name is set already. */
static enum fcap_status open_segment(struct fcap_checkpointer *checkpointer,
                                     struct fcap_error *error)
{
    struct fcap_objects *objects = checkpointer->objects;
    struct fcap_buffer head = {0};
    const struct fcap_changelog_head what = {checkpointer->start.lineage,
                                             checkpointer->segment.first};
    enum fcap_status status =
        objects->ops->begin(objects, checkpointer->segment.object, &checkpointer->writer, error);
    if (status == FCAP_OK) {
        fcap_changelog_put_head(&head, &what);
        status = write_bytes(checkpointer, fcap_buffer_bytes(&head), error);
    }
    fcap_buffer_done(&head);
    return status;
}

/* What was shipped of the open segment is lost: a hole. */
static void lose_segment(struct fcap_checkpointer *checkpointer, enum fcap_status status,
                         const struct fcap_error *error)
{
    if (checkpointer_is_final(status)) {
        checkpointer_give_up(checkpointer, error);
        return;
    }
    drop_writer(checkpointer);
    /* All at once: whoever sees the segment gone must see the run closed, not half of it. */
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer_break(checkpointer);
    checkpointer_drop_queue(checkpointer);
    checkpointer->segment = (struct fcap_checkpoint_segment){0};
    checkpointer_wake_materialize(checkpointer); /* It may wait for that. */
    (void)pthread_mutex_unlock(&checkpointer->lock);
    checkpointer_failed(checkpointer, &checkpointer->ship, false, status, error);
}

/* Takes the next batch from the queue; it belongs to the open segment from then on. */
static struct checkpointer_frame *take_frame(struct fcap_checkpointer *checkpointer)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    struct checkpointer_frame *frame = checkpointer_take(checkpointer);
    if (frame != NULL) {
        checkpointer_apply(&checkpointer->shipped, frame);
        struct fcap_checkpoint_segment *segment = &checkpointer->segment;
        if (segment->first == 0) {
            segment->first = frame->sequence;
            (void)fcap_checkpoint_segment_name(checkpointer->prefix, frame->sequence,
                                               &checkpointer->start.lineage, checkpointer->unique++,
                                               segment->object); /* Gives its argument. */
        }
        segment->last = frame->sequence;
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return frame;
}

/* Ships one batch. Gives false when there is none, or it failed. */
static bool ship_frame(struct fcap_checkpointer *checkpointer)
{
    struct fcap_error error = {""};
    struct checkpointer_frame *frame = take_frame(checkpointer);
    if (frame == NULL) {
        return false;
    }
    enum fcap_status status = FCAP_OK;
    if (checkpointer->writer == NULL) {
        status = open_segment(checkpointer, &error);
    }
    if (status == FCAP_OK) {
        status = write_bytes(checkpointer, fcap_buffer_bytes(&frame->bytes), &error);
        FCAP_POINT(checkpoint_frame);
    }
    checkpointer_frame_free(frame);
    if (status != FCAP_OK) {
        lose_segment(checkpointer, status, &error);
        return false;
    }
    checkpointer_succeeded(checkpointer, &checkpointer->ship);
    return true;
}

/* The open segment becomes part of the tip. */
static bool finish_segment(struct fcap_checkpointer *checkpointer)
{
    struct fcap_error error = {""};
    struct fcap_objects *objects = checkpointer->objects;
    struct fcap_object_writer *writer = checkpointer->writer;
    if (writer == NULL) {
        return true;
    }
    checkpointer->writer = NULL;
    FCAP_POINT(checkpoint_segment);
    enum fcap_status status = objects->ops->finish(objects, writer, &error);
    if (status != FCAP_OK) {
        lose_segment(checkpointer, status, &error);
        return false;
    }
    uint64_t hash = fcap_checkpoint_hash_end(&checkpointer->hash);
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->segment.hash = hash;
    struct fcap_checkpoint *tip = &checkpointer->tip;
    fcap_checkpoint_add_segment(tip, &checkpointer->segment);
    tip->sequence = checkpointer->segment.last;
    tip->written_ms = checkpointer->shipped.written_ms;
    checkpointer_copy_partitions(tip, &checkpointer->shipped);
    checkpointer->segment = (struct fcap_checkpoint_segment){0};
    checkpointer_wake_materialize(checkpointer); /* It may wait for that. */
    (void)pthread_mutex_unlock(&checkpointer->lock);
    FCAP_POINT(checkpoint_segment_finished);
    return true;
}

/* --- manifests ------------------------------------------------------------------------------- */

static enum fcap_status write_manifest(struct fcap_checkpointer *checkpointer,
                                       const struct fcap_checkpoint *checkpoint,
                                       struct fcap_error *error)
{
    struct fcap_objects *objects = checkpointer->objects;
    struct fcap_object_writer *writer = NULL;
    struct fcap_buffer bytes = {0};
    char name[FCAP_OBJECT_NAME_MAX + 1];
    (void)fcap_checkpoint_manifest_name(checkpointer->prefix, checkpoint->number, name);
    fcap_checkpoint_encode(checkpoint, &bytes);
    enum fcap_status status =
        bytes.size <= OBJECT_MANIFEST_MAX /* Nobody would read it. */
            ? objects->ops->begin(objects, name, &writer, error)
            : fcap_error_set(error, FCAP_LIMIT, "%s: it would be larger than %zu bytes", name,
                             OBJECT_MANIFEST_MAX);
    if (status == FCAP_OK) {
        status = objects->ops->write(objects, writer, fcap_buffer_bytes(&bytes), error);
        if (status == FCAP_OK) {
            FCAP_POINT(checkpoint_manifest);
            status = objects->ops->finish(objects, writer, error);
            FCAP_POINT(checkpoint_manifest_made);
        } else {
            objects->ops->abandon(objects, writer);
        }
    }
    checkpointer->bytes_shipped += bytes.size;
    fcap_buffer_done(&bytes);
    if (status == FCAP_LOCKED) {
        fcap_error_prefix(error, "another writer is at work");
    }
    return status;
}

static void complete(struct fcap_checkpointer *checkpointer, struct fcap_checkpoint *checkpoint,
                     bool has_snapshot)
{
    int64_t now_ms = checkpointer_now_ms(checkpointer);
    (void)pthread_mutex_lock(&checkpointer->lock);
    struct fcap_checkpoint_metrics *metrics = &checkpointer->metrics;
    metrics->checkpoints++;
    metrics->number = checkpoint->number;
    metrics->duration_ms = (uint64_t)(now_ms - checkpointer->started_ms);
    metrics->bytes = checkpointer->bytes_shipped;
    metrics->bytes_total += checkpointer->bytes_shipped;
    if (checkpoint->sequence >= checkpointer->limit) {
        checkpointer->complete_ms = checkpointer->started_ms;
    } else if (has_snapshot && checkpointer->complete_ms < checkpointer->snapshot_taken_ms) {
        checkpointer->complete_ms = checkpointer->snapshot_taken_ms;
    }
    if (has_snapshot) {
        checkpointer->snapshot_ms = checkpointer->snapshot_taken_ms;
        checkpointer_drop_composed(&checkpointer->pending); /* Its files go to the generation. */
        checkpointer->is_pending = false;
        checkpointer_wake_materialize(checkpointer);
    }
    checkpointer->trying = NULL;
    checkpointer_add(checkpointer, checkpoint);
    (void)pthread_mutex_unlock(&checkpointer->lock);
    checkpointer->bytes_shipped = 0;
}

/* Makes the manifest that can be made. Gives false when that failed. */
static bool make_manifest(struct fcap_checkpointer *checkpointer)
{
    struct fcap_checkpoint checkpoint = {0};
    struct fcap_error error = {""};
    struct fcap_clock *clock = checkpointer->settings.clock;
    (void)pthread_mutex_lock(&checkpointer->lock);
    bool is_new = checkpointer_compose(checkpointer, &checkpoint);
    const struct checkpointer_generation *newest = checkpointer_newest(checkpointer);
    bool has_snapshot = is_new && checkpointer_is_pending(checkpointer);
    if (!is_new && checkpointer_is_joined(checkpointer) &&
        newest->newest.sequence >= checkpointer->limit) {
        checkpointer->complete_ms = checkpointer->started_ms; /* Nothing has changed since. */
    }
    if (is_new) {
        checkpoint.number = checkpointer->number_next++; /* A failed one may be there after all. */
        checkpoint.made_ms = clock->wall_ms(clock);
        checkpointer->trying = &checkpoint;
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    if (!is_new) {
        return true;
    }
    enum fcap_status status = write_manifest(checkpointer, &checkpoint, &error);
    if (status == FCAP_OK) {
        complete(checkpointer, &checkpoint, has_snapshot);
        checkpointer_succeeded(checkpointer, &checkpointer->ship);
        return true;
    }
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->trying = NULL;
    if (status == FCAP_LIMIT) {
        checkpointer_break(checkpointer); /* Only a snapshot makes it smaller. */
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    checkpointer_drop_composed(&checkpoint);
    if (checkpointer_is_final(status)) {
        checkpointer_give_up(checkpointer, &error);
        return false;
    }
    checkpointer_failed(checkpointer, &checkpointer->ship, false, status, &error);
    return false;
}

/* --- steps ----------------------------------------------------------------------------------- */

static void look_at_what_is_kept(struct fcap_checkpointer *checkpointer)
{
    struct fcap_error error = {""};
    enum fcap_status status = checkpointer_begin(checkpointer, &error);
    if (status == FCAP_OK) {
        checkpointer_succeeded(checkpointer, &checkpointer->ship);
    } else if (checkpointer_is_final_at_begin(checkpointer, status)) {
        checkpointer_give_up(checkpointer, &error);
    } else {
        checkpointer_failed(checkpointer, &checkpointer->ship, false, status, &error);
    }
}

/* Is it time for a checkpoint, or is there another reason for one? */
static bool is_due(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    bool is_closing = !checkpointer->is_alive && checkpointer->queue_first == NULL &&
                      checkpointer->segment.first > 0;
    bool is_due = checkpointer->stopping || checkpointer->is_pending || is_closing;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return is_due || now_ms >= checkpointer->due_ms;
}

static void begin_checkpoint(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->limit = checkpointer->last_told;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    checkpointer->is_making = true;
    checkpointer->started_ms = now_ms;
}

/* True when the batches that belong into this checkpoint have been shipped, or are lost. */
static bool is_drained(struct fcap_checkpointer *checkpointer)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    bool is_drained = checkpointer->queue_first == NULL ||
                      checkpointer->queue_first->sequence > checkpointer->limit;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    return is_drained;
}

static void set_due(struct fcap_checkpointer *checkpointer, int64_t started_ms, int64_t now_ms)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    const size_t segments = checkpointer->tip.segment_count;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    const int64_t least_ms = (int64_t)segments * CHECKPOINTER_SEGMENT_PAUSE_MS;
    const int64_t interval_ms = checkpointer->settings.interval_ms;
    checkpointer->due_ms = started_ms + (interval_ms > least_ms ? interval_ms : least_ms);
    if (checkpointer->due_ms < now_ms + checkpointer->settings.min_pause_ms) {
        checkpointer->due_ms = now_ms + checkpointer->settings.min_pause_ms;
    }
}

static void end_checkpoint(struct fcap_checkpointer *checkpointer)
{
    checkpointer->is_making = false;
    int64_t started_ms = checkpointer->started_ms;
    bool is_made = finish_segment(checkpointer) && make_manifest(checkpointer);
    int64_t now_ms = checkpointer_now_ms(checkpointer);
    if (checkpointer->is_stopping) {
        bool is_late = !checkpointer->has_threads || now_ms >= checkpointer->stop_deadline_ms;
        checkpointer->is_final_done = is_made || is_late;
    }
    if (is_made) {
        set_due(checkpointer, started_ms, now_ms);
    }
}

static void look_at_stop(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    const bool was_stopping = checkpointer->is_stopping;
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->is_stopping = checkpointer->stopping;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    if (checkpointer->is_stopping && !was_stopping) {
        checkpointer->is_making = false; /* One that began before does not cover the last batch. */
    }
    if (checkpointer->is_stopping && checkpointer->ship.retry_at_ms > now_ms + STOP_PAUSE_MS) {
        checkpointer->ship.retry_at_ms = now_ms + STOP_PAUSE_MS;
    }
    if (checkpointer->is_stopping && !checkpointer->is_begun) {
        checkpointer->is_final_done = true; /* Nobody can say what is kept. */
    }
}

int64_t checkpointer_ship(struct fcap_checkpointer *checkpointer)
{
    int64_t now_ms = checkpointer_now_ms(checkpointer);
    look_at_stop(checkpointer, now_ms);
    checkpointer->is_final_done = checkpointer->is_final_done || checkpointer->has_given_up;
    if (checkpointer->is_final_done) {
        return INT64_MAX;
    }
    if (now_ms < checkpointer->ship.retry_at_ms) {
        return checkpointer->ship.retry_at_ms;
    }
    if (!checkpointer->is_begun) {
        look_at_what_is_kept(checkpointer);
        return now_ms;
    }
    if (!checkpointer->is_making && is_due(checkpointer, now_ms)) {
        begin_checkpoint(checkpointer, now_ms);
    }
    if (checkpointer->is_making && is_drained(checkpointer)) {
        end_checkpoint(checkpointer);
        return now_ms;
    }
    /* Nothing to ship: it is woken, or the next one comes due. After a failure: a pause. */
    return ship_frame(checkpointer)                  ? now_ms
           : checkpointer->ship.retry_at_ms > now_ms ? checkpointer->ship.retry_at_ms
                                                     : checkpointer->due_ms;
}
