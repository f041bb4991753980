/* kill -9 at every named point of checkpoints, savepoints, restores and of a start that replaces a
 * state, each proven to have been reached: what is kept always gives a complete checkpoint, never
 * an older one than before; a restore or a savepoint is there whole or not at all, and the next try
 * finds no trace of it; a start that was killed is followed by one that has the state. */
#include "fcap/checkpointer.h"
#include "fcap/choose.h"
#include "fcap/clock_os.h"
#include "fcap/damage.h"
#include "fcap/restore.h"
#include "fcap/savepoint.h"
#include "integration/store_rocksdb_help.h"
#include "lib/fault.h"
#include "lib/full_size.h"
#include "lib/random_log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[64];

static void path_of(char path[160], const char *name)
{
    (void)snprintf(path, 160, "%s/%s", folder, name);
}

static bool exists(const char *name)
{
    char path[160];
    struct stat info;
    path_of(path, name);
    return stat(path, &info) == 0;
}

/* --- the children: everything goes on until it is killed, or the file `stop` is there ------------
 */

static struct fcap_objects *open_objects(const char *name)
{
    char path[160];
    struct fcap_error error = {""};
    struct fcap_objects *objects = NULL;
    path_of(path, name);
    if (fcap_objects_directory_open(path, false, &objects, &error) != FCAP_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        _exit(3);
    }
    return objects;
}

static struct fcap_store_settings settings_of(char path[160], const char *name)
{
    path_of(path, name);
    struct fcap_store_settings settings = help_settings(path);
    settings.families[FCAP_FAMILY_USERS].write_buffer_bytes = 64 << 10;
    return settings;
}

static bool has_checkpoint(struct fcap_checkpointer *checkpointer)
{
    struct fcap_checkpoint_metrics metrics;
    fcap_checkpointer_metrics(checkpointer, &metrics);
    return metrics.number > 0;
}

/* Commits the next number until told to stop, and until there is a checkpoint to restore. */
static void count_up(struct fcap_store_rocksdb *db, struct fcap_checkpointer *checkpointer)
{
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    struct fcap_store_position position;
    struct fcap_batch batch = {0};
    int64_t dropped_ms = 0;
    assert_int_equal(store->ops->claim(store, 1, 1, &dropped_ms), FCAP_OK);
    fcap_store_rocksdb_position(db, &position);
    for (uint64_t number = position.sequence + 1;
         !exists("stop") || number < 20 || !has_checkpoint(checkpointer); number++) {
        const struct timespec pause = {0, 1000000};
        help_number(&batch, number, 2000);
        assert_int_equal(help_commit(store, &batch), FCAP_OK);
        (void)nanosleep(&pause, NULL); /* The others want to run, too. */
    }
    fcap_batch_done(&batch);
}

static int child_run(int64_t materialization_interval_ms)
{
    char path[160];
    struct fcap_error error = {""};
    struct fcap_store_settings store = settings_of(path, "state");
    struct fcap_objects *objects = open_objects("checkpoints");
    struct fcap_store_rocksdb *db = help_open(&store);
    struct fcap_checkpoint_state_rocksdb state;
    struct fcap_checkpointer *checkpointer = NULL;
    const struct fcap_checkpointer_settings settings = {.profile = "days",
                                                        .instance = "pod-0",
                                                        .interval_ms = 30,
                                                        .min_pause_ms = 5,
                                                        .materialization_interval_ms =
                                                            materialization_interval_ms,
                                                        .transfer_threads = 2,
                                                        .retain = 2,
                                                        .queue_bytes_max = 64 << 20,
                                                        .clock = fcap_clock_os()};
    fcap_checkpoint_state_rocksdb_init(&state, db, &store);
    assert_int_equal(
        fcap_checkpointer_open(&settings, objects, &state.state, &checkpointer, &error), FCAP_OK);
    assert_int_equal(fcap_checkpointer_start(checkpointer), FCAP_OK);
    count_up(db, checkpointer);
    assert_int_equal(fcap_checkpointer_stop(checkpointer, 60000), FCAP_OK);
    struct fcap_checkpoint_metrics metrics;
    fcap_checkpointer_metrics(checkpointer, &metrics);
    assert_int_equal(metrics.stopped, 0);
    fcap_checkpointer_close(checkpointer);
    fcap_store_rocksdb_close(db);
    fcap_objects_directory_close(objects);
    return 0;
}

static int child_savepoint(void)
{
    char path[160];
    struct fcap_error error = {""};
    struct fcap_store_settings store = settings_of(path, "state");
    struct fcap_objects *objects = open_objects("savepoint");
    struct fcap_store_rocksdb *db = help_open(&store);
    struct fcap_checkpoint_state_rocksdb state;
    struct fcap_savepoint_report report;
    const struct fcap_savepoint_settings settings = {
        .profile = "days", .instance = "pod-0", .clock = fcap_clock_os()};
    fcap_checkpoint_state_rocksdb_init(&state, db, &store);
    enum fcap_status status =
        fcap_savepoint_take(&settings, objects, &state.state, &report, &error);
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
    }
    fcap_store_rocksdb_close(db);
    fcap_objects_directory_close(objects);
    return status == FCAP_OK ? 0 : 4;
}

/* Restores from `from` into `restored`. */
static enum fcap_status restore(const char *from, struct fcap_restore_report *report,
                                struct fcap_error *error)
{
    char path[160];
    struct fcap_store_settings store = settings_of(path, "restored");
    struct fcap_objects *objects = open_objects(from);
    struct fcap_checkpoint_place_rocksdb place;
    fcap_checkpoint_place_rocksdb_init(&place, &store);
    const struct fcap_restore_settings settings = {
        .profile = "days", .instance = "pod-0", .directory = path, .place = &place.place};
    enum fcap_status status = fcap_restore(&settings, objects, report, error);
    fcap_objects_directory_close(objects);
    return status;
}

static int child_restore(void)
{
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    return restore("checkpoints", &report, &error) == FCAP_OK ? 0 : 4;
}

/* Ends with CHOSEN + what was chosen. */
enum { CHOSEN = 20 };

static int child_choose(const char *from)
{
    char path[160];
    struct fcap_store_settings store = settings_of(path, "state");
    struct fcap_objects *objects = open_objects(from);
    struct fcap_checkpoint_place_rocksdb place;
    struct fcap_choice choice;
    struct fcap_error error = {""};
    fcap_checkpoint_place_rocksdb_init(&place, &store);
    const struct fcap_choose_settings settings = {
        .restore = {.profile = "days",
                    .instance = "pod-0",
                    .directory = path,
                    .place = &place.place},
        .clock = fcap_clock_os(),
    };
    enum fcap_status status = fcap_choose(&settings, objects, &choice, &error);
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return 4;
    }
    if (choice.is_open) {
        place.place.ops->close(&place.place);
    }
    fcap_objects_directory_close(objects);
    return CHOSEN + (int)choice.source;
}

/* --- the parent ------------------------------------------------------------------------------ */

static pid_t start(const char *mode, const char *stop_at, int *ret_output)
{
    char proof[160];
    path_of(proof, "proof");
    if (stop_at != NULL) {
        (void)setenv("FCAP_STOP_AT", stop_at, 1);
        (void)setenv("FCAP_STOP_FILE", proof, 1);
    }
    pid_t child = help_spawn(mode, folder, ret_output);
    (void)unsetenv("FCAP_STOP_AT");
    (void)unsetenv("FCAP_STOP_FILE");
    return child;
}

/* Runs a child to a point and kills it there. */
static void kill_at(const char *mode, const char *point, uint32_t pass)
{
    char at[64];
    char proof[160];
    char line[80] = "";
    int output = -1;
    int status = 0;
    (void)snprintf(at, sizeof at, "%s:%u", point, pass);
    path_of(proof, "proof");
    pid_t child = start(mode, at, &output);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (!WIFSTOPPED(status)) {
        fail_msg("%s is not reached: %d", at, status);
    }
    help_kill(child, false);
    (void)close(output); /* Nothing was read from it. */
    FILE *file = fopen(proof, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    (void)fclose(file); /* Only read. */
    assert_int_equal(strncmp(line, point, strlen(point)), 0);
    assert_int_equal(unlink(proof), 0);
}

static int exit_code_of(const char *mode)
{
    int output = -1;
    int status = 0;
    pid_t child = start(mode, NULL, &output);
    assert_int_equal(waitpid(child, &status, 0), child);
    (void)close(output); /* Nothing was read from it. */
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void run_to_end(const char *mode)
{
    assert_int_equal(exit_code_of(mode), 0);
}

/* What is in `restored` is exactly one batch's state; it is removed. */
static void look_at_restored(const struct fcap_restore_report *report)
{
    char path[160];
    struct fcap_store_settings store = settings_of(path, "restored");
    struct fcap_store_position position;
    struct fcap_store_rocksdb *db = help_open(&store);
    fcap_store_rocksdb_position(db, &position);
    assert_int_equal(help_agreed(fcap_store_rocksdb_handle(db)), position.sequence);
    assert_true(report == NULL || report->sequence == position.sequence);
    fcap_store_rocksdb_close(db);
    help_remove(path);
}

static struct fcap_restore_report restore_now(const char *from)
{
    struct fcap_restore_report report = {0};
    struct fcap_error error = {""};
    if (restore(from, &report, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(report.not_taken, 0);
    look_at_restored(&report);
    return report;
}

static int rounds(void)
{
    return is_full_size() ? 30 : 2;
}

static void stop_file(bool is_there)
{
    char path[160];
    path_of(path, "stop");
    FILE *file = is_there ? fopen(path, "w") : NULL;
    assert_true(is_there ? file != NULL && fclose(file) == 0 : unlink(path) == 0);
}

static int set_up(void **state)
{
    (void)state;
    help_make(folder);
    stop_file(true);
    run_to_end("run"); /* A first checkpoint. */
    stop_file(false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    help_remove(folder);
    return 0;
}

static void test_checkpoints(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t passes;
    } points[] = {
        {"checkpoint_frame", 40},           {"checkpoint_segment", 4},
        {"checkpoint_segment_finished", 4}, {"checkpoint_manifest", 5},
        {"checkpoint_manifest_made", 5},    {"checkpoint_snapshot", 3},
        {"checkpoint_file_sending", 10},    {"checkpoint_file_sent", 10},
        {"checkpoint_files_sent", 3},       {"checkpoint_cut", 10},
    };
    uint64_t random = 1;
    uint64_t sequence = restore_now("checkpoints").sequence;
    size_t kills = 0;
    for (int round = 0; round < rounds(); round++) {
        for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
            kill_at("run", points[i].name, 1 + random_below(&random, points[i].passes));
            uint64_t now = restore_now("checkpoints").sequence;
            assert_true(now >= sequence);
            sequence = now;
            kills++;
        }
    }
    stop_file(true);
    run_to_end("run");
    stop_file(false);
    assert_true(restore_now("checkpoints").sequence >= sequence);
    printf("result: %zu kills at 10 points of checkpoints, each restored; %llu batches\n", kills,
           (unsigned long long)sequence);
}

static void test_savepoints(void **state)
{
    (void)state;
    struct fcap_restore_report report;
    struct fcap_error error = {""};
    char path[160];
    uint64_t random = 1;
    path_of(path, "savepoint");
    for (int round = 0; round < 2 * rounds(); round++) {
        kill_at("savepoint", "savepoint_copying", 1 + random_below(&random, 6));
        assert_int_equal(restore("savepoint", &report, &error), FCAP_REFUSED);
        help_remove(path);
        kill_at("savepoint", "savepoint_made", 1);
        (void)restore_now("savepoint"); /* It was there already. */
        help_remove(path);
        run_to_end("savepoint");
        (void)restore_now("savepoint");
        help_remove(path);
        assert_false(exists("state/.savepoint"));
    }
    printf("result: %d kills at 2 points of savepoints\n", 4 * rounds());
}

static void test_restores(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < 2 * rounds(); round++) {
        bool is_late = round % 2 == 0;
        /* No database has fewer than four files. */
        kill_at("restore", is_late ? "restore_moving" : "restore_copying",
                1 + random_below(&random, 4));
        assert_true(exists(is_late ? "restored/.moving" : "restored/.restoring"));
        assert_false(exists("restored/CURRENT"));
        run_to_end("restore");
        assert_false(exists("restored/.restoring") || exists("restored/.moving"));
        look_at_restored(NULL);
    }
    printf("result: %d kills at 2 points of restores\n", 2 * rounds());
}

/* --- a start that takes another state ----------------------------------------------------------
 */

/* What an earlier run has found. Long ago, each time: nobody is to be refused for it. */
static void mark_damaged(void)
{
    static int64_t found_ms = 1600000000000;
    char path[160];
    struct fcap_error error = {""};
    path_of(path, "state");
    found_ms += 2 * FCAP_DAMAGE_WINDOW_MS;
    assert_int_equal(fcap_damage_mark(path, found_ms, "bad block in 999999.sst", &error), FCAP_OK);
}

static void damage(int round)
{
    char path[160];
    if (round % 2 == 0) {
        mark_damaged();
        return;
    }
    path_of(path, "state/CURRENT");
    assert_int_equal(unlink(path), 0);
}

/* One state is there, whole, and nothing else. */
static void look_at_state(uint64_t sequence)
{
    static const char *const names[] = {"state/.restoring",   "state/.restored",
                                        "state/.moving",      "state/.replaced",
                                        "state/.damaged.new", ("state/" FCAP_DAMAGE_MARKER)};
    char path[160];
    struct fcap_store_settings store = settings_of(path, "state");
    struct fcap_store_position position;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_false(exists(names[i]));
    }
    struct fcap_store_rocksdb *db = help_open(&store);
    fcap_store_rocksdb_position(db, &position);
    assert_int_equal(position.sequence, sequence);
    assert_int_equal(help_agreed(fcap_store_rocksdb_handle(db)), position.sequence);
    fcap_store_rocksdb_close(db);
}

static void test_replacements(void **state)
{
    (void)state;
    /* A database has at least CURRENT, IDENTITY, MANIFEST and OPTIONS. */
    static const struct {
        const char *name;
        uint32_t passes;
        bool is_done; /* the next start finds the new state, or goes on with it */
    } points[] = {
        {"restore_copying", 4, false}, {"replace_begun", 1, false},   {"replace_aside", 4, true},
        {"restore_moving", 4, true},   {"replace_removing", 1, true},
    };
    uint64_t random = 1;
    uint64_t sequence = restore_now("checkpoints").sequence;
    int kills = 0;
    for (int round = 0; round < rounds(); round++) {
        for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
            damage(round);
            kill_at("choose", points[i].name, 1 + random_below(&random, points[i].passes));
            enum fcap_state_source expected =
                points[i].is_done ? FCAP_STATE_LOCAL : FCAP_STATE_CHECKPOINT;
            assert_int_equal(exit_code_of("choose"), CHOSEN + (int)expected);
            look_at_state(sequence);
            kills++;
        }
    }
    printf("result: %d kills at 5 points of a start that replaces a damaged state\n", kills);
    fault_is_proved(
        &(struct fault){"state-replace-killed",
                        "kill -9 while a start puts a checkpoint in the place of a damaged state",
                        "the next start says `state: ...` as always", "nothing",
                        "by itself: the next start goes on with it, or begins again"});
}

/* The damaged one that is kept is the state again. */
static void put_kept_back(void)
{
    char command[512];
    (void)snprintf(command, sizeof command, "mv %s/state/.damaged/* %s/state/", folder, folder);
    assert_int_equal(system(command), 0);
}

static void test_a_damaged_one_is_kept(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < 2 * rounds(); round++) {
        mark_damaged();
        kill_at("choose-nothing", "damage_aside", 1 + random_below(&random, 4));
        assert_int_equal(exit_code_of("choose-nothing"), CHOSEN + (int)FCAP_STATE_KAFKA);
        assert_true(exists("state/.damaged/CURRENT"));
        assert_false(exists("state/CURRENT") || exists("state/.damaged.new") ||
                     exists("state/" FCAP_DAMAGE_MARKER));
        put_kept_back();
    }
    printf("result: %d kills at a point of moving a damaged state aside\n", 2 * rounds());
}

/* Commits at least so many more, all of which are in the changelog, and ends in good order. */
static void run_on(unsigned batches)
{
    char at[64];
    char proof[160];
    int output = -1;
    int status = 0;
    (void)snprintf(at, sizeof at, "checkpoint_frame:%u", batches);
    pid_t child = start("run-on", at, &output);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    stop_file(true);
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)close(output); /* Nothing was read from it. */
    stop_file(false);
    path_of(proof, "proof");
    assert_int_equal(unlink(proof), 0);
}

static void test_forward(void **state)
{
    (void)state;
    char command[512];
    uint64_t random = 1;
    (void)snprintf(command, sizeof command, "cp -a %s/state %s/old", folder, folder);
    assert_int_equal(system(command), 0);
    run_on(40);
    uint64_t sequence = restore_now("checkpoints").sequence;
    for (int round = 0; round < rounds(); round++) {
        (void)snprintf(command, sizeof command, "rm -rf %s/state && cp -a %s/old %s/state", folder,
                       folder, folder);
        assert_int_equal(system(command), 0);
        kill_at("choose", "forward_applied", 1 + random_below(&random, 10));
        assert_int_equal(exit_code_of("choose"), CHOSEN + (int)FCAP_STATE_FORWARD);
        look_at_state(sequence);
    }
    printf("result: %d kills while a state was brought forward\n", rounds());
}

int main(int count, char **texts)
{
    if (count == 3) {
        (void)snprintf(folder, sizeof folder, "%s", texts[2]);
        return strcmp(texts[1], "run") == 0              ? child_run(100)
               : strcmp(texts[1], "run-on") == 0         ? child_run(3600000)
               : strcmp(texts[1], "savepoint") == 0      ? child_savepoint()
               : strcmp(texts[1], "choose") == 0         ? child_choose("checkpoints")
               : strcmp(texts[1], "choose-nothing") == 0 ? child_choose("nothing")
                                                         : child_restore();
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_checkpoints),
        TEST(test_savepoints),
        TEST(test_restores),
        TEST(test_replacements),
        TEST(test_a_damaged_one_is_kept),
        TEST(test_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
