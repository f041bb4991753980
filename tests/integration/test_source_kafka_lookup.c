/* What a look-up makes of a partition that is assigned anew because nothing of it arrives, on a
 * real broker: its log is not read as long as it holds the position, and is compared when it has
 * got shorter meanwhile, for records that were counted must not be taken for those of a new log. */
#include "../../src/adapters/source_kafka_internal.h"
#include "lab/kafka_broker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RECORDS 15
#define TIME_MS INT64_C(1764460800000)
#define TRIES   100

static struct kafka_config config;
static struct kafka_shared shared;
static rd_kafka_t *client;
static char topic[64];

static int setup(void **unused)
{
    (void)unused;
    const char *brokers = kafka_test_brokers();
    struct fcap_source_kafka_settings settings = {
        .brokers = brokers, .topic = topic, .group = "lookup"};
    struct fcap_error error;
    rd_kafka_conf_t *member = NULL;
    rd_kafka_conf_t *helper = NULL;
    char text[512];
    (void)snprintf(topic, sizeof topic, "%s", kafka_unique("lookup"));
    kafka_create_topic(brokers, topic, 1, NULL);
    struct kafka_producer *producer = kafka_producer_open(brokers, topic, NULL, NULL);
    for (int i = 0; i < RECORDS; i++) {
        kafka_producer_send(producer, &(struct kafka_produce){.key = "user",
                                                              .key_size = 4,
                                                              .value = "{}",
                                                              .value_size = 2,
                                                              .timestamp_ms = TIME_MS + i});
    }
    (void)kafka_producer_flush(producer);
    kafka_producer_close(producer);
    kafka_shared_init(&shared);
    assert_int_equal(kafka_config_make(&settings, &config, &member, &helper, &error), FCAP_OK);
    rd_kafka_conf_destroy(member);
    client = rd_kafka_new(RD_KAFKA_CONSUMER, helper, text, sizeof text);
    assert_non_null(client);
    (void)rd_kafka_poll_set_consumer(client);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    rd_kafka_destroy(client);
    kafka_config_done(&config);
    kafka_shared_done(&shared);
    kafka_delete_topic(kafka_test_brokers(), topic);
    return 0;
}

/* The mark of the log that setup() made, or of another one. */
static struct fcap_log_mark mark_at(int64_t offset, bool is_same)
{
    return (struct fcap_log_mark){
        .offset = offset,
        .timestamp_ms = TIME_MS + offset - 1 + (is_same ? 0 : 500),
        .key_hash = fcap_hash64((struct fcap_bytes){(const unsigned char *)"user", 4}, 0)};
}

/* Asks until it is answered: an end that lies too low must be seen several times. */
static struct kafka_lookup ask(int64_t offset, bool is_same, bool is_trusted)
{
    struct kafka_lookup lookup = {
        .start = {.kind = FCAP_START_OFFSET,
                  .offset = offset,
                  .mark_count = 2,
                  .marks = {mark_at(offset, is_same), mark_at(10, is_same)}},
        .is_trusted = is_trusted,
    };
    for (int i = 0; i < TRIES && !lookup.answered; i++) {
        kafka_lookup_run(client, &config, &shared, &lookup, 1);
    }
    assert_true(lookup.answered);
    assert_int_equal(lookup.end, RECORDS);
    return lookup;
}

static void test_a_log_that_holds_the_position(void **unused)
{
    (void)unused;
    struct kafka_lookup trusted = ask(12, false, true);
    assert_false(trusted.is_gap); /* Nothing was read. */
    assert_int_equal(trusted.offset, 12);
    struct kafka_lookup compared = ask(12, false, false);
    assert_true(compared.is_gap);
    assert_int_equal(compared.gap, FCAP_GAP_RECREATED);
}

static void test_a_log_that_has_lost_its_end(void **unused)
{
    (void)unused;
    struct kafka_lookup trusted = ask(25, true, true);
    assert_true(trusted.is_gap);
    assert_int_equal(trusted.gap, FCAP_GAP_TRUNCATED);
    assert_int_equal(trusted.same, 10);
    assert_int_equal(trusted.gap_next, RECORDS);
}

static void test_another_log_that_is_shorter(void **unused)
{
    (void)unused;
    struct kafka_lookup trusted = ask(25, false, true);
    assert_true(trusted.is_gap);
    assert_int_equal(trusted.gap, FCAP_GAP_RECREATED);
    assert_int_equal(trusted.gap_next, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_log_that_holds_the_position),
        cmocka_unit_test(test_a_log_that_has_lost_its_end),
        cmocka_unit_test(test_another_log_that_is_shorter),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
