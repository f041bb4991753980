/* A wall clock of the daemon's own that is off by what the test says, from one moment to the next
 * (clock_offset.c): the daemon reads the offset from a file, and everybody else lives in the right
 * time. Thread rule: one thread, one clock. */
#ifndef FCAP_TESTS_MOVED_CLOCK_H
#define FCAP_TESTS_MOVED_CLOCK_H

#include <stdint.h>

struct moved_clock {
    int64_t *offset_ms; /* shared with the daemon */
    char folder[64];
    char variable[128]; /* of the daemon's environment */
};

/* Makes a clock that is right; `name` begins the name of its folder. */
void moved_clock_open(struct moved_clock *clock, const char *name);
/* From now on the clock is ahead by so much; behind when it is negative. */
void moved_clock_set(struct moved_clock *clock, int64_t offset_ms);
void moved_clock_close(struct moved_clock *clock);

#endif
