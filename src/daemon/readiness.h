/* What is missing, and until when, in the same words for fc:meta, /readyz, the metrics and inspect.
 * Thread rule: pure. */
#ifndef FCAP_DAEMON_READINESS_H
#define FCAP_DAEMON_READINESS_H

#include "board.h"
#include "fcap/config.h"

/* One window in all partitions of the process together. */
struct fcap_window_readiness {
    bool is_complete;    /* Redis holds it and nothing is missing; false without a partition */
    int64_t ready_at_ms; /* the latest of them (Unix epoch); 0: nothing was ever missing */
};

/* Judges the window of this configured index. */
struct fcap_window_readiness fcap_readiness_of(const struct fcap_worker_view *views,
                                               size_t view_count, size_t window);

/* Appends {"1d":{"complete":true},"7d":{"complete":false,"ready_at":ms}}: `ready_at` where history
 * is missing, in some partition. */
void fcap_readiness_put_windows(const struct fcap_config *config,
                                const struct fcap_worker_view *views, size_t view_count,
                                struct fcap_buffer *buffer);

/* Appends ,"ready_at":{"7d":ms} with the windows whose history is not complete; nothing when all
 * are. */
void fcap_readiness_put_waiting(const struct fcap_config *config,
                                const struct fcap_task_report *report, struct fcap_buffer *buffer);

/* Appends ,"retention":{"topic_ms":..,"needed_ms":..} when the topic keeps records for less time
 * than a lost state would have to be read again; nothing otherwise. 0: not known; -1: for ever. */
void fcap_readiness_put_retention(const struct fcap_config *config, int64_t retention_ms,
                                  struct fcap_buffer *buffer);

/* Appends ,"lost":[{"kind":..,"first":..,"last":..,"next":..,"from":..,"to":..,"noticed":..,
 * "since":..}] as docs/DATA.md has it; nothing when nothing is lost. */
void fcap_readiness_put_lost(const struct fcap_gaps *lost, struct fcap_buffer *buffer);

#endif
