#include "lab/oracle_value.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at;
    const char *end;
    char *out; /* where the next text goes; the texts of a value never outgrow the value */
    const char *reason;
};

static bool fail(struct reader *reader, const char *reason)
{
    if (reader->reason == NULL) {
        reader->reason = reason;
    }
    return false;
}

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->end && memchr(" \t\r\n", *reader->at, 4) != NULL) {
        reader->at++;
    }
}

static bool take(struct reader *reader, char wanted)
{
    skip_space(reader);
    if (reader->at == reader->end || *reader->at != wanted) {
        return false;
    }
    reader->at++;
    return true;
}

static bool read_integer(struct reader *reader, int64_t *ret_number)
{
    skip_space(reader);
    bool negative = reader->at < reader->end && *reader->at == '-';
    const char *first = reader->at + (negative ? 1 : 0);
    const char *at = first;
    int64_t number = 0;
    while (at < reader->end && *at >= '0' && *at <= '9') {
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *at - '0', &number)) {
            return fail(reader, "a number beyond 64 bits");
        }
        at++;
    }
    if (at == first || (*first == '0' && at > first + 1)) {
        return fail(reader, "no integer where one belongs");
    }
    reader->at = at;
    *ret_number = negative ? -number : number;
    return true;
}

static bool read_hex4(struct reader *reader, uint32_t *ret_unit)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        if (reader->at == reader->end) {
            return fail(reader, "a cut \\u escape");
        }
        char c = *reader->at++;
        const char *digit = strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
        if (digit == NULL || *digit == '\0') {
            return fail(reader, "a bad \\u escape");
        }
        unit = unit * 16 + (uint32_t)(digit - digits);
    }
    *ret_unit = unit;
    return true;
}

static void put_utf8(struct reader *reader, uint32_t c)
{
    if (c < 0x80) {
        *reader->out++ = (char)c;
    } else if (c < 0x800) {
        *reader->out++ = (char)(0xC0 | (c >> 6));
        *reader->out++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *reader->out++ = (char)(0xE0 | (c >> 12));
        *reader->out++ = (char)(0x80 | ((c >> 6) & 0x3F));
        *reader->out++ = (char)(0x80 | (c & 0x3F));
    } else {
        *reader->out++ = (char)(0xF0 | (c >> 18));
        *reader->out++ = (char)(0x80 | ((c >> 12) & 0x3F));
        *reader->out++ = (char)(0x80 | ((c >> 6) & 0x3F));
        *reader->out++ = (char)(0x80 | (c & 0x3F));
    }
}

static bool read_unicode_escape(struct reader *reader)
{
    uint32_t c = 0;
    uint32_t low = 0;
    if (!read_hex4(reader, &c)) {
        return false;
    }
    if (c >= 0xD800 && c < 0xDC00) {
        if (reader->end - reader->at < 2 || memcmp(reader->at, "\\u", 2) != 0) {
            return fail(reader, "half a surrogate pair");
        }
        reader->at += 2;
        if (!read_hex4(reader, &low)) {
            return false;
        }
        if (low < 0xDC00 || low > 0xDFFF) {
            return fail(reader, "half a surrogate pair");
        }
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    } else if (c >= 0xDC00 && c < 0xE000) {
        return fail(reader, "half a surrogate pair");
    }
    if (c == 0) {
        return fail(reader, "NUL in a text");
    }
    put_utf8(reader, c);
    return true;
}

static bool read_escape(struct reader *reader)
{
    static const char names[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    if (reader->at == reader->end) {
        return fail(reader, "a cut escape");
    }
    char c = *reader->at++;
    if (c == 'u') {
        return read_unicode_escape(reader);
    }
    const char *name = c == '\0' ? NULL : strchr(names, c);
    if (name == NULL) {
        return fail(reader, "an unknown escape");
    }
    *reader->out++ = meant[name - names];
    return true;
}

/* Gives a NUL-terminated text in the value's own memory. */
static bool read_text(struct reader *reader, const char **ret_text)
{
    char *start = reader->out;
    if (!take(reader, '"')) {
        return fail(reader, "no text where one belongs");
    }
    while (reader->at < reader->end && *reader->at != '"') {
        unsigned char c = (unsigned char)*reader->at++;
        if (c < 0x20) {
            return fail(reader, "a control character in a text");
        }
        if (c != '\\') {
            *reader->out++ = (char)c;
        } else if (!read_escape(reader)) {
            return false;
        }
    }
    if (!take(reader, '"')) {
        return fail(reader, "a text without end");
    }
    *reader->out++ = '\0';
    *ret_text = start;
    return true;
}

static int compare_ads(const void *left, const void *right)
{
    return strcmp(((const struct oracle_count *)left)->ad,
                  ((const struct oracle_count *)right)->ad);
}

static bool add_count(struct reader *reader, struct oracle_counts *counts, const char *ad)
{
    int64_t number = 0;
    if (!take(reader, ':')) {
        return fail(reader, "no ':' after an ad");
    }
    if (!read_integer(reader, &number)) {
        return false;
    }
    if (number <= 0) {
        return fail(reader, "a count that is not positive");
    }
    if (counts->count == counts->capacity) {
        counts->capacity = counts->capacity == 0 ? 16 : counts->capacity * 2;
        struct oracle_count *rows = realloc(counts->rows, counts->capacity * sizeof *counts->rows);
        if (rows == NULL) {
            abort();
        }
        counts->rows = rows;
    }
    counts->rows[counts->count++] = (struct oracle_count){.ad = ad, .count = (uint64_t)number};
    return true;
}

static bool read_counts(struct reader *reader, struct oracle_counts *counts)
{
    const char *ad = NULL;
    if (!take(reader, '{')) {
        return fail(reader, "counts is no object");
    }
    if (take(reader, '}')) {
        return true;
    }
    do {
        if (!read_text(reader, &ad) || !add_count(reader, counts, ad)) {
            return false;
        }
    } while (take(reader, ','));
    if (!take(reader, '}')) {
        return fail(reader, "no '}' after the counts");
    }
    qsort(counts->rows, counts->count, sizeof *counts->rows, compare_ads);
    for (size_t i = 1; i < counts->count; i++) {
        if (strcmp(counts->rows[i - 1].ad, counts->rows[i].ad) == 0) {
            return fail(reader, "an ad stands twice");
        }
    }
    return true;
}

static bool read_true(struct reader *reader, bool *ret_flag)
{
    skip_space(reader);
    if (reader->end - reader->at < 4 || memcmp(reader->at, "true", 4) != 0) {
        return fail(reader, "partial is not true");
    }
    reader->at += 4;
    *ret_flag = true;
    return true;
}

static bool read_member(struct reader *reader, struct oracle_value *value, unsigned *seen)
{
    static const char *const names[] = {"v", "as_of", "counts", "partial"};
    const char *name = NULL;
    unsigned index = 0;
    if (!read_text(reader, &name)) {
        return false;
    }
    while (index < 4 && strcmp(names[index], name) != 0) {
        index++;
    }
    if (index == 4) {
        return fail(reader, "an unknown member");
    }
    if ((*seen & (1u << index)) != 0) {
        return fail(reader, "a member stands twice");
    }
    *seen |= 1u << index;
    if (!take(reader, ':')) {
        return fail(reader, "no ':' after a member's name");
    }
    switch (index) {
    case 0:
        return read_integer(reader, &value->version);
    case 1:
        return read_integer(reader, &value->as_of_ms);
    case 2:
        return read_counts(reader, &value->counts);
    default:
        return read_true(reader, &value->partial);
    }
}

bool oracle_value_parse(const char *text, size_t size_bytes, struct oracle_value *ret_value,
                        const char **ret_reason)
{
    unsigned seen = 0;
    bool good = false;
    *ret_value = (struct oracle_value){.texts = malloc(size_bytes + 1)};
    if (ret_value->texts == NULL) {
        abort();
    }
    struct reader reader = {.at = text, .end = text + size_bytes, .out = ret_value->texts};

    if (!take(&reader, '{')) {
        (void)fail(&reader, "not an object");
        goto out;
    }
    do {
        if (!read_member(&reader, ret_value, &seen)) {
            goto out;
        }
    } while (take(&reader, ','));
    if (!take(&reader, '}')) {
        (void)fail(&reader, "no '}' at the end");
        goto out;
    }
    skip_space(&reader);
    if (reader.at != reader.end) {
        (void)fail(&reader, "something after the end");
    } else if ((seen & 7u) != 7u) {
        (void)fail(&reader, "v, as_of or counts is missing");
    } else if (ret_value->version != 1) {
        (void)fail(&reader, "v is not 1");
    } else {
        good = true;
    }
out:
    *ret_reason = reader.reason;
    return good;
}

void oracle_value_done(struct oracle_value *value)
{
    oracle_counts_done(&value->counts);
    free(value->texts);
    value->texts = NULL;
}
