/* The arguments of `fcapd demo`. */
#include "demo/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define WORDS_MAX 10

struct accepted {
    const char *words[WORDS_MAX];
    double events;
    double seconds;
    double rate;
};

static int count_words(const char *const *words)
{
    int count = 0;
    while (count < WORDS_MAX && words[count] != NULL) {
        count++;
    }
    return count;
}

static bool parse(const char *const *words, struct demo_options *ret_options, char *error)
{
    return demo_options_parse(count_words(words), (char *const *)(uintptr_t)words, ret_options,
                              error, 512);
}

static void test_of_events_rate_and_seconds_the_third_follows(void **unused)
{
    static const struct accepted cases[] = {
        {{NULL}, 300000, 40, 7500},
        {{"--events", "1000"}, 1000, 40, 25},
        {{"--rate", "100"}, 4000, 40, 100},
        {{"--seconds", "10"}, 300000, 10, 30000},
        {{"--events", "1000", "--rate", "100"}, 1000, 10, 100},
        {{"--events", "1000", "--seconds", "4"}, 1000, 4, 250},
        {{"--rate", "0.5", "--seconds", "4"}, 2, 4, 0.5},
        {{"--input", "x.csv"}, 0, 40, 0},
        {{"--input", "x.csv", "--events", "7", "--seconds", "3"}, 7, 3, 0},
        {{"--input", "x.csv", "--rate", "50"}, 0, 40, 50},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct demo_options options;
        char error[512] = "";
        if (!parse(cases[i].words, &options, error)) {
            fail_msg("case %zu: %s", i, error);
        }
        assert_true((double)options.events == cases[i].events);
        assert_true(options.seconds == cases[i].seconds);
        assert_true(options.rate == cases[i].rate);
    }
}

static void test_the_others_are_kept(void **unused)
{
    static const char *const words[WORDS_MAX] = {"--input",   "log",
                                                 "--map",     "user=u,ad=a,time=t",
                                                 "--redis",   "db.example:6380",
                                                 "--brokers", "k1:9092,k2:9092",
                                                 "--no-tty"};
    static const char *const help[WORDS_MAX] = {"--help"};
    struct demo_options options;
    char error[512] = "";
    (void)unused;
    assert_true(parse(words, &options, error));
    assert_string_equal(options.input, "log");
    assert_string_equal(options.map, "user=u,ad=a,time=t");
    assert_string_equal(options.redis.host, "db.example");
    assert_int_equal(options.redis.port, 6380);
    assert_string_equal(options.brokers, "k1:9092,k2:9092");
    assert_true(options.no_tty && !options.help);
    assert_true(parse(help, &options, error));
    assert_true(options.help);
    assert_non_null(strstr(demo_options_help(), "--events"));
}

static void test_a_wrong_one_is_named_with_its_cure(void **unused)
{
    static const struct {
        const char *words[WORDS_MAX];
        const char *text;
    } cases[] = {
        {{"--events", "0"}, "--events 0: a number above 0"},
        {{"--events", "-5"}, "--events -5"},
        {{"--events", "12x"}, "--events 12x"},
        {{"--events", ""}, "--events : a number"},
        {{"--events", "1.5"}, "a whole number"},
        {{"--events", "10000001"}, "up to 10000000"},
        {{"--events", "nan"}, "--events nan"},
        {{"--seconds", "100000"}, "up to 86400"},
        {{"--rate", "inf"}, "--rate inf"},
        {{"--rate"}, "--rate: a value is due"},
        {{"--rate", "1000000", "--seconds", "86400"}, "at most 10000000"},
        {{"--events", "1", "--rate", "1", "--seconds", "1"}, "give two"},
        {{"--input", "x", "--rate", "1", "--seconds", "1"}, "give one"},
        {{"--map", "user=u,ad=a,time=t"}, "--input, which is missing"},
        {{"--redis", "localhost"}, "HOST:PORT"},
        {{"--redis", ":6379"}, "HOST:PORT"},
        {{"--redis", "h:0"}, "HOST:PORT"},
        {{"--redis", "h:65536"}, "HOST:PORT"},
        {{"--redis", "h:6379x"}, "HOST:PORT"},
        {{"extra"}, "extra: no such argument"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct demo_options options;
        char error[512] = "";
        assert_false(parse(cases[i].words, &options, error));
        if (strstr(error, cases[i].text) == NULL) {
            fail_msg("case %zu: \"%s\" says nothing of \"%s\"", i, error, cases[i].text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_events_rate_and_seconds_the_third_follows),
        cmocka_unit_test(test_the_others_are_kept),
        cmocka_unit_test(test_a_wrong_one_is_named_with_its_cure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
