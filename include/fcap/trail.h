/* A partition's trail: which records stood where in the log that its state was read from, so that a
 * topic that was created anew, or has lost its end, is told from the same one (docs/DATA.md,
 * docs/decisions/0007), pinned by golden bytes.
 *
 * What always holds: offsets rise; the first point stays; the others are dense at the end and the
 * sparser the further back. Thread rule: plain data. */
#ifndef FCAP_TRAIL_H
#define FCAP_TRAIL_H

#include "fcap/bytes.h"
#include "fcap/ports.h"
#include "fcap/status.h"

#define FCAP_TRAIL_POINTS 16

struct fcap_trail {
    size_t count;
    struct fcap_log_mark points[FCAP_TRAIL_POINTS];
};

/* Adds a point above the others; false, and nothing is changed, when it is not above them. */
bool fcap_trail_add(struct fcap_trail *trail, const struct fcap_log_mark *mark);

/* Forgets points above `offset`: they describe a log that is gone. */
void fcap_trail_cut(struct fcap_trail *trail, int64_t offset);

/* Appends the stored form. */
void fcap_trail_encode(const struct fcap_trail *trail, struct fcap_buffer *buffer);

/* FORMAT: another version; CORRUPT: damaged. */
enum fcap_status fcap_trail_decode(struct fcap_bytes bytes,
                                   struct fcap_trail *ret_trail) FCAP_MUST_USE;

/* An OFFSET start with all that is known: `last` (offset 0: nothing) and the points below it. */
void fcap_trail_start(const struct fcap_trail *trail, int64_t offset,
                      const struct fcap_log_mark *last, struct fcap_start *ret_start);

/* The name of the record's key. */
#define FCAP_TRAIL_NAME "trail"

#endif
