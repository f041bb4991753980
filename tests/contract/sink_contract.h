/* What every sink must do, as one suite for the fake and the real adapter: without it the simulator
 * would test a fiction. A world is one Redis, however made, and the sinks that talk to it. */
#ifndef FCAP_TESTS_SINK_CONTRACT_H
#define FCAP_TESTS_SINK_CONTRACT_H

#include "fcap/ports.h"

struct sink_world {
    const char *name;
    /* A new, empty Redis; and its end, also after a failed test. */
    void (*start)(void);
    void (*stop)(void);
    /* A sink of this worker number; sinks of one number have one connection name. */
    struct fcap_sink *(*open)(unsigned worker, size_t in_flight_max);
    void (*close)(struct fcap_sink *sink);
    /* What another client sees at the key now. */
    bool (*get)(const char *key, struct fcap_buffer *ret_value);
    /* The server goes away without losing data, and comes back. */
    void (*down)(bool down);
    /* The server answers nothing, and goes on. */
    void (*hold)(bool hold);
    /* Writes are refused for want of memory, and accepted again. */
    void (*full)(bool full);
    void (*flush)(void);
    void (*delete_sentinel)(void);
    /* Killed and started again, at once. */
    void (*restart)(bool keep_data);
    int64_t (*now_ms)(void); /* the server's clock */
    void (*wait_ms)(int64_t ms);
};

/* Runs the suite; returns the number of failed tests. */
int sink_contract_run(const struct sink_world *world);

#endif
