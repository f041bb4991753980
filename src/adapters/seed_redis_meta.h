/* Whom fc:meta names. Thread rule: pure. */
#ifndef FCAP_SEED_REDIS_META_H
#define FCAP_SEED_REDIS_META_H

#include <stdbool.h>
#include <stdint.h>

/* Sets open[p] for each partition below `count` that stands among "tasks" of a value of fc:meta
 * (version 1, docs/DATA.md); others stay as they are. False: it is no such value. */
bool seed_redis_meta_read(const char *text, int32_t count, bool *open);

#endif
