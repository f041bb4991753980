#include "state.h"

#include "daemon/compose.h"
#include "fcap/assert.h"
#include "fcap/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum fcap_state_presence fcap_state_look(const struct fcap_config *config)
{
    char path[4200];
    struct stat unused;
    (void)snprintf(path, sizeof path, "%s/LOCK", config->state.directory); /* Bounded there. */
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool is_locked = file >= 0 && fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (file >= 0) {
        (void)close(file); /* Only read. */
    }
    (void)snprintf(path, sizeof path, "%s/CURRENT", config->state.directory); /* As above. */
    return is_locked                  ? FCAP_STATE_LOCKED
           : stat(path, &unused) != 0 ? FCAP_STATE_ABSENT
                                      : FCAP_STATE_STOPPED;
}

void fcap_state_tell_absent(const struct fcap_config *config)
{
    static const char *const remains[] = {".restoring", ".restored", ".moving"};
    struct stat unused;
    char path[4200];
    const char *why = "there is no state";
    (void)snprintf(path, sizeof path, "%s/CURRENT", config->state.directory); /* Bounded there. */
    if (stat(path, &unused) != 0 && errno != ENOENT) {
        (void)fprintf(stderr, "fcapd: state.directory %s: %s; this user must be able to read it\n",
                      config->state.directory, strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof remains / sizeof remains[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", config->state.directory,
                       remains[i]); /* As above. */
        if (stat(path, &unused) == 0) {
            why = "there is no state: a restore was interrupted; start it again";
        }
    }
    (void)fprintf(stderr, "fcapd: state.directory %s: %s\n", config->state.directory, why);
}

struct collect {
    struct fcap_state *state;
    enum fcap_status status;
};

static bool collect_meta(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct collect *collect = context;
    struct fcap_state *state = collect->state;
    const size_t name_size = sizeof FCAP_META_NAME - 1;
    struct fcap_reader reader = fcap_reader_of(key);
    int32_t partition = fcap_reader_be16(&reader);
    if (fcap_reader_left(&reader) != name_size || partition > FCAP_PARTITION_MAX ||
        memcmp(reader.at, FCAP_META_NAME, name_size) != 0) {
        return true;
    }
    if (state->count == state->capacity) {
        state->capacity = state->capacity * 2 + 64;
        state->partitions =
            realloc(state->partitions, state->capacity * sizeof state->partitions[0]);
        FCAP_ASSERT(state->partitions != NULL);
    }
    struct fcap_state_partition *place = &state->partitions[state->count];
    place->partition = partition;
    collect->status = fcap_meta_decode(value, &place->meta);
    state->count += collect->status == FCAP_OK;
    return collect->status == FCAP_OK;
}

static enum fcap_status read_lost(const struct fcap_state *state)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    enum fcap_status status = FCAP_OK;
    for (size_t i = 0; i < state->count && status == FCAP_OK; i++) {
        bool found = false;
        fcap_buffer_clear(&key);
        fcap_key_meta(&key, state->partitions[i].partition, FCAP_GAPS_NAME);
        status = state->store->ops->get(state->store, FCAP_FAMILY_META, fcap_buffer_bytes(&key),
                                        &value, &found);
        state->partitions[i].lost = (struct fcap_gaps){0};
        if (status == FCAP_OK && found) {
            status = fcap_gaps_decode(fcap_buffer_bytes(&value), &state->partitions[i].lost);
        }
    }
    fcap_buffer_done(&key);
    fcap_buffer_done(&value);
    return status;
}

static enum fcap_status open_state(const struct fcap_config *config, bool is_writable,
                                   struct fcap_state *ret_state, struct fcap_error *error)
{
    struct fcap_store_settings settings;
    struct fcap_memory_plan plan = fcap_memory_plan_make(config, 0);
    struct fcap_state state = {0};
    struct collect collect = {&state, FCAP_OK};
    fcap_compose_store(config, &plan, &settings);
    enum fcap_status status = is_writable
                                  ? fcap_store_rocksdb_open(&settings, &state.db, error)
                                  : fcap_store_rocksdb_open_read_only(&settings, &state.db, error);
    if (status != FCAP_OK) {
        return status;
    }
    state.store = fcap_store_rocksdb_handle(state.db);
    const uint8_t from[] = {0};
    status = state.store->ops->scan(state.store, FCAP_FAMILY_META, (struct fcap_bytes){from, 1},
                                    (struct fcap_bytes){from, 0}, collect_meta, &collect);
    status = status == FCAP_OK ? collect.status : status;
    status = status == FCAP_OK ? read_lost(&state) : status;
    if (status != FCAP_OK) {
        fcap_state_close(&state);
        return fcap_error_set(error, status, "read the partitions: %s", fcap_status_text(status));
    }
    *ret_state = state;
    return FCAP_OK;
}

enum fcap_status fcap_state_open(const struct fcap_config *config, struct fcap_state *ret_state,
                                 struct fcap_error *error)
{
    return open_state(config, false, ret_state, error);
}

enum fcap_status fcap_state_open_writable(const struct fcap_config *config,
                                          struct fcap_state *ret_state, struct fcap_error *error)
{
    return open_state(config, true, ret_state, error);
}

void fcap_state_close(struct fcap_state *state)
{
    free(state->partitions);
    fcap_store_rocksdb_close(state->db);
    *state = (struct fcap_state){0};
}

size_t fcap_state_count_window(const struct fcap_state *state, int64_t length_ms)
{
    size_t count = 0;
    for (size_t i = 0; i < state->count; i++) {
        const struct fcap_meta *meta = &state->partitions[i].meta;
        for (size_t k = 0; k < meta->window_count; k++) {
            count += meta->windows[k].length_ms == length_ms;
        }
    }
    return count;
}

bool fcap_state_may_know(const struct fcap_state *state,
                         const struct fcap_state_partition *partition, struct fcap_bytes user)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    bool is_found = true;
    fcap_key_user(&key, partition->partition, user);
    enum fcap_status status = state->store->ops->get(state->store, FCAP_FAMILY_USERS,
                                                     fcap_buffer_bytes(&key), &value, &is_found);
    fcap_buffer_done(&key);
    fcap_buffer_done(&value);
    return status != FCAP_OK || is_found || partition->meta.redo_from <= partition->meta.commit;
}
