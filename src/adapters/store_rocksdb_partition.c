/* One partition, carried from one database into another, or removed.
 *
 * Its users, ads and meta records lie together; its timers lie among those of all partitions, by
 * bucket, and are found by seeking from bucket to bucket. What is written is batches like any
 * other. A partition that is half there is marked, from the first batch to the last, and whoever
 * claims it next finds nothing of it. */
#include "store_rocksdb_internal.h"

#include "fcap/assert.h"
#include "fcap/key.h"
#include "fcap/meta.h"
#include "fcap/point.h"

#include <string.h>

/* When a batch is written (workers' commits wait behind it), and how long one wait for it lasts. */
enum { BATCH_BYTES = 256 << 10, BATCH_ENTRIES = 10000, WAIT_MS = 1000 };

/* A partition of the target, being written. */
struct fcap_store_carry {
    struct fcap_store *store; /* a handle of its own */
    const struct fcap_store_claimed *claimed;
    struct fcap_batch batch;
    struct fcap_buffer key;
    enum fcap_status status; /* of the first batch that failed, or STOPPED */
    bool must_end;           /* removing what is half there is not stopped */
    bool is_only_read;       /* nothing is written */
    struct fcap_store_copied *copied;
};

static void marker_key(struct fcap_buffer *key, int32_t partition)
{
    fcap_buffer_clear(key);
    fcap_key_meta(key, FCAP_PARTITION_MAX + 1, "partial");
    fcap_buffer_put_be16(key, (uint16_t)partition);
}

static bool may_go_on(struct fcap_store_carry *carry)
{
    const struct fcap_store_claimed *claimed = carry->claimed;
    if (carry->status == FCAP_OK && !carry->must_end && claimed->go_on != NULL &&
        !claimed->go_on(claimed->context)) {
        carry->status = FCAP_STOPPED;
    }
    return carry->status == FCAP_OK;
}

static void begin_batch(struct fcap_store_carry *carry)
{
    fcap_batch_clear(&carry->batch);
    fcap_batch_section(&carry->batch, carry->claimed->partition, carry->claimed->assignment, 0);
}

/* Writes what has gathered; false: it goes no further. */
static bool write_batch(struct fcap_store_carry *carry)
{
    const struct fcap_batch *done = NULL;
    if (!may_go_on(carry)) {
        return false;
    }
    if (carry->batch.entry_count > 0 && !carry->is_only_read) {
        carry->status = carry->store->ops->submit(carry->store, &carry->batch);
        while (carry->status == FCAP_OK && done == NULL) {
            (void)carry->store->ops->completed(carry->store, WAIT_MS, &done, &carry->status);
        }
    }
    begin_batch(carry);
    FCAP_POINT_IF(!carry->must_end && !carry->is_only_read, partition_carried);
    return carry->status == FCAP_OK;
}

static bool add(struct fcap_store_carry *carry, enum fcap_family family, enum fcap_change change,
                struct fcap_bytes key, struct fcap_bytes value)
{
    fcap_batch_add(&carry->batch, family, change, key, value);
    return (carry->batch.bytes.size < BATCH_BYTES && carry->batch.entry_count < BATCH_ENTRIES) ||
           write_batch(carry);
}

static enum fcap_status is_marked(struct fcap_store *store, int32_t partition, bool *ret_marked)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    marker_key(&key, partition);
    enum fcap_status status =
        store->ops->get(store, FCAP_FAMILY_META, fcap_buffer_bytes(&key), &value, ret_marked);
    fcap_buffer_done(&value);
    fcap_buffer_done(&key);
    return status;
}

/* A batch of an assignment that has ended is skipped without a word: the marker tells. */
static enum fcap_status expect_marker(struct fcap_store_carry *carry, bool expected)
{
    bool marked = false;
    enum fcap_status status = is_marked(carry->store, carry->claimed->partition, &marked);
    return status == FCAP_OK && marked != expected ? FCAP_FENCED : status;
}

/* --- timers --------------------------------------------------------------------------------------
 */

typedef bool (*chunk_visitor)(struct fcap_store_carry *carry, struct fcap_bytes key,
                              struct fcap_bytes value);

struct walk {
    struct fcap_store_carry *carry;
    chunk_visitor visitor;
    struct fcap_buffer next; /* where to seek; empty: the family's end was reached */
    bool goes_on;            /* the visitor wants more */
    bool is_damaged;
};

static void seek_to(struct fcap_buffer *next, int64_t bucket_ms, int32_t partition)
{
    fcap_buffer_clear(next);
    fcap_buffer_put_be64(next, (uint64_t)bucket_ms);
    fcap_buffer_put_be16(next, (uint16_t)partition);
}

static bool walk_pair(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct walk *walk = context;
    struct fcap_chunk_key chunk;
    int32_t partition = walk->carry->claimed->partition;
    if (!fcap_key_read_chunk(key, &chunk)) {
        walk->is_damaged = true;
        return false;
    }
    walk->carry->copied->chunks_seen++;
    if (chunk.partition != partition) {
        /* Of this bucket, or of whichever comes next. */
        seek_to(&walk->next, chunk.bucket_ms + (chunk.partition > partition),
                chunk.partition > partition ? 0 : partition);
        return false;
    }
    walk->goes_on = walk->visitor(walk->carry, key, value);
    return walk->goes_on;
}

/* Visits all chunks of the partition. */
static enum fcap_status walk_chunks(struct fcap_store_carry *carry, struct fcap_store *store,
                                    chunk_visitor visitor)
{
    struct walk walk = {.carry = carry, .visitor = visitor, .goes_on = true};
    struct fcap_buffer from = {0};
    enum fcap_status status = FCAP_OK;
    seek_to(&walk.next, 0, 0);
    while (status == FCAP_OK && walk.next.size > 0 && walk.goes_on && !walk.is_damaged) {
        fcap_buffer_clear(&from);
        fcap_buffer_put_bytes(&from, fcap_buffer_bytes(&walk.next));
        fcap_buffer_clear(&walk.next);
        status = store->ops->scan(store, FCAP_FAMILY_TIMERS, fcap_buffer_bytes(&from),
                                  FCAP_BYTES_NONE, walk_pair, &walk);
    }
    fcap_buffer_done(&from);
    fcap_buffer_done(&walk.next);
    return status == FCAP_OK && walk.is_damaged ? FCAP_CORRUPT : status;
}

static bool delete_chunk(struct fcap_store_carry *carry, struct fcap_bytes key,
                         struct fcap_bytes value)
{
    (void)value;
    return add(carry, FCAP_FAMILY_TIMERS, FCAP_CHANGE_DELETE, key, FCAP_BYTES_NONE);
}

static bool copy_chunk(struct fcap_store_carry *carry, struct fcap_bytes key,
                       struct fcap_bytes value)
{
    carry->copied->chunks++;
    carry->copied->bytes += key.size + value.size;
    return add(carry, FCAP_FAMILY_TIMERS, FCAP_CHANGE_PUT, key, value);
}

/* --- removing ------------------------------------------------------------------------------------
 */

static void put_range(int32_t partition, struct fcap_buffer *from, struct fcap_buffer *to)
{
    fcap_buffer_clear(from);
    fcap_buffer_clear(to);
    fcap_buffer_put_be16(from, (uint16_t)partition);
    fcap_buffer_put_be16(to, (uint16_t)(partition + 1));
}

/* Marks the partition and removes it, in one batch but for its timers, which nobody looks for
 * without a meta record. */
static enum fcap_status empty(struct fcap_store_carry *carry)
{
    static const enum fcap_family families[] = {FCAP_FAMILY_META, FCAP_FAMILY_USERS,
                                                FCAP_FAMILY_ADS};
    struct fcap_buffer from = {0};
    struct fcap_buffer to = {0};
    put_range(carry->claimed->partition, &from, &to);
    begin_batch(carry);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        fcap_batch_add(&carry->batch, families[i], FCAP_CHANGE_DELETE_RANGE,
                       fcap_buffer_bytes(&from), fcap_buffer_bytes(&to));
    }
    marker_key(&carry->key, carry->claimed->partition);
    fcap_batch_add(&carry->batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, fcap_buffer_bytes(&carry->key),
                   fcap_bytes_of(""));
    fcap_buffer_done(&from);
    fcap_buffer_done(&to);
    enum fcap_status status = write_batch(carry) ? expect_marker(carry, true) : carry->status;
    if (status == FCAP_OK) {
        status = walk_chunks(carry, carry->store, delete_chunk);
    }
    return status == FCAP_OK ? carry->status : status;
}

/* The last batch: from now on the partition is what its meta records say. */
static enum fcap_status end(struct fcap_store_carry *carry)
{
    marker_key(&carry->key, carry->claimed->partition);
    fcap_batch_add(&carry->batch, FCAP_FAMILY_META, FCAP_CHANGE_DELETE,
                   fcap_buffer_bytes(&carry->key), FCAP_BYTES_NONE);
    return write_batch(carry) ? expect_marker(carry, false) : carry->status;
}

enum fcap_status store_partition_settle(struct fcap_store_rocksdb *db, int32_t partition,
                                        uint64_t assignment)
{
    const struct fcap_store_claimed claimed = {.partition = partition, .assignment = assignment};
    struct fcap_store_copied copied = {0};
    struct fcap_store_carry carry = {.claimed = &claimed, .copied = &copied, .must_end = true};
    bool marked = false;
    carry.store = fcap_store_rocksdb_handle(db);
    enum fcap_status status = is_marked(carry.store, partition, &marked);
    if (status == FCAP_OK && marked) {
        status = empty(&carry);
        status = status == FCAP_OK ? end(&carry) : status;
    }
    store_handle_free(carry.store);
    fcap_batch_done(&carry.batch);
    fcap_buffer_done(&carry.key);
    return status;
}

/* --- carrying ------------------------------------------------------------------------------------
 */

static bool copy_user(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct fcap_store_carry *carry = context;
    carry->copied->users++;
    carry->copied->bytes += key.size + value.size;
    return add(carry, FCAP_FAMILY_USERS, FCAP_CHANGE_PUT, key, value);
}

static bool copy_ad(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct fcap_store_carry *carry = context;
    carry->copied->ads++;
    carry->copied->bytes += key.size + value.size;
    return add(carry, FCAP_FAMILY_ADS, FCAP_CHANGE_PUT, key, value);
}

/* All of them go into one batch: redo records are as few as commits under way. The floor speaks of
 * the store that the partition comes from. */
static bool copy_meta(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct fcap_store_carry *carry = context;
    fcap_buffer_clear(&carry->key);
    fcap_key_meta(&carry->key, carry->claimed->partition, FCAP_FLOOR_NAME);
    if (!fcap_bytes_equal(key, fcap_buffer_bytes(&carry->key))) {
        fcap_batch_add(&carry->batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT, key, value);
    }
    return true;
}

static int64_t read_time(struct fcap_store *store, struct fcap_bytes key, enum fcap_status *status)
{
    struct fcap_buffer value = {0};
    bool found = false;
    if (*status == FCAP_OK) {
        *status = store->ops->get(store, FCAP_FAMILY_META, key, &value, &found);
    }
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&value));
    int64_t time_ms = found ? (int64_t)fcap_reader_be64(&reader) : 0;
    fcap_buffer_done(&value);
    return time_ms;
}

enum fcap_status fcap_store_partition_set(struct fcap_store_partition *partition,
                                          struct fcap_bytes bytes)
{
    struct fcap_meta meta = {0};
    enum fcap_status status = fcap_meta_decode(bytes, &meta);
    if (status != FCAP_OK) {
        return status;
    }
    int64_t oldest_ms = meta.redo_history_ms + 1;
    partition->found = true;
    partition->next_offset = meta.next_offset;
    partition->clock_ms = meta.clock_ms;
    partition->needed_ms = oldest_ms < 0 ? 0 : oldest_ms / meta.bucket_ms * meta.bucket_ms;
    return FCAP_OK;
}

static enum fcap_status look(struct fcap_store_rocksdb *db, struct fcap_store *store,
                             int32_t partition, struct fcap_store_partition *ret_partition,
                             struct fcap_error *error)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    struct fcap_store_partition found = {0};
    bool has_meta = false;
    fcap_key_meta(&key, partition, FCAP_META_NAME);
    enum fcap_status status =
        store->ops->get(store, FCAP_FAMILY_META, fcap_buffer_bytes(&key), &value, &has_meta);
    if (status == FCAP_OK) {
        status = is_marked(store, partition, &found.is_half);
    }
    if (status == FCAP_OK && has_meta) {
        status = fcap_store_partition_set(&found, fcap_buffer_bytes(&value));
    }
    fcap_buffer_clear(&key);
    fcap_key_meta(&key, partition, FCAP_FLOOR_NAME);
    found.floor_ms = read_time(store, fcap_buffer_bytes(&key), &status);
    fcap_buffer_done(&value);
    fcap_buffer_done(&key);
    if (status != FCAP_OK) {
        return fcap_error_set(error, status, "%s: partition %d cannot be read: %s", db->directory,
                              partition, fcap_status_text(status));
    }
    (void)pthread_mutex_lock(&db->lock);
    found.dropped_through_ms = db->dropped_through_ms;
    (void)pthread_mutex_unlock(&db->lock);
    *ret_partition = found;
    return FCAP_OK;
}

enum fcap_status fcap_store_rocksdb_look(struct fcap_store_rocksdb *db, int32_t partition,
                                         struct fcap_store_partition *ret_partition,
                                         struct fcap_error *error)
{
    struct fcap_store *store = fcap_store_rocksdb_handle(db);
    enum fcap_status status = look(db, store, partition, ret_partition, error);
    store_handle_free(store);
    return status;
}

/* There is a whole state of the partition. */
static enum fcap_status judge_source(struct fcap_store_rocksdb *from, struct fcap_store *store,
                                     int32_t partition, struct fcap_error *error)
{
    struct fcap_store_partition found;
    enum fcap_status status = look(from, store, partition, &found, error);
    if (status == FCAP_OK && (!found.found || found.is_half)) {
        return fcap_error_set(error, FCAP_REFUSED, "%s holds no state of partition %d",
                              from->directory, partition);
    }
    if (status == FCAP_OK && fcap_store_partition_lacks(&found)) {
        return fcap_error_set(error, FCAP_REFUSED,
                              "%s: timers that partition %d needs were dropped there",
                              from->directory, partition);
    }
    return status;
}

static enum fcap_status copy_all(struct fcap_store_carry *carry, struct fcap_store *from)
{
    struct fcap_buffer first = {0};
    struct fcap_buffer last = {0};
    put_range(carry->claimed->partition, &first, &last);
    struct fcap_bytes low = fcap_buffer_bytes(&first);
    struct fcap_bytes high = fcap_buffer_bytes(&last);
    enum fcap_status status = from->ops->scan(from, FCAP_FAMILY_USERS, low, high, copy_user, carry);
    if (status == FCAP_OK && carry->status == FCAP_OK) {
        status = from->ops->scan(from, FCAP_FAMILY_ADS, low, high, copy_ad, carry);
    }
    if (status == FCAP_OK && carry->status == FCAP_OK) {
        status = walk_chunks(carry, from, copy_chunk);
    }
    if (status == FCAP_OK && write_batch(carry)) {
        status = from->ops->scan(from, FCAP_FAMILY_META, low, high, copy_meta, carry);
    }
    fcap_buffer_done(&last);
    fcap_buffer_done(&first);
    return status == FCAP_OK ? carry->status : status;
}

/* --- what came after it --- */

/* Marks are the store's own, and the floor speaks of the store that the batch was written in. */
static bool is_carried(struct fcap_store_carry *carry, const struct fcap_batch_entry *entry,
                       struct fcap_bytes key)
{
    struct fcap_reader reader = fcap_reader_of(key);
    if (entry->family != FCAP_FAMILY_META) {
        return true;
    }
    fcap_buffer_clear(&carry->key);
    fcap_key_meta(&carry->key, carry->claimed->partition, FCAP_FLOOR_NAME);
    return fcap_reader_be16(&reader) == carry->claimed->partition &&
           !fcap_bytes_equal(key, fcap_buffer_bytes(&carry->key));
}

enum fcap_status fcap_store_rocksdb_carry(struct fcap_store_carry *carry,
                                          const struct fcap_batch *batch)
{
    for (size_t i = 0; i < batch->section_count; i++) {
        const struct fcap_batch_section *section = &batch->sections[i];
        if (section->partition != carry->claimed->partition) {
            continue;
        }
        for (size_t k = section->first; k < section->first + section->count; k++) {
            const struct fcap_batch_entry *entry = &batch->entries[k];
            const struct fcap_bytes key = fcap_batch_key(batch, k);
            const struct fcap_bytes value = fcap_batch_value(batch, k);
            if (!is_carried(carry, entry, key)) {
                continue;
            }
            carry->copied->bytes += key.size + value.size;
            if (!add(carry, entry->family, entry->change, key, value)) {
                return carry->status;
            }
        }
    }
    return FCAP_OK;
}

/* What this store has dropped says nothing of the state that came. */
static enum fcap_status put_floor(struct fcap_store_carry *carry, struct fcap_store_rocksdb *to)
{
    struct fcap_store_partition here;
    struct fcap_buffer value = {0};
    enum fcap_status status = write_batch(carry) ? FCAP_OK : carry->status;
    if (status == FCAP_OK) {
        status = look(to, carry->store, carry->claimed->partition, &here, NULL);
    }
    if (status == FCAP_OK && carry->claimed->dropped_through_ms > here.needed_ms) {
        fcap_buffer_clear(&carry->key);
        fcap_key_meta(&carry->key, carry->claimed->partition, FCAP_FLOOR_NAME);
        fcap_buffer_put_be64(&value, (uint64_t)carry->claimed->dropped_through_ms);
        fcap_batch_add(&carry->batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT,
                       fcap_buffer_bytes(&carry->key), fcap_buffer_bytes(&value));
    }
    fcap_buffer_done(&value);
    return status;
}

/* From the empty partition to the whole one. */
static enum fcap_status carry_over(struct fcap_store_carry *carry, struct fcap_store *source,
                                   struct fcap_store_rocksdb *to, struct fcap_error *error)
{
    const struct fcap_store_claimed *claimed = carry->claimed;
    enum fcap_status status = empty(carry);
    if (status == FCAP_OK) {
        status = copy_all(carry, source);
    }
    if (status == FCAP_OK && claimed->follow != NULL) {
        status = claimed->follow(claimed->context, carry, error);
    }
    if (status == FCAP_OK) {
        status = put_floor(carry, to);
    }
    FCAP_POINT(partition_ending);
    return status == FCAP_OK ? end(carry) : status;
}

enum fcap_status fcap_store_rocksdb_read_partition(struct fcap_store_rocksdb *from,
                                                   const struct fcap_store_claimed *claimed,
                                                   struct fcap_store_copied *ret_copied,
                                                   struct fcap_error *error)
{
    struct fcap_store_copied copied = {0};
    struct fcap_store_carry carry = {.claimed = claimed, .copied = &copied, .is_only_read = true};
    carry.store = fcap_store_rocksdb_handle(from);
    begin_batch(&carry);
    enum fcap_status status = copy_all(&carry, carry.store);
    if (status != FCAP_OK) {
        struct fcap_error last = {""};
        store_tell_last_error(from, &last);
        (void)fcap_error_set(error, status, "read partition %d of %s: %s: %s", claimed->partition,
                             from->directory, fcap_status_text(status), last.text);
    } else {
        *ret_copied = copied;
    }
    store_handle_free(carry.store);
    fcap_batch_done(&carry.batch);
    fcap_buffer_done(&carry.key);
    return status;
}

enum fcap_status fcap_store_rocksdb_copy_partition(struct fcap_store_rocksdb *from,
                                                   struct fcap_store_rocksdb *to,
                                                   const struct fcap_store_claimed *claimed,
                                                   struct fcap_store_copied *ret_copied,
                                                   struct fcap_error *error)
{
    struct fcap_store_copied copied = {0};
    struct fcap_error why = {""};
    struct fcap_store_carry carry = {.claimed = claimed, .copied = &copied};
    struct fcap_store *source = fcap_store_rocksdb_handle(from);
    enum fcap_status status = FCAP_OK;
    carry.store = fcap_store_rocksdb_handle(to);
    if (claimed->follow == NULL) {
        status = judge_source(from, source, claimed->partition, error);
    }
    if (status != FCAP_OK) {
        goto out;
    }
    status = carry_over(&carry, source, to, &why);
    if (status == FCAP_OK) {
        *ret_copied = copied;
        goto out;
    }
    (void)fcap_error_set(error, status, "copy partition %d of %s: %s%s%s", claimed->partition,
                         from->directory, fcap_status_text(status), why.text[0] != '\0' ? ": " : "",
                         why.text);
    bool is_left = status == FCAP_FENCED || (status == FCAP_STOPPED && claimed->leaves_half);
    carry.status = FCAP_OK;
    carry.must_end = true;
    if (!is_left && empty(&carry) == FCAP_OK) {
        (void)end(&carry); /* Else the next claim does it. */
    }
out:
    store_handle_free(carry.store);
    store_handle_free(source);
    fcap_batch_done(&carry.batch);
    fcap_buffer_done(&carry.key);
    return status;
}
