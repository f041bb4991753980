/* Arguments to command. */
#include "commands/commands.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef FCAP_JEMALLOC
/* jemalloc counts the host's CPUs, not the container's, and keeps what was freed for 10 s. The
 * symbol is its interface. */
extern const char *malloc_conf;
const char *malloc_conf = "narenas:4,dirty_decay_ms:1000,muzzy_decay_ms:1000";
#endif

static const struct fcap_command commands[] = {
    {"run", "count impressions and project them to Redis, until SIGTERM",
     FCAP_TAKES_CONFIG | FCAP_TAKES_REPLAY, fcap_command_run},
    {"backfill", "fill Redis once from what the topic holds, beside running daemons or before them",
     FCAP_TAKES_CONFIG | FCAP_TAKES_BACKFILL | FCAP_TAKES_WAITING | FCAP_TAKES_TTY,
     fcap_command_backfill},
    {"check", "validate the configuration, the state, Kafka and Redis", //
     FCAP_TAKES_CONFIG | FCAP_TAKES_OFFLINE | FCAP_TAKES_EFFECTIVE, fcap_command_check},
    {"inspect", "show what the state holds, and one user's counts",
     FCAP_TAKES_CONFIG | FCAP_TAKES_USER | FCAP_TAKES_PARTITION, fcap_command_inspect},
    {"rebuild", "write Redis anew from the state, or compare the two",
     FCAP_TAKES_CONFIG | FCAP_TAKES_USER | FCAP_TAKES_VERIFY | FCAP_TAKES_WAITING | FCAP_TAKES_TTY,
     fcap_command_rebuild},
    {"savepoint", "copy the whole state into an empty directory, and read it back",
     FCAP_TAKES_CONFIG | FCAP_TAKES_SAVEPOINT | FCAP_TAKES_TTY, fcap_command_savepoint},
    {"restore", "make the state anew from a checkpoint, or see whether one is whole",
     FCAP_TAKES_CONFIG | FCAP_TAKES_RESTORE | FCAP_TAKES_TTY, fcap_command_restore},
    {"demo", "run it all in a small world of its own, watch it, recount every key", FCAP_TAKES_REST,
     fcap_command_demo},
    {"version", "show the versions of this program and its libraries", 0, fcap_command_version},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static void put_command(const struct fcap_command *command, FILE *file)
{
    (void)fprintf(file, "  %-8s %s", command->name, command->help);
    fcap_arguments_usage(command, file);
}

static int usage(FILE *file)
{
    (void)fprintf(file, "usage: fcapd COMMAND [-c FILE] [--set key=value]...\n");
    for (size_t i = 0; i < COMMANDS; i++) {
        put_command(&commands[i], file);
    }
    return file == stdout ? FCAP_EXIT_OK : FCAP_EXIT_USAGE;
}

static const struct fcap_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

/* The first files that are opened would take the places of standard streams that were closed, and
 * what is printed would go into them: the state, a connection. With these printing fails. */
static bool occupy_streams(void)
{
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) {
        int mode = i == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (fcntl(i, F_GETFD) == -1 && open("/dev/null", mode) != i) {
            return false;
        }
    }
    return true;
}

/* What was printed is out, or the exit code says that it is not. */
static int finish(int exit_code)
{
    bool is_out = fflush(stdout) == 0 && ferror(stdout) == 0;
    if (!is_out) {
        (void)fprintf(stderr, "fcapd: standard output did not take everything\n");
    }
    return !is_out && exit_code == FCAP_EXIT_OK ? FCAP_EXIT_TEMPORARY : exit_code;
}

int main(int count, char **texts)
{
    static struct fcap_arguments arguments;
    if (!occupy_streams()) {
        return FCAP_EXIT_INTERNAL;
    }
    if (count < 2) {
        return usage(stderr);
    }
    if (strcmp(texts[1], "--help") == 0 || strcmp(texts[1], "-h") == 0 ||
        strcmp(texts[1], "help") == 0) {
        return finish(usage(stdout));
    }
    const struct fcap_command *command =
        find_command(strcmp(texts[1], "--version") == 0 ? "version" : texts[1]);
    if (command == NULL) {
        (void)fprintf(stderr, "fcapd: %s: no such command\n", texts[1]);
        return usage(stderr);
    }
    if (!fcap_arguments_parse(command, count - 2, texts + 2, &arguments)) {
        return FCAP_EXIT_USAGE;
    }
    if (arguments.wants_help) {
        bool takes_config = (command->takes & FCAP_TAKES_CONFIG) != 0;
        (void)printf("usage: fcapd %s%s\n", command->name,
                     takes_config ? " [-c FILE] [--set key=value]..." : "");
        put_command(command, stdout);
        return finish(FCAP_EXIT_OK);
    }
    struct fcap_daemon_result result = command->run(&arguments);
    int exit_code = finish(result.exit_code);
    if (!result.is_clean) {
        _exit(exit_code);
    }
    return exit_code;
}
