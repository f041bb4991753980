/* yajl tells a stream of events; the items are their record. */
#include "demo/json.h"

#include "lab/lab.h"

#include <yajl/yajl_parse.h>

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* Adds an item inside the innermost open one; `after` of an open one is its parent meanwhile. */
static int add(struct demo_json *json, enum demo_json_kind kind, const void *text, size_t size)
{
    if (json->count == json->capacity) {
        json->capacity = json->capacity * 2 + 64;
        json->items = realloc(json->items, json->capacity * sizeof *json->items);
        lab_check(json->items != NULL);
    }
    while (json->bytes_capacity - json->bytes_size < size) {
        json->bytes_capacity = json->bytes_capacity * 2 + 1024;
        json->bytes = realloc(json->bytes, json->bytes_capacity);
        lab_check(json->bytes != NULL);
    }
    if (size > 0) {
        memcpy(json->bytes + json->bytes_size, text, size);
    }
    json->items[json->count] = (struct demo_json_item){
        .kind = kind,
        .start = (uint32_t)json->bytes_size,
        .end = (uint32_t)(json->bytes_size + size),
        .after = json->count + 1,
    };
    json->bytes_size += size;
    json->count++;
    return 1;
}

static int open_item(struct demo_json *json, enum demo_json_kind kind)
{
    (void)add(json, kind, NULL, 0);
    json->items[json->count - 1].after = json->open;
    json->open = json->count - 1;
    return 1;
}

static int close_item(void *context)
{
    struct demo_json *json = context;
    struct demo_json_item *item = &json->items[json->open];
    json->open = item->after;
    item->after = json->count;
    return 1;
}

static int on_null(void *context)
{
    return add(context, DEMO_JSON_WORD, NULL, 0);
}

static int on_boolean(void *context, int value)
{
    (void)value;
    return add(context, DEMO_JSON_WORD, NULL, 0);
}

static int on_number(void *context, const char *digits, size_t size)
{
    return add(context, DEMO_JSON_NUMBER, digits, size);
}

static int on_string(void *context, const unsigned char *text, size_t size)
{
    return add(context, DEMO_JSON_STRING, text, size);
}

static int on_map_start(void *context)
{
    return open_item(context, DEMO_JSON_OBJECT);
}

static int on_array_start(void *context)
{
    return open_item(context, DEMO_JSON_ARRAY);
}

static bool is_blank(const char *text, size_t size)
{
    return strspn(text, " \t\r\n") >= size;
}

bool demo_json_parse(struct demo_json *json, const char *text, size_t size)
{
    static const yajl_callbacks callbacks = {
        .yajl_null = on_null,
        .yajl_boolean = on_boolean,
        .yajl_number = on_number, /* With it yajl converts no number, so none can overflow. */
        .yajl_string = on_string,
        .yajl_start_map = on_map_start,
        .yajl_map_key = on_string,
        .yajl_end_map = close_item,
        .yajl_start_array = on_array_start,
        .yajl_end_array = close_item,
    };
    json->count = 0;
    json->bytes_size = 0;
    json->open = NONE;
    if (size > UINT32_MAX / 2) {
        return false;
    }
    yajl_handle handle = yajl_alloc(&callbacks, NULL, json);
    lab_check(handle != NULL);
    /* What follows the document is looked at here: yajl takes an unfinished string for "more". */
    (void)yajl_config(handle, yajl_allow_trailing_garbage, 1);
    bool ok = yajl_parse(handle, (const unsigned char *)text, size) == yajl_status_ok;
    size_t consumed = ok ? yajl_get_bytes_consumed(handle) : 0;
    ok = ok && is_blank(text + consumed, size - consumed) &&
         yajl_complete_parse(handle) == yajl_status_ok && json->count > 0;
    yajl_free(handle);
    return ok;
}

void demo_json_done(struct demo_json *json)
{
    free(json->items);
    free(json->bytes);
    *json = (struct demo_json){0};
}

uint32_t demo_json_member(const struct demo_json *json, uint32_t object, const char *name,
                          size_t name_size)
{
    const struct demo_json_item *items = json->items;
    if (items[object].kind != DEMO_JSON_OBJECT) {
        return NONE;
    }
    for (uint32_t i = object + 1; i < items[object].after; i = items[i + 1].after) {
        if (items[i].end - items[i].start == name_size &&
            memcmp(json->bytes + items[i].start, name, name_size) == 0) {
            return i + 1;
        }
    }
    return NONE;
}

bool demo_json_copy(const struct demo_json *json, uint32_t item, char *ret, size_t size)
{
    const struct demo_json_item *found = &json->items[item];
    const char *start = json->bytes + found->start;
    size_t length = found->end - found->start;
    if ((found->kind != DEMO_JSON_STRING && found->kind != DEMO_JSON_NUMBER) || length >= size ||
        memchr(start, '\0', length) != NULL) {
        return false;
    }
    memcpy(ret, start, length);
    ret[length] = '\0';
    return true;
}
