/* One partition out of a checkpoint's files, which are opened where they lie, and out of its
 * changelog, filtered.
 *
 * Small files are copied and checked in full. Tables are links to where the objects lie, or copies
 * when they lie nowhere; RocksDB checks each block of them as it is read. The changelog is read to
 * its end and checked before anything of it is used. */
#include "fcap/adopter.h"

#include "fcap/assert.h"
#include "fcap/key.h"
#include "fcap/meta.h"
#include "fcap/point.h"
#include "restore_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE ".sst"

/* Of a database that is read once, from one end to the other. */
enum { CACHE_BYTES = 32 << 20, OPEN_FILES_MAX = 256 };

/* What the changelog makes of a partition that the snapshot holds. */
struct change {
    int32_t partition;
    bool has_meta; /* `meta` is its newest record; else it was removed */
    bool has_floor;
    bool is_meta_known; /* else the snapshot says; the same below */
    bool is_floor_known;
    bool is_mark_known;
    bool is_half;
    int64_t floor_ms;
    struct fcap_store_partition meta; /* what the record says */
};

struct adopt_rocksdb {
    struct fcap_adopt_state port; /* first */
    struct fcap_store_rocksdb *db;
    struct fcap_store_settings settings; /* of a snapshot */
    struct fcap_objects *objects;
    char directory[4096]; /* where snapshots are opened */

    /* The candidate that is open. */
    struct fcap_store_rocksdb *from; /* NULL: none */
    char instance[FCAP_CHECKPOINT_NAME_MAX + 1];
    uint64_t log;
    uint64_t snapshot;
    struct fcap_lineage lineage;
    struct change *changes; /* by no order */
    size_t change_count;
};

static struct adopt_rocksdb *of_state(struct fcap_adopt_state *port)
{
    return (struct adopt_rocksdb *)port;
}

static enum fcap_status state_look(struct fcap_adopt_state *port, int32_t partition,
                                   struct fcap_store_partition *ret_here, struct fcap_error *error)
{
    return fcap_store_rocksdb_look(of_state(port)->db, partition, ret_here, error);
}

static void state_rest(struct fcap_adopt_state *port)
{
    struct adopt_rocksdb *state = of_state(port);
    struct fcap_error unused;
    fcap_store_rocksdb_close(state->from);
    state->from = NULL;
    free(state->changes);
    state->changes = NULL;
    state->change_count = 0;
    if (fcap_checkpoint_remove_directory(state->directory, &unused) != FCAP_OK) {
        return; /* The next one that is opened does it first. */
    }
}

/* --- files -------------------------------------------------------------------------------------
 */

static bool is_table(const char *name)
{
    size_t size = strlen(name);
    return size > strlen(TABLE) && strcmp(name + size - strlen(TABLE), TABLE) == 0;
}

static enum fcap_status place_file(struct adopt_rocksdb *state,
                                   const struct fcap_checkpoint_file *file,
                                   struct fcap_error *error)
{
    static const struct fcap_restore_settings nothing = {.profile = NULL};
    struct restore restore = {.settings = &nothing, .objects = state->objects};
    const struct fcap_objects_ops *ops = state->objects->ops;
    char lies[FCAP_OBJECT_PATH_MAX];
    char path[sizeof state->directory + sizeof file->name + 1];
    (void)snprintf(path, sizeof path, "%s/%s", state->directory, file->name); /* It fits. */
    if (!is_table(file->name) || ops->locate == NULL ||
        !ops->locate(state->objects, file->object, lies)) {
        const struct fcap_checkpoint one = {
            .files = (struct fcap_checkpoint_file *)(uintptr_t)file, /* Only read. */
            .file_count = 1};
        enum fcap_status status = restore_copy_files(&restore, &one, state->directory, error);
        object_list_done(&restore.bad);
        return status;
    }
    return symlink(lies, path) == 0
               ? FCAP_OK
               : fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_IO, "%s: %s", path,
                                strerror(errno));
}

static enum fcap_status place_files(struct adopt_rocksdb *state,
                                    const struct fcap_checkpoint *snapshot,
                                    const struct fcap_store_claimed *claimed,
                                    struct fcap_error *error)
{
    if (mkdir(state->directory, 0750) != 0) {
        return fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_IO, "%s: %s",
                              state->directory, strerror(errno));
    }
    enum fcap_status status = FCAP_OK;
    for (size_t i = 0; i < snapshot->file_count && status == FCAP_OK; i++) {
        status = claimed->go_on(claimed->context)
                     ? place_file(state, &snapshot->files[i], error)
                     : fcap_error_set(error, FCAP_STOPPED, "%s", state->directory);
    }
    return status;
}

/* --- the changelog -----------------------------------------------------------------------------
 */

struct reading {
    struct adopt_rocksdb *state;
    const struct fcap_store_claimed *claimed;
    uint64_t after;                 /* the snapshot holds the batches up to this one */
    struct fcap_store_carry *carry; /* NULL: they are only looked at */
    uint64_t batches;
};

static struct change *change_of(struct adopt_rocksdb *state, int32_t partition)
{
    for (size_t i = 0; i < state->change_count; i++) {
        if (state->changes[i].partition == partition) {
            return &state->changes[i];
        }
    }
    state->changes =
        reallocarray(state->changes, state->change_count + 1, sizeof state->changes[0]);
    FCAP_ASSERT(state->changes != NULL);
    struct change *change = &state->changes[state->change_count++];
    *change = (struct change){.partition = partition};
    return change;
}

static bool is_key(struct fcap_bytes key, int32_t partition, const char *name)
{
    struct fcap_reader reader = fcap_reader_of(key);
    return fcap_reader_be16(&reader) == partition && !reader.failed &&
           fcap_bytes_equal((struct fcap_bytes){key.data + 2, key.size - 2}, fcap_bytes_of(name));
}

/* A range covers all of the partition's records, or none. */
static enum fcap_status note(struct change *change, const struct fcap_batch *batch, size_t index)
{
    const struct fcap_batch_entry *entry = &batch->entries[index];
    const struct fcap_bytes key = fcap_batch_key(batch, index);
    const struct fcap_bytes value = fcap_batch_value(batch, index);
    struct fcap_reader reader = fcap_reader_of(key);
    int32_t partition = fcap_reader_be16(&reader);
    if (partition == FCAP_PARTITION_MAX + 1) {
        change->is_mark_known = true; /* Its only key of the store's own. */
        change->is_half = entry->change == FCAP_CHANGE_PUT;
        return FCAP_OK;
    }
    bool is_range = entry->change == FCAP_CHANGE_DELETE_RANGE;
    if (is_range || is_key(key, change->partition, FCAP_FLOOR_NAME)) {
        struct fcap_reader time = fcap_reader_of(value);
        change->is_floor_known = true;
        change->has_floor = entry->change == FCAP_CHANGE_PUT;
        change->floor_ms = change->has_floor ? fcap_reader_i64(&time) : 0;
    }
    if (is_range || is_key(key, change->partition, FCAP_META_NAME)) {
        change->is_meta_known = true;
        change->has_meta = entry->change == FCAP_CHANGE_PUT;
        return change->has_meta ? fcap_store_partition_set(&change->meta, value) : FCAP_OK;
    }
    return FCAP_OK;
}

static enum fcap_status note_all(struct adopt_rocksdb *state, const struct fcap_batch *batch)
{
    enum fcap_status status = FCAP_OK;
    for (size_t i = 0; i < batch->section_count; i++) {
        const struct fcap_batch_section *section = &batch->sections[i];
        struct change *change = change_of(state, section->partition);
        for (size_t k = section->first; k < section->first + section->count; k++) {
            if (batch->entries[k].family == FCAP_FAMILY_META && status == FCAP_OK) {
                status = note(change, batch, k);
            }
        }
    }
    return status;
}

static enum fcap_status on_frame(void *context, const struct fcap_changelog_frame *frame,
                                 struct fcap_error *error)
{
    struct reading *reading = context;
    if (!reading->claimed->go_on(reading->claimed->context)) {
        return fcap_error_set(error, FCAP_STOPPED, "batch %" PRIu64, frame->sequence);
    }
    if (frame->sequence <= reading->after) {
        return FCAP_OK;
    }
    reading->batches++;
    if (reading->carry == NULL) {
        enum fcap_status status = note_all(reading->state, &frame->batch);
        return status == FCAP_OK ? FCAP_OK
                                 : fcap_error_set(error, FCAP_CORRUPT, "batch %" PRIu64 ": %s",
                                                  frame->sequence, fcap_status_text(status));
    }
    FCAP_POINT(partition_followed);
    return fcap_store_rocksdb_carry(reading->carry, &frame->batch);
}

static enum fcap_status read_changelog(struct reading *reading,
                                       const struct fcap_adopt_candidate *candidate,
                                       struct fcap_error *error)
{
    static const struct fcap_restore_settings nothing = {.profile = NULL};
    struct restore restore = {.settings = &nothing, .objects = reading->state->objects};
    const struct fcap_checkpoint *log = candidate->log;
    enum fcap_status status = FCAP_OK;
    reading->after = candidate->snapshot->snapshot_sequence;
    for (size_t i = candidate->first; i < log->segment_count && status == FCAP_OK; i++) {
        status = restore_read_segment(&restore, &log->segments[i], &log->lineage, on_frame, reading,
                                      error);
    }
    return status;
}

/* --- opening -----------------------------------------------------------------------------------
 */

static bool is_open(const struct adopt_rocksdb *state, const struct fcap_adopt_candidate *candidate)
{
    const struct fcap_checkpoint *log = candidate->log;
    return state->from != NULL && state->log == log->number &&
           state->snapshot == candidate->snapshot->number &&
           strcmp(state->instance, log->instance) == 0 &&
           memcmp(&state->lineage, &log->lineage, sizeof state->lineage) == 0;
}

static enum fcap_status open_files(struct adopt_rocksdb *state,
                                   const struct fcap_adopt_candidate *candidate,
                                   const struct fcap_store_claimed *claimed,
                                   struct fcap_error *error)
{
    struct fcap_store_position position;
    enum fcap_status status = fcap_checkpoint_remove_directory(state->directory, error);
    if (status == FCAP_OK) {
        status = place_files(state, candidate->snapshot, claimed, error);
    }
    if (status == FCAP_OK) {
        status = fcap_store_rocksdb_open_read_only(&state->settings, &state->from, error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    fcap_store_rocksdb_position(state->from, &position);
    if (position.sequence != candidate->snapshot->snapshot_sequence ||
        memcmp(&position.lineage, &candidate->log->lineage, sizeof position.lineage) != 0) {
        return fcap_error_set(error, FCAP_CORRUPT,
                              "the snapshot holds another state than its manifest tells");
    }
    return FCAP_OK;
}

/* Opens it, unless it is open, and knows what it makes of all partitions then. */
static enum fcap_status open_candidate(struct adopt_rocksdb *state,
                                       const struct fcap_adopt_candidate *candidate,
                                       const struct fcap_store_claimed *claimed,
                                       struct fcap_error *error)
{
    struct reading reading = {.state = state, .claimed = claimed};
    if (is_open(state, candidate)) {
        return FCAP_OK;
    }
    state_rest(&state->port);
    enum fcap_status status = open_files(state, candidate, claimed, error);
    if (status == FCAP_OK) {
        status = read_changelog(&reading, candidate, error);
    }
    if (status != FCAP_OK) {
        state_rest(&state->port);
        return status;
    }
    state->log = candidate->log->number;
    state->snapshot = candidate->snapshot->number;
    state->lineage = candidate->log->lineage;
    memcpy(state->instance, candidate->log->instance, sizeof state->instance);
    return FCAP_OK;
}

/* --- taking ------------------------------------------------------------------------------------
 */

/* What the partition will be at the end of the candidate. */
static enum fcap_status judge(struct adopt_rocksdb *state,
                              const struct fcap_adopt_candidate *candidate,
                              struct fcap_error *error)
{
    const int32_t partition = candidate->partition.partition;
    struct fcap_store_partition end;
    enum fcap_status status = fcap_store_rocksdb_look(state->from, partition, &end, error);
    if (status != FCAP_OK) {
        return status;
    }
    const struct change *change = change_of(state, partition);
    if (change->is_meta_known) {
        end.found = change->has_meta;
        end.next_offset = change->meta.next_offset;
        end.clock_ms = change->meta.clock_ms;
        end.needed_ms = change->meta.needed_ms;
    }
    end.floor_ms = change->is_floor_known ? change->floor_ms : end.floor_ms;
    end.is_half = change->is_mark_known ? change->is_half : end.is_half;
    if (!end.found || end.is_half) {
        return fcap_error_set(error, FCAP_REFUSED, "%s",
                              end.found ? "the partition is only half there"
                                        : "it holds nothing of the partition");
    }
    if (end.next_offset != candidate->partition.next_offset) {
        return fcap_error_set(error, FCAP_CORRUPT,
                              "its next offset is %" PRId64 ", the manifest tells %" PRId64,
                              end.next_offset, candidate->partition.next_offset);
    }
    return fcap_store_partition_lacks(&end)
               ? fcap_error_set(error, FCAP_REFUSED, "timers that it needs were dropped there")
               : FCAP_OK;
}

struct following {
    struct fcap_adopt_order order;
    const struct fcap_adopt_candidate *candidate;
    struct reading reading;
};

static bool follow_goes_on(void *context)
{
    const struct following *following = context;
    return following->order.claimed.go_on(following->order.claimed.context);
}

static enum fcap_status follow(void *context, struct fcap_store_carry *carry,
                               struct fcap_error *error)
{
    struct following *following = context;
    following->reading.carry = carry;
    return read_changelog(&following->reading, following->candidate, error);
}

static enum fcap_status state_take(struct fcap_adopt_state *port,
                                   const struct fcap_adopt_candidate *candidate,
                                   const struct fcap_adopt_order *order,
                                   struct fcap_adopt_taken *ret_taken, struct fcap_error *error)
{
    struct adopt_rocksdb *state = of_state(port);
    struct fcap_store_copied copied = {0};
    struct following following = {.order = *order, .candidate = candidate};
    struct fcap_store_claimed claimed = order->claimed;
    following.reading = (struct reading){.state = state, .claimed = &order->claimed};
    claimed.go_on = follow_goes_on;
    claimed.follow = follow;
    claimed.context = &following;
    enum fcap_status status = open_candidate(state, candidate, &order->claimed, error);
    if (status == FCAP_OK) {
        status = judge(state, candidate, error);
    }
    if (status == FCAP_OK && order->keeps) {
        status = fcap_store_rocksdb_read_partition(state->from, &claimed, &copied, error);
    }
    if (status == FCAP_OK) {
        FCAP_POINT(adoption_opened);
        order->changes(order->claimed.context);
        status =
            fcap_store_rocksdb_copy_partition(state->from, state->db, &claimed, &copied, error);
    }
    if (status == FCAP_OK) {
        *ret_taken = (struct fcap_adopt_taken){.users = copied.users,
                                               .chunks = copied.chunks,
                                               .bytes = copied.bytes,
                                               .batches = following.reading.batches};
    }
    return status;
}

/* --- life --------------------------------------------------------------------------------------
 */

struct fcap_adopt_state *fcap_adopt_rocksdb_open(struct fcap_store_rocksdb *db,
                                                 const struct fcap_store_settings *settings,
                                                 struct fcap_objects *objects)
{
    static const struct fcap_adopt_state_ops ops = {state_look, state_take, state_rest};
    struct adopt_rocksdb *state = calloc(1, sizeof *state);
    struct fcap_error unused;
    FCAP_ASSERT(state != NULL);
    state->port.ops = &ops;
    state->db = db;
    state->objects = objects;
    state->settings = *settings;
    state->settings.directory = state->directory;
    state->settings.block_cache_bytes = CACHE_BYTES;
    state->settings.open_files_max = OPEN_FILES_MAX;
    state->settings.direct_reads = false; /* Of another volume. */
    state->settings.direct_flush_and_compaction = false;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        state->settings.families[i].cache_index_and_filters = true; /* Else all stay in memory. */
    }
    /* The state has been opened in that directory, which is longer. */
    FCAP_ASSERT(fcap_checkpoint_within(settings->directory, "adopting", state->directory,
                                       &unused) == FCAP_OK);
    state_rest(&state->port); /* What a crash left. */
    return &state->port;
}

void fcap_adopt_rocksdb_close(struct fcap_adopt_state *port)
{
    if (port != NULL) {
        state_rest(port);
        free(of_state(port));
    }
}
