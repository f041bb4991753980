/* MONITOR's lines become the commands that they were, and each thing that must never be written is
 * found: an account that cannot be wrong proves nothing. */
#include "lab/redis_ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* --- lines ----------------------------------------------------------------------------------- */

static void test_lines(void **state)
{
    /* clang-format off */
    static const struct {
        const char *line;
        int64_t at_us;      /* 0: not a command */
        const char *client;
        size_t count;
        const char *last;
        size_t last_size;
    } rows[] = {
        {"1764460800.123456 [0 127.0.0.1:51234] \"ping\"", 1764460800123456, "127.0.0.1:51234", 1, "ping", 4},
        {"1764460800.000007 [0 127.0.0.1:5] \"SET\" \"fc:{u}:1d\" \"{\\\"v\\\":1}\"", 1764460800000007, "127.0.0.1:5", 3, "{\"v\":1}", 7},
        {"1764460800.000000 [15 [::1]:5] \"GET\" \"a] \\\"b\"", 1764460800000000, "[::1]:5", 2, "a] \"b", 5},
        {"1764460800.000000 [0 unix:/tmp/a b.sock] \"GET\" \"k\"", 1764460800000000, "unix:/tmp/a b.sock", 2, "k", 1},
        {"1764460800.000000 [0 lua] \"GET\" \"\"", 1764460800000000, "lua", 2, "", 0},
        {"1764460800.000000 [0 a] \"E\" \"\\n\\r\\t\\a\\b\\\\\\\"\"", 1764460800000000, "a", 2, "\n\r\t\a\b\\\"", 7},
        {"1764460800.000000 [0 a] \"E\" \"\\x00\\xc3\\xa9\\xFF\"", 0, NULL, 0, NULL, 0}, /* Redis writes small letters */
        {"1764460800.000000 [0 a] \"E\" \"x\\x00\\xc3\\xa9\"", 1764460800000000, "a", 2, "x\0\xc3\xa9", 4},
        {"1764460800.000000 [0 a] \"1\" \"2\" \"3\" \"4\" \"5\" \"6\" \"7\" \"8\" \"9\"", 1764460800000000, "a", 9, NULL, 0},
        {"", 0, NULL, 0, NULL, 0},
        {"OK", 0, NULL, 0, NULL, 0},
        {"1764460800.1 [0 a] \"GET\"", 0, NULL, 0, NULL, 0},
        {"1764460800.000000 \"GET\"", 0, NULL, 0, NULL, 0},
        {"1764460800.000000 [0 a] GET", 0, NULL, 0, NULL, 0},
        {"1764460800.000000 [0 a] \"GET", 0, NULL, 0, NULL, 0},
        {"1764460800.000000 [0 a] \"GET\" ", 0, NULL, 0, NULL, 0},
        {"1764460800.000000 [0 a] \"GET\"\"k\"", 0, NULL, 0, NULL, 0},
        {"1764460800.000000 [0 a] \"G\\q\"", 0, NULL, 0, NULL, 0},
        {"1764460800.000000 [0 a] \"G\\x4\"", 0, NULL, 0, NULL, 0},
        {"1764460800.000000 [0 a] \"G\\", 0, NULL, 0, NULL, 0},
    };
    /* clang-format on */
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[256];
        struct redis_command command;
        size_t size = strlen(rows[i].line);
        memcpy(line, rows[i].line, size + 1);
        bool is_one = redis_monitor_read(line, size, &command);
        if (is_one != (rows[i].at_us != 0)) {
            fail_msg("row %zu", i);
        }
        if (!is_one) {
            continue;
        }
        assert_int_equal(command.at_us, rows[i].at_us);
        assert_string_equal(command.client, rows[i].client);
        assert_int_equal(command.count, rows[i].count);
        if (rows[i].last != NULL) {
            const struct redis_word *word = &command.words[command.count - 1];
            assert_int_equal(word->size, rows[i].last_size);
            assert_memory_equal(word->text, rows[i].last, word->size + 1);
        }
    }
}

static void test_words_in_any_case(void **state)
{
    char line[] = "1764460800.000000 [0 a] \"sEt\" \"k\"";
    struct redis_command command;
    (void)state;
    assert_true(redis_monitor_read(line, strlen(line), &command));
    assert_true(redis_command_has(&command, 0, "SET"));
    assert_false(redis_command_has(&command, 0, "SE"));
    assert_false(redis_command_has(&command, 1, "SET"));
    assert_false(redis_command_has(&command, 2, "SET"));
}

/* --- the account ----------------------------------------------------------------------------- */

#define NOW "1764460800.000000"
#define SET(client, user, as_of, more)                                                             \
    NOW " [0 " client "] \"SET\" \"fc:{" user "}:1d\" \"{\\\"v\\\":1,\\\"as_of\\\":" as_of         \
        ",\\\"counts\\\":{\\\"a\\\":1}}\" \"PXAT\" \"1764460900000\"" more
#define INCR(client, partition) NOW " [0 " client "] \"INCR\" \"fc:epoch:days:" partition "\""
#define UNLINK(client, user)    NOW " [0 " client "] \"UNLINK\" \"fc:{" user "}:1d\""
#define NAME(client)            NOW " [0 " client "] \"CLIENT\" \"SETNAME\" \"fcapd:days:one:0\""
#define META(epoch)                                                                                \
    NOW " [0 m] \"SET\" \"fc:meta:days:one\" \"{\\\"v\\\":1,\\\"tasks\\\":{\\\"2\\\":{"            \
        "\\\"epoch\\\":" epoch ",\\\"as_of\\\":5,\\\"next\\\":7,\\\"ready\\\":[]}}}\" \"PXAT\" "   \
        "\"1764460900000\""

/* "u2": the digit is the partition. */
static int32_t partition_of(const void *context, const char *user)
{
    (void)context;
    return user[1] - '0';
}

/* Enters lines; what is wrong then begins with `want`, "" for nothing. */
static struct redis_ledger *ledger_of(const char *const *lines, size_t keys_max)
{
    const struct redis_ledger_options options = {
        .profile = "days", .partitions = 4, .partition_of = partition_of, .keys_max = keys_max};
    struct redis_ledger *ledger = redis_ledger_open(&options);
    for (size_t i = 0; lines[i] != NULL; i++) {
        char line[512];
        struct redis_command command;
        size_t size = strlen(lines[i]);
        memcpy(line, lines[i], size + 1);
        assert_true(redis_monitor_read(line, size, &command));
        redis_ledger_take(ledger, &command);
    }
    return ledger;
}

static void test_what_is_wrong(void **state)
{
    /* clang-format off */
    static const struct {
        const char *want; /* NULL: nothing is wrong */
        const char *lines[8];
    } rows[] = {
        {NULL, {INCR("a", "2"), SET("a", "u2", "5", ""), SET("a", "u2", "5", ""), SET("a", "u2", "6", ""), UNLINK("a", "u2")}},
        {"fc:{u2}:1d: written by a before it took partition 2 (command 1)", {SET("a", "u2", "5", "")}},
        {"fc:{u2}:1d: written by a before", {UNLINK("a", "u2"), INCR("a", "2")}},
        {"fc:{u2}:1d: written by a before", {INCR("a", "1"), SET("a", "u2", "5", "")}},
        {"fc:{u2}:1d: written by b before", {INCR("a", "2"), SET("b", "u2", "5", "")}},
        {"fc:{u2}:1d: written by a before", {INCR("a", "2"), NAME("a"), SET("a", "u2", "5", "")}},
        {NULL, {NAME("a"), INCR("a", "2"), SET("a", "u2", "5", "")}},
        {NULL, {SET("a", "%probe:one:0", "5", ""), NOW " [0 a] \"UNLINK\" \"fc:{%probe:one:0}:1d\""}},
        {"fc:{u2}:1d: as_of falls from 6 to 5 (command 3)", {INCR("a", "2"), SET("a", "u2", "6", ""), SET("a", "u2", "5", "")}},
        {"fc:{u2}:1d: as_of falls", {INCR("a", "2"), SET("a", "u2", "6", ""), UNLINK("a", "u2"), SET("a", "u2", "5", "")}},
        {"fc:{u2}:1d: as_of falls", {INCR("a", "2"), INCR("b", "2"), SET("a", "u2", "6", ""), SET("b", "u2", "5", "")}},
        {NULL, {INCR("a", "2"), SET("a", "u2", "6", ""), SET("a", "u2", "5", " \"NX\"")}}, /* kept */
        {"fc:{u2}:1d: as_of falls", {INCR("a", "2"), SET("a", "u2", "6", ""), UNLINK("a", "u2"), SET("a", "u2", "5", " \"NX\"")}},
        {"fc:{u2}:1d: as_of falls", {INCR("a", "2"), SET("a", "u2", "6", ""), NOW " [0 t] \"FLUSHALL\"", SET("a", "u2", "5", " \"NX\"")}},
        {NULL, {INCR("a", "2"), NOW " [0 a] \"EVAL\" \"return 1\" \"0\"", SET("lua", "u2", "5", " \"NX\"")}},
        {"fc:{u2}:1d: written by b before", {INCR("a", "2"), NOW " [0 b] \"EVALSHA\" \"0\" \"0\"", SET("lua", "u2", "5", " \"NX\"")}},
        {"fc:meta claims partition 2 with epoch 1, counted up 0 times (command 1)", {META("1"), INCR("a", "2")}},
        {"fc:meta claims partition 2 with epoch 0", {INCR("a", "2"), META("0")}},
        {"fc:meta claims partition 2 with epoch 2", {INCR("a", "2"), META("2")}},
        {NULL, {INCR("a", "2"), META("1"), INCR("a", "2"), META("1"), META("2")}},
        {"fc:epoch:days:4: there is no such partition", {INCR("a", "4")}},
        {NULL, {NOW " [0 a] \"INCR\" \"fc:epoch:days:probe\"", NOW " [0 a] \"INCR\" \"fc:epoch:hours:9\""}},
        {"fc:{u2}:1d: a value without an end", {INCR("a", "2"), NOW " [0 a] \"SET\" \"fc:{u2}:1d\" \"{\\\"as_of\\\":5}\""}},
        {"fc:{u2}:1d: a value without as_of", {INCR("a", "2"), NOW " [0 a] \"SET\" \"fc:{u2}:1d\" \"{}\" \"PXAT\" \"1764460900000\""}},
        {"command 1: more keys are removed", {NOW " [0 a] \"DEL\" \"1\" \"2\" \"3\" \"4\" \"5\" \"6\" \"7\" \"8\""}},
    };
    /* clang-format on */
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct redis_ledger *ledger = ledger_of(rows[i].lines, 10);
        const struct redis_ledger_report *report = redis_ledger_report(ledger);
        const char *want = rows[i].want == NULL ? "" : rows[i].want;
        if (report->wrong != (rows[i].want != NULL) ||
            strncmp(report->text, want, strlen(want)) != 0) {
            fail_msg("row %zu: %s", i, report->text);
        }
        redis_ledger_close(ledger);
    }
}

static void add_first(void *context, const char *user, const char *window, const char *value,
                      size_t size_bytes)
{
    char *text = context;
    size_t used = strlen(text);
    (void)snprintf(text + used, 256 - used, "%s %s %zu %.16s;", user, window, size_bytes, value);
}

static void test_what_is_counted(void **state)
{
    static const char *const lines[] = {NAME("a"),
                                        INCR("a", "2"),
                                        SET("a", "u2", "6", ""),
                                        META("1"),
                                        SET("a", "u2", "7", ""),
                                        UNLINK("a", "u2"),
                                        SET("a", "u2", "8", " \"NX\""),
                                        SET("a", "u2", "9", " \"NX\""),
                                        UNLINK("a", "u2x"),
                                        SET("a", "u2y", "6", ""),
                                        INCR("b", "2"),
                                        NULL};
    char text[256] = "";
    (void)state;
    struct redis_ledger *ledger = ledger_of(lines, 3);
    const struct redis_ledger_report *report = redis_ledger_report(ledger);
    const struct redis_ledger_partition *account = &report->partitions[2];
    assert_string_equal(report->text, "");
    assert_int_equal(report->commands, 11);
    assert_int_equal(report->names, 1);
    assert_int_equal(report->claims, 1);
    assert_int_equal(report->sets, 4);
    assert_int_equal(report->kept, 1);
    assert_int_equal(report->unlinks, 2);
    assert_int_equal(report->keys, 3);
    assert_int_equal(account->increments, 2);
    assert_int_equal(account->first_increment, 2);
    assert_int_equal(account->last_increment, 11);
    assert_int_equal(account->first_increment_us, 1764460800000000);
    assert_int_equal(account->writes, 7);
    assert_int_equal(account->first_write, 3);
    assert_int_equal(report->partitions[1].writes, 0);
    redis_ledger_each_first(ledger, add_first, text);
    assert_string_equal(text, "u2 1d 34 {\"v\":1,\"as_of\":6;u2y 1d 34 {\"v\":1,\"as_of\":6;");
    redis_ledger_close(ledger);
}

/* Nothing is forgotten in silence. */
static void test_more_keys_than_there_is_room_for(void **state)
{
    static const char *const lines[] = {INCR("a", "2"), SET("a", "u2", "6", ""),
                                        SET("a", "u2x", "6", ""), SET("a", "u2y", "6", ""), NULL};
    (void)state;
    struct redis_ledger *ledger = ledger_of(lines, 1);
    assert_int_equal(redis_ledger_report(ledger)->wrong, 1);
    assert_non_null(strstr(redis_ledger_report(ledger)->text, "more than 1 keys"));
    redis_ledger_close(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_words_in_any_case),
        cmocka_unit_test(test_what_is_wrong),
        cmocka_unit_test(test_what_is_counted),
        cmocka_unit_test(test_more_keys_than_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
