/* From the file and the command line to the configuration: every problem in one run. */
#include "config_internal.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

/* --- the file ------------------------------------------------------------------------------- */

/* "a.b" of "a" and "b". False when it is longer than any name: then it is unknown. */
static bool join(const char *prefix, const char *name, char ret_path[FCAP_CONFIG_PATH_MAX])
{
    int size = snprintf(ret_path, FCAP_CONFIG_PATH_MAX, "%s%s%s", prefix,
                        prefix[0] == '\0' ? "" : ".", name);
    return size >= 0 && size < FCAP_CONFIG_PATH_MAX;
}

/* Repeated keys and merge keys, which YAML's parser leaves to its caller, in the whole tree. */
static void check_keys(struct fcap_config_loader *loader, struct fcap_config_node *node,
                       const char *prefix)
{
    char path[FCAP_CONFIG_PATH_MAX];
    char quoted[80];
    for (struct fcap_config_node *key = node->first; key != NULL; key = key->next) {
        if (node->kind == FCAP_CONFIG_NODE_SEQUENCE) {
            check_keys(loader, key, prefix);
            continue;
        }
        struct fcap_config_place place = {key->line, key->column, NULL};
        (void)join(prefix, key->text, path); /* Cut is fine: only for messages. */
        if (key->is_plain && strcmp(key->text, "<<") == 0) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                                "the merge key `<<` is not supported: write the keys out");
            key->is_skipped = true;
            continue;
        }
        const struct fcap_config_node *first = node->first;
        while (first != key &&
               (first->size != key->size || memcmp(first->text, key->text, key->size) != 0)) {
            first = first->next;
        }
        if (first != key) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                                "%s: stands twice; the first is at line %d, column %d",
                                fcap_config_quote(path, quoted), first->line, first->column);
            key->is_skipped = true;
        }
        check_keys(loader, key->value, path);
    }
}

static void tell_unknown(struct fcap_config_loader *loader, const char *path,
                         struct fcap_config_place place)
{
    char quoted[80];
    char near[FCAP_CONFIG_PATH_MAX];
    /* A full report needs no more hints, and they are dear. */
    bool has_hint =
        loader->report.count < FCAP_CONFIG_PROBLEMS_MAX && fcap_config_nearest(path, near);
    fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "unknown key %s%s%s%s",
                        fcap_config_quote(path, quoted), has_hint ? "; did you mean `" : "",
                        has_hint ? near : "", has_hint ? "`?" : "");
}

/* Assigns and notes where the value comes from. */
static void take(struct fcap_config_loader *loader, size_t index,
                 const struct fcap_config_node *node, struct fcap_config_place place)
{
    bool is_good = fcap_config_assign(loader, &fcap_config_keys[index], node, place);
    struct fcap_config_origin *origin = &loader->config.origins[index];
    enum fcap_config_from from =
        place.set_key != NULL ? FCAP_CONFIG_FROM_SET : FCAP_CONFIG_FROM_FILE;
    origin->from = is_good ? from : FCAP_CONFIG_FROM_NOWHERE;
    origin->line = place.line;
    origin->column = place.column;
}

static void walk(struct fcap_config_loader *loader, const struct fcap_config_node *mapping,
                 const char *prefix)
{
    char path[FCAP_CONFIG_PATH_MAX];
    char quoted[80];
    for (const struct fcap_config_node *key = mapping->first; key != NULL; key = key->next) {
        struct fcap_config_place place = {key->line, key->column, NULL};
        if (key->is_skipped) {
            continue;
        }
        if (!join(prefix, key->text, path)) {
            tell_unknown(loader, key->text, place);
            continue;
        }
        if (strchr(key->text, '.') != NULL && fcap_config_key_find(path) < fcap_config_keys_count) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                                "%s: write sections nested in the file, not with dots",
                                fcap_config_quote(path, quoted));
            continue;
        }
        size_t index = fcap_config_key_find(path);
        if (index < fcap_config_keys_count) {
            place = (struct fcap_config_place){key->value->line, key->value->column, NULL};
            take(loader, index, key->value, place);
            continue;
        }
        const struct fcap_config_node *value = key->value;
        if (!fcap_config_is_section(path) || strlen(key->text) != key->size) {
            tell_unknown(loader, path, place);
        } else if (value->kind == FCAP_CONFIG_NODE_MAPPING) {
            walk(loader, value, path);
        } else if (value->kind != FCAP_CONFIG_NODE_REFUSED &&
                   !(value->kind == FCAP_CONFIG_NODE_SCALAR && value->is_plain &&
                     value->size == 0)) { /* All of a section commented out is fine. */
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                                "%s: is a section and needs keys below it", path);
        }
    }
}

static void read_yaml(struct fcap_config_loader *loader, struct fcap_bytes yaml)
{
    struct fcap_config_node *root = fcap_config_yaml_parse(loader, yaml);
    if (root == NULL ||
        (root->kind == FCAP_CONFIG_NODE_SCALAR && root->is_plain && root->size == 0)) {
        return; /* Empty, or comments only. */
    }
    struct fcap_config_place place = {root->line, root->column, NULL};
    if (root->kind != FCAP_CONFIG_NODE_MAPPING) {
        if (root->kind != FCAP_CONFIG_NODE_REFUSED) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                                "the file must hold keys and values (key: value)");
        }
        loader->is_cut = true;
        return;
    }
    check_keys(loader, root, "");
    walk(loader, root, "");
}

/* --- the command line ----------------------------------------------------------------------- */

/* The index of the map that `key` names an entry of; the count when there is none. */
static size_t find_map(const char *key)
{
    for (size_t i = 0; i < fcap_config_keys_count; i++) {
        size_t size = strlen(fcap_config_keys[i].name);
        if (fcap_config_keys[i].type == FCAP_CONFIG_MAP &&
            strncmp(fcap_config_keys[i].name, key, size) == 0 && key[size] == '.' &&
            key[size + 1] != '\0') {
            return i;
        }
    }
    return fcap_config_keys_count;
}

static struct fcap_config_node *make_scalar(struct fcap_config_loader *loader, const char *text,
                                            size_t size)
{
    struct fcap_config_node *node = fcap_config_allocate(loader->scratch, sizeof *node);
    node->kind = FCAP_CONFIG_NODE_SCALAR;
    node->text = fcap_config_copy(loader->scratch, text, size);
    node->size = size;
    return node;
}

/* Items between commas. */
static struct fcap_config_node *make_sequence(struct fcap_config_loader *loader, const char *text)
{
    struct fcap_config_node *node = fcap_config_allocate(loader->scratch, sizeof *node);
    node->kind = FCAP_CONFIG_NODE_SEQUENCE;
    struct fcap_config_node **tail = &node->first;
    while (*text != '\0') {
        size_t size = strcspn(text, ",");
        *tail = make_scalar(loader, text, size);
        tail = &(*tail)->next;
        text += size;
        text += *text == ',';
    }
    return node;
}

static void apply_set(struct fcap_config_loader *loader, const struct fcap_config_set *set)
{
    struct fcap_config_place place = {0, 0, set->key};
    size_t index = fcap_config_key_find(set->key);
    if (index < fcap_config_keys_count) {
        enum fcap_config_type type = fcap_config_keys[index].type;
        if (type == FCAP_CONFIG_MAP) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                                "is a map; set its entries, as in %s.<property>=<text>", set->key);
            return;
        }
        bool is_list = type == FCAP_CONFIG_LIST || type == FCAP_CONFIG_WINDOWS;
        take(loader, index,
             is_list ? make_sequence(loader, set->value)
                     : make_scalar(loader, set->value, strlen(set->value)),
             place);
        return;
    }
    index = find_map(set->key);
    if (index < fcap_config_keys_count) {
        const char *name = set->key + strlen(fcap_config_keys[index].name) + 1;
        struct fcap_config_node *map = fcap_config_allocate(loader->scratch, sizeof *map);
        map->kind = FCAP_CONFIG_NODE_MAPPING;
        map->first = make_scalar(loader, name, strlen(name));
        map->first->value = make_scalar(loader, set->value, strlen(set->value));
        take(loader, index, map, place);
        return;
    }
    if (fcap_config_is_section(set->key)) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "is a section; set one of its keys");
        return;
    }
    tell_unknown(loader, set->key, place);
}

static void apply_sets(struct fcap_config_loader *loader, const struct fcap_config_set *sets,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t first = 0;
        while (strcmp(sets[first].key, sets[i].key) != 0) {
            first++;
        }
        if (first != i) {
            fcap_config_problem(
                loader, FCAP_CONFIG_ERROR, (struct fcap_config_place){0, 0, sets[i].key},
                "stands twice on the command line (--set number %zu and %zu)", first + 1, i + 1);
            continue;
        }
        apply_set(loader, &sets[i]);
    }
}

bool fcap_config_set_parse(const char *argument, char *key, size_t key_size,
                           struct fcap_config_set *ret_set)
{
    const char *equals = strchr(argument, '=');
    if (equals == NULL || equals == argument || (size_t)(equals - argument) >= key_size) {
        return false;
    }
    memcpy(key, argument, (size_t)(equals - argument));
    key[equals - argument] = '\0';
    *ret_set = (struct fcap_config_set){key, equals + 1};
    return true;
}

/* --- defaults ------------------------------------------------------------------------------- */

/* Where the section of a missing key stands is where it should be written. */
static void tell_missing(struct fcap_config_loader *loader, const struct fcap_config_key *key)
{
    struct fcap_config_place place = {0};
    if (loader->name != NULL) {
        place = (struct fcap_config_place){1, 1, NULL};
    }
    size_t section = strcspn(key->name, ".");
    for (size_t i = 0; i < fcap_config_keys_count && key->name[section] == '.'; i++) {
        const struct fcap_config_origin *origin = &loader->config.origins[i];
        if (origin->line != 0 && strncmp(fcap_config_keys[i].name, key->name, section + 1) == 0) {
            place = (struct fcap_config_place){origin->line, origin->column, NULL};
            break;
        }
    }
    fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "%s: is missing and has no default",
                        key->name);
}

static void fill_defaults(struct fcap_config_loader *loader)
{
    for (size_t i = 0; i < fcap_config_keys_count; i++) {
        const struct fcap_config_key *key = &fcap_config_keys[i];
        if (loader->config.origins[i].from != FCAP_CONFIG_FROM_DEFAULT) {
            continue;
        }
        if ((key->flags & FCAP_CONFIG_MANDATORY) != 0) {
            if (!loader->is_cut) {
                tell_missing(loader, key);
            }
            continue;
        }
        if ((key->flags & (FCAP_CONFIG_OPTIONAL | FCAP_CONFIG_COMPUTED)) != 0) {
            continue;
        }
        struct fcap_config_node *node = make_scalar(loader, key->value, strlen(key->value));
        bool is_good = fcap_config_assign(loader, key, node, (struct fcap_config_place){0});
        FCAP_ASSERT(is_good); /* The table's own defaults keep its rules. */
    }
}

/* --- entry points --------------------------------------------------------------------------- */

static void open_loader(struct fcap_config_loader *loader, const char *name)
{
    *loader = (struct fcap_config_loader){.name = name};
    loader->scratch = fcap_config_memory_open();
    loader->config.owned = fcap_config_memory_open();
    loader->config.origins = fcap_config_allocate(
        loader->config.owned, fcap_config_keys_count * sizeof *loader->config.origins);
    if (name != NULL) {
        loader->config.path = fcap_config_copy(loader->config.owned, name, strlen(name));
    }
}

/* Everything after the file was read, and the hand-over. */
static enum fcap_status finish(struct fcap_config_loader *loader,
                               const struct fcap_config_set *sets, size_t set_count,
                               struct fcap_config *ret_config,
                               struct fcap_config_report *ret_report)
{
    apply_sets(loader, sets, set_count);
    fill_defaults(loader);
    if (!loader->is_cut) { /* Rules between keys need all of them. */
        fcap_config_check(loader);
    }
    fcap_config_memory_close(loader->scratch);
    *ret_report = loader->report;
    if (loader->report.errors != 0) {
        fcap_config_done(&loader->config);
        return FCAP_CONFIG;
    }
    *ret_config = loader->config;
    return FCAP_OK;
}

enum fcap_status fcap_config_load_bytes(const char *name, struct fcap_bytes yaml,
                                        const struct fcap_config_set *sets, size_t set_count,
                                        struct fcap_config *ret_config,
                                        struct fcap_config_report *ret_report)
{
    struct fcap_config_loader loader;
    open_loader(&loader, name);
    read_yaml(&loader, yaml);
    return finish(&loader, sets, set_count, ret_config, ret_report);
}

enum fcap_status fcap_config_load(const char *path, const struct fcap_config_set *sets,
                                  size_t set_count, struct fcap_config *ret_config,
                                  struct fcap_config_report *ret_report)
{
    struct fcap_config_loader loader;
    struct fcap_buffer buffer = {0};
    char problem[160];
    open_loader(&loader, path);
    if (path != NULL) {
        if (fcap_config_read_file(path, FCAP_CONFIG_FILE_BYTES_MAX, &buffer, problem)) {
            read_yaml(&loader, fcap_buffer_bytes(&buffer));
        } else {
            fcap_config_problem(&loader, FCAP_CONFIG_ERROR, (struct fcap_config_place){0},
                                "the configuration %s", problem);
            loader.is_cut = true;
        }
    }
    if (buffer.data != NULL) {
        explicit_bzero(buffer.data, buffer.capacity); /* It may hold a password. */
    }
    fcap_buffer_done(&buffer);
    return finish(&loader, sets, set_count, ret_config, ret_report);
}

void fcap_config_done(struct fcap_config *config)
{
    if (config == NULL) {
        return;
    }
    fcap_config_memory_close(config->owned);
    *config = (struct fcap_config){0};
}
