/* Which columns of a log are user, ad and time: --map, or the usual names. Thread rule: plain
 * data. */
#ifndef FCAP_DEMO_INPUT_MAP_H
#define FCAP_DEMO_INPUT_MAP_H

#include <stdbool.h>
#include <stddef.h>

#define DEMO_PARTS_MAX 8

/* user=A+B: the texts of both, joined by "|". */
struct demo_field {
    const char *parts[DEMO_PARTS_MAX]; /* into the map's text */
    size_t columns[DEMO_PARTS_MAX];    /* of CSV: where they stand, from 0 */
    size_t count;
};

struct demo_map {
    struct demo_field user;
    struct demo_field ad;
    struct demo_field time; /* one part */
    char text[1024];
};

/* Reads user=COL[+COL...],ad=COL[+COL...],time=COL. False: `error` says what is wrong. */
bool demo_map_parse(const char *text, struct demo_map *ret_map, char *error, size_t error_size);

/* The map of a log with these columns, by the names that logs usually have; false: none fits, and
 * `error` lists the columns. */
bool demo_map_guess(const char *const *columns, size_t count, struct demo_map *ret_map, char *error,
                    size_t error_size);

/* Writes the first columns, quoted, a blank before each. */
void demo_map_list(const char *const *columns, size_t count, char *ret_text, size_t size);

#endif
