#include "demo/audit.h"

#include "lab/claims.h"
#include "lab/impressions.h"
#include "lab/lab.h"
#include "lab/oracle_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_USERS 256
#define BATCH_KEYS  ((size_t)BATCH_USERS * DEMO_WINDOWS)
#define KEY_MAX     4096

struct auditor {
    struct demo_world *world;
    struct demo_audit *audit;
    struct oracle_tally values;
    struct oracle_tally expiries;
    char unknown[1000]; /* keys that should not be there */
    char *keys[BATCH_KEYS];
    struct redis_seen seen[BATCH_KEYS];
    int64_t as_of_ms[DEMO_PARTITIONS_MAX]; /* claimed before the keys are read */
};

static void read_claims(struct auditor *auditor)
{
    int64_t now_ms = lab_wall_ms();
    const char *meta = demo_world_meta(auditor->world);
    for (int32_t i = 0; i < auditor->world->partition_count; i++) {
        struct claim claim = {0};
        if (!claim_read(meta, i, &claim)) {
            lab_die("fc:meta says nothing of partition %" PRId32 ": the daemon stands still", i);
        }
        int64_t lag_ms = now_ms - claim.as_of_ms;
        auditor->as_of_ms[i] = claim.as_of_ms;
        if (lag_ms > auditor->audit->lag_ms_max) {
            auditor->audit->lag_ms_max = lag_ms;
            auditor->audit->lag_partition = i;
        }
    }
}

static bool check_expiry(struct auditor *auditor, const struct oracle_query *query, int64_t pxat_ms)
{
    if (pxat_ms == REDIS_PXAT_UNKNOWN || pxat_ms == REDIS_PXAT_ABSENT) {
        return true; /* It has gone since it was read. */
    }
    return oracle_check_expiry(auditor->world->oracle, query, pxat_ms, &auditor->expiries);
}

static void check_key(struct auditor *auditor, const char *user, size_t window,
                      const struct redis_seen *seen, int64_t after_ms)
{
    int32_t partition = impressions_partition(user, auditor->world->partition_count);
    const struct oracle_expectation expectation = {
        .user = user,
        .window_ms = demo_windows[window].length_ms,
        .at_min_ms = auditor->as_of_ms[partition],
        .at_max_ms = after_ms,
    };
    const struct oracle_query query = {.user = user, .window_ms = demo_windows[window].length_ms};
    bool is_there = seen->value != NULL || seen->is_other;
    bool is_right = oracle_check_value(auditor->world->oracle, &expectation,
                                       seen->is_other ? "no string" : seen->value,
                                       seen->is_other ? 9 : seen->size, &auditor->values);
    if (is_there) {
        is_right = check_expiry(auditor, &query, seen->pxat_ms) && is_right;
    }
    auditor->audit->keys += is_there || !is_right;
    auditor->audit->absent += !is_there && is_right;
    auditor->audit->differ += !is_right;
}

static void check_users(struct auditor *auditor, size_t from, size_t to)
{
    struct demo_world *world = auditor->world;
    size_t count = (to - from) * DEMO_WINDOWS;
    for (size_t i = 0; i < count; i++) {
        demo_world_key(world, oracle_user(world->oracle, from + i / DEMO_WINDOWS), i % DEMO_WINDOWS,
                       auditor->keys[i], KEY_MAX);
    }
    read_claims(auditor);
    redis_reader_get(world->reader, (const char *const *)auditor->keys, count, auditor->seen);
    int64_t after_ms = lab_wall_ms();
    for (size_t i = 0; i < count; i++) {
        check_key(auditor, oracle_user(world->oracle, from + i / DEMO_WINDOWS), i % DEMO_WINDOWS,
                  &auditor->seen[i], after_ms);
    }
    redis_reader_drop(auditor->seen, count);
}

/* The user in a key's name, "%XX" undone. False: no window of ours stands behind it. */
static bool user_of(const struct demo_world *world, const char *key, char *ret_user)
{
    const char *end = strstr(key, "}:");
    bool is_window = false;
    size_t used = 0;
    if (end == NULL || strlen(key) >= KEY_MAX) {
        return false;
    }
    for (size_t i = 0; i < DEMO_WINDOWS; i++) {
        is_window = is_window || strcmp(end + 2, demo_windows[i].name) == 0;
    }
    for (const char *at = key + strlen(world->key_prefix); at < end; at++) {
        char code[3] = {at[0] == '%' ? at[1] : '\0', at[0] == '%' ? at[2] : '\0', '\0'};
        ret_user[used++] = at[0] == '%' ? (char)strtol(code, NULL, 16) : *at;
        at += at[0] == '%' ? 2 : 0;
    }
    ret_user[used] = '\0';
    return is_window;
}

/* A key that is no user x window of those that were compared. */
static void check_name(void *context, const char *key)
{
    struct auditor *auditor = context;
    char user[KEY_MAX];
    if (user_of(auditor->world, key, user) &&
        oracle_record_count(auditor->world->oracle, user) > 0) {
        return;
    }
    size_t used = strlen(auditor->unknown);
    auditor->audit->keys++;
    auditor->audit->differ++;
    (void)snprintf(auditor->unknown + used, sizeof auditor->unknown - used,
                   "a key that should not be there: %.100s\n", key);
}

void demo_audit_run(struct demo_world *world, struct demo_audit *ret_audit)
{
    char pattern[96];
    struct auditor *auditor = calloc(1, sizeof *auditor);
    lab_check(auditor != NULL);
    *ret_audit = (struct demo_audit){0};
    auditor->world = world;
    auditor->audit = ret_audit;
    for (size_t i = 0; i < BATCH_KEYS; i++) {
        auditor->keys[i] = malloc(KEY_MAX);
        lab_check(auditor->keys[i] != NULL);
    }
    size_t users = oracle_user_count(world->oracle);
    for (size_t from = 0; from < users; from += BATCH_USERS) {
        check_users(auditor, from, from + BATCH_USERS < users ? from + BATCH_USERS : users);
    }
    (void)snprintf(pattern, sizeof pattern, "%s*", world->key_prefix);
    redis_reader_scan(world->reader, pattern, check_name, auditor);
    (void)snprintf(ret_audit->text, sizeof ret_audit->text, "%s%s%s", auditor->unknown,
                   auditor->values.text, auditor->expiries.text);
    for (size_t i = 0; i < BATCH_KEYS; i++) {
        free(auditor->keys[i]);
    }
    free(auditor);
}
