#include "fcap/batch.h"

#include "fcap/assert.h"

#include <stdlib.h>

const char *fcap_family_name(enum fcap_family family)
{
    static const char *const names[FCAP_FAMILY_COUNT] = {"default", "users", "timers", "ads"};
    FCAP_ASSERT(family < FCAP_FAMILY_COUNT);
    return names[family];
}

void fcap_batch_done(struct fcap_batch *batch)
{
    if (batch == NULL) {
        return;
    }
    fcap_buffer_done(&batch->bytes);
    free(batch->entries);
    free(batch->sections);
    *batch = (struct fcap_batch){0};
}

void fcap_batch_clear(struct fcap_batch *batch)
{
    fcap_buffer_clear(&batch->bytes);
    batch->entry_count = 0;
    batch->section_count = 0;
}

void fcap_batch_section(struct fcap_batch *batch, int32_t partition, uint64_t assignment,
                        uint64_t commit)
{
    if (batch->section_count == batch->section_capacity) {
        batch->section_capacity = batch->section_capacity * 2 + 8;
        batch->sections =
            realloc(batch->sections, batch->section_capacity * sizeof *batch->sections);
        FCAP_ASSERT(batch->sections != NULL);
    }
    batch->sections[batch->section_count++] = (struct fcap_batch_section){
        .partition = partition,
        .assignment = assignment,
        .commit = commit,
        .first = batch->entry_count,
    };
}

void fcap_batch_add(struct fcap_batch *batch, enum fcap_family family, enum fcap_change change,
                    struct fcap_bytes key, struct fcap_bytes value)
{
    FCAP_ASSERT(batch->section_count > 0);
    if (batch->entry_count == batch->entry_capacity) {
        batch->entry_capacity = batch->entry_capacity * 2 + 64;
        batch->entries = realloc(batch->entries, batch->entry_capacity * sizeof *batch->entries);
        FCAP_ASSERT(batch->entries != NULL);
    }
    struct fcap_batch_entry *entry = &batch->entries[batch->entry_count++];
    *entry = (struct fcap_batch_entry){.family = family, .change = change};
    entry->key_offset = batch->bytes.size;
    entry->key_size = key.size;
    fcap_buffer_put_bytes(&batch->bytes, key);
    if (change != FCAP_CHANGE_DELETE) {
        entry->value_offset = batch->bytes.size;
        entry->value_size = value.size;
        fcap_buffer_put_bytes(&batch->bytes, value);
    }
    batch->sections[batch->section_count - 1].count++;
}

struct fcap_bytes fcap_batch_key(const struct fcap_batch *batch, size_t index)
{
    FCAP_ASSERT(index < batch->entry_count);
    const struct fcap_batch_entry *entry = &batch->entries[index];
    return (struct fcap_bytes){batch->bytes.data + entry->key_offset, entry->key_size};
}

struct fcap_bytes fcap_batch_value(const struct fcap_batch *batch, size_t index)
{
    FCAP_ASSERT(index < batch->entry_count);
    const struct fcap_batch_entry *entry = &batch->entries[index];
    return (struct fcap_bytes){batch->bytes.data + entry->value_offset, entry->value_size};
}
