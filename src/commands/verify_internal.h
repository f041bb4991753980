/* Shared by verify.c and verify_unknown.c only. */
#ifndef FCAP_COMMANDS_VERIFY_INTERNAL_H
#define FCAP_COMMANDS_VERIFY_INTERNAL_H

#include "fcap/rebuild.h"
#include "fcap/redis_client.h"
#include "fcap/value.h"
#include "rebuild.h"
#include "verify_source.h"

#define VERIFY_KEYS_MAX  500 /* read together */
#define VERIFY_LINES_MAX 100 /* differences that get a line */

/* A user with a key that was not as it should be. */
struct suspect {
    int32_t partition;
    uint64_t hash;
    struct fcap_buffer user;
    uint64_t wanted_hash; /* of what it should hold, */
    bool waits;           /* and whether some of it was on its way to Redis */
    size_t keys;          /* that were wrong */
    size_t all_keys;
    bool is_only_later; /* nothing but as_of was, which is at most */
    int64_t as_of_ms;
    struct fcap_buffer lines;
};

struct suspects {
    struct suspect *rows;
    size_t count;
    size_t capacity;
};

/* Hashes of keys that were compared: no need to ask again whose they are. At most so many that
 * the table takes 256 MiB; of the others it is asked. */
#define VERIFY_SEEN_MAX ((size_t)1 << 24)

struct seen_keys {
    uint64_t *slots; /* 0: free */
    size_t slot_count;
    size_t count;
};

struct verify {
    const struct fcap_config *config;
    struct fcap_progress *progress;
    struct fcap_redis_client *client;
    struct fcap_verify_source *source;
    struct fcap_key_template keys;
    struct fcap_error error;
    struct suspects suspects; /* of the look that is under way, */
    struct suspects before;   /* and of the one before it */
    struct seen_keys seen;
    size_t partitions;
    size_t left_out;
    bool skipped_windows;
    uint64_t right; /* keys, like those that follow */
    uint64_t different;
    uint64_t unknown; /* of those that are different */
    uint64_t unsettled;
    bool is_cut;
};

/* Appends a line about a key; `wanted` may be NULL. */
void verify_put_line(struct fcap_buffer *line, struct fcap_bytes key, const char *text,
                     const struct fcap_redis_seen *seen, const struct fcap_values_window *wanted);
void verify_report(struct verify *verify, const struct fcap_buffer *lines, size_t keys);

/* Judges the users of some blocks, again and again until each is settled. */
enum fcap_status verify_blocks(struct verify *verify, const struct fcap_buffer *blocks);

void verify_seen_add(struct seen_keys *seen, struct fcap_bytes key);
bool verify_seen_has(const struct seen_keys *seen, struct fcap_bytes key);

/* Looks for keys of our pattern whose user no partition knows. */
enum fcap_status verify_unknown_keys(struct verify *verify);

#endif
