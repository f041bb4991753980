/* The comparison: values as they were pushed, and records as a restart finds them, against a
 * recount of the sampled users' events. */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_sample(const struct world *world, uint64_t user)
{
    return user % world->sample_every == 0 && user / world->sample_every < SAMPLES_MAX;
}

/* 16 bytes; key order has nothing to do with popularity. */
void name_user(uint64_t user, char *text)
{
    (void)snprintf(text, 17, "%016llx", (unsigned long long)mix(user + 1)); /* Always fits. */
}

void samples_note(struct world *world, uint64_t user, uint32_t ad, int64_t time_ms)
{
    if (world->sample_count == 0 || !is_sample(world, user)) {
        return;
    }
    if (world->event_count == world->event_capacity) {
        world->event_capacity = world->event_capacity * 2 + 4096;
        world->events = realloc(world->events, world->event_capacity * sizeof *world->events);
    }
    world->events[world->event_count++] =
        (struct sample_event){time_ms, (uint32_t)(user / world->sample_every), ad};
}

/* The key is {user}:window; keeps the last value of the sampled users. */
void samples_keep(struct world *world, const struct fcap_push *push)
{
    uint64_t checked = 0;
    if (world->sample_count == 0) {
        return;
    }
    for (int i = 0; i < 16; i++) {
        int digit = push->key.data[1 + i];
        checked = checked << 4 | (uint64_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if ((world->sample_filter[(checked >> 3) & 0xFFFF] >> (checked & 7) & 1) == 0) {
        return;
    }
    size_t low = 0;
    size_t high = world->sample_count;
    const uint64_t *ids = (const uint64_t *)(world->values + world->sample_count * WINDOWS);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ids[middle * 2] < checked) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == world->sample_count || ids[low * 2] != checked) {
        return;
    }
    size_t window = push->key.data[19] == '1' ? 0 : push->key.data[19] == '3' ? 1 : 2;
    struct sample_value *value = &world->values[ids[low * 2 + 1] * WINDOWS + window];
    free(value->text);
    value->text = NULL;
    if (push->kind == FCAP_PUSH_SET) {
        value->text = strndup((const char *)push->value.data, push->value.size);
        value->expire_at_ms = push->expire_at_ms;
    }
}

static int compare_ids(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

void samples_prepare(struct world *world)
{
    uint64_t users = world->options.users;
    world->sample_every = users / SAMPLES_MAX > 0 ? users / SAMPLES_MAX : 1;
    world->sample_count = users / world->sample_every;
    if (world->sample_count > SAMPLES_MAX) {
        world->sample_count = SAMPLES_MAX;
    }
    world->sample_filter = calloc(1, 0x10000);
    /* Values, then (hashed id, sample) pairs in id order. */
    world->values =
        calloc(world->sample_count * WINDOWS + world->sample_count, sizeof *world->values);
    uint64_t *ids = (uint64_t *)(world->values + world->sample_count * WINDOWS);
    for (size_t i = 0; i < world->sample_count; i++) {
        ids[i * 2] = mix(i * world->sample_every + 1);
        ids[i * 2 + 1] = i;
        world->sample_filter[(ids[i * 2] >> 3) & 0xFFFF] |= (uint8_t)(1u << (ids[i * 2] & 7));
    }
    qsort(ids, world->sample_count, 2 * sizeof *ids, compare_ids);
}

/* Reads `"a12":3` pairs behind "counts":{ into counts by ad. */
static bool read_counts(const char *text, uint32_t *counts)
{
    memset(counts, 0, AD_POOL * sizeof *counts);
    if (text == NULL) {
        return true;
    }
    const char *at = strstr(text, "\"counts\":{");
    if (at == NULL || strstr(text, "partial") != NULL) {
        return false;
    }
    for (at += 10; *at == '"' || *at == ',';) {
        at += *at == ',';
        unsigned ad;
        unsigned count;
        int size = 0;
        if (sscanf(at, "\"a%u\":%u%n", &ad, &count, &size) != 2 || ad >= AD_POOL) {
            return false;
        }
        counts[ad] = count;
        at += size;
    }
    return *at == '}';
}

static int compare_sample_events(const void *left, const void *right)
{
    const struct sample_event *a = left;
    const struct sample_event *b = right;
    return a->sample < b->sample ? -1 : a->sample > b->sample;
}

static bool sample_agrees(struct world *world, struct fcap_pipeline *pipeline, size_t sample,
                          const struct sample_event *events, size_t count, uint64_t *nonempty)
{
    static uint32_t wanted[AD_POOL];
    static uint32_t pushed[AD_POOL];
    static uint32_t stored[AD_POOL];
    bool agrees = true;
    uint64_t user = sample * world->sample_every;
    char name[17];
    name_user(user, name);
    for (size_t w = 0; w < WINDOWS; w++) {
        memset(wanted, 0, sizeof wanted);
        for (size_t i = 0; i < count; i++) {
            wanted[events[i].ad] += events[i].time_ms > world->now_ms - engine_lengths_ms[w];
        }
        const struct sample_value *value = &world->values[sample * WINDOWS + w];
        bool alive = value->text != NULL && value->expire_at_ms >= world->now_ms;
        struct fcap_buffer text = {0};
        agrees = agrees &&
                 fcap_pipeline_inspect(pipeline, (int32_t)(mix(user) % world->options.partitions),
                                       (struct fcap_bytes){(uint8_t *)name, 16}, w, &text);
        fcap_buffer_put_u8(&text, 0);
        agrees = agrees && read_counts(alive ? value->text : NULL, pushed) &&
                 read_counts((const char *)text.data, stored) &&
                 memcmp(wanted, pushed, sizeof wanted) == 0 &&
                 memcmp(wanted, stored, sizeof wanted) == 0;
        fcap_buffer_done(&text);
        *nonempty += alive;
    }
    return agrees;
}

struct verdict samples_compare(struct world *world, struct fcap_pipeline *pipeline)
{
    struct verdict verdict = {0};
    qsort(world->events, world->event_count, sizeof *world->events, compare_sample_events);
    size_t at = 0;
    for (size_t sample = 0; sample < world->sample_count; sample++) {
        size_t first = at;
        while (at < world->event_count && world->events[at].sample == sample) {
            at++;
        }
        verdict.users_compared++;
        verdict.mismatches += !sample_agrees(world, pipeline, sample, &world->events[first],
                                             at - first, &verdict.nonempty);
    }
    return verdict;
}

/* Retained events: with the late ones, what a recount over 7 days would still see. */
uint64_t samples_retained(const struct world *world)
{
    uint64_t sampled = 0;
    for (size_t i = 0; i < world->event_count; i++) {
        sampled += world->events[i].time_ms > world->now_ms - engine_lengths_ms[WINDOWS - 1];
    }
    /* The whole from the share of all events that the samples had. */
    return (uint64_t)((double)world->total * (double)sampled / (double)world->event_count);
}
