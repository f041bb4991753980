/* Where a start takes its state from, in memory: each situation of two states, and what must come
 * of it. */
#include "choose_world.h"

#include "fcap/key.h"
#include "fcap/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- no state -------------------------------------------------------------------------------- */

static void test_nothing_anywhere(void **state)
{
    (void)state;
    world_lose_state();
    choose_now(FCAP_STATE_KAFKA, "it is read from Kafka, for there is none in");
    assert_non_null(strstr(choose_choice.text.text, "there is no checkpoint of profile days"));
}

static void test_a_checkpoint_alone(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(16, 0);
    world_lose_state();
    choose_now(FCAP_STATE_CHECKPOINT, "for there was none in");
    assert_int_equal(choose_choice.restored.sequence, before.sequence);
    assert_false(choose_is_lineage_of(&before));
    choose_goes_on();
}

static void test_a_volume_that_is_away(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(16, 0);
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    choose_now(FCAP_STATE_LOCAL, "checkpoints cannot be taken now");
    assert_false(choose_is_lineage_of(&before)); /* Nobody knows which numbers were given. */
    assert_int_equal(world.state.position.sequence, before.sequence);
    world_lose_state();
    assert_int_equal(choose_try(NULL, FCAP_OK), FCAP_UNAVAILABLE);
    assert_non_null(
        strstr(choose_error.text, "there is no state, and checkpoint.directory cannot"));
    fake_objects_away(&world.objects, FCAP_OK);
    choose_now(FCAP_STATE_CHECKPOINT, "was restored in");
}

/* It goes away in the middle of things. */
static void test_a_volume_that_goes_away(void **state)
{
    (void)state;
    for (uint64_t call = 1; call < 40; call++) {
        choose_teardown(NULL);
        checkpoint_world_init(call);
        struct fcap_store_position before = choose_run(16, 3);
        choose_put_copy_back();
        fake_objects_fail(&world.objects, FAKE_OBJECTS_READ, call, FCAP_UNAVAILABLE);
        assert_int_equal(choose_try(NULL, FCAP_OK), FCAP_OK);
        assert_true(choose_choice.is_open);
        choose_place.place.ops->close(&choose_place.place);
        fake_state_load(&world.state, world.state_directory, &world.wall_ms);
        world.has_state = true;
        world_compare(&world.state);
        bool is_forward = choose_choice.source == FCAP_STATE_FORWARD;
        assert_true(is_forward || choose_choice.source == FCAP_STATE_LOCAL);
        assert_true(!is_forward || world.state.position.sequence == before.sequence);
        assert_true(choose_is_lineage_of(&before) == is_forward);
        world_forget_after(world.state.position.sequence);
    }
}

/* --- the same lineage ------------------------------------------------------------------------ */

static void test_the_local_one_is_ahead(void **state)
{
    (void)state;
    choose_run(16, 0);
    world_open();
    world_write(20, 300, 50); /* Nobody has shipped it. */
    world_kill();
    choose_save();
    struct fcap_store_position before = world.state.position;
    choose_now(FCAP_STATE_LOCAL, "of the same lineage");
    assert_true(choose_is_lineage_of(&before));
    assert_int_equal(world.state.position.sequence, before.sequence);
    choose_goes_on();
}

static void test_the_local_one_is_brought_forward(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(16, 3);
    choose_put_copy_back();
    choose_now(FCAP_STATE_FORWARD, "brought forward from batch 3 to batch 16");
    assert_int_equal(choose_place.applied, 13);
    assert_int_equal(world.state.position.sequence, before.sequence);
    assert_true(choose_is_lineage_of(&before));
    world_open();
    world_rest();
    assert_true(world_was_told("the state goes on from it"));
    assert_int_equal(world_metrics().snapshots, 0);
    world_stop();
    choose_goes_on();
}

static void test_the_changelog_does_not_reach_back(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(45, 2);
    choose_put_copy_back();
    choose_now(FCAP_STATE_CHECKPOINT, "does not reach back to batch 3");
    assert_int_equal(world.state.position.sequence, before.sequence);
    assert_false(choose_is_lineage_of(&before));
    choose_goes_on();
}

/* The segment that is damaged lies before the newest snapshot: that one is restored. */
static void test_a_segment_in_between_is_damaged(void **state)
{
    (void)state;
    for (int kind = WORLD_FLIPPED; kind < WORLD_DAMAGES; kind++) {
        choose_teardown(NULL);
        checkpoint_world_init((uint64_t)kind + 50);
        struct fcap_store_position before = choose_run(16, 3);
        struct fcap_checkpoint newest = world_newest();
        size_t at = 0;
        while (newest.segments[at].last <= 4) {
            at++;
        }
        world_damage(newest.segments[at].object, (enum world_damage_kind)kind);
        choose_put_copy_back();
        choose_now(FCAP_STATE_CHECKPOINT, "is behind it");
        assert_int_equal(world.state.position.sequence, before.sequence);
        fcap_checkpoint_done(&newest);
        choose_goes_on();
    }
}

/* The last one is damaged: as far as the others reach, and the numbers behind them are not given
 * again. */
static void test_the_last_segment_is_damaged(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(16, 3);
    struct fcap_checkpoint newest = world_newest();
    const struct fcap_checkpoint_segment *last = &newest.segments[newest.segment_count - 1];
    world_damage(last->object, WORLD_FLIPPED);
    choose_put_copy_back();
    choose_now(FCAP_STATE_FORWARD, "it goes on as another lineage");
    assert_int_equal(world.state.position.sequence, last->first - 1);
    assert_false(choose_is_lineage_of(&before));
    fcap_checkpoint_done(&newest);
    choose_goes_on();
}

/* Nothing that is kept leads further: what is there goes on, under numbers of its own. */
static void test_nothing_fresher_is_whole(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(16, 3);
    while (world_count("changelog-") > 0) {
        fake_objects_lose(&world.objects, world_find("changelog-", 0));
    }
    while (world_count("CURRENT") > 0) {
        fake_objects_lose(&world.objects, world_find("CURRENT", 0));
    }
    choose_put_copy_back();
    choose_now(FCAP_STATE_LOCAL, "it goes on as another lineage");
    assert_int_equal(world.state.position.sequence, 3);
    assert_false(choose_is_lineage_of(&before));
    choose_goes_on();
}

/* A manifest that cannot be read may tell of numbers that were given. */
static void test_a_manifest_is_damaged(void **state)
{
    (void)state;
    char name[FCAP_OBJECT_NAME_MAX + 1];
    struct fcap_store_position before = choose_run(16, 0);
    struct fcap_checkpoint newest = world_newest();
    world_damage(fcap_checkpoint_manifest_name("days/pod-0/", newest.number, name), WORLD_FLIPPED);
    choose_now(FCAP_STATE_LOCAL, "it goes on as another lineage");
    assert_int_equal(world.state.position.sequence, before.sequence);
    assert_false(choose_is_lineage_of(&before));
    fcap_checkpoint_done(&newest);
    choose_goes_on();
}

/* --- another lineage ------------------------------------------------------------------------- */

static void test_an_old_volume_came_back(void **state)
{
    (void)state;
    choose_run(16, 15);
    world_lose_state();
    world_restore(); /* Elsewhere, and it goes on there. */
    world_open();
    world_rest();
    choose_write_minutes(10);
    world_stop();
    struct fcap_store_position elsewhere = world.state.position;
    choose_put_copy_back();
    choose_now(FCAP_STATE_CHECKPOINT, "of another lineage, lacked");
    assert_int_equal(world.state.position.sequence, elsewhere.sequence);
    choose_goes_on();
}

static void test_the_descendant_stays(void **state)
{
    (void)state;
    choose_run(16, 0);
    world_lose_state();
    world_restore();
    choose_save();
    struct fcap_store_position before = world.state.position;
    choose_now(FCAP_STATE_LOCAL, "of another lineage lacks 0 records"); /* A tie. */
    assert_true(choose_is_lineage_of(&before));
    world_open();
    for (int i = 0; i < 20; i++) {
        world_write(20, 300, 50);
    }
    world_kill();
    choose_save();
    before = world.state.position;
    choose_now(FCAP_STATE_LOCAL, "of another lineage lacks");
    assert_int_equal(world.state.position.sequence, before.sequence);
    assert_true(choose_is_lineage_of(&before));
    choose_goes_on();
}

/* Somebody went back to an earlier state, and that is what counts from then on. */
static void test_what_was_restored_by_command_stays(void **state)
{
    (void)state;
    struct fcap_restore_report report;
    char name[FCAP_OBJECT_NAME_MAX + 1];
    choose_run(16, 0);
    struct fcap_checkpoint newest = world_newest();
    world_lose_state();
    /* The newest one but for this moment. */
    (void)fcap_checkpoint_manifest_name("days/pod-0/", newest.number, name);
    struct fcap_buffer manifest = world_read(name);
    fake_objects_lose(&world.objects, name);
    fake_place_init(&choose_place, 77);
    const struct fcap_restore_settings settings = {.profile = "days",
                                                   .instance = "pod-0",
                                                   .directory = world.state_directory,
                                                   .place = &choose_place.place,
                                                   .is_chosen = true};
    assert_int_equal(fcap_restore(&settings, &world.objects.port, &report, &choose_error), FCAP_OK);
    world_make(name, fcap_buffer_bytes(&manifest));
    fcap_buffer_done(&manifest);
    assert_true(report.sequence < newest.sequence);
    assert_true(choose_exists(".chosen"));
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    choose_now(FCAP_STATE_LOCAL, "it goes on as another lineage");
    fake_objects_away(&world.objects, FCAP_OK);
    choose_now(FCAP_STATE_LOCAL, "is what was restored by command");
    assert_int_equal(world.state.position.sequence, report.sequence);
    assert_true(choose_exists(".chosen"));
    world_open();
    world_rest();
    world_stop();
    choose_save();
    choose_now(FCAP_STATE_LOCAL, "of the same lineage");
    assert_false(choose_exists(".chosen"));
    fcap_checkpoint_done(&newest);
    choose_goes_on();
}

/* RocksDB begins an empty database where only small files are left. */
static void test_an_empty_state_is_worth_nothing(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(16, 0);
    world_lose_state();
    fake_state_init(&world.state, world.state_directory, 99, &world.wall_ms);
    world.has_state = true;
    choose_save();
    choose_now(FCAP_STATE_CHECKPOINT, "of another lineage");
    assert_int_equal(world.state.position.sequence, before.sequence);
}

static void set(struct fcap_checkpoint *checkpoint, const char *partitions)
{
    for (const char *at = partitions; *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
        struct fcap_checkpoint_partition partition = {0};
        char *colon;
        partition.partition = (int32_t)strtol(at, &colon, 10);
        partition.next_offset = strtoll(colon + 1, NULL, 10);
        fcap_checkpoint_set_partition(checkpoint, &partition);
    }
}

static void test_the_rule(void **state)
{
    (void)state;
    /* clang-format off */
    static const struct {
        const char *local;
        const char *checkpoint;
        bool is_same_lineage;
        uint64_t local_sequence;
        uint64_t checkpoint_sequence;
        bool is_fresher;
    } cases[] = {
        {"0:10 1:10",  "0:10 1:10",       false, 9, 9, false}, /* a tie */
        {"0:10 1:10",  "0:10 1:10",       false, 1, 9, false}, /* batches of two lineages say nothing */
        {"0:10 1:10",  "0:11 1:10",       false, 9, 1, true},
        {"0:11 1:10",  "0:10 1:10",       false, 1, 9, false},
        {"0:10 1:20",  "0:29 1:10",       false, 9, 9, true},  /* 19 are missing here, 10 there */
        {"0:10 1:20",  "0:20 1:10",       false, 9, 9, false}, /* 10 each */
        {"0:10 1:20",  "0:19 1:10",       false, 9, 9, false},
        {"0:10",       "0:10 7:99999999", false, 9, 9, true},  /* only what both have, then what one has */
        {"0:11",       "0:10 7:99999999", false, 9, 9, false},
        {"0:10 7:999", "0:10",            false, 9, 9, false},
        {"0:10 7:999", "0:11",            false, 9, 9, true},  /* 7 has been moved away */
        {"0:10 7:999", "0:10 8:1",        false, 9, 9, false},
        {"0:10 7:999", "0:10 8:1 9:1",    false, 9, 9, true},
        {"0:10",       "1:10",            false, 9, 9, false}, /* none in common */
        {"",           "1:10",            false, 9, 9, true},
        {"1:10",       "",                false, 9, 9, false},
        {"",           "",                false, 9, 9, false},
        {"0:-1",       "0:0",             false, 9, 9, false}, /* nothing was read */
        {"0:10",       "0:10",            true,  8, 9, true},
        {"0:10",       "0:10",            true,  9, 9, false},
        {"0:10",       "0:99",            true,  9, 8, false}, /* of one lineage the batches count */
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_checkpoint local = {.sequence = cases[i].local_sequence};
        struct fcap_checkpoint checkpoint = {.sequence = cases[i].checkpoint_sequence};
        struct fcap_choose_sides sides;
        checkpoint.lineage.bytes[3] = cases[i].is_same_lineage ? 0 : 1;
        set(&local, cases[i].local);
        set(&checkpoint, cases[i].checkpoint);
        if (fcap_choose_is_fresher(&checkpoint, &local, &sides) != cases[i].is_fresher) {
            fail_msg("case %zu: \"%s\" and \"%s\"", i, cases[i].local, cases[i].checkpoint);
        }
        assert_true(sides.is_same_lineage == cases[i].is_same_lineage);
        fcap_checkpoint_done(&local);
        fcap_checkpoint_done(&checkpoint);
    }
}

/* The numbers are those of a history that went another way: a state that was run without
 * checkpoints meanwhile. */
static void test_the_same_numbers_of_another_history(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(16, 3);
    choose_put_copy_back();
    fake_state_load(&world.state, world.state_directory, &world.wall_ms);
    world.has_state = true;
    for (int i = 0; i < 5; i++) {
        static struct fcap_batch batch;
        struct fcap_buffer key = {0};
        struct fcap_buffer value = {0};
        const struct fcap_meta meta = {.next_offset = 7, .commit = 5000, .bucket_ms = 1000};
        fcap_batch_clear(&batch);
        fcap_batch_section(&batch, i % 3, 1, meta.commit);
        fcap_key_meta(&key, i % 3, FCAP_META_NAME);
        fcap_meta_encode(&meta, &value);
        fcap_batch_add(&batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, fcap_buffer_bytes(&key),
                       fcap_buffer_bytes(&value));
        fake_state_apply(&world.state, &batch);
        fcap_buffer_done(&key);
        fcap_buffer_done(&value);
        fcap_batch_done(&batch);
    }
    choose_save();
    choose_now(FCAP_STATE_CHECKPOINT, "behind commit 5000 of here");
    assert_int_equal(world.state.position.sequence, before.sequence);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, checkpoint_world_setup, choose_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_nothing_anywhere),
        TEST(test_a_checkpoint_alone),
        TEST(test_a_volume_that_is_away),
        TEST(test_a_volume_that_goes_away),
        TEST(test_the_local_one_is_ahead),
        TEST(test_the_local_one_is_brought_forward),
        TEST(test_the_changelog_does_not_reach_back),
        TEST(test_a_segment_in_between_is_damaged),
        TEST(test_the_last_segment_is_damaged),
        TEST(test_nothing_fresher_is_whole),
        TEST(test_a_manifest_is_damaged),
        TEST(test_an_old_volume_came_back),
        TEST(test_the_descendant_stays),
        TEST(test_what_was_restored_by_command_stays),
        TEST(test_an_empty_state_is_worth_nothing),
        TEST(test_the_rule),
        TEST(test_the_same_numbers_of_another_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
