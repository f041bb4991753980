#include "fcap/trail.h"

#include <string.h>

#define VERSION 1

/* Makes room: the point goes whose neighbours lie closest, as seen from the new end. */
static void thin(struct fcap_trail *trail, int64_t end)
{
    size_t worst = 1;
    double least = 0;
    for (size_t i = 1; i < trail->count; i++) {
        int64_t before = trail->points[i - 1].offset;
        int64_t after = i + 1 < trail->count ? trail->points[i + 1].offset : end;
        double gap = (double)(after - before) / (double)(end - before);
        if (i == 1 || gap < least) {
            worst = i;
            least = gap;
        }
    }
    trail->count--;
    memmove(&trail->points[worst], &trail->points[worst + 1],
            (trail->count - worst) * sizeof trail->points[0]);
}

bool fcap_trail_add(struct fcap_trail *trail, const struct fcap_log_mark *mark)
{
    if (mark->offset <= 0 ||
        (trail->count > 0 && trail->points[trail->count - 1].offset >= mark->offset)) {
        return false;
    }
    if (trail->count == FCAP_TRAIL_POINTS) {
        thin(trail, mark->offset);
    }
    trail->points[trail->count++] = *mark;
    return true;
}

void fcap_trail_cut(struct fcap_trail *trail, int64_t offset)
{
    while (trail->count > 0 && trail->points[trail->count - 1].offset > offset) {
        trail->count--;
    }
}

void fcap_trail_encode(const struct fcap_trail *trail, struct fcap_buffer *buffer)
{
    fcap_buffer_put_u8(buffer, VERSION);
    for (size_t i = 0; i < trail->count; i++) {
        fcap_buffer_put_i64(buffer, trail->points[i].offset);
        fcap_buffer_put_i64(buffer, trail->points[i].timestamp_ms);
        fcap_buffer_put_be64(buffer, trail->points[i].key_hash);
    }
}

enum fcap_status fcap_trail_decode(struct fcap_bytes bytes, struct fcap_trail *ret_trail)
{
    struct fcap_reader reader = fcap_reader_of(bytes);
    struct fcap_trail trail = {0};
    uint8_t version;
    enum fcap_status status = fcap_reader_version(&reader, VERSION, VERSION, &version);
    if (status != FCAP_OK) {
        return status;
    }
    while (fcap_reader_left(&reader) > 0) {
        struct fcap_log_mark mark = {.offset = fcap_reader_i64(&reader)};
        mark.timestamp_ms = fcap_reader_i64(&reader);
        mark.key_hash = fcap_reader_be64(&reader);
        if (reader.failed || trail.count == FCAP_TRAIL_POINTS || !fcap_trail_add(&trail, &mark)) {
            return FCAP_CORRUPT;
        }
    }
    *ret_trail = trail;
    return FCAP_OK;
}

void fcap_trail_start(const struct fcap_trail *trail, int64_t offset,
                      const struct fcap_log_mark *last, struct fcap_start *ret_start)
{
    *ret_start = (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = offset};
    if (last->offset > 0) {
        ret_start->marks[ret_start->mark_count++] = *last;
    }
    for (size_t i = trail->count; i-- > 0;) {
        if (last->offset == 0 || trail->points[i].offset < last->offset) {
            ret_start->marks[ret_start->mark_count++] = trail->points[i];
        }
    }
}
