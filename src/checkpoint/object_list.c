#include "object_list.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

void object_list_done(struct object_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->entries[i].name);
    }
    free(list->entries);
    *list = (struct object_list){0};
}

void object_list_add(struct object_list *list, const char *name, uint64_t size)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity * 2 + 64;
        list->entries = realloc(list->entries, list->capacity * sizeof list->entries[0]);
        FCAP_ASSERT(list->entries != NULL);
    }
    struct object_entry *entry = &list->entries[list->count++];
    entry->name = strdup(name);
    FCAP_ASSERT(entry->name != NULL);
    entry->size = size;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct object_entry *)a)->name, ((const struct object_entry *)b)->name);
}

void object_list_sort(struct object_list *list)
{
    if (list->count > 0) {
        qsort(list->entries, list->count, sizeof list->entries[0], compare);
    }
}

const struct object_entry *object_list_find(const struct object_list *list, const char *name)
{
    const struct object_entry wanted = {.name = (char *)name};
    if (list->count == 0) {
        return NULL;
    }
    return bsearch(&wanted, list->entries, list->count, sizeof list->entries[0], compare);
}

static bool visit(void *context, const char *name, uint64_t size)
{
    object_list_add(context, name, size);
    return true;
}

enum fcap_status object_list_fill(struct object_list *list, struct fcap_objects *objects,
                                  const char *prefix, struct fcap_error *error)
{
    object_list_done(list);
    enum fcap_status status = objects->ops->list(objects, prefix, visit, list, error);
    if (status != FCAP_OK) {
        object_list_done(list);
    }
    return status;
}

enum fcap_status object_read_all(struct fcap_objects *objects, const char *name, size_t size_max,
                                 struct fcap_buffer *buffer, struct fcap_error *error)
{
    const size_t piece = 1 << 16;
    const size_t begin = buffer->size;
    for (;;) {
        size_t size = 0;
        uint8_t *at = fcap_buffer_reserve(buffer, piece);
        enum fcap_status status =
            objects->ops->read(objects, name, buffer->size - begin, at, piece, &size, error);
        if (status != FCAP_OK) {
            return status;
        }
        buffer->size += size;
        if (size < piece) {
            return FCAP_OK;
        }
        if (buffer->size - begin > size_max) {
            return fcap_error_set(error, FCAP_LIMIT, "%s: larger than %zu bytes", name, size_max);
        }
    }
}
