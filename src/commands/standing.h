/* The ports around a state that stands still: a source that assigns one partition, says that its
 * end is where the state stands, and delivers nothing; and a store that keeps every timer, since
 * the partitions that are not loaded still need theirs. Thread rule: main only. */
#ifndef FCAP_COMMANDS_STANDING_H
#define FCAP_COMMANDS_STANDING_H

#include "fcap/ports.h"

struct fcap_standing_source {
    struct fcap_source port; /* first */
    int32_t partition;
    uint64_t assignment;
    bool is_given;
    bool is_whole; /* the state says where to read on: it is not begun anew */
};

void fcap_standing_source_init(struct fcap_standing_source *source, int32_t partition,
                               uint64_t assignment);

struct fcap_standing_store {
    struct fcap_store port; /* first */
    struct fcap_store *store;
};

/* Borrows `store`. */
void fcap_standing_store_init(struct fcap_standing_store *standing, struct fcap_store *store);

#endif
