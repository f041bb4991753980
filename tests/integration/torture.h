/* The world of the crash torture: two daemons with named points (fcap/point.h) in one group, a real
 * broker and a Redis of their own, impressions that never stop while something is waited for.
 *
 * What must hold: a member dies only at the point that its life was started for, stopped there by
 * itself; every death that counts has a commit between itself and the one before. Any difference
 * ends the test. Thread rule: one thread. */
#ifndef FCAP_TESTS_TORTURE_H
#define FCAP_TESTS_TORTURE_H

#include "live.h"

#include "fcap/point.h"
#include "lab/impressions.h"

#define TORTURE_NOWHERE FCAP_POINT_COUNT

struct torture_scale {
    uint64_t events; /* at least so many */
    uint32_t users;
    uint32_t rate; /* events a second */
    int partitions;
    const char *windows; /* YAML */
    const struct live_window *lengths;
    unsigned kills; /* that count, at least */
    bool is_full;
};

enum torture_redis { TORTURE_REDIS_SAVED, TORTURE_REDIS_EMPTY, TORTURE_REDIS_OLD };

/* A daemon. One is a static member, Two joins and leaves as it likes. */
struct torture_member {
    struct daemon_process *process;
    const char *name;
    enum fcap_point point; /* where this life ends; TORTURE_NOWHERE: nowhere */
    long passes;
    bool armed;     /* it may have stopped: it is not asked any more */
    double commits; /* seen in this life */
    char at[64];    /* its environment */
    char file[128];
    char when[128];
    bool is_lost;    /* its state is gone, and nothing has been restored since */
    size_t log_size; /* what its log had when this life began */
};

struct torture {
    const struct torture_scale *scale;
    struct live live;
    struct kafka_broker *broker;
    struct daemon_process two_process;
    struct torture_member one;
    struct torture_member two;
    struct impressions *impressions;
    uint64_t random;
    uint64_t sent; /* records */
    double owed;   /* records that are due */
    bool fast;     /* twice the rate */
    int64_t ticked_ms;
    int64_t looked_ms;
    double commits_since; /* the last death that counts, seen in metrics */
    unsigned kills[FCAP_POINT_COUNT];
    unsigned in_a_row;    /* deaths without a commit in between */
    char checkpoints[64]; /* checkpoint.directory of both */
    char more[512];       /* YAML */
    unsigned lost;        /* machines */
    unsigned restored;    /* of them, from a checkpoint */
    struct live_tally tally;
    uint64_t longest_ms;
};

/* Starts broker and Redis, no daemon. Seeds everything that is drawn. */
void torture_init(struct torture *torture, const struct torture_scale *scale, uint64_t seed);
void torture_done(struct torture *torture);

/* 0 to below - 1. */
uint32_t torture_draw(struct torture *torture, uint32_t below);

/* Sends what is due, looks at claims and metrics, and waits a little. */
void torture_tick(struct torture *torture);
void torture_go_on(struct torture *torture, int64_t ms);

/* Starts a life that ends at a point; `waits`: passes count only after torture_arm(). */
void torture_start(struct torture *torture, struct torture_member *member, enum fcap_point point,
                   bool waits);
/* SIGTERM; the exit code must be 0. Fine when it does not run. */
void torture_stop(struct torture *torture, struct torture_member *member);
void torture_arm(struct torture *torture, struct torture_member *member);
/* Waits until a commit has been seen in metrics since the last death that counts. */
void torture_await_commit(struct torture *torture);
/* Waits until this member owns a partition. */
void torture_await_partition(struct torture *torture, struct torture_member *member);
/* Waits until every window of every partition is served by an owner of after now. */
void torture_await_ready(struct torture *torture);
/* Waits until the member has stopped itself at its point, and kills it there. `counts`: there must
 * have been a commit since the last death that counts. */
void torture_kill(struct torture *torture, struct torture_member *member, bool counts);

/* The machine of a dead member is lost: its state is deleted, and its next life must begin with its
 * newest checkpoint, which is seen to. A member without any keeps its state. */
void torture_lose(struct torture *torture, struct torture_member *member);

/* Redis is killed and comes back with what was saved right before, with nothing, or with what
 * torture_redis_save() saved. */
void torture_redis_save(struct torture *torture);
void torture_redis(struct torture *torture, enum torture_redis kind);
/* The broker is killed and comes back. */
void torture_broker(struct torture *torture);

/* Compares every key at rest, absent ones and expiries too. */
void torture_compare(struct torture *torture);

#endif
