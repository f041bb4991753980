/* `fcapd savepoint`: a running daemon is asked for one; of a stopped one's state it is taken here.
 */
#include "commands.h"

#include "ask.h"
#include "daemon/compose.h"
#include "fcap/clock_os.h"
#include "fcap/log.h"
#include "fcap/savepoint.h"
#include "state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 200

static void tell_progress(void *context, uint64_t bytes, uint64_t bytes_all)
{
    fcap_progress_at(context, "copying and reading back", fcap_clock_os_monotonic_ms(), bytes,
                     bytes_all, "bytes", NULL);
}

/* --- a stopped daemon's state --- */

static enum fcap_status take(const struct fcap_config *config, const char *to,
                             struct fcap_progress *progress, struct fcap_savepoint_report *report,
                             struct fcap_error *error)
{
    struct fcap_store_settings store;
    struct fcap_store_rocksdb *db = NULL;
    struct fcap_objects *objects = NULL;
    struct fcap_checkpoint_state_rocksdb state;
    struct fcap_memory_plan plan = fcap_memory_plan_make(config, 0);
    const struct fcap_savepoint_settings settings = {.profile = config->profile,
                                                     .instance = config->instance,
                                                     .clock = fcap_clock_os(),
                                                     .progress = tell_progress,
                                                     .context = progress};
    fcap_compose_store(config, &plan, &store);
    enum fcap_status status = fcap_store_rocksdb_open(&store, &db, error);
    if (status != FCAP_OK) {
        return status;
    }
    fcap_checkpoint_state_rocksdb_init(&state, db, &store);
    status = fcap_objects_directory_open(to, false, &objects, error);
    if (status == FCAP_OK) {
        status = fcap_savepoint_take(&settings, objects, &state.state, report, error);
    }
    fcap_objects_directory_close(objects);
    fcap_checkpoint_state_done(&state.state);
    fcap_store_rocksdb_close(db);
    return status;
}

static int take_stopped(const struct fcap_config *config, const char *to,
                        struct fcap_progress *progress)
{
    struct fcap_savepoint_report report;
    struct fcap_error error = {""};
    enum fcap_status status = take(config, to, progress, &report, &error);
    fcap_progress_done(progress);
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd: savepoint: %s\n", error.text);
        return fcap_daemon_exit_code(status);
    }
    (void)printf("%s holds the state and was read back: %llu files, %llu bytes, %zu partitions\n",
                 to, (unsigned long long)report.files, (unsigned long long)report.bytes,
                 report.partition_count);
    return FCAP_EXIT_OK;
}

/* --- a running daemon --- */

static int complain(int code, enum fcap_status status, const struct fcap_error *error,
                    const struct fcap_buffer *body)
{
    if (status != FCAP_OK) {
        (void)fprintf(stderr,
                      "fcapd: savepoint: the state is in use by a running daemon, which must be "
                      "asked over HTTP, or by another command: %s\n",
                      error->text);
    } else {
        (void)fprintf(stderr, "fcapd: savepoint: the daemon answers %d: %.*s", code,
                      (int)body->size, (const char *)body->data);
    }
    return FCAP_EXIT_TEMPORARY;
}

static uint64_t number_of(const char *body, const char *name)
{
    const char *at = strstr(body, name);
    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

/* Until the daemon says that it is over; the last answer is left in `body`, with a NUL. */
static enum fcap_status await(const struct fcap_config *config, struct fcap_progress *progress,
                              int *ret_code, struct fcap_buffer *body, struct fcap_error *error)
{
    for (;;) {
        fcap_buffer_clear(body);
        enum fcap_status status = fcap_ask(config, "/savepoint", ret_code, body, error);
        fcap_buffer_put_u8(body, 0);
        if (status != FCAP_OK || *ret_code != 200) {
            return status;
        }
        const char *text = (const char *)body->data;
        if (strstr(text, "{\"savepoint\":\"running\"") != text) {
            return FCAP_OK;
        }
        tell_progress(progress, number_of(text, "\"bytes_done\":"),
                      number_of(text, "\"bytes_all\":"));
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL); /* Short: fine. */
    }
}

static int take_running(const struct fcap_config *config, const char *to,
                        struct fcap_progress *progress)
{
    struct fcap_buffer path = {0};
    struct fcap_buffer body = {0};
    struct fcap_error error = {""};
    int code = 0;
    int exit_code = FCAP_EXIT_OK;
    fcap_buffer_put_text(&path, "/savepoint?to=");
    fcap_ask_escape(&path, to);
    fcap_buffer_put_u8(&path, 0);
    enum fcap_status status = fcap_ask_post(config, (const char *)path.data, &code, &body, &error);
    if (status != FCAP_OK || code != 202) {
        exit_code = complain(code, status, &error, &body);
    } else {
        status = await(config, progress, &code, &body, &error);
        fcap_progress_done(progress);
        const char *text = (const char *)body.data;
        if (status != FCAP_OK || code != 200) {
            exit_code = complain(code, status, &error, &body);
        } else if (strstr(text, "{\"savepoint\":\"done\"") != text) {
            (void)fprintf(stderr, "fcapd: savepoint: the daemon could not take it: %s", text);
            exit_code = FCAP_EXIT_TEMPORARY;
        } else {
            (void)printf("%s holds the state and was read back: %llu files, %llu bytes, %llu "
                         "partitions\n",
                         to, (unsigned long long)number_of(text, "\"files\":"),
                         (unsigned long long)number_of(text, "\"bytes\":"),
                         (unsigned long long)number_of(text, "\"partitions\":"));
        }
    }
    fcap_buffer_done(&path);
    fcap_buffer_done(&body);
    return exit_code;
}

struct fcap_daemon_result fcap_command_savepoint(const struct fcap_arguments *arguments)
{
    struct fcap_daemon_result result = {FCAP_EXIT_USAGE, true};
    struct fcap_config config;
    struct fcap_progress progress;
    if (arguments->to == NULL) {
        (void)fprintf(stderr,
                      "fcapd: savepoint: --to DIR says where; it must be empty or absent\n");
        return result;
    }
    result.exit_code = FCAP_EXIT_CONFIG;
    if (!fcap_arguments_load(arguments, &config)) {
        return result;
    }
    fcap_log_init((struct fcap_log_settings){.level = FCAP_LOG_WARN, .descriptor = STDERR_FILENO});
    fcap_progress_init(&progress, "savepoint", stderr, !arguments->is_plain);
    switch (fcap_state_look(&config)) {
    case FCAP_STATE_ABSENT:
        (void)fprintf(stderr, "fcapd: state.directory %s: there is no state\n",
                      config.state.directory);
        break;
    case FCAP_STATE_LOCKED:
        result.exit_code = take_running(&config, arguments->to, &progress);
        break;
    case FCAP_STATE_STOPPED:
        result.exit_code = take_stopped(&config, arguments->to, &progress);
        break;
    }
    fcap_config_done(&config);
    return result;
}
