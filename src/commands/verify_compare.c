#include "verify_compare.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

const char *fcap_difference_text(enum fcap_difference difference)
{
    static const char *const texts[] = {
        [FCAP_DIFFERENCE_NONE] = "is right",
        [FCAP_DIFFERENCE_ABSENT] = "is absent",
        [FCAP_DIFFERENCE_UNEXPECTED] = "should not be there",
        [FCAP_DIFFERENCE_TYPE] = "is no string",
        [FCAP_DIFFERENCE_VALUE] = "has another value",
        [FCAP_DIFFERENCE_EXPIRY] = "has another expiry",
        [FCAP_DIFFERENCE_LATER] = "has an as_of that is still to come",
    };
    return texts[difference];
}

/* A value, taken apart. */
struct parts {
    int64_t as_of_ms;
    struct fcap_bytes counts; /* between the braces */
    struct fcap_bytes end;    /* behind them */
};

static bool skip_text(struct fcap_bytes *text, const char *wanted)
{
    size_t size = strlen(wanted);
    if (text->size < size || memcmp(text->data, wanted, size) != 0) {
        return false;
    }
    text->data += size;
    text->size -= size;
    return true;
}

/* Behind the string that begins here; 0: there is none. */
static size_t string_size(struct fcap_bytes text)
{
    if (text.size == 0 || text.data[0] != '"') {
        return 0;
    }
    for (size_t i = 1; i < text.size; i++) {
        if (text.data[i] == '\\') {
            i++;
        } else if (text.data[i] == '"') {
            return i + 1;
        }
    }
    return 0;
}

/* The size of "ad":n; 0: it is no such member. */
static size_t member_size(struct fcap_bytes text)
{
    size_t size = string_size(text);
    if (size == 0 || size == text.size || text.data[size] != ':') {
        return 0;
    }
    size_t digits = size + 1;
    while (digits < text.size && text.data[digits] >= '0' && text.data[digits] <= '9') {
        digits++;
    }
    return digits == size + 1 ? 0 : digits;
}

/* How far the members reach; SIZE_MAX: they are none of ours. `members` may be NULL. */
static size_t read_members(struct fcap_bytes text, struct fcap_bytes *members, size_t *ret_count)
{
    size_t at = 0;
    size_t count = 0;
    while (at < text.size && text.data[at] != '}') {
        if (count > 0) {
            at++; /* The comma; anything else is found by the next look. */
        }
        struct fcap_bytes rest = {text.data + at, text.size - at};
        size_t size = member_size(rest);
        bool is_followed =
            at + size < text.size && (text.data[at + size] == ',' || text.data[at + size] == '}');
        if (size == 0 || !is_followed) {
            return SIZE_MAX;
        }
        if (members != NULL) {
            members[count] = (struct fcap_bytes){rest.data, size};
        }
        count++;
        at += size;
    }
    *ret_count = count;
    return at;
}

static bool take_apart(struct fcap_bytes value, struct parts *ret_parts)
{
    struct fcap_bytes rest = value;
    struct parts parts = {0};
    size_t digits = 0;
    if (!skip_text(&rest, "{\"v\":1,\"as_of\":")) {
        return false;
    }
    while (digits < rest.size && digits < 18 && rest.data[digits] >= '0' &&
           rest.data[digits] <= '9') {
        parts.as_of_ms = parts.as_of_ms * 10 + (rest.data[digits] - '0');
        digits++;
    }
    rest.data += digits;
    rest.size -= digits;
    if (digits == 0 || !skip_text(&rest, ",\"counts\":{")) {
        return false;
    }
    size_t count;
    size_t size = read_members(rest, NULL, &count);
    if (size == SIZE_MAX) {
        return false;
    }
    parts.counts = (struct fcap_bytes){rest.data, size};
    parts.end = (struct fcap_bytes){rest.data + size, rest.size - size};
    *ret_parts = parts;
    return true;
}

static int compare_members(const void *a, const void *b)
{
    return fcap_bytes_compare(*(const struct fcap_bytes *)a, *(const struct fcap_bytes *)b);
}

static struct fcap_bytes *sort_members(struct fcap_bytes counts, size_t *ret_count)
{
    /* The shortest member has four bytes: "":0. */
    struct fcap_bytes *members = calloc(counts.size / 4 + 2, sizeof *members);
    struct fcap_bytes text = {counts.data, counts.size + 1}; /* With the brace. */
    FCAP_ASSERT(members != NULL);
    FCAP_ASSERT(read_members(text, members, ret_count) == counts.size);
    qsort(members, *ret_count, sizeof *members, compare_members);
    return members;
}

/* The ads may stand in another order: another owner has numbered them. */
static bool is_same_counts(struct fcap_bytes a, struct fcap_bytes b)
{
    if (a.size != b.size || a.size == 0 || fcap_bytes_equal(a, b)) {
        return fcap_bytes_equal(a, b);
    }
    size_t count_a;
    size_t count_b;
    struct fcap_bytes *members_a = sort_members(a, &count_a);
    struct fcap_bytes *members_b = sort_members(b, &count_b);
    bool is_same = count_a == count_b;
    for (size_t i = 0; i < count_a && is_same; i++) {
        is_same = fcap_bytes_equal(members_a[i], members_b[i]);
    }
    free(members_a);
    free(members_b);
    return is_same;
}

enum fcap_difference fcap_difference_find(const struct fcap_values_window *wanted, int64_t clock_ms,
                                          const struct fcap_redis_seen *seen, int64_t redis_ms,
                                          int64_t *ret_as_of_ms)
{
    struct parts want;
    struct parts have;
    *ret_as_of_ms = 0;
    if (wanted->value.data == NULL) {
        return seen->is_there ? FCAP_DIFFERENCE_UNEXPECTED : FCAP_DIFFERENCE_NONE;
    }
    if (!seen->is_there) {
        /* Redis still shows a key in the millisecond of its PXAT. */
        return wanted->expire_at_ms < redis_ms ? FCAP_DIFFERENCE_NONE : FCAP_DIFFERENCE_ABSENT;
    }
    if (seen->is_other) {
        return FCAP_DIFFERENCE_TYPE;
    }
    if (!take_apart(seen->value, &have) || !take_apart(wanted->value, &want)) {
        return FCAP_DIFFERENCE_VALUE;
    }
    *ret_as_of_ms = have.as_of_ms;
    if (!is_same_counts(want.counts, have.counts) || !fcap_bytes_equal(want.end, have.end)) {
        return FCAP_DIFFERENCE_VALUE;
    }
    if (wanted->expire_at_ms < seen->expire_at_min_ms ||
        wanted->expire_at_ms > seen->expire_at_max_ms) {
        return FCAP_DIFFERENCE_EXPIRY;
    }
    return have.as_of_ms > clock_ms ? FCAP_DIFFERENCE_LATER : FCAP_DIFFERENCE_NONE;
}

void fcap_difference_put_wanted(const struct fcap_values_window *wanted, struct fcap_buffer *buffer)
{
    struct parts want;
    fcap_buffer_put_bytes(buffer, wanted->key);
    if (wanted->value.data != NULL && take_apart(wanted->value, &want)) {
        fcap_buffer_put_i64(buffer, wanted->expire_at_ms);
        fcap_buffer_put_bytes(buffer, want.counts);
        fcap_buffer_put_bytes(buffer, want.end);
    }
}
