/* One record: what it changes, and how that is remembered until the commit. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* Whether the record's own timestamp can be the time at which it was written; event_ms:
 * FCAP_TIME_NONE when it holds no event that may count. A start by time leaves as much room. */
static bool is_trusted_time(const struct fcap_pipeline *pipeline, int64_t timestamp_ms,
                            int64_t event_ms)
{
    const struct fcap_settings *settings = &pipeline->settings;
    return timestamp_ms >= FCAP_TIMESTAMP_USABLE_MS &&
           timestamp_ms <= core_latest_ms(pipeline) + settings->future_skew_ms &&
           event_ms <= timestamp_ms + settings->future_skew_ms + settings->seek_slack_ms;
}

static void note_position(struct fcap_task *task, const struct fcap_record *record,
                          int64_t event_ms)
{
    struct fcap_meta *meta = &task->meta;
    bool is_trusted = is_trusted_time(task->pipeline, record->timestamp_ms, event_ms);
    /* It decides nothing about the record, but an initial load looks for offsets by such times. */
    FCAP_COUNT(task->pipeline->counters.untrusted_times, !is_trusted);
    /* Nothing contradicts the timestamp of a record without an event. */
    bool is_told = is_trusted && (event_ms != FCAP_TIME_NONE || FCAP_MUTANT(LOST_UNTOLD));
    if (task->lost_is_open && is_told) {
        log_settle(task, record);
    }
    meta->next_offset = record->offset + 1;
    meta->last_timestamp_ms = record->timestamp_ms;
    meta->last_key_hash = fcap_hash64(record->key, 0);
    task->pipeline->changed = true;
}

static void hold_letter(struct fcap_pipeline *pipeline, const struct fcap_record *record,
                        enum fcap_reject reason)
{
    struct held_letter *letter = &pipeline->letter;
    letter->active = true;
    letter->record = *record;
    letter->reason = reason;
    fcap_buffer_clear(&letter->bytes);
    fcap_buffer_put_bytes(&letter->bytes, record->key);
    fcap_buffer_put_bytes(&letter->bytes, record->value);
    fcap_buffer_put_u8(&letter->bytes, 0); /* So that empty bytes have an address. */
    if (record->key.data != NULL) {
        letter->record.key.data = letter->bytes.data;
    }
    if (record->value.data != NULL) {
        letter->record.value.data = letter->bytes.data + record->key.size;
    }
}

static void write_letter(struct fcap_pipeline *pipeline, const struct fcap_record *record,
                         enum fcap_reject reason)
{
    struct fcap_dead_letters *letters = pipeline->ports.dead_letters;
    if (letters == NULL) {
        return;
    }
    enum fcap_status status =
        letters->ops->write(letters, record, reason, &pipeline->letter_ticket);
    if (fcap_status_class(status) == FCAP_CLASS_RETRY) {
        hold_letter(pipeline, record, reason);
    } else if (status != FCAP_OK) {
        (void)core_fail(pipeline, status, "write a dead letter"); /* Kept in `failure`. */
    }
}

/* True when no dead letter waits any more. */
bool apply_held_letter(struct fcap_pipeline *pipeline)
{
    struct held_letter *letter = &pipeline->letter;
    if (!letter->active) {
        return true;
    }
    struct fcap_dead_letters *letters = pipeline->ports.dead_letters;
    enum fcap_status status =
        letters->ops->write(letters, &letter->record, letter->reason, &pipeline->letter_ticket);
    if (fcap_status_class(status) == FCAP_CLASS_FATAL) {
        (void)core_fail(pipeline, status, "write a dead letter"); /* Kept in `failure`. */
    }
    letter->active = status != FCAP_OK;
    return !letter->active;
}

static void remember(struct fcap_task *task, struct fcap_user *user, const struct fcap_event *event,
                     uint32_t ad)
{
    if (task->open_count == task->open_capacity) {
        task->open_capacity = task->open_capacity * 2 + 256;
        task->open = realloc(task->open, task->open_capacity * sizeof *task->open);
        FCAP_ASSERT(task->open != NULL);
    }
    task->open[task->open_count++] = (struct open_event){
        .time_ms = event->time_ms, .user = user, .id_hash = event->id_hash, .ad = ad};
    task->pipeline->open_count++;
    struct timeline_event added = {.time_ms = event->time_ms,
                                   .commit = task->open_commit,
                                   .id_hash = event->id_hash,
                                   .user_hash = user->hash,
                                   .ad = ad};
    for (size_t i = 0; i < task->meta.window_count; i++) {
        struct timeline *timeline = &task->timelines[i];
        if (timeline->loaded && event->time_ms <= timeline->through_ms &&
            event->time_ms > cursor_of(task, i)) {
            timeline_insert(timeline, &added, event->user);
        }
    }
    if (task->pipeline->settings.dedup) {
        dedup_add(task, event->user, event->time_ms, event->id_hash);
    }
}

/* Voided, not removed: an id that is sent again must stay known. */
static void void_open_events(struct fcap_task *task, const struct fcap_user *user)
{
    size_t kept = 0;
    for (size_t i = 0; i < task->open_count; i++) {
        bool hit = task->open[i].user == user;
        if (hit) {
            task->open[i].ad = FCAP_AD_VOID;
        }
        if (!hit || !FCAP_MUTANT(ERASE_OPEN)) {
            task->open[kept++] = task->open[i];
        }
    }
    task->pipeline->open_count -= task->open_count - kept;
    task->open_count = kept;
    if (FCAP_MUTANT(ERASE_OPEN)) {
        dedup_done(&task->dedup);
    }
}

static void erase(struct fcap_task *task, struct fcap_user *user, const struct fcap_record *record)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    void_open_events(task, user);
    for (size_t i = 0; i < task->meta.window_count; i++) {
        struct timeline *timeline = &task->timelines[i];
        for (size_t at = timeline->next; timeline->loaded && at < timeline->count; at++) {
            struct timeline_event *event = &timeline->events[at];
            if (event->commit == task->open_commit &&
                fcap_bytes_equal(timeline_user(timeline, event), fcap_user_id(user))) {
                event->ad = FCAP_AD_VOID;
            }
        }
    }
    size_t before = fcap_user_bytes(user, pipeline->settings.window_count);
    fcap_user_clear(user);
    fcap_cache_account(&pipeline->cache, before,
                       fcap_user_bytes(user, pipeline->settings.window_count));
    if (!FCAP_MUTANT(ERASE)) {
        int64_t sent_ms = is_trusted_time(task->pipeline, record->timestamp_ms, FCAP_TIME_NONE)
                              ? record->timestamp_ms
                              : core_latest_ms(pipeline);
        int64_t at_ms = growth_erased_at(task, sent_ms);
        int64_t until = user->newest_ms > at_ms ? user->newest_ms : at_ms;
        if (until > user->erased_until_ms) {
            /* A timer of nobody: when it leaves, the mark has done its work. */
            user->erased_until_ms = until;
            struct fcap_event mark = {.user = fcap_user_id(user), .time_ms = until};
            remember(task, user, &mark, FCAP_AD_VOID);
        }
        user->erased_commit = task->open_commit - 1;
    }
    user->newest_ms = FCAP_TIME_NONE;
    user->partial_newest_ms = FCAP_TIME_NONE;
    user_urge(user);
    push_mark(user, (1u << task->meta.window_count) - 1, QUEUE_FIRST);
    FCAP_COUNT(pipeline->counters.tombstones, 1);
}

/* Windows that lack an event of this time, and whether any window still has room for it. */
static uint32_t windows_for(const struct fcap_task *task, int64_t time_ms, bool *ret_late)
{
    uint32_t mask = 0;
    *ret_late = true;
    for (size_t i = 0; i < task->meta.window_count; i++) {
        const struct fcap_window_meta *window = &task->meta.windows[i];
        int64_t cursor =
            FCAP_MUTANT(LATE_T) ? task->meta.clock_ms - window->length_ms : cursor_of(task, i);
        if (time_ms <= cursor) {
            continue;
        }
        *ret_late = false;
        if (!window->building || time_ms <= window->head_ms) {
            mask |= 1u << i;
        }
    }
    return mask;
}

static struct fcap_ad *ad_of(struct fcap_task *task, struct fcap_bytes id, int64_t time_ms)
{
    int32_t day = fcap_ads_day(time_ms);
    struct fcap_ad *ad = fcap_ads_find(&task->ads, id);
    if (ad != NULL) {
        fcap_ads_use(&task->ads, ad, day);
        return ad;
    }
    uint32_t number = task->meta.next_ad;
    if (FCAP_MUTANT(AD_REUSE)) {
        for (number = 0; fcap_ads_get(&task->ads, number) != NULL; number++) {
        }
    }
    if (number >= FCAP_AD_VOID - 1) {
        (void)core_fail(task->pipeline, FCAP_LIMIT, "number an ad: all numbers are used");
        return NULL;
    }
    task->meta.next_ad = number + 1;
    ad = fcap_ads_add(&task->ads, number, id, day);
    fcap_ads_mark(&task->ads, ad);
    return ad;
}

static enum fcap_reject count(struct fcap_task *task, struct fcap_user *user,
                              const struct fcap_event *event)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    size_t windows = pipeline->settings.window_count;
    bool late;
    uint32_t mask = windows_for(task, event->time_ms, &late);
    if (late) {
        return FCAP_REJECT_LATE;
    }
    struct fcap_ad *ad = fcap_ads_find(&task->ads, event->ad);
    if (user->row_count >= pipeline->settings.ads_per_user &&
        (ad == NULL || fcap_user_row(user, windows, ad->number) == NULL)) {
        if (event->time_ms > user->partial_newest_ms) {
            user->partial_newest_ms = event->time_ms;
            user_urge(user); /* Not in the timers, so redo could not find it. */
            push_mark(user, mask, QUEUE_FIRST);
        }
        return FCAP_REJECT_ADS_LIMIT;
    }
    ad = ad_of(task, event->ad, event->time_ms);
    if (ad == NULL) {
        return FCAP_REJECT_NONE; /* `failure` is set. */
    }
    if (mask != 0) {
        size_t before = fcap_user_bytes(user, windows);
        uint32_t *row = fcap_user_row_add(user, windows, ad->number);
        for (size_t i = 0; i < windows; i++) {
            row[1 + i] += mask >> i & 1;
        }
        fcap_cache_account(&pipeline->cache, before, fcap_user_bytes(user, windows));
    }
    if (event->time_ms > user->newest_ms) {
        user->newest_ms = event->time_ms;
    }
    user_touch(user);
    remember(task, user, event, ad->number);
    push_mark(user, mask, QUEUE_FIRST);
    FCAP_COUNT(pipeline->counters.events, 1);
    return FCAP_REJECT_NONE;
}

/* A wall clock that was set back must not refuse what happens now, so Redis' clock is asked too. */
static bool is_future(const struct fcap_pipeline *pipeline, const struct fcap_record *record,
                      int64_t time_ms)
{
    struct fcap_future_rule rule = {
        .bound_ms = FCAP_MUTANT(FUTURE_ALONE) ? pipeline->wall_ms : core_latest_ms(pipeline),
        .skew_ms = pipeline->settings.future_skew_ms,
    };
    return fcap_is_future(record, time_ms, rule);
}

static enum fcap_reject apply_event(struct fcap_task *task, const struct fcap_record *record,
                                    const struct fcap_event *event)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct fcap_user *user;
    if (task_user(task, event->user, &user) != FCAP_OK) {
        return FCAP_REJECT_NONE; /* `failure` is set. */
    }
    if (!task->gate_open && !FCAP_MUTANT(REDIRTY)) {
        /* An earlier run may have shown this user's value before it died, and this run may judge
         * the record differently: show the value again. */
        push_mark(user, (1u << task->meta.window_count) - 1, QUEUE_CLOSED);
    }
    if (event->is_tombstone) {
        erase(task, user, record);
        return FCAP_REJECT_NONE;
    }
    if (is_future(pipeline, record, event->time_ms)) {
        return FCAP_REJECT_FUTURE;
    }
    if (pipeline->settings.dedup && event->has_id && event->time_ms > task->meta.history_ms) {
        bool duplicate;
        if (dedup_check(task, event->user, event->time_ms, event->id_hash, &duplicate) != FCAP_OK) {
            return FCAP_REJECT_NONE; /* `failure` is set. */
        }
        if (duplicate) {
            return FCAP_REJECT_DUPLICATE;
        }
    }
    enum fcap_reject reject = count(task, user, event);
    if (reject == FCAP_REJECT_NONE &&
        is_trusted_time(pipeline, record->timestamp_ms, event->time_ms)) {
        push_note_record(user, record->timestamp_ms);
    }
    return reject;
}

/* False when the source must deliver no more for now. */
bool apply_record(struct fcap_pipeline *pipeline, const struct fcap_record *record)
{
    struct fcap_task *task = task_find(pipeline, record->partition);
    if (task == NULL || pipeline->failure != FCAP_OK) {
        return pipeline->failure == FCAP_OK;
    }
    FCAP_COUNT(pipeline->counters.records, 1);
    task->look_records += task->keyed_waits;
    pipeline->records_left -= pipeline->records_left > 0;
    enum fcap_reject reject = FCAP_REJECT_REDELIVERED;
    if (record->offset >= task->meta.next_offset) {
        struct fcap_event event;
        int64_t event_ms = FCAP_TIME_NONE;
        reject = pipeline->ports.decoder->decode(pipeline->ports.decoder, record, &event);
        if (reject == FCAP_REJECT_NONE) {
            if (!keyed_check(task, record, &event)) {
                return false;
            }
            reject = apply_event(task, record, &event);
            if (!event.is_tombstone && reject != FCAP_REJECT_FUTURE) {
                event_ms = event.time_ms;
            }
        }
        if (pipeline->failure != FCAP_OK) {
            return false; /* The offset stays: a restart reads the record again. */
        }
        note_position(task, record, event_ms);
        begin_replay_record(task);
        if (pipeline->failure != FCAP_OK) {
            return false; /* Nothing of it was written. */
        }
        FCAP_POINT_IF(!task->gate_open && reject == FCAP_REJECT_NONE, history_counted);
    }
    if (reject != FCAP_REJECT_NONE) {
        FCAP_COUNT(pipeline->counters.rejects[reject], 1);
        if (fcap_reject_is_dead(reject)) {
            write_letter(pipeline, record, reject);
        }
    }
    return pipeline->records_left > 0 && !pipeline->letter.active;
}
