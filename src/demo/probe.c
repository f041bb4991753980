#include "demo/probe.h"

#include "demo/feed.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVERY_MS 500

static void measure(struct demo_measured *measured, int64_t ms)
{
    measured->kept[measured->count % DEMO_PROBES_KEPT] = ms;
    measured->count++;
    measured->max_ms = ms > measured->max_ms ? ms : measured->max_ms;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

int64_t demo_measured_median(const struct demo_measured *measured)
{
    int64_t sorted[DEMO_PROBES_KEPT];
    size_t count = measured->count < DEMO_PROBES_KEPT ? measured->count : DEMO_PROBES_KEPT;
    if (count == 0) {
        return -1;
    }
    memcpy(sorted, measured->kept, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    return sorted[count / 2];
}

void demo_probe_pause(struct demo_probe *probe)
{
    memset(probe->shots, 0, sizeof probe->shots);
}

static void send(struct demo_probe *probe, struct demo_world *world)
{
    struct demo_probe_shot *shot = &probe->shots[probe->number % DEMO_PROBES_OPEN];
    char value[256];
    char ad[24];
    char id[32];
    if (!demo_world_has_room(world, DEMO_PROBE_USER)) {
        return;
    }
    *shot = (struct demo_probe_shot){.time_ms = lab_wall_ms(), .number = probe->number++};
    (void)snprintf(ad, sizeof ad, "p%" PRIu64, shot->number);
    (void)snprintf(id, sizeof id, "probe%" PRIu64, shot->number);
    size_t size = demo_feed_json(DEMO_PROBE_USER, ad, shot->time_ms, id, value, sizeof value);
    demo_world_send(world, &(struct demo_record){.user = DEMO_PROBE_USER,
                                                 .ad = ad,
                                                 .id = id,
                                                 .time_ms = shot->time_ms,
                                                 .counts = true,
                                                 .value = value,
                                                 .value_size = size});
}

void demo_probe_step(struct demo_probe *probe, struct demo_world *world, int64_t now_ms, bool sends)
{
    char key[128];
    if (sends && now_ms - probe->sent_ms >= EVERY_MS) {
        probe->sent_ms = now_ms;
        send(probe, world);
    }
    demo_world_key(world, DEMO_PROBE_USER, 0, key, sizeof key);
    const char *value = redis_reader_text(world->reader, key);
    int64_t looked_ms = lab_wall_ms();
    for (size_t i = 0; i < DEMO_PROBES_OPEN; i++) {
        struct demo_probe_shot *shot = &probe->shots[i];
        char name[32];
        if (shot->time_ms == 0) {
            continue;
        }
        (void)snprintf(name, sizeof name, "\"p%" PRIu64 "\":", shot->number);
        bool is_there = value != NULL && strstr(value, name) != NULL;
        if (is_there && !shot->seen) {
            shot->seen = true;
            measure(&probe->freshness, looked_ms - shot->time_ms);
        } else if (!is_there && shot->seen) {
            measure(&probe->lateness, looked_ms - shot->time_ms - demo_windows[0].length_ms);
            shot->time_ms = 0;
        }
    }
}
