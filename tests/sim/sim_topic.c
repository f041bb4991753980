/* Records by chance, their decoder, and the definition of every count by brute force. */
#include "sim.h"

#include "fcap/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *grow(void *old, size_t count, size_t size)
{
    void *memory = reallocarray(old, count, size);
    FCAP_ASSERT(memory != NULL);
    return memory;
}

int sim_partition_of(const struct sim_world *world, int user)
{
    return user % world->plan.partitions;
}

void sim_user_name(int user, char ret_name[8])
{
    ret_name[0] = 'u';
    ret_name[1] = (char)('0' + user);
    ret_name[2] = '\0';
}

/* --- the decoder ---
 *
 * A value is E, time be64, id be32, ad; anything else is malformed. The user is the key. Views
 * point into the record, which the fake source spoils after the handler. */

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    if (record->value.data == NULL) {
        *ret_event = (struct fcap_event){.is_tombstone = true, .user = record->key};
        return FCAP_REJECT_NONE;
    }
    struct fcap_reader reader = fcap_reader_of(record->value);
    if (fcap_reader_u8(&reader) != 'E') {
        return FCAP_REJECT_JSON;
    }
    struct fcap_event event = {.user = record->key, .has_id = true};
    event.time_ms = (int64_t)fcap_reader_be64(&reader);
    event.id_hash = fcap_hash64(fcap_reader_take(&reader, 4), 0);
    event.ad = fcap_reader_take(&reader, fcap_reader_left(&reader));
    *ret_event = event;
    return FCAP_REJECT_NONE;
}

struct fcap_decoder *sim_decoder(void)
{
    static struct fcap_decoder decoder = {.decode = decode};
    return &decoder;
}

/* --- writing --- */

static void note_record(struct sim_world *world, int partition, const struct sim_record *record)
{
    struct sim_log *log = &world->logs[partition];
    if (log->count == log->capacity) {
        log->capacity = log->capacity * 2 + 128;
        log->records = grow(log->records, log->capacity, sizeof *log->records);
    }
    sim_life_note(world, partition, (int64_t)log->count);
    log->records[log->count++] = *record;
    if (record->kind != SIM_EVENT && record->kind != SIM_TOMBSTONE) {
        return;
    }
    struct sim_offsets *mine = &world->by_user[partition][record->user];
    if (mine->count == mine->capacity) {
        mine->capacity = mine->capacity * 2 + 32;
        mine->offsets = grow(mine->offsets, mine->capacity, sizeof *mine->offsets);
    }
    mine->offsets[mine->count++] = (int32_t)(log->count - 1);
}

static int64_t draw_timestamp(struct sim_world *world)
{
    if (!world->plan.timestamps_lie) {
        return world->true_ms;
    }
    switch (sim_draw(world, 5)) {
    case 0:
        return -1;
    case 1:
        return 0;
    case 2:
        return world->true_ms / 1000; /* Seconds. */
    case 3:
        return world->true_ms - sim_between(world, 0, sim_longest(world) * 3);
    default:
        return world->true_ms;
    }
}

/* An old timestamp that the record's own event does not contradict: nobody can tell such a lie from
 * the truth, and what an initial load finds by timestamps goes by it. */
static bool is_likely(const struct sim_world *world, const struct sim_record *record)
{
    const struct fcap_settings *settings = &world->settings;
    return record->kind == SIM_EVENT && record->timestamp_ms >= FCAP_TIMESTAMP_USABLE_MS &&
           record->time_ms <=
               record->timestamp_ms + settings->future_skew_ms + settings->seek_slack_ms;
}

int64_t sim_append(struct sim_world *world, const struct sim_record *record)
{
    int partition = sim_place(world, record->user);
    struct sim_record noted = *record;
    noted.serial = ++world->serial;
    noted.appended_ms = world->true_ms;
    if (noted.timestamp_ms == SIM_NEVER) {
        noted.timestamp_ms = draw_timestamp(world);
        if (is_likely(world, &noted)) {
            noted.timestamp_ms = world->true_ms;
        }
    }
    note_record(world, partition, &noted);
    if (record->kind == SIM_SKIP) {
        fake_topic_skip(&world->topic, partition);
        return (int64_t)world->logs[partition].count - 1;
    }
    char user[8];
    char ad[8];
    sim_user_name(record->user, user);
    (void)snprintf(ad, sizeof ad, "a%d", record->ad);
    struct fcap_buffer value = {0};
    if (record->kind == SIM_EVENT) {
        fcap_buffer_put_u8(&value, 'E');
        fcap_buffer_put_be64(&value, (uint64_t)record->time_ms);
        fcap_buffer_put_be32(&value, record->id);
        fcap_buffer_put_text(&value, ad);
    } else {
        fcap_buffer_put_u8(&value, 'X');
    }
    struct fcap_bytes body =
        record->kind == SIM_TOMBSTONE ? FCAP_BYTES_NONE : fcap_buffer_bytes(&value);
    (void)fake_topic_append(&world->topic, partition, fcap_bytes_of(user), body, noted.timestamp_ms,
                            world->plan.timestamps);
    fcap_buffer_done(&value);
    return (int64_t)world->logs[partition].count - 1;
}

/* Mostly now, often late, sometimes at a window's edge, sometimes ahead. */
static int64_t draw_time(struct sim_world *world)
{
    int64_t now = world->true_ms;
    int64_t skew = world->settings.future_skew_ms;
    uint64_t kind = sim_draw(world, 100);
    if (kind < 45) {
        return now - sim_between(world, 0, 3);
    }
    if (kind < 60) {
        return now - sim_between(world, 0, world->settings.bucket_ms * 2);
    }
    if (kind < 75) {
        return now - sim_between(world, 0, sim_longest(world) * 5 / 4);
    }
    if (kind < 85) {
        size_t window = sim_draw(world, world->settings.window_count);
        return now - world->settings.windows[window].length_ms + sim_between(world, -2, 40);
    }
    return kind < 95 || now <= world->learned_ms ? now + sim_between(world, 0, skew)
                                                 : now + skew + sim_between(world, 1, skew);
}

/* Ads come and go, so that their numbers are dropped in time. */
static int draw_ad(struct sim_world *world)
{
    int64_t age = world->true_ms - world->plan.start_ms;
    int64_t era = age / (sim_longest(world) / 3 + 1);
    return (int)((era + (int64_t)sim_draw(world, (uint64_t)world->plan.ads)) % SIM_ADS_MAX);
}

static bool draw_copy(struct sim_world *world, int user, struct sim_record *ret_record)
{
    int partition = sim_partition_of(world, user);
    const struct sim_offsets *mine = &world->by_user[partition][user];
    const struct sim_log *log = &world->logs[partition];
    if (mine->count == 0) {
        return false;
    }
    size_t back = sim_draw(world, mine->count < 8 ? mine->count : 8);
    *ret_record = log->records[mine->offsets[mine->count - 1 - back]];
    if (ret_record->kind != SIM_EVENT) {
        return false;
    }
    ret_record->is_copy = true;
    ret_record->timestamp_ms = SIM_NEVER;
    if (sim_draw(world, 4) == 0) {
        ret_record->time_ms++; /* Another event, by definition. */
    }
    return true;
}

void sim_produce(struct sim_world *world)
{
    int user = (int)sim_draw(world, (uint64_t)world->plan.users);
    uint64_t kind = sim_draw(world, 100);
    struct sim_record record = {.user = user, .timestamp_ms = SIM_NEVER};
    if (kind < 4) {
        record.kind = SIM_TOMBSTONE;
    } else if (kind < 7) {
        record.kind = SIM_MALFORMED;
    } else if (kind < 9) {
        record.kind = SIM_SKIP;
    } else if (kind >= 18 || !draw_copy(world, user, &record)) {
        record.kind = SIM_EVENT;
        record.time_ms = draw_time(world);
        record.ad = draw_ad(world);
        record.id = ++world->next_id;
    }
    (void)sim_append(world, &record);
}

/* --- what a state consists of --- */

void sim_lineage_begin(struct sim_world *world, struct sim_lineage *lineage, int64_t start)
{
    (void)world;
    lineage->start = start;
    if (lineage->capacity > 0) {
        memset(lineage->decisions, SIM_ACCEPTED, lineage->capacity);
    }
}

void sim_decide(struct sim_lineage *lineage, int64_t offset, enum sim_decision decision)
{
    size_t index = (size_t)offset;
    if (index >= lineage->capacity) {
        size_t capacity = index * 2 + 128;
        lineage->decisions = grow(lineage->decisions, capacity, 1);
        memset(lineage->decisions + lineage->capacity, SIM_ACCEPTED, capacity - lineage->capacity);
        lineage->capacity = capacity;
    }
    lineage->decisions[index] = (uint8_t)decision;
}

/* --- the definition --- */

/* Retention took it before it was read, or it stood in a log that is no more. */
static bool is_gone(const struct sim_lineage *lineage, int64_t offset)
{
    return (size_t)offset < lineage->capacity && lineage->decisions[offset] >= SIM_UNREAD;
}

bool sim_is_missed(const struct sim_world *world, const struct sim_lineage *lineage,
                   const struct sim_record *record)
{
    /* What would have been refused when it was written, or by clocks that are behind, was never to
     * be counted. */
    int64_t written_ms = world->plan.timestamps_lie ? record->appended_ms : record->timestamp_ms;
    int64_t begun_ms = written_ms < lineage->begun_ms ? written_ms : lineage->begun_ms;
    int64_t future_ms = begun_ms + world->settings.future_skew_ms;
    if (world->plan.timestamps_lie && lineage->future_ms < future_ms) {
        future_ms = lineage->future_ms;
    }
    return world->settings.start == FCAP_START_TIME &&
           (record->kind == SIM_TOMBSTONE || record->time_ms <= future_ms);
}

static bool is_member(const struct sim_world *world, const struct sim_lineage *lineage,
                      const struct sim_record *record, int64_t offset)
{
    if (is_gone(lineage, offset)) {
        return false;
    }
    if (offset >= lineage->start) {
        return (size_t)offset >= lineage->capacity || lineage->decisions[offset] == SIM_ACCEPTED;
    }
    return sim_is_missed(world, lineage, record);
}

/* A tombstone that was never read erases nothing. */
static bool is_erasing(const struct sim_lineage *lineage, const struct sim_record *record,
                       int64_t offset)
{
    return record->kind == SIM_TOMBSTONE && !is_gone(lineage, offset);
}

static bool is_duplicate(const struct sim_world *world, const struct sim_lineage *lineage,
                         const struct sim_log *log, const struct sim_offsets *mine, size_t at)
{
    const struct sim_record *record = &log->records[mine->offsets[at]];
    if (!world->settings.dedup || !record->is_copy) {
        return false;
    }
    for (size_t i = 0; i < at; i++) {
        const struct sim_record *other = &log->records[mine->offsets[i]];
        if (other->kind == SIM_EVENT && other->id == record->id &&
            other->time_ms == record->time_ms &&
            is_member(world, lineage, other, mine->offsets[i])) {
            return true;
        }
    }
    return false;
}

void sim_define(const struct sim_world *world, const struct sim_lineage *lineage, int user,
                int64_t window_ms, int64_t clock_ms, int64_t next, struct sim_counts *ret_counts)
{
    const struct sim_log *log = &world->logs[lineage->partition];
    const struct sim_offsets *mine = &world->by_user[lineage->partition][user];
    *ret_counts = (struct sim_counts){.newest_ms = SIM_NEVER};
    size_t end = mine->count;
    while (end > 0 && mine->offsets[end - 1] >= next) {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && !is_erasing(lineage, &log->records[mine->offsets[begin - 1]],
                                    mine->offsets[begin - 1])) {
        begin--; /* A tombstone erases whatever stands before it. */
    }
    for (size_t i = begin; i < end; i++) {
        const struct sim_record *record = &log->records[mine->offsets[i]];
        if (record->kind != SIM_EVENT || record->time_ms <= clock_ms - window_ms ||
            !is_member(world, lineage, record, mine->offsets[i]) ||
            is_duplicate(world, lineage, log, mine, i)) {
            continue;
        }
        ret_counts->ads[record->ad]++;
        ret_counts->any = true;
        if (record->time_ms > ret_counts->newest_ms) {
            ret_counts->newest_ms = record->time_ms;
        }
    }
}

bool sim_counts_equal(const struct sim_counts *a, const struct sim_counts *b)
{
    return a->any == b->any && memcmp(a->ads, b->ads, sizeof a->ads) == 0;
}
