/* Who else may own the partitions of a stopped daemon's state. What the state was last shown under
 * is the epoch in its meta; whoever opened a gate since has incremented the one in Redis, and a
 * gate that is open has its owner's name beside the epoch. Thread rule: main only. */
#ifndef FCAP_COMMANDS_OWNERS_H
#define FCAP_COMMANDS_OWNERS_H

#include "fcap/config.h"
#include "fcap/redis_client.h"
#include "state.h"

struct fcap_owner_verdict {
    bool is_ours;
    uint64_t found;   /* the epoch in Redis; 0: none */
    char reason[400]; /* why it is not ours */
};

/* Judges each partition of the state; ret_verdicts[i] has room for all. In a Redis that the state
 * was not last shown to, owners have some seconds to show themselves first. */
enum fcap_status fcap_owners_judge(const struct fcap_config *config,
                                   struct fcap_redis_client *client, const struct fcap_state *state,
                                   struct fcap_owner_verdict *ret_verdicts,
                                   struct fcap_error *error) FCAP_MUST_USE;

#endif
