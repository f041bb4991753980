#include "checkpoints.h"

#include "compose.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/log.h"
#include "fcap/restore.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Objects that are opened with the first call that needs them, and again until that succeeds: a
 * volume that is away at the start is no reason not to count. */
struct objects_later {
    struct fcap_objects port; /* first */
    const char *directory;
    pthread_mutex_t lock;
    struct fcap_objects *inner; /* NULL: not open yet */
};

struct fcap_checkpoints {
    const struct fcap_config *config;
    const struct fcap_store_settings *store;
    struct objects_later objects;
    struct fcap_checkpointer *keeper;
};

/* --- objects --------------------------------------------------------------------------------- */

static enum fcap_status later_open(struct fcap_objects *port, struct fcap_objects **ret_inner,
                                   struct fcap_error *error)
{
    struct objects_later *later = (struct objects_later *)port;
    enum fcap_status status = FCAP_OK;
    (void)pthread_mutex_lock(&later->lock);
    if (later->inner == NULL) {
        status = fcap_objects_directory_open(later->directory, false, &later->inner, error);
    }
    *ret_inner = later->inner;
    (void)pthread_mutex_unlock(&later->lock);
    return status;
}

/* Writers and locks are the inner one's: whoever has one has opened it. */
static struct fcap_objects *inner_of(struct fcap_objects *port)
{
    return ((struct objects_later *)port)->inner;
}

static enum fcap_status later_begin(struct fcap_objects *port, const char *name,
                                    struct fcap_object_writer **ret_writer,
                                    struct fcap_error *error)
{
    struct fcap_objects *inner;
    enum fcap_status status = later_open(port, &inner, error);
    return status == FCAP_OK ? inner->ops->begin(inner, name, ret_writer, error) : status;
}

static enum fcap_status later_write(struct fcap_objects *port, struct fcap_object_writer *writer,
                                    struct fcap_bytes bytes, struct fcap_error *error)
{
    return inner_of(port)->ops->write(inner_of(port), writer, bytes, error);
}

static enum fcap_status later_finish(struct fcap_objects *port, struct fcap_object_writer *writer,
                                     struct fcap_error *error)
{
    return inner_of(port)->ops->finish(inner_of(port), writer, error);
}

static void later_abandon(struct fcap_objects *port, struct fcap_object_writer *writer)
{
    if (writer != NULL) {
        inner_of(port)->ops->abandon(inner_of(port), writer);
    }
}

static enum fcap_status later_read(struct fcap_objects *port, const char *name, uint64_t offset,
                                   uint8_t *data, size_t size, size_t *ret_size,
                                   struct fcap_error *error)
{
    struct fcap_objects *inner;
    enum fcap_status status = later_open(port, &inner, error);
    return status == FCAP_OK ? inner->ops->read(inner, name, offset, data, size, ret_size, error)
                             : status;
}

static enum fcap_status later_list(struct fcap_objects *port, const char *prefix,
                                   fcap_object_visitor visitor, void *context,
                                   struct fcap_error *error)
{
    struct fcap_objects *inner;
    enum fcap_status status = later_open(port, &inner, error);
    return status == FCAP_OK ? inner->ops->list(inner, prefix, visitor, context, error) : status;
}

static enum fcap_status later_remove(struct fcap_objects *port, const char *name,
                                     struct fcap_error *error)
{
    struct fcap_objects *inner;
    enum fcap_status status = later_open(port, &inner, error);
    return status == FCAP_OK ? inner->ops->remove(inner, name, error) : status;
}

static enum fcap_status later_sweep(struct fcap_objects *port, const char *prefix,
                                    struct fcap_error *error)
{
    struct fcap_objects *inner;
    enum fcap_status status = later_open(port, &inner, error);
    return status == FCAP_OK ? inner->ops->sweep(inner, prefix, error) : status;
}

static enum fcap_status later_lock(struct fcap_objects *port, const char *prefix,
                                   const char *holder, struct fcap_object_lock **ret_lock,
                                   struct fcap_error *error)
{
    struct fcap_objects *inner;
    enum fcap_status status = later_open(port, &inner, error);
    return status == FCAP_OK ? inner->ops->lock(inner, prefix, holder, ret_lock, error) : status;
}

static void later_unlock(struct fcap_objects *port, struct fcap_object_lock *lock)
{
    if (lock != NULL) {
        inner_of(port)->ops->unlock(inner_of(port), lock);
    }
}

static bool later_locate(struct fcap_objects *port, const char *name,
                         char ret_path[FCAP_OBJECT_PATH_MAX])
{
    struct fcap_objects *inner;
    return later_open(port, &inner, NULL) == FCAP_OK && inner->ops->locate != NULL &&
           inner->ops->locate(inner, name, ret_path);
}

static const struct fcap_objects_ops later_ops = {
    .begin = later_begin,
    .write = later_write,
    .finish = later_finish,
    .abandon = later_abandon,
    .read = later_read,
    .list = later_list,
    .remove = later_remove,
    .sweep = later_sweep,
    .lock = later_lock,
    .unlock = later_unlock,
    .locate = later_locate,
};

/* --- the choice at the start ----------------------------------------------------------------- */

static void tell_restore(void *context, const char *text)
{
    (void)context;
    FCAP_WARN("%s", text);
}

/* There is no state here. */
static enum fcap_status restore(struct fcap_checkpoints *checkpoints, struct fcap_error *error)
{
    const struct fcap_config *config = checkpoints->config;
    struct fcap_checkpoint_place_rocksdb place;
    struct fcap_restore_report report;
    fcap_checkpoint_place_rocksdb_init(&place, checkpoints->store);
    const struct fcap_restore_settings settings = {.profile = config->profile,
                                                   .instance = config->instance,
                                                   .directory = config->state.directory,
                                                   .place = &place.place,
                                                   .tell = tell_restore};
    int64_t started_ms = fcap_clock_os_monotonic_ms();
    enum fcap_status status = fcap_restore(&settings, &checkpoints->objects.port, &report, error);
    if (status == FCAP_REFUSED) {
        FCAP_INFO("state: it is read from Kafka, for there is none in %s, and %s",
                  config->state.directory, error->text);
        return FCAP_OK;
    }
    if (status != FCAP_OK) {
        fcap_error_prefix(error, "there is no state, and checkpoint.directory cannot give one");
        return status;
    }
    FCAP_INFO("state: checkpoint %" PRIu64 " was restored in %" PRId64 " ms, for there was none in "
              "%s: as of %" PRId64 " s ago, %" PRIu64 " files, %" PRIu64
              " batches of the changelog",
              report.number, fcap_clock_os_monotonic_ms() - started_ms, config->state.directory,
              (fcap_clock_os_wall_ms() - report.written_ms) / 1000, report.files, report.batches);
    return FCAP_OK;
}

enum fcap_status fcap_checkpoints_open(const struct fcap_config *config,
                                       const struct fcap_store_settings *store,
                                       struct fcap_checkpoints **ret_checkpoints,
                                       struct fcap_error *error)
{
    *ret_checkpoints = NULL;
    if (config->checkpoint.directory == NULL) {
        return FCAP_OK;
    }
    struct fcap_checkpoints *checkpoints = calloc(1, sizeof *checkpoints);
    FCAP_ASSERT(checkpoints != NULL);
    checkpoints->config = config;
    checkpoints->store = store;
    checkpoints->objects.port.ops = &later_ops;
    checkpoints->objects.directory = config->checkpoint.directory;
    FCAP_ASSERT(pthread_mutex_init(&checkpoints->objects.lock, NULL) == 0);
    enum fcap_status status = FCAP_OK;
    if (fcap_restore_is_free(config->state.directory)) {
        status = restore(checkpoints, error);
    } else {
        FCAP_INFO("state: that in %s, as it was left", config->state.directory);
    }
    if (status != FCAP_OK) {
        (void)fcap_checkpoints_close(checkpoints, 0); /* Nothing runs yet. */
        return status;
    }
    *ret_checkpoints = checkpoints;
    return FCAP_OK;
}

/* --- keeping --------------------------------------------------------------------------------- */

void fcap_checkpoints_tell(void *context, enum fcap_checkpointer_level level, const char *text)
{
    (void)context;
    switch (level) {
    case FCAP_CHECKPOINTER_ERROR:
        FCAP_ERROR("%s", text);
        break;
    case FCAP_CHECKPOINTER_WARN:
        FCAP_WARN("%s", text);
        break;
    case FCAP_CHECKPOINTER_INFO:
        FCAP_INFO("%s", text);
        break;
    }
}

enum fcap_status fcap_checkpoints_follow(struct fcap_checkpoints *checkpoints,
                                         struct fcap_checkpoint_state *state,
                                         struct fcap_error *error)
{
    struct fcap_checkpointer_settings settings;
    if (checkpoints == NULL) {
        return FCAP_OK;
    }
    fcap_compose_checkpointer(checkpoints->config, &settings);
    settings.clock = fcap_clock_os();
    settings.tell = fcap_checkpoints_tell;
    enum fcap_status status = fcap_checkpointer_open(&settings, &checkpoints->objects.port, state,
                                                     &checkpoints->keeper, error);
    if (status == FCAP_OK) {
        status = fcap_checkpointer_start(checkpoints->keeper);
        if (status != FCAP_OK) {
            (void)fcap_error_set(error, status, "threads for checkpoints");
        }
    }
    return status;
}

struct fcap_checkpointer *fcap_checkpoints_keeper(struct fcap_checkpoints *checkpoints)
{
    return checkpoints == NULL ? NULL : checkpoints->keeper;
}

struct fcap_objects *fcap_checkpoints_objects(struct fcap_checkpoints *checkpoints)
{
    return checkpoints == NULL ? NULL : &checkpoints->objects.port;
}

bool fcap_checkpoints_close(struct fcap_checkpoints *checkpoints, int64_t deadline_ms)
{
    if (checkpoints == NULL) {
        return true;
    }
    if (checkpoints->keeper != NULL &&
        fcap_checkpointer_stop(checkpoints->keeper, deadline_ms) != FCAP_OK) {
        FCAP_WARN("checkpoints: %s does not answer; the last changes are not kept there",
                  checkpoints->config->checkpoint.directory);
        return false; /* Its threads use all of this. */
    }
    fcap_checkpointer_close(checkpoints->keeper);
    fcap_objects_directory_close(checkpoints->objects.inner);
    (void)pthread_mutex_destroy(&checkpoints->objects.lock); /* Nobody holds it. */
    free(checkpoints);
    return true;
}
