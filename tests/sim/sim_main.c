/* sim --seeds N [--first S] [--jobs N] [--seconds N] [--mutant NAME] [--file F] [--coverage]
 *     [--scenarios] [--trace] [--list] */
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 64

struct options {
    uint64_t first;
    uint64_t seeds;
    uint64_t jobs; /* processes that share the seeds */
    double seconds;
    bool trace;
    bool coverage; /* a counter at zero is a failure */
    const char *seed_file;
};

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t seed_now;

/* An assertion in the core ends the process: say in which world. */
static void say_seed(int number)
{
    (void)number;
    (void)printf("seed %" PRIu64 ": an assertion failed\n", seed_now);
    (void)fflush(stdout);
    _exit(3);
}

static bool run_seed(uint64_t seed, bool trace, struct sim_score *score)
{
    static struct sim_world world;
    memset(&world, 0, sizeof world);
    world.trace = trace;
    seed_now = seed;
    sim_open(&world, seed, NULL, score);
    bool passed = sim_run(&world);
    sim_close(&world);
    if (!passed) {
        (void)printf("seed %" PRIu64 ": %s\n", seed, world.reason);
        (void)printf("  again: sim --seeds 1 --first %" PRIu64 " --trace\n", seed);
    }
    return passed;
}

static bool print_coverage(const struct sim_score *score)
{
    static const char *const checks[] = {"pushes",  "records",      "claims",
                                         "commits", "keys at rest", "prompt keys"};
    bool complete = true;
    (void)printf("result: compared:");
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        (void)printf("%s %" PRIu64 " %s", i > 0 ? "," : "", score->checks[i], checks[i]);
        complete = complete && score->checks[i] > 0;
    }
    (void)printf("\ncoverage:");
#define X(name, rate, text)                                                                        \
    (void)printf(" " #name "=%" PRIu64, score->faults[SIM_FAULT_##name]);                          \
    complete = complete && score->faults[SIM_FAULT_##name] > 0;
    SIM_FAULT_LIST(X)
#undef X
#define X(name, text)                                                                              \
    (void)printf(" " #name "=%" PRIu64, score->events[SIM_EVENT_##name]);                          \
    complete = complete && score->events[SIM_EVENT_##name] > 0;
    SIM_EVENT_LIST(X)
#undef X
    (void)printf("\n");
    return complete;
}

/* Every jobs-th seed, beginning with the one numbered `job`. */
static uint64_t run_share(const struct options *options, uint64_t job, struct sim_score *score)
{
    uint64_t failures = 0;
    double end = now_s() + options->seconds;
    for (uint64_t i = job; i < options->seeds; i += options->jobs) {
        if (options->seconds > 0 && now_s() > end) {
            break;
        }
        failures += !run_seed(options->first + i, options->trace, score);
    }
    return failures;
}

static void add_score(struct sim_score *sum, const struct sim_score *more)
{
    uint64_t *to = (uint64_t *)(void *)sum;
    const uint64_t *from = (const uint64_t *)(const void *)more;
    _Static_assert(sizeof *sum % sizeof *to == 0, "a score is numbers only");
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++) {
        to[i] += from[i];
    }
}

/* A child that dies in a seed has failed once, whatever the rest of its share would have said. */
static uint64_t run_seeds(const struct options *options, struct sim_score *score)
{
    struct share {
        struct sim_score score;
        uint64_t failures;
    } * shares;
    pid_t children[JOBS_MAX]; /* not in the shares: a child would write its own 0 there */
    uint64_t failures = 0;
    if (options->jobs == 1) {
        return run_share(options, 0, score);
    }
    shares = mmap(NULL, options->jobs * sizeof *shares, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shares == MAP_FAILED) {
        (void)printf("no memory for %" PRIu64 " jobs\n", options->jobs);
        return 1;
    }
    (void)fflush(stdout);
    for (uint64_t i = 0; i < options->jobs; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            shares[i].failures = run_share(options, i, &shares[i].score);
            (void)fflush(stdout);
            _exit(0);
        }
    }
    for (uint64_t i = 0; i < options->jobs; i++) {
        int status = -1;
        bool ended = children[i] > 0 && waitpid(children[i], &status, 0) > 0;
        failures += shares[i].failures + (ended && status == 0 ? 0 : 1);
        add_score(score, &shares[i].score);
    }
    (void)munmap(shares, options->jobs * sizeof *shares);
    return failures;
}

/* Lines: a seed, then why it is kept. */
static uint64_t run_file(const char *path, struct sim_score *score)
{
    char line[256];
    uint64_t failures = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        (void)printf("%s: %s\n", path, strerror(errno));
        return 1;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        char *end;
        uint64_t seed = strtoull(line, &end, 10);
        failures += end != line && !run_seed(seed, false, score);
    }
    (void)fclose(file);
    return failures;
}

static uint64_t run_scenarios(bool trace, struct sim_score *score)
{
    uint64_t failures = 0;
    for (size_t i = 0; i < sim_scenario_count(); i++) {
        char reason[1024];
        if (!sim_scenario_run(i, trace, score, reason)) {
            (void)printf("scenario %s: %s\n", sim_scenario_name(i), reason);
            failures++;
        }
    }
    for (size_t i = 0; i < sim_directed_count(); i++) {
        char reason[1024];
        if (!sim_directed_run(i, trace, score, reason)) {
            (void)printf("scenario %s: %s\n", sim_directed_name(i), reason);
            failures++;
        }
    }
    (void)printf("%zu scenarios, %" PRIu64 " failed\n", sim_scenario_count() + sim_directed_count(),
                 failures);
    return failures;
}

static int list(void)
{
#define X(name, rate, text) (void)printf("%-16s %s\n", #name, text);
    SIM_FAULT_LIST(X)
#undef X
#define X(name, text) (void)printf("%-16s mutant: %s\n", #name, text);
    FCAP_MUTANT_LIST(X)
#undef X
    return 0;
}

static bool choose_mutant(const char *name)
{
#ifdef FCAP_MUTANTS
#define X(mutant, text)                                                                            \
    if (strcmp(name, #mutant) == 0) {                                                              \
        fcap_mutant = FCAP_MUTANT_##mutant;                                                        \
        return true;                                                                               \
    }
    FCAP_MUTANT_LIST(X)
#undef X
#endif
    (void)printf("%s: no such mutant, or a program without mutants\n", name);
    return false;
}

static bool read_option(struct options *options, const char *name, const char *value)
{
    if (strcmp(name, "--seeds") == 0) {
        options->seeds = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--first") == 0) {
        options->first = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--jobs") == 0) {
        options->jobs = strtoull(value, NULL, 10);
        return options->jobs >= 1 && options->jobs <= JOBS_MAX;
    } else if (strcmp(name, "--seconds") == 0) {
        options->seconds = strtod(value, NULL);
        options->seeds = UINT64_MAX - options->first;
    } else if (strcmp(name, "--file") == 0) {
        options->seed_file = value;
    } else if (strcmp(name, "--mutant") == 0) {
        return choose_mutant(value);
    } else {
        (void)printf("unknown option %s\n", name);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.first = 1, .seeds = 100, .jobs = 1};
    static struct sim_score score;
    uint64_t failures = 0;
    bool scenarios = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            return list();
        }
        if (strcmp(argv[i], "--trace") == 0) {
            options.trace = true;
        } else if (strcmp(argv[i], "--scenarios") == 0) {
            scenarios = true;
        } else if (strcmp(argv[i], "--coverage") == 0) {
            options.coverage = true;
        } else if (i + 1 == argc || !read_option(&options, argv[i], argv[i + 1])) {
            return 2;
        } else {
            i++;
        }
    }
    double begin = now_s();
    (void)signal(SIGABRT, say_seed);
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 18); /* Large zeroed arrays of a pipeline cost nothing. */
    failures += scenarios ? run_scenarios(options.trace, &score) : 0;
    failures += options.seed_file != NULL ? run_file(options.seed_file, &score) : 0;
    failures += run_seeds(&options, &score);
    bool complete = print_coverage(&score);
    (void)printf("result: %" PRIu64 " seeds from %" PRIu64 " on, %" PRIu64 " steps, %" PRIu64
                 " failed, %.0f seeds/s\n",
                 score.seeds, options.first, score.steps, failures,
                 (double)score.seeds / (now_s() - begin));
    if (options.coverage && !complete) {
        (void)printf("a counter stayed at zero\n");
        return 1;
    }
    return failures == 0 ? 0 : 1;
}
