/* `fcapd restore`: the state of a checkpoint or a savepoint into state.directory, or only a look.
 */
#include "commands.h"

#include "daemon/compose.h"
#include "daemon/signals.h"
#include "fcap/clock_os.h"
#include "fcap/log.h"
#include "fcap/restore.h"
#include "progress.h"

#include <string.h>
#include <unistd.h>

struct restoring {
    const struct fcap_arguments *arguments;
    struct fcap_progress progress;
};

static void tell(void *context, const char *text)
{
    struct restoring *restoring = context;
    fcap_progress_say(&restoring->progress, "%s", text);
}

static void tell_progress(void *context, uint64_t bytes, uint64_t bytes_all)
{
    struct restoring *restoring = context;
    fcap_progress_at(&restoring->progress,
                     restoring->arguments->is_verify_only ? "verifying" : "restoring",
                     fcap_clock_os_monotonic_ms(), bytes, bytes_all, "bytes", NULL);
}

static bool is_cancelled(void *context)
{
    (void)context;
    return fcap_signals_received() != 0;
}

/* The checkpoints of this instance, or a directory that holds some. */
static const char *place_of(const struct fcap_arguments *arguments,
                            const struct fcap_config *config, struct fcap_error *error)
{
    if (strcmp(arguments->from, "latest") != 0) {
        return arguments->from;
    }
    if (config->checkpoint.directory == NULL) {
        (void)fcap_error_set(error, FCAP_CONFIG,
                             "--from latest: checkpoint.directory is not set; set it, or name a "
                             "directory");
    }
    return config->checkpoint.directory;
}

#define OTHERS_MAX 8

struct others {
    char last[FCAP_OBJECT_NAME_MAX + 1]; /* the prefix that was seen last */
    int count;
};

/* "days/pod-0/manifest-..." is of profile days, instance pod-0; what begins with '_' stands for
 * what must not begin so in a name (docs/DATA.md). */
static bool tell_other(void *context, const char *name, uint64_t size)
{
    struct others *others = context;
    size_t prefix_size = 0;
    uint64_t number = 0;
    const char *slash = strchr(name, '/');
    (void)size;
    if (!fcap_checkpoint_is_manifest(name, &prefix_size, &number) || slash == NULL ||
        slash + 1 >= name + prefix_size ||
        (strncmp(name, others->last, prefix_size) == 0 && others->last[prefix_size] == '\0')) {
        return true;
    }
    memcpy(others->last, name, prefix_size);
    others->last[prefix_size] = '\0';
    const char *profile = name + (name[0] == '_');
    const char *instance = slash + 1 + (slash[1] == '_');
    (void)fprintf(stderr,
                  "fcapd: restore: another one is there; --set profile=%.*s --set instance=%.*s "
                  "would take it\n",
                  (int)(slash - profile), profile, (int)(name + prefix_size - 1 - instance),
                  instance);
    return ++others->count < OTHERS_MAX;
}

/* None of this instance could be taken: whose are there? */
static void tell_others(const struct fcap_config *config, struct fcap_objects *objects)
{
    struct others others = {.count = 0};
    (void)fcap_checkpoint_prefix(config->profile, config->instance, others.last); /* Own: known. */
    /* A failure is no news: what led here has been told. */
    (void)!objects->ops->list(objects, "", tell_other, &others, NULL);
}

static enum fcap_status restore(struct restoring *restoring, const struct fcap_config *config,
                                struct fcap_restore_report *report, struct fcap_error *error)
{
    const bool is_real = !restoring->arguments->is_verify_only;
    const char *from = place_of(restoring->arguments, config, error);
    struct fcap_objects *objects = NULL;
    struct fcap_store_settings store;
    struct fcap_checkpoint_place_rocksdb place;
    struct fcap_memory_plan plan = fcap_memory_plan_make(config, 0);
    if (from == NULL) {
        return FCAP_CONFIG;
    }
    enum fcap_status status = fcap_objects_directory_open(from, true, &objects, error);
    if (status != FCAP_OK) {
        return status;
    }
    fcap_compose_store(config, &plan, &store);
    fcap_checkpoint_place_rocksdb_init(&place, &store);
    struct fcap_restore_settings settings;
    fcap_compose_restore(config, &settings);
    settings.directory = is_real ? config->state.directory : NULL;
    settings.place = is_real ? &place.place : NULL;
    settings.is_chosen = true;
    settings.tell = tell;
    settings.progress = tell_progress;
    settings.is_cancelled = is_cancelled;
    settings.context = restoring;
    status = fcap_restore(&settings, objects, report, error);
    if (status == FCAP_REFUSED) {
        fcap_progress_done(&restoring->progress);
        (void)fprintf(stderr, "fcapd: restore: %s: %s\n", from, error->text);
        tell_others(config, objects);
        error->text[0] = '\0'; /* It has been told. */
    }
    fcap_objects_directory_close(objects);
    return status;
}

static void show(const struct fcap_restore_report *report, const struct fcap_config *config,
                 bool is_verify_only)
{
    (void)printf("checkpoint %llu is %s%s: as of %lld s ago, %llu files of %llu bytes, %llu "
                 "batches of the changelog, %zu partitions; %llu newer ones were not whole\n",
                 (unsigned long long)report->number, is_verify_only ? "whole" : "restored into ",
                 is_verify_only ? "" : config->state.directory,
                 (long long)(fcap_clock_os_wall_ms() - report->written_ms) / 1000,
                 (unsigned long long)report->files, (unsigned long long)report->file_bytes,
                 (unsigned long long)report->batches, report->partition_count,
                 (unsigned long long)report->not_taken);
}

static int exit_code_of(enum fcap_status status)
{
    if (status == FCAP_STOPPED && is_cancelled(NULL)) {
        return FCAP_EXIT_TEMPORARY; /* Once more, and it is all there. */
    }
    /* A checkpoint that is not there, or not whole, does not come by itself. */
    return status == FCAP_REFUSED ? FCAP_EXIT_INTERNAL : fcap_daemon_exit_code(status);
}

struct fcap_daemon_result fcap_command_restore(const struct fcap_arguments *arguments)
{
    struct fcap_daemon_result result = {FCAP_EXIT_CONFIG, true};
    struct fcap_config config;
    struct fcap_error error = {""};
    struct fcap_restore_report report = {0};
    struct restoring restoring = {.arguments = arguments};
    if (arguments->from == NULL) {
        (void)fprintf(stderr, "fcapd: restore: --from says what: a directory, or latest, for the "
                              "newest checkpoint in checkpoint.directory\n");
        result.exit_code = FCAP_EXIT_USAGE;
        return result;
    }
    if (!fcap_arguments_load(arguments, &config)) {
        return result;
    }
    fcap_signals_init();
    fcap_progress_init(&restoring.progress, "restore", stderr, !arguments->is_plain);
    enum fcap_status status = restore(&restoring, &config, &report, &error);
    fcap_progress_done(&restoring.progress);
    if (status == FCAP_OK) {
        show(&report, &config, arguments->is_verify_only);
    } else if (error.text[0] != '\0') {
        (void)fprintf(stderr, "fcapd: restore: %s\n", error.text);
    }
    result.exit_code = exit_code_of(status);
    fcap_config_done(&config);
    return result;
}
