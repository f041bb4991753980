/* A window of 30 days over a topic that keeps 7 days, in virtual time: the real core on the real
 * store, with the real checkpointer on a real directory. Machines are lost with all that was on
 * them, and with Redis; what comes back is the newest checkpoint and what the topic still has.
 * Every key must equal the definition over all that ever happened, and no window may be told to be
 * incomplete. Without checkpoints, or when a machine is away for longer than the topic keeps, that
 * cannot be so, and must be told. */
#include "fcap/checkpointer.h"
#include "fcap/restore.h"
#include "integration/store_rocksdb_help.h"
#include "integration/virtual_world.h"
#include "lab/oracle_check.h"
#include "lib/random_log.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define MINUTE_MS    60000ll
#define HOUR_MS      3600000ll
#define DAY_MS       86400000ll
#define BEGIN_MS     1700000000123ll
#define RETENTION_MS (7 * DAY_MS)
#define INTERVAL_MS  HOUR_MS /* of checkpoints */

enum { PARTITIONS = 4, USERS = 1500, ADS = 12, EVENTS = 60000, DAYS = 60, WINDOWS = 3 };
enum { DAY = 1, WEEK = 2, MONTH = 4, EVERY = 7 }; /* in masks of windows */

static const struct {
    const char *name;
    int64_t length_ms;
} windows[WINDOWS] = {{"1d", DAY_MS}, {"7d", 7 * DAY_MS}, {"30d", 30 * DAY_MS}};

static struct {
    struct virtual_world *world;
    struct oracle *oracle;
    struct virtual_event *events;
    char (*users)[16];
    char (*ads)[16];
    uint64_t random;
    char place[128]; /* of the checkpoints */
    struct fcap_objects *objects;
    struct fcap_checkpoint_state_rocksdb state;
    struct fcap_checkpointer *checkpointer;
    struct oracle_tally values;
    struct oracle_tally expiries;
    uint64_t only_old; /* keys of the month compared whose user the topic had forgotten */
    uint64_t checkpoints;
    uint64_t snapshots;
} test;

static int64_t draw_ms(int64_t bound_ms)
{
    return (int64_t)random_below(&test.random, (uint32_t)(bound_ms / 1000)) * 1000 +
           random_below(&test.random, 1000);
}

/* --- what happens in 60 days ----------------------------------------------------------------- */

static int compare_arrivals(const void *left, const void *right)
{
    const struct virtual_event *a = left;
    const struct virtual_event *b = right;
    return a->arrival_ms < b->arrival_ms ? -1 : a->arrival_ms > b->arrival_ms;
}

/* Few users come often, many hardly ever; one event in ten is up to three hours late. */
static void make_events(void)
{
    test.events = calloc(EVENTS, sizeof *test.events);
    test.users = calloc(USERS, sizeof *test.users);
    test.ads = calloc(ADS, sizeof *test.ads);
    assert_true(test.events != NULL && test.users != NULL && test.ads != NULL);
    for (uint32_t i = 0; i < USERS; i++) {
        (void)snprintf(test.users[i], sizeof test.users[i], "user-%u", i); /* Fits. */
    }
    for (uint32_t i = 0; i < ADS; i++) {
        (void)snprintf(test.ads[i], sizeof test.ads[i], "ad-%u", i); /* Fits. */
    }
    for (size_t i = 0; i < EVENTS; i++) {
        uint32_t user = random_below(&test.random, random_below(&test.random, USERS) + 1);
        bool is_late = random_below(&test.random, 10) == 0;
        int64_t time_ms = BEGIN_MS + draw_ms(DAYS * DAY_MS);
        test.events[i] =
            (struct virtual_event){.arrival_ms = time_ms + (is_late ? draw_ms(3 * HOUR_MS) : 0),
                                   .time_ms = time_ms,
                                   .user = test.users[user],
                                   .ad = test.ads[random_below(&test.random, ADS)],
                                   .partition = (int32_t)(user % PARTITIONS)};
    }
    qsort(test.events, EVENTS, sizeof *test.events, compare_arrivals);
    int64_t next[PARTITIONS] = {0};
    test.oracle = oracle_open();
    for (size_t i = 0; i < EVENTS; i++) {
        const struct virtual_event *event = &test.events[i];
        struct oracle_event added = {.partition = event->partition,
                                     .offset = next[event->partition]++,
                                     .user = event->user,
                                     .ad = event->ad,
                                     .time_ms = event->time_ms};
        assert_int_equal(oracle_add(test.oracle, &added), ORACLE_ACCEPTED);
    }
}

static int set_up(void **state)
{
    (void)state;
    struct fcap_error error = {""};
    memset(&test, 0, sizeof test);
    test.random = 20261130;
    make_events();
    struct virtual_world *world = virtual_world_make();
    test.world = world;
    world->partition_count = PARTITIONS;
    world->now_ms = BEGIN_MS - 1;
    world->retention_ms = RETENTION_MS;
    world->settings.commit_interval_ms = MINUTE_MS;
    world->settings.slice_ms = 10 * MINUTE_MS;
    world->settings.bucket_ms = 10 * MINUTE_MS;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        world->store.families[i].write_buffer_bytes = 64 << 10;
        world->store.families[i].target_file_bytes = 64 << 10;
        world->store.families[i].level_base_bytes = 256 << 10;
    }
    for (size_t i = 0; i < WINDOWS; i++) {
        virtual_world_window(world, windows[i].name, windows[i].length_ms);
    }
    virtual_world_events(world, test.events, EVENTS);
    (void)snprintf(test.place, sizeof test.place, "%s/checkpoints", world->directory); /* Fits. */
    if (fcap_objects_directory_open(test.place, false, &test.objects, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return 0;
}

/* --- machines -------------------------------------------------------------------------------- */

static void tell(void *context, enum fcap_checkpointer_level level, const char *text)
{
    (void)context;
    if (level != FCAP_CHECKPOINTER_INFO) {
        print_error("%s\n", text);
    }
}

static void open_machine(void)
{
    struct fcap_error error = {""};
    const struct fcap_checkpointer_settings settings = {
        .profile = "days",
        .instance = "pod-0",
        .interval_ms = INTERVAL_MS,
        .min_pause_ms = MINUTE_MS / 2,
        .materialization_interval_ms = 5 * INTERVAL_MS,
        .transfer_threads = 1,
        .retain = 2,
        .queue_bytes_max = 64 << 20,
        .clock = &test.world->clock_port.port,
        .tell = tell,
    };
    virtual_world_start(test.world);
    fcap_checkpoint_state_rocksdb_init(&test.state, test.world->db, &test.world->store);
    if (fcap_checkpointer_open(&settings, test.objects, &test.state.state, &test.checkpointer,
                               &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

static struct fcap_checkpoint_metrics metrics_now(void)
{
    struct fcap_checkpoint_metrics metrics;
    fcap_checkpointer_metrics(test.checkpointer, &metrics);
    return metrics;
}

/* The process ends. What it had written to its own disk last is of no use to anybody. */
static void close_machine(void)
{
    if (test.checkpointer == NULL) {
        return;
    }
    struct fcap_checkpoint_metrics metrics = metrics_now();
    assert_int_equal(metrics.failing, 0);
    assert_int_equal(metrics.stopped, 0);
    test.checkpoints += metrics.checkpoints;
    test.snapshots += metrics.snapshots;
    virtual_world_commit(test.world); /* Nobody may be told of a batch while it closes. */
    fcap_checkpointer_close(test.checkpointer);
    test.checkpointer = NULL;
    fcap_checkpoint_state_done(&test.state.state);
    virtual_world_stop(test.world, false);
}

static void lose_machine(void)
{
    close_machine();
    help_remove(test.world->state);
    virtual_world_lose_redis(test.world);
}

static int tear_down(void **state)
{
    (void)state;
    close_machine();
    fcap_objects_directory_close(test.objects);
    virtual_world_free(test.world);
    oracle_close(test.oracle);
    free(test.events);
    free(test.users);
    free(test.ads);
    return 0;
}

static bool step_checkpointer(void)
{
    return fcap_checkpointer_step(test.checkpointer) <= test.world->monotonic_ms;
}

static void run_to(int64_t until_ms)
{
    while (test.world->now_ms < until_ms) {
        int64_t next_ms = test.world->now_ms + 1 + draw_ms(INTERVAL_MS);
        virtual_world_run_to(test.world, next_ms < until_ms ? next_ms : until_ms);
        for (int i = 0; step_checkpointer(); i++) {
            assert_true(i < 100000);
        }
    }
}

/* Time goes on until files of a snapshot are being sent. */
static void run_into_snapshot(void)
{
    uint64_t snapshots = metrics_now().snapshots;
    uint64_t files = metrics_now().files_sent;
    while (metrics_now().snapshot_running == 0) {
        if (!step_checkpointer()) {
            virtual_world_run_to(test.world, test.world->now_ms + 1 + draw_ms(MINUTE_MS));
        }
    }
    /* There are four files at least, and each takes a step at least. */
    for (uint32_t left = 1 + random_below(&test.random, 3); left > 0; left--) {
        (void)step_checkpointer();
    }
    assert_int_equal(metrics_now().snapshot_running, 1);
    assert_int_equal(metrics_now().snapshots, snapshots);
    assert_int_equal(metrics_now().files_sent, files); /* They are counted at its end. */
}

/* --- checkpoints ----------------------------------------------------------------------------- */

struct newest {
    uint64_t number;
    uint64_t sequence;
    uint64_t snapshot_sequence;
    int64_t next_offset[PARTITIONS];
    struct fcap_checkpoint_file files[256]; /* of its snapshot alone */
    size_t file_count;
};

static bool visit_checkpoint(void *context, const struct fcap_checkpoint *checkpoint)
{
    struct newest *newest = context;
    if (newest->number == 0) {
        newest->number = checkpoint->number;
        newest->sequence = checkpoint->sequence;
        newest->snapshot_sequence = checkpoint->snapshot_sequence;
        assert_in_range(checkpoint->file_count, 1, 256);
        newest->file_count = checkpoint->file_count;
        memcpy(newest->files, checkpoint->files, newest->file_count * sizeof newest->files[0]);
        assert_int_equal(checkpoint->partition_count, PARTITIONS);
        for (size_t i = 0; i < PARTITIONS; i++) {
            newest->next_offset[i] = checkpoint->partitions[i].next_offset;
        }
    }
    if (checkpoint->snapshot_sequence == newest->snapshot_sequence) {
        return true;
    }
    for (size_t i = 0; i < checkpoint->file_count; i++) {
        for (size_t k = 0; k < newest->file_count; k++) {
            if (strcmp(newest->files[k].object, checkpoint->files[i].object) == 0) {
                newest->files[k] = newest->files[--newest->file_count];
            }
        }
    }
    return true;
}

static void look_at_newest(struct newest *ret_newest)
{
    struct fcap_error error = {""};
    memset(ret_newest, 0, sizeof *ret_newest);
    if (fcap_restore_list(test.objects, "days", "pod-0", visit_checkpoint, ret_newest, &error) !=
        FCAP_OK) {
        fail_msg("%s", error.text);
    }
    assert_true(ret_newest->number > 0 && ret_newest->file_count > 0);
}

/* The last moment at which the topic still has all that came after the checkpoint. */
static int64_t last_moment_ms(const struct newest *newest)
{
    int64_t next[PARTITIONS] = {0};
    for (size_t i = 0; i < EVENTS; i++) {
        int32_t partition = test.events[i].partition;
        if (next[partition]++ == newest->next_offset[partition]) {
            return test.events[i].arrival_ms + RETENTION_MS; /* The first of all. */
        }
    }
    fail_msg("the checkpoint has all of the events");
    return 0;
}

static void flip_a_bit(const struct newest *newest)
{
    const struct fcap_checkpoint_file *file =
        &newest->files[random_below(&test.random, (uint32_t)newest->file_count)];
    char path[512];
    assert_true(file->size > 0);
    long at = (long)random_below(&test.random, (uint32_t)file->size);
    (void)snprintf(path, sizeof path, "%s/%s", test.place, file->object);
    (void)chmod(path, 0600); /* Should it be kept from writing: opening tells. */
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, at, SEEK_SET), 0);
    int byte = fgetc(stream);
    assert_true(byte != EOF);
    assert_int_equal(fseek(stream, at, SEEK_SET), 0);
    assert_true(fputc(byte ^ 1 << random_below(&test.random, 8), stream) != EOF);
    assert_int_equal(fclose(stream), 0);
}

static struct fcap_restore_report restore(void)
{
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    struct fcap_checkpoint_place_rocksdb place;
    fcap_checkpoint_place_rocksdb_init(&place, &test.world->store);
    const struct fcap_restore_settings settings = {.profile = "days",
                                                   .instance = "pod-0",
                                                   .directory = test.world->state,
                                                   .place = &place.place};
    if (fcap_restore(&settings, test.objects, &report, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return report;
}

/* --- comparing ------------------------------------------------------------------------------- */

static void check_key(const char *user, size_t window)
{
    struct virtual_world *world = test.world;
    const struct virtual_key *key = virtual_world_key(world, user, windows[window].name);
    struct oracle_query query = {.user = user,
                                 .window_ms = windows[window].length_ms,
                                 .at_ms = world->now_ms,
                                 .next = world->next,
                                 .next_count = PARTITIONS};
    struct oracle_expectation expectation = {.user = user,
                                             .window_ms = query.window_ms,
                                             .at_min_ms = query.at_ms,
                                             .at_max_ms = query.at_ms,
                                             .next_min = query.next,
                                             .next_count = PARTITIONS};
    (void)oracle_check_value(test.oracle, &expectation, key == NULL ? NULL : key->value,
                             key == NULL ? 0 : strlen(key->value), &test.values);
    if (key != NULL) {
        (void)oracle_check_expiry(test.oracle, &query, key->expire_at_ms, &test.expiries);
    }
}

/* Each key of the windows in the mask. */
static void check_keys(unsigned mask)
{
    uint64_t present = 0;
    for (size_t i = 0; i < oracle_user_count(test.oracle); i++) {
        const char *user = oracle_user(test.oracle, i);
        for (size_t w = 0; w < WINDOWS; w++) {
            present += virtual_world_key(test.world, user, windows[w].name) != NULL;
            if ((mask >> w & 1) != 0) {
                check_key(user, w);
            }
        }
        test.only_old += virtual_world_key(test.world, user, "30d") != NULL &&
                         virtual_world_key(test.world, user, "7d") == NULL;
    }
    assert_int_equal(virtual_world_live_keys(test.world), present);
    assert_int_equal(fcap_pipeline_counters(test.world->pipeline)->underflows, 0);
}

static void passes(uint64_t instants)
{
    char why[4300];
    const struct oracle_minimum values = {.compared = instants * USERS,
                                          .non_empty = instants * USERS / 4};
    const struct oracle_minimum expiries = {.compared = values.non_empty};
    if (!oracle_passes(&test.values, &values, why, sizeof why) ||
        !oracle_passes(&test.expiries, &expiries, why, sizeof why)) {
        fail_msg("%s", why);
    }
}

struct claims {
    unsigned tasks;
    unsigned whole; /* nothing is missing, nor ever was */
    unsigned ready; /* windows that all have */
    uint64_t gaps;  /* met since the start */
    unsigned told[FCAP_GAP_KIND_COUNT];
};

static void claim(void *context, const struct fcap_task_report *report)
{
    struct claims *claims = context;
    claims->tasks++;
    claims->whole += report->complete_since_ms == FCAP_TIME_NONE && report->lost.count == 0;
    claims->ready &= report->ready_mask;
    claims->gaps += report->gaps;
    for (size_t i = 0; i < report->lost.count; i++) {
        claims->told[report->lost.spans[i].kind]++;
    }
}

static struct claims claims_now(void)
{
    struct claims claims = {.ready = EVERY};
    fcap_pipeline_report(test.world->pipeline, claim, &claims);
    assert_int_equal(claims.tasks, PARTITIONS);
    return claims;
}

static void check_whole(void)
{
    struct claims claims = claims_now();
    assert_int_equal(claims.whole, PARTITIONS);
    assert_int_equal(claims.ready, EVERY);
    assert_int_equal(claims.gaps, 0);
    check_keys(EVERY);
}

/* --- tests ----------------------------------------------------------------------------------- */

enum loss {
    AT_ANY_TIME,
    IN_SNAPSHOT,    /* while files of a snapshot are sent */
    WITH_DAMAGE,    /* and the newest snapshot kept has a flipped bit */
    AS_LONG_AS_CAN, /* away until the topic has just what is needed */
};

static void lose_and_restore(enum loss loss, uint64_t *ret_batches)
{
    struct newest newest;
    struct virtual_world *world = test.world;
    if (loss == IN_SNAPSHOT) {
        run_into_snapshot();
    }
    uint64_t number = metrics_now().number;
    lose_machine();
    look_at_newest(&newest);
    assert_int_equal(newest.number, number);
    if (loss == WITH_DAMAGE) {
        flip_a_bit(&newest);
    }
    struct fcap_restore_report report = restore();
    *ret_batches += report.batches;
    assert_int_equal(report.sequence, newest.sequence);
    if (loss == WITH_DAMAGE) { /* The one before, and a longer changelog. */
        assert_true(report.not_taken > 0 && report.snapshot_sequence < newest.snapshot_sequence);
    } else {
        assert_int_equal(report.not_taken, 0);
    }
    assert_true(world->now_ms - report.written_ms < DAY_MS);
    world->now_ms =
        loss == AS_LONG_AS_CAN ? last_moment_ms(&newest) : world->now_ms + draw_ms(12 * HOUR_MS);
    open_machine();
    virtual_world_run_to(world, world->now_ms);
    check_whole();
}

static void test_machines_are_lost(void **state)
{
    (void)state;
    static const enum loss losses[] = {AT_ANY_TIME,    IN_SNAPSHOT, WITH_DAMAGE,
                                       AT_ANY_TIME,    IN_SNAPSHOT, AT_ANY_TIME,
                                       AS_LONG_AS_CAN, WITH_DAMAGE, AT_ANY_TIME};
    enum { LOSSES = sizeof losses / sizeof losses[0] };
    uint64_t instants = 0;
    uint64_t batches = 0;
    open_machine();
    run_to(BEGIN_MS + 10 * DAY_MS);
    for (size_t i = 0; i < LOSSES; i++) {
        for (uint32_t looks = 2; looks > 0; looks--, instants++) {
            run_to(test.world->now_ms + HOUR_MS + draw_ms(3 * DAY_MS));
            check_whole();
        }
        lose_and_restore(losses[i], &batches);
        instants++;
        assert_true(test.only_old > 20 * instants);
    }
    run_to(test.world->now_ms + 2 * DAY_MS);
    check_whole();
    passes(++instants);
    int64_t days = (test.world->now_ms - BEGIN_MS) / DAY_MS;
    assert_true(days > 35);
    close_machine();
    assert_true(batches > 0);
    print_message("result: 30 d windows over 7 d of Kafka, %d machines lost in %" PRId64
                  " virtual days, %" PRIu64 " keys compared at %" PRIu64 " instants, %" PRIu64
                  " of them of users that Kafka had forgotten, %" PRIu64
                  " PXAT, 0 wrong, never incomplete; %" PRIu64 " checkpoints, %" PRIu64
                  " snapshots, %" PRIu64 " batches from changelogs\n",
                  LOSSES, days, test.values.compared, instants, test.only_old,
                  test.expiries.compared, test.checkpoints, test.snapshots, batches);
}

/* What the test above would see if states came from Kafka alone. */
static void test_without_checkpoints(void **state)
{
    (void)state;
    open_machine();
    run_to(BEGIN_MS + 20 * DAY_MS);
    check_whole();
    passes(1);
    assert_true(test.only_old > 20);
    lose_machine();
    virtual_world_start(test.world);
    virtual_world_run_to(test.world, test.world->now_ms);
    struct claims claims = claims_now();
    assert_int_equal(claims.whole, 0);
    assert_int_equal(claims.told[FCAP_GAP_SHORT_HISTORY], PARTITIONS);
    assert_int_equal(claims.ready & (DAY | MONTH), DAY);
    check_keys(claims.ready);
    assert_int_equal(test.values.wrong, 0);
    check_keys(MONTH); /* It is held back: there is none. */
    assert_true(test.values.wrong > USERS / 4);
    virtual_world_stop(test.world, false);
}

/* Away for a millisecond longer than the topic keeps what came after the checkpoint. */
static void test_away_for_too_long(void **state)
{
    struct newest newest;
    (void)state;
    open_machine();
    run_to(BEGIN_MS + 20 * DAY_MS);
    check_whole();
    lose_machine();
    look_at_newest(&newest);
    (void)restore();
    test.world->now_ms = last_moment_ms(&newest) + 1;
    open_machine();
    virtual_world_run_to(test.world, test.world->now_ms);
    struct claims claims = claims_now();
    assert_int_equal(claims.whole, PARTITIONS - 1);
    assert_int_equal(claims.gaps, 1);
    assert_int_equal(claims.told[FCAP_GAP_BELOW_START], 1);
    assert_int_equal(claims.ready & MONTH, 0);
    passes(1);
    check_keys(MONTH); /* It was shown before, and now lacks one event. */
    assert_int_equal(test.values.wrong, 1);
    test.values = (struct oracle_tally){0};
    /* It heals by itself. */
    run_to(test.world->now_ms + DAY_MS + HOUR_MS);
    assert_int_equal(claims_now().ready, DAY);
    run_to(test.world->now_ms + 29 * DAY_MS);
    assert_int_equal(claims_now().ready, EVERY);
    check_keys(EVERY);
    passes(1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_machines_are_lost),
        TEST(test_without_checkpoints),
        TEST(test_away_for_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
