/* Every key of the demo in Redis against a brute-force recount of all that Kafka has acknowledged.
 *
 * What must hold: all is applied (demo_world_is_applied()), and nothing is produced meanwhile. Each
 * user that was ever seen is compared in each window, and each key of Redis must be one of those. A
 * value is right when it equals the recount at a moment between the time up to which the daemon
 * claims to have expired and now. Its PXAT must be the newest impression + the window - 1 ms.
 * Thread rule: one thread. */
#ifndef FCAP_DEMO_AUDIT_H
#define FCAP_DEMO_AUDIT_H

#include "demo/world.h"

#define DEMO_TALLY_MAX 4096
/* A value is compared with all moments since the claimed one. A claim older than this says so
 * little that equal values prove nothing. */
#define DEMO_LAG_MS 30000

struct demo_audit {
    uint64_t keys;   /* compared: those that are there, and those that should be */
    uint64_t absent; /* user x window without a key, and rightly so */
    uint64_t differ;
    int64_t lag_ms_max;                   /* now - the time that the daemon claims, the largest */
    int32_t lag_partition;                /* whose that is */
    char text[2 * DEMO_TALLY_MAX + 1024]; /* the first differences, a line each */
};

void demo_audit_run(struct demo_world *world, struct demo_audit *ret_audit);

#endif
