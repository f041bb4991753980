/* `fcapd rebuild`: which daemon or state is meant, and a running daemon's progress. */
#include "rebuild.h"

#include "ask.h"
#include "fcap/log.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 200
#define SAY_MS  2000

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
    long partitions;
    long closed;
    unsigned long long users;
};

static struct left count_left(struct fcap_buffer *body)
{
    static const char users[] = "\"users\":";
    struct left left = {0};
    fcap_buffer_put_u8(body, 0);
    for (const char *at = (const char *)body->data; (at = strstr(at, "\"partition\":")) != NULL;) {
        at++;
        left.partitions++;
    }
    for (const char *at = (const char *)body->data; (at = strstr(at, "\"closed\"")) != NULL;) {
        at++;
        left.closed++;
    }
    for (const char *at = (const char *)body->data; (at = strstr(at, users)) != NULL;) {
        at += sizeof users - 1;
        left.users += strtoull(at, NULL, 10);
    }
    body->size--;
    return left;
}

static int complain(int code, enum fcap_status status, const struct fcap_error *error,
                    const struct fcap_buffer *body)
{
    if (status != FCAP_OK) {
        (void)fprintf(stderr,
                      "fcapd: the state is in use by a running daemon, which must be asked over "
                      "HTTP: %s\n",
                      error->text);
    } else {
        (void)fprintf(stderr, "fcapd: the daemon answers %d: %.*s%s", code, (int)body->size,
                      (const char *)body->data, body->size == 0 ? "\n" : "");
    }
    return FCAP_EXIT_TEMPORARY;
}

static void say_progress(const struct left *left, int64_t *said_ms, int64_t waited_ms)
{
    if (waited_ms - *said_ms < SAY_MS) {
        return;
    }
    *said_ms = waited_ms;
    (void)printf("%ld partitions are being written, %llu users so far%s\n", left->partitions,
                 left->users,
                 left->closed > 0 ? " (some wait for their gates to open; see /readyz)" : "");
    (void)fflush(stdout); /* For whoever watches; an error shows at the end. */
}

static int rebuild_running(const struct fcap_config *config, const char *user)
{
    struct fcap_buffer path = {0};
    struct fcap_buffer body = {0};
    struct fcap_error error;
    int code = 0;
    int64_t waited_ms = 0;
    int64_t said_ms = 0;
    int exit_code = FCAP_EXIT_OK;
    put_query(&path, "/rebuild", user);
    enum fcap_status status = fcap_ask_post(config, (const char *)path.data, &code, &body, &error);
    if (status != FCAP_OK || code != 202) {
        exit_code = complain(code, status, &error, &body);
        goto out;
    }
    struct left left = count_left(&body);
    (void)printf("begun: %.*s", (int)body.size, (const char *)body.data);
    while (left.partitions > 0) {
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL); /* Short: fine. */
        waited_ms += POLL_MS;
        fcap_buffer_clear(&body);
        status = fcap_ask(config, (const char *)path.data, &code, &body, &error);
        if (status == FCAP_OK && code == 503) {
            continue; /* A worker is busy, or waits for Redis. */
        }
        if (status != FCAP_OK || code != 200) {
            exit_code = complain(code, status, &error, &body);
            goto out;
        }
        left = count_left(&body);
        say_progress(&left, &said_ms, waited_ms);
    }
    (void)printf("done: Redis has acknowledged every value\n");
out:
    fcap_buffer_done(&path);
    fcap_buffer_done(&body);
    return exit_code;
}

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
    enum fcap_state_presence presence = fcap_state_look(&config);
    if (presence == FCAP_STATE_ABSENT) {
        (void)fprintf(stderr, "fcapd: state.directory %s: there is no state\n",
                      config.state.directory);
    } else if (arguments->is_verify) {
        result.exit_code = fcap_verify(&config, arguments->user, presence == FCAP_STATE_LOCKED);
    } else if (presence == FCAP_STATE_LOCKED) {
        result.exit_code = rebuild_running(&config, arguments->user);
    } else {
        result.exit_code = fcap_rebuild_stopped(&config, arguments->user);
    }
    fcap_config_done(&config);
    return result;
}
