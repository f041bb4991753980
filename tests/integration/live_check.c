/* Every key of Redis against the definition. See live.h. */
#include "live.h"

#include "lab/oracle_value.h"
#include "lab/lab.h"

#include <hiredis/hiredis.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BATCH_USERS 200
#define POLL_MS     50
/* A user with more is compared as it is now, but not at its as_of: trying each prefix takes
 * minutes. */
#define RECORDS_MAX 20000

/* One key as it was read. */
struct seen {
    char *value; /* NULL: absent */
    int64_t pxat_ms;
    int64_t before_ms; /* the wall clock around the reading */
    int64_t after_ms;
};

/* All users x windows of one reading, and what was claimed before and produced after. */
struct snapshot {
    size_t user_count;
    struct seen *seen; /* user x window */
    char **keys;       /* the names of all keys of users, at about the same time */
    size_t key_count;
    int64_t next_min[LIVE_PARTITIONS_MAX];
    int64_t next_max[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX]; /* T claimed before; -1: no claim */
};

/* Redis may have been another process when it was asked last. */
static redisContext *reader_of(struct live *live)
{
    struct timeval patience = {.tv_sec = 30};
    redisReply *pong = live->redis_reader == NULL ? NULL : redisCommand(live->redis_reader, "PING");
    if (pong == NULL) {
        if (live->redis_reader != NULL) {
            redisFree(live->redis_reader);
        }
        live->redis_reader = redisConnectWithTimeout("127.0.0.1", live->redis.port, patience);
        assert_non_null(live->redis_reader);
    } else {
        freeReplyObject(pong);
    }
    return live->redis_reader;
}

static redisReply *reply_of(redisContext *context)
{
    void *reply = NULL;
    if (redisGetReply(context, &reply) != REDIS_OK || reply == NULL) {
        fail_msg("Redis does not answer: %s", context->errstr);
    }
    return reply;
}

static void add_wrong(struct oracle_tally *tally, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add_wrong(struct oracle_tally *tally, const char *format, ...)
{
    size_t used = strlen(tally->text);
    va_list arguments;
    tally->wrong++;
    va_start(arguments, format);
    (void)vsnprintf(tally->text + used, sizeof tally->text - used, format, arguments);
    va_end(arguments);
}

/* --- reading --------------------------------------------------------------------------------- */

static void read_keys(redisContext *context, struct snapshot *snapshot)
{
    redisReply *reply = redisCommand(context, "KEYS fc:{*");
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    snapshot->key_count = reply->elements;
    snapshot->keys = calloc(reply->elements + 1, sizeof *snapshot->keys);
    assert_non_null(snapshot->keys);
    for (size_t i = 0; i < reply->elements; i++) {
        snapshot->keys[i] = strdup(reply->element[i]->str);
        assert_non_null(snapshot->keys[i]);
    }
    freeReplyObject(reply);
}

/* GET and PEXPIRETIME of each window of some users, in one pipeline. */
static void read_users(struct live *live, struct snapshot *snapshot, size_t from, size_t to)
{
    redisContext *context = reader_of(live);
    int64_t before_ms = lab_wall_ms();
    for (size_t i = from; i < to; i++) {
        const char *user = oracle_user(live->oracle, i);
        for (size_t k = 0; k < live->window_count; k++) {
            const char *name = live->options.lengths[k].name;
            assert_int_equal(redisAppendCommand(context, "GET fc:{%s}:%s", user, name), REDIS_OK);
            assert_int_equal(redisAppendCommand(context, "PEXPIRETIME fc:{%s}:%s", user, name),
                             REDIS_OK);
        }
    }
    for (size_t i = from * live->window_count; i < to * live->window_count; i++) {
        redisReply *value = reply_of(context);
        redisReply *pxat = reply_of(context);
        assert_int_equal(pxat->type, REDIS_REPLY_INTEGER);
        snapshot->seen[i].value = value->type == REDIS_REPLY_STRING ? strdup(value->str) : NULL;
        snapshot->seen[i].pxat_ms = pxat->integer;
        freeReplyObject(value);
        freeReplyObject(pxat);
    }
    int64_t after_ms = lab_wall_ms();
    for (size_t i = from * live->window_count; i < to * live->window_count; i++) {
        snapshot->seen[i].before_ms = before_ms;
        snapshot->seen[i].after_ms = after_ms;
    }
}

static void take(struct live *live, struct snapshot *snapshot)
{
    live_read(live);
    *snapshot = (struct snapshot){.user_count = oracle_user_count(live->oracle)};
    snapshot->seen = calloc(snapshot->user_count * live->window_count + 1, sizeof *snapshot->seen);
    assert_non_null(snapshot->seen);
    (void)live_claims(live, snapshot->next_min, snapshot->as_of_ms);
    for (int32_t i = 0; i < live->options.partitions; i++) {
        snapshot->next_min[i] = snapshot->next_min[i] < 0 ? 0 : snapshot->next_min[i];
    }
    for (size_t i = 0; i < snapshot->user_count; i += BATCH_USERS) {
        size_t to = i + BATCH_USERS < snapshot->user_count ? i + BATCH_USERS : snapshot->user_count;
        read_users(live, snapshot, i, to);
    }
    read_keys(reader_of(live), snapshot);
    live_read(live); /* Whatever a key can show was in the topic before. */
    memcpy(snapshot->next_max, live->read, sizeof snapshot->next_max);
}

static void drop(struct live *live, struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->user_count * live->window_count; i++) {
        free(snapshot->seen[i].value);
    }
    for (size_t i = 0; i < snapshot->key_count; i++) {
        free(snapshot->keys[i]);
    }
    free(snapshot->seen);
    free(snapshot->keys);
}

/* --- comparing ------------------------------------------------------------------------------- */

static bool is_of(const struct live_window *windows, const char *name)
{
    size_t at = 0;
    while (windows != NULL && windows[at].name != NULL && strcmp(windows[at].name, name) != 0) {
        at++;
    }
    return windows != NULL && windows[at].name != NULL;
}

/* Every key belongs to a known user and a configured window, so it is among those compared, or to a
 * window of before. */
static void check_names(struct live *live, const struct snapshot *snapshot,
                        struct oracle_tally *tally)
{
    for (size_t i = 0; i < snapshot->key_count; i++) {
        char user[512];
        const char *key = snapshot->keys[i];
        const char *end = strstr(key, "}:");
        bool known = false;
        if (end != NULL) {
            (void)snprintf(user, sizeof user, "%.*s", (int)(end - key - 4), key + 4);
            known = (is_of(live->options.lengths, end + 2) || is_of(live->options.gone, end + 2)) &&
                    oracle_record_count(live->oracle, user) > 0;
        }
        if (!known) {
            add_wrong(tally, "a key that should not exist: %s\n", key);
        }
    }
}

/* Over what the daemon had applied when T was as_of: between the newest claim of an earlier T and
 * the oldest claim of a later one. Nothing about lateness has to be forgiven here: an event that
 * came after as_of is beyond. */
void live_compare_at_as_of(struct live *live, const char *user, int64_t window_ms,
                           const char *value, struct oracle_tally *tally)
{
    struct oracle_value parsed = {0};
    const char *reason = NULL;
    int64_t next_min[LIVE_PARTITIONS_MAX] = {0};
    int64_t next_max[LIVE_PARTITIONS_MAX];
    int32_t partition = live_partition(live, user);
    bool is_value = oracle_value_parse(value, strlen(value), &parsed, &reason);
    int64_t as_of_ms = parsed.as_of_ms;
    oracle_value_done(&parsed);
    if (!is_value) {
        add_wrong(tally, "user \"%s\": %s: %.200s\n", user, reason, value);
        return;
    }
    memcpy(next_max, live->read, sizeof next_max);
    for (size_t i = 0; i < live->claim_count; i++) {
        const struct live_claim *claim = &live->claims[i];
        if (claim->partition != partition) {
            continue;
        }
        if (claim->as_of_ms < as_of_ms && claim->next > next_min[partition]) {
            next_min[partition] = claim->next;
        }
        if (claim->as_of_ms > as_of_ms && claim->next < next_max[partition]) {
            next_max[partition] = claim->next;
        }
    }
    if (next_max[partition] < next_min[partition]) {
        add_wrong(tally, "claims of partition %d go back around as_of %" PRId64 "\n", partition,
                  as_of_ms);
        return;
    }
    struct oracle_expectation expectation = {
        .user = user,
        .window_ms = window_ms,
        .at_max_ms = lab_wall_ms(),
        .next_min = next_min,
        .next_max = next_max,
        .next_count = (size_t)live->options.partitions,
        .strict_as_of = true,
        .allow_partial = true,
    };
    (void)oracle_check_value(live->oracle, &expectation, value, strlen(value), tally);
}

static void check_expiry(struct live *live, const char *user, size_t window,
                         const struct seen *seen, bool quiet, struct oracle_tally *tally)
{
    struct oracle_query query = {.user = user,
                                 .window_ms = live->options.lengths[window].length_ms};
    if (seen->pxat_ms == -1) {
        add_wrong(tally, "user \"%s\": a key that never expires\n", user);
    } else if (quiet && seen->pxat_ms >= 0) {
        (void)oracle_check_expiry(live->oracle, &query, seen->pxat_ms, tally);
    }
}

/* From when on a value may be: T was here before it was read, however slow the machine is. */
static int64_t from_ms(const struct live *live, const struct snapshot *snapshot, const char *user,
                       const struct seen *seen)
{
    int64_t lagging_ms = seen->before_ms - LIVE_LAG_MS;
    int64_t claimed_ms = snapshot->as_of_ms[live_partition(live, user)];
    return claimed_ms >= 0 && claimed_ms < lagging_ms ? claimed_ms : lagging_ms;
}

static void check_one(struct live *live, const struct snapshot *snapshot, size_t index, bool quiet,
                      struct live_tally *tally)
{
    const char *user = oracle_user(live->oracle, index / live->window_count);
    size_t window = index % live->window_count;
    const struct seen *seen = &snapshot->seen[index];
    if (seen->value == NULL && live->options.lengths[window].waits) {
        return;
    }
    struct oracle_expectation expectation = {
        .user = user,
        .window_ms = live->options.lengths[window].length_ms,
        .at_min_ms = from_ms(live, snapshot, user, seen),
        .at_max_ms = seen->after_ms,
        .next_min = quiet ? NULL : snapshot->next_min,
        .next_max = quiet ? NULL : snapshot->next_max,
        .next_count = (size_t)live->options.partitions,
        .allow_partial = true,
    };
    (void)oracle_check_value(live->oracle, &expectation, seen->value,
                             seen->value == NULL ? 0 : strlen(seen->value), &tally->now);
    if (seen->value != NULL) {
        if (oracle_record_count(live->oracle, user) <= RECORDS_MAX) {
            live_compare_at_as_of(live, user, live->options.lengths[window].length_ms, seen->value,
                                  &tally->as_of);
        }
        check_expiry(live, user, window, seen, quiet, &tally->expiry);
    }
}

void live_compare(struct live *live, bool quiet, struct live_tally *tally)
{
    struct snapshot snapshot;
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    take(live, &snapshot);
    int64_t now_ms = lab_wall_ms();
    (void)live_claims(live, next, as_of_ms);
    for (int32_t i = 0; i < live->options.partitions; i++) {
        int64_t lag_ms = now_ms - as_of_ms[i];
        if (as_of_ms[i] < 0) {
            add_wrong(&tally->now, "fc:meta claims nothing for partition %d\n", i);
        } else if (lag_ms > tally->lag_ms_max) {
            tally->lag_ms_max = lag_ms;
        }
    }
    check_names(live, &snapshot, &tally->now);
    for (size_t i = 0; i < snapshot.user_count * live->window_count; i++) {
        check_one(live, &snapshot, i, quiet, tally);
    }
    drop(live, &snapshot);
}

/* A key is there exactly while its PXAT, newest + L - 1, has not passed; around that moment either
 * is right. */
void live_compare_stopped(struct live *live, struct oracle_tally *tally)
{
    struct snapshot snapshot;
    take(live, &snapshot);
    check_names(live, &snapshot, tally);
    for (size_t i = 0; i < snapshot.user_count * live->window_count; i++) {
        const struct seen *seen = &snapshot.seen[i];
        int64_t newest_ms = 0;
        struct oracle_query query = {.user = oracle_user(live->oracle, i / live->window_count)};
        int64_t length_ms = live->options.lengths[i % live->window_count].length_ms;
        bool has_events = oracle_newest(live->oracle, &query, &newest_ms);
        int64_t last_ms = newest_ms + length_ms - 1; /* Redis still shows it then. */
        tally->compared++;
        tally->non_empty += seen->value != NULL;
        tally->absent += seen->value == NULL;
        if (seen->value != NULL && (!has_events || seen->before_ms > last_ms + 1)) {
            add_wrong(tally, "user \"%s\" window %" PRId64 " ms: still there %" PRId64 " ms late\n",
                      query.user, length_ms, seen->before_ms - last_ms);
        } else if (seen->value == NULL && has_events && seen->after_ms < last_ms) {
            add_wrong(tally, "user \"%s\" window %" PRId64 " ms: gone %" PRId64 " ms early\n",
                      query.user, length_ms, last_ms - seen->after_ms);
        }
    }
    drop(live, &snapshot);
}

void live_passes(const struct oracle_tally *tally, struct oracle_minimum minimum)
{
    char text[5000];
    if (!oracle_passes(tally, &minimum, text, sizeof text)) {
        fail_msg("%s", text);
    }
}

size_t live_key_count(struct live *live)
{
    struct snapshot snapshot = {0};
    read_keys(reader_of(live), &snapshot);
    size_t count = snapshot.key_count;
    drop(live, &snapshot);
    return count;
}

void live_await_no_key(struct live *live, int64_t timeout_ms)
{
    int64_t deadline_ms = lab_monotonic_ms() + timeout_ms;
    while (live_key_count(live) > 0) {
        if (lab_monotonic_ms() >= deadline_ms) {
            fail_msg("%zu keys are left", live_key_count(live));
        }
        lab_pause_ms(POLL_MS);
    }
}
