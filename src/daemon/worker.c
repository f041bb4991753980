#include "worker.h"

#include "changes.h"
#include "compose.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STACK_BYTES  ((size_t)4 * 1024 * 1024)
#define STEP_WAIT_MS 10
#define PUBLISH_MS   200
#define LINGER_US    20000 /* from the beginning of one step to that of the next, at most */
#define NAP_US       2000
#define LAG_STEPS    4 /* what may lie in Kafka while the next step waits, in full steps */

struct fcap_worker {
    struct fcap_worker_shared shared;
    size_t index;
    pthread_t thread;
    bool is_stopping; /* atomic */
    int64_t drain_deadline_ms;
    struct fcap_worker_result result;

    /* The rest belongs to the thread. */
    struct fcap_compose_room room;
    struct fcap_settings settings;
    struct fcap_sink *sink;
    struct fcap_source_kafka *source;
    struct fcap_adopting *adopting; /* around it, or NULL */
    struct fcap_dead_letters_kafka *letters;
    struct fcap_decoder *decoder;
    struct fcap_decoder *look_decoder; /* of the source's helper thread */
    struct fcap_hot_users hot;
    int64_t halved_ms;
    struct fcap_pipeline *pipeline;
    struct fcap_worker_view view;     /* being filled, then published */
    struct fcap_worker_view previous; /* as published last, for what changed */
    struct fcap_source_kafka_lag *lags;
    size_t lag_capacity;
};

static bool is_stopping(const struct fcap_worker *worker)
{
    return __atomic_load_n(&worker->is_stopping, __ATOMIC_ACQUIRE);
}

/* --- what it says about itself --- */

static void fill_lag(const struct fcap_worker *worker, size_t lags, struct fcap_board_task *task)
{
    for (size_t i = 0; i < lags; i++) {
        if (worker->lags[i].partition == task->report.partition) {
            task->lag = worker->lags[i].lag;
            task->is_stuck = worker->lags[i].is_stuck;
        }
    }
}

static size_t read_lags(struct fcap_worker *worker)
{
    size_t count = fcap_source_kafka_lags(worker->source, worker->lags, worker->lag_capacity);
    if (count > worker->lag_capacity) {
        free(worker->lags);
        worker->lags = calloc(count, sizeof *worker->lags);
        FCAP_ASSERT(worker->lags != NULL);
        worker->lag_capacity = count;
        count = fcap_source_kafka_lags(worker->source, worker->lags, worker->lag_capacity);
    }
    return count < worker->lag_capacity ? count : worker->lag_capacity;
}

static void add_task(void *context, const struct fcap_task_report *report)
{
    struct fcap_worker_view *view = context;
    fcap_worker_view_reserve(view, view->task_count + 1);
    view->tasks[view->task_count++] = (struct fcap_board_task){.report = *report, .lag = -1};
}

/* A stall is told when no step in between took records; single such steps are back-pressure at
 * work. */
static void fill_stall(struct fcap_worker *worker, uint64_t steps, uint64_t stalled)
{
    struct fcap_worker_view *view = &worker->view;
    bool took_none = steps > 0 && stalled == steps && view->sizes.stall != NULL;
    if (!took_none) {
        view->stall = NULL;
    } else if (view->stall == NULL) {
        view->stall_since_ms = view->published_ms;
        view->stall = view->sizes.stall;
    } else {
        view->stall = view->sizes.stall;
    }
}

static void fill_commits(struct fcap_worker *worker, const struct fcap_counters *before)
{
    struct fcap_worker_view *view = &worker->view;
    if (view->counters.commits != before->commits) {
        view->commit_failing_since_ms = 0;
    }
    if (view->counters.commits_failed != before->commits_failed &&
        view->commit_failing_since_ms == 0) {
        view->commit_failing_since_ms = view->published_ms;
        fcap_store_rocksdb_last_error(worker->shared.db, &view->store_error);
    }
}

static void fill_from_pipeline(struct fcap_worker *worker)
{
    struct fcap_worker_view *view = &worker->view;
    const struct fcap_counters before = view->counters;
    view->counters = *fcap_pipeline_counters(worker->pipeline);
    view->delays = *fcap_pipeline_delays(worker->pipeline);
    fcap_pipeline_sizes(worker->pipeline, &view->sizes);
    view->task_count = 0;
    fcap_pipeline_report(worker->pipeline, add_task, view);
    size_t lags = read_lags(worker);
    for (size_t i = 0; i < view->task_count; i++) {
        fill_lag(worker, lags, &view->tasks[i]);
    }
    fill_stall(worker, view->counters.steps - before.steps,
               view->counters.backpressure_steps - before.backpressure_steps);
    fill_commits(worker, &before);
}

static void publish(struct fcap_worker *worker)
{
    struct fcap_worker_view *view = &worker->view;
    int64_t now_ms = fcap_clock_os_monotonic_ms();
    view->published_ms = now_ms;
    if (worker->sink != NULL) {
        fcap_sink_redis_status(worker->sink, &view->sink);
        worker->sink->ops->state(worker->sink, &view->sink.state);
        view->time_known = view->sink.state.time_known;
        view->clock_offset_ms = fcap_clock_os_wall_ms() - view->sink.state.time_ms;
    }
    if (worker->source != NULL) {
        fcap_source_kafka_snapshot(worker->source, &view->source);
    }
    view->has_letters = worker->letters != NULL;
    if (worker->letters != NULL) {
        fcap_dead_letters_kafka_snapshot(worker->letters, &view->letters);
    }
    if (worker->pipeline != NULL) {
        fill_from_pipeline(worker);
    }
    view->held = worker->adopting == NULL ? 0 : (uint32_t)fcap_adopting_count(worker->adopting);
    if (now_ms - worker->halved_ms >= FCAP_HOT_USERS_HALVE_MS) {
        fcap_hot_users_halve(&worker->hot);
        worker->halved_ms = now_ms;
    }
    view->hot_count = worker->hot.count;
    memcpy(view->hot, worker->hot.users, worker->hot.count * sizeof view->hot[0]);
    fcap_changes_log(worker->shared.config, &worker->previous, view);
    fcap_worker_view_copy(&worker->previous, view);
    fcap_board_publish(worker->shared.board, worker->index, view);
}

static void enter(struct fcap_worker *worker, enum fcap_worker_phase phase)
{
    worker->view.phase = phase;
    fcap_board_beat(worker->shared.board, worker->index);
    publish(worker);
}

static enum fcap_status fail(struct fcap_worker *worker, enum fcap_status status, const char *text)
{
    size_t size = strlen(text);
    size = size < sizeof worker->view.error - 1 ? size : sizeof worker->view.error - 1;
    memcpy(worker->view.error, text, size);
    worker->view.error[size] = '\0';
    return status;
}

/* --- its parts --- */

static void ignore_ack(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    (void)context; /* Nothing has been pushed yet. */
    (void)token;
    (void)result;
    (void)integer;
}

/* Until Redis has told its time T cannot be placed, and a member that can do nothing only holds up
 * the group: it joins afterwards. */
static void wait_for_redis(struct fcap_worker *worker)
{
    const struct fcap_sink_handler handler = {NULL, ignore_ack};
    struct fcap_sink_state state = {0};
    enter(worker, FCAP_WORKER_WAITING);
    while (!is_stopping(worker)) {
        (void)worker->sink->ops->poll(worker->sink, &handler, STEP_WAIT_MS); /* State tells. */
        worker->sink->ops->state(worker->sink, &state);
        if (state.ready && state.time_known) {
            return;
        }
        fcap_board_beat(worker->shared.board, worker->index);
        if (fcap_clock_os_monotonic_ms() - worker->view.published_ms >= PUBLISH_MS) {
            publish(worker);
        }
        /* Poll returns at once while it backs off. */
        nanosleep(&(struct timespec){.tv_nsec = STEP_WAIT_MS * 1000000L}, NULL);
    }
}

/* librdkafka's own lines; its threads call this. */
static void log_kafka(void *context, int level, const char *text)
{
    const size_t *index = context;
    if (level <= 3) {
        FCAP_WARN("kafka (worker %zu): %s", *index, text);
    } else {
        FCAP_INFO("kafka (worker %zu): %s", *index, text);
    }
}

static enum fcap_status open_kafka(struct fcap_worker *worker, struct fcap_error *error)
{
    const struct fcap_config *config = worker->shared.config;
    struct fcap_dead_letters_kafka_settings letters;
    struct fcap_source_kafka_settings source;
    if (config->kafka.dead_letter_topic != NULL) {
        fcap_compose_letters(config, &worker->room, &letters);
        letters.log = log_kafka;
        letters.log_context = &worker->index;
        enum fcap_status status = fcap_dead_letters_kafka_open(&letters, &worker->letters, error);
        if (status != FCAP_OK) {
            return status;
        }
    }
    fcap_compose_source(config, &worker->shared.plan, (unsigned)worker->index, &worker->room,
                        &source);
    source.log = log_kafka;
    source.log_context = &worker->index;
    source.decoder = worker->look_decoder;
    return fcap_source_kafka_open(&source, &worker->source, error);
}

/* Partitions that are brought up to date after a crash can take minutes: that is no hang. */
static void beat(void *context)
{
    const struct fcap_worker *worker = context;
    fcap_board_beat(worker->shared.board, worker->index);
}

static enum fcap_status open_pipeline(struct fcap_worker *worker, struct fcap_error *error)
{
    fcap_compose_core(worker->shared.config, &worker->shared.plan, &worker->settings);
    worker->settings.replay_from_kafka = worker->shared.replay_from_kafka;
    worker->settings.keyed_slots = worker->shared.keyed_slots;
    worker->settings.keyed_look = worker->shared.keyed_look;
    worker->settings.alive = beat;
    worker->settings.alive_context = worker;
    worker->settings.cpu_ns = fcap_clock_os_thread_cpu_ns;
    worker->settings.step_clock_ms = fcap_clock_os_monotonic_ms;
    struct fcap_source *source = fcap_source_kafka_port(worker->source);
    struct fcap_store *store = fcap_store_rocksdb_handle(worker->shared.db);
    if (worker->shared.adopter != NULL) {
        worker->adopting = fcap_adopting_open(source, store, worker->shared.adopter);
        source = fcap_adopting_port(worker->adopting);
    }
    struct fcap_ports ports = {
        .clock = fcap_clock_os(),
        .decoder = &worker->hot.port,
        .source = source,
        .dead_letters =
            worker->letters == NULL ? NULL : fcap_dead_letters_kafka_port(worker->letters),
        .store = store,
        .sink = worker->sink,
    };
    return fcap_pipeline_open(&worker->settings, &ports, &worker->pipeline, error);
}

static enum fcap_status open_parts(struct fcap_worker *worker, struct fcap_error *error)
{
    const struct fcap_config *config = worker->shared.config;
    struct fcap_decode_settings decoder;
    struct fcap_sink_redis_settings sink;
    fcap_compose_decoder(config, &decoder);
    enum fcap_status status = fcap_decode_json_open(&decoder, &worker->decoder, error);
    if (status == FCAP_OK) {
        status = fcap_decode_json_open(&decoder, &worker->look_decoder, error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    fcap_hot_users_init(&worker->hot, worker->decoder);
    fcap_compose_sink(config, (unsigned)worker->index, &worker->room, &sink);
    status = fcap_sink_redis_open(&sink, error, &worker->sink);
    if (status != FCAP_OK) {
        return status;
    }
    wait_for_redis(worker);
    if (is_stopping(worker)) {
        return FCAP_OK;
    }
    status = open_kafka(worker, error);
    return status == FCAP_OK ? open_pipeline(worker, error) : status;
}

/* --- its life --- */

static int64_t monotonic_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* Cannot fail for this clock. */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* As it was known at the last publishing: a fifth of a second ago, or a few. */
static bool has_lag(const struct fcap_worker *worker)
{
    int64_t lag = 0;
    for (size_t i = 0; i < worker->view.task_count; i++) {
        lag += worker->view.tasks[i].lag > 0 ? worker->view.tasks[i].lag : 0;
    }
    return lag > (int64_t)worker->settings.records_per_step * LAG_STEPS;
}

/* What comes in the next moment goes out together (docs/decisions/0011). With a lag Kafka's queues
 * would stand full meanwhile. */
static void linger(struct fcap_worker *worker, int64_t begun_us)
{
    if (has_lag(worker)) {
        return;
    }
    while (fcap_pipeline_may_linger(worker->pipeline) && !is_stopping(worker)) {
        int64_t left_us = begun_us + LINGER_US - monotonic_us();
        if (left_us <= 0) {
            break;
        }
        struct timespec nap = {.tv_nsec = (left_us < NAP_US ? left_us : NAP_US) * 1000};
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL); /* Short is fine. */
        fcap_pipeline_settle(worker->pipeline);
    }
}

static enum fcap_status work(struct fcap_worker *worker)
{
    enter(worker, FCAP_WORKER_RUNNING);
    fcap_questions_join(worker->shared.questions, worker->index);
    enum fcap_status status = FCAP_OK;
    size_t tasks = 0;
    while (status == FCAP_OK && !is_stopping(worker)) {
        int64_t begun_us = monotonic_us();
        status = fcap_pipeline_step(worker->pipeline, STEP_WAIT_MS);
        fcap_histogram_observe(&worker->view.step_seconds, monotonic_us() - begun_us);
        linger(worker, begun_us);
        fcap_board_beat(worker->shared.board, worker->index);
        struct fcap_pipeline_sizes sizes;
        fcap_pipeline_sizes(worker->pipeline, &sizes);
        if (sizes.tasks != tasks ||
            fcap_clock_os_monotonic_ms() - worker->view.published_ms >= PUBLISH_MS) {
            publish(worker);
            tasks = sizes.tasks;
        }
        fcap_questions_answer(worker->shared.questions, worker->index, worker->pipeline,
                              &worker->settings, &worker->view);
    }
    fcap_questions_leave(worker->shared.questions, worker->index);
    return status;
}

static enum fcap_status drain(struct fcap_worker *worker)
{
    enter(worker, FCAP_WORKER_DRAINING);
    enum fcap_status status = fcap_pipeline_drain(worker->pipeline, worker->drain_deadline_ms);
    if (status == FCAP_TIMEOUT) {
        FCAP_WARN("worker %zu: not everything could be sent and committed in time; a restart reads "
                  "the rest again",
                  worker->index);
    }
    publish(worker); /* The last claims: everything that was drained. */
    if (status == FCAP_OK) {
        worker->shared.settled(worker->shared.ended_context, worker->index);
    }
    return status;
}

static void close_parts(struct fcap_worker *worker)
{
    const struct fcap_source_handler *handler =
        worker->pipeline == NULL ? NULL : fcap_pipeline_handler(worker->pipeline);
    if (handler != NULL && worker->adopting != NULL) {
        handler = fcap_adopting_handler(worker->adopting, handler);
    }
    worker->result.is_clean = fcap_source_kafka_close(worker->source, handler);
    fcap_adopting_close(worker->adopting);
    fcap_pipeline_close(worker->pipeline);
    fcap_dead_letters_kafka_close(worker->letters);
    fcap_decode_json_close(worker->decoder);
    if (worker->result.is_clean) {
        fcap_decode_json_close(worker->look_decoder); /* Else its thread may still be at work. */
    }
    fcap_sink_redis_close(worker->sink);
    worker->source = NULL;
    worker->adopting = NULL;
    worker->pipeline = NULL;
    worker->letters = NULL;
    worker->decoder = NULL;
    worker->sink = NULL;
}

/* What the pipeline says, and what the store or Kafka has said to it. */
static enum fcap_status fail_in_detail(struct fcap_worker *worker, enum fcap_status status)
{
    struct fcap_source_kafka_snapshot source;
    struct fcap_error store = {""};
    struct fcap_error text;
    fcap_source_kafka_snapshot(worker->source, &source);
    if (status == FCAP_IO || status == FCAP_CORRUPT) {
        fcap_store_rocksdb_last_error(worker->shared.db, &store);
    }
    (void)fcap_error_set(&text, status, "%s%s%s%s%s", fcap_pipeline_error(worker->pipeline),
                         store.text[0] != '\0' ? ": " : "", store.text,
                         source.error_since_ms != 0 ? ": " : "",
                         source.error_since_ms != 0 ? source.error : "");
    return fail(worker, status, text.text);
}

static void *run(void *context)
{
    struct fcap_worker *worker = context;
    struct fcap_error error = {""};
    char name[16];
    (void)snprintf(name, sizeof name, "worker-%u", (unsigned)worker->index & 0xFFFF);
    fcap_log_thread(name);
    enum fcap_status status = open_parts(worker, &error);
    if (status != FCAP_OK) {
        status = fail(worker, status, error.text);
    } else if (worker->pipeline != NULL) {
        status = work(worker);
        if (status == FCAP_OK) {
            status = drain(worker);
        }
        if (fcap_status_class(status) == FCAP_CLASS_FATAL) {
            status = fail_in_detail(worker, status);
        }
    }
    bool has_failed = fcap_status_class(status) == FCAP_CLASS_FATAL;
    worker->result.status = status;
    if (has_failed) {
        FCAP_ERROR("worker %zu failed: %s", worker->index, worker->view.error);
    }
    close_parts(worker);
    enter(worker, has_failed ? FCAP_WORKER_FAILED : FCAP_WORKER_ENDED);
    worker->shared.ended(worker->shared.ended_context, worker->index);
    return NULL;
}

struct fcap_worker *fcap_worker_open(const struct fcap_worker_shared *shared, size_t index)
{
    pthread_attr_t attributes;
    struct fcap_worker *worker = calloc(1, sizeof *worker);
    FCAP_ASSERT(worker != NULL);
    worker->shared = *shared;
    worker->index = index;
    worker->result = (struct fcap_worker_result){FCAP_OK, true};
    FCAP_ASSERT(pthread_attr_init(&attributes) == 0);
    FCAP_ASSERT(pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0);
    FCAP_ASSERT(pthread_create(&worker->thread, &attributes, run, worker) == 0);
    (void)pthread_attr_destroy(&attributes);
    return worker;
}

void fcap_worker_stop(struct fcap_worker *worker, int64_t drain_deadline_ms)
{
    worker->drain_deadline_ms = drain_deadline_ms;
    __atomic_store_n(&worker->is_stopping, true, __ATOMIC_RELEASE);
}

struct fcap_worker_result fcap_worker_close(struct fcap_worker *worker)
{
    struct fcap_worker_result result = {FCAP_OK, true};
    if (worker == NULL) {
        return result;
    }
    (void)pthread_join(worker->thread, NULL); /* Joinable and not ourselves. */
    result = worker->result;
    fcap_worker_view_done(&worker->view);
    fcap_worker_view_done(&worker->previous);
    free(worker->lags);
    free(worker);
    return result;
}
