#include "kept.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

void kept_files_init(struct kept_files *kept, size_t count_max)
{
    *kept = (struct kept_files){.slot_count = 16, .count_max = count_max};
    while (kept->slot_count <= 2 * count_max) {
        kept->slot_count *= 2;
    }
    kept->slots = calloc(kept->slot_count, sizeof kept->slots[0]);
    FCAP_ASSERT(kept->slots != NULL);
}

void kept_files_done(struct kept_files *kept)
{
    free(kept->slots);
    *kept = (struct kept_files){0};
}

/* Where it is, or where it belongs. */
static size_t slot_of(struct kept_files *kept, const char *name, uint64_t size)
{
    size_t at = (size_t)fcap_hash64(fcap_bytes_of(name), size) & (kept->slot_count - 1);
    for (;;) {
        const struct fcap_checkpoint_file *file = kept->slots[at];
        kept->looked_at++;
        if (file == NULL || (file->size == size && strcmp(file->name, name) == 0)) {
            return at;
        }
        at = (at + 1) & (kept->slot_count - 1);
    }
}

void kept_files_add(struct kept_files *kept, const struct fcap_checkpoint_file *file)
{
    const size_t at = slot_of(kept, file->name, file->size);
    if (kept->slots[at] == NULL) {
        FCAP_ASSERT(kept->count < kept->count_max);
        kept->slots[at] = file;
        kept->count++;
    }
}

const struct fcap_checkpoint_file *kept_files_find(struct kept_files *kept, const char *name,
                                                   uint64_t size)
{
    return kept->slots[slot_of(kept, name, size)];
}
