/* The running daemon: opens the parts, watches the workers, stops in order.
 *
 * Thread rule: main only. */
#ifndef FCAP_DAEMON_DAEMON_H
#define FCAP_DAEMON_DAEMON_H

#include "fcap/config.h"

/* Exit codes (docs/OPERATING.md), after sysexits.h. */
enum {
    FCAP_EXIT_OK = 0,
    FCAP_EXIT_USAGE = 64,     /* the command line */
    FCAP_EXIT_INTERNAL = 70,  /* a failure that a restart may or may not cure; the log says it */
    FCAP_EXIT_TEMPORARY = 75, /* locked state, fenced member, not drained in time: start again */
    FCAP_EXIT_CONFIG = 78,    /* the configuration, or what it points to, cannot be used */
};

/* The exit code that a failure stands for. */
int fcap_daemon_exit_code(enum fcap_status status);

struct fcap_daemon_result {
    int exit_code;
    bool is_clean; /* false: threads of a library still run; end by _exit() */
};

struct fcap_daemon_settings {
    const struct fcap_config *config; /* borrowed; outlives the daemon */
    bool replay_from_kafka;           /* run --replay-from-kafka */
};

/* Runs until SIGTERM, SIGINT or a failure. Everything is logged here. */
struct fcap_daemon_result fcap_daemon_run(const struct fcap_daemon_settings *settings);

#endif
