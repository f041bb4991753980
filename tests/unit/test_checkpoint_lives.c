/* Whole lives by chance: batches, faults of the objects, crashes, lost machines and damage. Every
 * restore must give exactly a complete checkpoint, and none that is whole is newer. */
#include "checkpoint_world.h"
#include "lib/full_size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MINUTE_MS 60000

/* Is all of it there, as it should be? By code of its own. */
static bool is_whole(const struct fcap_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->file_count + checkpoint->segment_count; i++) {
        bool is_file = i < checkpoint->file_count;
        size_t at = is_file ? i : i - checkpoint->file_count;
        const char *name = is_file ? checkpoint->files[at].object : checkpoint->segments[at].object;
        uint64_t hash = is_file ? checkpoint->files[at].hash : checkpoint->segments[at].hash;
        struct fcap_checkpoint_hash own = {0};
        if (!is_file && checkpoint->segments[at].last <= checkpoint->snapshot_sequence) {
            continue; /* For older snapshots. */
        }
        if (world_find(name, 0) == NULL) {
            return false;
        }
        struct fcap_buffer bytes = world_read(name);
        fcap_checkpoint_hash_add(&own, fcap_buffer_bytes(&bytes));
        fcap_buffer_done(&bytes);
        if (fcap_checkpoint_hash_end(&own) != hash) {
            return false;
        }
    }
    return true;
}

/* Nothing was damaged: so every checkpoint is whole, and the newest tells the truth. */
static void all_are_whole(void)
{
    struct fcap_checkpoint checkpoint;
    for (size_t i = 0; i < world_count("/manifest-"); i++) {
        struct fcap_error error = {""};
        struct fcap_buffer bytes = world_read(world_find("/manifest-", i));
        if (fcap_checkpoint_decode(fcap_buffer_bytes(&bytes), &checkpoint, &error) != FCAP_OK) {
            fail_msg("%s", error.text);
        }
        assert_true(is_whole(&checkpoint));
        fcap_checkpoint_done(&checkpoint);
        fcap_buffer_done(&bytes);
    }
    if (world_count("/manifest-") > 0) {
        checkpoint = world_newest();
        assert_true(checkpoint.number >= world_metrics().number);
        fcap_checkpoint_done(&checkpoint);
    }
}

/* All manifests that can be read; `ret_whole`: the newest one that is whole (0: none). */
static size_t read_manifests(struct fcap_checkpoint checkpoints[200], uint64_t *ret_whole)
{
    size_t count = 0;
    *ret_whole = 0;
    for (size_t i = 0; i < world_count("/manifest-") && count < 200; i++) {
        struct fcap_error error;
        struct fcap_buffer bytes = world_read(world_find("/manifest-", i));
        if (fcap_checkpoint_decode(fcap_buffer_bytes(&bytes), &checkpoints[count], &error) ==
            FCAP_OK) {
            if (is_whole(&checkpoints[count])) {
                *ret_whole = checkpoints[count].number;
            }
            count++;
        }
        fcap_buffer_done(&bytes);
    }
    return count;
}

static void live_a_while(void)
{
    uint32_t steps = 1 + world_random(40);
    for (uint32_t i = 0; i < steps; i++) {
        for (uint32_t k = world_random(4); k > 0; k--) {
            world_write(1 + world_random(30), 200, world_random(200));
        }
        if (world_random(8) == 0) { /* Clocks on the wall go wrong. */
            world.wall_ms += (int64_t)world_random(2 * 3600000) - 3600000;
        }
        if (world_random(4) == 0) {
            (void)world_step(); /* A kill may find it half-way. */
        } else {
            world_pass(world_random(3 * MINUTE_MS));
        }
    }
}

static bool has_damage;
static bool may_damage; /* else the state loses batches with its machine's power */
static bool has_lost;   /* it has, and what is kept reaches further */

static void damage_some(void)
{
    for (uint32_t count = world_random(4); count > 0 && world_count("") > 0; count--) {
        const char *name = world_find("", world_random((uint32_t)world_count("")));
        struct fcap_buffer bytes = world_read(name);
        bool is_empty = bytes.size == 0;
        fcap_buffer_done(&bytes);
        if (!is_empty) {
            world_damage(name, (enum world_damage_kind)world_random(WORLD_DAMAGES));
            has_damage = true;
        }
    }
}

struct tally {
    size_t restored;
    size_t refused;
    size_t older_snapshots;
    size_t complete; /* lives without damage: all of the state was there at the end */
};

/* The machine is lost, and perhaps objects are damaged: the restored state is that of a checkpoint
 * that had been complete, and none that is whole is newer. */
static void lose_and_restore(struct tally *tally)
{
    static struct fcap_checkpoint checkpoints[200];
    uint64_t whole = 0;
    uint64_t sequence = 0;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    bool is_a_checkpoint = false;
    if (may_damage && world_random(3) > 0) {
        damage_some();
    }
    size_t count = read_manifests(checkpoints, &whole);
    world_lose_state();
    if (whole == 0) {
        enum fcap_status status = world_try_restore(&report, &error);
        assert_true(status == FCAP_REFUSED || status == FCAP_OK); /* A longer changelog helps. */
        if (status == FCAP_REFUSED) {
            tally->refused++;
            goto out;
        }
        world_lose_state();
    }
    report = world_restore();
    for (size_t i = 0; i < count; i++) {
        is_a_checkpoint = is_a_checkpoint || (checkpoints[i].number == report.number &&
                                              checkpoints[i].sequence == report.sequence);
        if (checkpoints[i].number == whole) {
            sequence = checkpoints[i].sequence;
        }
    }
    assert_true(is_a_checkpoint);
    assert_true(report.number >= whole);
    assert_true(report.number > whole || report.sequence == sequence);
    tally->restored++;
    tally->older_snapshots += report.not_taken > 0;
out:
    for (size_t i = 0; i < count; i++) {
        fcap_checkpoint_done(&checkpoints[i]);
    }
}

static uint64_t seed_in_hand;

static void tell_seed(void)
{
    if (seed_in_hand != 0) {
        printf("seed %llu\n", (unsigned long long)seed_in_hand);
    }
}

/* What is the same for all lives of a seed, and what is set at every start. */
static void choose_world(void)
{
    world.settings.transfer_threads = 1 + world_random(3);
    world.settings.queue_bytes_max = world_random(2) == 0 ? 4000 : 1000000;
    world.settings.rate_limit_bytes_per_second = world_random(3) == 0 ? 3000 : 0;
    world.meanwhile = world_random(3) == 0 ? 0 : world_random(300);
    world.entries_max = world_random(2) == 0 ? 5 : 50;
    has_damage = has_lost = false;
    may_damage = world_random(3) > 0;
}

static void choose_settings(void)
{
    world.state.compact_at = 2 + world_random(world_random(3) == 0 ? 40 : 6);
    world.settings.retain = 1 + world_random(3);
    world.settings.interval_ms = world_random(2) == 0 ? 20000 : 2 * MINUTE_MS;
    world.settings.min_pause_ms = world_random(2) == 0 ? 0 : 30000;
    world.settings.materialization_interval_ms = world_random(2) == 0 ? MINUTE_MS : 10 * MINUTE_MS;
    world.faults = world_random(2) == 0 ? 0 : world_random(60);
    world.write_ms = world_random(4) == 0 ? world_random(3000) : 0;
}

/* A volume that is away, that is full, or a state of which no snapshot can be taken. */
static void live_through_trouble(void)
{
    switch (world_random(8)) {
    case 0:
        fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
        break;
    case 1:
        fake_objects_limit(&world.objects,
                           1 + fake_objects_bytes(&world.objects) + (uint64_t)world_random(100000));
        break;
    case 2:
        world.state.snapshot_failures_left = world_random(20);
        break;
    default:
        return;
    }
    live_a_while();
    fake_objects_away(&world.objects, FCAP_OK);
    fake_objects_limit(&world.objects, 0);
    live_a_while();
    world.state.snapshot_failures_left = 0;
}

static void end_life(void)
{
    if (!has_damage && !has_lost) {
        all_are_whole();
    }
    if (world_random(3) == 0) {
        world_stop();
        return;
    }
    world_kill();
    if (!may_damage && world_random(3) == 0) {
        fake_state_lose_unflushed(&world.state);
        world_forget_after(world.state.position.sequence);
        has_lost = true;
    }
}

static void live(uint64_t seed, struct tally *tally)
{
    checkpoint_world_init(seed);
    choose_world();
    for (int life = 0; life < 6 && world.has_state; life++) {
        choose_settings();
        const uint32_t faults = world.faults;
        world.faults = has_lost ? 0 : faults; /* Only the first look may leave the lineage. */
        world_open();
        world.faults = faults;
        live_a_while();
        live_through_trouble();
        world.faults = 0;
        if (world_metrics().stopped) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, world.told[world.told_count - 1]);
        }
        has_lost = has_lost && world_metrics().snapshots == 0;
        end_life();
        if (!has_lost && world_random(2) == 0) {
            lose_and_restore(tally);
        }
    }
    world.write_ms = 0;
    world.meanwhile = 0;
    world.settings.retain = 2;
    world.settings.rate_limit_bytes_per_second = 0;
    world.settings.interval_ms = 2 * MINUTE_MS;
    world.settings.materialization_interval_ms = 10 * MINUTE_MS;
    /* At the end all is well: soon there is a checkpoint of everything. (Not when something that is
     * still kept was damaged: nobody reads it before a restore.) */
    if (world.has_state && !has_damage) {
        world_open();
        world_write(1, 10, 10);
        world_pass(45 * MINUTE_MS);
        struct fcap_checkpoint newest = world_newest();
        assert_int_equal(newest.sequence, world.state.position.sequence);
        fcap_checkpoint_done(&newest);
        world_stop();
        uint64_t sequence = world.state.position.sequence;
        world_lose_state();
        assert_int_equal(world_restore().sequence, sequence);
        tally->restored++;
        tally->complete++;
    }
    checkpoint_world_done();
}

static void test_lives_by_chance(void **state)
{
    (void)state;
    const char *seeds = getenv("FCAP_CHECKPOINT_SEEDS");
    const char *first = getenv("FCAP_CHECKPOINT_FIRST");
    uint64_t count = seeds != NULL ? strtoull(seeds, NULL, 10) : is_full_size() ? 1000 : 40;
    uint64_t begin = first != NULL ? strtoull(first, NULL, 10) : 1;
    struct tally tally = {0};
    checkpoint_world_done();
    for (uint64_t seed = begin; seed < begin + count; seed++) {
        seed_in_hand = seed;
        live(seed, &tally);
    }
    seed_in_hand = 0;
    checkpoint_world_init(1);
    print_message("result: %llu lives, %zu restores compared, %zu of them with damage passed over, "
                  "%zu with nothing whole; %zu without damage were complete\n",
                  (unsigned long long)count, tally.restored, tally.older_snapshots, tally.refused,
                  tally.complete);
    assert_true(tally.restored > count / 2 && tally.older_snapshots >= count / 10 &&
                tally.complete >= count / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lives_by_chance, checkpoint_world_setup,
                                        checkpoint_world_teardown),
    };
    (void)atexit(tell_seed); /* Of the life that failed. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
