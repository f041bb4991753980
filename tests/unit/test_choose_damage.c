/* Where a start takes its state from when the one that is there is damaged, in memory. */
#include "choose_world.h"

#include "fcap/damage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MINUTE_MS 60000

/* --- damage ---------------------------------------------------------------------------------- */

static void test_a_damaged_one_is_replaced(void **state)
{
    (void)state;
    static const char *const names[] = {"CURRENT", "MANIFEST-000001", "000001.sst"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        choose_teardown(NULL);
        checkpoint_world_init(i + 70);
        struct fcap_store_position before = choose_run(16, 0);
        choose_unlink(names[i]);
        choose_now(FCAP_STATE_CHECKPOINT, "is damaged");
        assert_int_equal(world.state.position.sequence, before.sequence);
        assert_false(choose_exists(".damaged"));
        choose_goes_on();
    }
}

static void test_a_damaged_one_without_checkpoints(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* One is kept, the newest. */
        char name[32];
        if (!world.has_state) {
            fake_state_init(&world.state, world.state_directory, 5, &world.wall_ms);
            world.has_state = true;
        }
        world_write(20, 300, 50);
        choose_save();
        (void)snprintf(name, sizeof name, "mark-%d", i);
        char path[256];
        choose_path_in_state(path, name);
        choose_copy_file("/dev/null", path);
        choose_unlink("MANIFEST-000001");
        choose_now(FCAP_STATE_KAFKA, "it is read from Kafka");
        assert_non_null(strstr(choose_choice.text.text, "it is kept as"));
        assert_true(choose_exists(".damaged/CURRENT"));
        assert_true(choose_exists(i == 0 ? ".damaged/mark-0" : ".damaged/mark-1"));
        assert_false(choose_exists(i == 0 ? ".damaged/mark-1" : ".damaged/mark-0"));
        world_forget_after(0);
    }
}

static void test_a_damaged_one_and_the_volume_is_away(void **state)
{
    (void)state;
    choose_run(16, 0);
    choose_unlink("CURRENT");
    size_t files = choose_count_files();
    fake_objects_away(&world.objects, FCAP_UNAVAILABLE);
    assert_int_equal(choose_try(NULL, FCAP_OK), FCAP_UNAVAILABLE);
    assert_non_null(strstr(choose_error.text, "the state is damaged"));
    assert_int_equal(choose_count_files(), files);
    fake_objects_away(&world.objects, FCAP_OK);
    choose_now(FCAP_STATE_CHECKPOINT, "is damaged");
}

/* What cannot be opened for another reason is left as it is. */
static void test_what_is_no_damage(void **state)
{
    (void)state;
    static const enum fcap_status statuses[] = {
        FCAP_LOCKED, FCAP_FOREIGN, FCAP_FORMAT,  FCAP_NO_SPACE,
        FCAP_IO,     FCAP_CONFIG,  FCAP_TIMEOUT, FCAP_NO_MEMORY,
    };
    choose_run(16, 0);
    size_t files = choose_count_files();
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        assert_int_equal(choose_try(NULL, statuses[i]), statuses[i]);
        assert_int_equal(choose_count_files(), files);
        assert_false(choose_exists(".damaged") || choose_exists(".replaced"));
    }
    choose_now(FCAP_STATE_LOCAL, "as it was left");
}

/* --- damage that was found while it ran --- */

static void mark(const char *text)
{
    assert_int_equal(fcap_damage_mark(world.state_directory, world.wall_ms, text, &choose_error),
                     FCAP_OK);
}

static void flip_in_state(const char *name)
{
    char path[256];
    choose_path_in_state(path, name);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    int byte = fgetc(file);
    rewind(file);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

static void test_the_marker(void **state)
{
    (void)state;
    struct fcap_damage damage;
    char path[256];
    assert_int_equal(mkdir(world.state_directory, 0700), 0);
    assert_false(fcap_damage_find(world.state_directory, &damage));
    mark("Corruption: block checksum mismatch:\n stored = 1 in /x/000123.sst offset 7 size 9");
    assert_true(fcap_damage_find(world.state_directory, &damage));
    assert_int_equal(damage.found_ms, world.wall_ms);
    assert_int_equal(damage.times, 1);
    assert_string_equal(damage.file, "000123.sst");
    assert_non_null(strstr(damage.text, "mismatch:  stored"));
    choose_path_in_state(path, FCAP_DAMAGE_MARKER);
    assert_int_equal(truncate(path, 20), 0);
    assert_true(fcap_damage_find(world.state_directory, &damage)); /* It is one all the same. */
    assert_int_equal(damage.found_ms, 0);
    assert_string_equal(damage.file, "");
    assert_int_equal(unlink(path), 0);
}

/* The file was whole when it was sent. */
static void test_found_while_running(void **state)
{
    (void)state;
    struct fcap_damage damage;
    struct fcap_store_position before = choose_run(16, 0);
    flip_in_state("000001.sst");
    mark("Corruption: block checksum mismatch in /x/000001.sst");
    choose_now(FCAP_STATE_CHECKPOINT, "an earlier run found it: Corruption: block");
    assert_int_equal(world.state.position.sequence, before.sequence);
    assert_int_equal(choose_choice.restored.not_taken, 0);
    assert_false(fcap_damage_find(world.state_directory, &damage));
    choose_goes_on();
}

/* It was damaged when it was sent: the snapshots that have it are as bad. */
static void test_found_in_what_was_sent(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(16, 0);
    mark("Corruption: block checksum mismatch in /x/000002.sst");
    choose_now(FCAP_STATE_CHECKPOINT, "is damaged");
    assert_true(choose_choice.restored.not_taken > 0);
    assert_int_equal(world.state.position.sequence, before.sequence);
    /* And the one that every snapshot has. */
    choose_save();
    mark("Corruption: block checksum mismatch in /x/000001.sst");
    choose_now(FCAP_STATE_KAFKA, "it is read from Kafka");
    assert_true(choose_exists(".damaged/000001.sst"));
    world_forget_after(0);
}

/* No file is named: once the checkpoint, then what it may have in common with it is avoided, and in
 * the end the start is refused. */
static void test_found_again_and_again(void **state)
{
    (void)state;
    char path[256];
    choose_run(16, 0);
    mark("a user record cannot be read");
    choose_now(FCAP_STATE_CHECKPOINT, "a user record cannot be read");
    assert_false(choose_choice.distrusts);
    world.wall_ms += MINUTE_MS;
    mark("a user record cannot be read");
    choose_now(FCAP_STATE_KAFKA, "its checkpoints may hold the same damage");
    assert_true(choose_choice.distrusts);
    for (int i = 3; i <= 4; i++) {
        fake_state_init(&world.state, world.state_directory, 5, &world.wall_ms);
        world.has_state = true;
        choose_save();
        world.wall_ms += MINUTE_MS;
        mark("a user record cannot be read");
        if (i == 3) {
            choose_now(FCAP_STATE_KAFKA, "it is read from Kafka");
        }
    }
    size_t files = choose_count_files();
    assert_int_equal(choose_try(NULL, FCAP_OK), FCAP_CORRUPT);
    assert_non_null(strstr(choose_error.text, "4 times in a row"));
    assert_int_equal(choose_count_files(), files);
    world.wall_ms += FCAP_DAMAGE_WINDOW_MS;
    fake_state_done(&world.state);
    world.has_state = false;
    assert_int_equal(choose_try(NULL, FCAP_OK), FCAP_OK); /* An hour later it is tried again. */
    assert_int_equal(choose_choice.source, FCAP_STATE_CHECKPOINT);
    choose_path_in_state(path, FCAP_DAMAGE_BEFORE);
    assert_int_equal(unlink(path), 0);
}

static void test_alone(void **state)
{
    (void)state;
    struct fcap_damage damage;
    choose_run(3, 0);
    assert_int_equal(fcap_choose_alone(world.state_directory, &choose_error), FCAP_OK);
    mark("Corruption: bad block in /x/000001.sst");
    size_t files = choose_count_files();
    assert_int_equal(fcap_choose_alone(world.state_directory, &choose_error), FCAP_CORRUPT);
    assert_non_null(strstr(choose_error.text, "000001.sst"));
    assert_non_null(strstr(choose_error.text, FCAP_DAMAGE_MARKER));
    assert_non_null(strstr(choose_error.text, "start again"));
    assert_int_equal(choose_count_files(), files);
    while (choose_count_files() > 0) { /* Moved away, but for what is hidden. */
        choose_unlink("CURRENT");
        choose_unlink("MANIFEST-000001");
        choose_unlink("EMPTY");
        choose_unlink("000001.sst");
        if (choose_exists("000002.sst")) {
            choose_unlink("000002.sst");
        }
    }
    assert_int_equal(fcap_choose_alone(world.state_directory, &choose_error), FCAP_OK);
    assert_false(fcap_damage_find(world.state_directory, &damage));
}

/* --- room ------------------------------------------------------------------------------------ */

static const struct fcap_checkpoint_place_ops *real_ops;

/* There is room for one state, not for two. */
static enum fcap_status open_without_room(struct fcap_checkpoint_place *at, const char *directory,
                                          struct fcap_error *why)
{
    if (strstr(directory, "/.restoring") != NULL && choose_exists("000001.sst")) {
        return fcap_error_set(why, FCAP_NO_SPACE, "%s: planted", directory);
    }
    return real_ops->open(at, directory, why);
}

static enum fcap_status choose_without_room(void)
{
    static struct fcap_checkpoint_place_ops ops;
    fake_place_init(&choose_place, 1);
    real_ops = choose_place.place.ops;
    ops = *real_ops;
    ops.open = open_without_room;
    return choose_try(&ops, FCAP_OK);
}

static void test_no_room_for_two(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(16, 0);
    flip_in_state("000001.sst");
    mark("Corruption: bad block in /x/000001.sst");
    assert_int_equal(choose_without_room(), FCAP_OK);
    assert_int_equal(choose_choice.source, FCAP_STATE_CHECKPOINT);
    assert_int_equal(choose_choice.restored.sequence, before.sequence);
    /* A damaged one that nothing can replace stays. */
    mark("Corruption: bad block in /x/000001.sst");
    size_t files = choose_count_files();
    for (size_t i = 0; world_find(".sst", i) != NULL; i++) {
        world_damage(world_find(".sst", i), WORLD_FLIPPED);
    }
    assert_int_equal(choose_without_room(), FCAP_OK);
    assert_int_equal(choose_choice.source, FCAP_STATE_KAFKA);
    assert_int_equal(choose_count_files(), 0);
    assert_true(choose_exists(".damaged/CURRENT"));
    assert_true(files > 0);
}

/* A valid one is never given up for want of room. */
static void test_no_room_for_a_fresher_one(void **state)
{
    (void)state;
    struct fcap_store_position before = choose_run(45, 2);
    choose_put_copy_back();
    assert_int_equal(choose_without_room(), FCAP_OK);
    assert_int_equal(choose_choice.source, FCAP_STATE_LOCAL);
    assert_non_null(strstr(choose_choice.text.text, "it goes on as another lineage"));
    assert_true(choose_choice.is_open);
    assert_int_equal(choose_place.state.position.sequence, 2);
    assert_memory_not_equal(&choose_place.state.position.lineage, &before.lineage,
                            sizeof before.lineage);
    choose_place.place.ops->close(&choose_place.place);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, checkpoint_world_setup, choose_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_damaged_one_is_replaced),
        TEST(test_a_damaged_one_without_checkpoints),
        TEST(test_a_damaged_one_and_the_volume_is_away),
        TEST(test_what_is_no_damage),
        TEST(test_the_marker),
        TEST(test_found_while_running),
        TEST(test_found_in_what_was_sent),
        TEST(test_found_again_and_again),
        TEST(test_alone),
        TEST(test_no_room_for_two),
        TEST(test_no_room_for_a_fresher_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
