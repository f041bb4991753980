/* What the parts of an adoption share. Thread rule: the adopter's thread. */
#ifndef ADOPT_INTERNAL_H
#define ADOPT_INTERNAL_H

#include "object_list.h"

#include "fcap/adopter.h"

/* A checkpoint that was no good, and may not be tried again for the same partition. */
struct adopt_tried {
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    uint64_t log;      /* numbers of the manifests */
    uint64_t snapshot; /* 0: from whichever snapshot */
};

/* --- adopt_list.c: what is kept of all instances of a profile --------------------------------- */

/* One instance's checkpoints, newest first. */
struct adopt_instance {
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    uint64_t *numbers; /* of its manifests, newest first */
    size_t number_count;
    size_t read_count;                   /* so many of them have been read */
    struct fcap_checkpoint *checkpoints; /* those of them that are whole */
    size_t checkpoint_count;
};

/* Zero-initialised is empty. */
struct adopt_catalog {
    struct object_list listed; /* all objects of the profile */
    struct adopt_instance *instances;
    size_t instance_count;
};

/* Lists; what it held is gone. *beat() is called now and then. On failure it is empty. */
enum fcap_status adopt_catalog_fill(struct adopt_catalog *catalog, struct fcap_objects *objects,
                                    const char *profile, void (*beat)(void *context), void *context,
                                    struct fcap_error *error);
/* Reads manifests until `count` of the instance are whole, or there are no more. Those that are
 * damaged are left out; only a place that is away is a failure. */
enum fcap_status adopt_catalog_read(struct adopt_instance *instance, struct fcap_objects *objects,
                                    size_t count, struct fcap_error *error);
void adopt_catalog_done(struct adopt_catalog *catalog);

/* --- adopt_choose.c: which is the freshest; pure ---------------------------------------------- */

/* True when what is here can go on, and would be missed. */
bool adopt_is_state(const struct fcap_store_partition *here);

/* True when the candidate is far enough ahead of what is here. */
bool adopt_is_worth(const struct fcap_adopt_candidate *candidate,
                    const struct fcap_store_partition *here);

/* What a partition's choice is made from. */
struct adopt_question {
    int32_t partition;
    const struct fcap_store_partition *here;
    int64_t chosen_ms; /* wall clock: when somebody wanted the state that is here; 0: nobody did */
    const struct adopt_tried *tried;
    size_t tried_count;
};

/* The best candidate that was not tried yet, of what has been read; false: none is worth it. */
bool adopt_choose(const struct adopt_catalog *catalog, const struct adopt_question *question,
                  struct fcap_adopt_candidate *ret_candidate, const char **ret_prefix);

/* Is every object of the candidate listed, with its size? CORRUPT: which is not. */
enum fcap_status adopt_look_at(const struct adopt_catalog *catalog,
                               const struct fcap_adopt_candidate *candidate,
                               struct fcap_error *error);

#endif
