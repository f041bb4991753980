/* Proves that options are in force: compares what was asked for with the OPTIONS file that RocksDB
 * writes at each opening, after it has changed what it does not like. */
#include "store_rocksdb_internal.h"

#include "fcap/assert.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool store_raw_options_next(const char **at, struct fcap_bytes *ret_name,
                            struct fcap_bytes *ret_value)
{
    const char *p = *at + strspn(*at, "; \t\n");
    if (*p == '\0') {
        return false;
    }
    const char *name = p;
    size_t name_size = strcspn(p, "=;");
    p += name_size;
    while (name_size > 0 && isspace((unsigned char)name[name_size - 1])) {
        name_size--;
    }
    p += *p == '=' ? 1 : 0;
    p += strspn(p, " \t\n");
    const char *value = p;
    for (int depth = 0; *p != '\0' && (depth > 0 || *p != ';'); p++) {
        depth += (*p == '{') - (*p == '}');
    }
    size_t value_size = (size_t)(p - value);
    while (value_size > 0 && isspace((unsigned char)value[value_size - 1])) {
        value_size--;
    }
    *ret_name = (struct fcap_bytes){(const uint8_t *)name, name_size};
    *ret_value = (struct fcap_bytes){(const uint8_t *)value, value_size};
    *at = p;
    return true;
}

static bool is_named(struct fcap_bytes name, const char *text)
{
    return fcap_bytes_equal(name, fcap_bytes_of(text));
}

/* A log is read up to its first damage, and nothing behind it. */
static bool keeps_order(struct fcap_bytes recovery_mode)
{
    return is_named(recovery_mode, "kPointInTimeRecovery") ||
           is_named(recovery_mode, "kAbsoluteConsistency");
}

static enum fcap_status check_raw_name(struct fcap_bytes name, struct fcap_error *error)
{
    static const char ignored[] = "RocksDB accepts it from text and ignores it";
    static const char ours[] = "the store sets it by itself; another value would break it";
    static const char setting[] = "use the setting of its own";
    static const char family[] =
        "it adds a family of RocksDB's own, and the state would be refused";
    static const char moment[] = "a scan would not show one moment any more";
    static const struct {
        const char *name;
        const char *why;
    } refused[] = {
        {"statistics", ignored},
        {"listeners", ignored},
        {"compaction_filter_factory", ignored},
        {"compaction_filter", ignored},
        {"write_buffer_manager", ignored},
        {"sst_file_manager", ignored},
        {"info_log", ignored},
        {"row_cache", ignored},
        {"cache_usage_options", ignored},
        {"comparator", ours},
        {"merge_operator", ours},
        {"atomic_flush", ours},
        {"create_if_missing", ours},
        {"create_missing_column_families", ours},
        {"error_if_exists", ours},
        {"env", ours},
        {"wal_dir", ours},
        {"db_paths", ours},
        {"cf_paths", ours},
        {"allow_2pc", ours},
        {"manual_wal_flush", ours},
        {"unordered_write", ours},
        {"memtable_insert_with_hint_prefix_extractor", ours},
        {"best_efforts_recovery", ours},
        {"persist_stats_to_disk", family},
        {"inplace_update_support", moment},
        {"rate_limiter_bytes_per_sec", setting},
        {"rate_limiter", setting},
        {"block_cache", setting},
        {"no_block_cache", ours},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (is_named(name, refused[i].name)) {
            return fcap_error_set(error, FCAP_CONFIG, "`%s` cannot be set here: %s",
                                  refused[i].name, refused[i].why);
        }
    }
    return FCAP_OK;
}

enum fcap_status store_raw_options_check(const char *text, struct fcap_error *error)
{
    struct fcap_bytes name;
    struct fcap_bytes value;
    while (store_raw_options_next(&text, &name, &value)) {
        if (name.size == 0 || value.size == 0) {
            return fcap_error_set(error, FCAP_CONFIG, "`%.*s`: expected name=value", (int)name.size,
                                  (const char *)name.data);
        }
        enum fcap_status status = check_raw_name(name, error);
        if (status != FCAP_OK) {
            return status;
        }
        if (is_named(name, "wal_recovery_mode") && !keeps_order(value)) {
            return fcap_error_set(error, FCAP_CONFIG,
                                  "`wal_recovery_mode=%.*s` cannot be set here: it leaves commits "
                                  "out and keeps later ones; use kPointInTimeRecovery or "
                                  "kAbsoluteConsistency",
                                  (int)value.size, (const char *)value.data);
        }
        if (value.data[0] == '{' && value.size >= 2) {
            char *inner = strndup((const char *)value.data + 1, value.size - 2);
            FCAP_ASSERT(inner != NULL);
            status = store_raw_options_check(inner, error);
            free(inner);
            if (status != FCAP_OK) {
                return status;
            }
        }
    }
    return FCAP_OK;
}

/* The text of the newest OPTIONS file; NULL when there is none. The caller frees. */
static char *read_options_file(const char *path)
{
    char name[64] = "";
    char full[4200];
    char *text = NULL;
    long newest = -1;
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return NULL;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        char *end = NULL;
        if (strncmp(entry->d_name, "OPTIONS-", 8) != 0 || strlen(entry->d_name) >= sizeof name) {
            continue;
        }
        long number = strtol(entry->d_name + 8, &end, 10);
        if (*end == '\0' && number > newest) {
            newest = number;
            (void)snprintf(name, sizeof name, "%s", entry->d_name); /* Fits, see above. */
        }
    }
    (void)closedir(directory);                              /* Only read. */
    (void)snprintf(full, sizeof full, "%s/%s", path, name); /* Too long: fopen fails. */
    FILE *file = newest < 0 ? NULL : fopen(full, "re");
    if (file == NULL) {
        return NULL;
    }
    size_t size = 0;
    if (getdelim(&text, &size, '\0', file) < 0) {
        free(text);
        text = NULL;
    }
    (void)fclose(file); /* Only read. */
    return text;
}

/* The value of `name` in a section; false when it is not there. */
static bool find_option(const char *text, const char *section, struct fcap_bytes name,
                        struct fcap_bytes *ret_value)
{
    const char *at = strstr(text, section);
    at = at == NULL ? NULL : strchr(at, '\n');
    while (at != NULL && at[1] != '\0' && at[1] != '[') {
        const char *line = at + 1 + strspn(at + 1, " ");
        if (strncmp(line, (const char *)name.data, name.size) == 0 && line[name.size] == '=') {
            line += name.size + 1;
            *ret_value = (struct fcap_bytes){(const uint8_t *)line, strcspn(line, "\n")};
            return true;
        }
        at = strchr(at + 1, '\n');
    }
    return false;
}

/* A number with RocksDB's suffixes (K, M, G, T), or true and false. */
static bool parse_number(struct fcap_bytes bytes, double *ret_number)
{
    char text[64];
    char *end = NULL;
    if (bytes.size == 0 || bytes.size >= sizeof text) {
        return false;
    }
    memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        *ret_number = text[0] == 't';
        return true;
    }
    double number = strtod(text, &end);
    static const char suffixes[] = "KMGT";
    const char *suffix = *end == '\0' ? NULL : strchr(suffixes, toupper((unsigned char)*end));
    for (size_t i = 0; suffix != NULL && i <= (size_t)(suffix - suffixes); i++) {
        number *= 1024;
    }
    *ret_number = number;
    return end != text && (*end == '\0' || (suffix != NULL && end[1] == '\0'));
}

/* Names that RocksDB spells differently when it writes them. */
static bool is_other_spelling(struct fcap_bytes wanted, struct fcap_bytes found)
{
    static const char *const spellings[][2] = {
        {"fixed:", "rocksdb.FixedPrefix."},
        {"capped:", "rocksdb.CappedPrefix."},
    };
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        struct fcap_bytes from = fcap_bytes_of(spellings[i][0]);
        struct fcap_bytes to = fcap_bytes_of(spellings[i][1]);
        if (wanted.size > from.size && memcmp(wanted.data, from.data, from.size) == 0 &&
            found.size > to.size && memcmp(found.data, to.data, to.size) == 0) {
            return fcap_bytes_equal(
                (struct fcap_bytes){wanted.data + from.size, wanted.size - from.size},
                (struct fcap_bytes){found.data + to.size, found.size - to.size});
        }
    }
    return false;
}

static bool is_same(struct fcap_bytes wanted, struct fcap_bytes found)
{
    double a = 0;
    double b = 0;
    if (parse_number(wanted, &a) && parse_number(found, &b)) {
        return a == b;
    }
    /* "bloomfilter:10" is completed to "bloomfilter:10:false". */
    return fcap_bytes_equal(wanted, found) || is_other_spelling(wanted, found) ||
           (found.size > wanted.size && memcmp(wanted.data, found.data, wanted.size) == 0 &&
            found.data[wanted.size] == ':');
}

static enum fcap_status compare(struct fcap_bytes name, struct fcap_bytes wanted,
                                struct fcap_bytes found, const char *section,
                                struct fcap_error *error)
{
    if (is_same(wanted, found)) {
        return FCAP_OK;
    }
    return fcap_error_set(error, FCAP_CONFIG,
                          "RocksDB option %.*s %s: asked for %.*s, but RocksDB uses %.*s; set a "
                          "value that it takes",
                          (int)name.size, (const char *)name.data, section, (int)wanted.size,
                          (const char *)wanted.data, (int)found.size, (const char *)found.data);
}

/* The parts of "{a=1;b=2}" against a section, or against another "{...}" when section is NULL. */
static enum fcap_status compare_nested(const char *text, const char *section,
                                       struct fcap_bytes wanted, struct fcap_bytes found,
                                       struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    char *inner = strndup((const char *)wanted.data + 1, wanted.size - 2);
    char *other = strndup((const char *)found.data, found.size);
    FCAP_ASSERT(inner != NULL && other != NULL);
    const char *at = inner;
    struct fcap_bytes name;
    struct fcap_bytes value;
    while (status == FCAP_OK && store_raw_options_next(&at, &name, &value)) {
        struct fcap_bytes in_force = FCAP_BYTES_NONE;
        bool is_there = false;
        if (section != NULL) {
            is_there = find_option(text, section, name, &in_force);
        } else {
            struct fcap_bytes other_name;
            const char *other_at = other + (other[0] == '{');
            while (!is_there && store_raw_options_next(&other_at, &other_name, &in_force)) {
                is_there = fcap_bytes_equal(name, other_name);
            }
        }
        if (!is_there) {
            status = fcap_error_set(error, FCAP_CONFIG,
                                    "RocksDB option %.*s: RocksDB does not show that it is in "
                                    "force; remove it",
                                    (int)name.size, (const char *)name.data);
        } else if (value.data[0] != '{') {
            status = compare(name, value, in_force, section == NULL ? "" : section, error);
        }
    }
    free(other);
    free(inner);
    return status;
}

static void section_of(size_t family, bool is_table, char ret_section[64])
{
    (void)snprintf(ret_section, 64, "[%s \"%s\"]", /* Fits: names are ours. */
                   is_table ? "TableOptions/BlockBasedTable" : "CFOptions",
                   fcap_family_name((enum fcap_family)family));
}

/* One raw string. `family`: its own, or FCAP_FAMILY_COUNT for database and all families. */
static enum fcap_status check_raw(const char *text, const char *raw, size_t family,
                                  struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    struct fcap_bytes name;
    struct fcap_bytes wanted;
    struct fcap_bytes found;
    size_t first = family == FCAP_FAMILY_COUNT ? 0 : family;
    size_t last = family == FCAP_FAMILY_COUNT ? family : family + 1;
    while (status == FCAP_OK && raw != NULL && store_raw_options_next(&raw, &name, &wanted)) {
        bool is_nested = wanted.data[0] == '{';
        bool is_table = is_nested && (is_named(name, "block_based_table_factory") ||
                                      is_named(name, "table_factory"));
        bool is_there = false;
        if (family == FCAP_FAMILY_COUNT && find_option(text, "[DBOptions]", name, &found)) {
            is_there = true;
            status = is_nested ? compare_nested(text, NULL, wanted, found, error)
                               : compare(name, wanted, found, "[DBOptions]", error);
        }
        for (size_t i = first; status == FCAP_OK && i < last; i++) {
            char section[64];
            section_of(i, is_table, section);
            if (is_table) {
                is_there = true;
                status = compare_nested(text, section, wanted, fcap_bytes_of(""), error);
            } else if (find_option(text, section, name, &found)) {
                is_there = true;
                status = is_nested ? compare_nested(text, NULL, wanted, found, error)
                                   : compare(name, wanted, found, section, error);
            }
        }
        if (status == FCAP_OK && !is_there) {
            status = fcap_error_set(error, FCAP_CONFIG,
                                    "RocksDB option %.*s: RocksDB does not show that it is in "
                                    "force%s; remove it",
                                    (int)name.size, (const char *)name.data,
                                    family == FCAP_FAMILY_COUNT ? "" : " for this family");
        }
    }
    return status;
}

/* What the raw strings say again is theirs to check. */
static bool is_overridden(const char *raw, const char *name)
{
    return raw != NULL && strstr(raw, name) != NULL;
}

struct expected {
    const char *name;
    bool is_table;
    double value;
};

static enum fcap_status check_numbers(const char *text, const struct expected *expected,
                                      size_t count, size_t family, const char *const raws[2],
                                      struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    for (size_t i = 0; status == FCAP_OK && i < count; i++) {
        char section[64] = "[DBOptions]";
        struct fcap_bytes found = FCAP_BYTES_NONE;
        double value = 0;
        if (family < FCAP_FAMILY_COUNT) {
            section_of(family, expected[i].is_table, section);
        }
        if (is_overridden(raws[0], expected[i].name) || is_overridden(raws[1], expected[i].name)) {
            continue;
        }
        if (!find_option(text, section, fcap_bytes_of(expected[i].name), &found) ||
            !parse_number(found, &value) || value != expected[i].value) {
            status = fcap_error_set(error, FCAP_CONFIG,
                                    "RocksDB option %s %s: asked for %.0f, but RocksDB uses %.*s; "
                                    "set a value that it takes",
                                    expected[i].name, section, expected[i].value, (int)found.size,
                                    found.size == 0 ? "" : (const char *)found.data);
        }
    }
    return status;
}

static enum fcap_status check_family(const char *text, const struct fcap_store_settings *settings,
                                     size_t index, struct fcap_error *error)
{
    const struct fcap_store_family_settings *family = &settings->families[index];
    static const char *const compressions[] = {"kNoCompression", "kLZ4Compression", "kZSTD"};
    const char *const raws[2] = {settings->options, family->options};
    /* clang-format off */
    const struct expected expected[] = {
        {"write_buffer_size",                    false, (double)family->write_buffer_bytes},
        {"max_write_buffer_number",              false, family->write_buffers_max},
        {"min_write_buffer_number_to_merge",     false, family->write_buffers_merge},
        {"target_file_size_base",                false, (double)family->target_file_bytes},
        {"max_bytes_for_level_base",             false, (double)family->level_base_bytes},
        {"level_compaction_dynamic_level_bytes", false, family->dynamic_levels},
        {"level0_file_num_compaction_trigger",   false, family->level0_files},
        {"block_size",                           true,  (double)family->block_bytes},
        {"cache_index_and_filter_blocks",        true,  family->cache_index_and_filters},
        {"partition_filters",                    true,  family->partitioned_filters},
    };
    /* clang-format on */
    enum fcap_status status =
        check_numbers(text, expected, sizeof expected / sizeof expected[0], index, raws, error);
    char section[64];
    struct fcap_bytes found;
    section_of(index, false, section);
    if (status == FCAP_OK && !is_overridden(raws[0], "compression") &&
        !is_overridden(raws[1], "compression") &&
        find_option(text, section, fcap_bytes_of("compression"), &found)) {
        status = compare(fcap_bytes_of("compression"),
                         fcap_bytes_of(compressions[family->compression]), found, section, error);
    }
    section_of(index, true, section);
    if (status == FCAP_OK && family->filter_bits_per_key > 0 &&
        find_option(text, section, fcap_bytes_of("filter_policy"), &found) &&
        fcap_bytes_equal(found, fcap_bytes_of("nullptr"))) {
        status = fcap_error_set(error, FCAP_CONFIG, "%s: RocksDB uses no filter", section);
    }
    if (status == FCAP_OK && (index == FCAP_FAMILY_USERS || index == FCAP_FAMILY_ADS)) {
        status = check_raw(text, STORE_INSERT_HINT, index, error);
    }
    return status == FCAP_OK ? check_raw(text, family->options, index, error) : status;
}

enum fcap_status store_options_check(const struct fcap_store_settings *settings, int open_files_max,
                                     struct fcap_error *error)
{
    char *text = read_options_file(settings->directory);
    if (text == NULL) {
        return fcap_error_set(error, FCAP_IO,
                              "RocksDB wrote no OPTIONS file in %s, so no option can be proved to "
                              "be in force",
                              settings->directory);
    }
    const char *const raws[2] = {settings->options, NULL};
    /* clang-format off */
    const struct expected expected[] = {
        {"max_background_jobs",                    false, settings->background_jobs},
        {"max_open_files",                         false, open_files_max},
        {"db_write_buffer_size",                   false, (double)settings->write_buffers_bytes},
        {"max_total_wal_size",                     false, (double)settings->wal_bytes_max},
        {"atomic_flush",                           false, !settings->wal},
        {"use_direct_reads",                       false, settings->direct_reads},
        {"use_direct_io_for_flush_and_compaction", false, settings->direct_flush_and_compaction},
        {"bytes_per_sync",                         false, (double)settings->bytes_per_sync},
        {"wal_bytes_per_sync",                     false, (double)settings->wal_bytes_per_sync},
        {"max_log_file_size",                      false, (double)settings->info_log_bytes_max},
        {"keep_log_file_num",                      false, settings->info_log_files_max},
    };
    /* clang-format on */
    enum fcap_status status = check_numbers(text, expected, sizeof expected / sizeof expected[0],
                                            FCAP_FAMILY_COUNT, raws, error);
    for (size_t i = 0; status == FCAP_OK && i < FCAP_FAMILY_COUNT; i++) {
        status = check_family(text, settings, i, error);
    }
    if (status == FCAP_OK) {
        status = check_raw(text, settings->options, FCAP_FAMILY_COUNT, error);
    }
    free(text);
    return status;
}
