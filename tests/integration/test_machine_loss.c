/* Machines are lost under load: kill -9 at moments spread over the cycle of checkpoints, in the
 * middle of a segment, of a snapshot, of a manifest, at any time, right after a start and in the
 * middle of a restore; the state is deleted, sometimes what Redis holds and what Kafka holds of it,
 * too. Each time the newest complete checkpoint is restored and every key equals the definition,
 * while records go on coming. At the end the time to ready from a checkpoint stands beside that of
 * a full replay of the same history.
 *
 * FCAP_TEST_FULL=1: 27 losses on 3,000,000 events instead of 5 on 20,000. */
#include "machine_loss.h"

#include "lab/lab.h"
#include "lib/draw.h"
#include "lib/fault.h"
#include "lib/full_size.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DAY_MS    INT64_C(86400000)
#define PAIRS_MAX 3

static const struct live_window windows[] = {
    {"5s", 5000}, {"1m", 60000}, {"10m", 600000}, {"1d", DAY_MS}, {NULL, 0}};

/* How a machine is lost. */
struct loss {
    const char *at;       /* the point where it dies; NULL: at any time */
    unsigned passes;      /* drawn up to so many */
    bool at_once;         /* as soon as it is ready, before it has kept anything of its own */
    const char *restored; /* the next one is lost, too, at this point of its restore; NULL: no */
    bool empties;         /* Redis is emptied, too */
    bool deletes;         /* Kafka forgets what the checkpoint knows */
};

/* clang-format off */
static const struct loss reduced[] = {
    {.at = "checkpoint_file_sending", .passes = 3, .restored = "restore_moving", .empties = true},
    {.at = "checkpoint_segment", .passes = 1, .deletes = true},
};
static const struct loss full[] = {
    {.at = NULL},
    {.at = "checkpoint_frame", .passes = 20},
    {.at = "checkpoint_segment", .passes = 9, .empties = true},
    {.at = "checkpoint_file_sending", .passes = 20, .restored = "restore_copying"},
    {.at = NULL, .empties = true},
    {.at = "checkpoint_segment_finished", .passes = 9},
    {.at = NULL, .at_once = true},
    {.at = "checkpoint_snapshot", .passes = 1, .empties = true},
    {.at = "checkpoint_manifest", .passes = 9, .restored = "restore_moving", .empties = true},
    {.at = NULL},
    {.at = "checkpoint_file_sent", .passes = 6},
    {.at = NULL, .at_once = true, .empties = true},
    {.at = "checkpoint_manifest_made", .passes = 9, .restored = "frame_applied"},
    {.at = "checkpoint_files_sent", .passes = 1},
    {.at = NULL, .restored = "lineage_drawn", .empties = true},
    {.at = "checkpoint_cut", .passes = 6},
    {.at = NULL, .deletes = true, .empties = true},
};
/* clang-format on */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct machine machine;
static struct live_tally tally;
static uint32_t random_state = 20261130;
static unsigned losses;
static uint64_t batches;
static uint64_t again;
static uint64_t deleted;
static double expiries;

static int setup(void **unused)
{
    const struct history_options options = {
        .live =
            {
                .partitions = is_full_size() ? 12 : 6,
                .workers = 2,
                .windows = "[5s, 1m, 10m, 1d]",
                .lengths = windows,
                .topic_config = {"retention.ms", "-1"},
                .more_kafka = "  keyed: assume\n",
                .session_timeout = "30s", /* A static member is back at once, however it ended. */
            },
        .events = is_full_size() ? 3000000 : 20000,
        .users = is_full_size() ? 50000 : 1500,
        /* Some 7 writes to Redis each, which the watch has to read, too. */
        .rate = is_full_size() ? 600 : 300,
        .span_ms = DAY_MS + DAY_MS / 4, /* What is older than the longest window is not read. */
        .edge_ms = is_full_size() ? 1800000 : 120000,
        .empty = -1,
        .slow = -1,
        .seed = 20261130,
    };
    (void)unused;
    /* So slow that a snapshot fills a good part of its cycle. */
    machine_init(&machine, &options, is_full_size() ? "  rate_limit: 16MiB\n" : "");
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    machine_done(&machine);
    return 0;
}

/* --- one loss -------------------------------------------------------------------------------- */

static const char *points_of(const char *name, unsigned passes)
{
    static char text[64];
    if (name == NULL) {
        return NULL;
    }
    (void)snprintf(text, sizeof text, "%s:%u", name, 1 + draw_below(&random_state, passes));
    return text;
}

static void compare_moving(void)
{
    struct live *live = &machine.history.live;
    uint64_t keys = machine.history.options.users * live->window_count;
    uint64_t compared = tally.now.compared;
    uint64_t non_empty = tally.now.non_empty;
    uint64_t absent = tally.now.absent;
    live_compare(live, false, &tally);
    compared = tally.now.compared - compared;
    non_empty = tally.now.non_empty - non_empty;
    absent = tally.now.absent - absent;
    print_message("    compared %" PRIu64 " keys: %" PRIu64 " differ, %" PRIu64
                  " non-empty, %" PRIu64 " expired or never there\n",
                  compared, tally.now.wrong + tally.as_of.wrong, non_empty, absent);
    live_passes(&tally.now, (struct oracle_minimum){keys / 2, keys / 10, 1});
    live_passes(&tally.as_of, (struct oracle_minimum){keys / 10, keys / 10, 0});
    live_passes(&tally.expiry, (struct oracle_minimum){0});
    assert_true(compared >= keys / 2 && non_empty >= keys / 10 && absent > 0);
}

/* The running life ends. */
static void die(const struct loss *loss)
{
    if (!loss->at_once) {
        /* A snapshot of its own, and a changelog behind it. */
        machine_await_checkpoints(&machine, 2);
        machine_go_on(&machine, draw_below(&random_state, is_full_size() ? 12000 : 1000));
    }
    if (loss->at != NULL) {
        machine_kill_at_point(&machine);
    } else {
        machine_kill(&machine);
    }
    expiries += machine.expired;
}

/* Its machine is lost, and what else the row says. */
static void lose(const struct loss *loss, struct machine_kept *ret_kept)
{
    live_read(&machine.history.live);
    machine_look(&machine, ret_kept);
    assert_true(ret_kept->number > 0);
    machine_lose(&machine);
    losses++;
    if (loss->empties) {
        machine_empty_redis(&machine);
    }
    if (loss->deletes) {
        deleted += machine_delete_records(&machine, ret_kept);
    }
    if (loss->restored != NULL) {
        struct machine_kept kept;
        bool has_changelog = ret_kept->sequence > ret_kept->snapshot_sequence;
        machine_die_starting(&machine,
                             points_of(has_changelog ? loss->restored : "restore_moving", 1));
        machine_look(&machine, &kept);
        assert_int_equal(kept.number, ret_kept->number);
        machine_lose(&machine);
        losses++;
    }
}

/* That had been read before, as far as anybody saw: a process that stops itself cannot be asked how
 * far it came. */
static uint64_t records_again(const struct machine_kept *kept)
{
    uint64_t records = 0;
    for (int32_t i = 0; i < machine.history.options.live.partitions; i++) {
        const struct live_claim *last = &machine.history.live.last[i];
        int64_t applied = machine.applied[i] > last->next ? machine.applied[i] : last->next;
        records += applied > kept->next[i] ? (uint64_t)(applied - kept->next[i]) : 0;
    }
    return records;
}

/* Nothing but what came behind the checkpoint was read, at most once more when a partition came
 * twice. */
static void check_read(const struct machine_start *start, const struct machine_kept *kept)
{
    uint64_t behind = 0;
    for (int32_t i = 0; i < machine.history.options.live.partitions; i++) {
        int64_t low = 0;
        int64_t end = 0;
        kafka_ends(kafka_test_brokers(), machine.history.live.topic, i, &low, &end);
        behind += (uint64_t)(end - kept->next[i]) + 1; /* It looks at the one before, too. */
    }
    if (start->read > 2 * behind) {
        fail_msg("%" PRIu64 " records were read, %" PRIu64 " came behind the checkpoint",
                 start->read, behind);
    }
}

/* The next life: from what is kept. */
static void come_back(const struct machine_kept *kept, const char *points, uint64_t records,
                      struct machine_start *ret_start)
{
    machine_start(&machine, points);
    machine_await_served(&machine, ret_start);
    assert_int_equal(ret_start->number, kept->number);
    assert_int_equal(ret_start->batches > 0, kept->sequence > kept->snapshot_sequence);
    check_read(ret_start, kept);
    batches += ret_start->batches;
    again += records;
    print_message("    checkpoint %" PRIu64 " was restored, %" PRIu64
                  " batches of the changelog; Kafka gave at least %" PRIu64
                  " records again, %" PRIu64 " in all; ready after %" PRId64
                  " ms, all served after %" PRId64 " ms\n",
                  ret_start->number, ret_start->batches, records, ret_start->read,
                  ret_start->ready_ms, ret_start->served_ms);
}

/* `next`: the loss after it, NULL: none. */
static void lose_and_compare(const struct loss *loss, const struct loss *next)
{
    struct machine_kept kept;
    struct machine_start start;
    die(loss);
    print_message("machine lost %s%s%s%s%s%s%s\n", loss->at == NULL ? "at any time" : "at ",
                  loss->at == NULL ? "" : stop_point(&machine.stop),
                  loss->at_once ? ", right after its start" : "",
                  loss->restored == NULL ? "" : ", the next one at ",
                  loss->restored == NULL ? "" : loss->restored,
                  loss->empties ? ", Redis emptied" : "",
                  loss->deletes ? ", and what Kafka held of the checkpoint" : "");
    lose(loss, &kept);
    come_back(&kept, next == NULL ? NULL : points_of(next->at, next->passes), records_again(&kept),
              &start);
    compare_moving();
}

/* --- time to ready --------------------------------------------------------------------------- */

/* One more loss of everything but Kafka; its state comes from a checkpoint or from Kafka. `points`:
 * where this life is to end. */
static void time_to_ready(bool from_checkpoint, const char *points, struct machine_start *ret_start)
{
    struct machine_kept kept;
    machine_kill(&machine);
    expiries += machine.expired;
    live_read(&machine.history.live);
    machine_look(&machine, &kept);
    machine_lose(&machine);
    machine_empty_redis(&machine);
    uint64_t records = records_again(&kept);
    machine_configure(&machine, from_checkpoint);
    machine_start(&machine, points);
    machine_await_served(&machine, ret_start);
    assert_int_equal(ret_start->number, from_checkpoint ? kept.number : 0);
    if (from_checkpoint) {
        losses++;
        batches += ret_start->batches;
        again += records;
    }
    compare_moving();
}

static int compare_starts(const void *left, const void *right)
{
    int64_t a = ((const struct machine_start *)left)->ready_ms;
    int64_t b = ((const struct machine_start *)right)->ready_ms;
    return a < b ? -1 : a > b;
}

/* `points`: where the last life is to end. */
static void compare_times(const char *points)
{
    struct machine_start restored[PAIRS_MAX];
    struct machine_start replayed[PAIRS_MAX];
    size_t pairs = is_full_size() ? PAIRS_MAX : 1;
    int64_t records = 0;
    for (size_t i = 0; i < pairs; i++) {
        machine_await_checkpoints(&machine, 2);
        machine_go_on(&machine, draw_below(&random_state, 1000));
        time_to_ready(true, NULL, &restored[i]);
        machine_await_checkpoints(&machine, 2);
        time_to_ready(false, NULL, &replayed[i]);
        /* From the checkpoint of before the replay. */
        struct machine_start start;
        time_to_ready(true, i + 1 < pairs ? NULL : points, &start);
    }
    for (int32_t i = 0; i < machine.history.options.live.partitions; i++) {
        records += machine.history.live.read[i];
    }
    qsort(restored, pairs, sizeof restored[0], compare_starts);
    qsort(replayed, pairs, sizeof replayed[0], compare_starts);
    const struct machine_start *fast = &restored[pairs / 2];
    const struct machine_start *slow = &replayed[pairs / 2];
    assert_true(slow->read > machine.history.options.events / 2); /* It was one. */
    print_message(
        "result: time to ready, median of %zu in turn: %" PRId64 " ms from a checkpoint (%" PRIu64
        " records read), %" PRId64 " ms by a replay of %" PRIu64 " of the topic's %" PRId64
        " records: %.2f; until everything is served %" PRId64 " and %" PRId64 " ms\n",
        pairs, fast->ready_ms, fast->read, slow->ready_ms, slow->read, records,
        (double)fast->ready_ms / (double)slow->ready_ms, fast->served_ms, slow->served_ms);
}

/* --- what must be found ---------------------------------------------------------------------- */

/* A comparison that finds nothing proves nothing unless it finds this: the same machine without its
 * checkpoints, now that Kafka lacks what they know. */
static void lose_without_checkpoints(void)
{
    static struct live_tally found;
    live_stop(&machine.history.live);
    machine_lose(&machine);
    machine_empty_redis(&machine);
    machine_configure(&machine, false);
    live_start(&machine.history.live);
    live_await_applied(&machine.history.live);
    live_compare(&machine.history.live, true, &found);
    print_message("without checkpoints %" PRIu64 " of %" PRIu64 " keys would differ\n",
                  found.now.wrong, found.now.compared);
    assert_true(found.now.wrong > machine.history.options.users / 4);
    live_stop(&machine.history.live);
}

static void check_writes(void)
{
    const struct redis_ledger_report *report =
        redis_ledger_report(redis_watch_hold(machine.history.watch));
    if (report->wrong != 0) {
        fail_msg("%" PRIu64 " writes to Redis are wrong:\n%s", report->wrong, report->text);
    }
    assert_true(report->sets > machine.history.options.users);
    redis_watch_release(machine.history.watch);
}

static void compare_at_rest(void)
{
    struct live *live = &machine.history.live;
    uint64_t some = machine.history.options.users / 2;
    history_calm(&machine.history);
    live_await_applied(live);
    live_compare(live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){some, some, 1});
    live_passes(&tally.as_of, (struct oracle_minimum){some, some, 0});
    live_passes(&tally.expiry, (struct oracle_minimum){some, some, 0});
}

static void report(void)
{
    assert_true(losses >= (is_full_size() ? 20 : 4));
    assert_true(batches > 0 && again > 0 && deleted > machine.history.options.events / 2);
    assert_true(expiries > machine.history.options.users);
    print_message(
        "result: %u machines lost under load (%" PRIu64 " live records), each restored "
        "from its newest checkpoint: %" PRIu64 " batches from changelogs, %" PRIu64
        " records from Kafka again, %" PRIu64 " that Kafka had forgotten; %" PRIu64
        " keys compared moving and at rest, %" PRIu64 " non-empty, %" PRIu64 " expired, %" PRIu64
        " at their as_of, %" PRIu64 " PXAT, %" PRIu64 " differ; %.0f expiries\n",
        losses, machine.history.sent, batches, again, deleted, tally.now.compared,
        tally.now.non_empty, tally.now.absent, tally.as_of.compared, tally.expiry.compared,
        tally.now.wrong + tally.as_of.wrong + tally.expiry.wrong, expiries);
}

static void test_lost_machines_come_back(void **unused)
{
    const struct loss *plan = is_full_size() ? full : reduced;
    size_t count = is_full_size() ? COUNT(full) : COUNT(reduced);
    struct machine_start start;
    (void)unused;
    history_send_beside(&machine.history);
    machine_start(&machine, NULL);
    machine_await_served(&machine, &start);
    assert_int_equal(start.number, 0);
    compare_moving();
    compare_times(points_of(plan[0].at, plan[0].passes)); /* While Kafka has everything. */
    for (size_t i = 0; i < count; i++) {
        lose_and_compare(&plan[i], i + 1 < count ? &plan[i + 1] : NULL);
    }
    expiries += machine.expired;
    compare_at_rest();
    check_writes();
    lose_without_checkpoints();
    report();
    fault_is_proved(&(const struct fault){
        .id = "machine-lost",
        .fault = "the machine is lost with its state, at any time: while a checkpoint is written, "
                 "during a restore; Redis may be empty, and Kafka without what the checkpoint has "
                 "counted",
        .sees = "`" MACHINE_RESTORED "N was restored` in the log of the next start",
        .lost = "nothing: each key equals the definition",
        .recovers = "by a start with the same `instance` and `checkpoint.directory`: what came "
                    "after the checkpoint is read from Kafka again",
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lost_machines_come_back, setup, teardown),
    };
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
