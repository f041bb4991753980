#include "decode_parser.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

static const struct fcap_decode_node root = {
    .parent = FCAP_DECODE_NO_NODE,
    .first_child = FCAP_DECODE_NO_NODE,
    .next_sibling = FCAP_DECODE_NO_NODE,
};

void fcap_decode_tree_init(struct fcap_decode_tree *tree)
{
    tree->nodes[FCAP_DECODE_ROOT] = root;
    tree->count = 1;
}

void fcap_decode_tree_done(struct fcap_decode_tree *tree)
{
    for (int node = 0; node < tree->count; node++) {
        free((void *)(uintptr_t)tree->nodes[node].name.data);
    }
    tree->count = 0;
}

int fcap_decode_tree_child(const struct fcap_decode_tree *tree, int parent, struct fcap_bytes name)
{
    int child = tree->nodes[parent].first_child;
    while (child != FCAP_DECODE_NO_NODE) {
        const struct fcap_decode_node *node = &tree->nodes[child];
        if (node->name.size == name.size && memcmp(node->name.data, name.data, name.size) == 0) {
            break;
        }
        child = node->next_sibling;
    }
    return child;
}

/* The child of `parent` named like the key, made if need be (it takes the key's memory then);
 * NO_NODE when the tree is full. */
static int make_child(struct fcap_decode_tree *tree, int parent, struct fcap_buffer *key)
{
    int node = fcap_decode_tree_child(tree, parent, fcap_buffer_bytes(key));
    if (node != FCAP_DECODE_NO_NODE || tree->count == FCAP_DECODE_NODES_MAX) {
        return node;
    }
    node = tree->count++;
    tree->nodes[node] = (struct fcap_decode_node){
        .name = fcap_buffer_bytes(key),
        .parent = parent,
        .first_child = FCAP_DECODE_NO_NODE,
        .next_sibling = tree->nodes[parent].first_child,
    };
    tree->nodes[parent].first_child = node;
    *key = (struct fcap_buffer){0}; /* The tree's now. */
    return node;
}

/* Takes the next key of a path and undoes its backslashes. False: it is empty, or the path ends
 * after a backslash. */
static bool next_key(const char **path, struct fcap_buffer *key)
{
    const char *at = *path;
    fcap_buffer_clear(key);
    while (*at != '\0' && *at != '.') {
        at += *at == '\\';
        if (*at == '\0') {
            return false;
        }
        fcap_buffer_put_u8(key, (uint8_t)*at++);
    }
    *path = at;
    return key->size > 0;
}

enum fcap_status fcap_decode_tree_add(struct fcap_decode_tree *tree, const char *path,
                                      int *ret_node, struct fcap_error *error)
{
    struct fcap_buffer key = {0};
    enum fcap_status status = FCAP_OK;
    int node = FCAP_DECODE_ROOT;
    const char *at = path;
    if (path == NULL || *path == '\0') {
        return fcap_error_set(error, FCAP_CONFIG, "no path");
    }
    if (*path == '@') {
        return fcap_error_set(error, FCAP_CONFIG,
                              "\"%s\" means nothing here (\"\\%s\" is the key of that name)", path,
                              path);
    }
    if (!fcap_decode_is_utf8(fcap_bytes_of(path))) {
        return fcap_error_set(error, FCAP_CONFIG, "the path is not UTF-8");
    }
    for (;;) {
        if (!next_key(&at, &key)) {
            status = fcap_error_set(error, FCAP_CONFIG,
                                    "\"%s\" has an empty key or ends in a backslash", path);
            goto out;
        }
        node = make_child(tree, node, &key);
        if (node == FCAP_DECODE_NO_NODE) {
            status = fcap_error_set(error, FCAP_CONFIG, "the paths have more than %d keys",
                                    FCAP_DECODE_NODES_MAX - 1);
            goto out;
        }
        if (*at == '\0') {
            *ret_node = node;
            goto out;
        }
        at++; /* the dot */
    }
out:
    fcap_buffer_done(&key);
    return status;
}
