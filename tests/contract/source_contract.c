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
static const struct fcap_start from_start = {.kind = FCAP_START_EARLIEST};

static struct source_world *world;

static void append_number(int32_t partition, int number, int64_t timestamp_ms)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d", number);
    world->append(world, partition, fcap_bytes_of("k"), fcap_bytes_of(text), timestamp_ms);
}

static void append_many(int32_t partition, int count)
{
    for (int i = 0; i < count; i++) {
        append_number(partition, i, BASE_MS + i);
    }
    world->settle(world);
}

static void assert_clean(const struct recorder *recorder)
{
    if (recorder->violations > 0) {
        fail_msg("%u violations, first: %s", recorder->violations, recorder->violation);
    }
}

/* --- bytes ---------------------------------------------------------------------------------- */

struct seen {
    bool key_null, value_null;
    char key[16], value[16];
    int64_t timestamp_ms;
    enum fcap_timestamp_type type;
};

static struct seen seen[8];

static void note(void *context, const struct fcap_record *record)
{
    (void)context;
    struct seen *at = &seen[record->offset];
    *at = (struct seen){.key_null = record->key.data == NULL,
                        .value_null = record->value.data == NULL,
                        .timestamp_ms = record->timestamp_ms,
                        .type = record->timestamp_type};
    if (record->key.size > 0) {
        memcpy(at->key, record->key.data, record->key.size);
    }
    if (record->value.size > 0) {
        memcpy(at->value, record->value.data, record->value.size);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, from_start);
    recorder.on_record = note;
    world->create(world, 1);
    world->append(world, 0, fcap_bytes_of("key"), fcap_bytes_of("value"), BASE_MS);
    world->append(world, 0, FCAP_BYTES_NONE, fcap_bytes_of("v"), BASE_MS + 1);
    world->append(world, 0, fcap_bytes_of("k"), FCAP_BYTES_NONE, BASE_MS + 2);
    world->append(world, 0, fcap_bytes_of("k"), fcap_bytes_of(""), BASE_MS + 3);
    world->append(world, 0, FCAP_BYTES_NONE, FCAP_BYTES_NONE, BASE_MS + 4);
    world->settle(world);
    struct fcap_source *source = world->open(world);
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[0].ended >= 5));
    static const struct {
        bool key_null, value_null;
        const char *key, *value;
    } expected[] = {{false, false, "key", "value"},
                    {true, false, "", "v"},
                    {false, true, "k", ""},
                    {false, false, "k", ""},
                    {true, true, "", ""}};
    assert_int_equal(recorder.records, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(seen[i].key_null, expected[i].key_null);
        assert_int_equal(seen[i].value_null, expected[i].value_null);
        assert_string_equal(seen[i].key, expected[i].key);
        assert_string_equal(seen[i].value, expected[i].value);
        assert_int_equal(seen[i].timestamp_ms, BASE_MS + i);
        assert_int_equal(seen[i].type, FCAP_TIMESTAMP_CREATE);
    }
    assert_clean(&recorder);
    world->close(world, &recorder.handler);
    world->destroy(world);
}

/* --- flow --------------------------------------------------------------------------------- */

static void test_every_record_once(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, from_start);
    world->create(world, 3);
    append_many(0, 500);
    append_many(2, 300);
    struct fcap_source *source = world->open(world);
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[0].ended >= 500 &&
                                        recorder.partitions[1].ended >= 0 &&
                                        recorder.partitions[2].ended >= 300));
    append_many(1, 7);
    append_many(2, 50);
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[1].ended >= 7 &&
                                        recorder.partitions[2].ended >= 350));
    assert_int_equal(recorder.partitions[0].records, 500);
    assert_int_equal(recorder.partitions[1].records, 7);
    assert_int_equal(recorder.partitions[2].records, 350);
    assert_int_equal(recorder.partitions[0].last_start.end, 500);
    assert_int_equal(recorder.partitions[0].last_start.log_start, 0);
    assert_int_equal(recorder.partitions[0].last_start.partition_count, 3);
    assert_int_equal(recorder.partitions[1].last_start.end, 0);
    assert_clean(&recorder);
    world->close(world, &recorder.handler);
    assert_int_equal(recorder_owned(&recorder), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(recorder.partitions[i].revoked_count, 1);
        assert_int_equal(recorder.partitions[i].lost_count, 0);
    }
    world->destroy(world);
}

static void test_no_more(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, from_start);
    recorder.stop_after = 7;
    world->create(world, 2);
    append_many(0, 100);
    append_many(1, 100);
    struct fcap_source *source = world->open(world);
    int64_t until_ms = recorder_now_ms() + DEADLINE_MS;
    while (recorder.records < 200 && recorder_now_ms() < until_ms) {
        uint64_t before = recorder.records;
        assert_int_equal(source->ops->poll(source, &recorder.handler, plenty), FCAP_OK);
        /* Never beyond the record that said so. */
        assert_true(recorder.records - before <= 7 - before % 7);
    }
    assert_int_equal(recorder.partitions[0].records, 100);
    assert_int_equal(recorder.partitions[1].records, 100);
    assert_clean(&recorder);
    world->close(world, &recorder.handler);
    world->destroy(world);
}

static void test_budget(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, from_start);
    world->create(world, 2);
    append_many(0, 200);
    append_many(1, 200);
    struct fcap_source *source = world->open(world);
    struct fcap_source_budget none = {.records_max = 0, .timeout_ms = 20};
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, none, DEADLINE_MS,
                                    recorder_started(&recorder) == 2));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(source->ops->poll(source, &recorder.handler, none), FCAP_OK);
    }
    assert_int_equal(recorder.records, 0);
    struct fcap_source_budget few = {.records_max = 13, .timeout_ms = 50};
    int64_t until_ms = recorder_now_ms() + DEADLINE_MS;
    while (recorder.records < 400 && recorder_now_ms() < until_ms) {
        uint64_t before = recorder.records;
        assert_int_equal(source->ops->poll(source, &recorder.handler, few), FCAP_OK);
        assert_true(recorder.records - before <= 13);
    }
    assert_int_equal(recorder.records, 400);
    assert_clean(&recorder);
    world->close(world, &recorder.handler);
    world->destroy(world);
}

static void test_may_send(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, from_start);
    world->create(world, 2);
    struct fcap_source *source = world->open(world);
    assert_false(source->ops->may_send(source, 0));
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder_started(&recorder) == 2));
    assert_true(source->ops->may_send(source, 0));
    assert_true(source->ops->may_send(source, 1));
    assert_false(source->ops->may_send(source, 2)); /* Nobody's. */
    source->ops->publish(source, 0, 0);             /* Must not disturb. */
    source->ops->publish(source, 2, 5);
    assert_clean(&recorder);
    world->close(world, &recorder.handler);
    world->destroy(world);
}

/* One start is to be known later: the other partition is read meanwhile. */
static void test_later(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, from_start);
    recorder.partitions[1].held = true;
    world->create(world, 2);
    append_many(0, 50);
    append_many(1, 50);
    struct fcap_source *source = world->open(world);
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[0].ended >= 50 &&
                                        recorder.partitions[1].resumed_count >= 20));
    assert_int_equal(recorder_owned(&recorder), 2);
    assert_int_equal(recorder_started(&recorder), 1);
    assert_int_equal(recorder.records, 50);
    recorder.partitions[1].held = false;
    recorder.partitions[1].start = (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = 20};
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[1].ended >= 50));
    assert_int_equal(recorder.partitions[1].records, 30);
    assert_int_equal(recorder.partitions[1].last_start.offset, 20);
    assert_clean(&recorder);
    world->close(world, &recorder.handler);
    world->destroy(world);
}

/* It is taken away before anybody knows. */
static void test_later_and_revoked(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, from_start);
    recorder.partitions[0].held = true;
    world->create(world, 1);
    append_many(0, 10);
    struct fcap_source *source = world->open(world);
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[0].resumed_count >= 3));
    world->close(world, &recorder.handler);
    assert_int_equal(recorder.partitions[0].revoked_count, 1);
    assert_int_equal(recorder.records, 0);
    assert_clean(&recorder);
    world->destroy(world);
}

/* --- starts and gaps ------------------------------------------------------------------------ */

static void test_starts(void **state)
{
    (void)state;
    static const struct {
        struct fcap_start start;
        bool by_time;
        int64_t offset;
    } cases[] = {
        {{.kind = FCAP_START_EARLIEST}, false, 0},
        {{.kind = FCAP_START_LATEST}, false, 50},
        {{.kind = FCAP_START_OFFSET, .offset = 0}, false, 0},
        {{.kind = FCAP_START_OFFSET, .offset = 49}, false, 49},
        {{.kind = FCAP_START_OFFSET, .offset = 50}, false, 50},
        {{.kind = FCAP_START_TIME, .time_ms = BASE_MS - 1}, true, 0},
        {{.kind = FCAP_START_TIME, .time_ms = BASE_MS + 20}, true, 20},
        {{.kind = FCAP_START_TIME, .time_ms = BASE_MS + 49}, true, 49},
        {{.kind = FCAP_START_TIME, .time_ms = BASE_MS + 50}, true, 50},
        {{.kind = FCAP_START_AGAIN, .offset = 50, .time_ms = BASE_MS + 20}, true, 20},
        {{.kind = FCAP_START_AGAIN, .offset = 50}, true, 0},
    };
    world->create(world, 1);
    append_many(0, 50);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].by_time && !world->has_times) {
            continue;
        }
        struct recorder recorder;
        recorder_init(&recorder, cases[i].start);
        struct fcap_source *source = world->open(world);
        assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                        recorder.partitions[0].ended >= 50));
        assert_int_equal(recorder.partitions[0].last_start.offset, cases[i].offset);
        assert_int_equal(recorder.partitions[0].last_start.end, 50);
        assert_false(recorder.partitions[0].last_start.timestamps_unusable);
        assert_int_equal(recorder.partitions[0].records, 50 - cases[i].offset);
        assert_int_equal(recorder.partitions[0].gap_count, 0);
        assert_clean(&recorder);
        world->close(world, &recorder.handler);
    }
    world->destroy(world);
}

static void test_beyond_end(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = 1000});
    world->create(world, 1);
    append_many(0, 20);
    struct fcap_source *source = world->open(world);
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[0].ended >= 20));
    assert_int_equal(recorder.partitions[0].gap_count, 1);
    assert_int_equal(recorder.partitions[0].last_gap.kind, FCAP_GAP_BEYOND_END);
    assert_int_equal(recorder.partitions[0].last_gap.wanted, 1000);
    assert_int_equal(recorder.partitions[0].last_gap.end, 20);
    assert_int_equal(recorder.partitions[0].records, 20);
    assert_clean(&recorder);
    world->close(world, &recorder.handler);
    world->destroy(world);
}

static void test_below_start(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = 5});
    recorder.gap_start = (struct fcap_start){.kind = FCAP_START_EARLIEST};
    world->create(world, 2);
    append_many(0, 30);
    append_many(1, 30);
    world->trim(world, 0, 12);
    struct fcap_source *source = world->open(world);
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[0].ended >= 30 &&
                                        recorder.partitions[1].ended >= 30));
    assert_int_equal(recorder.partitions[0].gap_count, 1);
    assert_int_equal(recorder.partitions[0].last_gap.kind, FCAP_GAP_BELOW_START);
    assert_int_equal(recorder.partitions[0].last_gap.wanted, 5);
    assert_int_equal(recorder.partitions[0].last_gap.log_start, 12);
    assert_int_equal(recorder.partitions[0].records, 18);
    assert_int_equal(recorder.partitions[1].gap_count, 0);
    assert_int_equal(recorder.partitions[1].records, 25);
    assert_clean(&recorder);
    world->close(world, &recorder.handler);
    world->destroy(world);
}

/* AGAIN begins by time in the log that was read, and tells of any other first. */
static void test_again(void **state)
{
    (void)state;
    world->create(world, 1);
    append_many(0, 50);
    for (int is_other = 0; is_other < 2; is_other++) {
        struct recorder recorder;
        struct fcap_start start = {
            .kind = FCAP_START_AGAIN, .offset = 30, .time_ms = BASE_MS + 20, .mark_count = 1};
        /* What append_many() has written there, or not. */
        start.marks[0] = (struct fcap_log_mark){
            .offset = 30,
            .timestamp_ms = BASE_MS + 29,
            .key_hash = fcap_hash64(fcap_bytes_of(is_other != 0 ? "x" : "k"), 0),
        };
        recorder_init(&recorder, start);
        recorder.gap_start = (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = 40};
        struct fcap_source *source = world->open(world);
        assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                        recorder.partitions[0].ended >= 50));
        assert_int_equal(recorder.partitions[0].gap_count, is_other);
        assert_int_equal(recorder.partitions[0].last_start.offset, is_other != 0 ? 40 : 20);
        if (is_other != 0) {
            assert_int_equal(recorder.partitions[0].last_gap.kind, FCAP_GAP_RECREATED);
            assert_int_equal(recorder.partitions[0].last_gap.wanted, 30);
        }
        assert_clean(&recorder);
        world->close(world, &recorder.handler);
    }
    world->destroy(world);
}

/* --- another log, or less of the same one --------------------------------------------------- */

/* Records that are the same in two topics when `kind` and number are. */
static void append_like(char kind, int from, int to)
{
    for (int i = from; i < to; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "%c%d", kind, i);
        world->append(world, 0, fcap_bytes_of(key), fcap_bytes_of("v"), BASE_MS + i);
    }
    world->settle(world);
}

/* 100 records are read, their marks kept: of the last one and of every 16th. */
static const struct {
    const char *name;
    int same; /* records of the new log that are those of the old one */
    int all;
    bool is_gap;
    enum fcap_gap_kind kind;
    int64_t next;
    int64_t kept; /* gap.same */
    int aborted;  /* records at its start that readers never see; a marker follows them */
} logs[] = {
    {"shorter", 0, 60, true, FCAP_GAP_RECREATED, 0, 0, 0},
    {"as long", 0, 100, true, FCAP_GAP_RECREATED, 0, 0, 0},
    {"longer", 0, 150, true, FCAP_GAP_RECREATED, 0, 0, 0},
    {"empty", 0, 0, true, FCAP_GAP_BEYOND_END, 0, 0, 0},
    {"begins with the same", 100, 150, false, FCAP_GAP_RECREATED, 0, 0, 0},
    {"has lost its end", 70, 70, true, FCAP_GAP_TRUNCATED, 70, 64, 0},
    {"has lost its end and gone on", 70, 90, true, FCAP_GAP_TRUNCATED, 80, 64, 0},
    {"has lost its end and become longer", 70, 150, true, FCAP_GAP_TRUNCATED, 80, 64, 0},
    {"longer, and all of it aborted", 0, 151, true, FCAP_GAP_RECREATED, 0, 0, 150},
    {"longer, and it begins with aborted ones", 0, 171, true, FCAP_GAP_RECREATED, 0, 0, 100},
};

static void check_log(const struct recorder *recorder, size_t at)
{
    const struct recorder_partition *partition = &recorder->partitions[0];
    int64_t next = logs[at].is_gap ? logs[at].next : 100;
    int hidden = logs[at].aborted > 0 ? logs[at].aborted + 1 : 0;
    if (partition->gap_count != (logs[at].is_gap ? 1u : 0u) ||
        (logs[at].is_gap && partition->last_gap.kind != logs[at].kind)) {
        fail_msg("%s: %u gaps, the last of kind %d", logs[at].name, partition->gap_count,
                 (int)partition->last_gap.kind);
    }
    assert_int_equal(partition->last_start.offset, next);
    assert_int_equal(partition->records, 100 + (uint64_t)(logs[at].all - hidden - next));
    if (logs[at].is_gap) {
        assert_int_equal(partition->last_gap.wanted, 100);
        assert_int_equal(partition->last_gap.end, logs[at].all);
        assert_int_equal(partition->last_gap.next, next);
        assert_int_equal(partition->last_gap.same, logs[at].kept);
    }
    assert_clean(recorder);
}

static void test_other_logs(void **state)
{
    (void)state;
    world->create(world, 1);
    for (size_t i = 0; i < sizeof logs / sizeof logs[0]; i++) {
        struct recorder recorder;
        recorder_init(&recorder, from_start);
        world->recreate(world, 1);
        append_like('a', 0, 100);
        struct fcap_source *source = world->open(world);
        assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                        recorder.partitions[0].ended >= 100));
        world->close(world, &recorder.handler);
        world->recreate(world, 1);
        int hidden = logs[i].aborted > 0 ? logs[i].aborted + 1 : 0;
        if (hidden > 0) {
            world->append_aborted(world, 0, logs[i].aborted);
        }
        append_like('a', 0, logs[i].same);
        append_like('b', logs[i].same, logs[i].all - hidden);
        recorder.partitions[0].ended = -1;
        source = world->open(world);
        assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                        recorder.partitions[0].ended >= logs[i].all));
        check_log(&recorder, i);
        world->close(world, &recorder.handler);
    }
    world->destroy(world);
}

/* The same under a reader. */
static void test_recreated_while_read(void **state)
{
    (void)state;
    struct recorder recorder;
    recorder_init(&recorder, from_start);
    world->create(world, 1);
    append_like('a', 0, 100);
    struct fcap_source *source = world->open(world);
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[0].ended >= 100));
    world->recreate(world, 1);
    assert_true(RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS,
                                    recorder.partitions[0].gap_count > 0));
    append_like('b', 0, 150);
    assert_true(
        RECORDER_POLL_UNTIL(source, &recorder, plenty, DEADLINE_MS, recorder.records >= 250));
    assert_int_equal(recorder.partitions[0].gap_count, 1);
    assert_int_equal(recorder.partitions[0].last_gap.kind, FCAP_GAP_BEYOND_END); /* Empty then. */
    assert_int_equal(recorder.partitions[0].last_gap.wanted, 100);
    assert_int_equal(recorder.records, 250);
    assert_clean(&recorder);
    world->close(world, &recorder.handler);
    world->destroy(world);
}

int source_contract_run(struct source_world *of)
{
    world = of;
    source_contract_times(of);
    struct CMUnitTest tests[15] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_every_record_once),
        cmocka_unit_test(test_no_more),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_may_send),
        cmocka_unit_test(test_starts),
        cmocka_unit_test(source_contract_B10_timestamps_that_lie),
        cmocka_unit_test(test_beyond_end),
        cmocka_unit_test(test_later),
        cmocka_unit_test(test_later_and_revoked),
    };
    size_t count = 10;
    if (world->has_times) { /* The mock looks nothing up by time, */
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_again);
    }
    if (world->can_trim) { /* and deletes no records or topics on demand. */
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_other_logs);
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_recreated_while_read);
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_below_start);
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(source_contract_cut_log);
    }
    (void)printf("source contract on %s\n", world->name);
    return _cmocka_run_group_tests("source_contract", tests, count, NULL, NULL);
}
