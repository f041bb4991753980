/* Starts one broker for a whole run of tests: prints "host:port" and runs until SIGTERM or SIGINT.
 * tests/run.sh puts that line into FCAP_TEST_BROKERS. Exits with 77 when there are no jars. */
#include "lab/kafka_broker.h"

#include <signal.h>
#include <stdio.h>

int main(void)
{
    sigset_t signals;
    int caught = 0;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    struct kafka_broker *broker = kafka_broker_start();
    /* Blocked only now: the broker's process must not inherit it. */
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    (void)printf("%s\n", kafka_broker_address(broker));
    (void)fflush(stdout);
    (void)sigwait(&signals, &caught);
    kafka_broker_stop(broker);
    return 0;
}
