/* Who owns what, and when what may be done. */
#include "backfill_parts.h"

#include "fcap/key.h"

#include <stdlib.h>
#include <string.h>

/* Looks take at most so great a part of the time. */
#define LOOK_SHARE 10

struct part *backfill_part(struct fcap_backfill *backfill, int32_t partition)
{
    FCAP_ASSERT(partition >= 0 && partition < backfill->report.partitions);
    return &backfill->parts[partition];
}

int64_t backfill_redis_ms(const struct fcap_backfill *backfill, struct fcap_moment now)
{
    return backfill->look_time_ms + (now.monotonic_ms - backfill->look_time_at_ms);
}

enum fcap_status backfill_fail(struct fcap_backfill *backfill, enum fcap_backfill_port port,
                               enum fcap_status status, const char *what)
{
    backfill->failed_in = port;
    return fcap_error_set(&backfill->error, status, "%s: %s", what, fcap_status_text(status));
}

enum fcap_status fcap_backfill_open(const struct fcap_settings *settings,
                                    const struct fcap_backfill_ports *ports,
                                    struct fcap_backfill **ret_backfill,
                                    struct fcap_error *ret_error)
{
    FCAP_ASSERT(settings->window_count > 0 && settings->window_count <= FCAP_WINDOWS_MAX);
    struct fcap_key_template template;
    enum fcap_status status =
        fcap_key_template_init(&template, settings->key_pattern, settings->profile, ret_error);
    if (status != FCAP_OK) {
        fcap_key_template_done(&template);
        return status;
    }
    struct fcap_backfill *backfill = calloc(1, sizeof *backfill);
    FCAP_ASSERT(backfill != NULL);
    backfill->settings = *settings;
    backfill->ports = *ports;
    backfill->key_template = template;
    for (size_t i = 0; i < settings->window_count; i++) {
        if (settings->windows[i].length_ms > backfill->longest_ms) {
            backfill->longest_ms = settings->windows[i].length_ms;
        }
    }
    backfill->ads = fcap_fold_ads_open();
    *ret_backfill = backfill;
    return FCAP_OK;
}

void fcap_backfill_close(struct fcap_backfill *backfill)
{
    if (backfill == NULL) {
        return;
    }
    fcap_fold_close(backfill->fold);
    fcap_fold_ads_close(backfill->ads);
    fcap_key_template_done(&backfill->key_template);
    fcap_buffer_done(&backfill->record);
    fcap_buffer_done(&backfill->pending.bytes);
    free(backfill->files);
    free(backfill->parts);
    free(backfill->looked);
    free(backfill);
}

const char *fcap_backfill_error(const struct fcap_backfill *backfill)
{
    return backfill->error.text;
}

enum fcap_backfill_port fcap_backfill_failed_in(const struct fcap_backfill *backfill)
{
    return backfill->failed_in;
}

enum fcap_status backfill_fail_here(struct fcap_backfill *backfill, enum fcap_status status,
                                    const char *text)
{
    backfill->failed_in = FCAP_BACKFILL_IN_CORE;
    return fcap_error_set(&backfill->error, status, "%s", text);
}

/* --- owners --- */

static enum fcap_status look(struct fcap_backfill *backfill, struct fcap_moment now)
{
    struct fcap_seed *seed = backfill->ports.seed;
    int32_t count = backfill->report.partitions;
    struct fcap_seed_time time;
    enum fcap_status status = seed->ops->look(seed, count, backfill->looked, &time);
    if (status != FCAP_OK) {
        return backfill_fail(backfill, FCAP_BACKFILL_IN_SEED, status, "look for owners");
    }
    /* The beginning of the call counts: what is shown after that may have been missed. */
    backfill->has_looked = true;
    backfill->look_ms = now.monotonic_ms;
    backfill->look_time_ms = time.time_ms;
    backfill->look_time_at_ms = now.monotonic_ms + time.cost_ms;
    backfill->look_pause_ms = FCAP_BACKFILL_LOOK_MS;
    if (time.cost_ms * LOOK_SHARE > backfill->look_pause_ms) {
        backfill->look_pause_ms = time.cost_ms * LOOK_SHARE;
    }
    for (int32_t i = 0; i < count; i++) {
        if (backfill->looked[i] && backfill->parts[i].fate == FCAP_BACKFILL_CLAIMED) {
            backfill->parts[i].fate = FCAP_BACKFILL_OPEN;
            backfill->report.partitions_open++;
        }
    }
    return FCAP_OK;
}

/* How long until a look decides about every partition that is left. */
static int64_t wait_left(const struct fcap_backfill *backfill, int64_t look_ms)
{
    int64_t left = 0;
    for (int32_t i = 0; i < backfill->report.partitions; i++) {
        int64_t own = backfill->claimed_ms + backfill->parts[i].wait_ms - look_ms;
        if (fcap_backfill_wants(backfill, i) && own > left) {
            left = own;
        }
    }
    return left;
}

/* Each second; less often where a look is dear, but the one that ends the wait is never late. */
static bool is_look_due(const struct fcap_backfill *backfill, struct fcap_moment now)
{
    int64_t since_ms = now.monotonic_ms - backfill->look_ms;
    if (!backfill->has_looked || since_ms >= backfill->look_pause_ms) {
        return true;
    }
    return backfill->report.phase == FCAP_BACKFILL_WAITING && since_ms >= FCAP_BACKFILL_LOOK_MS &&
           wait_left(backfill, backfill->look_ms) > 0 && wait_left(backfill, now.monotonic_ms) == 0;
}

enum fcap_status fcap_backfill_tick(struct fcap_backfill *backfill, struct fcap_moment now)
{
    if (!backfill->has_claimed) {
        /* The claims may have taken long, and an owner may have come just before the last one. */
        backfill->has_claimed = backfill->report.phase != FCAP_BACKFILL_OPENED;
        backfill->claimed_ms = now.monotonic_ms;
    }
    return is_look_due(backfill, now) ? look(backfill, now) : FCAP_OK;
}

/* An increment makes us an owner like any other: the next one's epoch does not follow on its last
 * one, and it projects everything. */
static enum fcap_status claim(struct fcap_backfill *backfill, int32_t partition)
{
    struct fcap_seed *seed = backfill->ports.seed;
    struct part *part = &backfill->parts[partition];
    enum fcap_status status = seed->ops->claim(seed, partition, &part->epoch);
    if (status != FCAP_OK) {
        return backfill_fail(backfill, FCAP_BACKFILL_IN_SEED, status, "increment fc:epoch");
    }
    part->is_claimed = true;
    part->wait_ms = FCAP_BACKFILL_OPENING_MS + FCAP_BACKFILL_SHOWN_MS;
    if (part->epoch > 1) {
        /* There has been an owner. It may have been stopped just before it showed itself; once it
         * has been still for a session timeout it sends nothing without asking. */
        part->wait_ms += backfill->settings.session_timeout_ms + FCAP_BACKFILL_SHOWN_MS;
    }
    return FCAP_OK;
}

enum fcap_status fcap_backfill_begin(struct fcap_backfill *backfill, int32_t partitions,
                                     uint64_t records, struct fcap_moment now)
{
    FCAP_ASSERT(backfill->report.phase == FCAP_BACKFILL_OPENED && partitions > 0);
    if (partitions - 1 > FCAP_PARTITION_MAX) {
        return backfill_fail_here(
            backfill, FCAP_LIMIT,
            "a partition's number exceeds 65,534, and the state of run has no room "
            "for it");
    }
    if (backfill->parts == NULL) {
        backfill->parts = calloc((size_t)partitions, sizeof *backfill->parts);
        backfill->looked = calloc((size_t)partitions, sizeof *backfill->looked);
        FCAP_ASSERT(backfill->parts != NULL && backfill->looked != NULL);
        backfill->report.partitions = partitions;
        for (int32_t i = 0; i < partitions; i++) {
            backfill->parts[i].complete_since_ms = FCAP_TIME_NONE;
        }
    }
    FCAP_ASSERT(partitions == backfill->report.partitions);
    enum fcap_status status = look(backfill, now);
    for (int32_t i = 0; i < partitions && status == FCAP_OK; i++) {
        const struct part *part = &backfill->parts[i];
        if (part->fate == FCAP_BACKFILL_CLAIMED && !part->is_claimed) {
            status = claim(backfill, i);
        }
    }
    if (status == FCAP_OK) {
        status = backfill_make_files(backfill, records);
    }
    if (status == FCAP_OK) {
        backfill->begun_ms =
            now.wall_ms < backfill->look_time_ms ? now.wall_ms : backfill->look_time_ms;
        backfill->report.phase = FCAP_BACKFILL_READING;
    }
    return status;
}

int64_t fcap_backfill_seek_ms(const struct fcap_backfill *backfill)
{
    return backfill->begun_ms - backfill->longest_ms - backfill->settings.future_skew_ms -
           backfill->settings.seek_slack_ms;
}

bool fcap_backfill_wants(const struct fcap_backfill *backfill, int32_t partition)
{
    return fcap_backfill_fate(backfill, partition) == FCAP_BACKFILL_CLAIMED;
}

enum fcap_backfill_fate fcap_backfill_fate(const struct fcap_backfill *backfill, int32_t partition)
{
    FCAP_ASSERT(partition >= 0 && partition < backfill->report.partitions);
    return backfill->parts[partition].fate;
}

/* --- the phases --- */

enum fcap_status fcap_backfill_read_done(struct fcap_backfill *backfill,
                                         const int64_t *complete_since_ms)
{
    FCAP_ASSERT(backfill->report.phase == FCAP_BACKFILL_READING);
    for (int32_t i = 0; i < backfill->report.partitions && complete_since_ms != NULL; i++) {
        backfill->parts[i].complete_since_ms = complete_since_ms[i];
    }
    struct fcap_spill *spill = backfill->ports.spill;
    for (size_t i = 0; i < backfill->file_count; i++) {
        enum fcap_status status = spill->ops->seal(spill, backfill->files[i].number);
        if (status != FCAP_OK) {
            return backfill_fail(backfill, FCAP_BACKFILL_IN_SPILL, status, "end a spilled file");
        }
    }
    backfill->report.spill_bytes = spill->ops->disk_bytes(spill);
    backfill->report.phase = FCAP_BACKFILL_WAITING;
    return FCAP_OK;
}

static bool any_left(const struct fcap_backfill *backfill)
{
    for (int32_t i = 0; i < backfill->report.partitions; i++) {
        if (fcap_backfill_wants(backfill, i)) {
            return true;
        }
    }
    return false;
}

/* T is taken only now, so that waiting makes no value old; by the look's own Redis TIME, so that no
 * daemon that starts later is behind it. */
static enum fcap_status take_time(struct fcap_backfill *backfill, struct fcap_moment now)
{
    int64_t at_ms = now.wall_ms < backfill->look_time_ms ? now.wall_ms : backfill->look_time_ms;
    int64_t behind_ms = backfill->begun_ms - at_ms;
    if (behind_ms > FCAP_BACKFILL_CLOCK_MS) {
        backfill->failed_in = FCAP_BACKFILL_IN_CORE;
        return fcap_error_set(&backfill->error, FCAP_UNAVAILABLE,
                              "the wall clock or Redis TIME was set back by %lld s",
                              (long long)(behind_ms / 1000));
    }
    if (behind_ms > 0) {
        return FCAP_OK; /* Events were judged by the begin: not before that. */
    }
    backfill->report.at_ms = at_ms;
    backfill->report.total = backfill->report.done;
    backfill->report.done = 0;
    backfill->report.phase = FCAP_BACKFILL_CHECKING;
    return FCAP_OK;
}

static void note_incomplete(struct fcap_backfill *backfill)
{
    for (int32_t i = 0; i < backfill->report.partitions; i++) {
        for (size_t window = 0; window < backfill->settings.window_count; window++) {
            if (backfill_is_incomplete(backfill, &backfill->parts[i], window)) {
                backfill->report.incomplete_mask |= 1u << window;
            }
        }
    }
}

static enum fcap_status wait_on(struct fcap_backfill *backfill, struct fcap_moment now)
{
    if (wait_left(backfill, backfill->look_ms) > 0) {
        backfill->report.wait_ms = wait_left(backfill, now.monotonic_ms) + 1; /* Then a look. */
        return FCAP_OK;
    }
    backfill->report.wait_ms = 0;
    enum fcap_status status = take_time(backfill, now);
    if (backfill->report.phase == FCAP_BACKFILL_CHECKING) {
        note_incomplete(backfill);
    }
    return status;
}

static enum fcap_status check_on(struct fcap_backfill *backfill)
{
    bool is_done;
    enum fcap_status status = backfill_check(backfill, &is_done);
    if (status == FCAP_OK && is_done) {
        fcap_fold_ads_seal(backfill->ads);
        backfill->report.ads_bytes = fcap_fold_ads_bytes(backfill->ads);
        backfill->report.done = 0;
        backfill->file = 0;
        backfill->report.phase = FCAP_BACKFILL_WRITING;
    }
    return status;
}

enum fcap_status fcap_backfill_step(struct fcap_backfill *backfill, struct fcap_moment now,
                                    bool *ret_done)
{
    FCAP_ASSERT(backfill->report.phase >= FCAP_BACKFILL_WAITING);
    *ret_done = false;
    enum fcap_status status = FCAP_OK;
    if (backfill->report.phase != FCAP_BACKFILL_DONE) {
        status = fcap_backfill_tick(backfill, now);
    }
    if (status != FCAP_OK) {
        return status;
    }
    bool is_written = false;
    switch (backfill->report.phase) {
    case FCAP_BACKFILL_WAITING:
        status = wait_on(backfill, now);
        break;
    case FCAP_BACKFILL_CHECKING:
        status = check_on(backfill);
        break;
    case FCAP_BACKFILL_WRITING:
        status = backfill_write(backfill, now, &is_written);
        break;
    default:
        break;
    }
    if (is_written || !any_left(backfill)) {
        backfill->report.phase = FCAP_BACKFILL_DONE;
    }
    *ret_done = status == FCAP_OK && backfill->report.phase == FCAP_BACKFILL_DONE;
    return status;
}

void fcap_backfill_report(const struct fcap_backfill *backfill,
                          struct fcap_backfill_report *ret_report)
{
    *ret_report = backfill->report;
    if (backfill->report.phase != FCAP_BACKFILL_WRITING || backfill->fold == NULL) {
        return;
    }
    /* Of the file under way folding is one half, writing its users the other. */
    uint64_t half = backfill->tally_records / 2;
    size_t users = fcap_fold_users(backfill->fold);
    ret_report->done -= backfill->tally_records - half;
    if (backfill->is_folded && users > 0) {
        ret_report->done += (backfill->tally_records - half) * backfill->user / users;
    }
}
