#include "lib/fake_map.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

/* The first pair whose key is >= `key`. */
size_t fake_map_find(const struct fake_map *map, struct fcap_bytes key)
{
    size_t low = 0;
    size_t high = map->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (fcap_bytes_compare(fcap_buffer_bytes(&map->pairs[middle].key), key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool fake_map_holds(const struct fake_map *map, size_t at, struct fcap_bytes key)
{
    return at < map->count && fcap_bytes_equal(fcap_buffer_bytes(&map->pairs[at].key), key);
}

void fake_map_put(struct fake_map *map, struct fcap_bytes key, struct fcap_bytes value)
{
    size_t at = fake_map_find(map, key);
    if (!fake_map_holds(map, at, key)) {
        if (map->count == map->capacity) {
            map->capacity = map->capacity * 2 + 64;
            map->pairs = realloc(map->pairs, map->capacity * sizeof *map->pairs);
            FCAP_ASSERT(map->pairs != NULL);
        }
        memmove(map->pairs + at + 1, map->pairs + at, (map->count - at) * sizeof *map->pairs);
        map->pairs[at] = (struct fake_pair){0};
        fcap_buffer_put_bytes(&map->pairs[at].key, key);
        map->count++;
    }
    fcap_buffer_clear(&map->pairs[at].value);
    fcap_buffer_put_bytes(&map->pairs[at].value, value);
}

void fake_map_remove(struct fake_map *map, size_t at)
{
    fcap_buffer_done(&map->pairs[at].key);
    fcap_buffer_done(&map->pairs[at].value);
    map->count--;
    memmove(map->pairs + at, map->pairs + at + 1, (map->count - at) * sizeof *map->pairs);
}

bool fake_map_begins(const struct fake_map *map, struct fcap_bytes prefix)
{
    size_t at = fake_map_find(map, prefix);
    return at < map->count && map->pairs[at].key.size > prefix.size &&
           memcmp(map->pairs[at].key.data, prefix.data, prefix.size) == 0;
}

void fake_map_done(struct fake_map *map)
{
    while (map->count > 0) {
        fake_map_remove(map, map->count - 1);
    }
    free(map->pairs);
    *map = (struct fake_map){0};
}
