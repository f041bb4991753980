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

#include <string.h>

/* When a batch is written (workers' commits wait behind it), and how long one wait for it lasts. */
enum { BATCH_BYTES = 256 << 10, BATCH_ENTRIES = 10000, WAIT_MS = 1000 };

/* A partition of the target, being written. */
struct carry {
    struct fcap_store *store; /* a handle of its own */
    const struct fcap_store_claimed *claimed;
    struct fcap_batch batch;
    struct fcap_buffer key;
    enum fcap_status status; /* of the first batch that failed, or STOPPED */
    bool must_end;           /* removing what is half there is not stopped */
    struct fcap_store_copied *copied;
};

static void marker_key(struct fcap_buffer *key, int32_t partition)
{
    fcap_buffer_clear(key);
    fcap_key_meta(key, FCAP_PARTITION_MAX + 1, "partial");
    fcap_buffer_put_be16(key, (uint16_t)partition);
}

static void begin_batch(struct carry *carry)
{
    fcap_batch_clear(&carry->batch);
    fcap_batch_section(&carry->batch, carry->claimed->partition, carry->claimed->assignment, 0);
}

/* Writes what has gathered; false: it goes no further. */
static bool write_batch(struct carry *carry)
{
    const struct fcap_batch *done = NULL;
    const struct fcap_store_claimed *claimed = carry->claimed;
    if (carry->status == FCAP_OK && !carry->must_end && claimed->go_on != NULL &&
        !claimed->go_on(claimed->context)) {
        carry->status = FCAP_STOPPED;
    }
    if (carry->status != FCAP_OK) {
        return false;
    }
    if (carry->batch.entry_count > 0) {
        carry->status = carry->store->ops->submit(carry->store, &carry->batch);
        while (carry->status == FCAP_OK && done == NULL) {
            (void)carry->store->ops->completed(carry->store, WAIT_MS, &done, &carry->status);
        }
    }
    begin_batch(carry);
    return carry->status == FCAP_OK;
}

static bool add(struct carry *carry, enum fcap_family family, enum fcap_change change,
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
static enum fcap_status expect_marker(struct carry *carry, bool expected)
{
    bool marked = false;
    enum fcap_status status = is_marked(carry->store, carry->claimed->partition, &marked);
    return status == FCAP_OK && marked != expected ? FCAP_FENCED : status;
}

/* --- timers --------------------------------------------------------------------------------------
 */

typedef bool (*chunk_visitor)(struct carry *carry, struct fcap_bytes key, struct fcap_bytes value);

struct walk {
    struct carry *carry;
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
static enum fcap_status walk_chunks(struct carry *carry, struct fcap_store *store,
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

static bool delete_chunk(struct carry *carry, struct fcap_bytes key, struct fcap_bytes value)
{
    (void)value;
    return add(carry, FCAP_FAMILY_TIMERS, FCAP_CHANGE_DELETE, key, FCAP_BYTES_NONE);
}

static bool copy_chunk(struct carry *carry, struct fcap_bytes key, struct fcap_bytes value)
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
static enum fcap_status empty(struct carry *carry)
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
static enum fcap_status end(struct carry *carry)
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
    struct carry carry = {.claimed = &claimed, .copied = &copied, .must_end = true};
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
    struct carry *carry = context;
    carry->copied->users++;
    carry->copied->bytes += key.size + value.size;
    return add(carry, FCAP_FAMILY_USERS, FCAP_CHANGE_PUT, key, value);
}

static bool copy_ad(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct carry *carry = context;
    carry->copied->ads++;
    carry->copied->bytes += key.size + value.size;
    return add(carry, FCAP_FAMILY_ADS, FCAP_CHANGE_PUT, key, value);
}

/* All of them go into one batch: redo records are as few as commits under way. The floor speaks of
 * the store that the partition comes from. */
static bool copy_meta(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct carry *carry = context;
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

/* There is a whole state of the partition; gives the oldest bucket that it may need. */
static enum fcap_status judge_source(struct fcap_store_rocksdb *from, struct fcap_store *store,
                                     int32_t partition, int64_t *ret_needed_ms,
                                     struct fcap_error *error)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    struct fcap_meta meta = {0};
    bool found = false;
    bool marked = false;
    fcap_key_meta(&key, partition, FCAP_META_NAME);
    enum fcap_status status =
        store->ops->get(store, FCAP_FAMILY_META, fcap_buffer_bytes(&key), &value, &found);
    if (status == FCAP_OK) {
        status = is_marked(store, partition, &marked);
    }
    if (status == FCAP_OK && found) {
        status = fcap_meta_decode(fcap_buffer_bytes(&value), &meta);
    }
    fcap_buffer_clear(&key);
    fcap_key_meta(&key, partition, FCAP_FLOOR_NAME);
    int64_t floor_ms = read_time(store, fcap_buffer_bytes(&key), &status);
    fcap_buffer_done(&value);
    fcap_buffer_done(&key);
    if (status != FCAP_OK) {
        return fcap_error_set(error, status, "%s: partition %d cannot be read: %s", from->directory,
                              partition, fcap_status_text(status));
    }
    if (!found || marked) {
        return fcap_error_set(error, FCAP_REFUSED, "%s holds no state of partition %d",
                              from->directory, partition);
    }
    int64_t oldest_ms = meta.redo_history_ms + 1;
    *ret_needed_ms = oldest_ms < 0 ? 0 : oldest_ms / meta.bucket_ms * meta.bucket_ms;
    if (from->dropped_through_ms > *ret_needed_ms && from->dropped_through_ms > floor_ms) {
        return fcap_error_set(error, FCAP_REFUSED,
                              "%s: timers that partition %d needs were dropped there",
                              from->directory, partition);
    }
    return FCAP_OK;
}

static enum fcap_status copy_all(struct carry *carry, struct fcap_store *from, int64_t needed_ms)
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
    if (status == FCAP_OK && carry->claimed->dropped_through_ms > needed_ms) {
        fcap_buffer_clear(&carry->key);
        fcap_buffer_clear(&first);
        fcap_key_meta(&carry->key, carry->claimed->partition, FCAP_FLOOR_NAME);
        fcap_buffer_put_be64(&first, (uint64_t)carry->claimed->dropped_through_ms);
        fcap_batch_add(&carry->batch, FCAP_FAMILY_META, FCAP_CHANGE_PUT,
                       fcap_buffer_bytes(&carry->key), fcap_buffer_bytes(&first));
    }
    fcap_buffer_done(&last);
    fcap_buffer_done(&first);
    return status == FCAP_OK ? carry->status : status;
}

enum fcap_status fcap_store_rocksdb_copy_partition(struct fcap_store_rocksdb *from,
                                                   struct fcap_store_rocksdb *to,
                                                   const struct fcap_store_claimed *claimed,
                                                   struct fcap_store_copied *ret_copied,
                                                   struct fcap_error *error)
{
    struct fcap_store_copied copied = {0};
    struct carry carry = {.claimed = claimed, .copied = &copied};
    int64_t needed_ms = 0;
    struct fcap_store *source = fcap_store_rocksdb_handle(from);
    carry.store = fcap_store_rocksdb_handle(to);
    enum fcap_status status = judge_source(from, source, claimed->partition, &needed_ms, error);
    if (status != FCAP_OK) {
        goto out;
    }
    status = empty(&carry);
    if (status == FCAP_OK) {
        status = copy_all(&carry, source, needed_ms);
    }
    if (status == FCAP_OK) {
        status = end(&carry);
    }
    if (status == FCAP_OK) {
        *ret_copied = copied;
        goto out;
    }
    (void)fcap_error_set(error, status, "copy partition %d of %s: %s", claimed->partition,
                         from->directory, fcap_status_text(status));
    carry.status = FCAP_OK;
    carry.must_end = true;
    if (status != FCAP_FENCED && empty(&carry) == FCAP_OK) {
        (void)end(&carry); /* Else the next claim does it. */
    }
out:
    store_handle_free(carry.store);
    store_handle_free(source);
    fcap_batch_done(&carry.batch);
    fcap_buffer_done(&carry.key);
    return status;
}
