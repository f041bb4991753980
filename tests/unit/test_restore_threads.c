/* Restores with several threads: the same state, failures of one end all, and they can be stopped
 * and slowed down. */
#include "checkpoint_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#define MINUTE_MS 60000
#define THREADS   4

/* Snapshots of many files, and a changelog behind them. */
static struct fcap_checkpoint make_and_lose(void)
{
    world_open();
    for (int minute = 0; minute < 125; minute++) {
        world_write(20, 3000, 400);
        world_pass(MINUTE_MS);
    }
    world_stop();
    struct fcap_checkpoint newest = world_newest();
    assert_in_range(newest.file_count, 10, 100);
    world_lose_state();
    fake_objects_watch(&world.objects, NULL, NULL); /* The world's own is for one thread. */
    world.restoring.threads = THREADS;
    return newest;
}

static atomic_uint reading;
static atomic_uint reading_most;

/* Reads of files wait until as many are under way as there are threads, or long enough. */
static void meet(void *context, enum fake_objects_call call, const char *name)
{
    (void)context;
    if (call != FAKE_OBJECTS_READ || strstr(name, ".sst") == NULL) {
        return;
    }
    unsigned now = atomic_fetch_add(&reading, 1) + 1;
    unsigned most = atomic_load(&reading_most);
    while (now > most && !atomic_compare_exchange_weak(&reading_most, &most, now)) {
    }
    for (int i = 0; i < 2000 && atomic_load(&reading_most) < THREADS; i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    atomic_fetch_sub(&reading, 1);
}

static void test_several_threads_make_the_same_state(void **state)
{
    (void)state;
    struct fcap_checkpoint newest = make_and_lose();
    fake_objects_watch(&world.objects, meet, NULL);
    struct fcap_restore_report report = world_restore(); /* Compares it with the history. */
    assert_int_equal(report.sequence, newest.sequence);
    assert_int_equal(report.not_taken, 0);
    assert_int_equal(atomic_load(&reading_most), THREADS);
    fcap_checkpoint_done(&newest);
}

/* The file that only the newest snapshot has: by number, the last one. */
static const char *own_file(const struct fcap_checkpoint *newest)
{
    const char *last = NULL;
    for (size_t i = 0; i < newest->file_count; i++) {
        last = strstr(newest->files[i].name, ".sst") != NULL ? newest->files[i].object : last;
    }
    assert_non_null(last);
    return last;
}

static void test_verifying_finds_the_damage(void **state)
{
    (void)state;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    struct fcap_checkpoint newest = make_and_lose();
    assert_int_equal(world_verify(&report, &error), FCAP_OK);
    assert_int_equal(report.not_taken, 0);
    fake_objects_flip(&world.objects, own_file(&newest), 5);
    assert_int_equal(world_verify(&report, &error), FCAP_OK);
    assert_int_equal(report.not_taken, 1);
    fcap_checkpoint_done(&newest);
}

/* What one thread finds is the candidate's end, as with one thread alone. */
static void test_damage_is_passed_over(void **state)
{
    (void)state;
    struct fcap_checkpoint newest = make_and_lose();
    fake_objects_flip(&world.objects, own_file(&newest), 77);
    struct fcap_restore_report report = world_restore();
    assert_int_equal(report.sequence, newest.sequence);
    assert_true(report.snapshot_sequence < newest.snapshot_sequence);
    assert_int_equal(report.not_taken, 1);
    fcap_checkpoint_done(&newest);
}

static void place_is_free(void)
{
    char path[256];
    struct stat info;
    assert_true(fcap_restore_is_free(world.state_directory));
    (void)snprintf(path, sizeof path, "%s/.restoring", world.state_directory);
    assert_int_equal(stat(path, &info), -1);
}

static void test_a_place_that_goes_away_is_no_damage(void **state)
{
    (void)state;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    struct fcap_checkpoint newest = make_and_lose();
    size_t failures = 0;
    for (uint64_t read = 1;; read += 7) { /* Manifests, segments, files, segments again. */
        fake_objects_fail(&world.objects, FAKE_OBJECTS_READ, read, FCAP_UNAVAILABLE);
        enum fcap_status status = world_try_restore(&report, &error);
        if (status == FCAP_OK) {
            break; /* It has fewer reads. */
        }
        assert_int_equal(status, FCAP_UNAVAILABLE);
        place_is_free();
        failures++;
    }
    assert_in_range(failures, 5, 1000);
    assert_int_equal(report.sequence, newest.sequence);
    assert_int_equal(report.not_taken, 0);
    fcap_checkpoint_done(&newest);
}

/* --- stopping --------------------------------------------------------------------------------- */

static int left; /* questions that are answered with no */

static bool is_cancelled(void *context)
{
    (void)context;
    return left-- <= 0;
}

static void test_it_can_be_stopped_at_any_time(void **state)
{
    (void)state;
    struct fcap_restore_report report;
    struct fcap_error error;
    struct fcap_checkpoint newest = make_and_lose();
    world.restoring.is_cancelled = is_cancelled;
    size_t stopped = 0;
    world.restoring.threads = 1; /* Which is asked for each piece. */
    for (int questions = 0;; questions += 1 + questions / 5) {
        left = questions;
        enum fcap_status status = world_try_restore(&report, &error);
        if (status == FCAP_OK) {
            break;
        }
        assert_int_equal(status, FCAP_STOPPED);
        assert_non_null(strstr(error.text, "was stopped"));
        place_is_free();
        stopped++;
    }
    assert_in_range(stopped, 5, 1000);
    assert_int_equal(report.sequence, newest.sequence);
    fcap_checkpoint_done(&newest);
}

/* --- how fast, and how far -------------------------------------------------------------------- */

static int64_t monotonic_ms(struct fcap_clock *clock)
{
    struct timespec now;
    (void)clock;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct seen {
    uint64_t bytes;
    uint64_t bytes_all;
    size_t calls;
};

static void see(void *context, uint64_t bytes, uint64_t bytes_all)
{
    struct seen *seen = context;
    assert_true(bytes <= bytes_all && bytes >= seen->bytes);
    *seen = (struct seen){bytes, bytes_all, seen->calls + 1};
}

/* It waits by a real clock, so here it takes at least as long as it must. */
static void test_no_more_than_the_limit_is_read(void **state)
{
    (void)state;
    struct fcap_clock clock = {NULL, monotonic_ms};
    struct fcap_restore_report report;
    struct fcap_error error;
    struct seen seen = {0};
    struct fcap_checkpoint newest = make_and_lose();
    for (size_t threads = 1; threads <= THREADS; threads += THREADS - 1) {
        seen = (struct seen){0};
        world.restoring.threads = threads;
        world.restoring.clock = &clock;
        world.restoring.rate_limit_bytes_per_second = 4000000;
        world.restoring.progress = see;
        world.restoring.context = &seen;
        int64_t began_ms = monotonic_ms(&clock);
        assert_int_equal(world_verify(&report, &error), FCAP_OK);
        uint64_t passed_ms = (uint64_t)(monotonic_ms(&clock) - began_ms);
        assert_true(report.file_bytes > 400000);
        assert_true(passed_ms + 1 >= report.file_bytes / 4000);
        assert_true(seen.calls > 1 && seen.bytes == seen.bytes_all);
        assert_int_equal(seen.bytes_all, report.file_bytes + report.segment_bytes);
    }
    fcap_checkpoint_done(&newest);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, checkpoint_world_setup, checkpoint_world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_several_threads_make_the_same_state),
        TEST(test_verifying_finds_the_damage),
        TEST(test_damage_is_passed_over),
        TEST(test_a_place_that_goes_away_is_no_damage),
        TEST(test_it_can_be_stopped_at_any_time),
        TEST(test_no_more_than_the_limit_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
