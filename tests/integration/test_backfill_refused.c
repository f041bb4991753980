/* `fcapd backfill` says at once what cannot work, and why. */
#include "live.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct live_window windows[] = {
    {"1h", 3600000}, {"1d", 86400000}, {"7d", 7 * 86400000}, {NULL, 0}};

static const struct live_options options = {
    .partitions = 4, .workers = 1, .windows = "[1h, 1d, 7d]", .lengths = windows};

static struct live live;

static void refused(const char *const *arguments, int code, const char *text)
{
    int found = daemon_process_command(&live.process, "backfill", arguments, NULL);
    if (found != code || strstr(live.process.text, text) == NULL) {
        fail_msg("exit code %d, no \"%s\":\n%s", found, text, live.process.text);
    }
}

static void test_what_cannot_work_is_said_at_once(void **unused)
{
    (void)unused;
    static const char *const compact[] = {"cleanup.policy", "compact", NULL};
    const char *topic = kafka_unique("compact");
    char set[300];
    kafka_create_topic(kafka_test_brokers(), topic, 1, compact);
    (void)snprintf(set, sizeof set, "kafka.topic=%s", topic);
    refused((const char *const[]){"--set", set, NULL}, 78, "compact");
    refused((const char *const[]){"--set", "kafka.topic=not-there", NULL}, 78, "not-there");
    refused((const char *const[]){"--windows", "1d,2d", NULL}, 64,
            "\"2d\" is no configured window; these are: 1h 1d 7d");
    refused((const char *const[]){"--windows", "", NULL}, 64, "no window");
    refused((const char *const[]){"--patience", "0", NULL}, 64, "seconds");
    refused(
        (const char *const[]){"--spill", "/nowhere", "--set", "kafka.brokers=127.0.0.1:1", NULL},
        78, "--spill"); /* Nobody is asked before. */
    /* Short while nothing has ever answered. Kafka has as long, which comes first. */
    refused((const char *const[]){"--set", "redis.port=1", NULL}, 75, "given up after 1");
    refused((const char *const[]){"--set", "kafka.librdkafka.group.id=x", NULL}, 78, "kafka.group");
}

static int setup(void **unused)
{
    (void)unused;
    live_init(&live, &options);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_cannot_work_is_said_at_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
