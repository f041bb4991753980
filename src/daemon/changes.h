/* One log line for each change of state, from two views of a worker. Thread rule: the worker's. */
#ifndef FCAP_DAEMON_CHANGES_H
#define FCAP_DAEMON_CHANGES_H

#include "board.h"
#include "fcap/config.h"

/* How long a stall or an error of Kafka lasts before it is worth a line and a 503. */
#define FCAP_STALL_MS      2000
#define FCAP_KAFKA_AWAY_MS 5000
/* |wall clock - Redis TIME| beyond which the daemon is not ready. */
#define FCAP_CLOCK_OFFSET_MS 1000

/* Tells what differs. No user id and no secret is ever in it. */
void fcap_changes_log(const struct fcap_config *config, const struct fcap_worker_view *before,
                      const struct fcap_worker_view *now);

/* The first of the worker's lasting stalls, or NULL: for the log and /readyz alike. */
const char *fcap_changes_stall(const struct fcap_worker_view *view);
bool fcap_changes_kafka_away(const struct fcap_worker_view *view);
bool fcap_changes_clock_off(const struct fcap_worker_view *view);

#endif
