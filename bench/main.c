#include "bench.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

void bench_remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* What stays lies in /tmp. */
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "engine") == 0) {
        return bench_engine(argc - 2, argv + 2);
    }
    if (argc >= 2 && strcmp(argv[1], "pipeline") == 0) {
        return bench_pipeline(argc - 2, argv + 2);
    }
    if (argc >= 2 && strcmp(argv[1], "load") == 0) {
        return bench_load(argc - 2, argv + 2);
    }
    if (argc >= 2 && strcmp(argv[1], "checkpoint") == 0) {
        return bench_checkpoint(argc - 2, argv + 2);
    }
    if (argc >= 2 && strcmp(argv[1], "restore") == 0) {
        return bench_restore(argc - 2, argv + 2);
    }
    (void)fputs(
        "usage: fcapd-bench engine|pipeline|load|checkpoint|restore [--help for its options]\n",
        stderr);
    return 2;
}
