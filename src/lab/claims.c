#include "lab/claims.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool claim_read(const char *meta, int32_t partition, struct claim *ret_claim)
{
    char name[24];
    (void)snprintf(name, sizeof name, "\"%" PRId32 "\":{", partition);
    const char *at = meta == NULL ? NULL : strstr(meta, name);
    const char *end = at == NULL ? NULL : strchr(at, '}');
    const char *next = end == NULL ? NULL : strstr(at, "\"next\":");
    const char *as_of = end == NULL ? NULL : strstr(at, "\"as_of\":");
    if (next == NULL || as_of == NULL || next > end || as_of > end) {
        return false;
    }
    ret_claim->next = strtoll(next + strlen("\"next\":"), NULL, 10);
    ret_claim->as_of_ms = strtoll(as_of + strlen("\"as_of\":"), NULL, 10);
    return true;
}
