/* What is printed from the table: the sample, the reference, and what is in force. */
#include "config_internal.h"

#include <ctype.h>
#include <string.h>

/* --- YAML scalars --------------------------------------------------------------------------- */

/* A text that YAML reads as itself without quotes. */
static bool is_plain_enough(const char *text)
{
    bool is_negative = text[0] == '-' && isdigit((unsigned char)text[1]);
    if (!is_negative && !isalnum((unsigned char)text[0]) && strchr("/._", text[0]) == NULL) {
        return false;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("/._-<>+=", *at) == NULL &&
            !(*at == ':' && at[1] != '\0' && at[1] != ' ')) {
            return false;
        }
    }
    return strcasecmp(text, "null") != 0;
}

/* A scalar that the loader reads back as `text`: $ doubled, everything odd escaped. */
static void print_scalar(FILE *file, const char *text)
{
    if (text[0] != '\0' && is_plain_enough(text)) {
        (void)fputs(text, file);
        return;
    }
    (void)fputc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            (void)fprintf(file, "\\%c", *at);
        } else if (*at == '$') {
            (void)fputs("$$", file);
        } else if (*at < 0x20 || *at >= 0x7f) {
            (void)fprintf(file, "\\x%02X", *at);
        } else {
            (void)fputc(*at, file);
        }
    }
    (void)fputc('"', file);
}

/* --- what is in force ----------------------------------------------------------------------- */

static void print_list(FILE *file, const struct fcap_config_strings *list)
{
    (void)fputc('[', file);
    for (size_t i = 0; i < list->count; i++) {
        (void)fputs(i == 0 ? "" : ", ", file);
        print_scalar(file, list->items[i]);
    }
    (void)fputc(']', file);
}

static void print_map(FILE *file, const struct fcap_config_map *map)
{
    (void)fputc('{', file);
    for (size_t i = 0; i < map->count; i++) {
        (void)fputs(i == 0 ? "" : ", ", file);
        print_scalar(file, map->pairs[i].name);
        (void)fputs(": ", file);
        print_scalar(file, map->pairs[i].is_secret ? "***" : map->pairs[i].value);
    }
    (void)fputc('}', file);
}

static void print_windows(FILE *file, const struct fcap_config *config)
{
    (void)fputc('[', file);
    for (size_t i = 0; i < config->windows_count; i++) {
        char length[32];
        fcap_config_write_number(FCAP_CONFIG_DURATION, config->windows[i].length_ms, length);
        (void)fprintf(file, "%s{name: %s, length: %s}", i == 0 ? "" : ", ", config->windows[i].name,
                      length);
    }
    (void)fputc(']', file);
}

static void print_choice(FILE *file, const char *words, int index)
{
    for (; index > 0; index--) {
        words = strchr(words, '|') + 1;
    }
    (void)fprintf(file, "%.*s", (int)strcspn(words, "|"), words);
}

static void print_value(FILE *file, const struct fcap_config *config,
                        const struct fcap_config_key *key)
{
    char number[32];
    const char *text = NULL;
    switch (key->type) {
    case FCAP_CONFIG_INTEGER:
    case FCAP_CONFIG_SIZE:
    case FCAP_CONFIG_DURATION:
        fcap_config_write_number(key->type, *FCAP_CONFIG_CONST_MEMBER(config, key, int64_t),
                                 number);
        (void)fputs(number, file);
        break;
    case FCAP_CONFIG_BOOLEAN:
        (void)fputs(*FCAP_CONFIG_CONST_MEMBER(config, key, bool) ? "true" : "false", file);
        break;
    case FCAP_CONFIG_TEXT:
        text = *FCAP_CONFIG_CONST_MEMBER(config, key, char *const);
        if (text == NULL) {
            (void)fputs(key->words != NULL ? key->words : "(none)", file);
        } else {
            print_scalar(file, (key->flags & FCAP_CONFIG_SECRET) != 0 ? "***" : text);
        }
        break;
    case FCAP_CONFIG_CHOICE:
        print_choice(file, key->words, *FCAP_CONFIG_CONST_MEMBER(config, key, int));
        break;
    case FCAP_CONFIG_LIST:
        print_list(file, FCAP_CONFIG_CONST_MEMBER(config, key, struct fcap_config_strings));
        break;
    case FCAP_CONFIG_MAP:
        print_map(file, FCAP_CONFIG_CONST_MEMBER(config, key, struct fcap_config_map));
        break;
    case FCAP_CONFIG_WINDOWS:
        print_windows(file, config);
        break;
    }
}

void fcap_config_print_effective(FILE *file, const struct fcap_config *config)
{
    for (size_t i = 0; i < fcap_config_keys_count; i++) {
        const struct fcap_config_origin *origin = &config->origins[i];
        (void)fprintf(file, "%s: ", fcap_config_keys[i].name);
        print_value(file, config, &fcap_config_keys[i]);
        if (origin->from == FCAP_CONFIG_FROM_FILE) {
            (void)fprintf(file, "  # %s:%d\n", config->path != NULL ? config->path : "file",
                          origin->line);
        } else {
            (void)fprintf(file, "  # %s\n",
                          origin->from == FCAP_CONFIG_FROM_SET ? "--set" : "default");
        }
    }
}

/* --- the sample ----------------------------------------------------------------------------- */

/* Section lines for what `name` does not share with `before`; the depth of the key itself. */
static int print_sections(FILE *file, const char *before, const char *name)
{
    int depth = 0;
    size_t start = 0;
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        size_t size = (size_t)(dot - name) + 1;
        if (strncmp(before, name, size) != 0) {
            (void)fprintf(file, "%s%*s%.*s:\n", depth == 0 ? "\n" : "", depth * 2, "",
                          (int)(size - start - 1), name + start);
        }
        start = size;
        depth++;
    }
    return depth;
}

/* The text in lines of at most 98 columns, each after `lead`. */
static void print_wrapped(FILE *file, int indent, const char *lead, const char *text)
{
    int room = 98 - indent - (int)strlen(lead);
    while (*text != '\0') {
        int size = (int)strlen(text);
        if (size > room) {
            size = room;
            while (text[size] != ' ') {
                size--;
            }
        }
        (void)fprintf(file, "%*s%s%.*s\n", indent, "", lead, size, text);
        text += size;
        text += *text == ' ';
    }
}

/* "integer 1..64" and the like. */
static void print_type(FILE *file, const struct fcap_config_key *key)
{
    char least[32];
    char most[32];
    static const char *const types[] = {
        [FCAP_CONFIG_INTEGER] = "integer",
        [FCAP_CONFIG_SIZE] = "size",
        [FCAP_CONFIG_DURATION] = "duration",
        [FCAP_CONFIG_BOOLEAN] = "true or false",
        [FCAP_CONFIG_TEXT] = "text",
        [FCAP_CONFIG_CHOICE] = "",
        [FCAP_CONFIG_LIST] = "list of texts",
        [FCAP_CONFIG_MAP] = "map of texts",
        [FCAP_CONFIG_WINDOWS] = "list of windows",
    };
    (void)fputs(types[key->type], file);
    if (key->type <= FCAP_CONFIG_DURATION) {
        fcap_config_write_number(key->type, key->min, least);
        fcap_config_write_number(key->type, key->max, most);
        (void)fprintf(file, ", %s to %s", least, most);
    }
    if (key->type == FCAP_CONFIG_LIST) {
        (void)fprintf(file, ", at most %lld", (long long)key->min);
    }
    for (const char *word = key->words; word != NULL && key->type == FCAP_CONFIG_CHOICE;) {
        size_t size = strcspn(word, "|");
        (void)fprintf(file, "%s%.*s", word == key->words ? "" : ", ", (int)size, word);
        word = word[size] == '\0' ? NULL : word + size + 1;
    }
    if (key->words != NULL && key->type != FCAP_CONFIG_CHOICE) {
        (void)fprintf(file, ", or %s", key->words);
    }
}

/* " default"; nothing where there is none. */
static void print_sample_value(FILE *file, const struct fcap_config_key *key)
{
    if (key->type == FCAP_CONFIG_WINDOWS) {
        (void)fprintf(file, " %s", key->value); /* YAML already. */
    } else if (key->type == FCAP_CONFIG_LIST) {
        (void)fputs(" []", file);
    } else if (key->type == FCAP_CONFIG_MAP) {
        (void)fputs(" {}", file);
    } else if ((key->flags & FCAP_CONFIG_COMPUTED) != 0) {
        (void)fprintf(file, " (%s)", key->value);
    } else if (key->value != NULL) {
        (void)fputc(' ', file);
        print_scalar(file, key->value);
    }
}

void fcap_config_print_sample(FILE *file)
{
    const char *before = "";
    (void)fputs(
        "# Every key of fcapd with its default; a line that begins with \"#\" and a key has\n"
        "# none, or one that is computed. Printed from the table in config_table.c by the\n"
        "# target config-docs: do not edit. docs/CONFIG.md says how values are written.\n",
        file);
    for (size_t i = 0; i < fcap_config_keys_count; i++) {
        const struct fcap_config_key *key = &fcap_config_keys[i];
        int indent = print_sections(file, before, key->name) * 2;
        const char *dot = strrchr(key->name, '.');
        if (indent == 0) {
            (void)fputc('\n', file);
        }
        print_wrapped(file, indent, "# ", key->doc);
        bool is_absent = (key->flags & (FCAP_CONFIG_COMPUTED | FCAP_CONFIG_OPTIONAL)) != 0 &&
                         key->type != FCAP_CONFIG_LIST && key->type != FCAP_CONFIG_MAP;
        (void)fprintf(file, "%*s%s%s:", indent, "", is_absent ? "#" : "",
                      dot == NULL ? key->name : dot + 1);
        print_sample_value(file, key);
        (void)fputs("  # ", file);
        print_type(file, key);
        (void)fputs((key->flags & FCAP_CONFIG_MANDATORY) != 0 ? "; must be given\n" : "\n", file);
        before = key->name;
    }
}

/* --- the reference -------------------------------------------------------------------------- */

static const char introduction[] =
    "# Configuration\n"
    "\n"
    "Printed from the table in `src/adapters/config_table.c` by the target `config-docs`: do not\n"
    "edit. `config/fcapd.yaml` holds every key with its default; `config/minutes.yaml`,\n"
    "`config/hours.yaml` and `config/days.yaml` are the shipped profiles.\n"
    "\n"
    "## How values are written\n"
    "\n"
    "- The file is one YAML document of at most 1 MiB with nested sections. `fcapd check` reads "
    "it\n"
    "  and tells every problem at once, each as `file:line:column: text`; a configuration with an\n"
    "  error is never used (exit code 78). Warnings leave it usable.\n"
    "- Unknown and repeated keys are errors. Keys are case-sensitive. Anchors, aliases, merge "
    "keys\n"
    "  (`<<`), tags and a second document are refused by name. A byte order mark and CRLF are "
    "fine.\n"
    "- *Duration*: an integer with `ms`, `s`, `m`, `h` or `d`. *Size*: bytes, or an integer with\n"
    "  `KiB`, `MiB`, `GiB` or `TiB`. *Boolean*: `true` or `false`, nothing else. Quotes change no\n"
    "  type; the key decides it.\n"
    "- `${NAME}` in a value is replaced by the environment variable NAME, `${file:/path}` by the\n"
    "  content of a regular file of at most 64 KiB, `$$` by a dollar sign. It happens after YAML\n"
    "  was read, within one value, once: what comes in is never read as YAML or replaced again.\n"
    "  A variable that is not set is an error. Inside `[ ]` and `{ }` quote such a value.\n"
    "- A value from a variable that ends in a newline is an error (it says \"ends in a newline\"). "
    "Of\n"
    "  a file exactly one newline at the end is taken off; another one is an error.\n"
    "- No other environment variable configures anything, so a Kubernetes Service called `fcapd`\n"
    "  (`FCAPD_PORT=tcp://...`) changes nothing.\n"
    "- `--set key=value` goes over the file, by the same rules; a list takes items separated by\n"
    "  commas, an entry of a map is `--set kafka.librdkafka.<property>=<text>`. The same key "
    "twice\n"
    "  is an error.\n"
    "- Secrets, and values of `kafka.librdkafka` that came from `${...}` or whose name speaks of "
    "a\n"
    "  secret, are shown as `***` wherever the configuration is printed.\n"
    "- The configuration is read once, at the start: every change needs a restart. The column "
    "*when*\n"
    "  says when it needs more: *new state*: an empty state directory; *first start*: read only\n"
    "  while the state is empty.\n";

static const char *section_of(const char *name, char ret_section[FCAP_CONFIG_PATH_MAX])
{
    (void)snprintf(ret_section, FCAP_CONFIG_PATH_MAX, "%.*s", (int)strcspn(name, "."), name);
    return strchr(name, '.') == NULL ? "Top level" : ret_section;
}

/* Markdown reads <...> as a tag and | as a border. */
static void print_cell(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<') {
            (void)fputs("&lt;", file);
        } else {
            (void)fputc(*text, file);
        }
    }
}

void fcap_config_print_docs(FILE *file)
{
    static const char *const effects[] = {
        [FCAP_CONFIG_RESTART] = "restart",
        [FCAP_CONFIG_NEW_STATE] = "new state",
        [FCAP_CONFIG_FIRST] = "first start",
    };
    char section[FCAP_CONFIG_PATH_MAX];
    char last[FCAP_CONFIG_PATH_MAX] = "";
    (void)fputs(introduction, file);
    for (size_t i = 0; i < fcap_config_keys_count; i++) {
        const struct fcap_config_key *key = &fcap_config_keys[i];
        const char *title = section_of(key->name, section);
        if (strcmp(title, last) != 0) {
            (void)fprintf(file,
                          "\n## %s\n\n| key | type | default | when | meaning |\n"
                          "|---|---|---|---|---|\n",
                          title);
            (void)snprintf(last, sizeof last, "%s", title);
        }
        (void)fprintf(file, "| `%s` | ", key->name);
        print_type(file, key);
        (void)fputs((key->flags & FCAP_CONFIG_SECRET) != 0 ? ", secret | " : " | ", file);
        if ((key->flags & FCAP_CONFIG_MANDATORY) != 0) {
            (void)fputs("must be given", file);
        } else if (key->value == NULL) {
            (void)fputs("none", file);
        } else {
            bool is_computed = (key->flags & FCAP_CONFIG_COMPUTED) != 0;
            (void)fputs(is_computed ? "" : "`", file);
            if (is_computed) {
                print_cell(file, key->value);
            } else {
                (void)fputs(key->value, file);
            }
            (void)fputs(is_computed ? "" : "`", file);
        }
        (void)fprintf(file, " | %s | ", effects[key->effect]);
        print_cell(file, key->doc);
        (void)fputs(" |\n", file);
    }
}
