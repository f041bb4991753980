/* The checkpoints that are kept. */
#include "restore_internal.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

static void tell(const struct restore *restore, const char *text)
{
    if (restore->settings->tell != NULL) {
        restore->settings->tell(restore->settings->context, text);
    }
}

static void add(struct restore *restore, const struct fcap_checkpoint *checkpoint)
{
    restore->checkpoints = realloc(restore->checkpoints, (restore->checkpoint_count + 1) *
                                                             sizeof restore->checkpoints[0]);
    FCAP_ASSERT(restore->checkpoints != NULL);
    restore->checkpoints[restore->checkpoint_count++] = *checkpoint;
}

void restore_list_done(struct restore *restore)
{
    for (size_t i = 0; i < restore->checkpoint_count; i++) {
        fcap_checkpoint_done(&restore->checkpoints[i]);
    }
    free(restore->checkpoints);
    restore->checkpoints = NULL;
    restore->checkpoint_count = 0;
    object_list_done(&restore->listed);
}

/* One manifest. What is wrong with it is told, and only a place that is away is a failure. */
static enum fcap_status read_one(struct restore *restore, const char *name, uint64_t number,
                                 struct fcap_error *error)
{
    struct fcap_buffer bytes = {0};
    struct fcap_checkpoint checkpoint = {0};
    enum fcap_status status =
        object_read_all(restore->objects, name, OBJECT_MANIFEST_MAX, &bytes, error);
    if (status == FCAP_OK) {
        status = fcap_checkpoint_decode(fcap_buffer_bytes(&bytes), &checkpoint, error);
    }
    fcap_buffer_done(&bytes);
    if (status == FCAP_OK && checkpoint.number != number) {
        fcap_checkpoint_done(&checkpoint);
        status = fcap_error_set(error, FCAP_CORRUPT, "it is the manifest of another number");
    }
    if (status == FCAP_OK) {
        add(restore, &checkpoint);
        return FCAP_OK;
    }
    if (status == FCAP_UNAVAILABLE || status == FCAP_TIMEOUT || status == FCAP_BUSY) {
        return status;
    }
    fcap_error_prefix(error, name);
    restore->has_unreadable = restore->has_unreadable || status != FCAP_REFUSED;
    restore->not_taken++;
    tell(restore, error->text);
    return FCAP_OK;
}

enum fcap_status restore_list(struct restore *restore, uint64_t *ret_newest,
                              struct fcap_error *error)
{
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    const struct fcap_restore_settings *settings = restore->settings;
    restore_list_done(restore);
    restore->has_unreadable = false;
    *ret_newest = 0;
    (void)fcap_checkpoint_prefix(settings->profile, settings->instance, prefix); /* Its argument. */
    enum fcap_status status = object_list_fill(&restore->listed, restore->objects, prefix, error);
    for (size_t i = restore->listed.count; i > 0 && status == FCAP_OK; i--) {
        const char *name = restore->listed.entries[i - 1].name;
        size_t prefix_size = 0;
        uint64_t number = 0;
        if (!fcap_checkpoint_is_manifest(name, &prefix_size, &number) ||
            prefix_size != strlen(prefix)) {
            continue;
        }
        *ret_newest = number > *ret_newest ? number : *ret_newest;
        status = read_one(restore, name, number, error);
    }
    return status;
}

enum fcap_status fcap_restore_list(struct fcap_objects *objects, const char *profile,
                                   const char *instance, fcap_restore_visitor visitor,
                                   void *context, struct fcap_error *error)
{
    const struct fcap_restore_settings settings = {.profile = profile, .instance = instance};
    struct restore restore = {.settings = &settings, .objects = objects, .lock = -1};
    uint64_t newest = 0;
    enum fcap_status status = restore_list(&restore, &newest, error);
    for (size_t i = 0; i < restore.checkpoint_count && status == FCAP_OK; i++) {
        if (!visitor(context, &restore.checkpoints[i])) {
            break;
        }
    }
    restore_list_done(&restore);
    return status;
}
