/* Which of two states is fresher. */
#include "fcap/choose.h"

#include <string.h>

const char *fcap_state_source_name(enum fcap_state_source source)
{
    static const char *const names[FCAP_STATE_SOURCES] = {
        [FCAP_STATE_LOCAL] = "local",
        [FCAP_STATE_FORWARD] = "changelog",
        [FCAP_STATE_CHECKPOINT] = "checkpoint",
        [FCAP_STATE_KAFKA] = "kafka",
    };
    return names[source];
}

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

/* Below 0 nothing was read. */
static uint64_t offset_of(const struct fcap_checkpoint_partition *partition)
{
    return partition->next_offset > 0 ? (uint64_t)partition->next_offset : 0;
}

static void compare(const struct fcap_checkpoint *checkpoint, const struct fcap_checkpoint *local,
                    struct fcap_choose_sides *sides)
{
    size_t both = 0;
    for (size_t i = 0; i < local->partition_count; i++) {
        const struct fcap_checkpoint_partition *other =
            find(checkpoint, local->partitions[i].partition);
        if (other == NULL) {
            continue;
        }
        uint64_t here = offset_of(&local->partitions[i]);
        uint64_t there = offset_of(other);
        both++;
        sides->local_lacks += there > here ? there - here : 0;
        sides->checkpoint_lacks += here > there ? here - there : 0;
    }
    sides->local_alone = local->partition_count - both;
    sides->checkpoint_alone = checkpoint->partition_count - both;
}

bool fcap_choose_is_fresher(const struct fcap_checkpoint *checkpoint,
                            const struct fcap_checkpoint *local,
                            struct fcap_choose_sides *ret_sides)
{
    *ret_sides = (struct fcap_choose_sides){0};
    ret_sides->is_same_lineage =
        memcmp(&checkpoint->lineage, &local->lineage, sizeof local->lineage) == 0;
    compare(checkpoint, local, ret_sides);
    if (ret_sides->is_same_lineage) {
        return checkpoint->sequence > local->sequence;
    }
    if (ret_sides->local_lacks != ret_sides->checkpoint_lacks) {
        return ret_sides->local_lacks > ret_sides->checkpoint_lacks;
    }
    return ret_sides->checkpoint_alone > ret_sides->local_alone;
}
