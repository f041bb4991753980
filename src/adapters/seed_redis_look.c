/* Whose gates are open: each partition's daemon renews fc:epoch:<profile>:<partition>:owner. */
#include "seed_redis_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { GETS_MAX = 1000 /* in one batch */ };

/* An owner is there as long as its key is, whatever it holds: a later version may say more. */
static enum fcap_status look_at(struct fcap_seed_redis *seed, int32_t first, int32_t end,
                                bool *ret_open)
{
    char key[SEED_KEY_BYTES];
    for (int32_t i = first; i < end; i++) {
        (void)snprintf(key, sizeof key, "fc:epoch:%s:%d:owner", seed->sink->settings.profile,
                       i); /* It fits. */
        seed_ask(seed, "GET", key, NULL);
    }
    enum fcap_status status = seed_answered(seed);
    if (status != FCAP_OK) {
        return status;
    }
    if (seed->pieces.count != (size_t)(end - first)) {
        return seed_strange(seed, "GET");
    }
    for (int32_t i = first; i < end; i++) {
        ret_open[i] = seed->pieces.pieces[i - first].type != REDIS_REPLY_NIL;
    }
    return FCAP_OK;
}

enum fcap_status seed_look(struct fcap_seed *port, int32_t count, bool *ret_open,
                           struct fcap_seed_time *ret_time)
{
    struct fcap_seed_redis *seed = seed_redis_of(port);
    int64_t begun_ms = sink_monotonic_ms();
    enum fcap_status status = seed_reach(seed);
    for (int32_t i = 0; i < count && status == FCAP_OK; i += GETS_MAX) {
        status = look_at(seed, i, count - i > GETS_MAX ? i + GETS_MAX : count, ret_open);
    }
    if (status != FCAP_OK) {
        return status;
    }
    seed_ask(seed, "GET", "fc:id", NULL);
    seed_ask(seed, "TIME", NULL, NULL);
    status = seed_answered(seed);
    if (status == FCAP_OK) {
        status = seed_check_sentinel(seed, &seed->pieces.pieces[0]);
    }
    if (status != FCAP_OK) {
        return status;
    }
    const struct sink_piece *pieces = seed->pieces.pieces;
    if (seed->pieces.count != 4 || pieces[2].type != REDIS_REPLY_STRING ||
        pieces[3].type != REDIS_REPLY_STRING) {
        return seed_strange(seed, "TIME");
    }
    if (!seed->has_looked) {
        seed->identity = seed->sink->now.state.identity;
        seed->has_looked = true;
    }
    *ret_time = (struct fcap_seed_time){
        .time_ms = strtoll(seed_text(seed, &pieces[2]), NULL, 10) * 1000 +
                   strtoll(seed_text(seed, &pieces[3]), NULL, 10) / 1000,
        .cost_ms = sink_monotonic_ms() - begun_ms,
    };
    return FCAP_OK;
}
