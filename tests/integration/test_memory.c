/* Memory stays within its budget when the state is several times the record cache: the real core
 * on the real store, in virtual time, its resident memory watched from step to step. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "integration/virtual_world.h"
#include "lib/full_size.h"
#include "lib/sanitized.h"

#define MIB     ((size_t)1 << 20)
#define HOUR_MS 3600000ll
#define DAY_MS  86400000ll

enum { USERS = 700000, ADS = 300, PARTITIONS = 8 };

static size_t event_count; /* 3 of each user; reduced: 1.5, and twice as long between commits */

static char users[USERS][12];
static char ads[ADS][8];
static struct virtual_event *events;

static uint64_t draw(uint64_t bound)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % bound;
}

/* Two days of events, all users alike: the worst case for a cache. */
static void make_events(void)
{
    events = calloc(event_count, sizeof *events);
    assert_non_null(events);
    for (size_t i = 0; i < USERS; i++) {
        (void)snprintf(users[i], sizeof users[i], "u%zu", i); /* Fits. */
    }
    for (size_t i = 0; i < ADS; i++) {
        (void)snprintf(ads[i], sizeof ads[i], "a%zu", i); /* Fits. */
    }
    for (size_t i = 0; i < event_count; i++) {
        size_t user = i < USERS ? i : draw(USERS); /* Every user at least once. */
        int64_t time_ms = 1700000000000 + (int64_t)(i * (2 * (uint64_t)DAY_MS) / event_count);
        events[i] = (struct virtual_event){.arrival_ms = time_ms,
                                           .time_ms = time_ms,
                                           .user = users[user],
                                           .ad = ads[draw(ADS)],
                                           .partition = (int32_t)(user % PARTITIONS)};
    }
}

static size_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*s %ld", &pages), 1);
    (void)fclose(file); /* Only read from. */
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

struct peaks {
    size_t resident;
    size_t cache;
    size_t in_flight;
    size_t open_events;
    size_t memtables;
    size_t blocks;
    size_t tables;
    size_t heap;      /* given out by malloc */
    size_t heap_free; /* held by malloc for later */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void look(struct virtual_world *world, struct peaks *peaks)
{
    struct fcap_pipeline_sizes sizes;
    struct fcap_store_metrics metrics;
    struct mallinfo2 heap = mallinfo2();
    fcap_pipeline_sizes(world->pipeline, &sizes);
    fcap_store_rocksdb_metrics(world->db, &metrics);
    size_t resident = resident_bytes();
    if (resident > peaks->resident) {
        peaks->resident = resident;
        peaks->heap = heap.uordblks + heap.hblkhd;
        peaks->heap_free = heap.fordblks;
    }
    peaks->cache = larger(peaks->cache, sizes.cache_bytes);
    peaks->in_flight = larger(peaks->in_flight, sizes.commits_in_flight);
    peaks->open_events = larger(peaks->open_events, sizes.open_events);
    peaks->memtables = larger(peaks->memtables, metrics.memtable_bytes);
    peaks->blocks = larger(peaks->blocks, metrics.block_cache_bytes);
    peaks->tables = larger(peaks->tables, metrics.table_reader_bytes);
}

static double mib(size_t bytes)
{
    return (double)bytes / (double)MIB;
}

/* Decoded, the whole state would take this much in the record cache. */
static size_t state_bytes(const struct fcap_pipeline_sizes *sizes)
{
    return (size_t)((double)sizes->cache_bytes / (double)sizes->cache_users * USERS);
}

static void set_up(struct virtual_world *world, size_t record_cache_bytes)
{
    world->forget_values = true;
    world->partition_count = PARTITIONS;
    world->now_ms = events[0].arrival_ms - 1;
    /* As the daemon divides it: a cache full of unwritten changes may grow by a quarter. */
    world->settings.cache_bytes = record_cache_bytes / 5 * 4;
    world->settings.commit_interval_ms = 10 * 60000 * (3 * (int64_t)USERS / (int64_t)event_count);
    world->settings.slice_ms = 60000;
    world->settings.bucket_ms = 10 * 60000;
    virtual_world_window(world, "1h", HOUR_MS);
    virtual_world_window(world, "1d", DAY_MS);
    virtual_world_window(world, "3d", 3 * DAY_MS);
    virtual_world_events(world, events, event_count);
}

static void test_budget(void **state)
{
    const size_t record_cache = 40 * MIB, block_cache = 16 * MIB, write_buffers = 24 * MIB;
    const size_t parts = record_cache + block_cache + write_buffers;
    /* memory.budget keeps this much as working room, most of it for what a process takes that has
     * no state (here it is there already). */
    const size_t working_room = 48 * MIB, process = 30 * MIB;
    const size_t budget = parts + working_room;
    struct virtual_world *world = virtual_world_make();
    struct fcap_pipeline_sizes sizes;
    struct peaks peaks = {0};
    (void)state;
    event_count = is_full_size() ? 3 * USERS : 3 * USERS / 2;
    (void)mallopt(M_ARENA_MAX, 2); /* As the daemon does. */
    make_events();
    set_up(world, record_cache);
    world->store.block_cache_bytes = block_cache;
    world->store.write_buffers_bytes = write_buffers;
    struct mallinfo2 heap = mallinfo2();
    size_t heap_before = heap.uordblks + heap.hblkhd;
    size_t before = resident_bytes();
    virtual_world_start(world);
    while (world->now_ms < events[event_count - 1].arrival_ms) {
        virtual_world_run_to(world, world->now_ms + 60000);
        look(world, &peaks);
    }
    virtual_world_commit(world);
    look(world, &peaks);
    fcap_pipeline_sizes(world->pipeline, &sizes);
    size_t grown = peaks.resident - before;
    print_message(
        "result: budget %.1f MiB: record cache %.1f, block cache %.1f, write buffers %.1f, "
        "working room %.1f\n",
        mib(budget), mib(record_cache), mib(block_cache), mib(write_buffers), mib(budget - parts));
    print_message(
        "result: resident memory grew by %.1f MiB at most (with the process %.0f %% of "
        "the budget); the cache's own count %.1f; open events %zu; commits in flight %zu\n",
        mib(grown), 100.0 * (double)(process + grown) / (double)budget, mib(peaks.cache),
        peaks.open_events, peaks.in_flight);
    print_message(
        "RocksDB at most: memtables %.1f, block cache %.1f, table readers %.1f; malloc at "
        "the peak: %.1f in use (%.1f before), %.1f kept free\n",
        mib(peaks.memtables), mib(peaks.blocks), mib(peaks.tables), mib(peaks.heap),
        mib(heap_before), mib(peaks.heap_free));
    print_message(
        "result: the state decoded: %.1f MiB, %.1f times the record cache; %zu of %d users are "
        "cached\n",
        mib(state_bytes(&sizes)), (double)state_bytes(&sizes) / (double)record_cache,
        sizes.cache_users, USERS);
    assert_true(state_bytes(&sizes) >= 4 * record_cache);
    assert_int_equal(fcap_pipeline_counters(world->pipeline)->underflows, 0);
    assert_true(process + grown <= budget + budget / 5);
    virtual_world_free(world);
    free(events);
}

int main(void)
{
    enum { SKIPPED = 77 };
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_budget)};
    if (TEST_MALLOC_IS_REPLACED) {
        printf("skipped: a sanitizer's malloc keeps to no budget\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
