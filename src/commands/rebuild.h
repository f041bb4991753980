/* The parts of `fcapd rebuild`. Each gives the exit code. Thread rule: main only. */
#ifndef FCAP_COMMANDS_REBUILD_H
#define FCAP_COMMANDS_REBUILD_H

#include "commands.h"

#define FCAP_EXIT_DIFFERS 1 /* --verify has found differences */

/* Writes Redis from the state of a stopped daemon; `user` NULL: everything. */
int fcap_rebuild_stopped(const struct fcap_config *config, const char *user);

/* Compares Redis with a running daemon, or with a stopped one's state; `user` NULL: everything. */
int fcap_verify(const struct fcap_config *config, const char *user, bool is_running);

#endif
