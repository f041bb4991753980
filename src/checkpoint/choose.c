/* Where a start takes its state from. */
#include "fcap/choose.h"

#include "restore_internal.h"

#include "fcap/damage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* States in a row that were found damaged within FCAP_DAMAGE_WINDOW_MS each: from here on no
 * checkpoint is trusted when no file is named, and nothing at all is tried. */
enum { DISTRUST_TIMES = 2, REFUSE_TIMES = 4 };

struct choosing {
    const struct fcap_choose_settings *settings;
    struct fcap_objects *objects;
    struct fcap_choice *choice;
    int64_t started_ms;

    bool has_local;               /* there is a valid state */
    bool is_chosen;               /* somebody wanted it, whatever checkpoints there are */
    bool has_own;                 /* a checkpoint of its lineage is kept */
    bool is_open;                 /* the place is, with it */
    struct fcap_checkpoint local; /* lineage, sequence, partitions */
    bool is_damaged;              /* there is one that is not valid */
    struct fcap_error why;        /* it is damaged, or cannot be brought forward */
    bool may_trust;               /* checkpoints, though it is damaged */
    char file[64];                /* of it, damaged; "": none is known */
    uint64_t damaged_size;
    uint64_t damaged_hash;

    uint64_t asked; /* the number of the checkpoint that was asked about last */
    bool has_newest;
    uint64_t newest; /* the newest readable one's number, sequence, and how it compares */
    uint64_t newest_sequence;
    struct fcap_choose_sides sides;
    bool is_settled;   /* the local one is at least as fresh as a newer one */
    uint64_t furthest; /* sequence number of its lineage that is kept */
    bool is_forward;   /* it was brought forward */
    uint64_t batches;  /* by so many */
    bool is_doubtful;  /* numbers may have been given that are not known */
};

/* --- small parts --- */

static void say(struct choosing *choosing, const char *text)
{
    const struct fcap_restore_settings *settings = &choosing->settings->restore;
    if (settings->tell != NULL) {
        settings->tell(settings->context, text);
    }
}

static int64_t now_ms(const struct choosing *choosing)
{
    return choosing->settings->clock->monotonic_ms(choosing->settings->clock);
}

static bool is_retry(enum fcap_status status)
{
    return status == FCAP_UNAVAILABLE || status == FCAP_TIMEOUT || status == FCAP_BUSY;
}

static void close_place(struct choosing *choosing)
{
    if (choosing->is_open) {
        choosing->settings->restore.place->ops->close(choosing->settings->restore.place);
        choosing->is_open = false;
    }
}

static enum fcap_status with_lock(const char *directory,
                                  enum fcap_status (*act)(const char *directory,
                                                          struct fcap_error *error),
                                  struct fcap_error *error)
{
    int lock = -1;
    enum fcap_status status = switch_lock(directory, &lock, error);
    if (status == FCAP_OK) {
        status = act(directory, error);
    }
    switch_unlock(&lock);
    return status;
}

/* --- what lies there --- */

static void add_partition(void *context, const struct fcap_checkpoint_partition *partition)
{
    fcap_checkpoint_set_partition(context, partition);
}

/* The place is open: where does it stand? */
static enum fcap_status look_at_local(struct choosing *choosing, struct fcap_error *error)
{
    struct fcap_checkpoint_place *place = choosing->settings->restore.place;
    struct fcap_store_position position = {0};
    fcap_checkpoint_done(&choosing->local);
    place->ops->position(place, &position);
    choosing->local.lineage = position.lineage;
    choosing->local.sequence = position.sequence;
    return place->ops->partitions(place, add_partition, &choosing->local, error);
}

/* Damage is no failure: then there is a state that is not valid. */
static enum fcap_status open_local(struct choosing *choosing, struct fcap_error *error)
{
    struct fcap_checkpoint_place *place = choosing->settings->restore.place;
    struct fcap_error own = {""};
    enum fcap_status status = place->ops->open(place, choosing->settings->restore.directory, &own);
    choosing->is_open = status == FCAP_OK;
    if (status == FCAP_OK) {
        status = look_at_local(choosing, &own);
    }
    if (status == FCAP_OK) {
        struct switch_place at;
        status = switch_enter(choosing->settings->restore.directory, &at, &own);
        choosing->is_chosen = status == FCAP_OK && switch_has(&at, SWITCH_CHOSEN);
        switch_leave(&at);
    }
    if (status == FCAP_OK) {
        choosing->has_local = true;
        return FCAP_OK;
    }
    close_place(choosing);
    if (status == FCAP_CORRUPT) {
        choosing->has_local = false;
        choosing->is_damaged = true;
        choosing->may_trust = true;
        choosing->why = own;
        fcap_damage_file_of(own.text, choosing->file);
        return FCAP_OK;
    }
    return fcap_error_set(error, status, "%s", own.text);
}

static enum fcap_status take_marker(struct choosing *choosing, const struct fcap_damage *damage,
                                    struct fcap_error *error)
{
    const struct fcap_choose_settings *settings = choosing->settings;
    int64_t wall_ms = settings->clock->wall_ms(settings->clock);
    bool is_near = wall_ms - damage->found_ms < FCAP_DAMAGE_WINDOW_MS;
    if (damage->times >= REFUSE_TIMES && is_near) {
        return fcap_error_set(error, FCAP_CORRUPT,
                              "%s was found damaged %u times in a row (%s), each time another "
                              "state: look for a fault of this machine's disk or memory, and move "
                              "on to another one; it is tried again an hour after the last time, "
                              "or when %s/" FCAP_DAMAGE_MARKER " is removed",
                              settings->restore.directory, damage->times, damage->text,
                              settings->restore.directory);
    }
    choosing->is_damaged = true;
    choosing->may_trust = damage->file[0] != '\0' || damage->times < DISTRUST_TIMES || !is_near;
    (void)snprintf(choosing->file, sizeof choosing->file, "%s", damage->file); /* As large. */
    (void)fcap_error_set(&choosing->why, FCAP_CORRUPT, "an earlier run found it: %s", damage->text);
    return FCAP_OK;
}

static enum fcap_status look(struct choosing *choosing, struct fcap_error *error)
{
    struct fcap_damage damage;
    const char *directory = choosing->settings->restore.directory;
    enum fcap_status status = switch_finish(directory, error);
    if (status != FCAP_OK || fcap_restore_is_free(directory)) {
        return status; /* A marker that is left over goes with what comes. */
    }
    return fcap_damage_find(directory, &damage) ? take_marker(choosing, &damage, error)
                                                : open_local(choosing, error);
}

/* What was sent of the damaged file, if it was damaged then. */
static void hash_damaged(struct choosing *choosing)
{
    char path[4200];
    struct fcap_checkpoint_hash hash = {0};
    (void)snprintf(path, sizeof path, "%s/%s", choosing->settings->restore.directory,
                   choosing->file); /* Too long: fopen fails. */
    FILE *file = choosing->file[0] != '\0' ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return;
    }
    uint8_t *piece = malloc(FCAP_CHECKPOINT_PIECE);
    size_t size = 1;
    while (piece != NULL && size > 0) {
        size = fread(piece, 1, FCAP_CHECKPOINT_PIECE, file);
        fcap_checkpoint_hash_add(&hash, (struct fcap_bytes){piece, size});
        choosing->damaged_size += size;
    }
    choosing->damaged_size = ferror(file) == 0 ? choosing->damaged_size : 0; /* Nobody sent it. */
    choosing->damaged_hash = fcap_checkpoint_hash_end(&hash);
    free(piece);
    (void)fclose(file); /* Only read. */
}

/* --- which checkpoint --- */

/* Newest first; those that are read already know how the local one compares. */
static bool wants(void *context, const struct fcap_checkpoint *checkpoint)
{
    struct choosing *choosing = context;
    struct fcap_choose_sides sides;
    if (!choosing->has_local) {
        return true;
    }
    bool is_fresher = fcap_choose_is_fresher(checkpoint, &choosing->local, &sides);
    if (sides.is_same_lineage && checkpoint->sequence > choosing->furthest) {
        choosing->furthest = checkpoint->sequence;
    }
    choosing->has_own = choosing->has_own || sides.is_same_lineage;
    is_fresher = is_fresher && (sides.is_same_lineage || !choosing->is_chosen);
    if (checkpoint->number > choosing->asked) { /* A listing begins. */
        choosing->is_settled = false;
        choosing->has_newest = true;
        choosing->newest = checkpoint->number;
        choosing->newest_sequence = checkpoint->sequence;
        choosing->sides = sides;
    }
    choosing->asked = checkpoint->number;
    choosing->is_settled = choosing->is_settled || !is_fresher;
    return is_fresher && !choosing->is_settled;
}

static enum fcap_status forward(void *context, struct restore *restore,
                                const struct fcap_checkpoint *log,
                                struct fcap_restore_report *report, struct fcap_error *error)
{
    struct choosing *choosing = context;
    struct fcap_choose_sides sides;
    (void)report;
    if (!choosing->is_open) {
        return FCAP_CORRUPT;
    }
    (void)fcap_choose_is_fresher(log, &choosing->local, &sides); /* wants() said so. */
    if (!sides.is_same_lineage) {
        return FCAP_CORRUPT;
    }
    enum fcap_status status =
        restore_forward(restore, &choosing->local, log, &choosing->batches, error);
    if (status == FCAP_OK) {
        choosing->is_forward = true;
        choosing->newest = log->number;
        return FCAP_OK;
    }
    if (status == FCAP_FOREIGN) { /* There is no way back for it. */
        choosing->has_local = false;
        choosing->is_damaged = true;
        choosing->may_trust = true;
        close_place(choosing);
    }
    if (status == FCAP_FOREIGN || status == FCAP_CORRUPT) {
        choosing->why = *error;
        return FCAP_CORRUPT;
    }
    return status;
}

static void release(void *context)
{
    close_place(context);
}

/* --- another state --- */

static enum fcap_status restore_one(struct choosing *choosing, bool is_only_look,
                                    struct fcap_restore_report *report, struct fcap_error *error)
{
    struct fcap_restore_settings settings = choosing->settings->restore;
    settings.directory = is_only_look ? NULL : settings.directory;
    settings.place = is_only_look ? NULL : settings.place;
    settings.replaces = true;
    settings.damaged_size = choosing->damaged_size;
    settings.damaged_hash = choosing->damaged_hash;
    struct restore restore = {
        .settings = &settings,
        .objects = choosing->objects,
        .wants = wants,
        .forward = is_only_look ? NULL : forward,
        .release = release,
        .context = choosing,
        .lock = -1,
        .is_late = choosing->is_open,
    };
    choosing->asked = 0;
    enum fcap_status status = restore_run(&restore, report, error);
    choosing->is_doubtful = choosing->is_doubtful || restore.has_unreadable;
    restore_done(&restore);
    return status;
}

/* There is no room for both. What is kept of an earlier one goes first; then the damaged one, when
 * the checkpoint has been read to its end. */
static enum fcap_status make_room(struct choosing *choosing, struct fcap_restore_report *report,
                                  struct fcap_error *error)
{
    const char *directory = choosing->settings->restore.directory;
    bool has_dropped = false;
    char text[5000];
    enum fcap_status status = switch_drop_kept(directory, &has_dropped, error);
    if (status == FCAP_OK && has_dropped) {
        status = restore_one(choosing, false, report, error);
        if (status != FCAP_NO_SPACE) {
            return status;
        }
    }
    if (status == FCAP_OK || status == FCAP_NO_SPACE) {
        status = restore_one(choosing, true, report, error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    (void)snprintf(text, sizeof text,
                   "there is no room for two states in %s: checkpoint %" PRIu64
                   " is whole, and the damaged one is removed before it is restored",
                   directory, report->number); /* May cut. */
    say(choosing, text);
    status = with_lock(directory, switch_empty, error);
    return status == FCAP_OK ? restore_one(choosing, false, report, error) : status;
}

static void tell_restored(struct choosing *choosing, const struct fcap_restore_report *report,
                          const char *why)
{
    const struct fcap_choose_settings *settings = choosing->settings;
    struct fcap_choice *choice = choosing->choice;
    choice->source = FCAP_STATE_CHECKPOINT;
    choice->restored = *report;
    (void)fcap_error_set(&choice->text, FCAP_OK,
                         "checkpoint %" PRIu64 " was restored in %" PRId64 " ms, %s: as of %" PRId64
                         " s ago, batch %" PRIu64 ", %" PRIu64 " files, %" PRIu64
                         " batches of the changelog",
                         report->number, now_ms(choosing) - choosing->started_ms, why,
                         (settings->clock->wall_ms(settings->clock) - report->written_ms) / 1000,
                         report->sequence, report->files, report->batches);
}

/* There is none, or a damaged one. */
static enum fcap_status take_any(struct choosing *choosing, struct fcap_error *error)
{
    const char *directory = choosing->settings->restore.directory;
    struct fcap_restore_report report = {0};
    struct fcap_error own = {"its checkpoints may hold the same damage"};
    char why[1400];
    enum fcap_status status = FCAP_REFUSED;
    if (!choosing->is_damaged || choosing->may_trust) {
        status = restore_one(choosing, false, &report, &own);
        if (status == FCAP_NO_SPACE && choosing->is_damaged) {
            status = make_room(choosing, &report, &own);
        }
    }
    if (status == FCAP_OK) {
        (void)snprintf(why, sizeof why,
                       choosing->is_damaged ? "for that in %s is damaged (%s)"
                                            : "for there was none in %s",
                       directory, choosing->why.text); /* May cut. */
        tell_restored(choosing, &report, why);
        return FCAP_OK;
    }
    if (status != FCAP_REFUSED) {
        (void)snprintf(why, sizeof why,
                       choosing->is_damaged ? "the state is damaged (%s), and "
                                              "checkpoint.directory cannot give another"
                                            : "there is no state%s, and checkpoint.directory "
                                              "cannot give one",
                       choosing->is_damaged ? choosing->why.text : ""); /* May cut. */
        return fcap_error_set(error, status, "%s: %s", why, own.text);
    }
    status = choosing->is_damaged ? with_lock(directory, switch_away, error)
                                  : switch_drop_chosen(directory, error);
    choosing->choice->source = FCAP_STATE_KAFKA;
    choosing->choice->distrusts = choosing->is_damaged && !choosing->may_trust;
    (void)snprintf(why, sizeof why,
                   choosing->is_damaged ? "that in %s is damaged (%s; it is kept as "
                                          "%s/" SWITCH_DAMAGED ", remove it when nobody needs it)"
                                        : "there is none in %s",
                   directory, choosing->why.text, directory); /* May cut. */
    (void)fcap_error_set(&choosing->choice->text, FCAP_OK, "it is read from Kafka, for %s, and %s",
                         why, own.text);
    return status;
}

/* --- the one that is there --- */

static void describe_local(struct choosing *choosing, const struct fcap_error *failure)
{
    const struct fcap_choose_sides *sides = &choosing->sides;
    const char *directory = choosing->settings->restore.directory;
    char against[700];
    if (failure != NULL) {
        (void)snprintf(against, sizeof against, "checkpoints cannot be taken now: %.500s",
                       failure->text);
    } else if (!choosing->has_newest) {
        (void)snprintf(against, sizeof against, "there is no checkpoint");
    } else if (sides->is_same_lineage) {
        (void)snprintf(against, sizeof against,
                       "checkpoint %" PRIu64 " ends with batch %" PRIu64 " of the same lineage",
                       choosing->newest, choosing->newest_sequence);
    } else {
        (void)snprintf(against, sizeof against,
                       "checkpoint %" PRIu64 " of another lineage lacks %" PRIu64
                       " records that it has read, it lacks %" PRIu64 "%s",
                       choosing->newest, sides->checkpoint_lacks, sides->local_lacks,
                       choosing->is_chosen ? ", and is what was restored by command" : "");
    }
    (void)fcap_error_set(&choosing->choice->text, FCAP_OK,
                         "that in %s, as it was left: batch %" PRIu64 "; %s", directory,
                         choosing->local.sequence, against);
}

/* The open state's numbers go on; in another lineage if somebody may have given them before. */
static enum fcap_status settle_lineage(struct choosing *choosing, uint64_t sequence,
                                       struct fcap_error *error)
{
    struct fcap_checkpoint_place *place = choosing->settings->restore.place;
    struct fcap_error text = choosing->choice->text;
    if (choosing->furthest <= sequence && !choosing->is_doubtful) {
        return FCAP_OK;
    }
    (void)fcap_error_set(&choosing->choice->text, FCAP_OK,
                         "%.800s; it goes on as another lineage, and reads from Kafka what it "
                         "lacks",
                         text.text);
    return place->ops->fork(place, error);
}

static enum fcap_status keep_local(struct choosing *choosing, const struct fcap_error *failure,
                                   struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    if (!choosing->is_open) {
        status = open_local(choosing, error);
        if (status == FCAP_OK && !choosing->has_local) {
            status = fcap_error_set(error, FCAP_CORRUPT, "%s", choosing->why.text);
        }
    } else {
        status = look_at_local(choosing, error); /* Some batches may have been applied. */
    }
    if (status != FCAP_OK) {
        return status;
    }
    choosing->choice->source = FCAP_STATE_LOCAL;
    describe_local(choosing, failure);
    choosing->is_doubtful = choosing->is_doubtful || failure != NULL;
    if (choosing->is_chosen && choosing->has_own) {
        status = switch_drop_chosen(choosing->settings->restore.directory, error);
        if (status != FCAP_OK) {
            return status;
        }
    }
    return settle_lineage(choosing, choosing->local.sequence, error);
}

static enum fcap_status keep_forward(struct choosing *choosing, struct fcap_error *error)
{
    const uint64_t sequence = choosing->local.sequence + choosing->batches;
    struct fcap_choice *choice = choosing->choice;
    choice->source = FCAP_STATE_FORWARD;
    (void)fcap_error_set(&choice->text, FCAP_OK,
                         "that in %s, brought forward from batch %" PRIu64 " to batch %" PRIu64
                         " in %" PRId64 " ms by the changelog of checkpoint %" PRIu64
                         ", which it was behind",
                         choosing->settings->restore.directory, choosing->local.sequence, sequence,
                         now_ms(choosing) - choosing->started_ms, choosing->newest);
    return settle_lineage(choosing, sequence, error);
}

static enum fcap_status take_fresher(struct choosing *choosing, struct fcap_error *error)
{
    const char *directory = choosing->settings->restore.directory;
    struct fcap_restore_report report = {0};
    struct fcap_error own = {""};
    char why[1400];
    enum fcap_status status = restore_one(choosing, false, &report, &own);
    if (status == FCAP_OK && choosing->is_forward) {
        return keep_forward(choosing, error);
    }
    if (!choosing->has_local && status != FCAP_OK) {
        return take_any(choosing, error); /* It was found out to be of no use. */
    }
    if (status == FCAP_REFUSED) {
        return keep_local(choosing, NULL, error);
    }
    /* Where nothing was listed, it is the place of the checkpoints that fails. */
    bool is_theirs = status != FCAP_OK && (is_retry(status) || !choosing->has_newest);
    if (is_theirs || status == FCAP_NO_SPACE) {
        return keep_local(choosing, &own, error);
    }
    if (status != FCAP_OK) {
        return fcap_error_set(error, status, "%s", own.text);
    }
    if (choosing->sides.is_same_lineage) {
        (void)snprintf(why, sizeof why,
                       "for that in %s is behind it: it ended with batch %" PRIu64 ", and %s",
                       directory, choosing->local.sequence, choosing->why.text); /* May cut. */
    } else {
        (void)snprintf(why, sizeof why,
                       "for that in %s, of another lineage, lacked %" PRIu64
                       " records that it has read, and it lacked %" PRIu64,
                       directory, choosing->sides.local_lacks,
                       choosing->sides.checkpoint_lacks); /* Fits. */
    }
    tell_restored(choosing, &report, why);
    return FCAP_OK;
}

enum fcap_status fcap_choose(const struct fcap_choose_settings *settings,
                             struct fcap_objects *objects, struct fcap_choice *ret_choice,
                             struct fcap_error *error)
{
    struct choosing choosing = {.settings = settings, .objects = objects, .choice = ret_choice};
    *ret_choice = (struct fcap_choice){.source = FCAP_STATE_KAFKA};
    choosing.started_ms = now_ms(&choosing);
    enum fcap_status status = look(&choosing, error);
    if (status == FCAP_OK && choosing.is_damaged) {
        hash_damaged(&choosing);
    }
    if (status == FCAP_OK) {
        status = choosing.has_local ? take_fresher(&choosing, error) : take_any(&choosing, error);
    }
    if (status != FCAP_OK) {
        close_place(&choosing);
    }
    ret_choice->is_open = choosing.is_open;
    fcap_checkpoint_done(&choosing.local);
    return status;
}

enum fcap_status fcap_choose_alone(const char *directory, struct fcap_error *error)
{
    struct fcap_damage damage;
    enum fcap_status status = switch_finish(directory, error);
    if (status != FCAP_OK || !fcap_damage_find(directory, &damage)) {
        return status;
    }
    if (fcap_restore_is_free(directory)) {
        return with_lock(directory, switch_empty, error); /* What it tells of is gone. */
    }
    return fcap_error_set(error, FCAP_CORRUPT,
                          "%s: an earlier run found it damaged (%s), and %s/" FCAP_DAMAGE_MARKER
                          " says so. Move all that is in it away, or remove it, and start again: "
                          "the state is read from Kafka; with checkpoint.directory set it comes "
                          "back from the newest checkpoint",
                          directory, damage.text, directory);
}
