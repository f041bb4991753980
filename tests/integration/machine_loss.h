/* A daemon with checkpoints under load whose machine is lost again and again: history.h's world,
 * the directory of its checkpoints, and lives that end by kill -9 and the loss of their state.
 *
 * What must hold: records come all the time, by a thread (history_send_beside()); whatever is
 * claimed of a restore is read from the store of checkpoints, the daemon's log and its metrics.
 * Thread rule: one thread beside that one. */
#ifndef FCAP_TESTS_MACHINE_LOSS_H
#define FCAP_TESTS_MACHINE_LOSS_H

#include "history.h"
#include "stop.h"

#include "fcap/restore.h"

/* Longer than anything takes; a full replay on a busy machine takes minutes. */
#define MACHINE_WAIT_MS 600000

/* What a start says that has restored one; its number follows. */
#define MACHINE_RESTORED "state: checkpoint "

/* The newest checkpoint. */
struct machine_kept {
    uint64_t number; /* 0: none */
    uint64_t sequence;
    uint64_t snapshot_sequence;
    int64_t next[LIVE_PARTITIONS_MAX]; /* where Kafka goes on */
};

/* How a start went. */
struct machine_start {
    uint64_t number;   /* the checkpoint that was restored; 0: none was */
    uint64_t batches;  /* from its changelog */
    int64_t ready_ms;  /* from the start of the process to /readyz 200: the gates are open */
    int64_t served_ms; /* until fc:meta says that every window is served; it comes every 2 s */
    uint64_t read;     /* records from Kafka, when it was served */
};

struct machine {
    struct history history;
    struct stop stop;
    bool armed; /* it may have stopped: it is not asked any more */
    char folder[64];
    char directory[96]; /* checkpoint.directory */
    char more[1024];    /* YAML with checkpoints */
    const char *more_without;
    struct fcap_objects *objects;
    int64_t applied[LIVE_PARTITIONS_MAX]; /* the furthest next offset seen in metrics and claims */
    double expired;                       /* of this life, as seen last */
    int64_t looked_ms;
    size_t log_size;    /* what the log had when this life began */
    int64_t started_ms; /* monotonic */
    int64_t since_ms;   /* wall clock */
};

/* Makes the world of `options`; `more` YAML is added to its own with and without checkpoints, the
 * lines of `materialization` under that key. Produces the history; starts no daemon. */
void machine_init(struct machine *machine, const struct history_options *options,
                  const char *materialization);
void machine_done(struct machine *machine);

/* Looks at claims and metrics and waits a little. Fails when the daemon has ended by itself, has
 * met a gap or taken off what was not there. */
void machine_tick(struct machine *machine);
void machine_go_on(struct machine *machine, int64_t ms);

/* With checkpoints or without, from the next start on. */
void machine_configure(struct machine *machine, bool keeps);
/* Starts a life; `points` (NULL: none) as in stop.h, counted from machine_await_stop() on. */
void machine_start(struct machine *machine, const char *points);
/* Starts a life that stops at these points at once, waits for that, and kills it there. */
void machine_die_starting(struct machine *machine, const char *points);
/* Waits until every window of every partition is served by this life. */
void machine_await_served(struct machine *machine, struct machine_start *ret_start);
/* Waits until this life has completed so many checkpoints. */
void machine_await_checkpoints(struct machine *machine, unsigned count);
/* Waits until it stands at its point, and kills it there. */
void machine_kill_at_point(struct machine *machine);
/* Kills it wherever it is. */
void machine_kill(struct machine *machine);

/* What is kept. Nothing writes there: the daemon is dead. */
void machine_look(struct machine *machine, struct machine_kept *ret_kept);
/* The dead daemon's state is gone. Fails when there was none. */
void machine_lose(struct machine *machine);
/* Everything that Redis holds is gone. */
void machine_empty_redis(struct machine *machine);
/* Kafka loses every record that the checkpoint has counted; gives how many. The topic has been read
 * before. */
uint64_t machine_delete_records(struct machine *machine, const struct machine_kept *kept);

#endif
