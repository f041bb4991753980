/* Ends the process when a worker stands still, or when stopping takes longer than it may.
 *
 * It has a thread of its own, measures by CLOCK_MONOTONIC and does not count time in which it did
 * not run itself, so a process that was stopped (SIGSTOP, a paused machine) is not punished for it.
 * Thread rule: open and close from main; expect and forgive from any thread. */
#ifndef FCAP_DAEMON_WATCHDOG_H
#define FCAP_DAEMON_WATCHDOG_H

#include "board.h"

/* A worker's loop may stand still for so long. The longest thing that it does in one go is to bring
 * records of a partition up to date at its assignment. */
#define FCAP_WATCHDOG_STILL_MS 120000
/* Exit codes: a worker stood still; stopping took too long (a restart goes on from the state). */
#define FCAP_WATCHDOG_EXIT_STILL    70
#define FCAP_WATCHDOG_EXIT_DEADLINE 75

struct fcap_watchdog;

/* Borrows the board. `still_ms`: see above. Nobody is watched yet. */
struct fcap_watchdog *fcap_watchdog_open(struct fcap_board *board, int64_t still_ms);

/* From now on a signal that asks to stop is seen here, too, and gives the process `left_ms` to end:
 * so a start that hangs on a volume can be ended. */
void fcap_watchdog_expect_signal(struct fcap_watchdog *watchdog, int64_t left_ms);

/* The workers are about to begin: from now on they are watched. */
void fcap_watchdog_watch(struct fcap_watchdog *watchdog);

/* From now on the process has `left_ms` to end. Later calls are ignored. */
void fcap_watchdog_expect_end(struct fcap_watchdog *watchdog, int64_t left_ms);

/* The worker has ended; it is not watched any more. */
void fcap_watchdog_forget(struct fcap_watchdog *watchdog, size_t worker);

/* Everything that the worker took is committed, and the state needs no closing to keep it. When all
 * workers say so, an end that hangs in a library is no failure: the exit code at the deadline is
 * 0. */
void fcap_watchdog_settle(struct fcap_watchdog *watchdog, size_t worker);

/* Ends the thread. NULL is fine. */
void fcap_watchdog_close(struct fcap_watchdog *watchdog);

#endif
