/* `fcapd savepoint`: a running daemon is asked for one; of a stopped one's state it is taken here.
 */
#include "commands.h"

#include "ask.h"
#include "daemon/compose.h"
#include "daemon/signals.h"
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

static bool is_stopped(void *context)
{
    (void)context;
    return fcap_signals_received() != 0;
}

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
                                                     .is_cancelled = is_stopped,
                                                     .context = progress};
    fcap_compose_store(config, &plan, &store);
    enum fcap_status status = fcap_store_rocksdb_open(&store, &db, error);
    if (status != FCAP_OK) {
        return status;
    }
    fcap_checkpoint_state_rocksdb_init(&state, db, &store);
    bool was_made = fcap_savepoint_place_is_made(to);
    status = fcap_savepoint_check_place(to, config->checkpoint.directory, error);
    if (status == FCAP_OK) {
        status = fcap_objects_directory_open(to, false, &objects, error);
    }
    if (status == FCAP_OK) {
        status = fcap_savepoint_take(&settings, objects, &state.state, report, error);
    }
    fcap_objects_directory_close(objects);
    if (status != FCAP_OK && !was_made) {
        fcap_savepoint_unmake_place(to, config->profile, config->instance);
    }
    fcap_checkpoint_state_done(&state.state);
    fcap_store_rocksdb_close(db);
    return status;
}

static int take_stopped(const struct fcap_config *config, const char *to,
                        struct fcap_progress *progress)
{
    struct fcap_savepoint_report report;
    struct fcap_error error = {""};
    fcap_signals_init();
    enum fcap_status status = take(config, to, progress, &report, &error);
    fcap_progress_done(progress);
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd: savepoint: %s\n", error.text);
        return status == FCAP_STOPPED ? FCAP_EXIT_TEMPORARY : fcap_daemon_exit_code(status);
    }
    (void)printf("%s holds the state and was read back: %llu files, %llu bytes, %zu partitions\n",
                 to, (unsigned long long)report.files, (unsigned long long)report.bytes,
                 report.partition_count);
    return FCAP_EXIT_OK;
}

/* --- a running daemon --- */

static int complain(const char *what, int code, enum fcap_status status,
                    const struct fcap_error *error, const struct fcap_buffer *body)
{
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd: savepoint: %s: %s\n", what, error->text);
        return fcap_daemon_exit_code(status);
    }
    (void)fprintf(stderr, "fcapd: savepoint: the daemon answers %d: %.*s%s", code, (int)body->size,
                  (const char *)body->data, body->size == 0 ? "\n" : "");
    /* Of what is refused only these pass by themselves. */
    return code == 409 || code >= 500 ? FCAP_EXIT_TEMPORARY : FCAP_EXIT_CONFIG;
}

static uint64_t number_of(const char *body, const char *name)
{
    const char *at = strstr(body, name);
    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

static void put_query(struct fcap_buffer *path, const char *name, const char *value)
{
    fcap_buffer_put_text(path, name);
    fcap_ask_escape(path, value);
}

/* Begins one; the answer is left in `body`, with a NUL. */
static enum fcap_status begin(const struct fcap_config *config, const char *to, int *ret_code,
                              struct fcap_buffer *body, struct fcap_error *error)
{
    struct fcap_buffer path = {0};
    put_query(&path, "/savepoint?to=", to);
    /* Another daemon than that of this configuration may listen there. */
    put_query(&path, "&profile=", config->profile);
    put_query(&path, "&instance=", config->instance);
    fcap_buffer_put_u8(&path, 0);
    enum fcap_status status = fcap_ask_post(config, (const char *)path.data, ret_code, body, error);
    fcap_buffer_put_u8(body, 0);
    body->size--; /* Behind it. */
    fcap_buffer_done(&path);
    return status;
}

/* Until the daemon says that it is over; the last answer is left in `body`, with a NUL. */
static enum fcap_status await(const struct fcap_config *config, uint64_t begun,
                              struct fcap_progress *progress, int *ret_code,
                              struct fcap_buffer *body, struct fcap_error *error)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/savepoint?begun=%llu",
                   (unsigned long long)begun); /* Fits. */
    for (;;) {
        fcap_buffer_clear(body);
        enum fcap_status status = fcap_ask(config, path, ret_code, body, error);
        fcap_buffer_put_u8(body, 0);
        body->size--; /* Behind it. */
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

/* Prints the value of a member that is a text. */
static void put_member(FILE *file, const char *body, const char *name)
{
    const char *at = strstr(body, name);
    for (at = at == NULL ? "" : at + strlen(name); *at != '\0' && *at != '"'; at++) {
        char digits[3] = "";
        if (*at == '\\' && at[1] == 'u' && strlen(at) >= 6) { /* Only ever \u00.. */
            memcpy(digits, at + 4, 2);
            (void)fputc((int)strtol(digits, NULL, 16), file);
            at += 5;
        } else {
            at += *at == '\\' && at[1] != '\0';
            (void)fputc(*at, file);
        }
    }
}

static int tell_end(const char *to, const char *text)
{
    if (strstr(text, "{\"savepoint\":\"done\"") == text) {
        (void)printf("%s holds the state and was read back: %llu files, %llu bytes, %llu "
                     "partitions\n",
                     to, (unsigned long long)number_of(text, "\"files\":"),
                     (unsigned long long)number_of(text, "\"bytes\":"),
                     (unsigned long long)number_of(text, "\"partitions\":"));
        return FCAP_EXIT_OK;
    }
    uint64_t exit_code = number_of(text, "\"exit_code\":");
    (void)fputs("fcapd: savepoint: the daemon could not take it: ", stderr);
    put_member(stderr, text, "\"error\":\"");
    (void)fputc('\n', stderr);
    return exit_code > 0 && exit_code < 128 ? (int)exit_code : FCAP_EXIT_TEMPORARY;
}

static int take_running(const struct fcap_config *config, const char *to,
                        struct fcap_progress *progress)
{
    struct fcap_buffer body = {0};
    struct fcap_error error = {""};
    int code = 0;
    int exit_code;
    enum fcap_status status = begin(config, to, &code, &body, &error);
    if (status != FCAP_OK || code != 202) {
        exit_code = complain("the state is in use by a running daemon, which must be asked over "
                             "HTTP, or by another command",
                             code, status, &error, &body);
    } else {
        uint64_t begun = number_of((const char *)body.data, "\"begun\":");
        status = await(config, begun, progress, &code, &body, &error);
        fcap_progress_done(progress);
        if (status == FCAP_OK && code == 200) {
            exit_code = tell_end(to, (const char *)body.data);
        } else {
            (void)complain("no answer any more", code, status, &error, &body);
            (void)fputs("fcapd: savepoint: it was begun, and how it ends is not known here; the "
                        "daemon's log tells, and so does fcapd restore --verify-only\n",
                        stderr);
            exit_code = FCAP_EXIT_TEMPORARY;
        }
    }
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
        fcap_state_tell_absent(&config);
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
