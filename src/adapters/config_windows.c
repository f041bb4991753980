/* The list of windows: lengths, or entries with a name and a length. */
#include "config_internal.h"

#include <ctype.h>
#include <string.h>

#define LENGTH_MS_MIN INT64_C(1000)
#define LENGTH_MS_MAX (INT64_C(365) * 24 * 60 * 60 * 1000)

static bool is_window_name(const char *name)
{
    size_t size = strlen(name);
    if (size == 0 || size > FCAP_CONFIG_WINDOW_NAME_MAX) {
        return false;
    }
    for (; *name != '\0'; name++) {
        if (!isalnum((unsigned char)*name) && *name != '_' && *name != '-') {
            return false;
        }
    }
    return true;
}

/* The texts of one entry; NULL for what is not there. False: a problem was added. */
static bool read_entry(struct fcap_config_loader *loader, const struct fcap_config_node *item,
                       struct fcap_config_place place, const char **ret_name,
                       const char **ret_length)
{
    bool is_expanded;
    char quoted[80];
    *ret_name = NULL;
    *ret_length = NULL;
    if (item->kind == FCAP_CONFIG_NODE_SCALAR) {
        *ret_length = fcap_config_expand(loader, place, "windows", item, &is_expanded);
        *ret_name = *ret_length;
        return *ret_length != NULL;
    }
    if (item->kind != FCAP_CONFIG_NODE_MAPPING) {
        if (item->kind == FCAP_CONFIG_NODE_SEQUENCE) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                                "windows: an entry is a length, or {name: ..., length: ...}");
        }
        return false;
    }
    bool is_good = true;
    for (const struct fcap_config_node *key = item->first; key != NULL; key = key->next) {
        struct fcap_config_place here = {key->line, key->column, NULL};
        if (key->is_skipped) {
            is_good = false;
            continue;
        }
        const char **slot = strcmp(key->text, "name") == 0     ? ret_name
                            : strcmp(key->text, "length") == 0 ? ret_length
                                                               : NULL;
        if (slot == NULL) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, here,
                                "windows: unknown key %s; an entry has name and length",
                                fcap_config_quote(key->text, quoted));
            is_good = false;
            continue;
        }
        if (key->value->kind != FCAP_CONFIG_NODE_SCALAR) {
            is_good = false;
            if (key->value->kind != FCAP_CONFIG_NODE_REFUSED) {
                fcap_config_problem(loader, FCAP_CONFIG_ERROR, here,
                                    "windows: %s must be a single value", key->text);
            }
            continue;
        }
        *slot = fcap_config_expand(loader, here, "windows", key->value, &is_expanded);
        is_good = is_good && *slot != NULL;
    }
    if (is_good && *ret_length == NULL && loader->is_cut) {
        return false; /* It may stand beyond the cut. */
    }
    if (is_good && *ret_length == NULL) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "windows: the entry lacks its length");
        return false;
    }
    if (*ret_name == NULL) {
        *ret_name = *ret_length;
    }
    return is_good;
}

static bool read_window(struct fcap_config_loader *loader, const struct fcap_config_node *item,
                        struct fcap_config_place place, struct fcap_config_window *ret_window)
{
    const char *name;
    const char *length;
    char quoted[80];
    int64_t length_ms = 0;
    /* As written: what came from a variable or a file stays where it is. */
    bool is_scalar = item->kind == FCAP_CONFIG_NODE_SCALAR;
    const char *text = is_scalar ? fcap_config_quote(item->text, quoted) : "the length";
    if (!read_entry(loader, item, place, &name, &length)) {
        return false;
    }
    if (!fcap_config_read_duration(length, &length_ms)) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "windows: %s is not a duration (30s, 5m, 1h, 7d)", text);
        return false;
    }
    if (length_ms < LENGTH_MS_MIN || length_ms > LENGTH_MS_MAX) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "windows: %s is out of range; must be 1s to 365d", text);
        return false;
    }
    if (!is_window_name(name)) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "windows: a name must be 1 to %d of A-Z a-z 0-9 _ -",
                            FCAP_CONFIG_WINDOW_NAME_MAX);
        return false;
    }
    (void)snprintf(ret_window->name, sizeof ret_window->name, "%s", name);
    ret_window->length_ms = length_ms;
    return true;
}

bool fcap_config_assign_windows(struct fcap_config_loader *loader,
                                const struct fcap_config_node *node, struct fcap_config_place place)
{
    struct fcap_config *config = &loader->config;
    bool is_good = true;
    config->windows_count = 0;
    for (const struct fcap_config_node *item = node->first; item != NULL; item = item->next) {
        struct fcap_config_place here =
            item->line == 0 ? place : (struct fcap_config_place){item->line, item->column, NULL};
        struct fcap_config_window window = {0};
        if (!read_window(loader, item, here, &window)) {
            is_good = false;
            continue;
        }
        if (config->windows_count == FCAP_CONFIG_WINDOWS_MAX) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, here, "windows: at most %d are allowed",
                                FCAP_CONFIG_WINDOWS_MAX);
            return false;
        }
        for (size_t i = 0; i < config->windows_count; i++) {
            if (strcmp(config->windows[i].name, window.name) == 0) {
                fcap_config_problem(loader, FCAP_CONFIG_ERROR, here,
                                    "windows: the name `%s` stands twice (number %zu is the first)",
                                    window.name, i + 1);
                is_good = false;
            } else if (config->windows[i].length_ms == window.length_ms) {
                fcap_config_problem(loader, FCAP_CONFIG_ERROR, here,
                                    "windows: `%s` and `%s` have one length", window.name,
                                    config->windows[i].name);
                is_good = false;
            }
        }
        config->windows[config->windows_count++] = window;
    }
    if (config->windows_count == 0 && loader->is_cut) {
        return false; /* They may stand beyond the cut. */
    }
    if (is_good && config->windows_count == 0) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "windows: there must be at least one");
        return false;
    }
    return is_good;
}
