/* Objects by name, as a listing gives them. Thread rule: plain data. */
#ifndef OBJECT_LIST_H
#define OBJECT_LIST_H

#include "fcap/objects.h"

struct object_entry {
    char *name;
    uint64_t size; /* bytes */
};

/* Zero-initialised is empty. */
struct object_list {
    struct object_entry *entries; /* by name */
    size_t count;
    size_t capacity;
};

/* Fills the list with all objects of a prefix; what it held is gone. On failure it is empty. */
enum fcap_status object_list_fill(struct object_list *list, struct fcap_objects *objects,
                                  const char *prefix, struct fcap_error *error);
/* Appends; keeps no order. */
void object_list_add(struct object_list *list, const char *name, uint64_t size);
void object_list_sort(struct object_list *list);
/* NULL: it is not there. The list is sorted. */
const struct object_entry *object_list_find(const struct object_list *list, const char *name);
/* Frees and zeroes. */
void object_list_done(struct object_list *list);

/* All of one object, appended. LIMIT: it is larger than `size_max`. */
enum fcap_status object_read_all(struct fcap_objects *objects, const char *name, size_t size_max,
                                 struct fcap_buffer *buffer, struct fcap_error *error);

/* Largest manifest that is read. */
#define OBJECT_MANIFEST_MAX ((size_t)256 << 20)

#endif
