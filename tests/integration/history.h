/* An initial load: a topic that keeps everything, with days of history whose records' times end
 * now, live traffic that never stops while something is waited for, and a watch of everything that
 * Redis is made to do (lab/redis_watch.h). One partition may be empty, one slow.
 *
 * What must hold: the history is produced before the first daemon or backfill starts; the watch is
 * there from before. Thread rule: one thread. */
#ifndef FCAP_TESTS_HISTORY_H
#define FCAP_TESTS_HISTORY_H

#include "live.h"

#include "lab/impressions.h"
#include "lab/redis_watch.h"

#include <pthread.h>
#include <stdatomic.h>

/* Until gates are open; the full size takes a minute on two busy cores. */
#define HISTORY_WAIT_MS 600000

struct history_options {
    struct live_options live;
    uint64_t events; /* of the history */
    uint32_t users;
    uint32_t rate;   /* of live events, a second */
    int64_t span_ms; /* the history's first record is so old */
    int64_t edge_ms; /* where the history crosses now - L, so long a time is crowded: these events
                        leave while the test runs. 0: no such crowds */
    int32_t empty;   /* this partition stays empty; -1: none */
    int32_t slow;    /* this one gets a tenth of its share; -1: none */
    uint64_t seed;
};

struct history {
    struct history_options options;
    struct live live;
    struct redis_watch *watch;
    struct impressions *impressions;
    uint64_t random;
    int64_t longest_ms;
    int64_t ends[LIVE_PARTITIONS_MAX]; /* of the history, when it was complete */
    uint64_t sent;                     /* live records */
    double owed;                       /* live records that are due */
    int64_t ticked_ms;
    int64_t looked_ms;
    uint64_t behind; /* live records that came before their partition's gate opened */
    struct history_sent {
        int64_t at_ms; /* wall clock */
        int32_t partition;
    } * log; /* live records until the gates are open */
    size_t log_count;
    size_t log_capacity;
    bool logs;
    bool sends_beside;
    pthread_t sender;
    atomic_bool is_calm;
};

/* Starts Redis, the watch, and the topic; no daemon. */
void history_init(struct history *history, const struct history_options *options);
void history_done(struct history *history);

/* 0 to below - 1. */
uint32_t history_draw(struct history *history, uint32_t below);

/* Produces the history; all of it is acknowledged when it returns. */
void history_produce(struct history *history);
/* Sends the live records that are due, and waits a little. */
void history_tick(struct history *history);
void history_go_on(struct history *history, int64_t ms);
/* A thread sends them from now on, whatever this one does, until history_calm(); a tick only looks.
 * Meanwhile nobody else sends, flushes, draws, or reads `sent`. */
void history_send_beside(struct history *history);
/* Fine when no thread sends. */
void history_calm(struct history *history);

/* Starts the daemon and sends live traffic until every gate is open. */
void history_start(struct history *history);
/* The same, but the daemon is stopped twice behind its gates: half through the history, while live
 * traffic goes on for pause_ms, and again when so many events have left their windows. */
void history_start_slowly(struct history *history, int64_t pause_ms, unsigned expiries);
/* The last part of it, for a daemon that was started already. */
void history_await_gates(struct history *history);

/* Waits, with live traffic, until `fcapd backfill`, which was started, has ended with 0. Gives its
 * T, as its summary says it. */
int64_t history_await_backfill(struct history *history);
/* Compares every key with the definition at its own as_of, over the history and some of what came
 * live; an absent one at at_ms or since. For a Redis that only backfills have written. */
void history_compare_backfilled(struct history *history, int64_t at_ms, struct oracle_tally *tally);

/* What a run of checks of the watch has found. */
struct history_watched {
    struct redis_ledger_report report;
    struct oracle_tally first; /* each key's first value */
};

/* What the watch has seen, and whether each key's very first value is the definition at its as_of
 * over all of the history (and some of what came live). A window that nobody knows is taken for the
 * longest. */
void history_watched(struct history *history, struct history_watched *ret_watched);
/* The same; fails unless all is right. */
void history_check_watch(struct history *history, struct history_watched *ret_watched);

#endif
