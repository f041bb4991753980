/* An instance that has counted and kept checkpoints, and one that gets its partition. Included by
 * one file of a program, behind cmocka. Thread rule: the test's thread. */
#ifndef ADOPT_WORLD_H
#define ADOPT_WORLD_H

#include "fcap/adopter.h"
#include "fcap/checkpointer.h"
#include "fcap/clock_os.h"
#include "fcap/key.h"
#include "fcap/meta.h"
#include "integration/store_rocksdb_help.h"
#include "lib/fake_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTITION = 10, OTHER = 11, USERS = 300, VALUE_BYTES = 2000 };

/* What a store holds of one partition. */
struct content {
    struct fake_map families[FCAP_FAMILY_COUNT];
};

static struct {
    char directory[64]; /* of everything */
    struct fcap_clock clock;
    int64_t now_ms;
    struct fcap_objects *objects;

    /* The instance that has counted so far. */
    char source_directory[128];
    struct fcap_store_settings source_settings;
    struct fcap_store_rocksdb *source;
    struct fcap_store *source_store;
    struct fcap_checkpoint_state_rocksdb source_state;
    struct fcap_checkpointer *checkpointer;
    uint64_t commits;
    struct fcap_batch batch;
    struct content ends[2]; /* at two moments */

    /* The one that gets the partition. */
    char here_directory[128];
    struct fcap_store_settings here_settings;
    struct fcap_store_rocksdb *here;
    struct fcap_store *store;
    struct content old;
    struct content others;
    uint64_t assignment;
    struct fcap_adopt_state *state;
    struct fcap_adopter *adopter;
    char told[16][600];
    size_t told_count;
} world;

static inline int64_t clock_ms(struct fcap_clock *clock)
{
    (void)clock;
    return world.now_ms;
}

/* --- contents ----------------------------------------------------------------------------------
 */

static inline void content_done(struct content *content)
{
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        fake_map_done(&content->families[i]);
    }
}

struct scan {
    struct fake_map *map;
    enum fcap_family family;
    int32_t partition;
};

static inline bool visit(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct scan *scan = context;
    struct fcap_reader reader = fcap_reader_of(key);
    if (scan->family == FCAP_FAMILY_TIMERS) {
        (void)fcap_reader_be64(&reader);
    }
    if (fcap_reader_be16(&reader) == scan->partition) {
        fake_map_put(scan->map, key, value);
    }
    return true;
}

static inline void content_read(struct content *content, struct fcap_store *store,
                                int32_t partition)
{
    content_done(content);
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        struct scan scan = {&content->families[i], (enum fcap_family)i, partition};
        assert_int_equal(store->ops->scan(store, (enum fcap_family)i, FCAP_BYTES_NONE,
                                          FCAP_BYTES_NONE, visit, &scan),
                         FCAP_OK);
    }
}

/* Gives how many pairs are equal; fails when one is not. */
static inline size_t content_compare(const struct content *a, const struct content *b)
{
    size_t pairs = 0;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        const struct fake_map *left = &a->families[i];
        const struct fake_map *right = &b->families[i];
        if (left->count != right->count) {
            fail_msg("family %zu: %zu pairs instead of %zu", i, left->count, right->count);
        }
        for (size_t k = 0; k < left->count; k++, pairs++) {
            assert_true(fcap_bytes_equal(fcap_buffer_bytes(&left->pairs[k].key),
                                         fcap_buffer_bytes(&right->pairs[k].key)));
            assert_true(fcap_bytes_equal(fcap_buffer_bytes(&left->pairs[k].value),
                                         fcap_buffer_bytes(&right->pairs[k].value)));
        }
    }
    return pairs;
}

static inline size_t here_is(const struct content *expected)
{
    struct content now = {.families = {{0}}};
    content_read(&now, world.store, PARTITION);
    size_t pairs = content_compare(&now, expected);
    content_read(&now, world.store, OTHER);
    pairs += content_compare(&now, &world.others); /* Is not touched. */
    content_done(&now);
    return pairs;
}

/* --- the instance that has counted --------------------------------------------------------------
 */

static inline void add(enum fcap_family family, enum fcap_change change,
                       const struct fcap_buffer *key, const struct fcap_buffer *value)
{
    fcap_batch_add(&world.batch, family, change, fcap_buffer_bytes(key), fcap_buffer_bytes(value));
}

/* Changes of one partition: users, ads, a chunk; now and then one goes. */
static inline void fill(int32_t partition, uint64_t assignment, uint64_t number,
                        int64_t next_offset)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    char user[24];
    const struct fcap_meta meta = {.commit = number,
                                   .next_offset = next_offset,
                                   .bucket_ms = 1,
                                   .clock_ms = 5000 + next_offset,
                                   .complete_since_ms = INT64_MIN};
    fcap_batch_section(&world.batch, partition, assignment, number);
    fcap_meta_encode(&meta, &value);
    fcap_key_meta(&key, partition, FCAP_META_NAME);
    add(FCAP_FAMILY_META, FCAP_CHANGE_PUT, &key, &value);
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t random = (number * 4 + i) * UINT64_C(0x9E3779B97F4A7C15);
        (void)snprintf(user, sizeof user, "user-%d", (int)((random >> 33) % USERS));
        fcap_buffer_clear(&key);
        fcap_buffer_clear(&value);
        fcap_key_user(&key, partition, fcap_bytes_of(user));
        while (value.size < VALUE_BYTES) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            fcap_buffer_put_be64(&value, random);
        }
        add(FCAP_FAMILY_USERS, i == 3 ? FCAP_CHANGE_DELETE : FCAP_CHANGE_PUT, &key, &value);
    }
    fcap_buffer_clear(&key);
    fcap_buffer_put_be64(&key, 1000 + number / 3);
    fcap_buffer_put_be16(&key, (uint16_t)partition);
    fcap_buffer_put_be64(&key, number);
    fcap_buffer_put_be16(&key, 0);
    add(FCAP_FAMILY_TIMERS, FCAP_CHANGE_PUT, &key, &value);
    fcap_buffer_clear(&key);
    fcap_key_ad(&key, partition, (uint32_t)(number % 50));
    add(FCAP_FAMILY_ADS, FCAP_CHANGE_PUT, &key, &value);
    fcap_buffer_done(&key);
    fcap_buffer_done(&value);
}

static inline void count(size_t commits)
{
    for (size_t i = 0; i < commits; i++) {
        uint64_t number = ++world.commits;
        fcap_batch_clear(&world.batch);
        fill(PARTITION, 1, number, (int64_t)number * 1000);
        fill(OTHER, 1, number, (int64_t)number * 1000);
        assert_int_equal(help_commit(world.source_store, &world.batch), FCAP_OK);
    }
}

static inline struct fcap_checkpoint_metrics kept(void)
{
    struct fcap_checkpoint_metrics metrics;
    fcap_checkpointer_metrics(world.checkpointer, &metrics);
    assert_int_equal(metrics.stopped, 0);
    return metrics;
}

/* A checkpoint of everything; with a snapshot when it is time for one. */
static inline void keep(bool with_snapshot)
{
    struct fcap_checkpoint_metrics before = kept();
    struct fcap_store_position position;
    fcap_store_rocksdb_position(world.source, &position);
    world.now_ms += with_snapshot ? 100000 : 1000;
    for (int i = 0; i < 10000; i++) {
        int64_t due_ms = fcap_checkpointer_step(world.checkpointer);
        bool is_kept = kept().number > before.number;
        if (is_kept && (!with_snapshot || kept().snapshots > before.snapshots)) {
            return;
        }
        world.now_ms += due_ms > world.now_ms ? 1 : 0;
    }
    fail_msg("no checkpoint");
}

/* Two snapshots and changelog behind each; the ends of both are remembered. */
static inline void begin_source(void)
{
    int64_t dropped_ms = 0;
    struct fcap_error error = {""};
    const struct fcap_checkpointer_settings settings = {.profile = "days",
                                                        .instance = "pod-0",
                                                        .interval_ms = 1000,
                                                        .materialization_interval_ms = 100000,
                                                        .transfer_threads = 1,
                                                        .retain = 2,
                                                        .queue_bytes_max = 64 << 20,
                                                        .clock = &world.clock};
    world.source_settings = help_settings(world.source_directory);
    world.source = help_open(&world.source_settings);
    fcap_checkpoint_state_rocksdb_init(&world.source_state, world.source, &world.source_settings);
    assert_int_equal(fcap_checkpointer_open(&settings, world.objects, &world.source_state.state,
                                            &world.checkpointer, &error),
                     FCAP_OK);
    world.source_store = fcap_store_rocksdb_handle(world.source);
    for (int32_t partition = PARTITION; partition <= OTHER; partition++) {
        assert_int_equal(
            world.source_store->ops->claim(world.source_store, partition, 1, &dropped_ms), FCAP_OK);
    }
    count(150);
    keep(true);
    count(50);
    keep(false);
    content_read(&world.ends[0], world.source_store, PARTITION);
    count(150);
    keep(true);
    count(50);
    keep(false);
    content_read(&world.ends[1], world.source_store, PARTITION);
}

/* --- the one that gets the partition ------------------------------------------------------------
 */

static inline void tell(void *context, enum fcap_checkpointer_level level, const char *text)
{
    (void)context;
    (void)level;
    if (world.told_count < 16) {
        (void)snprintf(world.told[world.told_count++], sizeof world.told[0], "%s", text);
    }
}

static inline size_t told(const char *part)
{
    size_t times = 0;
    for (size_t i = 0; i < world.told_count; i++) {
        times += strstr(world.told[i], part) != NULL;
    }
    return times;
}

static inline void open_here(void)
{
    const struct fcap_adopter_settings settings = {
        .profile = "days", .clock = fcap_clock_os(), .tell = tell};
    world.here_settings = help_settings(world.here_directory);
    world.here = help_open(&world.here_settings);
    world.store = fcap_store_rocksdb_handle(world.here);
    world.state = fcap_adopt_rocksdb_open(world.here, &world.here_settings, world.objects);
    world.adopter = fcap_adopter_open(&settings, world.state, world.objects);
}

static inline void close_here(void)
{
    if (world.adopter != NULL) {
        assert_int_equal(fcap_adopter_stop(world.adopter, 60000), FCAP_OK);
    }
    fcap_adopter_close(world.adopter);
    world.adopter = NULL;
    fcap_adopt_rocksdb_close(world.state);
    world.state = NULL;
    fcap_store_rocksdb_close(world.here);
    world.here = NULL;
}

/* An old state of the partition, and one of another partition. */
static inline void begin_here(void)
{
    int64_t dropped_ms = 0;
    open_here();
    for (int32_t partition = PARTITION; partition <= OTHER; partition++) {
        assert_int_equal(world.store->ops->claim(world.store, partition, 1, &dropped_ms), FCAP_OK);
    }
    for (uint64_t number = 1; number <= 50; number++) {
        fcap_batch_clear(&world.batch);
        fill(PARTITION, 1, number, (int64_t)number);
        fill(OTHER, 1, number, (int64_t)number);
        assert_int_equal(help_commit(world.store, &world.batch), FCAP_OK);
    }
    content_read(&world.old, world.store, PARTITION);
    content_read(&world.others, world.store, OTHER);
    world.assignment = 1;
}

static inline struct fcap_store_claimed claim(void)
{
    struct fcap_store_claimed claimed = {.partition = PARTITION, .assignment = ++world.assignment};
    assert_int_equal(world.store->ops->claim(world.store, PARTITION, claimed.assignment,
                                             &claimed.dropped_through_ms),
                     FCAP_OK);
    return claimed;
}

/* What a worker does, on this thread. */
static inline void adopt(void)
{
    struct fcap_store_claimed claimed = claim();
    struct fcap_adoption *adoption = fcap_adopter_ask(world.adopter, &claimed);
    assert_true(fcap_adopter_step(world.adopter));
    assert_true(fcap_adoption_is_over(adoption));
    fcap_adoption_end(adoption);
    (void)claim();
}

static inline int set_up(void **unused)
{
    char place[128];
    struct fcap_error error = {""};
    (void)unused;
    memset(&world, 0, sizeof world);
    help_make(world.directory);
    world.clock = (struct fcap_clock){clock_ms, clock_ms};
    world.now_ms = INT64_C(1700000000000);
    (void)snprintf(place, sizeof place, "%s/kept", world.directory);
    (void)snprintf(world.source_directory, sizeof world.source_directory, "%s/source",
                   world.directory);
    (void)snprintf(world.here_directory, sizeof world.here_directory, "%s/here", world.directory);
    if (fcap_objects_directory_open(place, false, &world.objects, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    begin_source();
    begin_here();
    return 0;
}

static inline int tear_down(void **unused)
{
    (void)unused;
    close_here();
    if (world.checkpointer != NULL) {
        assert_int_equal(fcap_checkpointer_stop(world.checkpointer, 60000), FCAP_OK);
    }
    fcap_checkpointer_close(world.checkpointer);
    fcap_checkpoint_state_done(&world.source_state.state);
    fcap_store_rocksdb_close(world.source);
    fcap_objects_directory_close(world.objects);
    content_done(&world.ends[0]);
    content_done(&world.ends[1]);
    content_done(&world.old);
    content_done(&world.others);
    fcap_batch_done(&world.batch);
    help_remove(world.directory);
    return 0;
}

static inline bool is_adopting_there(void)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/.adopting", world.here_directory);
    return access(path, F_OK) == 0;
}

#endif
