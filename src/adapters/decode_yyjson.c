/* yyjson: reads the whole document, then only the objects on the paths are walked. Its reader does
 * not recurse, and neither does the walk beyond the tree's own depth. */
#include "decode_parser.h"

#include <yyjson.h>

static void *arena_malloc(void *context, size_t size)
{
    return fcap_decode_arena_take(context, size);
}

static void *arena_realloc(void *context, void *old, size_t old_size, size_t size)
{
    (void)old_size; /* The arena knows it. */
    return fcap_decode_arena_grow(context, old, size);
}

static void arena_free(void *context, void *memory)
{
    (void)context; /* The reset before the next record frees everything. */
    (void)memory;
}

static struct fcap_bytes text_of(yyjson_val *value)
{
    return (struct fcap_bytes){(const uint8_t *)unsafe_yyjson_get_str(value),
                               unsafe_yyjson_get_len(value)};
}

static void put_value(struct fcap_decode_found *found, int node, yyjson_val *value)
{
    struct fcap_bytes none = FCAP_BYTES_NONE;
    switch (yyjson_get_type(value)) {
    case YYJSON_TYPE_STR:
        fcap_decode_found_put(found, node, FCAP_DECODE_STRING, text_of(value));
        break;
    case YYJSON_TYPE_RAW: /* every number, by YYJSON_READ_NUMBER_AS_RAW */
        fcap_decode_found_put(found, node, FCAP_DECODE_NUMBER, text_of(value));
        break;
    case YYJSON_TYPE_BOOL:
        fcap_decode_found_put(found, node,
                              yyjson_is_true(value) ? FCAP_DECODE_TRUE : FCAP_DECODE_FALSE, none);
        break;
    case YYJSON_TYPE_OBJ:
        fcap_decode_found_put(found, node, FCAP_DECODE_OBJECT, none);
        break;
    case YYJSON_TYPE_ARR:
        fcap_decode_found_put(found, node, FCAP_DECODE_ARRAY, none);
        break;
    default:
        fcap_decode_found_put(found, node, FCAP_DECODE_NULL, none);
        break;
    }
}

/* Recurses at most FCAP_DECODE_NODES_MAX deep: each level is a node of the tree. */
static void walk(const struct fcap_decode_tree *tree, int node, yyjson_val *value,
                 struct fcap_decode_found *found)
{
    put_value(found, node, value);
    if (tree->nodes[node].first_child == FCAP_DECODE_NO_NODE || !yyjson_is_obj(value)) {
        return;
    }
    yyjson_obj_iter members;
    yyjson_obj_iter_init(value, &members);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&members)) != NULL) {
        int child = fcap_decode_tree_child(tree, node, text_of(key));
        if (child != FCAP_DECODE_NO_NODE) {
            walk(tree, child, yyjson_obj_iter_get_val(key), found);
        }
    }
}

static bool parse(struct fcap_decode_arena *arena, const struct fcap_decode_tree *tree,
                  struct fcap_bytes text, struct fcap_decode_found *found)
{
    const yyjson_alc allocator = {arena_malloc, arena_realloc, arena_free, arena};
    /* Without the in-situ flag yyjson copies the text and never writes to ours; the cast only fits
     * its signature. */
    yyjson_doc *document = yyjson_read_opts((char *)(uintptr_t)text.data, text.size,
                                            YYJSON_READ_NUMBER_AS_RAW, &allocator, NULL);
    if (document == NULL) {
        return false;
    }
    walk(tree, FCAP_DECODE_ROOT, yyjson_doc_get_root(document), found);
    return true; /* The document stays in the arena: the found texts lie in it. */
}

const struct fcap_decode_parser fcap_decode_parser_yyjson = {"yyjson", parse};
