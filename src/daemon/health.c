#include "health.h"

#include "changes.h"
#include "fcap/ads.h"
#include "readiness.h"

#include <stdarg.h>
#include <stdio.h>

/* The reasons, as a JSON list of strings. */
struct reasons {
    struct fcap_buffer *body;
    size_t count;
};

static void put_string(struct fcap_buffer *body, const char *text)
{
    fcap_buffer_put_text(body, "\"");
    fcap_json_escape(body, fcap_bytes_of(text));
    fcap_buffer_put_text(body, "\"");
}

static void add(struct reasons *reasons, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add(struct reasons *reasons, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments); /* Cutting a long detail is meant. */
    va_end(arguments);
    fcap_buffer_put_text(reasons->body, reasons->count == 0 ? "\n  " : ",\n  ");
    put_string(reasons->body, text);
    reasons->count++;
}

static const char *or_else(const char *text, const char *other)
{
    return text[0] == '\0' ? other : text;
}

static void judge_redis(struct reasons *reasons, const struct fcap_config *config, size_t worker,
                        const struct fcap_worker_view *view)
{
    const struct fcap_sink_redis_status *sink = &view->sink;
    bool is_socket = config->redis.socket != NULL;
    if (!sink->state.ready) {
        add(reasons, "worker %zu: Redis is away (%s %s): %s; %s", worker,
            is_socket ? "redis.socket" : "redis.host",
            is_socket ? config->redis.socket : config->redis.host,
            or_else(sink->error_text, "not connected yet"),
            fcap_sink_redis_error_cure(sink->error));
        for (size_t i = 0; i < FCAP_SINK_REDIS_NEED_COUNT; i++) {
            if ((sink->refused_needs >> i & 1) != 0) {
                add(reasons, "worker %zu: Redis refuses %s (%s); the promise it carries: %s",
                    worker, fcap_sink_redis_need_command((enum fcap_sink_redis_need)i),
                    sink->refused_text[i],
                    fcap_sink_redis_need_promise((enum fcap_sink_redis_need)i));
            }
        }
    } else if (sink->error != FCAP_SINK_REDIS_ERROR_NONE) {
        add(reasons, "worker %zu: Redis refuses writes (%s): %s; %s", worker,
            fcap_sink_redis_error_name(sink->error), sink->error_text,
            fcap_sink_redis_error_cure(sink->error));
    }
    if (fcap_changes_clock_off(view)) {
        add(reasons,
            "worker %zu: the wall clock is %lld ms off Redis TIME; synchronise the clocks of both "
            "machines (nothing expires early meanwhile)",
            worker, (long long)view->clock_offset_ms);
    }
}

static void judge_kafka(struct reasons *reasons, size_t worker, const struct fcap_worker_view *view)
{
    if (view->source.fenced) {
        add(reasons,
            "worker %zu: another member with the same instance id has taken over; give each "
            "instance its own kafka.instance_id",
            worker);
    } else if (fcap_changes_kafka_away(view)) {
        add(reasons, "worker %zu: Kafka: %s; see kafka.brokers and kafka.topic", worker,
            view->source.error);
    }
    if (view->letters.stuck_since_ms != 0) {
        add(reasons, "worker %zu: dead letters cannot be written: %s; see kafka.dead_letter.topic",
            worker, view->letters.error);
    }
    const char *stall = fcap_changes_stall(view);
    if (stall != NULL && view->sink.state.ready) {
        add(reasons, "worker %zu: no records are taken: %s", worker, stall);
    }
}

static void judge_task(struct reasons *reasons, const struct fcap_board_task *task)
{
    const struct fcap_task_report *report = &task->report;
    if (task->is_stuck != 0) {
        add(reasons,
            "partition %d: it is not fetched: %lld records wait behind offset %lld; it is assigned "
            "anew each kafka.stall_timeout; look at the broker that leads it",
            report->partition, (long long)task->lag, (long long)report->next_offset);
    }
    if (!report->gate_open) {
        const char *waits = report->next_offset < report->end_offset
                                ? "it reads what the log held at assignment"
                            : report->clock_held ? "its clock waits for Redis TIME"
                            : report->clock_lag_ms > FCAP_CLOCK_OFFSET_MS
                                ? "its clock catches up with the wall clock"
                                : "waits for its start offset, its epoch, or the first look at the "
                                  "other partitions";
        add(reasons,
            "partition %d: the gate to Redis is closed: %s (offset %lld of %lld, clock %lld ms "
            "behind)",
            report->partition, waits, (long long)report->next_offset, (long long)report->end_offset,
            (long long)report->clock_lag_ms);
    } else if (report->clock_held) {
        add(reasons,
            "partition %d: its clock is held %lld ms behind the wall clock because Redis TIME is "
            "behind; synchronise the clocks",
            report->partition, (long long)report->clock_lag_ms);
    }
}

static void judge_worker(struct reasons *reasons, const struct fcap_config *config,
                         const struct fcap_health_facts *facts, size_t worker,
                         const struct fcap_worker_view *view)
{
    if (view->published_ms != 0 && facts->now_ms - view->published_ms > FCAP_READY_STALE_MS) {
        add(reasons,
            "worker %zu has said nothing for %lld ms: it is busy with one long task or hangs",
            worker, (long long)(facts->now_ms - view->published_ms));
    }
    if (view->phase != FCAP_WORKER_RUNNING && view->phase != FCAP_WORKER_WAITING) {
        add(reasons, "worker %zu is %s%s%s", worker, fcap_worker_phase_name(view->phase),
            view->error[0] == '\0' ? "" : ": ", view->error);
        return;
    }
    judge_redis(reasons, config, worker, view);
    judge_kafka(reasons, worker, view);
    if (view->held > 0) {
        add(reasons,
            "worker %zu: %u partitions wait for their state, which is looked for in "
            "checkpoint.directory",
            worker, view->held);
    }
    for (size_t i = 0; i < view->task_count; i++) {
        judge_task(reasons, &view->tasks[i]);
    }
}

static void judge_store(struct reasons *reasons, const struct fcap_worker_view *views,
                        size_t view_count, const struct fcap_health_facts *facts)
{
    bool is_failing = facts->write_stopped || facts->sync_failing;
    if (!facts->is_state_open && facts->restore_bytes > 0) {
        add(reasons,
            "the state is being restored from checkpoint.directory: %llu of %llu bytes are read",
            (unsigned long long)facts->restored_bytes, (unsigned long long)facts->restore_bytes);
    } else if (!facts->is_state_open) {
        add(reasons, "the state is being opened (its log is replayed): state.directory");
    }
    for (size_t i = 0; i < view_count; i++) {
        is_failing = is_failing || views[i].commit_failing_since_ms != 0;
    }
    if (!is_failing && facts->write_waits_ms > FCAP_WRITE_HANGS_MS) {
        add(reasons,
            "the state takes no commits: a write has not come back for %lld ms; look at the disk "
            "under state.directory",
            (long long)facts->write_waits_ms);
    }
    if (is_failing) {
        add(reasons,
            "the state takes no commits: %s; look at the disk under state.directory (space, "
            "read-only, errors)",
            or_else(facts->last_store_error, "RocksDB has stopped writes"));
    }
}

/* Readers go by fc:meta: without it they must not believe that an absent key is a zero. */
static void judge_reporter(struct reasons *reasons, const struct fcap_health_facts *facts)
{
    const struct fcap_sink_redis_status *sink = facts->reporter;
    if (sink != NULL && sink->error != FCAP_SINK_REDIS_ERROR_NONE &&
        facts->now_ms - sink->error_since_ms >= FCAP_STALL_MS) {
        add(reasons, "fc:meta cannot be written (%s): %s; %s",
            fcap_sink_redis_error_name(sink->error), or_else(sink->error_text, "no connection"),
            fcap_sink_redis_error_cure(sink->error));
    }
}

/* --- the body --- */

static void put_windows(const struct fcap_config *config, const struct fcap_task_report *report,
                        struct fcap_buffer *body)
{
    fcap_buffer_put_text(body, ",\"windows\":{");
    for (size_t i = 0; i < config->windows_count; i++) {
        bool is_ready = (report->ready_mask >> i & 1) != 0;
        bool is_projected = (report->projected_mask >> i & 1) != 0;
        fcap_buffer_put_text(body, i == 0 ? "" : ",");
        put_string(body, config->windows[i].name);
        fcap_buffer_put_text(body, is_ready && is_projected ? ":\"complete\""
                                   : is_ready               ? ":\"being projected\""
                                   : is_projected ? ":\"in Redis, but history is missing\""
                                                  : ":\"history is not complete yet\"");
    }
    fcap_buffer_put_text(body, "}");
    fcap_readiness_put_waiting(config, report, body);
    fcap_readiness_put_lost(&report->lost, body);
    fcap_buffer_put_text(body, "}");
}

static void put_task(const struct fcap_config *config, const struct fcap_board_task *task,
                     struct fcap_buffer *body)
{
    const struct fcap_task_report *report = &task->report;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"{\"partition\":", report->partition},
        {",\"epoch\":", report->epoch},
        {",\"next\":", report->next_offset},
        {",\"committed\":", report->committed_offset},
        {",\"end_at_assignment\":", report->end_offset},
        {",\"lag\":", task->lag},
        {",\"gaps\":", (int64_t)report->gaps},
        {",\"clock_lag_ms\":", report->clock_lag_ms},
        {",\"complete_since\":",
         report->complete_since_ms == FCAP_TIME_NONE ? 0 : report->complete_since_ms},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        fcap_buffer_put_text(body, numbers[i].name);
        fcap_buffer_put_decimal(body, numbers[i].value);
    }
    fcap_buffer_put_text(body, report->gate_open ? ",\"gate\":\"open\"" : ",\"gate\":\"closed\"");
    put_windows(config, report, body);
}

/* Promises that are not kept, also when redis.degraded: allow goes on without them. */
static void put_broken_promises(const struct fcap_sink_redis_status *sink, struct fcap_buffer *body)
{
    const char *comma = "";
    fcap_buffer_put_text(body, ",\"redis_refuses\":[");
    for (unsigned i = 0; i < FCAP_SINK_REDIS_NEED_COUNT; i++) {
        enum fcap_sink_redis_need need = (enum fcap_sink_redis_need)i;
        if ((sink->refused_needs >> i & 1) != 0) {
            fcap_buffer_put_text(body, comma);
            fcap_buffer_put_text(body, "{\"command\":");
            put_string(body, fcap_sink_redis_need_command(need));
            fcap_buffer_put_text(body, ",\"promise\":");
            put_string(body, fcap_sink_redis_need_promise(need));
            fcap_buffer_put_text(body, "}");
            comma = ",";
        }
    }
    fcap_buffer_put_text(body, sink->evicts ? "],\"redis_evicts\":true" : "]");
}

static void put_worker(const struct fcap_config *config, const struct fcap_worker_view *view,
                       struct fcap_buffer *body)
{
    fcap_buffer_put_text(body, "{\"phase\":");
    put_string(body, fcap_worker_phase_name(view->phase));
    fcap_buffer_put_text(body, view->sink.state.ready ? ",\"redis\":true" : ",\"redis\":false");
    put_broken_promises(&view->sink, body);
    fcap_buffer_put_text(body, ",\"clock_offset_ms\":");
    fcap_buffer_put_decimal(body, view->clock_offset_ms);
    fcap_buffer_put_text(body, ",\"tasks\":[");
    for (size_t i = 0; i < view->task_count; i++) {
        fcap_buffer_put_text(body, i == 0 ? "\n    " : ",\n    ");
        put_task(config, &view->tasks[i], body);
    }
    fcap_buffer_put_text(body, "]}");
}

bool fcap_health_ready(const struct fcap_config *config, const struct fcap_worker_view *views,
                       size_t view_count, const struct fcap_health_facts *facts,
                       struct fcap_buffer *body)
{
    struct fcap_buffer list = {0};
    struct reasons reasons = {&list, 0};
    size_t tasks = 0;
    for (size_t i = 0; i < view_count; i++) {
        judge_worker(&reasons, config, facts, i, &views[i]);
        tasks += views[i].task_count + views[i].held;
    }
    if (tasks == 0) {
        add(&reasons,
            "no partition is assigned yet: the group has not settled, there are more members than "
            "partitions, or kafka.topic does not exist");
    }
    judge_store(&reasons, views, view_count, facts);
    judge_reporter(&reasons, facts);
    fcap_buffer_put_text(body, reasons.count == 0 ? "{\"ready\":true,\"reasons\":["
                                                  : "{\"ready\":false,\"reasons\":[");
    fcap_buffer_put_bytes(body, fcap_buffer_bytes(&list));
    fcap_buffer_put_text(body, "],\n \"windows\":");
    fcap_readiness_put_windows(config, views, view_count, body);
    fcap_readiness_put_retention(config, facts->retention_ms, body);
    if (facts->source < FCAP_STATE_SOURCES) {
        fcap_buffer_put_text(body, ",\n \"state_source\":");
        put_string(body, fcap_state_source_name(facts->source));
    }
    if (facts->checkpoints != NULL) {
        fcap_buffer_put_text(body, ",\n \"checkpoints\":");
        put_string(body, facts->checkpoints);
    }
    fcap_buffer_put_text(body, ",\n \"workers\":[");
    for (size_t i = 0; i < view_count; i++) {
        fcap_buffer_put_text(body, i == 0 ? "\n  " : ",\n  ");
        put_worker(config, &views[i], body);
    }
    fcap_buffer_put_text(body, "]}\n");
    fcap_buffer_done(&list);
    return reasons.count == 0;
}

bool fcap_health_live(const struct fcap_board *board, const struct fcap_worker_view *views,
                      int64_t now_ms, struct fcap_buffer *body)
{
    bool is_live = true;
    for (size_t i = 0; i < fcap_board_workers(board); i++) {
        int64_t still_ms = now_ms - fcap_board_beat_ms(board, i);
        if (views[i].phase > FCAP_WORKER_STARTING && views[i].phase < FCAP_WORKER_ENDED &&
            still_ms > FCAP_LIVE_STILL_MS) {
            char text[96];
            (void)snprintf(text, sizeof text, "worker %zu has stood still for %lld ms\n", i,
                           (long long)still_ms);
            fcap_buffer_put_text(body, text);
            is_live = false;
        }
    }
    if (is_live) {
        fcap_buffer_put_text(body, "alive\n");
    }
    return is_live;
}
