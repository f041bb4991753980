/* The parts of `fcapd rebuild`. Each gives the exit code. Thread rule: main only. */
#ifndef FCAP_COMMANDS_REBUILD_H
#define FCAP_COMMANDS_REBUILD_H

#include "commands.h"
#include "progress.h"

#define FCAP_EXIT_DIFFERS 1 /* --verify has found differences */

/* What is asked for. All borrowed. */
struct fcap_rebuild_job {
    const struct fcap_config *config;
    const char *user; /* NULL: everything */
    struct fcap_progress *progress;
    int64_t patience_ms; /* for a running daemon's workers, in a row */
};

/* Writes Redis from the state of a stopped daemon. */
int fcap_rebuild_stopped(const struct fcap_rebuild_job *job);

/* Compares Redis with a running daemon, or with a stopped one's state. */
int fcap_verify(const struct fcap_rebuild_job *job, bool is_running);

#endif
