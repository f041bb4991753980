/* A whole commit, byte by byte, as the core hands it to the store: which keys, in which order, with
 * which values. Also the redo record, which only commits write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/pipeline.h"

#include "unit/golden.h"

#define NOW_MS  1700000001000
#define WEEK_MS 604800000

enum { LINES_MAX = 16, LINE_BYTES = 2048 };

struct world {
    struct fcap_clock clock;
    struct fcap_decoder decoder;
    struct fcap_source source;
    struct fcap_store store;
    struct fcap_sink sink;
    int64_t now_ms;
    bool assigned;
    struct fcap_event events[4]; /* delivered at the next poll */
    size_t event_count;
    size_t at;
    int64_t offset;
    uint64_t tokens[64];
    size_t token_count;
    const struct fcap_batch *batch; /* submitted */
    char lines[LINES_MAX][LINE_BYTES];
    size_t line_count;
};

static struct world world;

/* --- ports --------------------------------------------------------------------------------- */

static int64_t now_ms(struct fcap_clock *clock)
{
    (void)clock;
    return world.now_ms;
}

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    (void)record;
    *ret_event = world.events[world.at];
    return FCAP_REJECT_NONE;
}

static enum fcap_status source_poll(struct fcap_source *source,
                                    const struct fcap_source_handler *handler,
                                    struct fcap_source_budget budget)
{
    int32_t partition = 5;
    uint64_t assignment = 77;
    struct fcap_start start;
    (void)source;
    (void)budget;
    if (!world.assigned) {
        handler->assigned(handler->context, &partition, &assignment, 1, &start);
        struct fcap_started started = {.partition = 5, .partition_count = 12};
        handler->started(handler->context, &started);
        world.assigned = true;
    }
    for (world.at = 0; world.at < world.event_count; world.at++) {
        struct fcap_record record = {.partition = 5,
                                     .offset = world.offset++,
                                     .timestamp_ms = 1700000000000,
                                     .key = fcap_bytes_of("u1"),
                                     .value = fcap_bytes_of("v")};
        assert_true(handler->record(handler->context, &record));
    }
    world.event_count = 0;
    return FCAP_OK;
}

static bool may_send(struct fcap_source *source, int32_t partition)
{
    (void)source;
    (void)partition;
    return true;
}

static void publish(struct fcap_source *source, int32_t partition, int64_t next_offset)
{
    (void)source;
    (void)partition;
    (void)next_offset;
}

static enum fcap_status store_get(struct fcap_store *store, enum fcap_family family,
                                  struct fcap_bytes key, struct fcap_buffer *value, bool *ret_found)
{
    (void)store;
    (void)family;
    (void)key;
    fcap_buffer_clear(value);
    *ret_found = false;
    return FCAP_OK;
}

static enum fcap_status store_scan(struct fcap_store *store, enum fcap_family family,
                                   struct fcap_bytes from, struct fcap_bytes to,
                                   fcap_store_visitor visitor, void *context)
{
    (void)store;
    (void)family;
    (void)from;
    (void)to;
    (void)visitor;
    (void)context;
    return FCAP_OK;
}

static enum fcap_status store_claim(struct fcap_store *store, int32_t partition,
                                    uint64_t assignment, int64_t *ret_dropped_through_ms)
{
    (void)store;
    (void)partition;
    (void)assignment;
    *ret_dropped_through_ms = 0;
    return FCAP_OK;
}

static void store_disclaim(struct fcap_store *store, int32_t partition)
{
    (void)store;
    (void)partition;
}

static size_t put_hex(char *line, size_t at, struct fcap_bytes bytes)
{
    for (size_t i = 0; i < bytes.size; i++) {
        at +=
            (size_t)snprintf(line + at, LINE_BYTES - at, i == 0 ? "%02x" : " %02x", bytes.data[i]);
    }
    return at;
}

static enum fcap_status store_submit(struct fcap_store *store, const struct fcap_batch *batch)
{
    (void)store;
    world.batch = batch;
    world.line_count = 0;
    assert_int_equal(batch->section_count, 1);
    assert_int_equal(batch->sections[0].partition, 5);
    assert_int_equal(batch->sections[0].assignment, 77);
    assert_int_equal(batch->sections[0].count, batch->entry_count);
    for (size_t i = 0; i < batch->entry_count; i++) {
        const struct fcap_batch_entry *entry = &batch->entries[i];
        char *line = world.lines[world.line_count++];
        assert_true(world.line_count < LINES_MAX);
        size_t at = (size_t)snprintf(line, LINE_BYTES, "%s %s ", fcap_family_name(entry->family),
                                     entry->change == FCAP_CHANGE_PUT ? "put" : "delete");
        at = put_hex(line, at, fcap_batch_key(batch, i));
        if (entry->change == FCAP_CHANGE_PUT) {
            at += (size_t)snprintf(line + at, LINE_BYTES - at, " = ");
            (void)put_hex(line, at, fcap_batch_value(batch, i));
        }
    }
    return FCAP_OK;
}

static enum fcap_status store_completed(struct fcap_store *store, int wait_ms,
                                        const struct fcap_batch **ret_batch,
                                        enum fcap_status *ret_result)
{
    (void)store;
    (void)wait_ms;
    *ret_batch = world.batch;
    *ret_result = FCAP_OK;
    world.batch = NULL;
    return FCAP_OK;
}

static enum fcap_status store_sync(struct fcap_store *store, uint64_t *ticket, bool *ret_done)
{
    (void)store;
    *ticket = 1;
    *ret_done = true;
    return FCAP_OK;
}

static void store_release(struct fcap_store *store, int32_t partition, int64_t history_ms)
{
    (void)store;
    (void)partition;
    (void)history_ms;
}

static enum fcap_status sink_push(struct fcap_sink *sink, const struct fcap_push *push)
{
    (void)sink;
    assert_true(world.token_count < 64);
    world.tokens[world.token_count++] = push->token;
    return FCAP_OK;
}

static enum fcap_status sink_poll(struct fcap_sink *sink, const struct fcap_sink_handler *handler,
                                  int timeout_ms)
{
    (void)sink;
    (void)timeout_ms;
    for (size_t i = 0; i < world.token_count; i++) {
        handler->acked(handler->context, world.tokens[i], FCAP_PUSH_DONE, 3);
    }
    world.token_count = 0;
    return FCAP_OK;
}

static void sink_state(struct fcap_sink *sink, struct fcap_sink_state *ret_state)
{
    (void)sink;
    *ret_state = (struct fcap_sink_state){
        .ready = true, .connection = 1, .time_known = true, .time_ms = world.now_ms};
    for (uint8_t i = 0; i < 16; i++) {
        ret_state->identity.bytes[i] = i;
    }
}

/* --- the test ------------------------------------------------------------------------------ */

static struct fcap_pipeline *open_pipeline(void)
{
    static const struct fcap_source_ops source_ops = {source_poll, may_send, publish};
    static const struct fcap_store_ops store_ops = {store_get,      store_scan,   store_claim,
                                                    store_disclaim, store_submit, store_completed,
                                                    store_sync,     store_release};
    static const struct fcap_sink_ops sink_ops = {sink_push, sink_poll, sink_state};
    struct fcap_settings settings;
    struct fcap_pipeline *pipeline = NULL;
    world = (struct world){.clock = {now_ms, now_ms},
                           .decoder = {decode},
                           .source = {&source_ops},
                           .store = {&store_ops},
                           .sink = {&sink_ops},
                           .now_ms = NOW_MS};
    struct fcap_ports ports = {.clock = &world.clock,
                               .decoder = &world.decoder,
                               .source = &world.source,
                               .store = &world.store,
                               .sink = &world.sink};
    fcap_settings_default(&settings);
    settings.profile = "test";
    settings.key_pattern = "fc:{%u}:%w";
    settings.bucket_ms = 60000;
    settings.commit_interval_ms = INT64_MAX / 4; /* Only when there are enough events. */
    settings.commit_events = 4;
    settings.dedup = true;
    settings.window_count = 2;
    settings.windows[0] = (struct fcap_window){"1d", 86400000};
    settings.windows[1] = (struct fcap_window){"7d", WEEK_MS};
    assert_int_equal(fcap_pipeline_open(&settings, &ports, &pipeline, NULL), FCAP_OK);
    return pipeline;
}

static void check_lines(const char *const *wanted, size_t count)
{
    for (size_t i = 0; i < count && i < world.line_count; i++) {
        assert_string_equal(world.lines[i], wanted[i]);
    }
    assert_int_equal(world.line_count, count);
}

static void step(struct fcap_pipeline *pipeline)
{
    if (fcap_pipeline_step(pipeline, 0) != FCAP_OK) {
        fail_msg("%s", fcap_pipeline_error(pipeline));
    }
}

#define U1 .user = {(const uint8_t *)"u1", 2}
#define A1 .ad = {(const uint8_t *)"a1", 2}

#define REDO "00 00 01 8b cf e5 6b e8 00 00 01 8b ab d8 e7 e8 95 aa c1 0d 01"

/* Meta: next offset 4, the key's hash, T and H; then what differs between the commits; then the
 * numbers, that a second look is due, and windows. */
#define META_1                                                                                     \
    "default put 00 05 74 61 73 6b = 02 00 00 00 00 00 00 00 04 00 00 01 8b cf e5 68 00 "          \
    "06 e8 41 7d 0f e6 61 3f 00 00 01 8b cf e5 6b e8 00 00 01 8b ab d8 e7 e8 "                     \
    "80 00 00 00 00 00 00 00 "
#define META_2                                                                                     \
    " 00 00 01 8b cf e5 6b e8 00 00 01 8b ab d8 e7 e8 00 00 00 02 00 00 00 01 "                    \
    "00 00 00 00 00 00 ea 60 00 00 00 0c "
#define META_3(shown)                                                                              \
    " 80 00 00 00 00 00 00 00 80 00 00 00 00 00 00 00 80 00 00 00 00 00 00 00 00 00 00 00 02 "     \
    "02 00 00 00 00 00 00 05 26 5c 00 02 31 64 " shown " 00 00 01 8b ca bf 0f e8 "                 \
    "80 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "                     \
    "00 01 00 00 00 00 24 0c 84 00 02 37 64 " shown " 00 00 01 8b ab d8 e7 e8 "                    \
    "80 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"

/* No record is written yet, for the timers hold the same: so there is a redo record. The first
 * bucket holds three events, the second starts with the fourth. */
static const char *const first_commit[] = {
    /* newest commit 1, valid from 1, redo from 1; epoch 3 */
    META_1 "00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 01" META_2
           "00 00 00 00 00 00 00 03" META_3("00"),
    /* The trail: at offset 4, after a record of that time and key. */
    "default put 00 05 74 72 61 69 6c = "
    "01 00 00 00 00 00 00 00 04 00 00 01 8b cf e5 68 00 06 e8 41 7d 0f e6 61 3f",
    "timers put 00 00 01 8b cf e5 19 e0 00 05 00 00 00 00 00 00 00 01 00 00 = "
    "11 a0 9c 01 00 02 75 31 01 01 02 03 04 05 06 07 08 "
    "00 01 01 01 02 03 04 05 06 07 09 bf b8 02 01 01 00 00 00 00 00 00 00 03",
    "timers put 00 00 01 8b cf e6 04 40 00 05 00 00 00 00 00 00 00 01 00 00 = "
    "11 00 00 02 75 31 01 00 00 00 00 00 00 00 04",
    "default put 00 05 72 65 64 6f 00 00 00 00 00 00 00 01 = " REDO,
    "ads put 00 05 00 00 00 00 = db 99 01 61 31",
};

/* Draining writes every record, and nothing is left to be redone. */
static const char *const last_commit[] = {
    "default delete 00 05 72 65 64 6f 00 00 00 00 00 00 00 01",
    "default delete 00 05 72 65 64 6f 00 00 00 00 00 00 00 02",
    /* newest commit 2, valid from 1, redo from 3; epoch 3 */
    META_1 "00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 03" META_2
           "00 00 00 00 00 00 00 03" META_3("02"),
    "users put 00 05 75 31 = 10 02 c1 88 98 ff bc 31 00 03 01 04 04",
};

static void test_commits(void **state)
{
    struct fcap_pipeline *pipeline = open_pipeline();
    const struct fcap_event events[4] = {
        {U1, A1, .time_ms = 1700000000000, .has_id = true, .id_hash = 0x0102030405060708},
        {U1, A1, .time_ms = 1700000000000, .has_id = true, .id_hash = 0x0102030405060709},
        {U1, A1, .time_ms = 1700000039999, .has_id = true, .id_hash = 3},
        {U1, A1, .time_ms = 1700000040000, .has_id = true, .id_hash = 4},
    };
    (void)state;
    memcpy(world.events, events, sizeof events);
    world.event_count = 4;
    for (int i = 0; i < 5; i++) {
        step(pipeline);
    }
    check_lines(first_commit, sizeof first_commit / sizeof first_commit[0]);
    assert_int_equal(fcap_pipeline_drain(pipeline, INT64_MAX), FCAP_OK);
    check_lines(last_commit, sizeof last_commit / sizeof last_commit[0]);
    golden_documented(REDO);
    fcap_pipeline_close(pipeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_commits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
