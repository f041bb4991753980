/* `fcapd check`: the place of the checkpoints. It only looks: nothing is made there. */
#include "findings.h"

#include "fcap/clock_os.h"
#include "fcap/objects.h"
#include "fcap/restore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define GIB 1073741824.0

/* Threads that move files wait more than they work; beyond so many for each core they only get in
 * each other's way. */
#define THREADS_PER_CORE 4

/* --- the place -------------------------------------------------------------------------------- */

/* The file system on which the path lies, or would lie. */
static bool device_of(const char *path, dev_t *ret_device)
{
    char at[4096];
    struct stat info;
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at) {
        return false;
    }
    while (stat(at, &info) != 0) {
        char *parent = dirname(at);
        if (errno != ENOENT || strcmp(parent, ".") == 0 || strcmp(parent, "/") == 0) {
            return false;
        }
        memmove(at, parent, strlen(parent) + 1);
    }
    *ret_device = info.st_dev;
    return true;
}

static void check_volume(struct fcap_findings *findings, const struct fcap_config *config)
{
    dev_t own;
    dev_t other;
    const char *directory = config->checkpoint.directory;
    if (!device_of(directory, &own)) {
        return; /* It is told otherwise. */
    }
    if (device_of(config->state.directory, &other) && own == other) {
        fcap_findings_warn(
            findings,
            "checkpoint.directory %s: on the file system of state.directory, so both "
            "are lost together; mount a volume there that outlives the machine",
            directory);
    } else if (device_of("/", &other) && own == other) {
        fcap_findings_warn(findings,
                           "checkpoint.directory %s: on the machine's root file system; mount the "
                           "volume there before fcapd starts",
                           directory);
    }
}

/* False: there is nothing to look at. */
static bool check_place(struct fcap_findings *findings, const struct fcap_config *config)
{
    const char *directory = config->checkpoint.directory;
    struct stat info;
    if (stat(directory, &info) != 0 && errno == ENOENT) {
        fcap_findings_warn(findings,
                           "checkpoint.directory %s: it is not there, and run makes it; mount its "
                           "volume first, or checkpoints lie on this machine alone",
                           directory);
        return false;
    }
    if (stat(directory, &info) != 0 || access(directory, R_OK | W_OK | X_OK) != 0) {
        fcap_findings_fail(findings,
                           "checkpoint.directory %s: %s; this user must be allowed to read and "
                           "write there, and the volume must not be mounted read-only",
                           directory, strerror(errno));
        return false;
    }
    if (!S_ISDIR(info.st_mode)) {
        fcap_findings_fail(findings, "checkpoint.directory %s: it is no directory; name one",
                           directory);
        return false;
    }
    return true;
}

/* --- what is kept ----------------------------------------------------------------------------- */

struct kept {
    uint64_t bytes;     /* of all objects of the instance */
    uint64_t number;    /* of the newest checkpoint; 0: there is none */
    int64_t written_ms; /* when its newest change was written */
};

static bool add_object(void *context, const char *name, uint64_t size)
{
    struct kept *kept = context;
    (void)name;
    kept->bytes += size;
    return true;
}

static bool take_newest(void *context, const struct fcap_checkpoint *checkpoint)
{
    struct kept *kept = context;
    kept->number = checkpoint->number;
    kept->written_ms = checkpoint->written_ms;
    return false;
}

/* False: it cannot be looked at; told. */
static bool look_at_kept(struct fcap_findings *findings, const struct fcap_config *config,
                         struct kept *ret_kept)
{
    struct fcap_objects *objects = NULL;
    struct fcap_error error = {""};
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    (void)fcap_checkpoint_prefix(config->profile, config->instance, prefix); /* Its argument. */
    *ret_kept = (struct kept){0};
    enum fcap_status status =
        fcap_objects_directory_open(config->checkpoint.directory, true, &objects, &error);
    if (status == FCAP_UNAVAILABLE) {
        return true; /* Nothing has been kept there yet. */
    }
    if (status == FCAP_OK) {
        status = objects->ops->list(objects, prefix, add_object, ret_kept, &error);
    }
    if (status == FCAP_OK) {
        status = fcap_restore_list(objects, config->profile, config->instance, take_newest,
                                   ret_kept, &error);
    }
    fcap_objects_directory_close(objects);
    if (status != FCAP_OK) {
        fcap_findings_fail(findings, "checkpoint.directory: %s", error.text);
    }
    return status == FCAP_OK;
}

/* A restored state reads from Kafka what came after its checkpoint. */
static void check_age(struct fcap_findings *findings, const struct fcap_config *config,
                      const struct kept *kept, int64_t retention_ms)
{
    const char *directory = config->checkpoint.directory;
    if (retention_ms > 0 && config->checkpoint.interval_ms >= retention_ms) {
        fcap_findings_warn(
            findings,
            "checkpoint.interval: %lld ms, and kafka.topic keeps records for %lld "
            "ms: a restore misses what lies between; lower it, or raise retention.ms",
            (long long)config->checkpoint.interval_ms, (long long)retention_ms);
    }
    if (kept->number == 0) {
        fcap_findings_good("checkpoint.directory %s: no checkpoint of profile %s, instance %s yet",
                           directory, config->profile, config->instance);
        return;
    }
    int64_t age_ms = fcap_clock_os_wall_ms() - kept->written_ms;
    age_ms = age_ms > 0 ? age_ms : 0;
    if (retention_ms > 0 && age_ms >= retention_ms) {
        fcap_findings_warn(
            findings,
            "checkpoint.directory %s: checkpoint %llu is %lld s old, and kafka.topic "
            "keeps records for %lld s: a state restored from it has a gap; start "
            "fcapd where its state is, or raise retention.ms",
            directory, (unsigned long long)kept->number, (long long)age_ms / 1000,
            (long long)retention_ms / 1000);
    } else if (retention_ms > 0) {
        fcap_findings_good("checkpoint.directory %s: checkpoint %llu is %lld s old; with the "
                           "retention of kafka.topic a restore within %lld s from now is complete",
                           directory, (unsigned long long)kept->number, (long long)age_ms / 1000,
                           (long long)(retention_ms - age_ms) / 1000);
    } else {
        fcap_findings_good("checkpoint.directory %s: checkpoint %llu is %lld s old", directory,
                           (unsigned long long)kept->number, (long long)age_ms / 1000);
    }
}

/* --- room and speed --------------------------------------------------------------------------- */

/* Bytes of the files in a directory; 0 when there is none. */
static uint64_t size_of(const char *path)
{
    uint64_t bytes = 0;
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return 0;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        struct stat info;
        if (fstatat(dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode)) {
            bytes += (uint64_t)info.st_size;
        }
    }
    (void)closedir(directory); /* Only read. */
    return bytes;
}

/* After a compaction a snapshot has no file in common with the one before, and the oldest goes only
 * when the newest is there. */
static void check_room(struct fcap_findings *findings, const struct fcap_config *config,
                       const struct kept *kept)
{
    struct statvfs volume;
    const uint64_t state = size_of(config->state.directory);
    const uint64_t needed = state * (uint64_t)(config->checkpoint.retain + 1);
    if (state == 0 || statvfs(config->checkpoint.directory, &volume) != 0) {
        return;
    }
    const uint64_t room = (uint64_t)volume.f_bavail * volume.f_frsize + kept->bytes;
    if (room < needed) {
        fcap_findings_warn(
            findings,
            "checkpoint.directory %s: %.1f GiB are free or this instance's, and "
            "checkpoint.retain + 1 snapshots of the present state (%.1f GiB) may need "
            "%.1f GiB; enlarge the volume, or lower checkpoint.retain",
            config->checkpoint.directory, (double)room / GIB, (double)state / GIB,
            (double)needed / GIB);
    } else {
        fcap_findings_good(
            "checkpoint.directory %s: room for checkpoint.retain + 1 snapshots of the "
            "present state",
            config->checkpoint.directory);
    }
}

static void check_speed(struct fcap_findings *findings, const struct fcap_config *config,
                        const struct kept *kept)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int64_t threads = config->materialization.transfer_threads;
    if (cores > 0 && threads > THREADS_PER_CORE * cores) {
        fcap_findings_warn(
            findings,
            "materialization.transfer_threads: %lld on %ld cores: they take time from "
            "counting and send no faster; write at most %ld",
            (long long)threads, cores, THREADS_PER_CORE * cores);
    }
    const int64_t interval_s = config->checkpoint.scrub_interval_ms / 1000;
    const uint64_t rate = (uint64_t)config->checkpoint.scrub_rate_limit_bytes;
    if (interval_s > 0 && kept->bytes / rate >= (uint64_t)interval_s) {
        fcap_findings_warn(findings,
                           "checkpoint.scrub_rate_limit: reading back the %.1f GiB that are kept "
                           "takes longer than checkpoint.scrub_interval; raise one of them",
                           (double)kept->bytes / GIB);
    }
}

void fcap_check_checkpoints(struct fcap_findings *findings, const struct fcap_config *config,
                            int64_t retention_ms)
{
    struct kept kept = {0};
    if (config->checkpoint.directory == NULL) {
        return;
    }
    check_volume(findings, config);
    if (check_place(findings, config) && look_at_kept(findings, config, &kept)) {
        check_age(findings, config, &kept, retention_ms);
        check_room(findings, config, &kept);
    }
    check_speed(findings, config, &kept);
}
