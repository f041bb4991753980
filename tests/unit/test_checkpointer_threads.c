/* The checkpointer with all its threads, beside a writer that never waits, on a place that is slow
 * and fails now and then: what it says at its end is complete is all of the state. Under
 * ThreadSanitizer it is also a look at everything that the threads share. */
#include "fcap/assert.h"
#include "fcap/checkpointer.h"
#include "fcap/clock_os.h"
#include "fcap/restore.h"
#include "lib/fake_objects.h"
#include "lib/fake_state.h"
#include "lib/full_size.h"
#include "lib/random_log.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* As the store: a batch is in the state, then its follower is told, and a snapshot is over when all
 * of its batches were told. */
static struct {
    struct fcap_checkpoint_state state; /* first: it is given out */
    struct fake_state inner;
    pthread_mutex_t lock; /* guards the inner one, and `told` */
    pthread_cond_t was_told;
    uint64_t told;
    struct fcap_store_follower follower;
    struct fake_objects objects;
    char directory[128];
    char state_directory[160];
    atomic_uint faults; /* of 1000 calls of the objects */
    atomic_uint_fast64_t random;
} test;

static uint32_t draw(uint32_t bound)
{
    uint64_t seed = atomic_fetch_add(&test.random, 1) * 6364136223846793005u;
    return random_below(&seed, bound);
}

static void nap(uint32_t us)
{
    const struct timespec pause = {0, (long)us * 1000};
    (void)nanosleep(&pause, NULL); /* How long does not matter. */
}

/* --- the state ------------------------------------------------------------------------------- */

static void enter(void)
{
    FCAP_ASSERT(pthread_mutex_lock(&test.lock) == 0);
}

static void leave(void)
{
    FCAP_ASSERT(pthread_mutex_unlock(&test.lock) == 0);
}

static void state_position(struct fcap_checkpoint_state *state,
                           struct fcap_store_position *position)
{
    (void)state;
    enter();
    *position = test.inner.position;
    leave();
}

static bool state_origin(struct fcap_checkpoint_state *state, struct fcap_store_position *origin)
{
    (void)state;
    enter();
    *origin = test.inner.origin;
    bool has_origin = test.inner.has_origin;
    leave();
    return has_origin;
}

static enum fcap_status state_fork(struct fcap_checkpoint_state *state, struct fcap_error *error)
{
    (void)state;
    return test.inner.state.ops->fork(&test.inner.state, error);
}

static void state_follow(struct fcap_checkpoint_state *state,
                         const struct fcap_store_follower *follower)
{
    (void)state;
    test.follower = follower != NULL ? *follower : (struct fcap_store_follower){0};
}

static enum fcap_status state_partitions(struct fcap_checkpoint_state *state,
                                         fcap_checkpoint_partition_visitor visitor, void *context,
                                         struct fcap_error *error)
{
    (void)state;
    return test.inner.state.ops->partitions(&test.inner.state, visitor, context, error);
}

static enum fcap_status state_partitions_of(struct fcap_checkpoint_state *state,
                                            const char *directory,
                                            fcap_checkpoint_partition_visitor visitor,
                                            void *context, struct fcap_error *error)
{
    (void)state;
    return test.inner.state.ops->partitions_of(&test.inner.state, directory, visitor, context,
                                               error);
}

static enum fcap_status state_snapshot(struct fcap_checkpoint_state *state, const char *directory,
                                       uint64_t *ret_sequence, struct fcap_error *error)
{
    (void)state;
    enter();
    enum fcap_status status =
        test.inner.state.ops->snapshot(&test.inner.state, directory, ret_sequence, error);
    leave();
    nap(draw(3000));
    enter();
    while (status == FCAP_OK && test.told < *ret_sequence) {
        FCAP_ASSERT(pthread_cond_wait(&test.was_told, &test.lock) == 0);
    }
    leave();
    return status;
}

static void write_batch(void)
{
    struct fcap_batch batch = {0};
    uint8_t value[200] = {0};
    fcap_batch_section(&batch, (int32_t)draw(3), 1, test.told + 1);
    for (uint32_t i = 1 + draw(20); i > 0; i--) {
        char key[16];
        (void)snprintf(key, sizeof key, "%06u", draw(500));
        value[0] = (uint8_t)draw(256);
        fcap_batch_add(&batch, FCAP_FAMILY_USERS, FCAP_CHANGE_PUT, fcap_bytes_of(key),
                       (struct fcap_bytes){value, 1 + draw(sizeof value)});
    }
    enter();
    fake_state_apply(&test.inner, &batch);
    const uint64_t sequence = test.inner.position.sequence;
    leave();
    test.follower.written(test.follower.context, sequence, 1700000000000, &batch, NULL);
    enter();
    test.told = sequence;
    FCAP_ASSERT(pthread_cond_broadcast(&test.was_told) == 0);
    leave();
    fcap_batch_done(&batch);
}

/* --- the place ------------------------------------------------------------------------------- */

static void before_call(void *context, enum fake_objects_call call, const char *name)
{
    (void)context;
    (void)name;
    if (draw(4) == 0) {
        nap(draw(2000));
    }
    if (draw(1000) < atomic_load(&test.faults)) {
        fake_objects_fail(&test.objects, call, 1, draw(2) == 0 ? FCAP_IO : FCAP_UNAVAILABLE);
    }
}

static int set_up(void **state)
{
    static const struct fcap_checkpoint_state_ops ops = {.position = state_position,
                                                         .origin = state_origin,
                                                         .fork = state_fork,
                                                         .follow = state_follow,
                                                         .partitions = state_partitions,
                                                         .partitions_of = state_partitions_of,
                                                         .snapshot = state_snapshot};
    static int64_t wall_ms = 1700000000000;
    const char *tmp = getenv("TMPDIR");
    (void)state;
    memset(&test, 0, sizeof test);
    (void)snprintf(test.directory, sizeof test.directory, "%.80s/fcap-checkpoint-XXXXXX",
                   tmp == NULL ? "/tmp" : tmp);
    assert_non_null(mkdtemp(test.directory));
    (void)snprintf(test.state_directory, sizeof test.state_directory, "%s/state", test.directory);
    assert_int_equal(pthread_mutex_init(&test.lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&test.was_told, NULL), 0);
    fake_state_init(&test.inner, test.state_directory, 7, &wall_ms);
    test.inner.compact_at = 5;
    fcap_checkpoint_state_init(&test.state, &ops, test.state_directory);
    fake_objects_init(&test.objects);
    return 0;
}

static int tear_down(void **state)
{
    struct fcap_error error;
    (void)state;
    fcap_checkpoint_state_done(&test.state);
    fake_state_done(&test.inner);
    fake_objects_done(&test.objects);
    (void)pthread_cond_destroy(&test.was_told); /* Nobody waits. */
    (void)pthread_mutex_destroy(&test.lock);
    assert_int_equal(fcap_checkpoint_remove_directory(test.state_directory, &error), FCAP_OK);
    assert_int_equal(fcap_checkpoint_remove_directory(test.directory, &error), FCAP_OK);
    return 0;
}

/* --- one life --------------------------------------------------------------------------------- */

/* What is kept can be restored, whatever failed. */
static uint64_t verify(void)
{
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    const struct fcap_restore_settings settings = {.profile = "days", .instance = "pod-0"};
    if (fcap_restore(&settings, &test.objects.port, &report, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(report.not_taken, 0);
    return report.sequence;
}

static void restore_and_compare(void)
{
    struct fake_place place;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    char directory[200];
    int64_t wall_ms = 0;
    struct fake_state restored;
    (void)snprintf(directory, sizeof directory, "%s/restored", test.directory);
    fake_place_init(&place, 99);
    const struct fcap_restore_settings settings = {
        .profile = "days", .instance = "pod-0", .directory = directory, .place = &place.place};
    if (fcap_restore(&settings, &test.objects.port, &report, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(report.sequence, test.inner.position.sequence);
    fake_state_load(&restored, directory, &wall_ms);
    assert_int_equal(restored.map.count, test.inner.map.count);
    for (size_t i = 0; i < restored.map.count; i++) {
        assert_true(fcap_bytes_equal(fcap_buffer_bytes(&restored.map.pairs[i].key),
                                     fcap_buffer_bytes(&test.inner.map.pairs[i].key)));
        assert_true(fcap_bytes_equal(fcap_buffer_bytes(&restored.map.pairs[i].value),
                                     fcap_buffer_bytes(&test.inner.map.pairs[i].value)));
    }
    fake_state_done(&restored);
    assert_int_equal(fcap_checkpoint_remove_directory(directory, &error), FCAP_OK);
}

static void test_nothing_is_lost_between_threads(void **state)
{
    (void)state;
    struct fcap_checkpointer_settings settings = {.profile = "days",
                                                  .instance = "pod-0",
                                                  .interval_ms = 15,
                                                  .min_pause_ms = 2,
                                                  .materialization_interval_ms = 40,
                                                  .transfer_threads = 3,
                                                  .retain = 2,
                                                  .clock = fcap_clock_os()};
    struct fcap_checkpoint_metrics metrics = {0};
    struct fcap_checkpoint_metrics all = {0};
    int compared = 0;
    const int lives = is_full_size() ? 60 : 6;
    for (int life = 0; life < lives; life++) {
        struct fcap_checkpointer *checkpointer = NULL;
        struct fcap_error error = {""};
        bool is_easy = life % 2 == 0;
        settings.queue_bytes_max = is_easy ? 16 << 20 : 20000;
        atomic_store(&test.faults, 0);
        if (fcap_checkpointer_open(&settings, &test.objects.port, &test.state, &checkpointer,
                                   &error) != FCAP_OK) {
            fail_msg("%s", error.text);
        }
        fake_objects_watch(&test.objects, before_call, NULL);
        atomic_store(&test.faults, is_easy ? 0 : 5);
        assert_int_equal(fcap_checkpointer_start(checkpointer), FCAP_OK);
        metrics.snapshots = 0;
        /* On a slow machine longer: the snapshot that mends the last life's holes must come. */
        for (int i = 0; i < 400 || (is_easy && metrics.snapshots == 0 && i < 100000); i++) {
            write_batch();
            nap(draw(1500));
            fcap_checkpointer_metrics(checkpointer, &metrics);
        }
        atomic_store(&test.faults, 0);
        assert_int_equal(metrics.stopped, 0);
        assert_int_equal(fcap_checkpointer_stop(checkpointer, 60000), FCAP_OK);
        fcap_checkpointer_metrics(checkpointer, &metrics);
        all.checkpoints += metrics.checkpoints;
        all.snapshots += metrics.snapshots;
        all.holes += metrics.holes;
        fake_objects_watch(&test.objects, NULL, NULL);
        fcap_checkpointer_close(checkpointer);
        const uint64_t sequence = verify();
        if (sequence == test.inner.position.sequence) { /* Else a hole was not mended yet. */
            restore_and_compare();
            compared++;
        }
        assert_true(!is_easy || metrics.holes > 0 || sequence == test.inner.position.sequence);
    }
    print_message("result: %llu checkpoints, %llu snapshots, %llu holes, %d of %d lives compared\n",
                  (unsigned long long)all.checkpoints, (unsigned long long)all.snapshots,
                  (unsigned long long)all.holes, compared, lives);
    assert_true(compared >= lives / 2 && all.snapshots >= (uint64_t)lives / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_lost_between_threads, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
