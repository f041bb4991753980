/* YAML bytes to nodes: the only file that knows libyaml.
 *
 * libyaml leaves repeated keys, merge keys and aliases to its caller. Here a node is written once
 * and used once: aliases, anchors and tags are refused by name, so no file can unfold into more
 * than it is, and depth and number of nodes are bounded. */
#include "config_internal.h"

#include "fcap/assert.h"

#include <string.h>
#include <yaml.h>

/* Refusals of anchors, aliases and tags that are told one by one; a file made of them would push
 * everything else out of the report. */
#define REFUSALS_MAX 8

struct builder {
    struct fcap_config_loader *loader;
    yaml_parser_t parser;
    struct fcap_bytes yaml;
    size_t nodes;
    bool is_done; /* stop reading: the end, or a problem after which nothing makes sense */
    struct fcap_config_node *root;
    struct level {
        struct fcap_config_node *node;
        struct fcap_config_node **tail; /* where the next child goes */
        struct fcap_config_node *key;   /* a mapping's key that waits for its value */
    } levels[FCAP_CONFIG_DEPTH_MAX];
    size_t depth;
};

static struct fcap_config_place place_of(yaml_mark_t mark)
{
    return (struct fcap_config_place){.line = (int)mark.line + 1, .column = (int)mark.column + 1};
}

/* A problem after which the rest cannot be read. */
static void stop(struct builder *builder, yaml_mark_t mark, const char *text)
{
    fcap_config_problem(builder->loader, FCAP_CONFIG_ERROR, place_of(mark), "%s", text);
    builder->loader->is_cut = true;
    builder->is_done = true;
}

/* Anchors, aliases, tags: named and skipped, so that the rest of the file is still checked. */
static void refuse(struct builder *builder, yaml_mark_t mark, const char *what, const char *name,
                   const char *cure)
{
    char quoted[80];
    if (++builder->loader->refusals > REFUSALS_MAX) {
        builder->loader->report.errors++;
        return;
    }
    fcap_config_problem(builder->loader, FCAP_CONFIG_ERROR, place_of(mark),
                        "%s %s is not supported: %s", what, fcap_config_quote(name, quoted), cure);
}

static void refuse_marks(struct builder *builder, yaml_mark_t mark, const yaml_char_t *anchor,
                         const yaml_char_t *tag)
{
    if (anchor != NULL) {
        refuse(builder, mark, "the anchor", (const char *)anchor, "write values where they belong");
    }
    if (tag != NULL) {
        refuse(builder, mark, "the tag", (const char *)tag, "the key decides the type");
    }
}

/* Hangs a node into the tree. */
static void attach(struct builder *builder, struct fcap_config_node *node, yaml_mark_t mark)
{
    if (builder->depth == 0) {
        builder->root = node;
        return;
    }
    struct level *level = &builder->levels[builder->depth - 1];
    if (level->node->kind == FCAP_CONFIG_NODE_MAPPING) {
        if (level->key != NULL) {
            level->key->value = node;
            level->key = NULL;
            return;
        }
        if (node->kind != FCAP_CONFIG_NODE_SCALAR) {
            stop(builder, mark, "a key must be a plain word");
            return;
        }
        level->key = node;
    }
    *level->tail = node;
    level->tail = &node->next;
}

static struct fcap_config_node *add_node(struct builder *builder, enum fcap_config_node_kind kind,
                                         yaml_mark_t mark)
{
    if (++builder->nodes > FCAP_CONFIG_NODES_MAX) {
        stop(builder, mark, "the file holds too many values for a configuration");
        return NULL;
    }
    struct fcap_config_node *node = fcap_config_allocate(builder->loader->scratch, sizeof *node);
    node->kind = kind;
    node->line = place_of(mark).line;
    node->column = place_of(mark).column;
    node->text = "";
    return node;
}

static void add_scalar(struct builder *builder, const yaml_event_t *event)
{
    refuse_marks(builder, event->start_mark, event->data.scalar.anchor, event->data.scalar.tag);
    struct fcap_config_node *node = add_node(builder, FCAP_CONFIG_NODE_SCALAR, event->start_mark);
    if (node == NULL) {
        return;
    }
    node->text = fcap_config_copy(builder->loader->scratch, (const char *)event->data.scalar.value,
                                  event->data.scalar.length);
    node->size = event->data.scalar.length;
    node->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    attach(builder, node, event->start_mark);
}

static void open_level(struct builder *builder, enum fcap_config_node_kind kind, yaml_mark_t mark)
{
    struct fcap_config_node *node = add_node(builder, kind, mark);
    if (node == NULL) {
        return;
    }
    if (builder->depth == FCAP_CONFIG_DEPTH_MAX) {
        stop(builder, mark, "nested too deep for a configuration");
        return;
    }
    attach(builder, node, mark);
    builder->levels[builder->depth++] = (struct level){.node = node, .tail = &node->first};
}

static void add_event(struct builder *builder, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (builder->root != NULL) {
            stop(builder, event->start_mark,
                 "a second document begins here; the configuration is "
                 "one document");
        }
        break;
    case YAML_ALIAS_EVENT: {
        struct fcap_config_node *node =
            add_node(builder, FCAP_CONFIG_NODE_REFUSED, event->start_mark);
        refuse(builder, event->start_mark, "the alias", (const char *)event->data.alias.anchor,
               "write the value out");
        if (node != NULL) {
            attach(builder, node, event->start_mark);
        }
        break;
    }
    case YAML_SCALAR_EVENT:
        add_scalar(builder, event);
        break;
    case YAML_SEQUENCE_START_EVENT:
        refuse_marks(builder, event->start_mark, event->data.sequence_start.anchor,
                     event->data.sequence_start.tag);
        open_level(builder, FCAP_CONFIG_NODE_SEQUENCE, event->start_mark);
        break;
    case YAML_MAPPING_START_EVENT:
        refuse_marks(builder, event->start_mark, event->data.mapping_start.anchor,
                     event->data.mapping_start.tag);
        open_level(builder, FCAP_CONFIG_NODE_MAPPING, event->start_mark);
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        FCAP_ASSERT(builder->depth > 0);
        builder->depth--;
        break;
    case YAML_STREAM_END_EVENT:
        builder->is_done = true;
        break;
    default:
        break;
    }
}

/* The bytes of a line, counted from 0. */
static struct fcap_bytes line_of(struct fcap_bytes yaml, size_t line)
{
    const uint8_t *at = yaml.data;
    const uint8_t *end = yaml.data + yaml.size;
    for (size_t i = 0; i < line && at < end; i++) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        at = newline == NULL ? end : newline + 1;
    }
    const uint8_t *newline = at == end ? NULL : memchr(at, '\n', (size_t)(end - at));
    return (struct fcap_bytes){at, (size_t)((newline == NULL ? end : newline) - at)};
}

/* libyaml's own words for a tab in the indentation help nobody. */
static bool is_indented_by_tab(struct fcap_bytes line)
{
    for (size_t i = 0; i < line.size && (line.data[i] == ' ' || line.data[i] == '\t'); i++) {
        if (line.data[i] == '\t') {
            return true;
        }
    }
    return false;
}

/* Where a reader's problem is: libyaml gives the byte only. */
static yaml_mark_t mark_of_byte(struct fcap_bytes yaml, size_t offset)
{
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < offset && i < yaml.size; i++) {
        mark.column++;
        if (yaml.data[i] == '\n') {
            mark.line++;
            mark.column = 0;
        }
    }
    return mark;
}

static void tell_parser_problem(struct builder *builder)
{
    const yaml_parser_t *parser = &builder->parser;
    char text[256];
    if (parser->error == YAML_READER_ERROR) {
        (void)snprintf(text, sizeof text, "not a text that YAML allows: %s", parser->problem);
        stop(builder, mark_of_byte(builder->yaml, parser->problem_offset), text);
        return;
    }
    FCAP_ASSERT(parser->error != YAML_MEMORY_ERROR);
    const char *problem = parser->problem != NULL ? parser->problem : "cannot be read";
    struct fcap_bytes line = line_of(builder->yaml, parser->problem_mark.line);
    if (is_indented_by_tab(line)) {
        stop(builder, parser->problem_mark, "a tab in the indentation; YAML allows spaces only");
        return;
    }
    const char *hint = line.size != 0 && memmem(line.data, line.size, "${", 2) != NULL
                           ? "; quote a text with ${...} inside [ ] or { }"
                           : "";
    if (parser->context != NULL) {
        (void)snprintf(text, sizeof text, "not valid YAML: %s (%s, line %zu)%s", problem,
                       parser->context, parser->context_mark.line + 1, hint);
    } else {
        (void)snprintf(text, sizeof text, "not valid YAML: %s%s", problem, hint);
    }
    stop(builder, parser->problem_mark, text);
}

/* Where reading stopped early, keys may wait for their values: every key has one in the end. */
static void complete_keys(struct builder *builder)
{
    for (size_t i = 0; i < builder->depth; i++) {
        struct fcap_config_node *key = builder->levels[i].key;
        if (key != NULL) {
            key->value = fcap_config_allocate(builder->loader->scratch, sizeof *key->value);
            key->value->kind = FCAP_CONFIG_NODE_REFUSED;
            key->value->text = "";
        }
    }
}

struct fcap_config_node *fcap_config_yaml_parse(struct fcap_config_loader *loader,
                                                struct fcap_bytes yaml)
{
    struct builder builder = {.loader = loader, .yaml = yaml};
    FCAP_ASSERT(yaml_parser_initialize(&builder.parser) != 0);
    yaml_parser_set_input_string(&builder.parser, yaml.size == 0 ? (const uint8_t *)"" : yaml.data,
                                 yaml.size);
    while (!builder.is_done) {
        yaml_event_t event;
        if (yaml_parser_parse(&builder.parser, &event) == 0) {
            tell_parser_problem(&builder);
            break;
        }
        add_event(&builder, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&builder.parser);
    complete_keys(&builder);
    return builder.root;
}
