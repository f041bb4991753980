/* Records by the rules of `run`, and their form on disk until the end of the process: varint
 * partition, varint offset, flags, varint size of the user and the user; of an event also varint
 * time, its id hash be64 when it has one, and the ad. */
#include "backfill_parts.h"

#include <stdlib.h>

#define FLAG_TOMBSTONE 1
#define FLAG_HAS_ID    2

/* Not the hash by which a fold finds its users: those of one file would collide there. */
#define HASH_SEED 0x5B1C9A77u

uint64_t backfill_hash(struct fcap_bytes user)
{
    return fcap_hash64(user, HASH_SEED);
}

static void encode(struct fcap_buffer *buffer, struct fcap_fold_place place,
                   const struct fcap_event *event)
{
    fcap_buffer_clear(buffer);
    fcap_buffer_put_varint(buffer, (uint64_t)place.partition);
    fcap_buffer_put_varint(buffer, (uint64_t)place.offset);
    bool has_id = !event->is_tombstone && event->has_id;
    fcap_buffer_put_u8(
        buffer, (uint8_t)((event->is_tombstone ? FLAG_TOMBSTONE : 0) | (has_id ? FLAG_HAS_ID : 0)));
    fcap_buffer_put_varint(buffer, event->user.size);
    fcap_buffer_put_bytes(buffer, event->user);
    if (event->is_tombstone) {
        return;
    }
    fcap_buffer_put_varint(buffer, (uint64_t)event->time_ms);
    if (has_id) {
        fcap_buffer_put_be64(buffer, event->id_hash);
    }
    fcap_buffer_put_bytes(buffer, event->ad);
}

bool backfill_decode(struct fcap_bytes bytes, struct spilled *ret_spilled)
{
    struct fcap_reader reader = fcap_reader_of(bytes);
    *ret_spilled = (struct spilled){0};
    ret_spilled->place.partition = (int32_t)fcap_reader_varint(&reader);
    ret_spilled->place.offset = (int64_t)fcap_reader_varint(&reader);
    uint8_t flags = fcap_reader_u8(&reader);
    struct fcap_event *event = &ret_spilled->event;
    event->is_tombstone = (flags & FLAG_TOMBSTONE) != 0;
    event->has_id = (flags & FLAG_HAS_ID) != 0;
    event->user = fcap_reader_take(&reader, (size_t)fcap_reader_varint(&reader));
    if (!event->is_tombstone) {
        event->time_ms = (int64_t)fcap_reader_varint(&reader);
        event->id_hash = event->has_id ? fcap_reader_be64(&reader) : 0;
        event->ad = fcap_reader_take(&reader, fcap_reader_left(&reader));
    }
    return !reader.failed;
}

/* --- files --- */

void backfill_list_file(struct fcap_backfill *backfill, struct file file)
{
    if (backfill->file_count == backfill->file_capacity) {
        backfill->file_capacity = backfill->file_capacity * 2 + 16;
        backfill->files =
            realloc(backfill->files, backfill->file_capacity * sizeof *backfill->files);
        FCAP_ASSERT(backfill->files != NULL);
    }
    backfill->files[backfill->file_count++] = file;
}

enum fcap_status backfill_make_files(struct fcap_backfill *backfill, uint64_t records)
{
    unsigned bits = 0;
    while (bits < FILES_BITS_MAX &&
           (records >> bits) > backfill->settings.cache_bytes / RECORD_BYTES) {
        bits++;
    }
    struct fcap_spill *spill = backfill->ports.spill;
    size_t first;
    enum fcap_status status = spill->ops->add(spill, (size_t)1 << bits, &first);
    if (status != FCAP_OK) {
        return backfill_fail(backfill, FCAP_BACKFILL_IN_SPILL, status, "make files to spill to");
    }
    backfill->file_bits = bits;
    for (size_t i = 0; i < (size_t)1 << bits; i++) {
        backfill_list_file(backfill, (struct file){.number = first + i, .bits = bits});
    }
    return FCAP_OK;
}

/* --- records --- */

static enum fcap_status spill_event(struct fcap_backfill *backfill,
                                    const struct fcap_record *record,
                                    const struct fcap_event *event)
{
    struct fcap_spill *spill = backfill->ports.spill;
    uint64_t mask = ((uint64_t)1 << backfill->file_bits) - 1;
    size_t file = backfill->files[backfill_hash(event->user) & mask].number;
    encode(&backfill->record, (struct fcap_fold_place){record->partition, record->offset}, event);
    enum fcap_status status = spill->ops->put(spill, file, fcap_buffer_bytes(&backfill->record));
    if (status != FCAP_OK) {
        return backfill_fail(backfill, FCAP_BACKFILL_IN_SPILL, status, "spill a record");
    }
    backfill->report.done++;
    backfill->report.tombstones += event->is_tombstone;
    return FCAP_OK;
}

/* NONE: it must be spilled. What is late for T0 is late for the end. */
static enum fcap_reject judge(const struct fcap_backfill *backfill,
                              const struct fcap_record *record, const struct fcap_event *event,
                              struct fcap_moment now)
{
    if (event->is_tombstone) {
        return FCAP_REJECT_NONE;
    }
    int64_t redis_ms = backfill_redis_ms(backfill, now);
    struct fcap_future_rule rule = {
        .bound_ms = redis_ms > now.wall_ms ? redis_ms : now.wall_ms,
        .skew_ms = backfill->settings.future_skew_ms,
    };
    if (fcap_is_future(record, event->time_ms, rule)) {
        return FCAP_REJECT_FUTURE;
    }
    return event->time_ms <= backfill->begun_ms - backfill->longest_ms ? FCAP_REJECT_LATE
                                                                       : FCAP_REJECT_NONE;
}

enum fcap_status fcap_backfill_record(struct fcap_backfill *backfill,
                                      const struct fcap_record *record, struct fcap_moment now)
{
    FCAP_ASSERT(backfill->report.phase == FCAP_BACKFILL_READING);
    struct part *part = backfill_part(backfill, record->partition);
    if (part->fate != FCAP_BACKFILL_CLAIMED) {
        return FCAP_OK; /* Its reader has not noticed yet. */
    }
    backfill->report.records++;
    enum fcap_reject reject = FCAP_REJECT_REDELIVERED;
    enum fcap_status status = FCAP_OK;
    if (record->offset >= part->next_offset) {
        struct fcap_event event;
        part->next_offset = record->offset + 1;
        reject = backfill->ports.decoder->decode(backfill->ports.decoder, record, &event);
        if (reject == FCAP_REJECT_NONE && backfill->settings.check_keyed &&
            record->key.data == NULL && !backfill->settings.user_from_key) {
            return backfill_fail_here(
                backfill, FCAP_STOPPED,
                "the topic is not keyed by user: a record without a key names a user in its body "
                "(key the topic by user, or set kafka.keyed: assume)");
        }
        reject = reject == FCAP_REJECT_NONE ? judge(backfill, record, &event, now) : reject;
        if (reject == FCAP_REJECT_NONE) {
            return spill_event(backfill, record, &event);
        }
    }
    backfill->report.rejects[reject]++;
    return status;
}
