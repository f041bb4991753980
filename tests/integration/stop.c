/* See stop.h. */
#include "stop.h"

#include "lab/lab.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void prepare(struct stop *stop, struct daemon_process *process, const char *points)
{
    assert_int_equal(process->pid, 0);
    *stop = (struct stop){.process = process};
    (void)snprintf(stop->at, sizeof stop->at, "FCAP_STOP_AT=%s", points);
    (void)snprintf(stop->file, sizeof stop->file, "FCAP_STOP_FILE=%s/stopped", process->directory);
    (void)snprintf(stop->when, sizeof stop->when, "FCAP_STOP_WHEN=%s/armed", process->directory);
    (void)unlink(strchr(stop->file, '=') + 1); /* Of an earlier life, if at all. */
    (void)unlink(strchr(stop->when, '=') + 1);
    stop->environment[0] = stop->at;
    stop->environment[1] = stop->file;
}

void stop_start(struct stop *stop, struct daemon_process *process, const char *command,
                const char *points)
{
    prepare(stop, process, points);
    daemon_process_start_command(process, command, stop->environment);
}

void stop_start_unarmed(struct stop *stop, struct daemon_process *process, const char *command,
                        const char *points)
{
    prepare(stop, process, points);
    stop->environment[2] = stop->when;
    daemon_process_start_command(process, command, stop->environment);
}

void stop_arm(struct stop *stop)
{
    FILE *file = fopen(strchr(stop->when, '=') + 1, "we");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

/* The name:passes of a stop, in the order of the wish. */
static void wanted_point(const struct stop *stop, unsigned number, char *text, size_t size)
{
    const char *at = strchr(stop->at, '=') + 1;
    for (; number > 0; number--) {
        at = strchr(at, ',');
        assert_non_null(at);
        at++;
    }
    (void)snprintf(text, size, "%.*s", (int)strcspn(at, ","), at);
}

static void check_proof(const struct stop *stop)
{
    char wanted[64];
    char line[64] = "";
    wanted_point(stop, stop->made, wanted, sizeof wanted - 1);
    *strchr(wanted, ':') = ' ';
    memcpy(wanted + strlen(wanted), "\n", 2);
    FILE *file = fopen(strchr(stop->file, '=') + 1, "re");
    for (unsigned i = 0; file != NULL && i <= stop->made; i++) {
        if (fgets(line, sizeof line, file) == NULL) {
            line[0] = '\0';
        }
    }
    if (file == NULL || strcmp(line, wanted) != 0) {
        fail_msg("it has stopped at %s, not at %s:\n%s", line, wanted,
                 daemon_process_log(stop->process));
    }
    (void)fclose(file);
}

void stop_await(struct stop *stop, stop_meanwhile *meanwhile, void *context)
{
    int64_t until_ms = lab_monotonic_ms() + STOP_WAIT_MS;
    pid_t pid = stop->process->pid;
    int status = 0;
    assert_true(pid > 0);
    while (waitpid(pid, &status, WUNTRACED | WNOHANG) != pid) {
        if (lab_monotonic_ms() > until_ms) {
            fail_msg("it never passes %s:\n%s", stop->at, daemon_process_log(stop->process));
        }
        meanwhile(context);
    }
    if (!WIFSTOPPED(status)) {
        stop->process->pid = 0;
        fail_msg("it has ended by itself (%x) on its way to %s:\n%s", (unsigned)status, stop->at,
                 daemon_process_log(stop->process));
    }
    check_proof(stop);
    stop->made++;
}

const char *stop_point(struct stop *stop)
{
    static char name[64];
    wanted_point(stop, stop->made - 1, name, sizeof name);
    *strchr(name, ':') = '\0';
    return name;
}

void stop_continue(struct stop *stop)
{
    daemon_process_signal(stop->process, SIGCONT);
}

void stop_kill(struct stop *stop)
{
    int status = 0;
    pid_t pid = stop->process->pid;
    daemon_process_signal(stop->process, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    stop->process->pid = 0;
}
