#include "checkpoints.h"

#include "checkpoint_volume.h"
#include "compose.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/damage.h"
#include "fcap/log.h"

#include <stdlib.h>

struct fcap_checkpoints {
    const struct fcap_config *config;
    struct fcap_checkpoint_volume *volume;
    struct fcap_checkpointer *keeper;
};

/* --- the choice at the start ----------------------------------------------------------------- */

static void tell_restore(void *context, const char *text)
{
    (void)context;
    FCAP_WARN("%s", text);
}

static enum fcap_status choose(struct fcap_checkpoints *checkpoints,
                               const struct fcap_store_settings *store,
                               const struct fcap_checkpoints_watch *watch,
                               struct fcap_beginning *ret_beginning, struct fcap_error *error)
{
    const struct fcap_config *config = checkpoints->config;
    struct fcap_checkpoint_place_rocksdb place;
    struct fcap_choice choice;
    struct fcap_choose_settings settings = {.clock = fcap_clock_os()};
    fcap_checkpoint_place_rocksdb_init(&place, store);
    fcap_compose_restore(config, &settings.restore);
    settings.restore.directory = config->state.directory;
    settings.restore.place = &place.place;
    settings.restore.tell = tell_restore;
    settings.restore.progress = watch->progress;
    settings.restore.is_cancelled = watch->is_cancelled;
    settings.restore.context = watch->context;
    enum fcap_status status =
        fcap_choose(&settings, fcap_checkpoint_volume_objects(checkpoints->volume), &choice, error);
    if (status != FCAP_OK) {
        return status;
    }
    FCAP_INFO("state: %s", choice.text.text);
    ret_beginning->source = choice.source;
    ret_beginning->distrusts = choice.distrusts;
    ret_beginning->db = choice.is_open ? place.db : NULL;
    return FCAP_OK;
}

/* Nobody is asked: what lies there, or nothing. */
static enum fcap_status choose_alone(const struct fcap_config *config,
                                     struct fcap_beginning *ret_beginning, struct fcap_error *error)
{
    enum fcap_status status = fcap_choose_alone(config->state.directory, error);
    if (status == FCAP_OK && fcap_restore_is_free(config->state.directory)) {
        ret_beginning->source = FCAP_STATE_KAFKA;
    }
    return status;
}

enum fcap_status fcap_checkpoints_open(const struct fcap_config *config,
                                       const struct fcap_store_settings *store,
                                       const struct fcap_checkpoints_watch *watch,
                                       struct fcap_checkpoints **ret_checkpoints,
                                       struct fcap_beginning *ret_beginning,
                                       struct fcap_error *error)
{
    *ret_checkpoints = NULL;
    *ret_beginning = (struct fcap_beginning){.source = FCAP_STATE_LOCAL};
    if (config->checkpoint.directory == NULL) {
        return choose_alone(config, ret_beginning, error);
    }
    struct fcap_checkpoints *checkpoints = calloc(1, sizeof *checkpoints);
    FCAP_ASSERT(checkpoints != NULL);
    checkpoints->config = config;
    checkpoints->volume = fcap_checkpoint_volume_open(config);
    enum fcap_status status = choose(checkpoints, store, watch, ret_beginning, error);
    if (status != FCAP_OK) {
        (void)fcap_checkpoints_close(checkpoints, 0); /* Nothing runs yet. */
        return status;
    }
    *ret_checkpoints = checkpoints;
    return FCAP_OK;
}

void fcap_checkpoints_damaged(const struct fcap_config *config, const char *text)
{
    struct fcap_error error = {""};
    const char *directory = config->state.directory;
    if (fcap_damage_mark(directory, fcap_clock_os_wall_ms(), text, &error) != FCAP_OK) {
        FCAP_ERROR("the state is damaged (%s), and that could not be noted for the next start: %s",
                   text, error.text);
        return;
    }
    FCAP_ERROR(
        "the state is damaged (%s); %s/" FCAP_DAMAGE_MARKER " says so, and the next start %s", text,
        directory,
        config->checkpoint.directory != NULL ? "takes another one"
                                             : "refuses it: checkpoint.directory is not set");
}

/* --- keeping --------------------------------------------------------------------------------- */

void fcap_checkpoints_tell(void *context, enum fcap_checkpointer_level level, const char *text)
{
    (void)context;
    switch (level) {
    case FCAP_CHECKPOINTER_ERROR:
        FCAP_ERROR("%s", text);
        break;
    case FCAP_CHECKPOINTER_WARN:
        FCAP_WARN("%s", text);
        break;
    case FCAP_CHECKPOINTER_INFO:
        FCAP_INFO("%s", text);
        break;
    }
}

enum fcap_status fcap_checkpoints_follow(struct fcap_checkpoints *checkpoints,
                                         struct fcap_checkpoint_state *state,
                                         struct fcap_error *error)
{
    struct fcap_checkpointer_settings settings;
    if (checkpoints == NULL) {
        return FCAP_OK;
    }
    fcap_checkpoint_volume_remember(checkpoints->volume);
    fcap_compose_checkpointer(checkpoints->config, &settings);
    settings.clock = fcap_clock_os();
    settings.tell = fcap_checkpoints_tell;
    enum fcap_status status =
        fcap_checkpointer_open(&settings, fcap_checkpoint_volume_objects(checkpoints->volume),
                               state, &checkpoints->keeper, error);
    if (status == FCAP_OK) {
        status = fcap_checkpointer_start(checkpoints->keeper);
        if (status != FCAP_OK) {
            (void)fcap_error_set(error, status, "threads for checkpoints");
        }
    }
    return status;
}

struct fcap_checkpointer *fcap_checkpoints_keeper(struct fcap_checkpoints *checkpoints)
{
    return checkpoints == NULL ? NULL : checkpoints->keeper;
}

struct fcap_objects *fcap_checkpoints_objects(struct fcap_checkpoints *checkpoints)
{
    return checkpoints == NULL ? NULL : fcap_checkpoint_volume_objects(checkpoints->volume);
}

bool fcap_checkpoints_close(struct fcap_checkpoints *checkpoints, int64_t deadline_ms)
{
    if (checkpoints == NULL) {
        return true;
    }
    if (checkpoints->keeper != NULL &&
        fcap_checkpointer_stop(checkpoints->keeper, deadline_ms) != FCAP_OK) {
        FCAP_WARN("checkpoints: %s does not answer; the last changes are not kept there",
                  checkpoints->config->checkpoint.directory);
        return false; /* Its threads use all of this. */
    }
    fcap_checkpointer_close(checkpoints->keeper);
    fcap_checkpoint_volume_close(checkpoints->volume);
    free(checkpoints);
    return true;
}
