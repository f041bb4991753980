/* The sorted map of the in-memory store. Thread rule: one thread. */
#ifndef FAKE_MAP_H
#define FAKE_MAP_H

#include "fcap/bytes.h"

struct fake_pair {
    struct fcap_buffer key;
    struct fcap_buffer value;
};

/* Sorted by key. */
struct fake_map {
    struct fake_pair *pairs;
    size_t count;
    size_t capacity;
};

/* The first pair whose key is >= `key`. */
size_t fake_map_find(const struct fake_map *map, struct fcap_bytes key);

/* True when the pair at `at` has this key. */
bool fake_map_holds(const struct fake_map *map, size_t at, struct fcap_bytes key);

/* Adds or replaces; copies both. */
void fake_map_put(struct fake_map *map, struct fcap_bytes key, struct fcap_bytes value);

/* Removes the pair at `at`. */
void fake_map_remove(struct fake_map *map, size_t at);

/* True when a longer key than `prefix` begins with it. */
bool fake_map_begins(const struct fake_map *map, struct fcap_bytes prefix);

/* Frees everything. */
void fake_map_done(struct fake_map *map);

#endif
