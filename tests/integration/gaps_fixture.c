/* See gaps_fixture.h. */
#include "gaps_fixture.h"

#include "lab/lab.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct gaps_world gaps;
const char *const gaps_degrading[] = {"ON_GAP=degrade", NULL};
const char *const gaps_stopping[] = {"ON_GAP=stop", NULL};
static char task_text[4096];

int gaps_setup(const char *more)
{
    static const struct run_window windows[] = {
        {"4s", GAPS_SHORT_MS}, {"1h", GAPS_LONG_MS}, {NULL, 0}};
    char yaml[256];
    (void)snprintf(yaml, sizeof yaml, "on_gap: ${ON_GAP}\nlimits:\n  max_future_skew: %dms\n%s",
                   GAPS_SKEW_MS, more);
    gaps = (struct gaps_world){0};
    run_fixture_init(&gaps.fixture, "[4s, 1h]", windows, yaml);
    return 0;
}

int gaps_teardown(void **unused)
{
    (void)unused;
    run_fixture_done(&gaps.fixture);
    return 0;
}

/* --- the topic --- */

/* The impression of this moment, by a user that the number chooses. */
static void send(int32_t partition, int number, int64_t time_ms, char user[32])
{
    char value[160];
    gaps.stamps[partition][gaps.written[partition]++] = time_ms;
    (void)snprintf(user, 32, "user-%d-%d", partition, number % GAPS_USERS);
    (void)snprintf(value, sizeof value, "{\"user_id\":\"%s\",\"ad_id\":\"ad\",\"ts\":%lld}", user,
                   (long long)time_ms);
    kafka_producer_send(gaps.fixture.producer, &(struct kafka_produce){.partition = partition,
                                                                       .key = user,
                                                                       .key_size = strlen(user),
                                                                       .value = value,
                                                                       .value_size = strlen(value),
                                                                       .timestamp_ms = time_ms});
}

/* The first `count` of the topic as it was: the oracle has them. */
void gaps_produce_again(int32_t partition, int count)
{
    for (int i = 0; i < count; i++) {
        char user[32];
        send(partition, i, gaps.stamps[partition][i], user);
    }
}

/* `count` impressions of now in a partition, 1 ms apart; `lost`: they will never be read. */
void gaps_produce(int32_t partition, int count, bool lost)
{
    for (int i = 0; i < count; i++) {
        char user[32];
        int64_t time_ms = lab_wall_ms();
        int64_t offset = gaps.written[partition];
        if (offset > 0 && time_ms <= gaps.stamps[partition][offset - 1]) {
            time_ms = gaps.stamps[partition][offset - 1] + 1;
        }
        send(partition, i, time_ms, user);
        struct oracle_event event = {partition, gaps.ever[partition]++, user, "ad", time_ms, NULL};
        if (lost) {
            assert_int_equal(oracle_skip(gaps.fixture.oracle, partition, event.offset),
                             ORACLE_ACCEPTED);
        } else {
            assert_int_equal(oracle_add(gaps.fixture.oracle, &event), ORACLE_ACCEPTED);
        }
    }
    (void)kafka_producer_flush(gaps.fixture.producer);
}

void gaps_produce_all(int count)
{
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        gaps_produce(i, count, false);
    }
}

void gaps_recreate(const char *const *config)
{
    kafka_producer_close(gaps.fixture.producer);
    gaps.fixture.producer = NULL;
    kafka_delete_topic(kafka_test_brokers(), gaps.fixture.topic);
    lab_pause_ms(1000);
    kafka_create_topic(kafka_test_brokers(), gaps.fixture.topic, RUN_PARTITIONS, config);
    gaps.fixture.producer =
        kafka_producer_open(kafka_test_brokers(), gaps.fixture.topic, NULL, NULL);
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        gaps.last_stamps[i] = gaps.written[i] > 0 ? gaps.stamps[i][gaps.written[i] - 1] : -1;
    }
    memset(gaps.written, 0, sizeof gaps.written);
}

void gaps_delete_below(int32_t partition, int64_t offset)
{
    kafka_delete_records(kafka_test_brokers(), gaps.fixture.topic, partition, offset);
}

/* --- the daemon --- */

void gaps_start(void)
{
    daemon_process_start(&gaps.fixture.process, gaps_degrading);
    daemon_process_await(&gaps.fixture.process, "/readyz", 200, GAPS_WAIT_MS);
}

void gaps_stop(void)
{
    daemon_process_signal(&gaps.fixture.process, SIGTERM);
    int code = daemon_process_wait(&gaps.fixture.process, GAPS_WAIT_MS);
    if (code != 0) {
        fail_msg("exit code %d:\n%s", code, daemon_process_log(&gaps.fixture.process));
    }
}

/* The last line of a run that must not go on. */
void gaps_expect_stop(const char *text)
{
    assert_int_equal(daemon_process_wait(&gaps.fixture.process, GAPS_WAIT_MS), 70);
    const char *log = daemon_process_log(&gaps.fixture.process);
    if (strstr(log, text) == NULL) {
        fail_msg("no \"%s\" in:\n%s", text, log);
    }
}

/* What a text with many partitions says of one: up to the next one. `mark` begins each. */
static const char *part_of(const char *text, const char *mark, int32_t partition)
{
    char name[32];
    (void)snprintf(name, sizeof name, mark, partition);
    const char *at = text == NULL ? NULL : strstr(text, name);
    if (at == NULL) {
        return NULL;
    }
    size_t size = strcspn(at, "\n");
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        (void)snprintf(name, sizeof name, mark, i);
        const char *other = strstr(at + 1, name);
        if (other != NULL && (size_t)(other - at) < size) {
            size = (size_t)(other - at);
        }
    }
    (void)snprintf(task_text, sizeof task_text, "%.*s", (int)size, at);
    return task_text;
}

static const char *status_of(int32_t partition)
{
    assert_int_equal(daemon_process_get(&gaps.fixture.process, "/status", NULL), 200);
    return part_of(gaps.fixture.process.text, "{\"partition\":%d,", partition);
}

const char *gaps_meta(int32_t partition)
{
    return part_of(run_fixture_meta(&gaps.fixture), "\"%d\":{\"epoch\"", partition);
}

static int64_t number_in(const char *text, const char *name)
{
    const char *at = text == NULL ? NULL : strstr(text, name);
    if (at == NULL) {
        fail_msg("no %s in %s", name, text == NULL ? "nothing" : text);
        return -1;
    }
    return strtoll(at + strlen(name), NULL, 10);
}

/* Polls until what `look` gives of the partition holds the text, and gives it. */
static const char *await(const char *(*look)(int32_t partition), int32_t partition,
                         const char *wanted)
{
    int64_t until_ms = lab_monotonic_ms() + GAPS_WAIT_MS;
    for (;;) {
        const char *text = look(partition);
        if (text != NULL && strstr(text, wanted) != NULL) {
            return text;
        }
        if (lab_monotonic_ms() > until_ms) {
            fail_msg("no %s in %s\n%s", wanted, text == NULL ? "nothing" : text,
                     daemon_process_log(&gaps.fixture.process));
        }
        lab_pause_ms(20);
    }
}

void gaps_await_read(void)
{
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        char next[40];
        (void)snprintf(next, sizeof next, "\"next\":%lld,", (long long)gaps.written[i]);
        (void)await(gaps_meta, i, next);
    }
}

/* Every key of both windows; the values too of those that are not ready. */
void gaps_compare(void)
{
    struct oracle_tally tally = {0};
    run_fixture_compare(&gaps.fixture, GAPS_LAG_MS, &tally);
    run_fixture_passes(&tally,
                       (struct oracle_minimum){(uint64_t)RUN_PARTITIONS * GAPS_USERS, 1, 0});
}

bool gaps_is_shown(int32_t partition, const char *window)
{
    return redis_server_ask(&gaps.fixture.redis, "GET fc:{user-%d-0}:%s", partition, window) !=
           NULL;
}

bool gaps_is_ready(const char *text, const char *window)
{
    char name[16];
    const char *list = strstr(text, "\"ready\":[");
    assert_non_null(list);
    (void)snprintf(name, sizeof name, "\"%s\"", window);
    const char *at = strstr(list, name);
    return at != NULL && at < strchr(list, ']');
}

/* --- what is lost --- */

void gaps_put_lost(const struct gaps_lost *lost, char text[320])
{
    (void)snprintf(text, 320,
                   "\"lost\":[{\"kind\":\"%s\",\"first\":%lld,\"last\":%lld,\"next\":%lld,"
                   "\"from\":%lld,\"to\":%lld,\"noticed\":",
                   lost->kind, (long long)lost->first, (long long)lost->last, (long long)lost->next,
                   (long long)lost->from_ms, (long long)lost->to_ms);
}

/* The long window waits in each test to its end, the short one perhaps no more. */
static void expect_ready_at(const char *text, int64_t since_ms)
{
    const char *list = strstr(text, "\"ready_at\":{");
    if (list == NULL) {
        fail_msg("no ready_at in %s", text);
        return;
    }
    assert_true(number_in(list, "\"1h\":") == since_ms + GAPS_LONG_MS);
    const char *brief = strstr(list, "\"4s\":");
    if (brief != NULL) {
        assert_true(number_in(brief, "\"4s\":") == since_ms + GAPS_SHORT_MS);
    }
}

/* Everything that is said of it, in every place, agrees. Gives since. */
int64_t gaps_expect_lost(int32_t partition, const struct gaps_lost *lost, int64_t before_ms)
{
    char wanted[320];
    char label[40];
    char line[160];
    gaps_put_lost(lost, wanted);
    (void)await(gaps_meta, partition, wanted);
    const char *text = await(status_of, partition, wanted);
    int64_t noticed_ms = number_in(text, "\"noticed\":");
    int64_t since_ms = number_in(text, "\"since\":");
    assert_in_range(noticed_ms, before_ms, lab_wall_ms());
    int64_t bound_ms = lost->to_ms + GAPS_SKEW_MS + GAPS_SLACK_MS;
    int64_t latest_ms = noticed_ms + GAPS_SKEW_MS;
    bool is_bound = lost->is_same_log && lost->to_ms > 0 && bound_ms < latest_ms;
    /* The later of the two clocks, which may differ a little. */
    assert_in_range(since_ms, is_bound ? bound_ms : latest_ms,
                    is_bound ? bound_ms : latest_ms + 1000);
    assert_true(number_in(text, "\"complete_since\":") == since_ms);
    expect_ready_at(text, since_ms);
    text = gaps_meta(partition);
    expect_ready_at(text, since_ms);
    assert_true(number_in(text, "\"since\":") == since_ms);
    assert_true(number_in(text, "\"complete_since\":") == since_ms);
    (void)snprintf(label, sizeof label, "partition=\"%d\"", partition);
    assert_int_equal(daemon_process_get(&gaps.fixture.process, "/metrics", NULL), 200);
    const struct daemon_process *process = &gaps.fixture.process;
    assert_true(daemon_process_sample(process, "fcapd_partition_lost_spans", label) == 1);
    double since =
        daemon_process_sample(process, "fcapd_partition_complete_since_timestamp_seconds", label);
    assert_true(since > (double)since_ms / 1000 - 0.001 && since < (double)since_ms / 1000 + 0.001);
    assert_true(daemon_process_sample(process, "fcapd_window_complete", "window=\"1h\"") == 0);
    (void)snprintf(line, sizeof line, "partition %d: lost (%s): offsets ", partition, lost->kind);
    if (strstr(daemon_process_log(&gaps.fixture.process), line) == NULL) {
        fail_msg("no \"%s\" in:\n%s", line, gaps.fixture.process.text);
    }
    return since_ms;
}

void gaps_expect_counted(const char *kind, int count)
{
    char label[40];
    (void)snprintf(label, sizeof label, "kind=\"%s\"", kind);
    assert_int_equal(daemon_process_get(&gaps.fixture.process, "/metrics", NULL), 200);
    double counted = daemon_process_sample(&gaps.fixture.process, "fcapd_gaps_total", label);
    double all = daemon_process_sample(&gaps.fixture.process, "fcapd_gaps_total", NULL);
    if (counted != count || all != count) {
        fail_msg("%s: %.0f of %.0f gaps, not %d", kind, counted, all, count);
    }
}

/* fc:meta never calls the short window ready before its moment by Redis' clock, and then does; the
 * long one waits. */
void gaps_watch_readiness(int32_t partition, int64_t since_ms)
{
    int64_t until_ms = lab_monotonic_ms() + GAPS_WAIT_MS;
    for (;;) {
        const char *meta = run_fixture_meta(&gaps.fixture);
        int64_t at_ms = number_in(meta, "\"at\":");
        const char *text = part_of(meta, "\"%d\":{\"epoch\"", partition);
        assert_non_null(text);
        assert_false(gaps_is_ready(text, "1h"));
        if (gaps_is_ready(text, "4s")) {
            assert_true(at_ms >=
                        since_ms + GAPS_SHORT_MS - 1000); /* T may be 1 s ahead of Redis. */
            return;
        }
        if (lab_monotonic_ms() > until_ms) {
            fail_msg("%s", text);
        }
        lab_pause_ms(50);
    }
}
