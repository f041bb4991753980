/* The field reports B34 (what YAML leaves to its reader) and B35 (what the environment brings), and
 * every problem in one run. */
#include "config_fixture.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- B34 ------------------------------------------------------------------------------------ */

static void b34_repeated_keys_name_both_places(void **state)
{
    (void)state;
    const struct fcap_config_set set = {"redis.host", "c"};
    struct loaded loaded = load_sets(LEAST "redis:\n  host: a\n  port: 1\n  host: b\n", &set, 1);
    assert_report(&loaded, "test.yaml:6:3: `redis.host`: stands twice; the first is at line 4, "
                           "column 3\n");
    assert_int_equal(loaded.status, FCAP_CONFIG);
    unload(&loaded);

    /* --set over the file once is no repetition; twice on the command line is. */
    loaded = load_sets(LEAST "redis: {host: a}", &set, 1);
    assert_int_equal(loaded.status, FCAP_OK);
    assert_string_equal(loaded.config.redis.host, "c");
    unload(&loaded);
    const struct fcap_config_set twice[] = {
        {"redis.host", "c"}, {"redis.db", "1"}, {"redis.host", "d"}};
    loaded = load_sets(LEAST, twice, 3);
    assert_report(&loaded, "--set `redis.host`: stands twice on the command line (--set number 1 "
                           "and 3)\n");
    unload(&loaded);

    /* Sections, entries of a map and of a window, and the same key spelled by an escape. */
    assert_refused(LEAST "redis: {db: 1}\nredis: {db: 2}\n",
                   "test.yaml:4:1: `redis`: stands twice; the first is at line 3, column 1\n");
    assert_refused("kafka: {brokers: a, topic: t, librdkafka: {x.y: 1, \"x.\\x79\": 2}}\n"
                   "windows: [{length: 1d, length: 2d}]\n",
                   "test.yaml:1:52: `kafka.librdkafka.x.y`: stands twice; the first is at line 1, "
                   "column 44\n"
                   "test.yaml:2:24: `windows.length`: stands twice; the first is at line 2, "
                   "column 12\n");
}

static void b34_merge_keys_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const with[] = {"", "  host: own\n"};
    for (size_t i = 0; i < 2; i++) { /* Without and with overlap. */
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml,
                       LEAST "log: &base\n  level: info\nredis:\n  <<: *base\n%s", with[i]);
        assert_refused(yaml,
                       "test.yaml:3:6: the anchor `base` is not supported: write values where "
                       "they belong\n"
                       "test.yaml:6:3: the merge key `<<` is not supported: write the keys "
                       "out\n"
                       "test.yaml:6:7: the alias `base` is not supported: write the value "
                       "out\n");
    }
    assert_refused(LEAST "<<: {workers: 2}\n",
                   "test.yaml:3:1: the merge key `<<` is not supported: write the keys out\n");
    assert_refused("kafka: {brokers: a, topic: t, librdkafka: {<<: {x: 1}}}\nwindows: [{<<: {}}]\n",
                   "test.yaml:1:44: the merge key `<<` is not supported: write the keys out\n"
                   "test.yaml:2:12: the merge key `<<` is not supported: write the keys out\n");
}

static int64_t monotonic_ms(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t resident_kib_max(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

static void b34_alias_bombs_and_loops_are_refused_at_once(void **state)
{
    (void)state;
    char yaml[4096] = LEAST "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n";
    for (int level = 1; level <= 9; level++) {
        size_t size = strlen(yaml);
        int last = level - 1;
        (void)snprintf(yaml + size, sizeof yaml - size,
                       "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", level, level,
                       last, last, last, last, last, last, last, last, last);
    }
    (void)strcat(yaml, "redis: {prot: 1}\n"); /* A problem behind the bomb is still told. */
    int64_t before_ms = monotonic_ms();
    int64_t before_kib = resident_kib_max();
    struct loaded loaded = load(yaml);
    char *report = printed(&loaded.report);
    assert_int_equal(loaded.status, FCAP_CONFIG);
    assert_true(monotonic_ms() - before_ms < 2000);
    assert_true(resident_kib_max() - before_kib < 64 * 1024);
    assert_non_null(strstr(report, "the anchor `a0` is not supported"));
    assert_non_null(strstr(report, "the alias `a0` is not supported"));
    assert_non_null(strstr(report, "unknown key `redis.prot`; did you mean `redis.port`?"));
    assert_non_null(strstr(report, "and 83 more")); /* 10 anchors and 81 aliases, 8 told. */
    free(report);
    unload(&loaded);

    assert_refused(LEAST "log: &log {level: *log}\n",
                   "test.yaml:3:6: the anchor `log` is not supported: write values where they "
                   "belong\n"
                   "test.yaml:3:19: the alias `log` is not supported: write the value out\n");
    assert_refused(LEAST "log: !!map {level: !!str info}\n",
                   "test.yaml:3:6: the tag `tag:yaml.org,2002:map` is not supported: the key "
                   "decides the type\n"
                   "test.yaml:3:20: the tag `tag:yaml.org,2002:str` is not supported: the key "
                   "decides the type\n");
}

static void b34_tabs_and_second_documents_are_refused(void **state)
{
    (void)state;
    assert_refused("windows: [1d]\nkafka:\n\tbrokers: a\n",
                   "test.yaml:3:1: a tab in the indentation; YAML allows spaces only\n");
    assert_refused(LEAST "---\nworkers: 2\n",
                   "test.yaml:3:1: a second document begins here; the configuration is one "
                   "document\n");
    assert_refused(LEAST "...\n---\n", "test.yaml:4:1: a second document begins here; the "
                                       "configuration is one document\n");
    struct loaded loaded = assert_accepted("%YAML 1.1\n---\n" LEAST "...\n");
    unload(&loaded);
}

static void b34_byte_order_mark_and_crlf_are_accepted(void **state)
{
    (void)state;
    struct loaded loaded = assert_accepted("\xef\xbb\xbf"
                                           "kafka:\r\n  brokers: a\r\n  topic: t\r\n"
                                           "windows: [1d]\r\nprofile: p\r\n");
    assert_string_equal(loaded.config.kafka.topic, "t");
    assert_string_equal(loaded.config.profile, "p");
    unload(&loaded);
}

static const struct {
    const char *line;
    const char *near; /* NULL: no suggestion */
} mistyped[] = {
    {"Redis: {host: a}", "redis"},
    {"redis: {hots: a}", "redis.host"},
    {"redis: {Host: a}", "redis.host"},
    {"worker: 2", "workers"},
    {"kafka.session_timeout: 1s", NULL}, /* told to nest it */
    {"session_timeout: 1s", "kafka.session_timeout"},
    {"kafak: {start: latest}", "kafka"},
    {"rocksdb: {user: {bloom_bits: 1}}", "rocksdb.users"},
    {"rocksdb: {users: {bloom_bit: 1}}", "rocksdb.users.bloom_bits"},
    {"quite_another_thing: 1", NULL},
};

static void b34_unknown_keys_name_the_nearest(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistyped / sizeof mistyped[0]; i++) {
        struct loaded loaded = load_with(mistyped[i].line);
        char *report = printed(&loaded.report);
        char wanted[128] = "";
        assert_int_equal(loaded.status, FCAP_CONFIG);
        assert_int_equal(loaded.report.errors, 1);
        if (mistyped[i].near != NULL) {
            (void)snprintf(wanted, sizeof wanted, "did you mean `%s`?", mistyped[i].near);
        } else {
            assert_null(strstr(report, "did you mean"));
        }
        if (strstr(report, wanted) == NULL) {
            fail_msg("%s: %s", mistyped[i].line, report);
        }
        free(report);
        unload(&loaded);
    }
}

static void b34_only_regular_files_of_some_size_are_read(void **state)
{
    (void)state;
    char folder[] = "/tmp/fcap-config-XXXXXX";
    char fifo[64];
    char huge[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    (void)snprintf(huge, sizeof huge, "%s/huge", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int file = open(huge, O_WRONLY | O_CREAT, 0600);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)1 << 40), 0);
    assert_int_equal(close(file), 0);
    const struct {
        const char *path;
        const char *problem;
    } cases[] = {
        {folder, "is a directory, not a regular file"},
        {fifo, "is a FIFO, not a regular file"},
        {huge, "is larger than 1024 KiB"},
        {"/dev/zero", "is a device, not a regular file"},
        {"/nowhere/fcapd.yaml", "cannot be opened: No such file or directory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[256];
        struct loaded loaded = {0};
        (void)snprintf(wanted, sizeof wanted, "%s: the configuration %s\n", cases[i].path,
                       cases[i].problem);
        loaded.status = fcap_config_load(cases[i].path, NULL, 0, &loaded.config, &loaded.report);
        assert_report(&loaded, wanted);
        assert_int_equal(loaded.status, FCAP_CONFIG);
        unload(&loaded);
    }
    assert_int_equal(unlink(fifo) | unlink(huge) | rmdir(folder), 0);
}

/* All kinds of problem, all told, in the order of the file. */
static void b34_everything_is_told_in_one_run(void **state)
{
    (void)state;
    const struct fcap_config_set sets[] = {
        {"limits.user_id_bytes", "x"}, {"windos", "1d"}, {"redis", "x"}, {"kafka.librdkafka", "x"}};
    struct loaded loaded = load_sets("windows: [1d]\n"
                                     "workers: many\n"
                                     "redis:\n"
                                     "  port: 70000\n"
                                     "  hots: a\n"
                                     "  host: a\n"
                                     "  host: b\n"
                                     "  password: ${FCAP_TEST_UNSET}\n"
                                     "kafka:\n"
                                     "  brokers: a\n"
                                     "  start: sometime\n"
                                     "  dead_letter: x\n"
                                     "state: {directory: }\n"
                                     "timers: [1]\n",
                                     sets, 4);
    assert_report(
        &loaded, "test.yaml:2:10: workers: `many` is not an integer\n"
                 "test.yaml:4:9: redis.port: `70000` is out of range; must be 1 to 65535\n"
                 "test.yaml:5:3: unknown key `redis.hots`; did you mean `redis.host`?\n"
                 "test.yaml:7:3: `redis.host`: stands twice; the first is at line 6, column 3\n"
                 "test.yaml:8:13: redis.password: the environment variable FCAP_TEST_UNSET is not "
                 "set\n"
                 "test.yaml:10:12: kafka.topic: is missing and has no default\n"
                 "test.yaml:11:10: kafka.start: `sometime` is not one of lookback|earliest|latest\n"
                 "test.yaml:12:3: kafka.dead_letter: is a section and needs keys below it\n"
                 "test.yaml:13:20: state.directory: has no value; give one, or remove the line\n"
                 "test.yaml:14:1: timers: is a section and needs keys below it\n"
                 "--set `limits.user_id_bytes`: limits.user_id_bytes: `x` is not an integer\n"
                 "--set `windos`: unknown key `windos`; did you mean `windows`?\n"
                 "--set `redis`: is a section; set one of its keys\n"
                 "--set `kafka.librdkafka`: is a map; set its entries, as in "
                 "kafka.librdkafka.<property>=<text>\n");
    assert_int_equal(loaded.status, FCAP_CONFIG);
    assert_int_equal(loaded.report.errors, 14);
    assert_int_equal(loaded.report.problems[1].line, 4);
    assert_int_equal(loaded.report.problems[1].column, 9);
    unload(&loaded);
}

static void b34_a_flood_of_problems_is_counted(void **state)
{
    (void)state;
    char *yaml = malloc(200000);
    assert_non_null(yaml);
    size_t size = (size_t)sprintf(yaml, "%s", LEAST);
    for (int i = 0; i < 4000; i++) {
        size += (size_t)sprintf(yaml + size, "k%d: 1\n", i);
    }
    int64_t before_ms = monotonic_ms();
    struct loaded loaded = load(yaml);
    char *report = printed(&loaded.report);
    assert_int_equal(loaded.report.count, FCAP_CONFIG_PROBLEMS_MAX);
    assert_non_null(strstr(report, "\nand 3900 more\n"));
    assert_true(monotonic_ms() - before_ms < 5000);
    free(report);
    unload(&loaded);

    /* Depth and number of nodes are bounded too. */
    memset(yaml, '[', 100000);
    yaml[100000] = '\0';
    assert_refused(yaml, "test.yaml:1:1: the file must hold keys and values (key: value)\n"
                         "test.yaml:1:17: nested too deep for a configuration\n");
    size = (size_t)sprintf(yaml, "a: [");
    for (int i = 0; i < 20000; i++) {
        size += (size_t)sprintf(yaml + size, "1,");
    }
    assert_refused(yaml, "test.yaml:1:1: unknown key `a`\n"
                         "test.yaml:1:19999: the file holds too many values for a configuration\n");
    free(yaml);
}

/* --- B35 ------------------------------------------------------------------------------------ */

static void set_environment(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static void b35_service_links_change_nothing(void **state)
{
    (void)state;
    struct loaded before = assert_accepted(LEAST);
    char *wanted = effective(&before.config);
    set_environment("FCAPD_PORT", "tcp://10.0.0.9:8080");
    set_environment("FCAPD_METRICS_PORT", "tcp://10.0.0.9:9187");
    set_environment("FCAPD_SERVICE_HOST", "10.0.0.9");
    set_environment("FCAPD_REDIS_PORT", "tcp://10.0.0.9:6379");
    set_environment("REDIS_PORT", "tcp://10.0.0.9:6379");
    set_environment("REDIS_HOST", "10.0.0.9");
    struct loaded after = assert_accepted(LEAST);
    char *now = effective(&after.config);
    assert_string_equal(now, wanted);
    free(now);
    free(wanted);
    unload(&before);
    unload(&after);
}

static void b35_substitution_is_one_scalar_after_parsing(void **state)
{
    (void)state;
    static const char odd[] = "a: #b\"c'$d{e}\\";
    set_environment("FCAP_TEST_PW", odd);
    set_environment("FCAP_TEST_A", "${FCAP_TEST_B}");
    set_environment("FCAP_TEST_B", "never");
    set_environment("FCAP_TEST_HOST", "r1");
    set_environment("FCAP_TEST_PORT", "7000");
    struct loaded loaded =
        assert_accepted(LEAST "redis:\n"
                              "  password: ${FCAP_TEST_PW}\n"
                              "  user: ${FCAP_TEST_A}\n"
                              "  host: ${FCAP_TEST_HOST}.${FCAP_TEST_HOST}.local\n"
                              "  port: \"${FCAP_TEST_PORT}\"\n"
                              "state:\n  directory: /$$x/$${FCAP_TEST_B}/$$$$\n");
    assert_string_equal(loaded.config.redis.password, odd);
    assert_string_equal(loaded.config.redis.user, "${FCAP_TEST_B}");
    assert_string_equal(loaded.config.redis.host, "r1.r1.local");
    assert_int_equal(loaded.config.redis.port, 7000);
    assert_string_equal(loaded.config.state.directory, "/$x/${FCAP_TEST_B}/$$");
    unload(&loaded);

    /* Inside [ ] it must be quoted, and the message says so; keys are never replaced. */
    loaded = assert_accepted("kafka: {brokers: \"${FCAP_TEST_HOST}:1,b:2\", topic: t}\n"
                             "windows: [1d]\nevent: {ignore_users: [\"${FCAP_TEST_HOST}\"]}\n");
    assert_string_equal(loaded.config.kafka.brokers, "r1:1,b:2");
    assert_string_equal(loaded.config.event.ignore_users.items[0], "r1");
    unload(&loaded);
    loaded = load(LEAST "event: {ignore_users: [${FCAP_TEST_HOST}]}\n");
    char *report = printed(&loaded.report);
    assert_non_null(strstr(report, "quote a text with ${...} inside [ ] or { }"));
    free(report);
    unload(&loaded);
    assert_refused(LEAST "${FCAP_TEST_HOST}: 1\n",
                   "test.yaml:3:1: unknown key `${FCAP_TEST_HOST}`\n");
}

static void b35_what_cannot_be_replaced_is_named(void **state)
{
    (void)state;
    set_environment("FCAP_TEST_NEWLINE", "secret\n");
    assert_refused(
        LEAST "redis:\n"
              "  password: ${FCAP_TEST_NEWLINE}\n"
              "  user: ${FCAP_TEST_UNSET}\n"
              "  host: $HOST\n"
              "  socket: ${}\n"
              "  key: ${A-B}\n"
              "state: {directory: '${open'}\n",
        "test.yaml:4:13: redis.password: the value of the environment variable "
        "FCAP_TEST_NEWLINE ends in a newline\n"
        "test.yaml:5:9: redis.user: the environment variable FCAP_TEST_UNSET is not set\n"
        "test.yaml:6:9: redis.host: a $ that begins no ${NAME} must be written $$\n"
        "test.yaml:7:11: redis.socket: ${...} takes NAME or file:PATH, not ``\n"
        "test.yaml:8:8: redis.key: ${...} takes NAME or file:PATH, not `A-B`\n"
        "test.yaml:9:20: state.directory: a $ that begins no ${NAME} must be written "
        "$$\n");
}

/* Writes a file, loads it as redis.password, gives the report or the password. */
static char *password_from(const char *folder, const void *bytes, size_t size)
{
    char path[64];
    char line[128];
    (void)snprintf(path, sizeof path, "%s/secret", folder);
    (void)snprintf(line, sizeof line, "redis: {password: '${file:%s}'}", path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    struct loaded loaded = load_with(line);
    char *result =
        loaded.status == FCAP_OK ? strdup(loaded.config.redis.password) : printed(&loaded.report);
    assert_non_null(result);
    unload(&loaded);
    assert_int_equal(unlink(path), 0);
    return result;
}

static const struct {
    const char *bytes;
    size_t size;
    const char *wanted; /* the password, or a part of the report */
} secrets[] = {
#define FILE_OF(text) text, sizeof text - 1
    {FILE_OF("a: #b\"c'$d{e}\\"), "a: #b\"c'$d{e}\\"},
    {FILE_OF("${HOME}"), "${HOME}"},
    {FILE_OF("two\nlines"), "two\nlines"},
    {FILE_OF("one\n"), "one"}, /* exactly one newline is taken off */
    {FILE_OF("two\n\n"), "ends in a newline besides the one that is taken off"},
    {FILE_OF("dos\r\n"), "ends in a newline besides the one that is taken off"},
    {FILE_OF("nul\0byte"), "holds a NUL byte"},
    {FILE_OF(""), "redis.password: is empty"},
    {FILE_OF("\xff\xfe"), "\xff\xfe"}, /* bytes exact */
#undef FILE_OF
};

static void b35_files_are_taken_but_for_one_newline(void **state)
{
    (void)state;
    char folder[] = "/tmp/fcap-config-XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++) {
        char *result = password_from(folder, secrets[i].bytes, secrets[i].size);
        if (strchr(secrets[i].wanted, ' ') != NULL && secrets[i].wanted[0] != 'a') {
            assert_non_null(strstr(result, secrets[i].wanted));
            assert_null(strstr(result, "two"));
        } else {
            assert_string_equal(result, secrets[i].wanted);
        }
        free(result);
    }
    char *large = calloc(1, 70000);
    assert_non_null(large);
    memset(large, 'x', 69999);
    char *result = password_from(folder, large, 69999);
    assert_non_null(strstr(result, "is larger than 64 KiB"));
    free(result);
    free(large);

    char line[128];
    (void)snprintf(line, sizeof line, "redis: {password: '${file:%s}'}", folder);
    struct loaded loaded = load_with(line);
    result = printed(&loaded.report);
    assert_non_null(strstr(result, "is a directory, not a regular file"));
    free(result);
    unload(&loaded);
    assert_int_equal(rmdir(folder), 0);
}

static void b35_no_secret_is_printed(void **state)
{
    (void)state;
    set_environment("FCAP_TEST_SECRET", "hunter2");
    const struct fcap_config_set set = {"kafka.librdkafka.ssl.key.password", "hunter2"};
    struct loaded loaded = load_sets("kafka:\n  brokers: a\n  topic: t\n  librdkafka:\n"
                                     "    sasl.username: me\n    sasl.password: hunter2\n"
                                     "    client.rack: ${FCAP_TEST_SECRET}\n"
                                     "    ssl.key.location: /k.pem\n"
                                     "windows: [1d]\nredis: {password: hunter2}\n",
                                     &set, 1);
    assert_int_equal(loaded.status, FCAP_OK);
    assert_string_equal(loaded.config.redis.password, "hunter2");
    assert_string_equal(loaded.config.kafka.librdkafka.pairs[2].value, "hunter2");
    char *text = effective(&loaded.config);
    assert_null(strstr(text, "hunter2"));
    assert_non_null(strstr(text, "redis.password: \"***\"  # test.yaml:10\n"));
    assert_non_null(strstr(text, "kafka.librdkafka: {sasl.username: me, sasl.password: \"***\", "
                                 "client.rack: \"***\", ssl.key.location: /k.pem, "
                                 "ssl.key.password: \"***\"}  # --set\n"));
    free(text);
    unload(&loaded);

    /* A value that came from outside is not in a message either, only what the file says. */
    loaded = load(LEAST "workers: ${FCAP_TEST_SECRET}\nhttp: {listen: \"${FCAP_TEST_SECRET}\"}\n"
                        "log: {level: \"${FCAP_TEST_SECRET}\"}\n"
                        "rocksdb: {use_direct_reads: \"${FCAP_TEST_SECRET}\"}\n");
    text = printed(&loaded.report);
    assert_int_equal(loaded.report.errors, 4);
    assert_null(strstr(text, "hunter2"));
    assert_non_null(strstr(text, "workers: `${FCAP_TEST_SECRET}` is not an integer"));
    free(text);
    unload(&loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b34_repeated_keys_name_both_places),
        cmocka_unit_test(b34_merge_keys_are_refused_by_name),
        cmocka_unit_test(b34_alias_bombs_and_loops_are_refused_at_once),
        cmocka_unit_test(b34_tabs_and_second_documents_are_refused),
        cmocka_unit_test(b34_byte_order_mark_and_crlf_are_accepted),
        cmocka_unit_test(b34_unknown_keys_name_the_nearest),
        cmocka_unit_test(b34_only_regular_files_of_some_size_are_read),
        cmocka_unit_test(b34_everything_is_told_in_one_run),
        cmocka_unit_test(b34_a_flood_of_problems_is_counted),
        cmocka_unit_test(b35_service_links_change_nothing),
        cmocka_unit_test(b35_substitution_is_one_scalar_after_parsing),
        cmocka_unit_test(b35_what_cannot_be_replaced_is_named),
        cmocka_unit_test(b35_files_are_taken_but_for_one_newline),
        cmocka_unit_test(b35_no_secret_is_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
