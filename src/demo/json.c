#include "demo/json.h"

#include "lab/lab.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64

struct parser {
    struct demo_json *json;
    size_t at;
    size_t size;
};

static bool parse_value(struct parser *parser, int depth);

static void skip_space(struct parser *parser)
{
    while (parser->at < parser->size && strchr(" \t\r\n", parser->json->text[parser->at]) != NULL &&
           parser->json->text[parser->at] != '\0') {
        parser->at++;
    }
}

static bool take(struct parser *parser, char wanted)
{
    skip_space(parser);
    if (parser->at >= parser->size || parser->json->text[parser->at] != wanted) {
        return false;
    }
    parser->at++;
    return true;
}

static uint32_t add(struct parser *parser, enum demo_json_kind kind)
{
    struct demo_json *json = parser->json;
    if (json->count == json->capacity) {
        json->capacity = json->capacity * 2 + 64;
        json->items = realloc(json->items, json->capacity * sizeof *json->items);
        lab_check(json->items != NULL);
    }
    json->items[json->count] = (struct demo_json_item){.kind = kind, .start = (uint32_t)parser->at};
    return json->count++;
}

static void finish(struct parser *parser, uint32_t item)
{
    parser->json->items[item].end = (uint32_t)parser->at;
    parser->json->items[item].after = parser->json->count;
}

static bool parse_string(struct parser *parser)
{
    const char *text = parser->json->text;
    if (!take(parser, '"')) {
        return false;
    }
    uint32_t item = add(parser, DEMO_JSON_STRING);
    while (parser->at < parser->size && text[parser->at] != '"') {
        if ((unsigned char)text[parser->at] < 0x20) {
            return false;
        }
        parser->at += text[parser->at] == '\\' ? 2 : 1;
    }
    if (parser->at >= parser->size) {
        return false;
    }
    finish(parser, item);
    parser->at++;
    return true;
}

/* A number, or one of three words. */
static bool is_other(const char *start, const char *end)
{
    static const char *const words[] = {"true", "false", "null"};
    char copy[64];
    char *stop = NULL;
    size_t size = (size_t)(end - start);
    if (size == 0 || size >= sizeof copy) {
        return false;
    }
    memcpy(copy, start, size);
    copy[size] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(copy, words[i]) == 0) {
            return true;
        }
    }
    (void)strtod(copy, &stop);
    return strchr("-0123456789", copy[0]) != NULL && stop == copy + size;
}

static bool parse_other(struct parser *parser)
{
    const char *text = parser->json->text;
    uint32_t item = add(parser, DEMO_JSON_OTHER);
    while (parser->at < parser->size && text[parser->at] != '\0' &&
           strchr("+-.0123456789Eaeflnrstu", text[parser->at]) != NULL) {
        parser->at++;
    }
    finish(parser, item);
    return is_other(text + parser->json->items[item].start, text + parser->at);
}

/* `close` is '}' or ']'. */
static bool parse_many(struct parser *parser, enum demo_json_kind kind, char close, int depth)
{
    uint32_t item = add(parser, kind);
    parser->at++;
    if (!take(parser, close)) {
        do {
            if (kind == DEMO_JSON_OBJECT && (!parse_string(parser) || !take(parser, ':'))) {
                return false;
            }
            if (!parse_value(parser, depth + 1)) {
                return false;
            }
        } while (take(parser, ','));
        if (!take(parser, close)) {
            return false;
        }
    }
    finish(parser, item);
    return true;
}

static bool parse_value(struct parser *parser, int depth)
{
    skip_space(parser);
    if (depth > DEPTH_MAX || parser->at >= parser->size) {
        return false;
    }
    switch (parser->json->text[parser->at]) {
    case '{':
        return parse_many(parser, DEMO_JSON_OBJECT, '}', depth);
    case '[':
        return parse_many(parser, DEMO_JSON_ARRAY, ']', depth);
    case '"':
        return parse_string(parser);
    default:
        return parse_other(parser);
    }
}

bool demo_json_parse(struct demo_json *json, const char *text, size_t size)
{
    struct parser parser = {.json = json, .size = size};
    json->text = text;
    json->count = 0;
    if (size > UINT32_MAX / 2 || !parse_value(&parser, 0)) {
        return false;
    }
    skip_space(&parser);
    return parser.at == size;
}

void demo_json_done(struct demo_json *json)
{
    free(json->items);
    *json = (struct demo_json){0};
}

uint32_t demo_json_member(const struct demo_json *json, uint32_t object, const char *name,
                          size_t name_size)
{
    const struct demo_json_item *items = json->items;
    if (items[object].kind != DEMO_JSON_OBJECT) {
        return UINT32_MAX;
    }
    for (uint32_t i = object + 1; i < items[object].after; i = items[i + 1].after) {
        if (items[i].end - items[i].start == name_size &&
            memcmp(json->text + items[i].start, name, name_size) == 0) {
            return i + 1;
        }
    }
    return UINT32_MAX;
}

/* --- strings --------------------------------------------------------------------------------- */

static bool read_hex(const char *at, const char *end, uint32_t *ret_unit)
{
    char digits[5] = {0};
    char *stop = NULL;
    if (end - at < 4) {
        return false;
    }
    memcpy(digits, at, 4);
    *ret_unit = (uint32_t)strtoul(digits, &stop, 16);
    return stop == digits + 4;
}

static size_t put_utf8(uint32_t code, char *ret)
{
    if (code < 0x80) {
        ret[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        ret[0] = (char)(0xC0 | code >> 6);
        ret[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        ret[0] = (char)(0xE0 | code >> 12);
        ret[1] = (char)(0x80 | (code >> 6 & 0x3F));
        ret[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    ret[0] = (char)(0xF0 | code >> 18);
    ret[1] = (char)(0x80 | (code >> 12 & 0x3F));
    ret[2] = (char)(0x80 | (code >> 6 & 0x3F));
    ret[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/* Behind "\u": one unit or a pair. Gives the bytes read, 0: not valid. */
static size_t read_unicode(const char *at, const char *end, uint32_t *ret_code)
{
    uint32_t low = 0;
    if (!read_hex(at, end, ret_code)) {
        return 0;
    }
    if (*ret_code < 0xD800 || *ret_code > 0xDFFF) {
        return *ret_code == 0 ? 0 : 4;
    }
    if (*ret_code > 0xDBFF || end - at < 10 || at[4] != '\\' || at[5] != 'u' ||
        !read_hex(at + 6, end, &low) || low < 0xDC00 || low > 0xDFFF) {
        return 0;
    }
    *ret_code = 0x10000 + ((*ret_code - 0xD800) << 10) + (low - 0xDC00);
    return 10;
}

static bool unescape(const char *at, const char *end, char *ret, size_t size)
{
    static const char names[] = "\"\\/bfnrt";
    static const char bytes[] = "\"\\/\b\f\n\r\t";
    size_t used = 0;
    while (at < end) {
        if (used + 5 > size) {
            return false;
        }
        if (*at != '\\') {
            ret[used++] = *at++;
            continue;
        }
        const char *name = at[1] == '\0' ? NULL : strchr(names, at[1]);
        if (name != NULL) {
            ret[used++] = bytes[name - names];
            at += 2;
            continue;
        }
        uint32_t code = 0;
        size_t read = at[1] == 'u' ? read_unicode(at + 2, end, &code) : 0;
        if (read == 0) {
            return false;
        }
        used += put_utf8(code, ret + used);
        at += 2 + read;
    }
    ret[used] = '\0';
    return true;
}

bool demo_json_copy(const struct demo_json *json, uint32_t item, char *ret, size_t size)
{
    const struct demo_json_item *found = &json->items[item];
    const char *start = json->text + found->start;
    size_t length = found->end - found->start;
    if (found->kind == DEMO_JSON_STRING) {
        return unescape(start, start + length, ret, size);
    }
    if (found->kind != DEMO_JSON_OTHER || length >= size || strchr("-0123456789", *start) == NULL) {
        return false;
    }
    memcpy(ret, start, length);
    ret[length] = '\0';
    return true;
}
