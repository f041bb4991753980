/* The daemon's HTTP pages. Open to all: /livez /readyz /status /metrics; with the bearer token of
 * http.token_file: /inspect?user=U[&partition=P], /hot-users, /rebuild, /savepoint and /values.
 *
 * Thread rule: open and close from main; pages are made on the HTTP thread from what others
 * publish; those that ask the workers on its second one, so that probes never wait behind them. */
#ifndef FCAP_DAEMON_SERVER_H
#define FCAP_DAEMON_SERVER_H

#include "board.h"
#include "fcap/adopter.h"
#include "fcap/checkpointer.h"
#include "fcap/choose.h"
#include "fcap/config.h"
#include "fcap/store_rocksdb.h"
#include "questions.h"
#include "savepoints.h"

/* How long /inspect, /rebuild and /values wait for the workers. */
#define FCAP_INSPECT_TIMEOUT_MS 5000

struct fcap_server_settings {
    const struct fcap_config *config;
    struct fcap_board *board;
    struct fcap_questions *questions;
    struct fcap_savepoints *savepoints;
};

struct fcap_server;

/* Binds http.listen; a NULL server when it is off. Serves before the state is open, because opening
 * it may take longer than a liveness probe waits. */
enum fcap_status fcap_server_open(const struct fcap_server_settings *settings,
                                  struct fcap_server **ret_server,
                                  struct fcap_error *error) FCAP_MUST_USE;

/* Tells the pages about the state once it is open; it must stay open until fcap_server_close(). A
 * NULL server is fine. */
void fcap_server_attach(struct fcap_server *server, struct fcap_store_rocksdb *db);

/* The same of what keeps its checkpoints; NULL: nobody does any more. */
void fcap_server_attach_checkpointer(struct fcap_server *server,
                                     struct fcap_checkpointer *checkpointer);

/* The same of what takes partitions from checkpoints. */
void fcap_server_attach_adopter(struct fcap_server *server, struct fcap_adopter *adopter);

/* Tells the pages where the state was taken from; until then it is not known. A NULL server is
 * fine. */
void fcap_server_tell_source(struct fcap_server *server, enum fcap_state_source source);

/* Tells the pages how far a restore is, before the state is open. A NULL server is fine. */
void fcap_server_tell_restore(struct fcap_server *server, uint64_t bytes, uint64_t bytes_all);

/* Tells the pages the topic's retention.ms, -1: for ever; until then it is not known. A NULL server
 * is fine. */
void fcap_server_tell_retention(struct fcap_server *server, int64_t retention_ms);

/* NULL is fine. */
void fcap_server_close(struct fcap_server *server);

#endif
