/* What the configuration's tests share: load a text, and look at the report. Test code only. */
#ifndef FCAP_TEST_CONFIG_FIXTURE_H
#define FCAP_TEST_CONFIG_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/config.h"

/* The least that is a configuration. */
#define LEAST "kafka: {brokers: 'a:9092', topic: t}\nwindows: [1d]\n"

struct loaded {
    enum fcap_status status;
    struct fcap_config config; /* means something when status is OK */
    struct fcap_config_report report;
};

static inline struct loaded load_sets(const char *text, const struct fcap_config_set *sets,
                                      size_t count)
{
    struct loaded loaded = {0};
    loaded.status = fcap_config_load_bytes("test.yaml", fcap_bytes_of(text), sets, count,
                                           &loaded.config, &loaded.report);
    return loaded;
}

static inline struct loaded load(const char *text)
{
    return load_sets(text, NULL, 0);
}

/* LEAST and one more line. */
static inline struct loaded load_with(const char *line)
{
    char text[4096];
    int size = snprintf(text, sizeof text, LEAST "%s\n", line);
    assert_in_range(size, 0, sizeof text - 1);
    return load(text);
}

static inline void unload(struct loaded *loaded)
{
    if (loaded->status == FCAP_OK) {
        fcap_config_done(&loaded->config);
    }
    fcap_config_report_done(&loaded->report);
}

/* The report as it is printed; the caller frees it. */
static inline char *printed(const struct fcap_config_report *report)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    fcap_config_report_print(file, report);
    assert_int_equal(fclose(file), 0);
    return text;
}

static inline char *effective(const struct fcap_config *config)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    fcap_config_print_effective(file, config);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* The report says exactly this, no more and no less. */
static inline void assert_report(struct loaded *loaded, const char *wanted)
{
    char *text = printed(&loaded->report);
    assert_string_equal(text, wanted);
    free(text);
}

/* Loads, wants exactly this report and a refusal, unloads. */
static inline void assert_refused(const char *yaml, const char *wanted)
{
    struct loaded loaded = load(yaml);
    assert_report(&loaded, wanted);
    assert_int_equal(loaded.status, FCAP_CONFIG);
    unload(&loaded);
}

/* Loads, wants an OK without a word. The caller unloads. */
static inline struct loaded assert_accepted(const char *yaml)
{
    struct loaded loaded = load(yaml);
    assert_report(&loaded, "");
    assert_int_equal(loaded.status, FCAP_OK);
    return loaded;
}

#endif
