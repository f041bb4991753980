#include "backfill_job.h"

#include "lab/lab.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 60000
#define POLL_MS 10

void backfill_job_init(struct backfill_job *job)
{
    lab_folder_make("backfill", job->directory, sizeof job->directory);
    if (job->redis.pid == 0) {
        redis_server_start(&job->redis, NULL);
    }
}

void backfill_job_done(struct backfill_job *job)
{
    if (job->pid > 0) {
        (void)kill(job->pid, SIGKILL);
        (void)waitpid(job->pid, NULL, 0);
        job->pid = 0;
    }
    redis_server_stop(&job->redis);
    lab_folder_remove(job->directory);
    free(job->text);
    job->text = NULL;
}

static void become(const struct backfill_job *job, const char *const *arguments, const char *log)
{
    char file[128];
    char at[128];
    int output = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(output, STDOUT_FILENO);
    (void)dup2(output, STDERR_FILENO);
    if (job->stop_at != NULL) {
        (void)snprintf(at, sizeof at, "FCAP_STOP_AT=%s", job->stop_at);
        (void)snprintf(file, sizeof file, "FCAP_STOP_FILE=%s/proof", job->directory);
        (void)putenv(at);
        (void)putenv(file);
    }
    if (job->file_bytes_max > 0) {
        const struct rlimit limit = {job->file_bytes_max, job->file_bytes_max};
        (void)setrlimit(RLIMIT_FSIZE, &limit);
    }
    (void)execv(job->stop_at == NULL ? FCAPD_PROGRAM : FCAPD_POINTS_PROGRAM,
                (char *const *)(uintptr_t)arguments);
    _exit(127);
}

void backfill_job_start(struct backfill_job *job, struct live *live, uint16_t port)
{
    char config[128];
    char log[96];
    char redis[64];
    (void)snprintf(config, sizeof config, "%s/fcapd.yaml", live->process.directory);
    (void)snprintf(log, sizeof log, "%s/log", job->directory);
    (void)snprintf(redis, sizeof redis, "redis.port=%u", port == 0 ? job->redis.port : port);
    const char *arguments[16 + BACKFILL_JOB_ARGUMENTS] = {"fcapd",    "backfill", "-c", config,
                                                          "--no-tty", "--set",    redis};
    size_t count = 7;
    for (size_t i = 0; i < BACKFILL_JOB_ARGUMENTS && job->arguments[i] != NULL; i++) {
        arguments[count++] = job->arguments[i];
    }
    job->pid = fork();
    assert_true(job->pid >= 0);
    if (job->pid == 0) {
        become(job, arguments, log);
    }
}

static const char *read_text(struct backfill_job *job)
{
    char path[96];
    (void)snprintf(path, sizeof path, "%s/log", job->directory);
    free(job->text);
    job->text = calloc(1, 65536);
    assert_non_null(job->text);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        (void)fread(job->text, 1, 65535, file); /* All that is there. */
        (void)fclose(file);
    }
    return job->text;
}

void backfill_job_await_stop(struct backfill_job *job)
{
    int status = 0;
    int64_t deadline_ms = lab_monotonic_ms() + WAIT_MS;
    while (waitpid(job->pid, &status, WUNTRACED | WNOHANG) == 0) {
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("%s was not reached:\n%s", job->stop_at, read_text(job));
        }
        lab_pause_ms(POLL_MS);
    }
    if (!WIFSTOPPED(status)) {
        job->pid = 0;
        fail_msg("%s: ended with %d:\n%s", job->stop_at, status, read_text(job));
    }
    char path[96];
    char line[64] = "";
    char wanted[64];
    (void)snprintf(path, sizeof path, "%s/proof", job->directory);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    (void)fclose(file);
    (void)snprintf(wanted, sizeof wanted, "%s\n", job->stop_at);
    *strchr(wanted, ':') = ' ';
    assert_string_equal(line, wanted);
}

void backfill_job_continue(struct backfill_job *job, int signal)
{
    if (signal != 0) {
        assert_int_equal(kill(job->pid, signal), 0);
    }
    assert_int_equal(kill(job->pid, SIGCONT), 0);
}

void backfill_job_await_text(struct backfill_job *job, const char *text)
{
    int64_t deadline_ms = lab_monotonic_ms() + WAIT_MS;
    while (strstr(read_text(job), text) == NULL) {
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("it never said \"%s\":\n%s", text, job->text);
        }
        lab_pause_ms(POLL_MS);
    }
}

void backfill_job_ends(struct backfill_job *job, int code)
{
    int status = 0;
    int64_t deadline_ms = lab_monotonic_ms() + WAIT_MS;
    while (waitpid(job->pid, &status, WNOHANG) == 0) {
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("it does not end:\n%s", read_text(job));
        }
        lab_pause_ms(POLL_MS);
    }
    job->pid = 0;
    (void)read_text(job);
    int found = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    if (found != code) {
        fail_msg("exit code %d instead of %d:\n%s", found, code, job->text);
    }
}

static const char *find(const struct backfill_job *job, const char *text)
{
    const char *at = strstr(job->text, text);
    if (at == NULL) {
        fail_msg("no \"%s\" in:\n%s", text, job->text);
    }
    return at;
}

static bool is_part(char character)
{
    return (character >= '0' && character <= '9') || character == ',';
}

static int64_t number_at(const char *at)
{
    int64_t number = 0;
    for (; is_part(*at); at++) {
        number = *at == ',' ? number : number * 10 + (*at - '0');
    }
    return number;
}

int64_t backfill_job_behind(const struct backfill_job *job, const char *text)
{
    return number_at(find(job, text) + strlen(text));
}

int64_t backfill_job_before(const struct backfill_job *job, const char *text)
{
    const char *at = find(job, text);
    while (at > job->text && is_part(at[-1])) {
        at--;
    }
    return number_at(at);
}
