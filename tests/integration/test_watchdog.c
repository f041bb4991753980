/* The watchdog in child processes: it ends those that stand still, and only those. */
#include "board.h"
#include "signals.h"
#include "watchdog.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define STILL_MS 600

static void pause_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

/* A child that says nothing and dies with the test. */
static pid_t fork_quietly(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
    }
    return pid;
}

/* Two workers; number 1 beats for beats_ms, number 0 for ever. Exits with 0 after 10 s. */
static pid_t start(long beats_ms, long end_ms)
{
    pid_t pid = fork_quietly();
    if (pid > 0) {
        return pid;
    }
    struct fcap_board *board = fcap_board_open(2);
    struct fcap_watchdog *watchdog = fcap_watchdog_open(board, STILL_MS);
    fcap_watchdog_watch(watchdog);
    if (end_ms > 0) {
        fcap_watchdog_expect_end(watchdog, end_ms);
    }
    for (long ms = 0; ms < 10000; ms += 20) {
        fcap_board_beat(board, 0);
        if (ms < beats_ms) {
            fcap_board_beat(board, 1);
        }
        pause_ms(20);
    }
    _exit(0);
}

static pid_t start_settled(size_t workers, long end_ms)
{
    pid_t pid = fork_quietly();
    if (pid > 0) {
        return pid;
    }
    struct fcap_watchdog *watchdog = fcap_watchdog_open(fcap_board_open(2), 100000);
    fcap_watchdog_expect_end(watchdog, end_ms);
    for (size_t i = 0; i < workers; i++) {
        fcap_watchdog_settle(watchdog, i);
    }
    pause_ms(20000);
    _exit(1);
}

/* It hangs before any worker begins; a signal ends it all the same. */
static pid_t start_hanging(void)
{
    pid_t pid = fork_quietly();
    if (pid > 0) {
        return pid;
    }
    fcap_signals_init();
    struct fcap_watchdog *watchdog = fcap_watchdog_open(fcap_board_open(2), STILL_MS);
    fcap_watchdog_expect_signal(watchdog, 500);
    pause_ms(4 * STILL_MS);
    if (fcap_signals_received() == 0) {
        (void)raise(SIGTERM);
    }
    for (;;) {
        pause_ms(1000);
    }
}

static int code_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_a_worker_that_stands_still_ends_the_process(void **unused)
{
    (void)unused;
    assert_int_equal(code_of(start(300, 0)), FCAP_WATCHDOG_EXIT_STILL);
}

static void test_a_stop_that_takes_too_long_ends_the_process(void **unused)
{
    (void)unused;
    assert_int_equal(code_of(start(100000, 500)), FCAP_WATCHDOG_EXIT_DEADLINE);
}

/* A state that takes long to open is nothing that a worker does; a signal ends it in time. */
static void test_a_start_that_hangs_is_ended_by_a_signal(void **unused)
{
    (void)unused;
    assert_int_equal(code_of(start_hanging()), FCAP_WATCHDOG_EXIT_DEADLINE);
}

/* B16: a library that hangs when all is committed. */
static void test_an_end_that_hangs_when_all_is_committed_is_no_failure(void **unused)
{
    (void)unused;
    assert_int_equal(code_of(start_settled(2, 500)), 0);
    assert_int_equal(code_of(start_settled(1, 500)), FCAP_WATCHDOG_EXIT_DEADLINE);
}

static void test_time_in_which_the_process_was_stopped_does_not_count(void **unused)
{
    int status;
    pid_t pid = start(100000, 0);
    (void)unused;
    for (int i = 0; i < 3; i++) {
        pause_ms(250);
        assert_int_equal(kill(pid, SIGSTOP), 0);
        pause_ms(2 * STILL_MS);
        assert_int_equal(kill(pid, SIGCONT), 0);
    }
    pause_ms(500);
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0); /* It lives. */
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(code_of(pid), 128 + SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_that_stands_still_ends_the_process),
        cmocka_unit_test(test_a_stop_that_takes_too_long_ends_the_process),
        cmocka_unit_test(test_a_start_that_hangs_is_ended_by_a_signal),
        cmocka_unit_test(test_an_end_that_hangs_when_all_is_committed_is_no_failure),
        cmocka_unit_test(test_time_in_which_the_process_was_stopped_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
