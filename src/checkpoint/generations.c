/* The snapshots that are kept, and the manifest that is to be made. */
#include "checkpointer_internal.h"

#include <stdlib.h>
#include <string.h>

static bool same_lineage(const struct fcap_lineage *a, const struct fcap_lineage *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

struct checkpointer_generation *checkpointer_newest(const struct fcap_checkpointer *checkpointer)
{
    return checkpointer->generation_count == 0
               ? NULL
               : &checkpointer->generations[checkpointer->generation_count - 1];
}

void checkpointer_generations_done(struct fcap_checkpointer *checkpointer)
{
    for (size_t i = 0; i < checkpointer->generation_count; i++) {
        fcap_checkpoint_done(&checkpointer->generations[i].newest);
    }
    free(checkpointer->generations);
    checkpointer->generations = NULL;
    checkpointer->generation_count = 0;
}

static void forget_oldest(struct fcap_checkpointer *checkpointer)
{
    fcap_checkpoint_done(&checkpointer->generations[0].newest);
    checkpointer->generation_count--;
    memmove(&checkpointer->generations[0], &checkpointer->generations[1],
            checkpointer->generation_count * sizeof checkpointer->generations[0]);
}

/* True when the run's batches begin so early that they go on from this snapshot. */
static bool is_joined_by(const struct fcap_checkpointer *checkpointer,
                         const struct fcap_checkpoint *checkpoint)
{
    const struct fcap_checkpoint *tip = &checkpointer->tip;
    return same_lineage(&checkpoint->lineage, &checkpointer->start.lineage) &&
           tip->segment_count > 0 && tip->segments[0].first <= checkpoint->snapshot_sequence + 1;
}

/* How many segments at the tip's beginning no snapshot needs. `pending`: one that is about to be
 * kept, for which the oldest ones go; NULL: none. */
static size_t count_needless(const struct fcap_checkpointer *checkpointer,
                             const struct fcap_checkpoint *pending)
{
    const struct fcap_checkpoint *tip = &checkpointer->tip;
    const size_t count = checkpointer->generation_count + (pending != NULL);
    const size_t retain = checkpointer->settings.retain;
    uint64_t needed_after = UINT64_MAX; /* the oldest snapshot from which the tip goes on */
    for (size_t i = count > retain ? count - retain : 0; i < count; i++) {
        const struct fcap_checkpoint *at =
            i < checkpointer->generation_count ? &checkpointer->generations[i].newest : pending;
        if (is_joined_by(checkpointer, at) && at->snapshot_sequence < needed_after) {
            needed_after = at->snapshot_sequence;
        }
    }
    size_t needless = 0;
    while (needed_after != UINT64_MAX && needless < tip->segment_count &&
           tip->segments[needless].last <= needed_after) {
        needless++;
    }
    return needless;
}

static void trim_tip(struct fcap_checkpointer *checkpointer)
{
    struct fcap_checkpoint *tip = &checkpointer->tip;
    size_t needless = count_needless(checkpointer, NULL);
    if (needless > 0) {
        tip->segment_count -= needless;
        memmove(&tip->segments[0], &tip->segments[needless],
                tip->segment_count * sizeof tip->segments[0]);
    }
}

void checkpointer_add(struct fcap_checkpointer *checkpointer, struct fcap_checkpoint *checkpoint)
{
    struct checkpointer_generation *newest = checkpointer_newest(checkpointer);
    bool is_same = newest != NULL && same_lineage(&newest->newest.lineage, &checkpoint->lineage) &&
                   newest->newest.snapshot_sequence == checkpoint->snapshot_sequence;
    if (!is_same) {
        checkpointer->generations =
            realloc(checkpointer->generations,
                    (checkpointer->generation_count + 1) * sizeof checkpointer->generations[0]);
        FCAP_ASSERT(checkpointer->generations != NULL);
        newest = &checkpointer->generations[checkpointer->generation_count++];
        *newest = (struct checkpointer_generation){0};
    }
    if (newest->number_count == CHECKPOINTER_MANIFESTS_MAX) {
        newest->number_count--;
        memmove(&newest->numbers[0], &newest->numbers[1],
                newest->number_count * sizeof newest->numbers[0]);
        if (++checkpointer->manifests_needless >= CHECKPOINTER_MANIFESTS_MAX) {
            checkpointer->wants_cut = true; /* Whether or not a snapshot is ever complete. */
            checkpointer_wake_materialize(checkpointer);
        }
    }
    newest->numbers[newest->number_count++] = checkpoint->number;
    fcap_checkpoint_done(&newest->newest);
    newest->newest = *checkpoint;
    *checkpoint = (struct fcap_checkpoint){0};
    while (checkpointer->generation_count > checkpointer->settings.retain) {
        forget_oldest(checkpointer);
    }
    trim_tip(checkpointer);
}

bool checkpointer_is_pending(const struct fcap_checkpointer *checkpointer)
{
    return checkpointer->is_pending &&
           checkpointer->limit >= checkpointer->pending.snapshot_sequence;
}

bool checkpointer_compose(struct fcap_checkpointer *checkpointer,
                          struct fcap_checkpoint *ret_checkpoint)
{
    const struct checkpointer_generation *newest = checkpointer_newest(checkpointer);
    const struct fcap_checkpoint *tip = &checkpointer->tip;
    const struct fcap_checkpoint *base = newest != NULL ? &newest->newest : NULL;
    bool is_new = checkpointer_is_pending(checkpointer);
    if (is_new) {
        base = &checkpointer->pending;
    }
    if (base == NULL || !same_lineage(&base->lineage, &checkpointer->start.lineage)) {
        return false;
    }
    size_t first = count_needless(checkpointer, is_new ? base : NULL);
    bool has_log = first < tip->segment_count && is_joined_by(checkpointer, base) &&
                   tip->sequence >= base->snapshot_sequence;
    if (!is_new && (!has_log || tip->sequence <= base->sequence)) {
        return false;
    }
    checkpointer_copy(ret_checkpoint, base);
    if (has_log) {
        ret_checkpoint->segment_count = 0;
        for (size_t i = first; i < tip->segment_count; i++) {
            fcap_checkpoint_add_segment(ret_checkpoint, &tip->segments[i]);
        }
        ret_checkpoint->sequence = tip->sequence;
        ret_checkpoint->written_ms = tip->written_ms;
        checkpointer_copy_partitions(ret_checkpoint, tip);
    }
    return true;
}

static const struct fcap_checkpoint_file *find_file(const struct fcap_checkpoint *in,
                                                    const struct object_list *listed,
                                                    const char *name, uint64_t size)
{
    for (size_t i = 0; i < in->file_count; i++) {
        const struct fcap_checkpoint_file *file = &in->files[i];
        if (file->size == size && strcmp(file->name, name) == 0) {
            const struct object_entry *entry = object_list_find(listed, file->object);
            if (entry != NULL && entry->size == size) {
                return file;
            }
        }
    }
    return NULL;
}

const struct fcap_checkpoint_file *checkpointer_kept(const struct fcap_checkpointer *checkpointer,
                                                     const struct object_list *listed,
                                                     const char *name, uint64_t size,
                                                     bool *ret_is_origin)
{
    struct fcap_store_position origin;
    const struct fcap_checkpoint_file *file = find_file(&checkpointer->sent, listed, name, size);
    *ret_is_origin = false;
    for (size_t i = checkpointer->generation_count; i > 0 && file == NULL; i--) {
        const struct fcap_checkpoint *kept = &checkpointer->generations[i - 1].newest;
        if (same_lineage(&kept->lineage, &checkpointer->start.lineage)) {
            file = find_file(kept, listed, name, size);
        }
    }
    if (file != NULL || !checkpointer->state->ops->origin(checkpointer->state, &origin)) {
        return file;
    }
    *ret_is_origin = true;
    for (size_t i = checkpointer->generation_count; i > 0 && file == NULL; i--) {
        const struct fcap_checkpoint *kept = &checkpointer->generations[i - 1].newest;
        if (same_lineage(&kept->lineage, &origin.lineage)) {
            file = find_file(kept, listed, name, size);
        }
    }
    return file;
}
