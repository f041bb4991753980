/* The field report B34: what YAML leaves to its reader, and every problem in one run. */
#include "config_fixture.h"

#include "lab/lab.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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

static int64_t resident_kib_max(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

static void b34_alias_bombs_and_loops_are_refused(void **state)
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
    /* A problem behind the bomb is still told. */
    (void)snprintf(yaml + strlen(yaml), sizeof yaml - strlen(yaml), "redis: {prot: 1}\n");
    int64_t before_kib = resident_kib_max(); /* 9^10 values would not fit. */
    struct loaded loaded = load(yaml);
    char *report = printed(&loaded.report);
    assert_int_equal(loaded.status, FCAP_CONFIG);
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

/* What stands before the place where reading stops is checked; what would follow is not missing. */
static void b34_a_file_that_breaks_off_is_checked_up_to_there(void **state)
{
    (void)state;
    assert_refused("workers: x\nkafka: {topic: 't",
                   "test.yaml:1:10: workers: `x` is not an integer\n"
                   "test.yaml:2:18: not valid YAML: found unexpected end of stream (while scanning "
                   "a quoted scalar, line 2)\n");
    assert_refused("kafka: {librdkafka: {a: 1, b: \"",
                   "test.yaml:1:32: not valid YAML: found unexpected end of stream (while scanning "
                   "a quoted scalar, line 1)\n");
    assert_refused("windows: [{length: \"",
                   "test.yaml:1:21: not valid YAML: found unexpected end of stream (while scanning "
                   "a quoted scalar, line 1)\n");
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
    char folder[64];
    char fifo[80];
    char huge[80];
    lab_folder_make("fcap-config", folder, sizeof folder);
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
    lab_folder_remove(folder);
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
    const size_t room = 200000;
    char *yaml = malloc(room);
    assert_non_null(yaml);
    size_t size = (size_t)snprintf(yaml, room, "%s", LEAST);
    for (int i = 0; i < 4000; i++) {
        size += (size_t)snprintf(yaml + size, room - size, "k%d: 1\n", i);
    }
    struct loaded loaded = load(yaml);
    char *report = printed(&loaded.report);
    assert_int_equal(loaded.report.count, FCAP_CONFIG_PROBLEMS_MAX);
    assert_non_null(strstr(report, "\nand 3900 more\n"));
    free(report);
    unload(&loaded);

    /* Depth and number of nodes are bounded too. */
    memset(yaml, '[', 100000);
    yaml[100000] = '\0';
    assert_refused(yaml, "test.yaml:1:1: the file must hold keys and values (key: value)\n"
                         "test.yaml:1:17: nested too deep for a configuration\n");
    size = (size_t)snprintf(yaml, room, "a: [");
    for (int i = 0; i < 20000; i++) {
        size += (size_t)snprintf(yaml + size, room - size, "1,");
    }
    assert_refused(yaml, "test.yaml:1:1: unknown key `a`\n"
                         "test.yaml:1:19999: the file holds too many values for a configuration\n");
    free(yaml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b34_repeated_keys_name_both_places),
        cmocka_unit_test(b34_merge_keys_are_refused_by_name),
        cmocka_unit_test(b34_alias_bombs_and_loops_are_refused),
        cmocka_unit_test(b34_tabs_and_second_documents_are_refused),
        cmocka_unit_test(b34_a_file_that_breaks_off_is_checked_up_to_there),
        cmocka_unit_test(b34_byte_order_mark_and_crlf_are_accepted),
        cmocka_unit_test(b34_unknown_keys_name_the_nearest),
        cmocka_unit_test(b34_only_regular_files_of_some_size_are_read),
        cmocka_unit_test(b34_everything_is_told_in_one_run),
        cmocka_unit_test(b34_a_flood_of_problems_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
