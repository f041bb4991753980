/* Result codes shared by core, adapters and daemon.
 *
 * A status belongs to a class that says who acts; callers branch on the class, only tests look at
 * the code. Thread rule: everything here is a pure function. */
#ifndef FCAP_STATUS_H
#define FCAP_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* clang-format off */
#define FCAP_STATUS_LIST(X)                                                                     \
    X(OK,          NONE,  "ok")                                                                 \
    X(BUSY,        RETRY, "busy: the receiver takes no more for now")                           \
    X(UNAVAILABLE, RETRY, "a dependency is away")                                               \
    X(TIMEOUT,     RETRY, "a dependency did not answer in time")                                \
    X(NO_SPACE,    RETRY, "no space left on the device")                                        \
    X(FENCED,      RETRY, "the assignment that this belongs to has ended")                      \
    X(REFUSED,     RETRY, "a dependency refused the request")                                   \
    X(CONFIG,      FATAL, "the configuration cannot be used")                                   \
    X(LOCKED,      FATAL, "another process holds the lock")                                     \
    X(FOREIGN,     FATAL, "not ours: the directory or key belongs to something else")           \
    X(FORMAT,      FATAL, "written by another format version")                                  \
    X(CORRUPT,     FATAL, "stored bytes are damaged")                                           \
    X(IO,          FATAL, "input or output failed")                                             \
    X(NO_MEMORY,   FATAL, "out of memory")                                                      \
    X(LIMIT,       FATAL, "a hard limit of the format is reached")                              \
    X(STOPPED,     FATAL, "stopped by policy")
/* clang-format on */

enum fcap_class {
    FCAP_CLASS_NONE,  /* Success. */
    FCAP_CLASS_RETRY, /* A dependency; keep everything, back off, try again. */
    FCAP_CLASS_FATAL, /* Exit; a restart replays from the store. */
};

enum fcap_status {
#define X(name, class, text) FCAP_##name,
    FCAP_STATUS_LIST(X)
#undef X
};

#define FCAP_MUST_USE __attribute__((warn_unused_result))

/* The class of a status. */
enum fcap_class fcap_status_class(enum fcap_status status);

/* A short English text; never NULL. */
const char *fcap_status_text(enum fcap_status status);

/* Room for one failure's story on cold paths (open, config). Filled where the failure is seen and
 * prefixed on the way up: "open store: /var/lib/fcapd: IO error: ...". */
struct fcap_error {
    char text[1024]; /* NUL-terminated; cut at the end when too long. */
};

/* Replaces the text. `error` may be NULL. Returns `status`, so that a caller can return it. */
enum fcap_status fcap_error_set(struct fcap_error *error, enum fcap_status status,
                                const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "<prefix>: " in front of the text. `error` may be NULL. */
void fcap_error_prefix(struct fcap_error *error, const char *prefix);

#endif
