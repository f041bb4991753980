/* Exactness in virtual time, on the real core and the real store: every boundary to the
 * millisecond, and the real logs against the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "integration/virtual_world.h"
#include "lab/oracle_check.h"
#include "lab/oracle_value.h"
#include "lib/replay_logs.h"

#define MINUTE_MS 60000ll
#define HOUR_MS   3600000ll
#define DAY_MS    86400000ll

enum { PARTITIONS = 4, BOUNDARY_EVENTS = 200, WINDOWS = 5 };

static const struct {
    const char *name;
    int64_t length_ms;
} windows[WINDOWS] = {
    {"1m", MINUTE_MS}, {"30m", 30 * MINUTE_MS}, {"1h", HOUR_MS}, {"1d", DAY_MS}, {"7d", 7 * DAY_MS},
};

static uint64_t random_state;

static uint64_t draw(uint64_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % bound;
}

/* --- a log as a topic ---------------------------------------------------------------------- */

struct replay {
    struct replay_log log;
    struct virtual_event *events; /* in order of arrival */
    struct oracle *oracle;
    struct virtual_world *world;
    struct oracle_tally tally;
    struct oracle_tally expiries; /* PXAT */
};

static int compare_arrivals(const void *left, const void *right)
{
    const struct virtual_event *a = left;
    const struct virtual_event *b = right;
    return a->arrival_ms < b->arrival_ms ? -1 : a->arrival_ms > b->arrival_ms;
}

static void open_log(enum replay_kind kind, struct replay_log *log)
{
    char error[4200] = "";
    if (!replay_log_open(kind, replay_folder(), log, error, sizeof error)) {
        fail_msg("%s", error);
    }
}

/* With `late`, one event in 20 arrives up to 40 minutes after its time: too late for two windows;
 * those of one millisecond arrive in any order then. */
static void make_topic(struct replay *replay, bool late)
{
    size_t count = replay->log.count;
    replay->events = calloc(count, sizeof *replay->events);
    assert_non_null(replay->events);
    for (size_t i = 0; i < count; i++) {
        const struct replay_event *event = &replay->log.events[i];
        bool is_late = late && draw(20) == 0;
        replay->events[i] = (struct virtual_event){
            .arrival_ms = event->time_ms + (is_late ? (int64_t)draw(40 * MINUTE_MS) : 0),
            .time_ms = event->time_ms,
            .user = event->user,
            .ad = event->ad,
            .partition = (int32_t)(fcap_hash64(fcap_bytes_of(event->user), 7) % PARTITIONS)};
    }
    qsort(replay->events, count, sizeof *replay->events, compare_arrivals);
    int64_t next[PARTITIONS] = {0};
    replay->oracle = oracle_open();
    for (size_t i = 0; i < count; i++) {
        const struct virtual_event *event = &replay->events[i];
        struct oracle_event added = {.partition = event->partition,
                                     .offset = next[event->partition]++,
                                     .user = event->user,
                                     .ad = event->ad,
                                     .time_ms = event->time_ms};
        assert_int_equal(oracle_add(replay->oracle, &added), ORACLE_ACCEPTED);
    }
}

/* `bucket_ms` 0: as the core chooses; a wide one saves looks into empty buckets. */
static void replay_open(struct replay *replay, enum replay_kind kind, bool late, int64_t bucket_ms)
{
    *replay = (struct replay){0};
    random_state = 88172645463325252u;
    open_log(kind, &replay->log);
    make_topic(replay, late);
    struct virtual_world *world = virtual_world_make();
    replay->world = world;
    world->partition_count = PARTITIONS;
    world->now_ms = replay->events[0].arrival_ms - 1;
    world->settings.commit_interval_ms = MINUTE_MS;
    world->settings.slice_ms = 10000;
    world->settings.bucket_ms = bucket_ms;
    for (size_t i = 0; i < WINDOWS; i++) {
        virtual_world_window(world, windows[i].name, windows[i].length_ms);
    }
    virtual_world_events(world, replay->events, replay->log.count);
    virtual_world_start(world);
}

static void replay_close(struct replay *replay)
{
    virtual_world_free(replay->world);
    oracle_close(replay->oracle);
    free(replay->events);
    replay_log_close(&replay->log);
}

/* --- comparing ----------------------------------------------------------------------------- */

static void check_key(struct replay *replay, const char *user, size_t window)
{
    struct virtual_world *world = replay->world;
    const struct virtual_key *key = virtual_world_key(world, user, windows[window].name);
    struct oracle_expectation expectation = {.user = user,
                                             .window_ms = windows[window].length_ms,
                                             .at_min_ms = world->now_ms,
                                             .at_max_ms = world->now_ms,
                                             .next_min = world->next,
                                             .next_count = PARTITIONS};
    (void)oracle_check_value(replay->oracle, &expectation, key == NULL ? NULL : key->value,
                             key == NULL ? 0 : strlen(key->value), &replay->tally);
    if (key != NULL) {
        struct oracle_query query = {.user = user,
                                     .window_ms = windows[window].length_ms,
                                     .at_ms = world->now_ms,
                                     .next = world->next,
                                     .next_count = PARTITIONS};
        (void)oracle_check_expiry(replay->oracle, &query, key->expire_at_ms, &replay->expiries);
    }
}

/* Every user x window at this moment, and nothing else may be there. */
static void check_all(struct replay *replay)
{
    uint64_t present = 0;
    uint64_t users = oracle_user_count(replay->oracle);
    for (size_t i = 0; i < users; i++) {
        const char *user = oracle_user(replay->oracle, i);
        for (size_t w = 0; w < WINDOWS; w++) {
            present += virtual_world_key(replay->world, user, windows[w].name) != NULL;
            check_key(replay, user, w);
        }
    }
    assert_int_equal(virtual_world_live_keys(replay->world), present);
}

static void finish(struct replay *replay, const char *name, uint64_t instants,
                   const struct oracle_minimum *minimum)
{
    char why[4300];
    const struct fcap_counters *counters = fcap_pipeline_counters(replay->world->pipeline);
    print_message(
        "result: %s: %llu instants, %llu keys compared, %llu of them with counts, %llu PXAT; "
        "%llu starts, %llu values pushed; %llu wrong\n",
        name, (unsigned long long)instants, (unsigned long long)replay->tally.compared,
        (unsigned long long)replay->tally.non_empty, (unsigned long long)replay->expiries.compared,
        (unsigned long long)replay->world->starts, (unsigned long long)replay->world->pushes,
        (unsigned long long)(replay->tally.wrong + replay->expiries.wrong));
    assert_int_equal(counters->underflows, 0);
    if (!oracle_passes(&replay->tally, minimum, why, sizeof why)) {
        fail_msg("%s", why);
    }
    struct oracle_minimum expiries = {.compared = minimum->non_empty};
    if (!oracle_passes(&replay->expiries, &expiries, why, sizeof why)) {
        fail_msg("%s", why);
    }
}

/* --- instants ------------------------------------------------------------------------------ */

static int compare_times(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* Each window's boundary of 200 events, 1 ms before and after it too (the window of an event's
 * turn, or with `every_window` all five), and `others` moments at random; sorted, each once. */
static size_t make_instants(const struct replay *replay, bool every_window, size_t others,
                            int64_t **ret_instants)
{
    size_t count = 0;
    int64_t *instants = calloc(BOUNDARY_EVENTS * 3 * WINDOWS + others, sizeof *instants);
    assert_non_null(instants);
    for (size_t i = 0; i < BOUNDARY_EVENTS; i++) {
        const struct virtual_event *event =
            &replay->events[i * replay->log.count / BOUNDARY_EVENTS];
        for (size_t w = 0; w < WINDOWS; w++) {
            for (int64_t step = -1; step <= 1 && (every_window || w == i % WINDOWS); step++) {
                instants[count++] = event->time_ms + windows[w].length_ms + step;
            }
        }
    }
    int64_t first = replay->events[0].arrival_ms;
    int64_t span = replay->events[replay->log.count - 1].arrival_ms + 8 * DAY_MS - first;
    for (size_t i = 0; i < others; i++) {
        instants[count++] = first + (int64_t)draw((uint64_t)span);
    }
    qsort(instants, count, sizeof *instants, compare_times);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || instants[kept - 1] != instants[i]) {
            instants[kept++] = instants[i];
        }
    }
    *ret_instants = instants;
    return kept;
}

/* --- the real logs ------------------------------------------------------------------------- */

/* In order of time, looking at each event's user when it has been counted: also the largest counts
 * of every window, which were computed by others (the logs' README). */
static void test_largest_counts(void **state)
{
    static const uint64_t largest_ad[WINDOWS] = {3, 3, 4, 9, 27};
    static const uint64_t largest_user[WINDOWS] = {4, 10, 14, 121, 567};
    uint64_t ad[WINDOWS] = {0};
    uint64_t user[WINDOWS] = {0};
    struct replay replay;
    (void)state;
    replay_open(&replay, REPLAY_OBD, false, 0);
    for (size_t i = 0; i < replay.log.count; i++) {
        const struct virtual_event *event = &replay.events[i];
        if (i + 1 < replay.log.count && replay.events[i + 1].arrival_ms == event->arrival_ms) {
            continue; /* All of this millisecond at once. */
        }
        virtual_world_run_to(replay.world, event->arrival_ms);
        for (size_t w = 0; w < WINDOWS; w++) {
            struct oracle_value value;
            const char *reason;
            uint64_t sum = 0;
            check_key(&replay, event->user, w);
            const struct virtual_key *key =
                virtual_world_key(replay.world, event->user, windows[w].name);
            assert_non_null(key);
            assert_true(oracle_value_parse(key->value, strlen(key->value), &value, &reason));
            for (size_t k = 0; k < value.counts.count; k++) {
                uint64_t count = value.counts.rows[k].count;
                ad[w] = count > ad[w] ? count : ad[w];
                sum += count;
            }
            user[w] = sum > user[w] ? sum : user[w];
            oracle_value_done(&value);
        }
    }
    finish(&replay, "obd in order", replay.log.count,
           &(struct oracle_minimum){.compared = 49000, .non_empty = 49000});
    for (size_t w = 0; w < WINDOWS; w++) {
        print_message("%s: largest count %llu, of a user %llu\n", windows[w].name,
                      (unsigned long long)ad[w], (unsigned long long)user[w]);
        assert_int_equal(ad[w], largest_ad[w]);
        assert_int_equal(user[w], largest_user[w]);
    }
    replay_close(&replay);
}

/* Late events, and restarts in between: every third one clean, the others crashes. */
static void run_with_restarts(enum replay_kind kind, const char *name, bool every_window,
                              size_t others, const struct oracle_minimum *minimum)
{
    struct replay replay;
    int64_t *instants;
    replay_open(&replay, kind, true, MINUTE_MS);
    size_t count = make_instants(&replay, every_window, others, &instants);
    assert_true(count >= 1000);
    for (size_t i = 0; i < count; i++) {
        virtual_world_run_to(replay.world, instants[i]);
        check_all(&replay);
        if (i % 37 == 36) {
            virtual_world_stop(replay.world, i % 3 == 0);
            virtual_world_start(replay.world);
        }
    }
    assert_true(replay.world->starts > 20);
    finish(&replay, name, count, minimum);
    free(instants);
    replay_close(&replay);
}

static void test_obd(void **state)
{
    (void)state;
    run_with_restarts(
        REPLAY_OBD, "obd, late events, restarts", false, 600,
        &(struct oracle_minimum){.compared = 1000000, .non_empty = 200000, .absent = 200000});
}

static void test_otto(void **state)
{
    (void)state;
    run_with_restarts(
        REPLAY_OTTO, "otto, late events, restarts", true, 600,
        &(struct oracle_minimum){.compared = 300000, .non_empty = 20000, .absent = 100000});
}

/* A checker that cannot fail proves nothing: one wrong count, one key too many, one missing, one
 * PXAT a millisecond off, each in an otherwise right world. */
static void test_planted(void **state)
{
    struct replay replay;
    (void)state;
    replay_open(&replay, REPLAY_TAOBAO, false, 0);
    const struct virtual_event *event = &replay.events[replay.log.count - 1];
    virtual_world_run_to(replay.world, event->arrival_ms + 1);
    check_all(&replay);
    struct oracle_minimum minimum = {.compared = 24 * WINDOWS, .non_empty = 24 * WINDOWS};
    assert_true(oracle_passes(&replay.tally, &minimum, NULL, 0));
    minimum.compared++;
    assert_false(oracle_passes(&replay.tally, &minimum, NULL, 0)); /* too few is a failure too */
    const struct virtual_key *key = virtual_world_key(replay.world, event->user, "1h");
    char *right = strdup(key->value);
    int64_t expire_at_ms = key->expire_at_ms;
    char *wrong = strdup(right);
    char *digit = strrchr(wrong, ':') + 1;
    *digit = *digit == '9' ? '8' : (char)(*digit + 1);
    const char *const planted[] = {wrong, NULL, right};
    for (size_t i = 0; i < 3; i++) {
        virtual_world_plant(replay.world, event->user, "1h", planted[i]); /* PXAT: never */
        replay.tally = (struct oracle_tally){0};
        replay.expiries = (struct oracle_tally){0};
        check_key(&replay, event->user, 2);
        assert_int_equal(replay.tally.wrong, i < 2); /* the third: only its PXAT */
        assert_int_equal(replay.expiries.wrong, i != 1);
        assert_false(oracle_passes(i < 2 ? &replay.tally : &replay.expiries,
                                   &(struct oracle_minimum){0}, NULL, 0));
    }
    assert_int_equal(expire_at_ms, event->time_ms + HOUR_MS - 1);
    free(right);
    free(wrong);
    replay_close(&replay);
}

static bool is_set(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text != NULL && strcmp(text, value) == 0;
}

int main(void)
{
    enum { SKIPPED = 77 };
    if (replay_folder() == NULL) {
        printf("skipped: FCAP_SHARED_DATA names no folder with the real logs\n");
        return is_set("CI", "true") || is_set("FCAP_NO_SKIP", "1") ? 1 : SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted),
        cmocka_unit_test(test_otto),
        cmocka_unit_test(test_obd),
        cmocka_unit_test(test_largest_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
