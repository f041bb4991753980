/* The first look at what is kept: whose it is, and whether the state goes on from there. */
#include "checkpointer_internal.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static enum fcap_status take_lock(struct fcap_checkpointer *checkpointer, struct fcap_error *error)
{
    char host[256] = "";
    char holder[300];
    if (checkpointer->object_lock != NULL) {
        return FCAP_OK; /* An earlier try has it. */
    }
    (void)gethostname(host, sizeof host - 1); /* Without a name the number has to do. */
    (void)snprintf(holder, sizeof holder, "fcapd on %s, process %ld", host, (long)getpid());
    return checkpointer->objects->ops->lock(checkpointer->objects, checkpointer->prefix, holder,
                                            &checkpointer->object_lock, error);
}

/* Reads one manifest. CORRUPT: it is damaged and will be cut. */
static enum fcap_status read_manifest(struct fcap_checkpointer *checkpointer, const char *name,
                                      uint64_t number, struct fcap_checkpoint *ret_checkpoint,
                                      struct fcap_error *error)
{
    struct fcap_buffer bytes = {0};
    enum fcap_status status =
        object_read_all(checkpointer->objects, name, OBJECT_MANIFEST_MAX, &bytes, error);
    if (status == FCAP_OK) {
        status = fcap_checkpoint_decode(fcap_buffer_bytes(&bytes), ret_checkpoint, error);
    }
    if (status == FCAP_OK && ret_checkpoint->number != number) {
        fcap_checkpoint_done(ret_checkpoint);
        status = fcap_error_set(error, FCAP_CORRUPT, "it is the manifest of another number");
    }
    if (status != FCAP_OK) {
        fcap_error_prefix(error, name);
    }
    fcap_buffer_done(&bytes);
    return status;
}

/* It is damaged, and will be cut: also when the volume fails to give its bytes again and again.
 * What the state needs to know of it, its numbers, it was asked at the start (choose.c). */
static bool is_unreadable(struct fcap_checkpointer *checkpointer, enum fcap_status status)
{
    enum { TRIES = 3 };
    if (status == FCAP_IO) {
        checkpointer->manifest_failures++;
        return checkpointer->manifest_failures > TRIES;
    }
    return status == FCAP_CORRUPT || status == FCAP_LIMIT || status == FCAP_REFUSED;
}

/* All manifests, oldest first, become generations; *ret_newest the number of the newest, damaged or
 * not, and *ret_furthest the furthest sequence number of the state's own lineage. */
static enum fcap_status read_manifests(struct fcap_checkpointer *checkpointer,
                                       const struct object_list *list, uint64_t *ret_newest,
                                       uint64_t *ret_furthest, struct fcap_error *error)
{
    *ret_newest = *ret_furthest = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct fcap_checkpoint checkpoint = {0};
        struct fcap_error why = {""};
        size_t prefix_size = 0;
        uint64_t number = 0;
        if (!fcap_checkpoint_is_manifest(list->entries[i].name, &prefix_size, &number) ||
            prefix_size != strlen(checkpointer->prefix)) {
            continue;
        }
        *ret_newest = number;
        enum fcap_status status =
            read_manifest(checkpointer, list->entries[i].name, number, &checkpoint, &why);
        if (is_unreadable(checkpointer, status)) {
            checkpointer_tell(checkpointer, FCAP_CHECKPOINTER_WARN,
                              "checkpoints: a manifest is not used: %s", why.text);
            checkpointer->has_unread = true;
            continue;
        }
        if (status != FCAP_OK) {
            *error = why;
            return status;
        }
        if (memcmp(&checkpoint.lineage, &checkpointer->start.lineage, sizeof checkpoint.lineage) ==
                0 &&
            checkpoint.sequence > *ret_furthest) {
            *ret_furthest = checkpoint.sequence;
        }
        (void)pthread_mutex_lock(&checkpointer->lock);
        checkpointer_add(checkpointer, &checkpoint);
        (void)pthread_mutex_unlock(&checkpointer->lock);
    }
    return FCAP_OK;
}

/* The state has lost its last batches, which are kept: their numbers must not be given again. */
static enum fcap_status leave_lineage(struct fcap_checkpointer *checkpointer, uint64_t furthest,
                                      struct fcap_error *error)
{
    const uint64_t sequence = checkpointer->start.sequence;
    if (!checkpointer->may_fork) {
        return fcap_error_set(
            error, FCAP_FOREIGN,
            "the state has lost batches that checkpoints hold (it began at %" PRIu64
            ", they reach %" PRIu64 "); restart fcapd",
            sequence, furthest);
    }
    enum fcap_status status = checkpointer->state->ops->fork(checkpointer->state, error);
    if (status != FCAP_OK) {
        fcap_error_prefix(error, "leave the lineage of the checkpoints");
        return FCAP_STOPPED;
    }
    checkpointer->state->ops->position(checkpointer->state, &checkpointer->start);
    checkpointer_tell(checkpointer, FCAP_CHECKPOINTER_WARN,
                      "checkpoints: the state has lost batches %" PRIu64 " to %" PRIu64
                      ", which are kept; it goes on as another lineage and reads them again",
                      sequence + 1, furthest);
    return FCAP_OK;
}

/* The newest checkpoint is exactly the state as it was at open. With the lock held. */
static void join(struct fcap_checkpointer *checkpointer, const struct fcap_checkpoint *newest)
{
    struct fcap_checkpoint *tip = &checkpointer->tip;
    checkpointer_copy(tip, newest);
    checkpointer->complete_ms = checkpointer->opened_ms;
    checkpointer->metrics.number = newest->number;
}

/* What lies in the future is new. */
static int64_t age_ms(int64_t wall_ms, int64_t then_ms)
{
    const int64_t since_ms = then_ms > 0 ? then_ms : 0;
    return wall_ms > since_ms ? wall_ms - since_ms : 0;
}

static void compare(struct fcap_checkpointer *checkpointer)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    const struct checkpointer_generation *generation = checkpointer_newest(checkpointer);
    const struct fcap_checkpoint *newest = generation != NULL ? &generation->newest : NULL;
    struct fcap_clock *clock = checkpointer->settings.clock;
    bool is_same =
        newest != NULL && newest->sequence == checkpointer->start.sequence &&
        memcmp(&newest->lineage, &checkpointer->start.lineage, sizeof newest->lineage) == 0;
    if (newest != NULL) {
        int64_t wall_ms = clock->wall_ms(clock);
        int64_t now_ms = checkpointer_now_ms(checkpointer);
        checkpointer->complete_ms = now_ms - age_ms(wall_ms, newest->made_ms);
        checkpointer->snapshot_ms = now_ms - age_ms(wall_ms, newest->snapshot_ms);
        checkpointer->metrics.number = newest->number;
    }
    if (is_same) {
        join(checkpointer, newest);
        checkpointer->snapshot_due_ms =
            checkpointer->snapshot_ms + checkpointer->settings.materialization_interval_ms;
    } else {
        checkpointer->is_alive = false; /* A snapshot is taken at once. */
        checkpointer_drop_queue(checkpointer);
    }
    checkpointer->is_begun = true;
    checkpointer_wake_materialize(checkpointer);
    char text[200] = "there is none yet; a snapshot is taken";
    if (newest != NULL) {
        (void)snprintf(text, sizeof text, "number %" PRIu64 " is kept; %s", newest->number,
                       is_same ? "the state goes on from it"
                               : "the state does not go on from it, a snapshot is taken");
    }
    (void)pthread_mutex_unlock(&checkpointer->lock);
    checkpointer_tell(checkpointer, FCAP_CHECKPOINTER_INFO, "checkpoints: %s", text);
}

enum fcap_status checkpointer_begin(struct fcap_checkpointer *checkpointer,
                                    struct fcap_error *error)
{
    struct object_list list = {0};
    struct fcap_objects *objects = checkpointer->objects;
    uint64_t newest = 0;
    uint64_t furthest = 0;
    enum fcap_status status = take_lock(checkpointer, error);
    if (status != FCAP_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer_generations_done(checkpointer); /* Of a try that failed half-way. */
    (void)pthread_mutex_unlock(&checkpointer->lock);
    status = objects->ops->sweep(objects, checkpointer->prefix, error);
    if (status == FCAP_OK) {
        status = object_list_fill(&list, objects, checkpointer->prefix, error);
    }
    if (status == FCAP_OK) {
        status = read_manifests(checkpointer, &list, &newest, &furthest, error);
    }
    object_list_done(&list);
    if (status == FCAP_OK && furthest > checkpointer->start.sequence) {
        status = leave_lineage(checkpointer, furthest, error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    checkpointer->number_next = newest + 1;
    compare(checkpointer);
    return FCAP_OK;
}
