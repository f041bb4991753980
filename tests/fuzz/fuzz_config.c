/* Any bytes as a configuration, and its lines that begin with "#set " as --set arguments: no crash,
 * bounded memory, and a report and configuration that keep their promises. With libFuzzer
 * (FCAP_LIBFUZZER) it searches; without, main() replays the files and folders of its arguments. */
#include "fcap/config.h"

#include "fcap/assert.h"
#include "fuzz_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETS_MAX     8
#define ARGUMENT_MAX 256

struct arguments {
    char keys[SETS_MAX][ARGUMENT_MAX];
    char texts[SETS_MAX][ARGUMENT_MAX];
    struct fcap_config_set sets[SETS_MAX];
    size_t count;
};

static void find_arguments(const uint8_t *data, size_t size, struct arguments *arguments)
{
    arguments->count = 0;
    while (size > 0 && arguments->count < SETS_MAX) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t length = end == NULL ? size : (size_t)(end - data);
        size_t at = arguments->count;
        if (length > 5 && length < ARGUMENT_MAX && memcmp(data, "#set ", 5) == 0) {
            memcpy(arguments->texts[at], data + 5, length - 5);
            arguments->texts[at][length - 5] = '\0';
            arguments->count += fcap_config_set_parse(arguments->texts[at], arguments->keys[at],
                                                      ARGUMENT_MAX, &arguments->sets[at]);
        }
        length += end != NULL;
        data += length;
        size -= length;
    }
}

static void check_report(const struct fcap_config_report *report)
{
    size_t all = report->errors + report->warnings;
    FCAP_ASSERT(report->count <= all && (report->count > 0) == (all > 0));
    FCAP_ASSERT(report->count <= FCAP_CONFIG_PROBLEMS_MAX);
    for (size_t i = 0; i < report->count; i++) {
        const struct fcap_config_problem *problem = &report->problems[i];
        FCAP_ASSERT(problem->text[0] != '\0' && problem->where[0] != '\0');
        FCAP_ASSERT(strpbrk(problem->text, "\n\r\x1b") == NULL); /* One line, no terminal codes. */
        FCAP_ASSERT(strpbrk(problem->where, "\n\r\x1b") == NULL);
        if (i > 0 && problem->line != 0) {
            FCAP_ASSERT(report->problems[i - 1].line != 0 &&
                        report->problems[i - 1].line <= problem->line);
        }
    }
}

static void check_config(const struct fcap_config *config)
{
    FCAP_ASSERT(config->windows_count >= 1 && config->windows_count <= FCAP_CONFIG_WINDOWS_MAX);
    for (size_t i = 0; i < config->windows_count; i++) {
        FCAP_ASSERT(config->windows[i].length_ms >= 1000 && config->windows[i].name[0] != '\0');
        FCAP_ASSERT(config->timers.bucket_ms >= 1 &&
                    config->timers.bucket_ms * 16 <= config->windows[i].length_ms);
    }
    FCAP_ASSERT(config->kafka.brokers != NULL && config->kafka.topic != NULL);
    FCAP_ASSERT(config->kafka.group != NULL && config->kafka.progress_group != NULL);
    FCAP_ASSERT(config->profile != NULL && config->instance != NULL);
    FCAP_ASSERT(strstr(config->redis.key, "%u") != NULL && strstr(config->redis.key, "%w") != NULL);
    FCAP_ASSERT((config->event.filter_field != NULL) == (config->event.filter_values.count != 0));
    FCAP_ASSERT(config->memory.record_cache_bytes > 0 && config->memory.block_cache_bytes > 0 &&
                config->memory.write_buffers_bytes > 0 && config->memory.kafka_queues_bytes > 0);
    FCAP_ASSERT(config->memory.record_cache_bytes + config->memory.block_cache_bytes +
                    config->memory.write_buffers_bytes + config->memory.kafka_queues_bytes <=
                config->memory.budget_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arguments arguments;
    struct fcap_config config;
    struct fcap_config_report report;
    char *text = NULL;
    size_t text_size = 0;
    FILE *file = open_memstream(&text, &text_size);
    FCAP_ASSERT(file != NULL);
    find_arguments(data, size, &arguments);
    enum fcap_status status =
        fcap_config_load_bytes("fuzz.yaml", (struct fcap_bytes){data, size}, arguments.sets,
                               arguments.count, &config, &report);
    FCAP_ASSERT((status == FCAP_OK) == (report.errors == 0));
    check_report(&report);
    fcap_config_report_print(file, &report);
    if (status == FCAP_OK) {
        check_config(&config);
        fcap_config_print_effective(file, &config);
        fcap_config_done(&config);
    }
    fcap_config_report_done(&report);
    FCAP_ASSERT(fclose(file) == 0);
    free(text);
    return 0;
}
