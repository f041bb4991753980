/* See sink_contract.h. */
#include "contract/sink_contract.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ACKS_MAX = 20000, TRIES_MAX = 20000, TTL_MS = 600000 };

struct ack {
    uint64_t token;
    enum fcap_push_result result;
    int64_t integer;
};

struct fixture {
    const struct sink_world *world;
    struct fcap_sink *sink;
    struct ack acks[ACKS_MAX];
    size_t ack_count;
    struct fcap_sink *push_inside; /* acked() tries a push here */
    enum fcap_status pushed_inside;
};

static struct fixture fixture;

static void acked(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    struct fixture *f = context;
    assert_true(f->ack_count < ACKS_MAX);
    f->acks[f->ack_count++] = (struct ack){token, result, integer};
    if (f->push_inside != NULL) {
        struct fcap_push push = {.kind = FCAP_PUSH_UNLINK, .key = fcap_bytes_of("inside")};
        f->pushed_inside = f->push_inside->ops->push(f->push_inside, &push);
    }
}

static struct fcap_sink_state state_of(struct fcap_sink *sink)
{
    struct fcap_sink_state state;
    sink->ops->state(sink, &state);
    return state;
}

static void poll_once(struct fixture *f, struct fcap_sink *sink)
{
    struct fcap_sink_handler handler = {.context = f, .acked = acked};
    enum fcap_status status = sink->ops->poll(sink, &handler, 5);
    assert_int_not_equal(fcap_status_class(status), FCAP_CLASS_FATAL);
    f->world->wait_ms(1);
}

static void poll_until_ready(struct fixture *f, struct fcap_sink *sink)
{
    for (int i = 0; i < TRIES_MAX && !state_of(sink).ready; i++) {
        poll_once(f, sink);
    }
    assert_true(state_of(sink).ready);
}

static void poll_until_acked(struct fixture *f, size_t count)
{
    for (int i = 0; i < TRIES_MAX && f->ack_count < count; i++) {
        poll_once(f, f->sink);
    }
    assert_int_equal(f->ack_count, count);
}

static bool same_identity(struct fcap_sink_identity a, struct fcap_sink_identity b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* True when the identity changed within some heartbeats. */
static bool identity_changes(struct fixture *f, struct fcap_sink_identity from)
{
    for (int i = 0; i < 3000; i++) {
        struct fcap_sink_state state = state_of(f->sink);
        if (state.ready && !same_identity(state.identity, from)) {
            return true;
        }
        poll_once(f, f->sink);
    }
    return false;
}

static enum fcap_status push_set(struct fixture *f, const char *key, const char *value,
                                 int64_t expire_at_ms, uint64_t token)
{
    struct fcap_push push = {.kind = FCAP_PUSH_SET,
                             .key = fcap_bytes_of(key),
                             .value = fcap_bytes_of(value),
                             .expire_at_ms = expire_at_ms,
                             .token = token};
    return f->sink->ops->push(f->sink, &push);
}

static enum fcap_status push_key(struct fixture *f, enum fcap_push_kind kind, const char *key,
                                 uint64_t token)
{
    struct fcap_push push = {.kind = kind, .key = fcap_bytes_of(key), .token = token};
    return f->sink->ops->push(f->sink, &push);
}

static void set_now(struct fixture *f, const char *key, const char *value)
{
    size_t before = f->ack_count;
    assert_int_equal(push_set(f, key, value, f->world->now_ms() + TTL_MS, 1), FCAP_OK);
    poll_until_acked(f, before + 1);
    assert_int_equal(f->acks[before].result, FCAP_PUSH_DONE);
}

static void assert_key(struct fixture *f, const char *key, const char *value)
{
    struct fcap_buffer found = {0};
    bool is_there = f->world->get(key, &found);
    if (value == NULL) {
        assert_false(is_there);
    } else {
        assert_true(is_there);
        assert_int_equal(found.size, strlen(value));
        assert_memory_equal(found.data, value, found.size);
    }
    fcap_buffer_done(&found);
}

/* --- tests -------------------------------------------------------------------------------- */

static void test_nothing_before_it_is_ready(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    f->world->down(true);
    assert_false(state_of(f->sink).ready);
    assert_int_equal(push_set(f, "k", "v", f->world->now_ms() + TTL_MS, 1), FCAP_BUSY);
    for (int i = 0; i < 20; i++) {
        poll_once(f, f->sink);
    }
    assert_false(state_of(f->sink).ready);
    assert_false(state_of(f->sink).time_known);
    assert_int_equal(push_set(f, "k", "v", f->world->now_ms() + TTL_MS, 1), FCAP_BUSY);
    f->world->down(false);
    poll_until_ready(f, f->sink);
    assert_int_equal(f->ack_count, 0); /* BUSY was no acceptance. */
    set_now(f, "k", "v");
    assert_key(f, "k", "v");
}

static void test_acks_come_in_order_with_their_answers(void **unused)
{
    struct fixture *f = &fixture;
    int64_t expire_at_ms = f->world->now_ms() + TTL_MS;
    (void)unused;
    poll_until_ready(f, f->sink);
    assert_int_equal(push_set(f, "a", "one", expire_at_ms, 900), FCAP_OK);
    assert_int_equal(push_key(f, FCAP_PUSH_INCREMENT, "n", 7), FCAP_OK);
    assert_int_equal(push_key(f, FCAP_PUSH_INCREMENT, "n", 7), FCAP_OK);
    assert_int_equal(push_set(f, "a", "two", expire_at_ms, UINT64_MAX), FCAP_OK);
    assert_int_equal(push_set(f, "gone", "x", expire_at_ms, 0), FCAP_OK);
    assert_int_equal(push_key(f, FCAP_PUSH_UNLINK, "gone", 5), FCAP_OK);
    assert_int_equal(push_key(f, FCAP_PUSH_UNLINK, "never", 6), FCAP_OK);
    poll_until_acked(f, 7);
    static const uint64_t tokens[] = {900, 7, 7, UINT64_MAX, 0, 5, 6};
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(f->acks[i].token, tokens[i]);
        assert_int_equal(f->acks[i].result, FCAP_PUSH_DONE);
    }
    assert_int_equal(f->acks[1].integer, 1);
    assert_int_equal(f->acks[2].integer, 2);
    assert_key(f, "a", "two");
    assert_key(f, "n", "2");
    assert_key(f, "gone", NULL);
    for (int i = 0; i < 20; i++) {
        poll_once(f, f->sink); /* No ack comes twice. */
    }
    assert_int_equal(f->ack_count, 7);
}

static void test_any_bytes_pass(void **unused)
{
    struct fixture *f = &fixture;
    static char large[200001];
    struct fcap_buffer found = {0};
    (void)unused;
    memset(large, 'x', sizeof large - 1);
    poll_until_ready(f, f->sink);
    struct fcap_push push = {.kind = FCAP_PUSH_SET,
                             .key = fcap_bytes_of("odd"),
                             .value = {(const uint8_t *)"\r\n$3\r\n\0\xff", 8},
                             .expire_at_ms = f->world->now_ms() + TTL_MS};
    assert_int_equal(f->sink->ops->push(f->sink, &push), FCAP_OK);
    poll_until_acked(f, 1);
    set_now(f, "large", large);
    assert_true(f->world->get("odd", &found));
    assert_int_equal(found.size, 8);
    assert_memory_equal(found.data, "\r\n$3\r\n\0\xff", 8);
    fcap_buffer_done(&found);
    assert_key(f, "large", large);
    set_now(f, "empty", "");
    assert_key(f, "empty", "");
    set_now(f, "fc:{\xc3\xbc%7B }:1d", "user");
    assert_key(f, "fc:{\xc3\xbc%7B }:1d", "user");
}

/* Looks at a key of 60 ms until it is gone: still there at PXAT itself, gone at PXAT + 1. False
 * when it was never seen, or when the clocks say otherwise. */
static bool lives_until_its_time(struct fixture *f, size_t acks)
{
    int64_t expire_at_ms = f->world->now_ms() + 60;
    assert_int_equal(push_set(f, "short", "v", expire_at_ms, 1), FCAP_OK);
    poll_until_acked(f, acks);
    bool is_seen = false;
    /* The clock is read before a look that finds it, and after one that does not. */
    for (;;) {
        struct fcap_buffer found = {0};
        int64_t before_ms = f->world->now_ms();
        bool is_there = f->world->get("short", &found);
        int64_t after_ms = f->world->now_ms();
        fcap_buffer_done(&found);
        if (!is_there || before_ms > expire_at_ms) {
            bool is_right = is_seen && !is_there && after_ms > expire_at_ms;
            if (!is_right) {
                print_message("PXAT %lld: %s at %lld, %s before\n", (long long)expire_at_ms,
                              is_there ? "there" : "gone",
                              (long long)(is_there ? before_ms : after_ms),
                              is_seen ? "seen" : "never seen");
            }
            return is_right;
        }
        is_seen = true;
        f->world->wait_ms(1);
    }
}

static void test_a_key_is_gone_right_after_its_time(void **unused)
{
    struct fixture *f = &fixture;
    size_t right = 0;
    (void)unused;
    poll_until_ready(f, f->sink);
    for (size_t round = 1; round <= 5; round++) {
        right += lives_until_its_time(f, round);
    }
    /* A machine that sleeps for 60 ms, or whose clock is set meanwhile, spoils a round; a server
     * that is off by a millisecond spoils them all. */
    assert_true(right >= 3);
}

static void test_a_full_sink_is_busy_and_loses_nothing(void **unused)
{
    struct fixture *f = &fixture;
    uint64_t pushed = 0;
    size_t busy = 0;
    (void)unused;
    poll_until_ready(f, f->sink);
    while (pushed < 5000) {
        char key[32];
        (void)snprintf(key, sizeof key, "many%llu", (unsigned long long)pushed);
        enum fcap_status status = push_set(f, key, key, f->world->now_ms() + TTL_MS, pushed);
        if (status == FCAP_OK) {
            pushed++;
        } else {
            assert_int_equal(status, FCAP_BUSY);
            busy++;
            poll_once(f, f->sink);
        }
    }
    poll_until_acked(f, 5000);
    assert_true(busy > 0);
    for (size_t i = 0; i < 5000; i++) {
        assert_int_equal(f->acks[i].token, i);
        assert_int_equal(f->acks[i].result, FCAP_PUSH_DONE);
    }
    assert_key(f, "many0", "many0");
    assert_key(f, "many4999", "many4999");
}

static void test_what_is_in_flight_when_it_breaks_is_unknown(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    poll_until_ready(f, f->sink);
    set_now(f, "k", "old");
    struct fcap_sink_state before = state_of(f->sink);
    f->world->hold(true);
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(push_set(f, "k", "new", f->world->now_ms() + TTL_MS, 100 + i), FCAP_OK);
    }
    poll_once(f, f->sink);
    assert_int_equal(f->ack_count, 1);
    f->push_inside = f->sink; /* A handler that pushes finds it BUSY, and nothing is mixed up. */
    f->pushed_inside = FCAP_OK;
    f->world->down(true);
    poll_until_acked(f, 51);
    f->push_inside = NULL;
    assert_int_equal(f->pushed_inside, FCAP_BUSY);
    for (size_t i = 0; i < 50; i++) {
        assert_int_equal(f->acks[1 + i].token, 100 + i);
        assert_int_equal(f->acks[1 + i].result, FCAP_PUSH_UNKNOWN);
    }
    assert_false(state_of(f->sink).ready);
    f->world->hold(false);
    f->world->down(false);
    poll_until_ready(f, f->sink);
    assert_int_not_equal(state_of(f->sink).connection, before.connection);
    for (int i = 0; i < 50; i++) {
        poll_once(f, f->sink);
    }
    assert_int_equal(f->ack_count, 51);
    assert_key(f, "k", "old"); /* The server died before it read them; nothing was resent. */
}

static void test_refusals_are_told_and_heal(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    poll_until_ready(f, f->sink);
    set_now(f, "before", "v");
    f->world->full(true);
    assert_int_equal(push_set(f, "k", "v", f->world->now_ms() + TTL_MS, 2), FCAP_OK);
    assert_int_equal(push_key(f, FCAP_PUSH_INCREMENT, "n", 3), FCAP_OK);
    assert_int_equal(push_key(f, FCAP_PUSH_UNLINK, "before", 4), FCAP_OK);
    poll_until_acked(f, 4);
    assert_int_equal(f->acks[1].result, FCAP_PUSH_REFUSED);
    assert_int_equal(f->acks[2].result, FCAP_PUSH_REFUSED);
    assert_int_equal(f->acks[3].result, FCAP_PUSH_DONE); /* Freeing memory is never refused. */
    assert_key(f, "k", NULL);
    assert_key(f, "n", NULL);
    assert_key(f, "before", NULL);
    f->world->full(false);
    for (int i = 0; i < TRIES_MAX; i++) {
        enum fcap_status status = push_set(f, "k", "v", f->world->now_ms() + TTL_MS, 5);
        if (status == FCAP_OK) {
            break;
        }
        assert_int_equal(status, FCAP_BUSY);
        poll_once(f, f->sink);
    }
    poll_until_acked(f, 5);
    assert_int_equal(f->acks[4].result, FCAP_PUSH_DONE);
    assert_key(f, "k", "v");
}

static void test_the_identity_tells_one_redis_from_another(void **unused)
{
    struct fixture *f = &fixture;
    static const struct fcap_sink_identity nothing;
    (void)unused;
    assert_true(same_identity(state_of(f->sink).identity, nothing));
    poll_until_ready(f, f->sink);
    struct fcap_sink_state first = state_of(f->sink);
    assert_false(same_identity(first.identity, nothing));
    assert_false(identity_changes(f, first.identity)); /* Heartbeats alone change nothing. */

    f->world->flush(); /* On a living connection (B26 b). */
    assert_true(identity_changes(f, first.identity));
    struct fcap_sink_state flushed = state_of(f->sink);
    assert_int_equal(flushed.connection, first.connection);
    assert_false(identity_changes(f, flushed.identity)); /* Once, not a loop. */

    f->world->delete_sentinel(); /* B26 d */
    assert_true(identity_changes(f, flushed.identity));
    struct fcap_sink_state deleted = state_of(f->sink);
    assert_false(same_identity(deleted.identity, first.identity));
    assert_false(identity_changes(f, deleted.identity));

    f->world->restart(true); /* B26 c: the sentinel is there, the run id is another. */
    assert_true(identity_changes(f, deleted.identity));
    struct fcap_sink_state restarted = state_of(f->sink);
    assert_int_not_equal(restarted.connection, deleted.connection);

    f->world->restart(false); /* B26 a */
    assert_true(identity_changes(f, restarted.identity));
    assert_false(identity_changes(f, state_of(f->sink).identity));
}

static void test_sinks_of_one_redis_agree_on_its_identity(void **unused)
{
    struct fixture *f = &fixture;
    struct fcap_sink *other = f->world->open(2, 100);
    (void)unused;
    poll_until_ready(f, f->sink);
    poll_until_ready(f, other);
    assert_true(same_identity(state_of(f->sink).identity, state_of(other).identity));
    f->world->close(other);
    assert_true(state_of(f->sink).ready); /* Another worker's connection is not killed. */
    set_now(f, "k", "v");
}

static void test_the_time_is_the_servers(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    poll_until_ready(f, f->sink);
    for (int i = 0; i < 1500; i++) {
        int64_t time_ms = state_of(f->sink).time_ms;
        int64_t now_ms = f->world->now_ms();
        assert_true(state_of(f->sink).time_known);
        assert_true(time_ms <= now_ms); /* Never ahead: nothing may expire early. */
        assert_true(time_ms >= now_ms - 500);
        poll_once(f, f->sink);
    }
    f->world->down(true);
    for (int i = 0; i < 20; i++) {
        poll_once(f, f->sink);
    }
    assert_true(state_of(f->sink).time_known); /* It goes on by the monotonic clock. */
    assert_true(state_of(f->sink).time_ms >= f->world->now_ms() - 500);
    f->world->down(false);
}

static void test_an_older_connection_of_the_name_is_killed(void **unused)
{
    struct fixture *f = &fixture;
    (void)unused;
    poll_until_ready(f, f->sink);
    set_now(f, "k", "first");
    struct fcap_sink *newer = f->world->open(1, 100);
    poll_until_ready(f, newer);
    assert_int_equal(push_set(f, "k", "late", f->world->now_ms() + TTL_MS, 77), FCAP_OK);
    /* Only reads and writes of the old connection: it may not come back and kill the newer one. */
    struct fcap_sink_handler handler = {.context = f, .acked = acked};
    for (int i = 0; i < 1000 && f->ack_count < 2; i++) {
        (void)f->sink->ops->poll(f->sink, &handler, 5);
    }
    assert_int_equal(f->ack_count, 2);
    assert_int_equal(f->acks[1].token, 77);
    assert_int_equal(f->acks[1].result, FCAP_PUSH_UNKNOWN);
    assert_key(f, "k", "first");
    f->world->close(newer);
}

/* --- running ------------------------------------------------------------------------------ */

static const struct sink_world *current_world;

static int setup(void **unused)
{
    (void)unused;
    memset(&fixture, 0, sizeof fixture);
    fixture.world = current_world;
    current_world->start();
    fixture.sink = current_world->open(1, 1000);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    fixture.world->close(fixture.sink);
    fixture.world->stop();
    return 0;
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int sink_contract_run(const struct sink_world *world)
{
    const struct CMUnitTest tests[] = {
        CASE(test_nothing_before_it_is_ready),
        CASE(test_acks_come_in_order_with_their_answers),
        CASE(test_any_bytes_pass),
        CASE(test_a_key_is_gone_right_after_its_time),
        CASE(test_a_full_sink_is_busy_and_loses_nothing),
        CASE(test_what_is_in_flight_when_it_breaks_is_unknown),
        CASE(test_refusals_are_told_and_heal),
        CASE(test_the_identity_tells_one_redis_from_another),
        CASE(test_sinks_of_one_redis_agree_on_its_identity),
        CASE(test_the_time_is_the_servers),
        CASE(test_an_older_connection_of_the_name_is_killed),
    };
    current_world = world;
    return cmocka_run_group_tests_name(world->name, tests, NULL, NULL);
}
