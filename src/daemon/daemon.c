#include "daemon.h"

#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/kafka_probe.h"
#include "fcap/log.h"
#include "fcap/point.h"
#include "fcap/store_rocksdb.h"
#include "checkpoints.h"
#include "compose.h"
#include "reporter.h"
#include "server.h"
#include "signals.h"
#include "watchdog.h"
#include "worker.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#define TICK_MS          1000
#define WORKERS_MAX      64
#define TOPIC_LOOK_UP_MS 2000
#define LAST_REPORT_MS   500
#define LEFT_AFTER_DRAIN 2 /* of the deadline, half is for draining */

struct daemon {
    const struct fcap_config *config;
    bool replay_from_kafka;
    bool distrusts_checkpoints; /* the start did not take one, though there are some */
    struct fcap_worker_shared shared;
    struct fcap_board *board;
    struct fcap_questions *questions;
    struct fcap_store_settings store;
    struct fcap_checkpoint_state_rocksdb state;
    bool has_state;
    struct fcap_checkpoints *checkpoints;
    struct fcap_adopt_state *adopt_state;
    struct fcap_adopter *adopter;
    struct fcap_savepoints *savepoints;
    struct fcap_store_rocksdb *db;
    struct fcap_watchdog *watchdog;
    struct fcap_reporter *reporter;
    struct fcap_server *server;
    struct fcap_worker *workers[WORKERS_MAX];
    uint64_t *keyed_slots;
    struct fcap_keyed_look keyed_look;
    unsigned ended; /* workers; atomic */
    int64_t end_ms; /* when shutdown.deadline is over; 0: nothing was stopped */
};

int fcap_daemon_exit_code(enum fcap_status status)
{
    switch (status) {
    case FCAP_OK:
        return FCAP_EXIT_OK;
    case FCAP_CONFIG:
    case FCAP_FOREIGN:
    case FCAP_FORMAT:
        return FCAP_EXIT_CONFIG;
    case FCAP_LOCKED:
        return FCAP_EXIT_TEMPORARY;
    default:
        return fcap_status_class(status) == FCAP_CLASS_RETRY ? FCAP_EXIT_TEMPORARY
                                                             : FCAP_EXIT_INTERNAL;
    }
}

static void on_worker_ended(void *context, size_t worker)
{
    struct daemon *daemon = context;
    fcap_watchdog_forget(daemon->watchdog, worker);
    __atomic_add_fetch(&daemon->ended, 1, __ATOMIC_RELEASE);
    fcap_signals_wake();
}

/* Without a log, commits are kept only when the state is closed. */
static void on_worker_settled(void *context, size_t worker)
{
    struct daemon *daemon = context;
    if (daemon->config->durability.wal != 0) {
        fcap_watchdog_settle(daemon->watchdog, worker);
    }
}

/* Told once, and a member of /readyz's body: only a lost state will need the records. */
static void judge_retention(const struct daemon *daemon, const struct fcap_kafka_probe *probe)
{
    int64_t needed_ms = fcap_compose_retention_ms(daemon->config);
    if (!probe->config_known) {
        return; /* Not everybody may read it; `check` says so. */
    }
    fcap_server_tell_retention(daemon->server, probe->retention_ms);
    if (probe->retention_ms >= 0 && probe->retention_ms < needed_ms &&
        daemon->config->checkpoint.directory == NULL) {
        FCAP_WARN("kafka.topic %s: retention.ms is %lld, less than the longest window and "
                  "limits.max_future_skew (%lld): a lost state cannot be read again completely, "
                  "and windows are then incomplete for as long as they are; with "
                  "checkpoint.directory it comes back from there",
                  daemon->config->kafka.topic, (long long)probe->retention_ms,
                  (long long)needed_ms);
    }
}

/* How many partitions share the Kafka queues; a broker that is away only makes them smaller. */
static int32_t look_at_topic(const struct daemon *daemon)
{
    const struct fcap_config *config = daemon->config;
    struct fcap_kafka_probe probe;
    struct fcap_compose_room room;
    struct fcap_source_kafka_settings source;
    struct fcap_memory_plan plan = fcap_memory_plan_make(config, 0);
    fcap_compose_source(config, &plan, 0, &room, &source);
    struct fcap_kafka_probe_settings settings = {.brokers = source.brokers,
                                                 .topic = source.topic,
                                                 .properties = source.properties,
                                                 .property_count = source.property_count,
                                                 .with_config = true,
                                                 .timeout_ms = TOPIC_LOOK_UP_MS};
    if (fcap_kafka_probe(&settings, &probe) != FCAP_OK || !probe.topic.exists) {
        FCAP_WARN("the topic's partitions could not be counted (%s); Kafka queues are sized for a "
                  "guess",
                  probe.error[0] == '\0' ? "it does not exist" : probe.error);
        return 0;
    }
    judge_retention(daemon, &probe);
    return probe.topic.partitions;
}

/* What the workers would find out only when Redis has answered: a property that the client refuses
 * is an error of the configuration now. */
static enum fcap_status check_kafka(const struct daemon *daemon, struct fcap_error *error)
{
    const struct fcap_config *config = daemon->config;
    if (daemon->replay_from_kafka && config->kafka.start == FCAP_CONFIG_START_LATEST) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "--replay-from-kafka reads what lies behind, and kafka.start: latest "
                              "does not");
    }
    struct fcap_compose_room room;
    struct fcap_source_kafka_settings source;
    struct fcap_memory_plan plan = fcap_memory_plan_make(config, 0);
    fcap_compose_source(config, &plan, 0, &room, &source);
    return fcap_source_kafka_check(&source, error);
}

static void on_restore(void *context, uint64_t bytes, uint64_t bytes_all)
{
    const struct daemon *daemon = context;
    fcap_server_tell_restore(daemon->server, bytes, bytes_all);
    fcap_log_tick(false);
}

static bool is_stopped(void *context)
{
    (void)context;
    return fcap_signals_received() != 0;
}

static enum fcap_status open_state(struct daemon *daemon, const struct fcap_memory_plan *plan,
                                   struct fcap_error *error)
{
    const struct fcap_checkpoints_watch watch = {on_restore, is_stopped, daemon};
    fcap_compose_store(daemon->config, plan, &daemon->store);
    struct fcap_beginning beginning;
    enum fcap_status status = fcap_checkpoints_open(daemon->config, &daemon->store, &watch,
                                                    &daemon->checkpoints, &beginning, error);
    if (status != FCAP_OK) {
        return status;
    }
    daemon->db = beginning.db;
    daemon->distrusts_checkpoints = beginning.distrusts;
    fcap_server_tell_source(daemon->server, beginning.source);
    if (daemon->db == NULL) {
        status = fcap_store_rocksdb_open(&daemon->store, &daemon->db, error);
    }
    if (status != FCAP_OK) {
        fcap_error_prefix(error, "state.directory");
    }
    return status;
}

/* For a last checkpoint: half of what is left, the rest is the state's. */
static int64_t left_ms(const struct daemon *daemon)
{
    int64_t left_ms = (daemon->end_ms - fcap_clock_os_monotonic_ms()) / 2;
    return left_ms > 0 ? left_ms : 0;
}

/* When the state was restored by command, and nothing was kept of it since; 0: it was not. */
static int64_t chosen_ms(const struct daemon *daemon)
{
    char mark[4096];
    struct stat info;
    return fcap_checkpoint_within(daemon->config->state.directory, "chosen", mark, NULL) ==
                       FCAP_OK &&
                   stat(mark, &info) == 0
               ? (int64_t)info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1000000
               : 0;
}

/* Where partitions get their state from when the group gives them to this process. A replay was
 * asked for, or checkpoints may hold the damage that led to it: no state may come from elsewhere.
 */
static enum fcap_status open_adopter(struct daemon *daemon, struct fcap_error *error)
{
    struct fcap_objects *objects = fcap_checkpoints_objects(daemon->checkpoints);
    if (objects == NULL || daemon->replay_from_kafka || daemon->distrusts_checkpoints) {
        return FCAP_OK;
    }
    const struct fcap_adopter_settings settings = {.profile = daemon->config->profile,
                                                   .clock = fcap_clock_os(),
                                                   .chosen_ms = chosen_ms(daemon),
                                                   .tell = fcap_checkpoints_tell};
    daemon->adopt_state = fcap_adopt_rocksdb_open(daemon->db, &daemon->store, objects);
    daemon->adopter = fcap_adopter_open(&settings, daemon->adopt_state, objects);
    enum fcap_status status = fcap_adopter_start(daemon->adopter);
    if (status != FCAP_OK) {
        (void)fcap_error_set(error, status, "a thread that looks for partitions in checkpoints");
    }
    fcap_server_attach_adopter(daemon->server, daemon->adopter);
    return status;
}

/* False: it hangs in the volume, and uses the state. */
static bool close_adopter(struct daemon *daemon)
{
    if (daemon->adopter == NULL) {
        return true;
    }
    if (fcap_adopter_stop(daemon->adopter, left_ms(daemon) / 2) != FCAP_OK) {
        FCAP_WARN("checkpoints: %s does not answer", daemon->config->checkpoint.directory);
        return false;
    }
    fcap_adopter_close(daemon->adopter);
    fcap_adopt_rocksdb_close(daemon->adopt_state);
    return true;
}

/* First what can be refused quickly, then the pages, so that probes are answered while the state is
 * opened, then the state. */
static enum fcap_status open_shared(struct daemon *daemon, struct fcap_error *error)
{
    const struct fcap_config *config = daemon->config;
    enum fcap_status status = check_kafka(daemon, error);
    if (status != FCAP_OK) {
        return status;
    }
    daemon->board = fcap_board_open((size_t)config->workers);
    daemon->questions = fcap_questions_open((size_t)config->workers);
    daemon->keyed_slots = calloc(FCAP_KEYED_SLOTS, sizeof *daemon->keyed_slots);
    FCAP_ASSERT(daemon->keyed_slots != NULL);
    daemon->savepoints = fcap_savepoints_open(config);
    struct fcap_server_settings server = {config, daemon->board, daemon->questions,
                                          daemon->savepoints};
    status = fcap_server_open(&server, &daemon->server, error);
    if (status != FCAP_OK) {
        return status;
    }
    daemon->watchdog = fcap_watchdog_open(daemon->board, FCAP_WATCHDOG_STILL_MS);
    fcap_watchdog_expect_signal(daemon->watchdog, config->shutdown.deadline_ms);
    struct fcap_memory_plan plan = fcap_memory_plan_make(config, look_at_topic(daemon));
    status = open_state(daemon, &plan, error);
    if (status != FCAP_OK) {
        return status;
    }
    FCAP_POINT(state_opened);
    FCAP_INFO("state opened: %s", config->state.directory);
    fcap_server_attach(daemon->server, daemon->db);
    fcap_checkpoint_state_rocksdb_init(&daemon->state, daemon->db, &daemon->store);
    daemon->has_state = true;
    status = fcap_checkpoints_follow(daemon->checkpoints, &daemon->state.state, error);
    if (status != FCAP_OK) {
        return status;
    }
    fcap_savepoints_attach(daemon->savepoints, &daemon->state.state);
    fcap_server_attach_checkpointer(daemon->server, fcap_checkpoints_keeper(daemon->checkpoints));
    status = open_adopter(daemon, error);
    if (status != FCAP_OK) {
        return status;
    }
    daemon->shared = (struct fcap_worker_shared){
        .config = config,
        .replay_from_kafka = daemon->replay_from_kafka,
        .plan = plan,
        .board = daemon->board,
        .questions = daemon->questions,
        .db = daemon->db,
        .adopter = daemon->adopter,
        .keyed_slots = daemon->keyed_slots,
        .keyed_look = &daemon->keyed_look,
        .ended = on_worker_ended,
        .settled = on_worker_settled,
        .ended_context = daemon,
    };
    return FCAP_OK;
}

static enum fcap_status open_all(struct daemon *daemon, struct fcap_error *error)
{
    enum fcap_status status = open_shared(daemon, error);
    if (status != FCAP_OK) {
        return status;
    }
    status = fcap_reporter_open(daemon->config, daemon->board, &daemon->reporter, error);
    if (status != FCAP_OK) {
        return status;
    }
    fcap_watchdog_watch(daemon->watchdog);
    for (int64_t i = 0; i < daemon->config->workers; i++) {
        daemon->workers[i] = fcap_worker_open(&daemon->shared, (size_t)i);
    }
    return FCAP_OK;
}

/* Until somebody asks to stop, or a worker ends by itself: the others stop too, because only a
 * whole process is restarted. */
static void wait_for_stop(struct daemon *daemon)
{
    while (!fcap_signals_wait(TICK_MS) && __atomic_load_n(&daemon->ended, __ATOMIC_ACQUIRE) == 0) {
        fcap_log_tick(false);
    }
    int number = fcap_signals_received();
    if (number != 0) {
        /* First of all: where nobody takes our lines, the next one may not come back. */
        fcap_watchdog_expect_end(daemon->watchdog, daemon->config->shutdown.deadline_ms);
        FCAP_INFO("%s: draining, at most %lld ms; a second signal ends the process at once",
                  number == SIGTERM ? "SIGTERM" : "SIGINT",
                  (long long)daemon->config->shutdown.deadline_ms);
    }
}

/* What a worker has read is not what was written: the next start must not meet it again. RocksDB's
 * own words name the file. */
static void note_damage(struct daemon *daemon, size_t worker)
{
    struct fcap_error last = {""};
    struct fcap_worker_view *views = fcap_board_views_open(daemon->board);
    fcap_store_rocksdb_last_error(daemon->db, &last);
    fcap_board_read(daemon->board, views);
    bool is_store = fcap_store_rocksdb_status(last.text) == FCAP_CORRUPT;
    fcap_checkpoints_damaged(daemon->config, is_store ? last.text : views[worker].error);
    fcap_board_views_close(daemon->board, views);
}

/* Stops the workers together; gives the worst of their results. */
static enum fcap_status stop_workers(struct daemon *daemon, bool *ret_is_clean)
{
    enum fcap_status worst = FCAP_OK;
    bool is_damaged = false;
    int64_t deadline_ms = daemon->config->shutdown.deadline_ms;
    int64_t now_ms = fcap_clock_os_monotonic_ms();
    int64_t drain_ms = now_ms + deadline_ms / LEFT_AFTER_DRAIN;
    daemon->end_ms = now_ms + deadline_ms;
    fcap_watchdog_expect_end(daemon->watchdog, deadline_ms);
    for (int64_t i = 0; i < daemon->config->workers; i++) {
        fcap_worker_stop(daemon->workers[i], drain_ms);
    }
    for (int64_t i = 0; i < daemon->config->workers; i++) {
        struct fcap_worker_result result = fcap_worker_close(daemon->workers[i]);
        daemon->workers[i] = NULL;
        if (result.status == FCAP_CORRUPT && !is_damaged) {
            is_damaged = true;
            note_damage(daemon, (size_t)i);
        }
        *ret_is_clean = *ret_is_clean && result.is_clean;
        bool is_worse = fcap_status_class(result.status) > fcap_status_class(worst);
        worst = is_worse ? result.status : worst;
    }
    return worst;
}

/* Gives whether nothing of it runs on. */
static bool close_all(struct daemon *daemon)
{
    fcap_reporter_close(daemon->reporter, LAST_REPORT_MS);
    fcap_server_close(daemon->server);
    bool is_adopter_closed = close_adopter(daemon);
    bool is_clean = fcap_savepoints_close(daemon->savepoints, left_ms(daemon) / 2);
    is_clean = fcap_checkpoints_close(daemon->checkpoints, left_ms(daemon)) && is_clean;
    if (daemon->has_state && is_clean) {
        fcap_checkpoint_state_done(&daemon->state.state);
    }
    if (is_adopter_closed) {
        fcap_store_rocksdb_close(daemon->db); /* Else its thread may come back to it. */
    }
    fcap_watchdog_close(daemon->watchdog);
    fcap_questions_close(daemon->questions);
    if (daemon->board != NULL) {
        fcap_board_close(daemon->board);
    }
    free(daemon->keyed_slots);
    return is_clean && is_adopter_closed;
}

struct fcap_daemon_result fcap_daemon_run(const struct fcap_daemon_settings *settings)
{
    const struct fcap_config *config = settings->config;
    struct fcap_error error = {""};
    struct daemon *daemon = calloc(1, sizeof *daemon);
    struct fcap_daemon_result result = {FCAP_EXIT_OK, true};
    FCAP_ASSERT(daemon != NULL && config->workers <= WORKERS_MAX);
    /* glibc alone keeps an arena for each thread; with jemalloc this changes nothing. */
    (void)mallopt(M_ARENA_MAX, 2);
    fcap_signals_init();
    daemon->config = config;
    daemon->replay_from_kafka = settings->replay_from_kafka;
    FCAP_INFO("fcapd " FCAP_VERSION ": profile %s, instance %s, %lld workers", config->profile,
              config->instance, (long long)config->workers);
    enum fcap_status status = open_all(daemon, &error);
    if (status == FCAP_STOPPED && fcap_signals_received() != 0) {
        FCAP_INFO("stopped before the state was there: %s; the next start begins again",
                  error.text);
        status = FCAP_OK;
    } else if (status != FCAP_OK) {
        FCAP_ERROR("cannot start: %s", error.text);
    } else {
        wait_for_stop(daemon);
        status = stop_workers(daemon, &result.is_clean);
    }
    if (close_all(daemon)) {
        free(daemon);
    } else {
        result.is_clean = false; /* Threads use what is in it. */
    }
    result.exit_code = fcap_daemon_exit_code(status);
    FCAP_INFO("stopped, exit code %d", result.exit_code);
    fcap_log_tick(true);
    return result;
}
