/* A state that is behind its own checkpoint is brought forward by the changelog: what it has is
 * exactly what the checkpoint had at that batch, so nothing but the batches since is read. */
#include "restore_internal.h"

#include "fcap/assert.h"
#include "fcap/point.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct fcap_checkpoint_partition *find(const struct fcap_checkpoint *checkpoint,
                                                    int32_t partition)
{
    for (size_t i = 0; i < checkpoint->partition_count; i++) {
        if (checkpoint->partitions[i].partition == partition) {
            return &checkpoint->partitions[i];
        }
    }
    return NULL;
}

static bool is_same(const struct fcap_checkpoint *one, const struct fcap_checkpoint *other)
{
    if (one->partition_count != other->partition_count) {
        return false;
    }
    for (size_t i = 0; i < one->partition_count; i++) {
        const struct fcap_checkpoint_partition *a = &one->partitions[i];
        const struct fcap_checkpoint_partition *b = find(other, a->partition);
        if (b == NULL || a->commit != b->commit || a->next_offset != b->next_offset ||
            a->clock_ms != b->clock_ms) {
            return false;
        }
    }
    return true;
}

/* The segments from the batch behind `from` on are there. CORRUPT: they are not. */
static enum fcap_status find_first(const struct restore *restore,
                                   const struct fcap_checkpoint *from,
                                   const struct fcap_checkpoint *log, size_t *ret_first,
                                   struct fcap_error *error)
{
    size_t first = 0;
    while (first < log->segment_count && log->segments[first].last <= from->sequence) {
        first++;
    }
    if (first == log->segment_count || log->segments[first].first > from->sequence + 1) {
        return fcap_error_set(error, FCAP_CORRUPT,
                              "its changelog does not reach back to batch %" PRIu64,
                              from->sequence + 1);
    }
    *ret_first = first;
    enum fcap_status status = FCAP_OK;
    for (size_t i = first; i < log->segment_count && status == FCAP_OK; i++) {
        status = restore_look_at(restore, log->segments[i].object, log->segments[i].size, error);
    }
    return status;
}

struct checking {
    const struct fcap_checkpoint *from;
    bool *is_seen; /* by partition of `from` */
};

/* The changelog goes on from this state, and not from another with the same numbers: the first
 * commit of each partition is a later one. 0 is no commit. */
static enum fcap_status check(void *context, const struct fcap_changelog_frame *frame,
                              struct fcap_error *error)
{
    struct checking *checking = context;
    for (size_t i = 0; frame->sequence > checking->from->sequence && i < frame->batch.section_count;
         i++) {
        const struct fcap_batch_section *section = &frame->batch.sections[i];
        const struct fcap_checkpoint_partition *here = find(checking->from, section->partition);
        bool *is_seen = here != NULL ? &checking->is_seen[here - checking->from->partitions] : NULL;
        if (is_seen == NULL || *is_seen || section->commit == 0) {
            continue;
        }
        *is_seen = true;
        if (section->commit <= here->commit) {
            return fcap_error_set(error, FCAP_CORRUPT,
                                  "its changelog has commit %" PRIu64 " of partition %d behind "
                                  "commit %" PRIu64 " of here",
                                  section->commit, section->partition, here->commit);
        }
    }
    return FCAP_OK;
}

static enum fcap_status verify(struct restore *restore, const struct fcap_checkpoint *from,
                               const struct fcap_checkpoint *log, size_t first,
                               struct fcap_error *error)
{
    struct checking checking = {from, calloc(from->partition_count + 1, sizeof(bool))};
    enum fcap_status status = FCAP_OK;
    FCAP_ASSERT(checking.is_seen != NULL);
    for (size_t i = first; i < log->segment_count && status == FCAP_OK; i++) {
        status = restore_read_segment(restore, &log->segments[i], &log->lineage, check, &checking,
                                      error);
    }
    free(checking.is_seen);
    return status;
}

struct applying {
    struct fcap_checkpoint_place *place;
    uint64_t after;
    uint64_t batches;
    enum fcap_status status; /* the store's own failure */
};

static enum fcap_status apply(void *context, const struct fcap_changelog_frame *frame,
                              struct fcap_error *error)
{
    struct applying *applying = context;
    if (frame->sequence <= applying->after) {
        return FCAP_OK;
    }
    applying->status =
        applying->place->ops->apply(applying->place, frame->sequence, &frame->batch, error);
    applying->batches += applying->status == FCAP_OK;
    FCAP_POINT(forward_applied);
    return applying->status;
}

static void add_partition(void *context, const struct fcap_checkpoint_partition *partition)
{
    fcap_checkpoint_set_partition(context, partition);
}

/* Every byte of the segments has been read and compared before: what fails now is the state. */
static enum fcap_status apply_all(struct restore *restore, const struct fcap_checkpoint *log,
                                  size_t first, struct applying *applying, struct fcap_error *error)
{
    struct fcap_checkpoint now = {0};
    enum fcap_status status = FCAP_OK;
    for (size_t i = first; i < log->segment_count && status == FCAP_OK; i++) {
        status =
            restore_read_segment(restore, &log->segments[i], &log->lineage, apply, applying, error);
    }
    if (status == FCAP_CORRUPT && applying->status == FCAP_CORRUPT) {
        return FCAP_FOREIGN;
    }
    if (status == FCAP_CORRUPT && applying->batches > 0) {
        return FCAP_UNAVAILABLE; /* The volume gives other bytes than a moment ago. */
    }
    if (status == FCAP_OK) {
        status = applying->place->ops->partitions(applying->place, add_partition, &now, error);
        status = status == FCAP_CORRUPT ? FCAP_FOREIGN : status;
    }
    if (status == FCAP_OK && !is_same(&now, log)) {
        status = fcap_error_set(error, FCAP_FOREIGN,
                                "batch %" PRIu64 " of checkpoint %" PRIu64
                                " leads to other offsets here than there",
                                log->sequence, log->number);
    }
    fcap_checkpoint_done(&now);
    return status;
}

enum fcap_status restore_forward(struct restore *restore, const struct fcap_checkpoint *from,
                                 const struct fcap_checkpoint *log, uint64_t *ret_batches,
                                 struct fcap_error *error)
{
    struct applying applying = {.place = restore->settings->place, .after = from->sequence};
    size_t first = 0;
    *ret_batches = 0;
    enum fcap_status status = find_first(restore, from, log, &first, error);
    restore->bytes = 0;
    restore->bytes_all = 0;
    for (size_t i = first; i < log->segment_count && status == FCAP_OK; i++) {
        restore->bytes_all += 2 * log->segments[i].size;
    }
    if (status == FCAP_OK) {
        status = verify(restore, from, log, first, error);
    }
    if (status == FCAP_OK) {
        status = apply_all(restore, log, first, &applying, error);
    }
    *ret_batches = applying.batches;
    return status;
}
