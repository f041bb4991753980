/* Files that are kept, found by name and size: each look-up costs the same, however many there are.
 * Thread rule: plain data; the files are borrowed. */
#ifndef KEPT_H
#define KEPT_H

#include "fcap/checkpoint.h"

struct kept_files {
    const struct fcap_checkpoint_file **slots; /* NULL: free */
    size_t slot_count;                         /* a power of two, more than twice the files */
    size_t count;
    size_t count_max;
    uint64_t looked_at; /* slots, by all calls: what a look-up costs */
};

/* Room for so many. The caller frees it with done(). */
void kept_files_init(struct kept_files *kept, size_t count_max);
/* Of several with one name and size the first one stays. */
void kept_files_add(struct kept_files *kept, const struct fcap_checkpoint_file *file);
/* NULL: there is none. */
const struct fcap_checkpoint_file *kept_files_find(struct kept_files *kept, const char *name,
                                                   uint64_t size);
/* Frees and zeroes. */
void kept_files_done(struct kept_files *kept);

#endif
