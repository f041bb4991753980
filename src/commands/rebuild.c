/* `fcapd rebuild`: which daemon or state is meant, and a running daemon's progress. */
#include "rebuild.h"

#include "ask.h"
#include "fcap/clock_os.h"
#include "fcap/log.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAME    "rebuild"
#define POLL_MS 200

/* --- a running daemon --- */

static void put_query(struct fcap_buffer *path, const char *page, const char *user)
{
    fcap_buffer_clear(path);
    fcap_buffer_put_text(path, page);
    if (user != NULL) {
        fcap_buffer_put_text(path, "?user=");
        fcap_ask_escape(path, user);
    }
    fcap_buffer_put_u8(path, 0);
}

/* What is left, summed over the partitions of an answer. */
struct left {
    uint64_t partitions;
    uint64_t closed;
    uint64_t users;
};

/* The next number behind `name`; NULL: there is none. */
static const char *next_number(const char *at, const char *name, uint64_t *ret_number)
{
    at = strstr(at, name);
    if (at != NULL) {
        at += strlen(name);
        *ret_number = strtoull(at, NULL, 10);
    }
    return at;
}

/* The body is ended by a NUL, which does not count. */
static struct left count_left(struct fcap_buffer *body)
{
    struct left left = {0};
    uint64_t number;
    fcap_buffer_put_u8(body, 0);
    body->size--;
    const char *text = (const char *)body->data;
    for (const char *at = text; (at = next_number(at, "\"partition\":", &number)) != NULL;) {
        left.partitions++;
    }
    for (const char *at = text; (at = strstr(at, "\"closed\"")) != NULL; at++) {
        left.closed++;
    }
    for (const char *at = text; (at = next_number(at, "\"users\":", &number)) != NULL;) {
        left.users += number;
    }
    return left;
}

static int complain(const char *what, int code, enum fcap_status status,
                    const struct fcap_error *error, const struct fcap_buffer *body)
{
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd: %s: %s\n", what, error->text);
    } else {
        (void)fprintf(stderr, "fcapd: the daemon answers %d: %.*s%s", code, (int)body->size,
                      (const char *)body->data, body->size == 0 ? "\n" : "");
    }
    return FCAP_EXIT_TEMPORARY;
}

static void show(const struct fcap_rebuild_job *job, const struct left *begun,
                 const struct left *left)
{
    char number[32];
    char note[128];
    uint64_t open = left->partitions < begun->partitions ? left->partitions : begun->partitions;
    const char *closed =
        left->closed > 0 ? ", some partitions wait for their gates to open; see /readyz" : "";
    if (job->user != NULL) {
        (void)snprintf(note, sizeof note, "the user awaits Redis%s", closed);
    } else {
        (void)snprintf(note, sizeof note, "%s users so far%s",
                       fcap_progress_number(left->users, number), closed);
    }
    fcap_progress_at(job->progress, "write", fcap_clock_os_monotonic_ms(), begun->partitions - open,
                     begun->partitions, "partitions", note);
}

/* Until nothing of it is left. */
static int await_running(const struct fcap_rebuild_job *job, const struct left *begun)
{
    struct fcap_buffer path = {0};
    struct fcap_buffer body = {0};
    struct fcap_error error;
    struct left left = *begun;
    int code = 0;
    int exit_code = FCAP_EXIT_OK;
    put_query(&path, "/rebuild", job->user);
    while (left.partitions > 0 && exit_code == FCAP_EXIT_OK) {
        show(job, begun, &left);
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL); /* Short: fine. */
        enum fcap_status status = fcap_ask_patiently(
            job->config, (const char *)path.data,
            (struct fcap_ask_patience){job->progress, job->patience_ms}, &code, &body, &error);
        if (status != FCAP_OK || code != 200) {
            fcap_progress_done(job->progress);
            exit_code = complain("the daemon has gone in the middle of it; run it again when it is "
                                 "back",
                                 code, status, &error, &body);
        } else {
            left = count_left(&body);
        }
    }
    fcap_progress_done(job->progress);
    fcap_buffer_done(&path);
    fcap_buffer_done(&body);
    return exit_code;
}

/* A partition that has gone has nothing left either. */
static int check_all_there(const struct fcap_rebuild_job *job, const char *begun)
{
    struct fcap_buffer body = {0};
    struct fcap_error error;
    uint64_t partition;
    int exit_code = FCAP_EXIT_OK;
    for (const char *at = begun; (at = next_number(at, "\"partition\":", &partition)) != NULL;) {
        char path[64];
        int code = 0;
        (void)snprintf(path, sizeof path, "/rebuild?partition=%llu", (unsigned long long)partition);
        enum fcap_status status = fcap_ask_patiently(
            job->config, path, (struct fcap_ask_patience){job->progress, job->patience_ms}, &code,
            &body, &error);
        if (status == FCAP_OK && code == 404) {
            (void)fprintf(stderr,
                          "fcapd: partition %llu has left the daemon in the middle of it; run it "
                          "again when somebody has it\n",
                          (unsigned long long)partition);
            exit_code = FCAP_EXIT_TEMPORARY;
        } else if (status != FCAP_OK || code != 200) {
            exit_code = complain("the daemon has gone; whether all was written is not known", code,
                                 status, &error, &body);
            break;
        }
    }
    fcap_buffer_done(&body);
    return exit_code;
}

static int rebuild_running(const struct fcap_rebuild_job *job)
{
    struct fcap_buffer path = {0};
    struct fcap_buffer body = {0};
    struct fcap_error error;
    int code = 0;
    int exit_code;
    put_query(&path, "/rebuild", job->user);
    enum fcap_status status =
        fcap_ask_post(job->config, (const char *)path.data, &code, &body, &error);
    if (status != FCAP_OK || code != 202) {
        exit_code = complain("the state is in use by a running daemon, which must be asked over "
                             "HTTP, or by another command",
                             code, status, &error, &body);
    } else {
        const struct left begun = count_left(&body);
        (void)printf("begun: %s", (const char *)body.data);
        (void)fflush(stdout); /* For whoever watches; an error shows at the end. */
        exit_code = await_running(job, &begun);
        if (exit_code == FCAP_EXIT_OK) {
            exit_code = check_all_there(job, (const char *)body.data);
        }
        if (exit_code == FCAP_EXIT_OK) {
            (void)printf("done: Redis has acknowledged every value of %llu partitions\n",
                         (unsigned long long)begun.partitions);
        }
    }
    fcap_buffer_done(&path);
    fcap_buffer_done(&body);
    return exit_code;
}

/* --- the command --- */

struct fcap_daemon_result fcap_command_rebuild(const struct fcap_arguments *arguments)
{
    struct fcap_daemon_result result = {FCAP_EXIT_CONFIG, true};
    struct fcap_config config;
    if (arguments->user != NULL && arguments->user[0] == '\0') {
        (void)fprintf(stderr, "fcapd: --user wants an id\n");
        result.exit_code = FCAP_EXIT_USAGE;
        return result;
    }
    if (!fcap_arguments_load(arguments, &config)) {
        return result;
    }
    fcap_log_init((struct fcap_log_settings){.level = FCAP_LOG_WARN, .descriptor = STDERR_FILENO});
    struct fcap_progress progress;
    fcap_progress_init(&progress, NAME, stderr, !arguments->is_plain);
    const struct fcap_rebuild_job job = {&config, arguments->user, &progress,
                                         arguments->patience_ms};
    enum fcap_state_presence presence = fcap_state_look(&config);
    if (presence == FCAP_STATE_ABSENT) {
        fcap_state_tell_absent(&config);
    } else if (arguments->is_verify) {
        result.exit_code = fcap_verify(&job, presence == FCAP_STATE_LOCKED);
    } else if (presence == FCAP_STATE_LOCKED) {
        result.exit_code = rebuild_running(&job);
    } else {
        result.exit_code = fcap_rebuild_stopped(&job);
    }
    fcap_config_done(&config);
    return result;
}
