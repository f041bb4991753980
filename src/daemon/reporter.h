/* The reporter of fc:meta:<profile>:<instance> (docs/DATA.md): what readers may conclude from a
 * value or from its absence, renewed every 2 s and gone 10 s after the last report. With it go the
 * keys by which backfill and rebuild find the owner of a partition.
 *
 * A claim stands in a worker's view only after Redis has acknowledged everything below it, and is
 * sent after that. When the process stops, cleanly or not, the key is left to expire: a restart
 * within 10 s leaves no hole, and for readers a stop and a crash look the same.
 * Thread rule: open and close from main; it has a thread and a Redis connection of its own. */
#ifndef FCAP_DAEMON_REPORTER_H
#define FCAP_DAEMON_REPORTER_H

#include "board.h"
#include "fcap/config.h"

#define FCAP_REPORT_EVERY_MS 2000
#define FCAP_REPORT_TTL_MS   10000

/* Appends the report's JSON; `at_ms` is Redis TIME, the clock that all its readers share. Pure. */
void fcap_report_build(const struct fcap_config *config, const struct fcap_worker_view *views,
                       size_t view_count, int64_t at_ms, struct fcap_buffer *buffer);

struct fcap_reporter;

/* Starts; connects in the background and for ever. CONFIG: the sink's settings cannot be used. */
enum fcap_status fcap_reporter_open(const struct fcap_config *config, struct fcap_board *board,
                                    struct fcap_reporter **ret_reporter,
                                    struct fcap_error *error) FCAP_MUST_USE;

/* Sends a last report when Redis answers within wait_ms, then ends. NULL is fine. */
void fcap_reporter_close(struct fcap_reporter *reporter, int wait_ms);

#endif
