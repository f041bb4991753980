/* What was lost, and until when windows are incomplete: the same in fc:meta, in the body of /readyz
 * and on the metrics page, from views made by hand. */
#include "board.h"
#include "fcap/user.h"
#include "health.h"
#include "page.h"
#include "readiness.h"
#include "reporter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define DAY_MS INT64_C(86400000)
#define SINCE  INT64_C(1700000400000)

#define LOST                                                                                       \
    "\"lost\":[{\"kind\":\"below_start\",\"first\":25,\"last\":99,\"next\":100,"                   \
    "\"from\":1700000000000,\"to\":1700000003000,\"noticed\":1700000060000,"                       \
    "\"since\":1700000400000},{\"kind\":\"recreated\",\"first\":120,\"last\":-1,\"next\":0,"       \
    "\"from\":-1,\"to\":-1,\"noticed\":1700000060001,\"since\":1700000360001}]"
#define WAITING "\"ready_at\":{\"7d\":1700605200000}"

static struct fcap_config config;
static struct fcap_worker_view views[2];
static struct fcap_buffer text;

static struct fcap_task_report *report_of(size_t worker)
{
    return &views[worker].tasks[0].report;
}

/* Two workers, one partition each; the second's has lost something, and 7d reaches back to it. */
static int setup(void **unused)
{
    (void)unused;
    config = (struct fcap_config){.profile = "days", .workers = 2, .windows_count = 2};
    config.windows[0] = (struct fcap_config_window){"1d", DAY_MS};
    config.windows[1] = (struct fcap_config_window){"7d", 7 * DAY_MS};
    for (int32_t i = 0; i < 2; i++) {
        views[i] = (struct fcap_worker_view){.phase = FCAP_WORKER_RUNNING, .published_ms = 1};
        views[i].sink.state.ready = true;
        views[i].source.topic_partitions = 2;
        fcap_worker_view_reserve(&views[i], 1);
        views[i].task_count = 1;
        views[i].tasks[0] =
            (struct fcap_board_task){.report = {.partition = i,
                                                .gate_open = true,
                                                .epoch = 7,
                                                .claimed_next = 100,
                                                .claimed_as_of_ms = 5000,
                                                .complete_since_ms = FCAP_TIME_NONE,
                                                .ready_mask = 3,
                                                .ready_at_ms = {FCAP_TIME_NONE, FCAP_TIME_NONE},
                                                .projected_mask = 3}};
    }
    struct fcap_task_report *report = report_of(1);
    report->complete_since_ms = SINCE;
    report->ready_mask = 1;
    report->ready_at_ms[0] = SINCE + DAY_MS;
    report->ready_at_ms[1] = SINCE + 7 * DAY_MS;
    report->lost.count = 2;
    report->lost.spans[0] = (struct fcap_lost_span){
        FCAP_GAP_BELOW_START, 25,           99, 100, 1700000000000, 1700000003000,
        1700000060000,        1700000400000};
    report->lost.spans[1] = (struct fcap_lost_span){FCAP_GAP_RECREATED, 120,          -1, 0, -1, -1,
                                                    1700000060001,      1700000360001};
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    fcap_worker_view_done(&views[0]);
    fcap_worker_view_done(&views[1]);
    fcap_buffer_done(&text);
    return 0;
}

static const char *end_text(void)
{
    fcap_buffer_put_u8(&text, 0);
    return (const char *)text.data;
}

static const char *readiness(void)
{
    const struct fcap_health_facts facts = {.is_state_open = true, .last_store_error = ""};
    fcap_buffer_clear(&text);
    assert_true(fcap_health_ready(&config, views, 2, &facts, &text)); /* Gaps are no reason. */
    return end_text();
}

static void expect(const char *in, const char *wanted)
{
    if (strstr(in, wanted) == NULL) {
        fail_msg("no %s in:\n%s", wanted, in);
    }
}

static void test_fc_meta(void **state)
{
    (void)state;
    fcap_report_build(&config, views, 2, 9000, &text);
    assert_string_equal(end_text(),
                        "{\"v\":1,\"at\":9000,\"partitions\":2,\"tasks\":{"
                        "\"0\":{\"epoch\":7,\"as_of\":5000,\"next\":100,\"complete_since\":0,"
                        "\"ready\":[\"1d\",\"7d\"]},"
                        "\"1\":{\"epoch\":7,\"as_of\":5000,\"next\":100,\"complete_since\":"
                        "1700000400000,\"ready\":[\"1d\"]," WAITING "," LOST "}}}");
}

static void test_the_body_of_readyz(void **state)
{
    (void)state;
    const char *body = readiness();
    expect(body, "\n \"windows\":{\"1d\":{\"complete\":true},"
                 "\"7d\":{\"complete\":false,\"ready_at\":1700605200000}},\n");
    expect(body, "\"windows\":{\"1d\":\"complete\",\"7d\":\"complete\"}}");
    expect(body,
           "\"windows\":{\"1d\":\"complete\",\"7d\":\"in Redis, but history is missing\"}," WAITING
           "," LOST "}");
}

/* A window is what its worst partition is. */
static void test_the_last_partition_counts(void **state)
{
    (void)state;
    assert_true(fcap_readiness_of(views, 2, 0).is_complete);
    assert_false(fcap_readiness_of(views, 2, 1).is_complete);
    assert_true(fcap_readiness_of(views, 2, 1).ready_at_ms == SINCE + 7 * DAY_MS);
    report_of(0)->ready_mask = 1;
    report_of(0)->ready_at_ms[1] = SINCE + 8 * DAY_MS;
    assert_true(fcap_readiness_of(views, 2, 1).ready_at_ms == SINCE + 8 * DAY_MS);
    assert_true(fcap_readiness_of(views, 1, 1).ready_at_ms == SINCE + 8 * DAY_MS);
}

static void test_nothing_is_missing(void **state)
{
    (void)state;
    assert_true(fcap_readiness_of(views, 1, 1).is_complete);
    assert_true(fcap_readiness_of(views, 1, 1).ready_at_ms == 0);
    assert_false(fcap_readiness_of(views, 0, 1).is_complete); /* Nobody knows. */
    report_of(1)->ready_mask = 3;
    report_of(1)->lost.count = 0;
    report_of(0)->projected_mask = 1;
    const char *body = readiness();
    expect(body, "\n \"windows\":{\"1d\":{\"complete\":true},\"7d\":{\"complete\":false}},\n");
    assert_null(strstr(body, "ready_at"));
    assert_null(strstr(body, "\"lost\""));
}

static void test_a_retention_that_is_too_short(void **state)
{
    const struct fcap_store_metrics store = {0};
    const struct fcap_checkpoint_metrics checkpoint = {0};
    const struct fcap_adopter_metrics adoption = {0};
    struct fcap_health_facts facts = {.is_state_open = true, .last_store_error = ""};
    const int64_t needed_ms = 7 * DAY_MS + 300000;
    const int64_t cases_ms[] = {0, -1, needed_ms, needed_ms - 1};
    (void)state;
    config.limits.max_future_skew_ms = 300000;
    for (size_t i = 0; i < sizeof cases_ms / sizeof cases_ms[0]; i++) {
        facts.retention_ms = cases_ms[i];
        fcap_buffer_clear(&text);
        assert_true(fcap_health_ready(&config, views, 2, &facts, &text)); /* No reason, either. */
        const char *body = end_text();
        assert_int_equal(strstr(body, "\"retention\"") != NULL, cases_ms[i] == needed_ms - 1);
    }
    expect(end_text(), ",\n \"retention\":{\"topic_ms\":605099999,\"needed_ms\":605100000},\n");
    fcap_buffer_clear(&text);
    fcap_page_build(&(struct fcap_page_settings){.config = &config,
                                                 .views = views,
                                                 .view_count = 2,
                                                 .store = &store,
                                                 .checkpoint = &checkpoint,
                                                 .adoption = &adoption,
                                                 .retention_ms = 3600000},
                    &text);
    const char *page = end_text();
    expect(page, "\nfcapd_kafka_retention_seconds 3600.000\n");
    expect(page, "\nfcapd_kafka_retention_needed_seconds 605100.000\n");
}

static void test_the_metrics_page(void **state)
{
    const struct fcap_store_metrics store = {0};
    const struct fcap_checkpoint_metrics checkpoint = {0};
    const struct fcap_adopter_metrics adoption = {0};
    (void)state;
    views[1].counters.gaps[FCAP_GAP_RECREATED] = 1;
    fcap_page_build(
        &(struct fcap_page_settings){
            .config = &config,
            .views = views,
            .view_count = 2,
            .store = &store,
            .checkpoint = &checkpoint,
            .adoption = &adoption,
        },
        &text);
    const char *page = end_text();
    expect(page, "\nfcapd_gaps_total{worker=\"1\",kind=\"recreated\"} 1\n");
    expect(page, "\nfcapd_gaps_total{worker=\"1\",kind=\"below_start\"} 0\n");
    expect(page, "\nfcapd_partition_complete_since_timestamp_seconds{partition=\"0\"} 0.000\n");
    expect(page,
           "\nfcapd_partition_complete_since_timestamp_seconds{partition=\"1\"} 1700000400.000\n");
    expect(page, "\nfcapd_partition_lost_spans{partition=\"1\"} 2\n");
    expect(page, "\nfcapd_window_complete{window=\"1d\"} 1\n");
    expect(page, "\nfcapd_window_complete{window=\"7d\"} 0\n");
    expect(page, "\nfcapd_window_ready_timestamp_seconds{window=\"1d\"} 1700086800.000\n");
    expect(page, "\nfcapd_window_ready_timestamp_seconds{window=\"7d\"} 1700605200.000\n");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_fc_meta),
        CASE(test_the_body_of_readyz),
        CASE(test_the_last_partition_counts),
        CASE(test_nothing_is_missing),
        CASE(test_a_retention_that_is_too_short),
        CASE(test_the_metrics_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
