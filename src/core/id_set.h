/* A set of fingerprints, by which ids that come twice are known: open addressing, at most half
 * full.
 *
 * Zero-initialised it is empty and holds no memory. Thread rule: plain data. */
#ifndef FCAP_CORE_ID_SET_H
#define FCAP_CORE_ID_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct id_set {
    uint64_t *slots; /* 0: free */
    size_t slot_count;
    size_t count;
};

bool id_set_has(const struct id_set *set, uint64_t fingerprint);
/* One that is there already stays there once. */
void id_set_add(struct id_set *set, uint64_t fingerprint);
/* What the next new one allocates, beside the memory that it replaces; 0: nothing. */
size_t id_set_growth_bytes(const struct id_set *set);
size_t id_set_bytes(const struct id_set *set);
/* Frees and empties. */
void id_set_done(struct id_set *set);

#endif
