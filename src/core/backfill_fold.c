/* One file after the other, in memory. */
#include "backfill_parts.h"

static enum fcap_status damaged(struct fcap_backfill *backfill)
{
    return backfill_fail(backfill, FCAP_BACKFILL_IN_SPILL, FCAP_CORRUPT, "read a spilled file");
}

static bool add_record(void *context, struct fcap_bytes bytes)
{
    struct fcap_backfill *backfill = context;
    struct spilled spilled;
    enum fcap_reject reject = FCAP_REJECT_NONE;
    if (!backfill_decode(bytes, &spilled)) {
        backfill->failure = damaged(backfill);
        return false;
    }
    enum fcap_status status = fcap_fold_add(backfill->fold, spilled.place, &spilled.event, &reject);
    if (status != FCAP_OK) {
        backfill->failure = status;
        return false;
    }
    backfill->tally[reject] += reject != FCAP_REJECT_NONE || !spilled.event.is_tombstone;
    backfill->tally_records++;
    return --backfill->records_left > 0;
}

static void begin_fold(struct fcap_backfill *backfill)
{
    const struct fcap_settings *settings = &backfill->settings;
    struct fcap_fold_settings fold = {
        .windows = settings->windows,
        .window_count = settings->window_count,
        .at_ms = backfill->report.at_ms,
        .ads_per_user = settings->ads_per_user,
        .value_bytes = settings->value_bytes,
        .bytes_max = settings->cache_bytes,
        .dedup = settings->dedup,
        .check_keyed = settings->check_keyed,
        .ads = backfill->ads,
    };
    backfill->fold = fcap_fold_open(&fold);
    backfill->position = 0;
    backfill->tally_records = 0;
    memset(backfill->tally, 0, sizeof backfill->tally);
}

void backfill_end_fold(struct fcap_backfill *backfill)
{
    size_t bytes = fcap_fold_bytes(backfill->fold);
    if (bytes > backfill->report.fold_bytes) {
        backfill->report.fold_bytes = bytes;
    }
    fcap_fold_close(backfill->fold);
    backfill->fold = NULL;
    backfill->position = 0;
}

enum fcap_status backfill_fold_some(struct fcap_backfill *backfill, bool *ret_folded)
{
    struct fcap_spill *spill = backfill->ports.spill;
    *ret_folded = false;
    if (backfill->fold == NULL) {
        begin_fold(backfill);
    }
    backfill->records_left = STEP_RECORDS;
    backfill->failure = FCAP_OK;
    uint64_t before = backfill->tally_records;
    enum fcap_status status =
        spill->ops->read(spill, backfill->files[backfill->file].number, add_record, backfill,
                         &backfill->position, ret_folded);
    backfill->report.done += backfill->tally_records - before;
    if (status != FCAP_OK) {
        return backfill_fail(backfill, FCAP_BACKFILL_IN_SPILL, status, "read a spilled file");
    }
    if (backfill->failure == FCAP_STOPPED) {
        return backfill_fail_here(backfill, FCAP_STOPPED,
                                  "the topic is not keyed by user: the same user stands in two "
                                  "partitions (key the topic by user, or set kafka.keyed: assume)");
    }
    if (backfill->failure != FCAP_OK && backfill->failure != FCAP_LIMIT) {
        return damaged(backfill); /* Also an ad that was not there before. */
    }
    return backfill->failure;
}

/* --- splitting --- */

static bool move_record(void *context, struct fcap_bytes bytes)
{
    struct fcap_backfill *backfill = context;
    struct fcap_spill *spill = backfill->ports.spill;
    struct spilled spilled;
    if (!backfill_decode(bytes, &spilled)) {
        backfill->failure = damaged(backfill);
        return false;
    }
    unsigned bits = backfill->files[backfill->file].bits;
    size_t child = backfill_hash(spilled.event.user) >> bits & (((size_t)1 << SPLIT_BITS) - 1);
    enum fcap_status status = spill->ops->put(spill, backfill->children + child, bytes);
    if (status != FCAP_OK) {
        backfill->failure =
            backfill_fail(backfill, FCAP_BACKFILL_IN_SPILL, status, "split a spilled file");
        return false;
    }
    return --backfill->records_left > 0;
}

/* The file under way does not fit: its users are spread over more files. */
static enum fcap_status begin_split(struct fcap_backfill *backfill)
{
    struct fcap_spill *spill = backfill->ports.spill;
    bool is_one_user = fcap_fold_users(backfill->fold) <= 1;
    backfill->report.done -= backfill->tally_records;
    backfill_end_fold(backfill);
    if (is_one_user || backfill->files[backfill->file].depth == SPLITS_MAX) {
        return backfill_fail_here(backfill, FCAP_LIMIT,
                                  "the records of one user do not fit in memory.record_cache");
    }
    enum fcap_status status = spill->ops->add(spill, (size_t)1 << SPLIT_BITS, &backfill->children);
    if (status != FCAP_OK) {
        return backfill_fail(backfill, FCAP_BACKFILL_IN_SPILL, status, "make files to spill to");
    }
    backfill->is_splitting = true;
    backfill->report.splits++;
    return FCAP_OK;
}

static enum fcap_status end_split(struct fcap_backfill *backfill)
{
    struct fcap_spill *spill = backfill->ports.spill;
    struct file parent = backfill->files[backfill->file];
    for (size_t i = 0; i < (size_t)1 << SPLIT_BITS; i++) {
        enum fcap_status status = spill->ops->seal(spill, backfill->children + i);
        if (status != FCAP_OK) {
            return backfill_fail(backfill, FCAP_BACKFILL_IN_SPILL, status, "split a spilled file");
        }
        struct file child = {.number = backfill->children + i,
                             .bits = parent.bits + SPLIT_BITS,
                             .depth = parent.depth + 1};
        if (i == 0) {
            backfill->files[backfill->file] = child;
        } else {
            backfill_list_file(backfill, child);
        }
    }
    uint64_t bytes = spill->ops->disk_bytes(spill);
    if (bytes > backfill->report.spill_bytes) {
        backfill->report.spill_bytes = bytes;
    }
    spill->ops->drop(spill, parent.number);
    backfill->is_splitting = false;
    backfill->position = 0;
    return FCAP_OK;
}

static enum fcap_status split_some(struct fcap_backfill *backfill)
{
    struct fcap_spill *spill = backfill->ports.spill;
    bool is_moved;
    backfill->records_left = STEP_RECORDS;
    backfill->failure = FCAP_OK;
    enum fcap_status status =
        spill->ops->read(spill, backfill->files[backfill->file].number, move_record, backfill,
                         &backfill->position, &is_moved);
    if (status != FCAP_OK) {
        return backfill_fail(backfill, FCAP_BACKFILL_IN_SPILL, status, "read a spilled file");
    }
    if (backfill->failure != FCAP_OK) {
        return backfill->failure;
    }
    return is_moved ? end_split(backfill) : FCAP_OK;
}

enum fcap_status backfill_check(struct fcap_backfill *backfill, bool *ret_done)
{
    *ret_done = false;
    if (backfill->is_splitting) {
        return split_some(backfill);
    }
    bool is_folded;
    enum fcap_status status = backfill_fold_some(backfill, &is_folded);
    if (status == FCAP_LIMIT) {
        return begin_split(backfill);
    }
    if (status != FCAP_OK || !is_folded) {
        return status;
    }
    struct fcap_backfill_report *report = &backfill->report;
    for (size_t i = 1; i < FCAP_REJECT_COUNT; i++) {
        report->rejects[i] += backfill->tally[i];
    }
    report->events += backfill->tally[FCAP_REJECT_NONE];
    backfill_end_fold(backfill);
    backfill->file++;
    *ret_done = backfill->file == backfill->file_count;
    return FCAP_OK;
}
