#include "fcap/value.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

static bool add_part(struct fcap_key_template *template, enum fcap_key_part_kind kind,
                     size_t offset, size_t size)
{
    if (template->part_count == FCAP_KEY_PARTS_MAX) {
        return false;
    }
    struct fcap_key_part *part = &template->parts[template->part_count++];
    part->kind = kind;
    part->offset = offset;
    part->size = size;
    return true;
}

/* Ends the literal that began at *literal, if it has bytes. */
static bool end_literal(struct fcap_key_template *template, size_t *literal)
{
    size_t size = template->text.size - *literal;
    bool fits = size == 0 || add_part(template, FCAP_KEY_LITERAL, *literal, size);
    *literal = template->text.size;
    return fits;
}

enum fcap_status fcap_key_template_init(struct fcap_key_template *template, const char *pattern,
                                        const char *profile, struct fcap_error *ret_error)
{
    *template = (struct fcap_key_template){0};
    size_t literal = 0;
    bool has_user = false;
    bool has_window = false;
    bool fits = true;
    for (const char *at = pattern; *at != '\0' && fits; at++) {
        if (*at != '%') {
            fcap_buffer_put_u8(&template->text, (uint8_t)*at);
            continue;
        }
        at++;
        if (*at == '%') {
            fcap_buffer_put_u8(&template->text, '%');
        } else if (*at == 'p') {
            fcap_buffer_put_text(&template->text, profile);
        } else if (*at == 'u' || *at == 'w') {
            bool user = *at == 'u';
            has_user = has_user || user;
            has_window = has_window || !user;
            fits = end_literal(template, &literal) &&
                   add_part(template, user ? FCAP_KEY_USER : FCAP_KEY_WINDOW, 0, 0);
        } else {
            return fcap_error_set(ret_error, FCAP_CONFIG,
                                  "redis.key: '%%%c' is unknown; use %%u, %%w, %%p or %%%%",
                                  *at == '\0' ? ' ' : *at);
        }
    }
    if (!fits || !end_literal(template, &literal)) {
        return fcap_error_set(ret_error, FCAP_CONFIG, "redis.key: more than %d parts",
                              FCAP_KEY_PARTS_MAX);
    }
    if (!has_user || !has_window) {
        return fcap_error_set(ret_error, FCAP_CONFIG,
                              "redis.key: %s must stand in it, or keys would collide",
                              has_user ? "%w" : "%u");
    }
    return FCAP_OK;
}

void fcap_key_template_done(struct fcap_key_template *template)
{
    fcap_buffer_done(&template->text);
    *template = (struct fcap_key_template){0};
}

static void put_encoded(struct fcap_buffer *buffer, struct fcap_bytes user)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t plain = 0;
    while (plain < user.size && user.data[plain] != '%' && user.data[plain] != '{' &&
           user.data[plain] != '}') {
        plain++;
    }
    fcap_buffer_put(buffer, user.data, plain);
    for (size_t i = plain; i < user.size; i++) {
        uint8_t byte = user.data[i];
        if (byte != '%' && byte != '{' && byte != '}') {
            fcap_buffer_put_u8(buffer, byte);
            continue;
        }
        fcap_buffer_put_u8(buffer, '%');
        fcap_buffer_put_u8(buffer, (uint8_t)hex[byte >> 4]);
        fcap_buffer_put_u8(buffer, (uint8_t)hex[byte & 15]);
    }
}

void fcap_key_build(const struct fcap_key_template *template, struct fcap_bytes user,
                    const char *window, struct fcap_buffer *buffer)
{
    for (size_t i = 0; i < template->part_count; i++) {
        const struct fcap_key_part *part = &template->parts[i];
        if (part->kind == FCAP_KEY_LITERAL) {
            fcap_buffer_put(buffer, template->text.data + part->offset, part->size);
        } else if (part->kind == FCAP_KEY_USER) {
            put_encoded(buffer, user);
        } else {
            fcap_buffer_put_text(buffer, window);
        }
    }
}

static int hex_of(uint8_t digit)
{
    return digit >= '0' && digit <= '9'   ? digit - '0'
           : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                          : -1;
}

static bool put_decoded(struct fcap_buffer *buffer, struct fcap_bytes text)
{
    for (size_t i = 0; i < text.size; i++) {
        uint8_t byte = text.data[i];
        if (byte == '%') {
            int high = i + 2 < text.size ? hex_of(text.data[i + 1]) : -1;
            int low = i + 2 < text.size ? hex_of(text.data[i + 2]) : -1;
            if (high < 0 || low < 0) {
                return false;
            }
            byte = (uint8_t)(high * 16 + low);
            i += 2;
        }
        fcap_buffer_put_u8(buffer, byte);
    }
    return text.size > 0;
}

bool fcap_key_parse(const struct fcap_key_template *template, struct fcap_bytes key,
                    const char *window, struct fcap_buffer *user)
{
    struct fcap_buffer around = {0}; /* Prefix and suffix, then the key again. */
    size_t prefix = 0;
    size_t users = 0;
    for (size_t i = 0; i < template->part_count; i++) {
        const struct fcap_key_part *part = &template->parts[i];
        if (part->kind == FCAP_KEY_USER) {
            prefix = around.size;
            users++;
        } else if (part->kind == FCAP_KEY_LITERAL) {
            fcap_buffer_put(&around, template->text.data + part->offset, part->size);
        } else {
            fcap_buffer_put_text(&around, window);
        }
    }
    fcap_buffer_clear(user);
    bool is_ours = users == 1 && key.size > around.size;
    if (is_ours) {
        struct fcap_bytes text = {key.data + prefix, key.size - around.size};
        is_ours = put_decoded(user, text);
        fcap_buffer_clear(&around);
        fcap_key_build(template, fcap_buffer_bytes(user), window, &around);
        is_ours = is_ours && fcap_bytes_equal(fcap_buffer_bytes(&around), key);
    }
    fcap_buffer_done(&around);
    return is_ours;
}

void fcap_key_match(const struct fcap_key_template *template, struct fcap_buffer *pattern)
{
    for (size_t i = 0; i < template->part_count; i++) {
        const struct fcap_key_part *part = &template->parts[i];
        for (size_t k = 0; part->kind == FCAP_KEY_LITERAL && k < part->size; k++) {
            uint8_t byte = template->text.data[part->offset + k];
            if (strchr("*?[]\\^-", byte) != NULL) {
                fcap_buffer_put_u8(pattern, '\\');
            }
            fcap_buffer_put_u8(pattern, byte);
        }
        if (part->kind != FCAP_KEY_LITERAL) {
            fcap_buffer_put_u8(pattern, '*');
        }
    }
}

static const char value_end[] = "},\"partial\":true}";

/* Room for one ad's text of usual length, its count and a comma. */
#define ROW_ROOM 64

static uint8_t *put_number(uint8_t *at, uint32_t value)
{
    if (value < 10) {
        *at = (uint8_t)('0' + value);
        return at + 1;
    }
    uint8_t digits[10];
    size_t first = sizeof digits;
    do {
        digits[--first] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    memcpy(at, digits + first, sizeof digits - first);
    return at + (sizeof digits - first);
}

static void put_count(struct fcap_buffer *buffer, const struct fcap_ads *ads, uint32_t number,
                      uint32_t count)
{
    struct fcap_bytes text = fcap_ads_text(ads, number);
    uint8_t *at = fcap_buffer_reserve(buffer, text.size + ROW_ROOM);
    uint8_t *begin = at;
    if (buffer->data[buffer->size - 1] != '{') {
        *at++ = ',';
    }
    if (text.size <= 16) {
        memcpy(at, text.data, 16); /* A fixed size is one move; what is beyond is overwritten. */
    } else {
        memcpy(at, text.data, text.size);
    }
    buffer->size += (size_t)(put_number(at + text.size, count) - begin);
}

struct ranked {
    uint32_t count;
    uint32_t row;
};

static int compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left;
    const struct ranked *b = right;
    if (a->count != b->count) {
        return a->count > b->count ? -1 : 1;
    }
    return a->row < b->row ? -1 : a->row > b->row;
}

/* The ads nearest to their caps matter most to a reader: the highest counts stay. */
static void put_highest(const struct fcap_user *user, size_t windows, size_t window,
                        const struct fcap_ads *ads, size_t size_max, struct fcap_buffer *buffer)
{
    struct ranked *ranked = malloc(user->row_count * sizeof *ranked);
    FCAP_ASSERT(ranked != NULL);
    size_t count = 0;
    for (uint32_t i = 0; i < user->row_count; i++) {
        uint32_t value = user->rows[i * (1 + windows) + 1 + window];
        if (value > 0) {
            ranked[count++] = (struct ranked){value, i};
        }
    }
    qsort(ranked, count, sizeof *ranked, compare_ranked);
    for (size_t i = 0; i < count; i++) {
        size_t before = buffer->size;
        put_count(buffer, ads, user->rows[ranked[i].row * (1 + windows)], ranked[i].count);
        if (buffer->size > size_max) {
            buffer->size = before;
            break;
        }
    }
    free(ranked);
}

bool fcap_value_build(const struct fcap_user *user, size_t windows, size_t window,
                      const struct fcap_ads *ads, int64_t as_of_ms, bool partial, size_t bytes_max,
                      struct fcap_buffer *buffer, bool *ret_cut)
{
    size_t begin = buffer->size;
    fcap_buffer_put(buffer, "{\"v\":1,\"as_of\":", 15);
    fcap_buffer_put_decimal(buffer, as_of_ms);
    fcap_buffer_put(buffer, ",\"counts\":{", 11);
    size_t counts = buffer->size;
    size_t size_max = begin + bytes_max - (sizeof value_end - 1);
    size_t whole_max = partial ? size_max : begin + bytes_max - 2; /* What fits is not cut. */
    bool cut = false;
    const uint32_t *row = user->rows;
    for (uint32_t i = 0; i < user->row_count && i < 32; i++) {
        fcap_ads_prefetch(ads, row[i * (1 + windows)]);
    }
    for (uint32_t i = 0; i < user->row_count && !cut; i++, row += 1 + windows) {
        if (row[1 + window] > 0) {
            put_count(buffer, ads, row[0], row[1 + window]);
            cut = buffer->size > whole_max;
        }
    }
    bool any = buffer->size > counts;
    if (cut) {
        buffer->size = counts;
        put_highest(user, windows, window, ads, size_max, buffer);
    }
    if (partial || cut) {
        fcap_buffer_put(buffer, value_end, sizeof value_end - 1);
    } else {
        fcap_buffer_put(buffer, "}}", 2);
    }
    *ret_cut = cut;
    return any;
}
