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
    /* From a damaged segment on, nothing joins on an older snapshot any more. */
    const struct fcap_checkpoint *newest =
        pending == NULL && count > 0 ? &checkpointer->generations[count - 1].newest : pending;
    while (newest != NULL && checkpointer->rotten_through <= newest->snapshot_sequence &&
           is_joined_by(checkpointer, newest) && needless < tip->segment_count &&
           tip->segments[needless].last <= checkpointer->rotten_through) {
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

static bool same_files(const struct fcap_checkpoint *a, const struct fcap_checkpoint *b)
{
    bool is_same = a->file_count == b->file_count;
    for (size_t i = 0; i < a->file_count && is_same && a->files != b->files; i++) {
        is_same = strcmp(a->files[i].object, b->files[i].object) == 0;
    }
    return is_same;
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
    if (is_same && !same_files(&newest->newest, checkpoint)) {
        newest->number_count = 0; /* Earlier manifests name files that are kept no more. */
    }
    if (newest->newest.files == checkpoint->files) { /* Composed of it: they stay where they are. */
        newest->newest.files = NULL;
        newest->newest.file_count = 0;
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

void checkpointer_drop_composed(struct fcap_checkpoint *checkpoint)
{
    checkpoint->files = NULL; /* Borrowed. */
    checkpoint->file_count = 0;
    fcap_checkpoint_done(checkpoint);
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
    ret_checkpoint->files = base->files;
    ret_checkpoint->file_count = base->file_count;
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

/* --- what is kept already -------------------------------------------------------------------- */

size_t checkpointer_hold(struct fcap_checkpointer *checkpointer,
                         struct checkpointer_held **ret_held)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    const size_t count = checkpointer->generation_count;
    struct checkpointer_held *held = calloc(count + 1, sizeof held[0]);
    FCAP_ASSERT(held != NULL);
    for (size_t i = 0; i < count; i++) {
        const struct fcap_checkpoint *newest = &checkpointer->generations[i].newest;
        held[i] = (struct checkpointer_held){newest->lineage, newest->files, newest->file_count};
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    *ret_held = held;
    return count;
}

/* Those that are still there as they should be. */
static void add_files(struct kept_files *to, const struct fcap_checkpointer *checkpointer,
                      const struct object_list *listed, const struct fcap_checkpoint_file *files,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct object_entry *entry = object_list_find(listed, files[i].object);
        if (entry != NULL && entry->size == files[i].size &&
            object_list_find(&checkpointer->rotten, files[i].object) == NULL) {
            kept_files_add(to, &files[i]);
        }
    }
}

void checkpointer_kept_open(struct fcap_checkpointer *checkpointer,
                            const struct object_list *listed, struct checkpointer_kept *ret_kept)
{
    struct fcap_store_position origin;
    struct checkpointer_held *held = NULL;
    const size_t held_count = checkpointer_hold(checkpointer, &held);
    const bool has_origin = checkpointer->state->ops->origin(checkpointer->state, &origin);
    size_t count = checkpointer->sent.file_count;
    for (size_t i = 0; i < held_count; i++) {
        count += held[i].count;
    }
    kept_files_init(&ret_kept->own, count);
    kept_files_init(&ret_kept->origin, count);
    add_files(&ret_kept->own, checkpointer, listed, checkpointer->sent.files,
              checkpointer->sent.file_count);
    for (size_t i = held_count; i > 0; i--) { /* Of two with one name the newest one. */
        const struct checkpointer_held *at = &held[i - 1];
        if (same_lineage(&at->lineage, &checkpointer->start.lineage)) {
            add_files(&ret_kept->own, checkpointer, listed, at->files, at->count);
        } else if (has_origin && same_lineage(&at->lineage, &origin.lineage)) {
            add_files(&ret_kept->origin, checkpointer, listed, at->files, at->count);
        }
    }
    free(held);
}

void checkpointer_kept_close(struct checkpointer_kept *kept)
{
    kept_files_done(&kept->own);
    kept_files_done(&kept->origin);
}

const struct fcap_checkpoint_file *checkpointer_kept_find(struct checkpointer_kept *kept,
                                                          const char *name, uint64_t size,
                                                          bool *ret_is_origin)
{
    const struct fcap_checkpoint_file *file = kept_files_find(&kept->own, name, size);
    *ret_is_origin = file == NULL;
    return file != NULL ? file : kept_files_find(&kept->origin, name, size);
}
