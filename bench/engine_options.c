#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_usage(void)
{
    (void)fputs("usage: fcapd-bench engine [--users N] [--retained N] [--ads N] [--partitions N]\n"
                "                          [--commit-events N] [--defer N] [--cache-mib N]\n"
                "                          [--step N] [--zipf S] [--wal on|off] [--sync-ms N]\n"
                "                          [--dir DIR] [--json]\n"
                "  --users 200000 keeps about 25 events a user, --users 2000000 about 5\n",
                stderr);
}

static bool parse_number(const char *text, uint64_t *ret_number)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0') {
        return false;
    }
    *ret_number = number;
    return true;
}

static bool parse_option(struct options *options, const char *name, const char *text)
{
    uint64_t number = 0;
    bool is_number = parse_number(text, &number);
    if (strcmp(name, "--wal") == 0) {
        options->wal = strcmp(text, "on") == 0;
        return options->wal || strcmp(text, "off") == 0;
    }
    if (strcmp(name, "--dir") == 0) {
        options->directory = text;
        return true;
    }
    if (strcmp(name, "--zipf") == 0) {
        options->zipf = atof(text);
        return options->zipf > 0 && options->zipf != 1.0;
    }
    struct {
        const char *name;
        uint64_t *target;
        uint64_t least;
        uint64_t most;
    } numbers[] = {
        {"--users", &options->users, 1000, 100000000},
        {"--retained", &options->retained, 1, 1000},
        {"--ads", &options->ads, 1, AD_POOL},
        {"--partitions", &options->partitions, 1, 1024},
        {"--commit-events", &options->commit_events, 1000, 100000000},
        {"--defer", &options->defer, 0, 48},
        {"--sync-ms", &options->sync_ms, 0, 600000},
        {"--cache-mib", &options->cache_mib, 1, 1 << 20},
        {"--step", &options->step, 1, 50000},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].target = number;
            return is_number && number >= numbers[i].least && number <= numbers[i].most;
        }
    }
    return false;
}

bool options_parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.users = 200000,
                                .ads = 30,
                                .partitions = 8,
                                .commit_events = 100000,
                                .defer = 32,
                                .sync_ms = 1000,
                                .cache_mib = 1024,
                                .step = 1000,
                                .zipf = 0.9,
                                .wal = true};
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            options->json = true;
        } else if (i + 1 == argc || !parse_option(options, argv[i], argv[i + 1])) {
            (void)fprintf(stderr, "fcapd-bench engine: %s%s%s: unknown, or out of range\n", argv[i],
                          i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "");
            print_usage();
            return false;
        } else {
            i++;
        }
    }
    if (options->retained == 0) {
        options->retained = options->users > 500000 ? 5 : 25;
    }
    return true;
}
