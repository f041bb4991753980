/* A private redis-server: a free loopback port and a unix socket in a directory of its
 * own, nothing saved unless the options say so. It dies with
 * its parent (PR_SET_PDEATHSIG).
 * Thread rule: one thread. */
#ifndef FCAP_LAB_REDIS_SERVER_H
#define FCAP_LAB_REDIS_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { REDIS_SERVER_OPTIONS_MAX = 24 };

struct redis_server {
    pid_t pid; /* 0: not running */
    bool frozen;
    uint16_t port;
    char directory[64];
    char socket[96];
    const char *options[REDIS_SERVER_OPTIONS_MAX + 1];
    const char *password; /* for redis_server_ask(); NULL: none */
    void *context;        /* our own connection */
    char *answer;
};

/* Starts with further options ("--maxmemory", "2mb", NULL; borrowed) and waits until it answers.
 * Ends the process when it does not. */
void redis_server_start(struct redis_server *server, const char *const *options);
/* kill -9. */
void redis_server_kill(struct redis_server *server);
/* Starts a killed one again on the same port, without its dump.rdb unless `keep`. */
void redis_server_restart(struct redis_server *server, bool keep);
/* Kills and removes the directory. Fine when it never started. */
void redis_server_stop(struct redis_server *server);
/* SIGSTOP and SIGCONT. */
void redis_server_freeze(struct redis_server *server);
void redis_server_thaw(struct redis_server *server);
bool redis_server_is_frozen(const struct redis_server *server);
/* Sends one command (hiredis format) on a connection of its own and gives the answer as text: an
 * error with its '-', an integer in decimal, nil as NULL. Valid until the next call. */
const char *redis_server_ask(struct redis_server *server, const char *format, ...);

#endif
