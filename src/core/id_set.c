#include "id_set.h"

#include "fcap/assert.h"

#include <stdlib.h>

#define SLOTS_MIN 64

/* Where it is, or the free slot where it belongs. */
static size_t slot_of(const struct id_set *set, uint64_t value)
{
    size_t mask = set->slot_count - 1;
    size_t at = value & mask;
    while (set->slots[at] != 0 && set->slots[at] != value) {
        at = (at + 1) & mask;
    }
    return at;
}

/* 0 marks a free slot; one more fingerprint that stands for two ids is no worse than the others. */
static uint64_t stored(uint64_t fingerprint)
{
    return fingerprint == 0 ? 1 : fingerprint;
}

bool id_set_has(const struct id_set *set, uint64_t fingerprint)
{
    return set->count > 0 && set->slots[slot_of(set, stored(fingerprint))] != 0;
}

static size_t slots_next(const struct id_set *set)
{
    bool is_full = (set->count + 1) * 2 > set->slot_count;
    size_t larger = set->slot_count == 0 ? SLOTS_MIN : set->slot_count * 2;
    return is_full ? larger : set->slot_count;
}

void id_set_add(struct id_set *set, uint64_t fingerprint)
{
    if (slots_next(set) > set->slot_count) {
        struct id_set old = *set;
        set->slot_count = slots_next(&old);
        set->slots = calloc(set->slot_count, sizeof *set->slots);
        FCAP_ASSERT(set->slots != NULL);
        for (size_t i = 0; i < old.slot_count; i++) {
            if (old.slots[i] != 0) {
                set->slots[slot_of(set, old.slots[i])] = old.slots[i];
            }
        }
        free(old.slots);
    }
    uint64_t *slot = &set->slots[slot_of(set, stored(fingerprint))];
    set->count += *slot == 0;
    *slot = stored(fingerprint);
}

size_t id_set_growth_bytes(const struct id_set *set)
{
    return slots_next(set) > set->slot_count ? slots_next(set) * sizeof *set->slots : 0;
}

size_t id_set_bytes(const struct id_set *set)
{
    return set->slot_count * sizeof *set->slots;
}

void id_set_done(struct id_set *set)
{
    free(set->slots);
    *set = (struct id_set){0};
}
