#include "verify_source.h"

#include "daemon/compose.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/rebuild.h"
#include "owners.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_USERS   512
#define ANSWER_BYTES ((int64_t)8 * 1024 * 1024) /* about; of one request for users */

struct fcap_verify_source {
    const struct fcap_config *config;
    bool is_running;
    struct fcap_ask_patience patience;
    struct fcap_state state; /* of a stopped daemon */
    struct fcap_settings settings;
    struct fcap_pipeline *pipeline;
    int32_t *partitions; /* those that are ours */
    size_t count;
};

bool fcap_verify_source_is_running(const struct fcap_verify_source *source)
{
    return source->is_running;
}

/* --- a running daemon --- */

static void put_hex(struct fcap_buffer *path, struct fcap_bytes bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes.size; i++) {
        fcap_buffer_put_u8(path, (uint8_t)digits[bytes.data[i] >> 4]);
        fcap_buffer_put_u8(path, (uint8_t)digits[bytes.data[i] & 15]);
    }
}

static enum fcap_status ask(const struct fcap_verify_source *source, struct fcap_buffer *path,
                            struct fcap_buffer *blocks, struct fcap_error *error)
{
    struct fcap_buffer body = {0};
    int code = 0;
    fcap_buffer_put_u8(path, 0);
    enum fcap_status status = fcap_ask_patiently(source->config, (const char *)path->data,
                                                 source->patience, &code, &body, error);
    if (status == FCAP_OK && code != 200) {
        status = fcap_error_set(error, FCAP_REFUSED, "the daemon answers %d: %.*s", code,
                                (int)body.size, (const char *)body.data);
    } else if (status == FCAP_OK) {
        fcap_buffer_put_bytes(blocks, fcap_buffer_bytes(&body));
    }
    fcap_buffer_done(&body);
    return status;
}

/* --- a stopped one's state --- */

static void find_ours(struct fcap_verify_source *source, const struct fcap_owner_verdict *verdicts)
{
    source->partitions = calloc(source->state.count + 1, sizeof *source->partitions);
    FCAP_ASSERT(source->partitions != NULL);
    for (size_t i = 0; i < source->state.count; i++) {
        int32_t partition = source->state.partitions[i].partition;
        if (verdicts[i].is_ours) {
            source->partitions[source->count++] = partition;
        } else {
            (void)fprintf(stderr, "fcapd: partition %d is not compared: %s\n", partition,
                          verdicts[i].reason);
        }
    }
}

/* The state is loaded as by a daemon, at its own T, and nothing moves. */
static enum fcap_status load(struct fcap_verify_source *source, struct fcap_error *error)
{
    struct fcap_ports ports = {.clock = fcap_clock_os(), .store = source->state.store};
    struct fcap_memory_plan plan = fcap_memory_plan_make(source->config, 0);
    fcap_compose_core(source->config, &plan, &source->settings);
    source->settings.check_keyed = false;
    enum fcap_status status =
        fcap_pipeline_open(&source->settings, &ports, &source->pipeline, error);
    if (status != FCAP_OK) {
        return status;
    }
    const struct fcap_source_handler *handler = fcap_pipeline_handler(source->pipeline);
    for (size_t i = 0; i < source->count; i++) {
        struct fcap_start start;
        uint64_t assignment = i + 1;
        handler->assigned(handler->context, &source->partitions[i], &assignment, 1, &start);
    }
    const char *text = fcap_pipeline_error(source->pipeline);
    return text[0] == '\0' ? FCAP_OK : fcap_error_set(error, FCAP_CORRUPT, "%s", text);
}

static enum fcap_status open_stopped(struct fcap_verify_source *source,
                                     struct fcap_redis_client *client, struct fcap_error *error)
{
    enum fcap_status status = fcap_state_open(source->config, &source->state, error);
    if (status != FCAP_OK) {
        fcap_error_prefix(error, "state.directory");
        return status;
    }
    struct fcap_owner_verdict *verdicts = calloc(source->state.count + 1, sizeof *verdicts);
    FCAP_ASSERT(verdicts != NULL);
    status = fcap_owners_judge(source->config, client, &source->state, verdicts, error);
    if (status == FCAP_OK) {
        find_ours(source, verdicts);
        status = load(source, error);
    }
    free(verdicts);
    return status;
}

enum fcap_status fcap_verify_source_open(const struct fcap_config *config, bool is_running,
                                         struct fcap_ask_patience patience,
                                         struct fcap_redis_client *client,
                                         struct fcap_verify_source **ret_source,
                                         struct fcap_error *error)
{
    struct fcap_verify_source *source = calloc(1, sizeof *source);
    FCAP_ASSERT(source != NULL);
    source->config = config;
    source->is_running = is_running;
    source->patience = patience;
    enum fcap_status status = is_running ? FCAP_OK : open_stopped(source, client, error);
    if (status != FCAP_OK) {
        fcap_verify_source_close(source);
        return status;
    }
    *ret_source = source;
    return FCAP_OK;
}

void fcap_verify_source_close(struct fcap_verify_source *source)
{
    if (source != NULL) {
        fcap_pipeline_close(source->pipeline);
        if (!source->is_running) {
            fcap_state_close(&source->state);
        }
        free(source->partitions);
        free(source);
    }
}

/* --- both --- */

enum fcap_status fcap_verify_source_parts(struct fcap_verify_source *source,
                                          struct fcap_buffer *blocks, struct fcap_error *error)
{
    struct fcap_buffer path = {0};
    enum fcap_status status = FCAP_OK;
    if (source->is_running) {
        fcap_buffer_put_text(&path, "/values");
        status = ask(source, &path, blocks, error);
    }
    for (size_t i = 0; i < source->count; i++) {
        (void)fcap_pipeline_values_user(source->pipeline, source->partitions[i], FCAP_BYTES_NONE,
                                        blocks); /* It is there. */
    }
    fcap_buffer_done(&path);
    return status;
}

enum fcap_status fcap_verify_source_page(struct fcap_verify_source *source, int32_t partition,
                                         struct fcap_bytes after, struct fcap_buffer *blocks,
                                         struct fcap_error *error)
{
    struct fcap_buffer path = {0};
    enum fcap_status status = FCAP_OK;
    if (source->is_running) {
        fcap_buffer_put_text(&path, "/values?partition=");
        fcap_buffer_put_decimal(&path, partition);
        fcap_buffer_put_text(&path, "&after=");
        put_hex(&path, after);
        status = ask(source, &path, blocks, error);
    } else {
        (void)fcap_pipeline_values(source->pipeline, partition, after, PAGE_USERS, blocks);
        const char *text = fcap_pipeline_error(source->pipeline);
        status = text[0] == '\0' ? FCAP_OK : fcap_error_set(error, FCAP_IO, "%s", text);
    }
    fcap_buffer_done(&path);
    return status;
}

/* So many users' values are a few MiB, however large they may be. */
static size_t users_max(const struct fcap_config *config)
{
    int64_t user_bytes = config->limits.value_bytes * (int64_t)config->windows_count;
    return user_bytes >= ANSWER_BYTES ? 1 : (size_t)(ANSWER_BYTES / user_bytes);
}

/* Some users at a time, from a running daemon. */
static enum fcap_status ask_for_users(const struct fcap_verify_source *source,
                                      struct fcap_bytes users, struct fcap_buffer *blocks,
                                      struct fcap_error *error)
{
    struct fcap_buffer path = {0};
    struct fcap_reader reader = fcap_reader_of(users);
    enum fcap_status status = FCAP_OK;
    while (fcap_reader_left(&reader) > 0 && status == FCAP_OK) {
        const uint8_t *first = reader.at;
        for (size_t i = 0; i < users_max(source->config) && fcap_reader_left(&reader) > 0; i++) {
            (void)fcap_reader_take(&reader, fcap_reader_be16(&reader));
        }
        fcap_buffer_clear(&path);
        fcap_buffer_put_text(&path, "/values?users=");
        put_hex(&path, (struct fcap_bytes){first, (size_t)(reader.at - first)});
        status = ask(source, &path, blocks, error);
    }
    fcap_buffer_done(&path);
    return status;
}

enum fcap_status fcap_verify_source_users(struct fcap_verify_source *source,
                                          struct fcap_bytes users, struct fcap_buffer *blocks,
                                          struct fcap_error *error)
{
    struct fcap_reader reader = fcap_reader_of(users);
    if (source->is_running) {
        return ask_for_users(source, users, blocks, error);
    }
    while (fcap_reader_left(&reader) > 0) {
        struct fcap_bytes user = fcap_reader_take(&reader, fcap_reader_be16(&reader));
        for (size_t i = 0; i < source->count; i++) {
            (void)fcap_pipeline_values_user(source->pipeline, source->partitions[i], user,
                                            blocks); /* Perhaps another partition's. */
        }
    }
    return FCAP_OK;
}
