/* See live.h. */
#include "live.h"

#include "lab/claims.h"
#include "lab/kafka_client.h"
#include "lab/lab.h"

#include <hiredis/hiredis.h>

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EXPECT   "test.expect"
#define TEXT_MAX 127
#define POLL_MS  20
#define TAIL_MS  60000

#define YAML_BYTES  8192
#define INSTANCE_ID "  instance_id: member\n"

static void make_yaml(const struct live *live, const char *instance, const char *instance_id,
                      char yaml[YAML_BYTES])
{
    static const char format[] = "profile: test\n"
                                 "instance: %s\n"
                                 "workers: %d\n"
                                 "windows: %s\n"
                                 "kafka:\n"
                                 "  brokers: %s\n"
                                 "  topic: %s\n"
                                 "  group: %s-group\n"
                                 "%s"
                                 "  session_timeout: %s\n"
                                 "  dead_letter:\n"
                                 "    topic: %s\n"
                                 "%s"
                                 "redis:\n"
                                 "  host: 127.0.0.1\n"
                                 "  port: %u\n"
                                 "%s"
                                 "commit:\n"
                                 "  interval: 500ms\n"
                                 "%s"
                                 "memory:\n"
                                 "  budget: 256MiB\n"
                                 "%s";
    const struct live_options *options = &live->options;
    unsigned port = options->redis_port != 0 ? options->redis_port : live->redis.port;
    int size = snprintf(yaml, YAML_BYTES, format, instance, options->workers, options->windows,
                        kafka_test_brokers(), live->topic, live->topic, instance_id,
                        options->session_timeout == NULL ? "6s" : options->session_timeout,
                        live->letters, options->more_kafka == NULL ? "" : options->more_kafka, port,
                        options->more_redis == NULL ? "" : options->more_redis,
                        options->more_commit == NULL ? "" : options->more_commit,
                        options->more == NULL ? "" : options->more);
    assert_in_range(size, 1, YAML_BYTES - 1);
}

void live_member_init(struct live *live, struct daemon_process *process, const char *instance)
{
    char yaml[YAML_BYTES];
    make_yaml(live, instance, "", yaml);
    daemon_process_init(process, FCAPD_PROGRAM, yaml);
}

void live_expect_windows(struct live *live, const struct live_window *lengths)
{
    live->options.lengths = lengths;
    live->window_count = 0;
    live->waiting_count = 0;
    while (lengths[live->window_count].name != NULL) {
        live->waiting_count += lengths[live->window_count].waits;
        live->window_count++;
    }
    assert_in_range(live->window_count, 1, LIVE_WINDOWS_MAX);
}

void live_configure(struct live *live, const struct live_change *change)
{
    char yaml[YAML_BYTES];
    live->options.windows = change->windows;
    live->options.gone = change->gone;
    live->options.more = change->more;
    live_expect_windows(live, change->lengths);
    make_yaml(live, "one", INSTANCE_ID, yaml);
    daemon_process_configure(&live->process, yaml);
}

/* A reader of its own, at the start of each partition. */
static rd_kafka_t *open_tail(const char *topic, int partitions)
{
    char text[512];
    rd_kafka_conf_t *conf = kafka_client_conf(kafka_test_brokers());
    const char *const pairs[][2] = {
        {"group.id", "tail"},
        {"enable.auto.commit", "false"},
        {"fetch.wait.max.ms", "20"},
        {"fetch.message.max.bytes", "10000000"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (rd_kafka_conf_set(conf, pairs[i][0], pairs[i][1], text, sizeof text) !=
            RD_KAFKA_CONF_OK) {
            lab_die("%s", text);
        }
    }
    rd_kafka_t *tail = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (tail == NULL) {
        lab_die("%s", text);
    }
    (void)rd_kafka_poll_set_consumer(tail);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (int32_t i = 0; i < partitions; i++) {
        rd_kafka_topic_partition_list_add(list, topic, i)->offset = 0;
    }
    if (rd_kafka_assign(tail, list) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        lab_die("assign %s", topic);
    }
    rd_kafka_topic_partition_list_destroy(list);
    return tail;
}

static void close_tail(rd_kafka_t *tail)
{
    if (tail != NULL) {
        (void)rd_kafka_consumer_close(tail);
        rd_kafka_destroy(tail);
    }
}

void live_init(struct live *live, const struct live_options *options)
{
    static const char *const letters_config[] = {"max.message.bytes", "8000000", NULL};
    const char *brokers = kafka_test_brokers();
    char yaml[YAML_BYTES];
    memset(live, 0, sizeof *live);
    live->options = *options;
    live_expect_windows(live, options->lengths);
    assert_in_range(options->partitions, 1, LIVE_PARTITIONS_MAX);
    (void)snprintf(live->topic, sizeof live->topic, "%s", kafka_unique("live"));
    (void)snprintf(live->letters, sizeof live->letters, "%s", kafka_unique("letters"));
    kafka_create_topic(brokers, live->topic, options->partitions, options->topic_config);
    kafka_create_topic(brokers, live->letters, 1, letters_config);
    if (options->redis_port == 0) {
        redis_server_start(&live->redis, NULL);
    }
    make_yaml(live, "one", INSTANCE_ID, yaml);
    daemon_process_init(&live->process, FCAPD_PROGRAM, yaml);
    live->oracle = oracle_open();
    live->producer = kafka_producer_open(brokers, live->topic, NULL, NULL);
    live->tail = open_tail(live->topic, options->partitions);
}

void live_done(struct live *live)
{
    daemon_process_done(&live->process);
    if (live->redis_reader != NULL) {
        redisFree(live->redis_reader);
        live->redis_reader = NULL;
    }
    redis_server_stop(&live->redis);
    kafka_producer_close(live->producer);
    close_tail(live->tail);
    oracle_close(live->oracle);
    for (size_t i = 0; i < live->dead_count; i++) {
        free(live->dead[i].key);
        free(live->dead[i].value);
    }
    free(live->dead);
    free(live->claims);
    memset(live, 0, sizeof *live);
}

void live_start(struct live *live)
{
    daemon_process_start(&live->process, NULL);
    daemon_process_await(&live->process, "/readyz", 200, LIVE_START_MS);
    if (live->options.redis_port == 0) {
        live_await_claims(live);
    }
}

void live_stop(struct live *live)
{
    daemon_process_signal(&live->process, SIGTERM);
    int code = daemon_process_wait(&live->process, LIVE_STOP_MS);
    if (code != 0) {
        fail_msg("exit code %d:\n%s", code, daemon_process_log(&live->process));
    }
}

/* --- producing ------------------------------------------------------------------------------- */

int32_t live_partition(const struct live *live, const char *user)
{
    uint32_t hash = 2166136261u;
    for (const char *at = user; *at != '\0'; at++) {
        hash = (hash ^ (uint8_t)*at) * 16777619u;
    }
    return (int32_t)((hash >> 8) % (uint32_t)live->options.partitions);
}

void live_send_event(struct live *live, const struct live_event *event)
{
    char value[640];
    bool has_id = event->id != NULL;
    int size = snprintf(value, sizeof value,
                        "{\"user_id\":\"%s\",\"ad_id\":\"%s\",\"ts\":%" PRId64 "%s%s%s}",
                        event->user, event->ad, event->time_ms, has_id ? ",\"id\":\"" : "",
                        has_id ? event->id : "", has_id ? "\"" : "");
    kafka_producer_send(live->producer,
                        &(struct kafka_produce){.partition = live_partition(live, event->user),
                                                .key = event->user,
                                                .key_size = strlen(event->user),
                                                .value = value,
                                                .value_size = (size_t)size,
                                                .timestamp_ms = event->timestamp_ms});
}

void live_send(struct live *live, const char *user, const char *ad, int64_t time_ms, const char *id)
{
    live_send_event(live, &(struct live_event){user, ad, time_ms, id, 0});
}

void live_send_odd(struct live *live, const struct kafka_produce *record, const char *expect)
{
    struct kafka_header header = {EXPECT, expect};
    struct kafka_produce copy = *record;
    copy.headers = &header;
    copy.header_count = 1;
    kafka_producer_send(live->producer, &copy);
}

void live_send_text(struct live *live, const char *user, const char *value, const char *expect)
{
    live_send_odd(live,
                  &(struct kafka_produce){.partition = live_partition(live, user),
                                          .key = user,
                                          .key_size = strlen(user),
                                          .value = value,
                                          .value_size = strlen(value)},
                  expect);
}

void live_send_tombstone_at(struct live *live, const char *user, int64_t timestamp_ms)
{
    kafka_producer_send(live->producer,
                        &(struct kafka_produce){.partition = live_partition(live, user),
                                                .key = user,
                                                .key_size = strlen(user),
                                                .timestamp_ms = timestamp_ms});
}

void live_send_tombstone(struct live *live, const char *user)
{
    live_send_tombstone_at(live, user, 0);
}

void live_flush(struct live *live)
{
    (void)kafka_producer_flush(live->producer);
}

/* --- reading back ---------------------------------------------------------------------------- */

static void *copy_of(const void *bytes, size_t size)
{
    char *copy = NULL;
    if (bytes != NULL) {
        copy = malloc(size + 1);
        assert_non_null(copy);
        memcpy(copy, bytes, size);
        copy[size] = '\0';
    }
    return copy;
}

static void learn_dead(struct live *live, const rd_kafka_message_t *message, const char *reason)
{
    if (live->dead_count == live->dead_capacity) {
        live->dead_capacity = live->dead_capacity * 2 + 64;
        live->dead = realloc(live->dead, live->dead_capacity * sizeof *live->dead);
        assert_non_null(live->dead);
    }
    struct live_dead *dead = &live->dead[live->dead_count++];
    *dead = (struct live_dead){.partition = message->partition,
                               .offset = message->offset,
                               .key = copy_of(message->key, message->key_len),
                               .key_size = message->key_len,
                               .value = copy_of(message->payload, message->len),
                               .value_size = message->len};
    (void)snprintf(dead->reason, sizeof dead->reason, "%.31s", reason);
    (void)oracle_skip(live->oracle, message->partition, message->offset);
}

static void learn_expected(struct live *live, const rd_kafka_message_t *message, const char *expect)
{
    char user[TEXT_MAX + 1];
    char ad[TEXT_MAX + 1];
    int64_t time_ms = 0;
    int64_t skew_ms = 0;
    bool is_judged =
        sscanf(expect, "judge %" SCNd64 " %127s %127s %" SCNd64, &skew_ms, user, ad, &time_ms) == 4;
    if (strncmp(expect, "dead ", 5) == 0) {
        learn_dead(live, message, expect + 5);
    } else if (is_judged && time_ms - rd_kafka_message_timestamp(message, NULL) > skew_ms) {
        learn_dead(live, message, "future");
    } else if (is_judged || sscanf(expect, "count %127s %127s %" SCNd64, user, ad, &time_ms) == 3) {
        (void)oracle_add(live->oracle, &(struct oracle_event){message->partition, message->offset,
                                                              user, ad, time_ms, NULL});
    } else if (strcmp(expect, "skip") == 0) {
        (void)oracle_skip(live->oracle, message->partition, message->offset);
    } else {
        lab_die("the test's header says \"%s\"", expect);
    }
}

/* Strict, in the tests' own code: nothing but what live_send() writes. */
static void learn_event(struct live *live, const rd_kafka_message_t *message)
{
    char text[1024];
    char user[TEXT_MAX + 1];
    char ad[TEXT_MAX + 1];
    char id[TEXT_MAX + 1];
    int64_t time_ms = 0;
    int used = 0;
    bool has_id = true;
    if (message->payload == NULL) {
        (void)snprintf(user, sizeof user, "%.*s", (int)message->key_len,
                       (const char *)message->key);
        (void)oracle_tombstone(live->oracle, message->partition, message->offset, user);
        return;
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)message->len, (const char *)message->payload);
    int found = sscanf(text,
                       "{\"user_id\":\"%127[^\"]\",\"ad_id\":\"%127[^\"]\",\"ts\":%" SCNd64
                       ",\"id\":\"%127[^\"]\"}%n",
                       user, ad, &time_ms, id, &used);
    if (found == 3) {
        has_id = false;
        (void)sscanf(text, "{\"user_id\":\"%*[^\"]\",\"ad_id\":\"%*[^\"]\",\"ts\":%*d}%n", &used);
    }
    if (found < 3 || (size_t)used != message->len) {
        lab_die("the topic holds what no test has sent: %s", text);
    }
    (void)oracle_add(live->oracle, &(struct oracle_event){message->partition, message->offset, user,
                                                          ad, time_ms, has_id ? id : NULL});
}

static void learn(struct live *live, const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers = NULL;
    const void *value = NULL;
    size_t size = 0;
    if (message->offset != live->read[message->partition]) {
        lab_die("%s [%d]: offset %" PRId64 " after %" PRId64, live->topic, message->partition,
                message->offset, live->read[message->partition]);
    }
    live->read[message->partition]++;
    if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR &&
        rd_kafka_header_get_last(headers, EXPECT, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        char expect[512];
        (void)snprintf(expect, sizeof expect, "%.*s", (int)size, (const char *)value);
        learn_expected(live, message, expect);
    } else {
        learn_event(live, message);
    }
}

static int64_t end_of(rd_kafka_t *client, const char *topic, int32_t partition)
{
    int64_t low = 0;
    int64_t end = 0;
    kafka_client_ends(client, topic, partition, &low, &end);
    return end;
}

void live_read(struct live *live)
{
    int64_t ends[LIVE_PARTITIONS_MAX];
    int64_t until_ms = lab_monotonic_ms() + TAIL_MS;
    int left = 0;
    for (int32_t i = 0; i < live->options.partitions; i++) {
        ends[i] = end_of(live->tail, live->topic, i);
        left += live->read[i] < ends[i];
    }
    while (left > 0) {
        if (lab_monotonic_ms() > until_ms) {
            lab_die("%s cannot be read back", live->topic);
        }
        rd_kafka_message_t *message = rd_kafka_consumer_poll(live->tail, 100);
        if (message == NULL) {
            continue;
        }
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            until_ms = lab_monotonic_ms() + TAIL_MS; /* It goes on. */
            learn(live, message);
            left -= live->read[message->partition] == ends[message->partition];
        }
        rd_kafka_message_destroy(message);
    }
}

/* What an instance claims of a partition, when nothing better is known already. */
static bool add_claims(struct live *live, const char *instance, struct live_claim *best)
{
    const char *meta = redis_server_ask(&live->redis, "GET fc:meta:test:%s", instance);
    for (int32_t i = 0; i < live->options.partitions; i++) {
        struct claim claim;
        if (claim_read(meta, i, &claim) && claim.epoch > best[i].epoch) {
            best[i] = (struct live_claim){i, claim.as_of_ms, claim.next, claim.epoch,
                                          claim.ready + live->waiting_count >= live->window_count};
        }
    }
    return meta != NULL;
}

static void remember_claim(struct live *live, const struct live_claim *claim)
{
    struct live_claim *last = &live->last[claim->partition];
    bool is_known =
        claim->next < 0 || (last->as_of_ms == claim->as_of_ms && last->next == claim->next);
    *last = *claim;
    if (is_known) {
        return;
    }
    if (live->claim_count == live->claim_capacity) {
        live->claim_capacity = live->claim_capacity * 2 + 64;
        live->claims = realloc(live->claims, live->claim_capacity * sizeof *live->claims);
        assert_non_null(live->claims);
    }
    live->claims[live->claim_count++] = *claim;
}

bool live_claims(struct live *live, int64_t *ret_next, int64_t *ret_as_of_ms)
{
    struct live_claim best[LIVE_PARTITIONS_MAX];
    for (int32_t i = 0; i < live->options.partitions; i++) {
        best[i] = (struct live_claim){i, -1, -1, -1, false};
    }
    bool found = add_claims(live, "one", best);
    if (live->options.other_instance != NULL) {
        found = add_claims(live, live->options.other_instance, best) || found;
    }
    for (int32_t i = 0; i < live->options.partitions; i++) {
        remember_claim(live, &best[i]);
        ret_next[i] = best[i].next;
        ret_as_of_ms[i] = best[i].as_of_ms;
    }
    return found;
}

void live_await_claims(struct live *live)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    int claimed = 0;
    while (claimed < live->options.partitions) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(POLL_MS);
        (void)live_claims(live, next, as_of_ms);
        claimed = 0;
        for (int32_t i = 0; i < live->options.partitions; i++) {
            claimed += next[i] >= 0;
        }
    }
}

void live_await_applied(struct live *live)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    live_flush(live);
    live_read(live);
    for (;;) {
        (void)live_claims(live, next, as_of_ms);
        int done = 0;
        for (int32_t i = 0; i < live->options.partitions; i++) {
            done += next[i] >= live->read[i];
        }
        if (done == live->options.partitions) {
            return;
        }
        if (lab_monotonic_ms() >= deadline_ms) {
            (void)daemon_process_get(&live->process, "/readyz", NULL);
            print_error("/readyz: %s\n", live->process.text);
            print_error("--- log:\n%s", daemon_process_log(&live->process));
            fail_msg("%d of %d partitions are applied", done, live->options.partitions);
        }
        lab_pause_ms(POLL_MS);
    }
}

/* --- dead letters ---------------------------------------------------------------------------- */

static int64_t number_header(const rd_kafka_headers_t *headers, const char *name)
{
    const void *value = NULL;
    size_t size = 0;
    char text[32];
    if (rd_kafka_header_get_last(headers, name, &value, &size) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fail_msg("a dead letter without %s", name);
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)size, (const char *)value);
    return strtoll(text, NULL, 10);
}

static void check_letter(struct live *live, const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers = NULL;
    const void *reason = NULL;
    const void *topic = NULL;
    size_t reason_size = 0;
    size_t topic_size = 0;
    assert_int_equal(rd_kafka_message_headers(message, &headers), RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_int_equal(rd_kafka_header_get_last(headers, "fcap.reason", &reason, &reason_size), 0);
    assert_int_equal(rd_kafka_header_get_last(headers, "fcap.topic", &topic, &topic_size), 0);
    int64_t partition = number_header(headers, "fcap.partition");
    int64_t offset = number_header(headers, "fcap.offset");
    struct live_dead *dead = NULL;
    for (size_t i = 0; i < live->dead_count && dead == NULL; i++) {
        bool hit = live->dead[i].partition == partition && live->dead[i].offset == offset;
        dead = hit ? &live->dead[i] : NULL;
    }
    if (dead == NULL) {
        fail_msg("a dead letter (%.*s) for the good record %" PRId64 " of partition %" PRId64
                 ": %.*s",
                 (int)reason_size, (const char *)reason, offset, partition,
                 (int)(message->len < 200 ? message->len : 200), (const char *)message->payload);
        return; /* For compilers that do not know that fail_msg() never returns. */
    }
    if (strlen(dead->reason) != reason_size || memcmp(dead->reason, reason, reason_size) != 0) {
        fail_msg("reason %.*s, not %s, for %.*s", (int)reason_size, (const char *)reason,
                 dead->reason, (int)(message->len < 200 ? message->len : 200),
                 (const char *)message->payload);
    }
    assert_int_equal(strlen(live->topic), topic_size);
    assert_memory_equal(live->topic, topic, topic_size);
    assert_int_equal(dead->key == NULL, message->key == NULL);
    assert_int_equal(dead->value == NULL, message->payload == NULL);
    assert_int_equal(dead->key_size, message->key_len);
    assert_int_equal(dead->value_size, message->len);
    assert_true(dead->key_size == 0 || memcmp(dead->key, message->key, dead->key_size) == 0);
    assert_true(dead->value_size == 0 ||
                memcmp(dead->value, message->payload, dead->value_size) == 0);
    dead->seen++;
}

static size_t missing_letters(const struct live *live)
{
    size_t missing = 0;
    for (size_t i = 0; i < live->dead_count; i++) {
        missing += live->dead[i].seen == 0;
    }
    return missing;
}

void live_check_letters(struct live *live, bool once)
{
    int64_t next = 0;
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    rd_kafka_t *reader = open_tail(live->letters, 1);
    for (size_t i = 0; i < live->dead_count; i++) {
        live->dead[i].seen = 0;
    }
    while (missing_letters(live) > 0 || next < end_of(reader, live->letters, 0)) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, 50);
        if (message != NULL && message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            next = message->offset + 1;
            check_letter(live, message);
        }
        if (message != NULL) {
            rd_kafka_message_destroy(message);
        }
        if (lab_monotonic_ms() > deadline_ms) {
            fail_msg("%zu of %zu dead letters are missing", missing_letters(live),
                     live->dead_count);
        }
    }
    close_tail(reader);
    for (size_t i = 0; once && i < live->dead_count; i++) {
        assert_int_equal(live->dead[i].seen, 1);
    }
}
