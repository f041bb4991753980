/* The follower: from the store's writer to the shipper. */
#include "checkpointer_internal.h"

#include "fcap/key.h"
#include "fcap/meta.h"

#include <stdlib.h>
#include <string.h>

/* --- how far partitions are -------------------------------------------------------------------
 */

static void drop_partition(struct fcap_checkpoint *from, int32_t partition)
{
    for (size_t i = 0; i < from->partition_count; i++) {
        if (from->partitions[i].partition == partition) {
            memmove(&from->partitions[i], &from->partitions[i + 1],
                    (from->partition_count - i - 1) * sizeof from->partitions[0]);
            from->partition_count--;
            return;
        }
    }
}

static void apply(struct fcap_checkpoint *to, const struct checkpointer_change *changes,
                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (changes[i].is_removed) {
            drop_partition(to, changes[i].partition.partition);
        } else {
            fcap_checkpoint_set_partition(to, &changes[i].partition);
        }
    }
}

void checkpointer_apply(struct fcap_checkpoint *to, const struct checkpointer_frame *frame)
{
    apply(to, frame->changes, frame->change_count);
    to->sequence = frame->sequence;
    to->written_ms = frame->written_ms;
}

/* What one section says of its partition: the last word about its "task" record counts. */
static bool find_change(const struct fcap_batch *batch, const struct fcap_batch_section *section,
                        struct fcap_bytes key, struct checkpointer_change *ret_change)
{
    bool found = false;
    for (size_t i = 0; i < section->count; i++) {
        const struct fcap_batch_entry *entry = &batch->entries[section->first + i];
        if (entry->family != FCAP_FAMILY_META) {
            continue;
        }
        const struct fcap_bytes own = fcap_batch_key(batch, section->first + i);
        const struct fcap_bytes value = fcap_batch_value(batch, section->first + i);
        struct fcap_meta meta;
        if (entry->change == FCAP_CHANGE_DELETE_RANGE) {
            if (fcap_bytes_compare(own, key) > 0 || fcap_bytes_compare(key, value) >= 0) {
                continue;
            }
            *ret_change = (struct checkpointer_change){.is_removed = true};
            found = true;
            continue;
        }
        if (!fcap_bytes_equal(own, key)) {
            continue;
        }
        *ret_change = (struct checkpointer_change){.is_removed = true};
        found = true;
        if (entry->change == FCAP_CHANGE_PUT && fcap_meta_decode(value, &meta) == FCAP_OK) {
            *ret_change =
                (struct checkpointer_change){.partition = {.commit = meta.commit,
                                                           .next_offset = meta.next_offset,
                                                           .clock_ms = meta.clock_ms}};
        }
    }
    if (found) {
        ret_change->partition.partition = section->partition;
    }
    return found;
}

static void find_changes(struct checkpointer_frame *frame, const struct fcap_batch *batch,
                         const bool *kept)
{
    struct fcap_buffer key = {0};
    frame->changes = calloc(batch->section_count + 1, sizeof frame->changes[0]);
    FCAP_ASSERT(frame->changes != NULL);
    for (size_t i = 0; i < batch->section_count; i++) {
        if (kept != NULL && !kept[i]) {
            continue;
        }
        fcap_buffer_clear(&key);
        fcap_key_meta(&key, batch->sections[i].partition, FCAP_META_NAME);
        frame->change_count += find_change(batch, &batch->sections[i], fcap_buffer_bytes(&key),
                                           &frame->changes[frame->change_count]);
    }
    fcap_buffer_done(&key);
}

/* --- what changes while a snapshot is taken -------------------------------------------------- */

void checkpointer_record(struct fcap_checkpointer *checkpointer,
                         struct fcap_checkpoint *ret_checkpoint)
{
    checkpointer_copy(ret_checkpoint, &checkpointer->told);
    checkpointer->is_recording = true;
}

static void record(struct fcap_checkpointer *checkpointer, const struct checkpointer_frame *frame)
{
    if (!checkpointer->is_recording) {
        return;
    }
    if (checkpointer->record_count == checkpointer->record_capacity) {
        checkpointer->record_capacity = checkpointer->record_capacity * 2 + 64;
        checkpointer->records = realloc(checkpointer->records, checkpointer->record_capacity *
                                                                   sizeof checkpointer->records[0]);
        FCAP_ASSERT(checkpointer->records != NULL);
    }
    struct checkpointer_record *own = &checkpointer->records[checkpointer->record_count++];
    const size_t size = frame->change_count * sizeof frame->changes[0];
    *own = (struct checkpointer_record){.sequence = frame->sequence,
                                        .written_ms = frame->written_ms,
                                        .changes = malloc(size + 1),
                                        .change_count = frame->change_count};
    FCAP_ASSERT(own->changes != NULL);
    memcpy(own->changes, frame->changes, size);
}

void checkpointer_end_record(struct fcap_checkpointer *checkpointer, uint64_t sequence,
                             struct fcap_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpointer->record_count; i++) {
        struct checkpointer_record *own = &checkpointer->records[i];
        if (own->sequence <= sequence) {
            apply(checkpoint, own->changes, own->change_count);
            checkpoint->written_ms = own->written_ms;
        }
        free(own->changes);
    }
    free(checkpointer->records);
    checkpointer->records = NULL;
    checkpointer->record_count = checkpointer->record_capacity = 0;
    checkpointer->is_recording = false;
}

/* --- the queue ------------------------------------------------------------------------------- */

void checkpointer_frame_free(struct checkpointer_frame *frame)
{
    if (frame == NULL) {
        return;
    }
    fcap_buffer_done(&frame->bytes);
    free(frame->changes);
    free(frame);
}

void checkpointer_drop_queue(struct fcap_checkpointer *checkpointer)
{
    for (struct checkpointer_frame *frame = checkpointer_take(checkpointer); frame != NULL;
         frame = checkpointer_take(checkpointer)) {
        checkpointer_frame_free(frame);
    }
}

struct checkpointer_frame *checkpointer_take(struct fcap_checkpointer *checkpointer)
{
    struct checkpointer_frame *frame = checkpointer->queue_first;
    if (frame == NULL) {
        return NULL;
    }
    checkpointer->queue_first = frame->next;
    if (frame->next == NULL) {
        checkpointer->queue_last = NULL;
    }
    checkpointer->queue_bytes -= frame->bytes.size;
    return frame;
}

void checkpointer_break(struct fcap_checkpointer *checkpointer)
{
    if (checkpointer->is_alive) {
        checkpointer->is_alive = false;
        checkpointer->metrics.holes++;
        checkpointer_wake_ship(checkpointer);
        checkpointer_wake_materialize(checkpointer);
    }
}

bool checkpointer_is_closed(const struct fcap_checkpointer *checkpointer)
{
    return checkpointer->queue_first == NULL && checkpointer->segment.first == 0;
}

void checkpointer_revive(struct fcap_checkpointer *checkpointer)
{
    FCAP_ASSERT(!checkpointer->is_alive && checkpointer_is_closed(checkpointer));
    fcap_checkpoint_done(&checkpointer->tip);
    checkpointer_copy_partitions(&checkpointer->shipped, &checkpointer->told);
    checkpointer->shipped.sequence = checkpointer->told.sequence;
    checkpointer->shipped.written_ms = checkpointer->told.written_ms;
    checkpointer->last_queued = 0;
    checkpointer->is_alive = true;
}

bool checkpointer_is_joined(const struct fcap_checkpointer *checkpointer)
{
    const struct checkpointer_generation *newest = checkpointer_newest(checkpointer);
    if (!checkpointer->is_alive || newest == NULL ||
        memcmp(&newest->newest.lineage, &checkpointer->start.lineage,
               sizeof newest->newest.lineage) != 0) {
        return false;
    }
    const struct fcap_checkpoint *tip = &checkpointer->tip;
    const uint64_t sequence = newest->newest.snapshot_sequence;
    uint64_t first = checkpointer->last_told + 1; /* of the run */
    if (tip->segment_count > 0) {
        first = tip->segments[0].first;
    } else if (checkpointer->segment.first > 0) {
        first = checkpointer->segment.first;
    } else if (checkpointer->queue_first != NULL) {
        first = checkpointer->queue_first->sequence;
    }
    return first <= sequence + 1;
}

/* True when the batch joins on those before it, and there is room. */
static bool fits(const struct fcap_checkpointer *checkpointer,
                 const struct checkpointer_frame *frame)
{
    bool follows =
        checkpointer->last_queued == 0 || frame->sequence == checkpointer->last_queued + 1;
    return follows &&
           (checkpointer->queue_bytes == 0 || checkpointer->queue_bytes + frame->bytes.size <=
                                                  checkpointer->settings.queue_bytes_max);
}

void checkpointer_told(void *context, uint64_t sequence, int64_t written_ms,
                       const struct fcap_batch *batch, const bool *kept)
{
    struct fcap_checkpointer *checkpointer = context;
    struct checkpointer_frame *frame = calloc(1, sizeof *frame);
    FCAP_ASSERT(frame != NULL);
    frame->sequence = sequence;
    frame->written_ms = written_ms;
    find_changes(frame, batch, kept);
    (void)pthread_mutex_lock(&checkpointer->lock);
    bool is_wanted = checkpointer->is_alive;
    (void)pthread_mutex_unlock(&checkpointer->lock);
    bool is_frame =
        is_wanted && fcap_changelog_put_frame(&frame->bytes, sequence, written_ms, batch, kept);

    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->last_told = sequence;
    checkpointer_apply(&checkpointer->told, frame);
    record(checkpointer, frame);
    if (checkpointer->is_alive && is_frame && fits(checkpointer, frame)) {
        checkpointer->queue_bytes += frame->bytes.size;
        checkpointer->last_queued = sequence;
        if (checkpointer->queue_last == NULL) {
            checkpointer->queue_first = frame;
        } else {
            checkpointer->queue_last->next = frame;
        }
        checkpointer->queue_last = frame;
        frame = NULL;
    } else if (checkpointer->is_alive && !is_wanted) {
        /* Revived in between: the snapshot that is to come holds it. */
        checkpointer_apply(&checkpointer->shipped, frame);
    } else {
        checkpointer_break(checkpointer);
    }
    checkpointer_wake_ship(checkpointer);
    (void)pthread_mutex_unlock(&checkpointer->lock);
    checkpointer_frame_free(frame);
}
