#include "pipeline.h"

#include "lab/lab.h"
#include "lab/oracle.h"
#include "lab/oracle_check.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_USERS 500
#define LAG_MS      5000 /* T may be so far behind, and an absent key so late */
#define KEY_MAX     64

struct seen_key {
    struct redis_seen seen;
    int64_t before_ms; /* the wall clock around the reading */
    int64_t after_ms;
};

struct check {
    struct world *world;
    struct oracle *oracle;
    struct seen_key *keys; /* user x window */
    size_t user_count;
    int64_t delay_ms;
    int64_t at_ms; /* 0: values move with the clock */
    struct oracle_tally now;
    struct oracle_tally as_of;
    struct oracle_tally expiry;
    uint64_t strange; /* keys of nobody */
    char strange_text[256];
};

static void name_user(uint32_t user, char *text, size_t size)
{
    (void)snprintf(text, size, "u%" PRIu32, user);
}

/* Whatever was still in a window when the reading began; older events say nothing. */
static void learn(struct check *check, int64_t begun_ms)
{
    const struct feed *feed = check->world->feed;
    int64_t longest_ms = check->world->options.windows_ms[PIPELINE_WINDOWS - 1];
    int64_t from_ms = (check->at_ms != 0 ? check->at_ms : begun_ms) - longest_ms - 2 * LAG_MS;
    for (uint64_t i = 0; i < feed_count(feed); i++) {
        const struct feed_event *event = feed_event_at(feed, i);
        char user[24];
        char ad[24];
        lab_check(event->offset >= 0);
        if (event->time_ms < from_ms) {
            continue;
        }
        name_user(event->user, user, sizeof user);
        (void)snprintf(ad, sizeof ad, "a%u", event->ad);
        (void)oracle_add(check->oracle, &(struct oracle_event){.partition = event->partition,
                                                               .offset = event->offset,
                                                               .user = user,
                                                               .ad = ad,
                                                               .time_ms = event->time_ms});
    }
}

/* --- reading --------------------------------------------------------------------------------- */

static void read_batch(struct check *check, uint32_t first, size_t count)
{
    static char names[BATCH_USERS * PIPELINE_WINDOWS][KEY_MAX];
    static const char *keys[BATCH_USERS * PIPELINE_WINDOWS];
    static struct redis_seen seen[BATCH_USERS * PIPELINE_WINDOWS];
    for (size_t i = 0; i < count * PIPELINE_WINDOWS; i++) {
        (void)snprintf(names[i], KEY_MAX, "%s:{u%zu}:%s", check->world->prefix,
                       first + i / PIPELINE_WINDOWS,
                       check->world->window_names[i % PIPELINE_WINDOWS]);
        keys[i] = names[i];
    }
    int64_t before_ms = lab_wall_ms();
    redis_reader_get(check->world->reader, keys, count * PIPELINE_WINDOWS, seen);
    int64_t after_ms = lab_wall_ms();
    for (size_t i = 0; i < count * PIPELINE_WINDOWS; i++) {
        check->keys[(size_t)first * PIPELINE_WINDOWS + i] =
            (struct seen_key){seen[i], before_ms, after_ms};
    }
}

static void look_at_name(void *context, const char *key)
{
    struct check *check = context;
    char *end = NULL;
    const char *at = strstr(key, ":{u");
    unsigned long user = at == NULL ? ULONG_MAX : strtoul(at + 3, &end, 10);
    bool known = user < check->user_count && end[0] == '}' && end[1] == ':';
    bool has_window = false;
    for (size_t i = 0; known && i < PIPELINE_WINDOWS; i++) {
        has_window = has_window || strcmp(end + 2, check->world->window_names[i]) == 0;
    }
    if (!has_window) {
        check->strange++;
        (void)snprintf(check->strange_text, sizeof check->strange_text,
                       "a key that should not be there: %s\n", key);
    }
}

/* --- comparing ------------------------------------------------------------------------------- */

static void check_key(struct check *check, const char *user, size_t window,
                      const struct seen_key *key)
{
    int64_t length_ms = check->world->options.windows_ms[window];
    struct oracle_expectation expectation = {
        .user = user,
        .window_ms = length_ms,
        .at_min_ms = check->at_ms != 0 ? check->at_ms : key->before_ms - LAG_MS,
        /* An absent key may have ended since. */
        .at_max_ms = check->at_ms != 0 && key->seen.value != NULL ? check->at_ms : key->after_ms,
    };
    (void)oracle_check_value(check->oracle, &expectation, key->seen.value, key->seen.size,
                             &check->now);
    if (key->seen.value == NULL) {
        return;
    }
    if (length_ms > check->delay_ms) {
        expectation.strict_as_of = true;
        (void)oracle_check_value(check->oracle, &expectation, key->seen.value, key->seen.size,
                                 &check->as_of);
    }
    if (key->seen.pxat_ms != REDIS_PXAT_UNKNOWN && key->seen.pxat_ms != REDIS_PXAT_ABSENT) {
        (void)oracle_check_expiry(check->oracle,
                                  &(struct oracle_query){.user = user, .window_ms = length_ms},
                                  key->seen.pxat_ms, &check->expiry);
    }
}

static void compare(struct check *check)
{
    for (size_t i = 0; i < check->user_count * PIPELINE_WINDOWS; i++) {
        char user[24];
        name_user((uint32_t)(i / PIPELINE_WINDOWS), user, sizeof user);
        check_key(check, user, i % PIPELINE_WINDOWS, &check->keys[i]);
        redis_reader_drop(&check->keys[i].seen, 1);
    }
}

static void add_result(const struct check *check, struct check_result *result)
{
    const struct oracle_tally *tallies[] = {&check->now, &check->as_of, &check->expiry};
    result->compared += check->now.non_empty;
    result->absent += check->now.absent;
    result->mismatches += check->strange;
    size_t used = strlen(result->text);
    (void)snprintf(result->text + used, sizeof result->text - used, "%s", check->strange_text);
    for (size_t i = 0; i < 3; i++) {
        result->mismatches += tallies[i]->wrong;
        used = strlen(result->text);
        (void)snprintf(result->text + used, sizeof result->text - used, "%s", tallies[i]->text);
    }
}

static void run_check(struct world *world, int64_t delay_ms, int64_t at_ms,
                      struct check_result *result)
{
    struct check *check = calloc(1, sizeof *check);
    char pattern[64];
    lab_check(check != NULL);
    check->world = world;
    check->oracle = oracle_open();
    check->user_count = (size_t)world->options.users + 1; /* Whether they count from 0 or 1. */
    check->delay_ms = delay_ms;
    check->at_ms = at_ms;
    check->keys = calloc(check->user_count * PIPELINE_WINDOWS, sizeof *check->keys);
    lab_check(check->keys != NULL);
    int64_t begun_ms = lab_wall_ms();
    for (size_t first = 0; first < check->user_count; first += BATCH_USERS) {
        size_t left = check->user_count - first;
        read_batch(check, (uint32_t)first, left < BATCH_USERS ? left : BATCH_USERS);
    }
    (void)snprintf(pattern, sizeof pattern, "%s:*", world->prefix);
    redis_reader_scan(world->reader, pattern, look_at_name, check);
    learn(check, begun_ms);
    compare(check);
    add_result(check, result);
    free(check->keys);
    oracle_close(check->oracle);
    free(check);
}

void check_all(struct world *world, int64_t delay_ms, struct check_result *result)
{
    run_check(world, delay_ms, 0, result);
}

void check_at(struct world *world, int64_t at_ms, struct check_result *result)
{
    run_check(world, 0, at_ms, result);
}
