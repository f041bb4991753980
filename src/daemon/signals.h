/* SIGTERM and SIGINT as a request to stop; the second one ends the process at once. SIGPIPE is
 * ignored. Thread rule: init from main before other threads; the rest any thread. */
#ifndef FCAP_DAEMON_SIGNALS_H
#define FCAP_DAEMON_SIGNALS_H

#include <stdbool.h>

/* What the process ends with when a second signal cuts the drain short. */
#define FCAP_SIGNALS_EXIT_CODE 75

void fcap_signals_init(void);

/* Waits until a stop was requested, somebody woke us, or the time is over. True: stop. */
bool fcap_signals_wait(int timeout_ms);

/* Wakes fcap_signals_wait(). */
void fcap_signals_wake(void);

/* The signal that asked, or 0. */
int fcap_signals_received(void);

#endif
