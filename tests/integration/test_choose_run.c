/* The real fcapd takes another state at its start: what is damaged, behind or of another lineage is
 * replaced, and every key equals the definition afterwards. The records behind the state are gone
 * from Kafka wherever a replay could hide a fault. */
#include "fcap/damage.h"
#include "lab/lab.h"
#include "lib/fault.h"
#include "lib/full_size.h"
#include "run_fixture.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 180000
#define LAG_MS  1500

static struct run_fixture fixture;
static char folder[64];
static char with_checkpoints[512];

static const struct run_window hours[] = {{"1h", 3600000}, {"2h", 7200000}, {NULL, 0}};

static int setup(void **unused)
{
    (void)unused;
    lab_folder_make("choose", folder, sizeof folder);
    (void)snprintf(with_checkpoints, sizeof with_checkpoints,
                   "shutdown:\n  deadline: 10s\ncheckpoint:\n  directory: %s/kept\n  interval: 1s\n"
                   "  min_pause: 0s\nmaterialization:\n  interval: 10s\n",
                   folder);
    run_fixture_init(&fixture, "[1h, 2h]", hours, with_checkpoints);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    run_fixture_done(&fixture);
    lab_folder_remove(folder);
    return 0;
}

/* --- small parts --- */

static void start(void)
{
    run_fixture_start(&fixture, WAIT_MS);
}

static void stop(void)
{
    run_fixture_stop(&fixture, WAIT_MS);
}

static void log_holds(const char *text)
{
    const char *log = daemon_process_log(&fixture.process);
    if (strstr(log, text) == NULL) {
        fail_msg("no \"%s\" in\n%s", text, log);
    }
}

static void source_is(const char *source)
{
    char label[40];
    (void)snprintf(label, sizeof label, "source=\"%s\"", source);
    assert_int_equal(daemon_process_get(&fixture.process, "/metrics", NULL), 200);
    assert_true(daemon_process_sample(&fixture.process, "fcapd_state_source", label) == 1);
    assert_true(daemon_process_sample(&fixture.process, "fcapd_state_source", NULL) == 1);
    (void)snprintf(label, sizeof label, "\"state_source\":\"%s\"", source);
    assert_int_equal(daemon_process_get(&fixture.process, "/status", NULL), 200);
    assert_non_null(strstr(fixture.process.text, label));
}

static void every_key_is_right(void)
{
    struct oracle_tally tally = {0};
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){100, 100, 0});
}

static void produce(size_t count)
{
    run_fixture_produce(&fixture, count);
    run_fixture_await_applied(&fixture, WAIT_MS);
}

/* What the state does not have is nowhere any more. */
static void delete_records(void)
{
    for (int32_t partition = 0; partition < RUN_PARTITIONS; partition++) {
        kafka_delete_records(kafka_test_brokers(), fixture.topic, partition,
                             fixture.next[partition]);
    }
}

static void await_more_than(const char *name, double below)
{
    int64_t deadline_ms = lab_monotonic_ms() + WAIT_MS;
    while (daemon_process_metric(&fixture.process, name) <= below) {
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("%s is still %f\n%s", name, below, daemon_process_log(&fixture.process));
        }
        lab_pause_ms(50);
    }
}

static void path_of(char path[160], const char *name)
{
    (void)snprintf(path, 160, "%s/%s", fixture.process.directory, name);
}

static bool exists(const char *name)
{
    char path[160];
    struct stat info;
    path_of(path, name);
    return stat(path, &info) == 0;
}

/* `from` and `to` below the daemon's directory. */
static void copy(const char *from, const char *to)
{
    char command[512];
    const char *directory = fixture.process.directory;
    (void)snprintf(command, sizeof command, "rm -rf %s/%s && cp -a %s/%s %s/%s", directory, to,
                   directory, from, directory, to);
    assert_int_equal(system(command), 0);
}

static void remove_state(void)
{
    char state[160];
    path_of(state, "state");
    lab_folder_remove(state);
}

/* One after the other, whose names end so. The visitor gives true to stop. */
static bool each_file(const char *end, bool (*visit)(const char *path))
{
    char state[160];
    path_of(state, "state");
    DIR *directory = opendir(state);
    bool is_found = false;
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL && !is_found;
         entry = readdir(directory)) {
        char path[500];
        size_t size = strlen(entry->d_name);
        bool is_one = size > strlen(end) && strcmp(entry->d_name + size - strlen(end), end) == 0;
        (void)snprintf(path, sizeof path, "%s/%s", state, entry->d_name);
        is_found = is_one && entry->d_name[0] != '.' && visit(path);
    }
    assert_int_equal(closedir(directory), 0);
    return is_found;
}

/* Turns bits at an offset; behind the end, of the middle. */
static void flip(const char *path, off_t offset)
{
    struct stat info;
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(stat(path, &info), 0);
    offset = offset < info.st_size ? offset : info.st_size / 2;
    for (off_t at = offset; at < offset + 8 && at < info.st_size; at++) {
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        int byte = fgetc(file);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(fputc(byte ^ 0x55, file), byte ^ 0x55);
    }
    assert_int_equal(fclose(file), 0);
}

static void tell(const char *id, const char *fault, const char *sees, const char *recovers)
{
    fault_is_proved(&(struct fault){id, fault, sees, "nothing", recovers});
}

/* --- the faults: each finds a stopped daemon with everything in a checkpoint, and leaves one
 * ------
 */

static void behind_its_checkpoint(void)
{
    copy("state", "old");
    start();
    source_is("local");
    produce(300);
    stop();
    delete_records();
    copy("old", "state");
    start();
    log_holds("brought forward from batch");
    source_is("changelog");
    every_key_is_right();
    stop();
    tell("state-behind-checkpoint",
         "the state is older than its own checkpoint (an old copy, or a power failure)",
         "`state: that in ..., brought forward ...`", "by itself: the changelog has the rest");
}

static void of_another_lineage(void)
{
    copy("state", "old");
    remove_state();
    start();
    source_is("checkpoint");
    produce(300);
    stop();
    delete_records();
    copy("old", "state");
    start();
    log_holds("of another lineage, lacked");
    source_is("checkpoint");
    every_key_is_right();
    stop();
    tell("state-of-another-lineage",
         "an old volume comes back after the instance was restored elsewhere",
         "`state: checkpoint N was restored ..., for that in ..., of another lineage, lacked ...`",
         "by itself: the fresher one is taken");
}

static void current_is_damaged(void)
{
    char path[160];
    path_of(path, "state/CURRENT");
    flip(path, 0);
    start();
    log_holds("does not name a manifest");
    source_is("checkpoint");
    every_key_is_right();
    stop();
    tell("state-current-damaged", "CURRENT is damaged",
         "`state: checkpoint N was restored ..., for that in ... is damaged`", "by itself");
}

static bool flip_manifest(const char *path)
{
    if (strstr(path, "/MANIFEST-") == NULL) {
        return false;
    }
    flip(path, 12);
    return true;
}

static void manifest_is_damaged(void)
{
    assert_true(each_file("", flip_manifest));
    start();
    log_holds("was restored in");
    log_holds("is damaged");
    source_is("checkpoint");
    every_key_is_right();
    stop();
    tell("state-manifest-damaged", "RocksDB's MANIFEST is damaged",
         "`state: checkpoint N was restored ..., for that in ... is damaged`", "by itself");
}

static bool remove_file(const char *path)
{
    return unlink(path) == 0;
}

static void table_is_missing(void)
{
    assert_true(each_file(".sst", remove_file));
    start();
    log_holds("was restored in");
    log_holds("is damaged");
    source_is("checkpoint");
    every_key_is_right();
    stop();
    tell("state-sst-missing", "an SST file is missing",
         "`state: checkpoint N was restored ..., for that in ... is damaged`", "by itself");
}

static bool flip_log(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || info.st_size < 4096) {
        return false;
    }
    flip(path, info.st_size / 3);
    return true;
}

/* RocksDB takes a log that is damaged as one that ends there, or not at all. */
static void log_is_damaged(void)
{
    start();
    produce(400);
    await_more_than("fcapd_checkpoint_completed_total", 0);
    daemon_process_signal(&fixture.process, SIGKILL);
    assert_int_equal(daemon_process_wait(&fixture.process, WAIT_MS), 128 + SIGKILL);
    assert_true(each_file(".log", flip_log));
    start();
    every_key_is_right();
    const char *log = daemon_process_log(&fixture.process);
    assert_true(strstr(log, "brought forward") != NULL || strstr(log, "was restored in") != NULL ||
                strstr(log, "it goes on as another lineage") != NULL);
    stop();
    tell("state-wal-damaged", "the write-ahead log is damaged in its middle",
         "`state: that in ..., brought forward ...`, or a checkpoint",
         "by itself: what was behind the damage comes from the changelog, and from Kafka");
}

static int damaged_tables;

/* The blocks of the users' tables: found when a user is read, not when they are opened. */
static bool flip_users(const char *path)
{
    char head[256] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(head, 1, 40, file);
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0; i + 5 < size && i < 12; i++) {
        if (memcmp(head + i, "user-", 5) == 0) {
            flip(path, 30);
            damaged_tables++;
            break;
        }
    }
    return false;
}

static void table_is_damaged_while_it_runs(void)
{
    damaged_tables = 0;
    (void)each_file(".sst", flip_users);
    assert_true(damaged_tables > 0);
    daemon_process_start(&fixture.process, NULL);
    run_fixture_produce(&fixture, 600);
    int code = daemon_process_wait(&fixture.process, WAIT_MS);
    if (code != 70) {
        fail_msg("exit code %d\n%s", code, daemon_process_log(&fixture.process));
    }
    log_holds(FCAP_DAMAGE_MARKER " says so, and the next start takes another one");
    assert_true(exists("state/" FCAP_DAMAGE_MARKER));
    start();
    log_holds("an earlier run found it");
    source_is("checkpoint");
    assert_false(exists("state/" FCAP_DAMAGE_MARKER));
    run_fixture_await_applied(&fixture, WAIT_MS);
    every_key_is_right();
    stop();
    tell(
        "state-sst-damaged-while-running", "an SST file is damaged, and found when it is read",
        "exit code 70, the file's name in the log and in `.found-damaged`; then `state: checkpoint "
        "N was restored ...`",
        "by a restart, once");
}

/* --- the volume --- */

static void move_kept(const char *from, const char *to)
{
    char old[160];
    char new[160];
    (void)snprintf(old, sizeof old, "%s/%s", folder, from);
    (void)snprintf(new, sizeof new, "%s/%s", folder, to);
    assert_int_equal(rename(old, new), 0);
}

static void volume_is_not_mounted(void)
{
    char mark[160];
    struct stat info;
    (void)snprintf(mark, sizeof mark, "%s/kept", folder);
    move_kept("kept", "away");
    assert_int_equal(mkdir(mark, 0755), 0); /* The mount point. */
    start();
    log_holds("checkpoints cannot be taken now");
    log_holds("it goes on as another lineage");
    produce(200);
    await_more_than("fcapd_checkpoint_failing", 0);
    assert_int_equal(rmdir(mark), 0); /* Nothing was made there. */
    move_kept("away", "kept");
    await_more_than("fcapd_checkpoint_completed_total", 0);
    every_key_is_right();
    stop();
    (void)snprintf(mark, sizeof mark, "%s/kept/.fcap-objects", folder);
    assert_int_equal(stat(mark, &info), 0);
    tell("checkpoint-volume-unmounted", "the checkpoint volume is not mounted at a start",
         "`state: that in ..., as it was left ...; checkpoints cannot be taken now`, "
         "`fcapd_checkpoint_failing` is 1",
         "by itself when it is mounted");
}

static void volume_is_another_one(void)
{
    char path[160];
    move_kept("kept", "away");
    (void)snprintf(path, sizeof path, "%s/kept", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    (void)snprintf(path, sizeof path, "%s/kept/.fcap-objects", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "fcap-objects 1\n0123456789abcdef0123456789abcdef\n") > 0);
    assert_int_equal(fclose(file), 0);
    start();
    log_holds("another volume is mounted than the one that was used before");
    log_holds("state/.objects-id");
    produce(200);
    every_key_is_right();
    stop();
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/kept", folder);
    assert_int_equal(rmdir(path), 0);
    move_kept("away", "kept");
    tell("checkpoint-volume-swapped", "another checkpoint volume is mounted under the same path",
         "`another volume is mounted than the one that was used before`, "
         "`fcapd_checkpoint_failing` is 1",
         "mount the right one, or remove `.objects-id` to begin with this one");
}

/* Without state nobody knows which volume it was: it is waited for. */
static void volume_must_exist(void)
{
    char yaml[4096];
    char more[640];
    remove_state();
    move_kept("kept", "away");
    char *at = strstr(with_checkpoints, "  interval: 1s\n");
    assert_non_null(at);
    (void)snprintf(more, sizeof more, "%.*s  must_exist: true\n%s", (int)(at - with_checkpoints),
                   with_checkpoints, at);
    run_fixture_yaml(&fixture, "one", "[1h, 2h]", more, yaml, sizeof yaml);
    daemon_process_configure(&fixture.process, yaml);
    daemon_process_start(&fixture.process, NULL);
    assert_int_equal(daemon_process_wait(&fixture.process, WAIT_MS), 75);
    log_holds("there is no state, and checkpoint.directory cannot give one");
    move_kept("away", "kept");
    start();
    source_is("checkpoint");
    every_key_is_right();
    stop();
}

/* --- without checkpoints --- */

static void damaged_without_checkpoints(void)
{
    char yaml[4096];
    char path[160];
    struct fcap_error error = {""};
    path_of(path, "state");
    assert_int_equal(fcap_damage_mark(path, lab_wall_ms(), "Corruption: in 000012.sst", &error),
                     FCAP_OK);
    run_fixture_yaml(&fixture, "one", "[1h, 2h]", "", yaml, sizeof yaml);
    daemon_process_configure(&fixture.process, yaml);
    for (int i = 0; i < 2; i++) {
        daemon_process_start(&fixture.process, NULL);
        assert_int_equal(daemon_process_wait(&fixture.process, WAIT_MS), 70);
        log_holds("an earlier run found it damaged (Corruption: in 000012.sst)");
        log_holds(FCAP_DAMAGE_MARKER);
        log_holds("start again");
    }
    path_of(path, "state/" FCAP_DAMAGE_MARKER);
    assert_int_equal(unlink(path), 0);
    run_fixture_yaml(&fixture, "one", "[1h, 2h]", with_checkpoints, yaml, sizeof yaml);
    daemon_process_configure(&fixture.process, yaml);
}

/* --- in the middle of it --- */

/* kill -9 of the real daemon while it puts another state into place. */
static void killed_while_it_replaces(const char *point, int pass)
{
    char at[64];
    char proof[160];
    char stop_at[100];
    char stop_file[200];
    int status = 0;
    path_of(proof, "proof");
    (void)snprintf(at, sizeof at, "%s:%d", point, pass);
    (void)snprintf(stop_at, sizeof stop_at, "FCAP_STOP_AT=%s", at);
    (void)snprintf(stop_file, sizeof stop_file, "FCAP_STOP_FILE=%s", proof);
    const char *const environment[] = {stop_at, stop_file, NULL};
    assert_true(each_file(".sst", remove_file));
    fixture.process.program = FCAPD_POINTS_PROGRAM;
    daemon_process_start(&fixture.process, environment);
    fixture.process.program = FCAPD_PROGRAM;
    assert_int_equal(waitpid(fixture.process.pid, &status, WUNTRACED), fixture.process.pid);
    assert_true(WIFSTOPPED(status));
    daemon_process_signal(&fixture.process, SIGKILL);
    assert_int_equal(daemon_process_wait(&fixture.process, WAIT_MS), 128 + SIGKILL);
    assert_true(exists("proof"));
    assert_int_equal(unlink(proof), 0);
    start();
    every_key_is_right();
    stop();
}

static void test_another_state_is_taken(void **unused)
{
    (void)unused;
    start();
    log_holds("state: it is read from Kafka, for there is none in");
    source_is("kafka");
    produce(1000);
    await_more_than("fcapd_checkpoint_number", 1);
    stop(); /* With a last checkpoint of everything. */
    delete_records();
    behind_its_checkpoint();
    of_another_lineage();
    current_is_damaged();
    manifest_is_damaged();
    table_is_missing();
    table_is_damaged_while_it_runs();
    log_is_damaged();
    volume_is_not_mounted();
    volume_is_another_one();
    volume_must_exist();
    damaged_without_checkpoints();
    killed_while_it_replaces("replace_aside", 3);
    for (int pass = 1; is_full_size() && pass <= 4; pass++) {
        killed_while_it_replaces("replace_begun", 1);
        killed_while_it_replaces("replace_aside", pass);
        killed_while_it_replaces("restore_moving", pass);
        killed_while_it_replaces("replace_removing", 1);
        killed_while_it_replaces("restore_copying", pass);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_another_state_is_taken, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
