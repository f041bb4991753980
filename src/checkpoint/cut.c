/* What is needed no more: every object of this instance that no retained checkpoint names and
 * nobody is making. So whatever a crash or a failed try has left goes, too. */
#include "checkpointer_internal.h"

#include <stdlib.h>

static void keep_files(struct object_list *kept, const struct fcap_checkpoint_file *files,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        object_list_add(kept, files[i].object, 0);
    }
}

static void keep_segments(struct object_list *kept, const struct fcap_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->segment_count; i++) {
        object_list_add(kept, checkpoint->segments[i].object, 0);
    }
}

static void keep_manifest(struct object_list *kept, const char *prefix, uint64_t number)
{
    char name[FCAP_OBJECT_NAME_MAX + 1];
    object_list_add(kept, fcap_checkpoint_manifest_name(prefix, number, name), 0);
}

/* What the shipper changes. With the lock held. */
static void keep_changing(const struct fcap_checkpointer *checkpointer, struct object_list *kept)
{
    for (size_t i = 0; i < checkpointer->generation_count; i++) {
        const struct checkpointer_generation *generation = &checkpointer->generations[i];
        keep_segments(kept, &generation->newest);
        for (size_t k = 0; k < generation->number_count; k++) {
            keep_manifest(kept, checkpointer->prefix, generation->numbers[k]);
        }
    }
    keep_segments(kept, &checkpointer->tip);
    if (checkpointer->segment.first > 0) {
        object_list_add(kept, checkpointer->segment.object, 0);
    }
    if (checkpointer->trying != NULL) {
        keep_segments(kept, checkpointer->trying); /* Its files are a generation's. */
        keep_manifest(kept, checkpointer->prefix, checkpointer->trying->number);
    }
}

static void keep_all(struct fcap_checkpointer *checkpointer, struct object_list *kept)
{
    struct checkpointer_held *held = NULL;
    size_t count = checkpointer_hold(checkpointer, &held);
    for (size_t i = 0; i < count; i++) {
        keep_files(kept, held[i].files, held[i].count);
    }
    free(held);
    keep_files(kept, checkpointer->pending.files, checkpointer->pending.file_count);
    keep_files(kept, checkpointer->sent.files, checkpointer->sent.file_count);
    (void)pthread_mutex_lock(&checkpointer->lock);
    keep_changing(checkpointer, kept);
    checkpointer->manifests_needless = 0;
    (void)pthread_mutex_unlock(&checkpointer->lock);
}

static bool is_manifest(const char *name)
{
    size_t prefix_size = 0;
    uint64_t number = 0;
    return fcap_checkpoint_is_manifest(name, &prefix_size, &number);
}

/* A snapshot that was completed is one from which everything can be restored; before there is one,
 * nothing goes that a manifest may need which could not be read. */
bool checkpointer_may_cut(const struct fcap_checkpointer *checkpointer)
{
    return checkpointer->metrics.snapshots > 0 || !checkpointer->has_unread;
}

enum fcap_status checkpointer_cut_list(struct fcap_checkpointer *checkpointer,
                                       struct fcap_error *error)
{
    struct object_list all = {0};
    struct object_list kept = {0};
    object_list_done(&checkpointer->doomed);
    /* First the listing: what is made after it is not in it, and what is in it was named before. */
    enum fcap_status status =
        object_list_fill(&all, checkpointer->objects, checkpointer->prefix, error);
    keep_all(checkpointer, &kept);
    object_list_sort(&kept);
    /* First the manifests: so none is ever left that names what is gone. */
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < all.count; i++) {
            const char *name = all.entries[i].name;
            if (is_manifest(name) == (pass == 0) && object_list_find(&kept, name) == NULL &&
                fcap_checkpoint_is_own(checkpointer->prefix, name)) {
                object_list_add(&checkpointer->doomed, name, all.entries[i].size);
            }
        }
    }
    object_list_done(&all);
    object_list_done(&kept);
    return status;
}
