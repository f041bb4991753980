/* Is this text one JSON document in UTF-8? Strict, and code of its own: it judges what ours writes.
 * Thread rule: pure. */
#ifndef FCAP_TESTS_FUZZ_JSON_CHECK_H
#define FCAP_TESTS_FUZZ_JSON_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct json_text {
    const uint8_t *at;
    const uint8_t *end;
};

static inline void json_blank(struct json_text *text)
{
    while (text->at < text->end && memchr(" \t\r\n", *text->at, 4) != NULL) {
        text->at++;
    }
}

static inline bool json_take(struct json_text *text, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(text->end - text->at) < size || memcmp(text->at, word, size) != 0) {
        return false;
    }
    text->at += size;
    return true;
}

/* One character beyond ASCII, by decoding it and looking at the number. */
static inline bool json_wide(struct json_text *text)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t lead = *text->at;
    int size = lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    uint32_t code = size == 0 ? 0 : lead & (0x7fu >> size);
    if (size == 0 || text->end - text->at < size) {
        return false;
    }
    for (int i = 1; i < size; i++) {
        if (text->at[i] >> 6 != 2) {
            return false;
        }
        code = code << 6 | (text->at[i] & 0x3fu);
    }
    text->at += size;
    return code >= smallest[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

static inline bool json_string(struct json_text *text)
{
    if (!json_take(text, "\"")) {
        return false;
    }
    while (text->at < text->end && *text->at != '"') {
        if (*text->at < 0x20) {
            return false;
        }
        if (*text->at >= 0x80) {
            if (!json_wide(text)) {
                return false;
            }
        } else if (*text->at++ == '\\') {
            if (text->at == text->end) {
                return false;
            }
            uint8_t kind = *text->at++;
            for (int i = 0; kind == 'u' && i < 4; i++, text->at++) {
                if (text->at == text->end ||
                    memchr("0123456789abcdefABCDEF", *text->at, 22) == NULL) {
                    return false;
                }
            }
            if (memchr("\"\\/bfnrtu", kind, 9) == NULL) {
                return false;
            }
        }
    }
    return json_take(text, "\"");
}

static inline bool json_digits(struct json_text *text)
{
    const uint8_t *from = text->at;
    while (text->at < text->end && *text->at >= '0' && *text->at <= '9') {
        text->at++;
    }
    return text->at > from;
}

static inline bool json_number(struct json_text *text)
{
    (void)json_take(text, "-");
    if (!json_take(text, "0") && !json_digits(text)) {
        return false;
    }
    if (json_take(text, ".") && !json_digits(text)) {
        return false;
    }
    if (json_take(text, "e") || json_take(text, "E")) {
        (void)(json_take(text, "-") || json_take(text, "+"));
        return json_digits(text);
    }
    return true;
}

static inline bool json_value(struct json_text *text, int depth)
{
    json_blank(text);
    bool is_object = json_take(text, "{");
    const char *end = is_object ? "}" : "]";
    if (is_object || json_take(text, "[")) {
        json_blank(text);
        if (json_take(text, end)) {
            return true;
        }
        do {
            json_blank(text);
            if (is_object && !json_string(text)) {
                return false;
            }
            json_blank(text);
            if ((is_object && !json_take(text, ":")) || depth == 0 ||
                !json_value(text, depth - 1)) {
                return false;
            }
            json_blank(text);
        } while (json_take(text, ","));
        return json_take(text, end);
    }
    return json_take(text, "true") || json_take(text, "false") || json_take(text, "null") ||
           json_string(text) || json_number(text);
}

static inline bool json_check(const uint8_t *data, size_t size)
{
    struct json_text text = {data, data + size};
    if (!json_value(&text, 32)) {
        return false;
    }
    json_blank(&text);
    return text.at == text.end;
}

#endif
