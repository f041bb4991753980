#include "commands.h"

#include "backfill_run.h"
#include "daemon/compose.h"
#include "daemon/signals.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/kafka_probe.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME            "backfill"
#define PROBE_MS        5000
#define SIGNAL_BASE     128
#define SPILL_FILES     544 /* buffers that are open at once, at most, about */
#define BLOCK_BYTES_MIN ((int64_t)16 * 1024)
#define BLOCK_BYTES_MAX ((int64_t)256 * 1024)
#define NUMBER_MAX      32
#define MIB             (1024.0 * 1024.0)

struct command {
    const struct fcap_arguments *arguments;
    const struct fcap_config *config;
    struct fcap_compose_room room;
    struct fcap_memory_plan plan;
    struct fcap_settings settings;
    struct fcap_progress progress;
    struct fcap_decoder *decoder;
    struct fcap_decoder *look_decoder; /* of the look-ups' thread */
    struct fcap_kafka_history *history;
    struct fcap_seed_redis *seed;
    struct fcap_spill *spill;
    struct fcap_backfill *backfill;
    char directory[PATH_MAX];
    char instance[160];
    int32_t partitions;
};

/* --- what is asked for --- */

static bool names_window(const char *list, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        if (strcspn(at, ",") == size && strncmp(at, name, size) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_window(const struct fcap_config *config, const char *name, size_t size)
{
    for (size_t i = 0; i < config->windows_count; i++) {
        if (strlen(config->windows[i].name) == size &&
            strncmp(config->windows[i].name, name, size) == 0) {
            return true;
        }
    }
    return false;
}

/* False: --windows names one that is not configured, or none. */
static bool choose_windows(const struct fcap_config *config, const char *list,
                           struct fcap_settings *settings)
{
    for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        size_t size = strcspn(at, ",");
        if (!is_window(config, at, size)) {
            (void)fprintf(stderr, "fcapd: --windows: \"%.*s\" is no configured window; these are:",
                          (int)size, at);
            for (size_t i = 0; i < config->windows_count; i++) {
                (void)fprintf(stderr, " %s", config->windows[i].name);
            }
            (void)fputc('\n', stderr);
            return false;
        }
    }
    size_t count = 0;
    for (size_t i = 0; i < settings->window_count; i++) {
        if (names_window(list, settings->windows[i].name)) {
            settings->windows[count++] = settings->windows[i];
        }
    }
    settings->window_count = count;
    if (count == 0) {
        (void)fprintf(stderr, "fcapd: --windows names no window\n");
    }
    return count > 0;
}

/* --spill, or where the state lies or will lie: the nearest folder that is there already. */
static void choose_directory(struct command *command)
{
    const char *given = command->arguments->spill;
    (void)snprintf(command->directory, sizeof command->directory, "%s",
                   given != NULL ? given : command->config->state.directory);
    while (given == NULL && access(command->directory, F_OK) != 0) {
        char *slash = strrchr(command->directory, '/');
        if (slash == NULL) {
            (void)snprintf(command->directory, sizeof command->directory, ".");
        } else {
            slash[slash == command->directory] = '\0'; /* The root keeps its name. */
        }
    }
}

/* --- opening --- */

static enum fcap_status check_topic(struct command *command,
                                    const struct fcap_source_kafka_settings *source,
                                    struct fcap_error *error)
{
    struct fcap_kafka_probe probe;
    const struct fcap_config *config = command->config;
    enum fcap_status status = fcap_source_kafka_check(source, error);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_kafka_probe_settings settings = {.brokers = source->brokers,
                                                 .topic = source->topic,
                                                 .properties = source->properties,
                                                 .property_count = source->property_count,
                                                 .with_config = true,
                                                 .timeout_ms = PROBE_MS};
    status = fcap_kafka_probe(&settings, &probe);
    if (status != FCAP_OK) {
        return fcap_error_set(error, status, "kafka.brokers %s: %s", config->kafka.brokers,
                              probe.error);
    }
    if (!probe.topic.exists) {
        return fcap_error_set(error, FCAP_CONFIG, "kafka.topic %s: %s", config->kafka.topic,
                              probe.topic.error);
    }
    if (probe.is_compacted) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "kafka.topic %s: cleanup.policy holds compact, which drops "
                              "impressions of the same user; set it to delete",
                              config->kafka.topic);
    }
    if (!probe.config_known) {
        fcap_progress_say(&command->progress,
                          "kafka.topic %s: its configuration cannot be read (%s); whether it is "
                          "compacted is not known",
                          config->kafka.topic, probe.config_error);
    }
    command->partitions = probe.topic.partitions;
    return FCAP_OK;
}

static bool must_stop(void *context)
{
    (void)context;
    return fcap_signals_received() != 0;
}

static enum fcap_status open_redis(struct command *command, struct fcap_error *error)
{
    struct fcap_seed_redis_settings settings = {.must_stop = must_stop};
    fcap_compose_sink(command->config, 0, &command->room, &settings.redis);
    /* Another name than the daemon's: connections of one name close each other. */
    (void)snprintf(command->instance, sizeof command->instance, "%s-backfill-%d",
                   command->config->instance, (int)getpid());
    settings.redis.instance = command->instance;
    return fcap_seed_redis_open(&settings, &command->seed, error);
}

/* Blocks take the place of RocksDB's write buffers. */
static enum fcap_status open_spill(struct command *command, struct fcap_error *error)
{
    int64_t block_bytes = command->plan.write_buffers_bytes / SPILL_FILES;
    block_bytes = block_bytes < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : block_bytes;
    block_bytes = block_bytes > BLOCK_BYTES_MAX ? BLOCK_BYTES_MAX : block_bytes;
    choose_directory(command);
    enum fcap_status status =
        fcap_spill_file_open(command->directory, (size_t)block_bytes, &command->spill, error);
    if (status != FCAP_OK) {
        fcap_error_prefix(error, "--spill");
    }
    return status == FCAP_IO ? FCAP_CONFIG : status; /* Another folder may do. */
}

/* First what can be refused without asking anybody. */
static enum fcap_status open_all(struct command *command, struct fcap_error *error)
{
    struct fcap_source_kafka_settings source;
    struct fcap_decode_settings decoder;
    fcap_compose_source(command->config, &command->plan, 0, &command->room, &source);
    /* There is no RocksDB here: what its cache would take is for what was fetched. */
    source.queues_bytes = command->plan.kafka_queues_bytes + command->plan.block_cache_bytes;
    enum fcap_status status = open_spill(command, error);
    status = status == FCAP_OK ? check_topic(command, &source, error) : status;
    if (status != FCAP_OK) {
        return status;
    }
    fcap_compose_decoder(command->config, &decoder);
    status = fcap_decode_json_open(&decoder, &command->decoder, error);
    if (status == FCAP_OK) {
        status = fcap_decode_json_open(&decoder, &command->look_decoder, error);
    }
    source.decoder = command->look_decoder;
    status = status == FCAP_OK ? open_redis(command, error) : status;
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_backfill_ports ports = {.decoder = command->decoder,
                                        .seed = fcap_seed_redis_port(command->seed),
                                        .spill = command->spill};
    status = fcap_backfill_open(&command->settings, &ports, &command->backfill, error);
    if (status != FCAP_OK) {
        return status;
    }
    return fcap_kafka_history_open(&source, command->partitions, &command->history, error);
}

/* Kafka's client is left to the end of the process unless all was read: a broker that hangs must
 * not hold us. */
static bool close_all(struct command *command)
{
    bool is_clean = command->history == NULL;
    if (is_clean) {
        fcap_decode_json_close(command->look_decoder); /* Else its thread may still be at work. */
    }
    fcap_backfill_close(command->backfill);
    fcap_seed_redis_close(command->seed);
    fcap_spill_file_close(command->spill);
    fcap_decode_json_close(command->decoder);
    return is_clean;
}

/* --- the summary --- */

static const char *number(uint64_t value)
{
    static char texts[8][NUMBER_MAX];
    static unsigned turn;
    turn = (turn + 1) % 8;
    return fcap_progress_number(value, texts[turn]);
}

static void print_rejects(const struct fcap_backfill_report *report)
{
    const char *comma = "";
    (void)printf("rejected    ");
    for (size_t i = 1; i < FCAP_REJECT_COUNT; i++) {
        if (report->rejects[i] > 0) {
            (void)printf("%s%s %s", comma, fcap_reject_label((enum fcap_reject)i),
                         number(report->rejects[i]));
            comma = ", ";
        }
    }
    (void)printf("%s\n", *comma == '\0' ? "none" : "");
}

static void print_windows(const struct command *command, const struct fcap_backfill_report *report)
{
    (void)printf("windows     ");
    for (size_t i = 0; i < command->settings.window_count; i++) {
        bool is_short = (report->incomplete_mask >> i & 1) != 0;
        (void)printf("%s%s%s", i == 0 ? "" : ", ", command->settings.windows[i].name,
                     is_short ? " (the log does not reach back far enough on some partition)" : "");
    }
    (void)printf("\n");
}

static void print_summary(const struct command *command, const struct fcap_backfill_times *times)
{
    struct fcap_backfill_report report;
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage); /* Cannot fail for ourselves. */
    fcap_backfill_report(command->backfill, &report);
    double seconds = (double)(fcap_clock_os_monotonic_ms() - times->begun_ms) / 1000.0;
    double read_s = times->read_ms > 0 ? (double)times->read_ms / 1000.0 : 0.001;
    int32_t written = report.partitions - report.partitions_open - report.partitions_fenced;
    (void)printf("records     %s read in %.1f s (%s/s), %s counted, %s tombstones\n",
                 number(report.records), read_s,
                 number((uint64_t)((double)report.records / read_s)), number(report.events),
                 number(report.tombstones));
    print_rejects(&report);
    print_windows(command, &report);
    (void)printf("keys        %s written for %s users as of %lld; %s were there, %s had expired, "
                 "%s are incomplete\n",
                 number(report.keys_written), number(report.users), (long long)report.at_ms,
                 number(report.keys_kept), number(report.keys_passed),
                 number(report.keys_incomplete));
    if (report.values_cut > 0) {
        (void)printf("values      %s cut by limits.value_bytes\n", number(report.values_cut));
    }
    (void)printf(
        "partitions  %d: %d written, %d left to a daemon (gate open), %d taken over by one "
        "meanwhile\n",
        report.partitions, written, report.partitions_open, report.partitions_fenced);
    (void)printf("resources   %.1f s, %.1f MiB of memory at most (users %.1f, ads %.1f), %.1f MiB "
                 "spilled, %llu files split\n",
                 seconds, (double)usage.ru_maxrss / 1024.0, (double)report.fold_bytes / MIB,
                 (double)report.ads_bytes / MIB, (double)report.spill_bytes / MIB,
                 (unsigned long long)report.splits);
}

static const char *phase_text(enum fcap_backfill_phase phase)
{
    switch (phase) {
    case FCAP_BACKFILL_OPENED:
        return "before anything was read";
    case FCAP_BACKFILL_READING:
        return "while reading";
    case FCAP_BACKFILL_WAITING:
        return "while waiting for owners";
    case FCAP_BACKFILL_CHECKING:
        return "while checking";
    default:
        return "while writing";
    }
}

/* What Redis holds now that it has ended early. */
static void tell_rest(const struct command *command)
{
    struct fcap_backfill_report report;
    if (command->backfill == NULL) {
        return;
    }
    fcap_backfill_report(command->backfill, &report);
    if (report.phase < FCAP_BACKFILL_WRITING) {
        (void)fprintf(stderr, NAME ": ended %s: no key was written\n", phase_text(report.phase));
    } else {
        (void)fprintf(stderr,
                      NAME ": ended %s: %s keys were written, all windows of a user together; run "
                           "it again for the others\n",
                      phase_text(report.phase), number(report.keys_written));
    }
}

/* --- the command --- */

static int exit_code_of(enum fcap_status status)
{
    int number_received = fcap_signals_received();
    if (status != FCAP_OK && number_received != 0) {
        return SIGNAL_BASE + number_received;
    }
    /* Another Redis, and another one is awaited the next time: nothing is wrong with the file. */
    return status == FCAP_FOREIGN ? FCAP_EXIT_TEMPORARY : fcap_daemon_exit_code(status);
}

static void tell_begin(struct command *command)
{
    struct statvfs disk;
    double free_mib = statvfs(command->directory, &disk) == 0
                          ? (double)disk.f_bavail * (double)disk.f_frsize / MIB
                          : 0;
    fcap_progress_say(&command->progress,
                      "%s, %d partitions, %zu windows; spills to %s (%.0f MiB free)",
                      command->config->kafka.topic, command->partitions,
                      command->settings.window_count, command->directory, free_mib);
}

static enum fcap_status run_all(struct command *command, struct fcap_backfill_times *times,
                                struct fcap_error *error)
{
    enum fcap_status status = open_all(command, error);
    if (status != FCAP_OK) {
        return status;
    }
    tell_begin(command);
    struct fcap_backfill_world world = {.backfill = command->backfill,
                                        .decoder = command->decoder,
                                        .history = command->history,
                                        .seed = command->seed,
                                        .spill = command->spill,
                                        .progress = &command->progress,
                                        .settings = command->settings,
                                        .partitions = command->partitions,
                                        .patience_ms = command->arguments->patience_ms};
    status = fcap_backfill_run(&world, times, error);
    if (times->is_read) {
        command->history = NULL;
    }
    return status;
}

struct fcap_daemon_result fcap_command_backfill(const struct fcap_arguments *arguments)
{
    struct fcap_daemon_result result = {FCAP_EXIT_CONFIG, true};
    struct fcap_config config;
    struct fcap_error error = {""};
    struct fcap_backfill_times times = {0};
    if (!fcap_arguments_load(arguments, &config)) {
        return result;
    }
    struct command *command = calloc(1, sizeof *command);
    FCAP_ASSERT(command != NULL);
    command->arguments = arguments;
    command->config = &config;
    command->plan = fcap_memory_plan_make(&config, 0);
    fcap_compose_core(&config, &command->plan, &command->settings);
    command->settings.cache_bytes = (size_t)command->plan.record_cache_bytes;
    fcap_progress_init(&command->progress, NAME, stderr, !arguments->is_plain);
    if (arguments->windows != NULL &&
        !choose_windows(&config, arguments->windows, &command->settings)) {
        result.exit_code = FCAP_EXIT_USAGE;
    } else {
        fcap_signals_init();
        (void)signal(SIGXFSZ, SIG_IGN); /* A limit on files is a full disk: an error. */
        enum fcap_status status = run_all(command, &times, &error);
        result.exit_code = exit_code_of(status);
        if (status == FCAP_OK) {
            print_summary(command, &times);
        } else {
            (void)fprintf(stderr, NAME ": %s\n", error.text);
            tell_rest(command);
        }
        result.is_clean = close_all(command);
    }
    if (result.is_clean) {
        fcap_config_done(&config); /* Else threads that still run may look at it. */
        free(command);
    }
    return result;
}
