#include "checkpoint_volume.h"

#include "fcap/assert.h"
#include "fcap/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the state's directory: which place its checkpoints are in. */
#define KNOWN   ".objects-id"
#define VERSION "fcapd-objects-id 1\n"

/* What a directory of objects has (docs/DATA.md). */
#define MARK ".fcap-objects"

enum { TEXT_BYTES = 8192 };

struct fcap_checkpoint_volume {
    struct fcap_objects port; /* first */
    const struct fcap_config *config;
    pthread_mutex_t lock;
    struct fcap_objects *inner; /* NULL: not open yet */
    bool is_remembered;
    bool has_told; /* that it could not be remembered */
};

/* --- which one it is ------------------------------------------------------------------------- */

static bool path_within(const char *directory, const char *name, char path[4400])
{
    int size = snprintf(path, 4400, "%s/%s", directory, name);
    return size > 0 && size < 4400;
}

/* What the state knows about this path: it may have been used with another one. */
static bool read_known(const struct fcap_checkpoint_volume *volume,
                       char ret_id[FCAP_OBJECTS_ID_DIGITS + 1])
{
    char path[4400];
    char text[TEXT_BYTES];
    char wanted[TEXT_BYTES];
    const struct fcap_config *config = volume->config;
    FILE *file = path_within(config->state.directory, KNOWN, path) ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return false;
    }
    size_t size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file); /* Only read. */
    text[size] = '\0';
    const char *id = text + strlen(VERSION "id ");
    if (strncmp(text, VERSION "id ", strlen(VERSION "id ")) != 0 ||
        strspn(id, "0123456789abcdef") != FCAP_OBJECTS_ID_DIGITS) {
        return false;
    }
    (void)snprintf(wanted, sizeof wanted, "\npath %s\n", config->checkpoint.directory); /* Fits. */
    memcpy(ret_id, id, FCAP_OBJECTS_ID_DIGITS);
    ret_id[FCAP_OBJECTS_ID_DIGITS] = '\0';
    return strcmp(id + FCAP_OBJECTS_ID_DIGITS, wanted) == 0;
}

static bool write_known(const struct fcap_checkpoint_volume *volume)
{
    char path[4400];
    char writing[4400];
    char text[TEXT_BYTES];
    const struct fcap_config *config = volume->config;
    if (!path_within(config->state.directory, KNOWN, path) ||
        !path_within(config->state.directory, KNOWN ".new", writing)) {
        errno = ENAMETOOLONG;
        return false;
    }
    int size = snprintf(text, sizeof text, VERSION "id %s\npath %s\n",
                        fcap_objects_directory_id(volume->inner), config->checkpoint.directory);
    int file = open(writing, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (file < 0) {
        return false;
    }
    errno = ENOSPC; /* What a short write means. */
    bool done = write(file, text, (size_t)size) == size && fsync(file) == 0;
    int code = errno;
    (void)close(file); /* Synced, or given up. */
    errno = code;
    return done && rename(writing, path) == 0;
}

/* With the lock held. Without a directory of the state it has to wait. */
static void remember(struct fcap_checkpoint_volume *volume)
{
    const char *state = volume->config->state.directory;
    if (volume->is_remembered || volume->inner == NULL || access(state, F_OK) != 0) {
        return;
    }
    volume->is_remembered = write_known(volume);
    if (!volume->is_remembered && !volume->has_told) {
        FCAP_WARN("checkpoints: %s/" KNOWN " cannot be written (%s): a volume that is not mounted "
                  "would not be missed at the next start",
                  state, strerror(errno));
        volume->has_told = true;
    }
}

/* With the lock held. */
static enum fcap_status open_inner(struct fcap_checkpoint_volume *volume, struct fcap_error *error)
{
    char id[FCAP_OBJECTS_ID_DIGITS + 1];
    char mark[4400];
    const char *directory = volume->config->checkpoint.directory;
    if (read_known(volume, id)) {
        enum fcap_status status =
            fcap_objects_directory_open_known(directory, id, &volume->inner, error);
        volume->is_remembered = status == FCAP_OK;
        if (status == FCAP_UNAVAILABLE && error != NULL) {
            struct fcap_error text = *error;
            (void)fcap_error_set(error, status,
                                 "%.700s; to begin anew with what is there, remove %.200s/" KNOWN,
                                 text.text, volume->config->state.directory);
        }
        return status;
    }
    bool has_mark = path_within(directory, MARK, mark) && access(mark, F_OK) == 0;
    enum fcap_status status = fcap_objects_directory_open(
        directory, volume->config->checkpoint.must_exist, &volume->inner, error);
    if (status == FCAP_OK && !has_mark) {
        FCAP_WARN("checkpoints: %s held none of anybody, and was made; if a volume should be "
                  "mounted there, stop fcapd and mount it (checkpoint.must_exist: true waits for "
                  "it)",
                  directory);
    }
    remember(volume);
    return status;
}

/* --- the port -------------------------------------------------------------------------------- */

static enum fcap_status later_open(struct fcap_objects *port, struct fcap_objects **ret_inner,
                                   struct fcap_error *error)
{
    struct fcap_checkpoint_volume *volume = (struct fcap_checkpoint_volume *)port;
    enum fcap_status status = FCAP_OK;
    (void)pthread_mutex_lock(&volume->lock);
    if (volume->inner == NULL) {
        status = open_inner(volume, error);
    }
    *ret_inner = volume->inner;
    (void)pthread_mutex_unlock(&volume->lock);
    return status;
}

/* Writers and locks are the inner one's: whoever has one has opened it. */
static struct fcap_objects *inner_of(struct fcap_objects *port)
{
    return ((struct fcap_checkpoint_volume *)port)->inner;
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

/* --- its life -------------------------------------------------------------------------------- */

struct fcap_checkpoint_volume *fcap_checkpoint_volume_open(const struct fcap_config *config)
{
    struct fcap_checkpoint_volume *volume = calloc(1, sizeof *volume);
    FCAP_ASSERT(volume != NULL);
    volume->port.ops = &later_ops;
    volume->config = config;
    FCAP_ASSERT(pthread_mutex_init(&volume->lock, NULL) == 0);
    return volume;
}

struct fcap_objects *fcap_checkpoint_volume_objects(struct fcap_checkpoint_volume *volume)
{
    return &volume->port;
}

void fcap_checkpoint_volume_remember(struct fcap_checkpoint_volume *volume)
{
    (void)pthread_mutex_lock(&volume->lock);
    remember(volume);
    (void)pthread_mutex_unlock(&volume->lock);
}

void fcap_checkpoint_volume_close(struct fcap_checkpoint_volume *volume)
{
    if (volume == NULL) {
        return;
    }
    fcap_objects_directory_close(volume->inner);
    (void)pthread_mutex_destroy(&volume->lock); /* Nobody holds it. */
    free(volume);
}
