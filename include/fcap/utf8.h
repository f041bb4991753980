/* UTF-8, one sequence at a time (Unicode 15, table 3-7). Thread rule: a pure function. */
#ifndef FCAP_UTF8_H
#define FCAP_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length, 1 to 4 bytes, of the well-formed sequence that starts at `at`; 0 if there is none.
 * `left`, at least 1, is how many bytes may be read. */
static inline size_t fcap_utf8_sequence(const uint8_t *at, size_t left)
{
    /* The second byte's range shuts out overlong forms, surrogates and what is beyond 10FFFF. */
    uint8_t lead = at[0];
    uint8_t low = 0x80, high = 0xBF;
    size_t size;
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        size = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        size = 3;
        low = lead == 0xE0 ? 0xA0 : 0x80;
        high = lead == 0xED ? 0x9F : 0xBF;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        size = 4;
        low = lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xF4 ? 0x8F : 0xBF;
    } else {
        return 0;
    }
    if (left < size || at[1] < low || at[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < size; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return size;
}

#endif
