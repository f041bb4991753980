/* A rebuild by request, and the blocks that say what Redis should hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/rebuild.h"
#include "unit/golden.h"
#include "unit/pipeline_world.h"

#define NOW_MS     PIPELINE_WORLD_NOW_MS
#define STEPS_MAX  20000
#define USERS      300
#define PARTITIONS 6

/* The key is the user, the timestamp the event's time; every ad is "a"; null erases. */
static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    *ret_event = (struct fcap_event){.user = record->key,
                                     .ad = fcap_bytes_of("a"),
                                     .time_ms = record->timestamp_ms,
                                     .is_tombstone = record->value.data == NULL};
    return FCAP_REJECT_NONE;
}

static int setup(void **unused)
{
    (void)unused;
    pipeline_world_init(PARTITIONS);
    return 0;
}

static void start(void)
{
    static struct fcap_decoder decoder = {decode};
    struct fcap_settings settings;
    pipeline_world_settings(&settings);
    pipeline_world_start(&settings, &decoder);
}

/* A second passes, in which everything comes to rest. */
static void rest(void)
{
    for (int i = 0; i < 100; i++) {
        world.now_ms += 10;
        if (pipeline_world_rest(STEPS_MAX) != FCAP_OK) {
            fail_msg("no rest: %s", fcap_pipeline_error(world.pipeline));
        }
    }
}

static void drain(void)
{
    assert_int_equal(fcap_pipeline_drain(world.pipeline, world.now_ms + 1000), FCAP_OK);
}

static void add_user(int index, int32_t partition)
{
    char name[16];
    (void)snprintf(name, sizeof name, "u%d", index);
    pipeline_world_add(partition, name, "v", NOW_MS);
}

static struct fcap_bytes key_of(int index)
{
    static char text[32];
    (void)snprintf(text, sizeof text, "fc:{u%d}:1h", index);
    return fcap_bytes_of(text);
}

static bool is_right(int index)
{
    static const char counts[] = "\"counts\":{\"a\":1}}";
    struct fcap_bytes value;
    int64_t expire_at_ms;
    return fcap_fake_redis_get(&world.redis, key_of(index), &value, &expire_at_ms) &&
           memmem(value.data, value.size, counts, strlen(counts)) != NULL;
}

static void spoil(int index)
{
    struct fcap_bytes value = index % 2 == 0 ? FCAP_BYTES_NONE : fcap_bytes_of("nonsense");
    assert_true(fcap_fake_redis_spoil(&world.redis, key_of(index), value));
    assert_false(is_right(index));
}

/* --- blocks --- */

static void test_a_block_is_as_documented(void **unused)
{
    static const char *const lines[] = {
        "00 00 00 62 01 01 00 05 00 00 00 06 00 00 01 8b cf e5 68 00 00 01 00 01 00 00",
        "00 00 02 75 31 01 00 0a 66 63 3a 7b 75 31 7d 3a 31 68 00 00 01 8b d0 1c 56 7f",
        "00 00 00 2e 7b 22 76 22 3a 31 2c 22 61 73 5f 6f 66 22 3a 31 37 30 30 30 30 30",
        "30 30 30 30 30 30 2c 22 63 6f 75 6e 74 73 22 3a 7b 22 61 22 3a 31 7d 7d"};
    char hex[512] = "";
    struct fcap_buffer block = {0};
    (void)unused;
    add_user(1, 5);
    world.now_ms = NOW_MS - 1000; /* When all is done it is NOW_MS. */
    start();
    rest();
    assert_true(fcap_pipeline_values_user(world.pipeline, 5, fcap_bytes_of("u1"), &block));
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        golden_documented(lines[i]);
        (void)snprintf(hex + strlen(hex), sizeof hex - strlen(hex), "%s ", lines[i]);
    }
    golden_check(fcap_buffer_bytes(&block), hex);
    fcap_buffer_clear(&block);
    assert_false(fcap_pipeline_values_user(world.pipeline, 4, fcap_bytes_of("u1"), &block));
    assert_false(fcap_pipeline_values_user(world.pipeline, 9, FCAP_BYTES_NONE, &block));
    assert_int_equal(block.size, 0);
    fcap_buffer_done(&block);
}

/* Reads a whole block, however it ends. */
static size_t read_through(struct fcap_bytes bytes, bool *ret_failed)
{
    struct fcap_reader reader = fcap_reader_of(bytes);
    struct fcap_values values;
    size_t users = 0;
    *ret_failed = false;
    while (fcap_values_read(&reader, &values)) {
        struct fcap_values_entry entry;
        while (fcap_values_next(&values, &entry)) {
            struct fcap_values_window window;
            fcap_values_next_window(&values, &window);
            users++;
        }
        *ret_failed = *ret_failed || values.entries.failed;
    }
    *ret_failed = *ret_failed || reader.failed;
    return users;
}

static void test_a_damaged_block_is_noticed(void **unused)
{
    struct fcap_buffer block = {0};
    bool has_failed;
    (void)unused;
    add_user(1, 0);
    start();
    rest();
    assert_true(fcap_pipeline_values_user(world.pipeline, 0, fcap_bytes_of("u1"), &block));
    assert_int_equal(read_through(fcap_buffer_bytes(&block), &has_failed), 1);
    assert_false(has_failed);
    for (size_t size = 1; size < block.size; size++) {
        uint8_t *copy = golden_copy(fcap_buffer_bytes(&block), size);
        (void)read_through((struct fcap_bytes){copy, size}, &has_failed);
        assert_true(has_failed);
        /* The same with a size that fits: the entry itself is cut. */
        if (size > 4) {
            copy[3] = (uint8_t)(size - 4);
            (void)read_through((struct fcap_bytes){copy, size}, &has_failed);
        }
        free(copy);
    }
    block.data[4] = 2; /* The version. */
    assert_int_equal(read_through(fcap_buffer_bytes(&block), &has_failed), 0);
    assert_true(has_failed);
    fcap_buffer_done(&block);
}

/* Walks over a partition; notes whom it has met. */
static size_t walk(size_t users_max, unsigned *met, size_t *ret_waiting)
{
    struct fcap_buffer after = {0};
    struct fcap_buffer block = {0};
    size_t blocks = 0;
    *ret_waiting = 0;
    for (bool is_last = false; !is_last; blocks++) {
        struct fcap_values values;
        struct fcap_values_entry entry;
        fcap_buffer_clear(&block);
        assert_true(
            fcap_pipeline_values(world.pipeline, 0, fcap_buffer_bytes(&after), users_max, &block));
        struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&block));
        assert_true(fcap_values_read(&reader, &values));
        assert_int_equal(values.partition, 0);
        while (fcap_values_next(&values, &entry)) {
            struct fcap_values_window window;
            fcap_values_next_window(&values, &window);
            int index = (int)strtol((const char *)entry.user.data + 1, NULL, 10);
            assert_true(fcap_bytes_equal(window.key, key_of(index)));
            assert_non_null(window.value.data);
            met[index]++;
            *ret_waiting += entry.waits;
        }
        assert_false(values.entries.failed);
        is_last = values.next.size == 0;
        fcap_buffer_clear(&after);
        fcap_buffer_put_bytes(&after, values.next);
    }
    fcap_buffer_done(&after);
    fcap_buffer_done(&block);
    return blocks;
}

static void test_every_user_is_in_some_block_stored_or_not(void **unused)
{
    unsigned met[USERS] = {0};
    size_t waiting;
    (void)unused;
    start();
    rest();
    for (int i = 0; i < USERS / 2; i++) {
        add_user(i, 0);
    }
    rest();
    drain(); /* These are stored, */
    for (int i = USERS / 2; i < USERS; i++) {
        add_user(i, 0);
    }
    add_user(USERS, 1); /* Another partition's. */
    rest();             /* and those are not. */
    size_t blocks = walk(10, met, &waiting);
    assert_true(blocks >= USERS / 20 + USERS / 2 / 40);
    assert_int_equal(waiting, 0);
    for (int i = 0; i < USERS; i++) {
        assert_int_equal(met[i], 1);
    }
    world.redis.down = true;
    for (int i = 0; i < 7; i++) { /* What cannot be acknowledged waits. */
        assert_true(fcap_pipeline_rebuild_user(world.pipeline, 0,
                                               fcap_bytes_of(i % 2 == 0 ? "u3" : "u200")));
    }
    assert_true(fcap_pipeline_user_waits(world.pipeline, 0, fcap_bytes_of("u3")));
    (void)walk(10, met, &waiting);
    assert_int_equal(waiting, 2);
    world.redis.down = false;
}

/* Users that are not stored yet are found by their hash: a block of large ones was as large as all
 * of them together. */
static void test_blocks_of_large_users_are_bounded(void **unused)
{
    enum { LARGE = 300, ID_BYTES = 4000, BOUND = (1 << 20) + 4 * ID_BYTES };
    struct fcap_buffer after = {0};
    struct fcap_buffer block = {0};
    size_t users = 0;
    size_t blocks = 0;
    (void)unused;
    start();
    rest();
    for (int i = 0; i < LARGE; i++) {
        char id[ID_BYTES + 1];
        memset(id, 'x', ID_BYTES);
        id[ID_BYTES] = '\0';
        (void)snprintf(id, sizeof id, "%03d", i);
        id[3] = 'x';
        pipeline_world_add(0, id, "v", NOW_MS);
    }
    rest();
    for (bool is_last = false; !is_last; blocks++) {
        struct fcap_values values;
        struct fcap_values_entry entry;
        fcap_buffer_clear(&block);
        assert_true(
            fcap_pipeline_values(world.pipeline, 0, fcap_buffer_bytes(&after), 512, &block));
        assert_true(block.size <= BOUND);
        struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&block));
        assert_true(fcap_values_read(&reader, &values));
        while (fcap_values_next(&values, &entry)) {
            struct fcap_values_window window;
            fcap_values_next_window(&values, &window);
            assert_int_equal(entry.user.size, ID_BYTES);
            users++;
        }
        is_last = values.next.size == 0;
        fcap_buffer_clear(&after);
        fcap_buffer_put_bytes(&after, values.next);
    }
    assert_int_equal(users, LARGE);
    assert_true(blocks > 3);
    fcap_buffer_done(&after);
    fcap_buffer_done(&block);
}

static void test_a_user_without_counts_is_not_known(void **unused)
{
    struct fcap_buffer block = {0};
    struct fcap_bytes value;
    int64_t expire_at_ms;
    (void)unused;
    pipeline_world_add(0, "u1", "v", NOW_MS - PIPELINE_WORLD_HOUR_MS + 2000);
    start();
    rest();
    assert_true(fcap_pipeline_values_user(world.pipeline, 0, fcap_bytes_of("u1"), &block));
    assert_true(fcap_fake_redis_get(&world.redis, key_of(1), &value, &expire_at_ms));
    for (int i = 0; i < 200; i++) { /* It leaves the window. */
        world.now_ms += 10;
        assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
    }
    assert_false(fcap_pipeline_values_user(world.pipeline, 0, fcap_bytes_of("u1"), &block));
    assert_false(fcap_pipeline_rebuild_user(world.pipeline, 0, fcap_bytes_of("u1")));
    assert_false(fcap_fake_redis_get(&world.redis, key_of(1), &value, &expire_at_ms));
    fcap_buffer_done(&block);
}

/* --- rebuilding --- */

static void fill(void)
{
    for (int i = 0; i < USERS; i++) {
        add_user(i, 0);
    }
    start();
    rest();
    drain();
}

static void check_all(void)
{
    for (int i = 0; i < USERS; i++) {
        if (!is_right(i)) {
            fail_msg("u%d is wrong", i);
        }
    }
}

static struct fcap_rebuild_progress progress(void)
{
    struct fcap_rebuild_progress now;
    assert_true(fcap_pipeline_rebuild_progress(world.pipeline, 0, &now));
    return now;
}

static void test_a_rebuild_mends_what_another_hand_has_done(void **unused)
{
    (void)unused;
    fill();
    spoil(1);
    spoil(2);
    rest();
    assert_false(is_right(1)); /* Nobody knows. */
    assert_true(fcap_pipeline_rebuild(world.pipeline, 0));
    assert_int_equal(progress().windows, 1);
    assert_false(fcap_pipeline_rebuild(world.pipeline, 77));
    rest();
    assert_int_equal(progress().windows, 0);
    check_all();
    assert_int_equal(fcap_pipeline_counters(world.pipeline)->rebuilds, 1);
}

static void test_one_that_is_under_way_begins_again(void **unused)
{
    (void)unused;
    fill();
    world.sink.in_flight_max = 10;
    assert_true(fcap_pipeline_rebuild(world.pipeline, 0));
    uint64_t acks = world.sink.acks[FCAP_PUSH_DONE];
    while (world.sink.acks[FCAP_PUSH_DONE] < acks + USERS / 2) {
        assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
    }
    assert_int_equal(progress().windows, 1);
    for (int i = 0; i < USERS; i++) { /* Of these some have just been shown. */
        spoil(i);
    }
    assert_true(fcap_pipeline_rebuild(world.pipeline, 0));
    rest();
    assert_int_equal(progress().windows, 0);
    check_all();
}

static void test_the_state_remembers_it(void **unused)
{
    (void)unused;
    fill();
    spoil(1);
    spoil(2);
    world.redis.full = true; /* No value gets there. */
    assert_true(fcap_pipeline_rebuild(world.pipeline, 0));
    for (int i = 0; i < 200; i++) {
        world.now_ms += 10;
        assert_int_equal(fcap_pipeline_step(world.pipeline, 0), FCAP_OK);
    }
    assert_int_equal(progress().windows, 1);
    assert_false(is_right(1));
    pipeline_world_kill();
    world.redis.full = false;
    start();
    rest();
    check_all();
}

static void test_one_user_alone(void **unused)
{
    (void)unused;
    fill();
    world.now_ms += 45001; /* The second look that follows the opening of the gate. */
    rest();
    spoil(1);
    spoil(2);
    uint64_t acks = world.sink.acks[FCAP_PUSH_DONE];
    assert_true(fcap_pipeline_rebuild_user(world.pipeline, 0, fcap_bytes_of("u2")));
    assert_false(fcap_pipeline_rebuild_user(world.pipeline, 1, fcap_bytes_of("u2")));
    assert_false(fcap_pipeline_rebuild_user(world.pipeline, 0, fcap_bytes_of("nobody")));
    rest();
    assert_true(is_right(2));
    assert_false(is_right(1));
    assert_int_equal(world.sink.acks[FCAP_PUSH_DONE], acks + 1);
    spoil(2); /* By an old owner, say: it is shown once more. */
    world.now_ms += 45001;
    rest();
    assert_true(is_right(2));
    assert_false(is_right(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_block_is_as_documented, setup,
                                        pipeline_world_teardown),
        cmocka_unit_test_setup_teardown(test_a_damaged_block_is_noticed, setup,
                                        pipeline_world_teardown),
        cmocka_unit_test_setup_teardown(test_blocks_of_large_users_are_bounded, setup,
                                        pipeline_world_teardown),
        cmocka_unit_test_setup_teardown(test_every_user_is_in_some_block_stored_or_not, setup,
                                        pipeline_world_teardown),
        cmocka_unit_test_setup_teardown(test_a_user_without_counts_is_not_known, setup,
                                        pipeline_world_teardown),
        cmocka_unit_test_setup_teardown(test_a_rebuild_mends_what_another_hand_has_done, setup,
                                        pipeline_world_teardown),
        cmocka_unit_test_setup_teardown(test_one_that_is_under_way_begins_again, setup,
                                        pipeline_world_teardown),
        cmocka_unit_test_setup_teardown(test_the_state_remembers_it, setup,
                                        pipeline_world_teardown),
        cmocka_unit_test_setup_teardown(test_one_user_alone, setup, pipeline_world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
