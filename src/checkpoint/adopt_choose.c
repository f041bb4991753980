/* Which state of a partition is the freshest that is valid (docs/decisions/0023). */
#include "adopt_internal.h"

#include <inttypes.h>
#include <string.h>

bool adopt_is_state(const struct fcap_store_partition *here)
{
    return here->found && !here->is_half && !fcap_store_partition_lacks(here);
}

static int64_t worth_records(const struct fcap_adopt_candidate *candidate)
{
    uint64_t bytes = 0;
    uint64_t partitions = candidate->log->partition_count;
    for (size_t i = 0; i < candidate->snapshot->file_count; i++) {
        bytes += candidate->snapshot->files[i].size;
    }
    bytes /= partitions > 0 ? partitions : 1;
    return FCAP_ADOPT_RECORDS + (int64_t)(bytes / FCAP_ADOPT_RECORD_BYTES);
}

/* A state's clock never goes back, and offsets of two logs cannot be compared: where offset and
 * clock disagree, one of them is of a log that is gone, and the later clock is believed. */
bool adopt_is_worth(const struct fcap_adopt_candidate *candidate,
                    const struct fcap_store_partition *here)
{
    const struct fcap_checkpoint_partition *there = &candidate->partition;
    if (!adopt_is_state(here)) {
        return true;
    }
    if (there->clock_ms < here->clock_ms || there->next_offset <= here->next_offset) {
        return false;
    }
    return there->clock_ms - here->clock_ms >= FCAP_ADOPT_AGE_MS ||
           there->next_offset - here->next_offset > worth_records(candidate);
}

static bool is_better(const struct fcap_adopt_candidate *candidate,
                      const struct fcap_adopt_candidate *best)
{
    const struct fcap_checkpoint_partition *a = &candidate->partition;
    const struct fcap_checkpoint_partition *b = &best->partition;
    if (a->clock_ms != b->clock_ms) {
        return a->clock_ms > b->clock_ms;
    }
    if (a->next_offset != b->next_offset) {
        return a->next_offset > b->next_offset;
    }
    /* The same changelog: from the newer snapshot there is less of it to read. */
    return candidate->snapshot->snapshot_sequence > best->snapshot->snapshot_sequence;
}

static const struct fcap_checkpoint_partition *find_partition(const struct fcap_checkpoint *log,
                                                              int32_t partition)
{
    for (size_t i = 0; i < log->partition_count; i++) {
        if (log->partitions[i].partition == partition) {
            return &log->partitions[i];
        }
    }
    return NULL;
}

static bool was_tried(const char *prefix, const struct fcap_adopt_candidate *candidate,
                      const struct adopt_question *question)
{
    for (size_t i = 0; i < question->tried_count; i++) {
        const struct adopt_tried *tried = &question->tried[i];
        if (tried->log == candidate->log->number &&
            (tried->snapshot == 0 || tried->snapshot == candidate->snapshot->number) &&
            strcmp(tried->prefix, prefix) == 0) {
            return true;
        }
    }
    return false;
}

/* Whoever went back to an older state did not mean the newer ones that were kept before. */
static bool is_undone(const struct fcap_adopt_candidate *candidate,
                      const struct adopt_question *question)
{
    return adopt_is_state(question->here) && candidate->log->written_ms <= question->chosen_ms;
}

bool adopt_choose(const struct adopt_catalog *catalog, const struct adopt_question *question,
                  struct fcap_adopt_candidate *ret_candidate, const char **ret_prefix)
{
    bool found = false;
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct adopt_instance *instance = &catalog->instances[i];
        for (size_t log = 0; log < instance->checkpoint_count; log++) {
            const struct fcap_checkpoint_partition *there =
                find_partition(&instance->checkpoints[log], question->partition);
            for (size_t at = log; there != NULL && at < instance->checkpoint_count; at++) {
                struct fcap_adopt_candidate candidate = {.snapshot = &instance->checkpoints[at],
                                                         .log = &instance->checkpoints[log],
                                                         .partition = *there};
                bool is_same = at > log && candidate.snapshot->snapshot_sequence ==
                                               candidate.snapshot[-1].snapshot_sequence;
                if (!is_same &&
                    fcap_checkpoint_continues(candidate.log, candidate.snapshot,
                                              &candidate.first) &&
                    !is_undone(&candidate, question) &&
                    adopt_is_worth(&candidate, question->here) &&
                    !was_tried(instance->prefix, &candidate, question) &&
                    (!found || is_better(&candidate, ret_candidate))) {
                    *ret_candidate = candidate;
                    *ret_prefix = instance->prefix;
                    found = true;
                }
            }
        }
    }
    return found;
}

static enum fcap_status look_at(const struct adopt_catalog *catalog, const char *object,
                                uint64_t size, struct fcap_error *error)
{
    const struct object_entry *entry = object_list_find(&catalog->listed, object);
    if (entry == NULL) {
        return fcap_error_set(error, FCAP_CORRUPT, "%s is missing", object);
    }
    if (entry->size != size) {
        return fcap_error_set(error, FCAP_CORRUPT, "%s: %" PRIu64 " bytes instead of %" PRIu64,
                              object, entry->size, size);
    }
    return FCAP_OK;
}

enum fcap_status adopt_look_at(const struct adopt_catalog *catalog,
                               const struct fcap_adopt_candidate *candidate,
                               struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    for (size_t i = 0; i < candidate->snapshot->file_count && status == FCAP_OK; i++) {
        const struct fcap_checkpoint_file *file = &candidate->snapshot->files[i];
        status = look_at(catalog, file->object, file->size, error);
    }
    for (size_t i = candidate->first; i < candidate->log->segment_count && status == FCAP_OK; i++) {
        const struct fcap_checkpoint_segment *segment = &candidate->log->segments[i];
        status = look_at(catalog, segment->object, segment->size, error);
    }
    return status;
}
