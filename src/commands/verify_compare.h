/* One key of Redis against what it should hold. Thread rule: pure. */
#ifndef FCAP_COMMANDS_VERIFY_COMPARE_H
#define FCAP_COMMANDS_VERIFY_COMPARE_H

#include "fcap/rebuild.h"
#include "fcap/redis_client.h"

enum fcap_difference {
    FCAP_DIFFERENCE_NONE,
    FCAP_DIFFERENCE_ABSENT,     /* no key, and its PXAT has not passed */
    FCAP_DIFFERENCE_UNEXPECTED, /* a key where nothing counts */
    FCAP_DIFFERENCE_TYPE,       /* no string */
    FCAP_DIFFERENCE_VALUE,      /* other counts, another `partial`, or no value of ours */
    FCAP_DIFFERENCE_EXPIRY,     /* another PXAT, or none */
    FCAP_DIFFERENCE_LATER,      /* the same counts, but as_of lies after T */
};

/* "is absent", ...: for a line. Never NULL. */
const char *fcap_difference_text(enum fcap_difference difference);

/* `clock_ms` is T of what is wanted, `redis_ms` Redis TIME after the key was read. as_of and the
 * order of ads make no difference. *ret_as_of_ms is the value's as_of, 0: none. */
enum fcap_difference fcap_difference_find(const struct fcap_values_window *wanted, int64_t clock_ms,
                                          const struct fcap_redis_seen *seen, int64_t redis_ms,
                                          int64_t *ret_as_of_ms);

/* Appends what of the wanted key does not change as time passes. */
void fcap_difference_put_wanted(const struct fcap_values_window *wanted,
                                struct fcap_buffer *buffer);

#endif
