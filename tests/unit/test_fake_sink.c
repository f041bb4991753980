/* The simulator's Redis under chance: repeatable, one ack for each push, and an abandoned
 * connection does harm exactly when older connections are spared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fake_sink.h"

enum { SEEDS = 300, STEPS = 400, KEYS = 4 };

struct world {
    struct fcap_clock clock;
    int64_t now_ms;
    uint64_t random;
    struct fcap_fake_redis redis;
    struct fcap_fake_sink sink;
    uint64_t pushed;
    uint64_t acked;
    uint64_t trace; /* hash of everything that happened */
};

static struct world world;

static int64_t wall_ms(struct fcap_clock *clock)
{
    (void)clock;
    return 1700000000000 + world.now_ms;
}

static int64_t monotonic_ms(struct fcap_clock *clock)
{
    (void)clock;
    return world.now_ms;
}

static uint32_t draw(void *context, uint32_t bound)
{
    struct world *w = context;
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((w->random >> 33) % bound);
}

static void note(struct world *w, uint64_t what)
{
    w->trace = (w->trace ^ what) * 0x100000001b3ull;
}

static void acked(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    struct world *w = context;
    assert_int_equal(token, w->acked); /* Each once, in order. */
    w->acked++;
    note(w, token * 4 + (uint64_t)result);
    note(w, (uint64_t)integer);
}

static bool push(struct world *w, unsigned key)
{
    char name[8];
    char value[24];
    (void)snprintf(name, sizeof name, "k%u", key);
    (void)snprintf(value, sizeof value, "%llu", (unsigned long long)w->pushed);
    struct fcap_push one = {.kind = FCAP_PUSH_SET,
                            .key = fcap_bytes_of(name),
                            .value = fcap_bytes_of(value),
                            .expire_at_ms = wall_ms(NULL) + 1000000,
                            .token = w->pushed};
    bool accepted = w->sink.sink.ops->push(&w->sink.sink, &one) == FCAP_OK;
    w->pushed += accepted;
    return accepted;
}

static void poll_once(struct world *w)
{
    struct fcap_sink_handler handler = {.context = w, .acked = acked};
    (void)w->sink.sink.ops->poll(&w->sink.sink, &handler, 0); /* State is looked at instead. */
    w->now_ms += 10;
}

/* Some life full of faults, then a last value for each key without any; true when all last values
 * stayed. Fills `trace`. */
static bool last_values_stay(uint64_t seed, bool spares_older, uint64_t *ret_late)
{
    struct world *w = &world;
    bool stayed = true;
    memset(w, 0, sizeof *w);
    w->random = seed;
    w->clock = (struct fcap_clock){.wall_ms = wall_ms, .monotonic_ms = monotonic_ms};
    fcap_fake_redis_init(&w->redis, &w->clock);
    w->redis.draw = draw;
    w->redis.draw_context = w;
    w->redis.zombies = true;
    w->redis.spares_older = spares_older;
    fcap_fake_sink_open(&w->sink, &w->redis, &w->clock, "name");
    w->sink.faults = (struct fcap_fake_sink_faults){.break_per_poll = 100,
                                                    .no_connect = 200,
                                                    .busy_per_push = 100,
                                                    .refuse_per_command = 100,
                                                    .slow_per_command = 300,
                                                    .late_per_ack = 300};
    for (int i = 0; i < STEPS; i++) {
        (void)push(w, draw(w, KEYS));
        if (draw(w, 3) == 0) {
            poll_once(w);
        }
        if (draw(w, 50) == 0) {
            fcap_fake_redis_step(&w->redis);
        }
    }
    w->sink.faults = (struct fcap_fake_sink_faults){0};
    uint64_t first_last = 0;
    for (unsigned key = 0; key < KEYS; key++) {
        while (!push(w, key)) {
            poll_once(w);
        }
        first_last = key == 0 ? w->pushed - 1 : first_last;
    }
    while (w->acked < w->pushed) {
        poll_once(w);
    }
    for (int i = 0; i < 1000; i++) {
        fcap_fake_redis_step(&w->redis);
    }
    for (unsigned key = 0; key < KEYS; key++) {
        char name[8];
        char expected[24];
        struct fcap_bytes value;
        int64_t expire_at_ms;
        (void)snprintf(name, sizeof name, "k%u", key);
        (void)snprintf(expected, sizeof expected, "%llu", (unsigned long long)first_last + key);
        assert_true(fcap_fake_redis_get(&w->redis, fcap_bytes_of(name), &value, &expire_at_ms));
        stayed = stayed && fcap_bytes_equal(value, fcap_bytes_of(expected));
    }
    assert_true(w->sink.breaks > 0);
    *ret_late += w->redis.commands_done_late;
    note(w, w->redis.commands_done);
    fcap_fake_sink_close(&w->sink);
    fcap_fake_redis_done(&w->redis);
    return stayed;
}

static void test_last_values_stay_when_older_connections_are_killed(void **unused)
{
    uint64_t late = 0;
    (void)unused;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        assert_true(last_values_stay(seed, false, &late));
    }
    assert_true(late > 0); /* Abandoned commands were done, only never after a reconnect. */
}

static void test_old_values_win_when_they_are_spared(void **unused)
{
    uint64_t late = 0;
    unsigned lost = 0;
    (void)unused;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        lost += !last_values_stay(seed, true, &late);
    }
    assert_true(lost > SEEDS / 10);
}

static void test_one_seed_is_one_story(void **unused)
{
    uint64_t late = 0;
    (void)unused;
    (void)last_values_stay(7, false, &late);
    uint64_t first = world.trace;
    (void)last_values_stay(7, false, &late);
    assert_int_equal(world.trace, first);
    (void)last_values_stay(8, false, &late);
    assert_int_not_equal(world.trace, first);
}

/* An old save brings back its keys and sentinel, under another run id. */
static void test_a_restart_from_an_old_save(void **unused)
{
    struct world *w = &world;
    struct fcap_bytes value;
    int64_t expire_at_ms;
    (void)unused;
    memset(w, 0, sizeof *w);
    w->clock = (struct fcap_clock){.wall_ms = wall_ms, .monotonic_ms = monotonic_ms};
    fcap_fake_redis_init(&w->redis, &w->clock);
    fcap_fake_sink_open(&w->sink, &w->redis, &w->clock, "name");
    poll_once(w);
    assert_true(push(w, 0));
    poll_once(w);
    fcap_fake_redis_save(&w->redis);
    uint64_t sentinel = w->redis.sentinel;
    struct fcap_sink_identity before = w->sink.state.identity;
    assert_true(push(w, 0));
    assert_true(push(w, 1));
    poll_once(w);
    fcap_fake_redis_restart(&w->redis, FCAP_FAKE_RESTART_SAVED);
    assert_true(fcap_fake_redis_get(&w->redis, fcap_bytes_of("k0"), &value, &expire_at_ms));
    assert_true(fcap_bytes_equal(value, fcap_bytes_of("0")));
    assert_false(fcap_fake_redis_get(&w->redis, fcap_bytes_of("k1"), &value, &expire_at_ms));
    poll_once(w);
    assert_int_equal(w->redis.sentinel, sentinel);
    assert_memory_not_equal(&before, &w->sink.state.identity, sizeof before);
    fcap_fake_sink_close(&w->sink);
    fcap_fake_redis_done(&w->redis);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_values_stay_when_older_connections_are_killed),
        cmocka_unit_test(test_old_values_win_when_they_are_spared),
        cmocka_unit_test(test_one_seed_is_one_story),
        cmocka_unit_test(test_a_restart_from_an_old_save),
    };
    return cmocka_run_group_tests_name("fake sink", tests, NULL, NULL);
}
