/* What one sees of a running demo: a live view on a terminal, plain lines elsewhere.
 *
 * What must hold: every number comes from the daemon's /metrics or from Redis, none from what the
 * producer wishes. The terminal is left as it was, but for the hidden cursor, which
 * demo_supervise() shows again. Thread rule: one thread. */
#ifndef FCAP_DEMO_VIEW_H
#define FCAP_DEMO_VIEW_H

#include "demo/feed.h"
#include "demo/probe.h"
#include "demo/world.h"

enum { DEMO_HISTORY = 60 }; /* looks that the curve shows */

struct demo_view {
    bool is_tty;
    bool has_utf8;
    int64_t begun_ms; /* monotonic */
    int64_t drawn_ms; /* monotonic; of the last drawing */
    int64_t counted_ms;
    int64_t counting_took_ms;
    double records; /* of the daemon, when drawn last */
    double rate;    /* records a second since then */
    uint64_t keys[DEMO_WINDOWS];
    uint64_t history[DEMO_WINDOWS][DEMO_HISTORY];
    size_t history_count;
    int lines; /* drawn, to go back over */
};

void demo_view_open(struct demo_view *view, bool no_tty);

/* Looks and draws, when it is time (twice a second; once without a terminal). `phase` is what is
 * going on. Also brings the world's reading positions up to date. */
void demo_view_step(struct demo_view *view, struct demo_world *world, const struct demo_feed *feed,
                    const struct demo_probe *probe, const char *phase);
/* A line that stays. What is drawn next goes below it. */
void demo_view_say(struct demo_view *view, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
