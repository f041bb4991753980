#include "checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_usage(void)
{
    (void)fputs("usage: fcapd-bench checkpoint [--users N] [--growth N] [--ads N] [--rate N]\n"
                "                              [--rate-limit MIB] [--steps N] [--rounds N]\n"
                "                              [--dir DIR] [--json]\n"
                "  --users 50000     users of the first stage\n"
                "  --growth 20       the last stage has so many times as many\n"
                "  --ads 5           ads a user, all seen in each visit\n"
                "  --rate 50000      events a second while steps are measured\n"
                "  --rate-limit 0    MiB a second for files of snapshots; 0: no limit, as shipped\n"
                "  --steps 8000      steps that are timed, in each round and of each part\n"
                "  --rounds 3        of them\n",
                stderr);
}

static bool parse_number(struct checkpoint_options *options, const char *name, const char *text)
{
    struct {
        const char *name;
        uint64_t *target;
        uint64_t least;
        uint64_t most;
    } numbers[] = {
        {"--users", &options->users, 1000, 10000000},
        {"--growth", &options->growth, 2, 1000},
        {"--ads", &options->ads, 1, 100},
        {"--rate", &options->rate, 1000, 10000000},
        {"--rate-limit", &options->rate_limit_mib, 0, 100000},
        {"--steps", &options->steps, 100, 1000000},
        {"--rounds", &options->rounds, 1, CHECKPOINT_ROUNDS_MAX},
    };
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].target = number;
            return *text >= '0' && *text <= '9' && *end == '\0' && number >= numbers[i].least &&
                   number <= numbers[i].most;
        }
    }
    return false;
}

bool checkpoint_options_parse(int argc, char **argv, struct checkpoint_options *options)
{
    *options = (struct checkpoint_options){
        .users = 50000, .growth = 20, .ads = 5, .rate = 50000, .steps = 8000, .rounds = 3};
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            options->json = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--dir") == 0) {
            options->directory = argv[++i];
        } else if (i + 1 < argc && parse_number(options, argv[i], argv[i + 1])) {
            i++;
        } else {
            (void)fprintf(stderr, "fcapd-bench checkpoint: %s%s%s: unknown, or out of range\n",
                          argv[i], i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "");
            print_usage();
            return false;
        }
    }
    return true;
}
