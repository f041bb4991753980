/* Starts one broker for a whole run of tests: prints "host:port" and runs until SIGTERM or SIGINT.
 * tests/run.sh puts that line into FCAP_TEST_BROKERS. Exits with 77 when there are no jars. */
#include "lab/kafka_broker.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static int usage(const char *argument)
{
    bool is_help = strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
    (void)fprintf(
        is_help ? stdout : stderr,
        "usage: fcap-test-broker\n"
        "Starts a Kafka broker, prints its host:port and runs until SIGTERM or SIGINT.\n");
    return is_help ? 0 : 64;
}

int main(int count, char **arguments)
{
    if (count > 1) {
        return usage(arguments[1]);
    }
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
