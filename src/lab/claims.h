/* Reads what fc:meta claims (docs/DATA.md), in the laboratory's own code. Thread rule: pure. */
#ifndef FCAP_LAB_CLAIMS_H
#define FCAP_LAB_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct claim {
    int64_t next;     /* every record below is in Redis */
    int64_t as_of_ms; /* T: every change due until then is in Redis */
    int64_t epoch;    /* the highest of a partition is its owner's */
    size_t ready;     /* windows of which an absent key means zero */
};

/* The claim for a partition; false when `meta` (NULL: no key) says nothing of it. */
bool claim_read(const char *meta, int32_t partition, struct claim *ret_claim);

#endif
