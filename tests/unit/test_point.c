/* Named points: the process stops at the wanted pass and leaves the proof; and the program that
 * ships has none. */
#include "fcap/point.h"

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

#define PASSES 5

static char folder[64];
static char proof[96];
static char when[96];

static int setup(void **unused)
{
    (void)unused;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%.40s/fcap-point-XXXXXX", tmp == NULL ? "/tmp" : tmp);
    assert_non_null(mkdtemp(folder));
    (void)snprintf(proof, sizeof proof, "%s/proof", folder);
    (void)snprintf(when, sizeof when, "%s/when", folder);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    (void)unlink(proof); /* Not every case has both. */
    (void)unlink(when);
    return rmdir(folder);
}

static void touch(const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

/* A child that passes two points some times, then ends with 7. */
static pid_t start_child(const char *stop_at, const char *stop_when)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (stop_at != NULL) {
            (void)setenv("FCAP_STOP_AT", stop_at, 1);
        }
        if (stop_when != NULL) {
            (void)setenv("FCAP_STOP_WHEN", stop_when, 1);
        }
        (void)setenv("FCAP_STOP_FILE", proof, 1);
        (void)freopen("/dev/null", "w", stderr);
        for (int i = 0; i < PASSES; i++) {
            FCAP_POINT(commit_written);
            FCAP_POINT_IF(i % 2 == 0, push_acked); /* Three times. */
            if (i == 1 && stop_when != NULL) {
                touch(when);
            }
        }
        _exit(7);
    }
    return child;
}

static void proof_says(const char *text)
{
    char line[64] = "";
    FILE *file = fopen(proof, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    (void)fclose(file);
    assert_string_equal(line, text);
}

static void it_stops(pid_t child, const char *text)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(WSTOPSIG(status), SIGSTOP);
    proof_says(text);
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7); /* Once, and it goes on. */
}

static void it_does_not_stop(pid_t child, int code, int signal)
{
    int status = 0;
    struct stat found;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(signal == 0 ? WIFEXITED(status) && WEXITSTATUS(status) == code
                            : WIFSIGNALED(status) && WTERMSIG(status) == signal);
    assert_int_equal(stat(proof, &found), -1);
}

static void test_it_stops_at_the_wanted_pass(void **unused)
{
    (void)unused;
    it_stops(start_child("commit_written:4", NULL), "commit_written 4\n");
}

static void test_a_condition_counts(void **unused)
{
    (void)unused;
    it_stops(start_child("push_acked:3", NULL), "push_acked 3\n");
}

static void test_passes_count_from_when_the_file_exists(void **unused)
{
    (void)unused;
    it_stops(start_child("commit_written:3", when), "commit_written 3\n"); /* The last of five. */
}

static void test_it_goes_on_without_the_wanted_pass(void **unused)
{
    (void)unused;
    it_does_not_stop(start_child("commit_written:6", NULL), 7, 0);
    it_does_not_stop(start_child("push_acked:4", NULL), 7, 0);
    it_does_not_stop(start_child("commit_written:4", when), 7, 0);
    it_does_not_stop(start_child(NULL, NULL), 7, 0);
}

static void test_an_unknown_name_ends_the_process(void **unused)
{
    (void)unused;
    it_does_not_stop(start_child("commit_write:1", NULL), 0, SIGABRT);
    it_does_not_stop(start_child("commit_written", NULL), 0, SIGABRT);
    it_does_not_stop(start_child("commit_written:0", NULL), 0, SIGABRT);
}

/* How many symbols of a program name a point. */
static int count_symbols(const char *program)
{
    char command[1024];
    char line[512];
    int count = 0;
    (void)snprintf(command, sizeof command, "'%s' '%s'", FCAP_NM, program);
    FILE *listing = popen(command, "r");
    assert_non_null(listing);
    int lines = 0;
    while (fgets(line, sizeof line, listing) != NULL) {
        lines++;
        count += strstr(line, "fcap_point") != NULL;
    }
    assert_int_equal(pclose(listing), 0);
    assert_true(lines > 100);
    return count;
}

static void test_the_program_that_ships_has_no_points(void **unused)
{
    (void)unused;
    assert_int_equal(count_symbols(FCAPD_PROGRAM), 0);
    assert_true(count_symbols(FCAPD_POINTS_PROGRAM) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_stops_at_the_wanted_pass, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_condition_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_passes_count_from_when_the_file_exists, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_it_goes_on_without_the_wanted_pass, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_unknown_name_ends_the_process, setup, teardown),
        cmocka_unit_test(test_the_program_that_ships_has_no_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
