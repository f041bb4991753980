/* The Redis sink: `struct fcap_sink` of ports.h over one non-blocking connection to one Redis.
 *
 * Commands are pipelined and overlapped: push() copies into a bounded send buffer, poll() writes
 * while replies are outstanding. A connection that broke leaves everything in flight UNKNOWN and
 * nothing is ever resent. Before the first write of a connection older ones of the same name are
 * killed, so that a server still working off an abandoned socket cannot let an old value win. What
 * the promises need is probed on each connect; what the server refuses is named with its promise.
 * Writes use MSG_NOSIGNAL, so a closed peer raises no SIGPIPE whatever the process does with it.
 *
 * Thread rule: everything on the worker's thread, except fcap_sink_redis_status(), which any
 * thread may call between open and close. */
#ifndef FCAP_SINK_REDIS_H
#define FCAP_SINK_REDIS_H

#include <stdint.h>

#include "fcap/ports.h"

/* What went wrong: kind, the word at the start of the server's error, how the sink acts, and what
 * it means with its cure. Actions: COUNT (the command was refused, pushes pause for a growing,
 * bounded time), RECONNECT (besides, the connection is replaced once its answers are in),
 * NONE (not an answer of the server). An empty word is never matched. */
/* clang-format off */
#define FCAP_SINK_REDIS_ERROR_LIST(X)                                                             \
    X(NONE, "none", NONE, "",                                                                     \
      "no error")                                                                                 \
    X(RESOLVE, "resolve", NONE, "",                                                               \
      "the host name cannot be resolved; check redis.host and the DNS")                           \
    X(CONNECT, "connect", NONE, "",                                                               \
      "no connection; check that Redis runs and that redis.host, redis.port or "                  \
      "redis.socket is right")                                                                    \
    X(TIMEOUT, "timeout", NONE, "",                                                               \
      "no answer in time; the server hangs, is overloaded, or the network drops packets")         \
    X(CLOSED, "closed", NONE, "",                                                                 \
      "the connection was closed by the other side: a restart, CLIENT KILL, or a second "         \
      "process with the same profile, instance and worker")                                       \
    X(PROTOCOL, "protocol", NONE, "",                                                             \
      "the answer is not Redis protocol; check what listens on that port")                        \
    X(PROBE, "probe", NONE, "",                                                                   \
      "the server refuses commands that the promises need; see the list of refusals")             \
    X(OOM, "oom", COUNT, "OOM",                                                                   \
      "maxmemory is reached and nothing may be evicted; raise maxmemory or free memory "          \
      "(not an eviction policy: it would lose counts)")                                           \
    X(NOPERM, "noperm", COUNT, "NOPERM",                                                          \
      "the account may not do this; give it the command and the key pattern (ACL "                \
      "SETUSER)")                                                                                 \
    X(READONLY, "readonly", RECONNECT, "READONLY",                                                \
      "this is a replica; point redis.host at the primary")                                       \
    X(LOADING, "loading", RECONNECT, "LOADING",                                                   \
      "the server is loading its data; it heals by itself")                                       \
    X(NOAUTH, "noauth", RECONNECT, "NOAUTH",                                                      \
      "the server wants a password; set redis.password (and redis.user)")                         \
    X(WRONGPASS, "wrongpass", RECONNECT, "WRONGPASS",                                             \
      "user or password is wrong, or the user is disabled; check redis.user and "                 \
      "redis.password")                                                                           \
    X(AUTH_UNEXPECTED, "auth_unexpected", RECONNECT, "",                                          \
      "a password is configured but the server has none; remove redis.password or set "           \
      "requirepass")                                                                              \
    X(MISCONF, "misconf", COUNT, "MISCONF",                                                       \
      "the server cannot save its RDB and stops writes; look at its disk and log")                \
    X(BUSY, "busy", COUNT, "BUSY",                                                                \
      "a script blocks the server; end it (SCRIPT KILL)")                                         \
    X(MOVED, "moved", RECONNECT, "MOVED",                                                         \
      "this is a node of a Redis Cluster, which is not supported yet; use a single "              \
      "primary")                                                                                  \
    X(ASK, "ask", RECONNECT, "ASK",                                                               \
      "a cluster slot is being moved; Redis Cluster is not supported yet")                        \
    X(CLUSTERDOWN, "clusterdown", RECONNECT, "CLUSTERDOWN",                                       \
      "the Redis Cluster is down; it is not supported yet either")                                \
    X(CROSSSLOT, "crossslot", COUNT, "CROSSSLOT",                                                 \
      "keys of one command lie in several cluster slots")                                         \
    X(TRYAGAIN, "tryagain", COUNT, "TRYAGAIN",                                                    \
      "a cluster slot is being moved; it heals by itself")                                        \
    X(MASTERDOWN, "masterdown", RECONNECT, "MASTERDOWN",                                          \
      "this is a replica that lost its primary; point redis.host at the primary")                 \
    X(NOREPLICAS, "noreplicas", COUNT, "NOREPLICAS",                                              \
      "too few replicas for min-replicas-to-write; bring them back or lower it")                  \
    X(NOSCRIPT, "noscript", COUNT, "NOSCRIPT",                                                    \
      "a proxy between us and Redis asks for a script that is not there")                         \
    X(WRONGTYPE, "wrongtype", COUNT, "WRONGTYPE",                                                 \
      "the key holds another type: somebody else uses our keys; choose another redis.key")        \
    X(DENIED, "denied", RECONNECT, "DENIED",                                                      \
      "the server is in protected mode; set a password there or bind it to this network")         \
    X(MAX_CLIENTS, "max_clients", RECONNECT, "",                                                  \
      "the server has reached maxclients; raise it or find who leaks connections")                \
    X(DATABASE, "database", RECONNECT, "",                                                        \
      "the server has no such database; check redis.db")                                          \
    X(SYNTAX, "syntax", COUNT, "",                                                                \
      "the server does not know this form of the command; SET ... PXAT needs Redis 6.2 "          \
      "or newer")                                                                                 \
    X(UNKNOWN_COMMAND, "unknown_command", COUNT, "",                                              \
      "the server does not have this command (renamed, or another product)")                      \
    X(OTHER, "other", COUNT, "",                                                                  \
      "the server refused; its own text says why")
/* clang-format on */

enum fcap_sink_redis_error {
#define X(name, label, action, word, text) FCAP_SINK_REDIS_ERROR_##name,
    FCAP_SINK_REDIS_ERROR_LIST(X)
#undef X
        FCAP_SINK_REDIS_ERROR_COUNT
};

/* What is probed on each connect: name, command, whether redis.degraded: allow goes on without it,
 * and the promise that it carries. */
/* clang-format off */
#define FCAP_SINK_REDIS_NEED_LIST(X)                                                              \
    X(SELECT, "SELECT", false,                                                                    \
      "keys lie in redis.db")                                                                     \
    X(CLIENT_SETNAME, "CLIENT SETNAME", true,                                                     \
      "abandoned connections of ours can be found, so no old value wins")                         \
    X(CLIENT_ID, "CLIENT ID", true,                                                               \
      "our own connection can be told from abandoned ones")                                       \
    X(CLIENT_LIST, "CLIENT LIST", true,                                                           \
      "abandoned connections of ours are found, so no old value wins")                            \
    X(CLIENT_KILL, "CLIENT KILL", true,                                                           \
      "abandoned connections of ours are closed, so no old value wins")                           \
    X(INFO, "INFO", true,                                                                         \
      "a restarted or replaced Redis is noticed (run id) and filled again; eviction is "          \
      "noticed")                                                                                  \
    X(TIME, "TIME", false,                                                                        \
      "a wrong wall clock here expires nothing")                                                  \
    X(SENTINEL_SET, "SET fc:id NX", false,                                                        \
      "an emptied Redis is noticed and filled again")                                             \
    X(SENTINEL_GET, "GET fc:id", false,                                                           \
      "an emptied Redis is noticed and filled again")                                             \
    X(SET_PXAT, "SET key PXAT", false,                                                            \
      "a key vanishes by itself when its count is zero")                                          \
    X(INCR, "INCR key", false,                                                                    \
      "readers can tell which owner of a partition is the newest")                                \
    X(UNLINK, "UNLINK key", false,                                                                \
      "erased users leave Redis at once")                                                         \
    X(META_KEY, "UNLINK fc:meta:*", false,                                                        \
      "readers can tell whether counts are complete (fc:meta)")                                   \
    X(EPOCH_KEY, "UNLINK fc:epoch:*", false,                                                      \
      "readers can tell which owner of a partition is the newest (fc:epoch)")
/* clang-format on */

enum fcap_sink_redis_need {
#define X(name, command, degradable, promise) FCAP_SINK_REDIS_NEED_##name,
    FCAP_SINK_REDIS_NEED_LIST(X)
#undef X
        FCAP_SINK_REDIS_NEED_COUNT
};

/* Copied by open; the caller may free everything afterwards. */
struct fcap_sink_redis_settings {
    const char *host; /* name or address; used when unix_socket is NULL. A name is looked up on a
                         thread of its own, so poll() never waits for DNS */
    uint16_t port;
    const char *unix_socket; /* path; NULL: TCP */
    int database;            /* SELECT, 0 or more */
    const char *user;        /* ACL user; NULL or "": AUTH with the password alone */
    const char *password;    /* NULL or "": no AUTH */
    const char *profile;     /* for the connection's name and the meta keys */
    const char *instance;    /* likewise; unique among processes of the profile */
    unsigned worker;         /* likewise; unique in the process */
    const char *probe_key;   /* a key of redis.key's pattern that no user has, made, increased and
                                removed by the probe; NULL: "fc:{%probe:<connection name>}" */
    bool degraded_allowed;   /* redis.degraded: allow */
    int connect_timeout_ms;  /* resolving, connecting and probing together */
    int command_timeout_ms; /* no answer for so long while some are due: the connection is broken */
    int time_interval_ms;   /* between two TIME; 1000 */
    int identity_interval_ms;      /* between two looks at the identity; 2000 */
    int backoff_min_ms;            /* first pause before a reconnect; doubles, with jitter */
    int backoff_max_ms;            /* longest pause; also of pushes after refusals */
    size_t send_buffer_bytes;      /* bytes queued and not yet written; push is BUSY beyond */
    size_t commands_in_flight_max; /* commands without an answer; push is BUSY beyond */
};

/* Everything that a process publishes about one sink. Counters only grow. */
/* clang-format off */
#define FCAP_SINK_REDIS_COUNTER_LIST(X)                                                           \
    X(pushes,             "commands accepted from the core")                                      \
    X(pushes_busy,        "commands turned away: full, not connected, or pausing after a refusal")\
    X(acks_done,          "commands that the server did")                                         \
    X(acks_refused,       "commands that the server answered with an error")                      \
    X(acks_unknown,       "commands in flight on a connection that broke")                        \
    X(bytes_written,      "bytes written to Redis")                                               \
    X(connects,           "connection attempts")                                                  \
    X(connections_ready,  "connections that passed the probe")                                    \
    X(connections_killed, "older connections of our name that were closed by CLIENT KILL")        \
    X(identity_changes,   "times another Redis, or an emptied one, answered")
/* clang-format on */

struct fcap_sink_redis_counters {
#define X(name, text) uint64_t name;
    FCAP_SINK_REDIS_COUNTER_LIST(X)
#undef X
    uint64_t errors[FCAP_SINK_REDIS_ERROR_COUNT]; /* by kind */
};

struct fcap_sink_redis_status {
    struct fcap_sink_redis_counters counters;
    struct fcap_sink_state state; /* as it was at the worker's last poll */
    size_t in_flight;             /* accepted pushes without an ack */
    size_t unsent_bytes;          /* queued and not yet written */
    /* The error that holds things up now; NONE when the last answers were good. */
    enum fcap_sink_redis_error error;
    int64_t error_since_ms; /* CLOCK_MONOTONIC when `error` last left NONE; 0: no error */
    char error_text[256];   /* the server's or system's own words; may be empty */
    /* Refused commands, one bit for each need, and the server's words. With degraded_allowed the
     * sink may be ready nevertheless. */
    uint32_t refused_needs;
    char refused_text[FCAP_SINK_REDIS_NEED_COUNT][128];
    char version[32];          /* redis_version; "" when hidden */
    char maxmemory_policy[32]; /* "" when hidden */
    bool is_cluster;           /* a node of a Redis Cluster */
    bool evicts;               /* the policy is known and is not noeviction: counts can vanish */
};

/* Sensible values for everything but the address and the names. */
void fcap_sink_redis_settings_default(struct fcap_sink_redis_settings *ret_settings);

/* Makes a sink; it connects in poll(). Never touches the network itself. Gives *ret_sink, to be
 * closed by fcap_sink_redis_close(). CONFIG: a setting cannot be used (`error` says which). */
FCAP_MUST_USE enum fcap_status fcap_sink_redis_open(const struct fcap_sink_redis_settings *settings,
                                                    struct fcap_error *error,
                                                    struct fcap_sink **ret_sink);

/* Closes the connection and frees; acks that were due are not given. NULL is fine. Returns at once
 * also while a name is being resolved. */
void fcap_sink_redis_close(struct fcap_sink *sink);

/* A snapshot, published by each poll(). Any thread. */
void fcap_sink_redis_status(struct fcap_sink *sink, struct fcap_sink_redis_status *ret_status);

/* "oom", "noperm", ...: a metric's label. Never NULL. */
const char *fcap_sink_redis_error_name(enum fcap_sink_redis_error error);
/* What it means and its cure. Never NULL. */
const char *fcap_sink_redis_error_cure(enum fcap_sink_redis_error error);
/* The command that a need stands for, and the promise that it carries. Never NULL. */
const char *fcap_sink_redis_need_command(enum fcap_sink_redis_need need);
const char *fcap_sink_redis_need_promise(enum fcap_sink_redis_need need);

/* Which Redis has this run id ("": hidden) and this text in fc:id. Pure. */
void fcap_sink_redis_identity(const char *run_id, struct fcap_bytes sentinel,
                              struct fcap_sink_identity *ret_identity);

/* The kind of a server's error reply (without the '-'). Pure. */
enum fcap_sink_redis_error fcap_sink_redis_error_of(const char *text, size_t size);

#endif
