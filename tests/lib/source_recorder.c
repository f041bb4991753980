#include "lib/source_recorder.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

int64_t recorder_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((format(printf, 2, 3))) static void violate(struct recorder *recorder,
                                                          const char *format, ...)
{
    if (recorder->violations++ == 0) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(recorder->violation, sizeof recorder->violation, format, arguments);
        va_end(arguments);
    }
}

static void position(void *context, int32_t id, struct fcap_start *ret_start)
{
    const struct recorder *recorder = context;
    const struct recorder_partition *partition = &recorder->partitions[id];
    fcap_trail_start(&partition->trail, partition->next, &partition->last, ret_start);
}

static void assigned(void *context, const int32_t *partitions, const uint64_t *assignments,
                     size_t count, struct fcap_start *ret_starts)
{
    struct recorder *recorder = context;
    for (size_t i = 0; i < count; i++) {
        struct recorder_partition *partition = &recorder->partitions[partitions[i]];
        if (partition->owned) {
            violate(recorder, "%" PRId32 " assigned twice", partitions[i]);
        }
        if (assignments[i] <= recorder->max_assignment) {
            violate(recorder, "assignment number %" PRIu64 " came before", assignments[i]);
        }
        recorder->max_assignment = assignments[i];
        if (partition->assigned_count == 0) {
            partition->start = recorder->default_start;
        } else if (recorder->resume) {
            position(context, partitions[i], &partition->start);
        }
        ret_starts[i] =
            partition->held ? (struct fcap_start){.kind = FCAP_START_LATER} : partition->start;
        partition->owned = true;
        partition->started = false;
        partition->ended = -1;
        partition->assignment = assignments[i];
        partition->assigned_count++;
    }
}

static bool resumed(void *context, int32_t id, struct fcap_start *ret_start)
{
    struct recorder *recorder = context;
    struct recorder_partition *partition = &recorder->partitions[id];
    if (!partition->owned || partition->started) {
        violate(recorder, "%" PRId32 " asked for again, not owned or started", id);
    }
    partition->resumed_count++;
    *ret_start = partition->start;
    return !partition->held;
}

static void started(void *context, const struct fcap_started *started_at)
{
    struct recorder *recorder = context;
    struct recorder_partition *partition = &recorder->partitions[started_at->partition];
    if (!partition->owned) {
        violate(recorder, "%" PRId32 " started but not owned", started_at->partition);
    }
    partition->started = true;
    partition->started_count++;
    partition->last_start = *started_at;
    partition->next = started_at->offset;
}

static void revoked(void *context, const int32_t *partitions, size_t count, bool lost)
{
    struct recorder *recorder = context;
    for (size_t i = 0; i < count; i++) {
        struct recorder_partition *partition = &recorder->partitions[partitions[i]];
        if (!partition->owned) {
            violate(recorder, "%" PRId32 " revoked but not owned", partitions[i]);
        }
        partition->owned = false;
        partition->started = false;
        partition->revoked_count++;
        partition->lost_count += lost ? 1 : 0;
    }
}

static bool record(void *context, const struct fcap_record *given)
{
    struct recorder *recorder = context;
    struct recorder_partition *partition = &recorder->partitions[given->partition];
    if (!partition->owned || !partition->started) {
        violate(recorder, "record %" PRId32 "@%" PRId64 " before its start", given->partition,
                given->offset);
    }
    if (given->offset < partition->next) {
        violate(recorder, "record %" PRId32 "@%" PRId64 " below %" PRId64, given->partition,
                given->offset, partition->next);
    }
    partition->next = given->offset + 1;
    partition->records++;
    recorder->records++;
    partition->last =
        (struct fcap_log_mark){partition->next, given->timestamp_ms, fcap_hash64(given->key, 0)};
    if (partition->next % 16 == 0) {
        (void)fcap_trail_add(&partition->trail, &partition->last);
    }
    if (recorder->on_record != NULL) {
        recorder->on_record(recorder->on_record_context, given);
    }
    return recorder->stop_after == 0 || recorder->records % recorder->stop_after != 0;
}

static void reached_end(void *context, int32_t id, int64_t offset)
{
    struct recorder *recorder = context;
    struct recorder_partition *partition = &recorder->partitions[id];
    if (!partition->started || offset < partition->next) {
        violate(recorder, "end of %" PRId32 " at %" PRId64 ", next is %" PRId64, id, offset,
                partition->next);
    }
    partition->ended = offset;
    partition->end_count++;
}

static struct fcap_start gap(void *context, const struct fcap_gap *found)
{
    struct recorder *recorder = context;
    struct recorder_partition *partition = &recorder->partitions[found->partition];
    partition->gap_count++;
    partition->last_gap = *found;
    partition->last = (struct fcap_log_mark){0};
    fcap_trail_cut(&partition->trail, found->same);
    partition->started = false;
    if (recorder->gap_start.kind == FCAP_START_OFFSET && recorder->gap_start.offset < 0) {
        return (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = found->next};
    }
    return recorder->gap_start;
}

void recorder_init(struct recorder *recorder, struct fcap_start start)
{
    *recorder = (struct recorder){
        .handler = {.context = recorder,
                    .assigned = assigned,
                    .started = started,
                    .revoked = revoked,
                    .record = record,
                    .reached_end = reached_end,
                    .gap = gap,
                    .position = position,
                    .resumed = resumed},
        .default_start = start,
        .resume = true,
        .gap_start = {.kind = FCAP_START_OFFSET, .offset = -1},
    };
    for (int i = 0; i < RECORDER_PARTITIONS; i++) {
        recorder->partitions[i].ended = -1;
    }
}

int recorder_owned(const struct recorder *recorder)
{
    int count = 0;
    for (int i = 0; i < RECORDER_PARTITIONS; i++) {
        count += recorder->partitions[i].owned ? 1 : 0;
    }
    return count;
}

int recorder_started(const struct recorder *recorder)
{
    int count = 0;
    for (int i = 0; i < RECORDER_PARTITIONS; i++) {
        count += recorder->partitions[i].started ? 1 : 0;
    }
    return count;
}
