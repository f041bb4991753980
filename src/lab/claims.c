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
    const char *epoch = strstr(at, "\"epoch\":");
    ret_claim->epoch =
        epoch == NULL || epoch > end ? 0 : strtoll(epoch + strlen("\"epoch\":"), NULL, 10);
    const char *ready = strstr(at, "\"ready\":[");
    size_t quotes = 0;
    for (const char *c = ready; c != NULL && c > at && c < end && *c != ']'; c++) {
        quotes += *c == '"';
    }
    ret_claim->ready = quotes < 2 ? 0 : quotes / 2 - 1; /* Without "ready" itself. */
    return true;
}
