#include "decode_parser.h"

#include "fcap/decode.h"
#include "fcap/utf8.h"

#include <string.h>

/* What one fast look at the whole record says: most records need no second one. */
struct look {
    bool has_high;      /* a byte >= 80: UTF-8 must be checked */
    bool has_backslash; /* escapes must be checked */
    bool has_odd_space; /* 0B or 0C */
    size_t opens;       /* [ and {, also inside strings: an upper bound of the depth */
};

enum { LOOK_BYTES = 32 }; /* a constant trip count, so that compilers make vector code of it */

static void look_at_block(const uint8_t *block, struct look *look)
{
    uint8_t high = 0, backslash = 0, odd_space = 0, opens = 0;
    for (int i = 0; i < LOOK_BYTES; i++) {
        uint8_t byte = block[i];
        high = (uint8_t)(high | byte);
        backslash = (uint8_t)(backslash | (byte == '\\'));
        odd_space = (uint8_t)(odd_space | (byte == 0x0B) | (byte == 0x0C));
        opens = (uint8_t)(opens + ((byte | 0x20) == '{')); /* '[' | 0x20 is '{' too */
    }
    look->has_high |= (high & 0x80) != 0;
    look->has_backslash |= backslash != 0;
    look->has_odd_space |= odd_space != 0;
    look->opens += opens;
}

static struct look look_at(struct fcap_bytes text)
{
    struct look look = {0};
    size_t at = 0;
    for (; text.size - at >= LOOK_BYTES; at += LOOK_BYTES) {
        look_at_block(text.data + at, &look);
    }
    uint8_t rest[LOOK_BYTES];
    memset(rest, ' ', sizeof rest);
    memcpy(rest, text.data + at, text.size - at);
    look_at_block(rest, &look);
    return look;
}

bool fcap_decode_is_utf8(struct fcap_bytes text)
{
    size_t at = 0;
    while (at < text.size) {
        uint64_t eight;
        if (text.size - at >= sizeof eight) {
            memcpy(&eight, text.data + at, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        size_t size = fcap_utf8_sequence(text.data + at, text.size - at);
        if (size == 0) {
            return false;
        }
        at += size;
    }
    return true;
}

/* The code unit of the escape \uXXXX at `at`, or -1 when no such escape stands there. */
static int escaped_unit(const uint8_t *at, size_t left)
{
    if (left < 6 || at[0] != '\\' || at[1] != 'u') {
        return -1;
    }
    int unit = 0;
    for (int i = 2; i < 6; i++) {
        int digit;
        if (at[i] >= '0' && at[i] <= '9') {
            digit = at[i] - '0';
        } else if ((at[i] | 0x20) >= 'a' && (at[i] | 0x20) <= 'f') {
            digit = (at[i] | 0x20) - 'a' + 10;
        } else {
            return -1;
        }
        unit = unit * 16 + digit;
    }
    return unit;
}

/* True when each escaped high surrogate is followed by an escaped low one and none stands alone.
 * yajl turns a lone one into '?' or a wrong character, yyjson refuses it. In valid JSON a backslash
 * is always inside a string and always takes the next character with it. */
static bool surrogates_are_paired(struct fcap_bytes text)
{
    const uint8_t *end = text.data + text.size;
    const uint8_t *at = memchr(text.data, '\\', text.size);
    while (at != NULL) {
        int unit = escaped_unit(at, (size_t)(end - at));
        if (unit >= 0xDC00 && unit <= 0xDFFF) {
            return false;
        }
        if (unit >= 0xD800 && unit <= 0xDBFF) {
            at += 6;
            unit = escaped_unit(at, (size_t)(end - at));
            if (unit < 0xDC00 || unit > 0xDFFF) {
                return false;
            }
        }
        size_t left = (size_t)(end - at);
        size_t step = unit >= 0 ? 6 : 2;
        at = left > step ? memchr(at + step, '\\', left - step) : NULL;
    }
    return true;
}

/* True when brackets outside strings nest deeper than the limit. */
static bool is_too_deep(struct fcap_bytes text)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t at = 0; at < text.size; at++) {
        uint8_t byte = text.data[at];
        if (in_string) {
            at += byte == '\\'; /* the next character cannot end the string */
            in_string = byte != '"';
            continue;
        }
        if (byte == '"') {
            in_string = true;
        } else if (byte == '[' || byte == '{') {
            depth++;
            if (depth > FCAP_DECODE_DEPTH_MAX) {
                return true;
            }
        } else if ((byte == ']' || byte == '}') && depth > 0) {
            depth--;
        }
    }
    return false;
}

enum fcap_reject fcap_decode_text_check(struct fcap_bytes text)
{
    static const uint8_t byte_order_mark[3] = {0xEF, 0xBB, 0xBF};
    struct look look = look_at(text);
    if (look.has_high) {
        bool has_mark = text.size >= 3 && memcmp(text.data, byte_order_mark, 3) == 0;
        if (has_mark || !fcap_decode_is_utf8(text)) {
            return FCAP_REJECT_ENCODING;
        }
    }
    if (look.has_backslash && !surrogates_are_paired(text)) {
        return FCAP_REJECT_ENCODING;
    }
    if (look.opens > FCAP_DECODE_DEPTH_MAX && is_too_deep(text)) {
        return FCAP_REJECT_DEPTH;
    }
    return look.has_odd_space ? FCAP_REJECT_JSON : FCAP_REJECT_NONE;
}
