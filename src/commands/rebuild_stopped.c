/* Redis from the state of a stopped daemon: the real pipeline, one partition after the other, on a
 * source that stands still and a sink that is fenced. T moves up to the clock as at a start, so
 * what expired meanwhile is taken off; nothing is read from Kafka. */
#include "rebuild.h"

#include "daemon/compose.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/rebuild.h"
#include "owners.h"
#include "standing.h"
#include "state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_MS 60000
#define NEVER_MS ((int64_t)365 * 24 * 3600 * 1000)

struct rebuilding {
    const struct fcap_config *config;
    struct fcap_progress *progress;
    struct fcap_bytes user; /* size 0: everything */
    struct fcap_redis_client *client;
    struct fcap_state state;
    struct fcap_settings settings;
    bool user_is_known;
    size_t index; /* of the partition under way */
};

/* --- one partition --- */

struct part {
    struct fcap_pipeline *pipeline;
    struct fcap_standing_source source;
    struct fcap_sink *sink;
    int32_t partition;
    bool gate_open;
    bool is_projecting;
    int64_t clock_lag_ms;
};

static void take_report(void *context, const struct fcap_task_report *report)
{
    struct part *part = context;
    part->gate_open = report->gate_open;
    part->is_projecting = report->projecting;
    part->clock_lag_ms = report->clock_lag_ms;
}

static void show(const struct rebuilding *rebuilding, const struct part *part,
                 const struct fcap_rebuild_progress *progress)
{
    char number[32];
    char note[128];
    if (part->gate_open) {
        (void)snprintf(note, sizeof note, "partition %d: %s users so far", part->partition,
                       fcap_progress_number(progress->users, number));
    } else {
        (void)snprintf(note, sizeof note,
                       "partition %d: its clock is %" PRId64 " s behind, and catches up",
                       part->partition, part->clock_lag_ms / 1000);
    }
    fcap_progress_at(rebuilding->progress, "write", fcap_clock_os_monotonic_ms(), rebuilding->index,
                     rebuilding->state.count, "partitions", note);
}

/* Steps until everything asked for is acknowledged. */
static enum fcap_status step_on(struct rebuilding *rebuilding, struct part *part,
                                struct fcap_error *error)
{
    bool is_asked = false;
    for (;;) {
        struct fcap_rebuild_progress progress;
        enum fcap_status status = fcap_pipeline_step(part->pipeline, 0);
        if (status != FCAP_OK) {
            return fcap_error_set(error, status, "%s", fcap_pipeline_error(part->pipeline));
        }
        status = fcap_redis_fenced_status(part->sink, error);
        if (status != FCAP_OK) {
            return status;
        }
        if (!part->source.is_whole) {
            return fcap_error_set(error, FCAP_STOPPED,
                                  "timers that its state needs are gone; `run` reads it anew");
        }
        fcap_pipeline_report(part->pipeline, take_report, part);
        if (!is_asked && rebuilding->user.size == 0) {
            is_asked = fcap_pipeline_rebuild(part->pipeline, part->partition);
        } else if (!is_asked && part->gate_open) {
            bool is_known =
                fcap_pipeline_rebuild_user(part->pipeline, part->partition, rebuilding->user);
            rebuilding->user_is_known = rebuilding->user_is_known || is_known;
            is_asked = true;
        }
        (void)fcap_pipeline_rebuild_progress(part->pipeline, part->partition, &progress);
        show(rebuilding, part, &progress);
        bool waits = fcap_pipeline_user_waits(part->pipeline, part->partition, rebuilding->user);
        /* One that was due anyway is ended, too: half of it would be begun anew. */
        if (is_asked && part->gate_open && progress.windows == 0 && !waits &&
            !part->is_projecting) {
            return FCAP_OK;
        }
    }
}

static enum fcap_status rebuild_part(struct rebuilding *rebuilding, size_t index, uint64_t found,
                                     struct fcap_error *error)
{
    const struct fcap_state_partition *partition = &rebuilding->state.partitions[index];
    /* With the same epoch again the gate opens as after another owner: everything is shown. With
     * the next one only the user is. Either way the owner after us finds its own to be the next. */
    const struct fcap_redis_fence fence = {
        .profile = rebuilding->config->profile,
        .partition = partition->partition,
        .found = found,
        .epoch = partition->meta.epoch + (rebuilding->user.size > 0),
    };
    struct part part = {.partition = partition->partition};
    rebuilding->index = index;
    struct fcap_standing_store store;
    fcap_standing_source_init(&part.source, partition->partition, index + 1);
    fcap_standing_store_init(&store, rebuilding->state.store);
    enum fcap_status status = fcap_redis_fenced_open(rebuilding->client, &fence, &part.sink, error);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_ports ports = {.clock = fcap_clock_os(),
                               .source = &part.source.port,
                               .store = &store.port,
                               .sink = part.sink};
    status = fcap_pipeline_open(&rebuilding->settings, &ports, &part.pipeline, error);
    status = status == FCAP_OK ? step_on(rebuilding, &part, error) : status;
    if (status == FCAP_OK) {
        status = fcap_pipeline_drain(part.pipeline, fcap_clock_os_monotonic_ms() + DRAIN_MS);
        enum fcap_status sink_status = fcap_redis_fenced_status(part.sink, error);
        if (status != FCAP_OK && sink_status == FCAP_OK) {
            (void)fcap_error_set(error, status, "commit: %s %s", fcap_status_text(status),
                                 fcap_pipeline_error(part.pipeline));
        }
    }
    fcap_progress_done(rebuilding->progress);
    if (status == FCAP_OK) {
        const struct fcap_counters *counters = fcap_pipeline_counters(part.pipeline);
        (void)printf("partition %d: %" PRIu64 " keys set, %" PRIu64 " removed, %" PRIu64
                     " expiries caught up\n",
                     part.partition, counters->pushes_set, counters->pushes_unlink,
                     counters->expiries);
        (void)fflush(stdout); /* For whoever watches. */
    }
    fcap_pipeline_close(part.pipeline);
    fcap_redis_fenced_close(part.sink);
    return status;
}

/* --- all of them --- */

/* A user is looked for where a record may be: loading a partition may take long. */
static bool is_meant(const struct rebuilding *rebuilding, size_t index)
{
    const struct fcap_state_partition *partition = &rebuilding->state.partitions[index];
    return rebuilding->user.size == 0 ||
           fcap_state_may_know(&rebuilding->state, partition, rebuilding->user);
}

static int rebuild_parts(struct rebuilding *rebuilding, const struct fcap_owner_verdict *verdicts)
{
    size_t done = 0;
    size_t refused = 0;
    if (rebuilding->state.count == 0) {
        (void)fprintf(stderr,
                      "fcapd: the state in %s holds no partition yet: there is nothing to "
                      "write (`fcapd run` fills it)\n",
                      rebuilding->config->state.directory);
        return FCAP_EXIT_TEMPORARY;
    }
    for (size_t i = 0; i < rebuilding->state.count; i++) {
        struct fcap_error error = {""};
        int32_t partition = rebuilding->state.partitions[i].partition;
        if (!is_meant(rebuilding, i)) {
            continue;
        }
        if (!verdicts[i].is_ours) {
            (void)fprintf(stderr, "fcapd: partition %d is left alone: %s\n", partition,
                          verdicts[i].reason);
            refused++;
            continue;
        }
        enum fcap_status status = rebuild_part(rebuilding, i, verdicts[i].found, &error);
        if (status == FCAP_FENCED || status == FCAP_STOPPED) {
            (void)fprintf(stderr, "fcapd: partition %d is left alone: %s\n", partition, error.text);
            refused++;
        } else if (status != FCAP_OK) {
            (void)fprintf(stderr,
                          "fcapd: partition %d: %s\n"
                          "fcapd: %zu partitions were written, this one in part; run it again\n",
                          partition, error.text, done);
            return fcap_daemon_exit_code(status);
        } else {
            done++;
        }
    }
    if (rebuilding->user.size > 0 && !rebuilding->user_is_known) {
        (void)fprintf(stderr, "fcapd: no partition %sknows the user\n",
                      refused > 0 ? "that is ours " : "");
        return FCAP_EXIT_TEMPORARY;
    }
    (void)printf("done: %zu partitions written, %zu left alone\n", done, refused);
    return done == 0 ? FCAP_EXIT_TEMPORARY : FCAP_EXIT_OK;
}

int fcap_rebuild_stopped(const struct fcap_rebuild_job *job)
{
    const struct fcap_config *config = job->config;
    const char *user = job->user;
    struct fcap_error error = {""};
    struct fcap_compose_room room;
    struct fcap_sink_redis_settings redis;
    struct fcap_memory_plan plan = fcap_memory_plan_make(config, 0);
    struct rebuilding rebuilding = {.config = config, .progress = job->progress};
    struct fcap_owner_verdict *verdicts = NULL;
    int exit_code;
    rebuilding.user = user == NULL ? FCAP_BYTES_NONE : fcap_bytes_of(user);
    fcap_compose_core(config, &plan, &rebuilding.settings);
    rebuilding.settings.check_keyed = false; /* `run` has looked. */
    if (user != NULL) {
        /* A commit before the gate opens would have to forget that Redis holds everything. */
        rebuilding.settings.commit_interval_ms = NEVER_MS;
    }
    fcap_compose_sink(config, 0, &room, &redis);
    enum fcap_status status = fcap_state_open_writable(config, &rebuilding.state, &error);
    if (status != FCAP_OK) {
        fcap_error_prefix(&error, "state.directory");
        goto out;
    }
    status = fcap_redis_client_open(&redis, &rebuilding.client, &error);
    if (status != FCAP_OK) {
        goto out;
    }
    verdicts = calloc(rebuilding.state.count + 1, sizeof *verdicts);
    FCAP_ASSERT(verdicts != NULL);
    status = fcap_owners_judge(config, rebuilding.client, &rebuilding.state, verdicts, &error);
out:
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd: %s\n", error.text);
        exit_code = fcap_daemon_exit_code(status);
    } else {
        exit_code = rebuild_parts(&rebuilding, verdicts);
    }
    free(verdicts);
    fcap_redis_client_close(rebuilding.client);
    fcap_state_close(&rebuilding.state);
    return exit_code;
}
