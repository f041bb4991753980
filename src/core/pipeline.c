#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHTS   65536 /* pushes without an answer, at most */
#define MARK_MS   200   /* how old a claim to readers may become */
#define EVICT_MAX 65536 /* cache slots looked at in one step */
#define MUCH      100   /* records and pushes of one step from which waiting pays */

void fcap_settings_default(struct fcap_settings *settings)
{
    *settings = (struct fcap_settings){
        .future_skew_ms = 300000,
        .seek_slack_ms = 60000,
        .producer_refresh_ms = 300000,
        .start = FCAP_START_TIME,
        .check_keyed = true,
        .commit_interval_ms = 1000,
        .commit_events = 100000,
        .commit_defer = 32,
        .cache_bytes = 256u << 20,
        .ads_per_user = 1000,
        .value_bytes = 65536,
        .slice_ms = 1000,
        .session_timeout_ms = 45000,
        .records_per_step = 4000,
        .work_per_step = 20000,
        .push_backlog_max = 50000,
        .expiry_hold_ms = 100,
    };
}

enum fcap_status core_fail(struct fcap_pipeline *pipeline, enum fcap_status status,
                           const char *what)
{
    if (pipeline->failure == FCAP_OK) {
        pipeline->failure = fcap_status_class(status) == FCAP_CLASS_FATAL ? status : FCAP_IO;
        (void)fcap_error_set(&pipeline->error, status, "%s: %s", what, fcap_status_text(status));
    }
    return pipeline->failure;
}

/* --- the source's handler --- */

static void on_assigned(void *context, const int32_t *partitions, const uint64_t *assignments,
                        size_t count, struct fcap_start *ret_starts)
{
    struct fcap_pipeline *pipeline = context;
    for (size_t i = 0; i < count; i++) {
        ret_starts[i] = (struct fcap_start){.kind = FCAP_START_EARLIEST};
        if (pipeline->failure == FCAP_OK && partitions[i] > FCAP_PARTITION_MAX) {
            (void)core_fail(pipeline, FCAP_LIMIT, "take a partition: its number exceeds 65,534");
        }
        if (pipeline->failure == FCAP_OK) {
            /* A failure is kept, and ends the worker at the end of this step. */
            (void)task_open(pipeline, partitions[i], assignments[i], &ret_starts[i]);
            core_alive(pipeline);
        }
    }
}

int64_t core_latest_ms(const struct fcap_pipeline *pipeline)
{
    return pipeline->sink_state.time_ms > pipeline->wall_ms ? pipeline->sink_state.time_ms
                                                            : pipeline->wall_ms;
}

static void on_started(void *context, const struct fcap_started *started)
{
    struct fcap_pipeline *pipeline = context;
    struct fcap_task *task = task_find(pipeline, started->partition);
    if (task == NULL) {
        return;
    }
    bool is_first = !task->started; /* A gap in the middle of reading is told once more. */
    task->started = true;
    task->start_offset = started->offset;
    task->log_start = started->log_start;
    task->end_offset = started->end;
    growth_started(task, started->partition_count);
    if (!task->has_state && is_first) {
        log_begin(task, started);
        begin_replay_started(task);
    }
    growth_raise(task);
    gate_reached(task, started->offset);
}

static bool on_record(void *context, const struct fcap_record *record)
{
    return apply_record(context, record);
}

static void on_reached_end(void *context, int32_t partition, int64_t offset)
{
    struct fcap_task *task = task_find(context, partition);
    if (task == NULL) {
        return;
    }
    begin_replay_end(task);
    gate_reached(task, offset);
    if (task->started && offset > task->meta.next_offset) {
        /* Behind the last record stand markers and aborted records, which are never delivered. */
        task->meta.next_offset = offset;
        task->pipeline->changed = true;
    }
}

static struct fcap_start on_gap(void *context, const struct fcap_gap *gap)
{
    return log_gap(context, gap);
}

static void on_position(void *context, int32_t partition, struct fcap_start *ret_start)
{
    const struct fcap_task *task = task_find(context, partition);
    *ret_start = (struct fcap_start){.kind = FCAP_START_OFFSET};
    if (task != NULL) {
        log_position(task, ret_start);
    }
}

static void on_counted(void *context, int32_t partition_count)
{
    growth_see(context, partition_count);
}

static void on_revoked(void *context, const int32_t *partitions, size_t count, bool lost)
{
    struct fcap_pipeline *pipeline = context;
    FCAP_POINT(partition_leaving);
    /* When the process is about to end and has waited in vain, waiting again would only keep it
     * from leaving in time. */
    if (!lost && pipeline->failure == FCAP_OK && !pipeline->gave_up) {
        int64_t now_ms = pipeline->ports.clock->monotonic_ms(pipeline->ports.clock);
        int64_t patience_ms = pipeline->settings.session_timeout_ms / 3;
        patience_ms = patience_ms > 5000 ? 5000 : patience_ms;
        enum fcap_status status = fcap_pipeline_drain(pipeline, now_ms + patience_ms);
        (void)status; /* What is not written by then is discarded; the next owner reads it again. */
    }
    FCAP_POINT(partition_drained);
    for (size_t i = 0; i < count; i++) {
        struct fcap_task *task = task_find(pipeline, partitions[i]);
        if (task != NULL) {
            task_drop(pipeline, task);
        }
    }
    FCAP_POINT(partition_dropped);
}

/* --- life --- */

static enum fcap_status check_settings(const struct fcap_settings *settings,
                                       struct fcap_error *ret_error)
{
    if (settings->window_count == 0 || settings->window_count > FCAP_WINDOWS_MAX) {
        return fcap_error_set(ret_error, FCAP_CONFIG, "windows: 1 to %d are possible",
                              FCAP_WINDOWS_MAX);
    }
    for (size_t i = 0; i < settings->window_count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (settings->windows[i].length_ms == settings->windows[j].length_ms ||
                strcmp(settings->windows[i].name, settings->windows[j].name) == 0) {
                return fcap_error_set(ret_error, FCAP_CONFIG,
                                      "windows: %s and %s have the same length or name",
                                      settings->windows[j].name, settings->windows[i].name);
            }
        }
        if (settings->windows[i].length_ms <= 0 || settings->windows[i].name[0] == '\0') {
            return fcap_error_set(ret_error, FCAP_CONFIG, "windows: a name and a length are due");
        }
    }
    return FCAP_OK;
}

enum fcap_status fcap_pipeline_open(const struct fcap_settings *settings,
                                    const struct fcap_ports *ports,
                                    struct fcap_pipeline **ret_pipeline,
                                    struct fcap_error *ret_error)
{
    struct fcap_key_template key_template;
    enum fcap_status status = check_settings(settings, ret_error);
    if (status != FCAP_OK) {
        return status;
    }
    status =
        fcap_key_template_init(&key_template, settings->key_pattern, settings->profile, ret_error);
    if (status != FCAP_OK) {
        fcap_key_template_done(&key_template);
        return status;
    }
    struct fcap_pipeline *pipeline = calloc(1, sizeof *pipeline);
    FCAP_ASSERT(pipeline != NULL);
    pipeline->settings = *settings;
    if (pipeline->settings.commit_defer > DEFER_MAX) {
        pipeline->settings.commit_defer = DEFER_MAX;
    }
    int64_t hold_max_ms = shortest_configured(settings) / 32;
    pipeline->hold_ms =
        settings->expiry_hold_ms < hold_max_ms ? settings->expiry_hold_ms : hold_max_ms;
    pipeline->ports = *ports;
    pipeline->key_template = key_template;
    pipeline->source_handler = (struct fcap_source_handler){
        pipeline,       on_assigned, on_started,  on_revoked, on_record,
        on_reached_end, on_gap,      on_position, on_counted, NULL};
    pipeline->sink_handler = (struct fcap_sink_handler){pipeline, push_acked};
    fcap_cache_init(&pipeline->cache, settings->cache_bytes, settings->window_count);
    pipeline->marks = calloc(MARKS_MAX, sizeof *pipeline->marks);
    pipeline->flights = calloc(FLIGHTS, sizeof *pipeline->flights);
    FCAP_ASSERT(pipeline->marks != NULL && pipeline->flights != NULL);
    pipeline->flight_capacity = FLIGHTS;
    pipeline->mark_open = 1;
    pipeline->round = 1;
    pipeline->growth.moved_until_ms = FCAP_TIME_NONE;
    *ret_pipeline = pipeline;
    return FCAP_OK;
}

void fcap_pipeline_close(struct fcap_pipeline *pipeline)
{
    if (pipeline == NULL) {
        return;
    }
    while (pipeline->tasks != NULL) {
        task_drop(pipeline, pipeline->tasks);
    }
    const struct fcap_batch *batch = NULL;
    enum fcap_status result;
    for (size_t i = 0; i < COMMITS_MAX; i++) {
        while (i < pipeline->commit_count && pipeline->commits[i].submitted) {
            /* Borrowed by the store until it gives it back. */
            (void)pipeline->ports.store->ops->completed(pipeline->ports.store, 1000, &batch,
                                                        &result);
            pipeline->commits[i].submitted = batch == NULL;
        }
        commit_done(&pipeline->commits[i]);
    }
    fcap_cache_done(&pipeline->cache);
    for (size_t i = 0; i < MARKS_MAX; i++) {
        free(pipeline->marks[i].claims);
    }
    free(pipeline->marks);
    free(pipeline->flights);
    fcap_key_template_done(&pipeline->key_template);
    fcap_buffer_done(&pipeline->letter.bytes);
    fcap_buffer_done(&pipeline->key);
    fcap_buffer_done(&pipeline->value);
    timeline_done(&pipeline->scratch);
    fcap_chunk_reader_done(&pipeline->chunk_reader);
    free(pipeline);
}

/* --- one step --- */

/* Why no records can be taken now, or NULL. */
static const char *find_stall(struct fcap_pipeline *pipeline)
{
    const struct fcap_settings *settings = &pipeline->settings;
    if (pipeline->draining) {
        return "draining";
    }
    if (pipeline->doubt_until_ms != 0) {
        return "a user stands in two partitions: have some been added?";
    }
    if (!apply_held_letter(pipeline)) {
        return "the dead-letter topic takes nothing";
    }
    if (!pipeline->sink_state.ready) {
        return "Redis is away";
    }
    if (pipeline->open_count >= settings->commit_events * 2) {
        return "commits wait";
    }
    if (push_waiting(pipeline) > settings->push_backlog_max) {
        return "values wait to be sent";
    }
    if (fcap_cache_user_bytes(&pipeline->cache) >
        settings->cache_bytes + settings->cache_bytes / 4) {
        return "the record cache is full of changes";
    }
    return NULL;
}

static enum fcap_status serve_source(struct fcap_pipeline *pipeline, int wait_ms)
{
    pipeline->stall = find_stall(pipeline);
    pipeline->backpressure = pipeline->stall != NULL;
    FCAP_COUNT(pipeline->counters.backpressure_steps, pipeline->backpressure);
    if (pipeline->draining) {
        return FCAP_OK; /* Draining happens inside the source's own call. */
    }
    pipeline->records_left = pipeline->backpressure ? 0 : pipeline->settings.records_per_step;
    struct fcap_source_budget budget = {pipeline->records_left, wait_ms};
    enum fcap_status status = pipeline->ports.source->ops->poll(pipeline->ports.source,
                                                                &pipeline->source_handler, budget);
    if (fcap_status_class(status) == FCAP_CLASS_FATAL) {
        return core_fail(pipeline, status, "read from Kafka");
    }
    return pipeline->failure;
}

/* False while changes pile up that can neither be sent nor written: T then waits, and expiries
 * are late rather than memory unbounded. */
static bool has_room(const struct fcap_pipeline *pipeline)
{
    const struct fcap_settings *settings = &pipeline->settings;
    return push_waiting(pipeline) <= settings->push_backlog_max &&
           fcap_cache_user_bytes(&pipeline->cache) <=
               settings->cache_bytes + settings->cache_bytes / 8;
}

static enum fcap_status move_tasks(struct fcap_pipeline *pipeline)
{
    pipeline->left_over = !has_room(pipeline);
    pipeline->timers_read = 0;
    for (struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        /* A share for each: one that catches up must not keep the others' T from moving, nor a
         * window that is being built its own. */
        size_t share = pipeline->settings.work_per_step / pipeline->task_count + 1;
        enum fcap_status status = FCAP_OK;
        if (has_room(pipeline)) {
            pipeline->work_left = share;
            status = build_task(task);
            pipeline->left_over = pipeline->left_over || pipeline->work_left == 0;
            pipeline->work_left = share;
            status = status == FCAP_OK ? expire_task(task) : status;
        }
        status = status == FCAP_OK ? gate_step(task) : status;
        if (status != FCAP_OK) {
            return status;
        }
    }
    return FCAP_OK;
}

static void read_sink(struct fcap_pipeline *pipeline)
{
    pipeline->ports.sink->ops->state(pipeline->ports.sink, &pipeline->sink_state);
    gate_meet_redis(pipeline);
}

static void serve_sink(struct fcap_pipeline *pipeline, int wait_ms)
{
    struct fcap_sink *sink = pipeline->ports.sink;
    /* RETRY is information: the state says whether the sink is ready. */
    (void)sink->ops->poll(sink, &pipeline->sink_handler, wait_ms);
    read_sink(pipeline);
}

/* Time stands still within a step. */
static void read_clocks(struct fcap_pipeline *pipeline)
{
    pipeline->wall_ms = pipeline->ports.clock->wall_ms(pipeline->ports.clock);
    pipeline->monotonic_ms = pipeline->ports.clock->monotonic_ms(pipeline->ports.clock);
    read_sink(pipeline);
}

static bool has_flights(const struct fcap_pipeline *pipeline)
{
    return pipeline->flight_next != pipeline->flight_first;
}

/* How long the source may wait for records: not while answers are due, and hardly while something
 * else is under way. */
static int source_patience_ms(const struct fcap_pipeline *pipeline, int wait_ms)
{
    if (has_flights(pipeline)) {
        return 0;
    }
    bool busy = push_waiting(pipeline) > 0 || pipeline->commit_count > 0;
    return busy && wait_ms > 1 ? 1 : wait_ms;
}

/* --- where the CPU time goes --- */

static void stages_begin(struct fcap_pipeline *pipeline)
{
    bool is_measured =
        pipeline->settings.cpu_ns != NULL && pipeline->counters.steps % FCAP_STAGE_EVERY == 0;
    pipeline->stage_ns = is_measured ? pipeline->settings.cpu_ns() : 0;
}

static void stage_end(struct fcap_pipeline *pipeline, enum fcap_stage stage)
{
    if (pipeline->stage_ns != 0) {
        int64_t now_ns = pipeline->settings.cpu_ns();
        FCAP_COUNT(pipeline->delays.stage_cpu_ns[stage],
                   (now_ns - pipeline->stage_ns) * FCAP_STAGE_EVERY);
        pipeline->stage_ns = now_ns;
    }
}

static enum fcap_status project_and_commit(struct fcap_pipeline *pipeline, int wait_ms)
{
    enum fcap_status status = move_tasks(pipeline);
    stage_end(pipeline, FCAP_STAGE_expire);
    if (status != FCAP_OK) {
        return status;
    }
    push_send(pipeline);
    stage_end(pipeline, FCAP_STAGE_push);
    bool took_records =
        pipeline->records_left < pipeline->settings.records_per_step && !pipeline->backpressure;
    serve_sink(pipeline, has_flights(pipeline) && !took_records && wait_ms > 0 ? 1 : 0);
    if (pipeline->monotonic_ms - pipeline->mark_opened_ms >= MARK_MS &&
        pipeline->mark_open - pipeline->mark_done < MARKS_MAX / 2) {
        push_close_mark(pipeline);
    }
    push_settle_marks(pipeline);
    status = gate_answered(pipeline);
    stage_end(pipeline, FCAP_STAGE_redis);
    status = status == FCAP_OK ? commit_step(pipeline, 0) : status;
    fcap_cache_evict(&pipeline->cache, EVICT_MAX);
    stage_end(pipeline, FCAP_STAGE_commit);
    return status;
}

enum fcap_status fcap_pipeline_step(struct fcap_pipeline *pipeline, int wait_ms)
{
    if (pipeline->failure != FCAP_OK) {
        return pipeline->failure;
    }
    FCAP_COUNT(pipeline->counters.steps, 1);
    pipeline->gave_up = false;
    pipeline->records_left = 0;
    pipeline->flight_before = pipeline->flight_next;
    stages_begin(pipeline);
    read_clocks(pipeline);
    if (!pipeline->sink_state.time_known) {
        /* Without Redis TIME nothing may be counted: T cannot be placed. Not even a group is
         * joined. */
        pipeline->stall = "Redis has not been reached yet";
        serve_sink(pipeline, wait_ms);
        return FCAP_OK;
    }
    enum fcap_status status = serve_source(pipeline, source_patience_ms(pipeline, wait_ms));
    stage_end(pipeline, FCAP_STAGE_read);
    if (status != FCAP_OK) {
        return status;
    }
    read_clocks(pipeline);
    status = keyed_doubt(pipeline);
    return status == FCAP_OK ? project_and_commit(pipeline, wait_ms) : status;
}

bool fcap_pipeline_may_linger(const struct fcap_pipeline *pipeline)
{
    if (pipeline->failure != FCAP_OK || pipeline->backpressure || pipeline->left_over ||
        pipeline->records_left == 0 || !pipeline->sink_state.ready || push_waiting(pipeline) > 0) {
        return false;
    }
    for (const struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        if (!task->gate_open || task->full.active) {
            return false;
        }
    }
    size_t records = pipeline->settings.records_per_step - pipeline->records_left;
    return records + (pipeline->flight_next - pipeline->flight_before) >= MUCH;
}

void fcap_pipeline_settle(struct fcap_pipeline *pipeline)
{
    if (has_flights(pipeline)) {
        pipeline->stage_ns = pipeline->stage_ns != 0 ? pipeline->settings.cpu_ns() : 0;
        serve_sink(pipeline, 0);
        stage_end(pipeline, FCAP_STAGE_redis);
    }
}

static bool is_drained(const struct fcap_pipeline *pipeline)
{
    if (pipeline->commit_count > 0 || pipeline->dirty_count > 0 || pipeline->open_count > 0 ||
        pipeline->changed || pipeline->letter.active) {
        return false;
    }
    return push_waiting(pipeline) + pipeline->held.count == 0;
}

enum fcap_status fcap_pipeline_drain(struct fcap_pipeline *pipeline, int64_t deadline_ms)
{
    enum fcap_status status = pipeline->failure;
    bool was_draining = pipeline->draining;
    pipeline->draining = true; /* T stands still: what is to be written does not grow. */
    while (status == FCAP_OK && pipeline->task_count > 0) {
        read_clocks(pipeline);
        if (is_drained(pipeline)) {
            break;
        }
        if (pipeline->monotonic_ms >= deadline_ms) {
            status = FCAP_TIMEOUT;
            break;
        }
        (void)apply_held_letter(pipeline); /* `letter.active` tells. */
        push_send(pipeline);
        serve_sink(pipeline, 1);
        push_settle_marks(pipeline);
        pipeline->flush_all = pipeline->flush_all || pipeline->dirty_count > 0 ||
                              pipeline->open_count > 0 || pipeline->changed;
        status = commit_step(pipeline, pipeline->commit_count > 0 ? 1 : 0);
    }
    pipeline->draining = was_draining;
    pipeline->gave_up = status == FCAP_TIMEOUT;
    return status;
}

/* --- looking in --- */

const struct fcap_source_handler *fcap_pipeline_handler(struct fcap_pipeline *pipeline)
{
    return &pipeline->source_handler;
}

const char *fcap_pipeline_error(const struct fcap_pipeline *pipeline)
{
    return pipeline->error.text;
}

const struct fcap_counters *fcap_pipeline_counters(const struct fcap_pipeline *pipeline)
{
    return &pipeline->counters;
}

const struct fcap_delays *fcap_pipeline_delays(const struct fcap_pipeline *pipeline)
{
    return &pipeline->delays;
}

static void fill_report(struct fcap_task *task, struct fcap_task_report *report)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    *report = (struct fcap_task_report){
        .partition = task->partition,
        .gate_open = task->gate_open,
        .projecting = gate_projects(task),
        .replayed = task->replay.by_time.kind != FCAP_START_OFFSET,
        .epoch = task->epoch,
        .claimed_next = task->gate_open ? task->claimed_next : NO_OFFSET,
        .claimed_as_of_ms = task->claimed_as_of_ms,
        .next_offset = task->meta.next_offset,
        .committed_offset = task->committed_offset,
        .end_offset = task->end_offset,
        .clock_ms = task->meta.clock_ms,
        .clock_lag_ms = pipeline->wall_ms - task->meta.clock_ms,
        .clock_held = task->clock_held,
        .history_ms = task->meta.history_ms,
        .complete_since_ms = task->meta.complete_since_ms,
        .ads = task->ads.count,
        .open_events = task->open_count,
        .commit = task->open_commit - 1,
        .start_untrusted = task->start_untrusted,
        .gaps = task->gaps,
        .last_gap = task->last_gap,
        .lost = task->lost,
    };
    for (size_t i = 0; i < task->meta.window_count; i++) {
        report->ready_at_ms[i] = task_window_ready_at(task, i);
        if (task_window_ready(task, i)) {
            report->ready_mask |= 1u << i;
        }
    }
    report->projected_mask = task->gate_open ? gate_windows_projected(task) : 0;
}

void fcap_pipeline_report(struct fcap_pipeline *pipeline,
                          void (*visitor)(void *context, const struct fcap_task_report *report),
                          void *context)
{
    for (struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        struct fcap_task_report report;
        fill_report(task, &report);
        visitor(context, &report);
    }
}

void fcap_pipeline_sizes(const struct fcap_pipeline *pipeline,
                         struct fcap_pipeline_sizes *ret_sizes)
{
    *ret_sizes = (struct fcap_pipeline_sizes){
        .cache_bytes = pipeline->cache.bytes,
        .cache_users = pipeline->cache.count,
        .dirty_users = pipeline->dirty_count,
        .push_backlog = push_waiting(pipeline) + pipeline->held.count,
        .flights = (size_t)(pipeline->flight_next - pipeline->flight_first),
        .commits_in_flight = pipeline->commit_count,
        .open_events = pipeline->open_count,
        .tasks = pipeline->task_count,
        .backpressure = pipeline->backpressure,
        .stall = pipeline->stall,
    };
    for (const struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        ret_sizes->ads_bytes += task->ads.bytes;
    }
}
