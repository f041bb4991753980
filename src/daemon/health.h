/* /livez and /readyz: judged from the workers' views. Thread rule: pure. */
#ifndef FCAP_DAEMON_HEALTH_H
#define FCAP_DAEMON_HEALTH_H

#include "board.h"
#include "fcap/choose.h"
#include "fcap/config.h"

/* A worker's loop that has stood still for longer is not alive. Below the watchdog's bound. */
#define FCAP_LIVE_STILL_MS 60000

/* A running worker that has said nothing for longer is not ready: its view tells the past. */
#define FCAP_READY_STALE_MS 5000
/* A write of the store that takes longer hangs. */
#define FCAP_WRITE_HANGS_MS 5000

/* What is judged besides the views. */
struct fcap_health_facts {
    int64_t now_ms;          /* CLOCK_MONOTONIC */
    bool is_state_open;      /* false: it is still being opened */
    uint64_t restored_bytes; /* of a checkpoint, so far */
    uint64_t restore_bytes;  /* of all of it; 0: none is restored */
    bool write_stopped;      /* RocksDB takes no writes, */
    bool sync_failing;       /* or could not make them durable */
    int64_t write_waits_ms;  /* how long the write under way has not come back; 0: there is none */
    const char *last_store_error;                  /* may be empty */
    const struct fcap_sink_redis_status *reporter; /* of fc:meta; NULL: nothing is known of it */
    const char *checkpoints;                       /* how they stand; NULL: there are none */
    enum fcap_state_source source;                 /* of the state; SOURCES: not known yet */
    int64_t retention_ms; /* of the topic, as it was at the start; 0: not known; -1: for ever */
};

/* Appends the body {"ready":..,"reasons":[..],"windows":{..},"workers":[..]} and gives whether the
 * daemon is ready: every assigned gate is open, nothing stalls, the clock is right, the state takes
 * commits. Each reason names what is wrong, the key where one is at fault, and the cure. Window
 * readiness and gaps stand in the body and do not make it unready. */
bool fcap_health_ready(const struct fcap_config *config, const struct fcap_worker_view *views,
                       size_t view_count, const struct fcap_health_facts *facts,
                       struct fcap_buffer *body);

/* True when every worker's loop has moved within FCAP_LIVE_STILL_MS, has not begun yet (the state
 * may take long to open) or has ended. The body names those that have not. */
bool fcap_health_live(const struct fcap_board *board, const struct fcap_worker_view *views,
                      int64_t now_ms, struct fcap_buffer *body);

#endif
