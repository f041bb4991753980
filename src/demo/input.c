#include "demo/input.h"

#include "demo/input_map.h"
#include "demo/json.h"
#include "lab/lab.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 512
#define TEXT_BLOCK  (1 << 20)
#define TIME_MAX    64

/* Blocks of texts, freed all at once. */
struct demo_text {
    struct demo_text *before;
    size_t used;
    char bytes[TEXT_BLOCK];
};

struct reading {
    const char *path;
    FILE *file;
    char *line;
    size_t line_capacity;
    size_t line_size;
    uint64_t line_number;
    uint64_t rows_max;
    struct demo_input *input;
    struct demo_map map;
    struct demo_json json;
    char separator;
    char *columns[COLUMNS_MAX];
    size_t column_count;
    char user[DEMO_ID_MAX + 8];
    char ad[DEMO_ID_MAX + 8];
    char when[TIME_MAX];
    char *error;
    size_t error_size;
};

static bool complain(struct reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool complain(struct reading *reading, const char *format, ...)
{
    va_list arguments;
    size_t used =
        (size_t)snprintf(reading->error, reading->error_size, "--input %s: ", reading->path);
    if (used < reading->error_size) {
        va_start(arguments, format);
        (void)vsnprintf(reading->error + used, reading->error_size - used, format, arguments);
        va_end(arguments);
    }
    return false;
}

/* --- rows ------------------------------------------------------------------------------------ */

static const char *keep(struct demo_input *input, const char *text)
{
    size_t size = strlen(text) + 1;
    if (input->texts == NULL || input->texts->used + size > TEXT_BLOCK) {
        struct demo_text *block = malloc(sizeof *block);
        lab_check(block != NULL);
        block->before = input->texts;
        block->used = 0;
        input->texts = block;
    }
    char *copy = input->texts->bytes + input->texts->used;
    memcpy(copy, text, size);
    input->texts->used += size;
    return copy;
}

static void skip(struct reading *reading, const char *reason, const char *text)
{
    if (reading->input->skipped++ == 0) {
        (void)snprintf(reading->input->reason, sizeof reading->input->reason,
                       "line %" PRIu64 ": %s%s%.60s%s", reading->line_number, reason,
                       text == NULL ? "" : " \"", text == NULL ? "" : text,
                       text == NULL ? "" : "\"");
    }
}

/* JSON takes nothing else. */
static bool is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at != 0) {
        /* Bytes that follow; 0x80 to 0xC1 and those from 0xF5 on begin nothing. */
        unsigned more = *at < 0x80                  ? 0
                        : *at < 0xC2 || *at >= 0xF5 ? 9
                        : *at < 0xE0                ? 1
                        : *at < 0xF0                ? 2
                                                    : 3;
        unsigned char low = *at == 0xE0 ? 0xA0 : *at == 0xF0 ? 0x90 : 0x80;
        unsigned char high = *at == 0xED ? 0x9F : *at == 0xF4 ? 0x8F : 0xBF;
        if (more == 9) {
            return false;
        }
        at++;
        for (; more > 0; more--, at++) {
            if (*at < low || *at > high) {
                return false;
            }
            low = 0x80;
            high = 0xBF;
        }
    }
    return true;
}

/* reading->user, ad and when hold a row. */
static void add_row(struct reading *reading)
{
    struct demo_input *input = reading->input;
    int64_t time_ms = 0;
    if (reading->user[0] == '\0' || reading->ad[0] == '\0') {
        skip(reading, "no user or no ad", NULL);
        return;
    }
    if (strlen(reading->user) > DEMO_ID_MAX || strlen(reading->ad) > DEMO_ID_MAX ||
        !is_utf8(reading->user) || !is_utf8(reading->ad)) {
        skip(reading, "a user or ad that is not UTF-8 or too long", NULL);
        return;
    }
    if (!demo_time_parse(reading->when, &time_ms)) {
        skip(reading, "neither ISO 8601 nor a Unix epoch:", reading->when);
        return;
    }
    if (input->count == input->capacity) {
        input->capacity = input->capacity * 2 + 1024;
        input->rows = realloc(input->rows, input->capacity * sizeof *input->rows);
        lab_check(input->rows != NULL);
    }
    input->rows[input->count] = (struct demo_row){.user = keep(input, reading->user),
                                                  .ad = keep(input, reading->ad),
                                                  .time_ms = time_ms,
                                                  .number = input->count + input->skipped + 1};
    input->count++;
}

static bool has_enough(const struct reading *reading)
{
    return reading->rows_max > 0 && reading->input->count >= reading->rows_max;
}

/* Appends a part of a field; false: it does not fit. */
static bool append(char *field, size_t size, size_t part, const char *text)
{
    size_t used = strlen(field);
    int added = snprintf(field + used, size - used, "%s%s", part == 0 ? "" : "|", text);
    return added >= 0 && (size_t)added < size - used;
}

/* --- lines ----------------------------------------------------------------------------------- */

static bool read_line(struct reading *reading)
{
    ssize_t got = getline(&reading->line, &reading->line_capacity, reading->file);
    if (got <= 0) {
        return false;
    }
    reading->line_number++;
    reading->line_size = (size_t)got;
    while (reading->line_size > 0 && strchr("\r\n", reading->line[reading->line_size - 1])) {
        reading->line[--reading->line_size] = '\0';
    }
    return true;
}

/* --- CSV ------------------------------------------------------------------------------------- */

/* Cuts the line in place; false: a quote is open at its end, or there are too many columns. */
static bool split(struct reading *reading, char **ret_fields, size_t *ret_count)
{
    char *at = reading->line;
    size_t count = 0;
    for (;;) {
        if (count == COLUMNS_MAX) {
            return false;
        }
        bool is_quoted = *at == '"';
        at += is_quoted ? 1 : 0;
        char *out = at;
        ret_fields[count++] = out;
        while (*at != '\0' && (is_quoted || *at != reading->separator)) {
            if (is_quoted && *at == '"') {
                is_quoted = at[1] == '"';
                at++;
                if (!is_quoted) {
                    continue;
                }
            }
            *out++ = *at++;
        }
        if (is_quoted) {
            return false;
        }
        bool is_last = *at == '\0';
        *out = '\0';
        if (is_last) {
            *ret_count = count;
            return true;
        }
        at++;
    }
}

static void choose_separator(struct reading *reading)
{
    static const char candidates[] = ",;\t|";
    size_t most = 0;
    reading->separator = ',';
    for (const char *at = candidates; *at != '\0'; at++) {
        size_t count = 0;
        for (const char *c = reading->line; *c != '\0'; c++) {
            count += *c == *at;
        }
        if (count > most) {
            most = count;
            reading->separator = *at;
        }
    }
}

static size_t column_of(const struct reading *reading, const char *name)
{
    size_t i = 0;
    while (i < reading->column_count && strcmp(reading->columns[i], name) != 0) {
        i++;
    }
    return i;
}

static bool find_columns(struct reading *reading, struct demo_field *field)
{
    for (size_t i = 0; i < field->count; i++) {
        field->columns[i] = column_of(reading, field->parts[i]);
        if (field->columns[i] == reading->column_count) {
            char text[600];
            demo_map_list((const char *const *)reading->columns, reading->column_count, text,
                          sizeof text);
            return complain(reading, "no column \"%s\"; it has%s", field->parts[i], text);
        }
    }
    return true;
}

static bool read_header(struct reading *reading, const char *map)
{
    char *fields[COLUMNS_MAX];
    char text[900];
    choose_separator(reading);
    if (strncmp(reading->line, "\xEF\xBB\xBF", 3) == 0) {
        memmove(reading->line, reading->line + 3, strlen(reading->line + 3) + 1);
    }
    if (!split(reading, fields, &reading->column_count)) {
        return complain(reading, "its header is no line of CSV with up to %d columns", COLUMNS_MAX);
    }
    for (size_t i = 0; i < reading->column_count; i++) {
        reading->columns[i] = strdup(fields[i]);
        lab_check(reading->columns[i] != NULL);
    }
    bool is_fine = map != NULL
                       ? demo_map_parse(map, &reading->map, text, sizeof text)
                       : demo_map_guess((const char *const *)reading->columns,
                                        reading->column_count, &reading->map, text, sizeof text);
    if (!is_fine) {
        return complain(reading, "%s", text);
    }
    return find_columns(reading, &reading->map.user) && find_columns(reading, &reading->map.ad) &&
           find_columns(reading, &reading->map.time);
}

static bool take_fields(char *const *fields, size_t count, const struct demo_field *field,
                        char *ret, size_t size)
{
    ret[0] = '\0';
    for (size_t i = 0; i < field->count; i++) {
        size_t column = field->columns[i];
        if (column >= count || !append(ret, size, i, fields[column])) {
            return false;
        }
    }
    return true;
}

static bool read_csv(struct reading *reading, const char *map)
{
    char *fields[COLUMNS_MAX];
    size_t count = 0;
    if (!read_header(reading, map)) {
        return false;
    }
    while (!has_enough(reading) && read_line(reading)) {
        if (reading->line_size == 0) {
            continue;
        }
        if (!split(reading, fields, &count)) {
            skip(reading, "no line of CSV", NULL);
        } else if (!take_fields(fields, count, &reading->map.user, reading->user,
                                sizeof reading->user) ||
                   !take_fields(fields, count, &reading->map.ad, reading->ad, sizeof reading->ad) ||
                   !take_fields(fields, count, &reading->map.time, reading->when,
                                sizeof reading->when)) {
            skip(reading, "columns are missing or too long", NULL);
        } else {
            add_row(reading);
        }
    }
    return true;
}

/* --- JSON lines ------------------------------------------------------------------------------ */

/* Follows a path of names joined by dots from `item`; UINT32_MAX: not there. With "[]" behind a
 * name, *ret_rest is what follows it and the array is given. */
static uint32_t follow(const struct demo_json *json, uint32_t item, const char *path,
                       const char **ret_rest)
{
    *ret_rest = NULL;
    while (item != UINT32_MAX && *path != '\0') {
        size_t size = strcspn(path, ".[");
        item = demo_json_member(json, item, path, size);
        path += size;
        if (strncmp(path, "[]", 2) == 0) {
            *ret_rest = path + 2 + (path[2] == '.');
            return item;
        }
        path += *path == '.';
    }
    return item;
}

/* One field of a document; `element`: the item of the array that [] stands for. */
static bool take_paths(struct reading *reading, const struct demo_field *field, uint32_t element,
                       char *ret, size_t size)
{
    char text[DEMO_ID_MAX + 8];
    ret[0] = '\0';
    for (size_t i = 0; i < field->count; i++) {
        const char *rest = NULL;
        const char *none = NULL;
        uint32_t item = follow(&reading->json, 0, field->parts[i], &rest);
        if (rest != NULL) {
            item = follow(&reading->json, element, rest, &none);
        }
        if (item == UINT32_MAX || none != NULL ||
            !demo_json_copy(&reading->json, item, text, sizeof text) ||
            !append(ret, size, i, text)) {
            return false;
        }
    }
    return true;
}

static void take_document(struct reading *reading, uint32_t element)
{
    if (take_paths(reading, &reading->map.user, element, reading->user, sizeof reading->user) &&
        take_paths(reading, &reading->map.ad, element, reading->ad, sizeof reading->ad) &&
        take_paths(reading, &reading->map.time, element, reading->when, sizeof reading->when)) {
        add_row(reading);
    } else {
        skip(reading, "user, ad or time is missing, too long, or no text or number", NULL);
    }
}

/* The array that [] of the map goes through, with the item it is in this document; false: the map
 * names two. */
static bool find_array(struct reading *reading, bool *ret_has, uint32_t *ret_array)
{
    const struct demo_field *fields[] = {&reading->map.user, &reading->map.ad, &reading->map.time};
    const char *prefix = NULL;
    size_t prefix_size = 0;
    *ret_has = false;
    for (size_t f = 0; f < 3; f++) {
        for (size_t i = 0; i < fields[f]->count; i++) {
            const char *path = fields[f]->parts[i];
            const char *brackets = strstr(path, "[]");
            const char *rest = NULL;
            if (brackets == NULL) {
                continue;
            }
            size_t size = (size_t)(brackets - path);
            if (strstr(brackets + 2, "[]") != NULL ||
                (prefix != NULL && (size != prefix_size || memcmp(path, prefix, size) != 0))) {
                return complain(reading, "--map goes through more than one array");
            }
            prefix = path;
            prefix_size = size;
            *ret_has = true;
            *ret_array = follow(&reading->json, 0, path, &rest);
        }
    }
    return true;
}

static bool take_line(struct reading *reading)
{
    bool has_array = false;
    uint32_t array = UINT32_MAX;
    const struct demo_json *json = &reading->json;
    if (!find_array(reading, &has_array, &array)) {
        return false;
    }
    if (!has_array) {
        take_document(reading, 0);
        return true;
    }
    if (array == UINT32_MAX || json->items[array].kind != DEMO_JSON_ARRAY) {
        skip(reading, "the array of --map is missing", NULL);
        return true;
    }
    for (uint32_t i = array + 1; i < json->items[array].after && !has_enough(reading);
         i = json->items[i].after) {
        take_document(reading, i);
    }
    return true;
}

static bool guess_json(struct reading *reading)
{
    const struct demo_json *json = &reading->json;
    char text[900];
    for (uint32_t i = 1; json->count > 0 && json->items[0].kind == DEMO_JSON_OBJECT &&
                         i < json->items[0].after && reading->column_count < COLUMNS_MAX;
         i = json->items[i + 1].after) {
        reading->columns[reading->column_count] =
            strndup(json->bytes + json->items[i].start, json->items[i].end - json->items[i].start);
        lab_check(reading->columns[reading->column_count] != NULL);
        reading->column_count++;
    }
    return demo_map_guess((const char *const *)reading->columns, reading->column_count,
                          &reading->map, text, sizeof text) ||
           complain(reading, "%s", text);
}

static bool read_json(struct reading *reading, const char *map)
{
    char text[900];
    bool has_map = map != NULL;
    if (has_map && !demo_map_parse(map, &reading->map, text, sizeof text)) {
        return complain(reading, "%s", text);
    }
    do {
        if (reading->line_size == 0) {
            continue;
        }
        if (!demo_json_parse(&reading->json, reading->line, reading->line_size)) {
            skip(reading, "not one JSON document", NULL);
            continue;
        }
        if (!has_map && !guess_json(reading)) {
            return false;
        }
        has_map = true;
        if (!take_line(reading)) {
            return false;
        }
    } while (!has_enough(reading) && read_line(reading));
    return true;
}

/* --- the file -------------------------------------------------------------------------------- */

static int compare_rows(const void *left_item, const void *right_item)
{
    const struct demo_row *left = left_item;
    const struct demo_row *right = right_item;
    if (left->time_ms != right->time_ms) {
        return left->time_ms < right->time_ms ? -1 : 1;
    }
    return left->number < right->number ? -1 : left->number > right->number;
}

static bool read_file(struct reading *reading, const char *map)
{
    if (!read_line(reading)) {
        return complain(reading, "%s",
                        ferror(reading->file) != 0 ? strerror(errno) : "an empty file");
    }
    bool is_json = reading->line[strspn(reading->line, " \t")] == '{';
    if (!(is_json ? read_json(reading, map) : read_csv(reading, map))) {
        return false;
    }
    if (ferror(reading->file) != 0) {
        return complain(reading, "%s", strerror(errno));
    }
    if (reading->input->count == 0) {
        return complain(reading, "no row of it can be used; %s",
                        reading->input->skipped > 0 ? reading->input->reason
                                                    : "there is only a header");
    }
    return true;
}

bool demo_input_open(const char *path, const char *map, uint64_t rows_max,
                     struct demo_input *ret_input, char *error, size_t error_size)
{
    struct reading reading = {.path = path,
                              .rows_max = rows_max,
                              .input = ret_input,
                              .error = error,
                              .error_size = error_size};
    bool is_fine = false;
    *ret_input = (struct demo_input){0};
    reading.file = fopen(path, "re");
    if (reading.file == NULL) {
        return complain(&reading, "%s", strerror(errno));
    }
    is_fine = read_file(&reading, map);
    if (is_fine) {
        qsort(ret_input->rows, ret_input->count, sizeof *ret_input->rows, compare_rows);
    } else {
        demo_input_close(ret_input);
    }
    (void)fclose(reading.file);
    free(reading.line);
    demo_json_done(&reading.json);
    for (size_t i = 0; i < reading.column_count; i++) {
        free(reading.columns[i]);
    }
    return is_fine;
}

void demo_input_close(struct demo_input *input)
{
    while (input->texts != NULL) {
        struct demo_text *before = input->texts->before;
        free(input->texts);
        input->texts = before;
    }
    free(input->rows);
    *input = (struct demo_input){0};
}
