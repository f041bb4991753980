/* Whether a test runs at full size, FCAP_TEST_FULL=1, or at that of CI. Thread rule: none. */
#ifndef FCAP_TESTS_FULL_SIZE_H
#define FCAP_TESTS_FULL_SIZE_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_full_size(void)
{
    const char *full = getenv("FCAP_TEST_FULL");
    return full != NULL && strcmp(full, "1") == 0;
}

#endif
