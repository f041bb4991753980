/* A backfill on a Redis and a disk in memory, with time and records by the test's hand.
 * Thread rule: one thread, one world. */
#ifndef FCAP_TESTS_BACKFILL_WORLD_H
#define FCAP_TESTS_BACKFILL_WORLD_H

#include "fcap/backfill.h"

#include "lib/fake_seed.h"
#include "lib/fake_spill.h"
#include "lib/random_log.h"

#define BACKFILL_NOW_MS 1700000000000ll /* the same as the pipeline's */

enum {
    BACKFILL_MINUTE_MS = 60000,
    BACKFILL_HOUR_MS = 3600000,
    BACKFILL_DAY_MS = 86400000,
    BACKFILL_SKEW_MS = 300000,
    BACKFILL_SMALL_BYTES = 40 << 10, /* of a fold: some hundred users */
    BACKFILL_WINDOWS = 3,
    BACKFILL_STEPS_MAX = 100000,
};

/* A minute, an hour and a day. */
extern const struct fcap_window backfill_windows[BACKFILL_WINDOWS];

struct backfill_world {
    struct fcap_clock clock;
    struct fcap_moment now;
    struct fcap_fake_redis redis;
    struct fake_seed seed;
    struct fake_spill spill;
    struct fcap_settings settings;
    struct fcap_backfill *backfill;
    struct fcap_backfill_report report;
    struct random_record *records;
    size_t record_count;
    size_t record_capacity;
};

/* The world; the pipeline's own one, beside it, is `world`. */
extern struct backfill_world own;

/* A test's setup and teardown: nothing is open, no record is there. */
int backfill_world_setup(void **unused);
int backfill_world_teardown(void **unused);

/* A record of its own; `ad` NULL: a tombstone. */
void backfill_world_add(int32_t partition, const char *user, const char *ad, int64_t time_ms);
/* Users u0, u1, ... in turn, each in one of the partitions, with so many events. */
void backfill_world_add_many(int32_t partitions, size_t users, size_t events);

/* Opens it and begins, over and over while Redis is away. */
void backfill_world_begin(int32_t partitions);
/* Gives it all records. */
enum fcap_status backfill_world_read(void);
/* Steps until it is done or fails for good. The wall clock stands still, and the other one as soon
 * as nothing is waited for: T and Redis TIME are the pipeline's. */
enum fcap_status backfill_world_finish(void);
/* All of this. */
enum fcap_status backfill_world_run(int32_t partitions);

/* Keys of counts in a Redis. */
size_t backfill_world_keys(struct fcap_fake_redis *redis);
/* Fails the test when backfill has written anything. */
void backfill_world_check_untouched(void);
/* Whether the key is there. */
bool backfill_world_has(const char *key);

#endif
