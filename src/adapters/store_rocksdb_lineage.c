/* Which batch the state stands at, of which history; and going on from a copy of it. */
#include "store_rocksdb_internal.h"

#include "fcap/assert.h"
#include "fcap/point.h"

#include <string.h>
#include <sys/random.h>

const char store_format_key[] = "\xff\xff"
                                "format";
const char store_sequence_key[] = "\xff\xff"
                                  "sequence";
static const char lineage_key[] = "\xff\xff"
                                  "lineage";
static const char origin_key[] = "\xff\xff"
                                 "origin";

/* The sizes of what is stored (docs/DATA.md). */
enum {
    SEQUENCE_BYTES = 8,
    ORIGIN_BYTES = FCAP_LINEAGE_BYTES + SEQUENCE_BYTES,
};

/* --- reading and drawing --------------------------------------------------------------------- */

enum fcap_status store_own_get(const struct fcap_store_rocksdb *db, const char *key, size_t size,
                               struct fcap_buffer *value, bool *ret_found, struct fcap_error *error)
{
    fcap_buffer_clear(value);
    char *text = NULL;
    size_t key_size = strlen(key);
    rocksdb_pinnableslice_t *slice = rocksdb_get_pinned_cf(
        db->db, db->read_options, db->families[FCAP_FAMILY_META], key, key_size, &text);
    if (text != NULL) {
        return store_explain(db->directory, text, error);
    }
    *ret_found = slice != NULL;
    if (slice == NULL) {
        return FCAP_OK;
    }
    size_t found = 0;
    const char *bytes = rocksdb_pinnableslice_value(slice, &found);
    fcap_buffer_put(value, bytes, found);
    rocksdb_pinnableslice_destroy(slice);
    if (found != size) {
        return fcap_error_set(error, FCAP_CORRUPT, "%s: `%s` has %zu bytes; " STORE_CURE_CORRUPT,
                              db->directory, key + 2, found);
    }
    return FCAP_OK;
}

static struct fcap_lineage read_lineage(struct fcap_reader *reader)
{
    struct fcap_lineage lineage = {{0}};
    struct fcap_bytes bytes = fcap_reader_take(reader, sizeof lineage.bytes);
    FCAP_ASSERT(bytes.size == sizeof lineage.bytes); /* The size has been checked. */
    memcpy(lineage.bytes, bytes.data, bytes.size);
    return lineage;
}

static void put(rocksdb_writebatch_t *changes, rocksdb_column_family_handle_t *meta,
                const char *key, struct fcap_bytes value)
{
    rocksdb_writebatch_put_cf(changes, meta, key, strlen(key), (const char *)value.data,
                              value.size);
}

void store_put_sequence(const struct fcap_store_rocksdb *db, rocksdb_writebatch_t *changes,
                        uint64_t sequence)
{
    struct fcap_buffer value = {0};
    fcap_buffer_put_be64(&value, sequence);
    put(changes, db->families[FCAP_FAMILY_META], store_sequence_key, fcap_buffer_bytes(&value));
    fcap_buffer_done(&value);
}

/* Durable when it returns OK. Frees the changes. */
static enum fcap_status write_durably(struct fcap_store_rocksdb *db, rocksdb_writebatch_t *changes)
{
    struct fcap_buffer value = {0};
    char *text = NULL;
    fcap_buffer_put_be32(&value, FCAP_STORE_FORMAT_VERSION); /* As one with what it promises. */
    put(changes, db->families[FCAP_FAMILY_META], store_format_key, fcap_buffer_bytes(&value));
    (void)pthread_mutex_lock(&db->write_gate);
    rocksdb_write(db->db, db->durable_options, changes, &text);
    FCAP_POINT(lineage_drawn);
    (void)pthread_mutex_unlock(&db->write_gate);
    rocksdb_writebatch_destroy(changes);
    fcap_buffer_done(&value);
    enum fcap_status status = store_take_error(db, text);
    return status == FCAP_OK && !db->wal ? store_make_durable(db) : status;
}

/* Writes another lineage; `origin` NULL: the first. Durable when it returns OK. */
static enum fcap_status draw_lineage(struct fcap_store_rocksdb *db,
                                     const struct fcap_store_position *origin)
{
    struct fcap_lineage lineage;
    struct fcap_buffer value = {0};
    rocksdb_writebatch_t *changes = rocksdb_writebatch_create();
    rocksdb_column_family_handle_t *meta = db->families[FCAP_FAMILY_META];
    FCAP_ASSERT(getrandom(lineage.bytes, sizeof lineage.bytes, 0) == (ssize_t)sizeof lineage.bytes);
    put(changes, meta, lineage_key, (struct fcap_bytes){lineage.bytes, sizeof lineage.bytes});
    store_put_sequence(db, changes, db->position.sequence);
    if (origin != NULL) {
        fcap_buffer_put(&value, origin->lineage.bytes, sizeof origin->lineage.bytes);
        fcap_buffer_put_be64(&value, origin->sequence);
        put(changes, meta, origin_key, fcap_buffer_bytes(&value));
    }
    fcap_buffer_done(&value);
    enum fcap_status status = write_durably(db, changes);
    if (status == FCAP_OK) {
        (void)pthread_mutex_lock(&db->lock);
        db->position.lineage = lineage;
        (void)pthread_mutex_unlock(&db->lock);
    }
    return status;
}

void store_tell_last_error(struct fcap_store_rocksdb *db, struct fcap_error *error)
{
    if (error != NULL) {
        fcap_store_rocksdb_last_error(db, error);
    }
}

/* Of an earlier format, or without a lineage. */
static enum fcap_status bring_up(struct fcap_store_rocksdb *db, bool has_lineage,
                                 struct fcap_error *error)
{
    if (has_lineage && !db->keeps_lineage) {
        return fcap_store_rocksdb_fork(db, error);
    }
    enum fcap_status status =
        has_lineage ? write_durably(db, rocksdb_writebatch_create()) : draw_lineage(db, NULL);
    if (status != FCAP_OK) {
        store_tell_last_error(db, error);
    }
    return status;
}

enum fcap_status store_lineage_enter(struct fcap_store_rocksdb *db, bool is_earlier_format,
                                     struct fcap_error *error)
{
    struct fcap_buffer value = {0};
    bool has_lineage = false;
    bool has_sequence = false;
    bool has_origin = false;
    enum fcap_status status =
        store_own_get(db, store_sequence_key, SEQUENCE_BYTES, &value, &has_sequence, error);
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&value));
    if (status == FCAP_OK && has_sequence) {
        db->position.sequence = fcap_reader_be64(&reader);
    }
    if (status == FCAP_OK) {
        status = store_own_get(db, origin_key, ORIGIN_BYTES, &value, &has_origin, error);
    }
    if (status == FCAP_OK && has_origin) {
        reader = fcap_reader_of(fcap_buffer_bytes(&value));
        db->has_origin = true;
        db->origin.lineage = read_lineage(&reader);
        db->origin.sequence = fcap_reader_be64(&reader);
    }
    if (status == FCAP_OK) {
        status = store_own_get(db, lineage_key, FCAP_LINEAGE_BYTES, &value, &has_lineage, error);
    }
    if (status == FCAP_OK && has_lineage) {
        reader = fcap_reader_of(fcap_buffer_bytes(&value));
        db->position.lineage = read_lineage(&reader);
    }
    fcap_buffer_done(&value);
    if (status == FCAP_OK && (!has_lineage || is_earlier_format) && !db->is_read_only) {
        status = bring_up(db, has_lineage, error);
    }
    return status;
}

void fcap_store_rocksdb_position(struct fcap_store_rocksdb *db,
                                 struct fcap_store_position *ret_position)
{
    (void)pthread_mutex_lock(&db->lock); /* Fails only when misused, here and below. */
    *ret_position = db->position;
    (void)pthread_mutex_unlock(&db->lock);
}

bool fcap_store_rocksdb_origin(struct fcap_store_rocksdb *db,
                               struct fcap_store_position *ret_origin)
{
    (void)pthread_mutex_lock(&db->lock);
    bool has_origin = db->has_origin;
    if (has_origin) {
        *ret_origin = db->origin;
    }
    (void)pthread_mutex_unlock(&db->lock);
    return has_origin;
}

void fcap_store_rocksdb_follow(struct fcap_store_rocksdb *db,
                               const struct fcap_store_follower *follower)
{
    (void)pthread_mutex_lock(&db->lock);
    db->follower = follower == NULL ? (struct fcap_store_follower){0} : *follower;
    (void)pthread_mutex_unlock(&db->lock);
}

/* --- restoring ------------------------------------------------------------------------------- */

/* What a store may write: anything else would end the process, or be no batch of ours. */
static bool is_sound(const struct fcap_batch *batch)
{
    for (size_t i = 0; i < batch->section_count; i++) {
        const struct fcap_batch_section *section = &batch->sections[i];
        if (section->partition < 0 || section->partition > STORE_PARTITION_MAX ||
            section->first > batch->entry_count ||
            section->count > batch->entry_count - section->first) {
            return false;
        }
    }
    for (size_t i = 0; i < batch->entry_count; i++) {
        const struct fcap_batch_entry *entry = &batch->entries[i];
        bool is_range = entry->change == FCAP_CHANGE_DELETE_RANGE;
        if ((size_t)entry->family >= FCAP_FAMILY_COUNT ||
            (size_t)entry->change > FCAP_CHANGE_DELETE_RANGE ||
            (is_range && entry->key_size >= STORE_INSERT_HINT_BYTES)) {
            return false;
        }
    }
    return true;
}

enum fcap_status fcap_store_rocksdb_apply(struct fcap_store_rocksdb *db, uint64_t sequence,
                                          const struct fcap_batch *batch, struct fcap_error *error)
{
    if (db->is_read_only) {
        return fcap_error_set(error, FCAP_STOPPED, "%s is open for reading", db->directory);
    }
    if (sequence != db->position.sequence + 1) {
        return fcap_error_set(error, FCAP_CORRUPT, "%s: batch %llu does not follow on batch %llu",
                              db->directory, (unsigned long long)sequence,
                              (unsigned long long)db->position.sequence);
    }
    char *text = NULL;
    size_t timers = 0;
    rocksdb_writebatch_t *changes = rocksdb_writebatch_create();
    if (!is_sound(batch) || store_changes_make(db, changes, batch, NULL, sequence, &timers) == 0) {
        rocksdb_writebatch_destroy(changes);
        return fcap_error_set(error, FCAP_CORRUPT, "batch %llu is none that a store has written",
                              (unsigned long long)sequence);
    }
    (void)pthread_mutex_lock(&db->write_gate);
    rocksdb_write(db->db, db->write_options, changes, &text);
    (void)pthread_mutex_unlock(&db->write_gate);
    rocksdb_writebatch_destroy(changes);
    enum fcap_status status = store_take_error(db, text);
    if (status != FCAP_OK) {
        store_tell_last_error(db, error);
        return status;
    }
    (void)pthread_mutex_lock(&db->lock);
    db->position.sequence = sequence;
    db->timers_written += timers;
    db->is_unsynced = true;
    (void)pthread_mutex_unlock(&db->lock);
    FCAP_POINT(frame_applied);
    return FCAP_OK;
}

enum fcap_status fcap_store_rocksdb_fork(struct fcap_store_rocksdb *db, struct fcap_error *error)
{
    if (db->is_read_only) {
        return fcap_error_set(error, FCAP_STOPPED, "%s is open for reading", db->directory);
    }
    struct fcap_store_position origin = db->position;
    enum fcap_status status = draw_lineage(db, &origin);
    if (status != FCAP_OK) {
        store_tell_last_error(db, error);
        return status;
    }
    (void)pthread_mutex_lock(&db->lock);
    db->origin = origin;
    db->has_origin = true;
    (void)pthread_mutex_unlock(&db->lock);
    return FCAP_OK;
}
