#include "reporter.h"

#include "compose.h"
#include "fcap/ads.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/log.h"
#include "readiness.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STACK_BYTES ((size_t)1024 * 1024)
#define TICK_MS     50
#define META_TOKEN  1   /* the others name owners */
#define IDENTITY_MS 500 /* sooner than the workers, so that few reports are about another Redis */

struct fcap_reporter {
    const struct fcap_config *config;
    struct fcap_board *board;
    struct fcap_worker_view *views;
    struct fcap_compose_room room;
    struct fcap_sink *sink;
    struct fcap_buffer key;
    struct fcap_buffer value;
    struct fcap_buffer owner_key;
    struct fcap_buffer owner_value;
    size_t owners_next; /* of the tasks of `views`: those before are named in this report */
    pthread_t thread;
    int64_t end_ms; /* atomic; 0: go on; else when to give up on the last report */
    uint64_t sent;
    uint64_t answered;
};

/* --- the text --- */

static void put_number(struct fcap_buffer *buffer, const char *name, int64_t value)
{
    fcap_buffer_put_text(buffer, name);
    fcap_buffer_put_decimal(buffer, value);
}

static void put_task(const struct fcap_config *config, const struct fcap_task_report *report,
                     struct fcap_buffer *buffer)
{
    uint32_t ready = report->ready_mask & report->projected_mask;
    const char *comma = "";
    int64_t since = report->complete_since_ms;
    fcap_buffer_put_text(buffer, "\"");
    fcap_buffer_put_decimal(buffer, report->partition);
    put_number(buffer, "\":{\"epoch\":", report->epoch);
    put_number(buffer, ",\"as_of\":", report->claimed_as_of_ms);
    put_number(buffer, ",\"next\":", report->claimed_next);
    put_number(buffer, ",\"complete_since\":", since == FCAP_TIME_NONE ? 0 : since);
    fcap_buffer_put_text(buffer, ",\"ready\":[");
    for (size_t i = 0; i < config->windows_count; i++) {
        if ((ready >> i & 1) != 0) {
            fcap_buffer_put_text(buffer, comma);
            fcap_buffer_put_text(buffer, "\"");
            fcap_buffer_put_text(buffer, config->windows[i].name);
            fcap_buffer_put_text(buffer, "\"");
            comma = ",";
        }
    }
    fcap_buffer_put_text(buffer, "]");
    fcap_readiness_put_waiting(config, report, buffer);
    fcap_readiness_put_lost(&report->lost, buffer);
    fcap_buffer_put_text(buffer, "}");
}

void fcap_report_build(const struct fcap_config *config, const struct fcap_worker_view *views,
                       size_t view_count, int64_t at_ms, struct fcap_buffer *buffer)
{
    int32_t partitions = 0;
    const char *comma = "";
    for (size_t i = 0; i < view_count; i++) {
        int32_t seen = views[i].source.topic_partitions;
        partitions = seen > partitions ? seen : partitions;
    }
    put_number(buffer, "{\"v\":1,\"at\":", at_ms);
    put_number(buffer, ",\"partitions\":", partitions);
    fcap_buffer_put_text(buffer, ",\"tasks\":{");
    for (size_t i = 0; i < view_count; i++) {
        for (size_t k = 0; k < views[i].task_count; k++) {
            const struct fcap_task_report *report = &views[i].tasks[k].report;
            if (report->gate_open && report->claimed_next >= 0) {
                fcap_buffer_put_text(buffer, comma);
                put_task(config, report, buffer);
                comma = ",";
            }
        }
    }
    fcap_buffer_put_text(buffer, "}}");
}

/* --- the thread --- */

static void on_ack(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    struct fcap_reporter *reporter = context;
    (void)integer;
    reporter->answered++;
    if (result == FCAP_PUSH_REFUSED && token == META_TOKEN) {
        FCAP_WARN("Redis refuses fc:meta; readers cannot tell whether counts are complete");
    }
}

/* What a worker calls projected is so in the Redis that it has seen. This connection may have met
 * another one, or the same one emptied, a moment earlier. */
static void forget_other_redis(struct fcap_reporter *reporter, const struct fcap_sink_state *state)
{
    for (size_t i = 0; i < fcap_board_workers(reporter->board); i++) {
        struct fcap_worker_view *view = &reporter->views[i];
        bool is_same =
            memcmp(&view->sink.state.identity, &state->identity, sizeof state->identity) == 0;
        for (size_t k = 0; k < view->task_count && !is_same; k++) {
            view->tasks[k].report.projected_mask = 0;
        }
    }
}

/* True when it was handed over. A report that fails is not repeated: the next one is newer. */
static bool send_report(struct fcap_reporter *reporter, const struct fcap_sink_state *state)
{
    fcap_board_read(reporter->board, reporter->views);
    forget_other_redis(reporter, state);
    fcap_buffer_clear(&reporter->value);
    fcap_report_build(reporter->config, reporter->views, fcap_board_workers(reporter->board),
                      state->time_ms, &reporter->value);
    struct fcap_push push = {
        .kind = FCAP_PUSH_SET,
        .token = META_TOKEN,
        .key = fcap_buffer_bytes(&reporter->key),
        .value = fcap_buffer_bytes(&reporter->value),
        .expire_at_ms = state->time_ms + FCAP_REPORT_TTL_MS,
    };
    if (reporter->sink->ops->push(reporter->sink, &push) != FCAP_OK) {
        return false;
    }
    reporter->sent++;
    reporter->owners_next = 0;
    return true;
}

/* fc:epoch:<profile>:<partition>:owner: who looks for owners would have to walk over all keys of
 * the database to find fc:meta. */
static bool name_owner(struct fcap_reporter *reporter, const struct fcap_task_report *report,
                       int64_t expire_at_ms)
{
    struct fcap_buffer *key = &reporter->owner_key;
    struct fcap_buffer *value = &reporter->owner_value;
    fcap_buffer_clear(key);
    fcap_buffer_put_text(key, "fc:epoch:");
    fcap_buffer_put_text(key, reporter->config->profile);
    put_number(key, ":", report->partition);
    fcap_buffer_put_text(key, ":owner");
    fcap_buffer_clear(value);
    fcap_buffer_put_decimal(value, report->epoch);
    fcap_buffer_put_text(value, " ");
    fcap_buffer_put_text(value, reporter->config->instance);
    struct fcap_push push = {
        .kind = FCAP_PUSH_SET,
        .key = fcap_buffer_bytes(key),
        .value = fcap_buffer_bytes(value),
        .expire_at_ms = expire_at_ms,
    };
    if (reporter->sink->ops->push(reporter->sink, &push) != FCAP_OK) {
        return false;
    }
    reporter->sent++;
    return true;
}

/* Names this process as the owner of every partition whose gate is open in the views of the last
 * report. True: all are; else the rest follows, as soon as there is room. */
static bool name_owners(struct fcap_reporter *reporter, const struct fcap_sink_state *state)
{
    size_t at = 0;
    for (size_t i = 0; i < fcap_board_workers(reporter->board); i++) {
        const struct fcap_worker_view *view = &reporter->views[i];
        for (size_t k = 0; k < view->task_count; k++, at++) {
            const struct fcap_task_report *report = &view->tasks[k].report;
            if (at < reporter->owners_next) {
                continue;
            }
            if (report->gate_open &&
                !name_owner(reporter, report, state->time_ms + FCAP_REPORT_TTL_MS)) {
                return false;
            }
            reporter->owners_next++;
        }
    }
    return true;
}

/* Workers cannot know that only this connection is in trouble, or only this key is refused. */
static void publish(struct fcap_reporter *reporter)
{
    struct fcap_sink_redis_status status;
    fcap_sink_redis_status(reporter->sink, &status);
    fcap_board_publish_reporter(reporter->board, &status);
}

static void *report(void *context)
{
    struct fcap_reporter *reporter = context;
    const struct fcap_sink_handler handler = {reporter, on_ack};
    int64_t due_ms = 0;
    bool is_last_sent = false;
    bool are_named = true;
    fcap_log_thread("reporter");
    for (;;) {
        struct fcap_sink_state state;
        int64_t now_ms = fcap_clock_os_monotonic_ms();
        int64_t end_ms = __atomic_load_n(&reporter->end_ms, __ATOMIC_ACQUIRE);
        (void)reporter->sink->ops->poll(reporter->sink, &handler, TICK_MS); /* State tells. */
        reporter->sink->ops->state(reporter->sink, &state);
        publish(reporter);
        if (end_ms != 0 && (now_ms >= end_ms ||
                            (is_last_sent && are_named && reporter->answered == reporter->sent))) {
            return NULL;
        }
        bool is_due = end_ms != 0 ? !is_last_sent : now_ms >= due_ms;
        if (is_due && state.ready && state.time_known && send_report(reporter, &state)) {
            is_last_sent = end_ms != 0;
            due_ms = now_ms + FCAP_REPORT_EVERY_MS;
            are_named = name_owners(reporter, &state);
        } else if (!are_named && state.ready && state.time_known) {
            are_named = name_owners(reporter, &state);
        } else if (end_ms == 0) {
            nanosleep(&(struct timespec){.tv_nsec = TICK_MS * 1000000L}, NULL);
        }
    }
}

enum fcap_status fcap_reporter_open(const struct fcap_config *config, struct fcap_board *board,
                                    struct fcap_reporter **ret_reporter, struct fcap_error *error)
{
    struct fcap_sink_redis_settings settings;
    pthread_attr_t attributes;
    struct fcap_reporter *reporter = calloc(1, sizeof *reporter);
    FCAP_ASSERT(reporter != NULL);
    reporter->config = config;
    reporter->board = board;
    /* The number after the last worker's, so that nobody else has the connection's name. */
    fcap_compose_sink(config, (unsigned)config->workers, &reporter->room, &settings);
    settings.identity_interval_ms = IDENTITY_MS;
    enum fcap_status status = fcap_sink_redis_open(&settings, error, &reporter->sink);
    if (status != FCAP_OK) {
        free(reporter);
        return status;
    }
    reporter->views = fcap_board_views_open(board);
    fcap_buffer_put_text(&reporter->key, "fc:meta:");
    fcap_buffer_put_text(&reporter->key, config->profile);
    fcap_buffer_put_text(&reporter->key, ":");
    fcap_buffer_put_text(&reporter->key, config->instance);
    FCAP_ASSERT(pthread_attr_init(&attributes) == 0);
    FCAP_ASSERT(pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0);
    FCAP_ASSERT(pthread_create(&reporter->thread, &attributes, report, reporter) == 0);
    (void)pthread_attr_destroy(&attributes);
    *ret_reporter = reporter;
    return FCAP_OK;
}

void fcap_reporter_close(struct fcap_reporter *reporter, int wait_ms)
{
    if (reporter == NULL) {
        return;
    }
    __atomic_store_n(&reporter->end_ms, fcap_clock_os_monotonic_ms() + wait_ms, __ATOMIC_RELEASE);
    (void)pthread_join(reporter->thread, NULL); /* Joinable and not ourselves. */
    fcap_sink_redis_close(reporter->sink);
    fcap_board_views_close(reporter->board, reporter->views);
    fcap_buffer_done(&reporter->key);
    fcap_buffer_done(&reporter->value);
    fcap_buffer_done(&reporter->owner_key);
    fcap_buffer_done(&reporter->owner_value);
    free(reporter);
}
