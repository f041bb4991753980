/* A look at the state: is there one, is it in use, what do its partitions say.
 * Thread rule: main only. */
#ifndef FCAP_COMMANDS_STATE_H
#define FCAP_COMMANDS_STATE_H

#include "fcap/config.h"
#include "fcap/gaps.h"
#include "fcap/meta.h"
#include "fcap/store_rocksdb.h"

enum fcap_state_presence {
    FCAP_STATE_ABSENT,
    FCAP_STATE_STOPPED,
    FCAP_STATE_LOCKED, /* a running process holds it, or makes it */
};

/* Asks the file system only. */
enum fcap_state_presence fcap_state_look(const struct fcap_config *config);
/* Says on standard error why a state that was looked for is ABSENT. */
void fcap_state_tell_absent(const struct fcap_config *config);

struct fcap_state_partition {
    int32_t partition;
    struct fcap_meta meta;
    struct fcap_gaps lost;
};

struct fcap_state {
    struct fcap_store_rocksdb *db;
    struct fcap_store *store;
    struct fcap_state_partition *partitions; /* by number */
    size_t count;
    size_t capacity;
};

/* Opens it read-only, as it is at this moment, and reads every partition's meta and gaps. Give it
 * to fcap_state_close(). Statuses as fcap_store_rocksdb_open_read_only, and FORMAT or CORRUPT. */
enum fcap_status fcap_state_open(const struct fcap_config *config, struct fcap_state *ret_state,
                                 struct fcap_error *error) FCAP_MUST_USE;
/* The same for writing, under the directory's lock. LOCKED: a process holds it. */
enum fcap_status fcap_state_open_writable(const struct fcap_config *config,
                                          struct fcap_state *ret_state,
                                          struct fcap_error *error) FCAP_MUST_USE;
void fcap_state_close(struct fcap_state *state);

/* Whether the partition may hold a record of the user: loading one may take long. */
bool fcap_state_may_know(const struct fcap_state *state,
                         const struct fcap_state_partition *partition, struct fcap_bytes user);

/* How many partitions hold a window of this length. */
size_t fcap_state_count_window(const struct fcap_state *state, int64_t length_ms);

#endif
