/* sim_mutants [--seeds N] [--jobs N] [NAME...]: each planted fault must be caught by name, in a
 * child each.
 *
 * A child tries the directed worlds and then one seed after the other; a failed check in a seed
 * that is clean without the fault, a failed assertion or a crash counts as caught. NONE must be
 * clean. ZOMBIE sits in the Redis adapter; its tests have it. Prints a line for each; the exit code
 * tells whether all were caught. */
#include "sim.h"

#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_SEED    1
#define JOBS_MAX      64
#define CHILD_SECONDS 600 /* a mutant may make a seed endless */

static const struct {
    const char *name;
    enum fcap_mutant mutant;
} mutants[] = {{"NONE", FCAP_MUTANT_NONE},
#define X(name, text) {#name, FCAP_MUTANT_##name},
               FCAP_MUTANT_LIST(X)
#undef X
};

/* What the child was at, for the case that it does not come back to say so. */
static int told;

static void tell(const char *text)
{
    ssize_t written = write(told, text, strlen(text) + 1);
    (void)written; /* The parent sees that nothing came. */
}

/* False: it fails. */
static bool run_seed(struct sim_world *world, uint64_t seed)
{
    static struct sim_score score;
    memset(world, 0, sizeof *world);
    sim_open(world, seed, NULL, &score);
    bool is_clean = sim_run(world);
    sim_close(world);
    return is_clean;
}

/* False: a story fails that is told step by step. */
static bool run_directed(void)
{
    static struct sim_score score;
    char text[1200];
    char reason[1024];
    for (size_t i = 0; i < sim_directed_count(); i++) {
        (void)snprintf(text, sizeof text, "by scenario %s: ", sim_directed_name(i));
        tell(text);
        if (!sim_directed_run(i, false, &score, reason)) {
            tell(reason);
            return false;
        }
    }
    return true;
}

static void run_child(enum fcap_mutant mutant, uint64_t seeds)
{
    static struct sim_world world;
    static struct sim_world clean;
    char text[1200];
    (void)freopen("/dev/null", "w", stderr); /* Assertions are what we hope for. */
    (void)alarm(CHILD_SECONDS);
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 18);
    fcap_mutant = mutant;
    if (!run_directed()) {
        _exit(1);
    }
    for (uint64_t i = 0; i < seeds; i++) {
        (void)snprintf(text, sizeof text, "at seed %" PRIu64 ": ", FIRST_SEED + i);
        tell(text);
        if (run_seed(&world, FIRST_SEED + i)) {
            continue;
        }
        fcap_mutant = FCAP_MUTANT_NONE;
        if (mutant == FCAP_MUTANT_NONE || run_seed(&clean, FIRST_SEED + i)) {
            tell(world.reason);
            _exit(1);
        }
        fcap_mutant = mutant; /* A seed that fails anyway has caught nothing. */
    }
    _exit(0);
}

/* The child tells "where" again and again, and at last perhaps why. */
static void read_story(int from, char where[128], char why[1024])
{
    static char story[1 << 16];
    size_t used = 0;
    ssize_t got;
    where[0] = '\0';
    why[0] = '\0';
    while ((got = read(from, story + used, sizeof story - used)) > 0) {
        used += (size_t)got;
        size_t at = 0;
        const char *end;
        while ((end = memchr(story + at, '\0', used - at)) != NULL) {
            bool is_place = strncmp(story + at, "at seed", 7) == 0 ||
                            strncmp(story + at, "by scenario", 11) == 0;
            (void)snprintf(is_place ? where : why, is_place ? 128 : 1024, "%.*s",
                           is_place ? 127 : 1023, story + at);
            at = (size_t)(end - story) + 1;
        }
        memmove(story, story + at, used - at);
        used -= at;
    }
}

static bool try_mutant(const char *name, enum fcap_mutant mutant, uint64_t seeds)
{
    int ends[2];
    char where[128];
    char why[1024];
    int status = 0;
    if (pipe(ends) != 0) {
        return false;
    }
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        told = ends[1];
        run_child(mutant, seeds);
    }
    (void)close(ends[1]);
    if (child < 0) {
        (void)close(ends[0]);
        return false;
    }
    read_story(ends[0], where, why);
    (void)close(ends[0]);
    (void)waitpid(child, &status, 0);
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (why[0] == '\0' && WIFSIGNALED(status)) {
        (void)snprintf(why, sizeof why, "signal %d", WTERMSIG(status));
    }
    why[strcspn(why, "\n")] = '\0';
    if (clean) {
        (void)printf("%s %s in %" PRIu64 " seeds\n", name,
                     mutant == FCAP_MUTANT_NONE ? "is clean" : "NOT CAUGHT", seeds);
    } else {
        (void)printf("%s %s %s%s\n", name, mutant == FCAP_MUTANT_NONE ? "FAILS" : "caught", where,
                     why);
    }
    (void)fflush(stdout);
    return clean == (mutant == FCAP_MUTANT_NONE);
}

struct options {
    uint64_t seeds;
    size_t jobs;
    char **names; /* none: all */
    size_t name_count;
};

static bool is_wanted(const struct options *options, size_t index)
{
    bool wanted = options->name_count == 0 && mutants[index].mutant != FCAP_MUTANT_ZOMBIE;
    for (size_t i = 0; i < options->name_count; i++) {
        wanted = wanted || strcmp(options->names[i], mutants[index].name) == 0;
    }
    return wanted;
}

/* Every jobs-th of the wanted ones, beginning with the one numbered `job`; gives the failures. */
static size_t try_share(const struct options *options, size_t job)
{
    size_t failures = 0;
    size_t number = 0;
    for (size_t i = 0; i < sizeof mutants / sizeof mutants[0]; i++) {
        if (is_wanted(options, i) && number++ % options->jobs == job) {
            /* The unmutated core is run by sim itself; a sample shows that this program can pass.
             */
            uint64_t count = mutants[i].mutant == FCAP_MUTANT_NONE && options->seeds > 200
                                 ? 200
                                 : options->seeds;
            failures += !try_mutant(mutants[i].name, mutants[i].mutant, count);
        }
    }
    return failures;
}

/* The exit code of a share is its number of failures; one that died counts as one. */
static size_t try_shares(const struct options *options)
{
    pid_t children[JOBS_MAX];
    size_t failures = 0;
    (void)fflush(stdout);
    for (size_t i = 0; i < options->jobs; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            _exit((int)try_share(options, i));
        }
    }
    for (size_t i = 0; i < options->jobs; i++) {
        int status = -1;
        bool ended = children[i] > 0 && waitpid(children[i], &status, 0) > 0 && WIFEXITED(status);
        failures += ended ? (size_t)WEXITSTATUS(status) : 1;
    }
    return failures;
}

int main(int argc, char **argv)
{
    struct options options = {.seeds = 2000, .jobs = 1};
    int first = 1;
    size_t tried = 0;
    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        if (strcmp(argv[first], "--seeds") == 0) {
            options.seeds = strtoull(argv[first + 1], NULL, 10);
        } else if (strcmp(argv[first], "--jobs") == 0) {
            options.jobs = strtoull(argv[first + 1], NULL, 10);
        } else {
            (void)printf("unknown option %s\n", argv[first]);
            return 2;
        }
    }
    options.names = argv + first;
    options.name_count = (size_t)(argc - first);
    if (options.jobs < 1 || options.jobs > JOBS_MAX) {
        (void)printf("--jobs: 1 to %d\n", JOBS_MAX);
        return 2;
    }
    for (size_t i = 0; i < sizeof mutants / sizeof mutants[0]; i++) {
        tried += is_wanted(&options, i);
    }
    size_t failures = try_shares(&options);
    (void)printf("result: %zu cores tried, with one planted fault each and without: %zu wrong\n",
                 tried, failures);
    return tried > 0 && failures == 0 ? 0 : 1;
}
