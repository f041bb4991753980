/* What is printed from the table is what lies in the repository, every key stands in it, and the
 * shipped profiles load. Also --set, and where a value comes from. */
#include "config_fixture.h"

#include <unistd.h>

/* The file of the repository; the caller frees it. */
static char *read_text(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *in = fopen(path, "rb");
    FILE *out = open_memstream(&text, &size);
    char bytes[4096];
    if (in == NULL) {
        fail_msg("%s cannot be opened", path);
    }
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, in)) > 0;) {
        assert_int_equal(fwrite(bytes, 1, got, out), got);
    }
    assert_int_equal(fclose(in), 0);
    assert_int_equal(fclose(out), 0);
    return text;
}

static char *text_of(void (*print)(FILE *file))
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    print(file);
    assert_int_equal(fclose(file), 0);
    return text;
}

static void assert_up_to_date(const char *path, void (*print)(FILE *file))
{
    char *wanted = text_of(print);
    char *found = read_text(path);
    if (strcmp(wanted, found) != 0) {
        fail_msg("%s is not what the table says; build the target config-docs", path);
    }
    free(wanted);
    free(found);
}

static void printed_documents_are_up_to_date(void **state)
{
    (void)state;
    assert_up_to_date(FCAP_SOURCE_DIR "/config/fcapd.yaml", fcap_config_print_sample);
    assert_up_to_date(FCAP_SOURCE_DIR "/docs/CONFIG.md", fcap_config_print_docs);
}

/* "name: value" of one line of the effective configuration, without its origin. */
static bool same_value(const char *a, const char *b)
{
    const char *a_end = strstr(a, "  # ");
    const char *b_end = strstr(b, "  # ");
    assert_non_null(a_end);
    assert_non_null(b_end);
    return a_end - a == b_end - b && strncmp(a, b, (size_t)(a_end - a)) == 0;
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end == NULL || end[1] == '\0' ? NULL : end + 1;
}

/* The sample gives the defaults, so it changes nothing; and no key is left out of it or of the
 * reference, whatever the printer does. */
static void the_sample_is_the_defaults(void **state)
{
    (void)state;
    struct loaded sample = {0};
    sample.status = fcap_config_load(FCAP_SOURCE_DIR "/config/fcapd.yaml", NULL, 0, &sample.config,
                                     &sample.report);
    assert_report(&sample, "");
    assert_int_equal(sample.status, FCAP_OK);
    struct loaded plain = assert_accepted("kafka: {brokers: 'localhost:9092', topic: impressions}\n"
                                          "windows: [1d, 3d, 7d]\n");
    char *with = effective(&sample.config);
    char *without = effective(&plain.config);
    char *text = read_text(FCAP_SOURCE_DIR "/config/fcapd.yaml");
    char *reference = read_text(FCAP_SOURCE_DIR "/docs/CONFIG.md");
    const char *b = without;
    size_t keys = 0;
    for (const char *a = with; a != NULL; a = next_line(a), b = next_line(b)) {
        char name[128];
        char pattern[160];
        assert_non_null(b);
        if (!same_value(a, b)) {
            fail_msg("the sample differs from the defaults: %.60s", a);
        }
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(a, ":"), a);
        (void)snprintf(pattern, sizeof pattern, "| `%s` | ", name);
        assert_non_null(strstr(reference, pattern));
        const char *last = strrchr(name, '.');
        (void)snprintf(pattern, sizeof pattern, "%s:", last == NULL ? name : last + 1);
        assert_non_null(strstr(text, pattern));
        keys++;
    }
    assert_null(b);
    assert_in_range(keys, 80, 200);
    free(with);
    free(without);
    free(text);
    free(reference);
    unload(&sample);
    unload(&plain);
}

/* What the effective configuration shows is a configuration: loaded again as --set of every key
 * that has a value, it gives itself. */
static void what_is_in_force_can_be_given_again(void **state)
{
    (void)state;
    struct loaded loaded =
        assert_accepted(LEAST "redis: {key: 'a$$:{%u}:%w', user: \"u\\t\\\"\\\\\", password: x}\n"
                              "commit: {interval: 90s}\nlimits: {value_bytes: 1536}\nworkers: 3\n");
    char *text = effective(&loaded.config);
    assert_non_null(strstr(text, "redis.key: \"a$$:{%u}:%w\"  # test.yaml:3\n"));
    assert_non_null(strstr(text, "redis.user: \"u\\x09\\\"\\\\\"  # test.yaml:3\n"));
    assert_non_null(strstr(text, "commit.interval: 90s  # test.yaml:4\n"));
    assert_non_null(strstr(text, "limits.value_bytes: 1536  # test.yaml:5\n"));
    assert_non_null(strstr(text, "redis.host: 127.0.0.1  # default\n"));
    assert_non_null(strstr(text, "event.id: (none)  # default\n"));
    assert_non_null(strstr(text, "windows: [{name: 1d, length: 1d}]  # test.yaml:2\n"));
    free(text);
    unload(&loaded);
}

static const char *const profiles[] = {"minutes", "hours", "days"};
static const struct fcap_config_window profile_windows[][4] = {
    {{"1m", 60000}, {"5m", 300000}, {"10m", 600000}, {"30m", 1800000}},
    {{"1h", 3600000}, {"3h", 10800000}, {"6h", 21600000}, {"12h", 43200000}},
    {{"1d", 86400000}, {"3d", 259200000}, {"7d", 604800000}, {"", 0}},
};

static void shipped_profiles_load_without_a_word(void **state)
{
    (void)state;
    assert_int_equal(setenv("HOSTNAME", "fcapd-0", 1), 0);
    assert_int_equal(setenv("FCAPD_KAFKA_BROKERS", "k1:9092,k2:9092", 1), 0);
    assert_int_equal(setenv("FCAPD_REDIS_HOST", "redis.example", 1), 0);
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        struct loaded loaded = {0};
        (void)snprintf(path, sizeof path, "%s/config/%s.yaml", FCAP_SOURCE_DIR, profiles[i]);
        loaded.status = fcap_config_load(path, NULL, 0, &loaded.config, &loaded.report);
        assert_report(&loaded, "");
        assert_int_equal(loaded.status, FCAP_OK);
        assert_string_equal(loaded.config.profile, profiles[i]);
        assert_string_equal(loaded.config.kafka.brokers, "k1:9092,k2:9092");
        for (size_t j = 0; j < loaded.config.windows_count; j++) {
            assert_string_equal(loaded.config.windows[j].name, profile_windows[i][j].name);
            assert_int_equal(loaded.config.windows[j].length_ms, profile_windows[i][j].length_ms);
        }
        assert_int_equal(loaded.config.windows_count, i == 2 ? 3 : 4);
        unload(&loaded);
    }
}

/* The stall loop of the reference system: the budget of all buffers against their sizes. */
static void a_write_buffer_budget_that_stalls_is_warned_of(void **state)
{
    (void)state;
    struct loaded loaded = load_with("memory: {write_buffers: 100MiB}");
    assert_report(&loaded,
                  "test.yaml:3:25: warning: memory.write_buffers: 100MiB for all write "
                  "buffers is less than one of each family (104MiB), so they are flushed "
                  "before they are full; raise it, or lower rocksdb.*.write_buffer_size\n");
    assert_int_equal(loaded.status, FCAP_OK);
    unload(&loaded);
    loaded = assert_accepted(LEAST "memory: {write_buffers: 104MiB}");
    unload(&loaded);
}

static void sets_go_over_the_file(void **state)
{
    (void)state;
    const struct fcap_config_set sets[] = {
        {"workers", "4"},
        {"windows", "1s,2m"},
        {"event.ignore_users", "a,b"},
        {"redis.password", "p=a,b"},
        {"state.directory", "/$$"},
        {"kafka.librdkafka.fetch.wait.max.ms", "10"},
        {"kafka.librdkafka.client.rack", ""},
        {"kafka.brokers", "b:1,c:2"},
    };
    struct loaded loaded = load_sets("kafka:\n  topic: t\n  librdkafka: {fetch.wait.max.ms: 20}\n"
                                     "workers: 2\nwindows: [1d]\n",
                                     sets, sizeof sets / sizeof sets[0]);
    assert_report(&loaded, "");
    assert_int_equal(loaded.status, FCAP_OK);
    const struct fcap_config *config = &loaded.config;
    assert_int_equal(config->workers, 4);
    assert_int_equal(config->windows_count, 2);
    assert_string_equal(config->windows[1].name, "2m");
    assert_int_equal(config->event.ignore_users.count, 2);
    assert_string_equal(config->event.ignore_users.items[1], "b");
    assert_string_equal(config->redis.password, "p=a,b");
    assert_string_equal(config->state.directory, "/$");
    assert_string_equal(config->kafka.brokers, "b:1,c:2");
    assert_int_equal(config->kafka.librdkafka.count, 2);
    assert_string_equal(config->kafka.librdkafka.pairs[0].value, "10");
    assert_string_equal(config->kafka.librdkafka.pairs[1].value, "");
    unload(&loaded);

    /* A bad value in the file stays an error below a good one from the command line. */
    const struct fcap_config_set good = {"workers", "4"};
    loaded = load_sets(LEAST "workers: x\n", &good, 1);
    assert_report(&loaded, "test.yaml:3:10: workers: `x` is not an integer\n");
    unload(&loaded);

    /* Without a file, the sets alone. */
    const struct fcap_config_set least[] = {
        {"kafka.brokers", "a"}, {"kafka.topic", "t"}, {"windows", "1d"}};
    struct loaded alone = {0};
    alone.status = fcap_config_load(NULL, least, 3, &alone.config, &alone.report);
    assert_report(&alone, "");
    assert_int_equal(alone.status, FCAP_OK);
    unload(&alone);
    alone.status = fcap_config_load(NULL, least, 1, &alone.config, &alone.report);
    assert_report(&alone, "configuration: windows: is missing and has no default\n"
                          "configuration: kafka.topic: is missing and has no default\n");
    unload(&alone);
}

static void properties_that_promises_rest_on_are_not_free(void **state)
{
    (void)state;
    static const char *const names[] = {
        "bootstrap.servers",
        "group.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "isolation.level",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "group.instance.id",
        "enable.partition.eof",
        "group.protocol",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char yaml[256];
        char wanted[128];
        (void)snprintf(yaml, sizeof yaml,
                       "windows: [1d]\nkafka: {brokers: a, topic: t, librdkafka: {%s: x}}\n",
                       names[i]);
        (void)snprintf(wanted, sizeof wanted,
                       "test.yaml:2:44: kafka.librdkafka: `%s` is not free: ", names[i]);
        struct loaded loaded = load(yaml);
        char *report = printed(&loaded.report);
        assert_int_equal(loaded.report.errors, 1);
        assert_int_equal(strncmp(report, wanted, strlen(wanted)), 0);
        free(report);
        unload(&loaded);
    }
}

static void set_arguments_are_split_at_the_first_equals(void **state)
{
    (void)state;
    char key[16];
    struct fcap_config_set set;
    assert_true(fcap_config_set_parse("a.b=c=d", key, sizeof key, &set));
    assert_string_equal(set.key, "a.b");
    assert_string_equal(set.value, "c=d");
    assert_true(fcap_config_set_parse("a=", key, sizeof key, &set));
    assert_string_equal(set.value, "");
    assert_false(fcap_config_set_parse("a.b", key, sizeof key, &set));
    assert_false(fcap_config_set_parse("=x", key, sizeof key, &set));
    assert_false(fcap_config_set_parse("0123456789abcdef=x", key, sizeof key, &set));
    assert_true(fcap_config_set_parse("0123456789abcde=x", key, sizeof key, &set));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_documents_are_up_to_date),
        cmocka_unit_test(the_sample_is_the_defaults),
        cmocka_unit_test(what_is_in_force_can_be_given_again),
        cmocka_unit_test(shipped_profiles_load_without_a_word),
        cmocka_unit_test(a_write_buffer_budget_that_stalls_is_warned_of),
        cmocka_unit_test(sets_go_over_the_file),
        cmocka_unit_test(properties_that_promises_rest_on_are_not_free),
        cmocka_unit_test(set_arguments_are_split_at_the_first_equals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
