/* Layout of a stored record (docs/DATA.md): one byte (version in the high nibble; flags: 1 erase
 * mark, 2 partial, 4 and 8 kept for further dimensions and weights), varint stamp, varint newest+1
 * (0: none), varint lowest window number, varint mask of the numbers held, with an erase mark
 * varint commit and varint until+1, with partial varint newest left out + 1, then rows by ad
 * number: varint (step from the previous ad << 1 | wide), then the counts in order of window
 * number: 2 bits each, low bits first, or wide: a varint each. */
#include "fcap/user.h"

#include "fcap/assert.h"
#include "fcap/mutant.h"

#include <stdlib.h>
#include <string.h>

#define VERSION      0x10
#define FLAG_ERASED  0x01
#define FLAG_PARTIAL 0x02
/* Larger ones are damage; adding a window's length to a smaller one cannot overflow. */
#define TIME_MAX (1ull << 62)

static size_t row_stride(size_t windows)
{
    return 1 + windows;
}

/* The index of the first row whose ad is >= `ad`. */
static uint32_t row_position(const struct fcap_user *user, size_t windows, uint32_t ad)
{
    uint32_t low = 0;
    uint32_t high = user->row_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (user->rows[middle * row_stride(windows)] < ad) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t *fcap_user_row(struct fcap_user *user, size_t windows, uint32_t ad)
{
    uint32_t at = row_position(user, windows, ad);
    if (at == user->row_count || user->rows[at * row_stride(windows)] != ad) {
        return NULL;
    }
    return &user->rows[at * row_stride(windows)];
}

static void reserve_rows(struct fcap_user *user, size_t windows, uint32_t count)
{
    if (count <= user->row_capacity) {
        return;
    }
    uint32_t capacity = user->row_capacity < 4 ? user->row_capacity + 2
                                               : user->row_capacity + user->row_capacity / 2;
    if (capacity < count) {
        capacity = count;
    }
    user->rows = realloc(user->rows, capacity * row_stride(windows) * sizeof *user->rows);
    FCAP_ASSERT(user->rows != NULL);
    user->row_capacity = capacity;
}

uint32_t *fcap_user_row_add(struct fcap_user *user, size_t windows, uint32_t ad)
{
    size_t stride = row_stride(windows);
    uint32_t at = row_position(user, windows, ad);
    if (at < user->row_count && user->rows[at * stride] == ad) {
        return &user->rows[at * stride];
    }
    reserve_rows(user, windows, user->row_count + 1);
    uint32_t *row = &user->rows[at * stride];
    memmove(row + stride, row, (user->row_count - at) * stride * sizeof *row);
    memset(row, 0, stride * sizeof *row);
    row[0] = ad;
    user->row_count++;
    return row;
}

void fcap_user_row_trim(struct fcap_user *user, size_t windows, uint32_t *row)
{
    size_t stride = row_stride(windows);
    for (size_t i = 1; i < stride; i++) {
        if (row[i] != 0) {
            return;
        }
    }
    size_t at = (size_t)(row - user->rows) / stride;
    memmove(row, row + stride, (user->row_count - at - 1) * stride * sizeof *row);
    user->row_count--;
    if (user->row_count == 0) {
        fcap_user_clear(user);
    }
}

void fcap_user_clear(struct fcap_user *user)
{
    free(user->rows);
    user->rows = NULL;
    user->row_count = 0;
    user->row_capacity = 0;
}

bool fcap_user_is_empty(const struct fcap_user *user, int64_t history_ms)
{
    /* Events that no window has counted yet, since all are being built, still have a newest. */
    bool has_newest = user->newest_ms > history_ms && !FCAP_MUTANT(BUILD_NEWEST);
    return user->row_count == 0 && !has_newest && user->erased_until_ms <= history_ms &&
           user->partial_newest_ms <= history_ms;
}

/* Window indexes in order of their numbers, as the stored form has them. */
static void order_of(const struct fcap_window_numbers *windows, uint8_t order[FCAP_WINDOWS_MAX])
{
    for (size_t i = 0; i < windows->count; i++) {
        size_t at = i;
        while (at > 0 && windows->numbers[order[at - 1]] > windows->numbers[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = (uint8_t)i;
    }
}

static void encode_row(struct fcap_buffer *buffer, const uint32_t *row, uint32_t step,
                       const uint8_t *order, size_t windows)
{
    bool wide = false;
    uint32_t packed = 0;
    for (size_t i = 0; i < windows; i++) {
        uint32_t count = row[1 + order[i]];
        wide = wide || count > 3;
        packed |= (count & 3) << (2 * i);
    }
    fcap_buffer_put_varint(buffer, (uint64_t)step << 1 | (wide ? 1 : 0));
    if (wide) {
        for (size_t i = 0; i < windows; i++) {
            fcap_buffer_put_varint(buffer, row[1 + order[i]]);
        }
        return;
    }
    for (size_t bits = 0; bits < 2 * windows; bits += 8) {
        fcap_buffer_put_u8(buffer, (uint8_t)(packed >> bits));
    }
}

void fcap_user_encode(const struct fcap_user *user, const struct fcap_window_numbers *windows,
                      uint64_t stamp, struct fcap_buffer *buffer)
{
    uint8_t order[FCAP_WINDOWS_MAX];
    order_of(windows, order);
    bool erased = user->erased_until_ms != FCAP_TIME_NONE;
    bool partial = user->partial_newest_ms != FCAP_TIME_NONE;
    fcap_buffer_put_u8(
        buffer, (uint8_t)(VERSION | (erased ? FLAG_ERASED : 0) | (partial ? FLAG_PARTIAL : 0)));
    fcap_buffer_put_varint(buffer, stamp);
    fcap_buffer_put_varint(buffer,
                           user->newest_ms == FCAP_TIME_NONE ? 0 : (uint64_t)user->newest_ms + 1);
    uint16_t lowest = windows->numbers[order[0]];
    uint64_t mask = 0;
    for (size_t i = 0; i < windows->count; i++) {
        FCAP_ASSERT(windows->numbers[i] - lowest < 64); /* Checked when a number is given. */
        mask |= 1ull << (windows->numbers[i] - lowest);
    }
    fcap_buffer_put_varint(buffer, lowest);
    fcap_buffer_put_varint(buffer, mask);
    if (erased) {
        fcap_buffer_put_varint(buffer, user->erased_commit);
        fcap_buffer_put_varint(buffer, (uint64_t)user->erased_until_ms + 1);
    }
    if (partial) {
        fcap_buffer_put_varint(buffer, (uint64_t)user->partial_newest_ms + 1);
    }
    uint32_t previous = 0;
    for (uint32_t i = 0; i < user->row_count; i++) {
        const uint32_t *row = &user->rows[i * row_stride(windows->count)];
        encode_row(buffer, row, row[0] - previous, order, windows->count);
        previous = row[0];
    }
}

/* For each number that the record holds, in order: the configured window, or -1. */
static size_t columns_of(const struct fcap_window_numbers *windows, uint64_t lowest, uint64_t mask,
                         int8_t columns[64])
{
    size_t count = 0;
    for (unsigned bit = 0; bit < 64; bit++) {
        if ((mask >> bit & 1) == 0) {
            continue;
        }
        columns[count] = -1;
        for (size_t i = 0; i < windows->count; i++) {
            if (windows->numbers[i] == lowest + bit) {
                columns[count] = (int8_t)i;
            }
        }
        count++;
    }
    return count;
}

static void decode_counts(struct fcap_reader *reader, bool wide, const int8_t *columns,
                          size_t column_count, uint32_t *row)
{
    uint8_t packed = 0;
    for (size_t i = 0; i < column_count; i++) {
        uint64_t count;
        if (wide) {
            count = fcap_reader_varint(reader);
            reader->failed = reader->failed || count > UINT32_MAX;
        } else {
            if (i % 4 == 0) {
                packed = fcap_reader_u8(reader);
            }
            count = packed >> (2 * (i % 4)) & 3;
        }
        if (columns[i] >= 0) {
            row[1 + columns[i]] = (uint32_t)count;
        }
    }
}

static enum fcap_status decode_rows(struct fcap_user *user, size_t windows,
                                    struct fcap_reader *reader, const int8_t *columns,
                                    size_t column_count)
{
    uint64_t ad = 0;
    bool first = true;
    while (fcap_reader_left(reader) > 0) {
        uint64_t head = fcap_reader_varint(reader);
        if (reader->failed || head >> 1 > UINT32_MAX || (!first && head >> 1 == 0)) {
            return FCAP_CORRUPT;
        }
        ad += head >> 1;
        first = false;
        if (ad >= UINT32_MAX) {
            return FCAP_CORRUPT;
        }
        reserve_rows(user, windows, user->row_count + 1);
        uint32_t *row = &user->rows[user->row_count * row_stride(windows)];
        memset(row, 0, row_stride(windows) * sizeof *row);
        row[0] = (uint32_t)ad;
        user->row_count++;
        decode_counts(reader, (head & 1) != 0, columns, column_count, row);
        fcap_user_row_trim(user, windows, row); /* Only removed windows counted it. */
    }
    return reader->failed ? FCAP_CORRUPT : FCAP_OK;
}

static int64_t read_time(struct fcap_reader *reader)
{
    uint64_t value = fcap_reader_varint(reader);
    reader->failed = reader->failed || value > TIME_MAX;
    return value == 0 ? FCAP_TIME_NONE : (int64_t)(value - 1);
}

enum fcap_status fcap_user_decode(struct fcap_user *user, const struct fcap_window_numbers *windows,
                                  struct fcap_bytes bytes)
{
    struct fcap_reader reader = fcap_reader_of(bytes);
    uint8_t head = fcap_reader_u8(&reader);
    if (reader.failed) {
        return FCAP_CORRUPT;
    }
    if ((head & 0xF0) != VERSION || (head & 0x0F & ~(FLAG_ERASED | FLAG_PARTIAL)) != 0) {
        return FCAP_FORMAT;
    }
    user->stamp = fcap_reader_varint(&reader);
    user->newest_ms = read_time(&reader);
    uint64_t lowest = fcap_reader_varint(&reader);
    uint64_t mask = fcap_reader_varint(&reader);
    user->erased_until_ms = FCAP_TIME_NONE;
    user->erased_commit = 0;
    if ((head & FLAG_ERASED) != 0) {
        user->erased_commit = fcap_reader_varint(&reader);
        user->erased_until_ms = read_time(&reader);
    }
    user->partial_newest_ms = (head & FLAG_PARTIAL) != 0 ? read_time(&reader) : FCAP_TIME_NONE;
    if (reader.failed || mask == 0 || lowest > UINT16_MAX) {
        return FCAP_CORRUPT;
    }
    int8_t columns[64];
    size_t column_count = columns_of(windows, lowest, mask, columns);
    return decode_rows(user, windows->count, &reader, columns, column_count);
}
