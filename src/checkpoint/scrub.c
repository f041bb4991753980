/* Kept objects are read back while there is nothing else to do, so that one that rots is replaced
 * before a restore needs it.
 *
 * When an object is due follows from its name: one moment in each interval. So the work is spread
 * evenly, and nothing needs to be remembered from one process to the next. The materialiser does
 * it between snapshots: files of generations stay where they are meanwhile. */
#include "checkpointer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS                                                                                    \
    60000 /* longest time between two looks at what is due; other objects come and go              \
           */

/* --- which objects there are ------------------------------------------------------------------ */

/* One that is kept. */
struct item {
    const char *object;
    uint64_t size;
    uint64_t hash;
    bool is_manifest;
};

/* Gets one; false: stop. */
typedef bool (*visitor)(void *context, const struct item *item);

static bool visit_files(const struct checkpointer_held *held, visitor visit, void *context)
{
    for (size_t i = 0; i < held->count; i++) {
        const struct fcap_checkpoint_file *file = &held->files[i];
        const struct item item = {file->object, file->size, file->hash, false};
        if (!visit(context, &item)) {
            return false;
        }
    }
    return true;
}

/* With the lock held. */
static bool visit_changing(const struct fcap_checkpointer *checkpointer, visitor visit,
                           void *context)
{
    const struct fcap_checkpoint *tip = &checkpointer->tip;
    for (size_t i = 0; i < tip->segment_count; i++) {
        const struct fcap_checkpoint_segment *segment = &tip->segments[i];
        const struct item item = {segment->object, segment->size, segment->hash, false};
        if (!visit(context, &item)) {
            return false;
        }
    }
    for (size_t i = 0; i < checkpointer->generation_count; i++) {
        const struct checkpointer_generation *generation = &checkpointer->generations[i];
        char name[FCAP_OBJECT_NAME_MAX + 1];
        if (generation->number_count == 0) {
            continue;
        }
        const struct item item = {
            fcap_checkpoint_manifest_name(checkpointer->prefix,
                                          generation->numbers[generation->number_count - 1], name),
            0, 0, true};
        if (!visit(context, &item)) {
            return false;
        }
    }
    return true;
}

static void visit_all(struct fcap_checkpointer *checkpointer, visitor visit, void *context)
{
    struct checkpointer_held *held = NULL;
    const size_t count = checkpointer_hold(checkpointer, &held);
    bool goes_on = true;
    for (size_t i = 0; i < count && goes_on; i++) {
        goes_on = visit_files(&held[i], visit, context);
    }
    free(held);
    if (goes_on) {
        (void)pthread_mutex_lock(&checkpointer->lock);
        (void)visit_changing(checkpointer, visit, context);
        (void)pthread_mutex_unlock(&checkpointer->lock);
    }
}

static bool compare_name(void *context, const struct item *item)
{
    const char **wanted = context;
    if (strcmp(item->object, *wanted) != 0) {
        return true;
    }
    *wanted = NULL;
    return false;
}

static bool is_needed(struct fcap_checkpointer *checkpointer, const char *object)
{
    const char *wanted = object;
    visit_all(checkpointer, compare_name, &wanted);
    return wanted == NULL;
}

/* --- which one is due ------------------------------------------------------------------------- */

struct pick {
    struct fcap_checkpointer *checkpointer;
    int64_t due_ms; /* of the first one so far; INT64_MAX: none */
};

/* The first moment of this object that comes after what has been read. */
static int64_t next_due_ms(const struct fcap_checkpointer *checkpointer, const char *object)
{
    const struct checkpointer_scrub *scrub = &checkpointer->scrub;
    const int64_t interval_ms = checkpointer->settings.scrub_interval_ms;
    int64_t phase_ms = (int64_t)(fcap_hash64(fcap_bytes_of(object), 0) % (uint64_t)interval_ms);
    int64_t due_ms = scrub->done_ms - scrub->done_ms % interval_ms + phase_ms;
    bool is_done =
        due_ms < scrub->done_ms || (due_ms == scrub->done_ms && strcmp(object, scrub->done) <= 0);
    return is_done ? due_ms + interval_ms : due_ms;
}

static bool visit_due(void *context, const struct item *item)
{
    struct pick *pick = context;
    struct checkpointer_scrub *scrub = &pick->checkpointer->scrub;
    int64_t due_ms = next_due_ms(pick->checkpointer, item->object);
    bool is_first = due_ms < pick->due_ms ||
                    (due_ms == pick->due_ms && strcmp(item->object, scrub->object) < 0);
    if (is_first && object_list_find(&pick->checkpointer->rotten, item->object) == NULL) {
        pick->due_ms = due_ms;
        (void)snprintf(scrub->object, sizeof scrub->object, "%s", item->object); /* It fits. */
        scrub->size = item->size;
        scrub->hash = item->hash;
        scrub->is_manifest = item->is_manifest;
    }
    return true;
}

/* Takes the next object in hand; gives false when it is too early, and *ret_due_ms (monotonic). All
 * of them are looked at for each: 20,000 in a week are 20 s of work in it. */
static bool take_next(struct fcap_checkpointer *checkpointer, int64_t now_ms, int64_t *ret_due_ms)
{
    struct checkpointer_scrub *scrub = &checkpointer->scrub;
    struct fcap_clock *clock = checkpointer->settings.clock;
    const int64_t wall_ms = clock->wall_ms(clock);
    const int64_t interval_ms = checkpointer->settings.scrub_interval_ms;
    if (scrub->done_ms <= 0 || scrub->done_ms > wall_ms) { /* It was set back. */
        scrub->done_ms = wall_ms;
    } else if (scrub->done_ms < wall_ms - interval_ms) { /* It jumped, or this rested long. */
        scrub->done_ms = wall_ms - interval_ms;
    }
    struct pick pick = {checkpointer, INT64_MAX};
    scrub->object[0] = '\0';
    visit_all(checkpointer, visit_due, &pick);
    if (scrub->object[0] == '\0' || pick.due_ms > wall_ms) {
        int64_t wait_ms = scrub->object[0] == '\0' ? LOOK_MS : pick.due_ms - wall_ms;
        scrub->object[0] = '\0';
        *ret_due_ms = now_ms + (wait_ms < LOOK_MS ? wait_ms : LOOK_MS);
        return false;
    }
    scrub->due_ms = pick.due_ms;
    scrub->offset = 0;
    scrub->is_again = false;
    return true;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Nothing of it is known that counts. */
static void put_away(struct checkpointer_scrub *scrub)
{
    (void)fcap_checkpoint_hash_end(&scrub->sum); /* Frees it. */
    scrub->object[0] = '\0';
    scrub->offset = 0;
}

static void finish(struct checkpointer_scrub *scrub)
{
    scrub->done_ms = scrub->due_ms;
    memcpy(scrub->done, scrub->object, sizeof scrub->done);
    put_away(scrub);
}

void checkpointer_scrub_done(struct fcap_checkpointer *checkpointer)
{
    put_away(&checkpointer->scrub);
    free(checkpointer->scrub.piece);
    checkpointer->scrub.piece = NULL;
    object_list_done(&checkpointer->rotten);
}

void checkpointer_scrub_listed(struct fcap_checkpointer *checkpointer,
                               const struct object_list *listed)
{
    struct object_list left = {0};
    for (size_t i = 0; i < checkpointer->rotten.count; i++) {
        const char *name = checkpointer->rotten.entries[i].name;
        if (object_list_find(listed, name) != NULL) {
            object_list_add(&left, name, 0);
        }
    }
    object_list_done(&checkpointer->rotten);
    checkpointer->rotten = left; /* Sorted as it was. */
}

static void add_metrics(struct fcap_checkpointer *checkpointer, uint64_t bytes, bool is_whole,
                        bool is_damaged)
{
    (void)pthread_mutex_lock(&checkpointer->lock);
    checkpointer->metrics.scrub_bytes += bytes;
    checkpointer->metrics.scrub_objects += is_whole;
    checkpointer->metrics.scrub_damaged += is_damaged;
    (void)pthread_mutex_unlock(&checkpointer->lock);
}

/* What else has to go with it, so that the next snapshot's checkpoint needs nothing of it: the
 * changelog up to its end, or a manifest's number. With the lock held. */
static void give_up_rest(struct fcap_checkpointer *checkpointer, const char *object)
{
    const struct fcap_checkpoint *tip = &checkpointer->tip;
    for (size_t i = 0; i < tip->segment_count; i++) {
        if (strcmp(tip->segments[i].object, object) == 0 &&
            tip->segments[i].last > checkpointer->rotten_through) {
            checkpointer->rotten_through = tip->segments[i].last;
        }
    }
    for (size_t i = 0; i < checkpointer->generation_count; i++) {
        struct checkpointer_generation *generation = &checkpointer->generations[i];
        char name[FCAP_OBJECT_NAME_MAX + 1];
        size_t last = generation->number_count - 1;
        if (generation->number_count > 0 &&
            strcmp(fcap_checkpoint_manifest_name(checkpointer->prefix, generation->numbers[last],
                                                 name),
                   object) == 0) {
            generation->number_count--;
        }
    }
}

/* Twice it was not as it should be: the second time it was read anew, a while later. */
static void condemn(struct fcap_checkpointer *checkpointer, const struct fcap_error *error)
{
    object_list_add(&checkpointer->rotten, checkpointer->scrub.object, 0);
    object_list_sort(&checkpointer->rotten);
    checkpointer->wants_fresh = true;
    (void)pthread_mutex_lock(&checkpointer->lock);
    give_up_rest(checkpointer, checkpointer->scrub.object);
    (void)pthread_mutex_unlock(&checkpointer->lock);
    add_metrics(checkpointer, 0, false, true);
    checkpointer_tell(
        checkpointer, FCAP_CHECKPOINTER_WARN,
        "checkpoints: a kept object is damaged; a snapshot is taken that replaces it: "
        "%s",
        error->text);
    finish(&checkpointer->scrub);
}

/* It is not as it should be, or it cannot be read. Gives when to go on. */
static int64_t suspect(struct fcap_checkpointer *checkpointer, enum fcap_status status,
                       const struct fcap_error *error, int64_t now_ms)
{
    struct checkpointer_scrub *scrub = &checkpointer->scrub;
    (void)fcap_checkpoint_hash_end(&scrub->sum); /* Frees it. */
    scrub->offset = 0;
    if (status == FCAP_UNAVAILABLE || status == FCAP_TIMEOUT || status == FCAP_BUSY) {
        put_away(scrub); /* The place is away; this object is the first one again. */
    } else if (!is_needed(checkpointer, scrub->object)) {
        finish(scrub); /* It was cut meanwhile. */
        return now_ms;
    } else if (scrub->is_again) {
        condemn(checkpointer, error);
        return now_ms;
    } else {
        scrub->is_again = true; /* Perhaps what read it failed, or memory. */
    }
    scrub->look_at_ms = now_ms + LOOK_MS;
    return scrub->look_at_ms;
}

static enum fcap_status read_manifest(struct fcap_checkpointer *checkpointer, size_t *ret_size,
                                      struct fcap_error *error)
{
    struct fcap_buffer bytes = {0};
    struct fcap_checkpoint checkpoint = {0};
    enum fcap_status status = object_read_all(checkpointer->objects, checkpointer->scrub.object,
                                              OBJECT_MANIFEST_MAX, &bytes, error);
    if (status == FCAP_OK) {
        status = fcap_checkpoint_decode(fcap_buffer_bytes(&bytes), &checkpoint, error);
        fcap_checkpoint_done(&checkpoint);
    }
    *ret_size = bytes.size;
    fcap_buffer_done(&bytes);
    return status;
}

/* Reads a piece, or all of a manifest. *ret_end: it was the last one. */
static enum fcap_status read_piece(struct fcap_checkpointer *checkpointer, size_t *ret_size,
                                   bool *ret_end, struct fcap_error *error)
{
    struct checkpointer_scrub *scrub = &checkpointer->scrub;
    struct fcap_objects *objects = checkpointer->objects;
    if (scrub->is_manifest) {
        *ret_end = true;
        return read_manifest(checkpointer, ret_size, error);
    }
    if (scrub->piece == NULL) {
        scrub->piece = malloc(FCAP_CHECKPOINT_PIECE);
        FCAP_ASSERT(scrub->piece != NULL);
    }
    enum fcap_status status =
        objects->ops->read(objects, scrub->object, scrub->offset, scrub->piece,
                           FCAP_CHECKPOINT_PIECE, ret_size, error);
    if (status != FCAP_OK) {
        return status;
    }
    fcap_checkpoint_hash_add(&scrub->sum, (struct fcap_bytes){scrub->piece, *ret_size});
    scrub->offset += *ret_size;
    *ret_end = *ret_size < FCAP_CHECKPOINT_PIECE || scrub->offset > scrub->size;
    if (*ret_end &&
        (scrub->offset != scrub->size || fcap_checkpoint_hash_end(&scrub->sum) != scrub->hash)) {
        status = fcap_error_set(error, FCAP_CORRUPT, "it is not what was written");
    }
    return status;
}

int64_t checkpointer_scrub(struct fcap_checkpointer *checkpointer, int64_t now_ms)
{
    struct checkpointer_scrub *scrub = &checkpointer->scrub;
    struct fcap_error error = {""};
    size_t size = 0;
    bool is_end = false;
    if (checkpointer->settings.scrub_interval_ms == 0) {
        return INT64_MAX;
    }
    if (now_ms < scrub->look_at_ms) {
        return scrub->look_at_ms;
    }
    if (scrub->object[0] == '\0' && !take_next(checkpointer, now_ms, &scrub->look_at_ms)) {
        return scrub->look_at_ms;
    }
    enum fcap_status status = read_piece(checkpointer, &size, &is_end, &error);
    add_metrics(checkpointer, size, status == FCAP_OK && is_end, false);
    if (status != FCAP_OK) {
        fcap_error_prefix(&error, scrub->object);
        return suspect(checkpointer, status, &error, now_ms);
    }
    if (is_end) {
        finish(scrub);
    }
    scrub->look_at_ms = transfer_rate_pay(&scrub->rate, size, now_ms);
    return scrub->look_at_ms;
}
