/* The spill port in memory, ready to fail on demand. Deterministic. Thread rule: one thread. */
#ifndef FCAP_TESTS_FAKE_SPILL_H
#define FCAP_TESTS_FAKE_SPILL_H

#include "fcap/spill.h"

struct fake_spill_file; /* private */

struct fake_spill {
    struct fcap_spill port; /* first */
    /* Knobs; change them at any time. */
    uint64_t bytes_max; /* beyond it the disk is full; 0: never */
    bool damaged;       /* reads give CORRUPT */
    /* Counted. */
    uint64_t bytes;     /* held now */
    uint64_t bytes_top; /* the most that were */
    /* Private. */
    struct fake_spill_file *files;
    size_t count;
};

void fake_spill_init(struct fake_spill *spill);
void fake_spill_done(struct fake_spill *spill);

#endif
