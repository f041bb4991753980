/* `fcapd backfill` on a real broker and a real Redis: every key against the definition at T. */
#include "live.h"

#include "lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOUR_MS ((int64_t)3600 * 1000)
#define DAY_MS  (24 * HOUR_MS)
#define EMPTY   3 /* the partition that nobody's user lies in */

static const struct live_window windows[] = {
    {"1h", HOUR_MS}, {"1d", DAY_MS}, {"7d", 7 * DAY_MS}, {NULL, 0}};

static const struct live_options options = {
    .partitions = 4,
    .workers = 1,
    .windows = "[1h, 1d, 7d]",
    .lengths = windows,
    .topic_config = {"retention.ms", "-1", NULL},
    .more = "event:\n  id: id\n",
};

static struct live live;
static unsigned long serial;

static uint32_t draw(uint32_t below)
{
    static uint64_t random = 20240611;
    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random >> 33) % below;
}

static bool is_full(void)
{
    const char *size = getenv("FCAP_TEST_FULL");
    return size != NULL && strcmp(size, "1") == 0;
}

/* --- the topic --- */

/* A user of any partition but the empty one. */
static const char *some_user(uint32_t users)
{
    static char name[32];
    do {
        (void)snprintf(name, sizeof name, "u%u", draw(users));
    } while (live_partition(&live, name) == EMPTY);
    return name;
}

static void send_one(const char *user, int64_t time_ms)
{
    char ad[16];
    char id[32];
    (void)snprintf(ad, sizeof ad, "a%u", draw(12));
    (void)snprintf(id, sizeof id, "id%lu", serial++);
    live_send(&live, user, ad, time_ms, id);
    if (draw(40) == 0) {
        live_send(&live, user, ad, time_ms, id); /* The producer sends it twice. */
    }
}

/* Mostly young events, some old, some late for all, some refused; now and then one is erased. */
static void produce(size_t count, uint32_t users)
{
    for (size_t i = 0; i < count; i++) {
        const char *user = some_user(users);
        int64_t now_ms = lab_wall_ms();
        uint32_t kind = draw(200);
        if (kind == 0) {
            live_send_tombstone(&live, user);
        } else if (kind == 1) {
            live_send_text(&live, user, "{\"user_id\":", "dead json");
        } else if (kind == 2) {
            char text[160];
            (void)snprintf(text, sizeof text,
                           "{\"user_id\":\"%s\",\"ad_id\":\"a1\",\"ts\":%" PRId64 ",\"id\":\"f\"}",
                           user, now_ms + 2 * HOUR_MS);
            live_send_text(&live, user, text, "dead future");
        } else {
            int64_t span_ms = kind < 100 ? HOUR_MS : kind < 150 ? 2 * DAY_MS : 8 * DAY_MS;
            send_one(user, now_ms - (int64_t)draw((uint32_t)(span_ms / 1000)) * 1000 - draw(1000));
        }
    }
    live_flush(&live);
}

/* --- backfill --- */

/* A number of the summary: the one behind `before`. */
static int64_t number_behind(const char *before)
{
    const char *at = strstr(live.process.text, before);
    int64_t number = 0;
    if (at == NULL) {
        fail_msg("no \"%s\" in:\n%s", before, live.process.text);
        return 0;
    }
    for (at += strlen(before); *at == ' ' || *at == ','; at++) {
    }
    for (; (*at >= '0' && *at <= '9') || *at == ','; at++) {
        number = *at == ',' ? number : number * 10 + (*at - '0');
    }
    return number;
}

/* A number of the summary: the one before `behind`. */
static int64_t number_before(const char *behind)
{
    const char *end = strstr(live.process.text, behind);
    if (end == NULL) {
        fail_msg("no \"%s\" in:\n%s", behind, live.process.text);
        return 0;
    }
    const char *at = end;
    while (at > live.process.text && ((at[-1] >= '0' && at[-1] <= '9') || at[-1] == ',')) {
        at--;
    }
    int64_t number = 0;
    for (; at < end; at++) {
        number = *at == ',' ? number : number * 10 + (*at - '0');
    }
    return number;
}

static void backfill(const char *const *arguments, int code)
{
    int found = daemon_process_command(&live.process, "backfill", arguments, NULL);
    if (found != code) {
        fail_msg("exit code %d:\n%s", found, live.process.text);
    }
}

/* --- comparing --- */

/* Every user x window as it was at T, over the records below `next`. */
static void compare(int64_t at_ms, const int64_t *next, unsigned mask, struct oracle_tally *tally)
{
    for (size_t i = 0; i < oracle_user_count(live.oracle); i++) {
        const char *user = oracle_user(live.oracle, i);
        for (size_t k = 0; k < live.window_count; k++) {
            struct oracle_expectation expected = {.user = user,
                                                  .window_ms = windows[k].length_ms,
                                                  .at_min_ms = at_ms,
                                                  .at_max_ms = at_ms,
                                                  .next_min = next,
                                                  .next_count = LIVE_PARTITIONS_MAX};
            char text[4096];
            const char *value =
                redis_server_ask(&live.redis, "GET fc:{%s}:%s", user, windows[k].name);
            if ((mask >> k & 1) == 0) {
                assert_null(value);
                continue;
            }
            if (value == NULL) {
                (void)oracle_check_value(live.oracle, &expected, NULL, 0, tally);
                continue;
            }
            (void)snprintf(text, sizeof text, "%s", value);
            (void)oracle_check_value(live.oracle, &expected, text, strlen(text), tally);
            struct oracle_query query = {.user = user,
                                         .window_ms = windows[k].length_ms,
                                         .at_ms = at_ms,
                                         .next = next,
                                         .next_count = LIVE_PARTITIONS_MAX};
            const char *pxat =
                redis_server_ask(&live.redis, "PEXPIRETIME fc:{%s}:%s", user, windows[k].name);
            (void)oracle_check_expiry(live.oracle, &query, strtoll(pxat, NULL, 10), tally);
        }
    }
}

static void test_every_key_equals_the_definition(void **unused)
{
    (void)unused;
    struct oracle_tally tally = {0};
    size_t count = is_full() ? 300000 : 20000;
    produce(count, (uint32_t)count / 20);
    live_read(&live);
    backfill((const char *const[]){"--no-tty", NULL}, 0);
    int64_t at_ms = number_behind("users as of ");
    compare(at_ms, live.read, 7, &tally);
    live_passes(&tally, (struct oracle_minimum){1000, 800, 10});
    assert_int_equal(number_before(" written for "), live_key_count(&live));
    assert_true(number_behind("duplicate ") > 0);
    assert_true(number_behind("late ") > 0 && number_behind("future ") > 0);
    assert_true(number_before(" tombstones") > 0);
    print_message("%s", live.process.text);
}

static int setup(void **unused)
{
    (void)unused;
    live_init(&live, &options);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_key_equals_the_definition, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
