/* A partition's meta record: everything about a task that is not a user, a timer or an ad
 * (docs/DATA.md), pinned by golden bytes. Thread rule: plain data. */
#ifndef FCAP_META_H
#define FCAP_META_H

#include "fcap/bytes.h"
#include "fcap/ports.h"
#include "fcap/status.h"
#include "fcap/user.h"

#define FCAP_WINDOW_NAME_MAX 32

/* One window of a partition. */
struct fcap_window_meta {
    uint16_t number; /* never reused in this partition */
    int64_t length_ms;
    char name[FCAP_WINDOW_NAME_MAX + 1];
    bool building; /* counts from timers are still being added up to `head_ms` */
    bool shown;    /* a Redis once held all of it: its values are kept up, complete or not */
    bool taken;    /* its name stood for another window, whose keys may still be in Redis */
    int64_t head_ms;
    int64_t complete_since_ms; /* the window is complete from here on; NONE: always was */
    struct fcap_sink_identity projected_to; /* the Redis that holds all of it; zero: none */
};

struct fcap_meta {
    int64_t next_offset;
    int64_t last_timestamp_ms; /* of the record before next_offset; -1: none */
    uint64_t last_key_hash;
    int64_t clock_ms;          /* T */
    int64_t history_ms;        /* H */
    int64_t complete_since_ms; /* nothing is missing after this; NONE: nothing was ever lost */
    uint64_t commit;           /* the newest commit's number */
    uint64_t valid_from;       /* chunks of older commits do not exist */
    uint64_t redo_from;        /* records in the store hold every change of older commits */
    int64_t redo_clock_ms;     /* T at the end of commit redo_from - 1 */
    int64_t redo_history_ms;   /* H then */
    uint32_t next_window;      /* number of the next window */
    uint32_t next_ad;          /* number of the next ad */
    int64_t bucket_ms;         /* width of a timer bucket */
    uint32_t partition_count;  /* of the topic; 0: not known */
    uint64_t epoch;            /* of the newest opening of the gate; 0: never */
    int64_t grown_ms;          /* when partitions were seen to have been added last; NONE: never */
    int64_t moved_until_ms;    /* of a later event nobody has sent to a place of before; NONE */
    int64_t counted_ms;        /* when there certainly were as many as before; NONE */
    uint32_t grown_from;       /* how many partitions there were before */
    bool settle_due;           /* all is to be shown once more when that moment has passed */
    bool look_due;             /* what the gate showed when it opened is not shown once more yet */
    size_t window_count;
    struct fcap_window_meta windows[FCAP_WINDOWS_MAX];
};

/* When T reaches this moment nothing can be missing from the window any more, unless something is
 * lost again; NONE: it never was incomplete. A window that is being built waits for that, too. */
int64_t fcap_meta_ready_at(const struct fcap_meta *meta, const struct fcap_window_meta *window);

/* Appends the stored form. */
void fcap_meta_encode(const struct fcap_meta *meta, struct fcap_buffer *buffer);

/* FORMAT: another version; CORRUPT: damaged. */
enum fcap_status fcap_meta_decode(struct fcap_bytes bytes,
                                  struct fcap_meta *ret_meta) FCAP_MUST_USE;

/* The name of the meta record's key. */
#define FCAP_META_NAME "task"

/* The name of the key that keeps, as be64, through where the store had dropped timers when this
 * state began (docs/DATA.md). Absent: through no bucket that it may need. */
#define FCAP_FLOOR_NAME "floor"

#endif
