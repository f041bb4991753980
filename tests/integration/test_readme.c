/* What README.md shows an ad server: its Python reads what the real daemon wrote, and the answers
 * are the definition's; Go and JavaScript are parsed. */
#include "integration/live.h"
#include "lab/lab.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define README FCAP_SOURCE_DIR "/README.md"
#define SCRIPT FCAP_SOURCE_DIR "/tests/integration/readme.py"
#define ADS    4

static struct live live;
static const struct live_window windows[] = {{"1h", 3600000}, {"1d", 86400000}, {NULL, 0}};
static const char *const users[] = {"user-1", "user 2", "50%",       "{tag}",  "%7Btag%7D", "}{",
                                    "a:b:1h", "%25",    "\xc3\xa9t", "user-3", "user-4"};
static const char *const ads[ADS] = {"a", "constructor", "\xc3\xa9", "never shown"};
#define USERS (sizeof users / sizeof users[0])

/* The first Python that knows Redis. */
static const char *python(void)
{
    static const char *const names[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char command[128];
        (void)snprintf(command, sizeof command, "%s -c 'import redis' 2>/dev/null", names[i]);
        if (system(command) == 0) {
            return names[i];
        }
    }
    return NULL;
}

static int setup(void **unused)
{
    static const struct live_options options = {
        .partitions = 3, .workers = 2, .windows = "[1h, 1d]", .lengths = windows};
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

static void ask(const char *expectations)
{
    char command[1024];
    char path[160];
    char folder[128];
    lab_folder_make("fcap-readme", folder, sizeof folder);
    (void)snprintf(path, sizeof path, "%s/questions", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(expectations, file) >= 0 && fclose(file) == 0);
    (void)snprintf(command, sizeof command, "%s %s %s count %d test %s", python(), SCRIPT, README,
                   (int)live.redis.port, path);
    assert_int_equal(system(command), 0);
    lab_folder_remove(folder);
}

static uint64_t count_of(const char *user, const char *ad, int64_t window_ms)
{
    static struct oracle_counts counts;
    struct oracle_query query = {.user = user, .window_ms = window_ms, .at_ms = lab_wall_ms()};
    oracle_query(live.oracle, &query, &counts);
    for (size_t i = 0; i < counts.count; i++) {
        if (strcmp(counts.rows[i].ad, ad) == 0) {
            return counts.rows[i].count;
        }
    }
    return 0;
}

static void answers_are_the_definitions(void)
{
    static char questions[1 << 16];
    size_t size = 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < USERS; i++) {
        for (size_t k = 0; k < ADS; k++) {
            for (size_t w = 0; windows[w].name != NULL; w++) {
                uint64_t count = count_of(users[i], ads[k], windows[w].length_ms);
                size += (size_t)snprintf(questions + size, sizeof questions - size,
                                         "%s\t%s\t%s\t%llu\n", users[i], windows[w].name, ads[k],
                                         (unsigned long long)count);
                sum += count;
            }
        }
    }
    assert_true(sum >= 3 * USERS);
    (void)snprintf(questions + size, sizeof questions - size, "nobody\t1h\ta\t0\n");
    ask(questions);
    print_message("result: %zu counts read by the Python of README.md, 0 wrong\n",
                  USERS * ADS * 2 + 1);
}

static void put(const char *key, const char *value)
{
    const char *answer = redis_server_ask(&live.redis, "SET %s %s", key, value);
    assert_true(answer != NULL && strcmp(answer, "OK") == 0);
}

/* What the daemon does not do by itself in a test: values that were cut, entries of fc:meta that
 * contradict each other. */
static void unknown_is_told(void)
{
    char meta[512];
    static const char form[] = "{\"v\":1,\"at\":%lld,\"partitions\":3,\"tasks\":{\"0\":{\"epoch\":"
                               "%d,\"as_of\":1,\"next\":0,\"complete_since\":0,\"ready\":[\"1d\"]}"
                               "}}";
    put("fc:{cut}:1h", "{\"v\":1,\"as_of\":1,\"counts\":{\"a\":2},\"partial\":true}");
    ask("cut\t1h\ta\t2\ncut\t1h\tb\tunknown\n");
    (void)snprintf(meta, sizeof meta, form, (long long)lab_wall_ms(), 0); /* an older epoch */
    put("fc:meta:test:older", meta);
    ask("nobody\t1h\ta\t0\nnobody\t1d\ta\t0\n");
    (void)snprintf(meta, sizeof meta, form, (long long)lab_wall_ms(), 1000000);
    put("fc:meta:test:newer", meta);
    ask("nobody\t1h\ta\tunknown\nnobody\t1d\ta\t0\ncut\t1h\ta\t2\n");
    assert_non_null(redis_server_ask(&live.redis, "DEL fc:meta:test:newer"));
    ask("nobody\t1h\ta\t0\n");
    live_stop(&live);
    assert_non_null(redis_server_ask(&live.redis, "%s", "FLUSHALL"));
    ask("nobody\t1h\ta\tunknown\n");
    put("fc:meta:test:alone", meta); /* one partition of three */
    ask("nobody\t1d\ta\tunknown\n");
}

static void test_python_reads_what_the_daemon_wrote(void **unused)
{
    (void)unused;
    if (python() == NULL) {
        print_message("skipped: no Python with the package redis (python3-redis)\n");
        skip();
    }
    live_start(&live);
    for (size_t i = 0; i < USERS; i++) {
        for (size_t k = 0; k < 3; k++) {
            for (size_t n = 0; n <= (i + k) % 3; n++) {
                /* Some of them only in the longer window. */
                live_send(&live, users[i], ads[k], lab_wall_ms() - (int64_t)n * 7200000, NULL);
            }
        }
    }
    live_await_applied(&live);
    answers_are_the_definitions();
    unknown_is_told();
}

/* `package` is where the tool comes from. */
static void check_syntax(const char *language, const char *tool, const char *options,
                         const char *package)
{
    char command[1024];
    if (python() == NULL) {
        print_message("skipped: no Python with the package redis (python3-redis)\n");
        skip();
    }
    (void)snprintf(command, sizeof command, "command -v %s >/dev/null", tool);
    if (system(command) != 0) {
        print_message("skipped: no %s (%s)\n", tool, package);
        skip();
    }
    (void)snprintf(command, sizeof command, "%s %s %s syntax %s %s %s", python(), SCRIPT, README,
                   language, tool, options);
    assert_int_equal(system(command), 0);
}

static void test_go_is_parsed(void **unused)
{
    (void)unused;
    check_syntax("go", "gofmt", "-e -l", "golang-go");
}

static void test_javascript_is_parsed(void **unused)
{
    (void)unused;
    check_syntax("js", "node", "--check", "nodejs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_python_reads_what_the_daemon_wrote, setup, teardown),
        cmocka_unit_test(test_go_is_parsed),
        cmocka_unit_test(test_javascript_is_parsed),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
