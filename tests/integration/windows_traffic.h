/* The impressions of test_windows.c: of now, late, ahead of the clock, and tombstones.
 *
 * Every other user, the even ones, has events minutes ahead of the clock, within the default of
 * limits.max_future_skew: they count at once and stay, so there is something to compare however
 * late it gets on a slow machine. Thread rule: one thread. */
#ifndef FCAP_TESTS_WINDOWS_TRAFFIC_H
#define FCAP_TESTS_WINDOWS_TRAFFIC_H

#include "live.h"

#define WINDOWS_USERS 50 /* user-0 and on */

struct windows_traffic {
    struct live *live;
    bool is_loaded; /* events come all the while */
    uint32_t random;
    double owed;
    int64_t ticked_ms;
};

/* So many records of any kind. */
void windows_send_some(struct windows_traffic *traffic, unsigned count);
/* Whatever was erased: every user has events now, that leave the windows soon and late. */
void windows_send_to_all(struct windows_traffic *traffic);

/* Sends what is due, and pauses for some milliseconds. */
void windows_tick(struct windows_traffic *traffic);
void windows_go_on(struct windows_traffic *traffic, int64_t ms);
/* Nothing was sent for a while, and nothing of it is owed. */
void windows_rested(struct windows_traffic *traffic);

#endif
