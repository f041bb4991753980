/* What fcapd-bench prints with --json. Thread rule: none. */
#ifndef FCAP_TESTS_BENCH_OUTPUT_H
#define FCAP_TESTS_BENCH_OUTPUT_H

/* The object on the last line, within `output`, whose last line break goes; fails the test when
 * there is none. */
const char *bench_object(char *output);

/* The first member of that name; fails the test when there is none, or it is no number. */
double bench_number(const char *object, const char *name);

#endif
