/* Which state of a partition is taken at its assignment, what becomes of one that is damaged, and
 * that nobody waits for longer than he should. */
#include "fcap/adopter.h"

#include "../../src/checkpoint/adopt_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "adopter_world.h"

/* --- the rule ----------------------------------------------------------------------------------
 */

static void what_is_far_enough_ahead(void **unused)
{
    (void)unused;
    static const struct {
        struct fcap_store_partition here;
        int64_t next_offset;
        int64_t clock_ms;
        uint64_t bytes; /* of the snapshot; there are two partitions */
        bool is_worth;
    } cases[] = {
        /* Nothing here that could go on: anything is better. */
        {{.found = false}, 1, 1, 0, true},
        {{.found = true, .is_half = true, .next_offset = 9}, 1, 1, 0, true},
        {{.found = true, .next_offset = 9, .needed_ms = 5, .dropped_through_ms = 6}, 1, 1, 0, true},
        /* Timers were dropped before the state began. */
        {{.found = true, .next_offset = 9, .needed_ms = 5, .dropped_through_ms = 6, .floor_ms = 6},
         1,
         1,
         0,
         false},
        {{.found = true, .next_offset = 100, .clock_ms = 5}, 100 + FCAP_ADOPT_RECORDS, 5, 0, false},
        {{.found = true, .next_offset = 100, .clock_ms = 5}, 101 + FCAP_ADOPT_RECORDS, 5, 0, true},
        {{.found = true, .next_offset = 100, .clock_ms = 5},
         109 + FCAP_ADOPT_RECORDS,
         5,
         20 * FCAP_ADOPT_RECORD_BYTES,
         false},
        {{.found = true, .next_offset = 100, .clock_ms = 5},
         111 + FCAP_ADOPT_RECORDS,
         5,
         20 * FCAP_ADOPT_RECORD_BYTES,
         true},
        /* Of another log, which is gone: further, but older. */
        {{.found = true, .next_offset = 100, .clock_ms = 5}, 1000000, 4, 0, false},
        /* Few records, but Kafka may have lost them. */
        {{.found = true, .next_offset = 100, .clock_ms = 5}, 101, 4 + FCAP_ADOPT_AGE_MS, 0, false},
        {{.found = true, .next_offset = 100, .clock_ms = 5}, 101, 5 + FCAP_ADOPT_AGE_MS, 0, true},
        {{.found = true, .next_offset = 100, .clock_ms = 5}, 100, 5 + FCAP_ADOPT_AGE_MS, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_checkpoint checkpoint = {0};
        fcap_checkpoint_add_file(&checkpoint, &(struct fcap_checkpoint_file){
                                                  .name = "000001.sst", .size = cases[i].bytes});
        for (int32_t partition = 0; partition < 2; partition++) {
            fcap_checkpoint_set_partition(
                &checkpoint, &(struct fcap_checkpoint_partition){.partition = partition});
        }
        const struct fcap_adopt_candidate candidate = {
            .snapshot = &checkpoint,
            .log = &checkpoint,
            .partition = {.next_offset = cases[i].next_offset, .clock_ms = cases[i].clock_ms}};
        if (adopt_is_worth(&candidate, &cases[i].here) != cases[i].is_worth) {
            fail_msg("case %zu", i);
        }
        fcap_checkpoint_done(&checkpoint);
    }
}

static void the_freshest_of_all_instances_is_taken(void **unused)
{
    (void)unused;
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR, NOW_MS - 2000, 0});
    keep(&(struct kept){"b", 4, 0, 1, 5, FAR + 500, NOW_MS - 1000, 0});
    keep(&(struct kept){"c", 9, 0, 1, 5, FAR + 900, NOW_MS - 5000, 0}); /* Of a log that is gone. */
    keep(&(struct kept){"d", 2, 0, 1, 5, FAR + 400, NOW_MS - 1000, 0});
    ask();
    assert_false(is_over());
    assert_int_equal(metrics().waiting, 1);
    assert_true(fcap_adopter_step(world.adopter));
    assert_true(is_over());
    assert_int_equal(world.takes, 1);
    assert_string_equal(world.taken[0], "b 4/4 0");
    assert_false(world.kept[0]);
    told("partition 3: its state is that of checkpoint 4 of instance b, next offset 10501");
    told("there was none here");
    assert_int_equal(metrics().from_checkpoint, 1);
    assert_int_equal(metrics().bytes_total, 700);
    assert_false(fcap_adopter_step(world.adopter)); /* Nothing is left; what is open goes. */
    assert_int_equal(world.rests, 1);
}

static void what_is_here_stays_when_it_is_fresh_enough(void **unused)
{
    (void)unused;
    world.here = (struct fcap_store_partition){
        .found = true, .next_offset = 5000, .clock_ms = NOW_MS - 1000};
    keep(&(struct kept){"a", 1, 0, 1, 5, 5001, NOW_MS, 0});
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_true(is_over());
    assert_int_equal(world.takes, 0);
    told("it is the one here, next offset 5000, and no checkpoint is far enough ahead");
    assert_int_equal(metrics().from_here, 1);
}

/* Somebody has gone back to it: what was kept before does not win, what was kept since does. */
static void what_was_wanted_here_stays(void **unused)
{
    (void)tear_down(unused);
    (void)set_up_chosen(NOW_MS - 100);
    world.here = (struct fcap_store_partition){.found = true, .next_offset = 17, .clock_ms = 5};
    keep(&(struct kept){"a", 1, 0, 1, 5, 2 * FAR, NOW_MS, 0, .written_ms = NOW_MS - 100});
    keep(&(struct kept){"b", 1, 0, 1, 5, FAR + 20, 6, 0, .written_ms = NOW_MS - 99});
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_int_equal(world.takes, 1);
    assert_string_equal(world.taken[0], "b 1/1 0");
    fcap_adoption_end(world.adoption);
    world.here.found = false; /* Nobody wanted nothing. */
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_string_equal(world.taken[1], "a 1/1 0");
}

static void nothing_anywhere_is_read_from_kafka(void **unused)
{
    (void)unused;
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_true(is_over());
    told("it is read from Kafka, for there is none here, and no checkpoint holds it");
    assert_int_equal(metrics().from_kafka, 1);
}

/* --- damage ------------------------------------------------------------------------------------
 */

/* From the older snapshot with the longer changelog, then from the older checkpoint. */
static void damage_leads_to_the_one_before(void **unused)
{
    (void)unused;
    keep(&(struct kept){"a", 1, 2, 1, 9, FAR, NOW_MS - 2000, 0});
    keep(&(struct kept){"a", 2, 6, 1, 12, FAR + 3, NOW_MS - 1000, 0});
    world.results[0] = FCAP_CORRUPT;
    world.results[1] = FCAP_CORRUPT;
    world.here = (struct fcap_store_partition){.found = true, .next_offset = -FAR};
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_true(is_over());
    assert_int_equal(world.takes, 3);
    assert_string_equal(world.taken[0], "a 2/2 0");
    assert_string_equal(world.taken[1], "a 2/1 0");
    assert_string_equal(world.taken[2], "a 1/1 0");
    assert_true(world.kept[0] && world.kept[1] && world.kept[2]);
    told("checkpoint 2 of instance a, from the snapshot of 2, is not taken: planted");
    told("checkpoint 2 of instance a, from the snapshot of 1, is not taken: planted");
    told("its state is that of checkpoint 1 of instance a");
    assert_int_equal(metrics().not_taken, 2);
}

static void when_all_are_damaged_what_is_here_goes_on(void **unused)
{
    (void)unused;
    world.here = (struct fcap_store_partition){.found = true, .next_offset = 17};
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR + 20, NOW_MS, 0});
    keep(&(struct kept){"b", 1, 0, 1, 5, FAR + 20, NOW_MS - 1, 0});
    for (size_t i = 0; i < 2; i++) {
        world.results[i] = i == 0 ? FCAP_CORRUPT : FCAP_REFUSED;
    }
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_true(is_over());
    assert_int_equal(world.takes, 2);
    told("it is the one here, next offset 17");
}

static void what_is_gone_is_not_missed_twice(void **unused)
{
    (void)unused;
    world.here = (struct fcap_store_partition){.found = true, .next_offset = 17};
    world.empties = true;
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR + 20, NOW_MS, 0});
    keep(&(struct kept){"b", 1, 0, 1, 5, 3, 1, 0}); /* Far behind what was here. */
    world.results[0] = FCAP_CORRUPT;
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_int_equal(world.takes, 2);
    assert_true(world.kept[0]);
    assert_string_equal(world.taken[1], "b 1/1 0");
    assert_false(world.kept[1]);
    told("of instance b");
}

/* Objects that are not there, or not as long as they should be, and manifests that are damaged. */
static void missing_pieces_are_seen_at_once(void **unused)
{
    (void)unused;
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR, NOW_MS - 9, 0});
    keep(&(struct kept){"b", 1, 0, 1, 5, FAR, NOW_MS, 77}); /* Its file was never made. */
    keep(&(struct kept){"c", 1, 0, 1, 5, FAR, NOW_MS - 1, 0});
    keep(&(struct kept){"d", 1, 0, 1, 5, FAR, NOW_MS + 1, 0});
    fake_objects_cut(&world.objects, "days/c/changelog-1", 3);
    fake_objects_flip(&world.objects, "days/d/manifest-00000000000000000001", 800);
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_int_equal(world.takes, 1);
    assert_string_equal(world.taken[0], "a 1/1 0");
    told("checkpoint 1 of instance b, from the snapshot of 1, is not taken: days/b/file-0 is "
         "missing");
    told("days/c/changelog-1: 3 bytes instead of 4");
}

static void a_manifest_under_a_wrong_name_is_none(void **unused)
{
    (void)unused;
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR, NOW_MS, 0});
    struct fcap_buffer bytes = {0};
    assert_int_equal(object_read_all(&world.objects.port, "days/a/manifest-00000000000000000001",
                                     OBJECT_MANIFEST_MAX, &bytes, NULL),
                     FCAP_OK);
    put("days/b/manifest-00000000000000000001", fcap_buffer_bytes(&bytes));
    put("days/a/manifest-00000000000000000002", fcap_buffer_bytes(&bytes));
    fcap_buffer_done(&bytes);
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_int_equal(world.takes, 1);
    assert_string_equal(world.taken[0], "a 1/1 0");
}

/* Whoever writes there has cut it meanwhile, and made a newer one. */
static struct kept newer;

static void make_newer(void)
{
    if (world.takes == 1) {
        keep(&newer);
    }
}

static void a_newer_one_is_found_after_a_failure(void **unused)
{
    (void)unused;
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR, NOW_MS - 9, 0});
    newer = (struct kept){"a", 2, 0, 1, 8, FAR + 5, NOW_MS, 0};
    world.results[0] = FCAP_CORRUPT;
    world.within = make_newer;
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_int_equal(world.takes, 2);
    assert_string_equal(world.taken[1], "a 2/2 0");
}

/* --- a place that is away, and one that hangs ---------------------------------------------------
 */

static void a_place_that_is_away_is_waited_for_when_nothing_is_here(void **unused)
{
    (void)unused;
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR, NOW_MS, 0});
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_false(is_over());
    assert_false(fcap_adopter_step(world.adopter)); /* Not at once. */
    world.now_ms += 1000;
    assert_true(fcap_adopter_step(world.adopter));
    assert_false(is_over());
    world.now_ms += 1000;
    fake_objects_away(&world.objects, FCAP_OK);
    assert_true(fcap_adopter_step(world.adopter));
    assert_true(is_over());
    assert_int_equal(world.takes, 1);
}

static void a_place_that_stays_away_is_given_up(void **unused)
{
    (void)unused;
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    ask();
    for (int64_t spent_ms = 0; spent_ms < FCAP_ADOPT_AWAY_MS; spent_ms += 1000) {
        assert_true(fcap_adopter_step(world.adopter));
        assert_false(is_over());
        world.now_ms += 1000;
    }
    assert_true(fcap_adopter_step(world.adopter));
    assert_true(is_over());
    told("it is read from Kafka, for there is none here, and checkpoints cannot be read: ");
}

static void a_place_that_is_away_holds_up_no_state_that_is_here(void **unused)
{
    (void)unused;
    world.here = (struct fcap_store_partition){.found = true, .next_offset = 17};
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_true(is_over());
    told("it is the one here, next offset 17, and checkpoints cannot be read: ");
}

static bool over_short, over_long, over_at_last;

static void hang(void)
{
    world.now_ms += FCAP_ADOPT_PATIENCE_MS + 1;
    over_short = is_over();
    world.now_ms += FCAP_ADOPT_LONG_PATIENCE_MS - FCAP_ADOPT_PATIENCE_MS - 1;
    over_long = is_over();
    world.now_ms += 1;
    over_at_last = is_over();
    fcap_adoption_end(world.adoption);
    world.adoption = NULL;
}

/* When the old state is gone already, it is worth a longer wait. */
static void what_hangs_is_waited_for_in_vain(void **unused)
{
    (void)unused;
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR, NOW_MS, 0});
    world.within = hang;
    world.results[0] = FCAP_STOPPED;
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_false(over_short);
    assert_false(over_long);
    assert_true(over_at_last);
    assert_false(world.went_on);
    told("has not answered for 600 s");
    assert_int_equal(metrics().cancelled, 1);
    assert_int_equal(metrics().waiting, 0);
}

static void hang_while_listing(void *context, enum fake_objects_call call, const char *name)
{
    (void)context;
    (void)name;
    if (call == FAKE_OBJECTS_LIST) {
        world.now_ms += FCAP_ADOPT_PATIENCE_MS;
        over_short = is_over();
        world.now_ms += 1;
        over_at_last = is_over();
    }
}

static void what_hangs_before_anything_is_changed_is_given_up_sooner(void **unused)
{
    (void)unused;
    fake_objects_watch(&world.objects, hang_while_listing, NULL);
    ask();
    assert_true(fcap_adopter_step(world.adopter));
    assert_false(over_short);
    assert_true(over_at_last);
}

/* --- cancelling --------------------------------------------------------------------------------
 */

static void cancel(void)
{
    fcap_adoption_end(world.adoption);
    world.adoption = NULL;
}

static void one_that_waits_is_cancelled(void **unused)
{
    (void)unused;
    ask();
    cancel();
    assert_false(fcap_adopter_step(world.adopter));
    assert_int_equal(world.told_count, 0);
    assert_int_equal(metrics().cancelled, 1);
}

static void one_that_is_taken_is_cancelled(void **unused)
{
    (void)unused;
    static const enum fcap_status results[] = {FCAP_STOPPED, FCAP_FENCED, FCAP_CORRUPT, FCAP_OK};
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR, NOW_MS, 0});
    keep(&(struct kept){"b", 1, 0, 1, 5, FAR, NOW_MS, 0});
    world.within = cancel;
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        world.results[world.takes] = results[i];
        size_t before = world.takes;
        ask();
        assert_true(fcap_adopter_step(world.adopter));
        assert_false(world.went_on);
        assert_int_equal(world.takes, before + 1); /* No other one is tried. */
        assert_int_equal(metrics().cancelled, i + 1);
    }
}

static void cancel_in_call(void *context, enum fake_objects_call call, const char *name)
{
    const enum fake_objects_call *wanted = context;
    (void)name;
    if (call == *wanted && world.adoption != NULL) {
        cancel();
    }
}

static void one_that_is_looked_for_is_cancelled(void **unused)
{
    (void)unused;
    static const enum fake_objects_call calls[] = {FAKE_OBJECTS_LIST, FAKE_OBJECTS_READ};
    keep(&(struct kept){"a", 1, 0, 1, 5, FAR, NOW_MS, 0});
    world.results[0] = world.results[1] = FCAP_STOPPED;
    for (size_t i = 0; i < 2; i++) {
        enum fake_objects_call call = calls[i];
        fake_objects_watch(&world.objects, cancel_in_call, &call);
        ask();
        assert_true(fcap_adopter_step(world.adopter));
        assert_null(world.adoption);
        fake_objects_watch(&world.objects, NULL, NULL);
        world.now_ms += 10000; /* What was read is old. */
    }
    assert_int_equal(metrics().cancelled, 2);
    assert_int_equal(metrics().waiting, 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_far_enough_ahead),
        TEST(the_freshest_of_all_instances_is_taken),
        TEST(what_is_here_stays_when_it_is_fresh_enough),
        TEST(what_was_wanted_here_stays),
        TEST(nothing_anywhere_is_read_from_kafka),
        TEST(damage_leads_to_the_one_before),
        TEST(when_all_are_damaged_what_is_here_goes_on),
        TEST(what_is_gone_is_not_missed_twice),
        TEST(missing_pieces_are_seen_at_once),
        TEST(a_manifest_under_a_wrong_name_is_none),
        TEST(a_newer_one_is_found_after_a_failure),
        TEST(a_place_that_is_away_is_waited_for_when_nothing_is_here),
        TEST(a_place_that_stays_away_is_given_up),
        TEST(a_place_that_is_away_holds_up_no_state_that_is_here),
        TEST(what_hangs_is_waited_for_in_vain),
        TEST(what_hangs_before_anything_is_changed_is_given_up_sooner),
        TEST(one_that_waits_is_cancelled),
        TEST(one_that_is_taken_is_cancelled),
        TEST(one_that_is_looked_for_is_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
