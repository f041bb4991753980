#include "demo/supervisor.h"

#include "lab/kafka_broker.h"
#include "lab/lab.h"
#include "lab/redis_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PARENT_MAX                                                                                 \
    22 /* Longer ones, with our folder in them, are too long for lab_folder_make()                 \
        */
#define EPOCHS_MAX     64
#define OTHERS_PATTERN "fc:meta:*"

static void begin(struct demo_run *run)
{
    const char *parent = getenv("TMPDIR");
    if (parent != NULL && strlen(parent) > PARENT_MAX) {
        (void)unsetenv("TMPDIR");
    }
    run->traces =
        mmap(NULL, sizeof *run->traces, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lab_check(run->traces != MAP_FAILED);
    lab_folder_make("fcapd-demo", run->folder, sizeof run->folder);
    (void)setenv("TMPDIR", run->folder, 1);
    (void)snprintf(run->name, sizeof run->name, "fcapd-demo-%d-%" PRId64, (int)getpid(),
                   lab_wall_ms() % 1000000000);
}

/* --- the child ------------------------------------------------------------------------------- */

/* A group of its own: Ctrl-C reaches this process only, and one kill() reaches all of the demo. */
static pid_t start(const struct demo_options *options, const struct demo_run *run,
                   const sigset_t *old_mask,
                   int (*work)(const struct demo_options *options, const struct demo_run *run))
{
    pid_t parent = getpid();
    (void)fflush(NULL);
    pid_t child = fork();
    lab_check(child >= 0);
    if (child > 0) {
        (void)setpgid(child, child); /* Both do it: whoever comes first. */
        return child;
    }
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    (void)signal(SIGTTOU, SIG_IGN); /* We write to a terminal that belongs to the parent's group. */
    (void)sigprocmask(SIG_SETMASK, old_mask, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    int code = work(options, run);
    exit(code);
}

/* The child's exit code; *ret_signal: the signal that we were sent, 0: none. */
static int watch(pid_t child, const sigset_t *signals, int *ret_signal)
{
    int status = 0;
    *ret_signal = 0;
    for (;;) {
        int number = sigwaitinfo(signals, NULL);
        if (number > 0 && number != SIGCHLD) {
            *ret_signal = number;
            (void)kill(child, SIGKILL);
        }
        pid_t ended;
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
            if (ended != child) {
                continue; /* An orphan. */
            }
            if (WIFEXITED(status)) {
                return WEXITSTATUS(status);
            }
            if (*ret_signal == 0) {
                (void)fprintf(stderr, "fcapd demo: ended by signal %d\n", WTERMSIG(status));
            }
            return 1;
        }
    }
}

/* Orphans of the child are ours: see each of them end. */
static void end_group(pid_t child)
{
    (void)kill(-child, SIGKILL); /* ESRCH: nobody is left. */
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
    }
}

/* --- what is outside ------------------------------------------------------------------------- */

/* True when fc:id was there, so that it is not ours to delete. Ends when Redis does not answer. */
static bool look_at_redis(const struct demo_address *address, bool *ret_had_id)
{
    char error[256];
    struct redis_reader *reader =
        redis_reader_open(address->host, address->port, error, sizeof error);
    if (reader == NULL) {
        (void)fprintf(stderr, "fcapd demo: --redis %s:%u: %s\n", address->host, address->port,
                      error);
        return false;
    }
    *ret_had_id = redis_reader_text(reader, "fc:id") != NULL;
    redis_reader_close(reader);
    return true;
}

static void count_key(void *context, const char *key)
{
    (void)key;
    (*(size_t *)context)++;
}

static bool clean_redis(const struct demo_address *address, const struct demo_run *run, bool had_id)
{
    char text[256];
    size_t others = 0;
    struct redis_reader *reader =
        redis_reader_open(address->host, address->port, text, sizeof text);
    if (reader == NULL) {
        (void)fprintf(stderr, "fcapd demo: Redis %s:%u: %s; keys %s:* and fc:*:%s:* are left\n",
                      address->host, address->port, text, run->name, run->name);
        return false;
    }
    (void)snprintf(text, sizeof text, "%s:*", run->name);
    (void)redis_reader_remove(reader, text);
    (void)snprintf(text, sizeof text, "fc:meta:%s:one", run->name);
    redis_reader_unlink(reader, text);
    for (int i = 0; i < EPOCHS_MAX; i++) {
        (void)snprintf(text, sizeof text, "fc:epoch:%s:%d", run->name, i);
        redis_reader_unlink(reader, text);
        (void)snprintf(text, sizeof text, "fc:epoch:%s:%d:owner", run->name, i);
        redis_reader_unlink(reader, text);
    }
    /* All daemons share fc:id: without it they take the server for an empty one. */
    if (!had_id) {
        redis_reader_scan(reader, OTHERS_PATTERN, count_key, &others);
        if (others == 0) {
            redis_reader_unlink(reader, "fc:id");
        }
    }
    redis_reader_close(reader);
    return true;
}

static bool clean_kafka(const char *brokers, const struct demo_run *run)
{
    char why[256];
    if (kafka_try_delete_topic(brokers, run->name, why, sizeof why)) {
        return true;
    }
    (void)fprintf(stderr, "fcapd demo: Kafka %s: %s; the topic %s may be left\n", brokers, why,
                  run->name);
    return false;
}

int demo_supervise(const struct demo_options *options,
                   int (*work)(const struct demo_options *options, const struct demo_run *run))
{
    struct demo_run run = {0};
    sigset_t signals;
    sigset_t old_mask;
    int number = 0;
    bool had_id = false;
    bool is_clean = true;
    if (options->redis.port != 0 && !look_at_redis(&options->redis, &had_id)) {
        return 1;
    }
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGHUP);
    (void)sigaddset(&signals, SIGQUIT);
    (void)sigaddset(&signals, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &signals, &old_mask);
    (void)signal(SIGCHLD, SIG_DFL); /* Ignored, as by nohup's kin, nobody could be waited for. */
    (void)signal(SIGPIPE, SIG_IGN); /* Whoever reads what we say may be gone before we clean up. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    begin(&run);
    pid_t child = start(options, &run, &old_mask, work);
    int code = watch(child, &signals, &number);
    end_group(child);
    lab_folder_remove(run.folder);
    if (isatty(STDOUT_FILENO) != 0) {
        (void)fputs("\033[?7h\033[?25h", stdout); /* What the view has switched off. */
    }
    if (number != 0) {
        (void)fprintf(stderr, "\nfcapd demo: interrupted; all that it started is stopped\n");
        code = 128 + number;
    }
    (void)fflush(NULL);
    /* What follows may take its time: from here on a signal simply ends us. */
    (void)sigprocmask(SIG_SETMASK, &old_mask, NULL);
    if (run.traces->keys) {
        is_clean = clean_redis(&options->redis, &run, had_id);
    }
    if (run.traces->topic) {
        is_clean = clean_kafka(options->brokers, &run) && is_clean;
    }
    return is_clean || code != 0 ? code : 1;
}
