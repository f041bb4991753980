/* Dead letters on a real broker, and on the mock cluster where a broker must say no. */
#include "fcap/dead_letters_kafka.h"
#include "lab/kafka_broker.h"
#include "lab/kafka_client.h"
#include "lab/mock_kafka.h"
#include "lab/lab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define DEADLINE_MS          30000
#define API_INIT_PRODUCER_ID 22

static struct fixture {
    const char *brokers;
    char topic[200];
    struct fcap_dead_letters_kafka_settings settings;
    struct fcap_dead_letters_kafka *letters;
    struct fcap_dead_letters *port;
} f;

static void set_up(const char *brokers, const char *const *config, bool create)
{
    f.brokers = brokers;
    (void)snprintf(f.topic, sizeof f.topic, "%s", kafka_unique("letters"));
    f.settings = (struct fcap_dead_letters_kafka_settings){
        .brokers = f.brokers, .topic = f.topic, .source_topic = "impressions", .retry_ms = 100};
    if (create) {
        kafka_create_topic(f.brokers, f.topic, 1, config);
    }
}

static void open_letters(void)
{
    struct fcap_error error;
    if (fcap_dead_letters_kafka_open(&f.settings, &f.letters, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    f.port = fcap_dead_letters_kafka_port(f.letters);
}

static struct fcap_dead_letters_kafka_snapshot snapshot(void)
{
    struct fcap_dead_letters_kafka_snapshot found;
    fcap_dead_letters_kafka_snapshot(f.letters, &found);
    return found;
}

static enum fcap_status write_text(const char *value, int64_t offset, uint64_t *ret_ticket)
{
    struct fcap_record record = {.partition = 3,
                                 .offset = offset,
                                 .timestamp_ms = 1700000000123,
                                 .timestamp_type = FCAP_TIMESTAMP_CREATE,
                                 .key = fcap_bytes_of("key"),
                                 .value = fcap_bytes_of(value)};
    return f.port->ops->write(f.port, &record, FCAP_REJECT_JSON, ret_ticket);
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static bool wait_done(uint64_t ticket, int ms)
{
    int64_t until_ms = lab_monotonic_ms() + ms;
    while (f.port->ops->done(f.port) < ticket && lab_monotonic_ms() < until_ms) {
        nap();
    }
    return f.port->ops->done(f.port) >= ticket;
}

/* --- what arrives ------------------------------------------------------------------------- */

struct arrived {
    bool key_null, value_null;
    size_t key_size, value_size;
    char key[64], value[64];
    char reason[32], topic[64], partition[16], offset[32], timestamp[32];
    size_t header_count;
};

static void take_header(const rd_kafka_headers_t *headers, const char *name, char *text,
                        size_t size)
{
    const void *value = NULL;
    size_t length = 0;
    if (rd_kafka_header_get_last(headers, name, &value, &length) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        (void)snprintf(text, size, "%.*s", (int)length, (const char *)value);
    }
}

static void take(const rd_kafka_message_t *message, struct arrived *to)
{
    rd_kafka_headers_t *headers = NULL;
    *to = (struct arrived){.key_null = message->key == NULL,
                           .value_null = message->payload == NULL,
                           .key_size = message->key_len,
                           .value_size = message->len};
    (void)snprintf(to->key, sizeof to->key, "%.*s", (int)message->key_len,
                   message->key != NULL ? (const char *)message->key : "");
    (void)snprintf(to->value, sizeof to->value, "%.*s", (int)message->len,
                   message->payload != NULL ? (const char *)message->payload : "");
    if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        to->header_count = rd_kafka_header_cnt(headers);
        take_header(headers, "fcap.reason", to->reason, sizeof to->reason);
        take_header(headers, "fcap.topic", to->topic, sizeof to->topic);
        take_header(headers, "fcap.partition", to->partition, sizeof to->partition);
        take_header(headers, "fcap.offset", to->offset, sizeof to->offset);
        take_header(headers, "fcap.timestamp", to->timestamp, sizeof to->timestamp);
    }
}

/* Reads partition 0 from its start to its end; returns how many letters there are. */
static size_t read_letters(struct arrived *to, size_t capacity)
{
    char text[512];
    rd_kafka_conf_t *conf = kafka_client_conf(f.brokers);
    assert_int_equal(rd_kafka_conf_set(conf, "group.id", "reader", text, sizeof text), 0);
    assert_int_equal(rd_kafka_conf_set(conf, "enable.partition.eof", "true", text, sizeof text), 0);
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    assert_non_null(client);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, f.topic, 0)->offset = 0;
    assert_int_equal(rd_kafka_assign(client, list), 0);
    rd_kafka_topic_partition_list_destroy(list);
    size_t count = 0;
    int64_t until_ms = lab_monotonic_ms() + DEADLINE_MS;
    for (bool ended = false; !ended;) {
        assert_true(lab_monotonic_ms() < until_ms);
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, 100);
        if (message == NULL) {
            continue;
        }
        ended = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            assert_true(count < capacity);
            take(message, &to[count++]);
        }
        rd_kafka_message_destroy(message);
    }
    (void)rd_kafka_consumer_close(client);
    rd_kafka_destroy(client);
    return count;
}

static void test_bytes_and_headers(void **state)
{
    (void)state;
    static const struct {
        struct fcap_record record;
        enum fcap_reject reason;
        const char *label, *partition, *offset, *timestamp;
    } cases[] = {
        {{.partition = 7,
          .offset = 12345678901,
          .timestamp_ms = 1700000000123,
          .key = {(const uint8_t *)"k\0y", 3},
          .value = {(const uint8_t *)"{bad", 4}},
         FCAP_REJECT_JSON,
         "json",
         "7",
         "12345678901",
         "1700000000123"},
        {{.partition = 0, .offset = 0, .timestamp_ms = -1, .value = {(const uint8_t *)"", 0}},
         FCAP_REJECT_EMPTY,
         "empty",
         "0",
         "0",
         "-1"},
        {{.partition = 1, .offset = 2, .timestamp_ms = 3, .key = {(const uint8_t *)"", 0}},
         FCAP_REJECT_FUTURE,
         "future",
         "1",
         "2",
         "3"},
    };
    struct arrived arrived[8];
    uint64_t ticket = 0;
    set_up(kafka_test_brokers(), NULL, true);
    open_letters();
    assert_int_equal(f.port->ops->done(f.port), 0);
    for (size_t i = 0; i < 3; i++) {
        uint64_t before = ticket;
        assert_int_equal(f.port->ops->write(f.port, &cases[i].record, cases[i].reason, &ticket),
                         FCAP_OK);
        assert_true(ticket > before);
    }
    assert_true(wait_done(ticket, DEADLINE_MS));
    assert_int_equal(snapshot().written, 3);
    assert_int_equal(snapshot().pending, 0);
    assert_true(snapshot().idempotent);
    assert_int_equal(read_letters(arrived, 8), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct fcap_record *record = &cases[i].record;
        assert_int_equal(arrived[i].key_null, record->key.data == NULL);
        assert_int_equal(arrived[i].value_null, record->value.data == NULL);
        assert_int_equal(arrived[i].key_size, record->key.size);
        assert_int_equal(arrived[i].value_size, record->value.size);
        assert_string_equal(arrived[i].reason, cases[i].label);
        assert_string_equal(arrived[i].topic, "impressions");
        assert_string_equal(arrived[i].partition, cases[i].partition);
        assert_string_equal(arrived[i].offset, cases[i].offset);
        assert_string_equal(arrived[i].timestamp, cases[i].timestamp);
        assert_int_equal(arrived[i].header_count, 5);
    }
    assert_string_equal(arrived[0].value, "{bad");
    fcap_dead_letters_kafka_close(f.letters);
}

/* --- stall -------------------------------------------------------------------------------- */

static void test_stall_until_it_works(void **state)
{
    (void)state;
    struct arrived arrived[8];
    uint64_t ticket = 0;
    set_up(kafka_test_brokers(), NULL, false); /* No such topic. */
    f.settings.letters_max = 5;
    open_letters();
    for (int i = 0; i < 5; i++) {
        assert_int_equal(write_text("x", i, &ticket), FCAP_OK);
    }
    uint64_t untouched = 99;
    assert_int_equal(write_text("x", 5, &untouched), FCAP_BUSY);
    assert_int_equal(untouched, 99);
    int64_t until_ms = lab_monotonic_ms() + DEADLINE_MS;
    while (snapshot().retried < 5 && lab_monotonic_ms() < until_ms) {
        assert_int_equal(f.port->ops->done(f.port), 0);
        nap();
    }
    assert_true(snapshot().stuck_since_ms > 0);
    assert_non_null(strstr(snapshot().error, f.topic));
    assert_int_equal(snapshot().busy, 1);
    assert_int_equal(snapshot().pending, 5);
    kafka_create_topic(f.brokers, f.topic, 1, NULL);
    assert_true(wait_done(ticket, DEADLINE_MS));
    assert_int_equal(snapshot().stuck_since_ms, 0);
    assert_int_equal(snapshot().dropped, 0);
    assert_int_equal(write_text("x", 5, &ticket), FCAP_OK);
    assert_true(wait_done(ticket, DEADLINE_MS));
    assert_int_equal(read_letters(arrived, 8), 6);
    fcap_dead_letters_kafka_close(f.letters);
}

/* One letter that the broker refuses for its size: later ones are written, but the ticket says
 * that not everything before is. */
static void test_one_refused(void **state)
{
    (void)state;
    static const char *const config[] = {"max.message.bytes", "2000", NULL};
    static char big[5000];
    uint64_t refused = 0;
    uint64_t ticket = 0;
    memset(big, 'x', sizeof big - 1);
    set_up(kafka_test_brokers(), config, true);
    open_letters();
    assert_int_equal(write_text("small", 0, &ticket), FCAP_OK);
    assert_int_equal(write_text(big, 1, &refused), FCAP_OK);
    assert_int_equal(write_text("small", 2, &ticket), FCAP_OK);
    int64_t until_ms = lab_monotonic_ms() + DEADLINE_MS;
    while ((snapshot().written < 2 || snapshot().retried < 2) && lab_monotonic_ms() < until_ms) {
        assert_true(f.port->ops->done(f.port) < refused);
        nap();
    }
    assert_int_equal(snapshot().written, 2);
    assert_true(snapshot().retried >= 2);
    assert_int_equal(f.port->ops->done(f.port), refused - 1);
    assert_non_null(strstr(snapshot().error, "too large"));
    f.settings.close_timeout_ms = 0;
    fcap_dead_letters_kafka_close(f.letters);
}

static void test_bytes_max(void **state)
{
    (void)state;
    uint64_t ticket = 0;
    set_up(kafka_test_brokers(), NULL, false);
    f.settings.bytes_max = 20; /* Key and value are 13 bytes. */
    open_letters();
    assert_int_equal(write_text("0123456789", 0, &ticket), FCAP_OK);
    assert_int_equal(write_text("0123456789", 1, &ticket), FCAP_BUSY);
    kafka_create_topic(f.brokers, f.topic, 1, NULL);
    assert_true(wait_done(ticket, DEADLINE_MS));
    /* One letter always fits. */
    assert_int_equal(write_text("012345678901234567890123456789", 2, &ticket), FCAP_OK);
    assert_true(wait_done(ticket, DEADLINE_MS));
    fcap_dead_letters_kafka_close(f.letters);
}

/* --- drop --------------------------------------------------------------------------------- */

static void test_drop(void **state)
{
    (void)state;
    uint64_t ticket = 0;
    set_up(kafka_test_brokers(), NULL, false);
    f.settings.policy = FCAP_DEAD_LETTERS_DROP;
    f.settings.letters_max = 3;
    f.settings.give_up_ms = 1000;
    open_letters();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write_text("x", i, &ticket), FCAP_OK);
    }
    assert_int_equal(f.port->ops->done(f.port), 0);
    uint64_t last = 0;
    assert_int_equal(write_text("x", 3, &last), FCAP_OK); /* Full: dropped at once. */
    assert_true(last > ticket);
    assert_int_equal(snapshot().dropped, 1);
    assert_int_equal(f.port->ops->done(f.port), 0); /* Those before it are not done. */
    assert_true(wait_done(last, DEADLINE_MS));
    assert_int_equal(snapshot().dropped, 4);
    assert_int_equal(snapshot().written, 0);
    assert_int_equal(snapshot().busy, 0);
    fcap_dead_letters_kafka_close(f.letters);
}

/* --- the mock says no --------------------------------------------------------------------- */

static void test_not_idempotent(void **state)
{
    (void)state;
    uint64_t ticket = 0;
    struct mock_kafka *mock = mock_kafka_start();
    set_up(mock_kafka_address(mock), NULL, false);
    mock_kafka_create_topic(mock, f.topic, 1);
    mock_kafka_fail(mock, API_INIT_PRODUCER_ID, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, 20);
    open_letters();
    for (int i = 0; i < 50; i++) {
        assert_int_equal(write_text("x", i, &ticket), FCAP_OK);
    }
    assert_true(wait_done(ticket, DEADLINE_MS));
    assert_false(snapshot().idempotent);
    assert_int_equal(snapshot().written, 50);
    assert_int_equal(snapshot().dropped, 0);
    fcap_dead_letters_kafka_close(f.letters);
    mock_kafka_stop(mock);
}

static void test_broker_away(void **state)
{
    (void)state;
    uint64_t ticket = 0;
    struct mock_kafka *mock = mock_kafka_start();
    set_up(mock_kafka_address(mock), NULL, false);
    mock_kafka_create_topic(mock, f.topic, 1);
    open_letters();
    assert_int_equal(write_text("x", 0, &ticket), FCAP_OK);
    assert_true(wait_done(ticket, DEADLINE_MS));
    mock_kafka_set_up(mock, 0);
    for (int i = 1; i < 1000; i++) {
        assert_int_equal(write_text("x", i, &ticket), FCAP_OK);
    }
    assert_false(wait_done(ticket, 500));
    int64_t before_ms = lab_monotonic_ms();
    (void)f.port->ops->done(f.port);
    assert_true(lab_monotonic_ms() - before_ms < 500); /* The worker never waits for a broker. */
    mock_kafka_set_up(mock, 1);
    assert_true(wait_done(ticket, DEADLINE_MS));
    assert_int_equal(snapshot().written, 1000);
    fcap_dead_letters_kafka_close(f.letters);
    mock_kafka_stop(mock);
}

/* --- settings ----------------------------------------------------------------------------- */

static void test_settings(void **state)
{
    (void)state;
    static const struct fcap_source_kafka_property acks = {"acks", "1"};
    static const struct fcap_source_kafka_property unknown = {"no.such.property", "1"};
    static const struct {
        const char *topic;
        const struct fcap_source_kafka_property *property;
        const char *text;
    } cases[] = {
        {"impressions", NULL, "kafka.dead_letter_topic"},
        {"a,b", NULL, "kafka.dead_letter_topic"},
        {"letters", &acks, "kafka.librdkafka.acks"},
        {"letters", &unknown, "kafka.librdkafka.no.such.property"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fcap_error error;
        struct fcap_dead_letters_kafka *letters = NULL;
        struct fcap_dead_letters_kafka_settings settings = {.brokers = "127.0.0.1:1",
                                                            .topic = cases[i].topic,
                                                            .source_topic = "impressions",
                                                            .properties = cases[i].property,
                                                            .property_count =
                                                                cases[i].property != NULL ? 1 : 0};
        assert_int_equal(fcap_dead_letters_kafka_open(&settings, &letters, &error), FCAP_CONFIG);
        assert_null(letters);
        assert_non_null(strstr(error.text, cases[i].text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_not_idempotent),
        cmocka_unit_test(test_broker_away),
        cmocka_unit_test(test_bytes_and_headers),
        cmocka_unit_test(test_stall_until_it_works),
        cmocka_unit_test(test_one_refused),
        cmocka_unit_test(test_bytes_max),
        cmocka_unit_test(test_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
