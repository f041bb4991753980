/* One partition carried from a snapshot into another store: all of it, nothing else, or none of it.
 */
#include "fcap/key.h"
#include "fcap/meta.h"
#include "integration/store_rocksdb_frames.h"
#include "integration/store_rocksdb_help.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "integration/store_rocksdb_world.h"

enum { PARTITION = 10, HISTORY_MS = 1000 };

/* The target: a store of its own in which the partition has an old state. */
static struct target {
    char directory[64];
    struct fcap_store_settings settings;
    struct fcap_store_rocksdb *db;
    struct fcap_store *store;
    struct frames frames;
    struct model model;
    struct frame_writer writer; /* fills batches, never runs */
    atomic_bool is_copying;
} target;

static struct fcap_store_claimed claim_target(uint64_t assignment)
{
    struct fcap_store_claimed claimed = {.partition = PARTITION, .assignment = assignment};
    assert_int_equal(
        target.store->ops->claim(target.store, PARTITION, assignment, &claimed.dropped_through_ms),
        FCAP_OK);
    return claimed;
}

static void open_target(bool wal)
{
    target.settings = help_settings(target.directory);
    target.settings.wal = wal;
    target.db = help_open(&target.settings);
    target.store = fcap_store_rocksdb_handle(target.db);
    frames_follow(&target.frames, target.db);
}

/* Old states of the partition, of the next one, and of one between others. */
static void begin_target(bool wal)
{
    int64_t dropped_ms = 0;
    target = (struct target){.writer = {.partition = PARTITION,
                                        .seed = 7,
                                        .users = 100,
                                        .value_bytes = 200,
                                        .is_copying = &target.is_copying}};
    help_make(target.directory);
    frames_init(&target.frames, 1);
    open_target(wal);
    target.writer.store = target.store;
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(target.store->ops->claim(target.store, PARTITION + i, 1, &dropped_ms),
                         FCAP_OK);
    }
    for (uint64_t number = 1; number <= 100; number++) {
        frame_writer_fill(&target.writer, &fixture.batch, number);
        assert_int_equal(help_commit(target.store, &fixture.batch), FCAP_OK);
    }
}

static int end_target(void **state)
{
    fcap_store_rocksdb_close(target.db);
    target.db = NULL;
    frames_done(&target.frames);
    model_done(&target.model);
    if (target.directory[0] != '\0') {
        help_remove(target.directory);
        target.directory[0] = '\0';
    }
    return end_world(state);
}

/* A commit of the partition that says what its state is. */
static void put_meta(struct fcap_store *store, int64_t history_ms, int64_t floor_ms)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    struct fcap_meta meta = {.commit = 9,
                             .bucket_ms = 1,
                             .clock_ms = history_ms + 10,
                             .history_ms = history_ms,
                             .redo_history_ms = history_ms,
                             .complete_since_ms = INT64_MIN};
    fcap_meta_encode(&meta, &value);
    fcap_key_meta(&key, PARTITION, FCAP_META_NAME);
    fcap_batch_clear(&fixture.batch);
    fcap_batch_section(&fixture.batch, PARTITION, 1, 9);
    fcap_batch_add(&fixture.batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, fcap_buffer_bytes(&key),
                   fcap_buffer_bytes(&value));
    if (floor_ms > 0) {
        fcap_buffer_clear(&key);
        fcap_buffer_clear(&value);
        fcap_key_meta(&key, PARTITION, FCAP_FLOOR_NAME);
        fcap_buffer_put_be64(&value, (uint64_t)floor_ms);
        fcap_batch_add(&fixture.batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, fcap_buffer_bytes(&key),
                       fcap_buffer_bytes(&value));
    }
    assert_int_equal(help_commit(store, &fixture.batch), FCAP_OK);
    fcap_buffer_done(&key);
    fcap_buffer_done(&value);
}

/* A snapshot of a world in which both writers have been at work; nothing was dropped in it. */
static struct fcap_store_rocksdb *make_source(bool wal)
{
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *source = NULL;
    begin_world(wal, 2000);
    int64_t dropped_ms = 0;
    /* One more that releases nothing: everything is kept. */
    assert_int_equal(fixture.store->ops->claim(fixture.store, 2, 1, &dropped_ms), FCAP_OK);
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    while (atomic_load(&world.writers[0].commits) < 400 && help_now_ms() < deadline_ms) {
        brief_pause();
    }
    stop_writers();
    put_meta(world.writers[0].store, HISTORY_MS, 0);
    uint64_t sequence = take_snapshot(world.place);
    model_play(&world.model, &world.frames, sequence);
    struct fcap_store_settings settings = fixture.settings;
    settings.directory = world.place;
    if (fcap_store_rocksdb_open_read_only(&settings, &source, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return source;
}

static bool is_of_partition(enum fcap_family family, struct fcap_bytes key)
{
    struct fcap_reader reader = fcap_reader_of(key);
    if (family == FCAP_FAMILY_TIMERS) {
        (void)fcap_reader_be64(&reader);
    }
    return fcap_reader_be16(&reader) == PARTITION;
}

/* Puts the partition of one model in place of that in the other; gives how many pairs it has. */
static size_t model_carry(const struct model *from, struct model *to)
{
    size_t carried = 0;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        enum fcap_family family = (enum fcap_family)i;
        struct fake_map *map = &to->families[i];
        for (size_t at = map->count; at > 0; at--) {
            if (is_of_partition(family, fcap_buffer_bytes(&map->pairs[at - 1].key))) {
                fake_map_remove(map, at - 1);
            }
        }
        for (size_t at = 0; from != NULL && at < from->families[i].count; at++) {
            const struct fake_pair *pair = &from->families[i].pairs[at];
            if (is_of_partition(family, fcap_buffer_bytes(&pair->key))) {
                fake_map_put(map, fcap_buffer_bytes(&pair->key), fcap_buffer_bytes(&pair->value));
                carried++;
            }
        }
    }
    return carried;
}

static uint64_t target_sequence(void)
{
    struct fcap_store_position position;
    fcap_store_rocksdb_position(target.db, &position);
    return position.sequence;
}

/* The follower's record of the target plays to the same. */
static void compare_follower(void)
{
    struct model followed = {.sequence = 0};
    model_play(&followed, &target.frames, target_sequence());
    /* Its marks are the store's own. */
    struct fake_map *meta = &followed.families[FCAP_FAMILY_META];
    while (meta->count > 0 && meta->pairs[meta->count - 1].key.data[0] == 0xff) {
        fake_map_remove(meta, meta->count - 1);
    }
    (void)model_compare(&followed, target.store);
    model_done(&followed);
}

/* Buckets in which any partition has a chunk. */
static uint64_t buckets_of(const struct model *model)
{
    const struct fake_map *map = &model->families[FCAP_FAMILY_TIMERS];
    uint64_t buckets = 0;
    for (size_t i = 0; i < map->count; i++) {
        buckets += i == 0 || memcmp(map->pairs[i].key.data, map->pairs[i - 1].key.data, 8) != 0;
    }
    return buckets;
}

static uint64_t chunks_of(const struct model *model)
{
    const struct fake_map *map = &model->families[FCAP_FAMILY_TIMERS];
    uint64_t chunks = 0;
    for (size_t i = 0; i < map->count; i++) {
        chunks += is_of_partition(FCAP_FAMILY_TIMERS, fcap_buffer_bytes(&map->pairs[i].key));
    }
    return chunks;
}

static void all_of_it_comes_and_nothing_else(bool wal)
{
    struct fcap_error error = {""};
    struct fcap_store_copied copied = {0};
    struct fcap_store_rocksdb *source = make_source(wal);
    begin_target(wal);
    model_play(&target.model, &target.frames, target_sequence());
    uint64_t old_buckets = buckets_of(&target.model);
    uint64_t old_chunks = chunks_of(&target.model);
    struct fcap_store_claimed claimed = claim_target(2);
    int64_t started_ms = help_now_ms();
    enum fcap_status status =
        fcap_store_rocksdb_copy_partition(source, target.db, &claimed, &copied, &error);
    int64_t spent_ms = help_now_ms() - started_ms;
    fcap_store_rocksdb_close(source);
    if (status != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    size_t carried = model_carry(&world.model, &target.model);
    (void)model_compare(&target.model, target.store);
    compare_follower();
    fcap_store_rocksdb_close(target.db);
    open_target(wal);
    (void)claim_target(1);
    size_t compared = model_compare(&target.model, target.store);
    print_message(
        "result: wal %s: a partition of %zu pairs (%llu bytes) carried over in %lld ms, "
        "%zu pairs compared; of its %llu chunks and those of others %llu were looked at\n",
        wal ? "on" : "off", carried, (unsigned long long)copied.bytes, (long long)spent_ms,
        compared, (unsigned long long)copied.chunks, (unsigned long long)copied.chunks_seen);
    assert_true(copied.users + copied.ads + copied.chunks + 1 <= carried);
    assert_true(copied.chunks > 100);
    /* Beside its own chunks, in the source and in the target, two lookings a bucket. */
    uint64_t buckets = buckets_of(&world.model) + old_buckets;
    assert_true(copied.chunks_seen <= copied.chunks + old_chunks + 2 * buckets);
    assert_true(copied.chunks_seen < world.model.families[FCAP_FAMILY_TIMERS].count);
}

static void all_of_it_comes_and_nothing_else_with_log(void **state)
{
    (void)state;
    all_of_it_comes_and_nothing_else(true);
}

static void all_of_it_comes_and_nothing_else_without_log(void **state)
{
    (void)state;
    all_of_it_comes_and_nothing_else(false);
}

/* --- what does not come --------------------------------------------------------------------------
 */

struct patience {
    unsigned batches;          /* asked before each */
    struct fcap_store *synced; /* made durable before the kill; NULL: nothing is */
};

static bool goes_on(void *context)
{
    struct patience *patience = context;
    return patience->batches-- > 0;
}

static void what_is_cut_off_is_removed(void **state)
{
    (void)state;
    struct fcap_error error = {""};
    struct fcap_store_copied copied = {0};
    struct fcap_store_rocksdb *source = make_source(true);
    begin_target(true);
    model_play(&target.model, &target.frames, target_sequence());
    (void)model_carry(NULL, &target.model);
    for (unsigned i = 1; i < 4; i++) {
        struct patience patience = {.batches = i};
        struct fcap_store_claimed claimed = claim_target(i + 1);
        claimed.go_on = goes_on;
        claimed.context = &patience;
        assert_int_equal(
            fcap_store_rocksdb_copy_partition(source, target.db, &claimed, &copied, &error),
            FCAP_STOPPED);
        assert_non_null(strstr(error.text, "copy partition 10"));
        (void)model_compare(&target.model, target.store);
        compare_follower();
    }
    /* An assignment that has ended: nothing of it is written, and it is told. */
    struct fcap_store_claimed old = claim_target(5);
    (void)claim_target(6);
    uint64_t before = target_sequence();
    assert_int_equal(fcap_store_rocksdb_copy_partition(source, target.db, &old, &copied, &error),
                     FCAP_FENCED);
    assert_int_equal(target_sequence(), before);
    (void)model_compare(&target.model, target.store);
    fcap_store_rocksdb_close(source);
}

static void what_is_no_state_is_refused(void **state)
{
    (void)state;
    struct fcap_error error = {""};
    struct fcap_store_copied copied = {0};
    struct fcap_store_rocksdb *source = make_source(true);
    begin_target(true);
    struct fcap_store_claimed claimed = claim_target(2);
    claimed.partition = 11; /* It has users, and no meta record. */
    uint64_t before = target_sequence();
    assert_int_equal(
        fcap_store_rocksdb_copy_partition(source, target.db, &claimed, &copied, &error),
        FCAP_REFUSED);
    assert_non_null(strstr(error.text, "no state of partition 11"));
    assert_int_equal(target_sequence(), before);
    fcap_store_rocksdb_close(source);
}

static int64_t floor_of(struct fcap_store *store)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    bool found = false;
    fcap_key_meta(&key, PARTITION, FCAP_FLOOR_NAME);
    assert_int_equal(
        store->ops->get(store, FCAP_FAMILY_META, fcap_buffer_bytes(&key), &value, &found), FCAP_OK);
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&value));
    int64_t floor_ms = found ? (int64_t)fcap_reader_be64(&reader) : 0;
    fcap_buffer_done(&key);
    fcap_buffer_done(&value);
    return floor_ms;
}

/* What a store has dropped says nothing of what comes from another one; what the other has dropped
 * is missing. */
static void drops_are_told_by_the_floor(void **state)
{
    (void)state;
    static const struct {
        int64_t source_dropped_ms;
        int64_t source_floor_ms;
        int64_t target_dropped_ms;
        enum fcap_status status;
        int64_t floor_ms;
    } cases[] = {
        {0, 0, 0, FCAP_OK, 0},
        {HISTORY_MS + 1, 0, 0, FCAP_OK, 0}, /* The oldest bucket that it needs is the next one. */
        {HISTORY_MS + 2, 0, 0, FCAP_REFUSED, 0},
        {HISTORY_MS + 5, HISTORY_MS + 4, 0, FCAP_REFUSED, 0},
        {HISTORY_MS + 5, HISTORY_MS + 5, 0, FCAP_OK, 0}, /* The floor is not carried over. */
        {0, 0, HISTORY_MS + 1, FCAP_OK, 0},
        {0, 0, HISTORY_MS + 9, FCAP_OK, HISTORY_MS + 9},
        {HISTORY_MS + 5, HISTORY_MS + 7, HISTORY_MS + 6, FCAP_OK, HISTORY_MS + 6},
    };
    int64_t dropped_ms = 0;
    assert_int_equal(fixture.store->ops->claim(fixture.store, PARTITION, 1, &dropped_ms), FCAP_OK);
    begin_target(true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_store_copied copied = {0};
        fcap_batch_clear(&fixture.batch);
        fcap_batch_section(&fixture.batch, PARTITION, 1, 1);
        fcap_batch_add(&fixture.batch, FCAP_FAMILY_META, FCAP_CHANGE_DELETE_RANGE,
                       (struct fcap_bytes){(const uint8_t *)"\0\x0a", 2},
                       (struct fcap_bytes){(const uint8_t *)"\0\x0b", 2});
        assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
        put_meta(fixture.store, HISTORY_MS, cases[i].source_floor_ms);
        /* A drop would leave just this; where there are no files to drop, there is none. */
        struct fcap_buffer value = {0};
        fcap_buffer_put_be64(&value, (uint64_t)cases[i].source_dropped_ms);
        fcap_batch_clear(&fixture.batch);
        fcap_batch_section(&fixture.batch, PARTITION, 1, 1);
        fcap_batch_add(&fixture.batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT,
                       fcap_bytes_of("\xff\xff"
                                     "dropped_through"),
                       fcap_buffer_bytes(&value));
        assert_int_equal(help_commit(fixture.store, &fixture.batch), FCAP_OK);
        fcap_buffer_done(&value);
        struct fcap_store_rocksdb *source = NULL;
        assert_int_equal(fcap_store_rocksdb_open_read_only(&fixture.settings, &source, NULL),
                         FCAP_OK);
        struct fcap_store_claimed claimed = claim_target(i + 2);
        claimed.dropped_through_ms = cases[i].target_dropped_ms;
        assert_int_equal(
            fcap_store_rocksdb_copy_partition(source, target.db, &claimed, &copied, NULL),
            cases[i].status);
        assert_int_equal(floor_of(target.store), cases[i].floor_ms);
        fcap_store_rocksdb_close(source);
    }
}

/* --- kills ---------------------------------------------------------------------------------------
 */

/* Child: carries over and is killed before one of the batches. */
static bool kills(void *context)
{
    struct patience *patience = context;
    if (patience->batches-- == 0) {
        if (patience->synced != NULL) {
            help_sync(patience->synced);
        }
        (void)raise(SIGKILL);
    }
    return true;
}

static int carry_until_killed(const char *source_directory, unsigned batches, bool wal)
{
    struct fcap_store_settings settings = help_settings(source_directory);
    struct fcap_store_rocksdb *source = NULL;
    struct fcap_store_copied copied = {0};
    struct patience patience = {.batches = batches};
    int64_t dropped_ms = 0;
    struct fcap_store_settings to = help_settings(getenv("FCAP_TEST_TARGET"));
    to.wal = wal;
    struct fcap_store_rocksdb *db = NULL;
    if (fcap_store_rocksdb_open_read_only(&settings, &source, NULL) != FCAP_OK ||
        fcap_store_rocksdb_open(&to, &db, NULL) != FCAP_OK) {
        return 1;
    }
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    if (store->ops->claim(store, PARTITION, 1, &dropped_ms) != FCAP_OK) {
        return 1;
    }
    patience.synced = wal ? NULL : store; /* Else nothing of it would be left. */
    const struct fcap_store_claimed claimed = {
        .partition = PARTITION, .assignment = 1, .go_on = kills, .context = &patience};
    return fcap_store_rocksdb_copy_partition(source, db, &claimed, &copied, NULL) == FCAP_OK ? 0
                                                                                             : 1;
}

static void kills_leave_all_or_nothing(bool wal)
{
    enum { KILLS = 6 };
    struct fcap_store_copied copied = {0};
    struct fcap_store_rocksdb *source = make_source(wal);
    begin_target(wal);
    size_t emptied = 0;
    for (unsigned i = 0; i < KILLS; i++) {
        char mode[32];
        int output = -1;
        int status = 0;
        (void)snprintf(mode, sizeof mode, "%s:%u", wal ? "carry" : "carry-without-log", i);
        struct model old = {.sequence = 0};
        model_play(&old, &target.frames, target_sequence());
        struct fake_map *meta = &old.families[FCAP_FAMILY_META];
        while (meta->count > 0 && meta->pairs[meta->count - 1].key.data[0] == 0xff) {
            fake_map_remove(meta, meta->count - 1);
        }
        uint64_t before = target_sequence();
        fcap_store_rocksdb_close(target.db);
        target.db = NULL;
        assert_int_equal(setenv("FCAP_TEST_TARGET", target.directory, 1), 0);
        pid_t child = help_spawn(mode, world.place, &output);
        assert_int_equal(waitpid(child, &status, 0), child);
        (void)close(output);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        frames_done(&target.frames);
        open_target(wal);
        /* A daemon's follower would see the numbers jump; here the old record goes on. */
        bool is_old = target_sequence() == before;
        struct fcap_store_claimed claimed = claim_target(1);
        if (!is_old) {
            (void)model_carry(NULL, &old);
            emptied++;
        }
        (void)model_compare(&old, target.store);
        model_done(&old);
        /* The next try brings all of it. */
        fcap_store_rocksdb_follow(target.db, NULL);
        assert_int_equal(
            fcap_store_rocksdb_copy_partition(source, target.db, &claimed, &copied, NULL), FCAP_OK);
        fcap_store_rocksdb_close(target.db);
        help_remove(target.directory);
        frames_done(&target.frames);
        begin_target(wal);
    }
    fcap_store_rocksdb_close(source);
    print_message("result: wal %s: %d kills while a partition was carried over, %zu times it was "
                  "half there and is removed\n",
                  wal ? "on" : "off", KILLS, emptied);
    assert_true(emptied >= KILLS - 1);
}

static void kills_leave_all_or_nothing_with_log(void **state)
{
    (void)state;
    kills_leave_all_or_nothing(true);
}

static void kills_leave_all_or_nothing_without_log(void **state)
{
    (void)state;
    kills_leave_all_or_nothing(false);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        _exit(carry_until_killed(argv[2], (unsigned)strtoul(strchr(argv[1], ':') + 1, NULL, 10),
                                 strstr(argv[1], "without-log") == NULL));
    }
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, end_target)
    const struct CMUnitTest store_rocksdb_partition[] = {
        TEST(all_of_it_comes_and_nothing_else_with_log),
        TEST(all_of_it_comes_and_nothing_else_without_log),
        TEST(what_is_cut_off_is_removed),
        TEST(what_is_no_state_is_refused),
        TEST(drops_are_told_by_the_floor),
        TEST(kills_leave_all_or_nothing_with_log),
        TEST(kills_leave_all_or_nothing_without_log),
    };
#undef TEST
    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(store_rocksdb_partition, NULL, NULL);
}
