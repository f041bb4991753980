/* Starts by time where timestamps are not what they should be (docs/decisions/0018). */
#include "source_contract.h"

#include "lib/source_recorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEADLINE_MS 30000
#define BASE_MS     INT64_C(1700000000000)

static const struct fcap_source_budget plenty = {.records_max = 1000, .timeout_ms = 50};

static struct source_world *world;

/* "e<ms>" is an event of that time; anything else is none. */
static enum fcap_reject decode_time(struct fcap_decoder *decoder, const struct fcap_record *record,
                                    struct fcap_event *ret_event)
{
    char text[32] = "";
    (void)decoder;
    if (record->value.data == NULL) {
        *ret_event = (struct fcap_event){.is_tombstone = true, .user = record->key};
        return FCAP_REJECT_NONE;
    }
    memcpy(text, record->value.data, record->value.size < 31 ? record->value.size : 31);
    if (text[0] != 'e') {
        return FCAP_REJECT_JSON;
    }
    *ret_event = (struct fcap_event){
        .user = record->key, .ad = record->key, .time_ms = strtoll(text + 1, NULL, 10)};
    return FCAP_REJECT_NONE;
}

static struct fcap_decoder decoder = {decode_time};

void source_contract_times(struct source_world *of)
{
    world = of;
    world->decoder = &decoder;
}

/* Records of one kind in a row. */
struct stretch {
    int count;
    enum { EVENTS, TOMBSTONES, OTHERS, MARKERS } what;
    int64_t timestamp_ms;
    int64_t event_ms;
};

static void append_stretch(int32_t partition, const struct stretch *stretch)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%c%lld", stretch->what == EVENTS ? 'e' : 'x',
                   (long long)stretch->event_ms);
    if (stretch->what == MARKERS) {
        world->append_aborted(world, partition, stretch->count - 1);
        return;
    }
    for (int i = 0; i < stretch->count; i++) {
        world->append(world, partition, fcap_bytes_of("k"),
                      stretch->what == TOMBSTONES ? FCAP_BYTES_NONE : fcap_bytes_of(text),
                      stretch->timestamp_ms);
    }
    world->settle(world);
}

#define HOUR_MS INT64_C(3600000)
#define LONG_MS (720 * HOUR_MS)

/* A start at BASE_MS - HOUR_MS by the timestamps, for events after BASE_MS. B10: timestamps are the
 * producer's word; none of the lies may hide an event that counts. */
static const struct time_case {
    const char *name;
    bool by_time;   /* the look-up itself must work */
    bool by_marker; /* and transactions */
    struct stretch log[4];
    bool is_missing;
    int64_t offset; /* where reading starts otherwise */
} time_cases[] = {
    {"all is older", false, false, {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS}}, false, 9},
    {"stamps are old, events are not",
     false,
     false,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS + 1}},
     true,
     0},
    {"seconds", false, false, {{9, EVENTS, BASE_MS / 1000, BASE_MS + 1}}, true, 0},
    {"seconds, and nothing to decode", false, false, {{9, OTHERS, BASE_MS / 1000, 0}}, true, 0},
    {"a tombstone tells nothing",
     false,
     false,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS}, {3, TOMBSTONES, BASE_MS - LONG_MS, 0}},
     false,
     12},
    {"far in the future, so never counted",
     false,
     false,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS + LONG_MS}},
     false,
     9},
    {"one producer of two",
     false,
     false,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS},
      {1, EVENTS, BASE_MS - LONG_MS, BASE_MS + 1},
      {9, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS}},
     true,
     0},
    {"right again since a while",
     true,
     false,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS + 1}, {9, EVENTS, BASE_MS + 2, BASE_MS + 2}},
     true,
     0},
    {"old, then wrong, then right",
     true,
     false,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS},
      {9, EVENTS, BASE_MS - LONG_MS, BASE_MS + 1},
      {9, EVENTS, BASE_MS + 2, BASE_MS + 2}},
     true,
     0},
    {"wrong, but long over",
     true,
     false,
     {{9, EVENTS, BASE_MS - 2 * LONG_MS, BASE_MS - LONG_MS}, {9, EVENTS, BASE_MS + 2, BASE_MS + 2}},
     false,
     9},
    {"wrong only behind the start",
     true,
     false,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS},
      {1, EVENTS, BASE_MS, BASE_MS + 2},
      {9, EVENTS, BASE_MS - LONG_MS, BASE_MS + 2}},
     false,
     9},
    {"in the future: everything is read",
     true,
     false,
     {{9, EVENTS, BASE_MS + LONG_MS, BASE_MS + 1}},
     false,
     0},
    {"behind markers",
     true,
     true,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS + 1},
      {1200, MARKERS, 0, 0},
      {1, EVENTS, BASE_MS + 2, BASE_MS + 2}},
     true,
     0},
    {"far into the log",
     true,
     false,
     {{2500, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS},
      {600, EVENTS, BASE_MS + 1, BASE_MS + 1}},
     false,
     2500},
    {"another page of the log than the wrong ones",
     true,
     false,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS + 1},
      {2500, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS},
      {600, EVENTS, BASE_MS + 1, BASE_MS + 1}},
     false,
     2509},
};

#define CASES (sizeof time_cases / sizeof time_cases[0])

static void append_case(int32_t partition, const struct time_case *of)
{
    for (size_t i = 0; i < sizeof of->log / sizeof of->log[0]; i++) {
        append_stretch(partition, &of->log[i]);
    }
}

static int64_t end_of(const struct time_case *of)
{
    int64_t end = 0;
    for (size_t i = 0; i < sizeof of->log / sizeof of->log[0]; i++) {
        end += of->log[i].count;
    }
    return end;
}

static bool is_possible(const struct time_case *of)
{
    return (!of->by_time || world->has_times) && (!of->by_marker || world->can_trim);
}

static int ended(const struct recorder *recorder)
{
    int count = 0;
    for (size_t i = 0; i < CASES; i++) {
        count +=
            recorder->partitions[i].ended >= end_of(&time_cases[i]) || !is_possible(&time_cases[i]);
    }
    return count;
}

/* A partition for each. */
void source_contract_B10_timestamps_that_lie(void **state)
{
    struct recorder recorder;
    (void)state;
    recorder_init(&recorder, (struct fcap_start){.kind = FCAP_START_TIME,
                                                 .time_ms = BASE_MS - HOUR_MS,
                                                 .after_ms = BASE_MS,
                                                 .future_ms = BASE_MS + HOUR_MS});
    world->create(world, CASES);
    for (size_t i = 0; i < CASES; i++) {
        if (is_possible(&time_cases[i])) {
            append_case((int32_t)i, &time_cases[i]);
        }
    }
    world->settle(world);
    struct fcap_source *source = world->open(world);
    assert_true(
        RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS, ended(&recorder) == CASES));
    for (size_t i = 0; i < CASES; i++) {
        const struct time_case *of = &time_cases[i];
        const struct fcap_started *started = &recorder.partitions[i].last_start;
        if (is_possible(of) && (started->timestamps_unusable != of->is_missing ||
                                started->offset != (of->is_missing ? 0 : of->offset))) {
            fail_msg("%s: starts at %d%s", of->name, (int)started->offset,
                     started->timestamps_unusable ? ", unusable" : "");
        }
    }
    if (recorder.violations > 0) {
        fail_msg("%s", recorder.violation);
    }
    world->close(world, &recorder.handler);
    world->destroy(world);
}

/* Of each log retention has taken 4 records. */
static const struct time_case cut_cases[] = {
    {"a late event whose stamp is right",
     true,
     false,
     {{9, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS}, {1, EVENTS, BASE_MS, BASE_MS}},
     false,
     9},
    {"one of them",
     true,
     false,
     {{4, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS},
      {1, EVENTS, BASE_MS - LONG_MS, BASE_MS - LONG_MS},
      {4, EVENTS, BASE_MS - 2 * LONG_MS, BASE_MS - LONG_MS},
      {1, EVENTS, BASE_MS, BASE_MS}},
     false,
     9},
    {"late events whose stamps are wrong",
     true,
     false,
     {{9, EVENTS, BASE_MS - 2 * LONG_MS, BASE_MS - LONG_MS}, {1, EVENTS, BASE_MS, BASE_MS}},
     false,
     4},
    {"no events",
     true,
     false,
     {{9, OTHERS, BASE_MS - LONG_MS, 0}, {1, EVENTS, BASE_MS, BASE_MS}},
     false,
     4},
    {"too many to look at",
     true,
     false,
     {{2000, OTHERS, BASE_MS - LONG_MS, 0}, {1, EVENTS, BASE_MS, BASE_MS}},
     false,
     2000},
};

#define CUT_CASES (sizeof cut_cases / sizeof cut_cases[0])

/* Where a cut log does not tell when it was written, nothing says how late what it has lost was. */
void source_contract_cut_log(void **state)
{
    struct recorder recorder;
    int ended_count = 0;
    (void)state;
    recorder_init(&recorder, (struct fcap_start){.kind = FCAP_START_TIME,
                                                 .time_ms = BASE_MS - HOUR_MS,
                                                 .after_ms = BASE_MS - 1,
                                                 .future_ms = BASE_MS + HOUR_MS});
    world->create(world, CUT_CASES);
    for (size_t i = 0; i < CUT_CASES; i++) {
        append_case((int32_t)i, &cut_cases[i]);
        world->trim(world, (int32_t)i, 4);
    }
    world->settle(world);
    struct fcap_source *source = world->open(world);
    while (ended_count < (int)CUT_CASES) {
        assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                        recorder.partitions[ended_count].ended >=
                                            end_of(&cut_cases[ended_count])));
        ended_count++;
    }
    for (size_t i = 0; i < CUT_CASES; i++) {
        const struct fcap_started *started = &recorder.partitions[i].last_start;
        if (started->timestamps_unusable || started->offset != cut_cases[i].offset) {
            fail_msg("%s: starts at %d%s", cut_cases[i].name, (int)started->offset,
                     started->timestamps_unusable ? ", unusable" : "");
        }
    }
    if (recorder.violations > 0) {
        fail_msg("%s", recorder.violation);
    }
    world->close(world, &recorder.handler);
    world->destroy(world);
}
