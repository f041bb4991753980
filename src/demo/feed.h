/* What is produced when: generated impressions in two waves, or the rows of a log in their own
 * rhythm.
 *
 * What must hold: nothing is sent before it is due, in the order in which it is due; what the world
 * has no room for waits. Thread rule: one thread. */
#ifndef FCAP_DEMO_FEED_H
#define FCAP_DEMO_FEED_H

#include "demo/input.h"
#include "demo/options.h"
#include "demo/world.h"
#include "lab/impressions.h"

#define DEMO_WATCHED 4

struct demo_feed {
    const struct demo_options *options;
    struct impressions *generator; /* NULL: the rows of input */
    struct impression pending;     /* drawn, no room for it yet */
    bool has_pending;
    struct demo_input input;
    double scale;   /* of the input's times; at most 1 */
    uint64_t total; /* records to send */
    uint64_t sent;
    double seconds; /* how long it takes */
    bool held;      /* the last step had no room for something that was due */
    char watched[DEMO_WATCHED][DEMO_ID_MAX + 1]; /* users worth a look, the busiest first; "" */
};

/* Reads the input, if any. False: a line on standard error says what is wrong. */
bool demo_feed_open(struct demo_feed *feed, const struct demo_options *options);
void demo_feed_close(struct demo_feed *feed);

/* Sends what is due passed_ms after the begin, as of now_ms (Unix epoch), up to a few thousand. */
void demo_feed_step(struct demo_feed *feed, struct demo_world *world, int64_t passed_ms,
                    int64_t now_ms);

/* The share of all that is due after a share of the time, both 0 to 1: two waves, still at the
 * begin, in the middle and at the end. */
double demo_feed_wave(double share);

/* Writes {"user_id":...,"ad_id":...,"ts":...,"id":...} with everything escaped; its size, 0: it
 * does not fit. */
size_t demo_feed_json(const char *user, const char *ad, int64_t time_ms, const char *id, char *ret,
                      size_t size);

#endif
