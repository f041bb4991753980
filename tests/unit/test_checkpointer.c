/* The checkpointer in virtual time: when it does what, what it keeps, and what it does when the
 * place of the checkpoints fails. */
#include "checkpoint_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MINUTE_MS 60000

static struct fcap_checkpoint newest;

static void look_at_newest(void)
{
    fcap_checkpoint_done(&newest);
    newest = world_newest();
}

static int teardown(void **state)
{
    fcap_checkpoint_done(&newest);
    return checkpoint_world_teardown(state);
}

/* --- schedule -------------------------------------------------------------------------------- */

static void test_a_new_state_is_taken_at_once(void **state)
{
    (void)state;
    world_open();
    assert_int_equal(world_metrics().number, 0);
    world_rest();
    look_at_newest();
    assert_int_equal(newest.number, 1);
    assert_int_equal(newest.sequence, 0);
    assert_int_equal(newest.segment_count, 0);
    assert_string_equal(newest.profile, "days");
    assert_string_equal(newest.instance, "pod-0");
    assert_int_equal(world_metrics().age_ms, 0);
    assert_int_equal(world_metrics().snapshots, 1);
    assert_int_equal(world_metrics().holes, 0);
}

static void test_a_checkpoint_is_made_every_interval(void **state)
{
    (void)state;
    world_open();
    world_rest();
    for (uint64_t number = 2; number < 6; number++) {
        world_write(5, 100, 20);
        world_write(5, 100, 20);
        world_pass(119000);
        assert_int_equal(world_metrics().number, number - 1);
        world_pass(1000); /* Two minutes after the start. */
        assert_int_equal(world_metrics().number, number);
        look_at_newest();
        assert_int_equal(newest.number, number);
        assert_int_equal(newest.sequence, 2 * (number - 1));
        assert_int_equal(newest.segment_count, number - 1);
        assert_int_equal(newest.snapshot_sequence, 0);
    }
}

static void test_nothing_new_needs_no_checkpoint(void **state)
{
    (void)state;
    world_open();
    world_write(5, 100, 20);
    world_pass(2 * MINUTE_MS + 1000);
    size_t count = world_count("");
    uint64_t number = world_metrics().number;
    world_pass(60 * MINUTE_MS);
    assert_int_equal(world_count(""), count);
    assert_int_equal(world_metrics().number, number);
    assert_true(world_metrics().age_ms <= 2 * MINUTE_MS);
    assert_true(world_metrics().snapshot_age_ms <= 10 * MINUTE_MS);
    assert_int_equal(world_metrics().materialization_behind, 0);
}

static void test_age_grows_while_nothing_is_complete(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_write(5, 100, 20);
    world_pass(100000);
    assert_int_equal(world_metrics().age_ms, 100000);
    world_pass(20000);
    assert_int_equal(world_metrics().age_ms, 0);
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    world_write(5, 100, 20);
    world_pass(60 * MINUTE_MS);
    assert_int_equal(world_metrics().age_ms, 60 * MINUTE_MS);
}

/* It takes longer than an interval: the next one starts only after the pause. */
static void test_a_pause_is_kept(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_write(1, 10, 10);
    world.write_ms = 160000; /* Head, batch, manifest. */
    world_pass(2 * MINUTE_MS);
    world_rest();
    int64_t ended_ms = world.now_ms;
    uint64_t number = world_metrics().number;
    assert_true(number >= 2);
    assert_int_equal(world_metrics().duration_ms, 160000);
    world_write(1, 10, 10);
    world.write_ms = 0;
    world_pass(29000);
    assert_int_equal(world_metrics().number, number);
    world_pass(1000);
    world_rest();
    assert_int_equal(world_metrics().number, number + 1);
    assert_true(world.now_ms >= ended_ms + 30000);
}

static void test_snapshots_come_at_their_interval(void **state)
{
    (void)state;
    world_open();
    for (int minute = 0; minute < 65; minute++) {
        world_write(5, 100, 20);
        world_pass(MINUTE_MS);
    }
    assert_int_equal(world_metrics().snapshots, 7); /* One at once, one every ten minutes. */
    assert_int_equal(world.state.snapshots, 7);
    look_at_newest();
    assert_true(newest.snapshot_sequence >= 58);
}

/* --- what is kept ---------------------------------------------------------------------------- */

static void test_files_are_sent_once(void **state)
{
    (void)state;
    world_open();
    for (int minute = 0; minute < 45; minute++) {
        world_write(50, 1000, 100);
        world_pass(MINUTE_MS);
    }
    look_at_newest();
    /* Five files with batches: each was sent once; the three small ones with every snapshot. */
    assert_int_equal(world_metrics().snapshots, 5);
    assert_int_equal(world_metrics().files_sent, 5 + 3 * 5);
    assert_int_equal(world_metrics().files_kept, 0 + 1 + 2 + 3 + 4);
    assert_int_equal(newest.file_count, 5 + 3);
}

static void test_what_nobody_needs_is_removed(void **state)
{
    (void)state;
    world.state.compact_at = 4;
    world_open();
    for (int minute = 0; minute < 300; minute++) {
        world_write(5, 100, 20);
        world_pass(MINUTE_MS);
    }
    look_at_newest();
    /* Two snapshots of ten minutes, and a checkpoint every two minutes. */
    assert_in_range(world_count("/manifest-"), 5, 14);
    assert_in_range(world_count("/changelog-"), 5, 14);
    assert_in_range(world_count("/file-"), 4, 14);
    assert_true(newest.segments[0].first <= newest.snapshot_sequence);
    assert_true(newest.segments[0].last + 25 >= newest.sequence);
    assert_true(world_metrics().objects_removed > 100);
}

/* Whatever a crash has left goes with the next cut. */
static void test_litter_is_removed(void **state)
{
    (void)state;
    static const char *const litter[] = {
        "days/pod-0/file-00000000000000000000000000000000-00000000000000000001-000001.sst",
        "days/pod-0/changelog-00000000000000000000000000000000-00000000000000000001-1",
        "days/pod-0/manifest-00000000000000000001",
        "days/pod-00/manifest-00000000000000000001",
    };
    for (size_t i = 0; i < 4; i++) {
        world_make(litter[i], fcap_bytes_of("x"));
    }
    world_open();
    world_rest();
    look_at_newest();
    assert_int_equal(newest.number, 2); /* Behind the damaged one. */
    assert_true(world_was_told("a manifest is not used"));
    assert_null(world_find("1-000001.sst", 0));
    assert_null(world_find("0001-1", 0));
    assert_null(world_find("pod-0/manifest-00000000000000000001", 0));
    assert_non_null(world_find("pod-00/", 0)); /* Somebody else's. */
}

static void test_an_object_that_is_lost_is_sent_again(void **state)
{
    (void)state;
    world_open();
    world_write(50, 1000, 100);
    world_pass(11 * MINUTE_MS);
    look_at_newest();
    char lost[FCAP_OBJECT_NAME_MAX + 1] = "";
    for (size_t i = 0; i < newest.file_count; i++) {
        if (strstr(newest.files[i].name, ".sst") != NULL) {
            (void)snprintf(lost, sizeof lost, "%s", newest.files[i].object);
        }
    }
    assert_string_not_equal(lost, "");
    fake_objects_lose(&world.objects, lost);
    world_write(50, 1000, 100);
    world_pass(11 * MINUTE_MS);
    look_at_newest(); /* All of it is there. */
}

/* --- holes ----------------------------------------------------------------------------------- */

static void test_a_full_queue_is_a_hole(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_pass(30000); /* A snapshot was just taken. */
    for (int i = 0; i < 100; i++) {
        world_write(50, 1000, 1000); /* Nobody steps meanwhile: 5 MB. */
    }
    assert_true(world_metrics().queue_bytes <= 1 << 20);
    assert_int_equal(world_metrics().holes, 1);
    world_rest();
    look_at_newest();
    assert_int_equal(newest.sequence, 100);
    assert_int_equal(newest.snapshot_sequence, 100);
    assert_int_equal(world_metrics().snapshots, 2);
    assert_int_equal(world_metrics().age_ms, 0);
    world_write(1, 10, 10); /* It goes on from there. */
    world_pass(2 * MINUTE_MS);
    look_at_newest();
    assert_int_equal(newest.sequence, 101);
    assert_int_equal(newest.segment_count, 1);
}

/* Called while a snapshot is taken. */
static void write_some(void *context)
{
    assert_int_equal(world_metrics().snapshot_running, 1); /* Not only while it is sent. */
    for (int i = 0; i < *(int *)context; i++) {
        world_write(50, 1000, 1000);
    }
}

/* Batches that come while a snapshot is taken belong to it or follow on it. */
static void test_batches_come_meanwhile(void **state)
{
    (void)state;
    int count = 3;
    world.state.meanwhile = write_some;
    world.state.meanwhile_context = &count;
    world_open();
    world_rest();
    look_at_newest();
    assert_int_equal(newest.snapshot_sequence, 3);
    world_pass(2 * MINUTE_MS);
    look_at_newest();
    assert_int_equal(newest.sequence, 6);
    world.state.meanwhile = NULL;
}

/* Even more of them than the queue holds. */
static void test_a_hole_comes_meanwhile(void **state)
{
    (void)state;
    int count = 100;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world.state.meanwhile = write_some;
    world.state.meanwhile_context = &count;
    world_pass(10 * MINUTE_MS);
    world.state.meanwhile = NULL;
    world_pass(2 * MINUTE_MS);
    assert_true(world_metrics().holes >= 1);
    look_at_newest();
    assert_int_equal(newest.sequence, world.state.position.sequence);
    world_write(5, 10, 10);
    world_pass(2 * MINUTE_MS);
    look_at_newest();
    assert_int_equal(newest.sequence, world.state.position.sequence);
}

/* --- failures -------------------------------------------------------------------------------- */

static void test_the_place_is_away_for_hours(void **state)
{
    (void)state;
    world_open();
    world_rest();
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    for (int minute = 0; minute < 300; minute++) {
        world_write(50, 1000, 1000);
        world_pass(MINUTE_MS);
        assert_true(world_metrics().queue_bytes <= 1 << 20);
    }
    struct fcap_checkpoint_metrics metrics = world_metrics();
    assert_int_equal(metrics.failing, 1);
    assert_true(metrics.failures_unavailable > 10 && metrics.failures_unavailable < 1000);
    assert_int_equal(metrics.materialization_behind, 1);
    assert_true(world.state.snapshots <= 2); /* None is taken for nothing. */
    assert_true(world_was_told("away"));
    assert_true(world.told_count < 6); /* A change is told, not each try. */
    fake_objects_away(&world.objects, FCAP_OK);
    world_pass(11 * MINUTE_MS);
    metrics = world_metrics();
    assert_int_equal(metrics.failing, 0);
    assert_true(metrics.age_ms <= 2 * MINUTE_MS);
    assert_int_equal(metrics.materialization_behind, 0);
    assert_true(world_was_told("well again"));
    look_at_newest();
    assert_int_equal(newest.sequence, world.state.position.sequence);
}

static void test_the_place_is_full(void **state)
{
    (void)state;
    world_open();
    world_rest();
    fake_objects_limit(&world.objects, 1);
    world_write(50, 1000, 1000);
    world_pass(60 * MINUTE_MS);
    assert_true(world_metrics().failures_no_space > 1);
    fake_objects_limit(&world.objects, 0);
    world_pass(11 * MINUTE_MS);
    look_at_newest();
    assert_int_equal(newest.sequence, 1);
}

static void test_the_place_is_away_at_the_start(void **state)
{
    (void)state;
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    world_open();
    world_write(5, 10, 10);
    world_pass(10 * MINUTE_MS);
    fake_objects_away(&world.objects, FCAP_OK);
    world_pass(2 * MINUTE_MS);
    look_at_newest();
    assert_int_equal(newest.sequence, 1);
}

static void test_snapshots_fail(void **state)
{
    (void)state;
    world.state.snapshot_failures_left = 3;
    world_open();
    world_write(5, 10, 10);
    world_pass(MINUTE_MS);
    assert_int_equal(world_metrics().failures_snapshot, 3);
    look_at_newest();
    assert_int_equal(newest.snapshot_sequence, 1);
}

/* Each call of a snapshot's way fails once: what was sent is not sent again. */
static void test_every_call_fails_once(void **state)
{
    (void)state;
    for (size_t call = 1; call < 60; call++) {
        checkpoint_world_done();
        checkpoint_world_init(call);
        world.fail_at = call;
        world_open();
        for (int minute = 0; minute < 15; minute++) {
            world_write(5, 10, 10);
            world_pass(MINUTE_MS);
        }
        world_pass(10 * MINUTE_MS);
        look_at_newest();
        assert_int_equal(newest.sequence, 15);
        assert_int_equal(world_metrics().failing, 0);
    }
}

/* A snapshot that is sent slowly: checkpoints go on meanwhile, from the one before. */
static void test_materialization_is_slow(void **state)
{
    (void)state;
    world.settings.rate_limit_bytes_per_second = 1000;
    world_open();
    world_rest();
    for (int i = 0; i < 60; i++) {
        world_write(50, 100000, 1000); /* 2.5 MB: 40 minutes. */
        world_rest();
    }
    world_pass(10 * MINUTE_MS);
    uint64_t number = world_metrics().number;
    for (int minute = 0; minute < 20; minute++) {
        world_write(1, 10, 10);
        world_pass(MINUTE_MS);
    }
    assert_int_equal(world_metrics().snapshot_running, 1);
    assert_int_equal(world_metrics().snapshots, 1);
    assert_int_equal(world_metrics().number, number + 10);
    assert_true(world_metrics().age_ms <= 2 * MINUTE_MS);
    assert_int_equal(world_metrics().materialization_behind, 1);
    world_pass(40 * MINUTE_MS);
    assert_true(world_metrics().snapshots >= 2);
    look_at_newest();
}

/* --- the end and the next start -------------------------------------------------------------- */

static void test_a_clean_stop_completes_and_the_next_start_goes_on(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world_rest();
    world_write(5, 10, 10);
    world_stop();
    look_at_newest();
    assert_int_equal(newest.sequence, 2);
    assert_int_equal(newest.snapshot_sequence, 0);
    world_open();
    world_write(5, 10, 10);
    world_pass(2 * MINUTE_MS);
    look_at_newest();
    assert_int_equal(newest.sequence, 3);
    assert_int_equal(newest.segment_count, 2);
    assert_int_equal(newest.snapshot_sequence, 0);
    assert_int_equal(world_metrics().snapshots, 0);
    assert_int_equal(world.state.snapshots, 1);
}

static void test_after_a_crash_a_snapshot_mends_the_hole(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world_rest();
    world_kill();
    world_open();
    world_rest();
    look_at_newest();
    assert_int_equal(newest.sequence, 1);
    assert_int_equal(newest.snapshot_sequence, 1);
    assert_int_equal(world_metrics().holes, 0);
    assert_true(world_was_told("does not go on from it"));
}

/* Without its last batches it must not give their numbers to others. */
static void test_a_state_that_lost_batches_leaves_the_lineage(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_write(5, 10, 10);
    world_stop();
    look_at_newest();
    struct fcap_lineage lineage = newest.lineage;
    world.state.position.sequence--; /* The rest of the state doesn't matter here. */
    world_forget_after(0);
    fake_map_done(&world.state.map);
    world.state.map = (struct fake_map){0};
    world_open();
    world_write(5, 10, 10);
    world_pass(2 * MINUTE_MS);
    look_at_newest();
    assert_int_equal(newest.sequence, 1);
    assert_memory_not_equal(&newest.lineage, &lineage, sizeof lineage);
    assert_true(world_was_told("has lost batches 1 to 1"));
}

/* --- who stops it ---------------------------------------------------------------------------- */

static void it_has_stopped(const char *why)
{
    assert_int_equal(world_metrics().stopped, 1);
    assert_true(world_was_told(why));
    size_t count = world_count("");
    for (int i = 0; i < 30; i++) {
        world_write(5, 10, 10); /* Counting goes on. */
        world_pass(MINUTE_MS);
    }
    assert_int_equal(world_metrics().queue_bytes, 0);
    assert_int_equal(world_count(""), count);
    world_stop();
}

static void test_another_writer_made_the_number(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_make("days/pod-0/manifest-00000000000000000002", FCAP_BYTES_NONE);
    world_write(5, 10, 10);
    world_pass(3 * MINUTE_MS);
    it_has_stopped("another writer is at work");
}

static void test_another_version_wrote_there(void **state)
{
    (void)state;
    world_open();
    world_rest();
    world_stop();
    char name[FCAP_OBJECT_NAME_MAX + 1];
    (void)snprintf(name, sizeof name, "%s", world_find("/manifest-", 0));
    struct fcap_buffer bytes = world_read(name);
    /* Another version's first line, and a checksum that fits. */
    char *text = (char *)bytes.data;
    *(strchr(text, '\n') - 1) = '2';
    struct fcap_bytes hashed = {bytes.data, bytes.size - 21};
    char digits[18];
    (void)snprintf(digits, sizeof digits, "%016llx\n", (unsigned long long)fcap_hash64(hashed, 0));
    memcpy(text + bytes.size - 17, digits, 17);
    fake_objects_lose(&world.objects, name);
    world_make(name, fcap_buffer_bytes(&bytes));
    fcap_buffer_done(&bytes);
    world_open();
    it_has_stopped("another version");
}

/* --- sizes ----------------------------------------------------------------------------------- */

/* What a checkpoint costs does not depend on the size of the state. */
static void test_bytes_do_not_grow_with_the_state(void **state)
{
    (void)state;
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    world.state.compact_at = 6;
    world.settings.queue_bytes_max = 1 << 24;
    world_open();
    world_rest();
    for (uint32_t size = 1; size <= 20; size++) {
        for (int i = 0; i < 20; i++) {
            world_write(100, 2000 * size, 200); /* The state grows. */
        }
        world_pass(11 * MINUTE_MS); /* Compacted and sent. */
        uint64_t before = world_metrics().bytes_total;
        for (int i = 0; i < 20; i++) {
            world_write(100, 2000 * size, 200);
        }
        world_pass(2 * MINUTE_MS);
        uint64_t bytes = world_metrics().bytes_total - before;
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    printf("result: changelog and manifest %llu to %llu bytes a checkpoint, state grown 20 times\n",
           (unsigned long long)least, (unsigned long long)most);
    assert_true(most * 10 <= least * 12);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, checkpoint_world_setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_new_state_is_taken_at_once),
        TEST(test_a_checkpoint_is_made_every_interval),
        TEST(test_nothing_new_needs_no_checkpoint),
        TEST(test_age_grows_while_nothing_is_complete),
        TEST(test_a_pause_is_kept),
        TEST(test_snapshots_come_at_their_interval),
        TEST(test_files_are_sent_once),
        TEST(test_what_nobody_needs_is_removed),
        TEST(test_litter_is_removed),
        TEST(test_an_object_that_is_lost_is_sent_again),
        TEST(test_a_full_queue_is_a_hole),
        TEST(test_batches_come_meanwhile),
        TEST(test_a_hole_comes_meanwhile),
        TEST(test_the_place_is_away_for_hours),
        TEST(test_the_place_is_full),
        TEST(test_the_place_is_away_at_the_start),
        TEST(test_snapshots_fail),
        TEST(test_every_call_fails_once),
        TEST(test_materialization_is_slow),
        TEST(test_a_clean_stop_completes_and_the_next_start_goes_on),
        TEST(test_after_a_crash_a_snapshot_mends_the_hole),
        TEST(test_a_state_that_lost_batches_leaves_the_lineage),
        TEST(test_another_writer_made_the_number),
        TEST(test_another_version_wrote_there),
        TEST(test_bytes_do_not_grow_with_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
