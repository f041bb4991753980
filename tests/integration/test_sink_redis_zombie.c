/* An abandoned connection must not let an old value win: a server that was frozen works off what
 * lies in the abandoned socket, in small portions, beside the new connection. The scene runs ten
 * times as it is, and ten times with the mutant ZOMBIE, which must let the old value win: else it
 * would show nothing.
 *
 * The old socket stays open, as that of a hanging or cut-off process does. One that was closed on
 * this machine shows no harm here: the server's first answer meets a reset, and it gives up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/mutant.h"
#include "lab/redis_server.h"
#include "lib/sink_driver.h"
#include "lab/lab.h"

enum { ROUNDS = 10, FILLERS = 20000 };

static struct fixture {
    struct redis_server server;
    struct sink_driver old;
    struct sink_driver new;
    unsigned old_won;
} fixture;

static int setup(void **unused)
{
    (void)unused;
    memset(&fixture, 0, sizeof fixture);
    redis_server_start(&fixture.server, NULL);
    fcap_mutant = FCAP_MUTANT_NONE;
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    sink_driver_close(&fixture.old);
    sink_driver_close(&fixture.new);
    redis_server_stop(&fixture.server);
    fcap_mutant = FCAP_MUTANT_NONE;
    return 0;
}

/* A ready sink whose socket holds a long queue, at its end SET k old. The server is frozen. */
static void fill_socket(struct fixture *f)
{
    sink_driver_init(&f->old, f->server.port);
    f->old.settings.commands_in_flight_max = FILLERS + 1;
    f->old.settings.command_timeout_ms = 60000;
    f->old.settings.identity_interval_ms = 100000;
    f->old.settings.time_interval_ms = 100000;
    sink_driver_open(&f->old);
    assert_true(sink_driver_until_ready(&f->old));
    redis_server_freeze(&f->server);
    for (int i = 0; i < FILLERS; i++) {
        assert_int_equal(sink_driver_push(&f->old, FCAP_PUSH_SET, "filler", "x"), FCAP_OK);
    }
    assert_int_equal(sink_driver_push(&f->old, FCAP_PUSH_SET, "k", "old"), FCAP_OK);
    sink_driver_poll(&f->old);
    assert_int_equal(sink_driver_status(&f->old).unsent_bytes, 0); /* The kernel has all of it. */
}

/* The new connection writes its value, and then the old one gets all the time it wants. */
static void let_new_win(struct fixture *f, struct sink_driver *new)
{
    assert_true(sink_driver_until_ready(new));
    sink_driver_set(new, "k", "new");
    int64_t end_ms = lab_monotonic_ms() + 300;
    bool old = false;
    while (!old && lab_monotonic_ms() < end_ms) {
        sink_driver_poll_for(new, 5);
        old = strcmp(redis_server_ask(&f->server, "GET k"), "old") == 0;
    }
    f->old_won += old;
}

/* A process hangs or is cut off from the network; its successor of the same name takes over. */
static void run_scene(struct fixture *f)
{
    fill_socket(f);
    sink_driver_init(&f->new, f->server.port);
    sink_driver_open(&f->new);
    sink_driver_poll(&f->new);
    redis_server_thaw(&f->server);
    let_new_win(f, &f->new);
    uint64_t killed = sink_driver_status(&f->new).counters.connections_killed;
    assert_int_equal(killed, fcap_mutant == FCAP_MUTANT_ZOMBIE ? 0 : 1);
    sink_driver_close(&f->new);
    sink_driver_close(&f->old);
}

static unsigned old_wins(enum fcap_mutant mutant)
{
    fixture.old_won = 0;
    fcap_mutant = mutant;
    for (int round = 0; round < ROUNDS; round++) {
        run_scene(&fixture);
    }
    fcap_mutant = FCAP_MUTANT_NONE;
    return fixture.old_won;
}

static void test_a_successor_kills_the_abandoned_connection(void **unused)
{
    (void)unused;
    assert_int_equal(old_wins(FCAP_MUTANT_NONE), 0);
    unsigned mutant = old_wins(FCAP_MUTANT_ZOMBIE);
    print_message("result: ZOMBIE: the old value won %u of %d times\n", mutant, ROUNDS);
    assert_true(mutant >= 1);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_successor_kills_the_abandoned_connection),
    };
    return cmocka_run_group_tests_name("Redis sink: abandoned connections", tests, NULL, NULL);
}
