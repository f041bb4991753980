#include "fcap/gaps.h"

#include "fcap/assert.h"

#include <string.h>

#define VERSION 1

const char *fcap_gap_kind_name(enum fcap_gap_kind kind)
{
    static const char *const names[] = {
#define X(name, label, text) [FCAP_GAP_##name] = label,
        FCAP_GAP_KIND_LIST(X)
#undef X
    };
    FCAP_ASSERT((size_t)kind < FCAP_GAP_KIND_COUNT);
    return names[kind];
}

const char *fcap_gap_kind_text(enum fcap_gap_kind kind)
{
    static const char *const texts[] = {
#define X(name, label, text) [FCAP_GAP_##name] = text,
        FCAP_GAP_KIND_LIST(X)
#undef X
    };
    FCAP_ASSERT((size_t)kind < FCAP_GAP_KIND_COUNT);
    return texts[kind];
}

void fcap_gap_offsets(const struct fcap_gap *gap, struct fcap_lost_span *ret_span)
{
    bool is_cut = gap->kind == FCAP_GAP_TRUNCATED;
    int64_t first = is_cut ? gap->same : gap->wanted;
    /* Another log's end is not known; of the same one all lies before `next`. */
    bool is_known = (is_cut || gap->kind == FCAP_GAP_BELOW_START) && gap->next > first;
    ret_span->kind = gap->kind;
    ret_span->first = first;
    ret_span->last = is_known ? gap->next - 1 : -1;
    ret_span->next = gap->next;
}

static void remove_span(struct fcap_gaps *gaps, size_t at)
{
    gaps->count--;
    memmove(&gaps->spans[at], &gaps->spans[at + 1], (gaps->count - at) * sizeof gaps->spans[0]);
}

int64_t fcap_gaps_add(struct fcap_gaps *gaps, const struct fcap_lost_span *span)
{
    int64_t forgotten_ms = FCAP_TIME_NONE;
    if (gaps->count == FCAP_GAPS_MAX) {
        size_t first = 0;
        for (size_t i = 1; i < gaps->count; i++) {
            first = gaps->spans[i].since_ms < gaps->spans[first].since_ms ? i : first;
        }
        forgotten_ms = gaps->spans[first].since_ms;
        remove_span(gaps, first);
    }
    gaps->spans[gaps->count++] = *span;
    return forgotten_ms;
}

bool fcap_gaps_forget(struct fcap_gaps *gaps, int64_t through_ms)
{
    size_t count = gaps->count;
    for (size_t i = count; i-- > 0;) {
        if (gaps->spans[i].since_ms <= through_ms) {
            remove_span(gaps, i);
        }
    }
    return gaps->count != count;
}

void fcap_gaps_encode(const struct fcap_gaps *gaps, struct fcap_buffer *buffer)
{
    fcap_buffer_put_u8(buffer, VERSION);
    for (size_t i = 0; i < gaps->count; i++) {
        const struct fcap_lost_span *span = &gaps->spans[i];
        fcap_buffer_put_u8(buffer, (uint8_t)span->kind);
        fcap_buffer_put_i64(buffer, span->first);
        fcap_buffer_put_i64(buffer, span->last);
        fcap_buffer_put_i64(buffer, span->next);
        fcap_buffer_put_i64(buffer, span->from_ms);
        fcap_buffer_put_i64(buffer, span->to_ms);
        fcap_buffer_put_i64(buffer, span->noticed_ms);
        fcap_buffer_put_i64(buffer, span->since_ms);
    }
}

enum fcap_status fcap_gaps_decode(struct fcap_bytes bytes, struct fcap_gaps *ret_gaps)
{
    struct fcap_reader reader = fcap_reader_of(bytes);
    struct fcap_gaps gaps = {0};
    uint8_t version;
    enum fcap_status status = fcap_reader_version(&reader, VERSION, VERSION, &version);
    if (status != FCAP_OK) {
        return status;
    }
    while (fcap_reader_left(&reader) > 0) {
        if (gaps.count == FCAP_GAPS_MAX) {
            return FCAP_CORRUPT;
        }
        struct fcap_lost_span *span = &gaps.spans[gaps.count++];
        uint8_t kind = fcap_reader_u8(&reader);
        span->first = fcap_reader_i64(&reader);
        span->last = fcap_reader_i64(&reader);
        span->next = fcap_reader_i64(&reader);
        span->from_ms = fcap_reader_i64(&reader);
        span->to_ms = fcap_reader_i64(&reader);
        span->noticed_ms = fcap_reader_i64(&reader);
        span->since_ms = fcap_reader_i64(&reader);
        if (reader.failed) {
            return FCAP_CORRUPT;
        }
        if (kind >= FCAP_GAP_KIND_COUNT) {
            return FCAP_FORMAT;
        }
        span->kind = (enum fcap_gap_kind)kind;
    }
    *ret_gaps = gaps;
    return FCAP_OK;
}
