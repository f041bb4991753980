#include "fcap/decode.h"

#include "fcap/assert.h"

#include "decode_parser.h"

#include <stdlib.h>
#include <string.h>

/* 00 and a schema id, before a value. */
#define FRAME_BYTES 5

/* What an event is made of. A field that is not configured, or not in the body, has NO_NODE. */
enum field { USER, AD, TIME, ID, FILTER, FIELDS_COUNT };

static const char *const field_names[FIELDS_COUNT] = {
    "event.user", "event.ad", "event.time", "event.id", "event.filter",
};

/* Texts in byte order, for a binary search. */
struct text_list {
    struct fcap_bytes *texts; /* owned, and so are their bytes */
    size_t count;
};

struct decode_json {
    struct fcap_decoder base; /* first: what the core sees */
    const struct fcap_decode_parser *parser;
    struct fcap_decode_arena arena;
    struct fcap_decode_tree tree;
    struct fcap_decode_found found;
    int field_nodes[FIELDS_COUNT];
    uint32_t filter_path_nodes; /* bit n: node n is on the filter field's path */
    bool user_is_key;
    bool time_is_timestamp;
    bool is_framed;
    enum fcap_time_format time_format;
    struct text_list filter_values;
    struct text_list ignore_users;
    size_t user_id_bytes_max;
    size_t ad_id_bytes_max;
    size_t record_bytes_max;
};

/* --- the parsers' side -------------------------------------------------------------------- */

void fcap_decode_found_clear(struct fcap_decode_found *found, const struct fcap_decode_tree *tree)
{
    memset(found->values, 0, (size_t)tree->count * sizeof found->values[0]);
    found->repeated = 0;
}

void fcap_decode_found_put(struct fcap_decode_found *found, int node, enum fcap_decode_kind kind,
                           struct fcap_bytes text)
{
    if (found->values[node].kind != FCAP_DECODE_ABSENT) {
        found->repeated |= UINT32_C(1) << node;
    }
    found->values[node] = (struct fcap_decode_value){kind, text};
}

/* --- ids ---------------------------------------------------------------------------------- */

static enum fcap_reject check_id_text(struct fcap_bytes text, size_t bytes_max)
{
    bool is_id =
        text.size > 0 && text.size <= bytes_max && memchr(text.data, '\0', text.size) == NULL;
    return is_id ? FCAP_REJECT_NONE : FCAP_REJECT_BAD_ID;
}

static bool is_integer(struct fcap_bytes number)
{
    for (size_t i = 0; i < number.size; i++) {
        if (number.data[i] == '.' || (number.data[i] | 0x20) == 'e') {
            return false;
        }
    }
    return true;
}

static enum fcap_reject read_id(const struct decode_json *decoder, enum field field,
                                size_t bytes_max, struct fcap_bytes *ret_id)
{
    const struct fcap_decode_value *value = &decoder->found.values[decoder->field_nodes[field]];
    if (value->kind == FCAP_DECODE_ABSENT) {
        return FCAP_REJECT_MISSING_FIELD;
    }
    if (value->kind != FCAP_DECODE_STRING && value->kind != FCAP_DECODE_NUMBER) {
        return FCAP_REJECT_WRONG_TYPE;
    }
    if (value->kind == FCAP_DECODE_NUMBER && !is_integer(value->text)) {
        return FCAP_REJECT_BAD_ID;
    }
    enum fcap_reject reject = check_id_text(value->text, bytes_max);
    if (reject == FCAP_REJECT_NONE) {
        *ret_id = value->text;
    }
    return reject;
}

/* The record's key as a user: nothing has checked its bytes yet. */
static enum fcap_reject read_key(const struct decode_json *decoder,
                                 const struct fcap_record *record, struct fcap_bytes *ret_user)
{
    if (record->key.data == NULL) {
        return FCAP_REJECT_NO_KEY;
    }
    enum fcap_reject reject = check_id_text(record->key, decoder->user_id_bytes_max);
    if (reject == FCAP_REJECT_NONE && !fcap_decode_is_utf8(record->key)) {
        reject = FCAP_REJECT_BAD_ID;
    }
    if (reject == FCAP_REJECT_NONE) {
        *ret_user = record->key;
    }
    return reject;
}

static int compare_texts(const void *a, const void *b)
{
    return fcap_bytes_compare(*(const struct fcap_bytes *)a, *(const struct fcap_bytes *)b);
}

static bool list_has(const struct text_list *list, struct fcap_bytes text)
{
    return list->count > 0 &&
           bsearch(&text, list->texts, list->count, sizeof text, compare_texts) != NULL;
}

/* --- times -------------------------------------------------------------------------------- */

static enum fcap_reject read_time(const struct decode_json *decoder,
                                  const struct fcap_record *record, int64_t *ret_ms)
{
    if (decoder->time_is_timestamp) {
        if (record->timestamp_type == FCAP_TIMESTAMP_NONE || record->timestamp_ms < 0 ||
            record->timestamp_ms > FCAP_DECODE_TIME_MS_MAX) {
            return FCAP_REJECT_BAD_TIME;
        }
        *ret_ms = record->timestamp_ms;
        return FCAP_REJECT_NONE;
    }
    const struct fcap_decode_value *value = &decoder->found.values[decoder->field_nodes[TIME]];
    bool is_text = decoder->time_format == FCAP_TIME_ISO8601;
    if (value->kind == FCAP_DECODE_ABSENT) {
        return FCAP_REJECT_MISSING_FIELD;
    }
    if (value->kind != FCAP_DECODE_STRING && (is_text || value->kind != FCAP_DECODE_NUMBER)) {
        return FCAP_REJECT_WRONG_TYPE;
    }
    bool is_read = is_text ? fcap_decode_iso8601(value->text, ret_ms)
                           : fcap_decode_integer_time(value->text, decoder->time_format, ret_ms);
    return is_read ? FCAP_REJECT_NONE : FCAP_REJECT_BAD_TIME;
}

/* --- one record --------------------------------------------------------------------------- */

/* Everything that can be said about the text before a field is looked at. Fills found. */
static enum fcap_reject read_body(struct decode_json *decoder, struct fcap_bytes text)
{
    if (text.size == 0) {
        return FCAP_REJECT_EMPTY;
    }
    if (text.size > decoder->record_bytes_max) {
        return FCAP_REJECT_SIZE;
    }
    if (text.data[0] == 0 && decoder->is_framed == (text.size <= FRAME_BYTES)) {
        return FCAP_REJECT_FRAMING;
    }
    if (text.data[0] == 0 && decoder->is_framed) {
        text.data += FRAME_BYTES;
        text.size -= FRAME_BYTES;
    }
    enum fcap_reject reject = fcap_decode_text_check(text);
    if (reject != FCAP_REJECT_NONE) {
        return reject;
    }
    fcap_decode_arena_reset(&decoder->arena);
    fcap_decode_found_clear(&decoder->found, &decoder->tree);
    if (!decoder->parser->parse(&decoder->arena, &decoder->tree, text, &decoder->found)) {
        return FCAP_REJECT_JSON;
    }
    bool is_object = decoder->found.values[FCAP_DECODE_ROOT].kind == FCAP_DECODE_OBJECT;
    return is_object ? FCAP_REJECT_NONE : FCAP_REJECT_NOT_OBJECT;
}

/* Looks at the filter field alone: a record that is not wanted is not an error, however broken the
 * fields are that nobody wants from it. */
static enum fcap_reject check_filter(const struct decode_json *decoder)
{
    if (decoder->field_nodes[FILTER] == FCAP_DECODE_NO_NODE) {
        return FCAP_REJECT_NONE;
    }
    if ((decoder->found.repeated & decoder->filter_path_nodes) != 0) {
        return FCAP_REJECT_REPEATED_KEY;
    }
    const struct fcap_decode_value *value = &decoder->found.values[decoder->field_nodes[FILTER]];
    struct fcap_bytes text = value->text;
    switch (value->kind) {
    case FCAP_DECODE_STRING:
    case FCAP_DECODE_NUMBER:
        break;
    case FCAP_DECODE_TRUE:
        text = fcap_bytes_of("true");
        break;
    case FCAP_DECODE_FALSE:
        text = fcap_bytes_of("false");
        break;
    default:
        return FCAP_REJECT_FILTERED;
    }
    return list_has(&decoder->filter_values, text) ? FCAP_REJECT_NONE : FCAP_REJECT_FILTERED;
}

static enum fcap_reject read_fields(const struct decode_json *decoder,
                                    const struct fcap_record *record, struct fcap_event *event)
{
    enum fcap_reject reject =
        decoder->user_is_key ? read_key(decoder, record, &event->user)
                             : read_id(decoder, USER, decoder->user_id_bytes_max, &event->user);
    if (reject != FCAP_REJECT_NONE) {
        return reject;
    }
    if (list_has(&decoder->ignore_users, event->user)) {
        return FCAP_REJECT_IGNORED_USER;
    }
    reject = read_id(decoder, AD, decoder->ad_id_bytes_max, &event->ad);
    if (reject != FCAP_REJECT_NONE) {
        return reject;
    }
    if (decoder->field_nodes[ID] != FCAP_DECODE_NO_NODE) {
        struct fcap_bytes id;
        reject = read_id(decoder, ID, SIZE_MAX, &id);
        if (reject != FCAP_REJECT_NONE) {
            return reject;
        }
        event->has_id = true;
        event->id_hash = fcap_hash64(id, 0);
    }
    return read_time(decoder, record, &event->time_ms);
}

static enum fcap_reject decode(struct fcap_decoder *base, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    struct decode_json *decoder = (struct decode_json *)base;
    struct fcap_event event = {0};
    enum fcap_reject reject;
    if (record->value.data == NULL) {
        event.is_tombstone = true;
        reject = read_key(decoder, record, &event.user);
        goto out;
    }
    reject = read_body(decoder, record->value);
    if (reject != FCAP_REJECT_NONE) {
        goto out;
    }
    reject = check_filter(decoder);
    if (reject != FCAP_REJECT_NONE) {
        goto out;
    }
    if (decoder->found.repeated != 0) {
        reject = FCAP_REJECT_REPEATED_KEY;
        goto out;
    }
    reject = read_fields(decoder, record, &event);
out:
    if (reject == FCAP_REJECT_NONE) {
        *ret_event = event;
    }
    return reject;
}

/* --- open and close ----------------------------------------------------------------------- */

static const struct fcap_decode_parser *const parsers[] = {
#ifdef FCAP_DECODE_YYJSON
    &fcap_decode_parser_yyjson,
#endif
#ifdef FCAP_DECODE_YAJL
    &fcap_decode_parser_yajl,
#endif
};

#define PARSERS_COUNT (sizeof parsers / sizeof parsers[0])

const char *fcap_decode_json_parser(size_t index)
{
    return index < PARSERS_COUNT ? parsers[index]->name : NULL;
}

static enum fcap_status choose_parser(struct decode_json *decoder, const char *name,
                                      struct fcap_error *error)
{
    for (size_t i = 0; i < PARSERS_COUNT; i++) {
        if (name == NULL || strcmp(parsers[i]->name, name) == 0) {
            decoder->parser = parsers[i];
            return FCAP_OK;
        }
    }
    return fcap_error_set(error, FCAP_CONFIG, "no JSON parser \"%s\" in this build", name);
}

static struct fcap_bytes copy_of(struct fcap_bytes bytes)
{
    uint8_t *copy = malloc(bytes.size + 1);
    FCAP_ASSERT(copy != NULL);
    memcpy(copy, bytes.data, bytes.size);
    return (struct fcap_bytes){copy, bytes.size};
}

static enum fcap_status copy_list(struct text_list *list, const char *what,
                                  const char *const *texts, size_t count, struct fcap_error *error)
{
    list->texts = calloc(count + 1, sizeof list->texts[0]);
    FCAP_ASSERT(list->texts != NULL);
    for (size_t i = 0; i < count; i++) {
        struct fcap_bytes text = fcap_bytes_of(texts[i]);
        if (!fcap_decode_is_utf8(text)) {
            return fcap_error_set(error, FCAP_CONFIG, "%s: item %zu is not UTF-8", what, i + 1);
        }
        list->texts[list->count++] = copy_of(text);
    }
    qsort(list->texts, list->count, sizeof list->texts[0], compare_texts);
    return FCAP_OK;
}

static void free_list(struct text_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free((void *)(uintptr_t)list->texts[i].data);
    }
    free(list->texts);
}

/* Reads the five paths. A field inside another field could never be there together with it. */
static enum fcap_status add_paths(struct decode_json *decoder,
                                  const struct fcap_decode_settings *settings,
                                  struct fcap_error *error)
{
    const char *paths[FIELDS_COUNT] = {settings->user_path, settings->ad_path, settings->time_path,
                                       settings->id_path, settings->filter_path};
    bool is_absent[FIELDS_COUNT] = {
        [USER] = decoder->user_is_key,
        [TIME] = decoder->time_is_timestamp,
        [ID] = settings->id_path == NULL,
        [FILTER] = settings->filter_path == NULL,
    };
    fcap_decode_tree_init(&decoder->tree);
    for (int field = 0; field < FIELDS_COUNT; field++) {
        decoder->field_nodes[field] = FCAP_DECODE_NO_NODE;
        if (is_absent[field]) {
            continue;
        }
        enum fcap_status status =
            fcap_decode_tree_add(&decoder->tree, paths[field], &decoder->field_nodes[field], error);
        if (status != FCAP_OK) {
            fcap_error_prefix(error, field_names[field]);
            return status;
        }
    }
    for (int field = 0; field < FIELDS_COUNT; field++) {
        int node = decoder->field_nodes[field];
        if (node != FCAP_DECODE_NO_NODE &&
            decoder->tree.nodes[node].first_child != FCAP_DECODE_NO_NODE) {
            return fcap_error_set(error, FCAP_CONFIG, "%s: \"%s\" has another field inside",
                                  field_names[field], paths[field]);
        }
    }
    int node = decoder->field_nodes[FILTER];
    while (node != FCAP_DECODE_NO_NODE && node != FCAP_DECODE_ROOT) {
        decoder->filter_path_nodes |= UINT32_C(1) << node;
        node = decoder->tree.nodes[node].parent;
    }
    return FCAP_OK;
}

static enum fcap_status check_limits(const struct fcap_decode_settings *settings,
                                     struct fcap_error *error)
{
    if (settings->user_id_bytes_max == 0 || settings->ad_id_bytes_max == 0 ||
        settings->record_bytes_max == 0) {
        return fcap_error_set(error, FCAP_CONFIG, "a limit of the decoder is 0");
    }
    if (settings->filter_path != NULL && settings->filter_values_count == 0) {
        return fcap_error_set(error, FCAP_CONFIG, "event.filter: no values, nothing would pass");
    }
    return FCAP_OK;
}

enum fcap_status fcap_decode_json_open(const struct fcap_decode_settings *settings,
                                       struct fcap_decoder **ret_decoder, struct fcap_error *error)
{
    enum fcap_status status = check_limits(settings, error);
    if (status != FCAP_OK) {
        return status;
    }
    struct decode_json *decoder = calloc(1, sizeof *decoder);
    FCAP_ASSERT(decoder != NULL);
    decoder->base.decode = decode;
    decoder->time_format = settings->time_format;
    decoder->is_framed = settings->is_framed;
    decoder->user_id_bytes_max = settings->user_id_bytes_max;
    decoder->ad_id_bytes_max = settings->ad_id_bytes_max;
    decoder->record_bytes_max = settings->record_bytes_max;
    decoder->user_is_key = settings->user_path != NULL && strcmp(settings->user_path, "@key") == 0;
    decoder->time_is_timestamp =
        settings->time_path != NULL && strcmp(settings->time_path, "@timestamp") == 0;
    fcap_decode_arena_init(&decoder->arena);
    status = choose_parser(decoder, settings->parser, error);
    if (status == FCAP_OK) {
        status = add_paths(decoder, settings, error);
    }
    if (status == FCAP_OK) {
        status = copy_list(&decoder->filter_values, "event.filter", settings->filter_values,
                           settings->filter_values_count, error);
    }
    if (status == FCAP_OK) {
        status = copy_list(&decoder->ignore_users, "event.ignore_users", settings->ignore_users,
                           settings->ignore_users_count, error);
    }
    if (status == FCAP_OK) {
        *ret_decoder = &decoder->base;
        decoder = NULL; /* The caller's now. */
    }
    if (decoder != NULL) {
        fcap_decode_json_close(&decoder->base);
    }
    return status;
}

void fcap_decode_json_close(struct fcap_decoder *base)
{
    if (base == NULL) {
        return;
    }
    struct decode_json *decoder = (struct decode_json *)base;
    fcap_decode_tree_done(&decoder->tree);
    free_list(&decoder->filter_values);
    free_list(&decoder->ignore_users);
    fcap_decode_arena_done(&decoder->arena);
    free(decoder);
}
