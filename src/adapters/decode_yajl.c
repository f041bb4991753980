/* yajl: a stream of events; we keep our place in the tree. Its parse stack grows on the heap, in
 * the arena. */
#include "decode_parser.h"

#include <yajl/yajl_parse.h>

#include <string.h>

/* Where the parse is. A node's parent in the tree is the object around it, so no stack is needed:
 * containers that are not on a path are only counted. */
struct place {
    const struct fcap_decode_tree *tree;
    struct fcap_decode_arena *arena;
    struct fcap_decode_found *found;
    struct fcap_bytes text;
    int object;     /* the node of the innermost object on a path */
    int value_node; /* the node that the next value belongs to, or NO_NODE */
    size_t skipped; /* containers open inside a value that is not read */
};

static bool is_skipping(const struct place *place)
{
    return place->skipped > 0 || place->value_node == FCAP_DECODE_NO_NODE;
}

static void put_scalar(struct place *place, enum fcap_decode_kind kind, struct fcap_bytes text)
{
    if (!is_skipping(place)) {
        fcap_decode_found_put(place->found, place->value_node, kind, text);
    }
}

static int on_null(void *context)
{
    put_scalar(context, FCAP_DECODE_NULL, FCAP_BYTES_NONE);
    return 1;
}

static int on_boolean(void *context, int value)
{
    put_scalar(context, value ? FCAP_DECODE_TRUE : FCAP_DECODE_FALSE, FCAP_BYTES_NONE);
    return 1;
}

/* With this callback yajl converts no number, so none can overflow. */
static int on_number(void *context, const char *digits, size_t size)
{
    put_scalar(context, FCAP_DECODE_NUMBER, (struct fcap_bytes){(const uint8_t *)digits, size});
    return 1;
}

static int on_string(void *context, const unsigned char *data, size_t size)
{
    struct place *place = context;
    if (is_skipping(place)) {
        return 1;
    }
    uintptr_t start = (uintptr_t)place->text.data;
    if ((uintptr_t)data < start || (uintptr_t)data >= start + place->text.size) {
        /* It had escapes: the bytes are in yajl's buffer, which the next such string overwrites. */
        uint8_t *copy = fcap_decode_arena_take(place->arena, size);
        memcpy(copy, data, size);
        data = copy;
    }
    put_scalar(place, FCAP_DECODE_STRING, (struct fcap_bytes){data, size});
    return 1;
}

static int on_map_start(void *context)
{
    struct place *place = context;
    if (is_skipping(place)) {
        place->skipped++;
        return 1;
    }
    fcap_decode_found_put(place->found, place->value_node, FCAP_DECODE_OBJECT, FCAP_BYTES_NONE);
    if (place->tree->nodes[place->value_node].first_child == FCAP_DECODE_NO_NODE) {
        place->skipped++;
        return 1;
    }
    place->object = place->value_node;
    return 1;
}

static int on_map_key(void *context, const unsigned char *key, size_t size)
{
    struct place *place = context;
    if (place->skipped == 0) {
        place->value_node =
            fcap_decode_tree_child(place->tree, place->object, (struct fcap_bytes){key, size});
    }
    return 1;
}

static int on_map_end(void *context)
{
    struct place *place = context;
    if (place->skipped > 0) {
        place->skipped--;
    } else {
        place->object = place->tree->nodes[place->object].parent;
    }
    return 1;
}

static int on_array_start(void *context)
{
    struct place *place = context;
    if (!is_skipping(place)) {
        fcap_decode_found_put(place->found, place->value_node, FCAP_DECODE_ARRAY, FCAP_BYTES_NONE);
    }
    place->skipped++;
    return 1;
}

static int on_array_end(void *context)
{
    struct place *place = context;
    place->skipped--;
    return 1;
}

static void *arena_malloc(void *context, size_t size)
{
    return fcap_decode_arena_take(context, size);
}

static void *arena_realloc(void *context, void *old, size_t size)
{
    return fcap_decode_arena_grow(context, old, size);
}

static void arena_free(void *context, void *memory)
{
    (void)context; /* The reset before the next record frees everything. */
    (void)memory;
}

static bool is_blank(const uint8_t *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\n' && text[i] != '\r') {
            return false;
        }
    }
    return true;
}

static bool parse(struct fcap_decode_arena *arena, const struct fcap_decode_tree *tree,
                  struct fcap_bytes text, struct fcap_decode_found *found)
{
    static const yajl_callbacks callbacks = {
        .yajl_null = on_null,
        .yajl_boolean = on_boolean,
        .yajl_number = on_number,
        .yajl_string = on_string,
        .yajl_start_map = on_map_start,
        .yajl_map_key = on_map_key,
        .yajl_end_map = on_map_end,
        .yajl_start_array = on_array_start,
        .yajl_end_array = on_array_end,
    };
    struct place place = {.tree = tree,
                          .arena = arena,
                          .found = found,
                          .text = text,
                          .object = FCAP_DECODE_NO_NODE,
                          .value_node = FCAP_DECODE_ROOT};
    yajl_alloc_funcs allocator = {arena_malloc, arena_realloc, arena_free, arena};
    /* A handle for each record: a used one cannot be reset, and in the arena it costs little. */
    yajl_handle handle = yajl_alloc(&callbacks, &allocator, &place);
    yajl_config(handle, yajl_dont_validate_strings, 1); /* done before, and more strictly */
    /* yajl takes an unfinished string behind the document for "more to come" and finds nothing
     * wrong with it, so it only finds the end and the rest is ours. */
    yajl_config(handle, yajl_allow_trailing_garbage, 1);
    if (yajl_parse(handle, text.data, text.size) != yajl_status_ok) {
        return false;
    }
    size_t consumed = yajl_get_bytes_consumed(handle);
    return is_blank(text.data + consumed, text.size - consumed) &&
           yajl_complete_parse(handle) == yajl_status_ok;
}

const struct fcap_decode_parser fcap_decode_parser_yajl = {"yajl", parse};
