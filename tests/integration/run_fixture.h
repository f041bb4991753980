/* What the tests of the running daemon share: a topic with impressions that the oracle knows, a
 * private Redis, and comparisons of every key with the definition. Thread rule: one thread. */
#ifndef FCAP_TESTS_RUN_FIXTURE_H
#define FCAP_TESTS_RUN_FIXTURE_H

#include "lab/daemon_process.h"
#include "lab/kafka_broker.h"
#include "lab/oracle.h"
#include "lab/oracle_check.h"
#include "lab/redis_server.h"

#define RUN_PARTITIONS 4
#define RUN_USERS      150

struct run_window {
    const char *name;
    int64_t length_ms;
};

struct run_fixture {
    struct redis_server redis;
    struct daemon_process process;
    struct oracle *oracle;
    struct kafka_producer *producer;
    char topic[200];
    char letters[200];
    int64_t next[RUN_PARTITIONS]; /* offsets produced so far */
    struct run_window windows[4];
    size_t window_count;
    unsigned serial;
};

/* Starts Redis, makes the topics, writes a configuration with `windows` ("[2s, 5s, 20s]"; their
 * names and lengths follow, ended by a NULL name) and `more` YAML at the top level; does not start
 * the daemon. */
void run_fixture_init(struct run_fixture *fixture, const char *windows,
                      const struct run_window *lengths, const char *more);
void run_fixture_done(struct run_fixture *fixture);

/* The configuration again for a second process: other instance, same everything else. */
void run_fixture_yaml(const struct run_fixture *fixture, const char *instance, const char *windows,
                      const char *more, char *text, size_t size);

/* Starts the daemon and waits until it is ready; ends it by SIGTERM, which must give exit code 0.
 * Each fails after timeout_ms. */
void run_fixture_start(struct run_fixture *fixture, int64_t timeout_ms);
void run_fixture_stop(struct run_fixture *fixture, int64_t timeout_ms);

/* Produces `count` impressions of now and flushes. */
void run_fixture_produce(struct run_fixture *fixture, size_t count);
/* A record that is no event. */
void run_fixture_produce_bad(struct run_fixture *fixture);

/* Waits until fc:meta claims every produced offset in every partition; fails after timeout_ms. */
void run_fixture_await_applied(struct run_fixture *fixture, int64_t timeout_ms);
/* The text of fc:meta, or NULL. */
const char *run_fixture_meta(struct run_fixture *fixture);

/* Compares each user x window with the definition, at the value's own moment or, for absent keys,
 * at some moment of the last `lag_ms`. Fails on a wrong one. */
void run_fixture_compare(struct run_fixture *fixture, int64_t lag_ms, struct oracle_tally *tally);
/* Fails unless the tally holds enough and nothing wrong. */
void run_fixture_passes(const struct oracle_tally *tally, struct oracle_minimum minimum);
/* How many keys of users there are. */
long run_fixture_count_keys(struct run_fixture *fixture);

#endif
