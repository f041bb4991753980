/* How a test that has proved a fault tells so: a row of the fault matrix in docs/OPERATING.md,
 * which tests/faults.py makes from these lines. Thread rule: none. */
#ifndef FCAP_TESTS_FAULT_H
#define FCAP_TESTS_FAULT_H

#include <stdio.h>

/* Texts for the operator, Markdown, without "|" and line breaks, the same in each run. What is seen
 * is what the test has just compared: share the literal. */
struct fault {
    const char *id; /* "group-name", a group of tests/faults.py */
    const char *fault;
    const char *sees;
    const char *lost;
    const char *recovers;
};

/* To be the last step of the test. */
static inline void fault_is_proved(const struct fault *fault)
{
    /* One line of its own, whatever was printed before. */
    printf("\nfault: %s | %s | %s | %s | %s\n", fault->id, fault->fault, fault->sees, fault->lost,
           fault->recovers);
}

#endif
