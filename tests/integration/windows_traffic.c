/* See windows_traffic.h. */
#include "windows_traffic.h"

#include "lab/lab.h"

#include <stdio.h>

#define ADS      5
#define RATE     250    /* events a second, under load */
#define LATE_MS  28000  /* the oldest events that are sent: some come too late for everything */
#define AHEAD_MS 240000 /* the farthest ahead of the clock; the default skew is 5 min */
#define NEAR_MS  20000  /* the odd users' events are less far ahead */
#define TICK_MS  10

static uint32_t draw(struct windows_traffic *traffic, uint32_t bound)
{
    traffic->random = traffic->random * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(traffic->random >> 8) * bound >> 24);
}

static void send_event(struct windows_traffic *traffic, unsigned user_index, int64_t time_ms)
{
    char user[16];
    char ad[16];
    (void)snprintf(user, sizeof user, "user-%u", user_index);
    (void)snprintf(ad, sizeof ad, "ad-%u", draw(traffic, ADS));
    live_send(traffic->live, user, ad, time_ms, NULL);
}

static void send_ahead(struct windows_traffic *traffic, unsigned user_index)
{
    int64_t near_ms = draw(traffic, NEAR_MS);
    send_event(traffic, user_index,
               lab_wall_ms() + (user_index % 2 == 0 ? AHEAD_MS - near_ms : near_ms));
}

/* Mostly of now, often late, at times ahead; now and then a tombstone. */
static void send_one(struct windows_traffic *traffic)
{
    uint32_t kind = draw(traffic, 100);
    unsigned user_index = draw(traffic, WINDOWS_USERS);
    if (kind == 0 && draw(traffic, 4) == 0) {
        char user[16];
        (void)snprintf(user, sizeof user, "user-%u", user_index);
        live_send_tombstone(traffic->live, user);
    } else if (kind < 10) {
        send_ahead(traffic, user_index);
    } else {
        send_event(traffic, user_index,
                   lab_wall_ms() - (kind < 50 ? draw(traffic, 50) : draw(traffic, LATE_MS)));
    }
}

void windows_send_some(struct windows_traffic *traffic, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        send_one(traffic);
    }
}

void windows_send_to_all(struct windows_traffic *traffic)
{
    for (unsigned i = 0; i < WINDOWS_USERS; i++) {
        send_event(traffic, i, lab_wall_ms() - draw(traffic, LATE_MS));
        send_event(traffic, i, lab_wall_ms());
        send_ahead(traffic, i);
    }
}

void windows_tick(struct windows_traffic *traffic)
{
    int64_t now_ms = lab_monotonic_ms();
    int64_t passed_ms = now_ms - traffic->ticked_ms;
    traffic->ticked_ms = now_ms;
    traffic->owed +=
        traffic->is_loaded ? (double)(passed_ms > 500 ? 500 : passed_ms) * RATE / 1000 : 0;
    for (; traffic->owed >= 1; traffic->owed--) {
        send_one(traffic);
    }
    lab_pause_ms(TICK_MS);
}

void windows_go_on(struct windows_traffic *traffic, int64_t ms)
{
    int64_t until_ms = lab_monotonic_ms() + ms;
    while (lab_monotonic_ms() < until_ms) {
        windows_tick(traffic);
    }
}

void windows_rested(struct windows_traffic *traffic)
{
    traffic->ticked_ms = lab_monotonic_ms();
    traffic->owed = 0;
}
