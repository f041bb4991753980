/* One node to one member of the configuration, by the type of its key. */
#include "config_internal.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const char *const kinds[] = {"a single value", "a list", "a section", "an alias"};

/* A plain `key:`, `~` or `null` says nothing; taking it for "" or for the default would guess. */
static bool is_nothing(const struct fcap_config_node *node)
{
    return node->kind == FCAP_CONFIG_NODE_SCALAR && node->is_plain &&
           (node->size == 0 || strcmp(node->text, "~") == 0 || strcasecmp(node->text, "null") == 0);
}

/* The kind that is wanted; says what is wrong otherwise. An alias was reported already. */
static bool check_kind(struct fcap_config_loader *loader, const char *label,
                       const struct fcap_config_node *node, struct fcap_config_place place,
                       enum fcap_config_node_kind wanted, const char *hint)
{
    if (node->kind == FCAP_CONFIG_NODE_REFUSED) {
        return false;
    }
    if (is_nothing(node)) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "%s: has no value; give one, or remove the line", label);
        return false;
    }
    if (node->kind != wanted) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "%s: is %s, must be %s%s", label,
                            kinds[node->kind], kinds[wanted], hint);
        return false;
    }
    return true;
}

/* A single value after substitution; NULL: a problem was added. */
static const char *scalar(struct fcap_config_loader *loader, const char *label,
                          const struct fcap_config_node *node, struct fcap_config_place place,
                          const char *hint)
{
    bool is_expanded;
    if (!check_kind(loader, label, node, place, FCAP_CONFIG_NODE_SCALAR, hint)) {
        return NULL;
    }
    return fcap_config_expand(loader, place, label, node, &is_expanded);
}

/* What may be shown of a value in a message: as written, so that what came from a variable or a
 * file stays where it is. */
static const char *shown(const struct fcap_config_key *key, const struct fcap_config_node *node,
                         char quoted[80])
{
    return (key->flags & FCAP_CONFIG_SECRET) != 0 ? "***" : fcap_config_quote(node->text, quoted);
}

static const char *const wanted_numbers[] = {
    [FCAP_CONFIG_INTEGER] = "an integer",
    [FCAP_CONFIG_SIZE] = "a size (bytes, or 64KiB, 1MiB, 4GiB)",
    [FCAP_CONFIG_DURATION] = "a duration (500ms, 30s, 5m, 1h, 7d)",
};

static bool assign_number(struct fcap_config_loader *loader, const struct fcap_config_key *key,
                          const struct fcap_config_node *node, const char *text,
                          struct fcap_config_place place)
{
    int64_t value = 0;
    char quoted[80];
    if (key->words != NULL && strcmp(text, key->words) == 0) {
        *FCAP_CONFIG_MEMBER(&loader->config, key, int64_t) = 0;
        return true;
    }
    bool is_number = key->type == FCAP_CONFIG_INTEGER ? fcap_config_read_integer(text, &value)
                     : key->type == FCAP_CONFIG_SIZE  ? fcap_config_read_size(text, &value)
                                                      : fcap_config_read_duration(text, &value);
    if (!is_number) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "%s: %s is not %s%s%s", key->name,
                            shown(key, node, quoted), wanted_numbers[key->type],
                            key->words != NULL ? " or " : "", key->words != NULL ? key->words : "");
        return false;
    }
    if (value < key->min || value > key->max) {
        char least[32];
        char most[32];
        fcap_config_write_number(key->type, key->min, least);
        fcap_config_write_number(key->type, key->max, most);
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "%s: %s is out of range; must be %s to %s", key->name,
                            shown(key, node, quoted), least, most);
        return false;
    }
    *FCAP_CONFIG_MEMBER(&loader->config, key, int64_t) = value;
    return true;
}

static bool assign_boolean(struct fcap_config_loader *loader, const struct fcap_config_key *key,
                           const struct fcap_config_node *node, const char *text,
                           struct fcap_config_place place)
{
    char quoted[80];
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "%s: %s is neither true nor false",
                            key->name, shown(key, node, quoted));
        return false;
    }
    *FCAP_CONFIG_MEMBER(&loader->config, key, bool) = strcmp(text, "true") == 0;
    return true;
}

static bool assign_choice(struct fcap_config_loader *loader, const struct fcap_config_key *key,
                          const struct fcap_config_node *node, const char *text,
                          struct fcap_config_place place)
{
    char quoted[80];
    int index = 0;
    for (const char *word = key->words;;) {
        size_t size = strcspn(word, "|");
        if (strlen(text) == size && memcmp(text, word, size) == 0) {
            *FCAP_CONFIG_MEMBER(&loader->config, key, int) = index;
            return true;
        }
        if (word[size] == '\0') {
            break;
        }
        word += size + 1;
        index++;
    }
    fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "%s: %s is not one of %s", key->name,
                        shown(key, node, quoted), key->words);
    return false;
}

/* Length and rule of a text. */
static bool check_text(struct fcap_config_loader *loader, const char *label, const char *text,
                       int64_t bytes_max, struct fcap_config_place place)
{
    size_t size = strlen(text);
    if (size == 0) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "%s: is empty", label);
        return false;
    }
    if (size > (size_t)bytes_max) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "%s: is %zu bytes long; at most %lld are allowed", label, size,
                            (long long)bytes_max);
        return false;
    }
    return true;
}

static bool assign_text(struct fcap_config_loader *loader, const struct fcap_config_key *key,
                        const struct fcap_config_node *node, const char *text,
                        struct fcap_config_place place)
{
    char quoted[80];
    if (key->words != NULL && strcmp(text, key->words) == 0) {
        *FCAP_CONFIG_MEMBER(&loader->config, key, const char *) = NULL;
        return true;
    }
    if (!check_text(loader, key->name, text, key->max, place)) {
        return false;
    }
    const char *problem = key->format != NULL ? key->format(text) : NULL;
    if (problem != NULL) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "%s: %s %s", key->name,
                            shown(key, node, quoted), problem);
        return false;
    }
    *FCAP_CONFIG_MEMBER(&loader->config, key, const char *) = text;
    return true;
}

static size_t count_children(const struct fcap_config_node *node)
{
    size_t count = 0;
    for (const struct fcap_config_node *child = node->first; child != NULL; child = child->next) {
        count++;
    }
    return count;
}

static struct fcap_config_place place_of(const struct fcap_config_node *node,
                                         struct fcap_config_place place)
{
    return node->line == 0 ? place : (struct fcap_config_place){node->line, node->column, NULL};
}

static bool assign_list(struct fcap_config_loader *loader, const struct fcap_config_key *key,
                        const struct fcap_config_node *node, struct fcap_config_place place)
{
    size_t count = count_children(node);
    if (count > (size_t)key->min) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "%s: has %zu items; at most %lld are allowed", key->name, count,
                            (long long)key->min);
        return false;
    }
    const char **items = fcap_config_allocate(loader->config.owned, (count + 1) * sizeof *items);
    bool is_good = true;
    size_t at = 0;
    for (const struct fcap_config_node *item = node->first; item != NULL; item = item->next) {
        struct fcap_config_place here = place_of(item, place);
        items[at] = scalar(loader, key->name, item, here, "");
        if (items[at] == NULL || !check_text(loader, key->name, items[at], key->max, here)) {
            is_good = false;
        }
        at++;
    }
    if (is_good) {
        *FCAP_CONFIG_MEMBER(&loader->config, key, struct fcap_config_strings) =
            (struct fcap_config_strings){items, count};
    }
    return is_good;
}

/* Property names whose values nobody may print. */
static bool names_a_secret(const char *name)
{
    static const char *const words[] = {
        "password", "secret", "pem", "token", "jaas", "sasl.oauthbearer.config", "key"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasestr(name, words[i]) != NULL && strcasestr(name, ".location") == NULL) {
            return true;
        }
    }
    return false;
}

/* What the daemon's correctness rests on. Another value here would be a silent promise broken. */
static const struct {
    const char *name;
    const char *why;
} reserved[] = {
    {"bootstrap.servers", "that is kafka.brokers"},
    {"metadata.broker.list", "that is kafka.brokers"},
    {"group.id", "that is kafka.group"},
    {"group.instance.id", "that is kafka.instance_id"},
    {"session.timeout.ms", "that is kafka.session_timeout"},
    {"group.protocol", "fcapd handles the classic protocol's rebalances"},
    {"partition.assignment.strategy", "fcapd needs cooperative-sticky"},
    {"enable.auto.commit", "the state holds the offsets"},
    {"auto.commit.interval.ms", "the state holds the offsets"},
    {"enable.auto.offset.store", "the state holds the offsets"},
    {"auto.offset.reset", "a gap is never passed over in silence; see on_gap and kafka.start"},
    {"enable.partition.eof", "fcapd needs to see the end of a partition"},
    {"isolation.level", "fcapd reads committed records only"},
};

/* Why a property is not free; NULL when it is. */
static const char *why_reserved(const char *name)
{
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        if (strcmp(name, reserved[i].name) == 0) {
            return reserved[i].why;
        }
    }
    return NULL;
}

static bool assign_pair(struct fcap_config_loader *loader, const struct fcap_config_key *key,
                        const struct fcap_config_node *entry, struct fcap_config_place place,
                        struct fcap_config_pair *ret_pair)
{
    char label[FCAP_CONFIG_PATH_MAX + 64];
    char quoted[80];
    struct fcap_config_place here = place_of(entry, place);
    (void)snprintf(label, sizeof label, "%s: %s", key->name,
                   fcap_config_quote(entry->text, quoted));
    if (entry->is_skipped || !check_text(loader, key->name, entry->text, 200, here)) {
        return false;
    }
    const char *why = why_reserved(entry->text);
    if (why != NULL) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, here, "%s is not free: %s", label, why);
        return false;
    }
    bool is_expanded = false;
    if (!check_kind(loader, label, entry->value, place_of(entry->value, place),
                    FCAP_CONFIG_NODE_SCALAR, "; properties are written flat, dots and all")) {
        return false;
    }
    const char *value = fcap_config_expand(loader, place_of(entry->value, place), label,
                                           entry->value, &is_expanded);
    if (value == NULL) {
        return false;
    }
    *ret_pair = (struct fcap_config_pair){
        .name = fcap_config_copy(loader->config.owned, entry->text, strlen(entry->text)),
        .value = value,
        .is_secret = is_expanded || names_a_secret(entry->text),
    };
    return true;
}

/* Adds the node's pairs to those that are there; a name that is there gets the new value. */
static bool assign_map(struct fcap_config_loader *loader, const struct fcap_config_key *key,
                       const struct fcap_config_node *node, struct fcap_config_place place)
{
    struct fcap_config_map *map = FCAP_CONFIG_MEMBER(&loader->config, key, struct fcap_config_map);
    size_t count = map->count + count_children(node);
    if (count > (size_t)key->max) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "%s: has %zu entries; at most %lld are allowed", key->name, count,
                            (long long)key->max);
        return false;
    }
    struct fcap_config_pair *pairs =
        fcap_config_allocate(loader->config.owned, (count + 1) * sizeof *pairs);
    bool is_good = true;
    count = map->count;
    if (count != 0) {
        memcpy(pairs, map->pairs, count * sizeof *pairs);
    }
    for (const struct fcap_config_node *entry = node->first; entry != NULL; entry = entry->next) {
        struct fcap_config_pair pair = {0};
        if (!assign_pair(loader, key, entry, place, &pair)) {
            is_good = false;
            continue;
        }
        size_t at = 0;
        while (at < count && strcmp(pairs[at].name, pair.name) != 0) {
            at++;
        }
        pairs[at] = pair;
        count += at == count;
    }
    *map = (struct fcap_config_map){pairs, count};
    return is_good;
}

bool fcap_config_assign(struct fcap_config_loader *loader, const struct fcap_config_key *key,
                        const struct fcap_config_node *node, struct fcap_config_place place)
{
    if (key->type == FCAP_CONFIG_LIST || key->type == FCAP_CONFIG_WINDOWS) {
        if (!check_kind(loader, key->name, node, place, FCAP_CONFIG_NODE_SEQUENCE, "")) {
            return false;
        }
        return key->type == FCAP_CONFIG_LIST ? assign_list(loader, key, node, place)
                                             : fcap_config_assign_windows(loader, node, place);
    }
    if (key->type == FCAP_CONFIG_MAP) {
        return check_kind(loader, key->name, node, place, FCAP_CONFIG_NODE_MAPPING, "") &&
               assign_map(loader, key, node, place);
    }
    const char *hint = key->format == fcap_config_format_topic
                           ? ": exactly one topic, since two topics would give one user two tasks, "
                             "two clocks and one key"
                           : "";
    const char *text = scalar(loader, key->name, node, place, hint);
    if (text == NULL) {
        return false;
    }
    switch (key->type) {
    case FCAP_CONFIG_BOOLEAN:
        return assign_boolean(loader, key, node, text, place);
    case FCAP_CONFIG_CHOICE:
        return assign_choice(loader, key, node, text, place);
    case FCAP_CONFIG_TEXT:
        return assign_text(loader, key, node, text, place);
    default:
        return assign_number(loader, key, node, text, place);
    }
}
