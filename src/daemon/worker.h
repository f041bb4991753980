/* A worker: a thread with its own member of the group, Redis connection, decoder, dead letters,
 * store handle and pipeline over the tasks that the group gives it.
 *
 * It opens and closes its parts itself, on its thread. Thread rule: open, stop, wait and close
 * belong to main. */
#ifndef FCAP_DAEMON_WORKER_H
#define FCAP_DAEMON_WORKER_H

#include "board.h"
#include "fcap/adopter.h"
#include "fcap/config.h"
#include "memory.h"
#include "questions.h"

/* What all workers share; borrowed, outlives them. */
struct fcap_worker_shared {
    const struct fcap_config *config;
    bool replay_from_kafka; /* run --replay-from-kafka */
    struct fcap_memory_plan plan;
    struct fcap_board *board;
    struct fcap_questions *questions;
    struct fcap_store_rocksdb *db;
    struct fcap_adopter *adopter; /* NULL: partitions begin with the state that is here */
    uint64_t *keyed_slots;
    struct fcap_keyed_look *keyed_look;
    /* Called on the worker's thread when it ends, for whatever reason. */
    void (*ended)(void *context, size_t worker);
    /* The same when everything that it took is committed and nothing more will be. */
    void (*settled)(void *context, size_t worker);
    void *ended_context; /* of both */
};

struct fcap_worker;

/* Starts thread number `index`. */
struct fcap_worker *fcap_worker_open(const struct fcap_worker_shared *shared, size_t index);

/* Asks it to drain until `drain_deadline_ms` (CLOCK_MONOTONIC), commit, leave the group, end. */
void fcap_worker_stop(struct fcap_worker *worker, int64_t drain_deadline_ms);

struct fcap_worker_result {
    enum fcap_status status; /* OK: drained and left; TIMEOUT: something is left to be read again;
                                else why it failed (the view on the board has the text) */
    bool is_clean;           /* false: threads of a library still run; end by _exit() */
};

/* Waits for the thread's end and frees. NULL gives OK. */
struct fcap_worker_result fcap_worker_close(struct fcap_worker *worker);

#endif
