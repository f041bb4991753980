/* What every store must do, whoever implements it: one suite, run on the fake and on RocksDB.
 * Without it the simulator would test a fiction. */
#ifndef STORE_CONTRACT_H
#define STORE_CONTRACT_H

#include "fcap/ports.h"

/* Filled by each runner. */
struct store_contract_subject {
    /* Makes an empty store and opens it. */
    void (*open)(void);
    /* A new handle of the open store. */
    struct fcap_store *(*handle)(void);
    /* Closes cleanly and opens the same store again; old handles are gone. */
    void (*reopen)(void);
    /* The next `count` writes fail before anything is applied, with class RETRY. */
    void (*fail_next)(size_t count);
    /* Closes and removes. */
    void (*close)(void);
};

/* Runs all tests; gives cmocka's number of failures. */
int store_contract_run(const char *name, const struct store_contract_subject *subject);

#endif
