/* Savepoints of the running daemon, one at a time on a thread of their own: POST /savepoint?to=DIR
 * begins one, GET /savepoint says how far the last one is.
 *
 * Thread rule: open, attach and close from main; the handlers on the HTTP thread. */
#ifndef FCAP_DAEMON_SAVEPOINTS_H
#define FCAP_DAEMON_SAVEPOINTS_H

#include "fcap/checkpoint_state.h"
#include "fcap/config.h"
#include "fcap/http.h"

struct fcap_savepoints;

/* Borrows the configuration. */
struct fcap_savepoints *fcap_savepoints_open(const struct fcap_config *config);

/* The state is open; it stays so until close. */
void fcap_savepoints_attach(struct fcap_savepoints *savepoints,
                            struct fcap_checkpoint_state *state);

/* When no page is served any more: gives up what runs. False: its volume hangs, and the thread
 * still runs; the process must end by _exit(). NULL is fine. */
bool fcap_savepoints_close(struct fcap_savepoints *savepoints, int64_t deadline_ms);

void fcap_serve_savepoint(void *context, const struct fcap_http_request *request,
                          struct fcap_http_response *response);
void fcap_serve_savepoint_progress(void *context, const struct fcap_http_request *request,
                                   struct fcap_http_response *response);

#endif
