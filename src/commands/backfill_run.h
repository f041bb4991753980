/* The phases of `fcapd backfill`, with the world behind the ports: reads, waits, folds, writes, and
 * waits for whoever is away. Thread rule: main only. */
#ifndef FCAP_COMMANDS_BACKFILL_RUN_H
#define FCAP_COMMANDS_BACKFILL_RUN_H

#include "fcap/backfill.h"
#include "fcap/kafka_history.h"
#include "fcap/seed_redis.h"
#include "progress.h"

/* All borrowed, but the history. */
struct fcap_backfill_world {
    struct fcap_backfill *backfill;
    struct fcap_decoder *decoder;
    struct fcap_kafka_history *history; /* closed when it has been read: its memory goes, and no
                                           broker that hangs later can hold the end */
    struct fcap_seed_redis *seed;
    struct fcap_spill *spill;
    struct fcap_progress *progress;
    struct fcap_settings settings; /* of the backfill */
    int32_t partitions;
    int64_t patience_ms; /* for Kafka or Redis, in a row */
};

/* What the summary adds to the backfill's own report. */
struct fcap_backfill_times {
    int64_t begun_ms; /* monotonic */
    int64_t read_ms;  /* how long the reading took */
    bool is_read;     /* the history has been closed */
};

/* All phases, to the end. UNAVAILABLE: somebody was away for longer than the patience, or a signal
 * came (fcap_signals_received() tells); else as fcap/backfill.h. `error` says what happened. */
enum fcap_status fcap_backfill_run(const struct fcap_backfill_world *world,
                                   struct fcap_backfill_times *ret_times,
                                   struct fcap_error *error) FCAP_MUST_USE;

#endif
