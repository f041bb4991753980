/* The changelog: the commits' own changes, in the order in which the store wrote them
 * (docs/DATA.md, "Checkpoints"). A segment is one object: a head, then a frame for each batch.
 *
 * Every frame carries its sequence number and a checksum, so that a reader knows a frame that is
 * torn, damaged, missing or out of order, and never gives a byte of it. Thread rule: plain data. */
#ifndef FCAP_CHANGELOG_H
#define FCAP_CHANGELOG_H

#include "fcap/batch.h"
#include "fcap/bytes.h"
#include "fcap/status.h"

/* Which history of batches a sequence number belongs to: drawn when a state is made, and anew when
 * one is restored, so that two states with the same past never share the numbers of their futures.
 */
#define FCAP_LINEAGE_BYTES 16

struct fcap_lineage {
    uint8_t bytes[FCAP_LINEAGE_BYTES];
};

/* In hexadecimal digits; gives `text`. */
#define FCAP_LINEAGE_TEXT_BYTES (2 * FCAP_LINEAGE_BYTES + 1)
const char *fcap_lineage_text(const struct fcap_lineage *lineage,
                              char text[FCAP_LINEAGE_TEXT_BYTES]);

/* A segment's head: appended once, before its first frame. */
struct fcap_changelog_head {
    struct fcap_lineage lineage;
    uint64_t first; /* sequence number of the first frame */
};

/* Appends the head. */
void fcap_changelog_put_head(struct fcap_buffer *buffer, const struct fcap_changelog_head *head);

/* Appends one frame: the kept sections of a batch (`kept[i]` for section i; NULL: all of them).
 * `written_ms`: wall clock, Unix epoch. False: it would be above FCAP_CHANGELOG_FRAME_MAX, and
 * nothing is appended. */
#define FCAP_CHANGELOG_FRAME_MAX ((size_t)1 << 30)
bool fcap_changelog_put_frame(struct fcap_buffer *buffer, uint64_t sequence, int64_t written_ms,
                              const struct fcap_batch *batch, const bool *kept) FCAP_MUST_USE;

/* Reads a segment piece by piece. Zero-initialised it starts at the head. The caller compares the
 * lineage and the first number with what it wants, and the last one when the segment ends: what is
 * cut off behind a whole frame shows only there. */
struct fcap_changelog_reader {
    struct fcap_lineage lineage; /* set by the head */
    uint64_t next;               /* the sequence number that the next frame must have */
    bool has_head;
};

/* One frame that was read. The batch is owned by the caller and reused from call to call; its
 * sections have assignment 0. */
struct fcap_changelog_frame {
    uint64_t sequence;
    int64_t written_ms;
    struct fcap_batch batch;
};

enum fcap_changelog_result {
    FCAP_CHANGELOG_FRAME,   /* *ret_frame is filled */
    FCAP_CHANGELOG_MORE,    /* the bytes end within the head or a frame: come again with more */
    FCAP_CHANGELOG_DAMAGED, /* a checksum, a number or a length is wrong */
    FCAP_CHANGELOG_FOREIGN, /* no changelog, or one of another version */
};

/* Reads the head when it has not been read, then one frame, from `bytes`; *ret_used tells how many
 * of them are done with, also with MORE (a head). The caller adds to the rest before it comes
 * again. After DAMAGED and FOREIGN nothing more can be read. */
enum fcap_changelog_result fcap_changelog_read(struct fcap_changelog_reader *reader,
                                               struct fcap_bytes bytes, size_t *ret_used,
                                               struct fcap_changelog_frame *ret_frame);

/* Keeps the sections of one partition alone. */
void fcap_changelog_filter(struct fcap_changelog_frame *frame, int32_t partition);

#endif
