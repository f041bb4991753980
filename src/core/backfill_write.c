/* Transactions: some users' keys of one partition, behind the fence. */
#include "backfill_parts.h"

/* Values may be long; a transaction of this size is one round trip anyway. */
#define BYTES_MAX ((size_t)1 << 20)

bool backfill_is_incomplete(const struct fcap_backfill *backfill, const struct part *part,
                            size_t window)
{
    /* The daemon's rule for a window that is ready. */
    return part->complete_since_ms >
           backfill->report.at_ms - backfill->settings.windows[window].length_ms;
}

static bool is_full(const struct pending *pending)
{
    return pending->count >= FCAP_BACKFILL_KEYS_MAX || pending->bytes.size >= BYTES_MAX;
}

static void forget(struct pending *pending)
{
    pending->count = 0;
    pending->users = 0;
    fcap_buffer_clear(&pending->bytes);
}

/* RETRY: these keys are sent again by the next step; those that are there by then stay. */
static enum fcap_status send(struct fcap_backfill *backfill)
{
    struct pending *pending = &backfill->pending;
    struct part *part = backfill_part(backfill, pending->partition);
    struct fcap_seed *seed = backfill->ports.seed;
    if (part->fate != FCAP_BACKFILL_CLAIMED) {
        forget(pending);
        return FCAP_OK;
    }
    struct fcap_seed_key keys[sizeof pending->keys / sizeof pending->keys[0]];
    for (size_t i = 0; i < pending->count; i++) {
        const struct pending_key *own = &pending->keys[i];
        const uint8_t *key = pending->bytes.data + own->key_offset;
        keys[i] = (struct fcap_seed_key){.key = {key, own->key_size},
                                         .value = {key + own->key_size, own->value_size},
                                         .expire_at_ms = own->expire_at_ms};
    }
    size_t written = 0;
    bool is_fenced = false;
    enum fcap_status status = seed->ops->write(seed, pending->partition, part->epoch, keys,
                                               pending->count, &written, &is_fenced);
    if (status != FCAP_OK) {
        return backfill_fail(backfill, FCAP_BACKFILL_IN_SEED, status, "write keys");
    }
    if (is_fenced) {
        part->fate = FCAP_BACKFILL_FENCED;
        backfill->report.partitions_fenced++;
    } else {
        backfill->report.keys_written += written;
        backfill->report.keys_kept += pending->count - written;
        backfill->report.users += pending->users;
    }
    forget(pending);
    return FCAP_OK;
}

static void gather_user(struct fcap_backfill *backfill, size_t index, int32_t partition,
                        struct fcap_bytes user, int64_t redis_ms)
{
    struct pending *pending = &backfill->pending;
    const struct part *part = backfill_part(backfill, partition);
    size_t before = pending->count;
    pending->partition = partition;
    for (size_t window = 0; window < backfill->settings.window_count; window++) {
        struct pending_key *own = &pending->keys[pending->count];
        struct fcap_fold_value value;
        own->key_offset = pending->bytes.size;
        fcap_key_build(&backfill->key_template, user, backfill->settings.windows[window].name,
                       &pending->bytes);
        own->key_size = pending->bytes.size - own->key_offset;
        bool is_there = fcap_fold_value(backfill->fold, index, window, &pending->bytes, &value);
        bool is_left_out = is_there && !backfill->settings.serve_incomplete &&
                           backfill_is_incomplete(backfill, part, window);
        /* Redis still shows a key at the millisecond of its PXAT. */
        bool has_passed = is_there && !is_left_out && value.expire_at_ms < redis_ms;
        backfill->report.keys_incomplete += is_left_out;
        backfill->report.keys_passed += has_passed;
        if (!is_there || is_left_out || has_passed) {
            pending->bytes.size = own->key_offset;
            continue;
        }
        own->value_size = pending->bytes.size - own->key_offset - own->key_size;
        own->expire_at_ms = value.expire_at_ms;
        backfill->report.values_cut += value.is_cut;
        pending->count++;
    }
    pending->users += pending->count > before;
}

/* Users of the folded file, until a transaction is full, another partition's users come, or enough
 * was done; *ret_send: it is to be sent. */
static void gather(struct fcap_backfill *backfill, int64_t redis_ms, bool *ret_send)
{
    struct pending *pending = &backfill->pending;
    size_t end = fcap_fold_users(backfill->fold);
    for (size_t i = 0; i < STEP_RECORDS && backfill->user < end && !is_full(pending); i++) {
        int32_t partition;
        struct fcap_bytes user;
        fcap_fold_user(backfill->fold, backfill->user, &partition, &user);
        if (pending->count > 0 && pending->partition != partition) {
            *ret_send = true;
            return;
        }
        if (fcap_backfill_wants(backfill, partition)) {
            gather_user(backfill, backfill->user, partition, user, redis_ms);
        }
        backfill->user++;
    }
    *ret_send = is_full(pending) || (backfill->user == end && pending->count > 0);
}

enum fcap_status backfill_write(struct fcap_backfill *backfill, struct fcap_moment now,
                                bool *ret_done)
{
    struct pending *pending = &backfill->pending;
    struct fcap_spill *spill = backfill->ports.spill;
    *ret_done = false;
    if (!backfill->is_folded) {
        enum fcap_status status = backfill_fold_some(backfill, &backfill->is_folded);
        backfill->user = 0;
        return status == FCAP_LIMIT
                   ? backfill_fail_here(backfill, status, "a file does not fit that did before")
                   : status;
    }
    bool is_ready;
    gather(backfill, backfill_redis_ms(backfill, now), &is_ready); /* After RETRY: perhaps more. */
    if (is_ready) {
        return send(backfill);
    }
    if (backfill->user < fcap_fold_users(backfill->fold)) {
        return FCAP_OK;
    }
    FCAP_ASSERT(pending->count == 0);
    backfill_end_fold(backfill);
    backfill->is_folded = false;
    spill->ops->drop(spill, backfill->files[backfill->file].number);
    backfill->file++;
    *ret_done = backfill->file == backfill->file_count;
    return FCAP_OK;
}
