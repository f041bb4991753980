#include "lib/fake_state.h"

#include "fcap/assert.h"
#include "fcap/key.h"
#include "fcap/meta.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct fake_state *of(struct fcap_checkpoint_state *state)
{
    return (struct fake_state *)state;
}

/* --- the map and its files: an entry is change, family, key, value -------------------------------
 */

static void map_key(struct fcap_buffer *buffer, enum fcap_family family, struct fcap_bytes key)
{
    fcap_buffer_clear(buffer);
    fcap_buffer_put_u8(buffer, (uint8_t)family);
    fcap_buffer_put_bytes(buffer, key);
}

static void map_apply(struct fake_map *map, enum fcap_change change, struct fcap_bytes key,
                      struct fcap_bytes value)
{
    size_t at = fake_map_find(map, key);
    switch (change) {
    case FCAP_CHANGE_PUT:
        fake_map_put(map, key, value);
        break;
    case FCAP_CHANGE_DELETE:
        if (fake_map_holds(map, at, key)) {
            fake_map_remove(map, at);
        }
        break;
    case FCAP_CHANGE_DELETE_RANGE:
        while (at < map->count &&
               fcap_bytes_compare(fcap_buffer_bytes(&map->pairs[at].key), value) < 0) {
            fake_map_remove(map, at);
        }
        break;
    }
}

static void put_entry(struct fcap_buffer *buffer, enum fcap_change change, struct fcap_bytes key,
                      struct fcap_bytes value)
{
    fcap_buffer_put_u8(buffer, (uint8_t)change);
    fcap_buffer_put_varint(buffer, key.size);
    fcap_buffer_put_bytes(buffer, key);
    fcap_buffer_put_varint(buffer, value.size);
    fcap_buffer_put_bytes(buffer, value);
}

static bool read_entries(struct fake_map *map, struct fcap_bytes bytes)
{
    struct fcap_reader reader = fcap_reader_of(bytes);
    while (fcap_reader_left(&reader) > 0 && !reader.failed) {
        enum fcap_change change = (enum fcap_change)fcap_reader_u8(&reader);
        struct fcap_bytes key = fcap_reader_take(&reader, fcap_reader_varint(&reader));
        struct fcap_bytes value = fcap_reader_take(&reader, fcap_reader_varint(&reader));
        if (!reader.failed) {
            map_apply(map, change, key, value);
        }
    }
    return !reader.failed;
}

static void add_file(struct fake_state *state, unsigned number, struct fcap_bytes bytes)
{
    FCAP_ASSERT(state->file_count < FAKE_STATE_FILES_MAX);
    struct fake_state_file *file = &state->files[state->file_count++];
    *file = (struct fake_state_file){.number = number};
    fcap_buffer_put_bytes(&file->bytes, bytes);
}

static void drop_files(struct fake_state *state)
{
    for (size_t i = 0; i < state->file_count; i++) {
        fcap_buffer_done(&state->files[i].bytes);
    }
    state->file_count = 0;
}

static void flush(struct fake_state *state)
{
    state->flushed = state->position.sequence;
    if (state->unflushed.size > 0) {
        add_file(state, state->number_next++, fcap_buffer_bytes(&state->unflushed));
        fcap_buffer_clear(&state->unflushed);
    }
    if (state->compact_at > 0 && state->file_count >= state->compact_at) {
        struct fcap_buffer all = {0};
        for (size_t i = 0; i < state->map.count; i++) {
            put_entry(&all, FCAP_CHANGE_PUT, fcap_buffer_bytes(&state->map.pairs[i].key),
                      fcap_buffer_bytes(&state->map.pairs[i].value));
        }
        drop_files(state);
        add_file(state, state->number_next++, fcap_buffer_bytes(&all));
        fcap_buffer_done(&all);
    }
}

/* --- on disk --- */

static void write_file(const char *directory, const char *name, struct fcap_bytes bytes)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    FCAP_ASSERT(file != NULL);
    FCAP_ASSERT(bytes.size == 0 || fwrite(bytes.data, 1, bytes.size, file) == bytes.size);
    FCAP_ASSERT(fclose(file) == 0);
}

static bool read_file(const char *directory, const char *name, struct fcap_buffer *buffer)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    for (size_t size = 1; size > 0;) {
        size = fread(fcap_buffer_reserve(buffer, 4096), 1, 4096, file);
        buffer->size += size;
    }
    FCAP_ASSERT(fclose(file) == 0);
    return true;
}

/* The description: it says which files make up what, under a name that never changes. */
static void write_all(const struct fake_state *state, const char *directory)
{
    struct fcap_buffer description = {0};
    fcap_buffer_put(&description, state->position.lineage.bytes, FCAP_LINEAGE_BYTES);
    fcap_buffer_put_be64(&description, state->position.sequence);
    fcap_buffer_put_u8(&description, state->has_origin);
    fcap_buffer_put(&description, state->origin.lineage.bytes, FCAP_LINEAGE_BYTES);
    fcap_buffer_put_be64(&description, state->origin.sequence);
    for (size_t i = 0; i < state->file_count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%06u.sst", state->files[i].number);
        write_file(directory, name, fcap_buffer_bytes(&state->files[i].bytes));
        fcap_buffer_put_be32(&description, state->files[i].number);
    }
    write_file(directory, "MANIFEST-000001", fcap_buffer_bytes(&description));
    write_file(directory, "CURRENT", fcap_bytes_of("MANIFEST-000001\n"));
    write_file(directory, "EMPTY", FCAP_BYTES_NONE);
    fcap_buffer_done(&description);
}

static bool read_all(struct fake_state *state, const char *directory)
{
    struct fcap_buffer description = {0};
    struct fcap_buffer bytes = {0};
    bool is_good =
        read_file(directory, "CURRENT", &bytes) &&
        fcap_bytes_equal(fcap_buffer_bytes(&bytes), fcap_bytes_of("MANIFEST-000001\n")) &&
        read_file(directory, "MANIFEST-000001", &description);
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&description));
    for (size_t i = 0; i < FCAP_LINEAGE_BYTES; i++) {
        state->position.lineage.bytes[i] = fcap_reader_u8(&reader);
    }
    state->position.sequence = fcap_reader_be64(&reader);
    state->has_origin = fcap_reader_u8(&reader) != 0;
    for (size_t i = 0; i < FCAP_LINEAGE_BYTES; i++) {
        state->origin.lineage.bytes[i] = fcap_reader_u8(&reader);
    }
    state->origin.sequence = fcap_reader_be64(&reader);
    state->number_next = 1;
    while (is_good && fcap_reader_left(&reader) > 0) {
        char name[32];
        unsigned number = fcap_reader_be32(&reader);
        (void)snprintf(name, sizeof name, "%06u.sst", number);
        fcap_buffer_clear(&bytes);
        is_good = read_file(directory, name, &bytes) &&
                  read_entries(&state->map, fcap_buffer_bytes(&bytes));
        add_file(state, number, fcap_buffer_bytes(&bytes));
        state->number_next = number >= state->number_next ? number + 1 : state->number_next;
    }
    is_good = is_good && !reader.failed;
    state->flushed = state->position.sequence;
    fcap_buffer_done(&bytes);
    fcap_buffer_done(&description);
    return is_good;
}

/* --- the port -------------------------------------------------------------------------------- */

static void draw_lineage(struct fcap_lineage *lineage, uint64_t seed)
{
    for (size_t i = 0; i < FCAP_LINEAGE_BYTES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        lineage->bytes[i] = (uint8_t)(seed >> 56);
    }
}

static void position(struct fcap_checkpoint_state *state, struct fcap_store_position *ret_position)
{
    *ret_position = of(state)->position;
}

static bool origin(struct fcap_checkpoint_state *state, struct fcap_store_position *ret_origin)
{
    *ret_origin = of(state)->origin;
    return of(state)->has_origin;
}

static enum fcap_status fork_state(struct fcap_checkpoint_state *state, struct fcap_error *error)
{
    (void)error;
    struct fake_state *fake = of(state);
    uint64_t seed = fake->position.sequence + 77;
    for (size_t i = 0; i < FCAP_LINEAGE_BYTES; i++) {
        seed = seed * 31 + fake->position.lineage.bytes[i];
    }
    fake->origin = fake->position;
    fake->has_origin = true;
    draw_lineage(&fake->position.lineage, seed);
    return FCAP_OK;
}

static void follow(struct fcap_checkpoint_state *state, const struct fcap_store_follower *follower)
{
    of(state)->follower = follower != NULL ? *follower : (struct fcap_store_follower){0};
}

static void visit_partitions(const struct fake_map *map, fcap_checkpoint_partition_visitor visitor,
                             void *context)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer inner = {0};
    for (int32_t partition = 0; partition < 16; partition++) {
        struct fcap_meta meta;
        fcap_buffer_clear(&inner);
        fcap_key_meta(&inner, partition, FCAP_META_NAME);
        map_key(&key, FCAP_FAMILY_META, fcap_buffer_bytes(&inner));
        size_t at = fake_map_find(map, fcap_buffer_bytes(&key));
        if (fake_map_holds(map, at, fcap_buffer_bytes(&key))) {
            FCAP_ASSERT(fcap_meta_decode(fcap_buffer_bytes(&map->pairs[at].value), &meta) ==
                        FCAP_OK);
            const struct fcap_checkpoint_partition found = {partition, meta.commit,
                                                            meta.next_offset, meta.clock_ms};
            visitor(context, &found);
        }
    }
    fcap_buffer_done(&key);
    fcap_buffer_done(&inner);
}

static enum fcap_status partitions(struct fcap_checkpoint_state *state,
                                   fcap_checkpoint_partition_visitor visitor, void *context,
                                   struct fcap_error *error)
{
    (void)error;
    visit_partitions(&of(state)->map, visitor, context);
    return FCAP_OK;
}

static enum fcap_status partitions_of(struct fcap_checkpoint_state *state, const char *directory,
                                      fcap_checkpoint_partition_visitor visitor, void *context,
                                      struct fcap_error *error)
{
    struct fake_state snapshot;
    int64_t now_ms = 0;
    (void)state;
    (void)error;
    fake_state_load(&snapshot, directory, &now_ms);
    visit_partitions(&snapshot.map, visitor, context);
    fake_state_done(&snapshot);
    return FCAP_OK;
}

static enum fcap_status snapshot(struct fcap_checkpoint_state *state, const char *directory,
                                 uint64_t *ret_sequence, struct fcap_error *error)
{
    struct fake_state *fake = of(state);
    if (fake->meanwhile != NULL) {
        fake->meanwhile(fake->meanwhile_context);
    }
    if (fake->snapshot_failures_left > 0) {
        fake->snapshot_failures_left--;
        return fcap_error_set(error, FCAP_NO_SPACE, "%s: planted", directory);
    }
    flush(fake);
    (void)mkdir(fake->directory, 0700);       /* It may be there. */
    FCAP_ASSERT(mkdir(directory, 0700) == 0); /* It must not exist. */
    write_all(fake, directory);
    *ret_sequence = fake->position.sequence;
    fake->snapshots++;
    if (fake->meanwhile != NULL) {
        fake->meanwhile(fake->meanwhile_context);
    }
    return FCAP_OK;
}

static void init(struct fake_state *state, const char *directory, int64_t *wall_ms)
{
    static const struct fcap_checkpoint_state_ops ops = {
        .position = position,
        .origin = origin,
        .fork = fork_state,
        .follow = follow,
        .partitions = partitions,
        .partitions_of = partitions_of,
        .snapshot = snapshot,
    };
    *state = (struct fake_state){.number_next = 1, .wall_ms = wall_ms};
    (void)snprintf(state->directory, sizeof state->directory, "%s", directory);
    fcap_checkpoint_state_init(&state->state, &ops, state->directory);
}

void fake_state_init(struct fake_state *state, const char *directory, uint64_t seed,
                     int64_t *wall_ms)
{
    init(state, directory, wall_ms);
    draw_lineage(&state->position.lineage, seed);
}

void fake_state_load(struct fake_state *state, const char *directory, int64_t *wall_ms)
{
    init(state, directory, wall_ms);
    FCAP_ASSERT(read_all(state, directory));
}

void fake_state_save(struct fake_state *state)
{
    flush(state);
    (void)mkdir(state->directory, 0700); /* It may be there. */
    write_all(state, state->directory);
}

void fake_state_done(struct fake_state *state)
{
    fake_map_done(&state->map);
    drop_files(state);
    fcap_buffer_done(&state->unflushed);
    fcap_checkpoint_state_done(&state->state);
}

void fake_state_apply(struct fake_state *state, const struct fcap_batch *batch)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer end = {0};
    for (size_t i = 0; i < batch->entry_count; i++) {
        const struct fcap_batch_entry *entry = &batch->entries[i];
        struct fcap_bytes value =
            entry->change == FCAP_CHANGE_DELETE ? FCAP_BYTES_NONE : fcap_batch_value(batch, i);
        map_key(&key, entry->family, fcap_batch_key(batch, i));
        if (entry->change == FCAP_CHANGE_DELETE_RANGE) {
            map_key(&end, entry->family, value);
            value = fcap_buffer_bytes(&end);
        }
        map_apply(&state->map, entry->change, fcap_buffer_bytes(&key), value);
        put_entry(&state->unflushed, entry->change, fcap_buffer_bytes(&key), value);
    }
    state->position.sequence++;
    fcap_buffer_done(&key);
    fcap_buffer_done(&end);
}

void fake_state_lose_unflushed(struct fake_state *state)
{
    fake_map_done(&state->map);
    state->map = (struct fake_map){0};
    for (size_t i = 0; i < state->file_count; i++) {
        FCAP_ASSERT(read_entries(&state->map, fcap_buffer_bytes(&state->files[i].bytes)));
    }
    fcap_buffer_clear(&state->unflushed);
    state->position.sequence = state->flushed;
}

void fake_state_write(struct fake_state *state, const struct fcap_batch *batch)
{
    fake_state_apply(state, batch);
    if (state->follower.written != NULL) {
        state->follower.written(state->follower.context, state->position.sequence, *state->wall_ms,
                                batch, NULL);
    }
}

/* --- the place of a restore ------------------------------------------------------------------ */

static struct fake_place *of_place(struct fcap_checkpoint_place *place)
{
    return (struct fake_place *)place;
}

static enum fcap_status place_open(struct fcap_checkpoint_place *place, const char *directory,
                                   struct fcap_error *error)
{
    static int64_t no_time;
    struct fake_place *fake = of_place(place);
    FCAP_ASSERT(!fake->is_open);
    if (fake->refuse != FCAP_OK) {
        return fcap_error_set(error, fake->refuse, "%s: planted", directory);
    }
    init(&fake->state, directory, &no_time);
    if (!read_all(&fake->state, directory)) {
        fake_state_done(&fake->state);
        return fcap_error_set(error, FCAP_CORRUPT, "%s: unreadable", directory);
    }
    fake->is_open = true;
    return FCAP_OK;
}

static void place_position(struct fcap_checkpoint_place *place,
                           struct fcap_store_position *ret_position)
{
    *ret_position = of_place(place)->state.position;
}

static enum fcap_status place_partitions(struct fcap_checkpoint_place *place,
                                         fcap_checkpoint_partition_visitor visitor, void *context,
                                         struct fcap_error *error)
{
    (void)error;
    visit_partitions(&of_place(place)->state.map, visitor, context);
    return FCAP_OK;
}

static enum fcap_status place_apply(struct fcap_checkpoint_place *place, uint64_t sequence,
                                    const struct fcap_batch *batch, struct fcap_error *error)
{
    struct fake_state *state = &of_place(place)->state;
    if (sequence != state->position.sequence + 1) {
        return fcap_error_set(error, FCAP_CORRUPT, "it does not follow");
    }
    fake_state_apply(state, batch);
    of_place(place)->applied++;
    return FCAP_OK;
}

static enum fcap_status place_fork(struct fcap_checkpoint_place *place, struct fcap_error *error)
{
    (void)error;
    struct fake_place *fake = of_place(place);
    fake->state.origin = fake->state.position;
    fake->state.has_origin = true;
    draw_lineage(&fake->state.position.lineage, fake->seed++);
    return FCAP_OK;
}

static void place_close(struct fcap_checkpoint_place *place)
{
    struct fake_place *fake = of_place(place);
    if (!fake->is_open) {
        return;
    }
    flush(&fake->state);
    write_all(&fake->state, fake->state.directory);
    fake_state_done(&fake->state);
    fake->is_open = false;
}

void fake_place_init(struct fake_place *place, uint64_t seed)
{
    static const struct fcap_checkpoint_place_ops ops = {
        .open = place_open,
        .position = place_position,
        .partitions = place_partitions,
        .apply = place_apply,
        .fork = place_fork,
        .close = place_close,
    };
    *place = (struct fake_place){.place = {&ops}, .seed = seed};
}
