/* One partition taken from the checkpoints of another state: all of it as it was at the end of the
 * changelog, nothing else; damaged pieces, and ends in the middle, leave what was here or nothing.
 */
#include "fcap/adopter.h"
#include "fcap/key.h"
#include "fcap/restore.h"

#include "lib/fault.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "adopt_world.h"

/* --- damage ------------------------------------------------------------------------------------
 */

/* Bytes of every object whose name contains `part` become others; gives how many there were. */
static size_t damage(const char *part)
{
    char folder[256];
    char path[700];
    size_t damaged = 0;
    (void)snprintf(folder, sizeof folder, "%s/kept/days/pod-0", world.directory);
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        struct stat info;
        uint8_t bytes[64];
        if (strstr(entry->d_name, part) == NULL || entry->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        int file = open(path, O_RDWR | O_CLOEXEC);
        assert_true(file >= 0 && fstat(file, &info) == 0);
        off_t at = info.st_size > 200 ? 100 : 0;
        ssize_t size = pread(file, bytes, sizeof bytes, at);
        assert_true(size > 0);
        for (ssize_t i = 0; i < size; i++) {
            bytes[i] ^= 0x5a;
        }
        assert_int_equal(pwrite(file, bytes, (size_t)size, at), size);
        damaged++;
        (void)close(file);
    }
    (void)closedir(entries);
    return damaged;
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void all_of_it_comes_and_nothing_else(void **unused)
{
    (void)unused;
    adopt();
    size_t pairs = here_is(&world.ends[1]);
    assert_true(is_adopting_there());               /* For the next partition. */
    assert_false(fcap_adopter_step(world.adopter)); /* There is none. */
    assert_false(is_adopting_there());
    assert_int_equal(
        told("its state is that of checkpoint 4 of instance pod-0, next offset 400000"), 1);
    assert_int_equal(told("the one here ended at 50"), 1);
    assert_true(pairs > 500);
    /* It stays when the process ends, and is fresh enough now. */
    close_here();
    open_here();
    world.assignment = 0;
    world.told_count = 0;
    adopt();
    assert_int_equal(here_is(&world.ends[1]), pairs);
    assert_int_equal(told("it is the one here, next offset 400000"), 1);
    print_message("result: a partition of %zu pairs, with that of another one, came from a "
                  "snapshot and 50 batches of a changelog\n",
                  pairs);
}

/* As from an object store: nothing lies in files here. */
static void without_files_it_is_copied_down(void **unused)
{
    (void)unused;
    struct fcap_objects_ops ops = *world.objects->ops;
    const struct fcap_objects_ops *before = world.objects->ops;
    ops.locate = NULL;
    world.objects->ops = &ops;
    adopt();
    world.objects->ops = before;
    (void)here_is(&world.ends[1]);
    assert_int_equal(told("checkpoint 4 of instance pod-0"), 1);
}

static void a_damaged_segment_leads_to_the_checkpoint_before(void **unused)
{
    (void)unused;
    char first[64];
    /* The newest checkpoint alone needs the batches from 351 on. */
    (void)snprintf(first, sizeof first, "-%020d-", 351);
    assert_int_equal(damage(first), 1);
    adopt();
    assert_true(told("is not taken: days/pod-0/changelog-") >= 1);
    assert_int_equal(told("its state is that of checkpoint"), 1);
    assert_true(told("of instance pod-0, next offset 200000") == 1 ||
                told("of instance pod-0, next offset 350000") == 1);
    if (told("next offset 200000") == 1) {
        (void)here_is(&world.ends[0]);
    }
}

/* Blocks that nobody has looked at so far are damaged: all tables. What is here stays. */
static void damaged_tables_leave_what_is_here(void **unused)
{
    (void)unused;
    assert_true(damage(".sst") > 3);
    adopt();
    (void)here_is(&world.old);
    assert_true(told("is not taken: ") >= 2);
    assert_int_equal(told("it is the one here, next offset 50"), 1);
    struct fcap_adopter_metrics metrics;
    fcap_adopter_metrics(world.adopter, &metrics);
    assert_true(metrics.not_taken >= 2);
    fault_is_proved(&(const struct fault){
        .id = "checkpoint-damaged-at-assignment",
        .fault = "kept tables are damaged when a partition is assigned",
        .sees = "`partition P: checkpoint N of instance I, from the snapshot of S, is not taken: "
                "...`; `fcapd_adoption_not_taken_total` grows",
        .lost = "nothing: the partition keeps the state that is here, byte for byte",
        .recovers = "by itself: from an older checkpoint, else the state here, else Kafka",
    });
}

static void a_damaged_manifest_of_the_database_leaves_what_is_here(void **unused)
{
    (void)unused;
    assert_true(damage("-MANIFEST-") >= 1);
    adopt();
    (void)here_is(&world.old);
    assert_true(told("its bytes are not those of MANIFEST-") >= 1);
    assert_int_equal(told("it is the one here, next offset 50"), 1);
}

/* The other instance has it only half, too. */
static void a_half_partition_is_refused(void **unused)
{
    (void)unused;
    struct fcap_buffer key = {0};
    count(1);
    fcap_batch_clear(&world.batch);
    fcap_batch_section(&world.batch, PARTITION, 1, ++world.commits);
    fcap_key_meta(&key, FCAP_PARTITION_MAX + 1, "partial");
    fcap_buffer_put_be16(&key, PARTITION);
    fcap_batch_add(&world.batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, fcap_buffer_bytes(&key),
                   FCAP_BYTES_NONE);
    fcap_buffer_done(&key);
    assert_int_equal(help_commit(world.source_store, &world.batch), FCAP_OK);
    keep(false);
    adopt();
    assert_int_equal(told("is not taken: the partition is only half there"), 1);
    assert_int_equal(told("next offset 400000"), 1); /* The checkpoint before has all of it. */
    (void)here_is(&world.ends[1]);
}

struct patience {
    unsigned calls;
    unsigned left;
};

static bool goes_on(void *context)
{
    struct patience *patience = context;
    patience->calls++;
    if (patience->left > 0) {
        patience->left--;
        return true;
    }
    return false;
}

static void nothing_changes(void *context)
{
    (void)context;
}

static bool newest(void *context, const struct fcap_checkpoint *checkpoint)
{
    struct fcap_checkpoint *copy = context;
    struct fcap_buffer bytes = {0};
    fcap_checkpoint_encode(checkpoint, &bytes);
    assert_int_equal(fcap_checkpoint_decode(fcap_buffer_bytes(&bytes), copy, NULL), FCAP_OK);
    fcap_buffer_done(&bytes);
    return false;
}

/* At each moment at which it can be cancelled; what is left counts as empty, or is the old one. */
static void cancelled_anywhere(void **unused)
{
    (void)unused;
    struct fcap_checkpoint checkpoint = {0};
    struct content nothing = {.families = {{0}}};
    struct fcap_error error = {""};
    enum fcap_status status = FCAP_STOPPED;
    unsigned cancels = 0;
    unsigned emptied = 0;
    bool is_old = true;
    assert_int_equal(fcap_restore_list(world.objects, "days", "pod-0", newest, &checkpoint, &error),
                     FCAP_OK);
    struct fcap_adopt_candidate candidate = {
        .snapshot = &checkpoint, .log = &checkpoint, .partition = checkpoint.partitions[0]};
    while (checkpoint.segments[candidate.first].last <= checkpoint.snapshot_sequence) {
        candidate.first++;
    }
    for (unsigned at = 0; status == FCAP_STOPPED; at += at < 16 ? 1 : 4) {
        struct patience patience = {.left = at};
        struct fcap_adopt_taken taken;
        struct fcap_adopt_order order = {
            .claimed = claim(), .keeps = is_old, .changes = nothing_changes};
        order.claimed.go_on = goes_on;
        order.claimed.context = &patience;
        order.claimed.leaves_half = true;
        status = world.state->ops->take(world.state, &candidate, &order, &taken, &error);
        if (at % 2 == 0 && is_old) {
            world.state->ops->rest(world.state);
        }
        if (status == FCAP_STOPPED) {
            struct fcap_store_partition left;
            cancels++;
            assert_int_equal(fcap_store_rocksdb_look(world.here, PARTITION, &left, &error),
                             FCAP_OK);
            (void)claim();
            bool is_first = is_old && !(left.found && !left.is_half);
            is_old = is_old && !is_first;
            at = is_first ? 0 : at; /* It is open: each moment of the change is met now. */
            emptied += !is_old;
            (void)here_is(is_old ? &world.old : &nothing);
        }
    }
    if (status != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    (void)here_is(&world.ends[1]);
    print_message("result: cancelled at %u moments, %u of them in the middle of the change\n",
                  cancels, emptied);
    assert_true(cancels > 10 && emptied > 3 && emptied < cancels);
    fcap_checkpoint_done(&checkpoint);
}

/* With the thread: partitions come and go as they like. */
static void a_thread_of_its_own(void **unused)
{
    (void)unused;
    const struct timespec pause = {0, 3000000};
    assert_int_equal(fcap_adopter_start(world.adopter), FCAP_OK);
    for (int i = 0; i < 6; i++) {
        struct fcap_store_claimed claimed = claim();
        struct fcap_adoption *adoption = fcap_adopter_ask(world.adopter, &claimed);
        for (int k = 0; k < i * 2; k++) {
            (void)nanosleep(&pause, NULL); /* How far it comes meanwhile matters to nobody. */
            (void)fcap_adoption_is_over(adoption);
        }
        fcap_adoption_end(adoption);
        world.store->ops->disclaim(world.store, PARTITION);
    }
    struct fcap_store_claimed claimed = claim();
    struct fcap_adoption *adoption = fcap_adopter_ask(world.adopter, &claimed);
    int64_t deadline_ms = help_now_ms() + 4 * 60 * 1000;
    while (!fcap_adoption_is_over(adoption) && help_now_ms() < deadline_ms) {
        (void)nanosleep(&pause, NULL);
    }
    assert_true(fcap_adoption_is_over(adoption));
    fcap_adoption_end(adoption);
    (void)claim();
    (void)here_is(&world.ends[1]);
    struct fcap_adopter_metrics metrics;
    fcap_adopter_metrics(world.adopter, &metrics);
    assert_int_equal(metrics.waiting, 0);
    assert_int_equal(metrics.not_taken, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(all_of_it_comes_and_nothing_else),
        TEST(without_files_it_is_copied_down),
        TEST(a_damaged_segment_leads_to_the_checkpoint_before),
        TEST(damaged_tables_leave_what_is_here),
        TEST(a_damaged_manifest_of_the_database_leaves_what_is_here),
        TEST(a_half_partition_is_refused),
        TEST(cancelled_anywhere),
        TEST(a_thread_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
