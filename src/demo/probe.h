/* How fresh Redis is, seen as an ad server sees it: a user of its own gets an impression twice a
 * second, and one GET after the other tells when it appears and when it leaves the shortest window.
 *
 * What must hold: both are measured from the event's own time, so nothing is flattered; the pause
 * between two looks (some ms) is part of what is measured. Thread rule: one thread. */
#ifndef FCAP_DEMO_PROBE_H
#define FCAP_DEMO_PROBE_H

#include "demo/world.h"

#define DEMO_PROBE_USER "fcapd-probe"

enum {
    DEMO_PROBES_OPEN = 64, /* sent and not yet gone */
    DEMO_PROBES_KEPT = 16, /* measurements that medians are taken of */
};

struct demo_probe_shot {
    int64_t time_ms; /* 0: free */
    uint64_t number;
    bool seen;
};

struct demo_measured {
    int64_t kept[DEMO_PROBES_KEPT];
    size_t count; /* in all */
    int64_t max_ms;
};

struct demo_probe {
    struct demo_probe_shot shots[DEMO_PROBES_OPEN];
    uint64_t number;
    int64_t sent_ms;                /* when the last one was sent */
    struct demo_measured freshness; /* ms from the impression to the count in Redis */
    struct demo_measured lateness;  /* ms from the end of its window to the count without it */
};

/* Looks, and sends one when `sends` and it is time. */
void demo_probe_step(struct demo_probe *probe, struct demo_world *world, int64_t now_ms,
                     bool sends);
/* Forgets what is under way: nobody looked for a while. */
void demo_probe_pause(struct demo_probe *probe);
/* The median of the last ones; -1: none. */
int64_t demo_measured_median(const struct demo_measured *measured);

#endif
