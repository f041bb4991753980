/* The field report B35: what the environment brings into a configuration, and what of it is
 * printed. */
#include "config_fixture.h"

#include "lab/lab.h"

#include <unistd.h>

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
    char path[80];
    char line[160];
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
    char folder[64];
    lab_folder_make("fcap-config", folder, sizeof folder);
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
    lab_folder_remove(folder);
}

/* The file is small, and what it asks for is not. */
static void b35_what_is_brought_in_is_bounded(void **state)
{
    (void)state;
    char *value = calloc(1, 60001);
    char yaml[8192] = LEAST "event:\n  ignore_users:\n";
    assert_non_null(value);
    memset(value, 'x', 60000);
    set_environment("FCAP_TEST_LARGE", value);
    for (int i = 0; i < 100; i++) {
        size_t size = strlen(yaml);
        (void)snprintf(yaml + size, sizeof yaml - size, "  - ${FCAP_TEST_LARGE}\n");
    }
    struct loaded loaded = load(yaml);
    assert_int_equal(loaded.status, FCAP_CONFIG);
    /* 69 are only too long for an id; from the 70th on it is too much in all. */
    char *report = printed(&loaded.report);
    assert_non_null(strstr(report, "test.yaml:73:5: event.ignore_users: is 60000 bytes long; at "
                                   "most 4096 are allowed\n"
                                   "test.yaml:74:5: event.ignore_users: what ${...} brings in is "
                                   "more than 4096 KiB in all\n"));
    free(report);
    free(value);
    unload(&loaded);
    assert_int_equal(unsetenv("FCAP_TEST_LARGE"), 0);
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
        cmocka_unit_test(b35_service_links_change_nothing),
        cmocka_unit_test(b35_substitution_is_one_scalar_after_parsing),
        cmocka_unit_test(b35_what_cannot_be_replaced_is_named),
        cmocka_unit_test(b35_files_are_taken_but_for_one_newline),
        cmocka_unit_test(b35_what_is_brought_in_is_bounded),
        cmocka_unit_test(b35_no_secret_is_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
