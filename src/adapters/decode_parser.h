/* What the JSON parsers have in common: the tree of keys that are read, what was found, and the
 * memory for one record. Private to the decode_*.c files.
 *
 * Always holds: a parser has no opinion of its own. It gets text that passed
 * fcap_decode_text_check() and only says JSON or not, and which values stand at the tree's nodes;
 * every other rule is in decode_json.c, so that builds cannot differ. */
#ifndef FCAP_DECODE_PARSER_H
#define FCAP_DECODE_PARSER_H

#include "fcap/decode.h"

/* --- the tree of keys --------------------------------------------------------------------- */

#define FCAP_DECODE_NODES_MAX 32 /* a bit each in a uint32_t */
#define FCAP_DECODE_ROOT      0  /* the whole document */
#define FCAP_DECODE_NO_NODE   (-1)

struct fcap_decode_node {
    struct fcap_bytes name; /* after unescaping; owned by the decoder */
    int parent;
    int first_child;  /* NO_NODE: a field's value is read here */
    int next_sibling; /* NO_NODE: the last one */
};

struct fcap_decode_tree {
    struct fcap_decode_node nodes[FCAP_DECODE_NODES_MAX];
    int count;
};

/* A tree of the root alone; done() frees the names (zero-initialised is fine too). */
void fcap_decode_tree_init(struct fcap_decode_tree *tree);
void fcap_decode_tree_done(struct fcap_decode_tree *tree);

/* Adds a path of the settings and gives its last node. CONFIG: it cannot be used. */
enum fcap_status fcap_decode_tree_add(struct fcap_decode_tree *tree, const char *path,
                                      int *ret_node, struct fcap_error *error) FCAP_MUST_USE;

/* The child of `parent` with this name, or NO_NODE. */
int fcap_decode_tree_child(const struct fcap_decode_tree *tree, int parent, struct fcap_bytes name);

/* --- what was found ----------------------------------------------------------------------- */

enum fcap_decode_kind {
    FCAP_DECODE_ABSENT,
    FCAP_DECODE_STRING, /* text: unescaped */
    FCAP_DECODE_NUMBER, /* text: as it stands in the record */
    FCAP_DECODE_TRUE,
    FCAP_DECODE_FALSE,
    FCAP_DECODE_NULL,
    FCAP_DECODE_OBJECT,
    FCAP_DECODE_ARRAY,
};

struct fcap_decode_value {
    enum fcap_decode_kind kind;
    struct fcap_bytes text; /* valid until the parser's next call */
};

struct fcap_decode_found {
    struct fcap_decode_value values[FCAP_DECODE_NODES_MAX];
    uint32_t repeated; /* bit n: node n was seen more than once */
};

/* Forgets everything. */
void fcap_decode_found_clear(struct fcap_decode_found *found, const struct fcap_decode_tree *tree);

/* Notes a value at a node. */
void fcap_decode_found_put(struct fcap_decode_found *found, int node, enum fcap_decode_kind kind,
                           struct fcap_bytes text);

/* --- memory for one record ---------------------------------------------------------------- */

/* Hands out memory that is forgotten all at once. The first block is kept from record to record,
 * so a usual record costs no malloc; what a large one needs beyond it is freed by the next reset.
 */
struct fcap_decode_arena {
    uint8_t *block; /* FCAP_DECODE_ARENA_BYTES */
    size_t used;
    void *overflow; /* a list of malloc'ed blocks */
};

#define FCAP_DECODE_ARENA_BYTES ((size_t)64 * 1024)

/* The process ends when memory is exhausted, here and in the calls below. */
void fcap_decode_arena_init(struct fcap_decode_arena *arena);
void fcap_decode_arena_done(struct fcap_decode_arena *arena);
void fcap_decode_arena_reset(struct fcap_decode_arena *arena);
/* Aligned for any type; valid until the next reset. */
void *fcap_decode_arena_take(struct fcap_decode_arena *arena, size_t size);
/* Like realloc; `old` NULL or of this arena. Grows in place when `old` was the last one taken. */
void *fcap_decode_arena_grow(struct fcap_decode_arena *arena, void *old, size_t size);

/* --- checks before parsing ---------------------------------------------------------------- */

/* True when every byte belongs to a well-formed UTF-8 sequence (Unicode table 3-7). Pure. */
bool fcap_decode_is_utf8(struct fcap_bytes text);

/* ENCODING, DEPTH, JSON (a vertical tab or form feed, which yajl takes for white space), or NONE:
 * may be parsed. `text` is not empty. Pure. */
enum fcap_reject fcap_decode_text_check(struct fcap_bytes text);

/* --- times -------------------------------------------------------------------------------- */

/* Decimal digits and nothing else, in an integer format, as milliseconds. False: they are something
 * else or out of range; *ret_ms is untouched. Pure. */
bool fcap_decode_integer_time(struct fcap_bytes digits, enum fcap_time_format format,
                              int64_t *ret_ms);

/* --- the parsers -------------------------------------------------------------------------- */

struct fcap_decode_parser {
    const char *name;
    /* Fills *found (cleared by the caller) from one JSON document. False: not one document. */
    bool (*parse)(struct fcap_decode_arena *arena, const struct fcap_decode_tree *tree,
                  struct fcap_bytes text, struct fcap_decode_found *found);
};

extern const struct fcap_decode_parser fcap_decode_parser_yyjson;
extern const struct fcap_decode_parser fcap_decode_parser_yajl;

#endif
