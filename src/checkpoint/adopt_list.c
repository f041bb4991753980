/* The checkpoints of all instances of a profile. One listing finds them; manifests are read when
 * they are wanted, for each has a line for every file. */
#include "adopt_internal.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

#define BEAT_OBJECTS 1000

static void instance_done(struct adopt_instance *instance)
{
    for (size_t i = 0; i < instance->checkpoint_count; i++) {
        fcap_checkpoint_done(&instance->checkpoints[i]);
    }
    free(instance->checkpoints);
    free(instance->numbers);
}

void adopt_catalog_done(struct adopt_catalog *catalog)
{
    for (size_t i = 0; i < catalog->instance_count; i++) {
        instance_done(&catalog->instances[i]);
    }
    free(catalog->instances);
    object_list_done(&catalog->listed);
    *catalog = (struct adopt_catalog){0};
}

struct filling {
    struct adopt_catalog *catalog;
    void (*beat)(void *context);
    void *context;
};

static bool visit(void *context, const char *name, uint64_t size)
{
    struct filling *filling = context;
    object_list_add(&filling->catalog->listed, name, size);
    if (filling->catalog->listed.count % BEAT_OBJECTS == 0) {
        filling->beat(filling->context);
    }
    return true;
}

static struct adopt_instance *add_instance(struct adopt_catalog *catalog, const char *name,
                                           size_t prefix_size)
{
    struct adopt_instance *last =
        catalog->instance_count > 0 ? &catalog->instances[catalog->instance_count - 1] : NULL;
    if (last != NULL && strlen(last->prefix) == prefix_size &&
        strncmp(last->prefix, name, prefix_size) == 0) {
        return last;
    }
    catalog->instances =
        reallocarray(catalog->instances, catalog->instance_count + 1, sizeof catalog->instances[0]);
    FCAP_ASSERT(catalog->instances != NULL && prefix_size <= FCAP_OBJECT_NAME_MAX);
    struct adopt_instance *instance = &catalog->instances[catalog->instance_count++];
    *instance = (struct adopt_instance){.numbers = NULL};
    memcpy(instance->prefix, name, prefix_size);
    return instance;
}

/* The list is by name, so an instance's manifests stand together, and by number. */
static void find_instances(struct adopt_catalog *catalog)
{
    for (size_t i = catalog->listed.count; i > 0; i--) {
        const char *name = catalog->listed.entries[i - 1].name;
        size_t prefix_size = 0;
        uint64_t number = 0;
        if (!fcap_checkpoint_is_manifest(name, &prefix_size, &number)) {
            continue;
        }
        struct adopt_instance *instance = add_instance(catalog, name, prefix_size);
        instance->numbers = reallocarray(instance->numbers, instance->number_count + 1,
                                         sizeof instance->numbers[0]);
        FCAP_ASSERT(instance->numbers != NULL);
        instance->numbers[instance->number_count++] = number;
    }
}

enum fcap_status adopt_catalog_fill(struct adopt_catalog *catalog, struct fcap_objects *objects,
                                    const char *profile, void (*beat)(void *context), void *context,
                                    struct fcap_error *error)
{
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    struct filling filling = {catalog, beat, context};
    adopt_catalog_done(catalog);
    (void)fcap_checkpoint_prefix(profile, "x", prefix); /* Gives its argument. */
    strchr(prefix, '/')[1] = '\0';                      /* The profile's part. */
    enum fcap_status status = objects->ops->list(objects, prefix, visit, &filling, error);
    if (status != FCAP_OK) {
        adopt_catalog_done(catalog);
        return status;
    }
    object_list_sort(&catalog->listed); /* As they came. */
    find_instances(catalog);
    return FCAP_OK;
}

static void add_checkpoint(struct adopt_instance *instance,
                           const struct fcap_checkpoint *checkpoint)
{
    instance->checkpoints = reallocarray(instance->checkpoints, instance->checkpoint_count + 1,
                                         sizeof instance->checkpoints[0]);
    FCAP_ASSERT(instance->checkpoints != NULL);
    instance->checkpoints[instance->checkpoint_count++] = *checkpoint;
}

/* Another instance's manifest under this name would lead to the wrong objects. */
static bool is_of(const struct adopt_instance *instance, const struct fcap_checkpoint *checkpoint,
                  uint64_t number)
{
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    return checkpoint->number == number &&
           strcmp(instance->prefix,
                  fcap_checkpoint_prefix(checkpoint->profile, checkpoint->instance, prefix)) == 0;
}

enum fcap_status adopt_catalog_read(struct adopt_instance *instance, struct fcap_objects *objects,
                                    size_t count, struct fcap_error *error)
{
    while (instance->read_count < instance->number_count && instance->checkpoint_count < count) {
        char name[FCAP_OBJECT_NAME_MAX + 1];
        struct fcap_buffer bytes = {0};
        struct fcap_checkpoint checkpoint = {0};
        uint64_t number = instance->numbers[instance->read_count];
        (void)fcap_checkpoint_manifest_name(instance->prefix, number, name);
        enum fcap_status status =
            object_read_all(objects, name, OBJECT_MANIFEST_MAX, &bytes, error);
        if (status == FCAP_UNAVAILABLE || status == FCAP_TIMEOUT || status == FCAP_BUSY) {
            fcap_buffer_done(&bytes);
            return status;
        }
        instance->read_count++;
        if (status == FCAP_OK) {
            status = fcap_checkpoint_decode(fcap_buffer_bytes(&bytes), &checkpoint, error);
        }
        fcap_buffer_done(&bytes);
        if (status == FCAP_OK && is_of(instance, &checkpoint, number)) {
            add_checkpoint(instance, &checkpoint);
        } else if (status == FCAP_OK) {
            fcap_checkpoint_done(&checkpoint);
        }
    }
    return FCAP_OK;
}
