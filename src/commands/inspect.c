#include "commands.h"

#include "ask.h"
#include "daemon/compose.h"
#include "daemon/readiness.h"
#include "fcap/ads.h"
#include "fcap/clock_os.h"
#include "state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- a running daemon --- */

static int ask_running(const struct fcap_config *config, const struct fcap_arguments *arguments)
{
    struct fcap_buffer path = {0};
    struct fcap_buffer body = {0};
    struct fcap_error error;
    int code = 0;
    if (arguments->user != NULL) {
        fcap_buffer_put_text(&path, "/inspect?user=");
        fcap_ask_escape(&path, arguments->user);
        if (arguments->partition >= 0) {
            fcap_buffer_put_text(&path, "&partition=");
            fcap_buffer_put_decimal(&path, arguments->partition);
        }
    } else {
        fcap_buffer_put_text(&path, "/status");
    }
    fcap_buffer_put_u8(&path, 0);
    enum fcap_status status = fcap_ask(config, (const char *)path.data, &code, &body, &error);
    int exit_code = FCAP_EXIT_OK;
    if (status != FCAP_OK) {
        (void)fprintf(stderr,
                      "fcapd: the state is in use by a running daemon, which must be asked over "
                      "HTTP: %s\n",
                      error.text);
        exit_code = FCAP_EXIT_TEMPORARY;
    } else {
        (void)fwrite(body.data, 1, body.size, code == 200 ? stdout : stderr);
        exit_code = code == 200 ? FCAP_EXIT_OK : FCAP_EXIT_TEMPORARY;
    }
    fcap_buffer_done(&path);
    fcap_buffer_done(&body);
    return exit_code;
}

/* --- a stopped one --- */

static void print_time(const char *name, int64_t time_ms)
{
    if (time_ms == FCAP_TIME_NONE) {
        (void)printf(",\"%s\":0", name);
    } else {
        (void)printf(",\"%s\":%" PRId64, name, time_ms);
    }
}

static void print_window(const struct fcap_meta *meta, const struct fcap_window_meta *window)
{
    static const struct fcap_sink_identity none;
    int64_t ready_at = fcap_meta_ready_at(meta, window);
    bool is_ready = !window->building && ready_at <= meta->clock_ms;
    (void)printf("{\"name\":\"%s\",\"length_ms\":%" PRId64 ",\"ready\":%s", window->name,
                 window->length_ms, is_ready ? "true" : "false");
    if (!is_ready) {
        print_time("ready_at", ready_at);
    }
    (void)printf(",\"projected_to\":\"");
    if (memcmp(&window->projected_to, &none, sizeof none) != 0) {
        for (size_t i = 0; i < sizeof window->projected_to.bytes; i++) {
            (void)printf("%02x", window->projected_to.bytes[i]);
        }
    }
    (void)printf("\"}");
}

static void print_partition(const struct fcap_state_partition *partition)
{
    const struct fcap_meta *meta = &partition->meta;
    (void)printf("{\"partition\":%d,\"next\":%" PRId64, partition->partition, meta->next_offset);
    print_time("clock", meta->clock_ms);
    print_time("history", meta->history_ms);
    print_time("complete_since", meta->complete_since_ms);
    (void)printf(",\"commit\":%" PRIu64, meta->commit);
    if (meta->redo_from <= meta->commit) {
        (void)printf(",\"redo\":{\"from\":%" PRIu64 ",\"through\":%" PRIu64 "}", meta->redo_from,
                     meta->commit);
    }
    (void)printf(",\"bucket_ms\":%" PRId64 ",\"partition_count\":%u,\"windows\":[", meta->bucket_ms,
                 meta->partition_count);
    for (size_t i = 0; i < meta->window_count; i++) {
        (void)printf(i == 0 ? "" : ",");
        print_window(meta, &meta->windows[i]);
    }
    struct fcap_buffer lost = {0};
    fcap_readiness_put_lost(&partition->lost, &lost);
    fcap_buffer_put_u8(&lost, 0);
    (void)printf("]%s}", (const char *)lost.data);
    fcap_buffer_done(&lost);
}

/* The user's values as the engine itself would build them: a pipeline on the read-only state loads
 * the partition, and redoes in memory what the last commits have not written. Nothing else of the
 * pipeline is used: it has no source, sink or decoder. False: its text is the reason. */
static bool print_user(const struct fcap_config *config, const struct fcap_state *state,
                       int32_t partition, struct fcap_bytes user, bool *ret_failed)
{
    static const char no_counts[] = "\"counts\":{}";
    struct fcap_settings settings;
    struct fcap_error error;
    struct fcap_start start;
    struct fcap_pipeline *pipeline = NULL;
    struct fcap_buffer text = {0};
    struct fcap_memory_plan plan = fcap_memory_plan_make(config, 0);
    const uint64_t assignment = (uint64_t)partition + 1;
    bool counts = false;
    fcap_compose_core(config, &plan, &settings);
    struct fcap_ports ports = {.clock = fcap_clock_os(), .store = state->store};
    if (fcap_pipeline_open(&settings, &ports, &pipeline, &error) != FCAP_OK) {
        (void)fprintf(stderr, "fcapd: %s\n", error.text);
        *ret_failed = true;
        return false;
    }
    const struct fcap_source_handler *handler = fcap_pipeline_handler(pipeline);
    handler->assigned(handler->context, &partition, &assignment, 1, &start);
    for (size_t i = 0; i < settings.window_count; i++) {
        size_t before = text.size;
        fcap_buffer_put_text(&text, i == 0 ? "\"" : ",\"");
        fcap_buffer_put_text(&text, settings.windows[i].name);
        fcap_buffer_put_text(&text, "\":");
        if (!fcap_pipeline_inspect(pipeline, partition, user, i, &text)) {
            fcap_buffer_put_text(&text, "null");
        } else if (memmem(text.data + before, text.size - before, no_counts,
                          sizeof no_counts - 1) == NULL) {
            counts = true;
        }
    }
    if (fcap_pipeline_error(pipeline)[0] != '\0') {
        (void)fprintf(stderr, "fcapd: partition %d: %s\n", partition,
                      fcap_pipeline_error(pipeline));
        *ret_failed = true;
    } else if (counts) {
        (void)printf("{\"partition\":%d,\"windows\":{%.*s}}", partition, (int)text.size,
                     (const char *)text.data);
    }
    fcap_pipeline_close(pipeline);
    fcap_buffer_done(&text);
    return counts && !*ret_failed;
}

static int inspect_stopped(const struct fcap_config *config, const struct fcap_arguments *arguments)
{
    struct fcap_state state;
    struct fcap_error error;
    bool has_failed = false;
    bool is_first = true;
    enum fcap_status status = fcap_state_open(config, &state, &error);
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd: state.directory: %s\n", error.text);
        return fcap_daemon_exit_code(status);
    }
    (void)printf("{\"running\":false,\"partitions\":[");
    for (size_t i = 0; i < state.count; i++) {
        if (arguments->partition < 0 || arguments->partition == state.partitions[i].partition) {
            (void)printf(is_first ? "\n " : ",\n ");
            print_partition(&state.partitions[i]);
            is_first = false;
        }
    }
    (void)printf("]");
    if (arguments->user != NULL) {
        struct fcap_bytes user = fcap_bytes_of(arguments->user);
        is_first = true;
        (void)printf(",\n \"user\":[");
        for (size_t i = 0; i < state.count && !has_failed; i++) {
            const struct fcap_state_partition *partition = &state.partitions[i];
            bool is_meant =
                arguments->partition < 0 || arguments->partition == partition->partition;
            if (is_meant && fcap_state_may_know(&state, partition, user)) {
                (void)printf(is_first ? "\n " : ",\n ");
                is_first = !print_user(config, &state, partition->partition, user, &has_failed);
            }
        }
        (void)printf("]");
    }
    (void)printf("}\n");
    fcap_state_close(&state);
    return has_failed ? FCAP_EXIT_INTERNAL : FCAP_EXIT_OK;
}

struct fcap_daemon_result fcap_command_inspect(const struct fcap_arguments *arguments)
{
    struct fcap_daemon_result result = {FCAP_EXIT_CONFIG, true};
    struct fcap_config config;
    if (!fcap_arguments_load(arguments, &config)) {
        return result;
    }
    switch (fcap_state_look(&config)) {
    case FCAP_STATE_ABSENT:
        fcap_state_tell_absent(&config);
        result.exit_code = FCAP_EXIT_CONFIG;
        break;
    case FCAP_STATE_LOCKED:
        result.exit_code = ask_running(&config, arguments);
        break;
    default:
        result.exit_code = inspect_stopped(&config, arguments);
    }
    fcap_config_done(&config);
    return result;
}
