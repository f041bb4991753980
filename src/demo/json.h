/* A line of JSON as a list of items, looked at by paths; parsed by yajl. Thread rule: plain data.
 */
#ifndef FCAP_DEMO_JSON_H
#define FCAP_DEMO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum demo_json_kind {
    DEMO_JSON_OBJECT,
    DEMO_JSON_ARRAY,
    DEMO_JSON_STRING,
    DEMO_JSON_NUMBER, /* its digits */
    DEMO_JSON_WORD,   /* true, false, null */
};

struct demo_json_item {
    enum demo_json_kind kind;
    uint32_t start; /* in `bytes`; a string without quotes and escapes */
    uint32_t end;
    uint32_t after; /* index of the first item behind this one and all that is in it */
};

/* A parsed text. Items stand in the order of the text: an object's are name, value, name, ...
 * Start with {0}; one struct serves many texts. */
struct demo_json {
    struct demo_json_item *items;
    uint32_t count;
    uint32_t capacity;
    char *bytes;
    size_t bytes_size;
    size_t bytes_capacity;
    uint32_t open; /* the innermost item that has not ended, while parsing */
};

/* False: not one JSON document, or not UTF-8. `text` ends in NUL behind its `size` bytes. */
bool demo_json_parse(struct demo_json *json, const char *text, size_t size);
void demo_json_done(struct demo_json *json);

/* The member of an object, `name` of name_size bytes; UINT32_MAX: none, or no object. */
uint32_t demo_json_member(const struct demo_json *json, uint32_t object, const char *name,
                          size_t name_size);
/* Copies a string or a number. False: it is something else, holds NUL, or does not
 * fit. */
bool demo_json_copy(const struct demo_json *json, uint32_t item, char *ret, size_t size);

#endif
