/* The real fcapd asked for savepoints in places where they must not be, by those who mean another
 * daemon, and by several at a time; and a savepoint that becomes the state of another instance. */
#include "run_fixture.h"
#include "lab/lab.h"
#include "lib/fault.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define START_MS   180000
#define APPLIED_MS 180000
#define STOP_MS    60000
#define LAG_MS     1500

#define TOKEN "secret-token"

static struct run_fixture fixture;
static char folder[64];
static char kept[96]; /* checkpoint.directory */

static const struct run_window hours[] = {{"1h", 3600000}, {"2h", 7200000}, {NULL, 0}};

static int set_up_with(const char *materialization)
{
    char more[512];
    lab_folder_make("savepoints", folder, sizeof folder);
    (void)snprintf(kept, sizeof kept, "%s/kept", folder);
    (void)snprintf(more, sizeof more,
                   "shutdown:\n  deadline: 10s\ncheckpoint:\n  directory: %s\n  interval: 1s\n"
                   "materialization:\n  %s\n",
                   kept, materialization);
    run_fixture_init(&fixture, "[1h, 2h]", hours, more);
    return 0;
}

static int setup(void **unused)
{
    (void)unused;
    return set_up_with("interval: 10m");
}

/* Slow enough to be met in the middle of it. */
static int setup_slow(void **unused)
{
    (void)unused;
    return set_up_with("rate_limit: 10000");
}

static int teardown(void **unused)
{
    (void)unused;
    run_fixture_done(&fixture);
    lab_folder_remove(folder);
    return 0;
}

/* A path below the state (or `folder`), valid for a while. */
static const char *below(const char *directory, const char *name)
{
    static char paths[8][256];
    static size_t next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static char *state_directory(void)
{
    static char state[96];
    (void)snprintf(state, sizeof state, "%s/state", fixture.process.directory);
    return state;
}

static const char *in_state(const char *name)
{
    return below(state_directory(), name);
}

/* Runs `fcapd savepoint --to DIR`, with a --set unless that is NULL. */
static void savepoint(const char *to, const char *set, int exit_code, const char *says)
{
    const char *const arguments[] = {"--to", to, set != NULL ? "--set" : NULL, set, NULL};
    int code = daemon_process_command(&fixture.process, "savepoint", arguments, NULL);
    if (code != exit_code || strstr(fixture.process.text, says) == NULL) {
        fail_msg("--to %s: exit code %d, not %d with \"%s\":\n%s", to, code, exit_code, says,
                 fixture.process.text);
    }
}

static void restore(const char *const *arguments, int exit_code, const char *says)
{
    int code = daemon_process_command(&fixture.process, "restore", arguments, NULL);
    if (code != exit_code || strstr(fixture.process.text, says) == NULL) {
        fail_msg("exit code %d, not %d with \"%s\":\n%s", code, exit_code, says,
                 fixture.process.text);
    }
}

static void every_key_is_right(void)
{
    struct oracle_tally tally = {0};
    run_fixture_compare(&fixture, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){100, 100, 0});
}

static void post(const char *query, int code)
{
    char path[300];
    (void)snprintf(path, sizeof path, "/savepoint?%s", query);
    assert_int_equal(daemon_process_post(&fixture.process, path, TOKEN), code);
}

static void get(const char *query, int code, const char *says)
{
    char path[300];
    (void)snprintf(path, sizeof path, "/savepoint%s", query);
    assert_int_equal(daemon_process_get(&fixture.process, path, TOKEN), code);
    assert_non_null(strstr(fixture.process.text, says));
}

/* Whoever began one gets its own result, whatever has been begun since. */
static void each_has_its_result(void)
{
    char first[64];
    char query[300];
    (void)snprintf(query, sizeof query, "to=%s", below(folder, "not-empty"));
    assert_int_equal(mkdir(below(folder, "not-empty"), 0700), 0);
    assert_int_equal(mkdir(below(folder, "not-empty/x"), 0700), 0);
    post(query, 202);
    const char *begun = strstr(fixture.process.text, "\"begun\":");
    assert_non_null(begun);
    (void)snprintf(first, sizeof first, "?begun=%.*s", (int)strspn(begun + 8, "0123456789"),
                   begun + 8);
    while (daemon_process_get(&fixture.process, "/savepoint", TOKEN) == 200 &&
           strstr(fixture.process.text, "\"running\"") != NULL) {
        lab_pause_ms(10);
    }
    savepoint(below(folder, "first"), NULL, 0, "was read back");
    get("", 200, "{\"savepoint\":\"done\"");
    get(first, 200, "{\"savepoint\":\"failed\"");
    assert_non_null(strstr(fixture.process.text, "\"exit_code\":78"));
    get("?begun=1", 404, "restarted");
    post("to=/%FF%22%0A%00x", 400);
    post("to=/proc/%FF%22%0A", 202);
    while (daemon_process_get(&fixture.process, "/savepoint", TOKEN) == 200 &&
           strstr(fixture.process.text, "\"running\"") != NULL) {
        lab_pause_ms(10);
    }
    get("", 200, "\"to\":\"/proc/\xEF\xBF\xBD\\\"\\u000a\"");
}

static void test_bad_places_and_wrong_daemons(void **unused)
{
    (void)unused;
    run_fixture_start(&fixture, START_MS);
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    savepoint("here", NULL, 64, "whole path");
    savepoint(state_directory(), NULL, 78, "within the state");
    savepoint(in_state(".savepoint/x"), NULL, 78, "within the state");
    savepoint(in_state(".snapshot/x"), NULL, 78, "within the state");
    savepoint(kept, NULL, 78, "is checkpoint.directory");
    savepoint(below(kept, "test/one/mine"), NULL, 78, "holds checkpoints or a savepoint");
    savepoint(below(folder, "x"), "instance=other", 78, "another daemon");
    savepoint(below(folder, "x"), "profile=other", 78, "another daemon");
    savepoint(below(folder, "x"), "http.token_file=/dev/null", 78, "the daemon answers 401");
    each_has_its_result();
    savepoint(below(folder, "first/second"), NULL, 78, "holds checkpoints or a savepoint");
    every_key_is_right();
    run_fixture_stop(&fixture, STOP_MS);
    savepoint(in_state(".savepoint/x"), NULL, 78, "within the state");
    savepoint(below(folder, "first"), NULL, 78, "name an empty directory");
}

/* Blue and green: the state of one instance becomes that of another one. */
static void test_another_instance_begins_with_it(void **unused)
{
    (void)unused;
    const char *from = below(folder, "blue");
    const char *const verify_own[] = {"--from", from, "--verify-only", NULL};
    const char *const other[] = {"--from", from, "--set", "instance=green", NULL};
    const char *const own[] = {"--from", from, NULL};
    struct stat info;
    run_fixture_start(&fixture, START_MS);
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    run_fixture_stop(&fixture, STOP_MS);
    savepoint(from, NULL, 0, "was read back");
    restore(verify_own, 0, "is whole");
    lab_folder_remove(state_directory());
    restore(other, 70, "--set profile=test --set instance=one would take it");
    assert_int_equal(stat(in_state("CURRENT"), &info), -1);
    restore(own, 0, "is restored into");
    run_fixture_start(&fixture, START_MS);
    run_fixture_produce(&fixture, 200);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    every_key_is_right();
    run_fixture_stop(&fixture, STOP_MS);
    /* Back to what it was before these. */
    lab_folder_remove(state_directory());
    assert_int_equal(rename(below(kept, "test"), below(folder, "away")), 0);
    restore(own, 0, "is restored into");
    run_fixture_start(&fixture, START_MS);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    every_key_is_right();
    run_fixture_stop(&fixture, STOP_MS);
}

/* One bit of the largest file below a directory is another. */
static void damage_below(const char *directory)
{
    char path[512] = "";
    long largest = 0;
    DIR *entries = opendir(directory);
    assert_non_null(entries);
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        char name[512];
        struct stat info;
        (void)snprintf(name, sizeof name, "%.200s/%s", directory, entry->d_name);
        if (stat(name, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > largest) {
            largest = info.st_size;
            memcpy(path, name, sizeof path);
        }
    }
    assert_int_equal(closedir(entries), 0);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, largest / 2, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, largest / 2, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

static void test_a_damaged_one_is_found(void **unused)
{
    (void)unused;
    static const char not_whole[] = "there is no whole checkpoint";
    const char *from = below(folder, "damaged");
    const char *const verify[] = {"--from", from, "--verify-only", NULL};
    const char *const real[] = {"--from", from, NULL};
    struct stat info;
    run_fixture_start(&fixture, START_MS);
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    savepoint(from, NULL, 0, "was read back");
    run_fixture_stop(&fixture, STOP_MS);
    damage_below(below(folder, "damaged/test/one"));
    restore(verify, 70, not_whole);
    assert_non_null(strstr(fixture.process.text, "test/one/file-"));
    lab_folder_remove(state_directory());
    restore(real, 70, not_whole);
    assert_int_equal(stat(in_state("CURRENT"), &info), -1);
    fault_is_proved(&(const struct fault){
        .id = "checkpoint-savepoint-damaged",
        .fault = "a piece of a savepoint is damaged, cut or missing",
        .sees = "`fcapd restore`, `--verify-only` too: `there is no whole checkpoint`, the piece, "
                "exit code 70",
        .lost = "the savepoint; no state is made of it",
        .recovers = "with another savepoint, or `--from latest`",
    });
}

static void test_a_killed_one_is_none(void **unused)
{
    (void)unused;
    static const char nothing[] = "there is no checkpoint of profile test, instance one";
    const char *to = below(folder, "killed");
    const char *const verify[] = {"--from", to, "--verify-only", NULL};
    char query[300];
    struct stat info;
    run_fixture_start(&fixture, START_MS);
    run_fixture_produce(&fixture, 500);
    run_fixture_await_applied(&fixture, APPLIED_MS);
    (void)snprintf(query, sizeof query, "to=%s", to);
    post(query, 202);
    do {
        lab_pause_ms(20);
        get("", 200, "\"running\"");
    } while (strstr(fixture.process.text, "\"bytes_done\":0,") != NULL);
    daemon_process_signal(&fixture.process, SIGKILL);
    assert_int_equal(daemon_process_wait(&fixture.process, STOP_MS), 128 + SIGKILL);
    assert_int_equal(stat(in_state(".savepoint"), &info), 0);
    restore(verify, 70, nothing);
    savepoint(to, NULL, 78, "what a killed savepoint has left may be removed");
    run_fixture_start(&fixture, START_MS);
    /* It held files of the state that would never have become free. */
    assert_int_equal(stat(in_state(".savepoint"), &info), -1);
    every_key_is_right();
    (void)snprintf(query, sizeof query, "to=%s", below(folder, "stopped"));
    post(query, 202);
    run_fixture_stop(&fixture, STOP_MS); /* In the middle, and long before its end. */
    savepoint(below(folder, "stopped/below"), NULL, 0, "was read back");
    fault_is_proved(&(const struct fault){
        .id = "checkpoint-savepoint-killed",
        .fault = "the process is killed while it takes a savepoint",
        .sees = "`fcapd restore`: `there is no checkpoint`; another savepoint into the same "
                "directory: `what a killed savepoint has left may be removed`, exit code 78",
        .lost = "nothing: each key equals the definition; what was copied is no state",
        .recovers = "by a start; remove the directory, or name another one",
    });
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_bad_places_and_wrong_daemons),
        TEST(test_another_instance_begins_with_it),
        TEST(test_a_damaged_one_is_found),
        cmocka_unit_test_setup_teardown(test_a_killed_one_is_none, setup_slow, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
