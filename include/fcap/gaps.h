/* What a partition has lost: for the last few gaps in its log which offsets they took and of what
 * time, kept in its state until every window has passed them (docs/DATA.md), pinned by golden
 * bytes.
 *
 * What always holds: at most FCAP_GAPS_MAX spans; when there is no room, the one goes that windows
 * pass first. Readiness does not depend on them: it is complete_since in the meta record.
 * Thread rule: plain data. */
#ifndef FCAP_GAPS_H
#define FCAP_GAPS_H

#include "fcap/bytes.h"
#include "fcap/ports.h"
#include "fcap/status.h"
#include "fcap/user.h"

#define FCAP_GAPS_MAX 4

/* "below_start", ...: for metrics, fc:meta and pages; never NULL. */
const char *fcap_gap_kind_name(enum fcap_gap_kind kind);
/* The same for people: "retention has taken records that were never read", ...; never NULL. */
const char *fcap_gap_kind_text(enum fcap_gap_kind kind);

/* One gap. Times are Unix epoch in milliseconds. */
struct fcap_lost_span {
    enum fcap_gap_kind kind;
    int64_t first;      /* lowest offset of a record that may be missing; -1: not known */
    int64_t last;       /* the highest; -1: not known */
    int64_t next;       /* where reading went on */
    int64_t from_ms;    /* timestamp of the last record before it; -1: none is known */
    int64_t to_ms;      /* of the first one behind it; -1: none has come yet; 0: tells nothing */
    int64_t noticed_ms; /* when it was met */
    int64_t since_ms; /* no event of it is later: a window is complete when T - L has reached it */
};

struct fcap_gaps {
    size_t count;
    struct fcap_lost_span spans[FCAP_GAPS_MAX]; /* as they were met */
};

/* Which offsets a gap that the source has told took: fills kind, first, last and next. */
void fcap_gap_offsets(const struct fcap_gap *gap, struct fcap_lost_span *ret_span);

/* Adds the newest span. Gives the since_ms of the one that had to go; FCAP_TIME_NONE: none had. */
int64_t fcap_gaps_add(struct fcap_gaps *gaps, const struct fcap_lost_span *span);

/* Forgets the spans that windows reaching back to `through_ms` have passed (since_ms <=
 * through_ms); true when there were any. */
bool fcap_gaps_forget(struct fcap_gaps *gaps, int64_t through_ms);

/* Appends the stored form. */
void fcap_gaps_encode(const struct fcap_gaps *gaps, struct fcap_buffer *buffer);

/* FORMAT: another version, or a kind that is not known; CORRUPT: damaged. */
enum fcap_status fcap_gaps_decode(struct fcap_bytes bytes,
                                  struct fcap_gaps *ret_gaps) FCAP_MUST_USE;

/* The name of the record's key. */
#define FCAP_GAPS_NAME "gaps"

#endif
