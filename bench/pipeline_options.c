#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret_number)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    *ret_number = number;
    return *text >= '0' && *text <= '9' && *end == '\0' && number >= least && number <= most;
}

/* "a,b,c" with values in a range; the count, 0: not so. */
static size_t parse_list(const char *text, uint64_t least, uint64_t most, uint64_t *ret_numbers,
                         size_t room)
{
    size_t count = 0;
    for (;;) {
        char item[32];
        size_t size = strcspn(text, ",");
        if (count == room || size >= sizeof item) {
            return 0;
        }
        memcpy(item, text, size);
        item[size] = '\0';
        if (!parse_number(item, least, most, &ret_numbers[count++])) {
            return 0;
        }
        if (text[size] == '\0') {
            return count;
        }
        text += size + 1;
    }
}

static int compare_rates(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static bool parse_rates(const char *text, struct pipeline_options *options)
{
    uint64_t numbers[PIPELINE_RATES_MAX - 1];
    size_t count = parse_list(text, 1, 100, numbers, PIPELINE_RATES_MAX - 1);
    bool has_half = false;
    options->rate_count = 0;
    for (size_t i = 0; i < count; i++) {
        options->rates[options->rate_count++] = (uint32_t)numbers[i];
        has_half = has_half || numbers[i] == 50;
    }
    if (!has_half) {
        options->rates[options->rate_count++] = 50;
    }
    qsort(options->rates, options->rate_count, sizeof options->rates[0], compare_rates);
    return count > 0;
}

static bool parse_windows(const char *text, struct pipeline_options *options)
{
    uint64_t numbers[PIPELINE_WINDOWS];
    if (parse_list(text, 1, 2592000, numbers, PIPELINE_WINDOWS) != PIPELINE_WINDOWS) {
        return false;
    }
    for (size_t i = 0; i < PIPELINE_WINDOWS; i++) {
        options->windows_ms[i] = (int64_t)numbers[i] * 1000;
    }
    return numbers[0] < numbers[1] && numbers[1] < numbers[2];
}

static bool parse_text(struct pipeline_options *options, const char *name, const char *text,
                       bool *ret_good)
{
    const struct {
        const char *name;
        const char **target;
    } texts[] = {
        {"--fcapd", &options->program},
        {"--brokers", &options->brokers},
        {"--redis", &options->redis},
        {"--dir", &options->directory},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].target = text;
            *ret_good = text[0] != '\0';
            return true;
        }
    }
    if (strcmp(name, "--rates") == 0) {
        *ret_good = parse_rates(text, options);
        return true;
    }
    if (strcmp(name, "--windows") == 0) {
        *ret_good = parse_windows(text, options);
        return true;
    }
    if (strcmp(name, "--zipf") == 0) {
        char *end;
        options->exponent = strtod(text, &end);
        *ret_good =
            *text != '\0' && *end == '\0' && options->exponent >= 0 && options->exponent <= 4;
        return true;
    }
    return false;
}

static bool parse_option(struct pipeline_options *options, const char *name, const char *text)
{
    bool good = false;
    uint64_t number = 0;
    if (parse_text(options, name, text, &good)) {
        return good;
    }
    const struct {
        const char *name;
        uint64_t least;
        uint64_t most;
    } numbers[] = {
        {"--users", 10, 10000000},
        {"--ads", 1, 1000},
        {"--events", 1000, 20000000},
        {"--seconds", 1, 3600},
        {"--partitions", 1, PIPELINE_PARTITIONS},
        {"--workers", 1, 64},
        {"--value-bytes", 80, 4000},
        {"--min-keys", 1, 10000000},
        {"--rounds", 1, 100},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) != 0) {
            continue;
        }
        good = parse_number(text, numbers[i].least, numbers[i].most, &number);
        switch (i) {
        case 0:
            options->users = (uint32_t)number;
            break;
        case 1:
            options->ads = (uint32_t)number;
            break;
        case 2:
            options->events = number;
            break;
        case 3:
            options->seconds = (int64_t)number;
            break;
        case 4:
            options->partitions = (int32_t)number;
            break;
        case 5:
            options->workers = (uint32_t)number;
            break;
        case 6:
            options->value_bytes = number;
            break;
        case 7:
            options->keys_min = number;
            break;
        default:
            options->rounds = (int64_t)number;
            break;
        }
    }
    return good;
}

bool pipeline_options_parse(const struct pipeline_command *command, int argc, char **argv,
                            struct pipeline_options *options, int *ret_code)
{
    *options = command->defaults;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            (void)fputs(command->usage, stdout);
            *ret_code = 0;
            return false;
        }
        if (strcmp(argv[i], "--json") == 0) {
            options->json = true;
        } else if (i + 1 == argc || !parse_option(options, argv[i], argv[i + 1])) {
            (void)fprintf(stderr, "fcapd-bench %s: %s%s%s: unknown, or out of range\n%s",
                          command->name, argv[i], i + 1 < argc ? " " : "",
                          i + 1 < argc ? argv[i + 1] : "", command->usage);
            *ret_code = 2;
            return false;
        } else {
            i++;
        }
    }
    return true;
}
