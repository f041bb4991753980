/* The benchmarks of fcapd-bench; each reports and asserts no time. Thread rule: main's thread. */
#ifndef FCAP_BENCH_H
#define FCAP_BENCH_H

/* Each takes the arguments behind its name and gives the exit code: 0; 1: the run or its
 * comparison failed; 2: the arguments are wrong. */
int bench_engine(int argc, char **argv);
int bench_pipeline(int argc, char **argv);
int bench_load(int argc, char **argv);
int bench_checkpoint(int argc, char **argv);
int bench_restore(int argc, char **argv);

/* Deletes a directory made by mkdtemp and everything in it. */
void bench_remove_tree(const char *path);

#endif
