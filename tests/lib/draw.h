/* Numbers by chance that come out the same in each run: a test's own sequence, from its seed on.
 * Thread rule: one thread a sequence. */
#ifndef FCAP_TESTS_DRAW_H
#define FCAP_TESTS_DRAW_H

#include <stdint.h>

/* The next number of the sequence, below `bound`. */
static inline uint32_t draw_below(uint32_t *state, uint32_t bound)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*state >> 8) * bound >> 24);
}

#endif
