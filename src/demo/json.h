/* Just enough JSON for a log: one document a line, looked at by paths. In the laboratory's own
 * code, so that the demo's input is not read by what it feeds. Thread rule: plain data. */
#ifndef FCAP_DEMO_JSON_H
#define FCAP_DEMO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum demo_json_kind {
    DEMO_JSON_OBJECT,
    DEMO_JSON_ARRAY,
    DEMO_JSON_STRING,
    DEMO_JSON_OTHER, /* number, true, false, null: its text */
};

struct demo_json_item {
    enum demo_json_kind kind;
    uint32_t start; /* bytes in the text; of a string without its quotes */
    uint32_t end;
    uint32_t after; /* index of the first item behind this one and all that is in it */
};

/* A parsed text. Items stand in the order of the text: an object's are name, value, name, ...
 * Start with {0}; one struct serves many texts. */
struct demo_json {
    const char *text; /* borrowed */
    struct demo_json_item *items;
    uint32_t count;
    uint32_t capacity;
};

/* False: not one JSON document, or nested deeper than 64. */
bool demo_json_parse(struct demo_json *json, const char *text, size_t size);
void demo_json_done(struct demo_json *json);

/* The member of an object, `name` of name_size bytes; UINT32_MAX: none, or no object. */
uint32_t demo_json_member(const struct demo_json *json, uint32_t object, const char *name,
                          size_t name_size);
/* Copies a string (unescaped) or a number. False: it is something else, holds NUL, or does not
 * fit. */
bool demo_json_copy(const struct demo_json *json, uint32_t item, char *ret, size_t size);

#endif
