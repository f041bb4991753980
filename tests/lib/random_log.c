#include "lib/random_log.h"

#include "fcap/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t random_below(uint64_t *state, uint32_t bound)
{
    /* SplitMix64 (Steele, Lea, Flood, 2014). */
    uint64_t mixed = *state += 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
    mixed ^= mixed >> 31;
    return bound == 0 ? 0 : (uint32_t)(mixed % bound);
}

static bool chance(uint64_t *state, uint32_t per_1000)
{
    return random_below(state, 1000) < per_1000;
}

static int64_t draw_time(uint64_t *state, const struct random_log_options *options)
{
    if (options->edge_count > 0 && chance(state, options->edge_events)) {
        int64_t edge = options->edges[random_below(state, (uint32_t)options->edge_count)];
        return options->now_ms - edge + random_below(state, 3) - 1;
    }
    /* Most are young: all windows shall have some. */
    int64_t reach = options->span_ms * 2;
    for (int i = 0; i < 3 && chance(state, 600); i++) {
        reach /= 8;
    }
    return options->now_ms - random_below(state, (uint32_t)reach + 1);
}

static void draw_event(uint64_t *state, const struct random_log_options *options,
                       struct random_record *record)
{
    uint32_t user = random_below(state, options->users);
    if (chance(state, 300)) {
        user = 0; /* One of them sees more than the others. */
    }
    record->partition = (int32_t)(user % (uint32_t)options->partitions);
    (void)snprintf(record->user, sizeof record->user, "u%u", user);
    (void)snprintf(record->ad, sizeof record->ad, "ad-%u", random_below(state, options->ads));
    record->time_ms = draw_time(state, options);
    record->timestamp_ms = options->now_ms - random_below(state, 1000);
    record->timestamp_type =
        random_below(state, 2) == 0 ? FCAP_TIMESTAMP_CREATE : FCAP_TIMESTAMP_APPEND;
    if (chance(state, options->futures)) {
        bool is_append = record->timestamp_type == FCAP_TIMESTAMP_APPEND;
        int64_t bound = is_append ? record->timestamp_ms : options->now_ms;
        record->time_ms = bound + options->skew_ms + random_below(state, 3) - 1;
        record->is_future = record->time_ms > bound + options->skew_ms;
    }
    if (chance(state, options->with_id)) {
        (void)snprintf(record->id, sizeof record->id, "i%u", random_below(state, 1u << 30));
    }
}

struct random_record *random_log(const struct random_log_options *options)
{
    uint64_t state = options->seed;
    struct random_record *records = calloc(options->records + 1, sizeof *records);
    int64_t *next = calloc((size_t)options->partitions, sizeof *next);
    FCAP_ASSERT(records != NULL && next != NULL);
    for (size_t i = 0; i < options->records; i++) {
        struct random_record *record = &records[i];
        draw_event(&state, options, record);
        record->is_tombstone = chance(&state, options->tombstones);
        if (!record->is_tombstone && i > 0 && chance(&state, options->duplicates)) {
            const struct random_record *other = &records[random_below(&state, (uint32_t)i)];
            char ad[sizeof record->ad];
            memcpy(ad, record->ad, sizeof ad);
            *record = *other;
            if (chance(&state, 300)) {
                memcpy(record->ad, ad, sizeof ad);
            }
        }
        record->offset = next[record->partition]++;
    }
    free(next);
    return records;
}

void random_log_append(struct fake_topic *topic, const struct random_record *record)
{
    char value[80];
    (void)snprintf(value, sizeof value, "%lld|%s|%s", (long long)record->time_ms, record->ad,
                   record->id);
    int64_t offset =
        fake_topic_append(topic, record->partition, fcap_bytes_of(record->user),
                          record->is_tombstone ? FCAP_BYTES_NONE : fcap_bytes_of(value),
                          record->timestamp_ms, record->timestamp_type);
    FCAP_ASSERT(offset == record->offset);
}

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    *ret_event = (struct fcap_event){.user = record->key};
    if (record->value.data == NULL) {
        ret_event->is_tombstone = true;
        return FCAP_REJECT_NONE;
    }
    const uint8_t *end = record->value.data + record->value.size;
    const uint8_t *at = record->value.data;
    while (*at != '|') {
        ret_event->time_ms = ret_event->time_ms * 10 + (*at++ - '0');
    }
    const uint8_t *ad = ++at;
    while (*at != '|') {
        at++;
    }
    ret_event->ad = (struct fcap_bytes){ad, (size_t)(at - ad)};
    struct fcap_bytes id = {at + 1, (size_t)(end - at - 1)};
    ret_event->has_id = id.size > 0;
    ret_event->id_hash = fcap_hash64(id, 0);
    return FCAP_REJECT_NONE;
}

struct fcap_decoder *random_log_decoder(void)
{
    static struct fcap_decoder decoder = {decode};
    return &decoder;
}
