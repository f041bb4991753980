/* The program's commands. Each gets its parsed arguments and gives the exit code. Thread rule:
 * main only. */
#ifndef FCAP_COMMANDS_H
#define FCAP_COMMANDS_H

#include "daemon/daemon.h"
#include "fcap/config.h"

#include <stdio.h>

#define FCAP_SETS_MAX 256

/* What stands behind the command's name on the command line. Texts are borrowed from it. */
struct fcap_arguments {
    const char *config_path; /* -c; NULL: defaults and --set only */
    struct fcap_config_set sets[FCAP_SETS_MAX];
    char set_keys[FCAP_SETS_MAX][160];
    size_t set_count;
    const char *user;    /* --user */
    int32_t partition;   /* --partition; -1: all */
    bool is_offline;     /* --offline */
    bool is_effective;   /* --effective */
    bool is_verify;      /* --verify */
    bool is_replay;      /* --replay-from-kafka */
    const char *windows; /* --windows; NULL: all */
    const char *spill;   /* --spill; NULL: where the state lies */
    int64_t patience_ms; /* --patience: how long who is away is waited for, in a row */
    bool is_plain;       /* --no-tty */
    const char *from;    /* --from */
    const char *to;      /* --to */
    bool is_verify_only; /* --verify-only */
    bool wants_help;     /* --help or -h: nothing behind it was read */
    int rest_count;      /* with FCAP_TAKES_REST: all of them, unread */
    char *const *rest;
};

/* What a command takes besides -c and --set. */
enum {
    FCAP_TAKES_CONFIG = 1,
    FCAP_TAKES_REST = 2, /* reads its arguments itself */
    FCAP_TAKES_OFFLINE = 4,
    FCAP_TAKES_EFFECTIVE = 8,
    FCAP_TAKES_USER = 16,
    FCAP_TAKES_PARTITION = 32,
    FCAP_TAKES_BACKFILL = 64, /* --windows, --spill */
    FCAP_TAKES_VERIFY = 128,
    FCAP_TAKES_REPLAY = 256,
    FCAP_TAKES_WAITING = 512,    /* --patience */
    FCAP_TAKES_TTY = 1024,       /* --no-tty */
    FCAP_TAKES_RESTORE = 2048,   /* --from, --verify-only */
    FCAP_TAKES_SAVEPOINT = 4096, /* --to */
};

struct fcap_command {
    const char *name;
    const char *help;
    unsigned takes;
    struct fcap_daemon_result (*run)(const struct fcap_arguments *arguments);
};

/* Reads the arguments behind the command's name. False: one of them is unknown or incomplete;
 * a line on standard error names it. */
bool fcap_arguments_parse(const struct fcap_command *command, int count, char **texts,
                          struct fcap_arguments *ret_arguments);

/* Ends the command's line of the usage: its options besides -c and --set. */
void fcap_arguments_usage(const struct fcap_command *command, FILE *file);

/* Loads the configuration; problems go to standard error. False: it cannot be used (exit 78). */
bool fcap_arguments_load(const struct fcap_arguments *arguments, struct fcap_config *ret_config);

struct fcap_daemon_result fcap_command_run(const struct fcap_arguments *arguments);
struct fcap_daemon_result fcap_command_check(const struct fcap_arguments *arguments);
struct fcap_daemon_result fcap_command_backfill(const struct fcap_arguments *arguments);
struct fcap_daemon_result fcap_command_inspect(const struct fcap_arguments *arguments);
struct fcap_daemon_result fcap_command_rebuild(const struct fcap_arguments *arguments);
struct fcap_daemon_result fcap_command_restore(const struct fcap_arguments *arguments);
struct fcap_daemon_result fcap_command_savepoint(const struct fcap_arguments *arguments);
struct fcap_daemon_result fcap_command_demo(const struct fcap_arguments *arguments);
struct fcap_daemon_result fcap_command_version(const struct fcap_arguments *arguments);

#endif
