/* What every place for objects must do, whoever implements it: one suite, run on the fake and on a
 * directory. */
#ifndef OBJECTS_CONTRACT_H
#define OBJECTS_CONTRACT_H

#include "fcap/objects.h"

/* Filled by each runner. */
struct objects_contract_subject {
    /* Makes an empty place and opens it. */
    void (*open)(void);
    /* Two users of the same place; valid until close(). */
    struct fcap_objects *(*first)(void);
    struct fcap_objects *(*second)(void);
    /* Runs `what` as a process that ends right after it, however it ends. */
    void (*run_and_die)(void (*what)(struct fcap_objects *objects));
    /* Closes and removes; everything was given back. */
    void (*close)(void);
};

/* Runs all tests; gives cmocka's number of failures. */
int objects_contract_run(const char *name, const struct objects_contract_subject *subject);

#endif
