/* The Kafka source without a broker: settings that are refused by name, the memory arithmetic, the
 * gate, messages that are not delivered, and how often a group with a hole is shaken. */
#include "../../src/adapters/source_kafka_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct fcap_source_kafka_settings good(void)
{
    return (struct fcap_source_kafka_settings){
        .brokers = "127.0.0.1:1", .topic = "impressions", .group = "fcapd"};
}

static void assert_refused(const struct fcap_source_kafka_settings *settings, const char *name,
                           const char *reason)
{
    struct fcap_error error = {.text = ""};
    struct fcap_source_kafka *source = NULL;
    assert_int_equal(fcap_source_kafka_check(settings, &error), FCAP_CONFIG);
    if (strstr(error.text, name) == NULL || strstr(error.text, reason) == NULL) {
        fail_msg("\"%s\" names not both \"%s\" and \"%s\"", error.text, name, reason);
    }
    assert_int_equal(fcap_source_kafka_open(settings, &source, &error), FCAP_CONFIG);
    assert_null(source);
}

static void test_topics(void **state)
{
    (void)state;
    static const struct {
        const char *topic, *reason;
    } cases[] = {
        {"a,b", "two tasks, two clocks"},
        {"^impressions.*", "two tasks, two clocks"},
        {"a b", "two tasks, two clocks"},
        {"", "a topic is needed"},
        {"gr\xc3\xbc\xc3\x9f", "no topic"},
        {".", "no topic"},
        {"..", "no topic"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_source_kafka_settings settings = good();
        settings.topic = cases[i].topic;
        assert_refused(&settings, "kafka.topic", cases[i].reason);
    }
}

static void test_groups(void **state)
{
    (void)state;
    struct fcap_source_kafka_settings settings = good();
    settings.progress_group = "fcapd";
    assert_refused(&settings, "kafka.progress_group", "must differ");
    settings = good();
    settings.group = NULL;
    assert_refused(&settings, "kafka.group", "needed");
    settings = good();
    settings.brokers = "";
    assert_refused(&settings, "kafka.brokers", "needed");
    settings = good();
    settings.session_timeout_ms = 1000;
    settings.heartbeat_interval_ms = 1000;
    assert_refused(&settings, "kafka.session_timeout", "heartbeat");
}

static void test_properties(void **state)
{
    (void)state;
    static const struct {
        struct fcap_source_kafka_property property;
        const char *reason;
    } cases[] = {
        {{"enable.auto.commit", "true"}, "offsets live in the state"},
        {{"enable.auto.offset.store", "true"}, "offsets live in the state"},
        {{"auto.offset.reset", "latest"}, "silently"},
        {{"partition.assignment.strategy", "range"}, "cooperative-sticky"},
        {{"enable.partition.eof", "false"}, "gate"},
        {{"group.id", "x"}, "kafka.group"},
        {{"group.instance.id", "x"}, "kafka.instance_id"},
        {{"bootstrap.servers", "x:1"}, "kafka.brokers"},
        {{"isolation.level", "read_uncommitted"}, "read_committed"},
        {{"queued.max.messages.kbytes", "1"}, "memory"},
        {{"session.timeout.ms", "1"}, "kafka.session_timeout"},
        {{"topic.metadata.refresh.interval.ms", "3600000"}, "must be seen soon"},
        {{"max.poll.interval.ms", "1"}, "redo after a crash"},
        {{"no.such.property", "1"}, "No such configuration property"},
        {{"fetch.min.bytes", "lots"}, "fetch.min.bytes"},
        {{"socket.timeout.ms", "-5"}, "outside allowed range"},
        {{"security.protocol", "carrier-pigeon"}, "carrier-pigeon"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[128];
        struct fcap_source_kafka_settings settings = good();
        settings.properties = &cases[i].property;
        settings.property_count = 1;
        (void)snprintf(name, sizeof name, "kafka.librdkafka.%s", cases[i].property.name);
        assert_refused(&settings, name, cases[i].reason);
    }
}

static void test_accepted(void **state)
{
    (void)state;
    static const struct fcap_source_kafka_property properties[] = {{"client.id", "mine"},
                                                                   {"fetch.min.bytes", "100"},
                                                                   {"fetch.wait.max.ms", "250"},
                                                                   {"statistics.interval.ms", "0"}};
    struct fcap_error error = {.text = ""};
    struct fcap_source_kafka_settings settings = good();
    settings.properties = properties;
    settings.property_count = sizeof properties / sizeof properties[0];
    settings.instance_id = "pod-0";
    if (fcap_source_kafka_check(&settings, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    /* Ours first, the user's on top of what is only a default. */
    struct kafka_config config;
    rd_kafka_conf_t *confs[2];
    assert_int_equal(kafka_config_make(&settings, &config, &confs[0], &confs[1], &error), FCAP_OK);
    static const struct {
        int conf;
        const char *name, *value;
    } values[] = {
        {0, "client.id", "mine"},
        {0, "fetch.min.bytes", "100"},
        {0, "fetch.wait.max.ms", "250"},
        {1, "fetch.wait.max.ms", "10"},
        {0, "group.id", "fcapd"},
        {1, "group.id", "fcapd-progress"},
        {0, "group.instance.id", "pod-0"},
        {0, "enable.auto.commit", "false"},
        {0, "auto.offset.reset", "error"},
        {0, "isolation.level", "read_committed"},
        {1, "isolation.level", "read_committed"},
        {0, "session.timeout.ms", "45000"},
        {0, "heartbeat.interval.ms", "3000"},
        {0, "partition.assignment.strategy", "cooperative-sticky"},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char value[256] = "";
        size_t size = sizeof value;
        assert_int_equal(rd_kafka_conf_get(confs[values[i].conf], values[i].name, value, &size),
                         RD_KAFKA_CONF_OK);
        assert_string_equal(value, values[i].value);
    }
    rd_kafka_conf_destroy(confs[0]);
    rd_kafka_conf_destroy(confs[1]);
    kafka_config_done(&config);
}

static void test_queue_bytes(void **state)
{
    (void)state;
    static const int64_t mib = 1024 * 1024;
    static const struct {
        int64_t budget;
        int32_t partitions;
        bool fits;
    } cases[] = {{0, 0, true},
                 {64 * mib, 8, true},
                 {64 * mib, 64, true},
                 {64 * mib, 200, true},
                 {16 * mib, 1, true},
                 {1, 64, false},
                 {(int64_t)64 << 40, 1, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_source_kafka_settings settings = good();
        settings.queues_bytes = cases[i].budget;
        settings.partitions_max = cases[i].partitions;
        int64_t fetch_bytes = 0;
        int64_t kbytes = fcap_source_kafka_queue_kbytes(&settings, &fetch_bytes);
        int64_t partitions = cases[i].partitions > 0 ? cases[i].partitions : 8;
        int64_t budget = cases[i].budget > 0 ? cases[i].budget : 64 * mib;
        assert_true(kbytes >= 256 && fetch_bytes >= 64 * 1024);
        assert_int_equal(partitions * (kbytes * 1024 + fetch_bytes) <= budget, cases[i].fits);
        struct fcap_error error = {.text = ""};
        if (fcap_source_kafka_check(&settings, &error) != FCAP_OK) {
            fail_msg("%s", error.text);
        }
    }
}

/* Session 1000 ms, heartbeat 100 ms; polls at these times, then the question. */
static void test_gate(void **state)
{
    (void)state;
    static const struct {
        int64_t polls[6]; /* ends at the first -1 */
        int64_t now_ms;
        bool is_open;
    } cases[] = {
        {{-1}, 0, false},                         /* never polled */
        {{0, -1}, 0, true},                       /* the first poll is no gap */
        {{0, -1}, 999, true},                     /* the last moment of the session */
        {{0, -1}, 1000, false},                   /* too old */
        {{0, 999, -1}, 1500, true},               /* just in time */
        {{0, 1000, -1}, 1000, false},             /* a poll after a gap proves nothing */
        {{0, 1000, -1}, 1200, false},             /* nor does time without polls */
        {{0, 1000, 1099, -1}, 1150, false},       /* not a heartbeat yet */
        {{0, 1000, 1099, 1100, -1}, 1100, true},  /* served for one heartbeat interval */
        {{0, 1000, 1100, -1}, 2099, true},        /* and open as before */
        {{0, 1000, 2000, 2099, -1}, 2099, false}, /* a second gap starts it again */
        {{0, 1000, 2000, 2099, 2100, -1}, 2100, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kafka_gate gate;
        kafka_gate_init(&gate, 1000, 100);
        for (size_t k = 0; cases[i].polls[k] >= 0; k++) {
            kafka_gate_polled(&gate, cases[i].polls[k]);
        }
        if (kafka_gate_open(&gate, cases[i].now_ms) != cases[i].is_open) {
            fail_msg("case %zu", i);
        }
    }
}

/* --- what is dropped ---------------------------------------------------------------------- */

static unsigned ends;

static void count_end(void *context, int32_t partition, int64_t offset)
{
    (void)context;
    (void)partition;
    (void)offset;
    ends++;
}

static bool no_record(void *context, const struct fcap_record *record)
{
    (void)context;
    (void)record;
    fail_msg("a record was delivered");
    return false;
}

/* The library delivers a message twice at a rebalance, now and then; and an end that it saw before
 * the newest record is none. */
static void test_dropped(void **state)
{
    (void)state;
    struct fcap_source_handler handler = {.record = no_record, .reached_end = count_end};
    struct kafka_partition partition = {.id = 0, .next = 100, .started = true};
    struct fcap_source_kafka source = {.handler = &handler, .records_left = 10};
    rd_kafka_message_t message = {.offset = 99};
    kafka_read_message(&source, &partition, &message);
    assert_int_equal(source.dropped, 1);
    assert_int_equal(source.records, 0);
    assert_int_equal(partition.next, 100);
    message = (rd_kafka_message_t){.err = RD_KAFKA_RESP_ERR__PARTITION_EOF, .offset = 99};
    kafka_read_message(&source, &partition, &message);
    assert_int_equal(ends, 0);
    message.offset = 105; /* Markers or aborted records came last. */
    kafka_read_message(&source, &partition, &message);
    assert_int_equal(ends, 1);
    assert_int_equal(partition.next, 105);
    partition.started = false; /* Nothing before started(), and it is not lost: read again later. */
    message = (rd_kafka_message_t){.offset = 105};
    kafka_read_message(&source, &partition, &message);
    assert_int_equal(source.dropped, 1);
    assert_int_equal(partition.next, 105);
}

/* Looks each third of a session, at the same hole unless told otherwise; gives when the members
 * were shaken, in sessions. */
static void test_orphans(void **state)
{
    (void)state;
    const struct kafka_config session = {.session_timeout_ms = 45000};
    const int64_t third_ms = kafka_orphans_look_ms(&session);
    struct kafka_orphans orphans = {0};
    int64_t chosen_ms[16];
    size_t count = 0;
    int64_t now_ms = 1000;
    uint64_t mark = 7;
    for (int i = 0; i < 1000 && count < 10; i++, now_ms += third_ms) {
        if (kafka_orphans_note(&orphans, &session, KAFKA_GROUP_HOLE, mark, now_ms)) {
            chosen_ms[count++] = now_ms;
            /* The group moves, and comes back in another shape with the hole. */
            now_ms += third_ms;
            assert_false(kafka_orphans_note(&orphans, &session, KAFKA_GROUP_UNKNOWN, 0, now_ms));
            mark++;
        }
    }
    static const int64_t waits_s[] = {90, 180, 360, 720, 1440, 1800, 1800, 1800, 1800};
    assert_int_equal(count, 10);
    assert_int_equal(chosen_ms[0], 1000 + 3 * third_ms); /* A session. */
    for (size_t i = 0; i < sizeof waits_s / sizeof waits_s[0]; i++) {
        int64_t wait_ms = chosen_ms[i + 1] - chosen_ms[i];
        if (wait_ms < waits_s[i] * 1000 || wait_ms >= waits_s[i] * 1000 + third_ms) {
            fail_msg("wait %zu: %lld ms", i, (long long)wait_ms);
        }
    }
    /* Closed: the next hole is again one of a session. */
    assert_false(kafka_orphans_note(&orphans, &session, KAFKA_GROUP_WHOLE, mark, now_ms));
    for (int i = 0; i < 5; i++) {
        now_ms += third_ms;
        /* The first look finds another group than before. */
        assert_int_equal(kafka_orphans_note(&orphans, &session, KAFKA_GROUP_HOLE, 99, now_ms),
                         i == 3);
    }
    /* A group that moves between looks is never shaken. */
    orphans = (struct kafka_orphans){0};
    for (int i = 0; i < 20; i++) {
        now_ms += third_ms;
        assert_false(
            kafka_orphans_note(&orphans, &session, KAFKA_GROUP_HOLE, mark + (uint64_t)i, now_ms));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topics),      cmocka_unit_test(test_groups),
        cmocka_unit_test(test_properties),  cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_queue_bytes), cmocka_unit_test(test_gate),
        cmocka_unit_test(test_dropped),     cmocka_unit_test(test_orphans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
