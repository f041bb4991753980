/* Reads and removes many keys of a Redis, whoever runs it.
 *
 * What must hold: nothing is touched but the keys that are named or match. A server that stops
 * answering ends the process with a message. Thread rule: one thread for each reader. */
#ifndef FCAP_LAB_REDIS_READER_H
#define FCAP_LAB_REDIS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redis_reader;

#define REDIS_PXAT_ABSENT  (-2) /* no key */
#define REDIS_PXAT_FOREVER (-1) /* a key that never expires */
#define REDIS_PXAT_UNKNOWN (-3) /* a server without PEXPIRETIME, older than 7.0 */

struct redis_seen {
    char *value;     /* NULL: no key, or not a string */
    size_t size;     /* bytes of the value */
    int64_t pxat_ms; /* Unix epoch, or one of the above */
    bool is_other;   /* a key that is not a string */
};

/* Gives a connection; NULL: `error` (of error_size bytes) says why. */
struct redis_reader *redis_reader_open(const char *host, uint16_t port, char *error,
                                       size_t error_size);
/* NULL is fine. */
void redis_reader_close(struct redis_reader *reader);

/* The value of a key, NULL: absent. Valid until the next call. */
const char *redis_reader_text(struct redis_reader *reader, const char *key);

/* Value and expiry of each key, in one pipeline. Give them to redis_reader_drop(). */
void redis_reader_get(struct redis_reader *reader, const char *const *keys, size_t count,
                      struct redis_seen *ret_seen);
void redis_reader_drop(struct redis_seen *seen, size_t count);

/* Calls `each` with every key that matches the pattern (KEYS' syntax); a key may come twice. Looks
 * at all keys of the database, in steps, by SCAN. `each` must not use the reader. */
void redis_reader_scan(struct redis_reader *reader, const char *pattern,
                       void (*each)(void *context, const char *key), void *context);

/* Removes one key, which may not be there. */
void redis_reader_unlink(struct redis_reader *reader, const char *key);
/* Removes every key that matches, and gives how many there were. */
size_t redis_reader_remove(struct redis_reader *reader, const char *pattern);

#endif
