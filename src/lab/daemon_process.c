/* See daemon_process.h. */
#include "lab/daemon_process.h"

#include "lab/lab.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    lab_check(file != NULL);
    lab_check(fputs(text, file) >= 0);
    lab_check(fclose(file) == 0);
}

static char *read_all(int file)
{
    size_t size = 0;
    size_t capacity = 65536;
    char *text = malloc(capacity);
    lab_check(text != NULL);
    for (;;) {
        ssize_t got = read(file, text + size, capacity - size - 1);
        if (got <= 0) {
            break;
        }
        size += (size_t)got;
        if (capacity - size < 4096) {
            capacity *= 2;
            text = realloc(text, capacity);
            lab_check(text != NULL);
        }
    }
    text[size] = '\0';
    return text;
}

static void keep(struct daemon_process *process, char *text)
{
    free(process->text);
    process->text = text;
}

void daemon_process_configure(struct daemon_process *process, const char *yaml)
{
    char path[128];
    char text[16384];
    int size = snprintf(text, sizeof text,
                        "%sstate:\n  directory: %s/state\n"
                        "http:\n  listen: 127.0.0.1:%u\n  token_file: %s/token\n",
                        yaml, process->directory, process->http_port, process->directory);
    lab_check(size > 0 && (size_t)size < sizeof text);
    (void)snprintf(path, sizeof path, "%s/fcapd.yaml", process->directory);
    write_file(path, text);
}

void daemon_process_init(struct daemon_process *process, const char *program, const char *yaml)
{
    char path[128];
    *process = (struct daemon_process){.program = program};
    lab_folder_make("fcapd", process->directory, sizeof process->directory);
    process->http_port = lab_free_port();
    (void)snprintf(path, sizeof path, "%s/token", process->directory);
    write_file(path, "secret-token\n");
    daemon_process_configure(process, yaml);
}

void daemon_process_done(struct daemon_process *process)
{
    if (process->pid > 0) {
        (void)kill(process->pid, SIGKILL);
        (void)waitpid(process->pid, NULL, 0);
        process->pid = 0;
    }
    lab_folder_remove(process->directory);
    keep(process, NULL);
}

/* In the child. */
static void become(const char *program, const char *const *arguments,
                   const char *const *environment, int output)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; environment != NULL && environment[i] != NULL; i++) {
        (void)putenv((char *)(uintptr_t)environment[i]);
    }
    (void)dup2(output, STDOUT_FILENO);
    (void)dup2(output, STDERR_FILENO);
    (void)execv(program, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

void daemon_process_start_command(struct daemon_process *process, const char *command,
                                  const char *const *environment)
{
    char config[128];
    char log[128];
    (void)snprintf(config, sizeof config, "%s/fcapd.yaml", process->directory);
    (void)snprintf(log, sizeof log, "%s/log", process->directory);
    const char *const arguments[] = {"fcapd", command, "-c", config, process->argument, NULL};
    int output = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    lab_check(output >= 0);
    process->pid = fork();
    lab_check(process->pid >= 0);
    if (process->pid == 0) {
        become(process->program, arguments, environment, output);
    }
    (void)close(output);
}

void daemon_process_start(struct daemon_process *process, const char *const *environment)
{
    daemon_process_start_command(process, "run", environment);
}

void daemon_process_signal(struct daemon_process *process, int number)
{
    lab_check(process->pid > 0);
    lab_check(kill(process->pid, number) == 0);
}

int daemon_process_wait(struct daemon_process *process, int64_t timeout_ms)
{
    int status;
    int64_t deadline_ms = lab_monotonic_ms() + timeout_ms;
    while (waitpid(process->pid, &status, WNOHANG) == 0) {
        if (lab_monotonic_ms() >= deadline_ms) {
            return -1;
        }
        lab_pause_ms(10);
    }
    process->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int request_page(struct daemon_process *process, const char *method, const char *path,
                        const char *token)
{
    char request[1024];
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(process->http_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 10};
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int code = 0;
    lab_check(connection >= 0);
    (void)setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    int size = snprintf(request, sizeof request, "%s %s HTTP/1.0\r\n%s%s%s\r\n", method, path,
                        token == NULL ? "" : "Authorization: Bearer ", token == NULL ? "" : token,
                        token == NULL ? "" : "\r\n");
    if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(connection, request, (size_t)size, MSG_NOSIGNAL) == size) {
        char *text = read_all(connection);
        char *body = strstr(text, "\r\n\r\n");
        if (body != NULL && strlen(text) > 12) {
            code = (int)strtol(text + 9, NULL, 10);
            memmove(text, body + 4, strlen(body + 4) + 1);
        }
        keep(process, text);
    }
    (void)close(connection);
    return code;
}

int daemon_process_get(struct daemon_process *process, const char *path, const char *token)
{
    return request_page(process, "GET", path, token);
}

int daemon_process_post(struct daemon_process *process, const char *path, const char *token)
{
    return request_page(process, "POST", path, token);
}

double daemon_process_sample(const struct daemon_process *process, const char *name,
                             const char *label)
{
    size_t size = strlen(name);
    double sum = -1;
    for (const char *line = process->text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        const char *value = line + size;
        bool is_ours = strncmp(line, name, size) == 0 && (line[size] == ' ' || line[size] == '{');
        if (is_ours && line[size] == '{') {
            const char *found = label == NULL ? line : strstr(line, label);
            value = strstr(line, "} ");
            is_ours = value != NULL && found != NULL && found < value;
            value = is_ours ? value + 1 : line;
        } else if (is_ours) {
            is_ours = label == NULL;
        }
        if (is_ours) {
            sum = (sum < 0 ? 0 : sum) + strtod(value, NULL);
        }
        line = end == NULL ? NULL : end + 1;
    }
    return sum;
}

double daemon_process_metric(struct daemon_process *process, const char *name)
{
    if (daemon_process_get(process, "/metrics", NULL) != 200) {
        return -1;
    }
    return daemon_process_sample(process, name, NULL);
}

const char *daemon_process_log(struct daemon_process *process)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/log", process->directory);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    lab_check(file >= 0);
    keep(process, read_all(file));
    (void)close(file);
    return process->text;
}

static bool has_died(struct daemon_process *process)
{
    int status;
    if (waitpid(process->pid, &status, WNOHANG) != process->pid) {
        return false;
    }
    process->pid = 0;
    return true;
}

/* Ends the process with what was seen last. */
_Noreturn static void give_up(struct daemon_process *process, const char *path, int seen)
{
    char *page = process->text; /* The log takes its place. */
    process->text = NULL;
    const char *log = daemon_process_log(process);
    lab_die("%s: %d: %s\n--- log:\n%s", path, seen, page == NULL ? "" : page, log);
}

void daemon_process_await(struct daemon_process *process, const char *path, int code,
                          int64_t timeout_ms)
{
    int64_t deadline_ms = lab_monotonic_ms() + timeout_ms;
    int seen;
    while ((seen = daemon_process_get(process, path, NULL)) != code) {
        if (lab_monotonic_ms() >= deadline_ms || has_died(process)) {
            give_up(process, path, seen);
        }
        lab_pause_ms(50);
    }
}

void daemon_process_await_text(struct daemon_process *process, const char *path, const char *text,
                               int64_t timeout_ms)
{
    int64_t deadline_ms = lab_monotonic_ms() + timeout_ms;
    int seen;
    while ((seen = daemon_process_get(process, path, NULL)) == 0 ||
           strstr(process->text, text) == NULL) {
        if (lab_monotonic_ms() >= deadline_ms || has_died(process)) {
            give_up(process, path, seen);
        }
        lab_pause_ms(50);
    }
}

int daemon_process_command(struct daemon_process *process, const char *command,
                           const char *const *arguments, const char *const *environment)
{
    char config[128];
    const char *all[32] = {"fcapd", command, "-c", config};
    size_t count = 4;
    int channel[2];
    int status;
    (void)snprintf(config, sizeof config, "%s/fcapd.yaml", process->directory);
    for (size_t i = 0; arguments != NULL && arguments[i] != NULL; i++) {
        lab_check(count < 31);
        all[count++] = arguments[i];
    }
    all[count] = NULL;
    lab_check(pipe2(channel, O_CLOEXEC) == 0);
    pid_t pid = fork();
    lab_check(pid >= 0);
    if (pid == 0) {
        become(process->program, all, environment, channel[1]);
    }
    (void)close(channel[1]);
    keep(process, read_all(channel[0]));
    (void)close(channel[0]);
    lab_check(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
