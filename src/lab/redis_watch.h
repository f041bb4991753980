/* Watches everything that a redis-server does, by MONITOR on a connection and a thread of its own,
 * and enters it into a ledger. Nothing is polled: what was written and gone again in between is
 * seen, too.
 *
 * What must hold: the watch is opened before the first writer that matters connects. A lost
 * connection or a line that cannot be read is an error of the ledger, so a blind watch never
 * passes. Thread rule: one thread beside its own; the ledger belongs to the watch's thread but
 * between hold and release. */
#ifndef FCAP_LAB_REDIS_WATCH_H
#define FCAP_LAB_REDIS_WATCH_H

#include "lab/redis_ledger.h"
#include "lab/redis_server.h"

struct redis_watch;

/* Gives a watch that sees every command from now on. The server, which has no password, outlives
 * it. */
struct redis_watch *redis_watch_open(struct redis_server *server,
                                     const struct redis_ledger_options *options);
/* NULL is fine. */
void redis_watch_close(struct redis_watch *watch);

/* Waits until everything that the server did before this call is entered, and gives the ledger,
 * which stands still until the release. Of a lost connection it says so. */
struct redis_ledger *redis_watch_hold(struct redis_watch *watch);
void redis_watch_release(struct redis_watch *watch);

#endif
