/* `fcapd demo` as somebody runs it: whole runs, Ctrl-C, a dead daemon, wrong keys, a real Kafka and
 * Redis, and logs. Nothing may stay behind. */
#include "lab/kafka_broker.h"
#include "lab/lab.h"
#include "lab/redis_reader.h"
#include "lab/redis_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RUN_MS   300000
#define TEXT_MAX 200000

struct child {
    pid_t pid;
    int output; /* both streams */
    size_t size;
    char folder[64]; /* its TMPDIR */
    char text[TEXT_MAX];
};

/* --- running --------------------------------------------------------------------------------- */

static void start(struct child *child, const char *const *arguments)
{
    const char *all[24] = {"fcapd", "demo", "--no-tty"};
    int channel[2];
    size_t count = 3;
    for (; *arguments != NULL; arguments++) {
        all[count++] = *arguments;
    }
    memset(child, 0, sizeof *child);
    lab_folder_make("demo", child->folder, sizeof child->folder);
    assert_int_equal(pipe2(channel, O_CLOEXEC), 0);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setenv("TMPDIR", child->folder, 1);
        (void)dup2(channel[1], STDOUT_FILENO);
        (void)dup2(channel[1], STDERR_FILENO);
        (void)execv(FCAPD_PROGRAM, (char *const *)(uintptr_t)all);
        _exit(127);
    }
    (void)close(channel[1]);
    child->output = channel[0];
}

/* False at the end of the output. */
static bool read_more(struct child *child, int64_t deadline_ms)
{
    struct pollfd wanted = {.fd = child->output, .events = POLLIN};
    int64_t left_ms = deadline_ms - lab_monotonic_ms();
    if (left_ms <= 0 || poll(&wanted, 1, (int)left_ms) == 0) {
        fail_msg("nothing more to read; so far:\n%s", child->text);
    }
    assert_true(child->size + 1 < TEXT_MAX);
    ssize_t got = read(child->output, child->text + child->size, TEXT_MAX - child->size - 1);
    if (got > 0) {
        child->size += (size_t)got;
        child->text[child->size] = '\0';
    }
    return got > 0;
}

static void await_text(struct child *child, const char *text)
{
    int64_t deadline_ms = lab_monotonic_ms() + RUN_MS;
    while (strstr(child->text, text) == NULL) {
        if (!read_more(child, deadline_ms)) {
            fail_msg("\"%s\" never came:\n%s", text, child->text);
        }
    }
}

static pid_t daemon_of(const struct child *child)
{
    const char *at = strstr(child->text, "fcapd   pid ");
    return at == NULL ? 0 : (pid_t)strtol(at + strlen("fcapd   pid "), NULL, 10);
}

static uint16_t redis_of(const struct child *child)
{
    const char *at = strstr(child->text, "redis   127.0.0.1:");
    assert_non_null(at);
    return (uint16_t)strtol(at + strlen("redis   127.0.0.1:"), NULL, 10);
}

static int count_entries(const char *folder)
{
    DIR *directory = opendir(folder);
    int count = 0;
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    (void)closedir(directory);
    return count;
}

/* The exit code; checks that nothing is left. The end of the output comes only when every process
 * that holds it has ended. */
static int finish(struct child *child)
{
    int status = 0;
    int64_t deadline_ms = lab_monotonic_ms() + RUN_MS;
    while (read_more(child, deadline_ms)) {
    }
    (void)close(child->output);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    if (daemon_of(child) > 0) {
        assert_int_equal(kill(daemon_of(child), 0), -1);
        assert_int_equal(errno, ESRCH);
    }
    assert_int_equal(count_entries(child->folder), 0);
    lab_folder_remove(child->folder);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct audit {
    uint64_t keys;
    uint64_t differ;
};

/* The last line. */
static struct audit audit_of(const struct child *child)
{
    struct audit audit = {0};
    const char *at = strstr(child->text, "\naudit: ");
    int used = 0;
    if (at == NULL || sscanf(at, "\naudit: %" SCNu64 " keys compared, %" SCNu64 " differ\n%n",
                             &audit.keys, &audit.differ, &used) != 2) {
        fail_msg("no audit:\n%s", child->text);
    }
    return audit;
}

static void assert_right(struct child *child, uint64_t keys_min)
{
    int code = finish(child);
    struct audit audit = audit_of(child);
    if (code != 0 || audit.differ != 0 || audit.keys < keys_min) {
        fail_msg("exit code %d:\n%s", code, child->text);
    }
    print_message("result: demo, keys compared: %" PRIu64 ", %" PRIu64 " differ\n", audit.keys,
                  audit.differ);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void test_a_run_ends_with_every_key_right(void **unused)
{
    static const char *const arguments[] = {"--events", "20000", "--seconds", "6", NULL};
    static struct child child;
    (void)unused;
    start(&child, arguments);
    assert_right(&child, 1000);
    /* What was watched: counts that rose, and fell. */
    assert_non_null(strstr(child.text, "compared after half: "));
    assert_non_null(strstr(child.text, "compared after the last one: "));
    assert_non_null(strstr(child.text, "  rising "));
    assert_non_null(strstr(child.text, "  falling "));
    assert_null(strchr(child.text, '\033')); /* Plain lines. */
}

#define CANDIDATES 3000

/* Users with just one impression, which stays in the longest window until after the comparison: no
 * change of the daemon's own can heal their keys. */
static void find_quiet_users(struct redis_reader *reader, int *ret_users, size_t wanted)
{
    static char names[CANDIDATES][32];
    static const char *keys[CANDIDATES];
    static struct redis_seen seen[CANDIDATES];
    size_t found = 0;
    for (size_t i = 0; i < CANDIDATES; i++) {
        (void)snprintf(names[i], sizeof names[i], "fc:{u%zu}:30s", i + 1);
        keys[i] = names[i];
    }
    redis_reader_get(reader, keys, CANDIDATES, seen);
    for (size_t i = 0; i < CANDIDATES && found < wanted; i++) {
        const char *value = seen[i].value;
        const char *counts = value == NULL ? NULL : strstr(value, "\"counts\":");
        if (counts != NULL && strchr(counts, ',') == NULL && strstr(counts, ":1}}") != NULL &&
            seen[i].pxat_ms > lab_wall_ms() + 18000) {
            ret_users[found++] = (int)i + 1;
        }
    }
    redis_reader_drop(seen, CANDIDATES);
    assert_int_equal(found, wanted);
}

/* Several kinds at once; each is one difference. */
static void test_wrong_keys_are_found(void **unused)
{
    static const char *const arguments[] = {"--events", "6000", "--seconds", "4", NULL};
    static const char wrong[] = "{\"v\":1,\"as_of\":1,\"counts\":{\"a1\":99}}";
    static struct child child;
    char error[256];
    char key[64];
    int users[3];
    (void)unused;
    start(&child, arguments);
    await_text(&child, "  falling ");
    struct redis_server redis = {.port = redis_of(&child)}; /* Its own; we only talk to it. */
    struct redis_reader *reader = redis_reader_open("127.0.0.1", redis.port, error, sizeof error);
    assert_non_null(reader);
    find_quiet_users(reader, users, 3);
    (void)snprintf(key, sizeof key, "fc:{u%d}:30s", users[0]);
    redis_reader_unlink(reader, key);
    redis_reader_close(reader);
    (void)redis_server_ask(&redis, "SET fc:{u%d}:30s %s KEEPTTL", users[1], wrong);
    assert_string_equal(redis_server_ask(&redis, "PERSIST fc:{u%d}:30s", users[2]), "1");
    assert_string_equal(redis_server_ask(&redis, "SET fc:{nobody}:30s %s", wrong), "OK");
    assert_string_equal(redis_server_ask(&redis, "SET fc:{u1}:7d %s", wrong), "OK");
    redis_server_kill(&redis); /* pid 0: just our connection. */
    free(redis.answer);
    assert_int_equal(finish(&child), 1);
    struct audit audit = audit_of(&child);
    if (audit.differ != 5) {
        fail_msg("%" PRIu64 " differ:\n%s", audit.differ, child.text);
    }
    assert_non_null(strstr(child.text, "a key that should not be there: fc:{nobody}:30s"));
    assert_non_null(strstr(child.text, "a key that should not be there: fc:{u1}:7d"));
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(key, sizeof key, "user \"u%d\" window 30000 ms", users[i]);
        assert_non_null(strstr(child.text, key));
    }
    assert_non_null(strstr(child.text, "PXAT -1"));
}

/* At once, while the parts start, and in the middle. */
static void test_ctrl_c_leaves_nothing(void **unused)
{
    static const char *const arguments[] = {"--events", "20000", "--seconds", "20", NULL};
    static const char *const moments[] = {"redis ", "kafka ", "fcapd ", "look ", " rising "};
    static struct child child;
    (void)unused;
    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        start(&child, arguments);
        await_text(&child, moments[i]);
        assert_int_equal(kill(child.pid, i % 2 == 0 ? SIGINT : SIGTERM), 0);
        int code = finish(&child);
        if (code != 128 + (i % 2 == 0 ? SIGINT : SIGTERM)) {
            fail_msg("exit code %d:\n%s", code, child.text);
        }
        assert_null(strstr(child.text, "audit: "));
    }
}

/* `fcapd demo 2>&1 | head`: what it says on its way out must not end it before it has cleaned up.
 */
static void test_nothing_is_left_when_nobody_reads(void **unused)
{
    static const char *const arguments[] = {"--events", "20000", "--seconds", "20", NULL};
    static const int signals[] = {SIGINT, SIGQUIT};
    static struct child child;
    (void)unused;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        int status = 0;
        start(&child, arguments);
        await_text(&child, "look ");
        (void)close(child.output);
        assert_int_equal(kill(child.pid, signals[i]), 0);
        assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 128 + signals[i]);
        assert_int_equal(kill(daemon_of(&child), 0), -1);
        assert_int_equal(count_entries(child.folder), 0);
        lab_folder_remove(child.folder);
    }
}

static void test_a_dead_daemon_is_told_with_the_end_of_its_log(void **unused)
{
    static const char *const arguments[] = {"--events", "20000", "--seconds", "20", NULL};
    static struct child child;
    (void)unused;
    start(&child, arguments);
    await_text(&child, "look ");
    assert_int_equal(kill(daemon_of(&child), SIGKILL), 0);
    assert_int_equal(finish(&child), 1);
    assert_non_null(strstr(child.text, "the daemon has ended with code 137"));
    assert_non_null(strstr(child.text, "the end of its log"));
    assert_non_null(strstr(strstr(child.text, "the end of its log"), "Z info "));
}

/* The stopped daemon seems to say that everything is applied, and partition 3 as of a minute ago:
 * its values are right for some moment since then. */
static void plant_an_old_claim(const struct child *child)
{
    struct redis_server redis = {.port = redis_of(child)};
    static const char next[] = "\"next\":";
    static const char as_of[] = "\"as_of\":";
    char meta[8192];
    char digits[24];
    const char *answer = redis_server_ask(&redis, "GET fc:meta:demo:one");
    assert_non_null(answer);
    size_t size = 0;
    for (const char *at = answer; *at != '\0'; at++) {
        assert_true(size + 2 < sizeof meta);
        meta[size++] = *at;
        meta[size] = '\0';
        if (size >= strlen(next) && strcmp(meta + size - strlen(next), next) == 0) {
            meta[size++] = '9'; /* Far more than there is. */
        }
    }
    meta[size] = '\0';
    char *at = strstr(meta, "\"3\":{");
    assert_non_null(at);
    at = strstr(at, as_of);
    assert_non_null(at);
    at += strlen(as_of);
    int count = snprintf(digits, sizeof digits, "%lld", strtoll(at, NULL, 10) - 60000);
    assert_int_equal(count, strspn(at, "0123456789"));
    memcpy(at, digits, (size_t)count);
    assert_string_equal(redis_server_ask(&redis, "SET fc:meta:demo:one %s", meta), "OK");
    redis_server_kill(&redis); /* pid 0: just our connection. */
    free(redis.answer);
}

/* One hangs while impressions come, the other at the end; side by side, since the first takes its
 * minute. */
static void test_a_daemon_that_hangs_is_told(void **unused)
{
    static const char *const arguments[] = {"--events", "200000", "--seconds", "600", NULL};
    static const char *const few[] = {"--events", "6000", "--seconds", "4", NULL};
    static struct child child;
    static struct child old;
    (void)unused;
    start(&child, arguments);
    await_text(&child, "  rising ");
    assert_int_equal(kill(daemon_of(&child), SIGSTOP), 0);

    start(&old, few);
    await_text(&old, "  falling ");
    assert_int_equal(kill(daemon_of(&old), SIGSTOP), 0);
    plant_an_old_claim(&old);
    assert_int_equal(finish(&old), 1);
    if (strstr(old.text, "compared while counts fall: ") == NULL ||
        strstr(old.text, "partition 3 is claimed to be ") == NULL ||
        strstr(old.text, "\naudit: ") != NULL) {
        fail_msg("no old claim:\n%s", old.text);
    }

    assert_int_equal(finish(&child), 1);
    const char *told = strstr(child.text, "the daemon has read nothing for 60 s");
    if (told == NULL || strstr(told, "/readyz: no answer") == NULL ||
        strstr(told, "the end of its log") == NULL || strstr(told, "Z info ") == NULL) {
        fail_msg("not told:\n%s", child.text);
    }
}

static void topic_of(const struct child *child, char name[80])
{
    const char *at = strstr(child->text, "topic fcapd-demo-");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "topic %79[^,]", name), 1);
}

/* Of the tests here only one needs a broker; CI must have it. */
static bool has_broker(void)
{
    char why[1024];
    const char *given = getenv("FCAP_TEST_BROKERS");
    const char *ci = getenv("CI");
    if ((given != NULL && given[0] != '\0') || kafka_broker_lib(why, sizeof why) != NULL ||
        (ci != NULL && strcmp(ci, "true") == 0)) {
        return true;
    }
    print_message("skipped: %s\n", why);
    return false;
}

static void test_a_real_kafka_and_redis_are_left_as_they_were(void **unused)
{
    static struct child child;
    static struct redis_server redis;
    char address[32];
    char why[256];
    char name[80];
    (void)unused;
    if (!has_broker()) {
        skip();
    }
    const char *brokers = kafka_test_brokers();
    redis_server_start(&redis, NULL);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", redis.port);
    assert_string_equal(redis_server_ask(&redis, "SET fc:{u1}:30s theirs"), "OK");
    const char *const arguments[] = {"--brokers", brokers,     "--redis", address, "--events",
                                     "20000",     "--seconds", "6",       NULL};
    start(&child, arguments);
    assert_right(&child, 2000);
    topic_of(&child, name);
    assert_string_equal(redis_server_ask(&redis, "DBSIZE"), "1");
    assert_string_equal(redis_server_ask(&redis, "GET fc:{u1}:30s"), "theirs");
    assert_false(kafka_has_topic(brokers, name));

    /* The same after Ctrl-C. */
    start(&child, arguments);
    await_text(&child, "  rising ");
    topic_of(&child, name);
    assert_true(kafka_has_topic(brokers, name));
    assert_int_equal(kill(child.pid, SIGINT), 0);
    assert_int_equal(finish(&child), 130);
    assert_string_equal(redis_server_ask(&redis, "DBSIZE"), "1");
    assert_false(kafka_has_topic(brokers, name));
    assert_true(kafka_try_delete_topic(brokers, name, why, sizeof why)); /* Fine when absent. */
    redis_server_stop(&redis);
}

static void test_a_log_is_replayed(void **unused)
{
    static struct child child;
    char folder[64];
    char path[96];
    (void)unused;
    lab_folder_make("demo-log", folder, sizeof folder);
    (void)snprintf(path, sizeof path, "%s/log.csv", folder);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    (void)fprintf(file, "when;who;what\n");
    for (int i = 0; i < 3000; i++) { /* Ten minutes of 2017; users that need escaping. */
        (void)fprintf(file, "2017-05-06 00:%02d:%02d.%03d;{u%%%d};\"ad \"\"%d\"\"\"\n", i / 300,
                      i / 5 % 60, i % 5 * 200, i * 7919 % 401, i % 13);
    }
    (void)fprintf(file, "never;u1;a1\n");
    assert_int_equal(fclose(file), 0);
    const char *const arguments[] = {"--input",   path, "--map", "user=who,ad=what,time=when",
                                     "--seconds", "5",  NULL};
    start(&child, arguments);
    assert_right(&child, 401);
    assert_non_null(strstr(child.text, "3000 rows, 401 users, 600 s of log in 5.0 s"));
    assert_non_null(strstr(child.text, "1 rows cannot be used; the first: line 3002: neither ISO"));
    lab_folder_remove(folder);
}

/* Side by side: they are small. */
static void test_the_real_logs_are_replayed(void **unused)
{
    static const struct {
        const char *file;
        const char *map;
        const char *rows;
        uint64_t keys;
    } logs[] = {
        {"obd_random_men.csv",
         "user=user_feature_0+user_feature_1+user_feature_2+user_feature_3,ad=item_id,"
         "time=timestamp",
         "10000 rows, 230 users", 230},
        {"otto_sessions.jsonl", "user=session,ad=events[].aid,time=events[].ts",
         "862 rows, 20 users", 20},
        {"taobao_ad_train_sample.csv", "user=userid,ad=adgroup_id,time=time_stamp",
         "100 rows, 24 users, 2 s of log in 2.0 s", 24},
    };
    static struct child children[3];
    const char *folder = getenv("FCAP_SHARED_DATA");
    (void)unused;
    if (folder == NULL || folder[0] == '\0') {
        print_message("skipped: FCAP_SHARED_DATA names no folder of real logs\n");
        skip();
    }
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", folder, logs[i].file);
        const char *const arguments[] = {"--input",   path, "--map", logs[i].map,
                                         "--seconds", "6",  NULL};
        start(&children[i], arguments);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_right(&children[i], logs[i].keys);
        if (strstr(children[i].text, logs[i].rows) == NULL) {
            fail_msg("not \"%s\":\n%s", logs[i].rows, children[i].text);
        }
    }
}

static void test_what_cannot_be_done_is_said(void **unused)
{
    static const struct {
        const char *arguments[5];
        int code;
        const char *text;
    } cases[] = {
        {{"--events", "many"}, 64, "--events many: a number above 0"},
        {{"--frobnicate"}, 64, "--frobnicate: no such argument"},
        {{"--redis", "127.0.0.1"}, 64, "HOST:PORT is wanted"},
        {{"--redis", "127.0.0.1:1"}, 1, "--redis 127.0.0.1:1: Connection refused"},
        {{"--input", "/nowhere/log.csv"}, 1, "/nowhere/log.csv: No such file"},
        {{"--help"}, 0, "--input FILE"},
    };
    static struct child child;
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        start(&child, cases[i].arguments);
        int code = finish(&child);
        if (code != cases[i].code || strstr(child.text, cases[i].text) == NULL) {
            fail_msg("exit code %d, not %d with \"%s\":\n%s", code, cases[i].code, cases[i].text,
                     child.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_cannot_be_done_is_said),
        cmocka_unit_test(test_a_run_ends_with_every_key_right),
        cmocka_unit_test(test_wrong_keys_are_found),
        cmocka_unit_test(test_ctrl_c_leaves_nothing),
        cmocka_unit_test(test_nothing_is_left_when_nobody_reads),
        cmocka_unit_test(test_a_dead_daemon_is_told_with_the_end_of_its_log),
        cmocka_unit_test(test_a_daemon_that_hangs_is_told),
        cmocka_unit_test(test_a_log_is_replayed),
        cmocka_unit_test(test_the_real_logs_are_replayed),
        cmocka_unit_test(test_a_real_kafka_and_redis_are_left_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
