/* What a look-up makes of a partition that is assigned anew because nothing of it arrives, on a
 * real broker: its log is not read as long as it holds the position, and is compared when it has
 * got shorter meanwhile, for records that were counted must not be taken for those of a new log.
 * And the polled ends when not all are answered, on a mock cluster. */
#include "../../src/adapters/source_kafka_internal.h"
#include "lab/kafka_broker.h"
#include "lab/lab.h"
#include "lab/mock_kafka.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RECORDS    15
#define TIME_MS    INT64_C(1764460800000)
#define ASK_MS     60000
#define PAUSE_MS   100
#define SETTLED_MS 5000 /* so long must an end stand still that is too low */

static struct kafka_config config;
static struct kafka_shared shared;
static rd_kafka_t *client;
static char topic[64];

/* A client as the helper has one, and its configuration. */
static rd_kafka_t *open_client(const char *brokers, const char *of, struct kafka_config *ret_config)
{
    struct fcap_source_kafka_settings settings = {
        .brokers = brokers, .topic = of, .group = "lookup"};
    struct fcap_error error;
    rd_kafka_conf_t *member = NULL;
    rd_kafka_conf_t *helper = NULL;
    char text[512];
    assert_int_equal(kafka_config_make(&settings, ret_config, &member, &helper, &error), FCAP_OK);
    rd_kafka_conf_destroy(member);
    rd_kafka_t *opened = rd_kafka_new(RD_KAFKA_CONSUMER, helper, text, sizeof text);
    assert_non_null(opened);
    (void)rd_kafka_poll_set_consumer(opened);
    return opened;
}

static void append(int from, int to)
{
    struct kafka_producer *producer = kafka_producer_open(kafka_test_brokers(), topic, NULL, NULL);
    for (int i = from; i < to; i++) {
        kafka_producer_send(producer, &(struct kafka_produce){.key = "user",
                                                              .key_size = 4,
                                                              .value = "{}",
                                                              .value_size = 2,
                                                              .timestamp_ms = TIME_MS + i});
    }
    (void)kafka_producer_flush(producer);
    kafka_producer_close(producer);
}

static int setup(void **unused)
{
    (void)unused;
    (void)snprintf(topic, sizeof topic, "%s", kafka_unique("lookup"));
    kafka_create_topic(kafka_test_brokers(), topic, 1, NULL);
    append(0, RECORDS);
    kafka_shared_init(&shared);
    client = open_client(kafka_test_brokers(), topic, &config);
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

static struct kafka_lookup question(int64_t offset, bool is_same, bool is_trusted)
{
    return (struct kafka_lookup){
        .start = {.kind = FCAP_START_OFFSET,
                  .offset = offset,
                  .mark_count = 2,
                  .marks = {mark_at(offset, is_same), mark_at(10, is_same)}},
        .is_trusted = is_trusted,
    };
}

/* Asks until it is answered: an end that lies too low must stand still for some time. */
static struct kafka_lookup ask(int64_t offset, bool is_same, bool is_trusted)
{
    struct kafka_lookup lookup = question(offset, is_same, is_trusted);
    int64_t until_ms = lab_monotonic_ms() + ASK_MS;
    while (!lookup.answered && lab_monotonic_ms() < until_ms) {
        kafka_lookup_run(client, &config, &shared, &lookup, 1);
        lab_pause_ms(lookup.answered ? 0 : PAUSE_MS);
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

/* Looks again and again for a part of the time: while the end stays too low it is not believed. */
static void look_in_vain(struct kafka_lookup *lookup)
{
    int64_t since_ms = lab_monotonic_ms();
    int64_t passed_ms = 0;
    while (!lookup->answered && passed_ms < SETTLED_MS * 3 / 5) {
        kafka_lookup_run(client, &config, &shared, lookup, 1);
        passed_ms = lab_monotonic_ms() - since_ms;
        assert_true(!lookup->answered || passed_ms >= SETTLED_MS);
        lab_pause_ms(PAUSE_MS);
    }
    lookup->answered = false;
}

/* The log of a leader of a moment ago: its end is too low, moves, and then it is not. */
static void test_an_end_that_is_too_low_for_a_moment(void **unused)
{
    (void)unused;
    struct kafka_lookup lookup = question(RECORDS + 3, true, false);
    look_in_vain(&lookup);
    append(RECORDS, RECORDS + 1); /* Not enough yet. */
    look_in_vain(&lookup);
    append(RECORDS + 1, RECORDS + 5);
    kafka_lookup_run(client, &config, &shared, &lookup, 1);
    assert_true(lookup.answered);
    assert_false(lookup.is_gap);
    assert_int_equal(lookup.offset, RECORDS + 3);
}

/* --- polled ends ---------------------------------------------------------------------------- */

#define ENDS            4
#define API_LISTOFFSETS 2

/* On a mock cluster of two brokers, each leads two partitions. */
static struct world {
    struct mock_kafka *mock;
    struct kafka_config config;
    rd_kafka_t *client;
    struct kafka_ends_poll poll;
    struct kafka_end ends[ENDS];
    int yields; /* how often it was asked whether something else is wanted */
    int yield_at;
} w;

static bool must_yield(void *context)
{
    struct world *world = context;
    return ++world->yields == world->yield_at;
}

static void forget_ends(void)
{
    for (int32_t i = 0; i < ENDS; i++) {
        w.ends[i] = (struct kafka_end){.partition = i, .end = -1};
    }
}

static int setup_ends(void **unused)
{
    (void)unused;
    w = (struct world){.mock = mock_kafka_start_brokers(2),
                       .poll = {.must_yield = must_yield, .context = &w}};
    mock_kafka_create_topic(w.mock, "ends", ENDS);
    for (int i = 0; i < ENDS; i++) {
        mock_kafka_set_leader(w.mock, "ends", i, 1 + i % 2);
    }
    struct kafka_producer *producer =
        kafka_producer_open(mock_kafka_address(w.mock), "ends", NULL, NULL);
    for (int i = 0; i < ENDS; i++) {
        for (int k = 0; k < 10 + i; k++) {
            kafka_producer_text(producer, i, "value");
        }
    }
    (void)kafka_producer_flush(producer);
    kafka_producer_close(producer);
    w.client = open_client(mock_kafka_address(w.mock), "ends", &w.config);
    forget_ends();
    kafka_lookup_ends(w.client, &w.config, &w.poll, w.ends, ENDS);
    for (int i = 0; i < ENDS; i++) {
        assert_int_equal(w.ends[i].end, 10 + i);
    }
    assert_int_equal(w.yields, 0); /* One call was enough. */
    forget_ends();
    return 0;
}

static int teardown_ends(void **unused)
{
    (void)unused;
    rd_kafka_destroy(w.client);
    kafka_config_done(&w.config);
    mock_kafka_stop(w.mock);
    return 0;
}

static void test_ends_with_a_broker_away(void **unused)
{
    (void)unused;
    int64_t until_ms = lab_monotonic_ms() + ASK_MS;
    mock_kafka_set_broker_up(w.mock, 2, 0);
    while ((w.ends[0].end < 0 || w.ends[2].end < 0) && lab_monotonic_ms() < until_ms) {
        kafka_lookup_ends(w.client, &w.config, &w.poll, w.ends, ENDS);
    }
    static const int64_t ends[ENDS] = {10, -1, 12, -1};
    for (int i = 0; i < ENDS; i++) {
        assert_int_equal(w.ends[i].end, ends[i]);
        assert_int_equal(w.ends[i].answered_ms > 0, ends[i] >= 0);
    }
}

/* Whatever the client makes of an error that it does not try again. */
static void test_ends_with_an_error(void **unused)
{
    (void)unused;
    mock_kafka_fail(w.mock, API_LISTOFFSETS, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 1);
    kafka_lookup_ends(w.client, &w.config, &w.poll, w.ends, ENDS);
    for (int i = 0; i < ENDS; i++) {
        assert_int_equal(w.ends[i].end, 10 + i);
    }
}

/* A look-up goes first, and the next poll goes on where this one ended. */
static void test_ends_make_way(void **unused)
{
    (void)unused;
    w.yield_at = 2;
    mock_kafka_fail(w.mock, API_LISTOFFSETS, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 1);
    kafka_lookup_ends(w.client, &w.config, &w.poll, w.ends, ENDS);
    assert_int_equal(w.ends[0].end, 10);
    assert_int_equal(w.ends[1].end, -1);
    forget_ends();
    w.yield_at = w.yields + 2;
    mock_kafka_fail(w.mock, API_LISTOFFSETS, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 1);
    kafka_lookup_ends(w.client, &w.config, &w.poll, w.ends, ENDS);
    assert_int_equal(w.ends[0].end, -1);
    assert_int_equal(w.ends[1].end, 11);
    assert_int_equal(w.ends[2].end, -1);
}

int main(void)
{
#define ENDS_CASE(name) cmocka_unit_test_setup_teardown(name, setup_ends, teardown_ends)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_log_that_holds_the_position),
        cmocka_unit_test(test_a_log_that_has_lost_its_end),
        cmocka_unit_test(test_another_log_that_is_shorter),
        cmocka_unit_test(test_an_end_that_is_too_low_for_a_moment), /* The log is longer then. */
        ENDS_CASE(test_ends_with_a_broker_away),
        ENDS_CASE(test_ends_with_an_error),
        ENDS_CASE(test_ends_make_way),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
