/* The metrics page: every family of the tables, the text format's rules, docs/METRICS.md. */
#include "fcap/metrics.h"
#include "page.h"

#include <ctype.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs some of these first. */
#include <cmocka.h>

static const struct fcap_metrics_process process = {
    .version = "1.2.3",
    .profile = "a\"b\\c\nd",
    .start_ms = 1764460800123,
    .ready = true,
    .log_lines_dropped = 7,
};

/* The page as text; the caller frees it. */
static char *page_of(const struct fcap_worker_metrics *const *workers, size_t count)
{
    struct fcap_buffer page = {0};
    fcap_metrics_page(&process, workers, count, &page);
    fcap_buffer_put_u8(&page, 0);
    return (char *)page.data;
}

static void assert_has(const char *page, const char *wanted)
{
    if (strstr(page, wanted) == NULL) {
        fail_msg("not on the page: %s", wanted);
    }
}

static void shows_every_value_once(void **state)
{
    (void)state;
    static struct fcap_worker_metrics metrics[2];
    struct fcap_counters counters = {0};
    struct fcap_gauges gauges = {0};
    uint64_t number = 1000;
    /* A number of its own for each place, so that a mix-up shows. */
#define X(name, text) counters.name = number++;
    FCAP_COUNTER_LIST(X)
#undef X
    for (int reason = 0; reason < FCAP_REJECT_COUNT; reason++) {
        counters.rejects[reason] = number++;
    }
#define X(name, unit, text) gauges.name = (int64_t)number++;
    FCAP_GAUGE_LIST(X)
#undef X
    fcap_worker_metrics_publish(&metrics[1], &counters, &gauges);
    const struct fcap_worker_metrics *workers[2] = {&metrics[0], &metrics[1]};
    char *page = page_of(workers, 2);
    char wanted[256];
    number = 1000;
#define X(name, text)                                                                              \
    (void)snprintf(wanted, sizeof wanted,                                                          \
                   "# TYPE fcapd_" #name "_total counter\nfcapd_" #name                            \
                   "_total{worker=\"0\"} 0\nfcapd_" #name "_total{worker=\"1\"} %llu\n",           \
                   (unsigned long long)number++);                                                  \
    assert_has(page, wanted);
    FCAP_COUNTER_LIST(X)
#undef X
    for (int reason = 0; reason < FCAP_REJECT_COUNT; reason++) {
        (void)snprintf(wanted, sizeof wanted,
                       "fcapd_records_rejected_total{worker=\"1\",reason=\"%s\"} %llu\n",
                       fcap_reject_label((enum fcap_reject)reason), (unsigned long long)number++);
        if (reason == FCAP_REJECT_NONE) {
            assert_null(strstr(page, wanted));
        } else {
            assert_has(page, wanted);
        }
    }
#define X(name, unit, text)                                                                        \
    (void)snprintf(wanted, sizeof wanted, "fcapd_" #name "{worker=\"1\"} %llu%s",                  \
                   (unsigned long long)(strcmp(#unit, "MS") == 0 ? number / 1000 : number),        \
                   strcmp(#unit, "MS") == 0 ? "." : "\n");                                         \
    number++;                                                                                      \
    assert_has(page, wanted);
    FCAP_GAUGE_LIST(X)
#undef X
    free(page);
}

static void tells_about_the_process(void **state)
{
    (void)state;
    char *page = page_of(NULL, 0);
    assert_has(page, "fcapd_build_info{version=\"1.2.3\",profile=\"a\\\"b\\\\c\\nd\"} 1\n");
    assert_has(page, "fcapd_start_time_seconds 1764460800.123\n");
    assert_has(page, "fcapd_ready 1\n");
    assert_has(page, "fcapd_log_lines_dropped_total 7\n");
    free(page);
}

static void fills_gauges(void **state)
{
    (void)state;
    struct fcap_gauges gauges = {0};
    const struct fcap_task_report reports[3] = {
        {.gate_open = true, .clock_lag_ms = 20, .next_offset = 5, .end_offset = 4, .ads = 2},
        {.projecting = true, .clock_lag_ms = 1500, .next_offset = 5, .end_offset = 15, .ads = 3},
        {.clock_held = true, .clock_lag_ms = -3, .next_offset = 1, .end_offset = 2},
    };
    const struct fcap_pipeline_sizes sizes = {.cache_bytes = 1,
                                              .cache_users = 2,
                                              .dirty_users = 3,
                                              .push_backlog = 4,
                                              .flights = 5,
                                              .commits_in_flight = 6,
                                              .open_events = 7,
                                              .ads_bytes = 8,
                                              .backpressure = true,
                                              .stall = "redis"};
    for (int i = 0; i < 3; i++) {
        fcap_gauges_add_task(&gauges, &reports[i]);
    }
    fcap_gauges_set_sizes(&gauges, &sizes);
    const struct fcap_gauges wanted = {.partitions = 3,
                                       .gates_open = 1,
                                       .projections = 1,
                                       .clocks_held = 1,
                                       .clock_lag_seconds = 1500,
                                       .records_to_gate = 11,
                                       .open_events = 7,
                                       .ads = 5,
                                       .ads_bytes = 8,
                                       .cache_bytes = 1,
                                       .cache_users = 2,
                                       .dirty_users = 3,
                                       .push_backlog = 4,
                                       .pushes_in_flight = 5,
                                       .commits_in_flight = 6,
                                       .backpressure = 1,
                                       .stalled = 1};
    assert_memory_equal(&gauges, &wanted, sizeof gauges);
}

static void makes_histograms(void **state)
{
    (void)state;
    static struct fcap_worker_metrics metrics;
    const int64_t values_us[] = {-5, 0, 100, 101, 1000, 1000000, 60000000, 60000001};
    for (size_t i = 0; i < sizeof values_us / sizeof values_us[0]; i++) {
        fcap_histogram_observe(&metrics.step_seconds, values_us[i]);
    }
    const struct fcap_worker_metrics *workers[1] = {&metrics};
    char *page = page_of(workers, 1);
    assert_has(page, "# TYPE fcapd_step_seconds histogram\n"
                     "fcapd_step_seconds_bucket{worker=\"0\",le=\"0.0001\"} 3\n"
                     "fcapd_step_seconds_bucket{worker=\"0\",le=\"0.0005\"} 4\n"
                     "fcapd_step_seconds_bucket{worker=\"0\",le=\"0.001\"} 5\n"
                     "fcapd_step_seconds_bucket{worker=\"0\",le=\"0.005\"} 5\n");
    assert_has(page, "le=\"0.5\"} 5\nfcapd_step_seconds_bucket{worker=\"0\",le=\"1\"} 6\n");
    assert_has(page, "le=\"10\"} 6\nfcapd_step_seconds_bucket{worker=\"0\",le=\"60\"} 7\n"
                     "fcapd_step_seconds_bucket{worker=\"0\",le=\"+Inf\"} 8\n"
                     "fcapd_step_seconds_sum{worker=\"0\"} 121.001202\n"
                     "fcapd_step_seconds_count{worker=\"0\"} 8\n");
    free(page);
}

static void shows_delays_and_stages(void **state)
{
    (void)state;
    static struct fcap_worker_metrics metrics;
    fcap_delay_observe(&metrics.delays.freshness_seconds, 3);
    fcap_delay_observe(&metrics.delays.freshness_seconds, 1024);
    fcap_delay_observe(&metrics.delays.expiry_lateness_seconds, 200000);
    for (int i = 0; i < FCAP_STAGE_COUNT; i++) {
        metrics.delays.stage_cpu_ns[i] = 1000000000u * (uint64_t)(i + 1) + 2500;
    }
    const struct fcap_worker_metrics *workers[1] = {&metrics};
    char *page = page_of(workers, 1);
    assert_has(page, "# TYPE fcapd_freshness_seconds histogram\n"
                     "fcapd_freshness_seconds_bucket{worker=\"0\",le=\"0.000\"} 0\n");
    assert_has(page, "fcapd_freshness_seconds_bucket{worker=\"0\",le=\"0.003\"} 1\n");
    assert_has(page, "fcapd_freshness_seconds_bucket{worker=\"0\",le=\"1.023\"} 1\n"
                     "fcapd_freshness_seconds_bucket{worker=\"0\",le=\"1.151\"} 2\n");
    assert_has(page, "fcapd_freshness_seconds_sum{worker=\"0\"} 1.027\n"
                     "fcapd_freshness_seconds_count{worker=\"0\"} 2\n");
    assert_has(page, "fcapd_expiry_lateness_seconds_bucket{worker=\"0\",le=\"131.071\"} 0\n"
                     "fcapd_expiry_lateness_seconds_bucket{worker=\"0\",le=\"+Inf\"} 1\n");
    assert_has(page, "fcapd_stage_cpu_seconds_total{worker=\"0\",stage=\"read\"} 1.000002\n"
                     "fcapd_stage_cpu_seconds_total{worker=\"0\",stage=\"expire\"} 2.000002\n");
    free(page);
}

static void prints_milliseconds_exactly(void **state)
{
    (void)state;
    struct fcap_buffer page = {0};
    const int64_t values_ms[] = {0, 1, 999, 1000, -1, -1500, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof values_ms / sizeof values_ms[0]; i++) {
        fcap_metrics_sample_ms(&page, "x", NULL, 0, values_ms[i]);
    }
    fcap_metrics_family(&page, "y", "gauge", "a \"b\" \\ c\nd");
    fcap_buffer_put_u8(&page, 0);
    assert_string_equal((char *)page.data,
                        "x 0.000\nx 0.001\nx 0.999\nx 1.000\nx -0.001\nx -1.500\n"
                        "x 9223372036854775.807\nx -9223372036854775.808\n"
                        "# HELP y a \"b\" \\\\ c\\nd\n# TYPE y gauge\n");
    fcap_buffer_done(&page);
}

/* Every line is a HELP, a TYPE or a sample of the family above it; no family comes twice; counters
 * end in _total. */
static void keeps_the_format(void **state)
{
    (void)state;
    static struct fcap_worker_metrics metrics;
    const struct fcap_worker_metrics *workers[3] = {&metrics, &metrics, &metrics};
    char *page = page_of(workers, 3);
    char family[128] = "";
    char type[32] = "";
    char *rest = NULL;
    char *copy = strdup(page);
    int samples = 0;
    assert_non_null(copy);
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            char head[160];
            assert_int_equal(sscanf(line, "# HELP %127s", family), 1);
            (void)snprintf(head, sizeof head, "# HELP %s ", family);
            assert_null(strstr(strstr(page, head) + 1, head));
            assert_true(strlen(line) > strlen(head));
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            char named[128];
            assert_int_equal(sscanf(line, "# TYPE %127s %31s", named, type), 2);
            assert_string_equal(named, family);
            bool is_total = strcmp(family + strlen(family) - 6, "_total") == 0;
            assert_int_equal(is_total, strcmp(type, "counter") == 0);
        } else {
            assert_int_equal(strncmp(line, family, strlen(family)), 0);
            assert_int_equal(strncmp(line, "fcapd_", 6), 0);
            for (const char *at = line; *at != '{' && *at != ' '; at++) {
                assert_true(islower((unsigned char)*at) || *at == '_' ||
                            isdigit((unsigned char)*at));
            }
            samples++;
        }
    }
    assert_true(samples > 100);
    free(copy);
    free(page);
}

static void *observe_many(void *context)
{
    struct fcap_worker_metrics *metrics = context;
    struct fcap_counters counters = {0};
    struct fcap_gauges gauges = {0};
    for (int i = 1; i <= 20000; i++) {
        fcap_histogram_observe(&metrics->step_seconds, i);
        counters.records = (uint64_t)i;
        fcap_worker_metrics_publish(metrics, &counters, &gauges);
    }
    return NULL;
}

/* Pages made while a worker writes: no number ever goes back. (A thread sanitizer's test too.) */
static void reads_while_a_worker_writes(void **state)
{
    (void)state;
    static struct fcap_worker_metrics metrics;
    const struct fcap_worker_metrics *workers[1] = {&metrics};
    pthread_t thread;
    unsigned long long last = 0;
    assert_int_equal(pthread_create(&thread, NULL, observe_many, &metrics), 0);
    while (last < 20000) {
        static const char name[] = "\nfcapd_records_total{worker=\"0\"} ";
        char *page = page_of(workers, 1);
        unsigned long long now = strtoull(strstr(page, name) + strlen(name), NULL, 10);
        assert_true(now >= last);
        last = now;
        free(page);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void is_documented(void **state)
{
    (void)state;
    struct fcap_buffer page = {0};
    static char file_text[65536];
    fcap_page_document(&page);
    FILE *file = fopen(FCAP_METRICS_DOCUMENT, "r");
    assert_non_null(file);
    size_t size = fread(file_text, 1, sizeof file_text, file);
    assert_int_equal(fclose(file), 0);
    if (size != page.size || memcmp(file_text, page.data, size) != 0) {
        fail_msg("docs/METRICS.md is not what the page has: run `ninja metrics-docs`");
    }
    fcap_buffer_done(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_every_value_once),
        cmocka_unit_test(tells_about_the_process),
        cmocka_unit_test(fills_gauges),
        cmocka_unit_test(makes_histograms),
        cmocka_unit_test(shows_delays_and_stages),
        cmocka_unit_test(prints_milliseconds_exactly),
        cmocka_unit_test(keeps_the_format),
        cmocka_unit_test(reads_while_a_worker_writes),
        cmocka_unit_test(is_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
