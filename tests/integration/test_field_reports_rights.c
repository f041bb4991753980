/* B23: accounts with few rights, and rights and passwords that change while the daemon runs. What
 * is missing is named with the promise that it carries, consumption stalls, nothing is lost, and
 * everything heals without a restart. */
#include "lab/lab.h"
#include "live.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define USERS           100
#define PARTITIONS      2
#define POLL_MS         50
#define ACCOUNT         "  user: app\n  password: pw\n"
#define PROMISE_OF_INFO "a restarted or replaced Redis is noticed"
#define PROMISE_OF_KILL "abandoned connections of ours are closed"

static struct live live;
static struct redis_server bare; /* one with options of its own */
static unsigned serial;
static uint64_t keys_compared;
static unsigned healed;

static void init(const char *more_redis)
{
    static const struct live_window windows[] = {{"1h", 3600000}, {NULL, 0}};
    struct live_options options = {
        .partitions = PARTITIONS,
        .workers = 2,
        .windows = "[1h]",
        .lengths = windows,
        .more_redis = more_redis,
        .redis_port = bare.port,
    };
    live_init(&live, &options);
}

static int teardown(void **unused)
{
    (void)unused;
    live_done(&live);
    redis_server_stop(&bare);
    memset(&bare, 0, sizeof bare);
    return 0;
}

/* Sets the account's rights; `rules` follow "ACL SETUSER app". */
static void grant(const char *rules)
{
    char command[512];
    (void)snprintf(command, sizeof command, "ACL SETUSER app %s", rules);
    const char *answer = redis_server_ask(&live.redis, command);
    if (answer == NULL || strcmp(answer, "OK") != 0) {
        fail_msg("%s: %s", command, answer == NULL ? "no answer" : answer);
    }
}

/* Whatever is connected as the account has to connect again. */
static void hang_up(void)
{
    const char *answer = redis_server_ask(&live.redis, "CLIENT KILL USER app");
    assert_non_null(answer);
    assert_true(answer[0] != '-' && answer[0] != '0');
}

static void send_round(void)
{
    for (unsigned i = 0; i < USERS; i++) {
        char user[32];
        char ad[32];
        (void)snprintf(user, sizeof user, "user-%u", i);
        (void)snprintf(ad, sizeof ad, "ad-%u", serial++ % 7);
        live_send(&live, user, ad, lab_wall_ms(), NULL);
    }
    live_flush(&live);
}

static void await_words(const char *path, const char *words)
{
    int64_t deadline_ms = lab_monotonic_ms() + LIVE_WAIT_MS;
    do {
        (void)daemon_process_get(&live.process, path, NULL);
        if (live.process.text != NULL && strstr(live.process.text, words) != NULL) {
            return;
        }
        lab_pause_ms(POLL_MS);
    } while (lab_monotonic_ms() < deadline_ms);
    fail_msg("%s never says \"%s\": %s\n%s", path, words, live.process.text,
             daemon_process_log(&live.process));
}

static void assert_has(const char *text, const char *words)
{
    if (text == NULL || strstr(text, words) == NULL) {
        fail_msg("\"%s\" is missing: %s", words, text);
    }
}

static void assert_unready(void)
{
    assert_int_equal(daemon_process_get(&live.process, "/readyz", NULL), 503);
    assert_int_equal(daemon_process_get(&live.process, "/livez", NULL), 200);
}

static double metric(const char *name)
{
    return daemon_process_metric(&live.process, name);
}

/* The number behind `sample`, labels and all, on the metrics page. */
static double sample(const char *name)
{
    assert_int_equal(daemon_process_get(&live.process, "/metrics", NULL), 200);
    const char *found = strstr(live.process.text, name);
    if (found == NULL) {
        fail_msg("no sample %s", name);
        return 0; /* For compilers that do not know that fail_msg() never returns. */
    }
    return strtod(found + strlen(name), NULL);
}

/* All that was sent is in Redis, by the very process that met the trouble. */
static void assert_healed(pid_t pid)
{
    struct live_tally tally = {0};
    daemon_process_await(&live.process, "/readyz", 200, LIVE_WAIT_MS);
    assert_int_equal(live.process.pid, pid);
    live_await_applied(&live);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){USERS, USERS - 1, 0});
    live_passes(&tally.expiry, (struct oracle_minimum){USERS - 1, 0, 0});
    assert_true(sample("fcapd_redis_refused{worker=\"0\",command=\"INFO\"} ") == 0);
    keys_compared += tally.now.compared;
    healed++;
}

/* --- at start -------------------------------------------------------------------------------- */

/* `fcapd check` with the same file. */
static void check_says(int code, const char *kind, const char *const *words)
{
    int got = daemon_process_command(&live.process, "check", NULL, NULL);
    if (got != code) {
        fail_msg("check gives %d: %s", got, live.process.text);
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        char line[128];
        (void)snprintf(line, sizeof line, "%-5s redis: %s is refused", kind, words[i]);
        assert_has(live.process.text, line);
    }
    assert_has(live.process.text, PROMISE_OF_INFO);
}

static const char *const dangerous[] = {"INFO", "CLIENT LIST", "CLIENT KILL", NULL};

static void test_B23a_without_dangerous_commands_nothing_is_consumed(void **unused)
{
    (void)unused;
    init(ACCOUNT);
    grant("on >pw ~* +@all -@dangerous");
    send_round();
    daemon_process_start(&live.process, NULL);
    for (size_t i = 0; dangerous[i] != NULL; i++) {
        char words[64];
        (void)snprintf(words, sizeof words, "Redis refuses %s (NOPERM", dangerous[i]);
        await_words("/readyz", words);
    }
    assert_has(live.process.text, PROMISE_OF_INFO);
    assert_has(live.process.text, PROMISE_OF_KILL);
    assert_unready();
    assert_true(sample("fcapd_redis_refused{worker=\"0\",command=\"INFO\"} ") == 1);
    assert_true(sample("fcapd_redis_refused{worker=\"0\",command=\"TIME\"} ") == 0);
    assert_true(metric("fcapd_records_total") == 0);
    assert_true(metric("fcapd_kafka_records_total") == 0);
    assert_has(daemon_process_log(&live.process), "Redis refuses INFO");
    check_says(78, "FAIL", dangerous);
    pid_t pid = live.process.pid;
    grant("+@all");
    assert_healed(pid);
    live_stop(&live);
}

static void test_B23a_degraded_goes_on_and_says_so(void **unused)
{
    struct live_tally tally = {0};
    (void)unused;
    init(ACCOUNT "  degraded: allow\n");
    grant("on >pw ~* +@all -@dangerous");
    send_round();
    live_start(&live);
    live_await_applied(&live);
    live_compare(&live, true, &tally);
    live_passes(&tally.now, (struct oracle_minimum){USERS, USERS, 0});
    assert_int_equal(daemon_process_get(&live.process, "/readyz", NULL), 200);
    assert_has(live.process.text, "{\"command\":\"INFO\",\"promise\":\"" PROMISE_OF_INFO);
    assert_has(live.process.text, "{\"command\":\"CLIENT KILL\",\"promise\":\"" PROMISE_OF_KILL);
    assert_true(sample("fcapd_redis_refused{worker=\"0\",command=\"CLIENT KILL\"} ") == 1);
    assert_has(daemon_process_log(&live.process), "Redis refuses CLIENT KILL");
    check_says(0, "warn", dangerous);
    live_stop(&live);
}

static void test_B23b_an_account_for_other_keys_is_named(void **unused)
{
    (void)unused;
    init(ACCOUNT);
    grant("on >pw ~other:* +@all");
    send_round();
    daemon_process_start(&live.process, NULL);
    await_words("/readyz", "Redis refuses SET key PXAT (NOPERM");
    assert_has(live.process.text, "a key vanishes by itself when its count is zero");
    assert_unready();
    assert_true(sample("fcapd_redis_refused{worker=\"0\",command=\"SET key PXAT\"} ") == 1);
    assert_true(metric("fcapd_records_total") == 0);
    pid_t pid = live.process.pid;
    grant("~fc:*");
    assert_healed(pid);
    live_stop(&live);
}

/* --- while it runs --------------------------------------------------------------------------- */

/* Narrows the account, perhaps with a new connection; `says` must stand in /readyz, and after
 * `widen` everything is right again. Events come all the time. */
struct change {
    const char *name;
    const char *narrow;
    bool is_seen_on_connect; /* what the running connection does not need */
    const char *says;
    const char *says_too;
    const char *widen;
};

static void go_through(const struct change *change)
{
    pid_t pid = live.process.pid;
    print_message("%s\n", change->name);
    grant(change->narrow);
    if (change->is_seen_on_connect) {
        hang_up();
    }
    send_round();
    await_words("/readyz", change->says);
    await_words("/readyz", change->says_too); /* Perhaps only with the next attempt. */
    assert_unready();
    send_round();
    grant(change->widen);
    assert_healed(pid);
}

static void test_B23_rights_are_taken_while_it_runs(void **unused)
{
    static const struct change changes[] = {
        {"all keys", "resetkeys ~other:*", false, "NOPERM", "Redis", "~*"},
        {"keys of users", "resetkeys ~fc:id ~fc:meta:* ~fc:epoch:*", false,
         "Redis refuses writes (noperm)", "ACL SETUSER", "~*"},
        {"fc:meta", "resetkeys ~fc:id ~fc:epoch:* ~fc:{*", false,
         "fc:meta cannot be written (noperm)", "ACL SETUSER", "~*"},
        {"the sentinel", "resetkeys ~fc:meta:* ~fc:epoch:* ~fc:{*", false,
         "Redis refuses SET fc:id NX", "an emptied Redis is noticed", "~*"},
        {"INFO", "-info", false, "Redis refuses INFO", PROMISE_OF_INFO, "+info"},
        {"TIME", "-time", false, "Redis refuses TIME", "a wrong wall clock here expires nothing",
         "+time"},
        {"SET", "-set", false, "Redis refuses SET", "NOPERM", "+set"},
        {"CLIENT KILL", "-client|kill", true, "Redis refuses CLIENT KILL", PROMISE_OF_KILL,
         "+client|kill"},
        {"CLIENT LIST", "-client|list", true, "Redis refuses CLIENT LIST", "no old value wins",
         "+client|list"},
        {"INCR", "-incr", true, "Redis refuses INCR key", "which owner of a partition", "+incr"},
    };
    (void)unused;
    init(ACCOUNT);
    grant("on >pw ~* +@all");
    live_start(&live);
    send_round();
    assert_healed(live.process.pid);
    double refusals = sample("fcapd_redis_errors_total{worker=\"0\",kind=\"noperm\"} ");
    assert_true(refusals == 0);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        go_through(&changes[i]);
    }
    assert_true(sample("fcapd_redis_errors_total{worker=\"0\",kind=\"noperm\"} ") > refusals);
    assert_true(metric("fcapd_underflows_total") == 0);
    live_stop(&live);
}

/* Only the erased user's key is to go: no SET follows that could show that all is well again. */
static void test_B23_erasing_is_refused_and_heals_at_rest(void **unused)
{
    (void)unused;
    init(ACCOUNT);
    grant("on >pw ~* +@all");
    live_start(&live);
    send_round();
    assert_healed(live.process.pid);
    grant("-unlink");
    live_send_tombstone(&live, "user-7");
    live_flush(&live);
    await_words("/readyz", "Redis refuses writes (noperm)");
    assert_has(live.process.text, "unlink");
    assert_unready();
    assert_non_null(redis_server_ask(&live.redis, "GET fc:{user-7}:1h"));
    grant("+unlink");
    assert_healed(live.process.pid);
    assert_null(redis_server_ask(&live.redis, "GET fc:{user-7}:1h"));
    live_stop(&live);
}

static void test_B23_the_password_changes_while_connected(void **unused)
{
    (void)unused;
    init(ACCOUNT);
    grant("on >pw ~* +@all");
    live_start(&live);
    send_round();
    assert_healed(live.process.pid);
    const struct change rotated = {
        "another password", "resetpass >new", true,
        "Redis is away",    "redis.password", "resetpass >pw",
    };
    go_through(&rotated);
    assert_true(sample("fcapd_redis_errors_total{worker=\"0\",kind=\"wrongpass\"} ") > 0);
    const struct change disabled = {"the account is off",   "off", true, "WRONGPASS",
                                    "the user is disabled", "on"};
    go_through(&disabled);
    /* No word of the password anywhere. */
    assert_null(strstr(daemon_process_log(&live.process), "pw\""));
    live_stop(&live);
}

static void test_B23_the_server_gets_a_password_while_connected(void **unused)
{
    (void)unused;
    init(NULL);
    live_start(&live);
    send_round();
    assert_healed(live.process.pid);
    pid_t pid = live.process.pid;
    assert_string_equal(redis_server_ask(&live.redis, "CONFIG SET requirepass secret"), "OK");
    (void)redis_server_ask(&live.redis, "CLIENT KILL TYPE normal"); /* SKIPME is the default. */
    await_words("/readyz", "NOAUTH");
    assert_has(live.process.text, "set redis.password");
    assert_unready();
    send_round();
    assert_string_equal(redis_server_ask(&live.redis, "CONFIG SET requirepass %s", ""), "OK");
    assert_healed(pid);
    live_stop(&live);
}

/* --- managed servers, and the documents ------------------------------------------------------ */

static void test_B23c_without_config_the_policy_is_known(void **unused)
{
    static const char *const managed[] = {"--rename-command",   "CONFIG",      "",
                                          "--maxmemory-policy", "allkeys-lru", NULL};
    (void)unused;
    redis_server_start(&bare, managed);
    assert_has(redis_server_ask(&bare, "CONFIG GET maxmemory-policy"), "-ERR unknown command");
    init(NULL);
    live_start(&live);
    assert_has(daemon_process_log(&live.process), "Redis evicts (maxmemory-policy allkeys-lru)");
    assert_true(metric("fcapd_redis_evicts") > 0);
    assert_int_equal(daemon_process_command(&live.process, "check", NULL, NULL), 0);
    assert_has(live.process.text, "maxmemory-policy is allkeys-lru");
    live_stop(&live);
    redis_server_stop(&bare);

    static const char *const good[] = {"--rename-command", "CONFIG", "", NULL};
    live_done(&live);
    redis_server_start(&bare, good);
    init(NULL);
    live_start(&live);
    assert_true(metric("fcapd_redis_evicts") == 0);
    assert_int_equal(daemon_process_command(&live.process, "check", NULL, NULL), 0);
    assert_has(live.process.text, "maxmemory-policy is noeviction");
    live_stop(&live);
}

/* The line of docs/OPERATING.md, as an operator would paste it. */
static void read_line(char *line, int size)
{
    FILE *file = fopen(FCAP_OPERATING, "re");
    assert_non_null(file);
    bool found = false;
    while (!found && fgets(line, size, file) != NULL) {
        char *start = strstr(line, "ACL SETUSER fcapd ");
        if (start != NULL) {
            memmove(line, start, strlen(start) + 1);
            line[strcspn(line, "\n")] = '\0';
            found = true;
        }
    }
    (void)fclose(file);
    assert_true(found);
}

/* The line without its word number `without`; false when there is none. */
static bool drop_word(const char *line, size_t without, char *ret_line, size_t size, char *ret_word)
{
    size_t used = 0;
    size_t count = 0;
    bool has_word = false;
    for (const char *at = line; *at != '\0'; count++) {
        size_t length = strcspn(at, " ");
        if (count == without) {
            (void)snprintf(ret_word, 32, "%.*s", (int)length, at);
            has_word = true;
        } else {
            used += (size_t)snprintf(ret_line + used, size - used, "%s%.*s", used == 0 ? "" : " ",
                                     (int)length, at);
        }
        at += length;
        at += strspn(at, " ");
    }
    return has_word;
}

static void test_B23_the_least_account_of_the_documents_works(void **unused)
{
    static const char *const db_one[] = {"--set", "redis.db=1", NULL};
    char line[512];
    char less[512];
    char word[32];
    unsigned dropped = 0;
    (void)unused;
    read_line(line, sizeof line);
    print_message("%s\n", line);
    init("  user: fcapd\n  password: PASSWORD\n");
    assert_string_equal(redis_server_ask(&live.redis, line), "OK");
    live_start(&live);
    send_round();
    live_send_tombstone(&live, "user-3");
    live_flush(&live);
    assert_healed(live.process.pid);
    assert_null(strstr(daemon_process_log(&live.process), "refuses"));
    assert_int_equal(daemon_process_command(&live.process, "check", db_one, NULL), 0);
    live_stop(&live);

    /* And it is the least: without any of its words something is named. */
    for (size_t i = 0; drop_word(line, i, less, sizeof less, word); i++) {
        if (word[0] != '+' && word[0] != '~') {
            continue;
        }
        assert_string_equal(redis_server_ask(&live.redis, "ACL DELUSER fcapd"), "1");
        assert_string_equal(redis_server_ask(&live.redis, less), "OK");
        if (daemon_process_command(&live.process, "check", db_one, NULL) != 78) {
            fail_msg("nobody misses %s:\n%s", word, live.process.text);
        }
        assert_has(live.process.text, "is refused");
        dropped++;
    }
    assert_in_range(dropped, 8, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_B23a_without_dangerous_commands_nothing_is_consumed,
                                  teardown),
        cmocka_unit_test_teardown(test_B23a_degraded_goes_on_and_says_so, teardown),
        cmocka_unit_test_teardown(test_B23b_an_account_for_other_keys_is_named, teardown),
        cmocka_unit_test_teardown(test_B23_rights_are_taken_while_it_runs, teardown),
        cmocka_unit_test_teardown(test_B23_erasing_is_refused_and_heals_at_rest, teardown),
        cmocka_unit_test_teardown(test_B23_the_password_changes_while_connected, teardown),
        cmocka_unit_test_teardown(test_B23_the_server_gets_a_password_while_connected, teardown),
        cmocka_unit_test_teardown(test_B23c_without_config_the_policy_is_known, teardown),
        cmocka_unit_test_teardown(test_B23_the_least_account_of_the_documents_works, teardown),
    };
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("result: healed %u times, %" PRIu64 " keys compared\n", healed, keys_compared);
    return code;
}
