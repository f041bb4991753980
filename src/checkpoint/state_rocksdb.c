/* The store on RocksDB as checkpoints see it. */
#include "fcap/checkpoint_state.h"
#include "fcap/key.h"
#include "fcap/meta.h"

#include <string.h>

static struct fcap_checkpoint_state_rocksdb *of_state(struct fcap_checkpoint_state *state)
{
    return (struct fcap_checkpoint_state_rocksdb *)state;
}

static void state_position(struct fcap_checkpoint_state *state,
                           struct fcap_store_position *ret_position)
{
    fcap_store_rocksdb_position(of_state(state)->db, ret_position);
}

static bool state_origin(struct fcap_checkpoint_state *state,
                         struct fcap_store_position *ret_origin)
{
    return fcap_store_rocksdb_origin(of_state(state)->db, ret_origin);
}

static enum fcap_status state_fork(struct fcap_checkpoint_state *state, struct fcap_error *error)
{
    return fcap_store_rocksdb_fork(of_state(state)->db, error);
}

static void state_follow(struct fcap_checkpoint_state *state,
                         const struct fcap_store_follower *follower)
{
    fcap_store_rocksdb_follow(of_state(state)->db, follower);
}

static enum fcap_status state_snapshot(struct fcap_checkpoint_state *state, const char *directory,
                                       uint64_t *ret_sequence, struct fcap_error *error)
{
    return fcap_store_rocksdb_snapshot(of_state(state)->db, directory, ret_sequence, error);
}

/* --- partitions ------------------------------------------------------------------------------ */

struct visit {
    fcap_checkpoint_partition_visitor visitor;
    void *context;
};

static bool visit_meta(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct visit *visit = context;
    const size_t name_size = sizeof FCAP_META_NAME - 1;
    struct fcap_meta meta;
    struct fcap_reader reader = fcap_reader_of(key);
    int32_t partition = fcap_reader_be16(&reader);
    if (fcap_reader_left(&reader) != name_size || partition > FCAP_PARTITION_MAX ||
        memcmp(reader.at, FCAP_META_NAME, name_size) != 0 ||
        fcap_meta_decode(value, &meta) != FCAP_OK) {
        return true; /* What cannot be read is for whoever takes the partition to tell. */
    }
    const struct fcap_checkpoint_partition found = {.partition = partition,
                                                    .commit = meta.commit,
                                                    .next_offset = meta.next_offset,
                                                    .clock_ms = meta.clock_ms};
    visit->visitor(visit->context, &found);
    return true;
}

static enum fcap_status scan(struct fcap_store_rocksdb *db,
                             fcap_checkpoint_partition_visitor visitor, void *context,
                             struct fcap_error *error)
{
    struct visit visit = {visitor, context};
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    const uint8_t from[] = {0};
    enum fcap_status status =
        store->ops->scan(store, FCAP_FAMILY_META, (struct fcap_bytes){from, 1},
                         (struct fcap_bytes){from, 0}, visit_meta, &visit);
    return status == FCAP_OK
               ? FCAP_OK
               : fcap_error_set(error, status, "read the partitions: %s", fcap_status_text(status));
}

static enum fcap_status state_partitions(struct fcap_checkpoint_state *state,
                                         fcap_checkpoint_partition_visitor visitor, void *context,
                                         struct fcap_error *error)
{
    return scan(of_state(state)->db, visitor, context, error);
}

static enum fcap_status state_partitions_of(struct fcap_checkpoint_state *state,
                                            const char *directory,
                                            fcap_checkpoint_partition_visitor visitor,
                                            void *context, struct fcap_error *error)
{
    struct fcap_store_settings settings = *of_state(state)->settings;
    struct fcap_store_rocksdb *db = NULL;
    settings.directory = directory;
    enum fcap_status status = fcap_store_rocksdb_open_read_only(&settings, &db, error);
    if (status == FCAP_OK) {
        status = scan(db, visitor, context, error);
    }
    fcap_store_rocksdb_close(db);
    return status;
}

/* What a process that was killed has left: its links would keep what the state drops from now on,
 * until the next snapshot of that name, which may never be taken. */
static void discard_left(const char *directory)
{
    static const char *const names[] = {"snapshot", "savepoint"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[4096];
        struct fcap_error unused;
        if (fcap_checkpoint_within(directory, names[i], path, &unused) == FCAP_OK) {
            (void)!fcap_store_rocksdb_discard(path, &unused); /* The next snapshot tells why. */
        }
    }
}

void fcap_checkpoint_state_rocksdb_init(struct fcap_checkpoint_state_rocksdb *state,
                                        struct fcap_store_rocksdb *db,
                                        const struct fcap_store_settings *settings)
{
    static const struct fcap_checkpoint_state_ops ops = {
        .position = state_position,
        .origin = state_origin,
        .fork = state_fork,
        .follow = state_follow,
        .partitions = state_partitions,
        .partitions_of = state_partitions_of,
        .snapshot = state_snapshot,
    };
    fcap_checkpoint_state_init(&state->state, &ops, settings->directory);
    state->db = db;
    state->settings = settings;
    discard_left(settings->directory);
}

/* --- the place of a restore ------------------------------------------------------------------ */

static struct fcap_checkpoint_place_rocksdb *of_place(struct fcap_checkpoint_place *place)
{
    return (struct fcap_checkpoint_place_rocksdb *)place;
}

static enum fcap_status place_open(struct fcap_checkpoint_place *place, const char *directory,
                                   struct fcap_error *error)
{
    struct fcap_store_settings settings = *of_place(place)->settings;
    const char *last = strrchr(directory, '/');
    settings.directory = directory;
    /* Hidden, so it is being made of a snapshot, every byte of which is as it was numbered. */
    settings.keeps_lineage = last != NULL && last[1] == '.';
    return fcap_store_rocksdb_open(&settings, &of_place(place)->db, error);
}

static void place_position(struct fcap_checkpoint_place *place,
                           struct fcap_store_position *ret_position)
{
    fcap_store_rocksdb_position(of_place(place)->db, ret_position);
}

static enum fcap_status place_partitions(struct fcap_checkpoint_place *place,
                                         fcap_checkpoint_partition_visitor visitor, void *context,
                                         struct fcap_error *error)
{
    return scan(of_place(place)->db, visitor, context, error);
}

static enum fcap_status place_apply(struct fcap_checkpoint_place *place, uint64_t sequence,
                                    const struct fcap_batch *batch, struct fcap_error *error)
{
    return fcap_store_rocksdb_apply(of_place(place)->db, sequence, batch, error);
}

static enum fcap_status place_fork(struct fcap_checkpoint_place *place, struct fcap_error *error)
{
    return fcap_store_rocksdb_fork(of_place(place)->db, error);
}

static void place_close(struct fcap_checkpoint_place *place)
{
    fcap_store_rocksdb_close(of_place(place)->db);
    of_place(place)->db = NULL;
}

void fcap_checkpoint_place_rocksdb_init(struct fcap_checkpoint_place_rocksdb *place,
                                        const struct fcap_store_settings *settings)
{
    static const struct fcap_checkpoint_place_ops ops = {
        .open = place_open,
        .position = place_position,
        .partitions = place_partitions,
        .apply = place_apply,
        .fork = place_fork,
        .close = place_close,
    };
    *place = (struct fcap_checkpoint_place_rocksdb){.place = {&ops}, .settings = settings};
}
