/* A store that two writers change all the time, with what its follower was told, on top of the
 * fixture. Included by one file of a program, behind cmocka. Thread rule: the test's thread. */
#ifndef STORE_ROCKSDB_WORLD_H
#define STORE_ROCKSDB_WORLD_H

#include "integration/store_rocksdb_fixture.h"
#include "integration/store_rocksdb_frames.h"

#include <stdio.h>
#include <string.h>

static inline struct fcap_store_position position_now(void)
{
    struct fcap_store_position position;
    fcap_store_rocksdb_position(fixture.db, &position);
    return position;
}

static inline bool is_same(struct fcap_lineage a, struct fcap_lineage b)
{
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

static inline bool is_none(struct fcap_lineage a)
{
    static const struct fcap_lineage none;
    return is_same(a, none);
}

enum { WRITERS = 2 };

static struct world {
    struct frames frames;
    struct model model;
    struct frame_writer writers[WRITERS];
    atomic_bool is_copying;
    char place[128]; /* where snapshots are made */
} world;

/* Tables of a few KiB, so that there are many of them, and compactions and drops all the time. */
static inline void begin_world(bool wal, size_t value_bytes)
{
    fixture.settings.wal = wal;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        fixture.settings.families[i].write_buffer_bytes = 64 << 10;
        fixture.settings.families[i].target_file_bytes = 32 << 10;
        fixture.settings.families[i].level_base_bytes = 128 << 10;
    }
    fixture.settings.sync = FCAP_STORE_SYNC_INTERVAL;
    fixture.settings.sync_interval_ms = 1000;
    fixture.settings.release_sweep_ms = 300;
    fixture.settings.release_step_ms = 20;
    world = (struct world){.model = {.sequence = 0}};
    reopen();
    (void)snprintf(world.place, sizeof world.place, "%s/snapshot.tmp", fixture.directory);
    frames_init(&world.frames, position_now().sequence + 1);
    frames_follow(&world.frames, fixture.db);
    for (size_t i = 0; i < WRITERS; i++) {
        struct frame_writer *writer = &world.writers[i];
        writer->store = fcap_store_rocksdb_handle(fixture.db);
        writer->partition = (int32_t)(10 + 10 * i);
        writer->seed = 20261130 + i;
        writer->users = 300;
        writer->value_bytes = value_bytes;
        writer->is_copying = &world.is_copying;
        frame_writer_start(writer);
    }
    fixture.store->ops->release(fixture.store, 1, INT32_MAX); /* Holds nothing back. */
}

static inline void stop_writers(void)
{
    for (size_t i = 0; i < WRITERS; i++) {
        frame_writer_stop(&world.writers[i]);
        assert_int_equal(atomic_load(&world.writers[i].failure), FCAP_OK);
    }
}

/* Also after a failure in the middle. */
static inline int end_world(void **state)
{
    for (size_t i = 0; i < WRITERS; i++) {
        frame_writer_stop(&world.writers[i]);
    }
    int result = tear_down(state);
    frames_done(&world.frames);
    model_done(&world.model);
    return result;
}

static inline uint64_t take_snapshot(const char *place)
{
    struct fcap_error error = {""};
    uint64_t sequence = 0;
    atomic_store(&world.is_copying, true);
    enum fcap_status status = fcap_store_rocksdb_snapshot(fixture.db, place, &sequence, &error);
    atomic_store(&world.is_copying, false);
    if (status != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return sequence;
}

/* A snapshot, looked at as it lies there. */
static inline size_t compare_snapshot(const char *place, uint64_t sequence,
                                      const struct model *model)
{
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *copy = NULL;
    struct fcap_store_position position;
    struct fcap_store_settings settings = fixture.settings;
    settings.directory = place;
    if (fcap_store_rocksdb_open_read_only(&settings, &copy, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    fcap_store_rocksdb_position(copy, &position);
    assert_int_equal(position.sequence, sequence);
    assert_true(is_same(position.lineage, position_now().lineage));
    size_t compared = model_compare(model, fcap_store_rocksdb_handle(copy));
    fcap_store_rocksdb_close(copy);
    return compared;
}

#endif
