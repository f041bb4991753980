/* A log of impressions from a file: CSV with a header, or JSON lines.
 *
 * What must hold: a row that cannot be read is counted and skipped, never guessed at; rows come
 * sorted by time, those of one millisecond in the file's order. Thread rule: plain data. */
#ifndef FCAP_DEMO_INPUT_H
#define FCAP_DEMO_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEMO_ID_MAX 1024 /* bytes of the longest user or ad */

struct demo_row {
    const char *user; /* valid until demo_input_close() */
    const char *ad;
    int64_t time_ms; /* Unix epoch */
    uint64_t number; /* of the row in the file, from 1 */
};

/* Start with {0}. */
struct demo_input {
    struct demo_row *rows;
    size_t count;
    size_t capacity;
    uint64_t skipped;
    char reason[256]; /* why the first row was skipped */
    struct demo_text *texts;
};

/* Reads at most rows_max rows (0: all). `map` as --map, NULL: columns by their usual names. False:
 * `error` (of error_size bytes) names the file, the place and the cure. */
bool demo_input_open(const char *path, const char *map, uint64_t rows_max,
                     struct demo_input *ret_input, char *error, size_t error_size);
/* Frees it; {0} is fine. */
void demo_input_close(struct demo_input *input);

/* A time as logs have it: "2019-11-24 00:03:13.442536+00:00" (T or blank, Z, an offset, or nothing
 * for UTC; seconds may lack), or the Unix epoch in s, ms, us or ns, told apart by its size; a
 * fraction is cut at the millisecond. False: neither. */
bool demo_time_parse(const char *text, int64_t *ret_time_ms);

#endif
