/* The sink's contract must notice a sink that breaks it: each planted fault of a fake is run
 * through the whole suite, whose report is thrown away, and must make at least one of its tests
 * fail. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "contract/sink_contract.h"
#include "lib/fake_world.h"

/* A sink around the fake that spoils one thing. */
enum planted {
    PLANTED_NOTHING,
    PLANTED_EXPIRES_LATE,
    PLANTED_EXPIRES_EARLY,
    PLANTED_TIME_AHEAD,
    PLANTED_IDENTITY_STUCK,
    PLANTED_IDENTITY_RESTLESS,
    PLANTED_UNKNOWN_IS_DONE,
    PLANTED_REFUSED_IS_DONE,
    PLANTED_DONE_IS_LOST,
    PLANTED_ACK_TWICE,
    PLANTED_BUSY_IS_OK,
    PLANTED_CONNECTION_STUCK,
    PLANTED_SPARES_OLDER,
    PLANTED_COUNT
};

static enum planted planted;

struct spoiled {
    struct fcap_sink sink;
    struct fcap_sink *inner;
    const struct fcap_sink_handler *handler;
    struct fcap_sink_identity identity;
    bool identity_known;
    uint64_t states;
};

static struct spoiled spoiled_sinks[FAKE_WORLD_SINKS_MAX];

static enum fcap_status spoiled_push(struct fcap_sink *base, const struct fcap_push *push)
{
    struct spoiled *spoiled = (struct spoiled *)base;
    struct fcap_push copy = *push;
    copy.expire_at_ms += planted == PLANTED_EXPIRES_LATE;
    copy.expire_at_ms -= planted == PLANTED_EXPIRES_EARLY;
    enum fcap_status status = spoiled->inner->ops->push(spoiled->inner, &copy);
    return planted == PLANTED_BUSY_IS_OK ? FCAP_OK : status;
}

static void spoiled_acked(void *context, uint64_t token, enum fcap_push_result result,
                          int64_t integer)
{
    const struct spoiled *spoiled = context;
    const struct fcap_sink_handler *handler = spoiled->handler;
    if (planted == PLANTED_DONE_IS_LOST && token == 3) {
        return;
    }
    if ((planted == PLANTED_UNKNOWN_IS_DONE && result == FCAP_PUSH_UNKNOWN) ||
        (planted == PLANTED_REFUSED_IS_DONE && result == FCAP_PUSH_REFUSED)) {
        result = FCAP_PUSH_DONE;
    }
    handler->acked(handler->context, token, result, integer);
    if (planted == PLANTED_ACK_TWICE) {
        handler->acked(handler->context, token, result, integer);
    }
}

static enum fcap_status spoiled_poll(struct fcap_sink *base,
                                     const struct fcap_sink_handler *handler, int timeout_ms)
{
    struct spoiled *spoiled = (struct spoiled *)base;
    struct fcap_sink_handler ours = {.context = spoiled, .acked = spoiled_acked};
    spoiled->handler = handler;
    return spoiled->inner->ops->poll(spoiled->inner, &ours, timeout_ms);
}

static void spoiled_state(struct fcap_sink *base, struct fcap_sink_state *ret_state)
{
    struct spoiled *spoiled = (struct spoiled *)base;
    spoiled->inner->ops->state(spoiled->inner, ret_state);
    if (ret_state->ready && !spoiled->identity_known) {
        spoiled->identity = ret_state->identity;
        spoiled->identity_known = true;
    }
    if (planted == PLANTED_IDENTITY_STUCK && spoiled->identity_known) {
        ret_state->identity = spoiled->identity;
    }
    if (planted == PLANTED_IDENTITY_RESTLESS && ret_state->ready) {
        ret_state->identity.bytes[0] = (uint8_t)(++spoiled->states / 500);
    }
    ret_state->time_ms += planted == PLANTED_TIME_AHEAD;
    if (planted == PLANTED_CONNECTION_STUCK) {
        ret_state->connection = 1;
    }
}

static struct fcap_sink *spoiled_open(unsigned worker, size_t in_flight_max)
{
    static const struct fcap_sink_ops ops = {spoiled_push, spoiled_poll, spoiled_state};
    for (size_t i = 0; i < FAKE_WORLD_SINKS_MAX; i++) {
        if (spoiled_sinks[i].inner == NULL) {
            spoiled_sinks[i] = (struct spoiled){.sink.ops = &ops};
            spoiled_sinks[i].inner = fake_world.open(worker, in_flight_max);
            return &spoiled_sinks[i].sink;
        }
    }
    fail_msg("too many sinks");
    return NULL;
}

static void spoiled_close(struct fcap_sink *sink)
{
    struct spoiled *spoiled = (struct spoiled *)sink;
    fake_world.close(spoiled->inner);
    spoiled->inner = NULL;
}

static void spoiled_start(void)
{
    memset(spoiled_sinks, 0, sizeof spoiled_sinks);
    fake_world.start();
    fake_world_redis()->spares_older = planted == PLANTED_SPARES_OLDER;
}

/* A test that failed may have left a second sink open. */
static void spoiled_stop(void)
{
    for (size_t i = 0; i < FAKE_WORLD_SINKS_MAX; i++) {
        if (spoiled_sinks[i].inner != NULL) {
            spoiled_close(&spoiled_sinks[i].sink);
        }
    }
    fake_world.stop();
}

static int run_quietly(void)
{
    struct sink_world world = fake_world;
    world.name = "planted";
    world.open = spoiled_open;
    world.close = spoiled_close;
    world.start = spoiled_start;
    world.stop = spoiled_stop;
    (void)fflush(NULL);
    int out = dup(STDOUT_FILENO);
    int err = dup(STDERR_FILENO);
    int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)dup2(nothing, STDOUT_FILENO);
    (void)dup2(nothing, STDERR_FILENO);
    int failed = sink_contract_run(&world);
    (void)fflush(NULL);
    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(err, STDERR_FILENO);
    (void)close(out);
    (void)close(err);
    (void)close(nothing);
    return failed;
}

/* cmocka keeps its state in globals, so the suite runs before the test that judges it. */
static int failures[PLANTED_COUNT];

static void test_the_suite_passes_without_a_fault(void **unused)
{
    (void)unused;
    assert_int_equal(failures[PLANTED_NOTHING], 0);
}

static void test_the_suite_notices_every_planted_fault(void **unused)
{
    (void)unused;
    for (int i = PLANTED_NOTHING + 1; i < PLANTED_COUNT; i++) {
        if (failures[i] == 0) {
            fail_msg("planted fault %d was not noticed", i);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_suite_passes_without_a_fault),
        cmocka_unit_test(test_the_suite_notices_every_planted_fault),
    };
    for (int i = 0; i < PLANTED_COUNT; i++) {
        planted = (enum planted)i;
        failures[i] = run_quietly();
    }
    return cmocka_run_group_tests_name("sink contract: planted faults", tests, NULL, NULL);
}
