/* A process that stops itself at points of its own life (fcap/point.h), to be looked at, continued
 * or killed exactly there.
 *
 * What must hold: the process is fcapd-points; a stop counts only with its proof, the line that the
 * process has written. Thread rule: one thread. */
#ifndef FCAP_TESTS_STOP_H
#define FCAP_TESTS_STOP_H

#include "lab/daemon_process.h"

#include <stdint.h>

#define STOP_WAIT_MS 300000

struct stop {
    struct daemon_process *process; /* borrowed */
    unsigned made;                  /* stops so far */
    char at[256];                   /* its environment */
    char file[128];
    char when[128];
    const char *environment[4];
};

/* What passes the time while something is waited for: a few ms each. */
typedef void stop_meanwhile(void *context);

/* Starts `command` so that it stops at `points`: "name:passes", further ones behind commas; each
 * counts its passes from the stop before. */
void stop_start(struct stop *stop, struct daemon_process *process, const char *command,
                const char *points);
/* The same, but passes count from stop_arm() on. */
void stop_start_unarmed(struct stop *stop, struct daemon_process *process, const char *command,
                        const char *points);
void stop_arm(struct stop *stop);
/* Waits until it has stopped itself once more, at the next of its points. Fails with its log when
 * it ends or never gets there. */
void stop_await(struct stop *stop, stop_meanwhile *meanwhile, void *context);
/* The name of the point where it stands, without the passes. Valid until the next call. */
const char *stop_point(struct stop *stop);
/* It goes on from there. */
void stop_continue(struct stop *stop);
/* SIGKILL, where it stands. */
void stop_kill(struct stop *stop);

#endif
