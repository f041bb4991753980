/* What the daemon says about itself, from views made by hand: fc:meta, /readyz, /livez, the hot
 * users and the division of the memory. */
#include "board.h"
#include "changes.h"
#include "fcap/user.h"
#include "health.h"
#include "hot_users.h"
#include "memory.h"
#include "page.h"
#include "reporter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOW_MS 1000000

static struct fixture {
    struct fcap_config config;
    struct fcap_worker_view views[2];
    struct fcap_health_facts facts;
    struct fcap_buffer text;
} fixture;

/* Two workers, one partition each, everything well. */
static int setup(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    *f = (struct fixture){
        .config = {.profile = "days", .instance = "one", .workers = 2, .windows_count = 2},
        .facts = {.now_ms = NOW_MS, .is_state_open = true, .last_store_error = ""},
    };
    f->config.redis.host = "redis.example";
    f->config.windows[0] = (struct fcap_config_window){"1d", 86400000};
    f->config.windows[1] = (struct fcap_config_window){"7d", 604800000};
    for (int32_t i = 0; i < 2; i++) {
        struct fcap_worker_view *view = &f->views[i];
        view->phase = FCAP_WORKER_RUNNING;
        view->published_ms = NOW_MS - 100;
        view->sink.state.ready = true;
        view->time_known = true;
        view->source.topic_partitions = 2;
        fcap_worker_view_reserve(view, 1);
        view->task_count = 1;
        view->tasks[0] = (struct fcap_board_task){
            .report = {.partition = i,
                       .gate_open = true,
                       .epoch = 7 + i,
                       .claimed_next = 100 + i,
                       .claimed_as_of_ms = 5000 + i,
                       .next_offset = 120 + i,
                       .committed_offset = 90 + i,
                       .end_offset = 80,
                       .complete_since_ms = FCAP_TIME_NONE,
                       .ready_mask = 3,
                       .projected_mask = 1},
            .lag = 4,
        };
    }
    return 0;
}

static int teardown(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    fcap_worker_view_done(&f->views[0]);
    fcap_worker_view_done(&f->views[1]);
    fcap_buffer_done(&f->text);
    return 0;
}

static const char *text_of(struct fcap_buffer *buffer)
{
    fcap_buffer_put_u8(buffer, 0);
    return (const char *)buffer->data;
}

/* --- fc:meta --- */

static void test_a_report_claims_what_open_gates_claim(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->views[1].tasks[0].report.complete_since_ms = 1234;
    f->views[1].tasks[0].report.projected_mask = 3;
    fcap_report_build(&f->config, f->views, 2, 9000, &f->text);
    assert_string_equal(text_of(&f->text),
                        "{\"v\":1,\"at\":9000,\"partitions\":2,\"tasks\":{"
                        "\"0\":{\"epoch\":7,\"as_of\":5000,\"next\":100,\"complete_since\":0,"
                        "\"ready\":[\"1d\"]},"
                        "\"1\":{\"epoch\":8,\"as_of\":5001,\"next\":101,\"complete_since\":1234,"
                        "\"ready\":[\"1d\",\"7d\"]}}}");
}

static void test_a_report_is_silent_about_closed_gates_and_without_claims(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->views[0].tasks[0].report.gate_open = false;
    f->views[1].tasks[0].report.claimed_next = -1;
    fcap_report_build(&f->config, f->views, 2, 9000, &f->text);
    assert_string_equal(text_of(&f->text), "{\"v\":1,\"at\":9000,\"partitions\":2,\"tasks\":{}}");
}

static void test_a_window_is_ready_only_when_it_is_projected_too(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->views[0].tasks[0].report.ready_mask = 1;
    f->views[0].tasks[0].report.projected_mask = 2;
    fcap_report_build(&f->config, f->views, 1, 9000, &f->text);
    assert_non_null(strstr(text_of(&f->text), "\"ready\":[]"));
}

/* --- /readyz and /livez --- */

static void become_away(struct fixture *f)
{
    f->views[1].sink.state.ready = false;
    f->views[1].sink.error = FCAP_SINK_REDIS_ERROR_NOAUTH;
    (void)snprintf(f->views[1].sink.error_text, sizeof f->views[1].sink.error_text, "NOAUTH x");
}

static void become_refused(struct fixture *f)
{
    f->views[0].sink.state.ready = false;
    f->views[0].sink.refused_needs = 1u << FCAP_SINK_REDIS_NEED_SET_PXAT;
}

static void become_full(struct fixture *f)
{
    f->views[0].sink.error = FCAP_SINK_REDIS_ERROR_OOM;
}

static void become_early(struct fixture *f)
{
    f->views[0].clock_offset_ms = 1001;
}

static void become_late(struct fixture *f)
{
    f->views[0].clock_offset_ms = -1001;
}

static void become_fenced(struct fixture *f)
{
    f->views[0].source.fenced = true;
}

static void become_cut_off(struct fixture *f)
{
    f->views[0].source.error_since_ms = f->views[0].published_ms - FCAP_KAFKA_AWAY_MS;
    (void)snprintf(f->views[0].source.error, sizeof f->views[0].source.error, "brokers down");
}

static void become_stalled(struct fixture *f)
{
    f->views[0].stall = "commits wait";
    f->views[0].stall_since_ms = f->views[0].published_ms - FCAP_STALL_MS;
}

static void become_stuck(struct fixture *f)
{
    f->views[0].letters.stuck_since_ms = 1;
}

static void become_closed(struct fixture *f)
{
    f->views[1].tasks[0].report.gate_open = false;
    f->views[1].tasks[0].report.end_offset = 1000;
}

static void become_held(struct fixture *f)
{
    f->views[1].tasks[0].report.clock_held = true;
}

static void become_idle(struct fixture *f)
{
    f->views[0].task_count = 0;
    f->views[1].task_count = 0;
}

static void become_failing(struct fixture *f)
{
    f->views[1].commit_failing_since_ms = 1;
    f->facts.last_store_error = "No space left on device";
}

static void become_stopped(struct fixture *f)
{
    f->facts.write_stopped = true;
}

static void become_unsynced(struct fixture *f)
{
    f->facts.sync_failing = true;
    f->facts.last_store_error = "Input/output error";
}

static void become_hung(struct fixture *f)
{
    f->facts.write_waits_ms = FCAP_WRITE_HANGS_MS + 1;
}

static void become_opening(struct fixture *f)
{
    f->facts.is_state_open = false;
}

static void become_mute(struct fixture *f)
{
    static struct fcap_sink_redis_status reporter;
    reporter.error = FCAP_SINK_REDIS_ERROR_NOPERM;
    reporter.error_since_ms = NOW_MS - FCAP_STALL_MS;
    (void)snprintf(reporter.error_text, sizeof reporter.error_text, "NOPERM no key");
    f->facts.reporter = &reporter;
}

static void become_silent(struct fixture *f)
{
    f->views[1].published_ms = NOW_MS - FCAP_READY_STALE_MS - 1;
}

static void become_draining(struct fixture *f)
{
    f->views[1].phase = FCAP_WORKER_DRAINING;
}

static void test_each_reason_makes_it_unready_and_is_named(void **unused)
{
    static const struct {
        void (*become)(struct fixture *f);
        const char *says;
        const char *names; /* the key or the cure */
    } cases[] = {
        {become_away, "NOAUTH x", "redis.password"},
        {become_away, "worker 1: Redis is away", "redis.host redis.example"},
        {become_refused, "SET key PXAT", "vanishes by itself"},
        {become_full, "refuses writes (oom)", "maxmemory"},
        {become_early, "1001 ms off Redis TIME", "synchronise"},
        {become_late, "-1001 ms off Redis TIME", "synchronise"},
        {become_fenced, "has taken over", "kafka.instance_id"},
        {become_cut_off, "brokers down", "kafka.brokers"},
        {become_stalled, "no records are taken", "commits wait"},
        {become_stuck, "dead letters", "kafka.dead_letter.topic"},
        {become_closed, "partition 1: the gate to Redis is closed", "offset 121 of 1000"},
        {become_held, "partition 1: its clock is held", "synchronise"},
        {become_idle, "no partition is assigned", "kafka.topic"},
        {become_failing, "No space left on device", "state.directory"},
        {become_stopped, "takes no commits", "state.directory"},
        {become_hung, "takes no commits: a write has not come back for 5001 ms", "state.directory"},
        {become_unsynced, "takes no commits: Input/output error", "state.directory"},
        {become_opening, "is being opened", "state.directory"},
        {become_mute, "fc:meta cannot be written (noperm): NOPERM no key", "ACL"},
        {become_silent, "worker 1 has said nothing", "5001 ms"},
        {become_draining, "worker 1 is draining", ""},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = &fixture;
        (void)teardown(NULL);
        (void)setup(NULL);
        cases[i].become(f);
        assert_false(fcap_health_ready(&f->config, f->views, 2, &f->facts, &f->text));
        const char *text = text_of(&f->text);
        if (strstr(text, cases[i].says) == NULL || strstr(text, cases[i].names) == NULL ||
            strstr(text, "\"ready\":false") == NULL) {
            fail_msg("case %zu: %s", i, text);
        }
    }
}

static void become_well(struct fixture *f)
{
    (void)f;
}

static void become_briefly_stalled(struct fixture *f)
{
    f->views[0].stall = "values wait to be sent";
    f->views[0].stall_since_ms = f->views[0].published_ms - FCAP_STALL_MS + 1;
}

static void become_briefly_cut_off(struct fixture *f)
{
    f->views[0].source.error_since_ms = f->views[0].published_ms - FCAP_KAFKA_AWAY_MS + 1;
}

static void become_half_idle(struct fixture *f)
{
    f->views[0].task_count = 0;
}

static void become_off_by_a_second(struct fixture *f)
{
    f->views[0].clock_offset_ms = 1000;
}

static void become_degraded(struct fixture *f)
{
    f->views[0].sink.refused_needs = 1u << FCAP_SINK_REDIS_NEED_INFO;
    f->views[0].sink.evicts = true;
}

static void become_incomplete(struct fixture *f)
{
    f->views[0].tasks[0].report.ready_mask = 0;
    f->views[0].tasks[0].report.complete_since_ms = 99;
}

static void test_these_leave_it_ready(void **unused)
{
    static void (*const cases[])(struct fixture * f) = {
        become_well,      become_briefly_stalled, become_briefly_cut_off,
        become_half_idle, become_off_by_a_second, become_incomplete,
        become_degraded,
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = &fixture;
        (void)teardown(NULL);
        (void)setup(NULL);
        cases[i](f);
        bool is_ready = fcap_health_ready(&f->config, f->views, 2, &f->facts, &f->text);
        const char *text = text_of(&f->text);
        if (!is_ready || strstr(text, "{\"ready\":true,\"reasons\":[]") == NULL) {
            fail_msg("case %zu: %s", i, text);
        }
    }
}

static void test_the_body_tells_windows_apart(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->views[1].tasks[0].report.ready_mask = 0;
    (void)fcap_health_ready(&f->config, f->views, 2, &f->facts, &f->text);
    const char *text = text_of(&f->text);
    assert_non_null(strstr(text, "{\"1d\":\"complete\",\"7d\":\"being projected\"}"));
    assert_non_null(strstr(text, "{\"1d\":\"in Redis, but history is missing\","
                                 "\"7d\":\"history is not complete yet\"}"));
}

static void test_the_body_tells_what_goes_on_without_a_promise(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    become_degraded(f);
    assert_true(fcap_health_ready(&f->config, f->views, 2, &f->facts, &f->text));
    const char *text = text_of(&f->text);
    assert_non_null(strstr(text, "\"redis_refuses\":[{\"command\":\"INFO\",\"promise\":\"a "
                                 "restarted or replaced Redis is noticed"));
    assert_non_null(strstr(text, "\"redis_evicts\":true"));
    assert_non_null(strstr(text, "\"redis_refuses\":[],")); /* Of the other worker. */
}

static void test_alive_is_whose_loop_moves(void **unused)
{
    struct fixture *f = &fixture;
    struct fcap_board *board = fcap_board_open(2);
    (void)unused;
    fcap_board_beat(board, 0);
    fcap_board_beat(board, 1);
    int64_t now_ms = fcap_board_beat_ms(board, 1);
    assert_true(fcap_health_live(board, f->views, now_ms + FCAP_LIVE_STILL_MS, &f->text));
    assert_false(fcap_health_live(board, f->views, now_ms + FCAP_LIVE_STILL_MS + 1, &f->text));
    f->views[0].phase = FCAP_WORKER_STARTING; /* Opening the state may take long. */
    f->views[1].phase = FCAP_WORKER_ENDED;
    assert_true(fcap_health_live(board, f->views, now_ms + 10 * FCAP_LIVE_STILL_MS, &f->text));
    fcap_board_close(board);
}

/* --- the board --- */

static void test_a_reader_gets_its_own_copy(void **unused)
{
    struct fixture *f = &fixture;
    struct fcap_board *board = fcap_board_open(2);
    struct fcap_worker_view *views = fcap_board_views_open(board);
    (void)unused;
    fcap_board_publish(board, 1, &f->views[1]);
    fcap_board_read(board, views);
    f->views[1].tasks[0].report.epoch = 99;
    assert_int_equal(views[0].task_count, 0);
    assert_int_equal(views[1].task_count, 1);
    assert_int_equal(views[1].tasks[0].report.epoch, 8);
    f->views[1].task_count = 0;
    fcap_board_publish(board, 1, &f->views[1]);
    fcap_board_read(board, views);
    assert_int_equal(views[1].task_count, 0);
    fcap_board_views_close(board, views);
    fcap_board_close(board);
}

/* --- hot users --- */

static void add(struct fcap_hot_users *hot, const char *user, int times)
{
    for (int i = 0; i < times; i++) {
        fcap_hot_users_add(hot, 3, fcap_bytes_of(user));
    }
}

static const struct fcap_hot_user *find(const struct fcap_hot_users *hot, const char *user)
{
    for (size_t i = 0; i < hot->count; i++) {
        const struct fcap_hot_user *at = &hot->users[i];
        if (fcap_bytes_equal((struct fcap_bytes){at->bytes, at->size}, fcap_bytes_of(user))) {
            return at;
        }
    }
    return NULL;
}

/* B32: one id for masses of people, among many others. */
static void test_B32_the_user_of_zeros_is_in_the_list(void **unused)
{
    static const char zeros[] = "00000000-0000-0000-0000-000000000000";
    struct fcap_hot_users hot;
    char user[32];
    (void)unused;
    fcap_hot_users_init(&hot, NULL);
    for (int i = 0; i < 20000; i++) {
        (void)snprintf(user, sizeof user, "user-%d", i % 10000);
        add(&hot, user, 1);
        add(&hot, i % 4 == 0 ? zeros : user, 1);
    }
    const struct fcap_hot_user *found = find(&hot, zeros);
    assert_non_null(found);
    assert_int_equal(hot.count, FCAP_HOT_USERS_MAX);
    assert_true(found->count >= 5000);
    assert_true(found->count - found->error <= 5000);
    assert_int_equal(found->partition, 3);
}

static void test_few_users_are_counted_exactly_and_halved(void **unused)
{
    struct fcap_hot_users hot;
    (void)unused;
    fcap_hot_users_init(&hot, NULL);
    add(&hot, "a", 5);
    add(&hot, "b", 1);
    add(&hot, "a", 2);
    assert_int_equal(find(&hot, "a")->count, 7);
    assert_int_equal(find(&hot, "a")->error, 0);
    fcap_hot_users_halve(&hot);
    assert_int_equal(find(&hot, "a")->count, 3);
    assert_null(find(&hot, "b"));
    assert_int_equal(hot.count, 1);
}

static void test_a_long_id_is_cut_not_overrun(void **unused)
{
    struct fcap_hot_users hot;
    char user[4096];
    (void)unused;
    memset(user, 'x', sizeof user);
    fcap_hot_users_init(&hot, NULL);
    fcap_hot_users_add(&hot, 0, (struct fcap_bytes){(const uint8_t *)user, sizeof user});
    fcap_hot_users_add(&hot, 0, (struct fcap_bytes){(const uint8_t *)user, sizeof user});
    assert_int_equal(hot.count, 1);
    assert_int_equal(hot.users[0].size, 4096);
    assert_int_equal(hot.users[0].count, 2);
}

/* --- memory --- */

static void test_the_shares_stay_within_the_budget(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->config.workers = 3;
    f->config.memory.budget_bytes = 1000;
    f->config.memory.record_cache_bytes = 300;
    f->config.memory.block_cache_bytes = 200;
    f->config.memory.write_buffers_bytes = 250;
    f->config.memory.kafka_queues_bytes = 150;
    struct fcap_memory_plan plan = fcap_memory_plan_make(&f->config, 10);
    assert_int_equal(plan.worker_cache_bytes, 80);
    assert_true(3 * plan.worker_cache_bytes * 5 / 4 <= plan.record_cache_bytes);
    assert_int_equal(plan.worker_queues_bytes, 50);
    assert_int_equal(plan.worker_partitions, 4);
    assert_int_equal(plan.working_bytes, 100);
    assert_true(fcap_memory_plan_make(&f->config, 0).worker_partitions > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_report_claims_what_open_gates_claim, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_a_report_is_silent_about_closed_gates_and_without_claims, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_window_is_ready_only_when_it_is_projected_too, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_each_reason_makes_it_unready_and_is_named, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_these_leave_it_ready, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_body_tells_windows_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_body_tells_what_goes_on_without_a_promise, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_alive_is_whose_loop_moves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_reader_gets_its_own_copy, setup, teardown),
        cmocka_unit_test(test_B32_the_user_of_zeros_is_in_the_list),
        cmocka_unit_test(test_few_users_are_counted_exactly_and_halved),
        cmocka_unit_test(test_a_long_id_is_cut_not_overrun),
        cmocka_unit_test_setup_teardown(test_the_shares_stay_within_the_budget, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
