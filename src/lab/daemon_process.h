/* The real fcapd as a child process: its configuration, its log, its pages.
 *
 * It dies with its parent (PR_SET_PDEATHSIG).
 * Thread rule: one thread. */
#ifndef FCAP_LAB_DAEMON_PROCESS_H
#define FCAP_LAB_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon_process {
    const char *program; /* path of the binary; borrowed */
    pid_t pid;           /* 0: not running */
    uint16_t http_port;
    char directory[64];   /* holds fcapd.yaml, token, log, and the state in state/ */
    const char *argument; /* a further one behind the command; borrowed; NULL: none */
    char *text;           /* the last page or output; owned */
};

/* Makes the directory, a token file with "secret-token", and fcapd.yaml from `yaml` with
 * state.directory, http.listen (a free port) and http.token_file added behind it. */
void daemon_process_init(struct daemon_process *process, const char *program, const char *yaml);
/* Writes fcapd.yaml anew, for the next start: directory, port and token stay. */
void daemon_process_configure(struct daemon_process *process, const char *yaml);
/* Kills what runs and removes the directory. Fine when never made. */
void daemon_process_done(struct daemon_process *process);

/* Starts `fcapd run`. `environment`: further NAME=value, or NULL. */
void daemon_process_start(struct daemon_process *process, const char *const *environment);
/* The same for another command, such as "backfill", with the same configuration and log. */
void daemon_process_start_command(struct daemon_process *process, const char *command,
                                  const char *const *environment);
/* Sends a signal. */
void daemon_process_signal(struct daemon_process *process, int number);
/* The exit code, 128 + the signal, or -1 when it still runs after timeout_ms. */
int daemon_process_wait(struct daemon_process *process, int64_t timeout_ms);

/* GETs a page; the HTTP status, 0 when nobody answers. The body is process->text. */
int daemon_process_get(struct daemon_process *process, const char *path, const char *token);
/* The same by POST, without a body. */
int daemon_process_post(struct daemon_process *process, const char *path, const char *token);
/* The value of a sample, summed over its labels; -1 when the page has none of that name. */
double daemon_process_metric(struct daemon_process *process, const char *name);
/* The same of the page that was got last, over the samples whose labels hold `label`, such as
 * partition="3" (NULL: all). -1 also when nothing was got yet. */
double daemon_process_sample(const struct daemon_process *process, const char *name,
                             const char *label);
/* Polls a page until its status is `code`. Ends the process with body and log otherwise. */
void daemon_process_await(struct daemon_process *process, const char *path, int code,
                          int64_t timeout_ms);
/* Polls a page until its body holds `text`; the same otherwise. */
void daemon_process_await_text(struct daemon_process *process, const char *path, const char *text,
                               int64_t timeout_ms);
/* The log so far, in process->text. */
const char *daemon_process_log(struct daemon_process *process);

/* Runs `fcapd <command> -c <its yaml> <arguments...>` to its end; the exit code; standard output
 * and error are process->text. `arguments` ends in NULL. */
int daemon_process_command(struct daemon_process *process, const char *command,
                           const char *const *arguments, const char *const *environment);

#endif
