/* What the parts of the configuration share: the table of keys, YAML nodes, and the loader.
 *
 * The parts: config_table (one line for each key), config_yaml (bytes to nodes; the only user of
 * libyaml), config_values (text to values, substitution), config_load (nodes and sets to the
 * struct), config_check (computed defaults, rules between keys), config_formats (rules of single
 * texts), config_report, config_docs (what is printed). Thread rule: as in fcap/config.h. */
#ifndef FCAP_CONFIG_INTERNAL_H
#define FCAP_CONFIG_INTERNAL_H

#include "fcap/config.h"

#define FCAP_CONFIG_FILE_BYTES_MAX     ((size_t)1024 * 1024)
#define FCAP_CONFIG_SECRET_BYTES_MAX   ((size_t)64 * 1024)       /* a file named by ${file:...} */
#define FCAP_CONFIG_EXPANDED_BYTES_MAX ((size_t)4 * 1024 * 1024) /* all ${...} together */
#define FCAP_CONFIG_NODES_MAX          10000
#define FCAP_CONFIG_DEPTH_MAX          16
#define FCAP_CONFIG_PATH_MAX           128 /* a dotted name */

/* --- the table ------------------------------------------------------------------------------ */

enum fcap_config_type {
    FCAP_CONFIG_INTEGER,  /* int64_t */
    FCAP_CONFIG_SIZE,     /* int64_t, bytes */
    FCAP_CONFIG_DURATION, /* int64_t, milliseconds */
    FCAP_CONFIG_BOOLEAN,  /* bool */
    FCAP_CONFIG_TEXT,     /* const char * */
    FCAP_CONFIG_CHOICE,   /* int */
    FCAP_CONFIG_LIST,     /* struct fcap_config_strings */
    FCAP_CONFIG_MAP,      /* struct fcap_config_map */
    FCAP_CONFIG_WINDOWS,  /* windows and windows_count */
};

/* What it takes for a changed value to matter. */
enum fcap_config_effect {
    FCAP_CONFIG_RESTART,   /* a restart */
    FCAP_CONFIG_NEW_STATE, /* an empty state directory */
    FCAP_CONFIG_FIRST,     /* read only when the state is empty */
};

enum {
    FCAP_CONFIG_SECRET = 1,    /* never printed */
    FCAP_CONFIG_MANDATORY = 2, /* `value` is only the sample's example */
    FCAP_CONFIG_OPTIONAL = 4,  /* absent by default */
    FCAP_CONFIG_COMPUTED = 8,  /* `value` says how the default is found */
};

/* What is wrong with a text, as the end of a sentence; NULL when it is fine. */
typedef const char *(*fcap_config_format)(const char *text);

struct fcap_config_key {
    const char *name; /* dotted */
    enum fcap_config_type type;
    size_t offset;     /* in struct fcap_config */
    int64_t min;       /* numbers: smallest; lists: items, at most */
    int64_t max;       /* numbers: largest; texts and items of lists: bytes; maps: entries */
    const char *words; /* choices: "a|b" in the enum's order; numbers: means 0; texts: absent */
    const char *value; /* the default as text */
    unsigned flags;
    enum fcap_config_effect effect;
    fcap_config_format format; /* texts only; NULL: anything goes */
    const char *doc;           /* sentences, "|" not used */
};

extern const struct fcap_config_key fcap_config_keys[];
extern const size_t fcap_config_keys_count;

/* The index of a name; the count of keys when there is none. */
size_t fcap_config_key_find(const char *name);

/* True when `path` is the beginning of a dotted name ("kafka", "rocksdb.users"). */
bool fcap_config_is_section(const char *path);

/* The known name that is nearest to `path` (keys and sections); false when none is near. */
bool fcap_config_nearest(const char *path, char ret_name[FCAP_CONFIG_PATH_MAX]);

/* Rules of single texts. */
const char *fcap_config_format_name(const char *text);
const char *fcap_config_format_topic(const char *text);
const char *fcap_config_format_brokers(const char *text);
const char *fcap_config_format_path(const char *text);
const char *fcap_config_format_user_path(const char *text);
const char *fcap_config_format_time_path(const char *text);
const char *fcap_config_format_redis_key(const char *text);
const char *fcap_config_format_listen(const char *text);
const char *fcap_config_format_socket(const char *text);
const char *fcap_config_format_host(const char *text);

/* --- memory that the configuration owns ----------------------------------------------------- */

/* A new owner of nothing. */
struct fcap_config_memory *fcap_config_memory_open(void);
/* Zeroed bytes, freed with the owner. The process ends when memory is exhausted. */
void *fcap_config_allocate(struct fcap_config_memory *memory, size_t size);
/* A NUL-terminated copy. */
char *fcap_config_copy(struct fcap_config_memory *memory, const char *text, size_t size);
/* Wipes and frees everything; NULL is fine. */
void fcap_config_memory_close(struct fcap_config_memory *memory);

/* --- nodes ---------------------------------------------------------------------------------- */

enum fcap_config_node_kind {
    FCAP_CONFIG_NODE_SCALAR,
    FCAP_CONFIG_NODE_SEQUENCE,
    FCAP_CONFIG_NODE_MAPPING,
    FCAP_CONFIG_NODE_REFUSED, /* an alias, or cut off: reported already */
};

struct fcap_config_node {
    enum fcap_config_node_kind kind;
    const char *text; /* scalars: NUL-terminated */
    size_t size;      /* scalars: bytes, so that a NUL inside shows */
    bool is_plain;    /* scalars: written without quotes */
    bool is_skipped;  /* a repeated key or a merge key: reported already */
    int line;         /* 1-based; 0: not in a file */
    int column;
    struct fcap_config_node *first; /* items of a sequence, keys of a mapping */
    struct fcap_config_node *next;
    struct fcap_config_node *value; /* of a key; always there */
};

/* --- the loader ----------------------------------------------------------------------------- */

enum fcap_config_from {
    FCAP_CONFIG_FROM_DEFAULT,
    FCAP_CONFIG_FROM_FILE,
    FCAP_CONFIG_FROM_SET,
    FCAP_CONFIG_FROM_NOWHERE, /* given, but unusable: reported already */
};

struct fcap_config_origin {
    enum fcap_config_from from;
    int line;
    int column;
};

/* Where a problem is. set_key wins; line 0 without it is the file as a whole. */
struct fcap_config_place {
    int line;
    int column;
    const char *set_key;
};

struct fcap_config_loader {
    const char *name; /* of the file; NULL: none */
    struct fcap_config config;
    struct fcap_config_report report;
    struct fcap_config_memory *scratch; /* nodes */
    size_t expanded_bytes;              /* brought in by ${...} so far */
    unsigned refusals;                  /* anchors, aliases and tags met so far */
    bool is_cut; /* a syntax error: the rest of the file is unknown, so nothing is "missing" */
};

/* Adds a problem. `place` borrowed. */
void fcap_config_problem(struct fcap_config_loader *loader, enum fcap_config_severity severity,
                         struct fcap_config_place place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* `text` in backquotes, without control characters, at most about 60 bytes of it. */
const char *fcap_config_quote(const char *text, char ret_quoted[80]);

/* Nodes of the document in `yaml`; NULL when there is none. Problems go to the loader. */
struct fcap_config_node *fcap_config_yaml_parse(struct fcap_config_loader *loader,
                                                struct fcap_bytes yaml);

/* Reads a regular file of at most max_bytes; false and *ret_problem (a sentence's end) when that
 * cannot be. Never blocks. */
bool fcap_config_read_file(const char *path, size_t max_bytes, struct fcap_buffer *buffer,
                           char ret_problem[160]);

/* Replaces ${NAME}, ${file:PATH} and $$ once. The result lives in the configuration. NULL: a
 * problem was added. *ret_expanded: something came from outside the file. */
const char *fcap_config_expand(struct fcap_config_loader *loader, struct fcap_config_place place,
                               const char *label, const struct fcap_config_node *node,
                               bool *ret_expanded);

/* Reads one value into the configuration under construction. False: a problem was added. */
bool fcap_config_assign(struct fcap_config_loader *loader, const struct fcap_config_key *key,
                        const struct fcap_config_node *node, struct fcap_config_place place);

/* The same for the list of windows. */
bool fcap_config_assign_windows(struct fcap_config_loader *loader,
                                const struct fcap_config_node *node,
                                struct fcap_config_place place);

/* Numbers as text. False: not such a number; overflow counts as not one. */
bool fcap_config_read_integer(const char *text, int64_t *ret_value);
bool fcap_config_read_size(const char *text, int64_t *ret_bytes);
bool fcap_config_read_duration(const char *text, int64_t *ret_ms);

/* A number as the table's type would be written: 65536 is 64KiB, 90000 is 90s. */
void fcap_config_write_number(enum fcap_config_type type, int64_t value, char ret_text[32]);

/* Computed defaults, then the rules between keys. */
void fcap_config_check(struct fcap_config_loader *loader);
/* The warnings and errors about redis.key's hash tag and uniqueness. */
void fcap_config_check_redis_key(struct fcap_config_loader *loader, const char *pattern,
                                 struct fcap_config_place place);

/* The member of the configuration that a key fills. */
#define FCAP_CONFIG_MEMBER(config, key, type) ((type *)(void *)((char *)(config) + (key)->offset))
#define FCAP_CONFIG_CONST_MEMBER(config, key, type)                                                \
    ((const type *)(const void *)((const char *)(config) + (key)->offset))

#endif
